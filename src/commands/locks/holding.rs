//! LOCK: locks that are taken with a token and a fencing number. No other server has it.
//!
//! The key is an ordinary string with the holder's token and an expiry. So SETNX and SET NX of other clients
//! are refused by it, and DEL and the scripts of other libraries release it. The number comes with the reply
//! that grants the lock. It grows from holder to holder, so what the lock protects can refuse a holder that
//! was paused while its lock expired.

use crate::events::EventClass;
use crate::keyspace::{BondTerms, GuardWish, LockChange, Transaction};
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
use crate::commands::strings::basics::Condition;
use crate::commands::strings::compare::delete_if;

use super::arguments::{
    ALSO, Acquiring, BOUND, Bound, HOLDERS, PX, TOKEN, TOKEN_AT, WITHOUT_MORE, WITHOUT_OPTIONS,
    also_among_options, also_behind_token, expiry, read_also, read_more, token, token_and_lifetime,
    with_first,
};
use super::owning::{fence_or_new, holds, may_be_lock, take_again, tell_of_taking};
use super::permits::{self, Permits};
use super::several::{self, Grab, Holding};

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
    keys: &[
        KeySpec::range(2, 0, 1, KeyFlags::OW.and(KeyFlags::INSERT)),
        KeySpec::stated_behind("ALSO", 6, also_among_options, KeyFlags::OW.and(KeyFlags::INSERT)),
    ],
    locks: LockUse::IS_FOR_LOCKS.and(LockUse::MAY_WAIT),
    summary: "Takes a free lock, or several, and returns the fencing number; otherwise returns nil, or waits in line.",
    since: "1.0.0",
    complexity: "O(N) where N is the number of keys",
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
        ALSO.optional(),
    ],
    tips: &["nondeterministic_output"],
    example: &[
        ("SETNX mylock token-1", "(integer) 1"),
        ("LOCK ACQUIRE mylock token-2 PX 30000", "(nil)"),
        ("LOCK ACQUIRE mylock token-2 PX 30000 WAIT 1", "(nil)"),
        ("LOCK ACQUIRE otherlock token-2 PX 30000 ALSO 1 mylock", "(nil)"),
    ],
    run: Run::Block(&Blocking {
        kind: ABSENT_KIND,
        keys: usize::MAX,
        check: |request| {
            let Acquiring { wait: timeout, is_again: comes_again, limit, .. } = Acquiring::parse(request)?;
            Ok(Patience { timeout, comes_again, joins: limit.map(|_| SORTED_SET_KIND) })
        },
        take: acquire,
        nothing: |reply| reply.nil(),
        waiting: WaitingRules {
            timed_out: |reply| reply.nil(),
            token: Some(TOKEN_AT),
            again_at_ms: Some(|tx, request, key| {
                permits::again_at_ms(tx, key, &Acquiring::parse(request).ok()?)
            }),
            takes_all: Some(several::lacks),
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
        let all = with_first(request, acquiring.also.clone());
        let keys = if acquiring.also.is_empty() { vec![key] } else { several::once(all) };
        return permits::acquire(tx, (&keys, limit), &acquiring, served.is_some(), reply);
    }
    let Acquiring { token, lifetime, is_again, bound, is_notified, .. } = acquiring;
    let expires_at_ms = expiry(tx, lifetime, "lock|acquire")?;
    let bond = bound.map(|bound| bound.terms(lifetime)).transpose()?;
    let otherwise = match served {
        // It goes on waiting.
        Some(_) => None,
        None if acquiring.waits(tx) => Some(LockChange::Waits),
        None => Some(LockChange::Refused),
    };
    let is_newcomer = served.is_none();
    let fence = match () {
        () if !acquiring.also.is_empty() => {
            let keys = with_first(request, acquiring.also.clone());
            several::acquire(
                tx,
                &Grab { acquiring: &acquiring, expires_at_ms, otherwise, is_newcomer },
                keys,
            )?
        }
        () if is_again && holds(tx, key, token) => Some(take_again(tx, key, expires_at_ms, bond.is_some())),
        () if is_newcomer && tx.leaves_to_line(key) => None,
        () => {
            if tx.is_in_store() {
                permits::make_way_in_store(tx, key, acquiring.waits(tx))?;
            }
            let fence = tx.acquire(key, token, expires_at_ms, otherwise);
            match fence {
                Some(_) => tell_of_taking(tx, key, expires_at_ms, is_newcomer),
                None => permits::refuse_upgrade(tx, key, token)?,
            }
            fence
        }
    };
    let Some(fence) = fence else { return Ok(Taken::Nothing(reply)) };
    if is_notified || bond.is_some() {
        wish_for(tx, with_first(request, acquiring.also), is_notified, bond);
    }
    Ok(Taken::Something(reply.integer(fence.cast_signed())))
}

/// Notes what the client wants of each of the locks besides.
fn wish_for<'k>(
    tx: &Transaction<'_>,
    keys: impl Iterator<Item = &'k [u8]>,
    is_notified: bool,
    bond: Option<BondTerms>,
) {
    keys.for_each(|key| tx.wish(GuardWish { key: key.into(), permit: None, is_notified, bond }));
}

