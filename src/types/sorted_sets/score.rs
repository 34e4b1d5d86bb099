//! Scores as texts.
//!
//! Redis leaves reading to `strtod` of C, so a score may be decimal or hexadecimal, with an exponent or
//! without, or a word for infinity. Payloads and the log have 17 digits, as in Redis 7.0, from which each
//! score can be read again. Replies have fewer: see [`shortest`](crate::resp::shortest).

use rustc_apfloat::ieee::Double;
use rustc_apfloat::{Float, Round};

use crate::resp::number::write_general;

/// Digits of a printed score: enough for each to be read again as the same number.
const DIGITS: usize = 17;
/// An exponent with more digits than this only means "too large" or "too small".
const EXPONENT_DIGITS_MAX: usize = 6;

/// Reads a score of a request. `None` if the text is no number, or the number is too large or too small.
pub(crate) fn parse(text: &[u8]) -> Option<f64> {
    let is_plain = text.first().is_some_and(|first| !is_blank(first));
    let read = read(text).filter(|read| is_plain && read.length == text.len())?;
    (!read.is_out_of_range && !read.score.is_nan()).then_some(read.score)
}

/// Reads the end of a range of scores, or a number by which SORT sorts. Redis has another reader for those:
/// it knows only decimal numbers and no blanks. An empty text is 0, a number that is too large is infinite,
/// and a zero byte ends the text.
pub(crate) fn parse_decimal(text: &[u8]) -> Option<f64> {
    let length = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    let text = &text[..length];
    if text.is_empty() {
        return Some(0.0);
    }
    let is_decimal = !is_blank(&text[0]) && !text.iter().any(|byte| matches!(byte, b'x' | b'X'));
    let read = read(text).filter(|read| is_decimal && read.length == length)?;
    (!read.score.is_nan()).then_some(read.score)
}

/// Prints a score with all digits.
pub(crate) fn write(text: &mut Vec<u8>, score: f64) {
    write_general(text, score, DIGITS);
}

/// Prints a score as DUMP of Redis 7.0 has it if a sorted set is small: there a whole number is an
/// integer, even one with more digits than a printed score has.
pub(crate) fn write_packed(text: &mut Vec<u8>, score: f64) {
    /// Redis: the bounds of `double2ll`.
    const INTEGER_MAX: f64 = (1_i64 << 62) as f64;
    let integer = score as i64;
    let is_signed_zero = integer == 0 && score.is_sign_negative();
    if score.abs() <= INTEGER_MAX && integer as f64 == score && !is_signed_zero {
        text.extend_from_slice(itoa::Buffer::new().format(integer).as_bytes());
    } else {
        write(text, score);
    }
}

/// What was read at the front of a text.
struct Read {
    score: f64,
    /// Bytes of the text that belong to the number, with the blanks in front of it.
    length: usize,
    /// Whether the number is infinite or zero only because it does not fit.
    is_out_of_range: bool,
}

/// Reads a number at the front of a text, as `strtod` does.
fn read(text: &[u8]) -> Option<Read> {
    let blanks = text.iter().take_while(|byte| is_blank(byte)).count();
    let (is_negative, signs) = match text.get(blanks) {
        Some(b'-') => (true, 1),
        Some(b'+') => (false, 1),
        _ => (false, 0),
    };
    let digits = &text[blanks + signs..];
    let read = read_word(digits).or_else(|| read_hexadecimal(digits)).or_else(|| read_decimal(digits))?;
    let score = if is_negative { -read.score } else { read.score };
    Some(Read { score, length: blanks + signs + read.length, ..read })
}

/// What C calls blank, which includes the vertical tab.
fn is_blank(byte: &u8) -> bool {
    byte.is_ascii_whitespace() || *byte == 0x0b
}

fn read_word(text: &[u8]) -> Option<Read> {
    const WORDS: [(&[u8], f64); 3] =
        [(b"infinity", f64::INFINITY), (b"inf", f64::INFINITY), (b"nan", f64::NAN)];
    let begins = |word: &[u8]| text.get(..word.len()).is_some_and(|front| front.eq_ignore_ascii_case(word));
    let (word, score) = WORDS.into_iter().find(|(word, _)| begins(word))?;
    Some(Read { score, length: word.len(), is_out_of_range: false })
}

fn read_hexadecimal(text: &[u8]) -> Option<Read> {
    let digits = text.strip_prefix(b"0x").or_else(|| text.strip_prefix(b"0X"))?;
    let shape = Shape::of(digits, b'p', u8::is_ascii_hexdigit)?;
    let text = format!("0x0{}.{}0p{}", shape.whole, shape.fraction, shape.exponent);
    let number = if shape.is_zero() {
        Double::ZERO
    } else {
        Double::from_str_r(&text, Round::NearestTiesToEven).ok()?.value
    };
    Some(shape.read(f64::from_bits(number.to_bits() as u64), 2))
}

fn read_decimal(text: &[u8]) -> Option<Read> {
    let shape = Shape::of(text, b'e', u8::is_ascii_digit)?;
    let number = std::str::from_utf8(&text[..shape.length]).ok()?;
    Some(shape.read(number.parse().ok()?, 0))
}

/// The parts of a number without a sign.
struct Shape<'t> {
    whole: &'t str,
    fraction: &'t str,
    /// The exponent, at most so far from 0 that the number is infinite or 0.
    exponent: i64,
    length: usize,
}

