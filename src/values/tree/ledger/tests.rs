//! Ledgers beside a model.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

type Model = BTreeMap<EntryId, Vec<Vec<u8>>>;

fn read(entry: Entry<'_>) -> (EntryId, Vec<Vec<u8>>) {
    let mut digits = itoa::Buffer::new();
    let fields = entry.fields.flat_map(|(name, value)| [name, value]);
    (entry.id, fields.map(|part| part.text(&mut digits).to_vec()).collect())
}

fn check(ledger: &Ledger, model: &Model) {
    let all: Vec<_> = ledger.range(EntryId::ZERO, EntryId::MAX).map(read).collect();
    let expected: Vec<_> = model.clone().into_iter().collect();
    assert_eq!((ledger.len(), &all), (model.len(), &expected));
    let mut back: Vec<_> = ledger.range_back(EntryId::ZERO, EntryId::MAX).map(read).collect();
    back.reverse();
    assert_eq!(back, expected);
}

/// Adds, deletes and trims entries at random, with copies in between that must not change.
#[test]
fn a_ledger_is_what_its_model_is() {
    let mut random = fastrand::Rng::with_seed(7);
    for entries_max in [1, 3, 10, 0] {
        let (mut ledger, mut model) = (Ledger::default(), Model::new());
        let mut copies: Vec<(Ledger, Model)> = Vec::new();
        for step in 0..3000_u64 {
            let id = EntryId { ms: ledger.last_id.ms + random.u64(0..3), seq: step + 1 };
            match random.u32(0..20) {
                0 => copies.push((ledger.share(), model.clone())),
                1..5 => {
                    let ids: Vec<EntryId> = model.keys().copied().collect();
                    let id = if ids.is_empty() { id } else { ids[random.usize(..ids.len())] };
                    assert_eq!(ledger.delete(id), model.remove(&id).is_some());
                    assert!(!ledger.delete(id) && ledger.get(id).is_none());
                }
                5 => {
                    let keep = if random.bool() {
                        Keep::Last(random.usize(0..=model.len()))
                    } else {
                        Keep::From(EntryId { seq: random.u64(0..=step), ..ledger.last_id })
                    };
                    let is_approximate = random.bool();
                    let limit = if is_approximate { random.usize(0..30) } else { 0 };
                    let (trimmed, mut remains) =
                        ledger.trim(Trim { keep, is_approximate, limit, references: References::Stay });
                    while !remains.free_some(100) {}
                    let goes = match keep {
                        Keep::Last(count) => model.len().saturating_sub(count),
                        Keep::From(id) => model.keys().filter(|other| **other < id).count(),
                    };
                    assert!(trimmed <= goes && (is_approximate || trimmed == goes));
                    assert!(limit == 0 || trimmed <= limit);
                    (0..trimmed).for_each(|_| drop(model.pop_first()));
                }
                _ => {
                    let names = if random.u32(0..5) == 0 { "other" } else { "name" };
                    let value = random.u64(..).to_string().into_bytes();
                    let fields = vec![names.as_bytes().to_vec(), value];
                    ledger.add(id, fields.iter().map(Vec::as_slice), 400, entries_max);
                    model.insert(id, fields);
                }
            }
            let (from, to) = (EntryId { seq: 0, ..id }, EntryId { ms: id.ms + 1, seq: step / 2 });
            let some: Vec<_> = ledger.range(from, to).map(|entry| entry.id).collect();
            let expected: Vec<_> =
                model.range(from..).map(|(id, _)| *id).take_while(|id| *id <= to).collect();
            assert_eq!(some, expected);
            if step % 100 == 0 {
                check(&ledger, &model);
            }
        }
        check(&ledger, &model);
        for (copy, model) in &copies {
            check(copy, model);
        }
        let mut loaded = Ledger::default();
        for (id, listpack) in ledger.listpacks() {
            loaded.append_listpack(id, listpack.to_vec()).unwrap();
        }
        check(&loaded, &model);
        let mut remains = ledger.clear();
        while !remains.free_some(1000) {}
        assert_eq!(ledger.bytes(), Ledger::default().bytes());
    }
}

