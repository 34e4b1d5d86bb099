//! Reads lists, sets, hashes and sorted sets in every form in which a version of Redis has written them.
//!
//! A form is a type of the RDB format: plain elements one behind the other, or a [packed](super::packed)
//! encoding in one string. The caller's visitor gets one element after the other, whatever the form. An error
//! may come after some elements were visited, so the caller must then drop what it has made of them.
//!
//! A collection without elements is an error ([`DecodeError::Empty`]), as in Redis. Members and fields that
//! occur twice are left to the visitor.
//!
//! Redis looks closely at a value that a client restores. In a file it believes a listpack or an intset that
//! has the right length, and loads what it finds. Here each element is checked always, and the source decides
//! whether what is before the mistake counts ([`Source::forgive`]). Ziplists and zipmaps are checked by Redis
//! as well, whatever they come from.
//!
//! Redis and Valkey parted after version 11 of the format, and gave 22 to different forms. [`Author::form`]
//! makes a number of its own of one of them.
//!
//! [`Author::form`]: super::Author::form
//!
//! Keyfast writes small collections and all lists in the packed forms of Redis 7.0, and large collections of
//! other types in the plain forms, which every version of Redis reads.

use super::packed::Element;
use super::packed::intset::Intset;
use super::packed::listpack::Listpack;
use super::packed::ziplist::Ziplist;
use super::packed::zipmap::Zipmap;
use super::strings::{DecodeError, Source, Template, read_names};

/// The RDB type of a set, member by member. Keyfast writes it.
pub(crate) const SET: u8 = 2;
/// The RDB type of a hash, field by field. Keyfast writes it.
pub(crate) const HASH: u8 = 4;
/// The RDB type of a sorted set with scores of 8 bytes. Keyfast writes it.
pub(crate) const SORTED_SET: u8 = 5;

/// A list, element by element.
const LIST: u8 = 1;
/// A sorted set whose scores are decimal texts. Redis: `RDB_TYPE_ZSET`, before version 4.
const SORTED_SET_TEXT: u8 = 3;
const HASH_ZIPMAP: u8 = 9;
const LIST_ZIPLIST: u8 = 10;
/// The RDB type of a packed one. Keyfast writes it.
pub(crate) const SET_INTSET: u8 = 11;
const SORTED_SET_ZIPLIST: u8 = 12;
const HASH_ZIPLIST: u8 = 13;
/// A list of ziplists.
const LIST_QUICKLIST: u8 = 14;
/// The RDB type of a packed one. Keyfast writes it.
pub(crate) const HASH_LISTPACK: u8 = 16;
/// The RDB type of a packed one. Keyfast writes it.
pub(crate) const SORTED_SET_LISTPACK: u8 = 17;
/// A list of listpacks and of single elements. Keyfast writes it.
pub(crate) const LIST_QUICKLIST_2: u8 = 18;
/// From Redis 7.2 on.
const SET_LISTPACK: u8 = 20;
/// Hashes of which some fields expire, as releases before Redis 7.4 wrote them: each field behind its moment…
const HASH_EXPIRING_BEFORE_7_4: u8 = 22;
/// … or packed.
const HASH_LISTPACK_EXPIRING_BEFORE_7_4: u8 = 23;
/// The RDB type of a hash of which some fields expire, field by field: the first moment, then each field
/// behind its distance from it. From Redis 7.4 on. Keyfast writes it.
pub(crate) const HASH_EXPIRING: u8 = 24;
/// The RDB type of a packed one: the first moment, then fields, values and moments. Keyfast writes it.
pub(crate) const HASH_LISTPACK_EXPIRING: u8 = 25;
/// Hashes whose fields are those of a template, from Redis 8.10 on. In payloads the template comes with the
/// hash, and the values are packed behind a number, ...
const HASH_TEMPLATE_LISTPACK: u8 = 29;
/// ... in files that number is the one of a template in front of all hashes.
const HASH_TEMPLATE_LISTPACK_OF_FILE: u8 = 30;
/// The same with values one behind the other; in a payload there is no number.
const HASH_TEMPLATE: u8 = 31;
const HASH_TEMPLATE_OF_FILE: u8 = 32;
/// In front of a template in a payload: it is a listpack, ...
const TEMPLATE_PACKED: u64 = 0;
/// ... or its fields follow their number.
const TEMPLATE_PLAIN: u64 = 1;
/// A hash of which some fields expire in the form of Valkey 9: each field before its moment. Valkey's number
/// for it is 22, which is another form in Redis. So it has a number here that no file contains.
pub(super) const HASH_EXPIRING_OF_VALKEY: u8 = 0x80 | HASH_OF_VALKEY;
/// The number that Valkey gives to that form.
pub(super) const HASH_OF_VALKEY: u8 = 22;

