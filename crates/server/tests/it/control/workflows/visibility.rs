//! Queries on the list of workflows, and pages while runs start and close.

use std::collections::BTreeSet;
use std::sync::Arc;

use http::Method;
use longhaul_host::Config;
use longhaul_server::Options;
use longhaul_server::auth::Auth;
use longhaul_store::sqlite::Sqlite;
use serde_json::{Value, json};

use crate::support::{Call, Server, texts};

/// A list request with a query and more parameters.
fn asking<'a>(server: &'a Server, query: &str, more: &str) -> Call<'a> {
    let query: String = form_urlencoded::byte_serialize(query.as_bytes()).collect();
    server.get(&format!("/workflows?query={query}{more}"))
}

async fn found(server: &Server, query: &str) -> Vec<String> {
    let page = asking(server, query, "").accepted(200).await;
    let mut ids: Vec<String> = texts(&page["workflows"], "workflow_id")
        .into_iter()
        .map(str::to_owned)
        .collect();
    ids.sort();
    ids
}

async fn defined() -> Server {
    define(Server::open().await).await
}

/// A server on SQLite. The directory is deleted when it is dropped.
async fn defined_on_disk() -> (Server, tempfile::TempDir) {
    let directory = tempfile::tempdir().expect("a directory");
    let options = longhaul_store::sqlite::Options {
        sync: longhaul_store::sqlite::Sync::Never,
        ..longhaul_store::sqlite::Options::new(directory.path().join("longhaul.db"))
    };
    let store = Sqlite::open_with(options).expect("a store");
    let server = Server::on(
        Arc::new(store),
        Config::default(),
        Auth::open(),
        Options::default(),
    )
    .await;
    (define(server).await, directory)
}

async fn define(server: Server) -> Server {
    for (name, word) in [
        ("Region", "keyword"),
        ("Count", "int"),
        ("Vip", "bool"),
        ("Tags", "keyword_list"),
    ] {
        let body = json!({"name": name, "type": word});
        server.post("/search-attributes", &body).accepted(201).await;
    }
    server
}

async fn start(server: &Server, id: &str, attributes: Value) -> String {
    let body =
        json!({"workflow_id": id, "workflow_type": "greet", "search_attributes": attributes});
    server.start_with(body).await
}

#[tokio::test]
async fn a_query_returns_exactly_the_matching_runs() {
    let server = defined().await;
    start(
        &server,
        "a",
        json!({"Region": "eu", "Count": 1, "Tags": ["x", "y"]}),
    )
    .await;
    start(
        &server,
        "b",
        json!({"Region": "us", "Count": 2, "Vip": true}),
    )
    .await;
    start(&server, "c", json!({"Region": "eu", "Count": 3})).await;
    start(&server, "d", json!({})).await;
    server
        .call(Method::POST, "/workflows/c/terminate")
        .json(&json!({}))
        .accepted(200)
        .await;
    for (query, expected) in [
        ("Region = 'eu'", vec!["a", "c"]),
        ("Region != 'eu'", vec!["b"]),
        ("Region = 'eu' AND Status = 'running'", vec!["a"]),
        ("Region = us OR Region = eu AND Count >= 3", vec!["b", "c"]),
        ("NOT (Region = us OR Count >= 3)", vec!["a"]),
        ("Tags = x", vec!["a"]),
        ("Vip", vec!["b"]),
        ("Region STARTS_WITH 'u'", vec!["b"]),
        ("Status = terminated", vec!["c"]),
        ("CloseTime >= '2026-01-01T00:00:00Z'", vec!["c"]),
        ("StartTime > '2026-01-01T00:00:00Z'", vec![]),
        ("WorkflowType = greet AND Count IN (1, 2)", vec!["a", "b"]),
        ("d", vec!["d"]),
        ("   ", vec!["a", "b", "c", "d"]),
    ] {
        assert_eq!(found(&server, query).await, expected, "{query}");
    }
    // The other filters narrow it further.
    let page = asking(&server, "Region = eu", "&status=failed&workflow_type=greet")
        .accepted(200)
        .await;
    assert_eq!(texts(&page["workflows"], "workflow_id"), ["c"]);
}

