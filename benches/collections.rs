//! Large collections alone: `cargo bench --bench collections`.
//!
//! Prints bytes an element, as a collection keeps the count and as the allocator sees it, and nanoseconds of
//! an operation. Names and values have ten bytes. `-- --elements 10000000` measures another size than the
//! usual.

use std::hint::black_box;
use std::time::{Duration, Instant};

use keyfast::internals::allocator::{self, Counted};
use keyfast::internals::values::tree::{Map, Ranking, Remains, Sequence};

#[global_allocator]
static ALLOCATOR: Counted = Counted;

const SEED: u64 = 42;
/// Sizes that are measured unless the command line has another: in the cache, around it and out of it.
const ELEMENTS: [u64; 3] = [1_000, 100_000, 1_000_000];
/// Operations of each kind at least, so that small collections are not over in a moment.
const OPERATIONS_MIN: u64 = 500_000;
/// Writes after sharing: few, so that most pages are still shared.
const WRITES_AFTER_SHARING: u64 = 1_000;
/// Bytes freed in one step.
const STEP_BYTES: usize = 256 << 10;
/// Between one element and the next that is asked for. Prime, and so far that neighbours in memory are not
/// neighbours in time.
const STEP: u64 = 7_368_787;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let chosen = arguments.iter().skip_while(|argument| *argument != "--elements").nth(1);
    let sizes = match chosen {
        Some(elements) => vec![elements.parse().expect("--elements takes a number")],
        None => ELEMENTS.to_vec(),
    };
    for elements in sizes {
        println!("a map of {elements} elements, names and values of 10 bytes");
        measure_map(elements, true);
        println!("a map of {elements} elements without values, as a set has them");
        measure_map(elements, false);
        println!("a sequence of {elements} records of 10 bytes, as a list has them");
        measure_list(elements);
        println!("a ranking of {elements} members of 10 bytes, as a sorted set has them");
        measure_ranking(elements);
    }
}

/// A name of ten bytes, or a value.
fn ten_bytes(n: u64) -> [u8; 10] {
    let mut bytes = *b"e000000000";
    let mut rest = n;
    for digit in bytes[1..].iter_mut().rev() {
        *digit += (rest % 10) as u8;
        rest /= 10;
    }
    bytes
}

fn measure_map(elements: u64, with_values: bool) {
    let value = |n: u64| if with_values { ten_bytes(n) } else { [0; 10] };
    let length = if with_values { 10 } else { 0 };
    let before_bytes = allocator::used_bytes();
    let mut map = Map::new(SEED);
    let begun = Instant::now();
    for n in scattered(elements, elements) {
        map.insert(&ten_bytes(n), &value(n)[..length]);
    }
    print_each("insert, new", begun.elapsed(), elements);
    assert_eq!(map.len() as u64, elements);
    print_bytes(map.bytes(), before_bytes, elements);

    let operations = elements.max(OPERATIONS_MIN);
    time("get, a hit", elements, operations, |n| assert!(map.get(&ten_bytes(n)).is_some()));
    time("get, a miss", elements, operations, |n| assert!(map.get(&ten_bytes(n + elements)).is_none()));
    time("at a position", elements, operations, |n| assert!(map.at(n as usize).is_some()));
    time("insert, the same size", elements, operations, |n| {
        map.insert(&ten_bytes(n), &value(n + 1)[..length]);
    });
    time("remove and insert", elements, operations, |n| {
        map.remove(&ten_bytes(n));
        map.insert(&ten_bytes(n), &value(n)[..length]);
    });
    let begun = Instant::now();
    assert_eq!(black_box(map.iter().count()) as u64, elements);
    print_each("iterate", begun.elapsed(), elements);

    let copy = map.share();
    time("insert after sharing", elements, WRITES_AFTER_SHARING.min(elements), |n| {
        map.insert(&ten_bytes(n), &value(n)[..length]);
    });
    drop(copy);
    measure_freeing(map.clear());
}

