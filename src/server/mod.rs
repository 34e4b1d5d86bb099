//! Sockets and time: everything that waits.
//!
//! [`listener`] opens the sockets and accepts clients ([`unix`] and [`tls`] are two kinds of them, [`suites`]
//! is what TLS offers, and [`secure`] its stream). [`runner`] is one client from its first byte to its last,
//! a [`carrier`] moves its bytes, and [`conversation`] executes its requests. [`intake`] is its input, and
//! [`buffers`] holds their memory. [`exporting`] sends snapshots to clients, and
//! [`migrating`] keys to other servers.
//! [`shutdown`] ends everything in order. [`metrics`] reports to monitoring tools. The threads are the
//! [host](crate::host)'s.
//!
//! A [`Server`] is an instance with its sockets. A process may start several of them on the threads of one
//! host, and stop them again.

pub(crate) mod buffers;
mod carrier;
mod conversation;
mod exporting;
mod intake;
mod listener;
mod metrics;
mod migrating;
mod runner;
mod secure;
pub(crate) mod shutdown;
mod suites;
mod tls;
mod unix;
mod wire;

use std::any::Any;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::commands;
use crate::commands::execution::initial::fill_new;
use crate::commands::execution::replay;
use crate::host::Host;
use crate::host::rota::Clientele;
use crate::host::runtime::threads;
use crate::host::watchdog::hand_over;
use crate::instance::{Hooks, InitialData, Instance, Sandboxes, Scale, ShutdownRequest};
use crate::options::Startup;
use crate::remote::{self, Remote, Settings};
use crate::upkeep::{self, Upkeep};

use listener::Listeners;
use metrics::Metrics;
use shutdown::Signals;

/// How long a snapshot that a stopping server gives up may take to end.
const SNAPSHOT_PATIENCE: Duration = Duration::from_secs(10);

/// A server in this process: an instance with its sockets.
///
/// It changes nothing that belongs to the process as a whole, so that there may be several. They share what
/// the process has only once: the log lines, the limit of open files. A caller ends it by
/// [`stop`](Self::stop): without that, the thread that writes its log goes on.
#[derive(Debug)]
pub struct Server {
    pub(crate) instance: Arc<Instance>,
    pub(crate) host: Arc<Host>,
    /// Its clients, served beside those of the other servers of the host.
    clientele: Arc<Clientele>,
    /// The tasks that speak with its store.
    remote: JoinSet<()>,
    metrics: Metrics,
    /// The sockets, until the server accepts clients.
    listeners: Option<Listeners>,
    /// The tasks that accept clients.
    accepting: JoinSet<()>,
    /// The periodic work, once clients are accepted.
    upkeep: Option<Upkeep>,
}

impl Server {
    /// Starts a server with threads of its own. When this returns, the data are loaded and clients are
    /// accepted. All memory of the process counts as the server's.
    pub fn start(startup: Startup) -> Result<Server, String> {
        let host = Server::host(threads(&startup.config))?;
        let scale = Scale::server(host.threads);
        Server::start_on(host, scale, startup)
    }

    /// Starts a server on the threads of a host, with a scale that may give it an account of its memory.
    pub fn start_on(host: Arc<Host>, scale: Scale, startup: Startup) -> Result<Server, String> {
        let mut server = Server::open(host, scale, startup, Hooks::default())?;
        server.load()?;
        server.let_clients_in();
        Ok(server)
    }

    /// The threads for some servers: so many serve clients.
    pub fn host(threads: usize) -> Result<Arc<Host>, String> {
        Host::start(threads, buffers::prepare)
    }

    /// Opens the sockets of a server, so that no other server takes the ports. Accepts no clients yet.
    pub(crate) fn open(
        host: Arc<Host>,
        scale: Scale,
        startup: Startup,
        hooks: Hooks,
    ) -> Result<Server, String> {
        let Startup { config, users, renamed, initial, .. } = startup;
        let initial = Arc::new(InitialData::read(&initial)?);
        if !initial.is_empty() && !config.store.get().is_empty() {
            return Err("options --init and --store: initial data fill memory only".to_owned());
        }
        let hooks = Hooks { hand_over, ..hooks };
        Sandboxes::check(&config)?;
        let clientele = Clientele::new(&host.rota, scale.account.clone());
        let (shared, known) = (Arc::clone(&host.shared), commands::known(&renamed));
        let instance = Arc::new(Instance::on(shared, scale, config, known.clone(), hooks));
        if let Some(place) = &instance.place {
            let runtime = host.runtime.clone();
            let make = move |first: &Instance, number| {
                let _entered = runtime.enter();
                let made = Arc::new(Instance::beside(first, number, known.clone()));
                if let Err(why) = fill_new(&made) {
                    tracing::warn!("Database {number} begins empty: {why}");
                }
                made.note_begun();
                let upkeep: Box<dyn Any + Send> = Box::new(upkeep::start_in_memory(&made));
                (made, upkeep)
            };
            place.all.open(&instance, Box::new(make));
        }
        // It is set here only.
        let _ = instance.initial.set(initial);
        instance.declare_users(&users)?;
        instance.load_users()?;
        let entered = host.runtime.enter();
        let mut tasks = JoinSet::new();
        if let Some(settings) = Settings::of(&instance.config)? {
            let remote = Arc::new(Remote::new(settings));
            remote::serve(&remote, &instance, &mut tasks);
            // It is set here only.
            let _ = instance.remote.set(remote);
        }
        let metrics = Metrics::serve(&instance, &clientele)?;
        let listeners = Some(listener::open(&instance)?);
        drop(entered);
        let (accepting, upkeep) = (JoinSet::new(), None);
        Ok(Server { instance, host, clientele, remote: tasks, metrics, listeners, accepting, upkeep })
    }

