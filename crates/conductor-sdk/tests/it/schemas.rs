//! Schemas are made of the types of a worker and registered before its task definition.

mod enforced;
mod logs;
mod server;

use std::collections::BTreeMap;

use longhaul_conductor_sdk::model::{Task, TaskDef, TaskResult};
use longhaul_conductor_sdk::schemars::JsonSchema;
use longhaul_conductor_sdk::settings::CodeSettings;
use longhaul_conductor_sdk::worker::{
    AnyWorker, BlockingWorker, Outcome, TaskInProgress, TaskResponse, Worker, function,
};
use longhaul_conductor_sdk::worker_task;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::registration::register;

/// A line of an order.
#[derive(Deserialize, JsonSchema, Serialize)]
struct Line {
    article: String,
    note: Option<String>,
}

/// A program without a dependency on `schemars` names the crate of the SDK.
#[derive(JsonSchema, Serialize)]
#[schemars(crate = "longhaul_conductor_sdk::schemars")]
struct Receipt {
    cents: i64,
}

/// It can be read, but has no schema.
#[derive(Deserialize)]
struct Opaque(u8);

type MaybeText = Option<String>;

fn one() -> u32 {
    1
}

#[worker_task("schema_charge", register_task_def = true)]
async fn charge(
    order_id: String,
    lines: Vec<Line>,
    prices: BTreeMap<String, i64>,
    note: MaybeText,
    #[serde(rename = "dryRun", default)] dry_run: bool,
    #[serde(default = "one")] parcels: u32,
    any: Value,
) -> TaskResponse<Receipt> {
    let shown = lines.iter().map(|line| (&line.article, &line.note));
    let shown = json!([order_id, shown.collect::<Vec<_>>(), prices, note, any]);
    tokio::task::yield_now().await;
    let cents = if dry_run { 0 } else { shown.to_string().len() };
    Ok(Receipt {
        cents: i64::try_from(cents)? * i64::from(parcels),
    })
}

#[worker_task("schema_opaque", register_task_def = true)]
fn opaque(a: u8, opaque: Vec<Opaque>) -> u32 {
    opaque.iter().map(|opaque| u32::from(opaque.0)).sum::<u32>() + u32::from(a)
}

#[worker_task("schema_result", register_task_def = true)]
fn whole_result() -> TaskResult {
    TaskResult::default()
}

#[worker_task("schema_results", register_task_def = true)]
fn whole_result_or_failure() -> TaskResponse<TaskResult> {
    Ok(TaskResult::default())
}

#[worker_task("schema_outcome", register_task_def = true)]
fn outcome() -> TaskResponse<Outcome> {
    Ok(TaskInProgress::default().into())
}

#[worker_task("schema_progress", register_task_def = true)]
fn progress() -> TaskInProgress {
    TaskInProgress::default()
}

#[worker_task("schema_nothing", register_task_def = true)]
fn nothing() {}

#[worker_task("schema_nothing_or_failure", register_task_def = true)]
fn nothing_or_failure() -> TaskResponse<()> {
    Ok(())
}

#[worker_task("schema_hidden", register_task_def = true)]
fn hidden() -> impl Serialize {
    7
}

#[worker_task("schema_number", register_task_def = true)]
fn number() -> Result<u64, std::num::ParseIntError> {
    "7".parse()
}

fn asked() -> CodeSettings {
    CodeSettings::new().register_task_def(true)
}

/// Returns method and path of the requests.
fn lines(sent: &[(String, Value)]) -> Vec<&str> {
    sent.iter().map(|(line, _)| &**line).collect()
}

const SCHEMA: &str = "POST /api/schema";
const REPLACE: &str = "PUT /api/metadata/taskdefs";