#[tokio::test]
async fn a_malformed_query_is_refused_with_the_position() {
    let server = defined().await;
    start(&server, "a", json!({"Region": "eu"})).await;
    for (query, message) in [
        (
            "Region = 5",
            "`Region` is keyword and takes a string, quoted when it looks like a number or a flag (at character 10)",
        ),
        ("Count = 'x'", "(at character 9)"),
        ("Missing = 1", "(at character 1)"),
        ("1=1", "(at character 1)"),
        ("Region = 'eu", "no closing quote (at character 10)"),
        ("Region = eu; DROP TABLE runs", "(at character 12)"),
        ("Region = eu' OR '1'='1", "(at character 12)"),
        ("Region = eu -- x", "(at character 13)"),
        ("Tags != x", "(at character 1)"),
        ("Status = nonsense", "(at character 10)"),
    ] {
        let refused = asking(&server, query, "")
            .refused(422, "validation_failed")
            .await;
        let said = refused["errors"]["query"][0].as_str().unwrap();
        assert!(said.contains(message), "{query}: {said}");
        assert_eq!(refused["control_plane"]["operation"], "list");
    }
    assert_eq!(found(&server, "Region = eu").await, ["a"]);
    // All mistakes are reported together.
    let wrong = asking(
        &server,
        "Region =",
        "&status=odd&page_size=0&next_page_token=x",
    )
    .invalid()
    .await;
    assert_eq!(wrong, ["next_page_token", "page_size", "query", "status"]);
}

#[tokio::test]
async fn an_undefined_name_is_refused_even_if_runs_have_it() {
    let server = Server::open().await;
    start(&server, "a", json!({"Region": "eu"})).await;
    assert_eq!(
        asking(&server, "Region = eu", "").invalid().await,
        ["query"]
    );
    let body = json!({"name": "Region", "type": "keyword"});
    server.post("/search-attributes", &body).accepted(201).await;
    // Runs that carried it before are found from now on.
    assert_eq!(found(&server, "Region = eu").await, ["a"]);
    server
        .call(Method::DELETE, "/search-attributes/Region")
        .accepted(200)
        .await;
    assert_eq!(
        asking(&server, "Region = eu", "").invalid().await,
        ["query"]
    );
}

#[tokio::test]
async fn another_namespace_is_never_found_and_none_means_the_default() {
    let server = defined().await;
    server
        .post("/namespaces", &json!({"name": "other"}))
        .accepted(201)
        .await;
    let body = json!({"name": "Region", "type": "keyword"});
    server
        .post("/search-attributes", &body)
        .namespace("other")
        .accepted(201)
        .await;
    let body = json!({"workflow_id": "theirs", "workflow_type": "greet", "search_attributes": {"Region": "eu"}});
    server
        .post("/workflows", &body)
        .namespace("other")
        .accepted(201)
        .await;
    start(&server, "ours", json!({"Region": "eu"})).await;
    assert_eq!(found(&server, "Region = eu").await, ["ours"]);
    assert_eq!(found(&server, "WorkflowId = theirs").await, [""; 0]);
    let theirs = asking(&server, "Region = eu", "")
        .namespace("other")
        .accepted(200)
        .await;
    assert_eq!(texts(&theirs["workflows"], "workflow_id"), ["theirs"]);
    // An attribute of one namespace is unknown in the other.
    let refused = asking(&server, "Count = 1", "")
        .namespace("other")
        .invalid()
        .await;
    assert_eq!(refused, ["query"]);
}

