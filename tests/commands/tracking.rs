//! Clients that keep copies of keys: which invalidations they get, when, and after whose changes.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use support::client::{Client, Reply, request, words};
use support::server::{PATIENCE, Server, SetOnDrop, is_redis, wait_until};

fn bulk(text: &str) -> Reply {
    Reply::Bulk(text.as_bytes().to_vec())
}

/// The invalidation of these keys for a RESP3 client.
fn news(keys: &[&str]) -> Reply {
    Reply::Push(vec![bulk("invalidate"), Reply::Array(keys.iter().map(|key| bulk(key)).collect())])
}

/// The invalidation for a RESP2 client that listens for another client.
fn message(keys: &[&str]) -> Reply {
    let keys = Reply::Array(keys.iter().map(|key| bulk(key)).collect());
    Reply::Array(vec![bulk("message"), bulk("__redis__:invalidate"), keys])
}

/// The next thing that comes is this.
#[track_caller]
fn hears(client: &mut Client, expected: &Reply) {
    assert_eq!(client.reply().reply(), *expected);
}

/// Nothing was sent to the client that it did not ask for.
#[track_caller]
fn hears_nothing(client: &mut Client) {
    client.line("PING").is_simple("PONG");
}

/// A client that tracks the keys that it reads, and another that writes.
fn reader_and_writer(server: &Server, options: &str) -> (Client, Client) {
    let mut reader = server.client3();
    reader.line(&format!("CLIENT TRACKING ON {options}")).is_ok();
    (reader, server.client())
}

/// The flags in the reply of CLIENT TRACKINGINFO.
fn flags(client: &mut Client) -> String {
    let Reply::Map(pairs) = client.line("CLIENT TRACKINGINFO").reply() else { panic!("no map") };
    assert_eq!(pairs.len(), 3);
    pairs[0].1.to_string()
}

marked!(also_redis: a_client_is_told_once_of_a_key_that_it_has_read);
fn a_client_is_told_once_of_a_key_that_it_has_read() {
    let server = Server::start();
    let (mut reader, mut writer) = reader_and_writer(&server, "");
    writer.line("MSET a 1 b 1 c 1").is_ok();
    reader.line("GET a").is("1");
    reader.line("MGET b nokey").reply();
    writer.line("SET c 2").is_ok();
    hears_nothing(&mut reader);
    writer.line("SET a 2").is_ok();
    hears(&mut reader, &news(&["a"]));
    writer.line("SET a 3").is_ok();
    hears_nothing(&mut reader);
    writer.line("DEL b").is(1);
    hears(&mut reader, &news(&["b"]));
    writer.line("SETNX nokey 1").is(1);
    hears(&mut reader, &news(&["nokey"]));
    reader.line("GET a").is("3");
    writer.line("EXPIRE a 100").is(1);
    hears(&mut reader, &news(&["a"]));
}

marked!(also_redis: whatever_reads_a_key_counts_and_whatever_writes_it_does_not);
fn whatever_reads_a_key_counts_and_whatever_writes_it_does_not() {
    let server = Server::start();
    let (mut reader, mut writer) = reader_and_writer(&server, "");
    let reads = ["EXISTS k", "TTL k", "TYPE k", "STRLEN k", "OBJECT ENCODING k", "TOUCH k", "BITCOUNT k"];
    for read in reads.into_iter().chain(["LCS k k", "GETRANGE k 0 1", "MEMORY USAGE k", "DUMP k"]) {
        writer.line("SET k 1").is_ok();
        reader.line(read).reply();
        writer.line("APPEND k 2").is(2);
        hears(&mut reader, &news(&["k"]));
    }
    for write in ["GETEX k", "GETSET k 1", "SETNX k 1", "WATCH k", "SET k 1 GET"] {
        reader.line(write).reply();
        writer.line("SET k 1").is_ok();
        hears_nothing(&mut reader);
    }
}

