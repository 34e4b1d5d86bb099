//! Clients that take locks, as many as they can, while something fails; and whether each lock has one holder.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use support::client::{Client, Reply};
use support::server::Server;
use support::store::cluster::eventually;

/// How often something fails in each of these tests; `KEYFAST_STORE_KILLS=50` for the proof.
pub(crate) fn kills() -> usize {
    std::env::var("KEYFAST_STORE_KILLS").map_or(2, |kills| kills.parse().expect("a number"))
}

/// Clients of all front-ends. One whose front-end has gone goes on with the next one.
pub(crate) struct Load {
    is_over: Arc<AtomicBool>,
    /// The locks that each has taken.
    taken: Arc<[AtomicUsize; CLIENTS]>,
    clients: Vec<thread::JoinHandle<Had>>,
}

/// What a client has had.
struct Had {
    taken: Vec<Taken>,
    /// The longest time in which it got no reply about a lock.
    outage: Duration,
}

/// A lock that was acknowledged, and the value by which its holder took it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    key: String,
    token: String,
}

const CLIENTS: usize = 8;
/// How long each waits between two turns.
const PAUSE: Duration = Duration::from_millis(20);
/// Locks after which a client has gone on.
const SOME: usize = 10;

impl Load {
    pub(crate) fn start(fronts: &[Server], round: usize) -> Load {
        let (is_over, taken) = (Arc::<AtomicBool>::default(), Arc::<[AtomicUsize; CLIENTS]>::default());
        let addresses: Vec<SocketAddr> = fronts.iter().map(Server::address).collect();
        let clients = (0..CLIENTS).map(|number| {
            let (is_over, taken) = (Arc::clone(&is_over), Arc::clone(&taken));
            let addresses = addresses.clone();
            thread::spawn(move || run((round, number), &addresses, &is_over, &taken[number]))
        });
        Load { clients: clients.collect(), is_over, taken }
    }

    /// Waits until each client has taken some more locks.
    #[track_caller]
    pub(crate) fn goes_on(&self) {
        let enough = self.taken.each_ref().map(|taken| taken.load(Ordering::Relaxed) + SOME);
        eventually("locks are taken again", || {
            assert!(!self.clients.iter().any(thread::JoinHandle::is_finished), "a client has failed");
            let mut each = self.taken.iter().zip(enough);
            each.all(|(taken, enough)| taken.load(Ordering::Relaxed) >= enough)
        });
    }

    /// Goes on until each client has taken some more locks. Returns all.
    #[track_caller]
    pub(crate) fn finish(self, outages: &mut Outages) -> Vec<Taken> {
        self.goes_on();
        self.is_over.store(true, Ordering::Relaxed);
        let (mut taken, mut outage) = (Vec::new(), Duration::ZERO);
        for client in self.clients {
            let had = client.join().expect("a list");
            taken.extend(had.taken);
            outage = outage.max(had.outage);
        }
        outages.all.push(outage);
        taken
    }
}

fn run(
    (round, number): (usize, usize),
    addresses: &[SocketAddr],
    is_over: &AtomicBool,
    taken: &AtomicUsize,
) -> Had {
    let mut had = Had { taken: Vec::new(), outage: Duration::ZERO };
    let (mut place, mut connection) = (number, None);
    let mut last = Instant::now();
    for turn in 0.. {
        // Other such tests run at the same time.
        thread::sleep(PAUSE);
        // One of its own, and one that all want.
        for key in [format!("own:{round}:{number}:{turn}"), format!("hot:{round}:{turn}")] {
            if is_over.load(Ordering::Relaxed) {
                return had;
            }
            let address = addresses[place % addresses.len()];
            let Some(client) = connected(&mut connection, address) else {
                place += 1;
                continue;
            };
            let token = format!("{number}:{turn}");
            match client.try_line(&format!("SETNX {key} {token}")) {
                Ok(Reply::Integer(is_taken @ (0 | 1))) => {
                    had.outage = had.outage.max(last.elapsed());
                    last = Instant::now();
                    if is_taken == 1 {
                        had.taken.push(Taken { key, token });
                        taken.fetch_add(1, Ordering::Relaxed);
                    }
                }
                // The lock was not acknowledged.
                Ok(Reply::Error(text)) if text.starts_with("STOREDOWN ") || text.starts_with("TRYAGAIN ") => {
                }
                Ok(other) => panic!("{key}: {other}"),
                Err(_) => {
                    connection = None;
                    place += 1;
                }
            }
        }
    }
    had
}

fn connected(connection: &mut Option<Client>, address: SocketAddr) -> Option<&mut Client> {
    if connection.is_none() {
        *connection = Client::try_connect(address).ok();
    }
    connection.as_mut()
}

/// The longest time in which a client got no reply, of each round; printed at the end.
pub(crate) struct Outages {
    what: &'static str,
    all: Vec<Duration>,
}

impl Outages {
    /// When this happens.
    pub(crate) fn when(what: &'static str) -> Outages {
        Outages { what, all: Vec::new() }
    }
}

impl Drop for Outages {
    fn drop(&mut self) {
        let rounds = self.all.len().max(1);
        let seconds = |all: Duration| all.as_secs_f64();
        println!(
            "{}, {rounds} times: outages of {:.2} s, the longest {:.2} s",
            self.what,
            seconds(self.all.iter().sum()) / rounds as f64,
            seconds(self.all.iter().max().copied().unwrap_or_default()),
        );
    }
}

/// Each acknowledged lock is still there, and has one holder.
#[track_caller]
pub(crate) fn check(fronts: &[Server], acknowledged: &[Taken]) {
    let mut keys: Vec<&str> = acknowledged.iter().map(|taken| taken.key.as_str()).collect();
    keys.sort_unstable();
    let all = keys.len();
    keys.dedup();
    assert_eq!(keys.len(), all, "two clients got one lock");
    assert_eq!(missing(fronts, acknowledged), [], "these were acknowledged");
}

/// Locks that are not there any more, or have another holder.
pub(crate) fn missing(fronts: &[Server], acknowledged: &[Taken]) -> Vec<Taken> {
    let mut missing = Vec::new();
    for front in fronts {
        let mut client = front.client();
        for some in acknowledged.chunks(50) {
            let request = std::iter::once("MGET").chain(some.iter().map(|taken| taken.key.as_str()));
            let mut items = Vec::new();
            eventually("the store can be reached", || match client.cmd(request.clone()).reply() {
                Reply::Array(found) => {
                    items = found;
                    true
                }
                Reply::Error(text) if text.starts_with("STOREDOWN ") => false,
                other => panic!("{other}"),
            });
            assert_eq!(items.len(), some.len());
            for (found, taken) in items.iter().zip(some) {
                if *found != Reply::from(taken.token.as_str()) {
                    missing.push(taken.clone());
                }
            }
        }
    }
    missing
}
