//! The elements of a collection in the order of SORT.
//!
//! Numbers that are equal are ordered by the bytes of their elements. Elements whose texts are equal stay as
//! they were: Redis leaves their order open when it sorts by a pattern and returns a part. What is not stored
//! is compared as C compares texts, in which a zero byte ends a text.

use std::cmp::Ordering;
use std::ops::Range;

use super::keys::Keys;
use super::options::Sorting;
use super::pattern::Pattern;
use crate::commands::error::Error;
use crate::commands::facts::Result;
use crate::resp::number::parse_integer;
use crate::types::lists::{List, ListView};
use crate::types::sets::{Member, Set, SetView};
use crate::types::sorted_sets::score::parse_decimal;
use crate::types::sorted_sets::{SortedSet, SortedSetView};
use crate::values::{LIST_KIND, SET_KIND, SORTED_SET_KIND, Type, Value};

/// The most bytes of values that BY compares as texts and that are copied, because their keys are not held.
const TEXTS_BYTES_MAX: usize = 64 << 20;

/// A collection that can be sorted.
pub(super) enum Unsorted<'t> {
    List(ListView<'t>),
    Set(SetView<'t>),
    SortedSet(SortedSetView<'t>),
}

impl<'t> Unsorted<'t> {
    /// The collection that a value is; an empty one if the key is absent.
    pub(super) fn of(value: Option<Value<'t>>) -> Result<Unsorted<'t>> {
        let Some(value) = value else { return Ok(Unsorted::List(ListView::EMPTY)) };
        match value.facts.kind {
            LIST_KIND => Ok(Unsorted::List(List::view(value.content))),
            SET_KIND => Ok(Unsorted::Set(Set::view(value.content))),
            SORTED_SET_KIND => Ok(Unsorted::SortedSet(SortedSet::view(value.content))),
            _ => Err(Error::WRONG_TYPE),
        }
    }

    /// The number of its elements.
    pub(super) fn len(&self) -> usize {
        match self {
            Unsorted::List(list) => list.len(),
            Unsorted::Set(set) => set.len(),
            Unsorted::SortedSet(set) => set.len(),
        }
    }

    fn elements(&self) -> Vec<Member<'t>> {
        match self {
            Unsorted::List(list) => list.iter().map(Member::String).collect(),
            Unsorted::Set(set) => set.iter().collect(),
            Unsorted::SortedSet(set) => set.iter().map(|(member, _)| Member::String(member)).collect(),
        }
    }

    /// The elements that a request returns in their own order. A set has but one direction.
    fn as_they_are(&self, sorting: &Sorting<'_>) -> Vec<Member<'t>> {
        match self {
            Unsorted::Set(set) => {
                let range = sorting.range(set.len());
                set.iter().skip(range.start).take(range.len()).collect()
            }
            Unsorted::List(list) => {
                let range = sorting.range(list.len());
                let reversed = list.len() - range.end..list.len() - range.start;
                match sorting.is_descending {
                    false => list.range(range).map(Member::String).collect(),
                    true => list.reversed(reversed).map(Member::String).collect(),
                }
            }
            Unsorted::SortedSet(set) => {
                let range = sorting.range(set.len());
                let reversed = set.len() - range.end..set.len() - range.start;
                match sorting.is_descending {
                    false => set.range(range).map(|(member, _)| Member::String(member)).collect(),
                    true => set.range(reversed).rev().map(|(member, _)| Member::String(member)).collect(),
                }
            }
        }
    }
}

/// The elements that a request returns, in their order. `is_in_script` is whether a script asks.
///
/// # Errors
///
/// An error if elements are not numbers where they must be.
pub(super) fn sorted<'t>(
    unsorted: &Unsorted<'t>,
    keys: &mut Keys<'_, '_>,
    sorting: &Sorting<'_>,
    is_in_script: bool,
) -> Result<Vec<Member<'t>>> {
    // As in Redis, the order of a set never depends on its form where the result is kept.
    let is_forced = matches!(unsorted, Unsorted::Set(_)) && (sorting.target.is_some() || is_in_script);
    if sorting.is_unsorted && !is_forced {
        return Ok(unsorted.as_they_are(sorting));
    }
    let (by, is_alpha) = if sorting.is_unsorted { (None, true) } else { (sorting.by, sorting.is_alpha) };
    let elements = unsorted.elements();
    let mut elements = match (by, is_alpha) {
        (by, false) => by_number(keys, elements, by, sorting)?,
        (None, true) => by_text(elements, sorting),
        (Some(by), true) => by_text_of(keys, elements, by, sorting)?,
    };
    let range = sorting.range(elements.len());
    elements.truncate(range.end);
    elements.drain(..range.start);
    Ok(elements)
}

fn by_number<'t>(
    keys: &mut Keys<'_, '_>,
    elements: Vec<Member<'t>>,
    by: Option<Pattern<'_>>,
    sorting: &Sorting<'_>,
) -> Result<Vec<Member<'t>>> {
    let (mut key, mut are_numbers) = (Vec::new(), true);
    let mut weighed = Vec::with_capacity(elements.len());
    for element in elements {
        let weight = match by {
            None => weight(&element),
            // Without a value the weight is 0.
            Some(by) => by.find(&element, &mut key, |key| keys.value(key)).map_or(Some(0.0), weight),
        };
        // The other keys are looked up all the same: Redis counts these hits and misses.
        are_numbers &= weight.is_some();
        weighed.push((weight.unwrap_or(0.0), element));
    }
    if !are_numbers {
        return Err(Error::fixed("ERR One or more scores can't be converted into double"));
    }
    weighed.sort_unstable_by(|(one, element), (two, other)| {
        // None of them is no number.
        let order = one.partial_cmp(two).unwrap_or(Ordering::Equal);
        directed(order.then_with(|| element.as_ref().cmp(other.as_ref())), sorting)
    });
    Ok(weighed.into_iter().map(|(_, element)| element).collect())
}

