//! Matches texts against patterns as Redis does: `*`, `?`, `[a-z]`, `[^a]` and `\` before any of them.
//!
//! To try every length for every star takes exponential time for `a*a*a*a*b`: Redis did until 7.0.9. That is
//! never needed. Between two stars lies a segment of elements, each of which matches one byte. The first
//! place at which a segment matches is as good as any later one, so it is enough to go back to the last star.
//! That can still take the product of two lengths, which is much for two long ones. So the work is counted,
//! and what turns out to be long is left to [`compiled`]: a pattern that is read once, and matched in a time
//! that is linear in the text wherever the segments between stars are plain bytes.

mod compiled;

use std::borrow::Cow;
use std::sync::OnceLock;

use compiled::Compiled;

/// A longer pattern is compiled at once: a class in it may be long, and is read for each byte otherwise.
const SHORT_BYTES_MAX: usize = 128;
/// The longest pattern that a client can [register](Pattern::register), far beyond what people write. Redis
/// has no limit.
pub(crate) const REGISTERED_BYTES_MAX: usize = 16 << 10;

/// A pattern that many texts are matched against.
#[derive(Clone, Debug)]
pub struct Pattern<'p> {
    bytes: Cow<'p, [u8]>,
    ignore_case: bool,
    /// Of a short pattern, made when it is first needed.
    compiled: OnceLock<Compiled>,
}

/// A pattern is longer than [`REGISTERED_BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

/// Whether all of `text` matches `pattern`, letters in either case if `ignore_case`.
pub(crate) fn matches(pattern: &[u8], text: &[u8], ignore_case: bool) -> bool {
    Pattern::new(pattern, ignore_case).matches(text)
}

impl<'p> Pattern<'p> {
    /// A pattern that ignores the case of letters, or does not.
    pub fn new(pattern: &'p [u8], ignore_case: bool) -> Pattern<'p> {
        Pattern::of(Cow::Borrowed(pattern), ignore_case)
    }

    /// A pattern that is kept, and matched against what other clients send. Letters match in their own case.
    ///
    /// # Errors
    ///
    /// If it is longer than [`REGISTERED_BYTES_MAX`].
    pub fn register(pattern: &[u8]) -> Result<Pattern<'static>, TooLong> {
        if pattern.len() <= REGISTERED_BYTES_MAX { Ok(Pattern::owned(pattern)) } else { Err(TooLong) }
    }

    /// The same for a pattern of any length, from a parameter.
    pub fn owned(pattern: &[u8]) -> Pattern<'static> {
        Pattern::of(Cow::Owned(pattern.to_vec()), false)
    }

    fn of(bytes: Cow<'p, [u8]>, ignore_case: bool) -> Pattern<'p> {
        let compiled = OnceLock::new();
        if bytes.len() > SHORT_BYTES_MAX {
            // While it is matched, the caller may hold a lock.
            compiled.get_or_init(|| Compiled::new(&bytes, ignore_case));
        }
        Pattern { bytes, ignore_case, compiled }
    }

    /// The pattern as it was written.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether all of a text matches. An empty text matches the empty pattern only, not even `*`, as in
    /// Redis.
    pub fn matches(&self, text: &[u8]) -> bool {
        if text.is_empty() {
            return self.bytes.is_empty();
        }
        if self.bytes.len() <= SHORT_BYTES_MAX
            && let Some(is_match) = self.matches_soon(text)
        {
            return is_match;
        }
        self.compiled.get_or_init(|| Compiled::new(&self.bytes, self.ignore_case)).matches(text)
    }

    /// The same for a pattern as it was written; none if it takes too long.
    fn matches_soon(&self, text: &[u8]) -> Option<bool> {
        /// Steps for each byte of the text: usual patterns need one or two.
        const STEPS_PER_BYTE: usize = 8;
        let pattern = &*self.bytes;
        let mut steps_left = STEPS_PER_BYTE * (pattern.len() + text.len());
        let (mut pattern_at, mut text_at) = (0, 0);
        let mut last_star = None;
        loop {
            if let Some(b'*') = pattern.get(pattern_at) {
                pattern_at += 1;
                last_star = Some((pattern_at, text_at));
                continue;
            }
            let Some(&byte) = text.get(text_at) else { return Some(pattern_at == pattern.len()) };
            if let Some((element, bytes)) = Element::first(&pattern[pattern_at..]) {
                // A class is as much work as it is long.
                steps_left = steps_left.checked_sub(bytes)?;
                if element.matches(byte, self.ignore_case) {
                    pattern_at += bytes;
                    text_at += 1;
                    continue;
                }
            }
            // The last star takes one byte more.
            let Some((after_star, star_text)) = last_star else { return Some(false) };
            last_star = Some((after_star, star_text + 1));
            (pattern_at, text_at) = (after_star, star_text + 1);
        }
    }
}

