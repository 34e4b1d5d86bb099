//! The connected clients: what one may know of another, and how the server or another client closes it.
//!
//! Each connection registers a [`Client`] and is the only one to describe it; CLIENT LIST, CLIENT KILL, the
//! sweep of idle clients and the shutdown come from other threads. They reach a connection in three ways:
//! they ask it to leave, they end its waiting, they send it something that it did not ask for.

mod address;
mod backlog;
pub(crate) mod description;
mod footprint;
mod long_requests;
mod mail;
mod pause;
mod who;

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::thread::yield_now;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::acl::User;
use crate::config::{ClientClass, OutputLimits};
use crate::keyspace::Lifeline;
use crate::resp::Protocol;
pub use address::Address;
pub(crate) use backlog::Backlog;
pub(crate) use footprint::{ClientMemory, Footprint, Input, Output};
pub(crate) use long_requests::{LongRequest, LongRequests, Permit};
use mail::Mail;
pub(crate) use pause::{Pause, Paused};
pub(crate) use who::Who;

/// All clients of an instance that are connected.
#[derive(Debug)]
pub struct Clients {
    connected: Mutex<BTreeMap<u64, Arc<Client>>>,
    /// The clients that get every command (MONITOR).
    monitors: Mutex<Vec<Arc<Client>>>,
    monitor_count: AtomicUsize,
    /// The pause of CLIENT PAUSE, during which some clients wait.
    pub pause: Pause,
    /// How many clients were cut off since their output exceeded a limit.
    cut_off: Arc<AtomicU64>,
    /// The progress of client eviction (`maxmemory-clients`), while they take too much.
    pub eviction: Mutex<Eviction>,
    count: AtomicUsize,
    now_ms: AtomicU64,
    common: Arc<Common>,
}

/// What the clients of all sandboxes of a server have in common. A client may go from one to another.
#[derive(Debug)]
struct Common {
    /// The limits on output that may wait for a client.
    output_limits: Arc<OutputLimits>,
    /// The memory that all clients take together.
    memory: Arc<ClientMemory>,
    /// How many clients there are.
    count: AtomicUsize,
    last_id: AtomicU64,
    /// When no client had connected yet.
    began: Instant,
}

/// The state of client eviction, which gives back memory.
#[derive(Debug, Default)]
pub struct Eviction {
    /// No client is left that may be evicted, and they still take too much memory.
    pub is_stuck: bool,
    /// When that was found, by [`Clients::now_ms`].
    pub looked_at_ms: u64,
}

/// One client, as others see it.
#[derive(Debug)]
pub struct Client {
    /// A number that no other client of this server has or had, in whichever sandbox it is.
    pub id: u64,
    /// Where it connects from.
    pub address: Address,
    /// Where it connected to.
    pub local_address: Address,
    /// The system's number of its socket.
    pub descriptor: i32,
    /// When it connected.
    pub connected_at: Instant,
    /// Its name, user and settings, which its commands change.
    pub profile: Mutex<Profile>,
    /// When it was last served or took something, by [`Clients::now_ms`]; [`IN_SERVICE_MS`] while the server
    /// is at work for it.
    last_active_ms: AtomicU64,
    /// How much memory it takes.
    pub footprint: Footprint,
    /// What it has sent and taken so far.
    pub traffic: Traffic,
    /// Whether it has ever taken a lock that is followed.
    pub has_taken_locks: AtomicBool,
    /// What its bound locks hang on, once it has taken one.
    lifeline: OnceLock<Arc<Lifeline>>,
    /// When it is disconnected, since a token with which it has authenticated ends, in milliseconds since
    /// 1970 by the server's clock; [`u64::MAX`] for never.
    login_ends_at_ms: AtomicU64,
    leaving: AtomicU8,
    waiting: AtomicU8,
    speaks_resp3: AtomicBool,
    /// Counts the clients of its sandbox that are cut off.
    cut_off: Mutex<Arc<AtomicU64>>,
    /// Messages and notifications that wait for it.
    mail: Mail,
    /// Wakes the task that serves it, from its first wait on.
    task: OnceLock<Waker>,
}

