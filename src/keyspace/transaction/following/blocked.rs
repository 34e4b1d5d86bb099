//! Clients that wait until a key has what they want: BLPOP and the other blocking commands.
//!
//! A client that finds nothing leaves a [`Waiter`] in the shards of its keys, under the locks under which it
//! has looked. A client that changes such a key serves the waiters on its own transaction, after its command
//! and before its locks are free ([`serve_blocked`](Transaction::serve_blocked)). So no other client takes
//! what a waiter gets, and the log has both in one unit. Waiters are served in the order in which they came.
//! What a waiter needs besides its keys is held before the command runs ([`targets`](super::targets)).
//!
//! A waiter is claimed before it is served. A client whose time is over claims it, too, so exactly one of
//! them decides. If two clients have something for it, the second one does not wait for the first. If the
//! first one serves it in vain, the waiter tries again on its own. An entry of a waiter that is over may stay
//! in a shard for a while; it is removed when its key changes.
//!
//! Other things end a wait as well: CLIENT UNBLOCK, CLIENT KILL, the loss of a permission. So the claim is
//! one step with them ([`Attempt::claim`]): a client whose wait they have ended is not served, and one that
//! is being served was not waiting any more.
//!
//! What some waiters want comes with time alone, such as an entry of a stream that has been idle for long
//! enough. They look again on their own, in real time, when the clock will show that moment. If a client
//! turns the clock (CLOCK), that moment is another one: the transaction that turns it serves them, as if
//! their keys had changed, and those that get nothing execute their command again.

use std::collections::HashSet;
use std::fmt;
use std::mem::take;
use std::ops::DerefMut;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hashbrown::HashTable;

use crate::keyspace::Keyspace;
use crate::keyspace::store::entry::Entry;
use crate::keyspace::transaction::following::guarded::Guarded;
use crate::keyspace::transaction::following::interest::Interest;
use crate::keyspace::transaction::following::news::Effect;
use crate::keyspace::transaction::long_texts::{Missed, complete};
use crate::keyspace::transaction::{Everything, Transaction};
use crate::sync::{AtomicU64, Mutex};
use crate::values::ABSENT_KIND;
use crate::waiting::{Line, Ticket, Waits, Want};

/// How a waiter gets what it waits for. The module with the commands knows.
pub trait Attempt: Send + Sync {
    /// The kind of the values that it waits for; [`ABSENT_KIND`] if it waits until the key is absent.
    fn kind(&self) -> u8;

    /// Whether it may leave what is there to the clients behind it.
    fn is_shared(&self) -> bool;

    /// The kind of a value that it joins, if it need not wait until the key is absent: that of locks which
    /// several clients hold.
    fn joins(&self) -> Option<u8> {
        None
    }

    /// When it may join what is there though the key does not change, in milliseconds since 1970.
    fn again_at_ms(&self, _tx: &Transaction<'_>, _key: &[u8]) -> Option<u64> {
        None
    }

    /// Whether it may find something though no key changes: when the clock shows a later moment.
    fn goes_by_time(&self) -> bool {
        false
    }

    /// The token by which a client that comes again takes over its place, if there is one.
    fn token(&self) -> Option<&[u8]> {
        None
    }

    /// Whether it takes all of its keys at once, or none.
    fn takes_all(&self) -> bool {
        false
    }

    /// Whether it keeps those of its keys that its token has already.
    fn keeps_own(&self) -> bool {
        false
    }

    /// The place of one of its keys that it cannot take as it is, in line with its ticket, if it takes all of
    /// them.
    fn lacks(&self, _tx: &Transaction<'_>, _keys: &[Box<[u8]>], _ticket: Ticket) -> Option<usize> {
        None
    }

    /// Appends the reply of a client that has waited in vain.
    fn reply_in_vain(&self, _out: &mut Vec<u8>) {}

