//! Who holds what and waits for what: the graph that LOCKS GRAPH shows, and the findings that come of it.
//!
//! A deadlock is found when its last client begins to wait: the search goes from this client to the holder of
//! its lock, to the lock for which that one waits, and so on, and looks at a bounded number of locks. It
//! holds one mutex at a time. The order in which a client takes two locks is noted when it asks for the
//! second one, and compared with the orders of others.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::cause::Cause;
use super::findings::{Finding, Volume};
use super::names;
use super::orders::{HELD_MAX, Order, is_of_one_task};
use super::rules::Rule;
use super::waits::{Holder, Link, Place, SEARCHED_MAX, Wait};
use super::{Lens, Lock, Tenure};
use crate::clients::Who;
use crate::keyspace::{LockChange, LockNews, Token};

/// Locks at which LOCKS GRAPH looks to find cycles.
const GRAPH_LOOKS_MAX: usize = 16 * SEARCHED_MAX;
/// Clients of a cycle whose locks a finding describes.
const DESCRIBED_MAX: usize = 16;
/// How often it is looked whether a connection holds two locks of one pattern. One of several tasks is found
/// out soon.
const LOOKS_FOR_SHARING_MAX: u32 = 64;

/// Who holds what and waits for what.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    /// The locks: those of cycles first, and then those for which the most clients wait.
    pub(crate) locks: Vec<GraphLock>,
    /// The clients that wait for each other, all around.
    pub(crate) cycles: Vec<Vec<Link>>,
}

/// A lock that a client holds, or for which clients wait.
#[derive(Debug)]
pub(crate) struct GraphLock {
    pub(crate) place: Place,
    /// The time for which its holder holds it, if the lens knows that.
    pub(crate) tenure: Option<Tenure>,
    /// The clients that wait for it, in the order in which they are served.
    pub(crate) waits: Vec<Arc<Wait>>,
    /// The cycle to which it belongs, by its index.
    pub(crate) cycle: Option<usize>,
}

/// A client that asks for a lock, ready to wait.
struct Asker<'a> {
    who: &'a Arc<Who>,
    token: Option<Token>,
    at_ms: u64,
    /// The number by which it got the lock, if it got it at once.
    fence: Option<u64>,
    /// When the lens missed news the last time: what was held before may be held no longer.
    missed_ms: u64,
}

impl Asker<'_> {
    /// Whether its token shows that it holds a lock.
    fn is_by_token(&self, holder: &Holder) -> bool {
        holder.token.is_long && self.token.is_some_and(|token| token.digest == holder.token.digest)
    }
}

impl Lens {
    /// Notes that a client waits for locks. Findings that come of it are noted if all their keys are meant.
    /// `is_held` returns whether a lock has a token still: of a busy server the lens may have missed news,
    /// the last time at `missed_ms`.
    pub(crate) fn begin_wait(
        &self,
        wait: Wait,
        is_meant: impl Fn(&[u8]) -> bool,
        is_held: impl Fn(usize, &[u8], Token) -> bool,
        missed_ms: u64,
    ) {
        let wait = Arc::new(wait);
        self.waits.add(&wait);
        let (now_ms, mut looks) = (wait.since_ms, SEARCHED_MAX);
        for holder in wait.places.iter().flat_map(|place| self.holders(place, now_ms)) {
            if wait.is_for_another_task(&holder) {
                wait.who.habits.is_pooled.store(true, Ordering::Relaxed);
                self.withdraw(&wait.who);
            }
        }
        if let Some(cycle) = self.waits.cycle(&wait, |place| self.holders(place, now_ms), &mut looks) {
            let is_so = |link: &Link| {
                let holders = self.holders(&link.place, now_ms);
                let mut holders = holders.iter().filter(|holder| holder.fence == link.fence);
                let (database, key) = (link.place.database, &*link.place.key);
                is_meant(key) && holders.any(|holder| is_held(database, key, holder.token))
            };
            if cycle.iter().all(is_so) {
                self.tell_of_cycle(&cycle, now_ms);
            }
            return;
        }
        let asker = Asker { who: &wait.who, token: wait.token, at_ms: now_ms, fence: None, missed_ms };
        for place in &wait.places {
            self.note_orders(&asker, place, &is_meant);
        }
    }

    /// Notes that a client waits no longer.
    pub(crate) fn end_wait(&self, client: u64) {
        self.waits.remove(client);
    }

