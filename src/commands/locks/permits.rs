//! Permits: locks that several clients hold at a time. LOCK ACQUIRE … SHARED (readers beside one writer) and
//! LIMIT n (n holders at most).
//!
//! The key is a sorted set: the score of a token is the end of its permit, in milliseconds since 1970. The
//! key expires with the last of them. Symfony Lock keeps its read locks in this form, so both respect each
//! other; where it writes, the member [`WRITER`] is there, too. A permit whose end has passed counts no more,
//! and is removed when a permit is written.
//!
//! Other libraries keep other times in sorted sets: when a permit was taken, or when a job is due. There the
//! key does not expire at the largest score, and these commands never write such a set.
//!
//! In a store, a client that waits for the whole lock leaves a mark there with an end, which all front-ends
//! respect: their lines know nothing of each other.
//!
//! No permit has a fencing number: each reply that grants or extends one draws a number, and no key keeps
//! it.

use crate::keyspace::{BondTerms, Change, GuardWish, PERMIT_END_MS_MAX, PermitForm, PermitWish, Transaction};
use crate::resp::Reply;
use crate::types::sorted_sets::permits::{AWAITED, WRITER, is_last_end, is_mark, moment};
use crate::types::sorted_sets::{SortedSet, SortedSetView};
use crate::values::{SORTED_SET_KIND, Type, Value};
use crate::waiting::Ticket;

use super::arguments::{Acquiring, Bound};
use crate::commands::args;
use crate::commands::error::Error;
use crate::commands::facts::{Result, Taken};

/// For how long a client's mark that it waits holds, in milliseconds. It is put off in time.
const AWAITED_MS: u64 = 1000;

/// A request removes so many permits at most whose ends have passed.
const CLEARED_MAX: usize = 256;

const NOT_PERMITS: Error = Error::fixed(
    "ERR The sorted set at this key holds no permits: its largest score is not the moment at which it expires",
);

/// What a guard has to know of permits.
static FORM: PermitForm = PermitForm {
    end_of: |value, expires_at_ms, token| {
        let set = form_of(value, expires_at_ms).filter(|_| !is_mark(token))?;
        set.score(token).map(|end_ms| end_ms as u64)
    },
    is_met: |value, expires_at_ms| form_of(value, expires_at_ms).is_some(),
    set_end: |tx, key, token, end_ms| {
        let latest_ms = tx.adjust_unused::<SortedSet, _>(key, |set| {
            set.set_score(token, end_ms as f64);
            latest_ms(set.view())
        });
        if let Some(latest_ms) = latest_ms.flatten() {
            tx.keep_key_until(key, latest_ms);
        }
    },
    remove: |tx, key, token| {
        // It is a sorted set.
        let _ = write(tx, key, "zrem", |set| _ = set.remove(token));
    },
};

/// The permits at a key, as they are at one moment.
#[derive(Clone, Copy)]
pub(super) struct Permits<'a> {
    set: SortedSetView<'a>,
    now_ms: u64,
    expires_at_ms: u64,
}

impl<'a> Permits<'a> {
    /// The permits at a key, if it has any, though it may be that none of them counts any more.
    pub(super) fn at(tx: &'a Transaction<'_>, key: &[u8]) -> Option<Permits<'a>> {
        // The lens hears of no look at a key that is absent: a client may be about to take it.
        if !are_at(tx, key) {
            return None;
        }
        let expires_at_ms = tx.peek_expiry(key)??;
        let set = form_of(tx.glance(key)?, Some(expires_at_ms))?;
        Some(Permits { set, now_ms: tx.now_ms(), expires_at_ms })
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

    /// Until when no permit is granted, since a client waits for the whole lock.
    fn awaited_until(self) -> Option<u64> {
        self.end_of(AWAITED)
    }

    /// Whether a token has a permit.
    pub(super) fn has(self, token: &[u8]) -> bool {
        !is_mark(token) && self.end_of(token).is_some()
    }

    /// The position of the first permit that counts.
    fn first(self) -> usize {
        self.set.first_above(self.now_ms as f64)
    }

    /// How many permits count.
    pub(super) fn count(self) -> usize {
        let marks = usize::from(self.has_writer()) + usize::from(self.awaited_until().is_some());
        self.set.len() - self.first() - marks
    }

