//! The meaning of each query text, and the error of each invalid one.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::run::state::Status;
use crate::visibility::Facts;

fn definitions() -> Definitions {
    [
        ("Region", Type::Keyword),
        ("Note", Type::Text),
        ("Count", Type::Int),
        ("Price", Type::Double),
        ("Vip", Type::Bool),
        ("Due", Type::Datetime),
        ("Tags", Type::KeywordList),
    ]
    .into_iter()
    .map(|(name, defined)| (name.to_owned(), defined))
    .collect()
}

fn run(attributes: &Map<String, Value>) -> Facts<'_> {
    Facts {
        workflow_type: "orders.process",
        workflow_id: "order-7",
        run_id: "01abc",
        task_queue: "orders",
        business_key: Some("Customer 42"),
        build_id: None,
        program: crate::run::state::Program::Code,
        status: Status::Waiting,
        started_at: "2026-01-02T03:04:05Z".parse().unwrap(),
        closed_at: None,
        search_attributes: attributes,
        execution: None,
    }
}

fn asked(query: &str, attributes: &Value) -> bool {
    let condition = parse(query, &definitions()).unwrap_or_else(|error| panic!("{query}: {error}"));
    condition.matches(&run(attributes.as_object().unwrap()))
}

#[test]
fn every_operator_compares_as_documented() {
    let full = json!({
        "Region": "eu", "Note": "it's \"so\" \\ ok", "Count": 5, "Price": 2.5, "Vip": true,
        "Due": "2026-01-01T02:00:00+02:00", "Tags": ["red", "round"],
    });
    for query in [
        "Region = 'eu'",
        "Region = eu",
        "Region = \"eu\"",
        "Region != 'us'",
        "NOT Region = 'us'",
        "Region IN ('us', 'eu')",
        "Region in(us,eu)",
        "NOT Region IN (us)",
        "Region NOT IN (us, 'ap')",
        "Region STARTS_WITH 'e'",
        "NOT Region STARTS_WITH 'u'",
        "Region NOT STARTS_WITH u",
        r#"Note = 'it\'s "so" \\ ok'"#,
        r#"Note = "it's \"so\" \\ ok""#,
        "Count = 5",
        "Count > -1 AND Count >= 5 AND Count < 6 AND Count <= 5 AND Count != 4",
        "Count IN (1, 5)",
        "NOT Count > 5",
        "Price = 2.5 AND Price > 2 AND Price < 99999999999999999999",
        "Vip",
        "Vip = true",
        "Vip = TRUE",
        "NOT Vip = false",
        "Due = '2026-01-01T00:00:00Z'",
        "Due = 2026-01-01T00:00:00Z",
        "Due < '2026-01-01T00:00:00.000001Z'",
        "Tags = 'red'",
        "Tags IN ('blue', 'round')",
        "WorkflowType = 'orders.process'",
        "WorkflowId = order-7",
        "RunId IN ('01abc')",
        "TaskQueue != other",
        "WorkflowId STARTS_WITH 'order-'",
        "Status = running",
        "ExecutionStatus = 'Running'",
        "Status = WAITING",
        "Status != pending",
        "NOT Status = 'completed'",
        "StartTime >= '2026-01-02T03:04:05Z'",
        "ExecutionTime IN ('2026-01-02T03:04:05Z')",
        // AND binds before OR, whatever the order.
        "Region = us AND Count = 1 OR Vip",
        "Vip OR Region = us AND Count = 1",
        "(Region = us OR Vip) AND Count = 5",
        "NOT (Region = us OR Count = 1)",
        "NOT (Region = us AND (Vip OR Count = 1))",
        "Vip and not Region = us",
    ] {
        assert!(asked(query, &full), "{query}");
        // Every predicate, even a negated one, is false on a run that does not have the field.
        if !query.contains("Workflow")
            && !query.contains("Run")
            && !query.contains("Time")
            && !query.contains("Status")
            && !query.contains("TaskQueue")
        {
            assert!(!asked(query, &json!({})), "{query} on an empty run");
        }
    }
    for query in [
        "Region = 'EU'",
        "Region != 'eu'",
        "Region STARTS_WITH 'eur'",
        "NOT Vip",
        "Vip != true",
        "Tags = 'bl'",
        "BuildId != 'x'",
        "CloseTime > '2000-01-01T00:00:00Z'",
        "NOT (Region = eu OR Count = 1)",
        "(Region = us OR Vip) AND Count = 6",
        "Status = terminated OR Status = failed",
    ] {
        assert!(!asked(query, &full), "{query}");
    }
}