    /// Follows what a lock that was just taken shows of its client: in which order it takes locks, and
    /// whether several tasks use its connection. `is_meant` returns whether a key is to be followed.
    pub(crate) fn follow_holder(
        &self,
        news: &LockNews,
        cause: &Cause<'_>,
        is_meant: impl Fn(&[u8]) -> bool,
        missed_ms: u64,
    ) {
        let habits = &cause.who.habits;
        let place = || Place { hash: news.hash, database: news.database, key: news.key.clone() };
        if habits.held.load(Ordering::Relaxed) > 1
            && !habits.is_shared.load(Ordering::Relaxed)
            && habits.looks.fetch_add(1, Ordering::Relaxed) < LOOKS_FOR_SHARING_MAX
        {
            let place = place();
            let pattern = names::pattern(&place.key);
            // Locks of one request have one number.
            let is_alike = |(other, holder): &(Place, Holder)| {
                *other != place && Some(holder.fence) != news.fence && names::pattern(&other.key) == pattern
            };
            let is_shared = self.held_by(&cause.who, None, news.at_ms).iter().any(is_alike);
            habits.is_shared.fetch_or(is_shared, Ordering::Relaxed);
        }
        if let LockChange::Taken { token, .. } = news.change
            && cause.is_ready_to_wait()
        {
            let fence = Some(news.fence.unwrap_or_default());
            let asker = Asker { who: &cause.who, token: Some(token), at_ms: news.at_ms, fence, missed_ms };
            self.note_orders(&asker, &place(), is_meant);
        }
    }

    /// Notes that a client asks for a lock while it holds others.
    fn note_orders(&self, asker: &Asker<'_>, asked: &Place, is_meant: impl Fn(&[u8]) -> bool) {
        if !is_of_one_task(asker.who) {
            return;
        }
        let pattern = names::pattern(&asked.key);
        let mut held = self.held_by(asker.who, asker.token, asker.at_ms);
        held.retain(|(place, holder)| {
            let is_own_connection = holder.who.id == asker.who.id;
            // The connection would hold two of one pattern.
            let is_alike = is_own_connection && names::pattern(&place.key) == pattern;
            // Locks of one request have one number, and no order.
            let is_apart = place != asked && Some(holder.fence) != asker.fence;
            let is_certain = holder.since_ms > asker.missed_ms;
            is_apart && is_certain && !is_alike && is_of_one_task(&holder.who)
        });
        let number = |place: &Place| (place.database, place.hash);
        for (first, holder) in &held {
            let besides = held.iter().map(|(place, _)| number(place)).filter(|place| *place != number(first));
            let order = Order {
                who: Arc::clone(asker.who),
                token: asker.token.filter(|token| token.is_long).map(|token| token.digest),
                at_ms: asker.at_ms,
                is_by_connection: !asker.is_by_token(holder),
                besides: besides.collect(),
            };
            let opposite = self.orders.lock().note((number(first), number(asked)), order);
            if let Some(opposite) = opposite.filter(|_| is_meant(&first.key) && is_meant(&asked.key)) {
                let own = (!asker.is_by_token(holder)).then_some(asker.who.id);
                let other = opposite.is_by_connection.then_some(opposite.who.id);
                let connections = own.into_iter().chain(other).collect();
                self.tell_of_orders(asker, first, asked, &opposite, connections);
            }
        }
    }

    /// The locks that a client holds, by its connection or its token.
    fn held_by(&self, who: &Who, token: Option<Token>, now_ms: u64) -> Vec<(Place, Holder)> {
        let token = token.filter(|token| token.is_long).map(|token| token.digest);
        let mut held = Vec::new();
        for segment in self.segments() {
            let mut segment = segment.lock();
            for at in 0..segment.owners.len() {
                let owner = segment.owners[at];
                if owner.client != who.id && Some(owner.token) != token {
                    continue;
                }
                let lock = &mut segment.locks[at];
                self.catch_up(lock, now_ms);
                if let Some(holder) = lock.holder()
                    && (holder.who.id == who.id || !holder.has_left)
                {
                    held.push((place_of(lock), holder));
                }
                if held.len() == HELD_MAX {
                    return held;
                }
            }
        }
        held
    }

    fn holders(&self, place: &Place, now_ms: u64) -> Vec<Holder> {
        self.with_lock(place, now_ms, |lock| lock.holder()).flatten().into_iter().collect()
    }

    fn with_lock<R>(&self, place: &Place, now_ms: u64, look: impl FnOnce(&mut Lock) -> R) -> Option<R> {
        let mut segment = self.segment(place.hash).lock();
        let at = segment.find(place.hash, place.database, &place.key)?;
        self.catch_up(&mut segment.locks[at], now_ms);
        Some(look(&mut segment.locks[at]))
    }

