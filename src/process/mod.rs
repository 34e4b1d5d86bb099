//! The one server of the program `keyfast`, and its changes to the whole process: directory, limits, [`log`],
//! [`daemon`], [`oom_score`], [`supervision`] and [`title`].

mod daemon;
mod log;
mod oom_score;
mod supervision;
mod title;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use crate::config::Config;
use crate::files;
use crate::host::runtime::threads;
use crate::instance::{Hooks, Scale};
use crate::options::Startup;
use crate::platform::open_files::raise_open_files;
use crate::platform::{heap, program};
use crate::server::{Server, shutdown};

use daemon::{Caller, PidFile};
use oom_score::OomScore;
use supervision::Supervisor;
use title::Title;

/// Serves until a signal or a client ends the process.
///
/// # Errors
///
/// With the line for standard error, if the server cannot start.
pub fn run(startup: Startup) -> Result<(), String> {
    let is_json = log::is_json(&startup.config);
    try_run(startup).map_err(|why| if is_json { log::json_line(&why) } else { format!("keyfast: {why}") })
}

fn try_run(startup: Startup) -> Result<(), String> {
    let title = Arc::new(Title::take(&startup));
    enter_directory(&startup.config)?;
    let set_log_level = log::start(&startup.config);
    let supervisor = Supervisor::greet(&startup.config);
    let goes_on_alone = startup.config.daemonize.get() && supervisor.name().is_none();
    let mut caller = if goes_on_alone { Caller::leave()? } else { Caller::none() };
    let is_told_by_log = goes_on_alone || !startup.config.logfile.get().is_empty();
    start_and_serve(startup, &supervisor, &mut caller, &title, set_log_level).inspect_err(|why| {
        // The user may not see standard error.
        if is_told_by_log {
            tracing::warn!("{why}");
        }
        caller.tell_failure(why);
    })
}

fn start_and_serve(
    startup: Startup,
    supervisor: &Supervisor,
    caller: &mut Caller,
    title: &Arc<Title>,
    set_log_level: impl Fn(usize) + Send + Sync + 'static,
) -> Result<(), String> {
    say_hello(&startup);
    if threads(&startup.config) == 1 {
        // One thread needs only one arena; a second one costs 15–20% of its time.
        heap::use_one_arena();
    }
    let host = Server::host(threads(&startup.config))?;
    let scale = Scale::server(host.threads);
    let shown_title = Arc::clone(title);
    let make_effective = move |config: &Config| {
        set_log_level(config.loglevel.get());
        shown_title.show(config);
        raise_open_files_limit(config);
        if let Err(why) = enter_directory(config) {
            tracing::warn!("{why}");
        }
    };
    make_effective(&startup.config);
    let oom_score = OomScore::default();
    let hooks = Hooks {
        make_effective: Box::new(make_effective),
        adjust_oom_score: Box::new(move |config| oom_score.adjust(config)),
        ..Hooks::default()
    };
    let mut server = Server::open(host, scale, startup, hooks)?;
    title.show_port(&server.instance.config, server.instance.port());
    let served = serve(&mut server, supervisor, caller);
    server.abandon();
    served
}

/// Serves clients until the server ends.
fn serve(server: &mut Server, supervisor: &Supervisor, caller: &mut Caller) -> Result<(), String> {
    let config = &server.instance.config;
    let is_in_background = config.daemonize.get() && supervisor.name().is_none();
    if let Some(name) = supervisor.name() {
        // No other code sets it.
        let _ = server.instance.supervisor.set(name);
    }
    // If the system refuses, that is logged, and the server starts all the same, as in Redis.
    let _ = server.instance.adjust_oom_score();
    let entered = server.host.runtime.enter();
    shutdown::survive_signals().map_err(|error| format!("could not ignore signals: {error}"))?;
    drop(entered);
    server.load()?;
    let entered = server.host.runtime.enter();
    let signals = shutdown::signals().map_err(|error| format!("could not listen for signals: {error}"))?;
    drop(entered);
    let pid_file = PidFile::write(config, is_in_background);
    server.let_clients_in();
    supervisor.tell_ready();
    caller.tell_ready();
    program::let_go_of_program();
    let request = server.wait_for_signal(signals);
    supervisor.tell_stopping();
    let is_durable = server.drain(Some(&request));
    drop(pid_file);
    if !is_durable && !shutdown::accepts_losses(&request) {
        return Err("the last changes could not be written to the append-only file".to_owned());
    }
    tracing::info!("Keyfast is now ready to exit, bye bye...");
    Ok(())
}

/// Logs which server this is, and which of its parameters have no effect.
fn say_hello(startup: &Startup) {
    let Startup { foreign, missing, strange_variables, is_configured, .. } = startup;
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
    for text in strange_variables {
        tracing::warn!("Warning: {text}");
    }
    for (directive, why) in missing {
        tracing::warn!("Ignoring '{directive}', as ignore-unsupported says. {why}");
    }
}

/// Makes `dir` the working directory: a relative log file is opened there for each line, and the system
/// writes core dumps there.
fn enter_directory(config: &Config) -> Result<(), String> {
    let directory = config.dir.get();
    let entered = std::env::set_current_dir(OsStr::from_bytes(&directory));
    entered
        .map_err(|error| format!("Can't chdir to '{}': {}", directory.escape_ascii(), files::reason(&error)))
}

/// Raises the limit of open files for `maxclients` sockets; otherwise lowers `maxclients` to the limit, as
/// Redis does.
fn raise_open_files_limit(config: &Config) {
    let wanted = config.maxclients.get() as u64 + RESERVED_FILES;
    // If the limit cannot be read, it is taken to be high enough.
    let limit = raise_open_files(wanted).unwrap_or(wanted);
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

/// Open files that are not clients. Redis: `CONFIG_MIN_RESERVED_FDS`.
const RESERVED_FILES: u64 = 32;
