//! Copies the state of all databases at one moment, piece by piece, while clients go on.
//!
//! Redis forks, and the system copies each page that changes. Keyfast has threads, so it copies entry by
//! entry:
//!
//! - A snapshot begins while all shards are locked. Under these locks only the epoch of every table changes.
//!   From then on the snapshot waits for all entries of the old epoch.
//! - A command that replaces, changes or deletes such an entry first preserves it
//!   ([`copies`](super::store::copies)). New entries have the table's epoch, so the snapshot does not want
//!   them.
//! - The snapshot's writer locks one shard after the other. From each it copies a slice of the entries that
//!   the snapshot still waits for, and gives them the new epoch. At the end of a table, all its entries have
//!   one epoch again. So no cleanup is needed, and without a snapshot a change costs one comparison.
//!
//! A flushed table is kept whole until the snapshot has copied it. A table that SWAPDB moves knows the number
//! that its database had when the snapshot began.

use std::ops::DerefMut;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::store::copies::{Copies, Position};
use super::store::entry::Entry;
use super::store::table::Table;
use super::transaction::{Everything, Transaction, Walk};
use crate::keyspace::Keyspace;
use crate::values::{Content, Value};

impl Keyspace {
    /// Bytes that are in use only because a snapshot is running.
    pub fn preserved_bytes(&self) -> usize {
        self.preserved_bytes.load(Ordering::Relaxed)
    }
}

/// A key as it is in a snapshot.
#[derive(Clone, Copy, Debug)]
pub struct SavedKey<'a> {
    /// The number of its database.
    pub database: usize,
    /// The key's name.
    pub key: &'a [u8],
    /// The value that the key had when the snapshot began.
    pub value: Value<'a>,
    /// When it expires, in milliseconds since 1970.
    pub expires_at_ms: Option<u64>,
    /// For how long it was not used, if the snapshot has that.
    pub idle: Option<Duration>,
    /// How often it is used, if the snapshot has that instead.
    pub frequency: Option<u8>,
    /// The fencing number, if it is a lock that has one.
    pub fence: Option<u64>,
}

/// What a snapshot contains about the use of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Nothing about their use.
    Omitted,
    /// For how long each key was not used.
    Idle,
    /// How often each key is used.
    Frequency,
}

/// A running snapshot.
#[derive(Debug)]
pub struct Snapshot {
    /// For each database with keys: its number, its keys, and how many of them have an expiry.
    pub sizes: Vec<(usize, usize, usize)>,
    /// Whether fields of some hash have an expiry.
    pub has_field_expiries: bool,
    /// How often keys had been written or deleted when the snapshot began.
    pub changes: u64,
    /// How often a command had emptied all databases at once by then.
    pub flushes: u64,
    shard: usize,
    place: Position,
}

impl Snapshot {
    /// How many keys the snapshot has.
    pub fn keys(&self) -> usize {
        self.sizes.iter().map(|(_, keys, _)| keys).sum()
    }
}

/// A piece of a snapshot.
#[derive(Debug, Default)]
pub struct Slice {
    copies: Copies,
    /// Tables that have left their databases.
    tables: Vec<Table>,
}

impl Slice {
    /// An empty piece, with room for at most `entries_max` entries and `bytes_max` bytes.
    #[cfg(test)]
    pub(crate) fn with_limits(entries_max: usize, bytes_max: usize) -> Slice {
        Slice { copies: Copies::with_limits(entries_max, bytes_max), tables: Vec::new() }
    }

    fn is_empty(&self) -> bool {
        self.copies.is_empty() && self.tables.is_empty()
    }

    fn clear(&mut self) {
        self.copies.clear();
        self.tables.clear();
    }

