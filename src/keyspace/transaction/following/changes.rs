//! The changes of a transaction, until it ends and appends their records to the journal.
//!
//! It rarely matters how a key came to its value. The log needs only the key as it is when the transaction
//! ends, and a replay has the same result ([`Note::Whole`]). Only when parts of a long value change, the
//! transaction keeps the steps, in their order ([`Note::Steps`]). A step is an effect, such as `APPEND` or
//! `SETRANGE` with the resulting bytes. It is never the command that the client sent, which may have been
//! EXEC, or a script.
//!
//! Changes of whole databases are logged first, in their order. They remove the notes of the keys that they
//! remove, and move the notes of the keys that they move.

use std::mem::{replace, take};
use std::ops::Range;

use crate::keyspace::store::entry::Entry;
use crate::keyspace::transaction::Transaction;
use crate::keyspace::transaction::following::journal::{LongKey, Unit};
use crate::keyspace::transaction::following::records::{self, Replaced};
use crate::resp::OwnedRequest;
use crate::values::STRING_KIND;

/// If a value has at most this many bytes, a change of a part of it is logged as the whole value. Its steps
/// would save little space, and take time when they are replayed.
pub(in crate::keyspace) const LONG_BYTES: usize = 4 << 10;
/// With this many notes the transaction merges those of the same key, and again whenever their number has
/// doubled…
const TIDY_AT: usize = 64;
/// … or when their steps have this many bytes, and again whenever these have doubled.
const TIDY_AT_BYTES: usize = 64 << 10;

/// Rendering a record of at most this many bytes takes a microsecond or two: other clients may wait for it.
const BRIEF_BYTES_MAX: usize = 16 << 10;

/// How much of a key changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::keyspace) enum Extent {
    /// All of it changes, or the key is removed.
    Whole,
    /// A part of its value changes. The steps are noted when they are done.
    Part,
    /// Its expiry changes.
    Expiry,
}

/// The changes of a transaction.
#[derive(Debug, Default)]
pub(in crate::keyspace) struct Changes {
    /// The records of earlier changes, which later notes must not replace: a record behind them reads what
    /// they have written.
    sealed: Unit,
    databases: Vec<Replaced>,
    keys: Vec<ChangedKey>,
    /// The number of notes at which they are merged next.
    tidy_at: usize,
    /// Bytes of all noted steps…
    step_bytes: usize,
    /// … and the number of these bytes at which the notes are merged next.
    tidy_at_bytes: usize,
    /// Requests that are logged as they are.
    requests: Vec<OwnedRequest>,
}

#[derive(Debug)]
struct ChangedKey {
    database: usize,
    key: Box<[u8]>,
    note: Note,
}

/// The change of one key.
#[derive(Debug)]
enum Note {
    /// Any change: the key is logged as it is in the end.
    Whole,
    /// Parts of its value were changed. The key was there before, and was not replaced since.
    Steps(Steps),
    /// Its expiry was changed.
    Expiry,
}

/// The changes of parts of a value.
#[derive(Debug)]
struct Steps {
    /// The requests that repeat the changes, in the form of the log.
    records: Vec<u8>,
    count: usize,
    /// The length of the value after the changes.
    value_bytes: usize,
    /// Whether the expiry changes, too. No step depends on the expiry, so it is logged last.
    moves_expiry: bool,
}

impl Note {
    /// Returns the note for this change followed by `next`.
    fn then(self, next: Note) -> Note {
        match (self, next) {
            (Note::Whole, _) | (_, Note::Whole) => Note::Whole,
            (Note::Expiry, Note::Expiry) => Note::Expiry,
            (Note::Steps(steps), Note::Expiry) | (Note::Expiry, Note::Steps(steps)) => {
                Note::Steps(Steps { moves_expiry: true, ..steps })
            }
            (Note::Steps(mut steps), Note::Steps(next)) => {
                steps.records.extend_from_slice(&next.records);
                steps.count += next.count;
                steps.value_bytes = next.value_bytes;
                steps.moves_expiry |= next.moves_expiry;
                steps.or_whole()
            }
        }
    }

    fn step_bytes(&self) -> usize {
        if let Note::Steps(steps) = self { steps.records.len() } else { 0 }
    }
}

