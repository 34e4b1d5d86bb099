//! Bits in a string of bytes, numbered from the highest of the first byte on.

/// The integer of `width` bits, 1 to 64, at `offset`. Bits beyond the end are zero.
pub(crate) fn get(value: &[u8], offset: usize, width: usize) -> u64 {
    let first = (offset / 8).min(value.len());
    let bytes = &value[first..value.len().min(first + 9)];
    // Nine bytes hold any 64 bits, wherever they begin.
    let mut window = [0; 16];
    window[..bytes.len()].copy_from_slice(bytes);
    let aligned = u128::from_be_bytes(window) << (offset % 8);
    (aligned >> (128 - width)) as u64
}

/// Writes the lowest `width` bits, 1 to 64, of `bits` at `offset`.
///
/// # Panics
///
/// If they lie beyond the end.
pub(crate) fn set(value: &mut [u8], offset: usize, width: usize, bits: u64) {
    let (first, last) = (offset / 8, (offset + width - 1) / 8);
    let bytes = &mut value[first..=last];
    let mut window = [0; 16];
    window[..bytes.len()].copy_from_slice(bytes);
    let shift = 128 - width - offset % 8;
    let mask = ((1_u128 << width) - 1) << shift;
    let changed = u128::from_be_bytes(window) & !mask | (u128::from(bits) << shift) & mask;
    bytes.copy_from_slice(&changed.to_be_bytes()[..bytes.len()]);
}

/// How many bits are set from `first` to `last`, both included; both lie within the value, unless it is
/// empty.
pub(crate) fn count(value: &[u8], first: usize, last: usize) -> usize {
    let Some(bytes) = value.get(first / 8..=last / 8) else { return 0 };
    let (words, rest) = bytes.as_chunks::<8>();
    // 512 MiB of ones are one more than 32 bits can count.
    let in_words: usize = words.iter().map(|word| u64::from_ne_bytes(*word).count_ones() as usize).sum();
    let in_rest: usize = rest.iter().map(|byte| byte.count_ones() as usize).sum();
    let before = (bytes[0] & !(0xff >> (first % 8))).count_ones() as usize;
    let after = (bytes[bytes.len() - 1] & !(0xff << (7 - last % 8))).count_ones() as usize;
    in_words + in_rest - before - after
}

/// The first bit from `first` to `last`, both included and within the value, that is as wanted.
pub(crate) fn find(value: &[u8], wanted: bool, first: usize, last: usize) -> Option<usize> {
    let bytes = &value[first / 8..=last / 8];
    let skipped = if wanted { 0 } else { 0xff };
    let mut at = first;
    // The bits before the first belong to its byte, but are not meant.
    if !at.is_multiple_of(8) {
        let byte = if wanted { bytes[0] } else { !bytes[0] } & (0xff >> (at % 8));
        if byte != 0 {
            return Some(at / 8 * 8 + byte.leading_zeros() as usize).filter(|at| *at <= last);
        }
        at = (at / 8 + 1) * 8;
    }
    let rest = value.get(at / 8..=last / 8)?;
    let found = rest.iter().position(|byte| *byte != skipped)?;
    let byte = if wanted { rest[found] } else { !rest[found] };
    Some(at + 8 * found + byte.leading_zeros() as usize).filter(|at| *at <= last)
}

/// Combines values byte by byte, one after the other; the shorter ones go on with zeros.
pub(crate) fn combine(values: &[&[u8]], combine: impl Fn(u8, u8) -> u8) -> Vec<u8> {
    let bytes = values.iter().map(|value| value.len()).max().unwrap_or(0);
    let Some((first, others)) = values.split_first() else { return Vec::new() };
    let mut result = first.to_vec();
    result.resize(bytes, 0);
    for other in others {
        let (common, beyond) = result.split_at_mut(other.len());
        common.iter_mut().zip(*other).for_each(|(byte, other)| *byte = combine(*byte, *other));
        beyond.iter_mut().for_each(|byte| *byte = combine(*byte, 0));
    }
    result
}

/// The bits that are set in exactly one of some values; the shorter ones go on with zeros.
pub(crate) fn in_exactly_one(values: &[&[u8]]) -> Vec<u8> {
    let bytes = values.iter().map(|value| value.len()).max().unwrap_or(0);
    let (mut in_any, mut in_several) = (vec![0; bytes], vec![0; bytes]);
    for value in values {
        for ((any, several), byte) in in_any.iter_mut().zip(&mut in_several).zip(*value) {
            *several |= *any & byte;
            *any |= byte;
        }
    }
    in_any.iter_mut().zip(&in_several).for_each(|(any, several)| *any &= !several);
    in_any
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn bit(value: &[u8], at: usize) -> bool {
        value.get(at / 8).is_some_and(|byte| byte >> (7 - at % 8) & 1 == 1)
    }

    proptest! {
        #[test]
        fn integers_are_their_bits(
            mut value in vec(any::<u8>(), 20),
            offset in 0..96_usize,
            width in 1..65_usize,
            new: u64,
        ) {
            let expected = (0..width).fold(0, |sum, at| sum << 1 | u64::from(bit(&value, offset + at)));
            prop_assert_eq!(get(&value, offset, width), expected);
            let before = value.clone();
            set(&mut value, offset, width, new);
            prop_assert_eq!(get(&value, offset, width), new & (u64::MAX >> (64 - width)));
            for at in (0..offset).chain(offset + width..160) {
                prop_assert_eq!(bit(&value, at), bit(&before, at));
            }
        }

        #[test]
        fn a_bit_is_in_exactly_one_value(values in vec(vec(any::<u8>(), 0..6), 1..6)) {
            let values: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
            let result = in_exactly_one(&values);
            for at in 0..8 * 6 {
                let count = values.iter().filter(|value| bit(value, at)).count();
                prop_assert_eq!(bit(&result, at), count == 1);
            }
        }

        #[test]
        fn counting_and_finding_look_at_each_bit(
            value in vec(prop_oneof![Just(0_u8), Just(0xff), any::<u8>()], 1..40),
            one: usize,
            other: usize,
            wanted: bool,
        ) {
            let bits = 8 * value.len();
            let (first, last) = ((one % bits).min(other % bits), (one % bits).max(other % bits));
            let set = (first..=last).filter(|at| bit(&value, *at)).count();
            prop_assert_eq!(count(&value, first, last), set);
            let expected = (first..=last).find(|at| bit(&value, *at) == wanted);
            prop_assert_eq!(find(&value, wanted, first, last), expected);
        }
    }

    #[test]
    fn the_longest_value_has_more_ones_than_32_bits_count() {
        let ones = vec![0xff; 512 << 20];
        assert_eq!(count(&ones, 0, 8 * ones.len() - 1), 1 << 32);
    }

    #[test]
    fn beyond_the_end_there_are_zeros() {
        assert_eq!(get(b"\xff", 4, 8), 0xf0);
        assert_eq!(get(b"", 1000, 64), 0);
        assert_eq!(combine(&[b"\xff\xff", b"\x0f"], |one, other| one & other), b"\x0f\x00");
        assert_eq!(combine(&[b"\x0f"], |one, other| one ^ other), b"\x0f");
    }
}
