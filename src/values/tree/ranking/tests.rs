//! A ranking against a sorted list: with small pages, so that few members make a deep tree.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Insert(Vec<u8>, f64),
    Remove(Vec<u8>),
    RemoveRange(prop::sample::Index, usize),
    Share,
    Swap,
    Drop,
}

fn member() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => (0..300u32).prop_map(|n| format!("member{n}").into_bytes()),
        1 => vec(any::<u8>(), 0..300),
    ]
}

fn score() -> impl Strategy<Value = f64> {
    prop_oneof![
        // Few scores, so that many are equal.
        4 => (-3..3i8).prop_map(f64::from),
        2 => any::<f64>().prop_filter("a number", |score| !score.is_nan()),
        1 => prop::sample::select(vec![f64::INFINITY, f64::NEG_INFINITY, 5e-324]),
        1 => prop::sample::select(vec![-0.0, 0.0]),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        60 => (member(), score()).prop_map(|(member, score)| Step::Insert(member, score)),
        30 => member().prop_map(Step::Remove),
        2 => (any::<prop::sample::Index>(), 0..100usize).prop_map(|(at, count)| Step::RemoveRange(at, count)),
        1 => Just(Step::Share),
        1 => Just(Step::Swap),
        1 => Just(Step::Drop),
    ]
}

type Model = BTreeMap<Vec<u8>, f64>;

/// The members of a model in their order.
fn ordered(model: &Model) -> Vec<(&[u8], f64)> {
    let mut all: Vec<_> = model.iter().map(|(member, score)| (&member[..], *score)).collect();
    all.sort_by(|(a, x), (b, y)| x.partial_cmp(y).expect("numbers").then(a.cmp(b)));
    all
}

/// Members with the bits of their scores: -0 and +0 are different there.
fn with_bits<'m>(members: impl Iterator<Item = (&'m [u8], f64)>) -> impl Iterator<Item = (&'m [u8], u64)> {
    members.map(|(member, score)| (member, score.to_bits()))
}

