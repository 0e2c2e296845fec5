//! Trees of sub-workflows are opened again and removed while the server is killed. Afterwards each operation has happened or not, all
//! messages are delivered, and nothing of a removed run is left.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::{LOAD_DEADLINE, Random};
use crate::binary::longhaul;
use crate::harness::{Caller, Server};

const TREES: usize = 12;
const KILLS: usize = 8;

/// A workflow, its sub-workflow, and the sub-workflow of that.
#[derive(Clone)]
struct Tree([String; 3]);

#[derive(Clone)]
struct Plane(Caller);

impl Plane {
    /// Sends a request until it is answered. Returns the status and the body.
    async fn send(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let method = method.parse().expect("a method");
        self.0.insist(method, path, body).await
    }

    async fn expect(&self, method: &str, path: &str, body: &Value) -> Value {
        let (status, answer) = self.send(method, path, Some(body)).await;
        assert!((200..300).contains(&status), "{path}: {status} {answer}");
        answer
    }

    async fn register(&self) {
        let human = json!({"name": "h", "taskReferenceName": "h", "type": "HUMAN"});
        let sub = |name: &str| {
            json!({"name": "s", "taskReferenceName": "s", "type": "SUB_WORKFLOW", "retryCount": 0,
                "subWorkflowParam": {"name": name, "version": 1}})
        };
        let definitions = json!([
            {"name": "tree_inner", "version": 1, "tasks": [human]},
            {"name": "tree_middle", "version": 1, "tasks": [sub("tree_inner")]},
            {"name": "tree_outer", "version": 1, "tasks": [sub("tree_middle")]},
        ]);
        self.expect("PUT", "/metadata/workflow", &definitions).await;
    }

    async fn get(&self, id: &str) -> Option<Value> {
        let (status, run) = self.send("GET", &format!("/workflow/{id}"), None).await;
        assert!(status == 200 || status == 404, "{id}: {status} {run}");
        (status == 200).then_some(run)
    }

    /// Starts a tree whose innermost task failed.
    async fn failed_tree(&self, number: usize) -> Tree {
        let start = json!({"name": "tree_outer", "version": 1, "input": {},
            "idempotencyKey": format!("tree-{number}"), "idempotencyStrategy": "RETURN_EXISTING"});
        let id = self.expect("POST", "/workflow", &start).await;
        let mut ids = vec![id.as_str().expect("an id").to_owned()];
        while ids.len() < 3 {
            let run = self.get(&ids[ids.len() - 1]).await.expect("a run");
            let child = run["tasks"][0]["subWorkflowId"].as_str();
            ids.push(child.expect("a child").to_owned());
        }
        let path = format!("/tasks/{}/h/FAILED", ids[2]);
        self.expect("POST", &path, &json!({})).await;
        Tree(ids.try_into().expect("three runs"))
    }
}

/// The operations that are interrupted.
#[derive(Clone, Copy)]
enum Operation {
    RetryInner,
    RetryFromOuter,
    RestartInner,
    Remove,
}

impl Operation {
    const ALL: [Self; 4] = [
        Self::RetryInner,
        Self::RetryFromOuter,
        Self::RestartInner,
        Self::Remove,
    ];

    async fn apply(self, plane: &Plane, Tree([outer, _, inner]): &Tree) {
        let (method, path) = match self {
            Self::RetryInner => ("POST", format!("/workflow/{inner}/retry")),
            Self::RetryFromOuter => {
                let path = format!("/workflow/{outer}/retry?resumeSubworkflowTasks=true");
                ("POST", path)
            }
            Self::RestartInner => ("POST", format!("/workflow/{inner}/restart")),
            Self::Remove => ("DELETE", format!("/workflow/{outer}/terminate-remove")),
        };
        // A request whose answer was lost is sent again, and may find that it has happened.
        let (status, answer) = plane.send(method, &path, None).await;
        let is_repeated = matches!(
            answer["reason"].as_str(),
            Some("run_not_ended" | "run_not_found")
        );
        assert!(
            (200..300).contains(&status) || is_repeated,
            "{path}: {status} {answer}"
        );
    }
}

