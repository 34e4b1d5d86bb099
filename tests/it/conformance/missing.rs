//! What the observed conversations use and the server does not have yet.
//!
//! A case ends at the first step that needs any of it, but for those in [`GOES_ON_WITHOUT`].

/// Commands; subcommands after a bar; parameters after a space.
pub(super) const MISSING: &[&str] = &[
    "config notify-keyspace-events",
    "discard",
    "eval",
    "eval_ro",
    "evalsha",
    "exec",
    "hset",
    "lrange",
    "multi",
    "psubscribe",
    "publish",
    "pubsub",
    "punsubscribe",
    "rpush",
    "sadd",
    "script",
    "sort",
    "spublish",
    "ssubscribe",
    "subscribe",
    "sunsubscribe",
    "unsubscribe",
    "unwatch",
    "watch",
    "xadd",
    "zadd",
];

/// Cases whose other steps mean something without the missing ones.
pub(super) const GOES_ON_WITHOUT: &[(&str, &str)] = &[
    ("connection", "client setinfo and friends"),
    ("connection", "config"),
    ("connection", "debug and misc errors"),
];
