//! The clients that wait for keys which have nothing for them yet (BLPOP and the like).
//!
//! Clients that wait for the same key stand in one [`Line`]. A client that waits for several keys stands in
//! several lines. Only the first that waits for a kind of value asks the store, when its key has changed.
//! When it has taken something, and something is left, the next one is called: at once, so that what both
//! take travels in one batch. If the first leaves before the store has answered it, the next one is called,
//! too. So a push costs one request of one client, and nothing is overlooked.
//!
//! Each client looks once when it comes. If something is there, and other clients stand before it, it leaves
//! it to them. A client whose time is up before it has found its keys empty once takes what is there.
//!
//! Clients that only read (XREAD) take nothing from each other. A change calls all of them.
//!
//! Clients that wait for a lock stand in a line, too: their kind of value is none ([`ABSENT_KIND`]), and the
//! first one also looks when the lock expires. If the store still has the lock then, it looks again after
//! [`OVERDUE_GLANCE`], and then each time after twice as long: the clock here may be ahead of the store's by
//! a little, and etcd frees keys up to some seconds late.
//!
//! One that waits for several locks takes all of them at once (`ALSO`), and reserves none. Each knows which
//! of its keys the store has, as far as that is known here. While it lacks one, its places in the lines are
//! passed by, and the next ones are called. Whether it can take a permit of a lock, only its request can say:
//! it looks, and then knows those that it lacks until their rows change.
//!
//! A client that comes again (`AGAIN`) takes over the place of the attempt with the same token, whose
//! connection may be dead. If that attempt has got the lock meanwhile, here or at another front-end, the row
//! has the token, and the client is called.
//!
//! # Over front-ends
//!
//! Each front-end has lines of its own. When a key has changed, the first of each front-end asks, and the
//! store decides which one gets what is there. A front-end whose clients see others served for a second asks
//! for a turn ([`turns`](super::turns)). So the order holds at each front-end, and no client waits for ever.
//!
//! Where news may be lost, the front-end looks from time to time whether the keys are as they were when they
//! were seen last ([`seen`](Lines::seen)): one statement for up to a thousand keys. No client asks for that.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::news::Became;
use super::row::{Key, KeyMap, Live, Row, Tenure};
use super::turns::Turns;
use crate::clients;
use crate::keyspace::Token;
use crate::values::{ABSENT_KIND, SORTED_SET_KIND, STRING_KIND};
use crate::waiting::{Line, Ticket, Waits, Want};

/// How soon the first of a line looks again for a lock that should have expired.
const OVERDUE_GLANCE: Duration = Duration::from_millis(1);
/// The longest time until it looks again.
const OVERDUE_GLANCE_MAX: Duration = Duration::from_secs(1);
/// A longer string is no token, and its digest would take long under the mutex.
const TOKEN_BYTES_MAX: usize = 1024;
/// How long a client lets those before it take first from one of its keys.
const GRACE: Duration = Duration::from_secs(1);

/// The batches that have not ended.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OpenBatches {
    /// The one that forms.
    pub(super) forming: u64,
    /// The one that is under way.
    pub(super) under_way: Option<u64>,
}

/// What a client does next that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It asks the store.
    Look,
    /// It waits: until it is woken, or until this moment.
    Wait(Option<Instant>),
}

/// All lines of a front-end.
#[derive(Debug, Default)]
pub(super) struct Lines {
    clients: HashMap<Ticket, Client>,
    keys: KeyMap<Awaited>,
    /// The last ticket.
    last: Ticket,
}

/// What a client waits for.
#[derive(Clone, Copy, Debug)]
pub struct WaitsFor {
    /// The kind of the values.
    pub kind: u8,
    /// Whether it wants to take something, and not only to read.
    pub takes: bool,
    /// The kind of a value that it joins.
    pub joins: Option<u8>,
}

/// A lock for which clients wait here, as it was seen last.
#[derive(Debug)]
pub struct AwaitedLock {
    /// The key that is the lock.
    pub key: Key,
    /// Who has it, if one client does, and that is known.
    pub holder: Option<SeenHolder>,
    /// When it expires, if it does.
    pub expires: Option<Instant>,
    /// How many clients wait here.
    pub waiting: usize,
    /// The first of them, in their order.
    pub waits: Vec<LockWait>,
}

/// Who has a lock, by its row.
#[derive(Clone, Debug)]
pub struct SeenHolder {
    /// The token that the row has.
    pub token: Token,
    /// Which front-end and client has taken it, and its fencing number, if that is known.
    pub tenure: Option<Arc<Tenure>>,
}

/// A client that waits for a lock.
#[derive(Debug)]
pub struct LockWait {
    /// By what it is known.
    pub known: Known,
    /// Since when it waits.
    pub since: Instant,
}

/// A lock that a client cannot take which wants several at once.
#[derive(Debug)]
pub struct Lacked {
    /// The lock that it cannot take.
    pub key: Key,
    /// The version of the row that shows it.
    pub version: i64,
    /// When the client may take it, if no other one changes it, in milliseconds since 1970.
    pub until_ms: Option<u64>,
}

/// A client that waits.
#[derive(Debug)]
struct Client {
    keys: Arc<[Key]>,
    kind: u8,
    takes: bool,
    joins: Option<u8>,
    woken: Arc<Notify>,
    /// Whether it is to ask the store.
    is_called: bool,
    /// Whether it was called for what it is asking, or has asked last.
    was_called: bool,
    /// Whether it has asked the store, and does not know yet what came of it.
    is_looking: bool,
    /// The batch with which it takes something.
    travels_in: Option<u64>,
    /// When it is to ask the store again, after it has left something to others.
    again: Option<Instant>,
    /// By what it is known.
    known: Option<Known>,
    /// Since when it waits.
    since: Instant,
    /// Of one that takes several locks at once: those that it knows to be held, and until when at the latest.
    lacks: HashMap<Key, Option<Instant>>,
}

