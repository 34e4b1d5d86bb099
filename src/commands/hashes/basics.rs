//! Hashes: values by fields.

use crate::keyspace::{LockChange, Token, Transaction};
use crate::lens::speaks_of_lock;
use crate::long_double::LongDouble;
use crate::resp::number::parse_integer;
use crate::resp::{Reply, Request};
use crate::types::hashes::{Hash, HashView};
use crate::values::expiring::Expiring;

use crate::commands::args;
use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::facts::{
    Argument, Categories, Command, Deprecated, Flags, Group, KeyFlags, KeySpec, LockUse, Result, Run,
};
use crate::commands::random_and_scan::{Selection, Wanted, reply_scanned};

pub(in crate::commands) const COMMANDS: &[Command] = &[
    HDEL,
    HEXISTS,
    HGET,
    HGETALL,
    HINCRBY,
    HINCRBYFLOAT,
    HKEYS,
    HLEN,
    HMGET,
    HMSET,
    HRANDFIELD,
    HSCAN,
    HSET,
    HSETNX,
    HSTRLEN,
    HVALS,
];

/// The facts that most commands of this file share.
const HASH: Command = Command { categories: Categories::HASH, group: Group::HASH, ..Command::DEFAULTS };

const HSET: Command = Command {
    name: "hset",
    flags: Flags::DENYOOM.and(Flags::FAST),
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::UPDATE))],
    summary: "Sets fields of a hash, creating it if it is absent; returns how many fields are new.",
    since: "2.0.0",
    complexity: "O(1) for each field/value pair added, so O(N) to add N field/value pairs when the command is called with multiple field/value pairs.",
    cost: costs::BRIEF,
    arguments: &[
        Argument::KEY,
        Argument::block("data", &[Argument::string("field"), Argument::string("value")]).multiple(),
    ],
    example: &[
        ("HSET myhash field1 Hello field2 World", "(integer) 2"),
        ("HSET myhash field1 Hi", "(integer) 0"),
        ("HGETALL myhash", "[\"field1\", \"Hi\", \"field2\", \"World\"]"),
    ],
    run: Run::Write(hset),
    ..HASH
};

fn hset(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    Ok(reply.count(set_fields(tx, request, "hset")?))
}

/// Sets the fields of a request; returns how many are new.
fn set_fields(tx: &mut Transaction<'_>, request: Request<'_>, command: &str) -> Result<usize> {
    if !request.len().is_multiple_of(2) {
        return Err(Error::wrong_arity(command));
    }
    let fields = (2..request.len()).step_by(2);
    let added = tx.make::<Hash, _>(request.at(1), "hset", |hash| {
        fields.filter(|at| hash.insert(request.at(*at), request.at(at + 1))).count()
    })?;
    Ok(added)
}

const HSETNX: Command = Command {
    name: "hsetnx",
    flags: Flags::DENYOOM.and(Flags::FAST),
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::INSERT))],
    summary: "Sets a field of a hash only if the field is absent.",
    since: "2.0.0",
    complexity: "O(1)",
    cost: costs::BRIEF,
    arguments: &[Argument::KEY, Argument::string("field"), Argument::string("value")],
    example: &[
        ("HSETNX myhash field Hello", "(integer) 1"),
        ("HSETNX myhash field World", "(integer) 0"),
        ("HGET myhash field", "\"Hello\""),
    ],
    run: Run::Write(hsetnx),
    ..HASH
};

fn hsetnx(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let (key, field) = (request.at(1), request.at(2));
    let is_new = tx.make::<Hash, _>(key, "hset", |hash| {
        hash.view().get(field).is_none() && hash.insert(field, request.at(3))
    })?;
    if tx.reports_locks() && speaks_of_lock(field) {
        let own_ms = tx.glance_at::<Hash>(key).and_then(|hash| hash.expires_at_ms(field)).flatten();
        let expires_at_ms = [own_ms, tx.peek_expiry(key).flatten()].into_iter().flatten().min();
        let change = match is_new {
            true => LockChange::FieldTaken { token: Token::of(request.at(3)), expires_at_ms },
            false => LockChange::FieldRefused { expires_at_ms },
        };
        tx.follow_field(key, field, change);
    }
    Ok(reply.bool(is_new))
}

