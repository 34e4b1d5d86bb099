//! Servers with typical mistakes in their locks, imitated in the memory of the test: clients that are let go
//! one step at a time, in a random order that is always the same.

use fastrand::Rng;

use super::recording::{draw, draw_for_holder};
use super::told::{Answer, Request, Told};
use crate::linear::register::{Moment, Token};

/// What is wrong with a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// A grant has the number of the one before it, now and then.
    RepeatsNumber,
    /// Each key counts for itself.
    NumbersOfEachKey,
    /// Each connection has a block of numbers.
    NumbersInBlocks,
    /// EXTEND draws a new number.
    ExtendRenumbers,
    /// A lock that is held is granted, now and then.
    GrantsHeldLock,
    /// The last in line is granted the lock.
    LastIsFirst,
    /// A client that does not wait is granted a lock for which others stand in line.
    OvertakesLine,
    /// A client in line is forgotten, now and then.
    ForgetsWaiter,
    /// A client in line gets nil before its time is up, now and then.
    NilTooSoon,
    /// A client that has gone stays in line.
    GrantsToTheGone,
    /// RELEASE deletes whatever token is there.
    ReleasesByAnyToken,
    /// RELEASE compares first, and deletes a moment later whatever is there.
    ReleaseOfGetAndDel,
    /// EXTEND extends whatever token is there.
    ExtendsByAnyToken,
    /// FENCE shows the number of whatever token is there.
    FenceOfAnother,
    /// Locks are held for some time after they have expired.
    OutlivesExpiry,
    /// Locks are free some time before they expire.
    GoneTooSoon,
    /// A lock that is bound to a connection expires though that lives.
    ExpiresThoughBound,
    /// A lock that is bound to a connection is freed before that ends, by the end of another one.
    EndsWithAnother,
}

pub(super) const FAULTS: [Fault; 18] = [
    Fault::RepeatsNumber,
    Fault::NumbersOfEachKey,
    Fault::NumbersInBlocks,
    Fault::ExtendRenumbers,
    Fault::GrantsHeldLock,
    Fault::LastIsFirst,
    Fault::OvertakesLine,
    Fault::ForgetsWaiter,
    Fault::NilTooSoon,
    Fault::GrantsToTheGone,
    Fault::ReleasesByAnyToken,
    Fault::ReleaseOfGetAndDel,
    Fault::ExtendsByAnyToken,
    Fault::FenceOfAnother,
    Fault::OutlivesExpiry,
    Fault::GoneTooSoon,
    Fault::ExpiresThoughBound,
    Fault::EndsWithAnother,
];

/// How long one step of one client takes.
const STEP_US: u64 = 20;
/// By how much expiry is missed.
const MISSED_MS: u64 = 5;
/// Of so many chances to make a mistake that is made now and then, one is taken.
const CHANCES: u32 = 20;
/// After so many steps a line is served, of which the server does not think at once.
const STEPS_UNTIL_SERVED: u64 = 8;
/// Of so many steps of a client in line, one takes it away.
const STEPS_PER_LEAVER: u32 = 2_000;
/// The longest life of a lock.
const LIFETIME_MS_MAX: u64 = 30;
/// How long a client waits that would wait for long: until the end of most histories.
const WAIT_MS_MAX: u64 = 100;

/// How large a history is.
#[derive(Clone, Copy)]
pub(super) struct Size {
    pub(super) clients: usize,
    pub(super) keys: usize,
    pub(super) operations: usize,
    /// Whether some clients end their connection.
    pub(super) crashes: bool,
}

/// Plays a history.
pub(super) fn play(seed: u64, play: Size, fault: Option<Fault>) -> Vec<Told> {
    let Size { clients, keys, operations, crashes } = play;
    let server = Impostor {
        fault,
        random: Rng::with_seed(seed),
        now: Moment::BEGINNING,
        locks: (0..keys).map(|_| Lock::default()).collect(),
        last: 0,
        blocks: vec![0..0; clients],
    };
    Play {
        server,
        clients: vec![Client::Idle; clients],
        held: vec![vec![None; keys]; clients],
        history: Vec::new(),
        operations,
        crashes,
    }
    .run(seed)
}

