//! A valid request for every route, made for one [`World`]. Attacks change one thing about them.

use serde_json::{Value, json};

use crate::server::Server;
use crate::wire::{Answer, Request};
use crate::world::{Task, World, descriptor, envelope, race};

/// A request that the server accepts.
#[derive(Clone)]
pub(crate) struct Sample {
    pub(crate) method: &'static str,
    /// The route's path as the server lists it.
    pub(crate) route: &'static str,
    pub(crate) target: String,
    pub(crate) body: Option<Value>,
}

impl Sample {
    /// Whether the server may delay its response until something happens.
    pub(crate) fn may_wait(&self) -> bool {
        self.route.ends_with("/poll")
            || self.route.contains("/query/")
            || self.route.contains("/update/")
            || self.route.contains("/tasks/poll/")
            || self.route.contains("/workflow/execute/")
    }

    pub(crate) fn request(&self) -> Request {
        let request = Request::new(self.method, &self.target).versioned();
        match &self.body {
            Some(body) => request.json(body),
            None => request,
        }
    }
}

/// One sample or more for every route.
pub(crate) fn samples(world: &World) -> Vec<Sample> {
    let mut list = Samples::default();
    system(&mut list, world);
    workflows(&mut list, world);
    operators(&mut list, world);
    workers(&mut list, world);
    workflow_tasks(&mut list, world);
    local_activities(&mut list, world);
    activity_tasks(&mut list, world);
    questions(&mut list, world);
    sessions(&mut list, world);
    definitions(&mut list, world);
    schemas(&mut list, world);
    events(&mut list, world);
    executions(&mut list, world);
    execution_lists(&mut list, world);
    list.0
}

#[derive(Default)]
struct Samples(Vec<Sample>);

impl Samples {
    fn get(&mut self, route: &'static str, values: &[&str]) {
        self.add("GET", route, values, "", None);
    }

    fn find(&mut self, route: &'static str, values: &[&str], query: &str) {
        self.add("GET", route, values, query, None);
    }

    fn post(&mut self, route: &'static str, values: &[&str], body: Value) {
        self.add("POST", route, values, "", Some(body));
    }

    /// `values` take the places of the route's parameters, in order.
    fn add(
        &mut self,
        method: &'static str,
        route: &'static str,
        values: &[&str],
        query: &str,
        body: Option<Value>,
    ) {
        let mut values = values.iter();
        let segments: Vec<&str> = route
            .split('/')
            .map(|segment| {
                if segment.starts_with('{') {
                    values.next().expect("a value for every parameter")
                } else {
                    segment
                }
            })
            .collect();
        self.0.push(Sample {
            method,
            route,
            target: format!("{}{query}", segments.join("/")),
            body,
        });
    }
}

fn system(list: &mut Samples, world: &World) {
    let name = format!("space-{}", world.number);
    let attribute = format!("Attribute{}", world.number);
    list.get("/health", &[]);
    list.get("/livez", &[]);
    list.get("/readyz", &[]);
    list.get("/metrics", &[]);
    list.get("/api/health", &[]);
    list.get("/api/ready", &[]);
    list.get("/api/cluster/info", &[]);
    list.get("/api/system/operator-metrics", &[]);
    list.get("/api/system/servers", &[]);
    list.get("/api/namespaces", &[]);
    list.get("/api/namespaces/{name}", &["default"]);
    list.post(
        "/api/namespaces",
        &[],
        json!({"name": name, "description": "a space", "retention_days": 30}),
    );
    let update = json!({"description": "the first", "retention_days": 30});
    list.add(
        "PUT",
        "/api/namespaces/{name}",
        &["default"],
        "",
        Some(update),
    );
    list.get("/api/search-attributes", &[]);
    list.post(
        "/api/search-attributes",
        &[],
        json!({"name": attribute, "type": "int"}),
    );
    let defined = format!("Kept{}", world.number);
    list.post(
        "/api/search-attributes",
        &[],
        json!({"name": defined, "type": "keyword"}),
    );
    list.add(
        "DELETE",
        "/api/search-attributes/{name}",
        &[&defined],
        "",
        None,
    );
}

