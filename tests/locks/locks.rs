//! The lock lens: what LOCKS shows of locks that are taken, refused, extended and released, and each of its
//! findings, once provoked and once nearly.

use std::fs::File;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use keyfast::internals::persistence::rdb::{Form, Writer};

use support::client::{Client, Reply};
use support::folder::Folder;
use support::replies::{array, field, integer, text};
use support::server::{PATIENCE, Server, wait_until};

const RELEASE: &str = "EVAL \"if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end\" 1";

/// A server with some clients of RESP3, which set their names, and one that observes them.
pub(crate) fn locksmiths<const N: usize>(names: [&str; N]) -> (Client, [Client; N], Server) {
    let server = Server::start();
    let clients = names.map(|name| {
        let mut client = server.client3();
        client.cmd(["CLIENT", "SETNAME", name]).is_ok();
        client
    });
    (server.client3(), clients, server)
}

/// A server whose clock stands, with some clients of RESP3, and one that observes them.
pub(crate) fn frozen<const N: usize>(names: [&str; N]) -> (Client, [Client; N], Server) {
    let server = Server::start_with(&["--enable-clock-command", "yes", "--enable-fault-command", "yes"]);
    let mut observer = server.client3();
    observer.line("CLOCK FREEZE").is_ok();
    let clients = names.map(|name| {
        let mut client = server.client3();
        client.cmd(["CLIENT", "SETNAME", name]).is_ok();
        client
    });
    (observer, clients, server)
}

/// All findings so far, the oldest first: rule, key, and the names of the clients.
pub(crate) fn findings(observer: &mut Client) -> Vec<(String, String, Vec<String>)> {
    let found = observer.line("LOCKS LOG -1").items();
    let describe = |finding: &Reply| {
        let clients = array(finding, "clients");
        let names = clients.iter().map(|client| text(client, "name")).collect();
        (text(finding, "rule"), text(finding, "key"), names)
    };
    found.iter().rev().map(describe).collect()
}

/// The rules that were found, with the names of the clients.
#[track_caller]
pub(crate) fn is_found(observer: &mut Client, expected: &[(&str, &[&str])]) {
    let found = findings(observer);
    let found: Vec<(&str, Vec<&str>)> = found
        .iter()
        .map(|(rule, _, names)| (rule.as_str(), names.iter().map(String::as_str).collect()))
        .collect();
    let expected: Vec<(&str, Vec<&str>)> =
        expected.iter().map(|(rule, names)| (*rule, names.to_vec())).collect();
    assert_eq!(found, expected);
}

#[track_caller]
fn wait_for_end(observer: &mut Client, key: &str) {
    wait_until("it has expired", || observer.cmd(["EXISTS", key]).integer() == 0);
}

/// A moment as the page of SETNX has clients write it into a lock: in seconds from now.
fn stamp(seconds: i64) -> String {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
    (now_s + seconds).to_string()
}

#[test]
fn a_lock_is_shown_with_its_holder_and_those_who_did_not_get_it() {
    let (mut observer, [mut holder, mut other], _server) = locksmiths(["holder", "other"]);
    holder.line("CLIENT SETINFO LIB-NAME redis-rs").is_ok();
    holder.line("CLIENT SETINFO LIB-VER 1.0").is_ok();
    let id = holder.line("CLIENT ID").integer();
    holder.line("SET lock:a secret-token NX PX 60000").is_ok();
    for _ in 0..3 {
        other.line("SET lock:a mine NX PX 60000").is_nil();
    }
    other.line("SETNX lock:a mine").is(0);

    let shown = observer.line("LOCKS GET lock:a").reply();
    assert_eq!(text(&shown, "state"), "held");
    assert_eq!(integer(&shown, "holder.id"), id);
    assert_eq!(text(&shown, "holder.name"), "holder");
    assert_eq!(text(&field(&shown, "holder"), "library"), "redis-rs 1.0");
    assert_eq!(text(&shown, "holder.address"), holder.local_address().to_string());
    assert_eq!(text(&shown, "taken-by"), "set");
    assert_eq!(integer(&shown, "refused"), 4);
    let refused = array(&shown, "refused-clients");
    assert_eq!((text(&refused[0], "client.name"), integer(&refused[0], "times")), ("other".to_owned(), 4));
    let (expires_at, since) = (integer(&shown, "expires-at"), integer(&shown, "since"));
    assert_eq!(expires_at, observer.line("PEXPIRETIME lock:a").integer());
    // The moment of an expiry is rounded up.
    assert!((59_000..=60_001).contains(&(expires_at - since)));
    assert_eq!(text(&shown, "token-digest"), observer.line("DIGEST lock:a").text());
    assert!(!shown.to_string().contains("secret-token"), "the token stays secret: {shown}");
    let timeline: Vec<String> = array(&shown, "timeline").iter().map(Reply::to_string).collect();
    assert!(timeline[0].contains("'holder'") && timeline[0].contains("SET took it"), "{timeline:?}");
    assert!(timeline[1].contains("SET was refused, 3 times"), "{timeline:?}");

    holder.line("DELIFEQ lock:a secret-token").is(1);
    let shown = observer.line("LOCKS GET lock:a").reply();
    assert_eq!(text(&shown, "state"), "released");
    is_found(&mut observer, &[]);
}

