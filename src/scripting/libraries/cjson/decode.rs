//! `cjson.decode`.
//!
//! Open arrays and objects are in a list, so that nested input does not use the thread's stack. A text is
//! read as if a zero byte followed it; the first zero byte ends it.

use mlua::{Error, LuaString, Result, Table, Value};
use rustc_apfloat::ieee::Double;
use rustc_apfloat::{Float, Round};

use super::{DEPTH_MAX, Options, array_mark};
use crate::scripting::libraries::raise::Call;

/// Parses a text.
pub(super) fn decode(call: &Call<'_>, options: Options) -> Result<Value> {
    if call.count() != 1 {
        return Err(call.bad_argument(1, b"expected 1 argument"));
    }
    let text = call.string(1)?;
    let text = text.as_bytes();
    if text.len() >= 2 && (text[0] == 0 || text[1] == 0) {
        return Err(call.error(b"JSON parser does not support UTF-16 or UTF-32"));
    }
    let reader = Reader { text: &text, at: 0, takes_invalid_numbers: options.decode_invalid_numbers };
    let depth_max = options.decode_max_depth.min(DEPTH_MAX).unsigned_abs() as usize;
    let mark = options.decode_array_with_array_mt.then(|| array_mark(call.lua)).transpose()?;
    let mut decoder = Decoder { call, reader, depth_max, mark, open: Vec::new() };
    let value = decoder.value()?;
    let (end, start) = decoder.token()?;
    if end == Token::End { Ok(value) } else { Err(decoder.unexpected("the end", end, start)) }
}

#[derive(Debug, PartialEq)]
enum Token {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    String(Vec<u8>),
    Number(f64),
    Boolean(bool),
    Null,
    Colon,
    Comma,
    End,
    /// A mistake, and its name.
    Error(&'static str),
}

impl Token {
    /// The name of the token in errors.
    fn name(&self) -> &'static str {
        match self {
            Token::ObjectBegin => "T_OBJ_BEGIN",
            Token::ObjectEnd => "T_OBJ_END",
            Token::ArrayBegin => "T_ARR_BEGIN",
            Token::ArrayEnd => "T_ARR_END",
            Token::String(_) => "T_STRING",
            Token::Number(_) => "T_NUMBER",
            Token::Boolean(_) => "T_BOOLEAN",
            Token::Null => "T_NULL",
            Token::Colon => "T_COLON",
            Token::Comma => "T_COMMA",
            Token::End => "T_END",
            Token::Error(what) => what,
        }
    }
}

/// An array or an object that is still open.
enum Open {
    /// An array, and the index of its next element.
    Array(Table, usize),
    /// An object, and the key of the next member.
    Object(Table, LuaString),
}

/// How the text continues.
enum Next {
    Value(Token, usize),
    /// The value is complete, and nothing is open within it.
    Finished(Value),
}

struct Decoder<'a> {
    call: &'a Call<'a>,
    reader: Reader<'a>,
    depth_max: usize,
    /// The metatable of arrays, if they have one.
    mark: Option<Table>,
    open: Vec<Open>,
}

