//! A map of names to bytes of which some expire: two maps, and an order by the moments.
//!
//! Names without a moment are in a map of their own, so a map that has lost its last moment is that map, and
//! nothing more. A name with a moment is in the other map, which has the moment in front of the value, and in
//! the order, whose records are the moment and the name. So the names that expire next are the first of the
//! order, and how many have expired is one search in it.
//!
//! The map does not know the time. A caller passes a moment, and sees only the names that expire later. At
//! moment 0 it sees all.
//!
//! Both maps have the same seed, so a cursor is valid in both: a scan takes the shorter of their portions.

use std::cmp::Ordering;
use std::fmt;

use super::{Map, Remains, Sequence};

/// Bytes of a moment, in a record of the order and in front of a value.
const MOMENT_BYTES: usize = 8;

/// A name, its value, and when it expires.
type Element<'m> = (&'m [u8], &'m [u8], Option<u64>);

/// Bytes by names, some with the moment at which they expire, in milliseconds. A copy that
/// [`ExpiringMap::share`] makes takes the same nodes; a write copies those that it changes.
pub struct ExpiringMap {
    lasting: Map,
    expiring: Map,
    order: Sequence,
    /// The first moment of the order; the greatest number if there is none.
    earliest_ms: u64,
}

impl ExpiringMap {
    /// The elements of a map, none of which expires yet.
    pub fn of(lasting: Map) -> ExpiringMap {
        let expiring = lasting.empty_alike();
        ExpiringMap { lasting, expiring, order: Sequence::new(), earliest_ms: u64::MAX }
    }

    /// The elements as a map, if none expires any more.
    pub fn into_lasting(self: Box<Self>) -> Result<Map, Box<ExpiringMap>> {
        if self.order.is_empty() { Ok(self.lasting) } else { Err(self) }
    }

    /// The number of elements, expired or not.
    pub fn len(&self) -> usize {
        self.lasting.len() + self.order.len()
    }

    /// True without elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many elements have expired at a moment.
    pub fn expired(&self, now_ms: u64) -> usize {
        if now_ms < self.earliest_ms {
            return 0;
        }
        let is_behind = |record: &[u8]| moment(record).cmp(&now_ms).then(Ordering::Less);
        let (Ok(position) | Err(position)) = self.order.search_by(now_ms, is_behind);
        position
    }

    /// The first moment at which an element expires; the greatest number if none does.
    #[inline]
    pub fn earliest_ms(&self) -> u64 {
        self.earliest_ms
    }

    /// The moment at which the last element expires; the greatest number if some do not expire.
    pub fn latest_ms(&self) -> u64 {
        let last = self.order.len().checked_sub(1).filter(|_| self.lasting.is_empty());
        last.and_then(|last| self.order.get(last)).map_or(u64::MAX, moment)
    }

    /// When the next element expires that has not expired at a moment.
    pub fn next_ms(&self, now_ms: u64) -> Option<u64> {
        self.order.get(self.expired(now_ms)).map(moment)
    }

    /// Bytes of memory below this value, as the C library rounds them. What copies share counts for each.
    pub fn bytes(&self) -> usize {
        self.lasting.bytes() + self.expiring.bytes() + self.order.bytes()
    }

    /// A copy with the same nodes, in constant time.
    pub fn share(&self) -> ExpiringMap {
        ExpiringMap {
            lasting: self.lasting.share(),
            expiring: self.expiring.share(),
            order: self.order.share(),
            earliest_ms: self.earliest_ms,
        }
    }

    /// The value of a name at a moment, and when it expires.
    pub fn get(&self, name: &[u8], now_ms: u64) -> Option<(&[u8], Option<u64>)> {
        if let Some(found) = self.expiring.get(name) {
            let (at_ms, value) = split(found);
            return (at_ms > now_ms).then_some((value, Some(at_ms)));
        }
        self.lasting.get(name).map(|value| (value, None))
    }

    /// Sets the value of a name, and when it expires. Returns the moment that it had, if it was there.
    pub fn insert(&mut self, name: &[u8], value: &[u8], at_ms: Option<u64>) -> Option<Option<u64>> {
        let Some(at_ms) = at_ms else {
            let before = self.remove_expiring(name);
            let is_new = self.lasting.insert(name, value);
            return before.map(Some).or((!is_new).then_some(None));
        };
        let before = self.expiring.get(name).map(moment);
        self.expiring.insert(name, &[&at_ms.to_be_bytes(), value].concat());
        if before != Some(at_ms) {
            if let Some(before) = before {
                self.take_from_order(name, before);
            }
            self.order.insert_by(at_ms, |record| compare(record, at_ms, name), &[&at_ms.to_be_bytes(), name]);
            self.note_earliest();
        }
        match before {
            Some(before) => Some(Some(before)),
            None => self.lasting.remove(name).then_some(None),
        }
    }

