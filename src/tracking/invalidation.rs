//! The notifications for clients that keep copies of keys.

use crate::resp::{Protocol, Reply, Sent};

/// The channel on which clients of RESP2 get invalidations: its messages alone are no strings.
const CHANNEL: &[u8] = b"__redis__:invalidate";

/// An invalidation, in each version of the protocol, made when it is first needed.
pub(super) struct Invalidation<'a> {
    /// The keys that have changed; `None` for all.
    keys: Option<&'a [&'a [u8]]>,
    encoded: [Option<Vec<u8>>; 2],
}

impl<'a> Invalidation<'a> {
    pub(super) fn of(keys: &'a [&'a [u8]]) -> Invalidation<'a> {
        Invalidation { keys: Some(keys), encoded: [None, None] }
    }

    pub(super) fn of_all() -> Invalidation<'static> {
        Invalidation { keys: None, encoded: [None, None] }
    }

    pub(super) fn encoded(&mut self, protocol: Protocol) -> &[u8] {
        let (slot, parts): (_, &[&[u8]]) = match protocol {
            Protocol::Resp2 => (&mut self.encoded[0], &[b"message", CHANNEL]),
            Protocol::Resp3 => (&mut self.encoded[1], &[b"invalidate"]),
        };
        let keys = self.keys;
        slot.get_or_insert_with(|| {
            let mut bytes = Vec::new();
            let _: Sent =
                Reply::new(&mut bytes, protocol).push_of(0..parts.len() + 1, |part, reply| {
                    match (parts.get(part), keys) {
                        (Some(word), _) => reply.bulk(word),
                        (None, Some(keys)) => reply.array_of(keys.iter(), |key, reply| reply.bulk(key)),
                        (None, None) => reply.nil(),
                    }
                });
            bytes
        })
    }
}
