//! Estimates the number of elements from registers, after Otmar Ertl, "New cardinality estimation algorithms
//! for HyperLogLog sketches" (arXiv:1702.01284). The steps are those of Redis, so that counts are the same.

use super::{INDEX_BITS, REGISTERS};

/// The longest run that a hash can have, without the one behind its last bit.
const RUN_MAX: usize = (u64::BITS - INDEX_BITS) as usize;
/// 0.5 / ln 2
const ALPHA: f64 = 0.721_347_520_444_481_7;

/// How many registers have each value. Damaged registers may have values that no hash gives.
#[derive(Clone, Debug)]
pub(crate) struct Histogram([u32; 64]);

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram([0; 64])
    }
}

impl Histogram {
    /// Counts `count` registers with a value below 64.
    pub(crate) fn add(&mut self, register: u8, count: u32) {
        self.0[usize::from(register)] += count;
    }

    /// The histogram of these registers.
    pub(crate) fn of(registers: &[u8; REGISTERS]) -> Histogram {
        let mut histogram = Histogram::default();
        registers.iter().for_each(|register| histogram.add(*register, 1));
        histogram
    }
}

/// Estimates the number of elements from these registers.
pub(crate) fn estimate(histogram: &Histogram) -> u64 {
    let registers = REGISTERS as f64;
    let Histogram(counts) = histogram;
    let mut z = registers * tau((registers - f64::from(counts[RUN_MAX + 1])) / registers);
    for count in counts[1..=RUN_MAX].iter().rev() {
        z = (z + f64::from(*count)) * 0.5;
    }
    z += registers * sigma(f64::from(counts[0]) / registers);
    let count = (ALPHA * registers * registers / z).round();
    // Registers that no hash has made may give infinity, which becomes this number in Redis on x86.
    if count < (1_u64 << 63) as f64 { count as u64 } else { 1 << 63 }
}

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if z == before {
            return z;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x) * (1.0 - x) * y;
        if z == before {
            return z / 3.0;
        }
    }
}