/// The RDB types that [`list`] reads.
pub(crate) const LIST_TYPES: &[u8] = &[LIST, LIST_ZIPLIST, LIST_QUICKLIST, LIST_QUICKLIST_2];
/// The RDB types that [`set`] reads.
pub(crate) const SET_TYPES: &[u8] = &[SET, SET_INTSET, SET_LISTPACK];
/// The RDB types that [`hash`] reads.
pub(crate) const HASH_TYPES: &[u8] = &[
    HASH,
    HASH_ZIPMAP,
    HASH_ZIPLIST,
    HASH_LISTPACK,
    HASH_EXPIRING_BEFORE_7_4,
    HASH_LISTPACK_EXPIRING_BEFORE_7_4,
    HASH_EXPIRING,
    HASH_LISTPACK_EXPIRING,
    HASH_TEMPLATE_LISTPACK,
    HASH_TEMPLATE_LISTPACK_OF_FILE,
    HASH_TEMPLATE,
    HASH_TEMPLATE_OF_FILE,
    HASH_EXPIRING_OF_VALKEY,
];
/// The latest moment at which a command lets a field expire, in milliseconds since 1970: Redis has 46 bits
/// for it, which last until the year 4199.
pub(crate) const FIELD_MOMENT_MS_MAX: u64 = (1 << 46) - 1;
/// The latest one that files and payloads of Redis may have. Redis: `EB_EXPIRE_TIME_MAX`. Valkey has more; a
/// field that expires later there does not expire here.
const STORED_MOMENT_MS_MAX: u64 = (1 << 48) - 1;
/// The RDB types that [`sorted_set`] reads.
pub(crate) const SORTED_SET_TYPES: &[u8] =
    &[SORTED_SET, SORTED_SET_TEXT, SORTED_SET_ZIPLIST, SORTED_SET_LISTPACK];

/// A node of a quicklist that is one element. Redis: `QUICKLIST_NODE_CONTAINER_PLAIN`.
pub(crate) const NODE_PLAIN: u64 = 1;
/// One that is a listpack. Redis: `QUICKLIST_NODE_CONTAINER_PACKED`.
pub(crate) const NODE_PACKED: u64 = 2;

/// In the place of the length of a score that is a text: it is no number, or infinite.
const SCORE_NAN: u8 = 253;
const SCORE_INFINITE: u8 = 254;
const SCORE_MINUS_INFINITE: u8 = 255;

const UNKNOWN_TYPE: DecodeError = DecodeError::Invalid("Unknown RDB encoding type");
const INVALID_NODE: DecodeError = DecodeError::Invalid("Quicklist integrity check failed.");
const ODD_COUNT: DecodeError = DecodeError::Invalid("a collection of pairs has half a pair");
const NOT_A_MOMENT: DecodeError = DecodeError::Invalid("the moment of a field is not a number");
const NO_TEMPLATE: DecodeError = DecodeError::Invalid("Invalid hash template ID");
const WRONG_TEMPLATE: DecodeError = DecodeError::Invalid("values do not match the template of a hash");
const LATE_MOMENT: DecodeError = DecodeError::Invalid("invalid expireAt time");
const MOMENT_ORDER: DecodeError = DecodeError::Invalid("fields are not in the order of their moments");
const INTEGER_ORDER: DecodeError = DecodeError::Invalid("Intset integrity check failed.");
const NOT_A_SCORE: DecodeError = DecodeError::Invalid("a score is not a number");

/// Decides about a mistake: see [`Source::forgive`].
type Forgive<'f> = dyn FnMut(DecodeError) -> Result<(), DecodeError> + 'f;

/// Gets an element of a list, or a member of a set.
pub(crate) type VisitElement<'v> = dyn FnMut(&[u8]) -> Result<(), DecodeError> + 'v;
/// Gets a field of a hash, its value, and when it expires.
pub(crate) type VisitField<'v> = dyn FnMut(&[u8], &[u8], Option<u64>) -> Result<(), DecodeError> + 'v;
/// Gets a member of a sorted set and its score, which is a number, perhaps infinite.
pub(crate) type VisitScored<'v> = dyn FnMut(&[u8], f64) -> Result<(), DecodeError> + 'v;

