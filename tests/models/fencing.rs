//! The holder that outlives its lock, and the fencing token that makes it harmless.
//!
//! No lock with an expiry, from whatever server, keeps its holder from working past the end: the holder was
//! paused (by its garbage collector, its machine, its network) and does not know. A **fencing token** is a
//! number that grows with every grant of the lock. The holder shows it with each request to what the lock
//! protects, and *that* refuses a number smaller than the greatest it has seen.
//!
//! - Without fencing a late write overwrites what a later holder wrote.
//! - Checked by the resource at each write: no write of an older holder ever follows one of a newer. But an
//!   update can still be lost: the newer holder has read, the older one writes late (its number is still the
//!   greatest that was shown), and the newer one overwrites that.
//! - Checked at each read, too: no update is lost.
//!
//! What even that does not give: a late write is not refused for being late, only for coming after a newer
//! holder. While no newer holder has shown a number it gets through, and does no harm.
//!
//! What it means for you: where two writers would do damage, not only double work, let the lock come with a
//! number that only grows (`LOCKS GET` has Keyfast's; elsewhere an INCR in the script that takes the lock),
//! show it at the first touch of what the lock protects, and let that compare and write in one step (an
//! UPDATE with a WHERE, a conditional put, a script). The lock alone cannot do it.

use stateright::{Model, Property};

use crate::explore::{Client, explore};

/// Grants in one walk: two for the two holders who meet, two to spare.
const GRANTS_MAX: u8 = 4;

/// Clients that read a value, change it and write it back under a lock: of the right kind, with an expiry
/// that may come at any time and with compare-and-delete.
#[derive(Clone, Copy)]
struct Fencing {
    clients: usize,
    checked: Checked,
}

/// Where the resource looks at the fencing token.
#[derive(Clone, Copy, PartialEq)]
enum Checked {
    Nowhere,
    AtWrites,
    AtReadsAndWrites,
}

#[derive(Clone, Debug, Hash, PartialEq)]
struct State {
    holder: Option<Client>,
    grants: u8,
    clients: Vec<Phase>,
    /// The greatest fencing token that the resource has been shown where it looks.
    shown: u8,
    /// The fencing token of the last writer.
    written: u8,
    so_far: SoFar,
}

/// What has happened at least once.
#[derive(Clone, Copy, Debug, Default, Hash, PartialEq)]
struct SoFar {
    /// A write was made by one who held the lock no longer.
    was_late: bool,
    /// A write followed one with a greater fencing token.
    was_overtaken: bool,
    /// A write was made by one who had not read what it overwrote.
    was_lost: bool,
}

#[derive(Clone, Copy, Debug, Hash, PartialEq)]
enum Phase {
    Ready,
    /// It believes to hold the lock, whether it does or not.
    Granted {
        fence: u8,
    },
    /// It has read, and what it read is (still) what is there.
    Read {
        fence: u8,
        is_current: bool,
    },
    Written,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Take(Client),
    Expire,
    Read(Client),
    Write(Client),
    Release(Client),
}

impl Fencing {
    fn read(&self, state: &State, client: Client, fence: u8) -> State {
        let mut next = state.clone();
        next.clients[client.0] = Phase::Read { fence, is_current: true };
        if self.checked == Checked::AtReadsAndWrites {
            next.shown = state.shown.max(fence);
            if fence < state.shown {
                next.clients[client.0] = Phase::Ready;
            }
        }
        next
    }

    fn write(&self, state: &State, client: Client, fence: u8, is_current: bool) -> State {
        let mut next = state.clone();
        if self.checked != Checked::Nowhere {
            next.shown = state.shown.max(fence);
            if fence < state.shown {
                next.clients[client.0] = Phase::Ready;
                return next;
            }
        }
        next.so_far.was_late |= state.holder != Some(client);
        next.so_far.was_overtaken |= fence < state.written;
        next.so_far.was_lost |= !is_current;
        next.written = fence;
        for phase in &mut next.clients {
            if let Phase::Read { is_current, .. } = phase {
                *is_current = false;
            }
        }
        next.clients[client.0] = Phase::Written;
        next
    }
}

