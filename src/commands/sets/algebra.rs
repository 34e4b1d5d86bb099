//! Intersections, unions and differences of sets.

use std::collections::HashSet;

use foldhash::quality::RandomState;

use crate::hyperloglog::{Histogram, Observation, REGISTERS, estimate};
use crate::keyspace::Transaction;
use crate::resp::{Reply, Request};
use crate::types::sets::{FACTS, Member, NewSet, Set, SetView};

use crate::commands::args::{self, is_word};
use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::facts::{
    Argument, ArgumentKind, Categories, Command, Derived, Flags, Group, KeyFlags, KeySpec, LockUse, Prepares,
    Result, Run,
};
use crate::commands::storing::store;
use crate::values::Kept;

pub(in crate::commands) const COMMANDS: &[Command] =
    &[SDIFF, SDIFFCARD, SDIFFSTORE, SINTER, SINTERCARD, SINTERSTORE, SUNION, SUNIONCARD, SUNIONSTORE];

/// The facts that most commands of this file share.
const SET: Command = Command { categories: Categories::SET, group: Group::SET, ..Command::DEFAULTS };

const SINTER: Command = Command {
    name: "sinter",
    keys: &[KeySpec::every(1, KeyFlags::RO.and(KeyFlags::ACCESS))],
    summary: "Returns the intersection of sets.",
    since: "1.0.0",
    complexity: "O(N*M) worst case where N is the cardinality of the smallest set and M is the number of sets.",
    cost: costs::SMALLEST,
    tips: &["nondeterministic_output_order"],
    arguments: &[Argument::KEY.multiple()],
    example: &[
        ("SADD key1 1 2 3", "(integer) 3"),
        ("SADD key2 3 4 5", "(integer) 3"),
        ("SINTER key1 key2", "[\"3\"]"),
    ],
    run: Run::Read(sinter),
    ..SET
};

fn sinter(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let mut members = Vec::new();
    intersect(sets_of(tx, request.from(1))?, usize::MAX, |member| members.push(member));
    Ok(reply.set_of(members.iter(), |member, reply| reply.bulk(member)))
}

/// The sets of several keys. Absent keys have empty sets.
fn sets_of<'t, 'k>(
    tx: &'t Transaction<'_>,
    keys: impl Iterator<Item = &'k [u8]>,
) -> Result<Vec<Option<SetView<'t>>>> {
    keys.map(|key| Ok(tx.get::<Set>(key)?)).collect()
}

/// Calls `visit` for each member that all sets have, for `most` at most.
fn intersect<'t>(sets: Vec<Option<SetView<'t>>>, most: usize, visit: impl FnMut(Member<'t>)) {
    let Some(mut sets) = sets.into_iter().collect::<Option<Vec<SetView<'_>>>>() else { return };
    sets.sort_by_key(|set| set.len());
    if let Some((smallest, others)) = sets.split_first() {
        let in_all = |member: &Member<'_>| others.iter().all(|set| set.contains(member));
        smallest.iter().filter(in_all).take(most).for_each(visit);
    }
}

const SINTERSTORE: Command = Command {
    name: "sinterstore",
    flags: Flags::DENYOOM,
    keys: &[
        KeySpec::first(KeyFlags::OW.and(KeyFlags::UPDATE)),
        KeySpec::range(2, -1, 1, KeyFlags::RO.and(KeyFlags::ACCESS)),
    ],
    locks: LockUse::KEYS_ONLY,
    summary: "Stores the intersection of sets at a key; returns its size.",
    since: "1.0.0",
    complexity: "O(N*M) worst case where N is the cardinality of the smallest set and M is the number of sets.",
    cost: costs::SMALLEST_CHANGING,
    arguments: &[Argument::new("destination", ArgumentKind::Key), Argument::KEY.multiple().of_spec(1)],
    example: &[
        ("SADD key1 1 2 3", "(integer) 3"),
        ("SADD key2 3 4 5", "(integer) 3"),
        ("SINTERSTORE key key1 key2", "(integer) 1"),
        ("SMEMBERS key", "[\"3\"]"),
    ],
    prepares: Prepares::Derived(intersection),
    run: Run::Write(sinterstore),
    ..SET
};

