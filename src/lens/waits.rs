//! Clients that wait for locks in line, and the cycles among them.
//!
//! A client that waits does nothing else, so it releases nothing, either. If each client of a cycle waits for
//! a lock that the next one holds, none goes on. A client stands among those who wait from the moment at
//! which it has its place in line until it leaves the line; each knows its place, which says whether the wait
//! has ended meanwhile. So an edge from a client to a lock is never older than the wait. Who holds a lock,
//! the locks themselves know.
//!
//! A holder waits if its connection does, or a client with its token. But a connection of a pool is used by
//! one task after the other, so it may wait for another task than the one that has taken the lock: what it
//! has taken is not held by what waits, once it has been seen that another connection releases its locks.
//! And a token by which several clients wait at a time is one of many tasks.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::clients::Who;
use crate::keyspace::{Token, Waiter};

/// The clients are kept in this number of parts, each behind a mutex of its own.
const PARTS: usize = 16;
/// Locks at which the search for one cycle looks, at most.
pub(super) const SEARCHED_MAX: usize = 512;
/// Keys of one wait that count. No lock needs more.
const KEYS_MAX: usize = 128;

/// How the names of the lists begin by which python-redis-lock wakes the next client.
const SIGNAL: &[u8] = b"lock-signal:";

/// A key that may be a lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    /// The hash of the key.
    pub(super) hash: u64,
    /// The number of its database.
    pub(crate) database: usize,
    /// The key that may be a lock.
    pub(crate) key: Box<[u8]>,
}

/// A client that waits for one lock, or for several.
#[derive(Debug)]
pub(crate) struct Wait {
    /// The client that waits.
    pub(crate) who: Arc<Who>,
    /// The token with which it takes the lock, if its request shows it.
    pub(crate) token: Option<Token>,
    /// Since when it waits, in milliseconds since 1970.
    pub(crate) since_ms: u64,
    /// The locks for which it waits.
    pub(crate) places: Box<[Place]>,
    waiter: Arc<Waiter>,
}

/// The client that holds a lock.
#[derive(Clone, Debug)]
pub(super) struct Holder {
    pub(super) who: Arc<Who>,
    pub(super) token: Token,
    pub(super) fence: u64,
    /// Since when it holds the lock, in milliseconds since 1970.
    pub(super) since_ms: u64,
    /// Whether its connection has gone.
    pub(super) has_left: bool,
}

/// A part of a cycle: a client, and the lock for which it waits; the next one in the cycle holds it.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    /// The client that waits.
    pub(crate) wait: Arc<Wait>,
    /// The lock for which it waits.
    pub(crate) place: Place,
    /// The number of its holder.
    pub(super) fence: u64,
}

/// The clients that wait.
#[derive(Debug, Default)]
pub(super) struct Waits(OnceLock<Box<[Mutex<Part>; PARTS]>>);

#[derive(Debug, Default)]
struct Part {
    /// By the numbers of the clients.
    by_client: HashMap<u64, Arc<Wait>>,
    /// By the digests of their tokens, and then by their numbers.
    by_token: BTreeMap<(u64, u64), Arc<Wait>>,
}

impl Wait {
    /// The wait of a client that has its place in line, if it is one for locks. `hash` returns the hash of a
    /// key.
    pub(crate) fn new(
        who: Arc<Who>,
        waiter: &Arc<Waiter>,
        since_ms: u64,
        hash: impl Fn(&[u8]) -> u64,
    ) -> Option<Wait> {
        let database = waiter.database();
        let place = |key: Box<[u8]>| Place { hash: hash(&key), database, key };
        let places: Box<[Place]> = match waiter.waits_for_absence() {
            true => waiter.keys().take(KEYS_MAX).map(|key| place(key.into())).collect(),
            false => {
                let names = waiter.keys().take(KEYS_MAX).filter_map(|key| key.strip_prefix(SIGNAL));
                names.map(|name| place([b"lock:", name].concat().into())).collect()
            }
        };
        let token = waiter.token().map(Token::of);
        let wait = || Wait { who, token, since_ms, places, waiter: Arc::clone(waiter) };
        (!waiter.has_ended()).then(wait).filter(|wait| !wait.places.is_empty())
    }

    /// Whether clients that wait at a list wait for a lock.
    pub(crate) fn is_for_lock(list: &[u8]) -> bool {
        list.starts_with(SIGNAL)
    }

    /// Whether the client waits still.
    pub(crate) fn goes_on(&self) -> bool {
        self.waiter.is_waiting()
    }

    /// Its place in line: those with lower numbers came earlier.
    pub(super) fn ticket(&self) -> u64 {
        self.waiter.ticket()
    }

