//! Keys whose names were chosen so that they have the same slot. Slots are hashes without a secret: one
//! multiplication finds a name of 32 bytes for any slot.

use std::collections::HashSet;
use std::thread;
use std::time::Duration;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::attacks::{Holder, until_waiting};
use super::{Kind, pair};
use support::client::{Client, Reply, request};
use support::store::postgres;

on_both! {
    scan_finds_all_keys_that_share_a_slot
}

/// How names of tests begin, with which a user might be content.
const PREFIX: &[u8; 10] = b"lock:evil:";

/// A name of 32 bytes with the same slot as another key of database 0. They differ by their number.
fn namesake(of: &[u8], number: u32) -> Vec<u8> {
    const SECRET: [u64; 4] =
        [0xbe4b_a423_396c_feb8, 0x1cad_21f7_2c81_017c, 0xdb97_9083_e96d_d4de, 0x1f67_b3b7_a4a4_4072];
    const LENGTH: u64 = 0x9e37_79b1_85eb_ca87_u64.wrapping_mul(32);
    const FACTOR: u64 = 0x1656_6791_9e37_79f9;
    // The inverse of the last steps of the hash. Five rounds double the bits that are right.
    let inverse = (0..6)
        .fold(1_u64, |inverse, _| inverse.wrapping_mul(2_u64.wrapping_sub(FACTOR.wrapping_mul(inverse))));
    let mut sum = xxh3_64_with_seed(of, 0);
    sum ^= sum >> 32;
    sum = sum.wrapping_mul(inverse);
    sum ^= sum >> 37;
    let mut name = [PREFIX, &number.to_be_bytes()[..], b"__"].concat();
    let word = |at: usize| u64::from_le_bytes(name[at..at + 8].try_into().expect("8 bytes"));
    let product = u128::from(word(0) ^ SECRET[0]) * u128::from(word(8) ^ SECRET[1]);
    let first = (product as u64) ^ (product >> 64) as u64;
    // The second half is multiplied by 1.
    let rest = sum.wrapping_sub(LENGTH).wrapping_sub(first);
    name.extend((SECRET[2] ^ 1).to_le_bytes());
    name.extend((SECRET[3] ^ rest).to_le_bytes());
    assert_eq!(xxh3_64_with_seed(&name, 0) >> 2, xxh3_64_with_seed(of, 0) >> 2);
    name
}

marked!(needs_tools: a_key_of_the_same_slot_decides_nothing_about_another_clients_lock);
fn a_key_of_the_same_slot_decides_nothing_about_another_clients_lock() {
    let Some((cluster, one, other)) = postgres::pair("slots") else { return };
    let (mut owner, mut first, mut group) = (one.client(), other.client(), other.client());
    for (round, has_groups) in [false, true].into_iter().enumerate() {
        let locks: Vec<String> = (0..10).map(|number| format!("lock:order:{round}:{number}")).collect();
        for lock in &locks {
            owner.line(&format!("SETNX {lock} owner")).is(1);
        }
        let mut holder = Holder::start(&cluster, 0);
        holder.run(&cluster, "BEGIN; SELECT front FROM keyfast.fronts FOR UPDATE");
        // All others travel in one batch, behind this request.
        first.line("PING").ignored();
        first.send(&request(["SETNX", &format!("first:{round}"), "1"]));
        until_waiting(&cluster, 1);
        let send = |name: &[u8]| -> Client {
            let mut client = other.client();
            client.send(&request([b"SETNX", name, b"other"]));
            client
        };
        let mut robbers: Vec<Client> = locks.iter().map(|lock| send(&namesake(lock.as_bytes(), 0))).collect();
        let mut victims: Vec<Client> = locks.iter().map(|lock| send(lock.as_bytes())).collect();
        if has_groups {
            group.send(&request(["MSET", "a", "1", "b", "2"]));
        }
        thread::sleep(Duration::from_millis(300));
        holder.run(&cluster, "ROLLBACK");
        first.reply().is(1);
        robbers.iter_mut().for_each(|client| client.reply().is(1));
        victims.iter_mut().for_each(|client| client.reply().is(0));
        if has_groups {
            group.reply().is_ok();
        }
        for lock in &locks {
            victims[0].line(&format!("GET {lock}")).is("owner");
        }
    }
}

marked!(needs_tools: a_lifetime_is_that_of_the_key_and_not_of_one_with_the_same_slot);
fn a_lifetime_is_that_of_the_key_and_not_of_one_with_the_same_slot() {
    let Some((cluster, one, _other)) = postgres::pair("slot-lifetimes") else { return };
    let (mut first, mut client, mut twin) = (one.client(), one.client(), one.client());
    let name = namesake(b"lock", 0);
    let mut holder = Holder::start(&cluster, 0);
    holder.run(&cluster, "BEGIN; SELECT front FROM keyfast.fronts FOR UPDATE");
    first.send(&request(["SETNX", "first", "1"]));
    until_waiting(&cluster, 1);
    client.send(&request(["SET", "lock", "a", "PX", "100000"]));
    twin.send(&request([b"SET".as_slice(), &name, b"b", b"PX", b"900000"]));
    thread::sleep(Duration::from_millis(300));
    holder.run(&cluster, "ROLLBACK");
    first.reply().is(1);
    client.reply().is_ok();
    twin.reply().is_ok();
    assert!((1..=100_000).contains(&client.line("PTTL lock").integer()));
    assert!((100_001..=900_000).contains(&twin.cmd([b"PTTL".as_slice(), &name]).integer()));
}

fn scan_finds_all_keys_that_share_a_slot(kind: Kind) {
    let Some((_cluster, one, _other)) = pair(kind, "slot-scan") else { return };
    let mut client = one.client();
    let mut names: HashSet<Vec<u8>> = (0..40).map(|number| namesake(b"lock", number)).collect();
    names.extend((0..20).map(|number| format!("key:{number}").into_bytes()));
    for name in &names {
        client.cmd([b"SET".as_slice(), name, b"v"]).is_ok();
    }
    for count in [1, 7, 1_000] {
        let (mut cursor, mut seen) = ("0".to_owned(), Vec::new());
        loop {
            let reply = client.line(&format!("SCAN {cursor} COUNT {count}")).items();
            let [Reply::Bulk(next), Reply::Array(keys)] = &reply[..] else { panic!("{reply:?}") };
            seen.extend(keys.iter().map(|key| match key {
                Reply::Bulk(key) => key.clone(),
                other => panic!("{other}"),
            }));
            cursor = String::from_utf8(next.clone()).expect("a number");
            if cursor == "0" {
                break;
            }
        }
        assert_eq!(seen.len(), names.len(), "COUNT {count}");
        assert_eq!(seen.into_iter().collect::<HashSet<_>>(), names, "COUNT {count}");
    }
}
