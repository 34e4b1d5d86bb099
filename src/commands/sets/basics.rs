//! Sets: adding, removing, testing, choosing and moving members.

use crate::keyspace::{Change, Transaction};
use crate::resp::{Reply, Request, Sent};
use crate::types::sets::{Member, Set, SetView};
use crate::values::tree::Map;
use crate::values::{Kept, Structure, Type};

use crate::commands::args;
use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::facts::{
    Argument, ArgumentKind, Categories, Command, Derived, Flags, Group, KeyFlags, KeySpec, Prepares, Result,
    Run,
};
use crate::commands::random_and_scan::{Selection, Wanted, reply_scanned};

pub(in crate::commands) const COMMANDS: &[Command] =
    &[SADD, SCARD, SISMEMBER, SMEMBERS, SMISMEMBER, SMOVE, SPOP, SRANDMEMBER, SREM, SSCAN];

/// The facts that most commands of this file share.
const SET: Command = Command { categories: Categories::SET, group: Group::SET, ..Command::DEFAULTS };

const SADD: Command = Command {
    name: "sadd",
    flags: Flags::DENYOOM.and(Flags::FAST),
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::INSERT))],
    summary: "Adds members to a set, creating it if it is absent.",
    since: "1.0.0",
    complexity: "O(1) for each element added, so O(N) to add N elements when the command is called with multiple arguments.",
    cost: costs::BRIEF,
    arguments: &[Argument::KEY, Argument::string("member").multiple()],
    example: &[
        ("SADD myset Hello World", "(integer) 2"),
        ("SADD myset World", "(integer) 0"),
        ("SCARD myset", "(integer) 2"),
    ],
    run: Run::Write(sadd),
    ..SET
};

fn sadd(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let added = tx.make::<Set, _>(request.at(1), "sadd", |set| {
        set.expect(request.at(2), request.len() - 2);
        request.from(2).filter(|member| set.insert(member)).count()
    })?;
    Ok(reply.count(added))
}

const SREM: Command = Command {
    name: "srem",
    flags: Flags::FAST,
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::DELETE))],
    summary: "Removes members from a set; a set without members is deleted.",
    since: "1.0.0",
    complexity: "O(N) where N is the number of members to be removed.",
    cost: costs::BRIEF,
    arguments: &[Argument::KEY, Argument::string("member").multiple()],
    example: &[
        ("SADD myset one two three", "(integer) 3"),
        ("SREM myset one four", "(integer) 1"),
        ("SCARD myset", "(integer) 2"),
    ],
    run: Run::Write(srem),
    ..SET
};

fn srem(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let removed = tx.change::<Set, _>(request.at(1), "srem", |set| {
        request.from(2).filter(|member| set.remove(member)).count()
    })?;
    Ok(reply.count(removed.unwrap_or(0)))
}

const SISMEMBER: Command = Command {
    name: "sismember",
    flags: Flags::FAST,
    keys: &[KeySpec::first(KeyFlags::RO)],
    summary: "Returns whether a value is a member of a set.",
    since: "1.0.0",
    complexity: "O(1)",
    cost: costs::BRIEF,
    arguments: &[Argument::KEY, Argument::string("member")],
    example: &[
        ("SADD myset one", "(integer) 1"),
        ("SISMEMBER myset one", "(integer) 1"),
        ("SISMEMBER myset two", "(integer) 0"),
    ],
    run: Run::Read(sismember),
    ..SET
};

fn sismember(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let set = tx.get::<Set>(request.at(1))?;
    Ok(reply.bool(set.is_some_and(|set| set.contains(request.at(2)))))
}

const SMISMEMBER: Command = Command {
    name: "smismember",
    flags: Flags::FAST,
    keys: &[KeySpec::first(KeyFlags::RO.and(KeyFlags::ACCESS))],
    summary: "Returns, for each of several values, whether it is a member of a set.",
    since: "6.2.0",
    complexity: "O(N) where N is the number of elements being checked for membership",
    cost: costs::BRIEF,
    arguments: &[Argument::KEY, Argument::string("member").multiple()],
    example: &[
        ("SADD myset one", "(integer) 1"),
        ("SMISMEMBER myset one notamember", "[(integer) 1, (integer) 0]"),
    ],
    run: Run::Read(smismember),
    ..SET
};

fn smismember(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let set = tx.get::<Set>(request.at(1))?;
    Ok(reply
        .array_of(request.from(2), |member, reply| reply.bool(set.is_some_and(|set| set.contains(member)))))
}

const SMEMBERS: Command = Command {
    name: "smembers",
    keys: &[KeySpec::first(KeyFlags::RO.and(KeyFlags::ACCESS))],
    summary: "Returns all members of a set.",
    since: "1.0.0",
    complexity: "O(N) where N is the set cardinality.",
    cost: costs::ALL,
    tips: &["nondeterministic_output_order"],
    arguments: &[Argument::KEY],
    example: &[("SADD myset 3 1 2", "(integer) 3"), ("SMEMBERS myset", "[\"1\", \"2\", \"3\"]")],
    run: Run::Read(smembers),
    ..SET
};

