//! Parameters from the environment: `KEYFAST_MAXMEMORY` for `maxmemory`, and so on for every parameter; for
//! the password also `REDIS_PASSWORD` and `REDIS_PASSWORD_FILE`, as in other images.
//!
//! The environment comes before everything else, so that the file and the command line overrule it. It is the
//! least deliberate of them: inherited, shared with other programs, filled in by orchestrators. And what
//! CONFIG REWRITE has written into the file must hold at the next start.
//!
//! A name that is no parameter's may belong to another program, so the server warns of it and starts. But if
//! it was probably meant as a secret that is set nowhere else, the server does not start: it would let every
//! client in.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;

use crate::config::{Config, Parameter};
use crate::files;

use super::suggestions;

/// What precedes the name of a parameter in the name of a variable.
const PREFIX: &str = "KEYFAST_";

/// The variables for the password, and for the path of a file that holds it.
const PASSWORD: &str = "REDIS_PASSWORD";
const PASSWORD_FILE: &str = "REDIS_PASSWORD_FILE";

/// A variable that has the prefix, but the name of no parameter.
#[derive(Debug)]
pub(super) struct Unknown {
    /// Its whole name.
    variable: String,
    /// The parameter that was probably meant.
    meant: Option<&'static Parameter>,
}

/// Stores the values of the environment's variables. Returns those that are no parameters.
pub(super) fn apply(config: &Config, environment: &[(OsString, OsString)]) -> Result<Vec<Unknown>, String> {
    let of = |name: &str| environment.iter().find(|(other, _)| *other == *name).map(|(_, value)| value);
    // An empty value means no value: compose files contain `${REDIS_PASSWORD:-}`.
    let [password, file] = [PASSWORD, PASSWORD_FILE].map(|name| of(name).filter(|value| !value.is_empty()));
    match (password, file) {
        (Some(_), Some(_)) => return Err(format!("{PASSWORD} and {PASSWORD_FILE} exclude each other")),
        (Some(password), None) => store(config, PASSWORD, "requirepass", password.as_bytes())?,
        (None, Some(path)) => store(config, PASSWORD_FILE, "requirepass", &read_secret(path)?)?,
        (None, None) => {}
    }
    let mut unknown = Vec::new();
    for (name, value) in environment {
        let Some(parameter) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else { continue };
        let parameter = parameter.to_ascii_lowercase().replace('_', "-");
        let variable = name.to_string_lossy();
        if is_about_service(&parameter, value) {
            continue;
        }
        match Parameter::named(parameter.as_bytes()) {
            Some(_) => store(config, &variable, &parameter, value.as_bytes())?,
            None => {
                unknown.push(Unknown { variable: variable.into_owned(), meant: probably_meant(&parameter) });
            }
        }
    }
    Ok(unknown)
}

/// What to log about variables that are no parameters, when the configuration is complete.
///
/// # Errors
///
/// With one line for people, if one of them was probably meant as a secret that has no value.
pub(super) fn judge(unknown: &[Unknown], config: &Config, has_users: bool) -> Result<Vec<String>, String> {
    let judge = |Unknown { variable, meant }: &Unknown| {
        let text = format!("the environment variable {variable} is no parameter");
        let Some(meant) = meant else { return Ok(text) };
        let text = format!("{text}, did you mean {}?", variable_of(meant));
        let is_missing = meant.is_secret && meant.print(config).is_empty();
        let has_other_passwords = meant.name == "requirepass" && has_users;
        match is_missing && !has_other_passwords {
            true => Err(format!(
                "{text} Rename the variable, or remove it: a server without its secret may be open to all"
            )),
            false => Ok(text),
        }
    };
    unknown.iter().map(judge).collect()
}

/// The variable of a parameter.
fn variable_of(parameter: &Parameter) -> String {
    format!("{PREFIX}{}", parameter.name.to_ascii_uppercase().replace('-', "_"))
}