#[test]
fn a_key_that_is_no_lock_is_not_shown() {
    let (mut observer, [mut client], _server) = locksmiths(["client"]);
    client.line("SET a 1").is_ok();
    client.line("SET b 1 PX 60000").is_ok();
    client.line("MSETNX c 1 d 1").is(1);
    client.line("SET a 2 XX").is_ok();
    client.line("SETNX counter 0").is(1);
    client.line("INCR counter").is(1);
    for key in ["a", "b", "c", "counter", "nosuchkey"] {
        observer.cmd(["LOCKS", "GET", key]).is_nil();
    }
    assert_eq!(observer.line("LOCKS LIST").items(), []);
}

#[test]
fn locks_are_listed_by_database_and_pattern() {
    let (mut observer, [mut client], _server) = locksmiths(["client"]);
    for key in ["lock:1", "lock:2", "job:1"] {
        client.cmd(["SETNX", key, "t"]).is(1);
    }
    client.line("SELECT 1").is_ok();
    client.line("SET lock:3 t NX GET").is_nil();
    let mut keys = |line: &str| -> Vec<String> {
        observer.line(line).items().iter().map(|lock| text(lock, "key")).collect()
    };
    let mut listed = keys("LOCKS LIST");
    listed.sort();
    assert_eq!(listed, ["job:1", "lock:1", "lock:2"]);
    assert_eq!(keys("LOCKS LIST MATCH lock:* COUNT 1").len(), 1);
    assert_eq!(keys("LOCKS LIST MATCH job:*"), ["job:1"]);
    observer.line("SELECT 1").is_ok();
    assert_eq!(observer.line("LOCKS LIST").items().len(), 1);
    observer.line("FLUSHALL").is_ok();
    assert_eq!(observer.line("LOCKS LIST").items(), [], "what is not there is not held");
    assert_eq!(text(&observer.line("LOCKS GET lock:3").reply(), "state"), "flushed");
}

#[test]
fn resp2_has_flat_arrays_for_maps() {
    let server = Server::start();
    let mut client = server.client();
    client.line("SETNX lock t").is(1);
    let items = client.line("LOCKS GET lock").items();
    assert_eq!(items[..4], ["key".into(), "lock".into(), "state".into(), "held".into()]);
    assert!(matches!(&items[5], Reply::Array(holder) if holder[0] == "id".into()));
}

#[test]
fn every_holder_gets_a_larger_number_to_fence_with() {
    let server = Server::start();
    let mut client = server.client3();
    let mut last = 0;
    for _ in 0..5 {
        client.line("SET lock t NX PX 60000").is_ok();
        let fence = integer(&client.line("LOCKS GET lock").reply(), "fencing");
        assert!(fence > last);
        assert_eq!(integer(&client.line("LOCKS GET lock").reply(), "fencing"), fence, "while it is held");
        last = fence;
        client.line("DEL lock").is(1);
    }
    drop(server);
    let mut client = Server::start().into_client();
    client.line("HELLO 3").ignored();
    client.line("SETNX lock t").is(1);
    assert!(integer(&client.line("LOCKS GET lock").reply(), "fencing") > last, "also after a restart");
}

