//! The certificate that the server shows, and its key. Both can be replaced while the server runs.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::RwLock;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls_pki_types::pem::{self, PemObject as _};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::validity;

/// The protocols that a client can choose from, the preferred one first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// A certificate and its key, for new connections. All clones change together.
#[derive(Clone)]
pub struct Tls {
    current: Arc<RwLock<Current>>,
}

struct Current {
    config: Arc<ServerConfig>,
    expires_at: Option<SystemTime>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls(…)")
    }
}

impl Tls {
    /// Reads a certificate and its key, both in PEM. Certificates of authorities may follow that of the server. The key may have the
    /// form of PKCS#8, PKCS#1 or SEC1.
    ///
    /// # Errors
    /// [`TlsError`] if one of them cannot be read or used, or if they do not belong together.
    pub fn new(certificate: &[u8], key: &[u8]) -> Result<Self, TlsError> {
        let current = read(certificate, key)?;
        Ok(Self {
            current: Arc::new(RwLock::new(current)),
        })
    }

    /// Replaces certificate and key for new connections. Open connections continue. Changes nothing if it fails.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn replace(&self, certificate: &[u8], key: &[u8]) -> Result<(), TlsError> {
        *self.current.write() = read(certificate, key)?;
        Ok(())
    }

    /// Returns when the certificate expires. Returns `None` if that is not known.
    #[must_use]
    pub fn expires_at(&self) -> Option<SystemTime> {
        self.current.read().expires_at
    }

    /// Returns the configuration of a new connection.
    pub(super) fn current(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.current.read().config)
    }
}

/// Why a certificate and a key cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The certificate cannot be used.
    #[error("{0}")]
    Certificate(String),
    /// The key cannot be used.
    #[error("{0}")]
    Key(String),
    /// The key belongs to another certificate.
    #[error("the private key does not belong to the certificate")]
    Mismatch,
}

fn read(certificate: &[u8], key: &[u8]) -> Result<Current, TlsError> {
    let chain = read_chain(certificate)?;
    let expires_at = chain.first().and_then(|own| validity::expires_at(own));
    let key = read_key(key)?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::Key(error.to_string()))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(unusable)?;
    config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
    // A new configuration has an empty cache of sessions, so no client resumes a session of the old certificate.
    Ok(Current {
        config: Arc::new(config),
        expires_at,
    })
}

fn read_chain(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    let chain = chain.map_err(|error| TlsError::Certificate(not_pem(&error)))?;
    if !chain.is_empty() {
        return Ok(chain);
    }
    let why = if text.trim_ascii().is_empty() {
        "is empty"
    } else if PrivateKeyDer::from_pem_slice(text).is_ok() {
        "contains a private key and no certificate"
    } else {
        "contains no certificate in PEM (\"-----BEGIN CERTIFICATE-----\")"
    };
    Err(TlsError::Certificate(why.to_owned()))
}

fn read_key(text: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
    let why = match PrivateKeyDer::from_pem_slice(text) {
        Ok(key) => return Ok(key),
        Err(pem::Error::NoItemsFound) if text.trim_ascii().is_empty() => "is empty".to_owned(),
        Err(pem::Error::NoItemsFound) if contains(text, "ENCRYPTED PRIVATE KEY") => {
            "contains an encrypted key; decrypt it with `openssl pkey`".to_owned()
        }
        Err(pem::Error::NoItemsFound) if contains(text, "BEGIN CERTIFICATE") => {
            "contains a certificate and no private key".to_owned()
        }
        Err(pem::Error::NoItemsFound) => {
            "contains no private key in PEM (\"-----BEGIN PRIVATE KEY-----\")".to_owned()
        }
        Err(error) => not_pem(&error),
    };
    Err(TlsError::Key(why))
}

fn contains(text: &[u8], part: &str) -> bool {
    String::from_utf8_lossy(text).contains(part)
}

fn not_pem(error: &pem::Error) -> String {
    format!("is not valid PEM: {error}")
}

/// Returns which of the two rustls refused.
fn unusable(error: rustls::Error) -> TlsError {
    match error {
        rustls::Error::InconsistentKeys(_) => TlsError::Mismatch,
        rustls::Error::InvalidCertificate(why) => {
            TlsError::Certificate(format!("contains a certificate that cannot be read: {why}"))
        }
        other => TlsError::Key(format!("contains a key that cannot be used: {other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Made {
        certificate: String,
        key: String,
    }

    fn made() -> Made {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        Made {
            certificate: made.cert.pem(),
            key: made.signing_key.serialize_pem(),
        }
    }

    fn refused(certificate: &str, key: &str) -> TlsError {
        Tls::new(certificate.as_bytes(), key.as_bytes()).unwrap_err()
    }

    #[test]
    fn a_certificate_and_its_key_are_read() {
        let Made { certificate, key } = made();
        let tls = Tls::new(certificate.as_bytes(), key.as_bytes()).unwrap();
        assert_eq!(tls.current().alpn_protocols, [&b"h2"[..], b"http/1.1"]);
        // Text around the blocks, and a certificate of an authority after that of the server.
        let chain = format!(
            "the server:\n{certificate}\nits authority:\n{}",
            made().certificate
        );
        assert!(Tls::new(chain.as_bytes(), key.as_bytes()).is_ok());
        assert_eq!(format!("{tls:?}"), "Tls(…)");
        // The default of the generator is the year 4096.
        assert!(tls.expires_at().is_some_and(|at| at > SystemTime::now()));
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let Made { certificate, key } = made();
        let cut = &certificate[..certificate.len() / 2];
        let garbled = certificate.replace("-----\nMII", "-----\nAAA");
        assert_ne!(garbled, certificate);
        for (given, why) in [
            ("", "is empty"),
            (" \n", "is empty"),
            ("hello", "contains no certificate in PEM"),
            (&key, "contains a private key and no certificate"),
            (cut, "is not valid PEM"),
            (&garbled, "cannot be read"),
        ] {
            let error = refused(given, &key);
            assert!(matches!(error, TlsError::Certificate(_)), "{error:?}");
            assert!(error.to_string().contains(why), "{error}");
        }
        let encrypted =
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
        let useless = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        for (given, why) in [
            ("", "is empty"),
            ("hello", "contains no private key in PEM"),
            (&certificate, "contains a certificate and no private key"),
            (encrypted, "openssl pkey"),
            (useless, "contains a key that cannot be used"),
            (&key[..key.len() / 2], "is not valid PEM"),
        ] {
            let error = refused(&certificate, given);
            assert!(matches!(error, TlsError::Key(_)), "{error:?}");
            assert!(error.to_string().contains(why), "{error}");
        }
        assert_eq!(refused(&certificate, &made().key), TlsError::Mismatch);
    }

    #[test]
    fn a_failed_replacement_changes_nothing() {
        let first = made();
        let tls = Tls::new(first.certificate.as_bytes(), first.key.as_bytes()).unwrap();
        let before = tls.current();
        let second = made();
        assert!(
            tls.replace(second.certificate.as_bytes(), first.key.as_bytes())
                .is_err()
        );
        assert!(Arc::ptr_eq(&before, &tls.current()));
        tls.clone()
            .replace(second.certificate.as_bytes(), second.key.as_bytes())
            .unwrap();
        assert!(!Arc::ptr_eq(&before, &tls.current()));
    }
}
