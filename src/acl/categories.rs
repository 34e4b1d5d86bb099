//! The categories of commands, by which rules such as `+@read` allow them.

use crate::flag_set::flag_set;

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

impl Categories {
    /// The category of a name without its `@`, in any case.
    pub fn of_name(name: &[u8]) -> Option<Categories> {
        let is_its_name = |known: &&str| known.as_bytes()[1..].eq_ignore_ascii_case(name);
        Categories::NAMES.iter().position(is_its_name).map(Categories::numbered)
    }
}