/// By what a client is known that waits for a lock.
#[derive(Clone, Debug)]
pub struct Known {
    /// The token of its attempt.
    pub token: Arc<[u8]>,
    /// Whether it takes over the place of an attempt with the same token, and gets a lock that the token has.
    pub comes_again: bool,
    /// What ends its wait, if another attempt takes over its place.
    pub client: Arc<clients::Client>,
}

/// A client that has entered its lines.
#[derive(Debug)]
pub(super) struct Stood {
    pub(super) ticket: Ticket,
    /// What wakes it.
    pub(super) woken: Arc<Notify>,
    /// The client whose place it has taken over.
    pub(super) before: Option<Arc<clients::Client>>,
}

/// A client's place in one line.
#[derive(Debug)]
struct Place {
    kind: u8,
    takes: bool,
    token: Option<Arc<[u8]>>,
    comes_again: bool,
    is_of_group: bool,
    joins: Option<u8>,
}

impl Waits for Place {
    fn kind(&self) -> u8 {
        self.kind
    }

    fn token(&self) -> Option<&[u8]> {
        self.token.as_deref()
    }
}

/// A key for which clients wait.
#[derive(Debug, Default)]
struct Awaited {
    line: Line<Place>,
    /// The kind and version of the row that was seen last, if they are known.
    seen: Option<(u8, i64)>,
    /// Who has the lock by that row, if one client does.
    holder: Option<SeenHolder>,
    /// The version of the row whose value was seen last.
    read: i64,
    /// When the lock expires for which clients wait.
    expires: Option<Instant>,
    /// How often it was looked for in vain after that moment, and when it is looked for again at the
    /// earliest.
    overdue: (u32, Option<Instant>),
    /// Clients that let others take first from this key, though they may be the first in another line.
    let_others: Vec<Ticket>,
}

impl Client {
    fn call(&mut self) {
        self.is_called = true;
        self.woken.notify_one();
    }

    /// Whether it takes several locks at once.
    fn is_group(&self) -> bool {
        self.kind == ABSENT_KIND && self.keys.len() > 1
    }

    /// Whether it wants permits of several locks at once.
    fn is_sharing_group(&self) -> bool {
        self.is_group() && self.joins.is_some()
    }

    /// Notes what is known of one of its locks: until when another client holds it, if one does.
    fn note(&mut self, key: &Key, held: Option<Option<Instant>>) {
        match held.filter(|_| self.is_group()) {
            Some(expires) => _ = self.lacks.insert(key.clone(), expires),
            None => _ = self.lacks.remove(key),
        }
    }

    /// Whether it lacks one of them.
    fn lacks_any(&self) -> bool {
        self.lacks.values().any(|expires| expires.is_none_or(|expires| expires > Instant::now()))
    }

    /// When the last lock expires that it lacks, if that is known of all of them.
    fn lacks_until(&self) -> Option<Instant> {
        self.lacks.values().copied().reduce(|one, other| Some(one?.max(other?))).flatten()
    }

    /// Whether what it takes is on its way.
    fn is_on_its_way(&self, open: OpenBatches) -> bool {
        self.travels_in.is_some_and(|batch| batch == open.forming || Some(batch) == open.under_way)
    }
}

impl Awaited {
    /// The first of those that take something of a kind, and are not doing so already. One that takes several
    /// locks at once, and lacks one of them, reserves none.
    fn next(&self, kind: u8, clients: &HashMap<Ticket, Client>, open: OpenBatches) -> Option<Ticket> {
        let mut takers = self.line.all().filter(|(_, place)| place.takes && place.kind == kind);
        let is_next = |one: &Client| !one.is_on_its_way(open) && !one.lacks_any();
        takers.find_map(|(ticket, _)| Some(ticket).filter(|ticket| clients.get(ticket).is_some_and(is_next)))
    }

    /// Calls the next client that waits for this kind of value. Permits of a lock are for those in line for
    /// the lock: one that wants another permit, or all of it, where the last permit was given back.
    fn call(&self, kind: u8, clients: &mut HashMap<Ticket, Client>, open: OpenBatches) {
        let for_lock = (kind == SORTED_SET_KIND).then_some(ABSENT_KIND);
        for kind in [Some(kind), for_lock].into_iter().flatten() {
            if let Some(client) = self.next(kind, clients, open).and_then(|next| clients.get_mut(&next)) {
                client.call();
            }
        }
    }

    /// Whether the key has permits, as far as is known.
    fn may_have_permits(&self) -> bool {
        self.seen.is_none_or(|(kind, _)| kind == SORTED_SET_KIND)
    }

    /// Has the clients that take several locks at once know whether this one is held, and until when. One
    /// that comes again may hold it itself: if that is not known, it looks. So does one that may join those
    /// who hold it, unless the row is as it was.
    fn note(
        &self,
        key: &Key,
        (kind, is_as_before): (u8, bool),
        value: Option<&[u8]>,
        clients: &mut HashMap<Ticket, Client>,
    ) {
        let held = (kind != ABSENT_KIND).then_some(self.expires);
        for (ticket, place) in self.line.all().filter(|(_, place)| place.is_of_group) {
            let may_join = place.joins == Some(kind);
            let is_own = place.comes_again && value.is_none_or(|value| place.token.as_deref() == Some(value));
            if let Some(client) = clients.get_mut(&ticket).filter(|_| !may_join || !is_as_before) {
                client.note(key, held.filter(|_| !is_own && !may_join));
            }
        }
    }

