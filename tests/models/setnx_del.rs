//! SETNX with the time of expiry as value, and DEL of a lock whose time is over.
//!
//! The way that the page of SETNX warns of. A client that is refused reads the timestamp; if it has passed,
//! the client deletes the lock and asks again. Two clients that have both read the old timestamp both delete,
//! and the second deletes the lock that the first has just taken: **both hold the lock**. No client was slow,
//! and no message was lost; it takes ten steps, of which the crash is one.
//!
//! What it means for you: looking and deleting are two commands, and anything can happen between two
//! commands. Never take over a lock by deleting it. Let it expire by itself (SET NX PX).

use stateright::{Model, Property};

use crate::explore::{Client, explore};

/// The algorithm, and how many follow it. One tick is the lock's timeout: a longer clock finds the same.
struct SetnxDel {
    clients: usize,
}

#[derive(Clone, Debug, Hash, PartialEq)]
struct State {
    lock: Option<Stamp>,
    clients: Vec<Phase>,
}

#[derive(Clone, Copy, Debug, Hash, PartialEq)]
enum Stamp {
    Ahead,
    Passed,
}

/// What a client knows, hence what it does next.
#[derive(Clone, Copy, Debug, Hash, PartialEq)]
enum Phase {
    Ready,
    Refused,
    SawPassed,
    Deleted,
    Holds,
    Crashed,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Setnx(Client),
    Get(Client),
    Del(Client),
    Release(Client),
    Timeout,
}

impl SetnxDel {
    /// The state after a step, and the reply that the client got.
    fn take(&self, state: &State, step: Step) -> (State, &'static str) {
        let mut next = state.clone();
        let reply = match step {
            Step::Setnx(Client(c)) => {
                let is_free = state.lock.is_none();
                if is_free {
                    next.lock = Some(Stamp::Ahead);
                }
                next.clients[c] = if is_free { Phase::Holds } else { Phase::Refused };
                if is_free { "1" } else { "0" }
            }
            Step::Get(Client(c)) => match state.lock {
                Some(Stamp::Passed) => {
                    next.clients[c] = Phase::SawPassed;
                    "a time that has passed"
                }
                lock => {
                    next.clients[c] = Phase::Ready;
                    if lock.is_some() { "a time to come" } else { "(nil)" }
                }
            },
            Step::Del(Client(c)) => {
                next.lock = None;
                next.clients[c] = Phase::Deleted;
                if state.lock.is_some() { "1" } else { "0" }
            }
            Step::Release(Client(c)) => {
                next.lock = None;
                next.clients[c] = Phase::Ready;
                "1"
            }
            Step::Timeout => {
                next.lock = state.lock.map(|_| Stamp::Passed);
                for phase in next.clients.iter_mut().filter(|phase| **phase == Phase::Holds) {
                    *phase = Phase::Crashed;
                }
                ""
            }
        };
        (next, reply)
    }
}

impl Model for SetnxDel {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State { lock: None, clients: vec![Phase::Ready; self.clients] }]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        for client in Client::first(self.clients) {
            match state.clients[client.0] {
                Phase::Ready | Phase::Deleted => steps.push(Step::Setnx(client)),
                Phase::Refused => steps.push(Step::Get(client)),
                Phase::SawPassed => steps.push(Step::Del(client)),
                Phase::Holds => steps.push(Step::Release(client)),
                Phase::Crashed => {}
            }
        }
        steps.push(Step::Timeout);
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        Some(self.take(state, step).0)
    }

    fn format_step(&self, state: &State, step: Step) -> Option<String> {
        let (_, reply) = self.take(state, step);
        Some(match step {
            Step::Setnx(client) => format!("{client}: SETNX lock.foo <now + timeout> → {reply}"),
            Step::Get(client) => format!("{client}: GET lock.foo → {reply}"),
            Step::Del(client) => format!("{client}: DEL lock.foo → {reply}"),
            Step::Release(client) => format!("{client}: DEL lock.foo, to release it → {reply}"),
            Step::Timeout => "the timeout passes; who holds the lock has crashed".to_owned(),
        })
    }
}

fn at_most_one_holds_it() -> Property<SetnxDel> {
    Property::always("at most one holds the lock", |_, state: &State| {
        state.clients.iter().filter(|phase| **phase == Phase::Holds).count() <= 1
    })
}

#[test]
fn two_who_delete_an_expired_lock_both_get_it_as_the_documents_say() {
    // C1 is the documents' C3, who crashed; C2 and C3 are their C1 and C2.
    let story = explore(SetnxDel { clients: 3 }, at_most_one_holds_it()).breaks();
    let documented = [
        "C1: SETNX lock.foo <now + timeout> → 1",
        "C2: SETNX lock.foo <now + timeout> → 0",
        "C3: SETNX lock.foo <now + timeout> → 0",
        "the timeout passes; who holds the lock has crashed",
        "C2: GET lock.foo → a time that has passed",
        "C3: GET lock.foo → a time that has passed",
        "C2: DEL lock.foo → 1",
        "C2: SETNX lock.foo <now + timeout> → 1",
        "C3: DEL lock.foo → 1",
        "C3: SETNX lock.foo <now + timeout> → 1",
    ];
    assert_eq!(story, documented);
}

#[test]
fn a_single_contender_takes_over_from_a_crashed_holder_unharmed() {
    explore(SetnxDel { clients: 2 }, at_most_one_holds_it()).holds();
    let taken_over = Property::sometimes("the lock is held after a crash", |_, state: &State| {
        state.clients.contains(&Phase::Crashed) && state.clients.contains(&Phase::Holds)
    });
    explore(SetnxDel { clients: 2 }, taken_over).happens();
}
