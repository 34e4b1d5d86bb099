//! Writes the journal's records to the log's file, and syncs it.
//!
//! The file and the state of writing are the [`Pen`], which one thread at a time has. With `appendfsync
//! always` the log's own thread has it: it takes all records that have come meanwhile, so that one sync makes
//! the changes of many clients durable. Otherwise a thread that serves clients takes the pen before it sends
//! a reply, and writes what all clients have logged so far: then the system has it, even if the process is
//! killed. The log's thread syncs, and the pen is free meanwhile. It also writes what no client waits for.
//!
//! What may take long is for the log's thread alone. Large values come as values: the thread renders them
//! into the file, a buffer at a time. It changes to the next file, and tries again after a failure.

use std::fs::File;
use std::io::{self, Write};
use std::mem::{replace, take};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;

use super::room::Room;
use super::{Aof, Sync};
use crate::files::reason;
use crate::keyspace::{Journal, LongKey, Piece};
use crate::values::Sink;

/// The interval between syncs with `everysec`, and between attempts after a failure.
const SECOND: Duration = Duration::from_secs(1);
/// How long changes may stay unwritten that no client waits for, such as expired keys. As often Redis looks.
const REST: Duration = Duration::from_millis(100);
/// A sync that takes longer while there is something to write is reported. Redis: the same.
const SLOW_SYNC: Duration = Duration::from_secs(2);
/// Bytes of a large value that are rendered before they are written.
const RENDERED_BYTES: usize = 256 << 10;
/// A buffer of records that is larger is not used again.
const SPARE_BYTES_MAX: usize = 64 << 10;

/// The file that records are written to.
#[derive(Debug)]
pub(super) struct Output {
    file: Arc<File>,
    /// Bytes of complete records in the file.
    length: u64,
    room: Room,
    /// Writing was given up, and may have left an incomplete record: nothing may follow it.
    is_given_up: bool,
}

/// What is needed to write.
#[derive(Debug)]
pub(super) struct Pen {
    pub(super) output: Option<Output>,
    /// Pieces that were taken from the journal. Those before `next` are written.
    taken: Vec<Piece>,
    next: usize,
    /// Journal offset up to which records are written.
    pub(super) written: u64,
    /// Journal offset up to which records are durable.
    pub(super) durable: u64,
    synced_at: Instant,
    /// Whether the last write failed, so that the next piece is not written or not all of it.
    pub(super) is_stuck: bool,
    /// Whether the last sync failed.
    has_failed: bool,
    /// When something was first written during a sync.
    syncs_slowly_since: Option<Instant>,
}

impl Default for Pen {
    fn default() -> Pen {
        Pen {
            output: None,
            taken: Vec::new(),
            next: 0,
            written: 0,
            durable: 0,
            synced_at: Instant::now(),
            is_stuck: false,
            has_failed: false,
            syncs_slowly_since: None,
        }
    }
}

/// The thread that has the pen.
struct Writer<'a> {
    aof: &'a Aof,
    journal: &'a Journal,
    sync: &'a dyn Fn() -> Sync,
    pen: MutexGuard<'a, Pen>,
}

impl Aof {
    /// Writes the journal's records until [`stop_writer`](Self::stop_writer), as the log's thread. `sync`
    /// returns when they must be on the disk.
    pub fn write(&self, journal: &Journal, sync: &dyn Fn() -> Sync) {
        let writer = || Writer { aof: self, journal, sync, pen: self.pen.lock() };
        while !self.is_stopped() {
            let patience = writer().patience();
            let rest = if sync() == Sync::Always { Duration::ZERO } else { REST };
            journal.wait(patience, patience.map_or(rest, |patience| rest.min(patience)));
            let mut writer = writer();
            writer.write_all();
            writer.sync_if_due();
            writer.publish();
        }
    }

    /// Writes the records so far, as the thread of a client that waits for its reply, unless that is for
    /// another thread. Returns whether replies may be sent that depend on the journal up to `end`.
    pub fn write_up_to(&self, end: u64, journal: &Journal, sync: &dyn Fn() -> Sync) -> bool {
        if self.is_settled(end) {
            return true;
        }
        let Some(pen) = self.pen.try_lock().filter(|_| !self.waits_for_sync()) else { return false };
        let mut writer = Writer { aof: self, journal, sync, pen };
        writer.write_records();
        writer.publish();
        drop(writer);
        self.is_settled(end)
    }
}

