//! How a request finds its command: by name, in any case, without allocation.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::sync::{LazyLock, OnceLock};

use crate::commands::all;
use crate::commands::error::Error;
use crate::resp::Request;

use super::command::{Arity, Command, Scope};
use super::key_spec::KeySpec;
use super::run::Run;

/// A command, or a subcommand, as the server knows it.
#[derive(Debug)]
pub struct Registered {
    /// What it is.
    pub command: &'static Command,
    /// The number under which its use is counted: from zero, without gaps.
    pub number: usize,
    /// Whether it takes about as long whatever its value is if it has but one argument, a key.
    pub is_brief_alone: bool,
    /// What it takes to run it, if it is brief, concerns exactly one key and nothing else, and is one.
    pub plain: Option<Plain>,
    /// Its subcommands.
    pub subcommands: Box<[Registered]>,
}

/// What it takes to run one of the commands that nearly all requests are for.
#[derive(Clone, Debug)]
pub struct Plain {
    /// Where the key is.
    pub key: usize,
    /// How many arguments there may be, the command's name among them.
    pub arguments: RangeInclusive<usize>,
    /// The handler, of those that read or write keys.
    pub run: Run,
}

impl Plain {
    fn of(command: &Command) -> Option<Plain> {
        let is_on_keys = matches!(command.run, Run::Read(_) | Run::Write(_));
        let key = command.only_key().filter(|_| command.is_brief && is_on_keys)?;
        let arguments = match command.arity {
            Arity::Exactly(count) => count..=count,
            Arity::AtLeast(least) => least..=usize::MAX,
        };
        Some(Plain { key, arguments, run: command.run })
    }
}

impl Registered {
    fn new(command: &'static Command, next_number: &mut usize) -> Registered {
        let number = *next_number;
        *next_number += 1;
        Registered {
            command,
            number,
            is_brief_alone: command.scope == Scope::Keys
                && matches!(command.keys, [KeySpec { first: 1, last: -1, step: 1, .. }]),
            plain: Plain::of(command),
            subcommands: command.subcommands.iter().map(|sub| Registered::new(sub, next_number)).collect(),
        }
    }

    /// The subcommand of a name, in any case.
    pub fn subcommand(&self, name: &[u8]) -> Option<&Registered> {
        let mut subcommands = self.subcommands.iter();
        subcommands.find(|registered| registered.command.own_name().as_bytes().eq_ignore_ascii_case(name))
    }
}

static TABLE: LazyLock<NameTable> =
    LazyLock::new(|| NameTable::new(RENAMED.get().map_or(&[], Vec::as_slice)));

/// What `rename-command` says, in its order.
static RENAMED: OnceLock<Renamed> = OnceLock::new();

/// Names of commands with those that they get instead, in lower case; an empty one takes the command away.
pub type Renamed = Vec<(String, Vec<u8>)>;

/// Gives commands other names. It must come before any is looked for: a second server in one process finds
/// what the first one has made of them.
pub fn rename(renamed: Renamed) {
    let _ = RENAMED.set(renamed);
}

/// The names by which commands are found once these are renamed.
pub fn names_after(renamed: &[(String, Vec<u8>)]) -> HashSet<Vec<u8>> {
    names(renamed).into_iter().map(|(name, _)| name).collect()
}

/// The same with the place of each command.
fn names(renamed: &[(String, Vec<u8>)]) -> Vec<(Vec<u8>, u16)> {
    let mut names: Vec<(Vec<u8>, u16)> = all().map(|command| command.name.into()).zip(0..).collect();
    for (old, new) in renamed {
        let Some(place) = names.iter().position(|(name, _)| name == old.as_bytes()) else { continue };
        if new.is_empty() {
            names.remove(place);
        } else {
            names[place].0.clone_from(new);
        }
    }
    names
}

/// All commands that can be called, without subcommands.
pub fn callable() -> impl Iterator<Item = &'static Command> + Clone {
    TABLE.names.iter().map(|(_, index)| TABLE.commands[usize::from(*index)].command)
}

/// The command of a name, in any case.
pub fn find(name: &[u8]) -> Option<&'static Registered> {
    TABLE.find(Packed::new(name), name).map(|(registered, _)| registered)
}

