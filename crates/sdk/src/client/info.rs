//! The description of a server.

use longhaul_protocol::version::{CONTROL_PLANE_VERSION, WORKER_PROTOCOL_MAJOR};
use serde_json::Value;

use super::Error;

/// The description of a server: version, protocol versions, capabilities and limits.
#[derive(Clone, Debug)]
pub struct ServerInfo {
    whole: Value,
}

impl ServerInfo {
    /// Parses the description. Fails if the server uses another version of the protocol.
    pub(super) fn read(whole: Value) -> Result<Self, Error> {
        let info = Self { whole };
        let control = info.whole["control_plane"]["version"].as_str();
        if control != Some(CONTROL_PLANE_VERSION) {
            return Err(Error::Incompatible(format!(
                "this client uses version {CONTROL_PLANE_VERSION} of the control plane, the server uses {}",
                control.unwrap_or("none"),
            )));
        }
        let major = info.worker_protocol_version().split('.').next();
        if major.and_then(|major| major.parse().ok()) != Some(WORKER_PROTOCOL_MAJOR) {
            return Err(Error::Incompatible(format!(
                "this client uses version {WORKER_PROTOCOL_MAJOR} of the worker protocol, the server uses {:?}",
                info.worker_protocol_version(),
            )));
        }
        Ok(info)
    }

    /// Returns the id of the server.
    #[must_use]
    pub fn server_id(&self) -> &str {
        self.whole["server_id"].as_str().unwrap_or_default()
    }

    /// Returns the release of the server.
    #[must_use]
    pub fn version(&self) -> &str {
        self.whole["version"].as_str().unwrap_or_default()
    }

    /// Returns the version of the worker protocol, such as `1.20`.
    #[must_use]
    pub fn worker_protocol_version(&self) -> &str {
        self.whole["worker_protocol"]["version"]
            .as_str()
            .unwrap_or_default()
    }

    /// Returns whether the server has a capability for clients, such as `schedules`.
    #[must_use]
    pub fn offers(&self, capability: &str) -> bool {
        is_offered(&self.whole["capabilities"][capability])
    }

    /// Returns whether the server has a capability for workers, such as `cooperative_cancellation`.
    #[must_use]
    pub fn offers_workers(&self, capability: &str) -> bool {
        is_offered(&self.whole["worker_protocol"]["server_capabilities"][capability])
    }

    /// Returns the longest base64 text of a payload that the server accepts.
    #[must_use]
    pub fn max_payload_bytes(&self) -> Option<u64> {
        self.whole["limits"]["max_payload_bytes"].as_u64()
    }

    /// Returns the whole description.
    #[must_use]
    pub fn whole(&self) -> &Value {
        &self.whole
    }
}

/// Returns whether a capability is supported: it is a flag, or an object with the flag `supported`.
fn is_offered(capability: &Value) -> bool {
    capability
        .as_bool()
        .unwrap_or_else(|| capability["supported"].as_bool() == Some(true))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_server_of_another_protocol_is_refused() {
        let info = |control: &str, worker: &str| {
            ServerInfo::read(json!({
                "control_plane": {"version": control},
                "worker_protocol": {"version": worker, "server_capabilities": {"sticky": {"supported": true}}},
                "capabilities": {"schedules": false, "signals": true},
            }))
        };
        let known = info("2", "1.20").unwrap();
        assert!(known.offers("signals") && !known.offers("schedules") && !known.offers("flying"));
        assert!(known.offers_workers("sticky"));
        assert!(matches!(info("3", "1.20"), Err(Error::Incompatible(_))));
        assert!(matches!(info("2", "2.0"), Err(Error::Incompatible(_))));
        assert!(matches!(
            ServerInfo::read(json!({})),
            Err(Error::Incompatible(_))
        ));
    }
}
