//! Locks of the crate rslock, in RESP2 and RESP3. It takes them by `SET NX PX` on every server at once,
//! extends them and lets them go by Lua scripts, and holds what most of the servers grant.

use std::time::Duration;

use ::rslock::{Lock, LockError, LockManager};
use tokio::runtime::Builder;
use tokio::time::timeout;

use support::client::Client;
use support::server::{PATIENCE, Server};

const CONTENDERS: usize = 8;
const TURNS: usize = 25; // for each contender
/// Longer than any story holds a lock.
const HELD: Duration = Duration::from_secs(60);
/// How long a story may take, on a slow machine.
const STORY: Duration = Duration::from_secs(60);

/// Tells a story in both protocols, to so many new servers each.
fn tell(count: usize, story: impl AsyncFn(&mut Vec<Server>, &str)) {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    for protocol in ["resp2", "resp3"] {
        let mut servers: Vec<_> = (0..count).map(|_| Server::start()).collect();
        runtime.block_on(async {
            timeout(STORY, story(&mut servers, protocol))
                .await
                .unwrap_or_else(|_| panic!("{protocol} takes too long"));
        });
    }
}

/// Someone who locks, with connections of his own, and tries once.
fn manager(servers: &[Server], protocol: &str) -> LockManager {
    let urls =
        servers.iter().map(|server| format!("redis://127.0.0.1:{}/?protocol={protocol}", server.port()));
    let mut manager = LockManager::new(urls.collect());
    manager.set_retry(1, Duration::from_millis(10));
    manager
}

/// How long the lock is still held on each server, in milliseconds.
fn times_left(servers: &[Server]) -> Vec<i64> {
    servers.iter().map(|server| server.client().line("PTTL lock").integer()).collect()
}

fn are_within(times: &[i64], low: i64, high: i64) -> bool {
    times.iter().all(|time| (low..=high).contains(time))
}

fn is_unavailable(result: Result<Lock, LockError>) -> bool {
    matches!(result, Err(LockError::Unavailable))
}

marked!(also_redis: a_lock_is_taken_refused_and_let_go);
fn a_lock_is_taken_refused_and_let_go() {
    tell(1, async |servers, protocol| {
        let (mine, yours) = (manager(servers, protocol), manager(servers, protocol));
        let lock = mine.lock("lock", HELD).await.expect("it is free");
        assert!(0 < lock.validity_time && lock.validity_time < HELD.as_millis() as usize);
        assert!(are_within(&times_left(servers), 1, 60_000));
        servers[0].client().line("GET lock").is(lock.val.as_slice());
        assert!(is_unavailable(yours.lock("lock", HELD).await));
        assert!(!mine.is_freed(&lock).await.expect("it is held"));
        mine.unlock(&lock).await;
        servers[0].client().line("EXISTS lock").is(0);
        assert!(matches!(mine.is_freed(&lock).await, Err(LockError::RedisKeyNotFound)));
        yours.lock("lock", HELD).await.expect("it is free again");
    });
}

marked!(also_redis: only_the_holder_extends_a_lock_and_lets_it_go);
fn only_the_holder_extends_a_lock_and_lets_it_go() {
    tell(1, async |servers, protocol| {
        let (mine, yours) = (manager(servers, protocol), manager(servers, protocol));
        let lock = mine.lock("lock", Duration::from_secs(10)).await.expect("it is free");
        let longer = mine.extend(&lock, HELD).await.expect("it is held");
        assert_eq!((&longer.val, &longer.resource), (&lock.val, &lock.resource));
        assert!(are_within(&times_left(servers), 20_000, 60_000));
        let not_his = Lock { val: b"guessed".to_vec(), lock_manager: yours.clone(), ..lock };
        assert!(is_unavailable(yours.extend(&not_his, HELD).await));
        yours.unlock(&not_his).await;
        servers[0].client().line("GET lock").is(longer.val.as_slice());
        assert!(matches!(yours.is_freed(&not_his).await, Err(LockError::RedisKeyMismatch)));
    });
}

marked!(also_redis: a_guard_lets_go_when_it_is_told_to);
fn a_guard_lets_go_when_it_is_told_to() {
    tell(1, async |servers, protocol| {
        let (mine, yours) = (manager(servers, protocol), manager(servers, protocol));
        let guard = mine.acquire("lock", HELD).await.expect("it is free");
        let waiting = tokio::spawn(async move { yours.acquire("lock", HELD).await });
        // It has asked in vain before the lock is let go.
        let mut client = servers[0].client();
        while times_locked(&mut client) < 2 {
            tokio::task::yield_now().await;
        }
        assert!(!waiting.is_finished());
        guard.release().await;
        let next = timeout(PATIENCE, waiting).await.expect("in time").expect("no panic").expect("the lock");
        client.line("GET lock").is(next.lock.val.as_slice());
        drop(next);
        client.line("EXISTS lock").is(1);
    });
}

