//! Who is connected: what one client may know of another, and how it can be made to leave.
//!
//! Each connection registers a [`Client`] and is the only one to describe it; CLIENT LIST, CLIENT KILL, the
//! sweep of idle clients and the shutdown come from other threads.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::resp::Protocol;

/// All clients that are connected.
#[derive(Debug, Default)]
pub struct Clients {
    connected: Mutex<BTreeMap<u64, Arc<Client>>>,
    count: AtomicUsize,
    last_id: AtomicU64,
}

/// One client, as others see it.
#[derive(Debug)]
pub struct Client {
    /// A number that no other client of this server has or had.
    pub id: u64,
    /// Where it connects from.
    pub address: SocketAddr,
    /// Where it connected to.
    pub local_address: SocketAddr,
    /// The system's number of its socket.
    pub descriptor: i32,
    /// When it connected.
    pub connected_at: Instant,
    /// What it tells about itself; locked once a batch of requests.
    pub profile: Mutex<Profile>,
    leaving: AtomicU8,
    asked_to_leave: Notify,
}

/// What changes while a client is connected.
#[derive(Clone, Debug)]
pub struct Profile {
    /// CLIENT SETNAME; empty for none.
    pub name: Vec<u8>,
    /// CLIENT SETINFO LIB-NAME.
    pub lib_name: Vec<u8>,
    /// CLIENT SETINFO LIB-VER.
    pub lib_version: Vec<u8>,
    /// The database it has selected.
    pub database: usize,
    /// The protocol it speaks.
    pub protocol: Protocol,
    /// CLIENT NO-EVICT.
    pub is_kept_from_eviction: bool,
    /// CLIENT NO-TOUCH.
    pub leaves_keys_untouched: bool,
    /// The name of its last command, with its subcommand.
    pub last_command: &'static str,
    /// When that was.
    pub last_active: Instant,
    /// Bytes received that do not make a whole request yet.
    pub query_bytes: usize,
}

/// How soon a client that was asked to leave should do so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Leaving {
    /// Nobody asked.
    Not = 0,
    /// When what it has sent is answered.
    WhenAnswered = 1,
    /// At once, whatever it waits for.
    Now = 2,
}

impl Clients {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Registers a client; it is known until the answer is dropped.
    pub fn register(
        self: &Arc<Self>,
        address: SocketAddr,
        local_address: SocketAddr,
        descriptor: i32,
    ) -> Registration {
        let now = Instant::now();
        let client = Arc::new(Client {
            id: self.last_id.fetch_add(1, Ordering::Relaxed) + 1,
            address,
            local_address,
            descriptor,
            connected_at: now,
            profile: Mutex::new(Profile {
                name: Vec::new(),
                lib_name: Vec::new(),
                lib_version: Vec::new(),
                database: 0,
                protocol: Protocol::default(),
                is_kept_from_eviction: false,
                leaves_keys_untouched: false,
                last_command: "NULL",
                last_active: now,
                query_bytes: 0,
            }),
            leaving: AtomicU8::new(Leaving::Not as u8),
            asked_to_leave: Notify::new(),
        });
        self.connected.lock().insert(client.id, Arc::clone(&client));
        self.count.fetch_add(1, Ordering::Relaxed);
        Registration { clients: Arc::clone(self), client }
    }

    /// All clients, the eldest first.
    pub fn all(&self) -> Vec<Arc<Client>> {
        self.connected.lock().values().cloned().collect()
    }
}

/// Keeps a client registered.
#[derive(Debug)]
pub struct Registration {
    clients: Arc<Clients>,
    /// The client.
    pub client: Arc<Client>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.clients.connected.lock().remove(&self.client.id);
        self.clients.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Client {
    /// Asks the client to leave. A wish for more haste replaces one for less.
    pub fn ask_to_leave(&self, leaving: Leaving) {
        self.leaving.fetch_max(leaving as u8, Ordering::Release);
        self.asked_to_leave.notify_waiters();
    }

    /// What it was asked.
    pub fn leaving(&self) -> Leaving {
        match self.leaving.load(Ordering::Acquire) {
            0 => Leaving::Not,
            1 => Leaving::WhenAnswered,
            _ => Leaving::Now,
        }
    }

    /// Waits until the client is asked to leave at least as soon as `leaving`.
    pub async fn asked_to_leave(&self, leaving: Leaving) {
        loop {
            // Made before the look: whoever asks after the look wakes it.
            let notified = self.asked_to_leave.notified();
            if self.leaving() >= leaving {
                return;
            }
            notified.await;
        }
    }
}
