//! Measures what a batch of requests does, for INFO, SLOWLOG and LATENCY.
//!
//! Reading the clock twice for each command would cost more than many a command itself. So commands that take
//! about as long whatever their arguments are, and are small, are only tallied, and the time of a run of them
//! is shared out evenly among them; all others are timed one by one. Without pipelining a run is one command,
//! so its time is exact.

use std::time::{Duration, Instant};

use crate::commands::lookup::Registered;
use crate::commands::traces::charge;
use crate::instance::Instance;
use crate::resp::Request;
use crate::session::Session;
use crate::statistics::Count;
use crate::statistics::commands::Usage;

/// A request or a reply beyond this is no small one: copying it takes longer than reading the clock.
const SMALL_BYTES_MAX: usize = 16 << 10;
/// Who asks for requests that take less is told the time of each.
const THOROUGH_BELOW: Duration = Duration::from_millis(1);
/// Kinds of commands that are tallied before the clock is read.
const KINDS_MAX: usize = 8;

/// Follows one batch of requests from its first to its last.
#[derive(Debug)]
pub struct Meter<'a> {
    instance: &'a Instance,
    /// Up to when all time has been accounted for.
    mark: Instant,
    /// Whether nobody sees every command, wants to know the time of each, limits the memory, has planted a
    /// fault or runs a script that takes too long, and data can be saved: one look for all that rarely is.
    is_tallying: bool,
    /// The same, and nothing is special about the client either.
    is_plain: bool,
    /// Whether anybody sees every command.
    pub(super) is_watched: bool,
    commands: u64,
    errors: u64,
    tally: [Tally; KINDS_MAX],
    kinds: usize,
}

/// So many calls of one command.
#[derive(Clone, Copy, Debug)]
struct Tally {
    number: usize,
    calls: u64,
}

impl Tally {
    /// No calls, of no command that there is.
    const NONE: Tally = Tally { number: usize::MAX, calls: 0 };
}

impl Meter<'_> {
    /// Begins a batch.
    pub fn start<'a>(instance: &'a Instance, session: &Session) -> Meter<'a> {
        let mut meter = Meter {
            instance,
            mark: Instant::now(),
            is_tallying: false,
            is_plain: false,
            is_watched: false,
            commands: 0,
            errors: 0,
            tally: [Tally::NONE; KINDS_MAX],
            kinds: 0,
        };
        meter.look(session);
        meter
    }

    /// Looks at all that rarely is; whatever may have changed it is followed by this.
    pub(super) fn look(&mut self, session: &Session) {
        let instance = self.instance;
        let slower_than_us = instance.config.slowlog_log_slower_than.get();
        let is_thorough = (0..THOROUGH_BELOW.as_micros() as i64).contains(&slower_than_us);
        let is_limited = instance.config.maxmemory.get() > 0 || instance.keyspace.is_busy();
        let is_troubled = instance.faults.are_planted() || instance.refuses_writes();
        self.is_watched = instance.clients.has_monitors();
        self.is_tallying = !is_thorough && !self.is_watched && !is_limited && !is_troubled;
        self.is_plain = self.is_tallying && session.is_plain();
    }

    /// Whether nothing is asked for but that commands are executed.
    #[inline(always)]
    pub(super) fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// Says that a command is about to be run; answers whether it is one of those that are tallied.
    #[inline]
    pub(super) fn begin(&mut self, registered: &Registered, request: Request<'_>) -> bool {
        let is_tallied = registered.is_brief && self.is_tallying && Meter::is_small(&request);
        if !is_tallied && self.kinds > 0 {
            self.settle();
        }
        is_tallied
    }

    /// Whether a request takes so little time that it need not be measured alone.
    #[inline(always)]
    pub(super) fn is_small(request: &Request<'_>) -> bool {
        request.bytes() <= SMALL_BYTES_MAX
    }

    /// Says that one of those has been run, and how much it has answered.
    #[inline(always)]
    pub(super) fn end_tallied(
        &mut self,
        registered: &'static Registered,
        session: &Session,
        request: &Request<'_>,
        reply_bytes: usize,
    ) {
        match self.tally.first_mut() {
            _ if reply_bytes > SMALL_BYTES_MAX => self.end(registered, session, *request),
            // Pipelines are mostly of one kind.
            Some(first) if first.number == registered.number => first.calls += 1,
            _ => self.tally(registered.number),
        }
    }

    /// Says that another has been run.
    pub(super) fn end(&mut self, registered: &'static Registered, session: &Session, request: Request<'_>) {
        self.commands += 1;
        self.charge(registered, session, request);
    }

    /// Says that it answered an error.
    #[cold]
    pub(super) fn failed(&mut self, registered: &Registered) {
        self.errors += 1;
        self.instance.statistics.add_usage(registered.number, Usage { failed: 1, ..Usage::default() });
    }

    /// Says that a request was refused; its command is known, or not.
    #[cold]
    pub(super) fn refused(&mut self, registered: Option<&Registered>) {
        self.commands += 1;
        self.errors += 1;
        if let Some(registered) = registered {
            self.instance.statistics.add_usage(registered.number, Usage { rejected: 1, ..Usage::default() });
        }
    }

    /// Ends the batch; answers when that was.
    pub fn finish(mut self) -> Instant {
        self.settle();
        self.instance.statistics.add(Count::CommandsProcessed, self.commands);
        if self.errors > 0 {
            self.instance.statistics.add(Count::ErrorReplies, self.errors);
        }
        self.mark
    }

    #[cold]
    fn tally(&mut self, number: usize) {
        if let Some(tally) = self.tally[..self.kinds].iter_mut().find(|tally| tally.number == number) {
            tally.calls += 1;
            return;
        }
        if self.kinds == KINDS_MAX {
            self.settle();
        }
        self.tally[self.kinds] = Tally { number, calls: 1 };
        self.kinds += 1;
    }

    /// Shares the time since the mark out among the commands that were tallied.
    fn settle(&mut self) {
        let took = self.advance();
        let tallied = &self.tally[..self.kinds];
        let calls: u64 = tallied.iter().map(|tally| tally.calls).sum();
        self.commands += calls;
        for tally in tallied {
            let nanos = took.as_nanos() as u64 / calls * tally.calls;
            let usage = Usage { calls: tally.calls, nanos, ..Usage::default() };
            self.instance.statistics.add_usage(tally.number, usage);
        }
        self.kinds = 0;
        self.tally[0] = Tally::NONE;
    }

    /// Puts the time since the mark down to one command.
    #[cold]
    fn charge(&mut self, registered: &'static Registered, session: &Session, request: Request<'_>) {
        let took = self.advance();
        charge(self.instance, session, registered, request, took);
    }

    /// Moves the mark to now; answers how far that was.
    fn advance(&mut self) -> Duration {
        let now = Instant::now();
        now - std::mem::replace(&mut self.mark, now)
    }
}
