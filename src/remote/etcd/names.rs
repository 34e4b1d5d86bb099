//! The names of keys in etcd, and the form of values.
//!
//! `etcdctl get --prefix keyfast/` shows all of it. Behind the prefix:
//!
//! - `format` is the version of this form.
//! - `flushes` says how often databases were flushed.
//! - `numbers` is the number from which fencing numbers are counted: see [`Numbers`].
//! - `k/<database>/<slot>/<name>` is a key. Its slot, a hash of 16 digits, stands before its name so that
//!   SCAN can go on from a number. After a flush it is `k/<database>.<flush>/<slot>/<name>`: so a flush is
//!   one moment, however many keys there are. Those of before are deleted later.
//! - `w/<database>/<slot>/<name>` is the mark of an absent key that is watched.
//! - `f/<front-end>` is a front-end's ledger.
//! - `n/<front-end>` says that a front-end is there, and holds its news.
//!
//! A value begins with one line: the version of the form, the type, the moment of the expiry in milliseconds
//! since 1970 or `-`, `lock` or `-`, the fencing number, the moment at which the key has got it, and who has
//! written it. The bytes of the value follow. The moment is there for people and for PTTL: the lease decides.
//! A fencing number that is less than 0 is to be taken without its sign, and 256 times the key's
//! `mod_revision` is to be added. An earlier version has written 0 for 1,024 times the `mod_revision`.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::messages::{Compare, KeyValue, is_absent, is_of};
use crate::remote::row::{FENCES_PER_VERSION, Key, Live, Row, Tenure};
use crate::types;

/// The version of the form.
pub(super) const FORMAT: &str = "3";
/// The version before, without `numbers`.
pub(super) const FORMAT_BEFORE: &str = "2";
/// The version of the form of values.
const VALUE_FORMAT: &str = "1";

/// The names of one prefix.
#[derive(Clone, Debug)]
pub(super) struct Names {
    prefix: String,
    /// The flushes that are known here. What is asked of etcd is asked on condition that there are no others.
    flushes: Flushes,
    /// The fencing numbers, as they are known here. What is written is written on condition that they are so.
    numbers: Numbers,
}

/// The fencing numbers of this store: each revision of etcd has 256 of them, and they are counted from a
/// number that the store has.
///
/// Revisions only grow, but for an etcd that is made anew or restored from a snapshot. So each front-end that
/// connects sees to it that the numbers of the next revision are not behind its clock, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Numbers {
    /// The revision of the key that has the number; 0 if there is none.
    revision: i64,
    from: i64,
}

impl Numbers {
    /// Reads what the key `numbers` has; `None` if another program has written it.
    pub(super) fn of(found: Option<&KeyValue>) -> Option<Numbers> {
        let Some(KeyValue { value, mod_revision: revision, .. }) = found else {
            return Some(Numbers::default());
        };
        let from = std::str::from_utf8(value).ok()?.parse().ok().filter(|from| *from > 0)?;
        Some(Numbers { revision: *revision, from })
    }

    /// The first number of a version.
    pub(super) fn first_of(self, version: i64) -> i64 {
        self.from.saturating_add(version.saturating_mul(FENCES_PER_VERSION as i64))
    }

    /// Whether the numbers of a version are larger than this one.
    pub(super) fn are_beyond(self, number: i64, version: i64) -> bool {
        self.revision > 0 && self.first_of(version) > number
    }

    /// What the key has to have, so that the numbers of a version are larger than this one.
    pub(super) fn beyond(number: i64, version: i64) -> Bytes {
        (number + 1 - version.saturating_mul(FENCES_PER_VERSION as i64)).to_string().into()
    }

    /// What the value of a row has in place of its number, which is that of its version and its place.
    fn in_row(self, place: usize) -> i64 {
        -(self.from.saturating_add(place as i64))
    }
}

