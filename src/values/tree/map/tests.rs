//! A map against the standard library's: with small pages, so that few elements make a deep trie.

use std::collections::{HashMap, HashSet};

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Insert(Vec<u8>, Vec<u8>),
    Append(Vec<u8>, u8),
    Remove(Vec<u8>),
    Share,
    Swap,
    Drop,
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => (0..400u32).prop_map(|n| format!("name{n}").into_bytes()),
        1 => vec(any::<u8>(), 0..300),
    ]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        20 => vec(any::<u8>(), 0..20),
        2 => vec(any::<u8>(), 100..400),
        1 => (65_000..66_000usize).prop_map(|size| vec![b'v'; size]),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        60 => (name(), value()).prop_map(|(name, value)| Step::Insert(name, value)),
        5 => (name(), any::<u8>()).prop_map(|(name, byte)| Step::Append(name, byte)),
        40 => name().prop_map(Step::Remove),
        1 => Just(Step::Share),
        1 => Just(Step::Swap),
        1 => Just(Step::Drop),
    ]
}

type Model = HashMap<Vec<u8>, Vec<u8>>;

/// Bytes and elements, counted; every count on the way is checked.
fn recount(node: &Node) -> (usize, usize) {
    match node {
        Node::Page(page) => (page.bytes(), page.len()),
        Node::Branch(branch) => {
            assert_eq!(branch.kids.len(), branch.starts.count_ones() as usize);
            assert_eq!(branch.kids.capacity(), branch.kids.len());
            for slot in 0..SLOTS {
                let before = branch.starts << (SLOTS - 1 - slot);
                assert_eq!(branch.index(slot), before.count_ones() as usize - 1);
            }
            let mut sum = (branch_bytes(branch.kids.len()), 0);
            for kid in &branch.kids {
                let (bytes, len) = recount(&kid.node);
                assert_eq!(len, kid.len);
                sum = (sum.0 + bytes, sum.1 + len);
            }
            sum
        }
    }
}

#[track_caller]
fn check(map: &Map, model: &Model) {
    assert_eq!((map.bytes(), map.len()), recount(&map.root));
    assert_eq!(map.len(), model.len());
    for (name, value) in model {
        assert_eq!(map.get(name), Some(&value[..]));
    }
    let found: Vec<_> = map.iter().collect();
    assert_eq!(found.len(), model.len());
    for (position, (name, value)) in found.into_iter().enumerate() {
        assert_eq!(model.get(name).map(|value| &value[..]), Some(value));
        assert_eq!(map.at(position), Some((name, value)));
    }
    assert_eq!(map.at(map.len()), None);
}

