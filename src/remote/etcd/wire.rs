//! A connection to one node of etcd.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::tokio_stream::wrappers::ReceiverStream;
use tonic::codegen::tokio_stream::{Stream, once};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::messages::{
    AuthenticateRequest, AuthenticateResponse, LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest,
    LeaseKeepAliveResponse, RangeRequest, RangeResponse, RequestOp, TxnRequest, TxnResponse,
    WatchCreateRequest, WatchRequest, WatchResponse, Watching,
};
use crate::certificates::read;
use crate::remote::hosts::first_opened;
use crate::remote::store::Failure;
use crate::remote::target::{EtcdPlace, Login};
use crate::remote::{Settings, tls};

/// How long etcd may be silent before the front-end asks about the fate of a batch. etcd itself gives up a
/// batch of a former leader only after seven seconds.
pub(super) const SILENCE: Duration = Duration::from_secs(1);

/// How often one call logs in anew.
const LOGINS: usize = 4;

/// A connection. Its clones are the same one.
#[derive(Clone, Debug)]
pub(super) struct Wire {
    channel: Channel,
    session: Option<Arc<Session>>,
}

/// The user's token. etcd may drop it at any time: then the user logs in again.
#[derive(Debug)]
struct Session {
    login: Login,
    /// Calls wait while one of them logs in.
    token: Mutex<Option<Token>>,
}

/// How a connection speaks TLS.
#[derive(Clone)]
struct Secured {
    config: ClientTlsConfig,
    shows_certificate: bool,
}

impl Secured {
    fn of(settings: &Settings) -> Result<Secured, String> {
        let trusted = settings.tls.trusted()?;
        let config = ClientTlsConfig::new().trust_anchors(trusted.roots).timeout(settings.patience);
        Ok(match settings.tls.pair()? {
            Some((certificate, key)) => {
                // Refuses a wrong certificate or key with a line for people.
                let _config = settings.tls.client_config()?;
                let identity = Identity::from_pem(read(certificate)?, read(key)?);
                Secured { config: config.identity(identity), shows_certificate: true }
            }
            None => Secured { config, shows_certificate: false },
        })
    }
}

/// The token that a call sends.
type Token = MetadataValue<Ascii>;

impl Wire {
    /// Connects to the first node that reads a key, which takes a majority of the nodes: one that is cut off
    /// from the others is of no use. All nodes are tried at once. Returns what it has read, too.
    ///
    /// # Errors
    ///
    /// With one line for people, if no node can do it.
    pub(super) async fn open(
        place: &EtcdPlace,
        settings: &Settings,
        key: Bytes,
    ) -> Result<(Wire, RangeResponse), String> {
        let patience = settings.patience;
        let tls = if place.is_tls { Some(Secured::of(settings)?) } else { None };
        let mut tries = JoinSet::new();
        for (number, host) in place.hosts.iter().enumerate() {
            let (host, key, tls, login) = (host.clone(), key.clone(), tls.clone(), place.login.clone());
            tries.spawn(async move {
                let opened = Wire::open_host(&host, patience, tls, login, key).await;
                opened.map_err(|why| (number, format!("{host}: {why}")))
            });
        }
        first_opened(tries, patience).await
    }

