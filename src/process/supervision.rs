//! Notifies the program that has started the server: systemd through a socket, upstart by a stop signal to
//! itself.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::net::UnixDatagram;

use crate::config::{Config, SUPERVISORS};
use crate::platform::sockets;

/// The environment variable with the path of systemd's socket.
const SYSTEMD: &str = "NOTIFY_SOCKET";
/// The environment variable that upstart sets for its jobs.
const UPSTART: &str = "UPSTART_JOB";

/// The program that supervises the server.
#[derive(Debug)]
pub(super) enum Supervisor {
    /// There is none.
    Absent,
    /// Upstart, which waits until the server stops itself.
    Upstart,
    /// Systemd, which listens on this socket.
    Systemd(OsString),
}

impl Supervisor {
    /// The supervisor of the parameter `supervised`, if its variable is set. Notifies it that the server
    /// begins.
    pub(super) fn greet(config: &Config) -> Supervisor {
        let is_there = |variable: &str| env::var_os(variable).is_some();
        let name = match SUPERVISORS[config.supervised.get()] {
            "auto" if is_there(UPSTART) => "upstart",
            "auto" if is_there(SYSTEMD) => "systemd",
            name => name,
        };
        let supervisor = match name {
            "upstart" if is_there(UPSTART) => Supervisor::Upstart,
            "upstart" => {
                tracing::warn!("upstart supervision requested, but {UPSTART} not found!");
                Supervisor::Absent
            }
            "systemd" => match env::var_os(SYSTEMD) {
                Some(socket) => Supervisor::Systemd(socket),
                None => {
                    tracing::warn!("systemd supervision error: {SYSTEMD} not found!");
                    Supervisor::Absent
                }
            },
            _ => Supervisor::Absent,
        };
        if let Some(place) = SUPERVISORS.iter().position(|other| Some(*other) == supervisor.name()) {
            // As in Redis: from now on the parameter has the supervisor that `auto` has found.
            config.supervised.set(place);
        }
        supervisor.begin();
        supervisor
    }

    /// The supervisor's name in INFO.
    pub(super) fn name(&self) -> Option<&'static str> {
        match self {
            Supervisor::Absent => None,
            Supervisor::Upstart => Some("upstart"),
            Supervisor::Systemd(_) => Some("systemd"),
        }
    }

    fn begin(&self) {
        match self {
            Supervisor::Absent => {}
            Supervisor::Upstart => {
                tracing::warn!("supervised by upstart, will stop to signal readiness");
                let stopped = fork::signal_process(fork::current_process_id(), fork::Signal::STOP);
                if let Err(error) = stopped {
                    tracing::warn!("Could not notify upstart: {error}");
                }
            }
            Supervisor::Systemd(_) => self.tell("STATUS=Keyfast is loading..."),
        }
    }

    /// Notifies the supervisor that clients can connect.
    pub(super) fn tell_ready(&self) {
        self.tell("STATUS=Ready to accept connections\nREADY=1");
    }

    /// Notifies the supervisor that the server ends.
    pub(super) fn tell_stopping(&self) {
        self.tell("STOPPING=1");
    }

    fn tell(&self, state: &str) {
        if let Supervisor::Systemd(socket) = self
            && let Err(error) = send(socket, state)
        {
            tracing::warn!("Could not notify systemd: {error}");
        }
    }
}

/// Sends a message like `sd_notify`.
fn send(socket: &OsStr, state: &str) -> io::Result<()> {
    let address = sockets::address(socket)?;
    UnixDatagram::unbound()?.send_to_addr(format!("{state}\n").as_bytes(), &address).map(drop)
}
