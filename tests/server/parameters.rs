//! Every parameter of redis-server 8.6.3: its name, its default, and what it is and is not set to.
//!
//! `parameters.tsv` was recorded from redis-server: a line is a name, the default, and what CONFIG SET
//! replies to a word that is no value, to the smallest and to the largest integer of 64 bits, or one reply
//! where the three are the same. A column `-` depends on how the server was started, or would change how it
//! is reached.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use keyfast::internals::config::{Origin, Parameter, parameters};

use support::client::{Client, Reply};
use support::folder::Folder;
use support::server::{Server, free_port, is_redis};

const RECORDED: &str = include_str!("parameters.tsv");
const PROBES: [&str; 3] = ["~", "-9223372036854775808", "9223372036854775807"];

/// Files that the server needs beside its clients. Redis: `CONFIG_MIN_RESERVED_FDS`.
const RESERVED_FILES: u64 = 32;

/// What `maxclients` is: the default, or the most for which this machine lets the server open files.
static CLIENTS_POSSIBLE: LazyLock<String> = LazyLock::new(|| {
    let (soft, hard) = rlimit::Resource::NOFILE.get().expect("the limit of open files");
    let possible = soft.max(hard).saturating_sub(RESERVED_FILES);
    possible.min(10_000).to_string()
});

/// Second names of parameters of Redis, which they have in Valkey.
const VALKEY_ALIASES: [&str; 2] = ["commandlog-execution-slower-than", "commandlog-slow-execution-max-len"];

/// Parameters that differ from those of Redis, as the table explains.
fn different() -> impl Iterator<Item = &'static Parameter> {
    parameters().filter(|parameter| !parameter.difference.is_empty())
}

/// The recorded lines, column by column.
fn recorded() -> impl Iterator<Item = Vec<&'static str>> {
    RECORDED.lines().map(|line| {
        let mut columns: Vec<_> = line.split('\t').collect();
        if columns[0] == "maxclients" {
            columns[1] = &CLIENTS_POSSIBLE;
        }
        columns
    })
}

/// The reply to CONFIG SET, without the part that is the same for every parameter.
fn set(client: &mut Client, name: &str, value: &str) -> String {
    match client.cmd(["CONFIG", "SET", name, value]).reply() {
        Reply::Simple(_) => "ok".to_owned(),
        Reply::Error(text) => {
            let prefix = format!("ERR CONFIG SET failed (possibly related to argument '{name}') - ");
            text.strip_prefix(&prefix).unwrap_or_else(|| panic!("{name}: {text}")).to_owned()
        }
        other => panic!("{name}: {other}"),
    }
}

fn get(client: &mut Client, name: &str) -> String {
    let items = client.cmd(["CONFIG", "GET", name]).items();
    assert_eq!(items.len(), 2, "{name}");
    items[1].to_string().trim_matches('"').to_owned()
}

marked!(also_redis: every_parameter_has_its_default_and_is_set_and_refused_as_in_redis);
fn every_parameter_has_its_default_and_is_set_and_refused_as_in_redis() {
    let mut client = Server::start().into_client();
    for columns in recorded() {
        let (name, default, answers) = (columns[0], columns[1], &columns[2..]);
        if different().any(|parameter| parameter.name == name) {
            continue;
        }
        if default != "-" {
            assert_eq!(get(&mut client, name), default, "{name}");
        }
        if answers[0] == "-" {
            continue;
        }
        for (place, value) in PROBES.iter().enumerate() {
            let expected = answers.get(place).unwrap_or(&answers[0]);
            assert_eq!(set(&mut client, name, value), *expected, "CONFIG SET {name} {value}");
        }
        client.cmd(["CONFIG", "SET", name, default]).reply();
    }
}

marked!(also_redis: a_parameter_that_is_different_is_explained);
fn a_parameter_that_is_different_is_explained() {
    let mut client = Server::start().into_client();
    for Parameter { name, difference, .. } in different() {
        let columns = recorded().find(|columns| columns[0] == *name).expect("a line");
        let is_default = get(&mut client, name) == columns[1];
        let is_same = PROBES.iter().enumerate().all(|(place, value)| {
            set(&mut client, name, value) == *columns.get(2 + place).unwrap_or(&columns[2])
        });
        assert_eq!(is_default && is_same, is_redis(), "{name}: {difference}");
    }
}

