//! The same of transactions: some clients read and write eight hot keys, and change some of them by WATCH,
//! MULTI and EXEC. porcupine looks for an order that explains all replies, in which an EXEC that succeeds is
//! one step: the keys that its client watches are as the client has read them, and all that it reads and
//! writes happens at once.
//!
//! An EXEC may fail only if another client has changed a watched key since WATCH was sent. No order of steps
//! shows that, so it is checked by the times of the requests.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use porcupine_rs::{CheckResult, Model, Operation, check_operations_timeout};

use support::client::{Client, Reply, request};
use support::server::{Server, is_redis};

/// How many keys there are.
const KEYS: usize = 8;
/// How many clients use them at once, and how many requests and transactions each sends.
const CLIENTS: usize = 5;
const REQUESTS: usize = 24;
/// How many histories are recorded, one after the other.
const ROUNDS: usize = 24;
/// How long porcupine may think about one.
const THINKING: Duration = Duration::from_secs(60);

/// What a key has: no value is written twice.
type Value = Option<u32>;

/// What a client asks for, in one step.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Request {
    /// GET or MGET.
    Read(Vec<usize>),
    /// SET or MSET of one value.
    Write(Vec<usize>, Value),
    /// DEL.
    Remove(usize),
    /// EXEC of a transaction.
    Exec(Transaction),
}

/// What EXEC does, and what must be so for that.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Transaction {
    /// The keys that are watched, as they were read since then.
    watched: Vec<(usize, Value)>,
    /// The keys that it reads.
    reads: Vec<usize>,
    /// The keys that it gives one value then, or deletes.
    writes: Vec<usize>,
    value: Value,
}

/// A request and its reply, from a moment to a moment, in nanoseconds.
#[derive(Clone, Debug)]
struct Told {
    /// When it was sent; of a transaction, when its WATCH was.
    watched_ns: u64,
    sent_ns: u64,
    ended_ns: u64,
    request: Request,
    reply: Found,
}

/// What came back: the values that were read; `None` for an EXEC that has failed.
type Found = Option<Vec<Value>>;

/// The values of all keys.
type Keys = [Value; KEYS];

/// Does what a request asks; returns what a server replies.
fn apply(keys: &mut Keys, request: &Request) -> Vec<Value> {
    let read = |keys: &Keys, wanted: &[usize]| wanted.iter().map(|key| keys[*key]).collect();
    match request {
        Request::Read(wanted) => read(keys, wanted),
        Request::Write(wanted, value) => {
            wanted.iter().for_each(|key| keys[*key] = *value);
            Vec::new()
        }
        // A number: whether the key was there.
        Request::Remove(key) => vec![keys[*key].take().map(|_| 1).or(Some(0))],
        Request::Exec(Transaction { reads, writes, value, .. }) => {
            let found = read(keys, reads);
            writes.iter().for_each(|key| keys[*key] = *value);
            found
        }
    }
}

#[derive(Clone, Debug)]
struct Hot;

impl Model for Hot {
    type State = Keys;
    type Op = (Request, Found);
    type Metadata = ();

    fn init() -> Keys {
        Keys::default()
    }

    fn step(before: &Keys, (request, reply): &(Request, Found)) -> (bool, Keys) {
        let Some(found) = reply else { return (true, *before) };
        let is_as_watched = match request {
            Request::Exec(exec) => exec.watched.iter().all(|(key, value)| before[*key] == *value),
            _ => true,
        };
        let mut after = *before;
        let is_right = apply(&mut after, request) == *found && is_as_watched;
        (is_right, after)
    }
}

/// The keys that a request has changed, or may have.
fn changed(told: &Told) -> &[usize] {
    match &told.request {
        Request::Read(_) => &[],
        Request::Write(keys, _) => keys,
        Request::Remove(key) => std::slice::from_ref(key),
        Request::Exec(exec) if told.reply.is_some() => &exec.writes,
        Request::Exec(_) => &[],
    }
}

/// Whether a failure of EXEC has a reason: another request that has changed a watched key meanwhile.
fn has_reason(history: &[Told], failed: &Told, watched: &[(usize, Value)]) -> bool {
    history.iter().any(|other| {
        let is_meanwhile = other.sent_ns <= failed.ended_ns && failed.watched_ns <= other.ended_ns;
        is_meanwhile && changed(other).iter().any(|key| watched.iter().any(|(watched, _)| watched == key))
    })
}

