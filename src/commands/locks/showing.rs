//! What the commands have in common that show locks: which ones are asked for, and what is shown of a client.

use redis_protocol::resp3::types::OwnedFrame;

use crate::clients::Who;
use crate::glob::Pattern;
use crate::resp::{Request, tree};

use crate::commands::args::{self, Options, is_word};
use crate::commands::error::Error;
use crate::commands::facts::Result;

/// The options of LOCKS LIST and LOCKS GRAPH.
pub(crate) struct Choice<'a> {
    pattern: Option<Pattern<'a>>,
    /// The most locks to list.
    pub count: usize,
}

impl<'a> Choice<'a> {
    /// Reads the options.
    ///
    /// # Errors
    ///
    /// If an option is unknown, or its value is invalid.
    pub(crate) fn parse(request: Request<'a>) -> Result<Choice<'a>> {
        /// Each takes some microseconds, and some hundred bytes of the reply.
        const COUNT: usize = 100;
        let mut choice = Choice { pattern: None, count: COUNT };
        let mut options = Options::new(request, 2);
        while let Some(option) = options.next() {
            match option {
                _ if is_word(option, "match") => {
                    choice.pattern = Some(Pattern::new(options.value()?, false));
                }
                _ if is_word(option, "count") => {
                    let asked = args::integer(options.value()?)?;
                    choice.count =
                        usize::try_from(asked).ok().filter(|count| *count > 0).ok_or(Error::SYNTAX)?;
                }
                _ => return Err(Error::SYNTAX),
            }
        }
        Ok(choice)
    }

    /// Whether the pattern matches a key.
    pub(crate) fn has(&self, key: &[u8]) -> bool {
        self.pattern.as_ref().is_none_or(|pattern| pattern.matches(key))
    }
}

pub(super) fn describe_client(who: &Who) -> OwnedFrame {
    tree::map(client_fields(who))
}

pub(super) fn client_fields(who: &Who) -> [(&'static str, OwnedFrame); 4] {
    [
        ("id", tree::integer(who.id as i64)),
        ("name", tree::bulk(&who.name)),
        ("address", tree::bulk(who.address.to_string())),
        ("library", tree::bulk(who.client_library())),
    ]
}
