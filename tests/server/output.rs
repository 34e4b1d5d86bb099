//! Replies that a client is slow to take: pipelines of any depth, what they cost, and the limits.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use support::certificates::Certificates;
use support::client::{Client, request};
use support::folder::Folder;
use support::replies::field_of;
use support::server::{PATIENCE, Server, free_port, is_redis, wait_until};

const MIB: usize = 1 << 20;

/// How long a deep pipeline may take on a busy machine.
const DEEP_PATIENCE: Duration = Duration::from_secs(60);

/// The line of CLIENT LIST about a client.
pub(crate) fn described(asking: &mut Client, id: i64) -> Option<String> {
    let list = asking.line("CLIENT LIST").text();
    list.lines().find(|line| field_of(line, "id") == id.to_string()).map(str::to_owned)
}

/// A number in that line.
#[track_caller]
pub(crate) fn figure(asking: &mut Client, id: i64, name: &str) -> usize {
    let line = described(asking, id).expect("the client is listed");
    field_of(&line, name).parse().expect("a number")
}

/// Requests and the replies that they have: more of both than all buffers between two programs hold, and
/// far more than a server that wants its replies read goes on for.
fn deep_pipeline() -> (Vec<u8>, Vec<u8>) {
    const REQUESTS: usize = 60_000;
    let text = "0123456789".repeat(40);
    let replies = format!("${}\r\n{text}\r\n", text.len()).into_bytes();
    (request(["ECHO", &text]).repeat(REQUESTS), replies.repeat(REQUESTS))
}

/// Writes all requests before the first byte of a reply is read.
fn write_then_read(stream: &mut (impl Read + Write)) {
    let (requests, expected) = deep_pipeline();
    stream.write_all(&requests).expect("the server goes on reading");
    stream.flush().expect("the server goes on reading");
    let mut replies = vec![0; expected.len()];
    stream.read_exact(&mut replies).expect("every request is answered");
    assert!(replies == expected, "other replies than those that were asked for");
}

#[test]
fn a_pipeline_may_be_written_whole_before_its_first_reply_is_read() {
    let folder = Folder::new("deep-pipeline");
    let path = folder.file("server.sock");
    let server = Server::start_on(free_port(), &["--unixsocket", &path]);
    let client = server.client();
    client.stream().set_read_timeout(Some(DEEP_PATIENCE)).unwrap();
    client.stream().set_write_timeout(Some(DEEP_PATIENCE)).unwrap();
    write_then_read(&mut client.stream());
    let mut unix = UnixStream::connect(&path).expect("the server accepts");
    unix.set_read_timeout(Some(DEEP_PATIENCE)).unwrap();
    unix.set_write_timeout(Some(DEEP_PATIENCE)).unwrap();
    write_then_read(&mut unix);
    server.client().line("PING").is_simple("PONG");
}

#[test]
fn a_pipeline_over_tls_may_be_as_deep() {
    let certificates = Certificates::new("deep-tls");
    let (server, tls_port) = certificates.serve("no");
    let mut client = certificates.client(tls_port, false);
    client.sock.set_read_timeout(Some(DEEP_PATIENCE)).unwrap();
    client.sock.set_write_timeout(Some(DEEP_PATIENCE)).unwrap();
    write_then_read(&mut client);
    server.client().line("PING").is_simple("PONG");
}

/// Asks for a value of one MiB so many times, and reads nothing.
fn ask_for_mebibytes(client: &mut Client, count: usize) {
    client.cmd([b"SET", &b"mebibyte"[..], &vec![b'v'; MIB]]).is_ok();
    client.send(&request(["GET", "mebibyte"]).repeat(count));
}

