//! Locks that end in their holders' hands, since a fault wants it (FAULT … LOSE-LOCK).
//!
//! The fault strikes a request that takes or renews a lock. Which lock that is shows when the request has
//! run: its key has changed by then, or has a token that the request states. After the fault's time, the lock
//! is lost if it still is the same one: by its token, and by its number if it has one. It ends as if it had
//! expired at that moment, whatever its holder has renewed meanwhile. So the log, events, the next in line,
//! NOTIFY and the lens hear what they hear of any other lock that expires.
//!
//! A lock is taken from the list of the doomed only under the lock of its shard. So a turn of the clock,
//! which holds all shards, finds every one whose moment it passes.
//!
//! Where several clients hold a lock, only those lose it whose tokens the request has stated: as members of a
//! sorted set, or as fields of a hash. The others keep it.

use crate::digest::digest;
use crate::faults::{Doomed, Held, LOST_AT_ONCE_MAX, Losing};
use crate::instance::Instance;
use crate::keyspace::{Glimpse, Guarded, Token, Transaction};
use crate::lens::speaks_of_lock;
use crate::resp::Request;
use crate::types::hashes::Hash;
use crate::types::sorted_sets::SortedSet;
use crate::values::{HASH_KIND, SORTED_SET_KIND, STRING_KIND, Type};

use super::permits::{self, Permits};

/// Keys and tokens of one request that are looked at, and how long each may be.
const KEYS_MAX: usize = 32;
const TOKENS_MAX: usize = 256;
const BYTES_MAX: usize = 1024;

/// The largest collection in which the one member is looked for that is no mark.
const FEW: usize = 3;

/// Members that name no holder, but the kind of a lock: of Redisson, Symfony and Keyfast.
const MARKS: [&[u8]; 3] = [b"mode", b"__write__", b"__wait__"];

/// Looks at the keys of a request that a fault strikes, before it is executed.
pub(in crate::commands) fn before<'k>(
    instance: &Instance,
    database: usize,
    keys: impl Iterator<Item = &'k [u8]>,
    request: Request<'_>,
) -> Vec<(Box<[u8]>, u64)> {
    let short = keys.filter(|key| key.len() <= BYTES_MAX).take(KEYS_MAX);
    short.map(|key| (key.into(), seen(instance, database, key, request))).collect()
}

/// Has the locks end, after their time, that a request has taken or renewed.
pub(in crate::commands) fn after(instance: &Instance, losing: &Losing, request: Request<'_>) -> bool {
    let at_ms = instance.clock.now_ms().saturating_add(losing.after_ms);
    let mut doomed = Vec::new();
    for (key, before) in &losing.before {
        let has_changed = seen(instance, losing.database, key, request) != *before;
        let Ok(tx) = instance.keyspace.begin(losing.database, key) else { continue };
        let held = tx.glimpse(key).and_then(|glimpse| held(&glimpse, request, has_changed));
        doomed.extend(held.map(|held| Doomed { at_ms, database: losing.database, key: key.clone(), held }));
    }
    let is_doomed = !doomed.is_empty() && instance.faults.doom(losing.fault, doomed);
    if is_doomed {
        instance.followers.alarms.look_again();
    }
    is_doomed
}

/// A digest of what a lock is at this moment: by its end, its number, and its holders, if they are few or the
/// request states them. 0 if there is none.
fn seen(instance: &Instance, database: usize, key: &[u8], request: Request<'_>) -> u64 {
    let Ok(tx) = instance.keyspace.begin(database, key) else { return 0 };
    let Some(glimpse) = tx.glimpse(key) else { return 0 };
    let mut bytes = Vec::new();
    for number in [glimpse.expires_at_ms, glimpse.fence] {
        bytes.extend_from_slice(&number.unwrap_or_default().to_le_bytes());
    }
    bytes.extend_from_slice(glimpse.text.filter(|text| text.len() <= BYTES_MAX).unwrap_or_default());
    each_of_few(&glimpse, |element| element.iter().for_each(|part| bytes.extend_from_slice(part)));
    if glimpse.value.facts.kind == SORTED_SET_KIND {
        let set = SortedSet::view(glimpse.value.content);
        for score in arguments(request).filter_map(|token| set.score(token)) {
            bytes.extend_from_slice(&score.to_le_bytes());
        }
    } else if glimpse.value.facts.kind == HASH_KIND {
        let hash = Hash::view(glimpse.value.content);
        arguments(request).filter_map(|token| hash.get(token)).for_each(|it| bytes.extend_from_slice(it));
    }
    digest(&bytes)
}

/// The arguments of a request that may be tokens.
fn arguments<'r>(request: Request<'r>) -> impl Iterator<Item = &'r [u8]> {
    request.from(1).take(TOKENS_MAX).filter(|argument| argument.len() <= BYTES_MAX)
}

/// Goes through the elements of a small collection.
fn each_of_few(glimpse: &Glimpse<'_>, mut look: impl FnMut(&[&[u8]])) {
    let value = glimpse.value;
    if value.facts.kind != STRING_KIND && (value.facts.len)(value.content) <= FEW {
        (value.facts.each)(value.content, &mut |element| look(element));
    }
}