    /// The name of its command.
    pub(crate) fn command(&self) -> &'static str {
        self.waiter.command()
    }

    fn has_token_of(&self, holder: &Holder) -> bool {
        self.token.is_some_and(|token| token.digest == holder.token.digest)
    }

    /// Whether its token shows that the client holds a lock.
    pub(super) fn is_by_token(&self, holder: &Holder) -> bool {
        holder.token.is_long && self.has_token_of(holder)
    }

    /// Whether its connection has taken a lock by another token than the one by which it waits for it. Then
    /// it has been lent to another task meanwhile.
    pub(super) fn is_for_another_task(&self, holder: &Holder) -> bool {
        holder.who.id == self.who.id && self.token.is_some() && !self.has_token_of(holder)
    }

    /// Whether the client that waits is the one that holds a lock.
    pub(super) fn is_by(&self, holder: &Holder) -> bool {
        let is_same_token = self.is_by_token(holder);
        match holder.who.id == self.who.id {
            true => is_same_token || !holder.who.habits.is_pooled.load(Ordering::Relaxed),
            false => is_same_token && !holder.has_left,
        }
    }

    /// Whether the client keeps the lock of this holder, which has its token, and waits for others only.
    fn keeps(&self, holder: &Holder) -> bool {
        self.has_token_of(holder) && self.waiter.keeps_own()
    }

    /// Whether the client waits for a lock that it holds itself. Its token shows it: in a pool, the
    /// connection of a holder may wait for another task.
    fn is_for_own(&self, holder: &Holder) -> bool {
        self.has_token_of(holder) && (self.who.id == holder.who.id || self.is_by(holder))
    }
}

impl Waits {
    /// Adds a client.
    pub(super) fn add(&self, wait: &Arc<Wait>) {
        let parts = self.0.get_or_init(Box::default);
        let client = wait.who.id;
        part(parts, client).lock().by_client.insert(client, Arc::clone(wait));
        if let Some(token) = wait.token.filter(|token| token.is_long) {
            part(parts, token.digest).lock().by_token.insert((token.digest, client), Arc::clone(wait));
        }
    }

    /// Removes a client.
    pub(super) fn remove(&self, client: u64) {
        let Some(parts) = self.0.get() else { return };
        let removed = part(parts, client).lock().by_client.remove(&client);
        if let Some(token) = removed.and_then(|wait| wait.token).filter(|token| token.is_long) {
            part(parts, token.digest).lock().by_token.remove(&(token.digest, client));
        }
    }

    /// All of them that wait still.
    pub(super) fn all(&self) -> Vec<Arc<Wait>> {
        let mut all = Vec::new();
        for part in self.0.get().into_iter().flat_map(|parts| parts.iter()) {
            all.extend(part.lock().by_client.values().map(Arc::clone));
        }
        all.retain(|wait| wait.goes_on());
        all
    }

    /// The waits of the client that holds a lock.
    fn of(&self, holder: &Holder) -> impl Iterator<Item = Arc<Wait>> {
        let parts = self.0.get();
        let of_client = parts.and_then(|parts| {
            part(parts, holder.who.id).lock().by_client.get(&holder.who.id).map(Arc::clone)
        });
        let of_token = parts.filter(|_| holder.token.is_long).and_then(|parts| {
            let (part, digest) = (part(parts, holder.token.digest).lock(), holder.token.digest);
            let mut same = part.by_token.range((digest, 0)..=(digest, u64::MAX)).map(|(_, wait)| wait);
            // A token of several clients is one of many tasks.
            same.next().filter(|_| same.next().is_none()).map(Arc::clone)
        });
        let of_token =
            of_token.filter(|wait| of_client.as_ref().is_none_or(|other| other.who.id != wait.who.id));
        [of_client, of_token].into_iter().flatten().filter(|wait| wait.is_by(holder))
    }

    /// The cycle to which a client belongs that waits, if there is one. It begins with this client.
    /// `holders` returns the holders of a lock. What it `looks` at is counted down.
    pub(super) fn cycle(
        &self,
        start: &Arc<Wait>,
        holders: impl Fn(&Place) -> Vec<Holder>,
        looks: &mut usize,
    ) -> Option<Vec<Link>> {
        let steps = |wait: &Arc<Wait>| {
            let mut steps = Vec::new();
            for place in &wait.places {
                for holder in holders(place).into_iter().filter(|holder| !wait.keeps(holder)) {
                    let link = || Link { wait: Arc::clone(wait), place: place.clone(), fence: holder.fence };
                    if wait.who.id == start.who.id && wait.is_for_own(&holder) {
                        steps.push((link(), Arc::clone(wait)));
                    }
                    steps.extend(self.of(&holder).map(|next| (link(), next)));
                }
            }
            steps
        };
        let mut seen = HashSet::from([start.who.id]);
        let mut path: Vec<Link> = Vec::new();
        let mut open = vec![steps(start)];
        while let Some(next) = open.last_mut() {
            let Some((link, wait)) = next.pop() else {
                open.pop();
                path.pop();
                continue;
            };
            if wait.who.id == start.who.id {
                // A connection that waits for what it has taken itself may be one of a pool.
                if path.is_empty() && !holders(&link.place).iter().any(|holder| start.is_for_own(holder)) {
                    continue;
                }
                path.push(link);
                return path.iter().all(|link| link.wait.goes_on()).then_some(path);
            }
            *looks = looks.checked_sub(wait.places.len())?;
            if seen.insert(wait.who.id) {
                path.push(link);
                open.push(steps(&wait));
            }
        }
        None
    }
}

fn part(parts: &[Mutex<Part>; PARTS], number: u64) -> &Mutex<Part> {
    &parts[number as usize % PARTS]
}
