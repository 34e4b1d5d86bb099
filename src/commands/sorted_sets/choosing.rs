//! Random members, and members piece by piece.

use std::borrow::Cow;

use crate::keyspace::Transaction;
use crate::resp::shortest::write_shortest;
use crate::resp::{Reply, Request};
use crate::types::sorted_sets::{SortedSet, SortedSetView, score};

use crate::commands::costs;
use crate::commands::facts::{Argument, Categories, Command, Group, KeyFlags, KeySpec, Result, Run};
use crate::commands::random_and_scan::{Selection, Wanted, reply_scanned};

pub(in crate::commands) const COMMANDS: &[Command] = &[ZRANDMEMBER, ZSCAN];

const ZRANDMEMBER: Command = Command {
    name: "zrandmember",
    keys: &[KeySpec::first(KeyFlags::RO.and(KeyFlags::ACCESS))],
    categories: Categories::SORTEDSET,
    group: Group::SORTED_SET,
    summary: "Returns random members of a sorted set.",
    since: "6.2.0",
    complexity: "O(N) where N is the number of members returned",
    cost: costs::AS_COUNTED,
    tips: &["nondeterministic_output"],
    arguments: &[
        Argument::KEY,
        Argument::block("options", &[Argument::integer("count"), Argument::word("WITHSCORES").optional()])
            .optional(),
    ],
    example: &[
        ("ZADD dice 1 one", "(integer) 1"),
        ("ZRANDMEMBER dice", "\"one\""),
        ("ZRANDMEMBER dice -2 WITHSCORES", "[\"one\", \"1\", \"one\", \"1\"]"),
    ],
    run: Run::Read(zrandmember),
    ..Command::DEFAULTS
};

fn zrandmember(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    if request.len() == 2 {
        let set = tx.get::<SortedSet>(request.at(1))?;
        let drawn = set.and_then(|set| at(set, fastrand::usize(..set.len())));
        return Ok(reply.bulk_or_nil(drawn.map(|(member, _)| member)));
    }
    let (wanted, with_scores) = Wanted::parse(request, "withscores")?;
    let set = tx.get::<SortedSet>(request.at(1))?;
    // A packed sorted set is read once, rather than for each member.
    let packed: Vec<_> = match set {
        Some(SortedSetView::Packed(_)) => set.into_iter().flat_map(SortedSetView::iter).collect(),
        _ => Vec::new(),
    };
    let at = |position: usize| match set {
        Some(SortedSetView::Large(ranking)) => ranking.at(position),
        _ => packed.get(position).copied(),
    };
    wanted.reply(set.map_or(0, SortedSetView::len), with_scores, reply, |position, parts| {
        let (member, score) = at(position).unwrap_or_default();
        let _ = parts.part().bulk(member);
        if with_scores {
            let _ = parts.part().double(score);
        }
    })
}

fn at(set: SortedSetView<'_>, position: usize) -> Option<(&[u8], f64)> {
    set.range(position..position + 1).next()
}

const ZSCAN: Command = Command {
    name: "zscan",
    keys: &[KeySpec::first(KeyFlags::RO.and(KeyFlags::ACCESS))],
    categories: Categories::SORTEDSET,
    group: Group::SORTED_SET,
    summary: "Returns some members of a sorted set with their scores, and the cursor for the next call.",
    since: "2.8.0",
    complexity: "O(1) for every call. O(N) for a complete iteration, including enough command calls for the cursor to return back to 0. N is the number of elements inside the collection.",
    cost: costs::WITH_COUNT,
    tips: &["nondeterministic_output"],
    arguments: &[
        Argument::KEY,
        Argument::integer("cursor"),
        Argument::pattern("pattern").token("MATCH").optional(),
        Argument::integer("count").token("COUNT").optional(),
        Argument::word("NOSCORES").since("8.0.0").optional(),
    ],
    example: &[
        ("ZADD myzset 1 one", "(integer) 1"),
        ("ZSCAN myzset 0", "[\"0\", [\"one\", \"1\"]]"),
        ("ZSCAN myzset 0 NOSCORES", "[\"0\", [\"one\"]]"),
    ],
    run: Run::Read(zscan),
    ..Command::DEFAULTS
};

fn zscan(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let cursor = Selection::cursor(request)?;
    let Some(set) = tx.get::<SortedSet>(request.at(1))? else {
        return reply_scanned(0, &[[]; 0], reply);
    };
    let selection = Selection::parse(cursor, request, Some("noscores"))?;
    let mut found: Vec<Cow<'_, [u8]>> = Vec::new();
    let mut add = |member, score, write: fn(&mut Vec<u8>, f64)| {
        if !selection.matches(member) {
            return;
        }
        found.push(Cow::Borrowed(member));
        if !selection.only_names {
            let mut text = Vec::new();
            write(&mut text, score);
            found.push(Cow::Owned(text));
        }
    };
    let next = match set {
        SortedSetView::Large(ranking) => {
            // As in Redis, here alone with all digits.
            selection.over(|cursor| ranking.scan(cursor), |(member, score)| add(member, score, score::write))
        }
        SortedSetView::Packed(_) => {
            set.iter().for_each(|(member, score)| add(member, score, write_shortest));
            0
        }
    };
    reply_scanned(next, &found, reply)
}
