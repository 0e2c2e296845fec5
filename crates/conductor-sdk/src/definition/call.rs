//! Nodes that call something outside of the run: other workflows, events, HTTP.

use std::time::Duration;

use longhaul_protocol::conductor::{
    IdempotencyStrategy, NumberOrText, Object, SubWorkflowParams, WorkflowDef, WorkflowTask,
};
use serde::Serialize;
use serde_json::Value;

use super::error;
use super::expression::Expression;
use super::node::{Node, Plain, sealed};

/// The kind of a node that runs another workflow and waits for its end.
#[derive(Clone, Debug)]
pub struct SubWorkflow {
    params: SubWorkflowParams,
}

impl sealed::Finish for SubWorkflow {
    fn finish(self, mut task: WorkflowTask) -> Vec<WorkflowTask> {
        task.sub_workflow_param = Some(self.params);
        vec![task]
    }
}

/// Returns a node that runs a registered workflow and waits for its end. Without a version it is the latest one. The inputs of the
/// node are the input of the workflow.
pub fn sub_workflow(reference: impl Into<String>, name: impl Into<String>) -> Node<SubWorkflow> {
    let params = SubWorkflowParams {
        name: name.into(),
        ..SubWorkflowParams::default()
    };
    Node::operator("SUB_WORKFLOW", reference, SubWorkflow { params })
}

/// Returns a node that runs a definition that is not registered, and waits for its end. The inputs of the node are the input of the
/// workflow.
pub fn sub_workflow_inline(
    reference: impl Into<String>,
    definition: WorkflowDef,
) -> Node<SubWorkflow> {
    let mut node = sub_workflow(reference, definition.name.clone());
    node.kind.params.version = Some(NumberOrText::Number(definition.version.into()));
    let member = "subWorkflowParam.workflowDefinition";
    let definition = error::json(node.place(), member, definition);
    node.kind.params.workflow_definition = node.errors.keep(definition);
    node
}

impl Node<SubWorkflow> {
    /// Sets the version of the workflow. The default is the latest one.
    pub fn version(mut self, version: i32) -> Self {
        let version = error::version(self.place(), version);
        let version = self.errors.keep(version);
        self.kind.params.version = version.map(|version| NumberOrText::Number(version.into()));
        self
    }

    /// Sets the version of the workflow to a value of the run.
    pub fn version_from(mut self, version: Expression) -> Self {
        self.kind.params.version = Some(NumberOrText::Text(version.into()));
        self
    }

    /// Sets the domain for the tasks of a name, or of all names with `*`. By default the workflow uses the domains of its parent.
    pub fn task_to_domain(mut self, task: impl Into<String>, domain: impl Into<String>) -> Self {
        let domains = self.kind.params.task_to_domain.get_or_insert_default();
        domains.insert(task.into(), Value::String(domain.into()));
        self
    }

    /// Sets the priority, from 0 to 99. A higher priority is delivered first.
    pub fn priority(mut self, priority: u8) -> Self {
        self.kind.params.priority = Some(NumberOrText::Number(priority.into()));
        self
    }

    /// Sets the idempotency key of the start, and what happens if the key was used before.
    pub fn idempotency(mut self, key: impl Into<String>, strategy: IdempotencyStrategy) -> Self {
        self.kind.params.idempotency_key = Some(key.into());
        self.kind.params.idempotency_strategy = Some(strategy.as_str().to_owned());
        self
    }
}

/// The kind of a node that starts another workflow and does not wait for its end.
#[derive(Clone, Debug)]
pub struct StartWorkflow {
    request: Object,
}

impl sealed::Finish for StartWorkflow {
    fn finish(mut self, mut task: WorkflowTask) -> Vec<WorkflowTask> {
        let input = std::mem::take(&mut task.input_parameters);
        self.request
            .insert("input".to_owned(), Value::Object(input));
        let request = Value::Object(self.request);
        task.input_parameters
            .insert("startWorkflow".to_owned(), request);
        vec![task]
    }
}

/// Returns a node that starts a registered workflow and does not wait for its end. The inputs of the node are the input of the
/// workflow. The output is `workflowId`.
///
/// longhaul does not run such tasks yet. It queues them under their type, for workers.
pub fn start_workflow(
    reference: impl Into<String>,
    name: impl Into<String>,
) -> Node<StartWorkflow> {
    let mut request = Object::new();
    request.insert("name".to_owned(), Value::String(name.into()));
    Node::operator("START_WORKFLOW", reference, StartWorkflow { request })
}

