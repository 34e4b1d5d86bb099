//! Sets of different members.
//!
//! A small set is packed. Its first byte is a width:
//!
//! - 2, 4 or 8: all members are integers. They follow in ascending order, each in this number of bytes.
//! - 0: a count follows, and the members as strings, in the order in which they were added.
//!
//! A large set is a map whose values are empty. The limits are those of Redis 7.2, which packs sets of
//! strings as well.

use std::fmt;
use std::io;
use std::ops::{Deref, Range};

use crate::dump::Compressor;
use crate::dump::collections::{self, SET, SET_INTSET, SET_TYPES};
use crate::dump::packed::writing::intset;
use crate::dump::strings::{DecodeError, Source, write_length, write_string};
use crate::events::EventClass;
use crate::keyspace::{Change, records};
use crate::resp::number::parse_integer;
use crate::values::packed::{self, COUNT_BYTES, COUNT_MAX, Length, Strings};
use crate::values::tree::Map;
use crate::values::{
    Content, Limit, Loaded, PACKED_BYTES_MAX, SET_KIND, Sink, Structure, Type, TypeFacts, size,
};

/// The type of sets.
#[derive(Debug)]
pub enum Set {}

impl Type for Set {
    const FACTS: &'static TypeFacts = &FACTS;
    const EMPTY: &'static [u8] = &[2];
    type View<'v> = SetView<'v>;

    #[inline(always)]
    fn view(content: Content<'_>) -> SetView<'_> {
        match content.large::<Map>() {
            Some(map) => SetView::Large(map),
            None => SetView::packed(content.bytes().unwrap_or_default()),
        }
    }
}

/// The facts about sets.
pub(crate) const FACTS: TypeFacts = TypeFacts {
    name: "set",
    kind: SET_KIND,
    events: EventClass::SET,
    limit: |of| Limit {
        integers: size(of("set-max-intset-entries")),
        ..Limit::by(of, "set-max-listpack-entries", "set-max-listpack-value")
    },
    encoding: |content, _, _| match Set::view(content) {
        SetView::Integers(_) => "intset",
        SetView::Strings(_) => "listpack",
        SetView::Large(_) => "hashtable",
    },
    len: |content| Set::view(content).len(),
    each: |content, visit| Set::view(content).iter().for_each(|member| visit(&[&member])),
    is_ordered: false,
    log,
    rdb_types: SET_TYPES,
    rdb_type: |content| if let SetView::Integers(_) = Set::view(content) { SET_INTSET } else { SET },
    save,
    load,
};

/// The longest text of an integer.
const INTEGER_BYTES_MAX: usize = 20;

/// Where the members of a packed set of integers begin.
const INTEGERS: usize = 1;
/// The count of a packed set of strings.
const COUNT: Range<usize> = 1..1 + COUNT_BYTES;
/// Where the members of a packed set of strings begin.
const MEMBERS: usize = COUNT.end;
/// The width of a packed set of strings.
const STRINGS: u8 = 0;

/// A set that is read.
#[derive(Clone, Copy, Debug)]
pub enum SetView<'v> {
    /// A small set of integers.
    Integers(Integers<'v>),
    /// A small set of strings, packed.
    Strings(&'v [u8]),
    /// A large set.
    Large(&'v Map),
}

/// A member of a set. It is a string; an integer is printed.
#[derive(Clone, Copy)]
pub enum Member<'v> {
    /// A string in the set.
    String(&'v [u8]),
    /// The digits of an integer, and their number.
    Integer([u8; INTEGER_BYTES_MAX], usize),
}

impl Member<'_> {
    fn of(integer: i64) -> Member<'static> {
        let mut buffer = itoa::Buffer::new();
        let digits = buffer.format(integer).as_bytes();
        let mut bytes = [0; INTEGER_BYTES_MAX];
        bytes[..digits.len()].copy_from_slice(digits);
        Member::Integer(bytes, digits.len())
    }
}

impl Deref for Member<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Member::String(string) => string,
            Member::Integer(digits, used) => &digits[..*used],
        }
    }
}

impl AsRef<[u8]> for Member<'_> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Member<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.escape_ascii())
    }
}

