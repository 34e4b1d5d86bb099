//! Judges whether a request may run, by one table of checks, with the origins that each check applies to.
//!
//! A queued request is judged twice: when it arrives, and when EXEC runs it. Memory and disk are checked for
//! EXEC itself, for all that was queued, and not again for each command.

use crate::instance::Instance;
use crate::resp::{Protocol, Request};
use crate::scripting::running::ScriptKind;
use crate::session::{Replies, Session};

use super::intent::{Intent, intent};
use super::origin::Origin;
use super::permission;
use super::placing::{Home, place};
use super::room::{Room, make_room};
use crate::commands::error::Error;
use crate::commands::facts::lookup::{Registered, queued, resolve};
use crate::commands::facts::{Flags, Result, Scope, Traits};
use crate::commands::unsupported;

/// A request that is to be judged.
struct Asked<'a> {
    instance: &'a Instance,
    session: &'a Session,
    registered: &'static Registered,
    request: Request<'a>,
    origin: Origin,
    /// The limits of the script that calls it, if one does.
    script: Option<&'a ScriptLimits>,
}

/// The limits of a script, from its beginning on.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScriptLimits {
    /// Whether it must not change data or send messages.
    pub(in crate::commands) is_read_only: bool,
    /// Whether it must not begin to change data, since data cannot be saved.
    pub(in crate::commands) refuses_writes: bool,
    /// Whether it must not begin to take more memory.
    pub(in crate::commands) is_short_of_memory: bool,
    /// Whether it has changed data. Then it is not stopped halfway.
    pub(in crate::commands) has_written: bool,
}

/// A reason why a request may be refused.
#[derive(Clone, Copy, Debug)]
enum Check {
    /// The number of arguments is wrong.
    Arity,
    /// Scripts may not call it.
    Noscript,
    /// The client has not authenticated, or its user may not do that.
    Permission,
    /// It makes no sense in a transaction.
    Queueing,
    /// Memory is short.
    Memory,
    /// Data cannot be saved.
    Disk,
    /// The client speaks RESP2 and listens to channels: it cannot distinguish a reply from a message.
    Listening,
    /// A script runs for too long.
    Busy,
    /// The script said that it changes nothing.
    ReadOnlyScript,
    /// The script began when data could not be saved.
    ScriptDisk,
    /// The script began when memory was short.
    ScriptMemory,
}

/// Whether a check is needed while neither the server nor the client is in a special state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Always,
    Rarely,
}

const CHECKS: usize = 11;

/// All checks, in the order in which they are made, which is that of Redis, with the origins that each
/// applies to.
const TABLE: [(Check, When, &[Origin]); CHECKS] = {
    use Origin::{Queue, Replay, Request, Script, Transaction};
    use When::{Always, Rarely};
    [
        (Check::Arity, Always, &[Request, Queue, Script, Replay]),
        (Check::Noscript, Always, &[Script]),
        (Check::Permission, Always, &[Request, Queue, Transaction, Script]),
        (Check::Queueing, Rarely, &[Queue]),
        (Check::Memory, Rarely, &[Request, Queue]),
        (Check::Disk, Rarely, &[Request, Queue]),
        (Check::Listening, Rarely, &[Request, Queue]),
        (Check::Busy, Rarely, &[Request, Queue]),
        (Check::ReadOnlyScript, Always, &[Script]),
        (Check::ScriptDisk, Always, &[Script]),
        (Check::ScriptMemory, Always, &[Script]),
    ]
};

/// Whether a check of the table is made for an origin.
const fn is_made(at: usize, origin: Origin, when: When) -> bool {
    let (_, needed, origins) = TABLE[at];
    let mut number = 0;
    while number < origins.len() {
        if origins[number] as u8 == origin as u8 {
            return needed as u8 == when as u8;
        }
        number += 1;
    }
    false
}

/// Makes the checks of one kind for an origin that is known at compile time. Checks that do not apply cost
/// nothing; the others cost no look at the table. A loop took 3 to 10% more instructions, for the release of
/// a lock by a script.
macro_rules! judge {
    ($asked:expr, $origin:expr, $when:expr) => {
        judge!($asked, $origin, $when, 0 1 2 3 4 5 6 7 8 9 10)
    };
    ($asked:expr, $origin:expr, $when:expr, $($at:literal)+) => {{
        const { assert!([$($at),+].len() == CHECKS, "all checks are made") };
        $(if const { is_made($at, $origin, $when) } {
            $asked.make(const { TABLE[$at].0 })?;
        })+
    }};
}

