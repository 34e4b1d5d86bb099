//! A machine that loses its power, and a disk whose syncs fail: what counts as durable is there afterwards.
//!
//! A kill tests none of this: the system still has what the killed server has written. So a library between
//! the server and the system (`disk.c`) keeps apart what was synced, and lets syncs fail.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use support::client::{Client, Reply, request};
use support::folder::Folder;
use support::log::{files, increment};
use support::preloaded::Preloaded;
use support::server::{Server, wait_until};

/// The library, compiled once for the tests that run at the same time.
fn library() -> Arc<Preloaded> {
    static LIBRARY: Mutex<Weak<Preloaded>> = Mutex::new(Weak::new());
    let mut known = LIBRARY.lock().unwrap_or_else(PoisonError::into_inner);
    let library =
        known.upgrade().unwrap_or_else(|| Arc::new(Preloaded::compile("disk", include_str!("disk.c"))));
    *known = Arc::downgrade(&library);
    library
}

/// A machine with a disk.
struct Machine {
    /// What the server works in.
    work: Folder,
    /// What is on the disk.
    kept: Folder,
    faults: Folder,
    preloaded: Arc<Preloaded>,
}

impl Machine {
    fn new(name: &str) -> Machine {
        let machine = Machine {
            work: Folder::new(&format!("power-{name}")),
            kept: Folder::new(&format!("power-{name}-kept")),
            faults: Folder::new(&format!("power-{name}-faults")),
            preloaded: library(),
        };
        for folder in ["files", "folders", "held"] {
            fs::create_dir(machine.kept.path().join(folder)).unwrap();
        }
        machine
    }

    /// Writes a file, and brings it to the disk.
    fn install(&self, name: &str, text: &str) -> String {
        let path = self.work.write(name, text);
        let inode = |path: &Path| fs::metadata(path).unwrap().ino();
        let number = inode(Path::new(&path));
        self.kept.write(&format!("files/{number}"), text);
        let list = self.kept.file(&format!("folders/{}", inode(self.work.path())));
        let before = fs::read_to_string(&list).unwrap_or_default();
        fs::write(list, format!("{before}f {number} {name}\n")).unwrap();
        path
    }

    /// Starts a server.
    fn start(&self, options: &[&str]) -> Server {
        let mut command = self.work.command();
        self.preloaded
            .preload(&mut command)
            .env("DISK_ROOT", self.work.path())
            .env("DISK_KEPT", self.kept.path())
            .env("DISK_FAULTS", self.faults.path())
            .args(options)
            .args(["--bind", "127.0.0.1", "--port", "0", "--enable-debug-command", "yes"]);
        Server::run(&mut command, 0)
    }

    /// Lets the next sync of a file of this name fail.
    fn fail(&self, name: &str) {
        self.faults.write(name, "");
    }

    /// Waits until that sync has failed.
    #[track_caller]
    fn has_failed(&self, name: &str) {
        wait_until("it is synced", || !self.faults.path().join(name).exists());
    }

    /// What is there when the machine has power again.
    fn lose_power(self, server: Server) -> Folder {
        server.signal("KILL");
        drop(server);
        self.rest()
    }

    /// What is on the disk, after the server has ended.
    fn rest(self) -> Folder {
        let name = self.work.path().file_name().unwrap().to_str().unwrap();
        let rest = Folder::new(&format!("{name}-rest"));
        self.restore(fs::metadata(self.work.path()).unwrap().ino(), rest.path());
        rest
    }

    fn restore(&self, folder: u64, to: &Path) {
        let list = fs::read_to_string(self.kept.path().join(format!("folders/{folder}"))).unwrap_or_default();
        for line in list.lines() {
            let mut words = line.splitn(3, ' ');
            let (kind, inode) = (words.next().unwrap(), words.next().unwrap());
            let path: PathBuf = to.join(words.next().unwrap());
            if kind == "d" {
                fs::create_dir(&path).unwrap();
                self.restore(inode.parse().unwrap(), &path);
            } else {
                // A file that was never synced is there, and empty.
                let kept = fs::read(self.kept.path().join(format!("files/{inode}")));
                fs::write(&path, kept.unwrap_or_default()).unwrap();
            }
        }
    }
}

