//! Numbers in few digits, as Redis prints them since 7.2, and Valkey.
//!
//! They use Grisu2 (Florian Loitsch, "Printing Floating-Point Numbers Quickly and Accurately with Integers",
//! 2010). All texts halfway to a number's neighbors are read as this number, so it takes digits of the upper
//! end until what is left lies in between. The ends are multiplied by a power of ten in 64 bits. That makes
//! them a little wrong, and the interval is made smaller by as much. Of a thousand numbers it misses the
//! shortest text, or the nearest one of that length, for one. Clients see these digits, so a better algorithm
//! would be wrong here.

/// The bit above the fraction of a number.
const HIDDEN_BIT: u64 = 1 << 52;
/// The exponent of the first power of ten below.
const POWER_FIRST: i32 = -348;
/// From one power of ten to the next.
const POWER_STEP: i32 = 8;
/// Powers of ten, without their powers of two.
const POWERS: [u64; 87] = [
    0xfa8f_d5a0_081c_0288,
    0xbaae_e17f_a23e_bf76,
    0x8b16_fb20_3055_ac76,
    0xcf42_894a_5dce_35ea,
    0x9a6b_b0aa_5565_3b2d,
    0xe61a_cf03_3d1a_45df,
    0xab70_fe17_c79a_c6ca,
    0xff77_b1fc_bebc_dc4f,
    0xbe56_91ef_416b_d60c,
    0x8dd0_1fad_907f_fc3c,
    0xd351_5c28_3155_9a83,
    0x9d71_ac8f_ada6_c9b5,
    0xea9c_2277_23ee_8bcb,
    0xaecc_4991_4078_536d,
    0x823c_1279_5db6_ce57,
    0xc210_9436_4dfb_5637,
    0x9096_ea6f_3848_984f,
    0xd774_85cb_2582_3ac7,
    0xa086_cfcd_97bf_97f4,
    0xef34_0a98_172a_ace5,
    0xb238_67fb_2a35_b28e,
    0x84c8_d4df_d2c6_3f3b,
    0xc5dd_4427_1ad3_cdba,
    0x936b_9fce_bb25_c996,
    0xdbac_6c24_7d62_a584,
    0xa3ab_6658_0d5f_daf6,
    0xf3e2_f893_dec3_f126,
    0xb5b5_ada8_aaff_80b8,
    0x8762_5f05_6c7c_4a8b,
    0xc9bc_ff60_34c1_3053,
    0x964e_858c_91ba_2655,
    0xdff9_7724_7029_7ebd,
    0xa6df_bd9f_b8e5_b88f,
    0xf8a9_5fcf_8874_7d94,
    0xb944_7093_8fa8_9bcf,
    0x8a08_f0f8_bf0f_156b,
    0xcdb0_2555_6531_31b6,
    0x993f_e2c6_d07b_7fac,
    0xe45c_10c4_2a2b_3b06,
    0xaa24_2499_6973_92d3,
    0xfd87_b5f2_8300_ca0e,
    0xbce5_0864_9211_1aeb,
    0x8cbc_cc09_6f50_88cc,
    0xd1b7_1758_e219_652c,
    0x9c40_0000_0000_0000,
    0xe8d4_a510_0000_0000,
    0xad78_ebc5_ac62_0000,
    0x813f_3978_f894_0984,
    0xc097_ce7b_c907_15b3,
    0x8f7e_32ce_7bea_5c70,
    0xd5d2_38a4_abe9_8068,
    0x9f4f_2726_179a_2245,
    0xed63_a231_d4c4_fb27,
    0xb0de_6538_8cc8_ada8,
    0x83c7_088e_1aab_65db,
    0xc45d_1df9_4271_1d9a,
    0x924d_692c_a61b_e758,
    0xda01_ee64_1a70_8dea,
    0xa26d_a399_9aef_774a,
    0xf209_787b_b47d_6b85,
    0xb454_e4a1_79dd_1877,
    0x865b_8692_5b9b_c5c2,
    0xc835_53c5_c896_5d3d,
    0x952a_b45c_fa97_a0b3,
    0xde46_9fbd_99a0_5fe3,
    0xa59b_c234_db39_8c25,
    0xf6c6_9a72_a398_9f5c,
    0xb7dc_bf53_54e9_bece,
    0x88fc_f317_f222_41e2,
    0xcc20_ce9b_d35c_78a5,
    0x9816_5af3_7b21_53df,
    0xe2a0_b5dc_971f_303a,
    0xa8d9_d153_5ce3_b396,
    0xfb9b_7cd9_a4a7_443c,
    0xbb76_4c4c_a7a4_4410,
    0x8bab_8eef_b640_9c1a,
    0xd01f_ef10_a657_842c,
    0x9b10_a4e5_e991_3129,
    0xe710_9bfb_a19c_0c9d,
    0xac28_20d9_623b_f429,
    0x8044_4b5e_7aa7_cf85,
    0xbf21_e440_03ac_dd2d,
    0x8e67_9c2f_5e44_ff8f,
    0xd433_179d_9c8c_b841,
    0x9e19_db92_b4e3_1ba9,
    0xeb96_bf6e_badf_77d9,
    0xaf87_023b_9bf0_ee6b,
];

