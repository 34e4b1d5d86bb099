//! CLUSTER and its relatives, for clients that ask whether the server is a node of a cluster: it is not.
//!
//! The commands have the facts of Redis, whose replies are the same where cluster support is disabled. Only
//! the slot of a key is known without a cluster, as in Valkey 9.

use crc::{CRC_16_XMODEM, Crc, Table};

use crate::keyspace::Transaction;
use crate::resp::{Reply, Request};
use crate::session::Session;

use super::costs;
use super::error::Error;
use super::facts::{Argument, Categories, Command, Deprecated, Flags, Group, KeyFlags, KeySpec, Result, Run};

pub(super) const COMMANDS: &[Command] = &[ASKING, CLUSTER, CLUSTERSCAN, READONLY, READWRITE];

/// The facts that all subcommands share.
const SUBCOMMAND: Command = Command {
    flags: Flags::STALE,
    group: Group::CLUSTER,
    since: "3.0.0",
    complexity: "O(1)",
    cost: costs::ARGUMENTS,
    run: Run::Session(disabled),
    ..Command::DEFAULTS
};

/// The facts of the subcommands that change the cluster.
const CHANGE: Command =
    Command { flags: Flags::ADMIN.and(Flags::STALE).and(Flags::NO_ASYNC_LOADING), ..SUBCOMMAND };

/// … and for those that take several slots,
const CHANGE_SLOTS: Command = Command {
    complexity: "O(N) where N is the total number of hash slot arguments",
    arguments: &[Argument::integer("slot").multiple()],
    ..CHANGE
};

/// … or several ranges of slots.
const CHANGE_RANGES: Command = Command {
    since: "7.0.0",
    complexity: "O(N) where N is the total number of the slots between the start slot and end slot arguments.",
    arguments: &[Argument::block("range", &[Argument::integer("start-slot"), Argument::integer("end-slot")])
        .multiple()],
    ..CHANGE
};

/// The facts of the subcommands about one other node.
const OF_NODE: Command = Command {
    flags: Flags::ADMIN.and(Flags::STALE),
    tips: NONDETERMINISTIC,
    arguments: &[Argument::string("node-id")],
    ..SUBCOMMAND
};

/// The facts of the commands about reading from replicas.
const OF_REPLICA: Command = Command {
    flags: Flags::LOADING.and(Flags::STALE).and(Flags::FAST),
    categories: Categories::CONNECTION,
    ..SUBCOMMAND
};

const NONDETERMINISTIC: &[&str] = &["nondeterministic_output"];

fn disabled(_: &mut Session, _: Request<'_>, _: Reply<'_>) -> Result {
    Err(Error::fixed("ERR This instance has cluster support disabled"))
}

const CLUSTERSCAN: Command = Command {
    name: "clusterscan",
    flags: Flags::NONE,
    keys: &[KeySpec::first(KeyFlags::NOT_KEY)],
    categories: Categories::KEYSPACE,
    summary: "Iterates over the keys of a cluster. Always fails: the server is not part of a cluster.",
    since: "9.1.0",
    complexity: "O(N) where N is the number of elements returned.",
    tips: &["nondeterministic_output", "request_policy:special", "response_policy:special"],
    arguments: &[
        Argument::string("cursor"),
        Argument::pattern("match-pattern").token("MATCH").optional(),
        Argument::integer("count").token("COUNT").optional(),
        Argument::string("type").token("TYPE").optional(),
        Argument::integer("slot").token("SLOT").optional(),
    ],
    example: &[("CLUSTERSCAN 0", "(error) ERR This instance has cluster support disabled")],
    run: Run::Read(scan_disabled),
    ..SUBCOMMAND
};

fn scan_disabled(_: &Transaction<'_>, _: Request<'_>, _: Reply<'_>) -> Result {
    Err(Error::fixed("ERR This instance has cluster support disabled"))
}

const CLUSTER: Command = Command {
    name: "cluster",
    flags: Flags::NONE,
    summary: "Manages a cluster. The server is not part of one: all subcommands but KEYSLOT fail.",
    complexity: "Depends on subcommand.",
    subcommands: &[
        CLUSTER_ADDSLOTS,
        CLUSTER_ADDSLOTSRANGE,
        CLUSTER_BUMPEPOCH,
        CLUSTER_COUNT_FAILURE_REPORTS,
        CLUSTER_COUNTKEYSINSLOT,
        CLUSTER_DELSLOTS,
        CLUSTER_DELSLOTSRANGE,
        CLUSTER_FAILOVER,
        CLUSTER_FLUSHSLOTS,
        CLUSTER_FORGET,
        CLUSTER_GETKEYSINSLOT,
        CLUSTER_HELP,
        CLUSTER_INFO,
        CLUSTER_KEYSLOT,
        CLUSTER_LINKS,
        CLUSTER_MEET,
        CLUSTER_MYID,
        CLUSTER_NODES,
        CLUSTER_REPLICAS,
        CLUSTER_REPLICATE,
        CLUSTER_RESET,
        CLUSTER_SAVECONFIG,
        CLUSTER_SET_CONFIG_EPOCH,
        CLUSTER_SETSLOT,
        CLUSTER_SHARDS,
        CLUSTER_SLAVES,
        CLUSTER_SLOTS,
    ],
    run: Run::Subcommands,
    ..SUBCOMMAND
};