const LOG: [&str; 4] = ["--appendonly", "yes", "--save", ""];

/// The keys that a server finds in a folder.
fn keys_in(folder: &Folder, options: &[&str]) -> Vec<String> {
    let mut client = folder.serve(&[&LOG, options].concat()).into_client();
    let mut keys: Vec<_> = client.line("KEYS *").items().iter().map(text).collect();
    keys.sort();
    keys
}

fn text(reply: &Reply) -> String {
    match reply {
        Reply::Bulk(bytes) => String::from_utf8(bytes.clone()).unwrap(),
        other => panic!("not a string: {other:?}"),
    }
}

/// Whether the changes of this client count as durable within this time.
fn is_durable(client: &mut Client, patience_ms: u64) -> bool {
    says_durable(client.line(&format!("WAITAOF 1 0 {patience_ms}")).reply())
}

/// Whether this reply to WAITAOF says that the changes are durable.
fn says_durable(reply: Reply) -> bool {
    matches!(reply, Reply::Array(counts) if counts.first() == Some(&Reply::Integer(1)))
}

#[test]
fn a_sync_that_succeeds_after_a_failed_one_makes_nothing_durable() {
    for policy in ["everysec", "always", "no"] {
        let machine = Machine::new(&format!("gap-{policy}"));
        let server = machine.start(&[&LOG[..], &["--appendfsync", policy]].concat());
        let mut client = server.client();
        client.line("SET first 1").is_ok();
        if policy != "no" {
            assert!(is_durable(&mut client, 0));
        }
        // This is in the way of a new base.
        fs::create_dir(increment(&machine.work, 2)).unwrap();
        machine.fail("appendonly.aof.1.incr.aof");
        let mut writer = client;
        writer.send(b"SET second 1\r\n");
        if policy == "no" {
            writer.reply().is_ok();
            writer.line("CONFIG SET appendfsync everysec").is_ok();
        }
        machine.has_failed("appendonly.aof.1.incr.aof");
        let mut client = server.client();
        wait_until("it says so", || client.info("aof_last_write_status") == "err");
        if policy == "always" {
            assert!(writer.is_closed());
        } else {
            if policy == "everysec" {
                writer.reply().is_ok();
            }
            // Time for more syncs, which succeed.
            assert!(!is_durable(&mut writer, 2500));
        }
        assert_eq!(client.info("aof_last_write_status"), "err");
        const MISCONF: &str = "MISCONF Errors writing to the AOF file: Input/output error";
        client.line("SET third 1").is_error(MISCONF);
        fs::remove_dir(increment(&machine.work, 2)).unwrap();
        wait_until("it goes on", || client.info("aof_last_write_status") == "ok");
        client.line("SET fourth 1").is_ok();
        assert!(is_durable(&mut client, 0));
        let rest = machine.lose_power(server);
        assert_eq!(keys_in(&rest, &["--aof-load-truncated", "no"]), ["first", "fourth", "second"]);
    }
}

#[test]
fn a_sync_that_takes_long_is_reported_and_replies_do_not_wait_for_it() {
    let machine = Machine::new("slow");
    let server = machine.start(&[&LOG[..], &["--appendfsync", "everysec"]].concat());
    let mut client = server.client();
    let held = machine.faults.write("hold-appendonly.aof.1.incr.aof", "");
    client.line("INCR n").is(1);
    wait_until("it is synced", || client.info("aof_pending_bio_fsync") == "1");
    assert_eq!(client.info("aof_delayed_fsync"), "0");
    let mut last = 1;
    wait_until("it takes long", || {
        last = client.line("INCR n").integer();
        client.info("aof_delayed_fsync") != "0"
    });
    server.wait_for_output(
        "Asynchronous AOF fsync is taking too long (disk is busy?). Writing the AOF buffer without waiting \
         for fsync to complete, this may slow down Keyfast.",
    );
    assert_eq!(client.info("aof_last_write_status"), "ok");
    client.line("CONFIG RESETSTAT").is_ok();
    assert_eq!(client.info("aof_delayed_fsync"), "0");
    // The process is killed, and the system goes on.
    server.signal("KILL");
    fs::remove_file(held).unwrap();
    drop(server);
    machine.work.serve(&LOG).client().line("GET n").is(last.to_string().as_str());
}

