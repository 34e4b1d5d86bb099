//! CLUSTER and what belongs to it, for clients that ask whether the server is a node of a cluster: it is not.
//!
//! The commands have the facts of Redis, whose replies are the same where cluster support is disabled.

use crate::resp::{Reply, Request};
use crate::session::Session;

use super::error::Error;
use super::facts::{Argument, Arity, Categories, Command, Deprecated, Flags, Group, Result, Run};

pub(super) const COMMANDS: &[Command] = &[ASKING, CLUSTER, READONLY, READWRITE];

/// What is the same for all subcommands.
const SUBCOMMAND: Command = Command {
    flags: Flags::STALE,
    group: Group::Cluster,
    since: "3.0.0",
    complexity: "O(1)",
    run: Run::Session(disabled),
    ..Command::DEFAULTS
};

/// Subcommands that change the cluster.
const CHANGE: Flags = Flags::ADMIN.and(Flags::STALE).and(Flags::NO_ASYNC_LOADING);

const NONDETERMINISTIC: &[&str] = &["nondeterministic_output"];

fn disabled(_: &mut Session, _: Request<'_>, _: Reply<'_>) -> Result {
    Err(Error::fixed("ERR This instance has cluster support disabled"))
}

const CLUSTER: Command = Command {
    name: "cluster",
    arity: Arity::AtLeast(2),
    flags: Flags::NONE,
    summary: "Everything about the cluster. The server is not part of one.",
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

const CLUSTER_ADDSLOTS: Command = Command {
    name: "cluster|addslots",
    arity: Arity::AtLeast(3),
    flags: CHANGE,
    summary: "Assigns slots to this node.",
    complexity: "O(N) where N is the total number of hash slot arguments",
    arguments: &[Argument::integer("slot").multiple()],
    ..SUBCOMMAND
};

const CLUSTER_ADDSLOTSRANGE: Command = Command {
    name: "cluster|addslotsrange",
    arity: Arity::AtLeast(4),
    flags: CHANGE,
    summary: "Assigns ranges of slots to this node.",
    since: "7.0.0",
    complexity: "O(N) where N is the total number of the slots between the start slot and end slot arguments.",
    arguments: &[Argument::block(
        "start-slot_end-slot",
        &[Argument::integer("start-slot"), Argument::integer("end-slot")],
    )
    .multiple()],
    ..SUBCOMMAND
};

const CLUSTER_BUMPEPOCH: Command = Command {
    name: "cluster|bumpepoch",
    arity: Arity::Exactly(2),
    flags: CHANGE,
    summary: "Advances the cluster's configuration epoch.",
    tips: NONDETERMINISTIC,
    ..SUBCOMMAND
};

const CLUSTER_COUNT_FAILURE_REPORTS: Command = Command {
    name: "cluster|count-failure-reports",
    arity: Arity::Exactly(3),
    flags: Flags::ADMIN.and(Flags::STALE),
    summary: "Counts the reports that a node has failed.",
    complexity: "O(N) where N is the number of failure reports",
    tips: NONDETERMINISTIC,
    arguments: &[Argument::string("node-id")],
    ..SUBCOMMAND
};

const CLUSTER_COUNTKEYSINSLOT: Command = Command {
    name: "cluster|countkeysinslot",
    arity: Arity::Exactly(3),
    summary: "Counts the keys of a slot.",
    arguments: &[Argument::integer("slot")],
    ..SUBCOMMAND
};

const CLUSTER_DELSLOTS: Command = Command {
    name: "cluster|delslots",
    arity: Arity::AtLeast(3),
    flags: CHANGE,
    summary: "Takes slots from this node.",
    complexity: "O(N) where N is the total number of hash slot arguments",
    arguments: &[Argument::integer("slot").multiple()],
    ..SUBCOMMAND
};

const CLUSTER_DELSLOTSRANGE: Command = Command {
    name: "cluster|delslotsrange",
    arity: Arity::AtLeast(4),
    flags: CHANGE,
    summary: "Takes ranges of slots from this node.",
    since: "7.0.0",
    complexity: "O(N) where N is the total number of the slots between the start slot and end slot arguments.",
    arguments: &[Argument::block(
        "start-slot_end-slot",
        &[Argument::integer("start-slot"), Argument::integer("end-slot")],
    )
    .multiple()],
    ..SUBCOMMAND
};

const CLUSTER_FAILOVER: Command = Command {
    name: "cluster|failover",
    arity: Arity::AtLeast(2),
    flags: CHANGE,
    summary: "Makes a replica the primary.",
    arguments: &[Argument::one_of(
        "options",
        &[Argument::pure_token("force", "FORCE"), Argument::pure_token("takeover", "TAKEOVER")],
    )
    .optional()],
    ..SUBCOMMAND
};

const CLUSTER_FLUSHSLOTS: Command = Command {
    name: "cluster|flushslots",
    arity: Arity::Exactly(2),
    flags: CHANGE,
    summary: "Takes all slots from this node.",
    ..SUBCOMMAND
};

const CLUSTER_FORGET: Command = Command {
    name: "cluster|forget",
    arity: Arity::Exactly(3),
    flags: CHANGE,
    summary: "Removes a node from the cluster.",
    arguments: &[Argument::string("node-id")],
    ..SUBCOMMAND
};

const CLUSTER_GETKEYSINSLOT: Command = Command {
    name: "cluster|getkeysinslot",
    arity: Arity::Exactly(4),
    summary: "Lists keys of a slot.",
    complexity: "O(log(N)) where N is the number of requested keys",
    tips: NONDETERMINISTIC,
    arguments: &[Argument::integer("slot"), Argument::integer("count")],
    ..SUBCOMMAND
};

const CLUSTER_HELP: Command = Command {
    name: "cluster|help",
    arity: Arity::Exactly(2),
    flags: Flags::LOADING.and(Flags::STALE),
    summary: "Lists the subcommands.",
    since: "5.0.0",
    ..SUBCOMMAND
};

const CLUSTER_INFO: Command = Command {
    name: "cluster|info",
    arity: Arity::Exactly(2),
    summary: "Describes the state of the cluster.",
    tips: NONDETERMINISTIC,
    example: &[("CLUSTER INFO", "(error) ERR This instance has cluster support disabled")],
    ..SUBCOMMAND
};

const CLUSTER_KEYSLOT: Command = Command {
    name: "cluster|keyslot",
    arity: Arity::Exactly(3),
    summary: "Returns the slot of a key.",
    complexity: "O(N) where N is the number of bytes in the key",
    arguments: &[Argument::string("key")],
    ..SUBCOMMAND
};

const CLUSTER_LINKS: Command = Command {
    name: "cluster|links",
    arity: Arity::Exactly(2),
    summary: "Lists the connections to other nodes.",
    since: "7.0.0",
    complexity: "O(N) where N is the total number of Cluster nodes",
    tips: NONDETERMINISTIC,
    ..SUBCOMMAND
};

const CLUSTER_MEET: Command = Command {
    name: "cluster|meet",
    arity: Arity::AtLeast(4),
    flags: CHANGE,
    summary: "Adds a node to the cluster.",
    arguments: &[
        Argument::string("ip"),
        Argument::integer("port"),
        Argument::integer("cluster_bus_port").since("4.0.0").optional(),
    ],
    ..SUBCOMMAND
};

const CLUSTER_MYID: Command = Command {
    name: "cluster|myid",
    arity: Arity::Exactly(2),
    summary: "Returns the identifier of this node.",
    ..SUBCOMMAND
};

const CLUSTER_NODES: Command = Command {
    name: "cluster|nodes",
    arity: Arity::Exactly(2),
    summary: "Lists the nodes of the cluster.",
    complexity: "O(N) where N is the total number of Cluster nodes",
    tips: NONDETERMINISTIC,
    ..SUBCOMMAND
};

const CLUSTER_REPLICAS: Command = Command {
    name: "cluster|replicas",
    arity: Arity::Exactly(3),
    flags: Flags::ADMIN.and(Flags::STALE),
    summary: "Lists the replicas of a node.",
    since: "5.0.0",
    tips: NONDETERMINISTIC,
    arguments: &[Argument::string("node-id")],
    ..SUBCOMMAND
};

const CLUSTER_REPLICATE: Command = Command {
    name: "cluster|replicate",
    arity: Arity::Exactly(3),
    flags: CHANGE,
    summary: "Makes this node a replica of another.",
    arguments: &[Argument::string("node-id")],
    ..SUBCOMMAND
};

const CLUSTER_RESET: Command = Command {
    name: "cluster|reset",
    arity: Arity::AtLeast(2),
    flags: Flags::ADMIN.and(Flags::NOSCRIPT.and(Flags::STALE)),
    summary: "Removes this node from the cluster.",
    complexity: "O(N) where N is the number of known nodes. The command may execute a FLUSHALL as a side effect.",
    arguments: &[Argument::one_of(
        "hard_soft",
        &[Argument::pure_token("hard", "HARD"), Argument::pure_token("soft", "SOFT")],
    )
    .optional()],
    ..SUBCOMMAND
};

const CLUSTER_SAVECONFIG: Command = Command {
    name: "cluster|saveconfig",
    arity: Arity::Exactly(2),
    flags: CHANGE,
    summary: "Saves the cluster's configuration.",
    ..SUBCOMMAND
};

const CLUSTER_SET_CONFIG_EPOCH: Command = Command {
    name: "cluster|set-config-epoch",
    arity: Arity::Exactly(3),
    flags: CHANGE,
    summary: "Sets this node's configuration epoch.",
    arguments: &[Argument::integer("config-epoch")],
    ..SUBCOMMAND
};

const CLUSTER_SETSLOT: Command = Command {
    name: "cluster|setslot",
    arity: Arity::AtLeast(4),
    flags: CHANGE,
    summary: "Assigns a slot to a node.",
    arguments: &[
        Argument::integer("slot"),
        Argument::one_of(
            "subcommand",
            &[
                Argument::string("node-id").token("IMPORTING"),
                Argument::string("node-id").token("MIGRATING"),
                Argument::string("node-id").token("NODE"),
                Argument::pure_token("stable", "STABLE"),
            ],
        ),
    ],
    ..SUBCOMMAND
};

const CLUSTER_SHARDS: Command = Command {
    name: "cluster|shards",
    arity: Arity::Exactly(2),
    summary: "Lists the shards of the cluster.",
    since: "7.0.0",
    complexity: "O(N) where N is the total number of cluster nodes",
    tips: NONDETERMINISTIC,
    ..SUBCOMMAND
};

const CLUSTER_SLAVES: Command = Command {
    name: "cluster|slaves",
    arity: Arity::Exactly(3),
    flags: Flags::ADMIN.and(Flags::STALE),
    summary: "Lists the replicas of a node.",
    deprecated: Some(Deprecated { since: "5.0.0", replaced_by: "`CLUSTER REPLICAS`" }),
    tips: NONDETERMINISTIC,
    arguments: &[Argument::string("node-id")],
    ..SUBCOMMAND
};

const CLUSTER_SLOTS: Command = Command {
    name: "cluster|slots",
    arity: Arity::Exactly(2),
    summary: "Lists the slots with their nodes.",
    complexity: "O(N) where N is the total number of Cluster nodes",
    deprecated: Some(Deprecated { since: "7.0.0", replaced_by: "`CLUSTER SHARDS`" }),
    tips: NONDETERMINISTIC,
    ..SUBCOMMAND
};

const ASKING: Command = Command {
    name: "asking",
    arity: Arity::Exactly(1),
    flags: Flags::FAST,
    categories: Categories::CONNECTION,
    summary: "Lets the next command use a slot that is being moved to this node.",
    ..SUBCOMMAND
};

const READONLY: Command = Command {
    name: "readonly",
    arity: Arity::Exactly(1),
    flags: Flags::LOADING.and(Flags::STALE).and(Flags::FAST),
    categories: Categories::CONNECTION,
    summary: "Lets the client read from a replica.",
    ..SUBCOMMAND
};

const READWRITE: Command = Command {
    name: "readwrite",
    arity: Arity::Exactly(1),
    flags: Flags::LOADING.and(Flags::STALE).and(Flags::FAST),
    categories: Categories::CONNECTION,
    summary: "Ends READONLY.",
    ..SUBCOMMAND
};
