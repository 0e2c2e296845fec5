//! Events, commands and request ids.

use std::sync::Arc;

use futures::future;
use longhaul_engine::change::{Changes, CommandRow};
use longhaul_engine::run::state::{PartKey, Run};
use longhaul_protocol::Payload;
use longhaul_protocol::id::RunId;
use longhaul_protocol::payload::Value as PayloadValue;
use longhaul_protocol::sequence::{HistorySeq, RequestSeq};
use serde_json::json;

use super::fixture::{
    advance, command, commit, create, is_conflict, load, namespace, next, part, push_event, spec,
    start,
};
use crate::{CommandKey, CommandRows, Error, Page, Store};

pub async fn pages_are_gapless_and_cut(store: &dyn Store) {
    let mut run = create(store, "w").await;
    let neighbour = create(store, "v").await;
    for batch in [2, 0, 5, 1] {
        let mut change = next(&run);
        (0..batch).for_each(|_| push_event(&mut change, "Step"));
        run = advance(store, &run, change).await;
    }
    let page = async |after, up_to, limit| {
        let events = store
            .history(
                run.run_id(),
                HistorySeq::new(after),
                HistorySeq::new(up_to),
                Page::of(limit),
            )
            .await
            .unwrap();
        events
            .into_iter()
            .map(|event| event.sequence.get())
            .collect::<Vec<_>>()
    };
    assert_eq!(page(0, u64::MAX, 1000).await, (1..=9).collect::<Vec<_>>());
    assert_eq!(page(0, 9, 4).await, [1, 2, 3, 4]);
    assert_eq!(page(4, 9, 4).await, [5, 6, 7, 8]);
    assert_eq!(page(8, 9, 4).await, [9]);
    assert_eq!(page(2, 5, 1000).await, [3, 4, 5]);
    for (after, up_to, limit) in [
        (9, u64::MAX, 10),
        (5, 5, 10),
        (7, 3, 10),
        (0, 0, 10),
        (0, 9, 0),
        (u64::MAX, u64::MAX, 10),
    ] {
        assert_eq!(
            page(after, up_to, limit).await,
            [0_u64; 0],
            "after {after} up to {up_to} limit {limit}"
        );
    }
    assert_eq!(
        store
            .history(
                neighbour.run_id(),
                HistorySeq::new(0),
                HistorySeq::MAX,
                Page::of(10)
            )
            .await
            .unwrap()
            .len(),
        1
    );
    assert_eq!(
        store
            .history(
                &"run-none".into(),
                HistorySeq::new(0),
                HistorySeq::MAX,
                Page::of(10)
            )
            .await
            .unwrap(),
        []
    );
}

pub async fn a_page_ends_before_it_is_too_long(store: &dyn Store) {
    let mut change = start(spec("w", 1));
    let sizes = [10, 400, 500, 100, 5000, 10, 10];
    for size in &sizes[1..] {
        push_event(&mut change, "Step");
        let payload = format!("\"{}\"", "é".repeat(size / 2 - 1));
        change.events.last_mut().unwrap().payload = payload;
    }
    change.events[0].payload = "\"12345678\"".to_owned();
    commit(store, change).await.unwrap();
    let page = async |after, events, bytes| {
        let page = Page { events, bytes };
        let events = store
            .history(
                &"run-w-1".into(),
                HistorySeq::new(after),
                HistorySeq::new(7),
                page,
            )
            .await;
        let events = events.unwrap().into_iter();
        events.map(|event| event.sequence.get()).collect::<Vec<_>>()
    };
    assert_eq!(page(0, 10, 910).await, [1, 2, 3], "exactly full");
    assert_eq!(page(0, 10, 909).await, [1, 2], "one byte over the limit");
    assert_eq!(
        page(0, 2, 909).await,
        [1, 2],
        "the number of events counts too"
    );
    assert_eq!(page(3, 10, 1000).await, [4], "the next event is long");
    assert_eq!(
        page(4, 10, 1000).await,
        [5],
        "a long event has a page of its own"
    );
    assert_eq!(page(5, 10, 1000).await, [6, 7]);
    assert_eq!(page(0, 10, 0).await, [1], "a page has at least one event");
    assert_eq!(
        page(0, 0, 1000).await,
        [0_u64; 0],
        "a page of no events is empty"
    );
    assert_eq!(page(7, 10, 1000).await, [0_u64; 0]);
}

