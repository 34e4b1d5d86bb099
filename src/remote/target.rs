//! The place of the store: the value of `store`.

use std::fmt;

use super::row::{FENCES_OF_ROWS, FENCES_PER_VERSION};

/// A store, by its URL.
#[derive(Clone, PartialEq, Eq)]
pub enum Target {
    /// PostgreSQL, or what speaks its protocol: the whole URL.
    Postgres(String),
    /// etcd: its nodes and the prefix.
    Etcd(EtcdPlace),
}

/// Where keys live in etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdPlace {
    /// The nodes, each with its port.
    pub hosts: Vec<String>,
    /// What the names of all keys begin with. It ends with `/`.
    pub prefix: String,
    /// The login; `None` if etcd needs none.
    pub login: Option<Login>,
    /// Whether TLS is used.
    pub is_tls: bool,
}

/// A user and its password.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The name of the user.
    pub user: String,
    /// The user's password, in plain text.
    pub password: String,
}

/// The limits of one request and one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most keys of a request.
    pub request_keys: usize,
    /// The most bytes of their names, together.
    pub request_name_bytes: usize,
    /// How much a batch may weigh, as [`Limits::weight`] counts.
    pub batch_weight: usize,
    /// Bytes of a batch, unless a single request has more.
    pub batch_bytes: usize,
    /// Fencing numbers that a batch draws.
    pub batch_draws: usize,
}

impl Limits {
    /// What a request weighs in a batch of this many keys that are not there yet. etcd counts operations. The
    /// keys of a request with several are one transaction within the batch, and each has two operations. So
    /// it is with a single key if the request travels beside another one (`is_beside`).
    pub fn weight(keys: usize, new_keys: usize, is_beside: bool) -> usize {
        match keys {
            1 if !is_beside => new_keys,
            keys => 2 * keys,
        }
    }
}

/// The value of `store` is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadTarget(pub &'static str);

impl Target {
    /// Reads a URL.
    ///
    /// # Errors
    ///
    /// [`BadTarget`], with what is wrong.
    pub fn parse(url: &str) -> Result<Target, BadTarget> {
        Target::parse_with(url, None)
    }

    /// Reads a URL, and takes a password that is not in it.
    ///
    /// # Errors
    ///
    /// [`BadTarget`], with what is wrong.
    pub fn parse_with(url: &str, password: Option<&str>) -> Result<Target, BadTarget> {
        if password.is_some() && has_password(url) {
            return Err(BadTarget("it has a password already, so none may come from elsewhere"));
        }
        match url.split_once("://") {
            Some(("postgres" | "postgresql", _)) if cfg!(feature = "postgres") => {
                let url = with_known_tls(url)?;
                Ok(Target::Postgres(match password {
                    Some(password) => {
                        let sign = if url.contains('?') { '&' } else { '?' };
                        format!("{url}{sign}password={}", escaped(password))
                    }
                    None => url,
                }))
            }
            Some(("postgres" | "postgresql", _)) => {
                Err(BadTarget("this program was built without the feature postgres"))
            }
            Some(("etcd", place)) if cfg!(feature = "etcd") => {
                EtcdPlace::parse(place, password).map(Target::Etcd)
            }
            Some(("etcd", _)) => Err(BadTarget("this program was built without the feature etcd")),
            _ => Err(BadTarget("it must begin with postgres:// or etcd://")),
        }
    }

    /// The limits of this store.
    pub fn limits(&self) -> Limits {
        match self {
            // A batch of so many keys takes some 50 ms, for which all other clients wait.
            Target::Postgres(_) => Limits {
                request_keys: 5_000,
                request_name_bytes: 1 << 20,
                batch_weight: usize::MAX,
                batch_bytes: 8 << 20,
                batch_draws: 1_023,
            },
            // Of 128 operations (max-txn-ops), the batch itself takes a few. Of 1.5 MiB (max-request-bytes),
            // the names of keys take some.
            Target::Etcd(_) => Limits {
                request_keys: 60,
                request_name_bytes: 1 << 20,
                batch_weight: 120,
                batch_bytes: 1 << 20,
                batch_draws: FENCES_PER_VERSION - FENCES_OF_ROWS,
            },
        }
    }

