//! How many entries a reply gets: limits for each stream, and limits in entries and bytes for all together.

use crate::resp::reply::Nested;

/// What is left for entries. Each is asked for before it is read, so that one without room is not delivered.
pub(super) struct Budget {
    /// Entries of this stream.
    of_stream: usize,
    /// Entries of all streams.
    of_all: usize,
    /// The length of the output at which no further entry is written. Headers whose numbers are not known yet
    /// do not count, as in Redis.
    bytes_end: usize,
    /// Whether there is an entry: the first one is written whatever its length.
    has_any: bool,
}

impl Budget {
    /// A budget for `count` entries of one stream; 0 is any number.
    pub(super) fn of_count(count: usize) -> Budget {
        Budget { of_stream: at_most(count), ..Budget::of_reply(None, None, 0) }
    }

    /// A budget for `count` entries of all streams, and for `bytes` behind the `written` bytes before.
    pub(super) fn of_reply(count: Option<usize>, bytes: Option<usize>, written: usize) -> Budget {
        let bytes_end = bytes.map_or(usize::MAX, |bytes| written.saturating_add(bytes));
        Budget { of_stream: usize::MAX, of_all: count.unwrap_or(usize::MAX), bytes_end, has_any: false }
    }

    /// Begins a stream with at most `count` entries; 0 is any number. Returns whether any may be written.
    pub(super) fn begin_stream(&mut self, count: usize, written: usize) -> bool {
        self.of_stream = at_most(count).min(self.of_all);
        self.of_all > 0 && self.has_room_after(written)
    }

    /// The most entries of this stream that may be written; 0 for any number.
    pub(super) fn count(&self) -> usize {
        if self.of_stream == usize::MAX { 0 } else { self.of_stream }
    }

    /// The next entry, if there is one, and room for it.
    pub(super) fn next<E>(&mut self, entries: &mut impl Iterator<Item = E>, parts: &Nested<'_>) -> Option<E> {
        if self.of_stream == 0 || !self.has_room_after(parts.written()) {
            return None;
        }
        let entry = entries.next()?;
        self.of_stream -= 1;
        self.of_all -= 1;
        self.has_any = true;
        Some(entry)
    }

    fn has_room_after(&self, written: usize) -> bool {
        !self.has_any || written < self.bytes_end
    }
}

/// The most of a number of which 0 is any.
fn at_most(count: usize) -> usize {
    if count == 0 { usize::MAX } else { count }
}