fn workflows(list: &mut Samples, world: &World) {
    let new = format!("new-{}", world.number);
    list.post("/api/workflows", &[], json!({"workflow_type": "greet", "workflow_id": new, "task_queue": world.queue,
        "input": [1, "two"], "memo": {"owner": "ada"}, "search_attributes": {}, "business_key": "order 7",
        "run_timeout_seconds": 3600, "execution_timeout_seconds": 7200, "priority": 3, "fairness_key": "a", "fairness_weight": 2,
        "duplicate_policy": "use-existing", "workflow_labels": {"team": "shop"}}));
    list.find(
        "/api/workflows",
        &[],
        "?page_size=10&status=running&query=WorkflowType%20%3D%20%27greet%27",
    );
    let sleeping = [world.sleeping.workflow.as_str(), &world.sleeping.run];
    let current = &sleeping[..1];
    list.get("/api/workflows/{workflow_id}", current);
    list.find(
        "/api/workflows/{workflow_id}/runs",
        current,
        "?page_size=10",
    );
    list.get("/api/workflows/{workflow_id}/runs/{run_id}", &sleeping);
    list.find(
        "/api/workflows/{workflow_id}/runs/{run_id}/history",
        &sleeping,
        "?page_size=10&wait_new_event=0",
    );
    list.get(
        "/api/workflows/{workflow_id}/runs/{run_id}/history/export",
        &sleeping,
    );
    list.find(
        "/api/workflows/{workflow_id}/commands",
        current,
        "?page_size=10",
    );
    list.find(
        "/api/workflows/{workflow_id}/runs/{run_id}/commands",
        &sleeping,
        "?page_size=10",
    );
    list.get("/api/workflows/{workflow_id}/message-streams", current);
    let stream = [current[0], "orders"];
    let message = json!({"message_id": format!("m-{}", world.number), "input": [1]});
    list.post(
        "/api/workflows/{workflow_id}/message-streams/{stream_name}/messages",
        &stream,
        message,
    );
    list.get(
        "/api/workflows/{workflow_id}/message-streams/{stream_name}",
        &stream,
    );
    list.get("/api/workflows/{workflow_id}/debug", current);
    list.get(
        "/api/workflows/{workflow_id}/runs/{run_id}/debug",
        &sleeping,
    );
    let signal = |id: &str| json!({"input": [1, {"two": 3}], "request_id": format!("{id}-{}", world.number)});
    list.post(
        "/api/workflows/{workflow_id}/signal/{signal_name}",
        &[current[0], "poke"],
        signal("s1"),
    );
    list.post(
        "/api/workflows/{workflow_id}/runs/{run_id}/signal/{signal_name}",
        &[sleeping[0], sleeping[1], "poke"],
        signal("s2"),
    );
    let update = json!({"input": ["new name"], "wait_for": "accepted", "wait_timeout_seconds": 1});
    list.post(
        "/api/workflows/{workflow_id}/update/{update_name}",
        &[current[0], "rename"],
        update.clone(),
    );
    list.post(
        "/api/workflows/{workflow_id}/runs/{run_id}/update/{update_name}",
        &[sleeping[0], sleeping[1], "rename"],
        update,
    );
    let query = json!({"input": [1]});
    list.post(
        "/api/workflows/{workflow_id}/query/{query_name}",
        &[current[0], "status"],
        query.clone(),
    );
    list.post(
        "/api/workflows/{workflow_id}/runs/{run_id}/query/{query_name}",
        &[sleeping[0], sleeping[1], "status"],
        query,
    );
    let cancellation = json!({"reason": "maintenance", "cleanup_timeout_seconds": 60});
    list.post(
        "/api/workflows/{workflow_id}/request-cancellation",
        current,
        cancellation.clone(),
    );
    list.post(
        "/api/workflows/{workflow_id}/runs/{run_id}/request-cancellation",
        &sleeping,
        cancellation,
    );
    list.post("/api/workflows/{workflow_id}/repair", current, json!({}));
    list.post(
        "/api/workflows/{workflow_id}/runs/{run_id}/repair",
        &sleeping,
        json!({}),
    );
    let reason = json!({"reason": "enough", "request_id": format!("stop-{}", world.number)});
    list.post(
        "/api/workflows/{workflow_id}/cancel",
        current,
        reason.clone(),
    );
    list.post(
        "/api/workflows/{workflow_id}/runs/{run_id}/cancel",
        &sleeping,
        json!({"reason": "enough"}),
    );
    list.post(
        "/api/workflows/{workflow_id}/terminate",
        current,
        reason.clone(),
    );
    list.post(
        "/api/workflows/{workflow_id}/runs/{run_id}/terminate",
        &sleeping,
        json!({"reason": "enough"}),
    );
    let closed = [world.closed.workflow.as_str(), &world.closed.run];
    list.post(
        "/api/workflows/{workflow_id}/archive",
        &closed[..1],
        json!({"reason": "old"}),
    );
    list.post(
        "/api/workflows/{workflow_id}/runs/{run_id}/archive",
        &closed,
        json!({"reason": "old"}),
    );
}

