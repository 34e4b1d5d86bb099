//! Visits all keys of a database, a few at a time (SCAN) or shard after shard (KEYS), while other clients
//! write. Also picks a key at random.
//!
//! Both lock one shard at a time, and only while they copy its keys: a pattern may be slow. Other clients
//! wait for a thousandth of the keys at most. So both promise the same: a key that is there from the
//! beginning to the end is returned, a key that is absent throughout is not, and a key that comes or goes
//! meanwhile may be either. EXEC and scripts hold all shards, so what they list is one moment.
//!
//! Entries keep their places until their table is laid out anew. So a cursor is a place: the shard, the place
//! in its table, and the layout of the table in which that place is valid. If the layout has changed since,
//! one call visits the whole shard again. So SCAN returns every key that is there from the first call to the
//! last, whatever happens to other keys. It returns some keys twice. Every call makes progress, however often
//! tables grow. Redis reaches the same with a cursor whose bits are counted backwards, but then a table must
//! keep its entries in the order of their hashes.

use std::fmt;
use std::ops::Deref;

use super::store::entry::Entry;
use super::store::table::Table;
use super::transaction::{Transaction, Walk};
use super::{Keyspace, SHARDS_MAX, Shard};
use crate::values::TypeFacts;

const SHARD_BITS: u32 = SHARDS_MAX.trailing_zeros();
/// 28 bits for a place, 14 for a layout and 10 for a shard make 52. Clients that keep numbers as floating
/// point represent 53 bits exactly: one is left to tell cursors of a store from these.
const PLACE_BITS: u32 = 28;
const LAYOUT_BITS: u32 = Cursor::BITS - SHARD_BITS - PLACE_BITS;

/// The position of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    shard: usize,
    place: usize,
    layout: u32,
}

impl Cursor {
    /// How many bits its number has.
    pub const BITS: u32 = 52;

    /// The beginning, and the end.
    pub const START: Cursor = Cursor { shard: 0, place: 0, layout: 0 };

    /// Reads a number that [`number`](Self::number) made. Any other number is a cursor, too, which starts at
    /// some place.
    pub fn from_number(number: u64) -> Cursor {
        let bits = |from: u32, bits: u32| (number >> from) & ((1 << bits) - 1);
        Cursor {
            shard: bits(PLACE_BITS + LAYOUT_BITS, SHARD_BITS) as usize,
            place: bits(0, PLACE_BITS) as usize,
            layout: bits(PLACE_BITS, LAYOUT_BITS) as u32,
        }
    }

    /// The cursor as clients get it; 0 is the start and the end.
    pub fn number(self) -> u64 {
        let shard = (self.shard as u64) << (PLACE_BITS + LAYOUT_BITS);
        shard | u64::from(self.layout) << PLACE_BITS | self.place as u64
    }

    /// The beginning of a shard; `shards` is the number of shards.
    fn at_shard(shard: usize, shards: usize) -> Cursor {
        if shard < shards { Cursor { shard, ..Cursor::START } } else { Cursor::START }
    }
}

/// Copies of keys, one after the other.
#[derive(Debug, Default)]
pub struct Names {
    bytes: Vec<u8>,
    /// Where each key ends.
    ends: Vec<usize>,
}

impl Names {
    /// Adds a copy of a key.
    pub fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    /// Removes all keys, and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// The keys in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |end| &self.bytes[std::mem::replace(&mut start, *end)..*end])
    }
}

/// How much work one call of a scan does.
#[derive(Clone, Copy, Debug)]
pub struct ScanLimit {
    /// About how many keys the call looks at.
    pub keys: usize,
}

impl ScanLimit {
    /// The most places to look at for each key: nearly empty tables must not make a call long. Redis: ten.
    const PLACES_PER_KEY: usize = 10;
}

/// Finds the keys that no client sees.
pub(super) struct Hidden(Box<IsHidden>);

type IsHidden = dyn Fn(&[u8]) -> bool + Send + Sync;

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hidden").finish_non_exhaustive()
    }
}

impl Keyspace {
    /// Hides some keys from clients: they are neither listed nor counted. Only the first call counts.
    pub fn hide(&self, is_hidden: impl Fn(&[u8]) -> bool + Send + Sync + 'static) {
        let _ = self.hidden.set(Hidden(Box::new(is_hidden)));
    }

    /// Whether a key is hidden from clients.
    pub fn hides(&self, key: &[u8]) -> bool {
        self.hidden.get().is_some_and(|Hidden(is_hidden)| is_hidden(key))
    }
}

