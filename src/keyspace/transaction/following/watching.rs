//! The keys that a client watches until its next transaction: WATCH.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hashbrown::HashTable;

use crate::keyspace::Keyspace;
use crate::keyspace::transaction::Transaction;
use crate::sync::AtomicBool;

/// Whether a watched key has changed. A client and the keys that it watches share it.
#[derive(Debug, Default)]
pub(crate) struct Mark(AtomicBool);

impl Mark {
    /// Notes that a watched key has changed.
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether a watched key has changed.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The keys that one client watches.
#[derive(Debug, Default)]
pub struct Watching {
    /// Made for the first key.
    mark: Option<Arc<Mark>>,
    /// When the client began to watch each, in milliseconds since 1970, by database and key.
    keys: BTreeMap<(usize, Box<[u8]>), u64>,
    /// The lengths of these keys, in bytes.
    keys_bytes: usize,
    /// Keys that the client no longer watches, but a shard still lists, because a script held the shard.
    former: Vec<(usize, Box<[u8]>, Arc<Mark>)>,
}

impl Watching {
    /// Whether the client watches nothing.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether the client watches nothing, and no shard lists it.
    pub fn is_forgotten(&self) -> bool {
        self.keys.is_empty() && self.former.is_empty()
    }

    /// Bytes of memory that watching takes. The key is copied for the client and for its shard.
    pub fn bytes(&self) -> usize {
        const KEY_BYTES: usize = 256;
        2 * self.keys_bytes + self.keys.len() * KEY_BYTES
    }

    /// The watched keys, of all databases.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.keys().map(|(_, key)| &**key)
    }

    /// Whether a key is watched.
    pub fn has(&self, database: usize, key: &[u8]) -> bool {
        !self.is_empty() && self.keys.contains_key(&(database, Box::from(key)))
    }

    /// Whether a change of one of the keys has been noted.
    pub fn has_changed(&self) -> bool {
        self.mark.as_ref().is_some_and(|mark| mark.is_set())
    }
}

impl Transaction<'_> {
    /// Watches a key of the current database from now on.
    pub fn watch(&mut self, watching: &mut Watching, key: &[u8]) {
        let database = self.database();
        let had_expired = self.is_expired(key);
        let Entry::Vacant(new) = watching.keys.entry((database, key.into())) else { return };
        new.insert(self.now_ms());
        watching.keys_bytes += key.len();
        let keyspace = self.keyspace();
        let (spot, shard) = self.shard_mut(key);
        let mark = watching.mark.get_or_insert_default();
        shard.side_tables_mut().watched.add(spot.hash, database, key, mark, had_expired);
        keyspace.followers.interest.add_watched();
    }

    /// Whether a watched key has changed, or has expired, or a field of it has. The expiry may not have been
    /// noted yet. The transaction must hold the keys.
    pub fn is_overtaken(&mut self, watching: &Watching) -> bool {
        let current = self.database();
        let has_expired = watching.keys.iter().any(|((database, key), since_ms)| {
            self.select(*database);
            self.is_expired(key) && !self.had_expired(watching, key)
                || self.has_lost_fields_since(key, *since_ms)
        });
        self.select(current);
        has_expired || watching.has_changed()
    }

    /// Whether a watched key had expired when the client began to watch it, or was expired when a database
    /// with it moved here.
    fn had_expired(&self, watching: &Watching, key: &[u8]) -> bool {
        let (spot, shard) = self.shard(key);
        let watched = watching.mark.as_ref().zip(shard.side_tables());
        watched.is_some_and(|(mark, side_tables)| {
            side_tables.watched.had_expired(spot.hash, self.database(), key, mark)
        })
    }

    /// Ends the watching. The transaction must hold the keys.
    pub fn unwatch(&mut self, watching: &mut Watching) {
        let keyspace = self.keyspace();
        let Some(mark) = watching.mark.take() else { return };
        watching.keys_bytes = 0;
        for (database, key) in std::mem::take(&mut watching.keys).into_keys() {
            let (spot, shard) = self.shard_mut(&key);
            shard.side_tables_mut().watched.remove(spot.hash, database, &key, &mark);
            keyspace.followers.interest.remove_watched();
        }
    }
}

