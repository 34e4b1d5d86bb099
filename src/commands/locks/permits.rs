//! Permits: locks that several clients hold at a time. LOCK ACQUIRE … SHARED (readers beside one writer) and
//! LIMIT n (n holders at most).
//!
//! The key is a sorted set: the score of a token is the end of its permit, in milliseconds since 1970. The
//! key expires with the last of them. Symfony Lock keeps its read locks in this form, so both respect each
//! other; where it writes, the member [`WRITER`] is there, too. A permit whose end has passed counts no more,
//! and is removed when a permit is written.
//!
//! Other libraries keep other times in sorted sets: when a permit was taken, or when a job is due. There the
//! key's expiry is not the largest score, and these commands never write such a set.
//!
//! No permit has a fencing number: each reply that grants or extends one draws a number, and no key keeps
//! it.

use crate::keyspace::{Change, Transaction};
use crate::resp::Reply;
use crate::types::sorted_sets::{SortedSet, SortedSetView};
use crate::values::{ABSENT_KIND, SORTED_SET_KIND};

use super::arguments::Acquiring;
use crate::commands::args;
use crate::commands::error::Error;
use crate::commands::facts::{Result, Taken};

/// The member of a sorted set that says that its holder is a writer.
const WRITER: &[u8] = b"__write__";

/// A request removes so many permits at most whose ends have passed.
const CLEARED_MAX: usize = 256;

/// The latest end: a score is exact up to here.
const END_MS_MAX: u64 = 1 << 53;

const NOT_PERMITS: Error = Error::fixed(
    "ERR The sorted set at this key holds no permits: its largest score is not the moment at which it expires",
);

const NOT_GUARDED: Error = Error::fixed("ERR BOUND and NOTIFY are for locks of one holder");

/// The permits at a key, as they are at one moment.
#[derive(Clone, Copy)]
pub(super) struct Permits<'a> {
    set: SortedSetView<'a>,
    now_ms: u64,
    expires_at_ms: u64,
}

impl<'a> Permits<'a> {
    /// The permits at a key, if it has any. Then at least one of them counts, for the key has not expired.
    pub(super) fn at(tx: &'a Transaction<'_>, key: &[u8]) -> Option<Permits<'a>> {
        let set = tx.glance_at::<SortedSet>(key)?;
        let expires_at_ms = tx.peek_expiry(key)??;
        let is_end = latest_ms(set) == Some(expires_at_ms);
        is_end.then(|| Permits { set, now_ms: tx.now_ms(), expires_at_ms })
    }

    /// When the last permit ends.
    pub(super) fn expires_at_ms(self) -> u64 {
        self.expires_at_ms
    }

    /// When the permit of a token ends, if it has one.
    fn end_of(self, token: &[u8]) -> Option<u64> {
        let end_ms = self.set.score(token)?;
        (end_ms > self.now_ms as f64).then_some(end_ms as u64)
    }

    /// Whether the one holder is a writer.
    pub(super) fn has_writer(self) -> bool {
        self.end_of(WRITER).is_some()
    }

    /// Whether the permit of a token may be taken, extended and given back.
    pub(super) fn has(self, token: &[u8]) -> bool {
        token != WRITER && self.end_of(token).is_some()
    }

    /// The position of the first permit that counts.
    fn first(self) -> usize {
        self.set.first_above(self.now_ms as f64)
    }

    /// How many permits count.
    pub(super) fn count(self) -> usize {
        self.set.len() - self.first() - usize::from(self.has_writer())
    }

    /// The first permits to end, with their ends.
    pub(super) fn first_to_end(self, most: usize) -> impl Iterator<Item = (&'a [u8], u64)> {
        let some = self.set.range(self.first()..self.set.len().min(self.first() + most + 1));
        some.filter(|(token, _)| *token != WRITER).take(most).map(|(token, end_ms)| (token, end_ms as u64))
    }

    /// Whether a token that has none can have a permit beside less than `limit` others.
    fn allow(self, token: &[u8], limit: u64) -> bool {
        !self.has_writer() && !self.has(token) && (self.count() as u64) < limit
    }

    /// When there are less than `limit` permits, if nothing changes.
    fn frees_at_ms(self, limit: u64) -> Option<u64> {
        let surplus = (self.count() as u64).checked_sub(limit)?;
        let position = self.first() + usize::try_from(surplus).ok()?;
        let (_, end_ms) = self.set.range(position..position + 1).next()?;
        Some(end_ms as u64)
    }
}

/// The largest score, if it is a moment.
fn latest_ms(set: SortedSetView<'_>) -> Option<u64> {
    let last = set.len().checked_sub(1)?;
    let (_, score) = set.range(last..last + 1).next()?;
    (score.fract() == 0.0 && (0.0..=END_MS_MAX as f64).contains(&score)).then_some(score as u64)
}

/// When a permit ends that is taken or extended now. The expiry of the key is to be the same moment, in a
/// store, too: so it is no span that begins when the store commits it.
fn end_ms(tx: &Transaction<'_>, lifetime: &[u8], command: &str) -> Result<u64> {
    let lifetime_ms = u64::try_from(args::integer(lifetime)?).ok().filter(|ms| *ms > 0);
    let end_ms = lifetime_ms.and_then(|ms| ms.checked_add(tx.next_ms()));
    end_ms.filter(|ms| *ms <= END_MS_MAX).ok_or_else(|| Error::invalid_expire(command))
}