#[test]
fn words_alone_are_searched_as_free_text() {
    for query in [
        "order-7",
        "RDER",
        "customer",
        "stomer 4",
        "'Customer 42'",
        "\"er-\"",
        "42",
    ] {
        assert!(asked(query, &json!({})), "{query}");
    }
    for query in [
        "order-8",
        "salt and pepper",
        "WorkflowType",
        "Vip Count",
        "not",
        "müller@example.com",
    ] {
        assert!(!asked(query, &json!({"Vip": true})), "{query}");
    }
}

/// Checks the message and the character that it names.
fn check(query: &str, at: usize, message: &str) {
    let error = parse(query, &definitions()).expect_err(query);
    assert_eq!(error.at, at, "{query}: {error}");
    assert!(error.message.contains(message), "{query}: {error}");
}

#[test]
fn every_error_names_its_position() {
    check("1=1", 1, "a field should be here");
    check("Region = ", 10, "ends where a literal should be");
    check("Region = 'eu", 10, "no closing quote");
    check("Region = 'e\\nu'", 12, "backslash");
    check("Region = eu AND", 16, "ends where a field should be");
    check("Region = eu Count = 1", 13, "AND, OR or the end");
    check("Region = eu; DROP TABLE runs", 12, "';'");
    check("Region = eu -- all", 13, "`--`");
    check("Region = eu /* all */", 13, "'/'");
    check("Region = $(id)", 10, "'$'");
    check("`id`", 1, "'`'");
    check("foo | bar", 5, "'|'");
    check("Missing = 1", 1, "neither a system field");
    check("region = 1", 1, "neither a system field");
    check("Region = 5", 10, "takes a string");
    check("Region = true", 10, "takes a string");
    check("Region > 'a'", 8, "no order");
    check("Count = '5'", 9, "unquoted integer");
    check("Count = 5.5", 9, "unquoted integer");
    check("Count = 99999999999999999999", 9, "64 bits");
    check("Count IN (1, x)", 14, "unquoted integer");
    check("Price = 1e5", 9, "unquoted number");
    check("Vip = 'true'", 7, "true or false");
    check("Vip = 1", 7, "true or false");
    check("Vip > false", 5, "no order");
    check("Due > yesterday", 7, "RFC 3339");
    check("Due > '2026-01-01'", 7, "RFC 3339");
    check("Tags != 'red'", 1, "only = and IN");
    check("NOT Tags = 'red'", 5, "only = and IN");
    check("Tags NOT IN ('red')", 1, "only = and IN");
    check("Tags STARTS_WITH 'r'", 6, "STARTS_WITH needs");
    check("Count STARTS_WITH '1'", 7, "STARTS_WITH needs");
    check("NOT Region", 5, "can be used alone");
    check("Region AND Count = 1", 1, "can be used alone");
    check("Status > running", 8, "= and !=");
    check("Status IN (running)", 8, "= and !=");
    check("Status = nonsense", 10, "a status is");
    check("NOT NOT Vip", 5, "a field should be here");
    check("Region NOT = eu", 12, "IN or STARTS_WITH");
    check("Region IN ()", 12, "a literal should be here");
    check("Region IN (eu", 14, ", or )");
    check("(Region = eu", 13, ")");
    check("Region = eu)", 12, "AND, OR or the end");
    check("Region = münchen", 10, "put it in quotes");
    check("()", 2, "a field");
    check("''", 1, "a field");
    check("", 1, "ends where a field");
    check(&"(".repeat(40), 33, "32 deep");
    check(
        &format!("Count IN ({}1)", "1,".repeat(500)),
        1011,
        "500 literals",
    );
    check(&"x".repeat(20_000), 1, "at most");
}

proptest! {
    #[test]
    fn no_text_panics(text in any::<String>()) {
        let _ = parse(&text, &definitions());
    }

    #[test]
    fn no_sequence_of_words_panics(words in prop::collection::vec(prop::sample::select(vec![
        "Region", "Count", "Vip", "Due", "Tags", "Status", "WorkflowId", "StartTime", "AND", "OR", "NOT", "IN", "STARTS_WITH",
        "(", ")", ",", "=", "!=", "<", ">=", "'eu'", "5", "-1.5", "true", "running", "2026-01-01T00:00:00Z", "'", "\\", "--", "é",
    ]), 0..24)) {
        let text = words.join(" ");
        if let Ok(condition) = parse(&text, &definitions()) {
            let attributes = json!({"Region": "eu", "Count": 5});
            condition.matches(&run(attributes.as_object().unwrap()));
        }
    }
}