/// Reads a list of one of [`LIST_TYPES`], from its head to its tail.
///
/// # Errors
///
/// [`DecodeError`] if it cannot be read; what `visit` returned as an error.
pub(crate) fn list(
    rdb_type: u8,
    source: &mut dyn Source,
    visit: &mut VisitElement<'_>,
) -> Result<(), DecodeError> {
    let mut string = Vec::new();
    let mut count = 0;
    match rdb_type {
        LIST => count = read_elements(source, visit)?,
        LIST_ZIPLIST => {
            count = visit_elements(Ziplist::new(read(source, &mut string)?)?, &mut Err, visit)?;
        }
        // Redis skips nodes without elements, too.
        LIST_QUICKLIST => {
            for _ in 0..source.length()? {
                count += visit_elements(Ziplist::new(read(source, &mut string)?)?, &mut Err, visit)?;
            }
        }
        LIST_QUICKLIST_2 => {
            for _ in 0..source.length()? {
                count += read_node(source, &mut string, visit)?;
            }
        }
        _ => return Err(UNKNOWN_TYPE),
    }
    not_empty(count)
}

/// Reads a set of one of [`SET_TYPES`].
///
/// # Errors
///
/// [`DecodeError`] if it cannot be read; what `visit` returned as an error.
pub(crate) fn set(
    rdb_type: u8,
    source: &mut dyn Source,
    visit: &mut VisitElement<'_>,
) -> Result<(), DecodeError> {
    let mut string = Vec::new();
    not_empty(match rdb_type {
        SET => read_elements(source, visit)?,
        SET_INTSET => {
            let mut integers = Intset::new(read(source, &mut string)?)?;
            if integers.clone().any(|integer| integer.is_err()) {
                source.forgive(INTEGER_ORDER)?;
                integers = integers.unordered();
            }
            visit_elements(integers.map(|integer| integer.map(Element::Integer)), &mut Err, visit)?
        }
        SET_LISTPACK => {
            let members = Listpack::new(read(source, &mut string)?)?;
            visit_elements(members, &mut |why| source.forgive(why), visit)?
        }
        _ => return Err(UNKNOWN_TYPE),
    })
}

/// Reads a hash of one of [`HASH_TYPES`].
///
/// # Errors
///
/// [`DecodeError`] if it cannot be read; what `visit` returned as an error.
pub(crate) fn hash(
    rdb_type: u8,
    source: &mut dyn Source,
    visit: &mut VisitField<'_>,
) -> Result<(), DecodeError> {
    let mut string = Vec::new();
    let visit_elements = &mut |field: Element<'_>, value: Element<'_>| {
        let (mut field_digits, mut value_digits) = (itoa::Buffer::new(), itoa::Buffer::new());
        visit(field.text(&mut field_digits), value.text(&mut value_digits), None)
    };
    not_empty(match rdb_type {
        HASH => read_fields(source, visit)?,
        HASH_ZIPMAP => {
            let mut count = 0;
            for pair in Zipmap::new(read(source, &mut string)?)? {
                let (field, value) = pair?;
                visit(field, value, None)?;
                count += 1;
            }
            count
        }
        HASH_EXPIRING_BEFORE_7_4 | HASH_EXPIRING | HASH_EXPIRING_OF_VALKEY => {
            read_expiring_fields(rdb_type, source, visit)?
        }
        HASH_LISTPACK_EXPIRING_BEFORE_7_4 | HASH_LISTPACK_EXPIRING => {
            if rdb_type == HASH_LISTPACK_EXPIRING {
                // The moments are in the listpack, too.
                read_moment(source)?;
            }
            let fields = Listpack::new(read(source, &mut string)?)?;
            visit_triples(fields, &mut |why| source.forgive(why), visit)?
        }
        HASH_TEMPLATE_LISTPACK | HASH_TEMPLATE_LISTPACK_OF_FILE | HASH_TEMPLATE | HASH_TEMPLATE_OF_FILE => {
            read_by_template(rdb_type, source, visit)?
        }
        HASH_ZIPLIST => visit_pairs(Ziplist::new(read(source, &mut string)?)?, &mut Err, visit_elements)?,
        HASH_LISTPACK => {
            let fields = Listpack::new(read(source, &mut string)?)?;
            visit_pairs(fields, &mut |why| source.forgive(why), visit_elements)?
        }
        _ => return Err(UNKNOWN_TYPE),
    })
}

