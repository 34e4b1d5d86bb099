//! Following streams: XREAD for a client alone, XREADGROUP for one that shares the entries with others.

use std::ops::Range;

use crate::commands::costs;
use crate::keyspace::Transaction;
use crate::resp::{OwnedRequest, Request};
use crate::types::streams::Stream;
use crate::values::STREAM_KIND;
use crate::values::tree::ledger::EntryId;

use super::delivering::{next_claim_ms, read};
use super::ids;
use super::wishes::Reading;
use crate::commands::args::is_word;
use crate::commands::facts::{
    Argument, Blocking, Categories, Command, Cost, Costs, Estimate, Flags, Group, KeyFlags, KeySpec, Run,
    WaitingRules,
};

pub(in crate::commands) const COMMANDS: &[Command] = &[XREAD, XREADGROUP];

/// The keys and IDs, as COMMAND DOCS prints them.
const STREAMS: Argument =
    Argument::block("streams", &[Argument::KEY.multiple(), Argument::string("id").multiple()])
        .token("STREAMS");

/// The most entries of all streams, and the most bytes, as COMMAND DOCS prints them.
const MAX_COUNT: Argument = Argument::integer("maxcount").token("MAXCOUNT").since("8.10.0").optional();
const MAX_SIZE: Argument = Argument::integer("maxsize").token("MAXSIZE").since("8.10.0").optional();

const XREAD: Command = Command {
    name: "xread",
    flags: Flags::BLOCKING.and(Flags::READONLY),
    keys: &[KeySpec::behind("STREAMS", 1, keys, KeyFlags::RO.and(KeyFlags::ACCESS))],
    categories: Categories::STREAM,
    group: Group::STREAM,
    summary: "Returns the entries of streams after given IDs; can block until there are any.",
    since: "5.0.0",
    cost: Costs::of(|estimate| reads(estimate, false)),
    arguments: &[
        Argument::integer("count").token("COUNT").optional(),
        MAX_COUNT,
        MAX_SIZE,
        Argument::integer("milliseconds").token("BLOCK").optional(),
        STREAMS,
    ],
    example: &[
        ("XADD mystream 1-1 name Sara", "\"1-1\""),
        ("XREAD COUNT 2 STREAMS mystream 0", "[[\"mystream\", [[\"1-1\", [\"name\", \"Sara\"]]]]]"),
        ("XREAD BLOCK 10 STREAMS mystream $", "(nil)"),
    ],
    run: Run::Block(&Blocking {
        kind: STREAM_KIND,
        keys: usize::MAX,
        check: |request| Reading::parse(request, false).map(|reading| reading.timeout.into()),
        take: |tx, request, only, reply| read(tx, request, false, only, reply),
        nothing: |reply| reply.nil_array(),
        waiting: WaitingRules { waits_with: Some(from_now), is_shared: true, ..WaitingRules::PLAIN },
    }),
    ..Command::DEFAULTS
};

const XREADGROUP: Command = Command {
    name: "xreadgroup",
    flags: Flags::BLOCKING,
    keys: &[KeySpec::behind("STREAMS", 4, keys, KeyFlags::RO.and(KeyFlags::ACCESS))],
    summary: "Returns new entries for a consumer of a group, or its unacknowledged ones; can block.",
    complexity: "For each stream mentioned: O(M) with M being the number of elements returned. If M is constant (e.g. always asking for the first 10 elements with COUNT), you can consider it O(1). On the other side when XREADGROUP blocks, XADD will pay the O(N) time in order to serve the N clients blocked on the stream getting new data.",
    cost: Costs::of(|estimate| reads(estimate, true)),
    arguments: &[
        Argument::block("group-block", &[Argument::string("group"), Argument::string("consumer")])
            .token("GROUP"),
        Argument::integer("count").token("COUNT").optional(),
        MAX_COUNT,
        MAX_SIZE,
        Argument::integer("milliseconds").token("BLOCK").optional(),
        Argument::integer("min-idle-time").token("CLAIM").optional(),
        Argument::word("NOACK").optional(),
        STREAMS,
    ],
    example: &[
        ("XADD mystream 1-1 name Sara", "\"1-1\""),
        ("XGROUP CREATE mystream mygroup 0", "OK"),
        (
            "XREADGROUP GROUP mygroup Alice STREAMS mystream >",
            "[[\"mystream\", [[\"1-1\", [\"name\", \"Sara\"]]]]]",
        ),
        ("XREADGROUP GROUP mygroup Bob STREAMS mystream >", "(nil)"),
        ("XACK mystream mygroup 1-1", "(integer) 1"),
    ],
    run: Run::Block(&Blocking {
        kind: STREAM_KIND,
        keys: usize::MAX,
        check: |request| Reading::parse(request, true).map(|reading| reading.timeout.into()),
        take: |tx, request, only, reply| read(tx, request, true, only, reply),
        nothing: |reply| reply.nil_array(),
        waiting: WaitingRules {
            is_shared: true,
            ends_without_value: true,
            again: Some(next_claim_ms),
            ..WaitingRules::PLAIN
        },
    }),
    ..XREAD
};

