//! The interest of clients and of the log in changes.
//!
//! Nearly always no client is interested. Then a write costs one look at a number, which its transaction
//! reads when it begins. Otherwise the transaction marks the clients that watch a key (WATCH) at once, under
//! the key's lock, and collects the rest as [`Effect`](super::news::Effect)s. The caller takes them after the
//! command and notifies the clients before it unlocks, so that all clients see two changes of one key in one
//! order.

use std::sync::atomic::Ordering;

use crate::events::EventClass;
use crate::sync::AtomicU64;

/// What clients and the log want to know. The low half has event classes, surveys, the journal and tracking.
/// The high half has the number of watched keys, and of locks with a guard.
#[derive(Debug, Default)]
pub struct Interest(AtomicU64);

const TRACKING: u64 = 1 << 31;
const ONE_WATCHED: u64 = 1 << 32;
const JOURNAL: u64 = 1 << 30;
const BLOCKED: u64 = 1 << 29;
const SURVEYED: u64 = 1 << 28;
const RECORDS_KEYS: u64 = 1 << 27;
const RECORDS_SPANS: u64 = 1 << 26;
const CLASSES: u64 = RECORDS_SPANS - 1;

impl Interest {
    #[inline]
    pub(in crate::keyspace) fn load(&self) -> Wanted {
        Wanted(self.0.load(Ordering::Relaxed))
    }

    /// Chooses the events that are published.
    pub fn set_classes(&self, classes: EventClass) {
        let change = |before: u64| Some(before & !CLASSES | u64::from(classes.bits()));
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
    }

    /// Sets whether any client keeps copies of keys and wants to know when they change.
    pub fn set_tracking(&self, is_on: bool) {
        match is_on {
            true => self.0.fetch_or(TRACKING, Ordering::Relaxed),
            false => self.0.fetch_and(!TRACKING, Ordering::Relaxed),
        };
    }

    /// Whether any client keeps copies of keys.
    pub fn is_tracked(&self) -> bool {
        self.load().tracking()
    }

    /// Sets whether any client waits for a key.
    pub(in crate::keyspace) fn set_blocked(&self, is_any: bool) {
        match is_any {
            true => self.0.fetch_or(BLOCKED, Ordering::Relaxed),
            false => self.0.fetch_and(!BLOCKED, Ordering::Relaxed),
        };
    }

    /// Sets whether a request reads keys one after the other, and wants to know which ones change.
    pub(in crate::keyspace) fn set_surveyed(&self, is_any: bool) {
        match is_any {
            true => self.0.fetch_or(SURVEYED, Ordering::Relaxed),
            false => self.0.fetch_and(!SURVEYED, Ordering::Relaxed),
        };
    }

    pub(in crate::keyspace) fn set_journal(&self, is_on: bool) {
        match is_on {
            true => self.0.fetch_or(JOURNAL, Ordering::Relaxed),
            false => self.0.fetch_and(!JOURNAL, Ordering::Relaxed),
        };
    }

    /// Sets whether it is recorded which expiries a request asks for as spans of time, and which keys it
    /// writes (`with_keys`).
    pub fn record(&self, with_keys: bool) {
        let kept = self.0.load(Ordering::Relaxed) & !(RECORDS_KEYS | RECORDS_SPANS);
        let keys = if with_keys { RECORDS_KEYS } else { 0 };
        self.0.store(kept | keys | RECORDS_SPANS, Ordering::Relaxed);
    }

    /// Takes over what the clients of another keyspace want to know. Nothing is recorded, and no log and no
    /// waiting client follows.
    pub fn follow(&self, other: &Interest) {
        let wanted = other.0.load(Ordering::Relaxed) & (CLASSES | TRACKING);
        self.0.store(wanted, Ordering::Relaxed);
    }

    pub(in crate::keyspace) fn add_watched(&self) {
        self.0.fetch_add(ONE_WATCHED, Ordering::Relaxed);
    }

    pub(in crate::keyspace) fn remove_watched(&self) {
        self.0.fetch_sub(ONE_WATCHED, Ordering::Relaxed);
    }
}

/// What clients and the log wanted to know when a transaction began.
#[derive(Clone, Copy, Debug)]
pub(in crate::keyspace) struct Wanted(u64);

impl Wanted {
    /// Whether a client or the log wants to know anything. Clients that wait for keys do not count: a new
    /// string concerns them only where it replaces another value.
    #[inline(always)]
    pub(in crate::keyspace) fn any(self) -> bool {
        self.0 & !(BLOCKED | RECORDS_SPANS) != 0
    }

    /// The interest of clients alone, without the log.
    pub(in crate::keyspace) fn without_journal(self) -> Wanted {
        Wanted(self.0 & !JOURNAL)
    }

    /// Whether a transaction must note changes of keys. Events other than `new` need no note.
    #[inline(always)]
    pub(in crate::keyspace) fn changes(self) -> bool {
        self.0 & (TRACKING | JOURNAL | BLOCKED | SURVEYED | RECORDS_KEYS | u64::from(EventClass::NEW.bits()))
            != 0
            || self.0 >= ONE_WATCHED
    }

    pub(in crate::keyspace) fn tracking(self) -> bool {
        self.0 & TRACKING != 0
    }

    /// Whether there are surveys.
    pub(in crate::keyspace) fn surveyed(self) -> bool {
        self.0 & SURVEYED != 0
    }

    /// Whether it is recorded which keys are written.
    pub(in crate::keyspace) fn records_keys(self) -> bool {
        self.0 & RECORDS_KEYS != 0
    }

    /// Whether it is recorded which expiries are asked for as spans of time.
    #[inline(always)]
    pub(in crate::keyspace) fn records_spans(self) -> bool {
        self.0 & RECORDS_SPANS != 0
    }

    /// Whether clients wait for keys.
    pub(in crate::keyspace) fn blocked(self) -> bool {
        self.0 & BLOCKED != 0
    }

    /// Whether changes are logged.
    #[inline(always)]
    pub(in crate::keyspace) fn journal(self) -> bool {
        self.0 & JOURNAL != 0
    }

    /// The same where a key is watched.
    pub(in crate::keyspace) fn with_watched(self) -> Wanted {
        if self.watched() { self } else { Wanted(self.0 + ONE_WATCHED) }
    }

    pub(in crate::keyspace) fn watched(self) -> bool {
        self.0 >= ONE_WATCHED
    }

    /// Whether events of a class are published.
    #[inline(always)]
    pub(in crate::keyspace) fn event(self, class: EventClass) -> bool {
        const WAYS: u64 = EventClass::AS_KEYSPACE.and(EventClass::AS_KEYEVENT).bits() as u64;
        self.0 & u64::from(class.bits()) != 0 && self.0 & WAYS != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_need_both_a_class_and_a_channel() {
        let interest = Interest::default();
        interest.set_classes(EventClass::STRING);
        assert!(!interest.load().event(EventClass::STRING));
        interest.set_classes(EventClass::STRING.and(EventClass::AS_KEYEVENT));
        assert!(interest.load().event(EventClass::STRING));
        assert!(!interest.load().event(EventClass::GENERIC));
        assert!(!interest.load().changes());
        interest.add_watched();
        assert!(interest.load().changes() && interest.load().event(EventClass::STRING));
        interest.remove_watched();
        assert!(!interest.load().changes());
    }
}
