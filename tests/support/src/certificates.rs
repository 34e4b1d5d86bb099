//! Certificates for servers and clients of TLS, and clients that use them.

use std::fs;
use std::net::TcpStream;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion,
};

use crate::folder::Folder;
use crate::server::{PATIENCE, Server, free_port};

/// A connection of TLS.
pub type TlsClient = StreamOwned<ClientConnection, TcpStream>;

/// Certificates for a server and a client, and the authority that vouches for both.
pub struct Certificates {
    pub folder: Folder,
}

impl Certificates {
    pub fn new(name: &str) -> Certificates {
        let folder = Folder::new(name);
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // A name of its own: one who bears the authority's name is taken by OpenSSL for the authority.
        authority.distinguished_name.push(DnType::CommonName, "authority");
        let key = KeyPair::generate().unwrap();
        fs::write(folder.file("ca.pem"), authority.self_signed(&key).unwrap().pem()).unwrap();
        let issuer = Issuer::new(authority, key);
        for who in ["server", "client"] {
            let key = KeyPair::generate().unwrap();
            let names = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
            let certificate = names.signed_by(&key, &issuer).unwrap();
            fs::write(folder.file(&format!("{who}.pem")), certificate.pem()).unwrap();
            fs::write(folder.file(&format!("{who}.key")), key.serialize_pem()).unwrap();
        }
        Certificates { folder }
    }

    /// Gives the server a certificate that its own key has signed, and that holds until the end of a year.
    pub fn sign_server_by_itself(&self, is_authority: bool, until: i32) {
        let key = KeyPair::generate().unwrap();
        let mut own = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        if is_authority {
            own.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        own.not_after = rcgen::date_time_ymd(until, 12, 31);
        fs::write(self.file("server.pem"), own.self_signed(&key).unwrap().pem()).unwrap();
        fs::write(self.file("server.key"), key.serialize_pem()).unwrap();
    }

    /// Where one of them is.
    pub fn file(&self, name: &str) -> String {
        self.folder.file(name)
    }

    /// A server that uses them, and its port for TLS.
    pub fn serve(&self, auth_clients: &str) -> (Server, u16) {
        self.serve_with(auth_clients, &[])
    }

    /// The same with more options.
    pub fn serve_with(&self, auth_clients: &str, more: &[&str]) -> (Server, u16) {
        let tls_port = free_port();
        let file = |name: &str| self.folder.file(name);
        let options = [
            "--tls-port",
            &tls_port.to_string(),
            "--tls-cert-file",
            &file("server.pem"),
            "--tls-key-file",
            &file("server.key"),
            "--tls-ca-cert-file",
            &file("ca.pem"),
            "--tls-auth-clients",
            auth_clients,
        ];
        (Server::start_on(free_port(), &[&options, more].concat()), tls_port)
    }

    /// A client that trusts the authority, with a certificate of its own or without.
    pub fn client(&self, port: u16, has_certificate: bool) -> TlsClient {
        self.client_of(TcpStream::connect(("127.0.0.1", port)).unwrap(), has_certificate)
    }

    /// The same on a connection that is there already.
    pub fn client_of(&self, stream: TcpStream, has_certificate: bool) -> TlsClient {
        self.client_with(stream, has_certificate, &[&TLS13, &TLS12])
    }

    /// The same with these versions of TLS alone.
    pub fn client_with(
        &self,
        stream: TcpStream,
        has_certificate: bool,
        versions: &[&'static SupportedProtocolVersion],
    ) -> TlsClient {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.folder.file("ca.pem")).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots);
        let config = if has_certificate {
            let certificate = CertificateDer::from_pem_file(self.folder.file("client.pem")).unwrap();
            let key = PrivateKeyDer::from_pem_file(self.folder.file("client.key")).unwrap();
            // Without a look at it: other libraries let a client show a certificate that this one would not.
            let key = default_provider().key_provider.load_private_key(key).unwrap();
            let pair = SingleCertAndKey::from(CertifiedKey::new(vec![certificate], key));
            builder.with_client_cert_resolver(Arc::new(pair))
        } else {
            builder.with_no_client_auth()
        };
        let connection = ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        StreamOwned::new(connection, stream)
    }
}
