//! What is written down of changes, in the order in which they happened, so that they can be done again.
//!
//! A transaction notes which keys it has changed. When it ends, with its locks still held, it says what
//! became of them: how a key came to its value does not matter, so `SET`, `DEL`, `PEXPIREAT` and `PERSIST`
//! say it all, and what somebody else makes of it cannot differ. Only where a little was changed in a long
//! value its command is kept as it is. What concerns databases as wholes comes first, in its order. A
//! transaction is one unit, wrapped in `MULTI` and `EXEC` where it takes several records, so that it is done
//! again as a whole or not at all.
//!
//! Records are the requests that Redis would log. They are collected here, in memory, under one mutex that is
//! taken while the shards are still locked: that makes their order the order of the changes. Somebody
//! [`take`](Journal::take)s them all at once and brings them to where they last.

use std::mem::take;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::Keyspace;
use super::transaction::Transaction;
use crate::resp::{OwnedRequest, Request};

/// A value beyond this is not written down again because a part of it has changed, if the command is shorter.
const LONG_BYTES: usize = 4 << 10;
/// So many changed keys are looked through for those that are there twice, and whenever they have doubled.
const TIDY_AT: usize = 64;

/// What changes, for somebody who writes it down.
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

/// How much of a key has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Extent {
    /// All of it, or it has gone.
    Whole,
    /// A part of its value; it was there before.
    Part,
    /// When it expires.
    Expiry,
}

/// What a transaction has changed.
#[derive(Debug, Default)]
pub(super) struct Changes {
    databases: Vec<Replaced>,
    keys: Vec<ChangedKey>,
    /// How many keys there may be before they are tidied up.
    tidy_at: usize,
    /// Requests that are kept as they are.
    requests: Vec<OwnedRequest>,
}

/// What can happen to databases as wholes.
#[derive(Clone, Copy, Debug)]
enum Replaced {
    FlushAll,
    Flush(usize),
    Swap(usize, usize),
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ChangedKey {
    database: usize,
    key: Box<[u8]>,
    extent: Extent,
}

impl Changes {
    pub(super) fn add_key(&mut self, database: usize, key: &[u8], extent: Extent) {
        self.keys.push(ChangedKey { database, key: key.into(), extent });
        if self.keys.len() >= self.tidy_at.max(TIDY_AT) {
            self.tidy();
            self.tidy_at = 2 * self.keys.len();
        }
    }

    /// How many records it takes to write them down, if no key is there twice.
    fn count(&self) -> usize {
        self.databases.len() + self.requests.len() + self.keys.len()
    }

    /// Keeps one note of each key.
    fn tidy(&mut self) {
        self.keys.sort_unstable();
        self.keys.dedup_by(|next, kept| {
            let is_same = next.database == kept.database && next.key == kept.key;
            if is_same && next.extent != kept.extent {
                kept.extent = Extent::Whole;
            }
            is_same
        });
    }

    fn note_flush(&mut self, database: Option<usize>) {
        self.keys.retain(|changed| database.is_some_and(|database| database != changed.database));
        self.databases.push(database.map_or(Replaced::FlushAll, Replaced::Flush));
    }

    /// What was changed before is found in the other database from now on.
    fn note_swap(&mut self, one: usize, other: usize) {
        for changed in &mut self.keys {
            changed.database = match changed.database {
                database if database == one => other,
                database if database == other => one,
                database => database,
            };
        }
        self.databases.push(Replaced::Swap(one, other));
    }
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

    /// Notes that a key has gone by itself. Its shard must be locked.
    pub(super) fn note_loss(&self, database: usize, key: &[u8]) {
        self.append(|out, current| {
            records::select(out, current, database);
            records::request(out, &[b"DEL", key]);
        });
    }

    fn append(&self, write: impl FnOnce(&mut Vec<u8>, &mut Option<usize>)) -> u64 {
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
        self.interest.set_journal(false);
        self.journal.stop();
    }
}

impl Transaction<'_> {
    /// Writes changes down from now on, or begins a new part. The transaction must hold everything.
    pub fn cut_journal(&mut self) {
        // All others look at what is wanted once they have a shard.
        debug_assert!(self.holds_everything());
        self.keyspace().interest.set_journal(true);
        self.keyspace().journal.begin();
    }

    /// Has a request written down as it is, for what is no key.
    pub fn note_request(&mut self, words: &[&[u8]]) {
        // The transaction need not hold anything, so what was wanted when it began may be outdated.
        if self.keyspace().interest.load().journal() {
            let mut request = OwnedRequest::default();
            for word in words {
                // There is room: they came in one request.
                request.push(word);
            }
            self.leave(|aftermath| aftermath.changes.requests.push(request));
        }
    }

