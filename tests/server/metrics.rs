//! Metrics and health, as Prometheus and orchestrators ask for them.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use support::client::Client;
use support::metrics::{answer, connect, get, metrics, send};
use support::server::{PATIENCE, Server, free_port, program};

/// A server that serves metrics, and where.
fn serving(options: &[&str]) -> (Server, SocketAddr) {
    let port = free_port();
    let server = Server::start_with(&[&["--metrics-port", &port.to_string()], options].concat());
    (server, (Ipv4Addr::LOCALHOST, port).into())
}

#[test]
fn there_are_none_unless_asked_for() {
    let server = Server::start();
    assert!(!server.output().contains("metrics"));
    let mut client = server.client();
    assert!(client.line("CONFIG GET metrics-port").reply().to_string().ends_with("\"0\"]"));
    assert!(client.line("CONFIG GET metrics-bind").reply().to_string().ends_with("\"127.0.0.1 -::1\"]"));
}

#[test]
fn they_are_served_on_this_machine_alone() {
    let (server, address) = serving(&[]);
    assert!(server.output().contains(&format!("Serving metrics on http://{address}/metrics")));
    let elsewhere = SocketAddr::from((Ipv4Addr::new(127, 0, 0, 2), address.port()));
    assert_eq!(TcpStream::connect(elsewhere).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    let (_server, address) = serving(&["--metrics-bind", "127.0.0.2"]);
    assert_eq!(get((Ipv4Addr::new(127, 0, 0, 2), address.port()).into(), "/healthz").status, 200);
    let port = address.port().to_string();
    let arguments =
        ["--port", "0", "--bind", "127.0.0.1", "--metrics-port", &port, "--metrics-bind", "127.0.0.2"];
    let second = Command::new(program()).args(arguments).output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    let complaint = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(complaint.starts_with("keyfast: metrics-port: could not listen on 127.0.0.2:"), "{complaint}");
}

#[test]
fn values_follow_what_commands_did() {
    let (server, address) = serving(&[]);
    let mut client = server.client();
    let before = metrics(address);
    client.line("SET key value").is_ok();
    client.line("SET soon value PX 100000").is_ok();
    client.line("GET key").is("value");
    client.line("GET key").is("value");
    client.line("GET nosuchkey").is_nil();
    client.line("GET").is_error("ERR wrong number of arguments for 'get' command");
    client.line("INCR key").is_error("ERR value is not an integer or out of range");
    client.line("SELECT 3").is_ok();
    client.line("SET key value").is_ok();
    client.line("OBJECT ENCODING key").is("embstr");
    let after = metrics(address);
    for (name, expected) in [
        ("redis_up", 1.0),
        ("redis_connected_clients", 1.0),
        ("redis_keyspace_hits_total", 2.0),
        ("redis_keyspace_misses_total", 1.0),
        ("redis_db_keys{db=db0}", 2.0),
        ("redis_db_keys_expiring{db=db0}", 1.0),
        ("redis_db_keys{db=db3}", 1.0),
        ("redis_commands_total{cmd=get}", 3.0),
        ("redis_commands_total{cmd=object|encoding}", 1.0),
        ("redis_commands_rejected_calls_total{cmd=get}", 1.0),
        ("redis_commands_failed_calls_total{cmd=incr}", 1.0),
        ("redis_commands_latencies_usec_count{cmd=get}", 3.0),
        ("redis_commands_latencies_usec_bucket{cmd=get,le=+Inf}", 3.0),
        ("redis_latency_percentiles_usec_count{cmd=get}", 3.0),
        ("redis_errors_total{err=ERR}", 2.0),
        ("redis_total_error_replies", 2.0),
        ("redis_rdb_last_bgsave_status", 1.0),
        ("redis_rdb_changes_since_last_save", 3.0),
        ("redis_memory_max_bytes", 0.0),
        ("redis_config_maxclients", 10_000.0),
        ("redis_max_clients", 10_000.0),
        ("redis_exporter_scrapes_total", 2.0),
        ("redis_exporter_last_scrape_error{err=}", 0.0),
    ] {
        assert_eq!(after.get(name), Some(&expected), "{name}");
    }
    assert_eq!(before["redis_db_keys{db=db0}"], 0.0, "the first database is told even when empty");
    assert!(!after.contains_key("redis_db_keys{db=db1}"));
    let grown = |name: &str| after[name] - before[name];
    assert_eq!(grown("redis_commands_processed_total"), 9.0, "one was refused");
    assert!(grown("redis_net_input_bytes_total") > 200.0 && grown("redis_net_output_bytes_total") > 100.0);
    assert_eq!(grown("redis_start_time_seconds"), 0.0);
    assert!(after["redis_memory_used_bytes"] > 0.0 && after["redis_memory_used_rss_bytes"] > 0.0);
    assert!(after["redis_commands_duration_seconds_total{cmd=get}"] > 0.0);
    let identity = after.keys().find(|name| name.starts_with("redis_instance_info{")).unwrap();
    assert!(identity.contains(&format!("process_id={},", server.process_id())), "{identity}");
    assert!(identity.contains(&format!("tcp_port={},", server.port())), "{identity}");
}

#[test]
fn they_are_the_numbers_of_info() {
    let (server, address) = serving(&["--maxmemory", "100mb", "--timeout", "0"]);
    let mut client = server.client();
    for number in 0..100 {
        client.line(&format!("SET key:{number} value PX 1")).is_ok();
        client.line(&format!("GET key:{}", number % 7)).ignored();
    }
    client.line("SUBSCRIBE channel").ignored();
    let mut client = server.client();
    // No command comes between these two.
    let info = client.line("INFO").text();
    let told = metrics(address);
    for (field, name) in [
        ("uptime_in_seconds", "redis_uptime_in_seconds"),
        ("connected_clients", "redis_connected_clients"),
        ("maxmemory", "redis_memory_max_bytes"),
        ("total_connections_received", "redis_connections_received_total"),
        ("keyspace_hits", "redis_keyspace_hits_total"),
        ("keyspace_misses", "redis_keyspace_misses_total"),
        ("evicted_keys", "redis_evicted_keys_total"),
        ("rejected_connections", "redis_rejected_connections_total"),
        ("pubsub_channels", "redis_pubsub_channels"),
        ("total_error_replies", "redis_total_error_replies"),
        ("rdb_last_save_time", "redis_rdb_last_save_timestamp_seconds"),
        ("locks_followed", "keyfast_locks_followed"),
    ] {
        let line = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        let expected: f64 = line.unwrap().parse().unwrap();
        let slack = if field == "uptime_in_seconds" { 1.0 } else { 0.0 };
        assert!((told[name] - expected).abs() <= slack, "{field} is {expected}, {name} is {}", told[name]);
    }
}

#[test]
fn histograms_grow_from_bucket_to_bucket() {
    let (server, address) = serving(&[]);
    let mut client = server.client();
    client.line("DEBUG SLEEP 0").ignored();
    for number in 0..50 {
        client.cmd(["EVAL", &format!("for i = 1, {} do end", 1 << (number % 20)), "0"]).ignored();
    }
    let told = metrics(address);
    let bucket = |le: &str| told[&format!("redis_commands_latencies_usec_bucket{{cmd=eval,le={le}}}")];
    let limits = (0..=20).map(|power| bucket(&(1 << power).to_string()));
    let counts: Vec<f64> = limits.chain([bucket("+Inf")]).collect();
    assert!(counts.is_sorted(), "{counts:?}");
    assert_eq!(counts.last(), Some(&50.0));
    assert!(counts[0] < counts[20], "all of 50 runs took less than a microsecond: {counts:?}");
    let sum = told["redis_commands_latencies_usec_sum{cmd=eval}"];
    let seconds = told["redis_commands_duration_seconds_total{cmd=eval}"];
    assert!((sum / 1e6 - seconds).abs() < 1e-6, "{sum} µs, {seconds} s");
}

#[test]
fn odd_words_of_errors_stay_within_their_label() {
    let (server, address) = serving(&[]);
    let mut client = server.client();
    for word in [&b"QUOTE\"}"[..], b"BACK\\\\SLASH\\\\", b"LINE\\nFEED", b"ODD\xff\xc3\x28", b"#", b"{}"] {
        client.cmd([&b"EVAL"[..], &[b"error({err = '", word, b" text'})"].concat(), b"0"]).ignored();
    }
    let told = metrics(address);
    let words: Vec<&str> =
        told.keys().filter_map(|name| name.strip_prefix("redis_errors_total{err=")).collect();
    for expected in ["QUOTE\"}}", "BACK\\SLASH\\}", "ODD\u{fffd}\u{fffd}(}", "{}}"] {
        assert!(words.contains(&expected), "{expected} is not in {words:?}");
    }
    // As in INFO, where such a mark could begin a heading, or a line.
    assert!(words.contains(&"_}") && words.contains(&"LINE_FEED}"), "{words:?}");
}

#[test]
fn the_slow_and_the_long_are_told() {
    let (server, address) = serving(&["--enable-debug-command", "yes"]);
    let mut client = server.client();
    let told = metrics(address);
    assert_eq!(told["redis_slowlog_length"], 0.0);
    assert!(!told.keys().any(|name| name.starts_with("redis_latency_spike")));
    client.line("CONFIG SET slowlog-log-slower-than 15000 latency-monitor-threshold 15").is_ok();
    client.line("DEBUG SLEEP 0.02").is_ok();
    client.line("DEBUG SLEEP 0.03").is_ok();
    let told = metrics(address);
    assert_eq!((told["redis_slowlog_length"], told["redis_slowlog_last_id"]), (2.0, 1.0));
    assert!(told["redis_last_slow_execution_duration_seconds"] >= 0.03);
    assert!(told["redis_latency_spike_duration_seconds{event_name=command}"] >= 0.02);
}

#[test]
fn locks_are_told() {
    let (server, address) = serving(&[]);
    let (mut holder, mut other) = (server.client(), server.client());
    holder.line("SET lock token NX PX 100000").is_ok();
    other.line("SET lock mine NX PX 100000").is_nil();
    let told = metrics(address);
    assert_eq!((told["keyfast_locks_held"], told["keyfast_locks_taken_total"]), (1.0, 1.0));
    assert_eq!(told["keyfast_locks_refused_total"], 1.0);
    assert_eq!(told["keyfast_locks_findings_total{rule=deleted-by-another}"], 0.0);
    other.line("DEL lock").is(1);
    let told = metrics(address);
    assert_eq!(told["keyfast_locks_held"], 0.0);
    assert_eq!(told["keyfast_locks_findings_total{rule=deleted-by-another}"], 1.0);
    assert_eq!(told["keyfast_locks_findings_total{rule=no-expiry}"], 0.0);
    assert_eq!(told["keyfast_lock_lens"], 1.0);
    for expected in [0.0, 1.0] {
        let take = "redis.call('hincrby', KEYS[1], ARGV[1], 1) redis.call('pexpire', KEYS[1], 100000)";
        holder.cmd(["EVAL", take, "1", "hash", "client:thread"]).is_nil();
        let told = metrics(address);
        assert_eq!(told["keyfast_locks_reentered_total"], expected);
        assert_eq!((told["keyfast_locks_held"], told["keyfast_locks_woken_total"]), (1.0, 0.0));
    }
}

/// Waits until `/healthz` answers this.
#[track_caller]
fn wait_for_health(address: SocketAddr, status: u16, body: &str) {
    let started = Instant::now();
    loop {
        let answer = get(address, "/healthz");
        if (answer.status, answer.body.as_str()) == (status, body) {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "{answer:?}, not {status} {body:?}");
    }
}

#[test]
fn while_a_script_runs_for_too_long_what_needs_no_keys_is_told() {
    let (server, address) = serving(&["--busy-reply-threshold", "20"]);
    wait_for_health(address, 200, "ok\n");
    let (mut runs, mut kills) = (server.client(), server.client());
    runs.send(&support::client::request(["EVAL", "redis.call('GET', 'key') while true do end", "0"]));
    wait_for_health(address, 503, "a script runs for too long\n");
    let told = metrics(address);
    assert_eq!((told["redis_up"], told["redis_connected_clients"]), (1.0, 2.0));
    assert_eq!(told["redis_exporter_last_scrape_error{err=a script has the keys}"], 1.0);
    for missing in ["redis_db_keys{db=db0}", "redis_keyspace_hits_total", "redis_memory_used_dataset_bytes"] {
        assert!(!told.contains_key(missing), "{missing}");
    }
    kills.line("SCRIPT KILL").is_ok();
    runs.reply().ignored();
    wait_for_health(address, 200, "ok\n");
    assert_eq!(metrics(address)["redis_db_keys{db=db0}"], 0.0);
}

#[test]
fn while_a_script_has_the_only_thread_another_one_serves_the_clients() {
    let (server, address) = serving(&["--io-threads", "1", "--busy-reply-threshold", "0"]);
    let mut runs = server.client();
    runs.send(&support::client::request(["EVAL", "while true do end", "0"]));
    assert!(runs.is_silent_for(Duration::from_millis(20)));
    let mut other = server.client();
    other.line("PING").is_simple("PONG");
    wait_for_health(address, 200, "ok\n");
    assert_eq!(metrics(address)["redis_up"], 1.0);
    while other.line("SCRIPT KILL").text() != "OK" {}
    assert!(runs.reply().text().contains("killed"));
}

#[test]
fn scraping_stops_no_client() {
    let (server, address) = serving(&[]);
    let scraping = thread::spawn(move || {
        for _ in 0..50 {
            metrics(address);
        }
    });
    let mut client = server.client();
    let mut longest = Duration::ZERO;
    let mut written = 0;
    while !scraping.is_finished() {
        let started = Instant::now();
        client.line("INCR counter").ignored();
        longest = longest.max(started.elapsed());
        written += 1;
    }
    scraping.join().unwrap();
    assert!(longest < Duration::from_secs(1), "an INCR took {longest:?}");
    assert_eq!(metrics(address)["redis_commands_total{cmd=incr}"], f64::from(written));
}

#[test]
fn what_cannot_be_answered_is_refused_in_the_words_of_http() {
    let (_server, address) = serving(&[]);
    for (request, status) in [
        ("GET /metrics?name[]=redis_up HTTP/1.1\r\nHost: test\r\n\r\n", 200),
        ("GET /metrics HTTP/1.0\r\n\r\n", 200),
        ("GET / HTTP/1.1\r\nHost: test\r\n\r\n", 404),
        ("GET /metrics/ HTTP/1.1\r\nHost: test\r\n\r\n", 404),
        ("POST /metrics HTTP/1.1\r\nHost: test\r\nContent-Length: 4\r\n\r\nbody", 405),
        ("DELETE /healthz HTTP/1.1\r\nHost: test\r\n\r\n", 405),
        ("GET /metrics HTTP/1.1\r\nHost: test\r\nContent-Length: 4\r\n\r\nbody", 400),
        ("GET /metrics HTTP/1.1\r\n\r\n", 400),
        ("GET /metrics HTTP/2.0\r\nHost: test\r\n\r\n", 400),
        ("*1\r\n$4\r\nPING\r\n", 400),
        ("\u{16}\u{3}\u{1}\u{2}\0\u{1}", 400),
    ] {
        let answer = send(address, request.as_bytes());
        assert_eq!(answer.status, status, "{request:?}");
        assert_eq!(answer.fields.get("allow").map(String::as_str), (status == 405).then_some("GET, HEAD"));
    }
}

#[test]
fn a_connection_serves_one_request_after_the_other() {
    let (_server, address) = serving(&[]);
    let mut stream = connect(address);
    stream.write_all(b"HEAD /metrics HTTP/1.1\r\nHost: test\r\n\r\nGET /healthz HTTP/1.1\r\nHo").unwrap();
    let head = answer(&mut stream, false);
    assert_eq!(head.status, 200);
    assert!(head.fields["content-length"].parse::<usize>().unwrap() > 1000);
    stream.write_all(b"st: test\r\n\r\n").unwrap();
    assert_eq!(answer(&mut stream, true).body, "ok\n");
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").unwrap();
    assert_eq!(answer(&mut stream, true).fields["connection"], "close");
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
}

#[test]
fn a_head_without_end_is_cut_off() {
    let (server, address) = serving(&[]);
    let before = server.resident_bytes();
    let head = format!("GET /metrics HTTP/1.1\r\nHost: test\r\nX: {}", "x".repeat(1 << 20));
    assert_eq!(send(address, head.as_bytes()).status, 431);
    let fields = format!("GET /metrics HTTP/1.1\r\n{}", "a: b\r\n".repeat(100));
    assert_eq!(send(address, fields.as_bytes()).status, 431);
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < 8 << 20, "{grown} bytes");
    assert_eq!(get(address, "/healthz").status, 200);
}

