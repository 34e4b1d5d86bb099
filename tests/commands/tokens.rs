//! `auth-iam`: tokens of managed services in the place of passwords, as their applications send them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use support::client::{Client, Reply};
use support::server::{Server, wait_until};

/// 2026-11-27, 18:48 o'clock.
const NOW_MS: u64 = 1_795_805_280_000;
const DATE: &str = "20261127T184800Z";
const HOUR_MS: u64 = 60 * 60 * 1000;
const WRONG: &str = "WRONGPASS invalid username-password pair or user is disabled.";

/// A server whose clock stands at [`NOW_MS`], with users, and its administrator.
fn server(clouds: &[&str]) -> (Server, Client) {
    let options = ["--enable-clock-command", "yes", "--auth-iam"];
    let server = Server::start_with(&[&options, clouds].concat());
    let mut admin = server.client();
    admin.line("CLOCK FREEZE").is_ok();
    admin.line(&format!("CLOCK SET {NOW_MS}")).is_ok();
    admin.line("ACL SETUSER app on ~* +@all >secret").is_ok();
    admin.line("ACL SETUSER other on ~* +@all").is_ok();
    admin.line("ACL SETUSER anyone on nopass ~* +@all").is_ok();
    admin.line("ACL SETUSER off off ~* +@all").is_ok();
    (server, admin)
}

/// A token as an application signs it for ElastiCache.
fn aws(user: &str, date: &str) -> String {
    format!(
        "my-cache/?Action=connect&User={user}&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Date={date}\
         &X-Amz-Expires=900&X-Amz-SignedHeaders=host&X-Amz-Security-Token=IQoJb3Jp%2F%2F\
         &X-Amz-Credential=ASIA1%2F20261127%2Feu-west-1%2Felasticache%2Faws4_request&X-Amz-Signature={}",
        "0123456789abcdef".repeat(4)
    )
}

/// A token as Microsoft Entra ID makes it.
fn azure(user: &str, expires_s: u64) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let encode = |text: &str| -> String {
        let letters = text.as_bytes().chunks(3).flat_map(|chunk| {
            let bits =
                chunk.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (24 - 8 * chunk.len());
            (0..=chunk.len()).map(move |at| char::from(LETTERS[(bits >> (18 - 6 * at) & 63) as usize]))
        });
        letters.collect()
    };
    let claims = format!(
        "{{\"aud\":\"https://redis.azure.com\",\"iss\":\"https://sts.windows.net/t/\",\"oid\":\"{user}\",\
         \"nbf\":0,\"exp\":{expires_s}}}"
    );
    [encode("{\"typ\":\"JWT\",\"alg\":\"RS256\"}"), encode(&claims), encode("signature")].join(".")
}

#[track_caller]
fn is_refused(server: &Server, user: &str, token: &str) {
    server.client().cmd(["AUTH", user, token]).is_error(WRONG);
    server.client().cmd(["HELLO", "3", "AUTH", user, token]).is_error(WRONG);
}

#[track_caller]
fn is_let_in(server: &Server, user: &str, token: &str) -> Client {
    let mut client = server.client();
    client.cmd(["AUTH", user, token]).is_ok();
    client.line("ACL WHOAMI").is(user);
    let mut client = server.client();
    client.cmd(["HELLO", "3", "AUTH", user, token]).ignored();
    client.line("ACL WHOAMI").is(user);
    client
}

fn advance(admin: &mut Client, by_ms: u64) {
    admin.line(&format!("CLOCK ADVANCE {by_ms}")).is_ok();
}

#[test]
fn a_token_of_each_cloud_logs_its_user_in_while_it_is_young() {
    let (server, mut admin) = server(&["aws", "azure", "gcp"]);
    let tokens = [
        (aws("app", DATE), 15 * 60 * 1000),
        (azure("app", (NOW_MS + HOUR_MS) / 1000), HOUR_MS),
        ("ya29.c.c0ASRK0GbK".to_owned(), HOUR_MS),
    ];
    tokens.iter().for_each(|(token, _)| _ = is_let_in(&server, "app", token));
    for (token, _) in &tokens[..2] {
        is_refused(&server, "other", token);
        // Even a user who needs no password: an application that sends a wrong token is to see it.
        is_refused(&server, "anyone", token);
    }
    is_refused(&server, "stranger", &aws("stranger", DATE));
    is_refused(&server, "off", &aws("off", DATE));
    admin.cmd(["ACL", "SETUSER", "other", &format!(">{}", tokens[0].0)]).is_ok();
    server.client().cmd(["AUTH", "other", &tokens[0].0]).is_ok();
    let mut passed_ms = 0;
    for (token, good_ms) in &tokens {
        advance(&mut admin, (good_ms - 1).saturating_sub(passed_ms));
        passed_ms = passed_ms.max(good_ms - 1);
        is_let_in(&server, "app", token);
        advance(&mut admin, u64::from(passed_ms < *good_ms));
        passed_ms += 1;
        is_refused(&server, "app", token);
        if *good_ms == HOUR_MS {
            // The clock goes back to the other one's last millisecond.
            admin.line(&format!("CLOCK SET {}", NOW_MS + HOUR_MS - 1)).is_ok();
            passed_ms = HOUR_MS - 1;
        }
    }
    // A password is a password as before.
    server.client().line("AUTH app secret").is_ok();
    server.client().line("AUTH app wrong").is_error(WRONG);
    server.client().line("AUTH anyone anything").is_ok();
}