/// Reads a sorted set of one of [`SORTED_SET_TYPES`]. The order of its members depends on the type.
///
/// # Errors
///
/// [`DecodeError`] if it cannot be read; what `visit` returned as an error.
pub(crate) fn sorted_set(
    rdb_type: u8,
    source: &mut dyn Source,
    visit: &mut VisitScored<'_>,
) -> Result<(), DecodeError> {
    let mut string = Vec::new();
    // Redis looks at none of them before it needs one.
    let mut has_bad_score = false;
    let visit_elements = &mut |member: Element<'_>, score: Element<'_>| {
        let score = match score {
            Element::Integer(integer) => integer as f64,
            Element::Text(text) => parse_score(text).unwrap_or_else(|_| {
                has_bad_score = true;
                score_at_front(text)
            }),
        };
        visit(member.text(&mut itoa::Buffer::new()), score)
    };
    let count = match rdb_type {
        SORTED_SET => read_scored(source, read_score, visit)?,
        SORTED_SET_TEXT => read_scored(source, read_text_score, visit)?,
        SORTED_SET_ZIPLIST => {
            visit_pairs(Ziplist::new(read(source, &mut string)?)?, &mut Err, visit_elements)?
        }
        SORTED_SET_LISTPACK => {
            let members = Listpack::new(read(source, &mut string)?)?;
            visit_pairs(members, &mut |why| source.forgive(why), visit_elements)?
        }
        _ => return Err(UNKNOWN_TYPE),
    };
    if has_bad_score {
        source.forgive(NOT_A_SCORE)?;
    }
    not_empty(count)
}

/// Writes a score as [`SORTED_SET`] has it: eight bytes, little-endian.
pub(crate) fn write_score(output: &mut Vec<u8>, score: f64) {
    output.extend(score.to_le_bytes());
}

fn not_empty(count: u64) -> Result<(), DecodeError> {
    if count == 0 { Err(DecodeError::Empty) } else { Ok(()) }
}

/// Reads a string into memory that is used again.
fn read<'s>(source: &mut dyn Source, string: &'s mut Vec<u8>) -> Result<&'s [u8], DecodeError> {
    source.string(string)?;
    Ok(string)
}

/// Reads plain elements behind their number; returns that.
fn read_elements(source: &mut dyn Source, visit: &mut VisitElement<'_>) -> Result<u64, DecodeError> {
    let mut element = Vec::new();
    let count = source.length()?;
    for _ in 0..count {
        visit(read(source, &mut element)?)?;
    }
    Ok(count)
}

/// Reads plain fields behind their number; returns that.
fn read_fields(source: &mut dyn Source, visit: &mut VisitField<'_>) -> Result<u64, DecodeError> {
    let (mut field, mut value) = (Vec::new(), Vec::new());
    let count = source.length()?;
    for _ in 0..count {
        visit(read(source, &mut field)?, read(source, &mut value)?, None)?;
    }
    Ok(count)
}

/// Reads a hash whose fields are those of a template; returns their number.
fn read_by_template(
    rdb_type: u8,
    source: &mut dyn Source,
    visit: &mut VisitField<'_>,
) -> Result<u64, DecodeError> {
    let template = match rdb_type {
        HASH_TEMPLATE_LISTPACK | HASH_TEMPLATE => Some(read_template(source)?),
        _ => None,
    };
    let of_file = |source: &mut dyn Source, number: u64| source.template(number).ok_or(NO_TEMPLATE);
    let (mut string, mut digits) = (Vec::new(), itoa::Buffer::new());
    if matches!(rdb_type, HASH_TEMPLATE | HASH_TEMPLATE_OF_FILE) {
        let fields = match template {
            Some(template) => template.into(),
            None => {
                let number = source.length()?;
                of_file(source, number)?
            }
        };
        for field in fields.iter() {
            visit(field, read(source, &mut string)?, None)?;
        }
        return Ok(fields.len() as u64);
    }
    let mut values = Listpack::new(read(source, &mut string)?)?;
    let Some(Element::Integer(number)) = values.next().transpose()? else { return Err(WRONG_TEMPLATE) };
    let fields = match template {
        Some(template) => template.into(),
        None => of_file(source, u64::try_from(number).map_err(|_| NO_TEMPLATE)?)?,
    };
    for field in fields.iter() {
        let value = values.next().ok_or(WRONG_TEMPLATE)??;
        visit(field, value.text(&mut digits), None)?;
    }
    if values.next().is_some() { Err(WRONG_TEMPLATE) } else { Ok(fields.len() as u64) }
}

