//! The score by which Linux chooses a process to kill when the machine runs out of memory. macOS and
//! other systems have none, so there the parameter `oom-score-adj` takes no value but `no`.

use std::io;

/// Why the score cannot be adjusted; `None` if it can.
pub(crate) const OBSTACLE: Option<&str> =
    if cfg!(target_os = "linux") { None } else { Some("this system has no such score: only Linux has it") };

/// The system's file with the score.
const FILE: &str = "/proc/self/oom_score_adj";

/// The adjustment of this process's score.
///
/// # Errors
///
/// If the system has none.
pub(crate) fn read() -> io::Result<i64> {
    std::fs::read_to_string(FILE)?.trim().parse().map_err(io::Error::other)
}

/// Sets the adjustment of this process's score.
///
/// # Errors
///
/// If the system refuses: only a privileged process may lower its score.
pub(crate) fn write(score: i64) -> io::Result<()> {
    /// The largest score that the system takes; the smallest is its negative.
    const SCORE_MAX: i64 = 1000;
    std::fs::write(FILE, format!("{}\n", score.clamp(-SCORE_MAX, SCORE_MAX)))
}
