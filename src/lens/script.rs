//! The scripts that take and release locks: which one it is, and whether it does more than look.
//!
//! Many libraries do everything with a lock in scripts. The commands that a script has called do not tell
//! what it would have done if it had found its token: a release and a question look the same when they fail.
//! So the script's text is searched for the names of commands that write.

use sha1::{Digest as _, Sha1};

use crate::digest::digest;
use crate::resp::Request;
use crate::resp::number::parse_integer;

/// A script that met a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Script {
    /// Its number: the same whether its text or its name was sent.
    pub(super) id: u64,
    /// Whether it may write.
    pub(super) acts: bool,
    /// Whether it is known to read a string and to delete a key.
    pub(super) deletes: bool,
}

/// Arguments of a script that are looked at.
const TOKENS_MAX: usize = 256;

impl Script {
    /// The script that a request runs. `text` returns the text of a script by its SHA-1.
    pub fn of(request: Request<'_>, text: impl FnOnce(&[u8]) -> Option<Vec<u8>>) -> Option<Script> {
        let named = request.get(1)?;
        Some(match Runs::of(request)? {
            Runs::Text => Script::of_text(id_of_text(named), Some(named)),
            Runs::Digest => Script::of_text(digest(&named.to_ascii_lowercase()), text(named).as_deref()),
            // A function's text may be anywhere in its library.
            Runs::Function => Script::of_text(digest(named), None),
        })
    }

    /// Without its text a script may do anything, and is known to do nothing.
    fn of_text(id: u64, text: Option<&[u8]>) -> Script {
        let acts = text.is_none_or(|text| has_literal(text, ACTING));
        let deletes = text.is_some_and(|text| has_literal(text, READING) && has_literal(text, DELETING));
        Script { id, acts, deletes }
    }
}

/// How a request names the script that it runs.
enum Runs {
    Text,
    Digest,
    Function,
}

impl Runs {
    fn of(request: Request<'_>) -> Option<Runs> {
        let name = request.name();
        let is = |names: [&[u8]; 2]| names.iter().any(|other| name.eq_ignore_ascii_case(other));
        match () {
            () if is([b"eval", b"eval_ro"]) => Some(Runs::Text),
            () if is([b"evalsha", b"evalsha_ro"]) => Some(Runs::Digest),
            () if is([b"fcall", b"fcall_ro"]) => Some(Runs::Function),
            () => None,
        }
    }
}

/// Whether a request runs a script.
pub(super) fn is_script(request: Request<'_>) -> bool {
    Runs::of(request).is_some()
}

/// The text of a script, if the request runs one by its text.
pub(super) fn text_of_script(request: Request<'_>) -> Option<&[u8]> {
    match Runs::of(request)? {
        Runs::Text => request.get(1),
        Runs::Digest | Runs::Function => None,
    }
}

/// The arguments of a script that are no keys, if the request runs one.
pub(super) fn tokens_of_script(request: Request<'_>) -> Option<impl Iterator<Item = &[u8]>> {
    const BEFORE_KEYS: usize = 3;
    Runs::of(request)?;
    let keys = request.get(2).and_then(parse_integer).and_then(|keys| usize::try_from(keys).ok());
    let first = keys.unwrap_or(0).saturating_add(BEFORE_KEYS).min(request.len());
    Some(request.from(first).take(TOKENS_MAX))
}

fn id_of_text(text: &[u8]) -> u64 {
    let hex: String = Sha1::digest(text).iter().map(|byte| format!("{byte:02x}")).collect();
    digest(hex.as_bytes())
}

const ACTING: &[&[u8]] = &[
    b"del",
    b"unlink",
    b"getdel",
    b"delex",
    b"delifeq",
    b"set",
    b"setex",
    b"psetex",
    b"getset",
    b"mset",
    b"expire",
    b"pexpire",
    b"expireat",
    b"pexpireat",
    b"persist",
    b"getex",
    b"hdel",
    b"hset",
    b"hincrby",
    b"rename",
];
const READING: &[&[u8]] = &[b"get", b"mget", b"getrange", b"getex"];
const DELETING: &[&[u8]] = &[b"del", b"unlink"];

/// Whether a script has the name of one of these commands, in quotes.
fn has_literal(text: &[u8], names: &[&[u8]]) -> bool {
    let quoted = |quote: u8| text.split(move |byte| *byte == quote).skip(1);
    [b'\'', b'"']
        .into_iter()
        .flat_map(quoted)
        .any(|literal| names.iter().any(|name| literal.eq_ignore_ascii_case(name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::OwnedRequest;

    #[test]
    fn a_script_acts_if_it_names_a_command_that_writes() {
        for (text, expected) in [
            ("if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('DEL',KEYS[1]) end", true),
            ("return redis.call(\"pexpire\", KEYS[1], 1)", true),
            ("return redis.call('get', KEYS[1]) == ARGV[1] and redis.call('pttl', KEYS[1])", false),
            ("-- it doesn't set or del\nreturn redis.call('exists', KEYS[1])", false),
            ("", false),
        ] {
            assert_eq!(Script::of_text(1, Some(text.as_bytes())).acts, expected, "{text}");
        }
    }

    #[test]
    fn a_script_is_the_same_by_its_text_and_by_its_name() {
        let request = |line: &[u8]| OwnedRequest::of_line(line).expect("a request");
        let text = request(b"EVAL x 1 k 1");
        let name = request(b"evalsha 11F6AD8EC52A2984ABAAFD7C3B516503785C2072 1 k 1");
        let of = |request: &OwnedRequest| {
            Script::of(request.request().expect("it is whole"), |_| Some(b"x".to_vec()))
        };
        assert_eq!(of(&text), of(&name));
        assert_eq!(of(&request(b"GET k")), None);
        let tokens: Vec<_> = tokens_of_script(name.request().unwrap()).unwrap().collect();
        assert_eq!(tokens, [b"1"], "without the number of keys");
    }
}
