//! What one set of rules allows: commands, keys and channels.

use std::collections::BTreeMap;
use std::fmt;

use crate::glob::{Pattern, REGISTERED_BYTES_MAX, TooLong};

use super::catalog::Catalog;

/// One set of permissions. A user has one of its own and may have more beside it, each of which suffices.
#[derive(Clone, Debug)]
pub struct Selector {
    /// A bit for each command, by its number.
    commands: Vec<u64>,
    /// Whether everything is allowed that is not forbidden: what ACL LIST begins with.
    begins_with_all: bool,
    /// The rules about commands, in their order, as ACL LIST prints them.
    command_rules: Vec<String>,
    /// First arguments with which commands are allowed that are not otherwise.
    first_arguments: BTreeMap<usize, Vec<Vec<u8>>>,
    all_keys: bool,
    key_patterns: Vec<KeyPattern>,
    all_channels: bool,
    channel_patterns: Vec<Pattern<'static>>,
}

#[derive(Clone, Debug)]
struct KeyPattern {
    pattern: Pattern<'static>,
    access: Access,
}

/// How a key is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Its value is read.
    pub reads: bool,
    /// Its value is changed, or it is made or deleted.
    pub writes: bool,
}

/// What a client wants to do: a command, with its keys and channels.
#[derive(Clone, Copy, Debug)]
pub struct Deed<'a, Keys, Channels> {
    /// The command's number; `None` for a command that every user may run.
    pub command: Option<usize>,
    /// The first argument behind the command's name.
    pub first_argument: Option<&'a [u8]>,
    /// The keys, and how each is used.
    pub keys: Keys,
    /// The channels, or the patterns of channels.
    pub channels: Channels,
    /// Whether these are patterns of channels, which only the same pattern allows.
    pub channels_are_patterns: bool,
}

/// What of a deed is not allowed. The greater one of two denials is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Denial {
    /// The command itself, whatever its keys.
    Command,
    /// One of the keys: which, from zero.
    Key(usize),
    /// One of the channels: which, from zero.
    Channel(usize),
}

/// Why a rule is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// Nothing like it is known, or a pattern has blanks in it.
    Syntax,
    /// A pattern is too long to be matched against each key or channel.
    PatternTooLong,
    /// It names an unknown command or category.
    UnknownCommand,
    /// It names an argument of a subcommand.
    ArgumentOfSubcommand,
    /// It adds a pattern of keys to those of all keys.
    KeysAfterAll,
    /// It adds a pattern of channels to those of all channels.
    ChannelsAfterAll,
    /// It removes a password that the user does not have.
    NoSuchPassword,
    /// It gives a hash that is malformed.
    NotAHash,
}

/// In the words of Redis.
impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mistake::Syntax => "Syntax error",
            Mistake::PatternTooLong => {
                return write!(f, "A pattern may have at most {REGISTERED_BYTES_MAX} bytes");
            }
            Mistake::UnknownCommand => "Unknown command or category name in ACL",
            Mistake::ArgumentOfSubcommand => "Allowing first-arg of a subcommand is not supported",
            Mistake::KeysAfterAll => {
                "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have \
                 any effect. Try 'resetkeys' to start with an empty list of patterns"
            }
            Mistake::ChannelsAfterAll => {
                "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not \
                 have any effect. Try 'resetchannels' to start with an empty list of channels"
            }
            Mistake::NoSuchPassword => "The password you are trying to remove from the user does not exist",
            Mistake::NotAHash => {
                "The password hash must be exactly 64 characters and contain only lowercase hexadecimal \
                 characters"
            }
        })
    }
}

impl From<TooLong> for Mistake {
    fn from(_: TooLong) -> Mistake {
        Mistake::PatternTooLong
    }
}

/// Whether a text cannot be a name or a pattern: ACL LIST would not be read back as it was written.
pub(super) fn has_blanks(text: &[u8]) -> bool {
    text.iter().any(|byte| byte.is_ascii_whitespace() || matches!(byte, 0x0b | 0))
}

