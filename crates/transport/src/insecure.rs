//! Why a connection is not secure, in words that tell what to do.

use std::error::Error;
use std::io;

use rustls::{AlertDescription, CertificateError, InvalidMessage};

/// Returns why TLS failed, if the error was caused by that.
pub(crate) fn explain(error: &(dyn Error + 'static)) -> Option<String> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(cause) = error.downcast_ref::<rustls::Error>() {
            return Some(words(cause));
        }
        // The source of an I/O error is that of the error inside it, so the error inside is looked at here.
        let inside = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        next = match inside {
            Some(inside) => Some(inside),
            None => error.source(),
        };
    }
    None
}

fn words(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(why) => of_certificate(why),
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "the server does not use TLS at this address; use http://, or the port that has TLS"
                .to_owned()
        }
        rustls::Error::AlertReceived(
            AlertDescription::CertificateRequired | AlertDescription::BadCertificate,
        ) => format!("the server asks for a certificate of the client ({error})"),
        rustls::Error::AlertReceived(_) | rustls::Error::PeerIncompatible(_) => {
            format!("client and server have no version or method of TLS in common ({error})")
        }
        other => other.to_string(),
    }
}

fn of_certificate(why: &CertificateError) -> String {
    match why {
        // An authority that is trusted may have the same name and another key.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "the certificate of the server is not signed by a trusted authority; if the authority is your own, \
             add its certificate as a root certificate"
                .to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!("the certificate of the server has expired; the server needs a new one ({why})")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            format!("the certificate of the server is not valid yet; check the clocks ({why})")
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!(
                "the certificate of the server is for another host name; use a name that it contains ({why})"
            )
        }
        CertificateError::Other(other) if is_authority(other) => {
            "the certificate of the server is that of an authority (CA:TRUE); the server needs one of its own, \
             signed by the authority"
                .to_owned()
        }
        other => format!("the certificate of the server is not accepted: {other}"),
    }
}

/// Returns whether the server uses the certificate of an authority as its own, which is the default of `openssl req -x509`.
fn is_authority(error: &rustls::OtherError) -> bool {
    // The type of the cause belongs to a crate that rustls does not export.
    format!("{error:?}").contains("CaUsedAsEndEntity")
}
