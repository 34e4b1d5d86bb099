//! How far long work is, and what is left of it.
//!
//! The thread that works counts in a [`Progress`]. Another thread looks at that at intervals and shows it, so
//! counting costs one store. On a terminal it draws a bar in the last line of standard error
//! ([`Indicator::bar`]); elsewhere it hands a [`Report`] to the caller's function ([`Indicator::lines`]). A
//! process has one terminal, so it has one bar at most. Every line that goes to the terminal meanwhile is
//! printed by [`beside_bar`], which takes the bar away and draws it again below.
//!
//! Nothing here writes to standard output, and short work shows nothing at all.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How long work takes before a bar is drawn: a bar that is gone at once only flickers.
const BAR_AFTER: Duration = Duration::from_millis(500);
/// How often a bar is drawn.
const BAR_INTERVAL: Duration = Duration::from_millis(100);
/// Characters between the brackets of a bar.
const BAR_CHARACTERS: usize = 24;
/// Bytes of the unit in which bytes are shown, the megabyte.
const MEGABYTE: f64 = 1e6;

/// The line of the bar on the terminal, if there is one.
static BAR: Mutex<Option<String>> = Mutex::new(None);
/// Whether bars may be drawn at all.
static MAY_DRAW: AtomicBool = AtomicBool::new(false);

/// Lets this process draw bars, if standard error is a terminal. Only a program calls this: a library must
/// not draw on the terminal of the program that it is part of.
pub fn allow_bars() {
    MAY_DRAW.store(true, Ordering::Relaxed);
}

/// Prints something to the terminal, above the bar if there is one. `print` must not call this function.
pub fn beside_bar<T>(print: impl FnOnce() -> T) -> T {
    let bar = BAR.lock();
    if bar.is_some() {
        write("");
    }
    let printed = print();
    bar.iter().for_each(|line| write(line));
    printed
}

/// Writes the last line of the terminal anew. A line that is longer than the terminal is cut off by it.
fn write(line: &str) {
    let (no_wrapping, wrapping, erase_rest) = ("\x1b[?7l", "\x1b[?7h", "\x1b[K");
    // A terminal that is gone shows nothing.
    let _ = write!(io::stderr(), "\r{no_wrapping}{line}{erase_rest}{wrapping}");
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes, shown in megabytes.
    Bytes,
    /// Other things, by the plural of their name.
    Items(&'static str),
}

/// Counts the work that is done.
#[derive(Debug)]
pub struct Progress {
    unit: Unit,
    /// All there is to do; none if that is unknown.
    total: Option<u64>,
    done: AtomicU64,
    started: Instant,
}

impl Progress {
    /// Work that begins now. `total` is in `unit`; none if it is unknown.
    pub fn new(unit: Unit, total: Option<u64>) -> Progress {
        Progress { unit, total, done: AtomicU64::new(0), started: Instant::now() }
    }

    /// Sets how much is done since the beginning. Only one thread counts.
    #[inline]
    pub fn reach(&self, done: u64) {
        self.done.store(done, Ordering::Relaxed);
    }

    /// Counts more work that is done. Only one thread counts.
    #[inline]
    pub fn add(&self, more: u64) {
        self.reach(self.done.load(Ordering::Relaxed) + more);
    }

    /// How far the work is now.
    pub fn report(&self) -> Report {
        let done = self.done.load(Ordering::Relaxed);
        Report { unit: self.unit, total: self.total, done, elapsed: self.started.elapsed() }
    }
}

/// How far work is. As a text: `45% (1234.5 of 2743.1 MB), about 12 s left`, or, if the total is unknown,
/// `1234.5 MB in 12 s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// What is counted.
    pub unit: Unit,
    /// All there is to do; none if that is unknown.
    pub total: Option<u64>,
    /// How much is done. It can be more than the total: a file may grow, and keys may be added.
    pub done: u64,
    /// The time since the work began.
    pub elapsed: Duration,
}

