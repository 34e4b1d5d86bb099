//! The end: no new clients, an answer to what was sent, and out.

use std::io;
use std::time::Duration;

use tokio::select;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, sleep};

use crate::clients::Leaving;
use crate::instance::Instance;

/// How long clients may take to read their last replies. The process is gone within a second.
const GRACE: Duration = Duration::from_millis(700);
/// How often to look whether they have.
const GLANCE: Duration = Duration::from_millis(5);

/// The signals that end the server.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

/// Listens for SIGTERM and SIGINT, from now on.
pub(super) fn signals() -> io::Result<Signals> {
    Ok(Signals { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
}

/// Waits for one of them, or for SHUTDOWN.
pub(super) async fn wait(mut signals: Signals, instance: &Instance) {
    let name = select! {
        _ = signals.terminate.recv() => "SIGTERM",
        _ = signals.interrupt.recv() => "SIGINT",
        () = instance.shutdown.notified() => return,
    };
    tracing::info!("Received {name} scheduling shutdown...");
}

/// Lets every client go once what it has sent is answered.
pub(super) async fn drain(instance: &Instance) {
    tracing::info!("User requested shutdown...");
    for client in instance.clients.all() {
        client.ask_to_leave(Leaving::WhenAnswered);
    }
    let deadline = Instant::now() + GRACE;
    while instance.clients.count() > 0 && Instant::now() < deadline {
        sleep(GLANCE).await;
    }
}
