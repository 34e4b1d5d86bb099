//! Removing members: by their names, in a range, or from an end.

use crate::commands::costs;
use crate::keyspace::Transaction;
use crate::resp::{Protocol, Reply, Request};
use crate::types::sorted_sets::ranges::Bounds;
use crate::types::sorted_sets::{SortedSet, SortedSetView};

use super::{members, reply_members, scores};
use crate::commands::args::{self, PopFromSeveral, is_word};
use crate::commands::error::Error;
use crate::commands::facts::{
    Argument, Categories, Command, Cost, Costs, Estimate, Flags, Group, KeyFlags, KeySpec, Result, Run,
};

pub(in crate::commands) const COMMANDS: &[Command] =
    &[ZMPOP, ZPOPMAX, ZPOPMIN, ZREM, ZREMRANGEBYLEX, ZREMRANGEBYRANK, ZREMRANGEBYSCORE];

/// The facts that most commands of this file share.
const SORTED_SET: Command =
    Command { categories: Categories::SORTEDSET, group: Group::SORTED_SET, ..Command::DEFAULTS };

const ZREM: Command = Command {
    name: "zrem",
    flags: Flags::FAST,
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::DELETE))],
    summary: "Removes members from a sorted set; a sorted set without members is deleted.",
    since: "1.2.0",
    complexity: "O(M*log(N)) with N being the number of elements in the sorted set and M the number of elements to be removed.",
    cost: costs::BRIEF,
    arguments: &[Argument::KEY, Argument::string("member").multiple()],
    example: &[("ZADD myzset 1 one 2 two 3 three", "(integer) 3"), ("ZREM myzset two four", "(integer) 1")],
    run: Run::Write(zrem),
    ..SORTED_SET
};

fn zrem(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let removed = tx.change::<SortedSet, _>(request.at(1), "zrem", |set| {
        request.from(2).filter(|member| set.remove(member)).count()
    })?;
    Ok(reply.count(removed.unwrap_or(0)))
}

const ZREMRANGEBYRANK: Command = Command {
    name: "zremrangebyrank",
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::DELETE))],
    summary: "Removes the members in a range of ranks; returns how many were removed.",
    since: "2.0.0",
    complexity: "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements removed by the operation.",
    cost: Costs::of(|estimate| removes(estimate, by_ranks)),
    arguments: &[Argument::KEY, Argument::integer("start"), Argument::integer("stop")],
    example: &[
        ("ZADD myzset 1 one 2 two 3 three", "(integer) 3"),
        ("ZREMRANGEBYRANK myzset 0 1", "(integer) 2"),
        ("ZRANGE myzset 0 -1", "[\"three\"]"),
    ],
    run: Run::Write(zremrangebyrank),
    ..SORTED_SET
};

fn zremrangebyrank(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    remove_range(tx, request.at(1), "zremrangebyrank", by_ranks(request)?, reply)
}

