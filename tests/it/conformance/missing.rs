//! What the observed conversations use and the server does not have yet.
//!
//! A case ends at the first step that needs any of it, but for those in [`GOES_ON_WITHOUT`].

/// Commands; subcommands after a bar; parameters after a space.
pub(super) const MISSING: &[&str] = &[];

/// Cases of what there is not yet, by the beginnings of their names.
pub(super) const MISSING_CASES: &[(&str, &str)] = &[];

/// Cases of what only newer servers have, and Keyfast has, too.
pub(super) const NEWER_CASES: &[(&str, &[&str])] = &[
    (
        "newer",
        &[
            "bitop of old operations",
            "client kill maxage and friends",
            "client no-touch setinfo",
            "cluster in standalone",
            "list listpack encoding",
            "msetex",
            "set listpack encoding",
            "zrank withscore",
        ],
    ),
    ("newer-redis", &["bitop diff diff1 andor one", "digest"]),
    ("newer-valkey", &["geosearch by polygon", "script show"]),
];

/// Steps to which Keyfast replies otherwise, on purpose: the case, the request, and the reply.
pub(super) const DIFFERENT: &[(&str, &str, &str)] = &[
    // OBJECT ENCODING goes by the size of a list. Redis remembers in how many nodes the list was saved.
    ("restore list two nodes", "*3\r\n$6\r\nOBJECT\r\n$8\r\nENCODING\r\n$1\r\nk\r\n", "$8\r\nlistpack\r\n"),
];

/// Cases whose other steps mean something without the missing ones.
pub(super) const GOES_ON_WITHOUT: &[(&str, &str)] = &[
    ("connection", "client setinfo and friends"),
    ("connection", "config"),
    ("connection", "debug and misc errors"),
];