#[tokio::test]
async fn what_workflow_code_sets_is_found_at_once() {
    let server = defined().await;
    server.register("w", json!({})).await;
    start(&server, "a", json!({"Region": "eu", "Count": 1})).await;
    let upsert =
        |attributes: Value| json!([{"type": "upsert_search_attributes", "attributes": attributes}]);
    // A name that is not defined is taken from workflow code.
    server
        .worker("w")
        .decide(upsert(
            json!({"Region": "us", "Count": null, "Stage": "packing"}),
        ))
        .await;
    assert_eq!(found(&server, "Region = us").await, ["a"]);
    assert_eq!(found(&server, "Region = eu OR Count = 1").await, [""; 0]);
    // A value against a definition is refused whole.
    let task = server.worker("w").workflow_task().await;
    let path = format!(
        "/workflow-tasks/{}/complete",
        task["task_id"].as_str().unwrap()
    );
    let body = |commands: Value| json!({"lease_owner": "w", "workflow_task_attempt": task["workflow_task_attempt"], "commands": commands});
    let wrong = json!([
        {"type": "upsert_search_attributes", "attributes": {"Region": "ap"}},
        {"type": "upsert_search_attributes", "attributes": {"Count": "many"}},
    ]);
    let refused = server
        .worker_post(&path, &body(wrong))
        .refused(422, "invalid_commands")
        .await;
    let said = &refused["validation_errors"]["commands.1.attributes.Count"];
    assert!(
        said[0]
            .as_str()
            .unwrap()
            .contains("defined in this namespace as int"),
        "{refused}"
    );
    assert_eq!(found(&server, "Region = us").await, ["a"]);
    // The lease is still valid, and the worker may send a corrected completion.
    server
        .worker_post(&path, &body(upsert(json!({"Count": 5}))))
        .accepted(200)
        .await;
    assert_eq!(found(&server, "Count = 5").await, ["a"]);
}

#[tokio::test]
async fn expressions_are_exact_over_a_thousand_runs() {
    let (server, _directory) = defined_on_disk().await;
    for number in 0..1000_i64 {
        let region = ["eu", "us", "ap"][usize::try_from(number % 3).unwrap()];
        start(
            &server,
            &format!("w{number:04}"),
            json!({"Region": region, "Count": number, "Vip": number % 7 == 0}),
        )
        .await;
    }
    let mut seen = BTreeSet::new();
    let mut more = "&page_size=200".to_owned();
    let query = "Region = eu AND Count >= 100 AND NOT Vip OR Count = 1";
    loop {
        let page = asking(&server, query, &more).accepted(200).await;
        for id in texts(&page["workflows"], "workflow_id") {
            assert!(seen.insert(id[1..].parse::<i64>().unwrap()), "{id} twice");
        }
        let Some(token) = page["next_page_token"].as_str() else {
            break;
        };
        more = format!("&page_size=200&next_page_token={token}");
    }
    let expected: BTreeSet<i64> = (0..1000)
        .filter(|number| number % 3 == 0 && *number >= 100 && number % 7 != 0 || *number == 1)
        .collect();
    assert_eq!(seen, expected);
}

/// Runs start and close between pages. Each run is shown at most once, and no run that existed all along is missed.
#[tokio::test]
async fn pages_are_stable_while_runs_start_and_close() {
    for (query, stays) in [
        ("", true),
        ("Region = eu", true),
        ("Region = eu AND Status = running", false),
    ] {
        let (server, _directory) = defined_on_disk().await;
        for number in 0..30 {
            if number % 4 == 0 {
                server.clock.advance_seconds(1);
            }
            start(&server, &format!("old{number:02}"), json!({"Region": "eu"})).await;
        }
        let (mut seen, mut closed, mut more) =
            (Vec::new(), BTreeSet::new(), "&page_size=4".to_owned());
        for step in 0.. {
            let page = asking(&server, query, &more).accepted(200).await;
            seen.extend(
                texts(&page["workflows"], "workflow_id")
                    .into_iter()
                    .map(str::to_owned),
            );
            let Some(token) = page["next_page_token"].as_str() else {
                break;
            };
            assert!(!more.ends_with(token), "a token never repeats");
            more = format!("&page_size=4&next_page_token={token}");
            if step % 2 == 0 {
                server.clock.advance_seconds(1);
            }
            start(&server, &format!("new{step:02}"), json!({"Region": "eu"})).await;
            let id = format!("old{:02}", step * 3 % 30);
            server
                .call(Method::POST, &format!("/workflows/{id}/terminate"))
                .json(&json!({}))
                .accepted(200)
                .await;
            closed.insert(id);
        }
        let shown: BTreeSet<&String> = seen.iter().collect();
        assert_eq!(shown.len(), seen.len(), "{query}: a run was shown twice");
        for number in 0..30 {
            let id = format!("old{number:02}");
            if stays || !closed.contains(&id) {
                assert!(shown.contains(&id), "{query}: {id} is missing");
            }
        }
    }
}

