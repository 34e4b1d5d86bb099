//! Changing a collection in its entry.
//!
//! A command makes its change through a [`Change`]. It knows how the type keeps its elements, in methods that
//! the type adds to it. Each change of an element is noted as a step for the log: the effect, never the
//! command. When the command is done, the transaction reports the change, and removes a key that has no
//! elements left.

use std::marker::PhantomData;
use std::ops::Range;

use crate::events::EventClass;
use crate::keyspace::access::Access;
use crate::keyspace::store::entry::Entry;
use crate::keyspace::transaction::Transaction;
use crate::keyspace::transaction::following::changes::Extent;
use crate::keyspace::transaction::following::losses::Loss;
use crate::keyspace::transaction::following::records::Recorder;
use crate::values::packed::COUNT_BYTES;
use crate::values::pairs;
use crate::values::tree::Remains;
use crate::values::{
    Content, HASH_KIND, LIST_KIND, Limit, SORTED_SET_KIND, Shape, Structure, Type, Value, WrongType,
};

/// A collection that is being changed.
#[derive(Debug)]
pub struct Change<'e, T> {
    pub(super) entry: &'e mut Entry,
    limit: Limit,
    /// The moment at which the change looks at the fields of a hash, if some of them expire; else 0.
    now_ms: u64,
    /// How many elements were changed.
    changes: u64,
    /// How many expired fields of a hash gave way to others.
    expired_fields: usize,
    /// The steps for the log, if there is one.
    steps: Option<Recorder<'e>>,
    /// Whether all elements are to be removed.
    is_emptied: bool,
    /// The event behind that of the command.
    second_event: Option<&'static str>,
    /// Nodes that the collection has let go, and their bytes.
    remains: (Remains, usize),
    /// The members that were changed, if they may be permits with guards.
    touched: Option<Vec<Box<[u8]>>>,
    of: PhantomData<T>,
}