fn charge_input(additional: bool) -> Value {
    let line = json!({
        "type": "object",
        "description": "A line of an order.",
        "properties": {
            "article": {"type": "string"},
            "note": {"type": "string", "nullable": true},
        },
        "required": ["article"],
        "additionalProperties": additional,
    });
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {
            "order_id": {"type": "string"},
            "lines": {"type": "array", "items": line},
            "prices": {"type": "object", "additionalProperties": {"type": "integer"}},
            "note": {"type": "string", "nullable": true},
            "dryRun": {"type": "boolean"},
            "parcels": {"type": "integer"},
            "any": {},
        },
        "required": ["order_id", "lines", "prices", "any"],
        "additionalProperties": additional,
    })
}

#[tokio::test]
async fn schemas_of_a_function_are_registered_before_its_definition() {
    for (strict, additional) in [(false, true), (true, false)] {
        let worker = charge::worker().settings(asked().strict_schema(strict));
        let sent = register(worker, &[]).await;
        assert_eq!(lines(&sent), [SCHEMA, SCHEMA, REPLACE]);
        assert_eq!(
            sent[0].1,
            json!({
                "name": "schema_charge_input",
                "version": 1,
                "type": "JSON",
                "data": charge_input(additional),
            })
        );
        assert_eq!(
            sent[1].1,
            json!({
                "name": "schema_charge_output",
                "version": 1,
                "type": "JSON",
                "data": {
                    "$schema": "http://json-schema.org/draft-07/schema#",
                    "type": "object",
                    "description":
                        "A program without a dependency on `schemars` names the crate of the SDK.",
                    "properties": {"cents": {"type": "integer"}},
                    "required": ["cents"],
                    "additionalProperties": additional,
                },
            })
        );
        assert_eq!(
            sent[2].1,
            json!({
                "name": "schema_charge",
                "inputSchema": {"name": "schema_charge_input", "version": 1},
                "outputSchema": {"name": "schema_charge_output", "version": 1},
            })
        );
    }
}

#[tokio::test]
async fn schemas_are_left_out_if_they_are_not_asked_for() {
    let settings = asked().register_schema(false);
    let sent = register(charge::worker().settings(settings), &[]).await;
    assert_eq!(lines(&sent), [REPLACE]);
    assert_eq!(sent[0].1, json!({"name": "schema_charge"}));
    // Without the definition there are no schemas either.
    let settings = CodeSettings::new().register_schema(true);
    let sent = register(charge::worker().settings(settings), &[]).await;
    assert!(sent.is_empty(), "{sent:?}");
}

#[tokio::test]
async fn a_parameter_without_a_schema_leaves_out_the_input_only() {
    let sent = register(opaque::worker(), &[]).await;
    assert_eq!(lines(&sent), [SCHEMA, REPLACE]);
    assert_eq!(sent[0].1["name"], "schema_opaque_output");
    let link = json!({"name": "schema_opaque_output", "version": 1});
    assert_eq!(
        sent[1].1,
        json!({"name": "schema_opaque", "outputSchema": link})
    );
}

#[tokio::test]
async fn the_output_schema_is_that_of_the_returned_value() {
    for worker in [
        whole_result::worker(),
        whole_result_or_failure::worker(),
        outcome::worker(),
        progress::worker(),
        nothing::worker(),
        nothing_or_failure::worker(),
        hidden::worker(),
    ] {
        let name = worker.task_type().to_owned();
        let sent = register(worker, &[]).await;
        assert_eq!(lines(&sent), [SCHEMA, REPLACE], "{name}");
        assert_eq!(sent[0].1["name"], format!("{name}_input"));
        assert!(sent[1].1.get("outputSchema").is_none(), "{name}");
    }
    let sent = register(number::worker(), &[]).await;
    let draft = "http://json-schema.org/draft-07/schema#";
    assert_eq!(
        sent[1].1["data"],
        json!({"$schema": draft, "type": "integer"})
    );
}

struct ByHand;

impl Worker for ByHand {
    fn task_type(&self) -> &str {
        "by_hand"
    }

    async fn execute(&self, _task: std::sync::Arc<Task>) -> TaskResponse<Outcome> {
        Outcome::output(&())
    }

    fn settings(&self) -> CodeSettings {
        asked()
    }

    fn input_schema(&self) -> Option<Value> {
        Some(json!({"title": "in"}))
    }

