//! Reads requests out of a client's stream.
//!
//! The stream arrives in pieces of any size. The reader is given all bytes that are not yet consumed and
//! answers with the next whole request or with "not yet"; it remembers how far it came, so no byte is looked
//! at again because more of them arrived: reading costs time linear in the bytes, however they are cut. A
//! request borrows from the input; nothing is copied but the arguments of inline requests, whose quoting has
//! to be undone.
//!
//! A length that the network announces decides nothing but errors: arguments and bytes are counted as they
//! come, and what is kept for them grows with them. Texts and limits are those of Redis 7
//! (`processMultibulkBuffer` and `processInlineBuffer` describe them).

use std::fmt;

use super::number::parse_integer;

/// An inline request, or the line that holds a length, in bytes. Redis: `PROTO_INLINE_MAX_SIZE`.
pub const LINE_BYTES_MAX: usize = 64 << 10;
/// The arguments of one request. What Redis documents as its limit; each takes eight bytes here once it came.
pub const ARGUMENTS_MAX: usize = 1 << 20;
/// The longest header line that can hold an acceptable number: a sign, 19 digits, and a type byte.
const NUMBER_LINE_BYTES_MAX: usize = 21;
/// Arguments whose places are kept from one request to the next; beyond, the memory is given back.
const SPANS_KEPT_MAX: usize = 1024;

/// What a client may send. Two of the limits are tighter before it has authenticated.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of one argument (`proto-max-bulk-len`).
    pub bulk_bytes_max: usize,
    /// Whether the client may send only what authentication takes: ten arguments of 16 KiB.
    pub unauthenticated: bool,
}

impl Limits {
    const UNAUTHENTICATED_ARGUMENTS_MAX: i64 = 10;
    const UNAUTHENTICATED_BULK_BYTES_MAX: i64 = 16 << 10;
}

/// Why a stream cannot be read any further. Its text is what Redis answers before it closes the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// The number after `*` is none, or too large; or more arguments came than a request may have.
    InvalidArrayLength,
    /// The number after `$` is none, negative, or above the limit.
    InvalidBulkLength,
    /// Something other than `$` where an argument should begin.
    ExpectedBulk(u8),
    /// A line beginning with `*` that does not end in time.
    ArrayLineTooLong,
    /// A line beginning with `$` that does not end in time.
    BulkLineTooLong,
    /// An inline request that does not end in time.
    InlineTooLong,
    /// An inline request whose quotes do not match.
    UnbalancedQuotes,
    /// More arguments than a client may send before it authenticates.
    UnauthenticatedArrayLength,
    /// A longer argument than a client may send before it authenticates.
    UnauthenticatedBulkLength,
}

impl ProtocolError {
    /// The text as bytes: the one byte it may quote need not be UTF-8.
    pub fn message(&self) -> Vec<u8> {
        self.to_string().chars().map(|character| character as u8).collect()
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ERR Protocol error: ")?;
        match self {
            ProtocolError::InvalidArrayLength => f.write_str("invalid multibulk length"),
            ProtocolError::InvalidBulkLength => f.write_str("invalid bulk length"),
            ProtocolError::ExpectedBulk(b'\r' | b'\n') => f.write_str("expected '$', got ' '"),
            ProtocolError::ExpectedBulk(byte) => write!(f, "expected '$', got '{}'", char::from(*byte)),
            ProtocolError::ArrayLineTooLong => f.write_str("too big mbulk count string"),
            ProtocolError::BulkLineTooLong => f.write_str("too big bulk count string"),
            ProtocolError::InlineTooLong => f.write_str("too big inline request"),
            ProtocolError::UnbalancedQuotes => f.write_str("unbalanced quotes in request"),
            ProtocolError::UnauthenticatedArrayLength => f.write_str("unauthenticated multibulk length"),
            ProtocolError::UnauthenticatedBulkLength => f.write_str("unauthenticated bulk length"),
        }
    }
}

/// Where one argument lies, counted from the beginning of its request.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u32,
    end: u32,
}

/// One request: the command's name and its arguments, in the order they came.
///
/// It has at least one argument, the name.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    source: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Request<'a> {
    /// The first argument, as the client spelled it.
    pub fn name(&self) -> &'a [u8] {
        self.at(0)
    }

    /// How many arguments there are, the name among them.
    #[expect(clippy::len_without_is_empty, reason = "a request is never empty")]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// The argument at `index`.
    ///
    /// # Panics
    ///
    /// If there is none; a handler's arity has been checked before it is called.
    pub fn at(&self, index: usize) -> &'a [u8] {
        let span = self.spans[index];
        &self.source[span.start as usize..span.end as usize]
    }

    /// The argument at `index`, if there is one.
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        (index < self.spans.len()).then(|| self.at(index))
    }

    /// The arguments from `index` on.
    pub fn from(&self, index: usize) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone + use<'a> {
        let source = self.source;
        self.spans[index.min(self.spans.len())..]
            .iter()
            .map(move |span| &source[span.start as usize..span.end as usize])
    }

    /// The same request without its first `count` arguments.
    ///
    /// # Panics
    ///
    /// If that would leave none.
    pub fn without_first(&self, count: usize) -> Request<'a> {
        assert!(count < self.spans.len(), "a request keeps its name");
        Request { source: self.source, spans: &self.spans[count..] }
    }
}