    async fn open_host(
        host: &str,
        patience: Duration,
        tls: Option<Secured>,
        login: Option<Login>,
        key: Bytes,
    ) -> Result<(Wire, RangeResponse), String> {
        let scheme = if tls.is_some() { "https" } else { "http" };
        let ends = match &tls {
            None => "it ends the connection: it may want TLS (?sslmode=require)",
            Some(Secured { shows_certificate: false, .. }) => {
                "it ends the connection: it may ask for a certificate (store-tls-cert-file)"
            }
            Some(_) => "it ends the connection: it may not trust the certificate (store-tls-cert-file)",
        };
        let endpoint =
            Endpoint::from_shared(format!("{scheme}://{host}")).map_err(|error| in_one_line(&error))?;
        let mut endpoint = endpoint.connect_timeout(patience).tcp_nodelay(true).timeout(patience);
        if let Some(tls) = tls {
            let name = host.rsplit_once(':').map_or(host, |(name, _port)| name);
            // An address of version 6 is in brackets.
            let tls = tls.config.domain_name(name.trim_start_matches('[').trim_end_matches(']'));
            endpoint = endpoint.tls_config(tls).map_err(|error| in_one_line(&error))?;
        }
        let channel = endpoint.connect().await.map_err(|error| in_one_line(&error))?;
        let session = login.map(|login| Arc::new(Session { login, token: Mutex::default() }));
        let wire = Wire { channel, session };
        // etcd's own errors have no cause.
        let why = |status: Status| match std::error::Error::source(&status) {
            Some(_) => ends.to_owned(),
            None => describe(&status),
        };
        loop {
            // A call that has come while the nodes had no leader is never answered. The caller's patience
            // ends.
            match timeout(SILENCE, wire.log_in(None)).await {
                Ok(done) => done.map_err(why)?,
                Err(_elapsed) => continue,
            }
            let read = wire.range(RangeRequest { key: key.clone(), ..RangeRequest::default() });
            if let Ok(read) = timeout(SILENCE / 2, read).await {
                return read.map(|response| (wire, response)).map_err(why);
            }
        }
    }

    /// Logs in, unless another call has done so since this token was shown.
    async fn log_in(&self, shown: Option<Token>) -> Result<(), Status> {
        let Some(session) = &self.session else { return Ok(()) };
        let mut token = session.token.lock().await;
        if *token != shown {
            return Ok(());
        }
        let Login { user: name, password } = session.login.clone();
        let request = AuthenticateRequest { name, password };
        let done =
            self.call_with::<_, AuthenticateResponse>("/etcdserverpb.Auth/Authenticate", request, None);
        *token = match done.await {
            Ok(response) => {
                let wrong = |_| Status::internal("etcd's token is not plain text");
                let mut token = Token::try_from(response.token).map_err(wrong)?;
                token.set_sensitive(true);
                Some(token)
            }
            // This etcd needs no password.
            Err(status) if status.message() == "etcdserver: authentication is not enabled" => None,
            Err(status) => return Err(status),
        };
        Ok(())
    }

    /// The token for calls; `None` if etcd needs no login.
    async fn token(&self) -> Option<Token> {
        match &self.session {
            Some(session) => session.token.lock().await.clone(),
            None => None,
        }
    }