impl Decoder<'_> {
    /// The next token, and its offset.
    fn token(&mut self) -> Result<(Token, usize)> {
        let before = self.reader.at;
        let token = self.reader.token();
        self.call.work_on(self.reader.at - before)?;
        Ok(token)
    }

    /// Reads one value with everything in it.
    fn value(&mut self) -> Result<Value> {
        let (token, start) = self.token()?;
        let mut next = Next::Value(token, start);
        loop {
            next = match next {
                Next::Value(token, start) => self.read_head(token, start)?,
                Next::Finished(value) => match self.open.pop() {
                    None => return Ok(value),
                    Some(open) => self.add(open, value)?,
                },
            };
        }
    }

    /// Reads a value that begins with this token.
    fn read_head(&mut self, token: Token, start: usize) -> Result<Next> {
        Ok(Next::Finished(match token {
            Token::String(string) => Value::String(self.call.lua.create_string(string)?),
            Token::Number(number) => Value::Number(number),
            Token::Boolean(value) => Value::Boolean(value),
            Token::Null => Value::NULL,
            Token::ArrayBegin => {
                let table = self.descend()?;
                if let Some(mark) = &self.mark {
                    table.set_metatable(Some(mark.clone()))?;
                }
                let (token, start) = self.token()?;
                if token != Token::ArrayEnd {
                    self.open.push(Open::Array(table, 1));
                    return Ok(Next::Value(token, start));
                }
                Value::Table(table)
            }
            Token::ObjectBegin => {
                let table = self.descend()?;
                let (token, start) = self.token()?;
                if token != Token::ObjectEnd {
                    return self.member(table, token, start);
                }
                Value::Table(table)
            }
            other => return Err(self.unexpected("value", other, start)),
        }))
    }

    /// Makes the table of an array or an object, unless it is nested too deep.
    fn descend(&mut self) -> Result<Table> {
        let depth = self.open.len() + 1;
        if depth > self.depth_max {
            let at = self.reader.at;
            let text = format!("Found too many nested data structures ({depth}) at character {at}");
            return Err(self.call.error(text.as_bytes()));
        }
        self.call.lua.create_table()
    }

    /// Reads the key of an object's member.
    fn member(&mut self, table: Table, key: Token, start: usize) -> Result<Next> {
        let Token::String(key) = key else { return Err(self.unexpected("object key string", key, start)) };
        let key = self.call.lua.create_string(key)?;
        let (colon, start) = self.token()?;
        if colon != Token::Colon {
            return Err(self.unexpected("colon", colon, start));
        }
        self.open.push(Open::Object(table, key));
        let (token, start) = self.token()?;
        Ok(Next::Value(token, start))
    }

    /// Adds a value to the open array or object.
    fn add(&mut self, open: Open, value: Value) -> Result<Next> {
        match open {
            Open::Array(table, index) => {
                table.raw_set(index, value)?;
                match self.token()? {
                    (Token::ArrayEnd, _) => Ok(Next::Finished(Value::Table(table))),
                    (Token::Comma, _) => {
                        self.open.push(Open::Array(table, index + 1));
                        let (token, start) = self.token()?;
                        Ok(Next::Value(token, start))
                    }
                    (other, start) => Err(self.unexpected("comma or array end", other, start)),
                }
            }
            Open::Object(table, key) => {
                table.raw_set(key, value)?;
                match self.token()? {
                    (Token::ObjectEnd, _) => Ok(Next::Finished(Value::Table(table))),
                    (Token::Comma, _) => {
                        let (token, start) = self.token()?;
                        self.member(table, token, start)
                    }
                    (other, start) => Err(self.unexpected("comma or object end", other, start)),
                }
            }
        }
    }

    /// The error of a token that must not be here. `start` is its offset, from 0.
    #[cold]
    fn unexpected(&self, expected: &str, found: Token, start: usize) -> Error {
        let (found, character) = (found.name(), start + 1);
        let text = format!("Expected {expected} but found {found} at character {character}");
        self.call.error(text.as_bytes())
    }
}

/// Splits a text into tokens.
struct Reader<'a> {
    text: &'a [u8],
    at: usize,
    takes_invalid_numbers: bool,
}

impl Reader<'_> {
    /// The byte at this distance; 0 behind the end.
    fn ahead(&self, distance: usize) -> u8 {
        self.text.get(self.at + distance).copied().unwrap_or(0)
    }

    /// The next token, and its offset. For an error within a string, the offset of the error.
    fn token(&mut self) -> (Token, usize) {
        while matches!(self.ahead(0), b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
        }
        let start = self.at;
        let single = match self.ahead(0) {
            0 => return (Token::End, start),
            b'{' => Token::ObjectBegin,
            b'}' => Token::ObjectEnd,
            b'[' => Token::ArrayBegin,
            b']' => Token::ArrayEnd,
            b',' => Token::Comma,
            b':' => Token::Colon,
            b'"' => {
                let string = self.string();
                let start = if matches!(string, Token::Error(_)) { self.at } else { start };
                return (string, start);
            }
            b'-' | b'0'..=b'9' if !self.takes_invalid_numbers && self.is_invalid_number() => {
                return (Token::Error("invalid number"), start);
            }
            b'-' | b'0'..=b'9' => return (self.number(), start),
            b'f' | b'i' | b'I' | b'n' | b'N' | b't' | b'+' => return (self.word(), start),
            _ => return (Token::Error("invalid token"), start),
        };
        self.at += 1;
        (single, start)
    }

    fn word(&mut self) -> Token {
        let words =
            [(&b"true"[..], Token::Boolean(true)), (b"false", Token::Boolean(false)), (b"null", Token::Null)];
        for (word, token) in words {
            if self.text[self.at..].starts_with(word) {
                self.at += word.len();
                return token;
            }
        }
        // Checked here, so that other words are called invalid tokens.
        if self.takes_invalid_numbers && self.is_invalid_number() {
            return self.number();
        }
        Token::Error("invalid token")
    }

    fn number(&mut self) -> Token {
        match read_number(&self.text[self.at..]) {
            Some((number, length)) => {
                self.at += length;
                Token::Number(number)
            }
            None => Token::Error("invalid number"),
        }
    }

    /// Whether the text begins a number that `strtod` accepts and JSON does not have.
    fn is_invalid_number(&self) -> bool {
        let after_sign = usize::from(self.ahead(0) == b'-');
        match self.ahead(after_sign) {
            b'+' if after_sign == 0 => true,
            b'0' => matches!(self.ahead(after_sign + 1), b'x' | b'X' | b'0'..=b'9'),
            0..=b'9' => false,
            _ => {
                let word = [1, 2, 3].map(|next| self.ahead(after_sign + next - 1).to_ascii_lowercase());
                word == *b"inf" || word == *b"nan"
            }
        }
    }

    fn string(&mut self) -> Token {
        let mut string = Vec::new();
        self.at += 1;
        loop {
            match self.ahead(0) {
                b'"' => break,
                0 => return Token::Error("unexpected end of string"),
                b'\\' => {
                    let byte = match self.ahead(1) {
                        b'u' => match self.code_point() {
                            Some(code_point) => {
                                write_utf8(&mut string, code_point);
                                continue;
                            }
                            None => return Token::Error("invalid unicode escape code"),
                        },
                        byte @ (b'"' | b'\\' | b'/') => byte,
                        b'b' => b'\x08',
                        b't' => b'\t',
                        b'n' => b'\n',
                        b'f' => b'\x0c',
                        b'r' => b'\r',
                        _ => return Token::Error("invalid escape code"),
                    };
                    string.push(byte);
                    self.at += 2;
                }
                byte => {
                    string.push(byte);
                    self.at += 1;
                }
            }
        }
        self.at += 1;
        Token::String(string)
    }

    /// Reads `\uXXXX`, or the two of them that make a code point above 16 bits.
    fn code_point(&mut self) -> Option<u32> {
        let high = self.code_unit(2)?;
        if high & 0xf800 != 0xd800 {
            self.at += 6;
            return Some(high);
        }
        if high & 0x400 != 0 || self.ahead(6) != b'\\' || self.ahead(7) != b'u' {
            return None;
        }
        let low = self.code_unit(8).filter(|low| low & 0xfc00 == 0xdc00)?;
        self.at += 12;
        Some(((high & 0x3ff) << 10 | low & 0x3ff) + 0x10000)
    }

    /// Four hexadecimal digits.
    fn code_unit(&self, distance: usize) -> Option<u32> {
        (0..4).try_fold(0, |unit, next| {
            let digit = char::from(self.ahead(distance + next)).to_digit(16)?;
            Some(unit << 4 | digit)
        })
    }
}