marked!(also_redis: every_way_to_change_a_key_is_told);
fn every_way_to_change_a_key_is_told() {
    let server = Server::start();
    let (mut reader, mut writer) = reader_and_writer(&server, "");
    for (change, told) in [
        ("SET a 1", &["a"][..]),
        ("INCR a", &["a"]),
        ("SETBIT a 1 1", &["a"]),
        ("RENAME a b", &["a", "b"]),
        ("COPY b a", &["a"]),
        ("MSET a 1 b 2", &["a", "b"]),
        ("PERSIST a", &[]),
        ("EXPIRE a 100", &["a"]),
        ("GETEX a PERSIST", &["a"]),
        ("GETDEL a", &["a"]),
        ("UNLINK b a", &["b"]),
        ("EVAL \"redis.call('set', KEYS[1], 1)\" 1 a", &["a"]),
        ("BITOP NOT b a", &["b"]),
        ("MOVE b 9", &["b"]),
    ] {
        reader.line("MGET a b").reply();
        writer.line(change).reply();
        let mut heard = BTreeSet::new();
        for _ in told {
            heard.insert(reader.reply().reply().to_string());
        }
        assert_eq!(heard, told.iter().map(|key| news(&[key]).to_string()).collect(), "{change}");
        hears_nothing(&mut reader);
    }
}

marked!(also_redis: a_key_that_expires_has_changed);
fn a_key_that_expires_has_changed() {
    let server = Server::start();
    let (mut reader, mut writer) = reader_and_writer(&server, "");
    writer.line("SET k 1 PX 1").is_ok();
    writer.line("SET later 1 PX 300").is_ok();
    reader.line("GET later").is("1");
    hears(&mut reader, &news(&["later"]));
}

marked!(also_redis: one_s_own_change_is_told_after_its_reply);
fn one_s_own_change_is_told_after_its_reply() {
    let mut client = Server::start().into_client();
    client.line("HELLO 3").reply();
    client.line("CLIENT TRACKING ON").is_ok();
    let lines = ["GET k", "SET k 1", "GET k", "DEL k k", "ECHO end"];
    let requests: Vec<u8> = lines.iter().flat_map(|line| request(words(line))).collect();
    client.send(&requests);
    client.reply().is_nil();
    client.reply().is_ok();
    hears(&mut client, &news(&["k"]));
    client.reply().is("1");
    client.reply().is(1);
    hears(&mut client, &news(&["k"]));
    client.reply().is("end");
}

marked!(also_redis: news_never_comes_between_the_replies_of_a_transaction);
fn news_never_comes_between_the_replies_of_a_transaction() {
    let server = Server::start();
    let (mut reader, mut writer) = reader_and_writer(&server, "");
    for line in ["MULTI", "GET k", "SET k 5", "SET k 6", "GET k", "SET j 1", "GET j"] {
        reader.line(line).text();
    }
    assert_eq!(reader.line("EXEC").items().len(), 6);
    hears(&mut reader, &news(&["k"]));
    // What was read after it was changed is remembered.
    writer.line("SET k 7").is_ok();
    hears(&mut reader, &news(&["k"]));
    writer.line("SET j 7").is_ok();
    hears(&mut reader, &news(&["j"]));
}

marked!(also_redis: of_a_script_the_keys_that_it_reads_are_remembered);
fn of_a_script_the_keys_that_it_reads_are_remembered() {
    let server = Server::start();
    let (mut reader, mut writer) = reader_and_writer(&server, "");
    writer.line("MSET declared 1 read 1").is_ok();
    for eval in ["EVAL", "EVAL_RO"] {
        reader.cmd([eval, "return redis.call('get', 'read')", "1", "declared"]).is("1");
        writer.line("SET declared 1").is_ok();
        hears_nothing(&mut reader);
        writer.line("SET read 1").is_ok();
        hears(&mut reader, &news(&["read"]));
    }
    reader.line("EVAL \"return 1\" 1 declared").is(1);
    writer.line("SET declared 1").is_ok();
    hears_nothing(&mut reader);
    // What the client itself reads afterwards is remembered as ever.
    reader.line("GET read").is("1");
    writer.line("MSET declared 1 read 1").is_ok();
    hears(&mut reader, &news(&["read"]));
    reader.line("EVAL \"redis.call('get', 'k') redis.call('set', 'k', 1) return 2\" 1 k").is(2);
    hears(&mut reader, &news(&["k"]));
    writer.line("SET k 1").is_ok();
    hears_nothing(&mut reader);
}

