//! Notifies clients that keep copies of keys when the keys change, so that no copy grows stale (CLIENT
//! TRACKING).
//!
//! There are two ways. The server remembers the keys that a *reader* has read, and notifies it once of each
//! that changes afterwards. It notifies a *listener* of every change of a key that begins with one of its
//! prefixes, and remembers nothing of what it reads.
//!
//! Why no change is lost between a read and its being remembered: [`Tracking::remember`] is called while the
//! reader's transaction still holds the shard of the key, and [`Tracking::tell`] while the writer's does. So
//! either the whole read or the whole write of one key comes first: the read sees what was written, or the
//! writer finds the reader in the table. A bit decides whether a writer looks at the table at all
//! ([`Interest::set_tracking`]). It is set before the reader's first read, and transactions check it once
//! they hold their shards: the lock that orders the two also makes the bit visible.
//!
//! Why a client never takes an old value for a new one: it gets notifications on the connection that it reads
//! on, and a notification that may concern a value in a reply follows that reply. The reply to a write is
//! sent only when all notifications about it are in their receivers' mail.

mod invalidation;
mod prefixes;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, hash_set};
use std::ops::Bound::{Included, Unbounded};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::clients::{Client, Clients};
use crate::keyspace::{Effect, Interest};
use crate::resp::{Protocol, Reply, Sent};
use invalidation::Invalidation;
pub(crate) use prefixes::Overlap;
use prefixes::check_overlap;

/// Keys too many that are forgotten, at most, when one is remembered. Redis: at least a hundred a command.
const SURPLUS_PER_READ: usize = 100;
/// The same, and keys of clients that do not track any longer, for each piece of [`Tracking::tidy`].
const KEYS_PER_PIECE: usize = 500;
/// Pieces, between which others come to their turn.
const PIECES_PER_TIDYING: usize = 20;
/// Keys of clients that do not track any longer, for each that is remembered: more than one, so that such
/// keys never become more than they were.
const ABANDONED_PER_READ: usize = 2;

/// Which clients keep copies of which keys.
#[derive(Debug, Default)]
pub struct Tracking(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    /// By numbers that no other client's tracking had, and none of its own before.
    trackers: HashMap<u64, Tracker>,
    last_number: u64,
    /// The clients that have read each key since it last changed.
    readers: HashMap<Arc<[u8]>, Readers>,
    /// The keys of `readers`, in no order: from here any one can be chosen.
    keys: Vec<Arc<[u8]>>,
    /// How many readers all keys have together.
    items: usize,
    /// The listeners, by prefix.
    listeners: BTreeMap<Box<[u8]>, BTreeSet<u64>>,
    /// How many of these prefixes have each length.
    prefix_lengths: BTreeMap<usize, usize>,
    /// Changed keys of which the listeners are not notified yet, with the client that made the change and may
    /// have excluded its own changes.
    changed: BTreeMap<Box<[u8]>, Option<u64>>,
    /// Keys of clients that no longer track; they are taken out of `readers` piece by piece.
    abandoned: Vec<(u64, hash_set::IntoIter<Arc<[u8]>>)>,
    /// Tables that are no longer used and take time to free.
    garbage: Vec<Table>,
}

#[derive(Debug)]
struct Tracker {
    client: Arc<Client>,
    options: Options,
    /// The keys that it has read.
    keys: HashSet<Arc<[u8]>>,
    /// The prefixes that it listens to.
    prefixes: BTreeSet<Box<[u8]>>,
}

#[derive(Debug)]
struct Readers {
    numbers: Vec<u64>,
    /// Where the key is in the list of all.
    place: usize,
}

/// The options of CLIENT TRACKING.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Which keys it is notified of.
    pub mode: Mode,
    /// The number of the client that gets the notifications instead; 0 for none.
    pub redirect: u64,
    /// Whether it is not notified of its own changes (NOLOOP).
    pub spares_own: bool,
}

/// Which keys a client is notified of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The keys that it reads.
    #[default]
    All,
    /// The keys that it reads by the command after CLIENT CACHING YES (OPTIN).
    Chosen,
    /// The keys that it reads, except by the command after CLIENT CACHING NO (OPTOUT).
    NotSpared,
    /// All keys that begin with its prefixes (BCAST).
    Prefixes,
}

/// The tracking of a client, as its own session knows it.
#[derive(Clone, Debug)]
pub struct Tracks {
    number: u64,
    /// The options of CLIENT TRACKING.
    pub options: Options,
    /// Whether CLIENT CACHING has said that the next command is the exception.
    pub is_exception: bool,
    /// Whether the command that is being run has read keys.
    pub has_read: bool,
    /// Bytes of memory that its prefixes take.
    pub prefix_bytes: usize,
}

