//! Many instances in one process: what each takes, that none disturbs another, and that one that goes leaves
//! nothing behind.
//!
//! The program counts its memory as the server does, by requested bytes, so what is measured does not depend
//! on the machine. The tests run one at a time: they count the threads and the memory of the whole process.

mod servers;

use std::collections::BTreeSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use keyfast::internals::allocator::{self, Account, Counted};
use keyfast::internals::clients::{Address, Registration};
use keyfast::internals::commands::facts::lookup::Finder;
use keyfast::internals::commands::known;
use keyfast::internals::config::{Config, Parameter};
use keyfast::internals::dispatch::meter::Meter;
use keyfast::internals::dispatch::{Plan, execute};
use keyfast::internals::host::Shared;
use keyfast::internals::instance::{Hooks, Instance, KnownCommands, Scale};
use keyfast::internals::keyspace::Outcome;
use keyfast::internals::resp::OwnedRequest;
use keyfast::internals::session::Session;
use keyfast::internals::upkeep::{self, Upkeep};
use tokio::runtime::Builder;
use tokio::time::sleep;

#[global_allocator]
static COUNTED: Counted = Counted;

/// How many instances there are beside each other.
const MANY: usize = 1000;
/// What an idle instance takes at most.
const IDLE_BYTES_MAX: usize = 16 << 10;

/// When the keys of these tests expire. Until then an instance falls asleep, unless the machine is very busy.
const EXPIRY: Duration = Duration::from_millis(4000);
/// What may be left of all instances together when they have gone: 131 bytes each. Most of it is the queue of
/// the runtime, in which all their tasks once were. Each thread keeps some memory for the next request, too.
const LEFT_BYTES_MAX: usize = 128 << 10;

/// Lets one test run at a time.
fn alone() -> MutexGuard<'static, ()> {
    static RUNNING: Mutex<()> = Mutex::new(());
    support::open_files::raise_limit();
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What some instances have in common.
struct Common {
    shared: Arc<Shared>,
    commands: KnownCommands,
}

impl Common {
    fn new() -> Common {
        Common { shared: Arc::default(), commands: known(&[]) }
    }

    /// An instance with few keys, and the account of its memory.
    fn instance(&self) -> (Arc<Instance>, Arc<Account>) {
        let scale = Scale::small();
        let account = scale.account.clone().expect("it shares the process");
        let (shared, commands) = (Arc::clone(&self.shared), self.commands.clone());
        let made = || {
            let config = Config::new();
            // It saves nothing: changes that are to be saved keep an instance awake.
            config.store(Parameter::named(b"save").expect("known").check(b"").expect("a value"));
            Arc::new(Instance::on(shared, scale, config, commands, Hooks::default()))
        };
        (account.charge(made), account)
    }

    /// The same with its periodic work, in the runtime of the caller.
    fn kept(&self) -> Kept {
        let (instance, account) = self.instance();
        // The tables of the runtime belong to no instance.
        let _upkeep = upkeep::start(&instance);
        Kept { instance, account, _upkeep }
    }
}

/// An instance with its periodic work.
struct Kept {
    instance: Arc<Instance>,
    account: Arc<Account>,
    _upkeep: Upkeep,
}

/// Waits until something holds, which it does soon.
async fn wait_until(mut holds: impl FnMut() -> bool) {
    const PATIENCE: Duration = Duration::from_secs(60);
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < PATIENCE, "it does not");
        sleep(Duration::from_millis(10)).await;
    }
}

/// The same for a test that is not asynchronous.
fn soon(mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(60), "it does not");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// How often periodic work wakes up for one of the instances.
async fn visits_of(common: &Common, time: Duration) -> u64 {
    let before = common.shared.visits();
    sleep(time).await;
    common.shared.visits() - before
}

/// A client of an instance, without a socket.
struct Client {
    instance: Arc<Instance>,
    session: Session,
    _registration: Registration,
}

impl Client {
    fn of(instance: &Arc<Instance>) -> Client {
        instance.charged(|| {
            let nowhere = Address::Unix(Path::new("").into());
            let registration = instance.clients.register(nowhere.clone(), nowhere, -1);
            let session = Session::new(registration.client.clone(), &instance.users);
            Client { instance: Arc::clone(instance), session, _registration: registration }
        })
    }

    /// Sends a line; returns the reply.
    fn say(&mut self, line: &str) -> String {
        let Client { instance, session, .. } = self;
        let request = OwnedRequest::of_line(line.as_bytes()).expect("a line");
        let request = request.request().expect("a request");
        let reply = instance.charged(|| {
            let (mut meter, mut out) = (Meter::new(instance), Vec::new());
            meter.reload(session);
            let plan = Plan::new(&instance.keyspace, &mut Finder::new(&instance.names), request);
            execute(instance, session, &request, &plan, &mut meter, &mut out);
            meter.finish(session);
            out
        });
        String::from_utf8(reply).expect("text")
    }
}

