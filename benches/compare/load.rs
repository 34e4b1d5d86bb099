//! A client that costs little: it writes a batch on every connection, then reads all the replies, and so on.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// The commands that are compared.
#[derive(Clone, Copy)]
pub(crate) enum Verb {
    Set,
    Incr,
    /// One field of a small hash.
    HSet,
    Get,
    SetNx,
    /// The release of a lock, as the documents write it: a script that compares and deletes.
    Release,
    /// The whole life of a lock: taken by SET NX PX, let go by DELIFEQ, in turn.
    Lock,
}

impl Verb {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Verb::Set => "SET",
            Verb::Incr => "INCR",
            Verb::HSet => "HSET",
            Verb::Get => "GET",
            Verb::SetNx => "SETNX",
            Verb::Release => "EVALSHA of a release",
            Verb::Lock => "SET NX PX and DELIFEQ",
        }
    }
}

/// The script that the documents give for the release of a lock, and its digest.
pub(crate) const RELEASE: &str = "if redis.call('get',KEYS[1]) == ARGV[1] \
                                  then return redis.call('del',KEYS[1]) else return 0 end";
const RELEASE_DIGEST: &str = "ae3671744a5dbb24ea37ef607b8b10ac7856d43e";

/// Fields of a hash.
const FIELDS: usize = 20;

/// Requests in one batch while filling.
const FILL_DEPTH: usize = 100;

/// How long a reply may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Clients of one server.
pub(crate) struct Load {
    connections: Vec<Connection>,
    keys: usize,
    value: String,
    expiry: String,
    random: Random,
    /// Keys that have been let go.
    released: usize,
    /// Requests that [`Next`] has made.
    sent: usize,
}

/// Writes the request of a number, with some chance in it, into an empty line.
pub(crate) type Next = fn(&mut String, &mut Random, usize);

struct Connection {
    stream: TcpStream,
    requests: Vec<u8>,
    /// Requests of the lives of locks so far.
    turns: usize,
    /// Replies still to come.
    awaited: usize,
    /// The beginning of a reply whose end has not come.
    partial: Vec<u8>,
}

/// Xorshift: good enough to spread keys, and next to free.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

impl Load {
    pub(crate) fn new(
        address: SocketAddr,
        connections: usize,
        keys: usize,
        value_bytes: usize,
        expiry_ms: Option<u64>,
    ) -> Result<Load, String> {
        let connections = (0..connections).map(|_| Connection::open(address)).collect::<Result<_, _>>()?;
        let expiry = expiry_ms.map(|expiry_ms| expiry_ms.to_string());
        let expiry = expiry.map_or(String::new(), |ms| format!("$2\r\nPX\r\n${}\r\n{ms}\r\n", ms.len()));
        Ok(Load {
            connections,
            keys,
            value: "v".repeat(value_bytes),
            expiry,
            random: Random(0x2545_f491),
            released: 0,
            sent: 0,
        })
    }

    /// Writes every key once.
    pub(crate) fn fill(&mut self) -> Result<(), String> {
        let mut next = 0;
        while next < self.keys {
            for connection in &mut self.connections {
                let until = (next + FILL_DEPTH).min(self.keys);
                for key in next..until {
                    connection.ask(Verb::Set, key, &self.value, &self.expiry);
                }
                connection.send()?;
                next = until;
            }
            self.connections.iter_mut().try_for_each(Connection::receive)?;
        }
        Ok(())
    }

    /// Makes the script known that lets keys go.
    pub(crate) fn load_script(&mut self) -> Result<(), String> {
        let Some(connection) = self.connections.first_mut() else { return Ok(()) };
        let request = write!(
            connection.requests,
            "*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n${}\r\n{RELEASE}\r\n",
            RELEASE.len()
        );
        request.expect("memory takes all that is written");
        connection.awaited += 1;
        connection.send()?;
        connection.receive()
    }

    /// Sends commands on random keys for so long; answers how many.
    pub(crate) fn drive(&mut self, verb: Verb, depth: usize, seconds: f64) -> Result<usize, String> {
        let (started, length) = (Instant::now(), Duration::from_secs_f64(seconds));
        let mut commands = 0;
        while started.elapsed() < length {
            for (number, connection) in self.connections.iter_mut().enumerate() {
                for _ in 0..depth {
                    let key = match verb {
                        // Half of the keys are absent at first, and fewer later.
                        Verb::SetNx => self.random.below(2 * self.keys),
                        // A key can be let go once.
                        Verb::Release => (self.released + 1) % self.keys,
                        // A client has a few locks of its own.
                        Verb::Lock => 100 * number + connection.turns / 2 % 100,
                        Verb::Set | Verb::Incr | Verb::HSet | Verb::Get => self.random.below(self.keys),
                    };
                    self.released += usize::from(matches!(verb, Verb::Release));
                    connection.ask(verb, key, &self.value, &self.expiry);
                }
                connection.send()?;
            }
            self.connections.iter_mut().try_for_each(Connection::receive)?;
            commands += depth * self.connections.len();
        }
        Ok(commands)
    }
}

/// Requests of any kind: words between single spaces.
impl Load {
    /// Sends the next requests, which `next` makes of their number, so many batches on every connection.
    pub(crate) fn drive_with(&mut self, next: Next, depth: usize, batches: usize) -> Result<(), String> {
        let mut line = String::new();
        for _ in 0..batches {
            for connection in &mut self.connections {
                for _ in 0..depth {
                    line.clear();
                    next(&mut line, &mut self.random, self.sent);
                    connection.ask_any(&line);
                    self.sent += 1;
                }
                connection.send()?;
            }
            self.connections.iter_mut().try_for_each(Connection::receive)?;
        }
        Ok(())
    }