/// What a client has sent and taken since it connected.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Bytes read from it.
    pub input_bytes: Tally,
    /// Bytes written to it.
    pub output_bytes: Tally,
    /// Commands that were executed for it, those of its transactions and scripts as well.
    pub commands: Tally,
}

/// A number that grows, and that one thread at a time adds to: the one that serves the client. So an addition
/// needs no locked instruction.
#[derive(Debug, Default)]
pub struct Tally(AtomicU64);

impl Tally {
    /// Adds to the number.
    #[inline]
    pub fn add(&self, amount: u64) {
        self.0.store(self.get().wrapping_add(amount), Ordering::Relaxed);
    }

    /// The number so far.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Events to which a connection must attend although its client has sent nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attention {
    /// The client was asked to leave.
    Leave,
    /// There is mail for the client.
    Mail,
}

/// Whether a client waits for something, and what ended that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Waiting {
    /// It does not wait.
    No = 0,
    /// The client waits for its keys, in a blocking command.
    Yes = 1,
    /// It goes on as if its timeout had passed.
    TimedOut = 2,
    /// It gets an error: another client unblocked it.
    Failed = 3,
    /// It waits for the end of a pause (CLIENT PAUSE), which no other client can end for it alone.
    Paused = 4,
}

/// Bit beside [`Waiting`]: the waiting client is being served, or looks itself whether there is something.
const CLAIMED: u8 = 8;
/// In place of the time of a client's last activity: the server is at work for it.
const IN_SERVICE_MS: u64 = u64::MAX;
/// How long another thread may take to serve a client. Most are done in some microseconds.
const SERVING: Duration = Duration::from_millis(1);

/// The facts about a client that may change while it is connected.
#[derive(Clone, Debug)]
pub struct Profile {
    /// CLIENT SETNAME; empty for none.
    pub name: Vec<u8>,
    /// CLIENT SETINFO LIB-NAME.
    pub lib_name: Vec<u8>,
    /// CLIENT SETINFO LIB-VER.
    pub lib_version: Vec<u8>,
    /// Its user; `None` until it has a session.
    pub user: Option<Arc<User>>,
    /// The state that its commands change.
    pub state: State,
    /// CLIENT CAPA redirect.
    pub can_be_redirected: bool,
    /// CLIENT NO-EVICT: the limit `maxmemory-clients` never disconnects it.
    pub is_kept_from_eviction: bool,
    /// Whether it gets every command of other clients (MONITOR).
    pub is_monitor: bool,
    /// CLIENT TRACKING; `None` while it is off.
    pub tracking: Option<Tracked>,
    seen_as: Option<Arc<Who>>,
}

/// The state of a client's session, as CLIENT LIST shows it.
#[derive(Clone, Copy, Debug)]
pub struct State {
    /// The database it has selected.
    pub database: usize,
    /// The protocol it speaks.
    pub protocol: Protocol,
    /// CLIENT NO-TOUCH: its commands do not count as a use of their keys.
    pub leaves_keys_untouched: bool,
    /// The name of its last command, with its subcommand.
    pub last_command: &'static str,
    /// Channels, patterns and sharded channels that it listens to.
    pub subscriptions: [usize; 3],
    /// Commands queued since MULTI, if there was one.
    pub queued: Option<usize>,
    /// Keys that it watches.
    pub watched: usize,
}

impl Waiting {
    /// Whether another client, or the server, has ended it.
    fn is_ended(self) -> bool {
        matches!(self, Waiting::TimedOut | Waiting::Failed)
    }

    fn of(word: u8) -> Waiting {
        match word & !CLAIMED {
            0 => Waiting::No,
            1 => Waiting::Yes,
            2 => Waiting::TimedOut,
            3 => Waiting::Failed,
            _ => Waiting::Paused,
        }
    }
}

