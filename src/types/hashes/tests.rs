//! Hashes against a model of them, while time passes: fields expire, are freed, and come again.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;

use super::Hash;
use crate::dump::strings::Decoder;
use crate::keyspace::{Change, Expiry, Keyspace, Shape, Transaction, Watching};
use crate::types::ALL;
use crate::values::{HASH_KIND, Limit, Type};

const LIMIT: Limit = Limit { entries: 8, bytes: 20, integers: 8 };
const KEY: &[u8] = b"hash";
const FIELDS: u8 = 40;

/// A keyspace with a clock that stands still.
fn keyspace() -> Keyspace {
    let keyspace = Keyspace::new(Shape::of(1, ALL), Arc::default(), Arc::default());
    keyspace.limits().set(HASH_KIND, LIMIT);
    keyspace.clock().freeze();
    keyspace
}

fn advance(keyspace: &Keyspace, ms: u64) {
    keyspace.clock().set(keyspace.clock().now_ms() + ms).unwrap();
}

fn expire(tx: &mut Transaction<'_>, field: &[u8], at_ms: Option<u64>) {
    tx.change::<Hash, _>(KEY, "hexpire", |hash| {
        hash.set_moment(field, at_ms);
        match at_ms {
            Some(at_ms) => hash.note_moments(&[field], at_ms),
            None => hash.note_persisted(&[field]),
        }
    })
    .unwrap();
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u8, u8),
    /// With an expiry this many milliseconds from now.
    InsertUntil(u8, u8, u64),
    /// As HINCRBY does.
    Replace(u8, u8),
    SetMoment(u8, Option<u64>),
    Remove(u8),
    Advance(u64),
    /// As a command does that has read.
    Free,
    Sweep,
}

fn step() -> impl Strategy<Value = Step> {
    let field = || 0..FIELDS;
    prop_oneof![
        4 => (field(), any::<u8>()).prop_map(|(f, v)| Step::Insert(f, v)),
        4 => (field(), any::<u8>(), 1..60_u64).prop_map(|(f, v, at)| Step::InsertUntil(f, v, at)),
        2 => (field(), any::<u8>()).prop_map(|(f, v)| Step::Replace(f, v)),
        4 => (field(), proptest::option::of(1..60_u64)).prop_map(|(f, at)| Step::SetMoment(f, at)),
        2 => field().prop_map(Step::Remove),
        2 => (1..40_u64).prop_map(Step::Advance),
        1 => Just(Step::Free),
        1 => Just(Step::Sweep),
    ]
}

type Model = BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)>;

