//! Checks a log: one file, or all files of a manifest.
//!
//! A file may be cut off behind its last whole request, or in front of the first request after a moment, if
//! no other file of the log follows it. What is cut off is kept beside the file, as a server does that
//! starts.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::{Result, Stop, rdb};
use crate::files::reason;
use crate::persistence::aof::{AofPlace, AofReader, Damage, Manifest, Part};
use crate::persistence::rdb::is_snapshot;
use crate::resp::OwnedRequest;
use crate::resp::number::parse_integer;

/// Bytes per read.
const READ_BYTES: usize = 1 << 20;

/// What a person wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    /// To know whether the log is valid.
    Check,
    /// To cut off what is behind the damage.
    Fix,
    /// To cut off what is later than this, in seconds since 1970.
    Truncate(i64),
}

/// How the check of a file ended.
enum Ended {
    Valid,
    Empty,
    CutOff,
    CutOffAt(i64),
}

/// What was found in a file.
struct Found {
    /// The end of the last whole request, or unit of requests.
    whole: u64,
    lines: u64,
    error: Option<String>,
    is_late: bool,
}

/// Checks the file or the manifest that the arguments name.
pub(super) fn check(
    program: &str,
    arguments: &[&[u8]],
    out: &mut dyn Write,
    input: &mut dyn BufRead,
) -> Result<()> {
    let (wish, name) = match *arguments {
        [name] => (Wish::Check, name),
        [b"--fix", name] => (Wish::Fix, name),
        [b"--truncate-to-timestamp", moment, name] => match parse_integer(moment) {
            Some(moment_s) => (Wish::Truncate(moment_s), name),
            None => return fail(out, "Invalid timestamp, aborting..."),
        },
        _ => {
            let options = "[--fix|--truncate-to-timestamp $timestamp] <file.manifest|file.aof>";
            return fail(out, &format!("Usage: {program} {options}"));
        }
    };
    let path = PathBuf::from(OsStr::from_bytes(name));
    let mut check = Checking { wish, out, input };
    match manifest_text(&path) {
        Ok(Some(text)) => check.all(&path, &text),
        Ok(None) => {
            writeln!(check.out, "Start checking Old-Style AOF")?;
            let shown = path.display().to_string();
            let ended = check.file(&shown, &path, true)?;
            check.print(&ended, &shown, "AOF")
        }
        Err(error) => fail(check.out, &format!("Cannot open file {}: {}", path.display(), reason(&error))),
    }
}

fn fail<T>(out: &mut dyn Write, line: &str) -> Result<T> {
    writeln!(out, "{line}")?;
    Err(Stop::Failed)
}

/// The text of a file if it is a manifest: if a line that is no comment begins as those of a manifest do.
fn manifest_text(path: &Path) -> std::io::Result<Option<Vec<u8>>> {
    /// A longer file is no manifest.
    const BYTES_MAX: u64 = 16 << 20;
    let file = File::open(path)?;
    let is_short = file.metadata()?.len() <= BYTES_MAX;
    let mut reader = BufReader::new(file);
    let begins = reader.fill_buf()?.split(|byte| *byte == b'\n').find(|line| line.first() != Some(&b'#'));
    if !is_short || !begins.is_some_and(|line| line.starts_with(b"file")) {
        return Ok(None);
    }
    fs::read(path).map(Some)
}

/// A check that runs.
struct Checking<'a> {
    wish: Wish,
    out: &'a mut dyn Write,
    input: &'a mut dyn BufRead,
}

