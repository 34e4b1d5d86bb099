//! LOCK ACQUIRE … BOUND: the lease ends with the connection that took the lock. While it lives, the server
//! renews it.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use support::client::{Client, Reply, request};
use support::folder::Folder;
use support::log::ALWAYS;
use support::replies::{array, field, integer, text};
use support::server::{Server, built, free_port, wait_until};
use support::tools::{installed, refuse_to_pass_without};

const CLOCK: &[&str] = &["--enable-clock-command", "yes"];

/// Takes the lock `l` and returns the number.
#[track_caller]
fn take(client: &mut Client, options: &str) -> i64 {
    client.line(&format!("LOCK ACQUIRE l a PX {options}")).integer()
}

#[track_caller]
fn wait_until_free(observer: &mut Client) {
    wait_until("the lock is free", || observer.line("EXISTS l").integer() == 0);
}

#[test]
fn it_is_held_for_as_long_as_the_connection_lives_and_for_the_rest_of_the_lease() {
    let server = Server::start();
    let (mut holder, mut other) = (server.client(), server.client());
    let number = take(&mut holder, "1500 BOUND");
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(2000) {
        other.line("LOCK ACQUIRE l b PX 1500").is_nil();
        assert!((1..=1500).contains(&other.line("PTTL l").integer()));
        sleep(Duration::from_millis(20));
    }
    holder.line("LOCK FENCE l a").is(number);
    let asked = Instant::now();
    let left = Duration::from_millis(other.line("PTTL l").integer().unsigned_abs());
    drop(holder);
    wait_until_free(&mut other);
    assert!(asked.elapsed() >= left);
}

#[test]
fn by_whatever_way_the_connection_ends_the_next_in_line_is_granted_it_at_once() {
    let server = Server::start();
    let mut observer = server.client();
    let ways = ["", "QUIT", "RESET", "kill", "broken pipe", "output", "next"];
    for way in ways {
        let (mut holder, mut next) = (server.client(), server.client3());
        let number = take(&mut holder, "600000 BOUND GRACE 0 NOTIFY");
        let id = holder.line("CLIENT ID").integer();
        server.have_wait(&mut next, "LOCK ACQUIRE l b PX 600000 WAIT 60000");
        match way {
            "" => drop(holder),
            "kill" => observer.line(&format!("CLIENT KILL ID {id}")).is(1),
            "broken pipe" => {
                holder.send(b"*1\r\n$4\r\nPI");
                drop(holder);
            }
            "output" => {
                // It does not read, and its output exceeds the limit.
                observer.line("CONFIG SET client-output-buffer-limit \"normal 1000000 0 0\"").is_ok();
                observer.cmd(["SET", "large", &"x".repeat(4_000_000)]).is_ok();
                holder.send(&request(["GET", "large"]).repeat(10));
            }
            "next" => {
                // One that waits while it has a lock, and leaves.
                server.have_wait(&mut holder, "BLPOP nothing 0");
                drop(holder);
            }
            line => holder.line(line).ignored(),
        }
        assert!(next.reply().integer() > number, "{way}");
        observer.line("DEL l").is(1);
    }
}

#[test]
fn grace_is_left_when_the_connection_ends() {
    let server = Server::start();
    let (mut holder, mut other) = (server.client(), server.client());
    take(&mut holder, "600000 BOUND GRACE 90000");
    drop(holder);
    wait_until("the grace has begun", || (1..=90_000).contains(&other.line("PTTL l").integer()));
    other.line("DEL l").is(1);
    // That MAX has limited the lease is no promise of another client.
    let mut holder = server.client();
    take(&mut holder, "600000 BOUND GRACE 0 MAX 500000");
    let end = other.line("PEXPIRETIME l").integer();
    other.line(&format!("PEXPIREAT l {end}")).is(1);
    drop(holder);
    wait_until_free(&mut other);
    // More than the lease.
    let mut holder = server.client();
    take(&mut holder, "60000 BOUND GRACE 900000 MAX 800000");
    holder.line("QUIT").is_ok();
    wait_until("the grace has begun", || (700_000..=800_000).contains(&other.line("PTTL l").integer()));
}