const HMSET: Command = Command {
    name: "hmset",
    flags: Flags::DENYOOM.and(Flags::FAST),
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::UPDATE))],
    summary: "Sets fields of a hash, creating it if it is absent.",
    since: "2.0.0",
    complexity: "O(N) where N is the number of fields being set.",
    cost: costs::ARGUMENTS,
    deprecated: Some(Deprecated { since: "4.0.0", replaced_by: "`HSET` with multiple field-value pairs" }),
    arguments: &[
        Argument::KEY,
        Argument::block("data", &[Argument::string("field"), Argument::string("value")]).multiple(),
    ],
    example: &[("HMSET myhash field1 Hello field2 World", "OK"), ("HGET myhash field2", "\"World\"")],
    run: Run::Write(hmset),
    ..HASH
};

fn hmset(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    set_fields(tx, request, "hmset")?;
    Ok(reply.ok())
}

const HGET: Command = Command {
    name: "hget",
    flags: Flags::FAST,
    keys: &[KeySpec::first(KeyFlags::RO.and(KeyFlags::ACCESS))],
    locks: LockUse::LOOKS_INTO,
    summary: "Returns the value of a hash field.",
    since: "2.0.0",
    complexity: "O(1)",
    cost: costs::BRIEF,
    arguments: &[Argument::KEY, Argument::string("field")],
    example: &[
        ("HSET myhash field1 foo", "(integer) 1"),
        ("HGET myhash field1", "\"foo\""),
        ("HGET myhash field2", "(nil)"),
    ],
    run: Run::Read(hget),
    ..HASH
};

fn hget(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let hash = tx.get::<Hash>(request.at(1))?;
    Ok(reply.bulk_or_nil(hash.and_then(|hash| hash.get(request.at(2)))))
}

const HMGET: Command = Command {
    name: "hmget",
    flags: Flags::FAST,
    keys: &[KeySpec::first(KeyFlags::RO.and(KeyFlags::ACCESS))],
    locks: LockUse::LOOKS_INTO,
    summary: "Returns the values of several hash fields.",
    since: "2.0.0",
    complexity: "O(N) where N is the number of fields being requested.",
    cost: costs::BRIEF,
    arguments: &[Argument::KEY, Argument::string("field").multiple()],
    example: &[
        ("HSET myhash field1 Hello field2 World", "(integer) 2"),
        ("HMGET myhash field1 field2 nofield", "[\"Hello\", \"World\", (nil)]"),
    ],
    run: Run::Read(hmget),
    ..HASH
};

fn hmget(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let hash = tx.get::<Hash>(request.at(1))?;
    Ok(reply
        .array_of(request.from(2), |field, reply| reply.bulk_or_nil(hash.and_then(|hash| hash.get(field)))))
}

const HGETALL: Command = Command {
    name: "hgetall",
    keys: &[KeySpec::first(KeyFlags::RO.and(KeyFlags::ACCESS))],
    locks: LockUse::LOOKS_INTO,
    summary: "Returns all fields of a hash with their values.",
    since: "2.0.0",
    complexity: "O(N) where N is the size of the hash.",
    cost: costs::ALL,
    tips: &["nondeterministic_output_order"],
    arguments: &[Argument::KEY],
    example: &[("HSET myhash field1 Hello", "(integer) 1"), ("HGETALL myhash", "[\"field1\", \"Hello\"]")],
    run: Run::Read(hgetall),
    ..HASH
};

fn hgetall(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let hash = tx.get::<Hash>(request.at(1))?;
    let parts = hash.into_iter().flat_map(HashView::iter).flat_map(|(field, value)| [field, value]);
    Ok(reply.map_of(len(hash), parts, |part, reply| reply.bulk(part)))
}

fn len(hash: Option<HashView<'_>>) -> usize {
    hash.map_or(0, HashView::len)
}