#[test]
fn a_sync_that_fails_while_the_log_is_rewritten_is_not_forgotten_at_its_end() {
    let machine = Machine::new("rewriting");
    let server = machine.start(&[&LOG[..], &["--appendfsync", "everysec"]].concat());
    let mut client = server.client();
    let base = format!("temp-{}.rdb", server.process_id());
    let hold = machine.faults.write(&format!("hold-{base}"), "");
    client.line("BGREWRITEAOF").is_simple("Background append only file rewriting started");
    let base = machine.work.path().join("appendonlydir").join(base);
    wait_until("it begins", || base.exists());
    machine.fail("appendonly.aof.2.incr.aof");
    client.line("SET lost 1").is_ok();
    machine.has_failed("appendonly.aof.2.incr.aof");
    assert_eq!(client.info("aof_rewrite_in_progress"), "1");
    fs::remove_file(hold).unwrap();
    // Only the next base has the key, whatever becomes of this one.
    assert!(is_durable(&mut client, 0));
    let rest = machine.lose_power(server);
    assert_eq!(keys_in(&rest, &["--aof-load-truncated", "no"]), ["lost"]);
}

#[test]
fn a_server_does_not_end_before_its_last_changes_are_on_the_disk() {
    for by in ["SHUTDOWN", "SIGTERM"] {
        let machine = Machine::new(by);
        let mut server = machine.start(&[&LOG[..], &["--appendfsync", "no"]].concat());
        let mut client = server.client();
        client.line("SET a 1").is_ok();
        // No base is made by itself.
        fs::create_dir(increment(&machine.work, 2)).unwrap();
        machine.fail("appendonly.aof.1.incr.aof");
        for _ in 0..2 {
            if by == "SHUTDOWN" {
                client.line("SHUTDOWN").is_error("ERR Errors trying to SHUTDOWN. Check logs.");
            } else {
                server.signal("TERM");
            }
            server.wait_for_output(
                "bytes of appendonly.aof.1.incr.aof are not on the disk (Input/output error)",
            );
            client.line("GET a").is("1");
        }
        fs::remove_dir(increment(&machine.work, 2)).unwrap();
        wait_until("it goes on", || client.info("aof_last_write_status") == "ok");
        if by == "SHUTDOWN" {
            client.send(b"SHUTDOWN\r\n");
        } else {
            server.signal("TERM");
        }
        assert_eq!(server.wait_for_end().code(), Some(0));
        let rest = machine.rest();
        assert_eq!(keys_in(&rest, &["--aof-load-truncated", "no"]), ["a"]);
    }
}

