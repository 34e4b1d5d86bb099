//! Sorted sets: members in the order of their scores.
//!
//! Each file is a family: [`basics`] for single members, [`ranges`] for reading and [`removing`] for removing
//! many of them, [`choosing`] for random ones and for scans, [`algebra`] for unions, intersections and
//! differences of several sorted sets.

pub(super) mod algebra;
pub(super) mod basics;
pub(super) mod blocking;
pub(super) mod choosing;
pub(super) mod ranges;
pub(super) mod removing;

mod operation;

use crate::events::EventClass;
use crate::keyspace::{Expiry, Transaction};
use crate::resp::{Protocol, Reply, Sent};
use crate::types::sorted_sets::SortedSet;
use crate::types::sorted_sets::gathering::Gathering;
use crate::types::sorted_sets::ranges::{Bounds, Edge, End};
use crate::values::{Content, Type, Value};

use super::error::Error;
use super::facts::Result;

/// Reads a range of scores.
///
/// # Errors
///
/// An error if an end is no number.
fn scores<'a>(min: &'a [u8], max: &'a [u8]) -> Result<Bounds<'a>> {
    let ends = End::parse(min).zip(End::parse(max));
    let (min, max) = ends.ok_or(Error::fixed("ERR min or max is not a float"))?;
    Ok(Bounds::Scores(min, max))
}

/// Reads a range of members.
///
/// # Errors
///
/// An error if an end has not the form of one.
fn members<'a>(min: &'a [u8], max: &'a [u8]) -> Result<Bounds<'a>> {
    let ends = Edge::parse(min).zip(Edge::parse(max));
    let (min, max) = ends.ok_or(Error::fixed("ERR min or max not valid string range item"))?;
    Ok(Bounds::Members(min, max))
}

/// Replies with members and their scores, or members alone. RESP3 has them in pairs.
fn reply_members<'m>(
    count: usize,
    members: impl Iterator<Item = (&'m [u8], f64)>,
    with_scores: bool,
    reply: Reply<'_>,
) -> Sent {
    match (with_scores, reply.protocol()) {
        (false, _) => reply.array_of_len(count, members, |(member, _), reply| reply.bulk(member)),
        (true, Protocol::Resp3) => reply.array_of_len(count, members, |(member, score), reply| {
            reply.pair(|reply| reply.bulk(member), |reply| reply.double(score))
        }),
        (true, Protocol::Resp2) => {
            let parts = members.flat_map(|(member, score)| [Ok(member), Err(score)]);
            reply.array_of_len(2 * count, parts, |part, reply| match part {
                Ok(member) => reply.bulk(member),
                Err(score) => reply.double(score),
            })
        }
    }
}

/// Writes a key with a sorted set of these members, whatever it was before, or removes it if there are none.
/// Returns the number of members.
pub(super) fn store(
    tx: &mut Transaction<'_>,
    key: &[u8],
    event: &'static str,
    gathering: Gathering,
) -> usize {
    let count = gathering.len();
    if count == 0 {
        if tx.remove_for_nothing(key) {
            tx.event(EventClass::GENERIC, "del", key);
        }
        return 0;
    }
    let mut packed = Vec::new();
    let large = gathering.finish(tx.limit::<SortedSet>(), &mut packed);
    // The transaction takes the same nodes, and this function only lets them go.
    let content = large.as_ref().map_or(Content::Bytes(&packed), Content::Large);
    tx.event_of_replacing(key, SortedSet::FACTS.kind);
    tx.put_any(key, Value { facts: SortedSet::FACTS, content }, Expiry::Never);
    tx.event(EventClass::SORTED_SET, event, key);
    count
}