    /// Calls `visit` for every key, until it fails.
    ///
    /// # Errors
    ///
    /// The error of `visit`.
    pub fn each<E>(
        &self,
        keyspace: &Keyspace,
        use_kept: Use,
        mut visit: impl FnMut(&SavedKey<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let access = keyspace.access();
        let saved = |database: u16, key, value, expires_at_ms, stamp| SavedKey {
            database: usize::from(database),
            key,
            value,
            expires_at_ms,
            idle: (use_kept == Use::Idle).then(|| access.idle(stamp)),
            frequency: (use_kept == Use::Frequency).then(|| access.frequency(stamp)),
            fence: None,
        };
        for copied in self.copies.copied() {
            let value = keyspace.value_of_kind(copied.kind, Content::Bytes(copied.value));
            visit(&saved(copied.database, copied.key, value, copied.expires_at_ms, copied.stamp))?;
        }
        for (database, entry) in self.copies.entries().chain(self.tables.iter().flat_map(Table::awaited)) {
            let value = keyspace.value_of(entry);
            let saved = saved(database, entry.key(), value, entry.expires_at_ms(), entry.stamp());
            visit(&SavedKey { fence: entry.fence(), ..saved })?;
        }
        Ok(())
    }
}

impl<'a, T: DerefMut<Target = Transaction<'a>>> Everything<T> {
    /// Begins a snapshot of this moment; returns `None` while another snapshot waits for entries. The caller
    /// must take every slice of it.
    pub fn begin_snapshot(&mut self) -> Option<Snapshot> {
        if self.keyspace().has_snapshot.swap(true, Ordering::Relaxed) {
            return None;
        }
        let has_field_expiries = self.database_sizes().any(|size| size.field_expiring > 0);
        let sizes = self.database_sizes().enumerate();
        let sizes = sizes.filter(|(_, size)| size.keys > 0);
        let sizes = sizes.map(|(database, size)| (database, size.keys, size.expiring)).collect();
        let changes = self.changes();
        let preserved_bytes = &self.keyspace().preserved_bytes;
        self.shards_mut().iter_mut().for_each(|(_, shard)| shard.begin_snapshot(preserved_bytes));
        let flushes = self.keyspace().flushes();
        Some(Snapshot { sizes, has_field_expiries, changes, flushes, shard: 0, place: Position::default() })
    }

