//! `--keystats`: the largest keys, by their memory and by their elements, and how the sizes are spread.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::thread;

use super::keys::{SCANS_BETWEEN_PAUSES, Scan, Type, measured, types};
use super::options::Measure;
use super::quoting::shown;
use super::replies::Message;
use super::session::Session;
use super::terminal::{Shown, is_terminal};
use super::{Result, Stop, say};
use crate::progress::{Indicator, Progress, Unit};

/// Lengths of names, in bytes, up to which they are counted together.
const LENGTHS: [usize; 7] = [1 << 5, 1 << 8, 1 << 16, 1 << 20, 16 << 20, 128 << 20, 512 << 20];

/// Sizes below this are counted one by one, larger ones with so many digits. Redis: a histogram of four
/// significant figures.
const EXACT_BITS: u32 = 15;

/// All that was counted.
struct Counted {
    sampled: u64,
    memory: u64,
    by_memory: [Type; 6],
    by_elements: [Type; 6],
    /// The keys with the most memory, the largest first: the size, the number of the type, the name.
    top: Vec<(u64, usize, String)>,
    /// How many keys have a size, by the lowest of the sizes that count as the same.
    sizes: BTreeMap<u64, u64>,
    /// How many names have a length up to each of [`LENGTHS`], and how many a greater one.
    lengths: [u64; LENGTHS.len() + 1],
    longest: usize,
    names_bytes: u64,
}

/// Goes through all keys, and prints what it finds.
pub(super) fn print(session: &mut Session, samples: Option<u64>) -> Result<()> {
    let Message::Integer(all) = session.must_ask(&["DBSIZE"], "DBSIZE")? else { return Err(Stop::Exit(1)) };
    say("\n# Scanning the entire keyspace to find the biggest keys and distribution information.\n\
         # Use -i 0.1 to sleep 0.1 sec per 100 SCAN commands (not usually needed).\n\
         # Use --cursor <n> to start the scan at the cursor <n> (usually after a Ctrl-C).\n\
         # Use --top <n> to display <n> top key sizes (default is 10).\n\
         # Ctrl-C to stop the scan.\n")?;
    let all = u64::try_from(all).unwrap_or(0);
    let mut counted = Counted {
        sampled: 0,
        memory: 0,
        by_memory: types(),
        by_elements: types(),
        top: Vec::new(),
        sizes: BTreeMap::new(),
        lengths: [0; LENGTHS.len() + 1],
        longest: 0,
        names_bytes: 0,
    };
    let mut scan = Scan::from(session.options.cursor);
    let mut scans = 0;
    let looked_at = Arc::new(Progress::new(Unit::Items("keys"), Some(all)));
    let bar = Indicator::bar(&looked_at, "Scanning");
    while let Some(keys) = scan.next(session)? {
        let memory = measured(session, &mut counted.by_memory, &keys, Measure::Memory(samples))?;
        let elements = measured(session, &mut counted.by_elements, &keys, Measure::Elements)?;
        let elements: HashMap<&[u8], u64> = elements.into_iter().map(|(key, _, size)| (key, size)).collect();
        for (key, number, size) in memory {
            // A key may be gone by now.
            if let Some(length) = elements.get(key) {
                counted.add((key, number), size, *length, session.options.top);
            }
        }
        looked_at.reach(counted.sampled);
        scans += 1;
        if scans % SCANS_BETWEEN_PAUSES == 0 {
            thread::sleep(session.options.interval);
        }
    }
    drop(bar);
    let mut out = Shown::new(BufWriter::new(io::stdout().lock()), is_terminal());
    counted.write(&mut out, all, session.options.top)?;
    Ok(out.flush()?)
}

impl Counted {
    fn add(&mut self, (key, number): (&[u8], usize), size: u64, length: u64, top: usize) {
        self.sampled += 1;
        self.memory += size;
        for (known, amount) in [(&mut self.by_memory[number], size), (&mut self.by_elements[number], length)]
        {
            known.total += amount;
            known.count += 1;
            if known.biggest < amount {
                known.biggest = amount;
                known.biggest_key = Some(name_of(key));
            }
        }
        // Of equal sizes the first ones stay.
        let place = self.top.partition_point(|(other, ..)| *other >= size);
        if place < top || top == 0 {
            self.top.insert(place, (size, number, shown(key)));
            if top > 0 {
                self.top.truncate(top);
            }
        }
        *self.sizes.entry(lowest_of(size)).or_default() += 1;
        self.lengths[LENGTHS.iter().position(|bound| key.len() <= *bound).unwrap_or(LENGTHS.len())] += 1;
        self.longest = self.longest.max(key.len());
        self.names_bytes += key.len() as u64;
    }

    fn write(&self, out: &mut impl Write, all: u64, top: usize) -> io::Result<()> {
        let share = if all == 0 { 0.0 } else { (self.sampled as f64 / all as f64).min(1.0) };
        writeln!(out, "{:6.2}% keys scanned", 100.0 * share)?;
        writeln!(out, "Keys sampled: {}", self.sampled)?;
        writeln!(out, "Keys size:    {}", bytes(self.memory))?;
        writeln!(out, "\n--- Top {top} key sizes ---")?;
        for (place, (size, number, key)) in self.top.iter().enumerate() {
            let name = String::from_utf8_lossy(self.by_memory[*number].name);
            writeln!(out, "{:3} {:>8} {name:<10} {key}", place + 1, bytes(*size))?;
        }
        writeln!(out, "\n--- Top size per type ---")?;
        for known in &self.by_memory {
            if let Some(key) = &known.biggest_key {
                writeln!(
                    out,
                    "{:<10} {key} is {}",
                    String::from_utf8_lossy(known.name),
                    bytes(known.biggest)
                )?;
            }
        }
        writeln!(out, "\n--- Top length and cardinality per type ---")?;
        for known in &self.by_elements {
            if let Some(key) = &known.biggest_key {
                let amount = amount(known, known.biggest);
                writeln!(out, "{:<10} {key} has {amount}", String::from_utf8_lossy(known.name))?;
            }
        }
        writeln!(out)?;
        self.write_sizes(out)?;
        writeln!(out)?;
        self.write_lengths(out)?;
        writeln!(out)?;
        self.write_types(out)
    }

