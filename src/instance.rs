//! The state that all clients of one running server share.

mod aof;
mod delivery;
mod ending;
mod exporting;
mod initial;
mod loading;
mod logins;
mod memory;
mod sandboxes;
mod saving;
mod scratches;
mod sleeping;
mod told;
mod turned_clock;

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::acl::log::AclLog;
use crate::acl::tokens::Tokens;
use crate::acl::{self, Catalog, Refused, User, Users};
use crate::allocator::{Account, charged};
use crate::clients::{Clients, LongRequests};
use crate::clock::Clock;
use crate::config::{Config, EVICTION_POLICIES, PUBSUB_DEFAULTS};
use crate::faults::Faults;
use crate::files::NamedFile;
use crate::host::Shared;
use crate::host::freeing::Freed;
use crate::keyspace::expiry::Pace;
use crate::keyspace::{CountedSizes, Followers, Garbage, Keyspace, SHARDS_MAX, Shape};
use crate::lens::Lens;
use crate::name_table::NameTable;
use crate::persistence::Persistence;
use crate::pubsub::PubSub;
use crate::remote::Remote;
use crate::resp::OwnedRequest;
use crate::scripting::Scripting;
use crate::scripting::running::Running;
use crate::statistics::Statistics;
use crate::tracking::Tracking;
use crate::types;
pub(crate) use delivery::Doer;
pub(crate) use ending::{ReplyGate, Saving, Shutdown, ShutdownRequest};
pub(crate) use exporting::Export;
use exporting::Exports;
pub(crate) use initial::{InitialContent, InitialData};
pub(crate) use loading::Replay;
use memory::{Exceeding, Peak, taken_bytes};
pub(crate) use sandboxes::{Place, Sandboxes, Shown as ShownSandbox};
pub(crate) use saving::NotSaved;
pub(crate) use scratches::{Scratch, Scratches};
pub(crate) use sleeping::Sleep;
pub(crate) use told::Told;
pub(crate) use turned_clock::Standstill;

/// One running server.
pub struct Instance {
    /// The values of its parameters.
    pub config: Config,
    /// The clock by which its keys expire.
    pub clock: Arc<Clock>,
    /// The receivers of changes in its data.
    pub followers: Arc<Followers>,
    /// Its keys and values.
    pub keyspace: Keyspace,
    /// The names by which clients call its commands.
    pub names: Arc<NameTable>,
    /// The users of the server and their permissions.
    pub users: Arc<Users>,
    /// What they were refused here.
    pub acl_log: AclLog,
    /// What it remembers of tokens of managed services.
    tokens: Arc<Tokens>,
    /// Its connected clients.
    pub clients: Arc<Clients>,
    /// The changes of its keys that were counted when its data were those with which it begins.
    changes_begun: AtomicU64,
    /// What fills its data set where that is empty. Set before clients are let in.
    pub(crate) initial: OnceLock<Arc<InitialData>>,
    /// Its place among the sandboxes of the server, if there are any.
    pub(crate) place: Option<Place>,
    /// The parameters that clients have set here alone, with their values before.
    pub own_settings: Mutex<BTreeMap<&'static str, Vec<u8>>>,
    /// Which clients listen to which channels.
    pub pubsub: PubSub,
    /// Which clients keep copies of which keys.
    pub tracking: Tracking,
    /// Which clients hold which locks.
    pub lens: Lens,
    /// The requests that take long.
    pub long_requests: Arc<LongRequests>,
    /// Faults that a test has asked for.
    pub faults: Faults,
    /// Its scripts and functions.
    pub scripting: Scripting,
    /// What it shares with other instances of its process.
    pub shared: Arc<Shared>,
    /// The account of its memory, if it is not the only instance of its process.
    account: Option<Arc<Account>>,
    /// How much of its garbage was freed in the background.
    pub freed: Arc<Freed>,
    /// For how long its memory has been above `maxmemory`.
    pub exceeding: Exceeding,
    /// The sizes of its keys, as they were counted last.
    pub key_sizes: CountedSizes,
    /// When its memory reached its peak, as far as the server has looked.
    pub peak: Peak,
    /// Its snapshots and its log.
    pub persistence: Persistence,
    exports: Exports,
    /// The store in which some of its keys live, if there is one. Set before clients are let in.
    pub remote: OnceLock<Arc<Remote>>,
    /// Where requests on such keys run.
    pub scratches: Scratches,
    /// Its counters, as INFO shows them.
    pub statistics: Statistics,
    /// 40 hexadecimal digits, different in each run.
    pub run_id: String,
    /// The ID by which replicas would know its data.
    pub replication_id: ReplicationId,
    /// The port on which it listens, once it does. The system may have chosen it.
    pub listening_port: AtomicU16,
    /// Has new connections over TLS greeted by changed parameters. Set if it has a port for them.
    pub renew_tls: OnceLock<RenewTls>,
    /// The supervisor that was notified of the start, such as `systemd`.
    pub supervisor: OnceLock<&'static str>,
    /// Whether a client or the system has asked the server to end.
    pub shutdown: Shutdown,
    /// Whether clients get their replies.
    pub reply_gate: ReplyGate,
    /// Whether expired keys are freed that no command asks for.
    pub expires_actively: AtomicBool,
    /// Whether periodic work pauses (DEBUG PAUSE-CRON).
    pub pauses_cron: AtomicBool,
    /// Since when its clock has stood still.
    pub standstill: Standstill,
    /// Whether it has nothing to do.
    pub sleep: Sleep,
    /// Commands of modules that clients have asked for.
    pub told: Told,
    /// Bytes in use before there were clients and keys.
    pub startup_bytes: usize,
    started: Instant,
    hooks: Hooks,
}

