//! A client's state, without its socket.
//!
//! This is the state that only the client's own commands need. What other clients may see is in [`Client`].

mod migration;
mod outbox;
mod pending;

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::acl::{Proof, User, Users};
use crate::clients::{Client, LongRequest, LongRequests, Profile, State, Waiting};
use crate::config::ClientClass;
use crate::faults::{Delay, Sequel};
use crate::keyspace::{Missed, Own, Waiter, Watching, missing_bytes};
use crate::persistence::Wanted;
use crate::pubsub::{KINDS, Subscriptions};
use crate::remote::row::{Key, KeyMap, Row};
use crate::resp::{OwnedRequest, Protocol, Request};
use crate::statistics::Statistics;
use crate::statistics::commands::Called;
use crate::tracking::Tracks;
pub(crate) use migration::{Cargo, Freight, Migration, Packed, Parcel, Receipt, Target};
pub(crate) use outbox::{Item, LockItem, Outbox};
pub(crate) use pending::{Ahead, AttemptResult, Draw, Drawn, Pending};

/// The state of one client.
#[derive(Debug)]
pub struct Session {
    /// The client as others see it.
    pub client: Arc<Client>,
    /// The number of the database it works on.
    pub database: usize,
    /// The number by which clients know the first database of its sandbox.
    pub first_database: usize,
    /// The version of the protocol it speaks.
    pub protocol: Protocol,
    /// The user as which the client is authenticated.
    pub user: Arc<User>,
    /// Whether it may do more than authenticate.
    pub is_authenticated: bool,
    /// The replies that it wants.
    pub replies: Replies,
    /// Whether the connection is closed once the replies so far are written.
    pub is_closing: bool,
    /// What it has said of a snapshot that it may ask for (REPLCONF).
    pub replica: Replica,
    /// The snapshot that it gets at the end of its connection (SYNC).
    pub export: Option<Wanted>,
    /// Whether its commands do not count as uses of keys (CLIENT NO-TOUCH).
    pub leaves_keys_untouched: bool,
    /// The transaction that it has begun, if any.
    pub queue: Option<Queue>,
    /// The keys that it watches for its next transaction.
    pub watching: Watching,
    /// The rows of keys in a store that it watches, as they were when it began to.
    pub watched_in_store: KeyMap<Arc<Row>>,
    /// The channels and patterns that it listens to.
    pub subscriptions: Subscriptions,
    /// The keys of which it keeps copies, if any.
    pub tracking: Option<Box<Tracks>>,
    /// Whether a script of the client runs: requests then come from the script.
    pub is_in_script: bool,
    /// Whether its command is one of several, none of which may wait.
    pub may_not_wait: bool,
    /// The effects of those commands for other clients, if any.
    pub outbox: Option<Box<Outbox>>,
    /// The sandbox to which it goes, while [`Wait::Move`] is its wait.
    pub goes_to: usize,
    /// How long its last command waits for its reply, or its next one to be executed, if it waits.
    pub wait: Option<Wait>,
    /// Its request that takes long, from when it waits for a thread until it has run.
    pub long: Option<Box<LongRequest>>,
    /// The wait of its last command for keys.
    pub blocked: Option<Blocked>,
    /// The wait of a command that is executed again.
    pub resumed: Option<Blocked>,
    /// Its request on keys in a store, while that waits.
    pub pending: Option<Box<Pending>>,
    /// Its MIGRATE, while that waits for another server.
    pub migration: Option<Box<Migration>>,
    /// The requests behind it that travel with it.
    pub ahead: Ahead,
    /// The keys on which its command runs, if they live in a store.
    pub keys_in_store: Option<Arc<[Key]>>,
    /// Whether its command found nothing to take, and would wait if it might.
    pub found_nothing: bool,
    /// Whether the faults have seen its next command already, which has waited since. No fault applies to it
    /// again.
    pub was_delayed: bool,
    /// Whether a fault has delayed its next command until now. It is executed even if the client must leave,
    /// like a packet that was late on its way.
    pub is_late: bool,
    /// Whether a fault has ended its connection: the replies before that must arrive.
    pub lingers: bool,
    /// What a fault does after its command that waits: to be executed, or for its reply.
    pub sequel: Option<Sequel>,
    /// The name of its last command, with its subcommand.
    pub last_command: &'static str,
    /// What its commands have logged.
    pub logged: Own,
    /// When its command began. Set for commands that are timed one by one.
    pub began: Instant,
    /// The time that the present transaction or script has told.
    told: Option<Duration>,
    /// When the script of its last command ended, so that the clock need not be read again to time the
    /// command.
    pub ended: Option<Instant>,
    /// How long its last command took until it began to wait for its keys. When the wait has ended, the
    /// command is charged with it.
    pub took_before_wait: Duration,
    /// The calls of its scripts that are not counted yet. Made when it is first needed.
    called: Option<Box<Called>>,
    /// The state that was last shown to other clients.
    shown: Cell<State>,
}

