//! DUMP and RESTORE: a value as a payload that can be taken to another server.

use std::time::Duration;

use crate::dump::strings::Decoder;
use crate::dump::{self, Compressor, DumpError};
use crate::events::EventClass;
use crate::keyspace::{Expiry, Transaction};
use crate::resp::{Reply, Request};
use crate::types;
use crate::values::{TypeFacts, Value};

use super::args::{self, Options, is_word};
use super::error::Error;
use super::facts::{Argument, Arity, Categories, Command, Flags, Group, KeyFlags, KeySpec, Result, Run};

pub(super) const COMMANDS: &[Command] = &[DUMP, RESTORE];

const DUMP: Command = Command {
    name: "dump",
    arity: Arity::Exactly(2),
    keys: &[KeySpec::first(KeyFlags::RO.and(KeyFlags::ACCESS))],
    categories: Categories::KEYSPACE,
    group: Group::Generic,
    summary: "Makes a payload of a key's value, for RESTORE.",
    since: "2.6.0",
    complexity: "O(1) to access the key and additional O(N*M) to serialize it, where N is the number of Redis objects composing the value and M their average size. For small string values the time complexity is thus O(1)+O(1*M) where M is small, so simply O(1).",
    tips: &["nondeterministic_output"],
    arguments: &[Argument::KEY],
    example: &[("DUMP nosuchkey", "(nil)")],
    run: Run::Read(dump),
    ..Command::DEFAULTS
};

fn dump(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let payload = tx.get_any(request.at(1)).map(payload_of);
    Ok(reply.bulk_or_nil(payload.as_deref()))
}

/// Makes a payload of a value.
pub(super) fn payload_of(value: Value<'_>) -> Vec<u8> {
    let mut payload = vec![value.rdb_type()];
    value.save(&mut payload, Some(&mut Compressor::default()));
    dump::sign(payload)
}

/// Reads the value of a payload into an empty buffer; returns its type.
fn read_payload(
    payload: &[u8],
    string_bytes_max: usize,
    value: &mut Vec<u8>,
) -> std::result::Result<&'static TypeFacts, DumpError> {
    let mut decoder = Decoder::new(dump::verified(payload)?, string_bytes_max);
    let rdb_type = decoder.byte().map_err(|_| DumpError::BadFormat)?;
    let facts = types::of_rdb_type(rdb_type).ok_or(DumpError::BadFormat)?;
    (facts.load)(rdb_type, &mut decoder, value).map_err(|_| DumpError::BadFormat)?;
    if decoder.input.is_empty() { Ok(facts) } else { Err(DumpError::BadFormat) }
}

const RESTORE: Command = Command {
    name: "restore",
    arity: Arity::AtLeast(4),
    flags: Flags::DENYOOM,
    keys: &[KeySpec::first(KeyFlags::OW.and(KeyFlags::UPDATE))],
    categories: Categories::DANGEROUS.and(Categories::KEYSPACE),
    group: Group::Generic,
    summary: "Writes a key from a payload that DUMP has made.",
    since: "2.6.0",
    complexity: "O(1) to create the new key and additional O(N*M) to reconstruct the serialized value, where N is the number of Redis objects composing the value and M their average size. For small string values the time complexity is thus O(1)+O(1*M) where M is small, so simply O(1). However for sorted set values the complexity is O(N*M*log(N)) because inserting values into sorted sets is O(log(N)).",
    arguments: &[
        Argument::KEY,
        Argument::integer("ttl"),
        Argument::string("serialized-value"),
        Argument::pure_token("replace", "REPLACE").since("3.0.0").optional(),
        Argument::pure_token("absttl", "ABSTTL").since("5.0.0").optional(),
        Argument::integer("seconds").token("IDLETIME").since("5.0.0").optional(),
        Argument::integer("frequency").token("FREQ").since("5.0.0").optional(),
    ],
    example: &[("RESTORE mykey 0 garbage", "(error) ERR DUMP payload version or checksum are wrong")],
    run: Run::Write(restore),
    ..Command::DEFAULTS
};

fn restore(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let options = RestoreOptions::parse(request)?;
    let key = request.at(1);
    if !options.replaces && tx.is_there(key) {
        return Err(Error::fixed("BUSYKEY Target key name already exists."));
    }
    let ttl_ms = args::integer(request.at(2))?;
    let ttl_ms = u64::try_from(ttl_ms).map_err(|_| Error::fixed("ERR Invalid TTL value, must be >= 0"))?;
    let mut bytes = Vec::new();
    let facts =
        read_payload(request.at(3), tx.value_bytes_max(), &mut bytes).map_err(|error| match error {
            DumpError::VersionOrChecksum => Error::fixed("ERR DUMP payload version or checksum are wrong"),
            DumpError::BadFormat => Error::fixed("ERR Bad data format"),
        })?;
    let expiry = match ttl_ms {
        0 => Expiry::Never,
        moment_ms if options.is_moment => Expiry::At(moment_ms),
        delay_ms => Expiry::At(tx.now_ms().saturating_add(delay_ms)),
    };
    tx.put_any(key, Value { facts, bytes: &bytes }, expiry);
    tx.set_use(key, options.idle, options.frequency);
    tx.event(EventClass::GENERIC, "restore", key);
    Ok(reply.ok())
}

/// What follows the payload.
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
