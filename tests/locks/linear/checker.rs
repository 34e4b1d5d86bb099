//! Is there an order in which a server that runs one request at a time would have sent these replies?
//!
//! Just-in-time linearization (Lowe, 2017), for one key. The checker goes through requests and replies in the
//! order of time, and keeps every situation that the key may be in: its value, and which of the pending
//! requests have taken effect. When a reply comes, its request must have taken effect. If it has not yet, the
//! other pending requests are tried before it in every order. If no situation is left, the reply cannot be
//! explained.
//!
//! Five rules keep the search small. A request that only reads takes effect as soon as it can see the value
//! of its reply; later is never better. A token is only replaced when all requests that saw it have taken
//! effect, because it never comes again. A write took effect before the first reply that shows its token,
//! even if its own reply came late or never. Lost requests whose effect no reply shows are alike: they are
//! counted by their possible effect, and a situation that has needed fewer is better. And the simplest
//! explanations are tried first, the others only if those fail.

use std::collections::{HashMap, HashSet, VecDeque};

use super::register::{Answer, Moment, Operation, Register, Request, Token};

/// The most situations for one reply. Few replies take more than some hundred. A reply that takes more than
/// this counts as unexplained, so that the search does not fill the memory.
const SITUATIONS_MAX: usize = 300_000;
/// Kinds of lost requests, apart from DELIFEQ, which is of use only to what it names.
const KINDS: usize = 2;

/// An answer that cannot be explained.
#[derive(Debug)]
pub(super) struct Unexplained {
    /// The history of the key up to it, of which the end matters.
    pub(super) history: Vec<Operation>,
}

/// How hard an explanation is looked for. Most answers have a simple one: that is tried first. Where it
/// leads nowhere, more are tried from some way back on; only when all have been tried from the beginning is
/// an answer rejected.
#[derive(Clone, Copy)]
struct Effort {
    /// Situations to keep; the simplest are come by first.
    situations: usize,
    /// By how many a situation may have more lost requests done than the best one.
    surplus: u32,
    /// How many [`STRETCH`]es to go back.
    stretches_back: usize,
}

const EFFORTS: [Effort; 5] = [
    Effort { situations: 6, surplus: 0, stretches_back: 0 },
    Effort { situations: 60, surplus: 1, stretches_back: 1 },
    Effort { situations: 1000, surplus: 2, stretches_back: 4 },
    Effort { situations: 20_000, surplus: 4, stretches_back: 16 },
    Effort { situations: usize::MAX, surplus: u32::MAX, stretches_back: usize::MAX },
];

/// So many events, one knows the way back to the beginning of each.
const STRETCH: usize = 100;

/// What a key may be like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Situation {
    register: Register,
    /// Requests under way that have been done, a bit for each place.
    done: u64,
}

/// How many of the lost requests of each kind have been done.
type Lost = [u32; KINDS];

/// Checks a history, key by key.
pub(super) fn check(history: &[Operation]) -> Result<(), Unexplained> {
    by_key(&clarify(history)).iter().try_for_each(|history| KeyChecker::new(history).run())
}

/// Parts a history by keys.
pub(super) fn by_key(history: &[Operation]) -> Vec<Vec<Operation>> {
    let keys = history.iter().map(|operation| operation.key + 1).max().unwrap_or(0);
    let mut parts = vec![Vec::new(); keys];
    for operation in history {
        parts[operation.key].push(*operation);
    }
    parts
}

