//! Feeds any bytes to the request reader, whole and in pieces: both must give the same requests and end with
//! the same error, and neither may panic.
//!
//! The first byte chooses how the rest is cut; the second, whether the client has authenticated.

#![no_main]

use keyfast::resp::{Limits, ProtocolError, RequestReader};
use libfuzzer_sys::fuzz_target;

type Outcome = (Vec<Vec<Vec<u8>>>, Option<ProtocolError>);

fuzz_target!(|data: &[u8]| {
    let [cut, authenticated, stream @ ..] = data else { return };
    let limits = Limits { bulk_bytes_max: 1 << 20, unauthenticated: authenticated % 2 == 1 };
    let whole = read_in_pieces(stream, &limits, stream.len().max(1));
    let pieces = read_in_pieces(stream, &limits, usize::from(*cut).max(1));
    assert_eq!(whole, pieces);
});

fn read_in_pieces(stream: &[u8], limits: &Limits, piece_bytes: usize) -> Outcome {
    let mut reader = RequestReader::default();
    let (mut input, mut requests) = (Vec::new(), Vec::new());
    for piece in stream.chunks(piece_bytes) {
        input.extend_from_slice(piece);
        loop {
            match reader.read_ahead(&input, limits) {
                Ok(0) => break,
                Ok(ready) => requests.extend((0..ready).map(|index| {
                    reader.request(&input, index).from(0).map(<[u8]>::to_vec).collect::<Vec<_>>()
                })),
                Err(error) => return (requests, Some(error)),
            }
            input.drain(..reader.release());
        }
        input.drain(..reader.release());
    }
    (requests, None)
}
