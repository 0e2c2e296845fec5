//! Lists of definition runs: search, open runs of a definition, runs by correlation id.

use std::collections::BTreeMap;

use longhaul_host::{Correlated, Instances, SearchExecutions, SearchTasks, Searched};
use longhaul_protocol::conductor::{CorrelatedRequest, SearchResult, Workflow};

use super::answer::Answer;
use super::call::{Call, bad_request, refused};
use super::metadata::version;
use crate::gate::Refusal;

/// The size of a page that names none.
const SIZE_DEFAULT: i64 = 100;

/// The version of a definition whose runs are listed, if none is named.
const VERSION_DEFAULT: i32 = 1;

fn read(call: &Call) -> Result<SearchExecutions, Refusal> {
    let text = |name: &str| call.text(name).map(str::to_owned);
    Ok(SearchExecutions {
        start: call.number("start")?.unwrap_or(0),
        size: call.number("size")?.unwrap_or(SIZE_DEFAULT),
        sort: text("sort"),
        free_text: text("freeText"),
        query: text("query"),
        classifiers: call
            .texts("classifier")
            .into_iter()
            .map(str::to_owned)
            .collect(),
        top_level_only: call.flag("topLevelOnly")?.unwrap_or(false),
    })
}

fn shown<T>(searched: Searched<T>) -> SearchResult<T> {
    SearchResult {
        total_hits: i64::try_from(searched.total).unwrap_or(i64::MAX),
        results: searched.results,
    }
}

pub(super) async fn search(call: Call) -> Result<Answer, Refusal> {
    let search = read(&call)?;
    let executions = call.host().executions();
    let found = executions.search(&call.namespace, &search).await;
    Ok(Answer::json(&shown(found.map_err(refused)?)))
}

/// As [`search`], with whole workflows instead of summaries.
pub(super) async fn search_workflows(call: Call) -> Result<Answer, Refusal> {
    let search = read(&call)?;
    let executions = call.host().executions();
    let found = executions.search_workflows(&call.namespace, &search).await;
    Ok(Answer::json(&shown(found.map_err(refused)?)))
}

/// Returns ids: of the open runs of a definition, or of all runs that began between two times.
pub(super) async fn running(call: Call) -> Result<Answer, Refusal> {
    let version = version(call.number("version")?)?.unwrap_or(VERSION_DEFAULT);
    let wanted = match (call.number("startTime")?, call.number("endTime")?) {
        (Some(from), Some(to)) => Instances::BegunBetween(from, to),
        _ => Instances::Open,
    };
    let executions = call.host().executions();
    let found = executions
        .instances(&call.namespace, call.segment("a"), version, wanted)
        .await;
    Ok(Answer::json(&found.map_err(refused)?))
}

fn read_tasks(call: &Call) -> Result<SearchTasks, Refusal> {
    let text = |name: &str| call.text(name).map(str::to_owned);
    Ok(SearchTasks {
        start: call.number("start")?.unwrap_or(0),
        size: call.number("size")?.unwrap_or(SIZE_DEFAULT),
        sort: text("sort"),
        free_text: text("freeText"),
        query: text("query"),
    })
}

/// Returns a page of summaries of tasks.
pub(super) async fn tasks(call: Call) -> Result<Answer, Refusal> {
    let search = read_tasks(&call)?;
    let tasks = call.host().execution_tasks();
    let found = tasks.search_summaries(&call.namespace, &search).await;
    Ok(Answer::json(&shown(found.map_err(refused)?)))
}

/// As [`tasks`], with whole tasks instead of summaries.
pub(super) async fn whole_tasks(call: Call) -> Result<Answer, Refusal> {
    let search = read_tasks(&call)?;
    let tasks = call.host().execution_tasks();
    let found = tasks.search(&call.namespace, &search).await;
    Ok(Answer::json(&shown(found.map_err(refused)?)))
}

/// Returns a page of summaries of the runs that have tasks like this.
pub(super) async fn by_tasks(call: Call) -> Result<Answer, Refusal> {
    let search = read_tasks(&call)?;
    let executions = call.host().executions();
    let found = executions.search_by_tasks(&call.namespace, &search).await;
    Ok(Answer::json(&shown(found.map_err(refused)?)))
}

/// As [`by_tasks`], with whole workflows instead of summaries.
pub(super) async fn workflows_by_tasks(call: Call) -> Result<Answer, Refusal> {
    let search = read_tasks(&call)?;
    let executions = call.host().executions();
    let found = executions
        .search_workflows_by_tasks(&call.namespace, &search)
        .await;
    Ok(Answer::json(&shown(found.map_err(refused)?)))
}

/// Returns the tasks of a type that have not ended, oldest first.
pub(super) async fn pending_tasks(call: Call) -> Result<Answer, Refusal> {
    let start = call.number("start")?.unwrap_or(0);
    let count = call.number("count")?.unwrap_or(SIZE_DEFAULT);
    let tasks = call.host().execution_tasks();
    let found = tasks.pending(&call.namespace, call.segment("a"), start, count);
    Ok(Answer::json(&found.await.map_err(refused)?))
}

/// Returns how many tasks of a type wait in their queues.
pub(super) async fn requeue(call: Call) -> Result<Answer, Refusal> {
    let tasks = call.host().execution_tasks();
    let waiting = tasks.waiting(&call.namespace, call.segment("a")).await;
    Ok(Answer::Text(waiting.map_err(refused)?.to_string()))
}

/// Refuses to name a place for large values: all of them are in the store of the server.
pub(super) async fn no_external_storage(_call: Call) -> Result<Answer, Refusal> {
    Err(bad_request(
        "External payload storage is not configured. Send inputs and outputs in the request."
            .to_owned(),
    ))
}

async fn correlated(
    call: &Call,
    names: &[String],
    ids: &[String],
) -> Result<BTreeMap<String, Vec<Workflow>>, Refusal> {
    let wanted = Correlated {
        names,
        ids,
        include_closed: call.flag("includeClosed")?.unwrap_or(false),
        include_tasks: call.flag("includeTasks")?.unwrap_or(false),
    };
    let executions = call.host().executions();
    let found = executions.correlated(&call.namespace, wanted).await;
    found.map_err(refused)
}

/// Returns the runs of one name with one correlation id.
pub(super) async fn by_correlation_id(call: Call) -> Result<Answer, Refusal> {
    let (name, id) = (call.segment("a").to_owned(), call.segment("b").to_owned());
    let found = correlated(&call, &[name], &[id]).await?;
    Ok(Answer::json(
        &found.into_values().next().unwrap_or_default(),
    ))
}

/// Returns the runs of one name with each of several correlation ids.
pub(super) async fn by_correlation_ids(call: Call) -> Result<Answer, Refusal> {
    let ids: Vec<String> = call.body()?;
    let name = call.segment("a").to_owned();
    Ok(Answer::json(&correlated(&call, &[name], &ids).await?))
}

/// Returns the runs of several names with each of several correlation ids.
pub(super) async fn by_correlation_ids_and_names(call: Call) -> Result<Answer, Refusal> {
    let request: CorrelatedRequest = call.body()?;
    let found = correlated(&call, &request.workflow_names, &request.correlation_ids).await?;
    Ok(Answer::json(&found))
}
