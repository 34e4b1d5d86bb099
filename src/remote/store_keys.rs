//! Which keys live in the store.

use crate::glob::Pattern;

/// The patterns of `store-keys`.
#[derive(Debug)]
pub struct StoreKeys {
    patterns: Vec<Pattern<'static>>,
    has_all: bool,
}

impl StoreKeys {
    /// Reads patterns that are separated by spaces.
    pub fn new(patterns: &[u8]) -> StoreKeys {
        let patterns = patterns.split(|byte| *byte == b' ').filter(|pattern| !pattern.is_empty());
        let has_all = patterns.clone().any(|pattern| pattern == b"*");
        StoreKeys { has_all, patterns: patterns.map(Pattern::owned).collect() }
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
        let keys = StoreKeys::new(b"lock:*  job:?");
        assert!(keys.has(b"lock:") && keys.has(b"job:1") && !keys.has(b"job:12") && !keys.has(b"x"));
        assert!(!keys.has_all() && StoreKeys::new(b"a *").has_all());
    }
}
