//! LOCK ACQUIRE … ALSO: several locks at once, beside a client that holds one lock and asks for another.
//!
//! - A client that waits holds none of the locks, and keeps none from others: a lock goes to the first that
//!   can take all it has asked for. So a client that asks for all it needs by one request is in no deadlock,
//!   whatever the others do.
//! - If the first in a line let no other client pass, it would keep a free lock from the holder of the one
//!   that it lacks: a deadlock, out of a lock that is free.
//! - The price is that a client may be overtaken, as often as others come.
//! - Clients that take one lock after the other in different orders are a deadlock as ever.
//! - Readers (SHARED) that ask for several locks at once leave each one to the writers that waited for it
//!   alone before they came. If they joined other readers there, a writer might wait for as long as readers
//!   come.
//! - Whatever frees a lock grants it at once: no client waits for locks that are all free.
//! - The number is larger than those of all earlier holders of each lock, also if a lock is released alone.
//!
//! What it means for you: ask for all locks by one request, in whatever order; or take them one after the
//! other in the same order everywhere.

use stateright::{Model, Property};

use crate::explore::{Client, explore};

/// The locks, as a set of bits.
type Locks = u8;
const A: Locks = 1;
const B: Locks = 2;
const BOTH: Locks = A | B;

/// What a client asks for: whole locks, or permits of them beside other readers.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Request {
    Whole(Locks),
    Shared(Locks),
}

use Request::{Shared, Whole};

impl Request {
    fn locks(self) -> Locks {
        let (Whole(locks) | Shared(locks)) = self;
        locks
    }

    /// Whether it is for one lock, so that those behind it leave that one to it.
    fn is_single(self) -> bool {
        self.locks().count_ones() == 1
    }
}

/// Clients that ask for locks, each by its requests, hold what they get, and release it at the end.
#[derive(Clone, Copy)]
struct Asking {
    /// What each client asks for, request by request.
    requests: [&'static [Request]; 3],
    line: Line,
    rounds: u8,
}

/// One client takes both at once, one takes A and then B, and one takes B alone.
const OFFERED: Asking =
    Asking { requests: [&[Whole(BOTH)], &[Whole(A), Whole(B)], &[Whole(B)]], line: Line::Passes, rounds: 2 };

/// One client reads both at once, one reads A and then writes B, and one writes A.
const SHARING: Asking =
    Asking { requests: [&[Shared(BOTH)], &[Shared(A), Whole(B)], &[Whole(A)]], ..OFFERED };

/// What a client in line leaves to the others.
#[derive(Clone, Copy, PartialEq)]
enum Line {
    /// One that asks for several locks reserves none, and leaves each to those before it that wait for it
    /// alone.
    Passes,
    /// One that lacks a lock keeps those behind it from the others.
    Reserves,
    /// One that asks for several locks leaves none to those before it.
    Joins,
}

#[derive(Clone, Debug, Hash, PartialEq)]
struct State {
    clients: [Progress; 3],
    /// The clients that wait, in the order in which they came.
    waiting: Vec<Client>,
    drawn: u8,
    /// The greatest number of a holder of each lock so far.
    shown: [u8; 2],
    so_far: SoFar,
}

/// How far a client has come.
#[derive(Clone, Copy, Debug, Default, Hash, PartialEq)]
struct Progress {
    /// How many of its requests were granted.
    granted: usize,
    holds: Locks,
    /// Those of them that it holds beside other readers.
    reads: Locks,
    rounds: u8,
}

#[derive(Clone, Copy, Debug, Default, Hash, PartialEq)]
struct SoFar {
    has_two_holders: bool,
    has_repeated: bool,
    was_overtaken: bool,
    /// One that waited for a single lock was overtaken by one that asked for several.
    has_jumped: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Ask(Client),
    /// The lock of one bit.
    Release(Client, Locks),
    GiveUp(Client),
}

impl Asking {
    fn next_request(&self, state: &State, client: Client) -> Option<Request> {
        self.requests[client.0].get(state.clients[client.0].granted).copied()
    }

    fn held(state: &State) -> Locks {
        state.clients.iter().fold(0, |held, client| held | client.holds)
    }

    /// The locks that others hold so that a request cannot have them.
    fn kept(state: &State, wanted: Request) -> Locks {
        match wanted {
            Whole(_) => Self::held(state),
            Shared(_) => state.clients.iter().fold(0, |kept, client| kept | client.holds & !client.reads),
        }
    }

