//! The effects of one EXEC, or of one script, for other clients, until all its commands have run.
//!
//! Nothing leaves before that, for a handler may run twice, and only what is committed may be seen outside.
//! `Instance::deliver` then delivers everything in its order, when the changes are in the log's journal and
//! before the locks are free. An outbox that is dropped instead leaves no trace.
//!
//! Nothing grows without limit. Letters are counted by the limits of their receivers. Changed keys beyond
//! `KEY_BYTES_MAX` become the news that all keys have changed. Lock news beyond `LOCK_NEWS_MAX` are dropped,
//! and the lens forgets all locks, since missing news prove nothing.

use std::collections::HashMap;
use std::sync::Arc;

use crate::clients::Who;
use crate::keyspace::{LockChange, LockNews, LostLock};
use crate::lens::LockUse;
use crate::pubsub::Letter;
use crate::remote::news::News;

/// Bytes that changed keys may take. A client with more news is cut off.
const KEY_BYTES_MAX: usize = 32 << 20;
/// About the bytes that a key takes beside its own: an item, and a place in the table.
const KEY_OVERHEAD_BYTES: usize = 128;
/// News of locks: as many as the keyspace reports in two seconds at most.
const LOCK_NEWS_MAX: usize = 20_000;

/// The effects that are delivered later, in their order.
#[derive(Debug, Default)]
pub struct Outbox {
    items: Vec<Item>,
    /// The last item about each key.
    keys: HashMap<Box<[u8]>, KeyNews>,
    /// Bytes that the keys take, each in the table and in its items.
    key_bytes: usize,
    /// Whether one item says that all keys have changed.
    has_flushed: bool,
    /// Whether too many keys have changed to name them: all count as changed. The news comes last.
    has_too_many_keys: bool,
    lock_news: usize,
    has_too_many_lock_news: bool,
}

/// One thing to be delivered.
#[derive(Debug)]
pub enum Item {
    /// A message to one listener.
    Letter(Letter),
    /// News for other front-ends of the store.
    Elsewhere(News),
    /// A push to the client itself.
    Own(Vec<u8>),
    /// A key has changed.
    Changed {
        /// The key that has changed.
        key: Box<[u8]>,
        /// Whether no command changed it: it has expired, or was evicted.
        by_itself: bool,
    },
    /// A holder has lost a lock.
    Lost(Box<LostLock>),
    /// All keys were removed.
    Flushed,
    /// The client itself has read a key after it changed, and keeps a copy.
    Read {
        /// The number of the client's tracking.
        tracker: u64,
        /// The key that it has read.
        key: Box<[u8]>,
    },
    /// News of a lock.
    Lock(Box<LockItem>),
    /// Some news of locks were dropped.
    LocksUnknown,
}

/// A change of a lock, and the command that made it.
#[derive(Debug)]
pub struct LockItem {
    /// What happened to the lock, and when.
    pub news: LockNews,
    /// The client, as it was.
    pub who: Arc<Who>,
    /// The name of the command that did it, and what the command means for a lock.
    pub command: (&'static str, LockUse),
    /// The index of the request in the client's queue, if EXEC runs it, or the script that called it.
    pub queued: Option<usize>,
    /// Whether a script called the command.
    pub is_script: bool,
}

/// The last news of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyNews {
    Changed { by_itself: bool },
    Read { tracker: u64 },
}

impl Outbox {
    /// Everything, in its order.
    pub fn into_items(mut self) -> Vec<Item> {
        if self.has_too_many_keys {
            self.items.push(Item::Flushed);
        }
        if self.has_too_many_lock_news {
            self.items.push(Item::LocksUnknown);
        }
        self.items
    }

    /// Takes the news of locks.
    pub fn take_locks(&mut self) -> Vec<Item> {
        let mut locks = Vec::new();
        if std::mem::take(&mut self.lock_news) > 0 {
            let items = std::mem::take(&mut self.items).into_iter();
            (locks, self.items) = items.partition(|item| matches!(item, Item::Lock(_)));
        }
        if std::mem::take(&mut self.has_too_many_lock_news) {
            locks.push(Item::LocksUnknown);
        }
        locks
    }

    /// Adds a message.
    pub fn add_letter(&mut self, letter: Letter) {
        self.items.push(Item::Letter(letter));
    }

    /// Adds news for other front-ends of the store.
    pub fn add_elsewhere(&mut self, news: News) {
        self.items.push(Item::Elsewhere(news));
    }

    /// Adds a push to the client itself. The commands that have one are queued, which bounds them.
    pub fn add_own(&mut self, push: Vec<u8>) {
        self.items.push(Item::Own(push));
    }

    /// Adds that a holder has lost a lock. There are no more than there are such locks.
    pub fn add_lost(&mut self, lost: Box<LostLock>) {
        self.items.push(Item::Lost(lost));
    }

