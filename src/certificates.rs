//! Reads certificates and keys from files, and says what is wrong with them and what to do.
//!
//! The TLS library names the rule that a certificate breaks. A user wants to know which file is wrong, and
//! which command makes a better one. So the common mistakes are recognized here: a file that is not in PEM,
//! an encrypted key, a certificate of version 1, an expired certificate.

use std::fs::File;
use std::io::Read;
use std::time::{SystemTime, UNIX_EPOCH};

use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{CertificateError, Error};

use crate::files::{self, NamedFile};

/// Largest file, in bytes: four times the certificates of all public authorities together.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// The beginning of a section of PEM.
const PEM: &[u8] = b"-----BEGIN ";

/// The certificates of a file: at least one.
///
/// # Errors
///
/// With one line for people, which names the file.
pub fn read_certificates(file: &NamedFile) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = read(file)?;
    let wrong = |why: &str| Err(format!("{file}: {why}"));
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) if has(&text, b"PRIVATE KEY-----") => wrong("it holds a key, but no certificate"),
        Ok(_) if !has(&text, PEM) => wrong("it is not in PEM (openssl x509 -inform der converts it)"),
        Ok(_) => wrong("it holds no certificate"),
        Err(_) => wrong("its PEM is damaged"),
    }
}

/// The private key in a file.
///
/// # Errors
///
/// With one line for people, which names the file.
pub fn read_key(file: &NamedFile) -> Result<PrivateKeyDer<'static>, String> {
    let text = read(file)?;
    let wrong = |why: &str| Err(format!("{file}: {why}"));
    // The first is PKCS #8, the second is OpenSSL's older format.
    if has(&text, b"-----BEGIN ENCRYPTED PRIVATE KEY-----") || has(&text, b"Proc-Type: 4,ENCRYPTED") {
        return wrong(
            "the key is encrypted (openssl pkey -in FILE -out FILE2 writes it without a passphrase)",
        );
    }
    match PrivateKeyDer::from_pem_slice(&text) {
        Ok(key) => Ok(key),
        Err(_) if has(&text, b"-----BEGIN CERTIFICATE-----") => wrong("it holds a certificate, but no key"),
        Err(_) if !has(&text, PEM) => wrong("it is not in PEM (openssl pkey -inform der converts it)"),
        Err(_) if has(&text, b"PRIVATE KEY-----") => wrong("its PEM is damaged"),
        Err(_) => wrong("it holds no key"),
    }
}

/// The text of a file of PEM.
///
/// # Errors
///
/// With one line for people, which names the file.
pub fn read(file: &NamedFile) -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    let read = File::open(&file.path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text));
    read.map_err(|error| format!("{file}: {}", files::reason(&error)))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("{file}: it is larger than a megabyte"));
    }
    Ok(text)
}

fn has(text: &[u8], part: &[u8]) -> bool {
    memchr::memmem::find(text, part).is_some()
}

/// The mistake in a pair of certificate and key that the library has refused.
pub fn why_refused(error: &Error, certificate: &CertificateDer<'_>) -> String {
    match error {
        Error::InconsistentKeys(_) => "the key does not belong to the certificate".to_owned(),
        Error::InvalidCertificate(_) => match Validity::of(certificate) {
            Some(Validity { version: 1 | 2, .. }) => why_version(),
            _ => why_untrusted(error),
        },
        Error::General(why) if why.contains("private key") => {
            "the key must be RSA of 2048 bits or more, ECDSA with P-256 or P-384, or Ed25519".to_owned()
        }
        error => error.to_string(),
    }
}

/// The mistake in the peer's certificate.
pub fn why_untrusted(error: &Error) -> String {
    let Error::InvalidCertificate(why) = error else { return error.to_string() };
    match why {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the certificate has expired".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the certificate is not valid yet".to_owned()
        }
        CertificateError::UnknownIssuer => "none of the trusted authorities has issued it".to_owned(),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "the certificate is for another name".to_owned()
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "the certificate is for another purpose".to_owned()
        }
        CertificateError::BadSignature => "its signature is wrong".to_owned(),
        CertificateError::Other(other) => match other.to_string().as_str() {
            "UnsupportedCertVersion" => why_version(),
            "CaUsedAsEndEntity" => {
                "the certificate is that of a CA, as self-signed ones often are".to_owned()
            }
            other => other.to_owned(),
        },
        other => other.to_string(),
    }
}

/// OpenSSL makes such certificates when it signs a request without an extensions file.
fn why_version() -> String {
    "the certificate is of version 1, and must be of version 3 (openssl x509 -req makes one if it is given \
     -extfile)"
        .to_owned()
}