impl Report {
    /// The share that is done, from 0 to 1; none if the total is unknown.
    pub fn share(&self) -> Option<f64> {
        self.total.map(|total| if total == 0 { 1.0 } else { (self.done as f64 / total as f64).min(1.0) })
    }

    /// The time that is left if the rest takes as long as what is done; none if that cannot be told yet.
    pub fn left(&self) -> Option<Duration> {
        let rest = self.total?.saturating_sub(self.done);
        // Without anything done it is infinite, or no number.
        Duration::try_from_secs_f64(self.elapsed.as_secs_f64() * rest as f64 / self.done as f64).ok()
    }
}

impl Report {
    /// The line of a bar: `Loading data [=======>                ] 33% (…)`.
    fn line(&self, title: &str) -> String {
        let Some(share) = self.share() else { return format!("{title} {self}") };
        let done = (share * BAR_CHARACTERS as f64) as usize;
        let tip = if done < BAR_CHARACTERS { ">" } else { "" };
        format!("{title} [{:<BAR_CHARACTERS$}] {self}", "=".repeat(done) + tip)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(total) = self.total else {
            match self.unit {
                Unit::Bytes => write!(f, "{:.1} MB", self.done as f64 / MEGABYTE)?,
                Unit::Items(name) => write!(f, "{} {name}", self.done)?,
            }
            return write!(f, " in {} s", self.elapsed.as_secs());
        };
        // Rounded down: 100% is the end.
        let percent = (self.share().unwrap_or(0.0) * 100.0).floor();
        write!(f, "{percent}% ")?;
        match self.unit {
            Unit::Bytes => {
                let (done, total) = (self.done as f64 / MEGABYTE, total as f64 / MEGABYTE);
                write!(f, "({done:.1} of {total:.1} MB)")?;
            }
            Unit::Items(name) => write!(f, "({} of {total} {name})", self.done)?,
        }
        match self.left().map(|left| left.as_secs_f64().ceil() as u64) {
            Some(seconds @ 0..120) => write!(f, ", about {seconds} s left"),
            Some(seconds @ 120..7200) => write!(f, ", about {} min left", seconds.div_ceil(60)),
            Some(seconds) => write!(f, ", about {} h left", seconds.div_ceil(3600)),
            None => Ok(()),
        }
    }
}

/// Shows work until this is dropped.
#[derive(Debug)]
pub struct Indicator {
    /// Ends the thread when it is dropped.
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
    has_bar: bool,
}

impl Indicator {
    /// Draws a bar for work that takes longer than half a second. Returns none if standard error is no
    /// terminal, if the program has not called [`allow_bars`], or if there is another bar.
    pub fn bar(progress: &Arc<Progress>, title: &'static str) -> Option<Indicator> {
        let can_draw = io::stderr().is_terminal() && std::env::var("TERM").is_ok_and(|term| term != "dumb");
        if !MAY_DRAW.load(Ordering::Relaxed) || !can_draw || BAR.lock().is_some() {
            return None;
        }
        let mut indicator = Indicator::start(BAR_AFTER, BAR_INTERVAL, Arc::clone(progress), move |report| {
            let mut bar = BAR.lock();
            write(bar.insert(report.line(title)));
        });
        indicator.has_bar = true;
        Some(indicator)
    }

    /// Hands a report to `tell` whenever the interval has passed, by a thread of its own.
    pub fn lines(
        progress: &Arc<Progress>,
        interval: Duration,
        tell: impl FnMut(Report) + Send + 'static,
    ) -> Indicator {
        Indicator::start(interval, interval, Arc::clone(progress), tell)
    }