impl Steps {
    /// Returns [`Note::Whole`] if the steps are longer than the value. That also bounds the memory for steps.
    fn or_whole(self) -> Note {
        if self.records.len() >= self.value_bytes { Note::Whole } else { Note::Steps(self) }
    }

    /// The number of requests.
    fn requests(&self) -> usize {
        self.count + usize::from(self.moves_expiry)
    }
}

impl Changes {
    /// Whether there is nothing to log.
    pub(in crate::keyspace) fn is_empty(&self) -> bool {
        let has_notes = !(self.databases.is_empty() && self.keys.is_empty() && self.requests.is_empty());
        !has_notes && self.sealed.is_empty()
    }

    /// Removes the notes of a key.
    fn forget(&mut self, database: usize, key: &[u8]) {
        self.keys.retain(|changed| changed.database != database || *changed.key != *key);
    }

    pub(in crate::keyspace) fn add_key(&mut self, database: usize, key: &[u8], extent: Extent) {
        match extent {
            Extent::Whole => self.add(database, key, Note::Whole),
            Extent::Expiry => self.add(database, key, Note::Expiry),
            // Its steps are added when they are known.
            Extent::Part => {}
        }
    }

    fn add(&mut self, database: usize, key: &[u8], note: Note) {
        self.step_bytes += note.step_bytes();
        self.keys.push(ChangedKey { database, key: key.into(), note });
        let has_many = self.keys.len() >= self.tidy_at.max(TIDY_AT);
        if has_many || self.step_bytes >= self.tidy_at_bytes.max(TIDY_AT_BYTES) {
            self.tidy();
            (self.tidy_at, self.tidy_at_bytes) = (2 * self.keys.len(), 2 * self.step_bytes);
        }
    }

    /// Takes the change of the only key, if nothing else is logged.
    fn take_only(&mut self) -> Option<ChangedKey> {
        let is_only = self.keys.len() == 1
            && self.databases.is_empty()
            && self.requests.is_empty()
            && self.sealed.is_empty();
        if is_only { self.keys.pop() } else { None }
    }

    /// The number of records to log, if each key has one note.
    fn count(&self) -> usize {
        let of_key =
            |changed: &ChangedKey| if let Note::Steps(steps) = &changed.note { steps.requests() } else { 1 };
        self.databases.len() + self.requests.len() + self.keys.iter().map(of_key).sum::<usize>()
    }

    /// Merges the notes of each key into one.
    fn tidy(&mut self) {
        // Stable: the notes of one key stay in their order.
        self.keys.sort_by(|one, other| (one.database, &one.key).cmp(&(other.database, &other.key)));
        self.keys.dedup_by(|next, kept| {
            let is_same = next.database == kept.database && next.key == kept.key;
            if is_same {
                let take = |note: &mut Note| replace(note, Note::Whole);
                kept.note = take(&mut kept.note).then(take(&mut next.note));
            }
            is_same
        });
        self.step_bytes = self.keys.iter().map(|changed| changed.note.step_bytes()).sum();
    }

    fn note_flush(&mut self, database: Option<usize>) {
        self.keys.retain(|changed| database.is_some_and(|database| database != changed.database));
        self.databases.push(database.map_or(Replaced::FlushAll, Replaced::Flush));
    }

    /// Exchanges the databases of earlier notes.
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

/// Noting what changes.
impl Transaction<'_> {
    /// Logs a request as it is, for a change that is not a change of keys.
    pub fn note_request(&mut self, words: &[&[u8]]) {
        // The transaction need not hold anything, so its copy of the interest may be outdated.
        if self.keyspace().followers.interest.load().journal() {
            let mut request = OwnedRequest::default();
            for word in words {
                // There is room: the words came in one request.
                request.push(word);
            }
            self.leave(|aftermath| aftermath.changes.requests.push(request));
        }
    }

    pub(in crate::keyspace) fn note_flush(&mut self, database: Option<usize>) {
        if self.wanted.journal() {
            self.leave(|aftermath| aftermath.changes.note_flush(database));
        }
    }

    pub(in crate::keyspace) fn note_swap(&mut self, one: usize, other: usize) {
        if self.wanted.journal() {
            self.leave(|aftermath| aftermath.changes.note_swap(one, other));
        }
    }

