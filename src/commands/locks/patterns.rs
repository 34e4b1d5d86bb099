//! LOCKS PATTERNS: how long clients wait for locks and hold them, by the patterns of `lock-metrics`.

use redis_protocol::resp3::types::OwnedFrame;

use crate::lens::{End, Histogram, PatternMetrics};
use crate::resp::{Reply, Request, tree};

use super::correcting::correct_in;
use crate::commands::costs;
use crate::commands::facts::{Command, Context, Flags, Group, Result, Run, Scope};

pub(super) const LOCKS_PATTERNS: Command = Command {
    name: "locks|patterns",
    flags: Flags::ADMIN.and(Flags::READONLY),
    scope: Scope::Walk,
    group: Group::SERVER,
    summary: "Returns for each pattern of lock-metrics how long clients wait for its locks and hold them, and losses.",
    since: "1.0.0",
    complexity: "O(N) where N is the number of locks that are followed, 4096 at most",
    cost: costs::ARGUMENTS,
    tips: &["nondeterministic_output"],
    example: &[("LOCKS PATTERNS", "[]")],
    run: Run::Server(patterns),
    ..Command::DEFAULTS
};

fn patterns(context: &mut Context<'_, '_>, _: Request<'_>, reply: Reply<'_>) -> Result {
    correct_in(context.instance, context.tx)?;
    let metrics = context.instance.lens.metrics(context.tx.now_ms());
    Ok(reply.tree(&tree::array(metrics.iter().map(|(metrics, held)| describe(metrics, *held)))))
}

fn describe(metrics: &PatternMetrics, held: u64) -> OwnedFrame {
    let number = |value: u64| tree::integer(value.cast_signed());
    let counts = metrics.counts();
    let losses = End::LOSSES.iter().zip(counts.losses);
    tree::map([
        ("pattern", tree::bulk(&metrics.pattern)),
        ("held", number(held)),
        ("taken", number(counts.taken)),
        ("refused", number(counts.refused)),
        ("renewals", number(counts.renewals)),
        ("losses", tree::map(losses.map(|(end, times)| (end.name(), number(times))))),
        ("waiting", describe_histogram(&metrics.waiting)),
        ("holding", describe_histogram(&metrics.holding)),
    ])
}

fn describe_histogram(histogram: &Histogram) -> OwnedFrame {
    let number = |value: u64| tree::integer(value.cast_signed());
    let count = histogram.cumulative().last().map_or(0, |(_, count)| count);
    tree::map([
        ("count", number(count)),
        ("total-ms", number(histogram.total_ms())),
        ("p50-ms", number(histogram.percentile_ms(50))),
        ("p99-ms", number(histogram.percentile_ms(99))),
        ("max-ms", number(histogram.percentile_ms(100))),
    ])
}
