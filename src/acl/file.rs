//! The ACL file: one user a line, as ACL LIST prints them.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::catalog::Catalog;
use super::grants::{Grants, is_name, merge};
use super::selector::Mistake;

/// Permissions of a new file: what is in it is for nobody else.
const NEW_FILE_MODE: u32 = 0o600;

/// Users by their names.
pub(super) type Named = BTreeMap<Vec<u8>, Grants>;

/// Reads a file of users.
///
/// # Errors
///
/// With all that is wrong with it, in the words of Redis.
pub(super) fn load(path: &Path, catalog: &Catalog, all_channels: bool) -> Result<Named, String> {
    let name = path.display();
    let text = fs::read(path)
        .map_err(|error| format!("Error loading ACLs, opening file '{name}': {}", plain_text(&error)))?;
    let mut users = Named::new();
    let mut mistakes = String::new();
    for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
        let line = line.trim_ascii();
        if !line.is_empty() {
            read_line(line, &format!("{name}:{number}"), number, catalog, all_channels, &mut users)
                .unwrap_or_else(|wrong| mistakes.push_str(&wrong));
        }
    }
    if mistakes.is_empty() {
        return Ok(users);
    }
    mistakes += "WARNING: ACL errors detected, no change to the previously active ACL rules was performed";
    Err(mistakes)
}

/// Adds the user of one line.
fn read_line(
    line: &[u8],
    place: &str,
    number: usize,
    catalog: &Catalog,
    all_channels: bool,
    users: &mut Named,
) -> Result<(), String> {
    let mut words = line.split(|byte| *byte == b' ');
    let (Some(b"user"), Some(user)) = (words.next(), words.next()) else {
        return Err(format!("{place} should start with user keyword followed by the username. "));
    };
    let shown = String::from_utf8_lossy(user);
    if !is_name(user) {
        return Err(format!("'{place}: username '{shown}' contains invalid characters. "));
    }
    if users.contains_key(user) {
        return Err(format!("WARNING: Duplicate user '{shown}' found on line {number}. "));
    }
    let mut grants = Grants::none(catalog, all_channels);
    let rules = merge(words.map(<[u8]>::trim_ascii));
    let mut wrong = String::new();
    let mut has_mistake = false;
    match &rules {
        Err(_) => wrong = format!("{place}: Unmatched parenthesis in selector definition."),
        Ok(rules) => {
            for rule in rules {
                match grants.apply(rule, catalog, all_channels) {
                    Ok(()) => {}
                    // It holds no secret, and others may follow.
                    Err(mistake @ Mistake::UnknownCommand) => {
                        let rule = String::from_utf8_lossy(rule);
                        wrong += &format!("{place}: Error in applying operation '{rule}': {mistake}. ");
                    }
                    Err(mistake) if !has_mistake => {
                        wrong += &format!("{place}: {mistake}. ");
                        has_mistake = true;
                    }
                    // What follows a mistake may be a consequence of it.
                    Err(_) => {}
                }
            }
        }
    }
    users.insert(user.to_vec(), grants);
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

/// Writes a file of users in place of the one that is there: whoever reads it sees the old one or the new
/// one.
///
/// # Errors
///
/// If that fails; the old one is still there then.
pub(super) fn save(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(format!(".tmp-{}", std::process::id()));
    let new = PathBuf::from(new);
    let written = write(&new, path, text).and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        // There is nothing to be done about it, and it does no harm.
        let _ = fs::remove_file(&new);
    }
    written
}

fn write(new: &Path, old: &Path, text: &[u8]) -> io::Result<()> {
    let mode = fs::metadata(old).map_or(NEW_FILE_MODE, |old| old.permissions().mode() & 0o777);
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(NEW_FILE_MODE).open(new)?;
    file.set_permissions(Permissions::from_mode(mode))?;
    file.write_all(text)?;
    file.sync_all()
}

/// The text of the system, without the number that Rust adds.
fn plain_text(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}
