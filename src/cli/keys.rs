//! The modes that look at all keys: `--scan`, `--bigkeys`, `--memkeys`, `--hotkeys`.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::thread;

use super::options::{Measure, Output};
use super::quoting::{shown, write_quoted};
use super::replies::{Aggregate, Message};
use super::session::Session;
use super::terminal::{Shown, complain, is_terminal};
use super::{Result, Stop, say};
use crate::progress::{Indicator, Progress, Unit};

/// Keys between two lines of progress.
const KEYS_BETWEEN_WORDS: u64 = 1_000_000;
/// SCANs between two pauses, if a pause is wanted.
pub(super) const SCANS_BETWEEN_PAUSES: u64 = 100;

/// The most keys that `--hotkeys` lists at the end.
const HOT_KEYS_MAX: usize = 16;

/// A data type, and the sizes of its keys.
pub(super) struct Type {
    pub(super) name: &'static [u8],
    /// The command that returns how many elements a key has.
    measured_by: &'static str,
    pub(super) unit: &'static str,
    pub(super) total: u64,
    pub(super) count: u64,
    pub(super) biggest: u64,
    pub(super) biggest_key: Option<String>,
}

/// Goes through the keyspace with SCAN.
pub(super) struct Scan {
    cursor: Vec<u8>,
    is_over: bool,
}

impl Scan {
    fn new() -> Scan {
        Scan::from(0)
    }

    /// Begins at a cursor.
    pub(super) fn from(cursor: u64) -> Scan {
        Scan { cursor: cursor.to_string().into_bytes(), is_over: false }
    }

    /// The next keys; `None` after the last.
    pub(super) fn next(&mut self, session: &mut Session) -> Result<Option<Vec<Message>>> {
        if self.is_over {
            return Ok(None);
        }
        let mut command = vec![b"SCAN".to_vec(), self.cursor.clone()];
        if let Some(pattern) = &session.options.pattern {
            command.extend([b"MATCH".to_vec(), pattern.clone()]);
        }
        if let Some(count) = session.options.count {
            command.extend([b"COUNT".to_vec(), count.to_string().into_bytes()]);
        }
        let wrong = |why: &str| {
            complain(why);
            Stop::Exit(1)
        };
        let Message::Many(Aggregate::Array, parts) = session.must_ask(&command, "SCAN")? else {
            return Err(wrong("Non ARRAY response from SCAN!"));
        };
        match <[Message; 2]>::try_from(parts) {
            Ok([Message::Bulk(cursor), Message::Many(_, keys)]) => {
                self.is_over = cursor == b"0";
                self.cursor = cursor;
                Ok(Some(keys))
            }
            _ => Err(wrong("Invalid element count from SCAN!")),
        }
    }
}

/// Prints all keys.
pub(super) fn list(session: &mut Session) -> Result<()> {
    let mut scan = Scan::new();
    while let Some(keys) = scan.next(session)? {
        let mut out = Shown::new(BufWriter::new(io::stdout().lock()), is_terminal());
        for key in &keys {
            let key = key.text().unwrap_or_default();
            match session.options.output {
                Output::Standard => write_quoted(&mut out, key)?,
                _ => out.write_all(key)?,
            }
            out.write_all(b"\n")?;
        }
        out.flush()?;
        drop(out);
        thread::sleep(session.options.interval);
    }
    Ok(())
}

