//! `GET /api/workflows/{w}/runs/{r}/history/export`: one run as a self-contained bundle for the published verifiers and replayers.
//! `canonical` renders the form that is signed, `sections` collects what the events contain.

mod canonical;
mod sections;

use longhaul_host::api::{CommandRow, Outcome, Run, WorkflowTask};
use std::collections::BTreeMap;
use std::fmt::Write as _;

use axum::BoxError;
use axum::body::Body as HttpBody;
use futures::{StreamExt as _, stream};
use longhaul_host::{Description, Host, StoredEvent};
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::RunId;
use longhaul_protocol::payload::CODEC;
use longhaul_protocol::sequence::HistorySeq;
use serde_json::{Value, json};

use super::{command, memo_shown};
use crate::SigningKey;
use crate::control::Call;
use crate::control::envelope::Reply;
use crate::gate::Refusal;
use canonical::Seal;
use sections::{Fold, Sections};

const SCHEMA: &str = "durable-workflow.v2.history-export";

/// The encoding of every payload: base64 of Avro single-object encoding.
const ENCODING: &str = "base64-avro-single-object";
const FRAMING: &str = "single_object";
const MAGIC: &str = "c301";
const FINGERPRINT: &str = "crc64-avro:e2a33dff55802237";
const WRITER_SCHEMA: &str =
    include_str!("../../../../../protocol/contract/durable_workflow.protocol.Value.v1.avsc");

/// Sends the bundle page by page as the caller reads it, so at most one page of events is in memory. The events are read twice,
/// because the sections collected from them come before them.
pub(in crate::control) async fn export(call: Call) -> Result<Reply, Refusal> {
    let host = call.host().clone();
    let description = host
        .workflows()
        .describe(&call.namespace, &call.workflow_id(), call.run_id().as_ref())
        .await?;
    let run_id = description.run.run_id().clone();
    let end = description.run.core.last_history_sequence;
    let mut fold = Fold::default();
    let mut after = Some(HistorySeq::ZERO);
    while let Some(from) = after {
        let page = host.workflows().export_page(&run_id, from, end).await?;
        after = page.next_after;
        fold = off_thread(move || {
            page.events.iter().for_each(|event| fold.take(event));
            fold
        })
        .await;
    }
    let commands = host.workflows().all_commands(&run_id).await?;
    let now = host.now();
    let key = call.app.options().export_key.clone();
    let (bundle, text) = off_thread(move || {
        let members = members(&description, &commands, &fold.finish(), now);
        let arguments = json!(description.run.spec.arguments).to_string();
        Bundle::begin(&members, arguments, key)
    })
    .await;
    let reader = Reader {
        host,
        run_id,
        end,
        after: Some(HistorySeq::ZERO),
        bundle: Some(bundle),
    };
    let rest = stream::try_unfold(reader, Reader::next);
    let text = stream::once(async { Ok::<_, BoxError>(text) }).chain(rest);
    Ok(Reply::stream(HttpBody::from_stream(text)))
}

/// Does work on a whole page away from the threads that small requests need.
async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// Reads the pages of an export one after another.
struct Reader {
    host: Host,
    run_id: RunId,
    end: HistorySeq,
    /// Where the next page begins; `None` after the last one.
    after: Option<HistorySeq>,
    /// `None` after it is sealed.
    bundle: Option<Bundle>,
}

impl Reader {
    /// Returns the next piece of the text. A failure ends the response in the middle, which every reader notices.
    async fn next(mut self) -> Result<Option<(String, Self)>, BoxError> {
        let Some(mut bundle) = self.bundle.take() else {
            return Ok(None);
        };
        let Some(after) = self.after else {
            return Ok(Some((bundle.seal(), self)));
        };
        let page = self
            .host
            .workflows()
            .export_page(&self.run_id, after, self.end)
            .await;
        let page = page.inspect_err(|error| {
            tracing::warn!(%error, run_id = %self.run_id, "an export was cut off");
        })?;
        self.after = page.next_after;
        let (bundle, text) = off_thread(move || {
            let text = bundle.add(&page.events);
            (bundle, text)
        })
        .await;
        self.bundle = Some(bundle);
        Ok(Some((text, self)))
    }
}

