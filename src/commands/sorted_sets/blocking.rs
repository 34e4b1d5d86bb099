//! Commands that wait until a sorted set has a member.

use crate::keyspace::Transaction;
use crate::resp::{Reply, Request};
use crate::values::SORTED_SET_KIND;

use super::removing::{PoppingFromSeveral, Side, pop};
use crate::commands::args::last;
use crate::commands::costs;
use crate::commands::facts::{
    Argument, Blocking, Categories, Command, Flags, Group, KeyFlags, KeySpec, Only, Prepares, Result, Run,
    Taken, Timeout, WaitingRules, looks_at,
};

pub(in crate::commands) const COMMANDS: &[Command] = &[BZMPOP, BZPOPMAX, BZPOPMIN];

/// The facts that most commands of this file share.
const SORTED_SET: Command =
    Command { categories: Categories::SORTEDSET, group: Group::SORTED_SET, ..Command::DEFAULTS };

const BZPOPMIN: Command = Command {
    name: "bzpopmin",
    flags: Flags::BLOCKING.and(Flags::FAST),
    keys: &[KeySpec::range(1, -2, 1, KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::DELETE))],
    summary: "Removes and returns the lowest-scored member of the first non-empty sorted set; blocks if all are empty.",
    since: "5.0.0",
    complexity: "O(log(N)) with N being the number of elements in the sorted set.",
    cost: costs::ARGUMENTS,
    arguments: &[Argument::KEY.multiple(), Argument::double("timeout")],
    example: &[
        ("ZADD zset1 0 a 1 b", "(integer) 2"),
        ("BZPOPMIN zset1 zset2 0", "[\"zset1\", \"a\", \"0\"]"),
    ],
    run: Run::Block(&Blocking {
        kind: SORTED_SET_KIND,
        keys: usize::MAX,
        check: last,
        take: |tx, request, only, reply| pop_first(tx, request, only, Side::Lowest, reply),
        nothing: |reply| reply.nil_array(),
        waiting: WaitingRules::PLAIN,
    }),
    ..SORTED_SET
};

/// Pops from the first of the keys that has a sorted set, or only from some of them.
fn pop_first<'r>(
    tx: &mut Transaction<'_>,
    request: Request<'_>,
    only: Only<'_>,
    side: Side,
    mut reply: Reply<'r>,
) -> Result<Taken<'r>> {
    let keys = request.from(1).take(request.len() - 2);
    for key in keys.filter(|key| looks_at(only, key)) {
        let popped = pop(tx, request, key, (side, 1), reply, |popped, reply| {
            let (member, score) = popped.first().unwrap_or_default();
            let parts = [Ok(key), Ok(member), Err(score)];
            reply.array_of(parts.into_iter(), |part, reply| match part {
                Ok(text) => reply.bulk(text),
                Err(score) => reply.double(score),
            })
        })?;
        match popped {
            Ok(sent) => return Ok(Taken::Something(sent)),
            Err(unused) => reply = unused,
        }
    }
    Ok(Taken::Nothing(reply))
}

const BZPOPMAX: Command = Command {
    name: "bzpopmax",
    summary: "Removes and returns the highest-scored member of the first non-empty sorted set; blocks if all are empty.",
    example: &[
        ("ZADD zset1 0 a 1 b", "(integer) 2"),
        ("BZPOPMAX zset1 zset2 0", "[\"zset1\", \"b\", \"1\"]"),
    ],
    run: Run::Block(&Blocking {
        kind: SORTED_SET_KIND,
        keys: usize::MAX,
        check: last,
        take: |tx, request, only, reply| pop_first(tx, request, only, Side::Highest, reply),
        nothing: |reply| reply.nil_array(),
        waiting: WaitingRules::PLAIN,
    }),
    ..BZPOPMIN
};

const BZMPOP: Command = Command {
    name: "bzmpop",
    flags: Flags::BLOCKING,
    keys: &[KeySpec::counted(2, 1, KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::DELETE))],
    summary: "Removes and returns members of the first non-empty sorted set; blocks if all are empty.",
    since: "7.0.0",
    complexity: "O(K) + O(M*log(N)) where K is the number of provided keys, N being the number of elements in the sorted set, and M being the number of elements popped.",
    cost: costs::WITH_COUNT_CHANGING,
    arguments: &[
        Argument::double("timeout"),
        Argument::integer("numkeys"),
        Argument::KEY.multiple(),
        Argument::one_of("where", &Argument::words(["MIN", "MAX"])),
        Argument::integer("count").token("COUNT").optional(),
    ],
    example: &[
        ("ZADD myzset 1 one 2 two", "(integer) 2"),
        ("BZMPOP 1 1 myzset MIN", "[\"myzset\", [[\"one\", \"1\"]]]"),
    ],
    prepares: Prepares::Derived(|tx, request| PoppingFromSeveral::parse(request, 2)?.without_popped(tx)),
    run: Run::Block(&Blocking {
        kind: SORTED_SET_KIND,
        keys: usize::MAX,
        check: |request| {
            PoppingFromSeveral::parse(request, 2).map(|_| Timeout::Seconds(request.at(1)).into())
        },
        take: bzmpop,
        nothing: |reply| reply.nil_array(),
        waiting: WaitingRules::PLAIN,
    }),
    ..SORTED_SET
};

fn bzmpop<'r>(
    tx: &mut Transaction<'_>,
    request: Request<'_>,
    only: Only<'_>,
    reply: Reply<'r>,
) -> Result<Taken<'r>> {
    Ok(match PoppingFromSeveral::parse(request, 2)?.pop(tx, only, reply)? {
        Ok(sent) => Taken::Something(sent),
        Err(unused) => Taken::Nothing(unused),
    })
}