/// Adds to a history what is known without a search: a write took effect before the first reply that shows
/// its token, even if its own reply came late or never. Lost requests whose effect no reply shows are made
/// alike.
pub(super) fn clarify(history: &[Operation]) -> Vec<Operation> {
    let mut seen: HashMap<Token, Moment> = HashMap::new();
    let earliest = |one: Moment, other: Moment| if one.nanos < other.nanos { one } else { other };
    for operation in history {
        let (Some(token), Some(ended)) = (operation.observed(), operation.ended) else { continue };
        let first = seen.entry(token).or_insert(ended);
        *first = earliest(*first, ended);
    }
    let clarify = |operation: &Operation| {
        // Who says to have seen what was not asked for yet cannot be explained, and will be found.
        let is_later = |seen: &Moment| seen.nanos >= operation.sent.nanos;
        let seen = operation.written().and_then(|token| seen.get(&token)).copied().filter(is_later);
        match (operation.ended, seen) {
            (Some(ended), Some(seen)) if operation.answer == Answer::Lost => {
                Operation { ended: Some(earliest(ended, seen)), ..done(operation) }
            }
            (Some(ended), Some(seen)) => Operation { ended: Some(earliest(ended, seen)), ..*operation },
            (Some(_), None) => *operation,
            (None, Some(_)) => Operation { ended: seen, ..done(operation) },
            (None, None) => unseen(operation),
        }
    };
    history.iter().map(clarify).collect()
}

/// A lost request that is known to have been done.
fn done(operation: &Operation) -> Operation {
    let request = match operation.request {
        // What it found is not known, and it does the same whatever that was.
        Request::GetSet(token) => Request::Set(token, None),
        // What it found may have been written by a request that was lost as well.
        Request::Swap(_, token) => Request::Set(token, None),
        other => other,
    };
    Operation { request, answer: Answer::Done(true), ..*operation }
}

/// A lost request whose effect no reply shows. It is enough to know that it may have written some value, or
/// that it may have given the value an expiry, at an unknown time.
fn unseen(operation: &Operation) -> Operation {
    let request = match operation.request {
        Request::Set(..) | Request::SetNx(..) | Request::GetSet(_) | Request::Swap(..) => {
            Request::Set(Token::UNSEEN, Some(0))
        }
        Request::GetEx(_)
        | Request::Expire(_)
        | Request::ExtendIfEq(..)
        | Request::ProlongIfEq(..)
        | Request::Del => Request::Expire(0),
        Request::Get | Request::DelIfEq(_) | Request::Holds(_) => operation.request,
    };
    Operation { request, sent: Moment { wall_ms: 0, next_ms: 0, ..operation.sent }, ..*operation }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// Before [`Event::Ended`], so that what happened at one moment is taken for simultaneous.
    Sent,
    Ended,
}

struct KeyChecker<'h> {
    history: &'h [Operation],
    /// What happened, in the order of time.
    events: Vec<(u64, Event, usize)>,
    /// Who has seen each token.
    observers: HashMap<Token, Vec<usize>>,
    /// Where each request is among those under way.
    place_of: Vec<usize>,
    effort: Effort,
    so_far: SoFar,
}

/// What is known after some of the events.
#[derive(Clone)]
struct SoFar {
    events: usize,
    /// The requests under way, each at a place of its own.
    under_way: [Option<usize>; 64],
    /// Lost requests that may be done, by kind: one of them, and how many there are.
    lost: Vec<(Operation, u32)>,
    /// Tokens that a lost DELIFEQ may delete.
    lost_deletions: HashSet<Token>,
    situations: Vec<(Situation, Lost)>,
}

