//! A client that hides nothing: it sends bytes, and compares what comes back.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use crate::server::{PATIENCE, Server, wait_until};

/// A connection to a server.
pub struct Client {
    stream: TcpStream,
    /// Bytes that came and were not yet looked at.
    received: Vec<u8>,
    sent: String,
    /// A server that no other client uses.
    _server: Option<Server>,
}

/// One reply. RESP2 has fewer kinds; null is the same for both.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    Simple(String),
    Error(String),
    Integer(i64),
    Bulk(Vec<u8>),
    Verbatim(String),
    Boolean(bool),
    Null,
    Array(Vec<Reply>),
    Set(Vec<Reply>),
    Push(Vec<Reply>),
    Map(Vec<(Reply, Reply)>),
}

/// A reply and its request, so that a failure can show both.
#[must_use = "a reply that is not checked may be an error"]
pub struct Answer {
    sent: String,
    reply: Reply,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Client {
        Client::try_connect(address).expect("the server accepts")
    }

    /// A connection to a server that may have ended.
    pub fn try_connect(address: SocketAddr) -> std::io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Ok(Client { stream, received: Vec::new(), sent: String::new(), _server: None })
    }

    /// The same connection, which keeps its server running.
    pub fn keeping(self, server: Server) -> Client {
        Client { _server: Some(server), ..self }
    }

    /// Sends a command and reads its reply.
    #[track_caller]
    pub fn cmd<A: AsRef<[u8]>>(&mut self, arguments: impl IntoIterator<Item = A>) -> Answer {
        self.send(&request(arguments));
        self.reply()
    }

    /// Sends a command given as words, with quotes as a shell has them.
    #[track_caller]
    pub fn line(&mut self, line: &str) -> Answer {
        self.cmd(words(line))
    }

    /// A field of INFO.
    #[track_caller]
    pub fn info(&mut self, name: &str) -> String {
        let text = self.line("INFO").text();
        let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        found.unwrap_or_else(|| panic!("no field {name} in {text}")).to_owned()
    }

    /// Sends bytes to a server that must take them.
    #[track_caller]
    pub fn send(&mut self, bytes: &[u8]) {
        self.sent = bytes[..bytes.len().min(200)].escape_ascii().to_string();
        self.stream.write_all(bytes).expect("the server takes what is sent");
    }

    /// Sends bytes to a server that may have closed the connection.
    pub fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends a line to a server that may end meanwhile, and reads the reply.
    pub fn try_line(&mut self, line: &str) -> std::io::Result<Reply> {
        self.try_send(&request(words(line)))?;
        Ok(Reply::decode(&self.try_reply_bytes()?).0)
    }

    /// Reads the next reply.
    #[track_caller]
    pub fn reply(&mut self) -> Answer {
        let bytes = self.reply_bytes();
        let (reply, rest) = Reply::decode(&bytes);
        assert!(rest.is_empty());
        Answer { sent: self.sent.clone(), reply }
    }

    /// Reads the bytes of the next reply.
    #[track_caller]
    pub fn reply_bytes(&mut self) -> Vec<u8> {
        match self.try_reply_bytes() {
            Ok(bytes) => bytes,
            Err(why) => panic!("no reply to {}: {why}, after {:?}", self.sent, self.received.escape_ascii()),
        }
    }

    /// Reads the bytes of the next reply, if there is one in time.
    pub fn try_reply_bytes(&mut self) -> std::io::Result<Vec<u8>> {
        loop {
            if let Some(length) = message_length(&self.received) {
                return Ok(self.received.drain(..length).collect());
            }
            if self.receive()? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }

    fn receive(&mut self) -> std::io::Result<usize> {
        let mut piece = [0; 64 << 10];
        let length = loop {
            match self.stream.read(&mut piece) {
                // The process was stopped, and goes on.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        self.received.extend_from_slice(&piece[..length]);
        Ok(length)
    }

    /// Reads so many bytes.
    #[track_caller]
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        while self.received.len() < length {
            let received = self.receive().expect("the server sends them");
            assert!(received > 0, "the server has closed the connection after {} bytes", self.received.len());
        }
        self.received.drain(..length).collect()
    }

    /// Whether the server closes the connection without another byte.
    pub fn is_closed(&mut self) -> bool {
        self.received.is_empty()
            && match self.receive() {
                Ok(length) => length == 0,
                Err(error) => error.kind() == ErrorKind::ConnectionReset,
            }
    }

    /// Whether nothing comes for so long, and the connection stays open.
    pub fn is_silent_for(&mut self, duration: Duration) -> bool {
        if message_length(&self.received).is_some() {
            return false;
        }
        self.stream.set_read_timeout(Some(duration)).unwrap();
        let received = self.receive();
        self.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        matches!(received, Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
    }

    /// Sends a line that makes the client wait. Returns when another client sees that one more waits.
    #[track_caller]
    pub fn send_and_wait(&mut self, observer: &mut Client, line: &str) {
        let waiting = |observer: &mut Client| observer.info("blocked_clients").parse().expect("a number");
        let before: usize = waiting(observer);
        self.send(&request(line.split(' ')));
        wait_until("the client waits", || waiting(observer) > before);
    }

    /// Ends what is sent, and goes on reading.
    pub fn finish_sending(&self) {
        self.stream.shutdown(Shutdown::Write).expect("an open connection");
    }

    /// Where this end is.
    pub fn local_address(&self) -> SocketAddr {
        self.stream.local_addr().expect("an address")
    }

    /// The socket itself.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }
}

impl Answer {
    /// Whatever it is, it does not matter.
    pub fn ignored(self) {}

    #[track_caller]
    fn expect(&self, expected: &Reply) {
        assert_eq!(self.reply, *expected, "the answer to {}", self.sent);
    }

    /// The reply must be this integer, or this bulk string.
    #[track_caller]
    pub fn is(&self, expected: impl Into<Reply>) {
        self.expect(&expected.into());
    }

    #[track_caller]
    pub fn is_ok(&self) {
        self.is_simple("OK");
    }

    #[track_caller]
    pub fn is_nil(&self) {
        self.expect(&Reply::Null);
    }

    #[track_caller]
    pub fn is_simple(&self, text: &str) {
        self.expect(&Reply::Simple(text.to_owned()));
    }

    #[track_caller]
    pub fn is_error(&self, text: &str) {
        self.expect(&Reply::Error(text.to_owned()));
    }

    /// The integer that the reply must be.
    #[track_caller]
    pub fn integer(&self) -> i64 {
        match &self.reply {
            Reply::Integer(integer) => *integer,
            other => panic!("{} was answered {other:?}, not an integer", self.sent),
        }
    }

    /// The text that the reply must be, of whatever kind.
    #[track_caller]
    pub fn text(&self) -> String {
        match &self.reply {
            Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Reply::Simple(text) | Reply::Verbatim(text) | Reply::Error(text) => text.clone(),
            other => panic!("{} was answered {other:?}, not a text", self.sent),
        }
    }

    /// The items of the array or set that the reply must be.
    #[track_caller]
    pub fn items(self) -> Vec<Reply> {
        match self.reply {
            Reply::Array(items) | Reply::Set(items) => items,
            other => panic!("{} was answered {other:?}, not an array", self.sent),
        }
    }

    pub fn reply(self) -> Reply {
        self.reply
    }
}

impl From<i64> for Reply {
    fn from(integer: i64) -> Reply {
        Reply::Integer(integer)
    }
}

impl From<&str> for Reply {
    fn from(text: &str) -> Reply {
        Reply::Bulk(text.as_bytes().to_vec())
    }
}

impl From<&[u8]> for Reply {
    fn from(bytes: &[u8]) -> Reply {
        Reply::Bulk(bytes.to_vec())
    }
}

impl Reply {
    /// Decodes one whole message; nesting comes from the server under test, and tests know its depth.
    pub fn decode(bytes: &[u8]) -> (Reply, &[u8]) {
        let line_length = bytes.windows(2).position(|pair| pair == b"\r\n").expect("a line");
        let (line, rest) = (&bytes[1..line_length], &bytes[line_length + 2..]);
        let text = || String::from_utf8_lossy(line).into_owned();
        let number = || text().parse::<i64>().unwrap_or_else(|_| panic!("a number, not {}", text()));
        let many = |count: usize| {
            let mut rest = rest;
            let items: Vec<Reply> = (0..count)
                .map(|_| {
                    let (item, after) = Reply::decode(rest);
                    rest = after;
                    item
                })
                .collect();
            (items, rest)
        };
        match bytes[0] {
            b'+' => (Reply::Simple(text()), rest),
            b'-' => (Reply::Error(text()), rest),
            b':' => (Reply::Integer(number()), rest),
            b'#' => (Reply::Boolean(line == b"t"), rest),
            // A number with a fraction, as its text.
            b',' => (Reply::Simple(text()), rest),
            b'_' => (Reply::Null, rest),
            b'$' | b'*' if number() == -1 => (Reply::Null, rest),
            b'$' | b'=' => {
                let (value, rest) = rest.split_at(number() as usize);
                let value = match bytes[0] {
                    b'$' => Reply::Bulk(value.to_vec()),
                    _ => Reply::Verbatim(String::from_utf8_lossy(&value[4..]).into_owned()),
                };
                (value, &rest[2..])
            }
            b'*' | b'~' | b'>' => {
                let (items, rest) = many(number() as usize);
                let make = match bytes[0] {
                    b'*' => Reply::Array,
                    b'~' => Reply::Set,
                    _ => Reply::Push,
                };
                (make(items), rest)
            }
            b'%' => {
                let (items, rest) = many(2 * number() as usize);
                let mut items = items.into_iter();
                let pairs = std::iter::from_fn(|| Some((items.next()?, items.next()?)));
                (Reply::Map(pairs.collect()), rest)
            }
            other => panic!("a message that begins with {:?}", char::from(other)),
        }
    }
}

/// As redis-cli prints it, but on one line.
impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |items: &[Reply]| items.iter().map(Reply::to_string).collect::<Vec<_>>().join(", ");
        match self {
            Reply::Simple(text) | Reply::Verbatim(text) => f.write_str(text),
            Reply::Error(text) => write!(f, "(error) {text}"),
            Reply::Integer(integer) => write!(f, "(integer) {integer}"),
            Reply::Bulk(bytes) => write!(f, "\"{}\"", String::from_utf8_lossy(bytes)),
            Reply::Boolean(value) => write!(f, "({value})"),
            Reply::Null => f.write_str("(nil)"),
            Reply::Array(items) | Reply::Set(items) | Reply::Push(items) => write!(f, "[{}]", list(items)),
            Reply::Map(pairs) => {
                let items: Vec<Reply> = pairs.iter().flat_map(|(k, v)| [k.clone(), v.clone()]).collect();
                write!(f, "[{}]", list(&items))
            }
        }
    }
}

