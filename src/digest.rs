//! The digest of a value that DIGEST returns and IFDEQ compares: XXH3 of 64 bits, in hexadecimal. And the
//! name that a message gets from its contents: XXH3 of 128 bits.

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// Digits of a digest.
pub(crate) const DIGITS: usize = 16;

/// The digest of a value.
pub(crate) fn digest(value: &[u8]) -> u64 {
    xxh3_64(value)
}

/// The name that Redis gives a message (IDMPAUTO). It does not depend on the order of the fields, but on
/// where a field ends and its value begins.
pub(crate) fn of_pairs<'p>(pairs: impl Iterator<Item = (&'p [u8], &'p [u8])>) -> [u8; 16] {
    /// The lower half of a number, and the upper one.
    fn halves(number: u128) -> [u64; 2] {
        [number as u64, (number >> 64) as u64]
    }
    let (mut sums, mut differences) = ([0_u64; 2], [0_u64; 2]);
    for (field, value) in pairs {
        let mut state = Xxh3::new();
        state.update(field);
        state.update(&(field.len() as u64).to_le_bytes());
        state.update(value);
        for (at, half) in halves(state.digest128()).into_iter().enumerate() {
            sums[at] = sums[at].wrapping_add(half);
            differences[at] ^= half;
        }
    }
    let low = sums[0] ^ differences[1].rotate_left(1);
    let high = sums[1] ^ differences[0].rotate_left(1);
    (u128::from(high) << 64 | u128::from(low)).to_le_bytes()
}

/// A digest as clients get it: 16 hexadecimal digits, in lower case.
pub(crate) fn to_text(digest: u64) -> String {
    format!("{digest:0width$x}", width = DIGITS)
}

/// Reads a digest of a client, in any case. `None` if no value has this digest.
pub(crate) fn parse(text: &[u8]) -> Option<u64> {
    let is_digest = text.len() == DIGITS && text.iter().all(u8::is_ascii_hexdigit);
    is_digest.then(|| u64::from_str_radix(std::str::from_utf8(text).ok()?, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_redis() {
        assert_eq!(to_text(digest(b"Hello world")), "b6acb9d84a38ff74");
        assert_eq!(to_text(5), "0000000000000005");
    }

    /// Taken from a stream that Redis 8.6.3 has dumped.
    #[test]
    fn names_of_messages_are_those_of_redis() {
        let name = |pairs: &[(&[u8], &[u8])]| {
            let name = of_pairs(pairs.iter().copied());
            name.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        };
        assert_eq!(name(&[(b"f", b"v")]), "6e95729ee727f0814aedffba55730079");
        assert_eq!(name(&[(b"a", b"1"), (b"b", b"2")]), "c5b282935f77a53123e1ff7a302a11f2");
        assert_eq!(name(&[(b"b", b"2"), (b"a", b"1")]), "c5b282935f77a53123e1ff7a302a11f2");
        assert_eq!(name(&[(b"ab", b"c")]), "16a40e6f34744cb4db57cd2b7d195a72");
        assert_eq!(name(&[(b"a", b"bc")]), "cd716045a670276ba36d448ef5da2ace");
    }

    #[test]
    fn only_sixteen_digits_are_a_digest() {
        assert_eq!(parse(b"B6ACB9D84A38FF74"), Some(digest(b"Hello world")));
        for text in
            [&b""[..], b"b6acb9d84a38ff7", b"b6acb9d84a38ff744", b"b6acb9d84a38ff7g", b"+6acb9d84a38ff74"]
        {
            assert_eq!(parse(text), None);
        }
    }
}