/// A part of a pattern that matches exactly one byte.
#[derive(Clone, Copy, Debug)]
enum Element<'p> {
    /// Any one byte (`?`).
    Any,
    /// Exactly this byte.
    Byte(u8),
    /// The bytes of a class, or all others.
    Class { items: Items<'p>, is_negated: bool },
}

impl<'p> Element<'p> {
    /// The first element of a pattern that does not begin with a star, and its length; none of an empty one.
    #[inline]
    fn first(pattern: &'p [u8]) -> Option<(Element<'p>, usize)> {
        Some(match pattern {
            [] => return None,
            [b'?', ..] => (Element::Any, 1),
            [b'[', class @ ..] => {
                let is_negated = class.first() == Some(&b'^');
                let items = Items { rest: &class[usize::from(is_negated)..] };
                let bytes = 1 + usize::from(is_negated) + items.bytes();
                (Element::Class { items, is_negated }, bytes)
            }
            [b'\\', escaped, ..] => (Element::Byte(*escaped), 2),
            [byte, ..] => (Element::Byte(*byte), 1),
        })
    }

    fn matches(self, byte: u8, ignore_case: bool) -> bool {
        match self {
            Element::Any => true,
            Element::Byte(only) => fold(only, ignore_case) == fold(byte, ignore_case),
            Element::Class { mut items, is_negated } => {
                items.any(|item| item.matches(byte, ignore_case)) != is_negated
            }
        }
    }
}

/// The rest of a class; one that is not closed ends with the pattern, as in Redis.
#[derive(Clone, Copy, Debug)]
struct Items<'p> {
    rest: &'p [u8],
}

/// An item of a class.
#[derive(Clone, Copy, Debug)]
enum Item {
    Byte(u8),
    /// Redis takes an escaped letter as it is, even where case is ignored.
    Escaped(u8),
    Range(u8, u8),
}

impl Items<'_> {
    /// How long the class is, with the bracket that closes it.
    fn bytes(self) -> usize {
        let mut items = self;
        items.by_ref().for_each(drop);
        let has_end = !items.rest.is_empty();
        self.rest.len() - items.rest.len() + usize::from(has_end)
    }
}

impl Iterator for Items<'_> {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        let (item, bytes) = match self.rest {
            [] | [b']', ..] => return None,
            [b'\\', escaped, ..] => (Item::Escaped(*escaped), 2),
            [first, b'-', last, ..] => (Item::Range(*first, *last), 3),
            [byte, ..] => (Item::Byte(*byte), 1),
        };
        self.rest = &self.rest[bytes..];
        Some(item)
    }
}

impl Item {
    fn matches(self, byte: u8, ignore_case: bool) -> bool {
        let folded = fold(byte, ignore_case);
        match self {
            Item::Byte(only) => fold(only, ignore_case) == folded,
            Item::Escaped(only) => only == byte,
            Item::Range(first, last) => {
                let (low, high) = ends(first, last, ignore_case);
                (low.cast_signed()..=high.cast_signed()).contains(&folded.cast_signed())
            }
        }
    }
}

/// The lowest and the highest byte of a range; with small letters, where case is ignored. A `char` of C has a
/// sign where Redis is used most: bytes from 128 on come before all others.
fn ends(first: u8, last: u8, ignore_case: bool) -> (u8, u8) {
    let (low, high) = if first.cast_signed() > last.cast_signed() { (last, first) } else { (first, last) };
    (fold(low, ignore_case), fold(high, ignore_case))
}

fn fold(byte: u8, ignore_case: bool) -> u8 {
    if ignore_case { byte.to_ascii_lowercase() } else { byte }
}

#[cfg(test)]
mod tests {
    use super::{Compiled, Pattern, REGISTERED_BYTES_MAX, SHORT_BYTES_MAX, TooLong, matches};

    /// The result of both ways of matching, which must be the same.
    fn both(pattern: &[u8], text: &[u8], ignore_case: bool) -> bool {
        let quick = matches(pattern, text, ignore_case);
        if !text.is_empty() {
            let thorough = Compiled::new(pattern, ignore_case).matches(text);
            assert_eq!(quick, thorough, "{} {}", pattern.escape_ascii(), text.escape_ascii());
        }
        quick
    }

