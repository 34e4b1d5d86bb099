//! Reads the IDs of entries in requests.

use crate::commands::error::Error;
use crate::commands::facts::Result;
use crate::values::tree::ledger::EntryId;

const INVALID: Error = Error::fixed("ERR Invalid stream ID specified as stream command argument");

/// Longer texts are no IDs. Redis: the buffer of `streamGenericParseIDOrReply`.
const TEXT_BYTES_MAX: usize = 127;

/// The ID that XADD is to give an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NewId {
    /// `*`: by the clock.
    Auto,
    /// `5-*`: the next one within the millisecond.
    AutoIn(u64),
    /// Exactly this one.
    Exactly(EntryId),
}

/// Reads an ID. Without its second part that is 0.
///
/// # Errors
///
/// An error if it is none.
pub(super) fn parse(text: &[u8]) -> Result<EntryId> {
    parse_with(text, 0)
}

/// Reads an ID. `seq` is the second part of an ID without one.
fn parse_with(text: &[u8], seq: u64) -> Result<EntryId> {
    let id = split(text)
        .and_then(|(ms, rest)| Some(EntryId { ms: unsigned(ms)?, seq: rest.map_or(Some(seq), unsigned)? }));
    id.ok_or(INVALID)
}

/// Reads the ID for a new entry.
///
/// # Errors
///
/// An error if it is none.
pub(super) fn parse_new(text: &[u8]) -> Result<NewId> {
    match split(text) {
        _ if text == b"*" => Ok(NewId::Auto),
        Some((ms, Some(b"*"))) => unsigned(ms).map(NewId::AutoIn).ok_or(INVALID),
        _ => parse(text).map(NewId::Exactly),
    }
}

/// Reads the start of an interval: an ID, `-`, `+`, or an ID behind `(` if the interval is without it.
///
/// # Errors
///
/// An error if it is none, or if there is no ID behind one that is left out.
pub(super) fn parse_start(text: &[u8]) -> Result<EntryId> {
    let out = Error::fixed("ERR invalid start ID for the interval");
    match parse_edge(text, 0)? {
        (id, false) => Ok(id),
        (id, true) => id.next().ok_or(out),
    }
}

/// Reads the end of an interval in the same way.
///
/// # Errors
///
/// An error if it is none, or if there is no ID in front of one that is left out.
pub(super) fn parse_end(text: &[u8]) -> Result<EntryId> {
    let out = Error::fixed("ERR invalid end ID for the interval");
    match parse_edge(text, u64::MAX)? {
        (id, false) => Ok(id),
        (id, true) => id.previous().ok_or(out),
    }
}

/// Reads an end of an interval; returns it and whether the interval is without it.
fn parse_edge(text: &[u8], seq: u64) -> Result<(EntryId, bool)> {
    match text {
        b"-" => Ok((EntryId::ZERO, false)),
        b"+" => Ok((EntryId::MAX, false)),
        [b'(', id @ ..] if !id.is_empty() => Ok((parse_with(id, seq)?, true)),
        _ => Ok((parse_with(text, seq)?, false)),
    }
}

/// The parts of an ID. As in Redis, a text ends with its first NUL.
fn split(text: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    if text.len() > TEXT_BYTES_MAX {
        return None;
    }
    let text = super::printed(text);
    Some(match text.iter().position(|byte| *byte == b'-') {
        Some(dash) => (&text[..dash], Some(&text[dash + 1..])),
        None => (text, None),
    })
}

/// Reads a number as `strtoull` does, but none below zero that is written plainly.
fn unsigned(text: &[u8]) -> Option<u64> {
    if text.starts_with(b"-") && crate::resp::number::parse_integer(text).is_some() {
        return None;
    }
    let text = text.trim_ascii_start();
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some(if is_negative { number.wrapping_neg() } else { number })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_redis_reads_them() {
        let id = |ms, seq| Some(EntryId { ms, seq });
        for (text, expected) in [
            (&b"5"[..], id(5, 0)),
            (b"5-7", id(5, 7)),
            (b"007-+3", id(7, 3)),
            (b" 1-2", id(1, 2)),
            (b"1-2\0x", id(1, 2)),
            (b"18446744073709551615-18446744073709551615", Some(EntryId::MAX)),
            (b"18446744073709551616", None),
            (b"1--5", None),
            (b"-", None),
            (b"+", None),
            (b"", None),
            (b"1-", None),
            (b"1 ", None),
            (b"1-2-3", None),
            (b"1-*", None),
        ] {
            assert_eq!(parse(text).ok(), expected, "{}", text.escape_ascii());
        }
        assert_eq!(parse_new(b"7-*"), Ok(NewId::AutoIn(7)));
        assert_eq!(parse_end(b"(5"), Ok(EntryId { ms: 5, seq: u64::MAX - 1 }));
        assert_eq!(parse_start(b"(5").ok(), id(5, 1));
        assert!(parse_start(b"(").is_err() && parse_start(b"(-").is_err());
    }
}
