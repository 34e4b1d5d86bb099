//! The C library's allocator: its settings, what it takes for a piece of memory, and how it gives memory
//! back.
//!
//! GNU's library is what Keyfast was measured with. That of macOS has no such settings: it says itself what
//! it takes, and gives back what is free when it is asked. Others, such as musl, run with GNU's arithmetic
//! and without the rest: `used_memory` is then an estimate.

#![allow(unsafe_code)]

/// Makes the C library use huge pages, if the system gives them on request, and keep more freed memory at
/// hand.
///
/// Random keys of a large data set miss the processor's table of pages (TLB) at nearly every access, and each
/// miss is expensive in a virtual machine. With huge pages a pipelined command takes an eighth to a quarter
/// less processor time, and memory stays the same. Lua frees about forty strings at a time; glibc's cache
/// keeps seven per size and merges the others with the free memory around them.
///
/// The library reads these settings from the environment when a program starts. So the program starts once
/// more, in the same process. A `GLIBC_TUNABLES` of the user takes precedence. If the library or the system
/// does not support huge pages, nothing happens.
///
/// That it was started once more is said by a mark of its own: the library takes `GLIBC_TUNABLES` itself out
/// of the environment of a program with more rights than its user (file capabilities, set-user-ID), which
/// therefore is not started again at all. The mark bears the number of the process, so that no process takes
/// an inherited one for its own, and the name that the system had for it. The system names a process by the
/// file that it executes; this would be `keyfast` whatever link the user has called, and `pidof redis-server`
/// would find nothing.
pub fn restart_with_tuned_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        use std::ffi::OsString;
        use std::os::unix::ffi::{OsStrExt, OsStringExt};
        use std::os::unix::process::CommandExt;
        use std::process::{self, Command};
        use std::{env, fs};

        const TUNABLES: &str = "GLIBC_TUNABLES";
        const TUNED: &str = "glibc.malloc.hugetlb=1:glibc.malloc.tcache_count=32";
        /// It is no parameter: these begin with `KEYFAST_`.
        const MARK: &str = "_KEYFAST_STARTED_AGAIN";
        const OWN_NAME: &str = "/proc/self/comm";

        let number = format!("{} ", process::id()).into_bytes();
        if let Some(name) = env::var_os(MARK).as_deref().and_then(|it| it.as_bytes().strip_prefix(&*number)) {
            // If the system refuses, the process has another name, and serves all the same.
            let _ = fs::write(OWN_NAME, name);
            return;
        }
        let setting = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
        if !setting.contains("[madvise]")
            || env::var_os(TUNABLES).is_some()
            || has_more_rights_than_its_user()
        {
            return;
        }
        let Ok(program) = env::current_exe() else { return };
        let name = fs::read(OWN_NAME).unwrap_or_default();
        let mark = [&*number, name.trim_ascii_end()].concat();
        let mut arguments = env::args_os();
        let mut again = Command::new(program);
        if let Some(name) = arguments.next() {
            again.arg0(name);
        }
        // It returns only if it failed; then the server runs without huge pages.
        let _ = again.args(arguments).env(TUNABLES, TUNED).env(MARK, OsString::from_vec(mark)).exec();
    }
}

/// Whether the program has rights by its file, so that the C library ignores settings in the environment.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn has_more_rights_than_its_user() -> bool {
    // SAFETY: the function only reads what the system has put on the stack of the first thread.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Has the C library put what is freed together at once; called when the program starts.
///
/// By default it lays small pieces aside and puts all of them together some time later, in one go: after a
/// million keys had expired some client waited 54 to 72 ms for that, and 9 ms without.
pub fn prepare() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the function may be called at any time; an unknown parameter is refused.
    unsafe {
        libc::mallopt(libc::M_MXFAST, 0);
    }
}

/// Has the C library take all memory from one arena, for a process of which one thread does all the work.
pub(crate) fn use_one_arena() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the function may be called at any time; an unknown parameter is refused.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Gives memory that is free back to the system, where the C library can.
pub(crate) fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the function may be called at any time from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
    #[cfg(target_os = "macos")]
    {
        unsafe extern "C" {
            fn malloc_zone_pressure_relief(zone: *mut libc::c_void, goal_bytes: usize) -> usize;
        }
        // SAFETY: the function may be called at any time from any thread. No zone means all of them, and no
        // goal as much as possible.
        unsafe { malloc_zone_pressure_relief(std::ptr::null_mut(), 0) };
    }
}

/// What an allocation of `bytes` takes: GNU's library puts eight bytes before it, rounds up to sixteen, and
/// gives large ones pages of their own.
#[cfg(not(target_os = "macos"))]
#[inline]
pub(crate) fn taken_bytes(bytes: usize) -> usize {
    const LEAST: usize = 32;
    const OWN_PAGES_FROM: usize = 128 << 10;
    const PAGE: usize = 4096;
    if bytes < OWN_PAGES_FROM {
        ((bytes + 8 + 15) & !15).max(LEAST)
    } else {
        (bytes + 16).next_multiple_of(PAGE)
    }
}

/// What an allocation of `bytes` takes: the library says so itself.
#[cfg(target_os = "macos")]
#[inline]
pub(crate) fn taken_bytes(bytes: usize) -> usize {
    // SAFETY: the function only calculates, and may be called at any time from any thread.
    unsafe { libc::malloc_good_size(bytes) }
}

#[cfg(all(test, not(target_os = "macos")))]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_as_the_c_library_does() {
        for (bytes, taken) in [(1, 32), (24, 32), (25, 48), (56, 64), (57, 80), (200_000, 200_704)] {
            assert_eq!(taken_bytes(bytes), taken, "{bytes}");
        }
    }
}
