//! Checks of texts that have a form: host names, versions, and the template of the process's title.

use super::refusal::Refusal;

/// A host name is shorter than this. Redis: `NET_HOST_STR_LEN`.
const HOSTNAME_BYTES_BELOW: usize = 256;

pub(super) fn check_hostname(text: &[u8]) -> Result<(), Refusal> {
    let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    if text.len() >= HOSTNAME_BYTES_BELOW {
        return Err("Hostnames must be less than 256 characters".into());
    }
    if !text.iter().all(is_allowed) {
        return Err("Hostnames may only contain alphanumeric characters, hyphens or dots".into());
    }
    Ok(())
}

/// Accepts the locales that every system has: SORT ALPHA compares bytes, as they do.
pub(super) fn check_locale(text: &[u8]) -> Result<(), Refusal> {
    match text {
        b"" | b"C" | b"POSIX" | b"C.UTF-8" | b"C.utf8" => Ok(()),
        _ => Err("Invalid locale name".into()),
    }
}

/// Accepts patterns that can be names of what is counted: labels are in UTF-8.
pub(super) fn check_patterns(text: &[u8], max: usize) -> Result<(), Refusal> {
    let count = text.split(u8::is_ascii_whitespace).filter(|pattern| !pattern.is_empty()).count();
    if count > max {
        return Err(Refusal(format!("at most {max} patterns are allowed")));
    }
    if std::str::from_utf8(text).is_err() {
        return Err("patterns must be in UTF-8".into());
    }
    Ok(())
}

pub(super) fn check_version(text: &[u8]) -> Result<(), Refusal> {
    let is_number = |part: &[u8]| {
        (1..=3).contains(&part.len())
            && part.iter().all(u8::is_ascii_digit)
            && (part[0] != b'0' || part == b"0")
    };
    match text.split(|byte| *byte == b'.').map(is_number).collect::<Vec<_>>()[..] {
        [true, true, true] => Ok(()),
        _ => Err("argument must be a version of three numbers, such as 7.0.15".into()),
    }
}

/// A part of a template of the process's title.
enum Part<'a> {
    Text(&'a [u8]),
    /// The name of a variable.
    Variable(&'a str),
}

/// The parts of a template; none if it is malformed or has unknown variables.
fn parts(mut rest: &[u8]) -> Option<Vec<Part<'_>>> {
    const VARIABLES: &[&str] =
        &["title", "server-mode", "listen-addr", "config-file", "port", "tls-port", "unixsocket"];
    let mut parts = Vec::new();
    while let Some(open) = rest.iter().position(|byte| *byte == b'{') {
        parts.push(Part::Text(&rest[..open]));
        rest = &rest[open + 1..];
        if let Some(after) = rest.strip_prefix(b"{") {
            parts.push(Part::Text(b"{"));
            rest = after;
            continue;
        }
        let close = rest.iter().position(|byte| *byte == b'}')?;
        parts.push(Part::Variable(VARIABLES.iter().find(|known| known.as_bytes() == &rest[..close])?));
        rest = &rest[close + 1..];
    }
    parts.push(Part::Text(rest));
    Some(parts)
}

/// Checks a template: its variables are known, and it has text even if every variable that may be empty is.
pub(super) fn check_title(template: &[u8]) -> Result<(), Refusal> {
    let is_something = |part: &Part<'_>| match part {
        Part::Text(text) => text.iter().any(|byte| *byte != b' '),
        Part::Variable(name) => !matches!(*name, "title" | "server-mode"),
    };
    match parts(template) {
        Some(parts) if parts.iter().any(is_something) => Ok(()),
        _ => Err("template format is invalid or contains unknown variables".into()),
    }
}

/// The title that a template makes with these values of its variables.
pub(crate) fn expand_title(template: &[u8], value: impl Fn(&str) -> Vec<u8>) -> Vec<u8> {
    let expand = |part: &Part<'_>| match part {
        Part::Text(text) => text.to_vec(),
        Part::Variable(name) => value(name),
    };
    let title: Vec<u8> = parts(template).iter().flatten().flat_map(expand).collect();
    let begin = title.iter().take_while(|byte| **byte == b' ').count();
    let end = title.iter().rposition(|byte| *byte != b' ').map_or(begin, |last| last + 1);
    title[begin..end].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_has_known_variables_and_comes_to_something() {
        for (template, is_right) in [
            ("{title} {listen-addr} {server-mode}", true),
            ("keyfast", true),
            ("{{", true),
            ("a } b", true),
            ("{title}", false),
            (" ", false),
            ("", false),
            ("{", false),
            ("a {title", false),
            ("{nosuch} a", false),
        ] {
            assert_eq!(check_title(template.as_bytes()).is_ok(), is_right, "{template:?}");
        }
    }

    #[test]
    fn a_title_has_the_values_of_the_variables_and_no_blanks_around_it() {
        let value = |name: &str| if name == "server-mode" { Vec::new() } else { name.as_bytes().to_vec() };
        for (template, expected) in [
            ("{title} {listen-addr} {server-mode}", "title listen-addr"),
            (" a {{ {port}} ", "a { port}"),
            ("{server-mode}  ", ""),
        ] {
            assert_eq!(expand_title(template.as_bytes(), value), expected.as_bytes(), "{template:?}");
        }
    }

    #[test]
    fn a_hostname_is_short_and_plain() {
        assert!(check_hostname(b"").is_ok() && check_hostname(&[b'a'; 255]).is_ok());
        for wrong in [&[b'a'; 256][..], b"a_b", b"a b", b"\xc3\xa4"] {
            assert!(check_hostname(wrong).is_err());
        }
    }
}