impl<'v> SetView<'v> {
    fn packed(packed: &'v [u8]) -> SetView<'v> {
        match packed.split_first() {
            None | Some((&STRINGS, _)) => SetView::Strings(packed),
            Some((width, bytes)) => SetView::Integers(Integers { width: usize::from(*width), bytes }),
        }
    }

    /// The number of members.
    pub fn len(self) -> usize {
        match self {
            SetView::Integers(integers) => integers.len(),
            SetView::Strings(packed) => packed::count(packed.get(COUNT).unwrap_or_default()),
            SetView::Large(map) => map.len(),
        }
    }

    /// Whether there are no members.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Whether a string is a member.
    #[inline]
    pub fn contains(self, member: &[u8]) -> bool {
        match self {
            SetView::Integers(integers) => {
                parse(member).is_some_and(|integer| integers.search(integer).is_ok())
            }
            SetView::Strings(packed) => find(packed, member).is_some(),
            SetView::Large(map) => map.contains(member),
        }
    }

    /// The members, in no particular order.
    pub fn iter(self) -> impl Iterator<Item = Member<'v>> {
        let (integers, strings, large) = match self {
            SetView::Integers(integers) => (Some(integers), None, None),
            SetView::Strings(packed) => (None, Some(Strings::from(packed, MEMBERS)), None),
            SetView::Large(map) => (None, None, Some(map.iter())),
        };
        let integers = integers.into_iter().flat_map(Integers::iter);
        let integers = integers.map(|integer| -> Member<'v> { Member::of(integer) });
        let large = large.into_iter().flatten().map(|(name, _)| name);
        integers.chain(strings.into_iter().flatten().chain(large).map(Member::String))
    }

    /// The member at a position below the number of members. Positions are those of [`iter`](Self::iter).
    pub fn at(self, position: usize) -> Option<Member<'v>> {
        match self {
            SetView::Integers(integers) => {
                (position < integers.len()).then(|| Member::of(integers.at(position)))
            }
            SetView::Strings(packed) => Strings::from(packed, MEMBERS).nth(position).map(Member::String),
            SetView::Large(map) => map.at(position).map(|(name, _)| Member::String(name)),
        }
    }
}

/// Integers in ascending order, each in `width` bytes.
#[derive(Clone, Copy, Debug)]
pub struct Integers<'v> {
    width: usize,
    bytes: &'v [u8],
}

impl<'v> Integers<'v> {
    fn len(self) -> usize {
        self.bytes.len() / self.width
    }

    fn at(self, position: usize) -> i64 {
        let bytes = &self.bytes[position * self.width..][..self.width];
        let is_negative = bytes.last().is_some_and(|last| last & 0x80 != 0);
        let mut wide = if is_negative { [0xff; 8] } else { [0; 8] };
        wide[..self.width].copy_from_slice(bytes);
        i64::from_le_bytes(wide)
    }

    fn iter(self) -> impl ExactSizeIterator<Item = i64> + Clone + use<'v> {
        (0..self.len()).map(move |position| self.at(position))
    }

    /// The position of an integer, or the one where it belongs.
    fn search(self, integer: i64) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            match self.at(middle).cmp(&integer) {
                std::cmp::Ordering::Equal => return Ok(middle),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    /// The bytes of the integer at a position, in the packed set.
    fn place(self, position: usize) -> Range<usize> {
        let start = INTEGERS + position * self.width;
        start..start + self.width
    }
}

/// The integer that a string is in canonical form.
fn parse(member: &[u8]) -> Option<i64> {
    if member.len() <= INTEGER_BYTES_MAX { parse_integer(member) } else { None }
}

/// The bytes that an integer takes.
fn width_of(integer: i64) -> usize {
    match integer {
        -0x8000..0x8000 => 2,
        -0x8000_0000..0x8000_0000 => 4,
        _ => 8,
    }
}

/// Finds a member of a packed set of strings: its bytes with its length.
fn find(packed: &[u8], member: &[u8]) -> Option<Range<usize>> {
    packed::find(&mut Strings::from(packed, MEMBERS), member)
}