/// The fencing number of a row, of what its value has.
fn number_in_row(has: i64, version: i64) -> i64 {
    match has {
        0 => version.saturating_mul(1024),
        1.. => has,
        _ => Numbers { revision: 0, from: has.saturating_neg() }.first_of(version),
    }
}

/// The flushes of databases. Each has a number, which is greater than those before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Flushes {
    /// The revision of the key that has them; 0 if there is none.
    revision: i64,
    /// The last one of all databases; 0 for none.
    of_all: u64,
    /// Later ones of single databases.
    of_one: BTreeMap<u32, u64>,
}

impl Flushes {
    /// Reads what the key `flushes` has; `None` if another program has written it.
    pub(super) fn of(found: Option<&KeyValue>) -> Option<Flushes> {
        let Some(KeyValue { value, mod_revision: revision, .. }) = found else {
            return Some(Flushes::default());
        };
        let mut words = std::str::from_utf8(value).ok()?.split(' ');
        let of_all = words.next()?.parse().ok()?;
        let of_one = words.map(|word| {
            let (database, number) = word.split_once('=')?;
            Some((database.parse().ok()?, number.parse().ok()?))
        });
        Some(Flushes { revision: *revision, of_all, of_one: of_one.collect::<Option<_>>()? })
    }

    /// The number of the last flush of a database; 0 if there was none.
    fn last_of(&self, database: u32) -> u64 {
        self.of_one.get(&database).map_or(self.of_all, |number| self.of_all.max(*number))
    }

    /// These and one more, of a database or of all.
    pub(super) fn with(&self, database: Option<u32>) -> Flushes {
        let next = self.of_one.values().fold(self.of_all, |last, number| last.max(*number)) + 1;
        let mut flushes = self.clone();
        match database {
            Some(database) => _ = flushes.of_one.insert(database, next),
            None => (flushes.of_all, flushes.of_one) = (next, BTreeMap::new()),
        }
        flushes
    }
}

impl fmt::Display for Flushes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.of_all)?;
        self.of_one.iter().try_for_each(|(database, number)| write!(f, " {database}={number}"))
    }
}

/// The meaning of a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// A key of a client.
    Key(Key),
    /// The ledger of a front-end.
    Ledger(i64),
    /// The news of a front-end.
    News(i64),
    /// The key that has the flushes.
    Flushes,
}

/// Digits of a slot.
const SLOT_DIGITS: usize = 16;
/// Digits of the number of a flush, in the name of a key.
const ROOM_DIGITS: usize = 16;

impl Names {
    pub(super) fn new(prefix: &str) -> Names {
        Names { prefix: prefix.to_owned(), flushes: Flushes::default(), numbers: Numbers::default() }
    }

    /// The same names after other flushes.
    pub(super) fn after(&self, flushes: Flushes) -> Names {
        Names { prefix: self.prefix.clone(), flushes, numbers: self.numbers }
    }

    /// The same names with other fencing numbers.
    pub(super) fn numbered(&self, numbers: Numbers) -> Names {
        Names { numbers, ..self.clone() }
    }

    /// The fencing numbers that are known here.
    pub(super) fn numbers(&self) -> Numbers {
        self.numbers
    }

    /// The name of the fencing numbers.
    pub(super) fn numbers_name(&self) -> Bytes {
        format!("{}numbers", self.prefix).into()
    }

    /// That the fencing numbers are those that are known here.
    pub(super) fn are_numbered(&self) -> Compare {
        is_as_known(self.numbers_name(), self.numbers.revision)
    }

    /// The flushes that are known here.
    pub(super) fn flushes(&self) -> &Flushes {
        &self.flushes
    }

    /// The name of the flushes.
    pub(super) fn flushes_name(&self) -> Bytes {
        format!("{}flushes", self.prefix).into()
    }

    /// That there was no other flush.
    pub(super) fn are_current(&self) -> Compare {
        is_as_known(self.flushes_name(), self.flushes.revision)
    }

    /// The name of the version of the form.
    pub(super) fn format(&self) -> Bytes {
        format!("{}format", self.prefix).into()
    }