    /// Whether the store has a clock that its front-ends can read.
    pub fn has_clock(&self) -> bool {
        matches!(self, Target::Postgres(_))
    }

    /// Whether a key is there for as long as the store has it, also when the moment of its expiry has passed
    /// by any clock.
    pub fn removes_what_expires(&self) -> bool {
        matches!(self, Target::Etcd(_))
    }
}

impl EtcdPlace {
    const PREFIX: &str = "keyfast/";
    const PORT: u16 = 2379;

    /// Reads what follows `etcd://`.
    fn parse(place: &str, password: Option<&str>) -> Result<EtcdPlace, BadTarget> {
        let (place, options) = place.split_once('?').unwrap_or((place, ""));
        let (hosts, prefix) = place.split_once('/').unwrap_or((place, ""));
        if [prefix, options].iter().any(|part| part.contains(['@', '#'])) {
            return Err(BadTarget(
                "of etcd://, / ? # @ in a user or a password must be written %2F %3F %23 %40",
            ));
        }
        let is_tls = match options {
            "" | "sslmode=disable" => false,
            "sslmode=require" | "sslmode=verify-full" => true,
            _ => {
                return Err(BadTarget(
                    "etcd:// takes one option: ?sslmode=disable, ?sslmode=require or ?sslmode=verify-full",
                ));
            }
        };
        let (login, hosts) = match hosts.rsplit_once('@') {
            Some((login, hosts)) => (Some(Login::parse(login, password)?), hosts),
            None if password.is_some() => {
                return Err(BadTarget("of etcd://, a password needs a user: etcd://user@host"));
            }
            None => (None, hosts),
        };
        let prefix = match prefix.trim_end_matches('/') {
            "" => EtcdPlace::PREFIX.to_owned(),
            prefix => format!("{prefix}/"),
        };
        let hosts = hosts.split(',').map(|host| match host.rsplit_once(':') {
            _ if host.is_empty() => Err(BadTarget("it names no host")),
            Some((_, port)) if !host.ends_with(']') => match port.parse::<u16>() {
                Ok(_) => Ok(host.to_owned()),
                Err(_) => Err(BadTarget("a port must be a number")),
            },
            _ => Ok(format!("{host}:{}", EtcdPlace::PORT)),
        });
        Ok(EtcdPlace { hosts: hosts.collect::<Result<_, _>>()?, prefix, login, is_tls })
    }
}

impl Login {
    /// Parses the form `user:password`, or `user` where the password comes from elsewhere.
    fn parse(login: &str, password: Option<&str>) -> Result<Login, BadTarget> {
        if let Some(password) = password {
            let user = plain(login).filter(|user| !user.is_empty() && !login.contains(':'));
            let user = user.ok_or(BadTarget("of etcd://, the user must be written user@"))?;
            return Ok(Login { user, password: password.to_owned() });
        }
        const WRONG: BadTarget = BadTarget("of etcd://, user and password must be written user:password@");
        let (user, password) = login.split_once(':').ok_or(WRONG)?;
        let [user, password] = [user, password].map(|part| plain(part).filter(|part| !part.is_empty()));
        Ok(Login { user: user.ok_or(WRONG)?, password: password.ok_or(WRONG)? })
    }
}

/// The value of `store` without its passwords, for people who look at the parameters. What cannot be told
/// from a password is left out, too.
pub(crate) fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return if url.is_empty() { String::new() } else { "...".to_owned() };
    };
    let hidden = format!("{scheme}://...");
    let (login, place) = match rest.rsplit_once('@') {
        Some((login, place)) => (Some(login), place),
        None => (None, rest),
    };
    let user = login.map(|login| login.split_once(':').map_or(login, |(user, _)| user));
    let (place, options) = match place.split_once('?') {
        Some((place, options)) => (place, Some(options)),
        None => (place, None),
    };
    if user.is_some_and(|user| user.contains(['/', '?', '#', '=', ','])) || !names_hosts(place) {
        return hidden;
    }
    let is_shown = |option: &&str| {
        let name = option.split_once('=').map_or("", |(name, _)| name);
        !name.is_empty() && !name.to_ascii_lowercase().contains("pass")
    };
    let options: Vec<&str> = options.unwrap_or_default().split('&').filter(is_shown).collect();
    let user = user.map_or(String::new(), |user| format!("{user}@"));
    match options.is_empty() {
        true => format!("{scheme}://{user}{place}"),
        false => format!("{scheme}://{user}{place}?{}", options.join("&")),
    }
}

