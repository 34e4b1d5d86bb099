//! Integers as Redis reads them, in length headers and in arguments alike.

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
        // Counted downwards, since the smallest integer has no positive twin.
        value = value.checked_mul(10)?.checked_sub(i64::from(digit))?;
    }
    if negative { Some(value) } else { value.checked_neg() }
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