/// Cuts a stream into requests; one for each connection.
///
/// The caller keeps the input: it hands over all bytes from the first unconsumed one, and drops the front of
/// it by what [`RequestReader::take_consumed`] answers before it appends more.
#[derive(Debug, Default)]
pub struct RequestReader {
    /// Where the current request begins in the input.
    start: usize,
    /// The next byte to read, from `start`.
    position: usize,
    /// Bytes from `position` on that have been searched for the end of a line already.
    searched: usize,
    /// Arguments that the current request still announces.
    missing: u64,
    /// The length of the argument that is being waited for.
    bulk_bytes: Option<usize>,
    spans: Vec<Span>,
    /// The arguments of an inline request, unquoted.
    unquoted: Vec<u8>,
    /// Bytes looked at, so that a test can show the cost to be linear.
    #[cfg(test)]
    work: u64,
}

impl RequestReader {
    /// Reads the next request, if all of it is there; empty ones are passed over, as Redis does.
    ///
    /// `input` begins where the last [`take_consumed`](Self::take_consumed) ended.
    pub fn next<'a>(
        &'a mut self,
        input: &'a [u8],
        limits: &Limits,
    ) -> Result<Option<Request<'a>>, ProtocolError> {
        loop {
            if self.missing == 0 {
                let Some(&first) = input.get(self.start) else { return Ok(None) };
                if first != b'*' {
                    match self.inline(input)? {
                        Inline::Incomplete => return Ok(None),
                        Inline::Empty => continue,
                        Inline::Request => {
                            return Ok(Some(Request { source: &self.unquoted, spans: &self.spans }));
                        }
                    }
                }
                if !self.array_header(input, limits)? {
                    return Ok(None);
                }
                if self.missing == 0 {
                    self.finish();
                    continue;
                }
            }
            if !self.arguments(input, limits)? {
                return Ok(None);
            }
            let start = self.start;
            self.finish();
            return Ok(Some(Request { source: &input[start..self.start], spans: &self.spans }));
        }
    }

    /// How many bytes at the front of the input are not needed any more; the next input begins after them.
    pub fn take_consumed(&mut self) -> usize {
        std::mem::take(&mut self.start)
    }

    /// Whether a request has begun and not ended.
    pub fn is_within_request(&self) -> bool {
        self.missing > 0
    }

    /// Puts the end of the request at `position`, where the next one begins.
    fn finish(&mut self) {
        self.start += self.position;
        self.position = 0;
    }

    /// Reads `*count`, and puts the count into `missing`. False if the line is not complete.
    fn array_header(&mut self, input: &[u8], limits: &Limits) -> Result<bool, ProtocolError> {
        let count = match self.number_line(&input[self.start..]) {
            Line::Number(count) => count,
            Line::Malformed => return Err(ProtocolError::InvalidArrayLength),
            Line::TooLong => return Err(ProtocolError::ArrayLineTooLong),
            Line::Incomplete => return Ok(false),
        };
        if count > i64::from(i32::MAX) {
            return Err(ProtocolError::InvalidArrayLength);
        }
        if limits.unauthenticated && count > Limits::UNAUTHENTICATED_ARGUMENTS_MAX {
            return Err(ProtocolError::UnauthenticatedArrayLength);
        }
        self.spans.clear();
        self.spans.shrink_to(SPANS_KEPT_MAX);
        self.missing = u64::try_from(count).unwrap_or(0);
        Ok(true)
    }

    /// Reads the arguments that are there. True once none is missing.
    fn arguments(&mut self, input: &[u8], limits: &Limits) -> Result<bool, ProtocolError> {
        let request = &input[self.start..];
        while self.missing > 0 {
            let bulk_bytes = match self.bulk_bytes {
                Some(bulk_bytes) => bulk_bytes,
                None => match self.bulk_header(request, limits)? {
                    Some(bulk_bytes) => bulk_bytes,
                    None => return Ok(false),
                },
            };
            let end = self.position + bulk_bytes;
            // The two bytes after an argument are skipped, whatever they are: so does Redis.
            if request.len() < end + 2 {
                self.bulk_bytes = Some(bulk_bytes);
                return Ok(false);
            }
            if self.spans.len() == ARGUMENTS_MAX {
                return Err(ProtocolError::InvalidArrayLength);
            }
            self.spans.push(Span { start: self.position as u32, end: end as u32 });
            self.bulk_bytes = None;
            self.position = end + 2;
            self.missing -= 1;
            self.count_work(2);
        }
        Ok(true)
    }

    /// Reads `$length`. `None` if the line is not complete.
    fn bulk_header(&mut self, request: &[u8], limits: &Limits) -> Result<Option<usize>, ProtocolError> {
        let at = self.position;
        let line = self.number_line(request);
        if !matches!(line, Line::Incomplete | Line::TooLong) && request[at] != b'$' {
            return Err(ProtocolError::ExpectedBulk(request[at]));
        }
        let length = match line {
            Line::Number(length) => length,
            Line::Malformed => return Err(ProtocolError::InvalidBulkLength),
            Line::TooLong => return Err(ProtocolError::BulkLineTooLong),
            Line::Incomplete => return Ok(None),
        };
        if limits.unauthenticated && length > Limits::UNAUTHENTICATED_BULK_BYTES_MAX {
            return Err(ProtocolError::UnauthenticatedBulkLength);
        }
        match usize::try_from(length) {
            Ok(length) if length <= limits.bulk_bytes_max => Ok(Some(length)),
            _ => Err(ProtocolError::InvalidBulkLength),
        }
    }

    /// Reads a type byte and a number up to the end of their line, and moves behind it.
    #[inline]
    fn number_line(&mut self, request: &[u8]) -> Line {
        let rest = &request[self.position..];
        if let Some((number, line_bytes)) = short_number_line(rest) {
            self.position += line_bytes;
            self.searched = 0;
            self.count_work(line_bytes);
            return Line::Number(number);
        }
        self.any_number_line(rest)
    }

    /// The same for numbers of any length, for lines that are not complete, and for what is no number.
    #[cold]
    fn any_number_line(&mut self, rest: &[u8]) -> Line {
        let near = &rest[..rest.len().min(NUMBER_LINE_BYTES_MAX + 1)];
        let carriage_return = match near.iter().position(|byte| *byte == b'\r') {
            Some(at) => {
                self.count_work(at);
                Some(at)
            }
            None if rest.len() <= near.len() => None,
            // No number is this long: find where the line ends, to say the same as Redis about it.
            None => self.search(rest, b'\r'),
        };
        let Some(end) = carriage_return.filter(|at| at + 2 <= rest.len()) else {
            return if rest.len() > LINE_BYTES_MAX { Line::TooLong } else { Line::Incomplete };
        };
        if end >= LINE_BYTES_MAX {
            return Line::TooLong;
        }
        self.position += end + 2;
        self.searched = 0;
        match rest.get(1..end).and_then(parse_integer) {
            Some(number) => Line::Number(number),
            None => Line::Malformed,
        }
    }

    /// Reads a request that is a line of words.
    fn inline(&mut self, input: &[u8]) -> Result<Inline, ProtocolError> {
        let rest = &input[self.start..];
        let Some(end) = self.search(rest, b'\n') else {
            return match rest.len() > LINE_BYTES_MAX {
                true => Err(ProtocolError::InlineTooLong),
                false => Ok(Inline::Incomplete),
            };
        };
        if end > LINE_BYTES_MAX {
            return Err(ProtocolError::InlineTooLong);
        }
        let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
        self.spans.clear();
        self.unquoted.clear();
        split_words(line, &mut self.unquoted, &mut self.spans)?;
        self.count_work(line.len());
        self.start += end + 1;
        self.searched = 0;
        Ok(if self.spans.is_empty() { Inline::Empty } else { Inline::Request })
    }

    /// Finds `byte` among those of `rest` that were not searched before.
    fn search(&mut self, rest: &[u8], byte: u8) -> Option<usize> {
        let from = self.searched;
        let found = memchr::memchr(byte, &rest[from..]).map(|at| from + at);
        // A byte that was found is found again at once while what must follow it has not come.
        self.searched = found.unwrap_or(rest.len());
        self.count_work(self.searched - from);
        found
    }

    #[cfg(test)]
    fn count_work(&mut self, bytes: usize) {
        self.work += bytes as u64 + 1;
    }

    #[cfg(not(test))]
    #[inline(always)]
    fn count_work(&self, _bytes: usize) {}
}