    /// Takes what is there at some of its keys, which have changed, and appends the reply to `out`.
    fn attempt(&self, tx: &mut Transaction<'_>, keys: &[&[u8]], out: &mut Vec<u8>) -> Attempted;

    /// Whether the wait ends when its key has no value of this kind any more: the attempt then fails.
    fn ends_without_value(&self) -> bool;

    /// Claims the client, to serve it. Here nothing but its keys and its time ends its wait.
    fn claim(&self) -> Claimed {
        Claimed::Yes
    }

    /// Ends the claim. The client `goes_on` waiting, or was served.
    fn release(&self, _goes_on: bool) {}

    /// Wakes the client.
    fn wake(&self);

    /// The number of the client.
    fn client(&self) -> u64;

    /// The name of its command, if it has one.
    fn command(&self) -> &'static str {
        ""
    }
}

/// The result of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempted {
    /// The reply is written.
    Served,
    /// There is nothing yet, and nothing for the clients behind it.
    Nothing,
    /// There is nothing for this client yet. Others may find something.
    NothingForIt,
}

/// Whether a waiting client was claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// It may be served.
    Yes,
    /// Its wait was ended by other means.
    No,
    /// It may not do any more what it waits for, and must ask again.
    Refused,
}

/// A client that waits for some keys.
pub struct Waiter {
    ticket: Ticket,
    database: usize,
    pub(super) keys: Box<[Box<[u8]>]>,
    /// The keys that are held, too, when it is served.
    pub(super) targets: Box<[Box<[u8]>]>,
    pub(super) attempt: Box<dyn Attempt>,
    /// Of a client that takes several keys at once: the place of a key that it lacks, among its keys.
    pub(super) lacking: AtomicU64,
    /// How often one of its keys went to a client that came later.
    pub(super) overtaken: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Waiting,
    /// Another client is serving it.
    Claimed(Meanwhile),
    Ended(Outcome),
    /// Its client has taken the outcome.
    Over,
}

/// What has happened to a waiter while another client was serving it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meanwhile {
    Nothing,
    /// A third client had something for it, and could not serve it.
    Missed,
    /// Its own client has left.
    Left,
}

/// How a wait has ended.
#[derive(Debug)]
pub enum Outcome {
    /// The client gets this reply when the log has everything up to this offset.
    Served(Vec<u8>, u64),
    /// The client must execute its command again.
    Again,
    /// The client has ended the wait itself.
    GivenUp,
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiter").field("ticket", &self.ticket).finish_non_exhaustive()
    }
}

impl Waiter {
    /// Whether another client has ended the wait.
    pub fn has_ended(&self) -> bool {
        matches!(*self.state.lock(), State::Ended(_))
    }

    /// Ends the wait; returns how it ended, or `None` while another client is serving it.
    pub fn end(&self) -> Option<Outcome> {
        let mut state = self.state.lock();
        match take(&mut *state) {
            State::Claimed(meanwhile) => {
                *state = State::Claimed(meanwhile);
                None
            }
            before => {
                *state = State::Over;
                Some(if let State::Ended(outcome) = before { outcome } else { Outcome::GivenUp })
            }
        }
    }

    /// Ends the wait of a client that has left, even if another client is serving it. What it gets is lost.
    pub fn leave(&self) {
        let mut state = self.state.lock();
        let is_claimed = matches!(*state, State::Claimed(_));
        *state = if is_claimed { State::Claimed(Meanwhile::Left) } else { State::Over };
    }

    /// Whether it waits until a lock is free.
    pub fn waits_for_absence(&self) -> bool {
        self.attempt.kind() == ABSENT_KIND
    }

    /// The number of the database of its keys.
    pub fn database(&self) -> usize {
        self.database
    }

