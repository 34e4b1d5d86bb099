//! LOCK ACQUIRE, EXTEND, RELEASE and FENCE: the fencing number comes with the grant, in one step.
//!
//! `fencing.rs` shows what a fencing number is good for, and takes for granted that a holder has the number
//! of its own grant. That is the point here. A holder that was paused between taking the lock and asking for
//! its number, by a second command without a token (SET NX PX, then LOCKS GET), gets the number of the
//! client that holds the lock by then: the resource takes the late holder for the next one, and lets it
//! write. LOCK ACQUIRE answers the number that it has drawn, and LOCK FENCE answers one only for its token,
//! so that no client ever shows another's.
//!
//! - No write of an older holder follows one of a newer, however late holders, requests and replies are:
//!   also if the reply to ACQUIRE is lost and the client asks by FENCE, and if the server restarts.
//! - Numbers grow from grant to grant. A server that restarted and counted from the beginning would let a
//!   late holder in: it must go on beyond all that it has given.
//! - With WAIT the first in line is granted in the step that frees the lock (RELEASE, or the expiry), so a
//!   lock is never free while a client waits for it, and no client is granted before one that came earlier.
//!   Clients that try again on their own instead, as with SET NX, overtake each other.
//! - With BOUND a holder whose connection lives has the lock, also if it has got it by an earlier connection,
//!   has asked with AGAIN on this one, and the server notices only then that the first has ended. No lock is
//!   left to a connection whose end was noticed.
//! - A token stands for one holder. With one token for several of them, FENCE and EXTEND tell a late holder
//!   that it has the lock, and its successor's number.
//!
//! What it means for you: take the number from the reply of LOCK ACQUIRE, use a token of your own for each
//! time that you take the lock, show the number at each write to what the lock protects, and let that refuse
//! a smaller one.

use stateright::{Model, Property};

use crate::explore::{Client, explore};

/// Grants in one walk: enough for a late holder, its successor, and two more behind them.
const GRANTS_MAX: u8 = 4;
/// Connections of one client in one walk, beside the first.
const MORE_CONNECTIONS_MAX: u8 = 2;

/// Clients that take a lock, write to what it protects, and release it; any of them may be paused at any
/// time, and the lock may expire at any time.
#[derive(Clone, Copy)]
struct Locking {
    clients: usize,
    number: Number,
    tokens: Tokens,
    line: Line,
    restart: Restart,
    retry: Retry,
    lease: Lease,
}

/// What is offered: the rest are changes to it.
const OFFERED: Locking = Locking {
    clients: 3,
    number: Number::WithGrant,
    tokens: Tokens::Own,
    line: Line::Served,
    restart: Restart::GoesBeyond,
    retry: Retry::Never,
    lease: Lease::Expires,
};

/// The same for clients that ask again when their connection has ended before the reply.
const RETRIED: Locking = Locking { retry: Retry::Again, restart: Restart::Never, ..OFFERED };

/// The same for locks that are bound to the connections of their holders, without a grace.
const BOUND: Locking = Locking { clients: 2, lease: Lease::EndsWithConnection, ..RETRIED };

/// Where a holder has its fencing number from.
#[derive(Clone, Copy, PartialEq)]
enum Number {
    /// The reply that grants the lock.
    WithGrant,
    /// A second command that needs no token.
    BySecondCommand,
}

#[derive(Clone, Copy, PartialEq)]
enum Tokens {
    Own,
    Shared,
}

/// What becomes of clients that wait.
#[derive(Clone, Copy, PartialEq)]
enum Line {
    /// The first one is granted in the step that frees the lock.
    Served,
    /// They try again.
    TriesAgain,
}

/// Where numbers go on after a restart that has lost the data.
#[derive(Clone, Copy, PartialEq)]
enum Restart {
    /// There is none.
    Never,
    GoesBeyond,
    Forgets,
}

/// When a lock ends that is not released.
#[derive(Clone, Copy, PartialEq)]
enum Lease {
    /// After a time.
    Expires,
    /// With the connection to which it is bound: that of the last request that has got it.
    EndsWithConnection,
    /// With any connection on which its token has asked for it.
    EndsWithAny,
}