/// What a client that asks for a snapshot wants and understands.
#[derive(Clone, Copy, Debug, Default)]
pub struct Replica {
    /// Whether it wants no changes behind the snapshot.
    pub wants_snapshot_only: bool,
    /// Whether it wants no keys.
    pub without_data: bool,
    /// Whether it wants no functions.
    pub without_functions: bool,
    /// Whether it understands a snapshot whose length is not known before.
    pub knows_eof: bool,
}

/// The part of a session that a script has for itself while it runs.
#[derive(Debug)]
pub struct OwnState {
    database: usize,
    protocol: Protocol,
    leaves_keys_untouched: bool,
    tracking: Option<Box<Tracks>>,
    may_not_wait: bool,
}

impl OwnState {
    /// Whether the script is one of several commands, none of which may wait.
    pub fn may_not_wait(&self) -> bool {
        self.may_not_wait
    }
}

/// The commands of a transaction from MULTI to the end of EXEC.
#[derive(Debug, Default)]
pub struct Queue {
    /// In their order. EXEC shares them while it runs them, so that they can run again.
    pub commands: Arc<Vec<Queued>>,
    /// The bytes that they take.
    pub bytes: usize,
    /// Whether one was refused. Then EXEC runs none.
    pub is_broken: bool,
    /// The index of the command that EXEC runs now, or has run last.
    pub running: Option<usize>,
}

/// A command that is to be executed later.
#[derive(Debug)]
pub struct Queued {
    /// The number of the command that was found and admitted.
    pub number: usize,
    /// The request, with its own copy of the arguments.
    pub request: OwnedRequest,
}

impl Queue {
    /// Adds a command. EXEC runs none now, so that the commands are not shared.
    pub fn push(&mut self, number: usize, request: Request<'_>) {
        let Some(commands) = Arc::get_mut(&mut self.commands) else { return };
        let request = OwnedRequest::of(request);
        self.bytes += request.bytes() + size_of::<Queued>();
        commands.push(Queued { number, request });
    }
}

/// How long a client waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Until this moment.
    Until(Instant),
    /// Until another client, or the server, ends it.
    ForEver,
    /// Until this moment, if there is one, or until what the client has changed is durable, if that is
    /// enough. The reply says whether it is by then (WAITAOF).
    Durable {
        /// When the wait times out; `None` for never.
        until: Option<Instant>,
        /// Whether nothing else is waited for.
        is_enough: bool,
    },
    /// Until this delay is over. Then the command is executed.
    Delay(Delay),
    /// Until the end of a pause (CLIENT PAUSE). Then the command is executed.
    Pause,
    /// Until what the command needs may be free. Then it is tried again.
    Contention(Contention),
    /// Until the store has answered, or has something for the client, as the session's [`Pending`] says. Then
    /// the command is executed again.
    Store,
    /// Until another server has replied, as the session's [`Migration`] says. Then the command is executed
    /// again.
    Migration,
    /// Until a key has something for the client, as the session's [`Blocked`] says.
    Blocked,
    /// Until a thread for long requests is free. Then the command is executed there.
    Long,
    /// Until a thread for long requests has copied long strings into the reply. The command was executed.
    Reply,
    /// Until other clients have had their turns: the command was a long one.
    Turn,
    /// For nothing: it goes to another sandbox before its next command.
    Move,
    /// For good: it was asked to leave at once, and the command is not executed.
    Leaving,
}

