//! The locks in a store for which clients of this front-end wait, for LOCKS GRAPH: as they were seen when the
//! clients looked, or when their rows changed. Nothing is asked of the store.
//!
//! A client that waits hears of each change of its locks. So who holds a lock is known as well as the client
//! itself knows it. Holders at other front-ends are known by what the row says of them: they do not wait, as
//! far as can be seen from here, and are in no cycle.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use redis_protocol::resp3::types::OwnedFrame;

use crate::clients::Who;
use crate::digest;
use crate::keyspace::Token;
use crate::lens::{is_of_one_task, name_of};
use crate::remote::{AwaitedLock, Remote};
use crate::resp::tree;

use super::showing::describe_client;

/// Clients that wait at which one request looks.
const WAITS_MAX: usize = 4096;

/// A client that waits here.
struct Waiting {
    who: Arc<Who>,
    /// How the rows of its locks begin to name it.
    row_name: String,
    token: Token,
    comes_again: bool,
    /// The locks for which it waits, by their indices.
    locks: Vec<usize>,
}

/// A lock, and the client that waits for it: the next one in the cycle holds it.
type Step = (usize, usize);

/// The locks in the store for which clients wait here.
pub(super) struct Awaiting {
    locks: Vec<AwaitedLock>,
    /// Those that are asked for.
    shown: Vec<usize>,
    clients: Vec<Waiting>,
    /// The clients that wait for each other, all around.
    cycles: Vec<Vec<Step>>,
    /// The cycles to which locks belong, by their indices.
    cycle_of: HashMap<usize, usize>,
    now: (Instant, u64),
}

impl Awaiting {
    /// Looks at what is known here. It shows the locks that may be seen and are wanted, and the cycles of
    /// which all locks may be seen and one is wanted.
    pub(super) fn at(
        remote: &Remote,
        may_see: impl Fn(&[u8]) -> bool,
        is_wanted: impl Fn(&[u8]) -> bool,
    ) -> Awaiting {
        let locks = remote.awaited_locks(WAITS_MAX);
        let now = (Instant::now(), remote.clock.now_ms());
        let is_shown = |lock: &AwaitedLock| may_see(&lock.key.name) && is_wanted(&lock.key.name);
        let shown = (0..locks.len()).filter(|index| is_shown(&locks[*index])).collect();
        let (clients, cycles, cycle_of) = Default::default();
        let mut awaiting = Awaiting { locks, shown, clients, cycles, cycle_of, now };
        let mut places: HashMap<u64, usize> = HashMap::new();
        for (index, lock) in awaiting.locks.iter().enumerate() {
            for wait in &lock.waits {
                let client = &wait.known.client;
                let place = *places.entry(client.id).or_insert_with(|| {
                    awaiting.clients.push(Waiting {
                        who: Who::of(client),
                        row_name: remote.name_of_client(client),
                        token: Token::of(&wait.known.token),
                        comes_again: wait.known.comes_again,
                        locks: Vec::new(),
                    });
                    awaiting.clients.len() - 1
                });
                awaiting.clients[place].locks.push(index);
            }
        }
        awaiting.find_cycles();
        let Awaiting { locks, cycles, cycle_of, .. } = &mut awaiting;
        let name = |step: &Step| &*locks[step.1].key.name;
        cycles.retain(|cycle| {
            cycle.iter().all(|step| may_see(name(step))) && cycle.iter().any(|step| is_wanted(name(step)))
        });
        for (number, cycle) in cycles.iter().enumerate() {
            cycle_of.extend(cycle.iter().map(|(_, lock)| (*lock, number)));
        }
        awaiting
    }

    /// For each lock, the client here that waits and holds it: by a long token, or by its connection, if that
    /// seems to be one of a single task.
    fn holders(&self) -> Vec<Option<usize>> {
        let mut by_token: HashMap<u64, Option<usize>> = HashMap::new();
        for (place, client) in self.clients.iter().enumerate().filter(|(_, client)| client.token.is_long) {
            // A token by which several clients wait at a time is one of many tasks.
            by_token.entry(client.token.digest).and_modify(|one| *one = None).or_insert(Some(place));
        }
        let by_name: HashMap<&str, usize> =
            self.clients.iter().enumerate().map(|(place, client)| (&*client.row_name, place)).collect();
        let holder = |lock: &AwaitedLock| {
            let holder = lock.holder.as_ref()?;
            if lock.expires.is_some_and(|expires| expires <= self.now.0) {
                return None;
            }
            let by_connection = || {
                let row_name = &*holder.tenure.as_ref()?.holder;
                let end = row_name.find(" name=")? + 1;
                by_name
                    .get(&row_name[..end])
                    .copied()
                    .filter(|place| is_of_one_task(&self.clients[*place].who))
            };
            by_token.get(&holder.token.digest).copied().flatten().or_else(by_connection)
        };
        self.locks.iter().map(holder).collect()
    }

