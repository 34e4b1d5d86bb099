//! What all clients of one running server share.

mod aof;
mod delivery;
mod ending;
mod freeing;
mod loading;
mod memory;
mod oom_score;
mod saving;

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::acl::{self, Catalog, Refused, User, Users};
use crate::allocator;
use crate::clients::Clients;
use crate::clock::Clock;
use crate::config::{Config, EVICTION_POLICIES, PUBSUB_DEFAULTS};
use crate::faults::Faults;
use crate::files::NamedFile;
use crate::keyspace::expiry::Pace;
use crate::keyspace::{Followers, Keyspace, Shape};
use crate::lens::Lens;
use crate::name_table::NameTable;
use crate::persistence::Persistence;
use crate::pubsub::PubSub;
use crate::resp::OwnedRequest;
use crate::scripting::Scripting;
use crate::scripting::running::Running;
use crate::statistics::Statistics;
use crate::tracking::Tracking;
use crate::types;
pub use delivery::Doer;
pub use ending::{Answers, Saving, Shutdown, ShutdownRequest};
pub use freeing::Freeing;
pub use loading::Replay;
pub use memory::{resident_bytes, system_bytes};
pub use oom_score::OomScore;
pub use saving::NotSaved;

/// One running server.
pub struct Instance {
    /// Its parameters.
    pub config: Config,
    /// The clock by which its keys expire.
    pub clock: Arc<Clock>,
    /// Who wants to know of changes in its data.
    pub followers: Arc<Followers>,
    /// Its data.
    pub keyspace: Keyspace,
    /// The names by which clients call its commands.
    pub names: NameTable,
    /// Who may do what.
    pub users: Users,
    /// Who is connected.
    pub clients: Arc<Clients>,
    /// Who listens to which channel.
    pub pubsub: PubSub,
    /// Who keeps copies of which keys.
    pub tracking: Tracking,
    /// Who holds which lock.
    pub lens: Lens,
    /// What goes wrong on purpose.
    pub faults: Faults,
    /// Its scripts.
    pub scripting: Scripting,
    /// What frees its large garbage.
    pub freeing: Freeing,
    /// What outlives it.
    pub persistence: Persistence,
    /// What it counts.
    pub statistics: Statistics,
    /// 40 hexadecimal digits that no other run has.
    pub run_id: String,
    /// What replicas of it would know its data by.
    pub replication_id: ReplicationId,
    /// The port it listens on, once it does; it may have been chosen by the system.
    pub listening_port: AtomicU16,
    /// Who was told that it runs, if anybody: `systemd`, say.
    pub supervisor: OnceLock<&'static str>,
    /// Whether somebody wants the server to end.
    pub shutdown: Shutdown,
    /// Whether clients are given their replies.
    pub answers: Answers,
    /// Whether expired keys are freed that nobody asks for.
    pub expires_actively: AtomicBool,
    /// How soon the system chooses this process to kill when memory is short.
    pub oom_score: OomScore,
    /// Whether nothing is done that is done every so often (DEBUG PAUSE-CRON).
    pub pauses_cron: AtomicBool,
    /// Bytes that were taken before there were clients and keys.
    pub startup_bytes: usize,
    started: Instant,
    make_effective: MakeEffective,
    hand_over: fn(),
}

/// What an instance knows of the commands: the module that has them makes it.
pub struct KnownCommands {
    /// The names that rules about users may contain.
    pub catalog: Catalog,
    /// The names by which clients call commands.
    pub names: NameTable,
}

/// What only the owner of the instance can do.
pub struct Hooks {
    /// Called when parameters have changed.
    pub make_effective: MakeEffective,
    /// Lets other threads serve the clients of the one that calls it.
    pub hand_over: fn(),
}

/// Makes effective what changed parameters alone do not: the log's level, the limit of open files.
pub type MakeEffective = Box<dyn Fn(&Config) + Send + Sync>;

