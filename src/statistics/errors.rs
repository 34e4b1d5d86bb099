//! How many errors of each kind were sent to clients: INFO errorstats.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Kinds of errors that are counted apart; more can only come from scripts that invent their own. Redis gives
/// up at the same number.
const KINDS_MAX: usize = 128;
/// The kind that stands for all when there are too many.
const OTHERS: &str = "ERRORSTATS_DISABLED";
/// A kind is a short word.
const KIND_BYTES_MAX: usize = 64;

/// Counts of errors by their first word.
#[derive(Debug, Default)]
pub struct ErrorCounts {
    kinds: Mutex<BTreeMap<String, u64>>,
    total: AtomicU64,
}

impl ErrorCounts {
    /// Counts an error by its text.
    #[cold]
    pub fn count(&self, text: &[u8]) {
        // The text may be a script's, and must forge no line of INFO. Redis: `getSafeInfoString`.
        let word = text.split(|byte| *byte == b' ').next().unwrap_or_default();
        let shown = String::from_utf8_lossy(&word[..word.len().min(KIND_BYTES_MAX)]);
        let kind = shown.replace(['#', ':', '\n', '\r'], "_");
        self.total.fetch_add(1, Ordering::Relaxed);
        let mut counts = self.kinds.lock();
        if counts.len() >= KINDS_MAX && !counts.contains_key(&kind) {
            *counts.entry(OTHERS.to_owned()).or_default() += 1;
            return;
        }
        *counts.entry(kind).or_default() += 1;
    }

    /// All kinds with their counts, in the order of their names.
    pub fn all(&self) -> Vec<(String, u64)> {
        self.kinds.lock().iter().map(|(kind, count)| (kind.clone(), *count)).collect()
    }

    /// How many errors there were, of all kinds.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Sets all counts to zero (CONFIG RESETSTAT).
    pub(super) fn reset(&self) {
        self.kinds.lock().clear();
        self.total.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_by_their_first_word() {
        let counts = ErrorCounts::default();
        for text in [&b"ERR syntax error"[..], b"WRONGTYPE Operation", b"ERR no such key", b""] {
            counts.count(text);
        }
        let expected = [("", 1), ("ERR", 2), ("WRONGTYPE", 1)].map(|(kind, count)| (kind.to_owned(), count));
        assert_eq!(counts.all(), expected);
        assert_eq!(counts.total(), 4);
    }

    #[test]
    fn a_kind_is_one_word_of_one_line() {
        let counts = ErrorCounts::default();
        counts.count(b"X\r\nused_memory:7 more");
        assert_eq!(counts.all(), [("X__used_memory_7".to_owned(), 1)]);
    }

    #[test]
    fn there_are_not_more_kinds_than_allowed() {
        let counts = ErrorCounts::default();
        for number in 0..1000 {
            counts.count(format!("KIND{number} text").as_bytes());
        }
        assert_eq!(counts.all().len(), KINDS_MAX + 1);
    }
}
