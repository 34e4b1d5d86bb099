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

/// A table of names by a hash of their first eight bytes: one look and one comparison find nearly any of
/// them.
struct NameTable {
    slots: Box<[Option<Slot>]>,
}

#[derive(Clone, Copy)]
struct Slot {
    packed: Packed,
    /// Whether the packed name is the whole name, and nothing else is packed like it.
    is_exact: bool,
    command: &'static Command,
}

/// The length of a name with its first eight bytes in lower case, as one comparable value.
///
/// Case is folded by setting the bit in which upper and lower letters differ. That makes some other bytes
/// equal too, but none to a letter.
#[derive(Clone, Copy, PartialEq, Eq)]
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

    fn new() -> NameTable {
        let mut slots = vec![None; NameTable::SLOTS].into_boxed_slice();
        for command in all() {
            let packed = Packed::new(command.name.as_bytes());
            let mut at = packed.slot();
            while slots[at].is_some() {
                at = (at + 1) % NameTable::SLOTS;
            }
            let is_exact = packed.length <= 8 && command.name.bytes().all(|byte| byte.is_ascii_lowercase());
            slots[at] = Some(Slot { packed, is_exact, command });
        }
        NameTable { slots }
    }

    #[inline]
    fn find(&self, name: &[u8]) -> Option<&'static Command> {
        let packed = Packed::new(name);
        let mut at = packed.slot();
        while let Some(slot) = self.slots[at] {
            let is_same = || slot.is_exact || slot.command.name.as_bytes().eq_ignore_ascii_case(name);
            if slot.packed == packed && is_same() {
                return Some(slot.command);
            }
            at = (at + 1) % NameTable::SLOTS;
        }
        None
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
        for name in ["", "nosuch", "setn", "setnxx", "client|nosuch", "get|x", "se\x14", "ge\u{34}", "echo\0"]
        {
            assert!(find_full(name.as_bytes()).is_none(), "{name}");
        }
    }

    #[test]
    fn most_commands_are_found_at_the_first_look() {
        let table = NameTable::new();
        let first = all().filter(|command| {
            let first = table.slots[Packed::new(command.name.as_bytes()).slot()];
            first.is_some_and(|slot| slot.command.name == command.name)
        });
        assert!(first.count() * 10 >= all().count() * 8);
    }
}
