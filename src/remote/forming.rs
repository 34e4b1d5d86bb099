//! The batch that forms while another one is under way.
//!
//! Requests run one after the other on the rows as they are so far in the batch. So of several requests for
//! one key each sees what those before it have done, and the store writes the key once. Requests that share a
//! key, even over others, are one group: the store does all of them or none.
//!
//! But a request that only reads sees the rows as they were before the batch, and is in no group with those
//! that write. If many keys are read and one of them has changed, only the readers run again. A key that is
//! read by such a request and is in another one, too, is in the batch twice.
//!
//! A request that names a busy key, which other front-ends keep changing, is overtaken often, and so is its
//! whole group. So a request of several keys that was overtaken joins only a group of such requests, and
//! others join none of these: those that come to a key second let the batch leave, and the next one has this
//! key for them. So both sides travel by turns, and requests for quiet keys are done in every second batch at
//! least. A request that has stood back [`STOOD_BACK_MAX`] times joins any group.
//!
//! A request whose own keys were all as it had guessed was not overtaken, though its group was. One of a
//! single key brings no other group into danger, so it never counts as overtaken.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::NotJoined;
use super::batch::{Attempt, Batch, Part, Seat, Ticket, Verdict};
use super::row::{Key, KeyMap, KeySet, Row};
use super::target::Limits;

/// How often a request lets others travel first, in a row.
const STOOD_BACK_MAX: u32 = 2;

/// The rows of a request's keys.
#[derive(Debug)]
pub enum Looked {
    /// In the order of the keys.
    Rows(Vec<Arc<Row>>),
    /// A batch has to come to its end first.
    After(Ticket),
    /// The store has been away for longer than a request waits.
    Away,
}

/// The requests of the next batch so far.
#[derive(Debug, Default)]
pub(super) struct Forming {
    /// How many batches were taken before.
    number: u64,
    slots: KeyMap<Slot>,
    /// The keys of requests that only read.
    reads: KeyMap<Read>,
    groups: Vec<Group>,
    /// The keys that belong in this batch to requests that were overtaken, or (false) to others.
    turns: KeyMap<bool>,
    /// The same of the next batch.
    next_turns: KeyMap<bool>,
    /// Requests that wait for the end of this batch.
    after: Vec<oneshot::Sender<Verdict>>,
    requests: usize,
    bytes: usize,
    weight: usize,
    /// How many fencing numbers the requests draw.
    draws: usize,
    /// The number beyond which they must be.
    draws_beyond: u64,
}

/// One key of the batch.
#[derive(Debug)]
struct Slot {
    group: usize,
    /// The row that the store must have.
    seen: Arc<Row>,
    is_strict: bool,
    /// The row as the requests so far leave it.
    image: Arc<Row>,
    is_written: bool,
    /// Whether the value has changed on the way.
    is_renewed: bool,
    lifetime_ms: Option<u64>,
    holder: Option<Arc<str>>,
}

/// One key of requests that only read.
#[derive(Debug)]
struct Read {
    group: usize,
    /// The row that the store must have before the batch.
    seen: Arc<Row>,
}

#[derive(Debug, Default)]
struct Group {
    /// The group that it has become a part of.
    joined: Option<usize>,
    /// Whether its keys are those of requests that only read.
    only_reads: bool,
    /// Whether its requests were overtaken before.
    was_overtaken: bool,
    waiting: Vec<oneshot::Sender<Verdict>>,
}

/// A batch that is ready to be sent, and the requests that wait for each of its groups.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// The batch's number, within this front-end.
    pub(super) number: u64,
    pub(super) batch: Batch,
    pub(super) waiting: Vec<Vec<oneshot::Sender<Verdict>>>,
    /// Requests that wait for its end.
    pub(super) after: Vec<oneshot::Sender<Verdict>>,
    pub(super) requests: usize,
}

impl Taken {
    /// Gives all requests that wait this verdict.
    pub(super) fn end(self, verdict: &Verdict) {
        let waiting = self.waiting.into_iter().flatten().chain(self.after);
        waiting.for_each(|waiting| drop(waiting.send(verdict.clone())));
    }
}