/// What a client does whose connection has ended before it had its reply. The server notices that late, if
/// it does.
#[derive(Clone, Copy, PartialEq)]
enum Retry {
    Never,
    /// It asks with AGAIN.
    Again,
    /// It asks as at first.
    Plain,
}

#[derive(Clone, Debug, Hash, PartialEq)]
struct State {
    lock: Option<Lock>,
    /// The last number that was drawn.
    drawn: u8,
    /// How often the lock was granted: the true order of the holders, which no client knows.
    grants: u8,
    /// The clients that wait, in the order of their arrival.
    line: Vec<Client>,
    clients: Vec<Phase>,
    /// The connection of each client.
    connections: Vec<u8>,
    /// Connections that have ended, which the server has not noticed yet.
    ended: Vec<(Client, u8)>,
    /// The greatest number that the resource has been shown.
    shown: u8,
    /// Whose write was the last one.
    written: u8,
    restarts: u8,
    so_far: SoFar,
}

#[derive(Clone, Copy, Debug, Hash, PartialEq)]
struct Lock {
    token: Client,
    number: u8,
    /// To which connection of its holder it is bound.
    connection: u8,
}

/// What has happened at least once.
#[derive(Clone, Copy, Debug, Default, Hash, PartialEq)]
struct SoFar {
    /// A write was let in behind one of a later holder.
    was_overtaken: bool,
    /// A write was refused.
    was_refused: bool,
    /// A grant had no greater number than the one before.
    has_repeated: bool,
    /// A client was granted the lock before one that came earlier.
    has_jumped: bool,
    /// A holder was told another number than that of its grant.
    was_misled: bool,
}

#[derive(Clone, Copy, Debug, Hash, PartialEq)]
enum Phase {
    Ready,
    Waits,
    /// It has waited, and its connection has ended.
    Cut,
    /// The reply that grants it the lock is under way.
    Told(Grant),
    /// That reply was lost.
    Unsure(Grant),
    /// It knows that it was granted the lock, and not its number.
    Unnumbered(Grant),
    /// It believes to hold the lock, whether it does or not.
    Holds(Grant),
}

#[derive(Clone, Copy, Debug, Hash, PartialEq)]
struct Grant {
    /// How many there were up to this one.
    order: u8,
    /// Its number, as far as the client knows.
    number: u8,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Acquire(Client),
    TryAgain(Client),
    Leave(Client),
    Hear(Client),
    Lose(Client),
    Cut(Client),
    Retry(Client),
    /// The connection of a holder ends.
    Die(Client),
    /// The server notices that a connection has ended.
    Notice(Client, u8),
    Ask(Client),
    Write(Client),
    Release(Client),
    Expire,
    Restart,
}

impl Locking {
    fn token(&self, client: Client) -> Client {
        if self.tokens == Tokens::Shared { Client(0) } else { client }
    }

    /// The lock, if a client's token holds it.
    fn held_by(&self, state: &State, client: Client) -> Option<Lock> {
        state.lock.filter(|lock| lock.token == self.token(client))
    }

    /// Grants the free lock: draws its number in the same step.
    fn grant(&self, next: &mut State, client: Client) -> Option<()> {
        if next.grants == GRANTS_MAX {
            return None;
        }
        next.so_far.has_jumped |= next.line.first().is_some_and(|first| *first != client);
        next.line.retain(|waiting| *waiting != client);
        next.grants += 1;
        next.so_far.has_repeated |= next.drawn + 1 < next.grants;
        next.drawn += 1;
        let connection = next.connections[client.0];
        next.lock = Some(Lock { token: self.token(client), number: next.drawn, connection });
        let grant = Grant { order: next.grants, number: next.drawn };
        next.clients[client.0] = match next.clients[client.0] {
            Phase::Cut => Phase::Unsure(grant),
            _ => Phase::Told(grant),
        };
        Some(())
    }

