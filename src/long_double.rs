//! The numbers of INCRBYFLOAT: extended precision of 80 bits, as C's `long double` is where Redis is run.
//!
//! Reading and adding is the work of a library that rounds as the processor would; printing, always with 17
//! places after the point and then without the zeros at the end, is exact and done here. In double precision
//! 3.0 + 1.2 would print as 4.20000000000000018.

use rustc_apfloat::ieee::X87DoubleExtended;
use rustc_apfloat::{Float, Round};

/// The longest text that is read. Redis: `MAX_LONG_DOUBLE_CHARS`.
const TEXT_BYTES_MAX: usize = 5 * 1024;
/// Places after the point.
const PLACES: usize = 17;
/// Bits of the significand.
const SIGNIFICAND_BITS: i32 = 64;
/// The bias of the exponents.
const EXPONENT_BIAS: i32 = 16_383;

/// A finite number, or an infinite one.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(crate) struct LongDouble(X87DoubleExtended);

impl LongDouble {
    /// The number 0.
    pub(crate) const ZERO: LongDouble = LongDouble(X87DoubleExtended::ZERO);

    /// Reads a number as `strtold` of C does, without blanks around it: decimal or hexadecimal, with an
    /// exponent or without. `None` for anything else, and for what is too large or too small.
    pub(crate) fn parse(text: &[u8]) -> Option<LongDouble> {
        let text = std::str::from_utf8(text).ok().filter(|text| text.len() < TEXT_BYTES_MAX)?;
        let (is_negative, unsigned) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let lower = unsigned.to_ascii_lowercase();
        let magnitude = match lower.as_str() {
            "inf" | "infinity" => X87DoubleExtended::INFINITY,
            _ => read_digits(&lower)?,
        };
        Some(LongDouble(if is_negative { -magnitude } else { magnitude }))
    }

    /// Whether it is a finite number.
    pub(crate) fn is_finite(self) -> bool {
        self.0.is_finite()
    }

    /// The largest finite number.
    pub(crate) fn largest() -> LongDouble {
        LongDouble(X87DoubleExtended::largest())
    }

    /// The number with the other sign.
    pub(crate) fn negated(self) -> LongDouble {
        LongDouble(-self.0)
    }

    /// The sum, if it is a finite number.
    pub(crate) fn checked_add(self, other: LongDouble) -> Option<LongDouble> {
        let sum = (self.0 + other.0).value;
        sum.is_finite().then_some(LongDouble(sum))
    }

    /// The number in decimal, with at most 17 places after the point and no zeros at their end.
    pub(crate) fn to_text(self) -> String {
        let bits = self.0.to_bits();
        let significand = bits as u64;
        let biased = (bits >> SIGNIFICAND_BITS) as i32 & 0x7fff;
        // The smallest numbers have the exponent of the next larger ones.
        let exponent = biased.max(1) - EXPONENT_BIAS - (SIGNIFICAND_BITS - 1);
        let digits = match u32::try_from(exponent) {
            Ok(exponent) => decimal_digits(significand, exponent) + &"0".repeat(PLACES),
            Err(_) => format!("{:0width$}", scaled(significand, exponent.unsigned_abs()), width = PLACES + 1),
        };
        let (whole, fraction) = digits.split_at(digits.len() - PLACES);
        let fraction = fraction.trim_end_matches('0');
        let point = if fraction.is_empty() { "" } else { "." };
        let text = format!("{whole}{point}{fraction}");
        if self.0.is_negative() && text != "0" { format!("-{text}") } else { text }
    }
}

/// Reads a number without a sign, in lower case.
fn read_digits(text: &str) -> Option<X87DoubleExtended> {
    let (digits, exponent_mark, is_digit): (&str, char, fn(char) -> bool) = match text.strip_prefix("0x") {
        Some(digits) => (digits, 'p', |c| c.is_ascii_hexdigit()),
        None => (text, 'e', |c| c.is_ascii_digit()),
    };
    let (mantissa, exponent) = match digits.split_once(exponent_mark) {
        Some((mantissa, exponent)) => (mantissa, exponent),
        None => (digits, "0"),
    };
    let unsigned_exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let are_digits = whole.chars().chain(fraction.chars()).all(is_digit);
    let is_number = are_digits
        && whole.len() + fraction.len() > 0
        && !unsigned_exponent.is_empty()
        && unsigned_exponent.chars().all(|c| c.is_ascii_digit());
    if !is_number {
        return None;
    }
    let is_zero = whole.chars().chain(fraction.chars()).all(|digit| digit == '0');
    if is_zero {
        return Some(X87DoubleExtended::ZERO);
    }
    // An exponent with more digits is in any case too large or too small.
    let significant = unsigned_exponent.trim_start_matches('0');
    if significant.len() > 6 {
        return None;
    }
    let prefix = if exponent_mark == 'p' { "0x" } else { "" };
    let sign = if exponent.starts_with('-') { "-" } else { "" };
    let text = format!("{prefix}0{whole}.{fraction}0{exponent_mark}{sign}0{significant}");
    let number = X87DoubleExtended::from_str_r(&text, Round::NearestTiesToEven).ok()?.value;
    (number.is_finite() && !number.is_zero()).then_some(number)
}

/// `significand / 2^shift * 10^17`, rounded to the nearest integer, to the even one of two.
fn scaled(significand: u64, shift: u32) -> u128 {
    let product = u128::from(significand) * 10_u128.pow(PLACES as u32);
    if shift >= u128::BITS {
        return 0;
    }
    let (quotient, rest, half) = (product >> shift, product & ((1 << shift) - 1), 1_u128 << (shift - 1));
    let rounds_up = rest > half || rest == half && quotient & 1 == 1;
    quotient + u128::from(rounds_up)
}