    /// Whether a client can be granted what it asks for, while these stand before it.
    fn can_take(&self, state: &State, wanted: Request, before: &[Client]) -> bool {
        let before = before.iter().filter_map(|other| self.next_request(state, *other));
        let reserved = before.filter(|other| match self.line {
            Line::Reserves => true,
            Line::Passes => other.is_single(),
            Line::Joins => other.is_single() && wanted.is_single(),
        });
        let reserved = reserved.fold(0, |all, one| all | one.locks());
        wanted.locks() & (Self::kept(state, wanted) | reserved) == 0
    }

    fn grant(&self, next: &mut State, client: Client, wanted: Request, before: &[Client]) {
        let locks = wanted.locks();
        next.so_far.has_two_holders |= Self::kept(next, wanted) & locks != 0;
        let before = before.iter().filter_map(|other| self.next_request(next, *other));
        let overtaken: Vec<Request> = before.filter(|other| other.locks() & locks != 0).collect();
        next.so_far.was_overtaken |= !overtaken.is_empty();
        next.so_far.has_jumped |= overtaken.iter().any(|other| other.is_single());
        next.drawn += 1;
        for (bit, shown) in [A, B].into_iter().zip(&mut next.shown) {
            if locks & bit != 0 {
                next.so_far.has_repeated |= next.drawn <= *shown;
                *shown = next.drawn;
            }
        }
        let own = &mut next.clients[client.0];
        own.holds |= locks;
        own.reads |= if let Shared(locks) = wanted { locks } else { 0 };
        own.granted += 1;
        next.waiting.retain(|other| *other != client);
    }

    /// Serves those who wait, in their order.
    fn serve(&self, next: &mut State) {
        let mut at = 0;
        while let Some(client) = next.waiting.get(at).copied() {
            let before = next.waiting[..at].to_vec();
            match self.next_request(next, client) {
                Some(wanted) if self.can_take(next, wanted, &before) => {
                    self.grant(next, client, wanted, &before);
                }
                _ => at += 1,
            }
        }
    }
}

impl Model for Asking {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let (clients, so_far) = ([Progress::default(); 3], SoFar::default());
        vec![State { clients, waiting: Vec::new(), drawn: 0, shown: [0; 2], so_far }]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        for client in Client::first(self.requests.len()) {
            let own = state.clients[client.0];
            if state.waiting.contains(&client) {
                // It may give up what it waits for only if it holds nothing: a program that is in a deadlock.
                steps.extend((own.holds == 0).then_some(Step::GiveUp(client)));
            } else if self.next_request(state, client).is_some() && own.rounds < self.rounds {
                steps.push(Step::Ask(client));
            } else {
                let held = [A, B].into_iter().filter(|lock| own.holds & lock != 0);
                steps.extend(held.map(|lock| Step::Release(client, lock)));
            }
        }
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        let mut next = state.clone();
        match step {
            Step::Ask(client) => {
                let wanted = self.next_request(state, client)?;
                let before = state.waiting.clone();
                match self.can_take(state, wanted, &before) {
                    true => self.grant(&mut next, client, wanted, &before),
                    false => next.waiting.push(client),
                }
            }
            Step::Release(client, lock) => {
                let own = &mut next.clients[client.0];
                (own.holds, own.reads) = (own.holds & !lock, own.reads & !lock);
                if own.holds == 0 {
                    (own.granted, own.rounds) = (0, own.rounds + 1);
                }
                self.serve(&mut next);
            }
            Step::GiveUp(client) => {
                next.waiting.retain(|other| *other != client);
                next.clients[client.0].rounds = self.rounds;
                self.serve(&mut next);
            }
        }
        Some(next)
    }

    fn format_step(&self, state: &State, step: Step) -> Option<String> {
        let names = |locks: Locks| match locks {
            A => "A",
            B => "B",
            _ => "A and B",
        };
        let words = |wanted: Request| match wanted {
            Whole(locks) => names(locks).to_owned(),
            Shared(locks) => format!("{} beside readers", names(locks)),
        };
        Some(match step {
            Step::Ask(client) => {
                let wanted = self.next_request(state, client)?;
                let is_granted = self.can_take(state, wanted, &state.waiting);
                let outcome = if is_granted { "is granted" } else { "waits for" };
                format!("{client} {outcome} {}", words(wanted))
            }
            Step::Release(client, lock) => format!("{client} releases {}", names(lock)),
            Step::GiveUp(client) => format!("{client} gives up"),
        })
    }
}