    /// Has the clients that want permits of several locks look at this one anew.
    fn open_to_groups(&self, key: &Key, clients: &mut HashMap<Ticket, Client>) {
        for (ticket, _) in self.line.all().filter(|(_, place)| place.is_of_group && place.joins.is_some()) {
            clients.entry(ticket).and_modify(|client| client.note(key, None));
        }
    }

    /// Calls those that only read, and those that let others take first: the key is not as it was.
    fn call_others(&mut self, calls_readers: bool, clients: &mut HashMap<Ticket, Client>) {
        let readers = self.line.all().filter(|(_, place)| calls_readers && !place.takes);
        for ticket in readers.map(|(ticket, _)| ticket).chain(self.let_others.drain(..)) {
            if let Some(client) = clients.get_mut(&ticket) {
                client.call();
            }
        }
    }

    /// Notes that a client looks for a lock that should have expired.
    fn is_overdue(&mut self, now: Instant) {
        let (times, _) = self.overdue;
        let pause = OVERDUE_GLANCE.saturating_mul(1 << times.min(10)).min(OVERDUE_GLANCE_MAX);
        (self.expires, self.overdue) = (None, (times + 1, Some(now + pause)));
    }

    /// Calls the client whose token a lock has: an attempt of its own has got it, whose reply was lost. If
    /// the token is not known, the first client that comes again reads it.
    fn call_holder(&mut self, version: i64, token: Option<&[u8]>, clients: &mut HashMap<Ticket, Client>) {
        if self.read == version {
            return;
        }
        let holder = match token {
            Some(token) => {
                self.read = version;
                self.line.with_token(token).find(|(_, place)| place.comes_again)
            }
            None => self.line.all().find(|(_, place)| place.comes_again),
        };
        if let Some(client) = holder.and_then(|(ticket, _)| clients.get_mut(&ticket)) {
            client.call();
        }
    }

    /// The key has changed, and is not known as it is now.
    fn changed(&mut self, key: &Key, clients: &mut HashMap<Ticket, Client>, open: OpenBatches) {
        (self.seen, self.holder) = (None, None);
        self.note(key, (ABSENT_KIND, false), None, clients);
        let mut kinds: Vec<u8> = Vec::new();
        for (_, place) in self.line.all() {
            if place.takes && !kinds.contains(&place.kind) {
                kinds.push(place.kind);
            }
        }
        kinds.into_iter().for_each(|kind| self.call(kind, clients, open));
        self.call_others(true, clients);
    }

    /// Whether no client waits any more that takes something of a kind.
    fn has_no_takers(&self, kind: u8) -> bool {
        !self.line.all().any(|(_, place)| place.takes && place.kind == kind)
    }
}

impl Lines {
    /// Whether no client waits.
    pub(super) fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// Places a client at the end of the lines of its keys, or where one with its token stands.
    pub(super) fn stand(&mut self, keys: Arc<[Key]>, wants: WaitsFor, known: Option<Known>) -> Stood {
        let WaitsFor { kind, takes, joins } = wants;
        let comes_again = known.as_ref().is_some_and(|known| known.comes_again);
        let before = known.as_ref().filter(|known| known.comes_again);
        let before = before.and_then(|known| self.place_of(keys.first()?, &known.token));
        let ticket = before.unwrap_or_else(|| {
            self.last += 1;
            self.last
        });
        let before = self.clients.remove(&ticket);
        // It may have waited for other keys.
        for key in before.iter().flat_map(|before| before.keys.iter()).filter(|key| !keys.contains(key)) {
            let Some(awaited) = self.keys.get_mut(key) else { continue };
            awaited.line.leave(ticket);
            if awaited.line.is_empty() {
                self.keys.remove(key);
            }
        }
        let is_of_group = kind == ABSENT_KIND && keys.len() > 1;
        for key in keys.iter() {
            let token = known.as_ref().map(|known| Arc::clone(&known.token));
            let place = Place { kind, takes, token, comes_again, is_of_group, joins };
            self.keys.entry(key.clone()).or_default().line.enter(ticket, place);
        }
        let woken = Arc::new(Notify::new());
        let client = Client {
            keys,
            kind,
            takes,
            joins,
            woken: Arc::clone(&woken),
            is_called: false,
            was_called: false,
            is_looking: false,
            travels_in: None,
            again: None,
            known,
            since: Instant::now(),
            lacks: HashMap::new(),
        };
        self.clients.insert(ticket, client);
        if before.as_ref().is_some_and(|before| before.is_called || before.is_looking) {
            self.clients.entry(ticket).and_modify(Client::call);
        }
        Stood { ticket, woken, before: before.and_then(|before| Some(before.known?.client)) }
    }

    /// The place of the first client that waits for a key with a token.
    fn place_of(&self, key: &Key, token: &[u8]) -> Option<Ticket> {
        self.keys.get(key)?.line.with_token(token).next().map(|(ticket, _)| ticket)
    }

    /// Whether a ticket still belongs to the client that is woken by this.
    pub(super) fn is_place_of(&self, ticket: Ticket, woken: &Arc<Notify>) -> bool {
        self.clients.get(&ticket).is_some_and(|client| Arc::ptr_eq(&client.woken, woken))
    }

