//! `GET /api/workflows/{w}/runs/{r}/history/export` (control-plane.md §11.2): one run as a self-contained bundle that the published
//! verifiers and replayers take. `canonical` is the form that is signed, `sections` what is folded from the events.

mod canonical;
mod sections;

use std::fmt::Write as _;

use longhaul_host::engine::change::CommandRow;
use longhaul_host::engine::run::state::{Outcome, Run, WorkflowTask};
use longhaul_host::{Description, StoredEvent};
use longhaul_protocol::Timestamp;
use longhaul_protocol::payload::CODEC;
use serde_json::{Map, Value, json};

use super::Call;
use super::envelope::Reply;
use super::workflows::{command, memo_shown};
use crate::SigningKey;
use crate::gate::Refusal;
use sections::Sections;

const SCHEMA: &str = "durable-workflow.v2.history-export";

/// What every payload is (payload-codec.md).
const ENCODING: &str = "base64-avro-single-object";
const FRAMING: &str = "single_object";
const MAGIC: &str = "c301";
const FINGERPRINT: &str = "crc64-avro:e2a33dff55802237";
const WRITER_SCHEMA: &str =
    include_str!("../../../../protocol/contract/durable_workflow.protocol.Value.v1.avsc");

pub(super) async fn export(call: Call) -> Result<Reply, Refusal> {
    let mut exported = call
        .host()
        .export_workflow(&call.namespace, &call.workflow_id(), call.run_id().as_ref())
        .await?;
    show_arguments(&exported.0.run, &mut exported.1);
    let commands = call.host().all_commands(exported.0.run.run_id()).await?;
    let bundle = bundle(&exported.0, &commands, &exported.1, call.host().now());
    let key = call.app.options().export_key.as_ref();
    Ok(Reply::text(seal(bundle, key)))
}

/// Adds the arguments of the run to `WorkflowStarted`, where replayers look for them. They are stored once, with the run.
fn show_arguments(run: &Run, events: &mut [StoredEvent]) {
    let started = |event: &&mut StoredEvent| event.event_type == "WorkflowStarted";
    if let Some(event) = events.iter_mut().find(started)
        && let Some(rest) = event.payload.strip_prefix('{')
    {
        let arguments = json!(run.spec.arguments);
        event.payload = format!("{{\"arguments\":{arguments},{rest}");
    }
}

/// The bundle as text, without its seal.
fn bundle(
    description: &Description,
    commands: &[CommandRow],
    events: &[StoredEvent],
    now: Timestamp,
) -> String {
    let run = &description.run;
    let sections = sections::fold(events);
    let commands: Vec<Value> = commands.iter().map(|row| command(row, run)).collect();
    let last_sequence = run.core.last_history_sequence;
    let head = json!({
        "schema": SCHEMA,
        "schema_version": 1,
        "exported_at": now,
        "dedupe_key": format!("{}:{last_sequence}:{}", run.run_id(), run.core.last_event_at),
        "history_complete": run.core.closed.is_some(),
        "workflow": workflow(description),
        "payloads": payloads(run),
        "summary": {
            "history_event_count": events.len(),
            "history_size_bytes": run.core.history_size_bytes,
            "command_count": commands.len(),
            "activity_count": sections.activities.len(),
            "timer_count": sections.timers.len(),
            "failure_count": sections.failures.len(),
        },
        "selected_run": {
            "waits_projection_source": null,
            "timeline_projection_source": null,
            "timers_projection_source": "history_events",
            "lineage_projection_source": "history_events",
        },
        "commands": commands,
        "signals": sections.signals,
        "updates": sections.updates,
        "tasks": run.core.workflow_task.iter().map(task).collect::<Vec<Value>>(),
        "activities": sections.activities,
        "timers": sections.timers,
        "failures": sections.failures,
        "links": {
            "projection_source": "history_events",
            "parents": sections.parents,
            "children": sections.children,
        },
        "redaction": {"applied": false, "policy": null, "paths": []},
        "codec_schemas": codec_schemas(),
        "payload_manifest": payload_manifest(run, &sections),
    });
    let mut text = head.to_string();
    text.pop();
    text.push_str(",\"history_events\":[");
    for (number, event) in events.iter().enumerate() {
        if number > 0 {
            text.push(',');
        }
        // The verifiers and the specification read `type`, the Python replayer reads `event_type`: a bundle for both has both.
        // (The Rust client, which takes the two for one field given twice, reads no exports.)
        let head = json!({
            "id": event.id,
            "sequence": event.sequence,
            "type": event.event_type,
            "event_type": event.event_type,
            "recorded_at": event.recorded_at,
            "workflow_command_id": event.workflow_command_id,
            "workflow_task_id": event.workflow_task_id,
        })
        .to_string();
        let open = head.strip_suffix('}').unwrap_or(&head);
        // Payloads are passed on as they are stored. Writing to a string cannot fail.
        let _ = write!(text, "{open},\"payload\":{}}}", event.payload);
    }
    text.push_str("]}");
    text
}

