//! Workflows: start, list, describe, history, export, and the runs of one workflow.

use longhaul_host::api::{Definitions, Program, parse_query};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use longhaul_host::{PinnedWorkers, RunFilter, RunSummary, StatusFilter};
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::RunId;
use longhaul_protocol::payload::Payload;
use serde_json::{Map, Value, json};

use super::Call;
use super::envelope::Reply;
use crate::gate::Refusal;
use compatibility::show_compatibility;

mod command_list;
mod compatibility;
mod debug;
mod describe;
mod export;
mod history;
mod local_activity_options;
mod start;

pub(super) use command_list::commands;
pub(super) use debug::debug;
pub(super) use describe::{command, describe, principal};
pub(super) use export::export;
pub(super) use history::read as history;
pub(super) use start::{DUPLICATE_POLICIES, REFUSED_START_FIELDS, start};

/// Values of the `status` filter. The first three are buckets, the others exact statuses.
pub(super) const LIST_STATUSES: [&str; 5] =
    ["running", "completed", "failed", "cancelled", "terminated"];

/// Default and largest page size.
const PAGE_SIZE_DEFAULT: usize = 50;
const PAGE_SIZE_MAX: usize = 200;

/// One page of runs, newest first.
pub(super) async fn list(call: Call) -> Result<Reply, Refusal> {
    let asks = call.parameters.text("query").is_some();
    let definitions = if asks {
        call.host()
            .search_attributes()
            .list(&call.namespace)
            .await?
    } else {
        Arc::default()
    };
    let filter = read_filter(&call, &definitions)?;
    let page = call.host().workflows().list(&filter).await?;
    let pins = page.runs.iter().map(|run| run.compatibility.as_deref());
    let workers = call.host().workers().pinned(&call.namespace, pins).await?;
    let next = page.runs.last().filter(|_| page.has_more).map(write_token);
    let rows: Vec<Value> = page
        .runs
        .iter()
        .map(|run| list_row(run, &workers))
        .collect();
    Ok(Reply::ok(
        json!({"workflow_count": rows.len(), "workflows": rows, "next_page_token": next}),
    ))
}

fn read_filter(call: &Call, definitions: &Definitions) -> Result<RunFilter, Refusal> {
    let parameters = &call.parameters;
    let status = parameters.text("status").and_then(|word| {
        let status = read_status(word);
        if status.is_none() {
            parameters.refuse(
                "status",
                &format!("must be one of {}", LIST_STATUSES.join(", ")),
            );
        }
        status
    });
    let program = match parameters.text("program") {
        None | Some("code") => Some(Program::Code),
        Some("definition") => Some(Program::Definition),
        Some("all") => None,
        Some(_) => {
            parameters.refuse("program", "must be one of code, definition, all");
            None
        }
    };
    let asked = parameters
        .text("query")
        .filter(|text| !text.trim().is_empty());
    let condition = asked.and_then(|text| {
        let parsed = parse_query(text, definitions);
        parsed
            .map_err(|error| parameters.refuse("query", &error.to_string()))
            .ok()
    });
    let filter = RunFilter {
        namespace: call.namespace.clone(),
        program,
        workflow_type: parameters.text("workflow_type").map(str::to_owned),
        status,
        condition,
        after: parameters.page_token(read_token),
        limit: parameters.page_size(PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX),
    };
    parameters.check()?;
    Ok(filter)
}

fn read_status(word: &str) -> Option<StatusFilter> {
    Some(match word {
        "running" => StatusFilter::Running,
        "completed" => StatusFilter::Completed,
        "failed" => StatusFilter::Failed,
        "cancelled" => StatusFilter::Cancelled,
        "terminated" => StatusFilter::Terminated,
        _ => return None,
    })
}

/// Returns a page token: the last run's place in the order. Runs that start meanwhile do not shift the next page.
fn write_token(run: &RunSummary) -> String {
    URL_SAFE_NO_PAD.encode(format!("{}.{}", run.started_at.as_micros(), run.run_id))
}

fn read_token(token: &str) -> Option<(Timestamp, RunId)> {
    let place = String::from_utf8(URL_SAFE_NO_PAD.decode(token).ok()?).ok()?;
    let (micros, run_id) = place.split_once('.')?;
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let is_id = !run_id.is_empty() && run_id.bytes().all(is_allowed);
    is_id.then_some((
        Timestamp::from_micros(micros.parse().ok()?),
        RunId::from(run_id),
    ))
}