#[test]
fn numbers_to_fence_with_go_on_where_a_snapshot_says_whatever_the_clock_says() {
    const LAST: u64 = 9_000_000_000_000_000;
    let folder = Folder::new("fencing");
    let file = File::create(folder.file("dump.rdb")).unwrap();
    let mut writer = Writer::with_header(
        file,
        Form { compresses: false, has_checksum: true },
        keyfast::internals::dump::VERSION,
    );
    writer.auxiliary(b"keyfast-fencing", LAST.to_string().as_bytes()).unwrap();
    writer.finish().unwrap();
    let server = Server::start_with(&["--dir", &folder.file("")]);
    let mut client = server.client3();
    client.line("SETNX lock t").is(1);
    assert_eq!(integer(&client.line("LOCKS GET lock").reply(), "fencing"), LAST as i64 + 1);
    client.line("SAVE").is_ok();
    drop((client, server));
    let mut client = Server::start_with(&["--dir", &folder.file("")]).into_client();
    client.line("HELLO 3").ignored();
    client.line("SETNX another t").is(1);
    assert_eq!(integer(&client.line("LOCKS GET another").reply(), "fencing"), LAST as i64 + 2);
}

#[test]
fn numbers_to_fence_with_go_on_where_a_log_says() {
    const LAST: u64 = 9_000_000_000_000_000;
    let folder = Folder::new("fencing-log");
    let log = format!("#KEYFAST-FENCING:{LAST}\r\n*1\r\n$7\r\nFLUSHDB\r\n");
    folder.write("appendonly.aof", &log);
    let options = ["--dir", &folder.file(""), "--appendonly", "yes", "--appendfsync", "always"];
    for round in 1..4 {
        let server = Server::start_with(&options);
        let mut client = server.client3();
        let lock = format!("lock:{round}");
        client.cmd(["SETNX", &lock, "t"]).is(1);
        let fencing = integer(&client.cmd(["LOCKS", "GET", &lock]).reply(), "fencing");
        assert_eq!(fencing, LAST as i64 + round, "killed as often");
    }
}

#[test]
fn statistics_count_and_begin_anew() {
    let (mut observer, [mut one, mut other], _server) = locksmiths(["one", "other"]);
    one.line("SETNX a t").is(1);
    one.line("SET b t NX PX 1").is_ok();
    other.line("SETNX a t").is(0);
    wait_for_end(&mut observer, "b");
    other.line("DEL a").is(1);
    let stats = observer.line("LOCKS STATS").reply();
    for (name, expected) in [
        ("followed", 2),
        ("held", 0),
        ("taken", 2),
        ("refused", 1),
        ("released", 0),
        ("expired", 1),
        ("unfollowed", 0),
        ("deleted-by-another", 1),
        ("no-expiry", 0),
    ] {
        assert_eq!(integer(&stats, name), expected, "{name}");
    }
    assert_eq!(observer.info("locks_deleted_by_another"), "1");
    assert_eq!(observer.info("lock_lens"), "1");
    observer.line("LOCKS RESET").is_ok();
    assert_eq!(observer.line("LOCKS LOG").items(), []);
    assert_eq!(integer(&observer.line("LOCKS STATS").reply(), "taken"), 0);
}

#[test]
fn the_lens_can_be_closed() {
    let (mut observer, [mut client], _server) = locksmiths(["client"]);
    observer.line("CONFIG SET lock-lens no").is_ok();
    client.line("SETNX lock t").is(1);
    observer.line("LOCKS GET lock").is_nil();
    observer.line("CONFIG SET lock-lens yes").is_ok();
    client.line("DEL lock").is(1);
    client.line("SETNX lock t").is(1);
    assert_eq!(text(&observer.line("LOCKS GET lock").reply(), "state"), "held");
}

#[test]
fn more_locks_than_can_be_followed_are_counted() {
    let server = Server::start();
    let mut client = server.client3();
    for batch in 0..20 {
        let requests: Vec<u8> = (0..1000)
            .flat_map(|number| {
                let key = format!("lock:{batch}:{number}");
                format!("*3\r\n$5\r\nSETNX\r\n${}\r\n{key}\r\n$1\r\nt\r\n", key.len()).into_bytes()
            })
            .collect();
        client.send(&requests);
        for _ in 0..1000 {
            client.reply().is(1);
        }
    }
    let stats = client.line("LOCKS STATS").reply();
    assert!(integer(&stats, "followed") <= 4096);
    assert_eq!(integer(&stats, "taken") + integer(&stats, "unfollowed"), 20_000);
    client.line("LOCKS RESET").is_ok();
    assert_eq!(integer(&client.line("LOCKS STATS").reply(), "unfollowed"), 0);
}

