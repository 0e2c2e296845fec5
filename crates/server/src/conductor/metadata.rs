//! Registered definitions of tasks and workflows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use http::StatusCode;
use longhaul_host::Existing;
use longhaul_protocol::Reason;
use longhaul_protocol::conductor::{BulkResponse, TaskDef, WorkflowDef, WorkflowDefSummary};

use super::answer::Answer;
use super::call::{Call, bad_request, invalid_body, refused};
use crate::gate::Refusal;

fn missing(message: String) -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, Reason::DefinitionNotFound, message)
}

/// Refuses a name or version that is not registered.
pub(super) fn no_such_workflow(name: &str, version: Option<i32>) -> Refusal {
    missing(format!(
        "No such workflow found by name: {name}, version: {}",
        version.map_or_else(|| "null".to_owned(), |version| version.to_string())
    ))
}

pub(super) async fn list_tasks(call: Call) -> Result<Answer, Refusal> {
    let tasks = call.host().definitions().tasks(&call.namespace).await?;
    Ok(Answer::json(&tasks))
}

pub(super) async fn create_tasks(call: Call) -> Result<Answer, Refusal> {
    let definitions: Vec<TaskDef> = call.body()?;
    let put = call
        .host()
        .definitions()
        .put_tasks(&call.namespace, definitions)
        .await;
    put.map_err(refused)?;
    Ok(Answer::Void)
}

pub(super) async fn put_task(call: Call) -> Result<Answer, Refusal> {
    let mut definition: TaskDef = call.body()?;
    if !call.segment("a").is_empty() {
        call.segment("a").clone_into(&mut definition.name);
    }
    let put = call
        .host()
        .definitions()
        .put_tasks(&call.namespace, vec![definition])
        .await;
    put.map_err(refused)?;
    Ok(Answer::Void)
}

pub(super) async fn get_task(call: Call) -> Result<Answer, Refusal> {
    let name = call.segment("a");
    let found = call
        .host()
        .definitions()
        .task(&call.namespace, name)
        .await?;
    match found {
        Some(definition) => Ok(Answer::json(&definition)),
        None => Err(missing(format!("No such taskType found by name: {name}"))),
    }
}

pub(super) async fn delete_task(call: Call) -> Result<Answer, Refusal> {
    let name = call.segment("a");
    let removed = call
        .host()
        .definitions()
        .delete_task(&call.namespace, name)
        .await?;
    if removed {
        Ok(Answer::Void)
    } else {
        Err(missing(format!("No such task definition: {name}")))
    }
}

pub(super) async fn list_workflows(call: Call) -> Result<Answer, Refusal> {
    let workflows = call.host().definitions().workflows(&call.namespace).await?;
    Ok(Answer::json(&workflows))
}

pub(super) async fn list_names(call: Call) -> Result<Answer, Refusal> {
    let workflows = call.host().definitions().workflows(&call.namespace).await?;
    let names: BTreeSet<&str> = workflows.iter().map(|one| one.name.as_str()).collect();
    Ok(Answer::json(&names))
}

pub(super) async fn list_names_and_versions(call: Call) -> Result<Answer, Refusal> {
    let workflows = call.host().definitions().workflows(&call.namespace).await?;
    let mut by_name: BTreeMap<&str, Vec<WorkflowDefSummary>> = BTreeMap::new();
    for definition in &workflows {
        let versions = by_name.entry(&definition.name).or_default();
        versions.push(summary(definition));
    }
    Ok(Answer::json(&by_name))
}

pub(super) async fn list_latest_versions(call: Call) -> Result<Answer, Refusal> {
    let workflows = call.host().definitions().workflows(&call.namespace).await?;
    // The versions of a name are in ascending order.
    let latest: BTreeMap<&str, &Arc<WorkflowDef>> = workflows
        .iter()
        .map(|definition| (definition.name.as_str(), definition))
        .collect();
    Ok(Answer::json(&latest.into_values().collect::<Vec<_>>()))
}

pub(super) async fn list_versions(call: Call) -> Result<Answer, Refusal> {
    let name = call.segment("a");
    let workflows = call.host().definitions().workflows(&call.namespace).await?;
    let versions: Vec<WorkflowDefSummary> = workflows
        .iter()
        .filter(|definition| definition.name == name)
        .map(|definition| summary(definition))
        .collect();
    if versions.is_empty() {
        return Err(missing(format!("No such workflow found by name: {name}")));
    }
    Ok(Answer::json(&versions))
}

fn summary(definition: &WorkflowDef) -> WorkflowDefSummary {
    WorkflowDefSummary {
        name: definition.name.clone(),
        version: definition.version,
        create_time: Some(definition.create_time),
        update_time: Some(definition.update_time).filter(|time| *time > 0),
    }
}

pub(super) async fn create_workflow(call: Call) -> Result<Answer, Refusal> {
    let definition: WorkflowDef = call.body()?;
    let existing = match call.flag("overwrite")? {
        Some(true) => Existing::Replace,
        Some(false) | None => Existing::Refuse,
    };
    let definitions = call.host().definitions();
    let put = definitions
        .put_workflows(&call.namespace, vec![definition], existing)
        .await;
    put.map_err(refused)?;
    Ok(Answer::Void)
}

pub(super) async fn put_workflows(call: Call) -> Result<Answer, Refusal> {
    let definitions: Vec<WorkflowDef> = call.body()?;
    if definitions.is_empty() {
        return Err(invalid_body("the list of workflow definitions is empty"));
    }
    let names = definitions
        .iter()
        .map(|definition| definition.name.clone())
        .collect();
    let put = call
        .host()
        .definitions()
        .put_workflows(&call.namespace, definitions, Existing::Replace)
        .await;
    put.map_err(refused)?;
    Ok(Answer::json(&BulkResponse {
        bulk_successful_results: names,
        ..BulkResponse::default()
    }))
}

pub(super) async fn validate(call: Call) -> Result<Answer, Refusal> {
    let definition: WorkflowDef = call.body()?;
    let checked = call
        .host()
        .definitions()
        .check(&call.namespace, &[definition])
        .await;
    checked.map_err(refused)?;
    Ok(Answer::Void)
}

pub(super) async fn get_workflow(call: Call) -> Result<Answer, Refusal> {
    let name = call.segment("a");
    let version = version(call.number("version")?)?;
    let found = call
        .host()
        .definitions()
        .workflow(&call.namespace, name, version)
        .await?;
    match found {
        Some(definition) => Ok(Answer::json(&definition)),
        None => Err(no_such_workflow(name, version)),
    }
}

pub(super) async fn delete_workflow(call: Call) -> Result<Answer, Refusal> {
    let name = call.segment("a");
    let version: i32 = call
        .segment("b")
        .parse()
        .map_err(|_| bad_request("The version in the path must be a whole number.".to_owned()))?;
    let removed = call
        .host()
        .definitions()
        .delete_workflow(&call.namespace, name, version)
        .await?;
    if removed {
        Ok(Answer::Void)
    } else {
        Err(missing(format!(
            "No such workflow definition: {name} version: {version}"
        )))
    }
}

/// Returns a version. 0 is the newest, as absent is.
pub(super) fn version(number: Option<i64>) -> Result<Option<i32>, Refusal> {
    number
        .filter(|number| *number != 0)
        .map(|number| {
            i32::try_from(number).map_err(|_| bad_request(format!("there is no version {number}")))
        })
        .transpose()
}