impl Change<'_, Set> {
    /// Adds a member; returns whether it is new.
    pub fn insert(&mut self, member: &[u8]) -> bool {
        let is_new = match self.large_mut::<Map>() {
            Some(map) => map.insert(member, b""),
            None => self.insert_packed(member),
        };
        if is_new {
            self.note("SADD", &[member]);
        }
        is_new
    }

    /// Chooses the form of a set that is about to get so many members, as Redis does: it goes by their number
    /// and by the first one, although the others may be in the set already.
    pub fn expect(&mut self, first: &[u8], members: usize) {
        let (limit, is_new) = (self.limit(), self.view().is_empty());
        match self.view() {
            SetView::Large(_) => {}
            SetView::Integers(_) if members <= limit.integers && (!is_new || parse(first).is_some()) => {}
            SetView::Integers(_) if is_new && members <= limit.entries.min(COUNT_MAX) => {
                self.turn_into_strings()
            }
            SetView::Strings(_) if members <= limit.entries.min(COUNT_MAX) => {}
            _ => {
                let map = unpacked(self.view());
                self.enlarge(Structure::Map(map));
            }
        }
    }

    fn insert_packed(&mut self, member: &[u8]) -> bool {
        let limit = self.limit();
        let (len, end) = (self.view().len(), self.packed().len());
        match (self.view(), parse(member)) {
            (SetView::Integers(integers), Some(integer)) => match integers.search(integer) {
                Ok(_) => return false,
                Err(position) if len < limit.integers.min(COUNT_MAX) => {
                    self.insert_integer(integer, position);
                    return true;
                }
                Err(_) => {}
            },
            (SetView::Integers(integers), None) => {
                // The longest integers are the first and the last.
                let [first, last] = [0, len.saturating_sub(1)].map(|position| match len {
                    0 => 0,
                    _ => Member::of(integers.at(position)).len(),
                });
                let longest = first.max(last);
                if limit.allows(len + 1, longest.max(member.len()), len * longest + member.len()) {
                    self.turn_into_strings();
                    return self.insert_packed(member);
                }
            }
            (SetView::Strings(packed), _) => {
                if find(packed, member).is_some() {
                    return false;
                }
                if limit.allows(len + 1, member.len(), end + member.len()) {
                    self.splice(end..end, &[Length::of(member).bytes(), member], 0);
                    self.set_count(len + 1);
                    return true;
                }
            }
            (SetView::Large(_), _) => {}
        }
        let map = unpacked(self.view());
        self.enlarge(Structure::Map(map));
        self.large_mut::<Map>().is_some_and(|map| map.insert(member, b""))
    }

    fn insert_integer(&mut self, integer: i64, position: usize) {
        let SetView::Integers(integers) = self.view() else { return };
        let (width, place) = (width_of(integer).max(integers.width), integers.place(position).start);
        if width == integers.width {
            self.splice(place..place, &[&integer.to_le_bytes()[..width]], 0);
            return;
        }
        let mut widened = vec![width as u8];
        for wide in integers.iter() {
            widened.extend_from_slice(&wide.to_le_bytes()[..width]);
        }
        let at = INTEGERS + position * width;
        widened.splice(at..at, integer.to_le_bytes()[..width].iter().copied());
        let end = self.packed().len();
        self.splice(0..end, &[&widened], 0);
    }

    /// Packs a set of integers as strings.
    fn turn_into_strings(&mut self) {
        let mut strings = head_of_strings(self.view().len()).to_vec();
        for member in self.view().iter() {
            strings.extend_from_slice(Length::of(&member).bytes());
            strings.extend_from_slice(&member);
        }
        let end = self.packed().len();
        self.splice(0..end, &[&strings], 0);
    }

    /// Sets the number of members of a packed set of strings.
    fn set_count(&mut self, members: usize) {
        self.splice(COUNT, &[&head_of_strings(members)[COUNT]], 0);
    }

    /// Removes a member; returns whether it was there.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        let was_there = match self.large_mut::<Map>() {
            Some(map) => map.remove(member),
            None => self.remove_packed(member),
        };
        if was_there {
            self.note("SREM", &[member]);
        }
        was_there
    }

    fn remove_packed(&mut self, member: &[u8]) -> bool {
        let place = match self.view() {
            SetView::Integers(integers) => {
                let position = parse(member).and_then(|integer| integers.search(integer).ok());
                position.map(|position| integers.place(position))
            }
            SetView::Strings(packed) => find(packed, member),
            SetView::Large(_) => None,
        };
        let (was_there, len) = (place.is_some(), self.view().len());
        if let Some(place) = place {
            self.splice(place, &[], 0);
            if let SetView::Strings(_) = self.view() {
                self.set_count(len - 1);
            }
        }
        was_there
    }
}

impl Change<'_, Set> {
    /// Removes members of a large set, of which these are all the others. Without a log that takes no time.
    pub fn leave_only(&mut self, staying: &Map, removed: &[Vec<u8>]) {
        if self.is_logged() {
            removed.iter().for_each(|member| self.note("SREM", &[member]));
        } else {
            self.count_more(removed.len());
        }
        let bytes_before = self.large_bytes();
        if let Some(map) = self.large_mut::<Map>() {
            let remains = std::mem::replace(map, staying.share()).clear();
            let bytes = bytes_before.saturating_sub(self.large_bytes());
            self.leave(remains, bytes);
        }
    }

    /// Removes all members.
    pub fn remove_all(&mut self) {
        self.count_more(self.view().len());
        self.empty();
    }
}

