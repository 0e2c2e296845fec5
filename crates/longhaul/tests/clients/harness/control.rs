//! The control plane over plain HTTP, for requests that the SDKs do not have and for checking their results.

use serde_json::{Value, json};

use crate::events::TERMINAL_EVENTS;

/// Events per page when reading history: small enough that long histories take several pages.
const HISTORY_PAGE_SIZE: usize = 200;

/// A client of the control plane.
#[derive(Clone)]
pub(crate) struct Control {
    http: reqwest::Client,
    url: String,
}

impl Control {
    pub(crate) fn new(url: &str) -> Self {
        Self {
            http: reqwest::Client::new(),
            url: url.to_owned(),
        }
    }

    /// Status and body of a GET below `/api`.
    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        let request = self.http.get(format!("{}/api{path}", self.url));
        Self::send(request).await
    }

    /// Status and body of a POST below `/api`.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let request = self.http.post(format!("{}/api{path}", self.url)).json(body);
        Self::send(request).await
    }

    async fn send(request: reqwest::RequestBuilder) -> (u16, Value) {
        let request = request.header("X-Durable-Workflow-Control-Plane-Version", "2");
        let answer = request.send().await.expect("the control plane answers");
        let status = answer.status().as_u16();
        (
            status,
            answer.json().await.expect("the control plane answers JSON"),
        )
    }

    /// Returns how many events of a type the current run of a workflow has; 0 if the server does not answer.
    pub(crate) async fn try_count(&self, workflow_id: &str, event_type: &str) -> usize {
        let path = format!("{}/api/workflows/{workflow_id}", self.url);
        let get = |path: String| {
            let request = self.http.get(path);
            request.header("X-Durable-Workflow-Control-Plane-Version", "2")
        };
        let Ok(answer) = get(path.clone()).send().await else {
            return 0;
        };
        let described: Value = answer.json().await.unwrap_or_default();
        let Some(run_id) = described["run_id"].as_str() else {
            return 0;
        };
        let Ok(answer) = get(format!("{path}/runs/{run_id}/history")).send().await else {
            return 0;
        };
        let page: Value = answer.json().await.unwrap_or_default();
        let events = page["events"].as_array().cloned().unwrap_or_default();
        let matching = events
            .iter()
            .filter(|event| event["event_type"] == event_type);
        matching.count()
    }

    /// Ids of all runs of a workflow, oldest first.
    pub(crate) async fn run_ids(&self, workflow_id: &str) -> Vec<String> {
        let (status, body) = self.get(&format!("/workflows/{workflow_id}/runs")).await;
        assert_eq!(status, 200, "{body}");
        let runs = body["runs"].as_array().expect("a list of runs");
        runs.iter()
            .map(|run| run["run_id"].as_str().expect("a run id").to_owned())
            .collect()
    }

    /// The whole history of one run, page by page.
    pub(crate) async fn history(&self, workflow_id: &str, run_id: &str) -> History {
        let mut events = Vec::new();
        let mut token = String::new();
        loop {
            let path = format!(
                "/workflows/{workflow_id}/runs/{run_id}/history?page_size={HISTORY_PAGE_SIZE}{token}"
            );
            let (status, mut page) = self.get(&path).await;
            assert_eq!(status, 200, "{page}");
            match page["events"].take() {
                Value::Array(page) => events.extend(page),
                other => panic!("events is not a list: {other}"),
            }
            match page["next_page_token"].as_str() {
                Some(next) => token = format!("&next_page_token={next}"),
                None => return History { events },
            }
        }
    }
}

/// All events of one run, as the control plane returns them.
#[derive(Debug)]
pub(crate) struct History {
    events: Vec<Value>,
}

impl History {
    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }

    /// All events in order.
    pub(crate) fn events(&self) -> &[Value] {
        &self.events
    }

    /// Event types in order.
    pub(crate) fn types(&self) -> Vec<&str> {
        self.events
            .iter()
            .map(|event| event["event_type"].as_str().unwrap_or("?"))
            .collect()
    }

    /// Payloads of all events of a type, in order.
    pub(crate) fn payloads(&self, event_type: &str) -> Vec<&Value> {
        let matching = self
            .events
            .iter()
            .filter(|event| event["event_type"] == event_type);
        matching.map(|event| &event["payload"]).collect()
    }

    pub(crate) fn count(&self, event_type: &str) -> usize {
        self.payloads(event_type).len()
    }

    /// Command sequences (`payload.sequence`) of all events of a type, in order of appearance.
    pub(crate) fn command_sequences(&self, event_type: &str) -> Vec<u64> {
        let payloads = self.payloads(event_type);
        payloads
            .iter()
            .map(|payload| payload["sequence"].as_u64().expect("a command sequence"))
            .collect()
    }

    /// Checks what must hold for the history of every closed run.
    pub(crate) fn assert_sound(&self) {
        let sequences: Vec<Value> = self
            .events
            .iter()
            .map(|event| event["sequence"].clone())
            .collect();
        let expected: Vec<Value> = (1..=self.len()).map(|sequence| json!(sequence)).collect();
        assert_eq!(
            sequences,
            expected,
            "history sequences are not 1..n: {:?}",
            self.types()
        );
        let types = self.types();
        let terminal: Vec<_> = types
            .iter()
            .filter(|event| TERMINAL_EVENTS.contains(event))
            .collect();
        assert_eq!(
            terminal.len(),
            1,
            "not exactly one terminal event: {types:?}"
        );
        let mut completed = self.command_sequences("ActivityCompleted");
        completed.sort_unstable();
        assert!(
            completed.is_sorted_by(|one, other| one < other),
            "an activity completed twice: {completed:?}"
        );
    }
}