const CLUSTER_ADDSLOTS: Command =
    Command { name: "cluster|addslots", summary: "Assigns slots to this node.", ..CHANGE_SLOTS };

const CLUSTER_ADDSLOTSRANGE: Command = Command {
    name: "cluster|addslotsrange",
    summary: "Assigns ranges of slots to this node.",
    ..CHANGE_RANGES
};

const CLUSTER_BUMPEPOCH: Command = Command {
    name: "cluster|bumpepoch",
    summary: "Increments the configuration epoch of the cluster.",
    tips: NONDETERMINISTIC,
    ..CHANGE
};

const CLUSTER_COUNT_FAILURE_REPORTS: Command = Command {
    name: "cluster|count-failure-reports",
    summary: "Returns the number of failure reports about a node.",
    complexity: "O(N) where N is the number of failure reports",
    ..OF_NODE
};

const CLUSTER_COUNTKEYSINSLOT: Command = Command {
    name: "cluster|countkeysinslot",
    summary: "Returns the number of keys in a slot.",
    arguments: &[Argument::integer("slot")],
    ..SUBCOMMAND
};

const CLUSTER_DELSLOTS: Command =
    Command { name: "cluster|delslots", summary: "Removes slots from this node.", ..CHANGE_SLOTS };

const CLUSTER_DELSLOTSRANGE: Command = Command {
    name: "cluster|delslotsrange",
    summary: "Removes ranges of slots from this node.",
    ..CHANGE_RANGES
};

const CLUSTER_FAILOVER: Command = Command {
    name: "cluster|failover",
    summary: "Makes a replica the primary.",
    arguments: &[Argument::one_of("options", &Argument::words(["FORCE", "TAKEOVER"])).optional()],
    ..CHANGE
};

const CLUSTER_FLUSHSLOTS: Command =
    Command { name: "cluster|flushslots", summary: "Removes all slots from this node.", ..CHANGE };

const CLUSTER_FORGET: Command = Command {
    name: "cluster|forget",
    summary: "Removes a node from the cluster.",
    arguments: &[Argument::string("node-id")],
    ..CHANGE
};

const CLUSTER_GETKEYSINSLOT: Command = Command {
    name: "cluster|getkeysinslot",
    summary: "Returns keys of a slot.",
    complexity: "O(N) where N is the number of requested keys",
    tips: NONDETERMINISTIC,
    arguments: &[Argument::integer("slot"), Argument::integer("count")],
    ..SUBCOMMAND
};

const CLUSTER_HELP: Command = Command {
    name: "cluster|help",
    flags: Flags::LOADING.and(Flags::STALE),
    summary: "Lists the subcommands.",
    since: "5.0.0",
    ..SUBCOMMAND
};

const CLUSTER_INFO: Command = Command {
    name: "cluster|info",
    summary: "Returns the state of the cluster.",
    tips: NONDETERMINISTIC,
    example: &[("CLUSTER INFO", "(error) ERR This instance has cluster support disabled")],
    ..SUBCOMMAND
};

const CLUSTER_KEYSLOT: Command = Command {
    name: "cluster|keyslot",
    summary: "Returns the slot of a key.",
    complexity: "O(N) where N is the number of bytes in the key",
    arguments: &[Argument::string("key")],
    example: &[
        ("CLUSTER KEYSLOT somekey", "(integer) 11058"),
        ("CLUSTER KEYSLOT foo{hash_tag}", "(integer) 2515"),
    ],
    run: Run::Session(keyslot),
    ..SUBCOMMAND
};

fn keyslot(_: &mut Session, request: Request<'_>, reply: Reply<'_>) -> Result {
    Ok(reply.count(slot_of(request.at(2)).into()))
}

/// The slot of a key. Keys with the same text in braces have the same slot.
fn slot_of(key: &[u8]) -> u16 {
    const CHECKSUM: Crc<u16, Table<1>> = Crc::<u16, Table<1>>::new(&CRC_16_XMODEM);
    const SLOTS: u16 = 16_384;
    let tag = || {
        let start = key.iter().position(|byte| *byte == b'{')? + 1;
        let len = key[start..].iter().position(|byte| *byte == b'}')?;
        (len > 0).then(|| &key[start..start + len])
    };
    CHECKSUM.checksum(tag().unwrap_or(key)) % SLOTS
}

