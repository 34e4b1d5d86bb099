//! LOCK: locks that are taken with a token and a fencing number. No other server has it.
//!
//! The key is an ordinary string with the holder's token and an expiry. So SETNX and SET NX of other clients
//! are refused by it, and DEL and the scripts of other libraries release it. The number comes with the reply
//! that grants the lock. It grows from holder to holder, so what the lock protects can refuse a holder that
//! was paused while its lock expired.

use crate::events::EventClass;
use crate::keyspace::{Expiry, Grouping, LockChange, Transaction};
use crate::resp::{Reply, Request};
use crate::types::strings::Text;
use crate::values::ABSENT_KIND;

use crate::commands::args::{self, Options, is_word};
use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::facts::{
    Applicant, Argument, Blocking, Categories, Command, Flags, Group, KeyFlags, KeySpec, LockUse, Only,
    Prepares, Result, Run, Taken, Timeout, WaitingRules,
};
use crate::commands::strings::basics::{Condition, tell_of_write};
use crate::commands::strings::compare::delete_if;

pub(in crate::commands) const COMMANDS: &[Command] = &[LOCK];

/// The facts that most commands of this file share.
const STRING: Command = Command { categories: Categories::STRING, group: Group::STRING, ..Command::DEFAULTS };

const LOCK: Command = Command {
    name: "lock",
    group: Group::STRING,
    summary: "Takes and releases locks by token. Each holder gets a fencing number that only grows.",
    since: "1.0.0",
    complexity: "Depends on subcommand.",
    cost: costs::ARGUMENTS,
    subcommands: &[LOCK_ACQUIRE, LOCK_BREAK, LOCK_EXTEND, LOCK_FENCE, LOCK_HELP, LOCK_RELEASE],
    run: Run::Subcommands,
    ..Command::DEFAULTS
};

const LOCK_HELP: Command = Command::help("lock|help", "0.1.0", || &LOCK);

/// Longest token, in bytes. A token is compared under a shard's lock, and kept in the entry.
const TOKEN_BYTES_MAX: usize = 1024;

const TOKEN: Argument = Argument::string("token");
const PX: Argument = Argument::integer("milliseconds").token("PX");

const LOCK_ACQUIRE: Command = Command {
    name: "lock|acquire",
    flags: Flags::DENYOOM.and(Flags::BLOCKING).and(Flags::FAST),
    keys: &[KeySpec::range(2, 0, 1, KeyFlags::OW.and(KeyFlags::INSERT))],
    locks: LockUse::IS_FOR_LOCKS,
    summary: "Takes a free lock and returns its fencing number; otherwise returns nil, or waits in line.",
    since: "1.0.0",
    complexity: "O(1)",
    // Without WAIT.
    cost: costs::ARGUMENTS.brief_up_to(6),
    prepares: Prepares::Texts,
    arguments: &[
        Argument::KEY,
        TOKEN,
        PX,
        Argument::integer("milliseconds").token("WAIT").optional(),
        Argument::pure_token("again", "AGAIN").optional(),
        Argument::pure_token("notify", "NOTIFY").optional(),
    ],
    tips: &["nondeterministic_output"],
    example: &[
        ("SETNX mylock token-1", "(integer) 1"),
        ("LOCK ACQUIRE mylock token-2 PX 30000", "(nil)"),
        ("LOCK ACQUIRE mylock token-2 PX 30000 WAIT 1", "(nil)"),
    ],
    run: Run::Block(&Blocking {
        kind: ABSENT_KIND,
        keys: 1,
        check: |request| Ok(Acquiring::parse(request)?.wait),
        take: acquire,
        nothing: |reply| reply.nil(),
        waiting: WaitingRules {
            timed_out: |reply| reply.nil(),
            applicant: Some(|request| {
                let Acquiring { token, is_again: comes_again, .. } = Acquiring::parse(request)?;
                Ok(Applicant { token, comes_again })
            }),
            notifies: Some(|request| {
                request.len() > WITHOUT_OPTIONS
                    && Acquiring::parse(request).is_ok_and(|acquiring| acquiring.is_notified)
            }),
            ..WaitingRules::PLAIN
        },
    }),
    ..STRING
};

/// The arguments of LOCK ACQUIRE without options.
const WITHOUT_OPTIONS: usize = 6;

/// The arguments of LOCK ACQUIRE.
struct Acquiring<'a> {
    token: &'a [u8],
    lifetime: &'a [u8],
    wait: Timeout<'a>,
    /// Whether the token may hold the lock already.
    is_again: bool,
    /// Whether the client is notified when it loses the lock.
    is_notified: bool,
}

