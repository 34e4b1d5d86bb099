//! Parameters from the environment: `KEYFAST_MAXMEMORY` for `maxmemory`, and so on for every parameter; for
//! the password also `REDIS_PASSWORD` and `REDIS_PASSWORD_FILE`, as in other images.
//!
//! The environment comes before everything else, so that the file and the command line overrule it. It is the
//! least deliberate of them: inherited, shared with other programs, filled in by orchestrators. And what
//! CONFIG REWRITE has written into the file must hold at the next start.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;

use crate::config::{Config, Parameter};
use crate::files;

/// What precedes the name of a parameter in the name of a variable.
const PREFIX: &str = "KEYFAST_";

/// The variables for the password, and for the path of a file that holds it.
const PASSWORD: &str = "REDIS_PASSWORD";
const PASSWORD_FILE: &str = "REDIS_PASSWORD_FILE";

/// Stores the values of the environment's variables.
///
/// # Errors
///
/// With one line for people.
pub(super) fn apply(config: &Config, environment: &[(OsString, OsString)]) -> Result<(), String> {
    let of = |name: &str| environment.iter().find(|(other, _)| *other == *name).map(|(_, value)| value);
    // An empty value means no value: compose files contain `${REDIS_PASSWORD:-}`.
    let [password, file] = [PASSWORD, PASSWORD_FILE].map(|name| of(name).filter(|value| !value.is_empty()));
    match (password, file) {
        (Some(_), Some(_)) => return Err(format!("{PASSWORD} and {PASSWORD_FILE} exclude each other")),
        (Some(password), None) => store(config, PASSWORD, "requirepass", password.as_bytes())?,
        (None, Some(path)) => store(config, PASSWORD_FILE, "requirepass", &read_secret(path)?)?,
        (None, None) => {}
    }
    for (name, value) in environment {
        let Some(parameter) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else { continue };
        let parameter = parameter.to_ascii_lowercase().replace('_', "-");
        if !is_address_of_service(&parameter, value) {
            store(config, &name.to_string_lossy(), &parameter, value.as_bytes())?;
        }
    }
    Ok(())
}

/// Kubernetes sets this variable in every container to the address of a service that is called `keyfast`.
fn is_address_of_service(parameter: &str, value: &OsStr) -> bool {
    parameter == "port" && value.as_bytes().starts_with(b"tcp://")
}

/// Unknown names are ignored: another program may use the same prefix.
fn store(config: &Config, variable: &str, parameter: &str, value: &[u8]) -> Result<(), String> {
    let Some(parameter) = Parameter::named(parameter.as_bytes()) else { return Ok(()) };
    let wrong = |refusal| format!("invalid value of {variable}: {}", parameter.explain(value, &refusal));
    let checked = parameter.check(value).map_err(wrong)?;
    config.store(checked);
    Ok(())
}

/// Reads a password from a file, without line ends after it.
fn read_secret(path: &OsStr) -> Result<Vec<u8>, String> {
    let wrong = |why: &str| format!("{PASSWORD_FILE}: {}: {why}", path.display());
    let mut secret = fs::read(path).map_err(|error| wrong(&files::reason(&error)))?;
    while secret.ends_with(b"\n") || secret.ends_with(b"\r") {
        secret.pop();
    }
    // A user who names a file wants a password; an empty one would let every client in.
    if secret.is_empty() { Err(wrong("there is no password in it")) } else { Ok(secret) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(environment: &[(&str, &str)]) -> Result<Config, String> {
        let config = Config::new();
        let environment: Vec<_> =
            environment.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))).collect();
        apply(&config, &environment).map(|()| config)
    }

    #[test]
    fn every_parameter_has_a_name_in_the_environment() {
        let config =
            applied(&[("KEYFAST_PORT", "7000"), ("KEYFAST_MAXMEMORY_POLICY", "allkeys-lru")]).unwrap();
        assert_eq!(config.port.get(), 7000);
        assert_eq!(Parameter::named(b"maxmemory-policy").unwrap().print(&config), b"allkeys-lru");
        assert_eq!(
            applied(&[("KEYFAST_PORT", "x")]).unwrap_err(),
            "invalid value of KEYFAST_PORT: argument couldn't be parsed into an integer"
        );
    }

    #[test]
    fn unknown_names_are_ignored() {
        let others = [("KEYFAST_PORT", "tcp://10.0.0.7:6379"), ("KEYFAST_SERVICE_HOST", "x"), ("PORT", "x")];
        assert_eq!(applied(&others).unwrap().port.get(), 6379);
    }

    #[test]
    fn a_password_comes_under_one_name_only() {
        assert_eq!(&*applied(&[(PASSWORD, "secret")]).unwrap().requirepass.get(), b"secret");
        assert!(applied(&[(PASSWORD, "")]).unwrap().requirepass.get().is_empty());
        let both = [(PASSWORD, "a"), (PASSWORD_FILE, "b")];
        assert_eq!(applied(&both).unwrap_err(), "REDIS_PASSWORD and REDIS_PASSWORD_FILE exclude each other");
        let missing = applied(&[(PASSWORD_FILE, "/nosuch")]).unwrap_err();
        assert_eq!(missing, "REDIS_PASSWORD_FILE: /nosuch: No such file or directory");
    }
}
