//! Records what 16 clients at once do with a few locks, and the replies that they get.
//!
//! Some end their connection while they wait, or before they read their reply, or to free locks that are
//! bound to it. Beside them, an observer asks each server again and again which clients are blocked, so that
//! it is known of many when they certainly stood in line.

use std::mem::take;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use fastrand::Rng;

use super::told::{Answer, Request, Told};
use crate::linear::recorder::{CONNECTIONS, Watch};
use crate::linear::register::{Moment, Token};
use support::client::{Client, Reply, request, words};
use support::server::{Server, SetOnDrop, wait_until};

/// Of so many requests one is sent by a client that does not live to read the reply.
const REQUESTS_PER_CRASH: u32 = 200;
/// The same of requests that wait.
const WAITS_PER_CRASH: u32 = 20;
/// A client that was refused asks again after so long.
const REFUSED: Duration = Duration::from_millis(5);
/// How the errors of requests begin that have not been done.
const NOT_DONE: [&str; 3] = ["OOM ", "STOREDOWN ", "TRYAGAIN "];
/// Of so many requests of holders of bound locks, one comes when the lease has passed.
const BOUND_PER_LONG_HOLDER: u32 = 200;
/// The longest lease that holders wait for to pass.
const BRIEF_LEASE_MS: u64 = 1_000;
/// A wait that ends only with a grant: longer than any history.
pub(super) const LONG_MS: u64 = 60_000;

/// How clients use locks.
#[derive(Clone, Copy)]
pub(super) struct Use {
    pub(super) clients: usize,
    pub(super) keys: usize,
    pub(super) operations: usize,
    /// The longest life of a lock.
    pub(super) lifetime_ms_max: u64,
    /// Of so many holders, one lets its lock expire.
    pub(super) holders_per_expiry: u32,
    /// Whether a request has no effect any more when its connection has gone.
    pub(super) ends_with_connection: bool,
    /// Whether some clients end their connection.
    pub(super) crashes: bool,
    /// Whether each client uses the same token again and again.
    pub(super) has_one_token: bool,
    /// Whether some requests travel within MULTI, and some within scripts.
    pub(super) is_wrapped: bool,
    /// Whether some locks are bound to the connections of their holders.
    pub(super) binds: bool,
    /// The shortest lease of a lock that is bound.
    pub(super) lease_ms_min: u64,
    pub(super) seed: u64,
}

/// What is done to a server meanwhile, again and again.
pub(super) type Disturb = fn(&mut Client, &mut Rng, &Disturbed);

/// Waits that were ended by others.
pub(super) struct Disturbed<'w> {
    pub(super) watch: &'w Watch,
    pub(super) ended: Mutex<Vec<EndedWait>>,
}

/// A client whose wait was ended, if it waited, between two moments.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndedWait {
    pub(super) client: u64,
    pub(super) began_ns: u64,
    pub(super) ended_ns: u64,
}

/// The clients that were blocked at some moment between two.
struct Seen {
    began_ns: u64,
    ended_ns: u64,
    blocked: Vec<u64>,
}

/// Has 16 clients of servers that show the same keys use locks.
pub(super) fn record(servers: &[Server], how: Use, disturb: Option<Disturb>) -> Vec<Told> {
    let (watch, asked, is_over) = (Watch::start(), AtomicUsize::new(0), AtomicBool::new(false));
    let disturbed = Disturbed { watch: &watch, ended: Mutex::default() };
    let (mut history, seen) = thread::scope(|scope| {
        let (watch, asked, is_over, disturbed) = (&watch, &asked, &is_over, &disturbed);
        let _end = SetOnDrop(is_over);
        let observers: Vec<_> =
            servers.iter().map(|server| scope.spawn(move || observe(server, watch, is_over))).collect();
        if let Some(disturb) = disturb {
            scope.spawn(move || {
                let (mut client, mut random) = (servers[0].client(), Rng::with_seed(how.seed));
                while !is_over.load(Ordering::Relaxed) {
                    disturb(&mut client, &mut random, disturbed);
                }
            });
        }
        let users: Vec<_> = (0..how.clients)
            .map(|connection| {
                scope.spawn(move || {
                    let mut user = User::new(servers, watch, connection, how);
                    while asked.fetch_add(1, Ordering::Relaxed) < how.operations {
                        user.go_on();
                    }
                    user.end();
                    user.history
                })
            })
            .collect();
        let history: Vec<Told> = users.into_iter().flat_map(|user| user.join().expect("a history")).collect();
        is_over.store(true, Ordering::Relaxed);
        let seen: Vec<_> =
            observers.into_iter().map(|observer| observer.join().expect("what it saw")).collect();
        (history, seen)
    });
    history.sort_unstable_by_key(|told| told.sent.nanos);
    let ended = disturbed.ended.into_inner().expect("what was done");
    for told in history.iter_mut().filter(|told| told.wait_ms().is_some()) {
        note_wait(told, &seen[told.front], &ended);
    }
    history
}