/// The facts about the commands, which instances share. The module with the commands makes them.
#[derive(Clone, Debug)]
pub struct KnownCommands {
    /// The names that may occur in rules for users.
    pub catalog: Arc<Catalog>,
    /// The names by which clients call commands.
    pub names: Arc<NameTable>,
}

/// What an instance is made for. It is the caller's choice, since a keyspace keeps the number of its shards.
#[derive(Clone, Debug)]
pub struct Scale {
    /// Threads that run its commands at the same time. More may, and then share counters.
    pub threads: usize,
    /// Shards of its keyspace: a power of two, at most [`SHARDS_MAX`].
    pub shards: usize,
    /// The account on which its memory is counted. `None` if it is the only instance of its process: then all
    /// memory of the process is its memory.
    pub account: Option<Arc<Account>>,
}

impl Scale {
    /// Shards of an instance that shares its process. With a million keys, a table that grows takes 3 ms.
    const FEW_SHARDS: usize = 16;

    /// The one server of a process, for any number of keys.
    pub fn server(threads: usize) -> Scale {
        Scale { threads, shards: SHARDS_MAX, account: None }
    }

    /// One of many instances of a process, with few keys.
    pub fn small() -> Scale {
        Scale { threads: 1, shards: Scale::FEW_SHARDS, account: Some(Arc::default()) }
    }
}

/// Actions that only the owner of the instance can do. By default they do nothing.
pub struct Hooks {
    /// Called when parameters have changed.
    pub make_effective: MakeEffective,
    /// Called when `oom-score-adj` or its values have changed.
    pub adjust_oom_score: AdjustOomScore,
    /// Lets other threads serve the clients of the calling thread.
    pub hand_over: fn(),
}

impl Default for Hooks {
    fn default() -> Hooks {
        Hooks { make_effective: Box::new(|_| ()), adjust_oom_score: Box::new(|_| Ok(())), hand_over: || () }
    }
}

/// Applies changed parameters outside the instance: the log's level, the limit of open files.
pub(crate) type MakeEffective = Box<dyn Fn(&Config) + Send + Sync>;

/// Has the system choose the process sooner or later when memory is short. Fails with a text of Redis if the
/// system refuses.
pub(crate) type AdjustOomScore = Box<dyn Fn(&Config) -> Result<(), &'static str> + Send + Sync>;

/// Reads certificates and the other parameters of TLS anew. Returns one line for people if one is wrong; then
/// nothing has changed.
pub(crate) type RenewTls = Box<dyn Fn(&Config) -> Result<(), String> + Send + Sync>;