impl Default for State {
    fn default() -> State {
        State {
            database: 0,
            protocol: Protocol::default(),
            leaves_keys_untouched: false,
            last_command: "NULL",
            subscriptions: [0; 3],
            queued: None,
            watched: 0,
        }
    }
}

impl State {
    /// Whether nothing differs. Names of commands are known by where they are.
    pub fn is(&self, other: &State) -> bool {
        let is_same_command = std::ptr::eq(self.last_command, other.last_command);
        let is_same_connection = self.database == other.database
            && self.protocol == other.protocol
            && self.leaves_keys_untouched == other.leaves_keys_untouched;
        is_same_command
            && is_same_connection
            && self.subscriptions == other.subscriptions
            && self.queued == other.queued
            && self.watched == other.watched
    }
}

/// How a client is notified of changed keys.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tracked {
    /// The number of the client that gets the notifications instead; 0 for none.
    pub redirect: u64,
    /// Whether it is notified by prefixes (BCAST).
    pub has_prefixes: bool,
    /// The other client had left when a notification was due.
    pub is_broken: bool,
}

/// How soon a client that was asked to leave should do so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Leaving {
    /// The client stays.
    Not = 0,
    /// After the replies to all that it has sent.
    WhenAnswered = 1,
    /// At once, even while it waits.
    Now = 2,
}

impl Clients {
    /// A registry without clients. New clients start with these limits on their output.
    pub fn new(output_limits: Arc<OutputLimits>) -> Clients {
        Clients::of(Arc::new(Common {
            output_limits,
            memory: Arc::default(),
            count: AtomicUsize::new(0),
            last_id: AtomicU64::new(0),
            began: Instant::now(),
        }))
    }

    /// A registry without clients for another sandbox of the same server.
    pub fn beside(&self) -> Clients {
        Clients::of(Arc::clone(&self.common))
    }

    fn of(common: Arc<Common>) -> Clients {
        Clients {
            connected: Mutex::default(),
            monitors: Mutex::default(),
            monitor_count: AtomicUsize::new(0),
            pause: Pause::default(),
            cut_off: Arc::default(),
            eviction: Mutex::default(),
            count: AtomicUsize::new(0),
            now_ms: AtomicU64::new(common.began.elapsed().as_millis() as u64),
            common,
        }
    }

    /// The memory that the clients of all sandboxes take together.
    pub fn memory(&self) -> &ClientMemory {
        &self.common.memory
    }

    /// How many clients all sandboxes of the server have.
    pub fn count_everywhere(&self) -> usize {
        self.common.count.load(Ordering::Relaxed)
    }

    /// How many clients were cut off since their output exceeded a limit, since the start or since CONFIG
    /// RESETSTAT.
    pub fn cut_off(&self) -> u64 {
        self.cut_off.load(Ordering::Relaxed)
    }

    /// Counts anew (CONFIG RESETSTAT).
    pub fn reset_counts(&self) {
        self.cut_off.store(0, Ordering::Relaxed);
    }

