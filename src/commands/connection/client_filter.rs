//! The filters of CLIENT LIST and CLIENT KILL: those of Redis, and those of Valkey 9, most of which have an
//! opposite that begins with NOT-.
//!
//! Of two filters of the same name the last one counts, except that numbers of clients add up. Where the two
//! servers refuse the same mistake with different words, the words are those of Redis.

use std::sync::Arc;

use crate::acl::User;
use crate::clients::description::flags;
use crate::clients::{Address, Client};
use crate::instance::Instance;
use crate::resp::Request;
use crate::resp::number::parse_integer;
use crate::session::Session;

use crate::commands::args::{Options, is_word};
use crate::commands::error::Error;
use crate::commands::facts::{Argument, Result};

/// The letters of flags that a client may have, here or in Valkey.
const FLAGS: &[u8] = b"ABEIMNOPRSTUbcdeirtux";
/// The letter of the one capability that is known: `redirect`.
const CAPABILITIES: &[u8] = b"r";

/// The arguments of CLIENT LIST.
pub(super) const OF_LIST: &[Argument] = &filters(
    [
        Argument::one_of("client-type", KINDS_OF_LIST).token("TYPE").since("5.0.0").optional(),
        Argument::integer("client-id").token("ID").since("6.2.0").optional().multiple(),
        Argument::string("username").token("USER").since("8.1.0").optional(),
        Argument::string("addr").shown_as("ip:port").token("ADDR").since("8.1.0").optional(),
        Argument::string("laddr").shown_as("ip:port").token("LADDR").since("8.1.0").optional(),
        Argument::one_of("skipme", &Argument::words(["YES", "NO"])).token("SKIPME").since("8.1.0").optional(),
        Argument::integer("maxage").token("MAXAGE").since("8.1.0").optional(),
    ],
    Argument::one_of("not-client-type", KINDS_OF_LIST).token("NOT-TYPE").since("9.0.0").optional(),
);

/// The arguments of CLIENT KILL.
pub(super) const OF_KILL: &[Argument] = &filters(
    [
        Argument::integer("client-id").token("ID").since("2.8.12").optional(),
        Argument::one_of(
            "client-type",
            &[
                Argument::word("NORMAL"),
                Argument::word("MASTER").since("3.2.0"),
                Argument::word("PRIMARY").since("8.0.0"),
                Argument::word("SLAVE"),
                Argument::word("REPLICA").since("5.0.0"),
                Argument::word("PUBSUB"),
            ],
        )
        .token("TYPE")
        .since("2.8.12")
        .optional(),
        Argument::string("username").token("USER").optional(),
        Argument::string("addr").shown_as("ip:port").token("ADDR").optional(),
        Argument::string("laddr").shown_as("ip:port").token("LADDR").since("6.2.0").optional(),
        Argument::one_of("skipme", &Argument::words(["YES", "NO"])).token("SKIPME").optional(),
        Argument::integer("maxage").token("MAXAGE").since("7.4.0").optional(),
    ],
    Argument::one_of(
        "not-client-type",
        &Argument::words(["NORMAL", "MASTER", "PRIMARY", "SLAVE", "REPLICA", "PUBSUB"]),
    )
    .token("NOT-TYPE")
    .since("9.0.0")
    .optional(),
);

const KINDS_OF_LIST: &[Argument] = &Argument::words(["NORMAL", "MASTER", "REPLICA", "PUBSUB"]);

