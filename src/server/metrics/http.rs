//! As much of HTTP/1.1 as metrics need: reads heads of requests, writes responses.
//!
//! Requests with a body are refused. A head has a limit of bytes and of time, and so has the writing of a
//! response. A library for servers would not make this shorter: hyper closes a slow connection without a
//! response, waits for ever for a client that reads nothing, and gives no text to what it refuses.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Most bytes of a request's head: more than any browser sends.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// Most header fields of a request.
const FIELDS_MAX: usize = 64;
/// Most time for a head, including the wait for its first byte.
const HEAD_TIME: Duration = Duration::from_secs(5);
/// Most time for writing a response.
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// After a refused request, at most this many more bytes are read …
const REST_BYTES_MAX: usize = 256 << 10;
/// … for at most this time, so that the client can read the response.
const REST_TIME: Duration = Duration::from_secs(1);

/// A request, without its header fields.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) method: Method,
    /// The path, without the query behind a question mark.
    pub(super) path: String,
    /// Whether a body follows.
    pub(super) has_body: bool,
    /// Whether the connection stays open for more requests.
    pub(super) keeps_open: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Get,
    Head,
    Other,
}

/// Why there is no request.
#[derive(Debug)]
pub(super) enum Refusal {
    Malformed,
    TooLarge,
    TooSlow,
    /// The client has left without one.
    Gone,
    Failed(io::Error),
}

/// Reads the head of the next request. Bytes behind it stay in `read`.
pub(super) async fn read(stream: &mut TcpStream, read: &mut Vec<u8>) -> Result<Asked, Refusal> {
    let whole = timeout(HEAD_TIME, async {
        loop {
            if let Some((asked, length)) = parse(read)? {
                read.drain(..length);
                return Ok(asked);
            }
            if read.len() >= HEAD_BYTES_MAX {
                return Err(Refusal::TooLarge);
            }
            let mut piece = [0; 1024];
            match stream.read(&mut piece).await.map_err(Refusal::Failed)? {
                0 => return Err(Refusal::Gone),
                length => read.extend_from_slice(&piece[..length]),
            }
        }
    });
    match whole.await {
        Ok(asked) => asked,
        Err(_) => Err(if read.is_empty() { Refusal::Gone } else { Refusal::TooSlow }),
    }
}

/// Parses a head. Returns the request and the head's length, or `None` if the head is incomplete.
fn parse(read: &[u8]) -> Result<Option<(Asked, usize)>, Refusal> {
    let head = &read[..read.len().min(HEAD_BYTES_MAX)];
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    let length = match request.parse(head) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(Refusal::TooLarge),
        Err(_) => return Err(Refusal::Malformed),
    };
    let field = |name: &str| {
        let found = request.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name));
        found.map(|field| field.value.trim_ascii())
    };
    let is_1_1 = request.version == Some(1);
    if is_1_1 && field("host").is_none() {
        return Err(Refusal::Malformed);
    }
    let method = match request.method {
        Some("GET") => Method::Get,
        Some("HEAD") => Method::Head,
        _ => Method::Other,
    };
    let target = request.path.unwrap_or_default();
    let path = target.split_once('?').map_or(target, |(path, _)| path).to_owned();
    let has_body =
        field("transfer-encoding").is_some() || field("content-length").is_some_and(|length| length != b"0");
    let wants_close = field("connection").is_some_and(|value| value.eq_ignore_ascii_case(b"close"));
    Ok(Some((Asked { method, path, has_body, keeps_open: is_1_1 && !wants_close }, length)))
}

/// A response: status, type and text.
#[derive(Debug)]
pub(super) struct Answer {
    status: &'static str,
    media_type: &'static str,
    body: String,
}

impl Answer {
    fn text(status: &'static str, body: &str) -> Answer {
        Answer { status, media_type: "text/plain; charset=utf-8", body: format!("{body}\n") }
    }

    /// The response with the page of metrics.
    pub(super) fn metrics(body: String) -> Answer {
        Answer { status: "200 OK", media_type: "text/plain; version=0.0.4; charset=utf-8", body }
    }

