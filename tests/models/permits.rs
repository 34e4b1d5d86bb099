//! LOCK ACQUIRE … SHARED and LIMIT n: permits, and the line in which those who want one wait with those who
//! want the whole lock.
//!
//! - No more hold it than each of them has allowed when it came, and a writer holds it alone.
//! - No client is granted it before one that came earlier. If readers are let in while others wait, a writer
//!   may wait for as long as readers come.
//! - Whatever changes serves the line: a release, the end of a permit, and that a client leaves the line.
//!   Without the last one, readers behind a writer that has left wait for a lock that they could have.
//! - One that has a permit is refused the whole lock. If it could wait for that, it would wait for itself,
//!   and two such readers for each other.
//!
//! What it means for you: a writer need not fear readers, and a reader who wants to write gives its permit
//! back first.

use stateright::{Model, Property};

use crate::explore::{Client, explore};

/// Clients that take a lock in different modes; any permit may end, and any client may leave the line.
#[derive(Clone, Copy)]
struct Sharing {
    clients: usize,
    arrival: Arrival,
    leaving: Leaving,
    upgrade: Upgrade,
}

/// What is offered: the rest are changes to it.
const OFFERED: Sharing = Sharing {
    clients: 4,
    arrival: Arrival::BehindOthers,
    leaving: Leaving::Serves,
    upgrade: Upgrade::Refused,
};

/// Where a client stands that could be granted its permit while others wait.
#[derive(Clone, Copy, PartialEq)]
enum Arrival {
    BehindOthers,
    /// It is granted it at once.
    BeforeOthers,
}

/// What follows when a client leaves the line.
#[derive(Clone, Copy, PartialEq)]
enum Leaving {
    Serves,
    Nothing,
}

/// What a client with a permit gets that wants the whole lock.
#[derive(Clone, Copy, PartialEq)]
enum Upgrade {
    Refused,
    /// A place in line.
    Waits,
}

/// Beside how many others a client holds the lock.
#[derive(Clone, Copy, Debug, Hash, PartialEq)]
enum Mode {
    Alone,
    Limit(usize),
    Shared,
}

const MODES: [Mode; 3] = [Mode::Alone, Mode::Limit(2), Mode::Shared];

#[derive(Clone, Debug, Default, Hash, PartialEq)]
struct State {
    holders: Vec<(Client, Mode)>,
    line: Vec<(Client, Mode)>,
    /// A client was granted it before one that came earlier.
    has_jumped: bool,
    /// More hold it than one of them has allowed.
    is_crowded: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Ask(Client, Mode),
    Leave(Client),
    /// The client gives it back, or its permit ends.
    End(Client),
}

fn has(all: &[(Client, Mode)], client: Client) -> bool {
    all.iter().any(|(other, _)| *other == client)
}

impl State {
    fn is_free_for(&self, client: Client, mode: Mode) -> bool {
        let has_writer = self.holders.iter().any(|(_, mode)| *mode == Mode::Alone);
        !has_writer
            && !has(&self.holders, client)
            && match mode {
                Mode::Alone => self.holders.is_empty(),
                Mode::Limit(limit) => self.holders.len() < limit,
                Mode::Shared => true,
            }
    }

    fn grant(&mut self, client: Client, mode: Mode) {
        self.has_jumped |= self.line.first().is_some_and(|(first, _)| *first != client);
        self.line.retain(|(waiting, _)| *waiting != client);
        self.holders.push((client, mode));
        let writers = self.holders.iter().filter(|(_, mode)| *mode == Mode::Alone).count();
        self.is_crowded |= writers > 0 && self.holders.len() > 1;
        self.is_crowded |= matches!(mode, Mode::Limit(limit) if self.holders.len() > limit);
    }

    fn serve(&mut self) {
        while let Some((client, mode)) = self.line.first().copied()
            && self.is_free_for(client, mode)
        {
            self.grant(client, mode);
        }
    }
}

