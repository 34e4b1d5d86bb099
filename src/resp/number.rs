//! Integers as Redis reads them, in length headers and in arguments alike; numbers as C prints them.

/// Reads a decimal 64-bit integer, as strictly as Redis (`string2ll`): an optional minus, no plus, no spaces,
/// no leading zeros, no `-0`. `None` for anything else and for what does not fit.
pub(crate) fn parse_integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    match digits {
        [b'0'] => return (!negative).then_some(0),
        [b'1'..=b'9', ..] => {}
        _ => return None,
    }
    let mut value: i64 = 0;
    for digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        // Counts downwards, since the smallest integer has no positive counterpart.
        value = value.checked_mul(10)?.checked_sub(i64::from(digit))?;
    }
    if negative { Some(value) } else { value.checked_neg() }
}

/// Prints a number as `%.<digits>g` of C does.
pub(crate) fn write_general(text: &mut Vec<u8>, number: f64, digits: usize) {
    let integer = number as i64;
    if integer as f64 == number
        && integer.unsigned_abs() < 10_u64.pow(digits.min(17) as u32)
        && !is_minus_zero(number)
    {
        return text.extend_from_slice(itoa::Buffer::new().format(integer).as_bytes());
    }
    if number.is_nan() {
        return text.extend_from_slice(b"nan");
    }
    if number.is_infinite() {
        return text.extend_from_slice(if number > 0.0 { b"inf" } else { b"-inf" });
    }
    let scientific = format!("{:.*e}", digits - 1, number);
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        let exponent = exponent.unsigned_abs();
        text.extend_from_slice(format!("{}e{sign}{exponent:02}", without_zeros(mantissa)).as_bytes());
    } else {
        write_fixed(text, mantissa, exponent);
    }
}

/// Prints a number that was printed in the scientific form: the same digits, with the point elsewhere.
fn write_fixed(text: &mut Vec<u8>, mantissa: &str, exponent: i32) {
    let mantissa = without_zeros(mantissa);
    let unsigned = mantissa.strip_prefix('-').unwrap_or(mantissa);
    text.extend(mantissa.starts_with('-').then_some(b'-'));
    let digits = unsigned.bytes().filter(u8::is_ascii_digit);
    let places = exponent.unsigned_abs() as usize;
    if exponent < 0 {
        text.extend_from_slice(b"0.");
        text.extend(std::iter::repeat_n(b'0', places - 1).chain(digits));
        return;
    }
    let whole = digits.clone().chain(std::iter::repeat(b'0')).take(places + 1);
    text.extend(whole);
    let mut fraction = digits.skip(places + 1).peekable();
    text.extend(fraction.peek().map(|_| b'.'));
    text.extend(fraction);
}

fn is_minus_zero(number: f64) -> bool {
    number == 0.0 && number.is_sign_negative()
}

/// Cuts off the zeros at the end of a fraction.
fn without_zeros(decimal: &str) -> &str {
    if decimal.contains('.') { decimal.trim_end_matches('0').trim_end_matches('.') } else { decimal }
}

#[cfg(test)]
mod tests {
    use super::{parse_integer, write_general};

    #[test]
    fn prints_what_c_prints() {
        for (number, digits, printed) in [
            (0.1, 17, "0.10000000000000001"),
            (-1.5, 17, "-1.5"),
            (0.0, 17, "0"),
            (-0.0, 17, "-0"),
            (100.0, 17, "100"),
            (-123_456_789.25, 17, "-123456789.25"),
            (1e16, 17, "10000000000000000"),
            (99_999_999_999_999_984.0, 17, "99999999999999984"),
            (1e17, 17, "1e+17"),
            (-1e300, 17, "-1.0000000000000001e+300"),
            (0.0001, 17, "0.0001"),
            (0.00012, 17, "0.00012"),
            (1e-5, 17, "1.0000000000000001e-05"),
            (5e-324, 17, "4.9406564584124654e-324"),
            (1e5, 5, "1e+05"),
            (12_345.6, 5, "12346"),
            (1_234.56, 5, "1234.6"),
            (99_999.9, 5, "1e+05"),
            (99_999.0, 5, "99999"),
            (0.099_999_9, 3, "0.1"),
            (f64::INFINITY, 17, "inf"),
            (f64::NEG_INFINITY, 17, "-inf"),
        ] {
            let mut text = Vec::new();
            write_general(&mut text, number, digits);
            assert_eq!(String::from_utf8(text).unwrap(), printed);
        }
    }

    #[test]
    fn reads_what_redis_reads() {
        for value in [0, 1, -1, 9, 10, 1024, i64::MAX, i64::MIN, i64::MIN + 1] {
            assert_eq!(parse_integer(value.to_string().as_bytes()), Some(value));
        }
    }

    #[test]
    fn refuses_what_redis_refuses() {
        for text in [
            "",
            "-",
            "+1",
            " 1",
            "1 ",
            "01",
            "-0",
            "-01",
            "1a",
            "9223372036854775808",
            "-9223372036854775809",
        ] {
            assert_eq!(parse_integer(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(parse_integer("9".repeat(40).as_bytes()), None);
    }
}
