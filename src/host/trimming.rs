//! Gives unused memory back to the system.
//!
//! The C library keeps freed memory for later, and gives back only what is at the end of its heap. After
//! FLUSHALL, or after a command that took much memory for a moment, most of it would stay with the process
//! for ever. A search through the whole heap took 3 to 81 ms for 660 MiB, and can delay other threads that
//! need memory. So it is done only if it can free much.

use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::allocator;
use crate::platform::heap;
use crate::platform::memory::resident_bytes;

/// The interval between checks for unused memory.
const SLACK_INTERVAL: Duration = Duration::from_secs(1);

/// Less unused memory than this is not worth a search, in bytes.
const SLACK_BYTES_MIN: usize = 8 << 20;
/// After a search, bytes that must have been freed since before gaps between used pieces are searched again.
const FREED_BYTES_MIN: usize = 256 << 10;

/// Gives unused memory back, as long as the runtime runs.
pub(crate) async fn give_memory_back() {
    let mut slack = Slack::default();
    loop {
        sleep(SLACK_INTERVAL).await;
        if slack.is_large() {
            let given_back = spawn_blocking(move || {
                slack.give_back();
                slack
            });
            slack = given_back.await.unwrap_or_default();
        }
    }
}

/// Tracks how much more memory the process has than it uses.
#[derive(Debug, Default)]
struct Slack {
    /// Unused bytes that the last search could not give back: they lie between used pieces.
    left_bytes: usize,
    /// The most bytes in use since the last search.
    used_bytes_max: usize,
}

impl Slack {
    /// Whether a search is worth while: much memory is unused, and either it was used at the last search, or
    /// much of what was used since has been freed.
    fn is_large(&mut self) -> bool {
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

    /// Gives back what can be given back. This may take long.
    pub(crate) fn give_back(&mut self) {
        // Memory that is freed meanwhile may be in a part that has been searched already.
        let used_bytes = allocator::used_bytes();
        heap::give_back();
        self.note_given_back(resident_bytes(), used_bytes);
    }

    /// Notes the bytes that were in use when the search began, and those that the process has after it.
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
        // Half of the keys are gone, but each page still has some.
        assert!(slack.judge(70 * MIB, 32 * MIB));
        slack.note_given_back(66 * MIB, 32 * MIB);
        assert!(!slack.judge(66 * MIB, 32 * MIB));
        assert!(!slack.judge(66 * MIB, 30 * MIB));
        assert!(slack.judge(66 * MIB, MIB));
        slack.note_given_back(12 * MIB, MIB);
        assert!(!slack.judge(12 * MIB, MIB));
        // A command takes much memory for a moment.
        assert!(!slack.judge(60 * MIB, 49 * MIB));
        assert!(slack.judge(60 * MIB, MIB));
    }

    #[test]
    fn what_is_freed_while_memory_is_given_back_is_looked_for_afterwards() {
        let mut slack = Slack::default();
        assert!(slack.judge(70 * MIB, 32 * MIB));
        // 32 MiB were in use at the beginning, and the last keys are freed before the end.
        slack.note_given_back(60 * MIB, 32 * MIB);
        assert!(slack.judge(60 * MIB, MIB));
        // Few keys were left, each in a page of its own.
        slack.note_given_back(30 * MIB, MIB + MIB / 2);
        assert!(slack.judge(30 * MIB, MIB));
    }
}