#[track_caller]
fn check(ranking: &Ranking, model: &Model) {
    let all = ordered(model);
    assert_eq!((ranking.len(), ranking.is_empty()), (all.len(), all.is_empty()));
    assert_eq!(ranking.scores.len(), all.len());
    assert!(with_bits(ranking.range(0..usize::MAX)).eq(with_bits(all.iter().copied())));
    assert!(with_bits(ranking.range(0..usize::MAX).rev()).eq(with_bits(all.iter().rev().copied())));
    let negative_zeros = all.iter().filter(|(_, score)| score.to_bits() == (-0.0_f64).to_bits());
    assert_eq!(ranking.negative_zeros, negative_zeros.count());
    let middle = all.len() / 3..all.len() / 3 * 2;
    assert_eq!(ranking.range(middle.clone()).len(), middle.len());
    assert!(ranking.range(middle.clone()).eq(all[middle].iter().copied()));
    for (position, (member, score)) in all.iter().enumerate() {
        assert!(with_bits(ranking.at(position).into_iter()).eq([(*member, score.to_bits())]));
        assert_eq!(ranking.rank(member), Some(position));
        assert_eq!(ranking.score(member).map(f64::to_bits), Some(score.to_bits()));
        assert_eq!(ranking.first_at_least(*score), all.partition_point(|(_, other)| other < score));
        assert_eq!(ranking.first_above(*score), all.partition_point(|(_, other)| other <= score));
    }
    for score in [f64::NEG_INFINITY, -1.5, -0.0, 0.0, 1.5, f64::INFINITY] {
        assert_eq!(ranking.first_at_least(score), all.partition_point(|(_, other)| *other < score));
        assert_eq!(ranking.first_above(score), all.partition_point(|(_, other)| *other <= score));
    }
    assert_eq!(ranking.at(all.len()), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_ranking_is_sorted_and_copies_never_change(
        filled in prop_oneof![Just(Model::new()), prop::collection::btree_map(member(), score(), 0..400)],
        steps in vec(step(), 0..600), seed: u64,
    ) {
        let (mut ranking, mut model) = (Ranking::new(seed), filled);
        ranking.fill(ordered(&model).into_iter());
        check(&ranking, &model);
        let mut copies: Vec<(Ranking, Model)> = Vec::new();
        for step in steps {
            match step {
                Step::Insert(member, score) => {
                    let before = model.get(&member).copied();
                    let replaced = ranking.insert(&member, score);
                    prop_assert_eq!(replaced.map(f64::to_bits), before.map(f64::to_bits));
                    // A member keeps an equal score, so the sign of a zero stays.
                    if before != Some(score) {
                        model.insert(member, score);
                    }
                }
                Step::Remove(member) => {
                    let before = model.remove(&member).map(f64::to_bits);
                    prop_assert_eq!(ranking.remove(&member).map(f64::to_bits), before);
                }
                Step::RemoveRange(at, count) => {
                    let at = at.index(model.len() + 1);
                    let gone = ordered(&model).into_iter().skip(at).take(count);
                    let gone: Vec<_> = gone.map(|(member, _)| member.to_vec()).collect();
                    gone.iter().for_each(|member| assert!(model.remove(member).is_some()));
                    ranking.remove_range(at..at + count);
                }
                Step::Share => copies.push((ranking.share(), model.clone())),
                Step::Swap => if let Some((copy, copied)) = copies.first_mut() {
                    std::mem::swap(&mut ranking, copy);
                    std::mem::swap(&mut model, copied);
                },
                Step::Drop => drop(copies.pop()),
            }
        }
        check(&ranking, &model);
        copies.iter().for_each(|(copy, copied)| check(copy, copied));
        for member in model.keys() {
            prop_assert!(ranking.remove(member).is_some());
        }
        prop_assert_eq!(ranking.bytes(), Ranking::new(seed).bytes());
        copies.iter().for_each(|(copy, copied)| check(copy, copied));
    }

    #[test]
    fn members_with_one_score_are_found_by_their_bytes(
        members in prop::collection::btree_set(vec(0..4u8, 0..8), 0..400),
        (asked, score) in (vec(vec(0..4u8, 0..8), 20), score()),
    ) {
        let mut ranking = Ranking::new(7);
        members.iter().for_each(|member| assert_eq!(ranking.insert(member, score), None));
        for member in asked {
            let at_least = members.range(..member.clone()).count();
            let above = members.range(..=member.clone()).count();
            prop_assert_eq!(ranking.first_member_at_least(&member), at_least);
            prop_assert_eq!(ranking.first_member_above(&member), above);
        }
    }

    #[test]
    fn bytes_of_scores_have_the_order_of_scores(a in score(), b in score()) {
        prop_assert_eq!(Some(in_order(sortable(a)).cmp(&in_order(sortable(b)))), a.partial_cmp(&b));
        prop_assert_eq!(score_of(sortable(a)).to_bits(), a.to_bits());
    }
}

#[test]
fn the_sign_of_a_zero_stays_and_does_not_order() {
    let mut ranking = Ranking::new(7);
    assert_eq!(ranking.insert(b"b", -0.0), None);
    assert_eq!(ranking.insert(b"a", 0.0), None);
    assert_eq!(ranking.insert(b"c", 0.0), None);
    assert!(ranking.range(0..3).map(|(member, _)| member).eq([b"a", b"b", b"c"]));
    assert_eq!((ranking.first_at_least(0.0), ranking.first_above(-0.0), ranking.rank(b"b")), (0, 3, Some(1)));
    assert!(ranking.insert(b"b", 0.0).is_some_and(f64::is_sign_negative), "an equal score changes nothing");
    assert!(ranking.score(b"b").is_some_and(f64::is_sign_negative));
    assert!(ranking.remove_range(0..1).is_empty());
    assert!(ranking.at(0).is_some_and(|(member, score)| member == b"b" && score.is_sign_negative()));
    ranking.insert(b"b", 1.0);
    ranking.insert(b"b", 0.0);
    assert!(ranking.score(b"b").is_some_and(f64::is_sign_positive));
}

#[test]
fn what_is_not_a_number_breaks_nothing() {
    let mut ranking = Ranking::new(7);
    ranking.insert(b"a", f64::NAN);
    ranking.insert(b"b", f64::INFINITY);
    ranking.insert(b"c", f64::from_bits(u64::MAX));
    assert_eq!(
        (ranking.first_above(f64::NAN), ranking.rank(b"b"), ranking.rank(b"c")),
        (3, Some(1), Some(0))
    );
    assert!(ranking.remove(b"a").is_some_and(f64::is_nan) && ranking.remove(b"c").is_some());
    assert!(ranking.range(0..9).eq([(&b"b"[..], f64::INFINITY)]));
}

#[test]
fn freeing_leaves_a_copy_alone() {
    let mut ranking = Ranking::new(7);
    (0..1_000u32).for_each(|n| assert_eq!(ranking.insert(&n.to_be_bytes(), f64::from(n)), None));
    let copy = ranking.share();
    let mut remains = ranking.clear();
    check(&ranking, &Model::new());
    assert!(!remains.free_some(1) && remains.free_some(1), "two roots, and the rest is the copy's");
    check(&copy, &(0..1_000u32).map(|n| (n.to_be_bytes().to_vec(), f64::from(n))).collect());
}
