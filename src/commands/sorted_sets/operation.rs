//! Combining sorted sets: what a request asks for, and the result.

use crate::keyspace::Transaction;
use crate::resp::Request;
use crate::resp::number::parse_integer;
use crate::types::sets::{Set, SetView};
use crate::types::sorted_sets::gathering::Gathering;
use crate::types::sorted_sets::{SortedSet, SortedSetView, score};
use crate::values::{SET_KIND, SORTED_SET_KIND, Type, Value};

use crate::commands::args::{self, Options, is_word};
use crate::commands::error::Error;
use crate::commands::facts::Result;

/// A collection that is combined with others. An absent one is empty, and each member of a set has the score
/// 1.
#[derive(Clone, Copy, Debug)]
enum Input<'t> {
    Absent,
    Set(SetView<'t>),
    SortedSet(SortedSetView<'t>),
}

impl<'t> Input<'t> {
    /// Takes a value of a type that can be combined.
    fn of(value: Option<Value<'t>>) -> Result<Input<'t>> {
        match value {
            None => Ok(Input::Absent),
            Some(value) if value.facts.kind == SORTED_SET_KIND => {
                Ok(Input::SortedSet(SortedSet::view(value.content)))
            }
            Some(value) if value.facts.kind == SET_KIND => Ok(Input::Set(Set::view(value.content))),
            Some(_) => Err(Error::WRONG_TYPE),
        }
    }

    fn len(self) -> usize {
        match self {
            Input::Absent => 0,
            Input::Set(set) => set.len(),
            Input::SortedSet(set) => set.len(),
        }
    }

    fn score(self, member: &[u8]) -> Option<f64> {
        match self {
            Input::Absent => None,
            Input::Set(set) => set.contains(member).then_some(1.0),
            Input::SortedSet(set) => set.score(member),
        }
    }

    /// Calls a function with each member and its score as long as the function returns true.
    fn each(self, visit: &mut dyn FnMut(&[u8], f64) -> bool) {
        match self {
            Input::Absent => {}
            Input::Set(set) => {
                let _ = set.iter().all(|member| visit(&member, 1.0));
            }
            Input::SortedSet(set) => {
                let _ = set.iter().all(|(member, score)| visit(member, score));
            }
        }
    }
}

/// How inputs are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Union,
    Intersection,
    Difference,
    /// The number of members in an intersection.
    Cardinality,
}

/// How to combine the scores that a member has in several inputs.
#[derive(Clone, Copy, Debug, Default)]
enum Aggregate {
    #[default]
    Sum,
    Min,
    Max,
    /// The scores do not matter: each input that has the member adds its weight.
    Count,
}

impl Aggregate {
    /// The value of a score in an input of this weight.
    fn weighted(self, weight: f64, score: f64) -> f64 {
        if matches!(self, Aggregate::Count) { weight } else { weight * score }
    }

    fn of(self, one: f64, other: f64) -> f64 {
        match self {
            Aggregate::Sum | Aggregate::Count => zero_if_nan(one + other),
            Aggregate::Min if other < one => other,
            Aggregate::Max if other > one => other,
            _ => one,
        }
    }
}

/// Infinities of different signs make 0.
fn zero_if_nan(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// The inputs of a request, and how to combine them.
#[derive(Debug)]
pub(super) struct Operation<'t> {
    operator: Operator,
    /// The inputs with their weights.
    inputs: Vec<(Input<'t>, f64)>,
    aggregate: Aggregate,
    /// Whether the reply has scores.
    pub(super) with_scores: bool,
    /// The most members to count; 0 for all.
    pub(super) limit: usize,
}

impl<'t> Operation<'t> {
    /// Reads the number of keys at a position of a request, the keys, whose values are looked up at once, and
    /// the options. Redis looks the keys up before it reads the options, so an error of a type comes first.
    ///
    /// # Errors
    ///
    /// [`Error::WRONG_TYPE`], [`Error::SYNTAX`], and errors for numbers that are none.
    pub(super) fn parse(
        tx: &'t Transaction<'_>,
        request: Request<'_>,
        at: usize,
        operator: Operator,
        command: &str,
    ) -> Result<Operation<'t>> {
        let stated = args::integer(request.at(at))?;
        let numkeys = usize::try_from(stated).ok().filter(|numkeys| *numkeys > 0).ok_or_else(|| {
            Error::text(format!("ERR at least 1 input key is needed for '{command}' command"))
        })?;
        if numkeys > request.len() - (at + 1) {
            return Err(Error::SYNTAX);
        }
        let keys = (at + 1..at + 1 + numkeys).map(|at| Input::of(tx.get_any(request.at(at))));
        let inputs = keys.map(|input| Ok((input?, 1.0))).collect::<Result<Vec<_>>>()?;
        let aggregate = Aggregate::default();
        let mut operation = Operation { operator, inputs, aggregate, with_scores: false, limit: 0 };
        // A command that writes has its target first.
        operation.parse_options(Options::new(request, at + 1 + numkeys), at == 1)?;
        Ok(operation)
    }

    fn parse_options(&mut self, mut options: Options<'_>, is_read: bool) -> Result<()> {
        let has_scores = matches!(self.operator, Operator::Union | Operator::Intersection);
        let is_counted = self.operator == Operator::Cardinality;
        while let Some(option) = options.next() {
            match option {
                _ if has_scores && is_word(option, "weights") && options.left() >= self.inputs.len() => {
                    for (_, weight) in &mut self.inputs {
                        let read = score::parse(options.value()?);
                        *weight = read.ok_or(Error::fixed("ERR weight value is not a float"))?;
                    }
                }
                _ if has_scores && is_word(option, "aggregate") => {
                    self.aggregate = match options.value()? {
                        word if is_word(word, "sum") => Aggregate::Sum,
                        word if is_word(word, "min") => Aggregate::Min,
                        word if is_word(word, "max") => Aggregate::Max,
                        word if is_word(word, "count") => Aggregate::Count,
                        _ => return Err(Error::SYNTAX),
                    };
                }
                _ if is_read && !is_counted && is_word(option, "withscores") => self.with_scores = true,
                _ if is_counted && is_word(option, "limit") => {
                    let limit = parse_integer(options.value()?);
                    let limit = limit.and_then(|limit| usize::try_from(limit).ok());
                    self.limit = limit.ok_or(Error::fixed("ERR LIMIT can't be negative"))?;
                }
                _ => return Err(Error::SYNTAX),
            }
        }
        Ok(())
    }

    /// Combines the inputs.
    pub(super) fn combine(&self) -> Gathering {
        match self.operator {
            Operator::Union => self.union(),
            Operator::Difference => self.difference(),
            Operator::Intersection | Operator::Cardinality => {
                let mut common = Gathering::default();
                self.each_common(&mut |member, score| {
                    common.add(member, score);
                    true
                });
                common
            }
        }
    }

    /// The inputs in the order in which their scores are added up: the smallest first.
    fn ascending(&self) -> Vec<(Input<'t>, f64)> {
        let mut inputs = self.inputs.clone();
        inputs.sort_by_key(|(input, _)| input.len());
        inputs
    }

    fn union(&self) -> Gathering {
        let inputs = self.ascending();
        let largest = inputs.last().map_or(0, |(input, _)| input.len());
        let mut all = Gathering::with_room(largest);
        for (input, weight) in inputs {
            input.each(&mut |member, score| {
                let score = zero_if_nan(self.aggregate.weighted(weight, score));
                all.merge(member, score, |before| self.aggregate.of(before, score));
                true
            });
        }
        all
    }

    fn difference(&self) -> Gathering {
        let mut rest = Gathering::default();
        if let [(first, _), others @ ..] = &self.inputs[..] {
            first.each(&mut |member, score| {
                if others.iter().all(|(other, _)| other.score(member).is_none()) {
                    rest.add(member, score);
                }
                true
            });
        }
        rest
    }

    /// Calls a function with each member that all inputs have, and its score, as long as the function returns
    /// true.
    pub(super) fn each_common(&self, visit: &mut dyn FnMut(&[u8], f64) -> bool) {
        let inputs = self.ascending();
        let [(smallest, weight), others @ ..] = &inputs[..] else { return };
        smallest.each(&mut |member, score| {
            let first = zero_if_nan(self.aggregate.weighted(*weight, score));
            let score = others.iter().try_fold(first, |sum, (other, weight)| {
                Some(self.aggregate.of(sum, self.aggregate.weighted(*weight, other.score(member)?)))
            });
            score.is_none_or(|score| visit(member, score))
        });
    }
}
