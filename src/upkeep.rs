//! Periodic work of an instance, whether clients send requests or not.
//!
//! Each instance has some tasks of the runtime in which they were [started](start), and no thread. They wait
//! on the runtime's timers. While the instance [sleeps](crate::instance::Sleep), only the key that expires
//! next has a timer. So a thousand idle instances cost their memory alone.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, Builder};
use std::time::Duration;

use tokio::task::{JoinHandle, JoinSet, spawn_blocking, yield_now};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep, timeout};

use crate::clients::Leaving;
use crate::commands::execution::client_room::limit_clients;
use crate::commands::execution::room::{Room, make_room_by_tick};
use crate::commands::locks::losing::lose_due;
use crate::instance::Instance;
use crate::keyspace::expiry::Sweep;
use crate::statistics::Count;

/// The interval at which rates are sampled and the clock for the use of keys advances.
const TICK: Duration = Duration::from_millis(100);
/// The interval between searches for clients that are idle, or read too slowly: both count seconds.
const CLIENTS_INTERVAL: Duration = Duration::from_secs(1);

/// The periodic work of an instance. It ends when this is dropped, or with the runtime.
#[derive(Debug)]
pub struct Upkeep {
    tasks: JoinSet<()>,
    /// The task that starts the log's writer; its result is the writer's thread.
    log_writer: Option<JoinHandle<thread::JoinHandle<()>>>,
}

/// Starts the periodic work, in the runtime of the caller.
pub fn start(instance: &Arc<Instance>) -> Upkeep {
    let mut tasks = in_memory(instance);
    tasks.spawn(write_snapshots(Arc::clone(instance)));
    Upkeep { tasks, log_writer: Some(tokio::spawn(write_aof(Arc::clone(instance)))) }
}

/// The same for a sandbox, whose data live in memory only.
pub(crate) fn start_in_memory(instance: &Arc<Instance>) -> Upkeep {
    Upkeep { tasks: in_memory(instance), log_writer: None }
}

fn in_memory(instance: &Arc<Instance>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    tasks.spawn(free_expired_keys(Arc::clone(instance)));
    tasks.spawn(look_after_locks(Arc::clone(instance)));
    tasks.spawn(keep_time(Arc::clone(instance)));
    tasks.spawn(close_clients(Arc::clone(instance)));
    tasks
}

impl Upkeep {
    /// Ends the periodic work, and waits for its end. Returns the thread that writes the log, if the log was
    /// ever turned on: that one ends by itself.
    pub async fn end(mut self) -> Option<thread::JoinHandle<()>> {
        self.tasks.shutdown().await;
        let writer = self.log_writer.take()?;
        // Has no effect on one that is finished.
        writer.abort();
        writer.await.ok()
    }
}

impl Drop for Upkeep {
    fn drop(&mut self) {
        self.tasks.abort_all();
        self.log_writer.iter().for_each(JoinHandle::abort);
    }
}

async fn free_expired_keys(instance: Arc<Instance>) {
    /// The system's clock may be turned meanwhile.
    const LOOK_AGAIN: Duration = Duration::from_secs(60);
    let mut sweep = Sweep::default();
    loop {
        instance.shared.note_visit();
        let wakings = instance.sleep.wakings();
        let pace = instance.sweep_pace();
        let wait = match instance.frees_expired() {
            true => {
                let begun = Instant::now();
                let wait = instance.charged(|| {
                    sweep.slice(&instance.keyspace, pace, |effects| instance.notify(effects, None))
                });
                instance.statistics.add(Count::SweepMicros, begun.elapsed().as_micros() as u64);
                wait
            }
            false => pace.rest,
        };
        if !instance.sleep.is_asleep() {
            sleep(wait).await;
            continue;
        }
        let comes = instance.frees_expired() && !instance.clock.read().is_frozen;
        let Some(next_ms) = instance.keyspace.sweep_at_ms().filter(|_| comes) else {
            instance.sleep.woken(wakings).await;
            continue;
        };
        let left = Duration::from_millis(next_ms).saturating_sub(instance.clock.since_epoch());
        let is_over = timeout(left.clamp(wait, LOOK_AGAIN), instance.sleep.woken(wakings)).await.is_err();
        if is_over && left <= LOOK_AGAIN {
            // What expires may have consequences that take time, such as a snapshot.
            instance.stir();
        }
    }
}

