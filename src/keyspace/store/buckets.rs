//! Where entries are found by the hashes of their keys: in buckets of one cache line each.
//!
//! A bucket has room for seven entries, and beside them eight bits of each one's hash: one look at memory
//! tells which entry it is, and a second one is at that entry. A table with the bits apart from the entries
//! takes three, and each is a wait of some hundred nanoseconds where there are many keys. Measured beside
//! hashbrown's, at a million keys: commands that come one by one take 0.95 to 0.99 of the processor time, new
//! keys 0.6 of that in user space, and a key 6 bytes less, since a table grows by a third or a half and not
//! to its double.
//!
//! An entry that finds its bucket full goes to the next one, and each bucket that it passes over counts it:
//! where none was passed over, nobody needs to look further. So entries stay where they are until there are
//! too many, or too few, and all are laid out anew.

use crate::keyspace::store::entry::Entry;

/// Entries of a bucket.
const SLOTS: usize = 7;
/// Places of a bucket: the last one is always empty.
const PLACES: usize = SLOTS + 1;
/// Entries for each bucket, at most, on the average of all. With seven, half of the buckets would be passed
/// over.
const LOAD_MAX: usize = 6;
/// So many entries that have passed over a bucket are no longer counted.
const MANY: u8 = u8::MAX;

/// Entries, by the hashes of their keys.
#[derive(Debug, Default)]
pub(in crate::keyspace) struct Buckets {
    buckets: Box<[Bucket]>,
    len: usize,
}

#[derive(Debug, Default)]
#[repr(C, align(64))]
struct Bucket {
    /// Of the hash of each entry; 0 where there is none. The last byte is no tag: it counts the entries that
    /// have found this bucket full.
    tags: [u8; PLACES],
    entries: [Option<Entry>; SLOTS],
}

impl Bucket {
    /// The slots whose tag it is, as the highest bits of so many bytes, and sometimes one more after them.
    #[inline(always)]
    fn slots_with(&self, tag: u8) -> Slots {
        const ONES: u64 = 0x0101_0101_0101_0101;
        const OF_SLOTS: u64 = 0x0080_8080_8080_8080;
        let differing = u64::from_le_bytes(self.tags) ^ (ONES * u64::from(tag));
        Slots(differing.wrapping_sub(ONES) & !differing & OF_SLOTS)
    }

    /// How many entries have found this bucket full; [`MANY`] of them may be more.
    #[inline(always)]
    fn passed_over(&mut self) -> &mut u8 {
        &mut self.tags[SLOTS]
    }
}

/// Slots that are still to be looked at.
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

/// The bits of a hash that an entry's bucket keeps of it: others than those that choose the bucket.
#[inline(always)]
fn tag_of(hash: u64) -> u8 {
    ((hash >> 56) as u8).max(1)
}

/// How many buckets there are after so many.
fn buckets_after(count: usize) -> usize {
    match count {
        0 | 1 => count + 1,
        _ if count.is_power_of_two() => count / 2 * 3,
        _ => count / 3 * 4,
    }
}

impl Buckets {
    /// How many entries have room where any have.
    pub(in crate::keyspace) const CAPACITY_MIN: usize = SLOTS;

    /// How many entries there are.
    #[inline]
    pub(in crate::keyspace) fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub(in crate::keyspace) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many there may be before all are laid out anew.
    pub(in crate::keyspace) fn capacity(&self) -> usize {
        capacity_of(self.buckets.len())
    }

    /// Bytes of it, without those of the entries.
    pub(in crate::keyspace) fn allocation_size(&self) -> usize {
        size_of_val(&*self.buckets)
    }

    /// How many places there are, which are numbered from 0 on; many are empty.
    pub(in crate::keyspace) fn places(&self) -> usize {
        self.buckets.len() * PLACES
    }

    /// The entry at a place, if there is one.
    #[inline(always)]
    pub(in crate::keyspace) fn get(&self, place: usize) -> Option<&Entry> {
        self.buckets.get(place / PLACES)?.entries.get(place % PLACES)?.as_ref()
    }

