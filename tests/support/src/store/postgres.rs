//! A PostgreSQL of a test's own: a primary with two synchronous replicas, of which one has to confirm each
//! commit. The test itself is the failover manager (Patroni's role): it kills, cuts off and promotes.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::cluster::{eventually, front, node_port};
use super::network::Network;
use crate::folder::Folder;
use crate::server::{Server, try_signal};
use crate::tools::{installed, refuse_to_pass_without};

/// Three nodes, of which the first is the primary at first.
pub struct Postgres {
    folder: Folder,
    programs: PathBuf,
    ports: [u16; 3],
    nodes: usize,
    /// Where the nodes are, unless they are on the test's own machine.
    network: Option<Network>,
    /// The library by which the nodes have clocks that can be set.
    clocks: Option<PathBuf>,
}

impl Postgres {
    /// Starts three nodes, or a primary alone, which waits for no replica; `None` where PostgreSQL is not
    /// installed.
    pub fn start(test: &str, nodes: usize) -> Option<Postgres> {
        Postgres::start_in(None, test, nodes)
    }

    /// The same with clocks that can be set; `None` also where libfaketime is not installed.
    pub fn start_with_clocks(test: &str, nodes: usize) -> Option<Postgres> {
        let found = fs::read_dir("/usr/lib").ok().and_then(|folders| {
            let library = |folder: PathBuf| folder.join("faketime/libfaketime.so.1");
            let mut found = folders.filter_map(|folder| Some(library(folder.ok()?.path())));
            found.find(|library| library.exists())
        });
        let Some(library) = found else {
            refuse_to_pass_without("libfaketime");
            return None;
        };
        Postgres::start_nodes((None, Some(library)), test, nodes)
    }

    /// The same in a network of its own.
    pub fn start_in(network: Option<Network>, test: &str, nodes: usize) -> Option<Postgres> {
        Postgres::start_nodes((network, None), test, nodes)
    }

    fn start_nodes(
        (network, clocks): (Option<Network>, Option<PathBuf>),
        test: &str,
        nodes: usize,
    ) -> Option<Postgres> {
        // By which all processes of a node are found and killed.
        installed("ps")?;
        let programs = fs::read_dir("/usr/lib/postgresql").ok().and_then(|versions| {
            let found = versions.filter_map(|version| Some(version.ok()?.path().join("bin")));
            found.filter(|folder| folder.join("initdb").exists()).max()
        });
        let Some(programs) = programs else {
            refuse_to_pass_without("PostgreSQL");
            return None;
        };
        let folder = Folder::new(&format!("store-{test}"));
        if let Some((user, group)) = owner() {
            chown(folder.path(), Some(user), Some(group)).expect("a folder for PostgreSQL's user");
        }
        let ports = std::array::from_fn(|_| node_port());
        let cluster = Postgres { folder, programs, ports, nodes, network, clocks };
        (0..nodes).for_each(|node| cluster.set_clock(node, 0));
        cluster.run(
            0,
            "initdb",
            &["-N", "-A", "trust", "-U", "keyfast", "--locale=C", "-E", "UTF8", "-D", &cluster.data(0)],
        );
        let addresses = if cluster.network.is_some() { "*" } else { "127.0.0.1" };
        let names = if nodes > 1 { "ANY 1 (n1, n2)" } else { "" };
        cluster.append(
            0,
            "postgresql.conf",
            &format!(
                "listen_addresses = '{addresses}'\nunix_socket_directories = ''\nmax_connections = 60\n\
             shared_buffers = 16MB\nmax_wal_senders = 10\nwal_keep_size = 64MB\nhot_standby = on\n\
             wal_receiver_timeout = 5s\nwal_retrieve_retry_interval = 200ms\n\
             synchronous_standby_names = '{names}'\nport = {}\ncluster_name = 'n0'\n",
                cluster.ports[0]
            ),
        );
        let access = "host replication all 127.0.0.1/32 trust\n\
            host all all 10.0.0.0/8 trust\nhost replication all 10.0.0.0/8 trust\n";
        cluster.append(0, "pg_hba.conf", access);
        for node in 0..nodes {
            if node > 0 {
                cluster.copy_from(0, node);
            }
            cluster.start_node(node);
        }
        Some(cluster)
    }