    /// The first permits to end, with their ends.
    pub(super) fn first_to_end(self, most: usize) -> impl Iterator<Item = (&'a [u8], u64)> {
        let some = self.set.range(self.first()..self.set.len().min(self.first() + most + MARKS));
        some.filter(|(token, _)| !is_mark(token)).take(most).map(|(token, end_ms)| (token, end_ms as u64))
    }

    /// Whether a token that has none can have a permit beside less than `limit` others.
    fn allow(self, token: &[u8], limit: u64) -> bool {
        let is_withheld = self.has_writer() || self.awaited_until().is_some();
        !is_withheld && !self.has(token) && (self.count() as u64) < limit
    }

    /// When the next permit or mark ends.
    fn next_end_ms(self) -> Option<u64> {
        self.set.range(self.first()..self.set.len()).next().map(|(_, end_ms)| end_ms as u64)
    }

    /// When a token can have a permit beside less than `limit` others, if nothing changes.
    fn allow_at_ms(self, token: &[u8], limit: u64) -> Option<u64> {
        let ends = [WRITER, AWAITED, token].into_iter().filter_map(|member| self.end_of(member));
        ends.chain(self.falls_below_at_ms(limit)).max()
    }

    /// When there are less than `limit` permits, if nothing changes.
    fn falls_below_at_ms(self, limit: u64) -> Option<u64> {
        let surplus = usize::try_from((self.count() as u64).checked_sub(limit)?).ok()?;
        let position = self.first() + surplus;
        let mut ends = self.set.range(position..self.set.len().min(position + MARKS));
        // A mark in front of it has taken the place of a permit.
        let marks = [WRITER, AWAITED].into_iter().filter_map(|mark| self.set.rank(mark));
        let marks = marks.filter(|rank| (self.first()..=position).contains(rank)).count();
        ends.nth(marks).map(|(_, end_ms)| end_ms as u64)
    }
}

/// How many members a sorted set may have that are no permits, and one more.
const MARKS: usize = 3;

