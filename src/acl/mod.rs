//! Users and their permissions.
//!
//! A [`User`] is a name and its [`Grants`]: how to authenticate and what is allowed then. [`selector`] knows
//! what one set of rules allows, [`catalog`] what rules may name; [`mod@file`] reads and writes all users,
//! and [`log`] keeps the refusals. The rules and their words are those of Redis 7; rules about commands are
//! kept and printed in the order in which they were given, as Redis 7.2 does. (Redis 7.0 makes up a shorter
//! list of its own, in an order that differs from run to run.)
//!
//! [`tokens`] judges the tokens of managed services, which may stand for passwords.
//!
//! A session holds its user: a change of a user counts for the next command of all connections that are
//! authenticated as it. [`User::is_unrestricted`] reads one atomic, so that users with all permissions pay
//! nothing for the rest.

mod catalog;
mod categories;
mod file;
mod grants;
pub(crate) mod log;
mod selector;
pub(crate) mod tokens;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{RwLock, RwLockReadGuard};

use crate::files::{self, NamedFile, Rights};
pub(crate) use catalog::Catalog;
pub(crate) use categories::Categories;
pub(crate) use grants::Grants;
use grants::{is_name, merge};
use selector::has_blanks;
pub(crate) use selector::{Access, Deed, Denial, Mistake, Selector};

/// The user of a client that has not authenticated as another one.
pub(crate) const DEFAULT: &[u8] = b"default";

/// A rule as it may be printed in the log: without the password, or the hash of one.
pub(crate) fn shown_rule(rule: &[u8]) -> &[u8] {
    match rule {
        [b'>' | b'<' | b'#' | b'!', ..] => b"(redacted)",
        _ => rule,
    }
}

/// One user. Its permissions may change while its connections use it.
#[derive(Debug)]
pub struct User {
    name: Box<[u8]>,
    grants: RwLock<Grants>,
    is_unrestricted: AtomicBool,
    is_removed: AtomicBool,
}

impl User {
    fn new(name: &[u8], grants: Grants, catalog: &Catalog) -> User {
        let is_unrestricted = grants.allow_everything(catalog);
        User {
            name: name.into(),
            grants: RwLock::new(grants),
            is_unrestricted: AtomicBool::new(is_unrestricted),
            is_removed: AtomicBool::new(false),
        }
    }

    /// The user's name; any bytes without blanks.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Whether it may do everything.
    #[inline]
    pub fn is_unrestricted(&self) -> bool {
        self.is_unrestricted.load(Ordering::Relaxed)
    }

    /// Whether the user was removed. Its connections may run no more commands.
    pub fn is_removed(&self) -> bool {
        self.is_removed.load(Ordering::Acquire)
    }

    /// Its permissions, which do not change while the returned guard is held.
    pub fn grants(&self) -> RwLockReadGuard<'_, Grants> {
        self.grants.read()
    }

    fn replace(&self, grants: Grants, catalog: &Catalog) {
        let is_unrestricted = grants.allow_everything(catalog);
        let mut own = self.grants.write();
        *own = grants;
        self.is_unrestricted.store(is_unrestricted, Ordering::Relaxed);
    }

    fn remove(&self) {
        let _changing = self.grants.write();
        self.is_unrestricted.store(false, Ordering::Relaxed);
        self.is_removed.store(true, Ordering::Release);
    }
}