/// Bytes that a prefix takes beside its own, which are copied for the client and for the table.
const PREFIX_BYTES: usize = 256;

impl Tracks {
    /// Whether what is read now is to be remembered.
    fn remembers(&self) -> bool {
        match self.options.mode {
            Mode::All => true,
            Mode::Chosen => self.is_exception,
            Mode::NotSpared => !self.is_exception,
            Mode::Prefixes => false,
        }
    }
}

/// How much is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Clients that track.
    pub clients: usize,
    /// Keys that any of them has read.
    pub keys: usize,
    /// The readers of each key, added up over all keys.
    pub items: usize,
    /// Prefixes that any of them listens to.
    pub prefixes: usize,
}

/// Beginning, ending, remembering.
impl Tracking {
    /// Lets a client track, or changes how it does.
    ///
    /// # Errors
    ///
    /// If its prefixes overlap; nothing has changed then.
    pub fn begin(
        &self,
        interest: &Interest,
        client: &Arc<Client>,
        before: Option<&Tracks>,
        options: Options,
        prefixes: &[&[u8]],
    ) -> Result<Tracks, Overlap> {
        let mut table = self.0.lock();
        let before = before.map(|before| before.number);
        let old = before.and_then(|number| table.trackers.get(&number));
        check_overlap(old.map(|tracker| &tracker.prefixes), prefixes)?;
        let number = before.unwrap_or(table.last_number + 1);
        table.last_number = table.last_number.max(number);
        let new =
            Tracker { client: Arc::clone(client), options, keys: HashSet::new(), prefixes: BTreeSet::new() };
        table.trackers.entry(number).or_insert(new).options = options;
        if options.mode == Mode::Prefixes {
            let all: &[&[u8]] = &[b""];
            for prefix in if prefixes.is_empty() { all } else { prefixes } {
                table.listen(number, prefix);
            }
        }
        interest.set_tracking(true);
        let own = table.trackers.get(&number).into_iter().flat_map(|tracker| &tracker.prefixes);
        let prefix_bytes = own.map(|prefix| 2 * prefix.len() + PREFIX_BYTES).sum();
        Ok(Tracks { number, options, is_exception: false, has_read: false, prefix_bytes })
    }

    /// Ends tracking for a client, and frees what is remembered for it.
    pub fn end(&self, interest: &Interest, tracks: &Tracks) {
        let mut table = self.0.lock();
        let Some(tracker) = table.trackers.remove(&tracks.number) else { return };
        for prefix in &tracker.prefixes {
            table.end_listening(tracks.number, prefix);
        }
        if !table.trackers.is_empty() {
            table.abandoned.push((tracks.number, tracker.keys.into_iter()));
            return;
        }
        interest.set_tracking(false);
        let last_number = table.last_number;
        let nobodys = std::mem::replace(&mut *table, Table { last_number, ..Table::default() });
        drop(table);
        // Others need not wait for this.
        drop(nobodys);
    }

    /// Remembers that a client has read keys, itself or by a script. Beyond `keys_max` keys, where that is
    /// not 0, some are forgotten, and their readers notified. A key for which `comes_late` returns true is
    /// left to [`remember_late`](Self::remember_late).
    pub fn remember<'k>(
        &self,
        tracks: &mut Tracks,
        keys: impl Iterator<Item = &'k [u8]>,
        mut comes_late: impl FnMut(u64, &[u8]) -> bool,
        keys_max: usize,
        clients: &Clients,
    ) {
        tracks.has_read = true;
        if !tracks.remembers() {
            return;
        }
        let number = tracks.number;
        let mut table = self.0.lock();
        for key in keys {
            if !comes_late(number, key) {
                table.remember(number, key);
            }
        }
        table.forget_surplus_of(number, keys_max, clients);
    }

    /// Remembers that a client has read a key, after it got the news of the changes before.
    pub fn remember_late(&self, number: u64, key: &[u8], keys_max: usize, clients: &Clients) {
        let mut table = self.0.lock();
        table.remember(number, key);
        table.forget_surplus_of(number, keys_max, clients);
    }

    /// Forgets surplus keys even if no client reads; the caller does this every so often.
    pub fn tidy(&self, keys_max: usize, clients: &Clients) {
        for _ in 0..PIECES_PER_TIDYING {
            let mut table = self.0.lock();
            let garbage = std::mem::take(&mut table.garbage);
            table.free_abandoned(KEYS_PER_PIECE);
            table.forget_surplus(keys_max, KEYS_PER_PIECE, None, clients);
            let is_done = table.abandoned.is_empty() && table.surplus(keys_max) == 0;
            drop(table);
            drop(garbage);
            if is_done {
                return;
            }
        }
    }

    /// Whether there is nothing to tidy up, and will not be until a client reads or leaves.
    pub fn is_at_rest(&self) -> bool {
        let table = self.0.lock();
        table.trackers.is_empty() && table.abandoned.is_empty() && table.garbage.is_empty()
    }

    /// The prefixes that a client listens to.
    pub fn prefixes(&self, tracks: &Tracks) -> Vec<Box<[u8]>> {
        let table = self.0.lock();
        let tracker = table.trackers.get(&tracks.number);
        tracker.map_or(Vec::new(), |tracker| tracker.prefixes.iter().cloned().collect())
    }

    /// How much is remembered.
    pub fn totals(&self) -> Totals {
        let table = self.0.lock();
        Totals {
            clients: table.trackers.len(),
            keys: table.readers.len(),
            items: table.items,
            prefixes: table.listeners.len(),
        }
    }
}