impl Checking<'_> {
    /// Checks all files of a manifest.
    fn all(&mut self, path: &Path, text: &[u8]) -> Result<()> {
        writeln!(self.out, "Start checking Multi Part AOF")?;
        let manifest = match Manifest::parse(text) {
            Ok(manifest) => manifest,
            Err(why) => return fail(self.out, &format!("{}: {why}", path.display())),
        };
        let directory = path.parent().unwrap_or(Path::new(""));
        let last = manifest.parts().count();
        let mut has_increments = false;
        for (number, part) in (1..).zip(manifest.parts()) {
            let is_base = manifest.base.as_ref() == Some(part);
            let file = directory.join(OsStr::from_bytes(&part.name));
            let name = part.name.escape_ascii().to_string();
            if is_base {
                let format = if begins_with_snapshot(&file) { "RDB" } else { "RESP" };
                writeln!(self.out, "Start to check BASE AOF ({format} format).")?;
            } else if !has_increments {
                writeln!(self.out, "Start to check INCR files.")?;
                has_increments = true;
            }
            let ended = self.file(&name, &file, number == last)?;
            self.print(&ended, &name, if is_base { "BASE AOF" } else { "INCR AOF" })?;
        }
        writeln!(self.out, "All AOF files and manifest are valid")?;
        Ok(())
    }

    /// Checks one file.
    fn file(&mut self, name: &str, path: &Path, is_last: bool) -> Result<Ended> {
        let opened = File::open(path).and_then(|file| Ok((file.metadata()?.len(), file)));
        let (bytes, file) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                let (path, why) = (path.display(), reason(&error));
                return fail(self.out, &format!("Cannot open file {path}: {why}, aborting..."));
            }
        };
        if bytes == 0 {
            return Ok(Ended::Empty);
        }
        let found = self.read(name, path, file)?;
        if let Wish::Truncate(moment_s) = self.wish {
            if found.is_late {
                return self.truncate(path, &found, moment_s, is_last);
            }
            if found.whole == bytes {
                writeln!(self.out, "Truncate nothing in AOF {name} to timestamp {moment_s}")?;
                return Ok(Ended::Valid);
            }
        }
        if let Some(error) = &found.error {
            writeln!(self.out, "{error}")?;
        }
        let Found { whole, lines, .. } = found;
        let more = bytes - whole;
        writeln!(
            self.out,
            "AOF analyzed: filename={name}, size={bytes}, ok_up_to={whole}, ok_up_to_line={lines}, \
             diff={more}"
        )?;
        if more == 0 {
            return Ok(Ended::Valid);
        }
        if self.wish != Wish::Fix {
            return fail(
                self.out,
                &format!("AOF {name} is not valid. Use the --fix option to try fixing it."),
            );
        }
        if !is_last {
            return fail(self.out, &format!("Failed to truncate AOF {name} because it is not the last file"));
        }
        writeln!(
            self.out,
            "This will shrink the AOF {name} from {bytes} bytes, with {more} bytes, to {whole} bytes"
        )?;
        write!(self.out, "Continue? [y/N]: ")?;
        self.out.flush()?;
        let mut reply = String::new();
        let is_agreed = self.input.read_line(&mut reply).is_ok() && reply.starts_with(['y', 'Y']);
        if !is_agreed {
            return fail(self.out, "Aborting...");
        }
        match self.cut_off(path, whole)? {
            true => Ok(Ended::CutOff),
            false => fail(self.out, &format!("Failed to truncate AOF {name}")),
        }
    }

    /// Cuts off what is later than a moment.
    fn truncate(&mut self, path: &Path, found: &Found, moment_s: i64, is_last: bool) -> Result<Ended> {
        let (shown, whole) = (path.display(), found.whole);
        if whole == 0 {
            let why = format!("AOF {shown} has nothing before timestamp {moment_s}, aborting...");
            return fail(self.out, &why);
        }
        if !is_last {
            writeln!(
                self.out,
                "Failed to truncate AOF {shown} to timestamp {moment_s} to offset {whole} because it is not \
                 the last file."
            )?;
            let advice = "If you insist, please delete all files after this file according to the manifest \
                          file and delete the corresponding records in manifest file manually. Then re-run \
                          redis-check-aof.";
            return fail(self.out, advice);
        }
        match self.cut_off(path, whole)? {
            true => Ok(Ended::CutOffAt(moment_s)),
            false => fail(self.out, &format!("Failed to truncate AOF {shown} to timestamp {moment_s}")),
        }
    }

    /// Cuts off what is behind an offset, and keeps it; returns whether it did.
    fn cut_off(&mut self, path: &Path, whole: u64) -> Result<bool> {
        let name = path.file_name().unwrap_or_default().as_bytes().to_vec();
        let directory = path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
        let place = AofPlace { root: directory.into(), directory: directory.into(), name: name.clone() };
        // A server that writes the log holds the lock.
        let _lock = match place.lock() {
            Ok(lock) => lock,
            Err(why) => {
                writeln!(self.out, "{why}")?;
                return Ok(false);
            }
        };
        match place.cut_off(&Part { name, number: 1 }, whole) {
            Ok(kept) => {
                if let Some(kept) = kept {
                    writeln!(self.out, "What is cut off is kept in {}", kept.display())?;
                }
                Ok(true)
            }
            Err(error) => {
                writeln!(self.out, "{}", reason(&error))?;
                Ok(false)
            }
        }
    }

    /// Reads a file to its end, or up to the first damage.
    fn read(&mut self, name: &str, path: &Path, file: File) -> Result<Found> {
        let mut input = BufReader::with_capacity(READ_BYTES, file);
        let mut offset = 0;
        if is_snapshot(input.fill_buf().unwrap_or_default()) {
            match rdb::check_input(&path.display().to_string(), &mut input, self.out) {
                Ok(bytes) => offset = bytes,
                Err(Stop::Failed) => {
                    return fail(self.out, "RDB preamble of AOF file is not sane, aborting.");
                }
                Err(closed) => return Err(closed),
            }
            writeln!(self.out, "RDB preamble is OK, proceeding with AOF tail...")?;
        }
        // Reading went on in the buffer, so the position is that of the file.
        if input.seek(SeekFrom::Start(offset)).is_err() {
            return fail(self.out, &format!("Failed to read from AOF {name}, aborting..."));
        }
        let mut reader = AofReader::new(input, offset);
        if let Wish::Truncate(moment_s) = self.wish {
            reader = reader.until(moment_s);
        }
        let (mut request, mut whole, mut is_open) = (OwnedRequest::default(), offset, false);
        let error = loop {
            let at = reader.offset();
            let wrong = |what: &str| Some(format!("0x{at:16x}: {what}"));
            match reader.next(&mut request) {
                Ok(true) => {}
                Ok(false) if is_open && !reader.is_late() => {
                    break wrong("Reached EOF before reading EXEC for MULTI");
                }
                Ok(false) => {
                    if !is_open && !reader.is_late() {
                        whole = reader.offset();
                    }
                    break None;
                }
                Err(Damage::Torn) => break wrong("The file ends within a request"),
                Err(Damage::Garbled) => break Some(format!("AOF {name} format error")),
                Err(Damage::Unreadable(error)) => {
                    let why = reason(&error);
                    return fail(self.out, &format!("Failed to read from AOF {name}: {why}, aborting..."));
                }
            }
            let is_named = |word: &[u8]| {
                request.request().is_some_and(|request| request.name().eq_ignore_ascii_case(word))
            };
            match is_open {
                true if is_named(b"multi") => break wrong(&format!("Unexpected MULTI in AOF {name}")),
                false if is_named(b"exec") => break wrong(&format!("Unexpected EXEC in AOF {name}")),
                _ => {}
            }
            is_open = (is_open || is_named(b"multi")) && !is_named(b"exec");
            if !is_open && !reader.is_divided() {
                whole = reader.offset();
            }
        };
        // The first line has the number 1.
        Ok(Found { whole, lines: 1 + reader.lines(), error, is_late: reader.is_late() })
    }

    fn print(&mut self, ended: &Ended, name: &str, kind: &str) -> Result<()> {
        match ended {
            Ended::Valid => writeln!(self.out, "{kind} {name} is valid")?,
            Ended::Empty => writeln!(self.out, "{kind} {name} is empty")?,
            Ended::CutOff => writeln!(self.out, "Successfully truncated AOF {name}")?,
            Ended::CutOffAt(moment_s) => {
                writeln!(self.out, "Successfully truncated AOF {name} to timestamp {moment_s}")?;
            }
        }
        Ok(())
    }
}

/// Whether a file begins with a snapshot.
fn begins_with_snapshot(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    let mut input = BufReader::new(file);
    is_snapshot(input.fill_buf().unwrap_or_default())
}
