//! Reads the requests of a log back.
//!
//! The reader does not trust an announced length before the bytes have arrived. A file may end anywhere,
//! because its writer may have been stopped. Any other mistake in it is damage.
//!
//! Redis, and Keyfast before it had a limit, wrote up to 64 elements in one request, however long. So one may
//! be longer than the positions in a request allow. The reader divides long requests that add elements.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use memchr::memmem::Finder;

use crate::keyspace::records;
use crate::resp::OwnedRequest;
use crate::resp::number::parse_integer;
use crate::resp::request::ARGUMENTS_MAX;

/// Longest line with a number, and longest annotation, in bytes. Redis: `AOF_ANNOTATION_LINE_MAX_LEN`.
const LINE_BYTES_MAX: u64 = 1024;
/// Longest argument, in bytes: positions in a request are 32 bits wide.
const ARGUMENT_BYTES_MAX: i64 = u32::MAX as i64;

/// What begins an annotation with a moment, in seconds since 1970.
const MOMENT: &[u8] = b"#TS:";

/// A request that adds elements ends when it has this many bytes, and another one follows with the rest. An
/// element has two parts of at most 512 MiB.
const DIVIDED_BYTES: usize = 1 << 30;
/// The requests that can be divided, with the number of arguments of each element.
const DIVISIBLE: [(&[u8], usize); 5] =
    [(b"rpush", 1), (b"sadd", 1), (b"hset", 2), (b"hmset", 2), (b"zadd", 2)];

/// Why there is no request.
#[derive(Debug)]
pub(crate) enum Damage {
    /// The file ends within a request.
    Torn,
    /// The bytes are no request.
    Garbled,
    /// The file cannot be read.
    Unreadable(io::Error),
}

impl From<io::Error> for Damage {
    fn from(error: io::Error) -> Damage {
        Damage::Unreadable(error)
    }
}

/// A log that is being read.
pub(crate) struct AofReader<R> {
    input: R,
    offset: u64,
    /// Offset of the last request, behind its annotations.
    request_at: u64,
    line: Vec<u8>,
    fencing: u64,
    /// The fencing number of the lock that the last request writes.
    fence: Option<u64>,
    /// The rest of a request that was divided.
    rest: Option<Rest>,
    divided_bytes: usize,
    /// The lines that were read so far, apart from annotations.
    lines: u64,
    /// The last moment of which requests are read, in seconds since 1970.
    until_s: Option<i64>,
    /// Whether what follows is behind that moment.
    is_late: bool,
}

/// The rest of a request that was divided.
struct Rest {
    /// Its name and its key.
    head: OwnedRequest,
    /// How many arguments follow.
    arguments: i64,
}

impl<R: BufRead> AofReader<R> {
    /// Reads `input`, which begins at this offset of the file.
    pub(crate) fn new(input: R, offset: u64) -> AofReader<R> {
        AofReader {
            input,
            offset,
            request_at: offset,
            line: Vec::new(),
            fencing: 0,
            fence: None,
            rest: None,
            divided_bytes: DIVIDED_BYTES,
            lines: 0,
            until_s: None,
            is_late: false,
        }
    }

    /// The same reader, which ends in front of the first annotation with a later moment.
    pub(crate) fn until(self, until_s: i64) -> AofReader<R> {
        AofReader { until_s: Some(until_s), ..self }
    }

    /// Whether the last request of which there was an end is followed by later ones.
    pub(crate) fn is_late(&self) -> bool {
        self.is_late
    }

    /// The lines that were read so far, apart from annotations.
    pub(crate) fn lines(&self) -> u64 {
        self.lines
    }

    /// Bytes of the file that have been read.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Offset of the last request that was read, or that could not be read.
    pub(crate) fn request_at(&self) -> u64 {
        self.request_at
    }

    /// The largest fencing number seen so far; 0 if the log has none.
    pub(crate) fn fencing(&self) -> u64 {
        self.fencing
    }

    /// The fencing number of the lock that the last request writes, if it writes one.
    pub(crate) fn fence(&self) -> Option<u64> {
        self.fence
    }

    /// Whether the next request has the rest of the one that was just read: the two are one request.
    pub(crate) fn is_divided(&self) -> bool {
        self.rest.is_some()
    }

