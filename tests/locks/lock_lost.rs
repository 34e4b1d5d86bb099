//! FAULT … LOSE-LOCK: a lock that ends in its holder's hands, so that a test sees what its program does
//! then.

use support::client::{Client, Reply, words};
use support::server::{Server, wait_until};

use crate::locks::findings;

const LOSES: &[&str] = &["--enable-fault-command", "yes", "--enable-clock-command", "yes"];
const TOKEN: &str = "1b671a64-40d5-491e-99b0-da01ff1f3341";

/// redis-py's way to extend a lock.
const EXTEND: &str = "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end return redis.call('pexpire', KEYS[1], ARGV[2])";
/// A semaphore of permits that are dated, as several libraries have it.
const DATED: &str = "redis.call('zremrangebyscore', KEYS[1], '-inf', ARGV[2] - 30000) if redis.call('zcard', KEYS[1]) >= 3 then return 0 end redis.call('zadd', KEYS[1], ARGV[2], ARGV[1]) redis.call('pexpire', KEYS[1], 30000) return 1";
/// Redisson's lock of readers: a field for the kind, and one for each holder.
const READ: &str = "redis.call('hset', KEYS[1], 'mode', 'read') redis.call('hincrby', KEYS[1], ARGV[1], 1) redis.call('pexpire', KEYS[1], 30000) return 1";
/// Redisson's lock of a writer, whose field is more than its token.
const WRITE: &str = "redis.call('hset', KEYS[1], 'mode', 'write') redis.call('hset', KEYS[1], ARGV[1] .. ':write', 1) redis.call('pexpire', KEYS[1], 30000) return 1";

/// A server whose clock stands, one who plants faults, a holder, and another client.
fn frozen() -> (Server, Client, Client, Client) {
    let server = Server::start_with(LOSES);
    let (mut planter, holder, other) = (server.client(), server.client(), server.client());
    planter.line("CLOCK FREEZE").is_ok();
    (server, planter, holder, other)
}

fn script(text: &str, arguments: &[&str]) -> Vec<String> {
    let line = ["EVAL", text, "1", "lock"].into_iter().chain(arguments.iter().copied());
    line.map(str::to_owned).collect()
}

#[test]
fn a_lock_is_lost_at_its_moment_however_it_was_taken_and_renewed() {
    let in_script = "return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', 30000)";
    for (take, renew) in [
        (words("SETNX lock 1"), words("PTTL lock")),
        (words("SET lock 1 NX PX 30000"), words("SET lock 1 XX PX 30000")),
        (words(&format!("SET lock {TOKEN} NX EX 30")), script(EXTEND, &[TOKEN, "30000"])),
        (script(in_script, &[TOKEN]), script(EXTEND, &[TOKEN, "30000"])),
        (words("LOCK ACQUIRE lock a PX 30000"), words("LOCK EXTEND lock a PX 30000")),
        (words("LOCK ACQUIRE lock a PX 30000 BOUND"), words("LOCK ACQUIRE lock a PX 30000 AGAIN")),
        (words("LOCK ACQUIRE lock a PX 60000 ALSO 1 second"), words("PERSIST lock")),
        (words("LOCK ACQUIRE lock a PX 30000 SHARED"), words("LOCK EXTEND lock a PX 30000")),
        (script(DATED, &["a", "1000000"]), words("PEXPIRE lock 30000")),
        (script(READ, &["a"]), script(READ, &["a"])),
        (script(WRITE, &["a"]), words("PEXPIRE lock 30000")),
    ] {
        let (server, mut planter, mut holder, _) = frozen();
        let mut listener = server.client();
        planter.line("CONFIG SET notify-keyspace-events Ex").is_ok();
        listener.line("SUBSCRIBE __keyevent@0__:expired").ignored();
        planter.line("FAULT ADD MATCH lock TIMES 1 LOSE-LOCK AFTER 40000").is(1);
        holder.cmd(&take).ignored();
        planter.line("CLOCK ADVANCE 20000").is_ok();
        holder.cmd(&renew).ignored();
        planter.line("CLOCK ADVANCE 19999").is_ok();
        planter.line("EXISTS lock").is(1);
        assert!(planter.line("PTTL lock").integer() != 1, "its end is not to be seen: {take:?}");
        planter.line("CLOCK ADVANCE 1").is_ok();
        planter.line("EXISTS lock").is(0);
        let event = ["message", "__keyevent@0__:expired", "lock"].map(Reply::from).to_vec();
        listener.reply().is(Reply::Array(event));
        let fault = planter.line("FAULT LIST").items()[0].to_string();
        assert!(fault.ends_with("\"LOSE-LOCK AFTER 40000\", \"struck\", (integer) 1]"), "{take:?}: {fault}");
        assert_eq!(findings(&mut server.client3()), [], "{take:?}");
    }
}

