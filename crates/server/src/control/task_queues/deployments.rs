//! Deployments: the builds of all queues by name, `namespace/task_queue@build_id` or `@unversioned`. They are the rows of
//! `build_ids`, one by one; here a promotion can also be rolled back.

use http::StatusCode;
use longhaul_host::api::RolloutChange;
use longhaul_host::{Cohort, Host};
use longhaul_protocol::Reason;
use longhaul_protocol::id::{Namespace, TaskQueue};
use serde_json::{Value, json};

use super::build_ids;
use crate::control::envelope::Reply;
use crate::control::workers::{read_name, write_name};
use crate::control::{Call, no_route};
use crate::gate::Refusal;

/// Default and largest page size.
const PAGE_SIZE_MAX: usize = 500;

/// The name of the workers without a build id.
const UNVERSIONED: &str = "unversioned";

pub(in crate::control) async fn list(call: Call) -> Result<Reply, Refusal> {
    let after = call.parameters.page_token(read_name).map(TaskQueue::from);
    let limit = call.parameters.page_size(PAGE_SIZE_MAX, PAGE_SIZE_MAX);
    call.parameters.check()?;
    let mut queues = call
        .host()
        .rollouts()
        .cohort_queues(&call.namespace)
        .await?;
    queues.retain(|queue| after.as_ref().is_none_or(|after| queue > after));
    let mut queues = queues.into_iter().peekable();
    let mut rows = Vec::new();
    let mut last = None;
    // A page ends after a whole queue, so it may have a few more rows than requested.
    while rows.len() < limit
        && let Some(queue) = queues.next()
    {
        let cohorts = call
            .host()
            .rollouts()
            .cohorts(&call.namespace, &queue)
            .await?;
        rows.extend(cohorts.iter().map(shown));
        last = Some(queue);
    }
    let next = last.filter(|_| queues.peek().is_some());
    Ok(Reply::ok(json!({
        "namespace": call.namespace,
        "deployments": rows,
        "next_page_token": next.map(|queue| write_name(queue.as_str())),
    })))
}

pub(in crate::control) async fn describe(call: Call) -> Result<Reply, Refusal> {
    let name = Name::read(&call, call.segment("name"))?;
    let cohort = name.find(call.host(), &call.namespace).await?;
    Ok(Reply::ok(shown(&cohort)))
}

/// `POST /deployments/{name}/promote|drain|resume|rollback`. Names contain slashes, so the last segment is the action.
pub(in crate::control) async fn change(call: Call) -> Result<Reply, Refusal> {
    let path = call.segment("name");
    let (name, action) = path.rsplit_once('/').ok_or_else(no_route)?;
    let change = match action {
        "promote" => RolloutChange::Promote,
        "drain" => RolloutChange::Drain,
        "resume" => RolloutChange::Resume,
        "rollback" => RolloutChange::Rollback,
        _ => return Err(no_route()),
    };
    let name = Name::read(&call, name)?;
    name.find(call.host(), &call.namespace).await?;
    let changed = call
        .host()
        .rollouts()
        .change(&call.namespace, &name.task_queue, name.build_id, change)
        .await?;
    let cohort = changed.map_err(|blocked| build_ids::refused(&blocked))?;
    Ok(Reply::ok(shown(&cohort)))
}

struct Name {
    task_queue: TaskQueue,
    build_id: Option<String>,
}

impl Name {
    /// Reads a name. A queue's name may contain `@`; the build id follows the last one.
    fn read(call: &Call, text: &str) -> Result<Self, Refusal> {
        let parts = text
            .split_once('/')
            .and_then(|(namespace, rest)| Some((namespace, rest.rsplit_once('@')?)))
            .filter(|(namespace, (queue, build))| {
                !namespace.is_empty() && !queue.is_empty() && !build.is_empty()
            });
        let Some((namespace, (queue, build))) = parts else {
            return Err(failed(
                StatusCode::BAD_REQUEST,
                Reason::MalformedDeploymentName,
                "A deployment is named namespace/task_queue@build_id, or @unversioned.",
            ));
        };
        if namespace != call.namespace.as_str() {
            return Err(failed(
                StatusCode::BAD_REQUEST,
                Reason::NamespaceMismatch,
                "The deployment belongs to a different namespace than the request.",
            ));
        }
        Ok(Self {
            task_queue: queue.into(),
            build_id: (build != UNVERSIONED).then(|| build.to_owned()),
        })
    }

    async fn find(&self, host: &Host, namespace: &Namespace) -> Result<Cohort, Refusal> {
        let cohorts = host.rollouts().cohorts(namespace, &self.task_queue).await?;
        let found = cohorts
            .into_iter()
            .find(|cohort| cohort.rollout.build_id == self.build_id);
        found.ok_or_else(|| {
            failed(
                StatusCode::NOT_FOUND,
                Reason::DeploymentNotFound,
                "No worker of this build was ever seen on the queue.",
            )
        })
    }
}

/// These routes also name the reason as `error`.
fn failed(status: StatusCode, reason: Reason, message: &str) -> Refusal {
    Refusal::new(status, reason, message).with("error", reason.as_str())
}

pub(in crate::control) fn shown(cohort: &Cohort) -> Value {
    let rollout = &cohort.rollout;
    let build = rollout.build_id.as_deref().unwrap_or(UNVERSIONED);
    let types: std::collections::BTreeSet<&String> = cohort
        .workers
        .iter()
        .flat_map(|worker| &worker.row.supported_workflow_types)
        .collect();
    // Workers of one build with different fingerprints have no common one.
    let mut fingerprints: Vec<&serde_json::Map<String, Value>> = cohort
        .workers
        .iter()
        .map(|worker| &worker.row.workflow_definition_fingerprints)
        .filter(|fingerprints| !fingerprints.is_empty())
        .collect();
    fingerprints.dedup();
    let recorded = match fingerprints.as_slice() {
        [one] => json!(one),
        _ => Value::Null,
    };
    json!({
        "name": format!("{}/{}@{build}", rollout.namespace, rollout.task_queue),
        "namespace": rollout.namespace,
        "task_queue": rollout.task_queue,
        "build_id": rollout.build_id,
        "state": cohort.state,
        "accepts_new_work": !rollout.is_draining(),
        "compatibility_policy": "pinned",
        "required_compatibility": rollout.build_id,
        "recorded_fingerprint": recorded,
        "workflow_types": types,
        "promoted_at": rollout.promoted_at,
        "drained_at": rollout.drained_at,
        "rolled_back_at": rollout.rolled_back_at,
    })
}
