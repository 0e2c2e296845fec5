//! A client of several servers over plain HTTP. It sends each request to the next server, and repeats a request until a server answers
//! it, as a careful client of a cluster does.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use reqwest::Method;
use serde_json::Value;
use tokio::time::{Instant, sleep};

/// A stopped server accepts connections and never answers. Longer than any request that these tests send should take.
const ANSWER_DEADLINE: Duration = Duration::from_secs(4);

/// No outage of a test lasts this long.
const DEADLINE: Duration = Duration::from_secs(120);

/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

/// Answers without an outcome: from a balancer that lost its server, or from a server that cannot reach its database.
const NO_OUTCOME: [u16; 3] = [502, 503, 504];

/// A client of the servers with these addresses.
#[derive(Clone)]
pub(crate) struct Caller {
    http: reqwest::Client,
    urls: Arc<RwLock<Vec<String>>>,
    next: Arc<AtomicUsize>,
}

impl Caller {
    pub(crate) fn new<'a>(urls: impl IntoIterator<Item = &'a str>) -> Self {
        let http = reqwest::Client::builder()
            .no_proxy()
            .timeout(ANSWER_DEADLINE)
            .build()
            .expect("a client");
        let caller = Self {
            http,
            urls: Arc::default(),
            next: Arc::default(),
        };
        caller.use_servers(urls);
        caller
    }

    /// Sends the next requests of all copies of this client to these servers.
    pub(crate) fn use_servers<'a>(&self, urls: impl IntoIterator<Item = &'a str>) {
        let urls = urls.into_iter().map(str::to_owned).collect();
        *self.urls.write().unwrap_or_else(PoisonError::into_inner) = urls;
    }

    fn next_url(&self) -> String {
        let urls = self.urls.read().unwrap_or_else(PoisonError::into_inner);
        urls[self.next.fetch_add(1, Ordering::Relaxed) % urls.len()].clone()
    }

    /// Sends a request once, to the next server. Returns the status and the body as JSON, or as text if it is not JSON.
    pub(crate) async fn try_once(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(u16, Value), reqwest::Error> {
        let (header, version) = if path.starts_with("/worker/") {
            ("X-Durable-Workflow-Protocol-Version", "1.20")
        } else {
            ("X-Durable-Workflow-Control-Plane-Version", "2")
        };
        let url = format!("{}/api{path}", self.next_url());
        let mut request = self.http.request(method, url).header(header, version);
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = request.send().await?;
        let status = answer.status().as_u16();
        let text = answer.text().await?;
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Ok((status, body))
    }

    /// Sends a request until it has an outcome. The path is below `/api`.
    pub(crate) async fn insist(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> (u16, Value) {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let answer = self.try_once(method.clone(), path, body).await;
            if let Ok(answer) = &answer
                && !NO_OUTCOME.contains(&answer.0)
            {
                return answer.clone();
            }
            assert!(
                Instant::now() < deadline,
                "{path} is not answered: {answer:?}"
            );
            sleep(PAUSE).await;
        }
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        self.insist(Method::GET, path, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.insist(Method::POST, path, Some(body)).await
    }
}
