//! The start of a server with a store: keys in memory that now live in the store, the store's password, and
//! parameters that do not go together.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

use super::{Cluster, Kind, scan};
use support::client::{Client, Reply};
use support::folder::Folder;
use support::server::{Server, program};
use support::store::postgres::Postgres;

on_both! {
    keys_in_memory_that_live_in_the_store_are_told_in_the_log_and_seen_by_no_client
}

fn keys_in_memory_that_live_in_the_store_are_told_in_the_log_and_seen_by_no_client(kind: Kind) {
    let Some(cluster) = Cluster::start(kind, "leftover") else { return };
    let folder = Folder::new(&format!("leftover-{kind:?}"));
    let before = folder.serve(&[]);
    let mut client = before.client();
    client.line("SET lock:a memory NX").is_ok();
    client.line("SET lock:b memory NX").is_ok();
    client.line("MSET lock:c memory plain 1").is_ok();
    client.line("SAVE").is_ok();
    drop(client);
    drop(before);
    let url = cluster.url();
    let front = folder.serve(&["--store", &url, "--store-timeout", "20000", "--store-keys", "lock:*"]);
    front.wait_for_output("3 keys in memory match store-keys: no client sees them");
    front.wait_for_output("Connected to the store");
    let mut client = front.client();
    let sees = |client: &mut Client, names: &[&str]| {
        let mut keys: Vec<String> = client.line("KEYS *").items().iter().map(Reply::to_string).collect();
        keys.sort();
        assert_eq!(keys, names);
        assert_eq!(scan(client), names);
        client.line("DBSIZE").is(names.len() as i64);
        for _ in 0..20 {
            let key = client.line("RANDOMKEY").reply().to_string();
            assert!(names.contains(&&*key), "{key}");
        }
    };
    sees(&mut client, &["\"plain\""]);
    assert_eq!(client.line("LOCKS LIST").items().len(), 0);
    client.line("SETNX lock:a store").is(1);
    client.line("GET lock:a").is("store");
    sees(&mut client, &["\"lock:a\"", "\"plain\""]);
    assert_eq!(client.line("LOCKS LIST").items().len(), 1);
    client.line("FLUSHALL").is_ok();
    client.line("DBSIZE").is(0);
    client.line("SAVE").is_ok();
    drop(client);
    drop(front);
    let after = folder.serve(&["--store", &url, "--store-timeout", "20000", "--store-keys", "lock:*"]);
    after.wait_for_output("Connected to the store");
    assert!(!after.output().contains("match store-keys"), "{}", after.output());
}

/// What the program says when it does not start.
fn complaint(arguments: &[&str], environment: &[(&str, &str)]) -> String {
    let mut command = Command::new(program());
    command.args(["--port", "0"]).args(arguments).envs(environment.iter().copied()).stdin(Stdio::null());
    let Output { status, stderr, .. } = command.output().expect("the program runs");
    assert_eq!(status.code(), Some(1));
    String::from_utf8_lossy(&stderr).into_owned()
}

#[test]
fn patterns_of_keys_without_a_store_and_unknown_modes_of_tls_do_not_start() {
    let why = complaint(&["--store-keys", "lock:*"], &[]);
    assert!(why.contains("`store-keys` says which keys live in a store, and there is none"), "{why}");
    let why = complaint(&["--store", "postgres://me@host?sslmode=full"], &[]);
    assert!(why.contains("sslmode must be disable, prefer, require or verify-full"), "{why}");
    let why = complaint(&["--store", "postgres://me@host", "--store-password-file", "/nothing/here"], &[]);
    assert!(why.contains("store-password-file: /nothing/here: No such file"), "{why}");
    let url = "postgres://me:hush@host";
    let why = complaint(&["--store", url, "--store-password-file", "/proc/version"], &[]);
    assert!(why.contains("it has a password already") && !why.contains("hush"), "{why}");
}

/// A password, which is in the URL with percent signs.
const SECRET: &str = "hush@:/x";
const IN_URL: &str = "hush%40%3A%2Fx";

/// Checks that a front-end shows its password nowhere, and serves its clients.
fn keeps_it(front: &Server) {
    front.wait_for_output("Connected to the store");
    let mut client = front.client();
    client.line("SETNX lock a").ignored();
    client.line("GET lock").is("a");
    let shown = client.line("CONFIG GET *").reply().to_string()
        + &client.line("CONFIG GET store").reply().to_string();
    let arguments = fs::read(format!("/proc/{}/cmdline", front.process_id())).expect("the process is there");
    for text in [shown.clone(), String::from_utf8_lossy(&arguments).into_owned(), front.output()] {
        assert!(!text.contains("hush"), "{text}");
    }
    assert!(shown.contains("\"postgres://me@127.0.0.1:"), "{shown}");
}