/// Writes a code point, which is no surrogate.
fn write_utf8(string: &mut Vec<u8>, code_point: u32) {
    if let Some(character) = char::from_u32(code_point) {
        string.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    }
}

/// Reads the number at the beginning of a text as `strtod` does, and returns it with its length in bytes.
fn read_number(text: &[u8]) -> Option<(f64, usize)> {
    let sign = usize::from(matches!(text.first(), Some(b'+' | b'-')));
    let (magnitude, length) = read_magnitude(&text[sign..])?;
    let number = if text[0] == b'-' { -magnitude } else { magnitude };
    Some((number, sign + length))
}

fn read_magnitude(text: &[u8]) -> Option<(f64, usize)> {
    let begins = |word: &[u8]| text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    if begins(b"infinity") {
        return Some((f64::INFINITY, 8));
    }
    if begins(b"inf") {
        return Some((f64::INFINITY, 3));
    }
    if begins(b"nan") {
        return Some((f64::NAN, 3 + nan_tail(&text[3..])));
    }
    if begins(b"0x")
        && let Some(length) = digits_length(&text[2..], u8::is_ascii_hexdigit, b'p')
    {
        let hexadecimal = str::from_utf8(&text[..2 + length]).ok()?;
        return Some((read_hexadecimal(hexadecimal)?, 2 + length));
    }
    let length = digits_length(text, u8::is_ascii_digit, b'e')?;
    let decimal = str::from_utf8(&text[..length]).ok()?;
    Some((decimal.parse().ok()?, length))
}

/// The length of digits, with an optional point and exponent; `None` without a digit.
fn digits_length(text: &[u8], is_digit: fn(&u8) -> bool, exponent: u8) -> Option<usize> {
    let run = |from: usize, is_digit: fn(&u8) -> bool| {
        text[from..].iter().take_while(|byte| is_digit(byte)).count()
    };
    let whole = run(0, is_digit);
    let mut length = whole;
    if text.get(whole) == Some(&b'.') {
        let fraction = run(whole + 1, is_digit);
        if whole + fraction > 0 {
            length = whole + 1 + fraction;
        }
    }
    if length == 0 {
        return None;
    }
    if text.get(length).is_some_and(|byte| byte.to_ascii_lowercase() == exponent) {
        let sign = usize::from(matches!(text.get(length + 1), Some(b'+' | b'-')));
        let digits_from = length + 1 + sign;
        let digits = if digits_from <= text.len() { run(digits_from, u8::is_ascii_digit) } else { 0 };
        if digits > 0 {
            length = digits_from + digits;
        }
    }
    Some(length)
}

/// The length of the parentheses that may follow `nan`.
fn nan_tail(text: &[u8]) -> usize {
    let is_inside = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'_';
    let Some(rest) = text.strip_prefix(b"(") else { return 0 };
    let inside = rest.iter().take_while(is_inside).count();
    if rest.get(inside) == Some(&b')') { inside + 2 } else { 0 }
}

/// Reads a number in base 16, with its prefix. An exponent is in base 2.
fn read_hexadecimal(text: &str) -> Option<f64> {
    let has_exponent = text.contains(['p', 'P']);
    let with_exponent = if has_exponent { text.to_owned() } else { format!("{text}p0") };
    let number = Double::from_str_r(&with_exponent, Round::NearestTiesToEven).ok()?.value;
    Some(f64::from_bits(number.to_bits() as u64))
}