#[tokio::test]
async fn tokens_of_other_lists_are_refused() {
    let server = Server::open().await;
    start(&server, "a", json!({})).await;
    for token in ["x", "AAAA", "MTIz", "%00", "MS4", "LTEuYQ%3D%3D"] {
        let path = format!("/workflows?query=a&next_page_token={token}");
        assert_eq!(
            server.get(&path).invalid().await,
            ["next_page_token"],
            "{token}"
        );
    }
}

/// Like the test before, with writers that run at the same time.
#[tokio::test]
async fn pages_are_stable_beside_concurrent_writers() {
    let (server, _directory) = defined_on_disk().await;
    let there: BTreeSet<String> = (0..40).map(|number| format!("there{number:02}")).collect();
    for id in &there {
        start(&server, id, json!({"Region": "eu"})).await;
    }
    let write = async {
        for number in 0..60 {
            server.clock.advance_seconds(number % 2);
            let id = format!("new{number:02}");
            start(&server, &id, json!({"Region": "eu"})).await;
            let path = format!("/workflows/{id}/terminate");
            server
                .call(Method::POST, &path)
                .json(&json!({}))
                .accepted(200)
                .await;
        }
    };
    let read = async {
        for _ in 0..6 {
            let (mut seen, mut more) = (Vec::new(), "&page_size=7".to_owned());
            loop {
                let page = asking(&server, "Region = eu", &more).accepted(200).await;
                let ids = texts(&page["workflows"], "workflow_id");
                seen.extend(ids.into_iter().map(str::to_owned));
                let Some(token) = page["next_page_token"].as_str() else {
                    break;
                };
                more = format!("&page_size=7&next_page_token={token}");
            }
            let shown: BTreeSet<String> = seen.iter().cloned().collect();
            assert_eq!(shown.len(), seen.len(), "a run was shown twice");
            assert!(shown.is_superset(&there), "a run is missing");
        }
    };
    tokio::join!(write, read);
}

#[tokio::test]
async fn the_next_run_and_a_child_carry_the_attributes_and_are_found() {
    let (server, _directory) = defined_on_disk().await;
    server.register("w", json!({})).await;
    let run_id = start(&server, "a", json!({"Region": "eu"})).await;
    let child =
        json!({"type": "start_child_workflow", "workflow_type": "greet", "queue": "elsewhere"});
    let upsert = json!({"type": "upsert_search_attributes", "attributes": {"Count": 4}});
    server.worker("w").decide(json!([upsert, child])).await;
    let all = asking(&server, "Region = eu AND Count = 4", "")
        .accepted(200)
        .await;
    let mut types = texts(&all["workflows"], "task_queue");
    types.sort_unstable();
    assert_eq!(types, ["default", "elsewhere"], "{all}");
    server.start("b").await;
    server
        .worker("w")
        .decide(json!([
            {"type": "upsert_search_attributes", "attributes": {"Region": "us", "Tags": ["x"]}},
            {"type": "continue_as_new"},
        ]))
        .await;
    let all = asking(&server, "Region = us AND Tags = x", "")
        .accepted(200)
        .await;
    assert_eq!(texts(&all["workflows"], "workflow_id"), ["b", "b"], "{all}");
    let closed = asking(&server, "Tags = x AND Status = completed", "")
        .accepted(200)
        .await;
    assert_eq!(closed["workflow_count"], 1);
    assert_ne!(closed["workflows"][0]["run_id"], json!(run_id));
}
