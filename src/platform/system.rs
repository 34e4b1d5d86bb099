//! What the system calls itself and this machine, and its way to wait for many sockets.
//!
//! `uname` is everywhere. macOS waits for sockets by other calls than Linux.

use nix::sys::utsname::uname;

/// How the event loop waits for sockets, in the words of INFO in Redis.
pub(crate) const MULTIPLEXING_API: &str = if cfg!(target_os = "linux") { "epoll" } else { "kqueue" };

/// The system's name and version: `Linux 6.1.0`. Empty if it does not say.
pub(crate) fn name_and_version() -> String {
    let name = |system: nix::sys::utsname::UtsName| {
        format!("{} {}", system.sysname().to_string_lossy(), system.release().to_string_lossy())
    };
    uname().map(name).unwrap_or_default()
}

/// The name of this machine; empty if the system does not say.
pub(crate) fn machine_name() -> String {
    uname().map(|system| system.nodename().to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_and_the_machine_have_names() {
        assert!(name_and_version().split(' ').all(|word| !word.is_empty()));
        assert!(!machine_name().is_empty());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn they_are_those_of_the_kernel() {
        let kernel = |file: &str| std::fs::read_to_string(format!("/proc/sys/kernel/{file}")).unwrap();
        assert_eq!(name_and_version(), format!("{} {}", kernel("ostype").trim(), kernel("osrelease").trim()));
        assert_eq!(machine_name(), kernel("hostname").trim());
    }
}
