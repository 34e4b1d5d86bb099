//! Servers that are wrong on purpose, and one that is not, played in the memory of the test: clients that are
//! let go one step at a time, in a random order that is always the same.

use fastrand::Rng;

use super::recorder::draw;
use super::register::{Answer, Moment, Operation, Request, Token};

/// What is wrong with a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// SETNX says 1 although the key is there, and writes it.
    SecondSetNxWins,
    /// GET answers what was there before.
    StaleRead,
    /// SETNX looks first, and writes a moment later.
    SetNxOfGetAndSet,
    /// GETSET reads first, and writes a moment later.
    GetSetOfGetAndSet,
    /// DELIFEQ compares first, and deletes a moment later whatever is there.
    DelIfEqOfGetAndDel,
    /// EXEC writes although a watched key has changed.
    ExecIgnoresWatch,
    /// Keys are there for some time after they have expired.
    OutlivesExpiry,
    /// Keys are gone some time before they expire.
    GoneTooSoon,
}

pub(super) const FAULTS: [Fault; 8] = [
    Fault::SecondSetNxWins,
    Fault::StaleRead,
    Fault::SetNxOfGetAndSet,
    Fault::GetSetOfGetAndSet,
    Fault::DelIfEqOfGetAndDel,
    Fault::ExecIgnoresWatch,
    Fault::OutlivesExpiry,
    Fault::GoneTooSoon,
];

/// How clients ask.
#[derive(Clone, Copy, Debug)]
pub(super) struct Play {
    pub(super) seed: u64,
    pub(super) clients: usize,
    pub(super) keys: usize,
    pub(super) operations: usize,
    /// How long one step of one client takes, in microseconds; there are three to a request, at least.
    pub(super) step_us: u64,
    /// Of so many requests one is asked by a client that does not read the answer.
    pub(super) requests_per_crash: Option<usize>,
}

/// By how much expiry is missed.
const MISSED_MS: u64 = 5;

/// Plays a history.
pub(super) fn play(play: Play, fault: Option<Fault>) -> Vec<Operation> {
    let mut random = Rng::with_seed(play.seed);
    let mut table = Table { fault, cells: vec![Cell::default(); play.keys], now_ms: 0 };
    let mut clients: Vec<Client> = vec![Client::Idle; play.clients];
    let mut history: Vec<Operation> = Vec::new();
    for step in 1.. {
        let wall_ms = 1_000_000 + step * play.step_us / 1000;
        let now = Moment { nanos: step * play.step_us * 1000, wall_ms, next_ms: wall_ms };
        table.now_ms = now.wall_ms;
        let connection = random.usize(..play.clients);
        let client = &mut clients[connection];
        *client = match *client {
            Client::Idle if history.len() == play.operations => break,
            Client::Idle => {
                let key = random.usize(..play.keys);
                let token = Token(history.len() as u32 + 1);
                let request = draw(&mut random, token, table.cells[key].token);
                let answer = Answer::Lost;
                history.push(Operation { connection, key, request, answer, sent: now, ended: None });
                Client::Sent(history.len() - 1)
            }
            Client::Sent(number) => table.begin(number, &history[number]),
            Client::Half(number, found) => Client::Done(number, table.finish(&history[number], found)),
            Client::Done(number, answer) => {
                let crashes = play.requests_per_crash.is_some_and(|requests| random.usize(..requests) == 0);
                if !crashes {
                    history[number] = Operation { answer, ended: Some(now), ..history[number] };
                }
                Client::Idle
            }
        };
    }
    history
}

/// How far a client is with its request.
#[derive(Clone, Copy)]
enum Client {
    Idle,
    Sent(usize),
    /// A request that is done in two steps has seen this.
    Half(usize, Option<Token>),
    Done(usize, Answer),
}

/// The keys of a server.
struct Table {
    fault: Option<Fault>,
    cells: Vec<Cell>,
    now_ms: u64,
}

#[derive(Clone, Copy, Default)]
struct Cell {
    token: Option<Token>,
    expires_at_ms: Option<u64>,
    before: Option<Token>,
}

impl Table {
    /// Does a request, or its first half.
    fn begin(&mut self, number: usize, operation: &Operation) -> Client {
        let is_torn = matches!(
            (operation.request, self.fault),
            (Request::SetNx(..), Some(Fault::SetNxOfGetAndSet))
                | (Request::GetSet(_), Some(Fault::GetSetOfGetAndSet))
                | (Request::DelIfEq(_), Some(Fault::DelIfEqOfGetAndDel))
        );
        let found = self.find(operation.key);
        match is_torn {
            true => Client::Half(number, found),
            false => Client::Done(number, self.finish(operation, found)),
        }
    }

    fn find(&mut self, key: usize) -> Option<Token> {
        let now_ms = match self.fault {
            Some(Fault::OutlivesExpiry) => self.now_ms - MISSED_MS,
            Some(Fault::GoneTooSoon) => self.now_ms + MISSED_MS,
            _ => self.now_ms,
        };
        if self.cells[key].expires_at_ms.is_some_and(|expires_at_ms| expires_at_ms <= now_ms) {
            self.write(key, None, None);
        }
        self.cells[key].token
    }

    /// Does what a request asks for, which has seen this.
    fn finish(&mut self, operation: &Operation, found: Option<Token>) -> Answer {
        let key = operation.key;
        match operation.request {
            Request::Get if self.fault == Some(Fault::StaleRead) => Answer::Found(self.cells[key].before),
            Request::Get => Answer::Found(found),
            Request::GetEx(ms) => {
                self.renew(key, found, ms);
                Answer::Found(found)
            }
            Request::GetSet(token) => {
                self.write(key, Some(token), None);
                Answer::Found(found)
            }
            Request::Set(token, lifetime) => {
                self.write(key, Some(token), lifetime);
                Answer::Done(true)
            }
            Request::SetNx(token, lifetime) => {
                let wins = found.is_none() || self.fault == Some(Fault::SecondSetNxWins);
                if wins {
                    self.write(key, Some(token), lifetime);
                }
                Answer::Done(wins)
            }
            Request::Del => self.delete(key, found.is_some()),
            Request::DelIfEq(token) => self.delete(key, found == Some(token)),
            Request::Expire(ms) => {
                self.renew(key, found, ms);
                Answer::Done(found.is_some())
            }
            Request::ExtendIfEq(..) | Request::ProlongIfEq(..) | Request::Holds(_) => {
                unreachable!("only clients of locks ask that")
            }
            Request::Swap(seen, token) => {
                let is_done = found == seen || self.fault == Some(Fault::ExecIgnoresWatch);
                if is_done {
                    self.write(key, Some(token), None);
                }
                Answer::Done(is_done)
            }
        }
    }

    fn write(&mut self, key: usize, token: Option<Token>, lifetime: Option<u64>) {
        let expires_at_ms = lifetime.map(|ms| self.now_ms + ms);
        self.cells[key] = Cell { token, expires_at_ms, before: self.cells[key].token };
    }

    fn renew(&mut self, key: usize, found: Option<Token>, ms: u64) {
        if found.is_some() {
            self.cells[key].expires_at_ms = Some(self.now_ms + ms);
        }
    }

    fn delete(&mut self, key: usize, is_asked_for: bool) -> Answer {
        if is_asked_for {
            self.write(key, None, None);
        }
        Answer::Done(is_asked_for)
    }
}
