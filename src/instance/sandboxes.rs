//! Sandboxes: each of so many numbers leads to a whole server. A client that selects the number of a database
//! of another sandbox goes there: from then on it is a client of that [`Instance`] and of no other.
//!
//! The databases of a sandbox have neighbouring numbers: those of the second one begin where those of the
//! first one end. The first sandbox is the server itself. Another one is made when a client enters it, and
//! given back when its last client has left and it differs in nothing from a new one. So a tool that walks
//! over all numbers leaves nothing.

use std::any::Any;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::future::pending;
use std::ptr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::sleep_until;

use super::Instance;
use crate::clients::Leaving;
use crate::config::{Checked, Config};

/// The sandboxes of a server.
pub(crate) struct Sandboxes {
    count: usize,
    /// How many databases each has.
    databases: usize,
    first: OnceLock<Weak<Instance>>,
    state: Mutex<State>,
    /// A lease has begun to end.
    ends: Notify,
    make: OnceLock<Make>,
    /// The parameters of a new one: those of the start, and what was set since for the whole server.
    initial: OnceLock<Config>,
}

/// Which sandboxes there are behind the first one.
#[derive(Default)]
struct State {
    living: BTreeMap<usize, Sandbox>,
    leases: BTreeMap<usize, Lease>,
    /// The one that was leased last.
    leased_last: usize,
}

/// A sandbox that is kept for those who know its number.
struct Lease {
    /// The client that has asked for it, while it is connected.
    holder: Option<u64>,
    /// For how long it is kept when the client, and all that have entered it, have left.
    lifetime: Duration,
    /// When it ends, if its holder has gone and no client is there.
    ends_at: Option<Instant>,
}

/// A sandbox as SANDBOX LIST shows it.
#[derive(Debug)]
pub(crate) struct Shown {
    /// The number of its first database.
    pub(crate) database: usize,
    /// Its instance; `None` if it was leased, and no client has entered it.
    pub(crate) instance: Option<Arc<Instance>>,
    /// Whether it is leased.
    pub(crate) is_leased: bool,
    /// For how long it is still kept, if its holder has gone and no client is there.
    pub(crate) left: Option<Duration>,
}

/// A sandbox that there is.
struct Sandbox {
    instance: Arc<Instance>,
    clients: usize,
    /// Its periodic work, which ends when this is dropped.
    _upkeep: Box<dyn Any + Send>,
}

/// Makes the instance of a sandbox, with its periodic work.
pub(crate) type Make = Box<dyn Fn(&Instance, usize) -> (Arc<Instance>, Box<dyn Any + Send>) + Send + Sync>;

/// The place of an instance among the sandboxes of its server.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// All of them.
    pub(crate) all: Arc<Sandboxes>,
    /// Its number. The first one is the server itself.
    pub(crate) number: usize,
}

impl Sandboxes {
    /// Checks the parameters, and has `databases` say how many there are in all sandboxes.
    ///
    /// # Errors
    ///
    /// With one line for people.
    pub(crate) fn check(config: &Config) -> Result<(), String> {
        const DATABASES_MAX: usize = 16_384;
        let (count, databases) = (config.sandboxes.size(), config.sandbox_databases.size());
        if count == 0 {
            return Ok(());
        }
        if !config.store.get().is_empty() {
            return Err("options --sandboxes and --store: sandboxes live in memory only".to_owned());
        }
        let all = count * databases;
        if all > DATABASES_MAX {
            return Err(format!("option --sandboxes: {DATABASES_MAX} databases at most, and not {all}"));
        }
        config.databases.set(all as i64);
        Ok(())
    }

    /// Those that the parameters ask for, if they ask for any.
    pub(crate) fn of(config: &Config) -> Option<Arc<Sandboxes>> {
        let (count, databases) = (config.sandboxes.size(), config.sandbox_databases.size());
        (count > 0).then(|| {
            let (first, make, initial) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
            Arc::new(Sandboxes {
                count,
                databases,
                first,
                state: Mutex::default(),
                ends: Notify::new(),
                make,
                initial,
            })
        })
    }

    /// Names the server itself, and how the others are made. Called before there are clients.
    pub(crate) fn open(&self, first: &Arc<Instance>, make: Make) {
        // No other code sets them.
        let _ = self.first.set(Arc::downgrade(first));
        let _ = self.make.set(make);
        let _ = self.initial.set(first.config.copy());
    }

    /// The first one: the server itself. `None` if it ends.
    pub(crate) fn first(&self) -> Option<Arc<Instance>> {
        self.first.get()?.upgrade()
    }

    /// The parameters of a new one.
    pub(crate) fn initial(&self) -> Config {
        self.initial.get().map_or_else(Config::new, Config::copy)
    }

