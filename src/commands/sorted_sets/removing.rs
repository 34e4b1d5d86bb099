//! Removing members: by their names, in a range, or from an end.

use std::ops::Range;

use crate::commands::costs;
use crate::keyspace::{Change, Transaction};
use crate::resp::{Reply, Request, Sent};
use crate::types::sorted_sets::ranges::Bounds;
use crate::types::sorted_sets::{SortedSet, SortedSetView};
use crate::values::tree::Ranking;
use crate::values::{Kept, Structure, Type};

use super::{members, reply_members, scores};
use crate::commands::args::{self, PopFromSeveral, is_word};
use crate::commands::error::Error;
use crate::commands::facts::{
    Argument, Categories, Command, Cost, Costs, Derived, Estimate, Flags, Group, KeyFlags, KeySpec, Only,
    Prepares, Result, Run,
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
    prepares: Prepares::Derived(|tx, request| without_range(tx, request, by_ranks)),
    run: Run::Write(zremrangebyrank),
    ..SORTED_SET
};

fn zremrangebyrank(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    remove_range(tx, request, "zremrangebyrank", by_ranks(request)?, reply)
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
    request: Request<'_>,
    event: &'static str,
    bounds: Bounds<'_>,
    reply: Reply<'_>,
) -> Result {
    let staying = tx.prepared_value::<Derived>(request.name());
    let removed = tx.change::<SortedSet, _>(request.at(1), event, |set| {
        let positions = bounds.positions(set.view());
        remove(set, positions.clone(), staying.as_deref());
        positions.len()
    })?;
    Ok(reply.count(removed.unwrap_or(0)))
}

/// Removes the members at some positions, with what stays if that was derived before.
fn remove(set: &mut Change<'_, SortedSet>, positions: Range<usize>, staying: Option<&Derived>) {
    match staying.and_then(Derived::large::<Ranking>) {
        Some(staying) => set.leave_only(staying, positions),
        None => set.remove_range(positions),
    }
}

/// What a request stores that removes the members in a range: the others.
fn without_range<'a>(
    tx: &Transaction<'_>,
    request: Request<'a>,
    bounds: fn(Request<'a>) -> Result<Bounds<'a>>,
) -> Result<Derived> {
    let bounds = bounds(request)?;
    without(tx, request.at(1), |set| bounds.positions(set))
}

/// What stays of a large sorted set without the members at some positions.
fn without(
    tx: &Transaction<'_>,
    key: &[u8],
    positions: impl FnOnce(SortedSetView<'_>) -> Range<usize>,
) -> Result<Derived> {
    let Some(set @ SortedSetView::Large(ranking)) = tx.peek::<SortedSet>(key)? else {
        return Ok(Derived::default());
    };
    let (positions, mut staying) = (positions(set), ranking.share());
    let count = positions.len();
    drop(staying.remove_range(positions));
    let value = Kept::made(SortedSet::FACTS, Vec::new(), Some(Structure::Ranking(staying)));
    Ok(Derived { value: Some(value), count, ..Derived::default() })
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
    prepares: Prepares::Derived(|tx, request| without_range(tx, request, by_scores)),
    run: Run::Write(zremrangebyscore),
    ..ZREMRANGEBYRANK
};

fn zremrangebyscore(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    remove_range(tx, request, "zremrangebyscore", by_scores(request)?, reply)
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
    prepares: Prepares::Derived(|tx, request| without_range(tx, request, by_bytes)),
    run: Run::Write(zremrangebylex),
    ..ZREMRANGEBYRANK
};

fn zremrangebylex(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    remove_range(tx, request, "zremrangebylex", by_bytes(request)?, reply)
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
    prepares: Prepares::Derived(|tx, request| without_popped(tx, request, Side::Lowest)),
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

/// Members that are about to be popped.
pub(super) struct Popped<'p> {
    tx: &'p Transaction<'p>,
    set: SortedSetView<'p>,
    side: Side,
    count: usize,
}

impl<'p> Popped<'p> {
    /// The outermost one.
    pub(super) fn first(&self) -> Option<(&'p [u8], f64)> {
        outermost(self.set, self.side, self.count).next()
    }

    /// Replies with all of them and their scores, in pairs or as the protocol has them. Many are written when
    /// the locks are free.
    fn write(self, are_pairs: bool, reply: Reply<'_>) -> Sent {
        let Popped { tx, set, side, count } = self;
        if let SortedSetView::Large(members) = set
            && let Some(bytes) = costs::long_part(members, count)
        {
            let members = members.share();
            return tx.reply_later(bytes, reply, move |reply| {
                write_popped(SortedSetView::Large(&members), (side, count), are_pairs, reply)
            });
        }
        write_popped(set, (side, count), are_pairs, reply)
    }
}

fn write_popped(
    set: SortedSetView<'_>,
    (side, count): (Side, usize),
    are_pairs: bool,
    reply: Reply<'_>,
) -> Sent {
    let members = outermost(set, side, count);
    match are_pairs {
        true => reply.array_of_len(count, members, write_pair),
        false => reply_members(count, members, true, reply),
    }
}

fn write_pair((member, score): (&[u8], f64), reply: Reply<'_>) -> Sent {
    reply.pair(|reply| reply.bulk(member), |reply| reply.double(score))
}

/// So many members at an end of a sorted set with their scores, the outermost first.
fn outermost(set: SortedSetView<'_>, side: Side, count: usize) -> impl Iterator<Item = (&[u8], f64)> {
    let members = set.range(positions(set, side, count));
    let (lowest, highest) = match side {
        Side::Lowest => (Some(members), None),
        Side::Highest => (None, Some(members.rev())),
    };
    lowest.into_iter().flatten().chain(highest.into_iter().flatten())
}

/// Their positions; all, if there are fewer.
fn positions(set: SortedSetView<'_>, side: Side, count: usize) -> Range<usize> {
    let count = count.min(set.len());
    match side {
        Side::Lowest => 0..count,
        Side::Highest => set.len() - count..set.len(),
    }
}

/// Pops up to `count` members at an end of a sorted set. `write` replies with them before they are removed.
/// If the key is absent, returns the permission to reply.
///
/// # Errors
///
/// [`Error::WRONG_TYPE`]
pub(super) fn pop<'r>(
    tx: &mut Transaction<'_>,
    request: Request<'_>,
    key: &[u8],
    (side, count): (Side, usize),
    reply: Reply<'r>,
    write: impl FnOnce(Popped<'_>, Reply<'r>) -> Sent,
) -> Result<std::result::Result<Sent, Reply<'r>>> {
    let Some(set) = tx.peek::<SortedSet>(key)? else { return Ok(Err(reply)) };
    let positions = positions(set, side, count);
    let sent = write(Popped { tx, set, side, count: positions.len() }, reply);
    let event = if side == Side::Lowest { "zpopmin" } else { "zpopmax" };
    let staying = tx.prepared_value::<Derived>(request.name());
    tx.change::<SortedSet, _>(key, event, |set| remove(set, positions, staying.as_deref()))?;
    Ok(Ok(sent))
}

