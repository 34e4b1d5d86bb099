//! The title of the process: what `ps` shows as its command line.
//!
//! Every user of a machine can read the command lines of all processes, and this one may hold a password
//! (`--requirepass`). So, as in Redis, the server overwrites it with a title as soon as it has read it, and
//! again when it knows its port. With `set-proc-title no` the command line stays, unless it holds a secret:
//! then only the program's name is left of it.

use std::env;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use parking_lot::Mutex;

use crate::config::{Config, expand_title};
use crate::options::Startup;
use crate::platform::command_line::Place;

/// The title of this process.
#[derive(Debug)]
pub(super) struct Title {
    /// What the program was called as.
    name: Vec<u8>,
    /// The place for the title; `None` if it is unknown, or the command line stays as it is.
    place: Option<Place>,
    /// What changes while the server runs. Held while the title is written.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The port that the system has chosen, if it has.
    chosen_port: Option<u16>,
    /// The title that is shown.
    shown: Vec<u8>,
}

impl Title {
    /// Overwrites the command line.
    ///
    /// Must be called once, before the first other thread starts: it moves the environment.
    pub(super) fn take(startup: &Startup) -> Title {
        let Startup { config, has_secret_arguments, .. } = startup;
        let name = env::args_os().next().unwrap_or_default().into_vec();
        let place = match (config.set_proc_title.get(), has_secret_arguments) {
            (true, _) => Place::find().map(Place::with_environment),
            (false, true) => Place::find(),
            (false, false) => None,
        };
        let title = Title { name, place, state: Mutex::default() };
        title.show(config);
        title
    }

    /// Shows the title that belongs to changed parameters.
    pub(super) fn show(&self, config: &Config) {
        let Some(place) = &self.place else { return };
        let mut state = self.state.lock();
        let title = match config.set_proc_title.get() {
            true => self.expand(config, state.chosen_port),
            false => self.name.clone(),
        };
        if title != state.shown {
            place.write(&title);
            state.shown = title;
        }
    }

    /// Shows the port that the system has chosen.
    pub(super) fn show_port(&self, config: &Config, port: u16) {
        self.state.lock().chosen_port = Some(port);
        self.show(config);
    }

    /// The title by `proc-title-template`, with the values that Redis gives its variables.
    fn expand(&self, config: &Config, chosen_port: Option<u16>) -> Vec<u8> {
        let or_none = |text: &[u8], none: &[u8]| if text.is_empty() { none.to_vec() } else { text.to_vec() };
        let (port, tls_port) = (config.port.get(), config.tls_port.get());
        let unix_socket = config.unixsocket.get();
        expand_title(&config.proc_title_template.get(), |variable| match variable {
            "title" => self.name.clone(),
            "listen-addr" if port == 0 && tls_port == 0 && !unix_socket.is_empty() => {
                [b"unixsocket:", &*unix_socket].concat()
            }
            "listen-addr" => {
                let bind = config.bind.get();
                let first = bind.split(|byte| *byte == b' ').next().unwrap_or_default();
                let port = [port, tls_port].into_iter().find(|port| *port != 0);
                let port = port.unwrap_or(chosen_port.unwrap_or(0).into());
                [&*or_none(first, b"*"), format!(":{port}").as_bytes()].concat()
            }
            "config-file" => {
                let file = config.file.as_deref().map(|file| file.as_os_str().as_bytes());
                or_none(file.unwrap_or_default(), b"-")
            }
            "port" => port.to_string().into_bytes(),
            "tls-port" => tls_port.to_string().into_bytes(),
            "unixsocket" => unix_socket.to_vec(),
            // There is one mode of a server, and Redis shows nothing for it.
            _ => Vec::new(),
        })
    }
}