impl Forming {
    /// The batch's number, within this front-end.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// How many requests there are.
    pub(super) fn requests(&self) -> usize {
        self.requests
    }

    /// Bytes of what they write.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The row of a key as the requests so far leave it, if one of them names it.
    pub(super) fn image(&self, key: &Key) -> Option<Arc<Row>> {
        let slot = self.slots.get(key).map(|slot| &slot.image);
        slot.or_else(|| self.reads.get(key).map(|read| &read.seen)).map(Arc::clone)
    }

    /// The row of a key as it was before the batch, for a request that only reads. A row that is only read
    /// to watch it is not known.
    pub(super) fn before(&self, key: &Key) -> Option<Arc<Row>> {
        let slot = || self.slots.get(key).filter(|slot| !slot.is_strict).map(|slot| &slot.seen);
        self.reads.get(key).map(|read| &read.seen).or_else(slot).map(Arc::clone)
    }

    /// Whether a request in this seat, if it only reads, sees the rows as they were before the batch.
    pub(super) fn reads_before(&self, beside: Option<Seat>) -> bool {
        beside.is_none_or(|seat| seat.batch == self.number && self.groups[self.root(seat.group)].only_reads)
    }

    /// Whether a request only reads, and only what was so before the batch.
    fn only_reads(&self, attempt: &Attempt) -> bool {
        let is_same = |one: &Arc<Row>, other| Arc::ptr_eq(one, other) || one == other;
        attempt.is_reader
            && self.reads_before(attempt.beside)
            && attempt.parts.iter().all(|part| {
                part.written.is_none()
                    && !part.is_strict
                    && self.reads.get(&part.key).is_none_or(|read| is_same(&read.seen, &part.seen))
                    && self
                        .slots
                        .get(&part.key)
                        .is_none_or(|slot| !slot.is_written || is_same(&slot.seen, &part.seen))
            })
    }

    /// How long a key is to live from when the store writes it, if a request has asked for that.
    pub(super) fn lifetime_ms(&self, key: &Key) -> Option<u64> {
        self.slots.get(key)?.lifetime_ms
    }

    /// How many fencing numbers the batch would draw with this request.
    pub(super) fn draws_with(&self, attempt: &Attempt) -> usize {
        self.draws + attempt.draws
    }

    /// What the batch would weigh with this request.
    pub(super) fn weight_with(&self, attempt: &Attempt) -> usize {
        let is_new: &dyn Fn(&Key) -> bool = match self.only_reads(attempt) {
            true => &|key| !self.reads.contains_key(key),
            false => &|key| !self.slots.contains_key(key),
        };
        let new_keys = attempt.parts.iter().filter(|part| is_new(&part.key)).count();
        self.weight + Limits::weight(attempt.parts.len(), new_keys, attempt.beside.is_some())
    }

