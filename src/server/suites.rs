//! Which versions and cipher suites of TLS the server offers: `tls-protocols`, `tls-ciphers` for TLS 1.2 and
//! `tls-ciphersuites` for TLS 1.3, by the names of OpenSSL.
//!
//! The TLS library has fewer of both than OpenSSL: TLS 1.2 and 1.3, and nine suites, all of them with forward
//! secrecy. A list names suites in the order of preference. `DEFAULT` and `HIGH` stand for all suites of TLS
//! 1.2. A list with another word of OpenSSL's language is refused, and so is one that has none of the suites:
//! the server must never offer more than a list allows.

use tokio_rustls::rustls::crypto::ring::ALL_CIPHER_SUITES;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{CipherSuite, SupportedCipherSuite, SupportedProtocolVersion};

use crate::config::Config;

/// What the server offers, in its order.
#[derive(Debug)]
pub(super) struct Offer {
    pub(super) versions: Vec<&'static SupportedProtocolVersion>,
    pub(super) suites: Vec<SupportedCipherSuite>,
}

impl Offer {
    /// What the parameters allow.
    pub(super) fn of(config: &Config) -> Result<Offer, String> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let versions = versions(&text(&config.tls_protocols.get()))?;
        let mut suites = Vec::new();
        if versions.contains(&&TLS13) {
            suites.extend(modern_suites(&text(&config.tls_ciphersuites.get()))?);
        }
        if versions.contains(&&TLS12) {
            suites.extend(older_suites(&text(&config.tls_ciphers.get()))?);
        }
        Ok(Offer { versions, suites })
    }
}

/// The versions of `tls-protocols`; both if it is empty.
fn versions(words: &str) -> Result<Vec<&'static SupportedProtocolVersion>, String> {
    let mut versions = Vec::new();
    for word in words.split_ascii_whitespace() {
        match word.to_ascii_lowercase().as_str() {
            "tlsv1.3" => versions.push(&TLS13),
            "tlsv1.2" => versions.push(&TLS12),
            "tlsv1" | "tlsv1.1" => {}
            // In the words of Redis.
            _ => {
                return Err("Invalid tls-protocols specified. Use a combination of 'TLSv1', 'TLSv1.1', \
                            'TLSv1.2' and 'TLSv1.3'."
                    .to_owned());
            }
        }
    }
    match versions.is_empty() {
        true if words.trim_ascii().is_empty() => Ok(vec![&TLS13, &TLS12]),
        true => Err(format!("tls-protocols '{words}': Keyfast has TLSv1.2 and TLSv1.3 only")),
        false => Ok(versions),
    }
}

/// The suites of a version in the library, by the names that OpenSSL has for them.
fn known(version: &SupportedProtocolVersion) -> Vec<(&'static str, SupportedCipherSuite)> {
    let suites = ALL_CIPHER_SUITES.iter().filter(|suite| suite.version() == version);
    suites.filter_map(|suite| Some((name(suite.suite())?, *suite))).collect()
}

fn name(suite: CipherSuite) -> Option<&'static str> {
    Some(match suite {
        CipherSuite::TLS13_AES_256_GCM_SHA384 => "TLS_AES_256_GCM_SHA384",
        CipherSuite::TLS13_AES_128_GCM_SHA256 => "TLS_AES_128_GCM_SHA256",
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => "TLS_CHACHA20_POLY1305_SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384 => "ECDHE-ECDSA-AES256-GCM-SHA384",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 => "ECDHE-ECDSA-AES128-GCM-SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 => "ECDHE-ECDSA-CHACHA20-POLY1305",
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 => "ECDHE-RSA-AES256-GCM-SHA384",
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => "ECDHE-RSA-AES128-GCM-SHA256",
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => "ECDHE-RSA-CHACHA20-POLY1305",
        _ => return None,
    })
}

/// The suites of `tls-ciphersuites`.
fn modern_suites(list: &str) -> Result<Vec<SupportedCipherSuite>, String> {
    const LACKING: &[&str] = &["TLS_AES_128_CCM_SHA256", "TLS_AES_128_CCM_8_SHA256"];
    chosen("tls-ciphersuites", list, &TLS13, |_| false, |word| LACKING.contains(&word))
}

/// The suites of `tls-ciphers`. OpenSSL, too, passes over those that it does not have.
fn older_suites(list: &str) -> Result<Vec<SupportedCipherSuite>, String> {
    chosen("tls-ciphers", list, &TLS12, |word| ["DEFAULT", "HIGH"].contains(&word), |word| word.contains('-'))
}

