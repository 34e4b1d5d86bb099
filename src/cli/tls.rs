//! TLS as a client: whom to trust, and how to be trusted.
//!
//! As redis-cli has it, a server that shows a certificate of an authority given by `--cacert` is trusted
//! under any name: test certificates of Redis name no server. One of the system's authorities has to vouch
//! for the name as well, since those vouch for everybody.
//!
//! A certificate given by `--cacert` that the server shows itself is trusted, too: one that was signed by its
//! own key has no authority. The library would ask for one, so such a certificate is compared here.

use std::fs;
use std::io;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

use super::connection::plain_text;
use super::options::TlsOptions;
use crate::certificates::{Validity, read_certificates, read_key, why_refused, why_untrusted};
use crate::files::NamedFile;

/// Why there is no conversation over TLS.
pub(super) enum Refusal {
    /// The options are wrong.
    Options(String),
    /// The server is not trusted, or does not trust, or is none.
    Greeting(String),
}

/// Greets a server.
///
/// # Errors
///
/// With one line for people.
pub(super) async fn greet(
    stream: TcpStream,
    host: &str,
    options: &TlsOptions,
) -> Result<TlsStream<TcpStream>, Refusal> {
    let name = options.server_name.as_deref().unwrap_or(host).to_owned();
    let name = ServerName::try_from(name).map_err(|error| Refusal::Options(error.to_string()))?;
    let connector = TlsConnector::from(Arc::new(config(options).map_err(Refusal::Options)?));
    connector.connect(name, stream).await.map_err(|error| {
        let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
        Refusal::Greeting(match cause {
            Some(error @ Error::InvalidCertificate(_)) => {
                format!("certificate verify failed ({})", why_untrusted(error))
            }
            _ => plain_text(&error),
        })
    })
}

fn config(options: &TlsOptions) -> Result<ClientConfig, String> {
    let provider = Arc::new(default_provider());
    let trusted = trusted(options)?;
    let verifier = Arc::new(Verifier {
        authorities: trusted
            .as_ref()
            .map(|trusted| {
                let mut authorities = RootCertStore::empty();
                authorities.add_parsable_certificates(trusted.iter().cloned());
                WebPkiServerVerifier::builder_with_provider(Arc::new(authorities), Arc::clone(&provider))
                    .build()
            })
            .transpose()
            .map_err(|error| error.to_string())?,
        trusted: trusted.unwrap_or_default(),
        minds_names: options.authorities_file.is_none() && options.authorities_folder.is_none(),
        schemes: provider.signature_verification_algorithms.supported_schemes(),
    });
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let (certificate, key) = match (&options.certificate_file, &options.key_file) {
        (None, None) => return Ok(builder.with_no_client_auth()),
        (Some(certificate), Some(key)) => (certificate, key),
        _ => return Err("--cert and --key are needed both".to_owned()),
    };
    let certificates = read_certificates(&NamedFile::at(certificate))?;
    let shown = certificates[0].clone();
    builder
        .with_client_auth_cert(certificates, read_key(&NamedFile::at(key))?)
        .map_err(|error| why_refused(&error, &shown))
}

/// The certificates that are trusted; none if every server is.
fn trusted(options: &TlsOptions) -> Result<Option<Vec<CertificateDer<'static>>>, String> {
    if options.is_insecure {
        return Ok(None);
    }
    let mut trusted = Vec::new();
    if let Some(file) = &options.authorities_file {
        trusted.extend(read_certificates(&NamedFile::at(file))?);
    }
    if let Some(folder) = &options.authorities_folder {
        let wrong = |error: io::Error| format!("{}: {}", folder.display(), plain_text(&error));
        for entry in fs::read_dir(folder).map_err(wrong)? {
            // A folder of authorities holds other things, too.
            let file = NamedFile::at(&entry.map_err(wrong)?.path());
            trusted.extend(read_certificates(&file).unwrap_or_default());
        }
    }
    if options.authorities_file.is_none() && options.authorities_folder.is_none() {
        trusted.extend(rustls_native_certs::load_native_certs().certs);
    }
    if trusted.is_empty() {
        return Err("there is no authority to trust: name one by --cacert, or give --insecure".to_owned());
    }
    Ok(Some(trusted))
}

/// Decides whether a server is to be trusted.
#[derive(Debug)]
struct Verifier {
    /// None trusts everybody.
    authorities: Option<Arc<WebPkiServerVerifier>>,
    /// The same as certificates.
    trusted: Vec<CertificateDer<'static>>,
    minds_names: bool,
    schemes: Vec<SignatureScheme>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(authorities) = &self.authorities else { return Ok(ServerCertVerified::assertion()) };
        if !self.minds_names && self.trusted.iter().any(|trusted| trusted == certificate) {
            let why_not = Validity::of(certificate).and_then(|validity| validity.why_not_now());
            return why_not.map_or(Ok(ServerCertVerified::assertion()), |why| Err(why.into()));
        }
        match authorities.verify_server_cert(certificate, intermediates, name, ocsp_response, now) {
            // The name is looked at last: everything else is as it should be.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.minds_names => Ok(ServerCertVerified::assertion()),
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match &self.authorities {
            Some(authorities) => authorities.verify_tls12_signature(message, certificate, signature),
            None => Ok(HandshakeSignatureValid::assertion()),
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match &self.authorities {
            Some(authorities) => authorities.verify_tls13_signature(message, certificate, signature),
            None => Ok(HandshakeSignatureValid::assertion()),
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}