    /// Removes a client from its lines. If there may have been something for it, the next one asks.
    pub(super) fn leave(&mut self, ticket: Ticket, turns: &mut Turns, open: OpenBatches) {
        let Lines { clients, keys, .. } = self;
        let Some(left) = clients.remove(&ticket) else { return };
        for key in left.keys.iter() {
            let Some(awaited) = keys.get_mut(key) else { continue };
            awaited.line.leave(ticket);
            if left.takes && awaited.has_no_takers(left.kind) {
                turns.served(key, left.kind);
            }
            if awaited.line.is_empty() {
                keys.remove(key);
                continue;
            }
            awaited.call_others(false, clients);
            if left.kind == ABSENT_KIND && !left.is_group() {
                awaited.open_to_groups(key, clients);
            }
            // One behind it may get a permit that it was not to have.
            let is_for_next = left.kind == ABSENT_KIND && awaited.may_have_permits();
            if left.takes && (left.is_called || left.is_looking || left.again.is_some() || is_for_next) {
                awaited.call(left.kind, clients, open);
            } else if let Some(next) =
                awaited.next(left.kind, clients, open).and_then(|next| clients.get(&next))
            {
                // It sees to the end of the lock's time from now on.
                next.woken.notify_one();
            }
        }
    }

    /// Notes that a key has changed, and is not known as it is now.
    pub(super) fn changed(&mut self, key: &Key, open: OpenBatches) {
        if let Some(awaited) = self.keys.get_mut(key) {
            awaited.changed(key, &mut self.clients, open);
        }
    }

    /// Notes that all keys may have changed.
    pub(super) fn all_changed(&mut self, open: OpenBatches) {
        self.keys.iter_mut().for_each(|(key, awaited)| awaited.changed(key, &mut self.clients, open));
    }

    /// Notes that the turn of another front-end is over.
    pub(super) fn go_on(&mut self, key: &Key, kind: u8, open: OpenBatches) {
        if let Some(awaited) = self.keys.get(key) {
            awaited.call(kind, &mut self.clients, open);
        }
    }

    /// The keys for which clients wait, with the versions of their rows: 0 for an absent row, and -1 if it is
    /// not known.
    #[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "etcd itself sends the changes of keys"))]
    pub(super) fn seen(&self) -> impl Iterator<Item = (&Key, i64)> {
        self.keys.iter().map(|(key, awaited)| (key, awaited.seen.map_or(Row::UNREAD, |(_, version)| version)))
    }

    /// Notes what a key is in the store, when it expires, if it does, and its value, if that is known.
    /// `is_written` says that it was just written.
    pub(super) fn saw(
        &mut self,
        key: &Key,
        (became, expires): (Became, Option<Instant>),
        value: Option<&[u8]>,
        is_written: bool,
        open: OpenBatches,
    ) {
        let Lines { clients, keys, .. } = self;
        let Some(awaited) = keys.get_mut(key) else { return };
        let Became { kind, version, .. } = became;
        let before = awaited.seen.replace((kind, version));
        if before != Some((kind, version)) {
            (awaited.overdue, awaited.holder) = ((0, None), None);
        }
        awaited.expires = expires.max(expires.and(awaited.overdue.1));
        let is_as_before = before == Some((kind, version)) && !is_written;
        awaited.note(key, (kind, is_as_before), value, clients);
        if kind != ABSENT_KIND && (value.is_some() || before != Some((kind, version))) {
            awaited.call_holder(version, value, clients);
        }
        if is_as_before {
            return;
        }
        awaited.call(kind, clients, open);
        // Where nothing is known of before, those that read know of no other row either.
        awaited.call_others(is_written || before.is_some(), clients);
    }

    /// Notes who has a lock, by the row that was just seen.
    pub(super) fn saw_holder(&mut self, key: &Key, row: &Row) {
        let Some(awaited) = self.keys.get_mut(key) else { return };
        let is_token = |live: &&Live| live.kind == STRING_KIND && live.value.len() <= TOKEN_BYTES_MAX;
        let live = row.live.as_ref().filter(|live| live.is_lock).filter(is_token);
        awaited.holder = live.map(|live| {
            let before = awaited.holder.take().and_then(|holder| holder.tenure);
            let tenure = row.tenure.as_ref().map(Arc::clone).or(before);
            SeenHolder { token: Token::of(&live.value), tenure }
        });
    }

    /// The locks for which clients wait, with so many of these clients at most in all.
    pub(super) fn awaited_locks(&self, mut waits_max: usize) -> Vec<AwaitedLock> {
        let awaited = self.keys.iter().filter(|(_, awaited)| awaited.line.for_absence() > 0);
        let locks = awaited.map(|(key, awaited)| {
            let waiting = self.waiting_at(awaited).count();
            let first = self.waiting_at(awaited).take(waits_max);
            let waits = first.map(|(known, since)| LockWait { known: known.clone(), since });
            let waits: Vec<LockWait> = waits.collect();
            waits_max -= waits.len();
            let (key, holder) = (key.clone(), awaited.holder.clone());
            AwaitedLock { key, holder, expires: awaited.expires, waiting, waits }
        });
        locks.filter(|lock| lock.waiting > 0).collect()
    }

    /// How many clients wait for a lock, and the first of them.
    pub(super) fn waiting_for(&self, key: &Key, shown: usize) -> (usize, Vec<Arc<clients::Client>>) {
        let waiting = || self.keys.get(key).into_iter().flat_map(|awaited| self.waiting_at(awaited));
        let first = waiting().take(shown).map(|(known, _)| Arc::clone(&known.client)).collect();
        (waiting().count(), first)
    }

