//! The slowest requests: SLOWLOG.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;

use crate::excerpt::excerpt;

/// Arguments of a request that are kept. Redis: `SLOWLOG_ENTRY_MAX_ARGC`.
const ARGUMENTS_MAX: usize = 32;

/// The slowest requests, the newest first.
#[derive(Debug, Default)]
pub struct SlowLog(Mutex<Log>);

#[derive(Debug, Default)]
struct Log {
    entries: VecDeque<SlowRequest>,
    next_id: u64,
}

/// A request that was slow.
#[derive(Clone, Debug)]
pub struct SlowRequest {
    /// A number that no other has, until the server restarts.
    pub id: u64,
    /// When it was executed, in seconds since 1970.
    pub at_s: u64,
    /// How long that took.
    pub took: Duration,
    /// Its arguments; long ones and many are cut.
    pub arguments: Vec<Vec<u8>>,
    /// Where its client was connected from.
    pub address: String,
    /// The client's name; a long one is cut.
    pub client_name: Vec<u8>,
}

impl SlowLog {
    /// Notes a request; the oldest beyond `length_max` go.
    pub fn note(&self, mut request: SlowRequest, length_max: usize) {
        let mut log = self.0.lock();
        request.id = log.next_id;
        log.next_id += 1;
        log.entries.push_front(request);
        log.entries.truncate(length_max);
    }

    /// The newest, at most so many.
    pub fn newest(&self, count: usize) -> Vec<SlowRequest> {
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
        let log = SlowLog::default();
        for number in 0..5 {
            let request = SlowRequest {
                id: 0,
                at_s: number,
                took: Duration::ZERO,
                arguments: Vec::new(),
                address: String::new(),
                client_name: Vec::new(),
            };
            log.note(request, 3);
        }
        let ids: Vec<u64> = log.newest(10).iter().map(|request| request.id).collect();
        assert_eq!(ids, [4, 3, 2]);
        log.clear();
        assert!(log.is_empty());
    }
}
