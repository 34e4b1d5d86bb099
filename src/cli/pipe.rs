//! `--pipe`: sends standard input as it is, as fast as possible, and counts replies and errors.
//!
//! Reading and writing run at the same time: a server whose replies are not read takes no more requests.
//! After the last request the client sends an ECHO of random bytes. Its reply is the end. On a terminal a bar
//! shows how much of the input has been sent.

use std::cell::Cell;
use std::fs::{File, Metadata};
use std::io::{self, IsTerminal, Read, Seek};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::connection::{Failure, receive};
use super::plain_text;
use super::replies::{Decoder, Message};
use super::session::{Session, request};
use super::terminal::complain;
use super::{Result, Stop, say};
use crate::progress::{Indicator, Progress, Unit};

/// Bytes per read of standard input.
const PIECE_BYTES: usize = 16 << 10;
/// The most pieces that wait to be sent.
const PIECES_MAX: usize = 16;
/// Bytes of the ECHO's argument, by which its reply is recognized.
const MARK_BYTES: usize = 20;

/// The replies so far.
#[derive(Default)]
struct Counts {
    replies: u64,
    errors: u64,
}

/// Sends standard input to the server.
pub(super) fn send_input(session: &mut Session) -> Result<()> {
    let mark: [u8; MARK_BYTES] = std::array::from_fn(|_| fastrand::u8(..));
    let patience = session.options.pipe_timeout;
    let Some(connection) = session.take_connection() else { return Err(Stop::Lost) };
    let (runtime, stream, mut decoder) = connection.into_parts();
    let sent = Arc::new(Progress::new(Unit::Bytes, input_bytes()));
    // A user who types the input needs no bar.
    let _bar = if io::stdin().is_terminal() { None } else { Indicator::bar(&sent, "Sending") };
    let counts = runtime.block_on(async {
        let (mut reader, writer) = tokio::io::split(stream);
        let is_all_sent = Cell::new(false);
        let counting = count(&mut reader, &mut decoder, &mark, &is_all_sent, patience);
        tokio::pin!(counting);
        tokio::select! {
            // The server may have sent the reason why it takes no more.
            biased;
            counts = &mut counting => counts,
            ended = send(writer, &mark, &is_all_sent, &sent) => {
                ended?;
                counting.await
            }
        }
    })?;
    say(format_args!("errors: {}, replies: {}", counts.errors, counts.replies))?;
    if counts.errors > 0 { Err(Stop::Exit(1)) } else { Ok(()) }
}

/// Sends all of standard input, then the ECHO. `sent` counts the bytes of the input.
async fn send(
    mut writer: impl AsyncWrite + Unpin,
    mark: &[u8],
    is_all_sent: &Cell<bool>,
    sent: &Progress,
) -> Result<()> {
    let (pieces, mut waiting) = mpsc::channel(PIECES_MAX);
    // Reading standard input may block. The thread ends with the program.
    thread::spawn(move || read_input(&pieces));
    let failed = |error: io::Error| {
        complain(format_args!("Error writing to the server: {}", plain_text(&error)));
        Stop::Exit(1)
    };
    while let Some(piece) = waiting.recv().await {
        let piece: Vec<u8> = piece.map_err(|error: io::Error| {
            complain(format_args!("Error reading from stdin: {}", plain_text(&error)));
            Stop::Exit(1)
        })?;
        writer.write_all(&piece).await.map_err(failed)?;
        sent.add(piece.len() as u64);
    }
    is_all_sent.set(true);
    say("All data transferred. Waiting for the last reply...")?;
    // The empty line ends any garbage, so that the server reads a request.
    let farewell = [b"\r\n".to_vec(), request(&[b"ECHO", mark])].concat();
    writer.write_all(&farewell).await.map_err(failed)?;
    writer.flush().await.map_err(failed)
}

/// The bytes of standard input that are still to be read, if it is a file.
fn input_bytes() -> Option<u64> {
    let mut input = File::from(io::stdin().as_fd().try_clone_to_owned().ok()?);
    let metadata = input.metadata().ok().filter(Metadata::is_file)?;
    // It may have been read in part.
    Some(metadata.len().saturating_sub(input.stream_position().ok()?))
}

fn read_input(pieces: &mpsc::Sender<io::Result<Vec<u8>>>) {
    let mut input = io::stdin().lock();
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let read = match input.read(&mut piece) {
            Ok(0) => return,
            Ok(length) => Ok(piece[..length].to_vec()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
        let is_over = read.is_err();
        if pieces.blocking_send(read).is_err() || is_over {
            return;
        }
    }
}

/// Counts replies up to that of the ECHO.
async fn count(
    reader: &mut (impl AsyncRead + Unpin),
    decoder: &mut Decoder,
    mark: &[u8],
    is_all_sent: &Cell<bool>,
    patience: Option<Duration>,
) -> Result<Counts> {
    let mut counts = Counts::default();
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let reply = match patience {
            Some(patience) => match timeout(patience, receive(reader, decoder, &mut piece)).await {
                Ok(reply) => reply,
                // While there is input to send, the server may be waiting for it.
                Err(_) if !is_all_sent.get() => continue,
                Err(_) => {
                    complain(format_args!("No replies for {} seconds: exiting.", patience.as_secs()));
                    counts.errors += 1;
                    return Ok(counts);
                }
            },
            None => receive(reader, decoder, &mut piece).await,
        };
        match reply {
            Ok(Message::Bulk(bytes)) if is_all_sent.get() && bytes == mark => {
                say("Last reply received from server.")?;
                return Ok(counts);
            }
            Ok(reply) => {
                counts.replies += 1;
                if let Message::Error(why) = reply {
                    counts.errors += 1;
                    complain(String::from_utf8_lossy(&why));
                }
            }
            Err(Failure::Protocol(_)) => {
                complain("Error reading replies from server");
                return Err(Stop::Exit(1));
            }
            Err(_) => return Err(Stop::Exit(1)),
        }
    }
}
