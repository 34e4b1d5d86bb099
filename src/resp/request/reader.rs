//! Cuts a stream into requests.
//!
//! A stream arrives in pieces of any size. The reader gets all bytes that are not yet consumed, and returns
//! how many whole requests they begin with. It remembers how far it came, and looks at no byte again when
//! more arrive: reading costs time linear in the bytes, however they are cut. Nothing is copied but the
//! arguments of inline requests, which must be unquoted.
//!
//! A length that the network announces decides nothing but errors. Arguments and bytes are counted as they
//! arrive, and the memory for them grows with them. Texts and limits are those of Redis 7
//! (`processMultibulkBuffer` and `processInlineBuffer` describe them).

use super::limits::{ARGUMENTS_MAX, LINE_BYTES_MAX, Limits, ProtocolError};
use super::plain::plain_request;
use super::words::split_words;
use super::{Request, Span};
use crate::resp::number::parse_integer;

/// The longest header line that can hold an acceptable number: a sign, 19 digits, and a type byte.
const NUMBER_LINE_BYTES_MAX: usize = 21;
/// Requests that are read before the first of them is executed: the misses of the cache of so many overlap.
pub(crate) const READ_AHEAD_MAX: usize = 64;
/// Arguments whose places are kept from one batch of requests to the next; beyond, the memory is given back.
const SPANS_KEPT_MAX: usize = 4 * READ_AHEAD_MAX;
/// The same for bytes of inline requests.
const UNQUOTED_BYTES_KEPT_MAX: usize = 1024;

/// Cuts a stream into requests; one for each connection.
///
/// The caller keeps the input. It reads the requests that are there ([`read_ahead`](Self::read_ahead)), and
/// takes each ([`requests`](Self::requests)). When it is done with them, it drops as many bytes from the
/// front of the input as [`release`](Self::release) returns, before it appends more.
#[derive(Clone, Debug, Default)]
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
    /// Bytes that were looked at. A test shows with it that the cost is linear.
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
    /// Reads the requests that are there, up to [`READ_AHEAD_MAX`]. Returns how many are ready. Empty ones
    /// are skipped, as Redis does.
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

    /// The requests that are ready, without the first `done` of them.
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

    /// Forgets the requests that are ready. Returns how many bytes at the front of the input are no longer
    /// needed; the next input begins after them.
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

    /// The same for the first `done` of them; the others stay ready.
    pub fn release_first(&mut self, done: usize) -> usize {
        let Some(next) = self.ready.get(done) else { return self.release() };
        let bytes = next.start;
        let done_spans: usize = self.ready[..done].iter().map(|ready| ready.spans as usize).sum();
        self.ready.drain(..done);
        self.spans.drain(..done_spans);
        self.first_span -= done_spans;
        self.start -= bytes;
        self.ready.iter_mut().for_each(|ready| ready.start -= bytes);
        self.release_unquoted();
        bytes
    }

    /// Forgets the unquoted arguments in front of those that the ready requests still have.
    fn release_unquoted(&mut self) {
        let (mut at, mut released) = (0, None);
        for ready in &self.ready {
            let end = at + ready.spans as usize;
            if ready.is_inline {
                let from = *released.get_or_insert(self.spans[at].start);
                for span in &mut self.spans[at..end] {
                    (span.start, span.end) = (span.start - from, span.end - from);
                }
            }
            at = end;
        }
        self.unquoted.drain(..released.map_or(self.unquoted.len(), |from| from as usize));
    }

    /// Reads plain requests. The first one that is not plain is left, as it was, to
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
        // The first arguments of the one that is not plain may have been added.
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
            // No number is this long. Find where the line ends, for the error that Redis replies with.
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
        // If the byte after it has not come yet, the next search finds this byte again at once.
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

/// What a line that should hold a number came to.
enum Line {
    Number(i64),
    Malformed,
    TooLong,
    Incomplete,
}

/// What an inline request came to.
enum Inline {
    Request,
    Empty,
    Incomplete,
}

#[cfg(test)]
mod tests;
