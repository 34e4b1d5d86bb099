//! What a finding means, and what to do instead: by the kind of lock, and by what the client did.
//!
//! The library's own call comes first, since it keeps what belongs to the lock (the list that wakes the next
//! client, the depth). A script that runs on every server comes second. Commands that only some servers have
//! are a remark.

use super::rules::Rule;

/// What a lock is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockKind {
    /// A string with a token.
    Text,
    /// A string with a token, and a list that wakes the next client, as those of python-redis-lock.
    Signal,
    /// A hash with the token and a depth, as those of Redisson.
    Hash,
    /// A sorted set with the token and its end, as those of Symfony.
    SortedSet,
}

/// What a finding means, and what to do instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advice {
    /// The meaning for a user, if the key is a lock.
    pub hint: &'static str,
    /// The command or call to use instead.
    pub instead: &'static str,
}

/// The release of a string.
macro_rules! release {
    () => {
        "the release call of your lock library; or EVAL \"if redis.call('get',KEYS[1]) == ARGV[1] then \
         return redis.call('del',KEYS[1]) else return 0 end\" 1 key token. Redis from 8.4 on has DELEX key \
         IFEQ token for it, Valkey from 9 on DELIFEQ key token"
    };
}

/// The extension of a string, and the number that protects where it comes too late.
macro_rules! extend {
    () => {
        "the extend call of your lock library, before the lock expires; or EVAL \"if \
         redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) else \
         return 0 end\" 1 key token milliseconds"
    };
}

macro_rules! fence {
    () => {
        ". And take the lock by LOCK ACQUIRE key token PX milliseconds: pass the fencing number of its \
         reply to the resource that the lock protects, which refuses smaller ones"
    };
}

const TAKE: &str = "SET key token NX PX milliseconds";
const RELEASE: &str = concat!(release!());
const RELEASE_SIGNAL: &str = "Lock.release() of python-redis-lock by the client that took the lock: \
     it compares the token, and pushes to the list at which the next client waits, which a plain DEL does \
     not; reset() only when the holder is known to be dead";
const RELEASE_HASH: &str = "RLock.unlock() by the thread that took the lock: it compares the field, \
     counts the depth and notifies the next client; forceUnlock() only when the holder is known to be \
     dead";
const RELEASE_SET: &str = "release() of Symfony's lock by the process that took the lock: it takes out its \
     own token only, and not that of another";
const EXTEND: &str = concat!(extend!(), fence!());
const EXTEND_SIGNAL: &str =
    concat!("Lock.extend() of python-redis-lock, or auto_renewal=True, before the lock expires", fence!());
const EXTEND_HASH: &str = "lock() without a lease time, so that Redisson's watchdog renews the lock; \
     or a longer lease time. And RFencedLock.lockAndGetToken(): pass its number to the resource that the \
     lock protects, which refuses smaller ones";
const EXTEND_SET: &str =
    concat!("refresh() of Symfony's lock before it expires, or a longer time (TTL) from the start", fence!());
const ONCE: &str =
    "release each lock once: nothing is to be done for the second time, since this release compares";
const WRITE: &str = concat!(
    "SET key token NX PX milliseconds to take it, which leaves another's lock alone. To extend it: ",
    extend!()
);
const ELSEWHERE: &str = "nothing, if another process is meant to end what this one begins: see \
     lock-lens-ignore. Otherwise pass the token on, and let the other process compare it";
const KEEP: &str = "keep the token with which the lock was taken, and release by it; a new one belongs to \
     the next attempt to take the lock";
const UNIQUE: &str = "a new random token (a UUID) for each attempt to take the lock";
const APART: &str = "keys of their own for the lock and for the data, such as lock:user:9 beside user:9";
const ONE_ORDER: &str = "all locks at once, by LOCK ACQUIRE … ALSO; or one order in which all clients take \
     them, such as by their names. And a WAIT that ends, after which the client releases what it has. LOCK \
     BREAK frees a lock now";
const AGAIN: &str = "LOCK ACQUIRE key token PX milliseconds WAIT milliseconds AGAIN, by which a client finds \
     its own lock, as after a lost reply; and a new token for each lock";
const END_RENEWALS: &str = "an end to the renewals: LOCK ACQUIRE … BOUND MAX milliseconds, or a limit in \
     what renews; and renewals by the work itself, at each of its steps. LOCK BREAK frees the lock now";