const EXTENDED: KeyFlags = KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::UPDATE);

const LOCK_EXTEND: Command = Command {
    name: "lock|extend",
    flags: Flags::FAST,
    keys: &[
        KeySpec::range(2, 0, 1, EXTENDED),
        KeySpec::stated_behind("ALSO", 6, also_among_options, EXTENDED),
    ],
    locks: LockUse::EXTENDS.and(LockUse::COMPARES).and(LockUse::IS_FOR_LOCKS),
    summary: "Makes a lock, or several, expire later and returns the fencing number, if the token holds all.",
    since: "1.0.0",
    complexity: "O(N) where N is the number of keys",
    cost: costs::ARGUMENTS.brief_up_to(6),
    arguments: &[Argument::KEY, TOKEN, PX, BOUND.optional(), ALSO.optional()],
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
    let (mut bound, mut also) = (None, 0..0);
    let mut options = Options::new(request, WITHOUT_OPTIONS);
    while let Some(option) = options.next() {
        let is_known = Bound::read(&mut bound, option, &mut options)?
            || read_also(&mut also, option, &mut options, request)?;
        if !is_known {
            return Err(Error::SYNTAX);
        }
    }
    let expires_at_ms = expiry(tx, lifetime, "lock|extend")?;
    let bond = bound.map(|bound| bound.terms(lifetime)).transpose()?;
    let keys = with_first(request, also);
    let (mut lacking, mut permits) = (Vec::new(), Vec::new());
    for key in keys.clone() {
        match several::holding(tx, key, token)? {
            Holding::Lock if may_be_lock(tx, key) => {}
            Holding::Permit if permits.contains(&key) => {}
            Holding::Permit => permits.push(key),
            _ => lacking.push(key),
        }
    }
    if !lacking.is_empty() {
        lacking.into_iter().for_each(|key| tx.follow_unmet(key));
        return Ok(reply.nil());
    }
    // A permit that is extended has a new number, which is the largest.
    let mut fence = permits::extend(tx, &permits, token, (lifetime, bound))?.unwrap_or(0);
    for key in keys {
        if permits.is_empty() || !permits::are_at(tx, key) {
            fence = fence_or_new(tx, key).max(fence);
            tx.set_expiry(key, Some(expires_at_ms));
            if bond.is_some() {
                tx.wish(GuardWish { key: key.into(), permit: None, is_notified: false, bond });
            }
        }
    }
    Ok(reply.integer(fence.cast_signed()))
}

const LOCK_RELEASE: Command = Command {
    name: "lock|release",
    flags: Flags::FAST,
    keys: &[
        KeySpec::range(2, 0, 1, KeyFlags::RM.and(KeyFlags::DELETE)),
        KeySpec::stated_behind("ALSO", 4, also_behind_token, KeyFlags::RM.and(KeyFlags::DELETE)),
    ],
    locks: LockUse::DELETES.and(LockUse::COMPARES).and(LockUse::IS_FOR_LOCKS),
    summary: "Deletes those of the locks that the token holds, which grants them to the next in line. Returns their number.",
    since: "1.0.0",
    complexity: "O(N) where N is the number of keys",
    cost: costs::ARGUMENTS.brief_up_to(4),
    arguments: &[Argument::KEY, TOKEN, ALSO.optional()],
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
    if request.len() > WITHOUT_MORE {
        return several::release(tx, with_first(request, read_more(request)?), token, reply);
    }
    let is_released = match delete_if(tx, key, Condition::Equal(token)) {
        Err(_) if permits::are_held(tx, key, token) => permits::give_back(tx, key, token).map(|()| true)?,
        Err(_) if permits::is_set(tx, key) => false,
        deleted => deleted?,
    };
    Ok(reply.bool(is_released))
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