marked!(also_redis: all_names_are_those_of_redis_and_a_few_more);
fn all_names_are_those_of_redis_and_a_few_more() {
    let mut client = Server::start().into_client();
    let mut expected: BTreeSet<String> = recorded().map(|columns| columns[0].to_owned()).collect();
    // CONFIG GET returns these only by their full name.
    for hidden in [
        "key-load-delay",
        "loading-process-events-interval-bytes",
        "rdb-key-save-delay",
        "use-exit-on-panic",
        "watchdog-period",
    ] {
        assert!(expected.remove(hidden), "{hidden}");
        get(&mut client, hidden);
    }
    if !is_redis() {
        for Parameter { name, origin, .. } in parameters() {
            match origin {
                Origin::Redis | Origin::RedisSince(_) => {}
                _ => assert!(expected.insert((*name).to_owned()), "Redis has {name}"),
            }
        }
        expected.extend(VALKEY_ALIASES.map(str::to_owned));
    }
    let items = client.cmd(["CONFIG", "GET", "*"]).items();
    let names: BTreeSet<String> =
        items.iter().step_by(2).map(|name| name.to_string().trim_matches('"').to_owned()).collect();
    assert_eq!(names, expected);
}

/// The defaults that were recorded, but for `replicaof`, which takes no empty value.
fn defaults() -> Vec<(&'static str, &'static str)> {
    let all = recorded().map(|columns| (columns[0], columns[1])).filter(|(_, default)| *default != "-");
    all.filter(|(name, _)| !["replicaof", "slaveof"].contains(name)).collect()
}

marked!(also_redis: every_parameter_is_accepted_at_its_default_in_a_file);
fn every_parameter_is_accepted_at_its_default_in_a_file() {
    let folder = Folder::new("defaults");
    let lines: String = defaults().iter().map(|(name, default)| format!("{name} \"{default}\"\n")).collect();
    let port = free_port();
    let rest = format!("port {port}\nbind 127.0.0.1\nsave \"\"\n");
    let file = folder.write("all.conf", &(lines + &rest));
    let server = Server::run(folder.command().arg(file), port);
    server.client().line("PING").is_simple("PONG");
    if !is_redis() {
        assert!(!server.output().contains("no effect"), "{}", server.output());
    }
}

marked!(also_redis: every_parameter_is_accepted_at_its_default_on_the_command_line_and_by_config_set);
fn every_parameter_is_accepted_at_its_default_on_the_command_line_and_by_config_set() {
    let options: Vec<(String, &str)> =
        defaults().iter().map(|(name, default)| (format!("--{name}"), *default)).collect();
    let options: Vec<&str> = options.iter().flat_map(|(name, default)| [name.as_str(), default]).collect();
    let server = Server::start_with(&options);
    let mut client = server.client();
    for (name, default) in defaults() {
        let reply = set(&mut client, name, default);
        let is_refused = reply != "ok";
        assert!(!is_refused || reply.starts_with("can't set "), "{name} {default:?}: {reply}");
    }
}

marked!(also_redis: what_others_set_is_accepted);
fn what_others_set_is_accepted() {
    let server = Server::start_with(&["--activedefrag", "yes", "--key-memory-histograms", "yes"]);
    let mut client = server.client();
    for (name, value, printed) in [
        ("activedefrag", "no", "no"),
        ("activedefrag", "yes", "yes"),
        ("cluster-slot-stats-enabled", "net CPU", "cpu net"),
        ("cluster-slot-stats-enabled", "cpu net mem", "yes"),
        ("cluster-slot-stats-enabled", "yes cpu", "yes"),
        ("cluster-slot-stats-enabled", "no", "no"),
        ("locale-collate", "C", "C"),
        ("locale-collate", "POSIX", "POSIX"),
        ("tls-auth-clients-user", "OFF", "off"),
        ("vset-force-single-threaded-execution", "yes", "yes"),
        ("key-memory-histograms", "no", "no"),
    ] {
        assert_eq!(set(&mut client, name, value), "ok", "CONFIG SET {name} {value:?}");
        assert_eq!(get(&mut client, name), printed, "CONFIG SET {name} {value:?}");
    }
}

