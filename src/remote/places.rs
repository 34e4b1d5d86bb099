//! Which keys live in the store.

use crate::glob::Pattern;

/// The patterns of `store-keys`.
#[derive(Debug)]
pub struct Places {
    patterns: Vec<Pattern<'static>>,
    has_all: bool,
}

impl Places {
    /// Reads patterns that are separated by spaces.
    pub fn new(patterns: &[u8]) -> Places {
        let patterns = patterns.split(|byte| *byte == b' ').filter(|pattern| !pattern.is_empty());
        let has_all = patterns.clone().any(|pattern| pattern == b"*");
        Places { has_all, patterns: patterns.map(Pattern::owned).collect() }
    }

    /// Whether a key lives in the store.
    #[inline]
    pub fn has(&self, key: &[u8]) -> bool {
        self.has_all || self.patterns.iter().any(|pattern| pattern.matches(key))
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