fn by_ranks(request: Request<'_>) -> Result<Bounds<'_>> {
    Ok(Bounds::Ranks(args::integer(request.at(2))?, args::integer(request.at(3))?))
}

/// How many members a request removes from a large set.
fn removes<'a>(estimate: &Estimate<'a>, bounds: fn(Request<'a>) -> Result<Bounds<'a>>) -> Cost {
    let removed = match estimate.value::<SortedSet>(estimate.request.at(1)) {
        Some(set @ SortedSetView::Large(_)) => {
            bounds(estimate.request).map_or(0, |bounds| bounds.positions(set).len() as u64)
        }
        _ => 1,
    };
    estimate.reading(removed).changing().with_small_reply()
}

/// Removes the members in a range; replies with their number.
fn remove_range(
    tx: &mut Transaction<'_>,
    key: &[u8],
    event: &'static str,
    bounds: Bounds<'_>,
    reply: Reply<'_>,
) -> Result {
    let removed = tx.change::<SortedSet, _>(key, event, |set| {
        let positions = bounds.positions(set.view());
        set.remove_range(positions.clone());
        positions.len()
    })?;
    Ok(reply.count(removed.unwrap_or(0)))
}

const ZREMRANGEBYSCORE: Command = Command {
    name: "zremrangebyscore",
    summary: "Removes the members in a range of scores; returns how many were removed.",
    since: "1.2.0",
    cost: Costs::of(|estimate| removes(estimate, by_scores)),
    arguments: &[Argument::KEY, Argument::double("min"), Argument::double("max")],
    example: &[
        ("ZADD myzset 1 one 2 two 3 three", "(integer) 3"),
        ("ZREMRANGEBYSCORE myzset -inf (2", "(integer) 1"),
        ("ZRANGE myzset 0 -1", "[\"two\", \"three\"]"),
    ],
    run: Run::Write(zremrangebyscore),
    ..ZREMRANGEBYRANK
};

fn zremrangebyscore(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    remove_range(tx, request.at(1), "zremrangebyscore", by_scores(request)?, reply)
}

fn by_scores(request: Request<'_>) -> Result<Bounds<'_>> {
    scores(request.at(2), request.at(3))
}

const ZREMRANGEBYLEX: Command = Command {
    name: "zremrangebylex",
    summary: "Removes the members in a range of byte order; all scores must be equal.",
    since: "2.8.9",
    cost: Costs::of(|estimate| removes(estimate, by_bytes)),
    arguments: &[Argument::KEY, Argument::string("min"), Argument::string("max")],
    example: &[
        ("ZADD myzset 0 a 0 b 0 c 0 d", "(integer) 4"),
        ("ZREMRANGEBYLEX myzset [b [c", "(integer) 2"),
        ("ZRANGE myzset 0 -1", "[\"a\", \"d\"]"),
    ],
    run: Run::Write(zremrangebylex),
    ..ZREMRANGEBYRANK
};

fn zremrangebylex(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    remove_range(tx, request.at(1), "zremrangebylex", by_bytes(request)?, reply)
}

fn by_bytes(request: Request<'_>) -> Result<Bounds<'_>> {
    members(request.at(2), request.at(3))
}

const ZPOPMIN: Command = Command {
    name: "zpopmin",
    flags: Flags::FAST,
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::DELETE))],
    summary: "Removes and returns the members with the lowest scores.",
    since: "5.0.0",
    complexity: "O(log(N)*M) with N being the number of elements in the sorted set, and M being the number of elements popped.",
    cost: costs::AS_COUNTED_CHANGING.brief_up_to(2),
    arguments: &[Argument::KEY, Argument::integer("count").optional()],
    example: &[
        ("ZADD myzset 1 one 2 two 3 three", "(integer) 3"),
        ("ZPOPMIN myzset", "[\"one\", \"1\"]"),
        ("ZCARD myzset", "(integer) 2"),
    ],
    run: Run::Write(|tx, request, reply| pop_from_one(tx, request, Side::Lowest, reply)),
    ..SORTED_SET
};

/// An end of a sorted set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The lowest scores.
    Lowest,
    /// The highest scores.
    Highest,
}

impl Side {
    /// Reads MIN or MAX.
    ///
    /// # Errors
    ///
    /// [`Error::SYNTAX`]
    pub(super) fn parse(word: &[u8]) -> Result<Side> {
        match word {
            _ if is_word(word, "min") => Ok(Side::Lowest),
            _ if is_word(word, "max") => Ok(Side::Highest),
            _ => Err(Error::SYNTAX),
        }
    }
}

/// Members that are about to be removed, with their scores, from the end of the sorted set on.
pub(super) type Popped<'p> = Vec<(&'p [u8], f64)>;

