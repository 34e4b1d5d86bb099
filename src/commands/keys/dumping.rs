//! DUMP and RESTORE: a value as a payload that can be taken to another server.
//!
//! A long payload is checked and read before RESTORE locks its key, so other clients wait only until the
//! value is in its place. The same holds for a RESTORE in a transaction, but not in a script.

use std::sync::Arc;
use std::time::Duration;

use crate::dump::strings::Decoder;
use crate::dump::{self, Compressor, DumpError};
use crate::events::EventClass;
use crate::keyspace::fencing::BEYOND_CLOCKS;
use crate::keyspace::{Expiry, Keyspace, Prepared, Transaction};
use crate::resp::{Reply, Request};
use crate::types;
use crate::values::{LONG_TEXT_BYTES, Loaded, STREAM_KIND, STRING_KIND, TypeFacts, Value};

use sha1::{Digest as _, Sha1};

use crate::commands::args::{self, Options, is_word};
use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::facts::{
    Argument, Categories, Command, Flags, Group, KeyFlags, KeySpec, LockUse, Prepares, Result, Run,
};
use crate::commands::fingerprint::Fingerprint;

pub(in crate::commands) const COMMANDS: &[Command] = &[DUMP, RESTORE, RESTORE_ASKING];

const DUMP: Command = Command {
    name: "dump",
    keys: &[KeySpec::first(KeyFlags::RO.and(KeyFlags::ACCESS))],
    categories: Categories::KEYSPACE,
    group: Group::GENERIC,
    summary: "Returns the value of a key as a payload for RESTORE.",
    since: "2.6.0",
    complexity: "O(1) to access the key and additional O(N*M) to serialize it, where N is the number of Redis objects composing the value and M their average size. For small string values the time complexity is thus O(1)+O(1*M) where M is small, so simply O(1).",
    cost: costs::ALL,
    tips: &["nondeterministic_output"],
    arguments: &[Argument::KEY],
    example: &[("DUMP nosuchkey", "(nil)")],
    run: Run::Read(dump),
    ..Command::DEFAULTS
};

fn dump(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let key = request.at(1);
    let fence = tx.fence_of(key);
    let payload = tx.get_any(key).map(|value| dumped(value, fence, tx.keyspace()));
    Ok(reply.bulk_or_nil(payload.as_deref()))
}

/// Makes a payload of a value.
pub(crate) fn payload_of(value: Value<'_>, keyspace: &Keyspace) -> Vec<u8> {
    dumped(value, None, keyspace)
}

/// Makes a payload of a value, as DUMP does, with the fencing number of a lock that has one.
pub(crate) fn dumped(value: Value<'_>, fence: Option<u64>, keyspace: &Keyspace) -> Vec<u8> {
    let (mut payload, limit) = (vec![value.rdb_type()], keyspace.limits().of(value.facts.kind));
    let mut compressor = keyspace.compresses_dumps().then(Compressor::default);
    // A buffer that keeps everything has no errors.
    let _ = value.save(&mut payload, limit, compressor.as_mut());
    dump::append_fence(&mut payload, fence);
    dump::sign(payload)
}

/// The value of a payload.
#[derive(Debug)]
pub(crate) struct Payload {
    facts: &'static TypeFacts,
    bytes: Vec<u8>,
    loaded: Loaded,
    /// The fencing number that it had, if it is a lock with one; 0 if it is not known.
    fence: Option<u64>,
}

impl Payload {
    /// The value, which borrows from this payload.
    pub(crate) fn value(&self) -> Value<'_> {
        Value { facts: self.facts, content: self.loaded.content(&self.bytes) }
    }
}

/// The value of a payload, or why it has none.
type Reading = std::result::Result<Payload, DumpError>;

/// Reads the value of a payload.
///
/// # Errors
///
/// [`DumpError`]
pub(crate) fn read_payload(payload: &[u8], tx: &Transaction<'_>) -> Reading {
    read(payload, tx.keyspace(), tx.value_bytes_max())
}

fn read(payload: &[u8], keyspace: &Keyspace, value_bytes_max: usize) -> Reading {
    let (content, author) = dump::content_of(payload, !keyspace.skips_checksums())?;
    let mut decoder = Decoder::new(content, value_bytes_max);
    let number = decoder.byte().map_err(|_| DumpError::BadFormat)?;
    let rdb_type = author.form(number).ok_or(DumpError::BadFormat)?;
    let facts = types::of_rdb_type(rdb_type).ok_or(DumpError::BadFormat)?;
    let (limit, mut bytes) = (keyspace.limits().of(facts.kind), Vec::new());
    let loaded = (facts.load)(rdb_type, &mut decoder, limit, &mut bytes).map_err(|_| DumpError::BadFormat)?;
    let fence = dump::read_fence(decoder.input)?;
    if fence.is_some_and(|fence| facts.kind != STRING_KIND || fence >= BEYOND_CLOCKS) {
        return Err(DumpError::BadFormat);
    }
    Ok(Payload { facts, bytes, loaded, fence })
}

