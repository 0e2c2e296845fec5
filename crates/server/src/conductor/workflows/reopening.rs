//! Operations that open a workflow again, and those on open ones: skip a task, reset callbacks, decide.

use longhaul_host::{DefinitionUsed, Rerun, RetriedRun};
use longhaul_protocol::conductor::{RerunWorkflowRequest, SkipTaskRequest};

use super::correlation_id;
use crate::conductor::answer::Answer;
use crate::conductor::call::{Call, refused};
use crate::gate::Refusal;

pub(in crate::conductor) async fn restart(call: Call) -> Result<Answer, Refusal> {
    let with = match call.flag("useLatestDefinitions")? {
        Some(true) => DefinitionUsed::Latest,
        Some(false) | None => DefinitionUsed::Own,
    };
    let executions = call.host().executions();
    let restarted = executions.restart(&call.namespace, call.segment("a"), with);
    restarted.await.map_err(refused)?;
    Ok(Answer::Nothing)
}

pub(in crate::conductor) async fn retry(call: Call) -> Result<Answer, Refusal> {
    let which = match call.flag("resumeSubworkflowTasks")? {
        Some(true) => RetriedRun::DeepestFailed,
        Some(false) | None => RetriedRun::Itself,
    };
    let executions = call.host().executions();
    let retried = executions.retry(&call.namespace, call.segment("a"), which);
    retried.await.map_err(refused)?;
    Ok(Answer::Nothing)
}

pub(in crate::conductor) async fn rerun(call: Call) -> Result<Answer, Refusal> {
    let request: RerunWorkflowRequest = call.body_or_default()?;
    let rerun = Rerun {
        task_id: request.re_run_from_task_id.filter(|id| !id.is_empty()),
        task_input: request.task_input,
        workflow_input: request.workflow_input,
        correlation_id: correlation_id(request.correlation_id)?,
    };
    let id = call.segment("a");
    let rerun = call.host().executions().rerun(&call.namespace, id, rerun);
    rerun.await.map_err(refused)?;
    Ok(Answer::Text(id.to_owned()))
}

pub(in crate::conductor) async fn skip_task(call: Call) -> Result<Answer, Refusal> {
    let request: SkipTaskRequest = call.body_or_default()?;
    let (id, reference) = (call.segment("a"), call.segment("b"));
    let values = (request.task_input, request.task_output);
    let executions = call.host().executions();
    let skipped = executions.skip_task(&call.namespace, id, reference, values);
    skipped.await.map_err(refused)?;
    Ok(Answer::Void)
}

pub(in crate::conductor) async fn reset_callbacks(call: Call) -> Result<Answer, Refusal> {
    let executions = call.host().executions();
    let reset = executions.reset_callbacks(&call.namespace, call.segment("a"));
    reset.await.map_err(refused)?;
    Ok(Answer::Nothing)
}

pub(in crate::conductor) async fn decide(call: Call) -> Result<Answer, Refusal> {
    let executions = call.host().executions();
    let decided = executions.decide_now(&call.namespace, call.segment("a"));
    decided.await.map_err(refused)?;
    Ok(Answer::Void)
}