fn list_row(run: &RunSummary, workers: &PinnedWorkers) -> Value {
    let mut row = shared_row(run, workers);
    row.insert("search_attributes".to_owned(), json!(run.search_attributes));
    Value::Object(row)
}

/// Renders the fields that lists of workflows and of runs share.
fn shared_row(run: &RunSummary, workers: &PinnedWorkers) -> Map<String, Value> {
    let mut row = Map::new();
    let mut set = |name: &str, value: Value| row.insert(name.to_owned(), value);
    set("workflow_id", json!(run.workflow_id));
    set("run_id", json!(run.run_id));
    // Clients of Durable Workflow know the members of runs of code.
    if run.program == Program::Definition {
        set("program", json!(run.program.as_str()));
    }
    set("workflow_type", json!(run.workflow_type));
    set("business_key", json!(run.business_key));
    set("status", json!(run.status.as_str()));
    set("status_bucket", json!(run.status.bucket()));
    set("is_terminal", json!(run.status.is_terminal()));
    set("task_queue", json!(run.task_queue));
    set("started_at", json!(run.started_at));
    set("closed_at", json!(run.closed_at));
    show_compatibility(
        &mut row,
        workers,
        run.compatibility.as_deref(),
        &run.task_queue,
    );
    row
}

/// The runs of one workflow, oldest first.
pub(super) async fn runs(call: Call) -> Result<Reply, Refusal> {
    let workflow_id = call.workflow_id();
    let runs = call
        .host()
        .workflows()
        .runs(&call.namespace, &workflow_id)
        .await?;
    let pins = runs.iter().map(|run| run.compatibility.as_deref());
    let workers = call.host().workers().pinned(&call.namespace, pins).await?;
    let current = runs.iter().map(|run| run.run_number).max();
    let rows: Vec<Value> = runs
        .iter()
        .map(|run| {
            let mut row = shared_row(run, &workers);
            row.insert("run_number".to_owned(), json!(run.run_number));
            row.insert(
                "is_current_run".to_owned(),
                json!(Some(run.run_number) == current),
            );
            row.insert("memo".to_owned(), memo_shown(run.memo.as_ref()));
            Value::Object(row)
        })
        .collect();
    Ok(Reply::ok(
        json!({"workflow_id": workflow_id, "run_count": rows.len(), "runs": rows}),
    ))
}

/// Renders a memo for people: an object, also if there is none.
pub(super) fn memo_shown(memo: Option<&Payload>) -> Value {
    let mut shown = memo
        .and_then(|memo| memo.display().ok())
        .unwrap_or_else(|| json!({}));
    show_whole_numbers(&mut shown);
    shown
}

/// Removes the fraction of whole numbers. Published clients expect that in a memo, unlike in arguments and results. The types are in
/// the `MemoUpserted` event.
fn show_whole_numbers(value: &mut Value) {
    /// Larger doubles have no fraction, and are clearer with an exponent.
    const WHOLE_MAX: f64 = 1e15;
    match value {
        Value::Number(number) if number.is_f64() => {
            let whole = number
                .as_f64()
                .filter(|double| double.fract() == 0.0 && double.abs() < WHOLE_MAX)
                .filter(|double| *double != 0.0 || double.is_sign_positive());
            if let Some(whole) = whole {
                #[expect(clippy::cast_possible_truncation, reason = "it is whole and small")]
                let whole = whole as i64;
                *value = json!(whole);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(show_whole_numbers),
        Value::Object(map) => map.values_mut().for_each(show_whole_numbers),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_of_a_memo_have_no_fraction() {
        let mut shown = json!({"a": 7.0, "b": [1.5, -2.0, 7], "c": -0.0, "d": 1e25});
        show_whole_numbers(&mut shown);
        assert_eq!(
            shown,
            json!({"a": 7, "b": [1.5, -2, 7], "c": -0.0, "d": 1e25})
        );
    }

    #[test]
    fn tokens_name_a_place_and_nothing_else_is_one() {
        let place = (
            Timestamp::from_micros(1_791_860_655_865_222),
            RunId::from("01k7f00000000000000000000a"),
        );
        let token = URL_SAFE_NO_PAD.encode(format!("{}.{}", place.0.as_micros(), place.1));
        assert_eq!(read_token(&token), Some(place));
        for bad in [
            "",
            "MTI=",
            "!!",
            "MTI",
            &URL_SAFE_NO_PAD.encode("x.y"),
            &URL_SAFE_NO_PAD.encode("1."),
            &URL_SAFE_NO_PAD.encode("1.a b"),
        ] {
            assert_eq!(read_token(bad), None, "{bad}");
        }
    }
}