/// Whether a URL has a password.
pub(super) fn has_password(url: &str) -> bool {
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    let login = rest.rsplit_once('@').map_or("", |(login, _)| login);
    let options = rest.split_once('?').map_or("", |(_, options)| options);
    login.contains(':') || options.split('&').any(|option| option.starts_with("password="))
}

/// Whether all hosts of a URL look like hosts. In one that is written wrongly, there may be a password.
fn names_hosts(place: &str) -> bool {
    let is_host = |host: &str| match host.rsplit_once(':') {
        Some((_, port)) => host.ends_with(']') || port.parse::<u16>().is_ok(),
        None => true,
    };
    place.split('/').next().unwrap_or_default().split(',').all(is_host)
}

/// The URL with a mode of TLS that the library for PostgreSQL knows. Certificates are always checked in full,
/// so to require TLS and to verify it is the same.
fn with_known_tls(url: &str) -> Result<String, BadTarget> {
    const MODE: &str = "sslmode=";
    let Some((place, options)) = url.split_once('?') else { return Ok(url.to_owned()) };
    let known = options.split('&').map(|option| match option.strip_prefix(MODE) {
        None | Some("disable" | "prefer" | "require") => Ok(option.to_owned()),
        Some("verify-ca" | "verify-full") => Ok(format!("{MODE}require")),
        Some(_) => Err(BadTarget("sslmode must be disable, prefer, require or verify-full")),
    });
    Ok(format!("{place}?{}", known.collect::<Result<Vec<_>, _>>()?.join("&")))
}

/// A text as it may be in a URL.
fn escaped(text: &str) -> String {
    use std::fmt::Write;
    text.bytes().fold(String::new(), |mut url, byte| {
        // A write to a string cannot fail.
        let _ = match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => write!(url, "{}", char::from(byte)),
            byte => write!(url, "%{byte:02X}"),
        };
        url
    })
}