/// Finds the commands of many names, the same ones again and again.
#[derive(Debug, Default)]
pub struct Finder {
    /// What was found last, by a name that is all there is to it.
    last: Option<(Packed, &'static Registered)>,
}

impl Finder {
    /// The command of a name, in any case.
    #[inline(always)]
    pub fn find(&mut self, name: &[u8]) -> Option<&'static Registered> {
        let packed = Packed::new(name);
        match self.last {
            Some((last, registered)) if last == packed => Some(registered),
            _ => self.find_another(packed, name),
        }
    }

    fn find_another(&mut self, packed: Packed, name: &[u8]) -> Option<&'static Registered> {
        let (registered, is_exact) = TABLE.find(packed, name)?;
        self.last = is_exact.then_some((packed, registered));
        Some(registered)
    }
}

/// The command of a name that it had before any was renamed, in any case: logs have these.
pub fn find_own(name: &[u8]) -> Option<&'static Registered> {
    let is_own = |registered: &&Registered| registered.command.name.as_bytes().eq_ignore_ascii_case(name);
    find(name).filter(is_own).or_else(|| TABLE.commands.iter().find(is_own))
}

/// The command or subcommand of a full name such as `client|kill`, in any case.
pub fn find_full(name: &[u8]) -> Option<&'static Registered> {
    let mut parts = name.splitn(2, |byte| *byte == b'|');
    let command = find(parts.next()?)?;
    match parts.next() {
        None => Some(command),
        Some(subcommand) => command.subcommand(subcommand),
    }
}

/// All commands and subcommands, in the order of their numbers.
pub fn registered() -> impl Iterator<Item = &'static Registered> {
    TABLE.commands.iter().flat_map(|command| std::iter::once(command).chain(&command.subcommands))
}

/// The command or subcommand of a number.
pub fn numbered(number: usize) -> Option<&'static Registered> {
    static BY_NUMBER: LazyLock<Box<[&Registered]>> = LazyLock::new(|| registered().collect());
    BY_NUMBER.get(number).copied()
}

/// How many commands and subcommands there are.
pub fn count() -> usize {
    registered().count()
}

/// A table of names by a hash of their first eight bytes: one look and one comparison find nearly any of
/// them.
struct NameTable {
    commands: Box<[Registered]>,
    /// Each name with the place of its command.
    names: Box<[(Vec<u8>, u16)]>,
    slots: Box<[Option<Slot>; NameTable::SLOTS]>,
}

#[derive(Clone, Copy)]
struct Slot {
    packed: Packed,
    /// Whether the packed name is the whole name, and nothing else is packed like it.
    is_exact: bool,
    /// Which of the commands.
    index: u16,
    /// Which of the names.
    name: u16,
}

/// The length of a name with its first eight bytes in lower case, as one comparable value.
///
/// Case is folded by setting the bit in which upper and lower letters differ. That makes some other bytes
/// equal too, but none to a letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Packed {
    length: usize,
    folded: u64,
}

impl Packed {
    /// Reads the bytes in two overlapping halves, which is quicker than one by one.
    #[inline]
    fn new(name: &[u8]) -> Packed {
        let head = &name[..name.len().min(8)];
        let four = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let (low, high) = match head {
            [_, _, _, _, ..] => (four(&head[..4]), four(&head[head.len() - 4..])),
            [first, second, rest @ ..] => {
                (u32::from(*first) | u32::from(*second) << 8, rest.first().copied().map_or(0, u32::from))
            }
            [only] => (u32::from(*only), 0),
            [] => (0, 0),
        };
        let folded = (u64::from(high) << 32 | u64::from(low)) | 0x2020_2020_2020_2020;
        Packed { length: name.len(), folded }
    }

    #[inline]
    fn slot(self) -> usize {
        let mixed = (self.folded ^ self.length as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32) as usize % NameTable::SLOTS
    }
}

impl NameTable {
    /// More than twice as many as commands, so that runs of taken slots stay short; a power of two.
    const SLOTS: usize = 1024;

