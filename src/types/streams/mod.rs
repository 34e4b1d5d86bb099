//! Streams: entries in the order of their IDs, and groups of consumers that read them.
//!
//! A stream is a [`Ledger`] from its first entry on: one entry takes some 500 bytes, a tenth of what Redis
//! takes. It stays when its last entry is deleted, since its IDs must continue where they ended.

pub(crate) mod counting;

mod changing;
mod stored;

use std::sync::LazyLock;

use crate::events::EventClass;
use crate::values::packed;
use crate::values::tree::Ledger;
use crate::values::tree::ledger::EntryId;
use crate::values::{Content, Limit, STREAM_KIND, Type, TypeFacts};

/// The type of streams.
#[derive(Debug)]
pub enum Stream {}

impl Type for Stream {
    const FACTS: &'static TypeFacts = &FACTS;
    /// What a new stream is until it gets its ledger.
    const EMPTY: &'static [u8] = packed::EMPTY;
    type View<'v> = &'v Ledger;

    #[inline(always)]
    fn view(content: Content<'_>) -> &Ledger {
        static NEW: LazyLock<Ledger> = LazyLock::new(Ledger::default);
        content.large::<Ledger>().unwrap_or_else(|| &NEW)
    }
}

/// The facts about streams.
pub(crate) const FACTS: TypeFacts = TypeFacts {
    name: "stream",
    kind: STREAM_KIND,
    events: EventClass::STREAM,
    // The limits of one block of a stream.
    limit: |of| Limit::by(of, "stream-node-max-entries", "stream-node-max-bytes"),
    encoding: |_, _, _| "stream",
    len: |_| 1,
    each,
    is_ordered: true,
    log: stored::log,
    rdb_types: stored::RDB_TYPES,
    rdb_type: stored::rdb_type,
    save: stored::save,
    load: stored::load,
};

/// Calls a function with each entry: its ID as DEBUG DIGEST of Redis has it, its fields and values in turn.
fn each(content: Content<'_>, visit: &mut dyn FnMut(&[&[u8]])) {
    let mut digits = itoa::Buffer::new();
    for entry in Stream::view(content).range(EntryId::ZERO, EntryId::MAX) {
        let id = format!("{}.{}", entry.id.ms, entry.id.seq);
        let fields = entry.fields.flat_map(|(name, value)| [name, value]);
        let parts: Vec<Vec<u8>> = fields.map(|part| part.text(&mut digits).to_vec()).collect();
        let all: Vec<&[u8]> = std::iter::once(id.as_bytes()).chain(parts.iter().map(Vec::as_slice)).collect();
        visit(&all);
    }
}
