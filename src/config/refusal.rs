//! Why a value was refused.

use std::fmt;

/// Why a value was refused. The text is that of Redis, without the parameter's name.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal(pub(super) String);

impl From<&str> for Refusal {
    fn from(why: &str) -> Refusal {
        Refusal(why.to_owned())
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The place of a word among those that a parameter takes, in any case.
pub(super) fn place_among(text: &[u8], words: &[&str]) -> Result<usize, Refusal> {
    let place = words.iter().position(|word| word.as_bytes().eq_ignore_ascii_case(text));
    place.ok_or_else(|| Refusal(format!("argument(s) must be one of the following: {}", words.join(", "))))
}
