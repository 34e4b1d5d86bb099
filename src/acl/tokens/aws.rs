//! Tokens of ElastiCache and MemoryDB: a URL without its scheme, that is signed for 15 minutes and names the
//! cache and the user. A connection lasts for 12 hours.

use super::Sent;

/// How long a token is good at most. AWS refuses to sign for longer.
const EXPIRES_S_MAX: u64 = 900;
/// How far the clock of the signer may be ahead.
const AHEAD_MS_MAX: u64 = 5 * 60 * 1000;
/// How long a connection lasts.
const CONNECTION_MS: u64 = 12 * 60 * 60 * 1000;
/// A token has some ten parameters.
const PARAMETERS_MAX: usize = 32;

pub(super) fn is_token(password: &[u8]) -> bool {
    memchr::memmem::find(password, b"X-Amz-").is_some()
}

pub(super) fn judge(sent: Sent<'_>) -> Result<u64, &'static str> {
    let text = std::str::from_utf8(sent.token).map_err(|_| "it is no text")?;
    if text.contains("://") {
        return Err("it begins with a scheme, such as https://");
    }
    let (place, query) = text.split_once('?').ok_or("it has no parameters")?;
    let cache = place.strip_suffix('/').unwrap_or(place);
    if cache.is_empty() || cache.contains('/') {
        return Err("it names no cache");
    }
    if !sent.cache.is_empty() && cache.as_bytes() != sent.cache {
        return Err("it is for another cache");
    }
    let parameters: Vec<(&str, &str)> = query
        .split('&')
        .take(PARAMETERS_MAX)
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .collect();
    let count = |name: &str| parameters.iter().filter(|(other, _)| *other == name).count();
    let value = |name: &str| {
        let found = parameters.iter().find(|(other, _)| *other == name).filter(|_| count(name) == 1);
        found.and_then(|(_, value)| decode(value))
    };
    let may_be = |name: &str, is_right: fn(&[u8]) -> bool| {
        count(name) == 0 || value(name).is_some_and(|value| is_right(&value))
    };
    let is_action = value("Action").is_some_and(|action| action == b"connect");
    if !is_action || !may_be("X-Amz-Algorithm", |name| name == b"AWS4-HMAC-SHA256") {
        return Err("it is not signed for the action connect");
    }
    if value("User").is_none_or(|user| user != sent.user) {
        return Err("it is for another user");
    }
    let is_signed = value("X-Amz-Signature").is_some_and(|signature| !signature.is_empty());
    if !is_signed || !may_be("X-Amz-Credential", is_for_caches) {
        return Err("its signature is not one for ElastiCache or MemoryDB");
    }
    let signed_ms = value("X-Amz-Date").and_then(|date| moment_ms(&date)).ok_or("it has no date")?;
    let stated_s = |text: Vec<u8>| str::from_utf8(&text).ok()?.parse::<u64>().ok();
    let expires_s = match count("X-Amz-Expires") {
        0 => Some(EXPIRES_S_MAX),
        _ => value("X-Amz-Expires").and_then(stated_s),
    };
    let expires_s = expires_s.filter(|seconds| (1..=EXPIRES_S_MAX).contains(seconds));
    let expires_s = expires_s.ok_or("it is not good for 900 seconds or less")?;
    if sent.now_ms.saturating_add(AHEAD_MS_MAX) < signed_ms {
        return Err("its date is still to come");
    }
    if sent.now_ms >= signed_ms + expires_s * 1000 {
        return Err("it is too old");
    }
    Ok(sent.now_ms.saturating_add(CONNECTION_MS))
}

/// Whether a credential is one with which tokens for caches are signed: an ID, a day, a region, the service.
fn is_for_caches(credential: &[u8]) -> bool {
    let parts: Vec<&[u8]> = credential.split(|byte| *byte == b'/').collect();
    match parts[..] {
        [id, _, _, service, end] => {
            !id.is_empty() && [&b"elasticache"[..], b"memorydb"].contains(&service) && end == b"aws4_request"
        }
        _ => false,
    }
}

/// A value of a URL without its escapes; `None` if one is broken.
fn decode(value: &str) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let [byte, tail @ ..] = rest {
        rest = tail;
        let [high, low, tail @ ..] = tail else {
            decoded.push(Some(*byte).filter(|byte| *byte != b'%')?);
            continue;
        };
        if *byte != b'%' {
            decoded.push(*byte);
            continue;
        }
        let digit = |digit: u8| char::from(digit).to_digit(16);
        decoded.push((digit(*high)? * 16 + digit(*low)?) as u8);
        rest = tail;
    }
    Some(decoded)
}