/// Renews the locks that are bound to connections, grants locks that expire to the clients that wait for
/// them, and ends those that faults take from their holders, to the millisecond.
async fn look_after_locks(instance: Arc<Instance>) {
    /// The clock may be turned meanwhile; CLOCK itself grants what expires by that.
    const LOOK_AGAIN: Duration = Duration::from_secs(1);
    /// While nothing expires, as in a pause, or another thread has what is needed.
    const STANDSTILL: Duration = Duration::from_millis(10);
    let (alarms, mut may_lose) = (&instance.followers.alarms, true);
    loop {
        let waits_at_most = if may_lose && !alarms.have_put_off() { LOOK_AGAIN } else { STANDSTILL };
        let doomed_at_ms = instance.faults.doomed_at_ms().filter(|_| may_lose);
        may_lose = true;
        let left = match alarms.first_ms().into_iter().chain(doomed_at_ms).min() {
            Some(first_ms) => Duration::from_millis(first_ms).saturating_sub(instance.clock.since_epoch()),
            None if waits_at_most == LOOK_AGAIN => {
                alarms.changed().await;
                continue;
            }
            None => STANDSTILL,
        };
        if left.is_zero() {
            let may_free = instance.frees_expired();
            may_lose = instance.charged(|| {
                instance.keyspace.ring_alarms(may_free, |effects| instance.notify(effects, None));
                lose_due(&instance)
            });
            instance.stir();
            yield_now().await;
        } else {
            let _ = timeout(left.min(waits_at_most), alarms.changed()).await;
            alarms.resume();
        }
    }
}

async fn keep_time(instance: Arc<Instance>) {
    let mut ticks = every(TICK);
    let mut last = ticks.tick().await;
    loop {
        let now = ticks.tick().await;
        instance.shared.note_visit();
        let wakings = instance.sleep.wakings();
        if instance.pauses_cron.load(Ordering::Relaxed) {
            continue;
        }
        instance.charged(|| {
            instance.statistics.sample_rates((now - last).as_millis() as u64);
            instance.clients.follow_clock();
            instance.note_peak();
            limit_clients(&instance);
        });
        // If the limit was lowered, no command may come that would make room.
        while instance.charged(|| make_room_by_tick(&instance)) == Room::TooLittle {
            yield_now().await;
        }
        let sleeps = instance.charged(|| {
            instance.keyspace.follow_clock();
            instance.tidy_tracking();
            instance.allow_lock_news();
            instance.lens.write_due_lines(std::time::Instant::now());
            instance.warn_of_standing_clock();
            instance.look_after_snapshots();
            instance.falls_asleep()
        });
        last = now;
        if sleeps {
            instance.sleep.woken(wakings).await;
            last = Instant::now();
            ticks.reset();
        }
    }
}

/// The ticks of an interval. After a long pause there is one, not many.
fn every(period: Duration) -> Interval {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Has snapshots written one after the other, each by a blocking thread.
async fn write_snapshots(instance: Arc<Instance>) {
    loop {
        instance.persistence.called().await;
        let writer = Arc::clone(&instance);
        // If it panics there is no snapshot, and no other one begins before that one has ended.
        let _ = spawn_blocking(move || writer.charged(|| writer.save_in_background())).await;
    }
}

/// Starts the thread that writes the log, when the log is first turned on.
async fn write_aof(instance: Arc<Instance>) -> thread::JoinHandle<()> {
    instance.persistence.aof.turned_on().await;
    let writer = Arc::clone(&instance);
    let started = Builder::new().name("log".to_owned()).spawn(move || writer.charged(|| writer.write_aof()));
    started.unwrap_or_else(|error| {
        // Without the thread no reply could be sent.
        tracing::error!("Could not start the thread that writes the log: {error}");
        std::process::abort()
    })
}

async fn close_clients(instance: Arc<Instance>) {
    let mut ticks = every(CLIENTS_INTERVAL);
    loop {
        ticks.tick().await;
        instance.shared.note_visit();
        let wakings = instance.sleep.wakings();
        if instance.sleep.is_asleep() {
            instance.sleep.woken(wakings).await;
            ticks.reset();
            continue;
        }
        instance.clients.enforce_output_limits();
        instance.end_logins();
        let timeout_s = instance.config.timeout.size() as u64;
        if timeout_s == 0 {
            continue;
        }
        let now_ms = instance.clients.now_ms();
        for client in instance.clients.all() {
            // As in Redis, it leaves within the second after its time: this loop looks once a second.
            let is_idle = client.idle_ms(now_ms) > timeout_s * 1000 + TICK.as_millis() as u64;
            if is_idle && !client.is_expecting() && !client.has_bound_locks() {
                tracing::debug!("Closing idle client {}", client.address);
                client.ask_to_leave(Leaving::Now);
            }
        }
    }
}
