//! Version negotiation of the two APIs. The worker protocol has minor versions; the control plane has one number. A request
//! without a supported version is refused. The minor version that a worker sends enables and disables nothing: every
//! feature works with every accepted minor version. See `docs/protocol/versions-and-capabilities.md`.

use std::fmt;

use thiserror::Error;

use crate::reason::Reason;

/// The worker protocol version this server advertises.
pub const WORKER_PROTOCOL_VERSION: &str = "1.20";

/// The major version of the worker protocol. No other major version is accepted.
pub const WORKER_PROTOCOL_MAJOR: u32 = 1;

/// The newest minor version accepted from workers. All older ones are accepted too.
pub const WORKER_PROTOCOL_MINOR: Minor = Minor(20);

/// The request and response header that carries the worker protocol version.
pub const WORKER_PROTOCOL_HEADER: &str = "X-Durable-Workflow-Protocol-Version";

/// The control-plane version this server speaks.
pub const CONTROL_PLANE_VERSION: &str = "2";

/// The request header that carries the control-plane version.
pub const CONTROL_PLANE_HEADER: &str = "X-Durable-Workflow-Control-Plane-Version";

/// The most characters of a refused version that the answer repeats. Real versions are shorter.
const REQUESTED_CHARACTERS_MAX: usize = 64;

/// A minor version of the worker protocol, compared as a number: 1.9 comes before 1.10.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Minor(u32);

impl Minor {
    /// The number after the dot.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Minor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{WORKER_PROTOCOL_MAJOR}.{}", self.0)
    }
}

/// A request whose version header is missing or names a version this server does not speak; a 400 on either plane.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct VersionRefusal {
    /// The stable machine reason.
    pub reason: Reason,
    /// The error text for people.
    pub message: String,
    /// The version that the server supports.
    pub supported_version: &'static str,
    /// The value of the header, if it was present.
    pub requested_version: Option<String>,
    /// How to fix the request.
    pub remediation: &'static str,
}

/// Negotiates the worker protocol. Accepts every 1.x up to the advertised minor version.
///
/// # Errors
/// Reason `missing_protocol_version` or `unsupported_protocol_version`.
pub fn negotiate(header: Option<&str>) -> Result<Minor, VersionRefusal> {
    let requested = WORKER.present(header)?;
    match parse(requested) {
        Some((WORKER_PROTOCOL_MAJOR, minor)) if minor <= WORKER_PROTOCOL_MINOR => Ok(minor),
        _ => Err(WORKER.unsupported(requested)),
    }
}

/// Negotiates the control plane. Accepts exactly one version.
///
/// # Errors
/// Reason `missing_control_plane_version` or `unsupported_control_plane_version`.
pub fn negotiate_control_plane(header: Option<&str>) -> Result<(), VersionRefusal> {
    let requested = CONTROL.present(header)?;
    if requested == CONTROL_PLANE_VERSION {
        Ok(())
    } else {
        Err(CONTROL.unsupported(requested))
    }
}

fn parse(version: &str) -> Option<(u32, Minor)> {
    let (major, minor) = version.split_once('.')?;
    Some((decimal(major)?, Minor(decimal(minor)?)))
}

/// Digits only: the standard parser would also take a plus sign.
fn decimal(digits: &str) -> Option<u32> {
    if digits.bytes().all(|byte| byte.is_ascii_digit()) {
        digits.parse().ok()
    } else {
        None
    }
}

/// The header, version and refusal texts of one plane.
struct Plane {
    header: &'static str,
    supported: &'static str,
    missing_reason: Reason,
    unsupported_reason: Reason,
    remediation: &'static str,
}

const WORKER: Plane = Plane {
    header: WORKER_PROTOCOL_HEADER,
    supported: WORKER_PROTOCOL_VERSION,
    missing_reason: Reason::MissingProtocolVersion,
    unsupported_reason: Reason::UnsupportedProtocolVersion,
    remediation: "Send the header X-Durable-Workflow-Protocol-Version with a version from 1.0 to 1.20, or use a \
                  worker SDK that speaks one of them.",
};