fn operators(list: &mut Samples, world: &World) {
    let queue = [world.queue.as_str()];
    let build = json!({"build_id": format!("build-{}", world.number)});
    let deployment = format!("default/{}@build-{}", world.queue, world.number);
    list.find("/api/workers", &[], "?status=active");
    list.get("/api/workers/{worker_id}", &[&world.worker]);
    list.find("/api/worker-sessions", &[], "?page_size=10");
    list.get("/api/worker-sessions/{session_id}", &[&world.session]);
    list.get("/api/task-queues", &[]);
    list.get("/api/task-queues/{name}", &queue);
    list.get("/api/task-queues/{name}/priority-fairness", &queue);
    list.get("/api/task-queues/{name}/build-ids", &queue);
    list.post(
        "/api/task-queues/{name}/build-ids/drain",
        &queue,
        build.clone(),
    );
    list.post(
        "/api/task-queues/{name}/build-ids/resume",
        &queue,
        build.clone(),
    );
    list.post("/api/task-queues/{name}/build-ids/promote", &queue, build);
    list.get("/api/deployments", &[]);
    list.get("/api/deployments/{*name}", &[&deployment]);
    list.post(
        "/api/deployments/{*name}",
        &[&format!("{deployment}/drain")],
        json!({}),
    );
    list.add(
        "DELETE",
        "/api/workers/{worker_id}",
        &[&world.worker],
        "",
        None,
    );
}

fn workers(list: &mut Samples, world: &World) {
    let other = format!("other-{}", world.number);
    list.post("/api/worker/register", &[], json!({"worker_id": other, "task_queue": world.queue, "runtime": "python",
        "sdk_version": "1", "build_id": "b", "supported_workflow_types": ["greet"], "supported_activity_types": ["say"],
        "max_concurrent_workflow_tasks": 10, "max_concurrent_activity_tasks": 10, "max_concurrent_sessions": 2,
        "capabilities": ["query_tasks"], "workflow_command_contracts": {"greet": {"signals": ["poke"]}}}));
    list.post(
        "/api/worker/heartbeat",
        &[],
        json!({"worker_id": world.worker, "task_queue": world.queue,
        "workflow_task_slots_available": 3, "activity_task_slots_available": 3}),
    );
    let poll = |kind: &str| {
        json!({"worker_id": world.worker, "task_queue": world.queue, "timeout_seconds": 0,
        "poll_request_id": format!("{kind}-{}", world.number), "history_page_size": 10, "task_kinds": ["workflow"]})
    };
    list.post("/api/worker/workflow-tasks/poll", &[], poll("w"));
    list.post("/api/worker/activity-tasks/poll", &[], poll("a"));
    list.post("/api/worker/query-tasks/poll", &[], poll("q"));
    list.add(
        "DELETE",
        "/api/worker/registrations/{worker_id}",
        &[&world.worker],
        "",
        None,
    );
}

/// A list of workflow commands for each type of command.
pub(crate) fn commands() -> Vec<Value> {
    let policy = json!({"max_attempts": 3, "backoff_seconds": [1, 2], "non_retryable_error_types": ["Fatal"]});
    let mut one_by_one: Vec<Value> = [
        json!({"type": "schedule_activity", "activity_type": "say", "arguments": envelope(&json!([1])), "queue": "elsewhere", "retry_policy": policy,
            "start_to_close_timeout": 60, "schedule_to_start_timeout": 60, "schedule_to_close_timeout": 600, "heartbeat_timeout": 30,
            "priority": 3, "fairness_key": "a", "fairness_weight": 2}),
        json!({"type": "start_timer", "delay_seconds": 3600}),
        json!({"type": "start_child_workflow", "workflow_type": "greet", "arguments": envelope(&json!([1])), "parent_close_policy": "abandon",
            "retry_policy": policy, "run_timeout_seconds": 600, "execution_timeout_seconds": 6000}),
        json!({"type": "record_side_effect", "result": envelope(&json!(1))}),
        json!({"type": "record_version_marker", "change_id": "c", "version": 2, "min_supported": 1, "max_supported": 3}),
        json!({"type": "upsert_memo", "entries": envelope(&json!({"owner": "ada"}))}),
        json!({"type": "open_condition_wait", "condition_key": "paid", "timeout_seconds": 60}),
        json!({"type": "open_signal_wait", "signal_name": "poke", "timeout_seconds": 60}),
        json!({"type": "complete_workflow", "result": envelope(&json!({"total": 7}))}),
        json!({"type": "fail_workflow", "message": "no", "exception_type": "Broken", "non_retryable": true}),
        json!({"type": "continue_as_new", "arguments": envelope(&json!([2]))}),
    ]
    .map(|command| json!([command]))
    .into();
    one_by_one.push(race());
    one_by_one
}