    /// Writes a key of a snapshot; returns whether it was absent. Changes no counter, and is reported only to
    /// the log.
    pub fn load(&mut self, saved: &SavedKey<'_>) -> bool {
        let keyspace = self.keyspace();
        let access = keyspace.access();
        let (spot, shard) = self.shard_mut(saved.key);
        let table = shard.table_mut(saved.database);
        if table.find(spot, saved.key).is_some() {
            return false;
        }
        let stamp = saved.idle.and_then(|idle| access.stamp_of_idle(idle));
        let stamp = stamp.or_else(|| saved.frequency.and_then(|times| access.stamp_of_frequency(times)));
        let mut entry = Entry::of(saved.key, saved.value, saved.expires_at_ms);
        if let Some(fence) = saved.fence {
            entry.set_fence(fence);
        }
        entry.set_stamp(stamp.unwrap_or_else(|| access.first_now()));
        table.insert(spot, entry, |entry| keyspace.hash(entry.key()));
        self.note_loaded(saved.database, saved.key);
        true
    }
}

impl<'a, T: DerefMut<Target = Transaction<'a>>> Walk<T> {
    /// Replaces the contents of `slice` by the next piece of a snapshot; returns whether there was one.
    pub fn take_slice(&mut self, snapshot: &mut Snapshot, slice: &mut Slice) -> bool {
        slice.clear();
        let shards = self.keyspace().shards.len();
        while snapshot.shard < shards {
            if !self.visit_mut(snapshot.shard, |shard| {
                shard.give_awaited(&mut snapshot.place, &mut slice.copies, &mut slice.tables)
            }) {
                return true;
            }
            snapshot.shard += 1;
            snapshot.place = Position::default();
            if snapshot.shard == shards {
                self.keyspace().has_snapshot.store(false, Ordering::Relaxed);
            }
            if slice.copies.is_full() {
                return true;
            }
        }
        !slice.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::convert::Infallible;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::keyspace::Expiry;

    const DATABASES: usize = 3;
    const LATER_MS: u64 = 1 << 50;

    type Model = BTreeMap<(usize, Vec<u8>), (Vec<u8>, Option<u64>)>;

    /// The steps of clients, and between them those of the snapshot's writer.
    #[derive(Clone, Debug)]
    enum Step {
        Put(usize, u8, Vec<u8>, Option<u64>),
        InsertIfAbsent(usize, u8, Vec<u8>),
        Remove(usize, u8),
        Grow(usize, u8, usize),
        SetExpiry(usize, u8, Option<u64>),
        Copy(usize, u8, usize, u8),
        Carry(usize, u8, usize, u8),
        FlushDatabase(usize),
        FlushAll,
        Swap(usize, usize),
        /// Writes many keys, so that tables are laid out anew.
        Fill(usize, u8),
        TakeSlice,
        /// Takes all remaining slices, and begins another snapshot.
        BeginAnew,
    }

    fn step() -> impl Strategy<Value = Step> {
        let (database, key) = (0..DATABASES, 0..30_u8);
        let value = || prop_oneof![9 => vec(any::<u8>(), 0..4), 1 => Just(vec![b'x'; 70_000])];
        let expiry = || proptest::option::of(LATER_MS..LATER_MS + 9);
        prop_oneof![
            4 => (database.clone(), key.clone(), value(), expiry())
                .prop_map(|(d, k, v, e)| Step::Put(d, k, v, e)),
            2 => (database.clone(), key.clone(), value()).prop_map(|(d, k, v)| Step::InsertIfAbsent(d, k, v)),
            3 => (database.clone(), key.clone()).prop_map(|(d, k)| Step::Remove(d, k)),
            2 => (database.clone(), key.clone(), prop_oneof![9 => 0..6_usize, 1 => Just(66_000)])
                .prop_map(|(d, k, bytes)| Step::Grow(d, k, bytes)),
            2 => (database.clone(), key.clone(), expiry()).prop_map(|(d, k, e)| Step::SetExpiry(d, k, e)),
            1 => (database.clone(), key.clone(), database.clone(), key.clone())
                .prop_map(|(d, k, to, target)| Step::Copy(d, k, to, target)),
            1 => (database.clone(), key.clone(), database.clone(), key.clone())
                .prop_map(|(d, k, to, target)| Step::Carry(d, k, to, target)),
            1 => database.clone().prop_map(Step::FlushDatabase),
            1 => Just(Step::FlushAll),
            1 => (database.clone(), database.clone()).prop_map(|(one, other)| Step::Swap(one, other)),
            1 => (database, any::<u8>()).prop_map(|(d, seed)| Step::Fill(d, seed)),
            6 => Just(Step::TakeSlice),
            2 => Just(Step::BeginAnew),
        ]
    }

    /// All keys have one shard, so that its tables are large enough to be cut into slices.
    fn keys_of_one_shard(keyspace: &Keyspace, count: usize) -> Vec<Vec<u8>> {
        let shard_of = |key: &[u8]| keyspace.shard_of(keyspace.hash(key));
        let keys = (0_u64..).map(|number| number.to_string().into_bytes());
        keys.filter(|key| shard_of(key) == 7).take(count).collect()
    }

    /// Applies a step to the data and to its model.
    fn apply(step: Step, keyspace: &Keyspace, keys: &[Vec<u8>], model: &mut Model) {
        let mut tx = keyspace.begin_all(0).unwrap();
        let at = |database: usize, key: u8| (database, keys[usize::from(key)].clone());
        match step {
            Step::Put(database, key, value, expires_at_ms) => {
                let at = at(database, key);
                tx.select(database);
                tx.put(&at.1, &value, expires_at_ms.map_or(Expiry::Never, Expiry::At));
                model.insert(at, (value, expires_at_ms));
            }
            Step::InsertIfAbsent(database, key, value) => {
                let at = at(database, key);
                tx.select(database);
                tx.insert_if_absent(&at.1, &value, Expiry::Never);
                model.entry(at).or_insert((value, None));
            }
            Step::Remove(database, key) => {
                tx.select(database);
                assert_eq!(tx.remove(&at(database, key).1), model.remove(&at(database, key)).is_some());
            }
            Step::Grow(database, key, bytes) => {
                let at = at(database, key);
                tx.select(database);
                tx.change_part(&at.1, bytes, |part| part.bytes_mut(0..part.value().len()).fill(b'g'))
                    .unwrap();
                let (value, _) = model.entry(at).or_default();
                *value = vec![b'g'; bytes.max(value.len())];
            }
            Step::SetExpiry(database, key, expires_at_ms) => {
                let at = at(database, key);
                tx.select(database);
                tx.set_expiry(&at.1, expires_at_ms);
                model.entry(at).and_modify(|(_, expiry)| *expiry = expires_at_ms);
            }
            Step::Copy(database, key, to, target) | Step::Carry(database, key, to, target) => {
                let (source, target) = (at(database, key), at(to, target));
                let Some(found) = model.get(&source).cloned() else { return };
                if source == target {
                    return;
                }
                tx.select(database);
                if matches!(step, Step::Carry(..)) {
                    tx.carry(&source.1, to, &target.1);
                    model.remove(&source);
                } else {
                    tx.copy(&source.1, to, &target.1);
                }
                model.insert(target, found);
            }
            Step::FlushDatabase(database) => {
                tx.select(database);
                tx.flush_database();
                model.retain(|(of, _), _| *of != database);
            }
            Step::FlushAll => {
                tx.flush_all();
                model.clear();
            }
            Step::Swap(one, other) => {
                tx.swap_databases(one, other);
                let swapped = |database| match database {
                    _ if database == one => other,
                    _ if database == other => one,
                    _ => database,
                };
                *model = std::mem::take(model)
                    .into_iter()
                    .map(|((database, key), found)| ((swapped(database), key), found))
                    .collect();
            }
            Step::Fill(database, seed) => {
                tx.select(database);
                for key in &keys[usize::from(seed) % 30..] {
                    tx.put(key, &[seed], Expiry::Never);
                    model.insert((database, key.clone()), (vec![seed], None));
                }
            }
            Step::TakeSlice | Step::BeginAnew => {}
        }
    }

    /// A snapshot, and the keys that it has returned so far.
    struct Written {
        snapshot: Snapshot,
        slice: Slice,
        found: Model,
    }

    impl Written {
        fn begin(keyspace: &Keyspace) -> Written {
            let snapshot = keyspace.begin_all(0).unwrap().begin_snapshot().expect("no other snapshot");
            Written { snapshot, slice: Slice::with_limits(3, 1000), found: Model::new() }
        }

        fn take_slice(&mut self, keyspace: &Keyspace) -> bool {
            let Written { snapshot, slice, found } = self;
            let is_there = keyspace.begin_walk().take_slice(snapshot, slice);
            let add = |saved: &SavedKey<'_>| {
                let at = (saved.database, saved.key.to_vec());
                let twice =
                    found.insert(at, (saved.value.content.text().unwrap().to_vec(), saved.expires_at_ms));
                assert!(twice.is_none(), "{:?} is in it twice", saved.key.escape_ascii());
                Ok::<_, Infallible>(())
            };
            slice.each(keyspace, Use::Omitted, add).unwrap();
            is_there
        }

        fn finish(mut self, keyspace: &Keyspace) -> Model {
            while self.take_slice(keyspace) {}
            self.found
        }
    }