/// A request as bytes.
pub fn request<A: AsRef<[u8]>>(arguments: impl IntoIterator<Item = A>) -> Vec<u8> {
    let mut body = Vec::new();
    let mut count = 0;
    for argument in arguments {
        let argument = argument.as_ref();
        body.extend(format!("${}\r\n", argument.len()).bytes());
        body.extend(argument);
        body.extend(b"\r\n");
        count += 1;
    }
    [format!("*{count}\r\n").into_bytes(), body].concat()
}

/// Splits a line into words; double quotes hold blanks.
pub fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (number, part) in line.split('"').enumerate() {
        match number % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    words
}

/// The length of the first whole message in `bytes`, found without recursion.
fn message_length(bytes: &[u8]) -> Option<usize> {
    let (mut at, mut missing) = (0, 1_u64);
    while missing > 0 {
        let rest = &bytes[at..];
        let line = rest.windows(2).position(|pair| pair == b"\r\n")?;
        let number = || std::str::from_utf8(&rest[1..line]).ok()?.parse::<i64>().ok();
        let count = |factor: u64| number().map_or(0, |count| factor * u64::try_from(count).unwrap_or(0));
        at += line + 2;
        missing -= 1;
        match rest[0] {
            b'$' | b'=' => {
                if let Ok(length) = usize::try_from(number()?) {
                    at += length + 2;
                }
            }
            b'*' | b'~' | b'>' => missing += count(1),
            b'%' => missing += count(2),
            _ => {}
        }
        if at > bytes.len() {
            return None;
        }
    }
    Some(at)
}