const CLUSTER_LINKS: Command = Command {
    name: "cluster|links",
    summary: "Lists the connections to other nodes.",
    since: "7.0.0",
    complexity: "O(N) where N is the total number of Cluster nodes",
    tips: NONDETERMINISTIC,
    ..SUBCOMMAND
};

const CLUSTER_MEET: Command = Command {
    name: "cluster|meet",
    summary: "Adds a node to the cluster.",
    arguments: &[
        Argument::string("ip"),
        Argument::integer("port"),
        Argument::integer("cluster-bus-port").since("4.0.0").optional(),
    ],
    ..CHANGE
};

const CLUSTER_MYID: Command =
    Command { name: "cluster|myid", summary: "Returns the ID of this node.", ..SUBCOMMAND };

const CLUSTER_NODES: Command = Command {
    name: "cluster|nodes",
    summary: "Lists the nodes of the cluster.",
    complexity: "O(N) where N is the total number of Cluster nodes",
    tips: NONDETERMINISTIC,
    ..SUBCOMMAND
};

const CLUSTER_REPLICAS: Command = Command {
    name: "cluster|replicas",
    summary: "Lists the replicas of a node.",
    since: "5.0.0",
    complexity: "O(N) where N is the number of replicas.",
    ..OF_NODE
};

const CLUSTER_REPLICATE: Command = Command {
    name: "cluster|replicate",
    summary: "Makes this node a replica of another.",
    arguments: &[Argument::string("node-id")],
    ..CHANGE
};

const CLUSTER_RESET: Command = Command {
    name: "cluster|reset",
    flags: Flags::ADMIN.and(Flags::NOSCRIPT.and(Flags::STALE)),
    summary: "Removes this node from the cluster.",
    complexity: "O(N) where N is the number of known nodes. The command may execute a FLUSHALL as a side effect.",
    arguments: &[Argument::one_of("reset-type", &Argument::words(["HARD", "SOFT"])).optional()],
    ..SUBCOMMAND
};

const CLUSTER_SAVECONFIG: Command =
    Command { name: "cluster|saveconfig", summary: "Saves the cluster configuration to disk.", ..CHANGE };

const CLUSTER_SET_CONFIG_EPOCH: Command = Command {
    name: "cluster|set-config-epoch",
    summary: "Sets the configuration epoch of this node.",
    arguments: &[Argument::integer("config-epoch")],
    ..CHANGE
};

const CLUSTER_SETSLOT: Command = Command {
    name: "cluster|setslot",
    summary: "Assigns a slot to a node.",
    arguments: &[
        Argument::integer("slot"),
        Argument::one_of(
            "subcommand",
            &[
                Argument::string("importing").shown_as("node-id").token("IMPORTING"),
                Argument::string("migrating").shown_as("node-id").token("MIGRATING"),
                Argument::string("node").shown_as("node-id").token("NODE"),
                Argument::word("STABLE"),
            ],
        ),
    ],
    ..CHANGE
};

const CLUSTER_SHARDS: Command = Command {
    name: "cluster|shards",
    flags: Flags::LOADING.and(Flags::STALE),
    summary: "Lists the shards of the cluster.",
    since: "7.0.0",
    complexity: "O(N) where N is the total number of cluster nodes",
    tips: NONDETERMINISTIC,
    ..SUBCOMMAND
};

const CLUSTER_SLAVES: Command = Command {
    name: "cluster|slaves",
    summary: "Lists the replicas of a node.",
    complexity: "O(N) where N is the number of replicas.",
    deprecated: Some(Deprecated { since: "5.0.0", replaced_by: "`CLUSTER REPLICAS`" }),
    ..OF_NODE
};

const CLUSTER_SLOTS: Command = Command {
    name: "cluster|slots",
    flags: Flags::LOADING.and(Flags::STALE),
    summary: "Lists the slots with their nodes.",
    complexity: "O(N) where N is the total number of Cluster nodes",
    deprecated: Some(Deprecated { since: "7.0.0", replaced_by: "`CLUSTER SHARDS`" }),
    tips: NONDETERMINISTIC,
    ..SUBCOMMAND
};

const ASKING: Command = Command {
    name: "asking",
    flags: Flags::FAST,
    categories: Categories::CONNECTION,
    summary: "Allows the next command to use a slot that is being moved to this node.",
    ..SUBCOMMAND
};

const READONLY: Command =
    Command { name: "readonly", summary: "Allows this connection to read from a replica.", ..OF_REPLICA };

const READWRITE: Command =
    Command { name: "readwrite", summary: "Ends the effect of READONLY.", ..OF_REPLICA };
