//! Other processes, and the signals that a process may get. These calls are the same on Linux, macOS and
//! other Unix systems; the numbers of signals and errors are not, so they stand here.

use nix::sys::signal::kill;
use nix::unistd::Pid;
use tokio::signal::unix::SignalKind;

/// The signal for a process that has written beyond the limit of file sizes.
pub(crate) fn file_size_signal() -> SignalKind {
    SignalKind::from_raw(libc::SIGXFSZ)
}

/// Whether another process of this number runs. This process is no other.
pub(crate) fn is_another_alive(process: i32) -> bool {
    let process = Pid::from_raw(process);
    process != Pid::this() && kill(process, None) != Err(nix::Error::ESRCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_alive_until_it_has_ended() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = child.id() as i32;
        assert!(is_another_alive(process) && !is_another_alive(std::process::id() as i32));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_another_alive(process));
    }
}
