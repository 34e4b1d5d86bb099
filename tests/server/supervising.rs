//! The process as systems that start programs see it: in the background, with a number in a file, under
//! systemd, with a log that others collect and rotate.

use std::fs;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use support::client::Client;
use support::folder::{Folder, wait_for_text};
use support::preloaded::Preloaded;
use support::server::{PATIENCE, Server, free_port, signal};

const ANYWHERE: [&str; 4] = ["--bind", "127.0.0.1", "--port", "0"];

#[test]
fn in_the_background_it_leaves_its_number_in_a_file_until_it_ends() {
    let folder = Folder::new("daemon");
    let port = free_port().to_string();
    let mut command = folder.command();
    command.args(["--daemonize", "yes", "--pidfile", "pid", "--logfile", "log", "--bind", "127.0.0.1"]);
    // The program that starts it need not wait for more than this.
    let output = command.args(["--port", &port]).output().expect("the program runs");
    assert!(output.status.success());
    assert!(output.stdout.is_empty() && output.stderr.is_empty());
    let log = wait_for_text(&folder.file("log"), "Ready to accept connections tcp");
    let process = fs::read_to_string(folder.file("pid")).expect("a file with its number");
    let process = process.strip_suffix('\n').expect("a line");
    assert!(log.lines().last().unwrap().starts_with(&format!("{process}:M ")), "{log}");
    assert!(log.contains(&format!("pid={process}, just started")), "{log}");
    let parent = fs::read_to_string(format!("/proc/{process}/stat")).expect("a process");
    let session: Vec<_> = parent.rsplit(')').next().unwrap().split(' ').collect();
    assert_eq!(session[5], "0", "no terminal: {parent}");
    assert_eq!(fs::read_link(format!("/proc/{process}/fd/1")).unwrap().to_str(), Some("/dev/null"));

    let mut client = Client::connect(([127, 0, 0, 1], port.parse().unwrap()).into());
    client.cmd(["SET", "k", "v"]).is_ok();
    client.send(b"SHUTDOWN NOSAVE\r\n");
    wait_for_text(&folder.file("log"), "bye bye");
    assert!(!Path::new(&folder.file("pid")).exists());
}

/// What any user of the machine can read of a process: its words, each with a bar behind it.
fn command_line(process: u32) -> String {
    let words = fs::read(format!("/proc/{process}/cmdline")).expect("a process");
    String::from_utf8_lossy(&words).replace('\0', "|")
}

#[test]
fn no_secret_of_the_command_line_stays_in_the_list_of_processes() {
    let (folder, program) = (Folder::new("title"), env!("CARGO_BIN_EXE_keyfast"));
    for secret in [
        &["--requirepass", "s3cr3t"][..],
        &["--requirepass s3cr3t"],
        &["--masterauth=s3cr3t"],
        &["--user", "alice", "on", ">s3cr3t"],
        &["--rename-command", "config", "s3cr3t"],
    ] {
        let server = Server::run(folder.command().args(ANYWHERE).args(secret), 0);
        let title = format!("{program} 127.0.0.1:{}|", server.port());
        assert_eq!(command_line(server.process_id()), title, "{secret:?}");
        let mut command = folder.command();
        let server = Server::run(command.args(ANYWHERE).args(secret).args(["--set-proc-title", "no"]), 0);
        assert_eq!(command_line(server.process_id()), format!("{program}|"), "{secret:?}");
    }
    // In the background, too.
    let mut command = folder.command();
    let port = free_port().to_string();
    command.args(["--daemonize", "yes", "--pidfile", "pid", "--logfile", "log", "--save", ""]);
    command.args(["--bind", "127.0.0.1", "--port", &port]);
    assert!(command.args(["--requirepass", "s3cr3t"]).status().unwrap().success());
    let process = fs::read_to_string(folder.file("pid")).unwrap().trim().parse().unwrap();
    assert_eq!(command_line(process), format!("{program} 127.0.0.1:{port}|"));
    signal(process, "TERM");
    wait_for_text(&folder.file("log"), "bye bye");
}

