//! The log's records in memory, in the order of the changes, until the log's writer has taken them.
//!
//! A transaction notes what it changes ([`changes`](super::changes)). When it commits, with its locks still
//! held, it appends records: the requests that Redis would log ([`records`]). Several records are wrapped in
//! `MULTI` and `EXEC`, so that they are replayed as a whole or not at all.
//!
//! Records are collected under one mutex that is locked while the shards are still locked: so their order is
//! the order of the changes. The writer of the log [takes](Journal::take) all of them at once and makes them
//! durable.

use std::mem::take;
use std::ops::DerefMut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::keyspace::Keyspace;
use crate::keyspace::following::records;
use crate::keyspace::transaction::{Everything, Transaction};

/// What changes, for the writer of a log.
#[derive(Debug, Default)]
pub struct Journal {
    pending: Mutex<Pending>,
    has_news: Condvar,
    has_call: Condvar,
    /// Bytes of all records so far.
    end: AtomicU64,
    /// The number that the last holder of a lock was given.
    fencing: AtomicU64,
}

#[derive(Debug, Default)]
struct Pending {
    is_on: bool,
    pieces: Vec<Piece>,
    /// The database that the reader of what was written so far is in.
    database: Option<usize>,
    /// The last holder's number that was written down in this part.
    fencing: u64,
    /// Somebody wants attention although there is nothing new.
    is_called: bool,
}

/// What was written down since the last time.
#[derive(Debug)]
pub enum Piece {
    /// Records.
    Records(Vec<u8>),
    /// What comes next belongs to a new part, which can be understood without those before.
    Cut,
    /// Nothing more is written down.
    End,
}

impl Journal {
    /// Begins to write down. All shards must be locked, and whoever notes changes told of it.
    fn begin(&self) {
        let mut pending = self.pending.lock();
        pending.is_on = true;
        pending.cut();
        self.has_news.notify_one();
    }

    /// Ends that; what was written down so far can still be taken.
    fn stop(&self) {
        let mut pending = self.pending.lock();
        if std::mem::replace(&mut pending.is_on, false) {
            pending.pieces.push(Piece::End);
        }
        self.has_news.notify_one();
    }

    /// Takes what has been written down; waits until there is something, for so long at most, or until it is
    /// called.
    pub fn take(&self, patience: Option<Duration>) -> Vec<Piece> {
        let mut pending = self.pending.lock();
        let is_idle = |pending: &mut Pending| pending.pieces.is_empty() && !pending.is_called;
        match patience {
            Some(patience) => drop(self.has_news.wait_while_for(&mut pending, is_idle, patience)),
            None => self.has_news.wait_while(&mut pending, is_idle),
        }
        pending.is_called = false;
        take(&mut pending.pieces)
    }

    /// Waits for so long, whatever is written down meanwhile, unless it is called. Nobody has to wake it for
    /// each change then.
    pub fn rest(&self, time: Duration) {
        let mut pending = self.pending.lock();
        self.has_call.wait_while_for(&mut pending, |pending| !pending.is_called, time);
    }

    /// Calls whoever takes, or rests.
    pub fn call(&self) {
        self.pending.lock().is_called = true;
        self.has_news.notify_one();
        self.has_call.notify_one();
    }

    /// How many bytes were ever written down.
    #[inline]
    pub fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// Whether changes are written down.
    pub fn is_on(&self) -> bool {
        self.pending.lock().is_on
    }

    /// Bytes that nobody has taken yet.
    pub fn pending_bytes(&self) -> usize {
        let bytes = |piece: &Piece| if let Piece::Records(bytes) = piece { bytes.len() } else { 0 };
        self.pending.lock().pieces.iter().map(bytes).sum()
    }

    /// Notes the number that the last holder of a lock was given: what is written down next comes with it, as
    /// an annotation, which others pass over.
    pub fn note_fencing(&self, number: u64) {
        self.fencing.fetch_max(number, Ordering::Relaxed);
    }

    /// Appends what `write` writes, if there is a log; returns the offset behind it. It is told the database
    /// that the reader of the log is in.
    pub(in crate::keyspace) fn append(&self, write: impl FnOnce(&mut Vec<u8>, &mut Option<usize>)) -> u64 {
        let mut pending = self.pending.lock();
        if !pending.is_on {
            return self.end();
        }
        let mut database = pending.database;
        let fencing = self.fencing.load(Ordering::Relaxed);
        let is_new = fencing > pending.fencing;
        pending.fencing = pending.fencing.max(fencing);
        if !matches!(pending.pieces.last(), Some(Piece::Records(_))) {
            pending.pieces.push(Piece::Records(Vec::new()));
        }
        let Some(Piece::Records(bytes)) = pending.pieces.last_mut() else { return self.end() };
        let before = bytes.len();
        if is_new {
            records::fencing(bytes, fencing);
        }
        write(bytes, &mut database);
        let written = (bytes.len() - before) as u64;
        pending.database = database;
        let end = self.end.fetch_add(written, Ordering::Release) + written;
        self.has_news.notify_one();
        end
    }
}

impl Pending {
    fn cut(&mut self) {
        self.pieces.push(Piece::Cut);
        (self.database, self.fencing) = (None, 0);
    }
}

