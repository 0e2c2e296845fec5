//! The requests of a worker and a starter, and the parts of the responses that the bench reads.

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use hyper::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use super::client::Connection;

/// `["world"]`, in Avro.
pub(super) const ARGUMENTS: &str = "wwHioz3/VYAiNwwCCgp3b3JsZAA=";

/// `"hello, world"`.
pub(super) const RESULT: &str = "wwHioz3/VYAiNwoYaGVsbG8sIHdvcmxk";

/// The history page size of both published SDKs.
pub(super) const PAGE_SIZE: u64 = 500;

/// The longest wait of one poll.
const POLL_SECONDS: u64 = 30;

/// The deadline of runs. SDKs set one too; it becomes an alarm in the store. It is longer than any bench.
const RUN_TIMEOUT_SECONDS: u64 = 86_400;

/// The signal that parked runs wait for.
pub(super) const SIGNAL: &str = "go";

pub(super) const SCHEDULE_ACTIVITY: &str = concat!(
    r#"{"type":"schedule_activity","activity_type":"say","arguments":{"codec":"avro","blob":"#,
    r#""wwHioz3/VYAiNwwCCgp3b3JsZAA="}}"#
);

pub(super) const OPEN_SIGNAL_WAIT: &str = r#"{"type":"open_signal_wait","signal_name":"go"}"#;

/// A timer that outlasts any bench.
pub(super) const SLEEP: &str = r#"{"type":"start_timer","delay_seconds":86000}"#;

pub(super) const RECORD_SIDE_EFFECT: &str = concat!(
    r#"{"type":"record_side_effect","result":{"codec":"avro","blob":"#,
    r#""wwHioz3/VYAiNwoYaGVsbG8sIHdvcmxk"}}"#
);

/// The identity of a worker.
#[derive(Clone, Debug)]
pub(super) struct Worker {
    pub(super) id: String,
    pub(super) queue: String,
}

/// The parts of a leased workflow task that a worker acts on.
#[derive(Debug, Deserialize)]
pub(super) struct WorkflowTask {
    pub(super) task_id: String,
    pub(super) workflow_id: String,
    workflow_task_attempt: u64,
    lease_owner: String,
    pub(super) total_history_events: u64,
    history_events: Vec<Event>,
}

#[derive(Debug, Deserialize)]
struct Event {
    event_type: String,
    payload: Box<RawValue>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ActivityTask {
    task_id: String,
    activity_attempt_id: String,
    lease_owner: String,
    arguments: Envelope,
}

#[derive(Debug, Deserialize)]
struct Envelope {
    blob: String,
}

#[derive(Deserialize)]
struct Polled<T> {
    task: Option<T>,
}

#[derive(Deserialize)]
struct Completed {
    run_status: String,
}

impl WorkflowTask {
    /// Returns the result of the activity, if it has one.
    pub(super) fn activity_result(&self) -> Result<Option<String>> {
        let Some(event) = self
            .history_events
            .iter()
            .find(|event| event.event_type == "ActivityCompleted")
        else {
            return Ok(None);
        };
        let payload: Value = serde_json::from_str(event.payload.get())
            .context("the payload of ActivityCompleted")?;
        // A payload in history is a bare blob with a codec beside it, or an envelope.
        let result = &payload["result"];
        let blob = result.as_str().or_else(|| result["blob"].as_str());
        Ok(Some(
            blob.context("ActivityCompleted without a result")?
                .to_owned(),
        ))
    }
}

impl Connection {
    async fn post(&mut self, path: &str, body: String) -> Result<Bytes> {
        self.send(Method::POST, path, body).await
    }

    pub(super) async fn register(&mut self, worker: &Worker) -> Result<()> {
        let body = format!(
            r#"{{"worker_id":"{}","task_queue":"{}","runtime":"rust","sdk_version":"longhaul-bench/{}","supported_workflow_types":["bench"],"supported_activity_types":["say"]}}"#,
            worker.id,
            worker.queue,
            env!("CARGO_PKG_VERSION"),
        );
        self.post("/api/worker/register", body).await?;
        Ok(())
    }

    pub(super) async fn deregister(&mut self, worker: &Worker) -> Result<()> {
        self.send(
            Method::DELETE,
            &format!("/api/worker/registrations/{}", worker.id),
            String::new(),
        )
        .await?;
        Ok(())
    }

    pub(super) async fn start(&mut self, workflow_id: &str, queue: &str) -> Result<()> {
        self.start_with(workflow_id, queue, "{}").await
    }

    /// Starts a workflow with search attributes as JSON.
    pub(super) async fn start_with(
        &mut self,
        workflow_id: &str,
        queue: &str,
        search_attributes: &str,
    ) -> Result<()> {
        let body = format!(
            r#"{{"workflow_type":"bench","workflow_id":"{workflow_id}","task_queue":"{queue}","search_attributes":{search_attributes},"run_timeout_seconds":{RUN_TIMEOUT_SECONDS},"input":{{"codec":"avro","blob":"{ARGUMENTS}"}}}}"#
        );
        self.post("/api/workflows", body).await?;
        Ok(())
    }