impl Writer<'_> {
    /// How long the log's thread may sleep unless new records come; `None` for no limit.
    fn patience(&self) -> Option<Duration> {
        let is_waiting = self.pen.output.is_some() && self.pen.durable < self.pen.written;
        let is_due = self.pen.has_failed || (self.sync)() != Sync::Never;
        (is_waiting && is_due).then(|| SECOND.saturating_sub(self.pen.synced_at.elapsed()))
    }

    /// Takes what is in the journal, if all that was taken before is written.
    fn take(&mut self) {
        let Pen { taken, next, .. } = &mut *self.pen;
        if *next == taken.len() {
            // The first piece may be an empty buffer.
            taken.truncate(1);
            taken.retain(|piece| matches!(piece, Piece::Records(buffer) if buffer.capacity() > 0));
            *next = 0;
            self.journal.take_into(taken);
        }
    }

    /// Notes that the next piece is written, and frees it.
    fn advance(&mut self, by: u64) {
        let Pen { taken, next, written, .. } = &mut *self.pen;
        match &mut taken[*next] {
            Piece::Records(buffer) if *next == 0 && buffer.capacity() <= SPARE_BYTES_MAX => buffer.clear(),
            piece => *piece = Piece::Records(Vec::new()),
        }
        *next += 1;
        *written += by;
    }

    /// Writes the records so far, before a piece of another kind. Stops at a failure.
    fn write_records(&mut self) {
        self.take();
        while let Some(piece) = self.pen.taken.get(self.pen.next) {
            if !matches!(piece, Piece::Records(_)) || !self.try_records() {
                return;
            }
        }
    }

    /// Writes all pieces so far.
    fn write_all(&mut self) {
        self.take();
        while let Some(piece) = self.pen.taken.get(self.pen.next) {
            let size = piece.size();
            match piece {
                Piece::Records(_) => {
                    while !self.try_records() {
                        self.rest_after_failure();
                    }
                    self.publish();
                    continue;
                }
                Piece::Long(_) => self.write_long(),
                Piece::Cut => self.change_over(),
                Piece::End => self.close(),
            }
            self.advance(size);
            self.publish();
        }
    }

    /// Tries to write the next piece, which has records. Returns whether it is written.
    fn try_records(&mut self) -> bool {
        let next = self.pen.next;
        let Piece::Records(records) = &mut self.pen.taken[next] else { return false };
        let mut records = take(records);
        let mut rest = &records[..];
        let is_written = self.try_bytes(&mut rest);
        let done = records.len() - rest.len();
        if !is_written {
            records.drain(..done);
            self.pen.written += done as u64;
        }
        self.pen.taken[next] = Piece::Records(records);
        if is_written {
            self.advance(done as u64);
        }
        is_written
    }

    /// Writes a key with a large value, as the value was when it was logged.
    fn write_long(&mut self) {
        if (self.sync)() == Sync::Always && self.pen.durable < self.pen.written {
            // The clients of the records so far do not wait for the large value.
            self.sync();
            self.publish();
        }
        let next = self.pen.next;
        if let Piece::Long(key) = replace(&mut self.pen.taken[next], Piece::Records(Vec::new())) {
            self.render(&key);
        }
    }

    fn render(&mut self, key: &LongKey) {
        let mut rendered = Rendered { buffer: Vec::with_capacity(2 * RENDERED_BYTES), writer: self };
        // The writer has no errors: it tries again until it succeeds.
        let _ = key.log(&mut rendered);
        rendered.write();
    }

    /// Writes bytes of a large value, and tries again until that succeeds.
    fn write_bytes(&mut self, mut rest: &[u8]) {
        while !self.try_bytes(&mut rest) {
            self.rest_after_failure();
        }
    }

    /// Tries to write `rest`. Returns whether that succeeds; after a failure `rest` is what is left.
    fn try_bytes(&mut self, rest: &mut &[u8]) -> bool {
        self.look_at_sync();
        let Some(output) = self.pen.output.as_mut().filter(|output| !output.is_given_up) else {
            *rest = &[];
            return true;
        };
        let bytes = rest.len();
        let written = output.write(rest);
        self.aof.bytes.fetch_add((bytes - rest.len()) as u64, Ordering::Relaxed);
        match written {
            Ok(()) => {
                if replace(&mut self.pen.is_stuck, false) {
                    // Before writes are accepted, replies wait again.
                    self.publish();
                    self.aof.recover();
                }
                true
            }
            Err(error) => {
                if !replace(&mut self.pen.is_stuck, true) {
                    tracing::warn!("Error writing to the AOF file: {}", reason(&error));
                }
                // Before the replies of those whose changes could not be written, writes are refused.
                self.aof.fail(reason(&error));
                self.publish();
                self.journal.call();
                false
            }
        }
    }

    /// Waits before the next attempt. Gives up if the records are not wanted any more, because the log is off
    /// or the server ends.
    fn rest_after_failure(&mut self) {
        let is_wanted = self.journal.is_on() && !self.aof.is_stopped();
        match &mut self.pen.output {
            Some(output) if !is_wanted => output.is_given_up = true,
            _ => std::thread::park_timeout(SECOND),
        }
    }

    /// Reports a sync that has been running for too long while there is something to write.
    fn look_at_sync(&mut self) {
        if !self.aof.is_syncing.load(Ordering::Relaxed) || (self.sync)() != Sync::EverySecond {
            self.pen.syncs_slowly_since = None;
            return;
        }
        let since = *self.pen.syncs_slowly_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= SLOW_SYNC {
            self.pen.syncs_slowly_since = None;
            self.aof.delayed_syncs.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(
                "Asynchronous AOF fsync is taking too long (disk is busy?). Writing the AOF buffer without \
                 waiting for fsync to complete, this may slow down Keyfast."
            );
        }
    }

    /// Syncs the file, if that is due.
    fn sync_if_due(&mut self) {
        let is_ending = self.aof.is_ending.load(Ordering::Acquire);
        let is_due = match (self.sync)() {
            Sync::Always => true,
            Sync::EverySecond => self.pen.synced_at.elapsed() >= SECOND,
            Sync::Never => self.pen.has_failed && self.pen.synced_at.elapsed() >= SECOND,
        };
        if self.pen.durable < self.pen.written && (is_due || is_ending) {
            self.sync();
        }
        if is_ending && !self.aof.has_ended.load(Ordering::Relaxed) {
            if let Some(output) = &mut self.pen.output {
                output.room.close(&output.file);
            }
            self.aof.end();
        }
    }

    /// Syncs the file. Meanwhile other threads may write. After a sync that has failed, the system reports
    /// success although it has dropped what it could not write: then nothing more counts as durable until
    /// there is a base without the gap.
    fn sync(&mut self) {
        let Some(output) = &self.pen.output else { return };
        let (file, written) = (Arc::clone(&output.file), self.pen.written);
        self.aof.is_syncing.store(true, Ordering::Relaxed);
        let synced = MutexGuard::unlocked(&mut self.pen, || file.sync_data());
        self.aof.is_syncing.store(false, Ordering::Relaxed);
        self.pen.synced_at = Instant::now();
        match synced {
            Ok(()) if self.aof.has_gap() => {}
            Ok(()) => {
                self.pen.durable = written;
                if replace(&mut self.pen.has_failed, false) && !self.pen.is_stuck {
                    self.aof.recover();
                }
            }
            Err(error) => {
                if !replace(&mut self.pen.has_failed, true) {
                    tracing::warn!("Fail to fsync the AOF file: {}", reason(&error));
                }
                self.aof.note_gap(self.pen.written, reason(&error));
            }
        }
    }

    /// Continues in the next file. The old file is synced before the new one gets any records, so that the
    /// files always have an unbroken beginning of all changes. No other thread writes while this piece is the
    /// next one.
    fn change_over(&mut self) {
        if self.pen.durable < self.pen.written {
            self.sync();
        }
        let mut state = self.aof.state.lock();
        if !take(&mut state.is_replaced) {
            state.older_bytes += self.aof.increment_bytes();
        }
        self.pen.output = state.next.pop_front();
        state.is_writing = self.pen.output.is_some();
        debug_assert!(self.pen.output.is_some(), "each cut has a file to go on in");
        let length = self.pen.output.as_ref().map_or(0, |output| output.length);
        let bytes = self.aof.bytes.load(Ordering::Relaxed);
        self.aof.increment_began_at.store(bytes.wrapping_sub(length), Ordering::Relaxed);
    }

    fn close(&mut self) {
        if self.pen.durable < self.pen.written {
            self.sync();
        }
        self.pen.output = None;
        self.aof.note_closed();
        self.pen.durable = self.pen.written;
        // Only a new base begins a log again, and it has everything.
        self.aof.forget_gap();
        let (has_failed, is_stuck) = (take(&mut self.pen.has_failed), take(&mut self.pen.is_stuck));
        if has_failed || is_stuck || self.aof.has_failed() {
            self.aof.recover();
        }
    }

    /// Reports the progress to waiting clients.
    fn publish(&self) {
        self.aof.publish(&self.pen, self.sync);
    }
}