    /// The keys for which it waits.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.iter().map(|key| &**key)
    }

    /// The token with which it takes a lock, if it waits for one.
    pub fn token(&self) -> Option<&[u8]> {
        self.attempt.token()
    }

    /// Whether it keeps the locks that its token has already, and waits for the others only.
    pub fn keeps_own(&self) -> bool {
        self.attempt.keeps_own()
    }

    /// The name of its command, if it has one.
    pub fn command(&self) -> &'static str {
        self.attempt.command()
    }

    /// Whether it may find something where a key has a value of this kind.
    pub(super) fn is_for(&self, kind: u8) -> bool {
        self.attempt.kind() == kind || self.attempt.joins() == Some(kind)
    }

    /// The ticket by which a client that tries again keeps its place.
    pub fn ticket(&self) -> Ticket {
        self.ticket
    }

    fn claim(&self) -> bool {
        let mut state = self.state.lock();
        match *state {
            State::Waiting => {}
            State::Claimed(Meanwhile::Nothing) => {
                *state = State::Claimed(Meanwhile::Missed);
                return false;
            }
            _ => return false,
        }
        match self.attempt.claim() {
            Claimed::Yes => *state = State::Claimed(Meanwhile::Nothing),
            Claimed::No => return false,
            Claimed::Refused => {
                *state = State::Ended(Outcome::Again);
                drop(state);
                self.attempt.wake();
                return false;
            }
        }
        true
    }

    /// Ends the wait of a client whose place another one takes over, unless it ends already. Returns whether
    /// it did.
    fn gives_way(&self) -> bool {
        let gives_way = self.claim();
        if gives_way {
            let mut reply = Vec::new();
            self.attempt.reply_in_vain(&mut reply);
            self.decide(Outcome::Served(reply, 0));
        }
        gives_way
    }

    /// Ends a claim in vain.
    fn release(&self) {
        self.open_after(|| self.attempt.release(true));
    }

    /// Lets other clients serve it, once all its keys are registered.
    fn open(&self) {
        self.open_after(|| ());
    }

    fn open_after(&self, release: impl FnOnce()) {
        let mut state = self.state.lock();
        let is_missed = matches!(*state, State::Claimed(Meanwhile::Missed));
        *state = match *state {
            State::Claimed(Meanwhile::Left) => State::Over,
            _ if is_missed => State::Ended(Outcome::Again),
            _ => State::Waiting,
        };
        release();
        drop(state);
        if is_missed {
            self.attempt.wake();
        }
    }

    /// Lets the client execute its command again, unless it is served. It keeps its ticket.
    fn look_again(&self) {
        let mut state = self.state.lock();
        match *state {
            State::Waiting => *state = State::Ended(Outcome::Again),
            // The one that has claimed it serves it, or lets it go.
            State::Claimed(Meanwhile::Nothing) => return *state = State::Claimed(Meanwhile::Missed),
            _ => return,
        }
        drop(state);
        self.attempt.wake();
    }

    /// Whether a client that has something for it would serve it.
    pub fn is_waiting(&self) -> bool {
        matches!(*self.state.lock(), State::Waiting)
    }

    fn is_over(&self) -> bool {
        matches!(*self.state.lock(), State::Over | State::Ended(Outcome::Served(..)))
    }

    fn decide(&self, outcome: Outcome) {
        let mut state = self.state.lock();
        let has_left = matches!(*state, State::Claimed(Meanwhile::Left));
        self.attempt.release(!matches!(outcome, Outcome::Served(..)));
        *state = if has_left { State::Over } else { State::Ended(outcome) };
        drop(state);
        self.attempt.wake();
    }
}

impl Waits for Arc<Waiter> {
    fn kind(&self) -> u8 {
        self.attempt.kind()
    }

    fn want(&self) -> Want {
        match self.attempt.kind() == ABSENT_KIND {
            false => Want::Value,
            true if !self.is_group() => Want::Lock,
            true if self.attempt.joins().is_none() => Want::Locks,
            true => Want::Permits,
        }
    }

    fn token(&self) -> Option<&[u8]> {
        self.attempt.token()
    }
}

/// Clients that wait for a key. A client whose wait has just ended may still be among them.
#[derive(Clone, Debug, Default)]
pub struct WaitingClients {
    /// How many they are.
    pub count: usize,
    /// The numbers of the first ones, in their order, and how often each was overtaken.
    pub first: Vec<(u64, u64)>,
}

/// A waiter that was served, with its reply.
#[derive(Debug)]
pub struct Served {
    waiter: Arc<Waiter>,
    reply: Vec<u8>,
    missed: Vec<Missed>,
}

impl Served {
    /// Delivers the reply. The client gets it when the log has everything up to this offset.
    pub fn deliver(mut self, logged: u64) {
        complete(&mut self.reply, self.missed);
        self.waiter.decide(Outcome::Served(self.reply, logged));
    }
}

