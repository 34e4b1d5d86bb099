//! Room on the disk for what is to be written next.
//!
//! The file system has to find room for a file that grows, and to note it, with every few records. Here it is
//! asked for much at once, ahead of what is written; the file's length stays what was written, so that who
//! reads it sees no difference. What is not used is given back when nothing more will be written. A file
//! system that cannot do that, or has not so much left, is no trouble: writing works as it does without.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;

/// No room is kept for a file that is shorter: most logs of a server for development are.
const BYTES_MIN: u64 = 64 << 10;
/// As much room is kept as has been written, but not more. Four and sixteen times as much gave no more time.
const AHEAD_BYTES_MAX: u64 = 1 << 20;
/// The unit in which the system tells what a file takes.
const BLOCK_BYTES: u64 = 512;

/// The room that a file has.
#[derive(Debug)]
pub(super) struct Room {
    /// Up to here there is some, or was none to be had.
    until: u64,
    /// It is not asked for any more.
    is_closed: bool,
}

impl Room {
    /// That of a file that is there: whoever wrote it may have been stopped before giving any back.
    pub(super) fn of(file: &File) -> Room {
        Room { until: file.metadata().map_or(0, |file| file.blocks() * BLOCK_BYTES), is_closed: false }
    }

    /// Sees to it that a file of so many bytes has room for more of them.
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
        if let Err(error) = keep(file, from, until - from) {
            // A disk that is full may have room the next time. Whether there is enough, writing will tell.
            self.is_closed = error.kind() != io::ErrorKind::StorageFull;
            tracing::debug!("No room is kept for the AOF file: {error}");
        }
    }

    /// Notes that the file was cut, which gives the room behind it back.
    pub(super) fn cut(&mut self, length: u64) {
        self.until = self.until.min(length);
    }

    /// Gives back what is not used. No more will be asked for.
    pub(super) fn close(&mut self, file: &File) {
        self.is_closed = true;
        // Its own length: nothing that is in it is cut off.
        let given_back = file.metadata().and_then(|now| match now.blocks() * BLOCK_BYTES > now.len() {
            true => file.set_len(now.len()),
            false => Ok(()),
        });
        if let Err(error) = given_back {
            tracing::debug!("The room that was kept for the AOF file stays: {error}");
        }
    }
}

/// Has the system set room aside without changing the file's length.
#[cfg(target_os = "linux")]
fn keep(file: &File, from: u64, bytes: u64) -> io::Result<()> {
    use nix::fcntl::{FallocateFlags, fallocate};
    let offset = |bytes: u64| i64::try_from(bytes).map_err(io::Error::other);
    Ok(fallocate(file, FallocateFlags::FALLOC_FL_KEEP_SIZE, offset(from)?, offset(bytes)?)?)
}

#[cfg(not(target_os = "linux"))]
fn keep(_: &File, _: u64, _: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
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
            println!("the file system of {} keeps no room: nothing to be seen here", path.display());
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
