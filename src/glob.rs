//! Matches text against patterns as Redis does: `*`, `?`, `[a-z]`, `[^a]` and `\` before any of them.

/// Whether all of `text` matches `pattern`, letters in either case if `ignore_case`.
///
/// It goes back to the last star only, so the time is at most the product of the two lengths, whatever the
/// pattern (Redis's own recursion is exponential for `a*a*a*a*b`).
pub fn matches(pattern: &[u8], text: &[u8], ignore_case: bool) -> bool {
    let (mut pattern_at, mut text_at) = (0, 0);
    let mut last_star = None;
    loop {
        if let Some(b'*') = pattern.get(pattern_at) {
            pattern_at += 1;
            last_star = Some((pattern_at, text_at));
            continue;
        }
        let Some(&byte) = text.get(text_at) else { return pattern_at == pattern.len() };
        if let Some(after) = match_one(&pattern[pattern_at..], byte, ignore_case) {
            pattern_at += after;
            text_at += 1;
            continue;
        }
        // The last star takes one byte more.
        let Some((after_star, star_text)) = last_star else { return false };
        last_star = Some((after_star, star_text + 1));
        (pattern_at, text_at) = (after_star, star_text + 1);
    }
}

/// Matches one byte against the first element of a pattern; answers that element's length.
fn match_one(pattern: &[u8], byte: u8, ignore_case: bool) -> Option<usize> {
    let same = |a: u8, b: u8| if ignore_case { a.eq_ignore_ascii_case(&b) } else { a == b };
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'[', class @ ..] => match_class(class, byte, ignore_case).map(|length| length + 1),
        [b'\\', escaped, ..] => same(*escaped, byte).then_some(2),
        [literal, ..] => same(*literal, byte).then_some(1),
    }
}

/// Matches one byte against a class, after its `[`; an unclosed one ends with the pattern, as in Redis.
fn match_class(class: &[u8], byte: u8, ignore_case: bool) -> Option<usize> {
    let fold = |byte: u8| if ignore_case { byte.to_ascii_lowercase() } else { byte };
    let is_negated = class.first() == Some(&b'^');
    let mut at = usize::from(is_negated);
    let mut is_member = false;
    loop {
        let (low, high, length) = match &class[at..] {
            [] => return (is_member != is_negated).then_some(at),
            [b']', ..] => return (is_member != is_negated).then_some(at + 1),
            [b'\\', escaped, ..] => (*escaped, *escaped, 2),
            [first, b'-', last, ..] => (*first.min(last), *first.max(last), 3),
            [only, ..] => (*only, *only, 1),
        };
        is_member |= (fold(low)..=fold(high)).contains(&fold(byte));
        at += length;
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_what_they_say() {
        for (pattern, text) in [
            ("*", ""),
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
        ] {
            assert!(matches(pattern.as_bytes(), text.as_bytes(), false), "{pattern} {text}");
        }
    }

    #[test]
    fn and_nothing_else() {
        for (pattern, text) in [
            ("", "a"),
            ("a", ""),
            ("a?", "a"),
            ("a*b", "ac"),
            ("[a-c]", "d"),
            ("[^a]", "a"),
            ("\\*", "x"),
            ("A", "a"),
        ] {
            assert!(!matches(pattern.as_bytes(), text.as_bytes(), false), "{pattern} {text}");
        }
        assert!(matches(b"A[B-C]", b"ab", true));
    }

    #[test]
    fn many_stars_do_not_take_for_ever() {
        let pattern = format!("{}b", "a*".repeat(1000));
        assert!(!matches(pattern.as_bytes(), "a".repeat(10_000).as_bytes(), false));
    }
}
