//! Runs of registers that are alike, for HyperLogLogs of few elements.
//!
//! `00llllll` is a run of 1 to 64 registers that are zero, `01llllll llllllll` one of 1 to 16,384, and
//! `1vvvvvll` is a run of 1 to 4 registers with a value of 1 to 32. A larger value, or more bytes than
//! `hll-sparse-max-bytes`, make the HyperLogLog dense.
//!
//! Adding an element splits one run and then joins runs that have become alike, only near that place and only
//! as far as Redis does: the bytes have to be the same.

use std::ops::Range;

use super::{HEADER_BYTES, Invalid, Observation, REGISTERS};

/// The most bytes of a sparse HyperLogLog: two for each register.
pub(super) const BYTES_MAX: usize = HEADER_BYTES + 2 * REGISTERS;
/// The registers of a HyperLogLog without elements.
pub(super) const EMPTY: [u8; 2] = Run { value: 0, len: REGISTERS }.long();

/// The largest value of a register in a run.
const VALUE_MAX: u8 = 32;
/// The longest run of registers that are not zero.
const VALUE_RUN_MAX: usize = 4;
/// The longest run of zeros in one byte.
const ZEROS_MAX: usize = 64;
/// Runs that are looked at to be joined, from the one in front of the change on.
const JOINED_RUNS_MAX: usize = 5;

/// A run of registers that are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The value of each.
    pub value: u8,
    /// How many there are.
    pub len: usize,
}

/// How a run is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    /// Zeros, in one byte.
    Zeros,
    /// Zeros, in two bytes.
    ManyZeros,
    /// A value from 1 to 32, in one byte.
    Value,
}

impl Run {
    /// Reads a run at the front of some bytes. Bytes that end too early are followed by a zero, as in Redis.
    fn read(bytes: &[u8]) -> Option<(Run, Code)> {
        let first = *bytes.first()?;
        let low = usize::from(first & 0x3f);
        Some(match first & 0xc0 {
            0 => (Run { value: 0, len: low + 1 }, Code::Zeros),
            0x40 => {
                let second = usize::from(bytes.get(1).copied().unwrap_or(0));
                (Run { value: 0, len: (low << 8 | second) + 1 }, Code::ManyZeros)
            }
            _ => {
                let (value, len) = ((first >> 2 & 0x1f) + 1, usize::from(first & 3) + 1);
                (Run { value, len }, Code::Value)
            }
        })
    }

    /// Zeros in two bytes.
    const fn long(self) -> [u8; 2] {
        let len = self.len - 1;
        [0x40 | (len >> 8) as u8, len as u8]
    }

    /// Writes a run of at least one register, as short as can be.
    fn write(self, out: &mut Vec<u8>) {
        match self {
            Run { value: 0, len } if len <= ZEROS_MAX => out.push(len as u8 - 1),
            Run { value: 0, .. } => out.extend(self.long()),
            Run { value, len } => out.push(0x80 | (value - 1) << 2 | (len as u8 - 1)),
        }
    }
}

impl Code {
    /// Bytes of a run.
    fn bytes(self) -> usize {
        if self == Code::ManyZeros { 2 } else { 1 }
    }
}

/// All runs with how they are written, whether they add up or not.
pub(crate) fn runs(value: &[u8]) -> impl Iterator<Item = (Run, Code)> {
    let mut rest = &value[HEADER_BYTES..];
    std::iter::from_fn(move || {
        let (run, code) = Run::read(rest)?;
        rest = rest.get(code.bytes()..).unwrap_or_default();
        Some((run, code))
    })
}

/// Calls a function with each run of registers and their value. Registers beyond the last are never among
/// them.
///
/// # Errors
///
/// [`Invalid::Damaged`], if the runs are not those of all registers. The function may have been called.
pub(crate) fn each_run(value: &[u8], mut visit: impl FnMut(Range<usize>, u8)) -> Result<(), Invalid> {
    let mut end = 0;
    for (run, _) in runs(value) {
        let start = end;
        end += run.len;
        if end > REGISTERS {
            return Err(Invalid::Damaged);
        }
        visit(start..end, run.value);
    }
    if end == REGISTERS { Ok(()) } else { Err(Invalid::Damaged) }
}

/// The result of adding an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Added {
    /// The element changed no register.
    Nothing,
    /// A register was changed.
    Changed,
    /// Nothing was changed: runs cannot keep the value, or would need too many bytes.
    NeedsDense,
}

/// Adds an element. `bytes_max` is the most bytes of a sparse HyperLogLog.
///
/// # Errors
///
/// [`Invalid::Damaged`]. Nothing changes then.
pub(crate) fn add(value: &mut Vec<u8>, seen: Observation, bytes_max: usize) -> Result<Added, Invalid> {
    if seen.rank > VALUE_MAX {
        return Ok(Added::NeedsDense);
    }
    let Some(RunPlace { previous, at, first, run, code }) = find(value, seen.index) else {
        return Err(Invalid::Damaged);
    };
    if run.value >= seen.rank {
        return Ok(Added::Nothing);
    }
    let (before, behind) = (seen.index - first, first + run.len - 1 - seen.index);
    let mut new = Vec::with_capacity(5);
    for (value, len) in [(run.value, before), (seen.rank, 1), (run.value, behind)] {
        if len > 0 {
            Run { value, len }.write(&mut new);
        }
    }
    if new.len() > code.bytes() && value.len() + new.len() - code.bytes() > bytes_max {
        return Ok(Added::NeedsDense);
    }
    // A run of two bytes may have lost its second one.
    let end = (at + code.bytes()).min(value.len());
    value.splice(at..end, new);
    join(value, previous);
    Ok(Added::Changed)
}

/// Where the run of a register is.
struct RunPlace {
    /// The position of the run in front of it, if there is one, or its own.
    previous: usize,
    at: usize,
    /// The first register of the run.
    first: usize,
    run: Run,
    code: Code,
}

fn find(value: &[u8], index: usize) -> Option<RunPlace> {
    let (mut previous, mut at, mut first) = (HEADER_BYTES, HEADER_BYTES, 0);
    for (run, code) in runs(value) {
        if index < first + run.len {
            return Some(RunPlace { previous, at, first, run, code });
        }
        (previous, at, first) = (at, at + code.bytes(), first + run.len);
    }
    None
}

/// Joins neighboring runs with the same value.
fn join(value: &mut Vec<u8>, from: usize) {
    let mut at = from;
    for _ in 0..JOINED_RUNS_MAX {
        let Some((run, code)) = Run::read(value.get(at..).unwrap_or_default()) else { return };
        let next = Run::read(value.get(at + 1..).unwrap_or_default());
        match next {
            Some((other, Code::Value))
                if code == Code::Value
                    && other.value == run.value
                    && other.len + run.len <= VALUE_RUN_MAX =>
            {
                let mut joined = Vec::with_capacity(1);
                Run { len: run.len + other.len, ..run }.write(&mut joined);
                value.splice(at..at + 2, joined);
            }
            _ => at += code.bytes(),
        }
    }
}