#[test]
fn a_client_that_reads_slowly_costs_no_more_than_its_replies() {
    const REPLIES: usize = 64;
    let server = Server::start();
    let (mut slow, mut asking) = (server.client(), server.client());
    let id = slow.line("CLIENT ID").integer();
    asking.line("PING").is_simple("PONG");
    let used = |asking: &mut Client| asking.info("used_memory").parse::<usize>().expect("a number");
    let (before, used_before) = (figure(&mut asking, id, "tot-mem"), used(&mut asking));
    ask_for_mebibytes(&mut slow, REPLIES);
    // Two or three MiB may lie in the sockets.
    wait_until("all is executed", || figure(&mut asking, id, "omem") > (REPLIES - 16) * MIB);
    wait_until("it has sent all", || figure(&mut asking, id, "qbuf") == 0);
    let line = described(&mut asking, id).expect("it is there");
    assert!(field_of(&line, "oll").parse::<usize>().expect("a number") > 0, "{line}");
    assert_eq!(field_of(&line, "events"), "rw", "{line}");
    let pending = figure(&mut asking, id, "tot-mem");
    assert!(pending < (REPLIES + 2) * MIB, "{pending} bytes for {REPLIES} MiB of replies");
    assert!(asking.info("mem_clients_normal").parse::<usize>().expect("a number") > (REPLIES - 16) * MIB);
    asking.line("SET other v").is_ok();
    // Half of it, …
    for _ in 0..REPLIES / 2 {
        assert_eq!(slow.reply_bytes().len(), MIB + "$1048576\r\n\r\n".len());
    }
    wait_until("half of it is given back", || figure(&mut asking, id, "tot-mem") < (REPLIES / 2 + 2) * MIB);
    // … and the rest.
    for _ in 0..REPLIES / 2 {
        slow.reply_bytes();
    }
    wait_until("all of it is given back", || figure(&mut asking, id, "tot-mem") <= before + 64 * 1024);
    assert_eq!(figure(&mut asking, id, "omem") + figure(&mut asking, id, "obl"), 0);
    let kept = used(&mut asking).saturating_sub(used_before);
    assert!(kept < 3 * MIB, "{kept} bytes stay in use");
    slow.line("PING").is_simple("PONG");
}

/// Not beside Redis 8, which counts a value only once that it sends several times.
#[test]
fn a_client_that_never_reads_is_cut_off_at_the_hard_limit() {
    let server = Server::start_with(&["--client-output-buffer-limit", "normal 32mb 0 0"]);
    let (mut deaf, mut other) = (server.client(), server.client());
    deaf.cmd([b"SET", &b"mebibyte"[..], &vec![b'v'; MIB]]).is_ok();
    let before = server.resident_bytes();
    // 4 GiB of replies, asked for as long as the server takes the requests.
    let requests = request(["GET", "mebibyte"]).repeat(4096);
    for _ in 0..16 {
        if deaf.try_send(&requests).is_err() {
            break;
        }
    }
    server.wait_for_output("for overcoming of output buffer limits.");
    wait_until("it is gone", || other.line("CLIENT LIST").text().lines().count() == 1);
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < 64 * MIB, "replies that are not read took {grown} bytes");
    other.line("PING").is_simple("PONG");
}

#[test]
fn without_a_limit_any_number_of_replies_waits() {
    let server = Server::start();
    let (mut deaf, mut asking) = (server.client(), server.client());
    let id = deaf.line("CLIENT ID").integer();
    ask_for_mebibytes(&mut deaf, 256);
    wait_until("all replies wait", || figure(&mut asking, id, "omem") > 240 * MIB);
    asking.line("PING").is_simple("PONG");
    for _ in 0..256 {
        assert_eq!(deaf.reply_bytes().len(), MIB + "$1048576\r\n\r\n".len());
    }
    deaf.line("PING").is_simple("PONG");
}

#[test]
fn the_soft_limit_counts_although_nothing_more_comes() {
    for class in ["normal", "pubsub"] {
        let limit = format!("{class} 0 1mb 1");
        let server = Server::start_with(&["--client-output-buffer-limit", &limit]);
        let (mut slow, mut other) = (server.client(), server.client());
        let since = Instant::now();
        if class == "normal" {
            ask_for_mebibytes(&mut slow, 16);
        } else {
            slow.line("SUBSCRIBE news").ignored();
            for _ in 0..16 {
                other.cmd([b"PUBLISH", &b"news"[..], &vec![b'v'; MIB]]).is(1);
            }
        }
        server.wait_for_output("for overcoming of output buffer limits.");
        assert!(since.elapsed() >= Duration::from_secs(1), "{class} was cut off at once");
        wait_until("it is gone", || other.line("CLIENT LIST").text().lines().count() == 1);
    }
}

