//! A client in one line: what CLIENT LIST, ACL LOG and log lines say of it.

use std::fmt::Write;

use super::{Address, Client, Profile};
use crate::acl;
use crate::excerpt::excerpt;
use crate::resp::Request;

/// One line of CLIENT LIST, with the fields of Redis 8.6 in its order, for a client that has
/// been idle for `idle_s` seconds, or whose `request` is being executed.
pub(crate) fn describe(client: &Client, idle_s: u64, request: Option<Request<'_>>) -> String {
    line(client, idle_s, request, |text| String::from_utf8_lossy(text).into_owned())
}

/// The same without its end, and with long names cut, for logs and records.
pub(crate) fn describe_briefly(client: &Client) -> String {
    let mut line = line(client, 0, None, |text| String::from_utf8_lossy(&excerpt(text)).into_owned());
    line.truncate(line.trim_end().len());
    line
}

/// A line in which the client's names are as `text` makes them.
fn line(
    client: &Client,
    idle_s: u64,
    request: Option<Request<'_>>,
    text: impl Fn(&[u8]) -> String,
) -> String {
    let profile = client.profile.lock().clone();
    let flags = flags(client, &profile);
    let [channels, patterns, shard_channels] = profile.state.subscriptions;
    let (mut input, output) = (client.footprint.input(), client.output());
    let mut memory_bytes = client.footprint.bytes();
    if let Some(request) = request {
        // A connection shows nothing of a request that is executed as soon as it is there.
        input.query_bytes = request.bytes() + "\r\n".len();
        input.argument_bytes = request.from(0).map(<[u8]>::len).sum();
        memory_bytes += input.query_bytes + input.argument_bytes;
    }
    // Redis has a fixed buffer of this size for each client, and a list only for what exceeds it.
    let is_listed = output.bytes > Client::FREE_OUTPUT_BYTES;
    let (listed_pieces, listed_bytes) = if is_listed { (output.pieces, output.memory_bytes) } else { (0, 0) };
    let mut line = String::new();
    let _ = writeln!(
        line,
        "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={flags} db={} sub={channels} \
         psub={patterns} ssub={shard_channels} multi={} watch={} qbuf={} qbuf-free={} argv-mem={} \
         multi-mem={} rbs=0 rbp=0 obl={} oll={listed_pieces} omem={listed_bytes} tot-mem={} events={} cmd={} \
         user={} redir={} resp={} lib-name={} lib-ver={} io-thread=0 tot-net-in={} \
         tot-net-out={} tot-cmds={}",
        client.id,
        client.address,
        client.local_address,
        client.descriptor,
        text(&profile.name),
        client.connected_at.elapsed().as_secs(),
        idle_s,
        profile.state.database,
        profile.state.queued.map_or(-1, |queued| queued as i64),
        profile.state.watched,
        input.query_bytes,
        input.query_free_bytes,
        input.argument_bytes,
        input.queued_bytes,
        output.bytes.min(Client::FREE_OUTPUT_BYTES),
        memory_bytes,
        if output.bytes > 0 { "rw" } else { "r" },
        profile.state.last_command,
        text(profile.user.as_ref().map_or(acl::DEFAULT, |user| user.name())),
        profile.tracking.map_or(-1, |tracked| tracked.redirect as i64),
        profile.state.protocol.number(),
        text(&profile.lib_name),
        text(&profile.lib_version),
        client.traffic.input_bytes.get(),
        client.traffic.output_bytes.get(),
        client.traffic.commands.get(),
    );
    line
}

/// The letters for a client's state in CLIENT LIST (`flags`).
pub(crate) fn flags(client: &Client, profile: &Profile) -> String {
    let mut flags = String::new();
    if profile.is_monitor {
        flags.push('O');
    }
    if profile.state.subscriptions != [0; 3] {
        flags.push('P');
    }
    if profile.state.queued.is_some() {
        flags.push('x');
    }
    if client.is_blocked() {
        flags.push('b');
    }
    if let Some(tracked) = profile.tracking {
        flags.push('t');
        flags.extend(tracked.is_broken.then_some('R'));
        flags.extend(tracked.has_prefixes.then_some('B'));
    }
    if matches!(client.address, Address::Unix(_)) {
        flags.push('U');
    }
    if profile.is_kept_from_eviction {
        flags.push('e');
    }
    if profile.state.leaves_keys_untouched {
        flags.push('T');
    }
    if flags.is_empty() {
        flags.push('N');
    }
    flags
}