const HKEYS: Command = Command {
    name: "hkeys",
    keys: &[KeySpec::first(KeyFlags::RO.and(KeyFlags::ACCESS))],
    summary: "Returns the names of all fields of a hash.",
    since: "2.0.0",
    complexity: "O(N) where N is the size of the hash.",
    cost: costs::ALL,
    tips: &["nondeterministic_output_order"],
    arguments: &[Argument::KEY],
    example: &[
        ("HSET myhash field1 Hello field2 World", "(integer) 2"),
        ("HKEYS myhash", "[\"field1\", \"field2\"]"),
    ],
    run: Run::Read(hkeys),
    ..HASH
};

fn hkeys(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let hash = tx.get::<Hash>(request.at(1))?;
    let fields = hash.into_iter().flat_map(HashView::iter).map(|(field, _)| field);
    Ok(reply.array_of_len(len(hash), fields, |field, reply| reply.bulk(field)))
}

const HVALS: Command = Command {
    name: "hvals",
    summary: "Returns the values of all fields of a hash.",
    example: &[
        ("HSET myhash field1 Hello field2 World", "(integer) 2"),
        ("HVALS myhash", "[\"Hello\", \"World\"]"),
    ],
    run: Run::Read(hvals),
    ..HKEYS
};

fn hvals(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let hash = tx.get::<Hash>(request.at(1))?;
    let values = hash.into_iter().flat_map(HashView::iter).map(|(_, value)| value);
    Ok(reply.array_of_len(len(hash), values, |value, reply| reply.bulk(value)))
}

const HLEN: Command = Command {
    name: "hlen",
    flags: Flags::FAST,
    keys: &[KeySpec::first(KeyFlags::RO)],
    summary: "Returns the number of fields in a hash.",
    since: "2.0.0",
    complexity: "O(1)",
    cost: costs::BRIEF,
    arguments: &[Argument::KEY],
    example: &[("HSET myhash field1 Hello field2 World", "(integer) 2"), ("HLEN myhash", "(integer) 2")],
    run: Run::Read(hlen),
    ..HASH
};

fn hlen(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    Ok(reply.count(len(tx.get::<Hash>(request.at(1))?)))
}

const HSTRLEN: Command = Command {
    name: "hstrlen",
    flags: Flags::FAST,
    keys: &[KeySpec::first(KeyFlags::RO)],
    summary: "Returns the length in bytes of the value of a hash field.",
    since: "3.2.0",
    complexity: "O(1)",
    cost: costs::BRIEF,
    arguments: &[Argument::KEY, Argument::string("field")],
    example: &[
        ("HSET myhash f1 HelloWorld f2 99", "(integer) 2"),
        ("HSTRLEN myhash f1", "(integer) 10"),
        ("HSTRLEN myhash nofield", "(integer) 0"),
    ],
    run: Run::Read(hstrlen),
    ..HASH
};

fn hstrlen(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let hash = tx.get::<Hash>(request.at(1))?;
    Ok(reply.count(hash.and_then(|hash| hash.get(request.at(2))).map_or(0, <[u8]>::len)))
}

const HEXISTS: Command = Command {
    name: "hexists",
    flags: Flags::FAST,
    keys: &[KeySpec::first(KeyFlags::RO)],
    locks: LockUse::LOOKS_INTO,
    summary: "Returns whether a hash has a field.",
    since: "2.0.0",
    complexity: "O(1)",
    cost: costs::BRIEF,
    arguments: &[Argument::KEY, Argument::string("field")],
    example: &[
        ("HSET myhash field1 foo", "(integer) 1"),
        ("HEXISTS myhash field1", "(integer) 1"),
        ("HEXISTS myhash field2", "(integer) 0"),
    ],
    run: Run::Read(hexists),
    ..HASH
};

fn hexists(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let hash = tx.get::<Hash>(request.at(1))?;
    Ok(reply.bool(hash.is_some_and(|hash| hash.get(request.at(2)).is_some())))
}