/// What proves that a client is a user.
#[derive(Clone, Copy, Debug)]
pub enum Proof<'a> {
    /// A password, or anything for a user who needs none.
    Password(&'a [u8]),
    /// A password, also of a user who needs none.
    OwnPassword(&'a [u8]),
    /// A token of a managed service that was found right.
    Token,
}

/// All users of one server.
#[derive(Debug)]
pub struct Users {
    catalog: Arc<Catalog>,
    default: Arc<User>,
    /// `default` is always among them.
    by_name: RwLock<BTreeMap<Box<[u8]>, Arc<User>>>,
}

/// Why a user was not changed.
#[derive(Debug)]
pub enum Refused {
    /// The name has blanks in it.
    Name,
    /// A parenthesis in this rule, from zero, is never closed.
    Unclosed(usize),
    /// A rule is none.
    Rule(Vec<u8>, Mistake),
}

impl Users {
    /// The user `default` alone, with all permissions and without a password.
    pub fn new(catalog: Arc<Catalog>) -> Users {
        let default = Arc::new(User::new(DEFAULT, Grants::everything(&catalog), &catalog));
        let by_name = BTreeMap::from([(DEFAULT.into(), Arc::clone(&default))]);
        Users { catalog, default, by_name: RwLock::new(by_name) }
    }

    /// The commands and categories that rules may name.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// The user `default`.
    pub fn default_user(&self) -> &Arc<User> {
        &self.default
    }

    /// Whether clients are let in without a password.
    pub fn admits_everybody(&self) -> bool {
        let grants = self.default.grants();
        grants.is_enabled && grants.needs_no_password
    }

    /// The user of a name.
    pub fn get(&self, name: &[u8]) -> Option<Arc<User>> {
        self.by_name.read().get(name).cloned()
    }

    /// All users, by their names.
    pub fn all(&self) -> Vec<Arc<User>> {
        self.by_name.read().values().cloned().collect()
    }

    /// The user of a name, if it is enabled and this proves it.
    pub fn authenticate(&self, name: &[u8], proof: Proof<'_>) -> Option<Arc<User>> {
        self.get(name).filter(|user| match proof {
            Proof::Password(password) => user.grants().admits(password),
            Proof::OwnPassword(password) => user.grants().has_password(password),
            Proof::Token => user.grants().is_enabled,
        })
    }

    /// Changes a user, or makes one: by all of the rules, or by none if any is wrong. `all_channels` is
    /// whether a new one may use them (`acl-pubsub-default`).
    ///
    /// # Errors
    ///
    /// With what is wrong.
    pub fn set<'a>(
        &self,
        name: &[u8],
        rules: impl Iterator<Item = &'a [u8]>,
        all_channels: bool,
    ) -> Result<(), Refused> {
        if !is_name(name) {
            return Err(Refused::Name);
        }
        let rules = merge(rules).map_err(Refused::Unclosed)?;
        // Held until the end, so that no concurrent change is lost.
        let mut by_name = self.by_name.write();
        let known = by_name.get(name);
        let mut grants = match known {
            Some(user) => user.grants().clone(),
            None => Grants::none(&self.catalog, all_channels),
        };
        for rule in rules {
            grants
                .apply(&rule, &self.catalog, all_channels)
                .map_err(|mistake| Refused::Rule(rule, mistake))?;
        }
        match known {
            Some(user) => user.replace(grants, &self.catalog),
            None => {
                by_name.insert(name.into(), Arc::new(User::new(name, grants, &self.catalog)));
            }
        }
        Ok(())
    }

    /// Gives `default` this password and no other, or none at all (`requirepass`).
    pub fn set_default_password(&self, password: &[u8]) {
        let rules: [&[u8]; 2] = match password {
            [] => [b"resetpass", b"nopass"],
            password => [b"resetpass", &[b">", password].concat()],
        };
        let changed = self.set(DEFAULT, rules.into_iter(), false);
        debug_assert!(changed.is_ok());
    }

    /// Removes a user. The caller must close the connections of the returned user.
    pub fn remove(&self, name: &[u8]) -> Option<Arc<User>> {
        if name == DEFAULT {
            return None;
        }
        let removed = self.by_name.write().remove(name);
        removed.iter().for_each(|user| user.remove());
        removed
    }

    /// Replaces all users with those of a file; `default` gets its initial permissions if the file lacks it.
    /// Returns the users that the file lacks. The caller must close their connections, and those that listen
    /// to a channel which their user may listen to no longer.
    ///
    /// # Errors
    ///
    /// With all that is wrong with the file; nothing has changed then.
    pub fn load(&self, file: &NamedFile, all_channels: bool) -> Result<Vec<Arc<User>>, String> {
        let mut users = file::load(file, &self.catalog, all_channels)?;
        let mut by_name = self.by_name.write();
        let default = users.remove(DEFAULT).unwrap_or_else(|| Grants::everything(&self.catalog));
        self.default.replace(default, &self.catalog);
        let mut before = std::mem::take(&mut *by_name);
        before.remove(DEFAULT);
        for (name, grants) in users {
            let user = match before.remove(&*name) {
                Some(user) => {
                    user.replace(grants, &self.catalog);
                    user
                }
                None => Arc::new(User::new(&name, grants, &self.catalog)),
            };
            by_name.insert(name.into(), user);
        }
        by_name.insert(DEFAULT.into(), Arc::clone(&self.default));
        let removed: Vec<_> = before.into_values().collect();
        removed.iter().for_each(|user| user.remove());
        Ok(removed)
    }

    /// Writes all users to a file.
    ///
    /// # Errors
    ///
    /// If that fails; what was there is still there then.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let mut text = self.describe().join(&b'\n');
        text.push(b'\n');
        files::replace(path, &text, Rights::Kept)
    }

    /// One line for each user, as ACL LIST prints it.
    pub fn describe(&self) -> Vec<Vec<u8>> {
        let line = |user: Arc<User>| [b"user ", user.name(), b" ", &user.grants().describe()].concat();
        self.all().into_iter().map(line).collect()
    }
}

