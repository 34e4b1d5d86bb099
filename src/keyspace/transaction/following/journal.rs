//! The log's records in memory, in the order of the changes, until the log's writer takes them.
//!
//! A transaction notes its changes ([`changes`](super::changes)). When it commits, with its locks still held,
//! it appends records: the requests that Redis would log ([`records`]). It wraps several records in `MULTI`
//! and `EXEC`, so that a replay applies all of them or none.
//!
//! One mutex protects the records. A transaction locks it while its shards are still locked, so the order of
//! the records is the order of the changes. The thread that has the log's pen [takes](Journal::take_into) all
//! records at once and writes them.
//!
//! All clients that write wait for this mutex, so nothing that takes long is done while it is locked. Only
//! one short record is rendered there. Everything else is rendered into a [`Unit`] before, and moved in. A
//! large value is not even rendered by its client: the unit has a copy that shares its nodes ([`LongKey`]),
//! and the log's thread renders it piece by piece.

use std::io;
use std::ops::DerefMut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::clock::system_s;
use crate::keyspace::Keyspace;
use crate::keyspace::store::entry::Entry;
use crate::keyspace::transaction::following::records;
use crate::keyspace::transaction::{Everything, Transaction};
use crate::values::{Sink, TypeFacts, Value};

/// A piece of records with this many bytes gets no more: growing it moves what it has.
const PIECE_BYTES: usize = 1 << 20;
/// Records with at most this many bytes are copied into a piece that is there already: a piece of their own
/// would cost the writer one more write.
const COPIED_BYTES_MAX: usize = 64 << 10;

/// Changes, for the log's writer.
#[derive(Debug, Default)]
pub struct Journal {
    pending: Mutex<Pending>,
    has_news: Condvar,
    has_call: Condvar,
    /// The size of everything so far. A large value counts with its bytes in memory. Offsets of the journal
    /// are of this kind.
    end: AtomicU64,
    /// The fencing number of the last holder of a lock.
    fencing: AtomicU64,
}

#[derive(Debug, Default)]
struct Pending {
    is_on: bool,
    /// The first one may be an empty buffer for the next records.
    pieces: Vec<Piece>,
    /// Bytes of the records in them.
    bytes: usize,
    /// The database that a reader of the records so far has selected.
    database: Option<usize>,
    notes: Notes,
    /// The writer must wake up although there is nothing new.
    is_called: bool,
}

/// What annotations say that were appended.
#[derive(Debug, Default)]
struct Notes {
    /// The last fencing number, in this part.
    fencing: u64,
    /// Whether times are noted (`aof-timestamp-enabled`).
    has_times: bool,
    /// The last time, in seconds since 1970.
    time_s: u64,
}

/// What one client has logged.
#[derive(Clone, Copy, Debug, Default)]
pub struct Own {
    /// The journal's offset that must be written before the changes of the client are.
    pub end: u64,
}

impl Own {
    /// Logs the changes of a transaction of the client, if there are any.
    #[inline]
    pub fn commit(&mut self, tx: &mut Transaction<'_>) {
        if let Some(end) = tx.commit() {
            self.end = end;
        }
    }
}

/// A piece of the log for its writer.
#[derive(Debug)]
pub enum Piece {
    /// Records, as the file has them.
    Records(Vec<u8>),
    /// A key with a large value, which the writer renders.
    Long(LongKey),
    /// The next records belong to a new part, which a reader understands without the parts before.
    Cut,
    /// No more changes are logged.
    End,
}

/// A key with a large value, as it was when it was logged.
#[derive(Debug)]
pub struct LongKey {
    entry: Entry,
    facts: &'static TypeFacts,
}

impl LongKey {
    /// A value with this many bytes is shared with the writer. Rendering it takes some 50 µs.
    const BYTES_MIN: usize = 256 << 10;

    /// A copy of an entry that shares its nodes, if its value is large.
    pub(in crate::keyspace) fn of(entry: &Entry, facts: &'static TypeFacts) -> Option<LongKey> {
        let is_large = entry.structure().is_some_and(|large| large.bytes() >= LongKey::BYTES_MIN);
        is_large.then(|| LongKey { entry: entry.copied(), facts })
    }

    /// Appends the requests that write the key.
    ///
    /// # Errors
    ///
    /// The errors of the sink.
    pub fn log(&self, sink: &mut dyn Sink) -> io::Result<()> {
        let value = Value { facts: self.facts, content: self.entry.content() };
        value.log(sink, self.entry.key(), self.entry.expires_at_ms())
    }

