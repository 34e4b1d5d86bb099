//! What runs first in a container: it has the server started as other images start theirs. Here it runs
//! without a container; `tests/docker/run` builds the image.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use support::certificates::Certificates;
use support::client::Client;
use support::folder::Folder;
use support::server::{Server, free_port};

use crate::transport::expect;

/// A folder with the program under its other names.
fn named(test: &str) -> Folder {
    let folder = Folder::new(&format!("image-{test}"));
    for name in ["redis-server", "valkey-server"] {
        symlink(env!("CARGO_BIN_EXE_keyfast"), folder.file(name)).expect("a link");
    }
    folder
}

/// What starts a container, with the programs of a folder before those of this machine. Root stays root.
fn entry(programs: &Folder) -> Command {
    entry_by(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/image/docker-entrypoint.sh"), programs)
}

/// The same with another script.
fn entry_by(script: &Path, programs: &Folder) -> Command {
    let mut command = programs.command();
    let others = std::env::var("PATH").expect("a path");
    command.env("PATH", format!("{}:{others}", programs.file(""))).env("SKIP_DROP_PRIVS", "1");
    let mut shell = Command::new("sh");
    shell.args(["-c", "umask 022; exec sh \"$0\" \"$@\""]).arg(script).current_dir(programs.path());
    shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell
}

fn parameter(client: &mut Client, name: &str) -> String {
    client.cmd(["CONFIG", "GET", name]).items()[1].to_string()
}

#[test]
fn flags_in_the_variables_of_other_images_overrule_the_command() {
    let programs = named("flags");
    let mut command = entry(&programs);
    command.env("VALKEY_EXTRA_FLAGS", "--requirepass secret --maxclients 77  --dbfilename *.rdb");
    command.env("REDIS_EXTRA_FLAGS", "--timeout 5").env("REDIS_ARGS", "--maxmemory 64mb");
    command.args(["redis-server", "--port", "0", "--bind", "127.0.0.1", "--save", "", "--maxclients", "5"]);
    let server = Server::run(&mut command, 0);
    let mut client = server.client();
    client.line("GET k").is_error("NOAUTH Authentication required.");
    client.line("AUTH secret").is_ok();
    for (name, value) in
        [("maxclients", "77"), ("timeout", "5"), ("maxmemory", "67108864"), ("dbfilename", "*.rdb")]
    {
        assert_eq!(parameter(&mut client, name), format!("\"{value}\""), "{name}");
    }
}

#[test]
fn files_in_the_folder_for_initial_data_are_loaded_in_the_order_of_their_names() {
    let programs = named("initial");
    let script = include_str!("../../src/image/docker-entrypoint.sh");
    let folder = programs.file("a folder");
    fs::create_dir(&folder).expect("a folder");
    for (name, text) in [("20.redis", "APPEND k b\n"), ("10.redis", "SET k a\n"), ("30.json", "{\"j\": 1}")] {
        fs::write(Path::new(&folder).join(name), text).expect("a file");
    }
    fs::write(Path::new(&folder).join("readme.txt"), "no data").expect("a file");
    assert_eq!(script.matches("/docker-entrypoint-initdb.d/*").count(), 1);
    let script = script.replace("/docker-entrypoint-initdb.d/*", &format!("'{folder}'/*"));
    programs.write("entry", &script);
    let mut command = entry_by(Path::new(&programs.file("entry")), &programs);
    command.args(["redis-server", "--port", "0", "--bind", "127.0.0.1", "--save", ""]);
    let server = Server::run(&mut command, 0);
    server.client().line("GET k").is("ab");
    server.client().line("GET j").is("1");
}

#[test]
fn parameters_in_the_variables_of_other_images_count() {
    for prefix in ["REDIS", "VALKEY"] {
        let programs = named("parameters");
        programs.write("users", "user default on nopass ~* &* +@all\n");
        let mut command = entry(&programs);
        for (name, value) in [
            ("PORT_NUMBER", "0"),
            ("AOF_ENABLED", "yes"),
            ("IO_THREADS", "2"),
            ("ACLFILE", &programs.file("users")),
            ("DISABLE_COMMANDS", "FLUSHALL,KEYS"),
            ("REPLICATION_MODE", "slave"),
        ] {
            command.env(format!("{prefix}_{name}"), value);
        }
        command.env("ALLOW_EMPTY_PASSWORD", "yes").env("REDISEARCH_ARGS", "MAXSEARCHRESULTS 1");
        let server = Server::run(command.args([&programs.file("valkey-server"), "--bind", "127.0.0.1"]), 0);
        let mut client = server.client();
        for (name, value) in
            [("appendonly", "yes"), ("io-threads", "2"), ("aclfile", &*programs.file("users"))]
        {
            assert_eq!(parameter(&mut client, name), format!("\"{value}\""), "{prefix}_ for {name}");
        }
        assert!(client.line("FLUSHALL").text().starts_with("ERR unknown command 'FLUSHALL'"));
        assert!(client.line("KEYS *").text().starts_with("ERR unknown command 'KEYS'"));
        server.wait_for_output(&format!("REDISEARCH_ARGS {prefix}_REPLICATION_MODE"));
        assert_eq!(server.output().matches("no effect in this image").count(), 1);
    }
}

#[test]
fn a_password_by_the_variables_of_other_images_is_asked_for() {
    let programs = named("password");
    let file = programs.write("password", "secret\n");
    for (name, value) in
        [("REDIS_PASSWORD", "secret"), ("VALKEY_PASSWORD", "secret"), ("VALKEY_PASSWORD_FILE", &file)]
    {
        let mut command = entry(&programs);
        command.env("REDIS_PASSWORD", "").env(name, value).env("ALLOW_EMPTY_PASSWORD", "no");
        let server = Server::run(command.args(["--port", "0", "--bind", "127.0.0.1", "--save", ""]), 0);
        let mut client = server.client();
        client.line("GET k").is_error("NOAUTH Authentication required.");
        client.line("AUTH secret").is_ok();
    }
    let refused = entry(&programs).env("ALLOW_EMPTY_PASSWORD", "no").arg("redis-server").output();
    let refused = refused.expect("a shell");
    assert!(!refused.status.success());
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(why, "docker-entrypoint.sh: ALLOW_EMPTY_PASSWORD is no, and REDIS_PASSWORD is not set\n");
}

const NO_FOLDER: &str = "*2\r\n$15\r\ntls-ca-cert-dir\r\n$0\r\n\r\n";

#[test]
fn tls_by_the_variables_of_other_images_is_what_clients_get() {
    let certificates = Certificates::new("image");
    for prefix in ["REDIS", "VALKEY"] {
        let programs = named("tls");
        for (enabled, has_plain_port) in [("yes", true), ("TRUE", false), ("no", true)] {
            let (tls_port, mut plain_port) = (free_port(), free_port());
            if !has_plain_port {
                // As where nothing names a port: both are the same then, and TLS has it.
                plain_port = tls_port;
            }
            let mut command = entry(&programs);
            command.env(format!("{prefix}_PORT_NUMBER"), plain_port.to_string());
            for (name, value) in [
                ("ENABLED", enabled),
                ("CERT_FILE", &certificates.file("server.pem")),
                ("KEY_FILE", &certificates.file("server.key")),
                ("CA_FILE", &certificates.file("ca.pem")),
                ("CA_DIR", "/nosuch"),
                ("AUTH_CLIENTS", "no"),
                ("PORT_NUMBER", &tls_port.to_string()),
            ] {
                command.env(format!("{prefix}_TLS_{name}"), value);
            }
            command.args(["redis-server", "--bind", "127.0.0.1", "--save", ""]);
            let server = Server::run(&mut command, plain_port);
            let by_tls = || {
                expect(&mut certificates.client(tls_port, false), "CONFIG GET tls-ca-cert-dir", NO_FOLDER);
            };
            match (enabled, has_plain_port) {
                ("no", _) => assert_eq!(parameter(&mut server.client(), "tls-port"), "\"0\""),
                (_, true) => {
                    server.wait_for_output("connections tls");
                    server.client().line("PING").is_simple("PONG");
                    by_tls();
                }
                (_, false) => {
                    assert!(!server.output().contains("connections tcp"), "{}", server.output());
                    by_tls();
                }
            }
            assert!(!server.output().contains("no effect in this image"), "{}", server.output());
        }
    }
}

/// The programs that change users are played here: each says how it was called.
#[test]
fn root_becomes_the_user_redis_under_every_name_of_the_server() {
    let programs = Folder::new("image-root");
    for (name, code) in [
        ("id", "echo 0"),
        ("find", "echo gives files"),
        ("su", "case $4 in :) ;; *) echo \"su: $(umask) $*\" ;; esac"),
        ("redis-cli", "echo client \"$@\""),
        ("keyfast", "echo keyfast \"$@\""),
        ("redis-server", "echo as root: $(umask)"),
    ] {
        let file = programs.write(name, &format!("#!/bin/sh\n{code}\n"));
        fs::set_permissions(file, fs::Permissions::from_mode(0o755)).expect("a file");
    }
    let said = |skip: &str, words: &[&str]| {
        let mut command = entry(&programs);
        command.env_remove("SKIP_DROP_PRIVS").args(words);
        if !skip.is_empty() {
            command.env(skip, "1");
        }
        String::from_utf8(command.output().expect("a shell").stdout).expect("a text")
    };
    let changed =
        |words: &str| format!("gives files\nsu: 0077 -s /bin/sh -c exec \"$0\" \"$@\" -- redis {words}\n");
    assert_eq!(said("", &["redis-server", "x.conf"]), changed("redis-server x.conf"));
    for (words, started) in [
        ("/usr/local/bin/redis-server x.conf", "/usr/local/bin/redis-server x.conf"),
        ("/usr/local/bin/valkey-server", "/usr/local/bin/valkey-server"),
        ("./keyfast --port 0", "./keyfast --port 0"),
        ("x.conf --port 0", "redis-server x.conf --port 0"),
        ("--port 0", "redis-server --port 0"),
    ] {
        assert_eq!(said("", &words.split(' ').collect::<Vec<_>>()), changed(started));
    }
    assert_eq!(said("", &["redis-cli", "ping"]), "client ping\n");
    assert_eq!(said("", &["keyfast", "cli", "ping"]), "keyfast cli ping\n");
    assert_eq!(said("SKIP_DROP_PRIVS", &["redis-server"]), "as root: 0077\n");
    assert!(said("SKIP_FIX_PERMS", &["redis-server"]).starts_with("su: 0077 "));
}