    /// Reads the next request; returns `false` at the end.
    ///
    /// # Errors
    ///
    /// [`Damage`]. Nothing can be read after it.
    pub(crate) fn next(&mut self, request: &mut OwnedRequest) -> Result<bool, Damage> {
        request.clear();
        self.fence = None;
        if let Some(Rest { head, arguments }) = self.rest.take() {
            *request = head;
            self.read_arguments(request, arguments)?;
            return Ok(true);
        }
        loop {
            self.request_at = self.offset;
            if !self.read_line(b"*#")? {
                return Ok(false);
            }
            // An annotation, such as a time.
            if self.line.first() != Some(&b'#') {
                break;
            }
            if let Some(until_s) = self.until_s
                && self.annotation(MOMENT).is_some_and(|at_s| at_s > until_s.unsigned_abs())
            {
                self.is_late = true;
                return Ok(false);
            }
            self.fence = self.annotation(records::FENCE);
            let last = self.fence.or_else(|| self.annotation(records::FENCING));
            self.fencing = self.fencing.max(last.unwrap_or(0));
        }
        let arguments = self.number(b'*')?;
        if !(1..=ARGUMENTS_MAX as i64).contains(&arguments) {
            return Err(Damage::Garbled);
        }
        self.read_arguments(request, arguments)?;
        Ok(true)
    }

    /// Reads as many arguments, or fewer if the request is divided.
    fn read_arguments(&mut self, request: &mut OwnedRequest, arguments: i64) -> Result<(), Damage> {
        let mut argument = Vec::new();
        for read in 0..arguments {
            if request.bytes() >= self.divided_bytes
                && let Some(head) = head_if_divisible(request)
            {
                self.rest = Some(Rest { head, arguments: arguments - read });
                return Ok(());
            }
            if !self.read_line(b"$")? {
                return Err(Damage::Torn);
            }
            let bytes = self.number(b'$')?;
            if !(0..=ARGUMENT_BYTES_MAX).contains(&bytes) {
                return Err(Damage::Garbled);
            }
            argument.clear();
            // The argument and its line end.
            let wanted = bytes as u64 + 2;
            let read = (&mut self.input).take(wanted).read_to_end(&mut argument)?;
            self.offset += read as u64;
            if (read as u64) < wanted {
                return Err(Damage::Torn);
            }
            if !argument.ends_with(b"\r\n") || !request.push(&argument[..bytes as usize]) {
                return Err(Damage::Garbled);
            }
            self.lines += 1;
        }
        Ok(())
    }

    /// Reads a line that begins with one of these bytes; returns `false` at the end.
    fn read_line(&mut self, kinds: &[u8]) -> Result<bool, Damage> {
        self.line.clear();
        let read = (&mut self.input).take(LINE_BYTES_MAX).read_until(b'\n', &mut self.line)?;
        self.offset += read as u64;
        if self.line.first().is_some_and(|kind| !kinds.contains(kind)) {
            return Err(Damage::Garbled);
        }
        match self.line.last() {
            None => Ok(false),
            Some(b'\n') => Ok(true),
            Some(_) if read as u64 == LINE_BYTES_MAX => Err(Damage::Garbled),
            Some(_) => Err(Damage::Torn),
        }
    }

    /// The number in an annotation of this name, if the line is one.
    fn annotation(&self, name: &[u8]) -> Option<u64> {
        let number = parse_integer(self.line.strip_prefix(name)?.trim_ascii_end())?;
        u64::try_from(number).ok()
    }

    fn number(&mut self, kind: u8) -> Result<i64, Damage> {
        let number = self.line.strip_prefix(&[kind]).and_then(|line| line.strip_suffix(b"\r\n"));
        let number = number.and_then(parse_integer).ok_or(Damage::Garbled)?;
        self.lines += 1;
        Ok(number)
    }
}

/// Whether an argument of ZADD is an option rather than a score.
fn is_option(argument: &[u8]) -> bool {
    [&b"nx"[..], b"xx", b"gt", b"lt", b"ch", b"incr"].iter().any(|name| argument.eq_ignore_ascii_case(name))
}

/// The name and the key of a request that adds elements, if all of its elements so far are complete.
#[cold]
fn head_if_divisible(request: &OwnedRequest) -> Option<OwnedRequest> {
    let request = request.request().filter(|request| request.len() > 2)?;
    let is = |name: &[u8]| request.name().eq_ignore_ascii_case(name);
    let (name, parts) = DIVISIBLE.iter().find(|(name, _)| is(name))?;
    // The options of ZADD stand in front of the first score.
    let has_options = *name == b"zadd" && is_option(request.at(2));
    let mut head = OwnedRequest::default();
    let is_kept = head.push(request.name()) && head.push(request.at(1));
    ((request.len() - 2) % parts == 0 && !has_options && is_kept).then_some(head)
}