const LOST: &str = "FLUSHDB for a database without locks, and for memory noeviction, or volatile-ttl \
     with locks that last longer than caches; and a lock that must not be lost belongs into a store \
     (PostgreSQL or etcd)";

impl Advice {
    /// The advice for a rule and a kind of lock. `compares` says whether the client's command has compared
    /// the token.
    pub(super) fn of(rule: Rule, kind: LockKind, compares: bool) -> Advice {
        Advice { hint: rule.hint(compares), instead: instead(rule, kind, compares) }
    }
}

fn instead(rule: Rule, kind: LockKind, compares: bool) -> &'static str {
    match (rule, kind) {
        (Rule::NoExpiry | Rule::ExpirySetSeparately, LockKind::Text) => TAKE,
        (Rule::NoExpiry | Rule::ExpirySetSeparately, LockKind::Signal) => {
            "Lock(client, name, expire=seconds)"
        }
        (Rule::NoExpiry | Rule::ExpirySetSeparately, LockKind::Hash) => "RLock.lock(leaseTime, unit)",
        (Rule::NoExpiry | Rule::ExpirySetSeparately, LockKind::SortedSet) => "createLock(resource, ttl)",
        (Rule::ReleasedTwice, _) if compares => ONCE,
        (Rule::DeletedByAnother | Rule::ReleasedTwice, LockKind::Text) => RELEASE,
        (Rule::DeletedByAnother | Rule::ReleasedTwice, LockKind::Signal) => RELEASE_SIGNAL,
        (Rule::DeletedByAnother | Rule::ReleasedTwice, LockKind::Hash) => RELEASE_HASH,
        (Rule::DeletedByAnother | Rule::ReleasedTwice, LockKind::SortedSet) => RELEASE_SET,
        (Rule::ExpiredWhileHeld, LockKind::Text) | (Rule::ExtendedByAnother, LockKind::Text) => EXTEND,
        (Rule::ExpiredWhileHeld, LockKind::Signal) | (Rule::ExtendedByAnother, LockKind::Signal) => {
            EXTEND_SIGNAL
        }
        (Rule::ExpiredWhileHeld, LockKind::Hash) | (Rule::ExtendedByAnother, LockKind::Hash) => EXTEND_HASH,
        (Rule::ExpiredWhileHeld | Rule::ExtendedByAnother, LockKind::SortedSet) => EXTEND_SET,
        (Rule::OverwrittenByAnother, _) => WRITE,
        (Rule::TakeoverOverwritten, _) => concat!(
            "SET key token NX PX milliseconds, so that no client need take a lock over; then ",
            release!()
        ),
        (Rule::LostWhileHeld, _) => LOST,
        (Rule::ReleasedElsewhere, _) => ELSEWHERE,
        (Rule::ReleasedByStranger, _) => KEEP,
        (Rule::TokenNotUnique, _) => UNIQUE,
        (Rule::OverwrittenByHolder, _) => APART,
        (Rule::Deadlock | Rule::LockOrderInversion, _) => ONE_ORDER,
        (Rule::WaitsForItself, _) => AGAIN,
        (Rule::RenewedTooLong, _) => END_RENEWALS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_fits_the_kind_of_lock() {
        for rule in Rule::ALL {
            for compares in [false, true] {
                let set = Advice::of(rule, LockKind::SortedSet, compares).instead;
                let hash = Advice::of(rule, LockKind::Hash, compares).instead;
                assert_eq!(set.contains("'get'"), hash.contains("'get'"), "{rule:?}: {set}");
                let is_about_strings = hash.contains("DELIFEQ") || hash.contains("'get'");
                let is_written_as_string =
                    matches!(rule, Rule::OverwrittenByAnother | Rule::TakeoverOverwritten);
                assert!(!is_about_strings || is_written_as_string, "{rule:?}: {hash}");
                let signal = Advice::of(rule, LockKind::Signal, compares);
                assert!(!signal.instead.contains("'del'") || is_written_as_string, "{rule:?}");
            }
        }
        let again = Advice::of(Rule::ReleasedTwice, LockKind::Text, true);
        assert!(!again.instead.contains("DELIFEQ") && again.hint.contains("harm"));
    }
}
