//! Members in a range, by rank, by score or by their bytes.

use std::ops::Range;

use crate::keyspace::Transaction;
use crate::resp::{Reply, Request};
use crate::types::sorted_sets::gathering::Gathering;
use crate::types::sorted_sets::ranges::Bounds;
use crate::types::sorted_sets::{SortedSet, SortedSetView};

use super::{derived, members, reply_members, scores};
use crate::commands::args::{self, Options, is_word};
use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::facts::{
    Argument, ArgumentKind, Categories, Command, Cost, Costs, Deprecated, Derived, Estimate, Flags, Group,
    KeyFlags, KeySpec, Prepares, Result, Run,
};
use crate::commands::storing::store;

pub(in crate::commands) const COMMANDS: &[Command] =
    &[ZRANGE, ZRANGEBYLEX, ZRANGEBYSCORE, ZRANGESTORE, ZREVRANGE, ZREVRANGEBYLEX, ZREVRANGEBYSCORE];

/// The facts that most commands of this file share.
const SORTED_SET: Command =
    Command { categories: Categories::SORTEDSET, group: Group::SORTED_SET, ..Command::DEFAULTS };

const ZRANGE: Command = Command {
    name: "zrange",
    keys: &[KeySpec::first(KeyFlags::RO.and(KeyFlags::ACCESS))],
    summary: "Returns the members in a range of ranks, of scores, or of byte order.",
    since: "1.2.0",
    complexity: "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements returned.",
    cost: costs::IN_RANGE,
    arguments: &[
        Argument::KEY,
        Argument::string("start"),
        Argument::string("stop"),
        Argument::one_of("sortby", &Argument::words(["BYSCORE", "BYLEX"])).since("6.2.0").optional(),
        Argument::word("REV").since("6.2.0").optional(),
        Argument::block("limit", &[Argument::integer("offset"), Argument::integer("count")])
            .token("LIMIT")
            .since("6.2.0")
            .optional(),
        Argument::word("WITHSCORES").optional(),
    ],
    example: &[
        ("ZADD myzset 1 one 2 two 3 three", "(integer) 3"),
        ("ZRANGE myzset 0 -1", "[\"one\", \"two\", \"three\"]"),
        ("ZRANGE myzset (1 +inf BYSCORE LIMIT 1 1", "[\"three\"]"),
        ("ZRANGE myzset 0 0 REV WITHSCORES", "[\"three\", \"3\"]"),
    ],
    run: Run::Read(zrange),
    ..SORTED_SET
};

fn zrange(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    Selected::parse(request, 1, Form::default())?.reply(tx, reply)
}

/// By what members are selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Bytes,
}

/// The kind of range that a command's name implies. Options may change the rest.
#[derive(Clone, Copy, Debug, Default)]
struct Form {
    by: Option<By>,
    is_reversed: Option<bool>,
    /// Whether the range is written to another key, so the command has no option for scores.
    is_stored: bool,
}

/// The members that a request selects.
struct Selected<'a> {
    key: &'a [u8],
    bounds: Bounds<'a>,
    /// Whether the last member comes first.
    is_reversed: bool,
    with_scores: bool,
    /// How many members of the range are left out in front; below zero: all.
    offset: i64,
    /// How many members follow at most; below zero: all.
    count: i64,
}