marked!(also_redis: with_noloop_a_client_is_not_notified_of_its_own_changes);
fn with_noloop_a_client_is_not_notified_of_its_own_changes() {
    let server = Server::start();
    let (mut reader, mut writer) = reader_and_writer(&server, "NOLOOP");
    assert_eq!(flags(&mut reader), "[\"on\", \"noloop\"]");
    reader.line("GET k").is_nil();
    reader.line("SET k 1").is_ok();
    hears_nothing(&mut reader);
    reader.line("GET k").is("1");
    writer.line("SET k 2").is_ok();
    hears(&mut reader, &news(&["k"]));
    // But not that nothing is left. Redis 8 frees the keys on another thread and replies after that, so its
    // news comes first.
    if !is_redis() {
        reader.line("FLUSHALL").is_ok();
        hears(&mut reader, &Reply::Push(vec![bulk("invalidate"), Reply::Null]));
    }
}

marked!(also_redis: every_client_is_notified_of_keys_that_expire);
fn every_client_is_notified_of_keys_that_expire() {
    let server = Server::start();
    let (mut listener, _) = reader_and_writer(&server, "BCAST NOLOOP");
    listener.line("SET k 1 PX 1").is_ok();
    hears(&mut listener, &news(&["k"]));
    listener.line("SET k 1").is_ok();
    hears_nothing(&mut listener);
}

marked!(also_redis: a_reader_is_told_of_a_key_that_was_evicted);
fn a_reader_is_told_of_a_key_that_was_evicted() {
    let server = Server::start_with(&["--maxmemory-policy", "allkeys-random"]);
    let (mut reader, mut writer) = reader_and_writer(&server, "");
    writer.line("SET k 1").is_ok();
    reader.line("GET k").is("1");
    writer.line("CONFIG SET maxmemory 1").is_ok();
    writer.line("PING").is_simple("PONG");
    writer.line("GET k").is_nil();
    hears(&mut reader, &news(&["k"]));
}

marked!(also_redis: news_that_was_taken_does_not_count_for_what_waits);
fn news_that_was_taken_does_not_count_for_what_waits() {
    let mut client = Server::start().into_client();
    client.line("HELLO 3").reply();
    client.line("CONFIG SET client-output-buffer-limit \"normal 65536 0 0\"").is_ok();
    client.line("CLIENT TRACKING ON").is_ok();
    let key = "k".repeat(4096);
    // A client that always has a request, and gets many invalidations in several parts.
    for _ in 0..100 {
        client.cmd(["EXISTS", &key]).integer();
        client.cmd(["SET", &key, ""]).is_ok();
        hears(&mut client, &news(&[&key]));
    }
}