/// What the log's thread renders itself.
struct Rendered<'w, 'a> {
    buffer: Vec<u8>,
    writer: &'w mut Writer<'a>,
}

impl Rendered<'_, '_> {
    fn write(&mut self) {
        self.writer.write_bytes(&self.buffer);
        self.buffer.clear();
    }
}

impl Sink for Rendered<'_, '_> {
    fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() < RENDERED_BYTES {
            self.buffer.extend_from_slice(bytes);
            return self.pass_on();
        }
        self.write();
        self.writer.write_bytes(bytes);
        Ok(())
    }

    fn pass_on(&mut self) -> io::Result<()> {
        if self.buffer.len() >= RENDERED_BYTES {
            self.write();
        }
        Ok(())
    }
}

impl Output {
    /// An output that appends to a file of this length.
    pub(super) fn new(file: File, length: u64) -> Output {
        Output { room: Room::of(&file), file: Arc::new(file), length, is_given_up: false }
    }

    /// Writes `rest`; after a failure `rest` is what is left.
    fn write(&mut self, rest: &mut &[u8]) -> io::Result<()> {
        let all = *rest;
        self.room.provide(&self.file, self.length, all.len() as u64);
        if let Err(error) = write_all(&self.file, rest) {
            // An incomplete record would be damage once other records follow it.
            match self.file.set_len(self.length) {
                Ok(()) => {
                    *rest = all;
                    self.room.cut(self.length);
                }
                Err(_) => self.length += (all.len() - rest.len()) as u64,
            }
            return Err(error);
        }
        self.length += all.len() as u64;
        Ok(())
    }
}