struct Play {
    server: Impostor,
    clients: Vec<Client>,
    /// The token with which each client holds each lock, as far as it knows.
    held: Vec<Vec<Option<Token>>>,
    history: Vec<Told>,
    operations: usize,
    crashes: bool,
}

/// How far a client is with its request.
#[derive(Clone, Copy)]
enum Client {
    Idle,
    Sent(usize),
    /// A request that is done in two steps has seen this.
    Half(usize, Option<Token>),
    InLine(usize),
    Done(usize, Answer),
}

impl Play {
    fn run(mut self, seed: u64) -> Vec<Told> {
        let mut random = Rng::with_seed(seed + 1_000_000);
        for step in 1.. {
            let wall_ms = 1_000_000 + step * STEP_US / 1000;
            self.server.now = Moment { nanos: step * STEP_US * 1000, wall_ms, next_ms: wall_ms };
            let is_served = self.server.fault != Some(Fault::OvertakesLine) || step % STEPS_UNTIL_SERVED == 0;
            for key in 0..self.server.locks.len() {
                self.server.find(key);
                if is_served {
                    self.serve(key);
                }
            }
            self.end_waits();
            let are_idle = self.clients.iter().all(|client| matches!(client, Client::Idle));
            if are_idle && self.history.len() >= self.operations {
                break;
            }
            let number = random.usize(..self.clients.len());
            self.clients[number] = match self.clients[number] {
                Client::Idle if self.history.len() >= self.operations => Client::Idle,
                Client::Idle => self.ask(number, &mut random),
                Client::Sent(at) => self.begin(at),
                Client::Half(at, found) => {
                    let answer = self.server.delete(&self.history[at], found.is_some());
                    Client::Done(at, answer)
                }
                Client::InLine(at) if self.crashes && random.u32(..STEPS_PER_LEAVER) == 0 => self.leave(at),
                Client::InLine(at) => Client::InLine(at),
                Client::Done(at, answer) => {
                    let is_lost = self.crashes && random.u32(..200) == 0;
                    self.finish(at, answer, is_lost)
                }
            };
        }
        self.history
    }

    fn ask(&mut self, client: usize, random: &mut Rng) -> Client {
        let token = Token(self.history.len() as u32 + 1);
        let held = self.held[client].iter().position(Option::is_some);
        let key = held.unwrap_or_else(|| random.usize(..self.server.locks.len()));
        let mut request = match self.held[client][key].filter(|_| random.u32(..20) > 0) {
            Some(own) => draw_for_holder(random, own, token, LIFETIME_MS_MAX),
            None => {
                if self.held[client][key].take().is_some() {
                    // What is bound expires only then.
                    self.unbind(client);
                }
                draw(random, token, self.server.locks[key].holder.map(|holder| holder.token), LIFETIME_MS_MAX)
            }
        };
        if let Request::Acquire { wait_ms: Some(wait_ms), .. } = &mut request {
            *wait_ms = (*wait_ms).min(WAIT_MS_MAX);
        }
        let is_bound = self.crashes && matches!(request, Request::Acquire { .. }) && random.u32(..3) == 0;
        self.history.push(Told {
            connection: client,
            client: 0,
            front: 0,
            key,
            request,
            answer: Answer::Lost,
            sent: self.server.now,
            ended: None,
            stood_ns: None,
            left_ns: None,
            is_wrapped: false,
            is_bound,
        });
        Client::Sent(self.history.len() - 1)
    }

    /// Does a request, or its first half, or lets the client wait.
    fn begin(&mut self, at: usize) -> Client {
        let told = self.history[at];
        if self.server.fault == Some(Fault::ReleaseOfGetAndDel)
            && let Request::Release(token) = told.request
        {
            return Client::Half(at, self.server.find(told.key).filter(|found| *found == token));
        }
        let answer = self.server.answer(&told);
        if answer == Answer::Number(None) && told.wait_ms().is_some() {
            self.history[at].stood_ns = Some(self.server.now.nanos);
            if self.server.fault != Some(Fault::ForgetsWaiter) || !self.server.errs() {
                self.server.locks[told.key].line.push(at);
            }
            return Client::InLine(at);
        }
        Client::Done(at, answer)
    }