#[test]
fn what_others_have_done_to_the_expiry_counts() {
    let server = Server::start();
    let mut other = server.client3();
    for (line, left) in [
        ("LOCK EXTEND l a PX 900000", 800_000..=900_000),
        ("LOCK ACQUIRE l a PX 900000 AGAIN", 800_000..=900_000),
        ("LOCK ACQUIRE l a PX 100000 AGAIN", 90_000..=100_000),
        ("PEXPIRE l 900000", 800_000..=900_000),
        ("PERSIST l", -1..=-1),
    ] {
        let mut holder = server.client();
        take(&mut holder, "600000 BOUND GRACE 0");
        other.line(line).ignored();
        let id = holder.line("CLIENT ID").integer();
        other.line(&format!("CLIENT KILL ID {id}")).is(1);
        wait_until("the lock is bound no more", || {
            field(&other.line("LOCKS GET l").reply(), "bound-there") == Reply::Null
        });
        let left_ms = other.line("PTTL l").integer();
        assert!(left.contains(&left_ms), "{line}: {left_ms}");
        other.line("DEL l").is(1);
    }
    // A renewal does not shorten, and makes what was shortened as long as before.
    let mut holder = server.client();
    take(&mut holder, "1500 BOUND");
    other.line("LOCK EXTEND l a PX 600000").ignored();
    sleep(Duration::from_millis(600));
    assert!(other.line("PTTL l").integer() > 500_000);
    other.line("PERSIST l").is(1);
    sleep(Duration::from_millis(600));
    other.line("PTTL l").is(-1);
    other.line("PEXPIRE l 1200").is(1);
    wait_until("it was renewed", || other.line("PTTL l").integer() > 1200);
}

#[test]
fn max_ends_it_whatever_the_client_does() {
    let server = Server::start();
    let (mut holder, mut other, mut listener) = (server.client3(), server.client(), server.client());
    listener.line("PSUBSCRIBE __lock@*").ignored();
    let began = Instant::now();
    let number = take(&mut holder, "600 BOUND MAX 1000 NOTIFY");
    for line in ["LOCK EXTEND l a PX 60000", "LOCK EXTEND l a PX 60000 BOUND MAX 90000", "PERSIST l"] {
        other.line(line).ignored();
        assert!((1..=1000).contains(&other.line("PTTL l").integer()), "{line}");
    }
    other.line("LOCK ACQUIRE l a PX 90000 AGAIN").is(number);
    let lost = vec!["lock-lost".into(), "l".into(), Reply::Integer(number), "max".into()];
    holder.reply().is(Reply::Push(lost));
    assert!(began.elapsed() >= Duration::from_millis(1000));
    let message = ["pmessage", "__lock@*", "__lock@0__:l", &format!("{number} max")].map(Reply::from);
    listener.reply().is(Reply::Array(message.to_vec()));
    other.line("EXISTS l").is(0);
    // What expires before is not its end.
    let number = take(&mut holder, "60000 BOUND MAX 60000 NOTIFY");
    other.line("PEXPIRE l 1").is(1);
    let lost = vec!["lock-lost".into(), "l".into(), Reply::Integer(number), "expired".into()];
    holder.reply().is(Reply::Push(lost));
}

#[test]
fn another_connection_with_the_token_takes_it_over() {
    let server = Server::start();
    let mut observer = server.client();
    for line in ["LOCK EXTEND l a PX 1500 BOUND GRACE 0", "LOCK ACQUIRE l a PX 1500 AGAIN BOUND GRACE 0"] {
        let (mut first, mut second) = (server.client(), server.client());
        let number = take(&mut first, "1500 BOUND GRACE 0");
        observer.line("LOCK EXTEND l b PX 1500 BOUND").is_nil();
        second.line(line).is(number);
        drop(first);
        let end = observer.line("PEXPIRETIME l").integer();
        wait_until("the lock is renewed", || observer.line("PEXPIRETIME l").integer() > end);
        observer.line("LOCK FENCE l a").is(number);
        drop(second);
        wait_until_free(&mut observer);
    }
    observer.line("LOCK EXTEND l a PX 300 BOUND").is_nil();
    // One that had no connection is bound to one.
    let mut second = server.client();
    take(&mut observer, "60000");
    second.line("LOCK EXTEND l a PX 60000 BOUND GRACE 0").integer();
    drop(second);
    wait_until_free(&mut observer);
}

