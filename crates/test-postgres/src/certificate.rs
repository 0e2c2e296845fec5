//! The certificate of a cluster with TLS: a root of its own, and a certificate for the name `localhost` only, so that tests can
//! connect by a wrong name (`127.0.0.1`).

use std::path::Path;

use anyhow::Result;

/// The files of the certificate in the folder of a cluster.
pub(crate) const CERTIFICATE: &str = "server.crt";
pub(crate) const KEY: &str = "server.key";
pub(crate) const ROOT: &str = "root.crt";

#[cfg(feature = "tls")]
pub(crate) fn write(folder: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;

    use anyhow::Context as _;
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

    let mut root = CertificateParams::new(Vec::new())?;
    root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    root.distinguished_name
        .push(DnType::CommonName, "longhaul test root");
    let root_key = KeyPair::generate()?;
    let root_certificate = root.self_signed(&root_key)?;
    let issuer = Issuer::new(root, root_key);
    let key = KeyPair::generate()?;
    let certificate =
        CertificateParams::new(vec!["localhost".to_owned()])?.signed_by(&key, &issuer)?;
    for (name, text) in [
        (ROOT, root_certificate.pem()),
        (CERTIFICATE, certificate.pem()),
        (KEY, key.serialize_pem()),
    ] {
        let path = folder.join(name);
        std::fs::write(&path, text)
            .with_context(|| format!("{} cannot be written", path.display()))?;
        // The server refuses a key that others can read.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    }
    Ok(())
}

#[cfg(not(feature = "tls"))]
pub(crate) fn write(_folder: &Path) -> Result<()> {
    anyhow::bail!("a cluster with TLS needs the feature `tls` of longhaul-test-postgres")
}