impl<'a, T: Deref<Target = Transaction<'a>>> Walk<T> {
    /// Whether clients see an entry.
    fn shows(&self, entry: &Entry) -> bool {
        !self.has_expired(entry) && !self.keyspace().hides(entry.key())
    }

    /// How many keys of the database clients do not see.
    pub fn hidden_keys(&self) -> usize {
        let hidden = |shard: &Shard| {
            let entries = shard.table(self.database()).into_iter().flat_map(Table::entries);
            entries.filter(|entry| self.keyspace().hides(entry.key())).count()
        };
        match self.keyspace().hidden.get() {
            Some(_) => self.keyspace().shard_numbers().map(|number| self.visit(number, hidden)).sum(),
            None => 0,
        }
    }

    /// Calls `see` for each key of the database once. No shard is locked while `see` runs, unless the
    /// transaction holds all: then these are the keys of one moment.
    pub fn for_each_key(&self, mut see: impl FnMut(&[u8])) {
        let mut copies = Names::default();
        for number in self.keyspace().shard_numbers() {
            copies.clear();
            self.visit(number, |shard| {
                let entries = shard.table(self.database()).into_iter().flat_map(Table::entries);
                let there = entries.filter(|entry| self.shows(entry));
                there.for_each(|entry| copies.push(entry.key()));
            });
            copies.iter().for_each(&mut see);
        }
    }

    /// Calls `see` with keys and their types from `cursor` on, until the limit is reached. Returns the cursor
    /// for the next call. No shard is locked while `see` runs, as in [`for_each_key`](Self::for_each_key).
    pub fn scan(
        &self,
        cursor: Cursor,
        limit: ScanLimit,
        mut see: impl FnMut(&[u8], &'static TypeFacts),
    ) -> Cursor {
        let shards = self.keyspace().shards.len();
        let mut cursor = Cursor { shard: cursor.shard % shards, ..cursor };
        let (mut keys_left, mut places_left) =
            (limit.keys.max(1), limit.keys.max(1).saturating_mul(ScanLimit::PLACES_PER_KEY));
        let (mut copies, mut types) = (Names::default(), Vec::new());
        loop {
            let next = self.visit(cursor.shard, |shard| {
                let table = shard.table(self.database()).filter(|table| table.len() > 0)?;
                let layout = table.layout() & ((1 << LAYOUT_BITS) - 1);
                let is_same_layout = cursor.place == 0 || cursor.layout == layout;
                let mut place = if is_same_layout { cursor.place } else { 0 };
                while place < table.places() && (!is_same_layout || keys_left > 0 && places_left > 0) {
                    if let Some(entry) = table.at(place).filter(|entry| self.shows(entry)) {
                        copies.push(entry.key());
                        types.push(self.value_of(entry).facts);
                        keys_left = keys_left.saturating_sub(1);
                    }
                    places_left = places_left.saturating_sub(1);
                    place += 1;
                }
                let is_done = place >= table.places();
                (!is_done).then_some(Cursor { shard: cursor.shard, place, layout })
            });
            copies.iter().zip(types.drain(..)).for_each(|(key, facts)| see(key, facts));
            copies.clear();
            cursor = next.unwrap_or_else(|| Cursor::at_shard(cursor.shard + 1, shards));
            if cursor == Cursor::START || keys_left == 0 || places_left == 0 {
                return cursor;
            }
        }
    }

    /// A random key of the database. All keys are about equally likely.
    pub fn random_key(&self) -> Option<Vec<u8>> {
        let any_shard = || fastrand::usize(self.keyspace().shard_numbers());
        let places = |shard: usize| self.visit(shard, |shard| self.places_in(shard));
        let mut places_max = (0..SIZES_SEEN).map(|_| places(any_shard())).max().unwrap_or(0);
        // A shard with many keys has many places, and one with few is often drawn in vain. So the place is
        // drawn as if all shards had as many: otherwise the keys of small shards would be favoured.
        let drawn = (0..SHARD_DRAWS_MAX).find_map(|_| {
            self.visit(any_shard(), |shard| {
                places_max = places_max.max(self.places_in(shard));
                let place = if places_max > 0 { fastrand::usize(..places_max) } else { return None };
                let table = shard.table(self.database()).filter(|table| place < table.places())?;
                let found = table.at(place).filter(|entry| self.shows(entry));
                found.map(|entry| entry.key().to_vec())
            })
        });
        drawn.or_else(|| self.random_key_of_few())
    }

    fn places_in(&self, shard: &Shard) -> usize {
        shard.table(self.database()).map_or(0, Table::places)
    }

    /// A random key of a database that has few, or of which most have expired: counts the keys of all shards.
    fn random_key_of_few(&self) -> Option<Vec<u8>> {
        let shards = self.keyspace().shard_numbers();
        let keys_in = |shard: &Shard| shard.table(self.database()).map_or(0, |table| table.size().keys);
        let counts: Vec<usize> = shards.clone().map(|shard| self.visit(shard, keys_in)).collect();
        let all: usize = counts.iter().sum();
        let mut number = if all > 0 { fastrand::usize(..all) } else { return None };
        let has_it = |count: &usize| {
            let is_here = number < *count;
            number = number.saturating_sub(*count);
            is_here
        };
        let look =
            |shard: usize| self.visit(shard, |shard| self.random_key_of(shard.table(self.database())?));
        counts.iter().position(has_it).and_then(look).or_else(|| shards.clone().find_map(look))
    }

    fn random_key_of(&self, table: &Table) -> Option<Vec<u8>> {
        let places = table.places();
        let at = |place: usize| table.at(place).filter(|entry| self.shows(entry));
        let drawn = (0..DRAWS_MAX.min(4 * places)).find_map(|_| at(fastrand::usize(..places)));
        let found = drawn.or_else(|| (0..places).find_map(at));
        found.map(|entry| entry.key().to_vec())
    }
}

/// How many random places of a shard are drawn before the search visits all of them.
const DRAWS_MAX: usize = 2048;
/// How many random shards are asked for their number of places: the largest of so many is large enough.
const SIZES_SEEN: usize = 16;
/// How many random shards are drawn before the search counts the keys of all. With some thousand keys, one
/// draw in ten finds one.
const SHARD_DRAWS_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::*;
    use crate::keyspace::{Expiry, Keyspace};

