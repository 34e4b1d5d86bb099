//! What rules may name: the commands, by their numbers, and their categories.
//!
//! The module with the commands makes the catalog; this module knows no command.

use super::Categories;

/// The commands and subcommands, in the order of their numbers: first those that the server has.
#[derive(Debug, Default)]
pub struct Catalog {
    entries: Vec<Entry>,
    /// How many of them the server has.
    here: usize,
}

/// One command or subcommand.
#[derive(Debug)]
pub(super) struct Entry {
    /// In lower case; a subcommand's begins with its command's and a bar.
    pub(super) name: &'static str,
    categories: Categories,
    /// Whether ACL CAT names it.
    is_listed: bool,
    /// The numbers of its subcommands.
    pub(super) subcommands: Vec<usize>,
}

impl Catalog {
    /// Adds the command of the server with the next number. A subcommand comes after its command.
    ///
    /// # Panics
    ///
    /// If it has a category that Redis does not: the table of commands is wrong.
    pub fn add<'a>(&mut self, name: &'static str, categories: impl IntoIterator<Item = &'a str>) {
        assert_eq!(self.entries.len(), self.here, "those that the server has come first");
        self.push(name, categories, true);
        self.here += 1;
    }

    /// Adds a command that the server does not have; `is_listed` is whether ACL CAT names it.
    ///
    /// # Panics
    ///
    /// If it has a category that Redis does not.
    pub fn add_absent<'a>(
        &mut self,
        name: &'static str,
        categories: impl IntoIterator<Item = &'a str>,
        is_listed: bool,
    ) {
        if self.find(name.as_bytes()).is_none() {
            self.push(name, categories, is_listed);
        }
    }

    fn push<'a>(
        &mut self,
        name: &'static str,
        categories: impl IntoIterator<Item = &'a str>,
        is_listed: bool,
    ) {
        let of = |category: &str| {
            let found = Categories::of_name(category.trim_start_matches('@').as_bytes());
            found.unwrap_or_else(|| panic!("{category} of {name} is no category"))
        };
        let categories = categories.into_iter().map(of).fold(Categories::NONE, Categories::and);
        let number = self.entries.len();
        if let Some((command, _)) = name.split_once('|')
            && let Some(command) = self.entries.iter_mut().rfind(|entry| entry.name == command)
        {
            command.subcommands.push(number);
        }
        self.entries.push(Entry { name, categories, is_listed, subcommands: Vec::new() });
    }

    /// How many commands and subcommands there are, also those that the server does not have.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// How many of them the server has: theirs are the first numbers.
    pub fn here(&self) -> usize {
        self.here
    }

    /// The number of the command, or subcommand, of a full name such as `config|get`, in any case.
    pub fn find(&self, name: &[u8]) -> Option<usize> {
        self.entries.iter().position(|entry| entry.name.as_bytes().eq_ignore_ascii_case(name))
    }

    /// The facts of the command with this number.
    pub(super) fn entry(&self, number: usize) -> &Entry {
        &self.entries[number]
    }

    /// The numbers of the commands of a category, given without its `@`, in any case; `None` if there is no
    /// such category.
    pub(super) fn of_category(&self, category: &[u8]) -> Option<impl Iterator<Item = usize>> {
        let category = Categories::of_name(category)?;
        let entries = self.entries.iter().enumerate();
        Some(entries.filter(move |(_, entry)| entry.categories.contains(category)).map(|(number, _)| number))
    }

    /// The names that ACL CAT lists for a category; `None` if there is no such category.
    pub fn names_of_category(&self, category: &[u8]) -> Option<impl Iterator<Item = &'static str>> {
        let numbers = self.of_category(category)?;
        Some(numbers.map(|number| self.entry(number)).filter(|entry| entry.is_listed).map(|entry| entry.name))
    }

    /// The name of the command with this number.
    pub(super) fn name(&self, number: usize) -> &'static str {
        self.entry(number).name
    }
}
