//! Which versions and cipher suites of TLS the server offers: `tls-protocols`, `tls-ciphers` for TLS 1.2 and
//! `tls-ciphersuites` for TLS 1.3, in the words of OpenSSL.
//!
//! The TLS library has fewer of both than OpenSSL: TLS 1.2 and 1.3, and nine suites, all of them with forward
//! secrecy. The server offers what is on a list and in the library, so never more than the list allows. If
//! that is nothing, or if a word of the list is not understood, the server refuses the list.

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
    ///
    /// # Errors
    ///
    /// With one line for people.
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

/// The suites of `tls-ciphersuites`, names with colons between them; all of TLS 1.3 if it is empty.
fn modern_suites(list: &str) -> Result<Vec<SupportedCipherSuite>, String> {
    const LACKING: &[&str] = &["TLS_AES_128_CCM_SHA256", "TLS_AES_128_CCM_8_SHA256"];
    let known = known(&TLS13);
    let mut chosen = Vec::new();
    for word in list.split(':').filter(|word| !word.is_empty()) {
        match known.iter().find(|(name, _)| *name == word) {
            Some((_, suite)) if !chosen.contains(suite) => chosen.push(*suite),
            Some(_) => {}
            None if LACKING.contains(&word) => {}
            None => return Err(unknown("tls-ciphersuites", word, &known)),
        }
    }
    if list.is_empty() {
        chosen = known.iter().map(|(_, suite)| *suite).collect();
    }
    if chosen.is_empty() { Err(none_left("tls-ciphersuites", list, &known)) } else { Ok(chosen) }
}

/// The suites of `tls-ciphers`, a cipher list as in openssl-ciphers(1); all of TLS 1.2 if it is empty.
fn older_suites(list: &str) -> Result<Vec<SupportedCipherSuite>, String> {
    let known = known(&TLS12);
    let mut chosen: Vec<(&str, SupportedCipherSuite)> = Vec::new();
    let mut banned: Vec<&str> = Vec::new();
    for word in list.split([':', ',', ' ', ';']).filter(|word| !word.is_empty()) {
        // Of these levels all suites are, and all certificates that the library takes.
        if matches!(word, "@STRENGTH" | "@SECLEVEL=0" | "@SECLEVEL=1" | "@SECLEVEL=2") {
            continue;
        }
        let (sign, classes) = match word.as_bytes()[0] {
            sign @ (b'!' | b'-' | b'+') => (sign, &word[1..]),
            _ => (b' ', word),
        };
        let mut meant = known.clone();
        for class in classes.split('+') {
            let belongs = |name: &str| belongs(name, class);
            if belongs("").is_none() {
                return Err(unknown("tls-ciphers", word, &known));
            }
            meant.retain(|(name, _)| belongs(name) == Some(true));
        }
        let is_meant = |name: &str| meant.iter().any(|(other, _)| *other == name);
        match sign {
            b' ' => {
                meant.retain(|(name, _)| {
                    !banned.contains(name) && !chosen.iter().any(|(other, _)| other == name)
                });
                chosen.append(&mut meant);
            }
            b'+' => chosen.sort_by_key(|(name, _)| is_meant(name)),
            sign => {
                chosen.retain(|(name, _)| !is_meant(name));
                if sign == b'!' {
                    banned.extend(meant.iter().map(|(name, _)| *name));
                }
            }
        }
    }
    if list.is_empty() {
        chosen.clone_from(&known);
    }
    match chosen.is_empty() {
        true => Err(none_left("tls-ciphers", list, &known)),
        false => Ok(chosen.into_iter().map(|(_, suite)| suite).collect()),
    }
}

/// Words of OpenSSL that stand for all suites of TLS 1.2 in the library.
const ALL_OF_THEM: &[&str] =
    &["ALL", "DEFAULT", "HIGH", "TLSv1.2", "ECDH", "ECDHE", "EECDH", "kECDHE", "kEECDH"];