fn sinterstore(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    store(tx, request, (intersection, request.at(1)), "sinterstore", reply)
}

fn intersection(tx: &Transaction<'_>, request: Request<'_>) -> Result<Derived> {
    let mut members = NewSet::within(tx.limit::<Set>());
    intersect(sets_of(tx, request.from(2))?, usize::MAX, |member| {
        members.insert(&member);
    });
    Ok(derived(members))
}

/// What a request stores: a set, if it has members.
fn derived(members: NewSet) -> Derived {
    let count = members.len();
    let value = (count > 0).then(|| {
        let (packed, large) = members.finish();
        Kept::made(&FACTS, packed, large)
    });
    Derived { value, count, ..Derived::default() }
}

const SINTERCARD: Command = Command {
    name: "sintercard",
    keys: &[KeySpec::counted(1, 1, KeyFlags::RO.and(KeyFlags::ACCESS))],
    summary: "Returns the size of the intersection of sets, up to an optional limit.",
    since: "7.0.0",
    complexity: "O(N*M) worst case where N is the cardinality of the smallest set and M is the number of sets.",
    cost: costs::SMALLEST_SUMMED_UP,
    arguments: &[
        Argument::integer("numkeys"),
        Argument::KEY.multiple(),
        Argument::integer("limit").token("LIMIT").optional(),
    ],
    example: &[
        ("SADD key1 1 2 3", "(integer) 3"),
        ("SADD key2 2 3 4", "(integer) 3"),
        ("SINTERCARD 2 key1 key2", "(integer) 2"),
        ("SINTERCARD 2 key1 key2 LIMIT 1", "(integer) 1"),
    ],
    run: Run::Read(sintercard),
    ..SET
};

fn sintercard(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let counting = Counting::parse(request, false)?;
    let mut count = 0;
    intersect(counting.sets(tx, request)?, counting.most, |_| count += 1);
    Ok(reply.count(count))
}

/// The arguments of SINTERCARD, SUNIONCARD and SDIFFCARD.
struct Counting {
    keys: usize,
    /// The most members to count.
    most: usize,
    is_approximate: bool,
}

impl Counting {
    fn parse(request: Request<'_>, may_be_approximate: bool) -> Result<Counting> {
        let keys = args::key_count(request, 1)?;
        let mut counting = Counting { keys, most: usize::MAX, is_approximate: false };
        let mut options = args::Options::new(request, 2 + keys);
        while let Some(option) = options.next() {
            if may_be_approximate && is_word(option, "approx") {
                counting.is_approximate = true;
                continue;
            }
            let number = options.next().filter(|_| is_word(option, "limit")).ok_or(Error::SYNTAX)?;
            let number = args::integer(number).ok().and_then(|number| usize::try_from(number).ok());
            let most = number.ok_or(Error::fixed("ERR LIMIT can't be negative"))?;
            counting.most = if most == 0 { usize::MAX } else { most };
        }
        Ok(counting)
    }

    fn sets<'t>(&self, tx: &'t Transaction<'_>, request: Request<'_>) -> Result<Vec<Option<SetView<'t>>>> {
        sets_of(tx, request.from(2).take(self.keys))
    }
}

const SUNION: Command = Command {
    name: "sunion",
    keys: &[KeySpec::every(1, KeyFlags::RO.and(KeyFlags::ACCESS))],
    summary: "Returns the union of sets.",
    since: "1.0.0",
    complexity: "O(N) where N is the total number of elements in all given sets.",
    cost: costs::ALL,
    tips: &["nondeterministic_output_order"],
    arguments: &[Argument::KEY.multiple()],
    example: &[
        ("SADD key1 1", "(integer) 1"),
        ("SADD key2 1", "(integer) 1"),
        ("SUNION key1 key2", "[\"1\"]"),
    ],
    run: Run::Read(sunion),
    ..SET
};

