//! A network that can be cut between a front-end and its store.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Forwards what it receives, unless it is cut. Then all bytes are lost, and both ends stay open.
pub(crate) struct Cable {
    port: u16,
    is_cut: Arc<AtomicBool>,
}

impl Cable {
    /// In front of a port.
    pub(crate) fn start(to: u16) -> Cable {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let is_cut = Arc::<AtomicBool>::default();
        let cut = Arc::clone(&is_cut);
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let Ok(far) = TcpStream::connect((Ipv4Addr::LOCALHOST, to)) else { continue };
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (from, to) = (from.try_clone().expect("a socket"), to.try_clone().expect("a socket"));
                    let cut = Arc::clone(&cut);
                    thread::spawn(move || pass(from, to, &cut));
                }
            }
        });
        Cable { port, is_cut }
    }

    /// Where it listens.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Cuts the network, or mends it. What was under way arrives when it is mended.
    pub(crate) fn cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::Relaxed);
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, is_cut: &AtomicBool) {
    let mut bytes = [0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        while is_cut.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(5));
        }
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