pub async fn events_keep_every_column(store: &dyn Store) {
    let mut change = start(spec("w", 1));
    push_event(&mut change, "SignalReceived");
    let event = change.events.last_mut().unwrap();
    event.payload = format!(r#"{{"a":  1, "text":"\u00e9 {}"}}"#, "y".repeat(70_000));
    event.workflow_task_id = Some("task".into());
    event.workflow_command_id = Some("command".into());
    event.principal = Some(r#"{"name":"me"}"#.to_owned());
    let (plain, full) = (change.events[0].clone(), change.events[1].clone());
    commit(store, change).await.unwrap();
    let events = store
        .history(
            &"run-w-1".into(),
            HistorySeq::new(0),
            HistorySeq::MAX,
            Page::of(10),
        )
        .await
        .unwrap();
    for (stored, written) in events.iter().zip([plain, full]) {
        assert_eq!(stored.id, written.id);
        assert_eq!(stored.sequence, written.sequence);
        assert_eq!(stored.event_type, written.event_type);
        // Byte for byte: it is sent as it was written, including spaces.
        assert_eq!(stored.payload, written.payload);
        assert_eq!(stored.recorded_at, written.recorded_at);
        assert_eq!(stored.workflow_task_id, written.workflow_task_id);
        assert_eq!(
            stored.workflow_command_id.as_deref(),
            written.workflow_command_id.as_ref().map(|id| id.as_str())
        );
        assert_eq!(stored.principal, written.principal);
    }
    assert_eq!(events.len(), 2);
}

/// Only a bug above the store gets here: the version is right and the numbers are not.
pub async fn an_event_is_never_written_twice(store: &dyn Store) {
    let run = create(store, "w").await;
    let mut change = next(&run);
    change.core.last_history_sequence = HistorySeq::ZERO;
    push_event(&mut change, "Again");
    assert!(matches!(
        commit(store, change).await,
        Err(Error::Corrupt(_))
    ));
    let events = store
        .history(
            run.run_id(),
            HistorySeq::new(0),
            HistorySeq::MAX,
            Page::of(10),
        )
        .await
        .unwrap();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].event_type, "WorkflowStarted");
    assert_eq!(store.run(run.run_id()).await.unwrap(), Some(run));
}

/// The second commit may have numbered its events like the first; that is no bug.
pub async fn a_conflict_is_reported_before_a_repeated_event(store: &dyn Store) {
    let run = create(store, "w").await;
    let mut change = next(&run);
    change.core.last_history_sequence = HistorySeq::ZERO;
    push_event(&mut change, "Again");
    let changes = Changes {
        run: Some(Box::new(change)),
        created: vec![start(spec("w", 7))],
        ..Changes::default()
    };
    assert!(is_conflict(&store.commit(Arc::new(changes)).await));
}

/// Other commits of the same batch must succeed, however the store finds the error.
pub async fn a_poisoned_commit_fails_alone(store: &dyn Store) {
    let mut answers = Vec::new();
    let runs =
        future::join_all(["a", "b", "c"].map(|workflow_id| create(store, workflow_id))).await;
    for run in &runs {
        let mut change = next(run);
        if run.spec.workflow_id.as_str() == "b" {
            change.core.last_history_sequence = HistorySeq::ZERO;
        }
        push_event(&mut change, "Step");
        answers.push(store.commit(Arc::new(Changes {
            run: Some(Box::new(change)),
            ..Changes::default()
        })));
    }
    let answers: Vec<_> = future::join_all(answers)
        .await
        .into_iter()
        .map(|answer| answer.is_ok())
        .collect();
    assert_eq!(answers, [true, false, true]);
    for (run, version) in runs.iter().zip([2, 1, 2]) {
        assert_eq!(
            store
                .run(run.run_id())
                .await
                .unwrap()
                .map(|run| run.version),
            Some(version)
        );
    }
}

