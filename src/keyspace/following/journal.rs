//! The log's records in memory, in the order of the changes, until the log's writer takes them.
//!
//! A transaction notes its changes ([`changes`](super::changes)). When it commits, with its locks still held,
//! it appends records: the requests that Redis would log ([`records`]). It wraps several records in `MULTI`
//! and `EXEC`, so that a replay applies all of them or none.
//!
//! One mutex protects the records. A transaction locks it while its shards are still locked, so the order of
//! the records is the order of the changes. The log's writer [takes](Journal::take) all records at once and
//! makes them durable.

use std::mem::take;
use std::ops::DerefMut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::keyspace::Keyspace;
use crate::keyspace::following::records;
use crate::keyspace::transaction::{Everything, Transaction};

/// Changes, for the log's writer.
#[derive(Debug, Default)]
pub struct Journal {
    pending: Mutex<Pending>,
    has_news: Condvar,
    has_call: Condvar,
    /// The number of bytes of all records so far.
    end: AtomicU64,
    /// The fencing number of the last holder of a lock.
    fencing: AtomicU64,
}

#[derive(Debug, Default)]
struct Pending {
    is_on: bool,
    pieces: Vec<Piece>,
    /// The database that a reader of the records so far has selected.
    database: Option<usize>,
    /// The last fencing number that was appended to this part.
    fencing: u64,
    /// The writer must wake up although there is nothing new.
    is_called: bool,
}

/// A piece of the log for its writer.
#[derive(Debug)]
pub enum Piece {
    /// Whole records, as the file has them.
    Records(Vec<u8>),
    /// The next records belong to a new part, which a reader understands without the parts before.
    Cut,
    /// No more changes are logged.
    End,
}

impl Journal {
    /// Begins to log. The caller holds all shards and has set the interest of transactions in the journal.
    fn begin(&self) {
        let mut pending = self.pending.lock();
        pending.is_on = true;
        pending.cut();
        self.has_news.notify_one();
    }

    /// Ends logging. The writer can still take the records so far.
    fn stop(&self) {
        let mut pending = self.pending.lock();
        if std::mem::replace(&mut pending.is_on, false) {
            pending.pieces.push(Piece::End);
        }
        self.has_news.notify_one();
    }

    /// Takes the pieces so far. If there are none, waits for the first one, for at most `patience`, or until
    /// [`call`](Self::call).
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

    /// Waits for this time, or until [`call`](Self::call). Records do not end the wait, so changes need not
    /// wake the writer each time.
    pub fn rest(&self, time: Duration) {
        let mut pending = self.pending.lock();
        self.has_call.wait_while_for(&mut pending, |pending| !pending.is_called, time);
    }

    /// Wakes the writer from [`take`](Self::take) or [`rest`](Self::rest).
    pub fn call(&self) {
        self.pending.lock().is_called = true;
        self.has_news.notify_one();
        self.has_call.notify_one();
    }

    /// The number of bytes of all records so far.
    #[inline]
    pub fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// Whether changes are logged.
    pub fn is_on(&self) -> bool {
        self.pending.lock().is_on
    }

    /// Bytes that the writer has not taken yet.
    pub fn pending_bytes(&self) -> usize {
        let bytes = |piece: &Piece| if let Piece::Records(bytes) = piece { bytes.len() } else { 0 };
        self.pending.lock().pieces.iter().map(bytes).sum()
    }

    /// Notes the fencing number of the last holder of a lock. The next record comes with it, as an
    /// annotation, which other readers of the log ignore.
    pub fn note_fencing(&self, number: u64) {
        self.fencing.fetch_max(number, Ordering::Relaxed);
    }

    /// Appends the output of `write`, if there is a log, and returns the offset behind it. `write` also gets
    /// the database that a reader of the log has selected.
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
    /// Stops logging changes.
    pub fn stop_journal(&self) {
        self.followers.interest.set_journal(false);
        self.followers.journal.stop();
    }
}

impl<'a, T: DerefMut<Target = Transaction<'a>>> Everything<T> {
    /// Logs changes from now on, or begins a new part of the log.
    pub fn cut_journal(&mut self) {
        // All other transactions read the interest after they have locked a shard.
        let followers = &self.keyspace().followers;
        followers.interest.set_journal(true);
        followers.journal.begin();
    }
}

#[cfg(test)]
pub(in crate::keyspace) mod tests {
    use super::*;
    use crate::keyspace::Expiry;

    /// The requests that were logged since the last call, one a line.
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

    /// Runs `act` on the key `k` of a database, in a transaction of its own.
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
    fn a_transaction_logs_the_final_state_of_a_key_once() {
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
    fn a_transaction_is_one_unit_and_logs_databases_first() {
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
    fn the_fencing_number_comes_with_the_next_record() {
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
    fn a_new_part_selects_its_database_and_ends_with_the_last_record() {
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
