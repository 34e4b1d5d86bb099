//! The parts of a request's way, each alone: `cargo bench --bench micro`.
//!
//! Reading, the keyspace and writing, with redis-protocol's decoder and encoder beside our own where both can
//! do the work. The keyspace is measured twice, with so few keys that much of it stays in the cache and with
//! so many that nearly nothing does. Every rate is in requests, keys or replies, not in bytes.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use keyfast::internals::keyspace::{Expiry, Keyspace, Shape};
use keyfast::internals::resp::{Limits, Protocol, Reply, RequestReader, Sent, tree};
use keyfast::internals::types;
use keyfast::internals::types::strings::Text;
use redis_protocol::resp2::decode::{decode, decode_range};
use redis_protocol::resp2::encode::encode;
use redis_protocol::resp2::types::OwnedFrame;
use redis_protocol::resp3::types::OwnedFrame as Tree;

const LIMITS: Limits = Limits { bulk_bytes_max: 512 << 20, unauthenticated: false };
const VALUE: &[u8] = &[b'v'; 32];
const PIPELINE_REQUESTS: usize = 100;
/// Between one key and the next that is asked for. Prime, so that all keys have their turn before the first
/// comes again, and far, so that neighbours in memory are not neighbours in time.
const KEY_STEP: u64 = 7_368_787;

fn reading(criterion: &mut Criterion) {
    let request =
        format!("*3\r\n$3\r\nSET\r\n$16\r\nkey:{:012}\r\n$32\r\n{}\r\n", 7, "v".repeat(32)).into_bytes();
    read_in(&mut criterion.benchmark_group("reading one SET"), &request, 1);
    let pipeline = request.repeat(PIPELINE_REQUESTS);
    read_in(&mut criterion.benchmark_group("reading a pipeline of 100 SETs"), &pipeline, PIPELINE_REQUESTS);
}

/// Reads `stream`, which holds `requests`, in three ways.
fn read_in(group: &mut BenchmarkGroup<'_, WallTime>, stream: &[u8], requests: usize) {
    group.throughput(Throughput::Elements(requests as u64));
    group.bench_function("keyfast", |bencher| {
        let mut reader = RequestReader::default();
        bencher.iter(|| assert_eq!(read_all(&mut reader, black_box(stream)), requests));
    });
    group.bench_function("redis-protocol, copying", |bencher| {
        bencher.iter(|| decode_all(black_box(stream), |rest| Some(decode(rest).ok()??.1)));
    });
    group.bench_function("redis-protocol, borrowing", |bencher| {
        bencher.iter(|| decode_all(black_box(stream), |rest| Some(decode_range(rest).ok()??.1)));
    });
}

fn read_all(reader: &mut RequestReader, mut rest: &[u8]) -> usize {
    let mut requests = 0;
    while !rest.is_empty() {
        let ready = reader.read_ahead(rest, &LIMITS).expect("requests");
        for request in reader.requests(rest, 0) {
            black_box(request);
        }
        requests += ready;
        rest = &rest[reader.release()..];
    }
    requests
}

/// Takes frames from `rest` until it is empty; `decode_one` answers how long the first was.
fn decode_all(mut rest: &[u8], decode_one: impl Fn(&[u8]) -> Option<usize>) {
    while !rest.is_empty() {
        rest = &rest[decode_one(rest).expect("a frame")..];
    }
}

fn keyspace(criterion: &mut Criterion) {
    for keys in [100_000, 1_000_000] {
        let mut group = criterion.benchmark_group(format!("keyspace of {keys} keys"));
        group.throughput(Throughput::Elements(1));
        work_on_keys(&mut group, keys);
    }
}

fn work_on_keys(group: &mut BenchmarkGroup<'_, WallTime>, keys: u64) {
    let keyspace = Keyspace::new(Shape::of(16, types::ALL), Arc::default(), Arc::default());
    let (present, absent) = (scattered_keys(0, keys), scattered_keys(keys, keys));
    for key in &present {
        keyspace.begin(0, key).unwrap().put(key, VALUE, Expiry::Never);
    }
    bench_each(group, "GET of one that is there", &present, |key| {
        keyspace.begin(0, key).unwrap().get::<Text>(key).map(|found| found.map(<[u8]>::len))
    });
    bench_each(group, "SET of one that is there", &present, |key| {
        keyspace.begin(0, key).unwrap().put(key, VALUE, Expiry::Never)
    });
    bench_each(group, "SETNX of one that is there", &present, |key| {
        keyspace.begin(0, key).unwrap().insert_if_absent(key, VALUE, Expiry::Never)
    });
    // Deleted at once, so that the next round finds it absent, too.
    bench_each(group, "SETNX and DEL of one that is not", &absent, |key| {
        let mut tx = keyspace.begin(0, key).unwrap();
        tx.insert_if_absent(key, VALUE, Expiry::Never) && tx.remove(key)
    });
}

/// Does `work` on one key after another, round and round.
fn bench_each<T>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    keys: &[[u8; 16]],
    work: impl Fn(&[u8]) -> T,
) {
    let mut keys = keys.iter().cycle();
    group.bench_function(name, |bencher| bencher.iter(|| work(keys.next().expect("keys without end"))));
}

/// As many keys as `count`, numbered from `first`, each once, in an order that no cache expects. They are
/// printed before the clock runs.
fn scattered_keys(first: u64, count: u64) -> Vec<[u8; 16]> {
    let numbers = (0..count).map(|turn| first + turn * KEY_STEP % count);
    numbers.map(|number| format!("key:{number:012}").into_bytes().try_into().expect("16 bytes")).collect()
}

fn writing(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("writing");
    group.throughput(Throughput::Elements(1));
    bench_reply(&mut group, "a bulk string of 32 bytes", |reply| reply.bulk(black_box(VALUE)));
    let frame = OwnedFrame::BulkString(VALUE.to_vec());
    let mut space = vec![0; 1 << 10];
    group.bench_function("a bulk string of 32 bytes, redis-protocol", |bencher| {
        bencher.iter(|| encode(&mut space, black_box(&frame), false));
    });
    bench_reply(&mut group, "an integer", |reply| reply.integer(black_box(1234)));
    let nested = nested_map();
    bench_reply(&mut group, "a nested map", |reply| reply.tree(black_box(&nested)));
    bench_reply(&mut group, "a nested map in RESP2", |reply| {
        reply.in_protocol(Protocol::Resp2).tree(black_box(&nested))
    });
}

/// Writes one reply again and again to a buffer that has the room, as a connection's has.
fn bench_reply(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, write: impl Fn(Reply<'_>) -> Sent) {
    let mut out = Vec::with_capacity(1 << 10);
    group.bench_function(name, |bencher| {
        bencher.iter(|| {
            out.clear();
            let sent = write(Reply::new(&mut out, Protocol::Resp3));
            black_box(&out);
            sent
        });
    });
}

/// What HELLO answers, with a module, and so a map in an array in a map.
fn nested_map() -> Tree {
    let module = tree::map([("name", tree::bulk("search")), ("ver", tree::integer(20_812))]);
    tree::map([
        ("server", tree::bulk("redis")),
        ("version", tree::bulk("7.2.4")),
        ("proto", tree::integer(3)),
        ("id", tree::integer(12_345)),
        ("mode", tree::bulk("standalone")),
        ("role", tree::bulk("master")),
        ("modules", tree::array([module])),
    ])
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    targets = reading, keyspace, writing
}
criterion_main!(benches);
