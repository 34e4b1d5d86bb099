//! The buffers that connections read into and write from: a few of each kind for each thread.
//!
//! A connection holds a buffer only while something is in it, so a thousand idle clients need none. While it
//! waits with something in it, that lies in memory of its own size ([`Intake::pack`]). Measured
//! in a prototype with 1,000 connections: 81 MB with one buffer a thread, 103 to 112 MB with one a
//! connection, at the same speed.

use std::cell::RefCell;

use super::intake::{Intake, READ_BYTES};

/// Capacity of an output buffer: mostly enough for the replies to one read.
const OUTPUT_BYTES: usize = 16 << 10;
/// A buffer that has grown beyond this is freed rather than kept.
const KEPT_BYTES_MAX: usize = 2 * READ_BYTES;
/// The most buffers of each kind per thread: one is in use at a time, unless clients are slow to read.
const KEPT_MAX: usize = 4;

thread_local! {
    #[expect(clippy::vec_box, reason = "they come and go in their boxes")]
    static INTAKES: RefCell<Vec<Box<Intake>>> = const { RefCell::new(Vec::new()) };
    static OUTPUTS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Makes a buffer of each kind, for a thread that will serve clients. Its memory then counts as taken at the
/// start, and not against `maxmemory`.
pub(crate) fn prepare() {
    let mut intake = Box::<Intake>::default();
    intake.make_room();
    give_back_intake(intake);
    give_back_output(Vec::with_capacity(OUTPUT_BYTES));
}

/// An empty buffer to read into.
pub(super) fn take_intake() -> Box<Intake> {
    INTAKES.with_borrow_mut(Vec::pop).unwrap_or_default()
}

/// Gives an empty buffer back.
pub(super) fn give_back_intake(intake: Box<Intake>) {
    debug_assert!(intake.is_empty(), "nothing of one client is shown to another");
    if (READ_BYTES..=KEPT_BYTES_MAX).contains(&intake.held_bytes()) {
        INTAKES.with_borrow_mut(|kept| keep(kept, intake));
    }
}

/// An empty buffer to write into.
pub(super) fn take_output() -> Vec<u8> {
    OUTPUTS.with_borrow_mut(Vec::pop).unwrap_or_else(|| Vec::with_capacity(OUTPUT_BYTES))
}

/// Gives back a buffer whose content has been written to the socket.
pub(super) fn give_back_output(mut output: Vec<u8>) {
    output.clear();
    if (OUTPUT_BYTES..=KEPT_BYTES_MAX).contains(&output.capacity()) {
        OUTPUTS.with_borrow_mut(|kept| keep(kept, output));
    }
}

fn keep<Buffer>(kept: &mut Vec<Buffer>, buffer: Buffer) {
    if kept.len() < KEPT_MAX {
        kept.push(buffer);
    }
}
