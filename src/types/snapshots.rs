//! Snapshots of collections against models of them, with low limits: collections change, are copied, moved
//! and removed while a snapshot is running, and cross the limits in both directions. The snapshot must have
//! all of them as they were when it began.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;

use super::hashes::Hash;
use super::lists::{List, ListEnd};
use super::sets::Set;
use super::sorted_sets::SortedSet;
use super::{ALL, strings};
use crate::keyspace::{Expiry, Keyspace, SavedKey, Shape, Slice, Snapshot, Use};
use crate::values::{Content, HASH_KIND, LIST_KIND, Limit, SET_KIND, SORTED_SET_KIND, Type, Value};

const DATABASES: usize = 2;
const KEYS: u8 = 12;
const LATER_MS: u64 = 1 << 50;
/// The most elements that are packed, and the most bytes of one. A list of a hundred is large, whatever the
/// limit is.
const LIMIT: Limit = Limit { entries: 12, bytes: 20, integers: 12 };

#[derive(Clone, Debug, PartialEq)]
enum Modelled {
    Text(Vec<u8>),
    /// Values, and when their fields expire.
    Hash(BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)>),
    List(Vec<Vec<u8>>),
    Set(BTreeSet<Vec<u8>>),
    SortedSet(BTreeMap<Vec<u8>, i16>),
}

type Model = BTreeMap<(usize, Vec<u8>), (Modelled, Option<u64>)>;

impl Modelled {
    /// A value without elements; its type follows from its key.
    fn new(key: u8) -> Modelled {
        match key % 4 {
            0 => Modelled::Hash(BTreeMap::new()),
            1 => Modelled::List(Vec::new()),
            2 => Modelled::Set(BTreeSet::new()),
            _ => Modelled::SortedSet(BTreeMap::new()),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Modelled::Text(_) => "string",
            Modelled::Hash(_) => "hash",
            Modelled::List(_) => "list",
            Modelled::Set(_) => "set",
            Modelled::SortedSet(_) => "zset",
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Modelled::Text(_) => false,
            Modelled::Hash(fields) => fields.is_empty(),
            Modelled::List(elements) => elements.is_empty(),
            Modelled::Set(members) => members.is_empty(),
            Modelled::SortedSet(members) => members.is_empty(),
        }
    }

    /// Its parts, as a snapshot has them, in the order of a list, or sorted.
    fn parts(&self) -> Vec<Vec<u8>> {
        match self {
            Modelled::Text(text) => vec![text.clone()],
            Modelled::Hash(fields) => {
                fields.iter().map(|(field, (value, at_ms))| field_of(field, value, *at_ms)).collect()
            }
            Modelled::List(elements) => elements.clone(),
            Modelled::Set(members) => members.iter().cloned().collect(),
            Modelled::SortedSet(members) => {
                let text =
                    |(member, score): (&Vec<u8>, &i16)| joined(&[member, score.to_string().as_bytes()]);
                members.iter().map(text).collect()
            }
        }
    }
}

fn joined(parts: &[&[u8]]) -> Vec<u8> {
    parts.join(&b'=')
}

fn field_of(field: &[u8], value: &[u8], at_ms: Option<u64>) -> Vec<u8> {
    let moment = at_ms.map(|at_ms| at_ms.to_string()).unwrap_or_default();
    joined(&[field, value, moment.as_bytes()])
}

#[derive(Clone, Debug)]
enum Step {
    /// Adds a number of elements from a number on, or gives them a new value.
    Add(usize, u8, u8, usize, i16),
    /// Removes a number of elements from a number on; of a list, from its head.
    Take(usize, u8, u8, usize),
    /// Makes a number of fields from a number on expire, or never expire.
    Expire(usize, u8, u8, usize, Option<u64>),
    PutText(usize, u8),
    Remove(usize, u8),
    SetExpiry(usize, u8, Option<u64>),
    Copy(usize, u8, usize, u8),
    Carry(usize, u8, usize, u8),
    FlushDatabase(usize),
    Swap,
    TakeSlice,
    /// Takes all remaining slices, and begins another snapshot.
    BeginAnew,
}

