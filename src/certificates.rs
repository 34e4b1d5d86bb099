//! Reads certificates and keys from files, and says what is wrong with them and what to do.
//!
//! The TLS library names the rule that a certificate breaks. A user wants to know which file is wrong, and
//! which command makes a better one. So the common mistakes are recognized here: a file that is not in PEM,
//! an encrypted key, a certificate of version 1, an expired certificate.

use std::fs::{self, File};
use std::io::{self, Read};
use std::time::{SystemTime, UNIX_EPOCH};

use der::asn1::{AnyRef, ContextSpecific, GeneralizedTime, UtcTime};
use der::{Decode, SliceReader, Tag, TagNumber, Tagged};
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
pub(crate) fn read_certificates(file: &NamedFile) -> Result<Vec<CertificateDer<'static>>, String> {
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

/// The certificates in all files of a folder. Files without certificates do not count: a folder that OpenSSL
/// uses has links, lists and notes beside them.
///
/// # Errors
///
/// With one line for people, which names the folder, or a file in it that cannot be read or is damaged.
pub(crate) fn read_folder(folder: &NamedFile) -> Result<Vec<CertificateDer<'static>>, String> {
    let unreadable = |error: io::Error| format!("{folder}: {}", files::reason(&error));
    let mut found = Vec::new();
    for entry in fs::read_dir(&folder.path).map_err(unreadable)? {
        let name = entry.map_err(unreadable)?.file_name();
        let file = NamedFile { path: folder.path.join(&name), name: folder.name.join(&name) };
        // A pipe would never end, and a link that leads nowhere is what a removed certificate leaves.
        if !fs::metadata(&file.path).is_ok_and(|metadata| metadata.is_file()) {
            continue;
        }
        if has(&read(&file)?, b"-----BEGIN CERTIFICATE-----") {
            found.extend(read_certificates(&file)?);
        }
    }
    if found.is_empty() { Err(format!("{folder}: no file in it holds a certificate")) } else { Ok(found) }
}

/// The private key in a file.
///
/// # Errors
///
/// With one line for people, which names the file.
pub(crate) fn read_key(file: &NamedFile) -> Result<PrivateKeyDer<'static>, String> {
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
pub(crate) fn read(file: &NamedFile) -> Result<Vec<u8>, String> {
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
pub(crate) fn why_refused(error: &Error, certificate: &CertificateDer<'_>) -> String {
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

/// Why a TLS handshake failed, if it was because of the peer's certificate.
pub(crate) fn why_not_greeted(error: &io::Error) -> Option<String> {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
    if let Some(Error::NoCertificatesPresented) = cause {
        // As in Redis, a server asks for one by default.
        let advice = "'tls-auth-clients no' lets clients in without one";
        return Some(format!("peer did not return a certificate ({advice})"));
    }
    let cause: &Error = cause.filter(|cause| matches!(cause, Error::InvalidCertificate(_)))?;
    Some(format!("certificate verify failed ({})", why_untrusted(cause)))
}

/// The mistake in the peer's certificate.
pub(crate) fn why_untrusted(error: &Error) -> String {
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
pub(crate) struct Validity {
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
    pub(crate) fn of(certificate: &[u8]) -> Option<Validity> {
        Validity::read(certificate).ok()
    }

    /// Reads nothing else: a mistake elsewhere in the certificate does not hide that it has expired.
    fn read(certificate: &[u8]) -> der::Result<Validity> {
        let mut signed = SliceReader::new(sequence(sequence(certificate)?)?)?;
        let version = ContextSpecific::<u8>::decode_explicit(&mut signed, TagNumber::N0)?;
        let version = version.map_or(1, |version| version.value.saturating_add(1));
        let mut next = || AnyRef::decode(&mut signed);
        let (_serial_number, _algorithm) = (next()?, next()?);
        let (issuer, dates, subject) = (next()?, next()?, next()?);
        let mut dates = SliceReader::new(dates.value())?;
        let (begins_s, ends_s) = (time(&mut dates)?, time(&mut dates)?);
        Ok(Validity { version, begins_s, ends_s, is_self_issued: issuer == subject })
    }

    /// Why the certificate is not valid now; `None` if it is.
    pub(crate) fn why_not_now(&self) -> Option<CertificateError> {
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
        match now_s {
            now_s if now_s > self.ends_s => Some(CertificateError::Expired),
            now_s if now_s < self.begins_s => Some(CertificateError::NotValidYet),
            _ => None,
        }
    }
}

/// The content of the sequence that the bytes begin with.
fn sequence(bytes: &[u8]) -> der::Result<&[u8]> {
    let element = AnyRef::decode(&mut SliceReader::new(bytes)?)?;
    element.tag().assert_eq(Tag::Sequence)?;
    Ok(element.value())
}

/// A time in one of its two forms, in seconds since 1970.
fn time(dates: &mut SliceReader<'_>) -> der::Result<i64> {
    let element = AnyRef::decode(dates)?;
    let since_1970 = match element.tag() {
        Tag::UtcTime => element.decode_as::<UtcTime>()?.to_unix_duration(),
        _ => element.decode_as::<GeneralizedTime>()?.to_unix_duration(),
    };
    Ok(since_1970.as_secs() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_both_forms() {
        let read = |bytes: &[u8]| time(&mut SliceReader::new(bytes).ok()?).ok();
        assert_eq!(read(b"\x17\x0d700101000001Z!"), Some(1));
        assert_eq!(read(b"\x18\x0f20000301000000Z"), Some(11_017 * 86_400));
        for wrong in [&b""[..], b"\x17\x0d7001010000", b"\x17\x02ab", b"\x17\x0d701301000001Z", b"\x02\x01\0"]
        {
            assert_eq!(read(wrong), None, "{}", wrong.escape_ascii());
        }
    }

    #[test]
    fn what_is_no_certificate_has_no_dates() {
        for wrong in [&b""[..], b"0", b"0\x84\xff\xff\xff\xff", b"0\x83\xff\xff\xff", b"0\x030\x01\x02"] {
            assert_eq!(Validity::of(wrong), None, "{}", wrong.escape_ascii());
        }
    }
}
