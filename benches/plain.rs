//! What a program does that asks a store itself: `benches/store` runs it beside Keyfast.
//!
//! ```sh
//! cargo bench --bench plain -- postgres 'host=127.0.0.1 port=5432 user=me dbname=postgres' 64 5
//! cargo bench --bench plain -- etcd 127.0.0.1:2379,127.0.0.1:2479,127.0.0.1:2579 64 5
//! ```
//!
//! So many clients, each with a connection of its own, insert keys where they are absent, one after the other
//! and for so many seconds: by a prepared statement on the table `plain`, or by a transaction. Connections to
//! etcd are divided among the nodes. Prints the requests a second and the median time of one in milliseconds.

use std::error::Error;
use std::time::{Duration, Instant};

use bytes::Bytes;
use prost::{Message, Oneof};
use tokio::task::{JoinSet, LocalSet};
use tokio_postgres::NoTls;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

const VALUE: &[u8] = &[b'v'; 32];
const INSERT: &str = "INSERT INTO plain (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE \
    SET value = excluded.value, expires = excluded.expires WHERE plain.expires <= clock_timestamp()";

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// A connection to a store.
enum Client {
    Postgres(tokio_postgres::Client, tokio_postgres::Statement),
    Etcd(Grpc<Channel>),
}

impl Client {
    async fn postgres(target: &str) -> Result<Client> {
        let (client, connection) = tokio_postgres::connect(target, NoTls).await?;
        tokio::spawn(connection);
        let insert = client.prepare(INSERT).await?;
        Ok(Client::Postgres(client, insert))
    }

    async fn etcd(host: &str) -> Result<Client> {
        let endpoint = Endpoint::from_shared(format!("http://{host}"))?.tcp_nodelay(true);
        Ok(Client::Etcd(Grpc::new(endpoint.connect().await?)))
    }

    /// Inserts a key if it is absent.
    async fn insert(&mut self, key: u64) -> Result<()> {
        match self {
            Client::Postgres(client, insert) => {
                client.execute(&*insert, &[&key.to_be_bytes().as_slice(), &VALUE]).await?;
            }
            Client::Etcd(grpc) => {
                let path = PathAndQuery::from_static("/etcdserverpb.KV/Txn");
                let codec = ProstCodec::<Txn, Done>::default();
                grpc.ready().await?;
                grpc.unary(tonic::Request::new(Txn::insert(key)), path, codec).await?;
            }
        }
        Ok(())
    }
}

/// A transaction of etcd, as far as it is needed.
#[derive(Clone, PartialEq, Message)]
struct Txn {
    #[prost(message, repeated, tag = 1)]
    compare: Vec<Compare>,
    #[prost(message, repeated, tag = 2)]
    success: Vec<Operation>,
}

impl Txn {
    fn insert(key: u64) -> Txn {
        let key = Bytes::from(format!("plain/{key:016}"));
        let put = Put { key: key.clone(), value: VALUE.into() };
        Txn {
            // Its version is 0: it is absent.
            compare: vec![Compare { key, version: Some(Version::Is(0)) }],
            success: vec![Operation { put: Some(put) }],
        }
    }
}

/// A condition: equal, and of the version, which are the first of their lists and so are not sent.
#[derive(Clone, PartialEq, Message)]
struct Compare {
    #[prost(bytes = "bytes", tag = 3)]
    key: Bytes,
    #[prost(oneof = "Version", tags = "4")]
    version: Option<Version>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Version {
    #[prost(int64, tag = 4)]
    Is(i64),
}

#[derive(Clone, PartialEq, Message)]
struct Operation {
    #[prost(message, optional, tag = 2)]
    put: Option<Put>,
}

#[derive(Clone, PartialEq, Message)]
struct Put {
    #[prost(bytes = "bytes", tag = 1)]
    key: Bytes,
    #[prost(bytes = "bytes", tag = 2)]
    value: Bytes,
}

#[derive(Clone, PartialEq, Message)]
struct Done {
    #[prost(bool, tag = 2)]
    succeeded: bool,
}

/// Inserts keys until the time is over. Returns how long each took.
async fn work(mut client: Client, until: Instant) -> Result<Vec<Duration>> {
    let mut took = Vec::new();
    while Instant::now() < until {
        let began = Instant::now();
        client.insert(fastrand::u64(1..1_000_000_000)).await?;
        took.push(began.elapsed());
    }
    Ok(took)
}

async fn run(kind: &str, target: &str, clients: usize, seconds: u64) -> Result<()> {
    let hosts: Vec<&str> = target.split(',').collect();
    let mut opened = Vec::new();
    for number in 0..clients {
        opened.push(match kind {
            "etcd" => Client::etcd(hosts[number % hosts.len()]).await?,
            _ => Client::postgres(target).await?,
        });
    }
    let (began, lasts) = (Instant::now(), Duration::from_secs(seconds));
    let mut at_work = JoinSet::new();
    for client in opened {
        at_work.spawn_local(work(client, began + lasts));
    }
    let mut took = Vec::new();
    while let Some(ended) = at_work.join_next().await {
        took.extend(ended??);
    }
    let rate = took.len() as f64 / began.elapsed().as_secs_f64();
    took.sort_unstable();
    println!("{rate:.0} {:.3}", took[took.len() / 2].as_secs_f64() * 1000.0);
    Ok(())
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let [kind, target, clients, seconds] = &arguments[..] else {
        return Err("plain: postgres|etcd TARGET CLIENTS SECONDS".into());
    };
    // One thread takes the least processor time, which the store's nodes are short of.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(LocalSet::new().run_until(run(kind, target, clients.parse()?, seconds.parse()?)))
}
