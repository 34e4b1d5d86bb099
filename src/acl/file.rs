//! The ACL file: one user a line, as ACL LIST prints them.

use std::collections::BTreeMap;
use std::fs;

use crate::files::{self, NamedFile};

use super::catalog::Catalog;
use super::grants::{Grants, is_name, merge};
use super::selector::Mistake;

/// Users by their names.
pub(super) type Named = BTreeMap<Vec<u8>, Grants>;

/// Reads a file of users.
///
/// # Errors
///
/// With all that is wrong with it, in the words of Redis.
pub(super) fn load(file: &NamedFile, catalog: &Catalog, all_channels: bool) -> Result<Named, String> {
    let text = fs::read(&file.path)
        .map_err(|error| format!("Error loading ACLs, opening file '{file}': {}", files::reason(&error)))?;
    let mut users = Named::new();
    let mut mistakes = String::new();
    for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
        let line = line.trim_ascii();
        if !line.is_empty() {
            read_line(line, &format!("{file}:{number}"), number, catalog, all_channels, &mut users)
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