#[test]
fn a_soft_limit_forgets_what_was_taken_in_time() {
    // Redis looks at the limit only while something waits, so that it forgets nothing.
    let server = Server::start_with(&["--client-output-buffer-limit", "normal 0 1mb 2"]);
    let (mut slow, mut asking) = (server.client(), server.client());
    let id = slow.line("CLIENT ID").integer();
    let until = Instant::now() + Duration::from_secs(4);
    while Instant::now() < until {
        ask_for_mebibytes(&mut slow, 16);
        for _ in 0..16 {
            slow.reply_bytes();
        }
        wait_until("all is taken", || figure(&mut asking, id, "omem") == 0);
    }
    slow.line("PING").is_simple("PONG");
}

#[test]
fn the_largest_clients_leave_when_all_of_them_take_too_much() {
    let server = Server::start();
    let mut asking = server.client();
    asking.line("CLIENT NO-EVICT on").is_ok();
    let mut clients: Vec<Client> = (0..3).map(|_| server.client()).collect();
    let ids: Vec<i64> = clients.iter_mut().map(|client| client.line("CLIENT ID").integer()).collect();
    for (client, mebibytes) in clients.iter_mut().zip([20, 60, 40]) {
        ask_for_mebibytes(client, mebibytes);
    }
    for (id, mebibytes) in ids.iter().zip([20, 60, 40]) {
        wait_until("its replies wait", || figure(&mut asking, *id, "omem") > (mebibytes - 12) * MIB);
    }
    asking.line("CONFIG SET maxmemory-clients 80mb").is_ok();
    wait_until("the largest has left", || described(&mut asking, ids[1]).is_none());
    assert_eq!(asking.info("evicted_clients"), "1");
    server.wait_for_output(&format!("Evicting client: id={} ", ids[1]));
    asking.line("CONFIG SET maxmemory 400mb maxmemory-clients 10%").is_ok();
    assert_eq!(
        asking.line("CONFIG GET maxmemory-clients").reply().to_string(),
        r#"["maxmemory-clients", "10%"]"#
    );
    wait_until("the next one has left", || described(&mut asking, ids[2]).is_none());
    assert!(described(&mut asking, ids[0]).is_some(), "the smallest stays");
    assert_eq!(asking.info("evicted_clients"), "2");
    for _ in 0..20 {
        assert_eq!(clients[0].reply_bytes().len(), MIB + "$1048576\r\n\r\n".len());
    }
    assert!(asking.info("mem_clients_normal").parse::<usize>().expect("a number") < 3 * MIB);
    asking.line("CONFIG RESETSTAT").is_ok();
    assert_eq!(asking.info("evicted_clients"), "0");
}

marked!(also_redis: a_request_that_takes_more_than_all_clients_may_is_not_executed);
fn a_request_that_takes_more_than_all_clients_may_is_not_executed() {
    let server = Server::start_with(&["--maxmemory-clients", "3000000"]);
    let mut asking = server.client();
    let requests = [1_000_000, 3_000_000].map(|bytes| request([&b"SET"[..], b"k", &vec![b'v'; bytes]]));
    for number in 1..=20 {
        let mut greedy = server.client();
        greedy.send(&requests[0]);
        greedy.reply().is_ok();
        // Its last bytes may come after the end of the connection.
        let _ = greedy.try_send(&requests[1]);
        assert!(greedy.is_closed(), "the request was executed");
        wait_until("it is counted", || asking.info("evicted_clients") == number.to_string());
        asking.line("STRLEN k").is(1_000_000);
    }
}