impl<'a> Selected<'a> {
    /// Reads a key, the ends of a range, and options.
    ///
    /// # Errors
    ///
    /// [`Error::SYNTAX`] and its variants, [`Error::NOT_AN_INTEGER`], and errors for ends that are none.
    fn parse(request: Request<'a>, key_at: usize, form: Form) -> Result<Selected<'a>> {
        let (mut by, mut is_reversed) = (form.by, form.is_reversed);
        let (mut with_scores, mut offset, mut count) = (false, 0, -1);
        let mut options = Options::new(request, key_at + 3);
        while let Some(option) = options.next() {
            match option {
                _ if !form.is_stored && is_word(option, "withscores") => with_scores = true,
                _ if is_word(option, "limit") => {
                    let (first, second) = (options.value()?, options.value()?);
                    (offset, count) = (args::integer(first)?, args::integer(second)?);
                }
                _ if is_reversed.is_none() && is_word(option, "rev") => is_reversed = Some(true),
                _ if by.is_none() && is_word(option, "bylex") => by = Some(By::Bytes),
                _ if by.is_none() && is_word(option, "byscore") => by = Some(By::Score),
                _ => return Err(Error::SYNTAX),
            }
        }
        let (by, is_reversed) = (by.unwrap_or(By::Rank), is_reversed.unwrap_or(false));
        if count != -1 && by == By::Rank {
            return Err(Error::fixed(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            ));
        }
        if with_scores && by == By::Bytes {
            return Err(Error::fixed("ERR syntax error, WITHSCORES not supported in combination with BYLEX"));
        }
        let ends = (request.at(key_at + 1), request.at(key_at + 2));
        // A range from the end is stated from its upper end on, but for ranks.
        let (min, max) = if is_reversed && by != By::Rank { (ends.1, ends.0) } else { ends };
        let bounds = match by {
            By::Rank => Bounds::Ranks(args::integer(min)?, args::integer(max)?),
            By::Score => scores(min, max)?,
            By::Bytes => members(min, max)?,
        };
        Ok(Selected { key: request.at(key_at), bounds, is_reversed, with_scores, offset, count })
    }

    /// The positions of the members, counted from the end if the order is reversed.
    fn positions(&self, set: SortedSetView<'_>) -> Range<usize> {
        let mut range = self.bounds.positions(set);
        if matches!(self.bounds, Bounds::Ranks(..)) {
            // They are counted from the end, too, and have no limit.
            return range;
        }
        if self.is_reversed {
            range = set.len() - range.end..set.len() - range.start;
        }
        let Ok(offset) = usize::try_from(self.offset) else { return 0..0 };
        let start = range.start.saturating_add(offset).min(range.end);
        let count = usize::try_from(self.count).unwrap_or(usize::MAX);
        start..start.saturating_add(count).min(range.end)
    }

    /// The members with their scores, and their number.
    fn members<'s>(
        &self,
        set: SortedSetView<'s>,
    ) -> (usize, impl Iterator<Item = (&'s [u8], f64)> + use<'s>) {
        let positions = self.positions(set);
        let (count, len) = (positions.len(), set.len());
        let (forth, back) = match self.is_reversed {
            false => (Some(set.range(positions)), None),
            true => (None, Some(set.range(len - positions.end..len - positions.start).rev())),
        };
        (count, forth.into_iter().flatten().chain(back.into_iter().flatten()))
    }

    fn reply(&self, tx: &Transaction<'_>, reply: Reply<'_>) -> Result {
        let Some(set) = tx.get::<SortedSet>(self.key)? else {
            return Ok(reply_members(0, std::iter::empty(), false, reply));
        };
        let (count, members) = self.members(set);
        Ok(reply_members(count, members, self.with_scores, reply))
    }
}

const ZREVRANGE: Command = Command {
    name: "zrevrange",
    keys: &[KeySpec::first(KeyFlags::RO.and(KeyFlags::ACCESS))],
    summary: "Returns the members in a range of ranks, highest score first.",
    since: "1.2.0",
    complexity: "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements returned.",
    cost: costs::BETWEEN_RANKS,
    deprecated: Some(Deprecated { since: "6.2.0", replaced_by: "`ZRANGE` with the `REV` argument" }),
    arguments: &[
        Argument::KEY,
        Argument::integer("start"),
        Argument::integer("stop"),
        Argument::word("WITHSCORES").optional(),
    ],
    example: &[
        ("ZADD myzset 1 one 2 two 3 three", "(integer) 3"),
        ("ZREVRANGE myzset 0 1", "[\"three\", \"two\"]"),
    ],
    run: Run::Read(zrevrange),
    ..SORTED_SET
};

fn zrevrange(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    Selected::parse(request, 1, Form { by: Some(By::Rank), is_reversed: Some(true), is_stored: false })?
        .reply(tx, reply)
}

const ZRANGEBYSCORE: Command = Command {
    name: "zrangebyscore",
    keys: &[KeySpec::first(KeyFlags::RO.and(KeyFlags::ACCESS))],
    summary: "Returns the members in a range of scores, lowest score first.",
    since: "1.0.5",
    complexity: "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements being returned. If M is constant (e.g. always asking for the first 10 elements with LIMIT), you can consider it O(log(N)).",
    cost: costs::WITHIN_LIMIT,
    deprecated: Some(Deprecated { since: "6.2.0", replaced_by: "`ZRANGE` with the `BYSCORE` argument" }),
    arguments: &[
        Argument::KEY,
        Argument::double("min"),
        Argument::double("max"),
        Argument::word("WITHSCORES").since("2.0.0").optional(),
        Argument::block("limit", &[Argument::integer("offset"), Argument::integer("count")])
            .token("LIMIT")
            .optional(),
    ],
    example: &[
        ("ZADD myzset 1 one 2 two 3 three", "(integer) 3"),
        ("ZRANGEBYSCORE myzset (1 2", "[\"two\"]"),
        ("ZRANGEBYSCORE myzset -inf +inf WITHSCORES LIMIT 0 1", "[\"one\", \"1\"]"),
    ],
    run: Run::Read(zrangebyscore),
    ..SORTED_SET
};

fn zrangebyscore(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    Selected::parse(request, 1, Form { by: Some(By::Score), is_reversed: Some(false), is_stored: false })?
        .reply(tx, reply)
}

const ZREVRANGEBYSCORE: Command = Command {
    name: "zrevrangebyscore",
    summary: "Returns the members in a range of scores, highest score first.",
    since: "2.2.0",
    deprecated: Some(Deprecated {
        since: "6.2.0",
        replaced_by: "`ZRANGE` with the `REV` and `BYSCORE` arguments",
    }),
    arguments: &[
        Argument::KEY,
        Argument::double("max"),
        Argument::double("min"),
        Argument::word("WITHSCORES").optional(),
        Argument::block("limit", &[Argument::integer("offset"), Argument::integer("count")])
            .token("LIMIT")
            .optional(),
    ],
    example: &[
        ("ZADD myzset 1 one 2 two 3 three", "(integer) 3"),
        ("ZREVRANGEBYSCORE myzset +inf (1", "[\"three\", \"two\"]"),
    ],
    run: Run::Read(zrevrangebyscore),
    ..ZRANGEBYSCORE
};

fn zrevrangebyscore(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    Selected::parse(request, 1, Form { by: Some(By::Score), is_reversed: Some(true), is_stored: false })?
        .reply(tx, reply)
}

const ZRANGEBYLEX: Command = Command {
    name: "zrangebylex",
    keys: &[KeySpec::first(KeyFlags::RO.and(KeyFlags::ACCESS))],
    summary: "Returns the members in a range of byte order; all scores must be equal.",
    since: "2.8.9",
    complexity: "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements being returned. If M is constant (e.g. always asking for the first 10 elements with LIMIT), you can consider it O(log(N)).",
    cost: costs::WITHIN_LIMIT,
    deprecated: Some(Deprecated { since: "6.2.0", replaced_by: "`ZRANGE` with the `BYLEX` argument" }),
    arguments: &[
        Argument::KEY,
        Argument::string("min"),
        Argument::string("max"),
        Argument::block("limit", &[Argument::integer("offset"), Argument::integer("count")])
            .token("LIMIT")
            .optional(),
    ],
    example: &[("ZADD myzset 0 a 0 b 0 c 0 d", "(integer) 4"), ("ZRANGEBYLEX myzset - (c", "[\"a\", \"b\"]")],
    run: Run::Read(zrangebylex),
    ..SORTED_SET
};

fn zrangebylex(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    Selected::parse(request, 1, Form { by: Some(By::Bytes), is_reversed: Some(false), is_stored: false })?
        .reply(tx, reply)
}

const ZREVRANGEBYLEX: Command = Command {
    name: "zrevrangebylex",
    summary: "Returns the members in a range of byte order, last one first; all scores must be equal.",
    deprecated: Some(Deprecated {
        since: "6.2.0",
        replaced_by: "`ZRANGE` with the `REV` and `BYLEX` arguments",
    }),
    arguments: &[
        Argument::KEY,
        Argument::string("max"),
        Argument::string("min"),
        Argument::block("limit", &[Argument::integer("offset"), Argument::integer("count")])
            .token("LIMIT")
            .optional(),
    ],
    example: &[
        ("ZADD myzset 0 a 0 b 0 c 0 d", "(integer) 4"),
        ("ZREVRANGEBYLEX myzset [c -", "[\"c\", \"b\", \"a\"]"),
    ],
    run: Run::Read(zrevrangebylex),
    ..ZRANGEBYLEX
};

fn zrevrangebylex(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    Selected::parse(request, 1, Form { by: Some(By::Bytes), is_reversed: Some(true), is_stored: false })?
        .reply(tx, reply)
}

const ZRANGESTORE: Command = Command {
    name: "zrangestore",
    flags: Flags::DENYOOM,
    keys: &[
        KeySpec::first(KeyFlags::OW.and(KeyFlags::UPDATE)),
        KeySpec::range(2, 0, 1, KeyFlags::RO.and(KeyFlags::ACCESS)),
    ],
    summary: "Stores the members in a range at another key.",
    since: "6.2.0",
    complexity: "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements stored into the destination key.",
    cost: Costs::of(stores),
    arguments: &[
        Argument::new("dst", ArgumentKind::Key),
        Argument::new("src", ArgumentKind::Key).of_spec(1),
        Argument::string("min"),
        Argument::string("max"),
        Argument::one_of("sortby", &Argument::words(["BYSCORE", "BYLEX"])).optional(),
        Argument::word("REV").optional(),
        Argument::block("limit", &[Argument::integer("offset"), Argument::integer("count")])
            .token("LIMIT")
            .optional(),
    ],
    example: &[
        ("ZADD myzset 1 one 2 two 3 three", "(integer) 3"),
        ("ZRANGESTORE dstzset myzset 1 -1", "(integer) 2"),
        ("ZRANGE dstzset 0 -1", "[\"two\", \"three\"]"),
    ],
    prepares: Prepares::Derived(stored_range),
    run: Run::Write(|tx, request, reply| {
        store(tx, request, (stored_range, request.at(1)), "zrangestore", reply)
    }),
    ..SORTED_SET
};

/// How many members ZRANGESTORE stores of a large set.
fn stores(estimate: &Estimate<'_>) -> Cost {
    let set = estimate.value::<SortedSet>(estimate.request.at(2));
    let selected = Selected::parse(estimate.request, 2, Form { is_stored: true, ..Form::default() });
    let count = set.zip(selected.ok()).map_or(0, |(set, selected)| selected.positions(set).len());
    estimate.reading(count as u64).changing().with_small_reply()
}

fn stored_range(tx: &Transaction<'_>, request: Request<'_>) -> Result<Derived> {
    let selected = Selected::parse(request, 2, Form { is_stored: true, ..Form::default() })?;
    let set = tx.get::<SortedSet>(selected.key)?;
    let (count, members) = set.map(|set| selected.members(set)).unzip();
    let mut gathering = Gathering::with_room(count.unwrap_or(0));
    members.into_iter().flatten().for_each(|(member, score)| gathering.add(member, score));
    Ok(derived(tx, gathering))
}