    /// Defines a search attribute of the type keyword.
    pub(super) async fn define_keyword(&mut self, name: &str) -> Result<()> {
        let body = format!(r#"{{"name":"{name}","type":"keyword"}}"#);
        self.post("/api/search-attributes", body).await?;
        Ok(())
    }

    /// Reads one page of runs with these URL parameters.
    pub(super) async fn list(&mut self, parameters: &str) -> Result<()> {
        let path = format!("/api/workflows?{parameters}");
        self.send(Method::GET, &path, String::new()).await?;
        Ok(())
    }

    pub(super) async fn signal(&mut self, workflow_id: &str) -> Result<()> {
        self.post(
            &format!("/api/workflows/{workflow_id}/signal/{SIGNAL}"),
            "{}".to_owned(),
        )
        .await?;
        Ok(())
    }

    pub(super) async fn terminate(&mut self, workflow_id: &str) -> Result<()> {
        self.post(
            &format!("/api/workflows/{workflow_id}/terminate"),
            "{}".to_owned(),
        )
        .await?;
        Ok(())
    }

    /// Checks that a workflow is completed with the right result.
    pub(super) async fn check_result(&mut self, workflow_id: &str) -> Result<()> {
        #[derive(Deserialize)]
        struct Described {
            status: String,
            output_envelope: Option<Envelope>,
        }
        let answer = self
            .send(
                Method::GET,
                &format!("/api/workflows/{workflow_id}"),
                String::new(),
            )
            .await?;
        let Described {
            status,
            output_envelope,
        } = read(&answer)?;
        ensure!(
            status == "completed",
            "{workflow_id} is {status}, expected completed"
        );
        let blob = output_envelope
            .context("a completed workflow without a result")?
            .blob;
        ensure!(
            blob == RESULT,
            "{workflow_id} returned {blob}, expected {RESULT}"
        );
        Ok(())
    }

    /// Waits until there is a workflow task.
    pub(super) async fn poll_workflow_task(
        &mut self,
        worker: &Worker,
        page_size: u64,
    ) -> Result<WorkflowTask> {
        loop {
            let paging = format!(r#","history_page_size":{page_size}"#);
            if let Some(task) = self
                .poll("/api/worker/workflow-tasks/poll", worker, &paging)
                .await?
            {
                return Ok(task);
            }
        }
    }

    /// Waits for an activity task and checks its arguments.
    pub(super) async fn poll_activity_task(&mut self, worker: &Worker) -> Result<ActivityTask> {
        loop {
            let task: Option<ActivityTask> = self
                .poll("/api/worker/activity-tasks/poll", worker, "")
                .await?;
            if let Some(task) = task {
                let blob = &task.arguments.blob;
                ensure!(
                    blob == ARGUMENTS,
                    "an activity got {blob}, expected {ARGUMENTS}"
                );
                return Ok(task);
            }
        }
    }

    async fn poll<T: DeserializeOwned>(
        &mut self,
        path: &str,
        worker: &Worker,
        more: &str,
    ) -> Result<Option<T>> {
        let body = format!(
            r#"{{"worker_id":"{}","task_queue":"{}","poll_request_id":"{}","timeout_seconds":{POLL_SECONDS}{more}}}"#,
            worker.id,
            worker.queue,
            super::measure::fresh_number(),
        );
        let answer = self.post(path, body).await?;
        Ok(read::<Polled<T>>(&answer)?.task)
    }

    /// Completes the task with these commands, a JSON list without its brackets. Returns the status of the run afterwards.
    pub(super) async fn complete_workflow_task(
        &mut self,
        task: &WorkflowTask,
        commands: &str,
    ) -> Result<String> {
        let body = format!(
            r#"{{"lease_owner":"{}","workflow_task_attempt":{},"commands":[{commands}]}}"#,
            task.lease_owner, task.workflow_task_attempt
        );
        let answer = self
            .post(
                &format!("/api/worker/workflow-tasks/{}/complete", task.task_id),
                body,
            )
            .await?;
        Ok(read::<Completed>(&answer)?.run_status)
    }

    /// Ends the workflow with the given result.
    pub(super) async fn complete_workflow(
        &mut self,
        task: &WorkflowTask,
        result: &str,
    ) -> Result<()> {
        let command = format!(
            r#"{{"type":"complete_workflow","result":{{"codec":"avro","blob":"{result}"}}}}"#
        );
        let status = self.complete_workflow_task(task, &command).await?;
        ensure!(
            status == "completed",
            "{} is {status}, expected completed",
            task.workflow_id
        );
        Ok(())
    }

    pub(super) async fn heartbeat_workflow_task(&mut self, task: &WorkflowTask) -> Result<()> {
        let body = format!(
            r#"{{"lease_owner":"{}","workflow_task_attempt":{}}}"#,
            task.lease_owner, task.workflow_task_attempt
        );
        self.post(
            &format!("/api/worker/workflow-tasks/{}/heartbeat", task.task_id),
            body,
        )
        .await?;
        Ok(())
    }

    pub(super) async fn complete_activity_task(&mut self, task: &ActivityTask) -> Result<()> {
        let body = format!(
            r#"{{"activity_attempt_id":"{}","lease_owner":"{}","result":{{"codec":"avro","blob":"{RESULT}"}}}}"#,
            task.activity_attempt_id, task.lease_owner
        );
        self.post(
            &format!("/api/worker/activity-tasks/{}/complete", task.task_id),
            body,
        )
        .await?;
        Ok(())
    }
}

fn read<T: DeserializeOwned>(answer: &[u8]) -> Result<T> {
    serde_json::from_slice(answer)
        .with_context(|| format!("unexpected response: {}", String::from_utf8_lossy(answer)))
}
