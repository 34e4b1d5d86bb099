//! For how long one thread has computed, asked by another one: the watchdog's way to tell a thread that works
//! from one that waits for a core.
//!
//! Linux shows it in a file of each thread, macOS by a call with the thread's port. Elsewhere there is no
//! clock, and the watchdog takes a busy thread for one that computes.

/// For how long the calling thread has computed, for unit tests of the locks.
#[cfg(test)]
pub(crate) fn processor_time() -> std::time::Duration {
    use nix::time::{ClockId, clock_gettime};

    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("each thread has this clock").into()
}

#[cfg(target_os = "linux")]
pub(crate) use linux::ThreadClock;
#[cfg(target_os = "macos")]
pub(crate) use macos::ThreadClock;
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
pub(crate) use other::ThreadClock;

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;
    use std::path::PathBuf;
    use std::time::Duration;

    /// The file in which the system shows for how long a thread has computed.
    #[derive(Debug)]
    pub(crate) struct ThreadClock(PathBuf);

    impl ThreadClock {
        /// The clock of the calling thread, if the system has one.
        pub(crate) fn of_this_thread() -> Option<ThreadClock> {
            let link = fs::read_link("/proc/thread-self").ok()?;
            Some(ThreadClock(PathBuf::from("/proc").join(link).join("schedstat")))
        }

        /// For how long the thread has computed in all; `None` if the system does not say.
        pub(crate) fn computed(&self) -> Option<Duration> {
            let text = fs::read_to_string(&self.0).ok()?;
            text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
        }
    }
}

#[cfg(target_os = "macos")]
#[allow(unsafe_code)]
mod macos {
    use std::time::Duration;

    /// The name by which the system knows a thread.
    #[derive(Debug)]
    pub(crate) struct ThreadClock(libc::mach_port_t);

    impl ThreadClock {
        /// The clock of the calling thread, if the system has one.
        pub(crate) fn of_this_thread() -> Option<ThreadClock> {
            // SAFETY: the calling thread is there.
            let port = unsafe { libc::pthread_mach_thread_np(libc::pthread_self()) };
            (port != 0).then_some(ThreadClock(port))
        }

        /// For how long the thread has computed in all; `None` if the system does not say.
        pub(crate) fn computed(&self) -> Option<Duration> {
            // SAFETY: all fields are numbers, for which zeros are a value.
            let mut info: libc::thread_basic_info = unsafe { std::mem::zeroed() };
            let mut words = libc::THREAD_BASIC_INFO_COUNT;
            let flavor = libc::THREAD_BASIC_INFO as libc::thread_flavor_t;
            // SAFETY: the function writes no more than `words` words to the structure, which has as many. If
            // the thread has ended, it fails.
            let result = unsafe { libc::thread_info(self.0, flavor, (&raw mut info).cast(), &raw mut words) };
            let duration = |time: libc::time_value_t| {
                Duration::from_secs(time.seconds as u64) + Duration::from_micros(time.microseconds as u64)
            };
            (result == libc::KERN_SUCCESS).then(|| duration(info.user_time) + duration(info.system_time))
        }
    }
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
mod other {
    use std::time::Duration;

    /// There is none.
    #[derive(Debug)]
    pub(crate) struct ThreadClock;

    impl ThreadClock {
        /// The clock of the calling thread: here the system has none.
        pub(crate) fn of_this_thread() -> Option<ThreadClock> {
            None
        }

        /// For how long the thread has computed in all: here the system does not say.
        pub(crate) fn computed(&self) -> Option<Duration> {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_computes_is_seen_to() {
        let Some(clock) = ThreadClock::of_this_thread() else { return };
        // A kernel that does not count says 0.
        let Some(before) = clock.computed().filter(|computed| !computed.is_zero()) else { return };
        while clock.computed() == Some(before) {
            std::hint::black_box((0..1000).map(|number| number.to_string().len()).sum::<usize>());
        }
    }
}