    /// Those that wait for a lock, in their order, and since when they do.
    fn waiting_at(&self, awaited: &Awaited) -> impl Iterator<Item = (&Known, Instant)> {
        let clients = awaited.line.that_want(Want::Lock).filter_map(|(ticket, _)| self.clients.get(&ticket));
        clients.filter_map(|client| Some((client.known.as_ref()?, client.since)))
    }

    /// Calls the clients that wait for a key and take nothing: what was seen of it last may be outdated.
    pub(super) fn call_readers(&mut self, key: &Key) {
        if let Some(awaited) = self.keys.get_mut(key) {
            awaited.call_others(true, &mut self.clients);
        }
    }

    /// What a client does now that waits.
    pub(super) fn next_step(&mut self, ticket: Ticket, open: OpenBatches, now: Instant) -> Step {
        let Lines { clients, keys, .. } = self;
        let Some(client) = clients.get_mut(&ticket) else { return Step::Look };
        if client.again.take_if(|again| *again <= now).is_some() {
            client.is_called = true;
        }
        if client.is_called {
            return Step::Look;
        }
        let mut until = client.again;
        let awaited = Arc::clone(&client.keys);
        if client.is_group() {
            let Some(expires) = client.lacks_until() else { return Step::Wait(until) };
            if expires > now {
                return Step::Wait(Some(until.map_or(expires, |until| until.min(expires))));
            }
            for key in std::mem::take(&mut client.lacks).into_keys() {
                keys.entry(key).and_modify(|awaited| awaited.is_overdue(now));
            }
            return Step::Look;
        }
        for key in awaited.iter().filter(|_| client_waits_for_absence(clients, ticket)) {
            let Some(awaited) = keys.get_mut(key) else { continue };
            let Some(expires) = awaited.expires else { continue };
            if awaited.next(ABSENT_KIND, clients, open) != Some(ticket) {
                continue;
            }
            if expires <= now {
                awaited.is_overdue(now);
                return Step::Look;
            }
            until = Some(until.map_or(expires, |until| until.min(expires)));
        }
        Step::Wait(until)
    }

    /// Whether a client may take something from a key that seems to have it. Otherwise it goes on waiting,
    /// and the client whose turn it is is called.
    pub(super) fn may_take(
        &mut self,
        ticket: Ticket,
        key: &Key,
        turns: &mut Turns,
        open: OpenBatches,
        now: Instant,
    ) -> bool {
        let Lines { clients, keys, .. } = self;
        let Some(client) = clients.get_mut(&ticket) else { return true };
        (client.is_looking, client.travels_in) = (false, None);
        let (kind, has_others, is_sharing) = (client.kind, client.keys.len() > 1, client.is_sharing_group());
        if is_sharing {
            // It has found that it can take all.
            client.lacks.clear();
        }
        let Some(awaited) = keys.get_mut(key) else { return true };
        let is_next = awaited.next(kind, clients, open) == Some(ticket);
        let left_until = is_next.then(|| turns.left_until(key, kind, now)).flatten();
        if is_next && left_until.is_none() {
            return true;
        }
        if !is_next {
            awaited.call(kind, clients, open);
        }
        if let Some(client) = clients.get_mut(&ticket) {
            (client.is_called, client.was_called) = (false, false);
            client.again = left_until.or_else(|| has_others.then(|| now + GRACE));
            if !is_next && has_others && !awaited.let_others.contains(&ticket) {
                awaited.let_others.push(ticket);
            }
            if !is_next && is_sharing {
                client.lacks.insert(key.clone(), None);
                self.pass_on(ticket, open);
            }
        }
        false
    }

    /// Notes that a client asks the store now.
    pub(super) fn asks(&mut self, ticket: Ticket) {
        if let Some(client) = self.clients.get_mut(&ticket) {
            client.was_called |= client.is_called;
            (client.is_looking, client.travels_in, client.is_called, client.again) =
                (true, None, false, None);
        }
    }

    /// Notes that a client takes something from a key with this batch, and whether it leaves something there.
    pub(super) fn takes(
        &mut self,
        (ticket, batch): (Ticket, u64),
        (key, leaves_some): (&Key, bool),
        open: OpenBatches,
    ) {
        let Lines { clients, keys, .. } = self;
        let Some(client) = clients.get_mut(&ticket) else { return };
        client.travels_in = Some(batch);
        if client.is_group() {
            return;
        }
        let (kind, own) = (client.kind, Arc::clone(&client.keys));
        // It may have been called for what is in another of its keys.
        for other in own.iter() {
            let Some(awaited) = keys.get(other) else { continue };
            let has_some = match other == key {
                true => leaves_some,
                false => awaited.seen.is_none_or(|(has, _)| has == kind),
            };
            if has_some {
                awaited.call(kind, clients, open);
            }
        }
    }

    /// Notes which locks a client lacks that wants several at once, as far as their rows are still as they
    /// were when it looked. `now` is the moment, here and in milliseconds since 1970.
    pub(super) fn lacks(&mut self, ticket: Ticket, lacked: &[Lacked], now: (Instant, u64)) {
        let Some(client) = self.clients.get_mut(&ticket) else { return };
        for Lacked { key, version, until_ms } in lacked {
            let awaited = self.keys.get(key);
            let is_as_seen = |awaited: &&Awaited| awaited.seen.is_some_and(|(_, seen)| seen == *version);
            let Some(awaited) = awaited.filter(is_as_seen) else { continue };
            let left_ms = until_ms.map(|until_ms| until_ms.saturating_sub(now.1));
            let until = left_ms.and_then(|left_ms| now.0.checked_add(Duration::from_millis(left_ms)));
            client.note(key, Some(until.max(until.and(awaited.overdue.1))));
        }
    }