/// Finds another request within the one at `at`, which seems to be longer than the file: its length may be
/// wrong, so that it contains all requests behind it. Returns the offset of the first one from which requests
/// with known names fill the file. A value may contain the text of a request, too, but where a value is torn,
/// such a text ends only by chance.
///
/// # Errors
///
/// If the file cannot be read.
pub(crate) fn hidden_request(
    path: &Path,
    at: u64,
    is_known: impl Fn(&[u8]) -> bool,
) -> io::Result<Option<u64>> {
    const WINDOW_BYTES: usize = 1 << 20;
    /// Bytes to look at: more than the beginning of a request up to the end of its name.
    const HEAD_BYTES: usize = 128;
    /// How often the file may be read: a value may be full of the beginnings of long requests.
    const READ_TIMES_MAX: u64 = 64;
    let mut file = File::open(path)?;
    let mut left_bytes = READ_TIMES_MAX * file.metadata()?.len().saturating_sub(at).max(WINDOW_BYTES as u64);
    file.seek(SeekFrom::Start(at))?;
    let (mut window, mut window_at, mut from) = (Vec::new(), at, at);
    loop {
        let read = (&mut file).take(WINDOW_BYTES as u64).read_to_end(&mut window)?;
        for found in Finder::new(b"\r\n*").find_iter(&window) {
            let begin = window_at + found as u64 + 2;
            if begin < from || !begins_request(&window[found + 2..], &is_known) {
                continue;
            }
            let Some((failed_at, read)) = failure(path, begin, &is_known)? else { return Ok(Some(begin)) };
            // What begins with a request in front of this one fails here, too.
            from = failed_at + 1;
            left_bytes = left_bytes.saturating_sub(read);
            if left_bytes == 0 {
                return Ok(None);
            }
        }
        if read == 0 {
            return Ok(None);
        }
        // The end of the window is looked at again: a request may begin in it.
        let done = window.len().saturating_sub(HEAD_BYTES);
        window.drain(..done);
        window_at += done as u64;
    }
}

/// Reads the requests from an offset to the end of a file. Returns where the first one is that is none, and
/// how many bytes were read until then.
fn failure(path: &Path, begin: u64, is_known: impl Fn(&[u8]) -> bool) -> io::Result<Option<(u64, u64)>> {
    const READ_BYTES: usize = 16 << 10;
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(begin))?;
    let mut reader = AofReader::new(BufReader::with_capacity(READ_BYTES, file), begin);
    let mut request = OwnedRequest::default();
    loop {
        match reader.next(&mut request) {
            Ok(true) if request.request().is_some_and(|request| is_known(request.name())) => {}
            Ok(false) => return Ok(None),
            Err(Damage::Unreadable(error)) => return Err(error),
            Ok(true) | Err(Damage::Torn | Damage::Garbled) => {
                let read = reader.offset() - begin;
                return Ok(Some((reader.request_at(), read.max(READ_BYTES as u64))));
            }
        }
    }
}