    /// Notes that a key was copied. The log gets the copying rather than the value, which is large.
    pub(in crate::keyspace) fn note_copy(&self, source: &[u8], target_database: usize, target: &[u8]) {
        let database = self.database;
        let mut changes = take(&mut self.left.borrow_mut().get().changes);
        // The target was noted as a whole key.
        changes.forget(target_database, target);
        changes.tidy();
        let mut sealed = take(&mut changes.sealed);
        self.render(changes, &mut sealed);
        sealed.select(database);
        records::copy(sealed.records(), source, target_database, target);
        self.leave(|aftermath| aftermath.changes = Changes { sealed, ..Changes::default() });
    }

    /// Notes a key that was loaded from a file.
    pub(in crate::keyspace) fn note_loaded(&mut self, database: usize, key: &[u8]) {
        if self.wanted.journal() {
            self.leave(|aftermath| aftermath.changes.add_key(database, key, Extent::Whole));
        }
    }

    /// Notes that these ranges of the value of a key have changed. The key is there, and its value had
    /// `before_bytes` bytes before.
    #[cold]
    pub(in crate::keyspace) fn note_steps(&self, key: &[u8], before_bytes: usize, ranges: &[Range<usize>]) {
        let (spot, shard) = self.shard(key);
        let Some(entry) = shard.table(self.database).and_then(|table| table.find(spot, key)) else { return };
        let Ok(value) = entry.text() else { return };
        let step_bytes: usize = ranges.iter().map(|range| key.len() + range.len()).sum();
        let note = match value.len() > LONG_BYTES && step_bytes < value.len() {
            true => {
                let mut records = Vec::new();
                for range in ranges {
                    records::step(&mut records, key, value, range.clone(), before_bytes);
                }
                let (count, value_bytes) = (ranges.len(), value.len());
                Steps { records, count, value_bytes, moves_expiry: false }.or_whole()
            }
            false => Note::Whole,
        };
        self.leave(|aftermath| aftermath.changes.add(self.database, key, note));
    }

    /// Notes the requests that repeat changes of a collection, which now takes `bytes`.
    #[cold]
    pub(in crate::keyspace) fn note_records(&self, key: &[u8], records: Vec<u8>, count: usize, bytes: usize) {
        // Requests are longer than what they change, and a few of them cost less than the whole value.
        let value_bytes = 2 * bytes + LONG_BYTES;
        let note = Steps { records, count, value_bytes, moves_expiry: false }.or_whole();
        self.leave(|aftermath| aftermath.changes.add(self.database, key, note));
    }
}

