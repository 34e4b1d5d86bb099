//! The documentation of a command's arguments, which COMMAND DOCS prints.

/// One argument in the documentation.
#[derive(Debug)]
pub struct Argument {
    /// Its name, which COMMAND DOCS shows in lower case.
    pub name: &'static str,
    /// What the documentation shows in its place, if that is not its name.
    pub shown_as: Option<&'static str>,
    /// Its kind, such as a key or an integer.
    pub kind: ArgumentKind,
    /// The word before it, or the word that it is.
    pub token: Option<&'static str>,
    /// The first version of Redis that has it, if it is newer than the command.
    pub since: Option<&'static str>,
    /// The version of Redis that deprecated it.
    pub deprecated_since: Option<&'static str>,
    /// Whether it can be left out.
    pub is_optional: bool,
    /// Whether it can be repeated.
    pub is_multiple: bool,
    /// Whether its token is repeated with it.
    pub repeats_token: bool,
    /// For a key: the index of its key specification.
    pub key_spec: usize,
    /// Its parts, or its alternatives.
    pub arguments: &'static [Argument],
}

/// The kinds of arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentKind {
    /// The name of a key.
    Key,
    /// Any bytes, such as a value.
    String,
    /// A whole number.
    Integer,
    /// A number with a fraction.
    Double,
    /// A Unix time: seconds or milliseconds since 1970.
    UnixTime,
    /// A pattern in the style of a shell's, such as `user:*`.
    Pattern,
    /// Its token and nothing else.
    PureToken,
    /// One of several.
    OneOf,
    /// Several, one after the other.
    Block,
}

impl ArgumentKind {
    /// As COMMAND DOCS prints it.
    pub fn name(self) -> &'static str {
        match self {
            ArgumentKind::Key => "key",
            ArgumentKind::String => "string",
            ArgumentKind::Integer => "integer",
            ArgumentKind::Double => "double",
            ArgumentKind::UnixTime => "unix-time",
            ArgumentKind::Pattern => "pattern",
            ArgumentKind::PureToken => "pure-token",
            ArgumentKind::OneOf => "oneof",
            ArgumentKind::Block => "block",
        }
    }
}

impl Argument {
    /// The one key, or each of several.
    pub const KEY: Argument = Argument::new("key", ArgumentKind::Key);

    /// An argument that is required exactly once.
    pub const fn new(name: &'static str, kind: ArgumentKind) -> Argument {
        Argument {
            name,
            shown_as: None,
            kind,
            token: None,
            since: None,
            deprecated_since: None,
            is_optional: false,
            is_multiple: false,
            repeats_token: false,
            key_spec: 0,
            arguments: &[],
        }
    }

    /// An argument that may be any bytes.
    pub const fn string(name: &'static str) -> Argument {
        Argument::new(name, ArgumentKind::String)
    }

    /// A whole number.
    pub const fn integer(name: &'static str) -> Argument {
        Argument::new(name, ArgumentKind::Integer)
    }

    /// A number with a fraction.
    pub const fn double(name: &'static str) -> Argument {
        Argument::new(name, ArgumentKind::Double)
    }

    /// A Unix time: seconds or milliseconds since 1970, as the name says.
    pub const fn unix_time(name: &'static str) -> Argument {
        Argument::new(name, ArgumentKind::UnixTime)
    }

    /// A pattern in the style of a shell's, such as `user:*`.
    pub const fn pattern(name: &'static str) -> Argument {
        Argument::new(name, ArgumentKind::Pattern)
    }

    /// A word that stands for itself.
    pub const fn word(word: &'static str) -> Argument {
        Argument::pure_token(word, word)
    }

    /// Several words that stand for themselves.
    pub const fn words<const COUNT: usize>(words: [&'static str; COUNT]) -> [Argument; COUNT] {
        let mut arguments = [const { Argument::word("") }; COUNT];
        let mut number = 0;
        while number < COUNT {
            arguments[number] = Argument::word(words[number]);
            number += 1;
        }
        arguments
    }

    /// A word that stands for itself, and has another name.
    pub const fn pure_token(name: &'static str, token: &'static str) -> Argument {
        Argument::new(name, ArgumentKind::PureToken).token(token)
    }

    /// One of several.
    pub const fn one_of(name: &'static str, arguments: &'static [Argument]) -> Argument {
        Argument { arguments, ..Argument::new(name, ArgumentKind::OneOf) }
    }

    /// Several arguments, one after the other.
    pub const fn block(name: &'static str, arguments: &'static [Argument]) -> Argument {
        Argument { arguments, ..Argument::new(name, ArgumentKind::Block) }
    }

    /// Shown in the documentation as this, which is not its name.
    pub const fn shown_as(self, text: &'static str) -> Argument {
        Argument { shown_as: Some(text), ..self }
    }

    /// What the documentation shows in its place. `None` if it consists of others, which are shown.
    pub fn shown(&self) -> Option<String> {
        let is_made_of_others = matches!(self.kind, ArgumentKind::OneOf | ArgumentKind::Block);
        let shown = || self.shown_as.map_or_else(|| self.name.to_ascii_lowercase(), str::to_owned);
        (!is_made_of_others).then(shown)
    }

    /// The least number of words that it takes in a request, and whether it never takes more.
    fn length(&self) -> (usize, bool) {
        let (words, is_exact) = match self.kind {
            _ if self.is_optional => return (0, false),
            ArgumentKind::PureToken => (0, true),
            ArgumentKind::Block => Argument::length_of(self.arguments),
            ArgumentKind::OneOf => {
                let either = |one: (usize, bool), other: (usize, bool)| {
                    (one.0.min(other.0), one.1 && other.1 && one.0 == other.0)
                };
                self.arguments.iter().map(Argument::length).reduce(either).unwrap_or((0, true))
            }
            _ => (1, true),
        };
        (words + usize::from(self.token.is_some()), is_exact && !self.is_multiple)
    }

    /// The same for all of several arguments.
    pub(super) fn length_of(arguments: &[Argument]) -> (usize, bool) {
        let both = |one: (usize, bool), other: (usize, bool)| (one.0 + other.0, one.1 && other.1);
        arguments.iter().map(Argument::length).fold((0, true), both)
    }

    /// After this word.
    pub const fn token(self, token: &'static str) -> Argument {
        Argument { token: Some(token), ..self }
    }

    /// Since this version.
    pub const fn since(self, since: &'static str) -> Argument {
        Argument { since: Some(since), ..self }
    }

    /// Deprecated since this version.
    pub const fn deprecated_since(self, since: &'static str) -> Argument {
        Argument { deprecated_since: Some(since), ..self }
    }

    /// Can be left out.
    pub const fn optional(self) -> Argument {
        Argument { is_optional: true, ..self }
    }

    /// Can be repeated.
    pub const fn multiple(self) -> Argument {
        Argument { is_multiple: true, ..self }
    }

    /// Can be repeated, each time after its token.
    pub const fn multiple_token(self) -> Argument {
        Argument { repeats_token: true, ..self }
    }

    /// Belongs to the command's key specification with this number.
    pub const fn of_spec(self, key_spec: usize) -> Argument {
        Argument { key_spec, ..self }
    }
}