#[test]
fn the_title_of_the_process_is_that_of_the_template() {
    let (folder, program) = (Folder::new("template"), env!("CARGO_BIN_EXE_keyfast"));
    folder.write("redis.conf", "");
    let server = folder.serve(&["redis.conf", "--proc-title-template", "{{ {config-file} {title} "]);
    let file = folder.file("redis.conf");
    assert_eq!(command_line(server.process_id()), format!("{{ {file} {program}|"));
    let mut client = server.client();
    client.cmd(["CONFIG", "SET", "proc-title-template", "{listen-addr}{server-mode}"]).is_ok();
    assert_eq!(command_line(server.process_id()), format!("127.0.0.1:{}|", server.port()));
    // What has no room is left out, and nothing else is overwritten with it.
    client.cmd(["CONFIG", "SET", "proc-title-template", &"x".repeat(1 << 20)]).is_ok();
    let shown = command_line(server.process_id());
    assert!(shown.starts_with("xxxx") && shown.len() < 1 << 20, "{}", shown.len());
    client.cmd(["CONFIG", "SET", "proc-title-template", "{unixsocket}"]).is_ok();
    assert_eq!(command_line(server.process_id()), "|");

    // A command line that holds no secret may stay.
    let server = Server::run(folder.command().args(ANYWHERE).args(["--set-proc-title", "no"]), 0);
    let words = format!("{program}|{}|--set-proc-title|no|", ANYWHERE.join("|"));
    assert_eq!(command_line(server.process_id()), words);
}

/// The title is longer than the command line: the rest of it takes the place of the environment, which has
/// moved.
#[test]
fn a_short_command_line_has_a_whole_title_and_keeps_the_environment() {
    let folder = Folder::new("short");
    symlink(env!("CARGO_BIN_EXE_keyfast"), folder.file("kf")).unwrap();
    let notified = folder.file("notify");
    let systemd = UnixDatagram::bind(&notified).unwrap();
    let mut command = Command::new("./kf");
    command.current_dir(folder.path()).env_clear().env("GLIBC_TUNABLES", "");
    for (name, value) in [("BIND", "127.0.0.1"), ("PORT", "0"), ("SUPERVISED", "systemd"), ("SAVE", "")] {
        command.env(format!("KEYFAST_{name}"), value);
    }
    let server = Server::run(command.env("NOTIFY_SOCKET", &notified), 0);
    assert_eq!(command_line(server.process_id()), format!("./kf 127.0.0.1:{}|", server.port()));
    systemd.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut message = [0; 100];
    let bytes = systemd.recv(&mut message).expect("the variable is as it was");
    assert!(message[..bytes].starts_with(b"STATUS="));
}

/// `pidof redis-server` goes by it, and the health checks of many compose files go by that. The program
/// starts itself once more where the system has huge pages for it, and is the same process then.
#[test]
fn the_process_has_the_name_by_which_it_was_started() {
    let folder = Folder::new("named");
    for name in ["keyfast", "redis-server", "valkey-server", "a name"] {
        symlink(env!("CARGO_BIN_EXE_keyfast"), folder.file(name)).unwrap();
        let mut command = Command::new(folder.file(name));
        let server = Server::run(command.current_dir(folder.path()).args(ANYWHERE), 0);
        let shown = fs::read_to_string(format!("/proc/{}/comm", server.process_id())).expect("a process");
        assert_eq!(shown, format!("{name}\n"));
    }
}

/// The C library does so if the program has rights by its file (`setcap`). Here a library does so that is
/// loaded before.
#[test]
fn a_program_whose_settings_are_taken_from_it_starts_no_more_than_once_more() {
    let folder = Folder::new("settings");
    let code = "#include <stdlib.h>\n__attribute__((constructor)) \
                static void forget(void) { unsetenv(\"GLIBC_TUNABLES\"); }\n";
    let library = Preloaded::compile("settings", code);
    let mut command = folder.command();
    let server = Server::run(library.preload(&mut command).env_remove("GLIBC_TUNABLES").args(ANYWHERE), 0);
    server.client().line("PING").is_simple("PONG");
}

