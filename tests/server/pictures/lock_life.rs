//! The life of a lock, as a picture: what two clients do, and what LOCKS GET and LOCKS LOG say of it.
//!
//! The test plays the story on a server whose clock moves only by CLOCK ADVANCE, so the times are the same
//! in each run. What the picture shows comes from the replies: who held the lock and until when, what each
//! step of the timeline was, the finding and its advice.

use super::is_kept;
use super::svg::{Canvas, Colour, Style, Theme};
use support::client::{Client, Reply};
use support::replies::{array, integer, text};
use support::server::Server;

const KEY: &str = "lock:report";
const WORKERS: [&str; 2] = ["worker-1", "worker-2"];

/// All that the picture shows. Times are in milliseconds since the first step.
struct Story {
    key: String,
    tenures: Vec<Tenure>,
    steps: Vec<Step>,
    refused_last_ms: i64,
    finding: Finding,
}

/// A time for which a client held the lock.
struct Tenure {
    holder: String,
    state: String,
    from_ms: i64,
    to_ms: i64,
    fencing: i64,
}

/// A line of the timeline.
#[derive(Debug, PartialEq)]
struct Step {
    at_ms: i64,
    client: String,
    what: String,
}

struct Finding {
    rule: String,
    hint: String,
    instead: String,
    at_ms: i64,
}

#[test]
fn the_picture_of_a_locks_life_shows_what_the_server_tells() {
    let story = play();
    for theme in Theme::ALL {
        is_kept(&format!("src/guide/lock-life-{}.svg", theme.name()), &draw(&story, theme));
    }
}

#[test]
fn a_line_of_the_timeline_is_taken_apart() {
    let line = "+8000 ms client 2 'worker-2' (127.0.0.1:41080): SET was refused, 2 times";
    let step = Step { at_ms: 8000, client: "worker-2".into(), what: "SET was refused, 2 times".into() };
    assert_eq!(Step::parse(line), step);
}

/// Has two workers meet at a lock, and asks what the server knows of it.
fn play() -> Story {
    let server = Server::start_with(&["--enable-clock-command", "yes"]);
    let [mut first, mut second] = WORKERS.map(|name| {
        let mut worker = server.client3();
        worker.cmd(["CLIENT", "SETNAME", name]).is_ok();
        worker
    });
    let mut clock = server.client3();
    let mut advance = |milliseconds: i64| clock.line(&format!("CLOCK ADVANCE {milliseconds}")).is_ok();
    let take = |worker: &mut Client, token: &str| {
        worker.line(&format!("SET {KEY} {token} NX PX 30000")).reply() == Reply::Simple("OK".to_owned())
    };
    first.line("CLOCK FREEZE").is_ok();
    assert!(take(&mut first, "8f14e45f-ceea"));
    // The first worker is held up: its work takes 45 seconds, and its lock lasts for 30.
    advance(8_000);
    assert!(!take(&mut second, "c9f0f895-fb98"));
    advance(12_000);
    assert!(!take(&mut second, "c9f0f895-fb98"));
    advance(12_000);
    assert!(take(&mut second, "c9f0f895-fb98"));
    advance(13_000);
    first.line(&format!("DEL {KEY}")).is(1);
    advance(10_000);
    second.line(&format!("DELIFEQ {KEY} c9f0f895-fb98")).is(0);
    let lock = second.line(&format!("LOCKS GET {KEY}")).reply();
    let findings = second.line("LOCKS LOG").items();
    let [finding] = findings.as_slice() else { panic!("not one finding: {findings:?}") };
    Story::of(&lock, finding)
}

