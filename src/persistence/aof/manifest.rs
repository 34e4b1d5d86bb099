//! The manifest: the list of files that make up a log, in the layout of Redis 7. A base file has the state at
//! one moment; increments have the changes since.
//!
//! The manifest is a text file that is replaced as a whole. So at any moment either the old set of files
//! counts, or the new one. Files that no longer count are listed as history until they have been deleted.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::files::{self, Rights, reason, sync_directory};
use crate::resp::OwnedRequest;
use crate::resp::number::parse_integer;
use crate::resp::reply::write_quoted;

/// Longest line, in bytes. Redis: `MANIFEST_MAX_LINE`.
const LINE_BYTES_MAX: usize = 1024;

/// The place of a log's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AofPlace {
    /// The server's directory for files (`dir`).
    pub root: PathBuf,
    /// The directory within `root` (`appenddirname`).
    pub directory: PathBuf,
    /// The prefix of the files' names (`appendfilename`).
    pub name: Vec<u8>,
}

/// The files of a log, by their role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// The state to which the increments apply. Without a base they apply to an empty keyspace.
    pub base: Option<Part>,
    /// The files with the changes, oldest first.
    pub increments: Vec<Part>,
    /// Files that no longer count and can be deleted.
    pub history: Vec<Part>,
    /// The number of a base that may be listed on the disk although it is not listed here: the list was
    /// replaced, and the sync after that failed. It is not in the file.
    pub doubtful_base: u64,
}

/// A base or an increment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The file's name, without a path.
    pub name: Vec<u8>,
    /// The file's number: bases and increments are numbered separately.
    pub number: u64,
}

impl AofPlace {
    /// The path of the file with this name.
    pub fn path(&self, name: &[u8]) -> PathBuf {
        self.directory.join(OsStr::from_bytes(name))
    }

    /// The path of the manifest.
    pub fn manifest(&self) -> PathBuf {
        self.path(&[&self.name, &b".manifest"[..]].concat())
    }

    /// Makes the directory, if it does not exist.
    pub fn make(&self) -> Result<(), String> {
        // If another process has made it, that process may not have synced the parent directory.
        self.make_directory().and_then(|()| sync_directory(&self.root)).map_err(|error| self.refused(&error))
    }

    /// Checks whether files can be created there. Does not wait for the disk.
    pub fn probe(&self) -> Result<(), String> {
        let file = self.path(b"temp-probe.rdb");
        let made = self.make_directory().and_then(|()| files::create_temporary(&file, 0o600));
        made.and_then(|_| fs::remove_file(&file)).map_err(|error| self.refused(&error))?;
        Manifest::read(self).map(|_| ())
    }

    /// Locks the directory, so that no other server logs there while the returned lock exists. Returns `None`
    /// if the file system has no locks.
    pub fn lock(&self) -> Result<Option<File>, String> {
        let opened = self.make_directory().and_then(|()| File::open(&self.directory));
        let directory = opened.map_err(|error| self.refused(&error))?;
        match directory.try_lock() {
            Ok(()) => Ok(Some(directory)),
            Err(TryLockError::WouldBlock) => Err(format!(
                "Another server keeps its log in {}: two servers that write one log would destroy it. Stop \
                 the other one, or choose another directory for this one (dir or appenddirname)",
                self.directory.display()
            )),
            Err(TryLockError::Error(error)) => {
                tracing::warn!(
                    "Could not lock {}: {}. Make sure that no other server keeps its log there.",
                    self.directory.display(),
                    reason(&error)
                );
                Ok(None)
            }
        }
    }

    /// Cuts a file off at an offset. Keeps what was behind the offset in another file, and returns that
    /// file's path; `None` if there was nothing behind it.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or written. The log's file is unchanged then.
    pub fn cut_off(&self, part: &Part, offset: u64) -> io::Result<Option<PathBuf>> {
        let mut file = File::options().read(true).write(true).open(self.path(&part.name))?;
        if file.metadata()?.len() <= offset {
            return Ok(None);
        }
        file.seek(SeekFrom::Start(offset))?;
        let (path, mut kept) = self.create_kept(part, offset)?;
        let copied = io::copy(&mut file, &mut kept).and_then(|_| kept.sync_all());
        if let Err(error) = copied.and_then(|()| sync_directory(&self.directory)) {
            // An incomplete copy is useless.
            let _ = fs::remove_file(&path);
            return Err(error);
        }
        file.set_len(offset)?;
        file.sync_all()?;
        Ok(Some(path))
    }

