//! ACL LOG: the commands, keys, channels and logins that were refused.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::excerpt::excerpt;

/// Refusals of the same kind that are further apart are entries of their own. Redis:
/// `ACL_LOG_GROUPING_MAX_TIME_DELTA`.
const GROUPED_MS_MAX: u64 = 60_000;
/// Entries that are compared with a new refusal, as in Redis.
const COMPARED_MAX: usize = 10;

/// The latest refusals, the newest first.
#[derive(Debug, Default)]
pub struct AclLog {
    log: Mutex<Log>,
    counts: [AtomicU64; Reason::ALL.len()],
}

#[derive(Debug, Default)]
struct Log {
    entries: VecDeque<Entry>,
    next_id: u64,
}

/// Refusals of one kind.
#[derive(Clone, Debug)]
pub struct Entry {
    /// A number that no other has, until the server restarts.
    pub id: u64,
    /// How many there were.
    pub count: u64,
    /// When the first was, in milliseconds since 1970.
    pub created_ms: u64,
    /// The last of them.
    pub refusal: Refusal,
}

/// One refusal, as ACL LOG lists it.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// What was refused.
    pub reason: Reason,
    /// From where it was tried.
    pub context: Context,
    /// The command, key or channel; a long one is cut when it is noted.
    pub object: Vec<u8>,
    /// Who tried it.
    pub username: Vec<u8>,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// The client, as CLIENT LIST describes it; long names are cut.
    pub client: String,
}

/// What may be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// To be let in.
    Auth,
    /// Running a command or subcommand.
    Command,
    /// Using a key in this way.
    Key,
    /// Using a channel or a pattern of channels.
    Channel,
}

impl Reason {
    /// All of them, in the order in which INFO counts them.
    pub const ALL: [Reason; 4] = [Reason::Auth, Reason::Command, Reason::Key, Reason::Channel];

    /// As ACL LOG prints it.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Auth => "auth",
            Reason::Command => "command",
            Reason::Key => "key",
            Reason::Channel => "channel",
        }
    }
}

/// From where something is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// By a request.
    TopLevel,
    /// Within a transaction.
    Multi,
    /// By a script.
    Lua,
}

impl Context {
    /// As ACL LOG prints it.
    pub fn name(self) -> &'static str {
        match self {
            Context::TopLevel => "toplevel",
            Context::Multi => "multi",
            Context::Lua => "lua",
        }
    }
}

impl AclLog {
    /// Notes a refusal, with one like it if there was one lately; the oldest entries beyond `length_max` go.
    pub fn note(&self, mut refusal: Refusal, length_max: usize) {
        // A client must not fill the memory with what it was refused.
        refusal.object = excerpt(&refusal.object).into_owned();
        refusal.username = excerpt(&refusal.username).into_owned();
        self.counts[refusal.reason as usize].fetch_add(1, Ordering::Relaxed);
        let mut log = self.log.lock();
        let mut newest = log.entries.iter().take(COMPARED_MAX);
        if let Some(at) = newest.position(|entry| entry.is_like(&refusal)) {
            let entry = log.entries.remove(at);
            let updated = entry.map(|entry| Entry { count: entry.count + 1, refusal, ..entry });
            updated.into_iter().for_each(|entry| log.entries.push_front(entry));
            return;
        }
        let (id, created_ms) = (log.next_id, refusal.at_ms);
        log.next_id += 1;
        log.entries.push_front(Entry { id, count: 1, created_ms, refusal });
        log.entries.truncate(length_max);
    }

    /// The newest entries, the last one first; at most `count`.
    pub fn newest(&self, count: usize) -> Vec<Entry> {
        self.log.lock().entries.iter().take(count).cloned().collect()
    }

    /// Removes all entries (ACL LOG RESET).
    pub fn clear(&self) {
        self.log.lock().entries.clear();
    }

    /// How often something was refused for this reason.
    pub fn count(&self, reason: Reason) -> u64 {
        self.counts[reason as usize].load(Ordering::Relaxed)
    }

    /// Begins to count anew; the entries stay.
    pub fn reset_counts(&self) {
        self.counts.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    }
}

impl Entry {
    fn is_like(&self, other: &Refusal) -> bool {
        let own = &self.refusal;
        own.reason == other.reason
            && own.context == other.context
            && own.at_ms.abs_diff(other.at_ms) <= GROUPED_MS_MAX
            && own.object == other.object
            && own.username == other.username
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(object: &str, at_ms: u64) -> Refusal {
        Refusal {
            reason: Reason::Key,
            context: Context::TopLevel,
            object: object.into(),
            username: b"alice".to_vec(),
            at_ms,
            client: String::new(),
        }
    }

    #[test]
    fn the_same_refusal_within_a_minute_is_one_entry() {
        let log = AclLog::default();
        for (object, at_ms) in [("a", 0), ("b", 1), ("a", 60_000), ("b", 60_002)] {
            log.note(refusal(object, at_ms), 10);
        }
        let entries = log.newest(10);
        let told: Vec<_> =
            entries.iter().map(|entry| (entry.refusal.object[0], entry.count, entry.id)).collect();
        assert_eq!(told, [(b'b', 1, 2), (b'a', 2, 0), (b'b', 1, 1)]);
        assert_eq!((entries[1].created_ms, entries[1].refusal.at_ms), (0, 60_000));
        assert_eq!(log.count(Reason::Key), 4);
    }

    #[test]
    fn the_oldest_go_first() {
        let log = AclLog::default();
        ["a", "b", "c"].into_iter().for_each(|object| log.note(refusal(object, 0), 2));
        let objects: Vec<_> = log.newest(10).into_iter().map(|entry| entry.refusal.object).collect();
        assert_eq!(objects, [b"c", b"b"]);
    }
}
