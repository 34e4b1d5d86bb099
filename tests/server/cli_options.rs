//! The options of the client: all those of redis-cli 8.6.3, taken or refused by a sentence; numbers, URIs and
//! names as redis-cli and valkey-cli read them.

use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::process::Command;

use crate::cli::{at_terminal, cli, is_redis_cli, own, run, tested};
use support::folder::Folder;
use support::server::{Server, program};

/// Every option in the help of redis-cli 8.6.3, with a value where it takes one.
const OPTIONS_OF_REDIS: [&str; 8] = [
    "-h x -p 1 -t 1 -s x -a x --user x --pass x --askpass -u redis://h -r 1 -i 1 -n 1 --name x -2 -x -X x",
    "-d x -D x -c -e -4 -6 --tls --sni x --cacert x --cacertdir x --insecure --cert x --key x",
    "--tls-ciphers x --tls-ciphersuites x --raw --no-raw --quoted-input --csv --json --quoted-json",
    "--show-pushes y --stat --latency --latency-history --latency-dist --vset-recall x --vset-recall-count 1",
    "--vset-recall-ef 1 --vset-recall-ele 1 --lru-test 1 --replica --rdb x --functions-rdb x --pipe",
    "--pipe-timeout 1 --bigkeys --memkeys --memkeys-samples 1 --keystats --keystats-samples 1 --cursor 1",
    "--top 1 --hotkeys --scan --pattern x --count 1 --quoted-pattern x --intrinsic-latency 1 --eval x",
    "--ldb --ldb-sync-mode --cluster help --verbose --no-auth-warning --help --version",
];

#[test]
fn every_option_of_redis_cli_is_known() {
    let mut refused = Vec::new();
    let text = OPTIONS_OF_REDIS.join(" ");
    let words: Vec<&str> = text.split(' ').collect();
    // An option with its value, if it has one.
    for words in words.chunk_by(|_, next| !next.starts_with('-')) {
        let option = words[0];
        // With the help behind it nothing is done.
        let ran = run(own(), &[words, &["--help"]].concat(), b"");
        match ran.code {
            Some(0) => assert!(ran.output.starts_with("redis-cli 8."), "{option}: {ran:?}"),
            _ => {
                assert!(ran.complaint.starts_with(&format!("{option}: ")), "{option}: {ran:?}");
                assert_eq!(ran.complaint.lines().count(), 1, "{option}: {ran:?}");
                refused.push(option.to_owned());
            }
        }
    }
    let known = ["--tls-ciphers", "--tls-ciphersuites", "--vset-recall", "--vset-recall-count"];
    let more = ["--vset-recall-ef", "--vset-recall-ele", "--ldb", "--ldb-sync-mode", "--cluster"];
    assert_eq!(refused, [&known[..], &more].concat());
}

marked!(also_cli: options_of_health_checks_are_taken);
fn options_of_health_checks_are_taken() {
    let server = Server::start();
    for options in [
        &["-t", "1"][..],
        &["-t", "0.5", "-h", "127.0.0.1"],
        &["-4", "-h", "127.1"],
        &["-6", "-h", "127.1"],
        &["--verbose"],
        &["-n", "0x", "-r", "1y", "-i", "z"],
    ] {
        cli(&server, &[options, &["PING"]].concat()).printed("PONG\n");
    }
    let ran = cli(&server, &["--name", "health check", "PING"]);
    assert!(ran.complaint.starts_with("CLIENT SETNAME failed: ERR Client names cannot contain"), "{ran:?}");
    cli(&server, &["--name", "me", "CLIENT", "GETNAME"]).printed("me\n");
    cli(&server, &["-n", "3x", "--name", "me", "CLIENT", "LIST", "ID", "1"]).printed("");
}

/// redis-cli waits for ever, with `-t`, too.
#[test]
fn a_server_that_does_not_greet_over_tls_is_given_up_in_time() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port().to_string();
    let ran = run(own(), &["-p", &port, "--tls", "--insecure", "-t", "0.1", "PING"], b"");
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert_eq!(
        ran.complaint,
        format!("Could not connect to Redis at 127.0.0.1:{port}: Connection timed out\n")
    );
}

