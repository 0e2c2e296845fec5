//! Namespaces. These routes act on the namespace in the path, not on the one that the request is sent in.

use http::StatusCode;
use longhaul_host::{NamespaceRow, NamespaceSpec};
use longhaul_protocol::id::Namespace;
use serde_json::{Value, json};

use super::Call;
use super::envelope::Reply;
use crate::gate::Refusal;
use crate::request::body::Body;

const NAME_MAX: usize = 128;
const DESCRIPTION_MAX: usize = 1000;

/// A year; longer is `forever`.
const RETENTION_DAYS_MAX: u32 = 365;

pub(super) async fn list(call: Call) -> Result<Reply, Refusal> {
    let namespaces = call.host().namespaces().list().await?;
    let rows: Vec<Value> = namespaces.iter().map(shown).collect();
    Ok(Reply::ok(json!({"namespaces": rows})))
}

pub(super) async fn describe(call: Call) -> Result<Reply, Refusal> {
    let row = call.host().namespaces().get(&named(&call)).await?;
    Ok(Reply::ok(shown(&row)))
}

pub(super) async fn create(call: Call) -> Result<Reply, Refusal> {
    let name = read_name(&call.body);
    let spec = read_spec(&call.body, &NamespaceSpec::default());
    call.body.check()?;
    let row = call.host().namespaces().create(&name, &spec).await?;
    Ok(Reply::new(StatusCode::CREATED, shown(&row)))
}

pub(super) async fn update(call: Call) -> Result<Reply, Refusal> {
    let name = named(&call);
    let row = call.host().namespaces().get(&name).await?;
    let before = NamespaceSpec {
        description: row.description,
        retention_days: row.retention_days,
    };
    let spec = read_spec(&call.body, &before);
    call.body.check()?;
    let row = call.host().namespaces().update(&name, &spec).await?;
    Ok(Reply::ok(shown(&row)))
}

/// Names are compared without case.
fn named(call: &Call) -> Namespace {
    call.segment("name").to_lowercase().into()
}

fn read_name(body: &Body) -> Namespace {
    let name = body.required_text("name", NAME_MAX);
    let is_name = name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    // A name of dots only would be a step in a path.
    if !is_name || (!name.is_empty() && name.bytes().all(|byte| byte == b'.')) {
        body.refuse(
            "name",
            "may contain only letters, digits and . _ -, and must not be only dots",
        );
    }
    name.to_ascii_lowercase().into()
}

/// Reads the fields of the body; absent fields keep their values.
fn read_spec(body: &Body, before: &NamespaceSpec) -> NamespaceSpec {
    let description = match body.raw("description") {
        // An empty text removes the description.
        Some(_) => body.note("description", DESCRIPTION_MAX),
        None => before.description.clone(),
    };
    NamespaceSpec {
        description,
        retention_days: read_retention(body, before.retention_days),
    }
}

fn read_retention(body: &Body, before: Option<u32>) -> Option<u32> {
    let days = body.integer("retention_days").and_then(|days| {
        let days = u32::try_from(days)
            .ok()
            .filter(|days| (1..=RETENTION_DAYS_MAX).contains(days));
        if days.is_none() {
            body.refuse(
                "retention_days",
                &format!("must be a number from 1 to {RETENTION_DAYS_MAX}"),
            );
        }
        days
    });
    match (body.text("retention_mode", NAME_MAX).as_deref(), days) {
        (Some("forever"), None) => None,
        (Some("forever"), Some(_)) => {
            body.refuse(
                "retention_days",
                "must be absent when retention_mode is forever",
            );
            None
        }
        (Some("bounded"), days) => days
            .or(before)
            .or_else(|| NamespaceSpec::default().retention_days),
        (Some(_), _) => {
            body.refuse("retention_mode", "must be bounded or forever");
            before
        }
        (None, Some(days)) => Some(days),
        (None, None) => before,
    }
}

fn shown(row: &NamespaceRow) -> Value {
    json!({
        "name": row.name,
        "description": row.description,
        "retention_mode": if row.retention_days.is_some() { "bounded" } else { "forever" },
        "retention_days": row.retention_days,
        "status": "active",
        "external_payload_storage": null,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
    })
}
