//! The hosts of a store: all are tried at once, and the first one that can be used is.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

/// How long the other hosts are waited for when one has refused.
const OTHERS_PATIENCE: Duration = Duration::from_secs(1);

/// The connection to the host that was opened first.
///
/// # Errors
///
/// What is wrong with the hosts that have refused, in the order of their numbers.
pub(super) async fn first_opened<T: 'static>(
    mut tries: JoinSet<Result<T, (usize, String)>>,
    patience: Duration,
) -> Result<T, String> {
    let mut complaints = Vec::new();
    // A host that hangs must not keep the others from being tried again.
    while let Ok(Some(tried)) =
        timeout(if complaints.is_empty() { patience } else { OTHERS_PATIENCE }, tries.join_next()).await
    {
        match tried {
            Ok(Ok(opened)) => return Ok(opened),
            Ok(Err(complaint)) => complaints.push(complaint),
            Err(_) => {}
        }
    }
    complaints.sort_unstable();
    let complaints: Vec<String> = complaints.into_iter().map(|(_, complaint)| complaint).collect();
    Err(complaints.join("; "))
}