impl Model for Fencing {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let clients = vec![Phase::Ready; self.clients];
        vec![State { holder: None, grants: 0, clients, shown: 0, written: 0, so_far: SoFar::default() }]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        for client in Client::first(self.clients) {
            match state.clients[client.0] {
                Phase::Ready if state.holder.is_none() && state.grants < GRANTS_MAX => {
                    steps.push(Step::Take(client));
                }
                Phase::Ready => {}
                Phase::Granted { .. } => steps.push(Step::Read(client)),
                Phase::Read { .. } => steps.push(Step::Write(client)),
                Phase::Written => steps.push(Step::Release(client)),
            }
        }
        if state.holder.is_some() {
            steps.push(Step::Expire);
        }
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        let mut next = state.clone();
        match step {
            Step::Take(client) => {
                next.grants += 1;
                next.holder = Some(client);
                next.clients[client.0] = Phase::Granted { fence: next.grants };
            }
            Step::Expire => next.holder = None,
            Step::Read(client) => {
                let Phase::Granted { fence } = state.clients[client.0] else { return None };
                return Some(self.read(state, client, fence));
            }
            Step::Write(client) => {
                let Phase::Read { fence, is_current } = state.clients[client.0] else { return None };
                return Some(self.write(state, client, fence, is_current));
            }
            Step::Release(client) => {
                next.holder = state.holder.filter(|holder| *holder != client);
                next.clients[client.0] = Phase::Ready;
            }
        }
        Some(next)
    }

    fn format_step(&self, state: &State, step: Step) -> Option<String> {
        let next = self.next_state(state, step)?;
        let is_refused = |client: Client| next.clients[client.0] == Phase::Ready;
        Some(match step {
            Step::Take(client) => format!("{client} takes the lock; its fencing token is {}", next.grants),
            Step::Expire => format!("the lock of {} expires", state.holder?),
            Step::Read(client) if is_refused(client) => format!("{client} is refused to read"),
            Step::Read(client) => format!("{client} reads"),
            Step::Write(client) if is_refused(client) => format!("{client} is refused to write"),
            Step::Write(client) => format!("{client} writes"),
            Step::Release(client) => format!("{client} releases the lock if it is its own"),
        })
    }
}

fn no_write_is_overtaken() -> Property<Fencing> {
    Property::always("no write follows one by a newer holder", |_, state: &State| !state.so_far.was_overtaken)
}

fn no_update_is_lost() -> Property<Fencing> {
    Property::always("no client overwrites what it has not read", |_, state: &State| !state.so_far.was_lost)
}

#[test]
fn without_fencing_a_late_write_overwrites_that_of_the_next_holder() {
    let unfenced = Fencing { clients: 3, checked: Checked::Nowhere };
    let story = explore(unfenced, no_write_is_overtaken()).breaks();
    let overtaken = [
        "C1 takes the lock; its fencing token is 1",
        "C1 reads",
        "the lock of C1 expires",
        "C2 takes the lock; its fencing token is 2",
        "C2 reads",
        "C2 writes",
        "C1 writes",
    ];
    assert_eq!(story, overtaken);
    explore(unfenced, no_update_is_lost()).breaks();
}

#[test]
fn fencing_at_writes_keeps_them_in_order_and_still_loses_an_update() {
    let fenced = Fencing { clients: 3, checked: Checked::AtWrites };
    explore(fenced, no_write_is_overtaken()).holds();
    let story = explore(fenced, no_update_is_lost()).breaks();
    let lost = [
        "C1 takes the lock; its fencing token is 1",
        "C1 reads",
        "the lock of C1 expires",
        "C2 takes the lock; its fencing token is 2",
        "C2 reads",
        "C1 writes",
        "C2 writes",
    ];
    assert_eq!(story, lost);
}

#[test]
fn fencing_at_reads_and_writes_loses_nothing() {
    let fenced = Fencing { clients: 3, checked: Checked::AtReadsAndWrites };
    explore(fenced, no_write_is_overtaken()).holds();
    explore(fenced, no_update_is_lost()).holds();
}

#[test]
fn a_late_write_gets_through_while_no_newer_holder_has_been_there() {
    let late =
        Property::sometimes("a write after the lock has expired", |_, state: &State| state.so_far.was_late);
    let fenced = Fencing { clients: 3, checked: Checked::AtReadsAndWrites };
    let story = explore(fenced, late).happens();
    let late_write =
        ["C1 takes the lock; its fencing token is 1", "C1 reads", "the lock of C1 expires", "C1 writes"];
    assert_eq!(story, late_write);
}