impl Wait {
    /// Whether the command has begun, and the wait is for its reply.
    pub fn is_for_reply(self) -> bool {
        matches!(self, Wait::Until(_) | Wait::ForEver | Wait::Durable { .. } | Wait::Blocked | Wait::Reply)
    }
}

/// A wait for keys.
#[derive(Debug)]
pub struct Blocked {
    /// The client's place in the queues of its keys.
    pub waiter: Arc<Waiter>,
    /// When the wait times out; `None` for never.
    pub until: Option<Instant>,
    /// When the client tries again before that, though no key has changed.
    pub again: Option<Instant>,
}

/// The thing that a command needs, and that another client has held for more than a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contention {
    /// The keyspace's shard of this number.
    Shard(usize),
    /// The turn to run scripts.
    Turn,
}

/// The replies that a client wants (CLIENT REPLY).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replies {
    /// Every command gets its reply.
    #[default]
    On,
    /// No command gets a reply.
    Off,
    /// The next command gets no reply.
    SkipNext,
    /// The command that is being run gets no reply.
    SkipThis,
}

/// The password was wrong, or there is no such user, or it is disabled.
#[derive(Debug)]
pub struct WrongPassword;

impl Session {
    /// The state of a client that has just connected.
    pub fn new(client: Arc<Client>, users: &Users) -> Session {
        let user = Arc::clone(users.default_user());
        client.profile.lock().user = Some(Arc::clone(&user));
        let is_authenticated = users.admits_everybody();
        client.footprint.set_known(is_authenticated);
        Session {
            client,
            database: 0,
            first_database: 0,
            protocol: Protocol::default(),
            user,
            is_authenticated,
            replies: Replies::default(),
            is_closing: false,
            replica: Replica::default(),
            export: None,
            leaves_keys_untouched: false,
            queue: None,
            watching: Watching::default(),
            watched_in_store: KeyMap::default(),
            subscriptions: Subscriptions::default(),
            tracking: None,
            may_not_wait: false,
            told: None,
            is_in_script: false,
            outbox: None,
            goes_to: 0,
            wait: None,
            long: None,
            blocked: None,
            resumed: None,
            pending: None,
            migration: None,
            ahead: Ahead::default(),
            keys_in_store: None,
            found_nothing: false,
            was_delayed: false,
            is_late: false,
            lingers: false,
            sequel: None,
            last_command: State::default().last_command,
            logged: Own::default(),
            began: Instant::now(),
            ended: None,
            took_before_wait: Duration::ZERO,
            called: None,
            shown: Cell::default(),
        }
    }

    /// The number by which clients know its database.
    pub fn shown_database(&self) -> usize {
        self.first_database + self.database
    }

    /// Its state as other clients may see it now.
    fn state(&self) -> State {
        State {
            database: self.shown_database(),
            protocol: self.protocol,
            last_command: self.last_command,
            leaves_keys_untouched: self.leaves_keys_untouched,
            subscriptions: KINDS.map(|kind| self.subscriptions.count(kind)),
            queued: self
                .queue
                .as_ref()
                .filter(|queue| queue.running.is_none())
                .map(|queue| queue.commands.len()),
            watched: self.watching.len(),
        }
    }

