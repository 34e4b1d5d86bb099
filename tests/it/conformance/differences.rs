//! Which of the conversations with newer servers Keyfast holds, and the steps to which it replies otherwise.

/// Cases of what only newer servers have, and Keyfast has, too.
///
/// "geosearch polygon is not here" and "bitop newer is not here" never come: each was observed with the
/// server that lacks what the other one has, and Keyfast has both. Nor does "delex" of Redis, where MSETEX
/// reports `expire` in front of `set`: in "delifeq" of Valkey it is behind it, as here.
pub(super) const NEWER_CASES: &[(&str, &[&str])] = &[
    (
        "newer",
        &[
            "bitop of old operations",
            "client kill maxage and friends",
            "client no-touch setinfo",
            "cluster in standalone",
            "field ttl events",
            "field ttl in multi lua getkeys",
            "field ttl with key commands",
            "fields expire",
            "hexpire and httl",
            "hexpire conditions",
            "hexpire errors",
            "hexpireat and times",
            "hgetdel",
            "hgetex",
            "hpersist and writers",
            "hsetex",
            "list listpack encoding",
            "msetex",
            "resp3 doubles and nan of newer",
            "set listpack encoding",
            "slowlog and object in newer",
            "waitaof",
            "zrank withscore",
        ],
    ),
    (
        "newer-redis",
        &[
            "bitop diff diff1 andor one",
            "digest",
            "restore of payloads of this server",
            "set ifne ifdeq ifdne",
            "xadd and xtrim with reference policies",
            "xadd idempotent producers",
            "xdelex",
            "xreadgroup claim",
        ],
    ),
    (
        "newer-valkey",
        &[
            "bitcount with start only",
            "client filters of valkey",
            "cluster keyslot and scan in standalone",
            "commandlog",
            "delifeq",
            "geosearch by polygon",
            "script show",
            "zscan noscores",
        ],
    ),
];

/// Steps to which Keyfast replies otherwise, on purpose: the case, the request, and the reply.
pub(super) const DIFFERENT: &[(&str, &str, &str)] = &[
    // Texts of script errors are those of Redis, with the SHA1.
    (
        "delifeq",
        "*4\r\n$7\r\nEVAL_RO\r\n$40\r\nreturn redis.call('DELIFEQ',KEYS[1],'x')\r\n$1\r\n1\r\n$1\r\nk\r\n",
        "-ERR Write commands are not allowed from read-only scripts. script: \
         6d34b0d879ca75ebdb283a1fb6dd3a44d5e8baf2, on @user_script:1.\r\n",
    ),
    // OBJECT ENCODING goes by the size of a list. Redis remembers in how many nodes the list was saved.
    ("restore list two nodes", "*3\r\n$6\r\nOBJECT\r\n$8\r\nENCODING\r\n$1\r\nk\r\n", "$8\r\nlistpack\r\n"),
    // The replay starts the server with another threshold: on a busy machine anything may be slow. The case
    // itself sets the default, before it is replayed once more in RESP3.
    (
        "slowlog and object in newer",
        "*3\r\n$6\r\nCONFIG\r\n$3\r\nGET\r\n$23\r\nslowlog-log-slower-than\r\n",
        "*2\r\n$23\r\nslowlog-log-slower-than\r\n$10\r\n3600000000\r\n",
    ),
    (
        "slowlog and object in newer",
        "*3\r\n$6\r\nCONFIG\r\n$3\r\nGET\r\n$23\r\nslowlog-log-slower-than\r\n",
        "%1\r\n$23\r\nslowlog-log-slower-than\r\n$5\r\n10000\r\n",
    ),
    (
        "commandlog",
        "*3\r\n$6\r\nCONFIG\r\n$3\r\nGET\r\n$12\r\ncommandlog-*\r\n",
        concat!(
            "*12\r\n",
            "$32\r\ncommandlog-execution-slower-than\r\n$10\r\n3600000000\r\n",
            "$30\r\ncommandlog-large-reply-max-len\r\n$3\r\n128\r\n",
            "$32\r\ncommandlog-large-request-max-len\r\n$3\r\n128\r\n",
            "$28\r\ncommandlog-reply-larger-than\r\n$7\r\n1048576\r\n",
            "$30\r\ncommandlog-request-larger-than\r\n$7\r\n1048576\r\n",
            "$33\r\ncommandlog-slow-execution-max-len\r\n$3\r\n128\r\n",
        ),
    ),
    (
        "commandlog",
        "*3\r\n$6\r\nCONFIG\r\n$3\r\nGET\r\n$12\r\ncommandlog-*\r\n",
        concat!(
            "%6\r\n",
            "$32\r\ncommandlog-execution-slower-than\r\n$10\r\n3600000000\r\n",
            "$30\r\ncommandlog-large-reply-max-len\r\n$3\r\n128\r\n",
            "$32\r\ncommandlog-large-request-max-len\r\n$3\r\n128\r\n",
            "$28\r\ncommandlog-reply-larger-than\r\n$7\r\n1048576\r\n",
            "$30\r\ncommandlog-request-larger-than\r\n$7\r\n1048576\r\n",
            "$33\r\ncommandlog-slow-execution-max-len\r\n$3\r\n128\r\n",
        ),
    ),
];