    /// The client asks again on another connection.
    fn retry(&self, state: &State, next: &mut State, client: Client) -> Option<()> {
        let own = self.held_by(state, client).filter(|_| self.retry == Retry::Again);
        next.connections[client.0] += u8::from(self.lease != Lease::Expires);
        let connection = next.connections[client.0];
        match (state.clients[client.0], own) {
            (Phase::Unsure(grant), Some(Lock { number, .. })) => {
                next.so_far.was_misled |= number != grant.number;
                next.clients[client.0] = Phase::Holds(Grant { number, ..grant });
                next.lock = own.map(|lock| Lock { connection, ..lock });
            }
            _ if state.lock.is_none() => {
                next.clients[client.0] = Phase::Ready;
                self.grant(next, client)?;
            }
            _ => {
                let takes_place = self.retry == Retry::Again && next.line.contains(&client);
                next.line.extend((!takes_place).then_some(client));
                next.clients[client.0] = Phase::Waits;
            }
        }
        Some(())
    }

    /// Frees the lock, and serves the first in line.
    fn free(&self, next: &mut State) -> Option<()> {
        next.lock = None;
        match next.line.first() {
            Some(first) if self.line == Line::Served => self.grant(next, *first),
            _ => Some(()),
        }
    }

    /// The connection of a client ends, and the client knows it.
    fn end(&self, next: &mut State, client: Client) {
        if self.lease != Lease::Expires {
            next.ended.push((client, next.connections[client.0]));
        }
    }

    /// The server notices that a connection has ended: what hung on it is freed.
    fn notice(&self, state: &State, next: &mut State, client: Client, connection: u8) -> Option<()> {
        next.ended.retain(|ended| *ended != (client, connection));
        if state.clients[client.0] == Phase::Cut && state.connections[client.0] == connection {
            next.line.retain(|waiting| *waiting != client);
            next.clients[client.0] = Phase::Ready;
            next.connections[client.0] += 1;
        }
        let is_freed = self
            .held_by(state, client)
            .is_some_and(|lock| self.lease == Lease::EndsWithAny || lock.connection == connection);
        if is_freed { self.free(next) } else { Some(()) }
    }

    /// The client asks for its number: by its token (FENCE, EXTEND), or without one.
    fn ask(&self, state: &State, next: &mut State, client: Client, grant: Grant) {
        let found = match self.number {
            Number::WithGrant => self.held_by(state, client),
            Number::BySecondCommand => state.lock,
        };
        next.clients[client.0] = match found {
            None => Phase::Ready,
            Some(Lock { number, .. }) => {
                next.so_far.was_misled |= number != grant.number;
                Phase::Holds(Grant { number, ..grant })
            }
        };
    }

    fn write(&self, state: &State, next: &mut State, client: Client, grant: Grant) {
        if grant.number < state.shown {
            next.so_far.was_refused = true;
            next.clients[client.0] = Phase::Ready;
            return;
        }
        next.shown = grant.number;
        next.so_far.was_overtaken |= grant.order < state.written;
        next.written = grant.order;
    }

    /// The server has lost all but, if it is right, how far its numbers have come.
    fn restart(&self, next: &mut State) {
        (next.lock, next.restarts) = (None, next.restarts + 1);
        next.line.clear();
        if self.restart == Restart::Forgets {
            next.drawn = 0;
        }
        for phase in &mut next.clients {
            *phase = match *phase {
                Phase::Waits | Phase::Cut => Phase::Ready,
                Phase::Told(grant) => Phase::Unsure(grant),
                other => other,
            };
        }
    }
}

