//! The long requests of all clients: how many there are, and how much memory their results take.
//!
//! A long request waits for one of a few threads. While it waits and runs, and until its client has taken the
//! reply, a [`Permit`] counts the bytes that the reply takes, or what it makes before it stores it. Together
//! they are limited: beyond that, a further long request gets an error.

use std::any::Any;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::Client;
use crate::keyspace::{Missed, complete, missing_bytes};

/// The long requests of all clients.
#[derive(Debug, Default)]
pub struct LongRequests {
    waiting: AtomicUsize,
    running: AtomicUsize,
    reply_bytes: AtomicUsize,
    refused: AtomicU64,
}

/// How many long requests there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongTotals {
    /// Those that wait for a thread.
    pub waiting: usize,
    /// Those that run.
    pub running: usize,
    /// Bytes that the replies take, or may take, whose clients have not taken them yet, and bytes of what is
    /// made to be stored.
    pub reply_bytes: usize,
    /// Those that were refused since the start.
    pub refused: u64,
}

/// The results take too much memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMuch;

/// Counts the memory of one result, for as long as this exists.
#[derive(Debug)]
pub struct Permit {
    all: Arc<LongRequests>,
    client: Arc<Client>,
    bytes: usize,
}

/// The long request of a client.
#[derive(Debug)]
pub struct LongRequest {
    permit: Permit,
    stage: Stage,
    /// The client's socket, by which the request finds out that its client has gone.
    pub socket: Option<OwnedFd>,
    /// Whether it ended before its reply was complete, since its client has gone.
    pub was_cancelled: bool,
    /// Whether it is executed even if its client has gone meanwhile: others shall see what it changes.
    pub outlives_client: bool,
    /// What is missing in its reply. If there is anything, the request was executed.
    pub missed: Vec<Missed>,
    /// What was derived for it while nothing was locked, for the engine.
    pub derived: Option<Box<dyn Any + Send>>,
}

/// A long request waits or runs. Counts it.
#[derive(Debug)]
enum Stage {
    Waiting(Arc<LongRequests>),
    Running(Arc<LongRequests>),
}

impl LongRequests {
    /// Counts a long request of a client, whose reply, or what it makes to store it, may take these numbers
    /// of bytes, within a limit. The only one may exceed it: unless its arguments alone make its reply long
    /// (`is_repeated`), it is no larger than the values that it reads.
    pub fn admit(
        self: &Arc<Self>,
        client: &Arc<Client>,
        (reply_bytes, stored_bytes): (u64, u64),
        is_repeated: bool,
        bytes_max: usize,
    ) -> Result<LongRequest, TooMuch> {
        let [reply_bytes, stored_bytes] =
            [reply_bytes, stored_bytes].map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        let bytes = reply_bytes.max(stored_bytes);
        let taken = self.reply_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |others| {
            let is_within = others.checked_add(bytes).is_some_and(|sum| sum <= bytes_max);
            let is_alone = others == 0 && !is_repeated;
            (is_within || is_alone).then(|| others.saturating_add(bytes))
        });
        if taken.is_err() {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(TooMuch);
        }
        // What is stored is none of the client's own memory.
        Ok(self.wait(client, bytes, reply_bytes, Vec::new()))
    }

    /// Counts a request that was executed, and whose reply lacks these parts.
    pub fn admit_rest(self: &Arc<Self>, client: &Arc<Client>, missed: Vec<Missed>) -> LongRequest {
        let bytes = missing_bytes(&missed);
        self.reply_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.wait(client, bytes, bytes, missed)
    }

    fn wait(
        self: &Arc<Self>,
        client: &Arc<Client>,
        bytes: usize,
        reply_bytes: usize,
        missed: Vec<Missed>,
    ) -> LongRequest {
        client.footprint.set_reserved(reply_bytes);
        let permit = Permit { all: Arc::clone(self), client: Arc::clone(client), bytes };
        let stage = Stage::waiting(self);
        LongRequest {
            permit,
            stage,
            socket: None,
            was_cancelled: false,
            outlives_client: false,
            missed,
            derived: None,
        }
    }

    /// Whether none waits or runs.
    pub fn are_at_rest(&self) -> bool {
        let totals = self.totals();
        totals.waiting + totals.running == 0
    }

    /// The long requests that wait and run, and what they hold.
    pub fn totals(&self) -> LongTotals {
        LongTotals {
            waiting: self.waiting.load(Ordering::Relaxed),
            running: self.running.load(Ordering::Relaxed),
            reply_bytes: self.reply_bytes.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }
}