fn sunion(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let sets = sets_of(tx, request.from(1))?;
    let members = sets.iter().flatten().flat_map(|set| set.iter());
    // A member is as its string: members of sets of integers are printed first.
    let mut seen: HashSet<Unique<'_>, RandomState> = HashSet::default();
    let members: Vec<Unique<'_>> = members.map(Unique).filter(|member| seen.insert(*member)).collect();
    Ok(reply.set_of(members.iter(), |member, reply| reply.bulk(&member.0)))
}

const SUNIONCARD: Command = Command {
    name: "sunioncard",
    keys: &[KeySpec::counted(1, 1, KeyFlags::RO.and(KeyFlags::ACCESS))],
    summary: "Returns the size of the union of sets, exactly or approximately.",
    since: "8.10.0",
    complexity: "O(N) where N is the total number of elements in all given sets.",
    cost: costs::ALL,
    arguments: &[
        Argument::integer("numkeys"),
        Argument::KEY.multiple(),
        Argument::word("APPROX").optional(),
        Argument::integer("limit").token("LIMIT").optional(),
    ],
    example: &[
        ("SADD key1 1 2 3", "(integer) 3"),
        ("SADD key2 2 3 4", "(integer) 3"),
        ("SUNIONCARD 2 key1 key2", "(integer) 4"),
        ("SUNIONCARD 2 key1 key2 APPROX", "(integer) 4"),
        ("SUNIONCARD 2 key1 key2 LIMIT 3", "(integer) 3"),
    ],
    run: Run::Read(sunioncard),
    ..SET
};

fn sunioncard(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let counting = Counting::parse(request, true)?;
    let sets = counting.sets(tx, request)?;
    let members = sets.iter().flatten().flat_map(|set| set.iter());
    if counting.is_approximate {
        let mut registers = [0; REGISTERS];
        for member in members {
            let seen = Observation::of(&member);
            registers[seen.index] = seen.rank.max(registers[seen.index]);
        }
        let count = usize::try_from(estimate(&Histogram::of(&registers))).unwrap_or(usize::MAX);
        return Ok(reply.count(count.min(counting.most)));
    }
    let mut seen: HashSet<Unique<'_>, RandomState> = HashSet::default();
    let new = members.map(Unique).filter(|member| seen.insert(*member));
    Ok(reply.count(new.take(counting.most).count()))
}

const SUNIONSTORE: Command = Command {
    name: "sunionstore",
    flags: Flags::DENYOOM,
    keys: &[
        KeySpec::first(KeyFlags::OW.and(KeyFlags::UPDATE)),
        KeySpec::range(2, -1, 1, KeyFlags::RO.and(KeyFlags::ACCESS)),
    ],
    summary: "Stores the union of sets at a key; returns its size.",
    since: "1.0.0",
    complexity: "O(N) where N is the total number of elements in all given sets.",
    cost: costs::ALL_CHANGING,
    arguments: &[Argument::new("destination", ArgumentKind::Key), Argument::KEY.multiple().of_spec(1)],
    example: &[
        ("SADD key1 1 2", "(integer) 2"),
        ("SADD key2 2 3", "(integer) 2"),
        ("SUNIONSTORE key key1 key2", "(integer) 3"),
        ("SMEMBERS key", "[\"1\", \"2\", \"3\"]"),
    ],
    prepares: Prepares::Derived(union),
    run: Run::Write(sunionstore),
    ..SET
};

fn sunionstore(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    store(tx, request, (union, request.at(1)), "sunionstore", reply)
}

fn union(tx: &Transaction<'_>, request: Request<'_>) -> Result<Derived> {
    let mut members = NewSet::within(tx.limit::<Set>());
    for set in sets_of(tx, request.from(2))?.into_iter().flatten() {
        set.iter().for_each(|member| {
            members.insert(&member);
        });
    }
    Ok(derived(members))
}