    /// Adds a request.
    ///
    /// # Errors
    ///
    /// [`NotJoined`]
    pub(super) fn join(&mut self, attempt: Attempt) -> Result<(Ticket, Seat), NotJoined> {
        if attempt.beside.is_some_and(|seat| seat.batch != self.number) {
            return Err(NotJoined::Left);
        }
        if self.only_reads(&attempt) {
            return Ok(self.join_reads(attempt));
        }
        let beside = attempt.beside.map(|seat| self.root(seat.group));
        let is_overtaken = |(key, read): (&Key, &Read)| {
            beside == Some(self.root(read.group))
                && self.slots.get(key).is_some_and(|slot| slot.is_written || slot.seen != read.seen)
        };
        if self.reads.iter().any(is_overtaken) {
            // The request before it has read what another one has changed in this batch.
            return Err(NotJoined::Left);
        }
        for part in &attempt.parts {
            match self.slots.get(&part.key) {
                Some(slot) if part.is_strict && (slot.is_written || slot.image != part.seen) => {
                    // Whether it is still as it was watched is known when the batch has come to its end.
                    let (sender, ticket) = oneshot::channel();
                    let group = self.root(slot.group);
                    self.groups[group].waiting.push(sender);
                    return Err(NotJoined::After(ticket));
                }
                Some(slot) if !Arc::ptr_eq(&slot.image, &part.seen) && slot.image != part.seen => {
                    return Err(NotJoined::Changed);
                }
                // It has seen the row as a batch left it that has ended meanwhile.
                None if part.seen.is_image() => return Err(NotJoined::Changed),
                _ => {}
            }
        }
        let was_overtaken = match beside {
            Some(beside) => self.groups[beside].was_overtaken,
            None => attempt.was_overtaken && attempt.parts.len() > 1,
        };
        if attempt.stood_back < STOOD_BACK_MAX && self.is_others_turn(&attempt, was_overtaken) {
            return Err(match beside {
                None => NotJoined::StandsBack(self.stand_back(&attempt, was_overtaken)),
                Some(_) => NotJoined::Left,
            });
        }
        self.bytes += attempt.bytes();
        self.weight = self.weight_with(&attempt);
        self.requests += 1;
        if let Some(beside) = beside {
            self.let_write(beside);
        }
        let mut group = attempt.beside.map(|seat| self.root(seat.group));
        for part in &attempt.parts {
            if let Some(slot) = self.slots.get(&part.key) {
                let other = self.root(slot.group);
                group = Some(group.map_or(other, |group| self.merge(group, other)));
            }
        }
        let group = group.unwrap_or_else(|| {
            self.groups.push(Group { was_overtaken, ..Group::default() });
            self.groups.len() - 1
        });
        for part in attempt.parts {
            let slot = self.slots.entry(part.key).or_insert_with(|| Slot::of(group, part.seen));
            slot.is_strict |= part.is_strict;
            if let Some(written) = part.written {
                if written.expires_at_ms() != slot.image.expires_at_ms() {
                    slot.lifetime_ms = part.lifetime_ms;
                }
                let is_same = !part.is_renewed && slot.image.keeps_tenure_in(&written);
                (slot.image, slot.is_written) = (written, true);
                if !is_same {
                    slot.is_renewed = true;
                    slot.holder = Some(Arc::clone(&attempt.holder));
                }
            }
        }
        let (sender, ticket) = oneshot::channel();
        self.groups[group].waiting.push(sender);
        let drawn = self.draws;
        self.draws += attempt.draws;
        self.draws_beyond = self.draws_beyond.max(attempt.draws_beyond);
        Ok((ticket, Seat { batch: self.number, group, drawn }))
    }

    /// Whether a key of a request is in a group of the other side, or has been left to it in this batch. What
    /// was left counts only in a batch that leaves: those to which it was left may never come.
    fn is_others_turn(&self, attempt: &Attempt, was_overtaken: bool) -> bool {
        attempt.parts.iter().any(|part| match self.slots.get(&part.key) {
            Some(slot) => self.groups[self.root(slot.group)].was_overtaken != was_overtaken,
            None => self.requests > 0 && self.turns.get(&part.key).is_some_and(|turn| *turn != was_overtaken),
        })
    }

    /// Lets the other side travel first. In the next batch, it is the turn of this one. The ticket returns
    /// when this batch has come to its end.
    fn stand_back(&mut self, attempt: &Attempt, was_overtaken: bool) -> Ticket {
        for part in &attempt.parts {
            self.next_turns.insert(part.key.clone(), was_overtaken);
        }
        let (sender, ticket) = oneshot::channel();
        self.after.push(sender);
        ticket
    }

    /// Adds a request that only reads.
    fn join_reads(&mut self, attempt: Attempt) -> (Ticket, Seat) {
        self.bytes += attempt.bytes();
        self.weight = self.weight_with(&attempt);
        self.requests += 1;
        let mut group = attempt.beside.map(|seat| self.root(seat.group));
        for part in &attempt.parts {
            if let Some(read) = self.reads.get(&part.key) {
                let other = self.root(read.group);
                group = Some(group.map_or(other, |group| self.merge(group, other)));
            }
        }
        let group = group.unwrap_or_else(|| {
            self.groups.push(Group { only_reads: true, ..Group::default() });
            self.groups.len() - 1
        });
        for part in attempt.parts {
            self.reads.entry(part.key).or_insert(Read { group, seen: part.seen });
        }
        let (sender, ticket) = oneshot::channel();
        self.groups[group].waiting.push(sender);
        (ticket, Seat { batch: self.number, group, drawn: self.draws })
    }

