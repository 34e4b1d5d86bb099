//! One command: its facts, its documentation and its handler, side by side in one constant.

use crate::instance::Instance;
use crate::keyspace::{Keyspace, Prepared, Transaction};
use crate::lens::LockUse;
use crate::resp::{Reply, Request};
use crate::session::Session;
use crate::values::{Content, Kept, Shape};

use super::argument::Argument;
use super::blocking::Blocking;
use super::concern::{Channels, Code, Concern, OtherDatabase, Reach};
use super::context::{Context, Result};
use super::cost::{Cost, Costs};
use super::flags::{Flags, KeyFlags, Traits};
use super::key_spec::{KeySpec, keys_of};
use crate::acl::Categories;

/// What is made while nothing is locked, where that may take long. The handler gets it from its transaction.
/// Those of a script's commands are made under its locks.
#[derive(Clone, Copy, Debug)]
pub enum Prepares {
    /// Nothing is made.
    Nothing,
    /// Copies of the long arguments, which it stores as strings.
    Texts,
    /// Values, which this function reads from the arguments.
    Values(fn(Request<'_>, &Keyspace) -> Vec<Prepared>),
    /// What it stores at a key: this function derives it from the values of other keys, or from the value
    /// that is there, and gets copies of these.
    Derived(Derive),
}

/// Derives what a request stores.
pub(crate) type Derive = fn(&Transaction<'_>, Request<'_>) -> Result<Derived>;

/// What a request stores at a key, derived from values.
#[derive(Debug, Default)]
pub struct Derived {
    /// The value; `None` if the key is deleted.
    pub value: Option<Kept>,
    /// The reply: its elements, its bytes, or how many elements it has lost.
    pub count: usize,
    /// The elements that the value has lost, if these are drawn.
    pub drawn: Vec<Vec<u8>>,
}

impl Derived {
    /// Bytes of all of it, about.
    pub(crate) fn bytes(&self) -> usize {
        self.value.as_ref().map_or(0, Kept::bytes) + self.drawn.iter().map(Vec::len).sum::<usize>()
    }

    /// The value, if it is large and has this shape.
    pub(crate) fn large<S: Shape>(&self) -> Option<&S> {
        match self.value.as_ref()?.value().content {
            Content::Large(structure) => S::of(structure),
            _ => None,
        }
    }
}

/// One command, or one subcommand.
#[derive(Debug)]
pub struct Command {
    /// In lower case. The name of a subcommand begins with that of its command and a bar: `client|kill`.
    pub name: &'static str,
    /// The number of its arguments, including its name (and that of its command), where it does not follow
    /// from `arguments`.
    pub arity: Option<Arity>,
    /// Further conditions under which it may run. Whether it reads or writes follows from `run`.
    pub flags: Flags,
    /// Where its keys are in a request.
    pub keys: &'static [KeySpec],
    /// The shards that its transaction holds: those of its keys, or all.
    pub scope: Scope,
    /// What a request concerns.
    pub concern: Concern,
    /// How far it reaches, on a server with sandboxes.
    pub reach: Reach,
    /// The other database in which a request uses its last key. A request that names one key uses it in both.
    pub other_database: Option<OtherDatabase>,
    /// The arguments that are channels.
    pub channels: Channels,
    /// The script that a request runs.
    pub code: Code,
    /// What else the server must know of it.
    pub traits: Traits,
    /// What it means for a lock.
    pub locks: LockUse,
    /// ACL categories beyond those that follow from flags and `run`.
    pub categories: Categories,
    /// The heading under which it is documented.
    pub group: Group,
    /// What it does, in one sentence.
    pub summary: &'static str,
    /// The first version of Redis that has it.
    pub since: &'static str,
    /// The time it takes, in the usual notation, for people. Empty where Redis tells none.
    pub complexity: &'static str,
    /// What its requests cost.
    pub cost: Costs,
    /// What is made of its arguments ahead.
    pub prepares: Prepares,
    /// Whether it may run other commands that change data, or publishes messages: Redis would have to send
    /// it to its replicas, like a command that [`writes`](Self::writes).
    pub may_replicate: bool,
    /// If another command should be used instead: which, and since when.
    pub deprecated: Option<Deprecated>,
    /// Whether it serves the server itself and its developers rather than applications.
    pub is_system: bool,
    /// Hints for clients and proxies.
    pub tips: &'static [&'static str],
    /// The arguments it takes, as documentation.
    pub arguments: &'static [Argument],
    /// Requests and their replies, as redis-cli prints them; a test runs them in this order.
    pub example: &'static [(&'static str, &'static str)],
    /// Its subcommands; empty for a command that has none.
    pub subcommands: &'static [Command],
    /// The arguments that other users must not see.
    pub secrets: Secrets,
    /// Its handler, by what the handler may do.
    pub run: Run,
}

impl Command {
    /// The facts that most commands do not have. A constant states all others: a test finds those that are
    /// missing.
    pub const DEFAULTS: Command = Command {
        name: "",
        arity: None,
        flags: Flags::NONE,
        keys: &[],
        scope: Scope::Keys,
        concern: Concern::Values,
        reach: Reach::Sandbox,
        other_database: None,
        channels: Channels::NONE,
        code: Code::None,
        traits: Traits::NONE,
        locks: LockUse::NONE,
        categories: Categories::NONE,
        group: Group::GENERIC,
        summary: "",
        since: "",
        complexity: "",
        cost: Costs::UNSTATED,
        prepares: Prepares::Nothing,
        may_replicate: false,
        deprecated: None,
        is_system: false,
        tips: &[],
        arguments: &[],
        example: &[],
        subcommands: &[],
        secrets: Secrets::None,
        run: Run::Subcommands,
    };

