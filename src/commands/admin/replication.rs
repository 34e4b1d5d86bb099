//! Replication, as far as it is here: SYNC and PSYNC hand out a snapshot, REPLCONF says of which form, and
//! REPLICAOF NO ONE has nothing to end.
//!
//! `redis-cli --rdb` and other tools for backups ask for a snapshot like a replica that wants no changes
//! behind it. Such a client has sent `REPLCONF rdb-only 1`. Its connection ends with the snapshot.

use crate::persistence::Wanted;
use crate::resp::number::parse_integer;
use crate::resp::{Reply, Request, words};
use crate::session::Session;

use crate::commands::args::{self, is_word};
use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::facts::{
    Argument, Arity, Command, Context, Deprecated, Flags, Group, Reach, Result, Run,
};

pub(in crate::commands) const COMMANDS: &[Command] = &[PSYNC, REPLCONF, REPLICAOF, SLAVEOF, SYNC];

/// The facts that the commands of this file share.
const REPLICATION: Command = Command {
    flags: Flags::ADMIN.and(Flags::NOSCRIPT),
    group: Group::SERVER,
    cost: costs::ARGUMENTS,
    ..Command::DEFAULTS
};

/// The most bytes of an address that a replica may say that it has. Redis: `NET_HOST_STR_LEN`.
const ADDRESS_BYTES_MAX: usize = 256;

const SYNC: Command = Command {
    name: "sync",
    flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::NO_ASYNC_LOADING).and(Flags::NO_MULTI),
    summary: "Sends a snapshot of the data and closes the connection, after REPLCONF rdb-only 1.",
    since: "1.0.0",
    example: &[(
        "SYNC",
        "(error) ERR There is no replication. For a snapshot, send REPLCONF rdb-only 1 before SYNC",
    )],
    run: Run::Server(sync),
    ..REPLICATION
};

fn sync(context: &mut Context<'_, '_>, _: Request<'_>, reply: Reply<'_>) -> Result {
    begin_export(context.session)?;
    Ok(reply.nothing())
}

const PSYNC: Command = Command {
    name: "psync",
    arity: Some(Arity::AtLeast(3)),
    summary: "Sends a snapshot of the data, with the ID of the data in front, as SYNC does.",
    since: "2.8.0",
    arguments: &[Argument::string("replicationid"), Argument::integer("offset")],
    run: Run::Server(psync),
    ..SYNC
};

fn psync(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    if request.get(3).is_some_and(|word| is_word(word, "failover")) {
        return Err(Error::fixed("ERR PSYNC FAILOVER can't be sent to a master."));
    }
    args::integer(request.at(2))?;
    begin_export(context.session)?;
    // No change has an offset: there is no stream of changes.
    Ok(reply.simple(&format!("FULLRESYNC {} 0", context.instance.replication_id.get())))
}

/// Has the client get its snapshot once its replies so far are written.
fn begin_export(session: &mut Session) -> Result<()> {
    let wanted = &session.replica;
    if !wanted.wants_snapshot_only {
        return Err(Error::fixed(
            "ERR There is no replication. For a snapshot, send REPLCONF rdb-only 1 before SYNC",
        ));
    }
    if (wanted.without_data || wanted.without_functions) && !wanted.knows_eof {
        return Err(Error::fixed("ERR Filtered replica requires EOF capability"));
    }
    tracing::info!("Replica {} asks for synchronization", session.client.address);
    session.export = Some(Wanted { data: !wanted.without_data, functions: !wanted.without_functions });
    session.is_closing = true;
    Ok(())
}

const REPLCONF: Command = Command {
    name: "replconf",
    arity: Some(Arity::AtLeast(1)),
    flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE).and(Flags::ALLOW_BUSY),
    summary: "Sets what a later SYNC or PSYNC of the client sends.",
    since: "3.0.0",
    complexity: "O(1)",
    is_system: true,
    example: &[
        ("REPLCONF rdb-only 1", "OK"),
        ("REPLCONF NOSUCH 1", "(error) ERR Unrecognized REPLCONF option: NOSUCH"),
    ],
    run: Run::Session(replconf),
    ..REPLICATION
};

fn replconf(session: &mut Session, request: Request<'_>, reply: Reply<'_>) -> Result {
    if request.len().is_multiple_of(2) {
        return Err(Error::SYNTAX);
    }
    let wanted = &mut session.replica;
    for position in (1..request.len()).step_by(2) {
        let (option, value) = (request.at(position), request.at(position + 1));
        if is_word(option, "listening-port") {
            args::integer(value)?;
        } else if is_word(option, "ip-address") {
            if value.len() >= ADDRESS_BYTES_MAX {
                let bytes = value.len();
                return Err(Error::text(format!(
                    "ERR REPLCONF ip-address provided by replica instance is too long: {bytes} bytes"
                )));
            }
        } else if is_word(option, "capa") {
            // What else it understands has no effect here.
            wanted.knows_eof |= is_word(value, "eof");
        } else if is_word(option, "ack") || is_word(option, "getack") {
            // Replicas and primaries send these, and get no reply.
            return Ok(reply.nothing());
        } else if is_word(option, "rdb-only") {
            wanted.wants_snapshot_only = match args::integer(value)? {
                0 => false,
                1 => true,
                _ => return Err(Error::fixed("ERR value is out of range, value must between 0 and 1")),
            };
        } else if is_word(option, "rdb-filter-only") {
            let parts = words(value).ok_or(Error::fixed("ERR Missing rdb-filter-only values"))?;
            (wanted.without_data, wanted.without_functions) = (true, true);
            for part in &parts {
                if !is_word(part, "functions") {
                    return Err(Error::bytes(
                        [b"ERR Unsupported rdb-filter-only option: ", &part[..]].concat(),
                    ));
                }
                wanted.without_functions = false;
            }
        } else {
            return Err(Error::bytes([b"ERR Unrecognized REPLCONF option: ", option].concat()));
        }
    }
    Ok(reply.ok())
}

const REPLICAOF: Command = Command {
    name: "replicaof",
    flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::NO_ASYNC_LOADING).and(Flags::STALE),
    summary: "Makes the server a primary, with NO ONE: it always is one. It cannot be made a replica.",
    since: "5.0.0",
    complexity: "O(1)",
    arguments: &[Argument::one_of(
        "args",
        &[
            Argument::block("host-port", &[Argument::string("host"), Argument::integer("port")]),
            Argument::block("no-one", &Argument::words(["NO", "ONE"])),
        ],
    )],
    example: &[("REPLICAOF NO ONE", "OK")],
    reach: Reach::Process,
    run: Run::Server(replicaof),
    ..REPLICATION
};

fn replicaof(_: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    if is_word(request.at(1), "no") && is_word(request.at(2), "one") {
        return Ok(reply.ok());
    }
    match parse_integer(request.at(2)) {
        Some(0..=65535) => Err(Error::fixed(
            "ERR There is no replication: this server cannot become a replica, only REPLICAOF NO ONE is known",
        )),
        _ => Err(Error::fixed("ERR Invalid master port")),
    }
}

const SLAVEOF: Command = Command {
    name: "slaveof",
    since: "1.0.0",
    deprecated: Some(Deprecated { since: "5.0.0", replaced_by: "`REPLICAOF`" }),
    example: &[("SLAVEOF NO ONE", "OK")],
    ..REPLICAOF
};