#[test]
fn an_attempt_that_waits_is_bound_when_it_is_granted_and_one_that_leaves_at_that_moment_keeps_nothing() {
    let server = Server::start();
    let (mut holder, mut observer) = (server.client(), server.client());
    take(&mut holder, "600000");
    let mut next = server.client();
    server.have_wait(&mut next, "LOCK ACQUIRE l b PX 600000 WAIT 0 BOUND GRACE 0");
    holder.line("LOCK RELEASE l a").is(1);
    next.reply().integer();
    drop(next);
    wait_until_free(&mut observer);
    // Those in line leave while they are granted the lock: it is never left behind.
    for round in 0..40 {
        take(&mut holder, "600000");
        let mut waiting = [(); 3].map(|()| server.client());
        for client in &mut waiting {
            server.have_wait(client, "LOCK ACQUIRE l b PX 600000 WAIT 0 BOUND GRACE 0");
        }
        let leaver = std::thread::spawn(move || drop(waiting));
        holder.line("LOCK RELEASE l a").is(1);
        leaver.join().unwrap();
        wait_until(&format!("round {round}"), || observer.line("EXISTS l").integer() == 0);
    }
}

#[test]
fn within_transactions_and_scripts_it_is_bound_to_the_caller() {
    let server = Server::start();
    let (mut holder, mut observer) = (server.client(), server.client());
    let script = "for _, key in ipairs(KEYS) do \
                  redis.call('LOCK', 'ACQUIRE', key, 'a', 'PX', 1500, 'BOUND', 'GRACE', 0) end return 1";
    holder.cmd(["EVAL", script, "2", "j", "k"]).is(1);
    holder.line("MULTI").is_ok();
    holder.line("LOCK ACQUIRE l a PX 60000").is_simple("QUEUED");
    holder.line("LOCK EXTEND l a PX 1500 BOUND GRACE 0").is_simple("QUEUED");
    holder.line("EXEC").ignored();
    sleep(Duration::from_millis(700));
    for key in ["j", "k", "l"] {
        assert!(observer.line(&format!("PTTL {key}")).integer() > 850, "{key} is renewed");
    }
    drop(holder);
    wait_until("all are free", || observer.line("EXISTS j k l").integer() == 0);
}

#[test]
fn a_renewal_is_no_event_no_change_and_no_use() {
    let server = Server::start_with(&["--notify-keyspace-events", "KEA"]);
    let (mut holder, mut other, mut watcher) = (server.client(), server.client(), server.client3());
    take(&mut holder, "900 BOUND");
    watcher.line("CLIENT TRACKING ON").is_ok();
    watcher.line("GET l").ignored();
    let mut listener = server.client();
    listener.line("PSUBSCRIBE *").ignored();
    other.line("WATCH l").is_ok();
    let before = other.info("rdb_changes_since_last_save");
    let idle = |client: &mut Client| client.line("OBJECT IDLETIME l").integer();
    wait_until("it has not been used for a second", || idle(&mut other) >= 1);
    assert_eq!(other.info("rdb_changes_since_last_save"), before);
    other.line("MULTI").is_ok();
    other.line("PTTL l").is_simple("QUEUED");
    assert!(matches!(other.line("EXEC").items()[..], [Reply::Integer(1..=900)]));
    assert!(
        watcher.is_silent_for(Duration::from_millis(1)) && listener.is_silent_for(Duration::from_millis(1))
    );
}

