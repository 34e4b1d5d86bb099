//! LOCK ACQUIRE … AGAIN: a client that has lost its connection, or its reply, finds its own lock, or its own
//! place in line.

use std::time::Duration;

use crate::locks::is_found;
use support::client::{Client, Reply, request};
use support::folder::Folder;
use support::log::ALWAYS;
use support::replies::{array, integer};
use support::server::{Server, wait_until};

const FAULTS: &[&str] = &["--enable-fault-command", "yes"];

/// Sends a request whose reply gets lost.
fn lose(server: &Server, client: &mut Client, line: &str) {
    let mut planter = server.client();
    let fault = planter.line("FAULT ADD ON lock|acquire TIMES 1 DROP-REPLY").integer();
    client.send(&request(line.split(' ')));
    wait_until("the fault has struck", || planter.info("faults_struck") == fault.to_string());
}

#[test]
fn a_client_whose_reply_was_lost_finds_its_lock() {
    let server = Server::start_with(FAULTS);
    let (mut first, mut second) = (server.client(), server.client());
    lose(&server, &mut first, "LOCK ACQUIRE l a PX 60000 AGAIN");
    second.line("LOCK ACQUIRE l a PX 60000").is_nil();
    let number = second.line("LOCK ACQUIRE l a PX 60000 AGAIN").integer();
    for line in ["LOCK FENCE l a", "LOCK ACQUIRE l a PX 1 WAIT 0 AGAIN", "LOCK ACQUIRE l a PX 1 AGAIN WAIT 1"]
    {
        second.line(line).is(number);
    }
    second.line("LOCK ACQUIRE l b PX 60000 AGAIN").is_nil();
    second.line("LOCK ACQUIRE l b PX 60000 AGAIN WAIT 1").is_nil();
    second.line("LOCK RELEASE l a").is(1);
    // A duplicate that comes after the release takes the lock anew.
    assert!(first.line("LOCK ACQUIRE l a PX 60000 AGAIN").integer() > number);
}

#[test]
fn a_client_whose_grant_was_lost_while_it_waited_finds_its_lock() {
    let server = Server::start_with(FAULTS);
    let (mut holder, mut waiter) = (server.client(), server.client());
    let number = holder.line("LOCK ACQUIRE l h PX 60000").integer();
    lose(&server, &mut waiter, "LOCK ACQUIRE l a PX 60000 WAIT 60000 AGAIN");
    wait_until("it waits", || holder.info("blocked_clients") == "1");
    holder.line("LOCK RELEASE l h").is(1);
    let granted = holder.line("LOCK ACQUIRE l a PX 60000 WAIT 60000 AGAIN").integer();
    assert!(granted > number);
    assert!(waiter.is_silent_for(Duration::from_millis(20)));
}

#[test]
fn the_lock_ends_at_the_later_of_the_two_moments() {
    let server = Server::start_with(&["--enable-clock-command", "yes"]);
    let mut client = server.client();
    client.line("CLOCK FREEZE").is_ok();
    let number = client.line("LOCK ACQUIRE l a PX 60000 AGAIN").integer();
    for (lifetime, left) in [(100, 60_000), (60_000, 60_000), (90_000, 90_000), (1, 90_000)] {
        client.line(&format!("LOCK ACQUIRE l a PX {lifetime} AGAIN")).is(number);
        client.line("PTTL l").is(left);
    }
    client.line("PERSIST l").is(1);
    client.line("LOCK ACQUIRE l a PX 100 AGAIN").is(number);
    client.line("PTTL l").is(-1);
    client.line("PEXPIRE l 50").is(1);
    client.line("CLOCK ADVANCE 50").is_ok();
    assert!(client.line("LOCK ACQUIRE l a PX 100 AGAIN").integer() > number, "it had expired");
    client.line("PTTL l").is(100);
}

