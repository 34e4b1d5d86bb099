//! Splits a line into words, with quotes as inline requests have them.

use super::{ProtocolError, Span};

/// The words of a line of any length. `None` if the quotes do not match.
pub(crate) fn words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    // Positions have 32 bits, and a word is never longer than what it is made of.
    u32::try_from(line.len()).ok()?;
    let (mut source, mut spans) = (Vec::new(), Vec::new());
    split_words(line, &mut source, &mut spans).ok()?;
    Some(spans.iter().map(|span| source[span.start as usize..span.end as usize].to_vec()).collect())
}

/// Splits a line into words as Redis does (`sdssplitargs`): double quotes with escapes, single quotes in
/// which only `\'` is one, and a closing quote must end its word.
pub(super) fn split_words(
    line: &[u8],
    words: &mut Vec<u8>,
    spans: &mut Vec<Span>,
) -> Result<(), ProtocolError> {
    let mut rest = line;
    loop {
        let blank = rest.iter().take_while(|byte| is_blank(**byte)).count();
        rest = &rest[blank..];
        if rest.is_empty() {
            return Ok(());
        }
        let start = words.len() as u32;
        rest = take_word(rest, words)?;
        spans.push(Span { start, end: words.len() as u32 });
    }
}

/// Appends the word that `rest` begins with to `words`. Returns what follows it.
fn take_word<'a>(mut rest: &'a [u8], words: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    loop {
        rest = match rest {
            [] | [b' ' | b'\t' | b'\r' | b'\n' | 0, ..] => return Ok(rest),
            [b'"', quoted @ ..] => return end_of_quotes(take_double_quoted(quoted, words)?),
            [b'\'', quoted @ ..] => return end_of_quotes(take_single_quoted(quoted, words)?),
            [byte, tail @ ..] => {
                words.push(*byte);
                tail
            }
        }
    }
}

fn take_double_quoted<'a>(mut rest: &'a [u8], words: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    loop {
        let (byte, tail) = match rest {
            [] => return Err(ProtocolError::UnbalancedQuotes),
            [b'"', tail @ ..] => return Ok(tail),
            [b'\\', b'x', high, low, tail @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                (hex_digit(*high) << 4 | hex_digit(*low), tail)
            }
            [b'\\', escaped, tail @ ..] => (unescape(*escaped), tail),
            [byte, tail @ ..] => (*byte, tail),
        };
        words.push(byte);
        rest = tail;
    }
}

fn take_single_quoted<'a>(mut rest: &'a [u8], words: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    loop {
        let (byte, tail) = match rest {
            [] => return Err(ProtocolError::UnbalancedQuotes),
            [b'\'', tail @ ..] => return Ok(tail),
            [b'\\', b'\'', tail @ ..] => (b'\'', tail),
            [byte, tail @ ..] => (*byte, tail),
        };
        words.push(byte);
        rest = tail;
    }
}

/// A closing quote must be followed by a blank or by nothing.
fn end_of_quotes(rest: &[u8]) -> Result<&[u8], ProtocolError> {
    match rest.first() {
        Some(byte) if !is_blank(*byte) => Err(ProtocolError::UnbalancedQuotes),
        _ => Ok(rest),
    }
}

/// The blanks of C's `isspace`, and the NUL at which Redis ends a line.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c | 0)
}

fn unescape(escaped: u8) -> u8 {
    match escaped {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        other => other,
    }
}

fn hex_digit(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}