/// Prints the name; bytes that are not UTF-8 become `\u{fffd}`.
impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users() -> Users {
        let mut catalog = Catalog::default();
        catalog.add("get", ["@read", "@fast"]);
        catalog.add("set", ["@write", "@slow"]);
        catalog.add("config", ["@slow"]);
        catalog.add("config|get", ["@admin", "@slow"]);
        catalog.add("config|set", ["@admin", "@slow"]);
        catalog.add_absent("get", ["@hash"], true);
        catalog.add_absent("hset", ["@write", "@hash", "@fast"], true);
        catalog.add_absent("cluster", ["@slow"], true);
        catalog.add_absent("cluster|slots", ["@slow"], true);
        catalog.add_absent("config|newer", ["@admin"], false);
        Users::new(Arc::new(catalog))
    }

    fn set(users: &Users, rules: &str) -> Arc<User> {
        users.set(b"alice", rules.split(' ').map(str::as_bytes), false).unwrap();
        users.get(b"alice").unwrap()
    }

    fn allows(user: &User, command: usize) -> bool {
        let deed = Deed {
            command: Some(command),
            first_argument: Some(b"a"),
            keys: std::iter::empty(),
            channels: std::iter::empty(),
            channels_are_patterns: false,
        };
        user.grants().check(&deed).is_ok()
    }

    #[test]
    fn who_may_do_everything_is_known_at_one_look() {
        let users = users();
        assert!(users.default_user().is_unrestricted());
        for (rules, is_unrestricted) in [
            ("+@all ~* &*", true),
            ("-get", false),
            ("+get", true),
            ("resetkeys ~a", false),
            ("(+@all ~* &*)", true),
            ("clearselectors", false),
            ("~* resetchannels", false),
            ("-@all +get +set +config &*", true),
            ("-config|set", false),
            ("+@all -hset -cluster|slots", true),
        ] {
            assert_eq!(set(&users, rules).is_unrestricted(), is_unrestricted, "{rules}");
        }
        let user = set(&users, "reset +@all ~* &*");
        users.remove(b"alice");
        assert!(!user.is_unrestricted() && user.is_removed());
    }

    #[test]
    fn a_category_takes_the_subcommands_of_its_commands_along() {
        let users = users();
        let told = |rules: &str| {
            let user = set(&users, rules);
            (0..5).map(|command| allows(&user, command)).collect::<Vec<_>>()
        };
        assert_eq!(told("reset +@slow"), [false, true, true, true, true]);
        assert_eq!(told("-config +@ADMIN"), [false, true, false, true, true]);
        assert_eq!(told("-@all +config|get"), [false, false, false, true, false]);
        assert_eq!(told("-@all +get|A"), [true, false, false, false, false]);
        assert_eq!(told("-get +set|b"), [false; 5]);
    }

    #[test]
    fn rules_may_name_commands_that_are_not_here() {
        let users = users();
        let told = |rules: &str| {
            let user = set(&users, rules);
            (5..9).map(|command| allows(&user, command)).collect::<Vec<_>>()
        };
        assert_eq!(told("reset +hset"), [true, false, false, false]);
        assert_eq!(told("reset +@hash +cluster|slots"), [true, false, true, false]);
        assert_eq!(told("reset +cluster +config"), [false, true, true, true]);
        assert_eq!(told("-cluster|slots -config|newer"), [false, true, false, false]);
        let catalog = users.catalog();
        assert_eq!(catalog.names_of_category(b"hash").unwrap().collect::<Vec<_>>(), ["hset"]);
        assert_eq!(catalog.names_of_category(b"ADMIN").unwrap().count(), 2);
        assert_eq!((catalog.here(), catalog.find(b"config|newer")), (5, Some(8)));
    }

    #[test]
    fn channels_match_patterns_but_patterns_only_themselves() {
        let users = users();
        let user = set(&users, "&news.* &chat (&other ~k)");
        let grants = user.grants();
        for (channel, is_pattern, is_allowed) in [
            (&b"news.de"[..], false, true),
            (b"chat", false, true),
            (b"other", false, true),
            (b"chats", false, false),
            (b"news.*", true, true),
            (b"news.d*", true, false),
            (b"*", true, false),
        ] {
            assert_eq!(grants.allow_channel(channel, is_pattern), is_allowed, "{channel:?}");
        }
        let deed = |channels: &'static [&'static [u8]]| Deed {
            command: None,
            first_argument: None,
            keys: std::iter::empty(),
            channels: channels.iter().copied(),
            channels_are_patterns: false,
        };
        assert_eq!(grants.check(&deed(&[b"chat", b"news.de"])), Ok(()));
        assert_eq!(grants.check(&deed(&[b"chat", b"private"])), Err(Denial::Channel(1)));
        drop(grants);
        assert!(set(&users, "allchannels").grants().allow_channel(b"*", true));
    }

    #[test]
    fn a_user_is_made_again_from_its_description() {
        let users = users();
        for unreadable in ["(~a) +get)", "(+get ~a))", "(&a) +get)", "(%R~a) +get)", "(+get|a) ~a)"] {
            let set = users.set(b"alice", [unreadable.as_bytes()].into_iter(), false);
            assert!(matches!(set, Err(Refused::Rule(_, Mistake::Syntax))), "{unreadable}");
        }
        for rules in [
            "on >secret ~a %R~b &c +@all -config|set",
            "reset nopass +@slow -set +get|x allkeys allchannels",
            "reset (+get ~a) (%W~b +set &*)",
            "reset ~a) (~(a +get)",
        ] {
            let description = |rules: &str| {
                let text = String::from_utf8(set(&users, rules).grants().describe()).unwrap();
                // RESET says what is done with payloads.
                text.replace("sanitize-payload ", "")
            };
            let described = description(rules);
            assert_eq!(description(&format!("reset {described}")), described);
        }
    }
}