impl<'a> Acquiring<'a> {
    fn parse(request: Request<'a>) -> Result<Acquiring<'a>> {
        let (token, lifetime) = token_and_lifetime(request)?;
        let (wait, is_again, is_notified) = (Timeout::None, false, false);
        let mut acquiring = Acquiring { token, lifetime, wait, is_again, is_notified };
        let mut options = Options::new(request, WITHOUT_OPTIONS);
        while let Some(option) = options.next() {
            match option {
                _ if is_word(option, "wait") && matches!(acquiring.wait, Timeout::None) => {
                    let timeout_ms = u64::try_from(args::integer(options.value()?)?);
                    let timeout_ms = timeout_ms.map_err(|_| Error::fixed("ERR timeout is negative"))?;
                    acquiring.wait = Timeout::Milliseconds(timeout_ms);
                }
                _ if is_word(option, "again") && !acquiring.is_again => acquiring.is_again = true,
                _ if is_word(option, "notify") && !acquiring.is_notified => acquiring.is_notified = true,
                _ => return Err(Error::SYNTAX),
            }
        }
        Ok(acquiring)
    }
}

/// The token and the lifetime of a request whose form is `LOCK name key token PX milliseconds`.
fn token_and_lifetime(request: Request<'_>) -> Result<(&[u8], &[u8])> {
    if !is_word(request.at(4), "px") {
        return Err(Error::SYNTAX);
    }
    Ok((token(request)?, request.at(5)))
}

fn token(request: Request<'_>) -> Result<&[u8]> {
    match request.at(3) {
        token if token.len() <= TOKEN_BYTES_MAX => Ok(token),
        _ => Err(Error::fixed("ERR token is too long: it may have 1024 bytes at most")),
    }
}

/// When a lock expires that is taken or extended now, in milliseconds since 1970.
fn expiry(tx: &Transaction<'_>, lifetime: &[u8], command: &str) -> Result<u64> {
    let lifetime_ms = args::integer(lifetime)?;
    let moment_ms = Some(lifetime_ms).filter(|ms| *ms > 0).and_then(|ms| tx.expiry_in_ms(ms));
    moment_ms.and_then(|ms| u64::try_from(ms).ok()).ok_or_else(|| Error::invalid_expire(command))
}

/// Takes the lock. If `served` is a key, the client is the first that waits for it; else it may have to wait.
fn acquire<'r>(
    tx: &mut Transaction<'_>,
    request: Request<'_>,
    served: Only<'_>,
    reply: Reply<'r>,
) -> Result<Taken<'r>> {
    let Acquiring { token, lifetime, wait, is_again, is_notified } = Acquiring::parse(request)?;
    if is_notified && tx.is_in_store() {
        return Err(Error::fixed("ERR NOTIFY is for locks in memory, and this key is in the store"));
    }
    let key = request.at(2);
    let expires_at_ms = expiry(tx, lifetime, "lock|acquire")?;
    if is_again && holds(tx, key, token) {
        let fence = fence_or_new(tx, key);
        tx.follow_taken_again(key);
        // Never sooner than it would.
        if tx.peek_expiry(key).flatten().is_some_and(|at_ms| at_ms < expires_at_ms) {
            tx.set_expiry(key, Some(expires_at_ms));
        }
        return Ok(Taken::Something(reply.integer(fence.cast_signed())));
    }
    let otherwise = match (served, wait) {
        // It goes on waiting.
        (Some(_), _) => None,
        (None, Timeout::None) => Some(LockChange::Refused),
        (None, _) if tx.grouping() != Grouping::Alone => Some(LockChange::Refused),
        (None, _) => Some(LockChange::Waits),
    };
    if served.is_none() && tx.leaves_to_line(key) {
        return Ok(Taken::Nothing(reply));
    }
    let Some(fence) = tx.acquire(key, token, expires_at_ms, otherwise) else {
        return Ok(Taken::Nothing(reply));
    };
    tell_of_write(tx, key, Expiry::At(expires_at_ms));
    Ok(Taken::Something(reply.integer(fence.cast_signed())))
}

const LOCK_EXTEND: Command = Command {
    name: "lock|extend",
    flags: Flags::FAST,
    keys: &[KeySpec::range(2, 0, 1, KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::UPDATE))],
    locks: LockUse::EXTENDS.and(LockUse::COMPARES).and(LockUse::IS_FOR_LOCKS),
    summary: "Makes a lock expire later and returns its fencing number, if the token holds it; otherwise nil.",
    since: "1.0.0",
    complexity: "O(1)",
    cost: costs::BRIEF,
    arguments: &[Argument::KEY, TOKEN, PX],
    tips: &["nondeterministic_output"],
    example: &[
        ("LOCK EXTEND mylock token-1 PX 30000", "(nil)"),
        ("SET mylock token-2 NX PX 30000", "OK"),
        ("LOCK EXTEND mylock token-1 PX 30000", "(nil)"),
    ],
    run: Run::Write(extend),
    ..STRING
};

