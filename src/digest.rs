//! The digest of a value that DIGEST tells and IFDEQ compares: XXH3 of 64 bits, in hexadecimal.

use xxhash_rust::xxh3::{xxh3_64, xxh3_128_with_seed};

/// Digits of a digest.
pub const DIGITS: usize = 16;

/// The digest of a value.
pub fn digest(value: &[u8]) -> u64 {
    xxh3_64(value)
}

/// A digest of a field and its value. Where one ends and the other begins matters.
pub fn of_pair(field: &[u8], value: &[u8]) -> u128 {
    xxh3_128_with_seed(value, xxh3_64(field)).wrapping_add(xxh3_128_with_seed(field, value.len() as u64))
}

/// A digest as clients are told it: 16 digits, in lower case.
pub fn to_text(digest: u64) -> String {
    format!("{digest:0width$x}", width = DIGITS)
}

/// Reads a digest of a client, in any case. `None` if no value has this digest.
pub fn parse(text: &[u8]) -> Option<u64> {
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
