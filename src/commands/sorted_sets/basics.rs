//! Members and their scores.

use crate::keyspace::{Change, Transaction};
use crate::resp::{Reply, Request, Sent};
use crate::types::sorted_sets::ranges::Bounds;
use crate::types::sorted_sets::{SortedSet, SortedSetView, score};

use super::{members, scores};
use crate::commands::args::is_word;
use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::facts::{Argument, Categories, Command, Flags, Group, KeyFlags, KeySpec, Result, Run};

pub(in crate::commands) const COMMANDS: &[Command] =
    &[ZADD, ZCARD, ZCOUNT, ZINCRBY, ZLEXCOUNT, ZMSCORE, ZRANK, ZREVRANK, ZSCORE];

/// The facts that most commands of this file share.
const SORTED_SET: Command =
    Command { categories: Categories::SORTEDSET, group: Group::SORTED_SET, ..Command::DEFAULTS };

const ZADD: Command = Command {
    name: "zadd",
    flags: Flags::DENYOOM.and(Flags::FAST),
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::UPDATE))],
    summary: "Adds members with scores to a sorted set, or changes the scores of existing members.",
    since: "1.2.0",
    complexity: "O(log(N)) for each item added, where N is the number of elements in the sorted set.",
    cost: costs::BRIEF,
    arguments: &[
        Argument::KEY,
        Argument::one_of("condition", &Argument::words(["NX", "XX"])).since("3.0.2").optional(),
        Argument::one_of("comparison", &Argument::words(["GT", "LT"])).since("6.2.0").optional(),
        Argument::pure_token("change", "CH").since("3.0.2").optional(),
        Argument::pure_token("increment", "INCR").since("3.0.2").optional(),
        Argument::block("data", &[Argument::double("score"), Argument::string("member")]).multiple(),
    ],
    example: &[
        ("ZADD myzset 1 one 2 two", "(integer) 2"),
        ("ZADD myzset GT CH 3 one 1 two", "(integer) 1"),
        ("ZRANGE myzset 0 -1 WITHSCORES", "[\"two\", \"2\", \"one\", \"3\"]"),
    ],
    run: Run::Write(zadd),
    ..SORTED_SET
};

fn zadd(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let options = Adding::parse(request)?;
    let pairs = request.len() - options.first;
    if !pairs.is_multiple_of(2) || pairs == 0 {
        return Err(Error::SYNTAX);
    }
    options.check(pairs / 2)?;
    let members = (options.first..request.len()).step_by(2);
    let pairs = members.map(|at| parse_score(request.at(at)).map(|score| (score, request.at(at + 1))));
    add(tx, request.at(1), options, &pairs.collect::<Result<Vec<_>>>()?, reply)
}

/// The options of ZADD, and of what else adds members.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::commands) struct Adding {
    /// Only members that are absent.
    pub(in crate::commands) nx: bool,
    /// Only members that are there.
    pub(in crate::commands) xx: bool,
    /// Only if the new score is greater than that of a member that is there...
    pub(in crate::commands) gt: bool,
    /// ... or less.
    pub(in crate::commands) lt: bool,
    /// The reply counts changed scores, too.
    pub(in crate::commands) counts_changes: bool,
    /// The score is to be added to that of the member.
    pub(in crate::commands) adds: bool,
    /// The position of the first score.
    pub(in crate::commands) first: usize,
}

impl Adding {
    fn parse(request: Request<'_>) -> Result<Adding> {
        let mut options = Adding { first: 2, ..Adding::default() };
        for option in request.from(2) {
            match option {
                _ if is_word(option, "nx") => options.nx = true,
                _ if is_word(option, "xx") => options.xx = true,
                _ if is_word(option, "gt") => options.gt = true,
                _ if is_word(option, "lt") => options.lt = true,
                _ if is_word(option, "ch") => options.counts_changes = true,
                _ if is_word(option, "incr") => options.adds = true,
                _ => break,
            }
            options.first += 1;
        }
        Ok(options)
    }

    /// Refuses options that contradict each other.
    fn check(self, members: usize) -> Result<()> {
        if self.nx && self.xx {
            return Err(Error::fixed("ERR XX and NX options at the same time are not compatible"));
        }
        if (self.gt && self.lt) || (self.nx && (self.gt || self.lt)) {
            return Err(Error::fixed("ERR GT, LT, and/or NX options at the same time are not compatible"));
        }
        if self.adds && members > 1 {
            return Err(Error::fixed("ERR INCR option supports a single increment-element pair"));
        }
        Ok(())
    }

    /// Whether a member gets its score whatever the score was before.
    fn is_plain(self) -> bool {
        !(self.nx || self.xx || self.gt || self.lt || self.adds)
    }

    /// The score that a member gets, if it gets one.
    fn score(self, before: Option<f64>, score: f64) -> Result<Option<f64>> {
        let Some(before) = before else { return Ok((!self.xx).then_some(score)) };
        if self.nx {
            return Ok(None);
        }
        let after = if self.adds { before + score } else { score };
        if after.is_nan() {
            return Err(Error::fixed("ERR resulting score is not a number (NaN)"));
        }
        let is_refused = self.lt && after >= before || self.gt && after <= before;
        Ok((!is_refused).then_some(after))
    }
}

