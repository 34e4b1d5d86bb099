//! MIGRATE: moves keys to another server, or copies them there.
//!
//! Nothing is sent under a lock. The handler keeps the values of a batch of keys and claims the keys; the
//! client's runner sends them, and the handler runs again once the target has replied (see
//! [`Migration`]). Now it holds the keys again: one that the target has
//! acknowledged is deleted here if no client has changed it since. One that was changed is sent again, in
//! place of its former version there. One that a client has deleted meanwhile is deleted there, too. So a key
//! is here until it is there, and no change of it is lost.
//!
//! What clients of the target have written there is not lost either: unless the request says REPLACE, only
//! what is still as it was sent is deleted or replaced there.
//!
//! The claim on a key is exclusive: otherwise the second of two requests would take what the first has moved
//! for deleted. While it lasts, RESTORE refuses the key here. So a key that is sent to this very server, by
//! whatever way, stays what it is, and so do keys that two servers send to each other.

use std::mem::take;
use std::ops::Range;
use std::time::Duration;

use crate::events::EventClass;
use crate::keyspace::Transaction;
use crate::resp::{Reply, Request};
use crate::session::{Cargo, Freight, Migration, Parcel, Receipt, Target, Wait};
use crate::values::Kept;

use crate::commands::args::{self, is_word};
use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::facts::{
    Argument, ArgumentKind, Categories, Command, Context, Flags, Group, KeyFlags, KeySpec, Result, Run,
    Secrets,
};

pub(in crate::commands) const COMMANDS: &[Command] = &[MIGRATE];

/// The most keys that are sent before the replies are read. Their values are copied under one lock.
const BATCH_KEYS_MAX: usize = 256;
/// A batch with more bytes than this takes up no further key. So it has this much and one value at most.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// How often a key is sent that clients keep changing.
const SENDINGS_MAX: u32 = 32;

/// The time for each step if the request allows none. Redis: the same.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1);

/// The first argument behind those that each request has.
const OPTIONS_FROM: usize = 6;

const CHANGED: &[u8] = b"ERR Clients changed the key each time it was sent: it is still here, and not there";
const CHANGED_THERE: &[u8] =
    b"ERR Clients changed the key each time it was sent: it is still here, and the target has one as well";
const CLAIMED: &[u8] = b"TRYAGAIN Another MIGRATE is giving this key away";

const FLAGS: KeyFlags = KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::DELETE);

const MIGRATE: Command = Command {
    name: "migrate",
    flags: Flags::WRITE,
    keys: &[
        KeySpec::range(3, 0, 1, FLAGS).unless(|request| keys_word(request).is_some()),
        KeySpec::all_behind("KEYS", -2, keys_behind_word, FLAGS.and(KeyFlags::INCOMPLETE)),
    ],
    categories: Categories::DANGEROUS.and(Categories::KEYSPACE).and(Categories::WRITE),
    group: Group::GENERIC,
    summary: "Moves keys to another server, or copies them there.",
    since: "2.6.0",
    complexity: "This command actually executes a DUMP+DEL in the source instance, and a RESTORE in the target instance. See the pages of these commands for time complexity. Also an O(N) data transfer between the two instances is performed.",
    cost: costs::ARGUMENTS,
    tips: &["nondeterministic_output"],
    arguments: &[
        Argument::string("host"),
        Argument::integer("port"),
        Argument::one_of(
            "key-selector",
            &[Argument::new("key", ArgumentKind::Key).of_spec(0), Argument::pure_token("empty-string", "")],
        ),
        Argument::integer("destination-db"),
        Argument::integer("timeout"),
        Argument::word("COPY").since("3.0.0").optional(),
        Argument::word("REPLACE").since("3.0.0").optional(),
        Argument::one_of(
            "authentication",
            &[
                Argument::string("auth").shown_as("password").token("AUTH").since("4.0.7"),
                Argument::block("auth2", &[Argument::string("username"), Argument::string("password")])
                    .token("AUTH2")
                    .since("6.0.0"),
            ],
        )
        .optional(),
        Argument::new("keys", ArgumentKind::Key)
            .shown_as("key")
            .token("KEYS")
            .since("3.0.6")
            .optional()
            .multiple()
            .of_spec(1),
    ],
    secrets: Secrets::At(secrets_in),
    example: &[("MIGRATE 127.0.0.1 6379 nosuchkey 0 1000", "NOKEY")],
    run: Run::Server(migrate),
    ..Command::DEFAULTS
};

