//! Draws results as a chart: for each figure a bar for Keyfast, and a mark for each other server.
//!
//! The figures differ by four powers of ten, so each row has a scale of its own: 1 is the best of the other
//! servers. Less is better in every row, so a bar that ends before 1 is a row in which Keyfast is the best.
//! A bar that goes beyond has another colour. The figures themselves stand beside the bars.

use super::results::{Results, Row};
use super::svg::{Canvas, Colour, Style, Theme};

const WIDTH: f64 = 830.0;
const MARGIN: f64 = 16.0;
/// Between the two columns.
const GAP: f64 = 22.0;
const COLUMN: f64 = (WIDTH - 2.0 * MARGIN - GAP) / 2.0;
const LABEL: f64 = 154.0;
/// For the two figures of a row.
const FIGURES: f64 = 96.0;
const TRACK: f64 = COLUMN - LABEL - FIGURES;
/// Where the track ends, in times of the best other server.
const SCALE_MAX: f64 = 2.0;
const ROW: f64 = 17.0;
/// The title of a group, the blank above it, and the numbers of the scale.
const HEAD: f64 = 46.0;
const MARKS: [Colour; 3] = [Colour::First, Colour::Second, Colour::Third];

/// Rows of the same unit.
struct Group<'a> {
    title: &'static str,
    rows: Vec<(String, &'a Row)>,
}

/// What belongs to a group: its title, and of a row its label.
type Choice = (&'static str, fn(&Row) -> Option<String>);

const CHOICES: &[Choice] = &[
    ("CPU µs per command", |row| is_cpu(row, "cpu").then(|| in_words(&row.subject))),
    ("CPU µs per release of a lock by EVALSHA", |row| {
        let depth = row.subject.strip_prefix("EVALSHA of a release")?;
        is_cpu(row, "scripts").then(|| in_words(depth).trim_start_matches(", ").to_owned())
    }),
    ("bytes per key", |row| {
        let is_about = |what: &str| row.part == "memory" && row.unit.contains(what);
        let label = match () {
            () if is_about("bytes per key") => "key of 16, value of 32",
            () if is_about("with an expiry") => "… with an expiry",
            () if is_about("values of 1 KiB") => "… with a value of 1 KiB",
            () => return None,
        };
        Some(label.to_owned())
    }),
    ("MiB of memory", |row| {
        let what = row.unit.strip_prefix("MiB ").filter(|_| row.part == "memory")?;
        Some(what.trim_start_matches("with ").to_owned())
    }),
    ("bytes per element, or per small collection", |row| {
        let what = row.unit.strip_prefix("bytes per ").filter(|_| row.part == "collections")?;
        Some(what.to_owned())
    }),
    ("CPU µs on collections, 16 in a pipeline", |row| {
        let subject = row.subject.strip_suffix(", at depth 16")?;
        is_cpu(row, "collections").then(|| subject.to_owned())
    }),
    ("CPU µs on two collections of 100,000", |row| {
        let subject = row.subject.strip_suffix(" with 100,000")?;
        is_cpu(row, "collections").then(|| subject.to_owned())
    }),
    ("longest wait, ms, while", |row| {
        let is_whole_server = row.part == "pause" || row.part == "snapshot";
        (is_whole_server && row.unit == LONGEST_WAIT).then(|| meanwhile(&row.subject))
    }),
    ("longest wait, ms, while a sorted set of millions is", |row| {
        let is_large = row.part == "collections" && row.subject.contains("000000 is ");
        let (_, what) = row.subject.split_once("000000 is ").filter(|_| is_large)?;
        (row.unit == LONGEST_WAIT).then(|| what.to_owned())
    }),
];

const LONGEST_WAIT: &str = "longest wait, ms";

fn is_cpu(row: &Row, part: &str) -> bool {
    row.part == part && row.unit == "CPU µs per command"
}

/// `SET at depth 16` as a reader calls it.
fn in_words(subject: &str) -> String {
    match subject.split_once(" at depth ") {
        Some((command, "1")) => format!("{command}, one at a time"),
        Some((command, depth)) => format!("{command}, {depth} in a pipeline"),
        None => subject.to_owned(),
    }
}

/// What goes on while a client waits.
fn meanwhile(subject: &str) -> String {
    let what = subject.split_once("while ").map_or(subject, |(_, what)| what);
    what.replace("000000 ", " million ")
}

/// The chart as a file's text; an error if there is nothing that it shows.
pub(crate) fn draw(results: &Results, theme: Theme) -> Result<String, String> {
    if !(2..=1 + MARKS.len()).contains(&results.servers.len()) {
        return Err(format!("a chart shows 2 to 4 servers, not {}", results.servers.len()));
    }
    let groups = groups(results);
    if groups.is_empty() {
        return Err("the results have no figure that a chart shows".to_owned());
    }
    let mut canvas = Canvas::new(theme, WIDTH, &title(&results.servers));
    let top = draw_legend(&mut canvas, &results.servers);
    let (left, right) = groups.split_at(first_of_second_column(&groups));
    let mut bottom: f64 = top;
    for (groups, x) in [(left, MARGIN), (right, MARGIN + COLUMN + GAP)] {
        let mut y = top;
        for group in groups {
            y = draw_group(&mut canvas, group, x, y);
        }
        bottom = bottom.max(y);
    }
    let small = Style::new(10.5, Colour::Faint);
    bottom += 10.0;
    canvas.line([MARGIN, bottom], [WIDTH - MARGIN, bottom], Colour::Line);
    for line in small_print(results) {
        bottom += 16.0;
        canvas.text([MARGIN, bottom], small, &line);
    }
    Ok(canvas.finish(bottom + 12.0))
}

fn title(servers: &[String]) -> String {
    let (own, others) = servers.split_first().expect("there are two servers at least");
    format!("{own} beside {}: processor time and memory, less is better", others.join(", "))
}

fn groups(results: &Results) -> Vec<Group<'_>> {
    let group = |(title, label): &Choice| {
        let labelled = |row| Some((label(row)?, row));
        let rows = results.rows.iter().filter(|row| row.is_less_better).filter_map(labelled).collect();
        Group { title, rows }
    };
    CHOICES.iter().map(group).filter(|group| !group.rows.is_empty()).collect()
}

