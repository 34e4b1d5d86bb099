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
//! - [`store_keys`] decides which keys live in the store.
//! - [`row`] is a key with its value, as the store has it.
//! - [`clock`] estimates what time it is at the store.
//! - [`hints`] keeps rows that were seen last.
//! - [`forming`] collects the requests of the next batch.
//! - [`gathering`] lets a batch wait shortly for more requests.
//! - [`sender`] sends one batch after the other.
//! - [`lines`] are those in which clients wait for keys.
//! - [`turns`] are keys that front-ends leave to each other.
//! - [`news`] is what front-ends send each other, and [`seal`] proves that they have.
//! - [`guards`] are locks that live as long as a connection, or whose holders hear of their loss, and
//!   [`permits`] those that several clients hold.
//! - [`hosts`] finds the host that can be used.
//! - [`passwords`] finds the store's password.
//! - [`all_keys`] is for requests about all keys.
//! - [`postgres`] is the store that speaks PostgreSQL's protocol.
//! - [`etcd`] is the store that is etcd.

#![cfg_attr(
    not(any(feature = "etcd", feature = "postgres")),
    allow(dead_code, unused_imports, reason = "no store is built in")
)]

pub(crate) mod all_keys;
pub(crate) mod batch;
pub(crate) mod clock;
#[cfg(feature = "etcd")]
mod etcd;
mod forming;
mod gathering;
mod guards;
mod health;
mod hints;
mod hosts;
mod lines;
pub(crate) mod news;
mod passwords;
mod permits;
#[cfg(feature = "postgres")]
mod postgres;
pub(crate) mod row;
#[cfg(feature = "postgres")]
mod seal;
mod sender;
mod store;
pub(crate) mod store_keys;
mod target;
mod tls;
mod turns;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use crate::clients::{self, Waiting};
use crate::config::{Config, Text};
use crate::platform::system;
use crate::values::STRING_KIND;
use crate::waiting;
use all_keys::{Answering, NotTold, Question, Questions};
use batch::{Attempt, Seat, Ticket};
use clock::{OnJump, StoreClock};
pub(crate) use forming::Looked;
use forming::{Forming, InFlight};
use guards::Guards;
pub(crate) use guards::{OwnWrites, Promised, StoreWish};
pub(crate) use health::Health;
use hints::Hints;
pub(crate) use lines::{AwaitedLock, Known, Lacked, WaitsFor};
use lines::{Lines, OpenBatches, Step, Stood};
use news::{Became, Ears, News, Outgoing};
use row::{Key, KeyMap, Row};
pub(crate) use sender::serve;
use store_keys::StoreKeys;
pub(crate) use target::{BadTarget, Target, without_password};
pub(crate) use tls::TlsFiles;
use turns::{Purpose, Turns, WRITES};

/// The most requests that wait for a place in a batch. More are refused.
const WAITING_MAX: usize = 10_000;

/// The settings of a front-end.
#[derive(Debug)]
pub struct Settings {
    /// Where the store is.
    pub target: Target,
    /// Which keys live there.
    pub store_keys: StoreKeys,
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
    /// How far ahead the clock of a store may be that it connects to.
    pub clock_jump_max: Duration,
    /// What is done if it is further ahead.
    pub on_clock_jump: OnJump,
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
            name if name.is_empty() => format!("{}:{}", system::machine_name(), config.port.get()),
            name => name,
        };
        Ok(Some(Settings {
            target,
            store_keys: StoreKeys::new(&config.store_keys.get()),
            databases: config.databases.size(),
            name,
            patience: Duration::from_millis(config.store_timeout.size() as u64),
            batch_requests_max: config.store_batch_max.size(),
            clock_jump_max: Duration::from_millis(config.store_clock_jump_max.size() as u64),
            on_clock_jump: match config.store_clock_jump.get() {
                0 => OnJump::Correct,
                _ => OnJump::Refuse,
            },
            tls: TlsFiles {
                authorities: config.file_of(&config.store_tls_ca_cert_file),
                certificate: config.file_of(&config.store_tls_cert_file),
                key: config.file_of(&config.store_tls_key_file),
            },
        }))
    }
}

