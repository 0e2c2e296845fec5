//! What the server does for definitions by itself: HTTP calls, jq programs, values and secrets of its environment.

mod calls;
mod jq;
mod secrets;
mod service;

use serde_json::{Value, json};

use crate::serve::Server;
use crate::waiting::eventually;

/// The Conductor API of a server.
struct Api {
    http: reqwest::Client,
    url: String,
}

impl Api {
    fn of(server: &Server) -> Self {
        Self {
            http: reqwest::Client::builder().no_proxy().build().unwrap(),
            url: format!("{}/api", server.url),
        }
    }

    /// Sends a request. Returns the status and the text of the answer.
    async fn send(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, String) {
        let method = method.parse().unwrap();
        let mut request = self.http.request(method, format!("{}{path}", self.url));
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    async fn ok(&self, method: &str, path: &str, body: Option<&Value>) -> String {
        let (status, text) = self.send(method, path, body).await;
        assert!((200..300).contains(&status), "{path}: {status} {text}");
        text
    }

    /// Registers a workflow of these nodes.
    async fn define(&self, name: &str, tasks: Value) {
        let definition = json!([{"name": name, "tasks": tasks}]);
        self.ok("PUT", "/metadata/workflow", Some(&definition))
            .await;
    }

    async fn start(&self, name: &str, input: Value) -> String {
        self.ok("POST", &format!("/workflow/{name}"), Some(&input))
            .await
    }

    async fn run(&self, id: &str) -> Value {
        let text = self.ok("GET", &format!("/workflow/{id}"), None).await;
        serde_json::from_str(&text).unwrap()
    }

    /// Returns a run once it has ended.
    async fn ended(&self, id: &str) -> Value {
        eventually("the end of a run", || async {
            Some(self.run(id).await).filter(|run| run["status"] != "RUNNING")
        })
        .await
    }
}