#[test]
fn what_is_set_without_an_effect_is_named_in_the_log() {
    let server = Server::start_with(&["--activedefrag", "yes"]);
    server.wait_for_output("no effect in Keyfast: activedefrag");
    let mut client = server.client();
    client.line("CONFIG SET activedefrag yes repl-timeout 7").is_ok();
    server.wait_for_output("no effect in Keyfast: repl-timeout");
    assert_eq!(server.output().matches("no effect in Keyfast: activedefrag").count(), 1);
    let refused = set(&mut client, "tls-auth-clients-user", "CN");
    assert_eq!(refused, "Keyfast does not choose a client's user by its certificate");
}

marked!(also_redis: a_new_stream_remembers_what_its_producers_have_sent_as_the_parameters_say);
fn a_new_stream_remembers_what_its_producers_have_sent_as_the_parameters_say() {
    let mut client = Server::start_with(&["--stream-idmp-maxsize", "7"]).into_client();
    let limits = |client: &mut Client, key: &str| {
        let items = client.cmd(["XINFO", "STREAM", key]).items();
        let texts: Vec<String> = items.iter().map(Reply::to_string).collect();
        let value = |name: &str| {
            let at = texts.iter().position(|text| text.trim_matches('"') == name).expect(name);
            texts[at + 1].clone()
        };
        [value("idmp-duration"), value("idmp-maxsize")]
    };
    client.line("XADD before * f v").ignored();
    client.line("CONFIG SET stream-idmp-duration 5 stream-idmp-maxsize 1").is_ok();
    client.line("XADD after IDMP p 1 * f v").ignored();
    client.line("XGROUP CREATE group g $ MKSTREAM").is_ok();
    client.line("XADD before * f v").ignored();
    assert_eq!(limits(&mut client, "before"), ["(integer) 100", "(integer) 7"]);
    assert_eq!(limits(&mut client, "after"), ["(integer) 5", "(integer) 1"]);
    assert_eq!(limits(&mut client, "group"), ["(integer) 5", "(integer) 1"]);
    // The second message takes the place of the first one, which is then added again.
    let second = client.line("XADD after IDMP p 2 * f v").text();
    assert_eq!(client.line("XADD after IDMP p 2 * f v").text(), second);
    client.line("XADD after IDMP p 1 * f v").ignored();
    client.line("XLEN after").is(3);
}

marked!(also_redis: values_are_printed_in_one_form);
fn values_are_printed_in_one_form() {
    let mut client = Server::start().into_client();
    for (name, value, printed) in [
        ("repl-backlog-size", "1", "16384"),
        ("repl-backlog-size", "1mb", "1048576"),
        ("hash-max-ziplist-value", "1k", "1000"),
        ("hz", "0", "1"),
        ("hz", "1000", "500"),
        ("maxmemory", "18446744073709551615", "18446744073709551615"),
        ("maxmemory", "", "0"),
        ("list-max-ziplist-size", "-5", "-5"),
        ("shutdown-on-sigterm", "FORCE now", "now force"),
        ("shutdown-on-sigterm", "Default", "default"),
        ("latency-tracking-info-percentiles", "50.0 99.990 1e1", "50 99.99 10"),
        ("latency-tracking-info-percentiles", "", ""),
        ("oom-score-adj-values", "+1 2 -0", "1 2 0"),
        ("notify-keyspace-events", "gE", "gE"),
        (
            "client-output-buffer-limit",
            "replica 1kb 0 0",
            "normal 0 0 0 slave 1024 0 0 pubsub 33554432 8388608 60",
        ),
        ("save", "+60 1", "60 1"),
        ("repl-diskless-load", "SWAPDB", "swapdb"),
        ("cluster-announce-hostname", "a-b.c", "a-b.c"),
        ("proc-title-template", "redis {port}", "redis {port}"),
    ] {
        client.cmd(["CONFIG", "SET", name, value]).is_ok();
        assert_eq!(get(&mut client, name), printed, "CONFIG SET {name} {value:?}");
    }
}