impl Selector {
    /// Allows nothing, but perhaps all channels.
    pub(super) fn new(catalog: &Catalog, all_channels: bool) -> Selector {
        Selector {
            commands: vec![0; catalog.len().div_ceil(u64::BITS as usize)],
            begins_with_all: false,
            command_rules: Vec::new(),
            first_arguments: BTreeMap::new(),
            all_keys: false,
            key_patterns: Vec::new(),
            all_channels,
            channel_patterns: Vec::new(),
        }
    }

    /// Whether there is nothing that it does not allow, of the commands that the server has.
    pub(super) fn allows_everything(&self, catalog: &Catalog) -> bool {
        self.all_keys && self.all_channels && (0..catalog.here()).all(|number| self.has(number))
    }

    /// Obeys one rule.
    ///
    /// # Errors
    ///
    /// If it is none; nothing has changed then.
    pub(super) fn apply(&mut self, rule: &[u8], catalog: &Catalog) -> Result<(), Mistake> {
        let is = |word: &str| rule.eq_ignore_ascii_case(word.as_bytes());
        match rule {
            _ if is("allkeys") || is("~*") => self.set_keys(true),
            _ if is("resetkeys") => self.set_keys(false),
            _ if is("allchannels") || is("&*") => self.set_channels(true),
            _ if is("resetchannels") => self.set_channels(false),
            _ if is("allcommands") || is("+@all") => self.set_commands(true),
            _ if is("nocommands") || is("-@all") => self.set_commands(false),
            [b'~' | b'%', ..] if self.all_keys => return Err(Mistake::KeysAfterAll),
            [b'~', pattern @ ..] => {
                return self.add_key_pattern(pattern, Access { reads: true, writes: true });
            }
            [b'%', rest @ ..] => {
                let (access, pattern) = parse_access(rest).ok_or(Mistake::Syntax)?;
                return self.add_key_pattern(pattern, access);
            }
            [b'&', pattern @ ..] => return self.add_channel_pattern(pattern),
            [sign @ (b'+' | b'-'), b'@', category @ ..] => {
                return self.change_category(*sign == b'+', category, catalog);
            }
            [b'+', name @ ..] if name.contains(&b'|') => return self.allow_part(name, catalog),
            [sign @ (b'+' | b'-'), name @ ..] => {
                let number = catalog.find(name).ok_or(Mistake::UnknownCommand)?;
                self.change_command(*sign == b'+', number, catalog);
                self.note_rule(*sign == b'+', catalog.name(number));
            }
            _ => return Err(Mistake::Syntax),
        }
        Ok(())
    }

    fn set_keys(&mut self, all: bool) {
        self.all_keys = all;
        self.key_patterns.clear();
    }

    fn set_channels(&mut self, all: bool) {
        self.all_channels = all;
        self.channel_patterns.clear();
    }

    fn set_commands(&mut self, all: bool) {
        self.commands.fill(if all { u64::MAX } else { 0 });
        self.begins_with_all = all;
        self.command_rules.clear();
        self.first_arguments.clear();
    }

    fn add_key_pattern(&mut self, pattern: &[u8], access: Access) -> Result<(), Mistake> {
        if has_blanks(pattern) {
            return Err(Mistake::Syntax);
        }
        match self.key_patterns.iter_mut().find(|known| known.pattern.bytes() == pattern) {
            Some(known) => {
                known.access.reads |= access.reads;
                known.access.writes |= access.writes;
            }
            None => self.key_patterns.push(KeyPattern { pattern: Pattern::register(pattern)?, access }),
        }
        Ok(())
    }

    fn add_channel_pattern(&mut self, pattern: &[u8]) -> Result<(), Mistake> {
        if self.all_channels {
            return Err(Mistake::ChannelsAfterAll);
        }
        if has_blanks(pattern) {
            return Err(Mistake::Syntax);
        }
        if !self.channel_patterns.iter().any(|known| known.bytes() == pattern) {
            self.channel_patterns.push(Pattern::register(pattern)?);
        }
        Ok(())
    }

