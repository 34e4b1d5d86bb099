//! Streams in pieces, against the decoder of the crate `redis-protocol`, and against the limits.

use proptest::prelude::*;
use redis_protocol::resp2::decode::decode;
use redis_protocol::resp2::types::OwnedFrame;

use super::*;

const LIMITS: Limits = Limits { bulk_bytes_max: 512 << 20, unauthenticated: false };

/// What came out of a stream: requests, and the error that ended it.
type Outcome = (Vec<Vec<Vec<u8>>>, Option<ProtocolError>);

/// Feeds a stream in pieces of these sizes (the rest at once), as a connection does.
fn read_in_pieces(stream: &[u8], limits: &Limits, sizes: impl IntoIterator<Item = usize>) -> Outcome {
    let mut reader = RequestReader::default();
    let mut requests = Vec::new();
    let (mut input, mut rest) = (Vec::new(), stream);
    for size in sizes.into_iter().chain([usize::MAX]) {
        let (piece, after) = rest.split_at(size.min(rest.len()));
        input.extend_from_slice(piece);
        rest = after;
        loop {
            match reader.read_ahead(&input, limits) {
                Ok(0) => break,
                Ok(ready) => {
                    let from = requests.len();
                    requests.extend(reader.requests(&input, 0).map(arguments));
                    assert_eq!(requests.len() - from, ready);
                    let others: Vec<_> = reader.requests(&input, 1).map(arguments).collect();
                    assert_eq!(others, requests[from + 1..], "the rest follows those that are done");
                }
                Err(error) => return (requests, Some(error)),
            }
            input.drain(..reader.release());
        }
        input.drain(..reader.release());
    }
    (requests, None)
}

/// The same as a connection does which waits in each request: it keeps those behind it, and a copy of the
/// reader.
fn read_one_by_one(stream: &[u8], limits: &Limits, sizes: impl IntoIterator<Item = usize>) -> Outcome {
    let mut reader = RequestReader::default();
    let mut requests = Vec::new();
    let (mut input, mut rest) = (Vec::new(), stream);
    for size in sizes.into_iter().chain([usize::MAX]) {
        let (piece, after) = rest.split_at(size.min(rest.len()));
        input.extend_from_slice(piece);
        rest = after;
        loop {
            match reader.read_ahead(&input, limits) {
                Ok(0) => break,
                Ok(_ready) => requests.extend(reader.requests(&input, 0).take(1).map(arguments)),
                Err(error) => return (requests, Some(error)),
            }
            input.drain(..reader.release_first(1));
            reader = reader.clone();
        }
    }
    (requests, None)
}

fn arguments(request: Request<'_>) -> Vec<Vec<u8>> {
    request.from(0).map(<[u8]>::to_vec).collect()
}

fn read(stream: &[u8]) -> Outcome {
    read_in_pieces(stream, &LIMITS, [])
}

fn requests(stream: &[u8]) -> Vec<Vec<Vec<u8>>> {
    let (requests, error) = read(stream);
    assert_eq!(error, None);
    requests
}

fn error(stream: &[u8]) -> ProtocolError {
    read(stream).1.expect("an error")
}

#[test]
fn an_array_of_bulks_is_a_request() {
    assert_eq!(requests(b"*2\r\n$3\r\nGET\r\n$0\r\n\r\n"), [[b"GET".to_vec(), b"".to_vec()]]);
    assert_eq!(requests(b"*1\r\n$4\r\na\r\nb\r\n"), [[b"a\r\nb".to_vec()]]);
}