fn weight(text: &[u8]) -> Option<f64> {
    parse_integer(text).map(|integer| integer as f64).or_else(|| parse_decimal(text))
}

fn by_text<'t>(mut elements: Vec<Member<'t>>, sorting: &Sorting<'_>) -> Vec<Member<'t>> {
    elements.sort_by(|one, two| directed(comparable(one, sorting).cmp(comparable(two, sorting)), sorting));
    elements
}

fn by_text_of<'t>(
    keys: &mut Keys<'_, '_>,
    elements: Vec<Member<'t>>,
    by: Pattern<'_>,
    sorting: &Sorting<'_>,
) -> Result<Vec<Member<'t>>> {
    let mut key = Vec::new();
    if let Keys::Held(tx) = keys {
        let mut find = |element| by.find(element, &mut key, |key| tx.get_any(key));
        let texts = elements.iter().map(|element| Some(comparable(find(element)?, sorting)));
        let texts: Vec<Option<&[u8]>> = texts.collect();
        return Ok(in_order_of(&texts, &elements, sorting));
    }
    let (mut bytes, mut places): (Vec<u8>, Vec<Option<Range<usize>>>) = Default::default();
    for element in &elements {
        let text = by.find(element, &mut key, |key| keys.value(key)).map(|text| comparable(text, sorting));
        if bytes.len() + text.map_or(0, <[u8]>::len) > TEXTS_BYTES_MAX {
            return Err(keys.give_up());
        }
        places.push(text.map(|text| {
            bytes.extend_from_slice(text);
            bytes.len() - text.len()..bytes.len()
        }));
    }
    let texts: Vec<Option<&[u8]>> = places.into_iter().map(|place| place.map(|at| &bytes[at])).collect();
    Ok(in_order_of(&texts, &elements, sorting))
}

/// Elements in the order of their texts.
fn in_order_of<'t>(
    texts: &[Option<&[u8]>],
    elements: &[Member<'t>],
    sorting: &Sorting<'_>,
) -> Vec<Member<'t>> {
    let mut order: Vec<usize> = (0..elements.len()).collect();
    // An element without a text comes first.
    order.sort_by(|one, two| directed(texts[*one].cmp(&texts[*two]), sorting));
    order.into_iter().map(|position| elements[position]).collect()
}

/// The part of a text that is compared.
fn comparable<'v>(text: &'v [u8], sorting: &Sorting<'_>) -> &'v [u8] {
    match sorting.target {
        Some(_) => text,
        None => text.split(|byte| *byte == 0).next().unwrap_or_default(),
    }
}

fn directed(order: Ordering, sorting: &Sorting<'_>) -> Ordering {
    if sorting.is_descending { order.reverse() } else { order }
}
