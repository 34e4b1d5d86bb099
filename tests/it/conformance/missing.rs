//! What the observed conversations use and the server does not have yet.
//!
//! A case ends at the first step that needs any of it, but for those in [`GOES_ON_WITHOUT`].

/// Commands; subcommands after a bar; parameters after a space.
pub(super) const MISSING: &[&str] = &["hset", "lrange", "rpush", "sadd", "sort", "xadd", "zadd"];

/// Cases whose other steps mean something without the missing ones.
pub(super) const GOES_ON_WITHOUT: &[(&str, &str)] = &[
    ("connection", "client setinfo and friends"),
    ("connection", "config"),
    ("connection", "debug and misc errors"),
];
