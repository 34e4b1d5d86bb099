//! The modes that measure time: `--latency`, `--latency-history`, `--latency-dist`, `--intrinsic-latency`.
//! And `--lru-test`, which measures how often a cache has what is asked for.

use std::hint::black_box;
use std::io::{self, BufWriter, Write};
use std::thread;
use std::time::{Duration, Instant};

use super::options::Output;
use super::replies::Message;
use super::session::Session;
use super::terminal::complain;
use super::{Result, say};

/// How long `--latency` measures, and `--latency-dist` per line, if `-i` does not say it.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long `--latency-history` measures per line, if `-i` does not say it.
const HISTORY_INTERVAL: Duration = Duration::from_secs(15);
/// The pause between two measurements.
const PAUSE: Duration = Duration::from_millis(10);

/// Measurements, in milliseconds.
#[derive(Default)]
struct Measured {
    least: u128,
    most: u128,
    total: u128,
    count: u128,
}

impl Measured {
    fn add(&mut self, took: Duration) {
        let took_ms = took.as_millis();
        self.least = if self.count == 0 { took_ms } else { self.least.min(took_ms) };
        self.most = self.most.max(took_ms);
        self.total += took_ms;
        self.count += 1;
    }

    fn write(&self, out: &mut impl Write, output: Output) -> io::Result<()> {
        let Measured { least, most, total, count } = self;
        let average = *total as f64 / *count as f64;
        match output {
            Output::Standard => {
                // Overwrites the line.
                write!(out, "\x1b[0G\x1b[2Kmin: {least}, max: {most}, avg: {average:.2} ({count} samples)")
            }
            Output::Raw => writeln!(out, "{least} {most} {average:.2} {count}"),
            Output::Csv => writeln!(out, "{least},{most},{average:.2},{count}"),
            Output::Json | Output::QuotedJson => writeln!(
                out,
                "{{\"min\": {least}, \"max\": {most}, \"avg\": {average:.2}, \"count\": {count}}}"
            ),
        }
    }
}

/// How long a PING takes.
fn ping(session: &mut Session) -> Result<Duration> {
    let before = Instant::now();
    session.must_ask(&["PING"], "PING")?;
    Ok(before.elapsed())
}

fn interval(session: &Session, default: Duration) -> Duration {
    if session.options.interval.is_zero() { default } else { session.options.interval }
}

/// Measures PING: for ever on a terminal, otherwise once for the interval.
pub(super) fn measure_ping(session: &mut Session) -> Result<()> {
    let interval = interval(session, INTERVAL);
    let output = session.options.output;
    let begin = Instant::now();
    let mut measured = Measured::default();
    loop {
        measured.add(ping(session)?);
        let is_over = begin.elapsed() > interval;
        if is_over || output == Output::Standard {
            let mut out = io::stdout().lock();
            measured.write(&mut out, output)?;
            out.flush()?;
        }
        if is_over && output != Output::Standard {
            return Ok(());
        }
        thread::sleep(PAUSE);
    }
}

/// Measures PING for ever, and begins a new line after each interval.
pub(super) fn measure_history(session: &mut Session) -> Result<()> {
    let interval = interval(session, HISTORY_INTERVAL);
    let output = session.options.output;
    loop {
        let begin = Instant::now();
        let mut measured = Measured::default();
        while begin.elapsed() <= interval {
            measured.add(ping(session)?);
            let mut out = io::stdout().lock();
            measured.write(&mut out, output)?;
            out.flush()?;
            drop(out);
            thread::sleep(PAUSE);
        }
        super::say(format_args!(" -- {:.2} seconds range", begin.elapsed().as_secs_f64()))?;
    }
}

/// A range of the spectrum: its upper limit in microseconds, and its sign.
const SPECTRUM: [(u128, char); 30] = [
    (10, '.'),
    (125, '-'),
    (250, '*'),
    (500, '#'),
    (1_000, '1'),
    (2_000, '2'),
    (3_000, '3'),
    (4_000, '4'),
    (5_000, '5'),
    (6_000, '6'),
    (7_000, '7'),
    (8_000, '8'),
    (9_000, '9'),
    (10_000, 'A'),
    (20_000, 'B'),
    (30_000, 'C'),
    (40_000, 'D'),
    (50_000, 'E'),
    (100_000, 'F'),
    (200_000, 'G'),
    (300_000, 'H'),
    (400_000, 'I'),
    (500_000, 'J'),
    (1_000_000, 'K'),
    (2_000_000, 'L'),
    (4_000_000, 'M'),
    (8_000_000, 'N'),
    (16_000_000, 'O'),
    (30_000_000, 'P'),
    (60_000_000, 'Q'),
];
/// The sign of measurements above all ranges.
const BEYOND: char = '?';
/// Colours of a 256-colour terminal, from no measurement to all of them.
const COLOURS: [u8; 19] =
    [0, 233, 234, 235, 237, 239, 241, 243, 245, 247, 144, 143, 142, 184, 226, 214, 208, 202, 196];
/// Lines between two legends.
const LINES_BETWEEN_LEGENDS: usize = 20;

/// Shows how many measurements fall into each range: one line of colours per interval.
pub(super) fn draw_spectrum(session: &mut Session) -> Result<()> {
    let interval = interval(session, INTERVAL);
    for line in 0_usize.. {
        let begin = Instant::now();
        let mut counts = [0_usize; SPECTRUM.len() + 1];
        while begin.elapsed() <= interval {
            let took_us = ping(session)?.as_micros();
            counts[SPECTRUM.partition_point(|(up_to_us, _)| *up_to_us < took_us)] += 1;
            thread::sleep(PAUSE);
        }
        let mut out = BufWriter::new(io::stdout().lock());
        if line % LINES_BETWEEN_LEGENDS == 0 {
            write_legend(&mut out)?;
        }
        write_spectrum(&mut out, &counts)?;
        out.flush()?;
    }
    Ok(())
}