marked!(also_redis: a_client_with_prefixes_is_notified_of_every_change_below_them);
fn a_client_with_prefixes_is_notified_of_every_change_below_them() {
    let server = Server::start();
    let (mut listener, mut writer) = reader_and_writer(&server, "BCAST PREFIX user: PREFIX lock:");
    let (mut all, _) = reader_and_writer(&server, "BCAST");
    writer.line("MSET user:2 a user:1 b other c user:2 d").is_ok();
    hears(&mut listener, &news(&["user:1", "user:2"]));
    hears(&mut all, &news(&["other", "user:1", "user:2"]));
    writer.line("SETNX lock:1 x").is(1);
    hears(&mut listener, &news(&["lock:1"]));
    hears(&mut all, &news(&["lock:1"]));
    for line in ["MULTI", "INCR lock:2", "INCR lock:2", "INCR user:9"] {
        writer.line(line).text();
    }
    assert_eq!(writer.line("EXEC").items().len(), 3);
    let told = [listener.reply().reply(), listener.reply().reply()];
    assert!(told.contains(&news(&["lock:2"])) && told.contains(&news(&["user:9"])), "{told:?}");
    hears(&mut all, &news(&["lock:2", "user:9"]));
    // Also of what it did itself, but after the reply.
    listener.line("DEL user:1").is(1);
    hears(&mut listener, &news(&["user:1"]));
    hears(&mut all, &news(&["user:1"]));
    listener.line("CLIENT TRACKING ON BCAST NOLOOP PREFIX more").is_ok();
    listener.line("DEL user:2").is(1);
    hears_nothing(&mut listener);
    writer.line("CLIENT TRACKING OFF").is_ok();
    assert_eq!(writer.info("tracking_total_prefixes"), "4");
    listener.line("CLIENT TRACKING OFF").is_ok();
    assert_eq!(writer.info("tracking_total_prefixes"), "1");
}

marked!(also_redis: prefixes_of_one_client_must_not_overlap);
fn prefixes_of_one_client_must_not_overlap() {
    let mut client = Server::start().into_client();
    let overlap = |line: &str, client: &mut Client, text: &str| {
        let text = format!("ERR Prefix {text}. Prefixes for a single client must not overlap.");
        client.line(&format!("CLIENT TRACKING ON BCAST {line}")).is_error(&text);
    };
    overlap("PREFIX a PREFIX ab", &mut client, "'a' overlaps with another provided prefix 'ab'");
    overlap("PREFIX ab PREFIX a", &mut client, "'ab' overlaps with another provided prefix 'a'");
    overlap("PREFIX a PREFIX a", &mut client, "'a' overlaps with another provided prefix 'a'");
    client.line("CLIENT TRACKING ON BCAST PREFIX foo PREFIX bar").is_ok();
    overlap("PREFIX x PREFIX foobar", &mut client, "'foobar' overlaps with an existing prefix 'foo'");
    overlap("PREFIX b", &mut client, "'b' overlaps with an existing prefix 'bar'");
    client.line("CLIENT TRACKING ON BCAST").is_ok();
    overlap("PREFIX zzz", &mut client, "'zzz' overlaps with an existing prefix ''");
    let items = client.line("CLIENT TRACKINGINFO").items();
    assert_eq!(items[5], Reply::Array(vec![bulk(""), bulk("bar"), bulk("foo")]));
}

marked!(also_redis: what_does_not_go_together_is_refused);
fn what_does_not_go_together_is_refused() {
    let mut client = Server::start().into_client();
    let own = client.line("CLIENT ID").integer();
    let switched = |what: &str| {
        format!(
            "ERR You can't switch {what} before disabling tracking for this client, and then re-enabling it \
             with a different mode."
        )
    };
    for (line, error) in [
        ("foo", "ERR syntax error"),
        ("ON foo", "ERR syntax error"),
        ("ON REDIRECT", "ERR syntax error"),
        ("ON REDIRECT x", "ERR value is not an integer or out of range"),
        ("ON REDIRECT 0", "ERR The client ID you want redirect to does not exist"),
        ("OFF REDIRECT 99999", "ERR The client ID you want redirect to does not exist"),
        ("ON PREFIX a", "ERR PREFIX option requires BCAST mode to be enabled"),
        ("ON BCAST OPTIN", "ERR OPTIN and OPTOUT are not compatible with BCAST"),
        ("ON OPTIN OPTOUT", "ERR You can't specify both OPTIN mode and OPTOUT mode"),
    ] {
        client.line(&format!("CLIENT TRACKING {line}")).is_error(error);
    }
    client
        .line(&format!("CLIENT TRACKING ON REDIRECT {own} REDIRECT {own}"))
        .is_error("ERR A client can only redirect to a single other client");
    client.line("CLIENT CACHING yes").is_error(
        "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode \
         enabled",
    );
    client.line("CLIENT TRACKING ON OPTIN").is_ok();
    client.line("CLIENT TRACKING ON BCAST").is_error(&switched("BCAST mode on/off"));
    client.line("CLIENT TRACKING ON OPTOUT").is_error(&switched("OPTIN/OPTOUT mode"));
    client
        .line("CLIENT CACHING NO")
        .is_error("ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.");
    client.line("CLIENT CACHING maybe").is_error("ERR syntax error");
    client.line("CLIENT TRACKING ON").is_ok();
    client
        .line("CLIENT CACHING YES")
        .is_error("ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.");
    client.line("CLIENT TRACKING OFF").is_ok();
    client.line("CLIENT TRACKING OFF PREFIX a").is_ok();
}

