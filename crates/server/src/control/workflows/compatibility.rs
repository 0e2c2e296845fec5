//! The fields that show whether a run's pinned build has a worker.

use longhaul_host::{BuildSupport, PinnedWorkers};
use longhaul_protocol::id::TaskQueue;
use serde_json::{Map, Value, json};

/// Adds the four compatibility fields of one run.
pub(super) fn show_compatibility(
    body: &mut Map<String, Value>,
    workers: &PinnedWorkers,
    pin: Option<&str>,
    queue: &TaskQueue,
) {
    let (status, is_supported) = match workers.support(pin, queue) {
        BuildSupport::Supported => ("compatible", true),
        BuildSupport::NoWorker => ("no_compatible_worker", false),
    };
    let reason = pin
        .filter(|_| !is_supported)
        .map(|pin| format!("no live worker on queue {queue} takes work of build {pin}"));
    let mut set = |name: &str, value: Value| body.insert(name.to_owned(), value);
    set("compatibility", json!(pin));
    set("compatibility_status", json!(status));
    set("compatibility_supported_in_fleet", json!(is_supported));
    set("compatibility_fleet_reason", json!(reason));
}
