//! Faults that people plant to test how their clients handle them: FAULT.
//!
//! While none is planted, that costs one look at a flag for each batch of requests. Otherwise each request
//! that a client sends, and that would be executed, is compared with the faults, the oldest first: only the
//! first that fits applies to it. A delay holds neither a lock nor a thread: the connection sleeps, and then
//! executes the request, whether or not its client is still there, as a packet that was late on its way. Only
//! the end of the server keeps it from that.
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
}

/// The effect of a fault on a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blow {
    /// Its reply is this error.
    Error(Arc<[u8]>),
    /// It is executed after this.
    Delay(Delay),
    /// Its connection is closed.
    Close,
    /// It is executed, and then this happens.
    Sequel(Sequel),
}

/// What a fault does to a request that was executed, once its reply is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sequel {
    /// The reply is lost.
    DropReply,
    /// The connection is closed after so many bytes of the reply.
    Cut(usize),
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

    /// Removes all faults and ends all delays, also those of faults that were removed before. Returns how
    /// many faults there were.
    pub fn clear(&self) -> usize {
        let mut state = self.state.lock();
        let count = std::mem::take(&mut state.faults).len();
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
        let fault = &mut state.faults[at];
        fault.struck += 1;
        let blow = match &fault.action {
            Action::Error(text) => Blow::Error(Arc::clone(text)),
            Action::Delay(duration) => Blow::Delay(Delay { until: Instant::now() + *duration, clearings }),
            Action::Close => Blow::Close,
            Action::DropReply => Blow::Sequel(Sequel::DropReply),
            Action::Cut(bytes) => Blow::Sequel(Sequel::Cut(*bytes)),
        };
        if let Some(times_left) = &mut fault.times_left {
            *times_left -= 1;
            if *times_left == 0 {
                self.is_any.store(state.is_any_left(), Ordering::Release);
            }
        }
        Some(blow)
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
        assert_eq!(faults.strike("get", NO_KEYS, |_| true), Some(Blow::Close));
        assert_eq!(faults.all()[0].times_left, Some(1));
        assert_eq!(faults.strike("get", NO_KEYS, |_| true), Some(Blow::Close));
        assert!(!faults.are_planted() && faults.count() == 0);
        assert_eq!(faults.strike("get", NO_KEYS, |_| true), None);
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
            assert_eq!(faults.strike("get", NO_KEYS, |_| true), Some(Blow::Close), "{id}");
            assert_eq!(faults.all().last().map(|last| last.id), Some(planted));
        }
        assert_eq!(faults.clear(), FAULTS_MAX, "the oldest of those that are over has made way");
    }
}