    async fn call<A, B>(&self, path: &'static str, message: A) -> Result<B, Status>
    where
        A: Message + Clone + 'static,
        B: Message + Default + 'static,
    {
        self.with_token(|token| self.call_with(path, message.clone(), token)).await
    }

    /// Makes an attempt with the user's token, and again with a new one if etcd does not know the user by it:
    /// such an attempt has done nothing. A token may expire on its way, so that one login need not be enough.
    async fn with_token<T, F>(&self, attempt: impl Fn(Option<Token>) -> F) -> Result<T, Status>
    where
        F: Future<Output = Result<T, Status>>,
    {
        for _ in 0..LOGINS {
            let token = self.token().await;
            match attempt(token.clone()).await {
                Err(status) if self.session.is_some() && is_about_token(&status) => {
                    self.log_in(token).await?
                }
                done => return done,
            }
        }
        attempt(self.token().await).await
    }

    async fn call_with<A, B>(&self, path: &'static str, message: A, token: Option<Token>) -> Result<B, Status>
    where
        A: Message + 'static,
        B: Message + Default + 'static,
    {
        let mut grpc = self.ready().await?;
        let mut request = Request::new(message);
        show(token, &mut request);
        let path = PathAndQuery::from_static(path);
        let response = grpc.unary(request, path, ProstCodec::<A, B>::default()).await?;
        Ok(response.into_inner())
    }

    async fn ready(&self) -> Result<Grpc<Channel>, Status> {
        // What etcd sends is bounded by what is asked of it.
        let mut grpc = Grpc::new(self.channel.clone()).max_decoding_message_size(usize::MAX);
        grpc.ready().await.map_err(|error| Status::unavailable(in_one_line(&error)))?;
        Ok(grpc)
    }

    async fn stream<A, B>(
        &self,
        path: &'static str,
        messages: impl Stream<Item = A> + Send + 'static,
        token: Option<Token>,
    ) -> Result<Streaming<B>, Status>
    where
        A: Message + 'static,
        B: Message + Default + 'static,
    {
        let mut grpc = self.ready().await?;
        let mut request = Request::new(messages);
        // A node without a leader ends the stream.
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        show(token, &mut request);
        let path = PathAndQuery::from_static(path);
        let response = grpc.streaming(request, path, ProstCodec::<A, B>::default()).await?;
        Ok(response.into_inner())
    }

    /// Does a transaction, unless etcd is silent. It may be done then.
    pub(super) async fn txn_soon(&self, request: TxnRequest) -> Result<TxnResponse, Status> {
        soon(self.txn(request)).await
    }

    /// Reads a key, unless etcd is silent.
    pub(super) async fn range_soon(&self, key: Bytes) -> Result<RangeResponse, Status> {
        soon(self.range(RangeRequest { key, ..RangeRequest::default() })).await
    }

    /// Reads a key, or a range of keys.
    pub(super) async fn range(&self, request: RangeRequest) -> Result<RangeResponse, Status> {
        self.call("/etcdserverpb.KV/Range", request).await
    }

    /// Does a transaction.
    pub(super) async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, Status> {
        self.call("/etcdserverpb.KV/Txn", request).await
    }

    /// Does these operations, without conditions.
    pub(super) async fn all(&self, success: Vec<RequestOp>) -> Result<TxnResponse, Status> {
        self.txn(TxnRequest { success, ..TxnRequest::default() }).await
    }

    /// Makes a lease of so many seconds. Returns its number.
    pub(super) async fn grant(&self, ttl: i64) -> Result<i64, Status> {
        let granting = self.call("/etcdserverpb.Lease/LeaseGrant", LeaseGrantRequest { ttl });
        let response: LeaseGrantResponse = soon(granting).await?;
        Ok(response.id)
    }

    /// Has a lease begin anew. Returns whether it is still there.
    pub(super) async fn keep_alive(&self, lease: i64) -> Result<bool, Status> {
        let attempt = async |token| {
            let request = once(LeaseKeepAliveRequest { id: lease });
            let mut responses: Streaming<LeaseKeepAliveResponse> =
                self.stream("/etcdserverpb.Lease/LeaseKeepAlive", request, token).await?;
            responses.message().await
        };
        Ok(self.with_token(attempt).await?.is_some_and(|response| response.ttl > 0))
    }

    /// Begins to watch keys, and returns once etcd does.
    pub(super) async fn watch(&self, keys: WatchCreateRequest) -> Result<Watch, Status> {
        let attempt = async |token| {
            let (sender, requests) = mpsc::channel(1);
            let request = WatchRequest { request: Some(Watching::Create(keys.clone())) };
            sender.try_send(request).map_err(|_| Status::unavailable("the watch does not take requests"))?;
            let requests = ReceiverStream::new(requests);
            let mut responses: Streaming<WatchResponse> =
                self.stream("/etcdserverpb.Watch/Watch", requests, token).await?;
            match responses.message().await? {
                Some(first) if first.created => still_watched(&first)?,
                _ => return Err(Status::unavailable("the watch does not begin")),
            }
            Ok(Watch { responses, _requests: sender })
        };
        self.with_token(attempt).await
    }
}

/// A watch, which ends with this. It has a stream of its own: etcd knows the user of a stream by the token
/// that was shown at its beginning, and that of an old one may have expired.
pub(super) struct Watch {
    pub(super) responses: Streaming<WatchResponse>,
    /// etcd may end a stream that nothing can be asked on.
    _requests: mpsc::Sender<WatchRequest>,
}

impl Watch {
    /// Whether it has ended, as it does with its connection. Calls connect again by themselves, maybe to an
    /// etcd with other data. What was watched so far is dropped.
    pub(super) fn has_ended(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        loop {
            match Pin::new(&mut self.responses).poll_next(&mut context) {
                Poll::Pending => return false,
                Poll::Ready(Some(Ok(response))) if still_watched(&response).is_ok() => {}
                Poll::Ready(_) => return true,
            }
        }
    }
}

/// An error if a watch has ended; it begins anew with the connection.
pub(super) fn still_watched(response: &WatchResponse) -> Result<(), Status> {
    match response.canceled {
        true => Err(Status::unavailable(response.cancel_reason.clone())),
        false => Ok(()),
    }
}

/// Adds a token to a request.
fn show<A>(token: Option<Token>, request: &mut Request<A>) {
    if let Some(token) = token {
        request.metadata_mut().insert("token", token);
    }
}

/// Whether etcd does not know the user by the token that was shown: it has expired, or a node has started
/// anew, or users or roles have changed since.
fn is_about_token(status: &Status) -> bool {
    const TEXTS: [&str; 4] = [
        "etcdserver: invalid auth token",
        "etcdserver: user name is empty",
        "etcdserver: revision of auth store is old",
        "auth: revision in header is old",
    ];
    TEXTS.iter().any(|text| status.message().ends_with(text))
}

/// The result of a call, unless etcd is silent.
async fn soon<T>(call: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    timeout(SILENCE, call).await.unwrap_or_else(|_elapsed| Err(Status::deadline_exceeded("it is silent")))
}

/// What an error means for the batch that has met it.
pub(super) fn failure(status: &Status) -> Failure {
    let why = describe(status);
    // A lease has ended before the batch came.
    if is_about_lease(status) {
        return Failure::Again;
    }
    let is_own = status.message().starts_with("etcdserver: ");
    // The message never reached etcd's own code.
    let is_too_long = status.message().starts_with("grpc: received message larger than max");
    match status.code() {
        // etcd looks at a transaction before it does any of it. But see `is_full`.
        Code::InvalidArgument
        | Code::NotFound
        | Code::PermissionDenied
        | Code::Unauthenticated
        | Code::FailedPrecondition
        | Code::OutOfRange
            if is_own =>
        {
            Failure::Refused(why)
        }
        Code::ResourceExhausted if is_too_long => Failure::Refused(why),
        // Among these: no leader, another leader, no majority in time, no connection.
        _ => Failure::Lost(why),
    }
}

/// Whether a lease is the reason: it has ended.
pub(super) fn is_about_lease(status: &Status) -> bool {
    status.message() == "etcdserver: requested lease not found"
}

/// Whether the database is as large as it may be. A transaction may have been done all the same: the first
/// one that found no space left.
pub(super) fn is_full(status: &Status) -> bool {
    status.message() == NO_SPACE
}

/// Says that the database is as large as `--quota-backend-bytes` allows.
const NO_SPACE: &str = "etcdserver: mvcc: database space exceeded";

/// The same, for people.
pub(super) fn no_space() -> String {
    format!("etcd has no space left ({NO_SPACE}): compact, defragment, disarm its alarm")
}

/// An error in one line.
pub(super) fn describe(status: &Status) -> String {
    match status.message() {
        "" => in_one_line(status),
        NO_SPACE => no_space(),
        message => message.to_owned(),
    }
}

/// An error with its causes.
fn in_one_line(error: &(dyn std::error::Error + 'static)) -> String {
    if let Some(why) = tls::why_refused(error) {
        return why;
    }
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !line.contains(&text) {
            line = format!("{line}: {text}");
        }
        cause = error.source();
    }
    line
}