/// How often clients have tried to take a lock: the server's count of SETs.
fn times_locked(client: &mut Client) -> u64 {
    let statistics = client.line("INFO commandstats").text();
    let calls = statistics.split("cmdstat_set:calls=").nth(1).and_then(|rest| rest.split(',').next());
    calls.map_or(0, |calls| calls.parse().expect("a number"))
}

marked!(also_redis: a_lock_that_expired_is_lost_and_taken_by_the_next);
fn a_lock_that_expired_is_lost_and_taken_by_the_next() {
    tell(1, async |servers, protocol| {
        let (mine, yours) = (manager(servers, protocol), manager(servers, protocol));
        // Long enough for a busy machine to take it in time, which the library looks at.
        let lock = mine.lock("lock", Duration::from_millis(500)).await.expect("it is free");
        let next =
            timeout(PATIENCE, yours.acquire("lock", HELD)).await.expect("in time").expect("it expired");
        assert!(is_unavailable(mine.extend(&lock, HELD).await));
        mine.unlock(&lock).await;
        servers[0].client().line("GET lock").is(next.lock.val.as_slice());
        assert!(matches!(mine.is_freed(&lock).await, Err(LockError::RedisKeyMismatch)));
    });
}

marked!(also_redis: scripts_that_the_server_forgot_are_sent_again);
fn scripts_that_the_server_forgot_are_sent_again() {
    tell(1, async |servers, protocol| {
        let mine = manager(servers, protocol);
        let lock = mine.lock("lock", HELD).await.expect("it is free");
        servers[0].client().line("SCRIPT FLUSH").is_ok();
        let longer = mine.extend(&lock, HELD).await.expect("it is held");
        servers[0].client().line("SCRIPT FLUSH").is_ok();
        longer.release().await;
        servers[0].client().line("EXISTS lock").is(0);
    });
}

marked!(also_redis: eight_contenders_count_under_the_lock);
/// Without the lock, reading and writing in two steps would lose counts.
fn eight_contenders_count_under_the_lock() {
    tell(1, async |servers, protocol| {
        let address = servers[0].port();
        servers[0].client().line("SET counter 0").is_ok();
        let contenders: Vec<_> = (0..CONTENDERS)
            .map(|_| {
                (manager(servers, protocol), redis::Client::open(format!("redis://127.0.0.1:{address}")))
            })
            .map(|(manager, client)| tokio::spawn(count(manager, client.expect("an address"))))
            .collect();
        for contender in contenders {
            contender.await.expect("no panic");
        }
        servers[0].client().line("GET counter").is((CONTENDERS * TURNS).to_string().as_str());
        servers[0].client().line("EXISTS lock").is(0);
    });
}

async fn count(manager: LockManager, client: redis::Client) {
    let mut connection = client.get_multiplexed_async_connection().await.expect("a connection");
    for _ in 0..TURNS {
        let guard = manager.acquire("lock", HELD).await.expect("a lock");
        let seen: usize =
            redis::cmd("GET").arg("counter").query_async(&mut connection).await.expect("a count");
        let set = redis::cmd("SET").arg("counter").arg(seen + 1).exec_async(&mut connection).await;
        set.expect("it is set");
        guard.release().await;
    }
}

marked!(also_redis: one_of_three_servers_may_stop_but_not_two);
fn one_of_three_servers_may_stop_but_not_two() {
    tell(3, async |servers, protocol| {
        let mine = manager(servers, protocol);
        let lock = mine.lock("lock", HELD).await.expect("it is free");
        assert!(are_within(&times_left(servers), 1, 60_000));
        drop(servers.pop());
        let lock = mine.extend(&lock, HELD).await.expect("two are most of three");
        let other = manager(servers, protocol);
        assert!(is_unavailable(other.lock("lock", HELD).await));
        mine.unlock(&lock).await;
        let lock = mine.lock("lock", HELD).await.expect("two are most of three");
        drop(servers.pop());
        assert!(is_unavailable(mine.extend(&lock, HELD).await));
        assert!(is_unavailable(mine.lock("another", HELD).await));
        // The remaining server granted the lock, and was told to release it, as there is no majority.
        servers[0].client().line("DBSIZE").is(0);
    });
}
