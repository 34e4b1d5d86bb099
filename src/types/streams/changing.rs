//! Changes of streams, for their commands.

use std::sync::Arc;

use super::Stream;
use super::counting::read_with;
use crate::keyspace::Change;
use crate::values::Structure;
use crate::values::tree::Ledger;
use crate::values::tree::ledger::{Delivery, EntryId, Group, Producers, References, Trim};

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
        if self.large_mut::<Ledger>().is_none() {
            self.enlarge(Structure::Ledger(Box::default()));
        }
        self.large_mut::<Ledger>().expect("it was made a moment ago")
    }

    /// Makes sure that the stream is there, although nothing is added to it.
    pub fn ensure_exists(&mut self) {
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
        let (trimmed, remains) = match trim.references {
            References::Stay => self.ledger().trim(trim),
            References::Leave | References::Decide => {
                let (ids, remains) = self.ledger().trim_one_by_one(trim);
                if trim.references == References::Leave {
                    self.acknowledge_in_all(&ids);
                }
                (ids.len(), remains)
            }
        };
        let bytes = bytes_before.saturating_sub(self.large_bytes());
        self.leave(remains, bytes);
        if trimmed > 0 {
            // Trimming by any rule leaves the last of the entries that may be trimmed.
            let len = number(self.view().len());
            let rule: [&[u8]; 4] = [b"MAXLEN", b"=", &len, b"ACKED"];
            let is_plain = trim.references != References::Decide;
            self.note_alone("XTRIM", if is_plain { &rule[..3] } else { &rule });
            self.count_more(trimmed - 1);
        }
        trimmed
    }

    /// Removes entries from the pending ones of all groups.
    pub fn acknowledge_in_all(&mut self, ids: &[EntryId]) {
        let (Some(first), Some(last)) = (ids.iter().min(), ids.iter().max()) else { return };
        let has_any = |group: &&Group| group.pending(*first, *last).len() > 0;
        let groups: Vec<Vec<u8>> =
            self.view().groups().filter(has_any).map(|group| group.name().to_vec()).collect();
        for group in groups {
            self.acknowledge(&group, ids);
        }
    }

    /// Remembers the name that a producer has given to a message, and the ID that the message got.
    pub fn remember(&mut self, producer: &[u8], name: &[u8], id: EntryId, now_ms: u64) {
        self.ledger().producers_mut().add(producer, name, id, now_ms);
        self.note_alone("XIDMPRECORD", &[producer, name, &id.text()]);
    }

    /// Counts a message that was not added because it had been. The log does not get it.
    pub fn count_repeated(&mut self) {
        let producers = self.ledger().producers_mut();
        producers.repeated = producers.repeated.saturating_add(1);
    }

    /// Sets for how many seconds, and how many of, a producer's messages are remembered. Where one of the two
    /// changes, those so far are forgotten.
    pub fn set_producers(&mut self, seconds: Option<u64>, messages_max: Option<u64>) {
        let bytes_before = self.large_bytes();
        let producers = self.ledger().producers_mut();
        let before = (producers.seconds, producers.messages_max);
        let after = (seconds.unwrap_or(before.0), messages_max.unwrap_or(before.1));
        if before == after {
            return;
        }
        (producers.seconds, producers.messages_max) = after;
        let remains = producers.forget();
        let bytes = bytes_before.saturating_sub(self.large_bytes());
        self.leave(remains, bytes);
        let (seconds, messages_max) = (number(after.0), number(after.1));
        self.note_alone("XCFGSET", &[b"IDMP-DURATION", &seconds, b"IDMP-MAXSIZE", &messages_max]);
    }

    /// Lets a new stream remember messages within these limits. One of the usual limits does not note them.
    pub fn begin_with_producers(&mut self, limits: Option<[u64; 2]>) {
        let Some([seconds, messages_max]) = limits else { return };
        let usual = Producers::default();
        if (seconds, messages_max) != (usual.seconds, usual.messages_max) {
            self.set_producers(Some(seconds), Some(messages_max));
        }
    }

    /// The pending entries of a group that were delivered at `before_ms` or earlier, at most `count` (0 for
    /// all), the longest idle first, and when the first of the others was delivered.
    pub fn idle_entries(
        &mut self,
        group: &[u8],
        before_ms: u64,
        count: usize,
    ) -> (Vec<(EntryId, Delivery)>, Option<u64>) {
        /// Deleted entries that are looked at, at most.
        const DELETED_MAX: usize = 1000;
        let (mut idle, mut deleted, mut next_ms) = (Vec::new(), Vec::new(), None);
        let is_whole = self.ledger().change_group(group, Group::index_some).unwrap_or(true);
        let stream = self.view();
        let Some(found) = stream.group(group) else { return (idle, next_ms) };
        for (id, at_ms) in found.by_idle_time() {
            if at_ms > before_ms || deleted.len() == DELETED_MAX || count > 0 && idle.len() == count {
                next_ms = Some(at_ms);
                break;
            }
            match found.pending_at(id) {
                Some(delivery) if stream.get(id).is_some() => idle.push((id, delivery)),
                _ => deleted.push(id),
            }
        }
        // The rest of the index comes with the next attempt.
        let next_ms = if is_whole { next_ms } else { Some(0) };
        self.ledger().change_group(group, |group| group.forget_idle(&deleted));
        (idle, next_ms)
    }

    /// Sets the highest ID so far, and, if they are given, the number of all entries so far and the highest
    /// deleted ID.
    pub fn set_last_id(&mut self, id: EntryId, added: Option<u64>, max_deleted: Option<EntryId>) {
        let ledger = self.ledger();
        ledger.last_id = id;
        ledger.entries_added = added.unwrap_or(ledger.entries_added);
        ledger.max_deleted_id = max_deleted.unwrap_or(ledger.max_deleted_id);
        let (id, added) = (id.text(), number(ledger.entries_added));
        match max_deleted.map(EntryId::text) {
            // The ID may lie below that of a deleted entry, but not of one that the same request names.
            None => self.note_alone("XSETID", &[&id, b"ENTRIESADDED", &added]),
            Some(deleted) => {
                self.note_alone("XSETID", &[&id, b"ENTRIESADDED", &added, b"MAXDELETEDID", &deleted]);
            }
        }
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

    /// Notes that a consumer has got entries.
    pub fn note_activity(&mut self, group: &[u8], consumer: u32, now_ms: u64) {
        self.ledger().change_group(group, |group| group.set_active(consumer, Some(now_ms)));
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

    /// Removes a consumer by putting a group without it, which was made of `before`, in its place. Returns
    /// false if the group has changed since.
    pub fn exchange_group(&mut self, before: Arc<Group>, after: Group, removed: &[u8]) -> bool {
        let (name, bytes_before) = (before.name().to_vec(), self.large_bytes());
        let (remains, is_exchanged) = self.ledger().exchange_group(before, after);
        let bytes = bytes_before.saturating_sub(self.large_bytes());
        self.leave(remains, bytes);
        if is_exchanged {
            self.note_subcommand("XGROUP", "DELCONSUMER", &[&name, removed]);
        }
        is_exchanged
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

    /// Gives pending entries back to a group: no consumer has them any more, and the next one that claims
    /// pending entries gets them first. `is_forced`: those that are not pending are then, as if they had been
    /// delivered 0 times. `count` returns the number of deliveries from the one before. Returns how many
    /// entries the group has got.
    pub fn release(
        &mut self,
        group: &[u8],
        ids: &[EntryId],
        is_forced: bool,
        count: impl Fn(u64) -> u64,
    ) -> usize {
        let mut released: Vec<(EntryId, u64)> = Vec::new();
        for id in ids {
            let stream = self.view();
            let before = match stream.group(group).and_then(|group| group.pending_at(*id)) {
                Some(delivery) => delivery.count,
                None if is_forced && stream.get(*id).is_some() => 0,
                None => continue,
            };
            let count = count(before);
            self.ledger().change_group(group, |group| group.deliver(*id, Delivery::released(count)));
            released.push((*id, count));
        }
        self.note_released(group, &released);
        released.len()
    }

    /// Notes entries that were given back, those with the same number of deliveries together.
    fn note_released(&mut self, group: &[u8], entries: &[(EntryId, u64)]) {
        if !self.is_logged() {
            return self.count_more(entries.len());
        }
        for same in entries.chunk_by(|(_, one), (_, other)| one == other) {
            let ids: Vec<Vec<u8>> = same.iter().map(|(id, _)| id.text()).collect();
            let (len, count) = (number(ids.len()), number(same[0].1));
            let mut arguments: Vec<&[u8]> = vec![group, b"FAIL", b"IDS", &len];
            arguments.extend(ids.iter().map(Vec::as_slice));
            arguments.extend([&b"RETRYCOUNT"[..], &count, b"FORCE"]);
            self.note_alone("XNACK", &arguments);
            self.count_more(same.len() - 1);
        }
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
            read = read_with(stream, first, (last_id, read), *id);
            (last_id, has_moved) = (*id, true);
        }
        if has_moved {
            self.set_group(group, last_id, read);
        }
        let delivery = Delivery { consumer, at_ms: now_ms, count: 1 };
        if is_acknowledged {
            return;
        }
        if self.is_logged() {
            ids.iter().for_each(|id| self.deliver(group, *id, delivery));
        } else {
            self.ledger().change_group(group, |group| group.deliver_all(ids, delivery));
            self.count_more(ids.len());
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
