//! Serves clients first come, first served: in the order in which they were woken.
//!
//! The scheduler of the runtime runs the task that was woken last before the others. So of the clients whose
//! requests arrive together, the last one would be served first. Here each client is a [`Task`] of our own: a
//! future that its socket, its mail or a timer wakes. Waking puts it at the end of one queue. The runtime
//! runs a few server tasks only, one for each thread. A server task takes clients from the front of the queue
//! and polls them. The queue is shared, so no client waits for a busy thread while another one is free.
//!
//! A thread may be stuck with one client, in a long request. Then it is relieved ([`Rota::relieve`]): another
//! server task begins, and one ends when the stuck one has finished.
//!
//! A client whose replies wait for the log steps aside ([`LaneTicket::step_aside`]): those that are ready run
//! first, and then one write is for all.
//!
//! Requests that are known to take long wait in a second queue. A few threads of their own take them from
//! there ([`Lane::Long`]). So any number of long requests delays no short one: the system divides the cores
//! among the threads.

#[cfg(all(test, feature = "shuttle"))]
mod interleavings;
#[cfg(all(test, not(feature = "shuttle")))]
mod tests;

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use parking_lot::Condvar;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::unconstrained;
use tokio::time::timeout;

use crate::allocator::{Account, charged, report_at_end};
use crate::sync::{AtomicBool, AtomicU8, AtomicU64, Mutex};

/// Stack of a thread: deeply nested scripts need more than the default of two MiB. Only the used part takes
/// memory.
pub(crate) const STACK_BYTES: usize = 8 << 20;
/// After this number of clients a server task lets the runtime look at the sockets.
const TURN_CLIENTS: usize = 61;
/// Each time that this number of clients waits, one more idle server task is woken. To wake a thread for
/// fewer takes longer than to serve them.
const SHARE_CLIENTS: usize = 8;
/// How long a thread for long requests waits for the next one before it ends.
const LONG_REST: Duration = Duration::from_secs(10);

/// How a turn of a server task ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// It has served many clients. Others may be ready, at the queue or at the sockets.
    Served,
    /// The task ends.
    Last,
}

/// Where a client is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// By the threads that serve all clients.
    Usual,
    /// The same, for the rest of a turn. No other thread is woken for it: the one that has served the client
    /// so far comes to it after the clients that are ready now.
    Aside,
    /// By the threads for long requests.
    Long,
}

impl Lane {
    const ALL: [Lane; 3] = [Lane::Usual, Lane::Aside, Lane::Long];
}

/// How long a stopping server waits for a client that a thread still serves.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// The future that serves one client.
type Serving = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The task of one client.
pub(crate) struct Task {
    /// Its number in [`Clientele::tasks`].
    number: u64,
    /// `None` once it has ended. Only the thread that runs it, or ends all, has it.
    serving: Mutex<Option<Serving>>,
    /// [`IDLE`] to [`ENDED`].
    state: AtomicU8,
    ticket: LaneTicket,
    clientele: Arc<Clientele>,
}

/// It waits to be woken.
const IDLE: u8 = 0;
/// It is in a queue.
const QUEUED: u8 = 1;
/// A thread runs it.
const RUNNING: u8 = 2;
/// A thread runs it. It was woken since, so it is in a queue already.
const RUNNING_QUEUED: u8 = 3;
/// A thread runs it, and its next turn came meanwhile. It goes to the end of a queue afterwards.
const RUNNING_LATE: u8 = 4;
/// It has ended.
const ENDED: u8 = 5;

/// How often a thread looks whether another thread has finished with a client whose next turn has come.
/// Mostly that one has just woken it, or has just written its reply.
const FINISH_GLANCES: u32 = if cfg!(all(test, feature = "shuttle")) { 2 } else { 200 };

/// A client's choice of the queue in which its task waits next.
#[derive(Clone, Debug, Default)]
pub(crate) struct LaneTicket(Arc<AtomicU8>);

/// The clients that wait to be served, and the server tasks that wait for clients.
#[derive(Default)]
struct Queue {
    ready: VecDeque<Arc<Task>>,
    idle: Vec<Waker>,
    /// Server tasks that there are.
    serving: usize,
    /// Server tasks that there should be.
    wanted: usize,
}

/// The clients that wait with a long request.
#[derive(Default)]
struct LongQueue {
    ready: VecDeque<Arc<Task>>,
    /// The number of threads, and how many of them wait for a client.
    threads: usize,
    idle: usize,
}

/// How a server task serves a client. Returns whether one server task is to end, because one more began
/// meanwhile.
pub(crate) type Serve = fn(Arc<Task>) -> bool;

