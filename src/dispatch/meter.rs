//! Measures what a batch of requests does, for INFO, SLOWLOG, LATENCY and HOTKEYS.
//!
//! Brief requests ([`Costs::is_brief`](crate::commands::facts::Costs::is_brief)) are only tallied, and share
//! the time that a run of them takes. All others are timed one by one. Without pipelining, a run is one
//! command, and its time is exact. The commands that scripts call are counted with the batch, too: at its
//! end, or before a command reads the counts.

use std::mem::take;
use std::time::{Duration, Instant};

use crate::clients::Paused;
use crate::commands::execution::origin::Origin;
use crate::commands::execution::traces::{Measures, charge, is_thorough};
use crate::commands::facts::lookup::Registered;
use crate::commands::facts::{SMALL_BYTES_MAX, Scope};
use crate::instance::Instance;
use crate::resp::Request;
use crate::session::{Session, Wait};
use crate::statistics::commands::{Tally, Usage};

/// After a command that took longer than this, the states are checked again.
const LONG: Duration = Duration::from_millis(1);

/// Follows one batch of requests from the first one to the last one.
#[derive(Debug)]
pub struct Meter<'a> {
    instance: &'a Instance,
    /// All time up to here has been counted.
    mark: Instant,
    /// Whether brief commands share their time: no log has so low a limit that each must be timed, and no
    /// client sees each command.
    is_tallying: bool,
    /// Whether the server is in none of these states: MONITOR, HOTKEYS, a planted fault, a script that takes
    /// too long, data that cannot be saved. And the client is in no special state, and no command has to
    /// wait. One look instead of many.
    is_plain: bool,
    /// `maxmemory`; the largest number if there is no limit. Before each command the memory in use is
    /// compared with it.
    limit_bytes: usize,
    /// Whether a command has run for long since the last look.
    took_long: bool,
    /// Whether a client sees every command (MONITOR).
    pub(super) is_watched: bool,
    /// The commands that have to wait, in a pause (CLIENT PAUSE).
    pub(super) paused: Option<Paused>,
    tally: Tally,
}

impl Meter<'_> {
    /// Begins a batch. The caller calls [`reload`](Self::reload) before the first request.
    #[inline(always)]
    pub fn new(instance: &Instance) -> Meter<'_> {
        instance.stir();
        Meter {
            instance,
            mark: Instant::now(),
            is_tallying: false,
            is_plain: false,
            limit_bytes: usize::MAX,
            took_long: false,
            is_watched: false,
            paused: None,
            tally: Tally::default(),
        }
    }

    /// Loads all the special states anew. The caller calls it after everything that may have changed one.
    pub fn reload(&mut self, session: &Session) {
        let instance = self.instance;
        self.took_long = false;
        self.limit_bytes = match instance.config.maxmemory.size() {
            0 => usize::MAX,
            limit_bytes => limit_bytes,
        };
        let is_troubled =
            instance.faults.are_planted() || instance.refuses_writes() || instance.keyspace.is_busy();
        self.is_watched = instance.clients.has_monitors();
        let is_followed = self.is_watched || instance.statistics.hot_keys.is_active();
        let is_calm = !is_followed && !is_troubled;
        self.is_tallying = is_calm && !is_thorough(instance);
        self.paused = instance.clients.pause.paused();
        self.is_plain = is_calm && session.is_plain() && self.paused.is_none();
    }

    /// Whether neither the server nor the client is in a special state, and memory is not short.
    #[inline(always)]
    pub(super) fn is_plain(&self) -> bool {
        self.is_plain && !self.is_short()
    }

    /// Whether more memory is used than `maxmemory` allows: keys may have to go before a command.
    #[inline(always)]
    fn is_short(&self) -> bool {
        self.limit_bytes != usize::MAX && self.instance.takes_more_than(self.limit_bytes)
    }

    /// The same after a command that has changed no state. If it took long, another client may have.
    #[inline(always)]
    pub(super) fn is_still_plain(&self) -> bool {
        self.is_plain() && !self.took_long
    }

    /// Notes that a command is about to run. Returns whether it is tallied.
    #[inline]
    pub(super) fn begin_command(
        &mut self,
        registered: &Registered,
        session: &mut Session,
        request: Request<'_>,
    ) -> bool {
        // The time that it takes to free keys is not shared.
        let is_tallied = self.is_tallying && !self.is_short() && registered.command.cost.is_brief(&request);
        if !is_tallied {
            self.count_tallied(session);
            session.began = self.mark;
            if registered.command.scope != Scope::Script {
                // It may read the counts.
                session.count_called(&self.instance.statistics);
            }
        }
        is_tallied
    }

    /// Notes that a brief command has run without [`begin_command`](Self::begin_command), and how long its
    /// reply is.
    #[inline(always)]
    pub(super) fn end_plain(
        &mut self,
        registered: &'static Registered,
        session: &mut Session,
        request: &Request<'_>,
        reply_bytes: usize,
    ) {
        if self.is_tallying {
            self.end_tallied(registered, session, request, reply_bytes);
        } else {
            self.end(registered, session, *request, reply_bytes);
        }
    }

    /// Notes that a tallied command has run, and how long its reply is.
    #[inline(always)]
    pub(super) fn end_tallied(
        &mut self,
        registered: &'static Registered,
        session: &mut Session,
        request: &Request<'_>,
        reply_bytes: usize,
    ) {
        if reply_bytes > SMALL_BYTES_MAX {
            self.end(registered, session, *request, reply_bytes);
        } else if !self.tally.add(registered.number) {
            self.count_tallied(session);
            let _ = self.tally.add(registered.number);
        }
    }

    /// Notes that a command has run that is timed, and how long its reply is.
    #[cold]
    pub(super) fn end(
        &mut self,
        registered: &'static Registered,
        session: &mut Session,
        request: Request<'_>,
        reply_bytes: usize,
    ) {
        let took = self.advance(session.ended.take().unwrap_or_else(Instant::now));
        self.took_long |= took >= LONG;
        let took = took + take(&mut session.took_before_wait);
        if session.wait == Some(Wait::Blocked) {
            // As in Redis, the command counts once its wait has ended.
            session.took_before_wait = took;
            return;
        }
        let measures = Measures { took, reply_bytes };
        charge(self.instance, session, registered, request, Origin::Request, measures);
    }

    /// Notes that it replied with an error.
    #[cold]
    pub(super) fn failed(&self, registered: &Registered) {
        self.instance.statistics.add_usage(registered.number, Usage { failed: 1, ..Usage::default() });
    }

    /// Notes that a request was refused, with its command if that is known.
    #[cold]
    pub(super) fn refused(&self, registered: Option<&Registered>) {
        if let Some(registered) = registered {
            self.instance.statistics.add_usage(registered.number, Usage { rejected: 1, ..Usage::default() });
        }
    }

    /// Ends the batch.
    pub fn finish(&mut self, session: &mut Session) {
        self.count_tallied(session);
        session.count_called(&self.instance.statistics);
        self.instance.stir();
    }

    /// Divides the time since the mark among the commands that were tallied, if there are any.
    fn count_tallied(&mut self, session: &Session) {
        if !self.tally.is_empty() {
            let took = self.advance(Instant::now());
            let calls = self.instance.statistics.add_tally(&mut self.tally, took);
            session.client.traffic.commands.add(calls);
        }
    }

    /// Moves the mark to now. Returns how far that was.
    fn advance(&mut self, now: Instant) -> Duration {
        now - std::mem::replace(&mut self.mark, now)
    }
}
