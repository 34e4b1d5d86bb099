//! The lock lens: who holds which lock, whose attempts failed, and which locks are misused.
//!
//! The keyspace marks keys that act as locks and sends news of what happens to them. The lens collects the
//! news, within a fixed bound of memory. Each [`Lock`] knows its present holder and the last ones, and judges
//! each command on it by its [`cause`]: [`lock`] follows the story, [`rules`] lists the kinds of misuse. A
//! string's value is never kept, only its digest; a hash's field is kept, cut if it is long.
//!
//! Under load some news are dropped, so missing news prove nothing.

mod cause;
mod lock;
mod rules;

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::keyspace::fencing::Fencing;
use crate::keyspace::{LockChange, LockNews, Token};
pub use cause::Cause;
use lock::Wrong;
pub use lock::{End, Ended, Entered, Lock, Refused, Tenure};
pub use rules::{Finding, Rule};

/// Locks are kept in this number of segments, each behind a mutex of its own…
const SEGMENTS: usize = 32;
/// … of this number of locks each.
const SEGMENT_LOCKS: usize = 128;
/// Locks whose keys are longer are not followed.
const KEY_BYTES_MAX: usize = 1024;
/// Findings that are kept.
const FINDINGS_MAX: usize = 128;
/// Findings of different keys or rules that are logged; further ones are only in LOCKS LOG.
const LOGGED_MAX: usize = 1024;

/// All locks that are followed.
#[derive(Debug)]
pub struct Lens {
    segments: [Mutex<Segment>; SEGMENTS],
    findings: Mutex<Findings>,
    /// The fencing numbers of the keyspace's locks.
    fencing: Arc<Fencing>,
    counters: Counters,
}

/// The locks whose keys' hashes belong to one mutex.
#[derive(Debug, Default)]
struct Segment {
    /// The hashes of the locks' keys, in the order of the locks.
    hashes: Vec<u64>,
    locks: Vec<Lock>,
    /// Where to look first for one to forget.
    hand: usize,
}

#[derive(Debug, Default)]
struct Findings {
    last_id: u64,
    newest: VecDeque<Finding>,
    by_rule: [u64; Rule::ALL.len()],
    /// The keys and rules that were logged.
    logged: HashSet<(usize, Box<[u8]>, u8)>,
}

/// Counts since the start or the last reset.
#[derive(Debug, Default)]
struct Counters {
    taken: AtomicU64,
    refused: AtomicU64,
    released: AtomicU64,
    expired: AtomicU64,
    reentered: AtomicU64,
    woken: AtomicU64,
}

/// How many locks there are, and what happened to them since the start or the last reset.
#[derive(Clone, Copy, Debug)]
pub struct LockStats {
    /// Locks that are followed.
    pub followed: usize,
    /// Locks that a client holds now.
    pub held: usize,
    /// How often one was taken.
    pub taken: u64,
    /// How many attempts to take one failed.
    pub refused: u64,
    /// How often one was released, by its holder or by another client that knew its value.
    pub released: u64,
    /// How often one expired.
    pub expired: u64,
    /// How often a holder took a lock again that it already held.
    pub reentered: u64,
    /// How often a release has woken a client by a list.
    pub woken: u64,
    /// The number of findings of each rule, in the order of [`Rule::ALL`].
    pub findings: [u64; Rule::ALL.len()],
}

impl Lens {
    /// Locks that are followed at the same time, at most.
    pub const MAX: usize = SEGMENTS * SEGMENT_LOCKS;

    /// A lens without locks. Holders that have no fencing number of their own get one of these.
    pub fn new(fencing: Arc<Fencing>) -> Lens {
        Lens {
            segments: std::array::from_fn(|_| Mutex::default()),
            findings: Mutex::default(),
            fencing,
            counters: Counters::default(),
        }
    }

    /// Whether what happened to a lock is followed.
    pub fn follows(news: &LockNews) -> bool {
        news.key.len() <= KEY_BYTES_MAX
    }

    /// Follows what a client's command has done to a lock.
    pub fn follow(&self, news: &LockNews, cause: &Cause<'_>) {
        if !Lens::follows(news) {
            return;
        }
        let mut segment = self.segment(news.hash).lock();
        if let Some(finding) = self.follow_in(&mut segment, news, cause) {
            drop(segment);
            self.note(finding);
        }
    }