marked!(also_redis: only_what_is_chosen_is_tracked);
fn only_what_is_chosen_is_tracked() {
    let server = Server::start();
    let (mut reader, mut writer) = reader_and_writer(&server, "OPTIN");
    reader.line("GET k").is_nil();
    writer.line("SET k 1").is_ok();
    hears_nothing(&mut reader);
    // The choice holds for one command, of which those of CLIENT are none…
    reader.line("CLIENT CACHING YES").is_ok();
    assert_eq!(flags(&mut reader), "[\"on\", \"optin\", \"caching-yes\"]");
    reader.line("GET k").is("1");
    assert_eq!(flags(&mut reader), "[\"on\", \"optin\"]");
    reader.line("GET j").is_nil();
    writer.line("MSET j 1 k 2").is_ok();
    hears(&mut reader, &news(&["k"]));
    hears_nothing(&mut reader);
    // … or for a whole transaction.
    for line in ["CLIENT CACHING YES", "MULTI", "GET j", "GET k", "EXEC", "GET m"] {
        reader.line(line).reply();
    }
    writer.line("SET j 1").is_ok();
    hears(&mut reader, &news(&["j"]));
    writer.line("SET k 1").is_ok();
    hears(&mut reader, &news(&["k"]));
    writer.line("SET m 1").is_ok();
    hears_nothing(&mut reader);
    for line in ["MULTI", "GET j", "CLIENT CACHING YES", "GET k", "EXEC"] {
        reader.line(line).reply();
    }
    writer.line("SET j 1").is_ok();
    writer.line("SET k 1").is_ok();
    hears(&mut reader, &news(&["k"]));
    for line in ["CLIENT CACHING YES", "nosuchcommand", "GET j"] {
        reader.line(line).reply();
    }
    writer.line("SET j 1").is_ok();
    hears_nothing(&mut reader);
}

marked!(also_redis: all_but_what_is_spared_is_tracked);
fn all_but_what_is_spared_is_tracked() {
    let server = Server::start();
    let (mut reader, mut writer) = reader_and_writer(&server, "OPTOUT");
    reader.line("CLIENT CACHING NO").is_ok();
    assert_eq!(flags(&mut reader), "[\"on\", \"optout\", \"caching-no\"]");
    reader.line("GET spared").is_nil();
    reader.line("GET k").is_nil();
    writer.line("SET spared 1").is_ok();
    hears_nothing(&mut reader);
    writer.line("SET k 1").is_ok();
    hears(&mut reader, &news(&["k"]));
}

marked!(also_redis: a_client_of_resp2_has_another_listen_for_it);
fn a_client_of_resp2_has_another_listen_for_it() {
    let server = Server::start();
    let (mut reader, mut listener, mut writer) = (server.client(), server.client(), server.client());
    let id = listener.line("CLIENT ID").integer();
    reader.line("CLIENT GETREDIR").is(-1);
    reader.line(&format!("CLIENT TRACKING ON REDIRECT {id}")).is_ok();
    reader.line("CLIENT GETREDIR").is(id);
    assert!(reader.line("CLIENT INFO").text().contains(" flags=t "));
    assert!(reader.line("CLIENT INFO").text().contains(&format!(" redir={id} ")));
    // A client that does not subscribe cannot be notified.
    reader.line("GET k").is_nil();
    writer.line("SET k 1").is_ok();
    hears_nothing(&mut listener);
    listener.line("SUBSCRIBE __redis__:invalidate").reply();
    reader.line("GET k").is("1");
    writer.line("SET k 2").is_ok();
    hears(&mut listener, &message(&["k"]));
    reader.line("GET k").is("2");
    reader.line("SET k 3").is_ok();
    hears(&mut listener, &message(&["k"]));
    hears_nothing(&mut reader);
    writer.line("FLUSHDB").is_ok();
    let nothing_left = vec![bulk("message"), bulk("__redis__:invalidate"), Reply::Null];
    hears(&mut listener, &Reply::Array(nothing_left));
}