/// `significand * 2^exponent` in decimal.
fn decimal_digits(significand: u64, mut exponent: u32) -> String {
    const BASE: u64 = 1_000_000_000;
    /// A part below the base, shifted by so much, and a carry fit into 64 bits.
    const SHIFT_MAX: u32 = 32;
    let mut parts = vec![significand % BASE, significand / BASE % BASE, significand / BASE / BASE];
    while exponent > 0 {
        let shift = exponent.min(SHIFT_MAX);
        let mut carry = 0;
        for part in &mut parts {
            let shifted = (*part << shift) + carry;
            *part = shifted % BASE;
            carry = shifted / BASE;
        }
        while carry > 0 {
            parts.push(carry % BASE);
            carry /= BASE;
        }
        exponent -= shift;
    }
    let digits: String = parts.iter().rev().map(|part| format!("{part:09}")).collect();
    let significant = digits.trim_start_matches('0');
    if significant.is_empty() { "0".to_owned() } else { significant.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(one: &str, other: &str) -> Option<String> {
        let parse = |text: &str| LongDouble::parse(text.as_bytes());
        parse(one)?.checked_add(parse(other)?).map(LongDouble::to_text)
    }

    /// Whether Redis's sums, as it printed them, are ours.
    fn check(sums: &[(&str, &str, &str)]) {
        for (one, other, expected) in sums {
            assert_eq!(sum(one, other).as_deref(), Some(*expected), "{one} + {other}");
        }
    }

    #[test]
    fn sums_are_printed_as_redis_prints_them() {
        check(&[
            ("10.50", "0.1", "10.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("3.0", "1.2", "4.2"),
            ("0.1", "0.2", "0.3"),
            ("0", "-0", "0"),
            ("-0", "-0", "0"),
            ("-1", "1", "0"),
            ("1e-17", "1e-17", "0.00000000000000002"),
            ("3.14159265358979323846", "2.71828182845904523536", "5.85987448204883847"),
            ("123456789012345678", "0.5", "123456789012345678.5"),
            ("1e20", "0", "100000000000000000000"),
            ("1e40", "-1e40", "0"),
            ("1e4000", "-1e4000", "0"),
        ]);
    }

    #[test]
    fn every_form_that_c_reads_is_read() {
        check(&[
            ("1", ".5", "1.5"),
            ("1", "5.", "6"),
            ("+1", "+1", "2"),
            ("00012", "1e+00002", "112"),
            ("0", "0e999999999", "0"),
            ("0", "0x1p-4", "0.0625"),
            ("0", "0x1F", "31"),
            ("0", "0X.8P1", "1"),
            ("-0x1p3", "0x1.", "-7"),
            ("0", "0x1p-16445", "0"),
            ("0", "3.6e-4951", "0"),
            ("0", "1.9e-4951", "0"),
        ]);
    }

    #[test]
    fn what_has_too_many_digits_is_rounded_as_redis_rounds_it() {
        check(&[
            ("18446744073709551615", "1", "18446744073709551616"),
            ("18446744073709551616", "1", "18446744073709551616"),
            ("18446744073709551616", "3", "18446744073709551620"),
            ("-9223372036854775808", "-1", "-9223372036854775809"),
            ("1234567890123456789", "0.3", "1234567890123456789.25"),
            ("0", "9223372036854775807.5", "9223372036854775807.5"),
            ("0", "9223372036854775808.5", "9223372036854775808"),
            ("1e19", "-0.1", "10000000000000000000"),
            ("1e40", "1", "9999999999999999999783686092270256259072"),
            ("0.12345678901234567890", "0", "0.12345678901234568"),
            ("0.99999999999999999999", "0", "1"),
            ("0", "1e-18", "0"),
            ("0", "-1e-18", "0"),
            ("0", "5e-18", "0"),
            ("0", "5.1e-18", "0.00000000000000001"),
            ("0", "0x1p-18", "0.00000381469726562"),
            ("0", "0x3p-18", "0.00001144409179688"),
            ("0", "0x5p-58", "0.00000000000000002"),
        ]);
    }

    #[test]
    fn the_largest_number_is_printed_whole() {
        let text = sum("1.1e4932", "0").unwrap();
        assert_eq!((text.len(), &text[..20]), (4933, "10999999999999999999"));
    }

    #[test]
    fn what_is_no_number_is_refused() {
        let long = "1".repeat(TEXT_BYTES_MAX);
        for text in [
            "",
            " 1",
            "1 ",
            "1\0",
            "a",
            "1a",
            "e5",
            "1e",
            "1e+",
            ".",
            "nan",
            "-nan",
            "0x",
            "0x1p",
            "--1",
            "1,5",
            "1e5000",
            "1e4933",
            "0x1p16384",
            "1e-6000",
            "1.8e-4951",
            "0x1p-16446",
            &long,
        ] {
            assert!(LongDouble::parse(text.as_bytes()).is_none(), "{text}");
        }
        for (one, other) in [("inf", "1"), ("inf", "-inf"), ("1.18973149535723176502e4932", "1e4932")] {
            assert!(sum(one, other).is_none(), "{one} + {other}");
        }
        assert!(sum("1.1e4932", "1.1e4932").is_none(), "no infinity comes of adding");
    }
}
