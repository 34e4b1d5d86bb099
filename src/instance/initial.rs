//! Initial data: files that fill an empty data set (`init`). They are read once, when the server starts, and
//! each sandbox begins with what is in them.
//!
//! The end of a file's name says what is in it: commands as redis-cli takes them (`.redis`), requests
//! (`.resp`), a snapshot (`.rdb`), or an object of JSON (`.json`).

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use bytes::BytesMut;
use serde_json::value::RawValue;

use crate::files::reason;
use crate::keyspace::{Everything, Transaction};
use crate::persistence::load_from;
use crate::resp::{Limits, OwnedRequest, RequestReader};

use super::Instance;

/// Elements of a list or a hash that one request adds.
const ELEMENTS_AT_ONCE: usize = 1000;

/// What fills an empty data set.
#[derive(Debug, Default)]
pub(crate) struct InitialData {
    files: Vec<InitialFile>,
}

/// One file of it.
#[derive(Debug)]
pub(crate) struct InitialFile {
    path: PathBuf,
    /// What is in it.
    pub(crate) content: InitialContent,
}

/// What is in a file with initial data.
#[derive(Debug)]
pub(crate) enum InitialContent {
    /// Requests, each with its place in the file.
    Requests(Vec<(Place, OwnedRequest)>),
    /// A snapshot, in the RDB format.
    Snapshot(Vec<u8>),
}

/// Where a request stands.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// In this line, from one.
    Line(usize),
    /// It is the request of this number, from one.
    Request(usize),
    /// It makes the value of this key.
    Key(String),
}

impl InitialFile {
    /// A complaint about a part of the file.
    pub(crate) fn complain(&self, place: &Place, why: &str) -> String {
        let path = self.path.display();
        match place {
            Place::Line(line) => format!("--init {path}, line {line}: {why}"),
            Place::Request(number) => format!("--init {path}, request {number}: {why}"),
            Place::Key(key) => format!("--init {path}, key {}: {why}", key.escape_default()),
        }
    }

    /// A complaint about the file as a whole.
    pub(crate) fn complain_of_all(&self, why: &str) -> String {
        format!("--init {}: {why}", self.path.display())
    }
}

impl InitialData {
    /// Reads files.
    ///
    /// # Errors
    ///
    /// With one line for people, if a file cannot be read, or is wrong.
    pub(crate) fn read(paths: &[PathBuf]) -> Result<InitialData, String> {
        Ok(InitialData { files: paths.iter().map(|path| read_file(path)).collect::<Result<_, _>>()? })
    }

    /// Whether there is nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The files, in their order.
    pub(crate) fn files(&self) -> &[InitialFile] {
        &self.files
    }
}

fn read_file(path: &Path) -> Result<InitialFile, String> {
    let mut file = InitialFile { path: path.to_owned(), content: InitialContent::Requests(Vec::new()) };
    let bytes = fs::read(path).map_err(|error| file.complain_of_all(&reason(&error).to_string()))?;
    let ending = path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
    let content = match ending.as_deref() {
        Some("redis") => commands(&file, &bytes),
        Some("resp") => requests(&file, &bytes),
        Some("rdb") => Ok(InitialContent::Snapshot(bytes)),
        Some("json") => values(&file, &bytes),
        _ => Err(file.complain_of_all("its name must end in .redis, .resp, .rdb or .json")),
    };
    file.content = content?;
    Ok(file)
}

/// A command in each line, with quotes as in an inline request. Lines that are empty, or begin with `#`, are
/// passed over.
fn commands(file: &InitialFile, text: &[u8]) -> Result<InitialContent, String> {
    let mut requests = Vec::new();
    for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let place = Place::Line(number);
        match OwnedRequest::of_long_line(line) {
            Some(request) => requests.push((place, request)),
            None => return Err(file.complain(&place, "unbalanced quotes")),
        }
    }
    Ok(InitialContent::Requests(requests))
}

