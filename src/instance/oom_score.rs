//! How soon Linux chooses this process to kill when the machine runs out of memory: `oom-score-adj`.

use std::fs;
use std::io;

use parking_lot::Mutex;

use crate::config::{Config, OOM_SCORE_ADJUSTMENTS};
use crate::files;

/// Where the system keeps it.
const FILE: &str = "/proc/self/oom_score_adj";
/// The system takes no more than that, on both sides.
const SCORE_MAX: i64 = 1000;

/// What the score was before the server changed it; nothing while the server leaves it alone.
#[derive(Debug, Default)]
pub struct OomScore(Mutex<Option<i64>>);

impl OomScore {
    /// Adjusts the score as the parameters say: by the first of their values, which is for a server without a
    /// primary. What it was comes back when they say no again.
    ///
    /// # Errors
    ///
    /// If the system refuses: only a privileged process may lower its score. A warning says why.
    pub fn adjust(&self, config: &Config) -> Result<(), &'static str> {
        let mut before = self.0.lock();
        let adjusted = match OOM_SCORE_ADJUSTMENTS[config.oom_score_adj.get()] {
            "no" => before.take().map_or(Ok(()), write),
            how => before.map_or_else(read, Ok).and_then(|base| {
                // Known from now on, also if the system refuses the new one.
                *before = Some(base);
                let from = if how == "absolute" { 0 } else { base };
                write(from + config.oom_score_adj_of_primary())
            }),
        };
        adjusted.map_err(|error| {
            tracing::warn!("Unable to change oom_score_adj: {}", files::reason(&error));
            "Failed to set current oom_score_adj. Check server logs."
        })
    }
}

fn read() -> io::Result<i64> {
    fs::read_to_string(FILE)?.trim().parse().map_err(io::Error::other)
}

fn write(score: i64) -> io::Result<()> {
    fs::write(FILE, format!("{}\n", score.clamp(-SCORE_MAX, SCORE_MAX)))
}
