//! `--rdb` and `--functions-rdb`: fetches a snapshot of the server, as a replica would, into a file.
//! `--replica` leaves the snapshot out, and prints the commands that follow.
//!
//! The server shows by empty lines that it lives while it writes the snapshot. Then it sends either the
//! length, or a mark of 40 bytes that stands behind a snapshot whose length it does not know. The mark is no
//! part of the snapshot: the last bytes that came are kept back until it is clear that they are not it.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};

use super::connection::{self, Stream};
use super::format::write_reply;
use super::options::Output;
use super::plain_text;
use super::replies::Message;
use super::session::Session;
use super::terminal::{Shown, complain, is_terminal};
use super::{Result, Stop};
use crate::progress::{Indicator, Progress, Unit};

/// Bytes per read.
const PIECE_BYTES: usize = 64 << 10;
/// The longest line in front of the snapshot. Redis: the same.
const LINE_BYTES_MAX: u64 = 4096;
/// Bytes of the mark behind a snapshot without a length.
const MARK_BYTES: usize = 40;
/// The name that stands for standard output.
const STANDARD_OUTPUT: &[u8] = b"-";

/// The length of a snapshot.
enum Length {
    Bytes(u64),
    /// It ends with this mark.
    UntilMark([u8; MARK_BYTES]),
}

/// Fetches a snapshot of everything, or of the functions alone.
pub(super) fn run(session: &mut Session, file: &Path, is_of_functions: bool) -> Result<()> {
    tell(session, "capa", "eof")?;
    tell(session, "rdb-only", "1")?;
    if is_of_functions && !tell(session, "rdb-filter-only", "functions")? {
        complain("Failed requesting functions only RDB from server, aborting");
        return Err(Stop::Exit(1));
    }
    let Some(connection) = session.take_connection() else { return Err(Stop::Lost) };
    let (runtime, stream, _) = connection.into_parts();
    runtime.block_on(fetch(stream, file))
}

/// Asks for what a replica gets, and prints the commands behind the snapshot until the server ends.
pub(super) fn follow(session: &mut Session) -> Result<()> {
    tell(session, "capa", "eof")?;
    session.options.output = Output::Csv;
    let Some(connection) = session.take_connection() else { return Err(Stop::Lost) };
    let (runtime, stream, decoder) = connection.into_parts();
    let options = &session.options;
    runtime.block_on(async {
        let (mut reader, length) = ask(stream).await?;
        match length {
            Length::Bytes(bytes) => complain(format_args!(
                "Full resync with master, discarding {bytes} bytes of bulk transfer..."
            )),
            Length::UntilMark(_) => {
                complain("Full resync with master, discarding bytes of bulk transfer until EOF marker...")
            }
        }
        let received = Progress::new(Unit::Bytes, None);
        let bytes = receive(&mut reader, &length, io::sink(), &received).await?;
        if let Length::UntilMark(_) = length {
            complain(format_args!("Full resync done after {bytes} bytes. Logging commands from master."));
            // So the server knows that the snapshot has come.
            let _ = reader.write_all(b"REPLCONF ACK 0\r\n").await;
            let _ = reader.flush().await;
        } else {
            complain("Full resync done. Logging commands from master.");
        }
        let (mut decoder, mut piece) = (decoder, vec![0; PIECE_BYTES]);
        loop {
            let message = connection::receive(&mut reader, &mut decoder, &mut piece).await;
            let message = message.map_err(|failure| failed(format_args!("Error: {failure}")))?;
            let mut out = Shown::new(BufWriter::new(io::stdout().lock()), is_terminal());
            write_reply(&mut out, &message, options)?;
            out.flush()?;
        }
    })
}

/// Tells the server one thing about what is wanted. Returns whether it understands that: an old one may not.
fn tell(session: &mut Session, name: &str, value: &str) -> Result<bool> {
    complain(format_args!("sending REPLCONF {name} {value}"));
    match session.ask(&["REPLCONF", name, value]) {
        Ok(Message::Error(why)) => {
            complain(format_args!("REPLCONF {name} error: {}", String::from_utf8_lossy(&why)));
            Ok(false)
        }
        Ok(_) => Ok(true),
        Err(_) => Err(failed("\nI/O error")),
    }
}

/// Asks for a snapshot, and reads how long it is.
async fn ask(mut stream: Box<dyn Stream>) -> Result<(BufReader<Box<dyn Stream>>, Length)> {
    let asked = async {
        stream.write_all(b"SYNC\r\n").await?;
        stream.flush().await
    };
    asked.await.map_err(|_| failed("Error writing to master"))?;
    let mut reader = BufReader::with_capacity(PIECE_BYTES, stream);
    let length = read_length(&mut reader).await?;
    Ok((reader, length))
}

