//! Runs commands that block their client until a key has something for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::acl::User;
use crate::clients::{Client, Waiting};
use crate::commands::error::Error;
use crate::commands::facts::lookup::{Registered, find, resolve};
use crate::commands::facts::{Blocking, Command, Patience, Result, Taken, Timeout};
use crate::instance::Instance;
use crate::keyspace::{Attempt, Attempted, Claimed, Transaction};
use crate::long_double::LongDouble;
use crate::resp::{OwnedRequest, Protocol, Reply, Request};
use crate::session::{Blocked, Session, Wait};
use crate::waiting::Ticket;

use super::permission::judge;

/// A request that names more keys locks one after the other: to look at a key, and to wait for it, takes some
/// microseconds.
const LOCKED_AT_ONCE_MAX: usize = 1000;

/// Runs a blocking command. If there is nothing to take, the client waits. A command within EXEC or a script
/// does not wait: it replies at once that there is nothing.
pub(in crate::commands) fn take_or_wait(
    command: &'static Command,
    blocking: &'static Blocking,
    instance: &Instance,
    session: &mut Session,
    tx: &mut Transaction<'_>,
    request: Request<'_>,
    reply: Reply<'_>,
) -> Result {
    let Patience { timeout, comes_again, joins } = (blocking.check)(request)?;
    let waits = !matches!(timeout, Timeout::None);
    let timeout = duration(timeout)?;
    let resumed = session.resumed.take();
    if resumed.is_some()
        && let Some(how) = session.client.look_again()
    {
        session.client.set_waiting(Waiting::No);
        return match how {
            Waiting::Failed => Err(Error::UNBLOCKED),
            _ => Ok((blocking.waiting.timed_out)(reply)),
        };
    }
    let goes_one_by_one = !session.may_not_wait && names_many(command, blocking, request);
    let taken = match goes_one_by_one {
        false => (blocking.take)(tx, request, None, reply),
        true => take_one_by_one(command, blocking, tx, request, reply),
    };
    if resumed.is_some() && !matches!(taken, Ok(Taken::Nothing(_))) {
        session.client.set_waiting(Waiting::No);
    }
    let reply = match taken? {
        Taken::Something(sent) => return Ok(sent),
        Taken::Nothing(reply) => reply,
    };
    if session.may_not_wait || !waits {
        session.found_nothing = waits;
        return Ok((blocking.nothing)(reply));
    }
    let until = match &resumed {
        Some(resumed) => resumed.until,
        None => timeout.and_then(|timeout| Instant::now().checked_add(timeout)),
    };
    let again_ms = blocking.waiting.again.and_then(|again| again(tx, request));
    let again = again_ms.and_then(|again_ms| Instant::now().checked_add(Duration::from_millis(again_ms)));
    let again = again.filter(|again| until.is_none_or(|until| *again < until));
    let attempt = Box::new(Retry {
        client: Arc::clone(&session.client),
        user: Arc::clone(&session.user),
        registered: find(&instance.names, request.name())
            .and_then(|registered| resolve(registered, request).ok()),
        blocking,
        protocol: session.protocol,
        request: match blocking.waiting.waits_with {
            Some(waits_with) => waits_with(tx, request),
            None => OwnedRequest::of(request),
        },
        goes_by_time: again_ms.is_some() || joins.is_some(),
        joins,
        comes_again,
    });
    let named = command.keys_of(request).map(|(key, _)| key);
    let (keys, targets) = (named.clone().take(blocking.keys), named.skip(blocking.keys));
    let ticket = match &resumed {
        Some(resumed) => Some(resumed.waiter.ticket()),
        None if comes_again => place_of_before(command, blocking, tx, request),
        None => None,
    };
    let show_wait = || match resumed {
        // Another client may have ended its wait while it looked.
        Some(_) => session.client.release(),
        None => session.client.set_waiting(Waiting::Yes),
    };
    let waiter = if goes_one_by_one {
        // A client that has something for it may come before the last key is registered.
        show_wait();
        tx.block_one_by_one(keys, ticket, attempt)
    } else {
        let waiter = tx.block(keys, targets, ticket, attempt);
        show_wait();
        waiter
    };
    session.wait = Some(Wait::Blocked);
    session.blocked = Some(Blocked { waiter, until, again });
    // The reply when the client's timeout has passed.
    Ok((blocking.waiting.timed_out)(reply))
}

