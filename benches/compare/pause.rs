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

/// Asks for one key again and again until `work` is done.
pub(crate) fn measure(server: &Server, work: impl FnOnce() -> Result<(), String>) -> Result<Waits, String> {
    let is_done = AtomicBool::new(false);
    let mut stream = TcpStream::connect(server.address()).map_err(|error| error.to_string())?;
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    let (worked, waits) = thread::scope(|scope| {
        let asking = scope.spawn(|| ask_until(&mut stream, &is_done));
        let worked = work();
        is_done.store(true, Ordering::Relaxed);
        (worked, asking.join().expect("the asking thread does not panic"))
    });
    worked?;
    let mut waits = waits.map_err(|error| format!("no reply to a GET: {error}"))?;
    waits.sort();
    let milliseconds = |wait: Option<&Duration>| wait.map_or(0.0, |wait| wait.as_secs_f64() * 1000.0);
    Ok(Waits {
        longest_ms: milliseconds(waits.last()),
        most_ms: milliseconds(waits.get(waits.len() * 999 / 1000)),
    })
}

fn ask_until(stream: &mut TcpStream, is_done: &AtomicBool) -> std::io::Result<Vec<Duration>> {
    let mut waits = Vec::new();
    while !is_done.load(Ordering::Relaxed) {
        let asked = Instant::now();
        stream.write_all(b"*2\r\n$3\r\nGET\r\n$7\r\nmissing\r\n")?;
        stream.read_exact(&mut [0; "$-1\r\n".len()])?;
        waits.push(asked.elapsed());
    }
    Ok(waits)
}