const CONTROL: Plane = Plane {
    header: CONTROL_PLANE_HEADER,
    supported: CONTROL_PLANE_VERSION,
    missing_reason: Reason::MissingControlPlaneVersion,
    unsupported_reason: Reason::UnsupportedControlPlaneVersion,
    remediation: "Send the header X-Durable-Workflow-Control-Plane-Version: 2, or use a client that speaks version 2.",
};

impl Plane {
    fn present<'a>(&self, header: Option<&'a str>) -> Result<&'a str, VersionRefusal> {
        match header.map(str::trim) {
            Some(requested) if !requested.is_empty() => Ok(requested),
            _ => Err(VersionRefusal {
                reason: self.missing_reason,
                message: format!("The header {} is required.", self.header),
                supported_version: self.supported,
                requested_version: None,
                remediation: self.remediation,
            }),
        }
    }

    fn unsupported(&self, requested: &str) -> VersionRefusal {
        let requested: String = requested.chars().take(REQUESTED_CHARACTERS_MAX).collect();
        VersionRefusal {
            reason: self.unsupported_reason,
            message: format!(
                "Version {requested} is not supported; this server speaks {}.",
                self.supported
            ),
            supported_version: self.supported,
            requested_version: Some(requested),
            remediation: self.remediation,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_minor_up_to_the_advertised_one_is_accepted() {
        assert_eq!(WORKER_PROTOCOL_MINOR.to_string(), WORKER_PROTOCOL_VERSION);
        for minor in 0..=20 {
            assert_eq!(
                negotiate(Some(&format!("1.{minor}"))).map(Minor::get),
                Ok(minor)
            );
        }
        assert_eq!(negotiate(Some(" 1.19 ")).map(Minor::get), Ok(19));
    }

    #[test]
    fn minors_compare_as_numbers() {
        assert!(negotiate(Some("1.9")).unwrap() < negotiate(Some("1.10")).unwrap());
    }

    #[test]
    fn other_worker_versions_are_refused() {
        for header in [
            "1.21",
            "1.100",
            "2.0",
            "0.9",
            "1",
            "1.",
            ".1",
            "1.2.3",
            "v1.2",
            "1.x",
            "1.+2",
            "+1.2",
            "1.-1",
            "1. 2",
            "1.99999999999999999999",
            "１.２",
        ] {
            let refusal = negotiate(Some(header)).unwrap_err();
            assert_eq!(
                refusal.reason.as_str(),
                "unsupported_protocol_version",
                "{header}"
            );
            assert_eq!(refusal.requested_version.as_deref(), Some(header));
            assert_eq!(refusal.supported_version, "1.20");
        }
    }

    #[test]
    fn an_absent_or_empty_header_is_missing() {
        for header in [None, Some(""), Some("  ")] {
            let refusal = negotiate(header).unwrap_err();
            assert_eq!(
                (refusal.reason.as_str(), refusal.requested_version),
                ("missing_protocol_version", None)
            );
            let refusal = negotiate_control_plane(header).unwrap_err();
            assert_eq!(
                (refusal.reason.as_str(), refusal.requested_version),
                ("missing_control_plane_version", None)
            );
        }
    }

    #[test]
    fn the_control_plane_speaks_exactly_two() {
        assert_eq!(negotiate_control_plane(Some("2")), Ok(()));
        for header in ["1", "3", "2.0", "02", "two"] {
            let refusal = negotiate_control_plane(Some(header)).unwrap_err();
            assert_eq!(
                refusal.reason.as_str(),
                "unsupported_control_plane_version",
                "{header}"
            );
            assert_eq!(refusal.supported_version, "2");
        }
    }

    #[test]
    fn a_long_header_is_not_echoed_whole() {
        let refusal = negotiate(Some(&"9".repeat(10_000))).unwrap_err();
        assert_eq!(
            refusal.requested_version.map(|version| version.len()),
            Some(REQUESTED_CHARACTERS_MAX)
        );
    }
}