/// A number: a fraction, which is an integer, and a power of two.
#[derive(Clone, Copy, Debug)]
struct Parts {
    fraction: u64,
    exponent: i32,
}

impl Parts {
    /// The parts of a number that is above zero, and finite.
    fn of(number: f64) -> Parts {
        const BIAS: i32 = 1075;
        let bits = number.to_bits();
        match (bits >> 52 & 0x7ff) as i32 {
            0 => Parts { fraction: bits & (HIDDEN_BIT - 1), exponent: 1 - BIAS },
            exponent => Parts { fraction: bits & (HIDDEN_BIT - 1) | HIDDEN_BIT, exponent: exponent - BIAS },
        }
    }

    /// The same number with a fraction of 64 bits.
    fn normal(self) -> Parts {
        let shift = self.fraction.leading_zeros();
        Parts { fraction: self.fraction << shift, exponent: self.exponent - shift as i32 }
    }

    /// The ends of the interval of all numbers that are nearer to this one than to others.
    fn bounds(self) -> (Parts, Parts) {
        let Parts { fraction, exponent } = self;
        let upper = Parts { fraction: (fraction << 1) + 1, exponent: exponent - 1 }.normal();
        // Numbers below a power of two are twice as close to each other.
        let shift = if fraction == HIDDEN_BIT { 2 } else { 1 };
        let lower = ((fraction << shift) - 1) << (exponent - shift - upper.exponent);
        (Parts { fraction: lower, exponent: upper.exponent }, upper)
    }

    fn times(self, other: Parts) -> Parts {
        let product = u128::from(self.fraction) * u128::from(other.fraction) + (1 << 63);
        Parts { fraction: (product >> 64) as u64, exponent: self.exponent + other.exponent + 64 }
    }
}

/// A power of ten that brings the power of two of a number into a range in which the digits can be taken, and
/// its exponent.
fn power_for(exponent: i32) -> (Parts, i32) {
    const RANGE: std::ops::RangeInclusive<i32> = -60..=-32;
    const LOG_TEN_OF_TWO: f64 = 0.301_029_995_663_981_14;
    let estimate = (-f64::from(exponent + POWERS.len() as i32) * LOG_TEN_OF_TWO) as i32;
    let mut at = (estimate - POWER_FIRST) / POWER_STEP;
    loop {
        let ten = POWER_FIRST + at * POWER_STEP;
        // The binary logarithm of ten, of which 63 bits are in the fraction.
        let power = Parts { fraction: POWERS[at as usize], exponent: ((ten * 217_706) >> 16) - 63 };
        match exponent + power.exponent + 64 {
            reached if reached < *RANGE.start() => at += 1,
            reached if reached > *RANGE.end() => at -= 1,
            _ => return (power, ten),
        }
    }
}

/// The digits of a number that is above zero, and finite, and the power of ten by which they are multiplied.
fn digits_of(number: f64) -> (Vec<u8>, i32) {
    let parts = Parts::of(number);
    let (lower, upper) = parts.bounds();
    let (power, ten) = power_for(upper.exponent);
    let (middle, lower, upper) = (parts.normal().times(power), lower.times(power), upper.times(power));
    let (lower, upper) = (lower.fraction + 1, Parts { fraction: upper.fraction - 1, ..upper });
    let (digits, more) = take_digits(middle.fraction, lower, upper);
    (digits, more - ten)
}

/// Takes digits of the upper end of an interval until what is left of it is less than the interval. Returns
/// the digits, and the power of ten by which they are multiplied.
fn take_digits(middle: u64, lower: u64, upper: Parts) -> (Vec<u8>, i32) {
    const DIGITS_OF_WHOLE: i32 = 10;
    let shift = -upper.exponent as u32;
    let one = 1_u64 << shift;
    let (mut whole, mut fraction) = (upper.fraction >> shift, upper.fraction & (one - 1));
    let (mut distance, mut width) = (upper.fraction - middle, upper.fraction - lower);
    let mut digits = Vec::with_capacity(18);
    let mut push = |digit: u64| {
        if digit > 0 || !digits.is_empty() {
            digits.push(b'0' + digit as u8);
        }
    };
    for place in (0..DIGITS_OF_WHOLE).rev() {
        let unit = 10_u64.pow(place as u32);
        push(whole / unit);
        whole %= unit;
        let rest = (whole << shift) + fraction;
        if rest <= width {
            approach(&mut digits, rest, width, unit << shift, distance);
            return (digits, place);
        }
    }
    let mut place = 0;
    loop {
        place -= 1;
        fraction *= 10;
        (distance, width) = (distance.wrapping_mul(10), width * 10);
        push(fraction >> shift);
        fraction &= one - 1;
        if fraction < width {
            approach(&mut digits, fraction, width, one, distance);
            return (digits, place);
        }
    }
}

