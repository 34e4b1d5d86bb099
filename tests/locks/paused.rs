//! Holders that are paused while they hold a lock, and go on when it has expired and another one holds it.
//! What the lock protects refuses them by their fencing numbers, so that no update is lost. Without the
//! numbers, updates are lost.
//!
//! The holders are processes of their own, which SIGSTOP pauses. Each holds many locks at once, one a thread.
//! The resource is a hash on a server of its own. To read it, a holder shows its number, too: from then on
//! those of earlier holders are refused.
//!
//! `KEYFAST_PAUSED_ROUNDS=10000` makes as many holders come back too late.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use support::client::{Client, Reply};
use support::server::{Server, signal};

/// Processes that contend for each lock.
const PROCESSES: usize = 3;
/// Locks with a resource each.
const LOCKS: usize = 40;

/// For how long a lock in memory lives, and how long a pause lasts.
const TIMES: (Duration, Duration) = (Duration::from_millis(40), Duration::from_millis(50));

/// Reads a resource, for a holder whose number is not smaller than one that was shown before.
const READ: &str = "if tonumber(redis.call('HGET', KEYS[1], 'fence') or 0) > tonumber(ARGV[1]) then \
                    redis.call('HINCRBY', KEYS[1], 'refused', 1) return false end \
                    redis.call('HSET', KEYS[1], 'fence', ARGV[1]) \
                    return redis.call('HGET', KEYS[1], 'value') or '0'";
/// Writes it, under the same condition.
const WRITE: &str = "if tonumber(redis.call('HGET', KEYS[1], 'fence') or 0) > tonumber(ARGV[1]) then \
                     redis.call('HINCRBY', KEYS[1], 'refused', 1) return 0 end \
                     redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'value', ARGV[2]) \
                     redis.call('HINCRBY', KEYS[1], 'accepted', 1) return 1";

/// How many holders came too late, and what became of the resources.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Reads and writes that were refused.
    pub(crate) refused: i64,
    /// Writes that were accepted.
    pub(crate) accepted: i64,
    /// Writes that were accepted, and then undone by a holder that did not know of them.
    pub(crate) lost: i64,
}

/// How many holders are to come too late, unless more are asked for.
pub(crate) fn rounds(default: i64) -> i64 {
    let asked_for = std::env::var("KEYFAST_PAUSED_ROUNDS").ok();
    asked_for.map_or(default, |number| number.parse().expect("KEYFAST_PAUSED_ROUNDS is a number"))
}

/// Pauses holders until as many have come back too late. The locks live on these
/// servers, for so long each, and the pauses last longer.
pub(crate) fn pause_holders(
    servers: &[&Server],
    (lifetime, pause): (Duration, Duration),
    is_fenced: bool,
    rounds: i64,
) -> Counts {
    let resources = Server::start_with(&["--enable-debug-command", "no"]);
    let mut holders: Vec<Child> = (0..PROCESSES)
        .map(|number| {
            let server = servers[number % servers.len()];
            start_holder(&[
                server.address().to_string(),
                resources.address().to_string(),
                lifetime.as_millis().to_string(),
                number.to_string(),
                is_fenced.to_string(),
            ])
        })
        .collect();
    let mut client = resources.client();
    let mut paused = 0;
    loop {
        let counts = counts(&mut client);
        if counts.refused >= rounds || !is_fenced && counts.lost >= rounds {
            break;
        }
        // Some of them never get a lock while they are awake: each has its turn.
        let holder = &mut holders[paused % PROCESSES];
        assert!(holder.try_wait().expect("a child").is_none(), "a holder has failed");
        signal(holder.id(), "STOP");
        thread::sleep(pause);
        signal(holder.id(), "CONT");
        thread::sleep(lifetime / 8);
        paused += 1;
    }
    for mut holder in holders {
        holder.kill().expect("a child");
        holder.wait().expect("a child");
    }
    let counts = counts(&mut client);
    println!("{paused} pauses: {counts:?}");
    counts
}

