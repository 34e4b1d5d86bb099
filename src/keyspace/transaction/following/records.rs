//! Requests that change data, in the form of the log. They are the requests that Redis would log, in its
//! protocol.

use std::io;
use std::ops::Range;

use crate::values::Sink;

/// The most elements that one request writes. Redis: `AOF_REWRITE_ITEMS_PER_CMD`.
const ELEMENTS_MAX: usize = 64;
/// The most bytes of the elements of one request, before its last one. A reader keeps a whole request in
/// memory, and its positions have 32 bits.
const ELEMENTS_BYTES_MAX: usize = 64 << 20;

/// Changes of whole databases.
#[derive(Clone, Copy, Debug)]
pub(in crate::keyspace) enum Replaced {
    FlushAll,
    Flush(usize),
    Swap(usize, usize),
}

/// Selects a database, unless the reader has already selected it.
pub(crate) fn select(out: &mut Vec<u8>, current: &mut Option<usize>, database: usize) {
    if *current != Some(database) {
        *current = Some(database);
        request(out, &[b"SELECT", number(database as u64, &mut itoa::Buffer::new())]);
    }
}

/// Appends the annotation of a time, in seconds since 1970. By it redis-check-aof cuts off what came later.
pub(crate) fn time(out: &mut Vec<u8>, time_s: u64) {
    out.extend_from_slice(b"#TS:");
    out.extend_from_slice(number(time_s, &mut itoa::Buffer::new()));
    out.extend_from_slice(b"\r\n");
}

/// The beginning of the annotation with the fencing number of the last holder of a lock.
pub(crate) const FENCING: &[u8] = b"#KEYFAST-FENCING:";

/// Appends that annotation.
pub(crate) fn fencing(out: &mut Vec<u8>, last: u64) {
    out.extend_from_slice(FENCING);
    out.extend_from_slice(number(last, &mut itoa::Buffer::new()));
    out.extend_from_slice(b"\r\n");
}

/// The beginning of the annotation with the fencing number of the lock that the next request writes.
pub(crate) const FENCE: &[u8] = b"#KEYFAST-LOCK:";

/// Appends that annotation, if the key is a lock with a number.
pub(crate) fn fence(out: &mut Vec<u8>, fence: Option<u64>) {
    if let Some(fence) = fence {
        out.extend_from_slice(FENCE);
        out.extend_from_slice(number(fence, &mut itoa::Buffer::new()));
        out.extend_from_slice(b"\r\n");
    }
}

/// Writes a key with a string, which may be long.
///
/// # Errors
///
/// The errors of the sink.
pub(crate) fn set(
    sink: &mut dyn Sink,
    key: &[u8],
    value: &[u8],
    expires_at_ms: Option<u64>,
) -> io::Result<()> {
    let out = sink.buffer();
    header(out, b'*', if expires_at_ms.is_some() { 5 } else { 3 });
    word(out, b"SET");
    word(out, key);
    long_word(sink, value)?;
    if let Some(at_ms) = expires_at_ms {
        let out = sink.buffer();
        word(out, b"PXAT");
        word(out, number(at_ms, &mut itoa::Buffer::new()));
    }
    sink.pass_on()
}

/// Writes a key with a collection: removes it, and adds the elements, a few at a time.
///
/// # Errors
///
/// The errors of the sink.
pub(crate) fn collection<Part: AsRef<[u8]>, const PARTS: usize>(
    sink: &mut dyn Sink,
    key: &[u8],
    name: &str,
    mut elements: impl Iterator<Item = [Part; PARTS]>,
    expires_at_ms: Option<u64>,
) -> io::Result<()> {
    request(sink.buffer(), &[b"DEL", key]);
    loop {
        let (mut some, mut bytes) = (Vec::new(), 0);
        while some.len() < ELEMENTS_MAX
            && bytes < ELEMENTS_BYTES_MAX
            && let Some(element) = elements.next()
        {
            bytes += element.iter().map(|part| part.as_ref().len()).sum::<usize>();
            some.push(element);
        }
        if some.is_empty() {
            break;
        }
        let out = sink.buffer();
        header(out, b'*', 2 + PARTS * some.len());
        word(out, name.as_bytes());
        word(out, key);
        for part in some.iter().flatten() {
            long_word(sink, part.as_ref())?;
        }
        sink.pass_on()?;
    }
    if expires_at_ms.is_some() {
        expiry(sink.buffer(), key, expires_at_ms);
    }
    sink.pass_on()
}