/// Gives back the reserved space when the file is closed.
impl Drop for Output {
    fn drop(&mut self) {
        self.room.close(&self.file);
    }
}

fn write_all(mut file: &File, rest: &mut &[u8]) -> io::Result<()> {
    while !rest.is_empty() {
        match file.write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => *rest = &rest[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{AofPlace, Manifest};
    use super::*;

    #[test]
    fn what_cannot_be_written_leaves_nothing() {
        // A file that is open for reading refuses as a full disk does.
        let mut output = Output::new(File::open("/dev/null").unwrap(), 0);
        let mut rest = &b"record"[..];
        assert!(output.write(&mut rest).is_err());
        assert_eq!((rest, output.length), (&b"record"[..], 0));
    }

    #[test]
    fn what_a_base_stands_for_does_not_count_even_if_the_rewrite_ends_before_the_cut_is_seen() {
        let (aof, journal) = (Aof::default(), Journal::default());
        let file = || File::options().write(true).open("/dev/null").unwrap();
        let mut writer = Writer { aof: &aof, journal: &journal, sync: &|| Sync::Never, pen: aof.pen.lock() };
        writer.pen.output = Some(Output::new(file(), 0));
        let place = AofPlace { root: "/".into(), directory: "/nosuch".into(), name: b"log".to_vec() };
        writer.write_bytes(b"before the cut");
        assert_eq!(aof.report().bytes, 14);
        // The rewrite begins, and ends before the writer is awake.
        aof.go_on_in(file(), 0);
        aof.rewritten(&place, Manifest::default(), 100, 0, aof.turns());
        assert_eq!((aof.report().bytes, aof.report().base_bytes), (100, 100));
        writer.write_bytes(b"in front of the cut, too");
        assert_eq!(aof.report().bytes, 100);
        writer.change_over();
        writer.write_bytes(b"behind");
        assert_eq!(aof.report().bytes, 106);
        // The other way round.
        aof.go_on_in(file(), 0);
        writer.change_over();
        writer.write_bytes(b"new");
        assert_eq!(aof.report().bytes, 109);
        aof.rewritten(&place, Manifest::default(), 50, 0, aof.turns());
        assert_eq!((aof.report().bytes, aof.report().base_bytes), (53, 53));
    }
}