    /// Whether EXEC runs the commands that the client has queued.
    pub fn runs_queue(&self) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.running.is_some())
    }

    /// Changes what other clients see, and shows them the state as it is now.
    pub fn show(&self, change: impl FnOnce(&mut Profile)) {
        self.shown.set(self.state());
        self.client.set_protocol(self.protocol);
        let mut profile = self.client.profile.lock();
        profile.state = self.shown.get();
        change(&mut profile);
    }

    /// Shows other clients the state as it is now, unless they see it already.
    pub fn show_changes(&self) {
        if !self.state().is(&self.shown.get()) {
            self.show(|_| {});
        }
    }

    /// Authenticates the client by what proves that it is a user.
    ///
    /// # Errors
    ///
    /// If user or password are wrong; the client keeps the rights it had.
    pub fn authenticate(
        &mut self,
        users: &Users,
        name: &[u8],
        proof: Proof<'_>,
    ) -> Result<(), WrongPassword> {
        let user = users.authenticate(name, proof).ok_or(WrongPassword)?;
        let before = std::mem::replace(&mut self.user, Arc::clone(&user));
        self.show(|profile| profile.user = Some(Arc::clone(&user)));
        // Checked after other clients can see the new user. So a client that removes the user either sees
        // this one, or has marked the user before this check.
        if user.is_removed() {
            self.show(|profile| profile.user = Some(Arc::clone(&before)));
            self.user = before;
            return Err(WrongPassword);
        }
        self.is_authenticated = true;
        self.client.footprint.set_known(true);
        Ok(())
    }

    /// Begins with the first of several commands, none of which may wait.
    pub fn begin_unit(&mut self) {
        self.may_not_wait = true;
        self.told = None;
    }

    /// The time since 1970 for all commands of EXEC or of a script, as the clock is now; `from_ms` is when
    /// their expiries begin. It is in this millisecond, with microseconds of its own, so that two clients are
    /// hardly ever told the same.
    pub fn time_of_unit(&mut self, from_ms: u64, clock: Duration) -> Duration {
        const MILLISECOND: Duration = Duration::from_millis(1);
        *self.told.get_or_insert_with(|| {
            let from = Duration::from_millis(from_ms);
            let is_between = !clock.subsec_micros().is_multiple_of(1000);
            let time = if is_between { clock + MILLISECOND } else { clock };
            time.clamp(from, from + MILLISECOND - Duration::from_micros(1))
        })
    }

    /// Begins a script of this client: from now on the state is the script's, which begins with the client's
    /// database and user. Returns the client's own state, for [`end_script`](Self::end_script).
    pub fn begin_script(&mut self) -> OwnState {
        if !self.may_not_wait {
            self.told = None;
        }
        self.is_in_script = true;
        OwnState {
            database: self.database,
            protocol: std::mem::replace(&mut self.protocol, Protocol::Resp2),
            leaves_keys_untouched: self.leaves_keys_untouched,
            tracking: self.tracking.clone(),
            may_not_wait: std::mem::replace(&mut self.may_not_wait, true),
        }
    }

    /// Restores the client's own state after its script.
    pub fn end_script(&mut self, own: OwnState) {
        let OwnState { database, protocol, leaves_keys_untouched, tracking, may_not_wait } = own;
        (self.database, self.protocol, self.may_not_wait) = (database, protocol, may_not_wait);
        (self.leaves_keys_untouched, self.tracking) = (leaves_keys_untouched, tracking);
        self.is_in_script = false;
    }

    /// The effects of an EXEC's or a script's commands for other clients.
    pub fn outbox(&mut self) -> &mut Outbox {
        self.outbox.get_or_insert_default()
    }

    /// The calls of its scripts since they were counted last.
    pub fn called(&mut self) -> &mut Called {
        self.called.get_or_insert_default()
    }

    /// Counts what its scripts have called.
    pub fn count_called(&mut self, statistics: &Statistics) {
        if let Some(called) = &mut self.called
            && !called.tally.is_empty()
        {
            let calls = statistics.add_tally(&mut called.tally, std::mem::take(&mut called.took));
            self.client.traffic.commands.add(calls);
        }
    }

    /// Lets the copying of long strings into the last reply wait for a thread for long requests.
    #[cold]
    pub fn complete_reply_later(&mut self, all: &Arc<LongRequests>, missed: Vec<Missed>) {
        self.long = Some(Box::new(all.admit_rest(&self.client, missed)));
        self.wait = Some(Wait::Reply);
    }

    /// Forgets what is missing in the last reply, which is not sent.
    #[cold]
    pub fn drop_reply(&mut self) {
        if self.wait.take_if(|wait| *wait == Wait::Reply).is_some() {
            self.long = None;
        }
    }

    /// Notes that so many bytes were put in front of the last reply.
    pub fn shift_reply(&mut self, bytes: usize) {
        let missed = self.long.iter_mut().flat_map(|long| long.missed.iter_mut());
        missed.for_each(|missed| missed.shift(bytes));
    }

    /// How many bytes of long strings are missing in the last reply.
    #[inline]
    pub fn missing_bytes(&self) -> usize {
        self.long.as_ref().map_or(0, |long| missing_bytes(&long.missed))
    }

    /// Whether nothing more may be executed: the client was asked to leave at once.
    pub fn must_leave(&self) -> bool {
        self.client.must_leave() && !self.is_late
    }

    /// Whether the client is in no special state: it queues no transaction, listens to no channel, tracks no
    /// key. One look instead of many.
    pub fn is_plain(&self) -> bool {
        let is_listening = !self.subscriptions.is_empty() || self.tracking.is_some();
        let is_waiting = self.is_closing || self.wait.is_some() || self.was_delayed || self.sequel.is_some();
        let is_admitted = self.is_authenticated && self.replies == Replies::On && !self.leaves_keys_untouched;
        is_admitted && self.queue.is_none() && !is_listening && !is_waiting
    }

    /// Bytes of memory for what the client has asked the server to remember: queued commands, and watched
    /// keys.
    pub fn transaction_bytes(&self) -> usize {
        self.queue.as_ref().map_or(0, |queue| queue.bytes) + self.watching.bytes()
    }

    /// Bytes of memory for the names that it listens to, and the prefixes of which it keeps copies.
    pub fn listening_bytes(&self) -> usize {
        self.subscriptions.bytes() + self.tracking.as_ref().map_or(0, |tracks| tracks.prefix_bytes)
    }

    /// Whether the client has asked the server to remember something.
    #[inline]
    pub fn has_asked_to_remember(&self) -> bool {
        let has_transaction = self.queue.is_some() || !self.watching.is_empty();
        has_transaction || !self.subscriptions.is_empty() || self.tracking.is_some()
    }

    /// Called whenever the client's subscriptions have changed.
    pub fn subscriptions_changed(&self) {
        let is_listening = !self.subscriptions.is_empty();
        self.client.set_class(if is_listening { ClientClass::PubSub } else { ClientClass::Normal });
    }

    /// Ends the wait of a command that was to be executed again, and was not.
    #[inline]
    pub fn give_up_resumed(&mut self) {
        self.migration = None;
        if self.resumed.take().is_some() {
            self.client.set_waiting(Waiting::No);
        }
    }

    /// Takes all rights from the client until it authenticates again.
    pub fn lock_out(&mut self, users: &Users) {
        self.user = Arc::clone(users.default_user());
        self.is_authenticated = false;
        self.client.footprint.set_known(false);
        self.client.set_login_end(None);
    }

    /// Puts everything back to its state when the client connected (RESET). Watching, tracking and listening
    /// must have ended.
    pub fn reset(&mut self, users: &Users) {
        let (last_command, logged, first_database) = (self.last_command, self.logged, self.first_database);
        let watching = std::mem::take(&mut self.watching);
        self.client.set_login_end(None);
        let new = Session::new(Arc::clone(&self.client), users);
        *self = Session { last_command, watching, logged, first_database, ..new };
        self.show(|profile| {
            profile.name.clear();
            profile.is_kept_from_eviction = false;
            profile.tracking = None;
        });
    }
}