#[test]
fn a_refusal_is_in_the_acl_log_as_that_of_a_wrong_password_and_the_token_is_nowhere() {
    let (server, mut admin) = server(&["aws", "azure"]);
    admin.line("ACL LOG RESET").is_ok();
    admin.line("CONFIG SET slowlog-log-slower-than 0").is_ok();
    let late = "20261127T180000Z";
    server.client().cmd(["AUTH", "app", &aws("app", late)]).is_error(WRONG);
    let entries = admin.line("ACL LOG").items();
    let entry = entries[0].to_string();
    assert!(entries.len() == 1 && entry.contains("\"reason\", \"auth\""), "{entry}");
    assert!(entry.contains("\"object\", \"AUTH\", \"username\", \"app\""), "{entry}");
    server.wait_for_output("A token for user 'app' from 127.0.0.1");
    server.wait_for_output("is refused: it is too old");
    is_let_in(&server, "app", &aws("app", DATE));
    let slow = admin.line("SLOWLOG GET -1").reply().to_string();
    let all = [&server.output(), &slow, &entry].map(String::as_str).concat();
    assert!(!all.contains("X-Amz") && !all.contains("0123456789abcdef0123"), "{all}");
    server.wait_for_output("auth-iam accepts tokens of aws, azure in the place of passwords, and checks no");
}

#[test]
fn a_connection_ends_with_its_token_and_a_fresh_one_renews_it() {
    let (server, mut admin) = server(&["aws", "azure", "gcp"]);
    let hours = |hours: u64| (NOW_MS + hours * HOUR_MS) / 1000;
    let mut of_aws = is_let_in(&server, "app", &aws("app", DATE));
    let mut of_azure = is_let_in(&server, "app", &azure("app", hours(2)));
    let mut of_google = is_let_in(&server, "app", "ya29.first");
    let mut renewed = is_let_in(&server, "app", &azure("app", hours(2)));
    let mut by_password = is_let_in(&server, "app", &azure("app", hours(2)));
    let mut reset = is_let_in(&server, "anyone", &azure("anyone", hours(2)));
    let mut waiting = is_let_in(&server, "app", &azure("app", hours(2)));
    renewed.cmd(["AUTH", "app", &azure("app", hours(3))]).is_ok();
    by_password.line("AUTH app secret").is_ok();
    reset.line("RESET").is_simple("RESET");
    server.have_wait(&mut waiting, "BLPOP list 0");
    advance(&mut admin, HOUR_MS - 1);
    of_google.line("PING").is_simple("PONG");
    advance(&mut admin, 1);
    assert!(of_google.is_closed());
    of_azure.line("PING").is_simple("PONG");
    // A token that is refused changes nothing.
    renewed.cmd(["AUTH", "app", &azure("app", hours(1))]).is_error(WRONG);
    advance(&mut admin, HOUR_MS);
    assert!(of_azure.is_closed() && waiting.is_closed());
    renewed.line("PING").is_simple("PONG");
    advance(&mut admin, HOUR_MS);
    assert!(renewed.is_closed());
    advance(&mut admin, 9 * HOUR_MS - 1);
    of_aws.line("PING").is_simple("PONG");
    advance(&mut admin, 1);
    assert!(of_aws.is_closed());
    [&mut by_password, &mut reset].into_iter().for_each(|client| client.line("PING").is_simple("PONG"));
    assert_eq!(admin.info("blocked_clients"), "0");
}

