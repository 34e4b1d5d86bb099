//! The lock that moves to another server, and the numbers that its holders get there.
//!
//! Two servers know nothing of each other. Each counts its numbers from a clock, so that they grow over
//! restarts. What the lock protects refuses a holder whose number is not larger than that of the one before.
//!
//! - Counted from the clock of the server's start, numbers go back when the lock moves to a server that was
//!   started earlier.
//! - Kept at the clock, they can still go back where the clocks of the servers differ, and within the moment
//!   in which a server gives several numbers.
//! - If the lock brings its number along, and the server goes on beyond that, they only grow, whatever the
//!   clocks show.

use stateright::{Model, Property};

use crate::explore::explore;

/// Grants in one walk, and moments.
const GRANTS_MAX: u8 = 3;
const MOMENTS_MAX: u8 = 2;
/// Numbers that a clock counts in a moment: more than are given in it.
const NUMBERS_PER_MOMENT: u8 = 8;

/// How a server comes to the next number.
#[derive(Clone, Copy, PartialEq)]
enum Counted {
    /// From the clock of its start.
    FromTheStart,
    /// The last one and one more, or the clock.
    AtTheClock,
}

/// Two servers, of which the first was started a moment before the second one.
#[derive(Clone, Copy)]
struct Moving {
    counted: Counted,
    /// Moments by which the clock of the second server is ahead.
    ahead: u8,
    brings_its_number: bool,
}

#[derive(Clone, Debug, Hash, PartialEq)]
struct State {
    moment: u8,
    /// The last number of each server.
    last: [u8; 2],
    /// Where the lock is, and the number of its holder.
    place: usize,
    held: Option<u8>,
    grants: u8,
    moves: u8,
    /// The largest number that a holder before had.
    before: u8,
    went_back: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Take,
    Release,
    Move,
    TimePasses,
}

impl Moving {
    fn clock(&self, state: &State, server: usize) -> u8 {
        (state.moment + if server == 1 { self.ahead } else { 0 }) * NUMBERS_PER_MOMENT
    }

    /// Gives a number at the place of the lock.
    fn give(&self, state: &mut State) {
        let least = match self.counted {
            Counted::FromTheStart => 0,
            Counted::AtTheClock => self.clock(state, state.place),
        };
        let last = &mut state.last[state.place];
        *last = (*last + 1).max(least);
        state.went_back |= *last <= state.before;
        state.held = Some(*last);
        state.before = state.before.max(*last);
    }
}

impl Model for Moving {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let mut state = State {
            moment: 1,
            last: [0; 2],
            place: 1,
            held: None,
            grants: 0,
            moves: 0,
            before: 0,
            went_back: false,
        };
        state.last[1] = self.clock(&state, 1);
        vec![state]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        match state.held {
            None if state.grants < GRANTS_MAX => steps.push(Step::Take),
            None => {}
            Some(_) => {
                steps.push(Step::Release);
                if state.moves < 2 {
                    steps.push(Step::Move);
                }
            }
        }
        if state.moment < MOMENTS_MAX {
            steps.push(Step::TimePasses);
        }
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        let mut next = state.clone();
        match step {
            Step::Take => {
                next.grants += 1;
                self.give(&mut next);
            }
            Step::Release => next.held = None,
            Step::Move => {
                next.moves += 1;
                next.place = 1 - state.place;
                if self.brings_its_number {
                    next.last[next.place] = next.last[next.place].max(state.held?);
                }
                self.give(&mut next);
            }
            Step::TimePasses => next.moment += 1,
        }
        Some(next)
    }

    fn format_step(&self, state: &State, step: Step) -> Option<String> {
        let next = self.next_state(state, step)?;
        let server = |place: usize| ["the first server", "the second server"][place];
        Some(match step {
            Step::Take => format!("a client takes the lock at {}: {}", server(next.place), next.held?),
            Step::Release => "it releases the lock".to_owned(),
            Step::Move => format!("the lock moves to {}: {}", server(next.place), next.held?),
            Step::TimePasses => "time passes".to_owned(),
        })
    }
}

fn numbers_only_grow() -> Property<Moving> {
    Property::always("each number is larger than those before it", |_, state: &State| !state.went_back)
}

#[test]
fn numbers_from_the_start_of_a_server_go_back_when_the_lock_moves() {
    for ahead in [0, 1] {
        let moving = Moving { counted: Counted::FromTheStart, ahead, brings_its_number: false };
        let story = explore(moving, numbers_only_grow()).breaks();
        let first = NUMBERS_PER_MOMENT * (1 + ahead) + 1;
        let back = [
            format!("a client takes the lock at the second server: {first}"),
            "the lock moves to the first server: 1".to_owned(),
        ];
        assert_eq!(story, back);
    }
}

#[test]
fn the_clock_alone_is_not_enough() {
    for ahead in [0, 1] {
        let moving = Moving { counted: Counted::AtTheClock, ahead, brings_its_number: false };
        let story = explore(moving, numbers_only_grow()).breaks();
        assert_eq!(story.len(), 2, "{story:?}");
    }
}

#[test]
fn a_lock_that_brings_its_number_gets_larger_ones_whatever_the_clocks_show() {
    for ahead in [0, 1, 5] {
        for counted in [Counted::FromTheStart, Counted::AtTheClock] {
            let moving = Moving { counted, ahead, brings_its_number: true };
            explore(moving, numbers_only_grow()).holds();
        }
    }
}