marked!(also_redis: a_client_of_resp2_without_another_hears_nothing);
fn a_client_of_resp2_without_another_hears_nothing() {
    let server = Server::start();
    let (mut reader, mut writer) = (server.client(), server.client());
    reader.line("CLIENT TRACKING ON").is_ok();
    reader.line("GET k").is_nil();
    writer.line("SET k 1").is_ok();
    hears_nothing(&mut reader);
    reader.line("SET k 1").is_ok();
    hears_nothing(&mut reader);
}

marked!(also_redis: a_listener_of_resp3_need_not_subscribe);
fn a_listener_of_resp3_need_not_subscribe() {
    let server = Server::start();
    let (mut reader, mut listener) = (server.client(), server.client3());
    let id = listener.line("CLIENT ID").integer();
    reader.line(&format!("CLIENT TRACKING ON REDIRECT {id} BCAST")).is_ok();
    assert!(reader.line("CLIENT INFO").text().contains(" flags=tB "));
    reader.line("SET k 1").is_ok();
    hears(&mut listener, &news(&["k"]));
}

marked!(also_redis: a_client_is_told_that_its_listener_is_gone);
fn a_client_is_told_that_its_listener_is_gone() {
    let server = Server::start();
    let (mut reader, mut listener, mut writer) = (server.client3(), server.client(), server.client());
    let id = listener.line("CLIENT ID").integer();
    reader.line(&format!("CLIENT TRACKING ON REDIRECT {id}")).is_ok();
    reader.line("GET k").is_nil();
    drop(listener);
    wait_until("it is gone", || !writer.line("CLIENT LIST").text().contains(&format!("id={id} ")));
    writer.line("SET k 1").is_ok();
    let broken = Reply::Push(vec![bulk("tracking-redir-broken"), Reply::Integer(id)]);
    hears(&mut reader, &broken);
    assert_eq!(flags(&mut reader), "[\"on\", \"broken_redirect\"]");
    assert!(reader.line("CLIENT INFO").text().contains(" flags=tR "));
    reader.line("GET k").is("1");
    reader.line("SET k 2").is_ok();
    hears(&mut reader, &broken);
    reader.line("CLIENT TRACKING ON").is_ok();
    assert_eq!(flags(&mut reader), "[\"on\"]");
    reader.line("GET k").is("2");
    writer.line("SET k 3").is_ok();
    hears(&mut reader, &news(&["k"]));
}

marked!(also_redis: news_comes_also_to_a_client_that_wants_no_replies);
fn news_comes_also_to_a_client_that_wants_no_replies() {
    let server = Server::start();
    let (mut reader, mut writer) = reader_and_writer(&server, "");
    reader.send(&request(["CLIENT", "REPLY", "OFF"]));
    reader.send(&request(["GET", "k"]));
    reader.send(&request(["SET", "k", "1"]));
    hears(&mut reader, &news(&["k"]));
    reader.send(&request(["GET", "j"]));
    reader.line("CLIENT REPLY ON").is_ok();
    writer.line("SET j 1").is_ok();
    hears(&mut reader, &news(&["j"]));
}

