//! Long strings are copied while no lock is held: before the transaction begins, or after its locks are free.
//!
//! A long string that a request may write is [copied](Prepared::of) before the transaction begins. Likewise a
//! long payload is [read](Prepared::value) before, and the handler writes the value. A long
//! string that a command reads is left out of its reply ([`Transaction::reply_text`]). The transaction shares
//! it, and [`complete`] copies it into the reply when the locks are free. So a command does that pops many
//! elements: the reply is written from a shared copy of them ([`Transaction::reply_later`]).
//!
//! A string that is shared must be copied before a part of it changes: a snapshot waits for it, another key
//! or a reply has it, too. Before a command that may change it, the transaction names such strings
//! ([`Transaction::shared_texts`]) and unlocks everything. The caller [copies](Shared::copied) them, locks
//! everything again, and the transaction puts the copies in their place ([`Transaction::replace_shared`]). If
//! another client has changed a string meanwhile, it begins anew. A script holds its locks from the beginning
//! to the end: what it changes is copied under them.

use std::any::Any;
use std::fmt;
use std::mem::take;
use std::ops::Range;
use std::sync::Arc;

use super::Transaction;
use crate::keyspace::store::entry::Entry;
use crate::resp::{Protocol, Reply, Request, Sent};
use crate::values::{LONG_TEXT_BYTES, LongText, Structure};

/// What was made of a long argument of a request, before the transaction began.
#[derive(Debug)]
pub struct Prepared {
    /// The address of the argument, by which the transaction finds what was made of it.
    address: usize,
    made: Made,
}

#[derive(Debug)]
enum Made {
    /// A copy of its bytes.
    Text(LongText),
    /// What the handler wants of it. It is freed after the locks, too.
    Value(Arc<dyn Any + Send + Sync>),
}

impl Prepared {
    /// Copies of the long arguments of a request.
    #[cold]
    pub fn of(request: Request<'_>) -> impl Iterator<Item = Prepared> {
        let long = request.from(1).filter(|argument| argument.len() >= LONG_TEXT_BYTES);
        long.map(Prepared::text)
    }

    /// A copy of a long string.
    #[cold]
    pub fn text(bytes: &[u8]) -> Prepared {
        Prepared { address: bytes.as_ptr().addr(), made: Made::Text(LongText::new(bytes, bytes.len())) }
    }

    /// A value that was made of an argument.
    #[cold]
    pub fn value(argument: &[u8], value: Arc<dyn Any + Send + Sync>) -> Prepared {
        Prepared { address: argument.as_ptr().addr(), made: Made::Value(value) }
    }
}

/// A long string that others share, so that it is copied before a part of it changes.
#[derive(Debug)]
pub struct Shared<'k> {
    key: &'k [u8],
    text: LongText,
}

impl<'k> Shared<'k> {
    /// Bytes that are to be copied.
    pub fn bytes(&self) -> usize {
        self.text.len()
    }

    /// Copies it, for a caller that holds no lock.
    pub fn copied(self) -> Copied<'k> {
        Copied { copy: self.text.copied(), shared: self }
    }
}

/// The same with its copy.
#[derive(Debug)]
pub struct Copied<'k> {
    shared: Shared<'k>,
    copy: LongText,
}

/// A part that is missing in a reply.
#[derive(Debug)]
pub struct Missed {
    /// The length of the output in front of it.
    at: usize,
    /// Its bytes; about, if it is yet to be written.
    bytes: usize,
    part: Part,
}

enum Part {
    /// A range of a long string.
    Text(LongText, Range<usize>),
    /// What this function writes.
    Written(Protocol, Box<dyn FnOnce(Reply<'_>) -> Sent + Send>),
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Text(text, range) => f.debug_tuple("Text").field(text).field(range).finish(),
            Part::Written(protocol, _) => f.debug_tuple("Written").field(protocol).finish_non_exhaustive(),
        }
    }
}

impl Missed {
    /// Notes that so many bytes were put into the output in front of it.
    pub fn shift(&mut self, bytes: usize) {
        self.at += bytes;
    }
}