fn write_legend(out: &mut impl Write) -> io::Result<()> {
    let rule = "-".repeat(45);
    writeln!(
        out,
        "{rule}\n\
         . - * #          .01 .125 .25 .5 milliseconds\n\
         1,2,3,...,9      from 1 to 9     milliseconds\n\
         A,B,C,D,E        10,20,30,40,50  milliseconds\n\
         F,G,H,I,J        .1,.2,.3,.4,.5       seconds\n\
         K,L,M,N,O,P,Q,?  1,2,4,8,16,30,60,>60 seconds"
    )?;
    out.write_all(b"From 0 to 100%: ")?;
    for colour in COLOURS {
        write!(out, "\x1b[48;5;{colour}m ")?;
    }
    writeln!(out, "\x1b[0m\n{rule}")
}

fn write_spectrum(out: &mut impl Write, counts: &[usize]) -> io::Result<()> {
    let total = counts.iter().sum::<usize>().max(1);
    let signs = SPECTRUM.iter().map(|(_, sign)| *sign).chain([BEYOND]);
    out.write_all(b"\x1b[38;5;0m")?;
    for (count, sign) in counts.iter().zip(signs) {
        // Rounded up, so that a single measurement is visible.
        let colour = COLOURS[(count * (COLOURS.len() - 1)).div_ceil(total)];
        write!(out, "\x1b[48;5;{colour}m{sign}")?;
    }
    out.write_all(b"\x1b[0m\n")
}

/// Measures for so many seconds how long this machine pauses a busy program. No server on it can be faster.
pub(super) fn measure_intrinsic(seconds: u64) -> Result<()> {
    let time = Duration::from_secs(seconds);
    let begin = Instant::now();
    let (mut longest, mut runs) = (Duration::ZERO, 0_u64);
    let mut before = begin;
    let whole = loop {
        work();
        let after = Instant::now();
        let took = after.duration_since(before);
        before = after;
        runs += 1;
        if runs == 1 || took.as_micros() > longest.as_micros() {
            super::say(format_args!("Max latency so far: {} microseconds.", took.as_micros()))?;
        }
        longest = longest.max(took);
        let whole = after.duration_since(begin);
        if whole >= time {
            break whole;
        }
    };
    // A run takes less than a microsecond. Two reads of the clock may return the same nanosecond.
    let average_ns = whole.as_nanos().max(1) as f64 / runs as f64;
    super::say(format_args!(
        "\n{runs} total runs (avg latency: {:.4} microseconds / {average_ns:.2} nanoseconds per run).\n\
         Worst run took {:.0}x longer than the average latency.",
        average_ns / 1000.0,
        longest.as_nanos() as f64 / average_ns
    ))
}

/// Some tens of nanoseconds of arithmetic.
fn work() {
    let mut state = black_box(1_u64);
    for _ in 0..64 {
        state = black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}

/// Requests that are sent at once.
const CACHE_REQUESTS: usize = 250;

/// Writes and reads keys for ever, as clients of a cache do: half of the requests read. Each second a line
/// says how many of those found their key.
pub(super) fn simulate_cache(session: &mut Session, keys: u64) -> Result<()> {
    let key = || format!("lru:{}", frequent_number(keys)).into_bytes();
    loop {
        let begin = Instant::now();
        let (mut hits, mut misses) = (0_u64, 0_u64);
        while begin.elapsed() < INTERVAL {
            let value = || (0..5).map(|_| fastrand::u8(b'A'..b'z')).collect::<Vec<u8>>();
            let writes: Vec<_> = (0..CACHE_REQUESTS).map(|_| vec![b"SET".to_vec(), key(), value()]).collect();
            session.must_ask_all(&writes)?;
            let reads: Vec<_> = (0..CACHE_REQUESTS).map(|_| vec![b"GET".to_vec(), key()]).collect();
            for reply in session.must_ask_all(&reads)? {
                match reply {
                    Message::Error(why) => complain(String::from_utf8_lossy(&why)),
                    Message::Nil => misses += 1,
                    _ => hits += 1,
                }
            }
        }
        let percent =
            |part: u64| if hits + misses > 0 { 100.0 * part as f64 / (hits + misses) as f64 } else { 0.0 };
        say(format_args!(
            "{} Gets/sec | Hits: {hits} ({:.2}%) | Misses: {misses} ({:.2}%)",
            hits + misses,
            percent(hits),
            percent(misses)
        ))?;
    }
}

/// A number of a key, from 1 on: a fifth of them comes four times in five.
fn frequent_number(keys: u64) -> u64 {
    /// Redis: the exponent of `powerLawRand`, and one.
    const POWER: f64 = 7.2;
    let most = keys.saturating_add(1) as f64;
    let drawn = ((most.powf(POWER) - 1.0) * fastrand::f64() + 1.0).powf(POWER.recip());
    (keys + 1).saturating_sub(drawn as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spectrum_shows_what_has_happened_at_all() {
        let mut counts = [0; SPECTRUM.len() + 1];
        (counts[1], counts[30]) = (99, 1);
        let mut line = Vec::new();
        write_spectrum(&mut line, &counts).unwrap();
        let line = String::from_utf8(line).unwrap();
        assert!(line.starts_with("\x1b[38;5;0m\x1b[48;5;0m.\x1b[48;5;196m-\x1b[48;5;0m*"), "{line:?}");
        assert!(line.ends_with("\x1b[48;5;0mQ\x1b[48;5;233m?\x1b[0m\n"), "{line:?}");
    }
}
