//! Tokens that one server gave and another one gets: behind a balancer, and after a restart. Tokens of pages contain a place in a list
//! and are not signed. Tokens of Conductor clients are signed with a key that is derived from the configured secret. So no server has
//! a key of its own.

use std::sync::Arc;

use longhaul_host::Config;
use longhaul_server::Options;
use longhaul_server::auth::{Auth, ConductorKey, Role};
use longhaul_store::Store;
use longhaul_store::memory::Memory;
use longhaul_store::sqlite::Sqlite;
use serde_json::Value;

use crate::conductor::support::{SECRET, call, send, token};
use crate::support::Server;

/// Returns a server with a bearer token `o` and a key `k`, as the operator of all servers configured them.
async fn server(store: Arc<dyn Store>) -> Server {
    let key = ConductorKey::new("k".to_owned(), SECRET.to_owned(), &[Role::Operator], None);
    let auth = Auth::with_tokens(None, None, Some("o".to_owned()), None).with_keys(vec![key]);
    Server::on(store, Config::default(), auth, Options::default()).await
}

async fn read(server: &Server, path: &str) -> Value {
    server.get(path).token("o").accepted(200).await
}

/// The tokens that a server gave, and the paths that continue with them.
struct Given {
    pages: Vec<(String, &'static str, usize)>,
    conductor: String,
}

impl Given {
    /// Starts three workflows and reads the first page of each list.
    async fn by(server: &Server) -> Self {
        for workflow_id in ["a", "b", "c"] {
            let body = serde_json::json!({"workflow_id": workflow_id, "workflow_type": "greet"});
            let start = server.post("/workflows", &body).token("o");
            start.accepted(201).await;
        }
        let run = read(server, "/workflows/a").await;
        let run_id = run["run_id"].as_str().expect("a run");
        let history = format!("/workflows/a/runs/{run_id}/history");
        let mut pages = Vec::new();
        for (path, field, rest) in [("/workflows", "workflows", 2), (&*history, "events", 1)] {
            let page = read(server, &format!("{path}?page_size=1")).await;
            let next = page["next_page_token"].as_str().expect("a token");
            let next: String = form_urlencoded::byte_serialize(next.as_bytes()).collect();
            let path = format!("{path}?page_size=10&next_page_token={next}");
            pages.push((path, field, rest));
        }
        Self {
            pages,
            conductor: token(server, "k").await,
        }
    }

    async fn are_accepted_by(&self, server: &Server) {
        for (path, field, rest) in &self.pages {
            let page = read(server, path).await;
            let rows = page[field].as_array().expect("rows");
            assert!(rows.len() >= *rest, "{path}: {page}");
        }
        let request = call(server, "GET", "/metadata/workflow");
        let answer = send(request.header("x-authorization", &self.conductor)).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(!answer.body.contains(SECRET), "{answer:?}");
    }
}

#[tokio::test]
async fn tokens_of_one_server_are_accepted_by_another() {
    let store = Arc::new(Memory::new());
    let first = server(store.clone()).await;
    let second = server(store).await;
    let given = Given::by(&first).await;
    given.are_accepted_by(&first).await;
    given.are_accepted_by(&second).await;
}

#[tokio::test]
async fn tokens_are_accepted_after_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("longhaul.db");
    let open = || Arc::new(Sqlite::open(&path).expect("a store"));
    let before = server(open()).await;
    let given = Given::by(&before).await;
    before.host.stop().await;
    drop(before);
    given.are_accepted_by(&server(open()).await).await;
}