const SDIFF: Command = Command {
    name: "sdiff",
    summary: "Returns the members of the first set that are in none of the others.",
    example: &[
        ("SADD key1 1 2 3", "(integer) 3"),
        ("SADD key2 3 4 5", "(integer) 3"),
        ("SDIFF key1 key2", "[\"1\", \"2\"]"),
    ],
    run: Run::Read(sdiff),
    ..SUNION
};

fn sdiff(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let mut members = Vec::new();
    subtract(&sets_of(tx, request.from(1))?, usize::MAX, |member| members.push(member));
    Ok(reply.set_of(members.iter(), |member, reply| reply.bulk(member)))
}

/// Calls `visit` for each member of the first set that no other set has, for `most` at most.
fn subtract<'t>(sets: &[Option<SetView<'t>>], most: usize, visit: impl FnMut(Member<'t>)) {
    let Some((Some(first), others)) = sets.split_first() else { return };
    let others: Vec<SetView<'_>> = others.iter().flatten().copied().collect();
    // Either each member is looked up in each of the others, or in all that they have together.
    let together: usize = others.iter().map(|set| set.len()).sum();
    if others.len() <= 2 || first.len().saturating_mul(others.len() - 1) <= together {
        let is_alone = |member: &Member<'_>| !others.iter().any(|set| set.contains(member));
        return first.iter().filter(is_alone).take(most).for_each(visit);
    }
    let mut excluded = HashSet::with_capacity_and_hasher(together, RandomState::default());
    excluded.extend(others.iter().flat_map(|set| set.iter()).map(Unique));
    let is_alone = |member: &Member<'_>| !excluded.contains(&Unique(*member));
    first.iter().filter(is_alone).take(most).for_each(visit);
}

const SDIFFCARD: Command = Command {
    name: "sdiffcard",
    summary: "Returns how many members of the first set are in none of the others.",
    since: "8.10.0",
    complexity: "O(N) where N is the total number of elements in all given sets.",
    cost: costs::ALL,
    example: &[
        ("SADD key1 1 2 3", "(integer) 3"),
        ("SADD key2 3 4 5", "(integer) 3"),
        ("SDIFFCARD 2 key1 key2", "(integer) 2"),
        ("SDIFFCARD 2 key1 key2 LIMIT 1", "(integer) 1"),
    ],
    run: Run::Read(sdiffcard),
    ..SINTERCARD
};

fn sdiffcard(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let counting = Counting::parse(request, false)?;
    let mut count = 0;
    subtract(&counting.sets(tx, request)?, counting.most, |_| count += 1);
    Ok(reply.count(count))
}

const SDIFFSTORE: Command = Command {
    name: "sdiffstore",
    summary: "Stores the members of the first set that are in none of the others; returns how many.",
    example: &[
        ("SADD key1 1 2 3", "(integer) 3"),
        ("SADD key2 3 4 5", "(integer) 3"),
        ("SDIFFSTORE key key1 key2", "(integer) 2"),
        ("SMEMBERS key", "[\"1\", \"2\"]"),
    ],
    prepares: Prepares::Derived(difference),
    run: Run::Write(sdiffstore),
    ..SUNIONSTORE
};

fn sdiffstore(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    store(tx, request, (difference, request.at(1)), "sdiffstore", reply)
}

fn difference(tx: &Transaction<'_>, request: Request<'_>) -> Result<Derived> {
    let mut members = NewSet::within(tx.limit::<Set>());
    subtract(&sets_of(tx, request.from(2))?, usize::MAX, |member| {
        members.insert(&member);
    });
    Ok(derived(members))
}

/// A member that is compared and hashed as its string.
#[derive(Clone, Copy)]
struct Unique<'v>(Member<'v>);

impl PartialEq for Unique<'_> {
    fn eq(&self, other: &Unique<'_>) -> bool {
        *self.0 == *other.0
    }
}

impl Eq for Unique<'_> {}

impl std::hash::Hash for Unique<'_> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}