/// Reads a line with a number of up to eight digits, which nearly all are; answers it with the line's length.
#[inline]
fn short_number_line(line: &[u8]) -> Option<(i64, usize)> {
    const DIGITS_MAX: usize = 8;
    let first = line.get(1)?.wrapping_sub(b'0');
    let mut number = i64::from(first);
    let mut at = 2;
    while at <= DIGITS_MAX {
        let digit = line.get(at)?.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        number = 10 * number + i64::from(digit);
        at += 1;
    }
    // A zero in front, or none at all, is for the strict reading to judge.
    let is_plain = (1..=9).contains(&first) || (first == 0 && at == 2);
    (is_plain && line.get(at) == Some(&b'\r') && line.len() > at + 1).then_some((number, at + 2))
}

/// A line that should hold a number.
enum Line {
    Number(i64),
    Malformed,
    TooLong,
    Incomplete,
}

/// What became of a line of words.
enum Inline {
    Request,
    Empty,
    Incomplete,
}

/// Splits a line into words as Redis does (`sdssplitargs`): double quotes with escapes, single quotes in
/// which only `\'` is one, and a closing quote must end its word.
fn split_words(line: &[u8], words: &mut Vec<u8>, spans: &mut Vec<Span>) -> Result<(), ProtocolError> {
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

/// Appends the word that `rest` begins with to `words`, and answers what follows it.
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

#[cfg(test)]
mod tests;
