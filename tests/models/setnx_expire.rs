//! SETNX, and EXPIRE as a second command: a client that crashes between the two leaves the lock for ever.
//!
//! "For ever" is meant: the walk finds a state in which no action of a client, and no time that passes,
//! changes anything any more. Two steps lead there. With SET NX PX there is no such state: whichever client
//! crashes, and whenever, the lock is free after its time at the latest, and another can take it.
//!
//! What it means for you: a lock and its expiry are one command, SET key token NX PX ms. Where you must have
//! SETNX, put it and PEXPIRE into one script. (Not into MULTI: there EXPIRE runs though SETNX was refused,
//! and prolongs the lock of another.)

use stateright::{Model, Property};

use crate::explore::{Client, explore};

/// How long a lock lives that has an expiry, in ticks.
const TTL: u8 = 2;

/// The algorithm, and how many follow it. All but one of them may crash.
#[derive(Clone, Copy)]
struct Expiring {
    clients: usize,
    taking: Taking,
}

#[derive(Clone, Copy, PartialEq)]
enum Taking {
    SetnxThenExpire,
    SetNxPx,
}

#[derive(Clone, Debug, Hash, PartialEq)]
struct State {
    lock: Option<Lock>,
    clients: Vec<Phase>,
}

#[derive(Clone, Copy, Debug, Hash, PartialEq)]
struct Lock {
    holder: Client,
    /// Ticks until it expires; none if it does not.
    left: Option<u8>,
}

#[derive(Clone, Copy, Debug, Hash, PartialEq)]
enum Phase {
    Ready,
    /// It has the lock and has not yet given it an expiry.
    Taken,
    Holds,
    Crashed {
        had_the_lock: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Take(Client),
    Expire(Client),
    Release(Client),
    Crash(Client),
    Tick,
}

impl Model for Expiring {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State { lock: None, clients: vec![Phase::Ready; self.clients] }]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        let living = state.clients.iter().filter(|phase| !matches!(phase, Phase::Crashed { .. })).count();
        for client in Client::first(self.clients) {
            match state.clients[client.0] {
                Phase::Ready => steps.push(Step::Take(client)),
                Phase::Taken => steps.push(Step::Expire(client)),
                Phase::Holds => steps.push(Step::Release(client)),
                Phase::Crashed { .. } => continue,
            }
            if living > 1 {
                steps.push(Step::Crash(client));
            }
        }
        steps.push(Step::Tick);
    }

    /// None where nothing changes: a client is refused, or time passes for a lock without an expiry.
    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        let mut next = state.clone();
        match step {
            Step::Take(_) if state.lock.is_some() => return None,
            Step::Take(holder) => {
                let (left, phase) = match self.taking {
                    Taking::SetnxThenExpire => (None, Phase::Taken),
                    Taking::SetNxPx => (Some(TTL), Phase::Holds),
                };
                next.lock = Some(Lock { holder, left });
                next.clients[holder.0] = phase;
            }
            Step::Expire(holder) => {
                next.lock = Some(Lock { holder, left: Some(TTL) });
                next.clients[holder.0] = Phase::Holds;
            }
            Step::Release(Client(c)) => {
                next.lock = None;
                next.clients[c] = Phase::Ready;
            }
            Step::Crash(Client(c)) => {
                let had_the_lock = state.clients[c] != Phase::Ready;
                next.clients[c] = Phase::Crashed { had_the_lock };
            }
            Step::Tick => {
                let Lock { holder, left } = state.lock?;
                next.lock = Some(Lock { holder, left: Some(left? - 1) });
                if left == Some(1) {
                    next.lock = None;
                    if state.clients[holder.0] == Phase::Holds {
                        next.clients[holder.0] = Phase::Ready;
                    }
                }
            }
        }
        Some(next)
    }

    fn format_step(&self, _: &State, step: Step) -> Option<String> {
        Some(match (step, self.taking) {
            (Step::Take(client), Taking::SetnxThenExpire) => format!("{client}: SETNX lock <token> → 1"),
            (Step::Take(client), Taking::SetNxPx) => format!("{client}: SET lock <token> NX PX {TTL} → OK"),
            (Step::Expire(client), _) => format!("{client}: PEXPIRE lock {TTL} → 1"),
            (Step::Release(client), _) => format!("{client}: releases the lock"),
            (Step::Crash(client), _) => format!("{client} crashes"),
            (Step::Tick, _) => "a tick passes".to_owned(),
        })
    }
}

/// Crashes apart, which free no lock.
fn something_can_change() -> Property<Expiring> {
    Property::always("something can still change", |model: &Expiring, state: &State| {
        model.next_steps(state).iter().any(|(step, _)| !matches!(step, Step::Crash(_)))
    })
}

#[test]
fn a_crash_between_setnx_and_expire_leaves_the_lock_for_ever() {
    for clients in [2, 3] {
        let separate = Expiring { clients, taking: Taking::SetnxThenExpire };
        let story = explore(separate, something_can_change()).breaks();
        let crash = ["C1: SETNX lock <token> → 1", "C1 crashes"];
        assert_eq!(story, crash);
    }
}

#[test]
fn a_lock_set_with_its_expiry_becomes_free_whichever_client_crashes() {
    for clients in [2, 3] {
        let together = Expiring { clients, taking: Taking::SetNxPx };
        explore(together, something_can_change()).holds();
        let has_an_end = Property::always("every lock has an end", |_, state: &State| {
            state.lock.is_none_or(|lock| lock.left.is_some())
        });
        explore(together, has_an_end).holds();
        let taken_again = Property::sometimes("it is held after its holder crashed", |_, state: &State| {
            let crashed = Phase::Crashed { had_the_lock: true };
            state.clients.contains(&crashed) && state.clients.contains(&Phase::Holds)
        });
        explore(together, taken_again).happens();
    }
}
