//! What is in a reply.

use crate::client::{Client, Reply};

/// Holds a conversation: a line, and the reply to it, in turn.
#[track_caller]
pub fn talk(client: &mut Client, conversation: &[(&str, &str)]) {
    for (line, reply) in conversation {
        assert_eq!(client.line(line).reply().to_string(), *reply, "{line}");
    }
}

/// A field of a line of CLIENT LIST.
pub fn field_of(line: &str, name: &str) -> String {
    let found = line.split_whitespace().find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    found.unwrap_or_else(|| panic!("no field {name} in {line}")).to_owned()
}

/// What a map says of something; `a.b` asks for the map at `a`.
#[track_caller]
pub fn field(map: &Reply, path: &str) -> Reply {
    path.split('.').fold(map.clone(), |map, name| {
        let Reply::Map(pairs) = &map else { panic!("{map} has no fields") };
        let found = pairs.iter().find(|(key, _)| *key == Reply::from(name));
        found.unwrap_or_else(|| panic!("no {name} in {map}")).1.clone()
    })
}

#[track_caller]
pub fn text(map: &Reply, path: &str) -> String {
    match field(map, path) {
        Reply::Bulk(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        other => panic!("{path} is {other}"),
    }
}

#[track_caller]
pub fn integer(map: &Reply, path: &str) -> i64 {
    match field(map, path) {
        Reply::Integer(integer) => integer,
        other => panic!("{path} is {other}"),
    }
}

#[track_caller]
pub fn array(map: &Reply, path: &str) -> Vec<Reply> {
    match field(map, path) {
        Reply::Array(items) => items,
        other => panic!("{path} is {other}"),
    }
}
