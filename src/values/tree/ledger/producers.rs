//! Producers that name their messages: a message that is sent twice is added once.
//!
//! A producer has a name, and so has each of its messages (XADD IDMP). The ledger remembers the last messages
//! of each producer with the IDs that they got, up to a number and an age. Three indexes have them: by the
//! hash of both names, to find a message; by producer and number, to find the one that a producer has had for
//! the longest time; by ID, to find those whose time is over. The time of a message is that of its ID.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::ops::{Range, RangeInclusive};
use std::sync::LazyLock;

use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128_with_seed};

use super::super::remains::Remains;
use super::super::sequence::Sequence;
use super::id::EntryId;
use crate::allocator::taken_bytes;

/// The seed of the hashes of names. It is random, so clients cannot choose names whose hashes are alike.
static SEED: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(1));

/// For how many seconds messages may be remembered.
pub(crate) const SECONDS: RangeInclusive<u64> = 1..=86_400;
/// How many messages of a producer may be remembered.
pub(crate) const MESSAGES: RangeInclusive<u64> = 1..=10_000;
/// Messages whose time is over that leave with each change at most.
const FORGOTTEN_AT_ONCE_MAX: usize = 1000;

/// What producers have added.
#[derive(Debug)]
pub struct Producers {
    /// For how many seconds a message is remembered, from [`SECONDS`].
    pub seconds: u64,
    /// How many messages of a producer are remembered, from [`MESSAGES`].
    pub messages_max: u64,
    /// How many messages were ever remembered.
    pub added: u64,
    /// How many messages were not added because they had been.
    pub repeated: u64,
    /// Hash of both names, ID.
    by_name: Sequence,
    /// Hash of the producer's name, number, ID, hash of both names, length of the producer's name, the names.
    by_producer: Sequence,
    /// ID, hash of the producer's name, number.
    by_id: Sequence,
    producers: usize,
    /// The number of the next message.
    next: u64,
}

/// A message that is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'p> {
    /// The name of its producer.
    pub producer: &'p [u8],
    /// Its own name.
    pub name: &'p [u8],
    /// The ID that it got.
    pub id: EntryId,
}

type ProducerHash = [u8; 8];
type NameHash = [u8; 16];
/// The hash of a producer's name, and the number of a message.
type Position = [u8; 16];

impl Default for Producers {
    fn default() -> Producers {
        /// Redis: stream-idmp-duration and stream-idmp-maxsize.
        const DEFAULT: u64 = 100;
        Producers {
            seconds: DEFAULT,
            messages_max: DEFAULT,
            added: 0,
            repeated: 0,
            by_name: Sequence::new(),
            by_producer: Sequence::new(),
            by_id: Sequence::new(),
            producers: 0,
            next: 0,
        }
    }
}

impl Clone for Producers {
    fn clone(&self) -> Producers {
        Producers {
            by_name: self.by_name.share(),
            by_producer: self.by_producer.share(),
            by_id: self.by_id.share(),
            ..*self
        }
    }
}

impl<'p> Message<'p> {
    fn producer_hash(&self) -> ProducerHash {
        xxh3_64_with_seed(self.producer, *SEED).to_be_bytes()
    }

    fn name_hash(&self) -> NameHash {
        let seed = xxh3_64_with_seed(self.producer, *SEED);
        xxh3_128_with_seed(self.name, seed).to_be_bytes()
    }

    fn of_record(record: &'p [u8]) -> Option<Message<'p>> {
        let rest = record.get(size_of::<Position>()..)?;
        let id = EntryId::of_record(rest);
        let rest = rest.get(EntryId::BYTES + size_of::<NameHash>()..)?;
        let (len, names) = rest.split_first_chunk()?;
        let (producer, name) = names.split_at_checked(u64::from_le_bytes(*len) as usize)?;
        Some(Message { producer, name, id })
    }
}

/// The positions of the records that begin with some bytes.
fn beginning_with(records: &Sequence, bytes: &[u8]) -> Range<usize> {
    let (Ok(start) | Err(start)) = records.search(bytes);
    let mut behind = bytes.to_vec();
    while behind.pop_if(|last| *last == u8::MAX).is_some() {}
    let Some(last) = behind.last_mut() else { return start..records.len() };
    *last += 1;
    let (Ok(end) | Err(end)) = records.search(&behind);
    start..end
}

fn insert(records: &mut Sequence, record: &[u8]) {
    if let Err(at) = records.search(record) {
        records.insert(at, record);
    }
}

fn remove(records: &mut Sequence, record: &[u8]) {
    if let Ok(at) = records.search(record) {
        drop(records.remove(at..at + 1));
    }
}

impl Producers {
    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        let indexes = self.by_name.bytes() + self.by_producer.bytes() + self.by_id.bytes();
        taken_bytes(size_of::<Producers>()) + indexes
    }