/// Does everything that brings something to the disk while one sync fails: the one of this number among those
/// after the start. What was said to be there is there after the power has gone, be it before the server has
/// ended or after. Returns whether that sync came.
fn survives(number: usize, policy: &str, ends: bool) -> bool {
    let machine = Machine::new(&format!("any-{policy}-{number}-{ends}"));
    let users = machine.install("users.acl", "user default on nopass ~* &* +@all\n");
    let log = format!("appendonly yes\nappendfsync {policy}\nsave \"\"\n");
    let config = machine.install("keyfast.conf", &format!("{log}aclfile '{users}'\n"));
    let mut server = machine.start(&[&config]);
    let starting_syncs = fs::read_to_string(machine.kept.path().join("syncs")).expect("the start syncs");
    let fault = format!("sync-{}", starting_syncs.parse::<usize>().unwrap() + number);
    machine.fail(&fault);
    let (mut accepted, mut durable) = (Vec::new(), Vec::new());
    let (mut has_user, mut has_timeout) = (false, false);
    let ok = || Reply::Simple("OK".to_owned());
    for round in 0..6 {
        let key = format!("key:{round}");
        let mut client = server.client();
        // While a gap is open the client is disconnected, or the write is refused.
        if client.try_line(&format!("SET {key} v")).is_ok_and(|reply| reply == ok()) {
            accepted.push(key.clone());
            if client.try_line("WAITAOF 1 0 300").is_ok_and(says_durable) {
                durable.push(key);
            }
        }
        let mut client = server.client();
        match round {
            0 | 3 => client.line("BGREWRITEAOF").ignored(),
            1 => {
                client.line("ACL SETUSER alice on >secret ~* +@all").is_ok();
                has_user = client.line("ACL SAVE").reply() == ok();
            }
            2 => {
                client.line("CONFIG SET timeout 4711").is_ok();
                has_timeout = client.line("CONFIG REWRITE").reply() == ok();
            }
            4 => client.line("SAVE").ignored(),
            _ => {}
        }
    }
    let said = durable.len();
    if ends && server.client().try_line("SHUTDOWN").is_err() && server.wait_for_end().success() {
        durable = accepted;
    } else {
        server.signal("KILL");
        drop(server);
    }
    let came = !machine.faults.path().join(&fault).exists();
    // After a failure the server may not be well again before the last round.
    assert!(came || policy != "always" || said > 0, "WAITAOF confirms what is synced");
    let was_in = machine.work.path().to_str().unwrap().to_owned();
    let rest = machine.rest();
    // The file names the folder of the machine that it comes from.
    cut_off_damage(&rest);
    let config = fs::read_to_string(rest.file("keyfast.conf")).expect("it was there from the beginning");
    let users = rest.file("users.acl");
    let moved = config.replace(was_in.as_str(), &rest.file("")).replace("//", "/");
    let mut client = rest.serve(&[&rest.write("keyfast.conf", &moved), "--aclfile", &users]).into_client();
    for key in &durable {
        let found = client.cmd(["GET", key]).reply();
        let log = files(&rest);
        assert_eq!(found, Reply::Bulk(b"v".to_vec()), "{key}, {policy}, sync {number}, {log:?}");
    }
    if has_user {
        assert_ne!(client.line("ACL GETUSER alice").reply(), Reply::Null, "{policy}, sync {number}");
    }
    if has_timeout {
        assert_eq!(text(&client.line("CONFIG GET timeout").items()[1]), "4711", "{policy}, sync {number}");
    }
    came
}

/// Does what the server's message advises where a failed sync has left a gap: cuts off what is behind it.
fn cut_off_damage(folder: &Folder) {
    for name in files(folder).iter().filter(|name| name.ends_with(".incr.aof")) {
        let path = folder.path().join("appendonlydir").join(name);
        let mut bytes = fs::read(&path).unwrap();
        // The records of this test have no zeros.
        let sound = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        bytes.truncate(sound);
        fs::write(path, bytes).unwrap();
    }
}

#[test]
fn what_was_said_to_be_durable_is_there_whichever_sync_fails() {
    const LANES: usize = 8;
    for policy in ["always", "everysec"] {
        let tried: Vec<usize> = thread::scope(|scope| {
            let lane = |first: usize| {
                move || {
                    // The first syncs are those that clients wait for.
                    survives(first, policy, false);
                    (first..).step_by(LANES).take_while(|at| survives(*at, policy, true)).count()
                }
            };
            let lanes: Vec<_> = (1..=LANES).map(|first| scope.spawn(lane(first))).collect();
            lanes.into_iter().map(|lane| lane.join().unwrap()).collect()
        });
        assert!(tried.iter().all(|count| *count >= 2), "{tried:?}");
    }
}

