//! How soon Linux kills this process when the machine runs out of memory: `oom-score-adj`.

use parking_lot::Mutex;

use crate::config::{Config, OOM_SCORE_ADJUSTMENTS};
use crate::files;
use crate::platform::oom_score::{read, write};

/// The score before the server changed it; `None` while the server leaves it alone.
#[derive(Debug, Default)]
pub(super) struct OomScore(Mutex<Option<i64>>);

impl OomScore {
    /// Adjusts the score as the parameters say. It uses the first of their values, which is for a server
    /// without a primary. With `no` it restores the old score.
    ///
    /// # Errors
    ///
    /// If the system refuses: only a privileged process may lower its score. A warning says why.
    pub(super) fn adjust(&self, config: &Config) -> Result<(), &'static str> {
        let mut before = self.0.lock();
        let adjusted = match OOM_SCORE_ADJUSTMENTS[config.oom_score_adj.get()] {
            "no" => before.take().map_or(Ok(()), write),
            how => before.map_or_else(read, Ok).and_then(|base| {
                // The old score is kept even if the system refuses the new one.
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