/// Whether an order explains the replies.
fn is_explained(history: &[Told]) -> bool {
    let has_reason = |told: &Told| match (&told.request, &told.reply) {
        (Request::Exec(exec), None) => has_reason(history, told, &exec.watched),
        _ => true,
    };
    let translate = |told: &Told| Operation::<Hot> {
        client_id: None,
        call_time: told.sent_ns as i64,
        return_time: told.ended_ns as i64,
        op: (told.request.clone(), told.reply.clone()),
        metadata: None,
    };
    let operations: Vec<_> = history.iter().map(translate).collect();
    let is_linearizable = match check_operations_timeout::<Hot>(&operations, THINKING) {
        CheckResult::Ok => true,
        CheckResult::Illegal => false,
        CheckResult::Unknown => panic!("porcupine did not come to an end with {} requests", history.len()),
    };
    is_linearizable && history.iter().all(has_reason)
}

fn name(round: usize, key: usize) -> String {
    format!("hot:{round}:{key}")
}

fn read_value(reply: &Reply) -> Value {
    match reply {
        Reply::Null => None,
        Reply::Integer(number) => Some(u32::try_from(*number).expect("0 or 1")),
        Reply::Bulk(digits) => {
            Some(String::from_utf8_lossy(digits).parse().expect("a value that was written"))
        }
        other => panic!("{other}"),
    }
}

/// The values in a reply: replies to writes are none.
fn values(reply: Reply) -> Vec<Value> {
    match reply {
        Reply::Array(items) => items.iter().map(read_value).collect(),
        Reply::Simple(_) => Vec::new(),
        one => vec![read_value(&one)],
    }
}

/// A client that sends one request after the other.
struct Asker<'t> {
    client: Client,
    started: &'t Instant,
    round: usize,
    random: Rng,
    history: Vec<Told>,
}

impl Asker<'_> {
    fn now_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    /// One or two of the keys, in ascending order.
    fn some_keys(&mut self) -> Vec<usize> {
        let (one, other) = (self.random.usize(..KEYS), self.random.usize(..KEYS));
        match self.random.bool() && one != other {
            true => vec![one.min(other), one.max(other)],
            false => vec![one],
        }
    }

    fn words(&self, command: &str, keys: &[usize], value: Value) -> Vec<String> {
        let words = keys.iter().flat_map(|key| {
            [Some(name(self.round, *key)), value.map(|value| value.to_string())].into_iter().flatten()
        });
        [command.to_owned()].into_iter().chain(words).collect()
    }

    /// Sends a request, and records it with its reply.
    fn ask(&mut self, asked: Request) -> Vec<Value> {
        let words = match &asked {
            Request::Read(keys) => self.words("MGET", keys, None),
            Request::Write(keys, value) => self.words("MSET", keys, *value),
            Request::Remove(key) => self.words("DEL", &[*key], None),
            Request::Exec(_) => unreachable!("that is sent otherwise"),
        };
        let sent_ns = self.now_ns();
        let found = values(self.client.cmd(words).reply());
        let (ended_ns, reply) = (self.now_ns(), Some(found.clone()));
        self.history.push(Told { watched_ns: sent_ns, sent_ns, ended_ns, request: asked, reply });
        found
    }

    /// Changes some keys by a transaction, if they are as they were when they were read.
    fn transact(&mut self, value: u32) {
        let (watched, reads, writes) = (self.some_keys(), self.some_keys(), self.some_keys());
        let watched_ns = self.now_ns();
        self.client.cmd(self.words("WATCH", &watched, None)).is_ok();
        let found = self.ask(Request::Read(watched.clone()));
        let watched = watched.into_iter().zip(found).collect();
        let value = (self.random.u32(..4) > 0).then_some(value);
        let mut requests = vec![vec!["MULTI".to_owned()]];
        requests.extend(reads.iter().map(|key| self.words("GET", &[*key], None)));
        let command = if value.is_some() { "MSET" } else { "DEL" };
        requests.push(self.words(command, &writes, value));
        let queued = requests.len();
        requests.push(vec!["EXEC".to_owned()]);
        let bytes: Vec<u8> = requests.iter().flat_map(request).collect();
        let sent_ns = self.now_ns();
        self.client.send(&bytes);
        (0..queued).for_each(|_| self.client.reply().ignored());
        let reply = match self.client.reply().reply() {
            Reply::Array(items) => Some(items[..reads.len()].iter().map(read_value).collect()),
            Reply::Null => None,
            other => panic!("{other}"),
        };
        let (ended_ns, request) =
            (self.now_ns(), Request::Exec(Transaction { watched, reads, writes, value }));
        self.history.push(Told { watched_ns, sent_ns, ended_ns, request, reply });
    }

    fn go_on(&mut self, value: u32) {
        match self.random.u32(..10) {
            0..2 => {
                let keys = self.some_keys();
                self.ask(Request::Read(keys));
            }
            2..4 => {
                let keys = self.some_keys();
                self.ask(Request::Write(keys, Some(value)));
            }
            4 => {
                let key = self.random.usize(..KEYS);
                self.ask(Request::Remove(key));
            }
            _ => self.transact(value),
        }
    }
}