impl Transaction<'_> {
    /// Returns a long string to keep: the prepared copy of these bytes, or a new one.
    #[cold]
    pub(super) fn long_text(&self, bytes: &[u8]) -> LongText {
        let mut left = self.left.borrow_mut();
        let mut prepared = left.if_any().into_iter().flat_map(|aftermath| aftermath.prepared.iter());
        let copy = prepared.find_map(|prepared| match &prepared.made {
            Made::Text(text) if text.len() == bytes.len() => {
                (prepared.address == bytes.as_ptr().addr()).then(|| text.clone())
            }
            _ => None,
        });
        copy.unwrap_or_else(|| LongText::new(bytes, bytes.len()))
    }

    /// Gives the handler what was made while nothing was locked.
    #[cold]
    pub fn add_prepared(&mut self, prepared: Prepared) {
        self.leave(|aftermath| aftermath.prepared.push(prepared));
    }

    /// The value that was made of an argument before the transaction began, if there is one.
    #[cold]
    pub fn prepared_value<V: Any + Send + Sync>(&self, argument: &[u8]) -> Option<Arc<V>> {
        let mut left = self.left.borrow_mut();
        let mut prepared = left.if_any().into_iter().flat_map(|aftermath| aftermath.prepared.iter());
        prepared.find_map(|prepared| match &prepared.made {
            Made::Value(value) if prepared.address == argument.as_ptr().addr() => {
                Arc::clone(value).downcast().ok()
            }
            _ => None,
        })
    }

    /// The long strings of these keys that are shared, each once.
    pub fn shared_texts<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> Vec<Shared<'k>> {
        let shared = keys.filter_map(|key| Some(Shared { key, text: self.shared_text(key)?.clone() }));
        let mut shared: Vec<Shared<'k>> = shared.collect();
        shared.sort_unstable_by_key(|shared| shared.key);
        shared.dedup_by_key(|shared| shared.key);
        shared
    }

    /// Whether a change of a part of the string of a key copies a long string first.
    #[inline(always)]
    pub fn shares_text(&self, key: &[u8]) -> bool {
        self.long_text_shared(key) == Some(true)
    }

    /// Whether others share the long string of a key; `None` if it has none. Nearly always a look at the
    /// place where the key was touched is enough. If the entry has moved since, the look may miss a long
    /// string, and it is copied under the lock.
    #[inline(always)]
    pub fn long_text_shared(&self, key: &[u8]) -> Option<bool> {
        let (spot, shard) = self.shard(key);
        let touched = shard.table(self.database).and_then(|table| table.touched(spot));
        if touched.is_none_or(|entry| entry.structure().is_some()) {
            self.find_long_text_shared(key)
        } else {
            None
        }
    }

    #[inline(never)]
    fn find_long_text_shared(&self, key: &[u8]) -> Option<bool> {
        let (spot, shard) = self.shard(key);
        let table = shard.table(self.database)?;
        let entry = table.find(spot, key)?;
        match entry.structure() {
            Some(Structure::Text(text)) => Some(text.is_shared() || table.awaits(entry)),
            _ => None,
        }
    }

    fn shared_text(&self, key: &[u8]) -> Option<&LongText> {
        if self.find_long_text_shared(key) != Some(true) {
            return None;
        }
        match self.entry(key)?.structure() {
            Some(Structure::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// Puts copies in the place of shared strings, unless these have been replaced since.
    pub fn replace_shared(&mut self, copied: Vec<Copied<'_>>) {
        let database = self.database;
        for Copied { shared: Shared { key, text }, copy } in copied {
            let is_there = self.shared_text(key).is_some_and(|shared| shared.is_same(&text));
            let (spot, shard) = self.shard_mut(key);
            let entry = if is_there { shard.entry_mut(database, spot, key) } else { None };
            let left = match entry.and_then(Entry::structure_mut) {
                Some(Structure::Text(own)) => std::mem::replace(own, copy),
                _ => copy,
            };
            self.leave(|aftermath| aftermath.texts.extend([text, left]));
        }
    }

    /// Replies with a range of the string of a key, which is there. A long one follows when the locks are
    /// free, so nothing may fail after this reply. The caller has looked the string up.
    #[inline(always)]
    pub fn reply_text(&self, key: &[u8], text: &[u8], range: Range<usize>, reply: Reply<'_>) -> Sent {
        if range.len() >= LONG_TEXT_BYTES {
            return self.reply_long_text(key, text, range, reply);
        }
        reply.bulk(&text[range])
    }

    #[cold]
    fn reply_long_text(&self, key: &[u8], text: &[u8], range: Range<usize>, reply: Reply<'_>) -> Sent {
        let Some(Structure::Text(long)) = self.entry(key).and_then(Entry::structure) else {
            return reply.bulk(&text[range]);
        };
        let (sent, at) = reply.bulk_without(range.len());
        let missed = Missed { at, bytes: range.len(), part: Part::Text(long.clone(), range) };
        self.leave(|aftermath| aftermath.missed.push(missed));
        sent
    }

    /// Replies with what this function writes when the locks are free, about so many bytes. Nothing may fail
    /// after this reply.
    #[cold]
    pub fn reply_later(
        &self,
        bytes: usize,
        reply: Reply<'_>,
        write: impl FnOnce(Reply<'_>) -> Sent + Send + 'static,
    ) -> Sent {
        let part = Part::Written(reply.protocol(), Box::new(write));
        let (sent, at) = reply.later();
        self.leave(|aftermath| aftermath.missed.push(Missed { at, bytes, part }));
        sent
    }

    /// Takes what is missing in the replies so far.
    #[inline(always)]
    pub fn take_missed(&mut self) -> Vec<Missed> {
        self.left.get_mut().if_any().map(|aftermath| take(&mut aftermath.missed)).unwrap_or_default()
    }
}

/// How many bytes are missing in the output.
pub(crate) fn missing_bytes(missed: &[Missed]) -> usize {
    missed.iter().map(|missed| missed.bytes).sum()
}

/// Copies into the output what is missing in it, for a caller that holds no lock.
#[inline(always)]
pub(crate) fn complete(out: &mut Vec<u8>, missed: Vec<Missed>) {
    if !missed.is_empty() {
        fill(out, missed);
    }
}

#[cold]
fn fill(out: &mut Vec<u8>, missed: Vec<Missed>) {
    let tail = out.split_off(missed.first().map_or(out.len(), |first| first.at));
    out.reserve(missing_bytes(&missed) + tail.len());
    let (mut rest, mut done) = (&tail[..], out.len());
    for Missed { at, part, .. } in missed {
        let (between, after) = rest.split_at(at - done);
        out.extend_from_slice(between);
        match part {
            Part::Text(text, range) => out.extend_from_slice(&text.as_bytes()[range]),
            Part::Written(protocol, write) => _ = write(Reply::new(out, protocol)),
        }
        (rest, done) = (after, at);
    }
    out.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::keyspace::{Expiry, Keyspace, SavedKey, Slice, Use};

    const BYTES: usize = LONG_TEXT_BYTES;

    fn begin(keyspace: &Keyspace) -> Transaction<'_> {
        keyspace.begin_many(0, [&b"k"[..]].into_iter()).unwrap()
    }

    fn text<'t>(tx: &'t Transaction<'_>) -> &'t [u8] {
        tx.entry(b"k").and_then(|entry| entry.text().ok()).unwrap_or_default()
    }

    /// Copies what is shared. Meanwhile another client does what `meanwhile` does.
    fn copy_shared<'a>(keyspace: &'a Keyspace, tx: &mut Transaction<'a>, meanwhile: impl FnOnce()) -> usize {
        let shared = tx.shared_texts([&b"k"[..], b"k"].into_iter());
        tx.let_go();
        meanwhile();
        let copied: Vec<Copied<'_>> = shared.into_iter().map(Shared::copied).collect();
        let copies = copied.len();
        tx.hold_again(keyspace.hold_many([&b"k"[..]].into_iter()).unwrap());
        tx.replace_shared(copied);
        copies
    }

    fn change(tx: &mut Transaction<'_>) {
        tx.change_part(b"k", BYTES, |part| part.bytes_mut(0..1)[0] = b'x').unwrap();
    }

    #[test]
    fn a_string_for_which_a_snapshot_waits_is_copied_without_locks() {
        let keyspace = Keyspace::alone(1);
        begin(&keyspace).put(b"k", &vec![b'v'; BYTES], Expiry::Never);
        assert!(!begin(&keyspace).shares_text(b"k"));
        let mut snapshot = keyspace.begin_all(0).unwrap().begin_snapshot().unwrap();
        let mut tx = begin(&keyspace);
        assert!(tx.shares_text(b"k"));
        assert_eq!(copy_shared(&keyspace, &mut tx, || ()), 1);
        assert!(!tx.shares_text(b"k"), "it has bytes of its own");
        let address = text(&tx).as_ptr();
        change(&mut tx);
        assert_eq!(text(&tx).as_ptr(), address, "they are not copied once more");
        assert_eq!(text(&tx)[..2], *b"xv");
        drop(tx);
        let (mut slice, mut saved) = (Slice::default(), Vec::new());
        while keyspace.begin_walk().take_slice(&mut snapshot, &mut slice) {
            let keep = |key: &SavedKey<'_>| {
                saved.push(key.value.content.text().unwrap()[..2].to_vec());
                Ok::<_, Infallible>(())
            };
            slice.each(&keyspace, Use::Omitted, keep).unwrap();
        }
        assert_eq!(saved, [b"vv"]);
    }

    #[test]
    fn a_copy_of_what_has_changed_meanwhile_is_not_used() {
        let keyspace = Keyspace::alone(1);
        let put = |value: u8| begin(&keyspace).put(b"k", &vec![value; BYTES], Expiry::Never);
        put(b'v');
        let reply = {
            let tx = begin(&keyspace);
            let Some(Structure::Text(text)) = tx.entry(b"k").and_then(Entry::structure) else { panic!() };
            text.clone()
        };
        let mut tx = begin(&keyspace);
        assert_eq!(copy_shared(&keyspace, &mut tx, || put(b'w')), 1);
        assert_eq!(text(&tx)[..2], *b"ww");
        change(&mut tx);
        assert_eq!(text(&tx)[..2], *b"xw");
        assert!(reply.as_bytes().starts_with(b"vv"));
        tx.let_go();
        begin(&keyspace).remove(b"k");
        let mut tx = begin(&keyspace);
        assert_eq!(copy_shared(&keyspace, &mut tx, || ()), 0, "nothing is there");
    }
}