marked!(also_redis: lists_are_refused_in_the_words_of_redis);
fn lists_are_refused_in_the_words_of_redis() {
    let mut client = Server::start().into_client();
    for (name, value, expected) in [
        ("save", "60", "Invalid save parameters"),
        ("save", "60  1", "Invalid save parameters"),
        (
            "shutdown-on-sigint",
            "save nosave",
            "shutdown options SAVE and NOSAVE can't be used simultaneously",
        ),
        (
            "shutdown-on-sigint",
            "",
            "argument(s) must be one of the following: default, save, nosave, now, force",
        ),
        ("latency-tracking-info-percentiles", "50 x", "Invalid latency-tracking-info-percentiles parameters"),
        (
            "latency-tracking-info-percentiles",
            "50 100.1",
            "latency-tracking-info-percentiles parameters should sit between [0.0,100.0]",
        ),
        ("oom-score-adj-values", "1 2", "wrong number of arguments"),
        (
            "oom-score-adj-values",
            "1 2 2001",
            "Invalid oom-score-adj-values, elements must be between -2000 and 2000.",
        ),
        (
            "cluster-announce-hostname",
            "a_b",
            "Hostnames may only contain alphanumeric characters, hyphens or dots",
        ),
        ("proc-title-template", "{title}", "template format is invalid or contains unknown variables"),
        (
            "client-output-buffer-limit",
            "normal 1",
            "Wrong number of arguments in buffer limit configuration.",
        ),
    ] {
        assert_eq!(set(&mut client, name, value), expected, "CONFIG SET {name} {value:?}");
    }
}

marked!(also_redis: names_are_returned_as_they_were_asked_for);
fn names_are_returned_as_they_were_asked_for() {
    let mut client = Server::start().into_client();
    let names = |client: &mut Client, line: &str| {
        let mut names: Vec<_> = client.line(line).items().iter().step_by(2).map(Reply::to_string).collect();
        names.sort();
        names
    };
    assert_eq!(names(&mut client, "CONFIG GET TimeOut"), ["\"TimeOut\""]);
    assert_eq!(names(&mut client, "CONFIG GET TIMEOU? timeout"), ["\"timeout\""]);
    assert_eq!(
        names(&mut client, "CONFIG GET *ziplist-value"),
        ["\"hash-max-ziplist-value\"", "\"zset-max-ziplist-value\""]
    );
    assert!(names(&mut client, "CONFIG GET watchdog-perio?").is_empty());
    for (line, expected) in [
        ("CONFIG SET timeout 0 hz", "ERR syntax error"),
        (
            "CONFIG SET nosuch 1 databases 2",
            "ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'",
        ),
        (
            "CONFIG SET DataBases 2 nosuch 1",
            "ERR CONFIG SET failed (possibly related to argument 'DataBases') - can't set immutable config",
        ),
        (
            "CONFIG SET timeout 1 TIMEOUT 2",
            "ERR CONFIG SET failed (possibly related to argument 'TIMEOUT') - duplicate parameter",
        ),
        (
            "CONFIG SET Lua-Time-Limit x",
            "ERR CONFIG SET failed (possibly related to argument 'lua-time-limit') - argument couldn't be \
             parsed into an integer",
        ),
    ] {
        client.line(line).is_error(expected);
    }
    client.line("CONFIG SET lua-time-limit 1 busy-reply-threshold 2").is_ok();
    assert_eq!(get(&mut client, "busy-reply-threshold"), "2");
}