impl Node<StartWorkflow> {
    /// Sets the version of the workflow. The default is the latest one.
    pub fn version(mut self, version: i32) -> Self {
        let version = error::version(self.place(), version);
        match self.errors.keep(version) {
            Some(version) => self.request("version", version),
            None => self,
        }
    }

    /// Sets the correlation id. By default it is the one of this run.
    pub fn correlation_id(self, id: impl Serialize) -> Self {
        self.request("correlationId", id)
    }

    /// Sets the idempotency key of the start, and what happens if the key was used before.
    pub fn idempotency(self, key: impl Serialize, strategy: IdempotencyStrategy) -> Self {
        self.request("idempotencyKey", key)
            .request("idempotencyStrategy", strategy)
    }

    fn request(mut self, member: &str, value: impl Serialize) -> Self {
        let value = error::json(self.place(), member, value);
        if let Some(value) = self.errors.keep(value) {
            self.kind.request.insert(member.to_owned(), value);
        }
        self
    }
}

/// Returns a node that sends its inputs as a message to a sink such as `conductor:shipped`.
///
/// longhaul does not run such tasks yet. It queues them under their type, for workers.
pub fn event(reference: impl Into<String>, sink: impl Into<String>) -> Node {
    let mut node = Node::operator("EVENT", reference, Plain);
    node.task.sink = Some(sink.into());
    node
}

/// The kind of a node that sends an HTTP request.
#[derive(Clone, Debug)]
pub struct Http {
    request: Object,
    headers: Object,
}

impl sealed::Finish for Http {
    fn finish(mut self, mut task: WorkflowTask) -> Vec<WorkflowTask> {
        if !self.headers.is_empty() {
            let headers = Value::Object(self.headers);
            self.request.insert("headers".to_owned(), headers);
        }
        task.input_parameters
            .insert("http_request".to_owned(), Value::Object(self.request));
        vec![task]
    }
}

/// Returns a node that sends an HTTP request from the server. The output is `response` with `statusCode`, `headers` and `body`.
///
/// longhaul does not run such tasks yet. It queues them under their type, for workers.
pub fn http(
    reference: impl Into<String>,
    method: impl Serialize,
    uri: impl Serialize,
) -> Node<Http> {
    let kind = Http {
        request: Object::new(),
        headers: Object::new(),
    };
    Node::operator("HTTP", reference, kind)
        .request("method", method)
        .request("uri", uri)
}

impl Node<Http> {
    /// Adds a header.
    pub fn header(mut self, name: impl Into<String>, value: impl Serialize) -> Self {
        let name = name.into();
        let value = error::json(self.place(), &name, value);
        if let Some(value) = self.errors.keep(value) {
            self.kind.headers.insert(name, value);
        }
        self
    }

    /// Sets the body: text is sent as it is, other values as JSON.
    pub fn body(self, body: impl Serialize) -> Self {
        self.request("body", body)
    }

    /// Sets the content type of the body. The default is `application/json`.
    pub fn content_type(self, content_type: impl Into<String>) -> Self {
        self.request("contentType", content_type.into())
    }

    /// Sets the content type that the answer must have. The default is `application/json`.
    pub fn accept(self, accept: impl Into<String>) -> Self {
        self.request("accept", accept.into())
    }

    /// Sets how long a connection may take: whole milliseconds.
    pub fn connect_timeout(self, timeout: Duration) -> Self {
        self.milliseconds("connectionTimeOut", timeout)
    }

    /// Sets how long the answer may take: whole milliseconds.
    pub fn read_timeout(self, timeout: Duration) -> Self {
        self.milliseconds("readTimeOut", timeout)
    }

    fn milliseconds(mut self, member: &'static str, timeout: Duration) -> Self {
        let timeout = error::milliseconds(self.place(), member, timeout);
        match self.errors.keep(timeout) {
            Some(timeout) => self.request(member, timeout),
            None => self,
        }
    }

    fn request(mut self, member: &str, value: impl Serialize) -> Self {
        let value = error::json(self.place(), member, value);
        if let Some(value) = self.errors.keep(value) {
            self.kind.request.insert(member.to_owned(), value);
        }
        self
    }
}