#[test]
fn a_system_that_refuses_a_thread_is_an_error_and_no_panic() {
    // A hundred stacks of 8 MiB do not fit into 400 MiB of address space. Several at once: threads that start
    // late need memory when there is none left.
    let start = || {
        let mut limited = Command::new("sh");
        limited.args(["-c", "ulimit -v 400000 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_keyfast")]);
        limited.args(ANYWHERE).args(["--io-threads", "100"]).stderr(Stdio::piped()).stdout(Stdio::null());
        limited.spawn().expect("the program runs")
    };
    let why = "keyfast: cannot start a thread: the user's limit of processes (ulimit -u) or of memory \
               (ulimit -v) is reached\n";
    for _ in 0..4 {
        let started: Vec<_> = (0..12).map(|_| start()).collect();
        for process in started {
            let output = process.wait_with_output().expect("it ends");
            let complaint = String::from_utf8_lossy(&output.stderr);
            assert_eq!((&*complaint, output.status.code()), (why, Some(1)));
        }
    }
}

#[test]
fn a_start_that_fails_in_the_background_is_reported_and_is_in_the_log() {
    let folder = Folder::new("lost");
    let server = Server::start();
    let port = server.port().to_string();
    let mut command = folder.command();
    command.args(["--daemonize", "yes", "--pidfile", "pid", "--logfile", "log", "--bind", "127.0.0.1"]);
    let output = command.args(["--port", &port]).output().expect("the program runs");
    let why = format!("could not listen on 127.0.0.1:{port}: Address already in use");
    assert_eq!(output.status.code(), Some(1));
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        complaint.starts_with(&format!("keyfast: {why}")) && complaint.lines().count() == 1,
        "{complaint}"
    );
    let log = fs::read_to_string(folder.file("log")).expect("a log");
    assert!(log.contains(&why), "{log}");
    assert!(!Path::new(&folder.file("pid")).exists());
}

#[test]
fn a_server_in_the_background_serves_when_its_caller_has_ended() {
    let folder = Folder::new("ready");
    let port = free_port();
    let mut command = folder.command();
    command.args([
        "--daemonize",
        "yes",
        "--pidfile",
        "pid",
        "--bind",
        "127.0.0.1",
        "--port",
        &port.to_string(),
    ]);
    assert!(command.status().expect("the program runs").success());
    // Without any patience: what follows in a script can connect.
    let mut client = Client::connect(([127, 0, 0, 1], port).into());
    client.line("PING").is_simple("PONG");
    client.send(b"SHUTDOWN NOSAVE\r\n");
    assert!(client.is_closed());
}

#[test]
fn the_number_is_in_the_file_also_in_the_foreground() {
    let folder = Folder::new("pid");
    let mut server = Server::run(folder.command().args(ANYWHERE).args(["--pidfile", "pid"]), 0);
    let written = fs::read_to_string(folder.file("pid")).expect("a file");
    assert_eq!(written, format!("{}\n", server.process_id()));
    server.signal("TERM");
    assert!(server.wait_for_end().success());
    assert!(!Path::new(&folder.file("pid")).exists());
    server.wait_for_output("Removing the pid file.");
    // A server without it is better than none.
    let server = Server::run(folder.command().args(ANYWHERE).args(["--pidfile", "/nosuch/pid"]), 0);
    assert!(server.output().contains("Failed to write PID file /nosuch/pid: No such file or directory"));
}

/// The messages that systemd gets, up to this one.
fn told(socket: &UnixDatagram, last: &str) -> Vec<String> {
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut messages = Vec::new();
    while messages.last().is_none_or(|message: &String| !message.contains(last)) {
        let mut message = [0; 256];
        let length = socket.recv(&mut message).expect("a message");
        messages.push(String::from_utf8_lossy(&message[..length]).into_owned());
    }
    messages
}