/// The clients of all servers of a host, in the order in which they are served.
pub(crate) struct Rota {
    queue: Mutex<Queue>,
    long: parking_lot::Mutex<LongQueue>,
    /// Notifies a thread for long requests.
    long_ready: Condvar,
    /// How many threads serve all clients.
    threads: usize,
    /// How many threads for long requests there may be.
    long_threads_max: usize,
    serve: Serve,
    /// The runtime, once there is one, until this is closed: the runtime has this, too.
    runtime: Mutex<Option<Handle>>,
    is_closed: AtomicBool,
}

/// The clients of one server, which are served beside those of the other servers of the host.
#[derive(Debug)]
pub(crate) struct Clientele {
    rota: Arc<Rota>,
    /// The account on which the server's memory is counted, if it shares the process with others.
    account: Option<Arc<Account>>,
    /// All tasks that have not ended, by their numbers.
    tasks: Mutex<HashMap<u64, Weak<Task>>>,
    next_number: AtomicU64,
    is_closed: AtomicBool,
    /// Notifies who closes this that no task is left.
    left: Notify,
}

impl std::fmt::Debug for Rota {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rota").field("long_threads_max", &self.long_threads_max).finish_non_exhaustive()
    }
}

impl LaneTicket {
    /// Lets the calling task be served in this lane from now on, at the end of its queue.
    pub(crate) async fn go_to(&self, lane: Lane) {
        self.set(lane);
        yield_now().await;
    }

    /// Lets the clients that are ready be served before the calling task goes on.
    pub(crate) async fn step_aside(&self) {
        let lane = self.lane();
        if lane == Lane::Usual {
            self.set(Lane::Aside);
        }
        yield_now().await;
        self.set(lane);
    }

    fn set(&self, lane: Lane) {
        self.0.store(lane as u8, Ordering::Relaxed);
    }

    fn lane(&self) -> Lane {
        Lane::ALL[usize::from(self.0.load(Ordering::Relaxed)) % Lane::ALL.len()]
    }
}

