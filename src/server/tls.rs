//! TLS: its parameters, and the handshake with clients.
//!
//! CONFIG SET replaces what new connections are greeted with: a certificate must not cost a restart. If a
//! file is wrong, what was there before stays.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::{Error, RootCertStore, ServerConfig};

use crate::certificates::{self, Validity, why_refused, why_untrusted};
use crate::config::{Config, TLS_AUTH_CLIENTS};
use crate::files::NamedFile;

use super::secure::SecureStream;
use super::suites::Offer;

/// Most time for the handshake, which takes two round trips and some arithmetic. A client that connects and
/// sends nothing must not hold one of the `maxclients` places for ever.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// Everything that a handshake needs; the copies of one server are one.
#[derive(Clone)]
pub(super) struct Tls(Arc<RwLock<Arc<ServerConfig>>>);

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads the certificate, the key and the authorities from the files in the parameters.
    pub(super) fn of(config: &Config) -> Result<Tls, String> {
        Ok(Tls(Arc::new(RwLock::new(terms(config)?))))
    }

    /// Reads them again, for the connections that come from now on. They do not resume what a client has
    /// agreed on before.
    ///
    /// # Errors
    ///
    /// With one line for people; nothing has changed then.
    pub(super) fn renew(&self, config: &Config) -> Result<(), String> {
        let new = terms(config)?;
        *self.0.write() = new;
        Ok(())
    }

    /// Makes the handshake with a client.
    ///
    /// # Errors
    ///
    /// If the client takes too long, or its part of the handshake is wrong.
    pub(super) async fn greet(&self, stream: TcpStream) -> io::Result<SecureStream> {
        let terms = Arc::clone(&self.0.read());
        timeout(HANDSHAKE_MAX, SecureStream::accept(stream, terms)).await?
    }
}

/// What the parameters say now.
fn terms(config: &Config) -> Result<Arc<ServerConfig>, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("could not configure TLS: {error}");
    let certificate_file = file("tls-cert-file", config.file_of(&config.tls_cert_file))?;
    let certificates = certificates(&certificate_file)?;
    let key_file = file("tls-key-file", config.file_of(&config.tls_key_file))?;
    let key = certificates::read_key(&key_file).map_err(|why| wrong(&why))?;
    let certificate = certificates[0].clone();
    let Offer { versions, suites } = Offer::of(config).map_err(|why| wrong(&why))?;
    let provider = Arc::new(CryptoProvider { cipher_suites: suites, ..default_provider() });
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&versions)
        .map_err(|error| wrong(&error))?;
    let builder = match TLS_AUTH_CLIENTS[config.tls_auth_clients.get()] {
        "no" => builder.with_no_client_auth(),
        who => builder.with_client_cert_verifier(verifier(config, who == "optional", provider)?),
    };
    let mut made = builder.with_single_cert(certificates, key).map_err(|error| {
        let why = why_refused(&error, &certificate);
        wrong(&format_args!("{certificate_file} with {key_file}: {why}"))
    })?;
    made.ignore_client_order = config.tls_prefer_server_ciphers.get();
    if let Some(why) = Validity::of(&certificate).and_then(|validity| validity.why_not_now()) {
        // As in Redis, clients decide whether they refuse it.
        tracing::warn!("{certificate_file}: {}", why_untrusted(&Error::InvalidCertificate(why)));
    }
    Ok(Arc::new(made))
}

/// Sends the last words to a client and ends the TLS stream properly, so that the client can tell this end
/// from a cut connection. Does not wait for a client that takes no more bytes now.
pub(super) async fn end(stream: &mut SecureStream, last_words: &[u8]) {
    let ending = async {
        stream.write_all(last_words).await?;
        stream.shutdown().await
    };
    // Delivery is best effort.
    let _ = timeout(Duration::ZERO, ending).await;
}

/// The CAs, of a file, a folder or both, that client certificates are verified against.
fn verifier(
    config: &Config,
    is_optional: bool,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let (file, folder) = (config.file_of(&config.tls_ca_cert_file), config.file_of(&config.tls_ca_cert_dir));
    if file.is_none() && folder.is_none() {
        // Redis's own text, which people search for, although not all of its parameters exist here.
        return Err(
            "could not configure TLS: Either tls-ca-cert-file or tls-ca-cert-dir must be specified when \
             tls-cluster, tls-replication or tls-auth-clients are enabled!"
                .into(),
        );
    }
    let mut authorities = RootCertStore::empty();
    if let Some(file) = file {
        authorities.add_parsable_certificates(certificates(&file)?);
    }
    if let Some(folder) = folder {
        let found = certificates::read_folder(&folder);
        let found = found.map_err(|why| format!("could not configure TLS: tls-ca-cert-dir {why}"))?;
        authorities.add_parsable_certificates(found);
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), provider);
    let builder = if is_optional { builder.allow_unauthenticated() } else { builder };
    builder.build().map_err(|error| format!("could not configure TLS: {error}"))
}

fn certificates(file: &NamedFile) -> Result<Vec<CertificateDer<'static>>, String> {
    certificates::read_certificates(file).map_err(|why| format!("could not configure TLS: {why}"))
}

/// The file of a required parameter.
fn file(name: &str, file: Option<NamedFile>) -> Result<NamedFile, String> {
    file.ok_or_else(|| format!("could not configure TLS: No {name} configured!"))
}
