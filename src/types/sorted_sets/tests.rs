//! A sorted set against a sorted list, with low limits, so that it is packed as often as it is large. What is
//! logged is replayed on a copy, and every state is saved and loaded again.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::ranges::{Bounds, Edge, End};
use super::*;
use crate::dump::strings::Decoder;
use crate::keyspace::{Change, Expiry, Keyspace, Piece, Shape};
use crate::types;
use crate::values::Value;

/// The most members that are packed, and the most bytes of one.
const LIMIT: Limit = Limit { entries: 12, bytes: 20, integers: 0 };
const KEY: &[u8] = b"k";

#[derive(Clone, Debug)]
enum Step {
    Set(Vec<u8>, f64),
    Remove(Vec<u8>),
    RemoveRange(prop::sample::Index, usize),
    Store(BTreeMap<Vec<u8>, f64>),
}

/// Texts without what the requests of the log are split at.
fn member() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        30 => (0..40_u32).prop_map(|n| format!("m{n}").into_bytes()),
        1 => "[a-z]{0,30}".prop_map(String::into_bytes),
    ]
}

fn score() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => (-3..3_i8).prop_map(f64::from),
        1 => any::<i64>().prop_map(|n| n as f64),
        2 => any::<f64>().prop_filter("a number", |score| !score.is_nan()),
        1 => prop::sample::select(vec![f64::INFINITY, f64::NEG_INFINITY, 0.5, 127.0, 128.0, -129.0, 1e17]),
        1 => prop::sample::select(vec![0.0, -0.0]),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        30 => (member(), score()).prop_map(|(member, score)| Step::Set(member, score)),
        12 => member().prop_map(Step::Remove),
        4 => (any::<prop::sample::Index>(), 0..8_usize).prop_map(|(at, count)| Step::RemoveRange(at, count)),
        1 => (any::<prop::sample::Index>(), 0..90_usize).prop_map(|(at, count)| Step::RemoveRange(at, count)),
        1 => proptest::collection::btree_map(member(), score(), 0..20).prop_map(Step::Store),
        1 => proptest::collection::btree_map("[a-z]{3}".prop_map(String::into_bytes), score(), 90..120)
            .prop_map(Step::Store),
    ]
}

type Model = BTreeMap<Vec<u8>, f64>;

fn ordered(model: &Model) -> Vec<(&[u8], f64)> {
    let mut all: Vec<_> = model.iter().map(|(member, score)| (&member[..], *score)).collect();
    all.sort_by(|(a, x), (b, y)| x.partial_cmp(y).expect("numbers").then(a.cmp(b)));
    all
}

fn keyspace() -> Keyspace {
    let keyspace = Keyspace::new(Shape::of(1, types::ALL), Default::default(), Default::default());
    keyspace.limits().set(SORTED_SET_KIND, LIMIT);
    keyspace
}