impl Model for Locking {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            lock: None,
            drawn: 0,
            grants: 0,
            line: Vec::new(),
            clients: vec![Phase::Ready; self.clients],
            connections: vec![0; self.clients],
            ended: Vec::new(),
            shown: 0,
            written: 0,
            restarts: 0,
            so_far: SoFar::default(),
        }]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        for (client, connection) in &state.ended {
            steps.push(Step::Notice(*client, *connection));
        }
        for client in Client::first(self.clients) {
            let may_end = state.connections[client.0] < MORE_CONNECTIONS_MAX;
            match state.clients[client.0] {
                Phase::Ready => steps.push(Step::Acquire(client)),
                Phase::Waits => {
                    steps.push(Step::Leave(client));
                    if self.retry != Retry::Never && may_end {
                        steps.push(Step::Cut(client));
                    }
                    if state.lock.is_none() {
                        steps.push(Step::TryAgain(client));
                    }
                }
                Phase::Told(_) => {
                    steps.push(Step::Hear(client));
                    if self.number == Number::WithGrant && may_end {
                        steps.push(Step::Lose(client));
                    }
                }
                Phase::Cut => steps.push(Step::Retry(client)),
                // FENCE binds nothing.
                Phase::Unsure(_) if self.lease != Lease::Expires => steps.push(Step::Retry(client)),
                Phase::Unsure(_) if self.retry != Retry::Never => {
                    steps.extend([Step::Ask(client), Step::Retry(client)]);
                }
                Phase::Unsure(_) | Phase::Unnumbered(_) => steps.push(Step::Ask(client)),
                Phase::Holds(_) => {
                    steps.extend([Step::Write(client), Step::Release(client)]);
                    if self.lease != Lease::Expires && may_end {
                        steps.push(Step::Die(client));
                    }
                    // A client that has its number asks again by its token only.
                    if self.number == Number::WithGrant {
                        steps.push(Step::Ask(client));
                    }
                }
            }
        }
        let lives = |lock: Lock| !state.ended.contains(&(lock.token, lock.connection));
        if state.lock.is_some_and(|lock| self.lease == Lease::Expires || !lives(lock)) {
            steps.push(Step::Expire);
        }
        if state.restarts == 0 && self.restart != Restart::Never {
            steps.push(Step::Restart);
        }
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        let mut next = state.clone();
        match step {
            Step::Acquire(client) if state.lock.is_none() => self.grant(&mut next, client)?,
            Step::Acquire(client) => {
                next.line.push(client);
                next.clients[client.0] = Phase::Waits;
            }
            Step::TryAgain(client) => self.grant(&mut next, client)?,
            Step::Leave(client) => {
                next.line.retain(|waiting| *waiting != client);
                next.clients[client.0] = Phase::Ready;
            }
            Step::Hear(client) => {
                let Phase::Told(grant) = state.clients[client.0] else { return None };
                next.clients[client.0] = match self.number {
                    Number::WithGrant => Phase::Holds(grant),
                    Number::BySecondCommand => Phase::Unnumbered(grant),
                };
            }
            Step::Lose(client) => {
                let Phase::Told(grant) = state.clients[client.0] else { return None };
                next.clients[client.0] = Phase::Unsure(grant);
                self.end(&mut next, client);
            }
            Step::Cut(client) => {
                next.clients[client.0] = Phase::Cut;
                self.end(&mut next, client);
            }
            Step::Die(client) => {
                let Phase::Holds(grant) = state.clients[client.0] else { return None };
                next.clients[client.0] = Phase::Unsure(grant);
                self.end(&mut next, client);
            }
            Step::Notice(client, connection) => self.notice(state, &mut next, client, connection)?,
            Step::Retry(client) => self.retry(state, &mut next, client)?,
            Step::Ask(client) => match state.clients[client.0] {
                Phase::Unsure(grant) | Phase::Unnumbered(grant) | Phase::Holds(grant) => {
                    self.ask(state, &mut next, client, grant);
                }
                _ => return None,
            },
            Step::Write(client) => {
                let Phase::Holds(grant) = state.clients[client.0] else { return None };
                self.write(state, &mut next, client, grant);
            }
            Step::Release(client) => {
                next.clients[client.0] = Phase::Ready;
                if self.held_by(state, client).is_some() {
                    self.free(&mut next)?;
                }
            }
            Step::Expire => self.free(&mut next)?,
            Step::Restart => self.restart(&mut next),
        }
        Some(next)
    }

    fn format_step(&self, state: &State, step: Step) -> Option<String> {
        let next = self.next_state(state, step)?;
        let granted = (next.grants > state.grants).then(|| {
            let client = next
                .clients
                .iter()
                .zip(&state.clients)
                .position(|(now, before)| now != before && matches!(now, Phase::Told(_)));
            format!("{} is granted it with number {}", Client(client.unwrap_or_default()), next.drawn)
        });
        let done = match step {
            Step::Acquire(client) => format!("{client} asks for the lock"),
            Step::TryAgain(client) => format!("{client} tries again"),
            Step::Leave(client) => format!("{client} leaves the line"),
            Step::Hear(client) => format!("{client} receives the reply"),
            Step::Lose(client) => format!("{client} never receives the reply"),
            Step::Cut(client) => format!("{client} loses its connection"),
            Step::Retry(client) => format!("{client} asks again"),
            Step::Die(client) => format!("{client} loses its connection, and knows it"),
            Step::Notice(client, _) => format!("the server notices that a connection of {client} has ended"),
            Step::Ask(client) => match next.clients[client.0] {
                Phase::Holds(Grant { number, .. }) => format!("{client} asks for its number: {number}"),
                _ => format!("{client} asks for its number: nil"),
            },
            Step::Write(client) if next.clients[client.0] == Phase::Ready => {
                format!("{client} is refused to write")
            }
            Step::Write(client) => format!("{client} writes"),
            Step::Release(client) => format!("{client} releases the lock if its token holds it"),
            Step::Expire => "the lock expires".to_owned(),
            Step::Restart => "the server restarts".to_owned(),
        };
        Some(done + &granted.map(|granted| format!("; {granted}")).unwrap_or_default())
    }
}