fn workflow_tasks(list: &mut Samples, world: &World) {
    let task = &world.decided;
    let id = [task.id()];
    list.post(
        "/api/worker/workflow-tasks/{task_id}/history",
        &id,
        task.report(json!({"next_history_page_token": "MA==", "history_page_size": 10})),
    );
    list.post(
        "/api/worker/workflow-tasks/{task_id}/heartbeat",
        &id,
        task.report(json!({})),
    );
    let delivery = json!({"request_id": world.cancel_request, "sequence": 1, "call_kind": "timer"});
    list.post(
        "/api/worker/workflow-tasks/{task_id}/deliver-cancellation",
        &[world.cancelled.id()],
        world.cancelled.report(delivery),
    );
    for commands in commands() {
        let body = json!({"commands": commands, "message_stream_cursors": []});
        list.post(
            "/api/worker/workflow-tasks/{task_id}/complete",
            &id,
            task.report(body),
        );
    }
    let give_up = json!([{"type": "cancel_selection_operation", "selection_group_id": "select-calls:1:2", "member_key": "m1",
        "member_index": 1, "member_base_sequence": 2, "member_size": 1, "operation_kind": "timer",
        "operation_identity": world.selection_timer}]);
    let selected = &world.selected;
    list.post(
        "/api/worker/workflow-tasks/{task_id}/complete",
        &[selected.id()],
        selected.report(json!({"commands": give_up})),
    );
    let failure =
        json!({"failure": {"message": "no", "type": "Broken", "stack_trace": "at line 1"}});
    list.post(
        "/api/worker/workflow-tasks/{task_id}/fail",
        &id,
        task.report(failure),
    );
}

fn local_activities(list: &mut Samples, world: &World) {
    let fresh = &world.decided;
    let checkpoint = |commands: Value| json!({"checkpoint_id": "c1", "start_sequence": 1, "commands": commands, "history_after": 0});
    list.post(
        "/api/worker/workflow-tasks/{task_id}/local-activities/checkpoint",
        &[fresh.id()],
        fresh.report(checkpoint(
            json!([{"type": "record_side_effect", "result": envelope(&json!(1))}]),
        )),
    );
    list.post(
        "/api/worker/workflow-tasks/{task_id}/local-activities/checkpoint-group",
        &[fresh.id()],
        fresh.report(checkpoint(race())),
    );
    let prepare = json!({"sequence": 1, "worker_attempt_id": "a", "descriptor": descriptor(), "history_after": 0});
    list.post(
        "/api/worker/workflow-tasks/{task_id}/local-activities/prepare",
        &[fresh.id()],
        fresh.report(prepare),
    );
    let recover = json!({"sequence": 1, "descriptor": descriptor()});
    list.post(
        "/api/worker/workflow-tasks/{task_id}/local-activities/recover",
        &[world.lost.id()],
        world.lost.report(recover),
    );
    let running = [world.local.id(), &world.local_attempt];
    list.post(
        "/api/worker/workflow-tasks/{task_id}/local-activities/{attempt_id}/control",
        &running,
        world
            .local
            .report(json!({"renew_lease": true, "history_after": 0})),
    );
    list.post(
        "/api/worker/workflow-tasks/{task_id}/local-activities/{attempt_id}/heartbeat",
        &running,
        world
            .local
            .report(json!({"progress": {"current": 1, "total": 9, "message": "going"}})),
    );
    let report =
        json!({"outcome": "completed", "result": envelope(&json!(7)), "payload_codec": "avro"});
    list.post(
        "/api/worker/workflow-tasks/{task_id}/local-activities/{attempt_id}/outcome",
        &running,
        world.local.report(json!({"report": report})),
    );
    list.post("/api/worker/workflow-tasks/{task_id}/local-activities/{attempt_id}/acknowledge-cancellation",
        &[world.stopping_local.id(), &world.stopping_local_attempt],
        world.stopping_local.report(json!({"request_id": world.local_stop_request})));
}

fn activity_tasks(list: &mut Samples, world: &World) {
    let task = &world.activity;
    let id = [task.id()];
    let progress = json!({"progress": {"message": "half", "current": 1, "total": 2, "unit": "files", "details": {"file": "a"}}});
    list.post(
        "/api/worker/activity-tasks/{task_id}/heartbeat",
        &id,
        task.report(progress),
    );
    list.post(
        "/api/worker/activity-tasks/{task_id}/status",
        &id,
        task.report(json!({})),
    );
    list.post(
        "/api/worker/activity-tasks/{task_id}/complete",
        &id,
        task.report(json!({"result": envelope(&json!({"total": 7}))})),
    );
    let failure = json!({"failure": {"message": "no", "type": "Broken", "non_retryable": false, "stack_trace": "at line 1"}});
    list.post(
        "/api/worker/activity-tasks/{task_id}/fail",
        &id,
        task.report(failure),
    );
    let stopping = &world.stopping_activity;
    list.post(
        "/api/worker/activity-tasks/{task_id}/acknowledge-cancellation",
        &[stopping.id()],
        stopping.report(json!({"request_id": world.stop_request})),
    );
}