impl<T: Type> Change<'_, T> {
    /// Notes that an expired field of a hash gives way to another one, before it was freed.
    pub fn note_expired_field(&mut self) {
        self.expired_fields += 1;
    }

    /// The collection as it is now.
    #[inline]
    pub fn view(&self) -> T::View<'_> {
        T::view(self.entry.content_at(self.now_ms))
    }

    /// The moment at which fields of a hash that expire are looked at; 0 if none expires.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Up to which size the collection is packed.
    pub fn limit(&self) -> Limit {
        self.limit
    }

    /// Whether an element was changed.
    pub fn has_changed(&self) -> bool {
        self.changes > 0
    }

    /// The collection, if it is large and has this shape.
    #[inline(always)]
    pub fn large_mut<S: Shape>(&mut self) -> Option<&mut S> {
        self.entry.structure_mut().and_then(S::of_mut)
    }

    /// The bytes of a packed collection.
    ///
    /// # Panics
    ///
    /// If the collection is large.
    #[inline]
    pub fn packed(&self) -> &[u8] {
        self.entry.packed().expect("the caller has checked that the collection is packed")
    }

    /// Replaces a range of a packed collection by other bytes: all of `parts`. Adds to its count.
    pub fn splice(&mut self, range: Range<usize>, parts: &[&[u8]], added: i16) {
        self.entry.splice(range, parts);
        if added != 0 {
            let count = self.packed().first_chunk().map_or(0, |count| u16::from_le_bytes(*count));
            self.entry.splice(0..COUNT_BYTES, &[&count.wrapping_add_signed(added).to_le_bytes()]);
        }
    }

    /// Replaces a range of packed [`pairs`] by other bytes. Afterwards there are `pairs` pairs.
    pub fn splice_pairs(&mut self, range: Range<usize>, parts: &[&[u8]], pairs: usize) {
        self.entry.splice(range, parts);
        let (place, count) = pairs::counted(pairs);
        self.entry.splice(place, &[&count]);
    }

    /// Replaces a packed collection by a large one. The elements stay the same.
    pub fn enlarge(&mut self, structure: Structure) {
        self.entry.enlarge(structure);
    }

    /// Removes all elements. The key is removed when the change is done, and that is what the log gets.
    pub fn empty(&mut self) {
        self.is_emptied = true;
    }

    /// Reports an event of this name, too, behind that of the command.
    pub fn report_also(&mut self, event: &'static str) {
        self.second_event = Some(event);
    }

    /// Notes a changed element, and the request that repeats the change, without the key. Requests of the
    /// same name that follow each other become one.
    #[inline]
    pub fn note(&mut self, name: &'static str, arguments: &[&[u8]]) {
        self.changes += 1;
        if let Some(steps) = &mut self.steps {
            steps.add(name, arguments);
        }
    }

    /// Notes a changed element, and a request that must stay alone.
    #[inline]
    pub fn note_alone(&mut self, name: &'static str, arguments: &[&[u8]]) {
        self.changes += 1;
        if let Some(steps) = &mut self.steps {
            steps.end();
            steps.add(name, arguments);
            steps.end();
        }
    }

    /// Notes a change, and a request of a command with subcommands, which must stay alone.
    pub fn note_subcommand(&mut self, name: &'static str, subcommand: &str, arguments: &[&[u8]]) {
        self.changes += 1;
        if let Some(steps) = &mut self.steps {
            steps.add_subcommand(name, subcommand, arguments);
        }
    }

    /// Whether changes are noted for the log. Without a log, a change is only
    /// [counted](Self::count_more).
    #[inline]
    pub fn is_logged(&self) -> bool {
        self.steps.is_some()
    }

    /// Bytes of a large collection, without its entry; 0 if it is packed.
    pub fn large_bytes(&self) -> usize {
        self.entry.structure().map_or(0, Structure::bytes)
    }

    /// Whether it must be known which members are changed.
    pub fn wants_touched(&self) -> bool {
        self.touched.is_some()
    }

    /// Notes which member is changed, if that must be known.
    #[inline]
    pub fn touch(&mut self, member: &[u8]) {
        if let Some(touched) = &mut self.touched {
            touched.push(member.into());
        }
    }

    /// Counts changed elements beyond those that were noted: one request changed them, too.
    pub fn count_more(&mut self, changes: usize) {
        self.changes += changes as u64;
    }

    /// Leaves `bytes` of nodes to be freed when the locks are free.
    pub fn leave(&mut self, remains: Remains, bytes: usize) {
        if !remains.is_empty() {
            self.remains.0.append(remains);
            self.remains.1 += bytes;
        }
    }
}

/// The result of a change, for the transaction.
struct Changed<R> {
    result: R,
    changes: u64,
    expired_fields: usize,
    /// The requests for the log, and their number.
    steps: Option<(Vec<u8>, usize)>,
    is_empty: bool,
    second_event: Option<&'static str>,
    bytes: usize,
    /// Whether the key is a lock.
    is_lock: bool,
    /// The members that were changed, if they may be permits with guards.
    touched: Option<Vec<Box<[u8]>>>,
}

