//! Locks of the crate rslock, unchanged, over two front-ends of one store. The front-ends are one place: each
//! manager names one of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ::rslock::{Lock, LockError, LockManager};
use tokio::runtime::Builder;
use tokio::time::timeout;

use super::{Kind, pair};
use support::server::{PATIENCE, Server};

on_both! {
    rslock_holds_one_lock_over_both_front_ends
    contenders_of_rslock_at_both_front_ends_count_under_the_lock
}

/// Longer than any story holds a lock.
const HELD: Duration = Duration::from_secs(300);
const CONTENDERS: usize = 6;
const TURNS: usize = 10; // for each contender

/// Someone who locks at one front-end, and tries once.
fn manager(front: &Server) -> LockManager {
    let mut manager = LockManager::new(vec![format!("redis://127.0.0.1:{}/", front.port())]);
    manager.set_retry(1, Duration::from_millis(10));
    manager
}

fn is_unavailable(result: Result<Lock, LockError>) -> bool {
    matches!(result, Err(LockError::Unavailable))
}

/// Runs a story to its end, which must come.
fn tell(story: impl Future<Output = ()>) {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async { timeout(2 * PATIENCE, story).await.expect("it takes too long") });
}

/// Asks again and again until the lock is free.
async fn soon(manager: &LockManager, held: Duration) -> Lock {
    let began = Instant::now();
    loop {
        match manager.lock("lock", held).await {
            Ok(lock) => return lock,
            Err(LockError::Unavailable) if began.elapsed() < PATIENCE => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

fn rslock_holds_one_lock_over_both_front_ends(kind: Kind) {
    let Some((_cluster, one, other)) = pair(kind, "rslock") else { return };
    tell(async {
        let (mine, yours) = (manager(&one), manager(&other));
        let lock = mine.lock("lock", HELD).await.expect("it is free");
        assert!(is_unavailable(yours.lock("lock", HELD).await));
        let longer = mine.extend(&lock, 2 * HELD).await.expect("it is ours");
        let left = other.client().line("PTTL lock").integer();
        assert!(left > HELD.as_millis() as i64, "{left}");
        // The holder goes on at the other front-end.
        yours.unlock(&longer).await;
        other.client().line("EXISTS lock").is(0);
        assert!(is_unavailable(mine.extend(&longer, HELD).await));

        let began = Instant::now();
        let lost = mine.lock("lock", Duration::from_millis(2_500)).await.expect("it is free");
        let next = soon(&yours, HELD).await;
        assert!(began.elapsed() >= Duration::from_millis(2_500), "two hold the lock");
        // Who has lost it does not release it.
        mine.unlock(&lost).await;
        assert!(is_unavailable(mine.extend(&lost, HELD).await));
        assert!(is_unavailable(mine.lock("lock", HELD).await));
        yours.extend(&next, HELD).await.expect("it is still theirs");
    });
}

fn contenders_of_rslock_at_both_front_ends_count_under_the_lock(kind: Kind) {
    let Some((_cluster, one, other)) = pair(kind, "rslock-many") else { return };
    tell(async {
        one.client().line("SET counter 0").is_ok();
        let is_held = Arc::new(AtomicBool::new(false));
        let contenders = (0..CONTENDERS).map(|number| {
            let (manager, is_held) = (manager([&one, &other][number % 2]), Arc::clone(&is_held));
            let mut client = [&one, &other][number % 2].client();
            tokio::spawn(async move {
                for _ in 0..TURNS {
                    let lock = soon(&manager, HELD).await;
                    assert!(!is_held.swap(true, Ordering::SeqCst), "two hold the lock");
                    let before: usize = client.line("GET counter").text().parse().expect("a number");
                    client.line(&format!("SET counter {}", before + 1)).is_ok();
                    is_held.store(false, Ordering::SeqCst);
                    manager.unlock(&lock).await;
                }
            })
        });
        let contenders: Vec<_> = contenders.collect();
        for contender in contenders {
            contender.await.expect("it counts to the end");
        }
        other.client().line("GET counter").is(&*(CONTENDERS * TURNS).to_string());
    });
}
