//! Reads snapshots in the RDB format.

use std::fmt;
use std::io::{self, Read};
use std::time::Duration;

use crc::{Digest, Table};

use super::{
    AUXILIARY, DATABASE, END, EXPIRY_MS, EXPIRY_S, FENCE, FREQUENCY, HEADER_BYTES, IDLE, MODULE_DATA,
    MODULE_VALUE, SIGNATURE, SIGNATURE_OF_ENVELOPE, SIGNATURE_OF_VALKEY, SIZES, SLOT_INFO, TEMPLATE,
    VERSION_WITH_CHECKSUM,
};
use crate::dump::strings::{DecodeError, Decoder};
use crate::dump::{Author, CHECKSUM, LIBRARY, LIBRARY_BEFORE_7, VERSION_MAX, VERSIONS_OF_VALKEY};
use crate::keyspace::SavedKey;
use crate::resp::number::parse_integer;
use crate::types;
use crate::values::{Limits, Loaded, TypeFacts, Value};

/// Longest key or value, in bytes: an entry cannot hold more.
const STRING_BYTES_MAX: usize = u32::MAX as usize;

/// As many damaged values are named; of the others there is their number.
const DAMAGED_SHOWN_MAX: usize = 10;

/// The items of a file.
#[derive(Debug)]
pub enum Item<'a> {
    /// A description of the file.
    Auxiliary {
        /// What is described, such as `redis-ver`.
        name: &'a [u8],
        /// The text, such as `7.0.15`.
        value: &'a [u8],
    },
    /// The code of a library of functions.
    Library(&'a [u8]),
    /// The number of the database of the keys that follow.
    Database(usize),
    /// Data of a module, which were skipped.
    ModuleData {
        /// The module's name.
        module: String,
    },
    /// A key with a value of a module's type, which was skipped.
    ForeignKey {
        /// The database of the key.
        database: usize,
        /// The key's name.
        key: &'a [u8],
        /// The name of the type, which the module has chosen.
        type_name: String,
    },
    /// The name of a key whose collection has no elements.
    EmptyKey(&'a [u8]),
    /// A key with its value and expiry.
    Key(SavedKey<'a>),
}

/// Why a file cannot be read.
#[derive(Debug)]
pub struct ReadError {
    why: String,
    /// Offset in the file at which reading stopped.
    offset: Option<u64>,
}

impl ReadError {
    /// The reason alone.
    pub fn why(&self) -> &str {
        &self.why
    }
}

/// What a reader does, as `redis-check-rdb` names it, for people who look at a damaged file.
#[derive(Clone, Copy, Debug)]
pub struct Doing {
    /// The part of an item that it reads.
    pub part: &'static str,
    /// The number of the type of the value that it reads, if it has come to one.
    pub value_type: Option<u8>,
}

/// What was found of the checksum at the end of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// It was not looked at, or the version of the file has none.
    None,
    /// It is right.
    Right,
    /// The file was saved without one.
    Disabled,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.offset {
            Some(offset) => write!(f, "{} (offset {offset})", self.why),
            None => f.write_str(&self.why),
        }
    }
}

/// A file that is being read.
pub struct Reader<R> {
    decoder: Decoder<Checked<R>>,
    author: Author,
    version: u16,
    /// Whether the checksum is verified (`rdbchecksum`).
    verifies: bool,
    /// The database of the keys that follow.
    database: usize,
    key: Vec<u8>,
    value: Vec<u8>,
    /// The last value that was read.
    loaded: Loaded,
    /// How many values were not as they should be, and were read as far as they have a meaning.
    damaged: usize,
    doing: Doing,
    checksum: Checksum,
}

/// What the items before a key say about the key.
struct Facts {
    value_type: &'static TypeFacts,
    expires_at_ms: Option<u64>,
    idle: Option<Duration>,
    frequency: Option<u8>,
    fence: Option<u64>,
}

