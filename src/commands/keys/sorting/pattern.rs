//! Patterns of SORT: an element is put in the place of their `*`, which gives a key, and behind `->` may be a
//! field of a hash.
//!
//! Redis searches patterns with functions of C, for which a zero byte ends a text. Their rules are kept.

use crate::keyspace::Surveyed;
use crate::types::hashes::{self, Hash};
use crate::values::{STRING_KIND, Type, Value};

/// A pattern of BY or GET.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pattern<'a> {
    /// `#`: the element itself.
    Element,
    /// A text without a place for the element: nothing.
    Constant,
    /// The value of a key, or of a field of it.
    Key {
        /// In front of the element.
        prefix: &'a [u8],
        /// Behind the element.
        suffix: &'a [u8],
        field: Option<&'a [u8]>,
    },
}

impl<'a> Pattern<'a> {
    pub(super) fn new(text: &'a [u8]) -> Pattern<'a> {
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
        if &text[..end] == b"#" {
            return Pattern::Element;
        }
        let Some(place) = text[..end].iter().position(|byte| *byte == b'*') else {
            return Pattern::Constant;
        };
        let (prefix, rest) = (&text[..place], &text[place + 1..]);
        let arrow = text[place + 1..end].windows(2).position(|two| two == b"->");
        // An arrow without a field belongs to the key.
        match arrow.filter(|at| rest.get(at + 2).is_some_and(|byte| *byte != 0)) {
            Some(at) => Pattern::Key { prefix, suffix: &rest[..at], field: Some(&rest[at + 2..]) },
            None => Pattern::Key { prefix, suffix: rest, field: None },
        }
    }

    /// Whether there is a place for the element, so that it stands for keys.
    pub(super) fn has_place(self) -> bool {
        matches!(self, Pattern::Key { .. })
    }

    /// The keys that it stands for.
    pub(super) fn surveyed(self) -> Option<Surveyed> {
        match self {
            Pattern::Key { prefix, suffix, .. } => Some(Surveyed::Around(prefix.into(), suffix.into())),
            Pattern::Element | Pattern::Constant => None,
        }
    }

    /// The value of the pattern for an element: the element itself, or what `look` finds at a key.
    pub(super) fn find<'v>(
        self,
        element: &'v [u8],
        key: &mut Vec<u8>,
        look: impl FnOnce(&[u8]) -> Option<Value<'v>>,
    ) -> Option<&'v [u8]> {
        let (prefix, suffix, field) = match self {
            Pattern::Element => return Some(element),
            Pattern::Constant => return None,
            Pattern::Key { prefix, suffix, field } => (prefix, suffix, field),
        };
        key.clear();
        [prefix, element, suffix].into_iter().for_each(|part| key.extend_from_slice(part));
        let value = look(key)?;
        match field {
            None if value.facts.kind == STRING_KIND => value.content.bytes(),
            Some(field) if value.facts.kind == hashes::FACTS.kind => Hash::view(value.content).get(field),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_read_as_c_reads_it() {
        let key = |prefix, suffix, field| Pattern::Key { prefix, suffix, field };
        for (text, expected) in [
            (&b"#"[..], Pattern::Element),
            (b"#\0*", Pattern::Element),
            (b"##", Pattern::Constant),
            (b"", Pattern::Constant),
            (b"a->b", Pattern::Constant),
            (b"a\0*", Pattern::Constant),
            (b"*", key(b"", b"", None)),
            (b"a*b", key(b"a", b"b", None)),
            (b"a*b*", key(b"a", b"b*", None)),
            (b"a*->", key(b"a", b"->", None)),
            (b"a*->f", key(b"a", b"", Some(b"f"))),
            (b"a->*b->f->", key(b"a->", b"b", Some(b"f->"))),
            (b"*->->f", key(b"", b"", Some(b"->f"))),
            (b"*\0->f", key(b"", b"\0->f", None)),
            (b"*->\0f", key(b"", b"->\0f", None)),
            (b"*->f\0", key(b"", b"", Some(b"f\0"))),
        ] {
            assert_eq!(Pattern::new(text), expected, "{}", text.escape_ascii());
        }
    }
}
