//! A hash in files: the log, snapshots, and the payloads of DUMP.
//!
//! A hash of which some fields expire is written in the form of Redis 7.4 and later. Valkey 9 has another one
//! and reads none of Redis's; Keyfast reads both.

use std::io;

use super::{Hash, HashView, pairs_of, unpacked};
use crate::dump::Compressor;
use crate::dump::collections::{self, HASH, HASH_EXPIRING, HASH_LISTPACK, HASH_LISTPACK_EXPIRING};
use crate::dump::packed::writing::ListpackWriter;
use crate::dump::strings::{DecodeError, Source, write_length, write_string};
use crate::keyspace::records;
use crate::values::expiring;
use crate::values::pairs;
use crate::values::tree::{ExpiringMap, Map};
use crate::values::{Content, Limit, Loaded, Sink, Structure, Type};

pub(super) fn log(
    sink: &mut dyn Sink,
    key: &[u8],
    content: Content<'_>,
    expires_at_ms: Option<u64>,
) -> io::Result<()> {
    let hash = Hash::view(content);
    records::collection(sink, key, "HSET", hash.iter().map(|(field, value)| [field, value]), expires_at_ms)?;
    let expiring = hash.with_expiries().filter_map(|(field, _, at_ms)| Some((field, at_ms?)));
    records::field_expiries(sink, key, expiring)
}

pub(super) fn rdb_type(content: Content<'_>) -> u8 {
    let hash = Hash::view(content);
    match (hash.is_packed(), first_moment(hash).is_some()) {
        (true, false) => HASH_LISTPACK,
        (false, false) => HASH,
        (true, true) => HASH_LISTPACK_EXPIRING,
        (false, true) => HASH_EXPIRING,
    }
}

/// The first moment at which a field expires that is there.
fn first_moment(hash: HashView<'_>) -> Option<u64> {
    match hash {
        HashView::Expiring(fields, now_ms) => fields.next_ms(now_ms),
        HashView::Packed(_) | HashView::Large(_) => None,
    }
}

pub(super) fn save(
    sink: &mut dyn Sink,
    content: Content<'_>,
    _: Limit,
    mut compressor: Option<&mut Compressor>,
) -> io::Result<()> {
    let hash = Hash::view(content);
    let first_ms = first_moment(hash);
    if let Some(first_ms) = first_ms {
        sink.buffer().extend(first_ms.to_le_bytes());
    }
    if hash.is_packed() {
        let mut listpack = ListpackWriter::default();
        match first_ms {
            None => {
                hash.iter().flat_map(|(field, value)| [field, value]).for_each(|text| listpack.push(text))
            }
            Some(_) => push_expiring(hash, &mut listpack),
        }
        write_string(sink.buffer(), &listpack.finish(), compressor);
        return sink.pass_on();
    }
    write_length(sink.buffer(), hash.len() as u64);
    for (field, value, at_ms) in hash.with_expiries() {
        if let Some(first_ms) = first_ms {
            // Behind the first moment, and 0 for none.
            write_length(sink.buffer(), at_ms.map_or(0, |at_ms| at_ms - first_ms + 1));
        }
        write_string(sink.buffer(), field, compressor.as_deref_mut());
        write_string(sink.buffer(), value, compressor.as_deref_mut());
        sink.pass_on()?;
    }
    Ok(())
}

/// Appends fields, values and moments, 0 for none. Redis has the fields in the order of their moments, and
/// those without behind them.
fn push_expiring(hash: HashView<'_>, listpack: &mut ListpackWriter) {
    let mut fields: Vec<_> = hash.with_expiries().collect();
    fields.sort_by_key(|(_, _, at_ms)| at_ms.unwrap_or(u64::MAX));
    for (field, value, at_ms) in fields {
        listpack.push(field);
        listpack.push(value);
        listpack.push(itoa::Buffer::new().format(at_ms.unwrap_or(0)).as_bytes());
    }
}

/// A hash that is being read.
enum Read {
    /// It is small, and no field expires so far.
    Packed,
    /// It is small, and some fields expire.
    Expiring(Vec<(Vec<u8>, Vec<u8>, Option<u64>)>),
    Large(Map),
    LargeExpiring(ExpiringMap),
}

/// Removes a field from a packed hash.
fn remove_packed(value: &mut Vec<u8>, field: &[u8]) {
    let mut others = pairs::EMPTY.to_vec();
    pairs_of(value)
        .filter(|(name, _)| *name != field)
        .for_each(|(name, content)| pairs::push(&mut others, name, content));
    *value = others;
}

pub(super) fn load(
    rdb_type: u8,
    input: &mut dyn Source,
    limit: Limit,
    value: &mut Vec<u8>,
) -> Result<Loaded, DecodeError> {
    value.extend_from_slice(pairs::EMPTY);
    let (mut read, mut total, mut has_twice) = (Read::Packed, 0, false);
    collections::hash(rdb_type, input, &mut |field, content, at_ms| {
        total += field.len() + content.len();
        let is_packed = |fields| limit.allows(fields + 1, field.len().max(content.len()), total);
        read = match std::mem::replace(&mut read, Read::Packed) {
            Read::Packed if !is_packed(pairs::count(value)) => Read::Large(unpacked(value)),
            Read::Packed if at_ms.is_some() => {
                let owned = |(field, value): (&[u8], &[u8])| (field.to_vec(), value.to_vec(), None);
                Read::Expiring(pairs_of(value).map(owned).collect())
            }
            Read::Expiring(fields) if !is_packed(fields.len()) => {
                let mut map = ExpiringMap::of(Structure::map());
                fields.iter().for_each(|(field, value, at_ms)| _ = map.insert(field, value, *at_ms));
                Read::LargeExpiring(map)
            }
            read => read,
        };
        if let Read::Large(map) = &mut read
            && at_ms.is_some()
        {
            let map = std::mem::replace(map, Structure::map());
            read = Read::LargeExpiring(ExpiringMap::of(map));
        }
        let is_new = match &mut read {
            Read::Large(map) => map.insert(field, content),
            Read::LargeExpiring(map) => map.insert(field, content, at_ms).is_none(),
            Read::Expiring(fields) => {
                let len = fields.len();
                fields.retain(|(other, _, _)| other != field);
                let is_new = fields.len() == len;
                fields.push((field.to_vec(), content.to_vec(), at_ms));
                is_new
            }
            Read::Packed => {
                let is_new = pairs::find(value, field).is_none();
                if !is_new {
                    remove_packed(value, field);
                }
                pairs::push(value, field, content);
                is_new
            }
        };
        has_twice |= !is_new;
        Ok(())
    })?;
    if has_twice {
        // The last one counts.
        input.forgive(DecodeError::Invalid("a hash has a field twice"))?;
    }
    Ok(match read {
        Read::Packed => Loaded::Packed,
        Read::Expiring(fields) => {
            *value = expiring::pack(fields.iter().map(|(field, value, at_ms)| (&**field, &**value, *at_ms)));
            Loaded::Expiring
        }
        Read::Large(map) => Loaded::Large(Structure::Map(map)),
        Read::LargeExpiring(map) => Loaded::Large(Structure::Expiring(Box::new(map))),
    })
}