/// Whether a hash or a sorted set has a member.
fn has(glimpse: &Glimpse<'_>, member: &[u8]) -> bool {
    match glimpse.value.facts.kind {
        HASH_KIND => Hash::view(glimpse.value.content).get(member).is_some(),
        SORTED_SET_KIND => SortedSet::view(glimpse.value.content).score(member).is_some(),
        _ => false,
    }
}

/// What a request holds at a key that it has changed, or whose token it states, if that is a lock.
fn held(glimpse: &Glimpse<'_>, request: Request<'_>, has_changed: bool) -> Option<Held> {
    let is_dated = glimpse.expires_at_ms.is_some() || glimpse.is_lock || glimpse.fence.is_some();
    if let Some(token) = glimpse.text {
        let is_stated = || Token::of(token).is_long && arguments(request).any(|argument| argument == token);
        let is_held = is_dated && token.len() <= BYTES_MAX && (has_changed || is_stated());
        return is_held.then(|| Held::Key { token: digest(token), fence: glimpse.fence });
    }
    let may_hold = |token: &[u8]| {
        let is_evident = is_dated || glimpse.value.facts.kind == HASH_KIND && speaks_of_lock(token);
        is_evident && (has_changed || Token::of(token).is_long) && !MARKS.contains(&token)
    };
    let stated = arguments(request).filter(|token| has(glimpse, token) && may_hold(token));
    let mut tokens: Vec<Box<[u8]>> = stated.map(Into::into).collect();
    tokens.sort_unstable();
    tokens.dedup();
    if tokens.is_empty() && has_changed {
        // The script has made the token of what it was sent.
        each_of_few(glimpse, |element| {
            if let Some(token) = element.first().filter(|token| has(glimpse, token) && may_hold(token)) {
                tokens.push((*token).into());
            }
        });
        tokens.truncate(usize::from(tokens.len() == 1));
    }
    (!tokens.is_empty()).then_some(Held::Members(tokens))
}

/// Ends a lock, if it still is the same one.
fn lose(tx: &mut Transaction<'_>, doomed: &Doomed) {
    let Doomed { at_ms, key, held, .. } = doomed;
    let Some(glimpse) = tx.glimpse(key) else { return };
    match held {
        Held::Key { token, fence } => {
            let is_same = glimpse.text.is_some_and(|text| digest(text) == *token);
            if is_same && fence.is_none_or(|fence| glimpse.fence == Some(fence)) {
                tx.lose_lock(key, *at_ms);
            }
        }
        Held::Members(tokens) => {
            let there: Vec<&[u8]> =
                tokens.iter().map(|token| &**token).filter(|t| has(&glimpse, t)).collect();
            let marks = MARKS.iter().filter(|mark| has(&glimpse, mark)).count();
            let (value, kind) = (glimpse.value, glimpse.value.facts.kind);
            if there.is_empty() {
                return;
            }
            if (value.facts.len)(value.content) == there.len() + marks {
                return tx.lose_lock(key, *at_ms);
            }
            for token in there {
                tx.note_permit_lost(key, token, *at_ms);
                remove(tx, key, kind, token);
            }
        }
    }
}

/// Takes a lock from one of its holders.
fn remove(tx: &mut Transaction<'_>, key: &[u8], kind: u8, token: &[u8]) {
    // None can fail: the kind is known.
    let _known = match kind {
        HASH_KIND => tx.change::<Hash, _>(key, "hdel", |hash| hash.remove(token)).is_ok(),
        _ if permits::are_held(tx, key, token) => permits::give_back(tx, key, token).is_ok(),
        _ if Permits::at(tx, key).is_some() => true,
        _ => tx.change::<SortedSet, _>(key, "zrem", |set| set.remove(token)).is_ok(),
    };
}

/// Ends all locks whose time has come by a turn of the clock. The caller frees what has expired.
pub(in crate::commands) fn lose_turned(instance: &Instance, tx: &mut Transaction<'_>) {
    if is_paused(instance) {
        return;
    }
    let current = tx.database();
    for doomed in instance.faults.take_doomed(tx.now_ms(), None) {
        tx.select(doomed.database);
        lose(tx, &doomed);
    }
    tx.select(current);
}

/// Whether no data change now. Locks are lost at the end of the pause.
fn is_paused(instance: &Instance) -> bool {
    instance.clients.pause.paused().is_some()
}

/// Ends the locks whose time has come. Returns whether it could: another thread may hold one for long.
pub(crate) fn lose_due(instance: &Instance) -> bool {
    if is_paused(instance) {
        return false;
    }
    let may_free = instance.frees_expired();
    let (now_ms, mut is_done) = (instance.clock.now_ms(), true);
    for (database, key) in instance.faults.due(now_ms, LOST_AT_ONCE_MAX) {
        let lose_all = |tx: &mut Transaction<'_>| {
            let due = instance.faults.take_doomed(now_ms, Some((database, &key)));
            due.iter().for_each(|doomed| lose(tx, doomed));
        };
        let (name, notify) = (Guarded::key(database, &key), |effects| instance.notify(effects, None));
        is_done &= instance.keyspace.visit(&name, may_free, lose_all, notify);
    }
    is_done
}