/// The store, as the clients of this front-end reach it.
#[derive(Debug)]
pub struct Remote {
    /// What the front-end was started with.
    pub settings: Settings,
    /// The time at the store.
    pub clock: Arc<StoreClock>,
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
    /// The locks of this front-end whose holders want more than that others are refused.
    guards: Guards,
    /// Connections that are being opened.
    #[cfg(feature = "postgres")]
    rooms: postgres::Rooms,
}

#[derive(Debug, Default)]
struct State {
    forming: Forming,
    /// The lane is woken when so many requests have joined.
    wake_at: usize,
    in_flight: InFlight,
    hints: Hints,
    lines: Lines,
    turns: Turns,
}

/// Why a request could not join a batch.
#[derive(Debug)]
pub enum NotJoined {
    /// A row that it has read has changed meanwhile. The caller looks and runs it again.
    Changed,
    /// A batch has to come to its end first.
    After(Ticket),
    /// The same: it lets requests travel first that were overtaken, or that were not.
    StandsBack(Ticket),
    /// It leaves one of its keys to other front-ends: until they have had their turns, but not for longer
    /// than until this moment.
    LeavesTo(Ticket, Instant),
    /// Too many requests wait already.
    Full,
    /// The batch has left in which the client's other request is.
    Left,
}