    /// The ID that a message got, if it is remembered.
    pub fn find(&self, producer: &[u8], name: &[u8], now_ms: u64) -> Option<EntryId> {
        let hash = Message { producer, name, id: EntryId::ZERO }.name_hash();
        let found = self.by_name.get(beginning_with(&self.by_name, &hash).next()?)?;
        let id = EntryId::of_record(&found[hash.len()..]);
        (id > self.over(now_ms)).then_some(id)
    }

    /// Remembers a message that is not remembered yet, and forgets the oldest one of its producer if there
    /// are too many, and some whose time is over.
    pub fn add(&mut self, producer: &[u8], name: &[u8], id: EntryId, now_ms: u64) {
        self.forget_old(now_ms);
        self.append(producer, name, id);
        self.added = self.added.saturating_add(1);
        let hash = Message { producer, name, id }.producer_hash();
        let own = beginning_with(&self.by_producer, &hash);
        if own.len() as u64 > self.messages_max {
            self.forget_at(own.start);
        }
    }

    /// Appends a message as a file has it. Returns false if it is there already.
    pub fn append(&mut self, producer: &[u8], name: &[u8], id: EntryId) -> bool {
        let message = Message { producer, name, id };
        let (producer_hash, name_hash) = (message.producer_hash(), message.name_hash());
        if !beginning_with(&self.by_name, &name_hash).is_empty() {
            return false;
        }
        if beginning_with(&self.by_producer, &producer_hash).is_empty() {
            self.producers += 1;
        }
        let (id, len) = (id.to_bytes(), (producer.len() as u64).to_le_bytes());
        let position = [producer_hash, self.next.to_be_bytes()].concat();
        self.next += 1;
        insert(&mut self.by_name, &[&name_hash[..], &id].concat());
        insert(&mut self.by_id, &[&id[..], &position].concat());
        insert(&mut self.by_producer, &[&position[..], &id, &name_hash, &len, producer, name].concat());
        true
    }

    /// The last ID whose time is over.
    fn over(&self, now_ms: u64) -> EntryId {
        let ms = now_ms.saturating_sub(self.seconds.saturating_mul(1000));
        EntryId { ms, seq: u64::MAX }
    }

    /// Forgets messages whose time is over, some at a time.
    fn forget_old(&mut self, now_ms: u64) {
        let over = self.over(now_ms);
        for _ in 0..FORGOTTEN_AT_ONCE_MAX {
            let oldest = self.by_id.get(0).filter(|oldest| EntryId::of_record(oldest) <= over);
            let Some((_, position)) = oldest.and_then(|oldest| oldest.split_first_chunk::<16>()) else {
                break;
            };
            match beginning_with(&self.by_producer, position).next() {
                Some(at) => self.forget_at(at),
                None => drop(self.by_id.remove(0..1)),
            }
        }
    }

    /// Forgets the message at a position of the index by producers.
    fn forget_at(&mut self, at: usize) {
        let Some(record) = self.by_producer.get(at) else { return };
        let Some((position, rest)) = record.split_first_chunk::<{ size_of::<Position>() }>() else { return };
        let Some((id, rest)) = rest.split_first_chunk::<{ EntryId::BYTES }>() else { return };
        let Some((name_hash, _)) = rest.split_first_chunk::<{ size_of::<NameHash>() }>() else { return };
        let (position, id, name_hash) = (*position, *id, *name_hash);
        drop(self.by_producer.remove(at..at + 1));
        remove(&mut self.by_name, &[&name_hash[..], &id].concat());
        remove(&mut self.by_id, &[&id[..], &position].concat());
        if beginning_with(&self.by_producer, &position[..size_of::<ProducerHash>()]).is_empty() {
            self.producers -= 1;
        }
    }

