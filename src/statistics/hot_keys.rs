//! The keys that take most of the server's time, or of its network (HOTKEYS).
//!
//! A client starts a session, in which each command is charged to the keys that it names, in equal parts.
//! Only one session is there at a time, and while none is active nothing is noted. What is measured is added
//! up exactly for as many keys as a [`Ranking`] holds. When it is full, only those stay that have taken most.
//! A key that is forgotten and comes again begins anew: no key is ever said to have taken more than it has.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// Keys that a ranking holds for each one that is reported. Redis: the buckets of its sketch.
const KEYS_HELD: usize = 100;
/// Keys that stay for each one that is reported when a ranking is full. Redis: those of its heap.
const KEYS_KEPT: usize = 10;
/// Bytes of all the keys that a ranking holds, and of those that stay.
const BYTES_HELD: usize = 16 << 20;
const BYTES_KEPT: usize = BYTES_HELD / 2;
/// Bytes of a key at most. A longer one is not ranked.
const KEY_BYTES_MAX: usize = 64 << 10;

/// The session that is active, or was the last one.
#[derive(Debug, Default)]
pub struct HotKeys {
    is_active: AtomicBool,
    last: Mutex<Option<Measurement>>,
}

/// The options of HOTKEYS START.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// Whether keys are ranked by the time that they take.
    pub by_time: bool,
    /// Whether they are ranked by their bytes.
    pub by_bytes: bool,
    /// How many are reported.
    pub count: usize,
    /// After how many milliseconds it ends by itself, if it does.
    pub lasts_ms: Option<u64>,
    /// One in this number of commands is ranked.
    pub ratio: u32,
}

/// Why a client cannot have what it asks for: a session is active.
#[derive(Clone, Copy, Debug)]
pub struct IsActive;

/// The results of a session.
#[derive(Clone, Debug)]
pub struct Report {
    /// The options that it was started with.
    pub settings: Settings,
    /// Whether it goes on.
    pub is_active: bool,
    /// When it began, in milliseconds since 1970.
    pub began_ms: u64,
    /// How long it lasted, or has lasted so far.
    pub lasted_ms: u64,
    /// Processor time of the server when it began, in the program and in the system.
    pub processor_ms: [u64; 2],
    /// The time of all commands with keys, ranked or not, in nanoseconds.
    pub nanos: u64,
    /// Bytes of all commands with keys and of their replies.
    pub bytes: u64,
    /// Bytes of the commands that were ranked.
    pub bytes_ranked: u64,
    /// The keys that took most time, with nanoseconds.
    pub by_time: Vec<(Box<[u8]>, u64)>,
    /// The keys with most bytes.
    pub by_bytes: Vec<(Box<[u8]>, u64)>,
}

#[derive(Debug)]
struct Measurement {
    settings: Settings,
    began_ms: u64,
    /// How long it lasted, once it is over.
    lasted_ms: Option<u64>,
    processor_ms: [u64; 2],
    nanos: u64,
    bytes: u64,
    by_time: Ranking,
    by_bytes: Ranking,
}

/// The amounts that keys have used.
#[derive(Debug)]
struct Ranking {
    taken: HashMap<Box<[u8]>, u64>,
    total: u64,
    /// Bytes of the keys.
    held_bytes: usize,
    keys_reported: usize,
}