const HDEL: Command = Command {
    name: "hdel",
    flags: Flags::FAST,
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::DELETE))],
    summary: "Removes fields from a hash; a hash without fields is deleted.",
    since: "2.0.0",
    complexity: "O(N) where N is the number of fields to be removed.",
    cost: costs::BRIEF,
    arguments: &[Argument::KEY, Argument::string("field").multiple()],
    example: &[
        ("HSET myhash field1 foo", "(integer) 1"),
        ("HDEL myhash field1", "(integer) 1"),
        ("HDEL myhash field2", "(integer) 0"),
    ],
    run: Run::Write(hdel),
    ..HASH
};

fn hdel(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let removed = tx.change::<Hash, _>(request.at(1), "hdel", |hash| {
        request.from(2).filter(|field| hash.remove(field)).count()
    })?;
    if removed.is_some_and(|removed| removed > 0) && tx.reports_locks() {
        for field in request.from(2).filter(|field| speaks_of_lock(field)) {
            tx.follow_field(request.at(1), field, LockChange::FieldFreed);
        }
    }
    Ok(reply.count(removed.unwrap_or(0)))
}

const HINCRBY: Command = Command {
    name: "hincrby",
    flags: Flags::DENYOOM.and(Flags::FAST),
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::UPDATE))],
    summary: "Adds a number to the integer in a hash field; an absent field counts as 0.",
    since: "2.0.0",
    complexity: "O(1)",
    cost: costs::BRIEF,
    arguments: &[Argument::KEY, Argument::string("field"), Argument::integer("increment")],
    example: &[
        ("HSET myhash field 5", "(integer) 1"),
        ("HINCRBY myhash field 1", "(integer) 6"),
        ("HINCRBY myhash field -10", "(integer) -4"),
    ],
    run: Run::Write(hincrby),
    ..HASH
};

fn hincrby(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let (key, field, amount) = (request.at(1), request.at(2), args::integer(request.at(3))?);
    let before = match tx.peek::<Hash>(key)?.and_then(|hash| hash.get(field)) {
        Some(value) => parse_integer(value).ok_or(Error::fixed("ERR hash value is not an integer"))?,
        None => 0,
    };
    let after = before.checked_add(amount).ok_or(Error::OVERFLOW)?;
    tx.make::<Hash, _>(key, "hincrby", |hash| {
        hash.replace(field, itoa::Buffer::new().format(after).as_bytes())
    })?;
    Ok(reply.integer(after))
}

const HINCRBYFLOAT: Command = Command {
    name: "hincrbyfloat",
    flags: Flags::DENYOOM.and(Flags::FAST),
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::UPDATE))],
    summary: "Adds a decimal number to the number in a hash field; an absent field counts as 0.",
    since: "2.6.0",
    complexity: "O(1)",
    cost: costs::BRIEF,
    arguments: &[Argument::KEY, Argument::string("field"), Argument::double("increment")],
    example: &[
        ("HSET mykey field 10.50", "(integer) 1"),
        ("HINCRBYFLOAT mykey field 0.1", "\"10.6\""),
        ("HINCRBYFLOAT mykey field -5", "\"5.6\""),
    ],
    run: Run::Write(hincrbyfloat),
    ..HASH
};

fn hincrbyfloat(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let (key, field) = (request.at(1), request.at(2));
    let amount = LongDouble::parse(request.at(3)).ok_or(Error::NOT_A_FLOAT)?;
    if !amount.is_finite() {
        return Err(Error::fixed("ERR value is NaN or Infinity"));
    }
    let before = match tx.peek::<Hash>(key)?.and_then(|hash| hash.get(field)) {
        Some(value) => LongDouble::parse(value).ok_or(Error::fixed("ERR hash value is not a float"))?,
        None => LongDouble::ZERO,
    };
    let after = before.checked_add(amount).ok_or(Error::NOT_A_RESULT)?.to_text();
    tx.make::<Hash, _>(key, "hincrbyfloat", |hash| hash.replace(field, after.as_bytes()))?;
    Ok(reply.bulk(after.as_bytes()))
}

