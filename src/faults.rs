//! Faults that people plant to test how their clients handle them: FAULT.
//!
//! While none is planted, that costs one look at a flag for each batch of requests. Otherwise each request
//! that a client sends, and that would be executed, is compared with the faults, the oldest first: only the
//! first that fits applies to it. A delay holds neither a lock nor a thread: the connection sleeps, and then
//! executes the request, whether or not its client is still there, as a packet that was late on its way. Only
//! the end of the server keeps it from that.
//!
//! A lock that a fault takes from its holder (LOSE-LOCK) is [doomed](Doomed) until its moment by the server's
//! clock. Only then the fault has struck: a request that takes no lock is spared.
//!
//! A fault that has struck as often as it was to stays in the list until it is removed, so that a test can
//! read that it has. If there is no room for another one, the oldest of these makes way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::sleep_until;

use crate::glob::Pattern;

/// Faults at once: each of them is compared with every request.
pub(crate) const FAULTS_MAX: usize = 128;
/// Bytes of each text of a fault.
pub(crate) const TEXT_BYTES_MAX: usize = 1024;
/// The longest delay: tests do not last longer.
pub(crate) const DELAY_MS_MAX: u64 = 60 * 60 * 1000;

/// The latest moment at which a lock is lost: with CLOCK, a test can pass a year in no time.
pub(crate) const AFTER_MS_MAX: u64 = 366 * 24 * 60 * 60 * 1000;
/// Locks that are doomed at once: each takes some kilobytes at most.
const DOOMED_MAX: usize = 1024;
/// Locks that are lost before the thread serves other clients.
pub(crate) const LOST_AT_ONCE_MAX: usize = 64;

/// The faults of one server that are planted now.
#[derive(Debug, Default)]
pub struct Faults {
    /// Whether one may strike. Looked at once a batch; the rest only if it is set.
    is_any: AtomicBool,
    state: Mutex<State>,
    cleared: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The oldest fault first.
    faults: Vec<Fault>,
    last_id: u64,
    /// Locks that will be lost, the first one first.
    doomed: Vec<Doomed>,
    /// How often all faults were removed.
    clearings: u64,
    /// Whether the server ends: then no delayed request is executed any more.
    is_over: bool,
}

impl State {
    /// Whether a fault may strike.
    fn is_any_left(&self) -> bool {
        self.faults.iter().any(Fault::may_strike)
    }
}

/// One fault: which requests it strikes, and what it does to them.
#[derive(Clone, Debug)]
pub struct Fault {
    /// A number that no other has or had; given when it is planted.
    pub id: u64,
    /// The command that it strikes, or all subcommands of this one, in lower case.
    pub on: Option<&'static str>,
    /// The pattern that one of the request's keys must match.
    pub pattern: Option<Pattern<'static>>,
    /// The name that the client must have.
    pub client: Option<Vec<u8>>,
    /// How likely it strikes a request that fits, above 0; always, if it is not said.
    pub probability: Option<f64>,
    /// How often it will still strike, down to 0; always, if it is not said.
    pub times_left: Option<u64>,
    /// The action that it takes.
    pub action: Action,
    /// How often it has struck.
    pub struck: u64,
}

/// The action of a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Returns this error instead of executing the request.
    Error(Arc<[u8]>),
    /// Executes the request after this time.
    Delay(Duration),
    /// Closes the connection in place of executing the request.
    Close,
    /// Executes the request and loses the reply.
    DropReply,
    /// Executes the request, and closes the connection after so many bytes of the reply.
    Cut(usize),
    /// Executes the request, and ends the lock that it has taken or renewed after so many milliseconds.
    LoseLock(u64),
}

/// The effect of a fault on a request.
#[derive(Debug)]
pub enum Blow {
    /// Its reply is this error.
    Error(Arc<[u8]>),
    /// It is executed after this.
    Delay(Delay),
    /// Its connection is closed.
    Close,
    /// It is executed, and then this happens.
    Sequel(Sequel),
    /// It is executed, and then this fault takes its lock after so many milliseconds. Only keys that match
    /// the pattern are meant.
    LoseLock {
        /// The number of the fault, which strikes if there is a lock then.
        fault: u64,
        /// When the lock is lost.
        after_ms: u64,
        /// The pattern of the fault.
        pattern: Option<Pattern<'static>>,
    },
}

