//! A network of a test's own, in which each node of a store has an address, and any two of its machines can
//! be cut off from each other. Front-ends are outside, on the test's own machine.
//!
//! Each node is in a network namespace of Linux, and so is the switch between them. A cut teaches both sides
//! a wrong hardware address of the other: what they send gets lost, without an error.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::tools::{installed, refuse_to_pass_without};

/// Some nodes, a switch, and a cable to the test's own machine.
pub struct Network {
    name: String,
    /// The beginning of all addresses.
    subnet: String,
    nodes: usize,
}

/// The test's own machine, among nodes.
pub const OUTSIDE: usize = usize::MAX;
/// No network card has this address.
const NOWHERE: &str = "02:de:ad:00:00:01";

impl Network {
    /// A network for so many nodes; `None` where a test may not make one: that takes `ip`, and to be root.
    pub fn new(nodes: usize) -> Option<Network> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let (pid, number) = (std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        installed("ip")?;
        let network = Network {
            name: format!("kf{pid}x{number}"),
            subnet: format!("10.{}.{}", 100 + (pid / 200) % 100, (pid % 200) as usize + number % 50),
            nodes,
        };
        if !is_done(&network.inside("netns add", "s")) {
            refuse_to_pass_without("network namespaces, and the right to make them");
            return None;
        }
        let (name, subnet) = (&network.name, &network.subnet);
        let switch = network.namespace("s");
        ip(&format!("-n {switch} link add switch type bridge"));
        ip(&format!("-n {switch} link set switch up"));
        ip(&format!("link add {name} type veth peer name outside netns {switch}"));
        ip(&format!("addr add {subnet}.1/24 dev {name}"));
        ip(&format!("link set {name} up"));
        ip(&format!("-n {switch} link set outside master switch up"));
        for node in 0..nodes {
            ip(&network.inside("netns add", &node.to_string()));
            let inside = network.namespace(&node.to_string());
            ip(&format!("-n {inside} link add inside type veth peer name n{node} netns {switch}"));
            ip(&format!("-n {switch} link set n{node} master switch up"));
            ip(&format!("-n {inside} addr add {}/24 dev inside", network.address(node)));
            ip(&format!("-n {inside} link set inside up"));
            ip(&format!("-n {inside} link set lo up"));
        }
        Some(network)
    }

    /// The address of a node.
    pub fn address(&self, node: usize) -> String {
        match node {
            OUTSIDE => format!("{}.1", self.subnet),
            node => format!("{}.{}", self.subnet, 10 + node),
        }
    }

    /// Runs a program on a node.
    pub fn command(&self, node: usize, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace(&node.to_string()), program]);
        command
    }

    /// Cuts a node off from others, or from the [`OUTSIDE`].
    pub fn cut(&self, node: usize, others: impl IntoIterator<Item = usize>) {
        for other in others {
            for (from, to) in [(node, other), (other, node)] {
                self.on(from, &format!("neigh replace {} lladdr {NOWHERE} nud permanent", self.address(to)));
            }
        }
    }

    /// Removes all cuts.
    pub fn mend(&self) {
        for from in (0..self.nodes).chain([OUTSIDE]) {
            for to in (0..self.nodes).chain([OUTSIDE]).filter(|to| *to != from) {
                // Mostly there is nothing to be forgotten.
                self.on(from, &format!("neigh del {}", self.address(to)));
            }
        }
    }

    fn on(&self, machine: usize, what: &str) {
        let _ = match machine {
            OUTSIDE => is_done(&format!("{what} dev {}", self.name)),
            node => is_done(&format!("-n {} {what} dev inside", self.namespace(&node.to_string()))),
        };
    }

    fn namespace(&self, place: &str) -> String {
        format!("{}{place}", self.name)
    }

    fn inside(&self, what: &str, place: &str) -> String {
        format!("{what} {}", self.namespace(place))
    }
}

/// Whatever lies in a namespace goes with it.
impl Drop for Network {
    fn drop(&mut self) {
        for place in (0..self.nodes).map(|node| node.to_string()).chain(["s".to_owned()]) {
            is_done(&self.inside("netns del", &place));
        }
    }
}

#[track_caller]
fn ip(arguments: &str) {
    assert!(is_done(arguments), "ip {arguments}");
}

fn is_done(arguments: &str) -> bool {
    let status = Command::new("ip").args(arguments.split(' ')).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}
