//! Which keys live in the store.

use crate::glob;

/// The patterns of `store-keys`.
#[derive(Debug)]
pub struct Places {
    patterns: Vec<Box<[u8]>>,
    has_all: bool,
}

impl Places {
    /// Reads patterns that are separated by spaces.
    pub fn new(patterns: &[u8]) -> Places {
        let patterns = patterns.split(|byte| *byte == b' ').filter(|pattern| !pattern.is_empty());
        let patterns: Vec<Box<[u8]>> = patterns.map(Box::from).collect();
        Places { has_all: patterns.iter().any(|pattern| **pattern == *b"*"), patterns }
    }

    /// Whether a key lives in the store.
    #[inline]
    pub fn has(&self, key: &[u8]) -> bool {
        self.has_all || self.patterns.iter().any(|pattern| glob::matches(pattern, key, false))
    }

    /// Whether all keys do.
    pub fn has_all(&self) -> bool {
        self.has_all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_lives_in_the_store_if_one_pattern_matches() {
        let places = Places::new(b"lock:*  job:?");
        assert!(places.has(b"lock:") && places.has(b"job:1") && !places.has(b"job:12") && !places.has(b"x"));
        assert!(!places.has_all() && Places::new(b"a *").has_all());
    }
}
