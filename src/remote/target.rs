//! The place of the store: the value of `store`.

use std::fmt;

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
        match url.split_once("://") {
            Some(("postgres" | "postgresql", _)) if cfg!(feature = "postgres") => {
                Ok(Target::Postgres(url.to_owned()))
            }
            Some(("postgres" | "postgresql", _)) => {
                Err(BadTarget("this program was built without the feature postgres"))
            }
            Some(("etcd", place)) if cfg!(feature = "etcd") => EtcdPlace::parse(place).map(Target::Etcd),
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
            },
            // Of 128 operations (max-txn-ops), the batch itself takes a few. Of 1.5 MiB (max-request-bytes),
            // the names of keys take some.
            Target::Etcd(_) => Limits {
                request_keys: 60,
                request_name_bytes: 1 << 20,
                batch_weight: 120,
                batch_bytes: 1 << 20,
            },
        }
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
    fn parse(place: &str) -> Result<EtcdPlace, BadTarget> {
        let (place, options) = place.split_once('?').unwrap_or((place, ""));
        let (hosts, prefix) = place.split_once('/').unwrap_or((place, ""));
        if [prefix, options].iter().any(|part| part.contains(['@', '#'])) {
            return Err(BadTarget(
                "of etcd://, / ? # @ in a user or a password must be written %2F %3F %23 %40",
            ));
        }
        let is_tls = match options {
            "" | "sslmode=disable" => false,
            "sslmode=require" => true,
            _ => {
                return Err(BadTarget("etcd:// takes one option: ?sslmode=disable or ?sslmode=require"));
            }
        };
        let (login, hosts) = match hosts.rsplit_once('@') {
            Some((login, hosts)) => (Some(Login::parse(login)?), hosts),
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
    /// Parses the form `user:password`.
    fn parse(login: &str) -> Result<Login, BadTarget> {
        const WRONG: BadTarget = BadTarget("of etcd://, user and password must be written user:password@");
        let (user, password) = login.split_once(':').ok_or(WRONG)?;
        let [user, password] = [user, password].map(|part| plain(part).filter(|part| !part.is_empty()));
        Ok(Login { user: user.ok_or(WRONG)?, password: password.ok_or(WRONG)? })
    }
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
        // A URL that is written wrongly may have its password where its hosts should be.
        let is_host = |host: &str| match host.rsplit_once(':') {
            Some((_, port)) => host.ends_with(']') || port.parse::<u16>().is_ok(),
            None => true,
        };
        let is_plain = place.split('/').next().unwrap_or_default().split(',').all(is_host);
        match is_plain && !options.contains('@') {
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
        let place = |url: &str| EtcdPlace::parse(url).expect("a place");
        let secured = place("me:p%40%2f%C3%A4:@a,b:1/x?sslmode=require");
        let login = secured.login.clone().expect("a user");
        assert_eq!((login.user.as_str(), login.password.as_str()), ("me", "p@/\u{e4}:"));
        assert_eq!((secured.is_tls, secured.hosts.len(), secured.prefix.as_str()), (true, 2, "x/"));
        assert!(!place("a?sslmode=disable").is_tls && place("a").login.is_none());
        let shown = format!("{secured:?} {}", Target::Etcd(secured.clone()));
        assert!(!shown.contains("p@/"), "{shown}");
        for wrong in ["me@a", "me:@a", ":x@a", "me:x%4@a", "me:x%zz@a", "me:x%ff@a", "me:x%+4@a", "me:x/y@a"]
        {
            assert!(EtcdPlace::parse(wrong).is_err(), "{wrong}");
        }
    }
}
