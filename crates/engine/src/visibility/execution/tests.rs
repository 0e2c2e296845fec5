//! The meaning of each query text, the error of each invalid one, and the order of results.

use longhaul_protocol::Timestamp;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};

use super::*;
use crate::run::state::{Program, Status};
use crate::visibility::{Condition, QueryError};

/// A moment with microseconds: queries have milliseconds.
const STARTED: i64 = 1_767_323_045_123_456;

struct Sample {
    execution: Execution,
    status: WorkflowStatus,
    parent: Option<&'static str>,
    closed_at: Option<Timestamp>,
    input: Stored,
    attributes: Map<String, Value>,
}

fn sample() -> Sample {
    let execution = json!({
        "version": 2,
        "snapshot": "hash",
        "correlation_id": "c-1",
        "priority": 5,
        "last_seq": 0,
        "open_tasks": 0,
        "reason": "It's \"broken\"",
        "failed_references": "charge,ship",
        "updated_at": Timestamp::from_micros(STARTED + 2_000_000),
    });
    Sample {
        execution: serde_json::from_value(execution).unwrap(),
        status: WorkflowStatus::Completed,
        parent: None,
        closed_at: Some(Timestamp::from_micros(STARTED + 3_000_000)),
        input: Stored::Inline(std::sync::Arc::new(json!({"Customer": "Ann", "n": [1, 2]}))),
        attributes: Map::new(),
    }
}

impl Sample {
    fn facts<'a>(&'a self, run_id: &'a str, started: i64) -> Facts<'a> {
        Facts {
            workflow_type: "order_flow",
            workflow_id: run_id,
            run_id,
            task_queue: "",
            business_key: None,
            build_id: None,
            program: Program::Definition,
            status: Status::Completed,
            started_at: Timestamp::from_micros(started),
            closed_at: self.closed_at,
            search_attributes: &self.attributes,
            execution: Some(ExecutionFacts {
                status: self.status,
                execution: &self.execution,
                parent_id: self.parent,
                input: Some(&self.input),
                output: None,
            }),
        }
    }

    fn matches(&self, query: &str) -> bool {
        let condition = parse_search(query).unwrap_or_else(|error| panic!("{query}: {error}"));
        condition.matches(&self.facts("w-1", STARTED))
    }
}

