//! Options for opening files, and space on the disk that is reserved ahead of what is written.
//!
//! The options are the same on all Unix systems, their numbers are not. Space is reserved on Linux only.
//! macOS has a call for it, too (`F_PREALLOCATE`). Whether cutting the file gives the rest back there must be
//! tried first.

use std::fs::File;
use std::io;

/// Opens no link: for `custom_flags`.
pub(crate) const NO_LINK: i32 = libc::O_NOFOLLOW;

/// Does not wait until another program opens the other end of a pipe: for `custom_flags`.
pub(crate) const NO_WAIT: i32 = libc::O_NONBLOCK;

/// Reserves space for a file without changing its length.
#[cfg(target_os = "linux")]
pub(crate) fn reserve(file: &File, from: u64, bytes: u64) -> io::Result<()> {
    use nix::fcntl::{FallocateFlags, fallocate};
    let offset = |bytes: u64| i64::try_from(bytes).map_err(io::Error::other);
    Ok(fallocate(file, FallocateFlags::FALLOC_FL_KEEP_SIZE, offset(from)?, offset(bytes)?)?)
}

/// Would reserve space for a file. Here it fails, and writing works without.
#[cfg(not(target_os = "linux"))]
pub(crate) fn reserve(_: &File, _: u64, _: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