pub async fn commands_are_listed_newest_first(store: &dyn Store) {
    let run = create(store, "w").await;
    let neighbour = create(store, "v").await;
    let mut full = command(12, Some("request-12"));
    full.target_name = Some("go".to_owned());
    full.requested_run_id = Some(run.run_id().clone());
    full.arguments = Some(Payload::empty_list());
    full.arguments_digest = Some("digest".to_owned());
    full.reason = Some("because".to_owned());
    full.rejection_reason = Some("no".to_owned());
    full.principal = Some("me".to_owned());
    let mut change = next(&run);
    change.commands = vec![full.clone(), command(3, None)];
    advance(store, &run, change).await;
    let mut change = next(&neighbour);
    change.commands = vec![command(4, None)];
    advance(store, &neighbour, change).await;
    let run_id = run.run_id();
    let list = async |before, limit| {
        let found = store.commands(run_id, before, limit).await.unwrap();
        assert_eq!(found.total, 2);
        found.commands
    };
    assert_eq!(list(None, 9).await, [full.clone(), command(3, None)]);
    assert_eq!(list(None, 1).await, [full.clone()]);
    assert_eq!(list(Some(RequestSeq::new(12)), 9).await, [command(3, None)]);
    assert_eq!(list(Some(RequestSeq::new(3)), 9).await, []);
    let one = async |sequence: u64| {
        let key = CommandKey::Sequence(run_id, RequestSeq::new(sequence));
        store.command(key).await.unwrap()
    };
    assert_eq!(one(12).await, Some((run_id.clone(), full)));
    assert_eq!(one(4).await, None);
    let none = RunId::from("run-none");
    let found = store.commands(&none, None, 9).await.unwrap();
    assert_eq!(found, CommandRows::default());
}

pub async fn a_forgotten_command_leaves_its_request_id(store: &dyn Store) {
    let run = create(store, "w").await;
    let mut change = next(&run);
    change.commands = vec![
        command(2, Some("a")),
        command(3, Some("b")),
        command(4, None),
    ];
    let run = advance(store, &run, change).await;
    let mut change = next(&run);
    change.deleted_commands = [2, 4, 7].map(RequestSeq::new).to_vec();
    let run = advance(store, &run, change).await;
    assert_eq!(
        all_commands(store, &run).await,
        [command(3, Some("b"))],
        "the other commands are kept"
    );
    let find = async |request: &str| {
        let found = by_request(store, "w", request).await;
        found.map(|(_, command)| command.sequence)
    };
    assert_eq!(
        (find("a").await, find("b").await),
        (None, Some(RequestSeq::new(3)))
    );
    let mut change = next(&run);
    change.commands = vec![command(9, Some("a"))];
    advance(store, &run, change).await;
    assert_eq!(find("a").await, Some(RequestSeq::new(9)));
}

/// Returns the command of a request id in the default namespace.
pub async fn by_request(
    store: &dyn Store,
    workflow_id: &str,
    request_id: &str,
) -> Option<(RunId, CommandRow)> {
    let (space, workflow_id) = (namespace("default"), workflow_id.into());
    let key = CommandKey::Request(&space, &workflow_id, request_id);
    store.command(key).await.unwrap()
}

async fn all_commands(store: &dyn Store, run: &Run) -> Vec<CommandRow> {
    let found = store.commands(run.run_id(), None, 1000).await;
    found.unwrap().commands
}

/// An open message and its event have the same arguments, however large they are.
pub async fn large_arguments_of_open_messages_come_back(store: &dyn Store) {
    let run = create(store, "w").await;
    for length in [1, 5000, 100_000] {
        let text = PayloadValue::String("x".repeat(length));
        let arguments = Payload::encode(&PayloadValue::Array(vec![text])).unwrap();
        let run = load(store, run.run_id()).await.unwrap();
        let mut change = next(&run);
        for event_type in ["SignalReceived", "UpdateAccepted"] {
            push_event(&mut change, event_type);
            if let Some(event) = change.events.last_mut() {
                event.payload = json!({"arguments": arguments}).to_string();
            }
        }
        let last = change.core.last_history_sequence;
        let mut update = command(7, None);
        update.arguments = Some(arguments.clone());
        change.parts = vec![
            (
                PartKey::Signal(6.into()),
                Some(part(json!({"signal": {
                    "command_sequence": 6, "id": "s", "command_id": "c", "name": "go",
                    "arguments": arguments, "received_at": last.get() - 1,
                }}))),
            ),
            (
                PartKey::Update(7.into()),
                Some(part(
                    json!({"update": {"command": update, "accepted_at": last}}),
                )),
            ),
            // One that is not in history yet.
            (
                PartKey::Buffered(8.into()),
                Some(part(json!({"buffered": {"signal": {
                    "command_sequence": 8, "id": "b", "command_id": "c", "name": "go", "arguments": arguments,
                }}}))),
            ),
        ];
        let run = advance(store, &run, change).await;
        assert_eq!(load(store, run.run_id()).await, Some(run), "{length}");
    }
}