    /// Its bytes in memory.
    fn bytes(&self) -> usize {
        self.entry.bytes_in_all()
    }
}

impl Piece {
    /// How much it adds to the journal.
    pub fn size(&self) -> u64 {
        match self {
            Piece::Records(bytes) => bytes.len() as u64,
            Piece::Long(key) => key.bytes() as u64,
            Piece::Cut | Piece::End => 0,
        }
    }
}

/// The records of one transaction, rendered before the journal is locked.
#[derive(Debug, Default)]
pub(in crate::keyspace) struct Unit {
    pieces: Vec<Piece>,
    /// The database that the reader has selected before it.
    begins_in: Option<usize>,
    /// The database that the reader has selected behind it.
    database: Option<usize>,
}

impl Unit {
    /// A unit for a reader that has selected this database, as far as is known.
    pub(in crate::keyspace) fn beginning_in(database: Option<usize>) -> Unit {
        Unit { pieces: Vec::new(), begins_in: database, database }
    }

    /// Whether there is nothing in it.
    pub(in crate::keyspace) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The buffer for the next record.
    pub(in crate::keyspace) fn records(&mut self) -> &mut Vec<u8> {
        records_of(&mut self.pieces, 0)
    }

    /// Selects a database for the next record.
    pub(in crate::keyspace) fn select(&mut self, database: usize) {
        let Unit { pieces, database: current, .. } = self;
        records::select(records_of(pieces, 0), current, database);
    }

    /// Changes of whole databases.
    pub(in crate::keyspace) fn replace(&mut self, replaced: records::Replaced) {
        let Unit { pieces, database, .. } = self;
        records::replaced(records_of(pieces, 0), database, replaced);
    }

    /// Adds records that are rendered already.
    pub(in crate::keyspace) fn push(&mut self, records: Vec<u8>) {
        push_records(&mut self.pieces, records);
    }

    /// Adds a key with a large value.
    pub(in crate::keyspace) fn push_long(&mut self, key: LongKey) {
        self.pieces.push(Piece::Long(key));
    }

    /// Adds the records of another unit, which selects each database that it needs.
    pub(in crate::keyspace) fn append(&mut self, other: Unit) {
        self.pieces.extend(other.pieces);
        self.database = other.database.or(self.database);
    }
}

/// The buffer for the next record: that of the last piece, or a new one.
#[inline]
fn records_of(pieces: &mut Vec<Piece>, spare_bytes: usize) -> &mut Vec<u8> {
    let has_room = |bytes: &Vec<u8>| bytes.len() + spare_bytes < PIECE_BYTES;
    if !matches!(pieces.last(), Some(Piece::Records(bytes)) if has_room(bytes)) {
        pieces.push(Piece::Records(Vec::new()));
    }
    match pieces.last_mut() {
        Some(Piece::Records(bytes)) => bytes,
        _ => unreachable!("a piece of records was added"),
    }
}

/// Adds records: copies a few, and moves many.
fn push_records(pieces: &mut Vec<Piece>, records: Vec<u8>) {
    match pieces.last_mut() {
        Some(Piece::Records(bytes))
            if records.len() <= COPIED_BYTES_MAX && bytes.len() + records.len() <= PIECE_BYTES =>
        {
            bytes.extend_from_slice(&records);
        }
        _ => pieces.push(Piece::Records(records)),
    }
}