impl Remote {
    /// A store that is not connected yet.
    pub fn new(settings: Settings) -> Remote {
        Remote {
            clock: Arc::new(match settings.target.has_clock() {
                true => StoreClock::that_may_jump(settings.clock_jump_max),
                false => StoreClock::default(),
            }),
            settings,
            health: Health::default(),
            state: Mutex::default(),
            work: Notify::new(),
            front: AtomicI64::new(0),
            outgoing: Outgoing::default(),
            questions: Questions::default(),
            guards: Guards::default(),
            #[cfg(feature = "postgres")]
            rooms: postgres::Rooms::default(),
        }
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
        let State { forming, in_flight, turns, .. } = &mut *state;
        if let Some(ticket) = in_flight.wait_for(attempt.parts.iter().map(|part| &part.key)) {
            return Err(NotJoined::After(ticket));
        }
        for part in attempt.parts.iter().filter(|part| part.written.is_some()) {
            if let Some(until) = turns.left_until(&part.key, WRITES, Instant::now()) {
                return Err(NotJoined::LeavesTo(turns.wait(&part.key), until));
            }
        }
        let limits = self.settings.target.limits();
        let is_over = forming.requests() >= self.settings.batch_requests_max
            || forming.bytes() + attempt.bytes() > limits.batch_bytes
            || forming.weight_with(&attempt) > limits.batch_weight
            || forming.draws_with(&attempt) > limits.batch_draws;
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

    /// Begins to wait for values in these keys, each of which is named once. The client stands in the lines
    /// of the keys until what is returned is dropped.
    pub fn listen(self: &Arc<Remote>, keys: Arc<[Key]>, wants: WaitsFor, known: Option<Known>) -> Listening {
        let Stood { ticket, woken, before } = self.state.lock().lines.stand(keys, wants, known);
        // As if its time were up.
        before.inspect(|client| _ = client.end_waiting(Waiting::TimedOut));
        // The other front-ends learn that changes are wanted.
        self.outgoing.work.notify_one();
        Listening { remote: Arc::clone(self), ticket, woken }
    }

    /// Asks the other front-ends to leave these keys to a request here that writes them, and that others have
    /// been faster than. They do so until what is returned is dropped.
    pub fn ask_turn(self: &Arc<Remote>, keys: Vec<Key>) -> Turn {
        let mut state = self.state.lock();
        keys.iter().for_each(|key| state.turns.ask(key, Instant::now()));
        self.tell_turns(&mut state);
        drop(state);
        Turn { remote: Arc::clone(self), keys }
    }

    fn tell_turns(&self, state: &mut State) {
        state.turns.take_news().iter().for_each(|news| self.outgoing.tell(news));
    }

    /// Hears that another front-end asks for a turn, or has had it.
    fn hear_asked(&self, front: i64, key: &Key, purpose: Purpose, is_over: bool) {
        let mut state = self.state.lock();
        state.turns.hear(front, (key, purpose), is_over);
        let open = state.open_batches();
        if is_over {
            state.lines.go_on(key, purpose, open);
        }
    }

    /// Forgets front-ends that have gone.
    fn tidy_fronts(&self) {
        self.outgoing.tidy();
        self.state.lock().turns.keep(|front| self.outgoing.knows(front));
    }

    /// The keys for which clients wait, with the versions of their rows as they were seen last.
    #[cfg(feature = "postgres")]
    fn seen(&self) -> Vec<(Key, i64)> {
        self.state.lock().lines.seen().map(|(key, version)| (key.clone(), version)).collect()
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

    /// Forgets the guess of a key that has changed elsewhere, and calls the clients that wait for it.
    fn changed_elsewhere(&self, key: &Key) {
        let mut state = self.state.lock();
        state.in_flight.note_changed(key);
        state.hints.forget(key);
        let open = state.open_batches();
        state.lines.changed(key, open);
    }

    /// The same, where it is known what it has become.
    fn became_elsewhere(&self, key: &Key, became: Became) {
        let mut state = self.state.lock();
        state.in_flight.note_changed(key);
        state.hints.forget(key);
        state.saw(&self.clock, key, became, None, true);
    }

    /// Hears a piece of news of another front-end, and passes on what concerns clients.
    fn hear(&self, ears: &impl Ears, other: i64, news: News) {
        match &news {
            News::Here(_) | News::Tells(_) => return,
            News::Asks { key, purpose, is_over } => return self.hear_asked(other, key, *purpose, *is_over),
            News::Changed(key, became) => self.became_elsewhere(key, *became),
            News::Expired(key) => self.changed_elsewhere(key),
            News::Flushed(database) => self.was_flushed(*database),
            News::Message { .. } => {}
        }
        ears.hear(news);
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

    /// A database was emptied, or all.
    pub fn was_flushed(&self, database: Option<u32>) {
        self.guards.note_flushed(database);
        self.look_again();
    }

    /// Forgets all guesses, and calls the clients that wait: news may have been lost.
    pub fn look_again(&self) {
        self.state.lock().look_again();
    }

    /// The locks for which clients wait here, as they were seen last. Nothing is asked of the store.
    pub fn awaited_locks(&self, waits_max: usize) -> Vec<AwaitedLock> {
        self.state.lock().lines.awaited_locks(waits_max)
    }

    /// How many clients wait here for a lock, and the first of them.
    pub fn waiting_for(&self, key: &Key, shown: usize) -> (usize, Vec<Arc<clients::Client>>) {
        self.state.lock().lines.waiting_for(key, shown)
    }

    /// How a row names a client of this front-end as its holder, but for the client's name.
    pub fn name_of_client(&self, client: &clients::Client) -> String {
        format!("{} id={} addr={} ", self.settings.name, client.id, client.address)
    }

    /// Whether a client waits for a change.
    fn has_listeners(&self) -> bool {
        !self.state.lock().lines.is_empty()
    }
}

impl State {
    fn look_again(&mut self) {
        self.hints.clear();
        let open = self.open_batches();
        self.lines.all_changed(open);
    }

    /// Notes a row of the store, for those that wait for its key. `is_written` says that it was just written.
    fn saw_row(&mut self, clock: &StoreClock, key: &Key, row: &Row, is_written: bool) {
        let value = row.live.as_ref().filter(|live| live.kind == STRING_KIND).map(|live| &*live.value);
        self.saw(clock, key, Became::of(row), value, is_written);
        if !self.lines.is_empty() {
            self.lines.saw_holder(key, row);
        }
    }

    /// The same where only this is known of the row, and maybe its value.
    fn saw(&mut self, clock: &StoreClock, key: &Key, became: Became, value: Option<&[u8]>, is_written: bool) {
        if !self.lines.is_empty() {
            let open = self.open_batches();
            let left_ms = became.expires_at_ms.map(|moment_ms| moment_ms.saturating_sub(clock.now_ms()));
            let expires = left_ms.and_then(|ms| Instant::now().checked_add(Duration::from_millis(ms)));
            self.lines.saw(key, (became, expires), value, is_written, open);
        }
    }

    fn open_batches(&self) -> OpenBatches {
        OpenBatches { forming: self.forming.number(), under_way: self.in_flight.number() }
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

/// A client that waits for keys, and stands in their lines.
#[derive(Debug)]
pub struct Listening {
    remote: Arc<Remote>,
    ticket: waiting::Ticket,
    woken: Arc<Notify>,
}

impl Listening {
    /// Waits until the client is to look whether there is something for it, or until this moment.
    pub async fn heard(&self, until: Option<Instant>) {
        while let Step::Wait(next) = self.next_step() {
            let moment = [until, next].into_iter().flatten().min();
            let later = async {
                match moment {
                    Some(moment) => tokio::time::sleep_until(moment.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.woken.notified() => {}
                () = later => {}
            }
            if until.is_some_and(|until| until <= Instant::now()) {
                return;
            }
        }
    }

    /// Whether there may be something for the client, and it is its turn to look.
    pub fn is_called(&self) -> bool {
        self.next_step() == Step::Look
    }

    fn next_step(&self) -> Step {
        self.with(|lines, _, open| lines.next_step(self.ticket, open, Instant::now())).unwrap_or(Step::Look)
    }

    /// Whether the client may take something from this key, which seems to have it. Otherwise it goes on
    /// waiting: it is the turn of others.
    pub fn may_take(&self, key: &Key) -> bool {
        let may_take = |lines: &mut Lines, turns: &mut Turns, open| {
            lines.may_take(self.ticket, key, turns, open, Instant::now())
        };
        self.with(may_take).unwrap_or(true)
    }

    /// Notes that the client asks the store.
    pub fn asks(&self) {
        self.with(|lines, _, _| lines.asks(self.ticket));
    }

    /// Notes that the client takes something from a key with this batch, and whether something is left.
    pub fn takes(&self, batch: u64, key: &Key, leaves_some: bool) {
        self.with(|lines, _, open| lines.takes((self.ticket, batch), (key, leaves_some), open));
    }

    /// Notes that the client knows what came of its question to the store, and which locks it lacks, if it
    /// wants several at once.
    pub fn has_looked(&self, found_nothing: bool, lacked: &[Lacked]) {
        let (now, now_ms) = (Instant::now(), self.remote.clock.now_ms());
        self.with(|lines, turns, open| {
            if found_nothing {
                lines.lacks(self.ticket, lacked, (now, now_ms));
            }
            lines.has_looked(self.ticket, found_nothing, turns, open, now);
        });
    }

    /// Whether another attempt of the client has taken over its place. Then its ticket is no longer its own.
    pub fn has_given_way(&self) -> bool {
        !self.remote.state.lock().lines.is_place_of(self.ticket, &self.woken)
    }

    /// Does something with the client's place, if it still has it.
    fn with<T>(&self, act: impl FnOnce(&mut Lines, &mut Turns, OpenBatches) -> T) -> Option<T> {
        let mut state = self.remote.state.lock();
        let open = state.open_batches();
        let State { lines, turns, .. } = &mut *state;
        let done = lines.is_place_of(self.ticket, &self.woken).then(|| act(lines, turns, open));
        self.remote.tell_turns(&mut state);
        done
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.with(|lines, turns, open| lines.leave(self.ticket, turns, open));
    }
}

/// A turn that other front-ends are asked for.
#[derive(Debug)]
pub struct Turn {
    remote: Arc<Remote>,
    keys: Vec<Key>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.remote.state.lock();
        self.keys.iter().for_each(|key| state.turns.end(key));
        self.remote.tell_turns(&mut state);
    }
}