/// The result of an update is also in its event. A read of the command returns it; a list does not.
pub async fn results_of_updates_come_back(store: &dyn Store) {
    let mut run = create(store, "w").await;
    for (sequence, length) in [(2, 1), (3, 100_000)] {
        let result = Payload::encode(&PayloadValue::String("x".repeat(length))).unwrap();
        let mut change = next(&run);
        push_event(&mut change, "UpdateCompleted");
        if let Some(event) = change.events.last_mut() {
            event.payload = json!({"result": result}).to_string();
        }
        let request_id = format!("request-{sequence}");
        let mut update = command(sequence, Some(&request_id));
        update.update = serde_json::from_value(json!({
            "update_id": "u", "status": "completed", "result": result,
            "completed_event": change.core.last_history_sequence,
        }))
        .unwrap();
        change.commands = vec![update.clone()];
        run = advance(store, &run, change).await;
        let key = CommandKey::Sequence(run.run_id(), sequence.into());
        let found = store.command(key).await.unwrap();
        assert_eq!(found.map(|(_, command)| command), Some(update.clone()));
        let found = by_request(store, "w", &request_id).await;
        assert_eq!(found.map(|(_, command)| command), Some(update));
    }
    for command in all_commands(store, &run).await {
        assert_eq!(command.update.unwrap().result, None);
    }
}

pub async fn a_command_may_be_written_again(store: &dyn Store) {
    let run = create(store, "w").await;
    let mut change = next(&run);
    change.commands = vec![command(2, Some("request"))];
    let run = advance(store, &run, change).await;
    let mut done = command(2, Some("request"));
    done.outcome = "update_completed".to_owned();
    let mut change = next(&run);
    change.commands = vec![done.clone()];
    advance(store, &run, change).await;
    assert_eq!(all_commands(store, &run).await, [done.clone()]);
    let found = by_request(store, "w", "request").await;
    assert_eq!(found, Some((run.run_id().clone(), done)));
}

pub async fn a_request_id_finds_its_command(store: &dyn Store) {
    let run = create(store, "w").await;
    let mut change = next(&run);
    change.commands = vec![
        command(2, Some("a")),
        command(3, None),
        command(4, Some("b")),
    ];
    advance(store, &run, change).await;
    let find = async |space: &str, workflow: &str, request: &str| {
        let (space, workflow) = (namespace(space), workflow.into());
        let key = CommandKey::Request(&space, &workflow, request);
        store.command(key).await.unwrap()
    };
    assert_eq!(
        find("default", "w", "a").await,
        Some((run.run_id().clone(), command(2, Some("a"))))
    );
    assert_eq!(
        find("default", "w", "b").await,
        Some((run.run_id().clone(), command(4, Some("b"))))
    );
    for (space, workflow, request) in [
        ("default", "w", "c"),
        ("default", "v", "a"),
        ("elsewhere", "w", "a"),
    ] {
        assert_eq!(find(space, workflow, request).await, None);
    }
}

pub async fn a_request_id_is_taken_once(store: &dyn Store) {
    let run = create(store, "w").await;
    let mut change = next(&run);
    change.commands = vec![command(2, Some("request"))];
    let run = advance(store, &run, change).await;
    let mut again = next(&run);
    push_event(&mut again, "Again");
    again.commands = vec![command(3, Some("request"))];
    assert!(is_conflict(&commit(store, again).await));
    let mut twice = next(&run);
    twice.commands = vec![command(3, Some("new")), command(4, Some("new"))];
    assert!(is_conflict(&commit(store, twice).await));
    assert_eq!(store.run(run.run_id()).await.unwrap(), Some(run.clone()));
    assert_eq!(all_commands(store, &run).await.len(), 1);
    // Another run of the same workflow may not use it for another command; another workflow may.
    let mut second = start(spec("w", 2));
    second.commands = vec![command(3, Some("request"))];
    assert!(is_conflict(&commit(store, second).await));
    // The run that takes over the command owns it from then on.
    let mut second = start(spec("w", 2));
    second.commands = vec![command(2, Some("request"))];
    let taken_over = second.spec.run_id.clone();
    commit(store, second).await.unwrap();
    let found = by_request(store, "w", "request").await;
    assert_eq!(found.map(|(run_id, _)| run_id), Some(taken_over));
    let mut other = start(spec("v", 1));
    other.commands = vec![command(2, Some("request"))];
    commit(store, other).await.unwrap();
}