/// Notifying clients of changed keys.
impl Tracking {
    /// Notifies the readers of changed keys; [`broadcast`](Self::broadcast) notifies the listeners. `by` is
    /// the number of the client whose command changed them: it gets its notification after its reply.
    pub fn tell(&self, effects: &[Effect], by: Option<u64>, clients: &Clients) {
        let concerns = |effect: &Effect| matches!(effect, Effect::Changed { .. } | Effect::Flushed);
        if !effects.iter().any(concerns) {
            return;
        }
        let mut table = self.0.lock();
        for effect in effects {
            match effect {
                Effect::Changed { key, by_itself } => {
                    if !table.listeners.is_empty() {
                        table.changed.insert(key.clone(), by.filter(|_| !by_itself));
                    }
                    table.invalidate(key, by, by, clients);
                }
                Effect::Flushed => table.flush(by, clients),
                Effect::Lock(_)
                | Effect::LockLost(_)
                | Effect::LockKept(_)
                | Effect::LocksFlushed { .. }
                | Effect::LocksSwapped { .. }
                | Effect::Event { .. } => {}
            }
        }
    }

    /// Notifies the listeners of all changes so far, of each key once. The caller does this after a command,
    /// or several that run as one, before it frees their shards.
    pub fn broadcast(&self, by: Option<u64>, clients: &Clients) {
        let mut table = self.0.lock();
        let changed = std::mem::take(&mut table.changed);
        if changed.is_empty() {
            return;
        }
        for (prefix, concerned) in table.concerned(&changed) {
            let Some(numbers) = table.listeners.get(prefix) else { continue };
            let all: Vec<&[u8]> = concerned.iter().map(|(key, _)| *key).collect();
            let mut invalidation = Invalidation::of(&all);
            for tracker in numbers.iter().filter_map(|number| table.trackers.get(number)) {
                if !tracker.options.spares_own {
                    tracker.tell(&mut invalidation, by, clients);
                    continue;
                }
                let others = concerned.iter().filter(|(_, by)| *by != Some(tracker.client.id));
                let others: Vec<&[u8]> = others.map(|(key, _)| *key).collect();
                if !others.is_empty() {
                    tracker.tell(&mut Invalidation::of(&others), by, clients);
                }
            }
        }
    }
}

/// Keys that have changed, with the client that changed each.
type ChangedKeys<'c> = Vec<(&'c [u8], Option<u64>)>;