fn migrate(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let asked = Asked::parse(request)?;
    let Context { session, tx, .. } = context;
    if session.keys_in_store.is_some() {
        return Err(Error::fixed("ERR MIGRATE cannot do this with keys in a store"));
    }
    if session.may_not_wait || session.is_in_script {
        return Err(Error::fixed(
            "ERR MIGRATE waits for another server, so no transaction or script can use it",
        ));
    }
    let begun = session.migration.take();
    let mut migration =
        begun.unwrap_or_else(|| Box::new(Migration::new(asked.target(request), asked.keys.start)));
    asked.settle(tx, &mut migration);
    let goes_on = !migration.is_over && asked.fill(tx, request, &mut migration);
    if goes_on && migration.has_waited_in_vain() {
        migration.break_off(CLAIMED);
    } else if goes_on {
        session.migration = Some(migration);
        session.wait = Some(Wait::Migration);
        return Ok(reply.nothing());
    }
    match migration.failure {
        Some(failure) => Err(Error::bytes(failure)),
        None if migration.arrived == 0 => Ok(reply.simple("NOKEY")),
        None => Ok(reply.ok()),
    }
}

/// A request that was understood.
struct Asked {
    copies: bool,
    replaces: bool,
    /// The positions of the arguments for AUTH.
    login: Option<Range<usize>>,
    /// The positions of the keys.
    keys: Range<usize>,
    database: i64,
    timeout: Duration,
}

impl Asked {
    fn parse(request: Request<'_>) -> Result<Asked> {
        let mut asked = Asked {
            copies: false,
            replaces: false,
            login: None,
            keys: 3..4,
            database: 0,
            timeout: DEFAULT_TIMEOUT,
        };
        for word in words_of(request) {
            match word {
                Word::Copy => asked.copies = true,
                Word::Replace => asked.replaces = true,
                Word::Auth(login) if login.end <= request.len() => asked.login = Some(login),
                Word::Keys(_) if !request.at(3).is_empty() => {
                    return Err(Error::fixed(
                        "ERR When using MIGRATE KEYS option, the key argument must be set to the empty string",
                    ));
                }
                Word::Keys(keys) => asked.keys = keys,
                Word::Auth(_) | Word::Other(_) => return Err(Error::SYNTAX),
            }
        }
        let timeout_ms = args::integer(request.at(5))?;
        asked.database = args::integer(request.at(4))?;
        if let Ok(timeout_ms @ 1..) = u64::try_from(timeout_ms) {
            asked.timeout = Duration::from_millis(timeout_ms);
        }
        Ok(asked)
    }

    fn target(&self, request: Request<'_>) -> Target {
        let login = self.login.clone();
        Target {
            host: request.at(1).to_vec(),
            port: request.at(2).to_vec(),
            login: login.map(|login| login.map(|position| request.at(position).to_vec()).collect()),
            database: self.database,
            timeout: self.timeout,
        }
    }