    /// Makes a group that has only read one that may write: a request that travels beside one of its own
    /// does. No request has changed what it has read.
    fn let_write(&mut self, group: usize) {
        if !std::mem::take(&mut self.groups[group].only_reads) {
            return;
        }
        let groups = &self.groups;
        let own: Vec<_> = self.reads.extract_if(|_, read| root_of(groups, read.group) == group).collect();
        for (key, Read { seen, .. }) in own {
            let other = self.slots.entry(key).or_insert_with(|| Slot::of(group, seen)).group;
            let (group, other) = (self.root(group), self.root(other));
            self.merge(group, other);
        }
    }

    /// The group that a group has become a part of.
    fn root(&self, group: usize) -> usize {
        root_of(&self.groups, group)
    }

    /// Makes two groups one.
    fn merge(&mut self, one: usize, other: usize) -> usize {
        if one == other {
            return one;
        }
        let waiting = std::mem::take(&mut self.groups[other].waiting);
        self.groups[other].joined = Some(one);
        self.groups[one].waiting.extend(waiting);
        one
    }

    /// Lets those who read a single key share the group of those who write it, so that the key is in the
    /// batch once.
    fn fold_reads(&mut self) {
        if self.reads.is_empty() || self.slots.is_empty() {
            return;
        }
        let mut keys: HashMap<usize, usize> = HashMap::new();
        for read in self.reads.values() {
            *keys.entry(self.root(read.group)).or_default() += 1;
        }
        let Forming { reads, slots, groups, .. } = self;
        reads.retain(|key, read| {
            let root = root_of(groups, read.group);
            let Some(slot) = slots.get(key).filter(|slot| !slot.is_strict && slot.seen == read.seen) else {
                return true;
            };
            if keys[&root] > 1 {
                return true;
            }
            let other = root_of(groups, slot.group);
            let waiting = std::mem::take(&mut groups[root].waiting);
            groups[root].joined = Some(other);
            groups[other].waiting.extend(waiting);
            false
        });
    }

    /// Takes the batch, and begins the next one.
    pub(super) fn take(&mut self) -> Taken {
        let turns = std::mem::take(&mut self.next_turns);
        let next = Forming { number: self.number + 1, turns, ..Forming::default() };
        self.fold_reads();
        let Forming { number, slots, reads, mut groups, after, requests, draws, draws_beyond, .. } =
            std::mem::replace(self, next);
        let mut numbers = HashMap::new();
        let mut taken = Taken { number, after, requests, ..Taken::default() };
        let mut number_of = |group: usize, waiting: &mut Vec<_>| {
            let root = root_of(&groups, group);
            *numbers.entry(root).or_insert_with(|| {
                waiting.push(std::mem::take(&mut groups[root].waiting));
                waiting.len() - 1
            })
        };
        // Of a key that is there twice, what is only read comes first.
        for (key, Read { group, seen }) in reads {
            let group = number_of(group, &mut taken.waiting);
            taken.batch.parts.push(Part {
                key,
                group,
                seen,
                is_strict: false,
                written: None,
                is_renewed: false,
                lifetime_ms: None,
                holder: None,
            });
        }
        for (key, slot) in slots {
            let group = number_of(slot.group, &mut taken.waiting);
            taken.batch.parts.push(Part {
                key,
                group,
                seen: slot.seen,
                is_strict: slot.is_strict,
                written: slot.is_written.then_some(slot.image),
                is_renewed: slot.is_renewed,
                lifetime_ms: slot.lifetime_ms,
                holder: slot.holder,
            });
        }
        // Every front-end locks rows in this order. Sorting is stable.
        taken.batch.parts.sort_by_cached_key(|part| (part.key.slot(), part.key.clone()));
        taken.batch = Batch { groups: taken.waiting.len(), draws, draws_beyond, ..taken.batch };
        taken
    }
}