/// How many keys clients wait for, in all shards.
#[derive(Debug, Default)]
pub(in crate::keyspace) struct BlockedCount {
    count: Mutex<usize>,
    tickets: AtomicU64,
}

impl BlockedCount {
    fn change(&self, interest: &Interest, change: impl FnOnce(&mut usize)) {
        let mut count = self.count.lock();
        change(&mut count);
        interest.set_blocked(*count > 0);
    }
}

/// The keys of one shard for which clients wait.
#[derive(Debug, Default)]
pub(in crate::keyspace) struct BlockedKeys(HashTable<BlockedKey>);

#[derive(Debug)]
struct BlockedKey {
    hash: u64,
    database: usize,
    key: Box<[u8]>,
    line: Line<Arc<Waiter>>,
}

impl BlockedKeys {
    fn is(blocked: &BlockedKey, database: usize, key: &[u8]) -> bool {
        blocked.database == database && *blocked.key == *key
    }

    /// For how many keys clients wait, and with how many of them the wait ends when the key is deleted.
    pub(in crate::keyspace) fn count(&self) -> (usize, usize) {
        let ends_by_deletion =
            |key: &&BlockedKey| key.line.all().any(|(_, waiter)| waiter.attempt.ends_without_value());
        (self.0.len(), self.0.iter().filter(ends_by_deletion).count())
    }

    /// Whether clients wait for a key.
    pub(in crate::keyspace) fn has(&self, hash: u64, database: usize, key: &[u8]) -> bool {
        self.0.find(hash, |blocked| Self::is(blocked, database, key)).is_some()
    }

    /// The keys for which clients wait, with their databases.
    pub(in crate::keyspace) fn keys(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.0.iter().map(|blocked| (blocked.database, &*blocked.key))
    }

    /// All waiters, as often as they wait for keys.
    fn waiters(&self) -> impl Iterator<Item = &Arc<Waiter>> {
        self.0.iter().flat_map(|blocked| blocked.line.all()).map(|(_, waiter)| waiter)
    }

    /// Adds a waiter; returns whether it was not there.
    fn add(&mut self, hash: u64, key: &[u8], waiter: &Arc<Waiter>) -> bool {
        let database = waiter.database;
        let entry = self.0.entry(hash, |blocked| Self::is(blocked, database, key), |blocked| blocked.hash);
        let new = || BlockedKey { hash, database, key: key.into(), line: Line::default() };
        entry.or_insert_with(new).into_mut().line.enter(waiter.ticket, Arc::clone(waiter))
    }

    /// Removes a waiter; returns whether it was there. Another one may have its ticket meanwhile.
    fn remove(&mut self, hash: u64, key: &[u8], waiter: &Waiter) -> bool {
        let Ok(mut found) = self.0.find_entry(hash, |blocked| Self::is(blocked, waiter.database, key)) else {
            return false;
        };
        let line = &mut found.get_mut().line;
        let is_there = line.get(waiter.ticket).is_some_and(|other| std::ptr::eq(&raw const **other, waiter));
        let was_there = is_there && line.leave(waiter.ticket);
        if found.get().line.is_empty() {
            found.remove();
        }
        was_there
    }

    /// The line for a key, if there is one.
    fn line(&self, hash: u64, database: usize, key: &[u8]) -> Option<&Line<Arc<Waiter>>> {
        Some(&self.0.find(hash, |blocked| Self::is(blocked, database, key))?.line)
    }

    /// The lines for a key in each database.
    pub(super) fn in_any_database(&self, hash: u64, key: &[u8]) -> impl Iterator<Item = &Line<Arc<Waiter>>> {
        self.0.iter_hash(hash).filter(move |blocked| *blocked.key == *key).map(|blocked| &blocked.line)
    }
}

