//! The client's modes that sample keys and measure time.
//!
//! With `KEYFAST_TEST_CLI=/path/to/redis-cli` the same is asked of the real redis-cli.

use std::process::Command;

use crate::cli::{Running, cli, run, tested};
use crate::server::Server;

/// A client that goes on, with every line written at once: redis-cli keeps what does not go to a terminal.
fn unbuffered(server: &Server, arguments: &[&str]) -> Running {
    let client = tested();
    let mut command = Command::new("stdbuf");
    command.arg("-o0").arg(client.get_program()).args(client.get_args());
    command.args(["-p", &server.port().to_string()]).args(arguments);
    Running::start(command)
}

marked!(also_cli: the_keys_that_are_used_most_are_found);
fn the_keys_that_are_used_most_are_found() {
    let server = Server::start_with(&["--maxmemory-policy", "allkeys-lfu"]);
    let mut client = server.client();
    client.cmd(["MSET", "cold", "1", "warm", "2", "hot\n", "3"]).is_ok();
    // The chance that a use does not count grows with the counter: so many that the order is not in doubt.
    for _ in 0..400 {
        client.cmd(["GET", "hot\n"]).is("3");
    }
    for _ in 0..20 {
        client.line("GET warm").is("2");
    }
    let counter =
        |client: &mut crate::client::Client, key: &str| client.cmd(["OBJECT", "FREQ", key]).integer();
    let (hot, warm) = (counter(&mut client, "hot\n"), counter(&mut client, "warm"));
    assert!(hot > warm && warm > 5, "{hot} {warm}");
    let ran = cli(&server, &["--hotkeys"]);
    assert_eq!((ran.code, ran.complaint.as_str()), (Some(0), ""));
    assert!(
        ran.output.starts_with(
            "\n# Scanning the entire keyspace to find hot keys as well as\n\
             # average sizes per key type.  You can use -i 0.1 to sleep 0.1 sec\n\
             # per 100 SCAN commands (not usually needed).\n\n"
        ),
        "{ran:?}"
    );
    let found = format!("[00.00%] Hot key '\"hot\\n\"' found so far with counter {hot}\n");
    assert!(ran.output.contains(&found), "no {found:?} in {ran:?}");
    let summary = format!(
        "\n-------- summary -------\n\nSampled 3 keys in the keyspace!\n\
         hot key found with counter: {hot}\tkeyname: \"hot\\n\"\n\
         hot key found with counter: {warm}\tkeyname: \"warm\"\n\
         hot key found with counter: 5\tkeyname: \"cold\"\n"
    );
    assert!(ran.output.ends_with(&summary), "no {summary:?} in {ran:?}");
    client.line("CONFIG SET maxmemory-policy noeviction").is_ok();
    let ran = cli(&server, &["--hotkeys"]);
    assert!(ran.complaint.starts_with("Error: ERR An LFU maxmemory policy is not selected"), "{ran:?}");
    assert_eq!(ran.code, Some(1));
}

marked!(also_cli: latency_is_shown_as_it_changes);
fn latency_is_shown_as_it_changes() {
    let server = Server::start();
    for (output, sample) in [("--raw", " 1\n"), ("--csv", ",1\n"), ("--json", "\"count\": 1}\n")] {
        let mut client = unbuffered(&server, &["--latency-history", "-i", "0.05", output]);
        for _ in 0..3 {
            client.awaits(sample);
            client.awaits(" seconds range\n");
        }
    }
    let mut client = unbuffered(&server, &["--latency-history", "-i", "0.05", "--no-raw"]);
    client.awaits("\x1b[0G\x1b[2Kmin: ");
    client.awaits(" samples) -- 0.");
    client.awaits(" seconds range\n");
}

marked!(also_cli: latency_is_shown_as_a_spectrum);
fn latency_is_shown_as_a_spectrum() {
    let server = Server::start();
    let mut client = unbuffered(&server, &["--latency-dist", "-i", "0.02"]);
    let rule = "-".repeat(45);
    let line = "\x1b[38;5;0m\x1b[48;5;0m.\x1b[48;5;";
    for _ in 0..2 {
        client.awaits(&format!(
            "{rule}\n\
             . - * #          .01 .125 .25 .5 milliseconds\n\
             1,2,3,...,9      from 1 to 9     milliseconds\n\
             A,B,C,D,E        10,20,30,40,50  milliseconds\n\
             F,G,H,I,J        .1,.2,.3,.4,.5       seconds\n\
             K,L,M,N,O,P,Q,?  1,2,4,8,16,30,60,>60 seconds\n\
             From 0 to 100%: \x1b[48;5;0m \x1b[48;5;233m \x1b[48;5;234m \x1b[48;5;235m \x1b[48;5;237m \
             \x1b[48;5;239m \x1b[48;5;241m \x1b[48;5;243m \x1b[48;5;245m \x1b[48;5;247m \x1b[48;5;144m \
             \x1b[48;5;143m \x1b[48;5;142m \x1b[48;5;184m \x1b[48;5;226m \x1b[48;5;214m \x1b[48;5;208m \
             \x1b[48;5;202m \x1b[48;5;196m \x1b[0m\n{rule}\n"
        ));
        for _ in 0..20 {
            client.awaits(line);
            client.awaits("\x1b[48;5;0mQ\x1b[48;5;0m?\x1b[0m\n");
        }
    }
}

marked!(also_cli: a_machine_is_measured_without_a_server);
fn a_machine_is_measured_without_a_server() {
    for seconds in ["0", "1"] {
        let ran = run(tested(), &["-p", "1", "--intrinsic-latency", seconds], b"");
        assert_eq!((ran.code, ran.complaint.as_str()), (Some(0), ""));
        assert!(ran.output.starts_with("Max latency so far: "), "{ran:?}");
        let last: Vec<_> = ran.output.lines().rev().take(3).collect();
        assert!(
            last[0].starts_with("Worst run took ") && last[0].ends_with("x longer than the average latency.")
        );
        assert!(
            last[1].contains(" total runs (avg latency: ") && last[1].ends_with(" nanoseconds per run).")
        );
        assert_eq!(last[2], "");
    }
}