    fn state(keyspace: &Keyspace) -> Model {
        Written::begin(keyspace).finish(keyspace)
    }

    proptest! {
        // Each step locks all shards.
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn a_snapshot_is_the_state_of_its_moment_while_clients_go_on(steps in vec(step(), 1..120)) {
            let keyspace = Keyspace::alone(DATABASES);
            let keys = keys_of_one_shard(&keyspace, 200);
            let mut model = Model::new();
            let (mut expected, mut written) = (model.clone(), Written::begin(&keyspace));
            for step in steps {
                match step {
                    Step::TakeSlice => drop(written.take_slice(&keyspace)),
                    Step::BeginAnew => {
                        prop_assert_eq!(&written.finish(&keyspace), &expected);
                        expected.clone_from(&model);
                        written = Written::begin(&keyspace);
                    }
                    step => apply(step, &keyspace, &keys, &mut model),
                }
            }
            prop_assert_eq!(&written.finish(&keyspace), &expected);
            prop_assert_eq!(&state(&keyspace), &model);
        }
    }

    #[test]
    fn only_one_snapshot_runs_at_a_time() {
        let keyspace = Keyspace::alone(1);
        let first = Written::begin(&keyspace);
        assert!(keyspace.begin_all(0).unwrap().begin_snapshot().is_none());
        first.finish(&keyspace);
        assert!(keyspace.begin_all(0).unwrap().begin_snapshot().is_some());
    }