    /// The name of a client's key: `k/<database>/<slot>/<name>`.
    pub(super) fn key(&self, key: &Key) -> Bytes {
        self.of(&format!("k/{}", self.room(key.database)), key)
    }

    /// The mark of an absent key that is watched. A flush leaves it, since such a key does not change by it.
    pub(super) fn mark(&self, key: &Key) -> Bytes {
        self.of(&format!("w/{}", key.database), key)
    }

    /// The part of a name for the database of a key, and for the flush before it.
    pub(super) fn room(&self, database: u32) -> String {
        match self.flushes.last_of(database) {
            0 => database.to_string(),
            number => format!("{database}.{number:0ROOM_DIGITS$}"),
        }
    }

    fn of(&self, room: &str, key: &Key) -> Bytes {
        use std::io::Write;
        let mut name = Vec::with_capacity(self.prefix.len() + room.len() + key.name.len() + SLOT_DIGITS + 2);
        name.extend_from_slice(self.prefix.as_bytes());
        // A write to a vector cannot fail.
        let _ = write!(name, "{room}/{:016x}/", key.slot());
        name.extend_from_slice(&key.name);
        name.into()
    }

    /// The ledger of a front-end.
    pub(super) fn ledger(&self, front: i64) -> Bytes {
        format!("{}f/{front:016x}", self.prefix).into()
    }

    /// The news of a front-end.
    pub(super) fn news(&self, front: i64) -> Bytes {
        format!("{}n/{front:016x}", self.prefix).into()
    }

    /// All news: from the first name to the one after the last.
    pub(super) fn all_news(&self) -> [Bytes; 2] {
        ["n/", "n0"].map(|end| format!("{}{end}", self.prefix).into())
    }

    /// All keys of a database.
    pub(super) fn all_keys(&self, database: u32) -> [Bytes; 2] {
        self.all_in(&self.room(database))
    }

    fn all_in(&self, room: &str) -> [Bytes; 2] {
        // `0` follows `/`.
        ["/", "0"].map(|end| format!("{}k/{room}{end}", self.prefix).into())
    }

    /// The keys of a room from a slot to the one before another slot.
    pub(super) fn slots_in(&self, room: &str, slots: Range<i64>) -> [Bytes; 2] {
        [slots.start, slots.end].map(|slot| format!("{}k/{room}/{slot:016x}", self.prefix).into())
    }

    /// The keys of a database that were flushed: those of before the first flush, and those of after it.
    pub(super) fn all_flushed(&self, database: u32) -> Option<[[Bytes; 2]; 2]> {
        let first = Some(self.flushes.last_of(database)).filter(|number| *number > 0)?;
        let ends = [format!("{database}."), format!("{database}.{first:0ROOM_DIGITS$}/")];
        let later = ends.map(|end| format!("{}k/{end}", self.prefix).into());
        Some([self.all_in(&database.to_string()), later])
    }

    /// The room of the key of this name.
    pub(super) fn room_in<'n>(&self, name: &'n [u8]) -> Option<&'n str> {
        let rest = name.strip_prefix(self.prefix.as_bytes())?.strip_prefix(b"k/")?;
        std::str::from_utf8(rest.split(|byte| *byte == b'/').next()?).ok()
    }

    /// The ledgers of all front-ends.
    pub(super) fn all_ledgers(&self) -> [Bytes; 2] {
        ["f/", "f0"].map(|end| format!("{}{end}", self.prefix).into())
    }

    /// All ledgers, the flushes and all keys, and nothing else: no other room lies between `f` and `k`.
    pub(super) fn all_changes(&self) -> [Bytes; 2] {
        ["f/", "k0"].map(|end| format!("{}{end}", self.prefix).into())
    }

    /// All keys of a database from a slot on.
    pub(super) fn keys_from(&self, database: u32, slot: i64) -> [Bytes; 2] {
        let [_, end] = self.all_keys(database);
        [format!("{}k/{}/{slot:016x}", self.prefix, self.room(database)).into(), end]
    }

    /// The meaning of a name; `None` if it has none here. A key that was flushed has none.
    pub(super) fn read(&self, name: &[u8]) -> Option<Named> {
        let name = name.strip_prefix(self.prefix.as_bytes())?;
        if name == b"flushes" {
            return Some(Named::Flushes);
        }
        let (room, rest) = name.split_at_checked(2)?;
        match room {
            b"f/" => Some(Named::Ledger(front_of(rest)?)),
            b"n/" => Some(Named::News(front_of(rest)?)),
            b"k/" => {
                let slash = rest.iter().position(|byte| *byte == b'/')?;
                let (database, number) = read_room(std::str::from_utf8(&rest[..slash]).ok()?)?;
                if number != self.flushes.last_of(database) {
                    return None;
                }
                let name = rest.get(slash + 1 + SLOT_DIGITS + 1..)?;
                Some(Named::Key(Key { database, name: name.into() }))
            }
            _ => None,
        }
    }
}

