//! Targets of attacks: a worker, and workflows in every state that a route needs. Each world has its own queue, so that worlds do
//! not take each other's tasks.

use longhaul_protocol::payload::{self, Payload};
use serde_json::{Value, json};

use crate::wire::{Client, Request};

/// The capabilities that a worker of the suite registers: all that the server knows.
const CAPABILITIES: [&str; 7] = [
    "query_tasks",
    "update_validation_tasks",
    "durable_local_activities",
    "cooperative_cancellation",
    "worker_sessions",
    "message_streams",
    "sticky_execution",
];

/// Ids of live things.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) number: u64,
    pub(crate) queue: String,
    pub(crate) worker: String,
    /// An open run whose workflow task is leased.
    pub(crate) decided: Task,
    /// A leased workflow task of a run whose selection was decided, and the timer that lost.
    pub(crate) selected: Task,
    pub(crate) selection_timer: Value,
    /// An open run that sleeps.
    pub(crate) sleeping: Run,
    /// A closed run.
    pub(crate) closed: Run,
    /// A leased activity task.
    pub(crate) activity: Task,
    /// A leased activity task whose workflow has a cancellation request and waits for the activity.
    pub(crate) stopping_activity: Task,
    pub(crate) stop_request: Value,
    /// A leased workflow task with a cancellation request.
    pub(crate) cancelled: Task,
    pub(crate) cancel_request: Value,
    /// A leased workflow task with a local activity that runs, and its attempt.
    pub(crate) local: Task,
    pub(crate) local_attempt: String,
    /// A leased workflow task whose local activity was lost by an earlier attempt of the task.
    pub(crate) lost: Task,
    /// A leased workflow task whose running local activity must stop, and its attempt.
    pub(crate) stopping_local: Task,
    pub(crate) stopping_local_attempt: String,
    pub(crate) local_stop_request: Value,
    pub(crate) query: Task,
    pub(crate) validation: Task,
    pub(crate) session: String,
    /// An open definition run with a task that a worker has.
    pub(crate) execution: Execution,
}

/// A definition run.
#[derive(Clone)]
pub(crate) struct Execution {
    pub(crate) definition: String,
    pub(crate) task_type: String,
    pub(crate) id: String,
    pub(crate) task_id: String,
    /// A run with an open WAIT task `wait`, and the id of that task.
    pub(crate) waiting: [String; 2],
}

/// A run and its workflow.
#[derive(Clone)]
pub(crate) struct Run {
    pub(crate) workflow: String,
    pub(crate) run: String,
}

/// A leased task, as the poll returned it.
#[derive(Clone)]
pub(crate) struct Task(Value);

impl Task {
    pub(crate) fn id(&self) -> &str {
        self.0["task_id"].as_str().expect("a task id")
    }

    pub(crate) fn field(&self, name: &str) -> Value {
        self.0[name].clone()
    }

    /// Returns the fields that identify the lease, and these fields.
    pub(crate) fn report(&self, fields: Value) -> Value {
        let names = [
            "lease_owner",
            "workflow_task_attempt",
            "activity_attempt_id",
            "query_task_attempt",
            "update_validation_attempt",
        ];
        let known = names.iter().filter(|name| !self.0[**name].is_null());
        let mut body: serde_json::Map<String, Value> = known
            .map(|name| ((*name).to_owned(), self.0[*name].clone()))
            .collect();
        if let Value::Object(fields) = fields {
            body.extend(fields);
        }
        Value::Object(body)
    }
}

/// A JSON value as workers send values.
pub(crate) fn envelope(value: &Value) -> Value {
    let value = payload::from_json(&value.to_string()).expect("JSON");
    json!(Payload::encode(&value).expect("a value that fits"))
}

/// A local activity, as a worker describes it.
pub(crate) fn descriptor() -> Value {
    json!({"type": "record_local_activity", "activity_type": "charge", "execution_mode": "local",
        "arguments": envelope(&json!([1])), "payload_codec": "avro",
        "retry_policy": {"max_attempts": 3, "backoff_seconds": [1, 2]},
        "start_to_close_timeout": 600, "schedule_to_close_timeout": 6000, "heartbeat_timeout": 60})
}