/// Notes when a client certainly stood in line, and what else may have ended its wait.
fn note_wait(told: &mut Told, seen: &[Seen], ended: &[EndedWait]) {
    let from = seen.partition_point(|seen| seen.began_ns < told.sent.nanos);
    let until_ns = told.left_ns.unwrap_or(u64::MAX).min(told.ended_ns());
    let mut meanwhile = seen[from..].iter().take_while(|seen| seen.ended_ns < until_ns);
    let found = meanwhile.find(|seen| seen.blocked.contains(&told.client));
    told.stood_ns = found.map(|seen| seen.ended_ns);
    let was_meant = |end: &&EndedWait| {
        end.client == told.client && end.began_ns < told.ended_ns() && told.sent.nanos < end.ended_ns
    };
    if let Some(first) = ended.iter().find(was_meant) {
        told.left_ns = Some(told.left_ns.map_or(first.began_ns, |left_ns| left_ns.min(first.began_ns)));
    }
}

/// Asks a server which clients are blocked, until the history is over.
fn observe(server: &Server, watch: &Watch, is_over: &AtomicBool) -> Vec<Seen> {
    let (mut client, mut all) = (server.client(), Vec::new());
    while !is_over.load(Ordering::Relaxed) {
        let began_ns = watch.now().nanos;
        let blocked = blocked(&mut client);
        all.push(Seen { began_ns, ended_ns: watch.now().nanos, blocked });
        thread::sleep(Duration::from_micros(500));
    }
    all
}

/// The numbers of all clients that are blocked.
pub(super) fn blocked(client: &mut Client) -> Vec<u64> {
    let text = client.line("CLIENT LIST").text();
    let number = |line: &str| {
        let flags = line.split(' ').find_map(|field| field.strip_prefix("flags="))?;
        let id = line.strip_prefix("id=")?.split(' ').next()?.parse().ok()?;
        flags.contains('b').then_some(id)
    };
    text.lines().filter_map(number).collect()
}

/// One client after the other, of which each uses locks.
struct User<'s> {
    servers: &'s [Server],
    front: usize,
    watch: &'s Watch,
    how: Use,
    client: Client,
    id: u64,
    connection: usize,
    random: Rng,
    tokens: u32,
    /// The token with which it holds each lock, as far as it knows.
    held: Vec<Option<Token>>,
    /// A token that it has used or seen, by key.
    known: Vec<Option<Token>>,
    /// The locks that may be bound to its connection.
    bound: Vec<Bound>,
    history: Vec<Told>,
}

/// A lock that may be bound to a connection.
struct Bound {
    key: usize,
    token: Token,
    asked: Moment,
}

