//! What a server says about itself (control-plane.md §6.3).

use longhaul_protocol::version::{CONTROL_PLANE_VERSION, WORKER_PROTOCOL_MAJOR};
use serde_json::Value;

use super::Error;

/// A server's self-description.
#[derive(Clone, Debug)]
pub struct ServerInfo {
    whole: Value,
}

impl ServerInfo {
    /// Reads the answer to discovery, and refuses a server that speaks another protocol.
    pub(super) fn read(whole: Value) -> Result<Self, Error> {
        let info = Self { whole };
        let control = info.whole["control_plane"]["version"].as_str();
        if control != Some(CONTROL_PLANE_VERSION) {
            return Err(Error::Incompatible(format!(
                "this client speaks version {CONTROL_PLANE_VERSION} of the control plane, the server {}",
                control.unwrap_or("none of it"),
            )));
        }
        let major = info.worker_protocol_version().split('.').next();
        if major.and_then(|major| major.parse().ok()) != Some(WORKER_PROTOCOL_MAJOR) {
            return Err(Error::Incompatible(format!(
                "this client speaks version {WORKER_PROTOCOL_MAJOR} of the worker protocol, the server {:?}",
                info.worker_protocol_version(),
            )));
        }
        Ok(info)
    }

    /// The server's name for itself.
    #[must_use]
    pub fn server_id(&self) -> &str {
        self.whole["server_id"].as_str().unwrap_or_default()
    }

    /// The release it runs.
    #[must_use]
    pub fn version(&self) -> &str {
        self.whole["version"].as_str().unwrap_or_default()
    }

    /// The worker protocol it speaks, such as `1.20`.
    #[must_use]
    pub fn worker_protocol_version(&self) -> &str {
        self.whole["worker_protocol"]["version"]
            .as_str()
            .unwrap_or_default()
    }

    /// Whether it offers something to clients, such as `schedules`.
    #[must_use]
    pub fn offers(&self, capability: &str) -> bool {
        is_offered(&self.whole["capabilities"][capability])
    }

    /// Whether it offers something to workers, such as `cooperative_cancellation`.
    #[must_use]
    pub fn offers_workers(&self, capability: &str) -> bool {
        is_offered(&self.whole["worker_protocol"]["server_capabilities"][capability])
    }

    /// The longest base64 text of one payload that it takes.
    #[must_use]
    pub fn max_payload_bytes(&self) -> Option<u64> {
        self.whole["limits"]["max_payload_bytes"].as_u64()
    }

    /// Everything it said.
    #[must_use]
    pub fn whole(&self) -> &Value {
        &self.whole
    }
}

/// Capabilities are flags, or objects that say so.
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
