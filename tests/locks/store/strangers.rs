//! News that no front-end has sent (NOTIFY by another user of the database) is not heard.

use std::process::{Command, Stdio};
use std::time::Duration;

use super::attacks::until_listening;
use super::wait_until_heard;
use support::store::postgres;

/// A message on a channel, as front-ends send it.
fn message(channel: &str, text: &str) -> String {
    let mut bytes = vec![3, 0];
    for part in [channel, text] {
        bytes.extend_from_slice(&(part.len() as u32).to_le_bytes());
        bytes.extend_from_slice(part.as_bytes());
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

marked!(needs_tools: news_of_strangers_is_not_heard_and_that_of_front_ends_only_once);
fn news_of_strangers_is_not_heard_and_that_of_front_ends_only_once() {
    let Some((cluster, one, other)) = postgres::pair("strangers") else { return };
    until_listening(&cluster, 2);
    cluster.sql(0, "CREATE ROLE stranger LOGIN").expect("a user");
    let mut listener = one.client();
    listener.line("SUBSCRIBE channel").ignored();
    let now = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
    let letter: u64 = cluster.sql(0, now).expect("the time").parse().expect("a number");
    let seal = "0123456789abcdef0123456789abcdef";
    let forged = message("channel", "forged");
    for front in [1, 2, 999] {
        for letter in [1, letter, letter + 1_000_000] {
            for end in ["".to_owned(), " ".to_owned(), format!(" {seal}")] {
                let notify = format!(
                    "SET SESSION AUTHORIZATION stranger; NOTIFY keyfast, '{front} {letter} 0 {forged}{end}'"
                );
                cluster.sql(0, &notify).expect("it is sent");
            }
        }
    }
    // Strangers may not read the secret, and what they hear and send again is old.
    let secret = "SET SESSION AUTHORIZATION stranger; SELECT secret FROM keyfast.secret";
    assert!(cluster.sql(0, secret).is_err_and(|why| why.contains("permission denied")));
    let port = cluster.port(0).to_string();
    let eavesdropper = Command::new("psql")
        .args(["-h", "127.0.0.1", "-p", &port, "-U", "stranger", "-At", "postgres"])
        .args(["-c", "LISTEN keyfast", "-c", "SELECT pg_sleep(3)"])
        .env("PGAPPNAME", "eavesdropper")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("psql runs");
    let sleeps = "SELECT count(*) FROM pg_stat_activity
        WHERE application_name = 'eavesdropper' AND wait_event = 'PgSleep'";
    super::eventually("it listens", || cluster.sql(0, sleeps) == Ok("1".into()));
    other.client().line("PUBLISH channel genuine").is(0);
    assert_eq!(listener.reply().reply().to_string(), r#"["message", "channel", "genuine"]"#);
    let heard = eavesdropper.wait_with_output().expect("psql ends");
    let heard = String::from_utf8_lossy(&heard.stdout).into_owned();
    let genuine = message("channel", "genuine");
    let pieces = heard.lines().filter_map(|line| line.split_once("payload \"")?.1.split_once('"'));
    let piece = pieces.map(|(piece, _)| piece).find(|piece| piece.contains(&genuine)).expect("the message");
    let again = format!("SET SESSION AUTHORIZATION stranger; NOTIFY keyfast, '{piece}'");
    cluster.sql(0, &again).expect("it is sent");
    assert!(listener.is_silent_for(Duration::from_secs(1)), "{}", listener.reply().reply());
    wait_until_heard(&mut one.client(), &other);
}
