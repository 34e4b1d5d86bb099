//! Permits of a lock, as the row of their key has them.

use std::collections::HashMap;

use bytes::Bytes;

use super::row::Live;
use crate::dump;
use crate::dump::collections::{SORTED_SET, sorted_set, write_score};
use crate::dump::strings::{Decoder, write_length, write_string};
use crate::types::sorted_sets::permits::{is_last_end, is_mark, moment};
use crate::values::SORTED_SET_KIND;

/// The longest member that is read, in bytes, as in memory.
const MEMBER_BYTES_MAX: usize = 512 << 20;

/// The permits of a row, and marks among them.
#[derive(Debug)]
pub(super) struct Permits(HashMap<Box<[u8]>, f64>);

impl Permits {
    /// Those of a key that is there, if it has permits.
    pub(super) fn of(live: &Live) -> Option<Permits> {
        if live.kind != SORTED_SET_KIND {
            return None;
        }
        let (content, author) = dump::content_of(&live.value, false).ok()?;
        let mut decoder = Decoder::new(content, MEMBER_BYTES_MAX);
        let rdb_type = author.form(decoder.byte().ok()?)?;
        let mut members = HashMap::new();
        let mut visit = |member: &[u8], score: f64| {
            members.insert(member.into(), score);
            Ok(())
        };
        sorted_set(rdb_type, &mut decoder, &mut visit).ok()?;
        let last = members.values().copied().max_by(f64::total_cmp)?;
        is_last_end(last, live.expires_at_ms?).then_some(Permits(members))
    }

    /// When the permit of a token ends or has ended, in milliseconds since 1970, if it is there.
    pub(super) fn end_of(&self, token: &[u8]) -> Option<u64> {
        self.0.get(token).filter(|_| !is_mark(token)).map(|end_ms| *end_ms as u64)
    }

    pub(super) fn set_end(&mut self, token: &[u8], end_ms: u64) {
        self.0.insert(token.into(), end_ms as f64);
    }

    pub(super) fn remove(&mut self, token: &[u8]) {
        self.0.remove(token);
    }

    /// The key with these permits, without those whose ends have passed. `None` if none is left.
    pub(super) fn into_live(self, now_ms: u64) -> Option<Live> {
        let mut members: Vec<_> = self.0.into_iter().filter(|(_, end_ms)| *end_ms > now_ms as f64).collect();
        members.sort_by(|(one, first), (other, second)| second.total_cmp(first).then_with(|| other.cmp(one)));
        let expires_at_ms = moment(members.first()?.1)?;
        let mut payload = vec![SORTED_SET];
        write_length(&mut payload, members.len() as u64);
        for (member, end_ms) in &members {
            write_string(&mut payload, member, None);
            write_score(&mut payload, *end_ms);
        }
        let value = Bytes::from(dump::sign(payload));
        Some(Live { kind: SORTED_SET_KIND, value, expires_at_ms: Some(expires_at_ms), is_lock: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_what_was_written() {
        let ends: [(&[u8], f64); 3] = [(b"a", 700.0), (b"b", 900.0), (b"over", 100.0)];
        let permits = Permits(ends.into_iter().map(|(token, end_ms)| (token.into(), end_ms)).collect());
        let live = permits.into_live(100).expect("permits");
        assert_eq!(live.expires_at_ms, Some(900));
        let mut permits = Permits::of(&live).expect("permits");
        assert_eq!([b"a", b"b"].map(|token| permits.end_of(token)), [Some(700), Some(900)]);
        assert_eq!(permits.end_of(b"over"), None);
        permits.set_end(b"a", 950);
        permits.remove(b"b");
        let live = permits.into_live(100).expect("permits");
        assert_eq!(live.expires_at_ms, Some(950));
        assert!(Permits::of(&Live { expires_at_ms: Some(2000), ..live.clone() }).is_none(), "another form");
        let mut permits = Permits::of(&live).expect("permits");
        permits.remove(b"a");
        assert!(permits.into_live(100).is_none());
    }
}