/// How many members ZPOPMIN or ZPOPMAX pops.
fn count_in(request: Request<'_>) -> Result<usize> {
    match request.get(2) {
        None => Ok(1),
        Some(_) if request.len() > 3 => Err(Error::SYNTAX),
        Some(text) => args::natural(text),
    }
}

/// What a request stores that pops members of one sorted set: the others.
fn without_popped(tx: &Transaction<'_>, request: Request<'_>, side: Side) -> Result<Derived> {
    let count = count_in(request)?;
    without(tx, request.at(1), |set| positions(set, side, count))
}

/// ZPOPMIN and ZPOPMAX.
fn pop_from_one(tx: &mut Transaction<'_>, request: Request<'_>, side: Side, reply: Reply<'_>) -> Result {
    let count = count_in(request)?;
    let popped =
        pop(tx, request, request.at(1), (side, count), reply, |popped, reply| match popped.first() {
            // One that is not counted is no pair within an array.
            Some(first) if request.len() == 2 => write_pair(first, reply),
            _ => popped.write(false, reply),
        })?;
    Ok(popped.unwrap_or_else(|reply| reply_members(0, std::iter::empty(), false, reply)))
}

const ZPOPMAX: Command = Command {
    name: "zpopmax",
    summary: "Removes and returns the members with the highest scores.",
    example: &[
        ("ZADD myzset 1 one 2 two 3 three", "(integer) 3"),
        ("ZPOPMAX myzset 2", "[\"three\", \"3\", \"two\", \"2\"]"),
    ],
    prepares: Prepares::Derived(|tx, request| without_popped(tx, request, Side::Highest)),
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
    prepares: Prepares::Derived(|tx, request| PoppingFromSeveral::parse(request, 1)?.without_popped(tx)),
    run: Run::Write(zmpop),
    ..SORTED_SET
};

fn zmpop(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let popped = PoppingFromSeveral::parse(request, 1)?.pop(tx, None, reply)?;
    Ok(popped.unwrap_or_else(Reply::nil_array))
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

    /// What the request stores: what stays of the first sorted set that is there.
    ///
    /// # Errors
    ///
    /// [`Error::WRONG_TYPE`]
    pub(super) fn without_popped(&self, tx: &Transaction<'_>) -> Result<Derived> {
        let PopFromSeveral { keys, end, count } = &self.pop;
        let first = keys.clone().map(|at| self.request.at(at)).find(|key| tx.is_there(key));
        without(tx, first.unwrap_or_default(), |set| positions(set, *end, *count))
    }

    /// Pops members from the first sorted set that is there, or only from that of one key, and replies with
    /// the key and the members. If all keys are absent, returns the permission to reply.
    ///
    /// # Errors
    ///
    /// [`Error::WRONG_TYPE`]
    pub(super) fn pop<'r>(
        &self,
        tx: &mut Transaction<'_>,
        only: Only<'_>,
        reply: Reply<'r>,
    ) -> Result<std::result::Result<Sent, Reply<'r>>> {
        let PopFromSeveral { end, count, .. } = self.pop;
        self.pop.pop_first(self.request, only, reply, |key, reply| {
            pop(tx, self.request, key, (end, count), reply, |popped, reply| {
                reply.pair(|reply| reply.bulk(key), |reply| popped.write(true, reply))
            })
        })
    }
}
