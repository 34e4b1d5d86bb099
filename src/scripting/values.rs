//! Numbers as arguments, and values as replies.

use mlua::{Table, Value};

use super::host::Host;
use crate::resp::number::write_general;
use crate::resp::{OwnedRequest, Reply, Sent};

/// How deep a value may be nested that becomes a reply. The text is that of Redis, where the stack of Lua is
/// the limit.
const DEPTH_MAX: usize = 1000;
const TOO_DEEP: &[u8] = b"ERR reached lua stack limit";

/// Adds a number to a request, as its argument: as `%.17g` prints it. Answers whether there was room.
pub(super) fn push_number(request: &mut OwnedRequest, number: f64) -> bool {
    /// As far as `%.17g` prints an integer without an exponent.
    const PLAIN_MAX: f64 = 1e17;
    if number.trunc() == number && number.abs() < PLAIN_MAX {
        return request.push(itoa::Buffer::new().format(number as i64).as_bytes());
    }
    let mut text = Vec::new();
    write_general(&mut text, number, 17);
    request.push(&text)
}

/// Answers a value. `speaks_resp3` is what the script has said of itself, not what the client speaks; `host`
/// counts the errors that are the script's own.
pub(super) fn answer(value: &Value, speaks_resp3: bool, host: &dyn Host, reply: Reply<'_>) -> Sent {
    Answer { speaks_resp3, host }.value(value, reply, DEPTH_MAX)
}

#[derive(Clone, Copy)]
struct Answer<'a> {
    speaks_resp3: bool,
    host: &'a dyn Host,
}

impl Answer<'_> {
    fn value(self, value: &Value, reply: Reply<'_>, depth_left: usize) -> Sent {
        match value {
            Value::String(text) => reply.bulk(&text.as_bytes()),
            Value::Integer(integer) => reply.integer(*integer),
            Value::Number(number) => reply.integer(truncated(*number)),
            Value::Boolean(truth) if self.speaks_resp3 => reply.boolean(*truth),
            Value::Boolean(true) => reply.integer(1),
            Value::Table(table) => match depth_left.checked_sub(1) {
                Some(depth_left) => self.table(table, reply, depth_left),
                None => reply.error(TOO_DEEP),
            },
            _ => reply.nil(),
        }
    }

    fn table(self, table: &Table, reply: Reply<'_>, depth_left: usize) -> Sent {
        let field = |name: &str| table.raw_get::<Value>(name).unwrap_or(Value::Nil);
        if let Value::String(text) = field("err") {
            if !matches!(field("ignore_error_stats_update"), Value::Boolean(true)) {
                self.host.count_error(&text.as_bytes());
            }
            return reply.error(&text.as_bytes());
        }
        if let Value::String(text) = field("ok") {
            return reply.status(&text.as_bytes());
        }
        match field("double") {
            Value::Number(number) => return reply.double(number),
            Value::Integer(integer) => return reply.double(integer as f64),
            _ => {}
        }
        if let Value::Table(map) = field("map") {
            return self.map(&map, reply, depth_left);
        }
        if let Value::Table(set) = field("set") {
            let members: Vec<Value> = keys(&set).take(MEMBERS_MAX).collect();
            return reply.set_of(members.iter(), |member, reply| self.value(member, reply, depth_left));
        }
        if let Value::String(digits) = field("big_number") {
            let digits: Vec<u8> = digits
                .as_bytes()
                .iter()
                .map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte })
                .collect();
            return reply.big_number(&digits);
        }
        if let Value::Table(verbatim) = field("verbatim_string") {
            let part = |name: &str| verbatim.raw_get::<Value>(name).unwrap_or(Value::Nil);
            if let (Value::String(format), Value::String(text)) = (part("format"), part("string")) {
                let mut letters = [b' '; 3];
                letters.iter_mut().zip(format.as_bytes().iter()).for_each(|(letter, byte)| *letter = *byte);
                return reply.verbatim_of(letters, &text.as_bytes());
            }
        }
        self.array(table, reply, depth_left)
    }

    /// What has an index, from 1 up to where one is missing.
    fn array(self, table: &Table, reply: Reply<'_>, depth_left: usize) -> Sent {
        let item = |index: usize| table.raw_get::<Value>(index).unwrap_or(Value::Nil);
        let items = (1..).take_while(|index| !item(*index).is_nil()).count();
        reply.array_of(1..items + 1, |index, reply| self.value(&item(index), reply, depth_left))
    }

    fn map(self, map: &Table, reply: Reply<'_>, depth_left: usize) -> Sent {
        let keys: Vec<Value> = keys(map).take(MEMBERS_MAX).collect();
        reply.map_of(keys.len(), 0..2 * keys.len(), |at, reply| {
            let key = &keys[at / 2];
            match at % 2 {
                0 => self.value(key, reply, depth_left),
                _ => self.value(&map.raw_get(key).unwrap_or(Value::Nil), reply, depth_left),
            }
        })
    }
}

/// How many members of a set or a map are answered: mlua holds on to no more values at a time.
const MEMBERS_MAX: usize = 7000;

fn keys(table: &Table) -> impl Iterator<Item = Value> {
    table.pairs::<Value, Value>().filter_map(|pair| pair.ok().map(|(key, _)| key))
}

/// What a conversion to a 64-bit integer makes of a number on x86, where Redis is mostly run.
fn truncated(number: f64) -> i64 {
    const END: f64 = 9_223_372_036_854_775_808.0;
    if (-END..END).contains(&number) { number as i64 } else { i64::MIN }
}
