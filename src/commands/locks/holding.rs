//! LOCK: locks that are taken with a token and a fencing number. No other server has it.
//!
//! The key is an ordinary string with the holder's token and an expiry. So SETNX and SET NX of other clients
//! are refused by it, and DEL and the scripts of other libraries release it. The number comes with the reply
//! that grants the lock. It grows from holder to holder, so what the lock protects can refuse a holder that
//! was paused while its lock expired.

use crate::events::EventClass;
use crate::keyspace::{BondTerms, Expiry, Grouping, GuardWish, LockChange, Transaction};
use crate::resp::{Reply, Request};
use crate::types::strings::Text;
use crate::values::ABSENT_KIND;

use crate::commands::args::{self, Options, is_word};
use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::facts::{
    Argument, Blocking, Categories, Command, Flags, Group, KeyFlags, KeySpec, LockUse, Only, Patience,
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

const BOUND: Argument = Argument::block(
    "bound",
    &[
        Argument::pure_token("bound", "BOUND"),
        Argument::integer("milliseconds").token("GRACE").optional(),
        Argument::integer("milliseconds").token("MAX").optional(),
    ],
);

/// The shortest lease that is renewed, in milliseconds: a thread may be late by a good part of less.
const BOUND_LEASE_MS_MIN: i64 = 100;

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
        BOUND.optional(),
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
        check: |request| {
            let Acquiring { wait: timeout, is_again: comes_again, .. } = Acquiring::parse(request)?;
            Ok(Patience { timeout, comes_again })
        },
        take: acquire,
        nothing: |reply| reply.nil(),
        waiting: WaitingRules {
            timed_out: |reply| reply.nil(),
            token: Some(TOKEN_AT),
            ..WaitingRules::PLAIN
        },
    }),
    ..STRING
};

/// The place of the token among the arguments of all but BREAK.
const TOKEN_AT: usize = 3;

/// The arguments of LOCK ACQUIRE and LOCK EXTEND without options.
const WITHOUT_OPTIONS: usize = 6;

/// The arguments of LOCK ACQUIRE.
struct Acquiring<'a> {
    token: &'a [u8],
    lifetime: &'a [u8],
    wait: Timeout<'a>,
    /// Whether the token may hold the lock already.
    is_again: bool,
    /// How the lock is bound to the client's connection, if it is.
    bound: Option<Bound>,
    /// Whether the client is notified when it loses the lock.
    is_notified: bool,
}

/// The values of BOUND, in milliseconds.
#[derive(Clone, Copy, Default)]
struct Bound {
    grace_ms: Option<u64>,
    max_ms: Option<u64>,
}

impl Bound {
    /// Reads one option, if it is BOUND or one of those that follow it. Returns whether it is.
    fn read<'a>(bound: &mut Option<Bound>, option: &[u8], options: &mut Options<'a>) -> Result<bool> {
        let mut milliseconds = |is_enough: fn(i64) -> bool, error| {
            let milliseconds = args::integer(options.value()?)?;
            u64::try_from(milliseconds).ok().filter(|_| is_enough(milliseconds)).ok_or(error).map(Some)
        };
        match bound {
            None if is_word(option, "bound") => *bound = Some(Bound::default()),
            Some(Bound { grace_ms: grace @ None, .. }) if is_word(option, "grace") => {
                *grace = milliseconds(|ms| ms >= 0, Error::fixed("ERR GRACE must not be negative"))?;
            }
            Some(Bound { max_ms: max @ None, .. }) if is_word(option, "max") => {
                *max = milliseconds(|ms| ms > 0, Error::fixed("ERR MAX must be positive"))?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The terms for a lease, if the lock may be bound.
    fn terms(self, tx: &Transaction<'_>, lifetime: &[u8]) -> Result<BondTerms> {
        if tx.is_in_store() {
            return Err(Error::fixed("ERR BOUND is for locks in memory, and this key is in the store"));
        }
        let lease_ms = args::integer(lifetime)?;
        if lease_ms < BOUND_LEASE_MS_MIN {
            return Err(Error::fixed("ERR BOUND needs a PX of 100 milliseconds at least"));
        }
        let Bound { grace_ms, max_ms } = self;
        Ok(BondTerms { lease_ms: lease_ms.unsigned_abs(), grace_ms, max_ms })
    }
}

impl<'a> Acquiring<'a> {
    fn parse(request: Request<'a>) -> Result<Acquiring<'a>> {
        let (token, lifetime) = token_and_lifetime(request)?;
        let (wait, is_again, bound, is_notified) = (Timeout::None, false, None, false);
        let mut acquiring = Acquiring { token, lifetime, wait, is_again, bound, is_notified };
        let mut options = Options::new(request, WITHOUT_OPTIONS);
        while let Some(option) = options.next() {
            match option {
                _ if is_word(option, "wait") && matches!(acquiring.wait, Timeout::None) => {
                    let timeout_ms = u64::try_from(args::integer(options.value()?)?);
                    let timeout_ms = timeout_ms.map_err(|_| Error::fixed("ERR timeout is negative"))?;
                    acquiring.wait = Timeout::Milliseconds(timeout_ms);
                }
                _ if Bound::read(&mut acquiring.bound, option, &mut options)? => {}
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
    match request.at(TOKEN_AT) {
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
    let Acquiring { token, lifetime, wait, is_again, bound, is_notified } = Acquiring::parse(request)?;
    if is_notified && tx.is_in_store() {
        return Err(Error::fixed("ERR NOTIFY is for locks in memory, and this key is in the store"));
    }
    let key = request.at(2);
    let expires_at_ms = expiry(tx, lifetime, "lock|acquire")?;
    let bond = bound.map(|bound| bound.terms(tx, lifetime)).transpose()?;
    let wish = |tx: &Transaction<'_>| {
        if is_notified || bond.is_some() {
            tx.wish(GuardWish { key: key.into(), is_notified, bond });
        }
    };
    if is_again && holds(tx, key, token) {
        let fence = fence_or_new(tx, key);
        tx.follow_taken_again(key);
        // Never sooner than it would.
        if tx.peek_expiry(key).flatten().is_some_and(|at_ms| at_ms < expires_at_ms) {
            tx.set_expiry(key, Some(expires_at_ms));
        }
        if bond.is_none() {
            tx.promise_lock(key, expires_at_ms);
        }
        wish(tx);
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
    wish(tx);
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
    cost: costs::ARGUMENTS.brief_up_to(6),
    arguments: &[Argument::KEY, TOKEN, PX, BOUND.optional()],
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
    let mut bound = None;
    let mut options = Options::new(request, WITHOUT_OPTIONS);
    while let Some(option) = options.next() {
        if !Bound::read(&mut bound, option, &mut options)? {
            return Err(Error::SYNTAX);
        }
    }
    let expires_at_ms = expiry(tx, lifetime, "lock|extend")?;
    let bond = bound.map(|bound| bound.terms(tx, lifetime)).transpose()?;
    if tx.peek::<Text>(key)? != Some(token) || !may_be_lock(tx, key) {
        tx.follow_unmet(key);
        return Ok(reply.nil());
    }
    let fence = fence_or_new(tx, key);
    tx.set_expiry(key, Some(expires_at_ms));
    if bond.is_some() {
        tx.wish(GuardWish { key: key.into(), is_notified: false, bond });
    }
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