#[test]
fn a_connection_ends_by_a_clock_that_goes_on() {
    let server = Server::start_with(&["--auth-iam", "azure"]);
    let mut admin = server.client();
    admin.line("ACL SETUSER app on ~* +@all").is_ok();
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let mut client = server.client();
    client.cmd(["AUTH", "app", &azure("app", now_s + 2)]).is_ok();
    assert!(client.is_closed());
    let after = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    assert!(after >= Duration::from_secs(now_s + 2));
    wait_until("it is gone", || !admin.line("CLIENT LIST").text().contains("user=app"));
}

#[test]
fn google_sends_a_token_without_a_user() {
    let (server, mut admin) = server(&["gcp"]);
    let mut client = server.client();
    client.line("AUTH ya29.token").is_ok();
    let none = "ERR AUTH <password> called without any password configured for the default user. Are you \
                sure your configuration is correct?";
    client.line("AUTH token").is_error(none);
    client.line("AUTH eyJ.eyJ.x").is_error(none);
    admin.line("CONFIG SET requirepass secret").is_ok();
    let mut client = server.client();
    client.line("GET k").is_error("NOAUTH Authentication required.");
    client.line("AUTH token").is_error(WRONG);
    client.line("AUTH ya29.token").is_ok();
    client.line("GET k").is_nil();
    let plain = Server::start();
    plain.client().line("AUTH ya29.token").is_error(none);
}

#[test]
fn what_is_no_token_is_refused_whatever_it_is() {
    let (server, mut admin) = server(&["aws", "azure", "gcp"]);
    let (good, jwt) = (aws("app", DATE), azure("app", NOW_MS / 1000 + 60));
    let claims = jwt.split('.').nth(1).unwrap();
    let mut wrong: Vec<String> = [
        ("my-cache/?", "https://my-cache/?"),
        ("my-cache/?", "?"),
        ("Action=connect&", ""),
        ("User=app", "User=app&User=app"),
        ("User=app", "User=%"),
        ("=900", "=901"),
        ("=900", "=-1"),
        (DATE, "20269999T999999Z"),
        ("elasticache", "s3"),
        ("%2Faws4_request", ""),
    ]
    .map(|(from, to)| good.replace(from, to))
    .to_vec();
    wrong.extend((0..good.len() - 64).step_by(7).map(|end| good[..end].to_owned()));
    wrong.extend([
        "X-Amz-".to_owned(),
        format!("{good}&{}", "a=b&".repeat(5000)),
        "eyJ..".to_owned(),
        format!("eyJ.{claims}.x"),
        format!("{claims}.eyJ.x"),
        jwt.replace('.', ".."),
        jwt[..jwt.len() - 1].to_owned() + "!",
        format!("{jwt}+"),
        format!("eyJhIjoxfQ.{}.eA", "W".repeat(8000)),
        "ya29.\u{e9}".to_owned(),
        "ya29. ".to_owned(),
    ]);
    for token in &wrong {
        let mut client = server.client();
        assert_eq!(client.cmd(["AUTH", "app", token]).reply(), Reply::Error(WRONG.into()), "{token}");
    }
    assert_eq!(admin.line("ACL LOG 1").items().len(), 1);
    admin.line("PING").is_simple("PONG");
}

#[test]
fn a_token_is_for_one_cache_if_the_server_has_its_name() {
    let (server, _admin) = server(&["aws", "--auth-iam-cache", "my-cache"]);
    is_let_in(&server, "app", &aws("app", DATE));
    is_refused(&server, "app", &aws("app", DATE).replace("my-cache", "my-cache-2"));
    is_let_in(&server, "app", &aws("app", DATE).replace("elasticache", "memorydb"));
}

#[test]
fn the_option_may_be_repeated_and_other_clouds_stay_shut() {
    let asked = |server: &Server| {
        server.client().line("CONFIG GET auth-iam").items()[1].to_string().trim_matches('"').to_owned()
    };
    let (plain, _admin) = server(&["none"]);
    assert_eq!(asked(&plain), "none");
    is_refused(&plain, "app", &aws("app", DATE));
    plain.client().cmd(["AUTH", "anyone", &aws("app", "x")]).is_ok();
    let (two, _admin) = server(&["gcp", "--auth-iam", "aws"]);
    assert_eq!(asked(&two), "aws gcp");
    is_let_in(&two, "app", &aws("app", DATE));
    is_refused(&two, "app", &azure("app", NOW_MS / 1000 + 60));
    let (none, _admin) = server(&["gcp", "--auth-iam", "none"]);
    assert_eq!(asked(&none), "none");
    assert!(two.client().line("CONFIG SET auth-iam azure").text().starts_with("ERR"));
}