async fn fetch(stream: Box<dyn Stream>, file: &Path) -> Result<()> {
    let (mut reader, length) = ask(stream).await?;
    let name = file.display();
    let total = match length {
        Length::Bytes(bytes) => {
            complain(format_args!("SYNC sent to master, writing {bytes} bytes to '{name}'"));
            Some(bytes)
        }
        Length::UntilMark(_) => {
            complain(format_args!(
                "SYNC sent to master, writing bytes of bulk transfer until EOF marker to '{name}'"
            ));
            None
        }
    };
    let opened = match file.as_os_str().as_bytes() {
        STANDARD_OUTPUT => None,
        _ => Some(open(file)?),
    };
    let received = Arc::new(Progress::new(Unit::Bytes, total));
    let bar = Indicator::bar(&received, "Receiving");
    let written = match &opened {
        Some(file) => receive(&mut reader, &length, file, &received).await?,
        None => receive(&mut reader, &length, &mut io::stdout().lock(), &received).await?,
    };
    drop(bar);
    match length {
        Length::Bytes(_) => complain("Transfer finished with success."),
        Length::UntilMark(_) => {
            complain(format_args!("Transfer finished with success after {written} bytes"));
        }
    }
    match opened.map(|file| file.sync_all()) {
        // A pipe, for example.
        Some(Err(error)) if error.kind() != ErrorKind::InvalidInput => {
            Err(failed(format_args!("Fail to fsync '{name}': {}", plain_text(&error))))
        }
        _ => Ok(()),
    }
}

/// Reads the line in front of the snapshot, past the signs of life.
async fn read_length(reader: &mut (impl AsyncBufRead + Unpin)) -> Result<Length> {
    let unreadable = || failed("Error reading bulk length while SYNCing");
    let mut line = Vec::new();
    while line.trim_ascii().is_empty() {
        line.clear();
        let read = reader.take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await;
        if !line.ends_with(b"\n") || read.is_err() {
            return Err(unreadable());
        }
    }
    let line = line.trim_ascii_end();
    if line.starts_with(b"-") {
        return Err(failed(format_args!("SYNC with master failed: {}", String::from_utf8_lossy(line))));
    }
    if let Some(mark) = line.strip_prefix(b"$EOF:").and_then(|mark| mark.first_chunk()) {
        return Ok(Length::UntilMark(*mark));
    }
    let bytes = line.strip_prefix(b"$").and_then(|digits| str::from_utf8(digits).ok()?.parse().ok());
    bytes.map(Length::Bytes).ok_or_else(unreadable)
}

fn open(file: &Path) -> Result<File> {
    // What an older and longer snapshot has left there must not stand behind the new one.
    let opened = OpenOptions::new().write(true).create(true).truncate(true).open(file);
    opened.map_err(|error| failed(format_args!("Error opening '{}': {}", file.display(), plain_text(&error))))
}

/// Writes the snapshot as it comes; returns its bytes.
async fn receive(
    reader: &mut (impl AsyncRead + Unpin),
    length: &Length,
    mut out: impl Write,
    received: &Progress,
) -> Result<u64> {
    let (mut piece, mut kept) = (vec![0; PIECE_BYTES], Vec::new());
    let mut written = 0;
    let mut write = |bytes: &[u8]| {
        out.write_all(bytes)
            .and_then(|()| out.flush())
            .map_err(|error| failed(format_args!("Error writing data to file: {}", plain_text(&error))))?;
        written += bytes.len() as u64;
        received.reach(written);
        Ok::<u64, Stop>(written)
    };
    let mut done = 0;
    loop {
        let wanted = match length {
            Length::Bytes(bytes) if done == *bytes => return Ok(done),
            Length::Bytes(bytes) => PIECE_BYTES.min(usize::try_from(bytes - done).unwrap_or(PIECE_BYTES)),
            Length::UntilMark(mark) if kept.ends_with(mark) => {
                return write(&kept[..kept.len() - MARK_BYTES]);
            }
            Length::UntilMark(_) => PIECE_BYTES,
        };
        let read = match reader.read(&mut piece[..wanted]).await {
            Ok(0) | Err(_) => return Err(failed("I/O Error reading RDB payload from socket")),
            Ok(read) => read,
        };
        match length {
            Length::Bytes(_) => done = write(&piece[..read])?,
            Length::UntilMark(_) => {
                kept.extend_from_slice(&piece[..read]);
                let sure = kept.len().saturating_sub(MARK_BYTES);
                write(&kept[..sure])?;
                kept.drain(..sure);
            }
        }
    }
}

/// Prints an error; the program ends with it.
fn failed(line: impl std::fmt::Display) -> Stop {
    complain(line);
    Stop::Exit(1)
}
