//! The parts of a request's way, each alone: `cargo bench --bench micro`.
//!
//! Reading, the keyspace and writing, with redis-protocol's decoder and encoder beside our own where both can
//! do the work.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use keyfast::keyspace::{Expiry, Keyspace};
use keyfast::resp::{Limits, Protocol, Reply, RequestReader, tree};
use redis_protocol::resp2::decode::decode_range;
use redis_protocol::resp2::encode::encode;
use redis_protocol::resp2::types::OwnedFrame;

const LIMITS: Limits = Limits { bulk_bytes_max: 512 << 20, unauthenticated: false };
const VALUE: &[u8] = &[b'v'; 32];
const KEYS: u64 = 1_000_000;

fn set_request() -> Vec<u8> {
    format!("*3\r\n$3\r\nSET\r\n$16\r\nkey:{:012}\r\n$32\r\n{}\r\n", 7, "v".repeat(32)).into_bytes()
}

fn key(number: u64) -> [u8; 16] {
    let mut key = *b"key:000000000000";
    let mut number = number;
    for digit in key[4..].iter_mut().rev() {
        *digit += (number % 10) as u8;
        number /= 10;
    }
    key
}

/// Numbers below `KEYS` in an order that no cache expects.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % KEYS
    }
}

fn reading(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("reading");
    group.throughput(Throughput::Elements(1));
    let request = set_request();
    let mut reader = RequestReader::default();
    group.bench_function("one SET", |bencher| {
        bencher.iter(|| {
            let ready = reader.read_ahead(black_box(&request), &LIMITS).expect("a request");
            reader.release();
            ready
        });
    });
    group.bench_function("one SET, redis-protocol", |bencher| {
        bencher.iter(|| decode_range(black_box(&request)).expect("a request"));
    });
    let pipeline = request.repeat(100);
    group.throughput(Throughput::Elements(100));
    group.bench_function("a pipeline of 100 SETs", |bencher| {
        bencher.iter(|| {
            let mut rest = black_box(pipeline.as_slice());
            while reader.read_ahead(rest, &LIMITS).expect("a request") > 0 {
                rest = &rest[reader.release()..];
            }
        });
    });
    group.finish();
}

fn keyspace(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("keyspace, a million keys");
    group.throughput(Throughput::Elements(1));
    let keyspace = Keyspace::new(16);
    for number in 0..KEYS {
        let key = key(number);
        keyspace.begin(0, &key).put(&key, VALUE, Expiry::Never);
    }
    let mut numbers = Numbers(1);
    group.bench_function("GET of one that is there", |bencher| {
        bencher.iter(|| {
            let key = key(numbers.next());
            keyspace.begin(0, &key).get(&key).map(<[u8]>::len)
        });
    });
    group.bench_function("SET of one that is there", |bencher| {
        bencher.iter(|| {
            let key = key(numbers.next());
            keyspace.begin(0, &key).put(&key, VALUE, Expiry::Never);
        });
    });
    group.bench_function("SETNX of one that is there", |bencher| {
        bencher.iter(|| {
            let key = key(numbers.next());
            keyspace.begin(0, &key).insert_if_absent(&key, VALUE, Expiry::Never)
        });
    });
    group.bench_function("SETNX and DEL of one that is not", |bencher| {
        bencher.iter(|| {
            let key = key(KEYS + numbers.next());
            let mut tx = keyspace.begin(0, &key);
            tx.insert_if_absent(&key, VALUE, Expiry::Never) && tx.remove(&key)
        });
    });
    group.finish();
}

fn writing(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("writing");
    group.throughput(Throughput::Elements(1));
    let mut out = Vec::with_capacity(1 << 20);
    group.bench_function("a bulk string of 32 bytes", |bencher| {
        bencher.iter(|| {
            out.clear();
            Reply::new(&mut out, Protocol::Resp2).bulk(black_box(VALUE))
        });
    });
    let frame = OwnedFrame::BulkString(VALUE.to_vec());
    let mut space = vec![0; 1 << 10];
    group.bench_function("a bulk string of 32 bytes, redis-protocol", |bencher| {
        bencher.iter(|| encode(&mut space, black_box(&frame), false));
    });
    group.bench_function("an integer", |bencher| {
        bencher.iter(|| {
            out.clear();
            Reply::new(&mut out, Protocol::Resp2).integer(black_box(1234))
        });
    });
    let greeting = tree::map([("server", tree::bulk("redis")), ("proto", tree::integer(3))]);
    group.bench_function("a map of two", |bencher| {
        bencher.iter(|| {
            out.clear();
            Reply::new(&mut out, Protocol::Resp3).tree(black_box(&greeting))
        });
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(3));
    targets = reading, keyspace, writing
}
criterion_main!(benches);