fn numbered(range: std::ops::Range<u32>) -> Map {
    let mut map = Map::new(7);
    range.for_each(|n| assert!(map.insert(format!("name{n}").as_bytes(), &n.to_le_bytes())));
    map
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_map_is_a_map_and_copies_never_change(steps in vec(step(), 0..1_000), seed: u64) {
        let (mut map, mut model) = (Map::new(seed), Model::new());
        let mut copies: Vec<(Map, Model)> = Vec::new();
        for step in steps {
            match step {
                Step::Insert(name, value) => {
                    let is_new = map.insert(&name, &value);
                    prop_assert_eq!(is_new, model.insert(name, value).is_none());
                }
                Step::Append(name, byte) => {
                    map.update(&name, |old| old.map(|old| [old, &[byte]].concat()));
                    model.entry(name).and_modify(|value| value.push(byte));
                }
                Step::Remove(name) => prop_assert_eq!(map.take(&name, <[u8]>::to_vec), model.remove(&name)),
                Step::Share => copies.push((map.share(), model.clone())),
                Step::Swap => if let Some((copy, copied)) = copies.first_mut() {
                    std::mem::swap(&mut map, copy);
                    std::mem::swap(&mut model, copied);
                },
                Step::Drop => drop(copies.pop()),
            }
        }
        check(&map, &model);
        copies.iter().for_each(|(copy, copied)| check(copy, copied));
        let names: Vec<_> = model.drain().collect();
        names.iter().for_each(|(name, _)| assert!(map.remove(name)));
        prop_assert_eq!(map.bytes(), Map::new(seed).bytes());
        copies.iter().for_each(|(copy, copied)| check(copy, copied));
    }

    #[test]
    fn a_scan_finds_exactly_once_what_stays(
        (before, after) in (0..600u32, 0..600u32), changes in vec((0..600u32, any::<bool>()), 0..1_200),
    ) {
        let mut map = numbered(0..before.max(after));
        (after..before).for_each(|n| assert!(map.remove(format!("name{n}").as_bytes())));
        let mut staying: HashSet<Vec<u8>> = map.iter().map(|(name, _)| name.to_vec()).collect();
        let (mut found, mut cursor, mut changes) = (Vec::new(), 0, changes.into_iter());
        loop {
            let (portion, next) = map.scan(cursor);
            found.extend(portion.map(|(name, _)| name.to_vec()));
            if next == 0 {
                break;
            }
            cursor = next;
            for (n, insert) in changes.by_ref().take(30) {
                let name = format!("name{n}").into_bytes();
                if insert {
                    map.insert(&name, b"");
                } else {
                    map.remove(&name);
                    staying.remove(&name);
                }
            }
        }
        for name in staying {
            prop_assert_eq!(found.iter().filter(|other| **other == name).count(), 1);
        }
    }

    #[test]
    fn a_scan_takes_any_cursor(cursor: u64) {
        let map = numbered(0..500);
        let (portion, next) = map.scan(cursor);
        prop_assert!(portion.count() < 100 && next.reverse_bits().wrapping_sub(1) >= cursor.reverse_bits());
    }
}

#[test]
fn cursors_are_small_numbers() {
    let map = numbered(0..10_000);
    let mut cursor = 0;
    loop {
        cursor = map.scan(cursor).1;
        assert!(cursor < 1 << 24, "{cursor}");
        if cursor == 0 {
            break;
        }
    }
}

#[test]
fn freeing_ends_and_frees_everything() {
    let mut map = numbered(0..5_000);
    let mut pages = Vec::new();
    collect(&map.root, &mut pages);
    let pages: Vec<_> = pages.into_iter().map(|page| Arc::downgrade(&page)).collect();
    let bytes = map.bytes();
    let mut remains = map.clear();
    assert!(map.is_empty() && map.get(b"name7").is_none());
    check(&map, &Model::new());
    let mut steps = 1;
    while !remains.free_some(2_000) {
        steps += 1;
    }
    // A step may free a node more than it should.
    assert!((bytes / 3_500..=bytes / 2_000 + 1).contains(&steps), "{steps} steps for {bytes} bytes");
    assert!(pages.iter().all(|page| page.strong_count() == 0));
    assert!(remains.free_some(1) && map.clear().free_some(1));
    assert!(map.insert(b"name7", b""));
    check(&map, &Model::from([(b"name7".to_vec(), Vec::new())]));
}

#[test]
fn freeing_leaves_a_copy_alone() {
    let mut map = numbered(0..1_000);
    let copy = map.share();
    assert!(map.clear().free_some(1), "all nodes are the copy's");
    assert_eq!(copy.iter().count(), 1_000);
    assert_eq!((copy.bytes(), copy.len()), recount(&copy.root));
}

#[test]
fn a_write_after_sharing_copies_one_page() {
    let mut map = numbered(0..1_000);
    let copy = map.share();
    assert!(!map.insert(b"name7", b"four"));
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    collect(&map.root, &mut ours);
    collect(&copy.root, &mut theirs);
    let differing = ours.iter().zip(&theirs).filter(|(a, b)| !Arc::ptr_eq(a, b)).count();
    assert_eq!((differing, ours.len()), (1, theirs.len()));
}