    /// Has values count in all sandboxes, also in those that are made later. They count in the first one.
    pub(crate) fn spread(&self, values: &[Checked]) {
        let state = self.state.lock();
        for value in values {
            self.initial.get().into_iter().for_each(|initial| initial.store(value.clone()));
            state.living.values().for_each(|sandbox| sandbox.instance.config.store(value.clone()));
        }
        state.living.values().for_each(|sandbox| sandbox.instance.apply_config());
    }

    /// How many databases each has.
    pub(crate) fn databases(&self) -> usize {
        self.databases
    }

    /// The number of the sandbox of a database and the number of the database there.
    pub(crate) fn find(&self, database: usize) -> Option<(usize, usize)> {
        let sandbox = database / self.databases;
        (sandbox < self.count).then_some((sandbox, database % self.databases))
    }

    /// Lets a client that leaves one sandbox enter another one. `None` if the server ends.
    pub(crate) fn go(&self, from: &Instance, to: usize) -> Option<Arc<Instance>> {
        let first = self.first()?;
        let is_there = || to == 0 || self.state.lock().living.contains_key(&to);
        // It takes time if there are initial data: no other client waits for it.
        let mut made = if is_there() { None } else { Some(self.make.get()?(&first, to)) };
        let mut state = self.state.lock();
        let entered = match to {
            0 => first,
            _ => {
                let sandbox = match state.living.entry(to) {
                    // Another client may have been quicker.
                    Entry::Occupied(there) => there.into_mut(),
                    Entry::Vacant(place) => {
                        // Or the sandbox has been given back meanwhile.
                        let new = made.take().or_else(|| Some(self.make.get()?(&first, to)));
                        let (instance, upkeep) = new?;
                        place.insert(Sandbox { instance, clients: 0, _upkeep: upkeep })
                    }
                };
                sandbox.clients += 1;
                Arc::clone(&sandbox.instance)
            }
        };
        state.leases.get_mut(&to).into_iter().for_each(|lease| lease.ends_at = None);
        let gone = self.left(&mut state, from);
        drop(state);
        drop((gone, made));
        Some(entered)
    }

    /// Notes that a client has disconnected while it was in a sandbox.
    pub(crate) fn leave(&self, from: &Instance, client: u64) {
        let mut state = self.state.lock();
        let State { living, leases, .. } = &mut *state;
        for (number, lease) in leases.iter_mut().filter(|(_, lease)| lease.holder == Some(client)) {
            lease.holder = None;
            if living.get(number).is_none_or(|sandbox| sandbox.clients == 0) {
                lease.ends_at = Some(Instant::now() + lease.lifetime);
                self.ends.notify_one();
            }
        }
        let gone = self.left(&mut state, from);
        drop(state);
        drop(gone);
    }

    /// Counts a client less. Returns the sandbox if it is given back.
    fn left(&self, state: &mut State, from: &Instance) -> Option<Sandbox> {
        let number = from.place.as_ref()?.number;
        // It may have been dropped, and another one made since.
        let sandbox = state.living.get_mut(&number).filter(|it| ptr::eq(&*it.instance, from))?;
        sandbox.clients = sandbox.clients.saturating_sub(1);
        if sandbox.clients > 0 {
            return None;
        }
        if let Some(lease) = state.leases.get_mut(&number).filter(|lease| lease.holder.is_none()) {
            lease.ends_at = Some(Instant::now() + lease.lifetime);
            self.ends.notify_one();
        }
        sandbox.instance.is_as_new().then(|| state.living.remove(&number)).flatten()
    }

    /// Leases a sandbox of the upper half of the numbers that no client has entered or leased. Returns the
    /// number of its first database; `None` if there is none left.
    pub(crate) fn lease(&self, client: u64, lifetime: Duration) -> Option<usize> {
        let mut state = self.state.lock();
        let half = self.count.div_ceil(2).max(1);
        let behind = (state.leased_last + 1).clamp(half, self.count);
        let mut numbers = (behind..self.count).chain(half..behind);
        let number = numbers
            .find(|number| !state.living.contains_key(number) && !state.leases.contains_key(number))?;
        state.leased_last = number;
        state.leases.insert(number, Lease { holder: Some(client), lifetime, ends_at: None });
        Some(number * self.databases)
    }

    /// Ends a sandbox with everything in it, and its lease. Its clients are disconnected. Returns whether
    /// there was one. The first one stays.
    pub(crate) fn drop_sandbox(&self, number: usize) -> bool {
        let mut state = self.state.lock();
        let lease = state.leases.remove(&number);
        let gone = state.living.remove(&number);
        drop(state);
        if let Some(gone) = &gone {
            gone.instance.clients.all().iter().for_each(|client| client.ask_to_leave(Leaving::Now));
            empty(&gone.instance);
        }
        lease.is_some() || gone.is_some()
    }