/// Reads the template that a payload has in front of its values.
fn read_template(source: &mut dyn Source) -> Result<Template, DecodeError> {
    match source.length()? {
        TEMPLATE_PLAIN => read_names(source),
        TEMPLATE_PACKED => {
            let (mut string, mut names) = (Vec::new(), Template::new());
            visit_elements(Listpack::new(read(source, &mut string)?)?, &mut Err, &mut |name| {
                names.push(name.to_vec());
                Ok(())
            })?;
            if names.is_empty() { Err(WRONG_TEMPLATE) } else { Ok(names) }
        }
        _ => Err(WRONG_TEMPLATE),
    }
}

/// Reads plain fields with their moments, behind their number; returns that.
fn read_expiring_fields(
    rdb_type: u8,
    source: &mut dyn Source,
    visit: &mut VisitField<'_>,
) -> Result<u64, DecodeError> {
    let (mut field, mut value) = (Vec::new(), Vec::new());
    let first_ms = if rdb_type == HASH_EXPIRING { read_moment(source)? } else { 1 };
    let count = source.length()?;
    for _ in 0..count {
        if rdb_type == HASH_EXPIRING_OF_VALKEY {
            let (field, value) = (read(source, &mut field)?, read(source, &mut value)?);
            // -1 is none, which is the greatest number here.
            visit(field, value, moment(read_moment(source)?))?;
            continue;
        }
        let at_ms = match source.length()? {
            0 => None,
            distance => Some(first_ms.saturating_add(distance - 1)),
        };
        if at_ms.is_some_and(|at_ms| at_ms > STORED_MOMENT_MS_MAX) {
            source.forgive(LATE_MOMENT)?;
        }
        visit(read(source, &mut field)?, read(source, &mut value)?, at_ms.and_then(moment))?;
    }
    Ok(count)
}

