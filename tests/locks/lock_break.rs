//! LOCK BREAK: an administrator frees a lock whose holder does not.

use support::client::Reply;
use support::folder::Folder;
use support::log::ALWAYS;
use support::replies::{integer, text};
use support::server::Server;

#[test]
fn a_broken_lock_goes_to_the_next_in_line_with_a_larger_number() {
    let server = Server::start();
    let (mut holder, mut next, mut admin) = (server.client(), server.client(), server.client());
    let first = holder.line("LOCK ACQUIRE l a PX 60000").integer();
    server.have_wait(&mut next, "LOCK ACQUIRE l b PX 60000 WAIT 60000");
    admin.line("LOCK BREAK l").is(1);
    assert!(next.reply().integer() > first);
    holder.line("LOCK EXTEND l a PX 60000").is_nil();
    holder.line("LOCK RELEASE l a").is(0);
    admin.line("LOCK BREAK l").is(1);
    admin.line("LOCK BREAK l").is(0);
    admin.line("EXISTS l").is(0);
}

#[test]
fn only_locks_are_broken() {
    let server = Server::start();
    let mut client = server.client();
    for taken in ["SETNX l a", "SET l a NX", "SET l a NX PX 60000", "SET l a PX 60000"] {
        client.line(taken).ignored();
        client.line("LOCK BREAK l").is(1);
        client.line("EXISTS l").is(0);
    }
    let hash = "redis.call('HINCRBY', KEYS[1], ARGV[1], 1) return redis.call('PEXPIRE', KEYS[1], 60000)";
    client.cmd(["EVAL", hash, "1", "l", "client-and-thread"]).is(1);
    client.line("LOCK BREAK l").is(1);
    client.line("SET l a").is_ok();
    client.line("LOCK BREAK l").is(0);
    client.line("GET l").is("a");
    client.line("DEL l").is(1);
    client.line("SADD l a").is(1);
    client.line("LOCK BREAK l").is_error("WRONGTYPE Operation against a key holding the wrong kind of value");
    client.line("LOCK BREAK").is_error("ERR wrong number of arguments for 'lock|break' command");
    client.line("LOCK BREAK l l").is_error("ERR wrong number of arguments for 'lock|break' command");
}

#[test]
fn it_needs_a_right_of_its_own() {
    let server = Server::start();
    let mut client = server.client();
    client.line("ACL SETUSER u on nopass ~l +@all -@admin").is_ok();
    client.line("ACL SETUSER v on nopass ~l +@all -@dangerous").is_ok();
    client.line("ACL SETUSER w on nopass ~l -@all +lock|break").is_ok();
    for user in ["u", "v"] {
        client.line(&format!("AUTH {user} p")).is_ok();
        let refused = format!("NOPERM User {user} has no permissions to run the 'lock|break' command");
        client.line("LOCK BREAK l").is_error(&refused);
        client.line("LOCK ACQUIRE l a PX 60000 AGAIN").integer();
    }
    client.line("AUTH w p").is_ok();
    client.line("LOCK BREAK m").is_error("NOPERM No permissions to access a key");
    client.line("LOCK BREAK l").is(1);
}

#[test]
fn so_it_is_within_a_transaction_and_a_script_and_after_a_restart() {
    let folder = Folder::new("break_restart");
    let place = folder.file("");
    let options = [&["--dir", &place], ALWAYS].concat();
    let server = Server::start_with(&options);
    let mut client = server.client();
    client.line("LOCK ACQUIRE kept a PX 600000").integer();
    let first = client.line("LOCK ACQUIRE l a PX 600000").integer();
    client.line("MULTI").is_ok();
    for line in ["LOCK BREAK l", "LOCK ACQUIRE l b PX 600000"] {
        client.line(line).is_simple("QUEUED");
    }
    let replies = client.line("EXEC").items();
    assert!(
        matches!(replies[..], [Reply::Integer(1), Reply::Integer(number)] if number > first),
        "{replies:?}"
    );
    client.cmd(["EVAL", "return redis.call('LOCK', 'BREAK', KEYS[1])", "1", "l"]).is(1);
    drop((client, server));
    let server = Server::start_with(&options);
    let mut client = server.client();
    client.line("LOCK BREAK l").is(0);
    client.line("LOCK BREAK kept").is(1);
}

#[test]
fn the_lens_finds_no_theft() {
    let server = Server::start();
    let (mut holder, mut admin) = (server.client3(), server.client3());
    let token = "a-long-token-of-mine";
    let number = holder.cmd(["LOCK", "ACQUIRE", "lock:a", token, "PX", "60000"]).integer();
    admin.line("SETNX lock:a another").is(0);
    admin.line("LOCK BREAK lock:a").is(1);
    let lock = admin.line("LOCKS GET lock:a").reply();
    assert_eq!((text(&lock, "state"), integer(&lock, "fencing")), ("broken".to_owned(), number));
    // Its holder may come back.
    holder.cmd(["LOCK", "EXTEND", "lock:a", token, "PX", "60000"]).is_nil();
    holder.cmd(["LOCK", "RELEASE", "lock:a", token]).is(0);
    assert_eq!(admin.line("LOCKS LOG -1").items(), []);
    assert!(holder.cmd(["LOCK", "ACQUIRE", "lock:a", token, "PX", "60000"]).integer() > number);
}
