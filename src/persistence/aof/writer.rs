//! Writes the journal's records to disk. One thread serves all clients: it takes all records that have come
//! meanwhile, so that one sync makes the changes of many clients durable. Large values come as values: the
//! thread renders them into the file, a buffer at a time.

use std::fs::File;
use std::io::{self, Write};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::room::Room;
use super::{Aof, Sync};
use crate::files::reason;
use crate::keyspace::{Journal, LongKey, Piece, Reach};
use crate::values::Sink;

/// The interval between syncs with `everysec`, and between attempts after a failure.
const SECOND: Duration = Duration::from_secs(1);
/// How long changes may be collected before they are written, if no client waits for them.
const REST: Duration = Duration::from_millis(1);
/// Bytes of unwritten records above which commands that write have to wait.
pub(super) const UNWRITTEN_BYTES_MAX: u64 = 64 << 20;
/// Bytes of a large value that are rendered before they are written.
const RENDERED_BYTES: usize = 256 << 10;

/// The file that records are written to.
#[derive(Debug)]
pub(super) struct Output {
    file: File,
    /// Bytes of complete records in the file.
    length: u64,
    room: Room,
    /// Writing was given up, and may have left an incomplete record: nothing may follow it.
    is_given_up: bool,
}

/// The state of the writer thread.
struct Writer<'a> {
    aof: &'a Aof,
    journal: &'a Journal,
    sync: &'a dyn Fn() -> Sync,
    output: Option<Output>,
    /// Journal offset up to which records are written.
    written: u64,
    /// Bytes of rendered records that are written.
    rendered: u64,
    /// Journal offset up to which records are durable.
    durable: u64,
    synced_at: Instant,
    /// Whether the last sync failed.
    has_failed: bool,
}

impl Aof {
    /// Writes the journal's records until [`stop_writer`](Self::stop_writer). `sync` returns when they must
    /// be on the disk.
    pub fn write(&self, journal: &Journal, sync: &dyn Fn() -> Sync) {
        let mut writer = Writer::new(self, journal, sync);
        while !self.is_stopped() {
            for piece in journal.take(writer.patience()) {
                match &piece {
                    Piece::Records(bytes) => writer.write(bytes),
                    Piece::Long(key) => writer.write_long(key),
                    Piece::Cut => writer.change_over(),
                    Piece::End => writer.close(),
                }
                writer.advance(piece.reach());
                writer.publish();
            }
            writer.sync_if_due();
            writer.publish();
            if sync() != Sync::Always {
                journal.rest(REST);
            }
        }
    }
}

impl<'a> Writer<'a> {
    /// A writer that has no file yet.
    fn new(aof: &'a Aof, journal: &'a Journal, sync: &'a dyn Fn() -> Sync) -> Writer<'a> {
        let (output, synced_at) = (None, Instant::now());
        let (written, rendered, durable, has_failed) = (0, 0, 0, false);
        Writer { aof, journal, sync, output, written, rendered, durable, synced_at, has_failed }
    }
}

impl Writer<'_> {
    /// How long the writer may sleep unless new records come; `None` for no limit.
    fn patience(&self) -> Option<Duration> {
        let is_waiting = self.output.is_some() && self.durable < self.written;
        let is_due = self.has_failed || (self.sync)() != Sync::Never;
        (is_waiting && is_due).then(|| SECOND.saturating_sub(self.synced_at.elapsed()))
    }

    /// Notes that a piece was written.
    fn advance(&mut self, by: Reach) {
        self.written += by.end;
        self.rendered += by.rendered;
    }

    /// Writes a key with a large value, as the value was when it was logged.
    fn write_long(&mut self, key: &LongKey) {
        if (self.sync)() == Sync::Always && self.durable < self.written {
            // The clients of the records so far do not wait for the large value.
            self.sync();
            self.publish();
        }
        let mut rendered = Rendered { buffer: Vec::with_capacity(2 * RENDERED_BYTES), writer: self };
        // The writer has no errors: it tries again until it succeeds.
        let _ = key.log(&mut rendered);
        rendered.write();
    }

    /// Writes records, and tries again until that succeeds. Meanwhile they do not count as durable.
    fn write(&mut self, bytes: &[u8]) {
        let mut has_failed = false;
        let mut rest = bytes;
        while let Some(output) = self.output.as_mut().filter(|output| !output.is_given_up) {
            match output.write(&mut rest) {
                Ok(()) => {
                    self.aof.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                    if has_failed {
                        self.aof.recover();
                    }
                    return;
                }
                Err(error) => {
                    if !has_failed {
                        tracing::warn!("Error writing to the AOF file: {}", reason(&error));
                    }
                    has_failed = true;
                    self.aof.fail(reason(&error));
                    if !self.journal.is_on() || self.aof.is_stopped() {
                        // The log is off, or the server ends: the records are not wanted any more.
                        output.is_given_up = true;
                        return;
                    }
                    std::thread::park_timeout(SECOND);
                }
            }
        }
    }