    /// Adds that a key has changed, unless that is its last news already.
    pub fn add_change(&mut self, key: Box<[u8]>, by_itself: bool) {
        if self.is_new(&key, KeyNews::Changed { by_itself }) {
            self.items.push(Item::Changed { key, by_itself });
        }
    }

    /// Adds the news that all keys were removed.
    pub fn add_flush(&mut self) {
        self.has_flushed = true;
        self.keys.clear();
        self.items.push(Item::Flushed);
    }

    /// Adds that the client has read a key, if that has changed before: then it must be remembered after the
    /// change is delivered. Returns whether it has. Among too many keys it need not be remembered: the last
    /// news that the client gets is that all keys have changed.
    pub fn add_read(&mut self, tracker: u64, key: &[u8]) -> bool {
        let comes_after_change = self.has_flushed || self.has_too_many_keys || self.keys.contains_key(key);
        if comes_after_change && self.is_new(key, KeyNews::Read { tracker }) {
            self.items.push(Item::Read { tracker, key: key.into() });
        }
        comes_after_change
    }

    /// Adds what happened to a lock.
    pub fn add_lock(&mut self, lock: LockItem) {
        if self.has_too_many_lock_news {
            return;
        }
        if lock.is_script && lock.news.change.is_taken() {
            self.forget_looks(&lock);
        }
        self.lock_news += 1;
        self.items.push(Item::Lock(Box::new(lock)));
        if self.lock_news > LOCK_NEWS_MAX {
            self.has_too_many_lock_news = true;
            self.items.retain(|item| !matches!(item, Item::Lock(_)));
        }
    }

    /// Forgets that a script has found a lock absent: it takes the lock now, so it has not come back to it.
    fn forget_looks(&mut self, taken: &LockItem) {
        // Such a script looks once or twice.
        const LOOKED_AT: usize = 8;
        let is_look = |item: &Item| match item {
            Item::Lock(lock) => {
                let (one, other) = (&lock.news, &taken.news);
                let same = lock.is_script && lock.queued == taken.queued && one.database == other.database;
                same && one.change == LockChange::Missed && one.key == other.key
            }
            _ => false,
        };
        let start = self.items.len().saturating_sub(LOOKED_AT);
        let last = self.items.split_off(start);
        self.items.extend(last.into_iter().filter(|item| !is_look(item)));
    }

    /// Notes news of a key. Returns whether an item is needed for it.
    fn is_new(&mut self, key: &[u8], news: KeyNews) -> bool {
        if self.has_too_many_keys {
            return false;
        }
        match self.keys.get_mut(key) {
            Some(last) if *last == news => return false,
            Some(last) => *last = news,
            None => drop(self.keys.insert(key.into(), news)),
        }
        self.key_bytes += 2 * key.len() + KEY_OVERHEAD_BYTES;
        if self.key_bytes > KEY_BYTES_MAX {
            self.has_too_many_keys = true;
            self.keys = HashMap::new();
            let is_of_key = |item: &Item| matches!(item, Item::Changed { .. } | Item::Read { .. });
            self.items.retain(|item| !is_of_key(item) && !matches!(item, Item::Flushed));
        }
        !self.has_too_many_keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(outbox: Outbox) -> Vec<String> {
        let items = outbox.into_items().into_iter();
        items
            .map(|item| match item {
                Item::Changed { key, by_itself: false } => format!("changed {}", key.escape_ascii()),
                Item::Changed { key, by_itself: true } => format!("expired {}", key.escape_ascii()),
                Item::Read { tracker, key } => format!("{tracker} read {}", key.escape_ascii()),
                Item::Flushed => "flushed".to_owned(),
                other => panic!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn news_of_a_key_are_kept_once_until_it_is_read() {
        let mut outbox = Outbox::default();
        assert!(!outbox.add_read(1, b"a"), "it has not changed");
        for _ in 0..3 {
            outbox.add_change(b"a"[..].into(), false);
            outbox.add_change(b"b"[..].into(), false);
        }
        assert!(outbox.add_read(1, b"a") && outbox.add_read(1, b"a") && !outbox.add_read(1, b"c"));
        outbox.add_change(b"a"[..].into(), true);
        outbox.add_flush();
        outbox.add_change(b"a"[..].into(), true);
        assert!(outbox.add_read(1, b"c"), "all keys have changed");
        let expected =
            ["changed a", "changed b", "1 read a", "expired a", "flushed", "expired a", "1 read c"];
        assert_eq!(described(outbox), expected);
    }

    #[test]
    fn too_many_changed_keys_are_all_keys() {
        let mut outbox = Outbox::default();
        let long = vec![b'k'; 1 << 20];
        for number in 0..20_u8 {
            let mut key = long.clone();
            key.push(number);
            outbox.add_change(key.into(), false);
        }
        assert!(outbox.add_read(1, b"k") && outbox.keys.is_empty());
        assert_eq!(described(outbox), ["flushed"]);
    }
}
