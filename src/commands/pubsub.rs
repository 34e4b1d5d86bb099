//! Channels: SUBSCRIBE, PUBLISH, PUBSUB and their variants.

use std::iter::once;

use super::costs;
use crate::glob::{REGISTERED_BYTES_MAX, TooLong};
use crate::instance::Instance;
use crate::pubsub::ChannelKind;
use crate::resp::{Reply, Request, Sent};
use crate::session::{Replies, Session};

use super::error::Error;
use super::execution::permission::check_channels;
use super::facts::{
    Argument, Categories, Channels, Command, Context, Flags, Group, KeyFlags, KeySpec, Result, Run, Traits,
};

pub(super) const COMMANDS: &[Command] =
    &[PSUBSCRIBE, PUBLISH, PUBSUB, PUNSUBSCRIBE, SPUBLISH, SSUBSCRIBE, SUBSCRIBE, SUNSUBSCRIBE, UNSUBSCRIBE];

/// The facts that most commands of this file share.
const CHANNEL: Command = Command {
    flags: Flags::PUBSUB.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE),
    categories: Categories::PUBSUB,
    group: Group::PUBSUB,
    cost: costs::ARGUMENTS,
    ..Command::DEFAULTS
};

/// The flags of the commands that subscribe: a subscription takes memory.
const SUBSCRIBES: Flags = CHANNEL.flags.and(Flags::DENYOOM);

const SUBSCRIBE: Command = Command {
    name: "subscribe",
    flags: SUBSCRIBES,
    channels: Channels::ALL,
    traits: Traits::LISTENING,
    summary: "Subscribes to channels.",
    since: "2.0.0",
    complexity: "O(N) where N is the number of channels to subscribe to.",
    arguments: &[Argument::string("channel").multiple()],
    example: &[("SUBSCRIBE mychannel", "[\"subscribe\", \"mychannel\", (integer) 1]")],
    run: Run::Server(subscribe),
    ..CHANNEL
};

fn subscribe(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    listen(context, ChannelKind::Channel, "subscribe", request, reply)
}

const PSUBSCRIBE: Command = Command {
    name: "psubscribe",
    flags: SUBSCRIBES,
    channels: Channels::PATTERNS,
    traits: Traits::LISTENING,
    summary: "Subscribes to all channels whose names match patterns.",
    since: "2.0.0",
    complexity: "O(N) where N is the number of patterns to subscribe to.",
    arguments: &[Argument::pattern("pattern").multiple()],
    example: &[("PSUBSCRIBE news.*", "[\"psubscribe\", \"news.*\", (integer) 1]")],
    run: Run::Server(psubscribe),
    ..CHANNEL
};

fn psubscribe(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    if request.from(1).any(|pattern| pattern.len() > REGISTERED_BYTES_MAX) {
        return Err(TooLong.into());
    }
    listen(context, ChannelKind::Pattern, "psubscribe", request, reply)
}

const SSUBSCRIBE: Command = Command {
    name: "ssubscribe",
    flags: SUBSCRIBES,
    keys: &[KeySpec::every(1, KeyFlags::NOT_KEY)],
    channels: Channels::ALL,
    traits: Traits::LISTENING,
    summary: "Subscribes to sharded channels.",
    since: "7.0.0",
    complexity: "O(N) where N is the number of shard channels to subscribe to.",
    arguments: &[Argument::string("shardchannel").multiple()],
    example: &[("SSUBSCRIBE orders", "[\"ssubscribe\", \"orders\", (integer) 1]")],
    run: Run::Server(ssubscribe),
    ..CHANNEL
};

fn ssubscribe(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    if context.session.may_not_wait {
        // Redis refuses it in a transaction, unlike SUBSCRIBE and PSUBSCRIBE.
        return Err(Error::fixed("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client"));
    }
    listen(context, ChannelKind::Shard, "ssubscribe", request, reply)
}

