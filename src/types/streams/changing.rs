//! Changes of streams, for their commands.

use super::Stream;
use super::counting::{entries_up_to, has_gaps_from};
use crate::keyspace::Change;
use crate::values::Structure;
use crate::values::tree::Ledger;
use crate::values::tree::ledger::{Delivery, EntryId, Trim};

/// A number as an argument of a request.
fn number(number: impl itoa::Integer) -> Vec<u8> {
    itoa::Buffer::new().format(number).as_bytes().to_vec()
}

/// The number of entries that a group has read as an argument: -1 if it is not known.
fn entries_read(read: Option<u64>) -> Vec<u8> {
    read.map_or_else(|| b"-1".to_vec(), number)
}

impl Change<'_, Stream> {
    /// The stream's ledger. What is changed in it must be noted, too.
    fn ledger(&mut self) -> &mut Ledger {
        if self.ledger_mut().is_none() {
            self.enlarge(Structure::Ledger(Box::default()));
        }
        self.ledger_mut().expect("it was made a moment ago")
    }

    /// Makes sure that the stream is there, although nothing is added to it.
    pub fn begin(&mut self) {
        self.ledger();
    }

    /// Adds an entry, whose ID is behind all that the stream has had. Names and values take turns.
    pub fn add<'f>(&mut self, id: EntryId, fields: impl ExactSizeIterator<Item = &'f [u8]> + Clone) {
        let limit = self.limit();
        self.ledger().add(id, fields.clone(), limit.bytes, limit.entries);
        if !self.is_logged() {
            return self.count_more(1);
        }
        let id = id.text();
        let mut arguments: Vec<&[u8]> = vec![&id];
        // The iterator's items live longer than the ID, so they cannot be chained to it.
        fields.for_each(|part| arguments.push(part));
        self.note_alone("XADD", &arguments);
    }

    /// Deletes an entry; returns whether it was there.
    pub fn delete(&mut self, id: EntryId) -> bool {
        let ledger = self.ledger();
        if !ledger.delete(id) {
            return false;
        }
        ledger.max_deleted_id = ledger.max_deleted_id.max(id);
        self.note("XDEL", &[&id.text()]);
        true
    }

    /// Trims entries; returns how many.
    pub fn trim(&mut self, trim: Trim) -> usize {
        let bytes_before = self.large_bytes();
        let (trimmed, remains) = self.ledger().trim(trim);
        let bytes = bytes_before.saturating_sub(self.large_bytes());
        self.leave(remains, bytes);
        if trimmed > 0 {
            // Trimming by any rule leaves the last entries.
            let len = number(self.view().len());
            self.note_alone("XTRIM", &[b"MAXLEN", b"=", &len]);
            self.count_more(trimmed - 1);
        }
        trimmed
    }

    /// Sets the highest ID so far, and, if they are given, the number of all entries so far and the highest
    /// deleted ID.
    pub fn set_last_id(&mut self, id: EntryId, added: Option<u64>, max_deleted: Option<EntryId>) {
        let ledger = self.ledger();
        ledger.last_id = id;
        ledger.entries_added = added.unwrap_or(ledger.entries_added);
        ledger.max_deleted_id = max_deleted.unwrap_or(ledger.max_deleted_id);
        let (added, deleted) = (number(ledger.entries_added), ledger.max_deleted_id.text());
        self.note_alone("XSETID", &[&id.text(), b"ENTRIESADDED", &added, b"MAXDELETEDID", &deleted]);
    }

    /// Adds a group; returns false if there is one of this name.
    pub fn add_group(&mut self, name: &[u8], last_id: EntryId, read: Option<u64>) -> bool {
        let is_new = self.ledger().add_group(name, last_id, read);
        if is_new {
            let (id, read) = (last_id.text(), entries_read(read));
            self.note_subcommand("XGROUP", "CREATE", &[name, &id, b"MKSTREAM", b"ENTRIESREAD", &read]);
        }
        is_new
    }

    /// Sets up to which ID a group has read, and how many entries that were.
    pub fn set_group(&mut self, name: &[u8], last_id: EntryId, read: Option<u64>) {
        let set = self.ledger().change_group(name, |group| {
            group.last_id = last_id;
            group.entries_read = read;
        });
        if set.is_some() {
            let (id, read) = (last_id.text(), entries_read(read));
            self.note_subcommand("XGROUP", "SETID", &[name, &id, b"ENTRIESREAD", &read]);
        }
    }

    /// Removes a group; returns whether it was there.
    pub fn remove_group(&mut self, name: &[u8]) -> bool {
        let bytes_before = self.large_bytes();
        let Some(remains) = self.ledger().remove_group(name) else { return false };
        let bytes = bytes_before.saturating_sub(self.large_bytes());
        self.leave(remains, bytes);
        self.note_subcommand("XGROUP", "DESTROY", &[name]);
        true
    }

    /// Finds a consumer, or adds it, and notes that it was heard of. Returns its number and whether it is
    /// new.
    pub fn meet_consumer(&mut self, group: &[u8], name: &[u8], now_ms: u64) -> Option<(u32, bool)> {
        let (number, is_new) = self.ledger().change_group(group, |group| {
            let met = group.add_consumer(name, now_ms);
            group.see_consumer(met.0, now_ms);
            met
        })?;
        if is_new {
            self.note_subcommand("XGROUP", "CREATECONSUMER", &[group, name]);
        }
        Some((number, is_new))
    }

    /// Removes a consumer; returns how many entries it had not acknowledged, if there was such a consumer.
    pub fn remove_consumer(&mut self, group: &[u8], name: &[u8]) -> Option<usize> {
        let bytes_before = self.large_bytes();
        let removed = self.ledger().change_group(group, |group| {
            let number = group.find_consumer(name)?;
            Some(group.remove_consumer(number))
        });
        let (pending, remains) = removed.flatten()?;
        let bytes = bytes_before.saturating_sub(self.large_bytes());
        self.leave(remains, bytes);
        self.note_subcommand("XGROUP", "DELCONSUMER", &[group, name]);
        Some(pending)
    }

    /// Makes an entry pending for a consumer of a group, or changes how it was delivered.
    pub fn deliver(&mut self, group: &[u8], id: EntryId, delivery: Delivery) {
        let is_logged = self.is_logged();
        let noted = self.ledger().change_group(group, |group| {
            group.deliver(id, delivery);
            let name = group.consumer(delivery.consumer).filter(|_| is_logged)?.name().to_vec();
            Some((name, group.last_id.text()))
        });
        let Some((consumer, last_id)) = noted.flatten() else { return self.count_more(1) };
        let (at_ms, count) = (number(delivery.at_ms), number(delivery.count));
        let claim: [&[u8]; 12] = [
            group,
            &consumer,
            b"0",
            &id.text(),
            b"TIME",
            &at_ms,
            b"RETRYCOUNT",
            &count,
            b"FORCE",
            b"JUSTID",
            b"LASTID",
            &last_id,
        ];
        self.note_alone("XCLAIM", &claim);
    }

    /// Moves a group behind entries that one of its consumers gets, and makes them pending for it if it is
    /// to acknowledge them.
    pub fn read(&mut self, group: &[u8], consumer: u32, ids: &[EntryId], now_ms: u64, is_acknowledged: bool) {
        let stream = self.view();
        let Some(before) = stream.group(group) else { return };
        let first = stream.first().map(|first| first.id);
        let (mut last_id, mut read) = (before.last_id, before.entries_read);
        let mut has_moved = false;
        for id in ids.iter().filter(|id| **id > before.last_id) {
            read = match read {
                Some(read) if !has_gaps_from(stream, first, *id) => Some(read.wrapping_add(1)),
                _ => entries_up_to(stream, first, *id),
            };
            (last_id, has_moved) = (*id, true);
        }
        if has_moved {
            self.set_group(group, last_id, read);
        }
        if !is_acknowledged {
            for id in ids {
                self.deliver(group, *id, Delivery { consumer, at_ms: now_ms, count: 1 });
            }
        }
    }

    /// Removes entries from the pending ones of a group; returns how many were.
    pub fn acknowledge(&mut self, group: &[u8], ids: &[EntryId]) -> usize {
        let done = self.ledger().change_group(group, |group| {
            ids.iter().filter(|id| group.acknowledge(**id)).map(|id| id.text()).collect::<Vec<_>>()
        });
        let done = done.unwrap_or_default();
        if !done.is_empty() {
            let arguments: Vec<&[u8]> = std::iter::once(group).chain(done.iter().map(|id| &**id)).collect();
            self.note_alone("XACK", &arguments);
            self.count_more(done.len() - 1);
        }
        done.len()
    }
}
