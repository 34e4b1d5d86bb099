//! Commands of Redis and Valkey that are not here. Rules about users may name them, so that an ACL file of
//! another server can be used as it is; ACL CAT lists those of Redis 8.6, and ACL DRYRUN judges them.
//!
//! `unsupported.txt` was made from COMMAND INFO of redis-server 8.6.3 and, after an empty line, from that of
//! Valkey 9.1.2. A line is a name, the arity, the ACL categories, and `key` if the first argument is a key,
//! which the command reads and writes.

use crate::instance::Instance;
use crate::resp::Request;

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
    has_key: bool,
}

/// All of them.
pub fn all() -> impl Iterator<Item = Absent> {
    let (redis, valkey) = TABLE.split_once("\n\n").unwrap_or((TABLE, ""));
    let rows = |lines: &'static str, is_of_redis| lines.lines().map(move |line| row(line, is_of_redis));
    rows(redis, true).chain(rows(valkey, false))
}

const TABLE: &str = include_str!("unsupported.txt");

fn row(line: &'static str, is_of_redis: bool) -> Absent {
    let mut words = line.split(' ');
    let mut word = || words.next().unwrap_or_default();
    let (name, arity, categories, has_key) = (word(), word(), word(), word() == "key");
    let number: i64 = arity.parse().unwrap_or_default();
    let count = number.unsigned_abs() as usize;
    let arity = if number < 0 { Arity::AtLeast(count) } else { Arity::Exactly(count) };
    Absent { name, arity, is_of_redis, categories, has_key }
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
    all().find(|absent| match absent.name.split_once('|') {
        None => is_word(request.name(), absent.name),
        Some((name, part)) => {
            is_word(request.name(), name) && request.get(1).is_some_and(|asked| is_word(asked, part))
        }
    })
}

impl Absent {
    /// Its ACL categories.
    pub fn category_names(&self) -> impl Iterator<Item = &'static str> {
        self.categories.split(',').filter(|name| *name != "-")
    }

    /// The key of a request, which it reads and writes.
    pub fn key_of<'a>(&self, request: Request<'a>) -> Option<&'a [u8]> {
        request.get(1).filter(|_| self.has_key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::OwnedRequest;

    #[test]
    fn a_subcommand_is_found_by_both_its_words() {
        let name = |line: &str| {
            let words = OwnedRequest::of_line(line.as_bytes()).unwrap();
            find(words.request().unwrap()).map(|absent| absent.name)
        };
        assert_eq!(name("CLUSTER slot-stats x"), Some("cluster|slot-stats"));
        assert_eq!(name("cluster nosuch"), None);
        assert_eq!(name("cluster"), None);
        assert_eq!(name("vadd k"), Some("vadd"));
        assert_eq!(name("nosuch"), None);
    }
}