fn listen(
    context: &mut Context<'_, '_>,
    kind: ChannelKind,
    verb: &str,
    request: Request<'_>,
    reply: Reply<'_>,
) -> Result {
    let session = &mut *context.session;
    let sent = reply.each_of(request.from(1), |name, reply| {
        let is_new = session.subscriptions.add(kind, name);
        let sent = confirm(session, verb, Some(name), session.subscriptions.told(kind), reply);
        // The whole request was judged before the first name. The user may have been changed since.
        let may = || {
            let user = &session.user;
            user.is_unrestricted() || check_channels(&user.grants(), once(name), kind == ChannelKind::Pattern)
        };
        if is_new && !context.instance.pubsub.listen(kind, name, &session.client, may) {
            // As if the user had been changed a moment later.
            session.is_closing = true;
        }
        sent
    });
    context.session.subscriptions_changed();
    Ok(sent)
}

/// Confirms one subscription that began or ended. A confirmation is a push: it is sent as well where the
/// client wants no replies, and the reply that is written here will be cut off.
fn confirm(session: &mut Session, verb: &str, name: Option<&[u8]>, left: usize, reply: Reply<'_>) -> Sent {
    if session.replies != Replies::On {
        let mut push = Vec::new();
        let _: Sent = write_change(verb, name, left, Reply::new(&mut push, reply.protocol()));
        match session.may_not_wait {
            false => session.client.send(&push),
            true => session.outbox().add_own(push),
        }
    }
    write_change(verb, name, left, reply)
}

fn write_change(verb: &str, name: Option<&[u8]>, left: usize, reply: Reply<'_>) -> Sent {
    reply.push_of(0..3, |part, reply| match part {
        0 => reply.bulk(verb.as_bytes()),
        1 => reply.bulk_or_nil(name),
        _ => reply.count(left),
    })
}

const UNSUBSCRIBE: Command = Command {
    name: "unsubscribe",
    traits: Traits::LISTENING,
    summary: "Unsubscribes from channels, or from all of them.",
    since: "2.0.0",
    complexity: "O(N) where N is the number of channels to unsubscribe.",
    arguments: &[Argument::string("channel").optional().multiple()],
    example: &[("UNSUBSCRIBE", "[\"unsubscribe\", (nil), (integer) 0]")],
    run: Run::Server(unsubscribe),
    ..CHANNEL
};

fn unsubscribe(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    end_listening(context, ChannelKind::Channel, "unsubscribe", request, reply)
}

const PUNSUBSCRIBE: Command = Command {
    name: "punsubscribe",
    traits: Traits::LISTENING,
    summary: "Unsubscribes from patterns, or from all of them.",
    since: "2.0.0",
    complexity: "O(N) where N is the number of patterns to unsubscribe.",
    arguments: &[Argument::pattern("pattern").optional().multiple()],
    example: &[("PUNSUBSCRIBE", "[\"punsubscribe\", (nil), (integer) 0]")],
    run: Run::Server(punsubscribe),
    ..CHANNEL
};

fn punsubscribe(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    end_listening(context, ChannelKind::Pattern, "punsubscribe", request, reply)
}

const SUNSUBSCRIBE: Command = Command {
    name: "sunsubscribe",
    keys: &[KeySpec::every(1, KeyFlags::NOT_KEY)],
    traits: Traits::LISTENING,
    summary: "Unsubscribes from sharded channels, or from all of them.",
    since: "7.0.0",
    complexity: "O(N) where N is the number of shard channels to unsubscribe.",
    arguments: &[Argument::string("shardchannel").optional().multiple()],
    example: &[("SUNSUBSCRIBE", "[\"sunsubscribe\", (nil), (integer) 0]")],
    run: Run::Server(sunsubscribe),
    ..CHANNEL
};

fn sunsubscribe(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    end_listening(context, ChannelKind::Shard, "sunsubscribe", request, reply)
}