    /// The URL of the store, with all nodes.
    pub fn url(&self) -> String {
        let host = |node| format!("{}:{}", self.host(node), self.ports[node]);
        let hosts: Vec<String> = (0..self.nodes).map(host).collect();
        format!("postgres://keyfast@{}/postgres?sslmode=disable", hosts.join(","))
    }

    /// The port of a node.
    pub fn port(&self, node: usize) -> u16 {
        self.ports[node]
    }

    /// The same of one node, as another user, under a name of this machine, with an option at its end.
    pub fn url_of(&self, user: &str, host: &str, option: &str) -> String {
        format!("postgres://{user}@{host}:{}/postgres{option}", self.ports[0])
    }

    /// Has the only node use this certificate and key, if there are any, and let users in by these lines.
    pub fn secure(&self, certificate: Option<[String; 2]>, access: &str) {
        if let Some([certificate, key]) = certificate {
            self.give_files([(certificate, "server.crt"), (key, "server.key")]);
            self.append(0, "postgresql.conf", "ssl = on\n");
        }
        fs::write(Path::new(&self.data(0)).join("pg_hba.conf"), access).expect("a file of PostgreSQL");
        self.stop_node(0, "fast");
        self.start_node(0);
    }

    /// Has it use TLS, and ask for a certificate that this authority has signed.
    pub fn ask_for_certificates(&self, [certificate, key]: [String; 2], authority: &str) {
        self.give_files([(certificate, "server.crt"), (key, "server.key"), (authority.to_owned(), "ca.crt")]);
        self.append(0, "postgresql.conf", "ssl_ca_file = 'ca.crt'\n");
        self.append(0, "postgresql.conf", "ssl = on\n");
        self.secure(None, "hostssl all all 127.0.0.1/32 trust clientcert=verify-ca\n");
    }