/// Makes fields of a hash expire, each at its moment. Neighbours with the same moment share a request.
///
/// # Errors
///
/// The errors of the sink.
pub(crate) fn field_expiries<'f>(
    sink: &mut dyn Sink,
    key: &[u8],
    fields: impl Iterator<Item = (&'f [u8], u64)>,
) -> io::Result<()> {
    let mut fields = fields.peekable();
    let (mut some, mut bytes) = (Vec::new(), 0);
    while let Some((field, at_ms)) = fields.next() {
        some.push(field);
        bytes += field.len();
        let has_room = some.len() < ELEMENTS_MAX && bytes < ELEMENTS_BYTES_MAX;
        if has_room && fields.peek().is_some_and(|(_, next_ms)| *next_ms == at_ms) {
            continue;
        }
        let (mut moment, mut count) = (itoa::Buffer::new(), itoa::Buffer::new());
        let (moment, count) = (number(at_ms, &mut moment), number(some.len() as u64, &mut count));
        let out = sink.buffer();
        header(out, b'*', 5 + some.len());
        [&b"HPEXPIREAT"[..], key, moment, b"FIELDS", count].iter().for_each(|part| word(out, part));
        bytes = 0;
        for field in some.drain(..) {
            long_word(sink, field)?;
        }
        sink.pass_on()?;
    }
    Ok(())
}

/// Loads a library of functions, and replaces one of the same name.
pub(crate) fn library(out: &mut Vec<u8>, code: &[u8]) {
    request(out, &[b"FUNCTION", b"LOAD", b"REPLACE", code]);
}

/// Copies a key with its expiry.
pub(in crate::keyspace) fn copy(out: &mut Vec<u8>, source: &[u8], target_database: usize, target: &[u8]) {
    let mut buffer = itoa::Buffer::new();
    let database = number(target_database as u64, &mut buffer);
    request(out, &[b"COPY", source, target, b"DB", database, b"REPLACE"]);
}

/// Makes a key expire at a moment, in milliseconds since 1970, or never.
pub(crate) fn expiry(out: &mut Vec<u8>, key: &[u8], expires_at_ms: Option<u64>) {
    match expires_at_ms {
        None => request(out, &[b"PERSIST", key]),
        Some(at_ms) => request(out, &[b"PEXPIREAT", key, number(at_ms, &mut itoa::Buffer::new())]),
    }
}

/// Writes a changed range of a value. Bytes beyond the old length were appended.
pub(in crate::keyspace) fn step(
    out: &mut Vec<u8>,
    key: &[u8],
    value: &[u8],
    range: Range<usize>,
    before_bytes: usize,
) {
    match range.start == before_bytes && range.end == value.len() {
        true => request(out, &[b"APPEND", key, &value[range]]),
        false => {
            let mut buffer = itoa::Buffer::new();
            let offset = number(range.start as u64, &mut buffer);
            request(out, &[b"SETRANGE", key, offset, &value[range]]);
        }
    }
}

pub(in crate::keyspace) fn replaced(out: &mut Vec<u8>, current: &mut Option<usize>, replaced: Replaced) {
    match replaced {
        Replaced::FlushAll => request(out, &[b"FLUSHALL"]),
        Replaced::Flush(database) => {
            select(out, current, database);
            request(out, &[b"FLUSHDB"]);
        }
        Replaced::Swap(one, other) => {
            let (mut first, mut second) = (itoa::Buffer::new(), itoa::Buffer::new());
            request(out, &[b"SWAPDB", number(one as u64, &mut first), number(other as u64, &mut second)]);
        }
    }
}

/// Records changes of one key as requests. Requests of one name that follow each other become one.
#[derive(Debug)]
pub(in crate::keyspace) struct Recorder<'k> {
    key: &'k [u8],
    records: Vec<u8>,
    count: usize,
    /// The request that may grow.
    open: Option<Open>,
}

/// The last request, which gets more arguments. Its first line is [`UNCOUNTED`] until it ends.
#[derive(Debug)]
struct Open {
    name: &'static str,
    /// Where it begins.
    start: usize,
    /// The number of its words.
    words: usize,
}

/// The first line of a request whose words are not counted yet.
const UNCOUNTED: &[u8] = b"*?\r\n";

impl<'k> Recorder<'k> {
    /// The most bytes of one request, before its last arguments.
    const BYTES_MAX: usize = 64 << 10;