/// Refuses a token that has a permit, and now asks for the whole lock.
pub(super) fn refuse_upgrade(tx: &Transaction<'_>, key: &[u8], token: &[u8]) -> Result<()> {
    match Permits::at(tx, key) {
        Some(permits) if permits.has(token) => Err(Error::fixed(
            "ERR The token has a permit of this lock: release it before you take the lock for one holder",
        )),
        _ => Ok(()),
    }
}

/// Takes a permit beside less than `limit` others. Those who wait in line come first, except where the token
/// has a permit already.
pub(super) fn acquire<'r>(
    tx: &mut Transaction<'_>,
    (key, limit): (&[u8], u64),
    acquiring: &Acquiring<'_>,
    is_served: bool,
    reply: Reply<'r>,
) -> Result<Taken<'r>> {
    let token = acquiring.token;
    if token == WRITER {
        return Err(Error::fixed("ERR The token __write__ is the mark of a writer"));
    }
    if acquiring.bound.is_some() || acquiring.is_notified {
        return Err(NOT_GUARDED);
    }
    if tx.is_in_store() {
        return Err(Error::fixed(
            "ERR SHARED and LIMIT are for locks in memory, and this key is in the store",
        ));
    }
    let end_ms = end_ms(tx, acquiring.lifetime, "lock|acquire")?;
    let kind = tx.glance(key).map_or(ABSENT_KIND, |value| value.facts.kind);
    let permits = Permits::at(tx, key);
    if kind == SORTED_SET_KIND && permits.is_none() {
        return Err(NOT_PERMITS);
    }
    if acquiring.is_again
        && let Some(permits) = permits.filter(|permits| permits.has(token) && !permits.has_writer())
    {
        let end_ms = permits.end_of(token).map_or(end_ms, |before_ms| end_ms.max(before_ms));
        write(tx, key, "zadd", |set| _ = set.set_score(token, end_ms as f64))?;
        return Ok(Taken::Something(reply.integer(tx.number_permit(key).cast_signed())));
    }
    let is_free = permits.map_or(kind == ABSENT_KIND, |permits| permits.allow(token, limit));
    if !is_served && tx.leaves_permit_to_line(key) {
        return Ok(Taken::Nothing(reply));
    }
    if !is_free {
        if !is_served && !acquiring.waits(tx) {
            tx.refuse_lock(key);
        }
        return Ok(Taken::Nothing(reply));
    }
    write(tx, key, "zadd", |set| _ = set.set_score(token, end_ms as f64))?;
    Ok(Taken::Something(reply.integer(tx.number_permit(key).cast_signed())))
}

/// When a client that waits for a permit beside less than `limit` others may get it though no key changes.
pub(super) fn frees_at_ms(tx: &Transaction<'_>, key: &[u8], limit: u64) -> Option<u64> {
    Permits::at(tx, key)?.frees_at_ms(limit)
}

/// Sets the end of a permit, if the token has one.
pub(super) fn extend(
    tx: &mut Transaction<'_>,
    key: &[u8],
    token: &[u8],
    (lifetime, is_bound): (&[u8], bool),
    reply: Reply<'_>,
) -> Result {
    let end_ms = end_ms(tx, lifetime, "lock|extend")?;
    let Some(permits) = Permits::at(tx, key).filter(|permits| permits.has(token)) else {
        return Ok(reply.nil());
    };
    if is_bound {
        return Err(NOT_GUARDED);
    }
    let has_writer = permits.has_writer();
    write(tx, key, "zadd", |set| {
        set.set_score(token, end_ms as f64);
        if has_writer {
            set.set_score(WRITER, end_ms as f64);
        }
    })?;
    Ok(reply.integer(tx.number_permit(key).cast_signed()))
}

/// Gives a permit back, if the token has one.
pub(super) fn release(tx: &mut Transaction<'_>, key: &[u8], token: &[u8], reply: Reply<'_>) -> Result {
    let has_permit = Permits::at(tx, key).is_some_and(|permits| permits.has(token));
    if has_permit {
        write(tx, key, "zrem", |set| {
            set.remove(token);
            // Beside a writer no other token has a permit.
            set.remove(WRITER);
        })?;
    }
    Ok(reply.bool(has_permit))
}

/// Whether a key has a sorted set, which is no lock of one holder.
pub(super) fn is_set(tx: &Transaction<'_>, key: &[u8]) -> bool {
    tx.glance_at::<SortedSet>(key).is_some()
}

/// Writes permits, removes some of those whose ends have passed, and has the key expire with the last one.
fn write(
    tx: &mut Transaction<'_>,
    key: &[u8],
    event: &'static str,
    change: impl FnOnce(&mut Change<'_, SortedSet>),
) -> Result<()> {
    let now_ms = tx.now_ms();
    let latest_ms = tx.make::<SortedSet, _>(key, event, |set| {
        change(set);
        let over = set.view().first_above(now_ms as f64).min(CLEARED_MAX);
        set.remove_range(0..over);
        latest_ms(set.view())
    })?;
    // Without any, the key has gone. If all that are left are over, this deletes it.
    if latest_ms.is_some() && tx.peek_expiry(key) != Some(latest_ms) {
        tx.set_expiry(key, latest_ms);
    }
    Ok(())
}
