//! Long strings are copied while no lock is held: before the transaction begins, or after its locks are free.
//!
//! A long string that a request may write is [copied](Prepared::of) before the transaction begins. A long
//! string that a command reads is left out of its reply ([`Transaction::reply_text`]). The transaction shares
//! it, and [`complete`] copies it into the reply when the locks are free.

use std::mem::take;
use std::ops::Range;

use super::Transaction;
use crate::keyspace::store::entry::Entry;
use crate::resp::{Reply, Request, Sent};
use crate::values::{LONG_TEXT_BYTES, LongText, Structure};

/// A copy of a long argument of a request.
#[derive(Debug)]
pub struct Prepared {
    /// The address of the argument, by which the transaction finds the copy.
    address: usize,
    text: LongText,
}

impl Prepared {
    /// Copies of the long arguments of a request.
    #[cold]
    pub fn of(request: Request<'_>) -> impl Iterator<Item = Prepared> {
        let long = request.from(1).filter(|argument| argument.len() >= LONG_TEXT_BYTES);
        long.map(|argument| Prepared {
            address: argument.as_ptr().addr(),
            text: LongText::new(argument, argument.len()),
        })
    }
}

/// A long string that is missing in a reply.
#[derive(Debug)]
pub struct Missed {
    /// The length of the output in front of it.
    at: usize,
    text: LongText,
    range: Range<usize>,
}

impl Transaction<'_> {
    /// Takes copies of long arguments, for commands that write them.
    pub fn prepare(&self, prepared: Vec<Prepared>) {
        self.leave(|aftermath| aftermath.prepared = prepared);
    }

    /// Returns a long string to keep: the prepared copy of these bytes, or a new one.
    #[cold]
    pub(super) fn long_text(&self, bytes: &[u8]) -> LongText {
        let mut left = self.left.borrow_mut();
        let mut prepared = left.if_any().into_iter().flat_map(|aftermath| aftermath.prepared.iter());
        let is_same = |prepared: &&Prepared| {
            prepared.address == bytes.as_ptr().addr() && prepared.text.len() == bytes.len()
        };
        match prepared.find(is_same) {
            Some(prepared) => prepared.text.clone(),
            None => LongText::new(bytes, bytes.len()),
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
        let missed = Missed { at, text: long.clone(), range };
        self.leave(|aftermath| aftermath.missed.push(missed));
        sent
    }

    /// Takes the long strings that are missing in the replies so far.
    #[inline(always)]
    pub fn take_missed(&mut self) -> Vec<Missed> {
        self.left.get_mut().if_any().map(|aftermath| take(&mut aftermath.missed)).unwrap_or_default()
    }
}

/// Copies into the output what is missing in it, for a caller that holds no lock.
#[inline(always)]
pub fn complete(out: &mut Vec<u8>, missed: Vec<Missed>) {
    if !missed.is_empty() {
        fill(out, missed);
    }
}

#[cold]
fn fill(out: &mut Vec<u8>, missed: Vec<Missed>) {
    let tail = out.split_off(missed.first().map_or(out.len(), |first| first.at));
    let missed_bytes: usize = missed.iter().map(|missed| missed.range.len()).sum();
    out.reserve(missed_bytes + tail.len());
    let (mut rest, mut done) = (&tail[..], out.len());
    for Missed { at, text, range } in missed {
        let (between, after) = rest.split_at(at - done);
        out.extend_from_slice(between);
        out.extend_from_slice(&text.as_bytes()[range]);
        (rest, done) = (after, at);
    }
    out.extend_from_slice(rest);
}
