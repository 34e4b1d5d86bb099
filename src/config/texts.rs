//! Checks of texts that have a form: host names, versions, and the template of the process's title.

use super::kinds::Refusal;

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

/// Checks a template: its variables are known, and it has text even if every variable that may be empty is.
pub(super) fn check_title(text: &[u8]) -> Result<(), Refusal> {
    match has_title(text) {
        Some(true) => Ok(()),
        _ => Err("template format is invalid or contains unknown variables".into()),
    }
}

/// Whether a template makes more than blanks; none if it is malformed or has unknown variables.
fn has_title(mut rest: &[u8]) -> Option<bool> {
    let mut is_something = false;
    let is_text = |part: &[u8]| part.iter().any(|byte| *byte != b' ');
    while let Some(open) = rest.iter().position(|byte| *byte == b'{') {
        is_something |= is_text(&rest[..open]);
        rest = &rest[open + 1..];
        if let Some(after) = rest.strip_prefix(b"{") {
            is_something = true;
            rest = after;
            continue;
        }
        let close = rest.iter().position(|byte| *byte == b'}')?;
        is_something |= match &rest[..close] {
            b"title" | b"server-mode" => false,
            b"listen-addr" | b"config-file" | b"port" | b"tls-port" | b"unixsocket" => true,
            _ => return None,
        };
        rest = &rest[close + 1..];
    }
    Some(is_something || is_text(rest))
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
    fn a_hostname_is_short_and_plain() {
        assert!(check_hostname(b"").is_ok() && check_hostname(&[b'a'; 255]).is_ok());
        for wrong in [&[b'a'; 256][..], b"a_b", b"a b", b"\xc3\xa4"] {
            assert!(check_hostname(wrong).is_err());
        }
    }
}