/// A bundle that is being written. Its seal is computed from the canonical form of what was written. That form orders members by
/// name, so some come before the events and the others after them.
struct Bundle {
    seal: Seal,
    key: Option<SigningKey>,
    has_events: bool,
    /// The canonical form of what follows the events.
    behind: String,
    /// The arguments of the run, as text. They are stored once, with the run.
    arguments: String,
}

const EVENTS: &str = "history_events";

impl Bundle {
    /// Returns a bundle with these members, and its text up to the first event.
    fn begin(
        members: &BTreeMap<&'static str, String>,
        arguments: String,
        key: Option<SigningKey>,
    ) -> (Self, String) {
        let canonical = |is_before: bool| {
            let members = members.iter();
            let members = members.filter(|(name, _)| (**name < EVENTS) == is_before);
            canonical::members(members)
                .unwrap_or_else(|error| unreachable!("it was just written as JSON: {error}"))
        };
        let mut seal = Seal::new(key.as_ref().map(SigningKey::secret));
        seal.add(format!("{{{},\"{EVENTS}\":[", canonical(true)).as_bytes());
        let mut text = String::from("{");
        for (name, value) in members {
            // Writing to a string cannot fail.
            let _ = write!(text, "\"{name}\":{value},");
        }
        let _ = write!(text, "\"{EVENTS}\":[");
        let bundle = Self {
            seal,
            key,
            has_events: false,
            behind: canonical(false),
            arguments,
        };
        (bundle, text)
    }

    /// Adds events and returns their text.
    fn add(&mut self, events: &[StoredEvent]) -> String {
        let mut text = String::new();
        for event in events {
            if self.has_events {
                text.push(',');
                self.seal.add(b",");
            }
            self.has_events = true;
            let shown = event_json(event, &self.arguments);
            let canonical = canonical::canonical(&shown)
                .unwrap_or_else(|error| unreachable!("an event is JSON: {error}"));
            self.seal.add(canonical.as_bytes());
            text.push_str(&shown);
        }
        text
    }

    /// Returns the end of the text, with checksum and signature.
    fn seal(mut self) -> String {
        self.seal.add(format!("],{}}}", self.behind).as_bytes());
        let (checksum, signature) = self.seal.close();
        let integrity = json!({
            "canonicalization": "json-recursive-ksort-v1",
            "checksum_algorithm": "sha256",
            "checksum": checksum,
            "signature_algorithm": signature.as_ref().map(|_| "hmac-sha256"),
            "signature": signature,
            "key_id": self.key.as_ref().and_then(SigningKey::id),
        });
        format!("],\"integrity\":{integrity}}}")
    }
}

/// Returns every member of the bundle except the events and the seal, as text.
fn members(
    description: &Description,
    commands: &[CommandRow],
    sections: &Sections,
    now: Timestamp,
) -> BTreeMap<&'static str, String> {
    let run = &description.run;
    let commands: Vec<Value> = commands.iter().map(|row| command(row, run)).collect();
    let last_sequence = run.core.last_history_sequence;
    let dedupe_key = format!(
        "{}:{last_sequence}:{}",
        run.run_id(),
        run.core.last_event_at
    );
    BTreeMap::from([
        ("schema", json!(SCHEMA).to_string()),
        ("schema_version", json!(1).to_string()),
        ("exported_at", json!(now).to_string()),
        ("dedupe_key", json!(dedupe_key).to_string()),
        (
            "history_complete",
            json!(run.core.closed.is_some()).to_string(),
        ),
        ("workflow", workflow(description).to_string()),
        ("payloads", payloads(run).to_string()),
        (
            "summary",
            json!({
                "history_event_count": last_sequence,
                "history_size_bytes": run.core.history_size_bytes,
                "command_count": commands.len(),
                "activity_count": sections.activities.len(),
                "timer_count": sections.timers.len(),
                "failure_count": sections.failures.len(),
            })
            .to_string(),
        ),
        (
            "selected_run",
            json!({
                "waits_projection_source": null,
                "timeline_projection_source": null,
                "timers_projection_source": "history_events",
                "lineage_projection_source": "history_events",
            })
            .to_string(),
        ),
        ("commands", Value::Array(commands).to_string()),
        ("signals", json!(sections.signals).to_string()),
        ("updates", json!(sections.updates).to_string()),
        (
            "tasks",
            run.core
                .workflow_task
                .as_deref()
                .into_iter()
                .map(task)
                .collect::<Value>()
                .to_string(),
        ),
        ("activities", json!(sections.activities).to_string()),
        ("timers", json!(sections.timers).to_string()),
        ("failures", json!(sections.failures).to_string()),
        (
            "links",
            json!({
                "projection_source": "history_events",
                "parents": sections.parents,
                "children": sections.children,
            })
            .to_string(),
        ),
        (
            "redaction",
            json!({"applied": false, "policy": null, "paths": []}).to_string(),
        ),
        ("codec_schemas", codec_schemas().to_string()),
        ("payload_manifest", payload_manifest(run, sections)),
    ])
}