impl Transaction<'_> {
    /// Lets a client wait for keys of the current database, which the transaction holds. The targets are
    /// held when the client is served. A client that has waited before keeps its place by its ticket.
    pub fn block<'k>(
        &mut self,
        keys: impl Iterator<Item = &'k [u8]>,
        targets: impl Iterator<Item = &'k [u8]>,
        ticket: Option<u64>,
        attempt: Box<dyn Attempt>,
    ) -> Arc<Waiter> {
        let waiter = self.waiter(keys, targets, ticket, attempt, State::Waiting);
        waiter.keys.iter().for_each(|key| self.register(key, &waiter));
        if waiter.waits_for_absence() {
            self.begin_to_lack(&waiter);
            waiter.keys.iter().for_each(|key| self.set_alarm(key));
        }
        waiter
    }

    /// Ends the wait of the first client that waits for a key with this token, and returns its ticket, with
    /// which the caller takes over its place. What it wants may leave more to those behind it.
    pub fn take_place(&self, key: &[u8], token: &[u8]) -> Option<Ticket> {
        let mut places = self.line(key)?.with_token(token);
        let place = places.find_map(|(ticket, waiter)| waiter.gives_way().then_some(ticket));
        place.inspect(|_| self.note_ready(self.database(), key))
    }

    /// Lets a client wait for very many keys, and holds one after the other. If a key has a value of the
    /// kind that the client waits for, or gets one before the last key is registered, the client executes
    /// its command again.
    pub fn block_one_by_one<'k>(
        &mut self,
        keys: impl Iterator<Item = &'k [u8]>,
        ticket: Option<u64>,
        attempt: Box<dyn Attempt>,
    ) -> Arc<Waiter> {
        // While it is claimed, no other client serves it: one that would is noted.
        let state = State::Claimed(Meanwhile::Nothing);
        let waiter = self.waiter(keys, std::iter::empty(), ticket, attempt, state);
        for key in &waiter.keys {
            self.hold_only(key);
            self.register(key, &waiter);
            if self.kind_of(key) == waiter.attempt.kind() {
                // Notes that there was something.
                waiter.claim();
                break;
            }
        }
        waiter.open();
        waiter
    }

    fn waiter<'k>(
        &self,
        keys: impl Iterator<Item = &'k [u8]>,
        targets: impl Iterator<Item = &'k [u8]>,
        ticket: Option<u64>,
        attempt: Box<dyn Attempt>,
        state: State,
    ) -> Arc<Waiter> {
        let tickets = &self.keyspace().followers().blocked.tickets;
        let ticket = ticket.unwrap_or_else(|| tickets.fetch_add(1, Ordering::Relaxed));
        let (database, state) = (self.database(), Mutex::new(state));
        let (keys, targets) = (keys.map(Box::from).collect(), targets.map(Box::from).collect());
        let (lacking, overtaken) = Default::default();
        Arc::new(Waiter { ticket, database, keys, targets, attempt, lacking, overtaken, state })
    }

    /// Puts a waiter into the queue of a key.
    fn register(&mut self, key: &[u8], waiter: &Arc<Waiter>) {
        let followers = self.keyspace().followers();
        let (spot, shard) = self.shard_mut(key);
        if shard.side_tables_mut().blocked.add(spot.hash, key, waiter) {
            followers.blocked.change(&followers.interest, |count| *count += 1);
        }
    }

    /// Notes that clients may wait for what a key has now. While a log is replayed, keys are as they were at
    /// some time: [`note_all_ready`](Everything::note_all_ready) comes after that.
    #[cold]
    pub(in crate::keyspace) fn note_ready(&self, database: usize, key: &[u8]) {
        if self.is_replay() {
            return;
        }
        let (spot, shard) = self.shard(key);
        if shard.side_tables().is_some_and(|side_tables| side_tables.blocked.has(spot.hash, database, key)) {
            self.leave(|aftermath| match aftermath.ready.last() {
                Some((last, noted)) if *last == database && **noted == *key => {}
                _ => aftermath.ready.push((database, key.into())),
            });
        }
    }

    /// Serves the clients that wait for the keys that the transaction has changed. The caller does so after
    /// its whole command, and before the commit.
    pub fn serve_blocked(&mut self) {
        self.settle_doubts();
        let own_database = self.database();
        while let Some(aftermath) = self.left.get_mut().if_any()
            && !aftermath.ready.is_empty()
        {
            let ready = take(&mut aftermath.ready);
            // What an EXEC has written may have expired since it began.
            self.move_on();
            let changed: HashSet<(usize, &[u8])> =
                ready.iter().map(|(database, key)| (*database, &**key)).collect();
            for (database, key) in &ready {
                self.select(*database);
                self.serve_key(key, &changed);
            }
        }
        self.select(own_database);
        if let Some(aftermath) = self.left.get_mut().if_any() {
            // Those that join a lock have an alarm.
            let timed = take(&mut aftermath.timed).into_iter();
            timed.filter(|it| it.attempt.joins().is_none()).for_each(|waiter| waiter.look_again());
        }
    }

    /// The kind of a key's value, for a look that is no client's.
    fn kind_of(&self, key: &[u8]) -> u8 {
        self.unseen(key).map_or(ABSENT_KIND, Entry::kind)
    }

    /// Whether clients stand in line for a lock.
    pub(in crate::keyspace) fn has_line(&self, key: &[u8]) -> bool {
        self.line(key).is_some_and(|line| line.for_absence() > 0)
    }

    /// Whether a client that stands in line for a lock takes it before those who come now.
    pub(in crate::keyspace) fn has_taker(&mut self, key: &[u8]) -> bool {
        let (kind, mut behind) = (self.kind_of(key), None);
        while let Some(line) = self.line(key) {
            let is_next = |waiter: &&Arc<Waiter>| {
                waiter.waits_for_absence() && waiter.is_helped_by(key, kind) && waiter.is_waiting()
            };
            let Some(waiter) = line.behind(behind).find(is_next).cloned() else { break };
            if self.finds_all(&waiter, false) != Some(false) {
                return true;
            }
            behind = Some(waiter.ticket);
        }
        false
    }

    /// The clients that wait for a key, if there are any.
    pub(super) fn line(&self, key: &[u8]) -> Option<&Line<Arc<Waiter>>> {
        let (spot, shard) = self.shard(key);
        shard.side_tables()?.blocked.line(spot.hash, self.database(), key)
    }

    /// Sets the alarm of a lock for which clients wait, or which has a guard, or takes it away.
    pub(in crate::keyspace) fn set_alarm(&self, key: &[u8]) {
        let line = self.line(key).filter(|line| line.for_absence() > 0);
        let is_awaited = line.is_some() || self.guard(key, None).is_some();
        let entry = self.unseen(key).filter(|_| is_awaited);
        let renewal_ms = entry.and_then(|_| self.renewal_of(key));
        let first = entry.zip(line).into_iter().flat_map(|(entry, line)| {
            first_to_join(line).into_iter().flatten().filter(|first| first.is_for(entry.kind()))
        });
        let again_at_ms = first.filter_map(|first| first.attempt.again_at_ms(self, key));
        let moments_ms = [entry.and_then(Entry::expires_at_ms), renewal_ms];
        let moments_ms = moments_ms.into_iter().flatten().chain(again_at_ms);
        let name = Guarded::key(self.database(), key);
        self.keyspace().followers().alarms.set(name, moments_ms.min());
    }

    /// The clients that wait for a key.
    pub fn waiting_for(&self, key: &[u8]) -> WaitingClients {
        const FIRST: usize = 8;
        let Some(line) = self.line(key) else { return WaitingClients::default() };
        let shown = |(_, waiter): (Ticket, &Arc<Waiter>)| (waiter.attempt.client(), waiter.overtaken());
        let first = line.all().take(FIRST).map(shown).collect();
        WaitingClients { count: line.len(), first }
    }

    /// Serves the clients that wait for a key. As in Redis, a client looks at all of its keys that have
    /// changed, in its own order.
    fn serve_key(&mut self, key: &[u8], changed: &HashSet<(usize, &[u8])>) {
        let (database, mut behind, mut is_patient) = (self.database(), None, true);
        // Whether a client goes on waiting for the lock. Those behind it do not overtake it.
        let mut is_lock_awaited = false;
        loop {
            let kind = self.kind_of(key);
            let Some(line) = self.line(key) else { break };
            let is_next = |waiter: &&Arc<Waiter>| waiter.is_helped_by(key, kind);
            let Some(waiter) = line.behind(behind).find(is_next).cloned() else { break };
            // One that takes several at once reserves none.
            let is_for_lock = waiter.waits_for_absence() && !waiter.is_group();
            let is_in_vain = !waiter.is_for(kind) || waiter.waits_for_absence() && is_lock_awaited;
            if line.for_absence() > 0 && kind != ABSENT_KIND {
                self.set_alarm(key);
                // A thousand clients that wait for a lock cost nothing while it is held.
                if line.len() == line.for_absence() && is_in_vain && waiter.is_waiting() {
                    break;
                }
            }
            behind = Some(waiter.ticket);
            if waiter.is_over() {
                self.unblock(key, &waiter);
                continue;
            }
            // A claim in vain could cost it its turn at another key.
            if is_in_vain && !waiter.attempt.ends_without_value() {
                is_lock_awaited |= is_for_lock;
                continue;
            }
            let holds_all = match self.finds_all(&waiter, is_patient) {
                Some(true) => self.hold_for(&waiter),
                Some(false) => continue,
                None => false,
            };
            // It waits for no more than one shard at a time while it holds others.
            is_patient &= holds_all;
            if !waiter.claim() {
                continue;
            }
            if !holds_all {
                // It keeps its ticket. The clients behind it need not wait until it has tried.
                waiter.decide(Outcome::Again);
                continue;
            }
            // It is a command of its own.
            self.begin_command();
            let keys = waiter.keys.iter().map(|own| &**own);
            let keys: Vec<&[u8]> =
                keys.filter(|own| *own == key || changed.contains(&(database, *own))).collect();
            // What is missing in the replies of the command that serves it is not its own.
            let (mut reply, before, news_before) = (Vec::new(), self.take_missed(), self.count_effects());
            let attempted = waiter.attempt.attempt(self, &keys, &mut reply);
            let missed = self.take_missed();
            if !before.is_empty() {
                self.leave(|aftermath| aftermath.missed = before);
            }
            match attempted {
                Attempted::Served => {
                    if waiter.waits_for_absence() {
                        self.attribute_locks(news_before, &waiter);
                        // It has got all of its keys, and holds them.
                        for own in &waiter.keys {
                            self.note_overtaking(own, Some(waiter.ticket));
                            self.unblock(own, &waiter);
                        }
                    } else {
                        self.unblock(key, &waiter);
                    }
                    self.leave(|aftermath| aftermath.served.push(Served { waiter, reply, missed }));
                }
                // The others find nothing either.
                Attempted::Nothing => return waiter.release(),
                Attempted::NothingForIt => {
                    waiter.release();
                    is_lock_awaited |= is_for_lock;
                }
            }
        }
    }

    /// Has the news of locks from this effect on name the waiter that was granted them.
    fn attribute_locks(&mut self, from: usize, waiter: &Waiter) {
        let served = Some((waiter.attempt.client(), waiter.attempt.command()));
        let effects = self.left.get_mut().if_any().map(|aftermath| aftermath.effects_from(from));
        for effect in effects.unwrap_or_default() {
            if let Effect::Lock(news) = effect
                && news.change.is_taken()
            {
                news.served = served;
            }
        }
    }

    /// Removes a waiter from the shard of a key.
    fn unblock(&mut self, key: &[u8], waiter: &Waiter) {
        let followers = self.keyspace().followers();
        let (spot, shard) = self.shard_mut(key);
        if shard.side_tables_mut().blocked.remove(spot.hash, key, waiter) {
            followers.blocked.change(&followers.interest, |count| *count -= 1);
        }
        if waiter.waits_for_absence() {
            self.set_alarm(key);
        }
    }

    /// Takes the waiters that were served. The caller delivers their replies after the commit.
    pub fn take_served(&mut self) -> Vec<Served> {
        self.left.get_mut().if_any().map(|aftermath| take(&mut aftermath.served)).unwrap_or_default()
    }
}

