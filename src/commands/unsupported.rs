//! Commands of Redis and Valkey that are not here. Rules about users may name them, so that an ACL file of
//! another server can be used as it is; ACL CAT lists those of Redis 8.6, and ACL DRYRUN judges them.
//!
//! `unsupported.txt` was made from COMMAND INFO of redis-server 8.6.3 and, after an empty line, from that of
//! Valkey 9.1.2. A line is a name, the arity, the ACL categories, and where the keys are:
//!
//! - `i1,0,1,0,rw`: the position of the first key; the distance of the last key from the first (below zero:
//!   from the end of the request); the step; a limit (2 means one half of the rest); read and written.
//! - `n1,0,1,1,r`: a position; as seen from it, where the number of keys is and where the first key is.
//! - `kSTREAMS,1,-1,1,2,r`: a word that the keys follow; the position from which it is searched for.

use crate::acl::Access;
use crate::instance::Instance;
use crate::resp::Request;
use crate::resp::number::parse_integer;

use crate::commands::args::is_word;
use crate::commands::facts::Arity;

/// A command that is not here.
#[derive(Clone, Copy, Debug)]
pub struct Absent {
    /// Its name; a subcommand's begins with its command's and a bar.
    pub name: &'static str,
    /// How many arguments it takes.
    pub arity: Arity,
    /// Whether Redis 8.6 has it.
    pub is_of_redis: bool,
    categories: &'static str,
    keys: &'static str,
}

/// All of them. A command that has come to be here may still be among them: what is here counts.
pub fn all() -> impl Iterator<Item = Absent> {
    let (redis, valkey) = TABLE.split_once("\n\n").unwrap_or((TABLE, ""));
    let rows = |lines: &'static str, is_of_redis| lines.lines().map(move |line| row(line, is_of_redis));
    rows(redis, true).chain(rows(valkey, false))
}

const TABLE: &str = include_str!("unsupported.txt");

fn row(line: &'static str, is_of_redis: bool) -> Absent {
    let mut words = line.split(' ');
    let mut word = || words.next().unwrap_or_default();
    let (name, arity, categories, keys) = (word(), word(), word(), word());
    let number: i64 = arity.parse().unwrap_or_default();
    let count = number.unsigned_abs() as usize;
    let arity = if number < 0 { Arity::AtLeast(count) } else { Arity::Exactly(count) };
    Absent { name, arity, is_of_redis, categories, keys }
}

/// How the names of modules' commands begin, in the images of Redis 8, redis-stack and valkey-bundle, and
/// what a module is for.
const MODULES: &[(&str, &str)] = &[
    ("json.", "JSON"),
    ("ft.", "search"),
    ("ts.", "time series"),
    ("bf.", "Bloom filters"),
    ("cf.", "cuckoo filters"),
    ("cms.", "counts of frequent items"),
    ("topk.", "counts of frequent items"),
    ("tdigest.", "percentiles"),
    ("graph.", "graphs"),
    ("v", "vector sets"),
];

/// Logs that a client has asked for a command of a module: once for each command. The client gets the error
/// for unknown commands, which does not tell a user that a whole module is missing.
pub(in crate::commands) fn report_module(instance: &Instance, request: Request<'_>) {
    let name = request.name();
    let Some(use_of_it) = module_of(request).filter(|_| instance.told.is_new(name)) else { return };
    tracing::warn!(
        "A client asks for {}, a command of the module for {use_of_it}. Keyfast has no modules: the client \
         gets an error. This line comes once for each such command.",
        name.to_ascii_uppercase().escape_ascii()
    );
}

/// What the module is for that has the command, if it is one of those above. Of the names without a dot only
/// those count that Redis knows.
fn module_of(request: Request<'_>) -> Option<&'static str> {
    let begins = |beginning: &str| {
        request
            .name()
            .get(..beginning.len())
            .is_some_and(|name| name.eq_ignore_ascii_case(beginning.as_bytes()))
    };
    let is_known = |beginning: &str| beginning.ends_with('.') || find(request).is_some();
    MODULES.iter().find(|(beginning, _)| begins(beginning) && is_known(beginning)).map(|(_, what)| *what)
}

/// The command, or the subcommand, that a request would be for.
pub(crate) fn find(request: Request<'_>) -> Option<Absent> {
    let is_asked_for = |absent: &Absent| match absent.name.split_once('|') {
        None => is_word(request.name(), absent.name) && !has_subcommands(absent.name),
        Some((name, part)) => {
            is_word(request.name(), name) && request.get(1).is_some_and(|asked| is_word(asked, part))
        }
    };
    // Without a subcommand the command itself is meant, which takes too few arguments then.
    let is_alone = |absent: &Absent| request.len() == 1 && is_word(request.name(), absent.name);
    all().find(|absent| is_asked_for(absent) || is_alone(absent))
}

fn has_subcommands(name: &str) -> bool {
    all().any(|other| other.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('|')))
}

