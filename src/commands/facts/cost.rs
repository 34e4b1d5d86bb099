//! What a request costs: how much work it makes, by its arguments and by the sizes of the values that it
//! names.
//!
//! One fact of a command, [`Costs`], decides all that depends on it: which requests take the fast path and
//! are only tallied, which ones wait for a thread for long requests, which read a copy of a large value while
//! no lock is held, and which copy a long string first. The dispatcher asks for it once the values are at
//! hand; before that it asks for the arguments alone.

use crate::keyspace::Transaction;
use crate::resp::Request;
use crate::values::{STRING_KIND, Type, Value};

use super::flags::KeyFlags;
use super::key_spec::{KeySpec, keys_of};

/// Copying a request or a reply beyond this takes longer than reading the clock.
pub(crate) const SMALL_BYTES_MAX: usize = 16 << 10;
/// Copying this many bytes takes some milliseconds.
pub(crate) const LONG_COPY_BYTES: usize = 16 << 20;
/// A request that touches this number of elements takes some milliseconds.
const LONG_ELEMENTS: u64 = 20_000;
/// One that touches this number of bytes, too.
const LONG_BYTES: u64 = LONG_COPY_BYTES as u64 / COPIED_BYTES;
/// Bytes that are only copied, for one that is touched.
const COPIED_BYTES: u64 = 4;
/// Bytes of an element where that is not known, with what a reply adds.
const ELEMENT_BYTES: u64 = 32;
/// To change an element takes as long as to read this number of them.
const CHANGED_WEIGHT: u64 = 4;

/// What the requests of a command cost.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// The most arguments, with the command's name, of a request that takes about as long whatever its value
    /// is, and not much longer than reading the clock; 0 if there is none. Its arguments must be small, too.
    pub brief_arguments_max: usize,
    /// Whether it may change a part of the string of its key. A long string that others share is copied
    /// before it runs.
    pub changes_part: bool,
    /// The most digits of argument 2 in a brief request: where it is an offset, what is missing in front of
    /// it is padded.
    pub offset_digits_max: usize,
    /// Whether a request is brief even if it changes a part of a long string.
    pub is_brief_if_long: bool,
    /// The cost of a request that is not brief. `None`: nothing is stated, which a test finds.
    of: Option<CostOf>,
}

/// Returns the cost of a request.
pub(crate) type CostOf = for<'a> fn(&Estimate<'a>) -> Cost;

/// What one request costs, or all that EXEC runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Elements of values, and arguments. One that is dear to handle counts as several.
    pub elements: u64,
    /// Bytes of these elements. Bytes that are only copied count for less.
    pub bytes: u64,
    /// Bytes of the reply, about: those of the elements, unless it is small.
    pub reply_bytes: u64,
    /// Whether the request itself says how much it touches, so that no value limits it.
    pub is_repeated: bool,
    /// Whether it may be far less, as a range may be small.
    pub may_be_less: bool,
    /// Whether it only reads the values of its keys, so that it can run on copies.
    pub only_reads: bool,
    /// Whether it changes a part of a long string that others share.
    pub copies_shared: bool,
}

/// A request whose cost is estimated, with the values that it names if they are at hand.
#[derive(Clone, Copy)]
pub struct Estimate<'a> {
    keys: &'static [KeySpec],
    /// The request that names these keys.
    pub request: Request<'a>,
    tx: Option<&'a Transaction<'a>>,
}

impl Costs {
    /// Nothing is stated.
    pub const UNSTATED: Costs = Costs {
        brief_arguments_max: 0,
        changes_part: false,
        offset_digits_max: usize::MAX,
        is_brief_if_long: true,
        of: None,
    };

    /// Those that this function returns.
    pub const fn of(of: CostOf) -> Costs {
        Costs { of: Some(of), ..Costs::UNSTATED }
    }

    /// Those of the arguments: each takes its time, whatever the values are.
    pub const ARGUMENTS: Costs = Costs::of(|estimate| estimate.arguments());

    /// The same for a command of which a request is brief that has no more than so many arguments.
    pub const fn brief_up_to(self, brief_arguments_max: usize) -> Costs {
        Costs { brief_arguments_max, ..self }
    }

    /// The same for a command that may change a part of a string, and is brief if argument 2 has no more than
    /// so many digits.
    pub const fn changing_part(self, offset_digits_max: usize) -> Costs {
        Costs { changes_part: true, offset_digits_max, ..self }
    }