    /// Draws the consequences of what has come of the last batch. What is to be sent for its keys after all
    /// begins the next one.
    fn settle(&self, tx: &mut Transaction<'_>, migration: &mut Migration) {
        for mut parcel in take(&mut migration.parcels) {
            let (is_value, receipt) = (matches!(parcel.cargo, Cargo::Value(_)), parcel.receipt);
            parcel.receipt = Receipt::Unknown;
            let is_overtaken = parcel.survey.as_ref().is_some_and(|survey| survey.is_overtaken());
            match receipt {
                Receipt::Done if is_value && (self.copies || !is_overtaken) => {
                    migration.arrived += 1;
                    tx.note_moved(&parcel.key);
                    if !self.copies && tx.remove(&parcel.key) {
                        tx.event(EventClass::GENERIC, "del", &parcel.key);
                    }
                }
                // Nothing can be sent any more. It stays here, as the error says.
                _ if migration.is_over => {}
                Receipt::Done if is_value => {
                    parcel.former = parcel.packed.take();
                    self.send_again(tx, parcel, migration);
                }
                Receipt::Refused if is_value && parcel.former.is_some() => withdraw(parcel, migration),
                Receipt::Done | Receipt::Refused if !is_value && parcel.sent >= SENDINGS_MAX => {
                    if tx.glance(&parcel.key).is_some() {
                        migration.fail(if receipt == Receipt::Done { CHANGED } else { CHANGED_THERE });
                    }
                }
                Receipt::Done | Receipt::Refused | Receipt::Unknown => {}
            }
        }
    }

    /// Sends a key again that a client has changed since.
    fn send_again(&self, tx: &Transaction<'_>, parcel: Parcel, migration: &mut Migration) {
        if tx.glance(&parcel.key).is_none() {
            return withdraw(parcel, migration);
        }
        if parcel.sent >= SENDINGS_MAX {
            return withdraw(parcel, migration);
        }
        let Parcel { key, sent, survey, former, .. } = parcel;
        // The transaction holds the key: no other request can claim it in between.
        drop(survey);
        migration.parcels.extend(self.pack(tx, &key).map(|again| Parcel { sent: sent + 1, former, ..again }));
    }

    /// Takes up further keys. Returns whether there is something to send, or to wait for.
    fn fill(&self, tx: &Transaction<'_>, request: Request<'_>, migration: &mut Migration) -> bool {
        let bytes = |parcel: &Parcel| match &parcel.cargo {
            Cargo::Value(Some(freight)) => freight.value.bytes() + parcel.key.len(),
            Cargo::Value(None) | Cargo::Withdrawal => parcel.key.len(),
        };
        let mut batch_bytes: usize = migration.parcels.iter().map(bytes).sum();
        while migration.next < self.keys.end {
            if migration.parcels.len() >= BATCH_KEYS_MAX || batch_bytes >= BATCH_BYTES_MAX {
                break;
            }
            let key = request.at(migration.next);
            // A key that the request names twice is sent once.
            let is_in_batch = migration.parcels.iter().any(|parcel| *parcel.key == *key);
            if !is_in_batch && tx.exists(key) {
                // If another request is giving the key away, this one waits until that has ended. It claims
                // nothing while it waits for the claim of another.
                let Some(parcel) = self.pack(tx, key) else { break };
                batch_bytes += bytes(&parcel);
                migration.parcels.push(parcel);
            }
            migration.next += 1;
        }
        !migration.parcels.is_empty() || migration.next < self.keys.end
    }

    /// Keeps the value of a key that is there, and claims the key. `None` if another request has claimed it.
    fn pack(&self, tx: &Transaction<'_>, key: &[u8]) -> Option<Parcel> {
        let survey = Some(tx.begin_key_survey(key)?);
        let freight = Freight {
            value: Kept::of(tx.peek_any(key)?),
            expires_at_ms: tx.peek_expiry(key).flatten(),
            fence: tx.fence_of(key),
            replaces: self.replaces,
        };
        Some(Parcel {
            key: key.into(),
            cargo: Cargo::Value(Some(freight)),
            survey,
            sent: 1,
            packed: None,
            former: None,
            receipt: Receipt::Unknown,
        })
    }
}

/// Has a key deleted at the target, where a former version is. The claim lasts until that is done.
fn withdraw(parcel: Parcel, migration: &mut Migration) {
    migration.parcels.push(Parcel { cargo: Cargo::Withdrawal, ..parcel });
}