/// Logging the changes.
impl Transaction<'_> {
    /// Logs the changes, if there are any. Returns the journal's offset that must be written before they are.
    #[inline(always)]
    pub fn commit(&mut self) -> Option<u64> {
        if self.left.get_mut().if_any().is_none() { None } else { self.log_changes() }
    }

    #[cold]
    fn log_changes(&mut self) -> Option<u64> {
        let changes = &mut self.left.get_mut().if_any()?.changes;
        changes.tidy();
        if let Some(changed) = changes.take_only() {
            return Some(self.append_one(changed));
        }
        let changes = take(changes);
        let count = changes.count() + if changes.sealed.is_empty() { 0 } else { 2 };
        (count > 0).then(|| self.append(changes, count > 1))
    }

    /// Appends the change of one key.
    fn append_one(&self, changed: ChangedKey) -> u64 {
        let entry = self.entry_of(&changed);
        let is_unit = takes_several(&changed, entry);
        if !is_brief(&changed, entry) {
            return self.append(Changes { keys: vec![changed], ..Changes::default() }, is_unit);
        }
        self.keyspace().followers.journal.append(|out, current| {
            wrapped(is_unit, out, |out| {
                records::select(out, current, changed.database);
                self.log_key(out, &changed, entry);
            });
        })
    }

    fn append(&self, changes: Changes, is_unit: bool) -> u64 {
        let journal = &self.keyspace().followers.journal;
        let mut unit = Unit::beginning_in(journal.database());
        if is_unit {
            records::request(unit.records(), &[b"MULTI"]);
        }
        self.render(changes, &mut unit);
        if is_unit {
            records::request(unit.records(), &[b"EXEC"]);
        }
        journal.append_unit(unit)
    }

    /// Writes the records of all notes.
    fn render(&self, changes: Changes, unit: &mut Unit) {
        unit.append(changes.sealed);
        for replaced in changes.databases {
            unit.replace(replaced);
        }
        for request in changes.requests.iter().filter_map(OwnedRequest::request) {
            records::words(unit.records(), request.from(0));
        }
        for changed in changes.keys {
            unit.select(changed.database);
            self.render_key(changed, unit);
        }
    }

    /// Writes the records of a changed key. Large values and long steps are not copied.
    fn render_key(&self, mut changed: ChangedKey, unit: &mut Unit) {
        let entry = self.entry_of(&changed);
        if let (Note::Steps(steps), Some(_)) = (&mut changed.note, entry) {
            unit.push(take(&mut steps.records));
        }
        let long = match (&changed.note, entry) {
            (Note::Whole, Some(entry)) => LongKey::of(entry, self.keyspace().value_of(entry).facts),
            _ => None,
        };
        match long {
            Some(key) => unit.push_long(key),
            None => self.log_key(unit.records(), &changed, entry),
        }
    }

    fn entry_of(&self, changed: &ChangedKey) -> Option<&Entry> {
        let (spot, shard) = self.shard(&changed.key);
        shard.table(changed.database).and_then(|table| table.find(spot, &changed.key))
    }

    /// Logs a changed key with its entry.
    fn log_key(&self, out: &mut Vec<u8>, changed: &ChangedKey, entry: Option<&Entry>) {
        let key = &*changed.key;
        let Some(entry) = entry else { return records::request(out, &[b"DEL", key]) };
        match &changed.note {
            Note::Whole => {
                records::fence(out, entry.fence());
                // A buffer that keeps everything has no errors.
                let _ = self.keyspace().value_of(entry).log(out, key, entry.expires_at_ms());
            }
            Note::Expiry => records::expiry(out, key, entry.expires_at_ms()),
            Note::Steps(steps) => {
                out.extend_from_slice(&steps.records);
                if steps.moves_expiry {
                    records::expiry(out, key, entry.expires_at_ms());
                }
            }
        }
    }
}

/// Whether one key takes several requests: a whole collection does.
fn takes_several(changed: &ChangedKey, entry: Option<&Entry>) -> bool {
    match &changed.note {
        Note::Whole => entry.is_some_and(|entry| entry.kind() != STRING_KIND),
        Note::Steps(steps) => steps.requests() > 1,
        Note::Expiry => false,
    }
}

/// Whether the records of a changed key are short.
fn is_brief(changed: &ChangedKey, entry: Option<&Entry>) -> bool {
    match (&changed.note, entry) {
        (Note::Steps(steps), Some(_)) => steps.records.len() <= BRIEF_BYTES_MAX,
        (Note::Whole, Some(entry)) => entry.structure().is_none() && entry.bytes() <= BRIEF_BYTES_MAX,
        (Note::Expiry, _) | (_, None) => true,
    }
}