/// What a fault does to a request that was executed, once its reply is complete.
#[derive(Debug, PartialEq, Eq)]
pub enum Sequel {
    /// The reply is lost.
    DropReply,
    /// The connection is closed after so many bytes of the reply.
    Cut(usize),
    /// The lock is lost that it has taken or renewed.
    LoseLock(Box<Losing>),
}

/// A request that may take a lock, or renew it, which a fault ends then.
#[derive(Debug, PartialEq, Eq)]
pub struct Losing {
    /// The number of the fault.
    pub fault: u64,
    /// When the lock is lost, in milliseconds by the server's clock.
    pub after_ms: u64,
    /// The number of the database of its keys.
    pub database: usize,
    /// Its keys, each with a digest of what was there before.
    pub before: Vec<(Box<[u8]>, u64)>,
}

/// A lock that its holder will lose, if it has it then.
#[derive(Debug, PartialEq, Eq)]
pub struct Doomed {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// The number of its database.
    pub database: usize,
    /// The key that is the lock.
    pub key: Box<[u8]>,
    /// What the holder has.
    pub held: Held,
}

/// What the holder of a lock has at its key.
#[derive(Debug, PartialEq, Eq)]
pub enum Held {
    /// The key, a string.
    Key {
        /// The digest of its token.
        token: u64,
        /// The number of the lock, if it had one.
        fence: Option<u64>,
    },
    /// These fields of a hash, or members of a sorted set.
    Members(Vec<Box<[u8]>>),
}

/// A request's being delayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay {
    until: Instant,
    /// How often faults had been cleared away when it began.
    clearings: u64,
}

/// There are [`FAULTS_MAX`] already.
#[derive(Debug)]
pub struct TooMany;

impl Fault {
    /// Whether it has not struck as often as it was to.
    fn may_strike(&self) -> bool {
        self.times_left != Some(0)
    }

    fn fits<'k>(
        &self,
        command: &str,
        mut keys: impl Iterator<Item = &'k [u8]>,
        is_client: impl Fn(&[u8]) -> bool,
    ) -> bool {
        let is_on =
            |on: &str| command.strip_prefix(on).is_some_and(|rest| matches!(rest.get(..1), None | Some("|")));
        self.may_strike()
            && self.on.is_none_or(is_on)
            && self.client.as_deref().is_none_or(is_client)
            && self.pattern.as_ref().is_none_or(|pattern| keys.any(|key| pattern.matches(key)))
    }

    /// Whether it strikes a request that fits: by chance, if it has a probability.
    fn happens(&self) -> bool {
        self.probability.is_none_or(|probability| fastrand::f64() < probability)
    }
}

impl Faults {
    /// Whether there are any that may strike.
    #[inline]
    pub fn are_planted(&self) -> bool {
        self.is_any.load(Ordering::Acquire)
    }

    /// How many there are that may strike.
    pub fn count(&self) -> usize {
        self.state.lock().faults.iter().filter(|fault| fault.may_strike()).count()
    }

    /// Adds a fault; returns its number.
    ///
    /// # Errors
    ///
    /// If there are too many.
    pub fn plant(&self, fault: Fault) -> Result<u64, TooMany> {
        let mut state = self.state.lock();
        if state.faults.len() >= FAULTS_MAX {
            let spent = state.faults.iter().position(|fault| !fault.may_strike()).ok_or(TooMany)?;
            state.faults.remove(spent);
        }
        state.last_id += 1;
        let id = state.last_id;
        state.faults.push(Fault { id, ..fault });
        self.is_any.store(true, Ordering::Release);
        Ok(id)
    }

    /// All faults, the oldest first, with those that have struck as often as they were to.
    pub fn all(&self) -> Vec<Fault> {
        self.state.lock().faults.clone()
    }

    /// Removes a fault; returns whether it was there. Requests that it has delayed stay delayed.
    pub fn remove(&self, id: u64) -> bool {
        let mut state = self.state.lock();
        let before = state.faults.len();
        state.faults.retain(|fault| fault.id != id);
        self.is_any.store(state.is_any_left(), Ordering::Release);
        state.faults.len() < before
    }

    /// Removes all faults, ends all delays and spares all doomed locks, also those of faults that were
    /// removed before. Returns how many faults there were.
    pub fn clear(&self) -> usize {
        let mut state = self.state.lock();
        let count = std::mem::take(&mut state.faults).len();
        state.doomed = Vec::new();
        state.clearings += 1;
        self.is_any.store(false, Ordering::Release);
        drop(state);
        self.cleared.notify_waiters();
        count
    }

