//! HyperLogLogs: how many different elements were added, from a few thousand bytes.
//!
//! An element's hash selects one of 16,384 registers, and a register keeps the longest run of zero bits that
//! it has seen in the rest of the hashes. The number of elements follows from the registers, with an error of
//! 0.81 %.
//!
//! A HyperLogLog is a string with the same bytes as in Redis: a header of 16 bytes with the last count, and
//! the registers, either [`sparse`] or [`dense`]. Clients can write any bytes into it. A string with a wrong
//! header is no HyperLogLog. If the registers do not add up, it is damaged ([`Invalid`]): every reader counts
//! them.

pub(crate) mod dense;
pub(crate) mod sparse;

mod count;
mod hash;

pub(crate) use count::{Histogram, estimate};
pub(crate) use hash::Observation;
use sparse::Added;

/// The registers of a HyperLogLog.
pub(crate) const REGISTERS: usize = 1 << INDEX_BITS;
/// Bytes in front of the registers.
pub(crate) const HEADER_BYTES: usize = 16;
/// Where the last count is in the header. Its highest bit is set while elements have come since.
pub(crate) const COUNT: std::ops::Range<usize> = 8..HEADER_BYTES;

/// The bits of a hash that select a register.
const INDEX_BITS: u32 = 14;
/// The first bytes of a HyperLogLog.
const MAGIC: &[u8] = b"HYLL";
/// The bit of the last byte of the header that says that the count is outdated.
const OUTDATED: u8 = 0x80;

/// Why a string cannot be used as a HyperLogLog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// The string is no HyperLogLog.
    NotOne,
    /// Its registers do not add up.
    Damaged,
}

/// How the registers are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Six bits each.
    Dense,
    /// Runs of registers that are alike.
    Sparse,
}

impl Form {
    /// The form of a HyperLogLog.
    ///
    /// # Errors
    ///
    /// [`Invalid`]. A string that is damaged is only found here if it is longer than any that is not.
    pub(crate) fn of(value: &[u8]) -> Result<Form, Invalid> {
        if value.len() < HEADER_BYTES || !value.starts_with(MAGIC) {
            return Err(Invalid::NotOne);
        }
        match value[MAGIC.len()] {
            0 if value.len() == dense::BYTES => Ok(Form::Dense),
            1 if value.len() > sparse::BYTES_MAX => Err(Invalid::Damaged),
            1 => Ok(Form::Sparse),
            _ => Err(Invalid::NotOne),
        }
    }
}

/// A HyperLogLog without elements.
pub(crate) fn empty() -> Vec<u8> {
    [MAGIC, &[1, 0, 0, 0], &[0; 8], &sparse::EMPTY].concat()
}

/// The last count, unless it is outdated.
pub(crate) fn last_count(value: &[u8]) -> Option<u64> {
    let bytes = value.get(COUNT)?.try_into().ok()?;
    (value[COUNT.end - 1] & OUTDATED == 0).then(|| u64::from_le_bytes(bytes))
}

/// Marks the last count as outdated; `end` is the last byte of the header.
pub(crate) fn outdate(end: &mut u8) {
    *end |= OUTDATED;
}

/// Raises each register in `maxima` to its value in a HyperLogLog, if that is larger.
///
/// # Errors
///
/// [`Invalid::Damaged`]. Some registers may have been added.
pub(crate) fn merge(maxima: &mut [u8; REGISTERS], form: Form, value: &[u8]) -> Result<(), Invalid> {
    match form {
        Form::Dense => {
            for (maximum, register) in maxima.iter_mut().zip(dense::registers(value)) {
                *maximum = register.max(*maximum);
            }
            Ok(())
        }
        Form::Sparse => sparse::each_run(value, |range, register| {
            maxima[range].iter_mut().for_each(|maximum| *maximum = register.max(*maximum));
        }),
    }
}

/// How many registers of a HyperLogLog have each value.
///
/// # Errors
///
/// [`Invalid::Damaged`]
pub(crate) fn histogram(form: Form, value: &[u8]) -> Result<Histogram, Invalid> {
    let mut histogram = Histogram::default();
    match form {
        Form::Dense => dense::registers(value).for_each(|register| histogram.add(register, 1)),
        Form::Sparse => {
            sparse::each_run(value, |range, register| histogram.add(register, range.len() as u32))?;
        }
    }
    Ok(histogram)
}