const HRANDFIELD: Command = Command {
    name: "hrandfield",
    keys: &[KeySpec::first(KeyFlags::RO.and(KeyFlags::ACCESS))],
    summary: "Returns random fields of a hash, optionally with their values.",
    since: "6.2.0",
    complexity: "O(N) where N is the number of fields returned",
    cost: costs::AS_COUNTED,
    tips: &["nondeterministic_output"],
    arguments: &[
        Argument::KEY,
        Argument::block("options", &[Argument::integer("count"), Argument::word("WITHVALUES").optional()])
            .optional(),
    ],
    example: &[
        ("HSET coin heads obverse", "(integer) 1"),
        ("HRANDFIELD coin", "\"heads\""),
        ("HRANDFIELD coin -2 WITHVALUES", "[\"heads\", \"obverse\", \"heads\", \"obverse\"]"),
    ],
    run: Run::Read(hrandfield),
    ..HASH
};

fn hrandfield(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    if request.len() == 2 {
        let hash = tx.get::<Hash>(request.at(1))?;
        let drawn = hash.and_then(|hash| hash.at(fastrand::usize(..hash.len())));
        return Ok(reply.bulk_or_nil(drawn.map(|(field, _)| field)));
    }
    let (wanted, with_values) = Wanted::parse(request, "withvalues")?;
    let hash = tx.get::<Hash>(request.at(1))?;
    // A packed hash is read once, rather than for each field.
    let packed: Vec<_> = match hash {
        Some(hash) if hash.is_packed() => hash.iter().collect(),
        _ => Vec::new(),
    };
    let at = |position: usize| match hash {
        Some(hash) if !hash.is_packed() => hash.at(position),
        _ => packed.get(position).copied(),
    };
    wanted.reply(len(hash), with_values, reply, |position, parts| {
        let (field, value) = at(position).unwrap_or_default();
        let _ = parts.part().bulk(field);
        if with_values {
            let _ = parts.part().bulk(value);
        }
    })
}

const HSCAN: Command = Command {
    name: "hscan",
    keys: &[KeySpec::first(KeyFlags::RO.and(KeyFlags::ACCESS))],
    summary: "Returns some fields of a hash with their values, and the cursor for the next call.",
    since: "2.8.0",
    complexity: "O(1) for every call. O(N) for a complete iteration, including enough command calls for the cursor to return back to 0. N is the number of elements inside the collection.",
    cost: costs::WITH_COUNT,
    tips: &["nondeterministic_output"],
    arguments: &[
        Argument::KEY,
        Argument::integer("cursor"),
        Argument::pattern("pattern").token("MATCH").optional(),
        Argument::integer("count").token("COUNT").optional(),
        Argument::word("NOVALUES").optional(),
    ],
    example: &[
        ("HSET myhash field value", "(integer) 1"),
        ("HSCAN myhash 0", "[\"0\", [\"field\", \"value\"]]"),
    ],
    run: Run::Read(hscan),
    ..HASH
};

fn hscan(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let cursor = Selection::cursor(request)?;
    let none: &[&[u8]] = &[];
    let Some(hash) = tx.get::<Hash>(request.at(1))? else { return reply_scanned(0, none, reply) };
    let selection = Selection::parse(cursor, request, Some("novalues"))?;
    let mut found = Vec::new();
    let mut add = |(field, value)| {
        if selection.matches(field) {
            found.push(field);
            found.extend((!selection.only_names).then_some(value));
        }
    };
    let next = match hash {
        HashView::Large(map) => selection.over(|cursor| map.scan(cursor), add),
        HashView::Expiring(Expiring::Large(map), now_ms) => {
            // Expired fields count: a call takes no longer if there are many of them.
            let live = |(field, value, at_ms): (_, _, Option<u64>)| {
                at_ms.is_none_or(|at_ms| at_ms > now_ms).then_some((field, value))
            };
            selection.over(|cursor| map.scan(cursor), |found| live(found).into_iter().for_each(&mut add))
        }
        _ => {
            hash.iter().for_each(add);
            0
        }
    };
    reply_scanned(next, &found, reply)
}
