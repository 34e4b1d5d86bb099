//! Log lines, in the form of Redis, which tools that wait for a server to be ready know:
//! `12345:M 21 Nov 2026 01:41:03.123 * Ready to accept connections tcp`.
//!
//! The sign before the message is the level: `.` debug, `-` verbose, `*` notice, `#` warning.

use std::fmt;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{ChronoLocal, FormatTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{fmt as log_format, reload};

/// What each of [`LOG_LEVELS`](crate::config::LOG_LEVELS) lets through.
const FILTERS: [LevelFilter; 4] =
    [LevelFilter::TRACE, LevelFilter::DEBUG, LevelFilter::INFO, LevelFilter::WARN];

/// Starts logging to standard output; answers how to change the level.
pub(super) fn start(level: usize) -> impl Fn(usize) + Send + Sync {
    let (filter, handle) = reload::Layer::new(FILTERS[level]);
    let lines = log_format::layer().event_format(RedisFormat::default());
    // A second server in one process keeps the first one's log.
    let _ = tracing_subscriber::registry().with(filter).with(lines).try_init();
    move |level| {
        let _ = handle.reload(FILTERS[level]);
    }
}

/// Prints an event as Redis prints a line.
struct RedisFormat {
    time: ChronoLocal,
}

impl Default for RedisFormat {
    fn default() -> RedisFormat {
        RedisFormat { time: ChronoLocal::new("%d %b %Y %H:%M:%S%.3f".to_owned()) }
    }
}

impl<S, N> FormatEvent<S, N> for RedisFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut line: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let sign = match *event.metadata().level() {
            Level::TRACE => '.',
            Level::DEBUG => '-',
            Level::INFO => '*',
            Level::WARN | Level::ERROR => '#',
        };
        write!(line, "{}:M ", std::process::id())?;
        self.time.format_time(&mut line)?;
        write!(line, " {sign} ")?;
        context.field_format().format_fields(line.by_ref(), event)?;
        writeln!(line)
    }
}