    /// All sandboxes that there are or that are leased, in the order of their numbers.
    pub(crate) fn shown(&self) -> Vec<Shown> {
        let (first, state, now) = (self.first(), self.state.lock(), Instant::now());
        let mut numbers: Vec<usize> = state.living.keys().chain(state.leases.keys()).copied().collect();
        numbers.extend(first.is_some().then_some(0));
        numbers.sort_unstable();
        numbers.dedup();
        let shown = numbers.into_iter().map(|number| {
            let living = state.living.get(&number).map(|sandbox| Arc::clone(&sandbox.instance));
            let lease = state.leases.get(&number);
            Shown {
                database: number * self.databases,
                instance: if number == 0 { first.clone() } else { living },
                is_leased: lease.is_some(),
                left: lease.and_then(|lease| Some(lease.ends_at?.saturating_duration_since(now))),
            }
        });
        shown.collect()
    }

    /// The instance of a sandbox, if there is one.
    pub(crate) fn get(&self, number: usize) -> Option<Arc<Instance>> {
        match number {
            0 => self.first(),
            _ => self.state.lock().living.get(&number).map(|sandbox| Arc::clone(&sandbox.instance)),
        }
    }

    /// The instances of those behind the first one that there are.
    pub(crate) fn living(&self) -> Vec<Arc<Instance>> {
        self.state.lock().living.values().map(|sandbox| Arc::clone(&sandbox.instance)).collect()
    }

    /// Ends the leases whose time has come, with what is in their sandboxes.
    pub(crate) async fn end_leases(self: Arc<Self>) {
        loop {
            let next = self.state.lock().leases.values().filter_map(|lease| lease.ends_at).min();
            let over = async {
                match next {
                    Some(moment) => sleep_until(moment.into()).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = over => {}
                () = self.ends.notified() => continue,
            }
            let (now, mut state) = (Instant::now(), self.state.lock());
            let ended: Vec<usize> = state
                .leases
                .extract_if(.., |_, lease| lease.ends_at.is_some_and(|at| at <= now))
                .map(|it| it.0)
                .collect();
            let gone: Vec<_> = ended.iter().filter_map(|number| state.living.remove(number)).collect();
            drop(state);
            gone.iter().for_each(|gone| empty(&gone.instance));
        }
    }

    /// Ends all of them but the first one. Their clients have left.
    pub(crate) fn close(&self) {
        let gone = std::mem::take(&mut *self.state.lock());
        drop(gone);
    }
}

/// Has the data freed in the background. Without that, the thread would free them on which the instance ends.
fn empty(instance: &Instance) {
    // If a script has them, they end with it.
    if let Ok(mut everything) = instance.keyspace.begin_all(0) {
        everything.flush_all();
        everything.free_in_background();
        drop(everything.take_effects());
    }
}

impl fmt::Debug for Sandboxes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Sandboxes { count, databases, .. } = self;
        f.debug_struct("Sandboxes")
            .field("count", count)
            .field("databases", databases)
            .finish_non_exhaustive()
    }
}

impl Instance {
    /// The server itself, if this is another sandbox of it.
    pub(crate) fn first_sandbox(&self) -> Option<Arc<Instance>> {
        let place = self.place.as_ref().filter(|place| place.number > 0)?;
        place.all.first()
    }

    /// Those of its sandboxes that there are besides the server itself.
    pub(crate) fn other_sandboxes(&self) -> Vec<Arc<Instance>> {
        self.place.as_ref().map_or_else(Vec::new, |place| place.all.living())
    }

    /// Notes that its data are those with which it begins.
    pub(crate) fn note_begun(&self) {
        self.changes_begun.store(self.keyspace.changes().unwrap_or(0), Ordering::Relaxed);
    }

    /// Whether it differs in nothing that a client could notice from a sandbox that is just made.
    fn is_as_new(&self) -> bool {
        let begins_with_data = self.initial.get().is_some_and(|initial| !initial.is_empty());
        let has_own_data = match begins_with_data {
            true => self.keyspace.changes() != Some(self.changes_begun.load(Ordering::Relaxed)),
            false => !self.keyspace.totals_soon().is_some_and(|all| all.sizes.iter().all(|it| it.keys == 0)),
        };
        let usage = self.scripting.usage();
        !has_own_data
            && usage.scripts == 0
            && (begins_with_data || self.scripting.libraries().all().len() == 0)
            && self.faults.count() == 0
            && !self.clock.is_turned()
            && self.lens.findings(1).is_empty()
            && self.clients.pause.paused().is_none()
            && self.own_settings.lock().is_empty()
    }
}