    /// Grants a free lock to the first in line.
    fn serve(&mut self, key: usize) {
        while self.server.locks[key].holder.is_none() && !self.server.locks[key].line.is_empty() {
            let line = &mut self.server.locks[key].line;
            let place = if self.server.fault == Some(Fault::LastIsFirst) { line.len() - 1 } else { 0 };
            let at = line.remove(place);
            let told = self.history[at];
            if let Request::Acquire { token, lifetime_ms, .. } = told.request {
                let number = self.server.grant(&told, token, lifetime_ms);
                if let Client::InLine(waiting) = self.clients[told.connection]
                    && waiting == at
                {
                    self.clients[told.connection] = Client::Done(at, Answer::Number(Some(number)));
                }
            }
        }
    }

    /// Tells those nil whose time is up.
    fn end_waits(&mut self) {
        for number in 0..self.clients.len() {
            let Client::InLine(at) = self.clients[number] else { continue };
            let wait_ms = self.history[at].wait_ms().unwrap_or_default();
            let is_early =
                self.server.fault == Some(Fault::NilTooSoon) && self.server.random.u32(..1000) == 0;
            let until_ns = self.history[at].sent.nanos + wait_ms * 1_000_000;
            if self.server.now.nanos >= until_ns + STEP_US * 1000 || is_early {
                self.server.locks[self.history[at].key].line.retain(|other| *other != at);
                self.clients[number] = Client::Done(at, Answer::Number(None));
            }
        }
    }

    /// Ends the connection of a client. What is bound to it is freed.
    fn unbind(&mut self, client: usize) {
        let ends_another = self.server.fault == Some(Fault::EndsWithAnother);
        for (key, lock) in self.server.locks.iter_mut().enumerate() {
            let Some(Holder { token, bound_to: Some(bound_to), .. }) = lock.holder else { continue };
            if bound_to == client {
                self.history.push(Told::unbound(
                    client,
                    key,
                    token,
                    (self.server.now, Some(self.server.now)),
                ));
            }
            if bound_to == client || ends_another {
                lock.holder = None;
            }
        }
    }

    /// A client ends its connection while it waits.
    fn leave(&mut self, at: usize) -> Client {
        self.unbind(self.history[at].connection);
        let told = &mut self.history[at];
        (told.left_ns, told.ended) = (Some(self.server.now.nanos), Some(self.server.now));
        if self.server.fault != Some(Fault::GrantsToTheGone) {
            self.server.locks[told.key].line.retain(|other| *other != at);
        }
        Client::Idle
    }

    fn finish(&mut self, at: usize, answer: Answer, is_lost: bool) -> Client {
        let told = &mut self.history[at];
        told.ended = Some(self.server.now);
        if is_lost {
            told.left_ns = Some(self.server.now.nanos);
            let connection = told.connection;
            self.unbind(connection);
            return Client::Idle;
        }
        told.answer = answer;
        let held = &mut self.held[told.connection][told.key];
        match (told.request, answer) {
            (Request::Acquire { token, .. }, Answer::Number(Some(_)))
            | (Request::SetNx { token, .. }, Answer::Done(true)) => *held = Some(token),
            (Request::Release(_) | Request::DeleteIfEq(_), _)
            | (Request::Extend { .. } | Request::Fence(_), Answer::Number(None)) => *held = None,
            _ => {}
        }
        Client::Idle
    }
}

/// The locks of a server.
struct Impostor {
    fault: Option<Fault>,
    random: Rng,
    now: Moment,
    locks: Vec<Lock>,
    /// The last number.
    last: u64,
    /// The numbers that each connection has left.
    blocks: Vec<std::ops::Range<u64>>,
}

#[derive(Default)]
struct Lock {
    holder: Option<Holder>,
    /// Requests that wait, in their order.
    line: Vec<usize>,
    /// The last number of this key.
    last: u64,
}

#[derive(Clone, Copy)]
struct Holder {
    token: Token,
    number: Option<u64>,
    expires_at_ms: u64,
    /// The connection to which it is bound, if it is.
    bound_to: Option<usize>,
}

impl Impostor {
    /// Whether a mistake that is made now and then is made now.
    fn errs(&mut self) -> bool {
        self.random.u32(..CHANCES) == 0
    }

