//! TLS of the client: which servers it trusts, and its own certificate.
//!
//! As in redis-cli, a server with a certificate from an authority in `--cacert` is trusted under any name:
//! Redis's test certificates contain no name. A certificate from one of the system's authorities must also
//! contain the server's name, because these authorities issue certificates for all kinds of servers.
//!
//! A certificate in `--cacert` is also trusted if the server itself presents it: a self-signed certificate
//! has no authority. The library would require one, so such a certificate is compared here.

use std::fmt;
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
    CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};

use super::options::TlsOptions;
use super::plain_text;
use crate::certificates::{Validity, read_certificates, read_key, why_not_greeted, why_refused};
use crate::files::NamedFile;

/// Why the TLS connection failed.
pub(super) enum Refusal {
    /// The options are wrong.
    Options(String),
    /// The handshake failed: one of the two sides does not trust the other, or the server does not speak TLS.
    Greeting(String),
}

/// Makes the TLS handshake with a server.
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
    connector.connect(name, stream).await.map_err(|error| Refusal::Greeting(why_not(&error)))
}

/// Why the handshake failed.
fn why_not(error: &io::Error) -> String {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
    if let Some(Error::InvalidMessage(_)) = cause {
        return "the server does not speak TLS on this port".to_owned();
    }
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return "the server closed the connection: it may not speak TLS on this port".to_owned();
    }
    why_not_greeted(error).unwrap_or_else(|| plain_text(error))
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
        _ => return Err("--cert and --key are needed together".to_owned()),
    };
    let certificates = read_certificates(&NamedFile::at(certificate))?;
    let shown = certificates[0].clone();
    builder
        .with_client_auth_cert(certificates, read_key(&NamedFile::at(key))?)
        .map_err(|error| why_refused(&error, &shown))
}

/// The trusted certificates; `None` if every server is trusted.
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
            // Such a directory may contain other files, too.
            let file = NamedFile::at(&entry.map_err(wrong)?.path());
            trusted.extend(read_certificates(&file).unwrap_or_default());
        }
    }
    if options.authorities_file.is_none() && options.authorities_folder.is_none() {
        trusted.extend(rustls_native_certs::load_native_certs().certs);
    }
    if trusted.is_empty() {
        return Err(
            "there is no CA to trust: name one with --cacert FILE, or skip the check with --insecure"
                .to_owned(),
        );
    }
    Ok(Some(trusted))
}

/// Decides whether a server is trusted.
#[derive(Debug)]
struct Verifier {
    /// The authorities; `None` trusts every server.
    authorities: Option<Arc<WebPkiServerVerifier>>,
    /// The certificates of the authorities.
    trusted: Vec<CertificateDer<'static>>,
    minds_names: bool,
    schemes: Vec<SignatureScheme>,
}

/// The error for a self-signed certificate that `--cacert` does not contain.
#[derive(Debug)]
struct SelfSigned;

impl fmt::Display for SelfSigned {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        text.write_str(
            "the server's certificate is self-signed: name it with --cacert FILE, or skip the check with \
             --insecure",
        )
    }
}

impl std::error::Error for SelfSigned {}

/// Whether the library rejects a certificate because of its issuer. The issuer may be unknown, or have the
/// name but not the key of a trusted one. Or the certificate is an authority's own, as `openssl req -x509`
/// makes it.
fn is_about_issuer(error: &Error) -> bool {
    match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => true,
        Error::InvalidCertificate(CertificateError::Other(other)) => other.to_string() == "CaUsedAsEndEntity",
        _ => false,
    }
}

fn is_self_issued(certificate: &CertificateDer<'_>) -> bool {
    Validity::of(certificate).is_some_and(|validity| validity.is_self_issued)
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
            // The name is checked last, so everything else is valid.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.minds_names => Ok(ServerCertVerified::assertion()),
            Err(error) if is_about_issuer(&error) && is_self_issued(certificate) => {
                Err(CertificateError::Other(OtherError(Arc::new(SelfSigned))).into())
            }
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