fn step() -> impl Strategy<Value = Step> {
    let (database, key) = (|| 0..DATABASES, || 0..KEYS);
    // Some steps bring a collection over its limit at once, or under it.
    let count = || prop_oneof![6 => 1..5_usize, 1 => Just(14), 1 => Just(150)];
    prop_oneof![
        10 => (database(), key(), any::<u8>(), count(), any::<i16>())
            .prop_map(|(d, k, from, count, value)| Step::Add(d, k, from, count, value)),
        8 => (database(), key(), any::<u8>(), count())
            .prop_map(|(d, k, from, count)| Step::Take(d, k, from, count)),
        6 => (database(), key(), any::<u8>(), count(), proptest::option::of(LATER_MS..LATER_MS + 99))
            .prop_map(|(d, k, from, count, at)| Step::Expire(d, k, from, count, at)),
        1 => (database(), key()).prop_map(|(d, k)| Step::PutText(d, k)),
        2 => (database(), key()).prop_map(|(d, k)| Step::Remove(d, k)),
        1 => (database(), key(), proptest::option::of(LATER_MS..LATER_MS + 9))
            .prop_map(|(d, k, e)| Step::SetExpiry(d, k, e)),
        2 => (database(), key(), database(), key()).prop_map(|(d, k, to, at)| Step::Copy(d, k, to, at)),
        2 => (database(), key(), database(), key()).prop_map(|(d, k, to, at)| Step::Carry(d, k, to, at)),
        1 => database().prop_map(Step::FlushDatabase),
        1 => Just(Step::Swap),
        8 => Just(Step::TakeSlice),
        2 => Just(Step::BeginAnew),
    ]
}

fn keyspace() -> Keyspace {
    let keyspace = Keyspace::new(Shape::of(DATABASES, ALL), Arc::default(), Arc::default());
    for kind in [HASH_KIND, LIST_KIND, SET_KIND, SORTED_SET_KIND] {
        keyspace.limits().set(kind, LIMIT);
    }
    keyspace
}

fn key_of(key: u8) -> Vec<u8> {
    format!("key:{key}").into_bytes()
}

/// The names of some elements. Those of every third key are integers, which a small set keeps by themselves.
fn names(key: u8, from: u8, count: usize) -> Vec<Vec<u8>> {
    let name = |number: usize| match key % 3 {
        0 => format!("{}", 100_000 + number).into_bytes(),
        _ => format!("element:{number:03}").into_bytes(),
    };
    (0..count).map(|number| name((usize::from(from) + number) % 256)).collect()
}