impl Absent {
    /// Its ACL categories.
    pub fn category_names(&self) -> impl Iterator<Item = &'static str> {
        self.categories.split(',').filter(|name| *name != "-")
    }

    /// The keys of a request, and how each is used.
    pub fn keys_of<'a>(&self, request: Request<'a>) -> Vec<(&'a [u8], Access)> {
        self.keys.split(';').filter(|spec| !spec.is_empty()).flat_map(|spec| keys(spec, request)).collect()
    }
}

/// The keys that one of the places of keys has.
fn keys<'a>(spec: &str, request: Request<'a>) -> Vec<(&'a [u8], Access)> {
    found(spec, request.len() as i64, request).unwrap_or_default()
}

fn found<'a>(spec: &str, length: i64, request: Request<'a>) -> Option<Vec<(&'a [u8], Access)>> {
    let (kind, rest) = spec.split_at_checked(1)?;
    let mut words = rest.split(',');
    let start = words.next()?;
    let mut number = || words.next()?.parse::<i64>().ok();
    let at = |position: i64| usize::try_from(position).ok().and_then(|position| request.get(position));
    let (first, last, step) = match kind {
        "n" => {
            let (start, count_at, first) = (start.parse::<i64>().ok()?, number()?, number()?);
            let (step, count) = (number()?, parse_integer(at(start + count_at)?)?);
            // No request is long enough for more.
            let count = count.clamp(0, length);
            (start + first, start + first + (count - 1) * step, step)
        }
        kind => {
            let first = match kind {
                "k" => position_after(start, number()?, request)?,
                _ => start.parse().ok()?,
            };
            let (last, step, limit) = (number()?, number()?, number()?);
            let last = match last {
                0.. => first + last,
                _ if limit > 1 => first + (length - first) / limit + last,
                _ => length + last,
            };
            (first, last, step)
        }
    };
    let letters = words.next()?;
    let access = Access { reads: letters.contains('r'), writes: letters.contains('w') };
    let positions = (first..=last.min(length - 1)).step_by(usize::try_from(step).ok()?.max(1));
    Some(positions.filter_map(|position| Some((at(position)?, access))).collect())
}

/// The position behind a word. The search starts at `from`; below zero, this counts from the end backwards.
fn position_after(word: &str, from: i64, request: Request<'_>) -> Option<i64> {
    let length = request.len() as i64;
    let is_there = |position: &i64| {
        usize::try_from(*position)
            .ok()
            .and_then(|at| request.get(at))
            .is_some_and(|asked| is_word(asked, word))
    };
    let position = match from {
        0.. => (from..length).find(is_there),
        _ => (1..=length + from).rev().find(is_there),
    };
    position.map(|position| position + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::OwnedRequest;

    fn keys_of(line: &str) -> Vec<String> {
        let words = OwnedRequest::of_line(line.as_bytes()).unwrap();
        let request = words.request().unwrap();
        let keys = find(request).unwrap_or_else(|| panic!("{line}")).keys_of(request);
        let signs = |access: Access| match access {
            Access { reads: true, writes: true } => "rw",
            Access { reads: true, .. } => "r",
            Access { writes: true, .. } => "w",
            _ => "",
        };
        keys.iter().map(|(key, access)| format!("{}:{}", key.escape_ascii(), signs(*access))).collect()
    }

    #[test]
    fn keys_are_found_as_the_table_says() {
        for (line, expected) in [
            ("HSET h f v", &["h:w"][..]),
            ("blmove a b LEFT RIGHT 0", &["a:rw", "b:w"]),
            ("blpop a b 0", &["a:rw", "b:rw"]),
            ("zunion 2 a b", &["a:r", "b:r"]),
            ("zunion 99999999999 a b", &["a:r", "b:r"]),
            ("zunion x a b", &[]),
            ("zunion -1 a b", &[]),
            ("zunionstore t 1 a b", &["t:w", "a:r"]),
            ("migrate h 1 \"\" 0 0 KEYS a b", &[":rw", "a:rw", "b:rw"]),
            ("cluster slots", &[]),
        ] {
            assert_eq!(keys_of(line), expected, "{line}");
        }
    }

    #[test]
    fn a_subcommand_is_found_by_both_its_words() {
        let name = |line: &str| {
            let words = OwnedRequest::of_line(line.as_bytes()).unwrap();
            find(words.request().unwrap()).map(|absent| absent.name)
        };
        assert_eq!(name("CLUSTER slots x"), Some("cluster|slots"));
        assert_eq!(name("cluster"), Some("cluster"));
        assert_eq!(name("cluster nosuch"), None);
        assert_eq!(name("vadd k"), Some("vadd"));
        assert_eq!(name("nosuch"), None);
    }
}
