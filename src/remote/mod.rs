//! Keys that live in a store outside this process: a database that several servers share.
//!
//! `store` names the store, and `store-keys` says which keys live there. All other keys live in memory. A
//! server of several on one store is a front-end: it holds nothing that matters, and may start and stop at
//! any time.
//!
//! A request runs on a guess of the rows of its keys: as this front-end saw them last, or absent. What it has
//! read and what it writes then travels to the store in a [`batch`] with those of other clients. The store
//! makes the writes of a request if all rows are as they were guessed. Otherwise it returns the rows, and the
//! request runs again. So a right guess costs one statement, and a wrong guess costs one more.
//!
//! - [`places`] decides which keys live in the store.
//! - [`row`] is a key with its value, as the store has it.
//! - [`clock`] estimates what time it is at the store.
//! - [`hints`] keeps rows that were seen last.
//! - [`forming`] collects the requests of the next batch.
//! - [`gathering`] lets a batch wait shortly for more requests.
//! - [`lane`] sends one batch after the other.
//! - [`news`] is what front-ends send each other, and [`seal`] proves that they have.
//! - [`passwords`] finds the store's password.
//! - [`whole`] is for requests about all keys.
//! - [`postgres`] is the store that speaks PostgreSQL's protocol.
//! - [`etcd`] is the store that is etcd.

#![cfg_attr(
    not(any(feature = "etcd", feature = "postgres")),
    allow(dead_code, unused_imports, reason = "no store is built in")
)]

pub mod batch;
pub mod clock;
#[cfg(feature = "etcd")]
mod etcd;
mod forming;
mod gathering;
mod health;
mod hints;
mod lane;
pub mod news;
mod passwords;
pub mod places;
#[cfg(feature = "postgres")]
mod postgres;
pub mod row;
#[cfg(feature = "postgres")]
mod seal;
mod store;
mod target;
mod tls;
pub mod whole;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use crate::config::{Config, Text};
use batch::{Attempt, Seat, Ticket};
use clock::StoreClock;
pub use forming::Looked;
use forming::{Forming, InFlight};
pub use health::Health;
use hints::Hints;
pub use lane::{answer_questions, exchange_news, run};
use news::{News, Outgoing};
use places::Places;
use row::{Key, KeyMap, Row};
pub use target::{BadTarget, Limits, Target, without_password};
pub use tls::TlsFiles;
use whole::{Answering, NotTold, Question, Questions};

/// The most requests that wait for a place in a batch. More are refused.
const WAITING_MAX: usize = 10_000;

/// The settings of a front-end.
#[derive(Debug)]
pub struct Settings {
    /// Where the store is.
    pub target: Target,
    /// Which keys live there.
    pub places: Places,
    /// How many databases clients may name.
    pub databases: usize,
    /// The name by which people know this front-end.
    pub name: String,
    /// How long a request waits for the store at most.
    pub patience: Duration,
    /// The most requests that travel in one batch.
    pub batch_requests_max: usize,
    /// The files for TLS.
    pub tls: TlsFiles,
}

impl Settings {
    /// The settings in the parameters; `None` without a store.
    ///
    /// # Errors
    ///
    /// With one line for people.
    pub fn of(config: &Config) -> Result<Option<Settings>, String> {
        let text = |text: &Text| String::from_utf8_lossy(&text.get()).into_owned();
        let url = text(&config.store);
        if url.is_empty() {
            return match *config.store_keys.get() == *b"*" {
                true => Ok(None),
                false => Err("`store-keys` says which keys live in a store, and there is none: `store` is \
                              missing. Without it, these keys would live in the memory of this server"
                    .to_owned()),
            };
        }
        let password = passwords::of(config, &url)?;
        let target = Target::parse_with(&url, password.as_deref())
            .map_err(|BadTarget(why)| format!("`store` cannot be read: {why}"))?;
        let name = match text(&config.store_name) {
            name if name.is_empty() => format!("{}:{}", machine_name(), config.port.get()),
            name => name,
        };
        Ok(Some(Settings {
            target,
            places: Places::new(&config.store_keys.get()),
            databases: config.databases.size(),
            name,
            patience: Duration::from_millis(config.store_timeout.size() as u64),
            batch_requests_max: config.store_batch_max.size(),
            tls: TlsFiles {
                authorities: config.file_of(&config.store_tls_ca_cert_file),
                certificate: config.file_of(&config.store_tls_cert_file),
                key: config.file_of(&config.store_tls_key_file),
            },
        }))
    }
}

/// The name of this machine, as Linux knows it.
fn machine_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