    fn put(keyspace: &Keyspace, numbers: std::ops::Range<usize>) {
        for number in numbers {
            let key = number.to_string();
            keyspace.begin(0, key.as_bytes()).unwrap().put(key.as_bytes(), b"v", Expiry::Never);
        }
    }

    /// Scans to the end, calling `between` before each call. Returns the keys and the number of calls.
    fn scan_all(keyspace: &Keyspace, keys: usize, mut between: impl FnMut()) -> (HashSet<Vec<u8>>, usize) {
        let (mut cursor, mut found, mut calls) = (Cursor::START, HashSet::new(), 0);
        loop {
            between();
            let tx = keyspace.begin_none(0);
            cursor = tx.walk().unwrap().scan(cursor, ScanLimit { keys }, |key, _| {
                found.insert(key.to_vec());
            });
            calls += 1;
            if cursor == Cursor::START {
                return (found, calls);
            }
            assert_eq!(Cursor::from_number(cursor.number()), cursor);
        }
    }

    #[test]
    fn every_key_is_drawn_about_equally_often() {
        const KEYS: usize = 3000;
        let keyspace = Keyspace::alone(1);
        put(&keyspace, 0..KEYS);
        let tx = keyspace.begin_none(0);
        let mut drawn = vec![0_u32; KEYS];
        let draws = 20 * KEYS;
        for _ in 0..draws {
            let key = tx.walk().unwrap().random_key().expect("a key");
            let number: usize = std::str::from_utf8(&key).unwrap().parse().unwrap();
            drawn[number] += 1;
        }
        let expected = draws as f64 / KEYS as f64;
        let deviation = |drawn: &u32| (f64::from(*drawn) - expected).powi(2) / expected;
        // 1 if all are equally likely. If each shard is, it is 8.
        let chi_squared = drawn.iter().map(deviation).sum::<f64>() / (KEYS - 1) as f64;
        assert!(chi_squared < 2.0, "{chi_squared}");
    }

    #[test]
    fn of_few_keys_each_is_drawn_and_of_none_none() {
        let keyspace = Keyspace::alone(1);
        let tx = keyspace.begin_none(0);
        assert_eq!(tx.walk().unwrap().random_key(), None);
        put(&keyspace, 0..3);
        let mut drawn = HashMap::<Vec<u8>, u32>::new();
        (0..300).for_each(|_| *drawn.entry(tx.walk().unwrap().random_key().unwrap()).or_default() += 1);
        assert!(drawn.len() == 3 && drawn.values().all(|times| *times > 40), "{drawn:?}");
    }

    #[test]
    fn a_scan_returns_every_key() {
        let keyspace = Keyspace::alone(1);
        assert_eq!(scan_all(&keyspace, 10, || ()), (HashSet::new(), 1));
        put(&keyspace, 0..9);
        let (found, calls) = scan_all(&keyspace, 10, || ());
        assert_eq!((found.len(), calls), (9, 1), "a few keys come at once");
        put(&keyspace, 0..20_000);
        let (found, calls) = scan_all(&keyspace, 100, || ());
        assert_eq!(found.len(), 20_000);
        assert!((150..=500).contains(&calls), "{calls} calls for 20,000 keys by 100");
    }

