//! Snapshots for clients that ask for one (SYNC).
//!
//! Clients that wait for one share it: the next one that begins is that of all who have asked until then. It
//! lies in a file without a name, until the last of them has taken it or has left. Only so many files exist
//! at once: clients that read slowly do not fill the disk.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::Instance;
use super::saving::NotSaved;
use crate::clock;
use crate::files::reason;
use crate::keyspace::Busy;
use crate::persistence::{Destination, Ended, Purpose, functions_alone, nameless};

/// Snapshots for clients that exist at once. Each takes as much of the disk as the data.
const EXPORTS_MAX: usize = 3;
/// How long a thread waits for a script before it looks again.
const SCRIPT_GLANCE: Duration = Duration::from_millis(10);

/// A snapshot that some clients share. The file is gone with the last of them.
#[derive(Debug)]
pub struct Export {
    /// Its content. It is read by place, so that each client is at its own.
    pub file: File,
    _permit: OwnedSemaphorePermit,
}

/// What came of a snapshot; `None` before that.
type Made = Option<Result<Arc<Export>, NotSaved>>;

/// The snapshots for clients.
#[derive(Debug)]
pub(super) struct Exports {
    /// The export that has not begun. The clients that have asked for it learn its result here.
    next: Mutex<Option<watch::Receiver<Made>>>,
    permits: Arc<Semaphore>,
}

impl Default for Exports {
    fn default() -> Exports {
        Exports { next: Mutex::default(), permits: Arc::new(Semaphore::new(EXPORTS_MAX)) }
    }
}

impl Instance {
    /// A snapshot of the data, no older than this request; `None` if it cannot be written, and the log says
    /// why.
    pub async fn exported(self: &Arc<Self>) -> Option<Arc<Export>> {
        let mut made = {
            let mut next = self.exports.next.lock();
            let begin = || {
                let (sender, receiver) = watch::channel(None);
                tokio::spawn(make(Arc::clone(self), sender));
                receiver
            };
            next.get_or_insert_with(begin).clone()
        };
        let made = made.wait_for(Option::is_some).await.ok()?;
        made.as_ref()?.as_ref().ok().cloned()
    }

    /// Writes the data as they are now into a file without a name, for a thread that may wait. Clients go on
    /// meanwhile.
    fn export(&self) -> Result<File, NotSaved> {
        let failed = |error: io::Error| {
            tracing::warn!("A snapshot for a client cannot be written: {}", reason(&error));
            NotSaved::Failed
        };
        let file = Arc::new(nameless(&self.config.directory()).map_err(failed)?);
        let plan = self.snapshot_plan(Purpose::Export, Destination::Nameless(Arc::clone(&file)), true, true);
        let job = {
            let mut tx = self.keyspace.begin_all(0).map_err(|Busy| NotSaved::Busy)?;
            self.persistence.begin_snapshot(&mut tx.as_mut(), plan).ok_or(NotSaved::InProgress)?
        };
        self.warn_of_turned_clock("snapshot");
        match self.write_snapshot(job) {
            Ended::Saved => {}
            Ended::Failed | Ended::Abandoned => return Err(NotSaved::Failed),
        }
        file.try_clone().map_err(failed)
    }

    /// A snapshot without keys, with the libraries of functions or without.
    pub fn export_functions(&self, has_functions: bool) -> Vec<u8> {
        let libraries: Vec<_> = match has_functions {
            true => self.scripting.libraries().all().cloned().collect(),
            false => Vec::new(),
        };
        functions_alone(&libraries, self.rdb_form(), clock::system_s())
    }
}

/// Writes the next snapshot for clients, after others that are being written.
async fn make(instance: Arc<Instance>, made: watch::Sender<Made>) {
    let exports = &instance.exports;
    let Ok(permit) = Arc::clone(&exports.permits).acquire_owned().await else { return };
    instance.persistence.settled().await;
    // Those who ask from now on get a later one.
    drop(exports.next.lock().take());
    let outcome = loop {
        if made.is_closed() {
            // All of them have left.
            return;
        }
        instance.persistence.settled().await;
        let writer = Arc::clone(&instance);
        match spawn_blocking(move || writer.charged(|| writer.export())).await {
            Ok(Ok(file)) => break Ok(Arc::new(Export { file, _permit: permit })),
            Ok(Err(NotSaved::InProgress)) => {}
            Ok(Err(NotSaved::Busy)) => sleep(SCRIPT_GLANCE).await,
            Ok(Err(NotSaved::Failed)) | Err(_) => break Err(NotSaved::Failed),
        }
    };
    // All of them may have left meanwhile.
    let _ = made.send(Some(outcome));
}