impl Journal {
    /// Begins to log. The caller holds all shards and has set the interest of transactions in the journal.
    fn start(&self) {
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

    /// Moves the pieces so far into `taken`, which is empty, or has an empty buffer for the records to come.
    pub fn take_into(&self, taken: &mut Vec<Piece>) {
        let mut pending = self.pending.lock();
        pending.bytes = 0;
        std::mem::swap(&mut pending.pieces, taken);
    }

    /// The pieces so far.
    #[cfg(test)]
    pub fn taken(&self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        self.take_into(&mut pieces);
        pieces
    }

    /// Waits for a piece, for at most `patience`. Then `rest`s, so that changes need not wake the log's
    /// thread each time. A [`call`](Self::call) ends both.
    pub fn wait(&self, patience: Option<Duration>, rest: Duration) {
        let mut pending = self.pending.lock();
        let is_idle = |pending: &mut Pending| !pending.is_called && !pending.has_pieces();
        match patience {
            Some(patience) => drop(self.has_news.wait_while_for(&mut pending, is_idle, patience)),
            None => self.has_news.wait_while(&mut pending, is_idle),
        }
        if pending.has_pieces() {
            self.has_call.wait_while_for(&mut pending, |pending| !pending.is_called, rest);
        }
        pending.is_called = false;
    }

    /// Wakes the log's thread.
    pub fn call(&self) {
        self.pending.lock().is_called = true;
        self.has_news.notify_one();
        self.has_call.notify_one();
    }

    /// The offset of the end.
    #[inline]
    pub fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// Whether changes are logged.
    pub fn is_on(&self) -> bool {
        self.pending.lock().is_on
    }

    /// Bytes of records that the writer has not taken yet. Large values are not among them: they are in the
    /// data set.
    pub fn pending_bytes(&self) -> usize {
        self.pending.lock().bytes
    }

    /// The database that a reader has selected at the end. It may change at any moment.
    pub(in crate::keyspace) fn database(&self) -> Option<usize> {
        self.pending.lock().database
    }

    /// Notes a time before the first record of each second, or no longer.
    pub fn note_times(&self, has_times: bool) {
        self.pending.lock().notes.has_times = has_times;
    }

    /// Notes the fencing number of the last holder of a lock. The next record comes with it, as an
    /// annotation, which other readers of the log ignore.
    pub fn note_fencing(&self, number: u64) {
        self.fencing.fetch_max(number, Ordering::Relaxed);
    }

    /// Appends the output of `write`, which must be short, if there is a log. Returns the offset behind it.
    /// `write` also gets the database that a reader of the log has selected.
    pub(in crate::keyspace) fn append(&self, write: impl FnOnce(&mut Vec<u8>, &mut Option<usize>)) -> u64 {
        let mut pending = self.pending.lock();
        if !pending.is_on {
            return self.end();
        }
        let Pending { pieces, bytes: pending_bytes, database, notes, .. } = &mut *pending;
        let bytes = records_of(pieces, 0);
        let before = bytes.len();
        self.annotate(notes, bytes);
        write(bytes, database);
        let written = bytes.len() - before;
        *pending_bytes += written;
        self.advance(written as u64)
    }

    /// Appends a unit, if there is a log. Returns the offset behind it.
    pub(in crate::keyspace) fn append_unit(&self, unit: Unit) -> u64 {
        let is_rendered = |piece: &&Piece| matches!(piece, Piece::Records(_));
        let size: u64 = unit.pieces.iter().map(Piece::size).sum();
        let rendered: u64 = unit.pieces.iter().filter(is_rendered).map(Piece::size).sum();
        let mut pending = self.pending.lock();
        if !pending.is_on {
            return self.end();
        }
        let Pending { pieces, bytes: pending_bytes, database, notes, .. } = &mut *pending;
        let bytes = records_of(pieces, COPIED_BYTES_MAX);
        let before = bytes.len();
        self.annotate(notes, bytes);
        // Other transactions may have selected another database meanwhile.
        if let Some(begins_in) = unit.begins_in {
            records::select(bytes, database, begins_in);
        }
        let added = bytes.len() - before;
        *database = unit.database.or(*database);
        for piece in unit.pieces {
            match piece {
                Piece::Records(records) => push_records(pieces, records),
                piece => pieces.push(piece),
            }
        }
        *pending_bytes += rendered as usize + added;
        self.advance(size + added as u64)
    }

    /// Writes the time, if that is wanted, and the fencing number, if they are new.
    #[inline]
    fn annotate(&self, notes: &mut Notes, bytes: &mut Vec<u8>) {
        if notes.has_times {
            let now_s = system_s();
            if now_s > notes.time_s {
                notes.time_s = now_s;
                records::time(bytes, now_s);
            }
        }
        let fencing = self.fencing.load(Ordering::Relaxed);
        if fencing > notes.fencing {
            notes.fencing = fencing;
            records::fencing(bytes, fencing);
        }
    }

    /// Notes that something was appended, and returns the new end. The caller has locked the records.
    #[inline]
    fn advance(&self, by: u64) -> u64 {
        let end = self.end.fetch_add(by, Ordering::Release) + by;
        self.has_news.notify_one();
        end
    }
}

impl Pending {
    fn has_pieces(&self) -> bool {
        self.pieces.iter().any(|piece| !matches!(piece, Piece::Records(bytes) if bytes.is_empty()))
    }

    fn cut(&mut self) {
        self.pieces.push(Piece::Cut);
        (self.database, self.notes.fencing) = (None, 0);
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
        followers.journal.start();
    }
}

#[cfg(test)]
pub(in crate::keyspace) mod tests {
    use super::*;
    use crate::keyspace::Expiry;