/// A word behind the arguments that each request has.
enum Word {
    Copy,
    Replace,
    /// With the positions of what AUTH gets. They may lie behind the end of the request.
    Auth(Range<usize>),
    /// With the positions of the keys. It is the last one.
    Keys(Range<usize>),
    /// None of these, at this position.
    Other(usize),
}

fn words_of(request: Request<'_>) -> impl Iterator<Item = Word> {
    let mut at = OPTIONS_FROM;
    std::iter::from_fn(move || {
        let (position, word) = (at, request.get(at)?);
        at += 1;
        Some(match word {
            _ if is_word(word, "copy") => Word::Copy,
            _ if is_word(word, "replace") => Word::Replace,
            _ if is_word(word, "auth") || is_word(word, "auth2") => {
                at += if is_word(word, "auth") { 1 } else { 2 };
                Word::Auth(position + 1..at)
            }
            _ if is_word(word, "keys") => {
                at = request.len();
                Word::Keys(position + 1..at)
            }
            _ => Word::Other(position),
        })
    })
}

/// The positions behind the word KEYS, if a request has it.
fn keys_word(request: Request<'_>) -> Option<Range<usize>> {
    words_of(request).find_map(|word| match word {
        Word::Keys(keys) => Some(keys),
        _ => None,
    })
}

/// The positions of the keys behind the word. With a key in front of it, the request is refused.
fn keys_behind_word(request: Request<'_>) -> Range<usize> {
    let keys = keys_word(request).filter(|_| request.get(3).is_some_and(<[u8]>::is_empty));
    keys.unwrap_or(0..0)
}

/// The positions of the names and passwords for AUTH. A word that is out of place may be one, too.
fn secrets_in(request: Request<'_>) -> Vec<usize> {
    let mut secrets: Vec<usize> = Vec::new();
    for word in words_of(request) {
        match word {
            Word::Auth(login) => secrets.extend(login.start..login.end.min(request.len())),
            Word::Other(position) => {
                secrets.extend(position..request.len());
                break;
            }
            Word::Copy | Word::Replace | Word::Keys(_) => {}
        }
    }
    let is_misplaced =
        |position: &usize| request.get(*position).is_some_and(|argument| args::integer(argument).is_err());
    secrets.extend((4..OPTIONS_FROM).filter(is_misplaced));
    secrets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::facts::lookup::{find, own_names};
    use crate::resp::OwnedRequest;

    #[test]
    fn keys_and_secrets_are_where_the_parser_finds_them() {
        for (line, keys, secrets) in [
            ("MIGRATE h 1 k 0 9", "k", &[][..]),
            ("MIGRATE h 1 k 0 9 COPY replace", "k", &[]),
            ("MIGRATE h 1 \"\" 0 9 KEYS a b", "a b", &[]),
            ("MIGRATE h 1 \"\" 0 9 KEYS", "", &[]),
            ("MIGRATE h 1 k 0 9 KEYS a b", "", &[]),
            ("MIGRATE h 1 \"\" 0 9 AUTH keys KEYS auth b", "auth b", &[7]),
            ("MIGRATE h 1 \"\" 0 9 AUTH2 u keys COPY KEYS a", "a", &[7, 8]),
            ("MIGRATE h 1 k 0 9 AUTH", "k", &[]),
            ("MIGRATE h 1 k 0 9 AUTH2 u", "k", &[7]),
            ("MIGRATE h 1 k 0 9 pw COPY", "k", &[6, 7]),
            ("MIGRATE h 1 k AUTH pw", "k", &[4, 5]),
            ("MIGRATE h 1", "", &[]),
        ] {
            let owned = OwnedRequest::of_line(line.as_bytes()).expect(line);
            let request = owned.request().expect(line);
            let command = find(own_names(), request.name()).expect(line).command;
            let named: Vec<&[u8]> = command.keys_of(request).map(|(key, _)| key).collect();
            assert_eq!(named.join(&b' '), keys.as_bytes(), "{line}");
            assert_eq!(secrets_in(request), secrets, "{line}");
        }
    }
}
