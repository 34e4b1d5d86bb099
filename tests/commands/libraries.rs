//! The client libraries of other people, each in RESP2 and RESP3, doing what applications do.
//!
//! One test is one story, told to both libraries through the small [`Library`] that they have in common; what
//! it calls are the libraries' own methods.

use std::fmt::Debug;
use std::time::Duration;

use fred::clients::Client as FredClient;
use fred::interfaces::{ClientInterface, ClientLike, KeysInterface};
use fred::types::config::{Config, ReconnectPolicy};
use fred::types::{Builder, ClusterHash, CustomCommand, Expiration, RespVersion, SetOptions};
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{AsyncCommands, ExistenceCheck, SetExpiry};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::timeout;

use support::open_files::ask_for;
use support::server::Server;

const PIPELINE_COMMANDS: usize = 10_000;
const CONNECTIONS: usize = 200;
const LARGE_BYTES: usize = 64 << 20;
/// How long a story may take, on a slow machine.
const STORY: Duration = Duration::from_secs(60);

type Bytes = Vec<u8>;

/// What an application does, in a library's own words.
trait Library: Sized + Clone + Send + Sync + 'static {
    async fn connect(port: u16, protocol: Protocol) -> Self;
    async fn setnx(&self, key: &[u8], value: &[u8]) -> bool;
    async fn set(&self, key: &[u8], value: &[u8]);
    async fn set_if_absent_for(&self, key: &[u8], value: &[u8], expiry_s: u64) -> bool;
    async fn get(&self, key: &[u8]) -> Option<Bytes>;
    async fn getset(&self, key: &[u8], value: &[u8]) -> Option<Bytes>;
    async fn del(&self, keys: Vec<Bytes>) -> i64;
    async fn ttl(&self, key: &[u8]) -> i64;
    /// Sets and gets so many keys in one pipeline; answers what was got.
    async fn pipeline(&self, commands: usize) -> Vec<Bytes>;
    /// What the library says of a SETNX with one argument.
    async fn wrong_arity(&self) -> String;
    /// One attempt that may fail while the connection is being made again.
    async fn try_get(&self, key: &[u8]) -> Result<Option<Bytes>, String>;
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Protocol {
    Resp2,
    Resp3,
}

/// Tells a story in both protocols, to a new server each.
fn tell<L: Library, Story: Future<Output = ()>>(story: impl Fn(L, Server) -> Story) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        runtime.block_on(async {
            let server = Server::start();
            let library = timeout(STORY, L::connect(server.port(), protocol)).await.expect("a connection");
            timeout(STORY, story(library, server))
                .await
                .unwrap_or_else(|_| panic!("{protocol:?} takes too long"));
        });
    }
}

async fn the_five_commands<L: Library>(library: L, mut server: Server) {
    assert!(library.setnx(b"mykey", b"Hello").await);
    assert!(!library.setnx(b"mykey", b"World").await);
    assert_eq!(library.get(b"mykey").await, Some(b"Hello".to_vec()));
    assert_eq!(library.get(b"missing").await, None);
    library.set(b"mykey", b"Again").await;
    assert_eq!(library.getset(b"mykey", b"Last").await, Some(b"Again".to_vec()));
    assert_eq!(library.getset(b"new", b"1").await, None);
    assert!(library.set_if_absent_for(b"lock", b"token", 100).await);
    assert!(!library.set_if_absent_for(b"lock", b"other", 100).await);
    assert_eq!(library.ttl(b"lock").await, 100);
    assert_eq!(library.del(vec![b"mykey".to_vec(), b"new".to_vec(), b"missing".to_vec()]).await, 2);
    // All of it happened in the database that the library was told to select.
    server.client().line("DBSIZE").is(0);
    server.signal("TERM");
    assert!(server.wait_for_end().success());
}

async fn a_long_pipeline<L: Library>(library: L, _server: Server) {
    let got = library.pipeline(PIPELINE_COMMANDS).await;
    assert_eq!(got.len(), PIPELINE_COMMANDS / 2);
    for (number, value) in got.iter().enumerate() {
        assert_eq!(*value, format!("value:{number}").into_bytes());
    }
}

async fn binary_and_large_values<L: Library>(library: L, _server: Server) {
    let everything: Bytes = (0..=255).chain(*b"\r\n\0$-1\r\n").collect();
    let large: Bytes = (0..LARGE_BYTES).map(|at| (at / 7) as u8).collect();
    for value in [everything.clone(), Bytes::new(), large] {
        library.set(&everything, &value).await;
        assert!(library.get(&everything).await == Some(value), "it comes back as it was");
    }
}