/// Whether bytes begin a request with a known name.
fn begins_request(bytes: &[u8], is_known: impl Fn(&[u8]) -> bool) -> bool {
    let mut lines = bytes.splitn(4, |byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r"));
    let mut line = || lines.next().flatten();
    let number = |kind: u8, line: &[u8]| line.strip_prefix(&[kind]).and_then(parse_integer);
    let arguments = line().and_then(|line| number(b'*', line));
    let bytes = line().and_then(|line| number(b'$', line));
    let (Some(arguments), Some(bytes), Some(name)) = (arguments, bytes, line()) else { return false };
    arguments > 0 && bytes == name.len() as i64 && is_known(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The requests of a log, the offset behind the last one, and the damage that follows, if any.
    fn read(bytes: &[u8]) -> (Vec<Vec<u8>>, u64, Option<Damage>) {
        let mut reader = AofReader::new(bytes, 0);
        let (mut requests, mut request, mut end) = (Vec::new(), OwnedRequest::default(), 0);
        loop {
            match reader.next(&mut request) {
                Ok(false) => return (requests, end, None),
                Err(damage) => return (requests, end, Some(damage)),
                Ok(true) => {
                    let words: Vec<&[u8]> = request.request().unwrap().from(0).collect();
                    requests.push(words.join(&b' '));
                    end = reader.offset();
                }
            }
        }
    }

    const LOG: &[u8] =
        b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n#TS:1700000000\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$3\r\n\r\nv\r\n";

    #[test]
    fn requests_come_back_and_annotations_do_not() {
        let (requests, end, damage) = read(LOG);
        assert_eq!(requests, [&b"SELECT 0"[..], b"SET k \r\nv"]);
        assert_eq!((end, damage.is_none()), (LOG.len() as u64, true));
    }

    #[test]
    fn a_long_request_that_adds_elements_is_divided_between_them() {
        let divided = |line: &str, bytes: usize| {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            let mut log = Vec::new();
            records::request(&mut log, &words);
            records::request(&mut log, &[b"PING"]);
            let (mut reader, mut request) = (AofReader::new(&log[..], 0), OwnedRequest::default());
            reader.divided_bytes = bytes;
            let mut requests = Vec::new();
            while reader.next(&mut request).unwrap() {
                let words: Vec<&[u8]> = request.request().unwrap().from(0).collect();
                let is_last = words[0] == b"PING" && reader.offset() == log.len() as u64;
                assert_eq!(reader.request_at() == 0, !is_last);
                let text = String::from_utf8(words.join(&b' ')).unwrap();
                requests.push(if reader.is_divided() { text + " …" } else { text });
            }
            requests
        };
        let whole = ["RPUSH k a b c", "ZADD k NX 1 a 2 b", "XADD k 1-1 f v", "DEL k", "RPUSH k a"];
        for line in whole {
            let bytes = if line == whole[0] { usize::MAX } else { 0 };
            assert_eq!(divided(line, bytes), [line, "PING"]);
        }
        assert_eq!(divided("RPUSH k a b c", 0), ["RPUSH k a …", "RPUSH k b …", "RPUSH k c", "PING"]);
        assert_eq!(divided("sadd k a b", 0), ["sadd k a …", "sadd k b", "PING"]);
        assert_eq!(divided("HSET k f v g w", 0), ["HSET k f v …", "HSET k g w", "PING"]);
        assert_eq!(divided("ZADD k inf a 2 b", 0), ["ZADD k inf a …", "ZADD k 2 b", "PING"]);
        // It is torn in the second part.
        let mut log = Vec::new();
        records::request(&mut log, &[b"RPUSH", b"k", b"a", b"b"]);
        let (mut reader, mut request) = (AofReader::new(&log[..log.len() - 1], 7), OwnedRequest::default());
        reader.divided_bytes = 0;
        assert!(reader.next(&mut request).unwrap() && reader.is_divided());
        assert!(matches!(reader.next(&mut request), Err(Damage::Torn)) && reader.request_at() == 7);
    }

    #[test]
    fn a_log_may_end_anywhere() {
        let first = LOG.iter().position(|byte| *byte == b'#').unwrap();
        for length in 0..LOG.len() {
            let (requests, end, damage) = read(&LOG[..length]);
            assert_eq!(requests.len(), usize::from(length >= first), "{length}");
            assert!(end == 0 || end == first as u64);
            let ends_between = length == 0 || length == first || length == first + 16;
            match damage {
                None => assert!(ends_between, "{length}"),
                Some(Damage::Torn) => assert!(!ends_between, "{length}"),
                Some(damage) => panic!("{length}: {damage:?}"),
            }
        }
    }

    #[test]
    fn what_is_no_log_is_damage_and_takes_no_memory() {
        for garbled in [
            &b"PING\r\n"[..],
            b"*0\r\n",
            b"*-1\r\n",
            b"*99999999999\r\n",
            b"*1\n$1\r\nx\r\n",
            b"*1\r\n:1\r\n",
            b"*1\r\n$-1\r\n",
            b"*1\r\n$99999999999\r\n",
            b"*1\r\n$1\r\nxyz",
            b"\0\0\0\0",
            &[b'#'; 5000],
        ] {
            let damage = read(garbled).2;
            assert!(matches!(damage, Some(Damage::Garbled)), "{} {damage:?}", garbled.escape_ascii());
        }
        assert!(matches!(read(b"*1\r\n$4000000000\r\nx").2, Some(Damage::Torn)));
    }
}
