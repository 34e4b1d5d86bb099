//! How long one client waits for PONG while 150 others have each sent a request that takes long, and how much
//! memory the server takes meanwhile.
//!
//! One kind of request after the other: those that read a large value, those that store what they make of
//! several, those that take most of a large value away, and those that hold what they use to the end.

use std::fmt::{Display, Write as _};
use std::io::{Read, Write as _};
use std::net::TcpStream;

use crate::load::Load;
use crate::options::Options;
use crate::pause;
use crate::report::Report;
use crate::server::{Program, Server, pin_this_process};

/// Clients that send something long, all at once.
const CLIENTS: usize = 150;
/// Elements of each large value.
const ELEMENTS: usize = 100_000;
/// Elements that one request writes.
const CHUNK: usize = 100;
/// Bytes of the long strings.
const TEXT_BYTES: usize = 8 << 20;

/// A request that takes long.
struct Kind {
    name: &'static str,
    /// The request of a client, by its number, as a line.
    request: fn(usize) -> String,
    /// The large value of which each client has a copy of its own, under its name and the client's number.
    own: Option<&'static str>,
}

/// A kind whose requests leave the large values as they are.
const fn kind(name: &'static str, request: fn(usize) -> String) -> Kind {
    Kind { name, request, own: None }
}

/// A kind whose requests take elements away, each from a copy of a large value.
const fn taking(name: &'static str, own: &'static str, request: fn(usize) -> String) -> Kind {
    Kind { name, request, own: Some(own) }
}

const KINDS: &[Kind] = &[
    kind("PING", |_| "PING".to_owned()),
    kind("HGETALL", |_| "HGETALL hash".to_owned()),
    kind("XREAD", |_| "XREAD STREAMS stream 0".to_owned()),
    kind("SORT", |_| "SORT list ALPHA LIMIT 0 10".to_owned()),
    kind("SUNION", |_| "SUNION set other".to_owned()),
    kind("ZUNIONSTORE", |n| format!("ZUNIONSTORE stored:{n} 2 ranking set")),
    kind("SUNIONSTORE", |n| format!("SUNIONSTORE stored:{n} set other")),
    kind("ZRANGESTORE", |n| format!("ZRANGESTORE stored:{n} ranking 0 -1")),
    kind("GEOSEARCHSTORE", |n| format!("GEOSEARCHSTORE stored:{n} places FROMLONLAT 0 0 BYRADIUS 30000 km")),
    kind("BITOP", |n| format!("BITOP XOR stored:{n} text text2")),
    kind("SORT … STORE", |n| format!("SORT list ALPHA STORE stored:{n}")),
    taking("LPOP", "list", |n| format!("LPOP list:{n} {}", ELEMENTS - 1)),
    taking("SPOP", "set", |n| format!("SPOP set:{n} {ELEMENTS}")),
    taking("ZPOPMIN", "ranking", |n| format!("ZPOPMIN ranking:{n} {}", ELEMENTS / 2)),
    taking("ZREMRANGEBYRANK", "ranking", |n| format!("ZREMRANGEBYRANK ranking:{n} 1 {}", ELEMENTS / 2)),
    kind("EVAL", |_| "EVAL \"return #redis.call('HGETALL', KEYS[1])\" 1 hash".to_owned()),
];

/// How many rows it adds to the report.
pub(crate) const ROWS: usize = 2 * KINDS.len();