#[test]
fn without_a_time_it_is_lost_before_the_clients_next_request() {
    let server = Server::start_with(LOSES);
    let (mut planter, mut holder) = (server.client(), server.client());
    planter.line("FAULT ADD ON set MATCH lock LOSE-LOCK").is(1);
    for _ in 0..10 {
        holder.line("SET lock a NX PX 30000").is_ok();
        holder.line("EXISTS lock").is(0);
    }
    assert_eq!(planter.info("faults_struck"), "10");
    let fault = planter.line("FAULT LIST").items()[0].to_string();
    assert!(fault.contains("\"LOSE-LOCK AFTER 0\""), "{fault}");
}

#[test]
fn it_is_lost_by_a_clock_that_goes_on_and_the_server_renews_it_no_more() {
    let server = Server::start_with(LOSES);
    let (mut planter, mut holder) = (server.client(), server.client());
    planter.line("FAULT ADD ON lock|acquire LOSE-LOCK AFTER 30").is(1);
    holder.line("LOCK ACQUIRE lock a PX 60000 BOUND").integer();
    wait_until("it is lost", || planter.line("EXISTS lock").integer() == 0);
    holder.line("LOCK RELEASE lock a").is(0);
    assert_eq!(planter.info("expired_keys"), "1");
}

#[test]
fn the_holder_is_notified_and_the_next_in_line_has_it_at_once() {
    let (server, mut planter, _, mut other) = frozen();
    let mut holder = server.client3();
    let mut listener = server.client();
    listener.line("SUBSCRIBE __lock@0__:lock").ignored();
    planter.line("FAULT ADD ON lock|acquire TIMES 1 LOSE-LOCK AFTER 1000").is(1);
    let number = holder.line("LOCK ACQUIRE lock a PX 30000 NOTIFY").integer();
    other.send(b"LOCK ACQUIRE lock b PX 30000 WAIT 0\r\n");
    wait_until("it waits", || planter.info("blocked_clients") == "1");
    planter.line("CLOCK ADVANCE 1000").is_ok();
    assert!(other.reply().integer() > number);
    holder.reply().is(Reply::Push(vec![
        "lock-lost".into(),
        "lock".into(),
        Reply::Integer(number),
        "expired".into(),
    ]));
    let message = ["message", "__lock@0__:lock", &format!("{number} expired")].map(Reply::from).to_vec();
    listener.reply().is(Reply::Array(message));
    // At once: the news come behind the reply that grants it.
    other.line("LOCK RELEASE lock b").is(1);
    planter.line("FAULT ADD ON lock|acquire TIMES 1 LOSE-LOCK").is(2);
    let number = holder.line("LOCK ACQUIRE lock a PX 30000 NOTIFY").integer();
    let Reply::Push(news) = holder.reply().reply() else { panic!("no news") };
    assert_eq!(news[2..], [Reply::Integer(number), "expired".into()]);
}

#[test]
fn a_lock_for_which_its_holder_has_waited_is_lost_too() {
    let (_server, mut planter, mut holder, mut other) = frozen();
    other.line("LOCK ACQUIRE lock b PX 30000").integer();
    planter.line("CLIENT LIST").ignored();
    holder.line("CLIENT SETNAME worker").is_ok();
    planter.line("FAULT ADD CLIENT worker LOSE-LOCK AFTER 5000").is(1);
    holder.send(b"LOCK ACQUIRE lock a PX 30000 WAIT 0\r\n");
    wait_until("it waits", || planter.info("blocked_clients") == "1");
    planter.line("CLOCK ADVANCE 10000").is_ok();
    planter.line("GET lock").is("b");
    other.line("LOCK RELEASE lock b").is(1);
    holder.reply().integer();
    planter.line("CLOCK ADVANCE 4999").is_ok();
    planter.line("GET lock").is("a");
    planter.line("CLOCK ADVANCE 1").is_ok();
    planter.line("EXISTS lock").is(0);
}

