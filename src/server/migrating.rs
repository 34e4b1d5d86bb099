//! Takes the parcels of a MIGRATE to another server, while no lock is held and others are served.
//!
//! The target is a server like any other: nothing of what it announces is believed. Its replies are single
//! lines, and only the very reply that means success counts as one.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use crate::commands::keys::dumping::dumped;
use crate::instance::Instance;
use crate::keyspace::records;
use crate::session::{Cargo, Freight, Migration, Outcome, Parcel, Target};

use super::carrier::Carrier;
use super::runner::Runner;

/// How often a request looks whether a key is free that another one is giving away.
const CLAIM_GLANCE: Duration = Duration::from_millis(5);
/// Values with more bytes than this become payloads on a thread of their own.
const BRIEF_BYTES_MAX: usize = 64 << 10;
/// Bytes that are written in one step, each with the timeout of the request. Redis: the same.
const PIECE_BYTES: usize = 64 << 10;
/// The longest reply. Redis: the same.
const LINE_BYTES_MAX: u64 = 1024;

const CONNECTING: &[u8] = b"IOERR error or timeout connecting to the client";
const WRITING: &[u8] = b"IOERR error or timeout writing to target instance";
const READING: &[u8] = b"IOERR error or timeout reading to target instance";

impl<C: Carrier> Runner<C> {
    /// Waits until the target has replied to the parcels of a MIGRATE. If the client leaves meanwhile, they
    /// are forgotten with it, and all keys stay.
    pub(super) async fn sit_out_migration(&mut self) -> io::Result<()> {
        let Some(mut migration) = self.conversation.session.migration.take() else { return Ok(()) };
        let instance = Arc::clone(&self.conversation.instance);
        let travelled = async {
            if migration.parcels.is_empty() {
                return sleep(CLAIM_GLANCE).await;
            }
            if let Err(text) = travel(&instance, &mut migration).await {
                migration.break_off(&text);
            }
        };
        self.sit_out(travelled, true).await?;
        self.conversation.session.migration = Some(migration);
        Ok(())
    }
}

/// An error for the client.
type Broken = Vec<u8>;

/// Sends the parcels, and notes the replies. After an error, those without a reply keep an unknown outcome.
async fn travel(instance: &Arc<Instance>, migration: &mut Migration) -> Result<(), Broken> {
    let limit = migration.target.timeout;
    let mut line = match migration.connection.take() {
        Some(line) => line,
        None => connect(&migration.target).await?,
    };
    for piece in load(instance, &mut migration.parcels).await.ok_or(WRITING)? {
        write(&mut line, &piece, limit).await?;
    }
    let mut refusal = None;
    for parcel in &mut migration.parcels {
        let reply = read_line(&mut line, limit).await;
        let Ok(reply) = reply else {
            refusal.into_iter().for_each(|text: Vec<u8>| migration.fail(&text));
            return Err(READING.to_vec());
        };
        parcel.outcome = match (&parcel.cargo, &reply[..]) {
            (_, [b'-', why @ ..]) => {
                refusal.get_or_insert_with(|| refused(why));
                Outcome::Refused
            }
            (Cargo::Value(_), b"+OK") | (Cargo::Withdrawal, b":0" | b":1") => Outcome::Done,
            _ => {
                refusal.into_iter().for_each(|text: Vec<u8>| migration.fail(&text));
                return Err(READING.to_vec());
            }
        };
    }
    refusal.into_iter().for_each(|text| migration.fail(&text));
    migration.connection = Some(line);
    Ok(())
}

fn refused(why: &[u8]) -> Vec<u8> {
    [b"ERR Target instance replied with error: ", why].concat()
}