fn no_write_is_overtaken() -> Property<Locking> {
    Property::always("no write follows one by a newer holder", |_, state: &State| !state.so_far.was_overtaken)
}

fn numbers_grow() -> Property<Locking> {
    Property::always("each grant has a greater number than all before", |_, state: &State| {
        !state.so_far.has_repeated
    })
}

fn a_holder_knows_its_number() -> Property<Locking> {
    Property::always("no holder is told a number but its own", |_, state: &State| !state.so_far.was_misled)
}

fn no_client_waits_for_a_free_lock() -> Property<Locking> {
    Property::always("while a client waits the lock is held", |_, state: &State| {
        state.lock.is_some() || state.line.is_empty()
    })
}

fn no_client_jumps_the_line() -> Property<Locking> {
    Property::always("no client is granted the lock before one that came earlier", |_, state: &State| {
        !state.so_far.has_jumped
    })
}

fn no_client_waits_for_itself() -> Property<Locking> {
    Property::always("no client waits for a lock that its own token has", |model: &Locking, state: &State| {
        let waits = |client: &Client| state.clients[client.0] == Phase::Waits;
        Client::first(model.clients).all(|client| !waits(&client) || model.held_by(state, client).is_none())
    })
}

fn no_client_stands_twice() -> Property<Locking> {
    Property::always("no client stands in line twice", |_, state: &State| {
        let times = |client: &Client| state.line.iter().filter(|other| *other == client).count();
        state.line.iter().all(|client| times(client) == 1)
    })
}

#[test]
fn a_client_that_asks_again_finds_its_lock_or_its_place_in_line() {
    for property in [
        no_client_waits_for_itself(),
        no_client_stands_twice(),
        no_write_is_overtaken(),
        numbers_grow(),
        a_holder_knows_its_number(),
        no_client_waits_for_a_free_lock(),
        no_client_jumps_the_line(),
    ] {
        explore(RETRIED, property).holds();
    }
    let plain = Locking { retry: Retry::Plain, ..RETRIED };
    let story = explore(plain, no_client_waits_for_itself()).breaks();
    let waits_for_itself = [
        "C1 asks for the lock; C1 is granted it with number 1",
        "C1 never receives the reply",
        "C1 asks again",
    ];
    assert_eq!(story, waits_for_itself);
    explore(plain, no_client_stands_twice()).breaks();
}

fn a_holder_whose_connection_lives_has_the_lock() -> Property<Locking> {
    Property::always("a holder whose connection lives has the lock", |_, state: &State| {
        state.clients.iter().all(|phase| match phase {
            Phase::Holds(grant) => state.lock.is_some_and(|lock| lock.number == grant.number),
            _ => true,
        })
    })
}