/// Adds checksum and signature.
fn seal(mut bundle: String, key: Option<&SigningKey>) -> String {
    let canonical = canonical::canonical(&bundle)
        .unwrap_or_else(|error| unreachable!("the bundle was just written as JSON: {error}"));
    let signature = key.map(|key| canonical::signature(key.secret(), canonical.as_bytes()));
    let integrity = json!({
        "canonicalization": "json-recursive-ksort-v1",
        "checksum_algorithm": "sha256",
        "checksum": canonical::checksum(canonical.as_bytes()),
        "signature_algorithm": signature.as_ref().map(|_| "hmac-sha256"),
        "signature": signature,
        "key_id": key.and_then(SigningKey::id),
    });
    bundle.pop();
    let _ = write!(bundle, ",\"integrity\":{integrity}}}");
    bundle
}

fn workflow(description: &Description) -> Value {
    let Run { spec, core, .. } = &description.run;
    let closed = core.closed.as_ref();
    let archived = closed.and_then(|closed| closed.archived.as_ref());
    json!({
        "instance_id": spec.workflow_id,
        "run_id": spec.run_id,
        "run_number": spec.run_number,
        "is_current_run": description.is_current,
        "current_run_id": description.current_run_id,
        "current_run_source": "instance",
        "workflow_type": spec.workflow_type,
        "workflow_class": null,
        "business_key": spec.business_key,
        "visibility_labels": [],
        "memo": memo_shown(core.memo.as_ref()),
        "search_attributes": core.search_attributes,
        "status": core.status.as_str(),
        "status_bucket": core.status.bucket(),
        "closed_reason": closed.map(|closed| closed.reason.as_str()),
        "archived_at": archived.map(|archived| archived.at),
        "archive_command_id": archived.map(|archived| &archived.command_id),
        "archive_reason": archived.and_then(|archived| archived.reason.as_deref()),
        "namespace": spec.namespace,
        "compatibility": spec.routing.compatibility,
        "connection": null,
        "queue": spec.task_queue,
        "last_history_sequence": core.last_history_sequence,
        "started_at": spec.started_at,
        "closed_at": closed.map(|closed| closed.at),
        "last_progress_at": core.last_event_at,
    })
}

fn payloads(run: &Run) -> Value {
    let output = match run.outcome() {
        Some(Outcome::Output(output)) => Some(output.blob()),
        Some(Outcome::Failure(_)) | None => None,
    };
    json!({
        "codec": CODEC,
        "arguments": {"available": true, "data": run.spec.arguments.blob()},
        "output": {
            "available": output.is_some(),
            "codec": output.map(|_| CODEC),
            "data": output,
        },
    })
}

fn task(task: &WorkflowTask) -> Value {
    let lease = task.lease.as_ref();
    json!({
        "id": task.id,
        "type": "workflow",
        "status": if lease.is_some() { "leased" } else { "ready" },
        "available_at": task.available_at,
        "attempt_count": task.attempt,
        "lease_owner": lease.map(|lease| &lease.owner),
        "lease_expires_at": lease.map(|lease| lease.expires_at),
    })
}

fn codec_schemas() -> Value {
    let schema: Value = serde_json::from_str(WRITER_SCHEMA).unwrap_or_default();
    json!({CODEC: {
        "encoding": ENCODING,
        "framing": FRAMING,
        "magic_hex": MAGIC,
        "fingerprint": FINGERPRINT,
        "writer_schemas": {FINGERPRINT: schema},
    }})
}

/// Where every payload of the bundle stands. The schema is not repeated with each: it is found by its fingerprint.
fn payload_manifest(run: &Run, sections: &Sections) -> Value {
    let entry = |path: &str| {
        json!({
            "path": path,
            "codec": CODEC,
            "available": true,
            "redacted": false,
            "encoding": ENCODING,
            "avro_framing": FRAMING,
            "avro_prefix_hex": MAGIC,
            "writer_schema": null,
            "writer_schema_fingerprint": FINGERPRINT,
            "diagnostic": null,
        })
    };
    let mut entries = vec![entry("payloads.arguments.data")];
    if let Some(Outcome::Output(_)) = run.outcome() {
        entries.push(entry("payloads.output.data"));
    }
    entries.extend(sections.payload_paths.iter().map(|path| entry(path)));
    let mut manifest = Map::new();
    manifest.insert("version".to_owned(), json!(1));
    manifest.insert("entries".to_owned(), Value::Array(entries));
    Value::Object(manifest)
}