/// Finds the biggest key of each type.
pub(super) fn find_biggest(session: &mut Session, measure: Measure) -> Result<()> {
    let Message::Integer(all) = session.must_ask(&["DBSIZE"], "DBSIZE")? else { return Err(Stop::Exit(1)) };
    say("\n# Scanning the entire keyspace to find biggest keys as well as\n\
         # average sizes per key type.  You can use -i 0.1 to sleep 0.1 sec\n\
         # per 100 SCAN commands (not usually needed).\n")?;
    let mut types = types();
    let (mut sampled, mut key_bytes, mut scans) = (0, 0, 0);
    let mut scan = Scan::new();
    let looked_at = Arc::new(Progress::new(Unit::Items("keys"), u64::try_from(all).ok()));
    let bar = Indicator::bar(&looked_at, "Scanning");
    while let Some(keys) = scan.next(session)? {
        let percent = if all > 0 { 100.0 * sampled as f64 / all as f64 } else { 0.0 };
        for (key, number, size) in measured(session, &mut types, &keys, measure)? {
            let known = &mut types[number];
            known.total += size;
            known.count += 1;
            key_bytes += key.len() as u64;
            sampled += 1;
            looked_at.reach(sampled);
            if known.biggest < size {
                let (name, unit) = (String::from_utf8_lossy(known.name), unit(known, measure));
                let key = shown(key);
                say(format_args!(
                    "[{percent:05.2}%] Biggest {name:<6} found so far {key} with {size} {unit}"
                ))?;
                known.biggest = size;
                known.biggest_key = Some(key);
            }
            if sampled % KEYS_BETWEEN_WORDS == 0 {
                say(format_args!("[{percent:05.2}%] Sampled {sampled} keys so far"))?;
            }
        }
        scans += 1;
        if scans % SCANS_BETWEEN_PAUSES == 0 {
            thread::sleep(session.options.interval);
        }
    }
    drop(bar);
    summarize(&types, sampled, key_bytes, measure)
}

/// Finds the keys that are used most.
pub(super) fn find_hot(session: &mut Session) -> Result<()> {
    let Message::Integer(all) = session.must_ask(&["DBSIZE"], "DBSIZE")? else { return Err(Stop::Exit(1)) };
    say("\n# Scanning the entire keyspace to find hot keys as well as\n\
         # average sizes per key type.  You can use -i 0.1 to sleep 0.1 sec\n\
         # per 100 SCAN commands (not usually needed).\n")?;
    let mut hottest = Hottest::default();
    let (mut sampled, mut scans) = (0_u64, 0);
    let mut scan = Scan::new();
    let looked_at = Arc::new(Progress::new(Unit::Items("keys"), u64::try_from(all).ok()));
    let bar = Indicator::bar(&looked_at, "Scanning");
    while let Some(keys) = scan.next(session)? {
        let percent = if all > 0 { 100.0 * sampled as f64 / all as f64 } else { 0.0 };
        let keys: Vec<&[u8]> = keys.iter().filter_map(Message::text).collect();
        let commands: Vec<_> =
            keys.iter().map(|key| vec![b"OBJECT".to_vec(), b"FREQ".to_vec(), key.to_vec()]).collect();
        let counters = session.must_ask_all(&commands)?;
        for (key, counter) in keys.into_iter().zip(counters) {
            let counter = match counter {
                Message::Integer(counter) => counter.unsigned_abs(),
                Message::Error(why) => {
                    complain(format_args!("Error: {}", String::from_utf8_lossy(&why)));
                    return Err(Stop::Exit(1));
                }
                _ => {
                    complain(format_args!(
                        "Warning: OBJECT freq on '{}' failed (may have been deleted)",
                        shown(key)
                    ));
                    0
                }
            };
            sampled += 1;
            looked_at.reach(sampled);
            if hottest.takes(key, counter) {
                let key = shown(key);
                say(format_args!("[{percent:05.2}%] Hot key {key} found so far with counter {counter}"))?;
            }
            if sampled % KEYS_BETWEEN_WORDS == 0 {
                say(format_args!("[{percent:05.2}%] Sampled {sampled} keys so far"))?;
            }
        }
        scans += 1;
        if scans % SCANS_BETWEEN_PAUSES == 0 {
            thread::sleep(session.options.interval);
        }
    }
    drop(bar);
    say(format_args!("\n-------- summary -------\n\nSampled {sampled} keys in the keyspace!"))?;
    for (counter, key) in &hottest.keys {
        say(format_args!("hot key found with counter: {counter}\tkeyname: {}", shown(key)))?;
    }
    Ok(())
}

/// The keys with the highest counters, the highest first.
#[derive(Default)]
struct Hottest {
    keys: Vec<(u64, Vec<u8>)>,
}