fn read_moment(source: &mut dyn Source) -> Result<u64, DecodeError> {
    let mut bytes = [0; 8];
    source.bytes(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

/// A moment that is not too far in the future to be one.
fn moment(at_ms: u64) -> Option<u64> {
    // 0 is the moment at which all fields are there.
    (at_ms <= STORED_MOMENT_MS_MAX).then_some(at_ms.max(1))
}

/// Visits packed fields, values and moments, of which 0 is none; returns how many fields there are. Those
/// that expire come first, in the order of their moments.
fn visit_triples<'a>(
    elements: impl Iterator<Item = Result<Element<'a>, DecodeError>>,
    forgive: &mut Forgive<'_>,
    visit: &mut VisitField<'_>,
) -> Result<u64, DecodeError> {
    let (mut count, mut last_ms) = (0, Some(0));
    visit_tuples(elements, forgive, |[field, value, at_ms], forgive| {
        let at_ms = match at_ms {
            Element::Integer(0) => None,
            Element::Integer(at_ms @ 1..) => Some(at_ms as u64),
            _ => {
                forgive(NOT_A_MOMENT)?;
                None
            }
        };
        if at_ms.is_some_and(|at_ms| at_ms > STORED_MOMENT_MS_MAX) {
            forgive(LATE_MOMENT)?;
        }
        if at_ms.is_some() && (last_ms.is_none() || at_ms < last_ms) {
            forgive(MOMENT_ORDER)?;
        }
        last_ms = at_ms;
        let (mut field_digits, mut value_digits) = (itoa::Buffer::new(), itoa::Buffer::new());
        count += 1;
        visit(field.text(&mut field_digits), value.text(&mut value_digits), at_ms.and_then(moment))
    })?;
    Ok(count)
}

/// Visits packed elements, so many at a time. What is left over, or behind a mistake that is forgiven, is not
/// visited.
fn visit_tuples<'a, const N: usize>(
    mut elements: impl Iterator<Item = Result<Element<'a>, DecodeError>>,
    forgive: &mut Forgive<'_>,
    mut visit: impl FnMut([Element<'a>; N], &mut Forgive<'_>) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    loop {
        let mut tuple = [Element::Integer(0); N];
        for (place, part) in tuple.iter_mut().enumerate() {
            *part = match elements.next() {
                Some(Ok(element)) => element,
                Some(Err(why)) => return forgive(why),
                None if place == 0 => return Ok(()),
                None => return forgive(ODD_COUNT),
            };
        }
        visit(tuple, forgive)?;
    }
}

/// Reads plain members and their scores behind their number; returns that.
fn read_scored(
    source: &mut dyn Source,
    read_score: fn(&mut dyn Source) -> Result<f64, DecodeError>,
    visit: &mut VisitScored<'_>,
) -> Result<u64, DecodeError> {
    let mut member = Vec::new();
    let count = source.length()?;
    for _ in 0..count {
        visit(read(source, &mut member)?, read_score(source)?)?;
    }
    Ok(count)
}

/// Reads a node of a quicklist; returns how many elements it has.
fn read_node(
    source: &mut dyn Source,
    string: &mut Vec<u8>,
    visit: &mut VisitElement<'_>,
) -> Result<u64, DecodeError> {
    match source.length()? {
        NODE_PLAIN => {
            let element = read(source, string)?;
            // Only a large element has a node of its own. Redis refuses an empty one, too.
            if element.is_empty() {
                return Err(INVALID_NODE);
            }
            visit(element)?;
            Ok(1)
        }
        NODE_PACKED => {
            let elements = Listpack::new(read(source, string)?)?;
            visit_elements(elements, &mut |why| source.forgive(why), visit)
        }
        _ => Err(INVALID_NODE),
    }
}

/// Visits packed elements; returns how many there are.
fn visit_elements<'a>(
    elements: impl Iterator<Item = Result<Element<'a>, DecodeError>>,
    forgive: &mut Forgive<'_>,
    visit: &mut VisitElement<'_>,
) -> Result<u64, DecodeError> {
    let mut count = 0;
    visit_tuples(elements, forgive, |[element], _| {
        count += 1;
        visit(element.text(&mut itoa::Buffer::new()))
    })?;
    Ok(count)
}

/// Visits packed elements in pairs; returns how many pairs there are.
fn visit_pairs<'a>(
    elements: impl Iterator<Item = Result<Element<'a>, DecodeError>>,
    forgive: &mut Forgive<'_>,
    visit: &mut dyn FnMut(Element<'a>, Element<'a>) -> Result<(), DecodeError>,
) -> Result<u64, DecodeError> {
    let mut count = 0;
    visit_tuples(elements, forgive, |[first, second], _| {
        count += 1;
        visit(first, second)
    })?;
    Ok(count)
}

fn read_score(source: &mut dyn Source) -> Result<f64, DecodeError> {
    let mut bytes = [0; 8];
    source.bytes(&mut bytes)?;
    number(f64::from_le_bytes(bytes))
}

/// Reads a score that is a text behind its length of one byte.
fn read_text_score(source: &mut dyn Source) -> Result<f64, DecodeError> {
    let mut length = [0];
    source.bytes(&mut length)?;
    match length {
        [SCORE_NAN] => Err(NOT_A_SCORE),
        [SCORE_INFINITE] => Ok(f64::INFINITY),
        [SCORE_MINUS_INFINITE] => Ok(f64::NEG_INFINITY),
        [length] => {
            let mut text = [0; SCORE_NAN as usize];
            let text = &mut text[..usize::from(length)];
            source.bytes(text)?;
            parse_score(text)
        }
    }
}

/// The number at the front of a score that is none, or 0, as the `strtod` of C returns it.
fn score_at_front(text: &[u8]) -> f64 {
    /// Longer numbers are not printed.
    const SCORE_BYTES_MAX: usize = 128;
    let lengths = (1..=text.len().min(SCORE_BYTES_MAX)).rev();
    lengths.filter_map(|length| parse_score(&text[..length]).ok()).next().unwrap_or(0.0)
}

/// Reads a score that Redis has printed.
fn parse_score(text: &[u8]) -> Result<f64, DecodeError> {
    let score = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number(score.ok_or(NOT_A_SCORE)?)
}

fn number(score: f64) -> Result<f64, DecodeError> {
    if score.is_nan() { Err(NOT_A_SCORE) } else { Ok(score) }
}

#[cfg(test)]
mod tests;