/// The place of an earlier attempt with the same token, which this one takes over.
fn place_of_before(
    command: &Command,
    blocking: &Blocking,
    tx: &Transaction<'_>,
    request: Request<'_>,
) -> Option<Ticket> {
    let (key, _) = command.keys_of(request).next()?;
    tx.take_place(key, request.at(blocking.waiting.token?))
}

/// Whether a request names so many keys that it locks one after the other. It is a request of keys and a
/// timeout, which takes something from one key only.
fn names_many(command: &Command, blocking: &Blocking, request: Request<'_>) -> bool {
    request.len() > LOCKED_AT_ONCE_MAX
        && blocking.keys == usize::MAX
        && command.keys_of(request).count() + 2 == request.len()
}

/// Takes something from the first key that has it, and holds one key after the other. A key that gets
/// something when it has been passed by is as one that got it later.
fn take_one_by_one<'r>(
    command: &Command,
    blocking: &Blocking,
    tx: &mut Transaction<'_>,
    request: Request<'_>,
    mut reply: Reply<'r>,
) -> Result<Taken<'r>> {
    let mut one = OwnedRequest::default();
    for (key, _) in command.keys_of(request) {
        one.clear();
        // The arguments of a request have room in another one.
        let parts = [request.at(0), key, request.at(request.len() - 1)];
        for part in parts {
            one.push(part);
        }
        let Some(of_key) = one.request() else { break };
        tx.hold_only(key);
        match (blocking.take)(tx, of_key, None, reply)? {
            Taken::Nothing(unused) => reply = unused,
            taken => return Ok(taken),
        }
    }
    Ok(Taken::Nothing(reply))
}

/// When a blocking command that begins now times out; `None` for never.
///
/// # Errors
///
/// If the timeout is wrong.
pub(crate) fn deadline(timeout: Timeout<'_>) -> Result<Option<Instant>> {
    Ok(duration(timeout)?.and_then(|timeout| Instant::now().checked_add(timeout)))
}

/// A blocking command that tries again whenever its key has changed.
struct Retry {
    client: Arc<Client>,
    /// The client's user, which does not change while it waits; its permissions may.
    user: Arc<User>,
    /// The command, for the user's permissions.
    registered: Option<&'static Registered>,
    blocking: &'static Blocking,
    protocol: Protocol,
    request: OwnedRequest,
    /// Whether it may find something at a later moment.
    goes_by_time: bool,
    /// The kind of a value that it joins.
    joins: Option<u8>,
    /// Whether it keeps what its token has already.
    comes_again: bool,
}

impl Retry {
    /// Whether the user may do that still.
    fn is_allowed(&self) -> bool {
        self.user.is_unrestricted() || !self.user.is_removed() && self.is_allowed_by_rules()
    }

    #[cold]
    fn is_allowed_by_rules(&self) -> bool {
        let asked = self.registered.zip(self.request.request());
        asked.is_some_and(|(registered, request)| judge(&self.user.grants(), registered, request).is_ok())
    }
}

impl Attempt for Retry {
    fn kind(&self) -> u8 {
        self.blocking.kind
    }

    fn is_shared(&self) -> bool {
        self.blocking.waiting.is_shared
    }

    fn joins(&self) -> Option<u8> {
        self.joins
    }

    fn again_at_ms(&self, tx: &Transaction<'_>, key: &[u8]) -> Option<u64> {
        (self.blocking.waiting.again_at_ms?)(tx, self.request.request()?, key)
    }

    fn goes_by_time(&self) -> bool {
        self.goes_by_time
    }