/// The filters of a command: its own forms of the seven that are older, and those that are the same for both
/// commands, with its own opposite of TYPE among them.
const fn filters(older: [Argument; 7], not_type: Argument) -> [Argument; 27] {
    let [first, second, third, fourth, fifth, sixth, seventh] = older;
    [
        first,
        second,
        third,
        fourth,
        fifth,
        sixth,
        seventh,
        newer(Argument::string("name"), "NAME"),
        newer(Argument::integer("idle"), "IDLE"),
        newer(Argument::string("flags"), "FLAGS"),
        newer(Argument::string("lib-name"), "LIB-NAME"),
        newer(Argument::string("lib-ver"), "LIB-VER"),
        newer(Argument::integer("db"), "DB"),
        newer(Argument::string("capa"), "CAPA"),
        newer(Argument::string("ip"), "IP"),
        not_type,
        newer(Argument::integer("not-client-id").multiple(), "NOT-ID"),
        newer(Argument::string("not-username"), "NOT-USER"),
        newer(Argument::string("not-addr"), "NOT-ADDR"),
        newer(Argument::string("not-laddr"), "NOT-LADDR"),
        newer(Argument::string("not-name"), "NOT-NAME"),
        newer(Argument::string("not-flags"), "NOT-FLAGS"),
        newer(Argument::string("not-lib-name"), "NOT-LIB-NAME"),
        newer(Argument::string("not-lib-ver"), "NOT-LIB-VER"),
        newer(Argument::integer("not-db"), "NOT-DB"),
        newer(Argument::string("not-capa"), "NOT-CAPA"),
        newer(Argument::string("not-ip"), "NOT-IP"),
    ]
}

const fn newer(argument: Argument, token: &'static str) -> Argument {
    argument.token(token).since("9.0.0").optional()
}

/// The filters of a request: a client must match all of them.
#[derive(Default)]
pub(super) struct Filter<'a> {
    with: Traits<'a>,
    without: Traits<'a>,
    age_s_min: Option<u64>,
    idle_s_min: Option<u64>,
    leaves_out_own: bool,
}

/// The properties by which clients are filtered.
#[derive(Default)]
struct Traits<'a> {
    ids: Option<Vec<u64>>,
    kind: Option<ClientType>,
    user: Option<Arc<User>>,
    address: Option<&'a [u8]>,
    local_address: Option<&'a [u8]>,
    name: Option<&'a [u8]>,
    lib_name: Option<&'a [u8]>,
    lib_version: Option<&'a [u8]>,
    flags: Option<&'a [u8]>,
    capabilities: Option<&'a [u8]>,
    database: Option<usize>,
    ip: Option<&'a [u8]>,
}

/// The type of a client (TYPE). There are no replicas.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ClientType {
    Normal,
    Primary,
    Replica,
    Subscriber,
}

impl ClientType {
    fn of(client: &Client) -> ClientType {
        if client.is_listening() { ClientType::Subscriber } else { ClientType::Normal }
    }

    fn parse(word: &[u8]) -> Result<ClientType> {
        match word {
            _ if is_word(word, "normal") => Ok(ClientType::Normal),
            _ if is_word(word, "master") || is_word(word, "primary") => Ok(ClientType::Primary),
            _ if is_word(word, "slave") || is_word(word, "replica") => Ok(ClientType::Replica),
            _ if is_word(word, "pubsub") => Ok(ClientType::Subscriber),
            _ => Err(Error::quoting("ERR Unknown client type '", word, "'")),
        }
    }
}