    /// Sends each request once, on the first connection.
    pub(crate) fn send_all(&mut self, requests: impl Iterator<Item = String>) -> Result<(), String> {
        let Some(connection) = self.connections.first_mut() else { return Ok(()) };
        for request in requests {
            connection.ask_any(&request);
            if connection.awaited == FILL_DEPTH {
                connection.send()?;
                connection.receive()?;
            }
        }
        connection.send()?;
        connection.receive()
    }
}

impl Connection {
    /// Puts a request into the batch.
    fn ask_any(&mut self, line: &str) {
        let words = line.split(' ');
        let mut written = write!(self.requests, "*{}\r\n", words.clone().count());
        for word in words {
            written = written.and_then(|()| write!(self.requests, "${}\r\n{word}\r\n", word.len()));
        }
        written.expect("memory takes all that is written");
        self.awaited += 1;
    }

    fn open(address: SocketAddr) -> Result<Connection, String> {
        let opened = TcpStream::connect(address).and_then(|stream| {
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            Ok(stream)
        });
        let stream = opened.map_err(|error| format!("could not connect to {address}: {error}"))?;
        Ok(Connection { stream, requests: Vec::new(), turns: 0, awaited: 0, partial: Vec::new() })
    }

    /// Puts a request on a key of 16 bytes into the batch.
    fn ask(&mut self, verb: Verb, key: usize, value: &str, expiry: &str) {
        let length = value.len();
        let parts = if expiry.is_empty() { 3 } else { 5 };
        let written = match verb {
            Verb::Incr => write!(self.requests, "*2\r\n$4\r\nINCR\r\n$16\r\nnum:{key:012}\r\n"),
            Verb::HSet => write!(
                self.requests,
                "*4\r\n$4\r\nHSET\r\n$16\r\nmap:{:012}\r\n$4\r\nf{:03}\r\n${length}\r\n{value}\r\n",
                key / FIELDS,
                key % FIELDS
            ),
            Verb::Get => write!(self.requests, "*2\r\n$3\r\nGET\r\n$16\r\nkey:{key:012}\r\n"),
            Verb::SetNx => {
                write!(self.requests, "*3\r\n$5\r\nSETNX\r\n$16\r\nkey:{key:012}\r\n${length}\r\n{value}\r\n")
            }
            Verb::Lock if self.turns.is_multiple_of(2) => write!(
                self.requests,
                "*6\r\n$3\r\nSET\r\n$16\r\nkey:{key:012}\r\n${length}\r\n{value}\r\n\
                 $2\r\nNX\r\n$2\r\nPX\r\n$5\r\n30000\r\n"
            ),
            Verb::Lock => write!(
                self.requests,
                "*3\r\n$7\r\nDELIFEQ\r\n$16\r\nkey:{key:012}\r\n${length}\r\n{value}\r\n"
            ),
            Verb::Release => write!(
                self.requests,
                "*5\r\n$7\r\nEVALSHA\r\n$40\r\n{RELEASE_DIGEST}\r\n$1\r\n1\r\n$16\r\nkey:{key:012}\r\n\
                 ${length}\r\n{value}\r\n"
            ),
            Verb::Set => write!(
                self.requests,
                "*{parts}\r\n$3\r\nSET\r\n$16\r\nkey:{key:012}\r\n${length}\r\n{value}\r\n{expiry}"
            ),
        };
        written.expect("memory takes all that is written");
        self.turns += usize::from(matches!(verb, Verb::Lock));
        self.awaited += 1;
    }

    fn send(&mut self) -> Result<(), String> {
        let sent = self.stream.write_all(&self.requests);
        self.requests.clear();
        sent.map_err(|error| format!("the server takes no requests: {error}"))
    }

    /// Reads until every request is answered.
    fn receive(&mut self) -> Result<(), String> {
        let mut piece = [0; 64 << 10];
        while self.awaited > 0 {
            let length = self.stream.read(&mut piece).map_err(|error| format!("no reply: {error}"))?;
            if length == 0 {
                return Err("the server closed a connection".to_owned());
            }
            self.partial.extend_from_slice(&piece[..length]);
            let mut rest = self.partial.as_slice();
            while let Some(reply) = reply_length(rest)? {
                rest = &rest[reply..];
                self.awaited -= 1;
            }
            let done = self.partial.len() - rest.len();
            self.partial.drain(..done);
        }
        Ok(())
    }
}

/// The length of the whole reply that `bytes` begin with.
fn reply_length(bytes: &[u8]) -> Result<Option<usize>, String> {
    let (mut length, mut parts) = (0, 1);
    while parts > 0 {
        let rest = bytes.get(length..).unwrap_or_default();
        let Some(line) = rest.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
        let number =
            || rest[1..line - 1].iter().fold(0, |number, digit| 10 * number + usize::from(digit - b'0'));
        parts -= 1;
        length += match rest[0] {
            b'+' | b':' => line + 1,
            b'$' | b'*' if rest[1] == b'-' => line + 1,
            b'$' => line + 1 + number() + 2,
            b'*' => {
                parts += number();
                line + 1
            }
            _ => return Err(format!("the server answered {}", rest[..line].escape_ascii())),
        };
    }
    Ok(Some(length).filter(|length| *length <= bytes.len()))
}
