//! A MIGRATE from its first run to its reply: what it sends to the target, and the target's replies.
//!
//! The command's handler and the client's runner take turns. The handler holds the keys: it fills a batch of
//! [`Parcel`]s. The runner holds nothing: it sends them and reads the replies, while others are served. Then
//! the handler runs again, deletes what has arrived and is still what was sent, and fills the next batch.

use std::time::{Duration, Instant};

use tokio::io::BufReader;
use tokio::net::TcpStream;

use crate::keyspace::KeySurvey;
use crate::values::Kept;

/// How far the request is.
#[derive(Debug)]
pub struct Migration {
    /// Where the keys go.
    pub target: Target,
    /// The connection to the target, once it is open.
    pub connection: Option<BufReader<TcpStream>>,
    /// What is to be sent now, or was sent. Without any, the request waits until another one that gives a key
    /// away has ended.
    pub parcels: Vec<Parcel>,
    /// The position in the request of the next key.
    pub next: usize,
    /// How many keys have arrived.
    pub arrived: usize,
    /// The first error.
    pub failure: Option<Vec<u8>>,
    /// Whether nothing more can be sent.
    pub is_over: bool,
    /// Since when it waits for another request that gives its next key away.
    waits_since: Option<Instant>,
}

/// Another server, and how to talk to it.
#[derive(Debug)]
pub struct Target {
    /// Its name or address, as the client has it.
    pub host: Vec<u8>,
    /// Its port, as the client has it.
    pub port: Vec<u8>,
    /// What AUTH gets there, if it is sent.
    pub login: Option<Vec<Vec<u8>>>,
    /// The database for the keys.
    pub database: i64,
    /// How long each step may take.
    pub timeout: Duration,
}

/// A key on its way.
#[derive(Debug)]
pub struct Parcel {
    /// The name of the key.
    pub key: Box<[u8]>,
    /// What is sent.
    pub cargo: Cargo,
    /// The claim on the key, which says whether it has changed since. A request that copies has none.
    pub survey: Option<KeySurvey>,
    /// How often its value has been sent, with this time.
    pub sent: u32,
    /// The value that is sent this time, once the runner has made a payload of it.
    pub packed: Option<Packed>,
    /// The value that the target has got before, and may still have.
    pub former: Option<Packed>,
    /// What has come of it.
    pub receipt: Receipt,
}

/// What is sent for a key.
#[derive(Debug)]
pub enum Cargo {
    /// Its value. `None` once the runner has taken it.
    Value(Option<Freight>),
    /// That it is to be deleted, if it is still what was sent before: that is no longer right.
    Withdrawal,
}

/// By what a value is known again that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    /// The fingerprint, which does not depend on the order of elements that have none.
    pub fingerprint: [u8; 20],
    /// Bytes of the value, about.
    pub bytes: usize,
}

/// A value as it was under its lock.
#[derive(Debug)]
pub struct Freight {
    /// The value, apart from its key.
    pub value: Kept,
    /// When it expires, in milliseconds since 1970.
    pub expires_at_ms: Option<u64>,
    /// The fencing number of a lock that has one.
    pub fence: Option<u64>,
    /// Whether it may replace a value of the target.
    pub replaces: bool,
}

/// What the target has replied to a parcel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receipt {
    /// It has not replied.
    Unknown,
    /// What was asked.
    Done,
    /// It has replied with an error.
    Refused,
}

impl Migration {
    /// For a target, and keys that begin at this position of the request.
    pub fn new(target: Target, first: usize) -> Migration {
        Migration {
            target,
            connection: None,
            parcels: Vec::new(),
            next: first,
            arrived: 0,
            failure: None,
            is_over: false,
            waits_since: None,
        }
    }

    /// Whether it has waited for another request for as long as a step may take. What is sent ends the wait.
    pub fn has_waited_in_vain(&mut self) -> bool {
        if !self.parcels.is_empty() {
            self.waits_since = None;
            return false;
        }
        self.waits_since.get_or_insert_with(Instant::now).elapsed() >= self.target.timeout
    }

    /// Notes an error, unless there was one before.
    pub fn fail(&mut self, text: &[u8]) {
        self.failure.get_or_insert_with(|| text.to_vec());
    }

    /// Ends the talk with the target, with an error.
    pub fn break_off(&mut self, text: &[u8]) {
        self.fail(text);
        self.is_over = true;
        self.connection = None;
    }
}