marked!(also_redis: tracking_ends_with_reset_and_with_the_connection);
fn tracking_ends_with_reset_and_with_the_connection() {
    let server = Server::start();
    let (mut reader, mut writer) = reader_and_writer(&server, "");
    let (mut other, _) = reader_and_writer(&server, "");
    assert_eq!(writer.info("tracking_clients"), "2");
    reader.line("MGET a b c").reply();
    other.line("MGET c d").reply();
    let totals = |client: &mut Client| {
        [client.info("tracking_total_keys"), client.info("tracking_total_items")].join(" ")
    };
    assert_eq!(totals(&mut writer), "4 5");
    writer.line("SET d 1").is_ok();
    assert_eq!(totals(&mut writer), "3 4");
    reader.line("RESET").is_simple("RESET");
    assert_eq!(writer.info("tracking_clients"), "1");
    reader.line("CLIENT GETREDIR").is(-1);
    writer.line("SET a 1").is_ok();
    hears_nothing(&mut reader);
    if !is_redis() {
        // Redis waits until the keys change.
        wait_until("only the other one's is left", || totals(&mut writer) == "1 1");
    }
    drop(other);
    wait_until("no client tracks", || writer.info("tracking_clients") == "0");
    if !is_redis() {
        assert_eq!(totals(&mut writer), "0 0");
    }
}

marked!(also_redis: no_more_keys_are_remembered_than_the_table_may_hold);
fn no_more_keys_are_remembered_than_the_table_may_hold() {
    let server = Server::start_with(&["--tracking-table-max-keys", "1000"]);
    let (mut reader, mut writer) = reader_and_writer(&server, "NOLOOP");
    let keys: Vec<String> = (0..50).map(|number| format!("key:{number}")).collect();
    for key in &keys {
        reader.cmd(["GET", key]).is_nil();
    }
    assert_eq!(writer.info("tracking_total_keys"), "50");
    writer.line("CONFIG SET tracking-table-max-keys 10").is_ok();
    wait_until("some are forgotten", || writer.info("tracking_total_keys") == "10");
    // The reader was notified of each key that was forgotten.
    let mut forgotten = BTreeSet::new();
    for _ in 0..40 {
        forgotten.insert(reader.reply().reply().to_string());
    }
    assert_eq!(forgotten.len(), 40);
    hears_nothing(&mut reader);
    for key in keys.iter().filter(|key| !forgotten.contains(&news(&[key]).to_string())) {
        writer.cmd(["SET", key, "1"]).is_ok();
        hears(&mut reader, &news(&[key]));
    }
}

marked!(also_redis: a_message_to_itself_and_news_of_what_was_read_come_after_the_reply);
fn a_message_to_itself_and_news_of_what_was_read_come_after_the_reply() {
    let mut client = Server::start().into_client();
    client.line("HELLO 3").reply();
    client.line("CLIENT TRACKING ON").is_ok();
    client.line("SUBSCRIBE c").reply();
    client.line("GET k").is_nil();
    client.line("PUBLISH c m").is(1);
    hears(&mut client, &Reply::Push(vec![bulk("message"), bulk("c"), bulk("m")]));
    client.line("SET k 1").is_ok();
    hears(&mut client, &news(&["k"]));
}

marked!(also_redis: a_script_that_began_before_a_client_tracked_reports_its_changes);
fn a_script_that_began_before_a_client_tracked_reports_its_changes() {
    const SCRIPT: &str = "redis.call('publish', 'begun', '') for i = 1, 20000000 do end \
                          redis.call('set', 'k', 'new')";
    let server = Server::start();
    let mut readers: Vec<Client> = (0..4).map(|_| server.client3()).collect();
    for reader in &mut readers {
        reader.line("SUBSCRIBE begun").reply();
    }
    let mut writer = server.client();
    writer.send(&request(["EVAL", SCRIPT, "0"]));
    thread::scope(|scope| {
        for mut reader in readers {
            scope.spawn(move || {
                reader.reply().ignored();
                reader.line("CLIENT TRACKING ON").is_ok();
                // Who is served only when the script is over reads what it has written.
                if reader.line("GET k").reply() == Reply::Null {
                    hears(&mut reader, &news(&["k"]));
                    reader.line("GET k").is("new");
                }
            });
        }
    });
    writer.reply().is_nil();
}