    /// Creates a file for what was behind an offset of another file. An earlier cut may have made one for the
    /// same offset.
    fn create_kept(&self, part: &Part, offset: u64) -> io::Result<(PathBuf, File)> {
        let first = [&part.name, format!(".cut-off-at-{offset}").as_bytes()].concat();
        for number in 1_u64.. {
            let ending = if number == 1 { String::new() } else { format!("-{number}") };
            let path = self.path(&[&first, ending.as_bytes()].concat());
            match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
                Ok(file) => return Ok((path, file)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// The names of log files in the directory that are not empty.
    fn log_files(&self) -> Vec<Vec<u8>> {
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let full = entries.filter(|entry| entry.metadata().is_ok_and(|metadata| metadata.len() > 0));
        let names = full.map(|entry| entry.file_name().into_vec());
        let mut names: Vec<_> = names.filter(|name| self.is_log_file(name)).collect();
        names.sort_unstable();
        names
    }

    /// Whether a file has the name of a base or an increment.
    fn is_log_file(&self, name: &[u8]) -> bool {
        let Some(rest) = name.strip_prefix(&*self.name).and_then(|rest| rest.strip_prefix(b".")) else {
            return false;
        };
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        digits > 0 && matches!(&rest[digits..], b".base.rdb" | b".base.aof" | b".incr.aof")
    }

    fn make_directory(&self) -> io::Result<()> {
        let made = fs::create_dir(&self.directory);
        if self.directory.is_dir() { Ok(()) } else { made }
    }

    fn refused(&self, error: &io::Error) -> String {
        format!("Can't open or create append-only dir {}: {}", self.shown(), reason(error))
    }

    /// Deletes temporary files that a stopped server has left incomplete.
    pub fn tidy_up(&self) {
        let manifest = [&self.name, &b".manifest.tmp-"[..]].concat();
        let is_left_over = |name: &[u8]| {
            name.starts_with(b"temp-") && name.ends_with(b".rdb") || name.starts_with(&manifest)
        };
        for entry in fs::read_dir(&self.directory).into_iter().flatten().flatten() {
            if is_left_over(entry.file_name().as_bytes()) {
                // If it stays, it only takes space.
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Creates an empty increment. If there is already a file of that name, it is removed rather than
    /// emptied: it no longer counts, but another process may still write to it.
    pub fn create(&self, part: &Part) -> Result<File, String> {
        let path = self.path(&part.name);
        let _ = fs::remove_file(&path);
        OpenOptions::new().append(true).create_new(true).open(&path).map_err(|error| {
            format!("Can't open the append-only file {}: {}", path.display(), reason(&error))
        })
    }

    /// The directory's name, for lines of the server's log.
    fn shown(&self) -> impl std::fmt::Display {
        self.directory.file_name().unwrap_or_default().display()
    }
}

impl Manifest {
    /// Reads the manifest. Returns `None` if there is none, and no file that one could have listed.
    pub fn read(place: &AofPlace) -> Result<Option<Manifest>, String> {
        let path = place.manifest();
        match fs::read(&path) {
            Ok(text) => Manifest::parse(&text)
                .map(Some)
                .map_err(|why| format!("reading the manifest file {}: {why}", path.display())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => match place.log_files() {
                files if files.is_empty() => Ok(None),
                files => Err(missing(&path, &files)),
            },
            Err(error) => {
                Err(format!("could not open the manifest file {}: {}", path.display(), reason(&error)))
            }
        }
    }

    /// Reads the list of a manifest's text.
    pub(crate) fn parse(text: &[u8]) -> Result<Manifest, String> {
        let mut manifest = Manifest::default();
        if text.is_empty() {
            return Err("Found an empty AOF manifest".to_owned());
        }
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            if line.first() == Some(&b'#') {
                continue;
            }
            if line.last() != Some(&b'\n') || line.len() > LINE_BYTES_MAX {
                return Err("The AOF manifest file contains too long line".to_owned());
            }
            let shown = line.trim_ascii().escape_ascii();
            manifest.add(line).ok_or_else(|| format!("Invalid AOF manifest file format: '{shown}'"))?;
        }
        let numbers = manifest.increments.iter().map(|part| part.number);
        if !numbers.is_sorted_by(|one, next| one < next) {
            return Err("Found a non-monotonic sequence number".to_owned());
        }
        // A damaged line must not turn a file that counts into history, which is deleted.
        let is_increment = |part: &&Part| part.name.ends_with(b".incr.aof");
        let increments = manifest.history.iter().filter(is_increment).count();
        let bases = manifest.history.len() - increments;
        if bases > 0 && manifest.base.is_none() || increments > 0 && bases == 0 {
            return Err("Found a history file that nothing has replaced".to_owned());
        }
        let mut names = HashSet::new();
        let twice = manifest.parts().chain(&manifest.history).find(|part| !names.insert(&part.name));
        if let Some(twice) = twice {
            return Err(format!("Found the file {} twice", twice.name.escape_ascii()));
        }
        Ok(manifest)
    }

    /// Adds the file of one line. Returns `None` if the line is damaged.
    fn add(&mut self, line: &[u8]) -> Option<()> {
        let words = OwnedRequest::of_line(line.trim_ascii())?;
        let words = words.request()?;
        let (mut name, mut number, mut kind) = (None, None, None);
        for at in (0..words.len()).step_by(2) {
            let value = words.get(at + 1)?;
            let is_new = match words.at(at) {
                word if word.eq_ignore_ascii_case(b"file") => name.replace(value.to_vec()).is_none(),
                word if word.eq_ignore_ascii_case(b"seq") => {
                    number.replace(u64::try_from(parse_integer(value)?).ok()?).is_none()
                }
                word if word.eq_ignore_ascii_case(b"type") => kind.replace(*value.first()?).is_none(),
                // Later versions may add fields.
                _ => true,
            };
            if !is_new {
                // Two lines have become one, because a line end is damaged.
                return None;
            }
        }
        let part =
            Part { name: name.filter(|name| !name.contains(&b'/'))?, number: number.filter(|n| *n > 0)? };
        match kind? {
            b'b' if self.base.is_none() => self.base = Some(part),
            b'i' => self.increments.push(part),
            b'h' => self.history.push(part),
            _ => return None,
        }
        Some(())
    }

    /// The text of the file.
    fn print(&self) -> Vec<u8> {
        let mut text = Vec::new();
        let parts = [(&self.history, 'h'), (&self.increments, 'i')];
        let base = self.base.iter().map(|part| (part, 'b'));
        for (part, kind) in
            base.chain(parts.into_iter().flat_map(|(parts, kind)| parts.iter().map(move |p| (p, kind))))
        {
            text.extend(b"file ");
            let is_plain = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'' | b'\\');
            match part.name.iter().all(is_plain) {
                true => text.extend(&part.name),
                false => write_quoted(&mut text, &part.name),
            }
            text.extend(format!(" seq {} type {kind}\n", part.number).bytes());
        }
        if text.is_empty() {
            // Redis refuses an empty list.
            text.extend(b"# Nothing has been logged yet.\n");
        }
        text
    }

    /// Replaces the manifest's file by this list.
    ///
    /// # Errors
    ///
    /// With a line for the log. After a crash of the machine the old manifest may count, or this one.
    pub fn persist(&self, place: &AofPlace) -> Result<(), String> {
        // First the files that it lists, then itself.
        let replaced = sync_directory(&place.directory)
            .and_then(|()| files::replace(&place.manifest(), &self.print(), Rights::ByUmask));
        replaced.map_err(|error| format!("Error writing the AOF manifest: {}", reason(&error)))
    }

    /// All files that count, in the order in which they are loaded.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        self.base.iter().chain(&self.increments)
    }

    /// The name and number of the next base.
    pub fn next_base(&self, place: &AofPlace, is_snapshot: bool) -> Part {
        let listed = self.base.iter().chain(&self.history).map(|part| part.number).max().unwrap_or(0);
        let number = listed.max(self.doubtful_base) + 1;
        let ending = if is_snapshot { "rdb" } else { "aof" };
        let name = [&place.name, format!(".{number}.base.{ending}").as_bytes()].concat();
        Part { name, number }
    }

    /// The name and number of the next increment.
    pub fn next_increment(&self, place: &AofPlace) -> Part {
        let number =
            self.increments.iter().chain(&self.history).map(|part| part.number).max().unwrap_or(0) + 1;
        Part { name: [&place.name, format!(".{number}.incr.aof").as_bytes()].concat(), number }
    }

    /// The manifest after a rewrite: `base` replaces everything before `increment`.
    pub fn replaced(&self, base: Part, increment: Option<Part>) -> Manifest {
        let old = self.parts().filter(|part| Some(*part) != increment.as_ref());
        let history = self.history.iter().chain(old).filter(|part| part.name != base.name).cloned().collect();
        Manifest { base: Some(base), increments: increment.into_iter().collect(), history, doubtful_base: 0 }
    }

    /// Deletes the files listed as history. A file that cannot be deleted stays listed for the next attempt.
    pub fn delete_history(&mut self, place: &AofPlace) {
        if self.history.is_empty() {
            return;
        }
        for part in self.history.drain(..) {
            tracing::info!("Removing the history file {} in the background", part.name.escape_ascii());
            if let Err(error) = fs::remove_file(place.path(&part.name)) {
                tracing::warn!("Could not remove {}: {}", part.name.escape_ascii(), reason(&error));
            }
        }
        if let Err(why) = self.persist(place) {
            tracing::warn!("{why}");
        }
    }

    /// Turns the single file that Redis kept before 7.0 into the base: moves it into the log's directory.
    pub fn take_over(place: &AofPlace) -> Result<Option<Manifest>, String> {
        let old = place.root.join(OsStr::from_bytes(&place.name));
        if !is_file(&old) {
            return Ok(None);
        }
        tracing::info!(
            "Migrating Append Only Base file {} to {}",
            place.name.escape_ascii(),
            place.directory.display()
        );
        place.make()?;
        let part = Part { name: place.name.clone(), number: 1 };
        let manifest = Manifest { base: Some(part), ..Manifest::default() };
        manifest.persist(place)?;
        let moved = fs::rename(&old, place.path(&place.name)).and_then(|()| sync_directory(&place.directory));
        moved.map_err(|error| format!("Error trying to move {}: {}", old.display(), reason(&error)))?;
        Ok(Some(manifest))
    }
}

/// The error for log files without a manifest. A new log would overwrite them.
fn missing(manifest: &Path, files: &[Vec<u8>]) -> String {
    let shown: Vec<_> = files.iter().take(10).map(|name| name.escape_ascii().to_string()).collect();
    let more = if files.len() > shown.len() { ", ..." } else { "" };
    format!(
        "There are files of a log ({}{more}), but {}, which says in which order they count, is missing. \
         Nothing was changed. Either restore it, from a backup or by hand: one line \
         'file <name> seq <number> type b' for the base, then one line 'file <name> seq <number> type i' for \
         each increment, by their numbers. Or move these files away, to begin with an empty log",
        shown.join(", "),
        manifest.display()
    )
}

fn is_file(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str) -> AofPlace {
        AofPlace { root: "/".into(), directory: "/nosuch".into(), name: name.into() }
    }

    fn part(name: &str, number: u64) -> Part {
        Part { name: name.into(), number }
    }

    #[test]
    fn a_list_is_that_of_redis() {
        let text = b"file a.2.base.rdb seq 2 type b\n\
                     file a.1.base.rdb seq 1 type h\nfile a.1.incr.aof seq 1 type h\n\
                     file a.2.incr.aof seq 2 type i\nfile a.3.incr.aof seq 3 type i\n";
        let manifest = Manifest {
            base: Some(part("a.2.base.rdb", 2)),
            increments: vec![part("a.2.incr.aof", 2), part("a.3.incr.aof", 3)],
            history: vec![part("a.1.base.rdb", 1), part("a.1.incr.aof", 1)],
            doubtful_base: 0,
        };
        assert_eq!(Manifest::parse(text), Ok(manifest.clone()));
        assert_eq!(manifest.print(), text);
        assert_eq!(Manifest::parse(&Manifest::default().print()), Ok(Manifest::default()));
        let place = place("a");
        assert_eq!(manifest.next_base(&place, true), part("a.3.base.rdb", 3));
        assert_eq!(manifest.next_base(&place, false), part("a.3.base.aof", 3));
        assert_eq!(manifest.next_increment(&place), part("a.4.incr.aof", 4));
        let replaced = manifest.replaced(part("a.3.base.rdb", 3), Some(part("a.3.incr.aof", 3)));
        assert_eq!(replaced.parts().count(), 2);
        assert_eq!(replaced.history.len(), 4);
    }

    #[test]
    fn names_may_need_quotes() {
        let manifest = Manifest { base: Some(part("a \"b\"\n.1.base.rdb", 1)), ..Manifest::default() };
        assert_eq!(manifest.print(), b"file \"a \\\"b\\\"\\n.1.base.rdb\" seq 1 type b\n");
        assert_eq!(Manifest::parse(&manifest.print()), Ok(manifest));
    }

    #[test]
    fn what_is_no_list_is_refused() {
        assert_eq!(
            Manifest::parse(b"# of mine\nFILE a seq 1 type b later yes\n").unwrap().parts().count(),
            1
        );
        for text in [
            &b""[..],
            b"\n",
            b"file a seq 1 type b",
            b"file a seq 0 type b\n",
            b"file a seq -1 type b\n",
            b"file a seq 1\n",
            b"file a seq 1 type\n",
            b"file a seq 1 type x\n",
            b"file ../a seq 1 type b\n",
            b"seq 1 type b\n",
            b"file \"a seq 1 type b\n",
            b"file a seq 1 type b\nfile b seq 2 type b\n",
            b"file a seq 2 type i\nfile b seq 2 type i\n",
            b"file a seq 1 type b\x0bfile b seq 1 type i\n",
            b"file a.1.base.rdb seq 1 type b\nfile a.1.incr.aof seq 1 type h\n",
            b"file a.1.base.rdb seq 1 type h\nfile a.1.incr.aof seq 1 type i\n",
            &[b"file ", &b"a".repeat(2000)[..], b" seq 1 type b\n"].concat(),
        ] {
            assert!(Manifest::parse(text).is_err(), "{}", text.escape_ascii());
        }
    }
}
