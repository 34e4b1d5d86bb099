//! The lock lens: who holds which lock, whose attempts failed, and which locks are misused.
//!
//! The keyspace marks keys that act as locks and sends news of what happens to them. The lens collects the
//! news, within a fixed bound of memory. Each [`Lock`] knows its present holder and the last ones, and judges
//! each command on it by its [`cause`]: [`lock`] follows the story, [`rules`] lists the kinds of misuse. A
//! string's value is never kept, only its digest; a hash's field is kept, cut if it is long.
//!
//! Under load some news are dropped, so missing news prove nothing.

mod advice;
mod cause;
mod evidence;
mod findings;
mod graph;
mod lock;
mod lock_use;
mod metrics;
mod names;
mod orders;
mod rules;
mod script;
mod tenure;
mod timeline;
mod waits;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::Mutex;

use crate::clients::Who;
use crate::clock;
use crate::keyspace::fencing::Fencing;
use crate::keyspace::{KeptLock, LockChange, LockNews, Token};
use crate::resp::Request;
pub(crate) use cause::Cause;
use cause::{shows, shows_part};
pub(crate) use findings::Finding;
use findings::{Findings, Volume};
pub(crate) use graph::{GraphLock, lines_of, name_of};
use lock::Wrong;
pub(crate) use lock::{Lock, Refused};
pub(crate) use lock_use::LockUse;
use metrics::Metrics;
pub(crate) use metrics::{Histogram, PatternCounts, PatternMetrics};
pub(crate) use names::speaks_of_lock;
use orders::Orders;
pub(crate) use orders::is_of_one_task;
pub(crate) use rules::Rule;
pub(crate) use script::Script;
pub(crate) use tenure::{End, Tenure};
pub(crate) use waits::Wait;
use waits::Waits;

/// Locks are kept in this number of segments, each behind a mutex of its own…
const SEGMENTS: usize = 32;
/// … of this number of locks each.
const SEGMENT_LOCKS: usize = 128;
/// Locks whose keys are longer are not followed.
const KEY_BYTES_MAX: usize = 1024;

/// All locks that are followed.
#[derive(Debug)]
pub struct Lens {
    /// Made for the first lock.
    segments: OnceLock<Box<[Mutex<Segment>; SEGMENTS]>>,
    findings: Mutex<Findings>,
    /// Whether some findings may be withdrawn.
    has_claims: AtomicBool,
    /// The fencing numbers of the keyspace's locks.
    fencing: Arc<Fencing>,
    counters: Counters,
    metrics: Metrics,
    /// The clients that wait for locks.
    waits: Waits,
    /// The orders in which clients take locks.
    orders: Mutex<Orders>,
}

/// The locks whose keys' hashes belong to one mutex.
#[derive(Debug, Default)]
struct Segment {
    /// The hashes of the locks' keys, in the order of the locks.
    hashes: Vec<u64>,
    /// What each was worth when something happened to it the last time.
    worths: Vec<u8>,
    /// Who has had each the last time.
    owners: Vec<Owner>,
    locks: Vec<Lock>,
    /// Where to look first for one to forget.
    hand: usize,
}

/// Who has a lock: enough to find the locks of a client among all.
#[derive(Clone, Copy, Debug)]
struct Owner {
    client: u64,
    token: u64,
}

/// A command that writes a lock, and its client.
#[derive(Clone, Copy, Debug)]
pub struct Writer {
    /// The number of the client.
    pub client: u64,
    /// Whether the command is one of EXEC, and the client watched the key.
    pub is_watching: bool,
    /// What the command means for a lock.
    pub means: LockUse,
}

