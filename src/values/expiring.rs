//! Collections of pairs of which some expire: packed ones, and large ones.
//!
//! ```text
//! count: 2 bytes | first moment: 8 bytes | length, name | length, value | length, moment | length, name |
//! ...
//! ```
//!
//! The moment of a pair is eight bytes, or none if the pair does not expire. A collection without any moment
//! is packed without them ([`packed`](super::packed)), so only those that need moments pay for them. The
//! first moment of all stands in front, so that a reader knows at once whether any pair has expired.

use std::ops::Range;

use super::packed::{COUNT_BYTES, Length, Strings, count};
use super::tree::ExpiringMap;

/// Bytes of a moment, in milliseconds since 1970.
const MOMENT_BYTES: usize = 8;
/// The place of the first pair.
const HEADER_BYTES: usize = COUNT_BYTES + MOMENT_BYTES;
/// The place of the first moment.
pub(crate) const EARLIEST: Range<usize> = COUNT_BYTES..HEADER_BYTES;

/// A pair in a packed collection.
#[derive(Clone, Debug)]
pub(crate) struct Pair<'v> {
    /// The field's name.
    pub name: &'v [u8],
    /// The field's value.
    pub value: &'v [u8],
    /// When it expires.
    pub at_ms: Option<u64>,
    /// Its bytes in the collection.
    pub place: Range<usize>,
}

/// The pairs of a packed collection, expired or not.
pub(crate) fn pairs(packed: &[u8]) -> impl Iterator<Item = Pair<'_>> {
    let mut strings = Strings::from(packed, HEADER_BYTES);
    std::iter::from_fn(move || {
        let start = strings.place();
        let (name, value, moment) = (strings.next()?, strings.next()?, strings.next()?);
        let at_ms = moment.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        Some(Pair { name, value, at_ms, place: start..strings.place() })
    })
}

/// Appends a pair in the form in which a packed collection has it.
pub(crate) fn push(out: &mut Vec<u8>, name: &[u8], value: &[u8], at_ms: Option<u64>) {
    let moment = at_ms.map(u64::to_le_bytes);
    for part in [name, value, moment.as_ref().map_or(&[], |bytes| &bytes[..])] {
        out.extend_from_slice(Length::of(part).bytes());
        out.extend_from_slice(part);
    }
}

/// A packed collection of these pairs, which are few.
pub(crate) fn pack<'p>(pairs: impl Iterator<Item = (&'p [u8], &'p [u8], Option<u64>)>) -> Vec<u8> {
    let mut packed = vec![0; HEADER_BYTES];
    let (mut count, mut earliest_ms) = (0u16, u64::MAX);
    for (name, value, at_ms) in pairs {
        push(&mut packed, name, value, at_ms);
        count += 1;
        earliest_ms = earliest_ms.min(at_ms.unwrap_or(u64::MAX));
    }
    packed[..COUNT_BYTES].copy_from_slice(&count.to_le_bytes());
    packed[EARLIEST].copy_from_slice(&earliest_ms.to_le_bytes());
    packed
}

