//! The commands, and how a request finds its own.
//!
//! Each family is a file with one constant for each command, its handler beneath it and their list on top;
//! [`FAMILIES`] is the list of these lists. [`command`] says what a command is, [`error`] and [`args`] serve
//! the handlers, [`execute`] is the one door through which all of them are run.

pub mod args;
pub mod command;
pub mod error;
pub mod execute;

mod client;
mod config;
mod connection;
mod info;
mod introspection;
mod keys;
mod server;
mod strings;

use std::sync::LazyLock;

pub use command::Command;

/// All commands.
pub const FAMILIES: &[&[Command]] = &[
    strings::COMMANDS,
    keys::COMMANDS,
    connection::COMMANDS,
    client::COMMANDS,
    server::COMMANDS,
    config::COMMANDS,
    info::COMMANDS,
    introspection::COMMANDS,
];

/// All commands, without subcommands.
pub fn all() -> impl Iterator<Item = &'static Command> + Clone {
    FAMILIES.iter().flat_map(|family| family.iter())
}

/// The command of a name, in any case.
#[inline]
pub fn find(name: &[u8]) -> Option<&'static Command> {
    static TABLE: LazyLock<NameTable> = LazyLock::new(NameTable::new);
    TABLE.find(name)
}

/// The command or subcommand of a full name such as `client|kill`, in any case.
pub fn find_full(name: &[u8]) -> Option<&'static Command> {
    let mut parts = name.splitn(2, |byte| *byte == b'|');
    let command = find(parts.next()?)?;
    match parts.next() {
        None => Some(command),
        Some(subcommand) => command.subcommand(subcommand),
    }
}

/// A table of names by a hash of length and first bytes: one look and one comparison find nearly any of them.
struct NameTable {
    slots: Box<[Option<&'static Command>]>,
}

impl NameTable {
    /// More than twice as many as commands, so that runs of taken slots stay short; a power of two.
    const SLOTS: usize = 1024;

    fn new() -> NameTable {
        let mut slots = vec![None; NameTable::SLOTS].into_boxed_slice();
        for command in all() {
            let mut at = NameTable::slot(command.name.as_bytes());
            while slots[at].is_some() {
                at = (at + 1) % NameTable::SLOTS;
            }
            slots[at] = Some(command);
        }
        NameTable { slots }
    }

    fn find(&self, name: &[u8]) -> Option<&'static Command> {
        let mut at = NameTable::slot(name);
        while let Some(command) = self.slots[at] {
            if command.name.as_bytes().eq_ignore_ascii_case(name) {
                return Some(command);
            }
            at = (at + 1) % NameTable::SLOTS;
        }
        None
    }

    /// Folds case by setting the bit in which upper and lower letters differ.
    fn slot(name: &[u8]) -> usize {
        let mut head = [0; 8];
        let length = name.len().min(8);
        head[..length].copy_from_slice(&name[..length]);
        let folded = u64::from_le_bytes(head) | 0x2020_2020_2020_2020;
        let mixed = (folded ^ name.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32) as usize % NameTable::SLOTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_by_its_name_in_any_case() {
        for command in all() {
            for name in [command.name.to_owned(), command.name.to_ascii_uppercase()] {
                assert!(std::ptr::eq(find(name.as_bytes()).unwrap(), command), "{name}");
            }
            for subcommand in command.subcommands {
                assert!(std::ptr::eq(find_full(subcommand.name.as_bytes()).unwrap(), subcommand));
            }
        }
        for name in ["", "nosuch", "setn", "setnxx", "client|nosuch", "get|x"] {
            assert!(find_full(name.as_bytes()).is_none(), "{name}");
        }
    }

    #[test]
    fn most_commands_are_found_at_the_first_look() {
        let table = NameTable::new();
        let first = all().filter(|command| {
            table.slots[NameTable::slot(command.name.as_bytes())]
                .is_some_and(|found| found.name == command.name)
        });
        assert!(first.count() * 10 >= all().count() * 8);
    }
}