fn extend(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let (token, lifetime) = token_and_lifetime(request)?;
    let key = request.at(2);
    let expires_at_ms = expiry(tx, lifetime, "lock|extend")?;
    if tx.peek::<Text>(key)? != Some(token) || !may_be_lock(tx, key) {
        tx.follow_unmet(key);
        return Ok(reply.nil());
    }
    let fence = fence_or_new(tx, key);
    tx.set_expiry(key, Some(expires_at_ms));
    Ok(reply.integer(fence.cast_signed()))
}

/// Whether a token holds a lock. A key of another type is held as any other.
fn holds(tx: &Transaction<'_>, key: &[u8], token: &[u8]) -> bool {
    tx.peek::<Text>(key).is_ok_and(|value| value == Some(token)) && may_be_lock(tx, key)
}

/// The number of a lock. One that was taken without a number gets one: it is larger than those of all earlier
/// holders.
fn fence_or_new(tx: &mut Transaction<'_>, key: &[u8]) -> u64 {
    match tx.fence_of(key) {
        Some(fence) => fence,
        None => tx.give_fence(key),
    }
}

/// Whether a string may be a lock: it was written because it was absent, or expires. Any other one only holds
/// what the client takes for a token, and would be gone after a time.
fn may_be_lock(tx: &Transaction<'_>, key: &[u8]) -> bool {
    tx.is_lock(key) || tx.peek_expiry(key).flatten().is_some() || tx.fence_of(key).is_some()
}

const LOCK_RELEASE: Command = Command {
    name: "lock|release",
    flags: Flags::FAST,
    keys: &[KeySpec::range(2, 0, 1, KeyFlags::RM.and(KeyFlags::DELETE))],
    locks: LockUse::DELETES.and(LockUse::COMPARES).and(LockUse::IS_FOR_LOCKS),
    summary: "Deletes a lock if the token holds it, which grants it to the next in line.",
    since: "1.0.0",
    complexity: "O(1)",
    cost: costs::BRIEF,
    arguments: &[Argument::KEY, TOKEN],
    example: &[
        ("SET mylock token-1 NX PX 30000", "OK"),
        ("LOCK RELEASE mylock token-2", "(integer) 0"),
        ("LOCK RELEASE mylock token-1", "(integer) 1"),
        ("EXISTS mylock", "(integer) 0"),
    ],
    run: Run::Write(release),
    ..STRING
};

fn release(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    delete_if(tx, request.at(2), Condition::Equal(token(request)?), reply)
}

const LOCK_BREAK: Command = Command {
    name: "lock|break",
    flags: Flags::ADMIN,
    keys: &[KeySpec::range(2, 0, 1, KeyFlags::RM.and(KeyFlags::DELETE))],
    summary: "Deletes a lock whatever its token is, which grants it to the next in line.",
    since: "1.0.0",
    complexity: "O(1)",
    cost: costs::BRIEF,
    arguments: &[Argument::KEY],
    example: &[
        ("SET mylock token-1 NX PX 30000", "OK"),
        ("LOCK BREAK mylock", "(integer) 1"),
        ("LOCK BREAK mylock", "(integer) 0"),
    ],
    run: Run::Write(break_open),
    ..STRING
};

fn break_open(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let key = request.at(2);
    // Locks of other libraries are hashes.
    let is_lock = tx.is_lock(key) || tx.peek::<Text>(key)?.is_some() && may_be_lock(tx, key);
    if is_lock {
        tx.break_lock(key);
        tx.event(EventClass::GENERIC, "del", key);
    }
    Ok(reply.bool(is_lock))
}

const LOCK_FENCE: Command = Command {
    name: "lock|fence",
    flags: Flags::FAST,
    keys: &[KeySpec::range(2, 0, 1, KeyFlags::RO.and(KeyFlags::ACCESS))],
    locks: LockUse::COMPARES.and(LockUse::IS_FOR_LOCKS),
    summary: "Returns the fencing number of a lock, if the token holds it; otherwise nil.",
    since: "1.0.0",
    complexity: "O(1)",
    cost: costs::BRIEF,
    arguments: &[Argument::KEY, TOKEN],
    tips: &["nondeterministic_output"],
    example: &[("LOCK FENCE nosuchlock token-1", "(nil)")],
    run: Run::Read(fence),
    ..STRING
};

fn fence(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let (key, token) = (request.at(2), token(request)?);
    let holds = tx.get::<Text>(key)? == Some(token);
    Ok(match holds.then(|| tx.fence_of(key)).flatten() {
        Some(fence) => reply.integer(fence.cast_signed()),
        None => reply.nil(),
    })
}