impl Story {
    fn of(lock: &Reply, finding: &Reply) -> Story {
        let start_ms = integer(lock, "timeline-since");
        let tenure = |tenure: &Reply| Tenure {
            holder: text(tenure, "holder.name"),
            state: text(tenure, "state"),
            from_ms: integer(tenure, "since") - start_ms,
            to_ms: integer(tenure, "ended-at") - start_ms,
            fencing: integer(tenure, "fencing"),
        };
        let refused = array(lock, "refused-clients");
        Story {
            key: text(lock, "key"),
            tenures: array(lock, "past").iter().rev().chain([lock]).map(tenure).collect(),
            steps: array(lock, "timeline")
                .iter()
                .map(bulk)
                // What no client did has no lane.
                .filter(|line| line.contains(" ms client "))
                .map(|line| Step::parse(&line))
                .collect(),
            refused_last_ms: integer(&refused[0], "last-at") - start_ms,
            finding: Finding {
                rule: text(finding, "rule"),
                hint: text(finding, "hint"),
                // The first of several ways.
                instead: text(finding, "instead").split(';').next().unwrap_or_default().to_owned(),
                at_ms: integer(finding, "at") - start_ms,
            },
        }
    }
}

fn bulk(reply: &Reply) -> String {
    match reply {
        Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => panic!("{other} is no text"),
    }
}

impl Step {
    /// Reads a line such as `+8000 ms client 2 'worker-2' (127.0.0.1:41080): SET was refused`.
    fn parse(line: &str) -> Step {
        let parts = || {
            let (at_ms, rest) = line.strip_prefix('+')?.split_once(" ms client ")?;
            let (client, rest) = rest.split_once('\'')?.1.split_once('\'')?;
            let (_, what) = rest.split_once("): ")?;
            Some(Step { at_ms: at_ms.parse().ok()?, client: client.to_owned(), what: what.to_owned() })
        };
        parts().unwrap_or_else(|| panic!("not a line of the timeline: {line}"))
    }
}

const WIDTH: f64 = 830.0;
const MARGIN: f64 = 16.0;
/// Where the axis begins, and where it ends.
const AXIS: [f64; 2] = [112.0, 806.0];
const AXIS_MS: f64 = 60_000.0;
const TICK_MS: i64 = 10_000;
/// The middle of the first lane, and from lane to lane.
const LANE: f64 = 112.0;
const LANE_STEP: f64 = 86.0;
const BAR: f64 = 26.0;
/// A letter of a text of 11 points, all of the same width.
const LETTER: f64 = 6.7;

fn x(at_ms: i64) -> f64 {
    AXIS[0] + (AXIS[1] - AXIS[0]) * at_ms as f64 / AXIS_MS
}

fn lane(client: &str) -> f64 {
    let lane = WORKERS.iter().position(|name| *name == client).expect("one of the workers");
    LANE + LANE_STEP * lane as f64
}

fn draw(story: &Story, theme: Theme) -> String {
    let title = format!("The life of {}, as LOCKS GET and LOCKS LOG show it", story.key);
    let mut canvas = Canvas::new(theme, WIDTH, &title);
    canvas.text([MARGIN, 28.0], Style::new(14.0, Colour::Ink).bold(), &title);
    draw_axis(&mut canvas);
    let end = LANE + LANE_STEP;
    let at = x(story.finding.at_ms);
    canvas.dashes([at, LANE], [at, end + 62.0], Colour::Wrong);
    let first_fencing = story.tenures[0].fencing;
    for tenure in &story.tenures {
        let y = lane(&tenure.holder);
        draw_late(&mut canvas, story, tenure);
        let (from, to) = (x(tenure.from_ms), x(tenure.to_ms));
        canvas.rectangle([from, y - BAR / 2.0, to - from, BAR], Colour::Own);
        let number = match tenure.fencing - first_fencing {
            0 => "n".to_owned(),
            1.. => "more than n".to_owned(),
            less => panic!("the number went back by {}", -less),
        };
        let style = Style::new(11.0, Colour::OnOwn).bold();
        canvas.text([from + 8.0, y + 4.0], style, &format!("holds it, fencing {number}"));
    }
    for step in &story.steps {
        draw_step(&mut canvas, story, step);
    }
    let bottom = draw_finding(&mut canvas, &story.finding, end + 62.0);
    let small = Style::new(10.5, Colour::Faint);
    canvas.text(
        [MARGIN, bottom + 20.0],
        small,
        "Drawn from the server's replies; CLOCK ADVANCE moved its clock. n is the fencing number of the first holder.",
    );
    canvas.finish(bottom + 32.0)
}