    /// Syncs the file, if that is due.
    fn sync_if_due(&mut self) {
        let is_ending = self.aof.is_ending.load(Ordering::Acquire);
        let is_due = match (self.sync)() {
            Sync::Always => true,
            Sync::EverySecond => self.synced_at.elapsed() >= SECOND,
            Sync::Never => self.has_failed && self.synced_at.elapsed() >= SECOND,
        };
        if self.durable < self.written && (is_due || is_ending) {
            self.sync();
        }
        if is_ending && !self.aof.has_ended.load(Ordering::Relaxed) {
            if let Some(output) = &mut self.output {
                output.room.close(&output.file);
            }
            self.aof.end();
        }
    }

    /// Syncs the file. After a sync that has failed, the system reports success although it has dropped what
    /// it could not write: then nothing more counts as durable until there is a base without the gap.
    fn sync(&mut self) {
        let Some(output) = &self.output else { return };
        let synced = output.file.sync_data();
        self.synced_at = Instant::now();
        match synced {
            Ok(()) if self.aof.has_gap() => {}
            Ok(()) => {
                self.durable = self.written;
                if std::mem::replace(&mut self.has_failed, false) {
                    self.aof.recover();
                }
            }
            Err(error) => {
                if !self.has_failed {
                    tracing::warn!("Fail to fsync the AOF file: {}", reason(&error));
                }
                self.has_failed = true;
                self.aof.note_gap(self.written, reason(&error));
            }
        }
    }

    /// Continues in the next file. The old file is synced before the new one gets any records, so that the
    /// files always have an unbroken beginning of all changes.
    fn change_over(&mut self) {
        if self.durable < self.written {
            self.sync();
        }
        let mut state = self.aof.state.lock();
        if !std::mem::take(&mut state.is_replaced) {
            state.older_bytes += self.aof.increment_bytes();
        }
        self.output = state.next.pop_front();
        state.is_writing = self.output.is_some();
        debug_assert!(self.output.is_some(), "each cut has a file to go on in");
        let length = self.output.as_ref().map_or(0, |output| output.length);
        let bytes = self.aof.bytes.load(Ordering::Relaxed);
        self.aof.increment_began_at.store(bytes.wrapping_sub(length), Ordering::Relaxed);
    }

    fn close(&mut self) {
        if self.durable < self.written {
            self.sync();
        }
        self.output = None;
        self.aof.note_closed();
        self.durable = self.written;
        // Only a new base begins a log again, and it has everything.
        self.aof.forget_gap();
        if self.has_failed || self.aof.has_failed() {
            self.has_failed = false;
            self.aof.recover();
        }
    }

    /// Reports the progress to waiting clients.
    fn publish(&self) {
        let unless_always = match &self.output {
            Some(_) => self.written.saturating_add(UNWRITTEN_BYTES_MAX),
            None => u64::MAX,
        };
        self.aof.written.store(self.written, Ordering::Release);
        self.aof.written_rendered.store(self.rendered, Ordering::Release);
        self.aof.publish(self.output.is_some(), unless_always, self.durable, self.sync);
    }
}

/// What the writer renders itself.
struct Rendered<'w, 'a> {
    buffer: Vec<u8>,
    writer: &'w mut Writer<'a>,
}

impl Rendered<'_, '_> {
    fn write(&mut self) {
        self.writer.write(&self.buffer);
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
        self.writer.write(bytes);
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
        Output { room: Room::of(&file), file, length, is_given_up: false }
    }

    /// Writes `rest`; after a failure `rest` is what is left.
    fn write(&mut self, rest: &mut &[u8]) -> io::Result<()> {
        let all = *rest;
        self.room.provide(&self.file, self.length, all.len() as u64);
        if let Err(error) = write_all(&mut self.file, rest) {
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

fn write_all(file: &mut File, rest: &mut &[u8]) -> io::Result<()> {
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
        let mut writer = Writer::new(&aof, &journal, &|| Sync::Never);
        writer.output = Some(Output::new(file(), 0));
        let place = AofPlace { root: "/".into(), directory: "/nosuch".into(), name: b"log".to_vec() };
        writer.write(b"before the cut");
        assert_eq!(aof.report().bytes, 14);
        // The rewrite begins, and ends before the writer is awake.
        aof.go_on_in(file(), 0);
        aof.rewritten(&place, Manifest::default(), 100, 0, aof.turns());
        assert_eq!((aof.report().bytes, aof.report().base_bytes), (100, 100));
        writer.write(b"in front of the cut, too");
        assert_eq!(aof.report().bytes, 100);
        writer.change_over();
        writer.write(b"behind");
        assert_eq!(aof.report().bytes, 106);
        // The other way round.
        aof.go_on_in(file(), 0);
        writer.change_over();
        writer.write(b"new");
        assert_eq!(aof.report().bytes, 109);
        aof.rewritten(&place, Manifest::default(), 50, 0, aof.turns());
        assert_eq!((aof.report().bytes, aof.report().base_bytes), (53, 53));
    }
}