    /// HELP, which lists the subcommands of a command; `name` is its full name, `of` returns the command.
    pub const fn help(name: &'static str, since: &'static str, of: fn() -> &'static Command) -> Command {
        Command {
            name,
            flags: Flags::LOADING.and(Flags::STALE),
            group: Group::SERVER,
            summary: "Lists the subcommands.",
            since,
            complexity: "O(1)",
            cost: Costs::ARGUMENTS,
            run: Run::Help(of),
            ..Command::DEFAULTS
        }
    }

    /// Its name, and what it means for a lock.
    pub fn for_lens(&self) -> (&'static str, LockUse) {
        (self.name, self.locks)
    }

    /// The number of its arguments.
    pub fn arity(&self) -> Arity {
        let names = if self.name.contains('|') { 2 } else { 1 };
        let (words, is_exact) = Argument::length_of(self.arguments);
        match self.arity {
            Some(arity) => arity,
            None if !self.subcommands.is_empty() => Arity::AtLeast(2),
            None if is_exact => Arity::Exactly(names + words),
            None => Arity::AtLeast(names + words),
        }
    }

    /// The name without the name of its command.
    pub fn own_name(&self) -> &'static str {
        self.name.rsplit('|').next().unwrap_or(self.name)
    }

    /// The position of the key, for a command that has exactly one in requests of at most so many arguments.
    #[inline]
    pub fn only_key(&self, arguments_max: usize) -> Option<usize> {
        match self.keys {
            [spec, others @ ..] if spec.is_of_keys() && spec.is_fixed() => {
                others.iter().all(|other| other.is_beyond(arguments_max)).then_some(spec.first)
            }
            _ => None,
        }
    }