    /// Lets time pass for [`now_ms`](Self::now_ms).
    pub fn follow_clock(&self) {
        self.now_ms.store(self.common.began.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    /// Milliseconds since the server began, as of a moment ago: good enough to find idle clients.
    pub fn now_ms(&self) -> u64 {
        self.now_ms.load(Ordering::Relaxed)
    }

    /// How many clients there are.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Registers a client until the returned value is dropped.
    pub fn register(
        self: &Arc<Self>,
        address: Address,
        local_address: Address,
        descriptor: i32,
    ) -> Registration {
        let client = Arc::new(Client {
            id: self.common.last_id.fetch_add(1, Ordering::Relaxed) + 1,
            address,
            local_address,
            descriptor,
            connected_at: Instant::now(),
            profile: Mutex::new(Profile {
                name: Vec::new(),
                lib_name: Vec::new(),
                lib_version: Vec::new(),
                user: None,
                state: State::default(),
                can_be_redirected: false,
                is_kept_from_eviction: false,
                is_monitor: false,
                tracking: None,
                seen_as: None,
            }),
            last_active_ms: AtomicU64::new(self.now_ms()),
            footprint: Footprint::new(Arc::clone(&self.common.memory)),
            traffic: Traffic::default(),
            has_taken_locks: AtomicBool::new(false),
            lifeline: OnceLock::new(),
            login_ends_at_ms: AtomicU64::new(u64::MAX),
            leaving: AtomicU8::new(Leaving::Not as u8),
            waiting: AtomicU8::new(Waiting::No as u8),
            speaks_resp3: AtomicBool::new(false),
            cut_off: Mutex::new(Arc::clone(&self.cut_off)),
            mail: Mail::new(Arc::clone(&self.common.output_limits)),
            task: OnceLock::new(),
        });
        self.add(&client);
        self.common.count.fetch_add(1, Ordering::Relaxed);
        Registration { clients: Arc::clone(self), client }
    }

    fn add(&self, client: &Arc<Client>) {
        self.connected.lock().insert(client.id, Arc::clone(client));
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    fn remove(&self, client: &Client) {
        self.connected.lock().remove(&client.id);
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Lets a client see every command from now on.
    pub fn add_monitor(&self, client: Arc<Client>) {
        let mut monitors = self.monitors.lock();
        client.profile.lock().is_monitor = true;
        monitors.retain(|other| other.id != client.id);
        monitors.push(client);
        self.monitor_count.store(monitors.len(), Ordering::Relaxed);
    }

    /// Stops sending every command to a client.
    pub fn remove_monitor(&self, client: &Client) {
        let mut monitors = self.monitors.lock();
        client.profile.lock().is_monitor = false;
        monitors.retain(|other| other.id != client.id);
        self.monitor_count.store(monitors.len(), Ordering::Relaxed);
    }

    /// Whether a client gets every command (MONITOR).
    #[inline]
    pub fn has_monitors(&self) -> bool {
        self.monitor_count.load(Ordering::Relaxed) > 0
    }

    /// Sends something to all clients that get every command.
    pub fn send_to_monitors(&self, bytes: &[u8]) {
        self.monitors.lock().iter().for_each(|monitor| monitor.send(bytes));
    }

    /// The client of a number, if it is connected.
    pub fn get(&self, id: u64) -> Option<Arc<Client>> {
        self.connected.lock().get(&id).cloned()
    }

    /// Closes the clients whose waiting output exceeds its limit, or has done so for too long.
    pub fn enforce_output_limits(&self) {
        for client in self.connected.lock().values() {
            client.may_hold(client.footprint.output().bytes);
        }
    }

    /// Whether no output waits for a client.
    pub fn have_no_output(&self) -> bool {
        let connected = self.connected.lock();
        connected.values().all(|client| client.footprint.output().bytes == 0 && !client.mail.is_waiting())
    }

    /// All clients, the oldest first.
    pub fn all(&self) -> Vec<Arc<Client>> {
        self.connected.lock().values().cloned().collect()
    }
}

/// Keeps a client registered.
#[derive(Debug)]
pub struct Registration {
    clients: Arc<Clients>,
    /// The client that is registered.
    pub client: Arc<Client>,
}

impl Registration {
    /// Registers the client with another sandbox of the same server, and no longer with this one.
    pub fn go_to(&mut self, clients: &Arc<Clients>) {
        clients.add(&self.client);
        self.clients.remove(&self.client);
        *self.client.cut_off.lock() = Arc::clone(&clients.cut_off);
        self.clients = Arc::clone(clients);
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if self.client.profile.lock().is_monitor {
            self.clients.remove_monitor(&self.client);
        }
        // Others may know the client for a while yet, but what it took is given back now.
        drop(self.client.take_mail(true));
        self.client.footprint.clear();
        self.clients.remove(&self.client);
        self.clients.common.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Client {
    /// Output that may always wait for a client, whatever its limits.
    pub const FREE_OUTPUT_BYTES: usize = mail::FREE_BYTES;

    /// Asks the client to leave. A wish for more haste replaces one for less.
    pub fn ask_to_leave(&self, leaving: Leaving) {
        self.leaving.fetch_max(leaving as u8, Ordering::Release);
        self.call();
    }

    /// Whether, and how soon, it was asked to leave.
    pub fn leaving(&self) -> Leaving {
        match self.leaving.load(Ordering::Acquire) {
            0 => Leaving::Not,
            1 => Leaving::WhenAnswered,
            _ => Leaving::Now,
        }
    }

    /// Whether it was asked to leave at once. Looked at under the locks of each request: so nothing that
    /// another client finds after it has asked is changed by this client later.
    #[inline(always)]
    pub fn must_leave(&self) -> bool {
        self.leaving.load(Ordering::Relaxed) == Leaving::Now as u8
    }

    /// Waits until the client is asked to leave at least as soon as `leaving`.
    pub async fn asked_to_leave(&self, leaving: Leaving) {
        poll_fn(|context| self.poll_asked_to_leave(context, leaving)).await;
    }

    /// The same, to be polled.
    pub fn poll_asked_to_leave(&self, context: &Context<'_>, leaving: Leaving) -> Poll<()> {
        self.poll_until(context, || (self.leaving() >= leaving).then_some(()))
    }

    /// Waits until there is something to attend to.
    pub fn poll_attention(&self, context: &Context<'_>) -> Poll<Attention> {
        self.poll_until(context, || match self.leaving() {
            Leaving::Not => self.mail.is_waiting().then_some(Attention::Mail),
            _ => Some(Attention::Leave),
        })
    }

    /// Sends the client something that it did not ask for. If it does not take what it is sent, it is closed.
    pub fn send(&self, bytes: &[u8]) {
        self.send_news(bytes, false);
    }

    /// The same for what the client may have brought about itself: then the command that is being run is
    /// answered first.
    pub fn send_news(&self, bytes: &[u8], is_answered_first: bool) {
        if self.leaving() == Leaving::Now {
            return;
        }
        if self.mail.put(bytes, is_answered_first, &self.footprint) {
            self.call();
        } else {
            self.overcome();
        }
    }

    /// Reserves room for something that may be sent later. Returns whether the client may have that much; if
    /// not, it is closed, as if it had been sent now.
    pub fn reserve(&self, bytes: usize) -> bool {
        if self.leaving() == Leaving::Now {
            return false;
        }
        let may_come = self.mail.reserve(bytes, &self.footprint);
        if !may_come {
            self.overcome();
        }
        may_come
    }

    /// Gives back what was reserved: it is sent next, or never.
    pub fn give_back(&self, bytes: usize) {
        self.mail.give_back(bytes);
    }

    /// Cuts the client off, since its output exceeds the limit.
    fn overcome(&self) {
        if self.leaving() != Leaving::Now {
            tracing::warn!("Client {} closed for overcoming of output buffer limits.", self.address);
            self.cut_off.lock().fetch_add(1, Ordering::Relaxed);
            self.ask_to_leave(Leaving::Now);
        }
    }

    /// Whether `output_bytes` may wait for the client in its connection, beside its mail. If not, the client
    /// is asked to leave.
    pub fn may_hold(&self, output_bytes: usize) -> bool {
        let may_hold = self.mail.may_wait_with(output_bytes);
        if !may_hold {
            self.overcome();
        }
        may_hold
    }

    /// Sets the size of the output that its connection has to write.
    pub fn set_output(&self, output: Output) {
        self.footprint.set_output(output);
    }

    /// The output that waits for it, in its connection and as mail.
    pub fn output(&self) -> Output {
        let (output, mail) = (self.footprint.output(), self.mail.waiting());
        Output {
            bytes: output.bytes + mail.bytes,
            pieces: output.pieces + mail.pieces,
            memory_bytes: output.memory_bytes + mail.memory_bytes,
        }
    }

    /// Whether there is mail that was not taken.
    #[inline]
    pub fn has_mail(&self) -> bool {
        self.mail.is_waiting()
    }

    /// Takes the mail; the part that must follow a reply only between replies.
    pub fn take_mail(&self, is_between_replies: bool) -> Backlog {
        self.mail.take(is_between_replies, &self.footprint)
    }

    /// Takes the mail that must follow the reply which has just been made.
    pub fn take_mail_after_reply(&self) -> Vec<u8> {
        self.mail.take_after_reply(&self.footprint)
    }

    /// Sets whether the client listens to channels, for which separate limits apply.
    pub fn set_class(&self, class: ClientClass) {
        self.mail.set_class(class);
    }

    /// Whether it listens to channels.
    pub fn is_listening(&self) -> bool {
        self.profile.lock().state.subscriptions != [0; 3]
    }

    /// Records that the server is at work for it from now on, until [`set_active`](Self::set_active).
    #[inline]
    pub fn begin_service(&self) {
        self.last_active_ms.store(IN_SERVICE_MS, Ordering::Relaxed);
    }

    /// Records that it has been served just now, or that it has come.
    #[inline]
    pub fn set_active(&self, now_ms: u64) {
        self.last_active_ms.store(now_ms, Ordering::Relaxed);
    }

    /// Records that it has taken something just now.
    pub fn note_taken(&self, now_ms: u64) {
        if self.last_active_ms.load(Ordering::Relaxed) != IN_SERVICE_MS {
            self.set_active(now_ms);
        }
    }

    /// Whether it waits for what others bring, in a blocking command or as a listener. Its silence does not
    /// mean that it has nothing more to do here.
    pub fn is_expecting(&self) -> bool {
        self.is_blocked() || self.is_listening() || self.profile.lock().is_monitor
    }

    /// What its bound locks hang on, from the first one on.
    pub fn lifeline(&self) -> &Arc<Lifeline> {
        self.lifeline.get_or_init(|| Arc::new(Lifeline::new(self.id)))
    }

    /// The same, if it has ever had a bound lock.
    #[inline]
    pub fn known_lifeline(&self) -> Option<&Arc<Lifeline>> {
        self.lifeline.get()
    }

    /// Whether locks hang on its connection. Then the server does not close it to save something.
    pub fn has_bound_locks(&self) -> bool {
        self.known_lifeline().is_some_and(|lifeline| lifeline.count() > 0)
    }

    /// When it is disconnected, since the token ends with which it has authenticated, if it has, in
    /// milliseconds since 1970 by the server's clock.
    pub fn login_ends_at_ms(&self) -> Option<u64> {
        Some(self.login_ends_at_ms.load(Ordering::Relaxed)).filter(|at_ms| *at_ms < u64::MAX)
    }

    /// Sets that moment. Only its own connection calls this.
    pub fn set_login_end(&self, at_ms: Option<u64>) {
        self.login_ends_at_ms.store(at_ms.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// For how many seconds it has done nothing.
    pub fn idle_s(&self, now_ms: u64) -> u64 {
        self.idle_ms(now_ms) / 1000
    }

    /// For how many milliseconds it has done nothing. Both moments may be some ticks of the clock too early.
    pub fn idle_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.last_active_ms.load(Ordering::Relaxed))
    }

    /// The version of the protocol it speaks.
    pub fn protocol(&self) -> Protocol {
        if self.speaks_resp3.load(Ordering::Relaxed) { Protocol::Resp3 } else { Protocol::Resp2 }
    }

    /// Sets the version of the protocol that it speaks from now on.
    pub fn set_protocol(&self, protocol: Protocol) {
        self.speaks_resp3.store(protocol == Protocol::Resp3, Ordering::Relaxed);
    }

    /// Sets whether the client waits.
    pub fn set_waiting(&self, waiting: Waiting) {
        self.waiting.store(waiting as u8, Ordering::Release);
    }

    /// The same; returns whether it has waited until now, and what has ended that.
    pub fn replace_waiting(&self, waiting: Waiting) -> Waiting {
        Waiting::of(self.waiting.swap(waiting as u8, Ordering::AcqRel))
    }

    /// Whether it waits.
    pub fn waiting(&self) -> Waiting {
        Waiting::of(self.waiting.load(Ordering::Acquire))
    }

    /// Claims a waiting client, to serve it. Returns false if another client has ended its waiting, or has
    /// asked it to leave.
    pub fn claim(&self) -> bool {
        let (yes, claimed) = (Waiting::Yes as u8, Waiting::Yes as u8 | CLAIMED);
        let is_claimed = || self.waiting.compare_exchange(yes, claimed, Ordering::AcqRel, Ordering::Relaxed);
        self.leaving() == Leaving::Not && is_claimed().is_ok()
    }

    /// The same for the client itself, which looks again whether there is something for it. Returns how
    /// another client has ended its waiting, if one has.
    pub fn look_again(&self) -> Option<Waiting> {
        const YES: u8 = Waiting::Yes as u8;
        let claimed = self.waiting.compare_exchange(YES, YES | CLAIMED, Ordering::AcqRel, Ordering::Acquire);
        claimed.err().filter(|word| word & CLAIMED == 0).map(Waiting::of).filter(|how| how.is_ended())
    }

    /// Ends a claim: there was nothing for the client. If another client has ended its waiting meanwhile,
    /// that takes effect now.
    pub fn release(&self) {
        self.waiting.fetch_and(!CLAIMED, Ordering::AcqRel);
    }

    /// Whether other clients see it as waiting.
    pub fn is_blocked(&self) -> bool {
        matches!(self.waiting(), Waiting::Yes | Waiting::Paused)
    }

    /// Ends the client's waiting; returns whether it waited. A client that is being served does not, unless
    /// that is in vain, which is known in a moment. If it takes longer, it counts as served, and its waiting
    /// ends nevertheless if it was in vain.
    pub fn end_waiting(&self, how: Waiting) -> bool {
        const YES: u8 = Waiting::Yes as u8;
        const BEING_SERVED: u8 = YES | CLAIMED;
        let end = |waiting| match waiting {
            YES => Some(how as u8),
            BEING_SERVED => Some(how as u8 | CLAIMED),
            _ => None,
        };
        let began = Instant::now();
        while self.waiting.load(Ordering::Acquire) == BEING_SERVED && began.elapsed() < SERVING {
            yield_now();
        }
        let before = self.waiting.fetch_update(Ordering::AcqRel, Ordering::Acquire, end);
        self.call();
        before == Ok(YES)
    }

    /// Waits until another client, or the server, ends the client's waiting, or until it is over otherwise;
    /// returns how.
    pub fn poll_waiting_ended(&self, context: &Context<'_>, is_over: impl Fn() -> bool) -> Poll<Waiting> {
        self.poll_until(context, || {
            Some(self.waiting()).filter(|waiting| *waiting != Waiting::Yes || is_over())
        })
    }

    /// Is ready once `look` finds something. Code that changes what `look` reads must [call](Self::call).
    ///
    /// One task serves a client from its beginning to its end. So it learns once which task to wake, and not
    /// with each wait: waiting costs no more than the look.
    fn poll_until<T>(&self, context: &Context<'_>, look: impl Fn() -> Option<T>) -> Poll<T> {
        if self.task.get().is_none() {
            // No other thread sets it.
            let _ = self.task.set(context.waker().clone());
            fence(Ordering::SeqCst); // see `call`
        }
        debug_assert!(self.task.get().is_some_and(|task| task.will_wake(context.waker())));
        look().map_or(Poll::Pending, Poll::Ready)
    }

    /// Wakes the task that serves the client, so that it looks again.
    pub fn call(&self) {
        // Either the task is seen here, or it sees, when it looks for the first time, what has changed.
        fence(Ordering::SeqCst);
        if let Some(task) = self.task.get() {
            task.wake_by_ref();
        }
    }
}