impl Keyspace {
    /// Ends the watching, for a caller that holds nothing. If another thread holds a shard for long, its list
    /// stays as it is until the next call.
    pub fn unwatch(&self, watching: &mut Watching) {
        if let Some(mark) = watching.mark.take() {
            let keys = std::mem::take(&mut watching.keys).into_keys();
            watching.keys_bytes = 0;
            watching.former.extend(keys.map(|(database, key)| (database, key, Arc::clone(&mark))));
        }
        while let Some((database, key, mark)) = watching.former.pop() {
            let hash = self.hash(&key);
            let Some(mut shard) = self.lock_soon(self.shard_of(hash)) else {
                return watching.former.push((database, key, mark));
            };
            shard.side_tables_mut().watched.remove(hash, database, &key, &mark);
            self.followers.interest.remove_watched();
        }
    }
}

/// The watched keys of one shard, with the clients that watch them.
#[derive(Debug, Default)]
pub(in crate::keyspace) struct WatchedKeys(HashTable<WatchedKey>);

#[derive(Debug)]
struct WatchedKey {
    hash: u64,
    database: usize,
    key: Box<[u8]>,
    watchers: Vec<Watcher>,
}

/// The state of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::keyspace) enum Presence {
    /// There is no entry.
    Absent,
    /// There is an expired entry.
    Expired,
    /// There is an entry that has not expired.
    There,
}

#[derive(Debug)]
struct Watcher {
    mark: Arc<Mark>,
    /// The key had expired when the client began to watch it, and its entry is still there. Freeing it is no
    /// change.
    had_expired: bool,
}

impl WatchedKeys {
    /// How many keys are watched.
    pub(in crate::keyspace) fn len(&self) -> usize {
        self.0.len()
    }

    fn is(watched: &WatchedKey, database: usize, key: &[u8]) -> bool {
        watched.database == database && *watched.key == *key
    }

    /// Marks the clients that watch a changed key. If only its expired entry was there, the change matters
    /// only to clients that began to watch before it expired.
    pub(in crate::keyspace) fn mark(&self, hash: u64, database: usize, key: &[u8], was_there: bool) {
        if let Some(watched) = self.0.find(hash, |watched| Self::is(watched, database, key)) {
            let concerned = watched.watchers.iter().filter(|watcher| was_there || !watcher.had_expired);
            concerned.for_each(|watcher| watcher.mark.set());
        }
    }

    /// Marks the clients that watch a replaced key. `replacement` returns the states of a key before and
    /// after its database is emptied or exchanged. An expired key counts as absent.
    pub(in crate::keyspace) fn mark_replaced(
        &mut self,
        replacement: impl Fn(usize, u64, &[u8]) -> Option<(Presence, Presence)>,
    ) {
        for watched in &mut self.0 {
            let Some((before, after)) = replacement(watched.database, watched.hash, &watched.key) else {
                continue;
            };
            for watcher in &mut watched.watchers {
                match (watcher.had_expired, before, after) {
                    (_, Presence::Absent, Presence::Absent) => {}
                    (true, _, Presence::Absent) => watcher.had_expired = false,
                    (true, _, Presence::Expired) => {}
                    (false, Presence::Absent, Presence::Expired) => watcher.had_expired = true,
                    _ => watcher.mark.set(),
                }
            }
        }
    }

    /// Whether a key had expired when this client began to watch it, and its entry is still there.
    pub(in crate::keyspace) fn had_expired(
        &self,
        hash: u64,
        database: usize,
        key: &[u8],
        mark: &Arc<Mark>,
    ) -> bool {
        let watched = self.0.find(hash, |watched| Self::is(watched, database, key));
        let mut watchers = watched.into_iter().flat_map(|watched| &watched.watchers);
        watchers.any(|watcher| watcher.had_expired && Arc::ptr_eq(&watcher.mark, mark))
    }