fn end_listening(
    context: &mut Context<'_, '_>,
    kind: ChannelKind,
    verb: &str,
    request: Request<'_>,
    reply: Reply<'_>,
) -> Result {
    let session = &mut *context.session;
    let all: Vec<Box<[u8]>> = session.subscriptions.names(kind).map(Box::from).collect();
    let names: Vec<&[u8]> = match request.len() {
        1 => all.iter().map(|name| &**name).collect(),
        _ => request.from(1).collect(),
    };
    let sent = if names.is_empty() {
        confirm(session, verb, None, session.subscriptions.told(kind), reply)
    } else {
        reply.each_of(names.into_iter(), |name, reply| {
            context.instance.pubsub.unsubscribe(kind, name, &session.client, &mut session.subscriptions);
            confirm(session, verb, Some(name), session.subscriptions.told(kind), reply)
        })
    };
    context.session.subscriptions_changed();
    Ok(sent)
}

const PUBLISH: Command = Command {
    name: "publish",
    flags: Flags::PUBSUB.and(Flags::LOADING).and(Flags::STALE).and(Flags::FAST),
    channels: Channels::FIRST,
    summary: "Sends a message to the subscribers of a channel; returns how many received it.",
    since: "2.0.0",
    complexity: "O(N+M) where N is the number of clients subscribed to the receiving channel and M is the total number of subscribed patterns (by any client).",
    arguments: &[Argument::string("channel"), Argument::string("message")],
    example: &[("PUBLISH mychannel Hello", "(integer) 0")],
    may_replicate: true,
    run: Run::Message(publish),
    ..CHANNEL
};

fn publish(instance: &Instance, session: &mut Session, request: Request<'_>, reply: Reply<'_>) -> Result {
    Ok(reply.count(instance.publish(session, ChannelKind::Channel, request.at(1), request.at(2))))
}

const SPUBLISH: Command = Command {
    name: "spublish",
    flags: Flags::PUBSUB.and(Flags::LOADING).and(Flags::STALE).and(Flags::FAST),
    keys: &[KeySpec::first(KeyFlags::NOT_KEY)],
    channels: Channels::FIRST,
    summary: "Sends a message to the subscribers of a sharded channel; returns how many received it.",
    since: "7.0.0",
    complexity: "O(N) where N is the number of clients subscribed to the receiving shard channel.",
    arguments: &[Argument::string("shardchannel"), Argument::string("message")],
    example: &[("SPUBLISH orders Hello", "(integer) 0")],
    may_replicate: true,
    run: Run::Message(spublish),
    ..CHANNEL
};

fn spublish(instance: &Instance, session: &mut Session, request: Request<'_>, reply: Reply<'_>) -> Result {
    Ok(reply.count(instance.publish(session, ChannelKind::Shard, request.at(1), request.at(2))))
}

const PUBSUB: Command = Command {
    name: "pubsub",
    group: Group::PUBSUB,
    summary: "Inspects channels and subscriptions.",
    since: "2.8.0",
    complexity: "Depends on subcommand.",
    cost: costs::ARGUMENTS,
    subcommands: &[
        PUBSUB_CHANNELS,
        PUBSUB_HELP,
        PUBSUB_NUMPAT,
        PUBSUB_NUMSUB,
        PUBSUB_SHARDCHANNELS,
        PUBSUB_SHARDNUMSUB,
    ],
    run: Run::Subcommands,
    ..Command::DEFAULTS
};

const PUBSUB_CHANNELS: Command = Command {
    name: "pubsub|channels",
    flags: Flags::PUBSUB.and(Flags::LOADING).and(Flags::STALE),
    summary: "Lists the channels that have subscribers, optionally only names that match a pattern.",
    since: "2.8.0",
    complexity: "O(N) where N is the number of active channels, and assuming constant time pattern matching (relatively short channels and patterns)",
    cost: costs::ALL,
    arguments: &[Argument::pattern("pattern").optional()],
    example: &[("PUBSUB CHANNELS", "[]")],
    run: Run::Server(channels),
    ..CHANNEL
};

