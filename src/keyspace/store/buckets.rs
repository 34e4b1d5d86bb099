//! Finds entries by the hashes of their keys, in buckets of one cache line each.
//!
//! A bucket has room for seven entries, and it stores eight bits of the hash of each. So one read of memory
//! selects the entry, and a second one reads it. A table that stores these bits apart from the entries needs
//! three reads, and with many keys each read waits some hundred nanoseconds. Compared with hashbrown at a
//! million keys: commands that come one by one take 0.95 to 0.99 of the processor time, and inserting a key
//! takes 0.6 of the time in user space. A key takes 6 bytes less, because a table grows by a third or a half,
//! not to its double.
//!
//! If its bucket is full, an entry goes to the next one. Each bucket counts the entries that have passed over
//! it, so a search stops at a bucket with a count of zero. Entries keep their places until the table has too
//! many or too few of them. Then the table lays them all out anew.

use crate::keyspace::store::entry::Entry;

/// Entries of a bucket.
const SLOTS: usize = 7;
/// Places of a bucket. The last one is always empty.
const PLACES: usize = SLOTS + 1;
/// The most entries for each bucket, on the average of all buckets. With seven, entries would pass over half
/// of the buckets.
const LOAD_MAX: usize = 6;
/// The largest count of entries that have passed over a bucket. A count that reaches it stays there.
const MANY: u8 = u8::MAX;

/// Entries, found by the hashes of their keys.
#[derive(Debug, Default)]
pub(in crate::keyspace) struct Buckets {
    buckets: Box<[Bucket]>,
    len: usize,
}

#[derive(Debug, Default)]
#[repr(C, align(64))]
struct Bucket {
    /// The tag of each entry is eight bits of its hash; 0 marks a free slot. The last byte is no tag: it
    /// counts the entries that found this bucket full.
    tags: [u8; PLACES],
    entries: [Option<Entry>; SLOTS],
}

impl Bucket {
    /// The slots with a tag, as the highest bits of bytes. Behind a slot with the tag, a slot without it may
    /// be set, too.
    #[inline(always)]
    fn slots_with(&self, tag: u8) -> Slots {
        const ONES: u64 = 0x0101_0101_0101_0101;
        const OF_SLOTS: u64 = 0x0080_8080_8080_8080;
        let differing = u64::from_le_bytes(self.tags) ^ (ONES * u64::from(tag));
        Slots(differing.wrapping_sub(ONES) & !differing & OF_SLOTS)
    }

    /// How many entries have found this bucket full. [`MANY`] means that many or more.
    #[inline(always)]
    fn passed_over(&mut self) -> &mut u8 {
        &mut self.tags[SLOTS]
    }
}

/// Slots that the search has yet to look at.
struct Slots(u64);

impl Iterator for Slots {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        let slot = self.0.trailing_zeros() as usize / 8;
        self.0 &= self.0.wrapping_sub(1);
        (slot < SLOTS).then_some(slot)
    }
}

/// The bits of a hash that a bucket keeps. They are not the bits that choose the bucket.
#[inline(always)]
fn tag_of(hash: u64) -> u8 {
    ((hash >> 56) as u8).max(1)
}

/// The next larger number of buckets.
fn buckets_after(count: usize) -> usize {
    match count {
        0 | 1 => count + 1,
        _ if count.is_power_of_two() => count / 2 * 3,
        _ => count / 3 * 4,
    }
}

impl Buckets {
    /// The capacity of the smallest table that is not empty.
    pub(in crate::keyspace) const CAPACITY_MIN: usize = SLOTS;

    /// How many entries there are.
    #[inline]
    pub(in crate::keyspace) fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no entries.
    pub(in crate::keyspace) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many entries there may be before the table lays them all out anew.
    pub(in crate::keyspace) fn capacity(&self) -> usize {
        capacity_of(self.buckets.len())
    }

    /// Bytes of the buckets, without the allocations of the entries.
    pub(in crate::keyspace) fn allocation_size(&self) -> usize {
        size_of_val(&*self.buckets)
    }

    /// How many places there are, numbered from 0. Many are empty.
    pub(in crate::keyspace) fn places(&self) -> usize {
        self.buckets.len() * PLACES
    }

    /// The entry at a place, if there is one.
    #[inline(always)]
    pub(in crate::keyspace) fn get(&self, place: usize) -> Option<&Entry> {
        self.buckets.get(place / PLACES)?.entries.get(place % PLACES)?.as_ref()
    }

    /// The entry at a place, to be changed. While its key stays, so does its place.
    #[inline(always)]
    pub(in crate::keyspace) fn get_mut(&mut self, place: usize) -> Option<&mut Entry> {
        self.buckets.get_mut(place / PLACES)?.entries.get_mut(place % PLACES)?.as_mut()
    }

