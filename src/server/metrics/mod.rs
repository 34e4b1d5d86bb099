//! Metrics for Prometheus at `/metrics`, and at `/healthz` whether the server serves clients.
//!
//! A separate thread serves both, so that busy threads neither delay it nor are delayed by it. It asks for
//! shards only for a moment at a time, and does without them while a script has them. [`http`] reads
//! requests, [`numbers`] collects the values, mostly from INFO; [`table`] lists the fields of INFO that are
//! metrics. [`page`] writes the page, and [`connection_limit`] limits the connections.
//!
//! The port has no password. So it is open on this machine only, unless `metrics-bind` says otherwise.

mod connection_limit;
mod http;
mod numbers;
mod page;
mod table;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::select;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::commands::admin::info::View;
use crate::commands::locks::correcting;
use crate::instance::Instance;
use crate::keyspace::Totals;
use crate::lens::Held;
use crate::values::Value;

use super::listener;
use crate::host::rota::Clientele;
use connection_limit::{ConnectionLimit, ConnectionPermit};
use http::{Answer, Asked, Method, Refusal};

/// The most connections at a time: some monitoring tools, and some people.
const CONNECTIONS_MAX: usize = 16;
/// How long the metrics wait for shards before they do without.
const SHARDS_PATIENCE: Duration = Duration::from_millis(500);
/// The interval between attempts to read the shards.
const SHARDS_GLANCE: Duration = Duration::from_millis(5);
/// How long a thread that serves clients may take to begin a new task.
const THREAD_PATIENCE: Duration = Duration::from_secs(1);

/// The metrics' thread, which ends with this value.
#[derive(Debug, Default)]
pub(super) struct Metrics {
    is_ready: Arc<AtomicBool>,
    serving: Option<(oneshot::Sender<()>, thread::JoinHandle<()>)>,
}

/// Serves the requests.
struct Teller {
    instance: Arc<Instance>,
    /// The clients that are served.
    clientele: Arc<Clientele>,
    /// Whether clients are let in.
    is_ready: Arc<AtomicBool>,
    /// When the server was started, in seconds since 1970. It does not change when a clock is set.
    started_s: u64,
    scrapes: AtomicU64,
}

impl Metrics {
    /// Serves metrics if `metrics-port` is set.
    pub(super) fn serve(instance: &Arc<Instance>, clientele: &Arc<Clientele>) -> Result<Metrics, String> {
        let config = &instance.config;
        let port = config.metrics_port.get() as u16;
        if port == 0 {
            return Ok(Metrics::default());
        }
        let failed = |error: io::Error| format!("could not start the thread for metrics: {error}");
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let listeners = {
            let _entered = runtime.enter();
            let opened = listener::open_port(config, &config.metrics_bind, port);
            opened.map_err(|why| format!("metrics-port: {why}"))?
        };
        for listener in &listeners {
            let address = listener.local_addr().map_err(failed)?;
            tracing::info!("Serving metrics on http://{address}/metrics");
        }
        let is_ready = Arc::new(AtomicBool::new(false));
        let teller = Arc::new(Teller {
            instance: Arc::clone(instance),
            clientele: Arc::clone(clientele),
            is_ready: Arc::clone(&is_ready),
            started_s: UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs()),
            scrapes: AtomicU64::new(0),
        });
        let (stop, stopped) = oneshot::channel();
        let serve = move || {
            runtime.block_on(async {
                select! {
                    _ = stopped => {}
                    () = accept_all(&teller, listeners) => {}
                }
            });
        };
        let thread = thread::Builder::new().name("metrics".to_owned()).spawn(serve).map_err(failed)?;
        Ok(Metrics { is_ready, serving: Some((stop, thread)) })
    }

    /// Ends the thread, and waits for its end.
    pub(super) fn stop(self) {
        if let Some((stop, thread)) = self.serving {
            drop(stop);
            // If the thread has panicked, it no longer serves either.
            let _ = thread.join();
        }
    }

    /// Sets whether clients are let in.
    pub(super) fn set_ready(&self, is_ready: bool) {
        self.is_ready.store(is_ready, Ordering::Relaxed);
    }
}

async fn accept_all(teller: &Arc<Teller>, listeners: Vec<TcpListener>) {
    let limit = ConnectionLimit::new(CONNECTIONS_MAX);
    let mut accepting = JoinSet::new();
    for listener in listeners {
        accepting.spawn(accept(Arc::clone(teller), listener, Arc::clone(&limit)));
    }
    while accepting.join_next().await.is_some() {}
}