/// How many threads this process has beside those of the tests, which have the names of their tests.
fn threads() -> usize {
    let tasks = fs::read_dir("/proc/self/task").expect("the system's files");
    let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    let is_of_test = |name: &String| name.is_empty() || name.starts_with("many-") || name.contains('_');
    tasks.map(|task| name(task.expect("a thread"))).filter(|name| !is_of_test(name)).count()
}

#[test]
fn an_idle_instance_takes_a_few_kilobytes_and_a_thousand_take_a_thousand_times_that() {
    let _alone = alone();
    let common = Common::new();
    // What all have in common is there before.
    drop(common.instance());
    let (threads_before, bytes_before) = (threads(), allocator::used_bytes());
    let instances: Vec<_> = (0..MANY).map(|_| common.instance()).collect();
    let used: Vec<_> = instances.iter().map(|(_, account)| account.used_bytes()).collect();
    assert!(used.iter().all(|bytes| *bytes <= IDLE_BYTES_MAX), "{} bytes", used.iter().max().unwrap());
    assert!(allocator::used_bytes() - bytes_before <= MANY * IDLE_BYTES_MAX);
    assert!(threads() <= threads_before, "one has started");
}

#[test]
fn an_instance_is_a_whole_server() {
    let _alone = alone();
    let common = Common::new();
    let (instance, _) = common.instance();
    use_everything(&instance);
}

/// Uses what an instance has: keys of all kinds, expiries, scripts, clients that wait and listen, the lens.
fn use_everything(instance: &Arc<Instance>) {
    let (mut client, mut other) = (Client::of(instance), Client::of(instance));
    for (line, expected) in [
        ("SETNX k v", ":1\r\n"),
        ("GET k", "$1\r\nv\r\n"),
        ("HSET hash f v", ":1\r\n"),
        ("ZADD ranking 1 m", ":1\r\n"),
        ("XADD events 1-1 f v", "$3\r\n1-1\r\n"),
        ("SET lock token NX PX 60000", "+OK\r\n"),
        ("EVAL 'return redis.call(\"incr\", KEYS[1])' 1 n", ":1\r\n"),
        ("SETRANGE long 100000 x", ":100001\r\n"),
        ("UNLINK long", ":1\r\n"),
        ("MULTI", "+OK\r\n"),
        ("INCR n", "+QUEUED\r\n"),
        ("EXEC", "*1\r\n:2\r\n"),
        ("SCAN 0 MATCH ranking COUNT 1000", "*2\r\n$1\r\n0\r\n*1\r\n$7\r\nranking\r\n"),
        ("SLOWLOG LEN", ":"),
        ("LATENCY RESET", ":0\r\n"),
        ("OBJECT ENCODING nothing", "$-1\r\n"),
        ("DEBUG SET-ACTIVE-EXPIRE 0", "-ERR DEBUG command not allowed."),
        ("PEXPIRE k 1", ":1\r\n"),
    ] {
        let reply = client.say(line);
        assert!(reply.starts_with(expected), "{line}: {reply}");
    }
    assert!(client.say("LOCKS LIST").contains("lock"));
    instance.clock.freeze();
    instance.clock.advance(10).expect("ten milliseconds");
    assert_eq!(client.say("GET k"), "$-1\r\n");
    assert_eq!(other.say("SUBSCRIBE news"), "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n");
    assert_eq!(client.say("PUBLISH news m"), ":1\r\n");
    let mut waiting = Client::of(instance);
    waiting.say("BLPOP queue 0");
    let waiter = Arc::clone(&waiting.session.blocked.as_ref().expect("it waits").waiter);
    assert_eq!(client.say("RPUSH queue first"), ":1\r\n");
    let Some(Outcome::Served(reply, _)) = waiter.end() else { panic!("it was not served") };
    assert_eq!(reply, b"*2\r\n$5\r\nqueue\r\n$5\r\nfirst\r\n");
    instance.keyspace.unblock(&waiter);
}