    /// The place of the entry with this hash for which `is_meant` returns true.
    #[inline(always)]
    pub(in crate::keyspace) fn find(
        &self,
        hash: u64,
        mut is_meant: impl FnMut(&Entry) -> bool,
    ) -> Option<usize> {
        let mut number = self.home(hash);
        // If entries have passed over every bucket, the search stops after one round.
        for _ in 0..self.buckets.len() {
            let bucket = &self.buckets[number];
            for slot in bucket.slots_with(tag_of(hash)) {
                if bucket.entries[slot].as_ref().is_some_and(&mut is_meant) {
                    return Some(number * PLACES + slot);
                }
            }
            if bucket.tags[SLOTS] == 0 {
                return None;
            }
            number = self.next(number);
        }
        None
    }

    /// Inserts an entry whose key is absent. If there is no room, the table lays all entries out anew.
    pub(in crate::keyspace) fn insert(&mut self, hash: u64, entry: Entry, rehash: impl Fn(&Entry) -> u64) {
        if self.len == self.capacity() {
            self.lay_out(buckets_after(self.buckets.len()), rehash);
        }
        self.place(hash, entry);
    }

    /// Removes the entry at a place, and returns it.
    pub(in crate::keyspace) fn remove(&mut self, hash: u64, place: usize) -> Option<Entry> {
        let Bucket { tags, entries } = self.buckets.get_mut(place / PLACES)?;
        let entry = entries.get_mut(place % PLACES)?.take()?;
        tags[place % PLACES] = 0;
        self.len -= 1;
        let mut number = self.home(hash);
        while number != place / PLACES {
            let passed_over = self.buckets[number].passed_over();
            if *passed_over < MANY {
                *passed_over -= 1;
            }
            number = self.next(number);
        }
        Some(entry)
    }

    /// Removes every entry for which `stays` returns false, and passes it to `gone`.
    pub(in crate::keyspace) fn retain(
        &mut self,
        hash: impl Fn(&Entry) -> u64,
        mut stays: impl FnMut(&Entry) -> bool,
        mut gone: impl FnMut(Entry),
    ) {
        for place in 0..self.places() {
            if let Some(entry) = self.get(place)
                && !stays(entry)
            {
                let hash = hash(entry);
                self.remove(hash, place).into_iter().for_each(&mut gone);
            }
        }
    }

    /// Lays all entries out anew, in the fewest buckets that have room for `len` entries.
    pub(in crate::keyspace) fn shrink_to(&mut self, len: usize, rehash: impl Fn(&Entry) -> u64) {
        let sizes = std::iter::successors(Some(0), |count| Some(buckets_after(*count)));
        let mut fitting = sizes.skip_while(|count| capacity_of(*count) < len.max(self.len));
        let count = fitting.next().unwrap_or(self.buckets.len());
        if count < self.buckets.len() {
            self.lay_out(count, rehash);
        }
    }

    /// All entries, in no particular order.
    pub(in crate::keyspace) fn iter(&self) -> impl Iterator<Item = &Entry> + Clone {
        self.buckets.iter().flat_map(|bucket| bucket.entries.iter().flatten())
    }

    /// The bucket where the search for a hash begins.
    #[inline(always)]
    fn home(&self, hash: u64) -> usize {
        // The low half of the hash, as a fraction of the number of buckets, which need not be a power of two.
        ((u64::from(hash as u32) * self.buckets.len() as u64) >> 32) as usize
    }

    /// The bucket behind another one.
    #[inline(always)]
    fn next(&self, number: usize) -> usize {
        if number + 1 < self.buckets.len() { number + 1 } else { 0 }
    }

    /// Puts an entry into the first free slot. The caller has made sure that there is one.
    fn place(&mut self, hash: u64, entry: Entry) {
        let mut number = self.home(hash);
        loop {
            let bucket = &mut self.buckets[number];
            if let Some(slot) = bucket.entries.iter().position(Option::is_none) {
                bucket.tags[slot] = tag_of(hash);
                bucket.entries[slot] = Some(entry);
                self.len += 1;
                return;
            }
            *bucket.passed_over() = bucket.passed_over().saturating_add(1);
            number = self.next(number);
        }
    }

    #[cold]
    fn lay_out(&mut self, count: usize, hash: impl Fn(&Entry) -> u64) {
        /// How many buckets ahead the processor fetches the entries whose keys must be hashed.
        const AHEAD: usize = 4;
        let empty = (0..count).map(|_| Bucket::default()).collect();
        let mut full = std::mem::replace(&mut self.buckets, empty);
        self.len = 0;
        for number in 0..full.len() {
            let ahead = full.get(number + AHEAD).into_iter().flat_map(|bucket| bucket.entries.iter());
            ahead.flatten().for_each(Entry::prefetch);
            for entry in full[number].entries.iter_mut().filter_map(Option::take) {
                self.place(hash(&entry), entry);
            }
        }
    }
}