    fn output_schema(&self) -> Option<Value> {
        Some(json!({"title": "out"}))
    }
}

impl BlockingWorker for ByHand {
    fn task_type(&self) -> &str {
        "by_hand"
    }

    fn execute(&self, _task: &Task) -> TaskResponse<Outcome> {
        Outcome::output(&())
    }

    fn settings(&self) -> CodeSettings {
        asked()
    }

    fn input_schema(&self) -> Option<Value> {
        Some(json!({"title": "in"}))
    }

    fn output_schema(&self) -> Option<Value> {
        Some(json!({"title": "out"}))
    }
}

#[tokio::test]
async fn workers_without_the_attribute_give_their_schemas() {
    let plain = || function("by_hand", |line: Line| Ok(line)).settings(asked());
    for worker in [
        AnyWorker::new(ByHand),
        AnyWorker::blocking(ByHand),
        plain()
            .input_schema(json!({"title": "in"}))
            .output_schema(json!({"title": "out"})),
    ] {
        let sent = register(worker, &[]).await;
        assert_eq!(lines(&sent), [SCHEMA, SCHEMA, REPLACE]);
        assert_eq!(sent[0].1["data"], json!({"title": "in"}));
        assert_eq!(sent[1].1["data"], json!({"title": "out"}));
    }
    let typed = plain().input_schema_of::<Line>().output_schema_of::<Line>();
    let sent = register(typed.settings(asked().strict_schema(true)), &[]).await;
    for schema in [&sent[0].1, &sent[1].1] {
        assert_eq!(schema["data"]["required"], json!(["article"]));
        assert_eq!(schema["data"]["additionalProperties"], json!(false));
    }
    // Without schemas the definition has no links.
    let sent = register(plain(), &[]).await;
    assert_eq!(lines(&sent), [REPLACE]);
    assert_eq!(sent[0].1, json!({"name": "by_hand"}));
}

#[tokio::test]
async fn a_template_is_not_changed_and_its_links_are_kept_unless_schemas_are_registered() {
    let link = |name: &str| json!({"name": name, "version": 3});
    let template: TaskDef = serde_json::from_value(json!({
        "name": "template",
        "retryCount": 7,
        "inputSchema": link("mine"),
        "outputSchema": link("mine"),
    }))
    .unwrap();
    let worker = opaque::worker().task_definition(template);
    let sent = register(worker.clone(), &[]).await;
    let definition = &sent[1].1;
    assert_eq!(definition["name"], "schema_opaque");
    assert_eq!(definition["retryCount"], 7);
    assert_eq!(definition["inputSchema"], link("mine"));
    let output = json!({"name": "schema_opaque_output", "version": 1});
    assert_eq!(definition["outputSchema"], output);
    // A second registration of the same worker sends the same.
    assert_eq!(register(worker, &[]).await, sent);
}

#[tokio::test]
async fn without_overwriting_schemas_and_definitions_that_exist_are_kept() {
    let worker = || charge::worker().settings(asked().overwrite_task_def(false));
    let sent = register(worker(), &[(200, r#"{"name":"schema_charge"}"#)]).await;
    assert_eq!(lines(&sent), ["GET /api/metadata/taskdefs/schema_charge"]);

    // The input schema exists, the output schema does not.
    let exists = r#"{"name":"schema_charge_input","version":1}"#;
    let sent = register(worker(), &[(404, "{}"), (200, exists), (404, "{}")]).await;
    assert_eq!(
        lines(&sent),
        [
            "GET /api/metadata/taskdefs/schema_charge",
            "GET /api/schema/schema_charge_input/1",
            "GET /api/schema/schema_charge_output/1",
            SCHEMA,
            "POST /api/metadata/taskdefs",
        ]
    );
    assert_eq!(sent[3].1["name"], "schema_charge_output");
    let definition = &sent[4].1[0];
    assert_eq!(definition["inputSchema"]["name"], "schema_charge_input");
    assert_eq!(definition["outputSchema"]["name"], "schema_charge_output");
}