    #[test]
    fn preserved_bytes_count_until_they_are_written() {
        let keyspace = Keyspace::alone(1);
        let put = |value: &[u8]| keyspace.begin(0, b"k").unwrap().put(b"k", value, Expiry::Never);
        let large = vec![b'x'; 10 << 20];
        put(&large);
        let written = Written::begin(&keyspace);
        put(b"other");
        // Other tests may have snapshots of their own, but smaller ones.
        assert!(keyspace.preserved_bytes() >= large.len());
        put(&large);
        assert!(keyspace.preserved_bytes() < 2 * large.len(), "values written later are not preserved");
        assert_eq!(written.finish(&keyspace)[&(0, b"k".to_vec())].0, large);
        assert!(keyspace.preserved_bytes() < large.len());
    }

    #[test]
    fn saved_keys_can_be_loaded() {
        let keyspace = Keyspace::alone(2);
        keyspace.access().advance(Duration::from_secs(9000));
        let facts = keyspace.types[0];
        let saved = |database, idle_s| SavedKey {
            database,
            key: b"k",
            value: Value { facts, content: Content::Bytes(b"v") },
            expires_at_ms: Some(LATER_MS),
            idle: Some(Duration::from_secs(idle_s)),
            frequency: None,
            fence: None,
        };
        let mut tx = keyspace.begin_all(0).unwrap();
        assert!(tx.load(&saved(0, 5)) && tx.load(&saved(1, 6)));
        assert!(!tx.load(&saved(1, 7)), "a file must not have a key twice");
        assert_eq!((tx.facts(b"k").unwrap().idle.as_secs(), tx.changes()), (5, 0));
        let (mut snapshot, mut slice) = (tx.begin_snapshot().unwrap(), Slice::default());
        assert_eq!((snapshot.keys(), snapshot.sizes.clone()), (2, vec![(0, 1, 1), (1, 1, 1)]));
        drop(tx);
        let (mut found, mut walk) = (0, keyspace.begin_walk());
        while walk.take_slice(&mut snapshot, &mut slice) {
            let compare = |key: &SavedKey<'_>| {
                found += 1;
                let expected = saved(key.database, 5 + key.database as u64);
                assert_eq!((key.key, key.value.content.bytes()), (expected.key, Some(&b"v"[..])));
                assert_eq!((key.expires_at_ms, key.idle), (expected.expires_at_ms, expected.idle));
                Ok::<_, Infallible>(())
            };
            slice.each(&keyspace, Use::Idle, compare).unwrap();
        }
        assert_eq!(found, 2);
    }
}