    /// The key of a request that names exactly one, whether its command takes one key or several.
    pub fn only_key_in<'a>(&self, request: Request<'a>) -> Option<&'a [u8]> {
        match self.keys {
            [spec] if spec.is_of_keys() => request.get(spec.only_position(request)?),
            [spec, other] if spec.is_of_keys() && other.is_without_word(request) => {
                request.get(spec.only_position(request)?)
            }
            _ => None,
        }
    }

    /// The same for a request of which is known that it names exactly one.
    #[inline]
    pub fn known_only_key_in<'a>(&self, request: Request<'a>) -> Option<&'a [u8]> {
        match self.keys {
            [spec] | [spec, _] => request.get(spec.known_only_position(request)?),
            _ => None,
        }
    }

    /// The keys of a request, with how each is used. Empty if the request is too short for any.
    pub fn keys_of<'a>(
        &self,
        request: Request<'a>,
    ) -> impl Iterator<Item = (&'a [u8], KeyFlags)> + Clone + use<'a> {
        keys_of(self.keys, request)
    }

    /// The cost of a request before its keys are locked.
    #[inline]
    pub(crate) fn cost_before(&self, request: Request<'_>) -> Cost {
        self.cost.before(self.keys, request)
    }

    /// The cost of a request on the values that it names.
    #[inline]
    pub(crate) fn cost_on(&self, tx: &Transaction<'_>, request: Request<'_>) -> Cost {
        self.cost.on(self.keys, tx, request)
    }

    /// The key of the string of which a request may change a part.
    #[inline]
    pub fn key_changed_in<'a>(&self, request: Request<'a>) -> Option<&'a [u8]> {
        if !self.cost.changes_part {
            return None;
        }
        let (key, flags) = self.keys_of(request).next()?;
        (!flags.contains(KeyFlags::RO)).then_some(key)
    }

    /// Whether a transaction that a request shares with others must hold all shards. On its own, a command
    /// without keys may visit the shards one after the other.
    pub fn needs_everything(&self, request: Request<'_>) -> bool {
        let goes_over_shards = self.keys.is_empty() && matches!(self.run, Run::Read(_) | Run::Write(_));
        matches!(self.scope, Scope::Everything | Scope::EverythingInTurn | Scope::Walk)
            || goes_over_shards
            || self.leaves_keys_unnamed(request)
    }

    /// Whether a request uses keys that it does not name. Its transaction must hold all shards.
    pub fn leaves_keys_unnamed(&self, request: Request<'_>) -> bool {
        self.keys.iter().any(|spec| spec.leaves_unnamed_in(request))
    }

    /// Whether it writes by itself.
    pub fn writes(&self) -> bool {
        match self.run {
            Run::Write(_) => true,
            Run::Block(_) => !self.flags.contains(Flags::READONLY),
            _ => self.flags.contains(Flags::WRITE),
        }
    }

    /// Whether it may change data or publish a message: Redis would have to send it to its replicas.
    pub fn replicates(&self) -> bool {
        self.writes() || self.may_replicate
    }

    /// The flags as COMMAND INFO names them, in the order of Redis.
    pub fn flag_names(&self) -> Vec<&'static str> {
        let run = match self.run {
            Run::Write(_) => Some("write"),
            Run::Block(_) if self.writes() => Some("write"),
            Run::Read(_) => Some("readonly"),
            _ => None,
        };
        let are_movable = self.keys.iter().any(|spec| spec.count_at.is_some() || spec.is_searched());
        run.into_iter().chain(self.flags.names()).chain(are_movable.then_some("movablekeys")).collect()
    }

    /// The ACL categories as COMMAND INFO names them, in the order of Redis.
    pub fn category_names(&self) -> Vec<&'static str> {
        let mut categories = self.categories;
        let is_reading_block = matches!(self.run, Run::Block(_)) && !self.writes();
        for (applies, category) in [
            (matches!(self.run, Run::Write(_) | Run::Block(_)) && self.writes(), Categories::WRITE),
            (matches!(self.run, Run::Block(_)), Categories::BLOCKING),
            (matches!(self.run, Run::Read(_)) || is_reading_block, Categories::READ),
            (self.flags.contains(Flags::ADMIN), Categories::ADMIN.and(Categories::DANGEROUS)),
            (self.flags.contains(Flags::FAST), Categories::FAST),
            (!self.flags.contains(Flags::FAST), Categories::SLOW),
        ] {
            if applies {
                categories = categories.and(category);
            }
        }
        categories.names().collect()
    }
}

