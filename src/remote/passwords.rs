//! The password of the store, where it is not in the URL: in a file (`store-password-file`), or for
//! PostgreSQL where its own programs look for it: `PGPASSWORD`, and the file that `PGPASSFILE` names.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::target::has_password;
use crate::config::Config;
use crate::files;

/// The password for this URL; `None` if there is none but in the URL.
///
/// # Errors
///
/// With one line for people, if a file cannot be used.
pub(super) fn of(config: &Config, url: &str) -> Result<Option<String>, String> {
    if let Some(file) = config.file_of(&config.store_password_file) {
        let wrong = |why: &str| format!("store-password-file: {}: {why}", file.name.display());
        let text = fs::read_to_string(&file.path).map_err(|error| wrong(&files::reason(&error)))?;
        let password = text.trim_end_matches(['\n', '\r']);
        return match password.is_empty() {
            true => Err(wrong("there is no password in it")),
            false => Ok(Some(password.to_owned())),
        };
    }
    let is_postgres = url.starts_with("postgres://") || url.starts_with("postgresql://");
    if !is_postgres || has_password(url) {
        return Ok(None);
    }
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    if let Some(password) = variable("PGPASSWORD") {
        return Ok(Some(password));
    }
    let Some(path) = variable("PGPASSFILE") else { return Ok(None) };
    let wrong = |why: &str| format!("PGPASSFILE: {path}: {why}");
    let facts = fs::metadata(&path).map_err(|error| wrong(&files::reason(&error)))?;
    if facts.permissions().mode() & 0o077 != 0 {
        return Err(wrong("other users can read it: its permissions must be 600"));
    }
    let text = fs::read_to_string(Path::new(&path)).map_err(|error| wrong(&files::reason(&error)))?;
    Ok(in_file(&text, url))
}

/// The password that a file of PostgreSQL's form has for one of the hosts of a URL: lines
/// `host:port:database:user:password`, of which the first that fits counts.
fn in_file(text: &str, url: &str) -> Option<String> {
    let (_, rest) = url.split_once("://")?;
    let (user, rest) = rest.rsplit_once('@').map_or(("", rest), |(user, rest)| (user, rest));
    let place = rest.split_once('?').map_or(rest, |(place, _)| place);
    let (hosts, database) = place.split_once('/').unwrap_or((place, ""));
    let database = if database.is_empty() { user } else { database };
    let hosts = hosts.split(',').map(|host| match host.rsplit_once(':') {
        Some((name, port)) if !host.ends_with(']') => (name, port),
        _ => (host, "5432"),
    });
    let hosts: Vec<_> = hosts.map(|(name, port)| (name.trim_matches(['[', ']']), port)).collect();
    let fits = |field: &str, value: &str| field == "*" || field == value;
    text.lines().filter(|line| !line.starts_with('#')).map(fields).find_map(|fields| match &fields[..] {
        [host, port, base, name, password] if fits(base, database) && fits(name, user) => hosts
            .iter()
            .any(|(other, number)| fits(host, other) && fits(port, number))
            .then(|| password.clone()),
        _ => None,
    })
}

/// The fields of a line. A backslash stands before a colon or a backslash that is a part of a field.
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut letters) = (vec![String::new()], line.chars());
    while let Some(letter) = letters.next() {
        let last = fields.len() - 1;
        match letter {
            ':' => fields.push(String::new()),
            '\\' => fields[last].extend(letters.next()),
            letter => fields[last].push(letter),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_fits_has_the_password() {
        let text = "# other:*:*:*:no\none:5433:db:me:first\n[x]:1:2\n*:*:db:me:se\\:c\\\\ret\none:*:*:*:any";
        for (url, password) in [
            ("postgres://me@one:5433/db", Some("first")),
            ("postgres://me@one/db?sslmode=require", Some("se:c\\ret")),
            ("postgres://me@zero,one:5433/db", Some("first")),
            ("postgres://you@one/db", Some("any")),
            ("postgres://you@two/db", None),
        ] {
            assert_eq!(in_file(text, url).as_deref(), password, "{url}");
        }
    }
}
