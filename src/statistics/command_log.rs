//! The slowest requests, the longest requests and those with the longest replies: COMMANDLOG. SLOWLOG shows
//! the first of these logs.

use std::collections::VecDeque;

use parking_lot::Mutex;

use crate::excerpt::excerpt;

/// Arguments of a request that are kept. Redis: `SLOWLOG_ENTRY_MAX_ARGC`.
const ARGUMENTS_MAX: usize = 32;

/// The logs of requests, one for each reason to note a request.
#[derive(Debug, Default)]
pub struct CommandLogs {
    /// Slow requests, with their microseconds.
    pub slow: CommandLog,
    /// Long requests, with their bytes.
    pub large_requests: CommandLog,
    /// Requests with long replies, with the bytes of these.
    pub large_replies: CommandLog,
}

impl CommandLogs {
    /// Forgets all of them.
    pub fn clear(&self) {
        [&self.slow, &self.large_requests, &self.large_replies].into_iter().for_each(CommandLog::clear);
    }
}

/// Requests that were noted, the newest first.
#[derive(Debug, Default)]
pub struct CommandLog(Mutex<Log>);

#[derive(Debug, Default)]
struct Log {
    entries: VecDeque<LoggedRequest>,
    next_id: u64,
}

/// A request that was noted.
#[derive(Clone, Debug)]
pub struct LoggedRequest {
    /// A number that no other in its log has, until the server restarts.
    pub id: u64,
    /// When it was executed, in seconds since 1970.
    pub at_s: u64,
    /// The measure by which it was noted: its time, its length, or the length of its reply.
    pub measure: u64,
    /// Its arguments; long ones and many are cut.
    pub arguments: Vec<Vec<u8>>,
    /// Where its client was connected from.
    pub address: String,
    /// The client's name; a long one is cut.
    pub client_name: Vec<u8>,
}

/// The least measure that a log notes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Least(u64);

impl Least {
    /// Of a parameter's value. If that is negative, the log notes nothing: as a number without a sign it is
    /// larger than any measure.
    #[inline]
    pub(crate) fn of(value: i64) -> Least {
        Least(value as u64)
    }

    /// Whether a request of this measure is noted.
    #[inline]
    pub(crate) fn takes(self, measure: u64) -> bool {
        measure >= self.0
    }
}

impl CommandLog {
    /// Notes a request of this measure that `describe` makes; the oldest beyond `length_max` go.
    #[cold]
    pub fn note(&self, measure: u64, length_max: usize, describe: impl FnOnce() -> LoggedRequest) {
        if length_max > 0 {
            self.add(LoggedRequest { measure, ..describe() }, length_max);
        }
    }

    fn add(&self, mut request: LoggedRequest, length_max: usize) {
        let mut log = self.0.lock();
        request.id = log.next_id;
        log.next_id += 1;
        log.entries.push_front(request);
        log.entries.truncate(length_max);
    }

    /// The newest entries, the last one first; at most `count`.
    pub fn newest(&self, count: usize) -> Vec<LoggedRequest> {
        self.0.lock().entries.iter().take(count).cloned().collect()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.lock().entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes all entries.
    pub fn clear(&self) {
        self.0.lock().entries.clear();
    }
}

/// Cuts a request's arguments to the length that a log keeps.
pub(crate) fn cut<'a>(arguments: impl ExactSizeIterator<Item = &'a [u8]>) -> Vec<Vec<u8>> {
    let count = arguments.len();
    let kept = if count > ARGUMENTS_MAX { ARGUMENTS_MAX - 1 } else { count };
    let mut cut: Vec<Vec<u8>> = arguments.take(kept).map(|argument| excerpt(argument).into_owned()).collect();
    if kept < count {
        cut.push(format!("... ({} more arguments)", count - kept).into_bytes());
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_requests_are_cut_as_redis_cuts_them() {
        let long = vec![b'x'; 129];
        let cut_long = cut([&b"SET"[..], &long].into_iter());
        assert_eq!(cut_long[1], [&long[..128], b"... (1 more bytes)"].concat());
        let many = [&b"a"[..]; 33];
        let cut_many = cut(many.into_iter());
        assert_eq!(cut_many.len(), 32);
        assert_eq!(cut_many[31], b"... (2 more arguments)");
        assert_eq!(cut(many[..32].iter().copied()).len(), 32);
    }

    #[test]
    fn the_oldest_go_first() {
        let log = CommandLog::default();
        let request = || LoggedRequest {
            id: 0,
            at_s: 0,
            measure: 0,
            arguments: Vec::new(),
            address: String::new(),
            client_name: Vec::new(),
        };
        for measure in 1..6 {
            log.note(measure, 3, request);
            log.note(measure, 0, request);
        }
        let kept: Vec<_> = log.newest(10).iter().map(|request| (request.id, request.measure)).collect();
        assert_eq!(kept, [(4, 5), (3, 4), (2, 3)]);
        log.clear();
        assert!(log.is_empty());
    }

    #[test]
    fn a_negative_limit_stands_for_none() {
        assert!(Least::of(0).takes(0) && Least::of(1).takes(1) && !Least::of(2).takes(1));
        assert!(!Least::of(-1).takes(0) && !Least::of(-1).takes(i64::MAX as u64));
    }
}