    /// The same, to be changed: what keeps its key keeps its place.
    #[inline(always)]
    pub(in crate::keyspace) fn get_mut(&mut self, place: usize) -> Option<&mut Entry> {
        self.buckets.get_mut(place / PLACES)?.entries.get_mut(place % PLACES)?.as_mut()
    }

    /// The place of an entry with this hash which is the one that is meant.
    #[inline(always)]
    pub(in crate::keyspace) fn find(
        &self,
        hash: u64,
        mut is_meant: impl FnMut(&Entry) -> bool,
    ) -> Option<usize> {
        let mut number = self.home(hash);
        // No further than once around, where all have been passed over.
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

    /// Puts in an entry whose key is not there. If there is no room, all are laid out anew.
    pub(in crate::keyspace) fn insert(&mut self, hash: u64, entry: Entry, rehash: impl Fn(&Entry) -> u64) {
        if self.len == self.capacity() {
            self.lay_out(buckets_after(self.buckets.len()), rehash);
        }
        self.place(hash, entry);
    }

    /// Takes out the entry at a place.
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

    /// Removes every entry that does not stay, and passes it to `gone`.
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

    /// Lays all out anew, in as few buckets as have room for so many.
    pub(in crate::keyspace) fn shrink_to(&mut self, len: usize, rehash: impl Fn(&Entry) -> u64) {
        let sizes = std::iter::successors(Some(0), |count| Some(buckets_after(*count)));
        let mut fitting = sizes.skip_while(|count| capacity_of(*count) < len.max(self.len));
        let count = fitting.next().unwrap_or(self.buckets.len());
        if count < self.buckets.len() {
            self.lay_out(count, rehash);
        }
    }

    /// All entries.
    pub(in crate::keyspace) fn iter(&self) -> impl Iterator<Item = &Entry> + Clone {
        self.buckets.iter().flat_map(|bucket| bucket.entries.iter().flatten())
    }

    /// The bucket where the search for a hash begins.
    #[inline(always)]
    fn home(&self, hash: u64) -> usize {
        // The low half of the hash, as a fraction of all buckets: their number need not be a power of two.
        ((u64::from(hash as u32) * self.buckets.len() as u64) >> 32) as usize
    }

    /// The bucket after another.
    #[inline(always)]
    fn next(&self, number: usize) -> usize {
        if number + 1 < self.buckets.len() { number + 1 } else { 0 }
    }

    /// Puts an entry where there is room for it, which there is somewhere.
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
        /// How many buckets ahead entries are fetched, whose keys are to be hashed.
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

/// How many entries so many buckets may have.
fn capacity_of(buckets: usize) -> usize {
    // One alone may be full: nobody is sent on from it.
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

    /// A hash whose bits are all of use.
    fn good(entry: &Entry) -> u64 {
        let mixed = number(entry).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9).rotate_left(31)
    }

    /// Hashes of which many are alike.
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
    fn what_is_put_in_is_found_and_nothing_else() {
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
    fn what_is_taken_out_leaves_the_others_where_they_are() {
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
    fn a_bucket_that_nobody_passes_over_any_more_ends_a_search() {
        let mut buckets = filled(0..2000, good);
        assert!(buckets.buckets.iter().any(|bucket| bucket.tags[SLOTS] > 0));
        buckets.retain(good, |_| false, drop);
        assert!(buckets.is_empty() && buckets.buckets.iter().all(|bucket| bucket.tags[SLOTS] == 0));
    }

    #[test]
    fn entries_come_and_go_as_in_a_map() {
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
    fn there_is_room_for_as_many_as_are_meant_to_be_there() {
        let mut buckets = filled(0..10_000, good);
        assert!(buckets.capacity() >= 10_000 && buckets.capacity() < 16_000);
        buckets.retain(good, |entry| number(entry) < 10, drop);
        buckets.shrink_to(20, good);
        assert!((20..40).contains(&buckets.capacity()));
        assert!((0..10).all(|wanted| place_of(&buckets, wanted, good).is_some()));
    }

    #[test]
    fn a_table_becomes_larger_by_a_third_or_a_half() {
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