fn questions(list: &mut Samples, world: &World) {
    let query = &world.query;
    let status = format!(
        "?lease_owner={}&query_task_attempt={}",
        plain(query, "lease_owner"),
        plain(query, "query_task_attempt")
    );
    list.find(
        "/api/worker/query-tasks/{task_id}/status",
        &[query.id()],
        &status,
    );
    list.post(
        "/api/worker/query-tasks/{task_id}/complete",
        &[query.id()],
        query.report(json!({"result": envelope(&json!(7))})),
    );
    let failure =
        json!({"failure": {"message": "no", "reason": "query_rejected", "type": "Broken"}});
    list.post(
        "/api/worker/query-tasks/{task_id}/fail",
        &[query.id()],
        query.report(failure.clone()),
    );
    let validation = &world.validation;
    list.post(
        "/api/worker/update-validation-tasks/{task_id}/approve",
        &[validation.id()],
        validation.report(json!({})),
    );
    let failure = json!({"failure": {"message": "Not so much.", "reason": "update_rejected", "type": "ValueError"}});
    list.post(
        "/api/worker/update-validation-tasks/{task_id}/reject",
        &[validation.id()],
        validation.report(failure),
    );
}

fn plain(task: &Task, field: &str) -> String {
    match task.field(field) {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

fn sessions(list: &mut Samples, world: &World) {
    let body = json!({"worker_id": world.worker, "session_id": format!("another-{}", world.number), "lease_seconds": 60,
        "max_concurrent_activities": 3, "ttl_seconds": 600});
    list.post("/api/worker/sessions", &[], body);
    let owner = json!({"worker_id": world.worker, "lease_seconds": 60});
    list.post(
        "/api/worker/sessions/{session_id}/heartbeat",
        &[&world.session],
        owner,
    );
    let close = json!({"worker_id": world.worker, "reason": "worker_shutdown"});
    list.add(
        "DELETE",
        "/api/worker/sessions/{session_id}",
        &[&world.session],
        "",
        Some(close),
    );
}

fn definitions(list: &mut Samples, world: &World) {
    let execution = &world.execution;
    let (name, task) = (execution.definition.as_str(), execution.task_type.as_str());
    let definition = json!({"name": format!("{name}-new"), "version": 1, "ownerEmail": "a@b.c",
    "inputParameters": ["n"], "outputParameters": {"n": "${first.output.n}"}, "timeoutSeconds": 60, "tasks": [
        {"name": task, "taskReferenceName": "first", "type": "SIMPLE", "inputParameters": {"n": "${workflow.input.n}"}},
        {"name": "pick", "taskReferenceName": "pick", "type": "SWITCH", "evaluatorType": "value-param",
         "expression": "case", "inputParameters": {"case": "${first.output.case}"},
         "decisionCases": {"a": [{"name": task, "taskReferenceName": "second", "type": "SIMPLE"}]}},
    ]});
    let task_def = json!({"name": task, "retryCount": 3, "retryLogic": "FIXED", "retryDelaySeconds": 5,
        "timeoutSeconds": 60, "responseTimeoutSeconds": 30, "inputTemplate": {"n": 1}});
    list.get("/api/metadata/taskdefs", &[]);
    list.post("/api/metadata/taskdefs", &[], json!([task_def]));
    list.add(
        "PUT",
        "/api/metadata/taskdefs",
        &[],
        "",
        Some(task_def.clone()),
    );
    list.get("/api/metadata/taskdefs/{a}", &[task]);
    list.add(
        "PUT",
        "/api/metadata/taskdefs/{a}",
        &[task],
        "",
        Some(task_def),
    );
    list.add("DELETE", "/api/metadata/taskdefs/{a}", &[task], "", None);
    list.get("/api/metadata/workflow", &[]);
    list.add(
        "POST",
        "/api/metadata/workflow",
        &[],
        "?overwrite=true",
        Some(definition.clone()),
    );
    list.add(
        "PUT",
        "/api/metadata/workflow",
        &[],
        "",
        Some(json!([definition])),
    );
    list.post("/api/metadata/workflow/validate", &[], definition);
    list.find("/api/metadata/workflow/{a}", &[name], "?version=1");
    for route in [
        "/api/metadata/workflow/names",
        "/api/metadata/workflow/names-and-versions",
        "/api/metadata/workflow/latest-versions",
    ] {
        list.get(route, &[]);
    }
    list.get("/api/metadata/workflow/{a}/versions", &[name]);
    list.add(
        "DELETE",
        "/api/metadata/workflow/{a}/{b}",
        &[name, "1"],
        "",
        None,
    );
}

fn events(list: &mut Samples, world: &World) {
    let (name, task) = (
        world.execution.definition.as_str(),
        world.execution.task_type.as_str(),
    );
    let id = world.execution.id.as_str();
    // The world registers a handler with the name of the definition.
    let handler = |name: &str| {
        json!({"name": name, "event": "conductor:a:b", "active": true, "condition": "$.n > 1",
        "evaluatorType": "javascript", "actions": [
            {"action": "start_workflow", "start_workflow": {"name": "none", "input": {"n": "${n}"}}, "expandInlineJSON": true},
            {"action": "complete_task", "complete_task": {"workflowId": "${w}", "taskRefName": "r", "output": {}}},
            {"action": "update_workflow_variables", "update_workflow_variables": {"workflowId": "${w}", "variables": {},
             "appendArray": true}},
        ]})
    };
    list.get("/api/event", &[]);
    list.post("/api/event", &[], json!([handler("fresh")]));
    list.add("PUT", "/api/event", &[], "", Some(handler(name)));
    list.find("/api/event/{a}", &["conductor:a:b"], "?activeOnly=false");
    list.get("/api/event/handler", &[]);
    list.get("/api/event/handler/", &[]);
    list.get("/api/event/handler/{a}", &[name]);
    let message = json!({"event": "conductor:a:b", "messageId": "m1", "payload": {"n": 1}});
    list.post("/api/event/handleIncomingEvent", &[], message);
    list.get("/api/event/execution", &[]);
    list.find("/api/event/execution/{a}", &[name], "?from=0");
    list.find("/api/event/message", &[], "?from=0");
    list.get("/api/event/message/{a}", &["conductor:a:b"]);
    list.get("/api/queue", &[]);
    list.get("/api/queue/", &[]);
    list.get("/api/queue/size", &[]);
    let [waiting, wait] = &world.execution.waiting;
    list.post(
        "/api/queue/update/{a}/{b}/{c}",
        &[waiting, "wait", "IN_PROGRESS"],
        json!({"n": 1}),
    );
    list.post(
        "/api/queue/update/{a}/task/{b}/{c}",
        &[waiting, wait, "IN_PROGRESS"],
        json!({"n": 1}),
    );
    list.post("/api/workflow/{a}/messages", &[id], json!({"n": 1}));
    let tag = json!({"key": "team", "value": "blue", "type": "METADATA"});
    list.get("/api/metadata/tags", &[]);
    for (route, name) in [
        ("/api/metadata/task/{a}/tags", task),
        ("/api/metadata/workflow/{a}/tags", name),
        ("/api/event/{a}/tags", name),
    ] {
        list.get(route, &[name]);
        list.post(route, &[name], tag.clone());
        list.add("PUT", route, &[name], "", Some(json!([tag])));
        list.add("DELETE", route, &[name], "", Some(tag.clone()));
    }
    let route = "/api/metadata/workflow/{a}/rate-limit";
    let limit = json!({"rateLimitKey": "${workflow.correlationId}", "concurrentExecLimit": 5});
    list.add("PUT", route, &[name], "", Some(limit));
    list.get(route, &[name]);
    list.add("DELETE", route, &[name], "", None);
    list.add("DELETE", "/api/event/{a}", &[name], "", None);
}

fn schemas(list: &mut Samples, world: &World) {
    // The world registers a schema with the name of the task.
    let name = world.execution.task_type.as_str();
    let schema = json!({"name": "fresh", "version": 2, "type": "JSON", "data": {"type": "object"}});
    list.get("/api/version", &[]);
    list.get("/api/schema", &[]);
    list.add(
        "POST",
        "/api/schema",
        &[],
        "?newVersion=true",
        Some(json!([schema])),
    );
    list.get("/api/schema/{a}", &[name]);
    list.get("/api/schema/{a}/{b}", &[name, "1"]);
    list.add("DELETE", "/api/schema/{a}/{b}", &[name, "1"], "", None);
    list.add("DELETE", "/api/schema/{a}", &[name], "", None);
}

fn executions(list: &mut Samples, world: &World) {
    let execution = &world.execution;
    let (id, name, task) = (
        execution.id.as_str(),
        execution.definition.as_str(),
        execution.task_type.as_str(),
    );
    let start = json!({"name": name, "version": 1, "input": {"n": 1}, "correlationId": "c", "priority": 5,
        "taskToDomain": {task: "blue"}});
    let result = json!({"workflowInstanceId": id, "taskId": execution.task_id, "status": "COMPLETED",
        "outputData": {"n": 1}, "workerId": "w", "callbackAfterSeconds": 0, "logs": [{"log": "done", "createdTime": 1}]});
    list.post("/api/workflow", &[], start.clone());
    list.add(
        "POST",
        "/api/workflow/{a}",
        &[name],
        "?version=1&priority=3&correlationId=c",
        Some(json!({"n": 1})),
    );
    list.add(
        "POST",
        "/api/workflow/execute/{a}/{b}",
        &[name, "1"],
        "?waitForSeconds=1&waitUntilTaskRef=first",
        Some(start),
    );
    list.find("/api/workflow/{a}", &[id], "?includeTasks=true");
    list.find(
        "/api/workflow/{a}/status",
        &[id],
        "?includeOutput=true&includeVariables=true",
    );
    list.find(
        "/api/workflow/{a}/tasks",
        &[id],
        "?start=0&count=10&status=COMPLETED",
    );
    list.add("PUT", "/api/workflow/{a}/pause", &[id], "", None);
    list.add("PUT", "/api/workflow/{a}/resume", &[id], "", None);
    let skip = json!({"taskInput": {"n": 1}, "taskOutput": {"m": 2}});
    let route = "/api/workflow/{a}/skiptask/{b}";
    list.add("PUT", route, &[id, "none"], "", Some(skip));
    list.add("POST", "/api/workflow/{a}/resetcallbacks", &[id], "", None);
    list.add("PUT", "/api/workflow/decide/{a}", &[id], "", None);
    let route = "/api/workflow/{a}/restart";
    list.add("POST", route, &[id], "?useLatestDefinitions=true", None);
    let route = "/api/workflow/{a}/retry";
    list.add("POST", route, &[id], "?resumeSubworkflowTasks=true", None);
    let rerun = json!({"reRunFromTaskId": "none", "taskInput": {"n": 1}, "workflowInput": {"n": 2}, "correlationId": "c"});
    list.post("/api/workflow/{a}/rerun", &[id], rerun);
    let mocks = json!({"first": [{"status": "COMPLETED", "output": {"n": 1}, "executionTime": 5, "queueWaitTime": 5}]});
    let test = json!({"name": name, "version": 1, "input": {"n": 1}, "taskRefToMockOutput": mocks, "subWorkflowTestRequest": {}});
    list.post("/api/workflow/test", &[], test);
    let many = || Some(json!(["none", id]));
    list.add("PUT", "/api/workflow/bulk/pause", &[], "", many());
    list.add("PUT", "/api/workflow/bulk/resume", &[], "", many());
    let route = "/api/workflow/bulk/restart";
    list.add("POST", route, &[], "?useLatestDefinitions=true", many());
    list.add("POST", "/api/workflow/bulk/retry", &[], "", many());
    let none = || Some(json!(["none"]));
    list.add(
        "POST",
        "/api/workflow/bulk/terminate",
        &[],
        "?reason=enough",
        none(),
    );
    list.add("DELETE", "/api/workflow/bulk/remove", &[], "", none());
    list.add("POST", "/api/workflow/bulk/delete", &[], "", none());
    list.add(
        "DELETE",
        "/api/workflow/bulk/terminate-remove",
        &[],
        "",
        none(),
    );
    list.add(
        "POST",
        "/api/workflow/bulk/search",
        &[],
        "?includeTasks=true",
        many(),
    );
    list.post("/api/workflow/{a}/variables", &[id], json!({"v": 1}));
    let state = json!({"variables": {"v": 2}, "taskReferenceName": "first", "taskResult": {"status": "IN_PROGRESS", "outputData": {"n": 1}}});
    list.add(
        "POST",
        "/api/workflow/{a}/state",
        &[id],
        "?waitForSeconds=1&waitUntilTaskRef=first",
        Some(state),
    );
    list.post(
        "/api/tasks/{a}/{b}/signal",
        &[id, "IN_PROGRESS"],
        json!({"n": 1}),
    );
    let route = "/api/tasks/{a}/{b}/signal/sync";
    list.add(
        "POST",
        route,
        &[id, "IN_PROGRESS"],
        "?returnStrategy=BLOCKING_TASK&timeoutMillis=10",
        Some(json!({"n": 1})),
    );
    let route = "/api/workflow/{a}/remove";
    list.add("DELETE", route, &["none"], "?archiveWorkflow=true", None);
    let route = "/api/workflow/{a}/terminate-remove";
    list.add("DELETE", route, &["none"], "?reason=enough", None);
    list.post("/api/token", &[], json!({"keyId": "k", "keySecret": "s"}));
    list.get("/api/tasks/poll/{a}", &[task]);
    list.find(
        "/api/tasks/poll/batch/{a}",
        &[task],
        "?workerid=w&count=2&timeout=10&domain=blue",
    );
    list.add(
        "POST",
        "/api/tasks/poll/batch/{a}",
        &[task],
        "?workerid=w&count=2&timeout=10",
        None,
    );
    list.get("/api/tasks/{a}", &[&execution.task_id]);
    list.find(
        "/api/tasks/queue/polldata",
        &[],
        &format!("?taskType={task}"),
    );
    list.get("/api/tasks/queue/polldata/all", &[]);
    list.get("/api/tasks/queue/all", &[]);
    list.get("/api/tasks/queue/all/verbose", &[]);
    list.find(
        "/api/tasks/queue/size",
        &[],
        &format!("?taskType={task}&domain=blue&isolationGroupId=g&executionNamespace=n"),
    );
    list.find(
        "/api/tasks/queue/sizes",
        &[],
        &format!("?taskType={task}&taskType=other"),
    );
    list.get("/api/tasks/{a}/log", &[&execution.task_id]);
    list.post(
        "/api/tasks/{a}/log",
        &[&execution.task_id],
        json!("half way"),
    );
    list.post(
        "/api/tasks/{a}/{b}/{c}/sync",
        &[id, "first", "IN_PROGRESS"],
        json!({"n": 1}),
    );
    list.post("/api/tasks", &[], result.clone());
    list.post("/api/tasks/update-v2", &[], result);
    list.post(
        "/api/tasks/{a}/{b}/{c}",
        &[id, "first", "IN_PROGRESS"],
        json!({"n": 1}),
    );
    list.add("DELETE", "/api/workflow/{a}", &[id], "?reason=enough", None);
}

fn execution_lists(list: &mut Samples, world: &World) {
    let name = world.execution.definition.as_str();
    let task = world.execution.task_type.as_str();
    let tasks = "?query=taskType%20IN%20(a%2C%20'b*')%20AND%20status%3D'FAILED'%20OR%20startTime%3E1&freeText=x&start=0&size=10\
        &sort=startTime:ASC%7CtaskType:DESC";
    for route in [
        "/api/tasks/search",
        "/api/tasks/search-v2",
        "/api/workflow/search-by-tasks",
        "/api/workflow/search-by-tasks-v2",
    ] {
        list.find(route, &[], tasks);
    }
    list.find("/api/admin/task/{a}", &[task], "?start=0&count=10");
    list.add("POST", "/api/tasks/queue/requeue/{a}", &[task], "", None);
    let place = "?path=x&operation=READ&payloadType=TASK_INPUT";
    list.find("/api/tasks/externalstoragelocation", &[], place);
    list.find("/api/workflow/externalstoragelocation", &[], place);
    let search = "?query=workflowType%20IN%20(a%2C%20'b*')%20AND%20startTime%3E%3D1%20OR%20status%3D'RUNNING'\
        &freeText=x&start=0&size=10&sort=startTime:ASC%7Cstatus:DESC&classifier=a,b&topLevelOnly=true";
    list.find("/api/workflow/search", &[], search);
    list.find(
        "/api/workflow/search-v2",
        &[],
        "?query=correlationId%20IS%20not%20null&size=3",
    );
    list.find(
        "/api/workflow/running/{a}",
        &[name],
        "?version=1&startTime=1&endTime=9999999999999",
    );
    list.find(
        "/api/workflow/{a}/correlated/{b}",
        &[name, "c"],
        "?includeClosed=true&includeTasks=true",
    );
    list.add(
        "POST",
        "/api/workflow/{a}/correlated",
        &[name],
        "?includeClosed=true&includeTasks=false",
        Some(json!(["c", "d"])),
    );
    list.post(
        "/api/workflow/correlated/batch",
        &[],
        json!({"correlationIds": ["c", "d"], "workflowNames": [name]}),
    );
}

#[tokio::test]
async fn every_route_has_a_sample() {
    let server = Server::start(&[]).await;
    let world = World::new(&mut server.client(), 1).await;
    let samples = samples(&world);
    let missing: Vec<String> = longhaul_server::routes()
        .into_iter()
        .filter(|route| {
            !samples
                .iter()
                .any(|sample| sample.method == route.method && sample.route == route.path)
        })
        .map(|route| format!("{} {}", route.method, route.path))
        .collect();
    assert!(missing.is_empty(), "routes without a sample: {missing:#?}");
}

/// A refused sample would only attack the first check of its route.
#[tokio::test]
async fn every_sample_is_accepted() {
    let server = Server::start(&["--query-task-timeout-seconds", "1"]).await;
    let mut client = server.client();
    let count = samples(&World::new(&mut client, 0).await).len();
    let mut refused = Vec::new();
    for index in 0..count {
        let world = World::new(&mut client, index as u64 + 1).await;
        let all = samples(&world);
        let sample = &all[index];
        // Some routes need an earlier request: only definitions are created by a separate request.
        for earlier in &all[..index] {
            if earlier.route == "/api/search-attributes" && earlier.method == "POST" {
                client.send(&earlier.request()).await.expect("an answer");
            }
        }
        let answer = client.send(&sample.request()).await.expect("an answer");
        if !is_accepted(sample, &answer) {
            refused.push(format!(
                "{} {} → {} {}",
                sample.method,
                sample.target,
                answer.status,
                answer.text()
            ));
        }
    }
    assert!(refused.is_empty(), "{refused:#?}");
}

/// A query that no worker answers times out. A request alone cannot get further.
fn is_accepted(sample: &Sample, answer: &Answer) -> bool {
    let unanswered = sample.route.contains("/query/") && answer.status == 504;
    // Only a paused run can be resumed, and a server without keys has no tokens.
    let refused = match sample.route {
        "/api/workflow/{a}/resume"
        | "/api/workflow/{a}/restart"
        | "/api/workflow/{a}/retry"
        | "/api/workflow/{a}/rerun" => answer.status == 409,
        "/api/workflow/{a}/skiptask/{b}"
        | "/api/tasks/{a}/{b}/signal/sync"
        | "/api/workflow/{a}/remove"
        | "/api/workflow/{a}/terminate-remove" => answer.status == 404,
        "/api/token" => answer.status == 404,
        // Large values are never stored outside.
        "/api/tasks/externalstoragelocation" | "/api/workflow/externalstoragelocation" => {
            answer.status == 400
        }
        _ => false,
    };
    unanswered || refused || (200..300).contains(&answer.status)
}
