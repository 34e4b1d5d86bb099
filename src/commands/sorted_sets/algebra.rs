//! Unions, intersections and differences of sorted sets.

use crate::keyspace::Transaction;
use crate::resp::{Reply, Request};

use super::operation::{Operation, Operator};
use super::{derived, reply_members};
use crate::commands::costs;
use crate::commands::facts::{
    Argument, ArgumentKind, Categories, Command, Derived, Flags, Group, KeyFlags, KeySpec, Prepares, Result,
    Run,
};
use crate::commands::storing::store;

pub(in crate::commands) const COMMANDS: &[Command] =
    &[ZDIFF, ZDIFFSTORE, ZINTER, ZINTERCARD, ZINTERSTORE, ZUNION, ZUNIONSTORE];

/// The facts that most commands of this file share.
const SORTED_SET: Command =
    Command { categories: Categories::SORTEDSET, group: Group::SORTED_SET, ..Command::DEFAULTS };

/// What becomes of the scores of a member that several sets have.
const AGGREGATE: Argument = Argument::one_of(
    "aggregate",
    &[
        Argument::word("SUM"),
        Argument::word("MIN"),
        Argument::word("MAX"),
        Argument::word("COUNT").since("8.8.0"),
    ],
)
.token("AGGREGATE")
.optional();

const ZUNION: Command = Command {
    name: "zunion",
    keys: &[KeySpec::counted(1, 1, KeyFlags::RO.and(KeyFlags::ACCESS))],
    summary: "Returns the union of sorted sets; the scores of a member are summed unless AGGREGATE is given.",
    since: "6.2.0",
    complexity: "O(N)+O(M*log(M)) with N being the sum of the sizes of the input sorted sets, and M being the number of elements in the resulting sorted set.",
    cost: costs::ALL,
    arguments: &[
        Argument::integer("numkeys"),
        Argument::KEY.multiple(),
        Argument::integer("weight").token("WEIGHTS").optional().multiple(),
        AGGREGATE,
        Argument::word("WITHSCORES").optional(),
    ],
    example: &[
        ("ZADD zset1 1 one 2 two", "(integer) 2"),
        ("ZADD zset2 1 one 2 two 3 three", "(integer) 3"),
        ("ZUNION 2 zset1 zset2 WITHSCORES", "[\"one\", \"2\", \"three\", \"3\", \"two\", \"4\"]"),
    ],
    run: Run::Read(|tx, request, reply| combined(Operator::Union, "zunion", tx, request, reply)),
    ..SORTED_SET
};

/// Replies with the members that an operation makes of several sorted sets.
fn combined(
    operator: Operator,
    command: &str,
    tx: &Transaction<'_>,
    request: Request<'_>,
    reply: Reply<'_>,
) -> Result {
    let operation = Operation::parse(tx, request, 1, operator, command)?;
    let mut result = operation.combine();
    result.sort();
    Ok(reply_members(result.len(), result.iter(), operation.with_scores, reply))
}

const ZUNIONSTORE: Command = Command {
    name: "zunionstore",
    flags: Flags::DENYOOM,
    keys: &[
        KeySpec::first(KeyFlags::OW.and(KeyFlags::UPDATE)),
        KeySpec::counted(2, 1, KeyFlags::RO.and(KeyFlags::ACCESS)),
    ],
    summary: "Stores the union of sorted sets; the scores of a member are summed unless AGGREGATE is given.",
    since: "2.0.0",
    complexity: "O(N)+O(M log(M)) with N being the sum of the sizes of the input sorted sets, and M being the number of elements in the resulting sorted set.",
    cost: costs::ALL_CHANGING,
    arguments: &[
        Argument::new("destination", ArgumentKind::Key),
        Argument::integer("numkeys"),
        Argument::KEY.multiple().of_spec(1),
        Argument::integer("weight").token("WEIGHTS").optional().multiple(),
        AGGREGATE,
    ],
    example: &[
        ("ZADD zset1 1 one 2 two", "(integer) 2"),
        ("ZADD zset2 1 one 2 two 3 three", "(integer) 3"),
        ("ZUNIONSTORE out 2 zset1 zset2 WEIGHTS 2 3", "(integer) 3"),
        ("ZRANGE out 0 -1 WITHSCORES", "[\"one\", \"5\", \"three\", \"9\", \"two\", \"10\"]"),
    ],
    prepares: Prepares::Derived(union),
    run: Run::Write(|tx, request, reply| store(tx, request, (union, request.at(1)), "zunionstore", reply)),
    ..SORTED_SET
};

fn union(tx: &Transaction<'_>, request: Request<'_>) -> Result<Derived> {
    Ok(derived(tx, Operation::parse(tx, request, 2, Operator::Union, "zunionstore")?.combine()))
}

const ZINTER: Command = Command {
    name: "zinter",
    summary: "Returns the intersection of sorted sets; scores are summed unless AGGREGATE is given.",
    complexity: "O(N*K)+O(M*log(M)) worst case with N being the smallest input sorted set, K being the number of input sorted sets and M being the number of elements in the resulting sorted set.",
    cost: costs::SMALLEST_COUNTED,
    example: &[
        ("ZADD zset1 1 one 2 two", "(integer) 2"),
        ("ZADD zset2 1 one 2 two 3 three", "(integer) 3"),
        ("ZINTER 2 zset1 zset2 WITHSCORES", "[\"one\", \"2\", \"two\", \"4\"]"),
    ],
    run: Run::Read(|tx, request, reply| combined(Operator::Intersection, "zinter", tx, request, reply)),
    ..ZUNION
};