/// An activity and a timer, of which the first to end counts.
pub(crate) fn race() -> Value {
    let member = |index: u64, kind: &str, mut command: Value| {
        let entry = json!({"parallel_group_id": "select-calls:1:2", "parallel_group_kind": "mixed",
            "parallel_group_base_sequence": 1, "parallel_group_size": 2, "parallel_group_index": index,
            "parallel_group_mode": "select", "selection_member_key": format!("m{index}"), "selection_member_index": index,
            "selection_member_base_sequence": index + 1, "selection_member_size": 1, "selection_member_kind": kind});
        if let (Value::Object(command), Value::Object(fields)) = (&mut command, entry.clone()) {
            command.extend(fields);
        }
        command["parallel_group_path"] = json!([entry]);
        command
    };
    json!([
        member(
            0,
            "activity",
            json!({"type": "schedule_activity", "activity_type": "say"})
        ),
        member(
            1,
            "timer",
            json!({"type": "start_timer", "delay_seconds": 60})
        ),
    ])
}

impl World {
    /// Creates one of everything.
    pub(crate) async fn new(client: &mut Client, number: u64) -> Self {
        let mut maker = Maker {
            client,
            number,
            queue: format!("queue-{number}"),
            worker: format!("worker-{number}"),
        };
        maker.register(&format!("worker-{number}")).await;
        let closed = maker.closed().await;
        let activity = maker.activity("activity").await;
        let (stopping_activity, stop_request) = maker.stopping_activity().await;
        let (cancelled, cancel_request) = maker.cancelled().await;
        let (local, local_attempt) = maker.local("local").await;
        let lost = maker.lost().await;
        let (stopping_local, stopping_local_attempt, local_stop_request) =
            maker.stopping_local().await;
        let sleeping = maker.sleeping("sleeping").await;
        let query = maker.query(&sleeping).await;
        let validation = maker.validation(&sleeping).await;
        let session = maker.session().await;
        let execution = maker.execution().await;
        let (selected, selection_timer) = maker.selected().await;
        let decided = maker.leased("decided").await;
        // Last, because a message wakes its workflow, and a poll would get that task instead of another.
        maker.message(&sleeping).await;
        Self {
            number,
            queue: maker.queue,
            worker: maker.worker,
            decided,
            selected,
            selection_timer,
            sleeping,
            closed,
            activity,
            stopping_activity,
            stop_request,
            cancelled,
            cancel_request,
            local,
            local_attempt,
            lost,
            stopping_local,
            stopping_local_attempt,
            local_stop_request,
            query,
            validation,
            session,
            execution,
        }
    }
}

struct Maker<'a> {
    client: &'a mut Client,
    number: u64,
    queue: String,
    worker: String,
}