impl Instance {
    /// A server with these parameters and no data, for so many threads, that has these commands.
    pub fn new(config: Config, threads: usize, commands: KnownCommands, hooks: Hooks) -> Instance {
        let KnownCommands { catalog, names } = commands;
        let statistics = Statistics::new(threads, catalog.here());
        let (clock, followers) = (Arc::new(Clock::default()), Arc::new(Followers::default()));
        let shape = Shape::of(config.databases.size(), types::ALL);
        let keyspace = Keyspace::new(shape, Arc::clone(&clock), Arc::clone(&followers));
        keyspace.set_hand_over(hooks.hand_over);
        let started_s = clock.since_epoch().as_secs();
        let scripting = Scripting::new(Running::new(keyspace.busy_flag(), hooks.hand_over));
        let lens = Lens::new(clock.now_ms());
        let persistence = Persistence::new(started_s);
        let output_limits = Arc::clone(&config.client_output_buffer_limit);
        let instance = Instance {
            config,
            clock,
            followers,
            keyspace,
            names,
            users: Users::new(catalog),
            clients: Arc::new(Clients::new(output_limits)),
            pubsub: PubSub::default(),
            tracking: Tracking::default(),
            lens,
            faults: Faults::default(),
            scripting,
            freeing: Freeing::default(),
            persistence,
            statistics,
            run_id: random_hex_digits(),
            replication_id: ReplicationId::default(),
            listening_port: AtomicU16::new(0),
            supervisor: OnceLock::new(),
            shutdown: Shutdown::default(),
            answers: Answers::default(),
            expires_actively: AtomicBool::new(true),
            pauses_cron: AtomicBool::new(false),
            oom_score: OomScore::default(),
            startup_bytes: allocator::used_bytes(),
            started: Instant::now(),
            make_effective: hooks.make_effective,
            hand_over: hooks.hand_over,
        };
        instance.configure_keyspace();
        instance.apply_requirepass();
        instance
    }

    /// How long it has been running.
    pub fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// Whether expired keys are freed now that nobody asks for: not in a pause, nor once that was stopped.
    pub fn frees_expired(&self) -> bool {
        self.expires_actively.load(Ordering::Relaxed)
            && !self.pauses_cron.load(Ordering::Relaxed)
            && self.clients.pause.paused().is_none()
    }

    /// How often and how much the sweep for expired keys works: `hz` and `active-expire-effort`.
    pub fn sweep_pace(&self) -> Pace {
        Pace::new(self.config.hz.get() as u32, self.config.active_expire_effort.get() as u32)
    }

    /// Lets other threads serve the clients of this one, which is about to do something long.
    pub fn hand_over(&self) {
        (self.hand_over)();
    }

    /// The port clients connect to.
    pub fn port(&self) -> u16 {
        self.listening_port.load(Ordering::Relaxed)
    }

    /// Gives the user `default` the password of `requirepass`: called after that was set.
    pub fn apply_requirepass(&self) {
        self.users.set_default_password(&self.config.requirepass.get());
    }

    /// Whether a new user may use all channels (`acl-pubsub-default`).
    pub fn gives_all_channels(&self) -> bool {
        PUBSUB_DEFAULTS[self.config.acl_pubsub_default.get()] == "allchannels"
    }

    /// Makes the users of `aclfile` those of the server, if there is a file. Answers who is one no longer.
    ///
    /// # Errors
    ///
    /// With all that is wrong with the file; nothing has changed then.
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
    /// In the words of Redis, if a rule is wrong, or if there is a file of users as well.
    pub fn declare_users(&self, declared: &[OwnedRequest]) -> Result<(), String> {
        if self.acl_file().is_some() && !declared.is_empty() {
            return Err(
                "Configuring Redis with users defined in redis.conf and at the same setting an ACL file path \
                 is invalid. This setup is very likely to lead to configuration errors and security holes, \
                 please define either an ACL file or declare users directly in your redis.conf, but not both."
                    .into(),
            );
        }
        for declared in declared.iter().filter_map(OwnedRequest::request) {
            let name = declared.at(1);
            // This one is there already, and may do everything.
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

    /// Makes effective what parameters alone do not: called after some were changed.
    pub fn apply_config(&self) {
        self.configure_keyspace();
        self.configure_aof();
        (self.make_effective)(&self.config);
    }
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instance").field("run_id", &self.run_id).finish_non_exhaustive()
    }
}

impl Instance {
    /// Tells the keyspace and others what they need to know of the parameters.
    fn configure_keyspace(&self) {
        let config = &self.config;
        self.keyspace.set_value_bytes_max(config.proto_max_bulk_len.size());
        self.followers.interest.set_classes(self.event_classes());
        self.allow_lock_news();
        self.statistics.track_latencies(config.latency_tracking.get());
        self.scripting.running.set_threshold_ms(config.busy_reply_threshold.get());
        let policy = EVICTION_POLICIES[config.maxmemory_policy.get()];
        let counts_frequency = policy.ends_with("lfu");
        let goes_by_use = counts_frequency || policy.ends_with("lru");
        self.keyspace.set_evicts_by_use(goes_by_use && config.maxmemory.size() > 0);
        let factors = [&config.lfu_log_factor, &config.lfu_decay_time].map(|factor| factor.get() as u32);
        self.keyspace.configure_access(counts_frequency, factors[0], factors[1]);
    }
}

/// 40 hexadecimal digits that no other server has.
#[derive(Debug)]
pub struct ReplicationId(Mutex<String>);

impl Default for ReplicationId {
    fn default() -> ReplicationId {
        ReplicationId(Mutex::new(random_hex_digits()))
    }
}

impl ReplicationId {
    /// The digits.
    pub fn get(&self) -> String {
        self.0.lock().clone()
    }

    /// Takes others.
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