#[test]
fn systemd_is_told_when_it_is_ready_and_when_it_stops() {
    let folder = Folder::new("systemd");
    let name = format!("keyfast-test-{}", std::process::id());
    let abstract_socket = SocketAddr::from_abstract_name(&name).unwrap();
    for (socket, address, mode) in [
        (UnixDatagram::bind(folder.file("notify")).unwrap(), folder.file("notify"), "systemd"),
        (UnixDatagram::bind_addr(&abstract_socket).unwrap(), format!("@{name}"), "auto"),
    ] {
        let mut command: Command = folder.command();
        // It stays in the foreground, whatever its file says: systemd watches this process.
        command.env("NOTIFY_SOCKET", address).args(["--supervised", mode, "--daemonize", "yes"]);
        let mut server = Server::run(command.args(ANYWHERE), 0);
        let loading = "STATUS=Keyfast is loading...\n";
        let ready = "STATUS=Ready to accept connections\nREADY=1\n";
        assert_eq!(told(&socket, "READY=1"), [loading, ready]);
        let mut client = server.client();
        assert_eq!(client.info("process_supervised"), "systemd");
        assert_eq!(client.info("process_id"), server.process_id().to_string());
        server.signal("TERM");
        assert_eq!(told(&socket, "STOPPING=1"), ["STOPPING=1\n"]);
        assert!(server.wait_for_end().success());
    }
}

#[test]
fn without_systemd_it_serves_all_the_same() {
    let folder = Folder::new("alone");
    let server = Server::run(folder.command().args(ANYWHERE).args(["--supervised", "systemd"]), 0);
    assert!(server.output().contains("systemd supervision error: NOTIFY_SOCKET not found!"));
    assert_eq!(server.client().info("process_supervised"), "no");
    let server = Server::run(folder.command().args(ANYWHERE).args(["--supervised", "auto"]), 0);
    assert_eq!(server.client().info("process_supervised"), "no");
}

#[test]
fn upstart_sees_it_stop_before_it_serves() {
    let folder = Folder::new("upstart");
    let port = free_port();
    let mut command = folder.command();
    command.env("UPSTART_JOB", "keyfast").args(["--supervised", "upstart", "--logfile", "log"]);
    let mut child = command.args(["--bind", "127.0.0.1", "--port", &port.to_string()]).spawn().unwrap();
    let status = format!("/proc/{}/stat", child.id());
    let deadline = Instant::now() + PATIENCE;
    while !fs::read_to_string(&status).unwrap_or_default().contains(") T ") {
        assert!(Instant::now() < deadline, "it does not stop");
        std::thread::sleep(Duration::from_millis(2));
    }
    signal(child.id(), "CONT");
    wait_for_text(&folder.file("log"), "Ready to accept connections tcp");
    Client::connect(([127, 0, 0, 1], port).into()).send(b"SHUTDOWN NOSAVE\r\n");
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_log_file_that_was_moved_away_is_begun_anew() {
    let folder = Folder::new("rotated");
    let port = free_port();
    let mut command = folder.command();
    command.args(["--logfile", "log", "--bind", "127.0.0.1", "--port", &port.to_string()]);
    let mut child = command.spawn().expect("the program runs");
    wait_for_text(&folder.file("log"), "Ready to accept connections tcp");
    fs::rename(folder.file("log"), folder.file("log.1")).unwrap();
    let mut client = Client::connect(([127, 0, 0, 1], port).into());
    client.line("CONFIG SET loglevel verbose").is_ok();
    client.send(b"SHUTDOWN NOSAVE\r\n");
    assert!(child.wait().unwrap().success());
    let log = fs::read_to_string(folder.file("log")).expect("a new file");
    assert!(log.contains("User requested shutdown") && !log.contains("Ready"), "{log}");
}

#[test]
fn the_log_can_be_objects() {
    let folder = Folder::new("json");
    let server = Server::run(folder.command().args(ANYWHERE).args(["--log-format", "json"]), 0);
    let output = server.output();
    let lines: Vec<Value> = output.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let ready = lines.iter().find(|line| line["message"] == "Ready to accept connections tcp");
    let ready = ready.unwrap_or_else(|| panic!("no ready line in {output}"));
    assert_eq!(ready["level"], "notice");
    assert_eq!(ready["pid"], server.process_id());
}

#[test]
fn the_log_can_be_for_people() {
    let folder = Folder::new("pretty");
    let server = Server::run(folder.command().args(ANYWHERE).args(["--log-format", "pretty"]), 0);
    let output = server.output();
    assert!(
        output.lines().any(|line| line.ends_with(" notice  Ready to accept connections tcp")),
        "{output}"
    );
}