    /// Notes that a client knows what came of its question.
    pub(super) fn has_looked(
        &mut self,
        ticket: Ticket,
        found_nothing: bool,
        turns: &mut Turns,
        open: OpenBatches,
        now: Instant,
    ) {
        let Some(client) = self.clients.get_mut(&ticket) else { return };
        (client.is_looking, client.travels_in) = (false, None);
        let was_called = std::mem::take(&mut client.was_called);
        if client.is_group() && found_nothing {
            return self.pass_on(ticket, open);
        }
        for key in client.keys.iter().filter(|_| client.takes) {
            match found_nothing {
                true if was_called => turns.beaten(key, client.kind, now),
                true => {}
                false => turns.served(key, client.kind),
            }
        }
    }

    /// Calls the next ones for the locks that are free, or have permits: a client that lacks another one
    /// takes none. No order between front-ends is for such a client: it asks for no turn.
    fn pass_on(&mut self, ticket: Ticket, open: OpenBatches) {
        let Lines { clients, keys, .. } = self;
        let Some(own) = clients.get(&ticket).map(|client| Arc::clone(&client.keys)) else { return };
        for key in own.iter() {
            let Some(awaited) = keys.get(key) else { continue };
            let is_open = |kind: &u8| matches!(*kind, ABSENT_KIND | SORTED_SET_KIND);
            let kind = awaited.seen.map(|(kind, _)| kind).filter(is_open);
            if let Some(kind) = kind.filter(|_| awaited.next(ABSENT_KIND, clients, open) != Some(ticket)) {
                awaited.call(kind, clients, open);
            }
        }
    }
}

