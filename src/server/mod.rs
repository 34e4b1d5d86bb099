//! Sockets and time: everything that waits.
//!
//! [`listener`] opens the sockets and accepts clients ([`unix`] and [`tls`] are two kinds of them, and
//! [`suites`] is what TLS offers). [`rota`] serves them in the order in which they were woken. [`runner`]
//! is one client from its first byte to its last, and [`conversation`] executes its requests. [`intake`] is
//! its input, [`outflow`] its output, and [`buffers`] holds their memory. [`slack`] gives unused memory back.
//! [`lookout`] makes sure that one long request delays no other client, and [`shutdown`] ends everything in
//! order. [`metrics`] reports to monitoring tools.
//!
//! A [`Server`] is an instance with its sockets and its threads. A process may start several of them, and
//! stop them again.

mod buffers;
mod carrier;
mod conversation;
mod intake;
mod listener;
mod lookout;
mod metrics;
mod outflow;
mod rota;
mod runner;
pub(crate) mod shutdown;
mod slack;
mod suites;
mod tls;
mod unix;
mod wire;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, available_parallelism};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use crate::commands;
use crate::commands::execution::replay;
use crate::config::Config;
use crate::instance::{Hooks, Instance, MakeEffective, ShutdownRequest};
use crate::options::Startup;
use crate::remote::{self, Remote, Settings};
use crate::upkeep::{self, Upkeep};

use listener::Listeners;
use lookout::{Lookout, SPARE_THREADS, hand_over, watched};
use metrics::Metrics;
use rota::Rota;
use shutdown::Signals;

/// Stack of a thread: deeply nested scripts need more than the default of two MiB. Only the used part takes
/// memory.
const STACK_BYTES: usize = 8 << 20;
/// How long the threads of a stopping server may take to end.
const THREADS_PATIENCE: Duration = Duration::from_secs(10);

/// A server in this process: an instance with its sockets and its threads.
///
/// It changes nothing that belongs to the process as a whole, so that there may be several. They share what
/// the process has only once: the log lines, the memory that INFO and `maxmemory` count, the limit of open
/// files. A caller ends it by [`stop`](Self::stop): without that, the thread that writes its log goes on.
#[derive(Debug)]
pub struct Server {
    pub(crate) instance: Arc<Instance>,
    pub(crate) runtime: Runtime,
    /// Its clients, in the order in which they are served.
    rota: Arc<Rota>,
    metrics: Metrics,
    /// The sockets, until the server accepts clients.
    listeners: Option<Listeners>,
    /// The tasks that accept clients.
    accepting: JoinSet<()>,
    /// The periodic work, once clients are accepted.
    upkeep: Option<Upkeep>,
}

impl Server {
    /// Starts a server. When this returns, the data are loaded and clients are accepted.
    ///
    /// # Errors
    ///
    /// With one line for people.
    pub fn start(startup: Startup) -> Result<Server, String> {
        let runtime = runtime(&startup.config)?;
        let mut server = Server::open(startup, runtime, Box::new(|_| ()))?;
        server.load()?;
        server.let_clients_in();
        Ok(server)
    }

    /// Opens the sockets of a server, so that no other server takes the ports. Accepts no clients yet.
    pub(crate) fn open(
        startup: Startup,
        (runtime, rota): (Runtime, Arc<Rota>),
        make_effective: MakeEffective,
    ) -> Result<Server, String> {
        let Startup { config, users, renamed, .. } = startup;
        let hooks = Hooks { make_effective, hand_over };
        let threads = threads(&config);
        let instance = Arc::new(Instance::new(config, threads, commands::known(&renamed), hooks));
        instance.declare_users(&users)?;
        instance.load_users()?;
        if let Some(settings) = Settings::of(&instance.config)? {
            let remote = Arc::new(Remote::new(settings));
            runtime.spawn(remote::run(Arc::clone(&remote)));
            runtime.spawn(remote::answer_questions(Arc::clone(&remote)));
            runtime.spawn(remote::exchange_news(Arc::clone(&remote), Arc::clone(&instance)));
            // It is set here only.
            let _ = instance.remote.set(remote);
        }
        let metrics = Metrics::serve(&instance, &rota)?;
        let listeners = {
            let _entered = runtime.enter();
            listener::open(&instance)?
        };
        let (accepting, upkeep) = (JoinSet::new(), None);
        Ok(Server { instance, runtime, rota, metrics, listeners: Some(listeners), accepting, upkeep })
    }

    /// Loads the data, from the log or from the last snapshot.
    pub(crate) fn load(&self) -> Result<(), String> {
        let instance = &self.instance;
        instance.tidy_up_files();
        self.runtime.block_on(async {
            match instance.config.appendonly.get() {
                true => replay::load(instance),
                false => instance.load(),
            }
        })?;
        self.look_for_leftovers()
    }

    /// Warns of keys in memory that live in the store. They were loaded from a snapshot or a log of a server
    /// without this store. They stay where they are, and no client sees them.
    fn look_for_leftovers(&self) -> Result<(), String> {
        let Some(remote) = self.instance.remote.get() else { return Ok(()) };
        let keyspace = &self.instance.keyspace;
        let mut keys = 0;
        for database in 0..keyspace.databases() {
            // No client is there yet that could hold the keys.
            let tx = keyspace.begin_all(database).map_err(|_| "the data set is locked".to_owned())?;
            let walk = tx.walk().map_err(|_| "the data set is locked".to_owned())?;
            walk.for_each_key(|key| keys += usize::from(remote.settings.places.has(key)));
        }
        if keys > 0 {
            remote.set_leftovers();
            tracing::warn!(
                "{keys} keys in memory match store-keys: no client sees them, since these keys live in the \
                 store. Start without the store to get at them, or FLUSHALL deletes them"
            );
        }
        Ok(())
    }