#[test]
fn after_a_reset_what_was_followed_before_counts_no_more() {
    let server = Server::start_with(&["--enable-debug-command", "yes"]);
    let mut client = server.client3();
    // Otherwise a tenth of a second later as much may be reported as before.
    client.line("DEBUG PAUSE-CRON 1").is_ok();
    let unfollowed = |client: &mut Client| integer(&client.line("LOCKS STATS").reply(), "unfollowed");
    for number in 0..1000 {
        client.line(&format!("SETNX lock:{number} t")).is(1);
    }
    assert!(unfollowed(&mut client) > 0);
    client.line("LOCKS RESET").is_ok();
    client.line("SETNX lock t").is(1);
    assert_eq!(text(&client.line("LOCKS GET lock").reply(), "state"), "held");
    assert_eq!(unfollowed(&mut client), 0);
}

#[test]
fn bad_requests_are_errors() {
    let mut client = Server::start().into_client();
    client.line("LOCKS LIST COUNT 0").is_error("ERR syntax error");
    client.line("LOCKS LIST COUNT x").is_error("ERR value is not an integer or out of range");
    client.line("LOCKS LIST MATCH").is_error("ERR syntax error");
    client.line("LOCKS LOG 1 2").is_error("ERR syntax error");
    client.line("LOCKS NOSUCH").is_error("ERR unknown subcommand 'NOSUCH'. Try LOCKS HELP.");
    assert!(client.line("LOCKS HELP").items().len() > 8);
}

#[test]
fn deleted_by_another() {
    let (mut observer, [mut holder, mut other], server) = locksmiths(["holder", "other"]);
    holder.line("SET lock t NX PX 60000").is_ok();
    other.line("DEL lock").is(1);
    is_found(&mut observer, &[("deleted-by-another", &["other", "holder"])]);
    server.wait_for_output("Lock lens: deleted-by-another on key \"lock\" by client");
    let finding = observer.line("LOCKS LOG 1").items().remove(0);
    let instead = text(&finding, "instead");
    assert!(instead.starts_with("the release call of your lock library; or EVAL"), "{instead}");
    let timeline: Vec<String> = array(&finding, "timeline").iter().map(Reply::to_string).collect();
    assert!(timeline[0].contains("'holder'") && timeline[0].contains("SET took it"), "{timeline:?}");
    assert!(timeline[1].contains("'other'") && timeline[1].contains("DEL deleted it"), "{timeline:?}");
    assert_eq!(text(&observer.line("LOCKS GET lock").reply(), "state"), "deleted-by-another");
}

#[test]
fn deleted_by_another_in_the_documents_race() {
    let (mut observer, [mut crashed, mut c1, mut c2], _server) = frozen(["crashed", "c1", "c2"]);
    let now_s = observer.line("TIME").items()[0].to_string().trim_matches('"').parse::<i64>().unwrap();
    let stamp = |seconds: i64| (now_s + seconds).to_string();
    crashed.cmd(["SETNX", "lock", &stamp(20)]).is(1);
    observer.line("CLOCK ADVANCE 30000").is_ok();
    for client in [&mut c1, &mut c2] {
        client.cmd(["SETNX", "lock", &stamp(60)]).is(0);
        client.line("GET lock").text();
    }
    c1.line("DEL lock").is(1);
    c1.cmd(["SETNX", "lock", &stamp(60)]).is(1);
    is_found(&mut observer, &[]);
    c2.line("DEL lock").is(1);
    c2.cmd(["SETNX", "lock", &stamp(60)]).is(1);
    is_found(&mut observer, &[("deleted-by-another", &["c2", "c1"])]);
    let shown = observer.line("LOCKS GET lock").reply();
    assert_eq!(text(&shown, "holder.name"), "c2");
    let past: Vec<String> = array(&shown, "past").iter().map(|past| text(past, "holder.name")).collect();
    assert_eq!(past, ["c1", "crashed"]);
}