/// Whether a client waits until a key is absent.
fn client_waits_for_absence(clients: &HashMap<Ticket, Client>, ticket: Ticket) -> bool {
    clients.get(&ticket).is_some_and(|client| client.kind == ABSENT_KIND)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::news::News;

    const LIST: u8 = 1;
    const FOR_LIST: WaitsFor = WaitsFor { kind: LIST, takes: true, joins: None };
    const FOR_LOCK: WaitsFor = WaitsFor { kind: ABSENT_KIND, takes: true, joins: None };
    const FOR_PERMIT: WaitsFor = WaitsFor { joins: Some(SORTED_SET_KIND), ..FOR_LOCK };
    const IDLE: OpenBatches = OpenBatches { forming: 3, under_way: None };

    fn row(version: i64, kind: u8) -> Became {
        Became { kind, version, expires_at_ms: None }
    }

    /// The lines of a front-end with clients that wait for these keys, who came in this order.
    fn lines(clients: &[&[&str]]) -> (Lines, Vec<Ticket>) {
        let mut lines = Lines::default();
        let tickets = clients.iter().map(|keys| {
            let keys = keys.iter().map(|key| Key::new(0, key.as_bytes())).collect();
            lines.stand(keys, FOR_LIST, None).ticket
        });
        let tickets = tickets.collect();
        (lines, tickets)
    }

    fn looks(lines: &mut Lines, ticket: Ticket, open: OpenBatches) -> bool {
        lines.next_step(ticket, open, Instant::now()) == Step::Look
    }

    #[test]
    fn the_first_is_called_and_the_next_one_as_soon_as_it_takes_something_and_leaves_some() {
        let (now, turns) = (Instant::now(), &mut Turns::default());
        let (mut lines, tickets) = lines(&[&["k"], &["k"], &["k"]]);
        let key = Key::new(0, b"k");
        let called = |lines: &mut Lines, open| {
            let called = tickets.iter().map(|ticket| looks(lines, *ticket, open));
            called.collect::<Vec<_>>()
        };
        assert_eq!(called(&mut lines, IDLE), [false, false, false]);
        lines.saw(&key, (row(1, LIST + 1), None), None, true, IDLE);
        assert_eq!(called(&mut lines, IDLE), [false, false, false], "that is of another type");
        lines.saw(&key, (row(2, LIST), None), None, true, IDLE);
        assert_eq!(called(&mut lines, IDLE), [true, false, false]);
        assert!(!lines.may_take(tickets[1], &key, turns, IDLE, now));
        assert!(lines.may_take(tickets[0], &key, turns, IDLE, now));
        lines.asks(tickets[0]);
        assert_eq!(called(&mut lines, IDLE), [false, false, false]);
        lines.takes((tickets[0], IDLE.forming), (&key, true), IDLE);
        assert_eq!(called(&mut lines, IDLE), [false, true, false]);
        assert!(lines.may_take(tickets[1], &key, turns, IDLE, now));
        // The store has not done it: the first is the first again.
        let later = OpenBatches { forming: 4, under_way: None };
        assert!(!lines.may_take(tickets[1], &key, turns, later, now));
        assert_eq!(called(&mut lines, later), [true, false, false]);
        // It leaves before it knows what came of it.
        lines.asks(tickets[0]);
        lines.leave(tickets[0], turns, later);
        assert!(looks(&mut lines, tickets[1], later));
        lines.asks(tickets[1]);
        lines.has_looked(tickets[1], true, turns, IDLE, now);
        lines.leave(tickets[1], turns, later);
        assert!(!looks(&mut lines, tickets[2], later), "nothing was there");
        assert_eq!(lines.seen().collect::<Vec<_>>(), [(&key, 2)]);
        lines.changed(&key, later);
        assert_eq!(lines.seen().collect::<Vec<_>>(), [(&key, Row::UNREAD)]);
        assert!(looks(&mut lines, tickets[2], later));
        lines.leave(tickets[2], turns, later);
        assert!(lines.is_empty() && lines.keys.is_empty());
    }

    #[test]
    fn a_lock_that_expires_late_is_looked_for_less_and_less_often() {
        let (mut now, turns) = (Instant::now(), &mut Turns::default());
        let mut lines = Lines::default();
        let key = Key::new(0, b"k");
        let ticket = lines.stand([key.clone()].into(), FOR_LOCK, None).ticket;
        let (expires, began) = (now + Duration::from_millis(20), now);
        lines.saw(&key, (row(1, 0), Some(expires)), None, false, IDLE);
        let mut looks = Vec::new();
        while now < began + Duration::from_secs(3) {
            match lines.next_step(ticket, IDLE, now) {
                Step::Look => {
                    looks.push(now);
                    lines.asks(ticket);
                    lines.saw(&key, (row(1, 0), Some(expires)), None, false, IDLE);
                    lines.has_looked(ticket, true, turns, IDLE, now);
                }
                Step::Wait(until) => now = until.expect("a moment"),
            }
        }
        assert_eq!(looks[..2], [expires, expires + OVERDUE_GLANCE]);
        assert!(looks.len() < 15, "{looks:?}");
        // Another lock has a moment of its own.
        let expires = now + Duration::from_millis(5);
        lines.saw(&key, (row(2, 0), Some(expires)), None, false, IDLE);
        assert_eq!(lines.next_step(ticket, IDLE, now), Step::Wait(Some(expires)));
    }

    #[test]
    fn one_of_several_keys_waits_until_those_before_it_have_taken_what_it_would_get_first() {
        let (now, turns) = (Instant::now(), &mut Turns::default());
        let (mut lines, tickets) = lines(&[&["a"], &["a", "b"]]);
        let (a, b) = (Key::new(0, b"a"), Key::new(0, b"b"));
        lines.saw(&b, (row(1, LIST), None), None, true, IDLE);
        assert!(looks(&mut lines, tickets[1], IDLE));
        // It finds that its first key has something, too.
        assert!(!lines.may_take(tickets[1], &a, turns, IDLE, now));
        assert!(!looks(&mut lines, tickets[1], IDLE));
        assert!(looks(&mut lines, tickets[0], IDLE));
        lines.saw(&a, (Became::of(&Row::default()), None), None, true, IDLE);
        assert!(looks(&mut lines, tickets[1], IDLE));
        assert!(lines.may_take(tickets[1], &b, turns, IDLE, now));
    }

    #[test]
    fn one_that_takes_several_locks_at_once_is_passed_by_while_it_lacks_one_and_called_for_the_last() {
        let (now, turns) = (Instant::now(), &mut Turns::default());
        let mut lines = Lines::default();
        let [a, b] = [b"a", b"b"].map(|name| Key::new(0, name));
        let [group, single] = [&[a.clone(), b.clone()][..], std::slice::from_ref(&b)]
            .map(|keys| lines.stand(keys.into(), FOR_LOCK, None).ticket);
        let (absent, held) = (Became::of(&Row::default()), row(1, LIST));
        lines.saw(&a, (held, None), None, false, IDLE);
        lines.saw(&b, (held, None), None, false, IDLE);
        lines.saw(&b, (absent, None), None, true, IDLE);
        assert!(!looks(&mut lines, group, IDLE) && looks(&mut lines, single, IDLE));
        assert!(lines.may_take(single, &b, turns, IDLE, now));
        lines.saw(&b, (held, None), None, true, IDLE);
        lines.saw(&a, (absent, None), None, true, IDLE);
        assert!(!looks(&mut lines, group, IDLE), "it lacks the other one now");
        lines.saw(&b, (absent, None), None, true, IDLE);
        assert!(looks(&mut lines, group, IDLE));
        // Where nothing is known, it looks, and the next one is called when it has found nothing.
        lines.asks(single);
        lines.has_looked(single, true, turns, IDLE, now);
        lines.changed(&a, IDLE);
        assert!(!lines.may_take(single, &b, turns, IDLE, now));
        lines.asks(group);
        lines.saw(&a, (held, None), None, false, IDLE);
        lines.has_looked(group, true, turns, IDLE, now);
        assert!(looks(&mut lines, single, IDLE));
        // Of two that are held, it waits for the last to end.
        let [soon, later] = [20, 50].map(|ms| now + Duration::from_millis(ms));
        lines.saw(&a, (row(2, LIST), Some(soon)), None, true, IDLE);
        lines.saw(&b, (row(2, LIST), Some(later)), None, true, IDLE);
        assert_eq!(lines.next_step(group, IDLE, now), Step::Wait(Some(later)));
        assert_eq!(lines.next_step(group, IDLE, later), Step::Look);
        for ticket in [group, single] {
            lines.leave(ticket, turns, IDLE);
        }
        assert!(lines.is_empty() && lines.keys.is_empty());
    }

    #[test]
    fn one_that_wants_permits_of_several_locks_looks_when_one_changes_and_reserves_none() {
        let (now, turns) = (Instant::now(), &mut Turns::default());
        let mut lines = Lines::default();
        let [a, b] = [b"a", b"b"].map(|name| Key::new(0, name));
        let group = lines.stand([a.clone(), b.clone()].into(), FOR_PERMIT, None).ticket;
        let single = lines.stand([b.clone()].into(), FOR_PERMIT, None).ticket;
        let (absent, permits) = (Became::of(&Row::default()), |version| row(version, SORTED_SET_KIND));
        let lacked = |key: &Key, version, until_ms| Lacked { key: key.clone(), version, until_ms };
        lines.saw(&a, (permits(1), None), None, false, IDLE);
        lines.saw(&b, (absent, None), None, false, IDLE);
        assert!(looks(&mut lines, group, IDLE) && !looks(&mut lines, single, IDLE));
        // It finds that it can have no permit of the first one, and the next one has the other.
        lines.asks(group);
        lines.saw(&a, (permits(1), None), None, false, IDLE);
        lines.lacks(group, &[lacked(&a, 1, Some(50))], (now, 20));
        lines.has_looked(group, true, turns, IDLE, now);
        assert_eq!(lines.next_step(group, IDLE, now), Step::Wait(Some(now + Duration::from_millis(30))));
        assert!(looks(&mut lines, single, IDLE) && lines.may_take(single, &b, turns, IDLE, now));
        lines.saw(&b, (permits(1), None), None, true, IDLE);
        assert!(!looks(&mut lines, group, IDLE), "it lacks the first one, as far as it knows");
        // A row that has changed since it looked says nothing of what it lacks.
        lines.saw(&a, (permits(2), None), None, true, IDLE);
        assert!(looks(&mut lines, group, IDLE));
        lines.asks(group);
        lines.saw(&a, (permits(3), None), None, true, IDLE);
        lines.lacks(group, &[lacked(&a, 2, None)], (now, 20));
        lines.has_looked(group, true, turns, IDLE, now);
        assert!(looks(&mut lines, group, IDLE));
        // One before it that waits for the second lock has its turn; those behind it have the first one.
        lines.leave(group, turns, IDLE);
        let late = lines.stand([a.clone(), b.clone()].into(), FOR_PERMIT, None).ticket;
        let last = lines.stand([a.clone()].into(), FOR_PERMIT, None).ticket;
        lines.saw(&a, (permits(3), None), None, false, IDLE);
        assert!(lines.may_take(late, &a, turns, IDLE, now));
        assert!(!lines.may_take(late, &b, turns, IDLE, now));
        assert!(looks(&mut lines, last, IDLE) && lines.may_take(last, &a, turns, IDLE, now));
        lines.leave(single, turns, IDLE);
        assert!(looks(&mut lines, late, IDLE) && lines.may_take(late, &b, turns, IDLE, now));
        for ticket in [late, last] {
            lines.leave(ticket, turns, IDLE);
        }
        assert!(lines.is_empty() && lines.keys.is_empty());
    }

    #[test]
    fn what_a_client_leaves_to_another_front_end_goes_to_the_next_one_if_it_gives_up() {
        let (now, turns) = (Instant::now(), &mut Turns::default());
        let (mut lines, tickets) = lines(&[&["k"], &["k"]]);
        let key = Key::new(0, b"k");
        turns.hear(7, (&key, LIST), false);
        lines.changed(&key, IDLE);
        assert!(!lines.may_take(tickets[0], &key, turns, IDLE, now));
        let Step::Wait(Some(until)) = lines.next_step(tickets[0], IDLE, now) else { panic!("it looks") };
        assert!(until > now && lines.next_step(tickets[0], IDLE, until) == Step::Look);
        // It is passed over, as it does not come.
        assert!(lines.may_take(tickets[0], &key, turns, IDLE, until));
        turns.hear(7, (&key, LIST), false);
        assert!(!lines.may_take(tickets[0], &key, turns, IDLE, now));
        lines.leave(tickets[0], turns, IDLE);
        assert!(looks(&mut lines, tickets[1], IDLE));
        assert!(!lines.may_take(tickets[1], &key, turns, IDLE, now));
        turns.hear(7, (&key, LIST), true);
        lines.go_on(&key, LIST, IDLE);
        assert!(looks(&mut lines, tickets[1], IDLE));
        assert!(lines.may_take(tickets[1], &key, turns, IDLE, now));
    }

    #[test]
    fn a_front_end_asks_for_a_turn_when_its_clients_have_seen_others_served_for_a_second() {
        let (now, turns) = (Instant::now(), &mut Turns::default());
        let (mut lines, tickets) = lines(&[&["k"], &["k"]]);
        let key = Key::new(0, b"k");
        let mut look = |found_nothing, now| {
            lines.changed(&key, IDLE);
            lines.asks(tickets[0]);
            lines.has_looked(tickets[0], found_nothing, turns, IDLE, now);
            turns.take_news()
        };
        let second = Duration::from_secs(1);
        let asks = |is_over| News::Asks { key: key.clone(), purpose: LIST, is_over };
        assert_eq!(look(true, now), []);
        assert_eq!(look(true, now + second / 2), []);
        assert_eq!(look(true, now + second), [asks(false)]);
        assert_eq!(look(true, now + second), [], "it has just asked");
        assert_eq!(look(false, now + second), [asks(true)]);
        assert_eq!(look(true, now + second * 2), []);
        assert_eq!(look(true, now + second * 3), [asks(false)]);
        // None of them waits any more.
        tickets.iter().for_each(|ticket| lines.leave(*ticket, turns, IDLE));
        assert_eq!(turns.take_news(), [asks(true)]);
    }
}
