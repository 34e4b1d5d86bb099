//! The requests that took longest, and those that were or got the longest: COMMANDLOG, and SLOWLOG, which
//! knows the first of these logs alone.

use std::collections::VecDeque;

use parking_lot::Mutex;

use crate::excerpt::excerpt;

/// Arguments of a request that are kept. Redis: `SLOWLOG_ENTRY_MAX_ARGC`.
const ARGUMENTS_MAX: usize = 32;

/// The logs of requests, one for each reason to note a request.
#[derive(Debug, Default)]
pub struct CommandLogs {
    /// Those that took long, with microseconds.
    pub slow: CommandLog,
    /// Those that were long themselves, with bytes.
    pub large_requests: CommandLog,
    /// Those whose reply was long, with its bytes.
    pub large_replies: CommandLog,
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
    /// Why it was noted: its time, or its length, or that of its reply.
    pub measure: u64,
    /// Its arguments; long ones and many are cut.
    pub arguments: Vec<Vec<u8>>,
    /// Where its client was connected from.
    pub address: String,
    /// The client's name; a long one is cut.
    pub client_name: Vec<u8>,
}

/// From where on a log notes requests, and how many it keeps.
#[derive(Clone, Copy, Debug)]
pub struct LogLimits {
    /// The least that is noted; negative for nothing.
    pub least: i64,
    /// How many are kept.
    pub length_max: usize,
}

impl LogLimits {
    /// Whether a request of this measure is noted.
    #[inline]
    pub fn takes(self, measure: u64) -> bool {
        u64::try_from(self.least).is_ok_and(|least| measure >= least) && self.length_max > 0
    }
}

impl CommandLog {
    /// Notes a request that `describe` makes if it has this measure; the oldest beyond the limit go.
    #[inline]
    pub fn note(&self, limits: LogLimits, measure: u64, describe: impl FnOnce() -> LoggedRequest) {
        if limits.takes(measure) {
            self.add(LoggedRequest { measure, ..describe() }, limits);
        }
    }

    #[cold]
    fn add(&self, mut request: LoggedRequest, limits: LogLimits) {
        let mut log = self.0.lock();
        request.id = log.next_id;
        log.next_id += 1;
        log.entries.push_front(request);
        log.entries.truncate(limits.length_max);
    }

    /// The newest, at most so many.
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

    /// Forgets them.
    pub fn clear(&self) {
        self.0.lock().entries.clear();
    }
}

/// Makes of a request's arguments what is kept of them.
pub fn cut<'a>(arguments: impl ExactSizeIterator<Item = &'a [u8]>) -> Vec<Vec<u8>> {
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
        for measure in 0..6 {
            log.note(LogLimits { least: 1, length_max: 3 }, measure, request);
            log.note(LogLimits { least: -1, length_max: 3 }, measure, request);
            log.note(LogLimits { least: 0, length_max: 0 }, measure, request);
        }
        let kept: Vec<_> = log.newest(10).iter().map(|request| (request.id, request.measure)).collect();
        assert_eq!(kept, [(4, 5), (3, 4), (2, 3)]);
        log.clear();
        assert!(log.is_empty());
    }
}