/// Connects, logs in and chooses the database. No value is sent before that has succeeded: otherwise it would
/// come into another database.
async fn connect(target: &Target) -> Result<BufReader<TcpStream>, Broken> {
    let place = str::from_utf8(&target.host).ok().zip(str::from_utf8(&target.port).ok());
    let place = place.and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
    let connected = timeout(target.timeout, TcpStream::connect(place.ok_or(CONNECTING)?)).await;
    let stream = connected.map_err(|_| CONNECTING)?.map_err(|error| match error.kind() {
        // Redis notices these when it writes.
        io::ErrorKind::ConnectionRefused | io::ErrorKind::HostUnreachable => WRITING,
        _ => CONNECTING,
    })?;
    // Without it the connection is only slower.
    let _ = stream.set_nodelay(true);
    let mut line = BufReader::new(stream);
    let mut greeting = Vec::new();
    if let Some(login) = &target.login {
        let login = login.iter().map(|argument| &argument[..]);
        records::request(&mut greeting, &[&b"AUTH"[..]].into_iter().chain(login).collect::<Vec<_>>());
    }
    records::request(&mut greeting, &[b"SELECT", target.database.to_string().as_bytes()]);
    write(&mut line, &greeting, target.timeout).await?;
    let mut refusal = None;
    for _ in 0..1 + usize::from(target.login.is_some()) {
        let reply = read_line(&mut line, target.timeout).await.map_err(|_| READING)?;
        match &reply[..] {
            b"+OK" => {}
            [b'-', why @ ..] => refusal = refusal.or_else(|| Some(refused(why))),
            _ => return Err(READING.to_vec()),
        }
    }
    refusal.map_or(Ok(line), Err)
}

/// Writes bytes in steps, each of which may take as long as this.
async fn write(line: &mut BufReader<TcpStream>, bytes: &[u8], limit: Duration) -> Result<(), Broken> {
    for piece in bytes.chunks(PIECE_BYTES) {
        let written = timeout(limit, line.get_mut().write_all(piece)).await;
        written.map_err(|_| WRITING)?.map_err(|_| WRITING)?;
    }
    Ok(())
}

/// Reads a reply, without its end.
async fn read_line(line: &mut BufReader<TcpStream>, limit: Duration) -> io::Result<Vec<u8>> {
    let mut reply = Vec::new();
    timeout(limit, line.take(LINE_BYTES_MAX).read_until(b'\n', &mut reply)).await??;
    match &reply[..] {
        [text @ .., b'\r', b'\n'] => {
            reply.truncate(text.len());
            Ok(reply)
        }
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Makes the requests for parcels. A long payload is a piece of its own, so that it is not copied. `None` if
/// there is no thread for that.
async fn load(instance: &Arc<Instance>, parcels: &mut [Parcel]) -> Option<Vec<Vec<u8>>> {
    let take = |parcel: &mut Parcel| match &mut parcel.cargo {
        Cargo::Value(freight) => (parcel.key.clone(), freight.take()),
        Cargo::Withdrawal => (parcel.key.clone(), None),
    };
    let cargo: Vec<(Box<[u8]>, Option<Freight>)> = parcels.iter_mut().map(take).collect();
    let bytes: usize =
        cargo.iter().flat_map(|(_, freight)| freight).map(|freight| freight.value.bytes()).sum();
    let instance = Arc::clone(instance);
    if bytes <= BRIEF_BYTES_MAX {
        return Some(requests(&instance, cargo));
    }
    // The values are freed there as well: a client may have deleted the keys meanwhile.
    spawn_blocking(move || requests(&instance, cargo)).await.ok()
}

fn requests(instance: &Instance, cargo: Vec<(Box<[u8]>, Option<Freight>)>) -> Vec<Vec<u8>> {
    let (mut pieces, mut piece) = (Vec::new(), Vec::new());
    for (key, freight) in cargo {
        let Some(freight) = freight else {
            records::request(&mut piece, &[b"DEL", &key]);
            continue;
        };
        let Freight { value, expires_at_ms, is_lock, replaces } = freight;
        let payload = dumped(value.value(), is_lock, &instance.keyspace);
        drop(value);
        let now_ms = instance.clock.now_ms();
        let ttl_ms = expires_at_ms.map_or(0, |at_ms| at_ms.saturating_sub(now_ms).max(1)).to_string();
        let arguments = if replaces { 5 } else { 4 };
        piece.extend_from_slice(format!("*{arguments}\r\n").as_bytes());
        for argument in [b"RESTORE", &key[..], ttl_ms.as_bytes()] {
            records::word(&mut piece, argument);
        }
        piece.extend_from_slice(format!("${}\r\n", payload.len()).as_bytes());
        if payload.len() > PIECE_BYTES {
            pieces.extend([std::mem::take(&mut piece), payload]);
        } else {
            piece.extend_from_slice(&payload);
        }
        piece.extend_from_slice(b"\r\n");
        if replaces {
            records::word(&mut piece, b"REPLACE");
        }
    }
    pieces.push(piece);
    pieces
}
