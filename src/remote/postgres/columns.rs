//! A batch as PostgreSQL's statements take it: column by column.

use std::sync::Arc;

use tokio_postgres::types::ToSql;

use crate::remote::batch::{Batch, Part};
use crate::remote::clock::Window;
use crate::remote::row::Row;
use crate::types;

/// The latest expiry that PostgreSQL can store, about: the year 280,000. Later ones become this one.
const EXPIRES_AT_MS_MAX: u64 = 8_800_000_000_000_000;

/// The parts of a batch.
#[derive(Default)]
pub(super) struct Columns<'b> {
    /// Whether every key is alone in its group, and no version of an absent row counts.
    pub(super) is_all_alone: bool,
    databases: Vec<i32>,
    keys: Vec<&'b [u8]>,
    groups: Vec<i32>,
    ops: Vec<i16>,
    are_live: Vec<bool>,
    versions: Vec<i64>,
    kinds: Vec<&'static str>,
    values: Vec<&'b [u8]>,
    expiries: Vec<i64>,
    are_lifetimes: Vec<bool>,
    keep_fences: Vec<bool>,
    holders: Vec<&'b str>,
    are_locks: Vec<bool>,
    slots: Vec<i64>,
    are_locked: Vec<bool>,
    are_strict: Vec<bool>,
    granted: Vec<i64>,
    draws: i64,
}

/// What is done with a key: `op` of the statements.
const READ: i16 = 0;
const READ_WHAT_ANOTHER_WRITES: i16 = -1;
const WRITE: i16 = 1;
const DELETE: i16 = 2;
const INSERT: i16 = 3;

impl<'b> Columns<'b> {
    /// Of a batch.
    pub(super) fn of(batch: &'b Batch) -> Columns<'b> {
        // How many keys each group has, and whether it writes any.
        let mut groups = vec![(0, false); batch.groups];
        for part in &batch.parts {
            let (keys, writes) = &mut groups[part.group];
            *keys += 1;
            *writes |= part.written.is_some();
        }
        let draws = batch.draws as i64;
        let mut columns = Columns { is_all_alone: draws == 0, draws, ..Columns::default() };
        for (place, part) in batch.parts.iter().enumerate() {
            let (keys, writes) = groups[part.group];
            columns.is_all_alone &= keys == 1 && !part.is_strict && !is_brief(part) && !is_granted(part);
            columns.add(part, keys == 1, writes);
            let next = batch.parts.get(place + 1).filter(|next| next.key == part.key);
            if next.is_some_and(|next| next.written.is_some()) {
                columns.ops[place] = READ_WHAT_ANOTHER_WRITES;
            }
        }
        columns
    }

    fn add(&mut self, part: &'b Part, is_alone: bool, writes: bool) {
        let written = part.written.as_ref().map(|row| row.live.as_ref());
        let is_free =
            is_alone && part.seen.live.is_none() && !part.is_strict && !is_brief(part) && !is_granted(part);
        let op = match written {
            None => READ,
            Some(None) => DELETE,
            Some(Some(_)) if is_free => INSERT,
            Some(Some(_)) => WRITE,
        };
        let live = written.flatten();
        let keeps_tenure = |row: &Arc<Row>| !part.is_renewed && part.seen.keeps_tenure_in(row);
        let is_same = part.written.as_ref().is_some_and(keeps_tenure);
        let granted = part.written.as_ref().map_or(0, |row| row.granted);
        let expires_at_ms = part.lifetime_ms.or(live.and_then(|live| live.expires_at_ms));
        self.databases.push(part.key.database as i32);
        self.keys.push(&part.key.name);
        self.groups.push(part.group as i32);
        self.ops.push(op);
        self.are_live.push(part.seen.live.is_some());
        self.versions.push(part.seen.version);
        self.kinds.push(live.map_or("none", |live| name_of(live.kind)));
        self.values.push(live.map_or(&[], |live| &live.value));
        self.expiries.push(expires_at_ms.map_or(-1, |moment_ms| moment_ms.min(EXPIRES_AT_MS_MAX) as i64));
        self.are_lifetimes.push(part.lifetime_ms.is_some());
        self.keep_fences.push(is_same);
        self.holders.push(part.holder.as_deref().unwrap_or_default());
        self.are_locks.push(live.is_some_and(|live| live.is_lock));
        self.slots.push(part.key.slot());
        self.are_locked.push(writes);
        self.are_strict.push(part.is_strict);
        self.granted.push(granted);
    }

    /// Whether it writes one key, and does nothing else.
    pub(super) fn is_lone_write(&self) -> bool {
        self.is_all_alone && self.ops.len() == 1 && self.ops[0] != READ
    }

    /// Whether a key is written that is absent.
    pub(super) fn is_insert(&self, index: usize) -> bool {
        self.ops[index] == INSERT
    }

    /// The arguments of the statement for the only key of a batch.
    pub(super) fn lone_arguments<'a>(
        &'a self,
        front: &'a i64,
        number: &'a i64,
        window: &'a Window,
    ) -> [&'a (dyn ToSql + Sync); 16] {
        [
            front,
            number,
            &self.databases[0],
            &self.keys[0],
            &self.ops[0],
            &self.versions[0],
            &self.kinds[0],
            &self.values[0],
            &self.expiries[0],
            &self.are_lifetimes[0],
            &self.keep_fences[0],
            &self.holders[0],
            &self.are_locks[0],
            &self.slots[0],
            &window.estimate_us,
            &window.latest_us,
        ]
    }