    fn new(renamed: &[(String, Vec<u8>)]) -> NameTable {
        let mut next_number = 0;
        let commands: Box<[Registered]> =
            all().map(|command| Registered::new(command, &mut next_number)).collect();
        let mut slots = Box::new([None; NameTable::SLOTS]);
        let names = names(renamed).into_boxed_slice();
        for (number, (name, index)) in (0..).zip(&names) {
            let packed = Packed::new(name);
            let mut at = packed.slot();
            while slots[at].is_some() {
                at = (at + 1) % NameTable::SLOTS;
            }
            let is_exact = packed.length <= 8 && name.iter().all(u8::is_ascii_lowercase);
            slots[at] = Some(Slot { packed, is_exact, index: *index, name: number });
        }
        NameTable { commands, names, slots }
    }

    /// The command of a name, and whether that is the only name which is packed like it.
    fn find(&self, packed: Packed, name: &[u8]) -> Option<(&Registered, bool)> {
        let mut at = packed.slot();
        while let Some(slot) = self.slots[at] {
            let is_whole =
                |slot: Slot| slot.is_exact || self.names[usize::from(slot.name)].0.eq_ignore_ascii_case(name);
            if slot.packed == packed && is_whole(slot) {
                return Some((&self.commands[usize::from(slot.index)], slot.is_exact));
            }
            at = (at + 1) % NameTable::SLOTS;
        }
        None
    }
}

/// The subcommand that a request names, where its command has any.
///
/// # Errors
///
/// If there is no such subcommand.
#[inline]
pub fn resolve(registered: &'static Registered, request: Request<'_>) -> Result<&'static Registered, Error> {
    if registered.subcommands.is_empty() {
        return Ok(registered);
    }
    match request.get(1) {
        None => Ok(registered),
        Some(name) => registered
            .subcommand(name)
            .ok_or_else(|| Error::unknown_subcommand(registered.command.name, name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_by_its_name_in_any_case() {
        for command in all() {
            for name in [command.name.to_owned(), command.name.to_ascii_uppercase()] {
                assert!(std::ptr::eq(find(name.as_bytes()).unwrap().command, command), "{name}");
            }
            for subcommand in command.subcommands {
                assert!(std::ptr::eq(find_full(subcommand.name.as_bytes()).unwrap().command, subcommand));
            }
        }
        for name in ["", "nosuch", "setn", "setnxx", "client|nosuch", "get|x", "se\x14", "ge\u{34}", "echo\0"]
        {
            assert!(find_full(name.as_bytes()).is_none(), "{name}");
        }
    }

    #[test]
    fn what_was_found_last_is_mistaken_for_nothing_else() {
        let names =
            ["get", "GET", "gets", "get\0", "ge\x14", "set", "setrange", "setrangeX", "hexpire", "getrange"];
        for (one, other) in names.iter().flat_map(|one| names.map(|other| (one.as_bytes(), other.as_bytes())))
        {
            let mut finder = Finder::default();
            for name in [one, other, other, one] {
                let found = finder.find(name).map(|registered| registered.command.name);
                assert_eq!(found, find(name).map(|registered| registered.command.name), "{name:?}");
            }
        }
    }

    #[test]
    fn most_commands_are_found_at_the_first_look() {
        let table = NameTable::new(&[]);
        let first = all().filter(|command| {
            let first = table.slots[Packed::new(command.name.as_bytes()).slot()];
            first.is_some_and(|slot| table.names[usize::from(slot.name)].0 == command.name.as_bytes())
        });
        assert!(first.count() * 10 >= all().count() * 8);
    }

    #[test]
    fn commands_can_have_other_names_or_none() {
        let renamed = [("get", "fetch-it"), ("flushall", ""), ("set", "get"), ("fetch-it", "Fetch")];
        let renamed = renamed.map(|(old, new)| (old.to_owned(), new.as_bytes().to_ascii_lowercase()));
        let table = NameTable::new(&renamed);
        let name = |called: &[u8]| {
            let found = table.find(Packed::new(called), called);
            found.map(|(registered, _)| registered.command.name)
        };
        assert_eq!(name(b"FETCH"), Some("get"));
        assert_eq!(name(b"Get"), Some("set"));
        for gone in [&b"set"[..], b"flushall", b"fetch-it", b""] {
            assert_eq!(name(gone), None, "{gone:?}");
        }
    }

    #[test]
    fn numbers_have_no_gaps() {
        assert!(registered().map(|registered| registered.number).eq(0..count()));
    }
}