/// Compares all kinds.
pub(crate) fn compare(options: &Options, programs: &[Program], report: &mut Report) -> Result<(), String> {
    let servers: Vec<Server> =
        programs.iter().map(|program| program.start(options.server_cores)).collect::<Result<_, _>>()?;
    pin_this_process(options.server_cores);
    for server in &servers {
        fill(server)?;
    }
    for Kind { name, request, own } in KINDS {
        let (mut waits, mut peaks) = (Vec::new(), Vec::new());
        for server in &servers {
            let mut load = Load::new(server.address(), 1, 1, 1, None)?;
            if let Some(own) = own {
                load.send_all((0..CLIENTS).map(|n| format!("COPY {own} {own}:{n}")))?;
            }
            let connect = |_| TcpStream::connect(server.address()).map_err(|error| error.to_string());
            let clients: Vec<TcpStream> = (0..CLIENTS).map(connect).collect::<Result<_, _>>()?;
            server.forget_peak()?;
            waits.push(pause::measure(server, ping, || all_ask(clients, *request))?.most_ms);
            peaks.push(server.peak_bytes()? / 1048576.0);
            load.send_all((0..CLIENTS).map(|n| format!("UNLINK stored:{n} {}:{n}", own.unwrap_or("none"))))?;
        }
        report.add(&format!("PING beside {CLIENTS} × {name}"), "99.9th percentile, ms", waits);
        report.add("", "MiB at most", peaks);
    }
    Ok(())
}

fn ping(request: &mut Vec<u8>) -> usize {
    request.extend(b"*1\r\n$4\r\nPING\r\n");
    "+PONG\r\n".len()
}

/// What a client says behind its request, to know the end of the reply without reading all of it.
const MARK: &str = "this-was-the-reply";

/// Has all clients send their requests. Returns once each has its reply.
fn all_ask(mut clients: Vec<TcpStream>, request: fn(usize) -> String) -> Result<(), String> {
    for (n, client) in clients.iter_mut().enumerate() {
        let asked = client.write_all(format!("{}\r\nECHO {MARK}\r\n", request(n)).as_bytes());
        asked.map_err(|error| format!("{}: {error}", request(n)))?;
    }
    let (mut piece, end) = ([0; 64 << 10], format!("{MARK}\r\n"));
    for (n, client) in clients.iter_mut().enumerate() {
        let (mut first, mut tail) = (None, Vec::new());
        while !tail.ends_with(end.as_bytes()) {
            let length = client.read(&mut piece).map_err(|error| format!("{}: {error}", request(n)))?;
            if length == 0 {
                return Err(format!("{}: the server closed the connection", request(n)));
            }
            first = first.or(piece[..length].first().copied());
            tail.extend_from_slice(&piece[..length]);
            tail.drain(..tail.len().saturating_sub(end.len()));
        }
        if first == Some(b'-') {
            return Err(format!("{}: the server replies with an error", request(n)));
        }
    }
    Ok(())
}

/// Writes the large values.
fn fill(server: &Server) -> Result<(), String> {
    let mut load = Load::new(server.address(), 1, 1, 1, None)?;
    let each = |from: usize, beginning: &str, element: fn(&mut String, usize)| {
        let mut line = beginning.to_owned();
        (from..from + CHUNK).for_each(|n| element(&mut line, n));
        line
    };
    let member: fn(&mut String, usize) = |line, n| put(line, format_args!(" member:{n}"));
    for from in (0..ELEMENTS).step_by(CHUNK) {
        let requests = [
            each(from, "RPUSH list", member),
            each(from, "SADD set", member),
            each(from + ELEMENTS / 2, "SADD other", member),
            each(from, "ZADD ranking", |line, n| put(line, format_args!(" {n} member:{n}"))),
            each(from, "HSET hash", |line, n| put(line, format_args!(" field:{n} value:{n}"))),
            each(from, "GEOADD places", |line, n| {
                put(line, format_args!(" {} {} member:{n}", n % 170, n % 80));
            }),
        ];
        load.send_all(requests.into_iter())?;
    }
    load.send_all((0..ELEMENTS).map(|_| "XADD stream * name value".to_owned()))?;
    load.send_all(["text", "text2"].iter().map(|key| format!("SETRANGE {key} {} x", TEXT_BYTES - 1)))
}

fn put(line: &mut String, what: impl Display) {
    write!(line, "{what}").expect("memory takes all that is written");
}
