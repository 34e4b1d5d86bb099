//! What a command is: its facts, its documentation and its handler, side by side in one constant.
//!
//! Everything that is known about a command is derived from here: dispatch, arity errors, keys to lock,
//! COMMAND INFO, DOCS, LIST and GETKEYS, the ACL categories. The facts are those of Redis 7.0, which
//! `tests/it/table.rs` compares; the summaries are our own.

use crate::instance::Instance;
use crate::keyspace::Transaction;
use crate::resp::number::parse_integer;
use crate::resp::{Reply, Request, Sent};
use crate::session::Session;

use super::error::Error;

/// What a handler answers: the reply was written, or this error is to be.
pub type Result<T = Sent> = std::result::Result<T, Error>;

/// One command, or one subcommand.
#[derive(Debug)]
pub struct Command {
    /// In lower case; a subcommand's begins with its command's and a bar, as in `client|kill`.
    pub name: &'static str,
    /// How many arguments it takes, its name (and that of its command) included.
    pub arity: Arity,
    /// What else decides whether it may run. Whether it reads or writes follows from `run`.
    pub flags: Flags,
    /// Where its keys are.
    pub keys: &'static [KeySpec],
    /// What it works on: its keys, or everything.
    pub scope: Scope,
    /// ACL categories beyond those that follow from flags and `run`.
    pub categories: Categories,
    /// Under which heading it is documented.
    pub group: Group,
    /// One sentence.
    pub summary: &'static str,
    /// The version of Redis that had it first.
    pub since: &'static str,
    /// Time it takes, in the usual notation, for people.
    pub complexity: &'static str,
    /// Whether it takes about as long whatever its arguments and its values are. Such a command is only
    /// tallied, and if it names one key and nothing else it runs on the fast path.
    pub is_brief: bool,
    /// Whether it may have others change data, or sends messages: what Redis would have to send its replicas,
    /// beside what [`writes`](Self::writes).
    pub may_replicate: bool,
    /// Since when another should be used, and which.
    pub deprecated: Option<Deprecated>,
    /// Whether it is for the server itself and its developers, not for applications.
    pub is_system: bool,
    /// Hints for clients and proxies.
    pub tips: &'static [&'static str],
    /// What it takes, for people and for their tools.
    pub arguments: &'static [Argument],
    /// Requests and their replies, as redis-cli would print them; a test runs them in their order.
    pub example: &'static [(&'static str, &'static str)],
    /// Its subcommands.
    pub subcommands: &'static [Command],
    /// Which of its arguments others must not see.
    pub secrets: Secrets,
    /// Its handler.
    pub run: Run,
}

impl Command {
    /// What a constant need not say because most commands have none of it. The rest must be said: a test
    /// finds what was forgotten.
    pub const DEFAULTS: Command = Command {
        name: "",
        arity: Arity::Exactly(0),
        flags: Flags::NONE,
        keys: &[],
        scope: Scope::Keys,
        categories: Categories::NONE,
        group: Group::Generic,
        summary: "",
        since: "",
        complexity: "",
        is_brief: false,
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

    /// The name without that of its command.
    pub fn own_name(&self) -> &'static str {
        self.name.rsplit('|').next().unwrap_or(self.name)
    }

    /// The position of the key, for a command that has exactly one.
    #[inline]
    pub fn only_key(&self) -> Option<usize> {
        match self.keys {
            [spec] if spec.is_of_keys() && spec.is_fixed() => Some(spec.first),
            _ => None,
        }
    }

