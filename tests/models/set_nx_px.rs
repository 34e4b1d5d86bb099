//! SET NX PX: the server counts the time. What matters then is how the lock is released.
//!
//! A holder may be late: it was paused, or its DEL was. DEL takes no notice of whose lock it deletes, so a
//! late one deletes the next holder's, and a third gets a lock that is held. To GET, compare in the client
//! and then DEL is no better: the lock may expire between the two. **Compare and delete must be one
//! command**: DELIFEQ, or the usual script (`if redis.call('get', …) == token then
//! redis.call('del', …)`). Then, however late a client is: no client deletes another's lock, and two clients
//! never both believe, *within their time*, that they have it.
//!
//! The time is counted from before the request is sent. A client that counts from the reply believes for
//! longer than the server: two of them hold the lock.
//!
//! What it means for you: SET key token NX PX ms with a token of your own, your time counted from before you
//! sent it, and DELIFEQ. What this does not give: a holder that outlives its time does not know; `fencing.rs`
//! has what helps.

use stateright::{Model, Property};

use crate::explore::{Client, explore};

/// Ticks until something ends. Times always count from now, so the walk has no end of time.
type Left = u8;

/// How long a lock lives: at two ticks a client may be early, late or just in time.
const TTL: Left = 2;

/// The algorithm, and how many follow it.
#[derive(Clone, Copy)]
struct SetNxPx {
    clients: usize,
    release: Release,
    counted: Counted,
}

/// Each is sent at one time and executed at another.
#[derive(Clone, Copy, PartialEq)]
enum Release {
    Del,
    GetThenDel,
    DelIfEq,
}

/// From when a client counts its time.
#[derive(Clone, Copy, PartialEq)]
enum Counted {
    FromRequest,
    FromReply,
}

#[derive(Clone, Debug, Hash, PartialEq)]
struct State {
    lock: Option<Lock>,
    clients: Vec<Phase>,
    /// Whether a client has deleted another's lock.
    is_robbed: bool,
}

/// The value is the holder's token; a client has one attempt at a time, so its name does for it.
#[derive(Clone, Copy, Debug, Hash, PartialEq)]
struct Lock {
    token: Client,
    left: Left,
}

/// What a client does; its own count of the time that is left to it goes on at all times, and past its end.
#[derive(Clone, Copy, Debug, Hash, PartialEq)]
enum Phase {
    Ready,
    /// Its SET is under way.
    Asks(Left),
    /// The reply to it, OK, is under way.
    Granted(Left),
    /// It works. With no time left it ought to have stopped, but it may not know.
    Holds(Left),
    /// Its deletion is under way.
    Releases,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Ask(Client),
    Set(Client),
    Hear(Client),
    Finish(Client),
    Delete(Client),
    Tick,
}

impl SetNxPx {
    fn next(&self, state: &State, step: Step) -> Option<(State, &'static str)> {
        let mut next = state.clone();
        let words = match step {
            Step::Ask(Client(c)) => {
                next.clients[c] = Phase::Asks(TTL);
                "sends SET lock <token> NX PX 2"
            }
            Step::Set(client) => {
                let Phase::Asks(left) = state.clients[client.0] else { return None };
                let is_free = state.lock.is_none();
                if is_free {
                    next.lock = Some(Lock { token: client, left: TTL });
                }
                next.clients[client.0] = if is_free { Phase::Granted(left) } else { Phase::Ready };
                if is_free { "has its SET executed → OK" } else { "has its SET executed → (nil)" }
            }
            Step::Hear(Client(c)) => {
                let Phase::Granted(left) = state.clients[c] else { return None };
                next.clients[c] = Phase::Holds(if self.counted == Counted::FromReply { TTL } else { left });
                "receives the OK"
            }
            Step::Finish(client) => {
                let is_own = state.lock.is_some_and(|lock| lock.token == client);
                let goes_on = is_own || self.release != Release::GetThenDel;
                next.clients[client.0] = if goes_on { Phase::Releases } else { Phase::Ready };
                match (self.release, is_own) {
                    (Release::Del, _) => "has finished and sends DEL lock",
                    (Release::DelIfEq, _) => "has finished and sends DELIFEQ lock <token>",
                    (Release::GetThenDel, true) => "has finished, GETs its own token and sends DEL lock",
                    (Release::GetThenDel, false) => "has finished and GETs another's token, or none",
                }
            }
            Step::Delete(client) => {
                let is_anothers = state.lock.is_some_and(|lock| lock.token != client);
                let spares = self.release == Release::DelIfEq && is_anothers;
                next.lock = state.lock.filter(|_| spares);
                next.is_robbed |= is_anothers && !spares;
                next.clients[client.0] = Phase::Ready;
                match (state.lock.is_some(), is_anothers, spares) {
                    (false, ..) => "has its deletion executed → 0",
                    (true, _, true) => "has its deletion executed: it is another's lock → 0",
                    (true, true, false) => "has its deletion executed: it was another's lock → 1",
                    (true, false, false) => "has its deletion executed → 1",
                }
            }
            Step::Tick => {
                tick(&mut next);
                ""
            }
        };
        Some((next, words))
    }
}

