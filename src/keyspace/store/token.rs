//! What is kept of a lock's value: enough to recognise it, too little to use it.

use memchr::memchr3;

use crate::digest::digest;
use crate::resp::number::parse_integer;

/// The part of a lock's value that is kept: enough to recognise the value, too little to use it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Token {
    /// The digest that DIGEST returns.
    pub digest: u64,
    /// The moment in the value, in milliseconds since 1970, if it looks like a moment.
    pub stamp_ms: Option<u64>,
    /// Whether the value is long enough that two clients hardly ever have the same one by chance.
    pub is_long: bool,
    /// Whether it is a single word, as tokens are: no text, and no list of fields.
    pub is_word: bool,
    /// Its length in bytes.
    pub bytes: usize,
    /// Whether the value is a small integer: what a script writes with an expiry is rather a count or a flag.
    pub is_small_number: bool,
}

/// From how many bytes on a value is long: fewer than UUIDs and other random tokens have, and more than
/// `locked` and `worker-1`.
pub(in crate::keyspace) const LONG_BYTES: usize = 16;

impl Token {
    /// The token of a value.
    pub fn of(value: &[u8]) -> Token {
        const SMALL_DIGITS: usize = 7;
        const WORD_BYTES_MAX: usize = 128;
        Token {
            digest: digest(value),
            stamp_ms: stamp_ms(value),
            is_long: value.len() >= LONG_BYTES,
            is_word: value.len() <= WORD_BYTES_MAX && is_word(value),
            bytes: value.len(),
            is_small_number: value.len() <= SMALL_DIGITS && parse_integer(value).is_some(),
        }
    }
}

/// Whether a value is a word rather than a text, or fields in the form of JSON, PHP and the like. Most values
/// are looked at for their locks, so this must be brief.
fn is_word(value: &[u8]) -> bool {
    let opens = value.first().is_some_and(|first| matches!(first, b'[' | b'<' | b'('));
    !opens && value.is_ascii() && memchr3(b' ', b'{', b'"', value).is_none()
}

/// Reads a value as a moment, which is what the algorithm on SETNX's page stores: in seconds, with or without
/// a fraction, milliseconds or microseconds since 1970. The unit follows from the magnitude, for the years
/// 2001 to 5138.
fn stamp_ms(value: &[u8]) -> Option<u64> {
    const LENGTH_MAX: usize = 32;
    let short = Some(value).filter(|value| value.len() <= LENGTH_MAX)?;
    let number: f64 = std::str::from_utf8(short).ok()?.parse().ok()?;
    let ms = match number {
        1e9..1e11 => number * 1e3,
        1e12..1e14 => number,
        1e15..1e17 => number / 1e3,
        _ => return None,
    };
    Some(ms as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_words() {
        for (value, expected) in [
            ("8f14e45f-ceea-467f-a8f6-5d1d1f0e7a11", true),
            ("worker-1:7/QmFzZTY0+=", true),
            ("a text of words", false),
            ("{\"user\":7}", false),
            ("[1,2]", false),
            ("a:1:{i:0;}", false),
            ("\u{e9}", false),
        ] {
            assert_eq!(Token::of(value.as_bytes()).is_word, expected, "{value}");
        }
    }

    #[test]
    fn the_magnitude_of_a_moment_tells_its_unit() {
        for (value, ms) in [
            ("1700000000", Some(1_700_000_000_000)),
            ("1700000000.25", Some(1_700_000_000_250)),
            ("1700000000123", Some(1_700_000_000_123)),
            ("1700000000123456", Some(1_700_000_000_123)),
            ("17", None),
            ("99999999999999999999", None),
            ("NaN", None),
            ("-1700000000", None),
            ("8f14e45f-ceea", None),
            ("", None),
        ] {
            assert_eq!(stamp_ms(value.as_bytes()), ms, "{value}");
        }
    }
}
