//! Commands that wait until a list has an element.

use crate::keyspace::Transaction;
use crate::resp::{Reply, Request};
use crate::values::LIST_KIND;

use super::ends::{ENDS, KeysToPop, MOVED_KEYS, MoveEnds, move_between, pop};
use crate::commands::args::last;
use crate::commands::costs;
use crate::commands::facts::{
    Argument, ArgumentKind, Blocking, Categories, Command, Deprecated, Flags, Group, KeyFlags, KeySpec, Only,
    Patience, Result, Run, Taken, Timeout, WaitingRules, looks_at,
};
use crate::types::lists::ListEnd;

pub(in crate::commands) const COMMANDS: &[Command] = &[BLMOVE, BLMPOP, BLPOP, BRPOP, BRPOPLPUSH];

/// The facts that most commands of this file share.
const LIST: Command = Command { categories: Categories::LIST, group: Group::LIST, ..Command::DEFAULTS };

const BLPOP: Command = Command {
    name: "blpop",
    flags: Flags::BLOCKING,
    keys: &[KeySpec::range(1, -2, 1, KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::DELETE))],
    summary: "Removes and returns the head of the first non-empty list; blocks if all are empty.",
    since: "2.0.0",
    complexity: "O(N) where N is the number of provided keys.",
    cost: costs::ARGUMENTS,
    arguments: &[Argument::KEY.multiple(), Argument::double("timeout")],
    example: &[
        ("RPUSH list1 a b", "(integer) 2"),
        ("BLPOP list1 list2 0", "[\"list1\", \"a\"]"),
        ("BLPOP absent 0.01", "(nil)"),
    ],
    run: Run::Block(&Blocking {
        kind: LIST_KIND,
        keys: usize::MAX,
        check: last,
        take: |tx, request, only, reply| pop_first(tx, request, only, ListEnd::Head, reply),
        nothing: |reply| reply.nil_array(),
        waiting: WaitingRules::PLAIN,
    }),
    ..LIST
};

/// Pops from the first of the keys that has a list, or only from some of them.
fn pop_first<'r>(
    tx: &mut Transaction<'_>,
    request: Request<'_>,
    only: Only<'_>,
    end: ListEnd,
    mut reply: Reply<'r>,
) -> Result<Taken<'r>> {
    let keys = request.from(1).take(request.len() - 2);
    for key in keys.filter(|key| looks_at(only, key)) {
        let popped = pop(tx, key, end, 1, reply, |popped, reply| {
            reply.pair(|reply| reply.bulk(key), |reply| reply.bulk(popped.first().unwrap_or_default()))
        })?;
        match popped {
            Ok(sent) => return Ok(Taken::Something(sent)),
            Err(unused) => reply = unused,
        }
    }
    Ok(Taken::Nothing(reply))
}

const BRPOP: Command = Command {
    name: "brpop",
    summary: "Removes and returns the tail of the first non-empty list; blocks if all are empty.",
    example: &[("RPUSH list1 a b", "(integer) 2"), ("BRPOP list1 list2 0", "[\"list1\", \"b\"]")],
    run: Run::Block(&Blocking {
        kind: LIST_KIND,
        keys: usize::MAX,
        check: last,
        take: |tx, request, only, reply| pop_first(tx, request, only, ListEnd::Tail, reply),
        nothing: |reply| reply.nil_array(),
        waiting: WaitingRules::PLAIN,
    }),
    ..BLPOP
};

const BLMOVE: Command = Command {
    name: "blmove",
    flags: Flags::BLOCKING.and(Flags::DENYOOM),
    keys: MOVED_KEYS,
    summary: "Moves an element from one list to another and returns it; blocks if there is none.",
    since: "6.2.0",
    complexity: "O(1)",
    cost: costs::ARGUMENTS,
    arguments: &[
        Argument::new("source", ArgumentKind::Key),
        Argument::new("destination", ArgumentKind::Key).of_spec(1),
        Argument::one_of("wherefrom", ENDS),
        Argument::one_of("whereto", ENDS),
        Argument::double("timeout"),
    ],
    example: &[
        ("RPUSH mylist one two", "(integer) 2"),
        ("BLMOVE mylist other LEFT RIGHT 0", "\"one\""),
        ("LRANGE other 0 -1", "[\"one\"]"),
    ],
    run: Run::Block(&Blocking {
        kind: LIST_KIND,
        keys: 1,
        check: check_blmove,
        take: blmove,
        nothing: |reply| reply.nil(),
        waiting: WaitingRules::PLAIN,
    }),
    ..LIST
};