/// Judges whether a client's request may run now. `found` is the command of its name, if there is one. While
/// neither the server nor the client is in a special state (`is_plain`), the rare checks are left out.
///
/// # Errors
///
/// The error that the client gets.
#[inline]
pub(crate) fn admit(
    instance: &Instance,
    session: &mut Session,
    found: Option<&'static Registered>,
    request: Request<'_>,
    is_plain: bool,
) -> Result<&'static Registered> {
    if session.replies == Replies::SkipNext {
        session.replies = Replies::SkipThis;
    }
    let Some(registered) = found else { return Err(unknown(instance, session, request)) };
    let registered = resolve(registered, request)?;
    session.last_command = registered.command.name;
    let origin = Origin::of(session);
    let asked = Asked { instance, session, registered, request, origin, script: None };
    if session.queue.is_none() {
        judge!(asked, Origin::Request, When::Always);
        if !is_plain {
            judge!(asked, Origin::Request, When::Rarely);
        }
    } else {
        judge!(asked, Origin::Queue, When::Always);
        judge!(asked, Origin::Queue, When::Rarely);
    }
    Ok(registered)
}

/// Judges whether EXEC may run a request that was admitted when it was queued.
///
/// # Errors
///
/// The error that the client gets.
pub(super) fn admit_queued(
    instance: &Instance,
    session: &Session,
    registered: &'static Registered,
    request: Request<'_>,
) -> Result<()> {
    let origin = Origin::Transaction;
    let asked = Asked { instance, session, registered, request, origin, script: None };
    judge!(asked, Origin::Transaction, When::Always);
    Ok(())
}

/// Judges whether a script may call a command.
///
/// # Errors
///
/// The error that the script gets.
#[inline]
pub(super) fn admit_call(
    instance: &Instance,
    session: &Session,
    registered: &'static Registered,
    request: Request<'_>,
    limits: &ScriptLimits,
) -> Result<()> {
    let (origin, script) = (Origin::Script, Some(limits));
    let asked = Asked { instance, session, registered, request, origin, script };
    judge!(asked, Origin::Script, When::Always);
    Ok(())
}

/// Judges whether a request may be in a log.
///
/// # Errors
///
/// With the beginning of a line for people.
pub(super) fn admit_logged(
    instance: &Instance,
    session: &Session,
    registered: &'static Registered,
    request: Request<'_>,
) -> Result<()> {
    let asked = Asked { instance, session, registered, request, origin: Origin::Replay, script: None };
    judge!(asked, Origin::Replay, When::Always);
    Ok(())
}