    pub(crate) fn let_clients_in(&mut self) {
        let Some(listeners) = self.listeners.take() else { return };
        // A tool that reads the log line may ask at once whether clients are accepted.
        self.metrics.set_ready(true);
        listeners.announce();
        let _entered = self.runtime.enter();
        self.upkeep = Some(upkeep::start(&self.instance));
        tokio::spawn(slack::give_memory_back());
        self.accepting = listener::accept_all(&self.instance, &self.rota, listeners);
    }

    /// The instance of this server.
    pub fn instance(&self) -> &Instance {
        &self.instance
    }

    /// Waits until a client ends the server (SHUTDOWN), and the final snapshot, if any, is saved.
    pub fn wait(&self) {
        let _request = self.runtime.block_on(shutdown::wait(None, &self.instance));
    }

    /// Waits like [`wait`](Self::wait), but a signal can end the server, too. Returns what has ended it.
    pub(crate) fn wait_for_signal(&self, signals: Signals) -> ShutdownRequest {
        self.runtime.block_on(shutdown::wait(Some(signals), &self.instance))
    }

    /// Accepts no more clients, and disconnects the others after their replies. Returns whether the log, if
    /// there is one, is durable then.
    pub(crate) fn drain(&mut self) -> bool {
        self.metrics.set_ready(false);
        let Server { runtime, accepting, instance, .. } = self;
        runtime.block_on(async {
            // Wait, so that no client comes in unnoticed, and the Unix socket's file is removed before the
            // process ends.
            accepting.shutdown().await;
            shutdown::drain(instance).await
        })
    }

    /// Ends the server. Its clients get their replies, its log is durable, and its ports, files and threads
    /// are free. It saves no snapshot: a caller that wants one calls [`Instance::save`] before, or lets a
    /// client end the server with SHUTDOWN SAVE.
    pub fn stop(mut self) {
        // If the log could not be written, its lines say so; the caller goes on without this server.
        let _ = self.drain();
        let Server { instance, runtime, rota, metrics, upkeep, .. } = self;
        metrics.stop();
        rota.close();
        instance.stop_log_writer();
        if let Some(writer) = upkeep.and_then(Upkeep::into_log_writer)
            && let Ok(thread) = runtime.block_on(writer)
        {
            // If the thread has panicked there is nothing more to write.
            let _ = thread.join();
        }
        runtime.shutdown_timeout(THREADS_PATIENCE);
    }

    /// Leaves the memory to the system, which takes it back at once when the process ends. Freeing millions
    /// of keys one by one would take seconds.
    pub(crate) fn abandon(self) {
        let Server { instance, runtime, .. } = self;
        std::mem::forget(instance);
        // No running task has work that must be finished.
        runtime.shutdown_background();
    }
}

/// The number of threads: `io-threads`, or the number of cores that this process may use.
pub(crate) fn threads(config: &Config) -> usize {
    match config.io_threads.size() {
        0 => available_parallelism().map_or(1, usize::from),
        threads => threads,
    }
}

/// The number of threads for long requests, beside this number of threads for all clients: half as many, so
/// that the cores have time for the others.
fn long_threads(threads: usize) -> usize {
    (threads / 2).max(1)
}

/// The threads that serve clients, and the clients that they serve. A single thread has the multi-thread
/// scheduler, too: only that can hand over a thread's clients.
pub(crate) fn runtime(config: &Config) -> Result<(Runtime, Arc<Rota>), String> {
    let threads = threads(config);
    let built = try_threads(threads + SPARE_THREADS).and_then(|()| build_runtime(threads));
    built.map_err(|error| match error.kind() {
        // The system says no more than "Resource temporarily unavailable".
        io::ErrorKind::WouldBlock => {
            "cannot start a thread: the user's limit of processes (ulimit -u) or of \
                                      memory (ulimit -v) is reached"
                .to_owned()
        }
        _ => format!("could not start the threads: {error}"),
    })
}

/// Starts as many threads as the runtime will, and ends them. The runtime itself panics if the system refuses
/// a thread.
fn try_threads(count: usize) -> io::Result<()> {
    let gate = Mutex::new(());
    thread::scope(|scope| {
        // All of them wait until the last one has started.
        let _held = gate.lock();
        for _ in 0..count {
            let builder = thread::Builder::new().stack_size(STACK_BYTES);
            builder.spawn_scoped(scope, || drop(gate.lock()))?;
        }
        Ok(())
    })
}

fn build_runtime(threads: usize) -> io::Result<(Runtime, Arc<Rota>)> {
    let rota = Arc::new(Rota::new(threads, long_threads(threads), watched));
    let lookout = Arc::new(Lookout::new(Arc::clone(&rota)));
    let adopting = Arc::clone(&lookout);
    let unprepared = AtomicUsize::new(threads + SPARE_THREADS);
    let runtime = Builder::new_multi_thread()
        .worker_threads(threads + SPARE_THREADS)
        .thread_stack_size(STACK_BYTES)
        // A server task serves many clients before it lets the runtime look at the sockets, so it does so
        // each time.
        .event_interval(1)
        .on_thread_start(move || {
            adopting.adopt_thread();
            // The first threads may serve clients; later ones come and go.
            let one_less = |threads: usize| threads.checked_sub(1);
            if unprepared.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
                buffers::prepare();
            }
        })
        .enable_all()
        .build()?;
    lookout.start(runtime.handle().clone())?;
    rota.start(runtime.handle());
    Ok((runtime, rota))
}