async fn two_hundred_at_once<L: Library>(library: L, server: Server) {
    drop(library);
    let Some(_files) = ask_for(CONNECTIONS + 10) else { return };
    let port = server.port();
    LocalSet::new().run_until(two_hundred_to::<L>(port)).await;
}

async fn two_hundred_to<L: Library>(port: u16) {
    let tasks: Vec<_> = (0..CONNECTIONS)
        .map(|number| {
            spawn_local(async move {
                let library = L::connect(port, Protocol::Resp3).await;
                let own = format!("own:{number}");
                library.set(own.as_bytes(), own.as_bytes()).await;
                assert_eq!(library.get(own.as_bytes()).await, Some(own.clone().into_bytes()));
                // Kept, so that all are connected at once.
                (library.setnx(b"lock", own.as_bytes()).await, library)
            })
        })
        .collect();
    let mut connected = Vec::new();
    for task in tasks {
        connected.push(task.await.expect("a client that succeeds"));
    }
    assert_eq!(connected.iter().filter(|(has_won, _)| *has_won).count(), 1);
}

async fn a_restart<L: Library>(library: L, mut server: Server) {
    library.set(b"k", b"before").await;
    let port = server.port();
    server.signal("TERM");
    assert!(server.wait_for_end().success());
    let _again = Server::start_on(port, &[]);
    loop {
        match library.try_get(b"k").await {
            Ok(value) => break assert_eq!(value, None, "nothing is kept over a restart"),
            // The library is still connecting; the story's time is limited.
            Err(_) => tokio::task::yield_now().await,
        }
    }
    library.set(b"k", b"after").await;
    assert_eq!(library.get(b"k").await, Some(b"after".to_vec()));
}

async fn an_error<L: Library>(library: L, _server: Server) {
    let error = library.wrong_arity().await;
    assert!(error.contains("wrong number of arguments for 'setnx' command"), "{error}");
}

/// The same stories for each library.
macro_rules! stories {
    ($library:ident: $kind:ty) => {
        mod $library {
            use super::*;

            #[test]
            fn does_the_five_commands() {
                tell::<$kind, _>(the_five_commands);
            }

            #[test]
            fn sends_ten_thousand_commands_in_a_pipeline() {
                tell::<$kind, _>(a_long_pipeline);
            }

            #[test]
            fn keeps_binary_and_large_values() {
                tell::<$kind, _>(binary_and_large_values);
            }

            #[test]
            fn connects_two_hundred_times_and_one_gets_the_lock() {
                tell::<$kind, _>(two_hundred_at_once);
            }

            #[test]
            fn goes_on_after_a_restart() {
                tell::<$kind, _>(a_restart);
            }

            #[test]
            fn understands_an_error() {
                tell::<$kind, _>(an_error);
            }
        }
    };
}

stories!(the_crate_redis: ConnectionManager);
stories!(the_crate_fred: FredClient);

fn sound<T, E: Debug>(result: Result<T, E>) -> T {
    result.expect("the command succeeds")
}

impl Library for ConnectionManager {
    async fn connect(port: u16, protocol: Protocol) -> Self {
        let version = if protocol == Protocol::Resp3 { "resp3" } else { "resp2" };
        let url = format!("redis://127.0.0.1:{port}/3?protocol={version}");
        // The library's own patience of half a second is too short for 64 MiB on a busy machine.
        let patient = ConnectionManagerConfig::new().set_response_timeout(Some(STORY));
        let client = sound(redis::Client::open(url));
        let mut manager = sound(ConnectionManager::new_with_config(client, patient).await);
        sound(redis::cmd("CLIENT").arg("SETNAME").arg("story").exec_async(&mut manager).await);
        manager
    }

    async fn setnx(&self, key: &[u8], value: &[u8]) -> bool {
        sound(self.clone().set_nx(key, value).await)
    }

    async fn set(&self, key: &[u8], value: &[u8]) {
        sound(AsyncCommands::set::<_, _, ()>(&mut self.clone(), key, value).await);
    }

    async fn set_if_absent_for(&self, key: &[u8], value: &[u8], expiry_s: u64) -> bool {
        let options = redis::SetOptions::default()
            .conditional_set(ExistenceCheck::NX)
            .with_expiration(SetExpiry::EX(expiry_s));
        sound(self.clone().set_options::<_, _, Option<String>>(key, value, options).await).is_some()
    }

