//! SETNX with the time of expiry as value, and GETSET to take over a lock whose time is over.
//!
//! The documents' way out of the race of `setnx_del.rs`. A client that is refused reads the timestamp; if it
//! has passed, the client writes its own with GETSET and looks at the one that it replaced: if that one had
//! passed, the client has the lock, otherwise another was quicker. "Quicker" is decided by one command, so
//! two never win.
//!
//! But the loser has written, too. The documents call this no problem, as the loser's timestamp is about the
//! winner's. It is *older* than the winner's by as long as its request was under way, so it **shortens the
//! winner's lock**: by then another client takes over, while the winner believes in its own timestamp. Hence,
//! as the walks below show:
//!
//! - Requests without delay: two never hold the lock, as long as no client deletes it after its time.
//! - Requests with a delay shorter than the timeout: a holder must stop that delay *before* its own
//!   timestamp. Then two never hold it. Without that margin they do.
//! - Requests as slow as the timeout: no margin helps. The loser's timestamp has passed when it is written,
//!   the winner has just begun, and a third takes the lock away from it.
//! - A holder must look at the clock before it deletes the lock, or it deletes another client's; and as its
//!   DEL is under way for a while, too, it must stop *twice* the delay before its timestamp. Once is not
//!   enough.
//!
//! All clients read the same clock here. In life their clocks differ, and the difference adds to the delay.
//!
//! What it means for you: it can be made right, if you know how long a request may take. SET NX PX has the
//! server count the time, and only the winner writes: take that.

use stateright::{Model, Property};

use crate::explore::{Client, explore};

/// Ticks until a time; 0 is a time that has passed. Times always count from now, so the walk has no end of
/// time.
type Left = u8;

/// The algorithm, and how many follow it.
#[derive(Clone, Copy)]
struct Getset {
    clients: usize,
    /// Ticks from taking the lock until others may take it over.
    timeout: Left,
    /// The most ticks for which a SETNX, GETSET or DEL is under way: from looking at the clock to its reply.
    /// At most the timeout.
    delay: u8,
    /// A holder stops so many ticks before its own timestamp.
    margin: Left,
    release: Release,
}

#[derive(Clone, Copy, PartialEq)]
enum Release {
    /// Never: all locks expire.
    Never,
    /// DEL by a holder that has looked at the clock just before, as the documents say.
    AfterLooking,
    /// DEL by a holder whenever it has finished.
    Blindly,
}

#[derive(Clone, Debug, Hash, PartialEq)]
struct State {
    lock: Option<Left>,
    clients: Vec<Phase>,
}

/// What a client knows, hence what it does next.
#[derive(Clone, Copy, Debug, Hash, PartialEq)]
enum Phase {
    Ready,
    Refused,
    SawPassed,
    /// Its own timestamp, until which it believes to hold the lock (less the margin).
    Holds(Left),
    /// A SETNX is under way, with this timestamp.
    Setnx(Left),
    /// A GETSET is under way, with this timestamp.
    Getset(Left),
    /// A DEL is under way, for so many ticks.
    Del(u8),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    /// The client looks at the clock and sends what comes next.
    Send(Client),
    /// What the client sent is executed and answered.
    Execute(Client),
    Tick,
}

impl Getset {
    fn believes(&self, phase: Phase) -> bool {
        matches!(phase, Phase::Holds(left) if left > self.margin)
    }

    /// For how long a request has been under way.
    fn age(&self, phase: Phase) -> Option<u8> {
        match phase {
            Phase::Setnx(left) | Phase::Getset(left) => Some(self.timeout - left),
            Phase::Del(age) => Some(age),
            _ => None,
        }
    }

    fn send(&self, phase: Phase) -> Option<(Phase, &'static str)> {
        match phase {
            Phase::Ready => Some((Phase::Setnx(self.timeout), "looks at the clock and sends SETNX")),
            Phase::SawPassed => Some((Phase::Getset(self.timeout), "looks at the clock and sends GETSET")),
            Phase::Holds(_) => match self.release {
                Release::Never => None,
                Release::AfterLooking if self.believes(phase) => {
                    Some((Phase::Del(0), "looks at the clock, still holds the lock, and sends DEL"))
                }
                Release::AfterLooking => None,
                Release::Blindly => Some((Phase::Del(0), "has finished and sends DEL")),
            },
            _ => None,
        }
    }

