//! SETNX under fire, and what the documents say about locks made of it.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use support::client::{Client, request};
use support::open_files::ask_for;
use support::server::Server;

const CONTENDERS: usize = 64;
const ROUNDS: usize = 1000;

/// Lets all contenders do the same in each round, at once; answers the sum of what they answer, by round.
fn contend(
    server: &Server,
    rounds: usize,
    prepare: impl Fn(&mut Client, usize) + Sync,
    attempt: impl Fn(&mut Client, usize, usize) -> usize + Sync,
) -> Vec<usize> {
    let barrier = Barrier::new(CONTENDERS);
    let winners: Vec<AtomicUsize> = (0..rounds).map(|_| AtomicUsize::new(0)).collect();
    thread::scope(|scope| {
        for contender in 0..CONTENDERS {
            let (barrier, winners, prepare, attempt) = (&barrier, &winners, &prepare, &attempt);
            let mut client = server.client();
            scope.spawn(move || {
                for (round, winners) in winners.iter().enumerate() {
                    if contender == 0 {
                        prepare(&mut client, round);
                    }
                    barrier.wait();
                    winners.fetch_add(attempt(&mut client, round, contender), Ordering::Relaxed);
                }
            });
        }
    });
    winners.into_iter().map(AtomicUsize::into_inner).collect()
}

fn setnx(client: &mut Client, key: &str, value: &str) -> bool {
    client.cmd(["SETNX", key, value]).integer() == 1
}

marked!(also_redis: of_64_clients_that_race_for_a_lock_exactly_one_gets_it_a_thousand_times);
fn of_64_clients_that_race_for_a_lock_exactly_one_gets_it_a_thousand_times() {
    let Some(_files) = ask_for(CONTENDERS + 10) else { return };
    let server = Server::start();
    let winners = contend(
        &server,
        ROUNDS,
        |_, _| {},
        |client, round, contender| {
            usize::from(setnx(client, &format!("lock:{round}"), &contender.to_string()))
        },
    );
    assert_eq!(winners, [1; ROUNDS]);
}

marked!(also_redis: of_64_clients_that_race_for_a_lock_as_it_expires_exactly_one_gets_it);
fn of_64_clients_that_race_for_a_lock_as_it_expires_exactly_one_gets_it() {
    let Some(_files) = ask_for(CONTENDERS + 10) else { return };
    let server = Server::start();
    let prepare = |client: &mut Client, round: usize| {
        client.cmd(["SET", &format!("lock:{round}"), "crashed", "PX", &(1 + round % 3).to_string()]).is_ok();
    };
    // Everyone tries until someone has it, so the lock expires while they do.
    let winners = contend(&server, ROUNDS / 2, prepare, |client, round, contender| {
        let (key, token) = (format!("lock:{round}"), format!("{round}:{contender}"));
        loop {
            if setnx(client, &key, &token) {
                return 1;
            }
            let holder = client.cmd(["GET", &key]).reply().to_string();
            if holder != "\"crashed\"" && holder != "(nil)" {
                return 0;
            }
        }
    });
    assert_eq!(winners, [1; ROUNDS / 2]);
}

marked!(also_redis: of_64_clients_that_take_over_from_a_crashed_holder_by_getset_exactly_one_does);
fn of_64_clients_that_take_over_from_a_crashed_holder_by_getset_exactly_one_does() {
    let Some(_files) = ask_for(CONTENDERS + 10) else { return };
    const EXPIRED: &str = "1000";
    let server = Server::start();
    let prepare = |client: &mut Client, round: usize| {
        assert!(setnx(client, &format!("lock.foo:{round}"), EXPIRED), "the holder that will crash");
    };
    let winners = contend(&server, ROUNDS / 4, prepare, |client, round, contender| {
        let key = format!("lock.foo:{round}");
        let stamp = (2_000_000 + contender).to_string();
        assert!(!setnx(client, &key, &stamp), "the crashed holder never released it");
        if client.cmd(["GET", &key]).text() != EXPIRED {
            return 0;
        }
        usize::from(client.cmd(["GETSET", &key, &stamp]).text() == EXPIRED)
    });
    assert_eq!(winners, [1; ROUNDS / 4]);
}

marked!(also_redis: deleting_an_expired_lock_before_taking_it_gives_it_to_two);
fn deleting_an_expired_lock_before_taking_it_gives_it_to_two() {
    let Some(_files) = ask_for(CONTENDERS + 10) else { return };
    // The sequence that the page of SETNX warns of: both clients believe that they have the lock.
    let server = Server::start();
    let (mut crashed, mut c1, mut c2) = (server.client(), server.client(), server.client());
    crashed.line("SETNX lock.foo 1000").is(1);
    drop(crashed);
    c1.line("GET lock.foo").is("1000");
    c2.line("GET lock.foo").is("1000");
    c1.line("DEL lock.foo").is(1);
    c1.line("SETNX lock.foo 2001").is(1);
    c2.line("DEL lock.foo").is(1);
    c2.line("SETNX lock.foo 2002").is(1);
}

marked!(also_redis: several_keys_are_set_together_or_not_at_all);
fn several_keys_are_set_together_or_not_at_all() {
    let Some(_files) = ask_for(CONTENDERS + 10) else { return };
    let server = Server::start();
    let winners = contend(
        &server,
        ROUNDS / 4,
        |_, _| {},
        |client, round, contender| {
            let keys: Vec<String> = (0..8).map(|number| format!("{{{round}}}:{number}")).collect();
            let token = contender.to_string();
            let mut command = vec!["MSETNX".to_owned()];
            // Everyone names the keys in another order, which must not make two wait for each other.
            for number in 0..keys.len() {
                command.extend([keys[(number + contender) % keys.len()].clone(), token.clone()]);
            }
            let has_won = client.cmd(&command).integer() == 1;
            let mget = ["MGET".to_owned()].into_iter().chain(keys);
            let holders = client.cmd(mget).items();
            assert!(holders.iter().all(|holder| *holder == holders[0]), "a torn MSETNX: {holders:?}");
            usize::from(has_won)
        },
    );
    assert_eq!(winners, [1; ROUNDS / 4]);
}

marked!(also_redis: a_pipeline_of_setnx_is_answered_in_its_order);
fn a_pipeline_of_setnx_is_answered_in_its_order() {
    let server = Server::start();
    let mut client = server.client();
    let pipeline: Vec<u8> =
        (0..10_000).flat_map(|number| request(["SETNX", &(number / 2).to_string(), "v"])).collect();
    client.send(&pipeline);
    for number in 0..10_000 {
        client.reply().is(i64::from(number % 2 == 0));
    }
}
