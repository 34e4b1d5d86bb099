//! TLS to a store: which authorities are trusted, which certificate the store is shown, and what is wrong
//! with the other side.

use std::error::Error;
use std::io;
use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::{self, AlertDescription, ClientConfig, RootCertStore};

use crate::certificates::{read_certificates, read_key, why_refused as why_pair_refused, why_untrusted};
use crate::files::NamedFile;

/// The files that TLS needs.
#[derive(Clone, Debug, Default)]
pub struct TlsFiles {
    /// The certificate authorities of the store; `None` for those of the system.
    pub authorities: Option<NamedFile>,
    /// The certificate that the store is shown; `None` for none.
    pub certificate: Option<NamedFile>,
    /// The private key of the certificate.
    pub key: Option<NamedFile>,
}

impl TlsFiles {
    /// The authorities of the file, or those of the system.
    pub(super) fn trusted(&self) -> Result<RootCertStore, String> {
        let mut trusted = RootCertStore::empty();
        trusted.add_parsable_certificates(match &self.authorities {
            Some(file) => read_certificates(file)?,
            None => rustls_native_certs::load_native_certs().certs,
        });
        Ok(trusted)
    }

    /// The files of the certificate that the store is shown and of its key, if there are any.
    ///
    /// # Errors
    ///
    /// If one of the two is missing.
    pub(super) fn pair(&self) -> Result<Option<(&NamedFile, &NamedFile)>, String> {
        match (&self.certificate, &self.key) {
            (None, None) => Ok(None),
            (Some(certificate), Some(key)) => Ok(Some((certificate, key))),
            _ => Err("store-tls-cert-file and store-tls-key-file are needed together".to_owned()),
        }
    }

    /// How a client of the store speaks TLS.
    pub(super) fn client_config(&self) -> Result<ClientConfig, String> {
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(self.trusted()?);
        let Some((certificate_file, key_file)) = self.pair()? else {
            return Ok(config.with_no_client_auth());
        };
        let certificates = read_certificates(certificate_file)?;
        let shown = certificates[0].clone();
        config.with_client_auth_cert(certificates, read_key(key_file)?).map_err(|error| {
            format!("{certificate_file} with {key_file}: {}", why_pair_refused(&error, &shown))
        })
    }
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
            Some(rustls::Error::AlertReceived(AlertDescription::CertificateRequired)) => {
                return Some("it asks for a certificate (store-tls-cert-file)".to_owned());
            }
            Some(rustls::Error::InvalidMessage(_)) => return Some("it does not speak TLS".to_owned()),
            Some(other) => return Some(format!("TLS: {other}")),
            None => next = error.source(),
        }
    }
    None
}