    /// The same for a command that is not brief if the string is long.
    pub const fn not_if_long(self) -> Costs {
        Costs { is_brief_if_long: false, ..self }
    }

    /// Whether the command states them.
    pub fn are_stated(&self) -> bool {
        self.of.is_some()
    }

    /// The cost of a request with keys at these places, before its values are at hand: of its arguments, or
    /// of what a command without keys does.
    #[inline]
    pub(super) fn before(&self, keys: &'static [KeySpec], request: Request<'_>) -> Cost {
        let estimate = Estimate { keys, request, tx: None };
        match self.of {
            Some(of) if keys.is_empty() => of(&estimate),
            _ => estimate.arguments(),
        }
    }

    /// The cost of a request on its values.
    #[inline]
    pub(super) fn on(&self, keys: &'static [KeySpec], tx: &Transaction<'_>, request: Request<'_>) -> Cost {
        let estimate = Estimate { keys, request, tx: Some(tx) };
        let mut cost = self.of.map_or_else(|| estimate.arguments(), |of| of(&estimate));
        if self.changes_part
            && let Some((key, _)) =
                estimate.used_keys().next().filter(|(_, flags)| !flags.contains(KeyFlags::RO))
            && tx.shares_text(key)
        {
            cost.copies_shared = true;
            cost = cost.copying(tx.large_bytes(key) as u64);
        }
        cost
    }

    /// Whether a request takes about as long as every other of its command, and not much longer than reading
    /// the clock, unless its reply is long. Such requests are tallied together.
    #[inline]
    pub(crate) fn is_brief(&self, request: &Request<'_>) -> bool {
        request.len() <= self.brief_arguments_max && !self.changes_part && is_small(request)
    }

    /// Whether a request that changes a part of a string is brief, if its string is not shared.
    #[inline(always)]
    pub(crate) fn is_brief_part(&self, request: &Request<'_>, is_long: bool) -> bool {
        request.at(2).len() <= self.offset_digits_max && (self.is_brief_if_long || !is_long)
    }
}

/// Whether a request is so small that copying it takes hardly any time.
#[inline(always)]
pub(crate) fn is_small(request: &Request<'_>) -> bool {
    request.bytes() <= SMALL_BYTES_MAX
}

impl Cost {
    /// That of copying so many bytes.
    pub(crate) fn of_copied(bytes: usize) -> Cost {
        Cost::default().copying(bytes as u64)
    }

    /// The same for a request that changes something.
    pub(crate) fn changing(self) -> Cost {
        Cost { only_reads: false, ..self.weighing(CHANGED_WEIGHT) }
    }

    /// The same for a request that may be done with far less.
    pub(crate) fn or_less(self) -> Cost {
        Cost { may_be_less: true, ..self }
    }

    /// The same for a request whose reply is small, however much it touches: a number, or a few.
    pub(crate) fn with_small_reply(self) -> Cost {
        Cost { reply_bytes: 0, ..self }
    }

    /// The same for a request that handles elements that are dearer by this factor than to read one.
    pub(crate) fn weighing(self, weight: u64) -> Cost {
        Cost { elements: self.elements.saturating_mul(weight), ..self }
    }

    /// The same for a request that also copies so many bytes.
    fn copying(self, bytes: u64) -> Cost {
        Cost { bytes: self.bytes.saturating_add(bytes / COPIED_BYTES), ..self }
    }

    /// The sum with another request of the same transaction. Only a request of its own is tried, or runs on
    /// copies: these hold their locks.
    pub(crate) fn add(&mut self, other: Cost) {
        self.elements = self.elements.saturating_add(other.elements);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.reply_bytes = self.reply_bytes.saturating_add(other.reply_bytes);
        self.is_repeated |= other.is_repeated;
        self.copies_shared |= other.copies_shared;
    }

    /// Whether it takes long, so that the request needs a thread for such ones.
    #[inline]
    pub(crate) fn is_long(&self) -> bool {
        self.elements >= LONG_ELEMENTS || self.bytes >= LONG_BYTES
    }

    /// Whether the request may be tried for a moment: to begin again elsewhere changes nothing.
    pub(crate) fn may_be_tried(&self) -> bool {
        self.may_be_less && self.only_reads
    }
}

impl std::fmt::Debug for Estimate<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Estimate").field("keys", &self.keys).finish_non_exhaustive()
    }
}

impl<'a> Estimate<'a> {
    /// The cost of the arguments alone: each is like an element.
    #[inline]
    pub(crate) fn arguments(&self) -> Cost {
        Cost { elements: self.request.len() as u64, ..Cost::of_copied(self.request.bytes()) }
    }