#[test]
fn words_are_a_request_with_their_quotes_undone() {
    let words = |line: &str| requests(format!("{line}\r\n").as_bytes()).concat();
    assert_eq!(words("  SET  k\tv "), [b"SET".to_vec(), b"k".to_vec(), b"v".to_vec()]);
    assert_eq!(words(r#""a\x41\n\q" '' b"c d""#), [b"aA\nq".to_vec(), b"".to_vec(), b"bc d".to_vec()]);
    assert_eq!(words(r"'it\'s \n'"), [br"it's \n".to_vec()]);
    assert_eq!(requests(b"PING\n"), [[b"PING".to_vec()]]);
    for line in ["\"a", "'a", "\"a\"b", "'it''s'"] {
        assert_eq!(error(format!("{line}\r\n").as_bytes()), ProtocolError::UnbalancedQuotes, "{line}");
    }
}

#[test]
fn empty_requests_are_passed_over() {
    assert_eq!(requests(b"\r\n\n   \r\n*0\r\n*-1\r\nPING\r\n"), [[b"PING".to_vec()]]);
}

#[test]
fn malformed_streams_end_with_the_error_of_redis() {
    use ProtocolError::*;
    for (stream, expected) in [
        (&b"*x\r\n"[..], InvalidArrayLength),
        (b"*\r\n", InvalidArrayLength),
        (b"*01\r\n", InvalidArrayLength),
        (b"*2147483648\r\n", InvalidArrayLength),
        (b"*99999999999999999999999999\r\n", InvalidArrayLength),
        (b"*1\r\n$x\r\n", InvalidBulkLength),
        (b"*1\r\n$-1\r\n", InvalidBulkLength),
        (b"*1\r\n$536870913\r\n", InvalidBulkLength),
        (b"*1\r\n:1\r\n", ExpectedBulk(b':')),
        (b"*1\r\n\r\n", ExpectedBulk(b'\r')),
        (b"*1\r\n*1\r\n", ExpectedBulk(b'*')),
    ] {
        assert_eq!(error(stream), expected, "{}", stream.escape_ascii());
    }
    assert_eq!(error(&[b'a'; LINE_BYTES_MAX + 1]), InlineTooLong);
    assert_eq!(error(&[b'*'; LINE_BYTES_MAX + 1]), ArrayLineTooLong);
    assert_eq!(error(&[b"*1\r\n".to_vec(), vec![b'$'; LINE_BYTES_MAX + 1]].concat()), BulkLineTooLong);
    assert_eq!(ExpectedBulk(0xff).message(), b"ERR Protocol error: expected '$', got '\xff'");
    assert_eq!(ExpectedBulk(b'\r').message(), b"ERR Protocol error: expected '$', got ' '");
}

#[test]
fn limits_are_tighter_before_authentication() {
    use ProtocolError::*;
    let limits = Limits { unauthenticated: true, ..LIMITS };
    let outcome = |stream: &[u8]| read_in_pieces(stream, &limits, []).1;
    assert_eq!(outcome(b"*10\r\n"), None);
    assert_eq!(outcome(b"*11\r\n"), Some(UnauthenticatedArrayLength));
    assert_eq!(outcome(b"*1\r\n$16384\r\n"), None);
    assert_eq!(outcome(b"*1\r\n$16385\r\n"), Some(UnauthenticatedBulkLength));
}

#[test]
fn announced_lengths_allocate_nothing() {
    let mut reader = RequestReader::default();
    assert_eq!(reader.read_ahead(b"*2147483647\r\n$536870912\r\nabc", &LIMITS), Ok(0));
    assert_eq!(reader.missing, i32::MAX as u64);
    assert!(reader.spans.capacity() < 64);
    assert_eq!(reader.unquoted.capacity(), 0);
}

#[test]
fn a_batch_is_read_ahead_and_no_more() {
    let stream = encoded(&[b"PING".to_vec()]).repeat(READ_AHEAD_MAX + 1);
    let mut reader = RequestReader::default();
    assert_eq!(reader.read_ahead(&stream, &LIMITS), Ok(READ_AHEAD_MAX));
    assert_eq!(reader.read_ahead(&stream, &LIMITS), Ok(READ_AHEAD_MAX), "they stay until they are released");
    let consumed = reader.release();
    assert_eq!(reader.read_ahead(&stream[consumed..], &LIMITS), Ok(1));
    let unauthenticated = Limits { unauthenticated: true, ..LIMITS };
    assert_eq!(RequestReader::default().read_ahead(&stream, &unauthenticated), Ok(1));
}

#[test]
fn requests_before_an_error_are_read_first() {
    let stream = b"PING\r\n*1\r\n$4\r\nPING\r\n*x\r\n";
    let mut reader = RequestReader::default();
    assert_eq!(reader.read_ahead(stream, &LIMITS), Ok(2));
    let consumed = reader.release();
    assert_eq!(reader.read_ahead(&stream[consumed..], &LIMITS), Err(ProtocolError::InvalidArrayLength));
}

#[test]
fn arguments_are_counted_as_they_come() {
    let stream = [format!("*{}\r\n", ARGUMENTS_MAX + 1), "$0\r\n\r\n".repeat(ARGUMENTS_MAX + 1)].concat();
    assert_eq!(read(&stream.as_bytes()[..stream.len() - 6]), (vec![], None));
    assert_eq!(error(stream.as_bytes()), ProtocolError::InvalidArrayLength);
}

/// How much work a stream takes for each of its bytes, if it comes in pieces of this size.
fn work_per_byte(stream: &[u8], piece_bytes: usize) -> f64 {
    let mut reader = RequestReader::default();
    let (mut begun, mut fed) = (0, 0);
    while fed < stream.len() {
        fed = (fed + piece_bytes).min(stream.len());
        while reader.read_ahead(&stream[begun..fed], &LIMITS).unwrap() > 0 {
            begun += reader.release();
        }
    }
    reader.work as f64 / stream.len() as f64
}

#[test]
fn a_million_arguments_in_pieces_of_16_kib_cost_linear_work() {
    let stream = ["*1000000\r\n".to_owned(), "$1\r\nx\r\n".repeat(1_000_000)].concat();
    assert!(work_per_byte(stream.as_bytes(), 16 << 10) < 3.0);
}

#[test]
fn a_mebibyte_in_pieces_of_one_byte_costs_linear_work() {
    let value = "v".repeat(1 << 20);
    let bulk = format!("*2\r\n$4\r\nECHO\r\n${}\r\n{value}\r\n", value.len());
    let words = "PING\r\n".repeat((1 << 20) / 6);
    let one_line = format!("{}\r\n", "v".repeat(LINE_BYTES_MAX - 2));
    for stream in [bulk, words, one_line] {
        let work = work_per_byte(stream.as_bytes(), 1);
        assert!(work < 4.0, "{work} for {}…", &stream[..8]);
    }
}

fn encoded(request: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", request.len()).into_bytes();
    for argument in request {
        bytes.extend(format!("${}\r\n", argument.len()).bytes());
        bytes.extend(argument);
        bytes.extend(b"\r\n");
    }
    bytes
}

fn any_request() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..6)
}