    /// The key of a request that names exactly one: because its command has no other, or takes any number.
    pub fn only_key_in<'a>(&self, request: Request<'a>) -> Option<&'a [u8]> {
        match self.keys {
            [spec] if spec.is_of_keys() && spec.is_one_in(request) => request.get(spec.first),
            _ => None,
        }
    }

    /// The keys of a request, with how each is used. Empty if the request is too short for any.
    pub fn keys_of<'a>(
        &self,
        request: Request<'a>,
    ) -> impl Iterator<Item = (&'a [u8], KeyFlags)> + Clone + use<'a> {
        self.keys.iter().filter(|spec| spec.is_of_keys()).flat_map(move |spec| {
            let flags = spec.variable.map_or(spec.flags, |flags_of| flags_of(request));
            spec.positions(request).map(move |position| (request.at(position), flags))
        })
    }

    /// Whether it needs a transaction over all shards if it is to share it: commands without keys may go over
    /// shards one after the other otherwise.
    pub fn needs_everything(&self) -> bool {
        let goes_over_shards = self.keys.is_empty() && matches!(self.run, Run::Read(_) | Run::Write(_));
        self.scope == Scope::Everything || goes_over_shards
    }

    /// Whether it writes by itself.
    pub fn writes(&self) -> bool {
        matches!(self.run, Run::Write(_)) || self.flags.contains(Flags::WRITE)
    }

    /// Whether it may change data, or send others a message: what Redis would have to send its replicas.
    pub fn replicates(&self) -> bool {
        self.writes() || self.may_replicate
    }

    /// The flags as COMMAND INFO names them, in the order of Redis.
    pub fn flag_names(&self) -> Vec<&'static str> {
        let run = match self.run {
            Run::Write(_) => Some("write"),
            Run::Read(_) => Some("readonly"),
            _ => None,
        };
        let are_movable = self.keys.iter().any(|spec| spec.count_at.is_some());
        run.into_iter().chain(self.flags.names()).chain(are_movable.then_some("movablekeys")).collect()
    }

    /// The ACL categories as COMMAND INFO names them, in the order of Redis.
    pub fn category_names(&self) -> Vec<&'static str> {
        let mut categories = self.categories;
        for (applies, category) in [
            (matches!(self.run, Run::Write(_)), Categories::WRITE),
            (matches!(self.run, Run::Read(_)), Categories::READ),
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

/// Which arguments of a request others must not see (MONITOR, SLOWLOG).
#[derive(Clone, Copy, Debug)]
pub enum Secrets {
    /// None of them.
    None,
    /// Those at the places that this function returns. It finds them as the handler does, and takes what the
    /// handler would refuse for a secret where it may be one.
    At(fn(Request<'_>) -> Vec<usize>),
    /// Those of another request, which begins at this place.
    Of(usize),
}

/// How many arguments a command takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arity {
    /// So many.
    Exactly(usize),
    /// So many or more.
    AtLeast(usize),
}

impl Arity {
    /// Whether a request of so many arguments is right.
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

/// What a transaction for a command must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The shards of its keys.
    Keys,
    /// All shards.
    Everything,
    /// What the commands need that the client has queued, and the keys that it watches.
    Queue,
    /// The shards of its keys, and the turn to run scripts.
    Script,
}

/// A handler, by what it is given: the type is the permission.
#[derive(Clone, Copy)]
pub enum Run {
    /// Reads keys.
    Read(fn(&Transaction<'_>, Request<'_>, Reply<'_>) -> Result),
    /// Writes keys.
    Write(fn(&mut Transaction<'_>, Request<'_>, Reply<'_>) -> Result),
    /// Works on the client's own state.
    Session(fn(&mut Session, Request<'_>, Reply<'_>) -> Result),
    /// Works on the server.
    Server(fn(&mut Context<'_, '_>, Request<'_>, Reply<'_>) -> Result),
    /// Has subcommands only.
    Subcommands,
}

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Run::Read(_) => "Read",
            Run::Write(_) => "Write",
            Run::Session(_) => "Session",
            Run::Server(_) => "Server",
            Run::Subcommands => "Subcommands",
        })
    }
}

/// What a handler that works on the server is given.
#[derive(Debug)]
pub struct Context<'a, 'k> {
    /// The server.
    pub instance: &'a Instance,
    /// The client's state.
    pub session: &'a mut Session,
    /// The shards of the command's scope.
    pub tx: &'a mut Transaction<'k>,
}

impl Context<'_, '_> {
    /// Bytes of memory that are in use, without those of this very command: INFO's `used_memory`.
    pub fn used_memory(&self) -> usize {
        self.instance.used_memory().saturating_sub(self.tx.own_bytes())
    }
}

/// Declares a set of flags with the names that Redis prints for them, in its order.
macro_rules! flag_set {
    ($(#[$about:meta])* $set:ident: $($(#[$flag_about:meta])* $flag:ident = $name:literal,)+) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $set(u32);

        impl $set {
            /// None of them.
            pub const NONE: $set = $set(0);
            flag_set!(@constants $set 0; $($(#[$flag_about])* $flag,)+);
            const NAMES: &[&str] = &[$($name),+];

            /// Both.
            pub const fn and(self, other: $set) -> $set {
                $set(self.0 | other.0)
            }

            /// Whether all of `other` are among these.
            #[inline]
            pub const fn contains(self, other: $set) -> bool {
                self.0 & other.0 == other.0
            }

            /// Their names.
            pub fn names(self) -> impl Iterator<Item = &'static str> + Clone {
                (0..).zip($set::NAMES).filter(move |(bit, _)| self.0 >> bit & 1 == 1).map(|(_, name)| *name)
            }
        }
    };
    (@constants $set:ident $bit:expr; $(#[$about:meta])* $flag:ident, $($rest:tt)*) => {
        $(#[$about])*
        pub const $flag: $set = $set(1 << ($bit));
        flag_set!(@constants $set $bit + 1; $($rest)*);
    };
    (@constants $set:ident $bit:expr;) => {};
}

flag_set! {
    /// What decides whether a command may run.
    Flags:
    /// Writes, although its handler is not of those that do.
    WRITE = "write",
    /// Only reads, although its handler is not of those that do.
    READONLY = "readonly",
    /// Refused while memory is short.
    DENYOOM = "denyoom",
    /// For administrators.
    ADMIN = "admin",
    /// About channels.
    PUBSUB = "pubsub",
    /// Not for scripts.
    NOSCRIPT = "noscript",
    /// May let its client wait.
    BLOCKING = "blocking",
    /// Possible while data is loaded.
    LOADING = "loading",
    /// Possible on a replica that has lost its primary.
    STALE = "stale",
    /// Never slow.
    FAST = "fast",
    /// Not shown by MONITOR.
    SKIP_MONITOR = "skip_monitor",
    /// Not noted by SLOWLOG.
    SKIP_SLOWLOG = "skip_slowlog",
    /// Possible before authentication.
    NO_AUTH = "no_auth",
    /// Possible without keys although it has places for some.
    NO_MANDATORY_KEYS = "no_mandatory_keys",
    /// Not while a copy of the data is being loaded beside it.
    NO_ASYNC_LOADING = "no_async_loading",
    /// Not within a transaction.
    NO_MULTI = "no_multi",
    /// Possible while a script runs too long.
    ALLOW_BUSY = "allow_busy",
}

flag_set! {
    /// ACL categories.
    Categories:
    /// Keys of any type.
    KEYSPACE = "@keyspace",
    /// Reads keys.
    READ = "@read",
    /// Writes keys.
    WRITE = "@write",
    /// Strings.
    STRING = "@string",
    /// Strings as bits.
    BITMAP = "@bitmap",
    /// Channels.
    PUBSUB = "@pubsub",
    /// For administrators.
    ADMIN = "@admin",
    /// Never slow.
    FAST = "@fast",
    /// Perhaps slow.
    SLOW = "@slow",
    /// Lets its client wait.
    BLOCKING = "@blocking",
    /// Able to do harm.
    DANGEROUS = "@dangerous",
    /// The connection's own state.
    CONNECTION = "@connection",
    /// Several commands as one.
    TRANSACTION = "@transaction",
    /// Scripts.
    SCRIPTING = "@scripting",
}

flag_set! {
    /// How a key is used.
    KeyFlags:
    /// Read only.
    RO = "RO",
    /// Read and written.
    RW = "RW",
    /// Overwritten.
    OW = "OW",
    /// Removed.
    RM = "RM",
    /// Not a key, although it is where it says.
    NOT_KEY = "not_key",
    /// Its value is returned or copied.
    ACCESS = "access",
    /// Its value is changed.
    UPDATE = "update",
    /// A value is added where there may be none.
    INSERT = "insert",
    /// It is deleted.
    DELETE = "delete",
    /// The request decides which of these apply.
    VARIABLE_FLAGS = "variable_flags",
}

/// Where keys are in a request: from `first` to `last`, each `step` apart.
#[derive(Debug)]
pub struct KeySpec {
    /// How the keys are used.
    pub flags: KeyFlags,
    /// The first key's position.
    pub first: usize,
    /// The last key's: counted from the first if not negative, from the end of the request otherwise.
    pub last: isize,
    /// The distance between two keys.
    pub step: usize,
    /// The position of the argument that tells how many keys there are, where one does; then `last` says
    /// nothing.
    pub count_at: Option<usize>,
    /// How they are used by one request, where that varies…
    pub variable: Option<fn(Request<'_>) -> KeyFlags>,
    /// … and why.
    pub notes: Option<&'static str>,
}

impl KeySpec {
    /// One key, right after the name.
    pub const fn first(flags: KeyFlags) -> KeySpec {
        KeySpec::range(1, 0, 1, flags)
    }

    /// All arguments are keys, or each `step`-th.
    pub const fn every(step: usize, flags: KeyFlags) -> KeySpec {
        KeySpec::range(1, -1, step, flags)
    }

    /// From one position to another.
    pub const fn range(first: usize, last: isize, step: usize, flags: KeyFlags) -> KeySpec {
        KeySpec { flags, first, last, step, count_at: None, variable: None, notes: None }
    }

    /// As many as the argument at a position says, from the next one on.
    pub const fn counted(count_at: usize, step: usize, flags: KeyFlags) -> KeySpec {
        KeySpec { count_at: Some(count_at), ..KeySpec::range(count_at + 1, 0, step, flags) }
    }

    /// The request decides how the key is used.
    pub const fn variable(self, flags_of: fn(Request<'_>) -> KeyFlags, notes: &'static str) -> KeySpec {
        KeySpec { variable: Some(flags_of), notes: Some(notes), ..self }
    }

    /// Whether what it finds are keys.
    pub const fn is_of_keys(&self) -> bool {
        !self.flags.contains(KeyFlags::NOT_KEY)
    }

    /// Whether it is one position, whatever the request.
    #[inline]
    const fn is_fixed(&self) -> bool {
        self.last == 0 && self.count_at.is_none()
    }

    /// Whether it is one position in a request.
    fn is_one_in(&self, request: Request<'_>) -> bool {
        let end = self.end_among(request.len(), self.told(request));
        end > self.first && end - self.first <= self.step
    }

    /// The positions of the keys in a request.
    #[inline]
    pub fn positions(&self, request: Request<'_>) -> std::iter::StepBy<std::ops::Range<usize>> {
        self.positions_among(request.len(), self.told(request))
    }

    /// How many keys a request tells that there are.
    #[inline]
    fn told(&self, request: Request<'_>) -> usize {
        let told = self.count_at.and_then(|count_at| parse_integer(request.get(count_at)?));
        told.and_then(|count| usize::try_from(count).ok()).unwrap_or(0)
    }

    /// The positions of the keys among so many arguments, if one of these tells that there are `told` keys.
    #[inline]
    pub fn positions_among(
        &self,
        arguments: usize,
        told: usize,
    ) -> std::iter::StepBy<std::ops::Range<usize>> {
        (self.first..self.end_among(arguments, told)).step_by(self.step)
    }

    #[inline]
    fn end_among(&self, arguments: usize, told: usize) -> usize {
        let end = match self.count_at {
            Some(_) => self.first + told.min(arguments) * self.step,
            None if self.last < 0 => arguments.saturating_add_signed(self.last) + 1,
            None => self.first.saturating_add_signed(self.last) + 1,
        };
        end.min(arguments)
    }
}

/// A heading of the documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Keys of any type.
    Generic,
    /// Strings.
    String,
    /// Strings as bits.
    Bitmap,
    /// The connection.
    Connection,
    /// Several commands as one.
    Transactions,
    /// Channels.
    PubSub,
    /// Scripts.
    Scripting,
    /// The server.
    Server,
    /// The cluster.
    Cluster,
}

impl Group {
    /// As COMMAND DOCS prints it.
    pub fn name(self) -> &'static str {
        match self {
            Group::Generic => "generic",
            Group::String => "string",
            Group::Bitmap => "bitmap",
            Group::Connection => "connection",
            Group::Transactions => "transactions",
            Group::PubSub => "pubsub",
            Group::Scripting => "scripting",
            Group::Server => "server",
            Group::Cluster => "cluster",
        }
    }
}

/// Why a command should not be used in new work.
#[derive(Debug)]
pub struct Deprecated {
    /// Since which version of Redis.
    pub since: &'static str,
    /// What to use instead.
    pub replaced_by: &'static str,
}

/// One argument in the documentation.
#[derive(Debug)]
pub struct Argument {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub kind: ArgumentKind,
    /// The word before it, or which it is.
    pub token: Option<&'static str>,
    /// The version of Redis that had it first, if later than the command.
    pub since: Option<&'static str>,
    /// The version of Redis that advised against it.
    pub deprecated_since: Option<&'static str>,
    /// Whether it can be left out.
    pub is_optional: bool,
    /// Whether it can be repeated.
    pub is_multiple: bool,
    /// Whether its token is repeated with it.
    pub repeats_token: bool,
    /// Which of the command's key specifications it belongs to, for a key.
    pub key_spec: usize,
    /// What it consists of, or what it is one of.
    pub arguments: &'static [Argument],
}

/// What an argument is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentKind {
    /// A key.
    Key,
    /// Any bytes.
    String,
    /// A whole number.
    Integer,
    /// A number with a fraction.
    Double,
    /// A moment.
    UnixTime,
    /// A pattern.
    Pattern,
    /// Its token and nothing else.
    PureToken,
    /// One of several.
    OneOf,
    /// Several, one after the other.
    Block,
}

impl ArgumentKind {
    /// As COMMAND DOCS prints it.
    pub fn name(self) -> &'static str {
        match self {
            ArgumentKind::Key => "key",
            ArgumentKind::String => "string",
            ArgumentKind::Integer => "integer",
            ArgumentKind::Double => "double",
            ArgumentKind::UnixTime => "unix-time",
            ArgumentKind::Pattern => "pattern",
            ArgumentKind::PureToken => "pure-token",
            ArgumentKind::OneOf => "oneof",
            ArgumentKind::Block => "block",
        }
    }
}

impl Argument {
    /// The one key, or each of several.
    pub const KEY: Argument = Argument::new("key", ArgumentKind::Key);

    /// An argument that must be there once.
    pub const fn new(name: &'static str, kind: ArgumentKind) -> Argument {
        Argument {
            name,
            kind,
            token: None,
            since: None,
            deprecated_since: None,
            is_optional: false,
            is_multiple: false,
            repeats_token: false,
            key_spec: 0,
            arguments: &[],
        }
    }

    /// Any bytes.
    pub const fn string(name: &'static str) -> Argument {
        Argument::new(name, ArgumentKind::String)
    }

    /// A whole number.
    pub const fn integer(name: &'static str) -> Argument {
        Argument::new(name, ArgumentKind::Integer)
    }

    /// A number with a fraction.
    pub const fn double(name: &'static str) -> Argument {
        Argument::new(name, ArgumentKind::Double)
    }

    /// A moment.
    pub const fn unix_time(name: &'static str) -> Argument {
        Argument::new(name, ArgumentKind::UnixTime)
    }

    /// A pattern.
    pub const fn pattern(name: &'static str) -> Argument {
        Argument::new(name, ArgumentKind::Pattern)
    }

    /// A word that stands for itself.
    pub const fn pure_token(name: &'static str, token: &'static str) -> Argument {
        Argument::new(name, ArgumentKind::PureToken).token(token)
    }

    /// One of several.
    pub const fn one_of(name: &'static str, arguments: &'static [Argument]) -> Argument {
        Argument { arguments, ..Argument::new(name, ArgumentKind::OneOf) }
    }

    /// Several together.
    pub const fn block(name: &'static str, arguments: &'static [Argument]) -> Argument {
        Argument { arguments, ..Argument::new(name, ArgumentKind::Block) }
    }

    /// After this word.
    pub const fn token(self, token: &'static str) -> Argument {
        Argument { token: Some(token), ..self }
    }

    /// Since this version.
    pub const fn since(self, since: &'static str) -> Argument {
        Argument { since: Some(since), ..self }
    }

    /// Deprecated since this version.
    pub const fn deprecated_since(self, since: &'static str) -> Argument {
        Argument { deprecated_since: Some(since), ..self }
    }

    /// Need not be there.
    pub const fn optional(self) -> Argument {
        Argument { is_optional: true, ..self }
    }

    /// May be there several times.
    pub const fn multiple(self) -> Argument {
        Argument { is_multiple: true, ..self }
    }

    /// May be there several times, each after its token.
    pub const fn multiple_token(self) -> Argument {
        Argument { repeats_token: true, ..self }
    }

    /// Belongs to this one of the command's key specifications.
    pub const fn of_spec(self, key_spec: usize) -> Argument {
        Argument { key_spec, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::super::lookup::find;
    use crate::resp::OwnedRequest;

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
        ] {
            let owned = OwnedRequest::of_line(line.as_bytes()).expect(line);
            let request = owned.request().expect(line);
            let command = find(request.name()).expect(line).command;
            assert_eq!(command.only_key_in(request), only.map(str::as_bytes), "{line}");
            let keys: Vec<&[u8]> = command.keys_of(request).map(|(key, _)| key).collect();
            assert_eq!(command.only_key_in(request), (keys.len() == 1).then(|| keys[0]), "{line}");
        }
    }
}
