//! TLS and passwords towards both stores: who is trusted, and what becomes of a front-end that is not let in.

use std::thread;
use std::time::{Duration, Instant};

use super::is_told_of_changes;
use support::certificates::Certificates;
use support::client::{Client, Reply};
use support::folder::Folder;
use support::server::Server;
use support::store::cluster::{eventually, front};
use support::store::etcd::Etcd;
use support::store::postgres::Postgres;
use support::tools::installed;

/// A password that must not be printed, as a URL has it, and the part of it that no percent sign changes.
const SECRET: &str = "hush%40hush";
const SECRET_PART: &str = "hush";

/// Certificates for `localhost`: the address 127.0.0.1 is not in them.
fn certificates(test: &str) -> (Certificates, [String; 2], String) {
    let certificates = Certificates::new(&format!("certificates-{test}"));
    let [certificate, key, authority] =
        ["server.pem", "server.key", "ca.pem"].map(|name| certificates.file(name));
    (certificates, [certificate, key], authority)
}

/// A front-end that is not let in says why in its log, once, and refuses its clients in time.
#[track_caller]
fn is_refused(url: &str, options: &[&str], why: &str) {
    let server = Server::start_with(
        &[&["--store", url, "--store-timeout", "1000", "--loglevel", "debug"], options].concat(),
    );
    server.wait_for_output("Cannot reach the store ");
    let mut client = server.client();
    for line in ["SETNX k v", "GET k", "DBSIZE"] {
        let began = Instant::now();
        let text = client.line(line).text();
        assert!(text.starts_with("STOREDOWN "), "{line}: {text}");
        assert!(began.elapsed() < Duration::from_secs(15), "{line}: {:?}", began.elapsed());
        assert!(!text.contains(SECRET_PART), "{text}");
    }
    client.line("PING").is_simple("PONG");
    let output = server.output();
    let told: Vec<_> = output.lines().filter(|line| line.contains("Cannot reach the store ")).collect();
    assert!(told.iter().any(|line| line.contains(why)), "{why:?} is not in {told:?}");
    assert!(!output.contains(SECRET_PART), "{output}");
}

/// Two front-ends, with all connections that they have.
#[track_caller]
fn are_let_in(url: &str, options: &[&str]) -> [Server; 2] {
    let fronts = ["one", "other"].map(|name| front(url, &[&["--store-name", name], options].concat()));
    let (mut one, mut other) = (fronts[0].client(), fronts[1].client());
    one.line("SETNX lock a").is(1);
    other.line("SETNX lock b").is(0);
    other.line("GET lock").is("a");
    other.line("SET short v PX 100").is_ok();
    eventually("it expires", || one.line("EXISTS short").reply() == Reply::Integer(0));
    one.line("DBSIZE").is(1);
    let mut listener = listener(&fronts);
    other.line("PUBLISH channel last").is(0);
    wait_for_message(&mut listener, "last");
    one.line("DEL lock").is(1);
    for server in &fronts {
        assert!(!server.output().contains(SECRET_PART), "{}", server.output());
    }
    fronts
}

/// A client of the first front-end that receives what those of the second one publish.
fn listener(fronts: &[Server; 2]) -> Client {
    let (mut listener, mut speaker) = (fronts[0].client(), fronts[1].client());
    listener.line("SUBSCRIBE channel").ignored();
    eventually("a message crosses over", || {
        speaker.line("PUBLISH channel first").is(0);
        !listener.is_silent_for(Duration::from_millis(50))
    });
    listener
}