    /// Writes down what was changed; answers up to where the journal has to last for it to last. `by` is the
    /// request that has changed it, if one did and is all there is to it, and its command's name.
    #[inline(always)]
    pub fn commit(&mut self, by: Option<(&str, Request<'_>)>) -> Option<u64> {
        if self.left.get_mut().if_any().is_none() { None } else { self.write_down(by) }
    }

    #[cold]
    fn write_down(&mut self, by: Option<(&str, Request<'_>)>) -> Option<u64> {
        let mut changes = take(&mut self.left.get_mut().if_any()?.changes);
        changes.tidy();
        let count = changes.count();
        (count > 0).then(|| self.append(&changes, count, by))
    }

    fn append(&self, changes: &Changes, count: usize, by: Option<(&str, Request<'_>)>) -> u64 {
        self.keyspace().journal.append(|out, current| {
            if count > 1 {
                records::request(out, &[b"MULTI"]);
            }
            for replaced in &changes.databases {
                records::replaced(out, current, *replaced);
            }
            for request in changes.requests.iter().filter_map(OwnedRequest::request) {
                records::words(out, request.from(0));
            }
            for changed in &changes.keys {
                let by = by.filter(|_| count == 1 && changed.extent == Extent::Part);
                records::select(out, current, changed.database);
                self.write_key(out, changed, by);
            }
            if count > 1 {
                records::request(out, &[b"EXEC"]);
            }
        })
    }

    /// Writes down what became of a key.
    fn write_key(&self, out: &mut Vec<u8>, changed: &ChangedKey, by: Option<(&str, Request<'_>)>) {
        let key = &*changed.key;
        let (spot, shard) = self.shard(key);
        let Some(entry) = shard.table(changed.database).and_then(|table| table.find(spot, key)) else {
            return records::request(out, &[b"DEL", key]);
        };
        let value = entry.value();
        match (changed.extent, by) {
            (Extent::Expiry, _) => records::expiry(out, key, entry.expires_at_ms()),
            (_, Some((name, request))) if value.len() > LONG_BYTES && request.bytes() < value.len() => {
                let name = [name.as_bytes()];
                records::words(out, name.into_iter().chain(request.from(1)).collect::<Vec<_>>().into_iter());
            }
            _ => records::set(out, key, value, entry.expires_at_ms()),
        }
    }

    pub(super) fn note_flush(&mut self, database: Option<usize>) {
        if self.wanted.journal() {
            self.leave(|aftermath| aftermath.changes.note_flush(database));
        }
    }

    pub(super) fn note_swap(&mut self, one: usize, other: usize) {
        if self.wanted.journal() {
            self.leave(|aftermath| aftermath.changes.note_swap(one, other));
        }
    }

    /// Notes a key that came from elsewhere.
    pub(super) fn note_loaded(&mut self, database: usize, key: &[u8]) {
        if self.wanted.journal() {
            self.leave(|aftermath| aftermath.changes.add_key(database, key, Extent::Whole));
        }
    }
}

/// A transaction that ends without a word has its changes written down all the same.
impl Drop for Transaction<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.commit(None);
    }
}

/// Requests that change data, as a log has them.
pub mod records {
    use super::Replaced;

    /// Goes to a database, unless the reader is there already.
    pub fn select(out: &mut Vec<u8>, current: &mut Option<usize>, database: usize) {
        if *current != Some(database) {
            *current = Some(database);
            request(out, &[b"SELECT", number(database as u64, &mut itoa::Buffer::new())]);
        }
    }

    /// What an annotation begins with that tells the number which the last holder of a lock was given.
    pub const FENCING: &[u8] = b"#KEYFAST-FENCING:";

    /// Tells that number.
    pub(super) fn fencing(out: &mut Vec<u8>, last: u64) {
        out.extend_from_slice(FENCING);
        out.extend_from_slice(number(last, &mut itoa::Buffer::new()));
        out.extend_from_slice(b"\r\n");
    }

    /// Writes a key.
    pub fn set(out: &mut Vec<u8>, key: &[u8], value: &[u8], expires_at_ms: Option<u64>) {
        match expires_at_ms {
            None => request(out, &[b"SET", key, value]),
            Some(at_ms) => {
                request(out, &[b"SET", key, value, b"PXAT", number(at_ms, &mut itoa::Buffer::new())]);
            }
        }
    }

    /// Loads a library of functions, whether it is there or not.
    pub fn library(out: &mut Vec<u8>, code: &[u8]) {
        request(out, &[b"FUNCTION", b"LOAD", b"REPLACE", code]);
    }

    pub(super) fn expiry(out: &mut Vec<u8>, key: &[u8], expires_at_ms: Option<u64>) {
        match expires_at_ms {
            None => request(out, &[b"PERSIST", key]),
            Some(at_ms) => request(out, &[b"PEXPIREAT", key, number(at_ms, &mut itoa::Buffer::new())]),
        }
    }

    pub(super) fn replaced(out: &mut Vec<u8>, current: &mut Option<usize>, replaced: Replaced) {
        match replaced {
            Replaced::FlushAll => request(out, &[b"FLUSHALL"]),
            Replaced::Flush(database) => {
                select(out, current, database);
                request(out, &[b"FLUSHDB"]);
            }
            Replaced::Swap(one, other) => {
                let (mut first, mut second) = (itoa::Buffer::new(), itoa::Buffer::new());
                request(out, &[b"SWAPDB", number(one as u64, &mut first), number(other as u64, &mut second)]);
            }
        }
    }

    /// Any request.
    pub(super) fn request(out: &mut Vec<u8>, arguments: &[&[u8]]) {
        words(out, arguments.iter().copied());
    }

    pub(super) fn words<'a>(out: &mut Vec<u8>, words: impl ExactSizeIterator<Item = &'a [u8]>) {
        header(out, b'*', words.len());
        for word in words {
            out.reserve(word.len() + 32);
            header(out, b'$', word.len());
            out.extend_from_slice(word);
            out.extend_from_slice(b"\r\n");
        }
    }

    fn header(out: &mut Vec<u8>, kind: u8, count: usize) {
        out.push(kind);
        out.extend_from_slice(itoa::Buffer::new().format(count).as_bytes());
        out.extend_from_slice(b"\r\n");
    }

    fn number(number: u64, buffer: &mut itoa::Buffer) -> &[u8] {
        buffer.format(number).as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyspace::Expiry;

    /// What was written down since the last time, one request a line.
    fn taken(keyspace: &Keyspace) -> Vec<String> {
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

    fn logged() -> Keyspace {
        let keyspace = Keyspace::new(4);
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
        drop(tx);
        assert_eq!(taken(&keyspace), ["SELECT 2", &format!("SET k w PXAT {later_ms}")]);
        let mut tx = keyspace.begin(2, b"k").unwrap();
        tx.set_expiry(b"k", Some(later_ms + 1));
        assert_eq!(tx.commit(None), Some(keyspace.journal().end()));
        tx.set_expiry(b"k", None);
        drop(tx);
        assert_eq!(taken(&keyspace), [&format!("PEXPIREAT k {}", later_ms + 1), "PERSIST k"]);
        keyspace.begin(2, b"k").unwrap().remove(b"k");
        keyspace.begin(2, b"k").unwrap().remove(b"k");
        assert_eq!(taken(&keyspace), ["DEL k"]);
        assert_eq!(keyspace.begin(2, b"k").unwrap().commit(None), None);
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
            keyspace.begin(0, b"k").unwrap().put(b"k", value, Expiry::Never);
        }
        let pieces = keyspace.journal().take(Some(Duration::ZERO));
        let [Piece::Records(bytes)] = &pieces[..] else { panic!("{pieces:?}") };
        let expected = "#KEYFAST-FENCING:7\r\n*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n";
        assert!(bytes.starts_with(expected.as_bytes()));
        assert_eq!(bytes.iter().filter(|byte| **byte == b'#').count(), 1);
    }

    #[test]
    fn a_change_in_a_long_value_is_its_command() {
        let keyspace = logged();
        let request = OwnedRequest::of_line(b"renamed k xyz").unwrap();
        for (bytes, expected) in [(10, 10), (LONG_BYTES + 1, 0)] {
            keyspace.begin(0, b"k").unwrap().put(b"k", &vec![b'v'; bytes], Expiry::Never);
            taken(&keyspace);
            let mut tx = keyspace.begin(0, b"k").unwrap();
            tx.grow(b"k", bytes + 3);
            tx.commit(Some(("append", request.request().unwrap())));
            drop(tx);
            let [line] = &taken(&keyspace)[..] else { panic!("one record") };
            match expected {
                0 => assert_eq!(line, "append k xyz"),
                _ => assert!(line.starts_with("SET k vvv")),
            }
        }
    }

    #[test]
    fn a_new_part_begins_with_its_database_and_nothing_comes_after_the_end() {
        let keyspace = logged();
        let put = || keyspace.begin(0, b"k").unwrap().put(b"k", b"v", Expiry::Never);
        put();
        keyspace.begin_all(0).unwrap().cut_journal();
        put();
        keyspace.stop_journal();
        put();
        assert_eq!(taken(&keyspace), ["SELECT 0", "SET k v", "cut", "SELECT 0", "SET k v", "end"]);
    }
}