const ZINTERSTORE: Command = Command {
    name: "zinterstore",
    flags: Flags::DENYOOM,
    keys: &[
        KeySpec::first(KeyFlags::OW.and(KeyFlags::UPDATE)),
        KeySpec::counted(2, 1, KeyFlags::RO.and(KeyFlags::ACCESS)),
    ],
    summary: "Stores the intersection of sorted sets; scores are summed unless AGGREGATE is given.",
    since: "2.0.0",
    complexity: "O(N*K)+O(M*log(M)) worst case with N being the smallest input sorted set, K being the number of input sorted sets and M being the number of elements in the resulting sorted set.",
    cost: costs::SMALLEST_COUNTED_CHANGING,
    arguments: &[
        Argument::new("destination", ArgumentKind::Key),
        Argument::integer("numkeys"),
        Argument::KEY.multiple().of_spec(1),
        Argument::integer("weight").token("WEIGHTS").optional().multiple(),
        AGGREGATE,
    ],
    example: &[
        ("ZADD zset1 1 one 2 two", "(integer) 2"),
        ("ZADD zset2 1 one 2 two 3 three", "(integer) 3"),
        ("ZINTERSTORE out 2 zset1 zset2 AGGREGATE MAX", "(integer) 2"),
        ("ZRANGE out 0 -1 WITHSCORES", "[\"one\", \"1\", \"two\", \"2\"]"),
    ],
    prepares: Prepares::Derived(intersection),
    run: Run::Write(|tx, request, reply| {
        store(tx, request, (intersection, request.at(1)), "zinterstore", reply)
    }),
    ..SORTED_SET
};

fn intersection(tx: &Transaction<'_>, request: Request<'_>) -> Result<Derived> {
    Ok(derived(tx, Operation::parse(tx, request, 2, Operator::Intersection, "zinterstore")?.combine()))
}

const ZINTERCARD: Command = Command {
    name: "zintercard",
    keys: &[KeySpec::counted(1, 1, KeyFlags::RO.and(KeyFlags::ACCESS))],
    summary: "Returns the number of members that all the sorted sets share.",
    since: "7.0.0",
    complexity: "O(N*K) worst case with N being the smallest input sorted set, K being the number of input sorted sets.",
    cost: costs::SMALLEST_SUMMED_UP,
    arguments: &[
        Argument::integer("numkeys"),
        Argument::KEY.multiple(),
        Argument::integer("limit").token("LIMIT").optional(),
    ],
    example: &[
        ("ZADD zset1 1 one 2 two", "(integer) 2"),
        ("ZADD zset2 1 one 2 two 3 three", "(integer) 3"),
        ("ZINTERCARD 2 zset1 zset2", "(integer) 2"),
        ("ZINTERCARD 2 zset1 zset2 LIMIT 1", "(integer) 1"),
    ],
    run: Run::Read(zintercard),
    ..SORTED_SET
};

fn zintercard(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let operation = Operation::parse(tx, request, 1, Operator::Cardinality, "zintercard")?;
    let limit = if operation.limit == 0 { usize::MAX } else { operation.limit };
    let mut count = 0;
    operation.each_common(&mut |_, _| {
        count += 1;
        count < limit
    });
    Ok(reply.count(count))
}

const ZDIFF: Command = Command {
    name: "zdiff",
    keys: &[KeySpec::counted(1, 1, KeyFlags::RO.and(KeyFlags::ACCESS))],
    summary: "Returns the members of the first sorted set that are in none of the others.",
    since: "6.2.0",
    complexity: "O(L + (N-K)log(N)) worst case where L is the total number of elements in all the sets, N is the size of the first set, and K is the size of the result set.",
    cost: costs::ALL,
    arguments: &[
        Argument::integer("numkeys"),
        Argument::KEY.multiple(),
        Argument::word("WITHSCORES").optional(),
    ],
    example: &[
        ("ZADD zset1 1 one 2 two", "(integer) 2"),
        ("ZADD zset2 1 one 2 two 3 three", "(integer) 3"),
        ("ZDIFF 2 zset2 zset1 WITHSCORES", "[\"three\", \"3\"]"),
    ],
    run: Run::Read(|tx, request, reply| combined(Operator::Difference, "zdiff", tx, request, reply)),
    ..SORTED_SET
};

const ZDIFFSTORE: Command = Command {
    name: "zdiffstore",
    summary: "Stores the members of the first sorted set that are in none of the others.",
    since: "6.2.0",
    complexity: "O(L + (N-K)log(N)) worst case where L is the total number of elements in all the sets, N is the size of the first set, and K is the size of the result set.",
    arguments: &[
        Argument::new("destination", ArgumentKind::Key),
        Argument::integer("numkeys"),
        Argument::KEY.multiple().of_spec(1),
    ],
    example: &[
        ("ZADD zset1 1 one 2 two", "(integer) 2"),
        ("ZADD zset2 1 one 2 two 3 three", "(integer) 3"),
        ("ZDIFFSTORE out 2 zset2 zset1", "(integer) 1"),
        ("ZRANGE out 0 -1 WITHSCORES", "[\"three\", \"3\"]"),
    ],
    prepares: Prepares::Derived(difference),
    run: Run::Write(|tx, request, reply| {
        store(tx, request, (difference, request.at(1)), "zdiffstore", reply)
    }),
    ..ZUNIONSTORE
};

fn difference(tx: &Transaction<'_>, request: Request<'_>) -> Result<Derived> {
    Ok(derived(tx, Operation::parse(tx, request, 2, Operator::Difference, "zdiffstore")?.combine()))
}