fn channels(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    list_channels(context, ChannelKind::Channel, request, reply)
}

const PUBSUB_SHARDCHANNELS: Command = Command {
    name: "pubsub|shardchannels",
    flags: Flags::PUBSUB.and(Flags::LOADING).and(Flags::STALE),
    summary: "Lists the sharded channels that have subscribers, optionally only those matching a pattern.",
    since: "7.0.0",
    complexity: "O(N) where N is the number of active shard channels, and assuming constant time pattern matching (relatively short shard channels).",
    arguments: &[Argument::pattern("pattern").optional()],
    example: &[("PUBSUB SHARDCHANNELS", "[]")],
    run: Run::Server(shard_channels),
    ..CHANNEL
};

fn shard_channels(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    list_channels(context, ChannelKind::Shard, request, reply)
}

fn list_channels(
    context: &mut Context<'_, '_>,
    kind: ChannelKind,
    request: Request<'_>,
    reply: Reply<'_>,
) -> Result {
    Error::check_longest(request, 3)?;
    let names = context.instance.pubsub.names(kind, request.get(2));
    Ok(reply.array_of(names.iter(), |name, reply| reply.bulk(name)))
}

const PUBSUB_NUMSUB: Command = Command {
    name: "pubsub|numsub",
    flags: Flags::PUBSUB.and(Flags::LOADING).and(Flags::STALE),
    summary: "Returns the number of subscribers of each given channel.",
    since: "2.8.0",
    complexity: "O(N) for the NUMSUB subcommand, where N is the number of requested channels",
    arguments: &[Argument::string("channel").optional().multiple()],
    example: &[("PUBSUB NUMSUB mychannel", "[\"mychannel\", (integer) 0]")],
    run: Run::Server(listeners),
    ..CHANNEL
};

fn listeners(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    Ok(count_listeners(context, ChannelKind::Channel, request, reply))
}

const PUBSUB_SHARDNUMSUB: Command = Command {
    name: "pubsub|shardnumsub",
    flags: Flags::PUBSUB.and(Flags::LOADING).and(Flags::STALE),
    summary: "Returns the number of subscribers of each given sharded channel.",
    since: "7.0.0",
    complexity: "O(N) for the SHARDNUMSUB subcommand, where N is the number of requested shard channels",
    arguments: &[Argument::string("shardchannel").optional().multiple()],
    example: &[("PUBSUB SHARDNUMSUB orders", "[\"orders\", (integer) 0]")],
    run: Run::Server(shard_listeners),
    ..CHANNEL
};

fn shard_listeners(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    Ok(count_listeners(context, ChannelKind::Shard, request, reply))
}

fn count_listeners(
    context: &Context<'_, '_>,
    kind: ChannelKind,
    request: Request<'_>,
    reply: Reply<'_>,
) -> Sent {
    let channels = request.from(2);
    let pubsub = &context.instance.pubsub;
    reply.array_of(0..channels.len() * 2, |at, reply| match (request.at(2 + at / 2), at % 2) {
        (channel, 0) => reply.bulk(channel),
        (channel, _) => reply.count(pubsub.listeners(kind, channel)),
    })
}

const PUBSUB_NUMPAT: Command = Command {
    name: "pubsub|numpat",
    flags: Flags::PUBSUB.and(Flags::LOADING).and(Flags::STALE),
    summary: "Returns the number of patterns that have subscribers.",
    since: "2.8.0",
    complexity: "O(1)",
    example: &[("PUBSUB NUMPAT", "(integer) 0")],
    run: Run::Server(patterns),
    ..CHANNEL
};

fn patterns(context: &mut Context<'_, '_>, _: Request<'_>, reply: Reply<'_>) -> Result {
    Ok(reply.count(context.instance.pubsub.count(ChannelKind::Pattern)))
}

const PUBSUB_HELP: Command =
    Command { group: Group::PUBSUB, ..Command::help("pubsub|help", "6.2.0", || &PUBSUB) };
