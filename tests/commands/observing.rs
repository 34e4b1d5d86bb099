//! What people watch and steer a server with.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use support::client::{Client, Reply, request};
use support::folder::Folder;
use support::server::{Server, wait_until};

#[test]
fn a_monitor_sees_what_others_do_but_no_secrets() {
    let server = Server::start();
    let (mut monitor, mut other) = (server.client(), server.client());
    monitor.line("MONITOR").is_ok();
    other.cmd(["SET", "key", "a \"b\""]).is_ok();
    other.line("AUTH user secret").ignored();
    other.line("HELLO 2 AUTH default secret").ignored();
    other.line("CONFIG SET requirepass secret").is_ok();
    other.line("NOSUCH x").ignored();
    other.line("PING").is_simple("PONG");
    let seen = |monitor: &mut Client| match monitor.reply().reply() {
        Reply::Simple(line) => line,
        other => panic!("not a line: {other:?}"),
    };
    let line = seen(&mut monitor);
    assert!(line.ends_with(r#"] "SET" "key" "a \"b\"""#), "{line}");
    assert!(line.contains(&format!("[0 {}]", other.local_address())), "{line}");
    let line = seen(&mut monitor);
    assert!(line.ends_with(r#""AUTH" "(redacted)" "(redacted)""#), "{line}");
    let line = seen(&mut monitor);
    assert!(line.ends_with(r#""HELLO" "2" "AUTH" "(redacted)" "(redacted)""#), "{line}");
    let line = seen(&mut monitor);
    assert!(line.ends_with(r#""PING""#), "{line}");
    assert!(other.line("CLIENT LIST").text().contains("flags=O"));
    monitor.line("RESET").ignored();
    other.line("PING").is_simple("PONG");
    assert!(monitor.is_silent_for(Duration::from_millis(200)));
}

#[test]
fn slow_requests_are_kept_with_who_sent_them() {
    let mut client = Server::start().into_client();
    client.line("CLIENT SETNAME slowcoach").is_ok();
    client.line("CONFIG SET slowlog-log-slower-than 0 slowlog-max-len 3").is_ok();
    client.line("SET key value").is_ok();
    client.line("GET key").is("value");
    client.line("CONFIG SET requirepass secret").is_ok();
    client.line("CONFIG SET slowlog-log-slower-than -1").is_ok();
    client.line("PING").is_simple("PONG");
    client.line("SLOWLOG LEN").is(3);
    let entries = client.line("SLOWLOG GET").items();
    let Reply::Array(newest) = &entries[0] else { panic!("{entries:?}") };
    let words = |words: &[&str]| Reply::Array(words.iter().map(|word| Reply::from(*word)).collect());
    assert_eq!(newest[3], words(&["CONFIG", "SET", "requirepass", "(redacted)"]));
    assert_eq!(newest[4], Reply::from(client.local_address().to_string().as_str()));
    assert_eq!(newest[5], Reply::from("slowcoach"));
    let Reply::Array(second) = &entries[1] else { panic!("{entries:?}") };
    assert_eq!(second[3], words(&["GET", "key"]));
    client.line("SLOWLOG RESET").is_ok();
    client.line("SLOWLOG GET -1").is(Reply::Array(Vec::new()));
}

/// The number and the measure of each entry of a log, the newest first, and the name of its command.
fn logged(client: &mut Client, log: &str) -> Vec<(i64, i64, String)> {
    let entry = |entry: &Reply| {
        let Reply::Array(parts) = entry else { panic!("{entry:?}") };
        let (Reply::Integer(id), Reply::Integer(measure)) = (&parts[0], &parts[2]) else {
            panic!("{parts:?}")
        };
        let Reply::Array(words) = &parts[3] else { panic!("{parts:?}") };
        (*id, *measure, words[0].to_string().trim_matches('"').to_owned())
    };
    client.line(&format!("COMMANDLOG GET -1 {log}")).items().iter().map(entry).collect()
}

#[test]
fn long_requests_and_long_replies_are_kept() {
    let server = Server::start_with(&["--commandlog-request-larger-than", "200"]);
    let (mut client, mut other) = (server.client(), server.client());
    let (short, long) = ("x".repeat(150), "x".repeat(200));
    client.cmd(["SET", "short", &short]).is_ok();
    client.cmd(["SET", "long", &long]).is_ok();
    // In a pipeline, too.
    client.send(&[request(["SET", "long", &long]), request(["GET", "long"]), request(["PING"])].concat());
    client.reply().is_ok();
    client.reply().is(long.as_str());
    client.reply().is_simple("PONG");
    assert_eq!(logged(&mut other, "large-request"), [(1, 231, "SET".to_owned()), (0, 231, "SET".to_owned())]);
    other.line("COMMANDLOG LEN LARGE-REPLY").is(0);
    // The command's name that EXEC runs, and what a script calls.
    other.line("CONFIG SET commandlog-request-larger-than -1 commandlog-reply-larger-than 200").is_ok();
    client.line("GET short").is(short.as_str());
    client.line("GET long").is(long.as_str());
    client.line("MULTI").is_ok();
    client.line("GET long").is_simple("QUEUED");
    client.line("EXEC").ignored();
    let seen = logged(&mut other, "LARGE-REPLY");
    assert_eq!(seen, [(1, 208, "GET".to_owned()), (0, 208, "GET".to_owned())]);
    client.cmd(["EVAL", "redis.call('SET', KEYS[1], KEYS[1]..ARGV[1]); return 1", "1", "a", &long]).is(1);
    assert_eq!(logged(&mut other, "LARGE-REPLY").len(), 2);
    other.line("CONFIG SET commandlog-large-reply-max-len 1").is_ok();
    client.line("GET long").is(long.as_str());
    assert_eq!(logged(&mut other, "LARGE-REPLY"), [(2, 208, "GET".to_owned())]);
    other.line("COMMANDLOG LEN LARGE-REQUEST").is(2);
    other.line("COMMANDLOG RESET LARGE-REQUEST").is_ok();
    other.line("COMMANDLOG LEN LARGE-REQUEST").is(0);
    other.line("COMMANDLOG LEN LARGE-REPLY").is(1);
}

/// As Valkey 9.1.2 replies.
#[test]
fn what_a_script_calls_has_no_bytes_and_is_kept_only_where_that_is_enough() {
    let script = ["EVAL", "return redis.call('SET', KEYS[1], ARGV[1])", "1", "key", "value"];
    for (limit, names) in [("0", vec!["EVAL", "SET", "COMMANDLOG"]), ("1", vec!["EVAL", "COMMANDLOG"])] {
        let server = Server::start_with(&["--commandlog-request-larger-than", limit]);
        let mut client = server.client();
        client.line("COMMANDLOG RESET large-request").is_ok();
        client.cmd(script).is_ok();
        let seen = logged(&mut client, "large-request");
        assert_eq!(seen.iter().map(|(.., name)| name.as_str()).collect::<Vec<_>>(), names);
        assert!(seen.iter().all(|(_, bytes, name)| (*bytes == 0) == (name == "SET")), "{seen:?}");
    }
    // Exactly as long as the limit, and one byte shorter.
    for (limit, count) in [("31", 1), ("32", 0)] {
        let server = Server::start_with(&["--commandlog-request-larger-than", limit]);
        let mut client = server.client();
        client.line("SET key val").is_ok();
        assert_eq!(logged(&mut client, "large-request").len(), count);
    }
}

#[test]
fn replies_beyond_the_limit_are_kept_by_default() {
    let mut client = Server::start().into_client();
    let value = "x".repeat(1 << 20);
    client.cmd(["SET", "key", &value]).is_ok();
    client.line("GET key").ignored();
    client.line("GETRANGE key 0 1048000").ignored();
    assert_eq!(logged(&mut client, "large-request"), [(0, (1 << 20) + 34, "SET".to_owned())]);
    assert_eq!(logged(&mut client, "large-reply"), [(0, (1 << 20) + 12, "GET".to_owned())]);
}

#[test]
fn slowlog_and_the_log_of_slow_commands_are_one() {
    let mut client = Server::start().into_client();
    client.line("CONFIG SET commandlog-execution-slower-than 0").is_ok();
    let told = client.line("CONFIG GET slowlog-log-slower-than").items();
    assert_eq!(told, [Reply::from("slowlog-log-slower-than"), Reply::from("0")]);
    client.line("SET key value").is_ok();
    client.line("CONFIG SET slowlog-log-slower-than -1").is_ok();
    let slow: Vec<String> = logged(&mut client, "slow").into_iter().map(|entry| entry.2).collect();
    assert_eq!(slow, ["SET", "CONFIG", "CONFIG"]);
    client.line("SLOWLOG LEN").is(3);
    client.line("COMMANDLOG RESET slow").is_ok();
    client.line("SLOWLOG LEN").is(0);
    client.line("CONFIG SET commandlog-slow-execution-max-len 0 slowlog-log-slower-than 0").is_ok();
    client.line("PING").is_simple("PONG");
    client.line("SLOWLOG LEN").is(0);
}

#[test]
fn the_use_of_each_command_is_counted() {
    let mut client = Server::start().into_client();
    for _ in 0..3 {
        client.line("SET key value").is_ok();
    }
    client.line("SET key").is_error("ERR wrong number of arguments for 'set' command");
    client.line("INCR key").is_error("ERR value is not an integer or out of range");
    client.line("OBJECT ENCODING key").is("embstr");
    let statistics = client.line("INFO commandstats").text();
    let set = statistics.lines().find(|line| line.starts_with("cmdstat_set:")).unwrap();
    assert!(set.starts_with("cmdstat_set:calls=3,usec=") && set.ends_with("rejected_calls=1,failed_calls=0"));
    let incr = statistics.lines().find(|line| line.starts_with("cmdstat_incr:")).unwrap();
    assert!(incr.ends_with("rejected_calls=0,failed_calls=1"));
    assert!(statistics.contains("cmdstat_object|encoding:calls=1"));
    assert_eq!(client.line("INFO errorstats").text(), "# Errorstats\r\nerrorstat_ERR:count=2\r\n");
    assert!(client.line("INFO latencystats").text().contains("latency_percentiles_usec_set:p50="));
    let histogram = client.line("LATENCY HISTOGRAM set nosuch").items();
    assert_eq!(histogram.len(), 2, "a name and its histogram");
    client.line("CONFIG RESETSTAT").is_ok();
    assert!(!client.line("INFO commandstats").text().contains("cmdstat_set:"));
}

#[test]
fn pipelined_commands_are_counted_each() {
    let mut client = Server::start().into_client();
    let mut pipeline = Vec::new();
    for number in 0..500 {
        pipeline.extend(format!("SET key:{number} value\r\nGET key:{number}\r\n").into_bytes());
    }
    client.send(&pipeline);
    for _ in 0..500 {
        client.reply().is_ok();
        client.reply().is("value");
    }
    let statistics = client.line("INFO commandstats").text();
    for command in ["set", "get"] {
        assert!(statistics.contains(&format!("cmdstat_{command}:calls=500,")), "{statistics}");
    }
}

#[test]
fn events_that_take_long_are_kept() {
    let mut client = Server::start_with(&["--enable-debug-command", "local"]).into_client();
    client.line("CONFIG SET latency-monitor-threshold 5").is_ok();
    client.line("DEBUG SLEEP 0.02").is_ok();
    let latest = client.line("LATENCY LATEST").items();
    let Reply::Array(event) = &latest[0] else { panic!("{latest:?}") };
    assert_eq!((latest.len(), &event[0]), (1, &Reply::from("command")));
    assert_eq!(client.line("LATENCY HISTORY command").items().len(), 1);
    assert!(client.line("LATENCY DOCTOR").text().contains("command: 1 times"));
    let graph = client.line("LATENCY GRAPH command").text();
    assert!(graph.starts_with("command - high ") && graph.ends_with("\n_\n \n0\ns\n"), "{graph:?}");
    client.line("LATENCY GRAPH fork").is_error("ERR No samples available for event 'fork'");
    client.line("LATENCY RESET command").is(1);
}

#[test]
fn debug_is_for_those_who_are_let_in() {
    let mut client = Server::start().into_client();
    let refusal = client.line("DEBUG SLEEP 0").reply().to_string();
    assert!(refusal.starts_with("(error) ERR DEBUG command not allowed."), "{refusal}");
    let mut client = Server::start_with(&["--enable-debug-command", "yes"]).into_client();
    client.line("SET key 12").is_ok();
    let object = client.line("DEBUG OBJECT key").reply().to_string();
    assert!(object.contains("encoding:int serializedlength:2"), "{object}");
    client.line("DEBUG STRINGMATCH-LEN 100000 a*a*a*a*a*a*a*b").is(0);
    client.line("DEBUG STRINGMATCH-LEN 5 aaaaa").is(1);
    client.line("DEBUG ERROR \"MINE alone\"").is_error("MINE alone");
    client.line("DEBUG PROTOCOL map").is(Reply::Array([0, 0, 1, 1, 2, 0].map(Reply::Integer).to_vec()));
    client.line("DEBUG PROTOCOL attrib").is("Some real reply following the attribute");
    client.line("DEBUG REPLY-COPY-AVOIDANCE 0").is_ok();
    client.line("DEBUG SET-ACTIVE-EXPIRE 0").is_ok();
    client.line("PEXPIRE key 1").is(1);
    while client.line("DBSIZE").integer() == 1 && client.line("EXISTS key").integer() == 1 {}
    client.line("DBSIZE").is(0);
}

#[test]
fn a_client_that_waits_can_be_unblocked() {
    let server = Server::start();
    let (mut waiting, mut other) = (server.client(), server.client());
    let id = waiting.line("CLIENT ID").integer();
    waiting.send(b"PING\r\nWAIT 1 0\r\nECHO after\r\n");
    waiting.reply().is_simple("PONG");
    wait_until("the client waits", || other.info("blocked_clients") == "1");
    assert!(other.line("CLIENT LIST").text().contains("flags=b"));
    other.line(&format!("CLIENT UNBLOCK {id}")).is(1);
    waiting.reply().is(0);
    waiting.reply().is("after");
    waiting.send(b"WAIT 1 0\r\n");
    wait_until("the client waits", || other.info("blocked_clients") == "1");
    other.line(&format!("CLIENT UNBLOCK {id} ERROR")).is(1);
    waiting.reply().is_error("UNBLOCKED client unblocked via CLIENT UNBLOCK");
    other.line(&format!("CLIENT UNBLOCK {id}")).is(0);
    waiting.line("WAIT 1 10").is(0);
    waiting.send(b"WAIT 1 0\r\n");
    wait_until("the client waits", || other.info("blocked_clients") == "1");
    drop(waiting);
    wait_until("no client waits", || other.info("blocked_clients") == "0");
}

#[test]
fn a_pause_holds_back_writes_and_lets_reads_through() {
    let server = Server::start();
    let (mut paused, mut other) = (server.client(), server.client());
    other.line("CLIENT PAUSE 60000 WRITE").is_ok();
    paused.send(b"GET key\r\nSET key value\r\nGET key\r\n");
    paused.reply().is_nil();
    assert!(paused.is_silent_for(Duration::from_millis(100)));
    other.line("GET key").is_nil();
    other.line("CLIENT UNPAUSE").is_ok();
    paused.reply().is_ok();
    paused.reply().is("value");
    other.line("CLIENT PAUSE 100").is_ok();
    let started = Instant::now();
    other.line("PING").is_simple("PONG");
    assert!(started.elapsed() >= Duration::from_millis(90), "everything waits for the end of the pause");
}

#[test]
fn shutdown_ends_the_server_after_all_was_answered() {
    let mut server = Server::start();
    let mut client = server.client();
    client.line("SHUTDOWN NOSAVE SAVE").is_error("ERR syntax error");
    client.send(b"SET key value\r\nSHUTDOWN NOSAVE\r\n");
    client.reply().is_ok();
    assert!(client.is_closed());
    assert!(server.wait_for_end().success());
}

#[test]
fn memory_is_told_near_to_what_the_system_sees() {
    let server = Server::start();
    let mut client = server.client();
    let before = server.resident_bytes();
    let told_before: usize = client.info("used_memory").parse().unwrap();
    for batch in 0..300 {
        let numbers = 1000 * batch..1000 * (batch + 1);
        let lines = numbers.map(|number| format!("SET key:{number:012} {number:0200}\r\n"));
        client.send(lines.collect::<String>().as_bytes());
        (0..1000).for_each(|_| client.reply().is_ok());
    }
    // The server gives back what its buffers took a little later.
    wait_until("both have grown alike", || {
        let grown = server.resident_bytes() - before;
        let told = client.info("used_memory").parse::<usize>().unwrap() - told_before;
        let ratio = told as f64 / grown as f64;
        (0.9..=1.1).contains(&ratio)
    });
    let usage = client.line("MEMORY USAGE key:000000000001").integer();
    assert!((224..260).contains(&usage), "{usage}");
}

#[test]
fn keys_are_evicted_when_memory_is_short_and_writes_refused_when_none_may_go() {
    let server = Server::start();
    let mut client = server.client();
    let limit = client.info("used_memory").parse::<usize>().unwrap() + (4 << 20);
    client.line(&format!("CONFIG SET maxmemory {limit} maxmemory-policy allkeys-lru")).is_ok();
    let value = "v".repeat(1000);
    for number in 0..10_000 {
        client.cmd(["SET", &format!("key:{number}"), &value]).is_ok();
    }
    let used = client.info("used_memory").parse::<usize>().unwrap();
    assert!(used <= limit + (64 << 10), "{used} used of {limit}");
    assert!(client.info("evicted_keys").parse::<u64>().unwrap() > 5000);
    client.line("GET key:9999").is(value.as_str());
    client.line("CONFIG SET maxmemory-policy volatile-ttl").is_ok();
    client.line("CONFIG SET maxmemory 1mb").is_ok();
    let oom = "OOM command not allowed when used memory > 'maxmemory'.";
    client.line("SET another value").is_error(oom);
    client.line("GET key:9999").is(value.as_str());
    client.line("DEL key:9999").is(1);
    client.line("CONFIG SET maxmemory 0").is_ok();
    client.line("SET another value").is_ok();
}

#[test]
fn use_is_told_by_recency_or_by_frequency() {
    let mut client = Server::start().into_client();
    client.line("SET key value").is_ok();
    client.line("OBJECT IDLETIME key").is(0);
    let refusal = client.line("OBJECT FREQ key").reply().to_string();
    assert!(refusal.contains("An LFU maxmemory policy is not selected"), "{refusal}");
    client.line("CONFIG SET maxmemory-policy allkeys-lfu lfu-log-factor 0").is_ok();
    client.line("SET key value").is_ok();
    for _ in 0..20 {
        client.line("GET key").is("value");
    }
    let frequency = client.line("OBJECT FREQ key").integer();
    assert!(frequency >= 20, "{frequency}");
    client.line("CLIENT NO-TOUCH ON").is_ok();
    client.line("GET key").is("value");
    client.line("OBJECT FREQ key").is(frequency);
    client.line("TOUCH key").is(1);
    client.line("OBJECT FREQ key").is(frequency + 1);
}

#[test]
fn no_value_is_shared() {
    let mut client = Server::start_with(&["--enable-debug-command", "local"]).into_client();
    client.line("MSET small 1 large 10000").is_ok();
    client.line("OBJECT REFCOUNT small").is(1);
    client.line("OBJECT REFCOUNT large").is(1);
    let told = client.line("DEBUG OBJECT small").reply().to_string();
    assert!(told.contains(" refcount:1 "), "{told}");
}

#[test]
fn exporters_find_their_fields() {
    // The fields that oliver006's redis_exporter makes metrics of, as far as a primary without modules has
    // them.
    const FIELDS: &str = "uptime_in_seconds process_id connected_clients blocked_clients maxclients \
        tracking_clients \
        clients_in_timeout_table client_recent_max_input_buffer client_recent_max_output_buffer \
        allocator_active allocator_allocated allocator_resident allocator_frag_ratio allocator_frag_bytes \
        allocator_rss_ratio allocator_rss_bytes used_memory used_memory_rss used_memory_peak used_memory_lua \
        used_memory_vm_eval used_memory_vm_functions used_memory_scripts used_memory_overhead \
        used_memory_startup used_memory_dataset number_of_cached_scripts number_of_functions \
        number_of_libraries maxmemory maxmemory_policy mem_fragmentation_ratio mem_fragmentation_bytes \
        mem_clients_slaves mem_clients_normal mem_cluster_links mem_aof_buffer mem_replication_backlog \
        mem_not_counted_for_evict mem_total_replication_buffers active_defrag_running \
        lazyfree_pending_objects lazyfreed_objects migrate_cached_sockets active_defrag_hits \
        active_defrag_misses active_defrag_key_hits active_defrag_key_misses loading async_loading \
        rdb_changes_since_last_save rdb_bgsave_in_progress rdb_last_save_time rdb_last_bgsave_status \
        rdb_last_bgsave_time_sec rdb_current_bgsave_time_sec rdb_saves rdb_last_cow_size \
        rdb_last_load_keys_expired rdb_last_load_keys_loaded aof_enabled aof_rewrite_in_progress \
        aof_rewrite_scheduled aof_last_rewrite_time_sec aof_current_rewrite_time_sec aof_last_cow_size \
        aof_last_bgrewrite_status aof_last_write_status module_fork_in_progress module_fork_last_cow_size \
        total_connections_received total_commands_processed instantaneous_ops_per_sec total_net_input_bytes \
        total_net_output_bytes instantaneous_input_kbps instantaneous_output_kbps rejected_connections \
        sync_full sync_partial_ok sync_partial_err expired_keys expired_stale_perc \
        expired_time_cap_reached_count evicted_keys evicted_clients keyspace_hits keyspace_misses \
        pubsub_channels pubsub_patterns latest_fork_usec slave_expires_tracked_keys tracking_total_keys \
        tracking_total_items tracking_total_prefixes unexpected_error_replies total_error_replies \
        dump_payload_sanitizations total_reads_processed total_writes_processed role connected_slaves \
        master_replid master_repl_offset second_repl_offset repl_backlog_active repl_backlog_size \
        repl_backlog_first_byte_offset repl_backlog_histlen used_cpu_sys used_cpu_user \
        used_cpu_sys_children used_cpu_user_children used_cpu_sys_main_thread used_cpu_user_main_thread \
        cluster_enabled redis_version redis_mode os";
    // Other fields that 8.6.3 prints by default.
    const MORE: &str = "monotonic_clock atomicvar_api gcc_version io_threads_active listener0 pubsub_clients \
        watching_clients total_watched_keys total_blocking_keys total_blocking_keys_on_nokey \
        used_memory_peak_time allocator_muzzy mem_replica_full_sync_buffer \
        mem_cluster_slot_migration_output_buffer mem_cluster_slot_migration_input_buffer \
        mem_cluster_slot_migration_input_buffer_peak mem_overhead_db_hashtable_rehashing \
        rdb_saves_consecutive_failures io_thread_0 total_net_repl_input_bytes total_net_repl_output_bytes \
        instantaneous_input_repl_kbps instantaneous_output_repl_kbps expired_subkeys_active \
        expired_keys_active expire_cycle_cpu_milliseconds evicted_scripts total_eviction_exceeded_time \
        current_eviction_exceeded_time pubsubshard_channels total_active_defrag_time \
        current_active_defrag_time io_threaded_reads_processed io_threaded_writes_processed \
        io_threaded_total_prefetch_batches io_threaded_total_prefetch_entries \
        client_query_buffer_limit_disconnections client_output_buffer_limit_disconnections \
        reply_buffer_shrinks reply_buffer_expands eventloop_cycles eventloop_duration_sum \
        eventloop_duration_cmd_sum instantaneous_eventloop_cycles_per_sec \
        instantaneous_eventloop_duration_usec acl_access_denied_tls_cert";
    let mut client = Server::start().into_client();
    let info = client.line("INFO all").text();
    for field in FIELDS.split_whitespace().chain(MORE.split_whitespace()) {
        assert!(info.contains(&format!("\n{field}:")), "{field} is missing");
    }
    assert_eq!(client.line("INFO CPU keyspace").text().matches("# ").count(), 2);
    assert!(!client.line("INFO").text().contains("# Commandstats"));
}

marked!(also_redis: the_work_of_the_server_is_summed_up);
fn the_work_of_the_server_is_summed_up() {
    let mut client = Server::start().into_client();
    const FIELDS: [&str; 3] = ["eventloop_cycles", "eventloop_duration_sum", "eventloop_duration_cmd_sum"];
    let sums = |client: &mut Client| FIELDS.map(|field| client.info(field).parse::<u64>().unwrap());
    let before = sums(&mut client);
    wait_until("all grow", || sums(&mut client).iter().zip(before).all(|(sum, before)| *sum > before));
    for rate in ["instantaneous_eventloop_cycles_per_sec", "instantaneous_eventloop_duration_usec"] {
        wait_until("there is a rate", || client.info(rate).parse::<u64>().unwrap() > 0);
    }
    let before = sums(&mut client);
    client.line("CONFIG RESETSTAT").is_ok();
    let after = sums(&mut client);
    assert!(after.iter().zip(before).all(|(after, before)| *after < before), "{before:?}, then {after:?}");
}

marked!(also_redis: fields_of_info_that_8_6_has_count_what_they_say);
fn fields_of_info_that_8_6_has_count_what_they_say() {
    let server = Server::start_with(&["--client-query-buffer-limit", "1048576"]);
    let (mut client, mut other) = (server.client(), server.client());
    let listener = client.info("listener0");
    assert!(listener.starts_with("name=tcp,bind=") && listener.contains(",port="), "{listener}");
    assert!(client.info("io_thread_0").starts_with("clients=2,reads="));
    let clients = |client: &mut Client| {
        ["pubsub_clients", "watching_clients", "total_watched_keys", "pubsubshard_channels"]
            .map(|field| client.info(field))
    };
    assert_eq!(clients(&mut client), ["0", "0", "0", "0"]);
    other.line("WATCH a b").is_ok();
    assert_eq!(clients(&mut client), ["0", "1", "2", "0"]);
    let line = client.line("CLIENT LIST").text();
    assert!(line.contains(" multi=-1 watch=2 qbuf="), "{line}");
    other.line("UNWATCH").is_ok();
    other.line("SSUBSCRIBE channel").ignored();
    assert_eq!(clients(&mut client), ["1", "0", "0", "1"]);
    // Keys for which clients wait, and those of them whose deletion ends a wait.
    let waits = |client: &mut Client| {
        ["total_blocking_keys", "total_blocking_keys_on_nokey"].map(|field| client.info(field))
    };
    assert_eq!(waits(&mut client), ["0", "0"]);
    client.line("XGROUP CREATE s g $ MKSTREAM").is_ok();
    let (mut one, mut two) = (server.client(), server.client());
    one.send(b"BLPOP k l 0\r\n");
    two.send(b"XREADGROUP GROUP g c BLOCK 0 STREAMS s >\r\n");
    wait_until("both wait", || client.info("blocked_clients") == "2");
    assert_eq!(waits(&mut client), ["3", "1"]);
    drop((one, two));
    wait_until("they have left", || waits(&mut client) == ["0", "0"]);
    // Clients that are cut off.
    assert_eq!(client.info("client_query_buffer_limit_disconnections"), "0");
    let mut long = server.client();
    let _ = long.try_send(&[b"*1\r\n$3000000\r\n".as_slice(), &vec![b'x'; 2 << 20]].concat());
    wait_until("it is cut off", || client.info("client_query_buffer_limit_disconnections") == "1");
    client.line("CONFIG SET client-output-buffer-limit \"pubsub 100000 0 0\"").is_ok();
    for _ in 0..200 {
        client.cmd([b"SPUBLISH".as_slice(), b"channel", &[b'x'; 65536]]).ignored();
    }
    wait_until("it is cut off", || client.info("client_output_buffer_limit_disconnections") == "1");
    client.line("CONFIG RESETSTAT").is_ok();
    assert_eq!(client.info("client_output_buffer_limit_disconnections"), "0");
    assert_eq!(client.info("client_query_buffer_limit_disconnections"), "0");
    // Keys that no command came across.
    client.line("SET k v PX 1").is_ok();
    client.line("HSET h f v g v").is(2);
    client.line("HPEXPIRE h 1 FIELDS 1 f").ignored();
    wait_until("they are swept", || client.info("expired_keys_active") == "1");
    wait_until("they are swept", || client.info("expired_subkeys_active") == "1");
    // Scripts beyond 500.
    for number in 0..502 {
        client.line(&format!("EVAL \"return {number}\" 0")).is(number);
    }
    assert_eq!(client.info("evicted_scripts"), "2");
    // Memory above its limit.
    assert_eq!(client.info("current_eviction_exceeded_time"), "0");
    client.line("CONFIG SET maxmemory 1").is_ok();
    wait_until("it takes time", || {
        let _ = client.line("SET k v");
        client.info("current_eviction_exceeded_time") != "0"
    });
    client.line("CONFIG SET maxmemory 0").is_ok();
    assert!(client.info("used_memory_peak_time").parse::<u64>().unwrap() > 1_700_000_000);
}

marked!(also_redis: values_that_are_freed_in_the_background_are_counted);
fn values_that_are_freed_in_the_background_are_counted() {
    let mut client = Server::start().into_client();
    assert_eq!(client.info("lazyfreed_objects"), "0");
    for key in ["one", "two"] {
        let members: Vec<String> = (0..200_000).map(|number| format!("member:{number:020}")).collect();
        client.cmd(["SADD", key].into_iter().chain(members.iter().map(String::as_str))).is(200_000);
        client.line(&format!("UNLINK {key}")).is(1);
    }
    wait_until("both are freed", || client.info("lazyfreed_objects") == "2");
    assert_eq!(client.info("lazyfree_pending_objects"), "0");
    client.line("CONFIG RESETSTAT").is_ok();
    assert_eq!(client.info("lazyfreed_objects"), "0");
}

/// The fields of INFO that Redis 8.6.3 has and Keyfast does not, with the reason.
const LEFT_OUT_OF_INFO: &[(&str, &str)] = &[("module", "No module is loaded")];

#[test]
fn info_has_the_fields_of_redis_but_for_those_that_are_left_out() {
    let folder = Folder::new("info-fields");
    let mut client = folder.serve(&["--appendonly", "yes"]).into_client();
    let text = client.line("INFO EVERYTHING").text();
    let fields_of = |title: &str| -> BTreeSet<&str> {
        let section = text.split("# ").find_map(|section| section.strip_prefix(&format!("{title}\r\n")));
        let lines = section.unwrap_or_else(|| panic!("no section {title} in {text}")).lines();
        lines.filter_map(|line| Some(line.split_once(':')?.0)).collect()
    };
    let mut left_out = BTreeSet::new();
    // Those of a Redis 8.6.3 with a log and no data.
    for line in include_str!("info-8.6.3.txt").lines() {
        let (title, fields) = line.split_once(": ").expect("a title and names");
        let here = fields_of(title);
        left_out.extend(fields.split(' ').filter(|field| !here.contains(field)));
    }
    let named: BTreeSet<&str> = LEFT_OUT_OF_INFO.iter().map(|(field, _)| *field).collect();
    assert_eq!(left_out, named);
}

marked!(also_redis: a_client_is_described_by_the_fields_of_redis_in_its_order);
fn a_client_is_described_by_the_fields_of_redis_in_its_order() {
    let server = Server::start();
    let mut client = server.client();
    let fields = |client: &mut Client| -> Vec<(String, String)> {
        let text = client.line("CLIENT INFO").text();
        let words = text.split_whitespace().map(|word| word.split_once('=').expect("a field"));
        words.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    };
    let value = |fields: &[(String, String)], name: &str| -> u64 {
        let found = fields.iter().find(|(other, _)| other == name);
        found.expect(name).1.parse().expect("a number")
    };
    let names: Vec<String> = fields(&mut client).into_iter().map(|(name, _)| name).collect();
    assert_eq!(
        names.join(" "),
        "id addr laddr fd name age idle flags db sub psub ssub multi watch qbuf qbuf-free argv-mem multi-mem \
         rbs rbp obl oll omem tot-mem events cmd user redir resp lib-name lib-ver io-thread tot-net-in \
         tot-net-out tot-cmds"
    );
    let grown = |client: &mut Client, before: &[(String, String)]| {
        let after = fields(client);
        ["tot-net-in", "tot-net-out", "tot-cmds"].map(|name| value(&after, name) - value(before, name))
    };
    let before = fields(&mut client);
    // A request counts when it was read, and as a command when it has run. Its reply was written by then.
    let [input, output, commands] = grown(&mut client, &before);
    assert_eq!((input, commands), (request(["CLIENT", "INFO"]).len() as u64, 1));
    assert!(output > 300, "{output}");
    let before = fields(&mut client);
    client.line("SET k v").is_ok();
    client.line("GET k").is("v");
    client.line("NOSUCH").ignored();
    client.line("MULTI").is_ok();
    client.line("GET k").is_simple("QUEUED");
    client.line("EXEC").ignored();
    client.line("EVAL \"redis.call('PING'); return 1\" 0").is(1);
    let [input, output, commands] = grown(&mut client, &before);
    // SET, GET, MULTI, GET of EXEC, EXEC, PING of EVAL, EVAL, and CLIENT INFO before.
    assert_eq!(commands, 8);
    assert!((150..1000).contains(&input), "{input}");
    assert!(output > 300, "{output}");
    let listed = client.line("CLIENT LIST").text();
    assert_eq!(listed.matches(" tot-cmds=").count(), 1, "{listed}");
}

marked!(also_redis: info_counts_keys_by_their_sizes);
fn info_counts_keys_by_their_sizes() {
    let server = Server::start_with(&["--enable-debug-command", "yes"]);
    let mut client = server.client();
    let sizes = |client: &mut Client| {
        let text = client.line("INFO keysizes").text();
        text.strip_prefix("# Keysizes\r\n").expect("the section").replace("\r\n", "\n")
    };
    assert_eq!(sizes(&mut client), "");
    client.line("SET empty \"\"").is_ok();
    client.line("SET one x").is_ok();
    client.line("SET number 12345").is_ok();
    client.cmd(["SET", "long", &"x".repeat(1 << 20)]).is_ok();
    client.cmd(["SET", "shorter", &"x".repeat((1 << 20) - 1)]).is_ok();
    client.line("RPUSH list 1 2 3").is(3);
    client.line("SADD set 1 2").is(2);
    client.line("SADD set2 a b c").is(3);
    client.line("ZADD scores 1 a").is(1);
    client.line("HSET hash a 1 b 2 c 3 d 4").is(4);
    client.line("HEXPIRE hash 1000 FIELDS 1 a").ignored();
    client.line("XADD stream * f v").ignored();
    client.line("PFADD hll a").is(1);
    client.line("DEL hll").is(1);
    client.line("SELECT 3").is_ok();
    client.line("APPEND elsewhere abcd").is(4);
    let all = "db0_distrib_strings_sizes:0=1,1=1,4=1,512K=1,1M=1\n\
               db0_distrib_lists_items:2=1\n\
               db0_distrib_sets_items:2=2\n\
               db0_distrib_zsets_items:1=1\n\
               db0_distrib_hashes_items:4=1\n\
               db3_distrib_strings_sizes:4=1\n";
    assert_eq!(sizes(&mut client), all);
    assert!(client.line("INFO").text().contains("\r\n# Keysizes\r\n"));
    client.line("FLUSHDB").is_ok();
    client.line("SELECT 0").is_ok();
    client.line("DEL long shorter empty list set scores hash").is(7);
    client.line("LPOP nosuch").is_nil();
    assert_eq!(sizes(&mut client), "db0_distrib_strings_sizes:1=1,4=1\ndb0_distrib_sets_items:2=1\n");
}

#[test]
fn info_counts_collections_by_their_bytes_if_that_is_asked_for() {
    let mut client = Server::start_with(&["--key-memory-histograms", "yes"]).into_client();
    client.line("SET s v").is_ok();
    client.line("RPUSH l 1 2 3").is(3);
    client.cmd(["HSET", "h", "f", &"x".repeat(5000)]).is(1);
    let text = client.line("INFO keysizes").text();
    assert!(text.contains("db0_distrib_lists_sizes:") && !text.contains("distrib_strings_sizes:0"), "{text}");
    assert!(text.contains("db0_distrib_hashes_sizes:4K=1\r\n"), "{text}");
    client.line("CONFIG SET key-memory-histograms no").is_ok();
    assert!(!client.line("INFO keysizes").text().contains("lists_sizes"));
}