#[test]
fn another_attempt_with_the_same_token_takes_over_the_place_in_line() {
    let server = Server::start();
    let mut holder = server.client();
    holder.line("LOCK ACQUIRE l h PX 60000").integer();
    let mut clients: Vec<Client> = (0..3).map(|_| server.client()).collect();
    for (client, token) in clients.iter_mut().zip(["a", "b", "c"]) {
        server.have_wait(client, &format!("LOCK ACQUIRE l {token} PX 60000 WAIT 60000"));
    }
    let mut again = server.client();
    // Without WAIT it only asks.
    again.line("LOCK ACQUIRE l a PX 60000 AGAIN").is_nil();
    for times in 0..3 {
        let mut next = server.client();
        next.send(&request("LOCK ACQUIRE l a PX 60000 WAIT 60000 AGAIN".split(' ')));
        let before = if times == 0 { &mut clients[0] } else { &mut again };
        before.reply().is_nil();
        before.line("PING").is_simple("PONG");
        again = next;
    }
    assert_eq!(holder.info("blocked_clients"), "3");
    // What becomes of the connections of earlier attempts does not matter.
    drop(clients.remove(0));
    wait_until("it has gone", || holder.info("connected_clients") == "4");
    let third = clients.pop().expect("the third");
    holder.line("LOCK RELEASE l h").is(1);
    let first = again.reply().integer();
    assert!(clients[0].is_silent_for(Duration::from_millis(20)));
    // That it looked whether it holds the lock already is no second release by the holder.
    is_found(&mut server.client3(), &[]);
    again.line("LOCK RELEASE l a").is(1);
    let second = clients[0].reply().integer();
    assert!(second > first);
    drop(third);
    wait_until("the third has left", || holder.info("blocked_clients") == "0");
    clients[0].line("LOCK RELEASE l b").is(1);
    holder.line("EXISTS l").is(0);
}

#[test]
fn an_attempt_that_comes_again_is_unblocked_and_times_out_as_any_other() {
    let server = Server::start();
    let (mut holder, mut old, mut new) = (server.client(), server.client(), server.client());
    holder.line("LOCK ACQUIRE l h PX 60000").integer();
    server.have_wait(&mut old, "LOCK ACQUIRE l a PX 60000 WAIT 60000");
    new.line("LOCK ACQUIRE l a PX 60000 WAIT 1 AGAIN").is_nil();
    old.reply().is_nil();
    let id = new.line("CLIENT ID").integer();
    server.have_wait(&mut old, "LOCK ACQUIRE l a PX 60000 WAIT 60000");
    new.send(&request("LOCK ACQUIRE l a PX 60000 WAIT 60000 AGAIN".split(' ')));
    old.reply().is_nil();
    holder.line(&format!("CLIENT UNBLOCK {id} ERROR")).is(1);
    new.reply().is_error("UNBLOCKED client unblocked via CLIENT UNBLOCK");
    holder.line("LOCK RELEASE l h").is(1);
    holder.line("EXISTS l").is(0);
}

#[test]
fn so_it_is_within_a_transaction_and_a_script() {
    let server = Server::start();
    let (mut client, mut waiter) = (server.client(), server.client());
    let number = client.line("LOCK ACQUIRE l a PX 60000").integer();
    client.line("MULTI").is_ok();
    for line in ["LOCK ACQUIRE l a PX 90000 AGAIN", "LOCK ACQUIRE l b PX 1 WAIT 0 AGAIN", "PTTL l"] {
        client.line(line).is_simple("QUEUED");
    }
    let replies = client.line("EXEC").items();
    let [Reply::Integer(same), Reply::Null, Reply::Integer(left)] = &replies[..] else {
        panic!("{replies:?}")
    };
    assert!(*same == number && *left > 60_000);
    let script = "return redis.call('LOCK', 'ACQUIRE', KEYS[1], ARGV[1], 'PX', 1, 'WAIT', 0, 'AGAIN')";
    client.cmd(["EVAL", script, "1", "l", "a"]).is(number);
    client.cmd(["EVAL", script, "1", "l", "b"]).is_nil();
    // A client in line is left where it is: in a script no client waits.
    server.have_wait(&mut waiter, "LOCK ACQUIRE l b PX 60000 WAIT 60000");
    client.cmd(["EVAL", script, "1", "l", "b"]).is_nil();
    client.line("LOCK RELEASE l a").is(1);
    assert!(waiter.reply().integer() > number);
}

