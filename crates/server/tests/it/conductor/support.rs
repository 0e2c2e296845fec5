//! Calls on this plane, and what every answer of a kind looks like.

use http::{HeaderMap, Method};
use longhaul_server::Options;
use longhaul_server::auth::{Auth, ConductorKey, Role};
use serde_json::{Value, json};

use crate::support::{Call, Server};

/// The secret of every key of the tests.
pub(crate) const SECRET: &str = "a secret of the tests";

/// An answer, not yet read.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

/// A call of a Conductor client: no version header.
pub(crate) fn call<'a>(server: &'a Server, method: &str, path: &str) -> Call<'a> {
    let method: Method = method.parse().expect("a method");
    server.call(method, path).version(None)
}

pub(crate) async fn send(call: Call<'_>) -> Sent {
    let (parts, bytes) = call.bytes().await;
    Sent {
        status: parts.status.as_u16(),
        headers: parts.headers,
        body: String::from_utf8(bytes.to_vec()).expect("an answer in UTF-8"),
    }
}

/// Sends a call without a body.
pub(crate) async fn ask(server: &Server, method: &str, path: &str) -> Sent {
    send(call(server, method, path)).await
}

/// Sends a call with a body.
pub(crate) async fn tell(server: &Server, method: &str, path: &str, body: &Value) -> Sent {
    send(call(server, method, path).json(body)).await
}

impl Sent {
    fn content_type(&self) -> Option<&str> {
        let value = self.headers.get("content-type")?;
        Some(value.to_str().expect("a content type"))
    }

    /// Expects 200 with JSON.
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.status, 200, "{self:?}");
        assert_eq!(self.content_type(), Some("application/json"), "{self:?}");
        serde_json::from_str(&self.body).expect("JSON")
    }

    /// Expects 200 with text.
    pub(crate) fn text(&self) -> String {
        assert_eq!(self.status, 200, "{self:?}");
        assert_eq!(
            self.content_type(),
            Some("text/plain;charset=UTF-8"),
            "{self:?}"
        );
        self.body.clone()
    }

    /// Expects 200 without a body and without a content type.
    pub(crate) fn void(&self) {
        assert_eq!((self.status, self.content_type()), (200, None), "{self:?}");
        assert_eq!(self.body, "", "{self:?}");
    }

    /// Expects 204 without a body and without a content type.
    pub(crate) fn nothing(&self) {
        assert_eq!((self.status, self.content_type()), (204, None), "{self:?}");
        assert_eq!(self.body, "", "{self:?}");
    }

    /// Expects a refusal in the envelope of this plane and returns it.
    pub(crate) fn refused(&self, status: u16, reason: &str) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.content_type(), Some("application/json"), "{self:?}");
        let body: Value = serde_json::from_str(&self.body).expect("JSON");
        assert_eq!(body["status"], status, "{body}");
        assert_eq!(body["reason"], reason, "{body}");
        let message = body["message"].as_str().expect("a message");
        assert!(!message.is_empty(), "{body}");
        assert!(body["retryable"].is_boolean(), "{body}");
        // A failed validation names no server.
        assert_eq!(
            body["instance"].is_string(),
            body["validationErrors"].is_null(),
            "{body}"
        );
        assert_eq!(
            body["error"].is_string(),
            status == 401 || status == 403,
            "{body}"
        );
        body
    }
}

/// A definition with one task for workers, `greet`.
pub(crate) fn hello() -> Value {
    json!({
        "name": "hello",
        "version": 1,
        "tasks": [{
            "name": "greet",
            "taskReferenceName": "greet_ref",
            "inputParameters": {"n": "${workflow.input.n}"},
        }],
        "outputParameters": {"g": "${greet_ref.output.result}"},
    })
}

/// Registers [`hello`].
pub(crate) async fn with_hello(server: &Server) {
    tell(
        server,
        "POST",
        "/metadata/workflow?overwrite=true",
        &hello(),
    )
    .await
    .void();
}

/// Starts a run of [`hello`] and returns its id.
pub(crate) async fn start_hello(server: &Server, input: Value) -> String {
    let start = json!({"name": "hello", "input": input});
    tell(server, "POST", "/workflow", &start).await.text()
}

/// Polls one task of a type.
pub(crate) async fn poll(server: &Server, task_type: &str) -> Value {
    let path = format!("/tasks/poll/batch/{task_type}?workerid=w&count=1&timeout=100");
    let mut tasks = ask(server, "GET", &path).await.json();
    tasks.as_array_mut().expect("a list").remove(0)
}

/// The update of a polled task.
pub(crate) fn update_of(task: &Value, status: &str, output: Value) -> Value {
    json!({
        "taskId": task["taskId"],
        "workflowInstanceId": task["workflowInstanceId"],
        "workerId": "w",
        "status": status,
        "outputData": output,
    })
}

/// A server with a key for each of these: an id, roles and a namespace. `SECRET` is the secret of all of them.
pub(crate) async fn with_keys(keys: &[(&str, &[Role], Option<&str>)]) -> Server {
    let key = |(id, roles, namespace): &(&str, &[Role], Option<&str>)| {
        let namespace = namespace.map(Into::into);
        ConductorKey::new((*id).to_owned(), SECRET.to_owned(), roles, namespace)
    };
    let auth = Auth::with_tokens(None, Some("w".into()), Some("o".into()), Some("a".into()));
    let auth = auth.with_keys(keys.iter().map(key).collect());
    Server::with(auth, Options::default()).await
}

/// Requests a token for a key.
pub(crate) async fn token(server: &Server, id: &str) -> String {
    let body = json!({"keyId": id, "keySecret": SECRET});
    let answer = tell(server, "POST", "/token", &body).await.json();
    answer["token"].as_str().expect("a token").to_owned()
}