impl<R: Read> Reader<R> {
    /// Begins to read a file. Reads are small, so the input should be buffered.
    ///
    /// # Errors
    ///
    /// If it is no snapshot, or of a version that is too new.
    pub fn open(input: R, verifies: bool) -> Result<Reader<R>, ReadError> {
        let mut decoder = Decoder::new(Checked::new(input), STRING_BYTES_MAX).lenient(true);
        let header: [u8; HEADER_BYTES] =
            decoder.array().map_err(|error| explain(error, decoder.input.offset))?;
        let (author, version) = parse_header(&header).map_err(|why| ReadError { why, offset: None })?;
        let (key, value) = (Vec::new(), Vec::new());
        let loaded = Loaded::Packed;
        let (doing, checksum) = (Doing { part: "start", value_type: None }, Checksum::None);
        Ok(Reader {
            decoder,
            author,
            version,
            verifies,
            database: 0,
            key,
            value,
            loaded,
            damaged: 0,
            doing,
            checksum,
        })
    }

    /// The same reader, for which a value that is not as it should be is an error.
    pub fn strict(self) -> Reader<R> {
        Reader { decoder: self.decoder.lenient(false), ..self }
    }

    /// What it does, or did when it found an error.
    pub fn doing(&self) -> Doing {
        self.doing
    }

    /// The name of the key whose value it reads, or did when it found an error.
    pub fn key(&self) -> Option<&[u8]> {
        (self.doing.part == VALUE).then_some(&self.key)
    }

    /// What was found of the checksum, at the end.
    pub fn checksum(&self) -> Checksum {
        self.checksum
    }

