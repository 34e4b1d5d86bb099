//! Sockets and time: everything that waits.
//!
//! [`listener`] opens the doors and lets clients in ([`unix`] and [`tls`] are two of them), [`connection`] is
//! one client from its first byte to its last, [`conversation`] what it and the server say to each other,
//! [`intake`] what it has sent of that, [`outflow`] what it has still to take and [`buffers`] where it lies
//! meanwhile, [`eviction`] limits what all clients take, [`slack`] gives memory back, [`lookout`] sees to it
//! that one long request stops no other client, [`background`] does what is to be done every so often,
//! [`shutdown`] ends it all in order; [`log`] prints the lines that people and tools read, [`metrics`] tells
//! other tools how the server does; [`daemon`] and [`supervision`] are about the process and who has started
//! it.

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
mod shutdown;
mod slack;
mod supervision;
mod tls;
mod unix;

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::available_parallelism;

use tokio::runtime::{Builder, Runtime};

use crate::allocator;
use crate::commands;
use crate::commands::door::replay;
use crate::config::Config;
use crate::files;
use crate::instance::{Hooks, Instance};
use crate::options::Startup;
use crate::resident;

use daemon::{Caller, PidFile};
use lookout::{Lookout, hand_over};
use metrics::Metrics;
use supervision::Supervisor;

/// Serves until the process is told to stop.
///
/// # Errors
///
/// With one line for people, if it cannot start.
pub fn run(startup: Startup) -> Result<(), String> {
    enter_directory(&startup.config)?;
    let set_log_level = log::start(&startup.config);
    let supervisor = Supervisor::greet(&startup.config);
    let goes_on_alone = startup.config.daemonize.get() && supervisor.name().is_none();
    let mut caller = if goes_on_alone { Caller::leave()? } else { Caller::none() };
    let is_told_by_log = goes_on_alone || !startup.config.logfile.get().is_empty();
    serve(startup, &supervisor, &mut caller, set_log_level).inspect_err(|why| {
        // Nobody may be looking at standard error.
        if is_told_by_log {
            tracing::warn!("{why}");
        }
        caller.tell_failure(why);
    })
}

fn serve(
    startup: Startup,
    supervisor: &Supervisor,
    caller: &mut Caller,
    set_log_level: impl Fn(usize) + Send + Sync + 'static,
) -> Result<(), String> {
    let Startup { config, users, renamed, foreign, missing, is_configured } = startup;
    let is_in_background = config.daemonize.get() && supervisor.name().is_none();
    say_hello(is_configured, &foreign, &missing);
    let threads = threads(&config);
    let runtime = runtime(threads).map_err(|error| format!("could not start the threads: {error}"))?;
    let make_effective = move |config: &Config| {
        set_log_level(config.loglevel.get());
        raise_open_files_limit(config);
        if let Err(why) = enter_directory(config) {
            tracing::warn!("{why}");
        }
    };
    make_effective(&config);
    let hooks = Hooks { make_effective: Box::new(make_effective), hand_over };
    let instance = Arc::new(Instance::new(config, threads, commands::known(&renamed), hooks));
    if let Some(name) = supervisor.name() {
        // Nobody else has.
        let _ = instance.supervisor.set(name);
    }
    // A refusal is logged, and the server starts all the same, as Redis does.
    let _ = instance.oom_score.adjust(&instance.config);
    instance.declare_users(&users)?;
    instance.load_users()?;
    let metrics = Metrics::serve(&instance, runtime.handle())?;
    let served = runtime.block_on(async {
        let doors = listener::open(&instance)?;
        // The doors are open, so nobody else takes the ports, but nobody is let in yet.
        shutdown::survive_file_size_limit().map_err(|error| format!("could not ignore SIGXFSZ: {error}"))?;
        instance.tidy_up_files();
        match instance.config.appendonly.get() {
            true => replay::load(&instance)?,
            false => instance.load()?,
        }
        let stop = shutdown::signals().map_err(|error| format!("could not listen for signals: {error}"))?;
        let pid_file = PidFile::write(&instance.config, is_in_background);
        // Whoever reads that clients are let in may ask at once whether they are.
        metrics.set_ready(true);
        doors.announce();
        supervisor.tell_ready();
        caller.tell_ready();
        background::start(&instance);
        let mut accepting = listener::accept_all(&instance, doors);
        resident::let_go_of_program();
        shutdown::wait(stop, &instance).await;
        supervisor.tell_stopping();
        metrics.set_ready(false);
        // Waited for, so that no client comes in unseen and the Unix socket's file is gone before the
        // process.
        accepting.shutdown().await;
        shutdown::drain(&instance).await;
        drop(pid_file);
        tracing::info!("Keyfast is now ready to exit, bye bye...");
        Ok(())
    });
    // The system takes the memory back at once; to free millions of keys one by one would take seconds.
    std::mem::forget(instance);
    // What still runs waits for nothing worth waiting for.
    runtime.shutdown_background();
    served
}

/// Says which server this is, and which parts of its configuration have no effect.
fn say_hello(is_configured: bool, foreign: &[String], missing: &[(String, &'static str)]) {
    let (version, process) = (env!("CARGO_PKG_VERSION"), std::process::id());
    tracing::info!("Keyfast version={version}, bits={}, pid={process}, just started", usize::BITS);
    if !is_configured {
        tracing::warn!(
            "Warning: no config file specified, using the default config. In order to specify a config file \
             use keyfast /path/to/redis.conf"
        );
    }
    if !foreign.is_empty() {
        tracing::warn!("These parameters have no effect in Keyfast: {}", foreign.join(", "));
    }
    for (directive, why) in missing {
        tracing::warn!("Ignoring '{directive}', as ignore-unsupported says. {why}");
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
fn runtime(threads: usize) -> io::Result<Runtime> {
    if threads == 1 {
        // What one thread takes needs no more, and an arena of its own costs it 15–20% of its time.
        allocator::use_one_arena();
    }
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

/// Makes `dir` the directory in which paths begin that do not begin at the root.
fn enter_directory(config: &Config) -> Result<(), String> {
    let directory = config.dir.get();
    let entered = std::env::set_current_dir(OsStr::from_bytes(&directory));
    entered
        .map_err(|error| format!("Can't chdir to '{}': {}", directory.escape_ascii(), files::reason(&error)))
}

/// Makes room for `maxclients` sockets, or lowers `maxclients` to what there is room for, as Redis does.
fn raise_open_files_limit(config: &Config) {
    let wanted = config.maxclients.get() as u64 + RESERVED_FILES;
    // Where the limit cannot be read, nothing is known against what was asked for.
    let limit = rlimit::increase_nofile_limit(wanted).unwrap_or(wanted);
    if limit < wanted {
        let possible = limit.saturating_sub(RESERVED_FILES).max(1);
        tracing::warn!(
            "You requested maxclients of {} requiring at least {wanted} max file descriptors. Current \
             maximum open files is {limit}. maxclients has been reduced to {possible} to compensate for low \
             ulimit.",
            config.maxclients.get()
        );
        config.maxclients.set(possible as i64);
    }
}

/// Files that are not clients. Redis: `CONFIG_MIN_RESERVED_FDS`.
const RESERVED_FILES: u64 = 32;
