//! The first line of a script or a library, which says how to run it: `#!lua name=mylib flags=no-writes`.

use crate::resp::words;

/// The flags of a script, which its author sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// It does not write.
    pub no_writes: bool,
    /// It runs even when memory is short.
    pub allow_oom: bool,
    /// It runs even on a replica that has lost its primary.
    pub allow_stale: bool,
    /// It does not run in a cluster.
    pub no_cluster: bool,
    /// It may use keys of different slots.
    pub allow_cross_slot_keys: bool,
    /// There is no first line with flags: an old script, which may do what it could before there were flags.
    pub is_silent: bool,
}

/// Selects one flag of a set.
type Field = fn(&mut Flags) -> &mut bool;

/// The flags by name, in the order in which FUNCTION LIST prints them.
const FLAGS: &[(&str, Field)] = &[
    ("no-writes", |flags| &mut flags.no_writes),
    ("allow-oom", |flags| &mut flags.allow_oom),
    ("allow-stale", |flags| &mut flags.allow_stale),
    ("no-cluster", |flags| &mut flags.no_cluster),
    ("allow-cross-slot-keys", |flags| &mut flags.allow_cross_slot_keys),
];

impl Flags {
    /// Sets the flag of this name; returns whether it exists.
    pub fn set(&mut self, name: &[u8]) -> bool {
        let found = FLAGS.iter().find(|(known, _)| known.as_bytes() == name);
        found.is_some_and(|(_, field)| {
            *field(self) = true;
            true
        })
    }

    /// The names of the flags that are set.
    pub fn names(mut self) -> Vec<&'static str> {
        FLAGS.iter().filter(|(_, field)| *field(&mut self)).map(|(name, _)| *name).collect()
    }
}

/// A text split into its first line and the rest. The first line has pairs of a name and a value.
pub(crate) struct Parsed<'a> {
    /// The words of the first line, with their quotes undone: the first one is the engine's name behind `#!`.
    /// `None` if the quotes do not match.
    pub words: Option<Vec<Vec<u8>>>,
    /// The code after the first line, from its line end on, so that lines keep their numbers.
    pub code: &'a [u8],
}

/// Splits a text that begins with `#!`. Returns `None` if it has no second line.
pub(crate) fn parse(text: &[u8]) -> Option<Parsed<'_>> {
    let end = text.iter().position(|byte| *byte == b'\n')?;
    Some(Parsed { words: words(&text[..end]), code: &text[end..] })
}