    /// Copies files to the only node.
    fn give_files(&self, files: impl IntoIterator<Item = (String, &'static str)>) {
        for (from, name) in files {
            let path = Path::new(&self.data(0)).join(name);
            fs::copy(from, &path).expect("a file for PostgreSQL");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("permissions");
            if let Some((user, group)) = owner() {
                chown(&path, Some(user), Some(group)).expect("a file for PostgreSQL's user");
            }
        }
    }

    /// A front-end with these options.
    pub fn front(&self, options: &[&str]) -> Server {
        front(&self.url(), options)
    }

    /// What a statement returns on a node.
    pub fn sql(&self, node: usize, statement: &str) -> Result<String, String> {
        let port = self.ports[node].to_string();
        let output = Command::new(self.programs.join("psql"))
            .args(["-h", &self.host(node), "-p", &port, "-U", "keyfast", "-Atqc", statement, "postgres"])
            .stdin(Stdio::null())
            .output()
            .expect("psql runs");
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    /// The tables of the front-ends with their rows, as statements.
    pub fn dump(&self) -> String {
        let output = Command::new(self.programs.join("pg_dump"))
            .args(["--schema=keyfast", "--inserts", "--no-owner", "--no-privileges", "--dbname", &self.url()])
            .output()
            .expect("pg_dump runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).expect("a text");
        // Newer versions write lines that only their own psql knows.
        let lines = text.lines().filter(|line| !line.starts_with('\\') && !line.starts_with("--"));
        lines.map(|line| format!("{line}\n")).collect()
    }

    /// Runs a program of PostgreSQL's, which a shell starts.
    pub fn shell(&self, line: &str) {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("sh");
        command.args(["-c", line]).env("PATH", format!("{}:{path}", self.programs.display()));
        let output = command.current_dir(self.folder.path()).output().expect("sh runs");
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Executes the statements of a file on a primary alone.
    pub fn load(&self, path: &Path) {
        let output = Command::new(self.programs.join("psql"))
            .args(["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--dbname", &self.url(), "--file"])
            .arg(path)
            .output()
            .expect("psql runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Sets the clock of a node: so many seconds ahead of the right time. It need not run.
    pub fn set_clock(&self, node: usize, seconds: i64) {
        fs::write(self.clock(node), format!("{seconds:+}")).expect("a file");
    }

    fn clock(&self, node: usize) -> String {
        self.folder.file(&format!("clock-{node}"))
    }

    /// Starts a node.
    pub fn start_node(&self, node: usize) {
        let log = self.folder.file(&format!("{node}.log"));
        self.run(node, "pg_ctl", &["-D", &self.data(node), "-l", &log, "-w", "-t", "60", "start"]);
    }

    /// Stops a node in one of PostgreSQL's modes: `fast`, `immediate`.
    pub fn stop_node(&self, node: usize, mode: &str) {
        self.run(node, "pg_ctl", &["-D", &self.data(node), "-m", mode, "-w", "stop"]);
    }

    /// Kills a node with all its processes.
    pub fn kill_node(&self, node: usize) {
        self.signal(node, "KILL");
        self.remove_segment(node);
    }

    /// Removes the segment of shared memory that a killed node leaves behind, unless the node starts again in
    /// the same folder. The system has 4,096 of them for all.
    fn remove_segment(&self, node: usize) {
        let pid_file = fs::read_to_string(self.pid_file(node)).unwrap_or_default();
        // Its line 7: a key, and the number of the segment.
        let segment = pid_file.lines().nth(6).and_then(|line| line.split_whitespace().nth(1));
        if let Some(segment) = segment {
            let _ = Command::new("ipcrm").args(["-m", segment]).stderr(Stdio::null()).status();
        }
    }

    fn pid_file(&self, node: usize) -> PathBuf {
        Path::new(&self.data(node)).join("postmaster.pid")
    }

    /// Sends a signal to all processes of a node. The one that starts others starts none meanwhile.
    pub fn signal(&self, node: usize, signal: &str) {
        let Ok(pid_file) = fs::read_to_string(self.pid_file(node)) else { return };
        let first: u32 = pid_file.lines().next().and_then(|pid| pid.parse().ok()).expect("a number");
        try_signal(first, "STOP");
        let children = Command::new("ps").args(["-o", "pid=", "--ppid", &first.to_string()]).output();
        let children = String::from_utf8_lossy(&children.expect("ps runs").stdout).into_owned();
        for child in children.split_whitespace() {
            try_signal(child.parse().expect("a number"), signal);
        }
        try_signal(first, signal);
    }

    /// Has the script of the guide make the replica that has more the next primary. Returns which.
    pub fn fail_over(&self, replicas: [usize; 2]) -> usize {
        let [one, other] = replicas;
        for node in replicas {
            let names = format!("ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (n{one}, n{other})'");
            self.sql(node, &names).expect("a replica");
            self.sql(node, "SELECT pg_reload_conf()").expect("a replica");
            eventually("it will wait for the other one", || {
                self.sql(node, "SHOW synchronous_standby_names")
                    .is_ok_and(|names| names == format!("ANY 1 (n{one}, n{other})"))
            });
        }
        let connections = replicas.map(|node| {
            let (host, port) = (self.host(node), self.ports[node]);
            format!("host={host} port={port} user=keyfast dbname=postgres connect_timeout=2")
        });
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../src/remote/postgres/failover");
        let path = std::env::var("PATH").unwrap_or_default();
        let output = Command::new(script)
            .args(&connections)
            .env("PATH", format!("{}:{path}", self.programs.display()))
            .stdin(Stdio::null())
            .output()
            .expect("bash runs");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        let is_next = |connection: &String| said.ends_with(&format!("{connection} is the primary\n"));
        replicas[connections.iter().position(is_next).expect("the script says which")]
    }

    /// Makes a node that was killed a replica of another one, beside the third.
    pub fn rebuild(&self, node: usize, primary: usize) {
        fs::remove_dir_all(self.data(node)).expect("a node that was killed");
        self.copy_from(primary, node);
        self.start_node(node);
        let replicas: Vec<String> =
            (0..3).filter(|node| *node != primary).map(|node| format!("n{node}")).collect();
        let names = format!("ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 ({})'", replicas.join(", "));
        self.sql(primary, &names).expect("the primary");
        self.sql(primary, "SELECT pg_reload_conf()").expect("the primary");
        eventually("both replicas follow", || {
            self.sql(primary, "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'")
                == Ok("2".into())
        });
    }

    fn copy_from(&self, primary: usize, node: usize) {
        let from = self.way(primary, node);
        self.run(
            node,
            "pg_basebackup",
            &["-d", &from, "-D", &self.data(node), "-R", "-X", "stream", "-c", "fast", "-N"],
        );
        self.append(
            node,
            "postgresql.conf",
            &format!("port = {}\ncluster_name = 'n{node}'\n", self.ports[node]),
        );
    }

    /// How a replica connects to its primary.
    fn way(&self, primary: usize, replica: usize) -> String {
        let (host, port) = (self.host(primary), self.ports[primary]);
        format!("host={host} port={port} user=keyfast application_name=n{replica} connect_timeout=2")
    }

    /// Where a node is.
    fn host(&self, node: usize) -> String {
        self.network.as_ref().map_or("127.0.0.1".to_owned(), |network| network.address(node))
    }

    /// The network of the nodes.
    pub fn network(&self) -> &Network {
        self.network.as_ref().expect("a network")
    }

    fn data(&self, node: usize) -> String {
        self.folder.file(&format!("n{node}"))
    }

    fn append(&self, node: usize, file: &str, text: &str) {
        let path = Path::new(&self.data(node)).join(file);
        let before = fs::read_to_string(&path).expect("a file of PostgreSQL");
        fs::write(&path, before + text).expect("a file of PostgreSQL");
    }

    /// Runs a program of PostgreSQL on a node, as the user that may.
    fn run(&self, node: usize, program: &str, arguments: &[&str]) {
        let program = self.programs.join(program);
        let as_user = ["runuser", "-u", "postgres", "--"].map(str::to_owned).into_iter();
        let mut words = as_user.filter(|_| owner().is_some()).chain([program.display().to_string()]);
        let first = words.next().expect("a program");
        let mut command = match &self.network {
            Some(network) => network.command(node, &first),
            None => Command::new(&first),
        };
        command.args(words);
        if let Some(library) = &self.clocks {
            command.env("LD_PRELOAD", library).env("FAKETIME_TIMESTAMP_FILE", self.clock(node));
            command.env("FAKETIME_NO_CACHE", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        // In a folder that this user may enter.
        let output = command.args(arguments).current_dir("/").stdin(Stdio::null());
        // A server that goes on in the background must not keep the test's pipes open.
        let (out, err) = (self.folder.file("out"), self.folder.file("err"));
        let (out, err) = (fs::File::create(&out).expect("a file"), fs::File::create(&err).expect("a file"));
        let status = output.stdout(out).stderr(err).status().expect("a program of PostgreSQL runs");
        let said = || {
            let files = ["err".to_owned(), format!("{node}.log")];
            files.map(|name| fs::read_to_string(self.folder.file(&name)).unwrap_or_default()).concat()
        };
        assert!(status.success(), "{program:?} {arguments:?}: {}", said());
    }
}

/// One node, and two front-ends.
pub fn pair(test: &str) -> Option<(Postgres, Server, Server)> {
    let store = Postgres::start(test, 1)?;
    let (one, other) = (store.front(&["--store-name", "one"]), store.front(&["--store-name", "other"]));
    Some((store, one, other))
}

impl Drop for Postgres {
    fn drop(&mut self) {
        (0..3).for_each(|node| self.kill_node(node));
    }
}

/// PostgreSQL refuses to run as root: then Debian's user for it is taken.
fn owner() -> Option<(u32, u32)> {
    let is_root = fs::read_to_string("/proc/self/status").is_ok_and(|status| status.contains("\nUid:\t0\t"));
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let user = users.lines().find(|line| is_root && line.starts_with("postgres:"))?;
    let mut fields = user.split(':').skip(2).filter_map(|field| field.parse().ok());
    Some((fields.next()?, fields.next()?))
}