impl<'a> Filter<'a> {
    /// The client that connects from an address, in the form of Redis 2.4.
    pub(super) fn of_address(address: &'a [u8]) -> Filter<'a> {
        let with = Traits { address: Some(address), ..Traits::default() };
        Filter { with, ..Filter::default() }
    }

    /// The filters of CLIENT LIST. Without any, all clients are meant.
    pub(super) fn of_list(request: Request<'a>, instance: &Instance) -> Result<Filter<'a>> {
        let mut filter = Filter::default();
        let mut options = Options::new(request, 2);
        while let Some(option) = options.next() {
            if !is_word(option, "id") {
                filter.parse(option, &mut options, instance)?;
                continue;
            }
            let ids = filter.with.ids.get_or_insert_default();
            // Redis takes all that follows for numbers.
            let first = options.value()?;
            let no_number = Error::fixed("ERR Invalid client ID");
            ids.extend(u64::try_from(parse_integer(first).ok_or(no_number)?));
            while let Some(id) = options.next_if(|word| parse_integer(word).is_some()) {
                ids.extend(parse_integer(id).and_then(|id| u64::try_from(id).ok()));
            }
            if options.peek().is_some_and(|word| !is_filter(word)) {
                return Err(Error::fixed("ERR Invalid client ID"));
            }
        }
        Ok(filter)
    }

    /// The filters of CLIENT KILL.
    pub(super) fn of_kill(request: Request<'a>, instance: &Instance) -> Result<Filter<'a>> {
        let mut filter = Filter { leaves_out_own: true, ..Filter::default() };
        let mut options = Options::new(request, 2);
        while let Some(option) = options.next() {
            match is_word(option, "id") {
                true => parse_ids(&mut filter.with, &mut options)?,
                false => filter.parse(option, &mut options, instance)?,
            }
        }
        Ok(filter)
    }

    /// Parses one filter that has the same form for both.
    fn parse(&mut self, option: &[u8], options: &mut Options<'a>, instance: &Instance) -> Result<()> {
        if let Some(rest) = option.split_at_checked(4).filter(|(word, _)| is_word(word, "not-")) {
            return match is_word(rest.1, "id") {
                true if options.peek().is_none_or(|id| parse_integer(id).is_none()) => Err(Error::SYNTAX),
                true => parse_ids(&mut self.without, options),
                false => self.without.parse(rest.1, options.value()?, instance, Sense::Without),
            };
        }
        let value = options.value()?;
        match option {
            _ if is_word(option, "maxage") => {
                let no_integer = "ERR maxage is not an integer or out of range";
                self.age_s_min = Some(seconds(value, no_integer, "ERR maxage should be greater than 0")?);
            }
            _ if is_word(option, "idle") => {
                let no_integer = "ERR idle is not an integer or out of range";
                self.idle_s_min = Some(seconds(value, no_integer, "ERR idle should be greater than 0")?);
            }
            _ if is_word(option, "skipme") && is_word(value, "yes") => self.leaves_out_own = true,
            _ if is_word(option, "skipme") && is_word(value, "no") => self.leaves_out_own = false,
            _ => return self.with.parse(option, value, instance, Sense::With),
        }
        Ok(())
    }

    /// Whether the filters match a client, for the session that asks.
    pub(super) fn matches(&self, client: &Client, asking: &Session, now_ms: u64) -> bool {
        let is_own = client.id == asking.client.id;
        // The client that asks is not idle.
        let idle_s = if is_own { 0 } else { client.idle_s(now_ms) };
        !(is_own && self.leaves_out_own)
            && self.with.decide(client).all(|applies| applies)
            && !self.without.decide(client).any(|applies| applies)
            && self.idle_s_min.is_none_or(|least| idle_s >= least)
            && self.age_s_min.is_none_or(|least| client.connected_at.elapsed().as_secs() >= least)
    }
}

/// Whether clients are meant that have something in common, or all others.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sense {
    With,
    Without,
}

impl<'a> Traits<'a> {
    fn parse(&mut self, option: &[u8], value: &'a [u8], instance: &Instance, sense: Sense) -> Result<()> {
        let refuse_others = |known: &[u8], with: &'static str, without: &'static str| {
            let is_known = value.iter().all(|letter| known.contains(letter));
            let text = if sense == Sense::With { with } else { without };
            if is_known { Ok(()) } else { Err(Error::quoting(text, value, "")) }
        };
        match option {
            _ if is_word(option, "type") => self.kind = Some(ClientType::parse(value)?),
            _ if is_word(option, "addr") => self.address = Some(value),
            _ if is_word(option, "laddr") => self.local_address = Some(value),
            _ if is_word(option, "user") => {
                let unknown = || Error::quoting("ERR No such user '", value, "'");
                self.user = Some(instance.users.get(value).ok_or_else(unknown)?);
            }
            _ if is_word(option, "name") => self.name = Some(value),
            _ if is_word(option, "lib-name") => self.lib_name = Some(value),
            _ if is_word(option, "lib-ver") => self.lib_version = Some(value),
            _ if is_word(option, "ip") => self.ip = Some(value),
            _ if is_word(option, "db") => self.database = Some(database(value, instance, sense)?),
            _ if is_word(option, "flags") => {
                refuse_others(
                    FLAGS,
                    "ERR Unknown flags found in the provided filter: ",
                    "ERR Unknown flags found in the NOT-FLAGS filter: ",
                )?;
                self.flags = Some(value);
            }
            _ if is_word(option, "capa") => {
                refuse_others(
                    CAPABILITIES,
                    "ERR Unknown capa found in the provided filter: ",
                    "ERR Unknown capa found in the NOT-CAPA filter: ",
                )?;
                self.capabilities = Some(value);
            }
            _ => return Err(Error::SYNTAX),
        }
        Ok(())
    }

    /// For each of these that is asked for, whether a client has it.
    fn decide(&self, client: &Client) -> impl Iterator<Item = bool> {
        let profile = client.profile.lock().clone();
        let flags = self.flags.map(|letters| {
            let own = flags(client, &profile);
            letters.iter().all(|letter| own.as_bytes().contains(letter))
        });
        let is_user = |user| profile.user.as_ref().is_some_and(|own| Arc::ptr_eq(own, user));
        let is_at = |address: &[u8], own: &Address| address == own.to_string().as_bytes();
        [
            self.ids.as_ref().map(|ids| ids.contains(&client.id)),
            self.kind.map(|kind| kind == ClientType::of(client)),
            self.user.as_ref().map(is_user),
            self.address.map(|address| is_at(address, &client.address)),
            self.local_address.map(|address| is_at(address, &client.local_address)),
            self.name.map(|name| name == profile.name),
            self.lib_name.map(|name| name == profile.lib_name),
            self.lib_version.map(|version| version == profile.lib_version),
            flags,
            self.capabilities.map(|letters| letters.is_empty() || profile.can_be_redirected),
            self.database.map(|database| database == profile.state.database),
            self.ip.map(|ip| ip == ip_of(&client.address).as_bytes()),
        ]
        .into_iter()
        .flatten()
    }
}

/// The address of a client's machine; for a Unix socket its path.
fn ip_of(address: &Address) -> String {
    match address {
        Address::Tcp(address) => address.ip().to_string(),
        Address::Unix(path) => path.display().to_string(),
    }
}

fn is_filter(word: &[u8]) -> bool {
    let word =
        word.split_at_checked(4).filter(|(not, _)| is_word(not, "not-")).map_or(word, |(_, rest)| rest);
    OF_LIST.iter().any(|argument| argument.token.is_some_and(|token| is_word(word, token)))
}

/// The numbers behind ID, of which there must be one.
fn parse_ids(traits: &mut Traits<'_>, options: &mut Options<'_>) -> Result<()> {
    let too_low = || Error::fixed("ERR client-id should be greater than 0");
    let ids = traits.ids.get_or_insert_default();
    let mut id = options.value()?;
    loop {
        let number = parse_integer(id).and_then(|id| u64::try_from(id).ok()).filter(|id| *id > 0);
        ids.push(number.ok_or_else(too_low)?);
        match options.next_if(|word| parse_integer(word).is_some()) {
            Some(next) => id = next,
            None => return Ok(()),
        }
    }
}

fn seconds(value: &[u8], no_integer: &'static str, too_low: &'static str) -> Result<u64> {
    let seconds = parse_integer(value).ok_or(Error::fixed(no_integer))?;
    u64::try_from(seconds).ok().filter(|seconds| *seconds > 0).ok_or(Error::fixed(too_low))
}

fn database(value: &[u8], instance: &Instance, sense: Sense) -> Result<usize> {
    let name = if sense == Sense::With { "DB" } else { "NOT-DB" };
    let number = parse_integer(value).and_then(|number| i32::try_from(number).ok());
    let no_integer = || Error::text(format!("ERR {name} is not an integer or out of range"));
    let number = number.ok_or_else(no_integer)?;
    let numbers = instance.keyspace.database_numbers();
    let (first, last) = (numbers.start, numbers.end - 1);
    let out_of_range = || Error::text(format!("ERR {name} number should be between {first} and {last}"));
    usize::try_from(number).ok().filter(|number| numbers.contains(number)).ok_or_else(out_of_range)
}
