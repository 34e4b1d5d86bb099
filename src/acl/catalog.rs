//! What rules may name: the commands, by their numbers, and their categories.
//!
//! Whoever has the commands makes the catalog; this room knows none.

use std::ops::Range;

/// The categories of Redis, in its order. Some have no command here, yet rules that name them are right.
pub const CATEGORIES: [&str; 21] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

/// The commands and subcommands, in the order of their numbers.
#[derive(Debug, Default)]
pub struct Catalog {
    entries: Vec<Entry>,
}

/// One command or subcommand.
#[derive(Debug)]
pub(super) struct Entry {
    /// In lower case; a subcommand's begins with its command's and a bar.
    pub(super) name: &'static str,
    /// A bit for each of [`CATEGORIES`].
    categories: u32,
    /// The numbers of its subcommands.
    pub(super) subcommands: Range<usize>,
}

impl Catalog {
    /// Adds the command with the next number; its subcommands, so many, must follow.
    ///
    /// # Panics
    ///
    /// If it has a category that Redis does not: the table of commands is wrong.
    pub fn add<'a>(
        &mut self,
        name: &'static str,
        categories: impl IntoIterator<Item = &'a str>,
        subcommands: usize,
    ) {
        let bit = |category: &str| {
            let number = CATEGORIES.iter().position(|known| *known == category.trim_start_matches('@'));
            1 << number.unwrap_or_else(|| panic!("{category} of {name} is no category"))
        };
        let categories = categories.into_iter().map(bit).sum();
        let next = self.entries.len() + 1;
        self.entries.push(Entry { name, categories, subcommands: next..next + subcommands });
    }

    /// How many commands and subcommands there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The number of the command, or subcommand, of a full name such as `config|get`, in any case.
    pub(super) fn find(&self, name: &[u8]) -> Option<usize> {
        self.entries.iter().position(|entry| entry.name.as_bytes().eq_ignore_ascii_case(name))
    }

    /// What is known of the command with this number.
    pub(super) fn entry(&self, number: usize) -> &Entry {
        &self.entries[number]
    }

    /// The numbers of the commands of a category, given without its `@`, in any case; `None` if there is no
    /// such category.
    pub fn of_category(&self, category: &[u8]) -> Option<impl Iterator<Item = usize>> {
        let bit = CATEGORIES.iter().position(|known| known.as_bytes().eq_ignore_ascii_case(category))?;
        let entries = self.entries.iter().enumerate();
        Some(entries.filter(move |(_, entry)| entry.categories >> bit & 1 == 1).map(|(number, _)| number))
    }

    /// The name of the command with this number.
    pub fn name(&self, number: usize) -> &'static str {
        self.entry(number).name
    }
}