/// Removes up to `count` members from an end of a sorted set, and has `read` read them before. Returns `None`
/// if the key is absent, or nothing is to be removed.
///
/// # Errors
///
/// [`Error::WRONG_TYPE`]
pub(super) fn pop<R>(
    tx: &mut Transaction<'_>,
    key: &[u8],
    side: Side,
    count: usize,
    read: impl FnOnce(Popped<'_>) -> R,
) -> Result<Option<R>> {
    let event = if side == Side::Lowest { "zpopmin" } else { "zpopmax" };
    let popped = tx.change::<SortedSet, _>(key, event, |set| {
        let len = set.view().len();
        let count = count.min(len);
        if count == 0 {
            return None;
        }
        let (positions, result) = match side {
            Side::Lowest => (0..count, read(set.view().range(0..count).collect())),
            Side::Highest => (len - count..len, read(set.view().range(len - count..len).rev().collect())),
        };
        set.remove_range(positions);
        Some(result)
    })?;
    Ok(popped.flatten())
}

/// ZPOPMIN and ZPOPMAX.
fn pop_from_one(tx: &mut Transaction<'_>, request: Request<'_>, side: Side, reply: Reply<'_>) -> Result {
    let count = match request.get(2) {
        None => 1,
        Some(_) if request.len() > 3 => return Err(Error::SYNTAX),
        Some(text) => args::natural(text)?,
    };
    let (key, is_paired) = (request.at(1), request.len() == 3 && reply.protocol() == Protocol::Resp3);
    let len = tx.peek::<SortedSet>(key)?.map_or(0, SortedSetView::len);
    if count.min(len) == 0 {
        return Ok(reply_members(0, std::iter::empty(), false, reply));
    }
    reply.nested(|parts| {
        let popped = pop(tx, key, side, count, |members| {
            parts.array(if is_paired { members.len() } else { 2 * members.len() });
            for (member, score) in members {
                if is_paired {
                    parts.array(2);
                }
                let _ = parts.part().bulk(member);
                let _ = parts.part().double(score);
            }
        });
        popped.map(drop)
    })
}

const ZPOPMAX: Command = Command {
    name: "zpopmax",
    summary: "Removes and returns the members with the highest scores.",
    example: &[
        ("ZADD myzset 1 one 2 two 3 three", "(integer) 3"),
        ("ZPOPMAX myzset 2", "[\"three\", \"3\", \"two\", \"2\"]"),
    ],
    run: Run::Write(|tx, request, reply| pop_from_one(tx, request, Side::Highest, reply)),
    ..ZPOPMIN
};

const ZMPOP: Command = Command {
    name: "zmpop",
    keys: &[KeySpec::counted(1, 1, KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::DELETE))],
    summary: "Removes and returns members with the lowest or highest scores from the first non-empty sorted set.",
    since: "7.0.0",
    complexity: "O(K) + O(M*log(N)) where K is the number of provided keys, N being the number of elements in the sorted set, and M being the number of elements popped.",
    cost: costs::WITH_COUNT_CHANGING,
    arguments: &[
        Argument::integer("numkeys"),
        Argument::KEY.multiple(),
        Argument::one_of("where", &Argument::words(["MIN", "MAX"])),
        Argument::integer("count").token("COUNT").optional(),
    ],
    example: &[
        ("ZADD myzset 1 one 2 two 3 three", "(integer) 3"),
        ("ZMPOP 2 absent myzset MIN", "[\"myzset\", [[\"one\", \"1\"]]]"),
        ("ZMPOP 1 absent MAX COUNT 2", "(nil)"),
    ],
    run: Run::Write(zmpop),
    ..SORTED_SET
};

fn zmpop(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let popping = PoppingFromSeveral::parse(request, 1)?;
    for key in popping.keys() {
        if tx.peek::<SortedSet>(key)?.is_some() {
            return popping.pop(tx, key, reply);
        }
    }
    Ok(reply.nil_array())
}

/// The sorted sets of ZMPOP and BZMPOP, which pop from the first that is not empty.
pub(super) struct PoppingFromSeveral<'a> {
    request: Request<'a>,
    pop: PopFromSeveral<Side>,
}

impl<'a> PoppingFromSeveral<'a> {
    /// Reads the number of keys at a position of a request, and what follows.
    ///
    /// # Errors
    ///
    /// As [`PopFromSeveral::parse`].
    pub(super) fn parse(request: Request<'a>, at: usize) -> Result<PoppingFromSeveral<'a>> {
        Ok(PoppingFromSeveral { request, pop: PopFromSeveral::parse(request, at, Side::parse)? })
    }

    /// The keys, in the order in which they are looked at.
    pub(in crate::commands) fn keys(&self) -> impl Iterator<Item = &'a [u8]> {
        self.pop.keys.clone().map(|at| self.request.at(at))
    }

    /// Removes members from a sorted set that is there; replies with the key and the members.
    ///
    /// # Errors
    ///
    /// [`Error::WRONG_TYPE`]
    pub(super) fn pop(&self, tx: &mut Transaction<'_>, key: &[u8], reply: Reply<'_>) -> Result {
        reply.nested(|parts| {
            pop(tx, key, self.pop.end, self.pop.count, |members| {
                parts.array(2);
                let _ = parts.part().bulk(key);
                parts.array(members.len());
                for (member, score) in members {
                    let _ = parts.part().pair(|it| it.bulk(member), |it| it.double(score));
                }
            })
            .map(drop)
        })
    }
}