#[test]
fn not_deleted_by_another() {
    let (mut observer, [mut holder, mut other], _server) = locksmiths(["holder", "other"]);
    for release in ["DEL lock", "UNLINK lock", "GETDEL lock", "DELIFEQ lock t", &format!("{RELEASE} lock t")]
    {
        holder.line("SET lock t NX PX 60000").is_ok();
        holder.line(release).ignored();
        assert_eq!(observer.line("EXISTS lock").integer(), 0, "{release}");
    }
    // Another connection that knows the token is most likely the holder's own.
    for release in ["DELIFEQ lock t", "DELEX lock IFEQ t", &format!("{RELEASE} lock t")] {
        holder.line("SET lock t NX PX 60000").is_ok();
        other.line(release).is(1);
    }
    holder.line("SET lock t NX PX 60000").is_ok();
    for line in ["WATCH lock", "GET lock", "MULTI", "DEL lock", "EXEC"] {
        other.line(line).ignored();
    }
    assert_eq!(observer.line("EXISTS lock").integer(), 0);
    // A key that is not tracked as a lock.
    other.line("SET lock t").is_ok();
    holder.line("DEL lock").is(1);
    is_found(&mut observer, &[]);
}

#[test]
fn expiry_set_separately() {
    let (mut observer, [mut client], _server) = locksmiths(["client"]);
    client.line("SETNX lock t").is(1);
    client.line("EXPIRE lock 60").is(1);
    client.line("EXPIRE lock 90").is(1);
    is_found(&mut observer, &[("expiry-set-separately", &["client"])]);
    let finding = observer.line("LOCKS LOG").items().remove(0);
    assert_eq!(text(&finding, "instead"), "SET key token NX PX milliseconds");
}

#[test]
fn expiry_not_set_separately() {
    let (mut observer, [mut client, mut other], _server) = locksmiths(["client", "other"]);
    client.line("SET extended t NX PX 60000").is_ok();
    client.line("PEXPIRE extended 90000").is(1);
    for line in ["MULTI", "SETNX multi t", "EXPIRE multi 60", "EXEC"] {
        client.line(line).ignored();
    }
    client
        .line("EVAL \"redis.call('setnx',KEYS[1],'t') redis.call('expire',KEYS[1],60)\" 1 script")
        .ignored();
    assert_eq!(observer.line("TTL script").integer() + observer.line("TTL multi").integer(), 120);
    client.line("SETNX another t").is(1);
    other.line("EXPIRE another 60").is(1);
    client.line("SET nolock t").is_ok();
    client.line("EXPIRE nolock 60").is(1);
    is_found(&mut observer, &[]);
}

#[test]
fn expired_while_held() {
    let came_back = ["DEL lock", "PEXPIRE lock 60000", "DELIFEQ lock t", &format!("{RELEASE} lock t")];
    for late in came_back {
        let (mut observer, [mut holder, mut next], _server) = locksmiths(["holder", "next"]);
        holder.line("SET lock t NX PX 1").is_ok();
        wait_for_end(&mut observer, "lock");
        holder.line(late).is(0);
        is_found(&mut observer, &[("expired-while-held", &["holder"])]);
        // Also if another has it by now; a holder that compares does no harm.
        holder.line("SET lock u NX PX 1").is_ok();
        wait_for_end(&mut observer, "lock");
        next.line("SET lock v NX PX 60000").is_ok();
        holder.line("DELIFEQ lock u").is(0);
        is_found(
            &mut observer,
            &[("expired-while-held", &["holder"]), ("expired-while-held", &["holder", "next"])],
        );
    }
}

#[test]
fn not_expired_while_held() {
    let (mut observer, [mut holder, mut other], _server) = locksmiths(["holder", "other"]);
    holder.line("SET lock t NX PX 60000").is_ok();
    holder.line("DELIFEQ lock wrong").is(0);
    holder.line("DELIFEQ lock t").is(1);
    holder.line("SET lock t NX PX 1").is_ok();
    wait_for_end(&mut observer, "lock");
    // It has expired, and its holder only looks, or another tidies up, or it is taken once more.
    holder.line("GET lock").is_nil();
    holder.line("TTL lock").is(-2);
    other.line("DEL lock").is(0);
    other.line("DELIFEQ lock other").is(0);
    holder.line("SET lock u NX PX 60000").is_ok();
    holder.line("PEXPIRE lock 60000").is(1);
    holder.line("DEL lock").is(1);
    // The holder's wrong token is another mistake.
    is_found(&mut observer, &[("released-by-stranger", &["holder"])]);
}