    fn follow_in(&self, segment: &mut Segment, news: &LockNews, cause: &Cause<'_>) -> Option<Finding> {
        let found = segment.find(news.hash, news.database, &news.key);
        if let Some(at) = found {
            self.settle(&mut segment.locks[at], news.at_ms);
        }
        match news.change {
            LockChange::Taken { token, expires_at_ms } => {
                self.take(segment, found, news, cause, token, expires_at_ms);
                return None;
            }
            // A script that takes a lock gets the token from its client. A field of its own is a counter.
            LockChange::TakenAsHash { token, .. } if cause.is_script && !cause.shows(token.digest) => {
                found.into_iter().for_each(|at| segment.forget(at));
                return None;
            }
            LockChange::TakenAsHash { token, expires_at_ms, by } => {
                let cause = Cause { command: by, ..cause.clone() };
                self.take(segment, found, news, &cause, token, expires_at_ms);
                return None;
            }
            _ => {}
        }
        let at = found?;
        let is_lock = match news.change {
            LockChange::Written { .. } => cause.rewrites(),
            change => change != LockChange::Changed,
        };
        if !is_lock {
            segment.forget(at);
            return None;
        }
        let lock = &mut segment.locks[at];
        let (refused, woken, depth) = (lock.refused, lock.woken, lock.depth());
        let wrong = lock.follow(news, cause, self.next_fence());
        let counters = &self.counters;
        counters.refused.fetch_add(lock.refused - refused, Ordering::Relaxed);
        counters.woken.fetch_add(lock.woken - woken, Ordering::Relaxed);
        let has_reentered = lock.depth() > depth;
        counters.reentered.fetch_add(u64::from(has_reentered), Ordering::Relaxed);
        let was_released = news.change == LockChange::Freed && lock.was_released();
        counters.released.fetch_add(u64::from(was_released), Ordering::Relaxed);
        wrong.map(|wrong| lock_finding(lock, wrong, news.at_ms))
    }

    fn take(
        &self,
        segment: &mut Segment,
        found: Option<usize>,
        news: &LockNews,
        cause: &Cause<'_>,
        token: Token,
        expires_at_ms: Option<u64>,
    ) {
        self.counters.taken.fetch_add(1, Ordering::Relaxed);
        let next = Tenure::new(news, cause, self.next_fence(), token, expires_at_ms);
        match found {
            Some(at) => segment.locks[at].pass_to(news, cause, next, End::Unseen),
            None => segment.add(Lock::new(news, cause, next)),
        }
    }

    /// Forgets all locks, after more has happened to them than is known. Each is followed again when it is
    /// taken the next time.
    pub fn forget_all(&self) {
        for segment in &self.segments {
            *segment.lock() = Segment::default();
        }
    }

    /// Notes that a client has left. Its locks without an expiry are never released.
    pub fn leave(&self, client: u64, now_ms: u64) {
        for segment in &self.segments {
            let mut findings = Vec::new();
            for lock in &mut segment.lock().locks {
                let holds = lock.is_held() && lock.tenure.holder.id == client;
                // A time stamp for a value is an expiry that clients agree upon.
                let is_for_ever = lock.tenure.expires_at_ms.is_none() && lock.tenure.token.stamp_ms.is_none();
                if holds && is_for_ever && lock.tenure.tell_once(Rule::NoExpiry) {
                    let clients = vec![Arc::clone(&lock.tenure.holder)];
                    findings.push(lock_finding(lock, Wrong { rule: Rule::NoExpiry, clients }, now_ms));
                }
            }
            findings.into_iter().for_each(|finding| self.note(finding));
        }
    }

    /// Returns a copy of a lock, if it is followed.
    pub fn get(&self, hash: u64, database: usize, key: &[u8], now_ms: u64) -> Option<Lock> {
        let mut segment = self.segment(hash).lock();
        let at = segment.find(hash, database, key)?;
        self.settle(&mut segment.locks[at], now_ms);
        Some(segment.locks[at].clone())
    }

    /// The locks that are held now and for which `is_wanted` returns true.
    pub fn held(&self, now_ms: u64, mut is_wanted: impl FnMut(&Lock) -> bool) -> Vec<Lock> {
        let mut held = Vec::new();
        for segment in &self.segments {
            for lock in &mut segment.lock().locks {
                self.settle(lock, now_ms);
                if lock.is_held() && is_wanted(lock) {
                    held.push(lock.clone());
                }
            }
        }
        held
    }

