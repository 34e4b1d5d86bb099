//! TLS to a store: which authorities are trusted, and what is wrong with the other side.

use std::error::Error;
use std::io;

use tokio_rustls::rustls::{self, RootCertStore};

use crate::certificates::{read_certificates, why_untrusted};
use crate::files::NamedFile;

/// The authorities of a file, or those of the system.
///
/// # Errors
///
/// With one line for people.
pub(super) fn trusted(authorities: Option<&NamedFile>) -> Result<RootCertStore, String> {
    let mut trusted = RootCertStore::empty();
    trusted.add_parsable_certificates(match authorities {
        Some(file) => read_certificates(file)?,
        None => rustls_native_certs::load_native_certs().certs,
    });
    Ok(trusted)
}

/// What is wrong with the other side, if that is the reason of an error.
pub(super) fn why_refused(error: &(dyn Error + 'static)) -> Option<String> {
    let mut next = Some(error);
    while let Some(error) = next {
        let io = error.downcast_ref::<io::Error>();
        if io
            .is_some_and(|io| io.kind() == io::ErrorKind::UnexpectedEof && io.to_string().starts_with("tls "))
        {
            return Some("it ends the connection where TLS should begin".to_owned());
        }
        let within = io.and_then(io::Error::get_ref);
        let refused = within.and_then(|error| error.downcast_ref()).or_else(|| error.downcast_ref());
        match refused {
            Some(refused @ rustls::Error::InvalidCertificate(_)) => {
                return Some(format!("its certificate is refused: {}", why_untrusted(refused)));
            }
            Some(rustls::Error::InvalidMessage(_)) => return Some("it does not speak TLS".to_owned()),
            Some(other) => return Some(format!("TLS: {other}")),
            None => next = error.source(),
        }
    }
    None
}
