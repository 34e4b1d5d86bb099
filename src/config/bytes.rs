//! Numbers of bytes as redis.conf writes them: `1k` is a thousand, `1kb` is 1,024.

/// Reads a number of bytes. Returns none if it is malformed or has more than 64 bits, which Redis truncates.
pub(super) fn parse_bytes(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, unit) = text.split_at(digits);
    let factor = match unit.to_ascii_lowercase().as_slice() {
        b"" | b"b" => 1,
        b"k" => 1000,
        b"kb" => 1 << 10,
        b"m" => 1_000_000,
        b"mb" => 1 << 20,
        b"g" => 1_000_000_000,
        b"gb" => 1 << 30,
        _ => return None,
    };
    let number =
        number.iter().try_fold(0_u64, |sum, digit| sum.checked_mul(10)?.checked_add(u64::from(digit - b'0')));
    number?.checked_mul(factor)
}

/// Prints a number of bytes in the largest unit that divides it.
pub(super) fn print_bytes(bytes: u64) -> String {
    let units = [(1 << 30, "gb"), (1 << 20, "mb"), (1 << 10, "kb")];
    match units.iter().find(|(size, _)| bytes != 0 && bytes.is_multiple_of(*size)) {
        Some((size, unit)) => format!("{}{unit}", bytes / size),
        None => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_their_units() {
        for (text, bytes) in [
            ("0", 0),
            ("1b", 1),
            ("1K", 1000),
            ("1kb", 1024),
            ("2Gb", 2 << 30),
            ("5m", 5_000_000),
            ("010", 10),
            ("", 0),
            ("kb", 0),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_bytes(text.as_bytes()), Some(bytes), "{text}");
        }
        for text in ["-1", "+1", "1tb", "1 mb", "1.5gb", "99999999999gb", "18446744073709551616"] {
            assert_eq!(parse_bytes(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn sizes_are_printed_in_the_largest_unit() {
        for (bytes, text) in [(0, "0"), (1, "1"), (1024, "1kb"), (3 << 20, "3mb"), (2 << 30, "2gb")] {
            assert_eq!(print_bytes(bytes), text);
        }
    }
}