/// The suites that a list names; all of the version if it is empty. `is_all` finds words for all suites, and
/// `is_lacking` names of suites that are not in the library.
fn chosen(
    parameter: &str,
    list: &str,
    version: &SupportedProtocolVersion,
    is_all: impl Fn(&str) -> bool,
    is_lacking: impl Fn(&str) -> bool,
) -> Result<Vec<SupportedCipherSuite>, String> {
    let known = known(version);
    if list.is_empty() {
        return Ok(known.into_iter().map(|(_, suite)| suite).collect());
    }
    let mut chosen = Vec::new();
    for word in list.split([':', ',', ' ', ';']).filter(|word| !word.is_empty()) {
        let is_meant = |name: &str| name == word || is_all(word);
        let mut meant = known.iter().filter(|(name, _)| is_meant(name)).peekable();
        if meant.peek().is_none() && !is_lacking(word) {
            return Err(format!("{parameter}: '{word}' is not understood; the suites are {}", names(&known)));
        }
        for (_, suite) in meant {
            if !chosen.contains(suite) {
                chosen.push(*suite);
            }
        }
    }
    match chosen.is_empty() {
        true => Err(format!("{parameter} '{list}' has none of the suites of Keyfast: {}", names(&known))),
        false => Ok(chosen),
    }
}

fn names(known: &[(&str, SupportedCipherSuite)]) -> String {
    known.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(suites: Result<Vec<SupportedCipherSuite>, String>) -> Result<Vec<&'static str>, String> {
        suites.map(|suites| suites.iter().map(|suite| name(suite.suite()).unwrap()).collect())
    }

    #[test]
    fn every_suite_of_the_library_has_a_name() {
        assert_eq!(known(&TLS13).len() + known(&TLS12).len(), ALL_CIPHER_SUITES.len());
    }

    #[test]
    fn versions_are_those_of_the_list() {
        assert_eq!(versions("").unwrap(), [&TLS13, &TLS12]);
        assert_eq!(versions("TLSv1.3").unwrap(), [&TLS13]);
        assert_eq!(versions("tlsv1 TLSV1.1 tlsv1.2").unwrap(), [&TLS12]);
        assert!(versions("TLSv1.1").unwrap_err().contains("TLSv1.2 and TLSv1.3 only"));
        assert!(versions("TLSv1.3 x").unwrap_err().starts_with("Invalid tls-protocols specified."));
    }

    #[test]
    fn suites_of_tls_1_2_are_those_of_the_list_in_its_order() {
        let all: Vec<_> = known(&TLS12).iter().map(|(name, _)| *name).collect();
        for list in ["", "DEFAULT", "HIGH:DEFAULT"] {
            assert_eq!(named(older_suites(list)).unwrap(), all, "{list}");
        }
        for (list, expected) in [
            (
                "ECDHE-RSA-CHACHA20-POLY1305:DHE-RSA-AES128-SHA:ECDHE-RSA-AES128-GCM-SHA256",
                vec!["ECDHE-RSA-CHACHA20-POLY1305", "ECDHE-RSA-AES128-GCM-SHA256"],
            ),
            ("ECDHE-RSA-AES128-GCM-SHA256,HIGH", {
                let (first, rest) = ("ECDHE-RSA-AES128-GCM-SHA256", all.iter().copied());
                std::iter::once(first).chain(rest.filter(|name| *name != first)).collect()
            }),
        ] {
            assert_eq!(named(older_suites(list)).unwrap(), expected, "{list}");
        }
        for list in ["AES128-SHA", ":"] {
            let why = older_suites(list).unwrap_err();
            assert!(why.starts_with(&format!("tls-ciphers '{list}' has none of the suites")), "{why}");
        }
        // What is not understood might forbid more than is left out.
        for list in ["DEFAULT:!MEDIUM", "DEFAULT:@SECLEVEL=3", "ECDHE+AESGCM", "ALL", "kRSA", "nosuch", "!"] {
            let why = older_suites(list).unwrap_err();
            assert!(why.contains("is not understood; the suites are ECDHE-"), "{list}: {why}");
        }
    }

    #[test]
    fn suites_of_tls_1_3_are_those_of_the_list_in_its_order() {
        assert_eq!(named(modern_suites("")).unwrap().len(), 3);
        assert_eq!(
            named(modern_suites(
                "TLS_AES_128_CCM_SHA256:TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256"
            ))
            .unwrap(),
            ["TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"]
        );
        assert!(modern_suites("TLS_AES_128_CCM_SHA256").unwrap_err().contains("none of the suites"));
        assert!(modern_suites("TLS_AES_128_GCM").unwrap_err().contains("is not understood"));
    }
}
