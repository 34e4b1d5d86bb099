//! An etcd of a test's own.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use super::cluster::{eventually, node_port};
use super::network::Network;
use crate::folder::Folder;
use crate::server::try_signal;
use crate::tools::installed;

/// A cluster of etcd nodes, one process each.
pub struct Etcd {
    folder: Folder,
    /// The ports of each node: for clients, for the other nodes, and for the test, which looks who leads.
    ports: Vec<[u16; 3]>,
    nodes: Vec<Mutex<Option<Child>>>,
    /// What all nodes are started with.
    options: Vec<String>,
    /// Certificate and key, if clients must use TLS.
    certificate: Option<[String; 2]>,
    /// Whose certificates clients must have, if they need any.
    authority: Option<String>,
    /// Where the nodes are, unless they are on the test's own machine.
    network: Option<Network>,
    /// How many seconds the monotonic clock of nodes is ahead that are started from now on.
    pub clock_ahead: u32,
}

impl Etcd {
    /// Starts this many nodes; `None` where etcd is not installed.
    pub fn start(test: &str, nodes: usize) -> Option<Etcd> {
        Etcd::start_in(None, test, nodes, &[])
    }

    /// The same with more options.
    pub fn start_with(test: &str, nodes: usize, options: &[&str]) -> Option<Etcd> {
        Etcd::start_in(None, test, nodes, options)
    }

    /// The same in a network of its own.
    pub fn start_in(network: Option<Network>, test: &str, nodes: usize, options: &[&str]) -> Option<Etcd> {
        installed("etcd")?;
        let etcd = Etcd {
            folder: Folder::new(&format!("store-etcd-{test}")),
            ports: (0..nodes).map(|_| [node_port(), node_port(), node_port()]).collect(),
            nodes: (0..nodes).map(|_| Mutex::default()).collect(),
            options: options.iter().map(|option| (*option).to_owned()).collect(),
            certificate: None,
            authority: None,
            network,
            clock_ahead: 0,
        };
        (0..nodes).for_each(|node| etcd.start_node(node));
        eventually("the nodes have a leader", || etcd.leader().is_some());
        Some(etcd)
    }

    /// The URL of the store, with all nodes.
    pub fn url(&self) -> String {
        let host = |node| format!("{}:{}", self.host(node), self.port(node));
        let hosts: Vec<String> = (0..self.ports.len()).map(host).collect();
        format!("etcd://{}", hosts.join(","))
    }

    /// The port of a node for clients.
    pub fn port(&self, node: usize) -> u16 {
        self.ports[node][0]
    }

    /// Starts a node, or starts it again.
    pub fn start_node(&self, node: usize) {
        let url = |node, port: u16| format!("http://{}:{port}", self.host(node));
        let [mut for_clients, for_nodes, for_test] = self.ports[node].map(|port| url(node, port));
        let mut certificate = Vec::new();
        if let Some([file, key]) = &self.certificate {
            for_clients = for_clients.replace("http:", "https:");
            certificate.extend(["--cert-file", file, "--key-file", key]);
            if let Some(authority) = &self.authority {
                certificate.extend(["--client-cert-auth", "--trusted-ca-file", authority]);
            }
        }
        let all: Vec<String> = self
            .ports
            .iter()
            .enumerate()
            .map(|(node, [_, port, _])| format!("n{node}={}", url(node, *port)))
            .collect();
        let log = std::fs::File::create(self.folder.file(&format!("{node}.log"))).expect("a file");
        let mut command = match &self.network {
            Some(network) => network.command(node, "etcd"),
            None if self.clock_ahead > 0 => {
                let ahead = self.clock_ahead.to_string();
                let mut command = Command::new("unshare");
                command.args(["--time", "--monotonic", &ahead, "--boottime", &ahead, "--kill-child", "etcd"]);
                command
            }
            None => Command::new("etcd"),
        };
        let child = command
            .args(["--name", &format!("n{node}"), "--data-dir", &self.folder.file(&format!("n{node}"))])
            .args(["--listen-client-urls", &for_clients, "--advertise-client-urls", &for_clients])
            .args(["--listen-peer-urls", &for_nodes, "--initial-advertise-peer-urls", &for_nodes])
            .args(["--initial-cluster", &all.join(","), "--initial-cluster-state", "new"])
            .args(["--logger", "zap", "--listen-metrics-urls", &for_test])
            .args(certificate)
            .args(&self.options)
            .env("GOMAXPROCS", "2")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("etcd runs");
        *self.node(node) = Some(child);
    }

    /// Starts the only node again, which uses TLS from now on.
    pub fn use_tls(&mut self, certificate: [String; 2]) {
        self.certificate = Some(certificate);
        self.kill_node(0);
        self.start_node(0);
        eventually("the node leads", || self.leader().is_some());
    }