#[test]
fn what_ends_the_lock_ends_the_binding() {
    let server = Server::start();
    let mut observer = server.client();
    for (line, key) in [
        ("RENAME l m", "m"),
        ("SET l b PX 600000", "l"),
        ("COPY l m REPLACE", "m"),
        ("DEL l", ""),
        ("FLUSHALL", ""),
        ("LOCK RELEASE l a", ""),
    ] {
        let mut holder = server.client();
        take(&mut holder, "600000 BOUND GRACE 0");
        observer.line(line).ignored();
        if key.is_empty() {
            observer.line("LOCK ACQUIRE l b PX 600000").integer();
        }
        let key = if key.is_empty() { "l" } else { key };
        drop(holder);
        wait_until("it has gone", || observer.info("connected_clients") == "1");
        // What has come of it, or has come after it, stays as it is.
        sleep(Duration::from_millis(20));
        assert!(observer.line(&format!("PTTL {key}")).integer() > 500_000, "{line}");
        observer.line("FLUSHALL").is_ok();
    }
    for line in ["MOVE l 1", "SWAPDB 0 1"] {
        let mut holder = server.client();
        take(&mut holder, "600000 BOUND GRACE 0");
        observer.line(line).ignored();
        drop(holder);
        wait_until("it has gone", || observer.info("connected_clients") == "1");
        sleep(Duration::from_millis(20));
        observer.line("SELECT 1").is_ok();
        assert!(observer.line("PTTL l").integer() > 500_000, "{line}");
        observer.line("SELECT 0").is_ok();
        observer.line("FLUSHALL").is_ok();
    }
}

#[test]
fn the_clock_ends_none_whose_connection_lives() {
    let server = Server::start_with(CLOCK);
    let (mut holder, mut other) = (server.client3(), server.client());
    let number = take(&mut holder, "60000 BOUND MAX 86400000 GRACE 5000 NOTIFY");
    for line in ["CLOCK ADVANCE 3600000", "CLOCK SET 1000000000000", "CLOCK RESUME", "CLOCK FREEZE"] {
        other.line(line).is_ok();
        assert!((1..=60_000).contains(&other.line("PTTL l").integer()), "{line}");
        other.line("LOCK FENCE l a").is(number);
    }
    let mut expired = server.client();
    expired.line("LOCK ACQUIRE m a PX 60000").integer();
    // What others have set is a moment.
    other.line("CLOCK ADVANCE 60000").is_ok();
    other.line("EXISTS m").is(0);
    // MAX goes by it.
    other.line("CLOCK ADVANCE 86400000").is_ok();
    let lost = vec!["lock-lost".into(), "l".into(), Reply::Integer(number), "max".into()];
    holder.reply().is(Reply::Push(lost));
    // And so does GRACE.
    take(&mut holder, "60000 BOUND GRACE 5000");
    drop(holder);
    wait_until("the grace has begun", || other.line("PTTL l").integer() == 5000);
    other.line("CLOCK ADVANCE 4999").is_ok();
    other.line("PTTL l").is(1);
    other.line("CLOCK ADVANCE 1").is_ok();
    other.line("EXISTS l").is(0);
}

#[test]
fn a_pause_ends_none() {
    let server = Server::start();
    let (mut holder, mut other) = (server.client(), server.client());
    let number = take(&mut holder, "900 BOUND GRACE 0");
    other.line("CLIENT PAUSE 1200 ALL").is_ok();
    other.line("LOCK FENCE l a").is(number);
    // One that ends meanwhile is free after the pause.
    other.line("CLIENT PAUSE 300 WRITE").is_ok();
    drop(holder);
    wait_until_free(&mut other);
}

#[test]
fn after_a_restart_what_is_left_of_the_lease_is_left() {
    let folder = Folder::new("bound_restart");
    let place = folder.file("");
    let options = [&["--dir", &place], ALWAYS].concat();
    for end in ["TERM", "KILL"] {
        let mut server = Server::start_with(&options);
        let (mut holder, mut other) = (server.client(), server.client());
        other.line("FLUSHALL").is_ok();
        let number = take(&mut holder, "4000 BOUND GRACE 0");
        let first = other.line("PEXPIRETIME l").integer();
        other.line("LOCK ACQUIRE m a PX 600000 BOUND MAX 700000").integer();
        other.line("PERSIST m").ignored();
        wait_until("it was renewed", || other.line("PEXPIRETIME l").integer() > first);
        let renewed = other.line("PEXPIRETIME l").integer();
        // Its reply waits for all that was logged before.
        other.line("SET k v").is_ok();
        server.signal(end);
        server.wait_for_end();
        let server = Server::start_with(&options);
        let mut other = server.client();
        assert!(other.line("PEXPIRETIME l").integer() >= renewed, "{end}");
        other.line("LOCK FENCE l a").is(number);
        assert!((600_000..=700_000).contains(&other.line("PTTL m").integer()));
        drop(holder);
    }
}