/// The sorted set in a value that expires then, if it has permits.
fn form_of(value: Value<'_>, expires_at_ms: Option<u64>) -> Option<SortedSetView<'_>> {
    let set = (value.facts.kind == SORTED_SET_KIND).then(|| SortedSet::view(value.content))?;
    is_last_end(last_score(set)?, expires_at_ms?).then_some(set)
}

fn last_score(set: SortedSetView<'_>) -> Option<f64> {
    let last = set.len().checked_sub(1)?;
    set.range(last..last + 1).next().map(|(_, score)| score)
}

/// The largest score, if it is a moment.
fn latest_ms(set: SortedSetView<'_>) -> Option<u64> {
    last_score(set).and_then(moment)
}

/// When a permit ends that is taken or extended now. The expiry of the key is to be the same moment, in a
/// store, too: so it is no span that begins when the store commits it.
fn end_ms(tx: &Transaction<'_>, lifetime: &[u8], command: &str) -> Result<u64> {
    let lifetime_ms = u64::try_from(args::integer(lifetime)?).ok().filter(|ms| *ms > 0);
    let end_ms = lifetime_ms.and_then(|ms| ms.checked_add(tx.next_ms()));
    end_ms.filter(|ms| *ms <= PERMIT_END_MS_MAX).ok_or_else(|| Error::invalid_expire(command))
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

/// What a client wants besides of its permits.
struct Wants {
    is_notified: bool,
    bond: Option<BondTerms>,
}

impl Wants {
    fn of((bound, is_notified): (Option<Bound>, bool), lifetime: &[u8]) -> Result<Wants> {
        Ok(Wants { is_notified, bond: bound.map(|bound| bound.terms(lifetime)).transpose()? })
    }

    /// Draws the number of permits that a token has got, and notes what its client wants besides of each.
    /// `is_anew` says of the place of a key whether the token had no permit there.
    fn number(
        &self,
        tx: &Transaction<'_>,
        keys: &[&[u8]],
        token: &[u8],
        is_anew: impl Fn(usize) -> bool,
    ) -> u64 {
        let Wants { is_notified, bond } = *self;
        let number = tx.number_permits(keys).unwrap_or(0);
        for (place, key) in keys.iter().enumerate().filter(|_| is_notified || bond.is_some()) {
            let is_anew = is_anew(place);
            let permit = Some(PermitWish { token: token.into(), number, is_anew, form: &FORM });
            tx.wish(GuardWish { key: (*key).into(), permit, is_notified, bond });
        }
        number
    }
}

/// What a lock is for a client that wants a permit of it.
enum Standing {
    /// The client has one already, up to this end, and comes again for it.
    Own(u64),
    Open {
        /// Whether the token had a permit, which may be over.
        had_one: bool,
    },
    Full,
}

impl Standing {
    /// Of a lock that less than `limit` others may hold.
    ///
    /// # Errors
    ///
    /// If it is a sorted set without permits.
    fn of(tx: &Transaction<'_>, key: &[u8], acquiring: &Acquiring<'_>, limit: u64) -> Result<Standing> {
        let token = acquiring.token;
        let Some(permits) = Permits::at(tx, key) else {
            return match tx.is_free(key) {
                true => Ok(Standing::Open { had_one: false }),
                false if are_at(tx, key) => Err(NOT_PERMITS),
                false => Ok(Standing::Full),
            };
        };
        let own = permits.end_of(token).filter(|_| acquiring.is_again && !permits.has_writer());
        Ok(match own {
            Some(end_ms) => Standing::Own(end_ms),
            None if permits.allow(token, limit) => {
                Standing::Open { had_one: permits.set.score(token).is_some() }
            }
            None => Standing::Full,
        })
    }
}

/// Whether a client that waits for permits of several locks can take none of this one, in line with this
/// ticket. It can of a sorted set without permits: that is when it is refused.
pub(super) fn is_lacking(
    tx: &Transaction<'_>,
    key: &[u8],
    (acquiring, limit): (&Acquiring<'_>, u64),
    ticket: Ticket,
) -> bool {
    match Standing::of(tx, key, acquiring, limit) {
        Ok(Standing::Full) => true,
        Ok(Standing::Open { .. }) => tx.is_awaited_before(key, ticket),
        Ok(Standing::Own(_)) | Err(_) => false,
    }
}

/// Takes a permit of each of these locks beside less than `limit` others, or none. Those who wait in line
/// come first, except where the token has a permit already.
pub(super) fn acquire<'r>(
    tx: &mut Transaction<'_>,
    (keys, limit): (&[&[u8]], u64),
    acquiring: &Acquiring<'_>,
    is_served: bool,
    reply: Reply<'r>,
) -> Result<Taken<'r>> {
    let token = acquiring.token;
    if is_mark(token) {
        return Err(Error::fixed("ERR The tokens __write__ and __wait__ are marks of writers"));
    }
    let Acquiring { bound, is_notified, .. } = *acquiring;
    let wants = Wants::of((bound, is_notified), acquiring.lifetime)?;
    let end_ms = end_ms(tx, acquiring.lifetime, "lock|acquire")?;
    let standings = keys.iter().map(|key| Standing::of(tx, key, acquiring, limit));
    let standings: Vec<Standing> = standings.collect::<Result<_>>()?;
    let all = || keys.iter().copied().zip(&standings);
    let is_own = |standing: &Standing| matches!(standing, Standing::Own(_));
    let mut wanted = all().filter(|(_, standing)| !is_own(standing));
    if !is_served && wanted.any(|(key, _)| tx.leaves_permit_to_line(key)) {
        return Ok(Taken::Nothing(reply));
    }
    let full: Vec<&[u8]> =
        all().filter(|(_, standing)| matches!(standing, Standing::Full)).map(|(key, _)| key).collect();
    if !full.is_empty() {
        for key in full {
            if keys.len() > 1 {
                tx.lacks(key, opens_at_ms(tx, key, token, limit));
            }
            if !is_served && !acquiring.waits(tx) {
                tx.refuse_lock(key);
            }
        }
        return Ok(Taken::Nothing(reply));
    }
    for (key, standing) in all() {
        match *standing {
            Standing::Own(before_ms) => {
                tx.keeps(key);
                write(tx, key, "zadd", |set| _ = set.set_score(token, end_ms.max(before_ms) as f64))?;
                if bound.is_none() {
                    tx.promise_lock(key, Some(token), end_ms);
                }
            }
            Standing::Open { had_one } => {
                tx.note_permit_anew(key, token, had_one);
                write(tx, key, "zadd", |set| _ = set.set_score(token, end_ms as f64))?;
                if !is_served {
                    tx.passes_line(key);
                }
            }
            Standing::Full => {}
        }
    }
    let number = wants.number(tx, keys, token, |place| !is_own(&standings[place]));
    Ok(Taken::Something(reply.integer(number.cast_signed())))
}

/// When a lock of which a client can take no permit may be open for it, if no client changes it.
fn opens_at_ms(tx: &Transaction<'_>, key: &[u8], token: &[u8], limit: u64) -> Option<u64> {
    match Permits::at(tx, key) {
        Some(permits) => permits.allow_at_ms(token, limit),
        None => tx.peek_expiry(key).flatten(),
    }
}

/// When a client that waits for a lock may get it, or has to look again, though no key changes. Those that
/// want permits of several have one alarm for all of them.
pub(super) fn again_at_ms(tx: &Transaction<'_>, key: &[u8], acquiring: &Acquiring<'_>) -> Option<u64> {
    let permits = Permits::at(tx, key)?;
    let (awaited, now_ms) = (permits.awaited_until(), permits.now_ms);
    match acquiring.limit {
        Some(_) if !acquiring.also.is_empty() => permits.next_end_ms(),
        Some(limit) => permits.allow_at_ms(acquiring.token, limit),
        // It puts off the end of its mark when half of the time has passed.
        None => awaited.and(permits.falls_below_at_ms(1)).map(|ms| ms.min(now_ms + AWAITED_MS / 2)),
    }
}

/// Readies a key in a store for a client that wants the whole lock: if no permit is left, frees it. If the
/// client waits, its mark keeps new readers at all front-ends from overtaking it.
pub(super) fn make_way_in_store(tx: &mut Transaction<'_>, key: &[u8], waits: bool) -> Result<()> {
    let Some(permits) = Permits::at(tx, key) else { return Ok(()) };
    let now_ms = permits.now_ms;
    if permits.count() == 0 {
        tx.remove(key);
    } else if waits && permits.awaited_until().is_none_or(|end_ms| end_ms <= now_ms + AWAITED_MS / 2) {
        write(tx, key, "zadd", |set| _ = set.set_score(AWAITED, (now_ms + AWAITED_MS) as f64))?;
    }
    Ok(())
}

/// Whether a token has a permit of a lock.
pub(super) fn are_held(tx: &Transaction<'_>, key: &[u8], token: &[u8]) -> bool {
    Permits::at(tx, key).is_some_and(|permits| permits.has(token))
}

/// Sets the ends of permits that a token has, and returns their new number. `None` if there are none.
pub(super) fn extend(
    tx: &mut Transaction<'_>,
    keys: &[&[u8]],
    token: &[u8],
    (lifetime, bound): (&[u8], Option<Bound>),
) -> Result<Option<u64>> {
    if keys.is_empty() {
        return Ok(None);
    }
    let end_ms = end_ms(tx, lifetime, "lock|extend")?;
    let wants = Wants::of((bound, false), lifetime)?;
    for key in keys {
        let has_writer = Permits::at(tx, key).is_some_and(Permits::has_writer);
        write(tx, key, "zadd", |set| {
            set.set_score(token, end_ms as f64);
            if has_writer {
                set.set_score(WRITER, end_ms as f64);
            }
        })?;
    }
    Ok(Some(wants.number(tx, keys, token, |_| false)))
}

/// Gives back a permit that a token has.
pub(super) fn give_back(tx: &mut Transaction<'_>, key: &[u8], token: &[u8]) -> Result<()> {
    write(tx, key, "zrem", |set| {
        set.remove(token);
        // Beside a writer no other token has a permit.
        set.remove(WRITER);
    })
}

/// Whether a key has a sorted set. The lens hears of no look at a key that is absent: another one follows.
pub(super) fn are_at(tx: &Transaction<'_>, key: &[u8]) -> bool {
    tx.is_of_kind(key, SORTED_SET_KIND)
}

/// Whether a key in a store has permits, and none of them counts any more.
pub(super) fn are_over(tx: &Transaction<'_>, key: &[u8]) -> bool {
    tx.is_in_store() && Permits::at(tx, key).is_some_and(|permits| permits.count() == 0)
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
    let change = |set: &mut Change<'_, SortedSet>| {
        change(set);
        let over = set.view().first_above(now_ms as f64).min(CLEARED_MAX);
        set.remove_range(0..over);
        latest_ms(set.view())
    };
    let latest_ms = match tx.is_free(key) {
        true => tx.make_anew(key, event, change),
        false => tx.make(key, event, change)?,
    };
    tx.expires_exactly(key);
    // Without any, the key has gone. If all that are left are over, this deletes it.
    if latest_ms.is_some() && tx.peek_expiry(key) != Some(latest_ms) {
        tx.set_expiry(key, latest_ms);
    }
    Ok(())
}