    /// The same, and asks for a certificate that this authority has signed.
    pub fn ask_for_certificates(&mut self, certificate: [String; 2], authority: &str) {
        self.authority = Some(authority.to_owned());
        self.use_tls(certificate);
    }

    /// Has etcd ask users for their passwords: `root`, and `me`, which may do all with the keys of Keyfast.
    pub fn ask_for_passwords(&self, password: &str) {
        let begin = |what: &str, arguments: String| {
            let answer = self.call(&format!("auth/{what}"), &arguments);
            assert!(answer.contains(" 200 OK"), "{what} {arguments}: {answer}");
        };
        // The permission is for `keyfast/` up to `keyfast0`.
        let permission = r#"{"permType": "READWRITE", "key": "a2V5ZmFzdC8=", "range_end": "a2V5ZmFzdDA="}"#;
        begin("role/add", r#"{"name": "keyfast"}"#.to_owned());
        begin("role/grant", format!(r#"{{"name": "keyfast", "perm": {permission}}}"#));
        begin("role/add", r#"{"name": "root"}"#.to_owned());
        for (user, role) in [("root", "root"), ("me", "keyfast")] {
            begin("user/add", format!(r#"{{"name": "{user}", "password": "{password}"}}"#));
            begin("user/grant", format!(r#"{{"user": "{user}", "role": "{role}"}}"#));
        }
        begin("enable", "{}".to_owned());
    }

    /// Kills a node.
    pub fn kill_node(&self, node: usize) {
        if let Some(mut child) = self.node(node).take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Runs a line of a document on the only node, with its name, its addresses and its directory in place of
    /// those that the document shows.
    pub fn shell(&self, line: &str) {
        let line = line
            .replace("http://host1:2379", &format!("http://127.0.0.1:{}", self.ports[0][0]))
            .replace("http://host1:2380", &format!("http://127.0.0.1:{}", self.ports[0][1]))
            .replace("node1", "n0")
            .replace("=restored", &format!("={}", self.folder.file("n0")));
        let mut command = Command::new("sh");
        command.args(["-c", &line]).env("ETCDCTL_API", "3").current_dir(self.folder.path());
        let output = command.output().expect("sh runs");
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Loses what the only node has.
    pub fn lose_data(&self) {
        self.kill_node(0);
        std::fs::remove_dir_all(self.folder.file("n0")).expect("its directory");
    }

    /// Sends a signal to a node.
    pub fn signal(&self, node: usize, signal: &str) {
        try_signal(self.node(node).as_ref().expect("a node that runs").id(), signal);
    }

    /// The node that leads, if one does.
    pub fn leader(&self) -> Option<usize> {
        (0..self.ports.len()).find(|node| self.says(*node, "is_leader"))
    }

    /// Whether this is true of a node, by its metrics.
    fn says(&self, node: usize, what: &str) -> bool {
        let metrics = http(&self.host(node), self.ports[node][2], "GET /metrics HTTP/1.0\r\n\r\n");
        metrics.is_some_and(|metrics| metrics.contains(&format!("\netcd_server_{what} 1\n")))
    }

    /// The node that leads, as soon as all others follow it.
    pub fn next_leader(&self) -> usize {
        let mut leader = None;
        eventually("all nodes have a leader", || {
            leader =
                self.leader().filter(|_| (0..self.ports.len()).all(|node| self.says(node, "has_leader")));
            leader.is_some()
        });
        leader.expect("a leader")
    }

    /// Does something by etcd's HTTP interface, where keys and values are in Base64. Returns the answer.
    pub fn call(&self, what: &str, arguments: &str) -> String {
        let length = arguments.len();
        let request = format!("POST /v3/{what} HTTP/1.0\r\nContent-Length: {length}\r\n\r\n{arguments}");
        http(&self.host(0), self.port(0), &request).expect("an answer of etcd")
    }

    /// What the first node has counted, one number a line.
    pub fn metrics(&self) -> String {
        http(&self.host(0), self.port(0), "GET /metrics HTTP/1.0\r\n\r\n").expect("an answer of etcd")
    }

    /// Where a node is.
    fn host(&self, node: usize) -> String {
        self.network.as_ref().map_or("127.0.0.1".to_owned(), |network| network.address(node))
    }

    /// The network of the nodes.
    pub fn network(&self) -> &Network {
        self.network.as_ref().expect("a network")
    }

    fn node(&self, node: usize) -> std::sync::MutexGuard<'_, Option<Child>> {
        self.nodes[node].lock().expect("no other thread has panicked")
    }
}

fn http(host: &str, port: u16, request: &str) -> Option<String> {
    let address = (host.parse::<Ipv4Addr>().expect("an address"), port).into();
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

impl Drop for Etcd {
    fn drop(&mut self) {
        (0..self.nodes.len()).for_each(|node| self.kill_node(node));
    }
}
