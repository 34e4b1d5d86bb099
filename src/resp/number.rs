//! Integers as Redis reads them, in length headers and in arguments alike; numbers as C prints them.

/// Reads a decimal 64-bit integer, as strictly as Redis (`string2ll`): an optional minus, no plus, no spaces,
/// no leading zeros, no `-0`. `None` for anything else and for what does not fit.
pub fn parse_integer(text: &[u8]) -> Option<i64> {
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
pub fn write_general(text: &mut Vec<u8>, number: f64, digits: usize) {
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
        let decimals = digits as i32 - 1 - exponent;
        let fixed = format!("{number:.*}", decimals.unsigned_abs() as usize);
        text.extend_from_slice(without_zeros(&fixed).as_bytes());
    }
}

/// Cuts off the zeros at the end of a fraction.
fn without_zeros(decimal: &str) -> &str {
    if decimal.contains('.') { decimal.trim_end_matches('0').trim_end_matches('.') } else { decimal }
}

#[cfg(test)]
mod tests {
    use super::parse_integer;

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
