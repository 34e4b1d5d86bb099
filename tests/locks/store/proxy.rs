//! A way to a store on which a connection is lost at the worst moment.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use support::store::cluster::eventually;

/// Passes bytes on, until a request of a batch names a marked key.
pub(crate) struct Proxy {
    address: SocketAddr,
    fates: Arc<Fates>,
}

/// What happens next, each time to a request that has these bytes.
type Fates = Mutex<VecDeque<(&'static [u8], Fate)>>;

/// What happens to a request. Its connection is lost each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It never arrives.
    Lost,
    /// It arrives, and its answer does not.
    Unanswered,
    /// It arrives a while after its connection was lost.
    Late,
}

/// What a request for a marked key has.
pub(crate) const MARKED: &[u8] = b"marked:";
/// What the question has whether etcd has done a batch.
pub(crate) const QUESTION: &[u8] = b" void";
/// How late a late request is.
const LATE: Duration = Duration::from_millis(300);

impl Proxy {
    /// In front of a port of this machine.
    pub(crate) fn to(port: u16) -> Proxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let all = Arc::<Fates>::default();
        let fates = Arc::clone(&all);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { continue };
                let fates = Arc::clone(&fates);
                thread::spawn(move || pass_on(&client, &server, &fates));
            }
        });
        Proxy { address, fates: all }
    }

    /// The port on which the proxy accepts clients.
    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Decides what happens to the next request with these bytes, after those that were decided before.
    pub(crate) fn arm(&self, bytes: &'static [u8], fate: Fate) {
        self.fates.lock().expect("fates").push_back((bytes, fate));
    }

    /// Waits until all has happened.
    pub(crate) fn has_happened(&self) {
        eventually("a connection is lost", || self.fates.lock().expect("fates").is_empty());
    }
}

fn pass_on(client: &TcpStream, server: &TcpStream, fates: &Fates) {
    let copy = |stream: &TcpStream| stream.try_clone().expect("a socket");
    let (mut from, mut to) = (copy(server), copy(client));
    thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Both);
    });
    let (mut client, mut server) = (copy(client), copy(server));
    let mut bytes = vec![0; 1 << 20];
    while let Ok(count @ 1..) = client.read(&mut bytes) {
        let bytes = &bytes[..count];
        let has = |mark: &[u8]| bytes.windows(mark.len()).any(|part| part == mark);
        let fate = fates.lock().expect("fates").pop_front_if(|(mark, _)| has(mark)).map(|(_, fate)| fate);
        match fate {
            None if server.write_all(bytes).is_ok() => continue,
            None | Some(Fate::Lost) => break,
            Some(Fate::Unanswered) => drop(client.shutdown(Shutdown::Both)),
            Some(Fate::Late) => {
                let _ = client.shutdown(Shutdown::Both);
                thread::sleep(LATE);
            }
        }
        let _ = server.write_all(bytes);
        // The store does it meanwhile.
        thread::sleep(LATE);
        break;
    }
    let _ = client.shutdown(Shutdown::Both);
    let _ = server.shutdown(Shutdown::Both);
}