/// A handler. The type of what it is given is its permission.
#[derive(Clone, Copy)]
pub enum Run {
    /// Reads keys; the transaction it gets cannot write.
    Read(fn(&Transaction<'_>, Request<'_>, Reply<'_>) -> Result),
    /// Reads and writes keys.
    Write(fn(&mut Transaction<'_>, Request<'_>, Reply<'_>) -> Result),
    /// Takes something from a key, or blocks the client until something is there.
    Block(&'static Blocking),
    /// Works on the state of the client's own connection.
    Session(fn(&mut Session, Request<'_>, Reply<'_>) -> Result),
    /// Sends a message to other clients. It uses no key and changes no state, of the server or of the client.
    Message(fn(&Instance, &mut Session, Request<'_>, Reply<'_>) -> Result),
    /// Works on the server, or on keys and the client's state together.
    Server(fn(&mut Context<'_, '_>, Request<'_>, Reply<'_>) -> Result),
    /// Lists the subcommands of this command.
    Help(fn() -> &'static Command),
    /// None: only the command's subcommands have handlers.
    Subcommands,
}

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Run::Read(_) => "Read",
            Run::Write(_) => "Write",
            Run::Block(_) => "Block",
            Run::Session(_) => "Session",
            Run::Message(_) => "Message",
            Run::Server(_) => "Server",
            Run::Help(_) => "Help",
            Run::Subcommands => "Subcommands",
        })
    }
}

/// The arguments of a request that other users must not see (MONITOR, SLOWLOG).
#[derive(Clone, Copy, Debug)]
pub enum Secrets {
    /// None of them.
    None,
    /// Those at the places that this function returns. It finds them as the handler does. Where the handler
    /// would refuse the request, it returns each argument that may be a secret.
    At(fn(Request<'_>) -> Vec<usize>),
    /// The secrets of the request that begins at this place.
    Of(usize),
}

/// The number of arguments a command takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arity {
    /// Exactly this number.
    Exactly(usize),
    /// This number or more.
    AtLeast(usize),
}

impl Arity {
    /// Whether a request may have this number of arguments.
    #[inline]
    pub fn allows(self, arguments: usize) -> bool {
        match self {
            Arity::Exactly(exactly) => arguments == exactly,
            Arity::AtLeast(least) => arguments >= least,
        }
    }

    /// As COMMAND INFO prints it: negative for "or more".
    pub fn number(self) -> i64 {
        match self {
            Arity::Exactly(exactly) => exactly as i64,
            Arity::AtLeast(least) => -(least as i64),
        }
    }
}

/// The shards that a transaction for a command must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The shards of its keys; all shards for a request that does not name all of them.
    Keys,
    /// All shards of the keyspace.
    Everything,
    /// All shards of the keyspace. The command also waits for its turn to run a script.
    EverythingInTurn,
    /// All shards, one after the other. A transaction that a request shares with others holds all of them.
    Walk,
    /// The shards that the client's queued commands need, and those of the keys that it watches.
    Queue,
    /// The shards of its keys. The command also waits for its turn to run a script.
    Script,
}

impl Scope {
    /// Whether the command waits for its turn to run a script.
    pub fn takes_turn(self) -> bool {
        matches!(self, Scope::Script | Scope::EverythingInTurn)
    }
}

/// A heading of the documentation, as COMMAND DOCS prints it. A family may have one of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group(pub &'static str);

impl Group {
    /// Keys of any type.
    pub const GENERIC: Group = Group("generic");
    /// Strings and the numbers in them.
    pub const STRING: Group = Group("string");
    /// Strings as bits.
    pub const BITMAP: Group = Group("bitmap");
    /// HyperLogLogs: approximate counts of distinct elements.
    pub const HYPERLOGLOG: Group = Group("hyperloglog");
    /// Places on earth.
    pub const GEO: Group = Group("geo");
    /// Hashes and their fields.
    pub const HASH: Group = Group("hash");
    /// Lists of strings.
    pub const LIST: Group = Group("list");
    /// Sets of strings.
    pub const SET: Group = Group("set");
    /// Sorted sets: members with scores.
    pub const SORTED_SET: Group = Group("sorted-set");
    /// Streams and consumer groups.
    pub const STREAM: Group = Group("stream");
    /// The connection and its client.
    pub const CONNECTION: Group = Group("connection");
    /// Several commands executed as one.
    pub const TRANSACTIONS: Group = Group("transactions");
    /// Channels and their subscribers.
    pub const PUBSUB: Group = Group("pubsub");
    /// Scripts and libraries of functions.
    pub const SCRIPTING: Group = Group("scripting");
    /// The server as a whole: data on disk, users, configuration, statistics.
    pub const SERVER: Group = Group("server");
    /// The cluster, which the server is not part of.
    pub const CLUSTER: Group = Group("cluster");
}

/// Why new code should not use a command.
#[derive(Debug)]
pub struct Deprecated {
    /// The version of Redis that deprecated it.
    pub since: &'static str,
    /// The command to use instead.
    pub replaced_by: &'static str,
}

#[cfg(test)]
mod tests {
    use super::super::lookup::{find, own_names, resolve};
    use crate::resp::OwnedRequest;

    #[test]
    fn a_request_that_does_not_name_all_its_keys_needs_everything() {
        for (line, keys, needs_everything) in [
            ("SORT l", "l", false),
            ("SORT l BY nosort ALPHA DESC LIMIT 0 1 STORE d", "l d", false),
            ("SORT l GET #", "l", false),
            ("SORT l STORE a GET # STORE d", "l d", false),
            ("SORT l STORE BY STORE w*", "l w*", false),
            ("SORT l BY w* STORE d", "l d", true),
            ("SORT l GET w*->f", "l", true),
            ("SORT_RO l", "l", false),
            ("SORT_RO l BY w*", "l", true),
            ("GET k", "k", false),
            ("DBSIZE", "", true),
        ] {
            let owned = OwnedRequest::of_line(line.as_bytes()).expect(line);
            let request = owned.request().expect(line);
            let command = find(own_names(), request.name()).expect(line).command;
            assert_eq!(command.needs_everything(request), needs_everything, "{line}");
            let named: Vec<&[u8]> = command.keys_of(request).map(|(key, _)| key).collect();
            assert_eq!(named.join(&b' '), keys.as_bytes(), "{line}");
        }
    }

    #[test]
    fn the_only_key_is_one_where_there_are_no_others() {
        for (line, only) in [
            ("GET k", Some("k")),
            ("DEL k", Some("k")),
            ("DEL k l", None),
            ("MSET k v", Some("k")),
            ("MSET k v l w", None),
            ("RENAME k l", None),
            ("EVAL s 1 k l", Some("k")),
            ("EVAL s 2 k l", None),
            ("EVAL s 0 k", None),
            ("EVAL s x k", None),
            ("EVAL s 9 k", Some("k")),
            ("EVAL s 1", None),
            ("GET", None),
            ("PING k", None),
            ("XREAD COUNT 2 STREAMS k 0", Some("k")),
            ("XREAD STREAMS k l 0 0", None),
            ("XREADGROUP GROUP g c STREAMS k >", Some("k")),
            ("XREAD STREAMS", None),
            ("LOCK ACQUIRE k t PX 1 WAIT 1", Some("k")),
            ("LOCK ACQUIRE k t PX 1 ALSO 1 l", None),
            ("LOCK ACQUIRE k ALSO PX 1 AGAIN", Some("k")),
            ("LOCK RELEASE k ALSO", Some("k")),
            ("LOCK RELEASE k t also 2 l m", None),
        ] {
            let owned = OwnedRequest::of_line(line.as_bytes()).expect(line);
            let request = owned.request().expect(line);
            let found = find(own_names(), request.name()).expect(line);
            let command = resolve(found, request).unwrap_or(found).command;
            assert_eq!(command.only_key_in(request), only.map(str::as_bytes), "{line}");
            let keys: Vec<&[u8]> = command.keys_of(request).map(|(key, _)| key).collect();
            assert_eq!(command.only_key_in(request), (keys.len() == 1).then(|| keys[0]), "{line}");
        }
    }
}
