//! A sequence against the standard library's: with small pages and branches, so that few records make a deep
//! tree.

use proptest::collection::vec;
use proptest::prelude::*;

use super::branch::{KIDS_MAX, room_for};
use super::*;

#[derive(Clone, Debug)]
enum Step {
    Insert(prop::sample::Index, Vec<u8>),
    Push(Vec<u8>),
    PushMany(Vec<Vec<u8>>),
    PushFront(Vec<u8>),
    Replace(prop::sample::Index, Vec<u8>),
    Remove(prop::sample::Index, usize),
    Share,
    Swap,
    Drop,
}

fn record() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        60 => vec(any::<u8>(), 0..20),
        4 => vec(any::<u8>(), 100..400),
        1 => (65_000..66_000usize).prop_map(|size| vec![b'r'; size]),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        20 => (index(), record()).prop_map(|(at, record)| Step::Insert(at, record)),
        10 => record().prop_map(Step::Push),
        10 => record().prop_map(Step::PushFront),
        10 => (index(), record()).prop_map(|(at, record)| Step::Replace(at, record)),
        20 => (index(), 1..2usize).prop_map(|(at, count)| Step::Remove(at, count)),
        1 => (index(), 0..200usize).prop_map(|(at, count)| Step::Remove(at, count)),
        1 => vec(record(), 0..400).prop_map(Step::PushMany),
        1 => Just(Step::Share),
        1 => Just(Step::Swap),
        1 => Just(Step::Drop),
    ]
}

/// Bytes, records and depth, counted; every count on the way is checked.
fn recount(node: &Node, is_root: bool) -> (usize, usize, usize) {
    match node {
        Node::Page(page) => {
            assert!(is_root || page.len() > 0);
            assert!(page.used() <= PAGE_BYTES_MAX || page.len() == 1);
            (page.bytes(), page.len(), 0)
        }
        Node::Branch(branch) => {
            assert!((1..=KIDS_MAX).contains(&branch.kids.len()));
            assert_eq!(branch.kids.capacity(), room_for(branch.kids.len()));
            let kids: Vec<_> = branch.kids.iter().map(|kid| recount(&kid.node, false)).collect();
            for (kid, (_, len, depth)) in branch.kids.iter().zip(&kids) {
                assert_eq!((*len, *depth), (kid.len, kids[0].2));
            }
            let bytes = kids.iter().map(|kid| kid.0).sum::<usize>() + branch.bytes();
            (bytes, kids.iter().map(|kid| kid.1).sum(), kids[0].2 + 1)
        }
    }
}

#[track_caller]
fn check(sequence: &Sequence, model: &[Vec<u8>]) {
    let (bytes, len, _) = recount(&sequence.root, true);
    assert_eq!((sequence.bytes(), sequence.len()), (bytes, len));
    assert_eq!(sequence.len(), model.len());
    assert!(sequence.range(0..usize::MAX).eq(model.iter().map(|record| &record[..])));
    assert!(sequence.range(0..len).rev().eq(model.iter().rev().map(|record| &record[..])));
    for (position, record) in model.iter().enumerate() {
        assert_eq!(sequence.get(position), Some(&record[..]));
    }
    assert_eq!(sequence.get(len), None);
}

fn numbered(range: Range<u32>) -> Sequence {
    let mut sequence = Sequence::new();
    range.for_each(|n| sequence.insert(sequence.len(), &n.to_be_bytes()));
    sequence
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_sequence_is_a_list_and_copies_never_change(steps in vec(step(), 0..1_000)) {
        let (mut sequence, mut model) = (Sequence::new(), Vec::<Vec<u8>>::new());
        let mut copies: Vec<(Sequence, Vec<Vec<u8>>)> = Vec::new();
        for step in steps {
            match step {
                Step::Insert(at, record) => {
                    let at = at.index(model.len() + 1);
                    sequence.insert(at, &record);
                    model.insert(at, record);
                }
                Step::Push(record) => {
                    sequence.insert(model.len(), &record);
                    model.push(record);
                }
                Step::PushMany(records) => for record in records {
                    sequence.insert(model.len(), &record);
                    model.push(record);
                },
                Step::PushFront(record) => {
                    sequence.insert(0, &record);
                    model.insert(0, record);
                }
                Step::Replace(at, record) => if !model.is_empty() {
                    let at = at.index(model.len());
                    sequence.replace(at, &record);
                    model[at] = record;
                },
                Step::Remove(at, count) => {
                    let at = at.index(model.len() + 1);
                    sequence.remove(at..at + count);
                    model.drain(at..(at + count).min(model.len()));
                }
                Step::Share => copies.push((sequence.share(), model.clone())),
                Step::Swap => if let Some((copy, copied)) = copies.first_mut() {
                    std::mem::swap(&mut sequence, copy);
                    std::mem::swap(&mut model, copied);
                },
                Step::Drop => drop(copies.pop()),
            }
        }
        check(&sequence, &model);
        copies.iter().for_each(|(copy, copied)| check(copy, copied));
        sequence.remove(0..usize::MAX);
        prop_assert_eq!(sequence.bytes(), Sequence::new().bytes());
        copies.iter().for_each(|(copy, copied)| check(copy, copied));
    }

    #[test]
    fn any_range_can_be_removed(
        count in 0..3_000u32, start: prop::sample::Index, end: prop::sample::Index, is_shared: bool,
    ) {
        let mut sequence = numbered(0..count);
        let copy = is_shared.then(|| sequence.share());
        let mut model: Vec<_> = (0..count).map(|n| n.to_be_bytes().to_vec()).collect();
        let range = start.index(model.len() + 1)..end.index(model.len() + 2);
        let mut remains = sequence.remove(range.clone());
        if let Some(copy) = copy {
            check(&copy, &model);
        }
        if !range.is_empty() {
            model.drain(range.start..range.end.min(model.len()));
        }
        check(&sequence, &model);
        while !remains.free_some(1_000) {}
        // The bounds are in order, too.
        for (position, record) in model.iter().enumerate() {
            prop_assert_eq!(sequence.search(record), Ok(position));
        }
    }

    #[test]
    fn sorted_records_are_found_where_they_are(
        changes in vec((any::<bool>(), 0..3u8, 0..200u8, 0..4usize), 0..2_000),
    ) {
        let (mut sequence, mut model) = (Sequence::new(), Vec::<Vec<u8>>::new());
        for (insert, score, member, more) in changes {
            // Few scores, so that many bounds are equal; and records that are shorter than a bound.
            let record = [&[0, 0, 0, 0, 0, 0, 0, score][more..], &[member]].concat();
            let found = sequence.search(&record);
            prop_assert_eq!(found, model.binary_search(&record));
            match found {
                Ok(at) if !insert => {
                    sequence.remove(at..at + 1);
                    model.remove(at);
                }
                Err(at) if insert => {
                    sequence.insert(at, &record);
                    model.insert(at, record);
                }
                _ => {}
            }
        }
        check(&sequence, &model);
    }
}