impl<'t> Shape<'t> {
    fn of(text: &'t [u8], exponent_mark: u8, is_digit: fn(&u8) -> bool) -> Option<Shape<'t>> {
        let count = |from: usize, is_wanted: fn(&u8) -> bool| {
            text[from..].iter().take_while(|byte| is_wanted(byte)).count()
        };
        let part = |from: usize, length: usize| std::str::from_utf8(&text[from..from + length]).ok();
        let whole = part(0, count(0, is_digit))?;
        let mut length = whole.len();
        let mut fraction = "";
        if text.get(length) == Some(&b'.') {
            fraction = part(length + 1, count(length + 1, is_digit))?;
            length += 1 + fraction.len();
        }
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let mut exponent = 0;
        if text.get(length).is_some_and(|byte| byte.eq_ignore_ascii_case(&exponent_mark)) {
            let is_signed = matches!(text.get(length + 1), Some(b'-' | b'+'));
            let first = length + 1 + usize::from(is_signed);
            let digits = part(first, if first <= text.len() { count(first, u8::is_ascii_digit) } else { 0 })?;
            // Without digits the mark does not belong to the number.
            if !digits.is_empty() {
                let significant = digits.trim_start_matches('0');
                let is_short = significant.len() <= EXPONENT_DIGITS_MAX;
                exponent = if is_short { significant.parse().unwrap_or(0) } else { 1_000_000 };
                exponent = if text[length + 1] == b'-' { -exponent } else { exponent };
                length = first + digits.len();
            }
        }
        Some(Shape { whole, fraction, exponent, length })
    }

    fn is_zero(&self) -> bool {
        self.whole.bytes().chain(self.fraction.bytes()).all(|digit| digit == b'0')
    }

    fn read(&self, score: f64, prefix: usize) -> Read {
        let is_out_of_range = score.is_infinite() || score == 0.0 && !self.is_zero();
        Read { score, length: prefix + self.length, is_out_of_range }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Redis 8.6.3 reads them.
    #[test]
    fn sort_and_the_ends_of_ranges_take_decimal_numbers() {
        for (text, expected) in [
            (&b""[..], Some(0.0)),
            (b"+1", Some(1.0)),
            (b".5", Some(0.5)),
            (b"5.", Some(5.0)),
            (b"-inf", Some(f64::NEG_INFINITY)),
            (b"Infinity", Some(f64::INFINITY)),
            (b"1\0x", Some(1.0)),
            (b"\0", Some(0.0)),
            (b"1e400", Some(f64::INFINITY)),
            (b"-1e400", Some(f64::NEG_INFINITY)),
            (b"1e-400", Some(0.0)),
            (b"1e-310", Some(1e-310)),
            (b" 1", None),
            (b" ", None),
            (b"1 ", None),
            (b"0x10", None),
            (b"0x", None),
            (b"nan", None),
            (b"1e", None),
            (b".", None),
            (b"(1", None),
        ] {
            assert_eq!(parse_decimal(text), expected, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn every_form_that_c_reads_is_read() {
        for (text, score) in [
            ("1", 1.0),
            ("-1.5", -1.5),
            ("+.5", 0.5),
            ("5.", 5.0),
            ("1e3", 1000.0),
            ("1E-2", 0.01),
            ("007", 7.0),
            ("0x10", 16.0),
            ("0X1p3", 8.0),
            ("-0x.8p1", -1.0),
            ("0x1p-1074", 5e-324),
            ("4.9e-324", 5e-324),
            ("inf", f64::INFINITY),
            ("+Inf", f64::INFINITY),
            ("-INFINITY", f64::NEG_INFINITY),
            ("0e999999999999", 0.0),
            ("0x0p999999999999", 0.0),
            ("9007199254740993", 9_007_199_254_740_992.0),
            ("0x20000000000001", 9_007_199_254_740_992.0),
        ] {
            assert_eq!(parse(text.as_bytes()), Some(score), "{text}");
        }
    }

    #[test]
    fn whole_numbers_are_integers_in_a_packed_set() {
        for (score, plain, packed) in [
            (1e17, "1e+17", "100000000000000000"),
            (-0.0, "-0", "-0"),
            (0.5, "0.5", "0.5"),
            (-4_611_686_018_427_387_904.0, "-4.6116860184273879e+18", "-4611686018427387904"),
            (4_611_686_018_427_388_928.0, "4.6116860184273889e+18", "4.6116860184273889e+18"),
            (f64::INFINITY, "inf", "inf"),
        ] {
            let (mut one, mut other) = (Vec::new(), Vec::new());
            write(&mut one, score);
            write_packed(&mut other, score);
            assert_eq!((one, other), (plain.into(), packed.into()), "{score}");
        }
    }

    #[test]
    fn what_is_no_score_is_refused() {
        for text in [
            "",
            " 1",
            "1 ",
            "1a",
            "a",
            ".",
            "e5",
            "1e",
            "1e+",
            "0x",
            "0x1p",
            "nan",
            "-nan",
            "--1",
            "1,5",
            "infi",
            "1e400",
            "-1e400",
            "1e-400",
            "0x1p9999999999",
            "0x1p-99999999999",
            "1\0",
            "\u{b}1",
            "1e99999999999",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text:?}");
        }
    }
}
