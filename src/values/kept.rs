//! A value apart from its key: what it was at one moment, for a reader that holds no lock.

use crate::values::expiring::Expiring;
use crate::values::{Content, Structure, TypeFacts, Value};

/// A copy of a small value, or a large one that shares its nodes with that of the key.
#[derive(Debug)]
pub struct Kept {
    facts: &'static TypeFacts,
    form: Form,
}

#[derive(Debug)]
enum Form {
    Bytes(Vec<u8>),
    Large(Structure),
    /// A small hash of which some fields expire, and its moment.
    Expiring(Vec<u8>, u64),
    /// A large one.
    LargeExpiring(Structure, u64),
}

impl Kept {
    /// Keeps a value, in the time that it takes to copy a small one.
    pub fn of(value: Value<'_>) -> Kept {
        let form = match value.content {
            Content::Bytes(bytes) => Form::Bytes(bytes.to_vec()),
            Content::Large(structure) => Form::Large(structure.share()),
            Content::Expiring(Expiring::Packed(bytes), now_ms) => Form::Expiring(bytes.to_vec(), now_ms),
            Content::Expiring(Expiring::Large(map), now_ms) => {
                Form::LargeExpiring(Structure::Expiring(Box::new(map.share())), now_ms)
            }
        };
        Kept { facts: value.facts, form }
    }

    /// A value that was made apart from any key: packed, or large.
    pub fn made(facts: &'static TypeFacts, packed: Vec<u8>, large: Option<Structure>) -> Kept {
        Kept { facts, form: large.map_or(Form::Bytes(packed), Form::Large) }
    }

    /// The value, which borrows from this one.
    pub fn value(&self) -> Value<'_> {
        let content = match &self.form {
            Form::Bytes(bytes) => Content::Bytes(bytes),
            Form::Expiring(bytes, now_ms) => Content::Expiring(Expiring::Packed(bytes), *now_ms),
            Form::LargeExpiring(Structure::Expiring(map), now_ms) => {
                Content::Expiring(Expiring::Large(map), *now_ms)
            }
            Form::Large(structure) | Form::LargeExpiring(structure, _) => Content::Large(structure),
        };
        Value { facts: self.facts, content }
    }

    /// Bytes of the value, about.
    pub fn bytes(&self) -> usize {
        match &self.form {
            Form::Bytes(bytes) | Form::Expiring(bytes, _) => bytes.len(),
            Form::Large(structure) | Form::LargeExpiring(structure, _) => structure.bytes(),
        }
    }
}