impl Hottest {
    /// Adds a key if its counter is among the highest. Of equal counters the first ones stay.
    fn takes(&mut self, key: &[u8], counter: u64) -> bool {
        let place = self.keys.partition_point(|(other, _)| *other >= counter);
        let is_hot = counter > 0 && place < HOT_KEYS_MAX;
        if is_hot {
            self.keys.insert(place, (counter, key.to_vec()));
            self.keys.truncate(HOT_KEYS_MAX);
        }
        is_hot
    }
}

pub(super) fn types() -> [Type; 6] {
    let of = |name, measured_by, unit| Type {
        name,
        measured_by,
        unit,
        total: 0,
        count: 0,
        biggest: 0,
        biggest_key: None,
    };
    [
        of(b"list", "LLEN", "items"),
        of(b"hash", "HLEN", "fields"),
        of(b"string", "STRLEN", "bytes"),
        of(b"stream", "XLEN", "entries"),
        of(b"set", "SCARD", "members"),
        of(b"zset", "ZCARD", "members"),
    ]
}

/// The keys that still exist, with the number of their type, and their size.
pub(super) fn measured<'a>(
    session: &mut Session,
    types: &mut [Type],
    keys: &'a [Message],
    measure: Measure,
) -> Result<Vec<(&'a [u8], usize, u64)>> {
    let keys: Vec<&[u8]> = keys.iter().filter_map(Message::text).collect();
    let commands: Vec<_> = keys.iter().map(|key| vec![b"TYPE".to_vec(), key.to_vec()]).collect();
    let names = session.must_ask_all(&commands)?;
    let number_of = |name: &Message| types.iter().position(|known| name.text() == Some(known.name));
    let known: Vec<(&[u8], usize)> =
        keys.iter().zip(&names).filter_map(|(key, name)| Some((*key, number_of(name)?))).collect();
    let commands: Vec<Vec<Vec<u8>>> = known
        .iter()
        .map(|(key, number)| match measure {
            Measure::Elements => vec![types[*number].measured_by.into(), key.to_vec()],
            Measure::Memory(samples) => {
                let mut command = vec![b"MEMORY".to_vec(), b"USAGE".to_vec(), key.to_vec()];
                if let Some(samples) = samples {
                    command.extend([b"SAMPLES".to_vec(), samples.to_string().into_bytes()]);
                }
                command
            }
        })
        .collect();
    let sizes = session.must_ask_all(&commands)?;
    let sized = known.into_iter().zip(sizes).map(|((key, number), size)| match size {
        Message::Integer(size) => (key, number, size.unsigned_abs()),
        // The key is gone, or has another type now.
        _ => (key, number, 0),
    });
    Ok(sized.collect())
}

fn unit(known: &Type, measure: Measure) -> &'static str {
    match measure {
        Measure::Elements => known.unit,
        Measure::Memory(_) => "bytes",
    }
}

fn summarize(types: &[Type], sampled: u64, key_bytes: u64, measure: Measure) -> Result<()> {
    let average = |total: u64, count: u64| if count > 0 { total as f64 / count as f64 } else { 0.0 };
    say(format_args!(
        "\n-------- summary -------\n\n\
         Sampled {sampled} keys in the keyspace!\n\
         Total key length in bytes is {key_bytes} (avg len {:.2})\n",
        average(key_bytes, sampled)
    ))?;
    for known in types {
        let (name, biggest) = (String::from_utf8_lossy(known.name), known.biggest);
        if let Some(key) = &known.biggest_key {
            say(format_args!("Biggest {name:>6} found {key} has {biggest} {}", unit(known, measure)))?;
        }
    }
    say("")?;
    for known in types {
        let (name, total, count) = (String::from_utf8_lossy(known.name), known.total, known.count);
        let (unit, percent, size) =
            (unit(known, measure), 100.0 * average(count, sampled), average(total, count));
        say(format_args!(
            "{count} {name}s with {total} {unit} ({percent:05.2}% of keys, avg size {size:.2})"
        ))?;
    }
    Ok(())
}