impl Asked<'_> {
    #[inline(always)]
    fn make(&self, check: Check) -> Result<()> {
        let command = self.registered.command;
        match check {
            Check::Arity if self.registered.arity.allows(self.request.len()) => Ok(()),
            Check::Arity => Err(self.wrong_arity()),
            Check::Noscript if !command.flags.contains(Flags::NOSCRIPT) => Ok(()),
            Check::Noscript => Err(Error::fixed("ERR This Redis command is not allowed from script")),
            Check::Permission if self.session.is_authenticated && self.session.user.is_unrestricted() => {
                Ok(())
            }
            Check::Permission => {
                permission::check(self.instance, self.session, self.registered, self.request, self.origin)
            }
            Check::Queueing if !command.flags.contains(Flags::NO_MULTI) => Ok(()),
            Check::Queueing => Err(Error::fixed("ERR Command not allowed inside a transaction")),
            Check::Memory => self.check_memory(),
            Check::Disk => self.check_disk(),
            Check::Listening => self.check_listening(),
            Check::Busy if !self.instance.keyspace.is_busy() || command.flags.contains(Flags::ALLOW_BUSY) => {
                Ok(())
            }
            Check::Busy => Err(busy(self.instance)),
            Check::ReadOnlyScript | Check::ScriptDisk | Check::ScriptMemory => self.check_script(check),
        }
    }

    #[cold]
    fn wrong_arity(&self) -> Error {
        match self.origin {
            Origin::Script => Error::fixed("ERR Wrong number of args calling Redis command from script"),
            Origin::Replay => Error::text(format!(
                "Wrong number of arguments for command '{}'",
                self.request.name().escape_ascii()
            )),
            _ => Error::wrong_arity(self.registered.command.name),
        }
    }

    /// Makes room before a command that may need it. Refuses a command that needs memory where there is none,
    /// and an EXEC of such commands.
    #[cold]
    fn check_memory(&self) -> Result<()> {
        // A script that has been running for too long holds the shards that make_room would wait for.
        if self.instance.keyspace.is_busy() || make_room(self.instance) != Room::None || self.is_in_store() {
            return Ok(());
        }
        if self.does_any(|intent| intent.needs_memory) { Err(Error::OUT_OF_MEMORY) } else { Ok(()) }
    }

    /// Whether the keys of the request live in a store: they take no memory here.
    fn is_in_store(&self) -> bool {
        let Asked { instance, session, registered, request, .. } = self;
        instance.remote.get().is_some_and(|remote| {
            let (store_keys, databases) = (&remote.settings.store_keys, instance.keyspace.databases());
            matches!(place(store_keys, databases, session, registered.command, *request), Ok(Home::Store(_)))
        })
    }

    /// Refuses what writes after data could not be saved, and PING, which health checks use.
    #[cold]
    fn check_disk(&self) -> Result<()> {
        let is_health_check = self.registered.command.traits.contains(Traits::HEALTH_CHECK);
        let is_refused =
            self.instance.refuses_writes() && (is_health_check || self.does_any(|intent| intent.writes));
        if is_refused { Err(not_saved(self.instance)) } else { Ok(()) }
    }

    #[cold]
    fn check_listening(&self) -> Result<()> {
        let (session, command) = (self.session, self.registered.command);
        let is_allowed = session.protocol == Protocol::Resp3 || command.traits.contains(Traits::LISTENING);
        if session.subscriptions.is_empty() || is_allowed {
            return Ok(());
        }
        let name = command.name;
        Err(Error::text(format!(
            "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are \
             allowed in this context"
        )))
    }

    #[inline(always)]
    fn check_script(&self, check: Check) -> Result<()> {
        let (Some(limits), command) = (self.script, self.registered.command) else { return Ok(()) };
        match check {
            Check::ReadOnlyScript if limits.is_read_only && command.replicates() => {
                Err(Error::fixed("ERR Write commands are not allowed from read-only scripts."))
            }
            Check::ScriptDisk if limits.refuses_writes && !limits.has_written && command.writes() => {
                Err(not_saved(self.instance))
            }
            Check::ScriptMemory
                if limits.is_short_of_memory
                    && !limits.has_written
                    && command.flags.contains(Flags::DENYOOM) =>
            {
                Err(Error::OUT_OF_MEMORY)
            }
            _ => Ok(()),
        }
    }

    fn does_any(&self, does: impl Fn(Intent) -> bool) -> bool {
        does_any(self.instance, self.session, self.registered, self.request, does)
    }
}

/// Whether a request may do something. For EXEC, whether one of the queued requests may.
pub(crate) fn does_any(
    instance: &Instance,
    session: &Session,
    registered: &'static Registered,
    request: Request<'_>,
    does: impl Fn(Intent) -> bool,
) -> bool {
    match &session.queue {
        Some(queue) if registered.command.scope == Scope::Queue => {
            queued(queue).any(|(registered, request)| does(intent(instance, registered.command, request)))
        }
        _ => does(intent(instance, registered.command, request)),
    }
}

/// An unknown command. A browser that a web page has tricked into talking to the server sends `POST` or
/// `Host:`. Its connection is closed without a reply, before its next bytes could be read as commands.
#[cold]
fn unknown(instance: &Instance, session: &mut Session, request: Request<'_>) -> Error {
    unsupported::report_module(instance, request);
    if [&b"post"[..], b"host:"].iter().any(|name| request.name().eq_ignore_ascii_case(name)) {
        tracing::warn!(
            "Possible SECURITY ATTACK detected. It looks like somebody is sending POST or Host: commands to \
             Keyfast. This is likely due to an attacker attempting to use Cross Protocol Scripting to \
             compromise your Keyfast instance. Connection from {} aborted.",
            session.client.address
        );
        session.replies = Replies::Off;
        session.is_closing = true;
    }
    Error::unknown_command(request)
}

/// The error that clients get while a script runs for too long.
pub(crate) fn busy(instance: &Instance) -> Error {
    match instance.scripting.running.current() {
        Some(current) if current.kind == ScriptKind::Function => Error::BUSY_FUNCTION,
        _ => Error::BUSY,
    }
}

/// The error that a write gets while data cannot be saved.
pub(crate) fn not_saved(instance: &Instance) -> Error {
    match instance.persistence.aof.has_failed() {
        true => Error::text(format!(
            "MISCONF Errors writing to the AOF file: {}",
            instance.persistence.aof.failure()
        )),
        false => Error::NOT_SAVED,
    }
}