impl Keyspace {
    /// Writes no changes down any more.
    pub fn stop_journal(&self) {
        self.followers.interest.set_journal(false);
        self.followers.journal.stop();
    }
}

impl<'a, T: DerefMut<Target = Transaction<'a>>> Everything<T> {
    /// Logs changes from now on, or begins a new part of the log.
    pub fn cut_journal(&mut self) {
        // All other transactions look at what is wanted once they have a shard.
        let followers = &self.keyspace().followers;
        followers.interest.set_journal(true);
        followers.journal.begin();
    }
}

#[cfg(test)]
pub(in crate::keyspace) mod tests {
    use super::*;
    use crate::keyspace::Expiry;

    /// What was written down since the last time, one request a line.
    pub(in crate::keyspace) fn taken(keyspace: &Keyspace) -> Vec<String> {
        let mut lines = Vec::new();
        for piece in keyspace.journal().take(Some(Duration::ZERO)) {
            match piece {
                Piece::Records(bytes) => {
                    let text = String::from_utf8(bytes).unwrap();
                    for record in text.split('*').skip(1) {
                        let words = record.split("\r\n").skip(2).step_by(2);
                        lines.push(words.collect::<Vec<_>>().join(" ").trim_end().to_owned());
                    }
                }
                Piece::Cut => lines.push("cut".to_owned()),
                Piece::End => lines.push("end".to_owned()),
            }
        }
        lines
    }

    /// Acts on the key `k` of a database, in a transaction of its own.
    pub(in crate::keyspace) fn act(
        keyspace: &Keyspace,
        database: usize,
        act: impl FnOnce(&mut Transaction<'_>),
    ) {
        let mut tx = keyspace.begin(database, b"k").unwrap();
        act(&mut tx);
        tx.commit();
    }

    pub(in crate::keyspace) fn logged() -> Keyspace {
        let keyspace = Keyspace::alone(4);
        keyspace.begin_all(0).unwrap().cut_journal();
        assert_eq!(taken(&keyspace), ["cut"]);
        keyspace
    }

    #[test]
    fn what_became_of_a_key_is_written_down_once() {
        let keyspace = logged();
        let later_ms = keyspace.clock().now_ms() + 1_000_000;
        let mut tx = keyspace.begin(2, b"k").unwrap();
        tx.put(b"k", b"v", Expiry::Never);
        tx.put(b"k", b"w", Expiry::At(later_ms));
        tx.commit();
        drop(tx);
        assert_eq!(taken(&keyspace), ["SELECT 2", &format!("SET k w PXAT {later_ms}")]);
        let mut tx = keyspace.begin(2, b"k").unwrap();
        tx.set_expiry(b"k", Some(later_ms + 1));
        assert_eq!(tx.commit(), Some(keyspace.journal().end()));
        tx.set_expiry(b"k", None);
        tx.commit();
        drop(tx);
        assert_eq!(taken(&keyspace), [&format!("PEXPIREAT k {}", later_ms + 1), "PERSIST k"]);
        act(&keyspace, 2, |tx| assert!(tx.remove(b"k")));
        act(&keyspace, 2, |tx| assert!(!tx.remove(b"k")));
        assert_eq!(taken(&keyspace), ["DEL k"]);
        assert_eq!(keyspace.begin(2, b"k").unwrap().commit(), None);
    }

    #[test]
    fn a_transaction_is_one_unit_in_which_databases_come_first() {
        let keyspace = logged();
        let mut tx = keyspace.begin_all(0).unwrap();
        tx.put(b"gone", b"v", Expiry::Never);
        tx.flush_all();
        tx.put(b"moved", b"v", Expiry::Never);
        tx.swap_databases(0, 3);
        tx.put(b"stays", b"v", Expiry::Never);
        tx.commit();
        drop(tx);
        let expected =
            ["MULTI", "FLUSHALL", "SWAPDB 0 3", "SELECT 0", "SET stays v", "SELECT 3", "SET moved v", "EXEC"];
        assert_eq!(taken(&keyspace), expected);
    }

    #[test]
    fn the_number_of_the_last_holder_comes_with_what_is_written_next() {
        let keyspace = logged();
        keyspace.journal().note_fencing(7);
        for value in [b"1", b"2"] {
            act(&keyspace, 0, |tx| tx.put(b"k", value, Expiry::Never));
        }
        let pieces = keyspace.journal().take(Some(Duration::ZERO));
        let [Piece::Records(bytes)] = &pieces[..] else { panic!("{pieces:?}") };
        let expected = "#KEYFAST-FENCING:7\r\n*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n";
        assert!(bytes.starts_with(expected.as_bytes()));
        assert_eq!(bytes.iter().filter(|byte| **byte == b'#').count(), 1);
    }

    #[test]
    fn a_new_part_begins_with_its_database_and_nothing_comes_after_the_end() {
        let keyspace = logged();
        let put = || act(&keyspace, 0, |tx| tx.put(b"k", b"v", Expiry::Never));
        put();
        keyspace.begin_all(0).unwrap().cut_journal();
        put();
        keyspace.stop_journal();
        put();
        assert_eq!(taken(&keyspace), ["SELECT 0", "SET k v", "cut", "SELECT 0", "SET k v", "end"]);
    }
}
