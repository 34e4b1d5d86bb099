//! The servers that are compared: starting them, and what the system says of them.

use std::borrow::Cow;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{available_parallelism, sleep};
use std::time::{Duration, Instant};

use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;

const PATIENCE: Duration = Duration::from_secs(10);

/// A program that can be started.
pub(crate) struct Program {
    pub(crate) name: String,
    pub(crate) version: String,
    path: PathBuf,
    options: Vec<String>,
}

/// A running server; it ends with this value.
pub(crate) struct Server {
    child: Child,
    port: u16,
}

impl Program {
    /// The program at a path, under a name of its own or the file's.
    pub(crate) fn new(path: &Path, name: Option<&str>) -> Result<Program, String> {
        let shown = path.display();
        let output = Command::new(path).arg("--version").output();
        let output = output.map_err(|error| format!("could not run {shown}: {error}"))?;
        let file_name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.unwrap_or(&file_name).to_owned();
        let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        Ok(Program { name, version, path: path.to_owned(), options: Vec::new() })
    }

    /// Name and version for people, such as `Redis 7.0.15`; its own name where `--version` says no number.
    pub(crate) fn label(&self) -> String {
        let mut words = self.version.split_whitespace();
        let (Some(product), rest) = (words.next(), words) else { return self.name.clone() };
        let number = rest.map(|word| word.trim_start_matches("v=")).find(|word| is_version(word));
        let Some(number) = number else { return self.name.clone() };
        let (first, rest) = product.split_at(1);
        format!("{}{rest} {number}", first.to_uppercase())
    }

    /// The same program under another name and with options of its own.
    pub(crate) fn with_options(&self, name: &str, options: &[&str]) -> Program {
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        Program { name: name.to_owned(), version: self.version.clone(), path: self.path.clone(), options }
    }

    /// Starts it on a free port, on the first cores of the machine.
    pub(crate) fn start(&self, cores: usize) -> Result<Server, String> {
        let port = free_port()?;
        let cores = format!("0-{}", cores - 1);
        let child = Command::new("taskset")
            .args(["-c", &cores])
            .arg(&self.path)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .args(&self.options)
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .map_err(|error| format!("could not start {} with taskset: {error}", self.path.display()))?;
        let server = Server { child, port };
        server.wait_until_ready().map_err(|why| format!("{}: {why}", self.name))?;
        Ok(server)
    }
}

/// Whether a word is a version: numbers with points in between.
fn is_version(word: &str) -> bool {
    word.contains('.') && word.split('.').all(|part| part.parse::<u32>().is_ok())
}

/// The machine that this runs on: processor, cores and system.
pub(crate) fn machine() -> String {
    let line = |path: &str, start: &str| {
        let text = fs::read_to_string(path).unwrap_or_default();
        let found = text.lines().find_map(|line| line.strip_prefix(start));
        found.unwrap_or("?").trim_matches([' ', '\t', ':', '=', '"']).to_owned()
    };
    format!(
        "{}, {} cores, {}, Linux {}",
        line("/proc/cpuinfo", "model name"),
        *CORES,
        line("/etc/os-release", "PRETTY_NAME"),
        line("/proc/sys/kernel/osrelease", "").split('-').next().unwrap_or_default()
    )
}

/// Asked before this process is moved for the first time: afterwards it knows of one core only.
static CORES: LazyLock<usize> = LazyLock::new(|| available_parallelism().map_or(1, usize::from));

/// A directory for the files of servers, gone with this value.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// A new one where the system keeps what is temporary.
    pub(crate) fn new() -> Result<Scratch, String> {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("keyfast-compare-{}-{number}", std::process::id()));
        fs::create_dir(&path).map_err(|error| format!("could not make {}: {error}", path.display()))?;
        Ok(Scratch(path))
    }

    pub(crate) fn path(&self) -> Cow<'_, str> {
        self.0.to_string_lossy()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|error| error.to_string())?;
    Ok(listener.local_addr().map_err(|error| error.to_string())?.port())
}

/// Moves this process to the core after the server's, where there is one.
pub(crate) fn pin_this_process(server_cores: usize) {
    if *CORES <= server_cores {
        println!("(the client shares the server's cores)");
        return;
    }
    let core = server_cores.to_string();
    let own = std::process::id().to_string();
    let _ = Command::new("taskset").args(["-c", "-p", &core, &own]).stdout(Stdio::null()).status();
}

impl Server {
    pub(crate) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    fn wait_until_ready(&self) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(self.address()).is_err() {
            if Instant::now() > deadline {
                return Err("it does not listen".to_owned());
            }
            sleep(Duration::from_millis(10));
        }
        // Its first moments are not what is measured.
        sleep(Duration::from_millis(200));
        Ok(())
    }

    /// Sends a command, and reads the line or the text that is the reply.
    pub(crate) fn ask(&self, command: &str) -> Result<String, String> {
        let asked = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect(self.address())?;
            stream.write_all(format!("{command}\r\n").as_bytes())?;
            let (mut stream, mut line) = (BufReader::new(stream), String::new());
            stream.read_line(&mut line)?;
            let Some(length) = line.strip_prefix('$') else { return Ok(line) };
            let mut text = vec![0; length.trim().parse().unwrap_or(0)];
            stream.read_exact(&mut text)?;
            Ok(String::from_utf8_lossy(&text).into_owned())
        };
        asked().map_err(|error| format!("no reply to {command}: {error}"))
    }

    /// Seconds of processor time that all its threads have used, those that have ended as well.
    ///
    /// `/proc` has them, too, but in hundredths of a second, which is too coarse for a short round.
    pub(crate) fn cpu_seconds(&self) -> Result<f64, String> {
        let clock = clock_getcpuclockid(Pid::from_raw(self.child.id().cast_signed()));
        let time = clock.and_then(|clock| clock.now());
        let time = time.map_err(|error| format!("the system tells no processor time: {error}"))?;
        Ok(Duration::from(time).as_secs_f64())
    }

    /// Ticks of the clock at which it was found in user space, and in the kernel.
    pub(crate) fn ticks(&self) -> Result<[f64; 2], String> {
        let text = self.read("stat")?;
        // The program's name, in parentheses, may hold anything; the fields after it are numbers.
        let fields: Vec<&str> = text.rsplit(") ").next().unwrap_or_default().split(' ').collect();
        let ticks = |field: usize| fields.get(field).and_then(|ticks| ticks.parse().ok());
        ticks(11).zip(ticks(12)).map(<[f64; 2]>::from).ok_or_else(|| format!("/proc tells nothing in {text}"))
    }

    /// Memory that the system holds for it.
    pub(crate) fn resident_bytes(&self) -> Result<f64, String> {
        self.status_bytes("VmRSS:")
    }

    /// The most that this has been since [`forget_peak`](Self::forget_peak).
    pub(crate) fn peak_bytes(&self) -> Result<f64, String> {
        self.status_bytes("VmHWM:")
    }

    /// Has the system begin anew to look for the most memory that it holds.
    pub(crate) fn forget_peak(&self) -> Result<(), String> {
        let path = format!("/proc/{}/clear_refs", self.child.id());
        fs::write(&path, "5").map_err(|error| format!("{path}: {error}"))
    }

    fn status_bytes(&self, field: &str) -> Result<f64, String> {
        let status = self.read("status")?;
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
        Ok(kilobytes.ok_or_else(|| format!("/proc tells no {field}"))? * 1024.0)
    }

    fn read(&self, file: &str) -> Result<String, String> {
        // taskset becomes the server, so its number is the server's.
        let path = format!("/proc/{}/{file}", self.child.id());
        fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