    /// The arguments of the statement for such a batch.
    pub(super) fn arguments<'a>(
        &'a self,
        front: &'a i64,
        number: &'a i64,
        window: &'a Window,
    ) -> Vec<&'a (dyn ToSql + Sync)> {
        let Columns { databases, keys, groups, ops, are_live, versions, kinds, values, .. } = self;
        let Columns { expiries, are_lifetimes, keep_fences, holders, are_locks, slots, .. } = self;
        let mut arguments: Vec<&(dyn ToSql + Sync)> = vec![
            front,
            number,
            databases,
            keys,
            groups,
            ops,
            are_live,
            versions,
            kinds,
            values,
            expiries,
            are_lifetimes,
            keep_fences,
            holders,
            are_locks,
            slots,
        ];
        if !self.is_all_alone {
            arguments.extend([&self.are_locked as &(dyn ToSql + Sync), &self.are_strict]);
            arguments.extend([&self.granted as &(dyn ToSql + Sync), &self.draws]);
        }
        arguments.extend([&window.estimate_us as &(dyn ToSql + Sync), &window.latest_us]);
        arguments
    }
}

/// Whether a key was made and deleted again within the batch. It gets a row, as any deleted key does: a
/// client that watches it must find that it was there.
fn is_brief(part: &Part) -> bool {
    part.seen.live.is_none() && part.written.as_ref().is_some_and(|row| row.live.is_none())
}

/// Whether a request gives the row a fencing number, which is in one of the statements only.
fn is_granted(part: &Part) -> bool {
    part.written.as_ref().is_some_and(|row| row.granted != 0)
}

/// Keys that are to be locked, and are probably absent.
#[derive(Default)]
pub(super) struct Missing<'b> {
    databases: Vec<i32>,
    keys: Vec<&'b [u8]>,
    slots: Vec<i64>,
}

impl<'b> Missing<'b> {
    /// Of a batch.
    pub(super) fn of(batch: &'b Batch, columns: &Columns<'_>) -> Missing<'b> {
        let mut missing = Missing::default();
        if columns.is_all_alone {
            return missing;
        }
        for ((part, is_locked), op) in batch.parts.iter().zip(&columns.are_locked).zip(&columns.ops) {
            // An insert makes its row itself.
            if *is_locked && *op != INSERT && part.seen.live.is_none() {
                missing.databases.push(part.key.database as i32);
                missing.keys.push(&part.key.name);
                missing.slots.push(part.key.slot());
            }
        }
        missing
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The arguments of the statement that makes rows for them.
    pub(super) fn arguments<'a>(&'a self, window: &'a Window) -> [&'a (dyn ToSql + Sync); 5] {
        [&self.databases, &self.keys, &self.slots, &window.estimate_us, &window.latest_us]
    }
}

/// The name of a type.
fn name_of(kind: u8) -> &'static str {
    types::ALL.iter().find(|facts| facts.kind == kind).map_or("none", |facts| facts.name)
}
