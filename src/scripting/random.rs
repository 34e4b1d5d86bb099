//! Numbers that look random and are the same after every start, as in Redis: its `math.random` draws from the
//! generator of `drand48` (`rand.c`), which all scripts share.

/// The generator: 48 bits that go on by one multiplication.
#[derive(Debug)]
pub(super) struct Random(u64);

const MULTIPLIER: u64 = 0x5_DEEC_E66D;
const INCREMENT: u64 = 0xB;
const BITS: u64 = (1 << 48) - 1;
/// The low bits of every seed.
const SEED_LOW: u64 = 0x330E;

impl Default for Random {
    /// As it is before it is ever seeded.
    fn default() -> Random {
        Random(0x1234_ABCD_330E)
    }
}

impl Random {
    /// Begins anew.
    pub(super) fn seed(&mut self, seed: i32) {
        self.0 = (u64::from(seed as u32) << 16) | SEED_LOW;
    }

    /// A number from 0 up to 1.
    pub(super) fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT) & BITS;
        let drawn = (self.0 >> 17) as i64 % i64::from(i32::MAX);
        drawn as f64 / f64::from(i32::MAX)
    }
}