    fn change_category(&mut self, allow: bool, category: &[u8], catalog: &Catalog) -> Result<(), Mistake> {
        for number in catalog.of_category(category).ok_or(Mistake::UnknownCommand)? {
            self.change_command(allow, number, catalog);
        }
        self.note_rule(allow, &format!("@{}", String::from_utf8_lossy(category)));
        Ok(())
    }

    /// Allows a subcommand, or a command with a certain first argument.
    fn allow_part(&mut self, name: &[u8], catalog: &Catalog) -> Result<(), Mistake> {
        let bar = name.iter().rposition(|byte| *byte == b'|').unwrap_or(0);
        let (whole, part) = (&name[..bar], &name[bar + 1..]);
        let number = catalog.find(whole).ok_or(Mistake::UnknownCommand)?;
        let entry = catalog.entry(number);
        if entry.name.contains('|') {
            return Err(Mistake::ArgumentOfSubcommand);
        }
        if part.is_empty() {
            return Err(Mistake::Syntax);
        }
        if !entry.subcommands.is_empty() {
            let number = catalog.find(name).ok_or(Mistake::UnknownCommand)?;
            self.change_command(true, number, catalog);
            self.note_rule(true, catalog.name(number));
            return Ok(());
        }
        if has_blanks(part) || std::str::from_utf8(part).is_err() {
            return Err(Mistake::Syntax);
        }
        let arguments = self.first_arguments.entry(number).or_default();
        if !arguments.iter().any(|known| known.eq_ignore_ascii_case(part)) {
            arguments.push(part.to_vec());
        }
        self.note_rule(true, &String::from_utf8_lossy(name));
        Ok(())
    }

    /// Allows or forbids a command and its subcommands.
    fn change_command(&mut self, allow: bool, number: usize, catalog: &Catalog) {
        self.first_arguments.remove(&number);
        for number in std::iter::once(number).chain(catalog.entry(number).subcommands.iter().copied()) {
            let (word, bit) = place(number);
            if allow {
                self.commands[word] |= bit;
            } else {
                self.commands[word] &= !bit;
            }
        }
    }