    pub(in crate::keyspace) fn add(
        &mut self,
        hash: u64,
        database: usize,
        key: &[u8],
        mark: &Arc<Mark>,
        had_expired: bool,
    ) {
        let found = self.0.entry(hash, |watched| Self::is(watched, database, key), |watched| watched.hash);
        let new = || WatchedKey { hash, database, key: key.into(), watchers: Vec::new() };
        let watcher = Watcher { mark: Arc::clone(mark), had_expired };
        found.or_insert_with(new).into_mut().watchers.push(watcher);
    }

    /// Removes one client from the list of a key.
    pub(in crate::keyspace) fn remove(&mut self, hash: u64, database: usize, key: &[u8], mark: &Arc<Mark>) {
        let Ok(mut found) = self.0.find_entry(hash, |watched| Self::is(watched, database, key)) else {
            return;
        };
        let watchers = &mut found.get_mut().watchers;
        watchers.retain(|watcher| !Arc::ptr_eq(&watcher.mark, mark));
        if watchers.is_empty() {
            found.remove();
        }
        if self.0.is_empty() {
            self.0 = HashTable::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyspace::Expiry;

    fn watch(keyspace: &Keyspace, keys: &[&[u8]]) -> Watching {
        let mut watching = Watching::default();
        for key in keys {
            keyspace.begin(0, key).unwrap().watch(&mut watching, key);
        }
        watching
    }

    fn put(keyspace: &Keyspace, database: usize, key: &[u8]) {
        keyspace.begin(database, key).unwrap().put(key, b"v", Expiry::Never);
    }

    #[test]
    fn only_changes_of_watched_keys_count() {
        let keyspace = Keyspace::alone(2);
        put(&keyspace, 0, b"a");
        let mut watching = watch(&keyspace, &[b"a", b"b", b"a"]);
        put(&keyspace, 0, b"c");
        put(&keyspace, 1, b"a");
        keyspace.begin(0, b"b").unwrap().remove(b"b");
        keyspace.begin(0, b"a").unwrap().get_bytes(b"a");
        assert!(!watching.has_changed());
        put(&keyspace, 0, b"a");
        assert!(watching.has_changed());
        keyspace.unwatch(&mut watching);
        assert!(!watching.has_changed() && watching.is_forgotten());
        put(&keyspace, 0, b"a");
        assert!(!watching.has_changed());
    }

    #[test]
    fn an_expired_key_counts_as_changed_before_it_is_freed() {
        let keyspace = Keyspace::alone(1);
        keyspace.clock().freeze();
        let later_ms = keyspace.clock().now_ms() + 30_000;
        keyspace.begin(0, b"k").unwrap().put(b"k", b"v", Expiry::At(later_ms));
        let watching = watch(&keyspace, &[b"k"]);
        let is_overtaken = || keyspace.begin(0, b"k").unwrap().is_overtaken(&watching);
        assert!(!is_overtaken());
        keyspace.clock().set(later_ms).unwrap();
        assert!(!watching.has_changed());
        assert!(is_overtaken());
        let after = watch(&keyspace, &[b"k"]);
        let mut tx = keyspace.begin(0, b"k").unwrap();
        assert!(!tx.is_overtaken(&after), "it had expired before it was watched");
        tx.free_expired(b"k");
        assert!(tx.is_overtaken(&watching));
        assert!(!tx.is_overtaken(&after), "freeing it is no change");
    }

    #[test]
    fn flushing_and_swapping_mark_the_keys_that_change() {
        let keyspace = Keyspace::alone(2);
        put(&keyspace, 0, b"there");
        let (there, not_there) = (watch(&keyspace, &[b"there"]), watch(&keyspace, &[b"not there"]));
        keyspace.begin_all(1).unwrap().flush_database();
        assert!(!there.has_changed());
        keyspace.begin_all(0).unwrap().flush_database();
        assert!(there.has_changed() && !not_there.has_changed());
        put(&keyspace, 1, b"not there");
        keyspace.begin_all(0).unwrap().swap_databases(0, 1);
        assert!(not_there.has_changed());
    }
}