impl Maker<'_> {
    async fn register(&mut self, worker: &str) {
        let body = json!({"worker_id": worker, "task_queue": self.queue, "runtime": "python",
            "supported_workflow_types": [], "supported_activity_types": [], "capabilities": CAPABILITIES,
            "build_id": format!("build-{}", self.number),
            "workflow_command_contracts": {"greet": {"signals": ["poke"], "queries": ["status"],
                "updates": ["deposit", "rename"], "update_validators": ["deposit"]}}});
        self.client.post("/api/worker/register", body).await;
    }

    async fn execution(&mut self) -> Execution {
        let definition = format!("definition-{}", self.number);
        let task_type = format!("task-{}", self.number);
        let body = json!({"name": definition, "version": 1, "tasks": [
            {"name": task_type, "taskReferenceName": "first", "type": "SIMPLE"},
            {"name": "wait", "taskReferenceName": "wait", "type": "WAIT"},
        ]});
        let register = Request::new("POST", "/api/metadata/workflow?overwrite=true").json(&body);
        self.client.send(&register).await.expect("an answer");
        let task = Request::new("PUT", "/api/metadata/taskdefs").json(&json!({"name": task_type}));
        self.client.send(&task).await.expect("an answer");
        let schema = Request::new("POST", "/api/schema").json(&json!({"name": task_type}));
        self.client.send(&schema).await.expect("an answer");
        let waits = format!("waits-{}", self.number);
        let body = json!({"name": waits, "version": 1, "tasks": [
            {"name": "wait", "taskReferenceName": "wait", "type": "WAIT"},
        ]});
        let register = Request::new("POST", "/api/metadata/workflow?overwrite=true").json(&body);
        self.client.send(&register).await.expect("an answer");
        let start = Request::new("POST", "/api/workflow").json(&json!({"name": waits}));
        let waiting = self.client.send(&start).await.expect("an answer").text();
        let run = self.client.get(&format!("/api/workflow/{waiting}")).await;
        let wait = run["tasks"][0]["taskId"].as_str().expect("a task");
        let waiting = [waiting.clone(), wait.to_owned()];
        let handler = json!({"name": definition, "event": "conductor:a:b", "actions": [
            {"action": "start_workflow", "start_workflow": {"name": "none"}}]});
        let handler = Request::new("POST", "/api/event").json(&handler);
        self.client.send(&handler).await.expect("an answer");
        let target = format!("/api/metadata/workflow/{definition}/rate-limit");
        let limit = Request::new("PUT", &target).json(&json!({"concurrentExecLimit": 1}));
        self.client.send(&limit).await.expect("an answer");
        let start = Request::new("POST", "/api/workflow").json(&json!({"name": definition}));
        let id = self.client.send(&start).await.expect("an answer").text();
        let poll = format!("/api/tasks/poll/{task_type}");
        let task = self.client.get(&poll).await;
        let task_id = task["taskId"].as_str().expect("a task").to_owned();
        Execution {
            definition,
            task_type,
            id,
            task_id,
            waiting,
        }
    }

    async fn start(&mut self, name: &str) -> Run {
        let workflow = format!("{name}-{}", self.number);
        let body =
            json!({"workflow_type": "greet", "workflow_id": workflow, "task_queue": self.queue});
        let answer = self.client.post("/api/workflows", body).await;
        let run = answer["run_id"].as_str().expect("a run id").to_owned();
        Run { workflow, run }
    }

    /// Polls a task of a kind. It must be ready.
    async fn poll(&mut self, kind: &str) -> Task {
        let body = json!({"worker_id": self.worker, "task_queue": self.queue, "timeout_seconds": 20,
            "task_kinds": ["workflow", "update_validation"]});
        let target = format!("/api/worker/{kind}-tasks/poll");
        let answer = self.client.post(&target, body).await;
        assert_eq!(answer["poll_status"], "leased", "{kind}: {answer}");
        Task(answer["task"].clone())
    }

    async fn report(&mut self, task: &Task, verb: &str, fields: Value) -> Value {
        let target = format!("/api/worker/workflow-tasks/{}/{verb}", task.id());
        self.client.post(&target, task.report(fields)).await
    }

    async fn leased(&mut self, name: &str) -> Task {
        self.start(name).await;
        self.poll("workflow").await
    }

    async fn sleeping(&mut self, name: &str) -> Run {
        let run = self.start(name).await;
        let task = self.poll("workflow").await;
        let commands = json!([{"type": "start_timer", "delay_seconds": 36_000}]);
        self.report(&task, "complete", json!({"commands": commands}))
            .await;
        run
    }

    async fn closed(&mut self) -> Run {
        let run = self.start("closed").await;
        let task = self.poll("workflow").await;
        let commands = json!([{"type": "complete_workflow", "result": envelope(&json!(7))}]);
        self.report(&task, "complete", json!({"commands": commands}))
            .await;
        run
    }

    async fn activity(&mut self, name: &str) -> Task {
        let task = self.leased(name).await;
        let commands = json!([{"type": "schedule_activity", "activity_type": "say", "arguments": envelope(&json!([1]))}]);
        self.report(&task, "complete", json!({"commands": commands}))
            .await;
        self.poll("activity").await
    }

    /// An activity ends before the timer that it races against.
    async fn selected(&mut self) -> (Task, Value) {
        let task = self.leased("selected").await;
        self.report(&task, "complete", json!({"commands": race()}))
            .await;
        let activity = self.poll("activity").await;
        let target = format!("/api/worker/activity-tasks/{}/complete", activity.id());
        let body = activity.report(json!({"result": envelope(&json!(7))}));
        self.client.post(&target, body).await;
        let task = self.poll("workflow").await;
        let events = task.field("history_events");
        let mut events = events.as_array().expect("events").iter();
        let timer = events.find(|event| event["event_type"] == "TimerScheduled");
        let timer = timer.expect("a timer")["payload"]["timer_id"].clone();
        (task, timer)
    }

    async fn ask_to_end(&mut self, name: &str) -> Value {
        let target = format!("/api/workflows/{name}-{}/request-cancellation", self.number);
        let body = json!({"reason": "maintenance", "cleanup_timeout_seconds": 600});
        let answer = self.client.post(&target, body).await;
        answer["cancellation_request"]["request_id"].clone()
    }

    async fn cancelled(&mut self) -> (Task, Value) {
        self.sleeping("cancelled").await;
        let request = self.ask_to_end("cancelled").await;
        (self.poll("workflow").await, request)
    }

    async fn stopping_activity(&mut self) -> (Task, Value) {
        let task = self.leased("stopping").await;
        let commands = json!([{"type": "schedule_activity", "activity_type": "say",
            "cancellation_policy": "wait_cancellation_completed"}]);
        self.report(&task, "complete", json!({"commands": commands}))
            .await;
        let activity = self.poll("activity").await;
        let request = self.ask_to_end("stopping").await;
        let task = self.poll("workflow").await;
        let place = json!({"request_id": request, "sequence": 1, "call_kind": "activity"});
        self.report(&task, "deliver-cancellation", place).await;
        (activity, request)
    }

    async fn local(&mut self, name: &str) -> (Task, String) {
        let task = self.leased(name).await;
        let attempt = self.prepare(&task).await;
        (task, attempt)
    }

    async fn prepare(&mut self, task: &Task) -> String {
        let body = json!({"sequence": 1, "worker_attempt_id": format!("{}-1", task.id()), "descriptor": descriptor()});
        let prepared = self.report(task, "local-activities/prepare", body).await;
        let attempt = prepared["activity_attempt_id"].as_str();
        attempt.expect("an attempt").to_owned()
    }

    /// A worker leaves while its local activity runs; another gets the task.
    async fn lost(&mut self) -> Task {
        let leaving = format!("leaving-{}", self.number);
        self.register(&leaving).await;
        let staying = std::mem::replace(&mut self.worker, leaving);
        self.local("lost").await;
        let target = format!("/api/worker/registrations/{}", self.worker);
        self.client.accepted("DELETE", &target, None).await;
        self.worker = staying;
        self.poll("workflow").await
    }

    async fn stopping_local(&mut self) -> (Task, String, Value) {
        let (task, attempt) = self.local("stopping-local").await;
        let request = self.ask_to_end("stopping-local").await;
        (task, attempt, request)
    }

    /// Appends a message, which makes its stream.
    async fn message(&mut self, run: &Run) {
        let target = format!(
            "/api/workflows/{}/message-streams/orders/messages",
            run.workflow
        );
        let body = json!({"message_id": "first", "input": [1]});
        self.client.post(&target, body).await;
    }

    /// Asks a query in the background and takes it as a worker.
    async fn query(&mut self, run: &Run) -> Task {
        let target = format!("/api/workflows/{}/query/status", run.workflow);
        self.ask_in_background(&target, json!({"input": [1]}));
        self.poll("query").await
    }

    /// Sends an update in the background and takes its validation as a worker.
    async fn validation(&mut self, run: &Run) -> Task {
        let target = format!("/api/workflows/{}/update/deposit", run.workflow);
        let body = json!({"input": [5], "wait_for": "accepted", "request_id": "deposit"});
        self.ask_in_background(&target, body);
        self.poll("workflow").await
    }

    /// Sends a request without waiting for its response.
    fn ask_in_background(&self, target: &str, body: Value) {
        let request = Request::new("POST", target).versioned().json(&body);
        let mut client = Client::new(self.client.address());
        tokio::spawn(async move {
            let _ = client.send(&request).await;
        });
    }

    async fn session(&mut self) -> String {
        let session = format!("session-{}", self.number);
        let body = json!({"worker_id": self.worker, "session_id": session, "lease_seconds": 600});
        self.client.post("/api/worker/sessions", body).await;
        session
    }
}
