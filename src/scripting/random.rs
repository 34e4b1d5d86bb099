//! Random numbers that are the same after every start, as in Redis: its `math.random` uses the generator of
//! `drand48` (`rand.c`), which all scripts share.

/// The generator: 48 bits, changed by one multiplication per number.
#[derive(Debug)]
pub(super) struct Random(u64);

const MULTIPLIER: u64 = 0x5_DEEC_E66D;
const INCREMENT: u64 = 0xB;
const BITS: u64 = (1 << 48) - 1;
/// The low bits of every seed.
const SEED_LOW: u64 = 0x330E;

impl Default for Random {
    /// The state without a seed.
    fn default() -> Random {
        Random(0x1234_ABCD_330E)
    }
}

impl Random {
    /// Sets the state that belongs to a seed.
    pub(super) fn seed(&mut self, seed: i32) {
        self.0 = (u64::from(seed as u32) << 16) | SEED_LOW;
    }

    /// The next number, from 0 up to but not including 1.
    pub(super) fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT) & BITS;
        let drawn = (self.0 >> 17) as i64 % i64::from(i32::MAX);
        drawn as f64 / f64::from(i32::MAX)
    }
}
