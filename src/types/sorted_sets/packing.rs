//! The packed form of sorted sets.
//!
//! It is [`pairs`] of members and scores, in the order of (score, member). An integer is its bytes from the
//! lowest on, without those that its sign implies. Any other score is the eight bytes of the number.

use std::ops::Range;

use crate::values::Structure;
use crate::values::pairs::{self, Pairs};
use crate::values::tree::Ranking;

/// Integers with more bytes are kept as numbers of eight bytes.
const INTEGER_BYTES_MAX: usize = 7;
/// Up to here, every integer is a number of eight bytes, too.
const INTEGER_MAX: f64 = 9_007_199_254_740_992.0;

/// A member of a packed sorted set.
pub(super) struct Found {
    pub(super) score: f64,
    /// The bytes of the pair.
    pub(super) record: Range<usize>,
}

/// The bytes of a score.
pub(super) struct Packed {
    bytes: [u8; 8],
    used: usize,
}

impl Packed {
    /// Packs a score as a file has it.
    pub(super) fn as_stored(score: f64) -> Packed {
        match score == 0.0 && score.is_sign_negative() {
            true => Packed { bytes: score.to_bits().to_le_bytes(), used: 8 },
            false => Packed::of(score),
        }
    }

    /// Packs a score. -0 becomes +0, as where Redis adds a member to a listpack.
    pub(super) fn of(score: f64) -> Packed {
        let mut bytes = [0; 8];
        let integer = score as i64;
        let used = if score.abs() <= INTEGER_MAX && integer as f64 == score {
            // One bit more than the digits: the sign.
            let digits = u64::BITS - (integer ^ integer >> 63).leading_zeros();
            let used = if integer == 0 { 0 } else { digits as usize / 8 + 1 };
            debug_assert!(used <= INTEGER_BYTES_MAX);
            bytes.copy_from_slice(&integer.to_le_bytes());
            used
        } else {
            bytes.copy_from_slice(&score.to_bits().to_le_bytes());
            8
        };
        Packed { bytes, used }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.used]
    }
}

/// The score of these bytes.
#[inline]
fn unpack(string: &[u8]) -> f64 {
    if let Ok(bytes) = string.try_into() {
        return f64::from_bits(u64::from_le_bytes(bytes));
    }
    let is_negative = string.last().is_some_and(|byte| byte & 0x80 != 0);
    let mut bytes = if is_negative { [0xff; 8] } else { [0; 8] };
    let length = string.len().min(bytes.len());
    bytes[..length].copy_from_slice(&string[..length]);
    i64::from_le_bytes(bytes) as f64
}

/// All members with their scores.
pub(super) fn scored(packed: &[u8]) -> impl Iterator<Item = (&[u8], f64)> {
    Pairs::of(packed).map(|pair| (pair.name, unpack(pair.value)))
}

/// Finds a member.
#[inline]
pub(super) fn find(packed: &[u8], member: &[u8]) -> Option<Found> {
    pairs::find(packed, member).map(|pair| Found { score: unpack(pair.value), record: pair.place })
}

/// Returns where a member with this score belongs: the place of the first record behind it. All records in
/// front of the place `from` are before it.
pub(super) fn place(packed: &[u8], from: usize, member: &[u8], score: f64) -> usize {
    let is_behind =
        |other: &[u8], other_score: f64| other_score > score || other_score == score && other > member;
    let behind = Pairs::from(packed, from).find(|pair| is_behind(pair.name, unpack(pair.value)));
    behind.map_or(packed.len(), |pair| pair.place.start)
}

/// The bytes of the records at some positions that there are.
pub(super) fn records(packed: &[u8], positions: Range<usize>) -> Range<usize> {
    let mut pairs = Pairs::of(packed);
    let mut skip = |count: usize| {
        pairs.by_ref().take(count).for_each(drop);
        pairs.place()
    };
    let start = skip(positions.start);
    start..skip(positions.len())
}

/// The ranking of a packed sorted set.
pub(super) fn unpacked(packed: &[u8]) -> Ranking {
    let mut ranking = Structure::ranking();
    // In ascending order each member goes to the end.
    for (member, score) in scored(packed) {
        ranking.insert(member, score);
    }
    debug_assert_eq!(ranking.len(), pairs::count(packed));
    ranking
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_of_every_size_come_back() {
        let edges = (0..54).flat_map(|bit| {
            let power = (1_i64 << bit) as f64;
            [power - 1.0, power, -power, -power - 1.0, power + 0.5]
        });
        let others =
            [0.1, -1.5e300, 5e-324, f64::INFINITY, f64::NEG_INFINITY, 1e17, -9_007_199_254_740_994.0];
        for score in edges.chain(others) {
            assert_eq!(unpack(Packed::of(score).bytes()), score);
        }
        for (score, bytes) in [(0.0, 0), (-0.0, 0), (-1.0, 1), (127.0, 1), (128.0, 2), (-128.0, 1), (0.5, 8)]
        {
            assert_eq!(Packed::of(score).bytes().len(), bytes, "{score}");
        }
        assert!(unpack(Packed::of(-0.0).bytes()).is_sign_positive());
    }
}
