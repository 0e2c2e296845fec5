//! The schema registry. Workers register the schemas of their input and output when they start.

use http::StatusCode;
use longhaul_host::SchemaVersion;
use longhaul_protocol::Reason;

use super::answer::Answer;
use super::call::{Call, bad_request, refused};
use crate::gate::Refusal;

fn missing(message: String) -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, Reason::DefinitionNotFound, message)
}

/// Reads the version in the path.
fn version(call: &Call) -> Result<i32, Refusal> {
    call.segment("b")
        .parse()
        .map_err(|_| bad_request("The version in the path must be a whole number.".to_owned()))
}

pub(super) async fn put(call: Call) -> Result<Answer, Refusal> {
    let schemas = call.one_or_many()?;
    let version = match call.flag("newVersion")? {
        Some(true) => SchemaVersion::Next,
        Some(false) | None => SchemaVersion::Given,
    };
    let put = call
        .host()
        .definitions()
        .put_schemas(&call.namespace, schemas, version)
        .await;
    put.map_err(refused)?;
    Ok(Answer::Void)
}

pub(super) async fn list(call: Call) -> Result<Answer, Refusal> {
    let schemas = call.host().definitions().schemas(&call.namespace).await?;
    Ok(Answer::json(&schemas))
}

pub(super) async fn get_newest(call: Call) -> Result<Answer, Refusal> {
    let name = call.segment("a");
    let found = call
        .host()
        .definitions()
        .newest_schema(&call.namespace, name)
        .await?;
    match found {
        Some(schema) => Ok(Answer::json(&schema)),
        None => Err(missing(format!("No such schema: {name}"))),
    }
}

pub(super) async fn get(call: Call) -> Result<Answer, Refusal> {
    let (name, version) = (call.segment("a"), version(&call)?);
    let found = call
        .host()
        .definitions()
        .schema(&call.namespace, name, version)
        .await?;
    match found {
        Some(schema) => Ok(Answer::json(&schema)),
        None => Err(missing(format!(
            "No such schema: {name} version: {version}"
        ))),
    }
}

pub(super) async fn delete(call: Call) -> Result<Answer, Refusal> {
    let (name, version) = (call.segment("a"), version(&call)?);
    let removed = call
        .host()
        .definitions()
        .delete_schema(&call.namespace, name, version)
        .await?;
    if removed {
        Ok(Answer::Void)
    } else {
        Err(missing(format!(
            "No such schema: {name} version: {version}"
        )))
    }
}

pub(super) async fn delete_all(call: Call) -> Result<Answer, Refusal> {
    let name = call.segment("a");
    let removed = call
        .host()
        .definitions()
        .delete_schemas(&call.namespace, name)
        .await?;
    if removed {
        Ok(Answer::Void)
    } else {
        Err(missing(format!("No such schema: {name}")))
    }
}