/// Writes records, as a unit if they are one.
fn wrapped(is_unit: bool, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    if is_unit {
        records::request(out, &[b"MULTI"]);
    }
    write(out);
    if is_unit {
        records::request(out, &[b"EXEC"]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyspace::transaction::following::journal::tests::{act, logged, taken};
    use crate::keyspace::{Everything, Expiry, Keyspace};

    const LONG: usize = 2 * LONG_BYTES;

    /// A keyspace with a log and with the key `k`, whose value has this many bytes.
    fn with_value(bytes: usize) -> Keyspace {
        let keyspace = logged();
        act(&keyspace, 0, |tx| tx.put(b"k", &vec![b'v'; bytes], Expiry::Never));
        taken(&keyspace);
        keyspace
    }

    /// Writes `bytes` at an offset of a value.
    fn write(tx: &mut Transaction<'_>, key: &[u8], offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        tx.change_part(key, end, |part| part.bytes_mut(offset..end).copy_from_slice(bytes)).unwrap();
    }

    #[test]
    fn a_change_is_logged_as_a_step_in_a_long_value_and_whole_in_a_short_one() {
        for (bytes, is_long) in [(10, false), (LONG_BYTES - 3, false), (LONG_BYTES - 2, true), (LONG, true)] {
            let keyspace = with_value(bytes);
            act(&keyspace, 0, |tx| write(tx, b"k", bytes, b"xyz"));
            let lines = taken(&keyspace);
            match is_long {
                true => assert_eq!(lines, ["APPEND k xyz"]),
                false => assert!(lines[0].starts_with("SET k vvv") && lines.len() == 1),
            }
        }
    }

    #[test]
    fn steps_keep_their_order_and_the_expiry_comes_last() {
        let keyspace = with_value(LONG);
        let mut tx = keyspace.begin(0, b"k").unwrap();
        let later_ms = tx.now_ms() + 1_000_000;
        write(&mut tx, b"k", LONG, b"tail");
        write(&mut tx, b"k", 7, b"a");
        tx.set_expiry(b"k", Some(later_ms));
        write(&mut tx, b"k", 7, b"b");
        // The value becomes longer without a write at its end.
        tx.change_part(b"k", LONG + 10, |part| part.bytes_mut(0..1)[0] = b'c').unwrap();
        tx.commit();
        drop(tx);
        let expiry = format!("PEXPIREAT k {later_ms}");
        let end = format!("SETRANGE k {} \0", LONG + 9);
        let expected = [
            "MULTI",
            "APPEND k tail",
            "SETRANGE k 7 a",
            "SETRANGE k 7 b",
            "SETRANGE k 0 c",
            &end,
            &expiry,
            "EXEC",
        ];
        assert_eq!(taken(&keyspace), expected);
    }

    #[test]
    fn steps_that_are_longer_than_the_value_are_logged_as_the_value() {
        let keyspace = with_value(LONG);
        let mut tx = keyspace.begin(0, b"k").unwrap();
        for number in 0..100_000 {
            write(&mut tx, b"k", number % LONG, b"x");
            assert!(tx.left.get_mut().get().changes.step_bytes < 2 * TIDY_AT_BYTES);
        }
        tx.commit();
        drop(tx);
        let lines = taken(&keyspace);
        assert!(lines.len() == 1 && lines[0].starts_with("SET k xxx"));
        act(&keyspace, 0, |tx| write(tx, b"k", 1, &[b'y'; LONG - 1]));
        assert!(taken(&keyspace)[0].starts_with("SET k xyyy"));
    }

    #[test]
    fn a_change_of_the_whole_key_replaces_its_steps() {
        type Act = fn(&mut Everything<&mut Transaction<'_>>);
        let whole = "v".repeat(LONG - 1);
        let cases: [(Act, Vec<String>); 6] = [
            (|tx| assert!(tx.remove(b"k")), vec!["DEL k".into()]),
            (|tx| tx.put(b"k", b"new", Expiry::Never), vec!["SET k new".into()]),
            (|tx| tx.flush_database(), vec!["FLUSHDB".into()]),
            (
                |tx| {
                    tx.flush_all();
                    write(tx, b"k", 0, b"new");
                },
                vec!["MULTI".into(), "FLUSHALL".into(), "SET k new".into(), "EXEC".into()],
            ),
            (
                |tx| tx.carry(b"k", 0, b"other"),
                vec!["MULTI".into(), "DEL k".into(), format!("SET other x{whole}"), "EXEC".into()],
            ),
            (
                |tx| {
                    tx.swap_databases(0, 1);
                    tx.select(1);
                    write(tx, b"k", 2, b"y");
                },
                ["MULTI", "SWAPDB 0 1", "SELECT 1", "SETRANGE k 0 x", "SETRANGE k 2 y", "EXEC"]
                    .map(String::from)
                    .to_vec(),
            ),
        ];
        for (act, expected) in cases {
            let keyspace = with_value(LONG);
            let mut tx = keyspace.begin_all(0).unwrap();
            write(&mut tx, b"k", 0, b"x");
            act(&mut tx.as_mut());
            tx.commit();
            drop(tx);
            assert_eq!(taken(&keyspace), expected);
        }
    }
}