impl Transaction<'_> {
    /// Changes a collection that is there; returns `None` if the key is absent. If an element was changed,
    /// reports an event of this name.
    ///
    /// # Errors
    ///
    /// [`WrongType`]
    #[inline]
    pub fn change<T: Type, R>(
        &mut self,
        key: &[u8],
        event: &'static str,
        change: impl FnOnce(&mut Change<'_, T>) -> R,
    ) -> Result<Option<R>, WrongType> {
        let Some(now_ms) = self.moment_of::<T>(key)? else { return Ok(None) };
        Ok(Some(self.change_at(key, event, now_ms, change)))
    }

    /// The moment at which a collection is looked at; `None` if it is absent.
    ///
    /// # Errors
    ///
    /// [`WrongType`]
    #[inline]
    fn moment_of<T: Type>(&self, key: &[u8]) -> Result<Option<u64>, WrongType> {
        match self.peek_entry(key) {
            None => Ok(None),
            Some(entry) if entry.kind() != T::FACTS.kind => Err(WrongType),
            Some(entry) if entry.has_field_expiries() => Ok(Some(self.field_moment_ms())),
            Some(_) => Ok(Some(0)),
        }
    }

    /// Changes a collection that is there and has this type.
    #[inline]
    fn change_at<T: Type, R>(
        &mut self,
        key: &[u8],
        event: &'static str,
        now_ms: u64,
        change: impl FnOnce(&mut Change<'_, T>) -> R,
    ) -> R {
        if now_ms != 0 {
            // The end of fields is reported before what the command does.
            self.free_fields(key);
        }
        let changed = self.change_entry::<T, R>(key, now_ms, change);
        if changed.expired_fields > 0 {
            self.follow_loss(key, Loss::SomeFieldsExpired(changed.expired_fields));
        }
        self.doubt_touched(key, changed.touched);
        if changed.is_empty {
            self.remove_emptied(key);
            self.event(T::FACTS.events, event, key);
            self.second_event::<T>(changed.second_event, key);
            self.event(EventClass::GENERIC, "del", key);
        } else if changed.changes > 0 {
            self.follow_steps(key, changed.steps, changed.bytes);
            self.event(T::FACTS.events, event, key);
            self.second_event::<T>(changed.second_event, key);
            if changed.is_lock {
                self.follow_depth(key);
            }
        }
        changed.result
    }

    /// Changes what a collection has beside its elements; returns `None` if the key is absent. The log gets
    /// the change, and it is counted, but clients that watch the key or keep a copy of it are not notified.
    ///
    /// # Errors
    ///
    /// [`WrongType`]
    pub fn adjust<T: Type, R>(
        &mut self,
        key: &[u8],
        change: impl FnOnce(&mut Change<'_, T>) -> R,
    ) -> Result<Option<R>, WrongType> {
        if self.moment_of::<T>(key)?.is_none() {
            return Ok(None);
        }
        let changed = self.change_entry::<T, R>(key, 0, change);
        if let Some((records, count)) = changed.steps.filter(|(_, count)| *count > 0) {
            self.note_records(key, records, count, changed.bytes);
        }
        Ok(Some(changed.result))
    }

    /// Changes a collection, if it is there, by itself: the log gets the change, and no client has made it.
    pub fn adjust_unused<T: Type, R>(
        &mut self,
        key: &[u8],
        change: impl FnOnce(&mut Change<'_, T>) -> R,
    ) -> Option<R> {
        let stamp = self.entry(key).filter(|entry| entry.kind() == T::FACTS.kind)?.stamp();
        let changed = self.change_entry::<T, R>(key, 0, change);
        if let Some((records, count)) = changed.steps.filter(|(_, count)| *count > 0) {
            self.note_records(key, records, count, changed.bytes);
        }
        self.shard_mut(key).1.changes -= changed.changes;
        self.entry(key).into_iter().for_each(|entry| entry.set_stamp(stamp));
        Some(changed.result)
    }

    fn doubt_touched(&self, key: &[u8], touched: Option<Vec<Box<[u8]>>>) {
        touched.into_iter().flatten().for_each(|member| self.doubt_permit(key, &member));
    }

    /// Serves the clients that wait for a key when the command is done, although the key has not changed.
    pub fn wake_waiting(&self, key: &[u8]) {
        if self.wanted.blocked() {
            self.note_ready(self.database, key);
        }
    }

    /// Changes a collection, and makes it if the key is absent. A new collection must get an element, or
    /// there is no key. If an element was changed, reports an event of this name.
    ///
    /// # Errors
    ///
    /// [`WrongType`]
    pub fn make<T: Type, R>(
        &mut self,
        key: &[u8],
        event: &'static str,
        change: impl FnOnce(&mut Change<'_, T>) -> R,
    ) -> Result<R, WrongType> {
        match self.moment_of::<T>(key)? {
            Some(now_ms) => Ok(self.change_at(key, event, now_ms, change)),
            None => Ok(self.make_anew(key, event, change)),
        }
    }

    /// The same for a key that is known to be absent. The lens hears of no look at it.
    pub fn make_anew<T: Type, R>(
        &mut self,
        key: &[u8],
        event: &'static str,
        change: impl FnOnce(&mut Change<'_, T>) -> R,
    ) -> R {
        self.make_way(key);
        let hash = self.insert_empty::<T>(key);
        let changed = self.change_entry::<T, R>(key, 0, change);
        if changed.is_empty {
            let database = self.database;
            let (spot, shard) = self.shard_mut(key);
            shard.remove(database, spot, key);
            if changed.changes > 0 {
                // It got elements that were gone at once.
                self.event(T::FACTS.events, event, key);
                self.second_event::<T>(changed.second_event, key);
                self.event(EventClass::GENERIC, "del", key);
            }
            return changed.result;
        }
        self.event(EventClass::NEW, "new", key);
        self.follow_steps(key, changed.steps, changed.bytes);
        self.event(T::FACTS.events, event, key);
        self.second_event::<T>(changed.second_event, key);
        if [HASH_KIND, LIST_KIND, SORTED_SET_KIND].contains(&T::FACTS.kind) {
            self.note_made(hash, T::FACTS.kind, event);
        }
        changed.result
    }

    /// Writes an empty collection to a key that is absent; returns the hash of the key.
    fn insert_empty<T: Type>(&mut self, key: &[u8]) -> u64 {
        let entry = Entry::of(key, Value { facts: T::FACTS, content: Content::Bytes(T::EMPTY) }, None);
        let (keyspace, database) = (self.keyspace, self.database);
        entry.set_stamp(Access::first(keyspace.access.now()));
        let (spot, shard) = self.shard_mut(key);
        shard.table_mut(database).insert(spot, entry, |entry| keyspace.hash(entry.key()));
        spot.hash
    }

    #[inline]
    fn second_event<T: Type>(&self, event: Option<&'static str>, key: &[u8]) {
        if let Some(event) = event {
            self.event(T::FACTS.events, event, key);
        }
    }

    /// Calls `change` for the collection of a key that is there. `now_ms` is not 0 if fields of it expire.
    #[inline]
    fn change_entry<T: Type, R>(
        &mut self,
        key: &[u8],
        now_ms: u64,
        change: impl FnOnce(&mut Change<'_, T>) -> R,
    ) -> Changed<R> {
        let (database, limit) = (self.database, self.keyspace.limits.of(T::FACTS.kind));
        let written = self.keyspace.access.dates_writes().then(|| self.keyspace.access.now());
        let steps = self.wanted.journal().then(|| Recorder::of(key));
        let is_guarded =
            T::FACTS.kind == SORTED_SET_KIND && self.wanted.watched() && self.guarded_form(key).is_some();
        let (spot, shard) = self.shard_mut(key);
        let table = shard.table_mut(database);
        let entry = table.entry_mut(spot, key).expect("the caller has found the key");
        let had_field_expiries = entry.has_field_expiries();
        let mut collection = Change {
            entry,
            limit,
            now_ms,
            changes: 0,
            expired_fields: 0,
            steps,
            is_emptied: false,
            second_event: None,
            remains: (Remains::default(), 0),
            touched: is_guarded.then(Vec::new),
            of: PhantomData,
        };
        let result = change(&mut collection);
        let Change {
            entry, changes, expired_fields, steps, is_emptied, second_event, remains, touched, ..
        } = collection;
        if let Some(now) = written.filter(|_| changes > 0) {
            entry.set_stamp(now);
        }
        let is_empty = is_emptied || (T::FACTS.len)(entry.content_at(now_ms)) == 0;
        let next_ms = entry.expiring().map(|fields| fields.earliest_ms());
        let is_lock = [HASH_KIND, SORTED_SET_KIND].contains(&T::FACTS.kind) && entry.is_lock();
        let bytes = if steps.is_some() { entry.bytes_in_all() } else { 0 };
        let steps = steps.map(Recorder::finish);
        if T::FACTS.kind == HASH_KIND && (had_field_expiries || next_ms.is_some()) {
            table.count_field_expiries(spot.hash, had_field_expiries, next_ms);
        }
        shard.changes += changes;
        self.leave_remains(remains.0, remains.1);
        Changed { result, changes, expired_fields, steps, is_empty, second_event, bytes, is_lock, touched }
    }

    /// Reports a change, and notes its steps for the log.
    #[inline]
    fn follow_steps(&self, key: &[u8], steps: Option<(Vec<u8>, usize)>, bytes: usize) {
        self.follow_change(key, Extent::Part);
        if let Some((records, count)) = steps {
            self.note_records(key, records, count, bytes);
        }
    }
}
