//! Where the keys of a request are.

use std::ops::Range;

use crate::resp::Request;
use crate::resp::number::parse_integer;

use super::flags::KeyFlags;

/// The places of keys in a request: from `first` to `last`, each `step` apart.
#[derive(Debug)]
pub struct KeySpec {
    /// How the keys are used.
    pub flags: KeyFlags,
    /// The first key's position.
    pub first: usize,
    /// The last key's position: counted from the first key, or if negative, from the end of the request.
    pub last: isize,
    /// The distance between two keys.
    pub step: usize,
    /// The position of the argument that states the number of keys, if there is one; `last` has no meaning
    /// then.
    pub count_at: Option<usize>,
    /// How requests are searched for the keys, if their places are not the same in all; but for
    /// [`KeySearch::Unless`], the numbers above have no meaning then.
    pub search: Option<KeySearch>,
    /// How one request uses them, if that varies.
    pub variable: Option<fn(Request<'_>) -> KeyFlags>,
    /// The remark about them that COMMAND INFO prints, as in Redis.
    pub notes: Option<&'static str>,
}

/// A search for keys whose places no numbers describe.
#[derive(Clone, Copy, Debug)]
pub enum KeySearch {
    /// One key at most: at the position that this function finds.
    Position(fn(Request<'_>) -> Option<usize>),
    /// One key at most: behind a word.
    Keyword(Keyword),
    /// The places that the numbers say, unless this function says that the request has no keys there.
    Unless(fn(Request<'_>) -> bool),
    /// Keys behind a word.
    Behind {
        /// The word in front of the keys, such as `STREAMS`.
        word: &'static str,
        /// The first position where the word may stand, as COMMAND INFO prints it. Below zero, it counts from
        /// the end.
        from: isize,
        /// Which part of what follows are keys.
        part: Part,
        /// Finds the positions of the keys.
        find: fn(Request<'_>) -> Range<usize>,
    },
    /// Keys that the request does not name, if this function returns that it uses any: they depend on values
    /// in the keyspace.
    Unnamed(fn(Request<'_>) -> bool),
}

/// Which part of what follows a word are keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The first half.
    Half,
    /// All of it.
    All,
    /// As many arguments as the first one states. They follow it.
    Stated,
}

/// A key behind a word.
#[derive(Clone, Copy, Debug)]
pub struct Keyword {
    /// The word, as COMMAND INFO prints it.
    pub word: &'static str,
    /// The first position where it may stand, as COMMAND INFO prints it.
    pub from: usize,
    /// The position of the key. This, not the facts above, is what the handler uses: a word that a request
    /// has twice, or that is a value, must not lead astray.
    pub find: fn(Request<'_>) -> Option<usize>,
}

/// The keys at these places of a request, with how each is used. Empty if the request is too short for any.
pub(super) fn keys_of<'a>(
    specs: &'static [KeySpec],
    request: Request<'a>,
) -> impl Iterator<Item = (&'a [u8], KeyFlags)> + Clone + use<'a> {
    specs.iter().filter(|spec| spec.is_of_keys()).flat_map(move |spec| {
        let flags = spec.flags_in(request);
        spec.positions(request).map(move |position| (request.at(position), flags))
    })
}

impl KeySpec {
    /// How a request uses the keys.
    pub fn flags_in(&self, request: Request<'_>) -> KeyFlags {
        self.variable.map_or(self.flags, |flags_of| flags_of(request))
    }

    /// One key, right after the name.
    pub const fn first(flags: KeyFlags) -> KeySpec {
        KeySpec::range(1, 0, 1, flags)
    }

    /// All arguments are keys, or each `step`-th.
    pub const fn every(step: usize, flags: KeyFlags) -> KeySpec {
        KeySpec::range(1, -1, step, flags)
    }

    /// From one position to another.
    pub const fn range(first: usize, last: isize, step: usize, flags: KeyFlags) -> KeySpec {
        KeySpec { flags, first, last, step, count_at: None, search: None, variable: None, notes: None }
    }

    /// As many keys as the argument at a position states; the first follows that argument.
    pub const fn counted(count_at: usize, step: usize, flags: KeyFlags) -> KeySpec {
        KeySpec { count_at: Some(count_at), ..KeySpec::range(count_at + 1, 0, step, flags) }
    }

    /// Keys behind a word: the first half of what follows it, as [`KeySearch::Behind`] has it.
    pub const fn behind(
        word: &'static str,
        from: isize,
        find: fn(Request<'_>) -> Range<usize>,
        flags: KeyFlags,
    ) -> KeySpec {
        KeySpec::part_behind((word, from), Part::Half, find, flags)
    }

    /// Keys behind a word: all that follows it.
    pub const fn all_behind(
        word: &'static str,
        from: isize,
        find: fn(Request<'_>) -> Range<usize>,
        flags: KeyFlags,
    ) -> KeySpec {
        KeySpec::part_behind((word, from), Part::All, find, flags)
    }

    /// Keys behind a word and their number.
    pub const fn stated_behind(
        word: &'static str,
        from: isize,
        find: fn(Request<'_>) -> Range<usize>,
        flags: KeyFlags,
    ) -> KeySpec {
        KeySpec::part_behind((word, from), Part::Stated, find, flags)
    }

    const fn part_behind(
        (word, from): (&'static str, isize),
        part: Part,
        find: fn(Request<'_>) -> Range<usize>,
        flags: KeyFlags,
    ) -> KeySpec {
        let search = KeySearch::Behind { word, from, part, find };
        KeySpec { search: Some(search), ..KeySpec::first(flags) }
    }

    /// The same places, unless a request has no keys there.
    pub const fn unless(self, has_none: fn(Request<'_>) -> bool) -> KeySpec {
        KeySpec { search: Some(KeySearch::Unless(has_none)), ..self }
    }

    /// Whether each request is searched for its keys.
    pub(super) const fn is_searched(&self) -> bool {
        self.search.is_some()
    }

    /// Keys that each request is searched for.
    pub const fn searched(search: KeySearch, flags: KeyFlags) -> KeySpec {
        KeySpec { search: Some(search), ..KeySpec::first(flags) }
    }

    /// A key behind a word.
    pub const fn keyword(keyword: Keyword, flags: KeyFlags) -> KeySpec {
        KeySpec { search: Some(KeySearch::Keyword(keyword)), ..KeySpec::first(flags) }
    }

    /// The request decides how the key is used.
    pub const fn variable(self, flags_of: fn(Request<'_>) -> KeyFlags) -> KeySpec {
        KeySpec { variable: Some(flags_of), ..self }
    }

    /// With a remark.
    pub const fn noted(self, notes: &'static str) -> KeySpec {
        KeySpec { notes: Some(notes), ..self }
    }

    /// Whether the numbers say where the keys are, in all requests that have any there.
    pub(crate) const fn is_numbered(&self) -> bool {
        matches!(self.search, None | Some(KeySearch::Unless(_)))
    }

    /// Whether what it finds are keys.
    pub const fn is_of_keys(&self) -> bool {
        !self.flags.contains(KeyFlags::NOT_KEY)
    }

    /// Whether it is one and the same position in all requests.
    #[inline]
    pub(super) const fn is_fixed(&self) -> bool {
        self.last == 0 && self.count_at.is_none() && self.search.is_none()
    }

    /// Whether requests of so many arguments have none of these keys: the word in front of them would stand
    /// behind all arguments.
    pub(super) const fn is_beyond(&self, arguments_max: usize) -> bool {
        match self.search {
            Some(KeySearch::Behind { from, .. }) => from >= 0 && from as usize >= arguments_max,
            _ => false,
        }
    }

    /// Whether a request does not have the word in front of these keys.
    pub(super) fn is_without_word(&self, request: Request<'_>) -> bool {
        match self.search {
            Some(KeySearch::Behind { find, .. }) => self.is_beyond(request.len()) || find(request).is_empty(),
            _ => false,
        }
    }

    /// The position of the key in a request that has exactly one.
    pub(super) fn only_position(&self, request: Request<'_>) -> Option<usize> {
        match self.search {
            _ if self.is_fixed() => (request.len() > self.first).then_some(self.first),
            None => {
                let end = self.end_among(request.len(), self.stated(request));
                (end > self.first && end - self.first <= self.step).then_some(self.first)
            }
            Some(KeySearch::Behind { find, .. }) => {
                let keys = find(request);
                (keys.len() == 1).then_some(keys.start)
            }
            Some(_) => None,
        }
    }

    /// The position of the key in a request of which is known that it has exactly one.
    #[inline]
    pub(super) fn known_only_position(&self, request: Request<'_>) -> Option<usize> {
        if self.search.is_none() { Some(self.first) } else { self.only_position(request) }
    }

    /// The positions of the keys in a request.
    #[inline]
    pub fn positions(&self, request: Request<'_>) -> std::iter::StepBy<std::ops::Range<usize>> {
        match self.search {
            None => self.positions_among(request.len(), self.stated(request)),
            Some(KeySearch::Position(find) | KeySearch::Keyword(Keyword { find, .. })) => {
                find(request).map_or(0..0, |position| position..position + 1).step_by(1)
            }
            Some(KeySearch::Unless(has_none)) if has_none(request) => (0..0).step_by(1),
            Some(KeySearch::Unless(_)) => self.positions_among(request.len(), self.stated(request)),
            Some(KeySearch::Behind { find, .. }) => find(request).step_by(1),
            Some(KeySearch::Unnamed(_)) => (0..0).step_by(1),
        }
    }

    /// Whether a request uses keys that it does not name.
    pub(super) fn leaves_unnamed_in(&self, request: Request<'_>) -> bool {
        matches!(self.search, Some(KeySearch::Unnamed(uses_any)) if uses_any(request))
    }

    /// The number of keys that a request states.
    #[inline]
    fn stated(&self, request: Request<'_>) -> usize {
        let stated = self.count_at.and_then(|count_at| parse_integer(request.get(count_at)?));
        stated.and_then(|count| usize::try_from(count).ok()).unwrap_or(0)
    }

    /// Whether a request has as many keys as it announces, and at least one. True for keys without a count.
    pub fn is_whole_in(&self, request: Request<'_>) -> bool {
        let stated = self.stated(request);
        let last = stated.checked_mul(self.step).and_then(|keys| keys.checked_add(self.first));
        self.count_at.is_none() || stated > 0 && last.is_some_and(|end| end <= request.len() - 1 + self.step)
    }

    /// The positions of the keys among this number of arguments, if one of these states `stated` keys.
    #[inline]
    pub fn positions_among(
        &self,
        arguments: usize,
        stated: usize,
    ) -> std::iter::StepBy<std::ops::Range<usize>> {
        (self.first..self.end_among(arguments, stated)).step_by(self.step)
    }

    #[inline]
    fn end_among(&self, arguments: usize, stated: usize) -> usize {
        let end = match self.count_at {
            Some(_) => self.first + stated.min(arguments) * self.step,
            None if self.last < 0 => arguments.saturating_add_signed(self.last) + 1,
            None => self.first.saturating_add_signed(self.last) + 1,
        };
        end.min(arguments)
    }
}