fn no_lock_is_left_behind() -> Property<Locking> {
    Property::always("no lock hangs on a connection whose end was noticed", |_, state: &State| {
        state.lock.is_none_or(|Lock { token, connection, .. }| {
            state.connections[token.0] == connection || state.ended.contains(&(token, connection))
        })
    })
}

#[test]
fn a_bound_lock_ends_with_the_connection_of_the_last_request_that_has_got_it() {
    for property in [
        a_holder_whose_connection_lives_has_the_lock(),
        no_lock_is_left_behind(),
        no_client_waits_for_itself(),
        no_client_stands_twice(),
        no_write_is_overtaken(),
        numbers_grow(),
        no_client_waits_for_a_free_lock(),
        no_client_jumps_the_line(),
    ] {
        explore(BOUND, property).holds();
    }
    explore(Locking { lease: Lease::Expires, ..BOUND }, a_holder_whose_connection_lives_has_the_lock())
        .breaks();
    let any = Locking { lease: Lease::EndsWithAny, ..BOUND };
    let story = explore(any, a_holder_whose_connection_lives_has_the_lock()).breaks();
    let is_freed_by_an_earlier_end = [
        "C1 asks for the lock; C1 is granted it with number 1",
        "C1 never receives the reply",
        "C1 asks again",
        "the server notices that a connection of C1 has ended",
    ];
    assert_eq!(story, is_freed_by_an_earlier_end);
}

#[test]
fn the_number_that_comes_with_the_lock_keeps_a_late_holder_out() {
    explore(OFFERED, no_write_is_overtaken()).holds();
    explore(OFFERED, numbers_grow()).holds();
    explore(OFFERED, a_holder_knows_its_number()).holds();
    // And it is the resource that does it.
    let refused = Property::sometimes("a write is refused", |_, state: &State| state.so_far.was_refused);
    let story = explore(OFFERED, refused).happens();
    let late = [
        "C1 asks for the lock; C1 is granted it with number 1",
        "C1 receives the reply",
        "C2 asks for the lock",
        "the lock expires; C2 is granted it with number 2",
        "C2 receives the reply",
        "C2 writes",
        "C1 is refused to write",
    ];
    assert_eq!(story, late);
}

#[test]
fn a_number_had_by_a_second_command_lets_a_late_holder_in() {
    let second = Locking { number: Number::BySecondCommand, restart: Restart::Never, ..OFFERED };
    let story = explore(second, no_write_is_overtaken()).breaks();
    assert!(story.contains(&"C1 asks for its number: 2".to_owned()), "{story:?}");
    assert_eq!(story.last().map(String::as_str), Some("C1 writes"), "{story:?}");
    explore(second, a_holder_knows_its_number()).breaks();
    // The numbers themselves are right.
    explore(second, numbers_grow()).holds();
}

#[test]
fn the_next_in_line_is_granted_when_the_lock_is_freed_and_in_the_order_of_arrival() {
    explore(OFFERED, no_client_waits_for_a_free_lock()).holds();
    explore(OFFERED, no_client_jumps_the_line()).holds();
    let polling = Locking { line: Line::TriesAgain, ..OFFERED };
    explore(polling, no_client_waits_for_a_free_lock()).breaks();
    explore(polling, no_client_jumps_the_line()).breaks();
    // Which costs order and not safety.
    explore(polling, no_write_is_overtaken()).holds();
}

#[test]
fn numbers_that_begin_anew_after_a_restart_let_a_late_holder_in() {
    let forgetful = Locking { restart: Restart::Forgets, ..OFFERED };
    explore(forgetful, numbers_grow()).breaks();
    let story = explore(forgetful, no_write_is_overtaken()).breaks();
    assert!(story.contains(&"the server restarts".to_owned()), "{story:?}");
}

#[test]
fn a_token_for_several_holders_tells_a_late_one_the_number_of_the_next() {
    let shared = Locking { tokens: Tokens::Shared, restart: Restart::Never, ..OFFERED };
    explore(shared, a_holder_knows_its_number()).breaks();
    let story = explore(shared, no_write_is_overtaken()).breaks();
    assert!(story.iter().any(|step| step == "C1 asks for its number: 2"), "{story:?}");
}