    /// Reads the next item. Returns `None` at the end, after the checksum was verified. Collections within
    /// `limits` are packed.
    ///
    /// # Errors
    ///
    /// If the item cannot be read.
    pub fn next_item(&mut self, limits: &Limits) -> Result<Option<Item<'_>>, ReadError> {
        match self.read_item(limits) {
            Ok(Some(kind)) => {
                if let Some(why) = self.decoder.take_forgiven() {
                    self.warn_of_damage(why);
                }
                Ok(Some(self.item(kind)))
            }
            Ok(None) => {
                if let Some(more) = self.damaged.checked_sub(DAMAGED_SHOWN_MAX).filter(|more| *more > 0) {
                    tracing::warn!("Of the values of the RDB file {more} more are damaged");
                }
                Ok(None)
            }
            Err(Trouble::Type(number)) => Err(self.refuse_type(number)),
            Err(Trouble::Decode(error)) => Err(explain(error, self.decoder.input.offset)),
            Err(Trouble::Other(why)) => Err(ReadError { why, offset: Some(self.decoder.input.offset) }),
        }
    }

    /// Warns of a value that is not as it should be. Redis loads such a value as it is, without a word.
    #[cold]
    fn warn_of_damage(&mut self, why: &str) {
        self.damaged += 1;
        if self.damaged <= DAMAGED_SHOWN_MAX {
            tracing::warn!(
                "The value of the key '{}' in database {} of the RDB file is damaged, and is loaded as far \
                 as it has a meaning: {}",
                self.key.escape_ascii(),
                self.database,
                why.trim_end_matches('.')
            );
        }
    }

    /// Bytes that have been read.
    pub fn offset(&self) -> u64 {
        self.decoder.input.offset
    }

    fn item(&self, kind: ItemKind) -> Item<'_> {
        match kind {
            ItemKind::Auxiliary => Item::Auxiliary { name: &self.key, value: &self.value },
            ItemKind::Library => Item::Library(&self.value),
            ItemKind::Database => Item::Database(self.database),
            ItemKind::ModuleData(number) => Item::ModuleData { module: module_name(number) },
            ItemKind::ForeignKey(number) => {
                let (database, key) = (self.database, &*self.key);
                Item::ForeignKey { database, key, type_name: module_name(number) }
            }
            ItemKind::EmptyKey => Item::EmptyKey(&self.key),
            ItemKind::Key(Facts { value_type, expires_at_ms, idle, frequency, fence }) => {
                let (database, key) = (self.database, &*self.key);
                let content = self.loaded.content(&self.value);
                let value = Value { facts: value_type, content };
                Item::Key(SavedKey { database, key, value, expires_at_ms, idle, frequency, fence })
            }
        }
    }

    /// Reads an item; its strings are in `key` and `value`.
    fn read_item(&mut self, limits: &Limits) -> Result<Option<ItemKind>, Trouble> {
        let decoder = &mut self.decoder;
        let value_type = &types::strings::FACTS;
        let mut facts = Facts { value_type, expires_at_ms: None, idle: None, frequency: None, fence: None };
        loop {
            self.doing = Doing { part: "read-type", value_type: None };
            let item_type = decoder.byte()?;
            self.doing.part = part_of(item_type);
            match item_type {
                EXPIRY_S => {
                    let seconds = i32::from_le_bytes(decoder.array()?);
                    facts.expires_at_ms = moment(i64::from(seconds) * 1000);
                }
                EXPIRY_MS => facts.expires_at_ms = moment(i64::from_le_bytes(decoder.array()?)),
                FREQUENCY => facts.frequency = Some(decoder.byte()?),
                IDLE => facts.idle = Some(Duration::from_secs(decoder.length()?)),
                DATABASE => {
                    self.database = usize::try_from(decoder.length()?).unwrap_or(usize::MAX);
                    return Ok(Some(ItemKind::Database));
                }
                SIZES => skip_numbers(decoder, 2)?,
                SLOT_INFO => skip_numbers(decoder, 3)?,
                AUXILIARY => {
                    decoder.string(&mut self.key)?;
                    decoder.string(&mut self.value)?;
                    if self.key == FENCE {
                        facts.fence = parse_integer(&self.value).and_then(|fence| u64::try_from(fence).ok());
                        continue;
                    }
                    return Ok(Some(ItemKind::Auxiliary));
                }
                LIBRARY => {
                    decoder.string(&mut self.value)?;
                    return Ok(Some(ItemKind::Library));
                }
                LIBRARY_BEFORE_7 => {
                    return Err(Trouble::Other("Pre-release function format not supported".to_owned()));
                }
                MODULE_DATA => {
                    let number = decoder.length()?;
                    skip_module_data(decoder, &mut self.value)?;
                    return Ok(Some(ItemKind::ModuleData(number)));
                }
                MODULE_VALUE => {
                    decoder.string(&mut self.key)?;
                    let number = decoder.length()?;
                    skip_module_data(decoder, &mut self.value)?;
                    return Ok(Some(ItemKind::ForeignKey(number)));
                }
                TEMPLATE if self.author == Author::Redis => decoder.read_template()?,
                END => return self.check().map(|()| None),
                number => {
                    let rdb_type = self.author.form(number).ok_or(Trouble::Type(number))?;
                    facts.value_type = types::of_rdb_type(rdb_type).ok_or(Trouble::Type(number))?;
                    self.doing.value_type = Some(number);
                    decoder.string(&mut self.key)?;
                    self.doing.part = VALUE;
                    self.value.clear();
                    let limit = limits.of(facts.value_type.kind);
                    match (facts.value_type.load)(rdb_type, decoder, limit, &mut self.value) {
                        Ok(loaded) => self.loaded = loaded,
                        // Old versions of Redis left such keys.
                        Err(DecodeError::Empty) => return Ok(Some(ItemKind::EmptyKey)),
                        Err(error) => return Err(error.into()),
                    }
                    return Ok(Some(ItemKind::Key(facts)));
                }
            }
        }
    }

    /// Reads the checksum and compares it.
    fn check(&mut self) -> Result<(), Trouble> {
        if self.version < VERSION_WITH_CHECKSUM {
            return Ok(());
        }
        let computed = self.decoder.input.checksum.clone().finalize();
        let expected = u64::from_le_bytes(self.decoder.array()?);
        if !self.verifies {
            return Ok(());
        }
        if expected == computed {
            self.checksum = Checksum::Right;
            return Ok(());
        }
        if expected == 0 {
            self.checksum = Checksum::Disabled;
            tracing::info!("RDB file was saved with checksum disabled: no check performed.");
            return Ok(());
        }
        let why = format!("Wrong RDB checksum expected: ({expected:x}) but got ({computed:x})");
        Err(Trouble::Other(why))
    }

    /// The error for a type that Keyfast does not have; it names the key.
    fn refuse_type(&mut self, number: u8) -> ReadError {
        let offset = self.offset() - 1;
        let Some(name) = type_name(self.author, number) else {
            let why = match section_name(self.author, number) {
                Some(name) => format!("there is {name}, which is not supported"),
                None => format!("Unknown RDB encoding type {number}"),
            };
            return ReadError { why, offset: Some(offset) };
        };
        match self.decoder.string(&mut self.key) {
            Ok(()) => {
                let (key, database) = (self.key.escape_ascii(), self.database);
                let why = format!("key '{key}' in database {database} is {name}, which is not supported");
                ReadError { why, offset: Some(offset) }
            }
            Err(error) => explain(error, self.offset()),
        }
    }
}