/// Renders one event of the bundle. It has both names of the type: the published verifiers read `type`, the Python replayer reads
/// `event_type`. (The Rust client treats the two as the same field sent twice, but it reads no exports.) `WorkflowStarted` contains
/// the arguments of the run, because replayers read them there.
fn event_json(event: &StoredEvent, arguments: &str) -> String {
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
    // Payloads are passed on as stored.
    let payload = &event.payload;
    match payload.strip_prefix('{') {
        Some(rest) if event.event_type == "WorkflowStarted" => {
            format!("{open},\"payload\":{{\"arguments\":{arguments},{rest}}}")
        }
        _ => format!("{open},\"payload\":{payload}}}"),
    }
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

/// Renders the path of every payload in the bundle, as text, because there can be as many as events. The schema is not repeated with
/// each; it is found by its fingerprint.
fn payload_manifest(run: &Run, sections: &Sections) -> String {
    let output = matches!(run.outcome(), Some(Outcome::Output(_)));
    let own = ["payloads.arguments.data"]
        .into_iter()
        .chain(output.then_some("payloads.output.data"));
    let mut text = String::from("{\"version\":1,\"entries\":[");
    for (place, path) in own
        .chain(sections.payload_paths.iter().map(String::as_str))
        .enumerate()
    {
        if place > 0 {
            text.push(',');
        }
        let entry = json!({
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
        });
        // Writing to a string cannot fail.
        let _ = write!(text, "{entry}");
    }
    text.push_str("]}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(sequence: u64, payload: &str) -> StoredEvent {
        StoredEvent {
            id: format!("e{sequence}").as_str().into(),
            sequence: sequence.into(),
            event_type: "Step".to_owned(),
            payload: payload.to_owned(),
            recorded_at: Timestamp::from_micros(0),
            workflow_task_id: None,
            workflow_command_id: None,
            principal: None,
        }
    }

    /// A reader computes the canonical form of the whole text; the server computed the seal from pieces.
    #[test]
    fn the_seal_of_the_pieces_is_that_of_the_whole() {
        let members = BTreeMap::from([
            ("activities", r#"[{"b": 1, "a": "ü"}]"#.to_owned()),
            ("commands", "[]".to_owned()),
            ("links", "{}".to_owned()),
            ("workflow", r#"{"x": 1.50}"#.to_owned()),
        ]);
        let pages = [
            vec![event(1, r#"{"z": [1, 2], "a": null}"#), event(2, "{}")],
            vec![event(3, r#"{"text": "é"}"#)],
            Vec::new(),
        ];
        for count in 0..=pages.len() {
            let key = SigningKey::new("secret".to_owned(), Some("k".to_owned()));
            let (mut bundle, mut text) = Bundle::begin(&members, "[]".to_owned(), Some(key));
            for page in &pages[..count] {
                text.push_str(&bundle.add(page));
            }
            text.push_str(&bundle.seal());
            let mut read: Value = serde_json::from_str(&text).expect("JSON");
            let integrity = read.as_object_mut().unwrap().remove("integrity").unwrap();
            let (unsealed, _) = text.rsplit_once(",\"integrity\":").unwrap();
            let canonical = canonical::canonical(&format!("{unsealed}}}")).unwrap();
            let mut seal = Seal::new(Some(b"secret"));
            seal.add(canonical.as_bytes());
            let (checksum, signature) = seal.close();
            assert_eq!(integrity["checksum"], json!(checksum), "{count} pages");
            assert_eq!(integrity["signature"], json!(signature));
            assert_eq!(integrity["key_id"], "k");
        }
    }
}