impl HotKeys {
    /// Whether commands are to be noted.
    #[inline]
    pub fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Relaxed)
    }

    /// Starts a session, and forgets the one before.
    pub fn start(&self, settings: Settings, now_ms: u64, processor_ms: [u64; 2]) -> Result<(), IsActive> {
        let mut last = self.at(now_ms);
        if self.is_active() {
            return Err(IsActive);
        }
        *last = Some(Measurement {
            settings,
            began_ms: now_ms,
            lasted_ms: None,
            processor_ms,
            nanos: 0,
            bytes: 0,
            by_time: Ranking::new(settings.count),
            by_bytes: Ranking::new(settings.count),
        });
        self.is_active.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Ends the session; returns whether one was active. What it has measured stays.
    pub fn stop(&self, now_ms: u64) -> bool {
        let mut last = self.at(now_ms);
        let was_active = self.is_active.swap(false, Ordering::Relaxed);
        if let Some(ended) = last.as_mut().filter(|_| was_active) {
            ended.lasted_ms = Some(now_ms.saturating_sub(ended.began_ms));
        }
        was_active
    }

    /// Forgets what was measured.
    pub fn reset(&self, now_ms: u64) -> Result<(), IsActive> {
        let mut last = self.at(now_ms);
        if self.is_active() {
            return Err(IsActive);
        }
        *last = None;
        Ok(())
    }

    /// The results so far, unless they were reset.
    pub fn report(&self, now_ms: u64) -> Option<Report> {
        self.at(now_ms).as_ref().map(|last| last.report(now_ms))
    }

    /// Notes a command: its keys, how long it took, and how many bytes it and its reply have.
    #[cold]
    pub fn note<'k>(
        &self,
        keys: impl Iterator<Item = &'k [u8]> + Clone,
        nanos: u64,
        bytes: u64,
        now_ms: u64,
    ) {
        let count = keys.clone().count() as u64;
        let mut last = self.at(now_ms);
        let Some(current) = last.as_mut().filter(|_| count > 0 && self.is_active()) else { return };
        current.nanos = current.nanos.saturating_add(nanos);
        current.bytes = current.bytes.saturating_add(bytes);
        let Settings { by_time, by_bytes, ratio, .. } = current.settings;
        if ratio > 1 && fastrand::u32(..ratio) != 0 {
            return;
        }
        for key in keys {
            if by_time {
                current.by_time.add(key, nanos / count);
            }
            if by_bytes {
                current.by_bytes.add(key, bytes / count);
            }
        }
    }

    /// The session, which ends here if its time is over.
    fn at(&self, now_ms: u64) -> parking_lot::MutexGuard<'_, Option<Measurement>> {
        let mut guard = self.last.lock();
        if let Some(last) = guard.as_mut()
            && let Some(lasts_ms) = last.settings.lasts_ms.filter(|_| last.lasted_ms.is_none())
            && now_ms.saturating_sub(last.began_ms) >= lasts_ms
        {
            last.lasted_ms = Some(lasts_ms);
            self.is_active.store(false, Ordering::Relaxed);
        }
        guard
    }
}

impl Measurement {
    fn report(&self, now_ms: u64) -> Report {
        Report {
            settings: self.settings,
            is_active: self.lasted_ms.is_none(),
            began_ms: self.began_ms,
            lasted_ms: self.lasted_ms.unwrap_or(now_ms.saturating_sub(self.began_ms)),
            processor_ms: self.processor_ms,
            nanos: self.nanos,
            bytes: self.bytes,
            bytes_ranked: self.by_bytes.total,
            by_time: self.by_time.most(self.settings.count),
            by_bytes: self.by_bytes.most(self.settings.count),
        }
    }
}

impl Ranking {
    fn new(keys_reported: usize) -> Ranking {
        Ranking { taken: HashMap::new(), total: 0, held_bytes: 0, keys_reported }
    }

    fn add(&mut self, key: &[u8], amount: u64) {
        self.total = self.total.saturating_add(amount);
        if let Some(taken) = self.taken.get_mut(key) {
            *taken = taken.saturating_add(amount);
            return;
        }
        if key.len() > KEY_BYTES_MAX {
            return;
        }
        let has_room = self.taken.len() < self.keys_reported * KEYS_HELD;
        if !has_room || self.held_bytes + key.len() > BYTES_HELD {
            self.forget_least();
        }
        self.held_bytes += key.len();
        self.taken.insert(key.into(), amount);
    }

    /// Forgets all keys but those with the highest counts.
    fn forget_least(&mut self) {
        let most = self.most(self.keys_reported * KEYS_KEPT);
        self.taken.clear();
        self.held_bytes = 0;
        for (key, taken) in most {
            if self.held_bytes + key.len() <= BYTES_KEPT {
                self.held_bytes += key.len();
                self.taken.insert(key, taken);
            }
        }
    }