/// Makes a step with the data, and with their model.
fn apply(step: &Step, keyspace: &Keyspace, model: &mut Model) {
    let mut tx = keyspace.begin_all(0).unwrap();
    match *step {
        Step::Add(database, number, from, count, value) => {
            let (key, names) = (key_of(number), names(number, from, count));
            tx.select(database);
            let at = (database, key.clone());
            let (modelled, _) = model.entry(at).or_insert_with(|| (Modelled::new(number), None));
            match modelled {
                Modelled::Text(_) => assert!(tx.make::<Hash, _>(&key, "none", |_| ()).is_err()),
                Modelled::Hash(fields) => {
                    let value = value.to_string().into_bytes();
                    fields.extend(names.iter().map(|name| (name.clone(), (value.clone(), None))));
                    tx.make::<Hash, _>(&key, "hset", |hash| {
                        names.iter().for_each(|field| _ = hash.insert(field, &value));
                    })
                    .unwrap();
                }
                Modelled::List(elements) => {
                    let end = if value < 0 { ListEnd::Head } else { ListEnd::Tail };
                    for name in &names {
                        elements.insert(if value < 0 { 0 } else { elements.len() }, name.clone());
                    }
                    tx.make::<List, _>(&key, "push", |list| {
                        names.iter().for_each(|name| list.push(end, name));
                    })
                    .unwrap();
                }
                Modelled::Set(members) => {
                    members.extend(names.iter().cloned());
                    tx.make::<Set, _>(&key, "sadd", |set| {
                        names.iter().for_each(|name| _ = set.insert(name));
                    })
                    .unwrap();
                }
                Modelled::SortedSet(members) => {
                    members.extend(names.iter().map(|name| (name.clone(), value)));
                    tx.make::<SortedSet, _>(&key, "zadd", |set| {
                        names.iter().for_each(|name| _ = set.set_score(name, f64::from(value)));
                    })
                    .unwrap();
                }
            }
        }
        Step::Take(database, number, from, count) => {
            let (key, names) = (key_of(number), names(number, from, count));
            tx.select(database);
            let at = (database, key.clone());
            let Some((modelled, _)) = model.get_mut(&at) else { return };
            match modelled {
                Modelled::Text(_) => return,
                Modelled::Hash(fields) => {
                    names.iter().for_each(|name| _ = fields.remove(name));
                    tx.change::<Hash, _>(&key, "hdel", |hash| {
                        names.iter().for_each(|name| _ = hash.remove(name));
                    })
                    .unwrap();
                }
                Modelled::List(elements) => {
                    let count = count.min(elements.len());
                    elements.drain(..count);
                    tx.change::<List, _>(&key, "lpop", |list| list.pop(ListEnd::Head, count)).unwrap();
                }
                Modelled::Set(members) => {
                    names.iter().for_each(|name| _ = members.remove(name));
                    tx.change::<Set, _>(&key, "srem", |set| {
                        names.iter().for_each(|name| _ = set.remove(name));
                    })
                    .unwrap();
                }
                Modelled::SortedSet(members) => {
                    names.iter().for_each(|name| _ = members.remove(name));
                    tx.change::<SortedSet, _>(&key, "zrem", |set| {
                        names.iter().for_each(|name| _ = set.remove(name));
                    })
                    .unwrap();
                }
            }
            if modelled.is_empty() {
                model.remove(&at);
            }
        }
        Step::Expire(database, number, from, count, at_ms) => {
            let (key, names) = (key_of(number), names(number, from, count));
            tx.select(database);
            let Some((Modelled::Hash(fields), _)) = model.get_mut(&(database, key.clone())) else { return };
            tx.change::<Hash, _>(&key, "hexpire", |hash| {
                let mut changed = Vec::new();
                for name in &names {
                    let found = fields.get_mut(name);
                    assert_eq!(hash.view().expires_at_ms(name), found.as_ref().map(|(_, at_ms)| *at_ms));
                    if let Some((_, moment)) = found.filter(|(_, moment)| *moment != at_ms) {
                        *moment = at_ms;
                        hash.set_moment(name, at_ms);
                        changed.push(&name[..]);
                    }
                }
                match at_ms {
                    Some(at_ms) => hash.note_moments(&changed, at_ms),
                    None => hash.note_persisted(&changed),
                }
            })
            .unwrap();
        }
        Step::PutText(database, number) => {
            let value = Value { facts: &strings::FACTS, content: Content::Bytes(b"text") };
            tx.select(database);
            tx.put_any(&key_of(number), value, Expiry::Never);
            model.insert((database, key_of(number)), (Modelled::Text(b"text".to_vec()), None));
        }
        Step::Remove(database, number) => {
            tx.select(database);
            let at = (database, key_of(number));
            assert_eq!(tx.remove(&at.1), model.remove(&at).is_some());
        }
        Step::SetExpiry(database, number, expires_at_ms) => {
            tx.select(database);
            tx.set_expiry(&key_of(number), expires_at_ms);
            model.entry((database, key_of(number))).and_modify(|(_, expiry)| *expiry = expires_at_ms);
        }
        Step::Copy(database, number, to, target) | Step::Carry(database, number, to, target) => {
            let (source, target) = ((database, key_of(number)), (to, key_of(target)));
            let Some(found) = model.get(&source).cloned() else { return };
            if source == target {
                return;
            }
            tx.select(database);
            if matches!(step, Step::Carry(..)) {
                tx.carry(&source.1, to, &target.1);
                model.remove(&source);
            } else {
                tx.copy(&source.1, to, &target.1);
            }
            model.insert(target, found);
        }
        Step::FlushDatabase(database) => {
            tx.select(database);
            tx.flush_database();
            model.retain(|(of, _), _| *of != database);
        }
        Step::Swap => {
            tx.swap_databases(0, 1);
            let swap = |((database, key), found)| ((1 - database, key), found);
            *model = std::mem::take(model).into_iter().map(swap).collect();
        }
        Step::TakeSlice | Step::BeginAnew => {}
    }
    tx.commit();
}