fn draw_axis(canvas: &mut Canvas) {
    for tick in 0..=(AXIS_MS as i64 / TICK_MS) {
        let at = x(tick * TICK_MS);
        let label = Style::new(11.0, Colour::Faint).centred();
        canvas.text([at, 56.0], label, &format!("{} s", tick * TICK_MS / 1000));
        canvas.line([at, 64.0], [at, LANE + LANE_STEP + 44.0], Colour::Line);
    }
    for name in WORKERS {
        canvas.text([MARGIN, lane(name) + 4.0], Style::new(12.0, Colour::Ink).bold().code(), name);
    }
}

/// A client that works on when it does not hold the lock any more, until it comes back to it.
fn draw_late(canvas: &mut Canvas, story: &Story, tenure: &Tenure) {
    let comes_back = |step: &&Step| step.client == tenure.holder && step.at_ms > tenure.to_ms;
    let Some(step) = story.steps.iter().find(comes_back) else { return };
    let (from, y) = (x(tenure.to_ms), lane(&tenure.holder));
    canvas.dashes([from, y], [x(step.at_ms), y], Colour::Ink);
    let state = format!("{}; still at work", tenure.state);
    canvas.text([from + 5.0, y + BAR / 2.0 + 14.0], Style::new(10.5, Colour::Faint), &state);
}

/// A mark on the lane of the client, and the words of the timeline above it.
fn draw_step(canvas: &mut Canvas, story: &Story, step: &Step) {
    let (at, y) = (x(step.at_ms), lane(&step.client));
    let is_wrong = step.at_ms == story.finding.at_ms;
    let is_refusal = step.what.contains("refused");
    if is_refusal {
        canvas.cross([at, y], 5.0, Colour::Ink);
        if story.refused_last_ms > step.at_ms {
            canvas.cross([x(story.refused_last_ms), y], 5.0, Colour::Ink);
        }
    } else if !step.what.contains("took it") {
        canvas.circle([at, y], 6.0, if is_wrong { Colour::Wrong } else { Colour::Ink });
    }
    // What a bar begins with stands at its beginning, all else above its mark, as far as there is room.
    let half = step.what.chars().count() as f64 * LETTER / 2.0;
    let style = Style::new(11.0, if is_wrong { Colour::Wrong } else { Colour::Ink }).code();
    let above = y - BAR / 2.0 - 7.0;
    if step.what.contains("took it") || is_refusal {
        canvas.text([at - if is_refusal { 5.0 } else { 0.0 }, above], style, &step.what);
    } else {
        canvas.text([at.min(AXIS[1] - half), above], style.centred(), &step.what);
    }
}

/// What the server found, and what it advises.
fn draw_finding(canvas: &mut Canvas, finding: &Finding, top: f64) -> f64 {
    /// Letters of the widest fonts that fit into a line.
    const LINE: usize = 120;
    let lines = wrap(&finding.hint, LINE);
    let height = 58.0 + 17.0 * lines.len() as f64;
    canvas.frame([MARGIN, top, WIDTH - 2.0 * MARGIN, height], Colour::WrongPaper, Colour::Wrong);
    let (left, mut y) = (MARGIN + 14.0, top + 23.0);
    let head = Style::new(12.0, Colour::Wrong).bold().code();
    canvas.text([left, y], head, &format!("LOCKS LOG: {}", finding.rule));
    for line in lines {
        y += 17.0;
        canvas.text([left, y], Style::new(12.0, Colour::Ink), &line);
    }
    y += 20.0;
    canvas.text([left, y], Style::new(12.0, Colour::Faint), "instead:");
    canvas.text([left + 58.0, y], Style::new(12.0, Colour::Ink).bold().code(), &finding.instead);
    top + height
}

/// Breaks a text into lines of so many letters at most.
fn wrap(text: &str, letters: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + word.chars().count() < letters => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
