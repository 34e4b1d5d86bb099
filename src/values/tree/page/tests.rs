//! A page against a list of records.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

type Model = Vec<([u8; 2], Vec<u8>)>;

#[derive(Clone, Debug)]
enum Step {
    Splice(prop::sample::Index, usize, Option<([u8; 2], Vec<u8>)>),
    /// What lists do most.
    PushFront(Vec<u8>),
    PopFront,
    Push(Vec<u8>),
    Pop,
    Part(prop::sample::Index, usize, bool),
    KeepOnly(prop::sample::Index, bool),
    OverwriteEnd(prop::sample::Index, u8),
    Share,
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
    let new = prop::option::weighted(0.7, (any::<[u8; 2]>(), record()));
    prop_oneof![
        4 => (index(), 0..3usize, new).prop_map(|(at, gone, new)| Step::Splice(at, gone, new)),
        4 => record().prop_map(Step::PushFront),
        4 => Just(Step::PopFront),
        4 => record().prop_map(Step::Push),
        4 => Just(Step::Pop),
        1 => (index(), 0..60usize, any::<bool>()).prop_map(|(at, count, front)| Step::Part(at, count, front)),
        1 => (index(), any::<bool>()).prop_map(|(at, is_behind)| Step::KeepOnly(at, is_behind)),
        2 => (index(), any::<u8>()).prop_map(|(at, byte)| Step::OverwriteEnd(at, byte)),
        1 => Just(Step::Share),
    ]
}

fn splice(page: &mut Page<2>, model: &mut Model, gone: Range<usize>, new: Option<([u8; 2], Vec<u8>)>) {
    let parts = |record: &[u8]| (record[..record.len() / 2].to_vec(), record[record.len() / 2..].to_vec());
    let expected = page.used_after(gone.clone(), new.as_ref().map(|(_, record)| record.len()));
    let used = match &new {
        Some((key, record)) => {
            let (a, b) = parts(record);
            page.splice(gone.clone(), Some(Record { key: *key, parts: &[&a, &b] }))
        }
        None => page.splice(gone.clone(), None),
    };
    model.splice(gone, new);
    assert_eq!((used, used), (expected, page.used()));
}

#[track_caller]
fn check(page: &Page<2>, model: &Model) {
    assert_eq!(page.len(), model.len());
    assert!(page.records().eq(model.iter().map(|(key, record)| (&key[..], &record[..]))));
    assert_eq!(page.keys(), model.iter().flat_map(|(key, _)| *key).collect::<Vec<u8>>());
    assert!(page.bytes() >= page.used());
    let sizes: Vec<_> = model.iter().map(|(_, record)| record.len()).collect();
    if sizes.len() > 1 {
        let (middle, half) = (page.middle(), sizes.iter().sum::<usize>() / 2);
        assert!((1..sizes.len()).contains(&middle));
        assert!(middle == 1 || sizes[..middle].iter().sum::<usize>() <= half);
        assert!(middle + 1 == sizes.len() || sizes[..=middle].iter().sum::<usize>() >= half);
    }
}

proptest! {
    #[test]
    fn a_page_is_a_list_and_a_copy_never_changes(steps in vec(step(), 0..300)) {
        let (mut page, mut model) = (Page::<2>::empty(), Model::new());
        let mut copies = Vec::new();
        for step in steps {
            let count = model.len();
            match step {
                Step::Splice(at, gone, new) => {
                    let start = at.index(count + 1);
                    splice(&mut page, &mut model, start..(start + gone).min(count), new);
                }
                Step::PushFront(record) => splice(&mut page, &mut model, 0..0, Some(([1, 2], record))),
                Step::PopFront => splice(&mut page, &mut model, 0..count.min(1), None),
                Step::Push(record) => splice(&mut page, &mut model, count..count, Some(([3, 4], record))),
                Step::Pop => splice(&mut page, &mut model, count.saturating_sub(1)..count, None),
                Step::Part(at, part, is_in_front) => {
                    let start = at.index(count + 1);
                    let part = start..(start + part).min(count);
                    let copy = if is_in_front { Page::part_behind_room } else { Page::part };
                    copies.push((std::mem::replace(&mut page, Page::empty()), model.clone()));
                    page = copy(&copies[copies.len() - 1].0, part.clone(), 100);
                    model = model[part].to_vec();
                }
                Step::KeepOnly(at, is_behind_room) => if count > 0 {
                    let (at, bytes) = (at.index(count), page.bytes());
                    let is_shared = copies.last().is_some_and(|(copy, _)| Arc::ptr_eq(&copy.0, &page.0));
                    assert_eq!(page.keep_only(at, is_behind_room), !is_shared);
                    if !is_shared {
                        model = vec![model[at].clone()];
                        assert_eq!(page.bytes(), bytes);
                    }
                },
                Step::OverwriteEnd(at, byte) => if count > 0 {
                    let at = at.index(count);
                    if let Some(last) = model[at].1.last_mut() {
                        *last = byte;
                        page.overwrite_end(at, &[byte]);
                    }
                },
                Step::Share => copies.push((page.clone(), model.clone())),
            }
            check(&page, &model);
        }
        copies.iter().for_each(|(copy, copied)| check(copy, copied));
    }

    #[test]
    fn records_in_order_are_found(mut records in vec(record(), 0..60), asked in record()) {
        records.sort();
        let page = Page::<0>::gather(records.iter().map(|record| (&[][..], &record[..])), 0);
        let expected = records.partition_point(|record| *record < asked);
        prop_assert_eq!(page.partition_point(|record| record < &asked[..]), expected);
    }
}

#[test]
fn at_the_ends_no_record_moves() {
    let mut page = Page::<0>::gather([(&[][..], &b"middle"[..]); 9].into_iter(), 0);
    page = page.part_behind_room(0..9, 100);
    let place = |page: &Page<0>| page.record(page.len() / 2).as_ptr();
    let before = place(&page);
    page.splice(0..0, Some(Record { key: [], parts: &[b"first"] }));
    page.splice(0..0, Some(Record { key: [], parts: &[b"zeroth"] }));
    page.splice(0..2, None);
    assert_eq!(place(&page), before);
    page.splice(0..1, None);
    page.splice(7..8, None);
    assert_eq!((place(&page), page.len()), (before, 7));
}