impl<'s> User<'s> {
    fn new(servers: &'s [Server], watch: &'s Watch, connection: usize, how: Use) -> User<'s> {
        let front = connection % servers.len();
        let (client, id) = connect(&servers[front]);
        User {
            servers,
            front,
            watch,
            how,
            client,
            id,
            connection,
            random: Rng::with_seed(how.seed * 1000 + connection as u64),
            tokens: 0,
            held: vec![None; how.keys],
            known: vec![None; how.keys],
            bound: Vec::new(),
            history: Vec::new(),
        }
    }

    fn go_on(&mut self) {
        self.tokens += 1;
        let number = if self.how.has_one_token { 1 } else { self.tokens };
        let token = Token(number * CONNECTIONS as u32 + self.connection as u32);
        let held = self.held.iter().position(Option::is_some).filter(|_| self.random.u32(..4) > 0);
        let key = held.unwrap_or_else(|| self.random.usize(..self.how.keys));
        let request = match self.held[key] {
            Some(own) if self.random.u32(..self.how.holders_per_expiry) == 0 => {
                (self.held[key], self.known[key]) = (None, Some(own));
                // One that is bound expires only then.
                return self.end();
            }
            Some(own)
                if self.how.lease_ms_min <= BRIEF_LEASE_MS
                    && self.is_bound(own)
                    && self.random.u32(..BOUND_PER_LONG_HOLDER) == 0 =>
            {
                thread::sleep(Duration::from_millis(2 * self.how.lease_ms_min));
                Request::Fence(own)
            }
            Some(own) => draw_for_holder(&mut self.random, own, token, self.how.lifetime_ms_max),
            None => draw(&mut self.random, token, self.known[key], self.how.lifetime_ms_max),
        };
        self.ask(key, self.beside_bound(request));
    }

    fn is_bound(&self, token: Token) -> bool {
        self.bound.iter().any(|bound| bound.token == token)
    }

    /// Where locks are bound, two clients that have some must not wait for each other, and no other client
    /// brings the end of one so near that it comes before the next renewal.
    fn beside_bound(&self, request: Request) -> Request {
        match request {
            Request::Acquire { token, lifetime_ms, wait_ms: Some(LONG_MS), is_again }
                if !self.bound.is_empty() =>
            {
                Request::Acquire { token, lifetime_ms, wait_ms: Some(5), is_again }
            }
            Request::Extend { token, lifetime_ms } if self.how.binds => {
                Request::Extend { token, lifetime_ms: self.how.lease_ms_min + lifetime_ms }
            }
            other => other,
        }
    }

    fn ask(&mut self, key: usize, asked: Request) {
        let mut told = Told {
            connection: self.connection,
            client: self.id,
            front: self.front,
            key,
            request: asked,
            answer: Answer::Lost,
            sent: self.watch.now(),
            ended: None,
            stood_ns: None,
            left_ns: None,
            is_wrapped: false,
            is_bound: false,
        };
        let bond = told.token().filter(|_| self.how.binds && self.random.u32(..3) == 0);
        let bond = bond.map_or(String::new(), |token| {
            told.is_bound = true;
            self.bound.push(Bound { key, token, asked: told.sent });
            match self.random.u32(..4) {
                0 if self.how.lease_ms_min <= BRIEF_LEASE_MS && self.random.u32(..4) == 0 => String::new(),
                1 => format!(" GRACE {}", self.random.u64(..self.how.lifetime_ms_max)),
                _ => " GRACE 0".to_owned(),
            }
        });
        let waits = told.wait_ms().is_some();
        let crashes = self.how.crashes
            && self.random.u32(..if waits { WAITS_PER_CRASH } else { REQUESTS_PER_CRASH }) == 0;
        let wrapped = if self.how.is_wrapped && !waits { self.random.u32(..8) } else { u32::MAX };
        let bond = told.is_bound.then_some(&*bond);
        let (bytes, replies) = bytes(key, asked, (bond, self.how.lease_ms_min), wrapped);
        told.is_wrapped = wrapped < 2;
        told.sent = self.watch.now();
        if self.client.try_send(&bytes).is_err() {
            // It was killed before, so that the server has not read this.
            return self.connect(false);
        }
        if crashes {
            thread::sleep(Duration::from_micros(if waits { self.random.u64(..5000) } else { 0 }));
            told.left_ns = Some(self.watch.now().nanos);
            self.connect(true);
            told.ended = self.has_gone(told.client);
        } else {
            match self.read_reply(replies) {
                Some(Reply::Error(text)) if text.starts_with("STOREDOWN Outcome unknown") => {
                    self.bound.retain(|bound| Some(bound.token) != told.token());
                }
                Some(Reply::Error(text)) if NOT_DONE.iter().any(|why| text.starts_with(why)) => {
                    self.bound.retain(|bound| Some(bound.token) != told.token());
                    thread::sleep(REFUSED);
                    return;
                }
                Some(Reply::Error(text)) if text.starts_with("UNBLOCKED ") => {
                    (told.answer, told.ended) = (Answer::Number(None), Some(self.watch.now()));
                }
                Some(reply) => {
                    (told.answer, told.ended) = (read_answer(asked, &reply), Some(self.watch.now()));
                }
                // It was killed.
                None => {
                    told.left_ns = Some(told.sent.nanos);
                    self.connect(false);
                    told.ended = self.has_gone(told.client);
                }
            }
        }
        self.learn(&told);
        self.history.push(told);
    }

    fn read_reply(&mut self, replies: usize) -> Option<Reply> {
        let mut last = None;
        for _ in 0..replies {
            last = Some(Reply::decode(&self.client.try_reply_bytes().ok()?).0);
        }
        Some(match last? {
            Reply::Array(mut items) if replies > 1 => items.pop().expect("a reply"),
            other => other,
        })
    }

    /// Ends the connection, if locks are bound to it, and goes on with another one.
    fn end(&mut self) {
        if !self.bound.is_empty() {
            self.connect(true);
        }
    }

    /// Goes on with another connection. The one before ends now, if that is meant, or has been killed. Each
    /// lock that was bound to it is freed before its token is found to have it no more.
    fn connect(&mut self, is_meant: bool) {
        let (ends, before) = (self.watch.now(), self.id);
        (self.client, self.id) = connect(&self.servers[self.front]);
        if self.bound.is_empty() {
            return;
        }
        self.has_gone(before);
        for Bound { key, token, asked } in take(&mut self.bound) {
            let line = format!("LOCK FENCE lock:{key} {}", token.0);
            wait_until("a lock is free to which no connection is left", || {
                self.client.line(&line).reply() == Reply::Null
            });
            let from = if is_meant { ends } else { asked };
            // What was on its way to a store may be granted after this, and is freed after that.
            let is_certain = self.how.ends_with_connection || self.held[key] == Some(token);
            let until = is_certain.then(|| self.watch.now());
            self.history.push(Told::unbound(self.connection, key, token, (from, until)));
        }
    }

    /// Waits until the server knows that a client has gone.
    fn has_gone(&mut self, client: u64) -> Option<Moment> {
        if !self.how.ends_with_connection {
            return None;
        }
        let line = format!("CLIENT LIST ID {client}");
        while !self.client.line(&line).text().trim().is_empty() {
            thread::sleep(Duration::from_micros(200));
        }
        Some(self.watch.now())
    }

    /// Keeps in mind which locks it holds, and the tokens that it has seen.
    fn learn(&mut self, told: &Told) {
        let gone = match (told.request, told.answer) {
            (Request::Acquire { token, .. }, Answer::Number(None))
            | (Request::Release(token) | Request::DeleteIfEq(token), Answer::Done(_))
            | (Request::Extend { token, .. } | Request::Fence(token), Answer::Number(None)) => Some(token),
            _ => None,
        };
        self.bound.retain(|bound| Some(bound.token) != gone);
        let (held, known) = (&mut self.held[told.key], &mut self.known[told.key]);
        match (told.request, told.answer) {
            (Request::Acquire { token, .. }, Answer::Number(Some(_)))
            | (Request::SetNx { token, .. }, Answer::Done(true)) => {
                (*held, *known) = (Some(token), Some(token))
            }
            (Request::Acquire { token, .. }, Answer::Lost) => *known = Some(token),
            (Request::Release(_) | Request::DeleteIfEq(_), Answer::Done(_) | Answer::Lost)
            | (Request::Extend { .. } | Request::Fence(_), Answer::Number(None)) => *held = None,
            (_, Answer::Found(Some(found))) => *known = Some(found),
            _ => {}
        }
    }
}

