//! Tokens of Azure Cache for Redis: a JWT of Microsoft Entra ID. The user's name is the object ID of its
//! identity. A connection lasts until the token expires.

use serde_json::Value;

use super::Sent;

/// Parts of the audiences for which such tokens are made: Azure's, its application, and older ones.
const AUDIENCES: [&str; 3] =
    ["redis.azure.com", "acca5fbb-b7e4-4009-81f1-37e38fd66d78", "cacheinfra.windows.net"];

/// Every JWT begins with a brace, and this is one in its letters.
pub(super) fn is_token(password: &[u8]) -> bool {
    password.starts_with(b"eyJ") && password.iter().filter(|byte| **byte == b'.').count() == 2
}

pub(super) fn judge(sent: Sent<'_>) -> Result<u64, &'static str> {
    let mut parts = sent.token.split(|byte| *byte == b'.');
    let mut part = || parts.next().and_then(decode);
    let (header, claims, signature) = (part(), part(), part());
    let object = |bytes: Option<Vec<u8>>| -> Option<Value> {
        serde_json::from_slice::<Value>(&bytes?).ok().filter(Value::is_object)
    };
    let no_token = "it is no token of three parts";
    let header = object(header).ok_or(no_token)?;
    let claims = object(claims).ok_or(no_token)?;
    if !header["alg"].is_string() || signature.is_none() {
        return Err(no_token);
    }
    let may_be = |claim: &Value, is_right: &dyn Fn(&str) -> bool| {
        claim.is_null() || claim.as_str().is_some_and(is_right)
    };
    if !may_be(&claims["aud"], &|audience| AUDIENCES.iter().any(|known| audience.contains(known))) {
        return Err("it is for another service: its aud is not that of Redis");
    }
    let id = if claims["oid"].is_null() { &claims["sub"] } else { &claims["oid"] };
    if !may_be(id, &|id| id.as_bytes().eq_ignore_ascii_case(sent.user)) {
        return Err("it is for another user: its oid is not the name");
    }
    let moment_ms = |claim: &Value| claim.as_f64().map(|seconds| (seconds * 1000.0) as u64);
    let ends_at_ms = moment_ms(&claims["exp"]).ok_or("it has no exp")?;
    if ends_at_ms <= sent.now_ms {
        return Err("it is too old");
    }
    // The clocks may differ.
    const AHEAD_MS_MAX: u64 = 5 * 60 * 1000;
    if moment_ms(&claims["nbf"]).is_some_and(|ms| ms > sent.now_ms.saturating_add(AHEAD_MS_MAX)) {
        return Err("its nbf is still to come");
    }
    Ok(ends_at_ms)
}

/// Bytes in the letters of base64 for URLs, without padding; `None` if they are none.
fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let value = |letter: u8| match letter {
        b'A'..=b'Z' => Some(letter - b'A'),
        b'a'..=b'z' => Some(letter - b'a' + 26),
        b'0'..=b'9' => Some(letter - b'0' + 52),
        b'-' => Some(62),
        b'_' => Some(63),
        _ => None,
    };
    if text.len() % 4 == 1 {
        return None;
    }
    let mut decoded = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for letters in text.chunks(4) {
        let mut bits = 0_u32;
        for at in 0..4 {
            bits = bits << 6 | letters.get(at).map_or(Some(0), |letter| value(*letter)).map(u32::from)?;
        }
        decoded.extend_from_slice(&bits.to_be_bytes()[1..letters.len()]);
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_bytes() {
        for (text, bytes) in [
            ("", Some(&b""[..])),
            ("Zg", Some(b"f")),
            ("Zm8", Some(b"fo")),
            ("Zm9v", Some(b"foo")),
            ("Zm9vYg", Some(b"foob")),
            ("-_-_", Some(b"\xfb\xff\xbf")),
            ("Zm9vY", None),
            ("Zm9v=", None),
            ("Zm+v", None),
        ] {
            assert_eq!(decode(text.as_bytes()).as_deref(), bytes, "{text}");
        }
    }

    fn judged(claims: &str, now_s: u64) -> Result<u64, &'static str> {
        const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let encode = |bytes: &[u8]| -> Vec<u8> {
            let letters = bytes.chunks(3).flat_map(|chunk| {
                let bits = chunk.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
                let bits = bits << (8 * (3 - chunk.len()));
                (0..=chunk.len()).map(move |at| LETTERS[(bits >> (18 - 6 * at) & 63) as usize])
            });
            letters.collect()
        };
        let token = [encode(br#"{"alg":"RS256"}"#), encode(claims.as_bytes()), encode(b"signed")].join(&b'.');
        assert!(is_token(&token));
        judge(Sent { token: &token, user: b"1b671a64-40d5", cache: b"", now_ms: now_s * 1000 })
    }

    #[test]
    fn a_token_is_good_for_its_identity_until_it_expires() {
        let good = r#"{"aud":"https://redis.azure.com","oid":"1B671A64-40d5","exp":2000,"nbf":1000}"#;
        assert_eq!(judged(good, 1999), Ok(2_000_000));
        assert_eq!(judged(good, 2000), Err("it is too old"));
        assert_eq!(judged(good, 699), Err("its nbf is still to come"));
        for (from, to) in [
            ("1B671A64", "other"),
            ("\"1B671A64-40d5\"", "7"),
            ("redis.azure.com", "storage.azure.com"),
            ("2000", "\"2000\""),
            ("2000", "-1e300"),
            (",\"exp\":2000", ""),
            ("{", "[{"),
            ("}", ""),
        ] {
            assert!(judged(&good.replace(from, to), 1999).is_err(), "{from} → {to}");
        }
        for good in [
            r#"{"exp":2000}"#,
            r#"{"exp":2000,"sub":"1b671a64-40d5"}"#,
            r#"{"exp":2000.5,"sub":"x","oid":"1b671a64-40d5"}"#,
        ] {
            assert!(judged(good, 1999).is_ok(), "{good}");
        }
        assert!(judged(r#"{"exp":2000,"sub":"other"}"#, 1999).is_err());
        assert_eq!(judged(&good.replace("2000", "1e300"), 1999), Ok(u64::MAX));
        assert!(judged(&format!("{}1", "[".repeat(10_000)), 0).is_err());
        for token in ["eyJ..", "eyJ.eyJ.eyJ", "eyJh\u{fc}.e.e"] {
            assert!(judge(Sent { token: token.as_bytes(), user: b"", cache: b"", now_ms: 0 }).is_err());
        }
    }
}
