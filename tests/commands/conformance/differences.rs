//! The steps to which Keyfast replies otherwise.

/// Steps to which Keyfast replies otherwise, on purpose: the case, the request, and the reply.
pub(super) const DIFFERENT: &[(&str, &str, &str)] = &[
    // Redis forgets a client that breaks the protocol in the second piece of a request: it replies nothing
    // and leaves the connection open. Here the client gets the error that it gets in the first piece.
    (
        "multibulk length over a million",
        "*1\r\n$4\r\nPING\r\n",
        "-ERR Protocol error: expected '$', got '*'\r\n",
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