    /// Notes a cycle as a finding, unless it is known.
    fn tell_of_cycle(&self, cycle: &[Link], now_ms: u64) {
        let rule = if cycle.len() == 1 { Rule::WaitsForItself } else { Rule::Deadlock };
        // Of two clients that complete a cycle at the same time, the first one reports it.
        let mut orders = self.orders.lock();
        let (mut is_news, mut connections) = (false, Vec::new());
        for (link, next) in cycle.iter().zip(cycle.iter().cycle().skip(1)) {
            let is_by_token = |holder: &Holder| next.wait.is_by_token(holder) || rule == Rule::WaitsForItself;
            if !self.holders(&link.place, now_ms).iter().any(is_by_token) {
                connections.push(next.wait.who.id);
            }
            is_news |= self
                .with_lock(&link.place, now_ms, |lock| {
                    lock.tenure.fence == link.fence && lock.tell_once(rule)
                })
                .unwrap_or(false);
        }
        if !is_news {
            return;
        }
        if let [one, other] = cycle {
            let number = |link: &Link| (link.place.database, link.place.hash);
            orders.tell_once((number(one), number(other)));
        }
        drop(orders);
        let shown = &cycle[..cycle.len().min(DESCRIBED_MAX)];
        let mut lines: Vec<String> = lines_of(cycle).take(DESCRIBED_MAX).collect();
        lines.extend(self.timelines(shown.iter().map(|link| &link.place), now_ms));
        let clients = shown.iter().map(|link| Arc::clone(&link.wait.who)).collect();
        let mut others: Vec<&Place> = cycle.iter().map(|link| &link.place).collect();
        others.swap_remove(0);
        let finding = self.finding(rule, &cycle[0].place, &others, clients, lines, now_ms);
        self.tell(finding, connections);
    }

    /// Notes that two clients take two locks in different orders.
    fn tell_of_orders(
        &self,
        asker: &Asker<'_>,
        first: &Place,
        asked: &Place,
        opposite: &Order,
        connections: Vec<u64>,
    ) {
        let (first_name, asked_name) = (name_of_place(first), name_of_place(asked));
        let asked_for = if asker.fence.is_some() { "took" } else { "waits for" };
        let before_ms = asker.at_ms.saturating_sub(opposite.at_ms);
        let mut lines = vec![
            format!(
                "{} held {asked_name} when it asked for {first_name}, {before_ms} ms before",
                opposite.who
            ),
            format!("{} holds {first_name} and {asked_for} {asked_name}", asker.who),
        ];
        lines.extend(self.timelines([first, asked].into_iter(), asker.at_ms));
        let clients = vec![Arc::clone(asker.who), Arc::clone(&opposite.who)];
        let finding = self.finding(Rule::LockOrderInversion, asked, &[first], clients, lines, asker.at_ms);
        self.tell(finding, connections);
    }

