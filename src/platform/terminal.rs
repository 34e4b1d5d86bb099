//! A terminal as standard input: its keys one by one, and whether there is input.
//!
//! Linux and macOS have the same calls, those of POSIX. Only `poll` of macOS does not know the device of a
//! terminal by its own name (`/dev/tty`): there it says that there is input, and the client waits for a line.

use std::io;
use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};

/// Whether standard input has something to read, or has ended. What cannot be asked is to be read, which
/// tells why.
pub(crate) fn has_input() -> bool {
    let input = io::stdin();
    let mut asked = [PollFd::new(input.as_fd(), PollFlags::POLLIN)];
    !poll(&mut asked, PollTimeout::ZERO).is_ok_and(|ready| ready == 0)
}

/// A terminal that hands each key on at once and does not show it, until this is dropped. Nothing else
/// happens where standard input is no terminal.
#[derive(Debug)]
pub(crate) struct KeyByKey(Option<Termios>);

impl KeyByKey {
    /// Begins to hand keys on.
    pub(crate) fn begin() -> KeyByKey {
        let Ok(before) = tcgetattr(io::stdin()) else { return KeyByKey(None) };
        let mut now = before.clone();
        now.local_flags.remove(LocalFlags::ICANON | LocalFlags::ECHO);
        let is_set = tcsetattr(io::stdin(), SetArg::TCSANOW, &now).is_ok();
        KeyByKey(is_set.then_some(before))
    }
}

impl Drop for KeyByKey {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // If it fails, the line editor sets the terminal anew.
            let _ = tcsetattr(io::stdin(), SetArg::TCSANOW, before);
        }
    }
}