/// What a snapshot has of each key: its kind, its parts, its expiry.
type Found = BTreeMap<(usize, Vec<u8>), (&'static str, Vec<Vec<u8>>, Option<u64>)>;

fn expected(model: &Model) -> Found {
    let parts = |value: &Modelled, expiry: &Option<u64>| (value.name(), value.parts(), *expiry);
    model.iter().map(|(at, (value, expiry))| (at.clone(), parts(value, expiry))).collect()
}

/// A snapshot, and the keys that it has returned so far.
struct Written {
    snapshot: Snapshot,
    slice: Slice,
    found: Found,
    /// How many of them were large.
    large: usize,
}

impl Written {
    fn begin(keyspace: &Keyspace) -> Written {
        let snapshot = keyspace.begin_all(0).unwrap().begin_snapshot().expect("no other snapshot");
        Written { snapshot, slice: Slice::with_limits(1, 1000), found: Found::new(), large: 0 }
    }

    fn take_slice(&mut self, keyspace: &Keyspace) -> bool {
        let Written { snapshot, slice, found, large } = self;
        let is_there = keyspace.begin_walk().take_slice(snapshot, slice);
        let add = |saved: &SavedKey<'_>| {
            let Value { facts, content } = saved.value;
            *large += usize::from(content.bytes().is_none());
            let mut parts = Vec::new();
            if facts.name == Hash::FACTS.name {
                let fields = Hash::view(content).with_expiries();
                parts.extend(fields.map(|(field, value, at_ms)| field_of(field, value, at_ms)));
            } else {
                (facts.each)(content, &mut |part| parts.push(joined(part)));
            }
            if facts.name != List::FACTS.name {
                parts.sort_unstable();
            }
            let at = (saved.database, saved.key.to_vec());
            let twice = found.insert(at, (facts.name, parts, saved.expires_at_ms));
            assert!(twice.is_none(), "{} is in it twice", saved.key.escape_ascii());
            Ok::<_, Infallible>(())
        };
        slice.each(keyspace, Use::Omitted, add).unwrap();
        is_there
    }

    fn finish(mut self, keyspace: &Keyspace) -> (Found, usize) {
        while self.take_slice(keyspace) {}
        (self.found, self.large)
    }
}

proptest! {
    // Each step locks all shards.
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_snapshot_has_collections_as_they_were_while_clients_change_them(steps in vec(step(), 1..150)) {
        let (keyspace, mut model) = (keyspace(), Model::new());
        for key in 0..KEYS {
            // Half of them are large before the first snapshot begins.
            let count = if key % 8 < 4 { 150 } else { 3 };
            apply(&Step::Add(0, key, key, count, 7), &keyspace, &mut model);
        }
        let (mut begun, mut written) = (expected(&model), Written::begin(&keyspace));
        let mut large = 0;
        for step in steps {
            match step {
                Step::TakeSlice => drop(written.take_slice(&keyspace)),
                Step::BeginAnew => {
                    let (found, some) = written.finish(&keyspace);
                    prop_assert_eq!(&found, &begun);
                    large += some;
                    (begun, written) = (expected(&model), Written::begin(&keyspace));
                }
                step => apply(&step, &keyspace, &mut model),
            }
        }
        let (found, some) = written.finish(&keyspace);
        prop_assert_eq!(&found, &begun);
        prop_assert!(large + some > 0, "large collections are in a snapshot");
        prop_assert_eq!(&Written::begin(&keyspace).finish(&keyspace).0, &expected(&model));
    }
}
