//! Requests that change data, in the form of the log. They are the requests that Redis would log, in its
//! protocol.

use std::ops::Range;

/// Changes of whole databases.
#[derive(Clone, Copy, Debug)]
pub(in crate::keyspace) enum Replaced {
    FlushAll,
    Flush(usize),
    Swap(usize, usize),
}

/// Selects a database, unless the reader has already selected it.
pub fn select(out: &mut Vec<u8>, current: &mut Option<usize>, database: usize) {
    if *current != Some(database) {
        *current = Some(database);
        request(out, &[b"SELECT", number(database as u64, &mut itoa::Buffer::new())]);
    }
}

/// The beginning of the annotation with the fencing number of the last holder of a lock.
pub const FENCING: &[u8] = b"#KEYFAST-FENCING:";

/// Appends that annotation.
pub(in crate::keyspace) fn fencing(out: &mut Vec<u8>, last: u64) {
    out.extend_from_slice(FENCING);
    out.extend_from_slice(number(last, &mut itoa::Buffer::new()));
    out.extend_from_slice(b"\r\n");
}

/// Writes a key with a string.
pub fn set(out: &mut Vec<u8>, key: &[u8], value: &[u8], expires_at_ms: Option<u64>) {
    match expires_at_ms {
        None => request(out, &[b"SET", key, value]),
        Some(at_ms) => {
            request(out, &[b"SET", key, value, b"PXAT", number(at_ms, &mut itoa::Buffer::new())]);
        }
    }
}

/// Loads a library of functions, and replaces one of the same name.
pub fn library(out: &mut Vec<u8>, code: &[u8]) {
    request(out, &[b"FUNCTION", b"LOAD", b"REPLACE", code]);
}

/// Makes a key expire at a moment, in milliseconds since 1970, or never.
pub fn expiry(out: &mut Vec<u8>, key: &[u8], expires_at_ms: Option<u64>) {
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

/// Appends any request.
pub fn request(out: &mut Vec<u8>, arguments: &[&[u8]]) {
    words(out, arguments.iter().copied());
}

pub(in crate::keyspace) fn words<'a>(out: &mut Vec<u8>, words: impl ExactSizeIterator<Item = &'a [u8]>) {
    header(out, b'*', words.len());
    for word in words {
        out.reserve(word.len() + 32);
        header(out, b'$', word.len());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

fn header(out: &mut Vec<u8>, kind: u8, count: usize) {
    out.push(kind);
    out.extend_from_slice(itoa::Buffer::new().format(count).as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn number(number: u64, buffer: &mut itoa::Buffer) -> &[u8] {
    buffer.format(number).as_bytes()
}
