//! How long one client waits for PONG, and one that asks whether a value is there, while 150 others have each
//! sent a request that takes long of that value; and how much memory the server takes meanwhile.
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
    /// The large value that it uses.
    value: &'static str,
    /// Whether each client has a copy of its own, under the value's name and the client's number.
    takes_away: bool,
    /// The request of a client, by its number, as a line.
    request: fn(usize) -> String,
}

/// A kind whose requests leave the large values as they are.
const fn kind(name: &'static str, value: &'static str, request: fn(usize) -> String) -> Kind {
    Kind { name, value, takes_away: false, request }
}

/// A kind whose requests take elements away.
const fn taking(name: &'static str, value: &'static str, request: fn(usize) -> String) -> Kind {
    Kind { name, value, takes_away: true, request }
}

const KINDS: &[Kind] = &[
    kind("PING", "none", |_| "PING".to_owned()),
    kind("HGETALL", "hash", |_| "HGETALL hash".to_owned()),
    kind("XREAD", "stream", |_| "XREAD STREAMS stream 0".to_owned()),
    kind("SORT", "list", |_| "SORT list ALPHA LIMIT 0 10".to_owned()),
    kind("SUNION", "set", |_| "SUNION set other".to_owned()),
    kind("ZUNIONSTORE", "ranking", |n| format!("ZUNIONSTORE stored:{n} 2 ranking set")),
    kind("SUNIONSTORE", "set", |n| format!("SUNIONSTORE stored:{n} set other")),
    kind("ZRANGESTORE", "ranking", |n| format!("ZRANGESTORE stored:{n} ranking 0 -1")),
    kind("GEOSEARCHSTORE", "places", |n| {
        format!("GEOSEARCHSTORE stored:{n} places FROMLONLAT 0 0 BYRADIUS 30000 km")
    }),
    kind("BITOP", "text", |n| format!("BITOP XOR stored:{n} text text2")),
    kind("SORT … STORE", "list", |n| format!("SORT list ALPHA STORE stored:{n}")),
    taking("LPOP", "list", |n| format!("LPOP list:{n} {}", ELEMENTS - 1)),
    taking("SPOP", "set", |n| format!("SPOP set:{n} {ELEMENTS}")),
    taking("ZPOPMIN", "ranking", |n| format!("ZPOPMIN ranking:{n} {}", ELEMENTS / 2)),
    taking("ZREMRANGEBYRANK", "ranking", |n| format!("ZREMRANGEBYRANK ranking:{n} 1 {}", ELEMENTS / 2)),
    kind("EVAL", "hash", |_| "EVAL \"return #redis.call('HGETALL', KEYS[1])\" 1 hash".to_owned()),
];

/// How many rows it adds to the report.
pub(crate) const ROWS: usize = 3 * KINDS.len();

/// Compares all kinds.
pub(crate) fn compare(options: &Options, programs: &[Program], report: &mut Report) -> Result<(), String> {
    let servers: Vec<Server> =
        programs.iter().map(|program| program.start(options.server_cores)).collect::<Result<_, _>>()?;
    pin_this_process(options.server_cores);
    for server in &servers {
        fill(server)?;
    }
    for Kind { name, value, takes_away, request } in KINDS {
        let [mut pings, mut looks, mut peaks] = [Vec::new(), Vec::new(), Vec::new()];
        let looked_at = if *takes_away { format!("{value}:0") } else { (*value).to_owned() };
        for server in &servers {
            let mut load = Load::new(server.address(), 1, 1, 1, None)?;
            if *takes_away {
                load.send_all((0..CLIENTS).map(|n| format!("COPY {value} {value}:{n}")))?;
            }
            let connect = |_| TcpStream::connect(server.address()).map_err(|error| error.to_string());
            let clients: Vec<TcpStream> = (0..CLIENTS).map(connect).collect::<Result<_, _>>()?;
            server.forget_peak()?;
            let mut look = 0.0;
            let waits = pause::measure(server, ping, || {
                let asks = |request: &mut Vec<u8>| ask_whether_there(&looked_at, request);
                look = pause::measure(server, asks, || all_ask(clients, *request))?.most_ms;
                Ok(())
            })?;
            pings.push(waits.most_ms);
            looks.push(look);
            peaks.push(server.peak_bytes()? / 1048576.0);
            load.send_all((0..CLIENTS).map(|n| format!("UNLINK stored:{n} {value}:{n}")))?;
        }
        report.add(&format!("PING beside {CLIENTS} × {name}"), "99.9th percentile, ms", pings);
        report.add("  EXISTS of its value", "99.9th percentile, ms", looks);
        report.add("", "MiB at most", peaks);
    }
    Ok(())
}

fn ping(request: &mut Vec<u8>) -> usize {
    request.extend(b"*1\r\n$4\r\nPING\r\n");
    "+PONG\r\n".len()
}

fn ask_whether_there(key: &str, request: &mut Vec<u8>) -> usize {
    request.extend(format!("*2\r\n$6\r\nEXISTS\r\n${}\r\n{key}\r\n", key.len()).bytes());
    ":1\r\n".len()
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