fn connect(server: &Server) -> (Client, u64) {
    let mut client = server.client();
    let id = client.line("CLIENT ID").integer().cast_unsigned();
    (client, id)
}

/// Draws what a client asks that holds the lock, as far as it knows.
pub(super) fn draw_for_holder(random: &mut Rng, own: Token, token: Token, lifetime_ms_max: u64) -> Request {
    let lifetime_ms = random.u64(1..=lifetime_ms_max);
    match random.u32(..20) {
        0..11 => Request::Release(own),
        11..13 => Request::DeleteIfEq(own),
        13 => Request::Del,
        14 => Request::Extend { token: own, lifetime_ms },
        15 => Request::Acquire { token, lifetime_ms, wait_ms: None, is_again: true },
        16..18 => Request::Fence(own),
        18 => Request::Release(token),
        _ => Request::Acquire { token, lifetime_ms, wait_ms: Some(1), is_again: random.bool() },
    }
}

/// Draws what a client asks that does not hold the lock.
pub(super) fn draw(random: &mut Rng, token: Token, known: Option<Token>, lifetime_ms_max: u64) -> Request {
    let lifetime_ms = random.u64(1..=lifetime_ms_max);
    // One that was never had is refused, which is to be checked as well.
    let other = known.unwrap_or(token);
    let is_again = random.bool();
    match random.u32(..40) {
        0..8 => Request::Acquire { token, lifetime_ms, wait_ms: None, is_again },
        8..16 => Request::Acquire { token, lifetime_ms, wait_ms: Some(random.u64(1..6)), is_again },
        16..25 => Request::Acquire { token, lifetime_ms, wait_ms: Some(LONG_MS), is_again },
        25..28 => Request::SetNx { token, lifetime_ms },
        28..32 => Request::Get,
        32..34 => Request::Release(other),
        34 => Request::DeleteIfEq(other),
        35..37 => Request::Fence(other),
        37..39 => Request::Extend { token: other, lifetime_ms },
        _ => Request::Del,
    }
}

