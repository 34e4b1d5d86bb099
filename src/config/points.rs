//! `save`: when a snapshot is due.

use super::lists::{lenient_integer, words};

/// A snapshot is due after so many seconds, if there were at least so many changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavePoint {
    /// Seconds since the last snapshot, 1 or more.
    pub seconds: u64,
    /// Changes since the last snapshot, 0 or more.
    pub changes: u64,
}

/// Reads points such as `3600 1 300 100`; an empty text has no points. Returns none if it is malformed.
pub(super) fn parse(text: &[u8]) -> Option<Vec<SavePoint>> {
    let words = words(text);
    let number = |word: &[u8], min: u64| {
        lenient_integer(word).and_then(|number| u64::try_from(number).ok()).filter(|number| *number >= min)
    };
    let point =
        |pair: &[&[u8]]| Some(SavePoint { seconds: number(pair[0], 1)?, changes: number(pair[1], 0)? });
    if words.len().is_multiple_of(2) { words.chunks_exact(2).map(point).collect() } else { None }
}

/// The points as CONFIG GET prints them.
pub(super) fn print(points: &[SavePoint]) -> String {
    let points = points.iter().map(|point| format!("{} {}", point.seconds, point.changes));
    points.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_read_and_printed_as_redis_does() {
        let points = parse(b"3600 1 300 0").unwrap();
        assert_eq!(points[1], SavePoint { seconds: 300, changes: 0 });
        assert_eq!(print(&points), "3600 1 300 0");
        assert_eq!((parse(b""), print(&[])), (Some(Vec::new()), String::new()));
        for wrong in [&b"60"[..], b"60 x", b"0 1", b"60 -1", b"60 1 2", b"60  1"] {
            assert_eq!(parse(wrong), None, "{}", wrong.escape_ascii());
        }
    }
}