#[test]
fn takeover_overwritten() {
    let (mut observer, [mut crashed, mut winner, mut loser], _server) =
        locksmiths(["crashed", "winner", "loser"]);
    let (old, new) = (stamp(-10), stamp(30));
    crashed.cmd(["SETNX", "lock", &old]).is(1);
    for client in [&mut winner, &mut loser] {
        client.cmd(["SETNX", "lock", &new]).is(0);
        client.line("GET lock").is(old.as_str());
    }
    winner.cmd(["GETSET", "lock", &new]).is(old.as_str());
    is_found(&mut observer, &[]);
    assert_eq!(text(&observer.line("LOCKS GET lock").reply(), "holder.name"), "winner");
    loser.cmd(["GETSET", "lock", &stamp(31)]).is(new.as_str());
    is_found(&mut observer, &[("takeover-overwritten", &["loser", "winner"])]);
    assert_eq!(text(&observer.line("LOCKS GET lock").reply(), "holder.name"), "winner", "all the same");
}

#[test]
fn takeover_not_overwritten() {
    let (mut observer, [mut crashed, mut winner, mut loser], _server) =
        locksmiths(["crashed", "winner", "loser"]);
    crashed.cmd(["SETNX", "lock", &stamp(-10)]).is(1);
    winner.cmd(["GETSET", "lock", &stamp(30)]).text();
    // A holder may extend its own; and what is no time stamp is another matter.
    winner.cmd(["GETSET", "lock", &stamp(60)]).text();
    winner.cmd(["SETNX", "other", "token"]).is(1);
    loser.cmd(["GETSET", "other", "token2"]).is("token");
    is_found(&mut observer, &[]);
    let shown = observer.line("LOCKS GET other").reply();
    assert_eq!(text(&shown, "holder.name"), "loser");
    assert_eq!(text(&array(&shown, "past")[0], "state"), "taken-over");
}

#[test]
fn released_twice() {
    for release in ["DEL lock", "DELIFEQ lock t", &format!("{RELEASE} lock t")] {
        let (mut observer, [mut holder], _server) = locksmiths(["holder"]);
        holder.line("SET lock t NX PX 60000").is_ok();
        holder.line(release).is(1);
        holder.line(release).is(0);
        is_found(&mut observer, &[("released-twice", &["holder"])]);
    }
}

#[test]
fn not_released_twice() {
    let (mut observer, [mut holder, mut other], _server) = locksmiths(["holder", "other"]);
    for _ in 0..2 {
        holder.line("SET lock t NX PX 60000").is_ok();
        holder.line("DEL lock").is(1);
    }
    other.line("DEL lock").is(0);
    holder.line("GET lock").is_nil();
    holder.line("EXPIRE lock 10").is(0);
    // A script that takes a lock looks for it first, too.
    holder.line("EVAL \"return redis.call('get',KEYS[1])\" 1 lock").is_nil();
    holder.line("DEL nosuchlock").is(0);
    is_found(&mut observer, &[]);
}

#[test]
fn no_expiry() {
    let (mut observer, [mut holder], _server) = locksmiths(["holder"]);
    holder.line("SETNX lock t").is(1);
    drop(holder);
    wait_until("it is found", || !findings(&mut observer).is_empty());
    is_found(&mut observer, &[("no-expiry", &["holder"])]);
    let shown = observer.line("LOCKS GET lock").reply();
    assert_eq!(field(&shown, "holder-connected"), Reply::Boolean(false));
}

#[test]
fn not_without_expiry() {
    let (mut observer, [mut holder, mut last], _server) = locksmiths(["holder", "last"]);
    holder.line("SET expiring t NX PX 60000").is_ok();
    holder.cmd(["SETNX", "stamped", &stamp(30)]).is(1);
    holder.line("SETNX released t").is(1);
    holder.line("DEL released").is(1);
    holder.line("SET nolock t").is_ok();
    let id = holder.line("CLIENT ID").integer().to_string();
    drop(holder);
    // One more event: earlier events are delivered before it, in their order.
    wait_until("it is gone", || observer.cmd(["CLIENT", "LIST", "ID", &id]).text().is_empty());
    last.line("SETNX lock t").is(1);
    drop(last);
    wait_until("it is found", || !findings(&mut observer).is_empty());
    is_found(&mut observer, &[("no-expiry", &["last"])]);
}