    /// Goes from each client to the holders of the locks for which it waits, and looks at each client once.
    fn find_cycles(&mut self) {
        let holders = self.holders();
        let mut seen = HashSet::new();
        // The places of clients on the way.
        let mut at: HashMap<usize, usize> = HashMap::new();
        for start in 0..self.clients.len() {
            // The way to the client at its end, and the locks of each at which it has not looked yet.
            let mut way: Vec<(usize, usize)> = Vec::new();
            let mut next = seen.insert(start).then_some(start);
            loop {
                if let Some(client) = next.take() {
                    at.insert(client, way.len());
                    way.push((client, 0));
                }
                let Some((client, tried)) = way.last_mut() else { break };
                let waiting = &self.clients[*client];
                let Some(lock) = waiting.locks.get(*tried).copied() else {
                    at.remove(client);
                    way.pop();
                    continue;
                };
                *tried += 1;
                let Some(holder) = holders[lock] else { continue };
                let token = self.locks[lock].holder.as_ref().map(|holder| holder.token.digest);
                let is_own_token = token == Some(waiting.token.digest);
                // It keeps its own lock; and what its connection holds by another token is another task's.
                if is_own_token && waiting.comes_again || !is_own_token && holder == *client {
                    continue;
                }
                if let Some(from) = at.get(&holder).copied() {
                    let steps = way[from..].iter().map(|(client, tried)| (*client, *tried - 1));
                    let steps = steps.map(|(client, tried)| (client, self.clients[client].locks[tried]));
                    self.cycles.push(steps.collect());
                } else if seen.insert(holder) {
                    next = Some(holder);
                }
            }
        }
    }

    /// The locks that are asked for, by their indices.
    pub(super) fn shown(&self) -> impl Iterator<Item = usize> {
        self.shown.iter().copied()
    }

    /// How many clients wait for a lock.
    pub(super) fn waiting(&self, lock: usize) -> usize {
        self.locks[lock].waiting
    }

    /// The cycles in words, a line for each client.
    pub(super) fn cycles(&self) -> impl Iterator<Item = Vec<String>> {
        self.cycles.iter().map(|cycle| {
            let name = |(_, lock): &Step| {
                let key = &self.locks[*lock].key;
                name_of(key.database as usize, &key.name)
            };
            let held = cycle.iter().cycle().skip(cycle.len() - 1);
            let line = |(step, before): (&Step, &Step)| {
                format!("{} holds {} and waits for {}", self.clients[step.0].who, name(before), name(step))
            };
            cycle.iter().zip(held).map(line).collect()
        })
    }

    /// The cycle to which a lock belongs, by its index.
    pub(super) fn cycle_of(&self, lock: usize) -> Option<usize> {
        self.cycle_of.get(&lock).copied()
    }

    /// Describes a lock with its holder, the first clients that wait for it, and its cycle.
    pub(super) fn describe(&self, index: usize, most: usize, cycle: Option<usize>) -> OwnedFrame {
        let lock = &self.locks[index];
        let now = self.now;
        let digest_of = |token: Token| tree::bulk(digest::to_text(token.digest));
        let holders = lock.holder.iter().map(|holder| {
            let tenure = holder.tenure.as_ref();
            let left_ms = lock.expires.map(|at| at.saturating_duration_since(now.0).as_millis() as i64);
            let or_null = |value: Option<i64>| value.map_or(tree::null(), tree::integer);
            tree::map([
                ("holder", tenure.map_or(tree::null(), |tenure| tree::bulk(&tenure.holder))),
                ("token-digest", digest_of(holder.token)),
                ("fencing", or_null(tenure.map(|tenure| tenure.fence))),
                ("held-ms", or_null(tenure.map(|it| now.1.saturating_sub(it.since_ms).cast_signed()))),
                ("expires-in-ms", or_null(left_ms)),
            ])
        });
        let waits = lock.waits.iter().take(most).map(|wait| {
            tree::map([
                ("client", describe_client(&Who::of(&wait.known.client))),
                ("token-digest", digest_of(Token::of(&wait.known.token))),
                ("by", tree::bulk("lock|acquire")),
                ("waits-ms", tree::integer(now.0.saturating_duration_since(wait.since).as_millis() as i64)),
            ])
        });
        tree::map([
            ("key", tree::bulk(&lock.key.name)),
            ("database", tree::count(lock.key.database as usize)),
            ("holders", tree::array(holders)),
            ("waiting", tree::count(lock.waiting)),
            ("waiting-clients", tree::array(waits)),
            ("cycle", cycle.map_or(tree::null(), |number| tree::count(number + 1))),
        ])
    }
}