    /// Loads the data, from the log or from the last snapshot.
    pub(crate) fn load(&self) -> Result<(), String> {
        let instance = &self.instance;
        instance.tidy_up_files();
        self.host.runtime.block_on(async {
            match instance.config.appendonly.get() {
                true => replay::load(instance),
                false => instance.load(),
            }
        })?;
        fill_new(instance)?;
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
            walk.for_each_key(|key| keys += usize::from(remote.settings.store_keys.has(key)));
        }
        if keys > 0 {
            let remote = Arc::clone(remote);
            keyspace.hide(move |key| remote.settings.store_keys.has(key));
            tracing::warn!(
                "{keys} keys in memory match store-keys: no client sees them, since these keys live in the \
                 store. Start without the store to get at them, or FLUSHALL deletes them"
            );
        }
        Ok(())
    }

    pub(crate) fn let_clients_in(&mut self) {
        let Some(listeners) = self.listeners.take() else { return };
        self.instance.warn_of_tokens();
        // A tool that reads the log line may ask at once whether clients are accepted.
        self.metrics.set_ready(true);
        listeners.announce();
        let _entered = self.host.runtime.enter();
        self.upkeep = Some(upkeep::start(&self.instance));
        let sandboxes = self.instance.place.iter().map(|place| Arc::clone(&place.all));
        sandboxes.for_each(|all| _ = self.remote.spawn(all.end_leases()));
        self.host.trim();
        self.accepting = listener::accept_all(&self.instance, &self.clientele, listeners);
    }

    /// The instance of this server.
    pub fn instance(&self) -> &Instance {
        &self.instance
    }

    /// Waits until a client ends the server (SHUTDOWN), and the final snapshot, if any, is saved.
    pub fn wait(&self) {
        let _request = self.host.runtime.block_on(shutdown::wait(None, &self.instance));
    }

    /// Waits like [`wait`](Self::wait), but a signal can end the server, too. Returns what has ended it.
    pub(crate) fn wait_for_signal(&self, signals: Signals) -> ShutdownRequest {
        self.host.runtime.block_on(shutdown::wait(Some(signals), &self.instance))
    }

    /// Accepts no more clients, and disconnects the others after their replies. Returns whether the log, if
    /// there is one, is durable then.
    pub(crate) fn drain(&mut self, request: Option<&ShutdownRequest>) -> bool {
        self.metrics.set_ready(false);
        let Server { host, accepting, instance, .. } = self;
        host.runtime.block_on(async {
            // Wait, so that no client comes in unnoticed, and the Unix socket's file is removed before the
            // process ends.
            accepting.shutdown().await;
            shutdown::drain(instance, request).await
        })
    }

    /// Ends the server. Its clients get their replies, its log is durable, and its ports and files are free,
    /// and its threads if no other server shares them. It saves no snapshot: a caller that wants one calls
    /// [`Instance::save`] before, or lets a client end the server with SHUTDOWN SAVE.
    pub fn stop(mut self) {
        // If the log could not be written, its lines say so; the caller goes on without this server.
        let _ = self.drain(None);
        let Server { instance, host, clientele, mut remote, metrics, upkeep, .. } = self;
        metrics.stop();
        instance.persistence.abandon();
        host.runtime.block_on(async {
            remote.shutdown().await;
            clientele.close().await;
            instance.place.iter().for_each(|place| place.all.close());
            let _ = timeout(SNAPSHOT_PATIENCE, instance.persistence.settled()).await;
        });
        instance.stop_log_writer();
        let log_writer = upkeep.and_then(|upkeep| host.runtime.block_on(upkeep.end()));
        // If the thread has panicked there is nothing more to write.
        let _ = log_writer.map(thread::JoinHandle::join);
    }

    /// Leaves the memory to the system, which takes it back at once when the process ends. Freeing millions
    /// of keys one by one would take seconds.
    pub(crate) fn abandon(self) {
        let Server { instance, host, .. } = self;
        std::mem::forget(instance);
        host.abandon();
    }
}
