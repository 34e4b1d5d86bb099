//! Reads requests out of a client's stream.
//!
//! The stream arrives in pieces of any size. The reader is given all bytes that are not yet consumed and
//! answers how many whole requests they begin with; it remembers how far it came, so no byte is looked at
//! again because more of them arrived: reading costs time linear in the bytes, however they are cut. A
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
/// Arguments of a request that is read in one go; fewer than a client may send before it authenticates.
const PLAIN_ARGUMENTS_MAX: usize = 8;
/// The longest header line that can hold an acceptable number: a sign, 19 digits, and a type byte.
const NUMBER_LINE_BYTES_MAX: usize = 21;
/// Requests that are read before the first of them is executed: so many misses of the cache can be waited
/// for at once.
pub const READ_AHEAD_MAX: usize = 64;
/// Arguments whose places are kept from one batch of requests to the next; beyond, the memory is given back.
const SPANS_KEPT_MAX: usize = 4 * READ_AHEAD_MAX;
/// The same for bytes of inline requests.
const UNQUOTED_BYTES_KEPT_MAX: usize = 1024;

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

    /// What any argument may have, whatever else is to be said about it.
    fn plain_bulk_bytes_max(&self) -> usize {
        self.bulk_bytes_max.min(Limits::UNAUTHENTICATED_BULK_BYTES_MAX as usize)
    }
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

    /// How many bytes it took, about.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.spans.last().map_or(0, |span| span.end as usize)
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

/// A request that is kept, or made by the server itself.
#[derive(Clone, Debug, Default)]
pub struct OwnedRequest {
    source: Vec<u8>,
    spans: Vec<Span>,
}

impl OwnedRequest {
    /// A copy.
    pub fn of(request: Request<'_>) -> OwnedRequest {
        let mut owned = OwnedRequest::default();
        for argument in request.from(0) {
            owned.push(argument);
        }
        owned
    }

    /// The words of a line, with quotes as inline requests have them; none if the quotes do not match, or the
    /// line is too long for an inline request.
    pub fn of_line(line: &[u8]) -> Option<OwnedRequest> {
        let mut owned = OwnedRequest::default();
        let is_short = line.len() <= LINE_BYTES_MAX;
        let is_whole = is_short && split_words(line, &mut owned.source, &mut owned.spans).is_ok();
        is_whole.then_some(owned)
    }

    /// Adds an argument; answers whether there was room: positions have 32 bits.
    pub fn push(&mut self, argument: &[u8]) -> bool {
        let (start, end) = (self.source.len(), self.source.len() + argument.len());
        let (Ok(start), Ok(end)) = (u32::try_from(start), u32::try_from(end)) else { return false };
        self.source.extend_from_slice(argument);
        self.spans.push(Span { start, end });
        true
    }

    /// Takes all arguments away.
    pub fn clear(&mut self) {
        self.source.clear();
        self.spans.clear();
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.source.len() + self.spans.len() * size_of::<Span>()
    }

    /// The request; none as long as it has no arguments.
    pub fn request(&self) -> Option<Request<'_>> {
        (!self.spans.is_empty()).then_some(Request { source: &self.source, spans: &self.spans })
    }
}

/// Cuts a stream into requests; one for each connection.
///
/// The caller keeps the input. It asks for the requests that are there ([`read_ahead`](Self::read_ahead)),
/// looks at each ([`request`](Self::request)), and when it is done with them drops the front of the input by
/// what [`release`](Self::release) answers, before it appends more.
#[derive(Debug, Default)]
pub struct RequestReader {
    /// Requests that have been read whole.
    ready: Vec<Ready>,
    /// Why nothing can be read after them.
    failure: Option<ProtocolError>,
    /// Where the next request begins in the input.
    start: usize,
    /// The next byte to read, from `start`.
    position: usize,
    /// Bytes from `position` on that have been searched for the end of a line already.
    searched: usize,
    /// Arguments that the next request still announces.
    missing: u64,
    /// The length of the argument that is being waited for.
    bulk_bytes: Option<usize>,
    /// The arguments of the requests that are ready, and of the next one as far as they have come.
    spans: Vec<Span>,
    /// Where those of the next one begin.
    first_span: usize,
    /// The arguments of inline requests, unquoted.
    unquoted: Vec<u8>,
    /// Bytes looked at, so that a test can show the cost to be linear.
    #[cfg(test)]
    work: u64,
}

/// Where a whole request is.
#[derive(Clone, Copy, Debug)]
struct Ready {
    /// Where it begins in the input; an inline request's arguments are not there.
    start: usize,
    is_inline: bool,
    /// How many arguments it has.
    spans: u32,
}

