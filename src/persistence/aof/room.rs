//! Reserves disk space ahead of the records.
//!
//! A file system must find and note space for a growing file with every few records. So much space is
//! reserved at once, ahead of the writes. The file's length stays the number of bytes written, so readers see
//! no difference. Unused space is given back when nothing more will be written. On a file system that cannot
//! reserve space, or has little left, writing works without.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;

use crate::platform::disk::reserve;

/// Shorter files get no reserved space: most logs of development servers are shorter.
const BYTES_MIN: u64 = 64 << 10;
/// As much space is reserved as has been written, up to this. Four and sixteen times as much saved no more
/// time.
const AHEAD_BYTES_MAX: u64 = 1 << 20;
/// The unit in which the system counts the space of a file.
const BLOCK_BYTES: u64 = 512;

/// The reserved space of a file.
#[derive(Debug)]
pub(super) struct Room {
    /// Space is reserved up to here, or the reservation failed.
    until: u64,
    /// No more space is reserved.
    is_closed: bool,
}

impl Room {
    /// The space of an existing file. Its last writer may have been stopped before it gave any back.
    pub(super) fn of(file: &File) -> Room {
        Room { until: file.metadata().map_or(0, |file| file.blocks() * BLOCK_BYTES), is_closed: false }
    }

    /// Makes sure that a file of `length` bytes has space for `more` bytes.
    #[inline]
    pub(super) fn provide(&mut self, file: &File, length: u64, more: u64) {
        let end = length + more;
        if end > self.until && end >= BYTES_MIN && !self.is_closed {
            self.extend(file, length, end + end.min(AHEAD_BYTES_MAX));
        }
    }

    fn extend(&mut self, file: &File, length: u64, until: u64) {
        let from = self.until.max(length);
        self.until = until;
        if let Err(error) = reserve(file, from, until - from) {
            // A full disk may have space the next time. The write itself reports whether there is enough.
            self.is_closed = error.kind() != io::ErrorKind::StorageFull;
            tracing::debug!("Cannot reserve space for the AOF file: {error}");
        }
    }

    /// Notes that the file was cut to `length`, which frees the space behind it.
    pub(super) fn cut(&mut self, length: u64) {
        self.until = self.until.min(length);
    }

    /// Gives back unused space. No more is reserved.
    pub(super) fn close(&mut self, file: &File) {
        self.is_closed = true;
        // The file's own length, so that no content is cut off.
        let given_back = file.metadata().and_then(|now| match now.blocks() * BLOCK_BYTES > now.len() {
            true => file.set_len(now.len()),
            false => Ok(()),
        });
        if let Err(error) = given_back {
            tracing::debug!("Cannot give back the space reserved for the AOF file: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn room_is_kept_ahead_of_what_is_written_and_given_back() {
        let path = std::env::temp_dir().join(format!("keyfast-room-{}", std::process::id()));
        let mut file = File::create(&path).unwrap();
        let taken = |file: &File| file.metadata().unwrap().blocks() * BLOCK_BYTES;
        let mut room = Room::of(&file);
        room.provide(&file, 0, 1000);
        assert_eq!(taken(&file), 0, "a little is written without");
        room.provide(&file, 1000, BYTES_MIN);
        if room.is_closed {
            println!("the file system of {} cannot reserve space: nothing to test here", path.display());
            return std::fs::remove_file(&path).unwrap();
        }
        let least = 2 * BYTES_MIN;
        assert!((least..least + (16 << 10)).contains(&taken(&file)), "{}", taken(&file));
        assert_eq!(file.metadata().unwrap().len(), 0);
        file.write_all(&[b'x'; 5000]).unwrap();
        assert!(Room::of(&file).until >= least, "it is found again");
        room.close(&file);
        assert!(taken(&file) < 5000 + (16 << 10), "{}", taken(&file));
        assert_eq!(std::fs::read(&path).unwrap(), [b'x'; 5000]);
        room.provide(&file, 5000, 1 << 20);
        assert!(taken(&file) < 5000 + (16 << 10), "nothing is kept after that");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn what_can_have_no_room_is_asked_once() {
        let file = File::options().write(true).open("/dev/null").unwrap();
        let mut room = Room::of(&file);
        room.provide(&file, 0, BYTES_MIN);
        assert!(room.is_closed);
        room.close(&file);
    }
}