impl Table {
    /// The prefixes with which these keys begin, each with its keys. A client may have a great many prefixes:
    /// they cost a change no more than a look for each length that they have.
    fn concerned<'c>(
        &'c self,
        changed: &'c BTreeMap<Box<[u8]>, Option<u64>>,
    ) -> BTreeMap<&'c [u8], ChangedKeys<'c>> {
        let mut concerned = BTreeMap::<&[u8], ChangedKeys<'_>>::new();
        if changed.len().saturating_mul(self.prefix_lengths.len()) > self.listeners.len() {
            for prefix in self.listeners.keys() {
                let begins = changed.range::<[u8], _>((Included(&**prefix), Unbounded));
                let begins = begins.take_while(|(key, _)| key.starts_with(prefix));
                let keys: ChangedKeys<'_> = begins.map(|(key, by)| (&**key, *by)).collect();
                if !keys.is_empty() {
                    concerned.insert(prefix, keys);
                }
            }
            return concerned;
        }
        for (key, by) in changed {
            for length in self.prefix_lengths.range(..=key.len()).map(|(length, _)| *length) {
                if let Some((prefix, _)) = self.listeners.get_key_value(&key[..length]) {
                    concerned.entry(prefix).or_default().push((key, *by));
                }
            }
        }
        concerned
    }

    fn listen(&mut self, number: u64, prefix: &[u8]) {
        let numbers = self.listeners.entry(prefix.into()).or_default();
        if numbers.is_empty() {
            *self.prefix_lengths.entry(prefix.len()).or_default() += 1;
        }
        numbers.insert(number);
        self.trackers.entry(number).and_modify(|tracker| {
            tracker.prefixes.insert(prefix.into());
        });
    }

    fn end_listening(&mut self, number: u64, prefix: &[u8]) {
        if let Some(numbers) = self.listeners.get_mut(prefix) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.listeners.remove(prefix);
                if let Entry::Occupied(mut prefixes) = self.prefix_lengths.entry(prefix.len()) {
                    *prefixes.get_mut() -= 1;
                    if *prefixes.get() == 0 {
                        prefixes.remove();
                    }
                }
            }
        }
    }

    fn remember(&mut self, number: u64, key: &[u8]) {
        self.free_abandoned(ABANDONED_PER_READ);
        let Some(tracker) = self.trackers.get_mut(&number) else { return };
        if tracker.keys.contains(key) {
            return;
        }
        let known = self.readers.get_key_value(key).map(|(key, _)| Arc::clone(key));
        let key = known.unwrap_or_else(|| key.into());
        tracker.keys.insert(Arc::clone(&key));
        let readers = self.readers.entry(Arc::clone(&key)).or_insert_with(|| {
            self.keys.push(key);
            Readers { numbers: Vec::new(), place: self.keys.len() - 1 }
        });
        readers.numbers.push(number);
        self.items += 1;
    }

    /// Takes a key out, and returns the numbers of its readers.
    fn take_readers(&mut self, key: &[u8]) -> Vec<u64> {
        let Some(readers) = self.readers.remove(key) else { return Vec::new() };
        self.keys.swap_remove(readers.place);
        if let Some(moved) = self.keys.get(readers.place).and_then(|moved| self.readers.get_mut(moved)) {
            moved.place = readers.place;
        }
        self.items -= readers.numbers.len();
        readers.numbers
    }

    /// Notifies the readers of a key that it has changed, except the one that is spared.
    fn invalidate(&mut self, key: &[u8], spared: Option<u64>, by: Option<u64>, clients: &Clients) {
        let keys = [key];
        let mut invalidation = Invalidation::of(&keys);
        for number in self.take_readers(key) {
            let Some(tracker) = self.trackers.get_mut(&number) else { continue };
            tracker.keys.remove(key);
            if !tracker.options.spares_own || spared != Some(tracker.client.id) {
                tracker.tell(&mut invalidation, by, clients);
            }
        }
    }

    /// Notifies every tracking client that all keys have changed.
    fn flush(&mut self, by: Option<u64>, clients: &Clients) {
        let mut read = std::mem::take(&mut self.abandoned);
        let mut invalidation = Invalidation::of_all();
        for (number, tracker) in &mut self.trackers {
            read.push((*number, std::mem::take(&mut tracker.keys).into_iter()));
            tracker.tell(&mut invalidation, by, clients);
        }
        let (readers, keys) = (std::mem::take(&mut self.readers), std::mem::take(&mut self.keys));
        self.items = 0;
        if !keys.is_empty() {
            // The caller of a flush holds all shards: `tidy` frees this later, when no client waits.
            self.garbage.push(Table { readers, keys, abandoned: read, ..Table::default() });
        }
    }

    /// How many keys are too many.
    fn surplus(&self, keys_max: usize) -> usize {
        if keys_max == 0 { 0 } else { self.keys.len().saturating_sub(keys_max) }
    }

    /// Forgets some of the surplus keys, at random, and notifies the clients that have read them.
    fn forget_surplus(&mut self, keys_max: usize, at_most: usize, by: Option<u64>, clients: &Clients) {
        for _ in 0..self.surplus(keys_max).min(at_most) {
            let key = Arc::clone(&self.keys[fastrand::usize(..self.keys.len())]);
            // A client that excludes its own changes needs this, too.
            self.invalidate(&key, None, by, clients);
        }
    }

    /// The same after a client has read.
    fn forget_surplus_of(&mut self, number: u64, keys_max: usize, clients: &Clients) {
        let reader = self.trackers.get(&number).map(|tracker| tracker.client.id);
        self.forget_surplus(keys_max, SURPLUS_PER_READ, reader, clients);
    }

    /// Takes out some of the keys of clients that no longer track.
    fn free_abandoned(&mut self, at_most: usize) {
        for _ in 0..at_most {
            let Some((number, keys)) = self.abandoned.last_mut() else { return };
            let number = *number;
            let Some(key) = keys.next() else {
                self.abandoned.pop();
                continue;
            };
            let Some(readers) = self.readers.get_mut(&key) else { continue };
            if let Some(at) = readers.numbers.iter().position(|other| *other == number) {
                readers.numbers.swap_remove(at);
                self.items -= 1;
            }
            if readers.numbers.is_empty() {
                self.take_readers(&key);
            }
        }
    }
}

