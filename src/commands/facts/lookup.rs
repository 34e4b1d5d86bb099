//! How a request finds its command: by name, in any case, without allocation.
//!
//! The table of commands and their numbers is the same for all servers in a process. The names are not: each
//! server renames commands as its configuration says, so a lookup begins with the names of one server.

use std::ops::Range;
use std::sync::{Arc, LazyLock};

use crate::commands::all;
use crate::commands::error::Error;
use crate::keyspace::Transaction;
use crate::name_table::{NameTable, Packed};
use crate::resp::{Reply, Request};
use crate::session::{Queue, Queued};

use super::blocking::Blocking;
use super::command::{Arity, Command, Run};
use super::context::Result;
use super::cost::Costs;
use super::flags::Traits;

/// A command, or a subcommand, as the server knows it.
#[derive(Debug)]
pub struct Registered {
    /// The command's facts.
    pub command: &'static Command,
    /// The number of its arguments.
    pub arity: Arity,
    /// Its name without that of the command to which it belongs.
    own_name: &'static [u8],
    /// The same name, packed.
    packed: Packed,
    /// Whether the packed name decides which one it is.
    is_exact: bool,
    /// The number under which its use is counted: from zero, without gaps.
    pub number: usize,
    /// The fast path, for a brief command that concerns exactly one key and nothing else.
    pub plain: Option<Plain>,
    /// The subcommands, numbered too.
    pub subcommands: Box<[Registered]>,
}

/// The fast path of the commands that nearly all requests are for.
#[derive(Clone, Debug)]
pub struct Plain {
    /// Where the key is.
    pub key: usize,
    /// How many arguments there may be, the command's name among them.
    pub arguments: Range<usize>,
    /// The handler that runs on the shard of the key.
    pub run: PlainRun,
}

/// The handler of a command that reads or writes keys.
#[derive(Clone, Copy, Debug)]
pub enum PlainRun {
    /// Reads the key.
    Read(fn(&Transaction<'_>, Request<'_>, Reply<'_>) -> Result),
    /// Writes the key.
    Write(WriteHandler),
    /// Takes something from the key, and does not wait for it: its brief form is one that does not.
    Take(&'static Blocking),
    /// Fills a list: it may serve clients that wait for one.
    Fill(WriteHandler),
    /// Changes a part of a string, which takes the plain way only where that is
    /// [brief](Costs::is_brief_part).
    ChangePart(WriteHandler, &'static Costs),
}

type WriteHandler = fn(&mut Transaction<'_>, Request<'_>, Reply<'_>) -> Result;

impl Plain {
    fn of(command: &'static Command) -> Option<Plain> {
        let costs = &command.cost;
        let run = match command.run {
            _ if costs.brief_arguments_max == 0 => return None,
            Run::Read(handler) => PlainRun::Read(handler),
            Run::Block(blocking) => PlainRun::Take(blocking),
            Run::Write(handler) if costs.changes_part => PlainRun::ChangePart(handler, costs),
            Run::Write(handler) if command.traits.contains(Traits::BRINGS_ARGUMENTS) => {
                PlainRun::Fill(handler)
            }
            Run::Write(handler) => PlainRun::Write(handler),
            _ => return None,
        };
        let arguments = match command.arity() {
            Arity::Exactly(count) => count..count + 1,
            Arity::AtLeast(least) => least..costs.brief_arguments_max.saturating_add(1),
        };
        let key = command.only_key(arguments.end - 1)?;
        Some(Plain { key, arguments, run })
    }
}

impl Registered {
    fn new(command: &'static Command, next_number: &mut usize) -> Registered {
        let number = *next_number;
        *next_number += 1;
        let own_name = command.own_name().as_bytes();
        let packed = Packed::new(own_name);
        Registered {
            command,
            arity: command.arity(),
            own_name,
            packed,
            is_exact: packed.is_exact(own_name),
            number,
            plain: Plain::of(command),
            subcommands: command.subcommands.iter().map(|sub| Registered::new(sub, next_number)).collect(),
        }
    }

    /// The subcommand of a name, in any case.
    pub fn subcommand(&self, name: &[u8]) -> Option<&Registered> {
        let packed = Packed::new(name);
        self.subcommands.iter().find(|registered| {
            registered.packed == packed
                && (registered.is_exact || registered.own_name.eq_ignore_ascii_case(name))
        })
    }
}

/// All commands, in the order of their numbers; the names of one server have indexes of it.
static TABLE: LazyLock<Box<[Registered]>> = LazyLock::new(|| {
    let mut next_number = 0;
    all().map(|command| Registered::new(command, &mut next_number)).collect()
});

/// Makes the table of commands, unless it is there.
pub(crate) fn make_table() {
    LazyLock::force(&TABLE);
}

/// The names that the commands have by themselves.
static OWN_NAMES: LazyLock<Arc<NameTable>> = LazyLock::new(|| Arc::new(new_names(&[])));

/// What `rename-command` says, in its order: names of commands with those that they get instead, in lower
/// case. An empty new name removes the command.
pub(crate) type Renamed = Vec<(String, Vec<u8>)>;

/// The names by which a server finds its commands after these were renamed. All servers that rename none
/// share one table.
pub(crate) fn names(renamed: &[(String, Vec<u8>)]) -> Arc<NameTable> {
    if renamed.is_empty() { Arc::clone(&OWN_NAMES) } else { Arc::new(new_names(renamed)) }
}

fn new_names(renamed: &[(String, Vec<u8>)]) -> NameTable {
    let mut names: Vec<(Vec<u8>, u16)> = all().map(|command| command.name.into()).zip(0..).collect();
    for (old, new) in renamed {
        let Some(place) = names.iter().position(|(name, _)| name == old.as_bytes()) else { continue };
        if new.is_empty() {
            names.remove(place);
        } else {
            names[place].0.clone_from(new);
        }
    }
    NameTable::new(names)
}

/// The names that the commands have if none is renamed: logs contain these.
pub fn own_names() -> &'static NameTable {
    &OWN_NAMES
}

/// The commands that have one of these names, without subcommands.
pub(crate) fn callable(names: &NameTable) -> impl Iterator<Item = &'static Command> + Clone {
    names.iter().map(|(_, index)| TABLE[usize::from(index)].command)
}

/// The command of a name, in any case.
pub(crate) fn find(names: &NameTable, name: &[u8]) -> Option<&'static Registered> {
    names.find(Packed::new(name), name).map(|found| &TABLE[usize::from(found.number)])
}

/// Finds the commands of many names, most of them several times in a row.
#[derive(Debug)]
pub struct Finder<'a> {
    names: &'a NameTable,
    /// The result of the last lookup, if the packed name decides it.
    last: Option<(Packed, &'static Registered)>,
}

impl<'a> Finder<'a> {
    /// For the names of a server.
    #[inline]
    pub fn new(names: &'a NameTable) -> Finder<'a> {
        Finder { names, last: None }
    }

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
        let found = self.names.find(packed, name)?;
        let registered = &TABLE[usize::from(found.number)];
        self.last = found.is_exact.then_some((packed, registered));
        Some(registered)
    }
}

/// The command or subcommand of a full name such as `client|kill`, in any case.
pub fn find_full(names: &NameTable, name: &[u8]) -> Option<&'static Registered> {
    let mut parts = name.splitn(2, |byte| *byte == b'|');
    let command = find(names, parts.next()?)?;
    match parts.next() {
        None => Some(command),
        Some(subcommand) => command.subcommand(subcommand),
    }
}

/// All commands and subcommands, in the order of their numbers.
pub(crate) fn registered() -> impl Iterator<Item = &'static Registered> {
    TABLE.iter().flat_map(|command| std::iter::once(command).chain(&command.subcommands))
}