impl Model for Sharing {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State::default()]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        for client in Client::first(self.clients) {
            if has(&state.line, client) {
                steps.push(Step::Leave(client));
            } else if !has(&state.holders, client) {
                steps.extend(MODES.map(|mode| Step::Ask(client, mode)));
            } else if self.upgrade == Upgrade::Waits {
                steps.push(Step::Ask(client, Mode::Alone));
            }
            if has(&state.holders, client) {
                steps.push(Step::End(client));
            }
        }
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        let mut next = state.clone();
        match step {
            Step::Ask(client, mode) => {
                let is_its_turn = state.line.is_empty() || self.arrival == Arrival::BeforeOthers;
                match is_its_turn && state.is_free_for(client, mode) {
                    true => next.grant(client, mode),
                    false => next.line.push((client, mode)),
                }
            }
            Step::Leave(client) => {
                next.line.retain(|(waiting, _)| *waiting != client);
                if self.leaving == Leaving::Serves {
                    next.serve();
                }
            }
            Step::End(client) => {
                next.holders.retain(|(holder, _)| *holder != client);
                next.serve();
            }
        }
        Some(next)
    }

    fn format_step(&self, state: &State, step: Step) -> Option<String> {
        let next = self.next_state(state, step)?;
        let granted: Vec<String> = next
            .holders
            .iter()
            .filter(|(client, _)| !has(&state.holders, *client))
            .map(|(client, _)| format!("; {client} is granted it"))
            .collect();
        let done = match step {
            Step::Ask(client, Mode::Alone) => format!("{client} asks for the lock"),
            Step::Ask(client, mode) => format!("{client} asks for a permit: {mode:?}"),
            Step::Leave(client) => format!("{client} leaves the line"),
            Step::End(client) => format!("{client} gives it back, or its time ends"),
        };
        Some(done + &granted.concat())
    }
}

fn none_is_beside_more_than_it_allows() -> Property<Sharing> {
    Property::always(
        "a writer is alone, and no limit is exceeded when a client is granted it",
        |_, state: &State| !state.is_crowded,
    )
}

fn no_client_jumps_the_line() -> Property<Sharing> {
    Property::always("no client is granted it before one that came earlier", |_, state: &State| {
        !state.has_jumped
    })
}

fn the_first_in_line_could_not_have_it() -> Property<Sharing> {
    Property::always("the first in line cannot be granted it", |_, state: &State| {
        state.line.first().is_none_or(|(client, mode)| !state.is_free_for(*client, *mode))
    })
}

fn no_client_waits_for_itself() -> Property<Sharing> {
    Property::always("no client waits for what it has", |_, state: &State| {
        state.line.iter().all(|(client, _)| !has(&state.holders, *client))
    })
}

#[test]
fn readers_share_a_writer_is_alone_and_all_keep_the_line() {
    for property in [
        none_is_beside_more_than_it_allows(),
        no_client_jumps_the_line(),
        the_first_in_line_could_not_have_it(),
        no_client_waits_for_itself(),
    ] {
        explore(OFFERED, property).holds();
    }
    let together = Property::sometimes("three hold it", |_, state: &State| state.holders.len() == 3);
    explore(OFFERED, together).happens();
}

#[test]
fn readers_that_are_let_in_while_others_wait_overtake_a_writer() {
    let greedy = Sharing { arrival: Arrival::BeforeOthers, ..OFFERED };
    let story = explore(greedy, no_client_jumps_the_line()).breaks();
    assert_eq!(story.len(), 3, "{story:?}");
    assert!(story[1].ends_with("asks for the lock"), "{story:?}");
    explore(greedy, none_is_beside_more_than_it_allows()).holds();
}

#[test]
fn readers_behind_a_writer_that_has_left_wait_for_what_they_could_have() {
    let forgetful = Sharing { leaving: Leaving::Nothing, ..OFFERED };
    let story = explore(forgetful, the_first_in_line_could_not_have_it()).breaks();
    assert!(story.last().is_some_and(|step| step.ends_with("leaves the line")), "{story:?}");
}

#[test]
fn a_reader_that_waits_for_the_whole_lock_waits_for_itself() {
    let waiting = Sharing { upgrade: Upgrade::Waits, ..OFFERED };
    explore(waiting, no_client_waits_for_itself()).breaks();
}