/// Accepts connections. If all places are taken, the next connection gets the place of an idle one.
async fn accept(teller: Arc<Teller>, listener: TcpListener, limit: Arc<ConnectionLimit>) {
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                listener::pause_accepting(&error).await;
                continue;
            }
        };
        let Some(permit) = limit.take().await else { return };
        let teller = Arc::clone(&teller);
        tokio::spawn(async move {
            if let Err(error) = teller.converse(stream, permit).await {
                tracing::debug!("A metrics connection failed: {error}");
            }
        });
    }
}

impl Teller {
    /// Serves one connection, from its first request to its last.
    async fn converse(&self, mut stream: TcpStream, permit: ConnectionPermit) -> io::Result<()> {
        let mut read = Vec::new();
        loop {
            let Some(asked) = permit.wait(http::read(&mut stream, &mut read)).await else { return Ok(()) };
            let (answer, with_body, keeps_open) = match asked {
                Ok(Asked { method: Method::Other, .. }) => (Answer::not_allowed(), true, false),
                Ok(Asked { has_body: true, .. }) => (Answer::malformed(), true, false),
                Ok(asked) => (self.answer(&asked.path).await, asked.method == Method::Get, asked.keeps_open),
                Err(Refusal::Malformed) => (Answer::malformed(), true, false),
                Err(Refusal::TooLarge) => (Answer::too_large(), true, false),
                Err(Refusal::TooSlow) => (Answer::too_slow(), true, false),
                Err(Refusal::Gone) => return Ok(()),
                Err(Refusal::Failed(error)) => return Err(error),
            };
            let written = permit.wait(http::write(&mut stream, &answer, with_body, keeps_open)).await;
            let Some(written) = written else { return Ok(()) };
            written?;
            if !keeps_open {
                return permit.wait(http::end(&mut stream)).await.unwrap_or(Ok(()));
            }
        }
    }

    async fn answer(&self, path: &str) -> Answer {
        match path {
            "/metrics" => Answer::metrics(self.page().await),
            "/healthz" => match self.complaint().await {
                None => Answer::well(),
                Some(complaint) => Answer::unwell(complaint),
            },
            _ => Answer::not_found(),
        }
    }

    /// The page with all metrics.
    async fn page(&self) -> String {
        let started = Instant::now();
        let keyspace = &self.instance.keyspace;
        let is_there = |held: &Held| {
            let is_lock = |is_marked, value: Value<'_>| correcting::is_lock(held, is_marked, value);
            keyspace.has_lock_soon(held.database, &held.key, is_lock)
        };
        correcting::correct(&self.instance, self.instance.clock.now_ms(), is_there);
        let view = View::new(&self.instance, self.totals().await);
        let mut page = page::Page::default();
        numbers::tell(&mut page, &view, self.started_s);
        let scrapes = self.scrapes.fetch_add(1, Ordering::Relaxed) + 1;
        numbers::tell_scrape(&mut page, scrapes, started.elapsed(), view.totals.is_some());
        page.into_text()
    }

    /// The totals of the shards; `None` if a script has them for long.
    async fn totals(&self) -> Option<Totals> {
        let started = Instant::now();
        loop {
            let totals = self.instance.keyspace.totals_soon();
            let is_hopeless = self.instance.keyspace.is_busy() || started.elapsed() > SHARDS_PATIENCE;
            if totals.is_some() || is_hopeless {
                return totals;
            }
            sleep(SHARDS_GLANCE).await;
        }
    }

    /// Why clients are not served; `None` if they are.
    async fn complaint(&self) -> Option<&'static str> {
        if !self.is_ready.load(Ordering::Relaxed) {
            return Some("the server does not accept clients");
        }
        if self.instance.keyspace.is_busy() {
            return Some("a script runs for too long");
        }
        if let Some(complaint) = self.instance.remote.get().and_then(|remote| remote.health.complaint()) {
            return Some(complaint);
        }
        let (begun, has_begun) = oneshot::channel();
        self.clientele.add(|_ticket| async move {
            // If it took too long, there is no receiver any more.
            let _ = begun.send(());
        });
        match timeout(THREAD_PATIENCE, has_begun).await {
            Ok(Ok(())) => None,
            _ => Some("no thread serves clients"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::known;
    use crate::config::Config;
    use crate::host::rota::Rota;
    use crate::host::watchdog::watched;
    use crate::instance::Hooks;

    #[test]
    fn a_server_without_a_thread_for_its_clients_is_not_healthy() {
        let rota = Arc::new(Rota::new(1, 1, watched));
        let teller = Teller {
            instance: Arc::new(Instance::new(Config::new(), 1, known(&[]), Hooks::default())),
            clientele: Clientele::new(&rota, None),
            is_ready: Arc::new(AtomicBool::new(true)),
            started_s: 0,
            scrapes: AtomicU64::new(0),
        };
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        assert_eq!(runtime.block_on(teller.complaint()), Some("no thread serves clients"));
        rota.start(runtime.handle());
        assert_eq!(runtime.block_on(teller.complaint()), None);
    }
}
