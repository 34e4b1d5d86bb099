//! The longest common subsequence of two strings, as LCS answers it.
//!
//! The textbook's table of lengths for all pairs of beginnings, filled from the front and walked from the
//! back. Where a step back could go either way, the walk shortens the second string, as Redis does: which of
//! several equally long subsequences is found depends on it.

/// What two strings have in common.
#[derive(Debug)]
pub struct CommonSubsequence {
    /// Positions in the one string and in the other, the last first.
    pairs: Vec<(usize, usize)>,
}

/// A run of bytes that both strings have, and that belongs to the subsequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    /// Where it begins in the one string.
    pub one: usize,
    /// Where it begins in the other.
    pub other: usize,
    bytes: usize,
}

/// The table would take more memory than allowed.
#[derive(Debug)]
pub struct TooLong;

impl CommonSubsequence {
    /// Finds it.
    ///
    /// # Errors
    ///
    /// If the table takes more than `table_bytes_max`, or more than there is.
    pub fn find(one: &[u8], other: &[u8], table_bytes_max: usize) -> Result<CommonSubsequence, TooLong> {
        let width = other.len() + 1;
        let cells = (one.len() + 1).checked_mul(width).ok_or(TooLong)?;
        if cells.checked_mul(size_of::<u32>()).is_none_or(|bytes| bytes > table_bytes_max) {
            return Err(TooLong);
        }
        let mut lengths: Vec<u32> = Vec::new();
        lengths.try_reserve_exact(cells).map_err(|_| TooLong)?;
        lengths.resize(cells, 0);
        for (row, byte) in (1..).zip(one) {
            for (column, other) in (1..).zip(other) {
                let at = row * width + column;
                lengths[at] = if byte == other {
                    lengths[at - width - 1] + 1
                } else {
                    lengths[at - width].max(lengths[at - 1])
                };
            }
        }
        let mut pairs = Vec::with_capacity(lengths[cells - 1] as usize);
        let (mut row, mut column) = (one.len(), other.len());
        while row > 0 && column > 0 {
            let at = row * width + column;
            if one[row - 1] == other[column - 1] {
                (row, column) = (row - 1, column - 1);
                pairs.push((row, column));
            } else if lengths[at - width] > lengths[at - 1] {
                row -= 1;
            } else {
                column -= 1;
            }
        }
        Ok(CommonSubsequence { pairs })
    }

    /// How long it is.
    pub fn length(&self) -> usize {
        self.pairs.len()
    }

    /// Its bytes, taken from the one string it was found in.
    pub fn bytes(&self, one: &[u8]) -> Vec<u8> {
        self.pairs.iter().rev().map(|(at, _)| one[*at]).collect()
    }

    /// The runs it consists of, the last first.
    pub fn matches(&self) -> Vec<Match> {
        let mut matches: Vec<Match> = Vec::new();
        for &(one, other) in &self.pairs {
            match matches.last_mut() {
                Some(last) if last.one == one + 1 && last.other == other + 1 => {
                    *last = Match { one, other, bytes: last.bytes + 1 };
                }
                _ => matches.push(Match { one, other, bytes: 1 }),
            }
        }
        matches
    }
}

impl Match {
    /// How long it is.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(one: &str, other: &str) -> CommonSubsequence {
        CommonSubsequence::find(one.as_bytes(), other.as_bytes(), 1 << 20).unwrap()
    }

    #[test]
    fn the_documented_example() {
        let found = find("ohmytext", "mynewtext");
        assert_eq!(found.bytes(b"ohmytext"), b"mytext");
        let matches: Vec<_> =
            found.matches().iter().map(|found| (found.one, found.other, found.bytes())).collect();
        assert_eq!(matches, [(4, 5, 4), (2, 0, 2)]);
    }

    #[test]
    fn of_several_the_one_of_redis_is_found() {
        for (one, other, bytes, matches) in [
            ("abc", "cba", "c", &[(2, 0, 1)][..]),
            ("abab", "baba", "bab", &[(1, 0, 3)]),
            ("aab", "abaa", "ab", &[(1, 0, 2)]),
            ("aaaa", "aa", "aa", &[(2, 0, 2)]),
            ("aa", "aaaa", "aa", &[(0, 2, 2)]),
            ("bbaab", "ababb", "aab", &[(4, 4, 1), (3, 2, 1), (2, 0, 1)]),
            ("abcbdab", "bdcaba", "bdab", &[(5, 3, 2), (3, 0, 2)]),
            ("axbycz", "abcxyz", "abcz", &[(5, 5, 1), (4, 2, 1), (2, 1, 1), (0, 0, 1)]),
            ("xaxbxcx", "abcabc", "abc", &[(5, 2, 1), (3, 1, 1), (1, 0, 1)]),
            ("zzabcq", "abcqq", "abcq", &[(5, 4, 1), (2, 0, 3)]),
            ("lock:owner-1", "lock:owner-22", "lock:owner-", &[(0, 0, 11)]),
        ] {
            let found = find(one, other);
            assert_eq!(found.bytes(one.as_bytes()), bytes.as_bytes(), "{one} {other}");
            let runs: Vec<_> = found.matches().iter().map(|run| (run.one, run.other, run.bytes())).collect();
            assert_eq!(runs, matches, "{one} {other}");
        }
    }

    #[test]
    fn empty_strings_have_nothing_in_common() {
        for (one, other) in [("", ""), ("a", ""), ("", "a"), ("a", "b")] {
            assert_eq!(find(one, other).length(), 0);
            assert!(find(one, other).matches().is_empty());
        }
    }

    #[test]
    fn the_table_has_a_limit() {
        assert!(CommonSubsequence::find(&[0; 99], &[0; 99], 40_000).is_ok());
        assert!(CommonSubsequence::find(&[0; 99], &[0; 100], 40_000).is_err());
    }
}