#[test]
fn a_lock_without_a_number_gets_one_and_what_is_no_lock_stays_as_it_is() {
    let server = Server::start();
    let mut client = server.client();
    for taken in ["SETNX l a", "SET l a NX PX 60000", "SET l a PX 60000"] {
        client.line(taken).ignored();
        let number = client.line("LOCK ACQUIRE l a PX 100 AGAIN").integer();
        client.line("LOCK FENCE l a").is(number);
        client.line("LOCK RELEASE l a").is(1);
    }
    for written in ["SET l a", "SADD l a"] {
        client.line(written).ignored();
        client.line("LOCK ACQUIRE l a PX 100 AGAIN").is_nil();
        client.line("PTTL l").is(-1);
        client.line("DEL l").is(1);
    }
    for wrong in ["AGAIN AGAIN", "WAIT 1 WAIT 1", "WAIT AGAIN", "AGAINST", "AGAIN WAIT"] {
        let reply = client.line(&format!("LOCK ACQUIRE l a PX 100 {wrong}")).reply();
        assert!(matches!(reply, Reply::Error(_)), "{wrong}: {reply}");
    }
    client.line("EXISTS l").is(0);
}

/// What other clients see of it: an event if the end has changed, and nothing otherwise.
#[test]
fn what_changes_nothing_is_no_change() {
    let server = Server::start();
    let (mut client, mut other) = (server.client(), server.client());
    client.line("LOCK ACQUIRE l a PX 60000").integer();
    for (lifetime, is_kept) in [(100, true), (90_000, false)] {
        other.line("WATCH l").is_ok();
        client.line(&format!("LOCK ACQUIRE l a PX {lifetime} AGAIN")).integer();
        other.line("MULTI").is_ok();
        other.line("PING").is_simple("QUEUED");
        assert_eq!(other.line("EXEC").reply() != Reply::Null, is_kept, "{lifetime}");
    }
}

#[test]
fn what_it_has_prolonged_outlives_a_restart() {
    let folder = Folder::new("again_restart");
    let place = folder.file("");
    let options = [&["--dir", &place], ALWAYS].concat();
    let server = Server::start_with(&options);
    let mut client = server.client();
    let number = client.line("LOCK ACQUIRE l a PX 60000").integer();
    client.line("LOCK ACQUIRE l a PX 600000 AGAIN").is(number);
    drop((client, server));
    let server = Server::start_with(&options);
    let mut client = server.client();
    assert!(client.line("PTTL l").integer() > 60_000);
    client.line("LOCK ACQUIRE l a PX 1 AGAIN").is(number);
}

#[test]
fn the_lens_sees_one_holder_and_no_refusal() {
    let server = Server::start_with(FAULTS);
    let (mut first, mut second) = (server.client(), server.client3());
    lose(&server, &mut first, "LOCK ACQUIRE lock:a a-long-token-of-mine PX 60000 AGAIN");
    drop(first);
    second.line("LOCK ACQUIRE lock:a a-long-token-of-mine PX 60000 AGAIN").integer();
    let own = second.line("CLIENT ID").integer();
    let lock = second.line("LOCKS GET lock:a").reply();
    assert_eq!((integer(&lock, "holder.id"), integer(&lock, "refused")), (own, 0));
    assert_eq!(array(&lock, "past"), []);
    let timeline = array(&lock, "timeline");
    let is_told = |step: &Reply| step.to_string().contains("LOCK ACQUIRE asked for it again, and has it");
    assert_eq!(timeline.iter().filter(|step| is_told(step)).count(), 1, "{timeline:?}");
    second.line("LOCK RELEASE lock:a a-long-token-of-mine").is(1);
    let stats = second.line("LOCKS STATS").reply();
    for (name, count) in [("taken", 1), ("refused", 0), ("released", 1)] {
        assert_eq!(integer(&stats, name), count, "{name}");
    }
    assert_eq!(second.line("LOCKS LOG -1").items(), []);
}
