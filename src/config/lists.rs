//! Values of several words: addresses, flags, percentiles, adjustments.
//!
//! As in Redis, single blanks separate the words of CONFIG SET, so that there is an empty word between two
//! blanks. In a configuration file any number of blanks separates words, and quotes join words.

use std::borrow::Cow;
use std::net::IpAddr;

use super::refusal::{Refusal, place_among};

/// Addresses of one parameter. Redis: `CONFIG_BINDADDR_MAX`.
const ADDRESSES_MAX: usize = 16;
/// Scores are from minus this number to this number.
const SCORE_MAX: i64 = 2000;

/// The words of a value; an empty value has none.
pub(super) fn words(text: &[u8]) -> Vec<&[u8]> {
    if text.is_empty() { Vec::new() } else { text.split(|byte| *byte == b' ').collect() }
}

/// Reads an integer as C's `strtoll` does: it may begin with blanks and a plus, an empty text is 0, and a
/// number too large becomes the largest. Returns none if other characters follow.
pub(super) fn lenient_integer(text: &[u8]) -> Option<i64> {
    let text = text.trim_ascii_start();
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() && digits.len() < text.len() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let magnitude = digits
        .iter()
        .fold(0_i64, |sum, digit| sum.saturating_mul(10).saturating_add(i64::from(digit - b'0')));
    Some(if is_negative { -magnitude } else { magnitude })
}

pub(super) fn check_addresses(text: &[u8]) -> Result<(), Refusal> {
    match words(text).len() {
        0..=ADDRESSES_MAX => Ok(()),
        _ => Err("Too many bind addresses specified.".into()),
    }
}

/// Checks that every word is an IP address: a wrong one would match no client, without any complaint.
pub(super) fn check_ip_addresses(text: &[u8]) -> Result<(), Refusal> {
    let shown = words(text).into_iter().map(String::from_utf8_lossy);
    let is_none = |word: &Cow<'_, str>| word.parse::<IpAddr>().is_err();
    match shown.into_iter().find(is_none) {
        Some(word) => Err(Refusal(format!("'{word}' is not an IP address"))),
        None => Ok(()),
    }
}

/// Reads words as bits: one for each known word but the first, which stands for no bit.
pub(super) fn parse_words(text: &[u8], known: &[&str]) -> Result<i64, Refusal> {
    let words = words(text);
    // No word at all is refused like a wrong one.
    let words = if words.is_empty() { vec![&b""[..]] } else { words };
    let mut bits = 0;
    for word in words {
        bits |= 1 << place_among(word, known)?;
    }
    let bits = bits >> 1;
    if is_among(bits, known, "save") && is_among(bits, known, "nosave") {
        return Err("shutdown options SAVE and NOSAVE can't be used simultaneously".into());
    }
    Ok(bits)
}

/// Whether the bits contain the bit of this word.
pub(super) fn is_among(bits: i64, known: &[&str], word: &str) -> bool {
    known.iter().skip(1).position(|other| *other == word).is_some_and(|place| bits >> place & 1 == 1)
}

pub(super) fn print_words(bits: i64, known: &[&str]) -> Vec<u8> {
    let chosen: Vec<&str> =
        known.iter().skip(1).copied().filter(|word| is_among(bits, known, word)).collect();
    if chosen.is_empty() { known[0].into() } else { chosen.join(" ").into() }
}

/// Reads words as bits; the second word stands for all that follow.
pub(super) fn parse_words_or_all(text: &[u8], known: &[&str]) -> Result<i64, Refusal> {
    let bits = parse_words(text, known)?;
    Ok(if bits & 1 == 1 { all_words(known) } else { bits })
}

pub(super) fn print_words_or_all(bits: i64, known: &[&str]) -> Vec<u8> {
    let named = all_words(known) & !1;
    print_words(if bits & named == named { 1 } else { bits }, known)
}

/// The bits of all words but the first.
fn all_words(known: &[&str]) -> i64 {
    (1 << (known.len() - 1)) - 1
}

/// Reads percentiles such as `50 99.9`.
pub(super) fn parse_percentiles(text: &[u8]) -> Result<Vec<f64>, Refusal> {
    let one = |word: &[u8]| {
        // Rust reads `nan` and `infinity`, too: the one is refused here, the other is out of range.
        let number = std::str::from_utf8(word).ok().and_then(|word| word.parse::<f64>().ok());
        let number = number.filter(|number| !number.is_nan());
        let percentile = number.ok_or("Invalid latency-tracking-info-percentiles parameters")?;
        match (0.0..=100.0).contains(&percentile) {
            true => Ok(percentile),
            false => {
                Err("latency-tracking-info-percentiles parameters should sit between [0.0,100.0]".into())
            }
        }
    };
    words(text).into_iter().map(one).collect()
}

pub(super) fn print_percentiles(percentiles: &[f64]) -> String {
    percentiles.iter().map(|percentile| print_percentile(*percentile)).collect::<Vec<_>>().join(" ")
}

/// A percentile with up to six digits behind the point, without zeros at the end.
pub(crate) fn print_percentile(percentile: f64) -> String {
    let digits = format!("{percentile:.6}");
    digits.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Reads three scores: for a primary, a replica and a process that saves.
pub(super) fn parse_scores(text: &[u8]) -> Result<[i64; 3], Refusal> {
    let words: [&[u8]; 3] = words(text).try_into().map_err(|_| Refusal::from("wrong number of arguments"))?;
    let mut scores = [0; 3];
    for (score, word) in scores.iter_mut().zip(words) {
        let number = lenient_integer(word).filter(|score| (-SCORE_MAX..=SCORE_MAX).contains(score));
        *score = number.ok_or("Invalid oom-score-adj-values, elements must be between -2000 and 2000.")?;
    }
    Ok(scores)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_as_c_reads_them() {
        for (text, expected) in [
            ("", Some(0)),
            ("60", Some(60)),
            ("+5", Some(5)),
            ("\t-7", Some(-7)),
            ("007", Some(7)),
            ("99999999999999999999", Some(i64::MAX)),
            ("-", None),
            ("6 ", None),
            ("x", None),
            ("1.5", None),
        ] {
            assert_eq!(lenient_integer(text.as_bytes()), expected, "{text:?}");
        }
    }

    #[test]
    fn flags_are_printed_in_their_order() {
        let known = &["default", "save", "nosave", "now", "force"];
        for (text, expected) in [
            ("default", Some("default")),
            ("FORCE now", Some("now force")),
            ("save default", Some("save")),
            ("save save", Some("save")),
            ("save nosave", None),
            ("", None),
            ("now  force", None),
        ] {
            let printed = parse_words(text.as_bytes(), known).ok().map(|bits| print_words(bits, known));
            assert_eq!(printed.as_deref(), expected.map(str::as_bytes), "{text:?}");
        }
    }

    #[test]
    fn percentiles_are_printed_without_zeros_at_their_ends() {
        for (text, expected) in [("50 99 99.900", "50 99 99.9"), ("0.1234567 1e1", "0.123457 10"), ("", "")] {
            assert_eq!(print_percentiles(&parse_percentiles(text.as_bytes()).unwrap()), expected);
        }
        for text in ["nan", "x", "101", "-1", "50  99", "inf"] {
            assert!(parse_percentiles(text.as_bytes()).is_err(), "{text}");
        }
    }
}
