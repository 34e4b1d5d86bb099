//! How scripts reach the server: each command that a script calls is judged and run here, on the transaction
//! of the command that runs the script.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::instance::Instance;
use crate::keyspace::{Grouping, Transaction, complete};
use crate::resp::{Protocol, Reply, Request, Sent};
use crate::scripting::shebang::Flags as ScriptFlags;
use crate::scripting::{Failure, Host, NoCommand, Refused};
use crate::session::{OwnState, Session};
use crate::statistics::commands::Usage;

use super::admission::{ScriptLimits, admit_call, not_saved};
use super::origin::Origin;
use super::permission;
use super::placing::may_call;
use super::run::run;
use super::traces::{Measures, charge, error_bytes, is_thorough, show};
use crate::commands::error::Error;
use crate::commands::facts::lookup::{Registered, find, resolve};
use crate::commands::facts::{Context, LockUse, Result};
use crate::commands::unsupported;

/// The server, as one script sees it.
pub(in crate::commands) struct Bridge<'a, 'k> {
    instance: &'a Instance,
    tx: &'a mut Transaction<'k>,
    /// How the commands around the script belong together.
    grouping: Grouping,
    /// The script's own state while it runs: a database that it selects is not the client's.
    session: &'a mut Session,
    /// The client's own state, set aside while the script runs.
    own: Option<OwnState>,
    /// The request that runs the script.
    script: Request<'a>,
    limits: ScriptLimits,
    /// Whether each command is timed.
    is_thorough: bool,
    /// All time up to here has been counted.
    mark: Instant,
    /// Whether brief commands were called since then. They share the time with those of other scripts.
    has_tallied: bool,
    /// Errors of commands that are the script's reply: each counts as a failed call of the script, as in
    /// Redis.
    passed_on: Cell<u64>,
    /// Whether the script's reply is an error of its own.
    has_failed: Cell<bool>,
}

impl<'a, 'k> Bridge<'a, 'k> {
    /// Lets a script with these flags begin.
    ///
    /// # Errors
    ///
    /// If memory is short and the script may need some, or if data cannot be saved and it may change them.
    pub(in crate::commands) fn new(
        context: &'a mut Context<'_, 'k>,
        script: Request<'a>,
        flags: ScriptFlags,
        is_read_only: bool,
    ) -> Result<Bridge<'a, 'k>> {
        let instance = context.instance;
        let limit_bytes = instance.config.maxmemory.size();
        // Keys in a store take no memory here.
        let is_in_store = context.session.keys_in_store.is_some();
        let is_short = limit_bytes > 0 && !is_in_store && instance.uses_more_memory_than(limit_bytes);
        if is_short && !flags.is_silent && !flags.allow_oom && !flags.no_writes && !is_read_only {
            return Err(Error::OUT_OF_MEMORY);
        }
        let refuses_writes = instance.refuses_writes();
        if refuses_writes && !flags.is_silent && !flags.no_writes && !is_read_only {
            return Err(not_saved(instance));
        }
        let session = &mut *context.session;
        let grouping = context.tx.grouping();
        context.tx.group(Grouping::Script);
        Ok(Bridge {
            instance,
            tx: context.tx,
            grouping,
            own: Some(session.begin_script()),
            is_thorough: is_thorough(instance),
            mark: session.began,
            has_tallied: false,
            session,
            script,
            limits: ScriptLimits {
                is_read_only: is_read_only || flags.no_writes,
                is_short_of_memory: is_short && !flags.allow_oom,
                refuses_writes,
                has_written: false,
            },
            passed_on: Cell::new(0),
            has_failed: Cell::new(false),
        })
    }

