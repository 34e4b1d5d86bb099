//! The hash of an element: MurmurHash2 of 64 bits, by Austin Appleby, with the seed of Redis.

use super::{INDEX_BITS, REGISTERS};

const SEED: u64 = 0xadc8_3b19;
const MULTIPLIER: u64 = 0xc6a4_a793_5bd1_e995;
const SHIFT: u32 = 47;

/// The part of an element's hash that matters: a register, and a value for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Observation {
    /// The number of the register, from 0.
    pub index: usize,
    /// The place of the first bit that is set in the rest of its hash, from 1 on.
    pub rank: u8,
}

impl Observation {
    /// Hashes an element.
    pub(crate) fn of(element: &[u8]) -> Observation {
        let hash = hash(element);
        // A bit behind the last ends the run if no other one does.
        let rest = hash >> INDEX_BITS | 1 << (u64::BITS - INDEX_BITS);
        Observation { index: hash as usize & (REGISTERS - 1), rank: rest.trailing_zeros() as u8 + 1 }
    }
}

fn hash(bytes: &[u8]) -> u64 {
    // Redis has the length as an int.
    let mut hash = SEED ^ (bytes.len() as i32 as u64).wrapping_mul(MULTIPLIER);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let mut word = u64::from_le_bytes(*word).wrapping_mul(MULTIPLIER);
        word ^= word >> SHIFT;
        hash = (hash ^ word.wrapping_mul(MULTIPLIER)).wrapping_mul(MULTIPLIER);
    }
    if !rest.is_empty() {
        let mut word = [0; 8];
        word[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(MULTIPLIER);
    }
    hash = (hash ^ hash >> SHIFT).wrapping_mul(MULTIPLIER);
    hash ^ hash >> SHIFT
}