    /// The newest findings, the last one first.
    pub fn findings(&self, count: usize) -> Vec<Finding> {
        self.findings.lock().newest.iter().take(count).cloned().collect()
    }

    /// Returns the counts so far.
    pub fn stats(&self, now_ms: u64) -> LockStats {
        let (mut followed, mut held) = (0, 0);
        for segment in &self.segments {
            let mut segment = segment.lock();
            followed += segment.locks.len();
            for lock in &mut segment.locks {
                self.settle(lock, now_ms);
                held += usize::from(lock.is_held());
            }
        }
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LockStats {
            followed,
            held,
            taken: count(&self.counters.taken),
            refused: count(&self.counters.refused),
            released: count(&self.counters.released),
            expired: count(&self.counters.expired),
            reentered: count(&self.counters.reentered),
            woken: count(&self.counters.woken),
            findings: self.findings.lock().by_rule,
        }
    }

    /// Forgets the findings and begins to count anew. Locks stay known.
    pub fn reset(&self) {
        let mut findings = self.findings.lock();
        *findings = Findings { last_id: findings.last_id, ..Findings::default() };
        let Counters { taken, refused, released, expired, reentered, woken } = &self.counters;
        for counter in [taken, refused, released, expired, reentered, woken] {
            counter.store(0, Ordering::Relaxed);
        }
    }

    fn settle(&self, lock: &mut Lock, now_ms: u64) {
        if lock.settle(now_ms) {
            self.counters.expired.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn note(&self, mut finding: Finding) {
        let mut findings = self.findings.lock();
        findings.last_id += 1;
        finding.id = findings.last_id;
        findings.by_rule[finding.rule as usize] += 1;
        let logged = (finding.database, finding.key.clone(), finding.rule as u8);
        if findings.logged.len() < LOGGED_MAX && findings.logged.insert(logged) {
            let clients: Vec<String> = finding.clients.iter().map(|who| who.to_string()).collect();
            tracing::info!(
                "Lock lens: {} on key \"{}\" by {}. {} See LOCKS LOG for details.",
                finding.rule.name(),
                finding.key.escape_ascii(),
                clients.join(", "),
                finding.rule.hint()
            );
        }
        if findings.newest.len() == FINDINGS_MAX {
            findings.newest.pop_back();
        }
        findings.newest.push_front(finding);
    }

    fn next_fence(&self) -> u64 {
        self.fencing.next()
    }

    fn segment(&self, hash: u64) -> &Mutex<Segment> {
        &self.segments[hash as usize % SEGMENTS]
    }
}

impl Segment {
    fn find(&self, hash: u64, database: usize, key: &[u8]) -> Option<usize> {
        let same = self.hashes.iter().enumerate().filter(|(_, other)| **other == hash);
        same.map(|(at, _)| at).find(|at| self.locks[*at].database == database && *self.locks[*at].key == *key)
    }

    fn add(&mut self, lock: Lock) {
        if self.locks.len() == SEGMENT_LOCKS {
            let at = self.least_wanted();
            self.forget(at);
        }
        self.hashes.push(lock.hash);
        self.locks.push(lock);
    }

    fn forget(&mut self, at: usize) {
        self.hashes.swap_remove(at);
        self.locks.swap_remove(at);
    }

    /// The index of the lock to forget. Of the next few locks in turn it is a free one, or else one without
    /// failed attempts, or else the one that was not used for the longest time.
    fn least_wanted(&mut self) -> usize {
        const LOOKED_AT: usize = 8;
        let turn = (self.hand..self.hand + LOOKED_AT).map(|at| at % self.locks.len());
        self.hand += LOOKED_AT;
        let wanted = |at: &usize| {
            let lock = &self.locks[*at];
            (lock.is_held(), lock.refused > 0, lock.last_ms())
        };
        turn.min_by_key(wanted).unwrap_or(0)
    }
}

fn lock_finding(lock: &Lock, wrong: Wrong, at_ms: u64) -> Finding {
    Finding {
        id: 0,
        rule: wrong.rule,
        database: lock.database,
        key: lock.key.clone(),
        at_ms,
        clients: wrong.clients,
        timeline: lock.timeline(),
    }
}
