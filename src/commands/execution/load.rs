//! How much work a request makes, by its arguments and by the values of its keys. It is known before the
//! request runs. A request that makes much of it runs on a thread for long requests.

use crate::keyspace::Transaction;
use crate::resp::Request;
use crate::session::Session;
use crate::values::{STRING_KIND, Value};

use crate::commands::Command;
use crate::commands::facts::lookup::queued;
use crate::commands::facts::{Amount, Scope};

/// A request that touches this number of elements takes some milliseconds.
const LONG_ELEMENTS: u64 = 20_000;
/// One that touches this number of bytes, too.
const LONG_BYTES: u64 = 4 << 20;
/// Elements that take as long as comparing this number of pairs of bytes.
const COMPARED_PAIRS: u64 = 64;
/// Bytes of an element where that is not known, with what a reply adds.
const ELEMENT_BYTES: u64 = 32;

/// What a request touches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// Elements of values, and arguments. One that is dear to handle counts as several.
    pub elements: u64,
    /// Bytes of these elements.
    pub bytes: u64,
    /// Bytes of the reply, about: those of the elements, unless it is small.
    pub reply_bytes: u64,
    /// Whether the request itself says how much it touches, so that no value limits it.
    pub is_repeated: bool,
    /// Whether it may be far less, and to try that changes nothing.
    pub may_be_tried: bool,
}

impl Load {
    /// That of a request, apart from its keys.
    #[inline]
    pub(crate) fn of_request(command: &Command, request: Request<'_>) -> Load {
        let mut load = Load { elements: request.len() as u64, ..Load::default() };
        if command.keys.is_empty()
            && let Some(reads_much) = command.reads_much
        {
            // How much there is shows only when it runs.
            load.elements = load.elements.max(reads_much(request, None).elements);
        }
        load
    }

    /// That of a request on the keys of its transaction, or of all that EXEC runs.
    #[inline]
    pub(crate) fn of(
        session: &Session,
        command: &Command,
        tx: &Transaction<'_>,
        request: Request<'_>,
    ) -> Load {
        match &session.queue {
            Some(queue) if command.scope == Scope::Queue && !queue.is_broken => {
                let mut load = Load::default();
                for (registered, request) in queued(queue) {
                    load.add(Load::of_one(registered.command, tx, request));
                }
                load
            }
            _ if command.reads_much.is_none() => Load::default(),
            _ => Load::of_one(command, tx, request),
        }
    }

    fn of_one(command: &Command, tx: &Transaction<'_>, request: Request<'_>) -> Load {
        let mut load = Load::of_request(command, request);
        let Some(reads_much) = command.reads_much else { return load };
        if command.keys.is_empty() {
            return load;
        }
        let amount = reads_much(request, Some(tx));
        load.may_be_tried = amount.only_reads && !amount.is_certain;
        if amount.is_product {
            let length = |key| tx.glance(key).and_then(|value| value.content.bytes()).map_or(0, <[u8]>::len);
            let lengths = command.keys_of(request).map(|(key, _)| length(key) as u64);
            load.elements += lengths.fold(1, u64::saturating_mul) / COMPARED_PAIRS;
            return load;
        }
        for (key, _) in command.keys_of(request) {
            // Of what is no collection, an element cannot be read again and again.
            let is_collection = |value: Value<'_>| value.facts.kind != STRING_KIND;
            if amount.may_repeat && !tx.glance(key).is_some_and(is_collection) {
                continue;
            }
            load.add_value(amount, tx.large_size(key));
        }
        load
    }

    /// Adds the elements of a large value; of a small one, or of none, `len` is 0.
    fn add_value(&mut self, amount: Amount, (len, bytes): (usize, usize)) {
        let (len, bytes) = (len as u64, bytes as u64);
        let mean_bytes = bytes.checked_div(len).unwrap_or(ELEMENT_BYTES);
        let touched = if amount.may_repeat { amount.elements } else { amount.elements.min(len) };
        self.is_repeated |= amount.may_repeat;
        self.elements = self.elements.saturating_add(touched.saturating_mul(amount.weight));
        let bytes = touched.saturating_mul(mean_bytes);
        self.bytes = self.bytes.saturating_add(bytes);
        self.reply_bytes = self.reply_bytes.saturating_add(if amount.has_small_reply { 0 } else { bytes });
    }

    fn add(&mut self, other: Load) {
        self.elements = self.elements.saturating_add(other.elements);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.reply_bytes = self.reply_bytes.saturating_add(other.reply_bytes);
        // Only a request of its own is tried: these hold their locks.
        self.is_repeated |= other.is_repeated;
    }

    /// Whether it takes long.
    #[inline]
    pub(crate) fn is_long(&self) -> bool {
        self.elements >= LONG_ELEMENTS || self.bytes >= LONG_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(amount: Amount, sizes: &[(usize, usize)]) -> Load {
        let mut load = Load::default();
        sizes.iter().for_each(|size| load.add_value(amount, *size));
        load
    }

    #[test]
    fn a_value_limits_what_is_touched_unless_elements_come_again() {
        let part = load(Amount::of(10), &[(100, 5000), (4, 400)]);
        assert_eq!((part.elements, part.bytes, part.is_repeated), (14, 900, false));
        let all = load(Amount::ALL.changing(), &[(5000, 100_000)]);
        assert!(all.is_long() && all.bytes == 100_000 && all.reply_bytes == 100_000);
        let sum = load(Amount::ALL.with_small_reply(), &[(1, 5 << 20)]);
        assert!(sum.is_long() && sum.reply_bytes == 0);
        let again = load(Amount { may_repeat: true, ..Amount::of(3_000_000) }, &[(0, 0)]);
        assert_eq!((again.elements, again.bytes, again.is_repeated), (3_000_000, 96_000_000, true));
        let endless = load(Amount { may_repeat: true, ..Amount::of(u64::MAX) }, &[(2, 1 << 40)]);
        assert_eq!(endless.bytes, u64::MAX);
        assert!(load(Amount::UP_TO_ALL, &[(5_000_000, 1 << 30)]).is_long());
        assert!(!load(Amount::ALL, &[(19_999, 1 << 20)]).is_long());
    }
}