/// What an instance may have from another one.
struct Origin {
    users: Arc<Users>,
    clients: Clients,
    place: Option<Place>,
}

impl Instance {
    /// A server with these parameters, these commands and no data, for this many threads. It shares nothing
    /// with another one.
    pub fn new(config: Config, threads: usize, commands: KnownCommands, hooks: Hooks) -> Instance {
        Instance::on(Arc::default(), Scale::server(threads), config, commands, hooks)
    }

    /// The same beside other instances, with which it shares threads for its background work.
    pub fn on(
        shared: Arc<Shared>,
        scale: Scale,
        config: Config,
        commands: KnownCommands,
        hooks: Hooks,
    ) -> Instance {
        let account = scale.account.clone();
        charged(account.as_deref(), || {
            let place = Sandboxes::of(&config).map(|all| Place { all, number: 0 });
            let users = Arc::new(Users::new(Arc::clone(&commands.catalog)));
            let clients = Clients::new(Arc::clone(&config.client_output_buffer_limit));
            let origin = Origin { users, clients, place };
            let instance = Instance::made(shared, scale, config, commands, hooks, origin);
            instance.apply_requirepass();
            instance
        })
    }

    /// Another sandbox of the same server. Its users are the server's, and so are the settings of the
    /// process; it has those of the server's data.
    pub fn beside(first: &Instance, number: usize, commands: KnownCommands) -> Instance {
        let place = first.place.as_ref().map(|place| Place { all: Arc::clone(&place.all), number });
        let origin = Origin { users: Arc::clone(&first.users), clients: first.clients.beside(), place };
        let scale = Scale { threads: 1, shards: Scale::FEW_SHARDS, account: None };
        let hooks = Hooks { hand_over: first.hooks.hand_over, ..Hooks::default() };
        let shared = Arc::clone(&first.shared);
        let config = first.place.as_ref().map_or_else(|| first.config.copy(), |place| place.all.initial());
        let mut instance = Instance::made(shared, scale, config, commands, hooks, origin);
        instance.long_requests = Arc::clone(&first.long_requests);
        instance.run_id.clone_from(&first.run_id);
        instance.started = first.started;
        instance.startup_bytes = first.startup_bytes;
        instance.listening_port.store(first.port(), Ordering::Relaxed);
        instance.supervisor = first.supervisor.clone();
        instance.tokens = Arc::clone(&first.tokens);
        instance.initial = first.initial.clone();
        instance
    }

    fn made(
        shared: Arc<Shared>,
        scale: Scale,
        config: Config,
        commands: KnownCommands,
        hooks: Hooks,
        origin: Origin,
    ) -> Instance {
        let Scale { threads, shards, account } = scale;
        let KnownCommands { catalog, names } = commands;
        let Origin { users, clients, place } = origin;
        let statistics = Statistics::new(threads, catalog.here());
        let (clock, followers) = (Arc::new(Clock::default()), Arc::new(Followers::default()));
        let databases = place.as_ref().map_or(config.databases.size(), |place| place.all.databases());
        let first_database = place.as_ref().map_or(0, |place| place.number * databases);
        let shape = Shape { shards, first_database, ..Shape::of(databases, types::ALL) };
        let keyspace = Keyspace::new(shape, Arc::clone(&clock), Arc::clone(&followers));
        keyspace.set_hand_over(hooks.hand_over);
        let freed = Arc::<Freed>::default();
        let (frees, owner, counts) = (Arc::clone(&shared), account.clone(), Arc::clone(&freed));
        keyspace.set_background(move |garbage| frees.freeing.take(garbage, owner.as_ref(), &counts));
        let started_s = clock.since_epoch().as_secs();
        let scripting = Scripting::new(Running::new(keyspace.busy_flag(), hooks.hand_over));
        let lens = Lens::new(Arc::clone(keyspace.fencing()));
        let persistence = Persistence::new(started_s);
        let instance = Instance {
            config,
            clock,
            followers,
            keyspace,
            names,
            users,
            acl_log: AclLog::default(),
            tokens: Arc::default(),
            clients: Arc::new(clients),
            changes_begun: AtomicU64::new(0),
            initial: OnceLock::new(),
            place,
            own_settings: Mutex::default(),
            pubsub: PubSub::default(),
            tracking: Tracking::default(),
            lens,
            long_requests: Arc::default(),
            faults: Faults::default(),
            scripting,
            shared,
            persistence,
            exports: Exports::default(),
            remote: OnceLock::new(),
            scratches: Scratches::default(),
            statistics,
            run_id: random_hex_digits(),
            replication_id: ReplicationId::default(),
            listening_port: AtomicU16::new(0),
            renew_tls: OnceLock::new(),
            supervisor: OnceLock::new(),
            shutdown: Shutdown::default(),
            reply_gate: ReplyGate::default(),
            expires_actively: AtomicBool::new(true),
            pauses_cron: AtomicBool::new(false),
            standstill: Standstill::default(),
            sleep: Sleep::default(),
            told: Told::default(),
            startup_bytes: taken_bytes(account.as_deref()),
            account,
            freed,
            exceeding: Exceeding::default(),
            key_sizes: CountedSizes::default(),
            peak: Peak::default(),
            started: Instant::now(),
            hooks,
        };
        instance.configure_keyspace();
        instance
    }