/// Puts the calling task at the end of its queue.
pub(crate) async fn yield_now() {
    let mut has_yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

impl Rota {
    /// Without clients. This number of threads serves them, by `serve`, and a number of their own the long
    /// requests.
    pub(crate) fn new(threads: usize, long_threads_max: usize, serve: Serve) -> Rota {
        Rota {
            queue: Mutex::default(),
            long: parking_lot::Mutex::default(),
            long_ready: Condvar::new(),
            threads,
            long_threads_max,
            serve,
            runtime: Mutex::default(),
            is_closed: AtomicBool::new(false),
        }
    }

    /// Begins to serve.
    pub(crate) fn start(self: &Arc<Self>, runtime: &Handle) {
        *self.runtime.lock() = Some(runtime.clone());
        let mut queue = self.queue.lock();
        (queue.serving, queue.wanted) = (self.threads, self.threads);
        drop(queue);
        (0..self.threads).for_each(|_| drop(runtime.spawn(Arc::clone(self).serve())));
    }

    /// Puts a task at the end of the queue of its lane.
    fn push(self: &Arc<Self>, task: Arc<Task>) {
        match task.ticket.lane() {
            Lane::Usual => self.push_usual(task),
            Lane::Aside => self.queue.lock().ready.push_back(task),
            Lane::Long => self.push_long(task),
        }
    }

    fn push_usual(&self, task: Arc<Task>) {
        let mut queue = self.queue.lock();
        queue.ready.push_back(task);
        let waiting = queue.ready.len();
        let woken =
            if waiting == 1 || waiting.is_multiple_of(SHARE_CLIENTS) { queue.idle.pop() } else { None };
        drop(queue);
        if let Some(woken) = woken {
            woken.wake();
        }
    }

    #[cold]
    fn push_long(self: &Arc<Self>, task: Arc<Task>) {
        let mut long = self.long.lock();
        long.ready.push_back(task);
        // A thread that was notified counts as idle until it has taken a client.
        if long.ready.len() <= long.idle {
            self.long_ready.notify_one();
        } else if long.threads < self.long_threads_max {
            let rota = Arc::clone(self);
            let builder = thread::Builder::new().name("long".to_owned()).stack_size(STACK_BYTES);
            if builder.spawn(move || rota.serve_long()).is_ok() {
                long.threads += 1;
            } else if long.threads == 0 {
                // The system refuses the thread. The usual ones serve these clients, too.
                let stranded = std::mem::take(&mut long.ready);
                drop(long);
                stranded.into_iter().for_each(|task| self.push_usual(task));
            }
        }
    }

    /// A server task: serves clients until there are more server tasks than wanted.
    async fn serve(self: Arc<Self>) {
        let serving = async {
            while poll_fn(|context| self.poll_turn(context)).await == Turn::Served {
                // The runtime looks at the sockets before it runs a task that has yielded like this.
                tokio::task::yield_now().await;
            }
        };
        unconstrained(serving).await
    }

    /// Serves up to [`TURN_CLIENTS`] clients. If there is none, it waits for the first one.
    fn poll_turn(&self, context: &mut Context<'_>) -> Poll<Turn> {
        let mut served = 0;
        while served < TURN_CLIENTS {
            let mut queue = self.queue.lock();
            if queue.serving > queue.wanted {
                queue.serving -= 1;
                // It may have been woken for a client.
                let other = if queue.ready.is_empty() { None } else { queue.idle.pop() };
                drop(queue);
                other.into_iter().for_each(Waker::wake);
                return Poll::Ready(Turn::Last);
            }
            let Some(task) = queue.ready.pop_front() else {
                if self.is_closed.load(Ordering::Relaxed) {
                    return Poll::Ready(Turn::Last);
                }
                queue.idle.push(context.waker().clone());
                return Poll::Pending;
            };
            drop(queue);
            // One that stepped aside was counted before.
            served += usize::from(task.ticket.lane() != Lane::Aside);
            if (self.serve)(task) {
                self.queue.lock().wanted -= 1;
            }
        }
        Poll::Ready(Turn::Served)
    }

    /// Begins one more server task, in place of one whose thread is stuck with a client. When that thread has
    /// finished with the client, one server task ends. The new one calls `begun` first. Does nothing and
    /// returns false if there are `extra_max` more server tasks already than at the start.
    pub(crate) fn relieve(self: &Arc<Self>, extra_max: usize, begun: impl FnOnce() + Send + 'static) -> bool {
        let Some(runtime) = self.runtime.lock().clone() else { return false };
        {
            let mut queue = self.queue.lock();
            if queue.wanted >= self.threads.saturating_add(extra_max) {
                return false;
            }
            queue.wanted += 1;
            queue.serving += 1;
        }
        let rota = Arc::clone(self);
        runtime.spawn(async move {
            begun();
            rota.serve().await
        });
        true
    }

    /// A thread for long requests.
    fn serve_long(self: Arc<Self>) {
        report_at_end();
        let runtime = self.runtime.lock().clone();
        let _entered = runtime.as_ref().map(Handle::enter);
        let mut long = self.long.lock();
        while !self.is_closed.load(Ordering::Relaxed) {
            if let Some(task) = long.ready.pop_front() {
                drop(long);
                task.run();
                long = self.long.lock();
                continue;
            }
            long.idle += 1;
            let is_over = self.long_ready.wait_for(&mut long, LONG_REST).timed_out();
            long.idle -= 1;
            if is_over && long.ready.is_empty() {
                break;
            }
        }
        long.threads -= 1;
    }

    /// Ends the threads for long requests. Called when the last server has gone.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        drop(self.runtime.lock().take());
        let mut queue = self.queue.lock();
        let waiting = (std::mem::take(&mut queue.ready), std::mem::take(&mut queue.idle));
        drop(queue);
        drop(waiting);
        let mut long = self.long.lock();
        self.long_ready.notify_all();
        let waiting = std::mem::take(&mut long.ready);
        drop(long);
        drop(waiting);
    }
}

impl Clientele {
    /// Without clients. The rota serves those that come.
    pub(crate) fn new(rota: &Arc<Rota>, account: Option<Arc<Account>>) -> Arc<Clientele> {
        Arc::new(Clientele {
            rota: Arc::clone(rota),
            account,
            tasks: Mutex::default(),
            next_number: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
            left: Notify::new(),
        })
    }

    /// Adds a client: the future that serves it, made with the client's ticket.
    pub(crate) fn add<F>(self: &Arc<Self>, serving: impl FnOnce(LaneTicket) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let ticket = LaneTicket::default();
        let serving: Serving = Box::pin(serving(ticket.clone()));
        let task = Arc::new(Task {
            number: self.next_number.fetch_add(1, Ordering::Relaxed),
            serving: Mutex::new(Some(serving)),
            state: AtomicU8::new(QUEUED),
            ticket,
            clientele: Arc::clone(self),
        });
        self.tasks.lock().insert(task.number, Arc::downgrade(&task));
        self.push(task);
    }

    fn push(&self, task: Arc<Task>) {
        match self.is_closed.load(Ordering::Relaxed) {
            true => task.end(),
            false => self.rota.push(task),
        }
    }