#[test]
fn of_several_holders_the_one_that_was_struck_loses_its_permit() {
    for (take, ask) in [
        (&["LOCK", "ACQUIRE", "lock", "TOKEN", "PX", "30000", "LIMIT", "3"][..], "ZRANGE lock 0 -1"),
        (&["EVAL", DATED, "1", "lock", "TOKEN", "1000000"], "ZRANGE lock 0 -1"),
        (&["EVAL", READ, "1", "lock", "TOKEN"], "HKEYS lock"),
    ] {
        let (_server, mut planter, mut holder, mut other) = frozen();
        let as_token = |token| take.iter().map(move |word| if *word == "TOKEN" { token } else { *word });
        let holders = |planter: &mut Client| {
            let mut names: Vec<String> = planter.line(ask).items().iter().map(Reply::to_string).collect();
            names.retain(|name| name != "\"mode\"");
            names.sort();
            names.join(" ")
        };
        holder.line("CLIENT SETNAME worker").is_ok();
        planter.line("FAULT ADD CLIENT worker LOSE-LOCK AFTER 100").is(1);
        other.cmd(as_token("a")).integer();
        holder.cmd(as_token("b")).integer();
        other.cmd(as_token("c")).integer();
        planter.line("CLOCK ADVANCE 99").is_ok();
        assert_eq!(holders(&mut planter), "\"a\" \"b\" \"c\"");
        if take[0] == "LOCK" {
            other.send(b"LOCK ACQUIRE lock d PX 30000 LIMIT 3 WAIT 0\r\n");
            wait_until("it waits", || planter.info("blocked_clients") == "1");
        }
        planter.line("CLOCK ADVANCE 1").is_ok();
        if take[0] == "LOCK" {
            other.reply().integer();
            assert_eq!(holders(&mut planter), "\"a\" \"c\" \"d\"");
            other.line("LOCK RELEASE lock d").is(1);
            holder.line("LOCK EXTEND lock b PX 30000").is_nil();
            other.line("LOCK EXTEND lock a PX 30000").integer();
        }
        assert_eq!(holders(&mut planter), "\"a\" \"c\"");
        assert_eq!(planter.info("faults_struck"), "1");
    }
}

#[test]
fn the_holder_of_a_permit_is_notified() {
    let (server, mut planter, ..) = frozen();
    let (mut one, mut two) = (server.client3(), server.client3());
    planter.line("FAULT ADD MATCH lock LOSE-LOCK AFTER 1000").is(1);
    for (client, token) in [(&mut one, "a"), (&mut two, "b")] {
        let take = format!("LOCK ACQUIRE lock {token} PX 30000 SHARED NOTIFY BOUND");
        let number = client.line(&take).integer();
        planter.line("CLOCK ADVANCE 500").is_ok();
        if token == "b" {
            planter.line("ZRANGE lock 0 -1").is(Reply::Array(vec!["b".into()]));
            planter.line("CLOCK ADVANCE 500").is_ok();
        }
        let lost = ["lock-lost".into(), "lock".into(), Reply::Integer(number), "expired".into()];
        if token == "b" {
            client.reply().is(Reply::Push(lost.to_vec()));
        }
    }
    let Reply::Push(news) = one.reply().reply() else { panic!("no news") };
    assert_eq!(news[3], "expired".into());
    planter.line("EXISTS lock").is(0);
}

#[test]
fn a_field_that_is_a_lock_is_lost_and_the_others_stay() {
    let (_server, mut planter, mut holder, _) = frozen();
    planter.line("HSET results job done").is(1);
    planter.line("FAULT ADD MATCH results LOSE-LOCK AFTER 10").is(1);
    holder.line("HSETNX results app.lock.report 1").is(1);
    holder.line("HSET results job again").is(0);
    planter.line("CLOCK ADVANCE 10").is_ok();
    planter.line("HGETALL results").is(Reply::Array(vec!["job".into(), "again".into()]));
    holder.line("HSETNX results app.lock.report 1").is(1);
}

#[test]
fn what_takes_no_lock_is_not_struck() {
    let (_server, mut planter, mut holder, mut other) = frozen();
    other.line("SET lock 1 NX PX 30000").is_ok();
    other.line("LOCK ACQUIRE permits a PX 30000 LIMIT 1").integer();
    other.line("SET plain v").is_ok();
    other.line("HSET h f v").is(1);
    other.line("ZADD z 1 m").is(1);
    planter.line("FAULT ADD TIMES 1 LOSE-LOCK").is(1);
    let long = "x".repeat(2000);
    for line in [
        "SET lock 1 NX PX 30000",
        "SETNX lock 1",
        "LOCK ACQUIRE lock 1 PX 1",
        "LOCK ACQUIRE permits b PX 1 LIMIT 1",
        "LOCK ACQUIRE permits b PX 1 LIMIT 1 WAIT 1",
        "GET lock",
        "PTTL lock",
        "SET plain w",
        "APPEND plain w",
        "HSET h f w",
        "ZADD z 2 m",
        "DEL nosuch",
        "PING",
        "EVAL \"return redis.call('GET', KEYS[1])\" 1 lock",
        &format!("SETNX {long} 1"),
    ] {
        holder.line(line).ignored();
    }
    // In a transaction, a command is struck when it is queued, and takes no lock then.
    holder.line("MULTI").is_ok();
    holder.line("SET queued 1 NX PX 30000").is_simple("QUEUED");
    holder.line("EXEC").ignored();
    planter.line("MGET lock plain queued").is(Reply::Array(vec!["1".into(), "ww".into(), "1".into()]));
    planter.line("EXISTS permits h z").is(3);
    assert_eq!(planter.info("faults_struck"), "0");
    // The first one that does has it lost.
    holder.line("SET last 1 NX PX 30000").is_ok();
    holder.line("EXISTS last").is(0);
    holder.line("SET last 1 NX PX 30000").is_ok();
    holder.line("EXISTS last").is(1);
}