fn check_blmove(request: Request<'_>) -> Result<Patience<'_>> {
    MoveEnds::parse(request)?;
    Ok(Timeout::Seconds(request.at(5)).into())
}

fn blmove<'r>(
    tx: &mut Transaction<'_>,
    request: Request<'_>,
    _only: Only<'_>,
    reply: Reply<'r>,
) -> Result<Taken<'r>> {
    move_if_there(tx, request, MoveEnds::parse(request)?, reply)
}

fn move_if_there<'r>(
    tx: &mut Transaction<'_>,
    request: Request<'_>,
    ends: MoveEnds,
    reply: Reply<'r>,
) -> Result<Taken<'r>> {
    let (source, target) = (request.at(1), request.at(2));
    Ok(match move_between(tx, (source, ends.from), (target, ends.to))? {
        Some(element) => Taken::Something(reply.bulk(&element)),
        None => Taken::Nothing(reply),
    })
}

const BRPOPLPUSH: Command = Command {
    name: "brpoplpush",
    flags: Flags::BLOCKING.and(Flags::DENYOOM),
    keys: MOVED_KEYS,
    summary: "Moves the tail of one list to the head of another and returns it; blocks if there is none.",
    since: "2.2.0",
    complexity: "O(1)",
    cost: costs::ARGUMENTS,
    deprecated: Some(Deprecated {
        since: "6.2.0",
        replaced_by: "`BLMOVE` with the `RIGHT` and `LEFT` arguments",
    }),
    arguments: &[
        Argument::new("source", ArgumentKind::Key),
        Argument::new("destination", ArgumentKind::Key).of_spec(1),
        Argument::double("timeout"),
    ],
    example: &[("RPUSH mylist one two", "(integer) 2"), ("BRPOPLPUSH mylist other 0", "\"two\"")],
    run: Run::Block(&Blocking {
        kind: LIST_KIND,
        keys: 1,
        check: last,
        take: |tx, request, _only, reply| {
            let ends = MoveEnds { from: ListEnd::Tail, to: ListEnd::Head };
            move_if_there(tx, request, ends, reply)
        },
        nothing: |reply| reply.nil(),
        waiting: WaitingRules::PLAIN,
    }),
    ..LIST
};

const BLMPOP: Command = Command {
    name: "blmpop",
    flags: Flags::BLOCKING,
    keys: &[KeySpec::counted(2, 1, KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::DELETE))],
    summary: "Removes and returns elements from the first non-empty list; blocks if all are empty.",
    since: "7.0.0",
    complexity: "O(N+M) where N is the number of provided keys and M is the number of elements returned.",
    cost: costs::WITH_COUNT_CHANGING,
    arguments: &[
        Argument::double("timeout"),
        Argument::integer("numkeys"),
        Argument::KEY.multiple(),
        Argument::one_of("where", ENDS),
        Argument::integer("count").token("COUNT").optional(),
    ],
    example: &[
        ("RPUSH mylist one two three", "(integer) 3"),
        ("BLMPOP 0 2 absent mylist LEFT COUNT 2", "[\"mylist\", [\"one\", \"two\"]]"),
    ],
    run: Run::Block(&Blocking {
        kind: LIST_KIND,
        keys: usize::MAX,
        check: |request| KeysToPop::parse(request, 2).map(|_| Timeout::Seconds(request.at(1)).into()),
        take: blmpop,
        nothing: |reply| reply.nil_array(),
        waiting: WaitingRules::PLAIN,
    }),
    ..LIST
};

fn blmpop<'r>(
    tx: &mut Transaction<'_>,
    request: Request<'_>,
    only: Only<'_>,
    reply: Reply<'r>,
) -> Result<Taken<'r>> {
    Ok(match KeysToPop::parse(request, 2)?.pop(tx, only, reply)? {
        Ok(sent) => Taken::Something(sent),
        Err(unused) => Taken::Nothing(unused),
    })
}
