//! A service that HTTP tasks call. The test decides when it answers.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, Uri};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::waiting::DEADLINE;

/// A request that waits for its answer.
pub(super) struct Asked {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) key: String,
    pub(super) body: String,
    answer: oneshot::Sender<(u16, Value)>,
}

impl Asked {
    pub(super) fn answer(self, status: u16, body: Value) {
        // The server that asked may be gone.
        let _ = self.answer.send((status, body));
    }
}

pub(super) struct Service {
    address: SocketAddr,
    asked: mpsc::UnboundedReceiver<Asked>,
    serving: JoinHandle<()>,
}

impl Drop for Service {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Service {
    pub(super) async fn start() -> Self {
        let (ask, asked) = mpsc::unbounded_channel();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(answer).with_state(ask);
        let serving = tokio::spawn(async move {
            axum::serve(listener, router).await.unwrap();
        });
        Self {
            address,
            asked,
            serving,
        }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(super) async fn next(&mut self) -> Asked {
        let asked = timeout(DEADLINE, self.asked.recv()).await;
        asked.expect("a request in time").expect("the service runs")
    }

    /// Returns whether no request has come.
    pub(super) fn is_unasked(&mut self) -> bool {
        self.asked.try_recv().is_err()
    }
}

async fn answer(
    State(ask): State<mpsc::UnboundedSender<Asked>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let (answer, answered) = oneshot::channel();
    let key = headers
        .get("x-key")
        .map(|value| value.to_str().unwrap().to_owned());
    let _ = ask.send(Asked {
        method: method.to_string(),
        path: uri.to_string(),
        key: key.unwrap_or_default(),
        body: String::from_utf8(body.to_vec()).unwrap(),
        answer,
    });
    let (status, body) = answered.await.unwrap_or_else(|_| (500, json!("no answer")));
    let status = axum::http::StatusCode::from_u16(status).unwrap();
    let headers = [("content-type", "application/json")];
    (status, headers, body.to_string()).into_response()
}
