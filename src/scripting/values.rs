//! Converts Lua numbers to arguments, and Lua values to replies.

use mlua::{Function, Result, Table, Value};

use super::host::Host;
use super::libraries;
use super::running::{Failure, Killed, Tick};
use crate::resp::{Nested, Reply, Sent};

/// The deepest nesting of a value that becomes a reply. The error's text is that of Redis, where the Lua
/// stack is the limit.
const DEPTH_MAX: usize = 1000;
const TOO_DEEP: &[u8] = b"ERR reached lua stack limit";

/// The most bytes of a script's reply. One table may contain another a million times.
const REPLY_BYTES_MAX: usize = 512 << 20;
const TOO_LARGE: &[u8] = b"ERR the reply of the script is larger than 512 MiB";
/// The number of values between two checks whether the script was killed.
const VALUES_PER_TICK: usize = 4096;

/// Converts a value to a reply.
pub(super) struct Answer<'a> {
    /// Whether the script has called `redis.setresp(3)`. This is independent of the client's protocol.
    pub(super) speaks_resp3: bool,
    /// Notes the errors in the reply.
    pub(super) host: &'a dyn Host,
    /// Checks whether the script was killed.
    pub(super) tick: &'a Tick,
    /// Lua's own `next`.
    pub(super) next: &'a Function,
}

/// A table that is partly written.
enum Open {
    Array {
        items: Table,
        /// The index of the next element.
        next: usize,
        last: usize,
    },
    Pairs {
        table: Table,
        /// The key that was written last.
        key: Value,
        /// The value of that key, if it comes next.
        value: Option<Value>,
        /// Whether the values are written, too.
        is_map: bool,
    },
}

impl Answer<'_> {
    /// Writes a value with everything in it. Open tables are in a list, so that nesting uses no stack.
    ///
    /// # Errors
    ///
    /// If the script was killed, or the reply becomes too large. The part that was written must be dropped.
    pub(super) fn write(self, value: Value, reply: Reply<'_>) -> std::result::Result<Sent, Failure> {
        if !value.is_table() {
            return Ok(self.scalar(&value, reply));
        }
        let failed = |text: &[u8]| Failure { text: text.to_vec(), is_counted: false };
        reply.nested(|pieces| {
            let (begin, mut written) = (pieces.written(), 0_usize);
            let mut open = Vec::new();
            let mut value = Some(value);
            loop {
                match value {
                    Some(Value::Table(_)) if open.len() == DEPTH_MAX => {
                        self.host.note_error(TOO_DEEP, false);
                        let _ = pieces.part().error(TOO_DEEP);
                    }
                    Some(Value::Table(table)) => open.extend(self.write_head(table, pieces)),
                    Some(scalar) => {
                        let _ = self.scalar(&scalar, pieces.part());
                    }
                    None => drop(open.pop()),
                }
                written += 1;
                if written % VALUES_PER_TICK == 0 {
                    (self.tick)().map_err(|Killed(why)| failed(why.as_bytes()))?;
                }
                if pieces.written() - begin > REPLY_BYTES_MAX {
                    return Err(failed(TOO_LARGE));
                }
                let Some(last) = open.last_mut() else { return Ok(()) };
                value = last
                    .next(self.next)
                    .map_err(|error| failed(&[b"ERR ", libraries::text_of(&error).as_bytes()].concat()))?;
            }
        })
    }

    /// Writes a value that is not a table.
    fn scalar(&self, value: &Value, reply: Reply<'_>) -> Sent {
        match value {
            Value::String(text) => reply.bulk(&text.as_bytes()),
            Value::Integer(integer) => reply.integer(*integer),
            Value::Number(number) => reply.integer(truncated(*number)),
            Value::Boolean(truth) if self.speaks_resp3 => reply.boolean(*truth),
            Value::Boolean(true) => reply.integer(1),
            _ => reply.nil(),
        }
    }

    /// Writes a table that stands for a single value, or the header of an aggregate.
    fn write_head(&self, table: Table, pieces: &mut Nested<'_>) -> Option<Open> {
        let field = |name: &str| table.raw_get::<Value>(name).unwrap_or(Value::Nil);
        if let Value::String(text) = field("err") {
            let is_counted = matches!(field("ignore_error_stats_update"), Value::Boolean(true));
            self.host.note_error(&text.as_bytes(), is_counted);
            let _ = pieces.part().error(&text.as_bytes());
            return None;
        }
        if let Value::String(text) = field("ok") {
            let _ = pieces.part().status(&text.as_bytes());
            return None;
        }
        let double = match field("double") {
            Value::Number(number) => Some(number),
            Value::Integer(integer) => Some(integer as f64),
            _ => None,
        };
        if let Some(number) = double {
            let _ = pieces.part().double(number);
            return None;
        }
        for (name, is_map) in [("map", true), ("set", false)] {
            if let Value::Table(table) = field(name) {
                let pairs = table.pairs::<Value, Value>().count();
                if is_map {
                    pieces.map(pairs)
                } else {
                    pieces.set(pairs)
                }
                return Some(Open::Pairs { table, key: Value::Nil, value: None, is_map });
            }
        }
        if let Value::String(digits) = field("big_number") {
            let digits: Vec<u8> = digits.as_bytes().iter().map(|byte| on_one_line(*byte)).collect();
            let _ = pieces.part().big_number(&digits);
            return None;
        }
        if let Value::Table(verbatim) = field("verbatim_string") {
            let part = |name: &str| verbatim.raw_get::<Value>(name).unwrap_or(Value::Nil);
            if let (Value::String(format), Value::String(text)) = (part("format"), part("string")) {
                let mut letters = [b' '; 3];
                letters.iter_mut().zip(format.as_bytes().iter()).for_each(|(letter, byte)| *letter = *byte);
                let _ = pieces.part().verbatim_of(letters, &text.as_bytes());
                return None;
            }
        }
        // The elements are those from index 1 up to the first that is missing.
        let is_there = |index: &usize| !matches!(table.raw_get(*index), Ok(Value::Nil) | Err(_));
        let last = (1..).take_while(is_there).count();
        pieces.array(last);
        Some(Open::Array { items: table, next: 1, last })
    }
}

impl Open {
    /// The next value to write; `None` at the end of the table.
    fn next(&mut self, next_pair: &Function) -> Result<Option<Value>> {
        match self {
            Open::Array { items, next, last } => {
                let index = *next;
                *next += 1;
                (index <= *last).then(|| items.raw_get(index)).transpose()
            }
            Open::Pairs { value, .. } if value.is_some() => Ok(value.take()),
            Open::Pairs { table, key, value, is_map } => {
                let (next, its_value): (Value, Value) = next_pair.call((&*table, &*key))?;
                key.clone_from(&next);
                *value = Some(its_value).filter(|_| *is_map && !next.is_nil());
                Ok(Some(next).filter(|next| !next.is_nil()))
            }
        }
    }
}

fn on_one_line(byte: u8) -> u8 {
    if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }
}

/// The 64-bit integer that x86 makes of a number. Redis mostly runs on x86.
fn truncated(number: f64) -> i64 {
    const END: f64 = 9_223_372_036_854_775_808.0;
    if (-END..END).contains(&number) { number as i64 } else { i64::MIN }
}