/// Streams that look like requests and go wrong now and then.
fn any_stream() -> impl Strategy<Value = Vec<u8>> {
    let fragment = prop_oneof![
        8 => any_request().prop_map(|request| encoded(&request)),
        2 => "(PING|SET k v|\"a b\" 'c'|  )\r?\n".prop_map(String::into_bytes),
        1 => "[*$:]-?[0-9]{0,3}\r\n".prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 0..20),
    ];
    prop::collection::vec(fragment, 0..8).prop_map(|fragments| fragments.concat())
}

proptest! {
    #[test]
    fn pieces_make_no_difference(
        stream in any_stream(),
        sizes in prop::collection::vec(1_usize..30, 0..60),
        unauthenticated: bool,
    ) {
        let limits = Limits { unauthenticated, ..LIMITS };
        let whole = read_in_pieces(&stream, &limits, []);
        prop_assert_eq!(&whole, &read_in_pieces(&stream, &limits, sizes.clone()));
        prop_assert_eq!(&whole, &read_one_by_one(&stream, &limits, sizes));
        prop_assert_eq!(&whole, &read_in_pieces(&stream, &limits, std::iter::repeat_n(1, stream.len())));
    }

    #[test]
    fn well_formed_arrays_are_read_as_redis_protocol_reads_them(
        requests in prop::collection::vec(any_request(), 1..6),
    ) {
        let stream: Vec<u8> = requests.iter().flat_map(|request| encoded(request)).collect();
        let mut decoded = Vec::new();
        let mut rest = stream.as_slice();
        while let Some((frame, length)) = decode(rest).expect("a frame") {
            let OwnedFrame::Array(items) = frame else { panic!("not an array: {frame:?}") };
            decoded.push(items.into_iter().map(|item| match item {
                OwnedFrame::BulkString(bytes) => bytes,
                other => panic!("not a bulk string: {other:?}"),
            }).collect::<Vec<_>>());
            rest = &rest[length..];
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(&decoded, &requests);
        prop_assert_eq!(read(&stream), (decoded, None));
    }
}
