//! How many entries of a stream a group has read, and how many it has not: its lag.
//!
//! A stream counts all entries that it has ever got, and a group those that it has read. The lag is their
//! difference as long as no entry was deleted from the middle of the stream. After that it is known again
//! where the number of entries in front of an ID is: at either end of the stream.

use crate::values::tree::Ledger;
use crate::values::tree::ledger::{EntryId, Group};

/// Whether an entry may have been deleted that was not in front of an ID.
pub(crate) fn has_gaps_from(stream: &Ledger, id: EntryId) -> bool {
    let deleted = stream.max_deleted_id;
    !stream.is_empty() && deleted != EntryId::ZERO && id <= deleted
}

/// The number of all entries, in the life of a stream, up to an ID, if it is known. `first` is the ID of the
/// stream's first entry.
pub(crate) fn entries_up_to(stream: &Ledger, first: Option<EntryId>, id: EntryId) -> Option<u64> {
    let (added, len) = (stream.entries_added, stream.length());
    if added == 0 {
        return Some(0);
    }
    if len == 0 && id <= stream.last_id {
        return Some(added);
    }
    if id != EntryId::ZERO && id < stream.max_deleted_id {
        return None;
    }
    if id >= stream.last_id {
        return (id == stream.last_id).then_some(added);
    }
    let first = first.unwrap_or_default();
    let is_whole = stream.max_deleted_id == EntryId::ZERO || stream.max_deleted_id < first;
    let before = added.wrapping_sub(len);
    match id.cmp(&first) {
        std::cmp::Ordering::Less if is_whole => Some(before),
        std::cmp::Ordering::Equal if is_whole => Some(before.wrapping_add(1)),
        _ => None,
    }
}

/// How many entries a group has not read yet, if that is known.
pub(crate) fn lag(stream: &Ledger, first: Option<EntryId>, group: &Group) -> Option<i64> {
    let Some(first) = first.filter(|_| stream.entries_added > 0) else { return Some(0) };
    if group.last_id < first && stream.max_deleted_id < first {
        return Some(stream.length() as i64);
    }
    let read = group
        .entries_read
        .filter(|_| !has_gaps_from(stream, group.last_id))
        .or_else(|| entries_up_to(stream, Some(first), group.last_id))?;
    Some(stream.entries_added.wrapping_sub(read) as i64)
}

/// How many entries a group has read, if it is known, when one of its consumers gets the entry with this ID.
pub(crate) fn read_with(
    stream: &Ledger,
    first: Option<EntryId>,
    (last_id, read): (EntryId, Option<u64>),
    id: EntryId,
) -> Option<u64> {
    match read {
        Some(read) if Some(last_id) >= first && !has_gaps_from(stream, last_id) => Some(read.wrapping_add(1)),
        read if stream.entries_added == 0 => read,
        _ => entries_up_to(stream, first, id),
    }
}
