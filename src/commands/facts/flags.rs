//! The sets of words that describe a command and its keys, with the names that Redis prints for them.

use crate::flag_set::flag_set;

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
    /// Allowed on a node of a cluster to which the slot of its key is being moved.
    ASKING = "asking",
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
    /// Allowed while the client listens to channels and speaks RESP2.
    LISTENING = "listening",
    /// It has an effect in a log, although it changes no data: later requests of the log build on it.
    LOGGED = "logged",
    /// Later requests of a log need the database that it provides: the replay ends where it fails.
    PROVIDES = "provides",
    /// It brings at most as many elements to the list of its key as it has arguments, and so serves no more
    /// clients that wait for one.
    BRINGS_ARGUMENTS = "brings-arguments",
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
    /// A search that finds the keys by this alone may err.
    INCOMPLETE = "incomplete",
    /// The request decides which of these apply.
    VARIABLE_FLAGS = "variable_flags",
}
