//! The rights of a user: whether and how it may authenticate, and what it may do then.

use std::fmt;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::catalog::Catalog;
use super::selector::{Deed, Denial, Mistake, Selector};
use super::{Access, has_blanks};

/// All about a user but its name.
#[derive(Clone, Debug)]
pub struct Grants {
    /// Whether clients may authenticate as this user (`on`, `off`).
    pub is_enabled: bool,
    /// Whether every password is accepted (`nopass`).
    pub needs_no_password: bool,
    /// The last rule about checks of RESTORE's payloads. It has no effect: the server checks every payload.
    sanitizes_payload: bool,
    passwords: Vec<PasswordHash>,
    /// Its own permissions.
    pub root: Selector,
    /// Others, each of which suffices.
    pub selectors: Vec<Selector>,
}

/// Digits of a hash, in lower case.
const HASH_DIGITS: usize = 64;

/// SHA-256 of a password, in hexadecimal.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash([u8; HASH_DIGITS]);

impl PasswordHash {
    fn of(password: &[u8]) -> PasswordHash {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut hash = [0; HASH_DIGITS];
        for (pair, byte) in hash.chunks_exact_mut(2).zip(Sha256::digest(password).as_slice()) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 0xf)];
        }
        PasswordHash(hash)
    }

    fn parse(text: &[u8]) -> Result<PasswordHash, Mistake> {
        let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let hash = text.try_into().map_err(|_| Mistake::NotAHash)?;
        if text.iter().all(is_digit) { Ok(PasswordHash(hash)) } else { Err(Mistake::NotAHash) }
    }

    /// The 64 lower-case hexadecimal digits of the SHA-256.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Prints nothing of the hash: it must not get into a log.
impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordHash")
    }
}

impl Grants {
    /// A user without permissions, except perhaps for all channels.
    pub(super) fn none(catalog: &Catalog, all_channels: bool) -> Grants {
        Grants {
            is_enabled: false,
            needs_no_password: false,
            sanitizes_payload: true,
            passwords: Vec::new(),
            root: Selector::new(catalog, all_channels),
            selectors: Vec::new(),
        }
    }

    /// All permissions, without a password: those of `default` until a rule changes them.
    pub(super) fn everything(catalog: &Catalog) -> Grants {
        let mut grants = Grants::none(catalog, true);
        for rule in ["on", "nopass", "~*", "+@all"] {
            grants.apply(rule.as_bytes(), catalog, true).expect("these are rules");
        }
        grants
    }

    /// Obeys one rule. `all_channels` says what a user and a selector begin with (`acl-pubsub-default`).
    ///
    /// # Errors
    ///
    /// If it is none.
    pub(super) fn apply(
        &mut self,
        rule: &[u8],
        catalog: &Catalog,
        all_channels: bool,
    ) -> Result<(), Mistake> {
        let is = |word: &str| rule.eq_ignore_ascii_case(word.as_bytes());
        match rule {
            [] => {}
            _ if is("on") => self.is_enabled = true,
            _ if is("off") => self.is_enabled = false,
            _ if is("sanitize-payload") => self.sanitizes_payload = true,
            _ if is("skip-sanitize-payload") => self.sanitizes_payload = false,
            _ if is("nopass") || is("resetpass") => {
                self.needs_no_password = is("nopass");
                self.passwords.clear();
            }
            [b'>', password @ ..] => self.add_password(PasswordHash::of(password)),
            [b'#', hash @ ..] => self.add_password(PasswordHash::parse(hash)?),
            [b'<', password @ ..] => return self.remove_password(&PasswordHash::of(password)),
            [b'!', hash @ ..] => return self.remove_password(&PasswordHash::parse(hash)?),
            [b'(', rules @ .., b')'] => {
                let mut selector = Selector::new(catalog, all_channels);
                for rule in rules.split(u8::is_ascii_whitespace).filter(|rule| !rule.is_empty()) {
                    // ACL LIST would show it as the end of the selector, and ACL LOAD read it as that.
                    if rule.ends_with(b")") {
                        return Err(Mistake::Syntax);
                    }
                    selector.apply(rule, catalog)?;
                }
                self.selectors.push(selector);
            }
            _ if is("clearselectors") => self.selectors.clear(),
            _ if is("reset") => {
                *self = Grants::none(catalog, all_channels);
            }
            _ => return self.root.apply(rule, catalog),
        }
        Ok(())
    }

    fn add_password(&mut self, hash: PasswordHash) {
        self.needs_no_password = false;
        if !self.passwords.contains(&hash) {
            self.passwords.push(hash);
        }
    }

    fn remove_password(&mut self, hash: &PasswordHash) -> Result<(), Mistake> {
        let at = self.passwords.iter().position(|known| known == hash).ok_or(Mistake::NoSuchPassword)?;
        self.passwords.remove(at);
        Ok(())
    }