marked!(also_cli: a_uri_may_have_what_applications_add);
fn a_uri_may_have_what_applications_add() {
    let server = Server::start();
    for (tail, database) in [
        ("/0?protocol=3", 0),
        ("/2?client_name=x", 2),
        ("?ssl_cert_reqs=none", 0),
        ("/3/", 3),
        ("/", 0),
        ("", 0),
        ("/x", 0),
        ("/0?", 0),
    ] {
        let uri = format!("redis://127.0.0.1:{}{tail}", server.port());
        let ran = run(tested(), &["-u", &uri, "CLIENT", "INFO"], b"");
        assert!(ran.code == Some(0) && ran.output.contains(&format!(" db={database} ")), "{tail}: {ran:?}");
    }
}

marked!(also_cli: a_client_that_listens_ends_with_its_input);
fn a_client_that_listens_ends_with_its_input() {
    let server = Server::start();
    let port = server.port().to_string();
    for protocol in ["-2", "-3"] {
        let arguments = ["-p", &port, protocol];
        run(tested(), &arguments, b"SUBSCRIBE c\n").printed("subscribe\nc\n1\n");
        // It goes on with its lines, also while it listens.
        run(tested(), &arguments, b"SUBSCRIBE a b\nUNSUBSCRIBE a\nPING\n").printed(match protocol {
            "-2" => "subscribe\na\n1\nsubscribe\nb\n2\nunsubscribe\na\n1\npong\n\n",
            _ => "subscribe\na\n1\nsubscribe\nb\n2\nunsubscribe\na\n1\nPONG\n",
        });
    }
}

marked!(also_cli: at_a_terminal_a_key_ends_the_wait_for_messages);
fn at_a_terminal_a_key_ends_the_wait_for_messages() {
    let server = Server::start();
    let folder = Folder::new("cli-listening");
    let mut client = at_terminal(&tested(), &server, &folder.file(""), "-3");
    let place = format!("127.0.0.1:{}", server.port());
    client.awaits(&format!("{place}> "));
    client.types("subscribe news\r");
    client.awaits("3) (integer) 1\r\n");
    client.awaits("Reading messages... (press Ctrl-C to quit or any key to type command)\r");
    server.client().line("PUBLISH news hello").is(1);
    client.awaits("3) \"hello\"\r\n");
    client.awaits("Reading messages... (press Ctrl-C to quit or any key to type command)\r");
    client.types("p");
    client.awaits(&format!("{place}(subscribed mode)> "));
    client.types("ing\r");
    client.awaits("PONG\r\n");
    client.awaits("Reading messages... (press Ctrl-C to quit or any key to type command)\r");
    client.types("\x03");
    client.awaits(&format!("{place}> "));
}

#[test]
fn the_database_is_in_the_prompt_after_a_reconnect() {
    let server = Server::start();
    let folder = Folder::new("cli-reconnect");
    let mut client = at_terminal(&own(), &server, &folder.file(""), "");
    let place = format!("127.0.0.1:{}", server.port());
    client.awaits(&format!("{place}> "));
    client.types("select 3\r");
    client.awaits(&format!("{place}[3]> "));
    client.types("client id\r");
    client.awaits(&format!("{place}[3]> "));
    server.client().line("CLIENT KILL TYPE normal SKIPME yes").is(1);
    // The first command finds the connection lost, and the next one opens it again.
    client.types("ping\r");
    client.awaits("not connected> ");
    client.types("ping\r");
    client.awaits("PONG\r\n");
    client.awaits(&format!("{place}[3]> "));
}

marked!(also_cli: keys_are_measured_by_elements_and_memory);
fn keys_are_measured_by_elements_and_memory() {
    let server = Server::start();
    let mut client = server.client();
    client.cmd(["SET", "text", &"x".repeat(2000)]).is_ok();
    client.line("RPUSH l a b c").is(3);
    client.line("SADD s a").is(1);
    let memory = |name: &str| server.client().cmd(["MEMORY", "USAGE", name]).integer();
    let (text, l, s) = (memory("text"), memory("l"), memory("s"));
    let ran = cli(&server, &["--keystats", "--top", "2"]);
    assert_eq!((ran.code, &*ran.complaint), (Some(0), ""));
    let text_size = format!("{:.2}K", text as f64 / 1024.0);
    for part in [
        "100.00% keys scanned\nKeys sampled: 3\n",
        "\n--- Top 2 key sizes ---\n",
        &format!("\n  1 {text_size:>8} string     \"text\"\n  2 "),
        "\n\n--- Top size per type ---\nlist       l is ",
        &format!("list       l is {l}B\nstring     text is {text_size}\nset        s is {s}B\n"),
        "\n--- Top length and cardinality per type ---\nlist       l has 3 items\n",
        "string     text has 1.95K\nset        s has 1 members\n",
        "\nKey size Percentile Total keys\n-------- ---------- -----------\n",
        &format!("{text_size:>8}  100.0000%           3\nNote: 0.01% size precision, Mean: "),
        "\nKey name length Percentile Total keys\n--------------- ---------- -----------\n",
        "\n             4B  100.0000%           3\nTotal key length is 6B (2B avg)\n",
        "\nType        Total keys  Keys % Tot size Avg size  Total length/card Avg ln/card\n",
        "            3 items        3.00\n",
    ] {
        assert!(ran.output.contains(part), "no {part}: in {}", ran.output);
    }
    for (options, count) in [(&["--keystats-samples", "5"][..], 3), (&["--keystats", "--pattern", "l*"], 1)] {
        let ran = cli(&server, options);
        assert!(ran.output.contains(&format!("Keys sampled: {count}\n")), "{ran:?}");
    }
}