    /// The `count` keys with the highest counts, ordered by name where these are equal.
    fn most(&self, count: usize) -> Vec<(Box<[u8]>, u64)> {
        let mut all: Vec<(&[u8], u64)> = self.taken.iter().map(|(key, taken)| (&**key, *taken)).collect();
        all.sort_unstable_by(|(one, taken), (other, others)| others.cmp(taken).then(one.cmp(other)));
        all.into_iter().take(count).map(|(key, taken)| (key.into(), taken)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Settings = Settings { by_time: true, by_bytes: true, count: 2, lasts_ms: None, ratio: 1 };

    fn names(ranked: &[(Box<[u8]>, u64)]) -> Vec<(&str, u64)> {
        ranked.iter().map(|(key, taken)| (std::str::from_utf8(key).unwrap(), *taken)).collect()
    }

    #[test]
    fn keys_are_charged_in_equal_parts() {
        let hot_keys = HotKeys::default();
        hot_keys.note([&b"before"[..]].into_iter(), 1, 1, 0);
        assert!(hot_keys.report(0).is_none() && !hot_keys.stop(0));
        hot_keys.start(SETTINGS, 1000, [0; 2]).unwrap();
        hot_keys.note([&b"a"[..], b"b", b"a"].into_iter(), 300, 91, 1001);
        hot_keys.note([].into_iter(), 300, 91, 1001);
        hot_keys.note([&b"c"[..]].into_iter(), 500, 1, 1002);
        let report = hot_keys.report(1005).unwrap();
        assert_eq!(names(&report.by_time), [("c", 500), ("a", 200)]);
        assert_eq!(names(&report.by_bytes), [("a", 60), ("b", 30)]);
        assert_eq!((report.nanos, report.bytes, report.bytes_ranked), (800, 92, 91));
        assert_eq!((report.is_active, report.lasted_ms), (true, 5));
        assert!(hot_keys.start(SETTINGS, 1006, [0; 2]).is_err() && hot_keys.reset(1006).is_err());
        assert!(hot_keys.stop(1007) && !hot_keys.stop(1008));
        hot_keys.note([&b"d"[..]].into_iter(), 900, 900, 1009);
        let report = hot_keys.report(2000).unwrap();
        assert_eq!((report.is_active, report.lasted_ms, report.nanos), (false, 7, 800));
        assert!(hot_keys.reset(2000).is_ok() && hot_keys.report(2000).is_none());
    }

    #[test]
    fn a_session_ends_when_its_time_is_over() {
        let hot_keys = HotKeys::default();
        hot_keys.start(Settings { lasts_ms: Some(1000), ..SETTINGS }, 5000, [0; 2]).unwrap();
        hot_keys.note([&b"a"[..]].into_iter(), 1, 1, 5999);
        assert!(hot_keys.is_active());
        hot_keys.note([&b"a"[..]].into_iter(), 1, 1, 6000);
        assert!(!hot_keys.is_active() && !hot_keys.stop(6000));
        let report = hot_keys.report(9000).unwrap();
        assert_eq!((report.is_active, report.lasted_ms, report.nanos), (false, 1000, 1));
    }

    #[test]
    fn a_ranking_holds_so_many_keys_and_so_many_bytes() {
        let mut ranking = Ranking::new(2);
        for number in 0..10_000_u64 {
            ranking.add(format!("rare:{number}").as_bytes(), 1);
            ranking.add(b"hot", 1);
            ranking.add(if number % 3 == 0 { b"warm" } else { b"mild" }, 1);
            assert!(ranking.taken.len() <= 200);
        }
        let most = ranking.most(3);
        assert_eq!(names(&most), [("hot", 10_000), ("mild", 6666), ("warm", 3334)]);
        assert_eq!(ranking.total, 30_000);
        for number in 0..1000 {
            ranking.add(format!("{number:060000}").as_bytes(), 1);
            assert!(ranking.held_bytes <= BYTES_HELD);
        }
        ranking.add(&[b'x'; KEY_BYTES_MAX + 1], 1 << 40);
        assert_eq!(ranking.most(1)[0].1, 10_000);
        let held: usize = ranking.taken.keys().map(|key| key.len()).sum();
        assert_eq!(ranking.held_bytes, held);
    }

    #[test]
    fn some_commands_are_ranked_and_all_are_added_up() {
        let hot_keys = HotKeys::default();
        hot_keys.start(Settings { ratio: 4, ..SETTINGS }, 0, [0; 2]).unwrap();
        for _ in 0..10_000 {
            hot_keys.note([&b"a"[..]].into_iter(), 1, 1, 0);
        }
        let report = hot_keys.report(0).unwrap();
        assert_eq!((report.nanos, report.bytes), (10_000, 10_000));
        assert!((2000..3000).contains(&report.bytes_ranked), "{}", report.bytes_ranked);
    }
}