#[test]
fn pages_that_were_pushed_to_are_full() {
    for front in [false, true] {
        let mut sequence = Sequence::new();
        (0..1_000u32).for_each(|n| sequence.insert(if front { 0 } else { n as usize }, &n.to_be_bytes()));
        let mut pages = Vec::new();
        collect(&sequence.root, &mut pages);
        let room = 2 * PAGE_BYTES_MAX;
        let used: usize = pages.iter().map(|page| page.len() + 40).sum();
        // A full page has room for one record more, and what the C library rounds up to.
        assert!(used < pages.len() * (PAGE_BYTES_MAX + 40 + 6 + 16) + room);
        assert!(pages.len() < 1_000 * 6 / PAGE_BYTES_MAX + 5, "{} pages", pages.len());
    }
}

#[test]
fn what_was_large_does_not_stay_so() {
    let mut sequence = numbered(0..5_000);
    for n in 0..4_900 {
        let at = n * 7 % sequence.len();
        sequence.remove(at..at + 1);
    }
    assert!(recount(&sequence.root, true).0 < 40 * 100);
    let mut sequence = numbered(0..5_000);
    drop(sequence.remove(50..4_950));
    assert!(recount(&sequence.root, true).0 < 40 * 100);
}

#[test]
fn nodes_that_were_cut_out_are_freed_in_steps() {
    let mut sequence = numbered(0..5_000);
    let (copy, bytes) = (sequence.share(), sequence.bytes());
    let mut remains = sequence.remove(10..4_000);
    assert!(copy.bytes() == bytes && sequence.bytes() < bytes / 3);
    drop(copy);
    let mut steps = 1;
    while !remains.free_some(1_000) {
        steps += 1;
    }
    assert!((bytes / 2_000..bytes / 1_000).contains(&steps), "{steps} steps for {bytes} bytes");
}

#[test]
fn freeing_ends_and_frees_everything() {
    let mut sequence = numbered(0..5_000);
    let mut pages = Vec::new();
    collect(&sequence.root, &mut pages);
    let pages: Vec<_> = pages.into_iter().map(|page| Arc::downgrade(&page)).collect();
    let bytes = sequence.bytes();
    let mut remains = sequence.clear();
    check(&sequence, &[]);
    let mut steps = 1;
    while !remains.free_some(2_000) {
        steps += 1;
    }
    // A step may free a node more than it should.
    assert!((bytes / 2_500..=bytes / 2_000 + 1).contains(&steps), "{steps} steps for {bytes} bytes");
    assert!(pages.iter().all(|page| page.strong_count() == 0));
    assert!(remains.free_some(1) && sequence.clear().free_some(1));
    sequence.insert(0, b"new");
    check(&sequence, &[b"new".to_vec()]);
}

#[test]
fn freeing_leaves_a_copy_alone() {
    let mut sequence = numbered(0..1_000);
    let copy = sequence.share();
    assert!(sequence.clear().free_some(1), "all nodes are the copy's");
    check(&copy, &(0..1_000u32).map(|n| n.to_be_bytes().to_vec()).collect::<Vec<_>>());
}

#[test]
fn a_write_after_sharing_copies_one_page() {
    let mut sequence = numbered(0..1_000);
    let copy = sequence.share();
    sequence.replace(500, b"four");
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    collect(&sequence.root, &mut ours);
    collect(&copy.root, &mut theirs);
    let differing = ours.iter().zip(&theirs).filter(|(a, b)| !Arc::ptr_eq(a, b)).count();
    assert_eq!((differing, ours.len()), (1, theirs.len()));
}

/// All pages, in their order.
fn collect(node: &Node, pages: &mut Vec<Arc<[u8]>>) {
    match node {
        Node::Page(page) => pages.push(page.clone().into_allocation()),
        Node::Branch(branch) => branch.kids.iter().for_each(|kid| collect(&kid.node, pages)),
    }
}
