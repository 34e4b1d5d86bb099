//! How long a client waits for one reply while the server is kept busy by others.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::server::Server;

/// What one client has waited for its replies.
pub(crate) struct Waits {
    pub(crate) longest_ms: f64,
    /// All but one in a thousand took less.
    pub(crate) most_ms: f64,
}

/// Asks for a key that is not there.
pub(crate) fn get_missing(request: &mut Vec<u8>) -> usize {
    request.extend(b"*2\r\n$3\r\nGET\r\n$7\r\nmissing\r\n");
    "$-1\r\n".len()
}

/// Asks again and again until `work` is done. `ask` writes the next request and answers the length of its
/// reply.
pub(crate) fn measure(
    server: &Server,
    ask: impl FnMut(&mut Vec<u8>) -> usize + Send,
    work: impl FnOnce() -> Result<(), String>,
) -> Result<Waits, String> {
    let is_done = AtomicBool::new(false);
    let mut stream = TcpStream::connect(server.address()).map_err(|error| error.to_string())?;
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    let (worked, waits) = thread::scope(|scope| {
        let asking = scope.spawn(|| ask_until(&mut stream, ask, &is_done));
        let worked = work();
        is_done.store(true, Ordering::Relaxed);
        (worked, asking.join().expect("the asking thread does not panic"))
    });
    worked?;
    let mut waits = waits.map_err(|error| format!("no reply: {error}"))?;
    waits.sort();
    let milliseconds = |wait: Option<&Duration>| wait.map_or(0.0, |wait| wait.as_secs_f64() * 1000.0);
    Ok(Waits {
        longest_ms: milliseconds(waits.last()),
        most_ms: milliseconds(waits.get(waits.len() * 999 / 1000)),
    })
}

fn ask_until(
    stream: &mut TcpStream,
    mut ask: impl FnMut(&mut Vec<u8>) -> usize,
    is_done: &AtomicBool,
) -> std::io::Result<Vec<Duration>> {
    let (mut waits, mut request, mut reply) = (Vec::new(), Vec::new(), Vec::new());
    while !is_done.load(Ordering::Relaxed) {
        request.clear();
        reply.resize(ask(&mut request), 0);
        let asked = Instant::now();
        stream.write_all(&request)?;
        stream.read_exact(&mut reply)?;
        waits.push(asked.elapsed());
    }
    Ok(waits)
}