#[test]
fn no_other_client_hears_of_a_change_before_it_is_durable() {
    const MOMENT: Duration = Duration::from_millis(50);
    let machine = Machine::new("hearing");
    let server = machine.start(&[&LOG[..], &["--appendfsync", "always"]].concat());
    let (mut client, mut other, mut listener) = (server.client(), server.client(), server.client3());
    client.line("CONFIG SET notify-keyspace-events K$").is_ok();
    listener.line("CLIENT TRACKING ON BCAST").is_ok();
    listener.line("PSUBSCRIBE *").ignored();
    let log = increment(&machine.work, 1);
    let bytes = || fs::metadata(&log).unwrap().len();
    let hold = || machine.faults.write("hold-appendonly.aof.1.incr.aof", "");
    let script = "redis.call('SET', KEYS[1], 'x') return redis.call('PUBLISH', 'c', 'm')";
    let sent: [(&[&[&str]], usize); 3] = [
        (&[&["MULTI"], &["SET", "k", "v"], &["PUBLISH", "c", "m"], &["EXEC"]], 3),
        (&[&["EVAL", script, "1", "k"]], 3),
        (&[&["SET", "k", "v"]], 2),
    ];
    for _ in 0..4 {
        for (requests, pushes) in sent {
            let (before, held) = (bytes(), hold());
            client.send(&requests.iter().flat_map(|words| request(*words)).collect::<Vec<_>>());
            wait_until("it is logged", || bytes() > before);
            assert!(listener.is_silent_for(MOMENT), "{requests:?}");
            fs::remove_file(held).unwrap();
            requests.iter().for_each(|_| client.reply().ignored());
            (0..pushes).for_each(|_| listener.reply().ignored());
        }
    }
    // A second change comes while the first one is being synced. On a busy machine it may come to the journal
    // before the server has noted for what the first reply waits, which then waits for both: another round.
    let is_shown = (0..10).any(|_| {
        let (before, held) = (bytes(), hold());
        client.send(&request(["SET", "a", "1"]));
        wait_until("it is logged", || bytes() > before);
        other.send(&request(["SET", "b", "2"]));
        // Nothing shows that it has come to the journal. If it has not, this finds nothing.
        assert!(listener.is_silent_for(MOMENT));
        let first = bytes();
        machine.faults.write("pass-appendonly.aof.1.incr.aof", "");
        let waits_for_both = client.is_silent_for(MOMENT * 20);
        if !waits_for_both {
            client.reply().is_ok();
            wait_until("the second one is logged", || bytes() > first);
            (0..2).for_each(|_| listener.reply().ignored());
            assert!(listener.is_silent_for(MOMENT), "the second one is not durable");
        }
        fs::remove_file(held).unwrap();
        other.reply().is_ok();
        (0..2).for_each(|_| listener.reply().ignored());
        if waits_for_both {
            client.reply().is_ok();
            (0..2).for_each(|_| listener.reply().ignored());
        }
        !waits_for_both
    });
    assert!(is_shown);
}

#[test]
fn a_server_that_must_end_during_its_first_base_completes_it_and_ends() {
    let machine = Machine::new("first-base");
    let mut server = machine.start(&["--save", ""]);
    let mut client = server.client();
    client.line("SET a 1").is_ok();
    let hold = machine.faults.write(&format!("hold-temp-{}.rdb", server.process_id()), "");
    client.line("CONFIG SET appendonly yes").is_ok();
    for number in 1..4 {
        client.line("SHUTDOWN").is_error("ERR Errors trying to SHUTDOWN. Check logs.");
        server.signal("TERM");
        let says = |text: &str| server.output().matches(text).count();
        wait_until("it says so", || says("The server will end when the initial AOF is written.") == number);
        client.line("SET b 2").is_ok();
        assert_eq!(client.info("aof_rewrite_in_progress"), "1");
    }
    fs::remove_file(hold).unwrap();
    assert!(server.wait_for_end().success());
    assert!(!server.output().contains("Background AOF rewrite terminated with error"));
    drop(server);
    assert_eq!(keys_in(&machine.rest(), &["--aof-load-truncated", "no"]), ["a", "b"]);
}

#[test]
fn a_log_is_not_called_ready_before_it_is_whole() {
    for _ in 0..4 {
        let machine = Machine::new("ready");
        let server = machine.start(&["--save", ""]);
        let mut client = server.client();
        let hold = machine.faults.write(&format!("hold-temp-{}.rdb", server.process_id()), "");
        client.line("CONFIG SET appendonly yes").is_ok();
        // The rewrite that is running now is not wanted any more.
        client.line("CONFIG SET appendonly no").is_ok();
        client.line("SET before 1").is_ok();
        client.line("CONFIG SET appendonly yes").is_ok();
        fs::remove_file(hold).unwrap();
        // Of one moment: a rewrite that is scheduled may begin between two looks.
        let is_ready = |info: &str| {
            info.contains("aof_rewrite_in_progress:0") && info.contains("aof_rewrite_scheduled:0")
        };
        wait_until("it is whole", || is_ready(&client.line("INFO persistence").text()));
        client.line("CONFIG SET appendfsync always").is_ok();
        client.line("SET after 1").is_ok();
        let rest = machine.lose_power(server);
        assert_eq!(keys_in(&rest, &["--aof-load-truncated", "no"]), ["after", "before"]);
    }
}
