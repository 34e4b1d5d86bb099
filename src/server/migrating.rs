//! Takes the parcels of a MIGRATE to another server, while no lock is held and others are served.
//!
//! The target is a server like any other: nothing of what it announces is believed. Its replies are single
//! lines, and only the very reply that means success counts as one.
//!
//! What was sent before, and is no longer right, is deleted at the target before the next value is sent. Its
//! clients may have changed it meanwhile: so the key is watched, compared with what was sent, and deleted in
//! a transaction.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use crate::commands::keys::dumping::{dumped, fingerprint_in, fingerprint_of};
use crate::instance::Instance;
use crate::keyspace::records;
use crate::resp::number::parse_integer;
use crate::session::{Cargo, Freight, Migration, Packed, Parcel, Receipt, Target};

use super::runner::Runner;
use super::wire::Wire;

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

impl<Stream: Wire> Runner<Stream> {
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

/// Sends the parcels, and notes the replies. After an error, those without a reply keep [`Receipt::Unknown`].
async fn travel(instance: &Arc<Instance>, migration: &mut Migration) -> Result<(), Broken> {
    let limit = migration.target.timeout;
    let mut line = match migration.connection.take() {
        Some(line) => line,
        None => connect(&migration.target).await?,
    };
    let mut refusal = None;
    for parcel in &mut migration.parcels {
        let replaces = matches!(&parcel.cargo, Cargo::Value(Some(freight)) if freight.replaces);
        let Some(former) = parcel.former.take_if(|_| !replaces) else { continue };
        let taken_back = take_back(instance, &migration.target, &mut line, (&parcel.key, &former)).await?;
        if let (Cargo::Withdrawal, taken_back) = (&parcel.cargo, &taken_back) {
            let is_done = matches!(taken_back, TakenBack::Done);
            parcel.receipt = if is_done { Receipt::Done } else { Receipt::Refused };
        }
        if let TakenBack::Refused(why) = taken_back {
            refusal.get_or_insert(why);
        }
    }
    for piece in load(instance, &mut migration.parcels).await.ok_or(WRITING)? {
        write(&mut line, &piece, limit).await?;
    }
    for parcel in migration.parcels.iter_mut().filter(|parcel| matches!(parcel.cargo, Cargo::Value(_))) {
        let reply = read_line(&mut line, limit).await;
        let Ok(reply) = reply else {
            refusal.into_iter().for_each(|text: Vec<u8>| migration.fail(&text));
            return Err(READING.to_vec());
        };
        parcel.receipt = match &reply[..] {
            [b'-', why @ ..] => {
                refusal.get_or_insert_with(|| refused(why));
                Receipt::Refused
            }
            b"+OK" => Receipt::Done,
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

/// What has come of a value that is to be deleted at the target.
enum TakenBack {
    /// It is gone.
    Done,
    /// Another one is in its place. It was written there, so it stays.
    Replaced,
    /// The target has refused a command, with this error for the client.
    Refused(Vec<u8>),
}

/// Deletes a key at the target if it is still what was sent there.
async fn take_back(
    instance: &Arc<Instance>,
    target: &Target,
    line: &mut BufReader<TcpStream>,
    (key, former): (&[u8], &Packed),
) -> Result<TakenBack, Broken> {
    let limit = target.timeout;
    let reading = |_: io::Error| READING.to_vec();
    ask(line, &[&[b"WATCH", key], &[b"DUMP", key]], limit).await?;
    let watched = read_line(line, limit).await.map_err(reading)?;
    // The same value may take more bytes at another server, but not by so much.
    let found = read_bulk(line, 2 * former.bytes + BRIEF_BYTES_MAX, limit).await.map_err(reading)?;
    let is_same = match (&watched[..], found) {
        ([b'-', why @ ..], _) => Err(refused(why)),
        (_, Bulk::Refused(why)) => Err(refused(&why)),
        (b"+OK", Bulk::Nothing) => Ok(None),
        (b"+OK", Bulk::TooLong) => {
            *line = connect(target).await?;
            return Ok(TakenBack::Replaced);
        }
        (b"+OK", Bulk::Bytes(payload)) => {
            let instance = Arc::clone(instance);
            let fingerprint = spawn_blocking(move || fingerprint_in(&payload, &instance.keyspace));
            Ok(Some(fingerprint.await.is_ok_and(|found| found == Some(former.fingerprint))))
        }
        _ => return Err(READING.to_vec()),
    };
    if !matches!(is_same, Ok(Some(true))) {
        ask(line, &[&[b"UNWATCH"]], limit).await?;
        read_line(line, limit).await.map_err(reading)?;
        return Ok(match is_same {
            Ok(None) => TakenBack::Done,
            Ok(Some(_)) => TakenBack::Replaced,
            Err(why) => TakenBack::Refused(why),
        });
    }
    // Only within a transaction is it deleted on condition that nothing has changed it.
    ask(line, &[&[b"MULTI"]], limit).await?;
    match &read_line(line, limit).await.map_err(reading)?[..] {
        b"+OK" => {}
        [b'-', why @ ..] => return Ok(TakenBack::Refused(refused(why))),
        _ => return Err(READING.to_vec()),
    }
    ask(line, &[&[b"DEL", key], &[b"EXEC"]], limit).await?;
    let queued = read_line(line, limit).await.map_err(reading)?;
    let done = read_line(line, limit).await.map_err(reading)?;
    match (&queued[..], &done[..]) {
        ([b'-', why @ ..], _) | (_, [b'-', why @ ..]) => Ok(TakenBack::Refused(refused(why))),
        (b"+QUEUED", b"*-1" | b"_") => Ok(TakenBack::Replaced),
        (b"+QUEUED", b"*1") => match &read_line(line, limit).await.map_err(reading)?[..] {
            b":0" | b":1" => Ok(TakenBack::Done),
            [b'-', why @ ..] => Ok(TakenBack::Refused(refused(why))),
            _ => Err(READING.to_vec()),
        },
        _ => Err(READING.to_vec()),
    }
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

/// Sends requests, all of them at once.
async fn ask(line: &mut BufReader<TcpStream>, requests: &[&[&[u8]]], limit: Duration) -> Result<(), Broken> {
    let mut bytes = Vec::new();
    requests.iter().for_each(|request| records::request(&mut bytes, request));
    write(line, &bytes, limit).await
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

/// The bytes of a reply.
enum Bulk {
    Bytes(Vec<u8>),
    Nothing,
    /// It is longer than it may be, and was not read.
    TooLong,
    /// An error, with its text.
    Refused(Vec<u8>),
}

/// Reads a reply of bytes. It takes memory as they arrive, whatever is announced.
async fn read_bulk(line: &mut BufReader<TcpStream>, bytes_max: usize, limit: Duration) -> io::Result<Bulk> {
    let bytes = match &read_line(line, limit).await?[..] {
        b"$-1" | b"_" => return Ok(Bulk::Nothing),
        [b'-', why @ ..] => return Ok(Bulk::Refused(why.to_vec())),
        [b'$', digits @ ..] => parse_integer(digits).and_then(|bytes| usize::try_from(bytes).ok()),
        _ => None,
    };
    let bytes = bytes.ok_or(io::ErrorKind::InvalidData)?;
    if bytes > bytes_max {
        return Ok(Bulk::TooLong);
    }
    let (mut reply, whole) = (Vec::new(), bytes + b"\r\n".len());
    while reply.len() < whole {
        let piece = (whole - reply.len()).min(PIECE_BYTES) as u64;
        if timeout(limit, (&mut *line).take(piece).read_to_end(&mut reply)).await?? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    reply.truncate(bytes);
    Ok(Bulk::Bytes(reply))
}

/// A value on its way, with its key.
type Loaded = (Box<[u8]>, Freight);

/// Makes the requests for parcels, and notes by what each value is known again. A long payload is a piece of
/// its own, so that it is not copied. `None` if there is no thread for that.
async fn load(instance: &Arc<Instance>, parcels: &mut [Parcel]) -> Option<Vec<Vec<u8>>> {
    let (mut cargo, mut places): (Vec<Loaded>, Vec<usize>) = Default::default();
    for (place, parcel) in parcels.iter_mut().enumerate() {
        if let Cargo::Value(freight) = &mut parcel.cargo {
            cargo.push((parcel.key.clone(), freight.take()?));
            places.push(place);
        }
    }
    let bytes: usize = cargo.iter().map(|(_, freight)| freight.value.bytes()).sum();
    let instance = Arc::clone(instance);
    let (pieces, packed) = match bytes <= BRIEF_BYTES_MAX {
        true => requests(&instance, cargo),
        // The values are freed there as well: a client may have deleted the keys meanwhile.
        false => spawn_blocking(move || requests(&instance, cargo)).await.ok()?,
    };
    for (place, packed) in places.into_iter().zip(packed) {
        parcels[place].packed = Some(packed);
    }
    Some(pieces)
}

fn requests(instance: &Instance, cargo: Vec<Loaded>) -> (Vec<Vec<u8>>, Vec<Packed>) {
    let (mut pieces, mut piece, mut packed) = (Vec::new(), Vec::new(), Vec::with_capacity(cargo.len()));
    for (key, freight) in cargo {
        let Freight { value, expires_at_ms, fence, replaces } = freight;
        let payload = dumped(value.value(), fence, &instance.keyspace);
        let fingerprint = fingerprint_of(value.value(), &instance.keyspace);
        packed.push(Packed { fingerprint, bytes: value.bytes() });
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
    (pieces, packed)
}