/// The store, as the clients of this front-end reach it.
#[derive(Debug)]
pub struct Remote {
    /// What the front-end was started with.
    pub settings: Settings,
    /// The time at the store.
    pub clock: StoreClock,
    /// The state of the store.
    pub health: Health,
    state: Mutex<State>,
    /// Wakes the lane when there is something to send.
    work: Notify,
    /// The number by which the store knows this front-end; 0 before it does.
    front: AtomicI64,
    /// News for other front-ends.
    outgoing: Outgoing,
    /// Questions about all keys.
    questions: Questions,
    /// Whether memory has keys that live in the store: they were loaded, and no client sees them.
    has_leftovers: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    forming: Forming,
    /// The lane is woken when so many requests have joined.
    wake_at: usize,
    in_flight: InFlight,
    hints: Hints,
    listeners: KeyMap<Vec<Arc<Notify>>>,
}

/// Why a request could not join a batch.
#[derive(Debug)]
pub enum NotJoined {
    /// A row that it has read has changed meanwhile. The caller looks and runs it again.
    Changed,
    /// A batch has to come to its end first.
    After(Ticket),
    /// Too many requests wait already.
    Full,
    /// The batch has left in which the client's other request is.
    Left,
}

impl Remote {
    /// A store that is not connected yet.
    pub fn new(settings: Settings) -> Remote {
        Remote {
            settings,
            clock: StoreClock::default(),
            health: Health::default(),
            state: Mutex::default(),
            work: Notify::new(),
            front: AtomicI64::new(0),
            outgoing: Outgoing::default(),
            questions: Questions::default(),
            has_leftovers: AtomicBool::new(false),
        }
    }

    /// Notes that memory has keys that live in the store.
    pub fn set_leftovers(&self) {
        self.has_leftovers.store(true, Ordering::Relaxed);
    }

    /// Whether memory has keys that live in the store.
    pub fn has_leftovers(&self) -> bool {
        self.has_leftovers.load(Ordering::Relaxed)
    }

    /// Whether a key in memory is hidden, since it lives in the store.
    pub fn hides(&self, key: &[u8]) -> bool {
        self.has_leftovers() && self.settings.places.has(key)
    }

    /// The rows of these keys, as far as they can be guessed. `told` are those that the store has returned to
    /// the request before: long ones are not kept as hints. A request that only reads, and that travels in
    /// this seat, sees them as they were before the batch.
    pub fn look(
        &self,
        keys: &[Key],
        told: Option<&KeyMap<Arc<Row>>>,
        reads_in: Option<Option<Seat>>,
    ) -> Looked {
        if self.health.is_away.load(Ordering::Relaxed) {
            return Looked::Away;
        }
        let mut state = self.state.lock();
        let State { forming, in_flight, hints, .. } = &mut *state;
        if let Some(ticket) = in_flight.wait_for(keys.iter()) {
            return Looked::After(ticket);
        }
        let (now_ms, is_kept) = (self.clock.now_ms(), self.settings.target.removes_what_expires());
        let mut guess = |key: &Key| {
            let mut row = hints.get(key);
            if row.live.is_none()
                && let Some(told) = told.and_then(|told| told.get(key))
            {
                row = Arc::clone(told);
            }
            match !is_kept && row.expires_at_ms().is_some_and(|moment_ms| moment_ms <= now_ms) {
                // It has expired, as far as can be known here. The store checks that.
                true => Arc::new(Row { version: row.version, ..Row::default() }),
                false => row,
            }
        };
        let is_before = reads_in.is_some_and(|beside| forming.reads_before(beside));
        let row = |key| if is_before { forming.before(key) } else { forming.image(key) };
        Looked::Rows(keys.iter().map(|key| row(key).unwrap_or_else(|| guess(key))).collect())
    }

    /// Adds a request to the next batch. The ticket returns its verdict. The caller calls
    /// [`set_off`](Self::set_off) once it has added all that it has.
    ///
    /// # Errors
    ///
    /// [`NotJoined`]
    pub fn join(&self, mut attempt: Attempt) -> Result<(Ticket, Seat), NotJoined> {
        let mut state = self.state.lock();
        let State { forming, in_flight, .. } = &mut *state;
        if let Some(ticket) = in_flight.wait_for(attempt.parts.iter().map(|part| &part.key)) {
            return Err(NotJoined::After(ticket));
        }
        let limits = self.settings.target.limits();
        let is_over = forming.requests() >= self.settings.batch_requests_max
            || forming.bytes() + attempt.bytes() > limits.batch_bytes
            || forming.weight_with(&attempt) > limits.batch_weight;
        if is_over && forming.requests() > 0 {
            // Once a batch has come to its end, the next one has left.
            return Err(match in_flight.waiting() < WAITING_MAX {
                true => NotJoined::After(in_flight.wait()),
                false => NotJoined::Full,
            });
        }
        carry_lifetimes(forming, &mut attempt);
        forming.join(attempt)
    }

    /// Lets the next batch leave, if enough requests have joined it.
    pub fn set_off(&self) {
        let state = self.state.lock();
        let is_enough = state.forming.requests() >= state.wake_at;
        drop(state);
        if is_enough {
            self.work.notify_one();
        }
    }

