//! Tokens of managed services in the place of passwords (`auth-iam`).
//!
//! Applications send ElastiCache, MemoryDB, Azure and Memorystore a token that is good for a short time. Here
//! a token is judged by what can be read in it: its form, its user, and its age by the server's clock. So a
//! test sees whether an application renews its tokens in time. What a token made by hand lacks is no reason
//! to refuse it, as long as its age and its user are known; but what it says must be right. No cloud is asked
//! and no signature checked: anyone can make a token. That is why only local clients may use them, unless the
//! operator says otherwise.

mod aws;
mod azure;
mod google;

use crate::config::CLOUDS;
use google::Seen;

/// A longer token is refused without a look into it. Azure's are some 2 KiB.
const TOKEN_BYTES_MAX: usize = 16 << 10;

/// A token that a client sends as the password of a user.
#[derive(Clone, Copy)]
struct Sent<'a> {
    token: &'a [u8],
    user: &'a [u8],
    /// The name of the cache that the operator has given, or nothing.
    cache: &'a [u8],
    now_ms: u64,
}

/// How one cloud judges its tokens.
struct Cloud {
    /// Whether a password has the form of its tokens.
    is_token: fn(&[u8]) -> bool,
    /// When the connection ends that such a token begins, in milliseconds since 1970; or why it is wrong.
    judge: fn(&Tokens, Sent<'_>) -> Result<u64, &'static str>,
}

/// All clouds, in the order of [`CLOUDS`] without its first word, which stands for none.
static JUDGES: [Cloud; CLOUDS.len() - 1] = [
    Cloud { is_token: aws::is_token, judge: |_, sent| aws::judge(sent) },
    Cloud { is_token: azure::is_token, judge: |_, sent| azure::judge(sent) },
    Cloud { is_token: google::is_token, judge: |tokens, sent| tokens.seen.judge(sent) },
];

/// What a server remembers of tokens.
#[derive(Debug, Default)]
pub(crate) struct Tokens {
    seen: Seen,
}

impl Tokens {
    /// Whether a password has the form of a token of one of these clouds.
    pub(crate) fn have(clouds: i64, password: &[u8]) -> bool {
        cloud_of(clouds, password).is_some()
    }

    /// Judges a password that may be a token of one of these clouds: bits in the order of [`CLOUDS`]. Returns
    /// when the connection ends that it begins, in milliseconds since 1970, or why the token is wrong;
    /// nothing if the password has the form of none.
    pub(crate) fn judge(
        &self,
        clouds: i64,
        cache: &[u8],
        (user, token): (&[u8], &[u8]),
        now_ms: u64,
    ) -> Option<Result<u64, &'static str>> {
        let cloud = cloud_of(clouds, token)?;
        Some(match token.len() {
            ..=TOKEN_BYTES_MAX => (cloud.judge)(self, Sent { token, user, cache, now_ms }),
            _ => Err("it is too long"),
        })
    }
}

/// The cloud whose tokens have this form, if it is one of these.
fn cloud_of(clouds: i64, password: &[u8]) -> Option<&'static Cloud> {
    let asked = JUDGES.iter().enumerate().filter(|(place, _)| clouds >> place & 1 == 1);
    asked.map(|(_, cloud)| cloud).find(|cloud| (cloud.is_token)(password))
}
