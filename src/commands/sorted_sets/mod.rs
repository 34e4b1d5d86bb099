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

use crate::keyspace::Transaction;
use crate::resp::{Protocol, Reply, Sent};
use crate::types::sorted_sets::SortedSet;
use crate::types::sorted_sets::gathering::Gathering;
use crate::types::sorted_sets::ranges::{Bounds, Edge, End};
use crate::values::{Kept, Type};

use super::error::Error;
use super::facts::{Derived, Result};

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

/// What a request stores: a sorted set, if it has members.
pub(super) fn derived(tx: &Transaction<'_>, members: Gathering) -> Derived {
    let count = members.len();
    let value = (count > 0).then(|| {
        let mut packed = Vec::new();
        let large = members.finish(tx.limit::<SortedSet>(), &mut packed);
        Kept::made(SortedSet::FACTS, packed, large)
    });
    Derived { value, count, ..Derived::default() }
}
