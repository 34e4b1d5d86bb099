//! First come, first served: what a client has sent before another one sends takes effect before it.
//!
//! The first client does not wait for its reply, so only the order in which the server serves the two
//! decides. On a busy machine the system itself delivers some bytes late, or stops a thread at the wrong
//! moment. So a few rounds are forgiven, and the best of some tries counts.

use support::client::Client;
use support::server::Server;

const ROUNDS: usize = 3000;
/// Rounds out of order that are forgiven. With a scheduler that runs first what was woken last, it was a
/// quarter of all rounds and more.
const FORGIVEN: usize = 10;
const TRIES: usize = 4;

/// Counts the rounds in which the second client was served first, for each number of threads.
#[track_caller]
fn nearly_all_are_in_order(round: impl Fn(&mut Client, &mut Client, usize) -> bool) {
    for threads in ["1", "2", "4"] {
        let server = Server::start_with(&["--io-threads", threads]);
        let (mut first, mut second) = (server.client(), server.client());
        let mut least = ROUNDS;
        for attempt in 0..TRIES {
            let mut numbers = attempt * ROUNDS..(attempt + 1) * ROUNDS;
            least =
                least.min(numbers.by_ref().filter(|number| !round(&mut first, &mut second, *number)).count());
            if least <= FORGIVEN {
                break;
            }
        }
        assert!(least <= FORGIVEN, "{least} of {ROUNDS} with {threads} threads");
    }
}

#[test]
fn a_value_that_was_set_first_is_read() {
    nearly_all_are_in_order(|first, second, number| {
        first.send(format!("SET x {number}\r\n").as_bytes());
        second.send(b"GET x\r\n");
        let is_fresh = second.reply().text() == number.to_string();
        first.reply().is_ok();
        is_fresh
    });
}

#[test]
fn a_lock_that_was_asked_for_first_is_granted_first() {
    nearly_all_are_in_order(|first, second, number| {
        first.send(format!("SETNX lock:{number} first\r\n").as_bytes());
        second.send(format!("SETNX lock:{number} second\r\n").as_bytes());
        let is_first = first.reply().integer() == 1;
        assert_eq!(second.reply().integer(), i64::from(!is_first));
        is_first
    });
}

#[test]
fn a_message_reaches_a_client_that_subscribed_first() {
    nearly_all_are_in_order(|first, second, number| {
        first.send(format!("SUBSCRIBE c{number}\r\n").as_bytes());
        second.send(format!("PUBLISH c{number} m\r\n").as_bytes());
        let has_heard = second.reply().integer() == 1;
        let messages = if has_heard { 2 } else { 1 };
        (0..messages).for_each(|_| first.reply().ignored());
        has_heard
    });
}