    /// How many requests have joined the next batch.
    fn formed(&self) -> usize {
        self.state.lock().forming.requests()
    }

    /// Waits until so many have, for the lane.
    async fn has_formed(&self, requests: usize) {
        loop {
            {
                let mut state = self.state.lock();
                if state.forming.requests() >= requests {
                    return;
                }
                state.wake_at = requests;
            }
            self.work.notified().await;
        }
    }

    /// Begins to listen for changes of these keys. It ends when the listening is dropped.
    pub fn listen(self: &Arc<Remote>, keys: Vec<Key>) -> Listening {
        let woken = Arc::new(Notify::new());
        let mut state = self.state.lock();
        for key in &keys {
            state.listeners.entry(key.clone()).or_default().push(Arc::clone(&woken));
        }
        drop(state);
        // The other front-ends learn that changes are wanted.
        self.outgoing.work.notify_one();
        Listening { remote: Arc::clone(self), keys, woken }
    }

    /// Notes that a client keeps copies of keys from now on, so that the other front-ends soon learn that
    /// changes are wanted.
    pub fn want_changes(&self) {
        self.outgoing.work.notify_one();
    }

    /// Sends news to the other front-ends, at most once.
    pub fn tell(&self, news: &News) {
        self.outgoing.tell(news);
    }

    /// The number by which the store knows this front-end, once it does.
    fn front(&self) -> Option<i64> {
        Some(self.front.load(Ordering::Relaxed)).filter(|front| *front > 0)
    }

    /// Forgets the guess of a key that has changed elsewhere, and wakes the clients that listen for it.
    fn changed_elsewhere(&self, key: &Key) {
        let mut state = self.state.lock();
        state.hints.forget(key);
        state.wake(key);
    }

    /// Asks a question about all keys.
    pub fn ask(&self, question: Question) -> Answering {
        let (sender, answering) = oneshot::channel();
        if let Err(refused) = self.questions.sender.try_send((question, sender)) {
            let why = NotTold::NotDone("too many requests wait for it".into());
            let _ = refused.into_inner().1.send(Err(why));
        }
        answering
    }

    /// Forgets all guesses, and wakes all clients that listen: news may have been lost.
    pub fn look_again(&self) {
        self.state.lock().look_again();
    }

    /// Whether a client waits for a change.
    fn has_listeners(&self) -> bool {
        !self.state.lock().listeners.is_empty()
    }
}

impl State {
    fn look_again(&mut self) {
        self.hints.clear();
        self.listeners.values().flatten().for_each(|woken| woken.notify_one());
    }

    fn wake(&self, key: &Key) {
        if !self.listeners.is_empty() {
            self.listeners.get(key).into_iter().flatten().for_each(|woken| woken.notify_one());
        }
    }
}

/// A key that takes over the expiry of another one (RENAME, COPY) lives as long as that one. In the batch
/// that forms, this may still be a span of time that begins when the store writes it.
fn carry_lifetimes(forming: &Forming, attempt: &mut Attempt) {
    let lifetime_of = |expires_at_ms: u64| {
        let mut sources =
            attempt.parts.iter().filter(|part| part.seen.expires_at_ms() == Some(expires_at_ms));
        sources.find_map(|part| forming.lifetime_ms(&part.key))
    };
    let mut carried = Vec::new();
    for (index, part) in attempt.parts.iter().enumerate() {
        let expires_at_ms = part.written.as_ref().and_then(|row| row.expires_at_ms());
        if part.lifetime_ms.is_none()
            && let Some(expires_at_ms) = expires_at_ms.filter(|_| part.seen.expires_at_ms() != expires_at_ms)
            && let Some(lifetime_ms) = lifetime_of(expires_at_ms)
        {
            carried.push((index, lifetime_ms));
        }
    }
    for (index, lifetime_ms) in carried {
        attempt.parts[index].lifetime_ms = Some(lifetime_ms);
    }
}

/// A client that waits until one of its keys changes.
#[derive(Debug)]
pub struct Listening {
    remote: Arc<Remote>,
    keys: Vec<Key>,
    woken: Arc<Notify>,
}

impl Listening {
    /// How soon the client looks again though no change was heard of: a front-end that has lost its
    /// connection hears of none.
    const GLANCE: Duration = Duration::from_secs(1);

    /// Waits for a change, or until it is time to look again.
    pub async fn heard(&self, until: Option<Instant>) {
        let glance = Instant::now() + Listening::GLANCE;
        let until = until.map_or(glance, |until| until.min(glance));
        tokio::select! {
            () = self.woken.notified() => {}
            () = tokio::time::sleep_until(until.into()) => {}
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut state = self.remote.state.lock();
        for key in &self.keys {
            if let Some(listeners) = state.listeners.get_mut(key) {
                listeners.retain(|other| !Arc::ptr_eq(other, &self.woken));
                if listeners.is_empty() {
                    state.listeners.remove(key);
                }
            }
        }
    }
}