/// Sets the scores of members, or adds to that of a single one.
///
/// # Errors
///
/// [`Error::WRONG_TYPE`], and an error for a sum that is no number.
pub(in crate::commands) fn add(
    tx: &mut Transaction<'_>,
    key: &[u8],
    options: Adding,
    pairs: &[(f64, &[u8])],
    reply: Reply<'_>,
) -> Result {
    let change = |set: &mut Change<'_, SortedSet>| -> Result<(usize, Option<f64>)> {
        let (mut count, mut last) = (0, None);
        for (score, member) in pairs {
            let (before, after) = match options.is_plain() {
                true => (set.set_score(member, *score), Some(*score)),
                false => set.update_score(member, |before| options.score(before, *score))?,
            };
            last = after;
            let Some(after) = after else { continue };
            let is_counted = before.is_none() || options.counts_changes && before != Some(after);
            count += usize::from(is_counted);
        }
        Ok((count, last))
    };
    let event = if options.adds { "zincr" } else { "zadd" };
    // A member that must be there is not in a sorted set that is absent.
    let done = match options.xx {
        true => tx.change::<SortedSet, _>(key, event, change)?.unwrap_or(Ok((0, None)))?,
        false => tx.make::<SortedSet, _>(key, event, change)??,
    };
    Ok(match done {
        (_, Some(score)) if options.adds => reply.double(score),
        _ if options.adds => reply.nil(),
        (count, _) => reply.count(count),
    })
}

fn parse_score(text: &[u8]) -> Result<f64> {
    score::parse(text).ok_or(Error::NOT_A_FLOAT)
}

const ZINCRBY: Command = Command {
    name: "zincrby",
    flags: Flags::DENYOOM.and(Flags::FAST),
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::UPDATE))],
    summary: "Adds to the score of a member; an absent member starts at 0.",
    since: "1.2.0",
    complexity: "O(log(N)) where N is the number of elements in the sorted set.",
    cost: costs::BRIEF,
    arguments: &[Argument::KEY, Argument::integer("increment"), Argument::string("member")],
    example: &[("ZADD myzset 1 one", "(integer) 1"), ("ZINCRBY myzset 2 one", "\"3\"")],
    run: Run::Write(zincrby),
    ..SORTED_SET
};

fn zincrby(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let pair = (parse_score(request.at(2))?, request.at(3));
    add(tx, request.at(1), Adding { adds: true, ..Adding::default() }, &[pair], reply)
}

const ZCARD: Command = Command {
    name: "zcard",
    flags: Flags::FAST,
    keys: &[KeySpec::first(KeyFlags::RO)],
    summary: "Returns the number of members of a sorted set.",
    since: "1.2.0",
    complexity: "O(1)",
    cost: costs::BRIEF,
    arguments: &[Argument::KEY],
    example: &[("ZADD myzset 1 one 2 two 3 three", "(integer) 3"), ("ZCARD myzset", "(integer) 3")],
    run: Run::Read(zcard),
    ..SORTED_SET
};

fn zcard(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    Ok(reply.count(tx.get::<SortedSet>(request.at(1))?.map_or(0, SortedSetView::len)))
}

const ZSCORE: Command = Command {
    name: "zscore",
    flags: Flags::FAST,
    keys: &[KeySpec::first(KeyFlags::RO.and(KeyFlags::ACCESS))],
    summary: "Returns the score of a member of a sorted set.",
    since: "1.2.0",
    complexity: "O(1)",
    cost: costs::BRIEF,
    arguments: &[Argument::KEY, Argument::string("member")],
    example: &[
        ("ZADD myzset 1.5 one", "(integer) 1"),
        ("ZSCORE myzset one", "\"1.5\""),
        ("ZSCORE myzset two", "(nil)"),
    ],
    run: Run::Read(zscore),
    ..SORTED_SET
};

fn zscore(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let set = tx.get::<SortedSet>(request.at(1))?;
    Ok(reply_score(set.and_then(|set| set.score(request.at(2))), reply))
}

fn reply_score(score: Option<f64>, reply: Reply<'_>) -> Sent {
    match score {
        Some(score) => reply.double(score),
        None => reply.nil(),
    }
}

const ZMSCORE: Command = Command {
    name: "zmscore",
    flags: Flags::FAST,
    keys: &[KeySpec::first(KeyFlags::RO.and(KeyFlags::ACCESS))],
    summary: "Returns the scores of several members of a sorted set.",
    since: "6.2.0",
    complexity: "O(N) where N is the number of members being requested.",
    cost: costs::BRIEF,
    arguments: &[Argument::KEY, Argument::string("member").multiple()],
    example: &[
        ("ZADD myzset 1 one 2 two", "(integer) 2"),
        ("ZMSCORE myzset one two none", "[\"1\", \"2\", (nil)]"),
    ],
    run: Run::Read(zmscore),
    ..SORTED_SET
};