    /// Removes a name. Returns the moment that it had, if it was there.
    pub fn remove(&mut self, name: &[u8]) -> Option<Option<u64>> {
        match self.remove_expiring(name) {
            Some(at_ms) => Some(Some(at_ms)),
            None => self.lasting.remove(name).then_some(None),
        }
    }

    fn remove_expiring(&mut self, name: &[u8]) -> Option<u64> {
        let at_ms = self.expiring.take(name, moment)?;
        self.take_from_order(name, at_ms);
        self.note_earliest();
        Some(at_ms)
    }

    fn take_from_order(&mut self, name: &[u8], at_ms: u64) {
        self.order.remove_by(at_ms, |record| compare(record, at_ms, name));
    }

    /// Removes the elements that expired first at a moment, and calls `gone` with their names: all, or so
    /// many. Returns the nodes of which nothing is left.
    pub fn remove_expired(&mut self, now_ms: u64, limit: usize, mut gone: impl FnMut(&[u8])) -> Remains {
        let count = self.expired(now_ms).min(limit);
        for record in self.order.range(0..count) {
            let (_, name) = split(record);
            self.expiring.remove(name);
            gone(name);
        }
        let remains = self.order.remove(0..count);
        self.note_earliest();
        remains
    }

    fn note_earliest(&mut self) {
        self.earliest_ms = self.order.get(0).map_or(u64::MAX, moment);
    }

    /// The elements at a moment with their values, and when they expire: first those that expire, in the
    /// order of their moments.
    pub fn iter(&self, now_ms: u64) -> impl Iterator<Item = (&[u8], &[u8], Option<u64>)> {
        let expiring = self.order.range(self.expired(now_ms)..self.order.len()).filter_map(|record| {
            let (at_ms, name) = split(record);
            Some((name, split(self.expiring.get(name)?).1, Some(at_ms)))
        });
        expiring.chain(self.lasting.iter().map(|(name, value)| (name, value, None)))
    }

    /// The element at a position below the number of elements at a moment. Positions are those of
    /// [`iter`](Self::iter).
    pub fn at(&self, position: usize, now_ms: u64) -> Option<(&[u8], &[u8])> {
        let place = position + self.expired(now_ms);
        let Some(record) = self.order.get(place) else { return self.lasting.at(place - self.order.len()) };
        let (_, name) = split(record);
        self.expiring.get(name).map(|found| (name, split(found).1))
    }

    /// The elements of about two pages from a cursor on, expired or not, and when they expire; and the cursor
    /// for the next call, as [`Map::scan`] returns them.
    pub fn scan(&self, cursor: u64) -> (impl Iterator<Item = Element<'_>>, u64) {
        let (lasting, lasting_end) = self.lasting.scan(cursor);
        let (expiring, expiring_end) = self.expiring.scan(cursor);
        let end = self.lasting.nearer_cursor(lasting_end, expiring_end);
        let lasting = lasting.map(|(name, value)| (name, value, None));
        let expiring = expiring.map(|(name, found)| {
            let (at_ms, value) = split(found);
            (name, value, Some(at_ms))
        });
        // What is behind the end of the other portion comes with the next call.
        (lasting.chain(expiring).filter(move |(name, _, _)| self.lasting.is_before(name, end)), end)
    }

    /// Removes all elements, in constant time. Returns their nodes, to be freed in steps.
    pub fn clear(&mut self) -> Remains {
        let mut remains = self.order.clear();
        remains.append(self.expiring.clear());
        remains.append(self.lasting.clear());
        self.earliest_ms = u64::MAX;
        remains
    }
}

impl fmt::Debug for ExpiringMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExpiringMap").field("lasting", &self.lasting).field("order", &self.order).finish()
    }
}

/// The moment at the beginning of a record or of a value.
fn moment(record: &[u8]) -> u64 {
    split(record).0
}

/// The moment of a record and its name, or of a value and the value itself.
#[inline]
fn split(record: &[u8]) -> (u64, &[u8]) {
    let (at_ms, rest) = record.split_first_chunk::<MOMENT_BYTES>().expect("a record begins with its moment");
    (u64::from_be_bytes(*at_ms), rest)
}