/// The version of a certificate, its first and last moment, and whether it is self-issued.
#[derive(Debug, PartialEq, Eq)]
pub struct Validity {
    /// 1, 2 or 3.
    pub version: u8,
    /// Its first moment, in seconds since 1970.
    pub begins_s: i64,
    /// Its last moment, in seconds since 1970.
    pub ends_s: i64,
    /// Whether issuer and subject are the same, as in a self-signed certificate.
    pub is_self_issued: bool,
}

impl Validity {
    /// Reads them from a certificate in DER. Returns `None` if it is damaged.
    pub fn of(certificate: &[u8]) -> Option<Validity> {
        let (certificate, _) = element(certificate, SEQUENCE)?;
        let (mut signed, _) = element(certificate, SEQUENCE)?;
        let mut version = 1;
        if let Some((explicit, rest)) = element(signed, VERSION) {
            let (number, _) = element(explicit, INTEGER)?;
            version = number.first()?.checked_add(1)?;
            signed = rest;
        }
        let (_, signed) = element(signed, INTEGER)?; // the serial number
        let (_, signed) = element(signed, SEQUENCE)?; // the algorithm
        let (issuer, signed) = element(signed, SEQUENCE)?;
        let (dates, signed) = element(signed, SEQUENCE)?;
        let (subject, _) = element(signed, SEQUENCE)?;
        let (begins_s, dates) = time(dates)?;
        let (ends_s, _) = time(dates)?;
        Some(Validity { version, begins_s, ends_s, is_self_issued: issuer == subject })
    }

    /// Why the certificate is not valid now; `None` if it is.
    pub fn why_not_now(&self) -> Option<CertificateError> {
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
        match now_s {
            now_s if now_s > self.ends_s => Some(CertificateError::Expired),
            now_s if now_s < self.begins_s => Some(CertificateError::NotValidYet),
            _ => None,
        }
    }
}

// Tags of DER.
const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;

/// The content of the first DER element, if it has this tag, and the bytes behind it.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (first, rest) = bytes.split_first()?;
    let (length, rest) = rest.split_first()?;
    let (length, rest) = match *length {
        length @ 0..=0x7f => (usize::from(length), rest),
        count @ 0x81..=0x83 => {
            let (digits, rest) = rest.split_at_checked(usize::from(count - 0x80))?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    (*first == tag).then_some((content, rest))
}

/// A time, in seconds since 1970, and the bytes behind it.
fn time(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let number = |digits: &[u8]| std::str::from_utf8(digits).ok()?.parse::<i64>().ok();
    let (year, digits, rest) = match element(bytes, UTC_TIME) {
        Some((text, rest)) => {
            let (year, digits) = text.split_at_checked(2)?;
            let year = number(year)?;
            (if year < 50 { 2000 + year } else { 1900 + year }, digits, rest)
        }
        None => {
            let (text, rest) = element(bytes, GENERALIZED_TIME)?;
            let (year, digits) = text.split_at_checked(4)?;
            (number(year)?, digits, rest)
        }
    };
    let mut parts = [0; 5];
    for (part, digits) in parts.iter_mut().zip(digits.chunks_exact(2)) {
        *part = number(digits)?;
    }
    let [month, day, hour, minute, second] = parts;
    if !(1..=12).contains(&month) {
        return None;
    }
    Some((((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second, rest))
}

/// Days since 1970. A year is counted from March, so that the leap day is its last day.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, months) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    /// Days from March of the year 0 to 1970.
    const DAYS_TO_1970: i64 = 719_468;
    year * 365 + leap_days + (months * 153 + 2) / 5 + day - 1 - DAYS_TO_1970
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_counted_from_1970() {
        for (date, expected) in [
            ((1970, 1, 1), 0),
            ((1970, 3, 1), 59),
            ((2000, 2, 29), 11_016),
            ((2000, 3, 1), 11_017),
            ((2026, 9, 30), 20_726),
            ((1969, 12, 31), -1),
        ] {
            assert_eq!(days(date.0, date.1, date.2), expected, "{date:?}");
        }
    }

    #[test]
    fn times_are_read_in_both_forms() {
        assert_eq!(time(b"\x17\x0d700101000001Z!"), Some((1, &b"!"[..])));
        assert_eq!(time(b"\x18\x0f20000301000000Z"), Some((11_017 * 86_400, &b""[..])));
        for wrong in [&b""[..], b"\x17\x0d7001010000", b"\x17\x02ab", b"\x17\x0d701301000001Z", b"\x02\x01\0"]
        {
            assert_eq!(time(wrong), None, "{}", wrong.escape_ascii());
        }
    }

    #[test]
    fn what_is_no_certificate_has_no_dates() {
        for wrong in [&b""[..], b"0", b"0\x84\xff\xff\xff\xff", b"0\x83\xff\xff\xff", b"0\x030\x01\x02"] {
            assert_eq!(Validity::of(wrong), None, "{}", wrong.escape_ascii());
        }
    }
}
