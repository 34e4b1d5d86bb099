//! Periodic work, whether clients send requests or not.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use tokio::task::{JoinHandle, spawn_blocking, yield_now};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::clients::Leaving;
use crate::commands::execution::client_room::limit_clients;
use crate::commands::execution::room::{Room, make_room};
use crate::instance::Instance;
use crate::keyspace::expiry::Sweep;

use super::slack::Slack;

/// The interval at which rates are sampled and the clock for the use of keys advances.
const TICK: Duration = Duration::from_millis(100);
/// The interval between searches for clients that are idle, or read too slowly: both count seconds.
const CLIENTS_INTERVAL: Duration = Duration::from_secs(1);
/// The interval between checks for unused memory.
const SLACK_INTERVAL: Duration = Duration::from_secs(1);

/// Starts the periodic work, which ends with the runtime. The returned task ends when the thread that writes
/// the log has begun.
pub(super) fn start(instance: &Arc<Instance>) -> JoinHandle<thread::JoinHandle<()>> {
    tokio::spawn(free_expired_keys(Arc::clone(instance)));
    tokio::spawn(grant_expired_locks(Arc::clone(instance)));
    tokio::spawn(keep_time(Arc::clone(instance)));
    tokio::spawn(close_clients(Arc::clone(instance)));
    tokio::spawn(give_memory_back());
    tokio::spawn(write_snapshots(Arc::clone(instance)));
    tokio::spawn(write_aof(Arc::clone(instance)))
}

async fn free_expired_keys(instance: Arc<Instance>) {
    let mut sweep = Sweep::default();
    loop {
        let pace = instance.sweep_pace();
        let wait = match instance.frees_expired() {
            true => sweep.slice(&instance.keyspace, pace, |effects| instance.notify(effects, None)),
            false => pace.rest,
        };
        sleep(wait).await;
    }
}

/// Grants locks that expire to the clients that wait for them, to the millisecond.
async fn grant_expired_locks(instance: Arc<Instance>) {
    /// The clock may be turned meanwhile; CLOCK itself grants what expires by that.
    const LOOK_AGAIN: Duration = Duration::from_secs(1);
    /// While nothing expires, as in a pause.
    const STANDSTILL: Duration = Duration::from_millis(10);
    let alarms = &instance.followers.alarms;
    loop {
        let Some(first_ms) = alarms.first_ms() else {
            alarms.changed().await;
            continue;
        };
        let left = Duration::from_millis(first_ms).saturating_sub(instance.clock.since_epoch());
        if !left.is_zero() {
            let _ = timeout(left.min(LOOK_AGAIN), alarms.changed()).await;
        } else if instance.frees_expired() {
            instance.keyspace.ring_alarms(|effects| instance.notify(effects, None));
            yield_now().await;
        } else {
            sleep(STANDSTILL).await;
        }
    }
}

async fn keep_time(instance: Arc<Instance>) {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last = ticks.tick().await;
    loop {
        let now = ticks.tick().await;
        if instance.pauses_cron.load(Ordering::Relaxed) {
            continue;
        }
        instance.statistics.sample_rates((now - last).as_millis() as u64);
        instance.clients.follow_clock();
        limit_clients(&instance);
        // If the limit was lowered, no command may come that would make room.
        while make_room(&instance) == Room::TooLittle {
            yield_now().await;
        }
        instance.keyspace.follow_clock();
        instance.tidy_tracking();
        instance.allow_lock_news();
        instance.lens.write_due_lines(Instant::now());
        instance.look_after_snapshots();
        last = now;
    }
}

/// Has snapshots written one after the other, each by a blocking thread.
async fn write_snapshots(instance: Arc<Instance>) {
    loop {
        instance.persistence.called().await;
        let writer = Arc::clone(&instance);
        // If it panics there is no snapshot, and no other one begins before that one has ended.
        let _ = spawn_blocking(move || writer.save_in_background()).await;
    }
}

/// Starts the thread that writes the log, when the log is first turned on.
async fn write_aof(instance: Arc<Instance>) -> thread::JoinHandle<()> {
    instance.persistence.aof.turned_on().await;
    let writer = Arc::clone(&instance);
    let started = Builder::new().name("log".to_owned()).spawn(move || writer.write_aof());
    started.unwrap_or_else(|error| {
        // Without the thread no reply could be sent.
        tracing::error!("Could not start the thread that writes the log: {error}");
        std::process::abort()
    })
}

async fn give_memory_back() {
    let mut slack = Slack::default();
    loop {
        sleep(SLACK_INTERVAL).await;
        if slack.is_large() {
            let given_back = spawn_blocking(move || {
                slack.give_back();
                slack
            });
            slack = given_back.await.unwrap_or_default();
        }
    }
}

async fn close_clients(instance: Arc<Instance>) {
    let mut ticks = interval(CLIENTS_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        instance.clients.enforce_output_limits();
        let timeout_s = instance.config.timeout.size() as u64;
        if timeout_s == 0 {
            continue;
        }
        let now_ms = instance.clients.now_ms();
        for client in instance.clients.all() {
            if client.idle_s(now_ms) > timeout_s {
                tracing::debug!("Closing idle client {}", client.address);
                client.ask_to_leave(Leaving::Now);
            }
        }
    }
}