fn check(keyspace: &Keyspace, model: &Model) {
    let tx = keyspace.begin(0, KEY).unwrap();
    let found = tx.get::<Hash>(KEY).unwrap();
    assert_eq!((found.is_some(), tx.exists(KEY)), (!model.is_empty(), !model.is_empty()));
    let Some(hash) = found else { return };
    assert_eq!(hash.len(), model.len());
    let owned = |(field, value, at_ms): (&[u8], &[u8], _)| (field.to_vec(), (value.to_vec(), at_ms));
    assert_eq!(hash.with_expiries().map(owned).collect::<Model>(), *model);
    assert_eq!(hash.iter().count(), model.len());
    let at = |position: usize| hash.at(position).map(|(field, _)| field.to_vec());
    let mut positions: Vec<_> = (0..model.len()).filter_map(at).collect();
    positions.sort_unstable();
    assert!(positions.iter().eq(model.keys()));
    for field in 0..FIELDS {
        let expected = model.get(&[field][..]);
        assert_eq!(hash.get(&[field]), expected.map(|(value, _)| &value[..]));
        assert_eq!(hash.expires_at_ms(&[field]), expected.map(|(_, at_ms)| *at_ms));
    }
    // Saved and loaded, it is the same.
    let value = tx.get_any(KEY).unwrap();
    let (mut saved, mut packed) = (Vec::new(), Vec::new());
    value.save(&mut saved, LIMIT, None).unwrap();
    let mut decoder = Decoder::new(&saved[..], 1 << 20);
    let loaded = (Hash::FACTS.load)(value.rdb_type(), &mut decoder, LIMIT, &mut packed).unwrap();
    assert_eq!(Hash::view(loaded.content(&packed)).with_expiries().map(owned).collect::<Model>(), *model);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_hash_is_the_model_s_at_every_moment(steps in vec(step(), 1..80)) {
        let (keyspace, mut model) = (keyspace(), Model::new());
        for step in steps {
            let mut tx = keyspace.begin(0, KEY).unwrap();
            let now_ms = tx.now_ms();
            match step {
                Step::Insert(field, value) => {
                    let insert = |hash: &mut Change<'_, Hash>| hash.insert(&[field], &[value]);
                    let is_new = tx.make(KEY, "hset", insert).unwrap();
                    prop_assert_eq!(is_new, model.insert(vec![field], (vec![value], None)).is_none());
                }
                Step::InsertUntil(field, value, at) => {
                    tx.make::<Hash, _>(KEY, "hset", |hash| {
                        hash.insert_until(&[field], &[value], now_ms + at);
                        hash.note_moments(&[&[field]], now_ms + at);
                    })
                    .unwrap();
                    model.insert(vec![field], (vec![value], Some(now_ms + at)));
                }
                Step::Replace(field, value) => {
                    tx.make::<Hash, _>(KEY, "hincrby", |hash| hash.replace(&[field], &[value])).unwrap();
                    model.entry(vec![field]).or_default().0 = vec![value];
                }
                Step::SetMoment(field, at) => {
                    let at_ms = at.map(|at| now_ms + at);
                    if let Some((_, moment)) = model.get_mut(&[field][..]) {
                        if *moment != at_ms {
                            expire(&mut tx, &[field], at_ms);
                        }
                        *moment = at_ms;
                    }
                }
                Step::Remove(field) => {
                    let removed = tx.change::<Hash, _>(KEY, "hdel", |hash| hash.remove(&[field])).unwrap();
                    prop_assert_eq!(removed.unwrap_or(false), model.remove(&[field][..]).is_some());
                }
                Step::Free => tx.free_expired(KEY),
                Step::Advance(ms) => {
                    drop(tx);
                    advance(&keyspace, ms);
                    let now_ms = keyspace.clock().now_ms();
                    model.retain(|_, (_, at_ms)| at_ms.is_none_or(|at_ms| at_ms > now_ms));
                    check(&keyspace, &model);
                    continue;
                }
                Step::Sweep => {
                    drop(tx);
                    keyspace.begin_all(0).unwrap().free_all_expired();
                    let size = keyspace.begin_all(0).unwrap().database_size();
                    let has_moments = model.values().any(|(_, at_ms)| at_ms.is_some());
                    let expected = (usize::from(!model.is_empty()), usize::from(has_moments));
                    prop_assert_eq!((size.keys, size.field_expiring), expected);
                    continue;
                }
            }
            tx.commit();
            drop(tx);
            check(&keyspace, &model);
        }
    }
}

#[test]
fn a_field_that_expired_counts_as_a_change_for_those_who_watch_before_it_is_freed() {
    let keyspace = keyspace();
    let mut tx = keyspace.begin(0, KEY).unwrap();
    let now_ms = tx.now_ms();
    for (field, at) in [(b"a", 10), (b"b", 20), (b"c", 1000)] {
        tx.make::<Hash, _>(KEY, "hset", |hash| hash.insert_until(field, b"v", now_ms + at)).unwrap();
    }
    drop(tx);
    advance(&keyspace, 10);
    let mut watching = Watching::default();
    keyspace.begin(0, KEY).unwrap().watch(&mut watching, KEY);
    let is_overtaken = || keyspace.begin(0, KEY).unwrap().is_overtaken(&watching);
    assert!(!is_overtaken(), "the field had expired before it was watched");
    advance(&keyspace, 10);
    assert!(is_overtaken());
}

#[test]
fn the_sweep_frees_fields_and_then_the_hash() {
    let keyspace = keyspace();
    let at_ms = keyspace.clock().now_ms() + 1000;
    let fields: Vec<[u8; 2]> = (0..1000_u16).map(u16::to_be_bytes).collect();
    for key in [KEY, b"whole"] {
        let mut tx = keyspace.begin(0, key).unwrap();
        tx.make::<Hash, _>(key, "hset", |hash| {
            fields.iter().for_each(|field| hash.insert_until(field, b"v", at_ms));
        })
        .unwrap();
    }
    keyspace.begin(0, KEY).unwrap().make::<Hash, _>(KEY, "hset", |hash| hash.insert(b"stays", b"v")).unwrap();
    keyspace.begin(0, b"other").unwrap().put(b"other", b"v", Expiry::At(at_ms));
    let (mut sweep, pace) =
        (crate::keyspace::expiry::Sweep::default(), crate::keyspace::expiry::Pace::new(10, 1));
    while sweep.slice(&keyspace, pace, |_| ()) != pace.rest {}
    assert_eq!(keyspace.begin_all(0).unwrap().counters().expired_fields, 0);
    advance(&keyspace, 1000);
    while sweep.slice(&keyspace, pace, |_| ()) != pace.rest {}
    let tx = keyspace.begin_all(0).unwrap();
    let (size, counters) = (tx.database_size(), tx.counters());
    assert_eq!((size.keys, size.expiring, size.field_expiring), (1, 0, 0));
    assert_eq!((counters.expired, counters.expired_fields), (1, 2000));
}