/// The first client that waits for a lock, and for no other one, and the first that wants permits of several
/// locks. They may join others that hold the lock.
fn first_to_join(line: &Line<Arc<Waiter>>) -> [Option<&Arc<Waiter>>; 2] {
    let first = |want| line.that_want(want).map(|(_, waiter)| waiter).find(|waiter| waiter.is_waiting());
    [Want::Lock, Want::Permits].map(first)
}

impl<'a, T: DerefMut<Target = Transaction<'a>>> Everything<T> {
    /// Notes that clients may wait for what the keys of some databases have now.
    #[cold]
    pub(in crate::keyspace) fn note_ready_in(&mut self, is_changed: impl Fn(usize) -> bool) {
        if self.is_replay() {
            return;
        }
        let mut ready = Vec::new();
        for (_, shard) in self.shards_mut().iter() {
            if let Some(side_tables) = shard.side_tables() {
                let keys = side_tables.blocked.keys().filter(|(database, _)| is_changed(*database));
                ready.extend(keys.map(|(database, key)| (database, Box::from(key))));
            }
        }
        self.leave(|aftermath| aftermath.ready.append(&mut ready));
    }

    /// Lets the waiters that go by time look again when the transaction ends: the clock was turned.
    #[cold]
    pub(in crate::keyspace) fn note_turn(&mut self) {
        let mut timed = Vec::new();
        for (_, shard) in self.shards_mut().iter() {
            let all = shard.side_tables().into_iter().flat_map(|side_tables| side_tables.blocked.waiters());
            timed.extend(all.filter(|waiter| waiter.attempt.goes_by_time()).map(Arc::clone));
        }
        // One that waits for several keys was found in each of their queues.
        timed.sort_unstable_by_key(|waiter| waiter.ticket);
        timed.dedup_by_key(|waiter| waiter.ticket);
        self.leave(|aftermath| aftermath.timed = timed);
    }

