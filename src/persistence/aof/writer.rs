//! Brings to the disk what the journal has: one thread for all, which takes whatever has come meanwhile, so
//! that one wait for the disk serves everybody who writes.

use std::fs::File;
use std::io::{self, Write};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::room::Room;
use super::{Aof, Sync};
use crate::files::reason;
use crate::keyspace::{Journal, Piece};

/// How often what is written is brought to the disk with `everysec`, and how long after a failure it is tried
/// again.
const SECOND: Duration = Duration::from_secs(1);
/// How long what changes may gather, where nobody waits for it, before it is written.
const REST: Duration = Duration::from_millis(1);
/// How much may wait to be written before those who write more have to wait for it.
const UNWRITTEN_BYTES_MAX: u64 = 64 << 20;

/// Where it is written.
#[derive(Debug)]
pub(super) struct Output {
    file: File,
    /// Bytes in it that are good.
    length: u64,
    room: Room,
}

/// The thread's own.
struct Writer<'a> {
    aof: &'a Aof,
    journal: &'a Journal,
    sync: &'a dyn Fn() -> Sync,
    output: Option<Output>,
    /// Up to where the journal has been written…
    written: u64,
    /// … and lasts.
    durable: u64,
    synced_at: Instant,
    /// The last attempt to bring it to the disk failed.
    has_failed: bool,
}

impl Aof {
    /// Writes what the journal has, until [`stop_writer`](Self::stop_writer). `sync` says when it has to be
    /// on the disk.
    pub fn write(&self, journal: &Journal, sync: &dyn Fn() -> Sync) {
        let (output, synced_at) = (None, Instant::now());
        let mut writer =
            Writer { aof: self, journal, sync, output, written: 0, durable: 0, synced_at, has_failed: false };
        while !self.is_stopped() {
            for piece in journal.take(writer.patience()) {
                match piece {
                    Piece::Records(bytes) => writer.write(&bytes),
                    Piece::Cut => writer.change_over(),
                    Piece::End => writer.close(),
                }
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

impl Writer<'_> {
    /// How long there is nothing to be done unless something new comes.
    fn patience(&self) -> Option<Duration> {
        let is_waiting = self.output.is_some() && self.durable < self.written;
        let is_due = self.has_failed || (self.sync)() != Sync::Never;
        (is_waiting && is_due).then(|| SECOND.saturating_sub(self.synced_at.elapsed()))
    }

    /// Writes records; tries again and again while that fails. Nobody is told meanwhile that they last.
    fn write(&mut self, bytes: &[u8]) {
        let mut has_failed = false;
        let mut rest = bytes;
        while let Some(output) = &mut self.output {
            match output.write(&mut rest, (self.sync)() == Sync::Always) {
                Ok(is_durable) => {
                    self.aof.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                    self.written += bytes.len() as u64;
                    if is_durable {
                        self.note_durable();
                    }
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
                        // Nobody wants it any more.
                        break;
                    }
                    std::thread::park_timeout(SECOND);
                }
            }
        }
        self.written += bytes.len() as u64;
    }

    /// Brings what is written to the disk, if it is time for that.
    fn sync_if_due(&mut self) {
        let is_ending = self.aof.is_ending.load(Ordering::Acquire);
        let is_due = match (self.sync)() {
            Sync::Always => true,
            Sync::EverySecond => self.synced_at.elapsed() >= SECOND,
            Sync::Never => self.has_failed,
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

    fn sync(&mut self) {
        let Some(output) = &self.output else { return };
        let synced = output.file.sync_data();
        self.synced_at = Instant::now();
        match synced {
            Ok(()) => {
                self.note_durable();
                if std::mem::replace(&mut self.has_failed, false) {
                    self.aof.recover();
                }
            }
            Err(error) => {
                if !self.has_failed {
                    tracing::warn!("Fail to fsync the AOF file: {}", reason(&error));
                }
                self.has_failed = true;
                self.aof.fail(reason(&error));
                // The system may have given up what it could not write: a new base has it.
                self.aof.needs_rewrite.store(true, Ordering::Relaxed);
            }
        }
    }

    fn note_durable(&mut self) {
        self.durable = self.written;
        self.synced_at = Instant::now();
    }

    /// Goes on in the file that was opened for that. What is in the old one is on the disk before anything
    /// is in the new one: what is there is always a beginning of what was done.
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
        if self.has_failed || self.aof.has_failed() {
            self.has_failed = false;
            self.aof.recover();
        }
    }

    /// Tells those who wait how far it has come.
    fn publish(&self) {
        let unless_always = match &self.output {
            Some(_) => self.written.saturating_add(UNWRITTEN_BYTES_MAX),
            None => u64::MAX,
        };
        self.aof.written.store(self.written, Ordering::Release);
        self.aof.publish(self.output.is_some(), unless_always, self.durable, self.sync);
    }
}

impl Output {
    /// A file of so many bytes, at the end of which is written.
    pub(super) fn new(file: File, length: u64) -> Output {
        Output { room: Room::of(&file), file, length }
    }

    /// Writes all of it, from `rest` on, which is what is left if that fails. Answers whether it is on the
    /// disk; if it is to be and that fails, it was not written.
    fn write(&mut self, rest: &mut &[u8], is_durable: bool) -> io::Result<bool> {
        let all = *rest;
        self.room.provide(&self.file, self.length, all.len() as u64);
        let written = write_all(&mut self.file, rest).and_then(|()| match is_durable {
            true => self.file.sync_data(),
            false => Ok(()),
        });
        if let Err(error) = written {
            // A record that was half written would be damage once others follow.
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
        Ok(is_durable)
    }
}

/// Nothing more will be written.
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
    use super::super::{Manifest, Place};
    use super::*;

    #[test]
    fn what_cannot_be_written_leaves_nothing() {
        let mut output = Output::new(File::options().write(true).open("/dev/full").unwrap(), 0);
        let mut rest = &b"record"[..];
        assert_eq!(output.write(&mut rest, false).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!((rest, output.length), (&b"record"[..], 0));
    }

    #[test]
    fn what_a_base_stands_for_does_not_count_even_if_the_rewrite_ends_before_the_cut_is_seen() {
        let (aof, journal) = (Aof::default(), Journal::default());
        let file = || File::options().write(true).open("/dev/null").unwrap();
        let output = Some(Output::new(file(), 0));
        let (aof, sync, synced_at) = (&aof, &|| Sync::Never, Instant::now());
        let mut writer = Writer {
            aof,
            journal: &journal,
            sync,
            output,
            written: 0,
            durable: 0,
            synced_at,
            has_failed: false,
        };
        let place = Place { root: "/".into(), directory: "/nosuch".into(), name: b"log".to_vec() };
        writer.write(b"before the cut");
        assert_eq!(aof.report().bytes, 14);
        // The rewrite begins, and ends before the writer is awake.
        aof.go_on_in(file(), 0);
        aof.rewritten(&place, Manifest::default(), 100, aof.turns());
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
        aof.rewritten(&place, Manifest::default(), 50, aof.turns());
        assert_eq!((aof.report().bytes, aof.report().base_bytes), (53, 53));
    }
}