/// A client that keeps copies by the rules.
struct Cache {
    client: Client,
    copies: HashMap<String, i64>,
}

impl Cache {
    /// Reads until the reply comes, and drops invalidations meanwhile.
    fn reply(&mut self) -> Reply {
        loop {
            match self.client.reply().reply() {
                Reply::Push(parts) => {
                    let Reply::Array(keys) = &parts[1] else { panic!("{parts:?}") };
                    for key in keys {
                        let Reply::Bulk(key) = key else { panic!("{key:?}") };
                        self.copies.remove(std::str::from_utf8(key).unwrap());
                    }
                }
                reply => return reply,
            }
        }
    }

    /// All that has been sent so far has been heard.
    fn catch_up(&mut self) {
        self.client.send(&request(["PING"]));
        assert_eq!(self.reply(), Reply::Simple("PONG".to_owned()));
    }

    fn get(&mut self, key: &str, choose: bool) -> i64 {
        if let Some(copy) = self.copies.get(key) {
            return *copy;
        }
        if choose {
            self.client.send(&request(["CLIENT", "CACHING", "YES"]));
            self.reply();
        }
        self.client.send(&request(["GET", key]));
        let value = match self.reply() {
            Reply::Bulk(value) => String::from_utf8(value).unwrap().parse().unwrap(),
            _ => 0,
        };
        self.copies.insert(key.to_owned(), value);
        value
    }
}

marked!(also_redis: a_copy_is_never_older_than_a_write_that_was_answered);
fn a_copy_is_never_older_than_a_write_that_was_answered() {
    const KEYS: [&str; 2] = ["x", "y"];
    const WRITES: usize = 3000;
    let server = Server::start();
    let answered = [AtomicI64::new(0), AtomicI64::new(0)];
    let (use_copies, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let (answered, use_copies, is_over) = (&answered, &use_copies, &is_over);
        let end = SetOnDrop(is_over);
        let readers = ["", "OPTIN", "BCAST", "BCAST PREFIX x PREFIX y NOLOOP"].map(|options| {
            let (client, _) = reader_and_writer(&server, options);
            let mut cache = Cache { client, copies: HashMap::new() };
            scope.spawn(move || {
                let mut uses_copies = false;
                while !is_over.load(Ordering::Acquire) {
                    for (key, answered) in KEYS.iter().zip(answered) {
                        let least = answered.load(Ordering::Acquire);
                        cache.catch_up();
                        if cache.copies.contains_key(*key) && !uses_copies {
                            uses_copies = true;
                            use_copies.fetch_add(1, Ordering::Relaxed);
                        }
                        let value = cache.get(key, options == "OPTIN");
                        assert!(value >= least, "{options}: {key} is {value}, and was {least} before");
                    }
                }
                uses_copies
            })
        });
        let writers = [0, 1].map(|which| {
            let mut client = server.client();
            scope.spawn(move || {
                for round in 0..WRITES {
                    let key = KEYS[(round + which) % 2];
                    let value = match round % 3 {
                        0 => client.cmd(["INCR", key]).integer(),
                        1 => client.cmd(["EVAL", "return redis.call('incr', ARGV[1])", "0", key]).integer(),
                        _ => {
                            client.line("MULTI").is_ok();
                            client.cmd(["INCR", key]).is_simple("QUEUED");
                            let [Reply::Integer(value)] = client.line("EXEC").items()[..] else {
                                panic!("no transaction")
                            };
                            value
                        }
                    };
                    answered[(round + which) % 2].fetch_max(value, Ordering::Release);
                }
            })
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        // There are no more writes: from here on copies are used.
        let deadline = Instant::now() + PATIENCE;
        while use_copies.load(Ordering::Relaxed) < readers.len() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        drop(end);
        for reader in readers {
            assert!(reader.join().unwrap(), "no copy was ever used");
        }
    });
}