    /// Lets the transaction serve the waiters that look again because the clock was turned, as if their keys
    /// had changed. The keys come in the order in which the first one of their waiters came.
    pub fn offer_by_time(&mut self) {
        let Some(aftermath) = self.left.get_mut().if_any() else { return };
        let mut seen = HashSet::new();
        for waiter in &aftermath.timed {
            for key in waiter.keys.iter().filter(|key| seen.insert((waiter.database, &***key))) {
                aftermath.ready.push((waiter.database, key.clone()));
            }
        }
    }

    /// Notes that clients may wait for what any key has now: all data were replaced.
    pub fn note_all_ready(&mut self) {
        self.note_ready_in(|_| true);
    }
}

impl Keyspace {
    /// Removes a waiter whose wait is over, for a caller that holds nothing. If another thread holds a shard
    /// for long, its list keeps the waiter until the key changes.
    pub fn unblock(&self, waiter: &Waiter) {
        for key in &waiter.keys {
            let hash = self.hash(key);
            let shard = self.lock_soon(self.shard_of(hash));
            if shard.is_none() && waiter.waits_for_absence() {
                self.call_line(waiter.database, key);
            }
            if let Some(mut shard) = shard
                && shard.side_tables().is_some()
                && shard.side_tables_mut().blocked.remove(hash, key, waiter)
            {
                self.followers.blocked.change(&self.followers.interest, |count| *count -= 1);
                if !waiter.waits_for_absence() {
                    continue;
                }
                let side_tables = shard.side_tables();
                let line = side_tables.and_then(|it| it.blocked.line(hash, waiter.database, key));
                let has_guard = side_tables.is_some_and(|it| it.guards.has(hash, waiter.database, key));
                if line.is_none_or(|line| line.for_absence() == 0) && !has_guard {
                    self.followers.alarms.set(Guarded::key(waiter.database, key), None);
                }
                // Those behind it may join others that hold the lock, or take it with other ones.
                let mut first = line.into_iter().flat_map(first_to_join).flatten();
                if first.any(|first| first.attempt.joins().is_some())
                    || line.is_some_and(|line| line.that_want(Want::Locks).next().is_some())
                {
                    self.call_line(waiter.database, key);
                }
            }
        }
    }

    /// Has the clients that wait for a key served as soon as possible, though it has not changed.
    fn call_line(&self, database: usize, key: &[u8]) {
        self.followers.alarms.call(std::iter::once(Guarded::key(database, key)));
    }
}