impl KeyChecker<'_> {
    fn new(history: &[Operation]) -> KeyChecker<'_> {
        let mut observers: HashMap<Token, Vec<usize>> = HashMap::new();
        let mut events = Vec::new();
        for (number, operation) in history.iter().enumerate() {
            events.push((operation.sent.nanos, Event::Sent, number));
            events.extend(operation.ended.map(|ended| (ended.nanos, Event::Ended, number)));
            if let Some(token) = operation.observed() {
                observers.entry(token).or_default().push(number);
            }
        }
        events.sort_unstable();
        let so_far = SoFar {
            events: 0,
            under_way: [None; 64],
            lost: Vec::new(),
            lost_deletions: HashSet::new(),
            situations: vec![(Situation { register: Register::default(), done: 0 }, Lost::default())],
        };
        let place_of = vec![0; history.len()];
        KeyChecker { history, events, observers, place_of, effort: EFFORTS[0], so_far }
    }

    fn run(mut self) -> Result<(), Unexplained> {
        let (mut level, mut got_to) = (0, 0);
        let mut ways_back: Vec<SoFar> = Vec::new();
        while let Some((nanos, event, number)) = self.events.get(self.so_far.events).copied() {
            if self.so_far.events == ways_back.len() * STRETCH {
                ways_back.push(self.so_far.clone());
            }
            if self.so_far.events > got_to + STRETCH {
                level = 0;
            }
            self.effort = EFFORTS[level];
            self.so_far.events += 1;
            match (event, self.history[number].ended) {
                (Event::Sent, None) => self.note_lost(self.history[number]),
                (Event::Sent, Some(_)) => self.note_sent(number),
                (Event::Ended, _) => self.note_ended(number),
            }
            if self.so_far.situations.is_empty() {
                if level + 1 == EFFORTS.len() {
                    return Err(self.unexplained(nanos));
                }
                level += 1;
                got_to = got_to.max(self.so_far.events);
                let back = ways_back.len().saturating_sub(EFFORTS[level].stretches_back.saturating_add(1));
                ways_back.truncate(back + 1);
                self.so_far = ways_back[back].clone();
            }
        }
        Ok(())
    }

    fn unexplained(&self, nanos: u64) -> Unexplained {
        let is_before = |operation: &&Operation| operation.sent.nanos <= nanos;
        let mut history: Vec<Operation> = self.history.iter().filter(is_before).copied().collect();
        history.sort_by_key(|operation| operation.ended.map_or(u64::MAX, |ended| ended.nanos));
        Unexplained { history }
    }

    fn note_sent(&mut self, number: usize) {
        let places = &mut self.so_far.under_way;
        let place = places.iter().position(Option::is_none).expect("few requests are under way");
        places[place] = Some(number);
        self.place_of[number] = place;
    }

    fn note_lost(&mut self, operation: Operation) {
        let lost = &mut self.so_far.lost;
        match operation.request {
            Request::Get | Request::Holds(_) => {}
            Request::DelIfEq(token) => {
                self.so_far.lost_deletions.insert(token);
            }
            request => match lost.iter_mut().find(|(one, _)| one.request == request) {
                Some((_, count)) => *count += 1,
                None => lost.push((operation, 1)),
            },
        }
    }

    /// A request was answered: keeps the situations in which it has been done.
    fn note_ended(&mut self, number: usize) {
        let place = self.place_of[number];
        let sum = |lost: &Lost| lost.iter().sum::<u32>();
        let fewest = self.so_far.situations.iter().map(|(_, lost)| sum(lost)).min().unwrap_or(0);
        let all = self.so_far.lost.iter().map(|(_, count)| count).sum();
        let mut lost_max = fewest.saturating_add(self.effort.surplus);
        let mut left = self.explain(place, lost_max);
        while left.is_empty() && lost_max < all {
            lost_max = lost_max.saturating_mul(2).saturating_add(1);
            left = self.explain(place, lost_max);
        }
        self.so_far.under_way[place] = None;
        left.iter_mut().for_each(|(situation, _)| situation.done &= !(1 << place));
        self.so_far.situations = left;
    }

    /// The situations in which the request at a place has been done, with so many lost requests at most.
    fn explain(&self, place: usize, lost_max: u32) -> Vec<(Situation, Lost)> {
        let mut left: Vec<(Situation, Lost)> = Vec::new();
        let mut seen = Seen::default();
        let mut to_try: VecDeque<(Situation, Lost)> = self.so_far.situations.iter().copied().collect();
        while let Some((situation, lost)) = to_try.pop_front() {
            if seen.0.len() > SITUATIONS_MAX {
                return Vec::new();
            }
            let situation = self.look(situation);
            if lost.iter().sum::<u32>() > lost_max || !seen.is_new(situation, lost) {
                continue;
            }
            match situation.done & 1 << place != 0 {
                true if left.len() == self.effort.situations => break,
                true => left.push((situation, lost)),
                false => self.do_one_more(situation, lost, &mut to_try),
            }
        }
        left.retain(|(situation, lost)| seen.is_best(situation, lost));
        left
    }

    fn is_over(&self, number: usize) -> bool {
        let now = self.events[self.so_far.events - 1];
        self.history[number].ended.is_some_and(|ended| (ended.nanos, Event::Ended, number) < now)
    }

    /// What is under way, and not done in a situation.
    fn to_do(&self, situation: Situation) -> impl Iterator<Item = (u64, &Operation)> {
        let places = self.so_far.under_way.iter().enumerate();
        let waiting = places.filter_map(|(place, number)| Some((1_u64 << place, &self.history[(*number)?])));
        waiting.filter(move |(bit, _)| situation.done & bit == 0)
    }

    /// Does what only looks, where it sees what it was told. A renewal that comes to the same expiry is
    /// another thing: done later, it might not.
    fn look(&self, mut situation: Situation) -> Situation {
        let register = situation.register;
        let looks =
            |operation: &Operation| operation.only_looks() && operation.apply(register) == Some(register);
        let to_do = self.to_do(situation).filter(|(_, operation)| looks(operation));
        situation.done |= to_do.fold(0, |bits, (bit, _)| bits | bit);
        situation
    }

    /// Adds every situation that one more request can make of this one.
    fn do_one_more(&self, situation: Situation, lost: Lost, to_try: &mut VecDeque<(Situation, Lost)>) {
        let mut add = |register: Register, done: u64, lost: Lost| {
            let after = Situation { register, done };
            if self.has_shown_what_it_held(situation.register, after) {
                to_try.push_back((after, lost));
            }
        };
        let Situation { register, done } = situation;
        for (bit, operation) in self.to_do(situation) {
            let after = operation.apply(register);
            if let Some(register) = after {
                add(register, done | bit, lost);
            }
            // It was done until then, or never.
            if operation.answer == Answer::Lost && after != Some(register) {
                add(register, done | bit, lost);
            }
        }
        for (kind, (operation, count)) in self.so_far.lost.iter().enumerate() {
            let after = operation.apply(register).filter(|after| *after != register);
            if let Some(register) = after.filter(|_| lost[kind] < *count) {
                let mut lost = lost;
                lost[kind] += 1;
                add(register, done, lost);
            }
        }
        if register.held.is_some_and(|held| self.so_far.lost_deletions.contains(&held.token)) {
            add(Register { held: None, ..register }, done, lost);
        }
    }

    /// Whether all requests that saw the replaced token have taken effect. It never comes again.
    fn has_shown_what_it_held(&self, before: Register, after: Situation) -> bool {
        let token = |register: Register| register.held.map(|held| held.token);
        let Some(gone) = token(before).filter(|gone| token(after.register) != Some(*gone)) else {
            return true;
        };
        let is_done = |number: &usize| {
            let place = self.place_of[*number];
            match self.so_far.under_way[place] == Some(*number) {
                true => after.done & 1 << place != 0,
                false => self.is_over(*number),
            }
        };
        self.observers.get(&gone).is_none_or(|observers| observers.iter().all(is_done))
    }
}

/// The situations that were come by, each with the best ways to it.
#[derive(Default)]
struct Seen(HashMap<Situation, HashSet<Lost>>);

impl Seen {
    /// Whether a situation is reached with fewer lost requests than before, at least of one kind.
    fn is_new(&mut self, situation: Situation, lost: Lost) -> bool {
        let ways = self.0.entry(situation).or_default();
        let is_better = |one: &Lost, other: &Lost| one.iter().zip(other).all(|(one, other)| one <= other);
        let is_new = !ways.iter().any(|known| is_better(known, &lost));
        if is_new {
            ways.retain(|known| !is_better(&lost, known));
            ways.insert(lost);
        }
        is_new
    }

    fn is_best(&self, situation: &Situation, lost: &Lost) -> bool {
        self.0.get(situation).is_some_and(|ways| ways.contains(lost))
    }
}
