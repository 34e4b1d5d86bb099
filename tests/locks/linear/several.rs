//! The same of several locks at once (LOCK ACQUIRE … ALSO), or of permits of them (SHARED, LIMIT n): each has
//! one writer or no more readers than each has allowed, a request takes all or none, numbers grow for each
//! lock, and all clients come to their end.
//!
//! Each client knows for sure when it has held each lock: from the reply that granted it, until it sent the
//! release of that one or its time could be over. Numbers say who was granted it first. [`check`] looks for
//! what cannot be true of these; planted faults show that it finds them.

use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::recorder::share_out;
use support::client::{Client, Reply, request};
use support::server::Server;

/// Locks of one history.
const KEYS: usize = 6;

/// An attempt that was granted its locks, with its moments in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
struct Grant {
    number: i64,
    /// Beside how many it may be at each lock, itself among them; `None` for whole locks.
    limit: Option<usize>,
    asked_ns: u64,
    told_ns: u64,
    /// Each lock, and until when it was held for sure.
    held: Vec<(usize, u64)>,
}

impl Grant {
    fn held_until(&self, key: usize) -> Option<u64> {
        self.held.iter().find(|(other, _)| *other == key).map(|(_, until_ns)| *until_ns)
    }
}

/// Says what cannot be true of all these grants.
fn check(grants: &[Grant]) -> Result<(), String> {
    let mut in_order: Vec<&Grant> = grants.iter().collect();
    in_order.sort_by_key(|grant| grant.number);
    if let Some(pair) = in_order.windows(2).find(|pair| pair[0].number == pair[1].number) {
        return Err(format!("one number for two: {pair:?}"));
    }
    for (place, grant) in in_order.iter().enumerate() {
        for before in &in_order[..place] {
            if before.asked_ns > grant.told_ns {
                return Err(format!("numbers go back from {grant:?} to {before:?}"));
            }
        }
        for (key, _) in &grant.held {
            let has_it =
                |before: &&&Grant| before.held_until(*key).is_some_and(|until_ns| until_ns > grant.told_ns);
            let beside: Vec<&&Grant> = in_order[..place].iter().filter(has_it).collect();
            let has_writer = beside.iter().any(|other| other.limit.is_none());
            if has_writer || beside.len() >= grant.limit.unwrap_or(1) {
                return Err(format!("too many hold k{key}: {beside:?} and {grant:?}"));
            }
        }
    }
    Ok(())
}

/// A client that asks for several locks.
struct Asker<'s> {
    server: &'s Server,
    client: Client,
    began: Instant,
    random: Rng,
    granted: Vec<Grant>,
}

impl Asker<'_> {
    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    fn ask(&mut self, token: usize) {
        let mut keys: Vec<usize> = (0..KEYS).collect();
        self.random.shuffle(&mut keys);
        keys.truncate(self.random.usize(1..=4));
        let also = |keys: &[usize]| match &keys[1..] {
            [] => String::new(),
            others => {
                let names: String = others.iter().map(|key| format!(" k{key}")).collect();
                format!("ALSO {}{names}", others.len())
            }
        };
        let wait = *self.random.choice(&["", "WAIT 5", "WAIT 60000", "WAIT 60000"]).expect("one");
        let modes = [("", None), ("", None), ("SHARED", Some(usize::MAX)), ("LIMIT 2", Some(2))];
        let (mode, limit) = *self.random.choice(&modes).expect("one");
        // Some are left to their end.
        let lifetime_ms = if self.random.u8(..8) == 0 { 20 } else { 60_000 };
        let first = keys[0];
        let options = format!("PX {lifetime_ms} AGAIN {wait} {mode} {}", also(&keys));
        let line = format!("LOCK ACQUIRE k{first} t{token} {options}");
        let asked_ns = self.now_ns();
        self.client.send(&request(line.split_whitespace()));
        if lifetime_ms == 20 && self.random.bool() {
            // It leaves the lines, or has just been granted what is soon over.
            self.client = self.server.client();
            return;
        }
        let Reply::Integer(number) = self.client.reply().reply() else {
            let line = format!("LOCK RELEASE k{first} t{token} {}", also(&keys));
            return self.client.cmd(line.split_whitespace()).is(0);
        };
        let told_ns = self.now_ns();
        if lifetime_ms > 20 && self.random.u8(..4) == 0 {
            let last = keys[keys.len() - 1];
            let extend = format!("LOCK EXTEND k{first} t{token} PX 60000 {}", also(&keys));
            let again = self.client.cmd(line.split_whitespace()).integer();
            let extended = self.client.cmd(extend.split_whitespace()).integer();
            let shown = self.client.line(&format!("LOCK FENCE k{last} t{token}")).reply();
            match limit {
                None => assert_eq!((again, extended, shown), (number, number, Reply::Integer(number))),
                Some(_) => assert!(number < again && again < extended && shown == Reply::Null),
            }
        }
        thread::sleep(Duration::from_micros(self.random.u64(..1000)));
        let mut held = Vec::new();
        while !keys.is_empty() {
            // All that are left at once, or one after the other.
            let count = if self.random.bool() { 1 } else { keys.len() };
            let some: Vec<usize> = keys.drain(..count).collect();
            let until_ns = self.now_ns().min(asked_ns + lifetime_ms * 1_000_000);
            held.extend(some.iter().map(|key| (*key, until_ns)));
            if lifetime_ms > 20 {
                let line = format!("LOCK RELEASE k{} t{token} {}", some[0], also(&some));
                self.client.cmd(line.split_whitespace()).is(some.len() as i64);
            }
        }
        self.granted.push(Grant { number, limit, asked_ns, told_ns, held });
    }
}