    /// The lock and the client's phase after its request was executed, and in words what was.
    fn execute(&self, lock: Option<Left>, phase: Phase) -> Option<(Option<Left>, Phase, String)> {
        let reply = match lock {
            None => "(nil)",
            Some(0) => "a time that has passed",
            Some(_) => "a time to come",
        };
        // A lock that was released in the meantime is as good as one whose time has passed.
        let wins = matches!(lock, None | Some(0));
        let outcome = if wins { "has the lock" } else { "has lost" };
        Some(match (phase, lock) {
            (Phase::Setnx(left), None) => {
                (Some(left), Phase::Holds(left), format!("SETNX {} → 1", time(left)))
            }
            (Phase::Setnx(left), _) => (lock, Phase::Refused, format!("SETNX {} → 0", time(left))),
            (Phase::Refused, Some(0)) => (lock, Phase::SawPassed, format!("GET → {reply}")),
            (Phase::Refused, _) => (lock, Phase::Ready, format!("GET → {reply}")),
            (Phase::Getset(left), _) => {
                let phase = if wins { Phase::Holds(left) } else { Phase::Ready };
                (Some(left), phase, format!("GETSET {} → {reply}: it {outcome}", time(left)))
            }
            (Phase::Del(_), _) => (None, Phase::Ready, format!("DEL → {}", u8::from(lock.is_some()))),
            _ => return None,
        })
    }

    /// All times come nearer by one, unless a request would be under way for too long.
    fn tick(&self, state: &State) -> Option<State> {
        let is_slow = |phase: &Phase| self.age(*phase).is_some_and(|age| age >= self.delay);
        if state.clients.iter().any(is_slow) {
            return None;
        }
        let mut next = state.clone();
        next.lock = state.lock.map(|left| left.saturating_sub(1));
        for phase in &mut next.clients {
            *phase = match *phase {
                Phase::Setnx(left) => Phase::Setnx(left - 1),
                Phase::Getset(left) => Phase::Getset(left - 1),
                Phase::Del(age) => Phase::Del(age + 1),
                Phase::Holds(left) => self.stay(left.saturating_sub(1)),
                phase => phase,
            };
        }
        Some(next)
    }

    /// A holder that has looked at the clock, or would before it does anything.
    fn stay(&self, left: Left) -> Phase {
        let holds = Phase::Holds(left);
        if self.believes(holds) || self.release == Release::Blindly { holds } else { Phase::Ready }
    }
}

fn time(left: Left) -> String {
    if left == 0 { "<a time that has passed>".to_owned() } else { format!("<now + {left}>") }
}

impl Model for Getset {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State { lock: None, clients: vec![Phase::Ready; self.clients] }]
    }

    fn actions(&self, _: &State, steps: &mut Vec<Step>) {
        for client in Client::first(self.clients) {
            steps.extend([Step::Send(client), Step::Execute(client)]);
        }
        steps.push(Step::Tick);
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        let mut next = state.clone();
        match step {
            Step::Send(Client(c)) => next.clients[c] = self.send(state.clients[c])?.0,
            Step::Execute(Client(c)) => {
                (next.lock, next.clients[c], _) = self.execute(state.lock, state.clients[c])?;
            }
            Step::Tick => return self.tick(state),
        }
        Some(next)
    }

    fn format_step(&self, state: &State, step: Step) -> Option<String> {
        Some(match step {
            Step::Send(client) => format!("{client} {}", self.send(state.clients[client.0])?.1),
            Step::Execute(client) => {
                let (.., words) = self.execute(state.lock, state.clients[client.0])?;
                format!("{client}: {words}")
            }
            Step::Tick => match (state.lock, self.tick(state)?.lock) {
                (Some(1), Some(0)) => "a tick passes, and the lock's time with it".to_owned(),
                _ => "a tick passes".to_owned(),
            },
        })
    }
}

fn at_most_one_holds_it() -> Property<Getset> {
    Property::always("at most one holds the lock, by its own timestamp", |model, state: &State| {
        state.clients.iter().filter(|phase| model.believes(**phase)).count() <= 1
    })
}

