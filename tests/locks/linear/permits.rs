//! The same of permits (LOCK ACQUIRE … SHARED, LIMIT n): readers hold a lock together and a writer alone, no
//! more than n hold it, numbers grow, and no client is granted it before one that stood in line already.
//!
//! Each client knows for sure when it has held the lock: from the reply that granted it, until it sent the
//! release or its time could be over. Numbers say who was granted it first. [`check`] looks for what cannot
//! be true of these; planted faults show that it finds them.

use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::recorder::share_out;
use support::client::{Client, Reply, request};
use support::server::Server;

/// An attempt that was granted the lock, with its moments in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
struct Grant {
    /// Beside how many it may be, itself among them; 1 and `is_alone` for a writer.
    limit: usize,
    is_alone: bool,
    asked_ns: u64,
    /// When it was seen in line, if it was.
    stood_ns: Option<u64>,
    told_ns: u64,
    /// Until when it held it for sure.
    held_until_ns: u64,
    number: i64,
}

/// Says what cannot be true of all these grants of one lock.
fn check(grants: &[Grant], keeps_line: bool) -> Result<(), String> {
    let mut in_order: Vec<&Grant> = grants.iter().collect();
    in_order.sort_by_key(|grant| grant.number);
    if let Some(pair) = in_order.windows(2).find(|pair| pair[0].number == pair[1].number) {
        return Err(format!("one number for two: {pair:?}"));
    }
    for (place, grant) in in_order.iter().enumerate() {
        let before = &in_order[..place];
        let beside = before.iter().filter(|other| other.held_until_ns > grant.told_ns);
        let (mut count, mut has_writer) = (0, false);
        for other in beside {
            (count, has_writer) = (count + 1, has_writer || other.is_alone);
        }
        if count >= grant.limit || has_writer {
            return Err(format!("{count} hold it already, a writer: {has_writer}, for {grant:?}"));
        }
        if let Some(later) = before.iter().find(|other| other.asked_ns > grant.told_ns) {
            return Err(format!("numbers go back from {grant:?} to {later:?}"));
        }
        let has_stood = |other: &&&Grant| grant.stood_ns.is_some_and(|stood_ns| stood_ns < other.asked_ns);
        if let Some(jumped) = before.iter().find(has_stood).filter(|_| keeps_line) {
            return Err(format!("{jumped:?} came later than {grant:?}"));
        }
    }
    Ok(())
}

/// A client that asks for the lock `permits` in one mode or another.
struct Asker<'s> {
    server: &'s Server,
    client: Client,
    observer: Client,
    id: i64,
    began: Instant,
    random: Rng,
    granted: Vec<Grant>,
}

impl Asker<'_> {
    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    fn ask(&mut self, token: usize) {
        let (mode, limit) = *self
            .random
            .choice(&[("", 1), ("SHARED", usize::MAX), ("LIMIT 2", 2), ("LIMIT 4", 4)])
            .expect("one");
        let wait = *self.random.choice(&["", "WAIT 5", "WAIT 20000", "WAIT 20000"]).expect("one");
        // Some are left to their end.
        let lifetime_ms = if self.random.u8(..8) == 0 { 20 } else { 60_000 };
        let is_bound = lifetime_ms > 20 && self.random.u8(..4) == 0;
        let bound = if is_bound { "BOUND GRACE 0" } else { "" };
        let line = format!("LOCK ACQUIRE permits t{token} PX {lifetime_ms} {wait} {mode} {bound}");
        let asked_ns = self.now_ns();
        self.client.send(&request(line.split_whitespace()));
        let stood_ns = (wait == "WAIT 20000" && self.random.bool()).then(|| self.seen_in_line()).flatten();
        if self.random.u8(..40) == 0 && stood_ns.is_some() && lifetime_ms == 20 {
            // It leaves the line, or has just been granted what is soon over.
            return self.connect_anew();
        }
        let Reply::Integer(number) = self.client.reply().reply() else { return };
        let told_ns = self.now_ns();
        let pause = Duration::from_micros(self.random.u64(..1500));
        thread::sleep(pause);
        let released_ns = self.now_ns();
        if is_bound && self.random.bool() {
            self.connect_anew();
        } else if lifetime_ms > 20 {
            self.client.line(&format!("LOCK RELEASE permits t{token}")).is(1);
        }
        let held_until_ns = released_ns.min(asked_ns + lifetime_ms * 1_000_000);
        let is_alone = mode.is_empty();
        self.granted.push(Grant { limit, is_alone, asked_ns, stood_ns, told_ns, held_until_ns, number });
    }

    /// Breaks its connection off, and takes another one.
    fn connect_anew(&mut self) {
        self.client = self.server.client();
        self.id = self.client.line("CLIENT ID").integer();
    }

    /// When the client was seen in line, if it was.
    fn seen_in_line(&mut self) -> Option<u64> {
        let shown = self.observer.line(&format!("CLIENT LIST ID {}", self.id)).text();
        shown.contains("flags=b").then(|| self.now_ns())
    }
}