fn record(servers: &[Server], attempts: usize) -> Vec<Grant> {
    let began = Instant::now();
    let asker = |server, seed| {
        let (client, random) = (Server::client(server), Rng::with_seed(seed));
        Asker { server, client, began, random, granted: Vec::new() }
    };
    share_out(servers, attempts, asker, Asker::ask, |asker| asker.granted)
}

/// Checks several locks at a time at these servers.
#[track_caller]
pub(crate) fn check_several_over(servers: &[Server], attempts: usize) {
    let grants = record(servers, attempts);
    if let Err(broken) = check(&grants) {
        panic!("{broken}");
    }
    let of_several = grants.iter().filter(|grant| grant.held.len() > 1).count();
    assert!(of_several > attempts / 4, "{of_several} of {attempts}");
}

#[test]
fn several_locks_keep_their_promises() {
    check_several_over(&[Server::start_with(&["--io-threads", "4"])], 2000);
}

#[test]
fn the_check_of_several_locks_finds_planted_faults() {
    let grant = |number: i64, [asked_ns, told_ns]: [u64; 2], held: &[(usize, u64)]| Grant {
        number,
        limit: None,
        asked_ns,
        told_ns,
        held: held.to_vec(),
    };
    let right = [
        grant(1, [0, 10], &[(0, 20), (1, 50)]),
        grant(2, [5, 15], &[(2, 30)]),
        grant(3, [6, 31], &[(0, 60), (2, 60)]),
    ];
    assert_eq!(check(&right), Ok(()));
    let with = |other: Grant| check(&[&right[..], &[other]].concat()).expect_err("a fault");
    assert!(with(grant(3, [71, 72], &[(5, 73)])).starts_with("one number"));
    assert!(with(grant(0, [80, 81], &[(5, 82)])).contains("numbers go back"));
    // One of the locks of the first is still held.
    assert!(with(grant(4, [40, 45], &[(3, 50), (1, 48)])).contains("too many hold k1"));
    assert!(with(grant(4, [40, 45], &[(0, 48)])).contains("too many hold k0"));
    let reader =
        |number, limit| Grant { limit: Some(limit), ..grant(number, [61, 62 + number as u64], &[(7, 90)]) };
    let readers = [reader(5, 9), reader(6, 2), reader(7, 9)];
    assert_eq!(check(&readers), Ok(()));
    assert!(check(&[&readers[..], &[reader(8, 3)]].concat()).is_err_and(|why| why.contains("too many")));
    let writer = grant(4, [61, 62], &[(7, 90)]);
    assert!(check(&[&readers[..], &[writer]].concat()).is_err_and(|why| why.contains("too many")));
}