impl Slot {
    /// Of a key that no request has changed.
    fn of(group: usize, seen: Arc<Row>) -> Slot {
        Slot {
            group,
            image: Arc::clone(&seen),
            seen,
            is_strict: false,
            is_written: false,
            is_renewed: false,
            lifetime_ms: None,
            holder: None,
        }
    }
}

/// The group that a group has become a part of.
fn root_of(groups: &[Group], mut group: usize) -> usize {
    while let Some(joined) = groups[group].joined {
        group = joined;
    }
    group
}

/// The keys of the batch that is under way, and the requests that wait for its end.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    number: Option<u64>,
    keys: KeySet,
    /// Those of which other front-ends have sent news meanwhile: what the store says of them may be older.
    outdated: KeySet,
    waiting: Vec<oneshot::Sender<Verdict>>,
}

impl InFlight {
    /// Notes that a batch is sent.
    pub(super) fn note_sent(&mut self, taken: &mut Taken) {
        self.number = Some(taken.number);
        self.keys = taken.batch.parts.iter().map(|part| part.key.clone()).collect();
        self.waiting.append(&mut taken.after);
    }

    /// The number of the batch that is under way, if one is.
    pub(super) fn number(&self) -> Option<u64> {
        self.number
    }

    /// Notes news of a key from another front-end.
    pub(super) fn note_changed(&mut self, key: &Key) {
        if self.keys.contains(key) {
            self.outdated.insert(key.clone());
        }
    }

    /// Takes the keys of which news have come since the batch was sent.
    pub(super) fn take_outdated(&mut self) -> KeySet {
        std::mem::take(&mut self.outdated)
    }

    /// Notes that the batch has ended.
    pub(super) fn end(&mut self) {
        self.number = None;
        self.keys.clear();
        self.outdated.clear();
        self.give_up(&Verdict::Again);
    }