#[test]
fn a_slow_head_is_given_up() {
    let (_server, address) = serving(&[]);
    let (mut slow, mut silent) = (connect(address), connect(address));
    let started = Instant::now();
    slow.write_all(b"GET /met").unwrap();
    assert_eq!(answer(&mut slow, true).status, 408);
    assert!(started.elapsed() >= Duration::from_secs(5));
    assert_eq!(silent.read(&mut [0]).unwrap(), 0, "who asks nothing is not answered");
}

/// How long the server waits for a request.
const HEAD_TIME: Duration = Duration::from_secs(5);

#[test]
fn silent_connections_do_not_keep_others_out() {
    let (_server, address) = serving(&[]);
    let started = Instant::now();
    let mut silent: Vec<TcpStream> = (0..16).map(|_| connect(address)).collect();
    assert_eq!(get(address, "/healthz").body, "ok\n");
    // The eldest has left. The others are there still, so nothing has waited for their time to run out.
    assert_eq!(silent.remove(0).read(&mut [0]).unwrap(), 0);
    for stream in &mut silent {
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
        match started.elapsed() < HEAD_TIME {
            true => assert_eq!(answer(stream, true).body, "ok\n"),
            // On a machine as busy as that nothing is shown.
            false => return,
        }
    }
}

#[test]
fn connections_that_read_nothing_do_not_keep_others_out() {
    let (_server, address) = serving(&[]);
    let unread: Vec<TcpStream> = (0..16)
        .map(|_| {
            let mut stream = connect(address);
            // More than fits between the two. It may be cut off while it still writes.
            let _ = stream.set_write_timeout(Some(Duration::from_millis(100)));
            let _ = stream.write_all(&b"GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n".repeat(500));
            stream
        })
        .collect();
    // A busy machine takes its time to fill what fits between the two.
    let mut stream = connect(address);
    stream.set_read_timeout(Some(20 * PATIENCE)).unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").unwrap();
    assert_eq!(answer(&mut stream, true).body, "ok\n");
    drop(unread);
}

#[test]
fn those_beyond_sixteen_take_the_place_of_one_that_has_been_answered() {
    let (_server, address) = serving(&[]);
    let ask = |stream: &mut TcpStream| {
        stream.write_all(b"GET /nosuchpage HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
        assert_eq!(answer(stream, true).status, 404);
    };
    let mut held: Vec<TcpStream> = (0..16)
        .map(|_| {
            let mut stream = connect(address);
            ask(&mut stream);
            stream
        })
        .collect();
    // It has used its place last, so another one leaves.
    ask(&mut held[0]);
    ask(&mut connect(address));
    assert_eq!(held[1].read(&mut [0]).unwrap(), 0);
    ask(&mut held[0]);
}

#[test]
fn a_client_of_redis_is_not_let_in_by_this_door() {
    let (_server, address) = serving(&[]);
    let mut client = Client::connect(address);
    client.send(b"GET key\r\n");
    assert_eq!(answer(&mut client.stream().try_clone().unwrap(), true).status, 400);
}