/// The command or subcommand of a number.
pub(crate) fn numbered(number: usize) -> Option<&'static Registered> {
    static BY_NUMBER: LazyLock<Box<[&Registered]>> = LazyLock::new(|| registered().collect());
    BY_NUMBER.get(number).copied()
}

/// The subcommand that a request names, where its command has any.
///
/// # Errors
///
/// If there is no such subcommand.
#[inline]
pub(crate) fn resolve(registered: &'static Registered, request: Request<'_>) -> Result<&'static Registered> {
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

/// The commands of a queue. They were found and admitted when they were queued.
pub(crate) fn queued(queue: &Queue) -> impl Iterator<Item = (&'static Registered, Request<'_>)> + Clone {
    queue.commands.iter().filter_map(queued_command)
}

/// One of them.
pub(in crate::commands) fn queued_command(queued: &Queued) -> Option<(&'static Registered, Request<'_>)> {
    Some((numbered(queued.number)?, queued.request.request()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_by_its_name_in_any_case() {
        for command in all() {
            for name in [command.name.to_owned(), command.name.to_ascii_uppercase()] {
                assert!(std::ptr::eq(find(own_names(), name.as_bytes()).unwrap().command, command), "{name}");
            }
            for subcommand in command.subcommands {
                for name in [subcommand.name.to_owned(), subcommand.name.to_ascii_uppercase()] {
                    let found = find_full(own_names(), name.as_bytes()).unwrap();
                    assert!(std::ptr::eq(found.command, subcommand), "{name}");
                }
            }
        }
        for name in [
            "",
            "nosuch",
            "setn",
            "setnxx",
            "client|nosuch",
            "client|no\revict",
            "client|kill\0",
            "get|x",
            "se\x14",
            "ge\u{34}",
            "echo\0",
        ] {
            assert!(find_full(own_names(), name.as_bytes()).is_none(), "{name}");
        }
    }

    #[test]
    fn what_was_found_last_is_mistaken_for_nothing_else() {
        let names =
            ["get", "GET", "gets", "get\0", "ge\x14", "set", "setrange", "setrangeX", "hexpire", "getrange"];
        for (one, other) in names.iter().flat_map(|one| names.map(|other| (one.as_bytes(), other.as_bytes())))
        {
            let mut finder = Finder::new(own_names());
            for name in [one, other, other, one] {
                let found = finder.find(name).map(|registered| registered.command.name);
                assert_eq!(
                    found,
                    find(own_names(), name).map(|registered| registered.command.name),
                    "{name:?}"
                );
            }
        }
    }

    #[test]
    fn most_commands_are_found_at_the_first_look() {
        assert!(own_names().found_at_once() * 10 >= all().count() * 8);
    }

    #[test]
    fn commands_can_have_other_names_or_none() {
        let renamed = [("get", "fetch-it"), ("flushall", ""), ("set", "get"), ("fetch-it", "Fetch")];
        let renamed = renamed.map(|(old, new)| (old.to_owned(), new.as_bytes().to_ascii_lowercase()));
        let names = names(&renamed);
        let name = |called: &[u8]| find(&names, called).map(|registered| registered.command.name);
        assert_eq!(name(b"FETCH"), Some("get"));
        assert_eq!(name(b"Get"), Some("set"));
        for gone in [&b"set"[..], b"flushall", b"fetch-it", b""] {
            assert_eq!(name(gone), None, "{gone:?}");
        }
        assert_eq!(callable(&names).count() + 1, all().count());
        assert_eq!(find(own_names(), b"SET").map(|registered| registered.command.name), Some("set"));
    }

    #[test]
    fn numbers_have_no_gaps() {
        assert!(registered().map(|registered| registered.number).eq(0..registered().count()));
    }
}