#[test]
fn copies_may_be_used_and_freed_by_several_threads() {
    let maps: Vec<_> = {
        let map = numbered(0..2_000);
        (0..4).map(|_| map.share()).collect()
    };
    std::thread::scope(|scope| {
        for (thread, mut map) in maps.into_iter().enumerate() {
            scope.spawn(move || {
                for n in 0..2_000 {
                    map.insert(format!("name{n}").as_bytes(), &[thread as u8]);
                }
                assert!(map.iter().all(|(_, value)| value == [thread as u8]));
                let mut remains = map.clear();
                while !remains.free_some(700) {}
            });
        }
    });
}

#[test]
fn names_whose_hashes_are_alike_share_a_page() {
    let mut map = numbered(0..300);
    // The page of one name, as deep as it may be.
    let hash = map.hash(b"name7");
    while map.page(hash).1 < DEPTH_MAX {
        map.split(hash);
    }
    assert_eq!((map.bytes(), map.len()), recount(&map.root));
    assert!(!map.insert(b"name7", &[7; 10_000]));
    let spot = map.spot(hash, b"other");
    assert!(!spot.is_full_for(10_000));
    assert_eq!(map.get(b"name7"), Some(&[7; 10_000][..]));
    (0..300).for_each(|n| assert!(map.remove(format!("name{n}").as_bytes())));
    assert_eq!(map.bytes(), Map::new(7).bytes());
}

#[test]
fn a_large_record_has_its_own_page_and_goes_without_trace() {
    let mut map = numbered(0..100);
    assert!(map.insert(b"large", &[1; 1 << 20]));
    assert!(map.insert(&[b'n'; 70_000], b"a long name"));
    assert!(map.bytes() < (1 << 20) + 70_000 + 40_000);
    assert_eq!(map.get(b"large"), Some(&[1; 1 << 20][..]));
    assert_eq!(map.get(&[b'n'; 70_000]), Some(&b"a long name"[..]));
    assert!(map.remove(b"large") && map.remove(&[b'n'; 70_000]));
    assert!(map.bytes() < 40_000 && map.iter().count() == 100);
    assert_eq!((map.bytes(), map.len()), recount(&map.root));
}

/// All pages, in their order.
fn collect(node: &Node, pages: &mut Vec<Arc<[u8]>>) {
    match node {
        Node::Page(page) => pages.push(page.clone().into_allocation()),
        Node::Branch(branch) => branch.kids.iter().for_each(|kid| collect(&kid.node, pages)),
    }
}

/// The constants with which foldhash's `FixedState` combines a name. A name of which eight bytes are such a
/// constant has a hash there that does not depend on its other eight bytes: one factor of the product is 0.
const CONSTANTS: [u64; 6] = [
    0xc0ac_29b7_c97c_50dd,
    0x3f84_d5b5_b547_0917,
    0x9216_d5d9_8979_fb1b,
    0xd131_0ba6_98df_b5ac,
    0x2ffd_72db_d01a_dfb7,
    0xb8e1_afed_6a26_7e96,
];

#[test]
fn names_that_contain_a_constant_of_the_library_have_different_hashes() {
    let map = Map::new(7);
    for constant in CONSTANTS.map(u64::to_ne_bytes) {
        for length in [12_usize, 16, 24, 32, 48, 64, 96, 200] {
            for at in (0..=length - 8).step_by(4) {
                let name = |number: u32| {
                    let mut name = vec![0; length];
                    let free = if at >= 4 { 0 } else { at + 8 };
                    name[free..free + 4].copy_from_slice(&number.to_ne_bytes());
                    name[at..at + 8].copy_from_slice(&constant);
                    name
                };
                let hashes: HashSet<u64> = (0..1_000).map(|number| map.hash(&name(number))).collect();
                assert_eq!(hashes.len(), 1_000, "{constant:x?} at {at} of {length} bytes");
            }
        }
    }
}