    fn start(
        after: Duration,
        interval: Duration,
        progress: Arc<Progress>,
        mut tell: impl FnMut(Report) + Send + 'static,
    ) -> Indicator {
        let (stop, stopped) = sync_channel(0);
        let run = move || {
            let mut wait = after;
            while stopped.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                tell(progress.report());
                wait = interval;
            }
        };
        // Without the thread the work goes on unseen.
        let thread = thread::Builder::new().name("progress".to_owned()).spawn(run).ok();
        Indicator { stop: Some(stop), thread, has_bar: false }
    }
}

impl Drop for Indicator {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // If it has panicked it shows nothing any more, and the work is none the worse.
            let _ = thread.join();
        }
        if self.has_bar && BAR.lock().take().is_some() {
            write("");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    fn report(unit: Unit, done: u64, total: Option<u64>, seconds: u64) -> String {
        Report { unit, total, done, elapsed: Duration::from_secs(seconds) }.to_string()
    }

    #[test]
    fn a_report_says_what_is_done_and_what_is_left() {
        let (mb, keys) = (1_000_000, Unit::Items("keys"));
        for (said, expected) in [
            (report(Unit::Bytes, 0, Some(2 * mb), 1), "0% (0.0 of 2.0 MB)"),
            (report(Unit::Bytes, mb / 2, Some(2 * mb), 4), "25% (0.5 of 2.0 MB), about 12 s left"),
            (report(Unit::Bytes, 2 * mb, Some(2 * mb), 4), "100% (2.0 of 2.0 MB), about 0 s left"),
            (report(Unit::Bytes, 1_234_560, None, 7), "1.2 MB in 7 s"),
            (report(keys, 999, Some(1000), 999), "99% (999 of 1000 keys), about 1 s left"),
            (report(keys, 1, Some(3), 59), "33% (1 of 3 keys), about 118 s left"),
            (report(keys, 1, Some(3), 60), "33% (1 of 3 keys), about 2 min left"),
            (report(keys, 1, Some(3), 3601), "33% (1 of 3 keys), about 3 h left"),
            (report(keys, 1, Some(u64::MAX), u64::MAX), "0% (1 of 18446744073709551615 keys)"),
            // More than was expected, and nothing at all.
            (report(keys, 4, Some(3), 9), "100% (4 of 3 keys), about 0 s left"),
            (report(keys, 0, Some(0), 9), "100% (0 of 0 keys)"),
        ] {
            assert_eq!(said, expected);
        }
    }

    #[test]
    fn a_bar_grows_from_left_to_right() {
        let line = |done, total| {
            let report = Report { unit: Unit::Items("keys"), total, done, elapsed: Duration::ZERO };
            report.line("Work")
        };
        for (done, bar) in [(0, ">"), (1, "=>"), (23, "=======================>")] {
            assert!(line(done, Some(24)).starts_with(&format!("Work [{bar:<24}] ")), "{done}");
        }
        assert!(line(30, Some(24)).starts_with("Work [========================] 100% "));
        assert_eq!(line(7, None), "Work 7 keys in 0 s");
    }

    #[test]
    fn work_is_told_until_it_ends_and_not_before_the_interval_has_passed() {
        let progress = Arc::new(Progress::new(Unit::Items("keys"), Some(10)));
        let (told, reports) = channel();
        let unseen = told.clone();
        let short = Indicator::lines(&progress, Duration::from_secs(3600), move |report| {
            let _ = unseen.send(report);
        });
        drop(short);
        assert!(reports.try_recv().is_err());
        let indicator = Indicator::lines(&progress, Duration::from_millis(1), move |report| {
            let _ = told.send(report);
        });
        progress.add(3);
        while reports.recv().expect("a report").done != 3 {}
        progress.reach(7);
        while reports.recv().expect("a report").done != 7 {}
        drop(indicator);
        // The sender is gone with the thread.
        while reports.recv().is_ok() {}
    }

    #[test]
    fn a_library_draws_no_bar() {
        let progress = Arc::new(Progress::new(Unit::Bytes, None));
        assert!(Indicator::bar(&progress, "Work").is_none());
    }
}