fn smembers(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let set = tx.get::<Set>(request.at(1))?;
    let members = set.into_iter().flat_map(SetView::iter);
    Ok(reply.set_of_len(len(set), members, |member, reply| reply.bulk(&member)))
}

fn len(set: Option<SetView<'_>>) -> usize {
    set.map_or(0, SetView::len)
}

const SCARD: Command = Command {
    name: "scard",
    flags: Flags::FAST,
    keys: &[KeySpec::first(KeyFlags::RO)],
    summary: "Returns the number of members of a set.",
    since: "1.0.0",
    complexity: "O(1)",
    cost: costs::BRIEF,
    arguments: &[Argument::KEY],
    example: &[("SADD myset Hello World", "(integer) 2"), ("SCARD myset", "(integer) 2")],
    run: Run::Read(scard),
    ..SET
};

fn scard(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    Ok(reply.count(len(tx.get::<Set>(request.at(1))?)))
}

const SPOP: Command = Command {
    name: "spop",
    flags: Flags::FAST,
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::DELETE))],
    summary: "Removes and returns random members of a set.",
    since: "1.0.0",
    complexity: "Without the count argument O(1), otherwise O(N) where N is the value of the passed count.",
    cost: costs::AS_COUNTED_CHANGING.brief_up_to(2),
    tips: &["nondeterministic_output"],
    prepares: Prepares::Derived(without_drawn),
    arguments: &[Argument::KEY, Argument::integer("count").since("3.2.0").optional()],
    example: &[("SADD myset one", "(integer) 1"), ("SPOP myset", "\"one\""), ("SPOP myset", "(nil)")],
    run: Run::Write(spop),
    ..SET
};

fn spop(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let key = request.at(1);
    let count = match request.get(2) {
        None => {
            let popped = tx.change::<Set, _>(key, "spop", pop)?.flatten();
            return Ok(reply.bulk_or_nil(popped.as_deref()));
        }
        Some(_) if request.len() > 3 => return Err(Error::SYNTAX),
        Some(count) => args::natural(count)?,
    };
    if let Some(set) = tx.peek::<Set>(key)?
        && count >= set.len()
    {
        let sent = write_all(tx, set, reply);
        tx.change::<Set, _>(key, "spop", |set| set.remove_all())?;
        return Ok(sent);
    }
    if let Some(derived) = tx.prepared_value::<Derived>(request.name())
        && let Some(staying) = derived.large::<Map>()
    {
        tx.change::<Set, _>(key, "spop", |set| set.leave_only(staying, &derived.drawn))?;
        return Ok(tx.reply_later(derived.bytes(), reply, move |reply| write_drawn(&derived.drawn, reply)));
    }
    let popped =
        tx.change::<Set, Vec<Vec<u8>>>(key, "spop", |set| (0..count).map_while(|_| pop(set)).collect())?;
    Ok(write_drawn(&popped.unwrap_or_default(), reply))
}

fn write_drawn(members: &[Vec<u8>], reply: Reply<'_>) -> Sent {
    reply.set_of(members.iter(), |member, reply| reply.bulk(member))
}

/// Draws members of a large set, if it has more than the request counts.
fn without_drawn(tx: &Transaction<'_>, request: Request<'_>) -> Result<Derived> {
    let count = request.get(2).map_or(Ok(0), args::natural)?;
    let set = tx.peek::<Set>(request.at(1))?.filter(|set| (1..set.len()).contains(&count));
    let Some(SetView::Large(members)) = set else {
        return Ok(Derived::default());
    };
    let (len, are_few) = (members.len(), count < members.len() / 2);
    // The set of those that stay is made of them if they are fewer than those that are removed.
    let (mut staying, mut drawn) = (if are_few { members.share() } else { Structure::map() }, Vec::new());
    for (at, (member, _)) in members.iter().enumerate() {
        let is_drawn = fastrand::usize(..len - at) < count - drawn.len();
        match (is_drawn, are_few) {
            (true, true) => _ = staying.remove(member),
            (false, false) => _ = staying.insert(member, b""),
            _ => {}
        }
        drawn.extend(is_drawn.then(|| member.to_vec()));
    }
    let value = Kept::made(Set::FACTS, Vec::new(), Some(Structure::Map(staying)));
    Ok(Derived { value: Some(value), count, drawn })
}

/// Replies with all members of a set that is about to be removed. Many are written when the locks are free.
fn write_all(tx: &Transaction<'_>, set: SetView<'_>, reply: Reply<'_>) -> Sent {
    if let SetView::Large(members) = set
        && let Some(bytes) = costs::long_part(members, members.len())
    {
        let members = members.share();
        return tx.reply_later(bytes, reply, move |reply| write_members(SetView::Large(&members), reply));
    }
    write_members(set, reply)
}

fn write_members(set: SetView<'_>, reply: Reply<'_>) -> Sent {
    reply.set_of_len(set.len(), set.iter(), |member, reply| reply.bulk(&member))
}

