//! Signals, and changes of variables and tasks of a run from outside.

use std::time::Duration;

use http::StatusCode;
use longhaul_host::{Signal, StateUpdate, WaitUntil};
use longhaul_protocol::Reason;
use longhaul_protocol::conductor::{ReturnStrategy, WorkflowStateUpdate};

use super::execute::{WAIT_SECONDS_MAX, read_strategy, read_wait, render};
use crate::conductor::answer::Answer;
use crate::conductor::call::{Call, bad_request, refused};
use crate::conductor::tasks::read_status_report;
use crate::gate::Refusal;

/// The wait of a signal that names none, in milliseconds.
const WAIT_MS_DEFAULT: i64 = 5000;

fn read_signal(call: &Call) -> Result<Signal, Refusal> {
    let status = call.segment("b").parse();
    Ok(Signal {
        status: status.map_err(|error| bad_request(format!("status: {error}")))?,
        output: call.object()?,
    })
}

/// A signal that nothing waits for changes nothing.
pub(in crate::conductor) async fn signal(call: Call) -> Result<Answer, Refusal> {
    let signal = read_signal(&call)?;
    let executions = call.host().executions();
    let signalled = executions.signal(&call.namespace, call.segment("a"), &signal);
    signalled.await.map_err(refused)?;
    Ok(Answer::Void)
}

pub(in crate::conductor) async fn signal_and_wait(call: Call) -> Result<Answer, Refusal> {
    let signal = read_signal(&call)?;
    let strategy = read_strategy(&call)?;
    let wait = call.number("timeoutMillis")?;
    let wait = wait.filter(|wait| *wait > 0).unwrap_or(WAIT_MS_DEFAULT);
    let until = WaitUntil {
        references: Vec::new(),
        timeout: Duration::from_millis(wait.min(WAIT_SECONDS_MAX * 1000).unsigned_abs()),
    };
    let executions = call.host().executions();
    let id = call.segment("a");
    let signalled = executions.signal(&call.namespace, id, &signal).await;
    if !signalled.map_err(refused)? {
        return Err(Refusal::new(
            StatusCode::NOT_FOUND,
            Reason::TaskNotFound,
            format!("Found no blocked task in workflow {id} to signal"),
        ));
    }
    wait_and_render(&call, &until, strategy).await
}

pub(in crate::conductor) async fn merge_variables(call: Call) -> Result<Answer, Refusal> {
    let variables = call.object()?;
    let executions = call.host().executions();
    let merged = executions.merge_variables(&call.namespace, call.segment("a"), variables);
    Ok(Answer::json(&merged.await.map_err(refused)?.workflow(true)))
}

pub(in crate::conductor) async fn update_state(call: Call) -> Result<Answer, Refusal> {
    let update: WorkflowStateUpdate = call.body()?;
    let until = read_wait(&call)?;
    let reference = update.task_reference_name.filter(|name| !name.is_empty());
    let task = match (reference, update.task_result) {
        (Some(reference), Some(result)) => Some((reference, read_status_report(&result)?)),
        (None, None) => None,
        (Some(_), None) => return Err(bad_request("taskResult: must not be absent".to_owned())),
        (None, Some(_)) => {
            let message = "taskReferenceName: must not be empty beside a taskResult";
            return Err(bad_request(message.to_owned()));
        }
    };
    let update = StateUpdate {
        variables: update.variables,
        task,
    };
    let executions = call.host().executions();
    let updated = executions.update_state(&call.namespace, call.segment("a"), update);
    updated.await.map_err(refused)?;
    wait_and_render(&call, &until, ReturnStrategy::TargetWorkflow).await
}

async fn wait_and_render(
    call: &Call,
    until: &WaitUntil,
    strategy: ReturnStrategy,
) -> Result<Answer, Refusal> {
    let id = call.segment("a");
    let executions = call.host().executions();
    let waited = executions.wait(&call.namespace, id, until).await;
    let request_id = call.text("requestId").unwrap_or(id).to_owned();
    Ok(render(&waited.map_err(refused)?, strategy, request_id))
}
