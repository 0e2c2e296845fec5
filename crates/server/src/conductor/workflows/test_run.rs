//! Runs a definition in memory with given results.

use std::collections::{BTreeMap, VecDeque};

use longhaul_host::Mocks;
use longhaul_protocol::conductor::{StartWorkflowRequest, TaskMock, WorkflowTestRequest};

use super::{check_size, read_start};
use crate::conductor::answer::Answer;
use crate::conductor::call::{Call, refused};
use crate::gate::Refusal;

pub(in crate::conductor) async fn test(call: Call) -> Result<Answer, Refusal> {
    let request: WorkflowTestRequest = call.body()?;
    let start = read_start(StartWorkflowRequest {
        name: request.name,
        version: request.version,
        correlation_id: request.correlation_id,
        input: request.input,
        task_to_domain: request.task_to_domain,
        workflow_def: request.workflow_def,
        priority: request.priority,
        created_by: request.created_by,
        ..StartWorkflowRequest::default()
    })?;
    check_size(&call, &start)?;
    let mocks = read_mocks(
        request.task_ref_to_mock_output,
        request.sub_workflow_test_request,
    );
    let executions = call.host().executions();
    let run = executions.test(&call.namespace, start, mocks).await;
    Ok(Answer::json(&run.map_err(refused)?.workflow(true)))
}

fn read_mocks(
    tasks: BTreeMap<String, Vec<TaskMock>>,
    sub_workflows: BTreeMap<String, WorkflowTestRequest>,
) -> Mocks {
    let tasks = tasks.into_iter();
    let tasks = tasks.map(|(reference, mocks)| (reference, VecDeque::from(mocks)));
    let sub_workflows = sub_workflows.into_iter().map(|(reference, request)| {
        let mocks = read_mocks(
            request.task_ref_to_mock_output,
            request.sub_workflow_test_request,
        );
        (reference, mocks)
    });
    Mocks {
        tasks: tasks.collect(),
        sub_workflows: sub_workflows.collect(),
    }
}