#[test]
fn long_names_of_clients_are_cut_where_the_server_remembers_them() {
    const LONG: usize = 1 << 20;
    let server = Server::start();
    let mut observer = server.client3();
    let used_before: usize = observer.info("used_memory").parse().unwrap();
    observer.line("CONFIG SET slowlog-log-slower-than 0").is_ok();
    let names: Vec<String> = (b'a'..b'm').map(|letter| char::from(letter).to_string().repeat(LONG)).collect();
    for name in &names {
        let mut client = server.client();
        client.cmd(["CLIENT", "SETNAME", name]).is_ok();
        client.line("SETNX taken-by-the-first value").reply();
        client.cmd(["SETNX", &format!("own:{}", &name[..1]), "value"]).is(1);
    }
    observer.line("CONFIG SET slowlog-log-slower-than -1").is_ok();
    let cut = |name: &str| format!("{}... ({} more bytes)", &name[..128], LONG - 128);
    let lock = observer.line("LOCKS GET taken-by-the-first").reply();
    assert_eq!(text(&lock, "holder.name"), cut(&names[0]));
    assert_eq!(observer.line("LOCKS LIST").items().len(), 13);
    let slow = observer.line("SLOWLOG GET 1").items();
    let Reply::Array(fields) = &slow[0] else { panic!("{slow:?}") };
    assert_eq!(fields[5], Reply::from(cut(&names[11]).as_str()));
    let deadline = Instant::now() + PATIENCE;
    loop {
        // Those who have left are gone when the server has seen it.
        let used: usize = observer.info("used_memory").parse().unwrap();
        if used < used_before + LONG {
            return;
        }
        assert!(Instant::now() < deadline, "{} bytes are left", used - used_before);
        thread::sleep(Duration::from_millis(5));
    }
}

/// A digest of 64 bits lets a client guess a short token, and with the token release the lock.
#[test]
fn a_user_sees_only_the_locks_that_it_may_read() {
    let (mut admin, [mut holder], server) = locksmiths(["holder"]);
    for key in ["a:lock", "b:lock", "c:lock"] {
        holder.line(&format!("SET {key} token NX PX 60000")).is_ok();
        // A finding about each: a client that does not hold the lock deletes it.
        admin.line(&format!("DEL {key}")).is(1);
        holder.line(&format!("SET {key} token NX PX 60000")).is_ok();
    }
    let mut as_user = |rules: &str| {
        admin.line(&format!("ACL SETUSER user reset on nopass {rules}")).is_ok();
        let mut client = server.client3();
        client.line("AUTH user any").is_ok();
        client
    };
    let keys = |maps: Vec<Reply>| {
        let mut keys: Vec<_> = maps.iter().map(|map| text(map, "key")).collect();
        keys.sort_unstable();
        keys
    };

    let mut writer = as_user("+locks +digest %W~b:* ~a:*");
    let denied = "NOPERM No permissions to access a key";
    writer.line("DIGEST b:lock").is_error(denied);
    writer.line("LOCKS GET b:lock").is_error(denied);
    assert_eq!(text(&writer.line("LOCKS GET a:lock").reply(), "state"), "held");
    assert_eq!(keys(writer.line("LOCKS LIST").items()), ["a:lock"]);
    assert_eq!(keys(writer.line("LOCKS LIST MATCH b:* COUNT 5").items()), Vec::<String>::new());
    assert_eq!(keys(writer.line("LOCKS LOG").items()), ["a:lock"]);
    // The count is one of findings that are shown.
    assert_eq!(keys(writer.line("LOCKS LOG 1").items()), ["a:lock"]);

    // One selector must allow both, the command and the key.
    let mut reader = as_user("+ping ~a:* (+locks %R~c:*)");
    assert_eq!(keys(reader.line("LOCKS LIST").items()), ["c:lock"]);
    assert_eq!(keys(reader.line("LOCKS LOG").items()), ["c:lock"]);
    let mut all = as_user("+locks allkeys");
    assert_eq!(keys(all.line("LOCKS LIST").items()), ["a:lock", "b:lock", "c:lock"]);
}