/// Returns whether the states of a tree fit together. Messages may still be on their way.
async fn is_settled(plane: &Plane, tree: &Tree, operation: Operation) -> bool {
    let Tree([outer, middle, inner]) = tree;
    let (outer, middle, inner) = (
        plane.get(outer).await,
        plane.get(middle).await,
        plane.get(inner).await,
    );
    let is = |run: &Option<Value>, status: &str, task: &str| {
        run.as_ref()
            .is_some_and(|run| run["status"] == status && run["tasks"][0]["status"] == task)
    };
    match operation {
        Operation::Remove => outer.is_none() && middle.is_some() && inner.is_some(),
        Operation::RetryInner | Operation::RetryFromOuter | Operation::RestartInner => {
            inner.is_some_and(|inner| inner["status"] == "RUNNING")
                && is(&middle, "RUNNING", "IN_PROGRESS")
                && is(&outer, "RUNNING", "IN_PROGRESS")
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reopened_and_removed_trees_survive_kills() {
    let mut random = Random::from_environment();
    let mut server = Server::start().await;
    let plane = Plane(Caller::new([server.url()]));
    plane.register().await;
    let mut trees = Vec::new();
    for number in 0..TREES {
        trees.push(plane.failed_tree(number).await);
    }
    let mut working = JoinSet::new();
    for (number, tree) in trees.iter().enumerate() {
        let operation = Operation::ALL[number % Operation::ALL.len()];
        let (plane, tree, after) = (plane.clone(), tree.clone(), random.milliseconds(0..2000));
        working.spawn(async move {
            sleep(after).await;
            operation.apply(&plane, &tree).await;
        });
    }
    for _ in 0..KILLS {
        sleep(random.milliseconds(0..300)).await;
        server.kill().await;
        sleep(random.milliseconds(0..50)).await;
        server.restart().await;
    }
    while let Some(applied) = working.join_next().await {
        applied.expect("an operation");
    }
    // Messages that a kill stopped are delivered at the latest by the alarms of their senders.
    let until = Instant::now() + LOAD_DEADLINE;
    for (number, tree) in trees.iter().enumerate() {
        let operation = Operation::ALL[number % Operation::ALL.len()];
        while !is_settled(&plane, tree, operation).await {
            assert!(
                Instant::now() < until,
                "tree {number} does not come to rest"
            );
            sleep(Duration::from_millis(50)).await;
        }
    }
    // What was opened goes on to its end.
    for (number, Tree([outer, _, inner])) in trees.iter().enumerate() {
        if let Operation::Remove = Operation::ALL[number % Operation::ALL.len()] {
            continue;
        }
        let path = format!("/tasks/{inner}/h/COMPLETED");
        plane.expect("POST", &path, &json!({})).await;
        let run = plane.get(outer).await.expect("the run is there");
        assert_eq!(run["status"], "COMPLETED", "tree {number}");
        let history = server.control().history(inner, inner).await;
        assert_eq!(history.count("ExecutionReopened"), 1, "tree {number}");
        assert_eq!(history.count("ExecutionEnded"), 2, "tree {number}");
    }
    // Nothing is left of any of them after their removal.
    for Tree(ids) in &trees {
        for id in ids {
            let path = format!("/workflow/{id}/remove");
            let (status, answer) = plane.send("DELETE", &path, None).await;
            assert!(status == 200 || status == 404, "{path}: {status} {answer}");
        }
    }
    let found = plane
        .send("GET", "/workflow/search?query=&freeText=*", None)
        .await;
    assert_eq!(found.1["totalHits"], 0);
    server.terminate().await;
    // A copy has the rows that are stored, and none of the room that deleted ones left.
    let data = server.directory().join("data");
    let copy = server.directory().join("copy");
    for arguments in [
        vec![
            "store".as_ref(),
            "check".as_ref(),
            "--data".as_ref(),
            data.as_os_str(),
        ],
        vec![
            "store".as_ref(),
            "copy".as_ref(),
            data.as_os_str(),
            copy.as_os_str(),
        ],
    ] {
        let output = longhaul()
            .args(&arguments)
            .output()
            .expect("the program starts");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }
    let mut rows = Vec::new();
    for file in std::fs::read_dir(&copy).expect("a directory") {
        let path = file.expect("a file").path();
        rows.extend(std::fs::read(path).expect("the file is readable"));
    }
    assert!(contains(&rows, "tree_outer"), "definitions are there");
    for id in trees.iter().flat_map(|tree| &tree.0) {
        assert!(!contains(&rows, id), "something is left of {id}");
    }
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes
        .windows(text.len())
        .any(|window| window == text.as_bytes())
}