/// The fingerprint of a value. A stream has consumers besides its entries, and they count.
pub(crate) fn fingerprint_of(value: Value<'_>, keyspace: &Keyspace) -> [u8; 20] {
    match value.facts.kind {
        STREAM_KIND => Sha1::digest(payload_of(value, keyspace)).into(),
        _ => Fingerprint::of(value).bytes(),
    }
}

/// The fingerprint of the value of a payload, which another server has written; `None` if it has none.
pub(crate) fn fingerprint_in(payload: &[u8], keyspace: &Keyspace) -> Option<[u8; 20]> {
    let payload = read(payload, keyspace, keyspace.value_bytes_max()).ok()?;
    Some(fingerprint_of(payload.value(), keyspace))
}

/// A payload of at least this many bytes is read before anything is locked. A shorter one takes a millisecond
/// at most, even if it is compressed.
const LONG_PAYLOAD_BYTES: usize = 16 << 10;

/// Reads a long payload. What stands before it in the request is wrong at times; then RESTORE does not come
/// to the payload, and the time is lost.
fn read_ahead(request: Request<'_>, keyspace: &Keyspace) -> Vec<Prepared> {
    let payload = request.get(3).filter(|payload| payload.len() >= LONG_PAYLOAD_BYTES);
    let Some(payload) = payload.filter(|_| RestoreOptions::parse(request).is_ok()) else { return Vec::new() };
    let reading: Reading = read(payload, keyspace, keyspace.value_bytes_max());
    let long = reading.as_ref().ok().filter(|read| read.facts.kind == STRING_KIND);
    let long = long.map(|read| &*read.bytes).filter(|bytes| bytes.len() >= LONG_TEXT_BYTES);
    let copy = long.map(Prepared::text);
    copy.into_iter().chain([Prepared::value(payload, Arc::new(reading))]).collect()
}

const RESTORE: Command = Command {
    name: "restore",
    flags: Flags::DENYOOM,
    keys: &[KeySpec::first(KeyFlags::OW.and(KeyFlags::UPDATE))],
    categories: Categories::DANGEROUS.and(Categories::KEYSPACE),
    group: Group::GENERIC,
    locks: LockUse::REWRITES,
    summary: "Creates a key from a payload of DUMP.",
    since: "2.6.0",
    complexity: "O(1) to create the new key and additional O(N*M) to reconstruct the serialized value, where N is the number of Redis objects composing the value and M their average size. For small string values the time complexity is thus O(1)+O(1*M) where M is small, so simply O(1). However for sorted set values the complexity is O(N*M*log(N)) because inserting values into sorted sets is O(log(N)).",
    cost: costs::ARGUMENTS,
    arguments: &[
        Argument::KEY,
        Argument::integer("ttl"),
        Argument::string("serialized-value"),
        Argument::word("REPLACE").since("3.0.0").optional(),
        Argument::word("ABSTTL").since("5.0.0").optional(),
        Argument::integer("seconds").token("IDLETIME").since("5.0.0").optional(),
        Argument::integer("frequency").token("FREQ").since("5.0.0").optional(),
    ],
    prepares: Prepares::Values(read_ahead),
    example: &[("RESTORE mykey 0 garbage", "(error) ERR DUMP payload version or checksum are wrong")],
    run: Run::Write(restore),
    ..Command::DEFAULTS
};

const RESTORE_ASKING: Command = Command {
    name: "restore-asking",
    flags: Flags::DENYOOM.and(Flags::ASKING),
    group: Group::SERVER,
    summary: "Creates a key from a payload of DUMP, as RESTORE does: a node of a cluster sends it to another.",
    since: "3.0.0",
    is_system: true,
    example: &[("RESTORE-ASKING mykey 0 garbage", "(error) ERR DUMP payload version or checksum are wrong")],
    ..RESTORE
};

fn restore(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let options = RestoreOptions::parse(request)?;
    let key = request.at(1);
    if tx.is_given_away(key) {
        return Err(Error::fixed("TRYAGAIN MIGRATE is giving this key away"));
    }
    let was_there = tx.is_there(key);
    let replaced = tx.replaced_kind(key);
    if !options.replaces && was_there {
        return Err(Error::fixed("BUSYKEY Target key name already exists."));
    }
    let ttl_ms = args::integer(request.at(2))?;
    if ttl_ms < 0 {
        return Err(Error::fixed("ERR Invalid TTL value, must be >= 0"));
    }
    let reading = tx.prepared_value::<Reading>(request.at(3));
    let reading = reading.unwrap_or_else(|| Arc::new(read_payload(request.at(3), tx)));
    let payload = reading.as_ref().as_ref().map_err(|error| match error {
        DumpError::VersionOrChecksum => Error::fixed("ERR DUMP payload version or checksum are wrong"),
        DumpError::BadFormat => Error::fixed("ERR Bad data format"),
    })?;
    let expiry = match ttl_ms {
        0 => Expiry::Never,
        moment_ms if options.is_moment => Expiry::At(moment_ms.cast_unsigned()),
        // Redis adds without a check: a moment that no integer holds lies in the past.
        delay_ms => Expiry::At(tx.expiry_in_ms(delay_ms).unwrap_or(0).cast_unsigned()),
    };
    if matches!(expiry, Expiry::At(moment_ms) if tx.is_over(moment_ms)) {
        if tx.remove(key) {
            tx.event(EventClass::GENERIC, "del", key);
        }
        tx.count_expired();
        return Ok(reply.ok());
    }
    tx.put_any(key, payload.value(), expiry);
    if let Some(former) = payload.fence {
        tx.give_fence_beyond(key, former);
    }
    tx.set_use(key, options.idle, options.frequency);
    if was_there {
        // Redis deletes the old value first, so the key is new again.
        tx.event(EventClass::NEW, "new", key);
    }
    tx.event(EventClass::GENERIC, "restore", key);
    if let Some(before) = replaced {
        tx.event_replaced(tx.database(), key, before, payload.value().facts.kind);
    }
    Ok(reply.ok())
}