const PROMPT: Getset = Getset { clients: 3, timeout: 3, delay: 0, margin: 0, release: Release::AfterLooking };

#[test]
fn requests_without_delay_give_the_lock_to_one_if_a_holder_looks_before_it_deletes() {
    explore(PROMPT, at_most_one_holds_it()).holds();
    explore(Getset { clients: 4, ..PROMPT }, at_most_one_holds_it()).holds();
    let contended =
        Property::sometimes("a GETSET is under way that will lose", |model: &Getset, state: &State| {
            let loses =
                |phase: &Phase| matches!(phase, Phase::Getset(_)) && state.lock.is_some_and(|left| left > 0);
            state.clients.iter().any(loses) && state.clients.iter().any(|phase| model.believes(*phase))
        });
    explore(PROMPT, contended).happens();
}

#[test]
fn a_holder_that_does_not_look_before_it_deletes_deletes_the_lock_of_another() {
    let blind = Getset { release: Release::Blindly, ..PROMPT };
    let story = explore(blind, at_most_one_holds_it()).breaks();
    let late_release = [
        "C1 has finished and sends DEL",
        "C2: GET → a time that has passed",
        "C2 looks at the clock and sends GETSET",
        "C2: GETSET <now + 3> → a time that has passed: it has the lock",
        "C1: DEL → 1",
        "C1 looks at the clock and sends SETNX",
        "C1: SETNX <now + 3> → 1",
    ];
    assert_eq!(story[7..], late_release);
}

#[test]
fn a_loser_that_is_slow_shortens_the_lock_of_the_winner() {
    let slow = Getset { delay: 1, release: Release::Never, ..PROMPT };
    let story = explore(slow, at_most_one_holds_it()).breaks();
    let shortened = [
        "C1 looks at the clock and sends GETSET",
        "C2: GET → a time that has passed",
        "C3: GET → a time that has passed",
        "a tick passes",
        "C2 looks at the clock and sends GETSET",
        "C2: GETSET <now + 3> → a time that has passed: it has the lock",
        "C1: GETSET <now + 2> → a time to come: it has lost",
        "a tick passes",
        "C3 looks at the clock and sends GETSET",
        "a tick passes, and the lock's time with it",
        "C3: GETSET <now + 2> → a time that has passed: it has the lock",
    ];
    assert_eq!(story[12..], shortened);
}

#[test]
fn a_holder_that_stops_the_delay_before_its_time_is_alone() {
    for delay in 1..PROMPT.timeout {
        let careful = Getset { delay, margin: delay, release: Release::Never, ..PROMPT };
        explore(careful, at_most_one_holds_it()).holds();
    }
}

#[test]
fn a_holder_whose_release_is_slow_must_stop_twice_the_delay_before() {
    let once = Getset { delay: 1, margin: 1, ..PROMPT };
    let story = explore(once, at_most_one_holds_it()).breaks();
    let taken_over_before_it_is_released = [
        "a tick passes, and the lock's time with it",
        "C3: GETSET <now + 2> → a time that has passed: it has the lock",
        "C2: DEL → 1",
        "C1: SETNX <now + 2> → 1",
    ];
    assert_eq!(story[23..], taken_over_before_it_is_released);
    let twice = Getset { delay: 1, margin: 2, ..PROMPT };
    explore(twice, at_most_one_holds_it()).holds();
}

#[test]
fn a_loser_as_slow_as_the_timeout_writes_a_time_that_has_passed_and_no_margin_helps() {
    // The greatest margin that leaves a holder any time at all.
    let margin = PROMPT.timeout - 1;
    let slowest = Getset { delay: PROMPT.timeout, margin, release: Release::Never, ..PROMPT };
    let story = explore(slowest, at_most_one_holds_it()).breaks();
    let taken_away_at_once = [
        "C2 looks at the clock and sends GETSET",
        "C2: GETSET <now + 3> → a time that has passed: it has the lock",
        "C1: GETSET <a time that has passed> → a time to come: it has lost",
        "C3 looks at the clock and sends GETSET",
        "C3: GETSET <now + 3> → a time that has passed: it has the lock",
    ];
    assert_eq!(story[18..], taken_away_at_once);
}