/// A lock that counts as held.
#[derive(Clone, Debug)]
pub struct Held {
    since_ms: u64,
    hash: u64,
    /// The number of the key's database.
    pub database: usize,
    /// The key that acts as a lock.
    pub key: Box<[u8]>,
    /// The field that is the lock, if it is one of a hash.
    pub field: Option<Box<[u8]>>,
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
            segments: OnceLock::new(),
            findings: Mutex::default(),
            has_claims: AtomicBool::new(false),
            fencing,
            counters: Counters::default(),
            metrics: Metrics::default(),
            waits: Waits::default(),
            orders: Mutex::default(),
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
        let found = self.follow_in(&mut self.segment(news.hash).lock(), news, cause);
        if let Some((finding, volume)) = found {
            self.note(finding, volume);
        }
    }

    fn follow_in(
        &self,
        segment: &mut Segment,
        news: &LockNews,
        cause: &Cause<'_>,
    ) -> Option<(Finding, Option<Volume>)> {
        let found = segment.find(news.hash, news.database, &news.key);
        if let Some(at) = found {
            self.catch_up(&mut segment.locks[at], news.at_ms);
        }
        let taken = match news.change {
            LockChange::Taken { token, expires_at_ms } => Some((token, expires_at_ms, cause.command)),
            LockChange::TakenInSteps { token, expires_at_ms, by } => Some((token, Some(expires_at_ms), by)),
            LockChange::TakenAsHash { token, expires_at_ms, by }
            | LockChange::TakenAsSet { token, expires_at_ms, by } => Some((token, expires_at_ms, by)),
            LockChange::Renewed { token, expires_at_ms } => Some((token, Some(expires_at_ms), cause.command)),
            LockChange::FieldTaken { token, expires_at_ms } => Some((token, expires_at_ms, cause.command)),
            _ => None,
        };
        if let Some((token, expires_at_ms, command)) = taken {
            let cause = Cause { command, ..cause.clone() };
            return self.take(segment, found, news, &cause, token, expires_at_ms);
        }
        let at = found?;
        if news.change == LockChange::Changed {
            segment.forget(at);
            return None;
        }
        let lock = &mut segment.locks[at];
        let (refused, woken, depth) = (lock.refused, lock.woken, lock.depth());
        if let Some(fence) = news.fence {
            lock.tenure.fence = fence;
        }
        let wrong = lock.follow(news, cause, &|| self.next_fence());
        segment.worths[at] = lock.worth(news.at_ms);
        segment.owners[at] = Owner::of(lock);
        let counters = &self.counters;
        counters.refused.fetch_add(lock.refused - refused, Ordering::Relaxed);
        counters.woken.fetch_add(lock.woken - woken, Ordering::Relaxed);
        let has_reentered = lock.depth() > depth;
        counters.reentered.fetch_add(u64::from(has_reentered), Ordering::Relaxed);
        let was_released = news.change == LockChange::Freed && lock.was_released();
        counters.released.fetch_add(u64::from(was_released), Ordering::Relaxed);
        if was_released && self.has_claims.load(Ordering::Relaxed) {
            self.withdraw(&lock.tenure.holder);
            self.withdraw(&cause.who);
        }
        wrong.map(|wrong| lock_finding(lock, wrong, news.at_ms))
    }

    /// Whether a key is no lock after all, by the command that changed it. Then the caller removes its mark
    /// and [forgets](Self::forget) it. `request` is the request that runs the script that called the command,
    /// and `script` returns which one that is.
    pub fn is_no_lock(
        &self,
        news: &LockNews,
        writer: Writer,
        request: Option<Request<'_>>,
        script: impl FnOnce() -> Option<Script>,
    ) -> bool {
        let is_shown = |request: Request<'_>, token: Token| shows(request, token.digest) == Some(true);
        let shows_value = |request: Request<'_>, token: Token| {
            is_shown(request, token) || news.value.as_ref().is_some_and(|value| shows_part(request, value))
        };
        match news.change {
            // What a script writes to come back after a while is a time.
            LockChange::Taken { token, expires_at_ms: Some(_) } | LockChange::TakenInSteps { token, .. }
                if request.is_some() && token.stamp_ms.is_some() && !names::speaks_of_lock(&news.key) =>
            {
                true
            }
            // A script that takes a lock gets the token from its client. A field of its own is a counter.
            LockChange::TakenInSteps { token, .. } if token.is_small_number => true,
            LockChange::TakenInSteps { token, .. }
            | LockChange::TakenAsHash { token, .. }
            | LockChange::TakenAsSet { token, .. } => {
                request.is_some_and(|request| !is_shown(request, token))
            }
            // The script has compared it if the client has sent it. What is no word is rather a session.
            LockChange::Renewed { token, .. } => {
                !token.is_word || !request.is_some_and(|request| shows_value(request, token))
            }
            LockChange::Written { .. } if !writer.means.has(LockUse::REWRITES) => true,
            LockChange::Written { before, token, .. }
                if before.is_small_number && token.is_small_number && before.digest != token.digest =>
            {
                let is_count = |lock: &Lock| lock.is_count(writer.client, writer.is_watching);
                self.with(news, is_count).unwrap_or(false)
            }
            // A script that takes a lock never writes over the token of another.
            LockChange::Written { before, token, .. } => request.is_some_and(|request| {
                let is_own = before.digest == token.digest || is_shown(request, before);
                let script = script().map(|script| script.id);
                !is_own && self.with(news, |lock| lock.is_taken_by(script)).unwrap_or(false)
            }),
            LockChange::Remade { token, .. } => {
                let has_sent = || request.is_some_and(|request| shows_value(request, token));
                !self.with(news, |lock| lock.is_remade(token, has_sent)).unwrap_or(false)
            }
            _ => false,
        }
    }

    /// Forgets a lock.
    pub fn forget(&self, news: &LockNews) {
        let mut segment = self.segment(news.hash).lock();
        if let Some(at) = segment.find(news.hash, news.database, &news.key) {
            segment.forget(at);
        }
    }

    fn with<R>(&self, news: &LockNews, look: impl FnOnce(&Lock) -> R) -> Option<R> {
        let segment = self.segment(news.hash).lock();
        segment.find(news.hash, news.database, &news.key).map(|at| look(&segment.locks[at]))
    }

    /// Follows that a lock was evicted.
    pub fn evict(&self, news: &LockNews) {
        let mut segment = self.segment(news.hash).lock();
        if let Some(at) = segment.find(news.hash, news.database, &news.key) {
            self.catch_up(&mut segment.locks[at], news.at_ms);
            segment.locks[at].lose(End::Evicted, news.at_ms);
        }
    }

    /// Follows that all keys of a database were removed, or all keys. Returns the hashes of the locks that
    /// were held.
    pub fn flush(&self, database: Option<usize>, now_ms: u64) -> Vec<u64> {
        let mut lost = Vec::new();
        for segment in self.segments() {
            for lock in &mut segment.lock().locks {
                self.catch_up(lock, now_ms);
                let is_meant = database.is_none_or(|database| lock.database == database);
                if is_meant && lock.lose(End::Flushed, now_ms) {
                    lost.push(lock.hash);
                }
            }
        }
        lost
    }

    /// Follows that two databases were exchanged.
    pub fn swap(&self, one: usize, other: usize) {
        for segment in self.segments() {
            for lock in &mut segment.lock().locks {
                lock.database = match lock.database {
                    database if database == one => other,
                    database if database == other => one,
                    database => database,
                };
            }
        }
        self.orders.lock().clear();
    }

    fn take(
        &self,
        segment: &mut Segment,
        found: Option<usize>,
        news: &LockNews,
        cause: &Cause<'_>,
        token: Token,
        expires_at_ms: Option<u64>,
    ) -> Option<(Finding, Option<Volume>)> {
        self.counters.taken.fetch_add(1, Ordering::Relaxed);
        let fence = news.fence.unwrap_or_else(|| self.next_fence());
        let next = Tenure::new(news, cause, fence, token, expires_at_ms);
        match found {
            Some(at) => {
                let lock = &mut segment.locks[at];
                let wrong = lock.judge_next(news, cause, &next);
                lock.pass_to(news, cause, next, End::Unseen);
                lock.note_name(cause);
                segment.worths[at] = lock.worth(news.at_ms);
                segment.owners[at] = Owner::of(lock);
                wrong.map(|wrong| lock_finding(lock, wrong, news.at_ms))
            }
            None => {
                let mut lock = Lock::new(news, cause, next, self.metrics.of(&news.key));
                lock.note_name(cause);
                segment.add(lock, news.at_ms);
                None
            }
        }
    }

    /// Forgets all locks, after more has happened to them than is known. Each is followed again when it is
    /// taken the next time.
    pub fn forget_all(&self) {
        for segment in self.segments() {
            let segment = std::mem::take(&mut *segment.lock());
            segment.locks.iter().for_each(Lock::let_go);
        }
        self.orders.lock().clear();
    }

    /// Notes that a client has left. Its locks without an expiry are never released. `is_meant` returns
    /// whether a key is to be followed.
    pub fn leave(&self, client: u64, now_ms: u64, is_meant: impl Fn(&[u8]) -> bool) {
        for segment in self.segments() {
            let mut findings = Vec::new();
            for lock in &mut segment.lock().locks {
                self.catch_up(lock, now_ms);
                if let Some(wrong) = lock.leave(client)
                    && is_meant(&lock.key)
                {
                    findings.push(lock_finding(lock, wrong, now_ms));
                }
            }
            findings.into_iter().for_each(|(finding, volume)| self.note(finding, volume));
        }
    }

    /// Returns a copy of a lock, if it is followed.
    pub fn get(&self, hash: u64, database: usize, key: &[u8], now_ms: u64) -> Option<Lock> {
        let mut segment = self.segment(hash).lock();
        let at = segment.find(hash, database, key)?;
        self.catch_up(&mut segment.locks[at], now_ms);
        Some(segment.locks[at].clone())
    }

    /// The locks that are held now and for which `is_wanted` returns true, longest held first.
    pub fn held(&self, now_ms: u64, is_wanted: impl Fn(&Lock) -> bool) -> Vec<Held> {
        let mut held = Vec::new();
        for segment in self.segments() {
            for lock in &mut segment.lock().locks {
                self.catch_up(lock, now_ms);
                if lock.is_held() && is_wanted(lock) {
                    let since_ms = lock.tenure.since_ms;
                    held.push(Held {
                        since_ms,
                        hash: lock.hash,
                        database: lock.database,
                        key: lock.key.clone(),
                        field: lock.field.clone(),
                    });
                }
            }
        }
        held.sort_by_key(|held| held.since_ms);
        held
    }

    /// Returns a copy of a lock that was held, if it is still followed.
    pub fn get_held(&self, held: &Held, now_ms: u64) -> Option<Lock> {
        self.get(held.hash, held.database, &held.key, now_ms)
    }

    /// Notes that a lock that counts as held is not there any more.
    pub fn miss(&self, held: &Held, now_ms: u64) {
        let mut segment = self.segment(held.hash).lock();
        if let Some(at) = segment.find(held.hash, held.database, &held.key)
            && segment.locks[at].tenure.since_ms == held.since_ms
        {
            segment.locks[at].lose(End::Unseen, now_ms);
        }
    }

    /// Notes that a lock has got another expiry by no command, which is nothing that its holder has done.
    pub fn keep(&self, kept: &KeptLock) {
        let mut segment = self.segment(kept.hash).lock();
        if let Some(at) = segment.find(kept.hash, kept.database, &kept.key)
            && segment.locks[at].is_held()
        {
            segment.locks[at].tenure.expires_at_ms = Some(kept.expires_at_ms);
        }
    }

    /// The newest findings, the last one first.
    pub fn findings(&self, count: usize) -> Vec<Finding> {
        self.findings.lock().newest(count)
    }

    /// Returns the counts so far.
    pub fn stats(&self, now_ms: u64) -> LockStats {
        let (mut followed, mut held) = (0, 0);
        for segment in self.segments() {
            let mut segment = segment.lock();
            followed += segment.locks.len();
            for lock in &mut segment.locks {
                self.catch_up(lock, now_ms);
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
            findings: self.findings.lock().by_rule(),
        }
    }

    /// Counts what happens to locks by these patterns of their keys, with blanks between them.
    pub fn measure(&self, patterns: &[u8]) {
        if self.metrics.set(patterns) {
            for segment in self.segments() {
                for lock in &mut segment.lock().locks {
                    lock.metrics = self.metrics.of(&lock.key);
                }
            }
        }
    }

    /// The metrics of each pattern, in their order, and how many of its locks are held now.
    pub(crate) fn metrics(&self, now_ms: u64) -> Vec<(Arc<PatternMetrics>, u64)> {
        let mut all: Vec<_> = self.metrics.all().into_iter().map(|metrics| (metrics, 0)).collect();
        if all.is_empty() {
            return all;
        }
        for segment in self.segments() {
            for lock in &mut segment.lock().locks {
                self.catch_up(lock, now_ms);
                let counted = lock.metrics.as_ref().filter(|_| lock.is_held());
                let of_lock =
                    |(metrics, _): &&mut (_, u64)| counted.is_some_and(|own| Arc::ptr_eq(own, metrics));
                if let Some((_, held)) = all.iter_mut().find(of_lock) {
                    *held += 1;
                }
            }
        }
        all
    }

    /// Forgets the findings and begins to count anew. Locks stay known.
    pub fn reset(&self) {
        self.metrics.all().iter().for_each(|metrics| metrics.reset());
        self.findings.lock().clear();
        self.orders.lock().forget_told();
        let Counters { taken, refused, released, expired, reentered, woken } = &self.counters;
        for counter in [taken, refused, released, expired, reentered, woken] {
            counter.store(0, Ordering::Relaxed);
        }
    }

    fn catch_up(&self, lock: &mut Lock, now_ms: u64) {
        if lock.catch_up(now_ms) {
            self.counters.expired.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Writes the lines about findings that are due.
    pub fn write_due_lines(&self, now: Instant) {
        let lines = self.findings.lock().due_lines(now);
        lines.iter().for_each(|line| tracing::info!("{line}"));
    }

    /// Whether no line about findings waits for its time.
    pub fn is_at_rest(&self) -> bool {
        !self.findings.lock().have_lines()
    }

    /// Keeps a finding, and writes a line about it if it is loud. One without a volume is known already.
    fn note(&self, finding: Finding, volume: Option<Volume>) {
        let mut findings = self.findings.lock();
        let line = match volume {
            Some(Volume::Quiet) => None,
            _ => findings.line(&finding, Instant::now()),
        };
        if let Some(volume) = volume {
            findings.add(finding, volume);
        }
        drop(findings);
        if let Some(line) = line {
            tracing::info!("{line}");
        }
    }

    /// Notes a finding that holds only if some connections are each that of one task. It may be withdrawn.
    fn claim(&self, finding: Finding, connections: Vec<u64>) {
        let mut findings = self.findings.lock();
        findings.claim(finding, connections, Instant::now());
        self.has_claims.store(true, Ordering::Relaxed);
    }

    /// Withdraws what holds only if a connection is that of one task, if it is one of a pool.
    fn withdraw(&self, who: &Who) {
        if who.habits.is_pooled.load(Ordering::Relaxed) {
            let mut findings = self.findings.lock();
            let has_claims = findings.withdraw(who.id);
            self.has_claims.store(has_claims, Ordering::Relaxed);
        }
    }

    fn next_fence(&self) -> u64 {
        self.fencing.next(clock::system_ms())
    }

    fn segment(&self, hash: u64) -> &Mutex<Segment> {
        let segments = self.segments.get_or_init(Box::default);
        &segments[hash as usize % SEGMENTS]
    }

    /// The segments that there are.
    fn segments(&self) -> impl Iterator<Item = &Mutex<Segment>> {
        self.segments.get().into_iter().flat_map(|segments| segments.iter())
    }
}

impl Owner {
    fn of(lock: &Lock) -> Owner {
        Owner { client: lock.tenure.holder.id, token: lock.tenure.token.digest }
    }
}

impl Segment {
    fn find(&self, hash: u64, database: usize, key: &[u8]) -> Option<usize> {
        let same = self.hashes.iter().enumerate().filter(|(_, other)| **other == hash);
        same.map(|(at, _)| at).find(|at| self.locks[*at].database == database && *self.locks[*at].key == *key)
    }

    /// Adds a lock, unless all others are worth more and there is no room.
    fn add(&mut self, lock: Lock, now_ms: u64) {
        let worth = lock.worth(now_ms);
        if self.locks.len() == SEGMENT_LOCKS {
            let Some(at) = self.least_wanted(worth, now_ms) else { return };
            self.forget(at);
        }
        self.hashes.push(lock.hash);
        self.worths.push(worth);
        self.owners.push(Owner::of(&lock));
        self.locks.push(lock);
    }

    fn forget(&mut self, at: usize) {
        self.hashes.swap_remove(at);
        self.worths.swap_remove(at);
        self.owners.swap_remove(at);
        self.locks[at].let_go();
        self.locks.swap_remove(at);
    }

    /// The index of the lock to forget for another one: the next in turn of those that are worth the least.
    /// `None` if all are worth more.
    fn least_wanted(&mut self, worth: u8, now_ms: u64) -> Option<usize> {
        let least = |worths: &[u8]| worths.iter().copied().min();
        if least(&self.worths) > Some(worth) {
            // Some may have expired.
            self.worths = self.locks.iter().map(|lock| lock.worth(now_ms)).collect();
        }
        let least = least(&self.worths).filter(|least| *least <= worth)?;
        let hand = self.hand % self.worths.len();
        let mut turn = (hand..self.worths.len()).chain(0..hand);
        let at = turn.find(|at| self.worths[*at] == least)?;
        self.hand = at + 1;
        Some(at)
    }
}

/// A finding, and its volume; without one, it is known already.
fn lock_finding(lock: &Lock, wrong: Wrong, at_ms: u64) -> (Finding, Option<Volume>) {
    let volume = if wrong.is_quiet { Volume::Quiet } else { Volume::Loud };
    let finding = Finding {
        id: 0,
        rule: wrong.rule,
        database: lock.database,
        key: lock.key.clone(),
        others: Vec::new(),
        pattern: names::pattern(&lock.key),
        alike: 0,
        at_ms,
        clients: wrong.clients,
        advice: wrong.advice,
        timeline: lock.timeline(),
    };
    (finding, (!wrong.is_known).then_some(volume))
}
