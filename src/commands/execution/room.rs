//! Makes room while more memory is used than `maxmemory` allows.

use std::time::{Duration, Instant};

use crate::config::EVICTION_POLICIES;
use crate::instance::Instance;
use crate::keyspace::{Candidates, Effect, First};

use super::client_room::leaving_bytes;

/// How long one request may take to make room; the next requests continue. Redis:
/// `maxmemory-eviction-tenacity` of 10.
const TIME_MAX: Duration = Duration::from_micros(500);
/// Keys that are freed between two looks at the clock.
const KEYS_PER_GLANCE: usize = 16;

/// The result of freeing keys for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// Nothing: there is enough room, or no limit, or a pause in which data do not change.
    Enough,
    /// More keys must be freed, but the time was over.
    TooLittle,
    /// Memory is short, and no key may be freed.
    None,
}

/// Frees keys while memory is short, for a while.
#[inline]
pub(crate) fn make_room(instance: &Instance) -> Room {
    let limit_bytes = instance.config.maxmemory.size();
    if limit_bytes == 0 || !instance.uses_more_memory_than(limit_bytes) {
        return Room::Enough;
    }
    let room = free_keys(instance, limit_bytes);
    instance.exceeding.note(room != Room::Enough);
    room
}

/// Makes room as [`make_room`] does, each tick. Only here the server notices that memory is enough again
/// though no key was freed.
pub(crate) fn make_room_by_tick(instance: &Instance) -> Room {
    let room = make_room(instance);
    if room == Room::Enough {
        instance.exceeding.note(false);
    }
    room
}

#[cold]
fn free_keys(instance: &Instance, limit_bytes: usize) -> Room {
    if instance.clients.pause.paused().is_some() {
        return Room::Enough;
    }
    let Some((candidates, first)) = policy(EVICTION_POLICIES[instance.config.maxmemory_policy.get()]) else {
        return Room::None;
    };
    // Keys stay where only clients take too much.
    let given_back = leaving_bytes(instance);
    if given_back > 0 && !instance.uses_more_memory_than(limit_bytes + given_back) {
        return Room::Enough;
    }
    let started = Instant::now();
    let mut effects = Vec::new();
    let room = free(instance, limit_bytes, candidates, first, started, &mut effects);
    if !effects.is_empty() {
        instance.notify(effects, None);
    }
    let took = started.elapsed();
    let threshold_ms = instance.config.latency_monitor_threshold.size() as u128;
    if threshold_ms > 0 && took.as_millis() >= threshold_ms {
        let at_s = instance.clock.since_epoch().as_secs();
        instance.statistics.latency.note("eviction-cycle", at_s, took);
    }
    room
}

fn free(
    instance: &Instance,
    limit_bytes: usize,
    candidates: Candidates,
    first: First,
    started: Instant,
    effects: &mut Vec<Effect>,
) -> Room {
    let samples = instance.config.maxmemory_samples.size();
    loop {
        for _ in 0..KEYS_PER_GLANCE {
            if !instance.keyspace.evict(candidates, first, samples, effects) {
                return Room::None;
            }
            if !instance.uses_more_memory_than(limit_bytes) {
                return Room::Enough;
            }
        }
        if started.elapsed() >= TIME_MAX {
            return Room::TooLittle;
        }
    }
}

/// The keys that a policy frees, and in which order. `None` for the policy that frees nothing.
fn policy(name: &str) -> Option<(Candidates, First)> {
    let (candidates, first) = name.split_once('-')?;
    let candidates = if candidates == "volatile" { Candidates::Expiring } else { Candidates::All };
    let first = match first {
        "lru" | "lrm" => First::Idlest,
        "lfu" => First::LeastUsed,
        "ttl" => First::NextToExpire,
        _ => First::Any,
    };
    Some((candidates, first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_is_understood() {
        let understood: Vec<_> = EVICTION_POLICIES.iter().map(|name| policy(name)).collect();
        assert_eq!(understood[0], Some((Candidates::Expiring, First::Idlest)));
        assert_eq!(understood[3], Some((Candidates::Expiring, First::NextToExpire)));
        assert_eq!(understood[4], Some((Candidates::Expiring, First::Idlest)));
        assert_eq!(understood[6], Some((Candidates::All, First::LeastUsed)));
        assert_eq!(understood[7], Some((Candidates::All, First::Any)));
        assert_eq!(understood[8], Some((Candidates::All, First::Idlest)));
        assert_eq!(understood[9], None);
    }
}