/// A part of a URL without its percent signs; `None` if they are wrong.
fn plain(part: &str) -> Option<String> {
    let mut pieces = part.split('%');
    let mut bytes = pieces.next()?.as_bytes().to_vec();
    for piece in pieces {
        let (digits, rest) = piece.split_at_checked(2)?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

/// Without the password: it may be logged.
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Without user, password and options: it may be logged.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = match self {
            Target::Postgres(url) => url,
            Target::Etcd(EtcdPlace { hosts, prefix, .. }) => {
                return write!(f, "etcd://{}/{}", hosts.join(","), prefix.trim_end_matches('/'));
            }
        };
        let place = url.split_once("://").map_or("", |(_, rest)| rest);
        let (place, options) = place.split_once('?').unwrap_or((place, ""));
        let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
        match names_hosts(place) && !options.contains('@') {
            true => write!(f, "postgres://{place}"),
            false => write!(f, "postgres://..."),
        }
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_shown_without_its_secrets() {
        let target = Target::parse("postgres://me:secret@one,two:5433/db?password=x").expect("a URL");
        assert_eq!(format!("{target} {target:?}"), "postgres://one,two:5433/db postgres://one,two:5433/db");
        let shown = |url| Target::parse(url).expect("a URL").to_string();
        assert_eq!(shown("postgres://me:p@ss@[::1]:5433,two/db"), "postgres://[::1]:5433,two/db");
        for wrong in
            ["postgres://me:se?cret@one/db", "postgres://one/db?password=a@b", "postgres://me:secret"]
        {
            assert_eq!(shown(wrong), "postgres://...");
        }
        assert!(Target::parse("mysql://x").is_err() && Target::parse("").is_err());
    }

    #[test]
    #[cfg(feature = "etcd")]
    fn etcd_has_hosts_and_a_prefix() {
        let shown = |url| Target::parse(url).map(|target| target.to_string());
        assert_eq!(shown("etcd://a"), Ok("etcd://a:2379/keyfast".to_owned()));
        assert_eq!(shown("etcd://a:1,b,[::1]:2/x/y/"), Ok("etcd://a:1,b:2379,[::1]:2/x/y".to_owned()));
        assert_eq!(shown("etcd://[::1]/"), Ok("etcd://[::1]:2379/keyfast".to_owned()));
        for wrong in
            ["etcd://", "etcd://a,,b", "etcd://me:secret", "etcd://a/b?c=d", "etcd://a?sslmode=prefer"]
        {
            assert!(shown(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    #[cfg(feature = "etcd")]
    fn etcd_takes_a_user_and_tls() {
        let place = |url: &str| EtcdPlace::parse(url, None).expect("a place");
        let secured = place("me:p%40%2f%C3%A4:@a,b:1/x?sslmode=require");
        let login = secured.login.clone().expect("a user");
        assert_eq!((login.user.as_str(), login.password.as_str()), ("me", "p@/\u{e4}:"));
        assert_eq!((secured.is_tls, secured.hosts.len(), secured.prefix.as_str()), (true, 2, "x/"));
        assert!(!place("a?sslmode=disable").is_tls && place("a").login.is_none());
        let shown = format!("{secured:?} {}", Target::Etcd(secured.clone()));
        assert!(!shown.contains("p@/"), "{shown}");
        for wrong in ["me@a", "me:@a", ":x@a", "me:x%4@a", "me:x%zz@a", "me:x%ff@a", "me:x%+4@a", "me:x/y@a"]
        {
            assert!(EtcdPlace::parse(wrong, None).is_err(), "{wrong}");
        }
        let login = EtcdPlace::parse("m%40e@a", Some("s/e:c")).expect("a place").login.expect("a user");
        assert_eq!((login.user.as_str(), login.password.as_str()), ("m@e", "s/e:c"));
        for wrong in ["a", "@a", "me:x@a", "me:@a"] {
            assert!(EtcdPlace::parse(wrong, Some("secret")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_parameter_is_shown_without_passwords() {
        for (url, shown) in [
            ("", ""),
            (
                "postgres://me:secret@one,two:5433/db?sslmode=require",
                "postgres://me@one,two:5433/db?sslmode=require",
            ),
            ("postgres://one/db?user=me&password=secret", "postgres://one/db?user=me"),
            ("postgres://one/db?password=se@cret", "postgres://..."),
            ("postgres://me:se@c/r?et@one:1/db", "postgres://me@one:1/db"),
            ("postgres://me:secret", "postgres://..."),
            ("postgres://one/db?secret", "postgres://one/db"),
            ("etcd://me:secret@a,b:1/x?sslmode=require", "etcd://me@a,b:1/x?sslmode=require"),
            ("me:secret@host", "..."),
        ] {
            assert_eq!(without_password(url), shown, "{url}");
        }
    }

    #[test]
    #[cfg(feature = "postgres")]
    fn a_password_from_elsewhere_and_every_way_to_want_tls_reach_the_library() {
        let url = |url, password| match Target::parse_with(url, password) {
            Ok(Target::Postgres(url)) => Ok(url),
            Ok(other) => panic!("{other}"),
            Err(BadTarget(why)) => Err(why),
        };
        assert_eq!(
            url("postgres://me@one", Some("a&b/c")).as_deref(),
            Ok("postgres://me@one?password=a%26b%2Fc")
        );
        let known = url("postgres://me@one?sslmode=verify-full&a=b", Some("x"));
        assert_eq!(known.as_deref(), Ok("postgres://me@one?sslmode=require&a=b&password=x"));
        assert!(url("postgres://me:secret@one", Some("x")).is_err());
        assert!(url("postgres://me@one?sslmode=full", None).is_err_and(|why| why.contains("verify-full")));
    }
}
