//! The longest common subsequence of two strings, as LCS replies it.
//!
//! The textbook fills a table of the lengths for all pairs of beginnings and walks back through it. Two
//! neighbours in a row differ by 0 or 1, so a bit holds as much as a number, and a whole row of bits comes
//! from the row above in one addition and a few logical operations (Hyyrö, "Bit-parallel LCS-length
//! computation revisited", 2004): 64 cells at a time, in a 32nd of the memory that Redis takes.
//!
//! Where a step back could go either way, the walk shortens the second string, as in Redis: which of several
//! equally long subsequences is found depends on it. The bit is enough to decide that. Where the bytes differ
//! a cell is the larger of the one above and the one on its left. If it is larger than the one on its left,
//! it is as large as the one above, which is the larger then; if not, the one above cannot be larger.

use crate::cancel;

/// Bytes that a table takes here, at most, however much is allowed: enough for two strings of 92,000 bytes.
const TABLE_BYTES_MAX: usize = 1 << 30;

/// The longest common subsequence of two strings.
#[derive(Debug)]
pub(crate) struct CommonSubsequence {
    /// Positions in the one string and in the other, the last first.
    pairs: Vec<(usize, usize)>,
}

/// A run of bytes that both strings have, and that belongs to the subsequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Match {
    /// Where it begins in the one string.
    pub one: usize,
    /// Where it begins in the other.
    pub other: usize,
    bytes: usize,
}

/// Why nothing was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TooLong {
    /// The table of Redis would take more memory than allowed.
    Refused,
    /// There is not as much memory as it takes here.
    NoMemory,
}

/// How long the longest common subsequence is.
///
/// # Errors
///
/// [`TooLong::Refused`], as from [`CommonSubsequence::find`].
pub(crate) fn length(one: &[u8], other: &[u8], table_bytes_max: usize) -> Result<usize, TooLong> {
    check_size(one, other, table_bytes_max)?;
    // Few long rows are quicker than many short ones.
    let (rows, columns) = if one.len() <= other.len() { (one, other) } else { (other, one) };
    let mut row = Row::new(rows, columns)?;
    rows.iter().for_each(|byte| row.follow(*byte));
    Ok(row.steps().map(u64::count_ones).sum::<u32>() as usize)
}

/// Refuses what Redis refuses: it keeps four bytes for each pair of beginnings.
fn check_size(one: &[u8], other: &[u8], table_bytes_max: usize) -> Result<(), TooLong> {
    let cells = (one.len() + 1).checked_mul(other.len() + 1);
    let bytes = cells.and_then(|cells| cells.checked_mul(size_of::<u32>()));
    if bytes.is_some_and(|bytes| bytes <= table_bytes_max) { Ok(()) } else { Err(TooLong::Refused) }
}

impl CommonSubsequence {
    /// Finds it.
    ///
    /// # Errors
    ///
    /// If the table of Redis would take more than `table_bytes_max`, or if there is not enough memory.
    pub(crate) fn find(
        one: &[u8],
        other: &[u8],
        table_bytes_max: usize,
    ) -> Result<CommonSubsequence, TooLong> {
        check_size(one, other, table_bytes_max)?;
        let mut steps = Steps::new(one.len(), other.len())?;
        let mut row = Row::new(one, other)?;
        for (number, byte) in one.iter().enumerate() {
            cancel::check();
            row.follow(*byte);
            steps.put(number, &row);
        }
        let mut pairs = Vec::new();
        let (mut row, mut column) = (one.len(), other.len());
        while row > 0 && column > 0 {
            if one[row - 1] == other[column - 1] {
                (row, column) = (row - 1, column - 1);
                pairs.push((row, column));
            } else if steps.has(row - 1, column - 1) {
                row -= 1;
            } else {
                column -= 1;
            }
        }
        Ok(CommonSubsequence { pairs })
    }

    /// How long it is.
    pub(crate) fn length(&self) -> usize {
        self.pairs.len()
    }

    /// Its bytes, taken from the one string it was found in.
    pub(crate) fn bytes(&self, one: &[u8]) -> Vec<u8> {
        self.pairs.iter().rev().map(|(at, _)| one[*at]).collect()
    }

