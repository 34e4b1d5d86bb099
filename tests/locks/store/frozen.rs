//! Front-ends that stand still for a while, with their clocks or without.

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use support::client::{Client, Reply};
use support::folder::Folder;
use support::preloaded::Preloaded;
use support::server::{Server, program};
use support::store::cluster::eventually;
use support::store::etcd::Etcd;
use support::store::postgres::Postgres;
use support::tools::installed;

/// A front-end that can be frozen.
pub(super) struct Freezer {
    folder: Folder,
    preloaded: Preloaded,
}

impl Freezer {
    /// Makes the library that is preloaded; `None` where there is no compiler.
    pub(super) fn new(test: &str) -> Option<Freezer> {
        installed("cc")?;
        let folder = Folder::new(&format!("freezer-{test}"));
        let preloaded = Preloaded::compile(&format!("frozen-{test}"), include_str!("frozen.c"));
        let freezer = Freezer { folder, preloaded };
        freezer.stand_still(Duration::ZERO);
        Some(freezer)
    }

    /// Starts the front-end.
    pub(super) fn front(&self, url: &str) -> Server {
        let mut command = Command::new(program());
        self.preloaded
            .preload(command.current_dir(self.folder.path()))
            .args(["--port", "0", "--save", "", "--bind", "127.0.0.1", "--store-timeout", "20000"])
            .args(["--store", url])
            .env("FROZEN_CLOCK", self.folder.file("clock"))
            .stdin(Stdio::null());
        let front = Server::run(&mut command, 0);
        front.wait_for_output("Connected to the store");
        front
    }

    /// For so long the front-end's monotonic clock has stood still.
    fn stand_still(&self, frozen: Duration) {
        use std::io::Write;
        let file = self.folder.file("clock");
        let options = std::fs::OpenOptions::new().write(true).create(true).truncate(false).open(file);
        let ns = frozen.as_nanos() as i64;
        options.expect("a file").write_all(&ns.to_le_bytes()).expect("a file");
    }

    /// Freezes the front-end for so long, and its monotonic clock with it.
    pub(super) fn freeze(&self, front: &Server, frozen: Duration) {
        front.signal("STOP");
        thread::sleep(frozen);
        self.stand_still(frozen);
        front.signal("CONT");
    }
}

marked!(needs_tools: a_lock_in_etcd_lives_as_long_as_it_should_though_its_front_end_was_frozen);
fn a_lock_in_etcd_lives_as_long_as_it_should_though_its_front_end_was_frozen() {
    const FROZEN: Duration = Duration::from_secs(5);
    const LIFE: Duration = Duration::from_secs(8);
    let Some(etcd) = Etcd::start("frozen", 1) else { return };
    let Some(freezer) = Freezer::new("frozen") else { return };
    let front = freezer.front(&etcd.url());
    let other = support::store::cluster::front(&etcd.url(), &[]);
    let (mut client, mut rival) = (front.client(), other.client());
    // Leases for all seconds in which the lock may end by the front-end's clock.
    for (number, life_ms) in (8_000..=11_000).step_by(500).enumerate() {
        client.line(&format!("SET other:{number} v PX {life_ms}")).is_ok();
    }
    freezer.freeze(&front, FROZEN);
    let began = Instant::now();
    client.line(&format!("SET lock v NX PX {}", LIFE.as_millis())).is_ok();
    while rival.line("SETNX lock w").reply() == Reply::Integer(0) {
        assert!(began.elapsed() < LIFE * 3, "it is there for ever");
        thread::sleep(Duration::from_millis(20));
    }
    assert!(began.elapsed() >= LIFE, "it lived for {:?} only", began.elapsed());
}

/// Whether this front-end's clients hear soon that a key has expired.
fn hears_of_expiry(listener: &mut Client, writer: &mut Client) -> bool {
    writer.line("SET expires v PX 1").is_ok();
    let mut has_heard = false;
    while !listener.is_silent_for(Duration::from_millis(500)) {
        listener.reply().ignored();
        has_heard = true;
    }
    has_heard
}

marked!(needs_tools: keys_expire_for_all_though_the_front_end_that_looks_for_them_hangs);
fn keys_expire_for_all_though_the_front_end_that_looks_for_them_hangs() {
    let Some(cluster) = Postgres::start("sweeper", 1) else { return };
    let listening = |front: &Server| {
        front.client().line("CONFIG SET notify-keyspace-events Ex").is_ok();
        let mut listener = front.client();
        listener.line("SUBSCRIBE __keyevent@0__:expired").ignored();
        listener
    };
    let one = cluster.front(&[]);
    let (mut listener, mut writer) = (listening(&one), one.client());
    eventually("the first front-end looks for them", || hears_of_expiry(&mut listener, &mut writer));
    let other = cluster.front(&[]);
    let (mut listener, mut writer) = (listening(&other), other.client());
    eventually("the other one hears of it", || hears_of_expiry(&mut listener, &mut writer));
    one.signal("STOP");
    let began = Instant::now();
    eventually("the other one looks for them", || hears_of_expiry(&mut listener, &mut writer));
    eprintln!("after {:?}", began.elapsed());
    one.signal("CONT");
    eventually("it goes on", || one.client().line("GET expires").reply() == Reply::Null);
}