#[test]
fn a_thousand_idle_instances_sleep_and_have_no_thread() {
    let _alone = alone();
    let common = Common::new();
    // One that was there before makes what all have in common.
    drop(common.instance());
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    let (threads_before, bytes_before) = (threads(), allocator::used_bytes());
    runtime.block_on(async {
        let kept: Vec<_> = (0..MANY).map(|_| common.kept()).collect();
        let used = kept.iter().map(|kept| kept.account.used_bytes()).max().expect("some");
        assert!(used <= IDLE_BYTES_MAX, "{used} bytes");
        wait_until(|| kept.iter().all(|kept| kept.instance.sleep.is_asleep())).await;
        // Those that look once more before they rest have done so.
        sleep(Duration::from_millis(1500)).await;
        assert_eq!(visits_of(&common, Duration::from_secs(2)).await, 0);
        assert!(threads() <= threads_before, "one has started");
        let each = (allocator::used_bytes() - bytes_before) / MANY;
        assert!(each <= IDLE_BYTES_MAX, "{each} bytes each");

        // A command wakes its own instance, and a key that expires does.
        let (mut client, set_at) = (Client::of(&kept[7].instance), Instant::now());
        assert_eq!(client.say("SET k v PX 4000"), "+OK\r\n");
        assert!(!kept[7].instance.sleep.is_asleep());
        wait_until(|| kept[7].instance.sleep.is_asleep()).await;
        sleep(Duration::from_millis(200)).await;
        assert_eq!(kept.iter().filter(|kept| !kept.instance.sleep.is_asleep()).count(), 0);
        let keys = || kept[7].instance.keyspace.begin_all(0).expect("no client").database_size().keys;
        assert!(keys() == 1 || set_at.elapsed() >= EXPIRY);
        wait_until(|| keys() == 0).await;
        wait_until(|| kept[7].instance.sleep.is_asleep()).await;
        let tells = client.say("INFO stats");
        assert!(tells.contains("expired_keys:1\r\n"), "{tells}");
    });
}

#[test]
fn what_only_time_brings_about_keeps_an_instance_awake() {
    let _alone = alone();
    let common = Common::new();
    let falls_asleep = |instance: &Instance| {
        // The rates fall to zero.
        (0..20).for_each(|_| instance.statistics.sample_rates(100));
        instance.falls_asleep()
    };
    for (keeps_awake, lets_sleep) in [
        ("CONFIG SET save '60 1'", "CONFIG SET save ''"),
        ("CLIENT PAUSE 100000 WRITE", "CLIENT UNPAUSE"),
        ("CONFIG SET timeout 100", "CONFIG SET timeout 0"),
        ("CLIENT TRACKING ON", "CLIENT TRACKING OFF"),
        ("CONFIG SET maxmemory 1000", "CONFIG SET maxmemory 0"),
    ] {
        let (instance, _) = common.instance();
        let mut client = Client::of(&instance);
        client.say("HELLO 3");
        assert_eq!(client.say("SET k v"), "+OK\r\n");
        assert!(!instance.falls_asleep(), "a command was just executed");
        assert!(falls_asleep(&instance) && instance.sleep.is_asleep());
        assert_eq!(client.say(keeps_awake), "+OK\r\n");
        assert!(!instance.sleep.is_asleep(), "a command wakes it");
        assert!(!falls_asleep(&instance) && !instance.sleep.is_asleep(), "{keeps_awake}");
        assert_eq!(client.say(lets_sleep), "+OK\r\n");
        assert!(falls_asleep(&instance), "{lets_sleep}");
    }
}

#[test]
fn a_lock_passes_to_the_client_that_waits_for_it_while_its_instance_sleeps() {
    let _alone = alone();
    let common = Common::new();
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let kept = common.kept();
        let (mut holder, mut waiting) = (Client::of(&kept.instance), Client::of(&kept.instance));
        let taken_at = Instant::now();
        assert!(holder.say("LOCK ACQUIRE lock one PX 4000").starts_with(":"));
        waiting.say("LOCK ACQUIRE lock two PX 60000 WAIT 60000");
        let waiter = Arc::clone(&waiting.session.blocked.as_ref().expect("it waits").waiter);
        wait_until(|| kept.instance.sleep.is_asleep()).await;
        assert!(!waiter.has_ended() || taken_at.elapsed() >= EXPIRY);
        wait_until(|| waiter.has_ended()).await;
        assert!(matches!(waiter.end(), Some(Outcome::Served(..))));
        kept.instance.keyspace.unblock(&waiter);
    });
}

