//! Requests: what clients send.
//!
//! A [`Request`] borrows from the input of its connection. `reader` cuts a stream into requests. It has
//! a short way for the `plain` ones, which nearly all are. `words` splits inline requests; `limits` says what
//! a client may send.

mod limits;
mod plain;
mod reader;
mod words;

pub(crate) use limits::{ARGUMENTS_MAX, LINE_BYTES_MAX};
pub use limits::{Limits, ProtocolError};
pub use reader::RequestReader;
use words::split_words;
pub(crate) use words::words;

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

    /// How many bytes it takes as an array of strings, in which form nearly all requests come.
    pub fn bytes_as_array(&self) -> usize {
        let digits = |number: usize| number.checked_ilog10().unwrap_or(0) as usize + 1;
        let head = |number: usize| "*".len() + digits(number) + "\r\n".len();
        let string = |argument: &[u8]| head(argument.len()) + argument.len() + "\r\n".len();
        head(self.len()) + self.from(0).map(string).sum::<usize>()
    }

    /// No less than [`bytes_as_array`](Self::bytes_as_array), and known without a look at each argument.
    #[inline]
    pub fn bytes_as_array_max(&self) -> usize {
        /// Of a string: the mark, the digits of its length, and both ends of lines.
        const AROUND_BYTES_MAX: usize = 1 + 20 + 2 + 2;
        self.bytes() + (self.len() + 1) * AROUND_BYTES_MAX
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
    /// Copies a request.
    pub fn of(request: Request<'_>) -> OwnedRequest {
        let mut owned = OwnedRequest::default();
        for argument in request.from(0) {
            owned.push(argument);
        }
        owned
    }

    /// The words of a line, with quotes as in an inline request. `None` if the quotes do not match, or the
    /// line is too long for an inline request.
    pub fn of_line(line: &[u8]) -> Option<OwnedRequest> {
        (line.len() <= LINE_BYTES_MAX).then_some(line).and_then(OwnedRequest::of_long_line)
    }

    /// The same for a line of any length, whose bytes the caller has limited.
    pub fn of_long_line(line: &[u8]) -> Option<OwnedRequest> {
        // Positions have 32 bits, and a word is never longer than what it is made of.
        u32::try_from(line.len()).ok()?;
        let mut owned = OwnedRequest::default();
        split_words(line, &mut owned.source, &mut owned.spans).ok()?;
        Some(owned)
    }

    /// Adds an argument; returns whether there was room: positions have 32 bits.
    pub fn push(&mut self, argument: &[u8]) -> bool {
        let (start, end) = (self.source.len(), self.source.len() + argument.len());
        let (Ok(start), Ok(end)) = (u32::try_from(start), u32::try_from(end)) else { return false };
        self.source.extend_from_slice(argument);
        self.spans.push(Span { start, end });
        true
    }

    /// Removes all arguments.
    pub fn clear(&mut self) {
        self.source.clear();
        self.spans.clear();
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.source.len() + self.spans.len() * size_of::<Span>()
    }

    /// The request, once it has an argument.
    pub fn request(&self) -> Option<Request<'_>> {
        (!self.spans.is_empty()).then_some(Request { source: &self.source, spans: &self.spans })
    }
}