/// That a key was written last in this revision; 0 for one that is absent.
fn is_as_known(name: Bytes, revision: i64) -> Compare {
    if revision == 0 { is_absent(name) } else { is_of(name, revision) }
}

/// The database of a room, and the number of the flush after which it was made.
fn read_room(room: &str) -> Option<(u32, u64)> {
    let (database, number) = room.split_once('.').unwrap_or((room, "0"));
    Some((database.parse().ok()?, number.parse().ok()?))
}

fn front_of(digits: &[u8]) -> Option<i64> {
    i64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// The content of a ledger: the number of the last batch, and whether it was done. It is greater than that of
/// every earlier batch, and than [`before`] of its own number.
pub(super) fn ledger(number: i64, is_done: bool) -> Bytes {
    format!("{number:019} {}", if is_done { "done" } else { "void" }).into()
}

/// The least content that is greater than every ledger without this batch or a later one.
pub(super) fn before(number: i64) -> Bytes {
    format!("{number:019}").into()
}

/// A fencing number of a row.
#[derive(Clone, Copy, Debug)]
pub(super) enum RowNumber {
    /// It has this one.
    Given(i64),
    /// It has the one of this place in its version.
    OfPlace(Numbers, usize),
}

/// The value for a row. `since_ms` is when the row got its fencing number, in milliseconds since 1970.
pub(super) fn write(
    live: &Live,
    expires_at_ms: Option<u64>,
    (number, since_ms): (RowNumber, u64),
    holder: &str,
) -> Bytes {
    let fence = match number {
        RowNumber::Given(number) => number,
        RowNumber::OfPlace(numbers, place) => numbers.in_row(place),
    };
    let kind = types::ALL.iter().find(|facts| facts.kind == live.kind).map_or("none", |facts| facts.name);
    let expiry = expires_at_ms.map_or("-".to_owned(), |moment_ms| moment_ms.to_string());
    let mark = if live.is_lock { LOCK } else { "-" };
    let holder = holder.replace('\n', " ");
    let mut value =
        format!("{VALUE_FORMAT} {kind} {expiry} {mark} {fence} {since_ms} {holder}\n").into_bytes();
    value.extend_from_slice(&live.value);
    value.into()
}

/// Reads a row. A value from another program, or of a later version, gets no type, so that requests for it
/// fail.
pub(super) fn read(value: &Bytes, version: i64) -> Row {
    if let Some(row) = read_row(value, version) {
        return row;
    }
    let live = Live { kind: NO_KIND, value: Bytes::new(), expires_at_ms: None, is_lock: false };
    Row { version, live: Some(live), ..Row::default() }
}

/// The mark of a lock.
const LOCK: &str = "lock";
/// The number for an unknown type.
const NO_KIND: u8 = u8::MAX;

fn read_row(value: &Bytes, version: i64) -> Option<Row> {
    let (head, end) = head(value)?;
    let facts = types::ALL.iter().find(|facts| facts.name == head.kind)?;
    let expires_at_ms = match head.expiry {
        "-" => None,
        moment_ms => Some(moment_ms.parse().ok()?),
    };
    let is_lock = head.mark == LOCK;
    let live = Live { kind: facts.kind, value: value.slice(end + 1..), expires_at_ms, is_lock };
    let fence = number_in_row(head.fence, version);
    let tenure = Tenure { holder: head.holder.to_owned(), fence, since_ms: head.since_ms };
    Some(Row { version, live: Some(live), fence, tenure: Some(Arc::new(tenure)), ..Row::default() })
}

/// The name of the type of a value.
pub(super) fn kind_of(value: &Bytes) -> Option<&str> {
    head(value).map(|(head, _)| head.kind)
}

/// The fields of a value's first line.
struct Head<'v> {
    kind: &'v str,
    expiry: &'v str,
    mark: &'v str,
    fence: i64,
    since_ms: u64,
    holder: &'v str,
}

