//! Guesses what a user meant by an unknown name, for the complaint about it.

use crate::config::{foreign, parameters};

/// Directives that are not parameters.
const DIRECTIVES: &[&str] = &["include", "init", "loadmodule", "rename-command", "user"];

/// What other servers and clients call a parameter.
const OTHER_WORDS: &[(&str, &str)] = &[
    ("a", "requirepass"),
    ("address", "bind"),
    ("auth", "requirepass"),
    ("background", "daemonize"),
    ("daemon", "daemonize"),
    ("data-dir", "dir"),
    ("host", "bind"),
    ("hostname", "bind"),
    ("log-file", "logfile"),
    ("log-level", "loglevel"),
    ("memory", "maxmemory"),
    ("p", "port"),
    ("pass", "requirepass"),
    ("password", "requirepass"),
    ("socket", "unixsocket"),
    ("threads", "io-threads"),
];

/// Bytes of a name that may be a misspelt one; the longest directive has about fifty. To compare a longer
/// one with each known name could take minutes.
const NAME_BYTES_MAX: usize = 100;

/// The known name that is most like this one, if it is like enough.
pub(super) fn of(name: &str) -> Option<&'static str> {
    let name = name.trim_start_matches('-').to_ascii_lowercase().replace('_', "-");
    // A value may follow, as in `nosuch=7000`.
    let name = name.split('=').next().unwrap_or_default();
    if name.len() > NAME_BYTES_MAX {
        return None;
    }
    if let Some((_, meant)) = OTHER_WORDS.iter().find(|(word, _)| *word == name) {
        return Some(meant);
    }
    // A third of the letters may be wrong, so none in a name of one or two letters.
    let mistakes_max = name.chars().count() / 3;
    let own = parameters().flat_map(|parameter| parameter.names());
    let known = own.chain(DIRECTIVES.iter().copied()).chain(foreign::names());
    let measured = known.map(|known| (strsim::osa_distance(name, known), known));
    let nearest = measured.min_by_key(|(mistakes, _)| *mistakes);
    nearest.filter(|(mistakes, _)| *mistakes <= mistakes_max).map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_pen_is_understood_and_a_strange_word_is_not() {
        for (name, meant) in [
            ("portt", Some("port")),
            ("prot", Some("port")),
            ("-p", Some("port")),
            ("max-memory", Some("maxmemory")),
            ("max_memory", Some("maxmemory")),
            ("appendonl", Some("appendonly")),
            ("requirepas", Some("requirepass")),
            ("password", Some("requirepass")),
            ("replicof", Some("replicaof")),
            ("foo", None),
            ("x", None),
            ("nosuch", None),
        ] {
            assert_eq!(of(name), meant, "{name}");
        }
    }
}