/// Reads a date as AWS writes it, `20261127T184800Z`, in milliseconds since 1970.
fn moment_ms(date: &[u8]) -> Option<u64> {
    let number = |range: std::ops::Range<usize>| -> Option<u64> {
        let digits = date.get(range)?;
        digits.iter().all(u8::is_ascii_digit).then(|| str::from_utf8(digits).ok()?.parse().ok())?
    };
    if date.len() != 16 || date[8] != b'T' || date[15] != b'Z' {
        return None;
    }
    let (year, month, day) = (number(0..4)?, number(4..6)?, number(6..8)?);
    let (hour, minute, second) = (number(9..11)?, number(11..13)?, number(13..15)?);
    let is_date = year >= 1970 && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !is_date || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // A year that begins in March ends with the day that some years have in addition.
    let (years, months) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * years + years / 4 - years / 100 + years / 400 + (153 * months + 2) / 5 + day - 1;
    const DAYS_TO_1970: u64 = 719_468;
    Some(((days - DAYS_TO_1970) * 86_400 + hour * 3600 + minute * 60 + second) * 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: u64 = 1_795_805_280_000;
    const TOKEN: &str = "my-cache/?Action=connect&User=app%2D1&X-Amz-Algorithm=AWS4-HMAC-SHA256&\
        X-Amz-Date=20261127T184800Z&X-Amz-Expires=900&X-Amz-SignedHeaders=host&\
        X-Amz-Credential=AKIA%2F20261127%2Fus-east-1%2Felasticache%2Faws4_request&\
        X-Amz-Security-Token=a%2Bb&\
        X-Amz-Signature=0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn judged(token: &str, user: &str, now_ms: u64) -> Result<u64, &'static str> {
        judge(Sent { token: token.as_bytes(), user: user.as_bytes(), cache: b"", now_ms })
    }

    #[test]
    fn dates_are_moments() {
        for (date, ms) in [
            ("19700101T000000Z", Some(0)),
            ("20261127T184800Z", Some(NOW_MS)),
            ("20240229T235959Z", Some(1_709_251_199_000)),
            ("99991231T235959Z", Some(253_402_300_799_000)),
            ("20261327T184800Z", None),
            ("20261127T184800", None),
            ("2026-11-27T1848Z", None),
            ("+0261127T184800Z", None),
            ("19691231T235959Z", None),
            ("", None),
        ] {
            assert_eq!(moment_ms(date.as_bytes()), ms, "{date}");
        }
    }

    #[test]
    fn a_token_is_good_for_its_user_and_fifteen_minutes() {
        let ends = |now_ms| Ok(now_ms + CONNECTION_MS);
        for now_ms in [NOW_MS - 300_000, NOW_MS, NOW_MS + 899_999] {
            assert_eq!(judged(TOKEN, "app-1", now_ms), ends(now_ms));
        }
        assert_eq!(judged(TOKEN, "app-1", NOW_MS + 900_000), Err("it is too old"));
        assert_eq!(judged(TOKEN, "app-1", NOW_MS - 300_001), Err("its date is still to come"));
        assert_eq!(judged(TOKEN, "app-2", NOW_MS), Err("it is for another user"));
        let in_cache =
            |cache: &[u8]| judge(Sent { token: TOKEN.as_bytes(), user: b"app-1", cache, now_ms: NOW_MS });
        assert!(in_cache(b"my-cache").is_ok() && in_cache(b"other").is_err());
    }

    #[test]
    fn whatever_is_sent_is_judged() {
        for (from, to) in [
            ("my-cache/", "https://my-cache/"),
            ("my-cache/", ""),
            ("my-cache/", "a/b/"),
            ("?", "/"),
            ("connect", "read"),
            ("HMAC-SHA256", "HMAC"),
            ("User=app%2D1", "User=app%2"),
            ("User=app%2D1", "User=app-1&User=app-1"),
            ("User=app%2D1&", ""),
            ("elasticache", "s3"),
            ("AKIA", ""),
            ("=900", "=901"),
            ("=900", "=0"),
            ("=900", "=18446744073709551616"),
            ("=900", "="),
            ("T184800Z", ""),
            ("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", ""),
            ("%2Faws4_request", ""),
        ] {
            assert!(judged(&TOKEN.replace(from, to), "app-1", NOW_MS).is_err(), "{from} → {to}");
        }
        for end in 0..=TOKEN.len() - 64 {
            assert!(judged(&TOKEN[..end], "app-1", NOW_MS).is_err());
        }
        let by_hand = "c?Action=connect&User=a&X-Amz-Date=20261127T184800Z&X-Amz-Signature=s";
        assert!(judged(by_hand, "a", NOW_MS + 899_999).is_ok());
        assert!(judged(by_hand, "a", NOW_MS + 900_000).is_err());
        assert!(judge(Sent { token: b"X-Amz-\xff", user: b"", cache: b"", now_ms: u64::MAX }).is_err());
    }
}