/// The first line's fields, and where the line ends.
fn head(value: &Bytes) -> Option<(Head<'_>, usize)> {
    let end = memchr::memchr(b'\n', value)?;
    let mut fields = std::str::from_utf8(&value[..end]).ok()?.splitn(7, ' ');
    if fields.next()? != VALUE_FORMAT {
        return None;
    }
    let head = Head {
        kind: fields.next()?,
        expiry: fields.next()?,
        mark: fields.next()?,
        fence: fields.next()?.parse().ok()?,
        since_ms: fields.next()?.parse().ok()?,
        holder: fields.next()?,
    };
    Some((head, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_are_read_as_they_were_written() {
        let names = Names::new("x/y/");
        let key = Key::new(12, b"a/b\n\xff");
        assert_eq!(names.read(&names.key(&key)), Some(Named::Key(key.clone())));
        assert_eq!(names.read(&names.mark(&key)), None);
        assert_eq!(names.read(&names.ledger(7)), Some(Named::Ledger(7)));
        assert_eq!(names.read(&names.news(i64::MAX)), Some(Named::News(i64::MAX)));
        assert_eq!(names.read(b"x/k/0/"), None);
        let [first, end] = names.all_keys(12);
        let [from, _] = names.keys_from(12, key.slot());
        assert!(first < from && from < names.key(&key) && names.key(&key) < end);
        assert!(names.key(&Key::new(1, b"a")) < first);
        let value = Bytes::from_static(b"v\n");
        let of_place = RowNumber::OfPlace(Numbers { revision: 3, from: 1_000 }, 7);
        for (expires_at_ms, number, fence, is_lock) in
            [(Some(9), of_place, 1_000 + 4 * 256 + 7, true), (None, RowNumber::Given(3), 3, false)]
        {
            let live = Live { kind: 0, value: value.clone(), expires_at_ms: Some(5), is_lock };
            let row = read(&write(&live, expires_at_ms, (number, 70), "front id=1\nname"), 4);
            let tenure = Tenure { holder: "front id=1 name".to_owned(), fence, since_ms: 70 };
            let live = Some(Live { expires_at_ms, ..live });
            assert_eq!(row, Row { version: 4, live, fence, tenure: Some(Arc::new(tenure)), granted: 0 });
        }
        for wrong in
            ["", "\n", "2 string - - 0 0 x\n", "1 nothing - - 0 0 x\n", "1 string x - 0 0 x\n", "1 string"]
        {
            let row = read(&Bytes::from_static(wrong.as_bytes()), 1);
            assert_eq!(row.live.map(|live| live.kind), Some(NO_KIND), "{wrong:?}");
        }
    }

    #[test]
    fn a_flush_gives_the_keys_of_its_databases_other_names() {
        let names = Names::new("x/");
        let flushed = |names: &Names, database| {
            let flushes = names.flushes().with(database);
            let found =
                KeyValue { value: flushes.to_string().into(), mod_revision: 7, ..KeyValue::default() };
            let flushes = Flushes { revision: 7, ..flushes };
            assert_eq!(Flushes::of(Some(&found)), Some(flushes.clone()));
            names.after(flushes)
        };
        let (one, other) = (Key::new(1, b"k"), Key::new(12, b"k"));
        let all = [None, Some(1), Some(1), Some(12), None, Some(12)].map({
            let mut names = names.clone();
            move |database| {
                names = flushed(&names, database);
                names.clone()
            }
        });
        let rooms = all.iter().map(|names| (names.room(1), names.room(12)));
        let expected = [(1, 1), (2, 1), (3, 1), (3, 4), (5, 5), (5, 6)];
        let room = |database: u32, number: u64| format!("{database}.{number:0ROOM_DIGITS$}");
        assert!(rooms.eq(expected.map(|(one, other)| (room(1, one), room(12, other)))));
        assert_eq!(all[1].read(&all[1].key(&one)), Some(Named::Key(one.clone())));
        assert_eq!(all[2].read(&all[1].key(&one)), None);
        assert_eq!(all[2].read(&all[1].key(&other)), Some(Named::Key(other.clone())));
        assert_eq!(names.mark(&one), all[3].mark(&one));
        assert_eq!(names.all_flushed(1), None);
        let is_old = |names: &Names, name: &Bytes| {
            let rooms = names.all_flushed(1).expect("it was flushed");
            rooms.into_iter().any(|[first, end]| (first..end).contains(name))
        };
        assert!(is_old(&all[0], &names.key(&one)) && is_old(&all[2], &all[1].key(&one)));
        assert!(!is_old(&all[2], &all[2].key(&one)) && !is_old(&all[1], &all[2].key(&one)), "it is newer");
        assert!(!is_old(&all[4], &names.key(&other)) && !is_old(&all[4], &all[1].key(&other)));
        assert_eq!(all[2].room_in(&all[2].key(&one)), Some(&*all[2].room(1)));
        let [first, end] = names.all_keys(1);
        assert!(first < names.key(&one) && names.key(&one) < end);
        assert!(!(first..end).contains(&all[1].key(&one)));
        assert_eq!(Flushes::of(Some(&KeyValue { value: "1 x".into(), ..KeyValue::default() })), None);
    }

    #[test]
    fn the_numbers_of_a_version_are_larger_than_those_before_it_and_than_what_was_asked_for() {
        let numbers = |from: &Bytes, revision: i64| {
            let found = KeyValue { value: from.clone(), mod_revision: revision, ..KeyValue::default() };
            Numbers::of(Some(&found)).expect("a number")
        };
        let (least, version) = (1_780_000_000_000_000, 5_000);
        let first = numbers(&Numbers::beyond(least, version), version);
        assert!(first.are_beyond(least, version) && !first.are_beyond(least + 1, version));
        assert!(!Numbers::default().are_beyond(0, version), "there are none yet");
        // They are raised in a version that is to come, and are larger from the next one on.
        let next = numbers(&Numbers::beyond(least + 10_000, version + 30), version + 29);
        assert!(next.first_of(version + 30) > first.first_of(version + 29) + FENCES_PER_VERSION as i64);
        assert_eq!(number_in_row(first.in_row(3), 6_000), first.first_of(6_000) + 3);
        assert_eq!((number_in_row(0, 7), number_in_row(9, 7)), (7 * 1024, 9), "as earlier versions wrote");
        for wrong in ["", "x", "0", "-5"] {
            let found = KeyValue { value: wrong.into(), ..KeyValue::default() };
            assert_eq!(Numbers::of(Some(&found)), None, "{wrong}");
        }
    }

    #[test]
    fn a_batch_may_follow_only_those_before_it() {
        for is_done in [false, true] {
            assert!(ledger(8, is_done) < before(9) && ledger(99, is_done) < before(100));
            assert!(ledger(9, is_done) > before(9) && ledger(10, is_done) > before(9));
        }
    }
}