    /// Forgets all messages; returns what is to be freed.
    pub fn forget(&mut self) -> Remains {
        self.producers = 0;
        let mut remains = self.by_name.clear();
        remains.append(self.by_producer.clear());
        remains.append(self.by_id.clear());
        remains
    }

    /// The number of messages whose time is not over.
    pub fn messages_count(&self, now_ms: u64) -> usize {
        let (Ok(at) | Err(at)) =
            self.by_id.search(&EntryId { ms: self.over(now_ms).ms + 1, seq: 0 }.to_bytes());
        self.by_id.len() - at
    }

    /// The number of producers that have such messages.
    pub fn producers_count(&self, now_ms: u64) -> usize {
        let old = self.by_id.len() - self.messages_count(now_ms);
        let mut over = BTreeMap::<&[u8], usize>::new();
        for record in self.by_id.range(0..old.min(10 * FORGOTTEN_AT_ONCE_MAX)) {
            let producer = record.get(EntryId::BYTES..EntryId::BYTES + size_of::<ProducerHash>());
            *over.entry(producer.unwrap_or_default()).or_default() += 1;
        }
        let has_none =
            |(producer, over): &(&[u8], usize)| beginning_with(&self.by_producer, producer).len() == *over;
        self.producers - over.into_iter().filter(has_none).count()
    }

    /// Whether there is nothing that a new stream has not.
    pub fn is_new(&self) -> bool {
        let new = Producers::default();
        let own = (self.seconds, self.messages_max, self.added, self.repeated, self.by_id.len());
        own == (new.seconds, new.messages_max, 0, 0, 0)
    }

    /// The number of producers, whether their time is over or not.
    pub fn len(&self) -> usize {
        self.producers
    }

    /// Whether there are no producers.
    pub fn is_empty(&self) -> bool {
        self.producers == 0
    }

    /// The number of a producer's messages.
    pub fn messages_of(&self, producer: &[u8]) -> usize {
        let hash = Message { producer, name: b"", id: EntryId::ZERO }.producer_hash();
        beginning_with(&self.by_producer, &hash).len()
    }

    /// All messages, those of a producer behind each other and the oldest one first.
    pub fn messages(&self) -> impl Iterator<Item = Message<'_>> {
        self.by_producer.range(0..self.by_producer.len()).filter_map(Message::of_record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(ms: u64) -> EntryId {
        EntryId { ms, seq: 0 }
    }

    #[test]
    fn each_producer_keeps_its_last_messages_and_none_for_too_long() {
        let mut producers = Producers { messages_max: 3, seconds: 1, ..Producers::default() };
        for ms in 1..=5 {
            producers.add(b"a", &[ms as u8], id(ms), ms);
        }
        producers.add(b"b", &[5], id(6), 6);
        let found = |producers: &Producers, name: u8, now_ms| producers.find(b"a", &[name], now_ms);
        assert_eq!(
            [1, 2, 3, 5].map(|name| found(&producers, name, 6)),
            [None, None, Some(id(3)), Some(id(5))]
        );
        assert_eq!((producers.messages_count(6), producers.producers_count(6), producers.len()), (4, 2, 2));
        assert_eq!([&b"a"[..], b"b", b"c"].map(|producer| producers.messages_of(producer)), [3, 1, 0]);
        let copy = producers.clone();
        // A second later those up to 4 are over.
        assert_eq!([4, 5].map(|name| found(&producers, name, 1004)), [None, Some(id(5))]);
        assert_eq!((producers.messages_count(1004), producers.producers_count(1005)), (2, 1));
        producers.add(b"c", b"x", id(1010), 1010);
        assert_eq!((producers.messages().count(), producers.len(), producers.added), (1, 1, 7));
        assert_eq!((copy.messages().count(), copy.len()), (4, 2));
        let mut remains = producers.forget();
        while !remains.free_some(100) {}
        assert_eq!((producers.messages().next(), producers.len()), (None, 0));
    }
}
