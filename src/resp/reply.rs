//! Writes one reply into a client's output buffer.
//!
//! A [`Reply`] is the permission to reply once. Every method consumes it and returns [`Sent`], which a
//! handler must return: a command that replies twice, or not at all, does not compile. Flat replies are
//! written directly; nested ones of irregular shape go through [`super::tree`].

use redis_protocol::resp3::types::OwnedFrame;

use crate::cancel;

use super::shortest::write_shortest;
use super::{Protocol, tree};

/// The proof that a reply was written. Only this module makes one.
#[derive(Debug)]
#[must_use]
pub struct Sent(());

/// The permission to write one reply.
#[derive(Debug)]
#[must_use]
pub struct Reply<'a> {
    out: &'a mut Vec<u8>,
    protocol: Protocol,
}

impl<'a> Reply<'a> {
    /// A reply that will be appended to `out`.
    pub fn new(out: &'a mut Vec<u8>, protocol: Protocol) -> Reply<'a> {
        Reply { out, protocol }
    }

    /// The version of the protocol that the client speaks.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The same permission in another version, for HELLO, which replies in the version that it switches to.
    pub fn in_protocol(self, protocol: Protocol) -> Reply<'a> {
        Reply { protocol, ..self }
    }

    /// `+OK`
    #[inline]
    pub fn ok(self) -> Sent {
        self.out.extend_from_slice(b"+OK\r\n");
        Sent(())
    }

    /// A simple string; it must hold neither CR nor LF.
    pub fn simple(self, text: &str) -> Sent {
        debug_assert!(!text.contains(['\r', '\n']));
        self.out.push(b'+');
        self.out.extend_from_slice(text.as_bytes());
        self.out.extend_from_slice(b"\r\n");
        Sent(())
    }

    /// 1 or 0.
    #[inline]
    pub fn bool(self, value: bool) -> Sent {
        self.out.extend_from_slice(if value { b":1\r\n" } else { b":0\r\n" });
        Sent(())
    }

    /// An integer, in decimal.
    pub fn integer(self, value: i64) -> Sent {
        header(self.out, b':', value);
        Sent(())
    }

    /// How many of something there are.
    pub fn count(self, value: usize) -> Sent {
        self.integer(i64::try_from(value).unwrap_or(i64::MAX))
    }

    /// A bulk string.
    #[inline(always)]
    pub fn bulk(self, value: &[u8]) -> Sent {
        // A long one makes the buffer grow once, rather than for each part.
        if value.len() >= LONG_BULK_BYTES {
            self.out.reserve(value.len() + BULK_FRAMING_BYTES_MAX);
        }
        header(self.out, b'$', value.len() as i64);
        self.out.extend_from_slice(value);
        self.out.extend_from_slice(b"\r\n");
        Sent(())
    }

    /// A bulk string of so many bytes, without these bytes. Returns the length of the output in front of
    /// them, where the caller inserts them later.
    pub fn bulk_without(self, len: usize) -> (Sent, usize) {
        header(self.out, b'$', len as i64);
        let at = self.out.len();
        self.out.extend_from_slice(b"\r\n");
        (Sent(()), at)
    }

    /// Nothing yet. Returns the length of the output, where the caller inserts the reply later.
    pub fn later(self) -> (Sent, usize) {
        (Sent(()), self.out.len())
    }

    /// The null of the client's protocol.
    #[inline]
    pub fn nil(self) -> Sent {
        self.out.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"$-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
        Sent(())
    }

    /// A bulk string, or null.
    #[inline]
    pub fn bulk_or_nil(self, value: Option<&[u8]>) -> Sent {
        match value {
            Some(value) => self.bulk(value),
            None => self.nil(),
        }
    }