#[test]
fn valkeys_client_has_its_own_names() {
    let server = Server::start_with(&["--requirepass", "secret"]);
    let folder = Folder::new("cli-valkey");
    let link = folder.file("valkey-cli");
    symlink(program(), &link).unwrap();
    let port = server.port().to_string();
    let ran = |variables: &[(&str, &str)], arguments: &[&str]| {
        let mut command = Command::new(&link);
        command.envs(variables.iter().copied());
        run(command, arguments, b"")
    };
    ran(&[("VALKEYCLI_AUTH", "secret")], &["-p", &port, "PING"]).printed("PONG\n");
    ran(&[("REDISCLI_AUTH", "secret")], &["-p", &port, "PING"]).printed("PONG\n");
    ran(&[("VALKEYCLI_AUTH", "secret"), ("REDISCLI_AUTH", "x")], &["-p", &port, "PING"]).printed("PONG\n");
    let uri = format!("valkey://default:secret@127.0.0.1:{port}/3");
    let info = ran(&[], &["--no-auth-warning", "-u", &uri, "CLIENT", "INFO"]);
    assert!(info.output.contains(" db=3 "), "{info:?}");
    run(own(), &["-u", &uri, "PING"], b"").failed("", "Invalid URI scheme\n");
    let version = ran(&[], &["--version"]);
    assert!(version.output.starts_with("valkey-cli "), "{version:?}");
}

#[test]
fn a_password_can_be_asked_for() {
    let server = Server::start_with(&["--requirepass", "secret"]);
    let port = server.port().to_string();
    let mut command = own();
    command.env("REDISCLI_AUTH", "wrong");
    run(command, &["-p", &port, "-a", "wrong", "--askpass", "PING"], b"secret\n").printed("PONG\n");
    let folder = Folder::new("cli-password");
    let mut client = at_terminal(&own(), &server, &folder.file(""), "--askpass PING");
    client.awaits("Please input password: ");
    client.types("secret\r");
    client.awaits("******");
    client.awaits("PONG\r\n");
}

#[test]
fn a_server_without_tls_is_recognized() {
    let server = Server::start();
    let place = format!("127.0.0.1:{}", server.port());
    let ran = run(own(), &["-p", &server.port().to_string(), "--tls", "--insecure", "PING"], b"");
    let begin = format!("Could not connect to Redis at {place}: SSL_connect failed: the server ");
    assert!(ran.complaint.starts_with(&begin) && ran.complaint.contains("TLS on this port"), "{ran:?}");
    assert!(!is_own_word(&ran.complaint, "InvalidContentType"), "{ran:?}");
}

fn is_own_word(text: &str, word: &str) -> bool {
    text.split_whitespace().any(|other| other == word)
}

marked!(also_cli: a_cache_is_simulated_until_the_client_is_stopped);
fn a_cache_is_simulated_until_the_client_is_stopped() {
    let server = Server::start();
    let mut command = tested();
    command.args(["-p", &server.port().to_string(), "--lru-test", "1000"]);
    if is_redis_cli() {
        // It keeps its lines in its buffer.
        return;
    }
    let mut client = crate::cli::Running::start(command);
    client.awaits(" Gets/sec | Hits: ");
    let keys = server.client().line("DBSIZE").integer();
    assert!((1..=1000).contains(&keys), "{keys}");
}