/// How many entries this many buckets may hold.
fn capacity_of(buckets: usize) -> usize {
    // A single bucket may be full: an entry cannot pass over it.
    if buckets == 1 { SLOTS } else { buckets * LOAD_MAX }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: u64) -> Entry {
        Entry::new(&number.to_ne_bytes(), b"value", None)
    }

    fn number(entry: &Entry) -> u64 {
        u64::from_ne_bytes(entry.key().try_into().unwrap())
    }

    /// A hash whose bits are all useful.
    fn good(entry: &Entry) -> u64 {
        let mixed = number(entry).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9).rotate_left(31)
    }

    /// Hashes of which many are equal.
    fn poor(entry: &Entry) -> u64 {
        ((number(entry) % 3) << 56) | (number(entry) % 5)
    }

    fn filled(numbers: std::ops::Range<u64>, hash: fn(&Entry) -> u64) -> Buckets {
        let mut buckets = Buckets::default();
        for number in numbers {
            let entry = entry(number);
            buckets.insert(hash(&entry), entry, hash);
        }
        buckets
    }

    fn place_of(buckets: &Buckets, wanted: u64, hash: fn(&Entry) -> u64) -> Option<usize> {
        buckets.find(hash(&entry(wanted)), |entry| number(entry) == wanted)
    }

    #[cfg(not(feature = "shuttle"))]
    #[test]
    fn a_bucket_is_a_cache_line() {
        assert_eq!((size_of::<Bucket>(), align_of::<Bucket>()), (64, 64));
    }

    #[test]
    fn inserted_entries_are_found_and_no_others() {
        for hash in [good, poor] {
            let buckets = filled(0..2000, hash);
            assert_eq!((buckets.len(), buckets.iter().count()), (2000, 2000));
            for wanted in 0..2000 {
                let place = place_of(&buckets, wanted, hash).expect("it is there");
                assert_eq!(buckets.get(place).map(number), Some(wanted));
            }
            assert!((2000..3000).all(|absent| place_of(&buckets, absent, hash).is_none()));
        }
        assert!(Buckets::default().find(7, |_| true).is_none());
        assert!(Buckets::default().get(0).is_none() && Buckets::default().get(usize::MAX).is_none());
    }

    #[test]
    fn a_removal_moves_no_other_entry() {
        for hash in [good, poor] {
            let mut buckets = filled(0..2000, hash);
            let places: Vec<_> = (0..2000).map(|wanted| place_of(&buckets, wanted, hash).unwrap()).collect();
            for gone in (0..2000).step_by(2) {
                let removed = buckets.remove(hash(&entry(gone)), places[gone as usize]);
                assert_eq!(removed.as_ref().map(number), Some(gone));
            }
            for wanted in 0..2000 {
                let expected = (wanted % 2 == 1).then_some(places[wanted as usize]);
                assert_eq!(place_of(&buckets, wanted, hash), expected);
            }
            assert!(buckets.remove(hash(&entry(0)), places[0]).is_none());
            assert_eq!(buckets.len(), 1000);
        }
    }

    #[test]
    fn after_all_removals_no_bucket_counts_a_passing_entry() {
        let mut buckets = filled(0..2000, good);
        assert!(buckets.buckets.iter().any(|bucket| bucket.tags[SLOTS] > 0));
        buckets.retain(good, |_| false, drop);
        assert!(buckets.is_empty() && buckets.buckets.iter().all(|bucket| bucket.tags[SLOTS] == 0));
    }

    #[test]
    fn entries_behave_as_in_a_map() {
        let mut random = fastrand::Rng::with_seed(7);
        let (mut buckets, mut map) = (Buckets::default(), std::collections::BTreeSet::new());
        for _ in 0..20_000 {
            let number = random.u64(..500);
            match place_of(&buckets, number, poor) {
                Some(place) => assert!(buckets.remove(poor(&entry(number)), place).is_some()),
                None => buckets.insert(poor(&entry(number)), entry(number), poor),
            }
            if !map.remove(&number) {
                map.insert(number);
            }
            assert_eq!(buckets.len(), map.len());
        }
        let mut found: Vec<_> = buckets.iter().map(number).collect();
        found.sort_unstable();
        assert!(found.into_iter().eq(map));
    }

    #[test]
    fn the_capacity_follows_the_number_of_entries() {
        let mut buckets = filled(0..10_000, good);
        assert!(buckets.capacity() >= 10_000 && buckets.capacity() < 16_000);
        buckets.retain(good, |entry| number(entry) < 10, drop);
        buckets.shrink_to(20, good);
        assert!((20..40).contains(&buckets.capacity()));
        assert!((0..10).all(|wanted| place_of(&buckets, wanted, good).is_some()));
    }

    #[test]
    fn a_table_grows_by_a_third_or_a_half() {
        let sizes: Vec<_> =
            std::iter::successors(Some(0), |count| Some(buckets_after(*count))).take(10).collect();
        assert_eq!(sizes, [0, 1, 2, 3, 4, 6, 8, 12, 16, 24]);
    }

    #[test]
    fn a_tag_is_found_in_each_slot() {
        let mut bucket = Bucket::default();
        for slot in 0..SLOTS {
            bucket.tags[slot] = 200 + slot as u8;
        }
        *bucket.passed_over() = 255;
        for slot in 0..SLOTS {
            assert_eq!(bucket.slots_with(200 + slot as u8).next(), Some(slot));
        }
        assert_eq!(bucket.slots_with(255).next(), None);
        bucket.tags = [9; PLACES];
        assert!(bucket.slots_with(9).eq(0..SLOTS));
    }
}