fn record(servers: &[Server], attempts: usize) -> Vec<Grant> {
    let began = Instant::now();
    let asker = |server, seed| {
        let (mut client, observer) = (Server::client(server), Server::client(server));
        let id = client.line("CLIENT ID").integer();
        let (random, granted) = (Rng::with_seed(seed), Vec::new());
        Asker { server, client, observer, id, began, random, granted }
    };
    share_out(servers, attempts, asker, Asker::ask, |asker| asker.granted)
}

/// Checks the permits of one lock at these servers.
#[track_caller]
pub(crate) fn check_permits_over(servers: &[Server], attempts: usize, keeps_line: bool) {
    let grants = record(servers, attempts);
    if let Err(broken) = check(&grants, keeps_line) {
        panic!("{broken}");
    }
    let count = |is_such: &dyn Fn(&Grant) -> bool| grants.iter().filter(|grant| is_such(grant)).count();
    let [alone, shared] = [count(&|grant| grant.is_alone), count(&|grant| grant.limit == usize::MAX)];
    let stood = count(&|grant| grant.stood_ns.is_some());
    let has_stood = stood > 0 || !keeps_line;
    assert!(alone.min(shared) > attempts / 20 && has_stood, "{alone} alone, {shared} shared, {stood} stood");
}

#[test]
fn readers_writers_and_limits_keep_their_promises() {
    check_permits_over(&[Server::start_with(&["--io-threads", "4"])], 3000, true);
}

#[test]
fn the_check_finds_planted_faults() {
    let grant = |number: i64, limit: usize, [asked_ns, told_ns, held_until_ns]: [u64; 3]| Grant {
        limit,
        is_alone: limit == 1,
        asked_ns,
        stood_ns: None,
        told_ns,
        held_until_ns,
        number,
    };
    let right = [grant(1, 2, [0, 10, 50]), grant(2, 2, [5, 15, 30]), grant(3, 1, [20, 60, 70])];
    assert_eq!(check(&right, true), Ok(()));
    let with = |other: Grant| check(&[&right[..], &[other]].concat(), true).expect_err("a fault");
    assert!(with(grant(3, 9, [71, 72, 73])).starts_with("one number"));
    assert!(with(grant(4, 9, [65, 66, 73])).contains("a writer: true"));
    assert!(check(&[&right[..2], &[grant(3, 2, [16, 17, 20])]].concat(), true).is_err(), "a third of two");
    assert!(check(&[&right[..1], &[grant(3, 1, [16, 17, 20])]].concat(), true).is_err(), "beside a reader");
    assert!(with(grant(0, 9, [80, 81, 82])).contains("numbers go back"));
    let stood = Grant { stood_ns: Some(72), ..grant(5, 9, [71, 90, 95]) };
    let jumped = [&right[..], &[grant(4, 9, [80, 81, 82]), stood]].concat();
    assert!(check(&jumped, true).is_err_and(|why| why.contains("came later")));
    assert_eq!(check(&jumped, false), Ok(()));
}
