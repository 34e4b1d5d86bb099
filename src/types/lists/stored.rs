//! Lists in files and in the log: as Redis would have them, whatever their form here.

use crate::values::tree::Sequence;
use std::io;

use super::{List, ListView, NODE_LIMIT, NewList};
use crate::dump::Compressor;
use crate::dump::collections::{self, NODE_PACKED, NODE_PLAIN};
use crate::dump::packed::writing::{EMPTY_LISTPACK_BYTES, ListpackWriter, element_bytes};
use crate::dump::strings::{DecodeError, Source, write_length, write_string};
use crate::keyspace::records;
use crate::values::{Content, Limit, Loaded, Sink, Type};

/// The most bytes of a node within a limit. Where `list-max-listpack-size` limits the elements, it is that
/// of [`NODE_LIMIT`]. Redis: `SIZE_SAFETY_LIMIT`.
fn bytes_max(limit: Limit) -> usize {
    if limit.bytes == usize::MAX { NODE_LIMIT.bytes } else { limit.bytes }
}

/// The encoding that Redis would use: since version 7.2, a list that fits into one node is one listpack. A
/// list that shrinks is a listpack again as soon as it fits, in Redis only at half of the limit.
pub(super) fn encoding(content: Content<'_>, limit: Limit) -> &'static str {
    let Some(sequence) = content.large::<Sequence>() else { return "listpack" };
    let (bytes_max, mut bytes) = (bytes_max(limit), EMPTY_LISTPACK_BYTES);
    let mut records = sequence.range(0..sequence.len());
    let is_long = sequence.len() > limit.entries.max(1);
    // Two bytes an element at least: the walk ends before long.
    let is_large = is_long
        || records.any(|element| {
            bytes += element_bytes(element);
            bytes > bytes_max
        });
    if is_large { "quicklist" } else { "listpack" }
}

pub(super) fn log(
    sink: &mut dyn Sink,
    key: &[u8],
    content: Content<'_>,
    expires_at_ms: Option<u64>,
) -> io::Result<()> {
    let elements = List::view(content).iter().map(|element| [element]);
    records::collection(sink, key, "RPUSH", elements, expires_at_ms)
}

/// A node of a quicklist.
enum Node {
    /// A listpack with this number of elements.
    Packed(usize),
    /// One element that is larger than a node.
    Plain,
}

/// The nodes that a list would have in Redis 7.0 if all its elements had been pushed to its tail. Elements
/// that are larger than a node have nodes of their own, as in later versions.
fn nodes(list: ListView<'_>, limit: Limit) -> impl Iterator<Item = Node> {
    let bytes_max = bytes_max(limit);
    let mut elements = list.iter().peekable();
    std::iter::from_fn(move || {
        let first = elements.next()?;
        if first.len() > bytes_max {
            return Some(Node::Plain);
        }
        let (mut bytes, mut count) = (EMPTY_LISTPACK_BYTES + element_bytes(first), 1);
        // Redis: `SIZE_ESTIMATE_OVERHEAD`.
        let mut has_room = |bytes: usize, count: usize| {
            elements.next_if(|next| bytes + next.len() + 8 <= bytes_max && count < limit.entries.max(1))
        };
        while let Some(next) = has_room(bytes, count) {
            bytes += element_bytes(next);
            count += 1;
        }
        Some(Node::Packed(count))
    })
}

pub(super) fn save(
    sink: &mut dyn Sink,
    content: Content<'_>,
    limit: Limit,
    mut compressor: Option<&mut Compressor>,
) -> io::Result<()> {
    let list = List::view(content);
    // The number of nodes comes first, so the list is read twice.
    write_length(sink.buffer(), nodes(list, limit).count() as u64);
    let mut elements = list.iter();
    for node in nodes(list, limit) {
        match node {
            Node::Packed(count) => {
                let mut listpack = ListpackWriter::default();
                elements.by_ref().take(count).for_each(|element| listpack.push(element));
                write_length(sink.buffer(), NODE_PACKED);
                write_string(sink.buffer(), &listpack.finish(), compressor.as_deref_mut());
            }
            Node::Plain => {
                write_length(sink.buffer(), NODE_PLAIN);
                write_string(sink.buffer(), elements.next().unwrap_or_default(), compressor.as_deref_mut());
            }
        }
        sink.pass_on()?;
    }
    Ok(())
}

pub(super) fn load(
    rdb_type: u8,
    input: &mut dyn Source,
    limit: Limit,
    value: &mut Vec<u8>,
) -> Result<Loaded, DecodeError> {
    let mut list = NewList::in_buffer(value, limit);
    collections::list(rdb_type, input, &mut |element| {
        list.push(element);
        Ok(())
    })?;
    Ok(list.finish().into())
}