marked!(needs_tools: the_password_of_the_store_comes_from_many_places_and_is_shown_in_none);
fn the_password_of_the_store_comes_from_many_places_and_is_shown_in_none() {
    let Some(store) = Postgres::start("passwords", 1) else { return };
    store.sql(0, &format!("CREATE ROLE me LOGIN SUPERUSER PASSWORD '{SECRET}'")).expect("a user");
    store.secure(None, "host all keyfast 127.0.0.1/32 trust\nhost all me 127.0.0.1/32 scram-sha-256\n");
    let url = |user: &str| store.url_of(user, "127.0.0.1", "?sslmode=disable");
    let folder = Folder::new("passwords-of-the-store");
    let start = |options: &[&str], environment: &[(&str, &str)]| {
        let mut command = Command::new(program());
        command.args(["--port", "0", "--bind", "127.0.0.1", "--save", "", "--store-timeout", "20000"]);
        command.args(options).envs(environment.iter().copied()).stdin(Stdio::null());
        keeps_it(&Server::run(&mut command, 0));
    };
    let with_secret = url(&format!("me:{IN_URL}"));
    start(&["--store", &with_secret], &[]);
    start(&["--store", &with_secret, "--set-proc-title", "no"], &[]);
    start(&[], &[("KEYFAST_STORE", &with_secret)]);
    let option = format!("{}&password={IN_URL}", url("me"));
    start(&["--store", &option], &[]);
    let file = folder.write("secret", &format!("{SECRET}\n"));
    start(&["--store", &url("me"), "--store-password-file", &file], &[]);
    start(&["--store", &url("me")], &[("PGPASSWORD", SECRET)]);
    let escaped = SECRET.replace(':', "\\:");
    let file = folder.write("pgpass", &format!("other:*:*:*:wrong\n127.0.0.1:*:postgres:me:{escaped}\n"));
    let permit = |mode| fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("permissions");
    permit(0o644);
    let why = complaint(&["--store", &url("me")], &[("PGPASSFILE", &file)]);
    assert!(why.contains("other users can read it"), "{why}");
    permit(0o600);
    start(&["--store", &url("me")], &[("PGPASSFILE", &file)]);
    // What is written into the file of parameters is complete.
    let parameters = folder.write("keyfast.conf", &format!("port 0\nstore {with_secret}\n"));
    let server = Server::run(Command::new(program()).arg(&parameters).stdin(Stdio::null()), 0);
    server.client().line("CONFIG SET timeout 100").is_ok();
    server.client().line("CONFIG REWRITE").is_ok();
    let text = fs::read_to_string(&parameters).expect("a file");
    assert!(text.contains(&with_secret) && text.contains("timeout 100"), "{text}");
}

marked!(needs_tools: clients_are_told_why_the_store_cannot_be_used);
fn clients_are_told_why_the_store_cannot_be_used() {
    let Some(store) = Postgres::start("reasons", 1) else { return };
    store.sql(0, "CREATE ROLE guest LOGIN; CREATE ROLE reader LOGIN").expect("users");
    let front_of = |user: &str| {
        let url = store.url_of(user, "127.0.0.1", "?sslmode=disable");
        Server::start_with(&["--store", &url, "--store-timeout", "2000"])
    };
    let says = |front: &Server, part: &str| {
        super::eventually("clients get the reason", || {
            let text = front.client().line("SETNX k v").text();
            text.starts_with("STOREDOWN ") && text.contains(part)
        });
    };
    let guest = front_of("guest");
    says(&guest, "its tables cannot be made: permission denied for database postgres");
    drop(store.front(&[]));
    says(&guest, "permission denied for schema keyfast");
    store.sql(0, "GRANT USAGE ON SCHEMA keyfast TO reader").expect("a right");
    store.sql(0, "GRANT SELECT ON ALL TABLES IN SCHEMA keyfast TO reader").expect("a right");
    says(&front_of("reader"), "permission denied for");
    let url = store.url_of("keyfast", "localhost", "?sslmode=verify-full");
    says(&Server::start_with(&["--store", &url, "--store-timeout", "2000"]), "server does not support TLS");
}
