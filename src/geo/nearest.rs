//! Sorting the first of many.
//!
//! A search with a limit wants its nearest places in order, and the others not at all. Places that are
//! equally far come in the order that Redis returns, which follows from how it sorts: a quicksort after
//! Bentley and McIlroy, "Engineering a Sort Function" (1993), that leaves out the parts behind the limit.
//! Unlike there, a part that does not get smaller fast enough is sorted in another way, so that a client
//! cannot choose places for which this takes long.

use std::cmp::Ordering;
use std::ops::Range;

/// A shorter part is sorted by insertion.
const SMALL: usize = 7;
/// A longer part is divided at the median of nine instead of three items.
const MIDDLE: usize = 40;
/// A part may be divided so often, for each time that the number of all items can be halved.
const DIVISIONS_MAX: u32 = 4;

/// Sorts the items until the first `count` are in order. If these are all, equal ones keep their order.
pub(crate) fn sort_first<T>(items: &mut [T], count: usize, compare: impl Fn(&T, &T) -> Ordering) {
    if count >= items.len() {
        return items.sort_by(compare);
    }
    let divisions_max = DIVISIONS_MAX * (items.len().ilog2() + 1);
    let mut parts = vec![(0..items.len(), 0)];
    while let Some((part, divisions)) = parts.pop() {
        let some = &mut items[part.clone()];
        if some.len() < SMALL {
            insert_each(some, &compare);
        } else if divisions == divisions_max {
            some.sort_by(&compare);
        } else {
            let (lower, higher) = divide(some, &compare);
            let wanted = [lower, higher].map(|range| range.start + part.start..range.end + part.start);
            let is_wanted = |range: &Range<usize>| range.len() > 1 && range.start < count;
            parts.extend(wanted.into_iter().filter(is_wanted).map(|range| (range, divisions + 1)));
        }
    }
}

fn insert_each<T>(items: &mut [T], compare: &impl Fn(&T, &T) -> Ordering) {
    for end in 1..items.len() {
        let mut at = end;
        while at > 0 && compare(&items[at - 1], &items[at]) == Ordering::Greater {
            items.swap(at - 1, at);
            at -= 1;
        }
    }
}

/// Moves the items that are lower than one of them to the front, and those that are higher to the end.
/// Returns where they are.
fn divide<T>(items: &mut [T], compare: &impl Fn(&T, &T) -> Ordering) -> (Range<usize>, Range<usize>) {
    let len = items.len();
    items.swap(0, pivot(items, compare));
    // Equal items are collected at both ends: before `equal` and behind `equal_end`.
    let (mut equal, mut low, mut high, mut equal_end) = (1, 1, len, len);
    loop {
        while low < high && compare(&items[low], &items[0]) != Ordering::Greater {
            if compare(&items[low], &items[0]) == Ordering::Equal {
                items.swap(equal, low);
                equal += 1;
            }
            low += 1;
        }
        while low < high && compare(&items[high - 1], &items[0]) != Ordering::Less {
            if compare(&items[high - 1], &items[0]) == Ordering::Equal {
                equal_end -= 1;
                items.swap(high - 1, equal_end);
            }
            high -= 1;
        }
        if low >= high {
            break;
        }
        items.swap(low, high - 1);
        low += 1;
        high -= 1;
    }
    let (lower, higher) = (low - equal, equal_end - high);
    let moved = equal.min(lower);
    swap_blocks(items, 0, low - moved, moved);
    let moved = higher.min(len - equal_end);
    swap_blocks(items, low, len - moved, moved);
    (0..lower, len - higher..len)
}

fn swap_blocks<T>(items: &mut [T], one: usize, other: usize, len: usize) {
    for offset in 0..len {
        items.swap(one + offset, other + offset);
    }
}

/// The position of an item that is probably near the middle of the order.
fn pivot<T>(items: &[T], compare: &impl Fn(&T, &T) -> Ordering) -> usize {
    let len = items.len();
    let (mut first, mut middle, mut last) = (0, len / 2, len - 1);
    if len == SMALL {
        return middle;
    }
    let median = |a: usize, b: usize, c: usize| {
        let is = |one: usize, other: usize, order| compare(&items[one], &items[other]) == order;
        let [low, high] = [Ordering::Less, Ordering::Greater];
        match is(a, b, low) {
            true if is(b, c, low) => b,
            true => {
                if is(a, c, low) {
                    c
                } else {
                    a
                }
            }
            false if is(b, c, high) => b,
            false => {
                if is(a, c, low) {
                    a
                } else {
                    c
                }
            }
        }
    };
    if len > MIDDLE {
        let eighth = len / 8;
        first = median(first, first + eighth, first + 2 * eighth);
        middle = median(middle - eighth, middle, middle + eighth);
        last = median(last - 2 * eighth, last - eighth, last);
    }
    median(first, middle, last)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_first_are_those_of_a_whole_sort(
            items in vec(prop_oneof![0..5_u32, any::<u32>()], 0..300),
            count in 0..310_usize,
        ) {
            let (mut some, mut all) = (items.clone(), items);
            sort_first(&mut some, count, u32::cmp);
            all.sort_unstable();
            let count = count.min(all.len());
            prop_assert_eq!(&some[..count], &all[..count]);
            some.sort_unstable();
            prop_assert_eq!(some, all);
        }
    }

    /// McIlroy, "A Killer Adversary for Quicksort" (1999): an order that is decided while it is asked for, so
    /// that each division divides next to nothing.
    #[test]
    fn an_order_made_against_quicksort_takes_no_square() {
        const ITEMS: usize = 20_000;
        let (values, solid) = (vec![Cell::new(ITEMS); ITEMS], Cell::new(0));
        let (candidate, asked) = (Cell::new(0), Cell::new(0_usize));
        let mut items: Vec<usize> = (0..ITEMS).collect();
        sort_first(&mut items, ITEMS - 1, |one, other| {
            asked.set(asked.get() + 1);
            let fix = |item: usize| {
                values[item].set(solid.get());
                solid.set(solid.get() + 1);
            };
            if values[*one].get() == ITEMS && values[*other].get() == ITEMS {
                fix(if *one == candidate.get() { *one } else { *other });
            }
            if values[*one].get() == ITEMS {
                candidate.set(*one);
            } else if values[*other].get() == ITEMS {
                candidate.set(*other);
            }
            values[*one].get().cmp(&values[*other].get())
        });
        assert!(asked.get() < 400 * ITEMS, "{} comparisons", asked.get());
    }
}
