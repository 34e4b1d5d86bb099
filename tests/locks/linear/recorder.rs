//! Records the requests of many concurrent connections, and the replies.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fastrand::Rng;

use super::register::{Answer, Moment, Operation, Request, Token};
use support::client::{Client, Reply};
use support::server::Server;

pub(super) const CONNECTIONS: usize = 16;
/// Of so many requests one is sent by a client that does not live to read the answer.
const REQUESTS_PER_CRASH: u32 = 250;
/// A client that was refused asks again after so long.
const REFUSED: Duration = Duration::from_millis(5);
/// Longest life of a key that expires: long enough to be met alive, short enough to end within the history.
const LIFETIME_MS_MAX: u64 = 8;

/// A clock for the moments of requests and replies.
pub(super) struct Watch(Instant);

impl Watch {
    pub(super) fn start() -> Watch {
        Watch(Instant::now())
    }

    pub(super) fn now(&self) -> Moment {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock that is set");
        let next_ms = wall.as_nanos().div_ceil(1_000_000) as u64;
        Moment { nanos: self.0.elapsed().as_nanos() as u64, wall_ms: wall.as_millis() as u64, next_ms }
    }
}

/// Clients that share the attempts of a history of locks.
const SHARERS: usize = 12;

/// Has twelve clients of these servers make so many attempts, each with a number of its own. `asker` makes a
/// client of its server and of the seed of its random choices, `ask` makes an attempt, and `granted` returns
/// what came of all of them.
pub(super) fn share_out<'s, Asker, Grant: Send>(
    servers: &'s [Server],
    attempts: usize,
    asker: impl Fn(&'s Server, u64) -> Asker + Sync,
    ask: impl Fn(&mut Asker, usize) + Sync,
    granted: impl Fn(Asker) -> Vec<Grant> + Sync,
) -> Vec<Grant> {
    let asked = AtomicUsize::new(0);
    let go_on = |number: usize| {
        let mut asker = asker(&servers[number % servers.len()], number as u64);
        loop {
            let attempt = asked.fetch_add(1, Ordering::Relaxed);
            if attempt >= attempts {
                break granted(asker);
            }
            ask(&mut asker, attempt);
        }
    };
    thread::scope(|scope| {
        let go_on = &go_on;
        let clients: Vec<_> = (0..SHARERS).map(|number| scope.spawn(move || go_on(number))).collect();
        clients.into_iter().flat_map(|client| client.join().expect("a client")).collect()
    })
}

/// Has 16 connections ask so many times for so many keys.
pub(super) fn record(server: &Server, is_redis: bool, keys: usize, operations: usize) -> Vec<Operation> {
    let asked = AtomicUsize::new(0);
    record_while(std::slice::from_ref(server), is_redis, keys, || {
        asked.fetch_add(1, Ordering::Relaxed) < operations
    })
}

/// Has 16 connections to several servers, which show the same keys, ask as long as the function says so.
pub(super) fn record_while(
    servers: &[Server],
    is_redis: bool,
    keys: usize,
    goes_on: impl Fn() -> bool + Sync,
) -> Vec<Operation> {
    let watch = Watch::start();
    thread::scope(|scope| {
        let recorders: Vec<_> = (0..CONNECTIONS)
            .map(|connection| {
                let (watch, goes_on) = (&watch, &goes_on);
                scope.spawn(move || {
                    let server = &servers[connection % servers.len()];
                    let mut asker = Asker::new(server, is_redis, watch, connection, keys);
                    while goes_on() {
                        asker.ask();
                    }
                    asker.history
                })
            })
            .collect();
        recorders.into_iter().flat_map(|recorder| recorder.join().expect("a history")).collect()
    })
}

/// One connection, and then the next of the same client.
struct Asker<'s> {
    server: &'s Server,
    /// Redis has no DELIFEQ.
    is_redis: bool,
    watch: &'s Watch,
    client: Client,
    connection: usize,
    random: Rng,
    tokens: u32,
    /// What it last knew to be there, by key: a token is only named by those who know that it was written.
    known: Vec<Option<Token>>,
    history: Vec<Operation>,
}

