//! Redlock: a lock held by most of several independent servers.
//!
//! A client asks each server for the lock with SET NX PX and a token; if more than half granted it, and the
//! time since it began to ask is shorter than the lock's, it holds the lock for what is left of that time.
//! Releasing is compare-and-delete at each server. Two majorities have a server in common, and that grants
//! one lock at a time: so two clients never both hold it. The walk confirms it, for two and three clients
//! with three servers and for two with five, even if one is slow, gives up half-way, asks in another
//! order or does not reach some of them.
//!
//! Unless the server in common **forgets**. One restart of one server without its data is enough: it grants
//! the lock again, within the time of the first holder. A server that stays away after a restart for as long
//! as locks live has nothing left to forget: then two never hold the lock, however many restart. A shorter
//! wait is not enough.
//!
//! All clocks run alike here. One that jumps ahead lets a lock expire early, which is forgetting, too.
//!
//! What it means for you: with Redlock, a restarted server must stay away for the longest lock's time, or
//! have written everything to disk before it answered (`appendfsync always`). And Redlock, like any lock with
//! an expiry, does not stop a holder that outlives its time: see `fencing.rs`.

use std::hash::{Hash, Hasher};

use stateright::{Model, Property};

use crate::explore::{Client, explore};

/// Ticks until something ends. Times always count from now, so the walk has no end of time.
type Left = u8;

/// How long a lock lives.
const TTL: Left = 2;

/// The algorithm, and how many follow it with how many servers.
#[derive(Clone, Copy)]
struct Redlock {
    clients: usize,
    servers: usize,
    restarts: Restarts,
}

/// What servers do, at any time and any number of times.
#[derive(Clone, Copy, PartialEq)]
enum Restarts {
    /// They do not, or find everything again.
    Never,
    /// They are back after so many ticks, with nothing.
    Forgetting(Left),
}

#[derive(Clone, Debug, PartialEq)]
struct State {
    clients: Vec<Phase>,
    servers: Vec<Server>,
}

/// Of states that differ only in the order of the servers one is as good as another: their hashes are the
/// same, so the walk visits one of them.
impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let mut servers = self.servers.clone();
        servers.sort();
        (&self.clients, servers).hash(hasher);
    }
}

#[derive(Clone, Copy, Debug, Hash, PartialEq)]
enum Phase {
    Ready,
    /// It collects votes; its time has begun.
    Asks(Left),
    Holds(Left),
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, PartialOrd, Ord)]
struct Server {
    /// Ticks until it is back.
    away: Left,
    /// The token (as good as the client's name, while it has one attempt at a time), and the ticks until it
    /// expires.
    lock: Option<(Client, Left)>,
    /// Which clients count on its vote, while they ask.
    votes: Vec<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Begin(Client),
    Ask(Client, usize),
    /// It stops asking, or has finished its work.
    Stop(Client),
    /// Its compare-and-delete arrives, some time after it has stopped, or never. (One that arrives after it
    /// has begun anew finds another token and does nothing.)
    Delete(Client, usize),
    Restart(usize),
    Tick,
}

impl Redlock {
    fn ask(&self, state: &mut State, client: Client, server: usize) -> Option<()> {
        let Phase::Asks(left) = state.clients[client.0] else { return None };
        let asked = &mut state.servers[server];
        if asked.away > 0 || asked.lock.is_some() || asked.votes[client.0] {
            return None;
        }
        asked.lock = Some((client, TTL));
        asked.votes[client.0] = true;
        let votes = state.servers.iter().filter(|server| server.votes[client.0]).count();
        if votes > self.servers / 2 {
            leave(state, client, Phase::Holds(left));
        }
        Some(())
    }

    fn restart(&self, server: &mut Server) -> Option<()> {
        let Restarts::Forgetting(away) = self.restarts else { return None };
        (server.lock, server.away) = (None, away);
        Some(())
    }
}

/// The client asks no longer, and its votes are of no more use.
fn leave(state: &mut State, client: Client, phase: Phase) {
    state.clients[client.0] = phase;
    for server in &mut state.servers {
        server.votes[client.0] = false;
    }
}

fn tick(state: &mut State) {
    for server in &mut state.servers {
        server.away = server.away.saturating_sub(1);
        server.lock = server.lock.and_then(|(client, left)| (left > 1).then(|| (client, left - 1)));
    }
    for client in Client::first(state.clients.len()) {
        match &mut state.clients[client.0] {
            Phase::Asks(1) | Phase::Holds(1) => leave(state, client, Phase::Ready),
            Phase::Asks(left) | Phase::Holds(left) => *left -= 1,
            Phase::Ready => {}
        }
    }
}

