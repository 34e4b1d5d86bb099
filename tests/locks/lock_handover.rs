//! A lock of LOCK ACQUIRE that passes down its line, as the lens shows it: one holder after the other, each
//! of which has taken it once, and clients that wait, which were not refused.

use crate::locks::{findings, locksmiths};
use support::client::{Client, Reply};
use support::replies::{array, field, integer, text};
use support::server::{Server, wait_until};

const COMPARE_AND_DEL: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

/// The steps of a lock's timeline, without the time and the address.
fn steps(lock: &Reply) -> Vec<String> {
    let steps = array(lock, "timeline").into_iter().map(|step| match step {
        Reply::Bulk(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        other => panic!("{other}"),
    });
    let short = |step: String| match step.split_once("): ") {
        Some((client, what)) => {
            format!("{} {what}", client.split('\'').nth(1).unwrap_or_default())
        }
        None => step.split_once(" ms ").map(|(_, what)| what.to_owned()).unwrap_or_default(),
    };
    steps.map(short).collect()
}

fn shown(observer: &mut Client, key: &str) -> Reply {
    observer.cmd(["LOCKS", "GET", key]).reply()
}

fn taken(observer: &mut Client) -> i64 {
    integer(&observer.line("LOCKS STATS").reply(), "taken")
}

/// Lets a client wait for a lock. Returns when it stands in line.
fn wait(observer: &mut Client, client: &mut Client, key: &str, token: &str, wait_ms: &str) {
    client.send_and_wait(observer, &format!("LOCK ACQUIRE {key} {token} PX 60000 WAIT {wait_ms}"));
}

#[test]
fn a_lock_that_passes_to_the_next_in_line_is_taken_once_however_it_was_freed() {
    let server = Server::start_with(&["--enable-clock-command", "yes"]);
    let mut observer = server.client3();
    let [mut holder, mut next, mut third] = ["holder", "next", "third"].map(|name| {
        let mut client = server.client3();
        client.cmd(["CLIENT", "SETNAME", name]).is_ok();
        client
    });
    // By the holder, unless it is said, and then how its time ended.
    for (line, ended) in [
        ("LOCK RELEASE KEY holders-token", "released"),
        ("DEL KEY", "released"),
        ("UNLINK KEY", "released"),
        ("DELEX KEY IFEQ holders-token", "released"),
        ("GETDEL KEY", "released"),
        ("PEXPIRE KEY 0", "released"),
        ("RENAME KEY elsewhere", "released"),
        ("MOVE KEY 1", "released"),
        ("third DEL KEY", "deleted-by-another"),
        ("third FLUSHALL", "flushed"),
        ("third FLUSHDB", "flushed"),
        ("PEXPIRE KEY 20", "expired"),
        ("EVAL", "released"),
        ("MULTI", "released"),
        ("third CLOCK ADVANCE 60001", "expired"),
    ] {
        let key = format!("lock:{}", line.replace([' ', ':'], "-"));
        let before = taken(&mut observer);
        holder.cmd(["LOCK", "ACQUIRE", &key, "holders-token", "PX", "60000"]).integer();
        wait(&mut observer, &mut next, &key, "nexts-token", "0");
        let lock = shown(&mut observer, &key);
        assert_eq!((integer(&lock, "waiting"), integer(&lock, "refused")), (1, 0), "{line}");
        assert_eq!(array(&lock, "refused-clients"), [], "{line}");
        match line {
            "EVAL" => holder.cmd(["EVAL", COMPARE_AND_DEL, "1", &key, "holders-token"]).is(1),
            "MULTI" => {
                for line in ["MULTI", &format!("LOCK RELEASE {key} holders-token"), "EXEC"] {
                    holder.line(line).ignored();
                }
            }
            line => match line.strip_prefix("third ") {
                Some(line) => third.line(&line.replace("KEY", &key)).ignored(),
                None => holder.line(&line.replace("KEY", &key)).ignored(),
            },
        }
        let number = next.reply().integer();
        wait_until("the lens knows", || text(&shown(&mut observer, &key), "holder.name") == "next");
        let lock = shown(&mut observer, &key);
        assert_eq!((text(&lock, "state"), integer(&lock, "fencing")), ("held".into(), number), "{line}");
        let past = array(&lock, "past");
        assert_eq!(past.len(), 1, "{line}: {lock}");
        let was = (text(&past[0], "holder.name"), text(&past[0], "state"));
        assert_eq!(was, ("holder".to_owned(), ended.to_owned()), "{line}");
        assert_eq!(taken(&mut observer) - before, 2, "{line}");
        let steps = steps(&lock);
        assert_eq!(steps[1], "next LOCK ACQUIRE waits in line", "{steps:?}");
        assert_eq!(steps.last().unwrap(), "next LOCK ACQUIRE took it", "{steps:?}");
        assert!(!steps.iter().any(|step| step.contains("unseen")), "{steps:?}");
        assert_eq!((field(&lock, "waiting"), integer(&lock, "refused")), (Reply::Null, 0), "{line}");
        next.cmd(["LOCK", "RELEASE", &key, "nexts-token"]).is(1);
    }
    assert_eq!(integer(&observer.line("LOCKS STATS").reply(), "refused"), 0);
    let found = findings(&mut observer);
    assert_eq!(found.len(), 1, "the lock that another has deleted: {found:?}");
}

/// A client that waits contends as one that asks again and again; one that has waited in vain was refused.
#[test]
fn clients_in_line_wait_and_are_refused_when_they_have_waited_in_vain() {
    let (mut observer, [mut holder, mut patient, mut hasty], _server) =
        locksmiths(["holder", "patient", "hasty"]);
    let id = patient.line("CLIENT ID").integer().to_string();
    holder.line("LOCK ACQUIRE lock a PX 60000").integer();
    wait(&mut observer, &mut patient, "lock", "b", "0");
    hasty.line("LOCK ACQUIRE lock c PX 60000 WAIT 1").is_nil();
    wait_until("it has left the line", || integer(&shown(&mut observer, "lock"), "refused") == 1);
    let names = |lock: &Reply, list: &str, name: &str| -> Vec<String> {
        array(lock, list).iter().map(|client| text(client, name)).collect()
    };
    let lock = shown(&mut observer, "lock");
    assert_eq!(names(&lock, "waiting-clients", "name"), ["patient"]);
    assert_eq!(names(&lock, "refused-clients", "client.name"), ["hasty"]);
    assert_eq!(
        steps(&lock),
        [
            "holder LOCK ACQUIRE took it",
            "patient LOCK ACQUIRE waits in line",
            "hasty LOCK ACQUIRE waits in line",
            "hasty LOCK ACQUIRE waited in vain",
        ]
    );
    // In EXEC and in scripts no client waits.
    for line in ["MULTI", "LOCK ACQUIRE lock c PX 60000 WAIT 9000", "EXEC"] {
        hasty.line(line).ignored();
    }
    hasty.line("EVAL \"return redis.call('lock','acquire',KEYS[1],'c','px',9,'wait',9)\" 1 lock").is_nil();
    let lock = shown(&mut observer, "lock");
    assert_eq!((integer(&lock, "refused"), integer(&lock, "waiting")), (3, 1));
    // One whose wait another client ends has waited in vain, too.
    observer.cmd(["CLIENT", "UNBLOCK", &id]).is(1);
    patient.reply().is_nil();
    wait_until("it has left the line", || integer(&shown(&mut observer, "lock"), "refused") == 4);
    assert_eq!(integer(&observer.line("LOCKS STATS").reply(), "refused"), 4);
    assert_eq!(field(&shown(&mut observer, "lock"), "waiting"), Reply::Null);
    assert_eq!(findings(&mut observer), []);
}