/// The bytes before the members of a packed set of `members` strings, [`COUNT_MAX`] at most.
fn head_of_strings(members: usize) -> [u8; MEMBERS] {
    let [low, high] = u16::try_from(members).unwrap_or(u16::MAX).to_le_bytes();
    [STRINGS, low, high]
}

/// The map of a packed set.
fn unpacked(set: SetView<'_>) -> Map {
    let mut map = Structure::map();
    for member in set.iter() {
        map.insert(&member, b"");
    }
    map
}

/// A set that is being made outside of the keyspace.
#[derive(Debug)]
pub(crate) struct NewSet {
    limit: Limit,
    members: Map,
    /// Bytes of all members.
    bytes: usize,
    /// The members in the order in which they were added, packed, while there may be few of them.
    arrivals: Vec<u8>,
}

impl NewSet {
    /// An empty set that is packed up to a limit.
    pub(crate) fn within(limit: Limit) -> NewSet {
        NewSet { limit, members: Structure::map(), bytes: 0, arrivals: Vec::new() }
    }

    /// Adds a member; returns whether it is new.
    pub(crate) fn insert(&mut self, member: &[u8]) -> bool {
        let is_new = self.members.insert(member, b"");
        self.bytes += if is_new { member.len() } else { 0 };
        if is_new && self.may_be_packed() {
            self.arrivals.extend_from_slice(Length::of(member).bytes());
            self.arrivals.extend_from_slice(member);
        }
        is_new
    }

    fn may_be_packed(&self) -> bool {
        self.members.len() <= self.limit.entries.max(self.limit.integers).min(COUNT_MAX)
            && self.bytes <= PACKED_BYTES_MAX
    }

    /// The number of members.
    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// Packs the set if it is within the limit; returns its packed bytes, or its structure.
    pub(crate) fn finish(self) -> (Vec<u8>, Option<Structure>) {
        match self.packed() {
            Some(packed) => (packed, None),
            None => (Vec::new(), Some(Structure::Map(self.members))),
        }
    }

    fn packed(&self) -> Option<Vec<u8>> {
        if !self.may_be_packed() {
            return None;
        }
        let strings = || Strings::from(&self.arrivals, 0);
        let integers: Option<Vec<i64>> = strings().map(parse).collect();
        if self.len() <= self.limit.integers
            && let Some(mut integers) = integers
        {
            integers.sort_unstable();
            let width = integers.iter().map(|integer| width_of(*integer)).max().unwrap_or(2);
            let mut packed = vec![width as u8];
            integers.iter().for_each(|integer| packed.extend_from_slice(&integer.to_le_bytes()[..width]));
            return Some(packed);
        }
        let longest = strings().map(<[u8]>::len).max().unwrap_or(0);
        if !self.limit.allows(self.len(), longest, self.bytes) {
            return None;
        }
        let mut packed = head_of_strings(self.len()).to_vec();
        packed.extend_from_slice(&self.arrivals);
        Some(packed)
    }
}

fn log(sink: &mut dyn Sink, key: &[u8], content: Content<'_>, expires_at_ms: Option<u64>) -> io::Result<()> {
    let set = Set::view(content);
    let elements = set.iter().map(|member| [member]);
    records::collection(sink, key, "SADD", elements, expires_at_ms)
}

fn save(
    sink: &mut dyn Sink,
    content: Content<'_>,
    _: Limit,
    mut compressor: Option<&mut Compressor>,
) -> io::Result<()> {
    let set = Set::view(content);
    if let SetView::Integers(integers) = set {
        write_string(sink.buffer(), &intset(integers.iter()), compressor);
        return sink.pass_on();
    }
    write_length(sink.buffer(), set.len() as u64);
    for member in set.iter() {
        write_string(sink.buffer(), &member, compressor.as_deref_mut());
        sink.pass_on()?;
    }
    Ok(())
}

fn load(
    rdb_type: u8,
    input: &mut dyn Source,
    limit: Limit,
    value: &mut Vec<u8>,
) -> Result<Loaded, DecodeError> {
    let (mut set, mut has_twice) = (NewSet::within(limit), false);
    collections::set(rdb_type, input, &mut |member| {
        has_twice |= !set.insert(member);
        Ok(())
    })?;
    if has_twice {
        input.forgive(DecodeError::Invalid("a set has a member twice"))?;
    }
    let (packed, large) = set.finish();
    value.extend_from_slice(&packed);
    Ok(large.into())
}