impl Group<'_> {
    fn height(&self) -> f64 {
        HEAD + ROW * self.rows.len() as f64
    }
}

/// Where to part the groups so that the columns are as even as they can be.
fn first_of_second_column(groups: &[Group<'_>]) -> usize {
    let height = |groups: &[Group<'_>]| groups.iter().map(Group::height).sum::<f64>();
    let longer = |at: &usize| height(&groups[..*at]).max(height(&groups[*at..]));
    (1..=groups.len()).min_by(|a, b| longer(a).total_cmp(&longer(b))).unwrap_or(0)
}

/// Says what the colours are, and where that ends.
fn draw_legend(canvas: &mut Canvas, servers: &[String]) -> f64 {
    let (own, others) = servers.split_first().expect("there are two servers at least");
    let text = Style::new(12.0, Colour::Ink);
    let mut x = MARGIN;
    canvas.rectangle([x, 17.0, 26.0, 10.0], Colour::Own);
    canvas.text([x + 33.0, 26.5], text.bold(), own);
    x += 160.0;
    for (place, other) in others.iter().enumerate() {
        draw_mark(canvas, place, [x, 22.0]);
        canvas.text([x + 11.0, 26.5], text, other);
        x += 125.0;
    }
    canvas.text([WIDTH - MARGIN, 26.5], text.bold().right(), "less is better");
    let small = Style::new(11.0, Colour::Faint);
    canvas.text([MARGIN, 46.0], small, "1 and “others”: the best of the other servers in that row");
    canvas.rectangle([MARGIN + 380.0, 37.5, 26.0, 10.0], Colour::Wrong);
    canvas.text([MARGIN + 412.0, 46.0], small, "another server is better");
    let edge = MARGIN + 585.0;
    for (place, _) in others.iter().enumerate() {
        draw_edge(canvas, MARKS[place], [edge + 9.0 * place as f64, 42.0]);
    }
    canvas.text([edge + 9.0 * others.len() as f64 + 2.0, 46.0], small, "more than twice the best");
    50.0
}

fn draw_group(canvas: &mut Canvas, group: &Group<'_>, x: f64, y: f64) -> f64 {
    let track = x + LABEL;
    let right = x + COLUMN;
    let (small, ink) = (Style::new(10.0, Colour::Faint), Style::new(11.0, Colour::Ink));
    canvas.text([x, y + 24.0], Style::new(12.0, Colour::Ink).bold(), group.title);
    for (text, end) in [("Keyfast", right - 46.0), ("others", right)] {
        canvas.text([end, y + 38.0], small.right(), text);
    }
    let (top, bottom) = (y + 42.0, y + group.height());
    for number in [0.0, 1.0, SCALE_MAX] {
        let at = track + TRACK / SCALE_MAX * number;
        canvas.text([at, y + 38.0], small.centred(), &number.to_string());
        canvas.line([at, top], [at, bottom], Colour::Line);
    }
    let one = track + TRACK / SCALE_MAX;
    let mut y = y + HEAD - 1.0;
    for (label, row) in &group.rows {
        let (own, others) = row.figures.split_first().expect("a figure for each server");
        let best = others.iter().copied().fold(f64::INFINITY, f64::min);
        let middle = y + ROW / 2.0;
        canvas.text([x, middle + 4.0], ink, label);
        let is_beyond = |figure: f64| figure > SCALE_MAX * best;
        let length = |figure: f64| TRACK / SCALE_MAX * (figure / best).min(SCALE_MAX);
        let colour = if *own > best { Colour::Wrong } else { Colour::Own };
        canvas.rectangle([track, middle - 5.0, length(*own).max(1.0), 10.0], colour);
        if is_beyond(*own) {
            draw_edge(canvas, colour, [track + TRACK + 2.0, middle]);
        }
        // The best is drawn last, on top: its place is the one that matters.
        let mut places: Vec<usize> = (0..others.len()).collect();
        places.sort_by(|a, b| others[*b].total_cmp(&others[*a]));
        let mut beyond = 0.0;
        for place in places {
            let at = [track + length(others[place]), middle];
            if is_beyond(others[place]) {
                draw_edge(canvas, MARKS[place], [at[0] - beyond, middle]);
                beyond += 7.0;
            } else {
                draw_mark(canvas, place, at);
            }
        }
        for (figure, end) in [(*own, right - 46.0), (best, right)] {
            canvas.text([end, middle + 4.0], ink.right(), &show(figure));
        }
        y += ROW;
    }
    canvas.dashes([one, top], [one, bottom], Colour::Faint);
    bottom
}

/// Each server has a shape of its own as well as a colour, and a rim that parts it from what is below.
fn draw_mark(canvas: &mut Canvas, place: usize, [x, y]: [f64; 2]) {
    for (colour, rim) in [(Colour::Paper, 1.0), (MARKS[place], 0.0)] {
        let (circle, square, diamond) = (3.6 + rim, 3.2 + rim, 4.6 + 1.4 * rim);
        match place {
            0 => canvas.circle([x, y], circle, colour),
            1 => canvas.rectangle([x - square, y - square, 2.0 * square, 2.0 * square], colour),
            _ => canvas
                .shape(&[[x, y - diamond], [x + diamond, y], [x, y + diamond], [x - diamond, y]], colour),
        }
    }
}

/// An arrow: the server's figure would be farther to the right.
fn draw_edge(canvas: &mut Canvas, colour: Colour, [x, y]: [f64; 2]) {
    canvas.shape(&[[x - 3.0, y - 5.0], [x + 4.0, y], [x - 3.0, y + 5.0]], colour);
}

/// Three digits, or all that are before the point; thousands where there are too many.
fn show(figure: f64) -> String {
    if figure >= 100_000.0 {
        return format!("{:.0}k", figure / 1000.0);
    }
    let decimals = match figure {
        _ if figure >= 100.0 => 0,
        _ if figure >= 10.0 => 1,
        _ => 2,
    };
    format!("{figure:.decimals$}")
}

/// When, where and how the figures came about: the settings that several runs share stand once.
fn small_print(results: &Results) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for run in &results.runs {
        let place = format!("{}, {}.", run.date, run.machine);
        if !lines.contains(&place) {
            lines.push(place);
        }
        lines.push(format!("{}: {}.", run.parts.join(", "), run.settings));
    }
    lines
}