marked!(also_redis: all_parameters_are_set_or_none);
fn all_parameters_are_set_or_none() {
    let mut client = Server::start().into_client();
    client.line("CONFIG SET timeout 7 repl-timeout 7 hz x").reply();
    let limit = "ERR CONFIG SET failed (possibly related to argument 'maxclients') - The operating system is \
                 not able to handle the specified number of clients, try with ";
    // Redis tries for a minute to have room for the most that there may be.
    let clients = if is_redis() { "100000000" } else { "4294967295" };
    let refused =
        client.cmd(["CONFIG", "SET", "timeout", "8", "maxclients", clients, "repl-timeout", "8"]).reply();
    let Reply::Error(text) = refused else { panic!("{refused}") };
    let possible = text.strip_prefix(limit).unwrap_or_else(|| panic!("{text}"));
    assert!(possible.parse::<u32>().is_ok(), "{text}");
    for (name, value) in [("timeout", "0"), ("repl-timeout", "60"), ("maxclients", &**CLIENTS_POSSIBLE)] {
        assert_eq!(get(&mut client, name), value, "{name}");
    }
}

marked!(also_redis: latencies_are_reported_by_the_chosen_percentiles_and_only_while_they_are_tracked);
fn latencies_are_reported_by_the_chosen_percentiles_and_only_while_they_are_tracked() {
    let mut client = Server::start().into_client();
    let percentiles = |client: &mut Client| {
        let text = client.line("INFO latencystats").text();
        let line = text.lines().find(|line| line.starts_with("latency_percentiles_usec_get:"));
        line.map(|line| {
            let all = line.split_once(':').unwrap().1.split(',');
            all.map(|one| one.split('=').next().unwrap()).collect::<Vec<_>>().join(" ")
        })
    };
    let calls = |client: &mut Client| {
        let reply = client.line("LATENCY HISTOGRAM get").reply().to_string();
        let calls = reply
            .split("\"calls\", (integer) ")
            .nth(1)
            .map(|rest| rest.split(',').next().unwrap().to_owned());
        calls.unwrap_or_else(|| "0".to_owned())
    };
    client.line("GET k").is_nil();
    assert_eq!(percentiles(&mut client).as_deref(), Some("p50 p99 p99.9"));
    client.cmd(["CONFIG", "SET", "latency-tracking-info-percentiles", "0 50.5 100.0"]).is_ok();
    assert_eq!(percentiles(&mut client).as_deref(), Some("p0 p50.5 p100"));
    client.line("CONFIG SET latency-tracking no").is_ok();
    client.line("GET k").is_nil();
    assert_eq!(percentiles(&mut client), None);
    assert_eq!(calls(&mut client), "1");
    client.line("CONFIG SET latency-tracking yes").is_ok();
    client.line("GET k").is_nil();
    assert_eq!(percentiles(&mut client).as_deref(), Some("p0 p50.5 p100"));
    assert_eq!(calls(&mut client), "2");
    assert!(client.line("INFO commandstats").text().contains("cmdstat_get:calls=3,"));
    client.line("CONFIG RESETSTAT").is_ok();
    assert_eq!((percentiles(&mut client), calls(&mut client)), (None, "0".to_owned()));
}

marked!(also_redis: the_score_of_the_process_is_adjusted_and_comes_back);
/// Only a privileged process may lower its score.
fn the_score_of_the_process_is_adjusted_and_comes_back() {
    let server = Server::start();
    let path = format!("/proc/{}/oom_score_adj", server.process_id());
    let score = || std::fs::read_to_string(&path).expect("a score").trim().parse::<i32>().expect("a number");
    let (before, mut client) = (score(), server.client());
    let absolute = (before + 100).min(1000);
    client
        .cmd([
            "CONFIG",
            "SET",
            "oom-score-adj",
            "absolute",
            "oom-score-adj-values",
            &format!("{absolute} 0 0"),
        ])
        .is_ok();
    assert_eq!(score(), absolute);
    client.cmd(["CONFIG", "SET", "oom-score-adj", "relative", "oom-score-adj-values", "150 200 800"]).is_ok();
    assert_eq!(score(), (before + 150).min(1000));
    assert_eq!(get(&mut client, "oom-score-adj"), "yes");
}

marked!(also_redis: info_reports_the_frequency_of_sweeps);
fn info_reports_the_frequency_of_sweeps() {
    let mut client = Server::start().into_client();
    client.line("CONFIG SET hz 100").is_ok();
    assert_eq!(client.info("configured_hz"), "100");
}
