//! Gives memory back to the system that was taken and is no longer needed.
//!
//! The C library keeps what is freed for what comes next, and gives back only what lies at the end of its
//! heap. After FLUSHALL, or after a command that took a lot for a moment, most of it would stay with the
//! process for ever. Having it look through all it keeps takes 0.1 ms for each MiB that it gives back, and
//! stops those who need memory meanwhile, so that is done only when there is much to be had.

use crate::allocator;
use crate::instance::resident_bytes;

/// Less than this is not worth looking for.
const SLACK_BYTES_MIN: usize = 8 << 20;

/// Follows how much more memory the process has than it uses.
#[derive(Debug, Default)]
pub(super) struct Slack {
    /// What could not be given back the last time: it lies between pieces that are in use.
    left_bytes: usize,
}

impl Slack {
    /// Whether it is worth while to give memory back: so much is unused, beyond what could not be given back,
    /// and it is more than a quarter of what is used.
    pub(super) fn is_large(&mut self) -> bool {
        let (resident, used) = (resident_bytes(), allocator::used_bytes());
        let unused = resident.saturating_sub(used);
        self.left_bytes = self.left_bytes.min(unused);
        unused - self.left_bytes > SLACK_BYTES_MIN.max(used / 4)
    }

    /// Gives back what can be given back. It may take long.
    pub(super) fn give_back(&mut self) {
        allocator::give_back();
        self.left_bytes = resident_bytes().saturating_sub(allocator::used_bytes());
    }
}
