//! The observed conversations, held with a server whose keys live in a store, and where they differ.

use std::process::Command;

use support::store::cluster::{Cluster, Kind};

/// Whether the replies of a case are other ones for keys in a store.
pub(crate) fn differs(group: &str, case: &str) -> bool {
    let mut cases = DIFFERS.iter().filter(|(other, ..)| *other == group).flat_map(|(_, cases, _)| *cases);
    cases.any(|beginning| case.starts_with(beginning))
}

/// The key that a store removes later than in such a case, whose pauses last until it is gone.
pub(crate) fn goes_late(store: &str, group: &str, case: &str) -> Option<&'static str> {
    let mut late = LATE_IN_ETCD.iter().filter(|_| store.starts_with("etcd:"));
    late.find(|(other, name, _)| *other == group && *name == case).map(|(.., key)| *key)
}

/// Cases for which etcd takes longer, since its leases count whole seconds, two at least: the group, the
/// name, and the key. All others are as in PostgreSQL.
const LATE_IN_ETCD: &[(&str, &str, &str)] = &[
    ("setnx", "setnx after expiry", "k"),
    ("expiry", "lazy expiry", "k"),
    ("expiry", "expired keys leave scan and keys", "k"),
    ("transactions", "watch a key that expires", "k"),
    ("hashes", "hash expires", "h"),
    ("lists", "list under key commands", "l"),
    ("sets", "set under key commands", "v"),
    ("sortedsets", "zset under key commands", "z"),
    ("streams", "stream under key commands", "z"),
    ("blocking", "expired list does not serve", "l"),
];

/// Such cases, in any store: the group, the beginnings of their names, and why.
const DIFFERS: &[(&str, &[&str], &str)] = &[
    ("scripting", &["calls and errors", "resp conversion", "eval in multi"], UNDECLARED),
    (
        "scripting-types",
        &[
            "tables of replies",
            "jobs with undeclared keys as BullMQ does",
            "queue scripts as RQ and Celery do",
            "scans in lua",
            "scripts write many types in one go",
        ],
        UNDECLARED,
    ),
    ("dump", &["restore list big element", "dump and restore round trip of large encodings"], UNDECLARED),
    ("newer", &["field ttl with key commands"], UNDECLARED),
    ("newer-redis", &["xreadgroup claim"], UNDECLARED),
    ("sort", &["sort in multi lua events"], UNDECLARED),
    ("streams", &["xclaim", "xinfo stream full", "xinfo consumers with times left out"], UNDECLARED),
    ("blocking", &["blocking in scripts does not block"], UNDECLARED),
    ("keys", &["databases"], DATABASES),
    ("transactions", &["multi with select"], DATABASES),
    ("blocking", &["key becomes a list by swapdb"], DATABASES),
    (
        "sort",
        &["sort by weights", "sort store"],
        "The keys that a pattern makes are not named by the request.",
    ),
    ("hashes", &["hash encoding"], ENCODING),
    ("sets", &["set intset encoding threshold", "sscan"], ENCODING),
    ("sortedsets", &["zset encoding threshold"], ENCODING),
    ("hyperloglog", &["pfadd pfcount"], ENCODING),
    ("dump", &["dump bytes hyperloglog"], ENCODING),
    ("newer", &["set listpack encoding", "hsetex"], ENCODING),
    (
        "dump",
        &["dump bytes string compressed", "dump bytes list compressed", "dump bytes hash compressed"],
        "DUMP does not compress: PostgreSQL compresses long values itself, and etcd has short ones.",
    ),
    ("dump", &["restore options"], "When a key was used last is not stored."),
    ("lists", &["expired events of a list"], EXPIRED),
    (
        "lists",
        &["watch a list"],
        "LTRIM that trims nothing writes nothing to the store, so clients that watch the key hear of nothing.",
    ),
    ("newer", &["field ttl events"], EXPIRED),
    (
        "blocking",
        &[
            "first blocked is first served",
            "one push serves several",
            "blocked on two keys keeps its place",
            "bzpopmin order of clients",
            "pusher pops in the same pipeline",
            "xreadgroup block",
        ],
        "Clients that wait are woken all at once, by each front-end for itself, and the fastest is served.",
    ),
];

const UNDECLARED: &str = "A script uses keys that it has not declared.";
const DATABASES: &str = "A request concerns keys of two databases.";
const ENCODING: &str = "A value is packed anew for each request: OBJECT ENCODING and the order of elements \
                        tell what it would be now.";
const EXPIRED: &str =
    "The event of an expired key comes a tenth of a second later, and not at all if the key was taken again.";

marked!(needs_tools: in_postgres_the_observed_conversations_are_the_same_but_for_what_is_listed);
fn in_postgres_the_observed_conversations_are_the_same_but_for_what_is_listed() {
    the_observed_conversations_are_the_same_but_for_what_is_listed(Kind::Postgres);
}

marked!(needs_tools: in_etcd_the_observed_conversations_are_the_same_but_for_what_is_listed);
fn in_etcd_the_observed_conversations_are_the_same_but_for_what_is_listed() {
    the_observed_conversations_are_the_same_but_for_what_is_listed(Kind::Etcd);
}

fn the_observed_conversations_are_the_same_but_for_what_is_listed(kind: Kind) {
    let Some(cluster) = Cluster::start(kind, "conversations") else { return };
    let store = match &cluster {
        // Each server has a database of its own.
        Cluster::Postgres(postgres) => format!("postgres://keyfast@127.0.0.1:{}", postgres.port(0)),
        Cluster::Etcd(etcd) => etcd.url(),
    };
    let program = std::env::current_exe().expect("this test");
    let output = Command::new(program)
        .args(["conformance::", "--skip", "::needs_tools", "--test-threads", "2"])
        .env("KEYFAST_TEST_STORE", store)
        .output()
        .expect("this test runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
}