    /// How many keys have a size up to some sizes: those at half, at three quarters, at seven eighths … of
    /// all keys.
    fn write_sizes(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "Key size Percentile Total keys\n-------- ---------- -----------")?;
        let total = self.sampled;
        let (mut up_to, mut wanted) = (0, 0.0);
        for (lowest, count) in &self.sizes {
            up_to += count;
            let reached = 100.0 * up_to as f64 / total as f64;
            if wanted > reached && up_to < total {
                continue;
            }
            let percentile = if up_to == total { 100.0 } else { wanted };
            let highest = lowest + step_of(*lowest) - 1;
            writeln!(out, "{:>8} {percentile:9.4}% {up_to:11}", bytes(highest))?;
            let halvings = (100.0 / (100.0 - wanted)).log2() as i32 + 1;
            wanted += 100.0 / f64::from(halvings).exp2();
        }
        let middles = || self.sizes.iter().map(|(lowest, count)| (lowest + step_of(*lowest) / 2, *count));
        let parts = total.max(1) as f64;
        let mean = middles().map(|(middle, count)| middle * count).sum::<u64>() as f64 / parts;
        let squares = middles().map(|(middle, count)| (middle as f64 - mean).powi(2) * count as f64);
        let deviation = (squares.sum::<f64>() / parts).sqrt();
        let (mean, deviation) = (bytes(mean as u64), bytes(deviation as u64));
        writeln!(out, "Note: 0.01% size precision, Mean: {mean}, StdDeviation: {deviation}")
    }

    fn write_lengths(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "Key name length Percentile Total keys\n--------------- ---------- -----------")?;
        let mut up_to = 0;
        for (bound, count) in LENGTHS.iter().zip(self.lengths).filter(|(_, count)| *count > 0) {
            up_to += count;
            let length = bytes(self.longest.min(*bound) as u64);
            let percentile = 100.0 * up_to as f64 / self.sampled as f64;
            writeln!(out, "{length:>15} {percentile:9.4}% {up_to:11}")?;
        }
        if up_to < self.sampled {
            writeln!(out, "           inf {:9.4}% {:11}", 100.0, self.sampled)?;
        }
        let average = self.names_bytes.checked_div(self.sampled);
        let average = average.map_or_else(|| "0".to_owned(), bytes);
        writeln!(out, "Total key length is {} ({average} avg)", bytes(self.names_bytes))
    }

    fn write_types(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(
            out,
            "Type        Total keys  Keys % Tot size Avg size  Total length/card Avg ln/card\n\
             --------- ------------ ------- -------- -------- ------------------ -----------"
        )?;
        for (memory, elements) in self.by_memory.iter().zip(&self.by_elements) {
            let count = memory.count;
            if count == 0 {
                continue;
            }
            let average = elements.total as f64 / elements.count.max(1) as f64;
            let average = match elements.unit {
                "bytes" => bytes(average.round() as u64),
                _ => format!("{average:.2}"),
            };
            writeln!(
                out,
                "{:<10} {count:11} {:6.2}% {:>8} {:>8} {:>18} {average:>11}",
                String::from_utf8_lossy(memory.name),
                100.0 * count as f64 / self.sampled as f64,
                bytes(memory.total),
                bytes(memory.total / count),
                amount(elements, elements.total)
            )?;
        }
        Ok(())
    }
}

/// A name in the lists of types, where it is printed as it is.
fn name_of(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}

/// Elements with their unit; bytes in a short form.
fn amount(known: &Type, amount: u64) -> String {
    match known.unit {
        "bytes" => bytes(amount),
        unit => format!("{amount} {unit}"),
    }
}

/// How many sizes count as the same as this one.
fn step_of(size: u64) -> u64 {
    1 << (u64::BITS - size.leading_zeros()).saturating_sub(EXACT_BITS)
}

/// The lowest of the sizes that count as the same as this one.
fn lowest_of(size: u64) -> u64 {
    size / step_of(size) * step_of(size)
}

/// A number of bytes in a short form.
fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["K", "M", "G", "T"];
    if bytes < 1024 {
        return format!("{bytes}B");
    }
    let mut amount = bytes as f64 / 1024.0;
    let mut unit = 0;
    while amount >= 1024.0 && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    format!("{amount:.2}{}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_are_nearly_equal_count_as_one() {
        assert_eq!((lowest_of(0), step_of(0)), (0, 1));
        assert_eq!((lowest_of(32_767), step_of(32_767)), (32_767, 1));
        assert_eq!((lowest_of(32_769), step_of(32_769)), (32_768, 2));
        assert_eq!(step_of(1 << 20), 64);
    }

    #[test]
    fn bytes_are_short() {
        for (number, text) in
            [(0, "0B"), (1023, "1023B"), (1024, "1.00K"), (1_572_864, "1.50M"), (1 << 40, "1.00T")]
        {
            assert_eq!(bytes(number), text);
        }
    }
}
