//! Tokens of Memorystore: access tokens of Google, which are good for an hour. Nothing can be read in them,
//! so the hour begins when the server sees a token first. A connection lasts until its end.

use std::collections::VecDeque;

use parking_lot::Mutex;

use super::Sent;
use crate::digest::digest;

/// How long a token is good.
const GOOD_MS: u64 = 60 * 60 * 1000;
/// Tokens that are remembered. The oldest makes way, and would be new if it came again.
const SEEN_MAX: usize = 1024;

/// The tokens that were seen, the oldest first: their digests, and when that was, in milliseconds since 1970.
#[derive(Debug, Default)]
pub(super) struct Seen(Mutex<VecDeque<(u64, u64)>>);

/// All access tokens of Google begin so.
pub(super) fn is_token(password: &[u8]) -> bool {
    password.starts_with(b"ya29.")
}

impl Seen {
    pub(super) fn judge(&self, sent: Sent<'_>) -> Result<u64, &'static str> {
        if !sent.token.iter().all(u8::is_ascii_graphic) {
            return Err("it is no access token");
        }
        let (mut seen, token) = (self.0.lock(), digest(sent.token));
        let known = seen.iter().find(|(other, _)| *other == token).map(|(_, first_ms)| *first_ms);
        let first_ms = known.unwrap_or_else(|| {
            if seen.len() == SEEN_MAX {
                seen.pop_front();
            }
            seen.push_back((token, sent.now_ms));
            sent.now_ms
        });
        let ends_at_ms = first_ms.saturating_add(GOOD_MS);
        if ends_at_ms <= sent.now_ms { Err("it is too old") } else { Ok(ends_at_ms) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_good_for_an_hour_from_its_first_use() {
        let seen = Seen::default();
        let judged = |token: &str, now_ms| {
            seen.judge(Sent { token: token.as_bytes(), user: b"default", cache: b"", now_ms })
        };
        assert_eq!(judged("ya29.a", 1000), Ok(1000 + GOOD_MS));
        assert_eq!(judged("ya29.a", 999 + GOOD_MS), Ok(1000 + GOOD_MS));
        assert_eq!(judged("ya29.a", 1000 + GOOD_MS), Err("it is too old"));
        assert_eq!(judged("ya29.b", 1000 + GOOD_MS), Ok(1000 + 2 * GOOD_MS));
        assert!(judged("ya29.\n", 0).is_err());
        (0..2 * SEEN_MAX).for_each(|number| _ = judged(&format!("ya29.{number}"), 0));
        assert_eq!(seen.0.lock().len(), SEEN_MAX);
    }
}