/// Requests one after the other, as a client sends them.
fn requests(file: &InitialFile, bytes: &[u8]) -> Result<InitialContent, String> {
    let limits = Limits { bulk_bytes_max: bytes.len(), unauthenticated: false };
    let (mut input, mut reader, mut requests) = (BytesMut::from(bytes), RequestReader::default(), Vec::new());
    loop {
        let wrong = |why: String, read: usize| file.complain(&Place::Request(read + 1), &why);
        let ready = reader.read_ahead(&input, &limits);
        let ready = ready
            .map_err(|error| wrong(String::from_utf8_lossy(&error.message()).into_owned(), requests.len()))?;
        let read = reader.requests(&input, 0).map(OwnedRequest::of).collect::<Vec<_>>();
        requests.extend(
            (requests.len() + 1..).zip(read).map(|(number, request)| (Place::Request(number), request)),
        );
        let done = reader.release();
        bytes::Buf::advance(&mut input, done);
        if ready == 0 {
            let is_whole = input.is_empty() && reader.is_empty();
            let torn = || wrong("it is not whole".to_owned(), requests.len());
            return if is_whole { Ok(InitialContent::Requests(requests)) } else { Err(torn()) };
        }
    }
}

/// An object: each key with its value. Texts and numbers become strings, arrays lists, objects hashes.
fn values(file: &InitialFile, text: &[u8]) -> Result<InitialContent, String> {
    let wrong = |error: serde_json::Error| file.complain_of_all(&error.to_string());
    let keys: HashMap<String, Box<RawValue>> = serde_json::from_slice(text).map_err(wrong)?;
    let mut requests = Vec::new();
    let mut keys: Vec<_> = keys.into_iter().collect();
    keys.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    for (key, value) in keys {
        let place = Place::Key(key.clone());
        let unfit =
            || file.complain(&place, "it is neither a text nor a number, nor an array or an object of these");
        let made = match value.get().as_bytes().first() {
            Some(b'[') => {
                let elements: Vec<Box<RawValue>> = serde_json::from_str(value.get()).map_err(wrong)?;
                let elements = elements.iter().map(|element| scalar(element)).collect::<Option<Vec<_>>>();
                filled("RPUSH", &key, &elements.ok_or_else(unfit)?)
            }
            Some(b'{') => {
                let fields: HashMap<String, Box<RawValue>> =
                    serde_json::from_str(value.get()).map_err(wrong)?;
                let mut fields: Vec<_> = fields.into_iter().collect();
                fields.sort_unstable_by(|one, other| one.0.cmp(&other.0));
                let pairs = fields.into_iter().map(|(field, value)| Some([field, scalar(&value)?]));
                let pairs = pairs.collect::<Option<Vec<_>>>().ok_or_else(unfit)?;
                filled("HSET", &key, &pairs.concat())
            }
            _ => vec![request(&["SET", &key, &scalar(&value).ok_or_else(unfit)?])],
        };
        requests.extend(made.into_iter().map(|request| (place.clone(), request)));
    }
    Ok(InitialContent::Requests(requests))
}

/// The text of a text or a number, as it is written.
fn scalar(value: &RawValue) -> Option<String> {
    match value.get().as_bytes().first()? {
        b'"' => serde_json::from_str(value.get()).ok(),
        b'-' | b'0'..=b'9' => Some(value.get().to_owned()),
        _ => None,
    }
}

/// Requests that fill a collection. An empty one is absent.
fn filled(command: &str, key: &str, elements: &[String]) -> Vec<OwnedRequest> {
    let parts = elements.chunks(ELEMENTS_AT_ONCE);
    parts
        .map(|part| {
            let words: Vec<&str> =
                [command, key].into_iter().chain(part.iter().map(String::as_str)).collect();
            request(&words)
        })
        .collect()
}

fn request(words: &[&str]) -> OwnedRequest {
    let mut request = OwnedRequest::default();
    words.iter().for_each(|word| _ = request.push(word.as_bytes()));
    request
}

impl Instance {
    /// Loads a snapshot of initial data.
    ///
    /// # Errors
    ///
    /// With the beginning of a line for people.
    pub(crate) fn load_initial_snapshot(
        &self,
        bytes: &[u8],
        tx: &mut Everything<&mut Transaction<'_>>,
    ) -> Result<(), String> {
        let (mut libraries, running) = (Vec::new(), self.begin_loading(bytes.len() as u64));
        let loaded = load_from(running.counting(bytes), self.reading(), &running, tx, |code| {
            libraries.push(code.to_vec());
        });
        drop(running);
        let loaded = loaded?;
        self.load_libraries(&libraries)?;
        self.note_loaded(loaded, tx);
        Ok(())
    }
}