    /// The script's reply. An error that was counted already is not counted again. The script has failed if
    /// the client gets an error, but not if the script has caught it.
    pub(in crate::commands) fn conclude(
        &mut self,
        answered: std::result::Result<Sent, (Failure, Reply<'_>)>,
    ) -> Result {
        self.end();
        let sent = match answered {
            Ok(sent) => sent,
            Err((failure, reply)) if failure.is_counted => {
                self.passed_on.set(1);
                reply.error(&failure.text)
            }
            Err((failure, _)) => return Err(Error::bytes(failure.text)),
        };
        let failed = self.passed_on.get() + u64::from(self.has_failed.get());
        if failed > 0
            && let Some(registered) = find(&self.instance.names, self.script.name())
        {
            self.instance.statistics.add_usage(registered.number, Usage { failed, ..Usage::default() });
        }
        Ok(sent)
    }

    /// When the script began. Called before it runs.
    pub(in crate::commands) fn started(&self) -> Instant {
        self.mark
    }

    /// The command of a request, if a script may call it.
    fn admit(&mut self, request: Request<'_>) -> Result<&'static Registered> {
        let unknown = || Error::fixed("ERR Unknown Redis command called from script");
        let Some(registered) = find(&self.instance.names, request.name()) else {
            unsupported::report_module(self.instance, request);
            return Err(unknown());
        };
        let registered = resolve(registered, request).map_err(|_| unknown())?;
        if let Err(refusal) = admit_call(self.instance, self.session, registered, request, &self.limits) {
            let rejected = Usage { rejected: 1, ..Usage::default() };
            self.instance.statistics.add_usage(registered.number, rejected);
            return Err(refusal);
        }
        Ok(registered)
    }

    fn run_admitted(
        &mut self,
        registered: &'static Registered,
        request: Request<'_>,
        reply: Reply<'_>,
    ) -> Result<()> {
        let is_tallied = !self.is_thorough && registered.command.cost.is_brief(&request);
        if !is_tallied {
            self.count_tallied();
        }
        let Bridge { instance, tx, session, script, limits, .. } = self;
        let command = registered.command;
        if instance.clients.has_monitors() {
            show(instance, session, Origin::Script, command, request);
        }
        if let Some(remote) = instance.remote.get() {
            may_call(&remote.settings.store_keys, tx.databases(), session, command, request)?;
        }
        tx.select(session.database);
        let plain_key = registered.plain.as_ref().map(|plain| request.at(plain.key));
        if plain_key.is_none() && command.needs_everything(request) {
            tx.hold_everything()?;
        } else if let Some(key) = plain_key.or_else(|| command.only_key_in(request)) {
            tx.hold(std::iter::once(key))?;
        } else {
            tx.hold(command.keys_of(request).map(|(key, _)| key))?;
        }
        if command.writes() && !limits.has_written {
            // Later it is too late: a script that has written is not stopped halfway.
            if session.must_leave() {
                return Err(Error::fixed("ERR The client was asked to leave"));
            }
            limits.has_written = true;
            instance.scripting.running.note_write();
        }
        let answered = reply
            .attempt_measured(|reply| run(command, instance, session, tx, request, reply, Some(*script)));
        if command.locks.has(LockUse::READS) {
            tx.note_read();
        }
        let (result, reply_bytes) = match answered {
            Ok((_, bytes)) => (Ok(()), bytes),
            Err((error, _)) => {
                let bytes = error_bytes(error.as_bytes());
                (Err(error), bytes)
            }
        };
        if result.is_err() {
            instance.statistics.add_usage(registered.number, Usage { failed: 1, ..Usage::default() });
        }
        // The time of the script before a command counts as the command's: the clock is read only once.
        if is_tallied {
            self.tally(registered.number);
        } else {
            let took = self.advance();
            let measures = Measures { took, reply_bytes };
            charge(self.instance, self.session, registered, request, Origin::Script, measures);
        }
        result
    }

    /// Ends the script. Reads the clock once, for all that need the time of the end.
    fn end(&mut self) {
        let took = self.advance();
        self.session.ended = Some(self.mark);
        if self.has_tallied {
            self.session.called().took += took;
        }
        if self.own.as_ref().is_some_and(|own| own.may_not_wait()) {
            // The next command may read the counts.
            self.session.count_called(&self.instance.statistics);
        }
    }

    /// Adds a call of a brief command to those that are counted later.
    fn tally(&mut self, command: usize) {
        if !self.session.called().tally.add(command) {
            self.count_tallied();
            let _ = self.session.called().tally.add(command);
        }
        self.has_tallied = true;
    }

    /// Counts the brief commands that have been called.
    fn count_tallied(&mut self) {
        if std::mem::take(&mut self.has_tallied) {
            let took = self.advance();
            self.session.called().took += took;
        }
        self.session.count_called(&self.instance.statistics);
    }

    /// Moves the mark to now. Returns how far that was.
    fn advance(&mut self) -> Duration {
        let now = Instant::now();
        now - std::mem::replace(&mut self.mark, now)
    }
}

impl Drop for Bridge<'_, '_> {
    fn drop(&mut self) {
        if let Some(own) = self.own.take() {
            self.session.end_script(own);
            self.tx.group(self.grouping);
        }
    }
}

impl Host for Bridge<'_, '_> {
    fn call(
        &mut self,
        request: Request<'_>,
        protocol: Protocol,
        out: &mut Vec<u8>,
    ) -> std::result::Result<(), Refused> {
        self.session.protocol = protocol;
        let admitted = self.admit(request);
        let result =
            admitted.and_then(|registered| self.run_admitted(registered, request, Reply::new(out, protocol)));
        // The script needs the whole reply now.
        complete(out, self.tx.take_missed());
        result.map_err(|error| {
            self.instance.statistics.errors.count(error.as_bytes());
            Refused { text: error.as_bytes().to_vec() }
        })
    }

    fn may_call(&mut self, request: Request<'_>) -> std::result::Result<bool, NoCommand> {
        let found = find(&self.instance.names, request.name()).and_then(|found| resolve(found, request).ok());
        let registered = found.ok_or(NoCommand::Unknown)?;
        if !registered.arity.allows(request.len()) {
            return Err(NoCommand::Arity);
        }
        Ok(permission::judge(&self.session.user.grants(), registered, request).is_ok())
    }

    fn note_error(&self, text: &[u8], is_counted: bool) {
        if is_counted {
            self.passed_on.set(self.passed_on.get() + 1);
        } else {
            self.instance.statistics.errors.count(text);
            self.has_failed.set(true);
        }
    }
}
