//! What differs between Linux, where Keyfast runs, and other Unix systems such as macOS.
//!
//! Each file is about one thing that a system has in its own way, and says what another system does in its
//! place. The functions are the same everywhere, so the rest of the code does not know which system it runs
//! on. What all of them have (paths as bytes, permissions, signals, Unix sockets, a child process) may be
//! used anywhere. `tests/server/platforms.rs` finds what is not, and `tests/platforms/run` has the
//! compiler check the code for macOS, where it has never run.

pub(crate) mod command_line;
pub(crate) mod disk;
pub(crate) mod heap;
pub(crate) mod host_names;
pub(crate) mod memory;
pub(crate) mod oom_score;
pub(crate) mod open_files;
pub(crate) mod processes;
pub(crate) mod processor;
pub(crate) mod program;
pub(crate) mod sockets;
pub(crate) mod system;
pub(crate) mod terminal;
pub(crate) mod thread_clock;