/// If a request asks for fewer entries, they are not counted before: that would take longer than to read
/// them.
const COUNTED_FROM: u64 = 1000;

/// How many entries a request gets of a large stream, at most. Without a group nothing changes, and a request
/// that gets entries does not wait.
fn reads(estimate: &Estimate<'_>, is_group: bool) -> Cost {
    let most = costs::stated_count(estimate.request, 1);
    if let Some(few) = most.filter(|most| *most < COUNTED_FROM) {
        return estimate.reading(few).changing();
    }
    let reading = estimate.values().zip(Reading::parse(estimate.request, is_group).ok());
    let lengths = reading.into_iter().flat_map(|(tx, reading)| {
        let group = reading.group;
        reading.streams(estimate.request).map(move |(key, id)| entries_for(tx, key, id, group))
    });
    let longest = lengths.max().unwrap_or(0) as u64;
    let cost = estimate.reading(most.map_or(longest, |most| most.min(longest)));
    if is_group || longest == 0 { cost.changing() } else { cost }
}

/// How many entries of a large stream are behind an ID, or were given to a consumer, or would be.
fn entries_for(tx: &Transaction<'_>, key: &[u8], id: &[u8], group: Option<(&[u8], &[u8])>) -> usize {
    let Some(stream) = tx.glance_at::<Stream>(key) else { return 0 };
    let group = group.and_then(|(group, consumer)| Some((stream.group(group)?, consumer)));
    let behind = match (id, group) {
        (b"$" | b"+", _) => return 0,
        (b">", Some((group, _))) => group.last_id,
        (_, Some((group, consumer))) => {
            let consumer = group.find_consumer(consumer).and_then(|number| group.consumer(number));
            return consumer.map_or(0, |consumer| consumer.pending_count());
        }
        (id, None) => ids::parse(id).unwrap_or(EntryId::MAX),
    };
    stream.len_behind(behind, COUNTED_ENTRIES_MAX)
}

/// To know that a request reads much, more entries need not be counted.
const COUNTED_ENTRIES_MAX: usize = 100_000;

/// The positions of the keys of a request, which are found as the handler finds them.
fn keys(request: Request<'_>) -> Range<usize> {
    let mut at = 1;
    while let Some(option) = request.get(at) {
        at += match option {
            _ if is_word(option, "streams") => {
                return at + 1..at + 1 + (request.len() - at - 1) / 2;
            }
            _ if ["block", "count", "maxcount", "maxsize", "claim"]
                .iter()
                .any(|word| is_word(option, word)) =>
            {
                2
            }
            _ if is_word(option, "group") => 3,
            _ => 1,
        };
    }
    0..0
}

/// The request of a client that begins to wait: `$` is the last ID of now.
fn from_now(tx: &Transaction<'_>, request: Request<'_>) -> OwnedRequest {
    let Ok(reading) = Reading::parse(request, false) else { return OwnedRequest::of(request) };
    let ids = reading.first + reading.streams;
    let mut owned = OwnedRequest::default();
    for (at, word) in request.from(0).enumerate() {
        let now = (at >= ids && word == b"$").then(|| {
            let stream = tx.peek::<Stream>(request.at(at - reading.streams)).ok().flatten();
            stream.map_or(EntryId::ZERO, |stream| stream.last_id).text()
        });
        // There is room: the request came in one piece, and an ID is short.
        owned.push(now.as_deref().unwrap_or(word));
    }
    owned
}
