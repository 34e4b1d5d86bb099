//! LOCK: locks that are taken with a token and a fencing number. No other server has it.
//!
//! The key is an ordinary string with the holder's token and an expiry. So SETNX and SET NX of other clients
//! are refused by it, and DEL and the scripts of other libraries release it. The number comes with the reply
//! that grants the lock. It grows from holder to holder, so what the lock protects can refuse a holder that
//! was paused while its lock expired.

use crate::events::EventClass;
use crate::keyspace::{Expiry, GuardWish, LockChange, Transaction};
use crate::resp::{Reply, Request};
use crate::types::strings::Text;
use crate::values::{ABSENT_KIND, SORTED_SET_KIND};

use crate::commands::args::Options;
use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::facts::{
    Argument, Blocking, Categories, Command, Flags, Group, KeyFlags, KeySpec, LockUse, Only, Patience,
    Prepares, Result, Run, Taken, WaitingRules,
};
use crate::commands::strings::basics::{Condition, tell_of_write};
use crate::commands::strings::compare::delete_if;

use super::arguments::{
    Acquiring, BOUND, Bound, HOLDERS, PX, TOKEN, TOKEN_AT, WITHOUT_OPTIONS, expiry, token, token_and_lifetime,
};
use super::permits::{self, Permits};

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

const LOCK_ACQUIRE: Command = Command {
    name: "lock|acquire",
    flags: Flags::DENYOOM.and(Flags::BLOCKING).and(Flags::FAST),
    keys: &[KeySpec::range(2, 0, 1, KeyFlags::OW.and(KeyFlags::INSERT))],
    locks: LockUse::IS_FOR_LOCKS.and(LockUse::MAY_WAIT),
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
        HOLDERS.optional(),
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
            let Acquiring { wait: timeout, is_again: comes_again, limit, .. } = Acquiring::parse(request)?;
            Ok(Patience { timeout, comes_again, joins: limit.map(|_| SORTED_SET_KIND) })
        },
        take: acquire,
        nothing: |reply| reply.nil(),
        waiting: WaitingRules {
            timed_out: |reply| reply.nil(),
            token: Some(TOKEN_AT),
            again_at_ms: Some(|tx, request| {
                permits::again_at_ms(tx, request.at(2), Acquiring::parse(request).ok()?.limit)
            }),
            ..WaitingRules::PLAIN
        },
    }),
    ..STRING
};

/// Takes the lock. If `served` is a key, the client is the first that waits for it; else it may have to wait.
fn acquire<'r>(
    tx: &mut Transaction<'_>,
    request: Request<'_>,
    served: Only<'_>,
    reply: Reply<'r>,
) -> Result<Taken<'r>> {
    let acquiring = Acquiring::parse(request)?;
    let key = request.at(2);
    if let Some(limit) = acquiring.limit {
        return permits::acquire(tx, (key, limit), &acquiring, served.is_some(), reply);
    }
    let Acquiring { token, lifetime, is_again, bound, is_notified, .. } = acquiring;
    let expires_at_ms = expiry(tx, lifetime, "lock|acquire")?;
    let bond = bound.map(|bound| bound.terms(lifetime)).transpose()?;
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
    let otherwise = match served {
        // It goes on waiting.
        Some(_) => None,
        None if acquiring.waits(tx) => Some(LockChange::Waits),
        None => Some(LockChange::Refused),
    };
    if served.is_none() && tx.leaves_to_line(key) {
        return Ok(Taken::Nothing(reply));
    }
    if tx.is_in_store() {
        permits::make_way_in_store(tx, key, acquiring.waits(tx))?;
    }
    let Some(fence) = tx.acquire(key, token, expires_at_ms, otherwise) else {
        permits::refuse_upgrade(tx, key, token)?;
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
    let value = tx.peek::<Text>(key);
    if value.is_err() && permits::is_set(tx, key) {
        return permits::extend(tx, key, token, (lifetime, bound.is_some()), reply);
    }
    let is_held = value.map(|value| value == Some(token));
    let expires_at_ms = expiry(tx, lifetime, "lock|extend")?;
    let bond = bound.map(|bound| bound.terms(lifetime)).transpose()?;
    if !is_held? || !may_be_lock(tx, key) {
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
    let (key, token) = (request.at(2), token(request)?);
    if tx.peek::<Text>(key).is_err() && permits::is_set(tx, key) {
        return permits::release(tx, key, token, reply);
    }
    delete_if(tx, key, Condition::Equal(token), reply)
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
    let is_lock = tx.is_lock(key)
        || Permits::at(tx, key).is_some()
        || tx.peek::<Text>(key)?.is_some() && may_be_lock(tx, key);
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
    let holds = match tx.get::<Text>(key) {
        // A permit has no number.
        Err(_) if permits::is_set(tx, key) => false,
        value => value? == Some(token),
    };
    Ok(match holds.then(|| tx.fence_of(key)).flatten() {
        Some(fence) => reply.integer(fence.cast_signed()),
        None => reply.nil(),
    })
}