    /// Ends all clients that are still served. Called when the server stops, after they were asked to leave.
    /// A thread that runs one of them ends it afterwards, and this waits for that, but not for ever.
    pub(crate) async fn close(&self) {
        self.stop();
        let all_left = async {
            loop {
                let left = self.left.notified();
                if self.tasks.lock().is_empty() {
                    return;
                }
                left.await;
            }
        };
        if timeout(END_PATIENCE, all_left).await.is_err() {
            tracing::warn!("A client's request did not end with its server.");
        }
    }

    /// Ends the clients that no thread runs. Each of the others ends when its thread has finished with it.
    fn stop(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        let tasks: Vec<_> = self.tasks.lock().values().filter_map(Weak::upgrade).collect();
        tasks.iter().for_each(|task| task.stop());
    }

    /// Does work for one of the clients.
    #[inline]
    fn charged<T>(&self, act: impl FnOnce() -> T) -> T {
        charged(self.account.as_deref(), act)
    }
}

impl Task {
    /// Serves the client, until it waits for something.
    pub(crate) fn run(self: Arc<Self>) {
        if !self.begin() {
            return;
        }
        let mut serving = self.serving.lock();
        let Some(future) = serving.as_mut() else { return };
        let waker = Waker::from(Arc::clone(&self));
        let polled = catch_unwind(AssertUnwindSafe(|| {
            self.clientele.charged(|| future.as_mut().poll(&mut Context::from_waker(&waker)))
        }));
        let is_over = match polled {
            Ok(polled) => polled.is_ready(),
            Err(panic) => {
                tell_panic(&*panic);
                true
            }
        };
        drop(serving);
        if is_over {
            return self.end();
        }
        self.finish();
    }

    /// Begins the turn of a task that was taken from a queue. Returns false if another thread still runs it:
    /// that one puts it at the end of a queue.
    fn begin(&self) -> bool {
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        for _ in 0..FINISH_GLANCES {
            match self.state.compare_exchange(QUEUED, RUNNING, success, failure) {
                Err(RUNNING_QUEUED) => std::hint::spin_loop(),
                begun => return begun.is_ok(),
            }
        }
        match self.state.compare_exchange(RUNNING_QUEUED, RUNNING_LATE, success, failure) {
            Ok(_) => false,
            // It has finished right now.
            Err(_) => self.state.compare_exchange(QUEUED, RUNNING, success, failure).is_ok(),
        }
    }

    /// Ends a turn, after which the client waits for something. If its server has stopped meanwhile, it does
    /// not: either this sees that, or [`Task::stop`] sees that no thread runs the task.
    fn finish(self: Arc<Self>) {
        let mut state = RUNNING;
        let is_late = loop {
            let next = match state {
                RUNNING => IDLE,
                ENDED => return,
                _ => QUEUED,
            };
            match self.state.compare_exchange_weak(state, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(before) => break before == RUNNING_LATE,
                Err(now) => state = now,
            }
        };
        if self.clientele.is_closed.load(Ordering::Relaxed) {
            self.end();
        } else if is_late {
            let clientele = Arc::clone(&self.clientele);
            clientele.push(self);
        }
    }

    /// Ends a task whose server has stopped. A thread that runs it ends it when it has finished.
    fn stop(&self) {
        // This and the change of `finish` are in one order. If that one is the later one, it sees that the
        // server has stopped. If this one is, the task is unlocked here.
        self.state.fetch_add(0, Ordering::AcqRel);
        self.end();
    }

    /// Drops what serves the client: its socket and its registration. Does nothing while a thread runs it.
    fn end(&self) {
        let Some(mut serving) = self.serving.try_lock() else { return };
        let ended = serving.take();
        drop(serving);
        self.state.store(ENDED, Ordering::Release);
        self.clientele.charged(|| drop(ended));
        self.leave();
    }

    /// Leaves the list of tasks that have not ended. Does nothing the second time.
    fn leave(&self) {
        let mut tasks = self.clientele.tasks.lock();
        tasks.remove(&self.number);
        if tasks.is_empty() {
            self.clientele.left.notify_one();
        }
    }
}

/// A task also ends if nothing is left that could wake it.
impl Drop for Task {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Says that a client's task has ended by a fault of the program. The line with the place is printed already.
#[cold]
fn tell_panic(panic: &(dyn Any + Send)) {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text");
    tracing::error!("A client was disconnected, because its request met a fault of the server: {text}");
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        Wake::wake_by_ref(&self);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut state = self.state.load(Ordering::Acquire);
        loop {
            let next = match state {
                IDLE => QUEUED,
                // Its turn comes in the order in which it was woken, as for all others.
                RUNNING => RUNNING_QUEUED,
                // It will run, or has ended.
                _ => return,
            };
            match self.state.compare_exchange_weak(state, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return self.clientele.push(Arc::clone(self)),
                Err(now) => state = now,
            }
        }
    }
}