    #[test]
    fn patterns_match_what_they_say() {
        for (pattern, text) in [
            ("", ""),
            ("*", "anything"),
            ("a?c", "abc"),
            ("a*c", "ac"),
            ("a*c*e", "abcde"),
            ("[a-c]x", "bx"),
            ("[c-a]x", "bx"),
            ("[^a]x", "bx"),
            ("\\*", "*"),
            ("[\\]]", "]"),
            ("**a", "a"),
            ("[ab", "b"),
            ("[^", "x"),
            ("[^]", "x"),
            ("a\\", "a\\"),
            ("[\\", "\\"),
            ("[a-", "-"),
            ("*b?d*", "abcbcde"),
            ("*ab*ab", "xabab"),
        ] {
            assert!(both(pattern.as_bytes(), text.as_bytes(), false), "{pattern} {text}");
        }
    }

    #[test]
    fn and_nothing_else() {
        for (pattern, text) in [
            ("", "a"),
            ("a", ""),
            ("*", ""),
            ("a?", "a"),
            ("a*b", "ac"),
            ("[a-c]", "d"),
            ("[^a]", "a"),
            ("[", "["),
            ("[]", "]"),
            ("\\*", "x"),
            ("A", "a"),
            ("*ab*ab", "xab"),
            ("ab*ba", "aba"),
        ] {
            assert!(!both(pattern.as_bytes(), text.as_bytes(), false), "{pattern} {text}");
        }
    }

    #[test]
    fn case_is_ignored_where_that_is_asked_for_but_for_what_is_escaped_in_a_class() {
        assert!(both(b"A[B-C]", b"ab", true));
        assert!(both(b"*aB?*", b"xAbc", true));
        assert!(both(b"\\A", b"a", true));
        assert!(!both(b"[\\A]", b"a", true));
    }

    #[test]
    fn bytes_beyond_ascii_come_before_it_in_ranges() {
        assert!(both(b"[a-\xff]", b"A", false), "from -1 to 97");
        assert!(!both(b"[a-\xff]", b"b", false));
        assert!(both(b"[\x80-\xff]", b"\xc3", false));
    }

    #[test]
    fn both_ways_of_matching_agree() {
        let mut random = fastrand::Rng::with_seed(7);
        const BYTES: &[u8] = b"aaab*?[]^-\\\x00\xff";
        let mut some = |length: usize| -> Vec<u8> {
            (0..random.usize(..=length)).map(|_| BYTES[random.usize(..BYTES.len())]).collect()
        };
        for _ in 0..20_000 {
            let (pattern, text) = (some(8), some(6));
            both(&pattern, &text, pattern.len() % 2 == 0);
        }
    }

    #[test]
    fn a_registered_pattern_is_compiled_once_if_it_is_long_and_not_while_it_is_matched() {
        for (bytes, is_compiled) in [(SHORT_BYTES_MAX, false), (SHORT_BYTES_MAX + 1, true)] {
            let pattern = Pattern::register(&vec![b'?'; bytes]).unwrap();
            assert_eq!(pattern.compiled.get().is_some(), is_compiled);
            assert!(pattern.matches(&vec![b'x'; bytes]) && !pattern.matches(b"x"));
            assert_eq!(pattern.clone().compiled.get().is_some(), is_compiled);
        }
        assert!(Pattern::register(&vec![b'*'; REGISTERED_BYTES_MAX]).is_ok());
        assert_eq!(Pattern::register(&vec![b'*'; REGISTERED_BYTES_MAX + 1]).err(), Some(TooLong));
    }

    #[test]
    fn many_stars_and_long_texts_do_not_take_for_ever() {
        let stars = format!("{}b", "a*".repeat(1000));
        assert!(!matches(stars.as_bytes(), "a".repeat(10_000).as_bytes(), false));
        // 1.6 billion pairs each; the second with what is no plain text.
        for middle in ["a", "?"] {
            let pattern = format!("*{}{middle}b*", "a".repeat(8_000));
            assert!(!matches(pattern.as_bytes(), "a".repeat(200_000).as_bytes(), false));
        }
        let class = [&b"*["[..], &b"b".repeat(1_000_000)].concat();
        assert!(!matches(&class, &b"a".repeat(10_000), false));
    }
}