/// The part of an item with the value of a key.
const VALUE: &str = "read-object-value";

/// The part of an item of a type that is read first.
fn part_of(item_type: u8) -> &'static str {
    match item_type {
        EXPIRY_S | EXPIRY_MS => "read-expire",
        DATABASE | SIZES | SLOT_INFO => "read-len",
        AUXILIARY => "read-aux",
        MODULE_DATA => "read-module-aux",
        LIBRARY | LIBRARY_BEFORE_7 => "read-functions",
        FREQUENCY | IDLE | TEMPLATE => "read-type",
        END => "check-sum",
        _ => "read-key",
    }
}

/// An item whose strings are in the reader.
enum ItemKind {
    Auxiliary,
    Library,
    Database,
    ModuleData(u64),
    ForeignKey(u64),
    EmptyKey,
    Key(Facts),
}

/// Why an item cannot be read.
enum Trouble {
    /// Its type byte is unknown.
    Type(u8),
    Decode(DecodeError),
    Other(String),
}

impl From<DecodeError> for Trouble {
    fn from(error: DecodeError) -> Trouble {
        Trouble::Decode(error)
    }
}

fn explain(error: DecodeError, offset: u64) -> ReadError {
    let why = match error {
        DecodeError::Ended => "Unexpected EOF reading RDB file".to_owned(),
        DecodeError::Invalid(why) => why.to_owned(),
        DecodeError::TooLong => "a string is too long".to_owned(),
        DecodeError::Empty => "a collection has no elements".to_owned(),
        DecodeError::Failed(error) => error.to_string(),
    };
    ReadError { why, offset: Some(offset) }
}

/// A time of Redis in milliseconds since 1970: -1 is no expiry, and times before 1970 have passed.
fn moment(at_ms: i64) -> Option<u64> {
    (at_ms != -1).then(|| u64::try_from(at_ms).unwrap_or(0))
}

fn skip_numbers<R: Read>(decoder: &mut Decoder<R>, count: usize) -> Result<(), Trouble> {
    for _ in 0..count {
        decoder.length()?;
    }
    Ok(())
}

/// Skips what a module has written: values, each after a number for its kind. In data that are not keys, the
/// first value says when the module wants to read them.
fn skip_module_data<R: Read>(decoder: &mut Decoder<R>, string: &mut Vec<u8>) -> Result<(), Trouble> {
    loop {
        match decoder.length()? {
            0 => return Ok(()),
            1 | 2 => skip_numbers(decoder, 1)?,
            3 => drop(decoder.array::<4>()?),
            4 => drop(decoder.array::<8>()?),
            5 => decoder.string(string)?,
            _ => return Err(Trouble::Other("Invalid module data".to_owned())),
        }
    }
}

/// The name of a module from its number: nine characters of six bits each; ten more bits are the version.
fn module_name(number: u64) -> String {
    const CHARACTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let character = |place: u32| char::from(CHARACTERS[(number >> (10 + 6 * place)) as usize & 63]);
    (0..9).rev().map(character).collect()
}

