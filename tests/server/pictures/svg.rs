//! Pictures in SVG: shapes and text on a card, once for light pages and once for dark ones.
//!
//! A forge shows a picture as it is, so each theme is a file of its own with its own background. Lengths are
//! in the picture's own units, of which a README shows one as a pixel. Only generic font families are named:
//! leave room for wide letters. The charts of `benches/compare` are drawn with this file, too.

use std::fmt::Write as _;

/// Which pages the picture is for.
#[derive(Clone, Copy)]
pub(crate) enum Theme {
    Light,
    Dark,
}

impl Theme {
    pub(crate) const ALL: [Theme; 2] = [Theme::Light, Theme::Dark];

    /// The end of the file's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Theme::Light => "light",
            Theme::Dark => "dark",
        }
    }
}

/// Colours by their use.
#[derive(Clone, Copy)]
pub(crate) enum Colour {
    /// The background of the card.
    Paper,
    /// Lines that separate.
    Line,
    /// Text, and lines as strong as text.
    Ink,
    /// Text that explains.
    Faint,
    /// What the picture is about.
    Own,
    /// Text on that.
    OnOwn,
    /// What stands beside it, three times.
    First,
    Second,
    Third,
    /// What went wrong.
    Wrong,
    /// The background of what went wrong.
    WrongPaper,
}

impl Colour {
    fn code(self, theme: Theme) -> &'static str {
        let (light, dark) = match self {
            Colour::Paper => ("#ffffff", "#0d1117"),
            Colour::Line => ("#d0d7de", "#343b44"),
            Colour::Ink => ("#1f2328", "#e6edf3"),
            Colour::Faint => ("#59636e", "#9198a1"),
            Colour::Own => ("#e8710a", "#f2a33c"),
            Colour::OnOwn => ("#1f2328", "#0d1117"),
            Colour::First => ("#6e7781", "#9aa4ae"),
            Colour::Second => ("#1a7f8e", "#4fc3d3"),
            Colour::Third => ("#6639ba", "#b392f0"),
            Colour::Wrong => ("#c81e2b", "#ff5c5c"),
            Colour::WrongPaper => ("#fff1f0", "#2a1517"),
        };
        match theme {
            Theme::Light => light,
            Theme::Dark => dark,
        }
    }
}

/// How a text looks, and which point of it is placed.
#[derive(Clone, Copy)]
pub(crate) struct Style {
    size: f64,
    colour: Colour,
    anchor: &'static str,
    is_bold: bool,
    is_code: bool,
}

impl Style {
    /// Text of this height, placed by its left end.
    pub(crate) fn new(size: f64, colour: Colour) -> Style {
        Style { size, colour, anchor: "start", is_bold: false, is_code: false }
    }

    pub(crate) fn bold(self) -> Style {
        Style { is_bold: true, ..self }
    }

    /// In letters of the same width.
    pub(crate) fn code(self) -> Style {
        Style { is_code: true, ..self }
    }

    /// Placed by its middle.
    pub(crate) fn centred(self) -> Style {
        Style { anchor: "middle", ..self }
    }

    /// Placed by its right end.
    pub(crate) fn right(self) -> Style {
        Style { anchor: "end", ..self }
    }
}

/// A picture that is being drawn.
pub(crate) struct Canvas {
    theme: Theme,
    width: f64,
    title: String,
    body: String,
}

impl Canvas {
    /// The title is read out to those who do not see the picture.
    pub(crate) fn new(theme: Theme, width: f64, title: &str) -> Canvas {
        Canvas { theme, width, title: escape(title), body: String::new() }
    }

    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        self.body.write_fmt(element).expect("memory takes all that is written");
        self.body.push('\n');
    }

    pub(crate) fn rectangle(&mut self, [x, y, width, height]: [f64; 4], colour: Colour) {
        let fill = colour.code(self.theme);
        self.add(format_args!(
            r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" rx="2" fill="{fill}"/>"#
        ));
    }

    /// A rectangle with a border.
    pub(crate) fn frame(&mut self, [x, y, width, height]: [f64; 4], paper: Colour, border: Colour) {
        let (fill, stroke) = (paper.code(self.theme), border.code(self.theme));
        self.add(format_args!(
            r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" rx="6" fill="{fill}" stroke="{stroke}"/>"#
        ));
    }

    pub(crate) fn line(&mut self, from: [f64; 2], to: [f64; 2], colour: Colour) {
        self.stroke(from, to, colour, "");
    }

    pub(crate) fn dashes(&mut self, from: [f64; 2], to: [f64; 2], colour: Colour) {
        self.stroke(from, to, colour, r#" stroke-dasharray="4 3""#);
    }

    fn stroke(&mut self, [x1, y1]: [f64; 2], [x2, y2]: [f64; 2], colour: Colour, dashes: &str) {
        let stroke = colour.code(self.theme);
        self.add(format_args!(
            r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" stroke="{stroke}"{dashes}/>"#
        ));
    }

    pub(crate) fn circle(&mut self, [x, y]: [f64; 2], radius: f64, colour: Colour) {
        let fill = colour.code(self.theme);
        self.add(format_args!(r#"<circle cx="{x:.1}" cy="{y:.1}" r="{radius:.1}" fill="{fill}"/>"#));
    }

    /// A filled shape with these corners.
    pub(crate) fn shape(&mut self, corners: &[[f64; 2]], colour: Colour) {
        let points: Vec<String> = corners.iter().map(|[x, y]| format!("{x:.1},{y:.1}")).collect();
        let (points, fill) = (points.join(" "), colour.code(self.theme));
        self.add(format_args!(r#"<polygon points="{points}" fill="{fill}"/>"#));
    }

    /// A cross with its middle here.
    pub(crate) fn cross(&mut self, [x, y]: [f64; 2], radius: f64, colour: Colour) {
        let stroke = colour.code(self.theme);
        let (left, right, top, bottom) = (x - radius, x + radius, y - radius, y + radius);
        self.add(format_args!(
            r#"<path d="M{left:.1} {top:.1}L{right:.1} {bottom:.1}M{left:.1} {bottom:.1}L{right:.1} {top:.1}" stroke="{stroke}" stroke-width="2.5" stroke-linecap="round"/>"#
        ));
    }

    pub(crate) fn text(&mut self, [x, y]: [f64; 2], style: Style, text: &str) {
        let Style { size, colour, anchor, is_bold, is_code } = style;
        let fill = colour.code(self.theme);
        let weight = if is_bold { r#" font-weight="600""# } else { "" };
        let family = if is_code { r#" font-family="monospace""# } else { "" };
        self.add(format_args!(
            r#"<text x="{x:.1}" y="{y:.1}" font-size="{size}" fill="{fill}" text-anchor="{anchor}"{weight}{family}>{}</text>"#,
            escape(text)
        ));
    }

    /// The file's text, for a picture of this height.
    pub(crate) fn finish(self, height: f64) -> String {
        let Canvas { theme, width, title, body } = self;
        let (paper, border) = (Colour::Paper.code(theme), Colour::Line.code(theme));
        format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0}" height="{height:.0}" viewBox="0 0 {width:.0} {height:.0}" font-family="sans-serif" role="img">
<title>{title}</title>
<rect x="0.5" y="0.5" width="{:.0}" height="{:.0}" rx="8" fill="{paper}" stroke="{border}"/>
{body}</svg>
"#,
            width - 1.0,
            height - 1.0
        )
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