/// Words of OpenSSL that stand for none of them: other algorithms, and versions before 1.2.
const NONE_OF_THEM: &[&str] = &[
    "3DES",
    "ADH",
    "AECDH",
    "AESCCM",
    "AESCCM8",
    "ARIA",
    "ARIA128",
    "ARIA256",
    "ARIAGCM",
    "CAMELLIA",
    "CAMELLIA128",
    "CAMELLIA256",
    "DES",
    "DH",
    "DHE",
    "DSS",
    "EDH",
    "EXP",
    "EXPORT",
    "IDEA",
    "LOW",
    "MD5",
    "MEDIUM",
    "NULL",
    "PSK",
    "RC2",
    "RC4",
    "RSA",
    "SEED",
    "SHA",
    "SHA1",
    "SHA256",
    "SHA384",
    "SRP",
    "SSLv3",
    "TLSv1",
    "TLSv1.0",
    "aDSS",
    "aNULL",
    "aPSK",
    "aSRP",
    "eNULL",
    "kDHE",
    "kDHEPSK",
    "kECDHEPSK",
    "kEDH",
    "kPSK",
    "kRSA",
    "kRSAPSK",
    "kSRP",
];

/// Whether a suite belongs to a class of OpenSSL, or is called that. `None` if it is neither.
fn belongs(name: &str, class: &str) -> Option<bool> {
    match class {
        "aRSA" => Some(name.contains("-RSA-")),
        "aECDSA" | "ECDSA" => Some(name.contains("-ECDSA-")),
        "AES" | "AESGCM" => Some(name.contains("-AES")),
        "AES128" | "AES256" | "CHACHA20" => Some(name.contains(class)),
        _ if ALL_OF_THEM.contains(&class) => Some(true),
        _ if NONE_OF_THEM.contains(&class) => Some(false),
        // OpenSSL, too, passes over suites that it does not have.
        _ if class.contains(['-', '_']) => Some(name == class),
        _ => None,
    }
}

fn unknown(parameter: &str, word: &str, known: &[(&str, SupportedCipherSuite)]) -> String {
    format!("{parameter}: '{word}' is not understood; the suites are {}", names(known))
}

fn none_left(parameter: &str, list: &str, known: &[(&str, SupportedCipherSuite)]) -> String {
    format!("{parameter} '{list}' has none of the suites of Keyfast: {}", names(known))
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
        for list in ["", "DEFAULT:!MEDIUM", "HIGH:!aNULL:!MD5:@STRENGTH", "ECDHE+AESGCM,ECDHE+CHACHA20"] {
            let mut chosen = named(older_suites(list)).unwrap();
            chosen.sort_by_key(|name| all.iter().position(|other| other == name));
            assert_eq!(chosen, all, "{list}");
        }
        for (list, expected) in [
            (
                "ECDHE-RSA-CHACHA20-POLY1305:DHE-RSA-AES128-SHA:ECDHE-RSA-AES128-GCM-SHA256",
                &["ECDHE-RSA-CHACHA20-POLY1305", "ECDHE-RSA-AES128-GCM-SHA256"][..],
            ),
            ("AES256+aRSA", &["ECDHE-RSA-AES256-GCM-SHA384"]),
            ("ALL:!ECDSA:!AES", &["ECDHE-RSA-CHACHA20-POLY1305"]),
            (
                "aRSA:!CHACHA20:CHACHA20:+AES256",
                &["ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES256-GCM-SHA384"],
            ),
            ("CHACHA20:-aRSA", &["ECDHE-ECDSA-CHACHA20-POLY1305"]),
        ] {
            assert_eq!(named(older_suites(list)).unwrap(), expected, "{list}");
        }
        for list in ["kRSA", "AES128-SHA", "ALL:!ECDHE", "!ALL:ALL", ":"] {
            let why = older_suites(list).unwrap_err();
            assert!(why.starts_with(&format!("tls-ciphers '{list}' has none of the suites")), "{why}");
        }
        // What is not understood might forbid more than is left out.
        for list in ["DEFAULT:!SUITEB128", "DEFAULT:@SECLEVEL=3", "nosuch", "!"] {
            assert!(older_suites(list).unwrap_err().contains("is not understood"), "{list}");
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