/// Makes the last digit less as long as that brings the digits nearer to the number. `distance` is how far it
/// is below the upper end.
fn approach(digits: &mut [u8], mut rest: u64, width: u64, unit: u64, distance: u64) {
    let Some(last) = digits.last_mut() else { return };
    while rest < distance
        && width - rest >= unit
        && (rest + unit < distance || distance - rest > rest + unit - distance)
    {
        *last -= 1;
        rest += unit;
    }
}

/// Prints a number in few digits, from which it can be read again; an integer in all of its digits.
pub(crate) fn write_shortest(text: &mut Vec<u8>, number: f64) {
    /// Redis: the bounds of `double2ll`.
    const INTEGER_MAX: f64 = (1_i64 << 62) as f64;
    if number != 0.0 && number.abs() <= INTEGER_MAX && number.trunc() == number {
        return text.extend_from_slice(itoa::Buffer::new().format(number as i64).as_bytes());
    }
    write_digits(text, number);
}

/// Prints a number in few digits, from which it can be read again. Redis: `fpconv_dtoa`.
pub(crate) fn write_digits(text: &mut Vec<u8>, number: f64) {
    if number.is_nan() {
        return text.extend_from_slice(b"nan");
    }
    if number.is_sign_negative() {
        text.push(b'-');
    }
    if number == 0.0 {
        return text.push(b'0');
    }
    if number.is_infinite() {
        return text.extend_from_slice(b"inf");
    }
    let (digits, power) = digits_of(number.abs());
    let scientific = power + digits.len() as i32 - 1;
    if power >= 0 && scientific < digits.len() as i32 + 7 {
        text.extend_from_slice(&digits);
        text.extend(std::iter::repeat_n(b'0', power as usize));
    } else if power < 0 && (power > -7 || scientific.abs() < 4) {
        match usize::try_from(scientific + 1).ok().filter(|whole| *whole > 0) {
            Some(whole) => {
                text.extend_from_slice(&digits[..whole]);
                text.push(b'.');
                text.extend_from_slice(&digits[whole..]);
            }
            None => {
                text.extend_from_slice(b"0.");
                text.extend(std::iter::repeat_n(b'0', -(scientific + 1) as usize));
                text.extend_from_slice(&digits);
            }
        }
    } else {
        text.push(digits[0]);
        if digits.len() > 1 {
            text.push(b'.');
            text.extend_from_slice(&digits[1..]);
        }
        let sign = if scientific < 0 { '-' } else { '+' };
        text.extend_from_slice(format!("e{sign}{}", scientific.unsigned_abs()).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(number: f64) -> String {
        let mut text = Vec::new();
        write_shortest(&mut text, number);
        String::from_utf8(text).unwrap()
    }

    /// As Redis 8.6.3 and Valkey 9.1.2 printed them.
    #[test]
    fn numbers_are_printed_as_newer_servers_print_them() {
        for text in [
            "0",
            "-0",
            "3",
            "inf",
            "-inf",
            "0.1",
            "4.35",
            "57.3",
            "100000.5",
            "-5e-324",
            "1e-7",
            "1.234567e-7",
            "0.000001",
            "1.234e-5",
            "100000000000000000",
            "123456789012345680",
            "4611686018427387904",
            "9223372036854776000",
            "18446744073709552000",
            "1e+21",
            "1e+22",
            "1.5e+300",
            "1.7976931348623157e+308",
            "5.449999999999999",
            "56.4412578701582",
            "190.44242984775784",
        ] {
            assert_eq!(printed(text.parse().unwrap()), text);
        }
    }

    /// The algorithm misses the shortest text of these, or the nearest one.
    #[test]
    fn numbers_that_the_algorithm_misses_are_printed_as_there() {
        for (number, text) in [
            (-857_452.352_662_937_2, "-8.574523526629373e+5"),
            (-6.652264087228344e125, "-6.6522640872283444e+125"),
            (-3.1316709716158577e78, "-3.1316709716158578e+78"),
            (-1_039_514_241_563_211.8, "-1039514241563211.7"),
            (7.113578243725634e-249, "7.1135782437256335e-249"),
            (0.033_469_323_404_473_62, "0.033469323404473617"),
            (58_095.519_149_012_86, "5.8095519149012864e+4"),
        ] {
            assert_eq!(printed(number), text);
        }
    }

    #[test]
    fn what_is_printed_is_read_as_the_same_number() {
        let mut random = fastrand::Rng::with_seed(4);
        for _ in 0..100_000 {
            let number = f64::from_bits(random.u64(..));
            if number.is_finite() {
                let text = printed(number);
                assert_eq!(text.parse(), Ok(number), "{text}");
            }
        }
        assert_eq!(printed(f64::NAN), "nan");
        assert_eq!(printed(f64::MIN_POSITIVE), "2.2250738585072014e-308");
    }
}