    /// The histories of several locks, with the milliseconds since the first step of all of them.
    fn timelines<'p>(&self, places: impl Iterator<Item = &'p Place> + Clone, now_ms: u64) -> Vec<String> {
        let since_ms = |place: &Place| self.with_lock(place, now_ms, |lock| lock.timeline_since_ms());
        let since_ms = places.clone().filter_map(since_ms).min().unwrap_or(now_ms);
        let of = |place: &Place| {
            let steps = self.with_lock(place, now_ms, |lock| lock.timeline_from(since_ms));
            let heading = format!("{}:", name_of_place(place));
            std::iter::once(heading).chain(steps.into_iter().flatten())
        };
        places.flat_map(of).collect()
    }

    fn finding(
        &self,
        rule: Rule,
        place: &Place,
        others: &[&Place],
        clients: Vec<Arc<Who>>,
        timeline: Vec<String>,
        at_ms: u64,
    ) -> Option<Finding> {
        let advice = self.with_lock(place, at_ms, |lock| lock.advice(rule))?;
        Some(Finding {
            id: 0,
            rule,
            database: place.database,
            key: place.key.clone(),
            others: others.iter().map(|place| place.key.clone()).collect(),
            pattern: names::pattern(&place.key),
            alike: 0,
            at_ms,
            clients,
            advice,
            timeline,
        })
    }

    /// Notes a finding that holds only if each of these connections is that of one task.
    fn tell(&self, finding: Option<Finding>, connections: Vec<u64>) {
        match finding {
            Some(finding) if connections.is_empty() => self.note(finding, Some(Volume::Loud)),
            Some(finding) => self.claim(finding, connections),
            None => {}
        }
    }

    /// Who holds what and waits for what. `may_see` returns whether a lock may be shown, and `is_wanted`
    /// whether it is asked for.
    pub(crate) fn graph(
        &self,
        now_ms: u64,
        may_see: impl Fn(&[u8]) -> bool,
        is_wanted: impl Fn(&[u8]) -> bool,
    ) -> Graph {
        let mut graph = Graph::default();
        let mut at: HashMap<(usize, Box<[u8]>), usize> = HashMap::new();
        let (mut clients, mut tokens) = (HashSet::new(), HashSet::new());
        for segment in self.segments() {
            for lock in &mut segment.lock().locks {
                self.catch_up(lock, now_ms);
                if !lock.is_held() || lock.field.is_some() {
                    continue;
                }
                clients.insert(lock.tenure.holder.id);
                tokens.insert(lock.tenure.token.digest);
                if is_wanted(&lock.key) {
                    at.insert((lock.database, lock.key.clone()), graph.locks.len());
                    let (place, tenure) = (place_of(lock), Some(lock.tenure.clone()));
                    graph.locks.push(GraphLock { place, tenure, waits: Vec::new(), cycle: None });
                }
            }
        }
        let waits = self.waits.all();
        for wait in &waits {
            for place in wait.places.iter().filter(|place| is_wanted(&place.key)) {
                let index = *at.entry((place.database, place.key.clone())).or_insert_with(|| {
                    let place = place.clone();
                    graph.locks.push(GraphLock { place, tenure: None, waits: Vec::new(), cycle: None });
                    graph.locks.len() - 1
                });
                graph.locks[index].waits.push(Arc::clone(wait));
            }
        }
        graph.locks.retain_mut(|lock| {
            lock.waits.sort_unstable_by_key(|wait| wait.ticket());
            may_see(&lock.place.key)
        });
        let holds = |wait: &Wait| {
            let token = wait.token.filter(|token| token.is_long);
            clients.contains(&wait.who.id) || token.is_some_and(|token| tokens.contains(&token.digest))
        };
        let (mut looks, mut in_cycles) = (GRAPH_LOOKS_MAX, HashSet::new());
        for wait in waits.iter().filter(|wait| holds(wait)) {
            let mut own = looks.min(SEARCHED_MAX);
            if in_cycles.contains(&wait.who.id) {
                continue;
            }
            let before = own;
            let cycle = self.waits.cycle(wait, |place| self.holders(place, now_ms), &mut own);
            looks -= (before - own).min(looks);
            let Some(cycle) = cycle else { continue };
            in_cycles.extend(cycle.iter().map(|link| link.wait.who.id));
            let mut keys = cycle.iter().map(|link| &link.place.key);
            if keys.clone().all(|key| may_see(key)) && keys.any(|key| is_wanted(key)) {
                graph.cycles.push(cycle);
            }
        }
        let mut marks = HashMap::new();
        for (number, cycle) in graph.cycles.iter().enumerate() {
            marks.extend(cycle.iter().map(|link| (&link.place, number)));
        }
        graph.locks.iter_mut().for_each(|lock| lock.cycle = marks.get(&lock.place).copied());
        graph.locks.sort_by_key(|lock| {
            let since_ms = lock.tenure.as_ref().map_or(u64::MAX, |tenure| tenure.since_ms);
            (lock.cycle.unwrap_or(usize::MAX), usize::MAX - lock.waits.len(), since_ms)
        });
        graph
    }
}

/// A cycle in words, a line for each client.
pub(crate) fn lines_of(cycle: &[Link]) -> impl Iterator<Item = String> {
    let held = cycle.iter().cycle().skip(cycle.len().saturating_sub(1));
    cycle.iter().zip(held).map(|(link, before)| {
        let (held, wanted) = (name_of_place(&before.place), name_of_place(&link.place));
        format!("{} holds {held} and waits for {wanted}", link.wait.who)
    })
}

/// The name of a key, and of its database if that is another than the first.
pub(crate) fn name_of(database: usize, key: &[u8]) -> String {
    let key = key.escape_ascii();
    match database {
        0 => format!("\"{key}\""),
        database => format!("\"{key}\" of database {database}"),
    }
}

fn name_of_place(place: &Place) -> String {
    name_of(place.database, &place.key)
}

fn place_of(lock: &Lock) -> Place {
    Place { hash: lock.hash, database: lock.database, key: lock.key.clone() }
}