    /// The time since the start.
    pub fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// Whether expired keys that no command asks for are freed now. They are not in a pause, nor when that is
    /// turned off.
    pub fn frees_expired(&self) -> bool {
        self.expires_actively.load(Ordering::Relaxed)
            && !self.pauses_cron.load(Ordering::Relaxed)
            && self.clients.pause.paused().is_none()
    }

    /// The interval at which peers of TCP connections are probed (`tcp-keepalive`), if they are.
    pub fn keepalive(&self) -> Option<Duration> {
        Some(self.config.tcp_keepalive.size() as u64).filter(|s| *s > 0).map(Duration::from_secs)
    }

    /// How often and how much the sweep for expired keys works: `hz` and `active-expire-effort`.
    pub fn sweep_pace(&self) -> Pace {
        Pace::new(self.config.hz.get() as u32, self.config.active_expire_effort.get() as u32)
    }

    /// Frees the garbage of a command, for a caller that holds no lock.
    #[cold]
    pub fn free(&self, garbage: Garbage) {
        let left = match garbage.is_for_background() {
            true => self.shared.freeing.take(garbage, self.account.as_ref(), &self.freed),
            false => Some(garbage),
        };
        if left.is_some() {
            self.hand_over();
            drop(left);
        }
    }

    /// Lets other threads serve the clients of this thread, which is about to do something long.
    pub fn hand_over(&self) {
        (self.hooks.hand_over)();
    }

    /// The port to which clients connect.
    pub fn port(&self) -> u16 {
        self.listening_port.load(Ordering::Relaxed)
    }

    /// Gives the user `default` the password of `requirepass`. The caller calls it after a change of
    /// `requirepass`.
    pub fn apply_requirepass(&self) {
        self.users.set_default_password(&self.config.requirepass.get());
    }

    /// Whether a new user may use all channels (`acl-pubsub-default`).
    pub fn gives_all_channels(&self) -> bool {
        PUBSUB_DEFAULTS[self.config.acl_pubsub_default.get()] == "allchannels"
    }

    /// Replaces the server's users by those of `aclfile`, if there is a file. Returns the users that no
    /// longer exist.
    ///
    /// # Errors
    ///
    /// With all mistakes in the file. The users are unchanged then.
    pub fn load_users(&self) -> Result<Vec<Arc<User>>, String> {
        match self.acl_file() {
            Some(file) => self.users.load(&file, self.gives_all_channels()),
            None => Ok(Vec::new()),
        }
    }

