//! The sets of words that describe a command and its keys, with the names that Redis prints for them.

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

            /// The flags of both sets.
            pub const fn and(self, other: $set) -> $set {
                $set(self.0 | other.0)
            }

            /// Whether all of `other` are among these.
            #[inline]
            pub const fn contains(self, other: $set) -> bool {
                self.0 & other.0 == other.0
            }

            /// The names that Redis prints, in its order.
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
    /// Conditions under which a command may run.
    Flags:
    /// Writes, although the type of its handler does not say so.
    WRITE = "write",
    /// Only reads, although the type of its handler does not say so.
    READONLY = "readonly",
    /// Refused while memory is short.
    DENYOOM = "denyoom",
    /// Meant for administrators: also puts it into `@admin` and `@dangerous`.
    ADMIN = "admin",
    /// Publishes messages or subscribes to channels.
    PUBSUB = "pubsub",
    /// Refused in scripts.
    NOSCRIPT = "noscript",
    /// May block its client.
    BLOCKING = "blocking",
    /// Allowed while data is being loaded.
    LOADING = "loading",
    /// Allowed on a replica that has lost its primary.
    STALE = "stale",
    /// Takes constant or logarithmic time.
    FAST = "fast",
    /// Not shown by MONITOR.
    SKIP_MONITOR = "skip_monitor",
    /// Not recorded by SLOWLOG.
    SKIP_SLOWLOG = "skip_slowlog",
    /// Allowed before authentication.
    NO_AUTH = "no_auth",
    /// May have no key at all, although it has places for keys.
    NO_MANDATORY_KEYS = "no_mandatory_keys",
    /// Refused while a replica loads a second copy of the data.
    NO_ASYNC_LOADING = "no_async_loading",
    /// Refused within MULTI.
    NO_MULTI = "no_multi",
    /// Allowed while a script has run for too long.
    ALLOW_BUSY = "allow_busy",
}

flag_set! {
    /// What the server must know of a command, and Redis has no name for.
    Traits:
    /// Runs at once within MULTI, where other commands are queued.
    AT_ONCE = "at-once",
    /// Gives up the client's transaction: it needs no memory even if the queue's commands do.
    GIVES_UP = "gives-up",
    /// Allowed while the client listens to channels and speaks RESP2.
    LISTENING = "listening",
    /// A log may hold it, although it changes no data.
    LOGGED = "logged",
    /// Later requests of a log need what it provides: the replay ends where it fails.
    PROVIDES = "provides",
    /// Changes the client or the libraries in a way that its next run would meet. A transaction over a store
    /// may run again, so it does not take such a command.
    STAYS = "stays",
    /// Health checks use it: it is refused where data cannot be saved.
    HEALTH_CHECK = "health-check",
    /// No fault applies to it: with these commands a client can always log in, and remove faults.
    NEVER_STRUCK = "never-struck",
    /// What CLIENT CACHING has said still holds after its subcommands.
    KEEPS_CACHING = "keeps-caching",
}

flag_set! {
    /// The ACL categories of a command, by which rules such as `+@read` allow it.
    Categories:
    /// Keys of any type.
    KEYSPACE = "@keyspace",
    /// Reads keys and changes none.
    READ = "@read",
    /// Writes or removes keys.
    WRITE = "@write",
    /// Works on sets.
    SET = "@set",
    /// Works on sorted sets.
    SORTEDSET = "@sortedset",
    /// Works on lists.
    LIST = "@list",
    /// Works on hashes.
    HASH = "@hash",
    /// Works on strings.
    STRING = "@string",
    /// Strings as bits.
    BITMAP = "@bitmap",
    /// Works on HyperLogLogs.
    HYPERLOGLOG = "@hyperloglog",
    /// Places on earth.
    GEO = "@geo",
    /// Works on streams.
    STREAM = "@stream",
    /// Publishes messages or subscribes to channels.
    PUBSUB = "@pubsub",
    /// Meant for administrators.
    ADMIN = "@admin",
    /// Takes constant or logarithmic time.
    FAST = "@fast",
    /// All commands that are not in `@fast`.
    SLOW = "@slow",
    /// May block its client.
    BLOCKING = "@blocking",
    /// Able to do damage.
    DANGEROUS = "@dangerous",
    /// The connection's own state.
    CONNECTION = "@connection",
    /// Several commands executed as one.
    TRANSACTION = "@transaction",
    /// Runs scripts or functions, or manages them.
    SCRIPTING = "@scripting",
}

flag_set! {
    /// How a key is used.
    KeyFlags:
    /// Its value is read, and neither changed nor removed.
    RO = "RO",
    /// Read and written.
    RW = "RW",
    /// Its value is overwritten without being read.
    OW = "OW",
    /// The key is removed.
    RM = "RM",
    /// Not a key, although it has a place like one.
    NOT_KEY = "not_key",
    /// The command returns or copies its value.
    ACCESS = "access",
    /// The command changes its value.
    UPDATE = "update",
    /// The command adds a value; there may be none before.
    INSERT = "insert",
    /// The command deletes it.
    DELETE = "delete",
    /// The request decides which of these apply.
    VARIABLE_FLAGS = "variable_flags",
}
