//! The TLS configuration of each `sslmode`, with the meaning that libpq gives it: `prefer` and `require` encrypt and trust any
//! certificate, `verify-ca` checks who signed it, `verify-full` also the name. `require` with a root certificate is `verify-ca`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::server::ParsedCertificate;
use rustls::{
    ClientConfig, DigitallySignedStruct, Error as TlsError, RootCertStore, SignatureScheme,
};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_postgres::Socket;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::Error;

/// What `sslmode` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Disable,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

/// Which certificates are trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Roots {
    /// Those of the operating system.
    System,
    /// Those of a PEM file.
    File(PathBuf),
}

/// The protocol that a server expects which is asked for TLS without a request before it.
const DIRECT_PROTOCOL: &[u8] = b"postgresql";

/// Returns the configuration. Reads the root certificates.
pub(super) fn configuration(
    mode: Mode,
    roots: Option<&Roots>,
    is_direct: bool,
) -> Result<ClientConfig, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Settings(format!("TLS cannot be set up: {error}")))?;
    let mut configuration = match (mode, roots) {
        (Mode::VerifyFull, _) => builder
            .with_root_certificates(read(roots)?)
            .with_no_client_auth(),
        (Mode::VerifyCa, _) | (Mode::Require, Some(_)) => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(WithoutName {
                trusted: Some(read(roots)?),
                provider,
            }))
            .with_no_client_auth(),
        (Mode::Disable | Mode::Prefer | Mode::Require, _) => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(WithoutName {
                trusted: None,
                provider,
            }))
            .with_no_client_auth(),
    };
    if is_direct {
        configuration.alpn_protocols = vec![DIRECT_PROTOCOL.to_vec()];
    }
    Ok(configuration)
}

/// Reads the trusted certificates; those of the system if nothing else is configured.
fn read(roots: Option<&Roots>) -> Result<RootCertStore, Error> {
    let mut store = RootCertStore::empty();
    match roots {
        None | Some(Roots::System) => {
            let found = rustls_native_certs::load_native_certs();
            store.add_parsable_certificates(found.certs);
            if store.is_empty() {
                return Err(Error::Settings(
                    "the operating system has no root certificates: install its package ca-certificates, or set sslrootcert to a PEM file"
                        .to_owned(),
                ));
            }
        }
        Some(Roots::File(path)) => {
            let refused = |why: String| {
                let path = path.display();
                Error::Settings(format!("sslrootcert {path} cannot be used: {why}"))
            };
            let certificates = CertificateDer::pem_file_iter(path)
                .and_then(Iterator::collect::<Result<Vec<_>, _>>)
                .map_err(|error| refused(error.to_string()))?;
            for certificate in certificates {
                store
                    .add(certificate)
                    .map_err(|error| refused(error.to_string()))?;
            }
            if store.is_empty() {
                return Err(refused("it has no certificate".to_owned()));
            }
        }
    }
    Ok(store)
}

/// Checks who signed a certificate, or nothing, but never its name. The server must have the key in every case.
#[derive(Debug)]
struct WithoutName {
    trusted: Option<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for WithoutName {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        if let Some(trusted) = &self.trusted {
            verify_server_cert_signed_by_trust_anchor(
                &ParsedCertificate::try_from(certificate)?,
                trusted,
                intermediates,
                now,
                self.provider.signature_verification_algorithms.all,
            )?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

type Inner = MakeRustlsConnect;

/// Makes the handshakes of one attempt to connect, and remembers whether one began. The client library reports a server without TLS
/// only as text.
#[derive(Clone)]
pub(super) struct Connector {
    inner: Inner,
    began: Arc<AtomicBool>,
}

impl Connector {
    pub(super) fn new(configuration: ClientConfig) -> Self {
        Self {
            inner: Inner::new(configuration),
            began: Arc::default(),
        }
    }

    /// Returns whether the server agreed to a handshake.
    pub(super) fn handshake_began(&self) -> bool {
        self.began.load(Ordering::Relaxed)
    }
}

impl MakeTlsConnect<Socket> for Connector {
    type Stream = <Inner as MakeTlsConnect<Socket>>::Stream;
    type TlsConnect = Handshake;
    type Error = <Inner as MakeTlsConnect<Socket>>::Error;

    fn make_tls_connect(&mut self, host: &str) -> Result<Handshake, Self::Error> {
        // A socket in a folder has no host, and no TLS either, but the library asks for a handshake in any case.
        let host = if host.is_empty() { "localhost" } else { host };
        Ok(Handshake {
            inner: MakeTlsConnect::<Socket>::make_tls_connect(&mut self.inner, host)?,
            began: Arc::clone(&self.began),
        })
    }
}

pub(super) struct Handshake {
    inner: <Inner as MakeTlsConnect<Socket>>::TlsConnect,
    began: Arc<AtomicBool>,
}

impl TlsConnect<Socket> for Handshake {
    type Stream = <Inner as MakeTlsConnect<Socket>>::Stream;
    type Error = <<Inner as MakeTlsConnect<Socket>>::TlsConnect as TlsConnect<Socket>>::Error;
    type Future = <<Inner as MakeTlsConnect<Socket>>::TlsConnect as TlsConnect<Socket>>::Future;

    fn connect(self, stream: Socket) -> Self::Future {
        self.began.store(true, Ordering::Relaxed);
        self.inner.connect(stream)
    }
}