    /// How many requests wait for its end.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// A promise of the batch's end, if one of these keys is in the batch.
    pub(super) fn wait_for<'k>(&mut self, mut keys: impl Iterator<Item = &'k Key>) -> Option<Ticket> {
        if self.keys.is_empty() || !keys.any(|key| self.keys.contains(key)) {
            return None;
        }
        Some(self.wait())
    }

    /// A promise of the end of the batch that is under way, or else of the next one.
    pub(super) fn wait(&mut self) -> Ticket {
        let (sender, ticket) = oneshot::channel();
        self.waiting.push(sender);
        ticket
    }

    /// Gives all requests that wait this verdict.
    pub(super) fn give_up(&mut self, verdict: &Verdict) {
        for waiting in self.waiting.drain(..) {
            let _ = waiting.send(verdict.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::remote::batch::AttemptPart;
    use crate::remote::row::Live;

    fn row(version: i64, value: &'static str) -> Arc<Row> {
        let live = Live {
            kind: 0,
            value: Bytes::from_static(value.as_bytes()),
            expires_at_ms: None,
            is_lock: false,
        };
        Arc::new(Row { version, live: Some(live), ..Row::default() })
    }

    fn part(key: &str, seen: &Arc<Row>, written: Option<&Arc<Row>>) -> AttemptPart {
        let (key, seen) = (Key::new(0, key.as_bytes()), Arc::clone(seen));
        let (is_strict, is_renewed) = (false, false);
        AttemptPart { key, seen, is_strict, written: written.cloned(), is_renewed, lifetime_ms: None }
    }

    fn attempt(parts: Vec<AttemptPart>, is_reader: bool, beside: Option<Seat>) -> Attempt {
        let (holder, was_overtaken, stood_back) = ("".into(), false, 0);
        Attempt { parts, holder, is_reader, beside, was_overtaken, stood_back, draws: 0, draws_beyond: 0 }
    }

    #[test]
    fn requests_that_share_a_key_are_one_group_and_the_store_writes_it_once() {
        let mut forming = Forming::default();
        let (absent, one, two) = (Row::absent(), row(0, "1"), row(0, "2"));
        let mut join = |parts| forming.join(attempt(parts, false, None)).map(|(_, seat)| seat);
        assert!(join(vec![part("a", &absent, Some(&one))]).is_ok());
        assert!(join(vec![part("b", &absent, Some(&one))]).is_ok());
        assert!(join(vec![part("c", &absent, None)]).is_ok());
        assert!(matches!(join(vec![part("a", &absent, Some(&two))]), Err(NotJoined::Changed)));
        assert!(join(vec![part("a", &one, Some(&two)), part("b", &one, None)]).is_ok());
        let Taken { batch, waiting, requests, .. } = forming.take();
        let mut parts: Vec<_> = batch.parts.iter().collect();
        parts.sort_by_key(|part| &part.key);
        let names: Vec<_> = parts.iter().map(|part| part.key.name.to_vec()).collect();
        assert_eq!(
            (names, requests, batch.groups),
            (vec![b"a".to_vec(), b"b".to_vec(), b"c".to_vec()], 4, 2)
        );
        assert_eq!(parts[0].group, parts[1].group);
        assert_eq!((parts[0].seen.version, &parts[0].written), (0, &Some(two)));
        assert_eq!(waiting[parts[0].group].len(), 3);
        assert_eq!(forming.requests(), 0);
    }

    #[test]
    fn a_row_as_a_batch_would_leave_it_is_no_guess_for_the_next_one() {
        let mut forming = Forming::default();
        let (absent, one, two) = (Row::absent(), row(0, "1"), row(0, "2"));
        assert!(forming.join(attempt(vec![part("a", &absent, Some(&one))], false, None)).is_ok());
        let seen = forming.image(&Key::new(0, b"a")).expect("a row");
        forming.take();
        let late = forming.join(attempt(vec![part("a", &seen, Some(&two))], false, None));
        assert!(matches!(late, Err(NotJoined::Changed)), "the store may have another row, or none");
    }

    #[test]
    fn requests_that_only_read_are_in_no_group_with_those_that_write() {
        let mut forming = Forming::default();
        let (absent, one, two) = (Row::absent(), row(1, "1"), row(0, "2"));
        let join = |forming: &mut Forming, attempt| forming.join(attempt).map(|(_, seat)| seat);
        let wide = |quiet| vec![part("busy", &absent, None), part("quiet", quiet, None)];
        let seat = join(&mut forming, attempt(wide(&one), true, None)).expect("a seat");
        join(&mut forming, attempt(vec![part("quiet", &one, Some(&two))], false, None)).expect("a seat");
        // It still sees the row as it was before the batch, and one that reads a single key, too.
        let key = |name: &str| Key::new(0, name.as_bytes());
        assert_eq!(forming.before(&key("quiet")), Some(Arc::clone(&one)));
        assert_eq!(forming.image(&key("quiet")), Some(Arc::clone(&two)));
        join(&mut forming, attempt(wide(&one), true, None)).expect("a seat");
        // What was read has been changed by another request: this one may not write beside.
        let late = join(&mut forming, attempt(vec![part("own", &absent, Some(&one))], false, Some(seat)));
        assert!(matches!(late, Err(NotJoined::Left)));
        let Taken { batch, waiting, requests, .. } = forming.take();
        assert_eq!((batch.parts.len(), batch.groups, requests), (3, 2, 3));
        let quiet: Vec<_> = batch.parts.iter().filter(|part| part.key == key("quiet")).collect();
        assert!(quiet[0].written.is_none() && quiet[1].written.is_some(), "what is read comes first");
        assert_eq!((waiting[quiet[0].group].len(), waiting[quiet[1].group].len()), (2, 1));
        // A single key is in the batch once, and a request may write beside one that has read.
        let seat = join(&mut forming, attempt(vec![part("a", &one, None)], true, None)).expect("a seat");
        join(&mut forming, attempt(vec![part("a", &one, Some(&two))], false, None)).expect("a seat");
        assert!(join(&mut forming, attempt(vec![part("b", &one, None)], true, Some(seat))).is_ok());
        let seat = join(&mut forming, attempt(vec![part("c", &one, None)], true, None)).expect("a seat");
        join(&mut forming, attempt(vec![part("d", &one, Some(&two))], false, Some(seat))).expect("a seat");
        join(&mut forming, attempt(vec![part("e", &one, None)], true, None)).expect("a seat");
        join(&mut forming, attempt(vec![part("e", &one, Some(&two))], false, None)).expect("a seat");
        let Taken { batch, .. } = forming.take();
        let count = |name: &str| batch.parts.iter().filter(|part| part.key == key(name)).count();
        assert_eq!(["a", "b", "c", "d", "e"].map(count), [2, 1, 1, 1, 1]);
        assert_eq!(batch.groups, 4);
    }

    #[test]
    fn a_request_beside_another_one_weighs_as_much_as_a_key_of_a_larger_group() {
        let mut forming = Forming::default();
        let attempt = |key, beside| {
            let parts = vec![part(key, &Row::absent(), Some(&row(0, "1")))];
            attempt(parts, false, beside)
        };
        assert_eq!(forming.weight_with(&attempt("a", None)), 1);
        let (_ticket, seat) = forming.join(attempt("a", None)).expect("a seat");
        assert_eq!(forming.weight_with(&attempt("b", Some(seat))), 3);
        assert!(forming.join(attempt("b", Some(seat))).is_ok());
        assert_eq!(forming.take().batch.groups, 1);
        let late = forming.join(attempt("c", Some(seat)));
        assert!(matches!(late, Err(NotJoined::Left)), "the batch has left");
    }

    #[test]
    fn requests_that_were_overtaken_travel_by_turns_with_those_that_were_not() {
        let mut forming = Forming::default();
        let one = row(0, "1");
        // A request that writes these keys, on the rows as they are so far.
        let join = |forming: &mut Forming, keys: &[&str], was_overtaken, stood_back| {
            let parts = keys.iter().map(|key| {
                let seen = forming.image(&Key::new(0, key.as_bytes())).unwrap_or_else(Row::absent);
                part(key, &seen, Some(&one))
            });
            let attempt = attempt(parts.collect(), false, None);
            match forming.join(Attempt { was_overtaken, stood_back, ..attempt }) {
                Ok(_) => true,
                Err(NotJoined::StandsBack(_)) => false,
                Err(why) => panic!("{why:?}"),
            }
        };
        let wide = ["busy", "quiet"];
        // The first one has the key, and the other one the next batch.
        assert!(join(&mut forming, &["quiet"], false, 0));
        assert!(!join(&mut forming, &wide, true, 0));
        let taken = forming.take();
        assert_eq!((taken.batch.parts.len(), taken.batch.groups, taken.after.len()), (1, 1, 1));
        // Others may travel, but do not take the key that was left to it.
        assert!(join(&mut forming, &["another"], false, 0));
        assert!(!join(&mut forming, &["quiet"], false, 0));
        assert!(join(&mut forming, &wide, true, 1));
        assert!(join(&mut forming, &["busy", "own"], true, 0), "those that were overtaken share a group");
        assert!(!join(&mut forming, &["busy"], false, 0));
        assert_eq!(forming.take().batch.groups, 2);
        assert!(join(&mut forming, &["quiet"], false, 1));
        assert!(!join(&mut forming, &wide, true, 1));
        forming.take();
        // No request waits for one that never comes, or stands back for ever.
        assert!(join(&mut forming, &["quiet"], false, 0), "the batch was empty");
        assert!(join(&mut forming, &["single"], true, 0), "it is in no danger but that of its only key");
        assert!(join(&mut forming, &["single", "quiet", "busy"], true, STOOD_BACK_MAX));
        assert_eq!(forming.take().batch.groups, 1);
    }
}
