//! Writes snapshots in the RDB format.

use std::io::{self, Write};

use crc::{Digest, Table};

use super::{AUXILIARY, DATABASE, END, EXPIRY_MS, FENCE, FREQUENCY, IDLE, SIGNATURE, SIZES};
use crate::dump::strings::{write_length, write_string};
use crate::dump::{CHECKSUM, Compressor, LIBRARY};
use crate::keyspace::SavedKey;
use crate::types::lists::NODE_LIMIT;
use crate::values::Sink;

/// Bytes that are collected before a write.
const BUFFER_BYTES: usize = 256 << 10;

/// The options of a file.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// Whether long strings are compressed if that makes them shorter (`rdbcompression`).
    pub compresses: bool,
    /// Whether it ends with a checksum (`rdbchecksum`).
    pub has_checksum: bool,
}

/// A file that is being written.
pub struct Writer<W> {
    output: W,
    /// Bytes that are not written yet: at most one item more than [`BUFFER_BYTES`].
    buffer: Vec<u8>,
    checksum: Option<Digest<'static, u64, Table<16>>>,
    compressor: Option<Compressor>,
    /// The database of the keys that were written last.
    database: Option<usize>,
}

impl<W: Write> Writer<W> {
    /// Begins a file of a version: [`VERSION`](crate::dump::VERSION), or
    /// [`VERSION_WITH_FIELD_EXPIRIES`](crate::dump::VERSION_WITH_FIELD_EXPIRIES) if fields of a hash expire.
    pub fn with_header(output: W, form: Form, version: u16) -> Writer<W> {
        let mut buffer = SIGNATURE.to_vec();
        buffer.extend(format!("{version:04}").as_bytes());
        Writer {
            output,
            buffer,
            checksum: form.has_checksum.then(|| CHECKSUM.digest()),
            compressor: form.compresses.then(Compressor::default),
            database: None,
        }
    }

    /// Writes a name and a value that describe the file.
    ///
    /// # Errors
    ///
    /// If the output fails.
    pub fn auxiliary(&mut self, name: &[u8], value: &[u8]) -> io::Result<()> {
        self.buffer.push(AUXILIARY);
        self.string(name);
        self.string(value);
        self.pass_on()
    }

    /// Writes the code of a library of functions.
    ///
    /// # Errors
    ///
    /// If the output fails.
    pub fn function_library(&mut self, code: &[u8]) -> io::Result<()> {
        self.buffer.push(LIBRARY);
        self.string(code);
        self.pass_on()
    }

    /// Writes how many keys a database will have, and how many of them expire, so that the reader can reserve
    /// memory at once.
    ///
    /// # Errors
    ///
    /// If the output fails.
    pub fn sizes(&mut self, database: usize, keys: usize, expiring: usize) -> io::Result<()> {
        self.select(database);
        self.buffer.push(SIZES);
        write_length(&mut self.buffer, keys as u64);
        write_length(&mut self.buffer, expiring as u64);
        self.pass_on()
    }

    /// Writes a key with its value. The keys of a database need not be adjacent.
    ///
    /// # Errors
    ///
    /// If the output fails.
    pub fn key(&mut self, key: &SavedKey<'_>) -> io::Result<()> {
        self.select(key.database);
        if let Some(fence) = key.fence {
            self.auxiliary(FENCE, itoa::Buffer::new().format(fence).as_bytes())?;
        }
        if let Some(expires_at_ms) = key.expires_at_ms {
            self.buffer.push(EXPIRY_MS);
            self.buffer.extend(expires_at_ms.to_le_bytes());
        }
        if let Some(idle) = key.idle {
            self.buffer.push(IDLE);
            write_length(&mut self.buffer, idle.as_secs());
        }
        if let Some(frequency) = key.frequency {
            self.buffer.extend([FREQUENCY, frequency]);
        }
        self.buffer.push(key.value.rdb_type());
        self.string(key.key);
        let mut compressor = self.compressor.take();
        let saved = key.value.save(self, NODE_LIMIT, compressor.as_mut());
        self.compressor = compressor;
        saved?;
        self.pass_on()
    }

    /// Ends the file and writes all of it. Returns the output.
    ///
    /// # Errors
    ///
    /// If the output fails.
    pub fn finish(mut self) -> io::Result<W> {
        self.buffer.push(END);
        self.write()?;
        let checksum = self.checksum.take().map_or(0, |checksum| checksum.finalize());
        self.output.write_all(&checksum.to_le_bytes())?;
        self.output.flush()?;
        Ok(self.output)
    }

    fn select(&mut self, database: usize) {
        if self.database != Some(database) {
            self.database = Some(database);
            self.buffer.push(DATABASE);
            write_length(&mut self.buffer, database as u64);
        }
    }

    fn string(&mut self, string: &[u8]) {
        write_string(&mut self.buffer, string, self.compressor.as_mut());
    }

    fn write(&mut self) -> io::Result<()> {
        if let Some(checksum) = &mut self.checksum {
            checksum.update(&self.buffer);
        }
        self.output.write_all(&self.buffer)?;
        self.buffer.clear();
        // A long value has enlarged the buffer.
        self.buffer.shrink_to(2 * BUFFER_BYTES);
        Ok(())
    }
}

impl<W: Write> Sink for Writer<W> {
    fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Writes the buffer to the output, if it is full.
    fn pass_on(&mut self) -> io::Result<()> {
        if self.buffer.len() < BUFFER_BYTES { Ok(()) } else { self.write() }
    }
}