    pub(super) fn well() -> Answer {
        Answer::text("200 OK", "ok")
    }

    pub(super) fn unwell(complaint: &str) -> Answer {
        Answer::text("503 Service Unavailable", complaint)
    }

    pub(super) fn malformed() -> Answer {
        Answer::text("400 Bad Request", "malformed request: send GET or HEAD without a body")
    }

    pub(super) fn not_found() -> Answer {
        Answer::text("404 Not Found", "not found: use /metrics or /healthz")
    }

    pub(super) fn not_allowed() -> Answer {
        Answer::text("405 Method Not Allowed", "use GET or HEAD")
    }

    pub(super) fn too_slow() -> Answer {
        Answer::text("408 Request Timeout", "the request took too long")
    }

    pub(super) fn too_large() -> Answer {
        Answer::text("431 Request Header Fields Too Large", "the head of the request is too large")
    }
}

/// Writes a response; `with_body` is false for HEAD.
pub(super) async fn write(
    stream: &mut TcpStream,
    answer: &Answer,
    with_body: bool,
    keeps_open: bool,
) -> io::Result<()> {
    let Answer { status, media_type, body } = answer;
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    let connection = if keeps_open { "keep-alive" } else { "close" };
    let mut text = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {media_type}\r\nContent-Length: {}\r\n{allow}Connection: \
         {connection}\r\n\r\n",
        body.len()
    );
    if with_body {
        text.push_str(body);
    }
    timeout(ANSWER_TIME, stream.write_all(text.as_bytes())).await?
}

/// Ends a connection so that the last response arrives, whatever the client still sends.
pub(super) async fn end(stream: &mut TcpStream) -> io::Result<()> {
    stream.shutdown().await?;
    let rest = async {
        let (mut piece, mut length) = ([0; 1024], 0);
        while length < REST_BYTES_MAX {
            match stream.read(&mut piece).await? {
                0 => break,
                more => length += more,
            }
        }
        Ok(())
    };
    timeout(REST_TIME, rest).await.unwrap_or(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(text: &str) -> Option<(Asked, usize)> {
        parse(text.as_bytes()).expect("a request, or the beginning of one")
    }

    #[test]
    fn a_head_says_what_is_asked_for() {
        let text = "GET /metrics?name=x HTTP/1.1\r\nHost: here\r\n\r\nGET";
        let (asked_for, length) = asked(text).unwrap();
        let expected =
            Asked { method: Method::Get, path: "/metrics".to_owned(), has_body: false, keeps_open: true };
        assert_eq!((asked_for, length), (expected, text.len() - 3));
        assert_eq!(asked("GET /metrics HTTP/1.1\r\nHost: here\r\n"), None);
    }

    #[test]
    fn a_connection_ends_where_it_is_asked_to() {
        for (text, keeps_open) in [
            ("HEAD / HTTP/1.1\r\nHost: here\r\n\r\n", true),
            ("HEAD / HTTP/1.1\r\nhost: here\r\nconnection: Close\r\n\r\n", false),
            ("HEAD / HTTP/1.0\r\n\r\n", false),
        ] {
            assert_eq!(asked(text).unwrap().0.keeps_open, keeps_open, "{text:?}");
        }
    }

    #[test]
    fn a_body_is_seen() {
        for (field, has_body) in
            [("Content-Length: 0", false), ("Content-Length: 1", true), ("Transfer-Encoding: chunked", true)]
        {
            let text = format!("GET / HTTP/1.1\r\nHost: here\r\n{field}\r\n\r\n");
            assert_eq!(asked(&text).unwrap().0.has_body, has_body, "{field}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in
            ["*1\r\n$4\r\nPING\r\n", "GET / HTTP/1.1\r\n\r\n", "GET / HTTP/3.0\r\n\r\n", "GET /\r\n\r\n"]
        {
            assert!(matches!(parse(text.as_bytes()), Err(Refusal::Malformed)), "{text:?}");
        }
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(FIELDS_MAX + 1));
        assert!(matches!(parse(many.as_bytes()), Err(Refusal::TooLarge)));
    }
}
