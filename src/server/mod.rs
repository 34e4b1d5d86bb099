//! Sockets and time: everything that waits.
//!
//! [`listener`] opens the doors and lets clients in ([`unix`] and [`tls`] are two of them), [`connection`] is
//! one client from its first byte to its last, [`conversation`] what it and the server say to each other,
//! [`intake`] what it has sent of that, [`outflow`] what it has still to take and [`buffers`] where it lies
//! meanwhile, [`eviction`] limits what all clients take, [`slack`] gives memory back, [`lookout`] sees to it
//! that one long request stops no other client, [`background`] does what is to be done every so often,
//! [`shutdown`] ends it all in order; [`log`] prints the lines that people and tools read, [`metrics`] tells
//! other tools how the server does.
//!
//! A [`Server`] is an instance with its sockets and its threads. A process may start several of them, and
//! stop them again. [`process`] runs the one server of the program `keyfast`, for which it changes the whole
//! process: its directory, its log, its signals, its limits. [`daemon`] and [`supervision`] belong to that.

mod background;
mod buffers;
mod connection;
mod conversation;
mod daemon;
mod eviction;
mod intake;
mod listener;
pub mod log;
mod lookout;
mod metrics;
mod outflow;
mod process;
mod shutdown;
mod slack;
mod supervision;
mod tls;
mod unix;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, available_parallelism};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinHandle, JoinSet};

use crate::commands;
use crate::commands::door::replay;
use crate::config::Config;
use crate::instance::{Hooks, Instance, MakeEffective};
use crate::options::Startup;
use crate::remote::{self, Remote, Settings};

use listener::Doors;
use lookout::{Lookout, hand_over};
use metrics::Metrics;
use shutdown::Signals;

pub use process::run;

/// How long the threads of a server that stops may take to end what they do.
const THREADS_PATIENCE: Duration = Duration::from_secs(10);

/// A server in this process: an instance with its sockets and its threads.
///
/// It changes nothing that belongs to the process as a whole, so that there may be several. They share what
/// the process has only once: the log lines, the memory that INFO and `maxmemory` count, the limit of open
/// files. A caller ends it by [`stop`](Self::stop): without that, the thread that writes its log goes on.
#[derive(Debug)]
pub struct Server {
    instance: Arc<Instance>,
    runtime: Runtime,
    metrics: Metrics,
    /// The sockets, until it lets clients in.
    doors: Option<Doors>,
    /// What lets clients in.
    accepting: JoinSet<()>,
    /// Ends with the thread that writes the log, once there is one.
    log_writer: Option<JoinHandle<thread::JoinHandle<()>>>,
}

impl Server {
    /// Starts a server: it has loaded its data and lets clients in when this returns.
    ///
    /// # Errors
    ///
    /// With one line for people.
    pub fn start(startup: Startup) -> Result<Server, String> {
        let runtime = runtime(threads(&startup.config))?;
        let mut server = Server::open(startup, runtime, Box::new(|_| ()))?;
        server.load()?;
        server.let_clients_in();
        Ok(server)
    }

    /// Opens the sockets of a server, so that no other server takes the ports. It lets no client in yet.
    fn open(startup: Startup, runtime: Runtime, make_effective: MakeEffective) -> Result<Server, String> {
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
        let metrics = Metrics::serve(&instance, runtime.handle())?;
        let doors = {
            let _entered = runtime.enter();
            listener::open(&instance)?
        };
        let (accepting, log_writer) = (JoinSet::new(), None);
        Ok(Server { instance, runtime, metrics, doors: Some(doors), accepting, log_writer })
    }

    /// Loads the data, from the log or from the last snapshot.
    fn load(&self) -> Result<(), String> {
        let instance = &self.instance;
        instance.tidy_up_files();
        self.runtime.block_on(async {
            match instance.config.appendonly.get() {
                true => replay::load(instance),
                false => instance.load(),
            }
        })
    }

    fn let_clients_in(&mut self) {
        let Some(doors) = self.doors.take() else { return };
        // A tool that reads that clients are let in may ask at once whether they are.
        self.metrics.set_ready(true);
        doors.announce();
        let _entered = self.runtime.enter();
        self.log_writer = Some(background::start(&self.instance));
        self.accepting = listener::accept_all(&self.instance, doors);
    }

    /// The instance that it serves.
    pub fn instance(&self) -> &Instance {
        &self.instance
    }

    /// Waits until a client wants the server to end (SHUTDOWN), and the data are saved that are to be.
    pub fn wait(&self) {
        self.runtime.block_on(shutdown::wait(None, &self.instance));
    }

    /// Does the same, but a signal can end the server, too.
    fn wait_for_signal(&self, signals: Signals) {
        self.runtime.block_on(shutdown::wait(Some(signals), &self.instance));
    }

    /// Lets no more clients in, and lets those that are there go with their replies. What is logged is
    /// durable then.
    fn drain(&mut self) {
        self.metrics.set_ready(false);
        let Server { runtime, accepting, instance, .. } = self;
        runtime.block_on(async {
            // Waited for, so that no client comes in unseen and the Unix socket's file is gone before the
            // process.
            accepting.shutdown().await;
            shutdown::drain(instance).await;
        });
    }

    /// Ends the server: its clients get the replies to what they have sent, its log is durable, its ports,
    /// files and threads are free. It saves no snapshot: a caller that wants one calls [`Instance::save`]
    /// before, or lets a client end the server by SHUTDOWN SAVE.
    pub fn stop(mut self) {
        self.drain();
        let Server { instance, runtime, metrics, log_writer, .. } = self;
        metrics.stop();
        instance.stop_log_writer();
        if let Some(writer) = log_writer.filter(JoinHandle::is_finished)
            && let Ok(thread) = runtime.block_on(writer)
        {
            // If it has panicked there is nothing more to be written.
            let _ = thread.join();
        }
        runtime.shutdown_timeout(THREADS_PATIENCE);
    }

    /// Leaves everything to the system, which takes the memory back at once when the process ends: to free
    /// millions of keys one by one would take seconds.
    fn abandon(self) {
        let Server { instance, runtime, .. } = self;
        std::mem::forget(instance);
        // What still runs waits for nothing worth waiting for.
        runtime.shutdown_background();
    }
}

/// As many threads as are asked for, or as there are cores this process may use.
fn threads(config: &Config) -> usize {
    match config.io_threads.size() {
        0 => available_parallelism().map_or(1, usize::from),
        threads => threads,
    }
}

/// Also one thread is run by the scheduler of many: it alone can hand the clients of a thread over.
fn runtime(threads: usize) -> Result<Runtime, String> {
    build_runtime(threads).map_err(|error| format!("could not start the threads: {error}"))
}

fn build_runtime(threads: usize) -> io::Result<Runtime> {
    /// What a script nests as deep as it may needs more than the two MiB that threads are given by default.
    /// Only what is used takes memory.
    const STACK_BYTES: usize = 8 << 20;
    let lookout = Arc::new(Lookout::default());
    let adopting = Arc::clone(&lookout);
    let unprepared = AtomicUsize::new(threads);
    let runtime = Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_stack_size(STACK_BYTES)
        .on_thread_start(move || {
            adopting.adopt_thread();
            // The first are those that serve clients; later ones come and go.
            let one_less = |threads: usize| threads.checked_sub(1);
            if unprepared.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
                buffers::prepare();
            }
        })
        .enable_all()
        .build()?;
    lookout.start(runtime.handle().clone())?;
    Ok(runtime)
}