impl LongRequest {
    /// Completes the reply in `out`.
    pub fn complete(&mut self, out: &mut Vec<u8>) {
        complete(out, std::mem::take(&mut self.missed));
    }

    /// Notes how many bytes it has made that it is about to store.
    pub fn note_made(&mut self, bytes: usize) {
        self.permit.set_bytes(bytes);
    }

    /// Notes that it has got a thread.
    pub fn note_thread(&mut self) {
        self.stage = Stage::running(&self.permit.all);
    }

    /// Notes that it has run. Its reply takes this number of bytes, until the permit is dropped.
    pub fn end(mut self, reply_bytes: usize) -> Permit {
        // The output buffers of the client count from here on.
        self.permit.client.footprint.set_reserved(0);
        self.permit.set_bytes(reply_bytes);
        self.permit
    }
}

impl Permit {
    fn set_bytes(&mut self, bytes: usize) {
        let before = std::mem::replace(&mut self.bytes, bytes);
        // Wraps around where it has become less.
        self.all.reply_bytes.fetch_add(bytes.wrapping_sub(before), Ordering::Relaxed);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.client.footprint.set_reserved(0);
        self.set_bytes(0);
    }
}

impl Stage {
    fn waiting(all: &Arc<LongRequests>) -> Stage {
        all.waiting.fetch_add(1, Ordering::Relaxed);
        Stage::Waiting(Arc::clone(all))
    }

    fn running(all: &Arc<LongRequests>) -> Stage {
        all.running.fetch_add(1, Ordering::Relaxed);
        Stage::Running(Arc::clone(all))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let count = match self {
            Stage::Waiting(all) => &all.waiting,
            Stage::Running(all) => &all.running,
        };
        count.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::clients::{Address, Clients};

    #[test]
    fn replies_count_until_their_clients_have_taken_them() {
        let clients = Arc::new(Clients::new(Arc::default()));
        let nowhere = Address::Unix(Path::new("").into());
        let registration = clients.register(nowhere.clone(), nowhere, -1);
        let client = &registration.client;
        let before = client.footprint.bytes();
        let all = Arc::<LongRequests>::default();
        let mut first = all.admit(client, (150, 0), false, 100).expect("it is the only one");
        assert_eq!(client.footprint.bytes(), before + 150);
        assert_eq!(all.admit(client, (1, 0), false, 100).err(), Some(TooMuch));
        let counts = |all: &LongRequests| {
            let totals = all.totals();
            (totals.waiting, totals.running, totals.reply_bytes, totals.refused)
        };
        assert_eq!(counts(&all), (1, 0, 150, 1));
        first.note_thread();
        assert_eq!(counts(&all), (0, 1, 150, 1));
        let permit = first.end(40);
        assert_eq!((counts(&all), client.footprint.bytes()), ((0, 0, 40, 1), before));
        let second = all.admit(client, (60, 0), true, 100).expect("both are within the limit");
        assert!(all.admit(client, (u64::MAX, 0), true, 100).is_err());
        drop((permit, second));
        assert_eq!((counts(&all), client.footprint.bytes()), ((0, 0, 0, 2), before));
        assert!(all.admit(client, (101, 0), true, 100).is_err(), "no value limits it");
    }

    #[test]
    fn what_is_made_to_be_stored_counts_but_not_as_memory_of_the_client() {
        let clients = Arc::new(Clients::new(Arc::default()));
        let nowhere = Address::Unix(Path::new("").into());
        let registration = clients.register(nowhere.clone(), nowhere, -1);
        let (client, all) = (&registration.client, Arc::<LongRequests>::default());
        let before = client.footprint.bytes();
        let mut storing = all.admit(client, (0, 70), false, 100).expect("it is the only one");
        assert_eq!((all.totals().reply_bytes, client.footprint.bytes()), (70, before));
        assert_eq!(all.admit(client, (0, 40), false, 100).err(), Some(TooMuch));
        storing.note_made(50);
        drop(all.admit(client, (0, 40), false, 100).expect("it has made less than it might have"));
        drop(storing.end(0));
        assert_eq!(all.totals().reply_bytes, 0);
    }
}