    #[test]
    fn a_scan_returns_keys_that_stay_while_tables_grow_and_shrink() {
        let keyspace = Keyspace::alone(1);
        put(&keyspace, 0..5000);
        let mut next = 5000;
        let (found, _) = scan_all(&keyspace, 50, || {
            put(&keyspace, next..next + 500);
            for number in next - 400..next {
                let key = number.to_string();
                if number >= 5000 {
                    keyspace.begin(0, key.as_bytes()).unwrap().remove(key.as_bytes());
                }
            }
            next += 500;
        });
        for number in 0..5000 {
            assert!(found.contains(number.to_string().as_bytes()), "{number} was there all the time");
        }
    }

    /// Removes all keys, as another client, when the first one is seen. Returns what was seen by then and
    /// afterwards.
    fn seen_while_all_are_removed(keyspace: &Keyspace, list: impl FnOnce(&mut dyn FnMut(&[u8]))) -> usize {
        let mut seen = 0;
        list(&mut |_| {
            if seen == 0 {
                keyspace.begin_all(0).expect("no shard is locked").flush_database();
            }
            seen += 1;
        });
        seen
    }

    #[test]
    fn other_clients_have_all_shards_while_keys_are_looked_at() {
        let keyspace = Keyspace::alone(1);
        let keys = 100 * keyspace.shards.len();
        let in_a_shard = 1..keys / 100;
        put(&keyspace, 0..keys);
        let seen = seen_while_all_are_removed(&keyspace, |see| {
            keyspace.begin_none(0).walk().unwrap().for_each_key(see);
        });
        assert!(in_a_shard.contains(&seen), "{seen} keys were copied at once");
        put(&keyspace, 0..keys);
        let seen = seen_while_all_are_removed(&keyspace, |see| {
            let tx = keyspace.begin_none(0);
            tx.walk().unwrap().scan(Cursor::START, ScanLimit { keys }, |key, _| see(key));
        });
        assert!(in_a_shard.contains(&seen), "{seen} keys were copied at once");
    }

    #[test]
    fn a_list_of_all_keys_has_those_that_stay_once_while_others_come_and_go() {
        let keyspace = Keyspace::alone(1);
        put(&keyspace, 0..5000);
        let (mut found, mut next) = (Vec::new(), 5000);
        keyspace.begin_none(0).walk().unwrap().for_each_key(|key| {
            found.push(key.to_vec());
            if found.len() % 100 == 0 {
                put(&keyspace, next..next + 500);
                for number in (next - 400..next).filter(|number| *number >= 5000) {
                    let key = number.to_string();
                    keyspace.begin(0, key.as_bytes()).unwrap().remove(key.as_bytes());
                }
                next += 500;
            }
        });
        let all = found.len();
        let found: HashSet<Vec<u8>> = found.into_iter().collect();
        assert_eq!(found.len(), all, "some key was returned twice");
        assert!((0..5000).all(|number| found.contains(number.to_string().as_bytes())));
    }

    #[test]
    fn a_transaction_on_everything_lists_one_moment() {
        let keyspace = Keyspace::alone(1);
        put(&keyspace, 0..5000);
        let all = keyspace.begin_all(0).unwrap();
        let mut seen = 0;
        all.walk().unwrap().for_each_key(|key| {
            seen += 1;
            assert!(!keyspace.is_free(keyspace.shard_of_key(key)));
        });
        assert_eq!(seen, 5000);
    }

    #[test]
    fn any_number_is_a_cursor() {
        let keyspace = Keyspace::alone(1);
        put(&keyspace, 0..1000);
        for number in [0, 1, u64::MAX, 1 << 53, 12_345_678_901_234_567] {
            keyspace.begin_none(0).walk().unwrap().scan(
                Cursor::from_number(number),
                ScanLimit { keys: 10 },
                |_, _| (),
            );
        }
    }

    #[test]
    fn random_draws_reach_every_key() {
        let keyspace = Keyspace::alone(1);
        assert_eq!(keyspace.begin_none(0).walk().unwrap().random_key(), None);
        put(&keyspace, 0..10);
        let mut found: HashMap<Vec<u8>, u32> = HashMap::new();
        for _ in 0..10_000 {
            *found.entry(keyspace.begin_none(0).walk().unwrap().random_key().unwrap()).or_default() += 1;
        }
        assert_eq!(found.len(), 10);
        assert!(found.values().all(|times| *times > 200), "each is about as likely: {found:?}");
    }
}