fn measure_list(elements: u64) {
    let before_bytes = allocator::used_bytes();
    let mut list = Sequence::new();
    let begun = Instant::now();
    for n in 0..elements / 2 {
        list.insert(list.len(), &ten_bytes(n));
    }
    print_each("insert at the end", begun.elapsed(), elements / 2);
    let begun = Instant::now();
    for n in elements / 2..elements {
        list.insert(0, &ten_bytes(n));
    }
    print_each("insert at the front", begun.elapsed(), elements / 2);
    print_bytes(list.bytes(), before_bytes, elements);

    let operations = elements.max(OPERATIONS_MIN);
    time("get", elements, operations, |n| assert!(list.get(n as usize).is_some()));
    time("ten from a position on", elements, operations, |n| {
        black_box(list.range(n as usize..n as usize + 10).map(<[u8]>::len).sum::<usize>());
    });
    time("replace, the same size", elements, operations, |n| list.replace(n as usize, &ten_bytes(n)));
    time("remove and insert there", elements, operations, |n| {
        list.remove(n as usize..n as usize + 1);
        list.insert(n as usize, &ten_bytes(n));
    });
    time("as a queue: front in, end out", elements, operations, |n| {
        list.insert(0, &ten_bytes(n));
        list.remove(list.len() - 1..list.len());
    });
    let begun = Instant::now();
    assert_eq!(black_box(list.range(0..usize::MAX).filter(|record| record.len() == 10).count()), list.len());
    print_each("iterate", begun.elapsed(), elements);

    let copy = list.share();
    time("replace after sharing", elements, WRITES_AFTER_SHARING.min(elements), |n| {
        list.replace(n as usize, &ten_bytes(n));
    });
    drop(copy);
    let copy = list.share();
    let begun = Instant::now();
    let removed = list.remove(list.len() / 4..list.len() / 4 * 3);
    print_figure("remove the middle half, us", begun.elapsed().as_secs_f64() * 1e6);
    drop(copy);
    measure_freeing(removed);
}

fn measure_ranking(elements: u64) {
    let before_bytes = allocator::used_bytes();
    let mut ranking = Ranking::new(SEED);
    let begun = Instant::now();
    for n in scattered(elements, elements) {
        ranking.insert(&ten_bytes(n), n as f64);
    }
    print_each("insert, new", begun.elapsed(), elements);
    print_bytes(ranking.bytes(), before_bytes, elements);

    let operations = elements.max(OPERATIONS_MIN);
    time("score", elements, operations, |n| assert_eq!(ranking.score(&ten_bytes(n)), Some(n as f64)));
    time("rank", elements, operations, |n| assert_eq!(ranking.rank(&ten_bytes(n)), Some(n as usize)));
    time("first with a score", elements, operations, |n| {
        assert_eq!(ranking.first_at_least(n as f64), n as usize);
    });
    time("insert, the same score", elements, operations, |n| {
        ranking.insert(&ten_bytes(n), n as f64);
    });
    time("remove and insert", elements, operations, |n| {
        ranking.remove(&ten_bytes(n));
        ranking.insert(&ten_bytes(n), n as f64);
    });
    time("insert, another score", elements, operations, |n| {
        ranking.insert(&ten_bytes(n), (n * STEP % elements) as f64);
    });
    let copy = ranking.share();
    time("insert after sharing", elements, WRITES_AFTER_SHARING.min(elements), |n| {
        ranking.insert(&ten_bytes(n), n as f64);
    });
    drop(copy);
    measure_freeing(ranking.clear());
}

fn measure_freeing(mut remains: Remains) {
    let begun = Instant::now();
    let (mut steps, mut longest) = (0, Duration::ZERO);
    loop {
        let step_begun = Instant::now();
        let is_done = remains.free_some(STEP_BYTES);
        longest = longest.max(step_begun.elapsed());
        steps += 1;
        if is_done {
            break;
        }
    }
    print_figure("freeing, ms in all", begun.elapsed().as_secs_f64() * 1e3);
    print_figure("freeing, steps of 256 KiB", f64::from(steps));
    print_figure("freeing, ms of the longest step", longest.as_secs_f64() * 1e3);
}

/// Numbers below `elements`, far from each other.
fn scattered(elements: u64, operations: u64) -> impl Iterator<Item = u64> {
    (0..operations).map(move |n| n * STEP % elements)
}

fn time(what: &str, elements: u64, operations: u64, mut operation: impl FnMut(u64)) {
    let begun = Instant::now();
    scattered(elements, operations).for_each(&mut operation);
    print_each(what, begun.elapsed(), operations);
}

fn print_bytes(kept_bytes: usize, before_bytes: usize, elements: u64) {
    let taken_bytes = allocator::used_bytes() - before_bytes;
    print_figure("bytes an element, as kept", kept_bytes as f64 / elements as f64);
    print_figure("bytes an element, of the allocator", taken_bytes as f64 / elements as f64);
}

fn print_each(what: &str, took: Duration, operations: u64) {
    print_figure(&format!("{what}, ns"), took.as_nanos() as f64 / operations as f64);
}

fn print_figure(what: &str, figure: f64) {
    println!("  {what:<40}{figure:>12.2}");
}
