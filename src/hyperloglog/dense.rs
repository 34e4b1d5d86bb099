//! Registers of six bits each, from the lowest bits of the first byte on.

use super::{HEADER_BYTES, Invalid, Observation, REGISTERS, sparse};

/// The bytes of a dense HyperLogLog.
pub(crate) const BYTES: usize = HEADER_BYTES + REGISTERS * REGISTER_BITS / 8;

const REGISTER_BITS: usize = 6;
const REGISTER_MAX: u16 = (1 << REGISTER_BITS) - 1;

/// The values of all 16,384 registers, each from 0 to 63.
pub(crate) fn registers(value: &[u8]) -> impl Iterator<Item = u8> {
    let (groups, _) = value[HEADER_BYTES..].as_chunks::<3>();
    groups.iter().flat_map(|group| {
        let four = u32::from_le_bytes([group[0], group[1], group[2], 0]);
        [0, 6, 12, 18].map(|shift| (four >> shift) as u8 & REGISTER_MAX as u8)
    })
}

/// The change when an element is added, if any: a position, and the two bytes that are there then.
pub(crate) fn with(value: &[u8], seen: Observation) -> Option<(usize, [u8; 2])> {
    // The last register ends with the value, so its bytes begin one earlier.
    let at = (HEADER_BYTES + seen.index * REGISTER_BITS / 8).min(BYTES - 2);
    let shift = (HEADER_BYTES * 8 + seen.index * REGISTER_BITS) - at * 8;
    let bytes = u16::from_le_bytes([value[at], value[at + 1]]);
    let (register, rank) = (bytes >> shift & REGISTER_MAX, u16::from(seen.rank));
    (rank > register).then(|| {
        let bytes = bytes & !(REGISTER_MAX << shift) | rank << shift;
        (at, bytes.to_le_bytes())
    })
}

/// The same registers as those of a sparse HyperLogLog, with its last count.
///
/// # Errors
///
/// [`Invalid::Damaged`]
pub(crate) fn of_sparse(value: &[u8]) -> Result<Vec<u8>, Invalid> {
    let mut dense = vec![0; BYTES];
    dense[..HEADER_BYTES].copy_from_slice(&value[..HEADER_BYTES]);
    dense[4] = 0;
    sparse::each_run(value, |range, register| {
        for index in range {
            set(&mut dense, Observation { index, rank: register });
        }
    })?;
    Ok(dense)
}

/// Adds an element; returns whether that changed a register.
pub(crate) fn set(value: &mut [u8], seen: Observation) -> bool {
    let changed = with(value, seen);
    if let Some((at, bytes)) = changed {
        value[at..at + 2].copy_from_slice(&bytes);
    }
    changed.is_some()
}