impl<'s> Asker<'s> {
    fn new(
        server: &'s Server,
        is_redis: bool,
        watch: &'s Watch,
        connection: usize,
        keys: usize,
    ) -> Asker<'s> {
        Asker {
            server,
            is_redis,
            watch,
            client: server.client(),
            connection,
            random: Rng::with_seed(connection as u64),
            tokens: 0,
            known: vec![None; keys],
            history: Vec::new(),
        }
    }

    fn ask(&mut self) {
        let key = self.random.usize(..self.known.len());
        let token = Token(self.tokens * CONNECTIONS as u32 + self.connection as u32 + 1);
        self.tokens += 1;
        let request = draw(&mut self.random, token, self.known[key]);
        match request {
            Request::Swap(_, token) => self.swap(key, token),
            _ => drop(self.send(key, request, &words(key, request, self.is_redis))),
        }
    }

    /// Watches a key and reads it, and writes it by EXEC. If a step fails, the next client goes on.
    fn swap(&mut self, key: usize, token: Token) {
        let words = |text: String| -> Vec<Vec<String>> {
            text.split("; ").map(|request| request.split(' ').map(str::to_owned).collect()).collect()
        };
        self.client.send(&support::client::request(["WATCH", &format!("register:{key}")]));
        let swapped = match self.client.reply().reply() {
            Reply::Simple(_) => match self.send(key, Request::Get, &words(format!("GET register:{key}"))) {
                Some(Answer::Found(seen)) => {
                    let all = format!("MULTI; SET register:{key} {}; EXEC", token.0);
                    self.send(key, Request::Swap(seen, token), &words(all))
                }
                _ => None,
            },
            _ => None,
        };
        if !matches!(swapped, Some(Answer::Done(_))) {
            self.client = self.server.client();
        }
    }

    /// Sends requests of which the last one counts, and records the reply to it. `None` if it was refused.
    fn send(&mut self, key: usize, request: Request, requests: &[Vec<String>]) -> Option<Answer> {
        let crashes = self.random.u32(..REQUESTS_PER_CRASH) == 0;
        let bytes: Vec<u8> = requests.iter().flat_map(support::client::request).collect();
        let sent = self.watch.now();
        self.client.send(&bytes);
        if !crashes {
            requests[1..].iter().for_each(|_| self.client.reply().ignored());
        }
        let (answer, ended) = match crashes {
            true => {
                self.client = self.server.client();
                (Answer::Lost, None)
            }
            false => match self.client.reply().reply() {
                // A store was away. The server says whether it has not done the request, or does not know.
                Reply::Error(text) if text.starts_with("STOREDOWN Outcome unknown") => (Answer::Lost, None),
                Reply::Error(text) if text.starts_with("STOREDOWN ") || text.starts_with("TRYAGAIN ") => {
                    thread::sleep(REFUSED);
                    return None;
                }
                reply => (read_answer(request, &reply), Some(self.watch.now())),
            },
        };
        let operation = Operation { connection: self.connection, key, request, answer, sent, ended };
        let written = operation.written().filter(|_| matches!(answer, Answer::Done(true) | Answer::Found(_)));
        self.known[key] = written.or(operation.observed()).or(self.known[key]);
        self.history.push(operation);
        Some(answer)
    }
}

/// Draws a request: locks that are taken, asked for, renewed, let go and taken away.
pub(super) fn draw(random: &mut Rng, token: Token, known: Option<Token>) -> Request {
    let lifetime_ms = random.u64(2..=LIFETIME_MS_MAX);
    match random.u32(..40) {
        0..6 => Request::SetNx(token, None),
        6..12 => Request::SetNx(token, Some(lifetime_ms)),
        12..14 => Request::Set(token, None),
        14..16 => Request::Set(token, Some(lifetime_ms)),
        16..26 => Request::Get,
        26 => Request::GetEx(lifetime_ms),
        27..31 => Request::GetSet(token),
        31 => Request::Expire(lifetime_ms),
        32..34 => Request::Del,
        34..36 => Request::Swap(known, token),
        // A release of a lock that was never had is answered 0, which is to be checked as well.
        _ => Request::DelIfEq(known.unwrap_or(token)),
    }
}

/// The words of a request of one line.
fn words(key: usize, request: Request, is_redis: bool) -> Vec<Vec<String>> {
    // In Redis a key is still there in the millisecond of its expiry.
    let asked_ms = |lifetime_ms: u64| lifetime_ms - u64::from(is_redis);
    let words = |text: String| vec![text.split(' ').map(str::to_owned).collect()];
    words(match request {
        Request::Get => format!("GET register:{key}"),
        Request::GetEx(ms) => format!("GETEX register:{key} PX {}", asked_ms(ms)),
        Request::GetSet(Token(token)) => format!("GETSET register:{key} {token}"),
        Request::Set(Token(token), None) => format!("SET register:{key} {token}"),
        Request::Set(Token(token), Some(ms)) => format!("SET register:{key} {token} PX {}", asked_ms(ms)),
        Request::SetNx(Token(token), None) => format!("SETNX register:{key} {token}"),
        Request::SetNx(Token(token), Some(ms)) => {
            format!("SET register:{key} {token} NX PX {}", asked_ms(ms))
        }
        Request::Del => format!("DEL register:{key}"),
        Request::DelIfEq(Token(token)) if is_redis => {
            let script = "return redis.call('GET',KEYS[1])==ARGV[1]and(redis.call('DEL',KEYS[1]))or(0)";
            let words = ["EVAL", script, "1", &format!("register:{key}"), &token.to_string()];
            return vec![words.map(str::to_owned).into()];
        }
        Request::DelIfEq(Token(token)) => format!("DELIFEQ register:{key} {token}"),
        Request::Expire(ms) => format!("PEXPIRE register:{key} {}", asked_ms(ms)),
        Request::ExtendIfEq(..) | Request::ProlongIfEq(..) | Request::Holds(_) => {
            unreachable!("only clients of locks ask that")
        }
        Request::Swap(..) => unreachable!("it takes several requests"),
    })
}

fn read_answer(request: Request, reply: &Reply) -> Answer {
    let reads = matches!(request, Request::Get | Request::GetEx(_) | Request::GetSet(_));
    match reply {
        Reply::Integer(number) => Answer::Done(*number == 1),
        Reply::Simple(text) if text == "OK" => Answer::Done(true),
        Reply::Array(_) => Answer::Done(true),
        Reply::Null if reads => Answer::Found(None),
        Reply::Null => Answer::Done(false),
        Reply::Bulk(digits) => {
            let digits = String::from_utf8_lossy(digits);
            Answer::Found(Some(Token(digits.parse().expect("a token that was written"))))
        }
        other => panic!("{request:?} was answered {other}"),
    }
}
