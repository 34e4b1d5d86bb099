//! The end of the server: who asks for it, and whether clients are still answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clients::Client;

/// The wish that the server ends.
#[derive(Debug, Default)]
pub struct Shutdown {
    request: Mutex<Option<ShutdownRequest>>,
    asked: Notify,
}

/// Who wishes it, and how.
#[derive(Debug)]
pub struct ShutdownRequest {
    /// Whether the data are saved before.
    pub saving: Saving,
    /// Whether it ends even if they could not be.
    pub is_forced: bool,
    /// The client that waits for it, if one does.
    pub client: Option<Arc<Client>>,
}

/// Whether data are saved before the server ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saving {
    /// If there are snapshot points (`save`).
    IfConfigured,
    /// Yes.
    Yes,
    /// No.
    No,
}

impl Shutdown {
    /// Wishes it. A later wish replaces one that nobody has seen yet.
    pub fn ask(&self, request: ShutdownRequest) {
        *self.request.lock() = Some(request);
        self.asked.notify_one();
    }

    /// Waits until somebody does.
    pub async fn asked(&self) -> ShutdownRequest {
        loop {
            if let Some(request) = self.request.lock().take() {
                return request;
            }
            self.asked.notified().await;
        }
    }
}

/// Whether clients are given their replies.
///
/// While data are saved a last time nobody knows whether the server will go on: until then what was done
/// after the moment of the snapshot, and would be lost, is acknowledged to nobody.
#[derive(Debug, Default)]
pub struct Answers {
    state: AtomicU8,
    decided: Notify,
}

const GIVEN: u8 = 0;
const HELD: u8 = 1;
const WITHHELD: u8 = 2;

impl Answers {
    /// Holds all replies back, from before the moment of the snapshot on.
    pub fn hold(&self) {
        self.state.store(HELD, Ordering::Release);
    }

    /// Says whether they are given, or nothing any more.
    pub fn decide(&self, are_given: bool) {
        self.state.store(if are_given { GIVEN } else { WITHHELD }, Ordering::Release);
        self.decided.notify_waiters();
    }

    /// Whether replies are given as they come.
    #[inline]
    pub fn are_given(&self) -> bool {
        self.state.load(Ordering::Acquire) == GIVEN
    }

    /// Waits until it is decided; answers whether they are given.
    pub async fn decided(&self) -> bool {
        loop {
            let decided = self.decided.notified();
            match self.state.load(Ordering::Acquire) {
                HELD => decided.await,
                state => return state == GIVEN,
            }
        }
    }
}