#[test]
fn a_client_that_comes_to_take_too_much_leaves_and_one_that_is_kept_does_not() {
    let server = Server::start_with(&["--maxmemory-clients", "24mb"]);
    let (mut kept, mut asking) = (server.client(), server.client());
    kept.line("CLIENT NO-EVICT on").is_ok();
    let id = kept.line("CLIENT ID").integer();
    ask_for_mebibytes(&mut kept, 16);
    wait_until("its replies wait", || figure(&mut asking, id, "omem") > 2 * MIB);
    type Way = (&'static str, fn(&mut Client));
    let ways: [Way; 4] = [
        ("output", |client| ask_for_mebibytes(client, 100)),
        ("half a request", |client| {
            client.send(b"*2\r\n$4\r\nECHO\r\n$100000000\r\n");
            let piece = vec![b'x'; MIB];
            let _ = (0..99).try_for_each(|_| client.try_send(&piece));
        }),
        ("MULTI", |client| {
            client.line("MULTI").is_ok();
            let queued = request([b"ECHO", &[b'x'; 16_000][..]]).repeat(10);
            let _ = (0..1000).try_for_each(|_| client.try_send(&queued));
        }),
        ("many arguments", |client| {
            client.send(b"*200000\r\n");
            let arguments = [&b"$1000\r\n"[..], &[b'x'; 1000], b"\r\n"].concat().repeat(100);
            let _ = (0..2000).try_for_each(|_| client.try_send(&arguments));
        }),
    ];
    for (number, (way, take)) in ways.into_iter().enumerate() {
        let mut greedy = server.client();
        greedy.stream().set_write_timeout(Some(PATIENCE)).unwrap();
        take(&mut greedy);
        wait_until(way, || asking.info("evicted_clients") == (number + 1).to_string());
        asking.line("PING").is_simple("PONG");
    }
    assert!(described(&mut asking, id).is_some(), "the one that is kept has left");
}

#[test]
fn values_of_maxmemory_clients_are_bytes_or_percent() {
    let mut client = Server::start().into_client();
    for (given, kept) in [("5%", "5%"), ("0%", "0"), ("100%", "100%"), ("1mb", "1048576"), ("0", "0")] {
        client.cmd(["CONFIG", "SET", "maxmemory-clients", given]).is_ok();
        let told = client.line("CONFIG GET maxmemory-clients").reply().to_string();
        assert_eq!(told, format!("[\"maxmemory-clients\", \"{kept}\"]"));
    }
    let wrong = "argument must be a memory or percent value";
    let beyond = "percentage argument must be less or equal to 100";
    for (given, why) in [("x", wrong), ("-5", wrong), ("5mb%", wrong), ("%", wrong), ("101%", beyond)] {
        client.cmd(["CONFIG", "SET", "maxmemory-clients", given]).is_error(&format!(
            "ERR CONFIG SET failed (possibly related to argument 'maxmemory-clients') - {why}"
        ));
    }
}

marked!(also_redis: what_a_client_has_sent_is_told_of_it);
fn what_a_client_has_sent_is_told_of_it() {
    let server = Server::start();
    let (mut client, mut asking) = (server.client(), server.client());
    let id = client.line("CLIENT ID").integer();
    assert_eq!(figure(&mut asking, id, "multi-mem"), 0);
    let before = figure(&mut asking, id, "tot-mem");
    client.line("MULTI").is_ok();
    for _ in 0..100 {
        client.cmd([b"ECHO", &[b'x'; 1000][..]]).is_simple("QUEUED");
    }
    assert!(figure(&mut asking, id, "multi-mem") > 100_000);
    assert!(figure(&mut asking, id, "tot-mem") > before + 100_000);
    client.line("DISCARD").is_ok();
    wait_until("the queue is forgotten", || figure(&mut asking, id, "multi-mem") == 0);
    // A whole argument and half of another.
    client.send(
        &[&b"*3\r\n$4\r\nECHO\r\n$20000\r\n"[..], &[b'x'; 20_000], b"\r\n$30000\r\n", &[b'x'; 10_000]]
            .concat(),
    );
    wait_until("both are counted", || {
        figure(&mut asking, id, "qbuf") + figure(&mut asking, id, "argv-mem") >= 30_000
    });
    assert!(figure(&mut asking, id, "argv-mem") >= 20_000);
    // Redis reports the largest of some seconds ago.
    let largest = asking.info("client_recent_max_input_buffer");
    assert!(is_redis() || largest.parse::<usize>().expect("a number") >= 10_000, "{largest}");
    client.send(&[&[b'x'; 20_000][..], b"\r\n"].concat());
    client.reply().is_error("ERR wrong number of arguments for 'echo' command");
    wait_until("nothing is left of it", || {
        figure(&mut asking, id, "qbuf") + figure(&mut asking, id, "argv-mem") == 0
    });
    // Its own request is in the line of the client that asks.
    let own = asking.line("CLIENT INFO").text();
    assert_eq!(field_of(&own, "argv-mem"), "10", "{own}");
    assert_eq!(field_of(&own, "qbuf"), "26", "{own}");
}

#[test]
fn a_client_that_sends_no_more_still_gets_all_its_replies() {
    // Redis closes the connection as soon as it sees that.
    let server = Server::start();
    let mut client = server.client();
    ask_for_mebibytes(&mut client, 32);
    client.finish_sending();
    for _ in 0..32 {
        assert_eq!(client.reply_bytes().len(), MIB + "$1048576\r\n\r\n".len());
    }
    assert!(client.is_closed());
}

#[test]
fn the_last_words_come_after_all_that_was_asked_for() {
    let server = Server::start();
    for (last, answer) in [("QUIT", "+OK\r\n"), ("*1\r\n:", "-ERR Protocol error: expected '$', got ':'\r\n")]
    {
        let mut client = server.client();
        ask_for_mebibytes(&mut client, 32);
        client.send(format!("{last}\r\n").as_bytes());
        for _ in 0..32 {
            assert_eq!(client.reply_bytes().len(), MIB + "$1048576\r\n\r\n".len());
        }
        assert_eq!(String::from_utf8(client.reply_bytes()).unwrap(), answer);
        assert!(client.is_closed());
    }
}

#[test]
fn a_killed_client_is_gone_however_much_it_goes_on_to_send() {
    let server = Server::start();
    let mut killer = server.client();
    let mut busy = server.client();
    let id = busy.line("CLIENT ID").integer();
    let sending = thread::spawn(move || {
        let requests = request(["PING"]).repeat(1000);
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if busy.try_send(&requests).is_err() {
                return true;
            }
        }
        false
    });
    wait_until("it has sent much", || figure(&mut killer, id, "omem") > MIB);
    killer.line(&format!("CLIENT KILL ID {id}")).is(1);
    assert!(sending.join().expect("no panic"), "it went on sending");
    wait_until("it is gone", || described(&mut killer, id).is_none());
}

