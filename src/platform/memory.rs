//! How much memory the process and the machine have.
//!
//! Linux shows both in files of `/proc`. macOS has a call for the first. The second is among the values that
//! every other Unix system tells by `sysconf`.

#![cfg_attr(not(target_os = "linux"), allow(unsafe_code))]

/// Bytes of memory that the system holds for this process; 0 if it does not say.
#[cfg(target_os = "linux")]
pub(crate) fn resident_bytes() -> usize {
    kilobytes(&std::fs::read_to_string("/proc/self/status").unwrap_or_default(), "VmRSS:")
}

/// Bytes of memory that the machine has; 0 if the system does not say.
#[cfg(target_os = "linux")]
pub(crate) fn machine_bytes() -> usize {
    kilobytes(&std::fs::read_to_string("/proc/meminfo").unwrap_or_default(), "MemTotal:")
}

/// The bytes on the line that begins with `name`, in a file of `/proc`; 0 if there is no such file.
#[cfg(target_os = "linux")]
fn kilobytes(text: &str, name: &str) -> usize {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<usize>().ok());
    number.unwrap_or(0) * 1024
}

/// Bytes of memory that the system holds for this process; 0 if it does not say.
#[cfg(target_os = "macos")]
pub(crate) fn resident_bytes() -> usize {
    let bytes = size_of::<libc::proc_taskinfo>() as libc::c_int;
    // SAFETY: all fields are numbers, for which zeros are a value.
    let mut info: libc::proc_taskinfo = unsafe { std::mem::zeroed() };
    let process = std::process::id() as libc::c_int;
    let buffer = (&raw mut info).cast();
    // SAFETY: the function writes no more than `bytes` to the buffer, which has as many.
    let written = unsafe { libc::proc_pidinfo(process, libc::PROC_PIDTASKINFO, 0, buffer, bytes) };
    if written == bytes { info.pti_resident_size as usize } else { 0 }
}

/// Bytes of memory that the system holds for this process: here the system does not say.
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
pub(crate) fn resident_bytes() -> usize {
    0
}

/// Bytes of memory that the machine has; 0 if the system does not say.
#[cfg(not(target_os = "linux"))]
pub(crate) fn machine_bytes() -> usize {
    // SAFETY: the function only reads its argument, and may be called at any time.
    let value = |name| usize::try_from(unsafe { libc::sysconf(name) }).unwrap_or(0);
    value(libc::_SC_PHYS_PAGES) * value(libc::_SC_PAGESIZE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_has_memory_and_the_machine_has_more() {
        assert!(resident_bytes() > 0 && machine_bytes() > resident_bytes());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn lines_of_the_system_are_read() {
        assert_eq!(kilobytes("VmPeak:\t  9 kB\nVmRSS:\t   12 kB\n", "VmRSS:"), 12 * 1024);
        assert_eq!(kilobytes("", "VmRSS:"), 0);
    }
}
