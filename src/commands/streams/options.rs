//! The options of XADD and XTRIM, and those that XDELEX and XACKDEL share with them.

use std::borrow::Cow;

use crate::digest;
use crate::keyspace::Transaction;
use crate::resp::Request;
use crate::resp::number::parse_integer;
use crate::types::streams::Stream;
use crate::values::tree::ledger::{Keep, References, Trim};

use super::ids::{self, NewId};
use crate::commands::args::is_word;
use crate::commands::error::Error;
use crate::commands::facts::{Argument, Result};

/// The options of trimming, as COMMAND DOCS prints them.
pub(super) const TRIM: Argument =
    Argument::block("trim", &[STRATEGY, OPERATOR, Argument::string("threshold"), LIMIT]);
/// The same with what happens to references, which XTRIM has among its parts.
pub(super) const TRIM_WITH_REFERENCES: Argument = Argument::block(
    "trim",
    &[STRATEGY, OPERATOR, Argument::string("threshold"), LIMIT, REFERENCES.optional()],
);
const STRATEGY: Argument =
    Argument::one_of("strategy", &[Argument::word("MAXLEN"), Argument::word("MINID").since("6.2.0")]);
const OPERATOR: Argument = Argument::one_of(
    "operator",
    &[Argument::pure_token("equal", "="), Argument::pure_token("approximately", "~")],
)
.optional();
const LIMIT: Argument = Argument::integer("count").token("LIMIT").since("6.2.0").optional();

/// What happens to the references of groups to deleted entries, as COMMAND DOCS prints it.
pub(super) const REFERENCES: Argument =
    Argument::one_of("condition", &Argument::words(["KEEPREF", "DELREF", "ACKED"]));

/// The names of a producer and its message, as COMMAND DOCS prints them.
pub(super) const IDMP: Argument = Argument::one_of(
    "idmp",
    &[
        Argument::block(
            "idmpauto-with-pid",
            &[Argument::pure_token("idmpauto-token", "IDMPAUTO"), Argument::string("pid")],
        ),
        Argument::block(
            "idmp-with-pid-iid",
            &[Argument::pure_token("idmp-token", "IDMP"), Argument::string("pid"), Argument::string("iid")],
        ),
    ],
);

/// The options of XADD and XTRIM.
#[derive(Debug)]
pub(super) struct Options<'r> {
    pub(super) trim: Option<Trim>,
    /// Whether a stream that is absent stays so.
    pub(super) makes_nothing: bool,
    pub(super) message: Option<NamedMessage<'r>>,
    pub(super) id: NewId,
    /// The position of the ID, or the end of the request.
    pub(super) end: usize,
}

/// A message that its producer has named (IDMP), or lets the server name by what it has (IDMPAUTO).
#[derive(Clone, Copy, Debug)]
pub(super) struct NamedMessage<'r> {
    pub(super) producer: &'r [u8],
    name: Option<&'r [u8]>,
}

impl<'r> NamedMessage<'r> {
    /// The message's name. That of the server does not depend on the order of the fields.
    pub(super) fn name<'f>(&self, fields: impl Iterator<Item = &'f [u8]> + Clone) -> Cow<'r, [u8]> {
        if let Some(name) = self.name {
            return Cow::Borrowed(name);
        }
        let values = fields.clone().skip(1).step_by(2);
        Cow::Owned(digest::of_pairs(fields.step_by(2).zip(values)).to_vec())
    }
}

/// Reads what becomes of pending entries that are deleted, if this word is such an option.
pub(super) fn references(word: &[u8]) -> Option<References> {
    let words = [("keepref", References::Stay), ("delref", References::Leave), ("acked", References::Decide)];
    words.into_iter().find(|(name, _)| is_word(word, name)).map(|(_, references)| references)
}

/// The options of trimming that were read so far.
#[derive(Debug, Default)]
struct Rules {
    keep: Option<Keep>,
    is_approximate: bool,
    limit: Option<usize>,
    references: Option<References>,
}

