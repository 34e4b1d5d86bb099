//! WATCH and EXEC over two front-ends: EXEC fails if a watched key was written meanwhile, whatever was
//! written, and however often the key is watched.

use super::{Kind, pair};
use crate::client::{Client, Reply};

on_both! {
    a_key_that_is_watched_twice_is_watched_from_the_first_time_on
}

/// The reply to a transaction of these lines.
#[track_caller]
fn exec(client: &mut Client, lines: &[&str]) -> Reply {
    client.line("MULTI").is_ok();
    lines.iter().for_each(|line| client.line(line).is_simple("QUEUED"));
    client.line("EXEC").reply()
}

fn a_key_that_is_watched_twice_is_watched_from_the_first_time_on(kind: Kind) {
    let Some((_cluster, one, other)) = pair(kind, "twice") else { return };
    let (mut one, mut other) = (one.client(), other.client());
    one.line("SET present 1").is_ok();
    one.line("SET gone 1").is_ok();
    let changes = [("present", "SET present 2"), ("absent", "SET absent 2"), ("gone", "DEL gone")];
    for (key, change) in changes {
        for again in [format!("WATCH {key}"), format!("WATCH before {key} other")] {
            one.line("SET result 0").is_ok();
            one.line(&format!("WATCH {key}")).is_ok();
            one.line(&format!("GET {key}")).ignored();
            other.line(change).ignored();
            one.line(&again).is_ok();
            assert_eq!(exec(&mut one, &["SET result 1"]), Reply::Null, "{change}; {again}");
            one.line("GET result").is("0");
            other.line("DEL absent").ignored();
            other.line("SET gone 1").is_ok();
        }
    }
    // A key that has not changed may be watched as often as one likes.
    for _ in 0..3 {
        one.line("WATCH present absent").is_ok();
    }
    assert_eq!(exec(&mut one, &["SET result 1"]), Reply::Array(vec![Reply::Simple("OK".into())]));
}