/// Lets clients of servers that show the same keys use them, and checks the replies.
pub(crate) fn check_transactions_over(servers: &[Server]) {
    let (mut succeeded, mut failed) = (0, 0);
    for round in 0..ROUNDS {
        let (started, barrier) = (Instant::now(), Barrier::new(CLIENTS));
        let ask = |number: usize| {
            let client = servers[number % servers.len()].client();
            let random = Rng::with_seed((round * CLIENTS + number) as u64);
            let mut asker = Asker { client, started: &started, round, random, history: Vec::new() };
            barrier.wait();
            (0..REQUESTS).for_each(|asked| asker.go_on((asked * CLIENTS + number) as u32));
            asker.history
        };
        let mut history: Vec<Told> = thread::scope(|scope| {
            let ask = &ask;
            let clients: Vec<_> = (0..CLIENTS).map(|number| scope.spawn(move || ask(number))).collect();
            clients.into_iter().flat_map(|client| client.join().expect("a history")).collect()
        });
        history.sort_by_key(|told| told.sent_ns);
        assert!(is_explained(&history), "no order explains these replies: {history:#?}");
        let execs = history.iter().filter(|told| matches!(told.request, Request::Exec(_)));
        execs.for_each(|told| *if told.reply.is_some() { &mut succeeded } else { &mut failed } += 1);
    }
    assert!(succeeded >= ROUNDS && failed >= ROUNDS, "{succeeded} EXEC succeeded, and {failed} failed");
}

marked!(also_redis: an_exec_that_succeeds_is_one_step_and_sees_its_watched_keys_unchanged);
fn an_exec_that_succeeds_is_one_step_and_sees_its_watched_keys_unchanged() {
    let threads: &[&str] = if is_redis() { &[] } else { &["--io-threads", "4"] };
    check_transactions_over(&[Server::start_with(threads)]);
}

#[test]
fn replies_that_no_order_explains_are_rejected() {
    let told = |(from, to): (u64, u64), request, reply: Option<&[Value]>| Told {
        watched_ns: from,
        sent_ns: from,
        ended_ns: to,
        request,
        reply: reply.map(<[Value]>::to_vec),
    };
    let exec = |seen, writes: &[usize], value| {
        let (watched, reads, writes) = (vec![(0, seen)], vec![0], writes.to_vec());
        Request::Exec(Transaction { watched, reads, writes, value: Some(value) })
    };
    let (write, read) = (|value| Request::Write(vec![0], Some(value)), Request::Read(vec![0, 1]));
    let before = told((0, 1), write(1), Some(&[]));
    let with = |more: &[Told]| is_explained(&[std::slice::from_ref(&before), more].concat());
    assert!(with(&[told((2, 5), exec(Some(1), &[0], 2), Some(&[Some(1)]))]));
    // A watched key has changed.
    let another = told((2, 3), write(3), Some(&[]));
    assert!(!with(&[another.clone(), told((4, 5), exec(Some(1), &[0], 2), Some(&[Some(3)]))]));
    assert!(!with(&[another.clone(), told((4, 5), exec(Some(1), &[0], 2), Some(&[Some(1)]))]));
    // It fails with a reason, and without one.
    assert!(with(&[another, told((3, 5), exec(Some(1), &[0], 2), None)]));
    assert!(!with(&[told((2, 5), exec(Some(1), &[0], 2), None)]));
    // Half of it is seen, and two clients count from the same value.
    let first = told((2, 9), exec(Some(1), &[0, 1], 2), Some(&[Some(1)]));
    assert!(!with(&[first.clone(), told((3, 4), read.clone(), Some(&[Some(2), None]))]));
    assert!(with(&[first.clone(), told((3, 4), read, Some(&[Some(2), Some(2)]))]));
    assert!(!with(&[first, told((2, 9), exec(Some(1), &[0], 3), Some(&[Some(1)]))]));
}
