//! Feeds any bytes to the request reader, whole and in pieces: both must give the same requests and end with
//! the same error, and neither may panic.
//!
//! The first byte says whether the client has authenticated (even) or not. The next three are the sizes of
//! the pieces, less one, in turn: pieces of several sizes cut a stream in places where those of one never do.
//! The rest is the stream.

#![no_main]

use keyfast::internals::resp::{Limits, ProtocolError, RequestReader};
use libfuzzer_sys::fuzz_target;

/// What came out of a stream: requests, and the error that ended it.
type Outcome = (Vec<Vec<Vec<u8>>>, Option<ProtocolError>);

fuzz_target!(|data: &[u8]| {
    let [authentication, first, second, third, stream @ ..] = data else { return };
    let limits = Limits { bulk_bytes_max: 1 << 20, unauthenticated: authentication % 2 == 1 };
    let sizes = [first, second, third].map(|size| usize::from(*size) + 1);
    assert_eq!(read_in_pieces(stream, &limits, &[stream.len()]), read_in_pieces(stream, &limits, &sizes));
});

/// Feeds a stream in pieces of these sizes, over and over, as a connection does.
fn read_in_pieces(stream: &[u8], limits: &Limits, sizes: &[usize]) -> Outcome {
    let mut reader = RequestReader::default();
    let (mut input, mut requests) = (Vec::new(), Vec::new());
    let (mut rest, mut sizes) = (stream, sizes.iter().cycle());
    while !rest.is_empty() {
        let size = sizes.next().expect("sizes without end");
        let (piece, after) = rest.split_at(rest.len().min(*size));
        input.extend_from_slice(piece);
        rest = after;
        if let Err(error) = take_requests(&mut reader, &mut input, limits, &mut requests) {
            return (requests, Some(error));
        }
    }
    (requests, None)
}

/// Moves all requests that are there from the front of `input` to `requests`.
fn take_requests(
    reader: &mut RequestReader,
    input: &mut Vec<u8>,
    limits: &Limits,
    requests: &mut Vec<Vec<Vec<u8>>>,
) -> Result<(), ProtocolError> {
    loop {
        let ready = reader.read_ahead(input, limits)?;
        let read = reader.requests(input, 0);
        assert_eq!(read.len(), ready);
        requests.extend(read.map(|request| request.from(0).map(<[u8]>::to_vec).collect()));
        input.drain(..reader.release());
        if ready == 0 {
            return Ok(());
        }
    }
}