    /// The requests that were logged since the last call, one a line.
    pub(in crate::keyspace) fn taken(keyspace: &Keyspace) -> Vec<String> {
        let mut lines = Vec::new();
        for piece in keyspace.journal().taken() {
            match piece {
                Piece::Records(bytes) => lines.extend(lines_of(bytes)),
                Piece::Long(key) => {
                    let mut bytes = Vec::new();
                    key.log(&mut bytes).unwrap();
                    lines.extend(lines_of(bytes));
                }
                Piece::Cut => lines.push("cut".to_owned()),
                Piece::End => lines.push("end".to_owned()),
            }
        }
        lines
    }

    fn lines_of(bytes: Vec<u8>) -> Vec<String> {
        let text = String::from_utf8(bytes).unwrap();
        let line = |record: &str| {
            let words = record.split("\r\n").skip(2).step_by(2);
            words.collect::<Vec<_>>().join(" ").trim_end().to_owned()
        };
        text.split('*').skip(1).map(line).collect()
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
    fn a_large_value_is_rendered_by_the_writer_as_it_was_when_it_was_logged() {
        let keyspace = logged();
        let long = "v".repeat(LongKey::BYTES_MIN);
        let before = keyspace.journal().end();
        let mut tx = keyspace.begin(0, b"k").unwrap();
        tx.put(b"k", long.as_bytes(), Expiry::Never);
        let logged = tx.commit().unwrap();
        drop(tx);
        let end = keyspace.journal().end();
        assert!(logged == end && end > before + long.len() as u64);
        assert!(keyspace.journal().pending_bytes() < 100);
        act(&keyspace, 0, |tx| {
            tx.change_part(b"k", long.len(), |part| part.bytes_mut(0..1)[0] = b'x').unwrap();
        });
        act(&keyspace, 0, |tx| assert!(tx.remove(b"k")));
        let lines = taken(&keyspace);
        assert!(lines[1] == format!("SET k {long}"), "a later change is not in it");
        assert_eq!((&*lines[0], &lines[2..]), ("SELECT 0", &["SETRANGE k 0 x".into(), "DEL k".into()][..]));
        assert_eq!(keyspace.journal().pending_bytes(), 0);
    }

    #[test]
    fn a_large_value_in_a_unit_stands_between_its_neighbours() {
        let keyspace = logged();
        let long = "v".repeat(LongKey::BYTES_MIN);
        let mut tx = keyspace.begin_all(1).unwrap();
        for key in [b"a", b"b", b"c"] {
            tx.put(key, if key == b"b" { long.as_bytes() } else { b"short" }, Expiry::Never);
        }
        tx.commit();
        drop(tx);
        let long = format!("SET b {long}");
        assert!(taken(&keyspace) == ["MULTI", "SELECT 1", "SET a short", &long, "SET c short", "EXEC"]);
    }

    #[test]
    fn a_unit_finds_its_database_although_another_was_selected_meanwhile() {
        let keyspace = logged();
        act(&keyspace, 0, |tx| tx.put(b"k", b"v", Expiry::Never));
        let journal = keyspace.journal();
        let mut unit = Unit::beginning_in(journal.database());
        unit.select(0);
        records::request(unit.records(), &[b"DEL", b"k"]);
        act(&keyspace, 3, |tx| tx.put(b"k", b"v", Expiry::Never));
        journal.append_unit(unit);
        act(&keyspace, 0, |tx| tx.put(b"k", b"w", Expiry::Never));
        let expected = ["SELECT 0", "SET k v", "SELECT 3", "SET k v", "SELECT 0", "DEL k", "SET k w"];
        assert_eq!(taken(&keyspace), expected);
    }

    #[test]
    fn pieces_stop_growing_and_keep_all_records() {
        let keyspace = logged();
        let value = "v".repeat(40 << 10);
        for _ in 0..100 {
            act(&keyspace, 0, |tx| tx.put(b"k", value.as_bytes(), Expiry::Never));
            act(&keyspace, 0, |tx| tx.put(b"k", b"short", Expiry::Never));
        }
        let pieces = keyspace.journal().taken();
        assert!(pieces.len() > 3 && pieces.iter().all(|piece| piece.size() <= PIECE_BYTES as u64));
        assert_eq!(keyspace.journal().end(), pieces.iter().map(Piece::size).sum::<u64>());
    }

    #[test]
    fn the_fencing_number_comes_with_the_next_record() {
        let keyspace = logged();
        keyspace.journal().note_fencing(7);
        for value in [b"1", b"2"] {
            act(&keyspace, 0, |tx| tx.put(b"k", value, Expiry::Never));
        }
        let pieces = keyspace.journal().taken();
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