#[track_caller]
fn wait_for_message(listener: &mut Client, message: &str) {
    let expected = format!(r#"["message", "channel", "{message}"]"#);
    while listener.reply().reply().to_string() != expected {}
}

marked!(needs_tools: postgresql_is_reached_by_tls_if_its_certificate_is_trusted);
fn postgresql_is_reached_by_tls_if_its_certificate_is_trusted() {
    let Some(store) = Postgres::start("secure-tls", 1) else { return };
    let (files, certificate, authority) = certificates("tls");
    let trusting = ["--store-tls-ca-cert-file", &authority];
    let url = |host, option| store.url_of("keyfast", host, option);
    is_refused(&url("localhost", "?sslmode=require"), &trusting, "server does not support TLS");
    store.secure(Some(certificate), "hostssl all all 127.0.0.1/32 trust\n");
    for option in ["?sslmode=require", ""] {
        let _fronts = are_let_in(&url("localhost", option), &trusting);
        let connections = "SELECT ssl, count(*) > 4 FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
            WHERE application_name LIKE 'keyfast %' GROUP BY ssl";
        assert_eq!(store.sql(0, connections), Ok("t|t".to_owned()));
    }
    let mistrusting = ["--store-tls-ca-cert-file", &files.file("client.pem")];
    let refused = "its certificate is refused: none of the trusted authorities has issued it";
    for option in ["?sslmode=require", ""] {
        is_refused(&url("localhost", option), &mistrusting, refused);
        is_refused(&url("localhost", option), &[], refused);
    }
    let refused = "its certificate is refused: the certificate is for another name";
    is_refused(&url("127.0.0.1", "?sslmode=require"), &trusting, refused);
    is_refused(&url("localhost", "?sslmode=disable"), &trusting, "no encryption");
    // Another authority has the same name.
    let (_other, _, authority) = certificates("tls-other");
    let refused = "its certificate is refused: its signature is wrong";
    is_refused(&url("localhost", "?sslmode=require"), &["--store-tls-ca-cert-file", &authority], refused);
    let missing = ["--store-tls-ca-cert-file", "/nothing/here.pem"];
    is_refused(&url("localhost", "?sslmode=require"), &missing, "/nothing/here.pem: No such file");
}

marked!(needs_tools: postgresql_asks_for_a_password_with_and_without_tls);
fn postgresql_asks_for_a_password_with_and_without_tls() {
    let Some(store) = Postgres::start("secure-password", 1) else { return };
    let (_folder, certificate, authority) = certificates("password");
    let trusting = ["--store-tls-ca-cert-file", &authority];
    store.sql(0, "CREATE ROLE me LOGIN SUPERUSER PASSWORD 'hush@hush'").expect("a user");
    let access = "host all keyfast 127.0.0.1/32 trust\nhost all me 127.0.0.1/32 scram-sha-256\n";
    store.secure(Some(certificate), access);
    let me = format!("me:{SECRET}");
    for (option, host) in [("?sslmode=disable", "127.0.0.1"), ("?sslmode=require", "localhost")] {
        let url = |user| store.url_of(user, host, option);
        let _fronts = are_let_in(&url(&me), &trusting);
        is_refused(&url("me:wronghush"), &trusting, "password authentication failed for user \"me\"");
        is_refused(&url("me"), &trusting, "password missing");
    }
}

marked!(needs_tools: etcd_is_reached_by_tls_if_its_certificate_is_trusted);
fn etcd_is_reached_by_tls_if_its_certificate_is_trusted() {
    let Some(mut etcd) = Etcd::start("secure-tls", 1) else { return };
    let (files, certificate, authority) = certificates("etcd-tls");
    let trusting = ["--store-tls-ca-cert-file", &authority];
    let port = etcd.port(0);
    let url = |host: &str, option: &str| format!("etcd://{host}:{port}{option}");
    is_refused(
        &url("localhost", "?sslmode=require"),
        &trusting,
        "it ends the connection where TLS should begin",
    );
    etcd.use_tls(certificate);
    drop(are_let_in(&url("localhost", "?sslmode=require"), &trusting));
    let mistrusting = ["--store-tls-ca-cert-file", &files.file("client.pem")];
    let refused = "its certificate is refused: none of the trusted authorities has issued it";
    is_refused(&url("localhost", "?sslmode=require"), &mistrusting, refused);
    is_refused(&url("localhost", "?sslmode=require"), &[], refused);
    let refused = "its certificate is refused: the certificate is for another name";
    is_refused(&url("127.0.0.1", "?sslmode=require"), &trusting, refused);
    for option in ["", "?sslmode=disable"] {
        is_refused(&url("localhost", option), &trusting, "it may want TLS (?sslmode=require)");
    }
}

marked!(needs_tools: etcd_asks_for_a_password_with_and_without_tls);
fn etcd_asks_for_a_password_with_and_without_tls() {
    let Some(mut etcd) = Etcd::start("secure-password", 1) else { return };
    let (_folder, certificate, authority) = certificates("etcd-password");
    let port = etcd.port(0);
    let url = |user: &str, option: &str| format!("etcd://{user}localhost:{port}{option}");
    let me = format!("me:{SECRET}@");
    // A password that etcd does not ask for does no harm, also if it asks for it later.
    let fronts = are_let_in(&url(&me, ""), &[]);
    etcd.ask_for_passwords("hush@hush");
    fronts[0].client().line("SETNX lock a").is(1);
    fronts[1].client().line("DEL lock").is(1);
    for option in ["", "?sslmode=require"] {
        let options = ["--store-tls-ca-cert-file", authority.as_str()];
        drop(are_let_in(&url(&me, option), &options));
        is_refused(
            &url("me:wronghush@", option),
            &options,
            "authentication failed, invalid user ID or password",
        );
        is_refused(&url("", option), &options, "user name is empty");
        is_refused(&url(&me, &format!("/elsewhere{option}")), &options, "permission denied");
        if option.is_empty() {
            etcd.use_tls(certificate.clone());
        }
    }
}

/// The store asks for a certificate: a front-end with the right one is let in, one with none or another is
/// not.
fn asks_for_certificates(
    (store, url): (&str, &str),
    (files, authority): (&Certificates, &str),
    (none, untrusted): (&str, &str),
) {
    let trusting = ["--store-tls-ca-cert-file", authority];
    let shows = |certificate: &str, key: &str| {
        let [certificate, key] = [certificate, key].map(|name| files.file(name));
        ["--store-tls-cert-file".to_owned(), certificate, "--store-tls-key-file".to_owned(), key]
    };
    let with = |own: &[String]| -> Vec<String> {
        trusting.iter().map(|option| (*option).to_owned()).chain(own.iter().cloned()).collect()
    };
    let refused = |own: &[String], why: &str| {
        let options = with(own);
        is_refused(url, &options.iter().map(String::as_str).collect::<Vec<_>>(), why);
    };
    let options = with(&shows("client.pem", "client.key"));
    drop(are_let_in(url, &options.iter().map(String::as_str).collect::<Vec<_>>()));
    refused(&[], none);
    refused(&shows("client.pem", "server.key"), "the key does not belong to the certificate");
    refused(
        &shows("client.pem", "client.key")[..2],
        "store-tls-cert-file and store-tls-key-file are needed together",
    );
    refused(&shows("none.pem", "client.key"), "none.pem: No such file");
    // One of another authority.
    let (_others, other, _) = certificates(&format!("{}-other", store));
    let [certificate, key] = &other;
    refused(
        &["--store-tls-cert-file", certificate, "--store-tls-key-file", key].map(str::to_owned),
        untrusted,
    );
}

marked!(needs_tools: postgresql_asks_for_a_certificate);
fn postgresql_asks_for_a_certificate() {
    let Some(store) = Postgres::start("secure-certificate", 1) else { return };
    let (files, certificate, authority) = certificates("certificate");
    store.ask_for_certificates(certificate, &authority);
    let url = store.url_of("keyfast", "localhost", "?sslmode=require");
    let why = ("connection requires a valid client certificate", "TLS: received fatal alert: ");
    asks_for_certificates(("postgresql", &url), (&files, &authority), why);
}

marked!(needs_tools: etcd_asks_for_a_certificate);
fn etcd_asks_for_a_certificate() {
    let Some(mut etcd) = Etcd::start("secure-certificate", 1) else { return };
    let (files, certificate, authority) = certificates("etcd-certificate");
    etcd.ask_for_certificates(certificate, &authority);
    let url = format!("etcd://localhost:{}?sslmode=require", etcd.port(0));
    let why = ["ask for a certificate", "not trust the certificate"];
    let [none, untrusted] = why.map(|why| format!("it may {why} (store-tls-cert-file)"));
    asks_for_certificates(("etcd", &url), (&files, &authority), (&none, &untrusted));
}

marked!(needs_tools: clients_do_not_notice_that_tokens_of_etcd_expire);
fn clients_do_not_notice_that_tokens_of_etcd_expire() {
    let keys = Folder::new("token-keys");
    let Some(mut openssl) = installed("openssl") else { return };
    let [private, public] = ["private", "public"].map(|name| keys.file(name));
    let made =
        openssl.args(["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", &private]).status();
    assert!(made.expect("openssl runs").success());
    let mut openssl = installed("openssl").expect("openssl");
    let made = openssl.args(["ec", "-in", &private, "-pubout", "-out", &public]).output();
    assert!(made.expect("openssl runs").status.success());
    let signed = format!("jwt,priv-key={private},pub-key={public},sign-method=ES256,ttl=1s");
    // The first ones expire when they are not used for a second, the others a second after the login.
    for (test, options) in [("token", ["--auth-token-ttl", "1"]), ("signed-token", ["--auth-token", &signed])]
    {
        let Some(etcd) = Etcd::start_with(test, 1, &[&options[..], &["--bcrypt-cost", "4"]].concat()) else {
            return;
        };
        etcd.ask_for_passwords("hush@hush");
        let url = etcd.url().replace("://", &format!("://me:{SECRET}@"));
        let fronts = are_let_in(&url, &["--loglevel", "debug"]);
        let connections = |front: &Server| front.client().info("store_connections");
        let before = [0, 1].map(|number| connections(&fronts[number]));
        let mut listener = listener(&fronts);
        thread::scope(|scope| {
            for number in 0..4 {
                let mut client = fronts[number % 2].client();
                scope.spawn(move || {
                    let began = Instant::now();
                    for turn in 0.. {
                        client.line(&format!("SET {number}:{turn} v NX PX 60000")).is_ok();
                        if began.elapsed() > Duration::from_secs(4) {
                            break;
                        }
                    }
                });
            }
        });
        let (mut one, mut other) = (fronts[0].client(), fronts[1].client());
        for turn in 0..2 {
            // All tokens expire.
            thread::sleep(Duration::from_secs(4));
            is_told_of_changes(&fronts[0], &mut other);
            one.send(&support::client::request(["BLPOP", "queue", "50"]));
            other.line(&format!("PUBLISH channel {turn}")).is(0);
            wait_for_message(&mut listener, &turn.to_string());
            other.line("RPUSH queue element").is(1);
            assert_eq!(one.reply().reply().to_string(), r#"["queue", "element"]"#);
            other.line("LOCKS LIST").ignored();
            assert!(one.line("DBSIZE").integer() > 0);
        }
        assert_eq!([0, 1].map(|number| connections(&fronts[number])), before);
        for server in &fronts {
            let output = server.output();
            assert!(!output.contains("Lost the store") && !output.contains(SECRET_PART), "{output}");
            let is_disturbed = |line: &str| line.contains("No news") && !line.ends_with("not connected yet");
            assert!(!output.lines().any(is_disturbed), "{output}");
        }
    }
}
