//! What MONITOR and SLOWLOG show of requests, and what they never show: passwords.

use support::client::{Client, Reply};
use support::server::{Server, is_redis};

/// What a monitor sees next, from the request's name on.
#[track_caller]
fn seen(monitor: &mut Client) -> String {
    match monitor.reply().reply() {
        Reply::Simple(line) => line.split_once("] ").expect("who sent it").1.to_owned(),
        other => panic!("not a line: {other:?}"),
    }
}

/// A client, and a monitor that shows its requests.
fn watched(server: &Server) -> (Client, Client) {
    let (client, mut monitor) = (server.client(), server.client());
    monitor.line("MONITOR").is_ok();
    (client, monitor)
}

/// The requests that SLOWLOG has kept, the newest first, each as one line.
fn slow_requests(client: &mut Client) -> Vec<String> {
    let entries = client.line("SLOWLOG GET -1").items().into_iter();
    let arguments = entries.map(|entry| match entry {
        Reply::Array(mut entry) => entry.swap_remove(3),
        other => panic!("no entry: {other:?}"),
    });
    arguments.map(|arguments| arguments.to_string()).collect()
}

#[test]
fn a_monitor_sees_commands_that_fail_but_none_that_are_refused() {
    let server = Server::start();
    let (mut client, mut monitor) = watched(&server);
    client.line("SET k v").is_ok();
    for (sent, shown) in [
        ("INCR k", Some(r#""INCR" "k""#)),
        ("NOSUCH x", None),
        ("GET", None),
        ("PING a b", Some(r#""PING" "a" "b""#)),
        ("CONFIG SET maxmemory x", None),
        ("AUTH user secret", Some(r#""AUTH" "(redacted)" "(redacted)""#)),
        ("SELECT 99", Some(r#""SELECT" "99""#)),
        ("CLIENT SETNAME \"a b\"", Some(r#""CLIENT" "SETNAME" "a b""#)),
        ("EVAL \"return 1\" x", Some(r#""EVAL" "return 1" "x""#)),
        ("EVAL \"return (\" 0", Some(r#""EVAL" "return (" "0""#)),
        ("EVALSHA x 0", Some(r#""EVALSHA" "x" "0""#)),
        ("FCALL nosuch 0", Some(r#""FCALL" "nosuch" "0""#)),
        ("EXEC", Some(r#""EXEC""#)),
        ("RENAME absent k", Some(r#""RENAME" "absent" "k""#)),
        ("SHUTDOWN SAVE NOSAVE", None),
    ] {
        let _ = client.line(sent);
        client.cmd(["ECHO", sent]).is(sent);
        let mut expected: Vec<String> = shown.into_iter().map(str::to_owned).collect();
        expected.push(format!(r#""ECHO" "{}""#, sent.replace('"', "\\\"")));
        if sent == "INCR k" {
            expected.insert(0, r#""SET" "k" "v""#.to_owned());
        }
        for expected in expected {
            assert_eq!(seen(&mut monitor), expected, "{sent}");
        }
    }
}

#[test]
fn what_a_script_calls_is_shown_after_the_script() {
    let server = Server::start();
    let (mut client, mut monitor) = watched(&server);
    let script = "redis.pcall('incr', 'k') redis.pcall('get') return redis.pcall('nosuch')";
    client.line("SET k v").is_ok();
    let _ = client.cmd(["EVAL", script, "0"]);
    assert_eq!(seen(&mut monitor), r#""SET" "k" "v""#);
    assert_eq!(seen(&mut monitor), format!(r#""EVAL" "{script}" "0""#));
    assert_eq!(seen(&mut monitor), r#""incr" "k""#, "what is refused is not shown");
    client.line("PING").is_simple("PONG");
    assert_eq!(seen(&mut monitor), r#""PING""#);
}

/// Requests with passwords, each with what is shown of it; a client sends all of them.
const WITH_PASSWORDS: &[(&str, &str)] = &[
    ("AUTH hunter2", "AUTH *"),
    ("AUTH someone hunter2", "AUTH * *"),
    ("HELLO 2 AUTH someone hunter2", "HELLO 2 AUTH * *"),
    ("HELLO 2 SETNAME auth AUTH someone hunter2", "HELLO 2 SETNAME auth AUTH * *"),
    ("HELLO 2 AUTH someone hunter2 SETNAME auth", "HELLO 2 AUTH * * SETNAME auth"),
    ("HELLO 2 setname AUTH auth someone hunter2", "HELLO 2 setname AUTH auth * *"),
    ("HELLO 2 AUTH auth hunter2 SETNAME hello", "HELLO 2 AUTH * * SETNAME hello"),
    ("ACL SETUSER someone on >hunter2 ~*", "ACL SETUSER * * * *"),
    ("CONFIG SET maxmemory 0 requirepass hunter2", "CONFIG SET maxmemory 0 requirepass *"),
    ("CONFIG SET masterauth hunter2", "CONFIG SET masterauth *"),
    ("CONFIG SET MasterUser hunter2", "CONFIG SET MasterUser *"),
];

/// Requests of which Redis shows the passwords: most of them are mistaken, and it stops looking too early.
const SHOWN_BY_REDIS: &[&str] = &[
    "CONFIG SET tls-key-file-pass hunter2",
    "CONFIG SET tls-client-key-file-pass hunter2",
    "AUTH someone hunter2 more",
    "HELLO x AUTH someone hunter2",
    "HELLO 9 AUTH someone hunter2",
    "HELLO AUTH someone hunter2",
    "HELLO 2 FOO AUTH someone hunter2",
    "HELLO 2 SETNAME AUTH someone hunter2",
    "HELLO 2 AUTH hunter2",
    "HELLO 2 AUTH someone hunter2 hunter2",
    "CONFIG SET requirpass hunter2",
    "CONFIG SET maxmemory requirepass hunter2",
    "COMMAND GETKEYS AUTH someone hunter2",
    "ACL DRYRUN default AUTH someone hunter2",
    "ACL DRYRUN default HELLO 3 SETNAME auth AUTH someone hunter2",
    "MIGRATE 127.0.0.1 1 k 0 10 AUTH hunter2",
    "MIGRATE 127.0.0.1 1 k 0 10 COPY AUTH2 someone hunter2",
];

fn server_with_user() -> Server {
    let server = Server::start_with(&["--slowlog-log-slower-than", "0", "--loglevel", "debug"]);
    let mut client = server.client();
    // A user without a password may log in with any password.
    client.line("ACL SETUSER someone on nopass ~* &* +@all").is_ok();
    client.line("ACL SETUSER auth on nopass ~* &* +@all").is_ok();
    server
}

marked!(also_redis: passwords_are_never_shown_whatever_the_order_of_options);
fn passwords_are_never_shown_whatever_the_order_of_options() {
    for within in ["", "MULTI", "refused"] {
        let server = server_with_user();
        let (mut client, mut monitor) = watched(&server);
        let mut admin = server.client();
        admin.line("SLOWLOG RESET").is_ok();
        let others = if is_redis() { &[] } else { SHOWN_BY_REDIS };
        for sent in WITH_PASSWORDS.iter().map(|(sent, _)| sent).chain(others) {
            match within {
                "MULTI" => {
                    client.line("MULTI").is_ok();
                    let _ = client.line(sent);
                    let _ = client.line("EXEC");
                }
                "refused" => {
                    client.line("MULTI").is_ok();
                    let _ = client.line("GET");
                    let _ = client.line(sent);
                    let _ = client.line("EXEC");
                }
                _ => drop(client.line(sent)),
            }
        }
        client.line("ECHO end").is("end");
        let mut shown = Vec::new();
        while shown.last().is_none_or(|line: &String| !line.contains("\"end\"")) {
            shown.push(seen(&mut monitor));
        }
        let kept = slow_requests(&mut admin);
        for (sent, expected) in WITH_PASSWORDS {
            let quoted = |marks: &str| {
                expected
                    .split(' ')
                    .map(|word| format!("\"{word}\""))
                    .collect::<Vec<_>>()
                    .join(marks)
                    .replace('*', "(redacted)")
            };
            if within != "refused" {
                assert!(kept.contains(&format!("[{}]", quoted(", "))), "{sent}: {kept:?}");
                let is_shown = !expected.starts_with("CONFIG") && !expected.starts_with("ACL");
                assert_eq!(shown.contains(&quoted(" ")), is_shown, "{sent}: {shown:?}");
            }
        }
        let others =
            ["CLIENT LIST", "ACL LOG", "INFO everything", "LOCKS LIST", "LOCKS LOG", "FUNCTION STATS"];
        let others = others.map(|line| admin.line(line).reply().to_string());
        let log = server.output();
        for text in shown.iter().chain(&kept).chain(&others).chain([&log]) {
            assert!(!text.contains("hunter2"), "{within}: {text}");
        }
    }
}

#[test]
fn a_password_in_a_configuration_that_is_refused_is_not_printed() {
    // Redis prints the whole line.
    let folder = support::folder::Folder::new("refused-passwords");
    for line in [
        "requirepass hunter2 hunter2",
        "user someone on >hunter2 (~a",
        "user someone <hunter2",
        "masterauth a hunter2",
    ] {
        let file = folder.write("keyfast.conf", &format!("{line}\n"));
        let ended = folder.command().arg(&file).output().expect("it ends");
        let printed = String::from_utf8_lossy(&[ended.stdout, ended.stderr].concat()).into_owned();
        assert!(!ended.status.success() && printed.contains("line 1"), "{printed}");
        assert!(!printed.contains("hunter2"), "{printed}");
    }
}