    /// Lets the oldest fault that fits strike a request of this command and these keys, unless chance has
    /// spared it; `is_client` returns whether the request's client has a name.
    pub fn strike<'k>(
        &self,
        command: &str,
        keys: impl Iterator<Item = &'k [u8]> + Clone,
        is_client: impl Fn(&[u8]) -> bool,
    ) -> Option<Blow> {
        let mut state = self.state.lock();
        let at = state
            .faults
            .iter()
            .position(|fault| fault.fits(command, keys.clone(), &is_client) && fault.happens())?;
        let clearings = state.clearings;
        let fault = &state.faults[at];
        let blow = match &fault.action {
            Action::Error(text) => Blow::Error(Arc::clone(text)),
            Action::Delay(duration) => Blow::Delay(Delay { until: Instant::now() + *duration, clearings }),
            Action::Close => Blow::Close,
            Action::DropReply => Blow::Sequel(Sequel::DropReply),
            Action::Cut(bytes) => Blow::Sequel(Sequel::Cut(*bytes)),
            Action::LoseLock(after_ms) => {
                let pattern = fault.pattern.clone();
                return Some(Blow::LoseLock { fault: fault.id, after_ms: *after_ms, pattern });
            }
        };
        self.count_strike(&mut state, at);
        Some(blow)
    }

    /// Counts that a fault has struck once more.
    fn count_strike(&self, state: &mut State, at: usize) {
        let fault = &mut state.faults[at];
        fault.struck += 1;
        if let Some(times_left) = &mut fault.times_left {
            *times_left -= 1;
            if *times_left == 0 {
                self.is_any.store(state.is_any_left(), Ordering::Release);
            }
        }
    }

    /// Lets a fault strike, which takes these locks from their holder. Returns whether it does: by now, it
    /// may have been removed, or have struck as often as it was to, or the locks may be doomed already.
    pub fn doom(&self, fault: u64, mut doomed: Vec<Doomed>) -> bool {
        let mut state = self.state.lock();
        let found = state.faults.iter().position(|it| it.id == fault && it.may_strike());
        let Some(at) = found else { return false };
        let is_same = |one: &Doomed, other: &Doomed| {
            one.at_ms <= other.at_ms
                && (one.database, &one.key, &one.held) == (other.database, &other.key, &other.held)
        };
        doomed.retain(|new| !state.doomed.iter().any(|old| is_same(old, new)));
        if doomed.is_empty() || state.doomed.len() + doomed.len() > DOOMED_MAX {
            return false;
        }
        self.count_strike(&mut state, at);
        state.doomed.append(&mut doomed);
        state.doomed.sort_by_key(|doomed| doomed.at_ms);
        true
    }

    /// When the first lock is lost, in milliseconds since 1970, if one is.
    pub fn doomed_at_ms(&self) -> Option<u64> {
        self.state.lock().doomed.first().map(|doomed| doomed.at_ms)
    }

    /// The keys of locks that are lost by this moment, so many at most, each with its database.
    pub fn due(&self, now_ms: u64, most: usize) -> Vec<(usize, Box<[u8]>)> {
        let state = self.state.lock();
        let due = state.doomed.iter().take_while(|doomed| doomed.at_ms <= now_ms).take(most);
        due.map(|doomed| (doomed.database, doomed.key.clone())).collect()
    }

    /// Takes the locks that are lost by this moment, the first one first: all, or those at one key. The
    /// caller holds the keys' shards.
    pub fn take_doomed(&self, now_ms: u64, of: Option<(usize, &[u8])>) -> Vec<Doomed> {
        let mut state = self.state.lock();
        let is_meant = |doomed: &mut Doomed| {
            let place = (doomed.database, &*doomed.key);
            doomed.at_ms <= now_ms && of.is_none_or(|of| of == place)
        };
        state.doomed.extract_if(.., is_meant).collect()
    }

    /// Ends all delays for good, without the requests: the server ends.
    pub fn end_delays(&self) {
        self.state.lock().is_over = true;
        self.cleared.notify_waiters();
    }

    /// Waits until a delay is over; returns whether its request is executed now.
    pub async fn over(&self, delay: Delay) -> bool {
        // Made before the check: clearing after the check wakes it.
        let cleared = self.cleared.notified();
        let (is_over, clearings) = {
            let state = self.state.lock();
            (state.is_over, state.clearings)
        };
        if !is_over && clearings == delay.clearings {
            tokio::select! {
                () = cleared => {}
                () = sleep_until(delay.until.into()) => {}
            }
        }
        !self.state.lock().is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_KEYS: std::iter::Empty<&[u8]> = std::iter::empty();

    fn fault(on: Option<&'static str>, times_left: Option<u64>) -> Fault {
        let (pattern, client, probability) = (None, None, None);
        Fault { id: 0, on, pattern, client, probability, times_left, action: Action::Close, struck: 0 }
    }

    #[test]
    fn a_command_stands_for_its_subcommands_and_for_no_other_command() {
        let fits = |on: &'static str, command: &str| fault(Some(on), None).fits(command, NO_KEYS, |_| true);
        assert!(fits("client", "client|id") && fits("client|id", "client|id") && fits("set", "set"));
        assert!(!fits("client|id", "client|info") && !fits("set", "setnx") && !fits("client|id", "client"));
    }

    #[test]
    fn one_of_the_keys_must_match_the_pattern() {
        let fault = Fault { pattern: Pattern::register(b"lock:*").ok(), ..fault(None, None) };
        let fits = |keys: &[&[u8]]| fault.fits("del", keys.iter().copied(), |_| true);
        assert!(fits(&[b"lock:a"]) && fits(&[b"a", b"lock:b"]));
        assert!(!fits(&[]) && !fits(&[b"a", b"Lock:b"]));
    }

    #[test]
    fn a_request_that_chance_has_spared_is_left_to_the_next_fault() {
        let (faults, times) = (Faults::default(), 1000);
        let dice = Fault { probability: Some(0.25), ..fault(None, None) };
        faults.plant(dice.clone()).unwrap();
        let hits = (0..times).filter(|_| faults.strike("get", NO_KEYS, |_| true).is_some()).count();
        // Far beyond ten times the deviation of the binomial distribution.
        assert!((100..400).contains(&hits), "{hits}");
        faults.plant(Fault { action: Action::DropReply, ..fault(None, None) }).unwrap();
        assert!((0..times).all(|_| faults.strike("get", NO_KEYS, |_| true).is_some()));
        let all = faults.all();
        assert_eq!(all[0].struck + all[1].struck, hits as u64 + times);
        assert!(all[1].struck > all[0].struck - hits as u64);
        faults.clear();
        faults.plant(Fault { probability: Some(1.0), ..fault(None, None) }).unwrap();
        assert!((0..times).all(|_| faults.strike("get", NO_KEYS, |_| true).is_some()));
    }

    #[test]
    fn a_fault_rests_when_it_has_struck_as_often_as_it_was_to() {
        let faults = Faults::default();
        assert_eq!(faults.plant(fault(None, Some(2))).unwrap(), 1);
        assert!(matches!(faults.strike("get", NO_KEYS, |_| true), Some(Blow::Close)));
        assert_eq!(faults.all()[0].times_left, Some(1));
        assert!(matches!(faults.strike("get", NO_KEYS, |_| true), Some(Blow::Close)));
        assert!(!faults.are_planted() && faults.count() == 0);
        assert!(faults.strike("get", NO_KEYS, |_| true).is_none());
        let Fault { times_left, struck, .. } = faults.all().remove(0);
        assert_eq!((times_left, struck), (Some(0), 2));
        assert_eq!(faults.plant(fault(None, None)).unwrap(), 2, "numbers are never used again");
        assert!(faults.remove(2) && !faults.are_planted());
        assert_eq!(faults.clear(), 1);
    }

    #[test]
    fn there_is_room_for_so_many() {
        let faults = Faults::default();
        (0..FAULTS_MAX).for_each(|_| assert!(faults.plant(fault(None, None)).is_ok()));
        assert!(faults.plant(fault(None, None)).is_err());
        assert!(faults.remove(1) && !faults.remove(1));
        assert!(faults.plant(fault(None, None)).is_ok());
        assert_eq!(faults.clear(), FAULTS_MAX);
        assert!(!faults.are_planted());
        for id in 1..=FAULTS_MAX as u64 + 1 {
            let planted = faults.plant(fault(None, Some(1))).unwrap();
            assert!(matches!(faults.strike("get", NO_KEYS, |_| true), Some(Blow::Close)), "{id}");
            assert_eq!(faults.all().last().map(|last| last.id), Some(planted));
        }
        assert_eq!(faults.clear(), FAULTS_MAX, "the oldest of those that are over has made way");
    }
}