fn compare(record: &[u8], at_ms: u64, name: &[u8]) -> Ordering {
    let (other_ms, other) = split(record);
    other_ms.cmp(&at_ms).then_with(|| other.cmp(name))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Names, and moments from 1 on. Values follow from the step, so that each is another one.
    #[derive(Clone, Debug)]
    enum Step {
        Insert(u8, Option<u64>),
        Remove(u8),
        RemoveExpired(u64, usize),
        Share,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (any::<u8>(), proptest::option::of(1..60_u64)).prop_map(|(n, at)| Step::Insert(n, at)),
            2 => any::<u8>().prop_map(Step::Remove),
            1 => (0..60_u64, 0..9_usize).prop_map(|(now, limit)| Step::RemoveExpired(now, limit)),
            1 => Just(Step::Share),
        ]
    }

    type Model = BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)>;

    fn name_of(number: u8) -> Vec<u8> {
        format!("name:{number}").into_bytes()
    }

    fn scanned(map: &ExpiringMap, now_ms: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
        let (mut cursor, mut found) = (0, Vec::new());
        loop {
            let (portion, next) = map.scan(cursor);
            let live = portion.filter(|(_, _, at_ms)| at_ms.is_none_or(|at_ms| at_ms > now_ms));
            found.extend(live.map(|(name, value, _)| (name.to_vec(), value.to_vec())));
            cursor = next;
            if cursor == 0 {
                return found;
            }
        }
    }

    fn check(map: &ExpiringMap, model: &Model) {
        assert_eq!(map.len(), model.len());
        let moments = || model.values().filter_map(|(_, at_ms)| *at_ms);
        assert_eq!(map.earliest_ms(), moments().min().unwrap_or(u64::MAX));
        let latest =
            (!model.is_empty() && moments().count() == model.len()).then(|| moments().max()).flatten();
        assert_eq!(map.latest_ms(), latest.unwrap_or(u64::MAX));
        for now_ms in [0, 1, 17, 30, 59, 60] {
            let is_live = |at_ms: Option<u64>| at_ms.is_none_or(|at_ms| at_ms > now_ms);
            let live: Vec<_> = model
                .iter()
                .filter(|(_, (_, at_ms))| is_live(*at_ms))
                .map(|(name, (value, _))| (name.clone(), value.clone()))
                .collect();
            assert_eq!(map.len() - map.expired(now_ms), live.len());
            let owned = |name: &[u8], value: &[u8]| (name.to_vec(), value.to_vec());
            let mut all: [Vec<_>; 3] = [
                map.iter(now_ms).map(|(name, value, _)| owned(name, value)).collect(),
                (0..live.len()).filter_map(|at| map.at(at, now_ms)).map(|(n, v)| owned(n, v)).collect(),
                scanned(map, now_ms),
            ];
            for found in &mut all {
                found.sort_unstable();
                assert_eq!(*found, live, "at {now_ms}");
            }
            for number in 0..=u8::MAX {
                let expected = model.get(&name_of(number)).filter(|(_, at_ms)| is_live(*at_ms));
                let expected = expected.map(|(value, at_ms)| (&value[..], *at_ms));
                assert_eq!(map.get(&name_of(number), now_ms), expected);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn it_does_what_a_model_does(steps in vec(step(), 1..400)) {
            let mut map = ExpiringMap::of(Map::new(7));
            let (mut model, mut shared) = (Model::new(), None);
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Insert(name, at_ms) => {
                        let (name, value) = (name_of(name), vec![b'v'; number % 40]);
                        let before = map.insert(&name, &value, at_ms);
                        prop_assert_eq!(before, model.insert(name, (value, at_ms)).map(|(_, at_ms)| at_ms));
                    }
                    Step::Remove(name) => {
                        let before = map.remove(&name_of(name));
                        prop_assert_eq!(before, model.remove(&name_of(name)).map(|(_, at_ms)| at_ms));
                    }
                    Step::RemoveExpired(now_ms, limit) => {
                        let expired = map.expired(now_ms);
                        let mut gone = Vec::new();
                        drop(map.remove_expired(now_ms, limit, |name| gone.push(name.to_vec())));
                        prop_assert_eq!(gone.len(), expired.min(limit));
                        for name in gone {
                            let (_, at_ms) = model.remove(&name).unwrap();
                            prop_assert!(at_ms.is_some_and(|at_ms| at_ms <= now_ms));
                        }
                    }
                    Step::Share => shared = Some((map.share(), model.clone())),
                }
            }
            check(&map, &model);
            if let Some((map, model)) = shared {
                check(&map, &model);
            }
        }
    }
}
