//! The other ways to connect: the Unix socket, and TLS.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::client::Client;
use crate::folder::Folder;
use crate::server::{PATIENCE, Server, free_port, program};
use crate::starting::outward_address;

/// Sends a line and reads what comes back, which must be this.
#[track_caller]
fn expect(stream: &mut (impl Read + Write), line: &str, expected: &str) {
    stream.write_all(format!("{line}\r\n").as_bytes()).unwrap();
    let mut reply = vec![0; expected.len()];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(String::from_utf8(reply).unwrap(), expected);
}

fn unix_client(path: &str) -> UnixStream {
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

#[test]
fn a_unix_socket_serves_and_is_gone_afterwards() {
    let folder = Folder::new("unix");
    let path = folder.file("keyfast.sock");
    fs::write(&path, "left by a server before").unwrap();
    let mut server = Server::start_on(free_port(), &["--unixsocket", &path, "--unixsocketperm", "700"]);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    let mut stream = unix_client(&path);
    expect(&mut stream, "SETNX lock mine", ":1\r\n");
    expect(&mut stream, "CONFIG GET unixsocketperm", "*2\r\n$14\r\nunixsocketperm\r\n$3\r\n700\r\n");
    let mut other = server.client();
    other.line("SETNX lock theirs").is(0);
    let list = other.line("CLIENT LIST").text();
    assert!(list.contains(&format!("addr={path}:0 laddr={path}:0 ")), "{list}");
    assert!(list.contains(" flags=U "), "{list}");
    server.signal("TERM");
    assert!(server.wait_for_end().success());
    assert!(!Path::new(&path).exists());
}

#[test]
fn the_file_of_the_socket_never_outlives_the_server() {
    let folder = Folder::new("unix-gone");
    let path = folder.file("keyfast.sock");
    // A race between the end and the removal would be lost now and then, not every time.
    for attempt in 0..30 {
        let mut server = Server::start_on(free_port(), &["--unixsocket", &path]);
        server.signal("TERM");
        assert!(server.wait_for_end().success());
        assert!(!Path::new(&path).exists(), "attempt {attempt}");
    }
}

#[test]
fn a_server_that_cannot_start_leaves_the_socket_of_another_alone() {
    let folder = Folder::new("unix-other");
    let path = folder.file("keyfast.sock");
    let port = free_port().to_string();
    let _server = Server::start_on(port.parse().unwrap(), &["--unixsocket", &path]);
    let options = ["--port", &port, "--bind", "127.0.0.1", "--unixsocket", &path];
    let second = Command::new(program()).args(options).output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    expect(&mut unix_client(&path), "PING", "+PONG\r\n");
}

type TlsClient = StreamOwned<ClientConnection, TcpStream>;

/// Certificates for a server and a client, and the authority that vouches for both.
pub(crate) struct Certificates {
    folder: Folder,
}

impl Certificates {
    pub(crate) fn new(name: &str) -> Certificates {
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

    /// Where one of them is.
    pub(crate) fn file(&self, name: &str) -> String {
        self.folder.file(name)
    }

    /// A server that uses them, and its port for TLS.
    pub(crate) fn serve(&self, auth_clients: &str) -> (Server, u16) {
        self.serve_with(auth_clients, &[])
    }

    /// The same with more options.
    fn serve_with(&self, auth_clients: &str, more: &[&str]) -> (Server, u16) {
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
    fn client(&self, port: u16, has_certificate: bool) -> TlsClient {
        self.client_of(TcpStream::connect(("127.0.0.1", port)).unwrap(), has_certificate)
    }

    /// The same on a connection that is there already.
    fn client_of(&self, stream: TcpStream, has_certificate: bool) -> TlsClient {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.folder.file("ca.pem")).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = if has_certificate {
            let certificate = CertificateDer::from_pem_file(self.folder.file("client.pem")).unwrap();
            let key = PrivateKeyDer::from_pem_file(self.folder.file("client.key")).unwrap();
            builder.with_client_auth_cert(vec![certificate], key).unwrap()
        } else {
            builder.with_no_client_auth()
        };
        let connection = ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        StreamOwned::new(connection, stream)
    }
}

#[test]
fn clients_with_a_certificate_are_served_over_tls() {
    let certificates = Certificates::new("tls");
    let (server, tls_port) = certificates.serve("yes");
    // One that says nothing keeps nobody waiting, and one that does not speak TLS does no harm.
    let silent = TcpStream::connect(("127.0.0.1", tls_port)).unwrap();
    let mut plain = TcpStream::connect(("127.0.0.1", tls_port)).unwrap();
    plain.write_all(b"SETNX lock plain\r\n").unwrap();
    let mut client = certificates.client(tls_port, true);
    expect(&mut client, "SETNX lock mine", ":1\r\n");
    let value = "v".repeat(100_000);
    expect(&mut client, &format!("*3\r\n$3\r\nSET\r\n$4\r\nlong\r\n$100000\r\n{value}"), "+OK\r\n");
    expect(&mut client, "GET long", &format!("$100000\r\n{value}\r\n"));
    server.client().line("GET lock").is("mine");
    let mut stranger = certificates.client(tls_port, false);
    let refused = stranger.write_all(b"PING\r\n").and_then(|()| stranger.read(&mut [0; 64]));
    assert!(refused.is_err(), "{refused:?}");
    drop(silent);
}

#[test]
fn a_certificate_is_asked_for_only_as_the_parameters_say() {
    let certificates = Certificates::new("tls-optional");
    for auth_clients in ["optional", "no"] {
        let (_server, tls_port) = certificates.serve(auth_clients);
        expect(&mut certificates.client(tls_port, false), "PING", "+PONG\r\n");
        expect(&mut certificates.client(tls_port, true), "PING", "+PONG\r\n");
    }
}

/// Waits until only one client is connected, which asks.
#[track_caller]
fn wait_until_alone(client: &mut Client) {
    let deadline = Instant::now() + PATIENCE / 2;
    while client.info("connected_clients") != "1" {
        assert!(Instant::now() < deadline, "{}", client.line("CLIENT LIST").text());
    }
}

#[test]
fn a_client_that_does_not_read_over_tls_can_be_made_to_leave() {
    let certificates = Certificates::new("tls-unread");
    let (server, tls_port) = certificates.serve("no");
    let mut other = server.client();
    // A reply that TLS takes as a whole, also where the socket has no room left.
    other.cmd(["SET", "value", &"v".repeat(50_000)]).is_ok();
    let mut client = certificates.client(tls_port, false);
    expect(&mut client, "PING", "+PONG\r\n");
    let is_answered = |other: &mut Client, gets: usize| {
        let since = Instant::now();
        while since.elapsed() < Duration::from_millis(200) {
            if other.info("keyspace_hits") == gets.to_string() {
                return true;
            }
        }
        false
    };
    let mut gets = 1;
    client.write_all(b"GET value\r\n").unwrap();
    // Redis would go on reading, and keep the replies.
    while gets < 1000 && is_answered(&mut other, gets) {
        client.write_all(b"GET value\r\n").unwrap();
        gets += 1;
    }
    other.line(&format!("CLIENT KILL LADDR 127.0.0.1:{tls_port}")).is(1);
    wait_until_alone(&mut other);
}

#[test]
fn a_client_that_has_not_greeted_can_be_made_to_leave() {
    let (server, tls_port) = Certificates::new("tls-silent").serve("no");
    let mut other = server.client();
    let _silent = TcpStream::connect(("127.0.0.1", tls_port)).unwrap();
    while other.info("connected_clients") != "2" {}
    other.line(&format!("CLIENT KILL LADDR 127.0.0.1:{tls_port}")).is(1);
    wait_until_alone(&mut other);
}

#[test]
fn a_conversation_over_tls_has_an_end() {
    let certificates = Certificates::new("tls-end");
    let (_server, tls_port) = certificates.serve("no");
    let mut client = certificates.client(tls_port, false);
    expect(&mut client, "QUIT", "+OK\r\n");
    // One that was cut off is an error.
    assert_eq!(client.read(&mut [0; 64]).unwrap(), 0);
}

#[test]
fn the_port_for_tls_is_told_where_there_is_no_other() {
    let certificates = Certificates::new("tls-alone");
    let (_server, tls_port) = certificates.serve_with("no", &["--port", "0"]);
    let mut client = certificates.client(tls_port, false);
    client.write_all(b"INFO server\r\nQUIT\r\n").unwrap();
    let mut told = String::new();
    client.read_to_string(&mut told).unwrap();
    assert!(told.contains(&format!("\r\ntcp_port:{tls_port}\r\n")), "{told}");
}

#[test]
fn a_full_server_says_nothing_that_a_client_of_tls_would_not_understand() {
    let certificates = Certificates::new("tls-full");
    let (server, tls_port) = certificates.serve("no");
    let mut other = server.client();
    other.line("CONFIG SET maxclients 1").is_ok();
    let mut refused = TcpStream::connect(("127.0.0.1", tls_port)).unwrap();
    refused.set_read_timeout(Some(PATIENCE / 2)).unwrap();
    assert_eq!(refused.read(&mut [0; 64]).unwrap(), 0);
    assert_eq!(other.info("rejected_connections"), "1");
    assert_eq!(other.info("total_connections_received"), "1");
}

#[test]
fn protected_mode_explains_itself_over_tls() {
    // Without a network there are no others.
    let Some(outward) = outward_address() else { return };
    let certificates = Certificates::new("tls-protected");
    let (_server, tls_port) = certificates.serve_with("no", &["--bind", "*"]);
    let stream = TcpStream::connect((outward.ip(), tls_port)).unwrap();
    let mut explanation = String::new();
    certificates.client_of(stream, false).read_to_string(&mut explanation).unwrap();
    assert!(explanation.starts_with("-DENIED Redis is running in protected mode"), "{explanation}");
}

#[test]
fn what_is_wrong_with_the_certificates_is_said_in_one_line() {
    let certificates = Certificates::new("tls-wrong");
    let file = |name: &str| certificates.folder.file(name);
    let (certificate, key, nothing) = (file("server.pem"), file("server.key"), file("nothing.pem"));
    let other_key = file("client.key");
    for (options, expected) in [
        (vec![], "No tls-cert-file configured!"),
        (vec!["--tls-cert-file", &certificate], "No tls-key-file configured!"),
        (
            vec!["--tls-cert-file", &certificate, "--tls-key-file", &key],
            "Either tls-ca-cert-file or tls-ca-cert-dir must be specified when tls-cluster, tls-replication \
             or tls-auth-clients are enabled!",
        ),
        (vec!["--tls-cert-file", &nothing, "--tls-key-file", &key], "nothing.pem"),
        (
            vec!["--tls-cert-file", &certificate, "--tls-key-file", &other_key, "--tls-auth-clients", "no"],
            "client.key",
        ),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_keyfast"));
        let output =
            command.args(["--port", "0", "--tls-port", &free_port().to_string()]).args(options).output();
        let output = output.unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(expected) && said.lines().count() == 1, "{said}");
    }
}
