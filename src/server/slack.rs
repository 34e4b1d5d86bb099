//! Gives memory back to the system that was taken and is no longer needed.
//!
//! The C library keeps what is freed for what comes next, and gives back only what lies at the end of its
//! heap. After FLUSHALL, or after a command that took a lot for a moment, most of it would stay with the
//! process for ever. Having it look through all it keeps took 3 to 81 ms for 660 MiB, and
//! can delay other threads that need memory, so that is done only when there is much to be had.

use crate::allocator;
use crate::instance::resident_bytes;

/// Less than this is not worth looking for.
const SLACK_BYTES_MIN: usize = 8 << 20;
/// What lies between pieces that are in use may be had when so many bytes fewer are.
const FREED_BYTES_MIN: usize = 256 << 10;

/// Follows how much more memory the process has than it uses.
#[derive(Debug, Default)]
pub(super) struct Slack {
    /// What could not be given back the last time: it lies between pieces that are in use.
    left_bytes: usize,
    /// The most that has been in use since.
    used_bytes_max: usize,
}

impl Slack {
    /// Whether it is worth while to give memory back: so much is unused, and either it was not there the last
    /// time, or much of what was in use then no longer is.
    pub(super) fn is_large(&mut self) -> bool {
        self.judge(resident_bytes(), allocator::used_bytes())
    }

    fn judge(&mut self, resident_bytes: usize, used_bytes: usize) -> bool {
        let unused_bytes = resident_bytes.saturating_sub(used_bytes);
        self.left_bytes = self.left_bytes.min(unused_bytes);
        self.used_bytes_max = self.used_bytes_max.max(used_bytes);
        let is_new = unused_bytes - self.left_bytes > SLACK_BYTES_MIN;
        let freed_bytes = self.used_bytes_max - used_bytes;
        let has_shrunk = freed_bytes > FREED_BYTES_MIN.max(self.used_bytes_max / 4);
        unused_bytes > SLACK_BYTES_MIN.max(used_bytes / 4) && (is_new || has_shrunk)
    }

    /// Gives back what can be given back. It may take long.
    pub(super) fn give_back(&mut self) {
        // What is freed meanwhile may lie where the C library has looked already.
        let used_bytes = allocator::used_bytes();
        allocator::give_back();
        self.note_given_back(resident_bytes(), used_bytes);
    }

    /// Notes what was in use when it began, and what the process has since it ended.
    fn note_given_back(&mut self, resident_bytes: usize, used_bytes: usize) {
        self.left_bytes = resident_bytes.saturating_sub(used_bytes);
        self.used_bytes_max = used_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn what_could_not_be_given_back_is_looked_for_again_when_less_is_in_use() {
        let mut slack = Slack::default();
        assert!(!slack.judge(70 * MIB, 64 * MIB));
        // Half of the keys are gone, and each page still has some.
        assert!(slack.judge(70 * MIB, 32 * MIB));
        slack.note_given_back(66 * MIB, 32 * MIB);
        assert!(!slack.judge(66 * MIB, 32 * MIB));
        assert!(!slack.judge(66 * MIB, 30 * MIB));
        assert!(slack.judge(66 * MIB, MIB));
        slack.note_given_back(12 * MIB, MIB);
        assert!(!slack.judge(12 * MIB, MIB));
        // A command takes much for a moment.
        assert!(!slack.judge(60 * MIB, 49 * MIB));
        assert!(slack.judge(60 * MIB, MIB));
    }

    #[test]
    fn what_is_freed_while_memory_is_given_back_is_looked_for_afterwards() {
        let mut slack = Slack::default();
        assert!(slack.judge(70 * MIB, 32 * MIB));
        // 32 MiB were in use when it began, and the last keys are freed before it ends.
        slack.note_given_back(60 * MIB, 32 * MIB);
        assert!(slack.judge(60 * MIB, MIB));
        // Few keys were left, and each lay in a page of its own.
        slack.note_given_back(30 * MIB, MIB + MIB / 2);
        assert!(slack.judge(30 * MIB, MIB));
    }
}
