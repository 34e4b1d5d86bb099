//! Processor time of this process, as the system counts it.
//!
//! All systems tell it by `getrusage`. That of the main thread, asked for by another thread, only Linux
//! shows, in a file of `/proc`. As in Redis, INFO does without it on macOS.

use std::time::Duration;

use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};

/// Processor time, in the program and in the system.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProcessorTimes {
    /// What the program itself has taken.
    pub(crate) user: Duration,
    /// What the system has taken for it.
    pub(crate) system: Duration,
}

impl ProcessorTimes {
    /// Both in milliseconds.
    pub(crate) fn as_ms(self) -> [u64; 2] {
        [self.user, self.system].map(|time| time.as_millis() as u64)
    }
}

/// What this process has taken.
pub(crate) fn of_process() -> ProcessorTimes {
    times(UsageWho::RUSAGE_SELF)
}

/// What the children have taken that have ended.
pub(crate) fn of_children() -> ProcessorTimes {
    times(UsageWho::RUSAGE_CHILDREN)
}

fn times(who: UsageWho) -> ProcessorTimes {
    let duration = |time: TimeVal| Duration::from_micros(u64::try_from(time.num_microseconds()).unwrap_or(0));
    let times = |usage: Usage| ProcessorTimes {
        user: duration(usage.user_time()),
        system: duration(usage.system_time()),
    };
    getrusage(who).map(times).unwrap_or_default()
}

/// What the main thread has taken, in hundredths of a second; `None` if the system does not say.
#[cfg(target_os = "linux")]
pub(crate) fn of_main_thread() -> Option<ProcessorTimes> {
    let file = format!("/proc/self/task/{}/stat", std::process::id());
    parse(&std::fs::read_to_string(file).ok()?)
}

/// What the main thread has taken: here the system does not say.
#[cfg(not(target_os = "linux"))]
pub(crate) fn of_main_thread() -> Option<ProcessorTimes> {
    None
}

/// The fields 14 and 15 of `stat`, by proc(5).
#[cfg(target_os = "linux")]
fn parse(stat: &str) -> Option<ProcessorTimes> {
    /// A hundredth of a second, on every Linux there is.
    const TICK: Duration = Duration::from_millis(10);
    // The name of the program, in parentheses, may contain blanks.
    let (_, behind_name) = stat.rsplit_once(") ")?;
    let mut ticks = behind_name.split(' ').skip(11).map(|field| field.parse::<u32>());
    let (user, system) = (ticks.next()?.ok()?, ticks.next()?.ok()?);
    Some(ProcessorTimes { user: TICK * user, system: TICK * system })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_takes_time() {
        let before = of_process();
        while of_process().user + of_process().system == before.user + before.system {}
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_time_of_a_thread_is_behind_its_name() {
        let stat = "23126 (key) f) S 1 23126 23126 0 -1 4194304 101 0 0 0 250 3 0 0 20 0 1 0 2316";
        let times = parse(stat).unwrap();
        assert_eq!((times.user, times.system), (Duration::from_millis(2500), Duration::from_millis(30)));
        assert!(parse("1 (keyfast) S 1").is_none());
        assert!(of_main_thread().is_some());
    }
}