fn change(keyspace: &Keyspace, change: impl FnOnce(&mut Change<'_, SortedSet>)) {
    let mut tx = keyspace.begin(0, KEY).unwrap();
    tx.make::<SortedSet, _>(KEY, "zadd", change).unwrap();
    tx.commit();
}

fn apply(keyspace: &Keyspace, model: &mut Model, step: &Step) {
    match step {
        Step::Set(member, score) => {
            let expected = model.insert(member.clone(), *score);
            change(keyspace, |set| match member.len() % 2 {
                0 => assert_eq!(set.set_score(member, *score), expected),
                _ => {
                    let result = set.update_score(member, |before| {
                        assert_eq!(before, expected);
                        Ok::<_, ()>(Some(*score))
                    });
                    assert_eq!(result, Ok((expected, Some(*score))));
                }
            });
        }
        Step::Remove(member) => {
            let expected = model.remove(member).is_some();
            change(keyspace, |set| assert_eq!(set.remove(member), expected));
        }
        Step::RemoveRange(at, count) => {
            let all = ordered(model);
            let start = if all.is_empty() { 0 } else { at.index(all.len()) };
            let positions = start..(start + count).min(all.len());
            let gone: Vec<Vec<u8>> =
                all[positions.clone()].iter().map(|(member, _)| member.to_vec()).collect();
            model.retain(|member, _| !gone.contains(member));
            change(keyspace, |set| set.remove_range(positions));
        }
        Step::Store(members) => {
            let mut gathering = Gathering::default();
            for (member, score) in members {
                assert!(gathering.insert(member, *score));
                assert!(!gathering.insert(member, 7.0));
            }
            let mut tx = keyspace.begin(0, KEY).unwrap();
            if members.is_empty() {
                tx.remove(KEY);
            } else {
                let mut packed = Vec::new();
                let large = gathering.finish(LIMIT, &mut packed);
                let content = large.as_ref().map_or(Content::Bytes(&packed), Content::Large);
                tx.put_any(KEY, Value { facts: &FACTS, content }, Expiry::Never);
            }
            tx.commit();
            *model = members.clone();
        }
    }
}

#[track_caller]
fn check(keyspace: &Keyspace, model: &Model) {
    let all = ordered(model);
    let tx = keyspace.begin(0, KEY).unwrap();
    let Some(set) = tx.get::<SortedSet>(KEY).unwrap() else { return assert!(all.is_empty()) };
    assert!(!all.is_empty(), "an empty sorted set stays");
    assert!(set.iter().eq(all.iter().copied()));
    assert!(set.iter().rev().eq(all.iter().rev().copied()));
    assert_eq!(set.len(), all.len());
    let middle = all.len() / 3..all.len() / 2;
    assert!(set.range(middle.clone()).eq(all[middle].iter().copied()));
    for (rank, (member, score)) in all.iter().enumerate() {
        assert_eq!((set.rank(member), set.score(member)), (Some(rank), Some(*score)));
        assert_eq!(set.first_at_least(*score), all.partition_point(|(_, other)| other < score));
        assert_eq!(set.first_above(*score), all.partition_point(|(_, other)| other <= score));
    }
    assert_eq!((set.rank(b"none"), set.score(b"none")), (None, None));
    let content = tx.get_any(KEY).unwrap().content;
    if content.large::<Ranking>().is_none() {
        assert!(all.len() <= LIMIT.entries && all.iter().all(|(member, _)| member.len() <= LIMIT.bytes));
    }
    check_saved(content, &all);
}

/// Saves a sorted set and loads it.
fn check_saved(content: Content<'_>, all: &[(&[u8], f64)]) {
    let mut saved = Vec::new();
    save(&mut saved, content, Limit::default(), None).unwrap();
    let mut packed = Vec::new();
    let mut decoder = Decoder::new(&saved[..], 1 << 20);
    let large = load(rdb_type(content), &mut decoder, LIMIT, &mut packed).unwrap();
    let loaded = large.content(&packed);
    assert!(SortedSet::view(loaded).iter().eq(all.iter().copied()));
    if loaded.bytes().is_none() {
        let bits = |content| SortedSet::view(content).iter().map(|(_, score)| f64::to_bits(score));
        assert!(bits(loaded).eq(bits(content)), "the sign of a zero is saved");
    }
}

/// Runs the requests that were logged on a copy.
fn replay(copy: &Keyspace, log: &[u8]) {
    let text = std::str::from_utf8(log).unwrap();
    for record in text.split('*').skip(1) {
        let words: Vec<&[u8]> = record.split("\r\n").skip(2).step_by(2).map(str::as_bytes).collect();
        match &words[..] {
            [b"SELECT", ..] | [b"MULTI"] | [b"EXEC"] => {}
            [b"DEL", _] => drop(copy.begin(0, KEY).unwrap().remove(KEY)),
            [b"ZADD", _, pairs @ ..] => change(copy, |set| {
                assert!(pairs.len() % 2 == 0 && !pairs.is_empty());
                for pair in pairs.chunks(2) {
                    set.set_score(pair[1], score::parse(pair[0]).unwrap());
                }
            }),
            [b"ZREM", _, members @ ..] => change(copy, |set| {
                members.iter().for_each(|member| assert!(set.remove(member)));
            }),
            [b"ZREMRANGEBYRANK", _, first, last] => change(copy, |set| {
                let rank = |text: &[u8]| std::str::from_utf8(text).unwrap().parse().unwrap();
                let positions = Bounds::Ranks(rank(first), rank(last)).positions(set.view());
                set.remove_range(positions);
            }),
            other => panic!("{other:?}"),
        }
    }
}

fn logged(keyspace: &Keyspace) -> Vec<u8> {
    let pieces = keyspace.journal().taken().into_iter();
    let records =
        pieces.filter_map(|piece| if let Piece::Records(bytes) = piece { Some(bytes) } else { None });
    records.flatten().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_sorted_set_is_as_its_model_in_every_form(steps in vec(step(), 1..120)) {
        let (keyspace, copy, mut model) = (keyspace(), keyspace(), Model::new());
        keyspace.begin_all(0).unwrap().cut_journal();
        for step in &steps {
            apply(&keyspace, &mut model, step);
            check(&keyspace, &model);
            replay(&copy, &logged(&keyspace));
            check(&copy, &model);
        }
    }

    #[test]
    fn ranges_are_those_of_a_sorted_list(
        scores in vec(-4..4_i8, 1..40),
        (min, max) in (-5..5_i8, -5..5_i8),
        (open_min, open_max) in any::<(bool, bool)>(),
    ) {
        let mut gathering = Gathering::default();
        for (number, score) in scores.iter().enumerate() {
            gathering.insert(format!("{number:02}").as_bytes(), f64::from(*score));
        }
        let mut packed = Vec::new();
        let large = gathering.finish(LIMIT, &mut packed);
        let set = SortedSet::view(large.as_ref().map_or(Content::Bytes(&packed), Content::Large));
        let end = |score: i8, is_open: bool| {
            End::parse(format!("{}{score}", if is_open { "(" } else { "" }).as_bytes()).unwrap()
        };
        let positions = Bounds::Scores(end(min, open_min), end(max, open_max)).positions(set);
        let is_in = |score: f64| {
            let (min, max) = (f64::from(min), f64::from(max));
            (score > min || score == min && !open_min) && (score < max || score == max && !open_max)
        };
        let expected: Vec<_> = set.iter().filter(|(_, score)| is_in(*score)).collect();
        prop_assert!(set.range(positions).eq(expected));
    }
}

#[test]
fn a_score_of_minus_zero_is_logged_as_it_is_kept() {
    let keyspace = keyspace();
    keyspace.begin_all(0).unwrap().cut_journal();
    change(&keyspace, |set| assert_eq!(set.set_score(b"a", -0.0), None));
    let logged = logged(&keyspace);
    assert!(logged.ends_with(b"$1\r\n0\r\n$1\r\na\r\n"), "{}", logged.escape_ascii());
    for number in 0..LIMIT.entries {
        change(&keyspace, |set| assert_eq!(set.set_score(format!("m{number}").as_bytes(), 1.0), None));
    }
    change(&keyspace, |set| assert_eq!(set.set_score(b"b", -0.0), None));
    let log = self::logged(&keyspace);
    assert!(log.ends_with(b"$2\r\n-0\r\n$1\r\nb\r\n"), "{}", log.escape_ascii());
}

#[test]
fn ranges_of_members_are_in_the_order_of_bytes() {
    for count in [6, 60] {
        let mut gathering = Gathering::default();
        (0..count).for_each(|n| assert!(gathering.insert(format!("{:02}", 2 * n).as_bytes(), 1.0)));
        let mut packed = Vec::new();
        let large = gathering.finish(LIMIT, &mut packed);
        assert_eq!(large.is_some(), count == 60);
        let set = SortedSet::view(large.as_ref().map_or(Content::Bytes(&packed), Content::Large));
        for (min, max, positions) in [
            ("-", "+", 0..count),
            ("+", "-", count..count),
            ("[04", "[08", 2..5),
            ("(04", "(08", 3..4),
            ("[03", "(07", 2..4),
            ("(03", "[07", 2..4),
            ("[", "(02", 0..1),
            ("[08", "[04", 4..4),
        ] {
            let bounds =
                Bounds::Members(Edge::parse(min.as_bytes()).unwrap(), Edge::parse(max.as_bytes()).unwrap());
            assert_eq!(bounds.positions(set), positions, "{min} {max}");
        }
    }
    for text in ["", "a", "-a", "+a"] {
        assert!(Edge::parse(text.as_bytes()).is_none(), "{text}");
    }
}

#[test]
fn a_payload_that_has_a_member_twice_is_refused() {
    for count in [2, 40] {
        let mut saved = Vec::new();
        write_length(&mut saved, count + 1);
        for number in (0..count).chain([0]) {
            write_string(&mut saved, format!("m{number}").as_bytes(), None);
            write_score(&mut saved, 1.0);
        }
        let mut decoder = Decoder::new(&saved[..], 1 << 20);
        assert!(load(SORTED_SET, &mut decoder, LIMIT, &mut Vec::new()).is_err(), "{count}");
    }
}
