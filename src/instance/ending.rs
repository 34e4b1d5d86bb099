//! The end of the server: which request asks for it, and whether clients still get replies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clients::Client;

/// A request to end the server, once there is one.
#[derive(Debug, Default)]
pub struct Shutdown {
    request: Mutex<Option<ShutdownRequest>>,
    asked: Notify,
}

/// A request to end the server.
#[derive(Debug)]
pub struct ShutdownRequest {
    /// Whether the data are saved first.
    pub saving: Saving,
    /// Whether the server ends even if the data could not be saved.
    pub is_forced: bool,
    /// The client that waits for the end, if there is one.
    pub client: Option<Arc<Client>>,
}

/// Whether data are saved before the server ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saving {
    /// If there are snapshot points (`save`).
    IfConfigured,
    /// In any case.
    Yes,
    /// In no case.
    No,
}

impl Shutdown {
    /// Asks the server to end. A later request replaces one that was not taken yet.
    pub fn ask(&self, request: ShutdownRequest) {
        *self.request.lock() = Some(request);
        self.asked.notify_one();
    }

    /// Waits for a request to end the server, and takes it.
    pub async fn asked(&self) -> ShutdownRequest {
        loop {
            if let Some(request) = self.request.lock().take() {
                return request;
            }
            self.asked.notified().await;
        }
    }
}

/// Whether clients get their replies.
///
/// While the server saves the data for the last time, it does not know yet whether it will go on. Changes
/// after the moment of that snapshot would be lost if it ends. So it holds back all replies until that is
/// decided.
#[derive(Debug, Default)]
pub struct ReplyGate {
    state: AtomicU8,
    decided: Notify,
}

const OPEN: u8 = 0;
const CLOSED: u8 = 1;
const DISCARDING: u8 = 2;

impl ReplyGate {
    /// Holds all replies back. The caller calls it before the moment of the snapshot.
    pub fn hold(&self) {
        self.state.store(CLOSED, Ordering::Release);
    }

    /// Decides whether clients get the replies, or nothing any more.
    pub fn decide(&self, is_open: bool) {
        self.state.store(if is_open { OPEN } else { DISCARDING }, Ordering::Release);
        self.decided.notify_waiters();
    }

    /// Whether replies are sent at once.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.state.load(Ordering::Acquire) == OPEN
    }

    /// Waits for the decision; returns whether clients get their replies.
    pub async fn decided(&self) -> bool {
        loop {
            let decided = self.decided.notified();
            match self.state.load(Ordering::Acquire) {
                CLOSED => decided.await,
                state => return state == OPEN,
            }
        }
    }
}