#[test]
fn every_operator_compares_as_documented() {
    let sample = sample();
    for query in [
        "workflowId='w-1'",
        "workflowId=\"w-1\"",
        "workflowId = w-1",
        "workflowType='order_flow' AND status='COMPLETED'",
        "workflowType IN (order_flow) AND status IN (COMPLETED)",
        "workflowType IN ('x', \"order_flow\")",
        "workflowType in(x,order_flow)",
        "workflowType = 'ORDER*'",
        "workflowType = *flow",
        "workflowType IN (x, o*w)",
        "workflowType != 'refund*'",
        "workflowType STARTS_WITH 'order'",
        "workflowType > a",
        "workflowType BETWEEN 'a' AND 'z'",
        "version = 2",
        "version = '2'",
        "version IN (1, 2)",
        "version>=2 and version<3",
        "version BETWEEN 1 AND 2 AND priority > 4.5",
        "status = completed",
        "status = 'COMP*'",
        "status != RUNNING",
        "status STARTS_WITH COM",
        "status IS not null",
        "correlationId='c-1' AND workflowType='order_flow'",
        "startTime = 1767323045123",
        "startTime >= 1767323045123 AND startTime <= 1767323045123",
        "startTime < 1767323045124",
        "startTime > '1767323045122'",
        "startTime != 1767323045122",
        "startTime IN (1, 1767323045123)",
        "startTime BETWEEN 1767323045123 AND 1767323045123",
        "startTime = '2026-01-02T03:04:05.123Z'",
        "endTime > 1767323045123",
        "endTime IS NOT NULL",
        "updateTime = 1767323047123",
        "parentWorkflowId = \"\"",
        "parentWorkflowId IS null",
        "createdBy IS null AND idempotencyKey IS NULL AND event IS null",
        "classifier = 'workflow'",
        "reasonForIncompletion = 'It\\'s \"broken\"'",
        "reasonForIncompletion = '*broken*'",
        "failedReferenceTaskNames = 'charge,ship'",
        "failedReferenceTaskNames = '*ship*'",
        "failedReferenceTaskNames IS not null",
        // AND binds tighter.
        "version = 2 OR version = 3 AND version = 4",
        "(version = 3 OR version = 2) AND priority = 5",
    ] {
        assert!(sample.matches(query), "{query}");
    }
    for query in [
        "workflowId='w-2'",
        "workflowType = 'Order_flow'",
        "workflowType = 'order*x'",
        "workflowType != '*'",
        "version != 2",
        "(version = 2 OR version = 3) AND version = 4",
        "status = PAUSED",
        "status IS null",
        "startTime > 1767323045123",
        "startTime < 1767323045123",
        "startTime != 1767323045123",
        "createdBy = 'x'",
        // A comparison is never true for a run without the field.
        "createdBy != 'x'",
        "event != x",
        "event IS not null",
        "parentWorkflowId IS not null",
        "priority BETWEEN 6 AND 9",
        "failedReferenceTaskNames = ship",
    ] {
        assert!(!sample.matches(query), "{query}");
    }
    let open = Sample {
        closed_at: None,
        parent: Some("p-1"),
        ..sample
    };
    assert!(open.matches("endTime IS null AND parentWorkflowId = p-1"));
    assert!(!open.matches("endTime < 9999999999999999"));
}

#[test]
fn an_invalid_query_names_its_mistake_and_the_place() {
    let deep = format!("{}version = 1{}", "(".repeat(33), ")".repeat(33));
    let many = format!("version IN ({}1)", "1,".repeat(500));
    let long = format!("workflowType = '{}'", "x".repeat(17 << 10));
    let stars = format!("workflowType = '{}'", "*a".repeat(17));
    for (query, at, contains) in [
        ("workflowTyp = 'x'", 1, "`workflowTyp` is not a field"),
        (
            "version = 1 AND colour = red",
            17,
            "`colour` is not a field",
        ),
        ("version", 8, "ends where an operator"),
        ("version 1", 9, "an operator"),
        ("version =", 10, "ends where a value"),
        ("version = x", 11, "takes a number"),
        ("version STARTS_WITH 1", 1, "is a number"),
        ("startTime = yesterday", 13, "takes milliseconds"),
        ("startTime STARTS_WITH 1", 1, "is a time"),
        ("status = DONE", 10, "a status is one of RUNNING, PAUSED"),
        ("status > RUNNING", 1, "with =, != and IN"),
        ("status IN ()", 12, "a value"),
        ("status IN (RUNNING", 19, ", or )"),
        ("status IN RUNNING", 11, "("),
        ("version BETWEEN 1", 18, "AND and the upper bound"),
        ("version IS 5", 12, "null or not null"),
        ("version = 1 version = 2", 13, "AND, OR or the end"),
        ("version = 1 AND", 16, "ends where a field"),
        ("(version = 1", 13, "ends where )"),
        ("version = 1)", 12, "AND, OR or the end"),
        ("= 1", 1, "a field"),
        ("'version' = 1", 1, "a field"),
        ("workflowType = 'x", 16, "no closing quote"),
        ("a ! b", 3, "not part of a query"),
        (&deep, 33, "32 deep"),
        (&many, 1013, "at most 500 values"),
        (&long, 1, "at most 16384 bytes"),
        (&stars, 16, "at most 16 stars"),
    ] {
        let error = parse_search(query).unwrap_err();
        assert!(error.message.contains(contains), "{query:.60}: {error}");
        assert_eq!(error.at, at, "{query:.60}: {error}");
    }
}