    fn find(&mut self, key: usize) -> Option<Token> {
        let now_ms = match self.fault {
            Some(Fault::OutlivesExpiry) => self.now.wall_ms - MISSED_MS,
            Some(Fault::GoneTooSoon) => self.now.wall_ms + MISSED_MS,
            _ => self.now.wall_ms,
        };
        let holder = &mut self.locks[key].holder;
        *holder = holder.filter(|holder| now_ms < holder.expires_at_ms);
        holder.map(|holder| holder.token)
    }

    fn draw(&mut self, told: &Told) -> u64 {
        let lock = &mut self.locks[told.key];
        lock.last += 1;
        match self.fault {
            Some(Fault::NumbersOfEachKey) => return lock.last,
            Some(Fault::RepeatsNumber) if self.last > 0 && self.random.u32(..CHANCES) == 0 => {
                return self.last;
            }
            Some(Fault::NumbersInBlocks) => {
                let block = &mut self.blocks[told.connection];
                if let Some(number) = block.next() {
                    return number;
                }
                *block = self.last + 2..self.last + 10;
                self.last += 10;
                return self.last - 9;
            }
            _ => {}
        }
        self.last += 1;
        self.last
    }

    fn grant(&mut self, told: &Told, token: Token, lifetime_ms: u64) -> u64 {
        let number = self.draw(told);
        let is_renewed = told.is_bound && self.fault != Some(Fault::ExpiresThoughBound);
        let expires_at_ms = if is_renewed { u64::MAX } else { self.now.wall_ms + lifetime_ms };
        let bound_to = Some(told.connection).filter(|_| told.is_bound);
        self.locks[told.key].holder = Some(Holder { token, number: Some(number), expires_at_ms, bound_to });
        number
    }

    /// Deletes a lock, if that is asked for.
    fn delete(&mut self, told: &Told, is_asked_for: bool) -> Answer {
        if is_asked_for {
            self.locks[told.key].holder = None;
        }
        Answer::Done(is_asked_for)
    }

    fn answer(&mut self, told: &Told) -> Answer {
        let found = self.find(told.key);
        let is = |fault: Fault| self.fault == Some(fault);
        match told.request {
            Request::Acquire { token, lifetime_ms, .. } => {
                let errs = is(Fault::GrantsHeldLock) && self.errs();
                match found.is_none() || errs {
                    true => Answer::Number(Some(self.grant(told, token, lifetime_ms))),
                    false => Answer::Number(None),
                }
            }
            Request::Extend { token, lifetime_ms } => {
                if found.is_none() || (found != Some(token) && !is(Fault::ExtendsByAnyToken)) {
                    return Answer::Number(None);
                }
                let before = self.locks[told.key].holder.and_then(|holder| holder.number);
                let number = match before.filter(|_| self.fault != Some(Fault::ExtendRenumbers)) {
                    Some(number) => number,
                    None => self.draw(told),
                };
                if let Some(holder) = &mut self.locks[told.key].holder {
                    holder.number = Some(number);
                    if holder.expires_at_ms < u64::MAX {
                        holder.expires_at_ms = self.now.wall_ms + lifetime_ms;
                    }
                }
                Answer::Number(Some(number))
            }
            Request::Release(token) => {
                let is_asked_for = found == Some(token) || (found.is_some() && is(Fault::ReleasesByAnyToken));
                self.delete(told, is_asked_for)
            }
            Request::DeleteIfEq(token) => self.delete(told, found == Some(token)),
            Request::Fence(token) => {
                let is_shown = found == Some(token) || is(Fault::FenceOfAnother);
                let holder = self.locks[told.key].holder.filter(|_| is_shown);
                Answer::Number(holder.and_then(|holder| holder.number))
            }
            Request::SetNx { token, lifetime_ms } => {
                if found.is_none() {
                    let expires_at_ms = self.now.wall_ms + lifetime_ms;
                    let holder = Holder { token, number: None, expires_at_ms, bound_to: None };
                    self.locks[told.key].holder = Some(holder);
                }
                Answer::Done(found.is_none())
            }
            Request::Get => Answer::Found(found),
            Request::Del => self.delete(told, found.is_some()),
        }
    }
}
