//! The proof that a piece of news comes from a front-end.
//!
//! PostgreSQL passes on what any user of the database sends (NOTIFY). So each piece has a seal: HMAC-SHA256
//! by a secret that lies in the store, where only front-ends may read. A seal covers the piece's place in its
//! letter, too. Strangers can still read the news, and send a piece again that they have read: then its
//! letter has been received already ([`Incoming`](super::news::Incoming)).

use std::fmt::Write;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// The block of SHA-256, in bytes.
const BLOCK_BYTES: usize = 64;
/// Bytes of a seal: half a hash.
const SEAL_BYTES: usize = 16;

/// Makes and checks seals by one secret.
pub(super) struct Seal {
    inner: [u8; BLOCK_BYTES],
    outer: [u8; BLOCK_BYTES],
}

impl Seal {
    /// By this secret.
    pub(super) fn new(secret: &[u8]) -> Seal {
        let mut key = [0; BLOCK_BYTES];
        match secret.len() <= BLOCK_BYTES {
            true => key[..secret.len()].copy_from_slice(secret),
            false => key[..32].copy_from_slice(Sha256::digest(secret).as_slice()),
        }
        Seal { inner: key.map(|byte| byte ^ 0x36), outer: key.map(|byte| byte ^ 0x5c) }
    }

    /// The seal of a piece at this place of its letter, in hexadecimal.
    pub(super) fn of(&self, place: u64, piece: &str) -> String {
        self.code(&[&place.to_be_bytes(), piece.as_bytes()])[..SEAL_BYTES].iter().fold(
            String::with_capacity(2 * SEAL_BYTES),
            |mut text, byte| {
                // A write to a string cannot fail.
                let _ = write!(text, "{byte:02x}");
                text
            },
        )
    }

    /// Whether a piece at this place has this seal.
    pub(super) fn is_right(&self, place: u64, piece: &str, seal: &str) -> bool {
        self.of(place, piece).as_bytes().ct_eq(seal.as_bytes()).into()
    }

    /// HMAC-SHA256 of all parts, one after the other.
    fn code(&self, parts: &[&[u8]]) -> [u8; 32] {
        let inner =
            parts.iter().fold(Sha256::new_with_prefix(self.inner), |hash, part| hash.chain_update(part));
        Sha256::new_with_prefix(self.outer).chain_update(inner.finalize()).finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn codes_are_those_of_rfc_4231() {
        let code = Seal::new(b"Jefe").code(&[b"what do ya want ", b"for nothing?"]);
        assert_eq!(hex(&code), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
        let code = Seal::new(&[0xaa; 131]).code(&[b"Test Using Larger Than Block-Size Key - Hash Key First"]);
        assert_eq!(hex(&code), "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    }

    #[test]
    fn a_seal_is_that_of_one_secret_one_place_and_one_piece() {
        let seal = Seal::new(&[7; 32]);
        let right = seal.of(1, "piece");
        assert!(right.len() == 32 && seal.is_right(1, "piece", &right));
        assert!(!seal.is_right(2, "piece", &right) && !seal.is_right(1, "peace", &right));
        assert!(!Seal::new(&[8; 32]).is_right(1, "piece", &right) && !seal.is_right(1, "piece", ""));
    }
}