    /// Begins to record changes of a key.
    pub(in crate::keyspace) fn of(key: &'k [u8]) -> Recorder<'k> {
        Recorder { key, records: Vec::new(), count: 0, open: None }
    }

    /// Adds arguments to the request of this name.
    pub(in crate::keyspace) fn add(&mut self, name: &'static str, arguments: &[&[u8]]) {
        let start = self.records.len();
        match &mut self.open {
            Some(open) if open.name == name && start - open.start <= Self::BYTES_MAX => {
                open.words += arguments.len();
            }
            _ => {
                self.end();
                // Once, for what is nearly always the only request.
                let bytes = arguments.iter().map(|argument| room(argument)).sum::<usize>();
                self.records.reserve(UNCOUNTED.len() + room(name.as_bytes()) + room(self.key) + bytes);
                self.open = Some(Open { name, start: self.records.len(), words: 2 + arguments.len() });
                self.records.extend_from_slice(UNCOUNTED);
                word(&mut self.records, name.as_bytes());
                word(&mut self.records, self.key);
            }
        }
        arguments.iter().for_each(|argument| word(&mut self.records, argument));
    }

    /// Adds a request of a subcommand, which stands in front of the key.
    pub(in crate::keyspace) fn add_subcommand(&mut self, name: &str, subcommand: &str, arguments: &[&[u8]]) {
        self.end();
        header(&mut self.records, b'*', 3 + arguments.len());
        for part in [name.as_bytes(), subcommand.as_bytes(), self.key] {
            word(&mut self.records, part);
        }
        arguments.iter().for_each(|argument| word(&mut self.records, argument));
        self.count += 1;
    }

    /// Ends the current request.
    pub(in crate::keyspace) fn end(&mut self) {
        let Some(Open { start, words, .. }) = self.open.take() else { return };
        self.count += 1;
        match words {
            0..10 => self.records[start + 1] = b'0' + words as u8,
            _ => {
                let mut first = Vec::new();
                header(&mut first, b'*', words);
                self.records.splice(start..start + UNCOUNTED.len(), first);
            }
        }
    }

    /// Returns the requests, and their number.
    pub(in crate::keyspace) fn finish(mut self) -> (Vec<u8>, usize) {
        self.end();
        (self.records, self.count)
    }
}

/// Appends any request.
pub(crate) fn request(out: &mut Vec<u8>, arguments: &[&[u8]]) {
    words(out, arguments.iter().copied());
}

pub(in crate::keyspace) fn words<'a>(out: &mut Vec<u8>, words: impl ExactSizeIterator<Item = &'a [u8]>) {
    header(out, b'*', words.len());
    words.for_each(|argument| word(out, argument));
}

/// Appends one argument of a request.
pub(crate) fn word(out: &mut Vec<u8>, word: &[u8]) {
    out.reserve(room(word));
    header(out, b'$', word.len());
    out.extend_from_slice(word);
    out.extend_from_slice(b"\r\n");
}

/// At most how many bytes an argument takes with its header.
fn room(word: &[u8]) -> usize {
    word.len() + "$18446744073709551615\r\n\r\n".len()
}

/// Appends an argument that may be long.
fn long_word(sink: &mut dyn Sink, word: &[u8]) -> io::Result<()> {
    let out = sink.buffer();
    header(out, b'$', word.len());
    sink.append(word)?;
    sink.buffer().extend_from_slice(b"\r\n");
    Ok(())
}

#[inline]
fn header(out: &mut Vec<u8>, kind: u8, count: usize) {
    match count {
        0..10 => out.extend_from_slice(&[kind, b'0' + count as u8, b'\r', b'\n']),
        10..100 => {
            let (tens, ones) = (b'0' + (count / 10) as u8, b'0' + (count % 10) as u8);
            out.extend_from_slice(&[kind, tens, ones, b'\r', b'\n']);
        }
        _ => {
            out.push(kind);
            out.extend_from_slice(itoa::Buffer::new().format(count).as_bytes());
            out.extend_from_slice(b"\r\n");
        }
    }
}

fn number(number: u64, buffer: &mut itoa::Buffer) -> &[u8] {
    buffer.format(number).as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps what is short, and counts the rest.
    #[derive(Default)]
    struct Counting {
        kept: Vec<u8>,
        bytes: usize,
    }

    impl Sink for Counting {
        fn buffer(&mut self) -> &mut Vec<u8> {
            &mut self.kept
        }

        fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
            self.bytes += bytes.len();
            Ok(())
        }

        fn pass_on(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The numbers of arguments of all requests.
    fn counts(written: &Counting) -> Vec<usize> {
        let text = std::str::from_utf8(&written.kept).unwrap();
        let counts = text.lines().filter_map(|line| line.strip_prefix('*'));
        counts.map(|count| count.parse().unwrap()).collect()
    }

    #[test]
    fn a_request_ends_when_it_has_many_elements_or_many_bytes() {
        let (long, short) = (vec![b'v'; ELEMENTS_BYTES_MAX], &b"v"[..]);
        let (half, long) = (&long[..ELEMENTS_BYTES_MAX / 2], &long[..]);
        let many = vec![short; 2 * ELEMENTS_MAX + 1];
        let cases: [(&[&[u8]], &[usize]); 5] = [
            (&[], &[]),
            (&many, &[2 + ELEMENTS_MAX, 2 + ELEMENTS_MAX, 3]),
            (&[long; 9], &[3; 9]),
            (&[half, half, half], &[4, 3]),
            (&[short, long, short], &[4, 3]),
        ];
        for (elements, expected) in cases {
            let mut written = Counting::default();
            let pieces = elements.iter().map(|element| [*element]);
            collection(&mut written, b"k", "RPUSH", pieces, None).unwrap();
            assert_eq!(counts(&written), [&[2], expected].concat());
            assert_eq!(written.bytes, elements.iter().map(|element| element.len()).sum::<usize>());
        }
    }

    #[test]
    fn so_does_one_that_names_fields() {
        let long = vec![b'f'; ELEMENTS_BYTES_MAX];
        let mut written = Counting::default();
        let fields = [(&b"f"[..], 7), (b"g", 7), (&long, 7), (b"h", 7), (b"i", 8)];
        field_expiries(&mut written, b"k", fields.into_iter()).unwrap();
        assert_eq!(counts(&written), [8, 6, 6]);
    }
}