    async fn get(&self, key: &[u8]) -> Option<Bytes> {
        sound(AsyncCommands::get(&mut self.clone(), key).await)
    }

    async fn getset(&self, key: &[u8], value: &[u8]) -> Option<Bytes> {
        sound(AsyncCommands::getset(&mut self.clone(), key, value).await)
    }

    async fn del(&self, keys: Vec<Bytes>) -> i64 {
        sound(AsyncCommands::del(&mut self.clone(), keys).await)
    }

    async fn ttl(&self, key: &[u8]) -> i64 {
        sound(AsyncCommands::ttl(&mut self.clone(), key).await)
    }

    async fn pipeline(&self, commands: usize) -> Vec<Bytes> {
        let mut pipeline = redis::pipe();
        for number in 0..commands / 2 {
            pipeline.set(format!("key:{number}"), format!("value:{number}")).ignore();
            pipeline.get(format!("key:{number}"));
        }
        sound(pipeline.query_async(&mut self.clone()).await)
    }

    async fn wrong_arity(&self) -> String {
        let answer = redis::cmd("SETNX").arg("k").query_async::<i64>(&mut self.clone()).await;
        answer.expect_err("too few arguments").to_string()
    }

    async fn try_get(&self, key: &[u8]) -> Result<Option<Bytes>, String> {
        AsyncCommands::get(&mut self.clone(), key).await.map_err(|error| error.to_string())
    }
}

impl Library for FredClient {
    async fn connect(port: u16, protocol: Protocol) -> Self {
        let mut config = sound(Config::from_url(&format!("redis://127.0.0.1:{port}/3")));
        config.version = if protocol == Protocol::Resp3 { RespVersion::RESP3 } else { RespVersion::RESP2 };
        let mut builder = Builder::from_config(config);
        builder.set_policy(ReconnectPolicy::new_constant(0, 10));
        let client = sound(builder.build());
        sound(client.init().await);
        sound(client.client_setname("story").await);
        client
    }

    async fn setnx(&self, key: &[u8], value: &[u8]) -> bool {
        sound(KeysInterface::setnx(self, key, value).await)
    }

    async fn set(&self, key: &[u8], value: &[u8]) {
        sound(KeysInterface::set::<(), _, _>(self, key, value, None, None, false).await);
    }

    async fn set_if_absent_for(&self, key: &[u8], value: &[u8], expiry_s: u64) -> bool {
        let expiry = Expiration::EX(expiry_s as i64);
        let options = Some(SetOptions::NX);
        let set = KeysInterface::set::<Option<String>, _, _>(self, key, value, Some(expiry), options, false);
        sound(set.await).is_some()
    }

    async fn get(&self, key: &[u8]) -> Option<Bytes> {
        sound(KeysInterface::get(self, key).await)
    }

    async fn getset(&self, key: &[u8], value: &[u8]) -> Option<Bytes> {
        sound(KeysInterface::getset(self, key, value).await)
    }

    async fn del(&self, keys: Vec<Bytes>) -> i64 {
        let keys: Vec<fred::types::Key> = keys.iter().map(|key| key.as_slice().into()).collect();
        sound(KeysInterface::del(self, keys).await)
    }

    async fn ttl(&self, key: &[u8]) -> i64 {
        sound(KeysInterface::ttl(self, key).await)
    }

    async fn pipeline(&self, commands: usize) -> Vec<Bytes> {
        let pipeline = FredClient::pipeline(self);
        for number in 0..commands / 2 {
            let (key, value) = (format!("key:{number}"), format!("value:{number}"));
            sound(KeysInterface::set::<(), _, _>(&pipeline, &key, value, None, None, false).await);
            sound(KeysInterface::get::<(), _>(&pipeline, &key).await);
        }
        let replies: Vec<Bytes> = sound(pipeline.all().await);
        replies.into_iter().skip(1).step_by(2).collect()
    }

    async fn wrong_arity(&self) -> String {
        let command = CustomCommand::new_static("SETNX", ClusterHash::FirstKey, false);
        let answer = self.custom::<i64, _>(command, vec!["k"]).await;
        answer.expect_err("too few arguments").to_string()
    }

    async fn try_get(&self, key: &[u8]) -> Result<Option<Bytes>, String> {
        KeysInterface::get(self, key).await.map_err(|error| error.to_string())
    }
}
