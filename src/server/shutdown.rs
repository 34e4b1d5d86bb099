//! The end of the server: it saves the data a last time, accepts no more clients, sends the last replies, and
//! exits.

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::select;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

use crate::clients::{Leaving, Waiting};
use crate::config::{Config, Integer};
use crate::instance::{Instance, NotSaved, Saving, ShutdownRequest};
use crate::platform::processes::file_size_signal;
use crate::scripting::running::{ScriptKind, Unkilled};

/// How long clients may take to read their last replies, unless `shutdown-timeout` is less. The process is
/// gone within a second.
const GRACE: Duration = Duration::from_millis(700);
/// The same beside a script that has written, and may go on for ever, if nothing of it is to be saved.
const GRACE_BESIDE_SCRIPT: Duration = Duration::from_millis(50);
/// The interval between checks whether they have.
const GLANCE: Duration = Duration::from_millis(5);
/// The interval between checks whether a slow script has ended.
const SCRIPT_GLANCE: Duration = Duration::from_millis(10);

/// The signals that end the server.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

/// Listens for SIGTERM and SIGINT, from now on.
pub(crate) fn signals() -> io::Result<Signals> {
    Ok(Signals { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
}

/// Lets the process survive signals that would end it. Redis ignores SIGHUP, too: a terminal that is closed,
/// or a tool that has rotated the log, ends no server. It survives SIGUSR2 and SIGALRM, by which it asks its
/// own threads where they are; here they do nothing. Of SIGXFSZ a write above the limit of file sizes
/// remains an error, which is logged, as on a full disk.
pub(crate) fn survive_signals() -> io::Result<()> {
    let (asked, watched) = (SignalKind::user_defined2(), SignalKind::alarm());
    for kind in [SignalKind::hangup(), asked, watched, file_size_signal()] {
        // Once a program listens for a signal, the system never takes its default action again.
        drop(signal(kind)?);
    }
    Ok(())
}

impl Signals {
    /// Waits for one of them. Returns what it asks for, and its name.
    async fn come(&mut self, config: &Config) -> (ShutdownRequest, &'static str) {
        select! {
            _ = self.terminate.recv() => (by_signal(config, &config.shutdown_on_sigterm), "SIGTERM"),
            _ = self.interrupt.recv() => (by_signal(config, &config.shutdown_on_sigint), "SIGINT"),
        }
    }
}

/// Waits for SHUTDOWN or one of the signals, and then until the data are saved, if they must be. Returns the
/// request that ends the server.
///
/// While the log's first base is being written, no file has the data. A signal that comes then ends the
/// server when the base is complete: a supervisor sends it once.
pub(crate) async fn wait(mut signals: Option<Signals>, instance: &Arc<Instance>) -> ShutdownRequest {
    let mut postponed = None;
    loop {
        let signalled = async {
            match &mut signals {
                Some(signals) => signals.come(&instance.config).await,
                None => pending().await,
            }
        };
        let log = &instance.persistence.aof;
        let (request, signal) = select! {
            (request, name) = signalled => (request, Some(name)),
            request = instance.shutdown.asked() => (request, None),
            () = log.became_whole(), if postponed.is_some() => match postponed.take() {
                Some(request) => (request, None),
                None => continue,
            },
        };
        if let Some(name) = signal {
            tracing::info!("Received {name} scheduling shutdown...");
        }
        tracing::info!("User requested shutdown...");
        match prepare(instance, &request).await {
            Prepared::Ends => return request,
            Prepared::TooEarly if request.client.is_none() => {
                tracing::warn!("The server will end when the initial AOF is written.");
                postponed = Some(request);
                continue;
            }
            Prepared::TooEarly | Prepared::Refused => {}
        }
        log.go_on_after_finish();
        tracing::warn!("Errors trying to shut down the server. Check the logs for more information.");
        if let Some(client) = request.client {
            client.end_waiting(Waiting::TimedOut);
        }
    }
}

/// What a signal asks for, by the words of its parameter. `now` has no effect: the server never waits for
/// replicas.
fn by_signal(config: &Config, words: &Integer) -> ShutdownRequest {
    let asks_for = |word| config.shuts_down_by(words, word);
    let saving = match () {
        () if asks_for("save") => Saving::Yes,
        () if asks_for("nosave") => Saving::No,
        () => Saving::IfConfigured,
    };
    ShutdownRequest { saving, is_forced: asks_for("force"), client: None }
}

/// Whether the server may end.
enum Prepared {
    Ends,
    /// The log's first base is not complete.
    TooEarly,
    Refused,
}

/// Saves the data, if they must be saved. Returns whether the server may end.
async fn prepare(instance: &Arc<Instance>, request: &ShutdownRequest) -> Prepared {
    let saves = match request.saving {
        Saving::Yes => true,
        Saving::No => false,
        Saving::IfConfigured => !instance.config.save_points().is_empty(),
    };
    let log = &instance.persistence.aof;
    if log.is_on() && !log.is_whole() && !request.is_forced {
        tracing::warn!("Writing initial AOF, can't exit.");
        return Prepared::TooEarly;
    }
    if !instance.finish_aof().await && !accepts_losses(request) {
        tracing::warn!(
            "Not ending: the last {} bytes of {} are not on the disk ({}). Make room or repair the disk, or \
             end without them: SHUTDOWN NOSAVE",
            instance.undurable_bytes(),
            log.current_file().escape_ascii(),
            log.failure()
        );
        return Prepared::Refused;
    }
    if instance.persistence.is_saving() {
        tracing::warn!("Giving up the snapshot that is being written in the background.");
        instance.persistence.abandon();
    }
    if !saves {
        return Prepared::Ends;
    }
    tracing::info!("Saving the final RDB snapshot before exiting.");
    instance.reply_gate.hold();
    let is_saved = loop {
        instance.persistence.settled().await;
        let saver = Arc::clone(instance);
        match spawn_blocking(move || saver.save()).await {
            Ok(Ok(())) => break true,
            // The other snapshot began earlier, so it lacks later changes.
            Ok(Err(NotSaved::InProgress)) => instance.persistence.abandon(),
            // Wait until the script ends or is killed.
            Ok(Err(NotSaved::Busy)) => sleep(SCRIPT_GLANCE).await,
            Ok(Err(NotSaved::Failed)) | Err(_) => break false,
        }
    };
    if !is_saved {
        tracing::warn!("Error trying to save the DB, can't exit.");
    }
    instance.reply_gate.decide(!(is_saved || request.is_forced));
    if is_saved || request.is_forced { Prepared::Ends } else { Prepared::Refused }
}

/// Whether the request ends the server even if the last changes cannot be brought to the disk.
pub(crate) fn accepts_losses(request: &ShutdownRequest) -> bool {
    request.is_forced || request.saving == Saving::No
}

/// Disconnects every client once it has its replies. The log is on the disk before the first one is
/// disconnected: the client that sent SHUTDOWN may take its closed connection as a sign that its data are
/// safe. Returns whether the log is on the disk at the end.
pub(crate) async fn drain(instance: &Instance, request: Option<&ShutdownRequest>) -> bool {
    if instance.persistence.aof.is_on() {
        tracing::info!("Calling fsync() on the AOF file.");
    }
    let sandboxes = instance.other_sandboxes();
    let all = || std::iter::once(instance).chain(sandboxes.iter().map(|sandbox| &**sandbox));
    all().for_each(|instance| instance.followers.alarms.stop());
    instance.remote.get().into_iter().for_each(|remote| remote.stop_guards());
    // If it fails, the second call says so.
    let _ = instance.finish_aof().await;
    // One that was killed waits for the end of its delay and not for anything that it is asked.
    all().for_each(|instance| instance.faults.end_delays());
    for client in all().flat_map(|instance| instance.clients.all()) {
        client.ask_to_leave(Leaving::WhenAnswered);
    }
    let mut grace = GRACE;
    for running in all().map(|instance| &instance.scripting.running).filter(|running| running.is_busy()) {
        // A script that has changed nothing need not end by itself. Any other one has until the deadline.
        let killed = running.kill(ScriptKind::Script).or_else(|_| running.kill(ScriptKind::Function));
        if killed == Err(Unkilled::HasWritten) && request.is_some_and(accepts_losses) {
            grace = GRACE_BESIDE_SCRIPT;
        }
    }
    let timeout = Duration::from_secs(instance.config.shutdown_timeout.size() as u64);
    let deadline = Instant::now() + grace.min(timeout);
    while instance.clients.count_everywhere() > 0 && Instant::now() < deadline {
        sleep(GLANCE).await;
    }
    let is_finished = instance.finish_aof().await;
    instance.snapshot_target().tidy_up();
    is_finished
}
