//! What is logged about a registration, and that no failure stops it.

use std::io::{self, Write};
use std::sync::Arc;

use parking_lot::Mutex;

use super::*;

/// Collects what is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Registers with prepared answers. Returns the requests and the log lines.
async fn logged(worker: AnyWorker, answers: &[(u16, &str)]) -> (Vec<(String, Value)>, Vec<String>) {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .without_time()
        .with_target(false)
        .with_max_level(tracing::Level::INFO)
        .with_writer(move || writer.clone())
        .finish();
    // The test has one thread, so everything that it awaits logs here.
    let logging = tracing::subscriber::set_default(subscriber);
    let sent = register(worker, answers).await;
    drop(logging);
    let text = String::from_utf8(log.0.lock().clone()).unwrap();
    (sent, text.lines().map(str::to_owned).collect())
}

fn warnings(log: &[String]) -> Vec<&String> {
    log.iter().filter(|line| line.contains("WARN")).collect()
}

#[tokio::test]
async fn a_registration_is_logged_with_the_page_of_the_definition() {
    let (_, log) = logged(charge::worker(), &[]).await;
    let last = log.last().unwrap();
    assert!(
        last.contains("INFO registered the task definition"),
        "{last}"
    );
    let page = "http://unused/taskDef/schema_charge";
    assert!(last.contains(page), "{last}");
    assert!(log[0].contains("schema_charge_input"), "{log:?}");
    assert!(warnings(&log).is_empty(), "{log:?}");

    let odd = function("a/b c", |input: Value| Ok(input)).settings(asked());
    let (_, log) = logged(odd, &[]).await;
    let page = "http://unused/taskDef/a%2Fb%20c";
    assert!(log[0].contains(page), "{log:?}");

    let (_, log) = logged(charge::worker(), &[(200, ""), (200, ""), (403, "{}")]).await;
    assert!(!log.concat().contains("taskDef/"), "{log:?}");
}

#[tokio::test]
async fn a_server_without_a_registry_gets_the_definition_without_links() {
    let (sent, log) = logged(charge::worker(), &[(404, "{}")]).await;
    assert_eq!(lines(&sent), [SCHEMA, REPLACE]);
    assert_eq!(sent[1].1, json!({"name": "schema_charge"}));
    let warnings = warnings(&log);
    assert_eq!(warnings.len(), 1, "{log:?}");
    let words = "the server has no schema registry (status 404)";
    assert!(warnings[0].contains(words), "{log:?}");
    assert!(warnings[0].contains("`register_schema`"), "{log:?}");
}

#[tokio::test]
async fn a_schema_that_is_refused_has_no_link_and_the_rest_is_registered() {
    for status in [400, 401, 403, 500, 502] {
        let (sent, log) = logged(charge::worker(), &[(status, "{}")]).await;
        assert_eq!(lines(&sent), [SCHEMA, SCHEMA, REPLACE], "{status}");
        assert!(sent[2].1.get("inputSchema").is_none(), "{status}");
        assert_eq!(
            sent[2].1["outputSchema"]["name"],
            json!("schema_charge_output"),
            "{status}"
        );
        let warnings = warnings(&log);
        assert_eq!(warnings.len(), 1, "{log:?}");
        assert!(warnings[0].contains("schema_charge_input"), "{log:?}");
    }
}

#[tokio::test]
async fn a_definition_that_is_refused_is_a_warning() {
    let answers = [(200, ""), (200, ""), (500, r#"{"message":"disk full"}"#)];
    let (sent, log) = logged(charge::worker(), &answers).await;
    assert_eq!(lines(&sent), [SCHEMA, SCHEMA, REPLACE]);
    let warnings = warnings(&log);
    assert_eq!(warnings.len(), 1, "{log:?}");
    assert!(warnings[0].contains("the worker goes on"), "{log:?}");
    assert!(warnings[0].contains("disk full"), "{log:?}");
}

#[tokio::test]
async fn a_schema_that_is_not_an_object_is_a_warning() {
    let worker = function("by_hand", |input: Value| Ok(input)).input_schema(json!([1]));
    let (sent, log) = logged(worker.settings(asked()), &[]).await;
    assert_eq!(lines(&sent), [REPLACE]);
    let warnings = warnings(&log);
    assert_eq!(warnings.len(), 1, "{log:?}");
    assert!(warnings[0].contains("by_hand_input"), "{log:?}");
    assert!(warnings[0].contains("not a JSON object"), "{log:?}");
}

/// A type that cannot describe itself.
#[derive(Serialize)]
struct Broken;

impl JsonSchema for Broken {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Broken".into()
    }

    fn json_schema(
        _generator: &mut longhaul_conductor_sdk::schemars::SchemaGenerator,
    ) -> longhaul_conductor_sdk::schemars::Schema {
        panic!("no words")
    }
}

#[tokio::test]
async fn a_type_that_panics_when_it_is_described_has_no_schema() {
    let worker = function("by_hand", |_input: Value| Ok(Broken))
        .input_schema(json!({"title": "in"}))
        .output_schema_of::<Broken>();
    let (sent, log) = logged(worker.settings(asked()), &[]).await;
    assert_eq!(lines(&sent), [SCHEMA, REPLACE]);
    assert_eq!(sent[0].1["name"], "by_hand_input");
    assert!(sent[1].1.get("outputSchema").is_none(), "{sent:?}");
    let warnings = warnings(&log);
    assert_eq!(warnings.len(), 1, "{log:?}");
    assert!(warnings[0].contains("by_hand_output"), "{log:?}");
}