impl<'r> Options<'r> {
    pub(super) fn parse(tx: &Transaction<'_>, request: Request<'r>, is_xadd: bool) -> Result<Options<'r>> {
        let (mut rules, mut message) = (Rules::default(), None);
        let (mut makes_nothing, mut id, mut at) = (false, NewId::Auto, 2);
        while let Some(option) = request.get(at) {
            let more = request.len() - 1 - at;
            let is_rule = |word: &str| is_word(option, word) && more > 0;
            if is_xadd && option == b"*" {
                break;
            } else if is_rule("maxlen") || is_rule("minid") {
                if rules.keep.is_some() {
                    return Err(Error::fixed(
                        "ERR syntax error, MAXLEN and MINID options at the same time are not compatible",
                    ));
                }
                let sign = request.at(at + 1);
                rules.is_approximate = more > 1 && sign == b"~";
                at += if rules.is_approximate || more > 1 && sign == b"=" { 2 } else { 1 };
                rules.keep = Some(match is_word(option, "maxlen") {
                    true => Keep::Last(natural(request.at(at), "ERR The MAXLEN argument must be >= 0.")?),
                    false => Keep::From(ids::parse(request.at(at))?),
                });
            } else if is_rule("limit") {
                at += 1;
                rules.limit = Some(natural(request.at(at), "ERR The LIMIT argument must be >= 0.")?);
            } else if rules.references.is_none()
                && let Some(references) = references(option)
            {
                rules.references = Some(references);
            } else if is_xadd && is_word(option, "nomkstream") {
                makes_nothing = true;
            } else if is_xadd && (is_rule("idmpauto") || is_word(option, "idmp") && more > 1) {
                let words = if is_word(option, "idmp") { 2 } else { 1 };
                message = Some(named_message(message, &request, at + 1, words)?);
                at += words;
            } else if is_xadd {
                id = ids::parse_new(option)?;
                // Redis logs a named message with the ID that it got.
                if message.is_some() && !tx.is_replay() {
                    return Err(Error::fixed(
                        "ERR syntax error, IDMP/IDMPAUTO can be used only with auto-generated IDs",
                    ));
                }
                break;
            } else {
                return Err(Error::SYNTAX);
            }
            at += 1;
        }
        let trim = rules.trim(tx, is_xadd)?;
        Ok(Options { trim, makes_nothing, message, id, end: at })
    }
}

/// Reads the names of a producer and, of two words, of its message.
fn named_message<'r>(
    before: Option<NamedMessage<'_>>,
    request: &Request<'r>,
    at: usize,
    words: usize,
) -> Result<NamedMessage<'r>> {
    if before.is_some() {
        return Err(Error::fixed("ERR syntax error, IDMP/IDMPAUTO specified multiple times"));
    }
    let (producer, name) = (request.at(at), (words > 1).then(|| request.at(at + 1)));
    if producer.is_empty() {
        return Err(Error::fixed(match name {
            Some(_) => "ERR syntax error, IDMP requires a non-empty producer ID",
            None => "ERR syntax error, IDMPAUTO requires a non-empty producer ID",
        }));
    }
    if name.is_some_and(<[u8]>::is_empty) {
        return Err(Error::fixed("ERR syntax error, IDMP requires a non-empty idempotent ID"));
    }
    Ok(NamedMessage { producer, name })
}

impl Rules {
    fn trim(self, tx: &Transaction<'_>, is_xadd: bool) -> Result<Option<Trim>> {
        /// The most entries that are trimmed if there is no LIMIT.
        const LIMIT_MAX: usize = 1_000_000;
        /// That number where a block may have any number of entries.
        const LIMIT_WITHOUT_BLOCKS: usize = 10_000;
        const BLOCKS: usize = 100;
        let Rules { keep, is_approximate, limit, references } = self;
        if limit.is_some_and(|limit| limit > 0) && keep.is_none() {
            return Err(Error::fixed(
                "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy",
            ));
        }
        if !is_xadd && keep.is_none() {
            return Err(Error::fixed("ERR syntax error, XTRIM must be called with a trimming strategy"));
        }
        // Redis logs what a limit has left as exact trimming, with the limit.
        let limit = match limit {
            _ if tx.is_replay() => 0,
            Some(_) if !is_approximate => {
                return Err(Error::fixed(
                    "ERR syntax error, LIMIT cannot be used without the special ~ option",
                ));
            }
            Some(limit) => limit,
            None if is_approximate => match tx.limit::<Stream>().entries.saturating_mul(BLOCKS) {
                0 => LIMIT_WITHOUT_BLOCKS,
                limit => limit.min(LIMIT_MAX),
            },
            None => 0,
        };
        let references = references.unwrap_or_default();
        Ok(keep.map(|keep| Trim { keep, is_approximate, limit, references }))
    }
}

/// A count of entries in the log. One that began near the highest number that a client may give may be beyond
/// it.
pub(super) fn logged_count(tx: &Transaction<'_>, text: &[u8]) -> Option<u64> {
    let text = Some(text).filter(|_| tx.is_replay())?;
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// An integer that is not below zero.
pub(super) fn natural(text: &[u8], below_zero: &'static str) -> Result<usize> {
    let number = parse_integer(text).ok_or(Error::NOT_AN_INTEGER)?;
    usize::try_from(number).map_err(|_| Error::fixed(below_zero))
}