/// Adds an element to a HyperLogLog, which may become dense; returns whether that changed a register.
/// `bytes_max` is the most bytes of a sparse one.
///
/// # Errors
///
/// [`Invalid::Damaged`]. Nothing changes then.
pub(crate) fn add(
    form: Form,
    value: &mut Vec<u8>,
    seen: Observation,
    bytes_max: usize,
) -> Result<bool, Invalid> {
    if form == Form::Sparse {
        match sparse::add(value, seen, bytes_max)? {
            Added::Nothing => return Ok(false),
            Added::Changed => return Ok(true),
            Added::NeedsDense => *value = dense::of_sparse(value)?,
        }
    }
    Ok(dense::set(value, seen))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// A dense and a sparse HyperLogLog with these elements.
    fn both(elements: impl Iterator<Item = u64> + Clone) -> [Vec<u8>; 2] {
        let (mut dense, mut sparse) = (dense::of_sparse(&empty()).unwrap(), empty());
        for element in elements {
            let seen = Observation::of(&element.to_le_bytes());
            dense::set(&mut dense, seen);
            add(Form::Sparse, &mut sparse, seen, usize::MAX).unwrap();
        }
        [dense, sparse]
    }

    proptest! {
        #[test]
        fn both_forms_have_the_same_registers(elements in vec(0..5000_u64, 0..600)) {
            let [dense, sparse] = both(elements.iter().copied());
            prop_assert_eq!(&dense::of_sparse(&sparse).unwrap()[HEADER_BYTES..], &dense[HEADER_BYTES..]);
            let mut maxima = [0; REGISTERS];
            merge(&mut maxima, Form::Sparse, &sparse).unwrap();
            prop_assert!(dense::registers(&dense).eq(maxima));
            let counts = [(Form::Dense, &dense), (Form::Sparse, &sparse)]
                .map(|(form, value)| estimate(&histogram(form, value).unwrap()));
            prop_assert_eq!(counts[0], counts[1]);
        }

        #[test]
        fn any_bytes_are_read_without_harm(bytes in vec(any::<u8>(), 0..200), element: u64) {
            let mut value = [MAGIC, &[1, 0, 0, 0], &[0; 8], &bytes].concat();
            let is_whole = sparse::each_run(&value, |_, _| {}).is_ok();
            prop_assert_eq!(dense::of_sparse(&value).is_ok(), is_whole);
            prop_assert_eq!(histogram(Form::Sparse, &value).is_ok(), is_whole);
            let seen = Observation::of(&element.to_le_bytes());
            let added = add(Form::Sparse, &mut value, seen, usize::MAX);
            prop_assert!(added.is_ok() || !is_whole);
            let is_dense = Form::of(&value) == Ok(Form::Dense);
            let stays = is_dense || sparse::each_run(&value, |_, _| ()).is_ok() == is_whole;
            prop_assert!(stays);
        }
    }

    #[test]
    fn counts_are_near() {
        for count in [0, 1, 10, 100, 1000, 10_000, 100_000, 1_000_000] {
            let [dense, _] = both(0..count.min(3000));
            let dense = (3000..count).fold(dense, |mut dense, element| {
                dense::set(&mut dense, Observation::of(&element.to_le_bytes()));
                dense
            });
            let estimated = estimate(&histogram(Form::Dense, &dense).unwrap());
            assert!(estimated.abs_diff(count) <= count / 25, "{estimated} of {count}");
        }
    }

    #[test]
    fn what_is_none_is_refused() {
        assert_eq!(Form::of(&empty()), Ok(Form::Sparse));
        assert_eq!(Form::of(&dense::of_sparse(&empty()).unwrap()), Ok(Form::Dense));
        for value in [
            &b""[..],
            b"HYLL",
            b"HYLL\0\0\0\0\0\0\0\0\0\0\0\0",
            b"HYLL\x02\0\0\0\0\0\0\0\0\0\0\0",
            b"hyll\x01\0\0\0\0\0\0\0\0\0\0\0",
        ] {
            assert_eq!(Form::of(value), Err(Invalid::NotOne), "{}", value.escape_ascii());
        }
    }
}