/// The names of the types that Redis and Valkey have and Keyfast does not.
fn type_name(author: Author, number: u8) -> Option<&'static str> {
    Some(match (number, author) {
        (1 | 10 | 14 | 18, _) => "a list",
        (2 | 11 | 20, _) => "a set",
        (3 | 5 | 12 | 17, _) => "a sorted set",
        (4 | 9 | 13 | 16, _) => "a hash",
        (15 | 19 | 21, _) => "a stream",
        (28, Author::Redis) => "an array",
        (33, Author::Redis) => "a bitmap of Redis 8.12",
        (23, Author::Valkey) => "a hash of paths",
        // Redis 4 has the last form without a mark for each value.
        (6, _) => "of a module's type, in an old form that cannot be skipped",
        _ => return None,
    })
}

/// The names of the sections that Redis and Valkey have and Keyfast does not.
fn section_name(author: Author, number: u8) -> Option<&'static str> {
    Some(match (number, author) {
        (242, Author::Valkey) => "a command that came while the file was written",
        (243, Author::Redis) => "what a module knows of a key",
        (243, Author::Valkey) => "a slot that moves between servers",
        _ => return None,
    })
}

/// Reads which program wrote a file, and in which version of the format.
fn parse_header(header: &[u8; HEADER_BYTES]) -> Result<(Author, u16), String> {
    let (author, digits, versions) = if let Some(digits) = header.strip_prefix(SIGNATURE_OF_VALKEY) {
        (Author::Valkey, digits, VERSIONS_OF_VALKEY)
    } else if let Some(digits) = header.strip_prefix(SIGNATURE) {
        (Author::Redis, digits, 1..=VERSION_MAX)
    } else {
        return Err(match header.strip_prefix(SIGNATURE_OF_ENVELOPE) {
            Some(envelope) => explain_envelope(envelope),
            None => "Wrong signature trying to load DB from file".to_owned(),
        });
    };
    let is_number = digits.iter().all(u8::is_ascii_digit);
    let version = std::str::from_utf8(digits).ok().filter(|_| is_number).and_then(|text| text.parse().ok());
    match version {
        Some(version) if versions.contains(&version) => Ok((author, version)),
        Some(version) => Err(format!("Can't handle RDB format version {version}")),
        None => Err(format!("Can't handle RDB format version {}", digits.escape_ascii())),
    }
}

/// Why a snapshot is not read that Valkey 9.2 has compressed as a whole: one frame of a codec stands behind a
/// version, the codec, flags, and the kind of the snapshot.
fn explain_envelope(envelope: &[u8]) -> String {
    const SNAPSHOT: u8 = 0;
    let (codec, tool) = match *envelope {
        [1, _, _, kind, ..] if kind != SNAPSHOT => {
            return "the file is a compressed stream for a replica, not a snapshot".to_owned();
        }
        [1, 1, ..] => ("LZ4", "lz4 -d"),
        [1, 2, ..] => ("zstd", "zstd -d"),
        [1, codec, ..] => return format!("the file is compressed as a whole by an unknown codec ({codec})"),
        [version, ..] => {
            return format!("the file is compressed as a whole in an unknown version ({version})");
        }
        [] => return "the file is compressed as a whole".to_owned(),
    };
    format!(
        "the file is compressed as a whole with {codec}, as Valkey 9.2 can do it; Keyfast reads it when it \
         is not: 'tail -c +9 FILE | {tool} > NEW'"
    )
}

/// An input that counts its bytes and computes their checksum.
struct Checked<R> {
    input: R,
    checksum: Digest<'static, u64, Table<16>>,
    offset: u64,
}

impl<R> Checked<R> {
    fn new(input: R) -> Checked<R> {
        Checked { input, checksum: CHECKSUM.digest(), offset: 0 }
    }
}

impl<R: Read> Read for Checked<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let length = self.input.read(bytes)?;
        self.checksum.update(&bytes[..length]);
        self.offset += length as u64;
        Ok(length)
    }
}