#[test]
fn few_shards_hold_many_keys() {
    const KEYS: usize = 5000;
    let _alone = alone();
    let (instance, _) = Common::new().instance();
    let mut client = Client::of(&instance);
    for number in 0..KEYS {
        assert_eq!(client.say(&format!("SET key:{number} v")), "+OK\r\n");
    }
    assert_eq!(client.say("DBSIZE"), format!(":{KEYS}\r\n"));
    let (mut cursor, mut found) = ("0".to_owned(), BTreeSet::new());
    loop {
        let reply = client.say(&format!("SCAN {cursor} COUNT 100"));
        let mut lines = reply.lines().skip(2);
        cursor = lines.next().expect("a cursor").to_owned();
        found.extend(lines.filter(|line| line.starts_with("key:")).map(str::to_owned));
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(found.len(), KEYS);
    // A cursor of a keyspace with more shards is one, too.
    assert!(client.say(&format!("SCAN {}", u64::MAX >> 12)).starts_with("*2\r\n"));
    let many: String = (0..100).map(|number| format!(" key:{number}")).collect();
    assert_eq!(client.say(&format!("DEL{many}")), ":100\r\n");
    assert_eq!(client.say("FLUSHALL"), "+OK\r\n");
    assert_eq!(client.say("RANDOMKEY"), "$-1\r\n");
}

#[test]
fn instances_that_go_give_their_memory_back() {
    let _alone = alone();
    let common = Common::new();
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    let use_and_drop = |count: usize| {
        runtime.block_on(async {
            let kept: Vec<_> = (0..count).map(|_| common.kept()).collect();
            let of_one = |kept: &Kept| {
                use_everything(&kept.instance);
                kept.account.used_bytes()
            };
            let used: Vec<_> = kept.iter().map(of_one).collect();
            let gone: Vec<_> = kept.iter().map(|kept| Arc::downgrade(&kept.instance)).collect();
            drop(kept);
            // The runtime ends the periodic work.
            wait_until(|| gone.iter().all(|gone| gone.strong_count() == 0)).await;
            used
        })
    };
    // What a thread keeps for the next request is there before.
    use_and_drop(1);
    let before = allocator::used_bytes();
    let used = use_and_drop(MANY);
    let left_bytes = allocator::used_bytes().saturating_sub(before);
    assert!(used.iter().all(|bytes| *bytes > IDLE_BYTES_MAX));
    assert!(left_bytes <= LEFT_BYTES_MAX, "{left_bytes} bytes are left");
}

#[test]
fn a_panic_in_one_instance_ends_none_of_the_others() {
    let _alone = alone();
    let common = Common::new();
    let instances: Vec<_> = (0..3).map(|_| common.instance()).collect();
    let mut clients: Vec<_> = instances.iter().map(|(instance, _)| Client::of(instance)).collect();
    clients.iter_mut().for_each(|client| assert_eq!(client.say("SET k v"), "+OK\r\n"));
    let (broken, account) = &instances[1];
    let fault = || {
        broken.charged(|| {
            // It holds all that a command may hold.
            let _everything = broken.keyspace.begin_all(0).expect("no client holds a key");
            panic!("a fault of the program");
        })
    };
    assert!(catch_unwind(AssertUnwindSafe(fault)).is_err());
    let counted = account.used_bytes();
    let taken = vec![0_u8; 1 << 20];
    assert_eq!(account.used_bytes(), counted, "{} bytes count for the one that had the fault", taken.len());
    for client in &mut clients {
        assert_eq!(client.say("GET k"), "$1\r\nv\r\n");
        assert_eq!(client.say("EVAL 'return redis.call(\"get\", KEYS[1])' 1 k"), "$1\r\nv\r\n");
    }
}

#[test]
fn an_instance_counts_its_own_memory() {
    let _alone = alone();
    let common = Common::new();
    let ((small, small_account), (large, large_account)) = (common.instance(), common.instance());
    let before = small_account.used_bytes();
    let mut client = Client::of(&large);
    assert_eq!(client.say("SETRANGE k 1000000 x"), ":1000001\r\n");
    assert!(large.used_memory() > 1_000_000 && large_account.peak_bytes() > 1_000_000);
    assert_eq!(small_account.used_bytes(), before);
    let mut other = Client::of(&small);
    for limit in ["CONFIG SET maxmemory 200kb", "CONFIG SET maxmemory-policy noeviction"] {
        assert_eq!((client.say(limit), other.say(limit)), ("+OK\r\n".into(), "+OK\r\n".into()));
    }
    assert!(client.say("SET other v").starts_with("-OOM "));
    assert_eq!(other.say("SET other v"), "+OK\r\n");
    assert_eq!(client.say("DEL k"), ":1\r\n");
    assert_eq!(client.say("SET other v"), "+OK\r\n");
    let shown = |client: &mut Client| {
        let info = client.say("INFO memory");
        let line = info.lines().find_map(|line| line.strip_prefix("used_memory:")).expect("a line");
        line.parse::<usize>().expect("a number")
    };
    assert!(shown(&mut client) < 200 << 10 && shown(&mut other) < 200 << 10);
}
