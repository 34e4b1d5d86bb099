//! The proof that a piece of news comes from a front-end.
//!
//! PostgreSQL passes on what any user of the database sends (NOTIFY). So each piece has a seal: HMAC-SHA256
//! by a secret that lies in the store, where only front-ends may read. A seal covers the piece's place in its
//! letter, too. Strangers can still read the news, and send a piece again that they have read: then its
//! letter has been received already ([`Incoming`](super::news::Incoming)).

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

/// Bytes of a seal: half a hash.
const SEAL_BYTES: usize = 16;

/// Makes and checks seals by one secret.
pub(super) struct Seal(Hmac<Sha256>);

impl Seal {
    /// By this secret.
    pub(super) fn new(secret: &[u8]) -> Seal {
        Seal(Hmac::new_from_slice(secret).expect("secrets may have any length"))
    }

    /// The seal of a piece at this place of its letter, in hexadecimal.
    pub(super) fn of(&self, place: u64, piece: &str) -> String {
        let code = self.0.clone().chain_update(place.to_be_bytes()).chain_update(piece);
        code.finalize().into_bytes()[..SEAL_BYTES].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether a piece at this place has this seal.
    pub(super) fn is_right(&self, place: u64, piece: &str, seal: &str) -> bool {
        self.of(place, piece).as_bytes().ct_eq(seal.as_bytes()).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_is_that_of_one_secret_one_place_and_one_piece() {
        let seal = Seal::new(&[7; 32]);
        let right = seal.of(1, "piece");
        assert!(right.len() == 32 && seal.is_right(1, "piece", &right));
        assert!(!seal.is_right(2, "piece", &right) && !seal.is_right(1, "peace", &right));
        assert!(!Seal::new(&[8; 32]).is_right(1, "piece", &right) && !seal.is_right(1, "piece", ""));
    }
}
