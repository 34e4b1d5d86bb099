//! What the port of metrics answers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::server::PATIENCE;

/// An answer: its status, its header fields by their names, its body.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub fields: HashMap<String, String>,
    pub body: String,
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the port for metrics accepts");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Reads one answer, to HEAD without a body.
pub fn answer(stream: &mut TcpStream, has_body: bool) -> Answer {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream
            .read_exact(&mut byte)
            .unwrap_or_else(|error| panic!("{error} after {:?}", head.escape_ascii()));
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let (status, fields) = head.split_once("\r\n").unwrap();
    let status = status.strip_prefix("HTTP/1.1 ").unwrap()[..3].parse().unwrap();
    let fields: HashMap<String, String> = fields
        .lines()
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();
    let mut body = vec![0; if has_body { fields["content-length"].parse().unwrap() } else { 0 }];
    stream.read_exact(&mut body).unwrap();
    Answer { status, fields, body: String::from_utf8(body).unwrap() }
}

/// Sends bytes on a connection of their own, reads the answer and whether it was the last.
pub fn send(address: SocketAddr, bytes: &[u8]) -> Answer {
    let mut stream = connect(address);
    // The server may have answered already.
    let _ = stream.write_all(bytes);
    let answer = answer(&mut stream, !bytes.starts_with(b"HEAD"));
    if answer.fields["connection"] == "close" {
        assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0, "more after the last answer");
    }
    answer
}

pub fn get(address: SocketAddr, path: &str) -> Answer {
    send(address, format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").as_bytes())
}

/// The samples of `/metrics` by name and labels, of a page that must be as the format wants it.
pub fn metrics(address: SocketAddr) -> BTreeMap<String, f64> {
    let answer = get(address, "/metrics");
    assert_eq!(answer.status, 200);
    assert_eq!(answer.fields["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    parse(&answer.body)
}

/// Reads the text format of Prometheus, more strictly than Prometheus does.
fn parse(page: &str) -> BTreeMap<String, f64> {
    let (mut samples, mut families) = (BTreeMap::new(), BTreeSet::new());
    let (mut family, mut kind, mut helped) = ("", "", "");
    assert!(page.ends_with('\n'));
    for line in page.strip_suffix('\n').unwrap().split('\n') {
        if let Some(help) = line.strip_prefix("# HELP ") {
            helped = help.split_once(' ').expect("a text after the name").0;
        } else if let Some(typed) = line.strip_prefix("# TYPE ") {
            (family, kind) = typed.split_once(' ').expect("a type after the name");
            assert_eq!(family, helped, "the help comes before the type");
            assert!(["counter", "gauge", "histogram", "summary"].contains(&kind), "{line}");
            assert!(families.insert(family), "{family} comes twice");
        } else {
            let (name, labels, value) = sample(line);
            let suffix = name.strip_prefix(family).unwrap_or_else(|| panic!("{line} is not of {family}"));
            let allowed: &[&str] = match kind {
                "histogram" => &["_bucket", "_sum", "_count"],
                "summary" => &["", "_sum", "_count"],
                _ => &[""],
            };
            assert!(allowed.contains(&suffix), "{line} is not of {family}");
            assert!(kind != "counter" || value >= 0.0, "{line}");
            let whole = labels.iter().map(|(name, value)| format!("{name}={value}"));
            let key = format!("{name}{{{}}}", whole.collect::<Vec<_>>().join(","));
            let key = key.trim_end_matches("{}").to_owned();
            assert!(samples.insert(key, value).is_none(), "{line} comes twice");
        }
    }
    samples
}

/// One line: a name, labels without their escapes, a value.
fn sample(line: &str) -> (&str, Vec<(String, String)>, f64) {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let end = line.find(|c| !is_of_name(c)).expect("more than a name");
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if rest.starts_with('{') {
        while !rest.starts_with('}') {
            let (label, after) = rest[1..].split_once("=\"").expect("a label's value");
            assert!(label.chars().all(is_of_name), "{line}");
            let (mut value, mut characters) = (String::new(), after.char_indices());
            let end = loop {
                match characters.next().expect("an end of the label") {
                    (at, '"') => break at,
                    (_, '\\') => value.push(match characters.next().unwrap().1 {
                        'n' => '\n',
                        escaped @ ('\\' | '"') => escaped,
                        other => panic!("\\{other} in {line}"),
                    }),
                    (_, other) => value.push(other),
                }
            };
            labels.push((label.to_owned(), value));
            rest = &after[end + 1..];
            assert!(rest.starts_with([',', '}']), "{line}");
        }
        rest = &rest[1..];
    }
    let value = rest.strip_prefix(' ').unwrap_or_else(|| panic!("no blank in {line}"));
    (name, labels, value.parse().unwrap_or_else(|_| panic!("no number in {line}")))
}
