//! Fills an empty data set with the initial data of the server (`init`), in the way in which a log is
//! replayed. All of it is there then, or the caller hears why not.

use std::time::Instant;

use crate::instance::{InitialContent, Instance};
use crate::keyspace::{Busy, Everything, Transaction};

use super::replay::Replayer;

/// Fills the data set, if the server has initial data. Called before there are clients.
///
/// # Errors
///
/// With one line for people. A part of the data may be there.
pub(crate) fn fill_new(instance: &Instance) -> Result<(), String> {
    let Some(initial) = instance.initial.get().filter(|initial| !initial.is_empty()) else { return Ok(()) };
    let mut tx = instance.keyspace.begin_all(0).map_err(|Busy| "a script runs")?;
    let has_keys = tx.walk().map_err(|_| "a script runs")?.totals().sizes.iter().any(|size| size.keys > 0);
    if has_keys || instance.scripting.libraries().all().len() > 0 {
        tracing::info!("There are data: the initial data of {} files are passed over", initial.files().len());
        return Ok(());
    }
    instance.hand_over();
    let began = Instant::now();
    fill(instance, &mut tx.as_mut(), false)?;
    drop(tx);
    if instance.first_sandbox().is_none() {
        tracing::info!("Initial data loaded: {:.3} seconds", began.elapsed().as_secs_f64());
        if instance.persistence.aof.is_on() {
            // The log begins with them.
            instance.try_rewrite()?;
        }
    }
    Ok(())
}

/// Whether the initial data can be added once more, while there is a log or not.
///
/// # Errors
///
/// With one line for people.
pub(crate) fn check_again(instance: &Instance, is_logged: bool) -> Result<(), String> {
    let files = instance.initial.get().into_iter().flat_map(|initial| initial.files());
    let mut snapshots = files.filter(|file| matches!(file.content, InitialContent::Snapshot(_)));
    match snapshots.next().filter(|_| is_logged) {
        None => Ok(()),
        Some(file) => Err(file.complain_of_all("a snapshot cannot be loaded again while there is a log")),
    }
}

/// Adds the initial data to a data set that the caller has emptied. If `is_logged`, the log gets them as if
/// clients had sent them.
///
/// # Errors
///
/// With one line for people.
pub(crate) fn fill(
    instance: &Instance,
    tx: &mut Everything<&mut Transaction<'_>>,
    is_logged: bool,
) -> Result<(), String> {
    let Some(initial) = instance.initial.get() else { return Ok(()) };
    let mut replayer = Replayer::new(instance, false);
    if !is_logged {
        tx.begin_replay();
    }
    instance.keyspace.allow_lock_news(false);
    let filled = initial.files().iter().try_for_each(|file| match &file.content {
        InitialContent::Requests(requests) => requests.iter().try_for_each(|(place, request)| {
            let Some(request) = request.request() else { return Ok(()) };
            replayer.demand(tx, request).map_err(|why| file.complain(place, &why))
        }),
        InitialContent::Snapshot(bytes) => {
            let loaded = instance.load_initial_snapshot(bytes, tx);
            loaded.map_err(|why| file.complain_of_all(&why))
        }
    });
    tx.select(0);
    if !is_logged {
        tx.end_replay();
    }
    instance.allow_lock_news();
    filled
}