    /// The keys of the request.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &'a [u8]> + Clone + use<'a> {
        self.used_keys().map(|(key, _)| key)
    }

    fn used_keys(&self) -> impl Iterator<Item = (&'a [u8], KeyFlags)> + Clone + use<'a> {
        keys_of(self.keys, self.request)
    }

    /// The values of the request, if they are at hand.
    pub(crate) fn values(&self) -> Option<&'a Transaction<'a>> {
        self.tx
    }

    /// The elements of a large value; 0 of a small one, or of none, or as long as it is not at hand.
    pub(crate) fn elements_of(&self, key: &[u8]) -> u64 {
        self.tx.map_or(0, |tx| tx.large_size(key).0 as u64)
    }

    /// A value that must be of a type, if it is at hand.
    pub(crate) fn value<T: Type>(&self, key: &[u8]) -> Option<T::View<'a>> {
        self.tx?.glance_at::<T>(key)
    }

    /// The cost of reading at most so many elements of the value of each key.
    pub(crate) fn reading(&self, elements_max: u64) -> Cost {
        let mut cost = Cost { only_reads: true, ..self.arguments() };
        if self.keys.is_empty() {
            cost.elements = cost.elements.max(elements_max);
        } else if let Some(tx) = self.tx {
            self.keys().for_each(|key| cost.add_value(elements_max, tx.large_size(key)));
        }
        cost
    }

    /// The same for a request that may read an element several times, so that no value limits it.
    pub(crate) fn reading_again(&self, elements: u64) -> Cost {
        let mut cost = Cost { only_reads: true, ..self.arguments() };
        // Of what is no collection, an element cannot be read again and again.
        let is_collection = |value: Value<'_>| value.facts.kind != STRING_KIND;
        for key in self.keys() {
            if let Some(tx) = self.tx.filter(|tx| tx.glance(key).is_some_and(is_collection)) {
                cost.is_repeated = true;
                cost.add_touched(elements, tx.large_size(key));
            }
        }
        cost
    }

    /// The product of the lengths of the strings.
    pub(crate) fn pairs_of_bytes(&self) -> u64 {
        let Some(tx) = self.tx else { return 0 };
        let length = |key| tx.glance(key).and_then(|value| value.content.bytes()).map_or(0, <[u8]>::len);
        self.keys().map(|key| length(key) as u64).fold(1, u64::saturating_mul)
    }
}

impl Cost {
    /// Adds the elements of a large value; of a small one, or of none, `len` is 0.
    fn add_value(&mut self, elements_max: u64, (len, bytes): (usize, usize)) {
        self.add_touched(elements_max.min(len as u64), (len, bytes));
    }

    fn add_touched(&mut self, touched: u64, (len, bytes): (usize, usize)) {
        let mean_bytes = bytes.checked_div(len).map_or(ELEMENT_BYTES, |mean| mean as u64);
        self.elements = self.elements.saturating_add(touched);
        let bytes = touched.saturating_mul(mean_bytes);
        self.bytes = self.bytes.saturating_add(bytes);
        self.reply_bytes = self.reply_bytes.saturating_add(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_limits_what_is_touched_unless_elements_come_again() {
        let cost = |elements, sizes: &[(usize, usize)]| {
            let mut cost = Cost::default();
            sizes.iter().for_each(|size| cost.add_value(elements, *size));
            cost
        };
        let part = cost(10, &[(100, 5000), (4, 400)]);
        assert_eq!((part.elements, part.bytes, part.reply_bytes), (14, 900, 900));
        let all = cost(u64::MAX, &[(5000, 100_000)]);
        assert!(!all.is_long() && all.changing().is_long() && all.bytes == 100_000);
        let sum = cost(u64::MAX, &[(1, 5 << 20)]).with_small_reply();
        assert!(sum.is_long() && sum.reply_bytes == 0);
        let mut again = Cost::default();
        again.add_touched(3_000_000, (0, 0));
        assert_eq!((again.elements, again.bytes), (3_000_000, 96_000_000));
        let mut endless = Cost::default();
        endless.add_touched(u64::MAX, (2, 1 << 40));
        assert_eq!(endless.bytes, u64::MAX);
        assert!(cost(u64::MAX, &[(5_000_000, 1 << 30)]).is_long());
        assert!(!cost(u64::MAX, &[(19_999, 1 << 20)]).is_long());
    }
}