/// The options behind the payload.
#[derive(Default)]
struct RestoreOptions {
    replaces: bool,
    is_moment: bool,
    idle: Option<Duration>,
    frequency: Option<u8>,
}

impl RestoreOptions {
    fn parse(request: Request<'_>) -> Result<RestoreOptions> {
        let mut parsed = RestoreOptions::default();
        let mut options = Options::new(request, 4);
        while let Some(option) = options.next() {
            match option {
                _ if is_word(option, "replace") => parsed.replaces = true,
                _ if is_word(option, "absttl") => parsed.is_moment = true,
                _ if is_word(option, "idletime") && parsed.frequency.is_none() => {
                    let seconds = u64::try_from(args::integer(options.value()?)?)
                        .map_err(|_| Error::fixed("ERR Invalid IDLETIME value, must be >= 0"))?;
                    parsed.idle = Some(Duration::from_secs(seconds));
                }
                _ if is_word(option, "freq") && parsed.idle.is_none() => {
                    let frequency = u8::try_from(args::integer(options.value()?)?)
                        .map_err(|_| Error::fixed("ERR Invalid FREQ value, must be >= 0 and <= 255"))?;
                    parsed.frequency = Some(frequency);
                }
                _ => return Err(Error::SYNTAX),
            }
        }
        Ok(parsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::known;
    use crate::config::Config;
    use crate::instance::{Hooks, Instance};
    use crate::resp::OwnedRequest;
    use crate::types::strings::Text;

    fn instance() -> Instance {
        Instance::new(Config::new(), 1, known(&[]), Hooks::default())
    }

    fn request<'a>(parts: impl Iterator<Item = &'a [u8]>) -> OwnedRequest {
        let mut request = OwnedRequest::default();
        parts.for_each(|part| assert!(request.push(part)));
        request
    }

    /// RESTORE of a string of this number of bytes.
    fn restoring(keyspace: &Keyspace, bytes: usize) -> OwnedRequest {
        keyspace.set_compresses_dumps(false);
        let mut tx = keyspace.begin(0, b"source").expect("nothing is in its way");
        tx.put(b"source", &vec![b'v'; bytes], Expiry::Never);
        let payload = tx.get_any(b"source").map(|value| payload_of(value, keyspace)).expect("it was put");
        request([&b"RESTORE"[..], b"k", b"0", &payload].into_iter())
    }

    #[test]
    fn a_long_payload_is_read_while_another_client_has_the_key() {
        let instance = instance();
        let keyspace = &instance.keyspace;
        for (bytes, is_long) in [(LONG_PAYLOAD_BYTES - 100, false), (LONG_TEXT_BYTES, true)] {
            let request = restoring(keyspace, bytes);
            let request = request.request().expect("a request");
            let prepared = {
                let _others = keyspace.begin_all(0).expect("nothing is in its way");
                read_ahead(request, keyspace)
            };
            let hold = keyspace.hold_many([request.at(1)].into_iter()).expect("nothing is in its way");
            let mut tx = keyspace.begin_on(0, hold, prepared);
            let value = tx.prepared_value::<Reading>(request.at(3));
            assert_eq!(value.is_some(), is_long, "{bytes}");
            let mut out = Vec::new();
            let replied = restore(&mut tx, request, Reply::new(&mut out, crate::resp::Protocol::Resp2));
            assert!(replied.is_ok(), "{out:?}");
            assert_eq!(tx.get::<Text>(b"k").map(|value| value.map(<[u8]>::len)), Ok(Some(bytes)));
            tx.remove(b"k");
        }
    }

    #[test]
    fn what_is_not_read_ahead_is_read_by_the_handler() {
        let instance = instance();
        let whole = restoring(&instance.keyspace, LONG_TEXT_BYTES);
        let whole = whole.request().expect("a request");
        let wrong = request(whole.from(0).chain([&b"NONSENSE"[..]]));
        assert!(read_ahead(wrong.request().expect("a request"), &instance.keyspace).is_empty());
        let mut tx = instance.keyspace.begin(0, whole.at(1)).expect("nothing is in its way");
        let mut out = Vec::new();
        let replied = restore(&mut tx, whole, Reply::new(&mut out, crate::resp::Protocol::Resp2));
        assert!(replied.is_ok() && out == b"+OK\r\n");
    }
}