    /// Makes the users that the configuration file declares.
    ///
    /// # Errors
    ///
    /// With a text of Redis, if a rule is wrong.
    pub fn declare_users(&self, declared: &[OwnedRequest]) -> Result<(), String> {
        for declared in declared.iter().filter_map(OwnedRequest::request) {
            let name = declared.at(1);
            // The user `default` is already there, and may do everything.
            let reset = (name == acl::DEFAULT).then_some(&b"reset"[..]);
            let rules = reset.into_iter().chain(declared.from(2));
            let shown = String::from_utf8_lossy(name);
            self.users.set(name, rules, self.gives_all_channels()).map_err(|refused| match refused {
                Refused::Name => "Spaces not allowed in ACL usernames".to_owned(),
                Refused::Unclosed(_) => format!("Error loading ACL rules for the user named '{shown}'"),
                Refused::Rule(rule, mistake) => {
                    let rule = String::from_utf8_lossy(acl::shown_rule(&rule));
                    format!("Error loading ACL rule '{rule}' for the user named '{shown}': {mistake}")
                }
            })?;
            if self.users.get(name).is_some_and(|user| !user.grants().is_enabled) {
                tracing::info!(
                    "The user '{shown}' is disabled (there is no 'on' modifier in the user description). \
                     Make sure this is not a configuration error."
                );
            }
        }
        Ok(())
    }

    /// The file of users, if there is one.
    pub fn acl_file(&self) -> Option<NamedFile> {
        self.config.file_of(&self.config.aclfile)
    }

    /// Has the system choose this process sooner or later when memory is short, as `oom-score-adj` says.
    ///
    /// # Errors
    ///
    /// With a text of Redis, if the system refuses.
    pub fn adjust_oom_score(&self) -> Result<(), &'static str> {
        (self.hooks.adjust_oom_score)(&self.config)
    }

    /// Applies changed parameters. The caller calls it after every change.
    pub fn apply_config(&self) {
        self.configure_keyspace();
        self.configure_aof();
        (self.hooks.make_effective)(&self.config);
    }
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instance").field("run_id", &self.run_id).finish_non_exhaustive()
    }
}

impl Instance {
    /// Passes parameters to the keyspace, to statistics and to scripting.
    fn configure_keyspace(&self) {
        let config = &self.config;
        self.keyspace.set_value_bytes_max(config.proto_max_bulk_len.size());
        self.keyspace.set_compresses_dumps(config.rdbcompression.get());
        self.followers.interest.set_classes(self.event_classes());
        self.followers.journal.note_times(config.aof_timestamp_enabled.get());
        self.allow_lock_news();
        self.lens.measure(&config.lock_metrics.get());
        self.statistics.track_latencies(config.latency_tracking.get());
        self.scripting.running.set_threshold_ms(config.busy_reply_threshold.get());
        let policy = EVICTION_POLICIES[config.maxmemory_policy.get()];
        let counts_frequency = policy.ends_with("lfu");
        let factors = [&config.lfu_log_factor, &config.lfu_decay_time].map(|factor| factor.get() as u32);
        self.keyspace.configure_access(policy.ends_with("lrm"), counts_frequency, factors[0], factors[1]);
        self.configure_limits();
    }

    /// Passes on up to which size collections are packed.
    fn configure_limits(&self) {
        let parameter = |name: &str| self.config.integer(name);
        for facts in types::ALL {
            self.keyspace.limits().set(facts.kind, (facts.limit)(&parameter));
        }
        let producers = [&self.config.stream_idmp_duration, &self.config.stream_idmp_maxsize];
        self.keyspace.limits().set_of_producers(producers.map(|limit| limit.size() as u64));
    }
}

/// 40 hexadecimal digits, different on each server.
#[derive(Debug)]
pub struct ReplicationId(Mutex<String>);

impl Default for ReplicationId {
    fn default() -> ReplicationId {
        ReplicationId(Mutex::new(random_hex_digits()))
    }
}

impl ReplicationId {
    /// The current 40 digits.
    pub fn get(&self) -> String {
        self.0.lock().clone()
    }

    /// Replaces the digits by others.
    pub fn change(&self) {
        *self.0.lock() = random_hex_digits();
    }
}

/// The standard library seeds its hashers from the system's random numbers.
fn random_hex_digits() -> String {
    let digits: String =
        (0..3).map(|_| format!("{:016x}", RandomState::new().hash_one(Instant::now()))).collect();
    digits[..40].to_owned()
}
