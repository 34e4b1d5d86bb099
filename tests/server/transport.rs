//! The other ways to connect: the Unix socket, and TLS.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use tokio_rustls::rustls::SupportedProtocolVersion;
use tokio_rustls::rustls::version::{TLS12, TLS13};

use crate::starting::outward_address;
use support::certificates::Certificates;
use support::client::Client;
use support::folder::Folder;
use support::server::{PATIENCE, Server, free_port, program};

/// Sends a line and reads what comes back, which must be this.
#[track_caller]
pub(crate) fn expect(stream: &mut (impl Read + Write), line: &str, expected: &str) {
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

#[test]
fn the_authorities_may_be_the_files_of_a_folder() {
    let (certificates, others) = (Certificates::new("ca-folder"), Certificates::new("ca-folder-other"));
    let folder = Folder::new("ca-folder-files");
    fs::copy(certificates.file("ca.pem"), folder.file("8c7b6a5f.0")).unwrap();
    fs::copy(others.file("ca.pem"), folder.file("other authority")).unwrap();
    fs::write(folder.file("README"), "no certificate").unwrap();
    std::os::unix::fs::symlink("gone", folder.file("link")).unwrap();
    let path = folder.file("");
    let options = ["--tls-ca-cert-file", "", "--tls-ca-cert-dir", &path];
    let (server, port) = certificates.serve_with("yes", &options);
    expect(&mut certificates.client(port, true), "PING", "+PONG\r\n");
    let refused = |port: u16| {
        let mut without = certificates.client(port, false);
        let sent = without.write_all(b"PING\r\n").and_then(|()| without.flush());
        sent.is_err() || without.read(&mut [0]).is_err()
    };
    assert!(refused(port));
    // Only the file's authority is left once the folder has none but the other one.
    fs::remove_file(folder.file("8c7b6a5f.0")).unwrap();
    let mut client = server.client();
    client.cmd(["CONFIG", "SET", "tls-ca-cert-dir", &path]).is_ok();
    let mut unknown = certificates.client(port, true);
    let sent = unknown.write_all(b"PING\r\n").and_then(|()| unknown.flush());
    assert!(sent.is_err() || unknown.read(&mut [0]).is_err());
    client.cmd(["CONFIG", "SET", "tls-ca-cert-file", &certificates.file("ca.pem")]).is_ok();
    expect(&mut certificates.client(port, true), "PING", "+PONG\r\n");
    // What cannot be read, or holds nothing, changes nothing.
    let empty = Folder::new("ca-folder-empty");
    for (path, why) in [
        (empty.file(""), "no file in it holds a certificate"),
        (empty.file("nosuch"), "No such file or directory"),
    ] {
        let said = client.cmd(["CONFIG", "SET", "tls-ca-cert-dir", &path]).text();
        assert!(said.ends_with("Unable to update TLS configuration. Check server logs."), "{said}");
        server.wait_for_output(&format!("tls-ca-cert-dir {path}: {why}"));
    }
    expect(&mut certificates.client(port, true), "PING", "+PONG\r\n");
}

#[test]
fn clients_with_a_certificate_are_served_over_tls() {
    let certificates = Certificates::new("tls");
    let (server, tls_port) = certificates.serve("yes");
    // A client that sends nothing delays no other, and one that does not speak TLS does no harm.
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

#[test]
fn a_fault_ends_a_connection_of_tls_within_a_reply() {
    let certificates = Certificates::new("tls-cut");
    let (server, tls_port) = certificates.serve_with("no", &["--enable-fault-command", "yes"]);
    let mut planter = server.client();
    planter.cmd(["SET", "k", &"x".repeat(100_000)]).is_ok();
    planter.line("FAULT ADD ON get CUT 70000").is(1);
    let mut client = certificates.client(tls_port, false);
    client.write_all(b"STRLEN k\r\nGET k\r\nPING\r\n").unwrap();
    let mut replies = Vec::new();
    client.read_to_end(&mut replies).unwrap();
    let expected = [b":100000\r\n$100000\r\n", &b"x".repeat(100_000)[..]].concat();
    assert_eq!(replies, expected[..":100000\r\n".len() + 70_000]);
}

/// What a handshake with one version of TLS agrees on: the cipher suite, or why there is none.
fn agreed(
    certificates: &Certificates,
    port: u16,
    version: &'static SupportedProtocolVersion,
) -> Result<String, String> {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut client = certificates.client_with(stream, false, &[version]);
    let greeted = client.write_all(b"PING\r\n").and_then(|()| client.read_exact(&mut [0; 7]));
    greeted.map_err(|error| error.to_string())?;
    Ok(format!("{:?}", client.conn.negotiated_cipher_suite().expect("a suite").suite()))
}

const NOT_UPDATED: &str = "Unable to update TLS configuration. Check server logs.";

#[test]
fn versions_and_suites_of_tls_are_those_of_the_parameters() {
    let certificates = Certificates::new("tls-versions");
    let (server, port) = certificates.serve_with("no", &["--tls-protocols", "TLSv1.3"]);
    let mut client = server.client();
    let agreed = |version| agreed(&certificates, port, version);
    assert!(agreed(&TLS12).unwrap_err().contains("ProtocolVersion"), "{:?}", agreed(&TLS12));
    agreed(&TLS13).unwrap();
    client.line("CONFIG SET tls-protocols \"TLSv1.1 TLSv1.2\"").is_ok();
    assert!(agreed(&TLS13).unwrap_err().contains("ProtocolVersion"), "{:?}", agreed(&TLS13));
    client.line("CONFIG SET tls-protocols \"\" tls-ciphers ECDHE-ECDSA-CHACHA20-POLY1305").is_ok();
    assert_eq!(agreed(&TLS12).unwrap(), "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256");
    client.line("CONFIG SET tls-ciphersuites TLS_AES_128_GCM_SHA256").is_ok();
    assert_eq!(agreed(&TLS13).unwrap(), "TLS13_AES_128_GCM_SHA256");
    client.line("CONFIG SET tls-ciphers \"\" tls-ciphersuites \"\"").is_ok();
    let by_client = agreed(&TLS13).unwrap();
    assert_ne!(by_client, "TLS13_CHACHA20_POLY1305_SHA256", "the client likes another one better");
    let order = "TLS_CHACHA20_POLY1305_SHA256:TLS_AES_256_GCM_SHA384:TLS_AES_128_GCM_SHA256";
    client.line(&format!("CONFIG SET tls-ciphersuites {order}")).is_ok();
    assert_eq!(agreed(&TLS13).unwrap(), by_client);
    client.line("CONFIG SET tls-prefer-server-ciphers yes").is_ok();
    assert_eq!(agreed(&TLS13).unwrap(), "TLS13_CHACHA20_POLY1305_SHA256");
    for (name, value, why) in [
        ("tls-protocols", "TLSv1", "Keyfast has TLSv1.2 and TLSv1.3 only"),
        ("tls-protocols", "SSLv3", "Invalid tls-protocols specified."),
        ("tls-ciphers", "AES128-SHA", "has none of the suites of Keyfast: ECDHE-"),
        ("tls-ciphers", "HIGH:!aNULL", "'!aNULL' is not understood; the suites are ECDHE-"),
        ("tls-ciphersuites", "nosuch", "'nosuch' is not understood"),
    ] {
        let before = client.line(&format!("CONFIG GET {name}")).items();
        client.cmd(["CONFIG", "SET", name, value]).is_error(&format!(
            "ERR CONFIG SET failed (possibly related to argument '{name}') - {NOT_UPDATED}"
        ));
        server.wait_for_output(why);
        assert_eq!(client.line(&format!("CONFIG GET {name}")).items(), before);
        assert_eq!(agreed(&TLS13).unwrap(), "TLS13_CHACHA20_POLY1305_SHA256");
        // The same at the start.
        let output = Command::new(env!("CARGO_BIN_EXE_keyfast"))
            .args(["--port", "0", "--tls-port", "6390", "--tls-auth-clients", "no"])
            .args(["--tls-cert-file", &certificates.file("server.pem")])
            .args(["--tls-key-file", &certificates.file("server.key"), &format!("--{name}"), value])
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.starts_with("keyfast: could not configure TLS: ") && said.contains(why), "{said}");
    }
}

#[test]
fn a_new_certificate_takes_no_restart_and_a_wrong_one_changes_nothing() {
    let certificates = Certificates::new("tls-renewed");
    let (server, port) = certificates.serve("yes");
    let file = |name: &str| certificates.file(name);
    let shown = || {
        let mut client = certificates.client(port, true);
        expect(&mut client, "PING", "+PONG\r\n");
        client.conn.peer_certificates().expect("a certificate")[0].to_vec()
    };
    let (old, mut connected) = (shown(), certificates.client(port, true));
    expect(&mut connected, "PING", "+PONG\r\n");
    let mut client = server.client();
    // The certificate of another server: the files have other names, and both are set at once.
    client
        .cmd(["CONFIG", "SET", "tls-cert-file", &file("client.pem"), "tls-key-file", &file("client.key")])
        .is_ok();
    let new = shown();
    assert_ne!(new, old);
    expect(&mut connected, "PING", "+PONG\r\n");
    // The key does not belong to the certificate, or there is no such file.
    for (name, value) in
        [("tls-cert-file", "server.pem"), ("tls-key-file", "nosuch"), ("tls-ca-cert-file", "")]
    {
        let before = client.line(&format!("CONFIG GET {name}")).items();
        let value = if value.is_empty() { String::new() } else { file(value) };
        client.cmd(["CONFIG", "SET", name, &value]).is_error(&format!(
            "ERR CONFIG SET failed (possibly related to argument '{name}') - {NOT_UPDATED}"
        ));
        assert_eq!(client.line(&format!("CONFIG GET {name}")).items(), before);
        assert_eq!(shown(), new);
    }
    server.wait_for_output("the key does not belong to the certificate");
    // Files under the same names are read anew.
    for kind in ["pem", "key"] {
        fs::copy(file(&format!("server.{kind}")), file(&format!("client.{kind}.new"))).unwrap();
        fs::rename(file(&format!("client.{kind}")), file(&format!("own.{kind}"))).unwrap();
        fs::rename(file(&format!("client.{kind}.new")), file(&format!("client.{kind}"))).unwrap();
    }
    assert_eq!(shown(), new, "not before it is told");
    // What fails with another parameter does not read them.
    client.cmd(["CONFIG", "SET", "tls-cert-file", &file("client.pem"), "maxclients", "4294967295"]).text();
    assert_eq!(shown(), new);
    client.cmd(["CONFIG", "SET", "tls-cert-file", &file("client.pem")]).is_ok();
    assert_eq!(shown(), old);
    // Whose certificates are asked for, and by whom they must be signed.
    let admits_strangers = || {
        let mut stranger = certificates.client(port, false);
        stranger.write_all(b"PING\r\n").and_then(|()| stranger.read_exact(&mut [0; 7])).is_ok()
    };
    assert!(!admits_strangers());
    client.line("CONFIG SET tls-auth-clients no").is_ok();
    assert!(admits_strangers());
    client.cmd(["CONFIG", "SET", "tls-auth-clients", "yes", "tls-ca-cert-file", &file("own.pem")]).is_ok();
    let mut other = certificates.client(port, true);
    assert!(other.write_all(b"PING\r\n").and_then(|()| other.read_exact(&mut [0; 7])).is_err());
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

marked!(needs_tools: protected_mode_explains_itself_over_tls);
fn protected_mode_explains_itself_over_tls() {
    let Some(outward) = outward_address() else { return };
    let certificates = Certificates::new("tls-protected");
    let (_server, tls_port) = certificates.serve_with("no", &["--bind", "*"]);
    let stream = TcpStream::connect((outward.ip(), tls_port)).unwrap();
    let mut explanation = String::new();
    certificates.client_of(stream, false).read_to_string(&mut explanation).unwrap();
    assert!(explanation.starts_with("-DENIED Redis is running in protected mode"), "{explanation}");
}

/// A certificate of version 1, as `openssl x509 -req` makes it, and its key.
const OF_VERSION_1: &str = "\
-----BEGIN CERTIFICATE-----
MIIBEzCBuwIUZnQ1sH/isGI+AbUOEHDG/iQvfmAwCgYIKoZIzj0EAwIwDDEKMAgG
A1UEAwwBeDAgFw0yNjExMjEyMzI3MzBaGA8yMTI2MTAyODIzMjczMFowDDEKMAgG
A1UEAwwBeDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABKd8wlizk2U9BetQVz7O
29d/vIvCIV/JN2jr7YksfNZM5W7TSgfMGwd79GaN7qu6CjJ5v0ZR41kgtaDRl30b
iWswCgYIKoZIzj0EAwIDRwAwRAIgH/IZgBvU/QbYsATQujyMh4zOJmnGo4XLoVZt
avvudRUCIEvvuBS4gcEpFnECZG+MeRWo7BFiPPBYKYrfiu1wa1hE
-----END CERTIFICATE-----
";
const KEY_OF_VERSION_1: &str = "\
-----BEGIN EC PRIVATE KEY-----
MHcCAQEEIAhXDxtLBoKwum51YhnouI5+gGG35e7bClgaYrSewSsJoAoGCCqGSM49
AwEHoUQDQgAEp3zCWLOTZT0F61BXPs7b13+8i8IhX8k3aOvtiSx81kzlbtNKB8wb
B3v0Zo3uq7oKMnm/RlHjWSC1oNGXfRuJaw==
-----END EC PRIVATE KEY-----
";
/// The same key encrypted, in both forms in which OpenSSL writes one.
const ENCRYPTED_KEYS: [&str; 2] = [
    "\
-----BEGIN ENCRYPTED PRIVATE KEY-----
MIHsMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAiAnen4i9VG3wICCAAw
DAYIKoZIhvcNAgkFADAdBglghkgBZQMEAQIEEHUnHTP0jkFcgDb0kv+N3YoEgZAA
EMuNJxNcAemyZ5995P9Z+Gts2gHIEAa9FZsw5MXWoK4AzSTjH+H6KocfuFGyODbx
C7JXLXylpUh3g3Ojyn9U5AAAy/HWkEunsOBchfWkhS2XTHFWxVVh8Y9fowmC/1wG
q3Qt9DnOhzgPpTb7SN7F5J3FaNg9bpSJ+k8RKDKeHi6t4jPf9PjhWoZinj05PC4=
-----END ENCRYPTED PRIVATE KEY-----
",
    "\
-----BEGIN EC PRIVATE KEY-----
Proc-Type: 4,ENCRYPTED
DEK-Info: AES-128-CBC,F13041555330C54463BCC06D4838C5A0

p2NZ12+5JPt2RsUkaLRdkALaY3nMocpJ5niz1hf7ChPJ1ITzMInip2boEL2XAtyd
HqMIzudKvrQkWsdBpxlATvv5vz4obVj4skbnJWOwaqeE2Y34CIj5pqjGNTQlaLYd
LE88BFkew5itziifDyoisTcwgzW7HtBL5zBnsR8KTco=
-----END EC PRIVATE KEY-----
",
];

#[test]
fn what_is_wrong_with_a_clients_certificate_is_logged() {
    let certificates = Certificates::new("tls-old-client");
    let (server, tls_port) = certificates.serve_with("yes", &["--loglevel", "verbose"]);
    expect(&mut certificates.client(tls_port, true), "PING", "+PONG\r\n");
    fs::write(certificates.file("client.pem"), OF_VERSION_1).unwrap();
    fs::write(certificates.file("client.key"), KEY_OF_VERSION_1).unwrap();
    let mut refused = certificates.client(tls_port, true);
    // The server has not seen the certificate when the client takes the handshake for done.
    let _ = refused.write_all(b"PING\r\n");
    let error = refused.read(&mut [0; 1]).unwrap_err().to_string();
    assert!(error.contains("received fatal alert"), "{error}");
    server.wait_for_output("- Error accepting a TLS client 127.0.0.1:");
    server.wait_for_output(
        ": certificate verify failed (the certificate is of version 1, and must be of version 3 (",
    );
}

#[test]
fn what_is_wrong_with_the_certificates_is_said_in_one_line() {
    let certificates = Certificates::new("tls-wrong");
    let file = |name: &str| certificates.folder.file(name);
    let (certificate, key, nothing) = (file("server.pem"), file("server.key"), file("nothing.pem"));
    let other_key = file("client.key");
    let write = |name: &str, text: &str| certificates.folder.write(name, text);
    let old = [write("old.pem", OF_VERSION_1), write("old.key", KEY_OF_VERSION_1)];
    let encrypted = [write("pkcs8.key", ENCRYPTED_KEYS[0]), write("pkcs1.key", ENCRYPTED_KEYS[1])];
    let binary = write("server.der", "0\x03\x02\x01\x00");
    let damaged = write("damaged.pem", "-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n");
    for (pair, expected) in [
        (
            [&certificate, &other_key],
            "server.pem with X/client.key: the key does not belong to the certificate",
        ),
        (
            [&old[0], &old[1]],
            "old.pem with X/old.key: the certificate is of version 1, and must be of version 3",
        ),
        ([&certificate, &encrypted[0]], "X/pkcs8.key: the key is encrypted (openssl pkey"),
        ([&certificate, &encrypted[1]], "X/pkcs1.key: the key is encrypted (openssl pkey"),
        ([&binary, &key], "X/server.der: it is not in PEM (openssl x509 -inform der converts it)"),
        ([&certificate, &binary], "X/server.der: it is not in PEM (openssl pkey -inform der converts it)"),
        ([&key, &certificate], "X/server.key: it holds a key, but no certificate"),
        ([&certificate, &certificate], "X/server.pem: it holds a certificate, but no key"),
        ([&damaged, &key], "X/damaged.pem: its PEM is damaged"),
        ([&nothing, &key], "X/nothing.pem: No such file or directory"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_keyfast"));
        command.args(["--port", "0", "--tls-port", "6390", "--tls-auth-clients", "no"]);
        let output = command.args(["--tls-cert-file", pair[0], "--tls-key-file", pair[1]]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        let expected = expected.replace("X/", &file(""));
        assert!(said.starts_with("keyfast: could not configure TLS: ") && said.contains(&expected), "{said}");
        assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    }
    for (options, expected) in [
        (vec![], "No tls-cert-file configured!"),
        (vec!["--tls-cert-file", &certificate], "No tls-key-file configured!"),
        (
            vec!["--tls-cert-file", &certificate, "--tls-key-file", &key],
            "Either tls-ca-cert-file or tls-ca-cert-dir must be specified when tls-cluster, tls-replication \
             or tls-auth-clients are enabled!\n",
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