#[test]
fn memory_that_is_short_takes_no_bound_lock_and_no_client_with_one() {
    let limit = ["--maxmemory", "4mb", "--maxmemory-policy", "allkeys-random"];
    let server = Server::start_with(&limit);
    let (mut holder, mut other) = (server.client(), server.client());
    let number = take(&mut holder, "600000 BOUND");
    let value = "x".repeat(10_000);
    for key in 0..1500 {
        other.cmd(["SET", &format!("k{key}"), &value]).is_ok();
    }
    assert!(other.info("evicted_keys").parse::<u64>().unwrap() > 500);
    other.line("LOCK FENCE l a").is(number);
    other.line("CONFIG SET maxmemory 0").is_ok();
    let mut idle = server.client();
    idle.line("PING").is_simple("PONG");
    other.line("CONFIG SET timeout 1").is_ok();
    wait_until("an idle client was closed", || other.info("connected_clients") == "2");
    // It is the only one that may be closed, and takes too much.
    other.line("CLIENT NO-EVICT ON").is_ok();
    holder.line("MULTI").is_ok();
    holder.cmd(["SET", "l2", &"x".repeat(4_000_000)]).is_simple("QUEUED");
    other.line("CONFIG SET maxmemory-clients 3000000").is_ok();
    server.wait_for_output("Over client maxmemory after evicting all evictable clients");
    holder.line("DISCARD").is_ok();
    holder.line("LOCK FENCE l a").is(number);
}

#[test]
fn the_lens_shows_to_what_it_is_bound_and_finds_nothing_wrong() {
    let server = Server::start();
    let (mut holder, mut other) = (server.client(), server.client3());
    holder.cmd(["LOCK", "ACQUIRE", "lock:a", "a-long-token-of-mine", "PX", "900", "BOUND"]).integer();
    take(&mut holder, "60000 BOUND");
    let own = holder.line("CLIENT ID").integer();
    sleep(Duration::from_millis(700));
    let lock = other.line("LOCKS GET lock:a").reply();
    assert_eq!((text(&lock, "state"), integer(&lock, "bound-there")), ("held".to_owned(), 2));
    assert_eq!((integer(&lock, "bound-to.id"), integer(&lock, "renewals")), (own, 0));
    // Without a renewal it would be 200 at most.
    assert!((250..=900).contains(&integer(&lock, "expires-in-ms")));
    assert_eq!(array(&lock, "timeline").len(), 1, "{lock}");
    drop(holder);
    wait_until("it has expired", || text(&other.line("LOCKS GET lock:a").reply(), "state") == "expired");
    assert_eq!(other.line("LOCKS LOG -1").items(), []);
}

#[test]
fn wrong_options_are_refused() {
    let server = Server::start();
    let mut client = server.client();
    for (options, error) in [
        ("300 BOUND BOUND", "ERR syntax error"),
        ("300 GRACE 0", "ERR syntax error"),
        ("300 MAX 1000", "ERR syntax error"),
        ("300 BOUND GRACE", "ERR syntax error"),
        ("300 BOUND GRACE 0 GRACE 0", "ERR syntax error"),
        ("300 BOUND MAX 1 MAX 1", "ERR syntax error"),
        ("300 BOUND GRACE -1", "ERR GRACE must not be negative"),
        ("300 BOUND MAX 0", "ERR MAX must be positive"),
        ("300 BOUND MAX x", "ERR value is not an integer or out of range"),
        ("99 BOUND", "ERR BOUND needs a PX of 100 milliseconds at least"),
    ] {
        client.line(&format!("LOCK ACQUIRE l a PX {options}")).is_error(error);
        client.line(&format!("LOCK EXTEND l a PX {options}")).is_error(error);
    }
    client.line("LOCK EXTEND l a PX 300 NOTIFY").is_error("ERR syntax error");
    client.line("EXISTS l").is(0);
    client.line("LOCK ACQUIRE l a PX 300 bound max 60000 grace 0").integer();
}