/// Delivers and acknowledges entries at random.
#[test]
fn a_group_is_what_its_model_is() {
    let mut random = fastrand::Rng::with_seed(8);
    let mut ledger = Ledger::default();
    assert!(ledger.add_group(b"g", EntryId::ZERO, None) && !ledger.add_group(b"g", EntryId::ZERO, None));
    let before = ledger.bytes();
    let mut model: BTreeMap<EntryId, Delivery> = BTreeMap::new();
    // Those that no consumer has, in the order in which they were given back.
    let mut released: Vec<EntryId> = Vec::new();
    let mut copies = Vec::new();
    for step in 0..4000_u64 {
        let id = EntryId { ms: random.u64(0..40), seq: random.u64(0..5) };
        let name = [b'a' + random.u8(0..5)];
        if random.u32(0..200) == 0 {
            copies.push((ledger.share(), model.clone(), released.clone()));
        }
        ledger.change_group(b"g", |group| match random.u32(0..50) {
            0 => {
                let number = group.find_consumer(&name);
                let own = model.values().filter(|delivery| Some(delivery.consumer) == number).count();
                let removed = number.map_or(0, |number| group.remove_consumer(number).0);
                assert_eq!(removed, own);
                model.retain(|_, delivery| Some(delivery.consumer) != number);
            }
            1..20 => {
                assert_eq!(group.acknowledge(id), model.remove(&id).is_some());
                released.retain(|other| *other != id);
            }
            20..28 => {
                group.deliver(id, Delivery::released(step));
                model.insert(id, Delivery::released(step));
                released.retain(|other| *other != id);
                released.push(id);
            }
            28..32 => drop(group.index_some()),
            32..35 => {
                let (consumer, _) = group.add_consumer(&name, step);
                let delivery = Delivery { consumer, at_ms: step, count: 1 };
                let last = model.last_key_value().map_or(id, |(last, _)| *last);
                let behind = (1..4).map(|seq| EntryId { ms: last.ms, seq: last.seq + seq });
                let ids: BTreeSet<EntryId> = [id].into_iter().chain(behind).collect();
                group.deliver_all(&ids.iter().copied().collect::<Vec<_>>(), delivery);
                released.retain(|other| !ids.contains(other));
                model.extend(ids.into_iter().map(|id| (id, delivery)));
            }
            _ => {
                released.retain(|other| *other != id);
                let (consumer, _) = group.add_consumer(&name, step);
                let delivery = Delivery { consumer, at_ms: step, count: random.u64(..) >> random.u32(0..64) };
                group.deliver(id, delivery);
                model.insert(id, delivery);
            }
        });
    }
    copies.push((ledger.share(), model.clone(), released.clone()));
    for (ledger, model, released) in &copies {
        let group = ledger.group(b"g").unwrap();
        assert!(group.released().eq(released.iter().copied()));
        assert_eq!(group.released_count(), released.len());
        let all: Vec<_> = group.pending(EntryId::ZERO, EntryId::MAX).collect();
        assert_eq!(all, model.iter().map(|(id, delivery)| (*id, *delivery)).collect::<Vec<_>>());
        assert!(group.consumers().map(|(_, consumer)| consumer.name()).is_sorted());
        for (number, consumer) in group.consumers() {
            let own: Vec<_> = consumer.pending(EntryId::ZERO, EntryId::MAX).collect();
            let expected = model.iter().filter(|(_, delivery)| delivery.consumer == number);
            assert_eq!(own, expected.map(|(id, _)| *id).collect::<Vec<_>>());
        }
    }
    for name in [b"a", b"b", b"c", b"d", b"e"] {
        ledger.change_group(b"g", |group| {
            group.find_consumer(name).map(|number| group.remove_consumer(number).0)
        });
    }
    ledger.change_group(b"g", |group| {
        let own: Vec<EntryId> = model.keys().copied().filter(|id| !released.contains(id)).collect();
        assert!(own.into_iter().all(|id| group.pending_at(id).is_none()));
        while !group.index_some() {}
        assert!(group.by_idle_time().eq(released.iter().map(|id| (*id, 0))));
        // Those that were deleted are forgotten by the index alone.
        let (gone, left) = released.split_at(released.len() / 2);
        group.forget_idle(gone);
        assert!(group.by_idle_time().eq(left.iter().map(|id| (*id, 0))));
        assert_eq!(group.released().count(), released.len());
        assert!(released.iter().all(|id| group.acknowledge(*id)) && group.released_count() == 0);
    });
    assert!(ledger.bytes() < before + 1000);
    assert!(ledger.remove_group(b"g").is_some() && ledger.groups().len() == 0);
}

/// Counted with redis-server 7.0.15.
#[test]
fn nodes_of_the_radix_tree_are_counted_as_redis_has_them() {
    let key = |ms: u64, seq: u64| u128::from_be_bytes(EntryId { ms, seq }.to_bytes());
    assert_eq!(radix_nodes([].into_iter()), 1);
    assert_eq!(radix_nodes([key(1, 1)].into_iter()), 2);
    // A run, the place where the last bytes part, and two leaves.
    assert_eq!(radix_nodes([key(1, 1), key(1, 2)].into_iter()), 4);
    // Two runs behind the place.
    assert_eq!(radix_nodes([key(1, 1), key(2, 1)].into_iter()), 6);
}

/// Consumers get entries some at a time, and are removed in any order.
#[test]
fn the_entries_of_a_consumer_leave_with_it() {
    let mut random = fastrand::Rng::with_seed(11);
    for batch in [1, 2, 40] {
        let (mut ledger, mut model) = (Ledger::default(), BTreeMap::new());
        ledger.add_group(b"g", EntryId::ZERO, None);
        let names = ["a", "b", "c", "d", "e", "f"];
        let mut owner = 0;
        for ms in 1..=2000 {
            let id = EntryId { ms, seq: 0 };
            owner = if ms % batch == 0 { random.usize(0..names.len()) } else { owner };
            ledger.change_group(b"g", |group| {
                let (consumer, _) = group.add_consumer(names[owner].as_bytes(), 0);
                group.deliver(id, Delivery { consumer, at_ms: random.u64(0..9), count: 1 });
            });
            model.insert(id, owner);
        }
        ledger.change_group(b"g", |group| while !group.index_some() {});
        for (number, name) in names.iter().enumerate() {
            let copy = ledger.share();
            let before = model.len();
            model.retain(|_, owner| *owner != number);
            ledger.change_group(b"g", |group| {
                let consumer = group.find_consumer(name.as_bytes()).unwrap();
                let (count, mut remains) = group.remove_consumer(consumer);
                assert_eq!(count, before - model.len());
                while !remains.free_some(1000) {}
                let left: Vec<EntryId> =
                    group.pending(EntryId::ZERO, EntryId::MAX).map(|(id, _)| id).collect();
                assert!(left.iter().eq(model.keys()), "{batch} {name}");
                while !group.index_some() {}
                let mut idle: Vec<(u64, EntryId)> =
                    group.by_idle_time().map(|(id, at_ms)| (at_ms, id)).collect();
                assert!(idle.is_sorted() && idle.len() == left.len());
                idle.sort_by_key(|(_, id)| *id);
                assert!(idle.iter().map(|(_, id)| id).eq(model.keys()));
            });
            assert_eq!(copy.group(b"g").unwrap().pending_count(), before);
        }
    }
}