impl RequestReader {
    /// Reads the requests that are there, up to [`READ_AHEAD_MAX`]; answers how many are ready. Empty ones
    /// are passed over, as Redis does.
    ///
    /// `input` begins where the last [`release`](Self::release) ended. Those that are ready already stay so.
    ///
    /// # Errors
    ///
    /// If the stream cannot be read any further, and no request before that place is waiting.
    #[inline(never)]
    pub fn read_ahead(&mut self, input: &[u8], limits: &Limits) -> Result<usize, ProtocolError> {
        // A client that authenticates may send more in its very next request.
        let ready_max = if limits.unauthenticated { 1 } else { READ_AHEAD_MAX };
        while self.ready.len() < ready_max && self.failure.is_none() {
            self.read_plain(input, limits, ready_max);
            if self.ready.len() == ready_max || self.start == input.len() {
                break;
            }
            match self.read_one(input, limits) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => self.failure = Some(error),
            }
        }
        match self.failure {
            Some(error) if self.ready.is_empty() => Err(error),
            _ => Ok(self.ready.len()),
        }
    }

    /// Whether it is at the beginning of a request, and none is ready.
    pub fn is_empty(&self) -> bool {
        let is_at_beginning = self.start + self.position + self.searched == 0 && self.missing == 0;
        is_at_beginning && self.ready.is_empty() && self.spans.is_empty() && self.failure.is_none()
    }

    /// Bytes that have been read of a request which is not whole yet.
    pub fn partial_bytes(&self) -> usize {
        self.position
    }

    /// The requests that are ready, but for the first so many.
    #[inline]
    pub fn requests<'a>(
        &'a self,
        input: &'a [u8],
        done: usize,
    ) -> impl ExactSizeIterator<Item = Request<'a>> + use<'a> {
        let (done, ready) = self.ready.split_at(done.min(self.ready.len()));
        let done_spans: usize = done.iter().map(|ready| ready.spans as usize).sum();
        let mut spans = &self.spans[done_spans..];
        ready.iter().map(move |ready| {
            let (own, others) = spans.split_at(ready.spans as usize);
            spans = others;
            Request {
                source: if ready.is_inline { &self.unquoted } else { &input[ready.start..] },
                spans: own,
            }
        })
    }

    /// Forgets the requests that are ready. Answers how many bytes at the front of the input are not needed
    /// any more; the next input begins after them.
    pub fn release(&mut self) -> usize {
        self.ready.clear();
        if self.first_span == self.spans.len() {
            self.spans.clear();
        } else {
            self.spans.drain(..self.first_span);
        }
        self.first_span = 0;
        self.unquoted.clear();
        if self.missing == 0 {
            self.spans.shrink_to(SPANS_KEPT_MAX);
            self.unquoted.shrink_to(UNQUOTED_BYTES_KEPT_MAX);
        }
        std::mem::take(&mut self.start)
    }

    /// Reads requests of the plainest kind, which nearly all are: arrays, all of them there, of arguments
    /// that any client may send. The first that may be anything else is left, as it was, to
    /// [`read_one`](Self::read_one).
    fn read_plain(&mut self, input: &[u8], limits: &Limits, ready_max: usize) {
        if self.position > 0 || self.searched > 0 {
            return;
        }
        let bulk_bytes_max = limits.plain_bulk_bytes_max();
        while self.ready.len() < ready_max
            && let Some(rest) = input.get(self.start..)
            && let Some(bytes) = plain_request(rest, bulk_bytes_max, &mut self.spans)
        {
            self.count_work(bytes);
            self.add_ready(false);
            self.start += bytes;
        }
        // What was found of the one that is not plain.
        self.spans.truncate(self.first_span);
    }

    /// Reads one request, empty ones aside. False if not all of it is there.
    fn read_one(&mut self, input: &[u8], limits: &Limits) -> Result<bool, ProtocolError> {
        loop {
            if self.missing == 0 {
                let Some(&first) = input.get(self.start) else { return Ok(false) };
                if first != b'*' {
                    match self.inline(input)? {
                        Inline::Incomplete => return Ok(false),
                        Inline::Empty => continue,
                        Inline::Request => return Ok(true),
                    }
                }
                if !self.array_header(input, limits)? {
                    return Ok(false);
                }
                if self.missing == 0 {
                    self.start += std::mem::take(&mut self.position);
                    continue;
                }
            }
            if !self.arguments(input, limits)? {
                return Ok(false);
            }
            let end = self.start + std::mem::take(&mut self.position);
            self.add_ready(false);
            self.start = end;
            return Ok(true);
        }
    }

    /// Makes a request of the arguments read last.
    fn add_ready(&mut self, is_inline: bool) {
        let spans = (self.spans.len() - self.first_span) as u32;
        self.ready.push(Ready { start: self.start, is_inline, spans });
        self.first_span = self.spans.len();
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
            if self.spans.len() - self.first_span == ARGUMENTS_MAX {
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
    fn number_line(&mut self, request: &[u8]) -> Line {
        let rest = &request[self.position..];
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
        if let Err(error) = split_words(line, &mut self.unquoted, &mut self.spans) {
            self.spans.truncate(self.first_span);
            return Err(error);
        }
        self.count_work(line.len());
        let is_empty = self.spans.len() == self.first_span;
        if !is_empty {
            self.add_ready(true);
        }
        self.start += end + 1;
        self.searched = 0;
        Ok(if is_empty { Inline::Empty } else { Inline::Request })
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

/// Reads a plain request; answers its length, and adds where its arguments are. `None` if it is not plain;
/// then some may have been added.
#[inline(always)]
fn plain_request(request: &[u8], bulk_bytes_max: usize, spans: &mut Vec<Span>) -> Option<usize> {
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

/// Reads a line with a type byte and a number of a few digits; answers the number and the line's length.
/// `None` for anything that is not plainly that.
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

/// The words of a line of any length, with quotes as inline requests have them; none if the quotes do not
/// match.
pub fn words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    // Positions have 32 bits, and a word is never longer than what it is made of.
    u32::try_from(line.len()).ok()?;
    let (mut source, mut spans) = (Vec::new(), Vec::new());
    split_words(line, &mut source, &mut spans).ok()?;
    Some(spans.iter().map(|span| source[span.start as usize..span.end as usize].to_vec()).collect())
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