    /// Several replies, one after the other, of a command that replies to each of its arguments.
    pub fn each_of<T>(
        self,
        items: impl ExactSizeIterator<Item = T>,
        mut write: impl FnMut(T, Reply<'_>) -> Sent,
    ) -> Sent {
        debug_assert!(items.len() > 0, "every command answers");
        for item in items {
            let Sent(()) = write(item, Reply { out: self.out, protocol: self.protocol });
        }
        Sent(())
    }

    /// The null that stands for an array in RESP2.
    pub fn nil_array(self) -> Sent {
        self.out.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"*-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
        Sent(())
    }

    /// An error. Its text begins with the code; line ends become spaces.
    pub fn error(self, text: &[u8]) -> Sent {
        write_error(self.out, text);
        Sent(())
    }

    /// Lets `answer` reply. If it fails, what it has written is cut off. The error is returned with the
    /// permission to reply.
    pub fn attempt<E>(
        self,
        answer: impl FnOnce(Reply<'_>) -> Result<Sent, E>,
    ) -> Result<Sent, (E, Reply<'a>)> {
        self.attempt_measured(answer).map(|(sent, _)| sent)
    }

    /// The same, with the number of bytes that were written.
    ///
    /// # Errors
    ///
    /// Those of `answer`.
    pub fn attempt_measured<E>(
        self,
        answer: impl FnOnce(Reply<'_>) -> Result<Sent, E>,
    ) -> Result<(Sent, usize), (E, Reply<'a>)> {
        let mark = self.out.len();
        match answer(Reply { out: self.out, protocol: self.protocol }) {
            Ok(sent) => Ok((sent, self.out.len() - mark)),
            Err(error) => {
                self.out.truncate(mark);
                Err((error, self))
            }
        }
    }

    /// A reply of parts, nested in any way, that `write` writes one after the other. If it fails, what it has
    /// written is not a whole reply.
    ///
    /// # Errors
    ///
    /// Those of `write`.
    pub fn nested<E>(self, write: impl FnOnce(&mut Nested<'_>) -> Result<(), E>) -> Result<Sent, E> {
        write(&mut Nested { out: self.out, protocol: self.protocol }).map(|()| Sent(()))
    }

    /// Bytes in the output buffer so far.
    pub fn written(&self) -> usize {
        self.out.len()
    }

    /// No reply, for a connection that ends.
    pub fn nothing(self) -> Sent {
        Sent(())
    }

    /// A text for people to read: a verbatim string in RESP3.
    pub fn verbatim(self, text: &str) -> Sent {
        self.tree(&tree::verbatim(text))
    }

    /// A number with a fraction: a double in RESP3, its text in RESP2.
    pub fn double(self, value: f64) -> Sent {
        let mut text = Vec::new();
        write_shortest(&mut text, value);
        self.marked(b',', &text)
    }

    /// A number with a fraction that the caller has printed: a double in RESP3, the text in RESP2.
    pub fn decimal(self, text: &str) -> Sent {
        self.marked(b',', text.as_bytes())
    }

    /// An integer of any size, in decimal: a big number in RESP3, its text in RESP2.
    pub fn big_number(self, digits: &[u8]) -> Sent {
        self.marked(b'(', digits)
    }

    /// Truth: a boolean in RESP3, 1 or 0 in RESP2.
    pub fn boolean(self, value: bool) -> Sent {
        match self.protocol {
            Protocol::Resp3 => self.line(b'#', if value { b"t" } else { b"f" }),
            Protocol::Resp2 => self.bool(value),
        }
    }

    /// A text for people in a format of three letters: a verbatim string in RESP3.
    pub fn verbatim_of(self, format: [u8; 3], text: &[u8]) -> Sent {
        if self.protocol == Protocol::Resp2 {
            return self.bulk(text);
        }
        header(self.out, b'=', text.len() as i64 + 4);
        self.out.extend_from_slice(&format);
        self.out.push(b':');
        self.out.extend_from_slice(text);
        self.out.extend_from_slice(b"\r\n");
        Sent(())
    }

    /// A simple string of any bytes: line ends in it become spaces.
    pub fn status(self, text: &[u8]) -> Sent {
        self.line(b'+', text)
    }

    /// A text that RESP3 marks as what it is.
    fn marked(self, kind: u8, text: &[u8]) -> Sent {
        if self.protocol == Protocol::Resp3 { self.line(kind, text) } else { self.bulk(text) }
    }

    fn line(self, kind: u8, text: &[u8]) -> Sent {
        write_line(self.out, kind, text);
        Sent(())
    }

    /// A map of so many pairs, whose keys and values `write` writes in turn: an array in RESP2.
    pub fn map_of<T>(
        self,
        pairs: usize,
        parts: impl Iterator<Item = T>,
        write: impl FnMut(T, Reply<'_>) -> Sent,
    ) -> Sent {
        match self.protocol {
            Protocol::Resp3 => header(self.out, b'%', pairs as i64),
            Protocol::Resp2 => header(self.out, b'*', 2 * pairs as i64),
        }
        self.each(parts, write)
    }

    /// An array of `items`, each written by `write`.
    pub fn array_of<T>(
        self,
        items: impl ExactSizeIterator<Item = T>,
        write: impl FnMut(T, Reply<'_>) -> Sent,
    ) -> Sent {
        self.aggregate(b'*', items, write)
    }

    /// An array of so many items, each written by `write`.
    pub fn array_of_len<T>(
        self,
        len: usize,
        items: impl Iterator<Item = T>,
        write: impl FnMut(T, Reply<'_>) -> Sent,
    ) -> Sent {
        header(self.out, b'*', len as i64);
        self.each(items, write)
    }

    /// A set of so many items in RESP3, an array in RESP2.
    pub fn set_of_len<T>(
        self,
        len: usize,
        items: impl Iterator<Item = T>,
        write: impl FnMut(T, Reply<'_>) -> Sent,
    ) -> Sent {
        header(self.out, if self.protocol == Protocol::Resp3 { b'~' } else { b'*' }, len as i64);
        self.each(items, write)
    }

    /// An array of two.
    pub fn pair(self, first: impl FnOnce(Reply<'_>) -> Sent, second: impl FnOnce(Reply<'_>) -> Sent) -> Sent {
        header(self.out, b'*', 2);
        let Sent(()) = first(Reply { out: self.out, protocol: self.protocol });
        second(self)
    }

    /// A set of `items` in RESP3, an array in RESP2.
    pub fn set_of<T>(
        self,
        items: impl ExactSizeIterator<Item = T>,
        write: impl FnMut(T, Reply<'_>) -> Sent,
    ) -> Sent {
        let kind = if self.protocol == Protocol::Resp3 { b'~' } else { b'*' };
        self.aggregate(kind, items, write)
    }

    /// What the client did not ask for: a push in RESP3, an array in RESP2.
    pub fn push_of<T>(
        self,
        items: impl ExactSizeIterator<Item = T>,
        write: impl FnMut(T, Reply<'_>) -> Sent,
    ) -> Sent {
        let kind = if self.protocol == Protocol::Resp3 { b'>' } else { b'*' };
        self.aggregate(kind, items, write)
    }

    fn aggregate<T>(
        self,
        kind: u8,
        items: impl ExactSizeIterator<Item = T>,
        write: impl FnMut(T, Reply<'_>) -> Sent,
    ) -> Sent {
        header(self.out, kind, items.len() as i64);
        self.each(items, write)
    }

    /// Writes the items of an aggregate, for as long as the client wants them.
    fn each<T>(self, items: impl Iterator<Item = T>, mut write: impl FnMut(T, Reply<'_>) -> Sent) -> Sent {
        for (number, item) in items.enumerate() {
            if number % CHECKED_ITEMS == CHECKED_ITEMS - 1 {
                cancel::check();
            }
            let Sent(()) = write(item, Reply { out: self.out, protocol: self.protocol });
        }
        Sent(())
    }

    /// A nested reply.
    pub fn tree(self, frame: &OwnedFrame) -> Sent {
        tree::write(self.out, frame, self.protocol);
        Sent(())
    }
}

/// After this number of items, a reply that is written checks whether the client still wants it.
const CHECKED_ITEMS: usize = 64;

/// The permission to write the parts of one reply. As many must follow as each header announces.
#[derive(Debug)]
pub struct Nested<'a> {
    out: &'a mut Vec<u8>,
    protocol: Protocol,
}

impl Nested<'_> {
    /// The permission to write the next part.
    pub fn part(&mut self) -> Reply<'_> {
        Reply { out: self.out, protocol: self.protocol }
    }

    /// Begins an array of so many parts.
    pub fn array(&mut self, items: usize) {
        header(self.out, b'*', items as i64);
    }

    /// An array of as many parts as `write` returns that it has written.
    ///
    /// # Errors
    ///
    /// Those of `write`. What it has written is not a whole reply then.
    pub fn array_counted<E>(
        &mut self,
        write: impl FnOnce(&mut Nested<'_>) -> Result<usize, E>,
    ) -> Result<(), E> {
        self.counted(b'*', write)
    }

    /// A map in RESP3 of as many pairs as `write` returns that it has written; an array of so many items in
    /// RESP2, each of which `write` begins itself.
    ///
    /// # Errors
    ///
    /// Those of `write`. What it has written is not a whole reply then.
    pub fn map_or_array_counted<E>(
        &mut self,
        write: impl FnOnce(&mut Nested<'_>) -> Result<usize, E>,
    ) -> Result<(), E> {
        self.counted(if self.protocol == Protocol::Resp3 { b'%' } else { b'*' }, write)
    }

    fn counted<E>(
        &mut self,
        kind: u8,
        write: impl FnOnce(&mut Nested<'_>) -> Result<usize, E>,
    ) -> Result<(), E> {
        let start = self.out.len();
        let items = write(self)?;
        let end = self.out.len();
        header(self.out, kind, items as i64);
        let header_bytes = self.out.len() - end;
        self.out[start..].rotate_right(header_bytes);
        Ok(())
    }

    /// The version of the protocol that the client speaks.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Begins a set, which is an array in RESP2.
    pub fn set(&mut self, members: usize) {
        header(self.out, if self.protocol == Protocol::Resp3 { b'~' } else { b'*' }, members as i64);
    }

    /// Begins a map, of two parts for each pair: an array in RESP2.
    pub fn map(&mut self, pairs: usize) {
        match self.protocol {
            Protocol::Resp3 => header(self.out, b'%', pairs as i64),
            Protocol::Resp2 => header(self.out, b'*', 2 * pairs as i64),
        }
    }

    /// Bytes in the output buffer so far.
    pub fn written(&self) -> usize {
        self.out.len()
    }
}

/// From this length on, the room for a bulk string is reserved at once. For a short one that costs as much as
/// it saves.
const LONG_BULK_BYTES: usize = 1024;
/// A type byte, a length of up to 19 digits and two line ends.
const BULK_FRAMING_BYTES_MAX: usize = 24;

/// The digits of the numbers below a hundred.
const TWO_DIGITS: [[u8; 2]; 100] = {
    let mut digits = [[0; 2]; 100];
    let mut number = 0;
    while number < 100 {
        digits[number] = [b'0' + number as u8 / 10, b'0' + number as u8 % 10];
        number += 1;
    }
    digits
};

/// Writes a type byte and a number. Numbers below a hundred, the lengths of nearly all values, need no loop.
#[inline]
fn header(out: &mut Vec<u8>, kind: u8, number: i64) {
    match number {
        0..10 => out.extend_from_slice(&[kind, b'0' + number as u8, b'\r', b'\n']),
        10..100 => {
            let [tens, ones] = TWO_DIGITS[number as usize];
            out.extend_from_slice(&[kind, tens, ones, b'\r', b'\n']);
        }
        _ => longer_header(out, kind, number),
    }
}

fn longer_header(out: &mut Vec<u8>, kind: u8, number: i64) {
    let mut digits = itoa::Buffer::new();
    out.push(kind);
    out.extend_from_slice(digits.format(number).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Writes an error. It stays on one line: line ends in it become spaces, as in Redis.
pub(crate) fn write_error(out: &mut Vec<u8>, text: &[u8]) {
    write_line(out, b'-', text);
}

fn write_line(out: &mut Vec<u8>, kind: u8, text: &[u8]) {
    out.push(kind);
    out.extend(text.iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }));
    out.extend_from_slice(b"\r\n");
}

/// Writes bytes in double quotes, with escapes for unprintable ones, as MONITOR and redis-cli do.
pub(crate) fn write_quoted(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    for &byte in bytes {
        match byte {
            b'\\' | b'"' => out.extend([b'\\', byte]),
            b'\n' => out.extend(b"\\n"),
            b'\r' => out.extend(b"\\r"),
            b'\t' => out.extend(b"\\t"),
            0x07 => out.extend(b"\\a"),
            0x08 => out.extend(b"\\b"),
            b' '..=b'~' => out.push(byte),
            _ => out.extend(format!("\\x{byte:02x}").into_bytes()),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(protocol: Protocol, write: impl FnOnce(Reply<'_>) -> Sent) -> String {
        let mut out = Vec::new();
        let Sent(()) = write(Reply::new(&mut out, protocol));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn lengths_of_every_size_are_printed() {
        for length in [0, 9, 10, 99, 100, 12345] {
            let value = "v".repeat(length);
            let expected = format!("${length}\r\n{value}\r\n");
            assert_eq!(written(Protocol::Resp2, |reply| reply.bulk(value.as_bytes())), expected);
        }
        for number in [0, 9, 10, 99, 100, -1, i64::MAX, i64::MIN] {
            assert_eq!(written(Protocol::Resp2, |reply| reply.integer(number)), format!(":{number}\r\n"));
        }
    }

    #[test]
    fn null_differs_by_protocol() {
        assert_eq!(written(Protocol::Resp2, |reply| reply.nil()), "$-1\r\n");
        assert_eq!(written(Protocol::Resp3, |reply| reply.nil()), "_\r\n");
    }

    #[test]
    fn an_error_stays_on_its_line() {
        let mut out = Vec::new();
        write_error(&mut out, b"ERR a\r\nb");
        assert_eq!(out, b"-ERR a  b\r\n");
    }
}