#[test]
fn the_next_holder_keeps_its_lock() {
    let (_server, mut planter, mut holder, mut other) = frozen();
    planter.line("FAULT ADD ON set TIMES 1 LOSE-LOCK AFTER 1000").is(1);
    planter.line("FAULT ADD ON lock|acquire TIMES 2 LOSE-LOCK AFTER 1000").is(2);
    holder.line("SET lock a NX PX 30000").is_ok();
    holder.line("LOCK ACQUIRE numbered a PX 30000").integer();
    holder.line("LOCK ACQUIRE permits a PX 30000 SHARED").integer();
    planter.line("CLOCK ADVANCE 500").is_ok();
    holder.line("DEL lock").is(1);
    // Its number tells the holders of one token apart.
    holder.line("LOCK RELEASE numbered a").is(1);
    holder.line("LOCK RELEASE permits a").is(1);
    other.line("SET lock b NX PX 30000").is_ok();
    other.line("LOCK ACQUIRE numbered a PX 30000").integer();
    other.line("LOCK ACQUIRE permits b PX 30000 SHARED").integer();
    planter.line("CLOCK ADVANCE 1000").is_ok();
    planter.line("EXISTS lock numbered permits").is(3);
    assert_eq!(planter.info("expired_keys"), "0");
}

#[test]
fn a_renewal_puts_the_loss_off_no_more_than_another_strike_does() {
    let (_server, mut planter, mut holder, _) = frozen();
    planter.line("FAULT ADD MATCH lock LOSE-LOCK AFTER 1000").is(1);
    holder.line("LOCK ACQUIRE lock a PX 30000").integer();
    for _ in 0..3 {
        planter.line("CLOCK ADVANCE 300").is_ok();
        holder.line("LOCK EXTEND lock a PX 30000").integer();
    }
    planter.line("CLOCK ADVANCE 100").is_ok();
    planter.line("EXISTS lock").is(0);
    assert_eq!(planter.info("faults_struck"), "1");
}

#[test]
fn clearing_the_faults_spares_the_locks_and_removing_one_does_not() {
    let (_server, mut planter, mut holder, _) = frozen();
    planter.line("FAULT ADD LOSE-LOCK AFTER 1000").is(1);
    holder.line("SET one 1 NX PX 30000").is_ok();
    planter.line("FAULT DEL 1").is(1);
    planter.line("CLOCK ADVANCE 1000").is_ok();
    planter.line("EXISTS one").is(0);
    planter.line("FAULT ADD LOSE-LOCK AFTER 1000").is(2);
    holder.line("SET two 1 NX PX 30000").is_ok();
    planter.line("FAULT CLEAR").is(1);
    planter.line("CLOCK ADVANCE 1000").is_ok();
    planter.line("EXISTS two").is(1);
}

#[test]
fn in_a_pause_no_lock_is_lost_until_its_end() {
    let server = Server::start_with(LOSES);
    let (mut planter, mut holder) = (server.client(), server.client());
    planter.line("FAULT ADD MATCH lock LOSE-LOCK AFTER 100").is(1);
    holder.line("LOCK ACQUIRE lock a PX 60000 LIMIT 2").integer();
    planter.line("CLIENT PAUSE 60000 WRITE").is_ok();
    planter.line("CLOCK ADVANCE 200").ignored();
    planter.line("ZCARD lock").is(1);
    planter.line("CLIENT UNPAUSE").is_ok();
    wait_until("it is lost", || planter.line("EXISTS lock").integer() == 0);
}

#[test]
fn what_is_no_loss_is_refused() {
    let (_server, mut planter, ..) = frozen();
    let after = "ERR AFTER must be between 0 and 31622400000";
    for (line, error) in [
        ("LOSE-LOCK AFTER", "ERR syntax error"),
        ("LOSE-LOCK now", "ERR syntax error"),
        ("LOSE-LOCK AFTER 1 2", "ERR syntax error"),
        ("LOSE-LOCK AFTER -1", after),
        ("LOSE-LOCK AFTER 31622400001", after),
        ("LOSE-LOCK AFTER x", "ERR value is not an integer or out of range"),
    ] {
        planter.line(&format!("FAULT ADD {line}")).is_error(error);
    }
    assert_eq!(planter.line("FAULT LIST").items(), []);
}