/// Pairs of which some expire.
#[derive(Clone, Copy, Debug)]
pub enum Expiring<'v> {
    /// A small collection.
    Packed(&'v [u8]),
    /// A large one.
    Large(&'v ExpiringMap),
}

impl<'v> Expiring<'v> {
    /// The first moment at which a pair expires; the greatest number if none does.
    #[inline]
    pub fn earliest_ms(self) -> u64 {
        match self {
            Expiring::Packed(packed) => packed
                .get(EARLIEST)
                .and_then(|bytes| bytes.first_chunk())
                .map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes)),
            Expiring::Large(map) => map.earliest_ms(),
        }
    }

    /// The moment at which the last pair expires; the greatest number if some do not expire.
    pub fn latest_ms(self) -> u64 {
        match self {
            Expiring::Packed(packed) => {
                pairs(packed).map(|pair| pair.at_ms.unwrap_or(u64::MAX)).max().unwrap_or(u64::MAX)
            }
            Expiring::Large(map) => map.latest_ms(),
        }
    }

    /// The number of pairs, expired or not.
    pub fn len(self) -> usize {
        match self {
            Expiring::Packed(packed) => count(packed),
            Expiring::Large(map) => map.len(),
        }
    }

    /// Whether there are no pairs.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// How many pairs have expired at a moment.
    pub fn expired(self, now_ms: u64) -> usize {
        match self {
            _ if now_ms < self.earliest_ms() => 0,
            Expiring::Packed(packed) => pairs(packed).filter(|pair| !is_live(pair, now_ms)).count(),
            Expiring::Large(map) => map.expired(now_ms),
        }
    }

    /// When the next pair expires that has not expired at a moment.
    pub fn next_ms(self, now_ms: u64) -> Option<u64> {
        match self {
            Expiring::Packed(packed) => {
                pairs(packed).filter_map(|pair| pair.at_ms).filter(|at_ms| *at_ms > now_ms).min()
            }
            Expiring::Large(map) => map.next_ms(now_ms),
        }
    }

    /// The value of a name at a moment, and when it expires.
    pub fn get(self, name: &[u8], now_ms: u64) -> Option<(&'v [u8], Option<u64>)> {
        match self {
            Expiring::Packed(packed) => pairs(packed)
                .find(|pair| pair.name == name)
                .filter(|pair| is_live(pair, now_ms))
                .map(|pair| (pair.value, pair.at_ms)),
            Expiring::Large(map) => map.get(name, now_ms),
        }
    }

    /// The pairs at a moment, and when they expire.
    pub fn iter(self, now_ms: u64) -> impl Iterator<Item = (&'v [u8], &'v [u8], Option<u64>)> {
        let (small, large) = match self {
            Expiring::Packed(packed) => (Some(pairs(packed)), None),
            Expiring::Large(map) => (None, Some(map.iter(now_ms))),
        };
        let small = small.into_iter().flatten().filter(move |pair| is_live(pair, now_ms));
        let small = small.map(|pair| (pair.name, pair.value, pair.at_ms));
        small.chain(large.into_iter().flatten())
    }

    /// The pair at a position below the number of pairs at a moment. Positions are those of
    /// [`iter`](Self::iter).
    pub fn at(self, position: usize, now_ms: u64) -> Option<(&'v [u8], &'v [u8])> {
        match self {
            Expiring::Packed(_) => self.iter(now_ms).nth(position).map(|(name, value, _)| (name, value)),
            Expiring::Large(map) => map.at(position, now_ms),
        }
    }
}

fn is_live(pair: &Pair<'_>, now_ms: u64) -> bool {
    pair.at_ms.is_none_or(|at_ms| at_ms > now_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_pair_is_seen_until_its_moment() {
        let all: [(&[u8], &[u8], Option<u64>); 3] =
            [(b"a", b"1", Some(20)), (b"b", b"", None), (b"", &[7; 300], Some(10))];
        let packed = pack(all.into_iter());
        let expiring = Expiring::Packed(&packed);
        assert_eq!((expiring.earliest_ms(), expiring.latest_ms(), expiring.len()), (10, u64::MAX, 3));
        assert!(expiring.iter(0).eq(all) && expiring.iter(9).eq(all));
        assert!(expiring.iter(10).eq([all[0], all[1]]) && expiring.iter(20).eq([all[1]]));
        assert_eq!([9, 10, 20].map(|now_ms| expiring.expired(now_ms)), [0, 1, 2]);
        assert_eq!(expiring.get(b"a", 19), Some((&b"1"[..], Some(20))));
        assert_eq!(expiring.get(b"a", 20), None);
        assert_eq!(expiring.get(b"b", u64::MAX), Some((&b""[..], None)));
        assert_eq!(expiring.at(1, 20), None);
        let all_expire = pack([all[0], all[2]].into_iter());
        assert_eq!(Expiring::Packed(&all_expire).latest_ms(), 20);
        for bytes in 0..packed.len() {
            assert!(pairs(&packed[..bytes]).count() < 3, "what is cut off ends early");
        }
    }
}
