//! Buffers for reading and writing, a few for each thread.
//!
//! A connection holds one only while it has something in it, so a thousand idle clients cost no buffers at
//! all. In a prototype, with one buffer a thread instead of one a connection: 81 MB instead of 103–112 at
//! 1,000 connections, and no slower.

use std::cell::RefCell;

use bytes::BytesMut;

/// How much is read at once.
pub(super) const READ_BYTES: usize = 32 << 10;
/// A buffer that has grown beyond this is freed rather than kept.
const KEPT_BYTES_MAX: usize = 4 * READ_BYTES;
/// Buffers of each kind that a thread keeps: one is in use at a time, unless clients are slow to read.
const KEPT_MAX: usize = 4;

thread_local! {
    static INPUTS: RefCell<Vec<BytesMut>> = const { RefCell::new(Vec::new()) };
    static OUTPUTS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// An empty buffer to read into.
pub(super) fn take_input() -> BytesMut {
    INPUTS.with_borrow_mut(Vec::pop).unwrap_or_default()
}

/// Gives back a buffer that nothing is in any more.
pub(super) fn give_back_input(mut input: BytesMut) {
    input.clear();
    if (1..=KEPT_BYTES_MAX).contains(&input.capacity()) {
        INPUTS.with_borrow_mut(|kept| keep(kept, input));
    }
}

/// An empty buffer to write into.
pub(super) fn take_output() -> Vec<u8> {
    OUTPUTS.with_borrow_mut(Vec::pop).unwrap_or_default()
}

/// Gives back a buffer that has been written.
pub(super) fn give_back_output(mut output: Vec<u8>) {
    output.clear();
    if (1..=KEPT_BYTES_MAX).contains(&output.capacity()) {
        OUTPUTS.with_borrow_mut(|kept| keep(kept, output));
    }
}

fn keep<Buffer>(kept: &mut Vec<Buffer>, buffer: Buffer) {
    if kept.len() < KEPT_MAX {
        kept.push(buffer);
    }
}