/// Removes a random member.
fn pop(set: &mut Change<'_, Set>) -> Option<Vec<u8>> {
    let len = set.view().len();
    let drawn = if len > 0 { set.view().at(fastrand::usize(..len)) } else { None };
    let member = drawn?.to_vec();
    set.remove(&member);
    Some(member)
}

const SRANDMEMBER: Command = Command {
    name: "srandmember",
    keys: &[KeySpec::first(KeyFlags::RO.and(KeyFlags::ACCESS))],
    summary: "Returns random members of a set without removing them.",
    since: "1.0.0",
    complexity: "Without the count argument O(1), otherwise O(N) where N is the absolute value of the passed count.",
    cost: costs::AS_COUNTED.brief_up_to(2),
    tips: &["nondeterministic_output"],
    arguments: &[Argument::KEY, Argument::integer("count").since("2.6.0").optional()],
    example: &[
        ("SADD myset one", "(integer) 1"),
        ("SRANDMEMBER myset", "\"one\""),
        ("SRANDMEMBER myset -2", "[\"one\", \"one\"]"),
    ],
    run: Run::Read(srandmember),
    ..SET
};

fn srandmember(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let key = request.at(1);
    if request.len() == 2 {
        let set = tx.get::<Set>(key)?;
        let drawn = set.and_then(|set| set.at(fastrand::usize(..set.len())));
        return Ok(reply.bulk_or_nil(drawn.as_deref()));
    }
    if request.len() > 3 {
        return Err(Error::SYNTAX);
    }
    let wanted = Wanted::of(request.at(2))?;
    let set = tx.get::<Set>(key)?;
    // A packed set is read once, rather than for each member.
    let packed: Vec<Member<'_>> = match set {
        Some(SetView::Strings(_)) => set.into_iter().flat_map(SetView::iter).collect(),
        _ => Vec::new(),
    };
    wanted.reply(len(set), false, reply, |position, parts| {
        let member = packed.get(position).copied().or_else(|| set?.at(position));
        let _ = parts.part().bulk(member.as_deref().unwrap_or_default());
    })
}

const SMOVE: Command = Command {
    name: "smove",
    flags: Flags::FAST,
    keys: &[
        KeySpec::first(KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::DELETE)),
        KeySpec::range(2, 0, 1, KeyFlags::RW.and(KeyFlags::INSERT)),
    ],
    summary: "Moves a member from one set to another in one atomic step.",
    since: "1.0.0",
    complexity: "O(1)",
    cost: costs::ARGUMENTS,
    arguments: &[
        Argument::new("source", ArgumentKind::Key),
        Argument::new("destination", ArgumentKind::Key).of_spec(1),
        Argument::string("member"),
    ],
    example: &[
        ("SADD myset one two", "(integer) 2"),
        ("SADD myotherset three", "(integer) 1"),
        ("SMOVE myset myotherset two", "(integer) 1"),
        ("SISMEMBER myotherset two", "(integer) 1"),
    ],
    run: Run::Write(smove),
    ..SET
};

fn smove(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let (source, target, member) = (request.at(1), request.at(2), request.at(3));
    let Some(set) = tx.peek::<Set>(source)? else { return Ok(reply.bool(false)) };
    let is_member = set.contains(member);
    tx.peek::<Set>(target)?;
    if is_member && source != target {
        tx.change::<Set, _>(source, "srem", |set| set.remove(member))?;
        tx.make::<Set, _>(target, "sadd", |set| set.insert(member))?;
    }
    Ok(reply.bool(is_member))
}

const SSCAN: Command = Command {
    name: "sscan",
    keys: &[KeySpec::first(KeyFlags::RO.and(KeyFlags::ACCESS))],
    summary: "Returns some members of a set and the cursor for the next call.",
    since: "2.8.0",
    complexity: "O(1) for every call. O(N) for a complete iteration, including enough command calls for the cursor to return back to 0. N is the number of elements inside the collection.",
    cost: costs::WITH_COUNT,
    tips: &["nondeterministic_output"],
    arguments: &[
        Argument::KEY,
        Argument::integer("cursor"),
        Argument::pattern("pattern").token("MATCH").optional(),
        Argument::integer("count").token("COUNT").optional(),
    ],
    example: &[("SADD myset 1 2", "(integer) 2"), ("SSCAN myset 0", "[\"0\", [\"1\", \"2\"]]")],
    run: Run::Read(sscan),
    ..SET
};

fn sscan(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let cursor = Selection::cursor(request)?;
    let none: &[&[u8]] = &[];
    let Some(set) = tx.get::<Set>(request.at(1))? else { return reply_scanned(0, none, reply) };
    let selection = Selection::parse(cursor, request, None)?;
    let SetView::Large(map) = set else {
        let members: Vec<Member<'_>> = set.iter().filter(|member| selection.matches(member)).collect();
        let found: Vec<&[u8]> = members.iter().map(|member| &**member).collect();
        return reply_scanned(0, &found, reply);
    };
    let mut found = Vec::new();
    let scan = |cursor| map.scan(cursor);
    let next = selection.over(scan, |(name, _)| found.extend(selection.matches(name).then_some(name)));
    reply_scanned(next, &found, reply)
}