fn counts(resources: &mut Client) -> Counts {
    let mut sum = Counts::default();
    for number in 0..LOCKS {
        let fields = resources.line(&format!("HMGET resource:{number} refused accepted value")).items();
        let [refused, accepted, value] = [0, 1, 2].map(|at| match &fields[at] {
            Reply::Bulk(text) => String::from_utf8_lossy(text).parse::<i64>().expect("a number"),
            _ => 0,
        });
        sum.refused += refused;
        sum.accepted += accepted;
        sum.lost += accepted - value;
    }
    sum
}

/// The test of this file that is a holder in the processes which the tests start.
const HOLDER: &str = "paused::paused_holders_of_locks_in_memory_lose_nothing";

/// Runs this program again, as a holder.
fn start_holder(arguments: &[String; 5]) -> Child {
    let program = std::env::current_exe().expect("this test");
    let mut command = Command::new(program);
    command.args(["--exact", HOLDER, "--nocapture"]);
    command.env("KEYFAST_TEST_HOLDER", arguments.join(" ")).stdin(Stdio::null()).stdout(Stdio::null());
    command.spawn().expect("this program")
}

/// The arguments of a holder, if this process is one.
fn arguments_of_a_holder() -> Option<String> {
    std::env::var("KEYFAST_TEST_HOLDER").ok()
}

/// Takes locks and updates what they protect, until the process is killed.
fn hold(arguments: &str) {
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let [locks, resources, lifetime_ms, name, is_fenced] = arguments[..] else { panic!("{arguments:?}") };
    let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
    let (locks, resources, is_fenced) = (address(locks), address(resources), is_fenced == "true");
    let has_failed = AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 0..LOCKS {
            let has_failed = &has_failed;
            scope.spawn(move || {
                let mut clients = [Client::connect(locks), Client::connect(resources)];
                while !has_failed.load(Ordering::Relaxed)
                    && update(&mut clients, number, (name, lifetime_ms), is_fenced).is_some()
                {
                }
                has_failed.store(true, Ordering::Relaxed);
            });
        }
    });
}

/// Takes a lock, and adds one to what it protects. Returns `None` if a server has gone.
fn update(
    [locks, resources]: &mut [Client; 2],
    number: usize,
    (name, lifetime_ms): (&str, &str),
    is_fenced: bool,
) -> Option<()> {
    let (lock, resource) = (format!("lock:{number}"), format!("resource:{number}"));
    let token = format!("{name}-{number}");
    let wait = format!("LOCK ACQUIRE {lock} {token} PX {lifetime_ms} WAIT 1000");
    let Reply::Integer(fence) = locks.try_line(&wait).ok()? else { return Some(()) };
    let fence = if is_fenced { fence } else { i64::MAX };
    let read = resources.cmd(["EVAL", READ, "1", &resource, &fence.to_string()]).reply();
    let Reply::Bulk(value) = read else { return Some(()) };
    let value: i64 = String::from_utf8_lossy(&value).parse().expect("a number");
    // Here it may be paused for longer than it holds the lock.
    thread::sleep(Duration::from_millis(lifetime_ms.parse::<u64>().expect("a number") / 20));
    let value = (value + 1).to_string();
    resources.cmd(["EVAL", WRITE, "1", &resource, &fence.to_string(), &value]).integer();
    locks.try_line(&format!("LOCK RELEASE {lock} {token}")).ok()?;
    Some(())
}

/// Checks that no update is lost, and that the numbers are what saves it.
#[track_caller]
pub(crate) fn nothing_is_lost(servers: &[&Server], times: (Duration, Duration), default_rounds: i64) {
    let began = Instant::now();
    let fenced = pause_holders(servers, times, true, rounds(default_rounds));
    assert!(fenced.accepted > 0 && fenced.lost == 0, "{fenced:?}");
    println!("{} holders came too late in {:?}", fenced.refused, began.elapsed());
}

#[test]
fn paused_holders_of_locks_in_memory_lose_nothing() {
    if let Some(arguments) = arguments_of_a_holder() {
        return hold(&arguments);
    }
    nothing_is_lost(&[&Server::start()], TIMES, 300);
}

/// That nothing is lost proves little where nothing could be lost.
#[test]
fn without_their_numbers_paused_holders_lose_updates() {
    let unfenced = pause_holders(&[&Server::start()], TIMES, false, 1);
    assert!(unfenced.lost >= 1, "{unfenced:?}");
}