    fn token(&self) -> Option<&[u8]> {
        Some(self.request.request()?.at(self.blocking.waiting.token?))
    }

    fn takes_all(&self) -> bool {
        self.blocking.waiting.takes_all.is_some()
    }

    fn keeps_own(&self) -> bool {
        self.comes_again
    }

    fn lacks(&self, tx: &Transaction<'_>, keys: &[Box<[u8]>], ticket: Ticket) -> Option<usize> {
        (self.blocking.waiting.takes_all?)(tx, self.request.request()?, keys, ticket)
    }

    fn reply_in_vain(&self, out: &mut Vec<u8>) {
        let _ = (self.blocking.waiting.timed_out)(Reply::new(out, self.protocol));
    }

    fn attempt(&self, tx: &mut Transaction<'_>, keys: &[&[u8]], out: &mut Vec<u8>) -> Attempted {
        let Some(request) = self.request.request() else { return Attempted::Nothing };
        let reply = Reply::new(out, self.protocol);
        match (self.blocking.take)(tx, request, Some(keys), reply) {
            Ok(Taken::Something(_)) => {
                tx.grant_wishes(self.client.id, || self.client.lifeline());
                Attempted::Served
            }
            Ok(Taken::Nothing(_)) if self.is_shared() || self.joins.is_some() || self.takes_all() => {
                Attempted::NothingForIt
            }
            Ok(Taken::Nothing(_)) => Attempted::Nothing,
            Err(error) => {
                out.clear();
                let _ = Reply::new(out, self.protocol).error(error.as_bytes());
                Attempted::Served
            }
        }
    }

    fn ends_without_value(&self) -> bool {
        self.blocking.waiting.ends_without_value
    }

    fn claim(&self) -> Claimed {
        match self.is_allowed() {
            true if self.client.claim() => Claimed::Yes,
            true => Claimed::No,
            false => Claimed::Refused,
        }
    }

    fn release(&self, goes_on: bool) {
        match goes_on {
            true => self.client.release(),
            false => self.client.set_waiting(Waiting::No),
        }
    }

    fn wake(&self) {
        self.client.call();
    }

    fn client(&self) -> u64 {
        self.client.id
    }

    fn command(&self) -> &'static str {
        self.registered.map_or("", |registered| registered.command.name)
    }
}

/// For how long the client waits; `None` is for ever.
fn duration(timeout: Timeout<'_>) -> Result<Option<Duration>> {
    match timeout {
        Timeout::Seconds(text) => seconds(text),
        Timeout::Milliseconds(0) | Timeout::None => Ok(None),
        Timeout::Milliseconds(milliseconds) => Ok(Some(Duration::from_millis(milliseconds))),
    }
}

/// Reads a timeout in seconds, with a fraction or without; `None` for 0, which is for ever.
fn seconds(text: &[u8]) -> Result<Option<Duration>> {
    const OUT_OF_RANGE: Error = Error::fixed("ERR timeout is out of range");
    let number = LongDouble::parse(text).ok_or(Error::fixed("ERR timeout is not a float or out of range"))?;
    let seconds: f64 = match number.is_finite() {
        true => number.to_text().parse().map_err(|_| OUT_OF_RANGE)?,
        false if text.starts_with(b"-") => f64::NEG_INFINITY,
        false => f64::INFINITY,
    };
    if seconds < 0.0 {
        return Err(Error::fixed("ERR timeout is negative"));
    }
    // Redis: with the time of day, the milliseconds must be an integer of 64 bits.
    let milliseconds = (seconds * 1000.0).ceil();
    if milliseconds > i64::MAX as f64 / 2.0 {
        return Err(OUT_OF_RANGE);
    }
    // A timeout that is too small for the text still is one: node-redis sends 5e-324.
    let milliseconds = if number > LongDouble::ZERO { milliseconds.max(1.0) } else { milliseconds };
    Ok((milliseconds > 0.0).then(|| Duration::from_millis(milliseconds as u64)))
}