#[test]
fn spans_that_no_clock_can_show_limit_nothing() {
    let folder = Folder::new("bound_spans");
    let place = folder.file("");
    let options = [&["--dir", &place], ALWAYS].concat();
    let server = Server::start_with(&options);
    let (mut holder, mut other) = (server.client(), server.client());
    let largest = i64::MAX;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let longest = largest - now.as_millis() as i64 - 60_000;
    holder.line(&format!("LOCK ACQUIRE l a PX 300 BOUND GRACE {largest} MAX {largest}")).integer();
    holder.line(&format!("LOCK ACQUIRE m a PX {longest} BOUND GRACE {longest}")).integer();
    holder.line(&format!("LOCK ACQUIRE n a PX {longest} BOUND GRACE 0 MAX {largest}")).integer();
    other.line("PERSIST n").is(1);
    other.line("PEXPIRETIME n").is(largest);
    drop(holder);
    for key in ["l", "n"] {
        wait_until(key, || other.line(&format!("PEXPIRETIME {key}")).integer() == largest);
    }
    drop((other, server));
    let server = Server::start_with(&options);
    let mut other = server.client();
    for key in ["l", "m", "n"] {
        assert!(other.line(&format!("PEXPIRETIME {key}")).integer() > largest - 120_000, "{key}");
    }
}

marked!(needs_tools: a_client_that_vanished_has_lost_its_lock_after_a_lease);

/// A machine that is cut off sends no end of its connection: its silence is noticed.
fn a_client_that_vanished_has_lost_its_lock_after_a_lease() {
    const LEASE_MS: u64 = 3000;
    let cuts_off = "ip link set lo up && iptables -A OUTPUT -p tcp --sport 1 -j DROP";
    let in_namespace = |script: &str| {
        let mut command = installed("unshare")?;
        command.args(["--user", "--map-root-user", "--net", "bash", "-c", script]).stderr(Stdio::null());
        Some(command)
    };
    if !in_namespace(cuts_off).is_some_and(|mut tried| tried.status().is_ok_and(|status| status.success())) {
        return refuse_to_pass_without("a network for a test alone, with iptables");
    }
    let (folder, port) = (Folder::new("bound_vanished"), free_port());
    let path = folder.file("socket");
    let script = format!(
        "ip link set lo up; \
         {} --port {port} --unixsocket {path} --dir {} --save '' >/dev/null & \
         trap \"kill $!\" EXIT; \
         until exec 3<>/dev/tcp/127.0.0.1/{port}; do sleep 0.05; done; \
         printf 'LOCK ACQUIRE l a PX {LEASE_MS} BOUND\\r\\n' >&3; read -u 3 reply; \
         iptables -A INPUT -i lo -j DROP; echo cut; read line",
        built(),
        folder.file(""),
    );
    let mut command = in_namespace(&script).unwrap();
    let mut inside: std::process::Child =
        Command::stdin(&mut command, Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = [0; 4];
    inside.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
    let cut = Instant::now();
    let mut other = UnixStream::connect(&path).unwrap();
    other.write_all(b"LOCK ACQUIRE l b PX 60000 WAIT 60000\r\n").unwrap();
    let mut reply = [0; 1];
    other.read_exact(&mut reply).unwrap();
    let took = cut.elapsed();
    assert_eq!(reply, *b":");
    drop(inside.stdin.take());
    inside.wait().unwrap();
    // The last sign of life came some time before the cut.
    let lease = Duration::from_millis(LEASE_MS);
    assert!(took > lease / 2 && took < lease + Duration::from_millis(1500), "{took:?}");
}