/// A client that holds a lock and waits, while no client can do anything but wait, or give up.
fn no_deadlock() -> Property<Asking> {
    Property::always("no holder waits for ever", |model: &Asking, state: &State| {
        let mut steps = Vec::new();
        model.actions(state, &mut steps);
        let goes_on = steps.iter().any(|step| !matches!(step, Step::GiveUp(_)));
        goes_on || state.waiting.iter().all(|client| state.clients[client.0].holds == 0)
    })
}

fn one_holder() -> Property<Asking> {
    Property::always("each lock has one holder, or readers", |_, state: &State| !state.so_far.has_two_holders)
}

fn numbers_grow() -> Property<Asking> {
    Property::always("each holder of a lock has a greater number", |_, state: &State| {
        !state.so_far.has_repeated
    })
}

/// All that it asks for could be granted to it, and no client before it waits for one of them alone.
fn no_client_waits_for_free_locks() -> Property<Asking> {
    Property::always("no client waits for locks that are all free", |model: &Asking, state: &State| {
        let line = Asking { line: Line::Passes, ..*model };
        let request = |place: usize| model.next_request(state, state.waiting[place]);
        let can_take = |place| {
            request(place).is_some_and(|wanted| line.can_take(state, wanted, &state.waiting[..place]))
        };
        !(0..state.waiting.len()).any(can_take)
    })
}

fn no_single_is_overtaken() -> Property<Asking> {
    Property::always("no client that waits for one lock is overtaken there", |_, state: &State| {
        !state.so_far.has_jumped
    })
}

#[test]
fn a_client_that_asks_for_all_at_once_is_in_no_deadlock_and_keeps_no_free_lock_from_others() {
    for property in [no_deadlock(), one_holder(), numbers_grow(), no_client_waits_for_free_locks()] {
        explore(OFFERED, property).holds();
    }
    let overtaken =
        Property::sometimes("a client is overtaken", |_, state: &State| state.so_far.was_overtaken);
    explore(OFFERED, overtaken).happens();
}

#[test]
fn readers_of_several_locks_are_in_no_deadlock_and_leave_each_lock_to_the_writers_before_them() {
    let properties = [
        no_deadlock(),
        one_holder(),
        numbers_grow(),
        no_client_waits_for_free_locks(),
        no_single_is_overtaken(),
    ];
    for property in properties {
        explore(SHARING, property).holds();
    }
    let both_read =
        |_: &Asking, state: &State| state.clients.iter().filter(|own| own.reads & A != 0).count() == 2;
    explore(SHARING, Property::sometimes("two read A", both_read)).happens();
}

#[test]
fn readers_of_several_locks_that_join_others_overtake_a_writer() {
    let joining = Asking { line: Line::Joins, ..SHARING };
    let story = explore(joining, no_single_is_overtaken()).breaks();
    let expected =
        ["C2 is granted A beside readers", "C3 waits for A", "C1 is granted A and B beside readers"];
    assert_eq!(story, expected);
    explore(joining, one_holder()).holds();
}

#[test]
fn a_line_that_lets_no_client_pass_is_a_deadlock_out_of_a_free_lock() {
    let reserving = Asking { line: Line::Reserves, ..OFFERED };
    let story = explore(reserving, no_deadlock()).breaks();
    // The third client, too, could have had B.
    let expected = ["C2 is granted A", "C1 waits for A and B", "C2 waits for B", "C3 waits for B"];
    assert_eq!(story, expected);
    explore(reserving, no_client_waits_for_free_locks()).breaks();
    explore(reserving, one_holder()).holds();
}

#[test]
fn locks_that_are_taken_one_after_the_other_in_different_orders_are_a_deadlock() {
    let one_by_one =
        Asking { requests: [&[Whole(B), Whole(A)], &[Whole(A), Whole(B)], &[Whole(B)]], ..OFFERED };
    let story = explore(one_by_one, no_deadlock()).breaks();
    assert_eq!(story.len(), 5, "{story:?}");
    let at_once = Asking { requests: [&[Whole(BOTH)], &[Whole(BOTH)], &[Whole(A), Whole(B)]], ..OFFERED };
    explore(at_once, no_deadlock()).holds();
}
