//! The title of the process: what `ps` shows as its command line.
//!
//! Every user of a machine can read the command lines of all processes, and this one may hold a password
//! (`--requirepass`). So, as in Redis, the server overwrites it with a title as soon as it has read it, and
//! again when it knows its port. With `set-proc-title no` the command line stays, unless it holds a secret:
//! then only the program's name is left of it.
//!
//! The system keeps the arguments and behind them the environment as texts on the stack of the first thread.
//! What it shows is what is in the place of the arguments. If the last byte there is not NUL, the program
//! has overwritten them, and the system shows the text from the first byte to the first NUL, also if that is
//! in the place of the environment.

#![allow(unsafe_code)]

use std::env;
use std::fs;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use parking_lot::Mutex;

use crate::config::{Config, expand_title};
use crate::options::Startup;

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

/// The place for a title in this process's memory: that of its arguments, and perhaps of its environment.
///
/// Invariant: the bytes of `start..end` are mapped and can be written. Nothing refers to them but the C
/// library's `argv`, which the standard library reads as texts that end with NUL. No thread reads `argv`
/// while a title is written: only `main` does, before.
#[derive(Debug)]
struct Place {
    start: usize,
    arguments_end: usize,
    end: usize,
}

impl Place {
    /// Asks the system for the place of the arguments. `None` if it does not tell, such as an emulator, or if
    /// something else is there.
    fn find() -> Option<Place> {
        let arguments = range_of_arguments(&fs::read_to_string("/proc/self/stat").ok()?)?;
        let known: Vec<u8> = env::args_os().flat_map(|word| [word.as_bytes(), b"\0"].concat()).collect();
        // The system reads this from that place.
        let is_there = arguments.len() == known.len() && fs::read("/proc/self/cmdline").ok()? == known;
        let Range { start, end } = arguments;
        is_there.then_some(Place { start, arguments_end: end, end })
    }

    /// Adds the place of the environment, which is moved elsewhere.
    ///
    /// The caller is the only thread.
    fn with_environment(self) -> Place {
        let variables: Vec<_> = env::vars_os().collect();
        let bytes = variables.iter().map(|(name, value)| name.len() + value.len() + 2).sum::<usize>();
        for (name, value) in variables {
            if !name.as_bytes().contains(&b'=') {
                // SAFETY: no other thread reads or changes the environment, as there is none. The C library
                // puts the variable, which stays what it was, into memory of its own.
                unsafe { env::set_var(name, value) };
            }
        }
        let is_behind =
            fs::read_to_string("/proc/self/stat").ok().and_then(|stat| range_of_environment(&stat));
        let end = is_behind.filter(|range| range.start == self.arguments_end && range.len() == bytes);
        Place { end: end.map_or(self.end, |range| range.end), ..self }
    }

    /// Puts a title there, or as much of it as there is room for.
    fn write(&self, title: &[u8]) {
        let title = title.split(|byte| *byte == 0).next().unwrap_or_default();
        let shown = &title[..title.len().min(self.end - self.start - 1)];
        let arguments = self.arguments_end - self.start;
        let mut text = shown.to_vec();
        text.resize(text.len().max(arguments - 1), 0);
        // A byte that is not NUL at the end of the arguments: the title ends at the first NUL.
        if shown.len() + 1 < arguments {
            text.push(b'.');
        } else {
            text.push(0);
        }
        // SAFETY: the text is no longer than the place, by the lines above; the place is as the type says.
        // The caller holds the lock, so no other thread writes there.
        unsafe {
            let start = std::ptr::with_exposed_provenance_mut::<u8>(self.start);
            std::ptr::copy_nonoverlapping(text.as_ptr(), start, text.len());
        }
    }
}

/// Where the arguments are, by proc(5): the fields 48 and 49 of `stat`.
fn range_of_arguments(stat: &str) -> Option<Range<usize>> {
    range_in(stat, 48)
}

/// Where the environment is: the fields 50 and 51.
fn range_of_environment(stat: &str) -> Option<Range<usize>> {
    range_in(stat, 50)
}

fn range_in(stat: &str, field: usize) -> Option<Range<usize>> {
    // The second field is a name in parentheses, which may hold anything.
    let (_, behind_name) = stat.rsplit_once(')')?;
    let mut numbers = behind_name.split_ascii_whitespace().skip(field - 3).map(str::parse);
    let (start, end) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    (0 < start && start < end).then_some(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "\
        23126 (key) f) S 1 23126 23126 0 -1 4194304 101 0 0 0 0 0 0 0 20 0 1 0 2316 2605056 221 \
        18446744073709551615 94 95 140 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 96 97 98 1000 1030 1030 2000 0";

    #[test]
    fn the_system_says_where_arguments_and_environment_are() {
        assert_eq!(range_of_arguments(STAT), Some(1000..1030));
        assert_eq!(range_of_environment(STAT), Some(1030..2000));
        // An emulator knows nothing.
        let unknown = STAT.replace("1000 1030 1030 2000", "0 0 0 0");
        assert_eq!(range_of_arguments(&unknown), None);
        assert_eq!(range_of_arguments("1 (keyfast) S 1 2"), None);
    }

    #[test]
    fn a_title_fills_its_place_and_no_more() {
        for (room, title, expected) in [
            (12..12, "abc", &b"abc\0\0\0\0\0\0\0\0."[..]),
            (12..12, "0123456789", b"0123456789\0."),
            (12..12, "0123456789a", b"0123456789a\0"),
            (12..12, "0123456789ab", b"0123456789a\0"),
            (12..16, "0123456789ab", b"0123456789ab\0eee"),
            (12..16, "0123456789abcdefg", b"0123456789abcde\0"),
            (1..1, "abc", b"\0"),
        ] {
            let mut memory = vec![b'e'; room.end + 1];
            let start = memory.as_mut_ptr().expose_provenance();
            let place = Place { start, arguments_end: start + room.start, end: start + room.end };
            place.write(title.as_bytes());
            assert_eq!(memory.pop(), Some(b'e'), "what is behind it is not touched");
            assert_eq!(memory.escape_ascii().to_string(), expected.escape_ascii().to_string());
        }
    }
}