fn zmscore(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let set = tx.get::<SortedSet>(request.at(1))?;
    let score = |member: &[u8]| set.and_then(|set| set.score(member));
    Ok(reply.array_of(request.from(2), |member, reply| reply_score(score(member), reply)))
}

const ZRANK: Command = Command {
    name: "zrank",
    flags: Flags::FAST,
    keys: &[KeySpec::first(KeyFlags::RO.and(KeyFlags::ACCESS))],
    summary: "Returns the rank of a member, counted from 0 at the lowest score.",
    since: "2.0.0",
    complexity: "O(log(N))",
    cost: costs::BRIEF,
    arguments: &[Argument::KEY, Argument::string("member"), Argument::word("WITHSCORE").optional()],
    example: &[
        ("ZADD myzset 1 one 2 two 3 three", "(integer) 3"),
        ("ZRANK myzset three", "(integer) 2"),
        ("ZRANK myzset three WITHSCORE", "[(integer) 2, \"3\"]"),
        ("ZRANK myzset four", "(nil)"),
    ],
    run: Run::Read(|tx, request, reply| rank(tx, request, reply, "zrank", |set, rank| rank.min(set.len()))),
    ..SORTED_SET
};

/// Replies with the rank of a member, which the function counts from one end, and with its score if wanted.
fn rank(
    tx: &Transaction<'_>,
    request: Request<'_>,
    reply: Reply<'_>,
    command: &str,
    count: impl Fn(SortedSetView<'_>, usize) -> usize,
) -> Result {
    let with_score = match (request.get(3), request.len()) {
        (None, _) => false,
        (Some(word), 4) if is_word(word, "withscore") => true,
        (_, 4) => return Err(Error::SYNTAX),
        _ => return Err(Error::wrong_arity(command)),
    };
    let member = request.at(2);
    let set = tx.get::<SortedSet>(request.at(1))?;
    let found = set.and_then(|set| Some((set, set.rank(member)?)));
    Ok(match found {
        Some((set, rank)) if with_score => {
            reply.pair(|reply| reply.count(count(set, rank)), |reply| reply_score(set.score(member), reply))
        }
        Some((set, rank)) => reply.count(count(set, rank)),
        None if with_score => reply.nil_array(),
        None => reply.nil(),
    })
}

const ZREVRANK: Command = Command {
    name: "zrevrank",
    summary: "Returns the rank of a member, counted from 0 at the highest score.",
    example: &[
        ("ZADD myzset 1 one 2 two 3 three", "(integer) 3"),
        ("ZREVRANK myzset one", "(integer) 2"),
        ("ZREVRANK myzset four", "(nil)"),
    ],
    run: Run::Read(|tx, request, reply| {
        rank(tx, request, reply, "zrevrank", |set, rank| set.len() - 1 - rank)
    }),
    ..ZRANK
};

const ZCOUNT: Command = Command {
    name: "zcount",
    flags: Flags::FAST,
    keys: &[KeySpec::first(KeyFlags::RO.and(KeyFlags::ACCESS))],
    summary: "Returns the number of members in a range of scores.",
    since: "2.0.0",
    complexity: "O(log(N)) with N being the number of elements in the sorted set.",
    cost: costs::BRIEF,
    arguments: &[Argument::KEY, Argument::double("min"), Argument::double("max")],
    example: &[
        ("ZADD myzset 1 one 2 two 3 three", "(integer) 3"),
        ("ZCOUNT myzset -inf +inf", "(integer) 3"),
        ("ZCOUNT myzset (1 3", "(integer) 2"),
    ],
    run: Run::Read(|tx, request, reply| count(tx, request, scores(request.at(2), request.at(3))?, reply)),
    ..SORTED_SET
};

/// Replies with the number of members in a range.
fn count(tx: &Transaction<'_>, request: Request<'_>, bounds: Bounds<'_>, reply: Reply<'_>) -> Result {
    let set = tx.get::<SortedSet>(request.at(1))?;
    Ok(reply.count(set.map_or(0, |set| bounds.positions(set).len())))
}

const ZLEXCOUNT: Command = Command {
    name: "zlexcount",
    flags: Flags::FAST,
    keys: &[KeySpec::first(KeyFlags::RO.and(KeyFlags::ACCESS))],
    summary: "Returns the number of members in a range of byte order; all scores must be equal.",
    since: "2.8.9",
    complexity: "O(log(N)) with N being the number of elements in the sorted set.",
    cost: costs::ARGUMENTS,
    arguments: &[Argument::KEY, Argument::string("min"), Argument::string("max")],
    example: &[
        ("ZADD myzset 0 a 0 b 0 c 0 d", "(integer) 4"),
        ("ZLEXCOUNT myzset - +", "(integer) 4"),
        ("ZLEXCOUNT myzset [b (d", "(integer) 2"),
    ],
    run: Run::Read(|tx, request, reply| count(tx, request, members(request.at(2), request.at(3))?, reply)),
    ..SORTED_SET
};
