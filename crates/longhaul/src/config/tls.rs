//! The files of the certificate and of its key. They are read at the start, and again on request.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, bail};
use longhaul_server::connections::{Tls, TlsError};

use super::File;

/// The options that name the files, for messages.
const CERTIFICATE: &str = "--tls-cert";
const KEY: &str = "--tls-key";

/// How long before its end a certificate is worth a warning. Renewing one may take a request to another department.
const WARNING: Duration = Duration::from_secs(14 * 24 * 3600);

#[derive(clap::Args, Default)]
pub(super) struct TlsArgs {
    /// File with the certificate of the server in PEM, and those of its authorities: the server uses HTTPS
    #[arg(long, env = "LONGHAUL_TLS_CERT", value_name = "FILE")]
    tls_cert: Option<PathBuf>,

    /// File with the private key of the certificate in PEM
    #[arg(long, env = "LONGHAUL_TLS_KEY", value_name = "FILE")]
    tls_key: Option<PathBuf>,
}

impl TlsArgs {
    /// Reads the files. Returns `None` if neither is set.
    pub(super) fn settle(&self, file: &File) -> Result<Option<Certificate>> {
        let pick = |flag: &Option<PathBuf>, file: &Option<PathBuf>| {
            let path = flag.clone().or_else(|| file.clone());
            path.filter(|path| !path.as_os_str().is_empty())
        };
        let certificate = pick(&self.tls_cert, &file.tls_cert);
        let key = pick(&self.tls_key, &file.tls_key);
        match (certificate, key) {
            (None, None) => Ok(None),
            (Some(certificate), Some(key)) => Certificate::read(certificate, key).map(Some),
            (Some(_), None) => bail!("{CERTIFICATE} is set and {KEY} is not: HTTPS needs both"),
            (None, Some(_)) => bail!("{KEY} is set and {CERTIFICATE} is not: HTTPS needs both"),
        }
    }
}

/// A certificate and its key, and the files they come from.
#[derive(Clone, Debug)]
pub(crate) struct Certificate {
    certificate: PathBuf,
    key: PathBuf,
    tls: Tls,
}

impl Certificate {
    fn read(certificate: PathBuf, key: PathBuf) -> Result<Self> {
        let made = Tls::new(&bytes(CERTIFICATE, &certificate)?, &bytes(KEY, &key)?);
        let tls = made.map_err(|error| explain(&error, &certificate, &key))?;
        Ok(Self {
            certificate,
            key,
            tls,
        })
    }

    /// Returns the certificate for new connections.
    pub(crate) fn tls(&self) -> &Tls {
        &self.tls
    }

    /// Returns what is wrong with the time until which the certificate is valid: it has passed, or is near.
    pub(crate) fn warning(&self, now: SystemTime) -> Option<String> {
        let certificate = self.certificate.display();
        let warning = match self.tls.expires_at()?.duration_since(now) {
            Err(_) => format!("{CERTIFICATE} {certificate} has expired; clients do not accept it"),
            Ok(left) if left < WARNING => {
                let days = left.as_secs() / (24 * 3600);
                format!("{CERTIFICATE} {certificate} expires in {days} days")
            }
            Ok(_) => return None,
        };
        Some(format!("{warning}. Replace the files and send SIGHUP"))
    }

    /// Reads both files again. If that fails, the certificate stays as it is.
    pub(crate) fn read_again(&self) -> Result<()> {
        let (certificate, key) = (
            bytes(CERTIFICATE, &self.certificate)?,
            bytes(KEY, &self.key)?,
        );
        let replaced = self.tls.replace(&certificate, &key);
        replaced.map_err(|error| explain(&error, &self.certificate, &self.key))
    }
}

fn bytes(option: &str, path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("{option} {} cannot be read", path.display()))
}

fn explain(error: &TlsError, certificate: &Path, key: &Path) -> anyhow::Error {
    let (certificate, key) = (certificate.display(), key.display());
    match error {
        TlsError::Certificate(why) => anyhow::anyhow!("{CERTIFICATE} {certificate} {why}"),
        TlsError::Key(why) => anyhow::anyhow!("{KEY} {key} {why}"),
        other => anyhow::anyhow!("{CERTIFICATE} {certificate} and {KEY} {key}: {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_near_its_end_is_worth_a_warning() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(2030, 1, 1);
        let certificate = params.self_signed(&key).unwrap();
        std::fs::write(path("cert.pem"), certificate.pem()).unwrap();
        std::fs::write(path("key.pem"), key.serialize_pem()).unwrap();
        let read = Certificate::read(path("cert.pem"), path("key.pem")).unwrap();
        // 2030-01-01T00:00:00Z.
        let end = SystemTime::UNIX_EPOCH + Duration::from_secs(1_893_456_000);
        let days = |count: u64| Duration::from_secs(count * 24 * 3600);
        assert_eq!(read.warning(end - days(15)), None);
        let near = read.warning(end - days(10)).unwrap();
        assert!(near.contains("cert.pem expires in 10 days"), "{near}");
        let late = read.warning(end + days(1)).unwrap();
        assert!(late.contains("has expired"), "{late}");
    }
}