    /// Notes a rule about commands, in place of earlier rules that it makes void.
    fn note_rule(&mut self, allow: bool, name: &str) {
        let name = name.to_ascii_lowercase();
        self.command_rules.retain(|rule| {
            let rest = rule[1..].strip_prefix(&name);
            !rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('|'))
        });
        self.command_rules.push(format!("{}{name}", if allow { '+' } else { '-' }));
    }

    fn has(&self, number: usize) -> bool {
        let (word, bit) = place(number);
        self.commands.get(word).is_some_and(|commands| commands & bit != 0)
    }

    /// Judges a deed.
    ///
    /// # Errors
    ///
    /// With the first thing that is not allowed.
    pub(super) fn check<'a, Keys, Channels>(&self, deed: &Deed<'a, Keys, Channels>) -> Result<(), Denial>
    where
        Keys: Iterator<Item = (&'a [u8], Access)> + Clone,
        Channels: Iterator<Item = &'a [u8]> + Clone,
    {
        if !deed.command.is_none_or(|number| self.allows_command(number, deed.first_argument)) {
            return Err(Denial::Command);
        }
        if let Some(at) = deed.keys.clone().position(|(key, access)| !self.allows_key(key, access)) {
            return Err(Denial::Key(at));
        }
        let is_pattern = deed.channels_are_patterns;
        let mut channels = deed.channels.clone();
        match channels.position(|channel| !self.allows_channel(channel, is_pattern)) {
            Some(at) => Err(Denial::Channel(at)),
            None => Ok(()),
        }
    }

    fn allows_command(&self, number: usize, first_argument: Option<&[u8]>) -> bool {
        let is_among = |allowed: &Vec<Vec<u8>>| {
            first_argument.is_some_and(|first| allowed.iter().any(|one| one.eq_ignore_ascii_case(first)))
        };
        self.has(number) || self.first_arguments.get(&number).is_some_and(is_among)
    }

    fn allows_key(&self, key: &[u8], access: Access) -> bool {
        let allows = |known: &KeyPattern| suffices(known.access, access) && known.pattern.matches(key);
        self.all_keys || self.key_patterns.iter().any(allows)
    }

    /// Whether all keys may be used in this way. As in Redis, one pattern must say so: several that allow
    /// all keys together do not suffice.
    pub(super) fn allows_all_keys(&self, access: Access) -> bool {
        let is_for_all = |known: &KeyPattern| known.pattern.bytes() == b"*" && suffices(known.access, access);
        self.all_keys || self.key_patterns.iter().any(is_for_all)
    }

    /// Whether a channel may be used; a pattern of channels only if it is itself among the rules.
    pub(super) fn allows_channel(&self, channel: &[u8], is_pattern: bool) -> bool {
        let allows = |known: &Pattern<'_>| match is_pattern {
            true => known.bytes() == channel,
            false => known.matches(channel),
        };
        self.all_channels || self.channel_patterns.iter().any(allows)
    }

    /// The rules about commands, as ACL LIST prints them.
    pub fn describe_commands(&self) -> Vec<u8> {
        let beginning = if self.begins_with_all { "+@all" } else { "-@all" };
        let rules = std::iter::once(beginning).chain(self.command_rules.iter().map(String::as_str));
        rules.collect::<Vec<_>>().join(" ").into_bytes()
    }

    /// The patterns of keys.
    pub fn describe_keys(&self) -> Vec<u8> {
        if self.all_keys {
            return b"~*".to_vec();
        }
        let describe = |known: &KeyPattern| {
            let sign: &[u8] = match known.access {
                Access { reads: true, writes: true } => b"~",
                Access { reads: true, .. } => b"%R~",
                Access { .. } => b"%W~",
            };
            [sign, known.pattern.bytes()].concat()
        };
        self.key_patterns.iter().map(describe).collect::<Vec<_>>().join(&b' ')
    }

    /// The patterns of channels.
    pub fn describe_channels(&self) -> Vec<u8> {
        if self.all_channels {
            return b"&*".to_vec();
        }
        let describe = |pattern: &Pattern<'_>| [b"&", pattern.bytes()].concat();
        self.channel_patterns.iter().map(describe).collect::<Vec<_>>().join(&b' ')
    }

    /// All of it, as rules that make it.
    pub(super) fn describe(&self) -> Vec<u8> {
        let channels = self.describe_channels();
        let reset: &[u8] = if self.all_channels { b"" } else { b"resetchannels" };
        let parts = [self.describe_keys(), reset.to_vec(), channels, self.describe_commands()];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(&b' ')
    }
}

/// Whether a permission includes the use of a key.
fn suffices(allowed: Access, access: Access) -> bool {
    (allowed.reads || !access.reads) && (allowed.writes || !access.writes)
}

/// Where the bit of a command is.
fn place(number: usize) -> (usize, u64) {
    let bits = u64::BITS as usize;
    (number / bits, 1 << (number % bits))
}

/// Reads `R~pattern`, `W~pattern` or `RW~pattern`. As in Redis, the pattern may be missing with its tilde.
fn parse_access(rest: &[u8]) -> Option<(Access, &[u8])> {
    let mut access = Access::default();
    for (at, letter) in rest.iter().enumerate() {
        match letter.to_ascii_uppercase() {
            b'R' if !access.reads => access.reads = true,
            b'W' if !access.writes => access.writes = true,
            b'~' if access != Access::default() => return Some((access, &rest[at + 1..])),
            _ => return None,
        }
    }
    (access != Access::default()).then_some((access, &[]))
}
