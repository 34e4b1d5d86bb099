//! The plainest requests, which nearly all are: arrays, all of them there, of arguments that any client may
//! send. They are read in one go; anything else is left to the reader.

use super::Span;
use crate::resp::number::parse_integer;

/// Arguments of a request that is read in one go; fewer than a client may send before it authenticates.
const PLAIN_ARGUMENTS_MAX: usize = 8;

/// Reads a plain request. Returns its length, and adds where its arguments are. `None` if it is not plain;
/// then some arguments may have been added.
#[inline(always)]
pub(super) fn plain_request(request: &[u8], bulk_bytes_max: usize, spans: &mut Vec<Span>) -> Option<usize> {
    let (count, mut at) = plain_number_line(request, b'*')?;
    if !(1..=PLAIN_ARGUMENTS_MAX).contains(&count) {
        return None;
    }
    for _ in 0..count {
        let (bulk_bytes, line_bytes) = plain_number_line(request.get(at..)?, b'$')?;
        let start = at + line_bytes;
        let end = start + bulk_bytes;
        at = end + 2;
        if at > request.len() || bulk_bytes > bulk_bytes_max {
            return None;
        }
        spans.push(Span { start: start as u32, end: end as u32 });
    }
    Some(at)
}

/// Reads a line with a type byte and a number of a few digits. Returns the number and the line's length.
/// `None` for anything else.
#[inline]
fn plain_number_line(line: &[u8], kind: u8) -> Option<(usize, usize)> {
    let &[first, one, two, three, _] = line.first_chunk()?;
    let digit = |byte: u8| byte.wrapping_sub(b'0');
    if first != kind || digit(one) > 9 {
        return None;
    }
    if two == b'\r' {
        return Some((usize::from(digit(one)), "$1\r\n".len()));
    }
    if three == b'\r' && digit(two) <= 9 && one != b'0' {
        return Some((usize::from(10 * digit(one) + digit(two)), "$12\r\n".len()));
    }
    longer_number_line(line)
}

/// The same for numbers of three digits to six.
fn longer_number_line(line: &[u8]) -> Option<(usize, usize)> {
    const LINE_BYTES_MAX: usize = "$123456\r\n".len();
    let line = line.first_chunk::<LINE_BYTES_MAX>()?;
    let digits = line[1..].iter().position(|byte| *byte == b'\r')?;
    let number = usize::try_from(parse_integer(&line[1..=digits])?).ok()?;
    Some((number, 1 + digits + 2)).filter(|(_, line_bytes)| *line_bytes <= line.len())
}