/// The parameter that was probably meant by a name. Other images have various names for the password.
fn probably_meant(name: &str) -> Option<&'static Parameter> {
    let is_password = || name.contains("pass").then_some("requirepass");
    suggestions::of(name).or_else(is_password).and_then(|meant| Parameter::named(meant.as_bytes()))
}

/// Whether this is a variable that Kubernetes sets in every container, with the address of a service whose
/// name begins with `keyfast`: `KEYFAST_PORT=tcp://10.0.0.7:6379`, `KEYFAST_PORT_6379_TCP_ADDR`,
/// `KEYFAST_CACHE_SERVICE_HOST`.
fn is_about_service(name: &str, value: &OsStr) -> bool {
    let name = format!("-{name}-");
    let begins_with_digit = |rest: &str| rest.starts_with(|first: char| first.is_ascii_digit());
    name.contains("-service-host-")
        || name.contains("-service-port-")
        || name.split("-port-").skip(1).any(begins_with_digit)
        || name.ends_with("-port-") && value.as_bytes().starts_with(b"tcp://")
}

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
        apply(&config, &environment).map(|_| config)
    }

    /// What is logged, or why the server does not start.
    fn judged(names: &[&str], requirepass: &str, has_users: bool) -> Result<Vec<String>, String> {
        let config = Config::new();
        store(&config, "", "requirepass", requirepass.as_bytes()).unwrap();
        let environment: Vec<_> =
            names.iter().map(|name| (OsString::from(name), OsString::from("x"))).collect();
        judge(&apply(&config, &environment).unwrap(), &config, has_users)
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
    fn addresses_of_services_are_no_parameters() {
        let port = ("KEYFAST_PORT", "tcp://10.0.0.7:6379");
        let others = [port, ("KEYFAST_CACHE_PORT", "tcp://10.0.0.7:6379"), ("PORT", "x")];
        let config = applied(&others).unwrap();
        assert_eq!(config.port.get(), 6379);
        let environment = others.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        assert!(apply(&config, &environment).unwrap().is_empty());
        let names = [
            "KEYFAST_SERVICE_HOST",
            "KEYFAST_SERVICE_PORT",
            "KEYFAST_SERVICE_PORT_REDIS",
            "KEYFAST_PORT_6379_TCP",
            "KEYFAST_PASS_PORT_6379_TCP_ADDR",
        ];
        assert_eq!(judged(&names, "", false).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn other_names_are_told_and_stop_the_start_only_where_a_secret_would_be_missing() {
        assert_eq!(
            judged(&["KEYFAST_MAXMEMRY", "KEYFAST_TURN"], "", false).unwrap(),
            [
                "the environment variable KEYFAST_MAXMEMRY is no parameter, did you mean KEYFAST_MAXMEMORY?",
                "the environment variable KEYFAST_TURN is no parameter",
            ]
        );
        for name in ["REQUIREPAS", "REQUIRE_PASS", "PASSWORD", "PASSWORD_FILE", "DEFAULT_PASSWORD", "AUTH"] {
            let name = &*format!("KEYFAST_{name}");
            let expected =
                format!("the environment variable {name} is no parameter, did you mean KEYFAST_REQUIREPASS?");
            assert!(judged(&[name], "", false).unwrap_err().starts_with(&expected), "{name}");
            assert_eq!(judged(&[name], "secret", false).unwrap(), [&*expected], "{name}");
            assert_eq!(judged(&[name], "", true).unwrap(), [&*expected], "{name}");
        }
        assert!(judged(&["KEYFAST_STROE"], "", true).unwrap_err().contains("did you mean KEYFAST_STORE?"));
        // The names that the tests and the benchmarks have.
        for name in ["BIN", "IMAGE", "TEST_STORE", "TEST_SERVER", "TEST_TOOLS", "STORE_KILLS", "SKIP_DOCKER"]
        {
            assert_eq!(judged(&[&*format!("KEYFAST_{name}")], "", false).unwrap().len(), 1, "{name}");
        }
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
