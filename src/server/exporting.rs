//! Sends a snapshot to a client that has asked for one (SYNC), as the last thing on its connection.

use std::fs::File;
use std::io::{self, Cursor, Read};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::select;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::instance::{Instance, NotSaved};
use crate::persistence::Wanted;
use crate::resp::reply::write_error;

use super::carrier::Carrier;
use super::runner::Runner;

/// How often the client is shown, by an empty line, that its snapshot is being written. Redis: the same.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);
/// How long a thread waits for a script before it looks again.
const SCRIPT_GLANCE: Duration = Duration::from_millis(10);
/// Bytes of the snapshot that are read at a time.
const PIECE_BYTES: usize = 256 << 10;

/// A snapshot that can be sent.
struct Export {
    bytes: u64,
    content: Box<dyn Read + Send>,
}

impl<C: Carrier> Runner<C> {
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
            self.drain().await?;
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
        self.drain().await
    }
}

/// Writes the snapshot, after others that are being written. `None` if that fails; the log says why.
async fn make(instance: &Arc<Instance>, wanted: Wanted) -> Option<Export> {
    if !wanted.data {
        let bytes = instance.charged(|| instance.export_functions(wanted.functions));
        return Some(Export { bytes: bytes.len() as u64, content: Box::new(Cursor::new(bytes)) });
    }
    let file: File = loop {
        instance.persistence.settled().await;
        let writer = Arc::clone(instance);
        match spawn_blocking(move || writer.charged(|| writer.export())).await {
            Ok(Ok(file)) => break file,
            Ok(Err(NotSaved::InProgress)) => {}
            Ok(Err(NotSaved::Busy)) => sleep(SCRIPT_GLANCE).await,
            Ok(Err(NotSaved::Failed)) | Err(_) => return None,
        }
    };
    let bytes = file.metadata().ok()?.len();
    Some(Export { bytes, content: Box::new(file) })
}