    /// The runs it consists of, the last first.
    pub(crate) fn matches(&self) -> Vec<Match> {
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
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// One row of the table.
#[derive(Debug)]
struct Row {
    /// A bit for each column: 0 if the cell is larger than the one on its left.
    level: Vec<u64>,
    columns: usize,
    /// For each byte that some row may have, a bit for each column that has it as well.
    places: Vec<u64>,
    /// Where those of a byte begin.
    place_of: [usize; 256],
}

impl Row {
    /// The row above the first, where nothing is larger.
    fn new(rows: &[u8], columns: &[u8]) -> Result<Row, TooLong> {
        const ABSENT: usize = usize::MAX;
        let words = columns.len().div_ceil(64);
        let (mut place_of, mut kinds) = ([ABSENT; 256], 0);
        for byte in rows {
            let place = &mut place_of[usize::from(*byte)];
            if *place == ABSENT {
                *place = kinds * words;
                kinds += 1;
            }
        }
        let mut places = zeros(kinds * words)?;
        for (column, byte) in columns.iter().enumerate() {
            let place = place_of[usize::from(*byte)];
            if place != ABSENT {
                places[place + column / 64] |= 1 << (column % 64);
            }
        }
        Ok(Row { level: vec![u64::MAX; words], columns: columns.len(), places, place_of })
    }

    /// Becomes the next row, which is that of a byte.
    fn follow(&mut self, byte: u8) {
        let place = self.place_of[usize::from(byte)];
        let mut carry = false;
        for (level, same) in self.level.iter_mut().zip(&self.places[place..]) {
            let met = *level & same;
            let (sum, first) = level.overflowing_add(met);
            let (sum, second) = sum.overflowing_add(u64::from(carry));
            carry = first || second;
            *level = sum | *level & !same;
        }
    }

    /// A bit for each column: 1 if the cell is larger than the one on its left.
    fn steps(&self) -> impl Iterator<Item = u64> {
        (0..).zip(&self.level).map(|(word, level)| {
            let columns = self.columns - 64 * word;
            !level & if columns < 64 { (1 << columns) - 1 } else { u64::MAX }
        })
    }
}

/// The steps of all rows, one after the other without a gap.
#[derive(Debug)]
struct Steps {
    words: Vec<u64>,
    columns: usize,
}

impl Steps {
    fn new(rows: usize, columns: usize) -> Result<Steps, TooLong> {
        // One more, since a word of a row may reach into the next one.
        let words = zeros((rows * columns).div_ceil(64) + 1)?;
        Ok(Steps { words, columns })
    }

    fn put(&mut self, number: usize, row: &Row) {
        for (word, steps) in row.steps().enumerate() {
            let at = number * self.columns + 64 * word;
            let wide = u128::from(steps) << (at % 64);
            self.words[at / 64] |= wide as u64;
            self.words[at / 64 + 1] |= (wide >> 64) as u64;
        }
    }

    fn has(&self, row: usize, column: usize) -> bool {
        let at = row * self.columns + column;
        self.words[at / 64] >> (at % 64) & 1 == 1
    }
}

/// So many words of zeros, if there is memory for them.
fn zeros(count: usize) -> Result<Vec<u64>, TooLong> {
    let mut words = Vec::new();
    if count > TABLE_BYTES_MAX / size_of::<u64>() || words.try_reserve_exact(count).is_err() {
        return Err(TooLong::NoMemory);
    }
    words.resize(count, 0);
    Ok(words)
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
        assert_eq!(CommonSubsequence::find(&[0; 99], &[0; 100], 40_000).unwrap_err(), TooLong::Refused);
        assert_eq!(length(&[0; 99], &[0; 100], 40_000), Err(TooLong::Refused));
        let huge = vec![0; 1 << 20];
        assert_eq!(CommonSubsequence::find(&huge, &huge, usize::MAX).unwrap_err(), TooLong::NoMemory);
    }

    /// The textbook's table and Redis's walk.
    fn find_slowly(one: &[u8], other: &[u8]) -> Vec<(usize, usize)> {
        let mut lengths = vec![vec![0; other.len() + 1]; one.len() + 1];
        for (row, byte) in (1..).zip(one) {
            for (column, other) in (1..).zip(other) {
                lengths[row][column] = match byte == other {
                    true => lengths[row - 1][column - 1] + 1,
                    false => lengths[row - 1][column].max(lengths[row][column - 1]),
                };
            }
        }
        let (mut pairs, mut row, mut column) = (Vec::new(), one.len(), other.len());
        while row > 0 && column > 0 {
            if one[row - 1] == other[column - 1] {
                (row, column) = (row - 1, column - 1);
                pairs.push((row, column));
            } else if lengths[row - 1][column] > lengths[row][column - 1] {
                row -= 1;
            } else {
                column -= 1;
            }
        }
        pairs
    }

    #[test]
    fn a_bit_for_each_cell_is_enough() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..500 {
            let letters = random.u8(1..5);
            let mut some = || -> Vec<u8> {
                let length = random.usize(..200);
                (0..length).map(|_| b'a' + random.u8(..letters)).collect()
            };
            let (one, other) = (some(), some());
            let found = CommonSubsequence::find(&one, &other, usize::MAX).unwrap();
            assert_eq!(found.pairs, find_slowly(&one, &other));
            assert_eq!(length(&one, &other, usize::MAX), Ok(found.length()));
        }
    }
}
