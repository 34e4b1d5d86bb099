//! Sends a snapshot to a client that has asked for one (SYNC), as the last thing on its connection.

use std::io::{self, Cursor, Read};
use std::os::unix::fs::FileExt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::select;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use crate::instance::{self, Instance};
use crate::persistence::Wanted;
use crate::resp::reply::write_error;

use super::carrier::made_to_leave;
use super::runner::Runner;
use super::wire::Wire;

/// How often the client is shown, by an empty line, that its snapshot is being written. Redis: the same.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);
/// How long a client may take nothing of its snapshot, which holds a part of the disk. Redis: the default of
/// `repl-timeout`.
const STANDSTILL_MAX: Duration = Duration::from_secs(60);
/// Bytes of the snapshot that are read at a time.
const PIECE_BYTES: usize = 256 << 10;

/// A snapshot that can be sent.
struct Export {
    bytes: u64,
    content: Box<dyn Read + Send>,
}

impl<Stream: Wire> Runner<Stream> {
    /// Has a snapshot written, sends it, and returns once the client has taken it.
    pub(super) async fn send_snapshot(&mut self, wanted: Wanted) -> io::Result<()> {
        let instance = Arc::clone(&self.conversation.instance);
        let (mut making, mut made) = (pin!(make(&instance, wanted)), None);
        while made.is_none() {
            let done_or_late = async {
                select! {
                    export = &mut making => made = Some(export),
                    () = sleep(SIGN_OF_LIFE) => {}
                }
            };
            self.sit_out(done_or_late, false).await?;
            if made.is_none() {
                self.conversation.output.push(b'\n');
                self.flush().await?;
            }
        }
        let Some(Export { bytes, mut content }) = made.flatten() else {
            write_error(&mut self.conversation.output, b"ERR BGSAVE failed, replication can't continue");
            self.flush().await?;
            return self.drain().await;
        };
        self.conversation.output.extend_from_slice(format!("${bytes}\r\n").as_bytes());
        let mut left = bytes;
        while left > 0 {
            self.flush().await?;
            // Only so much waits for the client as is read at a time.
            self.drain_without_standstill().await?;
            let reading = spawn_blocking(move || {
                let mut piece = vec![0; PIECE_BYTES.min(usize::try_from(left).unwrap_or(PIECE_BYTES))];
                content.read_exact(&mut piece).map(|()| (piece, content))
            });
            let piece;
            (piece, content) = reading.await.map_err(io::Error::other)??;
            left -= piece.len() as u64;
            self.conversation.output.extend_from_slice(&piece);
        }
        self.flush().await?;
        self.drain_without_standstill().await
    }

    /// Waits until the client has taken all its output, as long as it takes some.
    async fn drain_without_standstill(&mut self) -> io::Result<()> {
        let client = Arc::clone(&self.conversation.session.client);
        loop {
            let before = client.output().bytes;
            match timeout(STANDSTILL_MAX, self.drain()).await {
                Ok(drained) => return drained,
                Err(_) if client.output().bytes < before => {}
                Err(_) => {
                    tracing::warn!("Disconnecting timedout replica: {} reads no snapshot", client.address);
                    return Err(made_to_leave());
                }
            }
        }
    }
}

/// The snapshot that a client wants. `None` if it cannot be written; the log says why.
async fn make(instance: &Arc<Instance>, wanted: Wanted) -> Option<Export> {
    if !wanted.data {
        let bytes = instance.charged(|| instance.export_functions(wanted.functions));
        return Some(Export { bytes: bytes.len() as u64, content: Box::new(Cursor::new(bytes)) });
    }
    let export = instance.exported().await?;
    let bytes = export.file.metadata().ok()?.len();
    Some(Export { bytes, content: Box::new(FromStart { export, at: 0 }) })
}

/// A snapshot that others read, too, from its beginning on.
struct FromStart {
    export: Arc<instance::Export>,
    at: u64,
}

impl Read for FromStart {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        let bytes = self.export.file.read_at(target, self.at)?;
        self.at += bytes as u64;
        Ok(bytes)
    }
}
