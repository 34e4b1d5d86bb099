//! Processor time of this process, as the system counts it.

use std::fs;

/// Units of [`ticks`] in a second, on every Linux there is.
pub(crate) const TICKS: f64 = 100.0;

/// Two numbers of a file like `/proc/self/stat`, counted from behind the program's name.
pub(crate) fn ticks(file: &str, fields: [usize; 2]) -> [f64; 2] {
    let stat = fs::read_to_string(file).unwrap_or_default();
    // The name of the program, in parentheses, may contain blanks.
    let after_name = stat.rsplit_once(") ").map(|(_, rest)| rest).unwrap_or_default();
    let numbers: Vec<f64> = after_name.split(' ').map(|field| field.parse().unwrap_or(0.0)).collect();
    fields.map(|field| numbers.get(field).copied().unwrap_or(0.0))
}

/// What this process has taken, in the program and in the system, in milliseconds.
pub(crate) fn times_ms() -> [u64; 2] {
    ticks("/proc/self/stat", [11, 12]).map(|ticks| (ticks * 1000.0 / TICKS) as u64)
}
