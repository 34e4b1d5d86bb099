//! The digests of DEBUG DIGEST and DIGEST-VALUE: two servers with the same data return the same digest, also
//! if one of them is a Redis.
//!
//! A digest is 20 bytes that begin with zeros. To mix a text into it means to combine it with the SHA-1 of
//! that text by exclusive or, and to take the SHA-1 of the result: the order counts. The entries of a
//! database are only combined, since they have none.

use sha1::{Digest as _, Sha1};

use crate::keyspace::{NotEverything, Transaction};
use crate::resp::shortest::write_digits;
use crate::values::{SORTED_SET_KIND, Value};

/// The digits of a score that Redis mixes into a digest.
fn in_few_digits(score: &[u8]) -> Vec<u8> {
    let number = std::str::from_utf8(score).ok().and_then(|score| score.parse().ok());
    let mut text = Vec::new();
    write_digits(&mut text, number.unwrap_or(f64::NAN));
    text
}

/// A digest that is being made.
#[derive(Default)]
pub(crate) struct Fingerprint([u8; 20]);

impl Fingerprint {
    /// The digest of everything. The transaction's current database is the same before and after.
    pub(super) fn of_all(tx: &mut Transaction<'_>) -> Result<Fingerprint, NotEverything> {
        let (own, mut all) = (tx.database(), Fingerprint::default());
        for (database, number) in (0..tx.databases()).zip(0_u32..) {
            tx.select(database);
            let everything = tx.everything()?;
            let mut keys = everything.keys().peekable();
            if keys.peek().is_none() {
                continue;
            }
            all.mix(&number.to_be_bytes());
            for key in keys {
                let mut entry = Fingerprint::default();
                entry.mix(key);
                entry.add_value(tx, key);
                all.combine(&entry.0);
            }
        }
        tx.select(own);
        Ok(all)
    }

    /// The fingerprint of a value and whether it expires; zeros if the key is absent.
    pub(super) fn of_value(tx: &Transaction<'_>, key: &[u8]) -> Fingerprint {
        let mut digest = Fingerprint::default();
        digest.add_value(tx, key);
        digest
    }

    /// The fingerprint of a value alone.
    pub(crate) fn of(value: Value<'_>) -> Fingerprint {
        let mut digest = Fingerprint::default();
        digest.add(value);
        digest
    }

    /// The bytes, to be compared with those of another one.
    pub(crate) fn bytes(&self) -> [u8; 20] {
        self.0
    }

    fn add_value(&mut self, tx: &Transaction<'_>, key: &[u8]) {
        let Some(facts) = tx.facts(key) else { return };
        self.add(facts.value);
        if tx.peek_expiry(key).flatten().is_some() {
            self.combine(b"!!expire!!");
        }
    }

    fn add(&mut self, value: Value<'_>) {
        let Value { facts: value_type, content } = value;
        self.mix(&u32::from(value_type.kind).to_be_bytes());
        (value_type.each)(content, &mut |parts: &[&[u8]]| match parts {
            parts if value_type.is_ordered => parts.iter().for_each(|part| self.mix(part)),
            [part] => self.combine(part),
            [member, score] if value_type.kind == SORTED_SET_KIND => {
                let mut element = Fingerprint::default();
                element.mix(member);
                element.mix(&in_few_digits(score));
                self.combine(&element.0);
            }
            _ => {
                let mut element = Fingerprint::default();
                parts.iter().for_each(|part| element.mix(part));
                self.combine(&element.0);
            }
        });
    }

    fn combine(&mut self, text: &[u8]) {
        let hash: [u8; 20] = Sha1::digest(text).into();
        self.0.iter_mut().zip(hash).for_each(|(byte, other)| *byte ^= other);
    }

    fn mix(&mut self, text: &[u8]) {
        self.combine(text);
        self.0 = Sha1::digest(self.0).into();
    }

    /// Its 40 digits.
    pub(super) fn to_text(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