fn tick(state: &mut State) {
    state.lock = match state.lock {
        Some(Lock { left: 1, .. }) | None => None,
        Some(Lock { token, left }) => Some(Lock { token, left: left - 1 }),
    };
    for phase in &mut state.clients {
        if let Phase::Asks(left) | Phase::Granted(left) | Phase::Holds(left) = phase {
            *left = left.saturating_sub(1);
        }
    }
}

impl Model for SetNxPx {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State { lock: None, clients: vec![Phase::Ready; self.clients], is_robbed: false }]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        for client in Client::first(self.clients) {
            steps.push(match state.clients[client.0] {
                Phase::Ready => Step::Ask(client),
                Phase::Asks(_) => Step::Set(client),
                Phase::Granted(_) => Step::Hear(client),
                Phase::Holds(_) => Step::Finish(client),
                Phase::Releases => Step::Delete(client),
            });
        }
        steps.push(Step::Tick);
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        Some(self.next(state, step)?.0)
    }

    fn format_step(&self, state: &State, step: Step) -> Option<String> {
        let (next, words) = self.next(state, step)?;
        Some(match step {
            Step::Ask(client) | Step::Set(client) | Step::Hear(client) => format!("{client} {words}"),
            Step::Finish(client) | Step::Delete(client) => format!("{client} {words}"),
            Step::Tick if state.lock.is_some() && next.lock.is_none() => {
                "a tick passes; the lock expires".into()
            }
            Step::Tick => "a tick passes".into(),
        })
    }
}

fn no_client_is_robbed() -> Property<SetNxPx> {
    Property::always("no client deletes the lock of another", |_, state: &State| !state.is_robbed)
}

fn holds_in_its_time(phase: &Phase) -> bool {
    matches!(phase, Phase::Holds(1..))
}

fn at_most_one_holds_it() -> Property<SetNxPx> {
    Property::always("at most one believes, within its time, that it holds the lock", |_, state: &State| {
        state.clients.iter().filter(|phase| holds_in_its_time(phase)).count() <= 1
    })
}

const RIGHT: SetNxPx = SetNxPx { clients: 3, release: Release::DelIfEq, counted: Counted::FromRequest };

#[test]
fn a_late_del_deletes_the_lock_of_another_and_then_two_hold_it() {
    let plain = SetNxPx { release: Release::Del, ..RIGHT };
    let story = explore(plain, no_client_is_robbed()).breaks();
    let late = [
        "C1 sends SET lock <token> NX PX 2",
        "C1 has its SET executed → OK",
        "C1 receives the OK",
        "C1 has finished and sends DEL lock",
        "C2 sends SET lock <token> NX PX 2",
        "a tick passes",
        "a tick passes; the lock expires",
        "C2 has its SET executed → OK",
        "C1 has its deletion executed: it was another's lock → 1",
    ];
    assert_eq!(story, late);
    let story = explore(plain, at_most_one_holds_it()).breaks();
    assert_eq!(story.last().unwrap(), "C3 receives the OK");
}

#[test]
fn to_compare_in_the_client_before_del_is_no_better() {
    let compared = SetNxPx { release: Release::GetThenDel, ..RIGHT };
    explore(compared, no_client_is_robbed()).breaks();
    let story = explore(compared, at_most_one_holds_it()).breaks();
    let between_the_two = [
        "C1 sends SET lock <token> NX PX 2",
        "C1 has its SET executed → OK",
        "C1 receives the OK",
        "C1 has finished, GETs its own token and sends DEL lock",
        "a tick passes",
        "C2 sends SET lock <token> NX PX 2",
        "C3 sends SET lock <token> NX PX 2",
        "a tick passes; the lock expires",
        "C2 has its SET executed → OK",
        "C1 has its deletion executed: it was another's lock → 1",
        "C2 receives the OK",
        "C3 has its SET executed → OK",
        "C3 receives the OK",
    ];
    assert_eq!(story, between_the_two);
}

#[test]
fn with_compare_and_delete_no_client_is_robbed_and_one_holds_the_lock() {
    for clients in [3, 4] {
        explore(SetNxPx { clients, ..RIGHT }, no_client_is_robbed()).holds();
        explore(SetNxPx { clients, ..RIGHT }, at_most_one_holds_it()).holds();
    }
}

#[test]
fn a_holder_that_outlives_its_time_is_there_beside_the_next() {
    let beside = Property::sometimes("two work, the time of one is over", |_, state: &State| {
        state.clients.iter().filter(|phase| matches!(phase, Phase::Holds(_))).count() == 2
            && state.clients.iter().any(holds_in_its_time)
    });
    explore(RIGHT, beside).happens();
}

#[test]
fn a_client_that_counts_its_time_from_the_reply_believes_for_too_long() {
    let late = SetNxPx { counted: Counted::FromReply, ..RIGHT };
    let story = explore(late, at_most_one_holds_it()).breaks();
    let counted_anew = [
        "C1 sends SET lock <token> NX PX 2",
        "C1 has its SET executed → OK",
        "C2 sends SET lock <token> NX PX 2",
        "a tick passes",
        "C1 receives the OK",
        "a tick passes; the lock expires",
        "C2 has its SET executed → OK",
        "C2 receives the OK",
    ];
    assert_eq!(story, counted_anew);
}
