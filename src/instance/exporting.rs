//! Snapshots for clients that ask for one (SYNC).

use std::fs::File;
use std::io::{self, Seek};
use std::sync::Arc;

use super::Instance;
use super::saving::NotSaved;
use crate::clock;
use crate::files::reason;
use crate::keyspace::Busy;
use crate::persistence::{Destination, Ended, Purpose, functions_alone, nameless};

impl Instance {
    /// Writes the data as they are now into a file without a name, for a thread that may wait. Clients go on
    /// meanwhile.
    ///
    /// # Errors
    ///
    /// [`NotSaved`]
    pub fn export(&self) -> Result<File, NotSaved> {
        let failed = |error: io::Error| {
            tracing::warn!("A snapshot for a client cannot be written: {}", reason(&error));
            NotSaved::Failed
        };
        let file = Arc::new(nameless(&self.config.directory()).map_err(failed)?);
        let plan = self.plan(Purpose::Export, Destination::Nameless(Arc::clone(&file)), true, true);
        let job = {
            let mut tx = self.keyspace.begin_all(0).map_err(|Busy| NotSaved::Busy)?;
            self.persistence.begin_snapshot(&mut tx.as_mut(), plan).ok_or(NotSaved::InProgress)?
        };
        self.warn_of_turned_clock("snapshot");
        match self.write_snapshot(job) {
            Ended::Saved => {}
            Ended::Failed | Ended::Abandoned => return Err(NotSaved::Failed),
        }
        let mut file = file.try_clone().map_err(failed)?;
        file.rewind().map_err(failed)?;
        Ok(file)
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