marked!(also_redis: others_are_served_while_a_pipeline_is_executed);
fn others_are_served_while_a_pipeline_is_executed() {
    const REQUESTS: usize = 100_000;
    let server = Server::start_with(if is_redis() { &[] } else { &["--io-threads", "1"] });
    let (mut deep, mut other) = (server.client(), server.client());
    deep.cmd([b"SET", &b"k"[..], &[b'v'; 100]]).is_ok();
    let mut sending = deep.stream().try_clone().expect("the same connection");
    let writer = thread::spawn(move || sending.write_all(&request(["GET", "k"]).repeat(REQUESTS)));
    let (mut meanwhile, deadline) = (0, Instant::now() + DEEP_PATIENCE);
    loop {
        assert!(Instant::now() < deadline, "the pipeline is not executed");
        let executed = executed(&mut other, "get");
        if executed == REQUESTS {
            break;
        }
        meanwhile += usize::from(executed > 0);
    }
    assert!(meanwhile > 0, "no other client was served meanwhile");
    writer.join().expect("no panic").expect("the server goes on reading");
    let mut replies = vec![0; REQUESTS * format!("$100\r\n{}\r\n", "v".repeat(100)).len()];
    deep.stream().read_exact(&mut replies).expect("every request is answered");
}

/// How often a command was executed.
fn executed(client: &mut Client, command: &str) -> usize {
    let text = client.line("INFO commandstats").text();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
    line.map_or(0, |line| line.split(',').next().expect("a number").parse().expect("a number"))
}

#[test]
fn a_client_that_is_not_authenticated_is_not_read_from_while_replies_wait() {
    let server = Server::start_with(&["--requirepass", "secret"]);
    let client = server.client();
    client.stream().set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let requests = request(["GET", "k"]).repeat(1000);
    let stalled = (0..10_000).find_map(|_| client.stream().write_all(&requests).err());
    let kind = stalled.expect("the server takes no more").kind();
    let is_stopped = matches!(
        kind,
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
    );
    assert!(is_stopped, "{kind:?}");
}