    /// Whether a client with this password may authenticate as this user. The time it takes reveals nothing
    /// about the right passwords.
    pub(super) fn admits(&self, password: &[u8]) -> bool {
        if !self.is_enabled || self.needs_no_password {
            return self.is_enabled;
        }
        self.has_password(password)
    }

    /// Whether this is one of the passwords of an enabled user.
    pub(super) fn has_password(&self, password: &[u8]) -> bool {
        let hash = PasswordHash::of(password);
        let is_any = |known: &PasswordHash| known.as_bytes().ct_eq(hash.as_bytes());
        let is_known = self.passwords.iter().map(is_any).fold(0.into(), |any: subtle::Choice, one| any | one);
        self.is_enabled && bool::from(is_known)
    }

    /// The hashes of the passwords.
    pub fn passwords(&self) -> &[PasswordHash] {
        &self.passwords
    }

    /// The flags, in the order of Redis.
    pub fn flags(&self) -> impl Iterator<Item = &'static str> {
        let enabled = if self.is_enabled { "on" } else { "off" };
        let sanitizes = if self.sanitizes_payload { "sanitize-payload" } else { "skip-sanitize-payload" };
        std::iter::once(enabled).chain(self.needs_no_password.then_some("nopass")).chain([sanitizes])
    }

    /// The rules that make this user, on one line, as ACL LIST and the ACL file have them.
    pub fn describe(&self) -> Vec<u8> {
        let mut parts: Vec<Vec<u8>> = self.flags().map(|flag| flag.as_bytes().to_vec()).collect();
        parts.extend(self.passwords.iter().map(|hash| [b"#", hash.as_bytes()].concat()));
        parts.push(self.root.describe());
        parts.extend(self.selectors.iter().map(|selector| [&b"("[..], &selector.describe(), b")"].concat()));
        parts.join(&b' ')
    }

    /// Whether there is nothing that this user may not do.
    pub(super) fn allow_everything(&self, catalog: &Catalog) -> bool {
        self.all_selectors().any(|selector| selector.allows_everything(catalog))
    }

    fn all_selectors(&self) -> impl Iterator<Item = &Selector> {
        std::iter::once(&self.root).chain(&self.selectors)
    }

    /// Judges a deed: one selector that allows all of it suffices.
    ///
    /// # Errors
    ///
    /// With the command, if no selector allows it; else with the last key or channel that one did not.
    pub fn check<'a, Keys, Channels>(&self, deed: &Deed<'a, Keys, Channels>) -> Result<(), Denial>
    where
        Keys: Iterator<Item = (&'a [u8], Access)> + Clone,
        Channels: Iterator<Item = &'a [u8]> + Clone,
    {
        let mut denial = Denial::Command;
        for selector in self.all_selectors() {
            match selector.check(deed) {
                Ok(()) => return Ok(()),
                Err(other) => denial = denial.max(other),
            }
        }
        Err(denial)
    }

    /// Whether one selector allows a deed, and allows all keys to be used in this way.
    pub fn allow_with_all_keys<'a, Keys, Channels>(
        &self,
        deed: &Deed<'a, Keys, Channels>,
        access: Access,
    ) -> bool
    where
        Keys: Iterator<Item = (&'a [u8], Access)> + Clone,
        Channels: Iterator<Item = &'a [u8]> + Clone,
    {
        let mut selectors = self.all_selectors();
        selectors.any(|selector| selector.check(deed).is_ok() && selector.allows_all_keys(access))
    }

    /// Whether a channel may be used, or a pattern of channels subscribed to.
    pub fn allow_channel(&self, channel: &[u8], is_pattern: bool) -> bool {
        self.all_selectors().any(|selector| selector.allows_channel(channel, is_pattern))
    }
}

/// Puts selectors together that came in several arguments: `(+get`, `~a)`.
///
/// # Errors
///
/// With the number of the argument whose parenthesis is never closed.
pub(super) fn merge<'a>(arguments: impl Iterator<Item = &'a [u8]>) -> Result<Vec<Vec<u8>>, usize> {
    let mut rules = Vec::new();
    let mut open: Option<(usize, Vec<u8>)> = None;
    for (number, argument) in arguments.enumerate() {
        let (opens, closes) = (argument.first() == Some(&b'('), argument.last() == Some(&b')'));
        if opens && !closes && open.is_none() {
            open = Some((number, argument.to_vec()));
            continue;
        }
        match open.take() {
            None => rules.push(argument.to_vec()),
            Some((start, mut selector)) => {
                selector.push(b' ');
                selector.extend_from_slice(argument);
                match closes {
                    true => rules.push(selector),
                    false => open = Some((start, selector)),
                }
            }
        }
    }
    match open {
        Some((number, _)) => Err(number),
        None => Ok(rules),
    }
}

/// Whether a name is none: lists of users are read word by word.
pub(super) fn is_name(name: &[u8]) -> bool {
    !has_blanks(name)
}