impl Tracker {
    /// Notifies the client, or the one that it redirects to.
    fn tell(&self, invalidation: &mut Invalidation<'_>, by: Option<u64>, clients: &Clients) {
        let is_answered_first = by == Some(self.client.id);
        if self.options.redirect == 0 {
            // In RESP2 a client could not distinguish a notification from a reply.
            if self.client.protocol() == Protocol::Resp3 {
                self.client.send_news(invalidation.encoded(Protocol::Resp3), is_answered_first);
            }
            return;
        }
        let Some(receiver) = clients.get(self.options.redirect) else {
            self.tell_of_broken_redirect(is_answered_first);
            return;
        };
        let protocol = receiver.protocol();
        if protocol == Protocol::Resp3 || receiver.is_listening() {
            let is_own = receiver.id == self.client.id;
            receiver.send_news(invalidation.encoded(protocol), is_answered_first && is_own);
        }
    }

    #[cold]
    fn tell_of_broken_redirect(&self, is_answered_first: bool) {
        self.client.profile.lock().tracking.iter_mut().for_each(|tracked| tracked.is_broken = true);
        if self.client.protocol() == Protocol::Resp3 {
            let mut bytes = Vec::new();
            let _: Sent = Reply::new(&mut bytes, Protocol::Resp3).push_of(0..2, |part, reply| match part {
                0 => reply.bulk(b"tracking-redir-broken"),
                _ => reply.integer(self.options.redirect as i64),
            });
            self.client.send_news(&bytes, is_answered_first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_keys_are_found_below_few_prefixes_and_below_many() {
        let mut table = Table::default();
        let text = |number: usize| format!("{number:b}").into_bytes();
        for number in 1..=300 {
            table.listen(number as u64, &text(number));
        }
        table.listen(1, b"");
        table.end_listening(7, &text(7));
        assert_eq!((table.prefix_lengths.get(&9), table.prefix_lengths.get(&3)), (Some(&45), Some(&3)));
        for keys in [1, 20, 400] {
            let changed: BTreeMap<Box<[u8]>, Option<u64>> =
                (1..=keys).map(|number| (text(number * 37).into(), Some(number as u64))).collect();
            let mut expected = BTreeMap::new();
            for prefix in table.listeners.keys() {
                let keys: ChangedKeys<'_> = changed
                    .iter()
                    .filter(|(key, _)| key.starts_with(prefix))
                    .map(|(key, by)| (&**key, *by))
                    .collect();
                if !keys.is_empty() {
                    expected.insert(&**prefix, keys);
                }
            }
            assert_eq!(table.concerned(&changed), expected);
        }
        (1..=300).for_each(|number| table.end_listening(number as u64, &text(number)));
        table.end_listening(1, b"");
        assert!(table.prefix_lengths.is_empty() && table.listeners.is_empty());
    }

    #[test]
    fn what_is_read_and_forgotten_leaves_nothing() {
        let mut table = Table::default();
        let keys: Vec<[u8; 1]> = (0..100).map(|number| [number]).collect();
        for key in &keys {
            let key: Arc<[u8]> = key.as_slice().into();
            table.keys.push(Arc::clone(&key));
            table.readers.insert(key, Readers { numbers: vec![1, 2], place: table.keys.len() - 1 });
            table.items += 2;
        }
        let all: HashSet<Arc<[u8]>> = table.keys.iter().cloned().collect();
        assert_eq!(table.take_readers(&keys[0]), [1, 2]);
        table.abandoned.push((1, all.clone().into_iter()));
        table.free_abandoned(usize::MAX);
        assert_eq!((table.readers.len(), table.keys.len(), table.items), (99, 99, 99));
        table.abandoned.push((2, all.into_iter()));
        table.free_abandoned(usize::MAX);
        assert_eq!((table.readers.len(), table.keys.len(), table.items), (0, 0, 0));
    }
}
