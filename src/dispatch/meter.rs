//! Measures what a batch of requests does, for INFO, SLOWLOG and LATENCY.
//!
//! Commands that are brief ([`is_brief`]) are only tallied; all others are timed one by one. Without
//! pipelining a run of those that are tallied is one command, so its time is exact. What scripts call is
//! counted with the batch, too: by whoever wants to know, or at its end.

use std::time::{Duration, Instant};

use crate::clients::Paused;
use crate::commands::door::traces::{SMALL_BYTES_MAX, charge, is_brief, is_thorough};
use crate::commands::facts::Scope;
use crate::commands::facts::lookup::Registered;
use crate::instance::Instance;
use crate::resp::Request;
use crate::session::Session;
use crate::statistics::commands::{Tally, Usage};

/// Follows one batch of requests from its first to its last.
#[derive(Debug)]
pub struct Meter<'a> {
    instance: &'a Instance,
    /// Up to when all time has been accounted for.
    mark: Instant,
    /// Whether nobody sees every command, wants to know the time of each, limits the memory, has planted a
    /// fault or runs a script that takes too long, and data can be saved: one look for all that rarely is.
    is_tallying: bool,
    /// The same, and nothing is special about the client either, nor is any command to wait.
    is_plain: bool,
    /// Whether anybody sees every command.
    pub(super) is_watched: bool,
    /// Which commands have to wait for the end of a pause (CLIENT PAUSE), if any have to.
    pub(super) paused: Option<Paused>,
    tally: Tally,
}

impl Meter<'_> {
    /// Begins a batch; has to [look](Self::look) before its first request.
    #[inline(always)]
    pub fn new(instance: &Instance) -> Meter<'_> {
        Meter {
            instance,
            mark: Instant::now(),
            is_tallying: false,
            is_plain: false,
            is_watched: false,
            paused: None,
            tally: Tally::default(),
        }
    }

    /// Looks at all that rarely is; whatever may have changed it is followed by this.
    pub fn look(&mut self, session: &Session) {
        let instance = self.instance;
        let is_limited = instance.config.maxmemory.get() > 0 || instance.keyspace.is_busy();
        let is_troubled = instance.faults.are_planted() || instance.refuses_writes();
        self.is_watched = instance.clients.has_monitors();
        self.is_tallying = !is_thorough(instance) && !self.is_watched && !is_limited && !is_troubled;
        self.paused = instance.clients.pause.paused();
        self.is_plain = self.is_tallying && session.is_plain() && self.paused.is_none();
    }

    /// Whether nothing is asked for but that commands are executed.
    #[inline(always)]
    pub(super) fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// Says that a command is about to be run; answers whether it is one of those that are tallied.
    #[inline]
    pub(super) fn begin(
        &mut self,
        registered: &Registered,
        session: &mut Session,
        request: Request<'_>,
    ) -> bool {
        let is_tallied = self.is_tallying && is_brief(registered, &request);
        if !is_tallied {
            self.settle();
            session.began = self.mark;
            if registered.command.scope != Scope::Script {
                // It may ask for what is counted.
                session.count_called(&self.instance.statistics);
            }
        }
        is_tallied
    }

    /// Says that one of those has been run, and how much it has answered.
    #[inline(always)]
    pub(super) fn end_tallied(
        &mut self,
        registered: &'static Registered,
        session: &mut Session,
        request: &Request<'_>,
        reply_bytes: usize,
    ) {
        if reply_bytes > SMALL_BYTES_MAX {
            self.end(registered, session, *request);
        } else if !self.tally.add(registered.number) {
            self.settle();
            let _ = self.tally.add(registered.number);
        }
    }

    /// Says that another has been run.
    pub(super) fn end(
        &mut self,
        registered: &'static Registered,
        session: &mut Session,
        request: Request<'_>,
    ) {
        self.charge(registered, session, request);
    }

    /// Says that it answered an error.
    #[cold]
    pub(super) fn failed(&self, registered: &Registered) {
        self.instance.statistics.add_usage(registered.number, Usage { failed: 1, ..Usage::default() });
    }

    /// Says that a request was refused; its command is known, or not.
    #[cold]
    pub(super) fn refused(&self, registered: Option<&Registered>) {
        if let Some(registered) = registered {
            self.instance.statistics.add_usage(registered.number, Usage { rejected: 1, ..Usage::default() });
        }
    }

    /// Ends the batch.
    pub fn finish(&mut self, session: &mut Session) {
        self.settle();
        session.count_called(&self.instance.statistics);
    }

    /// Shares the time since the mark out among the commands that were tallied, if there are any.
    fn settle(&mut self) {
        if !self.tally.is_empty() {
            let took = self.advance(Instant::now());
            self.instance.statistics.settle(&mut self.tally, took);
        }
    }

    /// Puts the time since the mark down to one command.
    #[cold]
    fn charge(&mut self, registered: &'static Registered, session: &mut Session, request: Request<'_>) {
        let took = self.advance(session.ended.take().unwrap_or_else(Instant::now));
        charge(self.instance, session, registered, request, took);
    }

    /// Moves the mark to now; answers how far that was.
    fn advance(&mut self, now: Instant) -> Duration {
        now - std::mem::replace(&mut self.mark, now)
    }
}