#[test]
fn free_text_is_found_in_every_value_of_the_summary() {
    let sample = sample();
    let found = |text: &str| {
        let condition = free_text(text).unwrap();
        condition.is_none_or(|condition| condition.matches(&sample.facts("w-1", STARTED)))
    };
    for text in [
        "",
        "*",
        " ** ",
        "W-1",
        "order_FLOW",
        "complet",
        "c-1",
        "broken",
        "ship",
        "workflow",
        "ann",
        "\"n\":[1,2]",
    ] {
        assert!(found(text), "{text}");
    }
    for text in ["bob", "order*", "w-2"] {
        assert!(!found(text), "{text}");
    }
    assert!(free_text(&"x".repeat(17 << 10)).is_err());
}

#[test]
fn a_sort_order_has_several_fields_and_ignores_unknown_ones() {
    let keys = |text: &str| parse_sort(text).unwrap().keys;
    assert_eq!(keys("").len(), 0);
    assert_eq!(keys("nothing:ASC|whatever:DESC"), []);
    assert!(parse_sort("startTime:DESC").unwrap().is_newest_first());
    assert!(parse_sort("").unwrap().is_newest_first());
    assert!(!parse_sort("startTime").unwrap().is_newest_first());
    let error = |text: &str| parse_sort(text).unwrap_err();
    assert_eq!(error("version:ASC|status:UP").at, 13);
    assert!(parse_sort(&"version:ASC|".repeat(17)).is_err());

    let first = sample();
    let mut second = sample();
    second.execution.version = 3;
    second.closed_at = None;
    second.status = WorkflowStatus::Running;
    for (sort, expected) in [
        ("version:ASC", std::cmp::Ordering::Less),
        ("version:desc", std::cmp::Ordering::Greater),
        (
            "correlationId:ASC|version:DESC",
            std::cmp::Ordering::Greater,
        ),
        ("status", std::cmp::Ordering::Less),
        // Runs without the field come first.
        ("endTime:ASC", std::cmp::Ordering::Greater),
        // Newest first where nothing else decides.
        ("priority:ASC", std::cmp::Ordering::Greater),
        ("", std::cmp::Ordering::Greater),
    ] {
        let order = parse_sort(sort).unwrap();
        let (left, right) = (first.facts("a", STARTED), second.facts("b", STARTED + 1));
        assert_eq!(order.compare(&left, &right), expected, "{sort}");
        assert_eq!(order.compare(&right, &left), expected.reverse(), "{sort}");
    }
}

/// Text that looks like a query.
fn almost_query() -> impl Strategy<Value = String> {
    let word = select(vec![
        "version",
        "status",
        "startTime",
        "workflowType",
        "=",
        "!=",
        "<",
        ">=",
        "IN",
        "AND",
        "OR",
        "(",
        ")",
        ",",
        "'",
        "\"",
        "\\",
        "*",
        "IS",
        "not",
        "null",
        "BETWEEN",
        "STARTS_WITH",
        "1",
        "'x'",
        "RUNNING",
        "é",
        "9999999999999999999",
        "-1",
        "\u{0}",
        "!",
    ]);
    prop::collection::vec(word, 0..20).prop_map(|words| words.join(" "))
}

proptest! {
    #[test]
    fn no_text_makes_the_parsers_panic(text in prop_oneof![any::<String>(), almost_query()]) {
        let sample = sample();
        let facts = sample.facts("w-1", STARTED);
        let check = |condition: Result<Condition, QueryError>| match condition {
            Ok(condition) => {
                let _ = condition.matches(&facts);
            }
            Err(error) => assert!(error.at <= text.chars().count() + 1, "{text:?}: {error}"),
        };
        check(parse_search(&text));
        if let Some(condition) = free_text(&text).transpose() {
            check(condition);
        }
        if let Ok(order) = parse_sort(&text) {
            prop_assert_eq!(order.compare(&facts, &facts), std::cmp::Ordering::Equal);
        }
    }
}