impl Model for Redlock {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let server = Server { away: 0, lock: None, votes: vec![false; self.clients] };
        vec![State { clients: vec![Phase::Ready; self.clients], servers: vec![server; self.servers] }]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        for client in Client::first(self.clients) {
            match state.clients[client.0] {
                Phase::Ready => {
                    steps.push(Step::Begin(client));
                    steps.extend((0..self.servers).map(|server| Step::Delete(client, server)));
                }
                Phase::Asks(_) => {
                    steps.extend((0..self.servers).map(|server| Step::Ask(client, server)));
                    steps.push(Step::Stop(client));
                }
                Phase::Holds(_) => steps.push(Step::Stop(client)),
            }
        }
        steps.extend((0..self.servers).map(Step::Restart));
        steps.push(Step::Tick);
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        let mut next = state.clone();
        match step {
            Step::Begin(client) => next.clients[client.0] = Phase::Asks(TTL),
            Step::Ask(client, server) => self.ask(&mut next, client, server)?,
            Step::Stop(client) => leave(&mut next, client, Phase::Ready),
            Step::Delete(client, server) => {
                next.servers[server].lock.take_if(|(token, _)| *token == client)?;
            }
            Step::Restart(server) => self.restart(&mut next.servers[server])?,
            Step::Tick => tick(&mut next),
        }
        Some(next)
    }

    fn format_step(&self, state: &State, step: Step) -> Option<String> {
        let next = self.next_state(state, step)?;
        let name = |server: usize| char::from(b'A' + u8::try_from(server).unwrap_or_default());
        Some(match step {
            Step::Begin(client) => format!("{client} begins to ask"),
            Step::Ask(client, server) if matches!(next.clients[client.0], Phase::Holds(_)) => {
                format!("{client} asks {} → OK: it has a majority and holds the lock", name(server))
            }
            Step::Ask(client, server) => format!("{client} asks {} → OK", name(server)),
            Step::Stop(client) => format!("{client} stops"),
            Step::Delete(client, server) => format!("{client} deletes its lock at {}", name(server)),
            Step::Restart(server) => {
                let away = next.servers[server].away;
                format!("{} restarts, has forgotten everything, and is back in {away} ticks", name(server))
            }
            Step::Tick => "a tick passes".to_owned(),
        })
    }
}

fn at_most_one_holds_it() -> Property<Redlock> {
    Property::always("at most one holds the lock", |_, state: &State| {
        state.clients.iter().filter(|phase| matches!(phase, Phase::Holds(_))).count() <= 1
    })
}

const SMALL: Redlock = Redlock { clients: 2, servers: 3, restarts: Restarts::Never };
const USUAL: Redlock = Redlock { servers: 5, ..SMALL };

#[test]
fn a_majority_of_servers_that_forget_nothing_gives_the_lock_to_one() {
    explore(SMALL, at_most_one_holds_it()).holds();
    explore(Redlock { clients: 3, ..SMALL }, at_most_one_holds_it()).holds();
    explore(USUAL, at_most_one_holds_it()).holds();
    let contended = Property::sometimes("one holds the lock, another has a server", |_, state: &State| {
        state.servers.iter().any(|server| {
            let is_anothers = |(client, _): (Client, _)| !matches!(state.clients[client.0], Phase::Holds(_));
            server.lock.is_some_and(is_anothers)
        }) && state.clients.iter().any(|phase| matches!(phase, Phase::Holds(_)))
    });
    explore(USUAL, contended).happens();
}

#[test]
fn one_restart_that_forgets_gives_the_lock_to_two() {
    let restarts = Restarts::Forgetting(0);
    let story = explore(Redlock { restarts, ..SMALL }, at_most_one_holds_it()).breaks();
    let forgotten = [
        "C1 begins to ask",
        "C1 asks A → OK",
        "C1 asks B → OK: it has a majority and holds the lock",
        "C2 begins to ask",
        "C2 asks C → OK",
        "A restarts, has forgotten everything, and is back in 0 ticks",
        "C2 asks A → OK: it has a majority and holds the lock",
    ];
    assert_eq!(story, forgotten);
    let story = explore(Redlock { restarts, ..USUAL }, at_most_one_holds_it()).breaks();
    assert_eq!(story.iter().filter(|step| step.contains("restarts")).count(), 1, "of five servers, too");
}

#[test]
fn servers_that_stay_away_after_a_restart_for_as_long_as_locks_live_give_it_to_one() {
    let restarts = Restarts::Forgetting(TTL);
    explore(Redlock { restarts, ..SMALL }, at_most_one_holds_it()).holds();
    explore(Redlock { restarts, ..USUAL }, at_most_one_holds_it()).holds();
    let another = Property::sometimes("a server is away while another is asked", |_, state: &State| {
        state.servers.iter().any(|server| server.away > 0) && state.clients.contains(&Phase::Holds(TTL))
    });
    explore(Redlock { restarts, ..USUAL }, another).happens();
}

#[test]
fn to_stay_away_for_a_shorter_time_is_not_enough() {
    let restarts = Restarts::Forgetting(TTL - 1);
    explore(Redlock { restarts, ..SMALL }, at_most_one_holds_it()).breaks();
    explore(Redlock { restarts, ..USUAL }, at_most_one_holds_it()).breaks();
}