/// The bytes of a request, and how many replies come. Some travel within a transaction, some within a script.
/// A lock that is to be bound is so on these terms.
fn bytes(
    key: usize,
    asked: Request,
    (bond, lease_ms_min): (Option<&str>, u64),
    wrapped: u32,
) -> (Vec<u8>, usize) {
    const COMPARE: &str = "if redis.call('get',KEYS[1])==ARGV[1] then \
                           return redis.call('del',KEYS[1]) else return 0 end";
    let key = format!("lock:{key}");
    let line = match asked {
        Request::Acquire { token: Token(token), lifetime_ms, wait_ms, is_again } => {
            let wait = wait_ms.map_or(String::new(), |wait_ms| format!(" WAIT {wait_ms}"));
            let again = if is_again { " AGAIN" } else { "" };
            match bond {
                None => format!("LOCK ACQUIRE {key} {token} PX {lifetime_ms}{wait}{again}"),
                Some(terms) => {
                    let lease_ms = lease_ms_min + lifetime_ms;
                    format!("LOCK ACQUIRE {key} {token} PX {lease_ms}{wait}{again} BOUND{terms}")
                }
            }
        }
        Request::Extend { token: Token(token), lifetime_ms } => {
            format!("LOCK EXTEND {key} {token} PX {lifetime_ms}")
        }
        Request::Release(Token(token)) => format!("LOCK RELEASE {key} {token}"),
        Request::Fence(Token(token)) => format!("LOCK FENCE {key} {token}"),
        Request::SetNx { token: Token(token), lifetime_ms } => {
            format!("SET {key} {token} NX PX {lifetime_ms}")
        }
        Request::DeleteIfEq(Token(token)) => {
            return (request(["EVAL", COMPARE, "1", &key, &token.to_string()]), 1);
        }
        Request::Get => format!("GET {key}"),
        // Each key is a lock.
        Request::Del if wrapped.is_multiple_of(2) => format!("LOCK BREAK {key}"),
        Request::Del => format!("DEL {key}"),
    };
    let line = words(&line);
    match wrapped {
        0 => ([request(["MULTI"]), request(line), request(["EXEC"])].concat(), 3),
        1 => {
            // The key is the first word that names one.
            let script = "local words = {} for place, word in ipairs(ARGV) do words[place] = word end \
                          local key = words[1] == 'LOCK' and 3 or 2 words[key] = KEYS[1] \
                          return redis.call(unpack(words))";
            let head = ["EVAL", script, "1", &key].map(str::to_owned);
            (request(head.into_iter().chain(line)), 1)
        }
        _ => (request(line), 1),
    }
}

fn read_answer(asked: Request, reply: &Reply) -> Answer {
    let is_number = matches!(asked, Request::Acquire { .. } | Request::Extend { .. } | Request::Fence(_));
    match reply {
        Reply::Integer(number) if is_number => Answer::Number(Some(number.cast_unsigned())),
        Reply::Null if is_number => Answer::Number(None),
        Reply::Integer(number) => Answer::Done(*number == 1),
        Reply::Simple(text) if text == "OK" => Answer::Done(true),
        Reply::Null if asked == Request::Get => Answer::Found(None),
        Reply::Null => Answer::Done(false),
        Reply::Bulk(digits) => {
            let digits = String::from_utf8_lossy(digits);
            Answer::Found(Some(Token(digits.parse().expect("a token that was written"))))
        }
        other => panic!("{asked:?} was answered {other}"),
    }
}
