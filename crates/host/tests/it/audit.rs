//! The audit of open runs: healthy ones stay as they are, a stuck one continues.

use std::sync::Arc;

use longhaul_engine::run::state::{Resume, Wake};
use longhaul_engine::{Changes, RunChange};
use longhaul_host::AuditPlace;
use longhaul_protocol::id::RunId;
use longhaul_protocol::sequence::HistorySeq;
use serde_json::json;

use longhaul_store::Page;

use crate::setup::{Setup, open, setup};

async fn events(setup: &Setup, run_id: &RunId) -> usize {
    let page = setup
        .store
        .history(
            run_id,
            HistorySeq::new(0),
            HistorySeq::new(1000),
            Page::of(1000),
        )
        .await
        .unwrap();
    page.len()
}

#[tokio::test]
async fn healthy_runs_are_read_page_by_page_and_not_changed() {
    let setup = setup().await;
    let mut runs = Vec::new();
    for number in 0..250 {
        runs.push(setup.start(&format!("order-{number}")).await.run_id);
    }
    // One waits, one is leased, one works, one has ended.
    for commands in [
        json!([{"type": "start_timer", "delay_seconds": 500}]),
        json!([{"type": "schedule_activity", "activity_type": "say"}]),
        json!([{"type": "open_condition_wait"}]),
        json!([{"type": "complete_workflow"}]),
    ] {
        let task = setup.task().await;
        setup.complete(&task, commands).await;
    }
    setup.task().await;
    let versions = async || {
        let mut found = Vec::new();
        for run_id in &runs {
            let stored = setup.store.run(run_id).await.unwrap();
            found.push(stored.map(|run| run.version));
        }
        found
    };
    let before = versions().await;
    let mut place = AuditPlace::default();
    assert_eq!(setup.host.audit(&mut place).await.unwrap(), 0);
    assert_ne!(place, AuditPlace::default(), "a pass is bounded");
    assert_eq!(setup.host.audit(&mut place).await.unwrap(), 0);
    assert_eq!(place, AuditPlace::default(), "the next pass begins again");
    assert_eq!(versions().await, before);
}

#[tokio::test]
async fn a_run_that_lost_its_task_gets_it_back_without_an_event() {
    let setup = setup().await;
    let run_id = setup.start("order-1").await.run_id;
    let task = setup.task().await;
    setup
        .complete(
            &task,
            json!([{"type": "start_timer", "delay_seconds": 500}]),
        )
        .await;
    // A state that no command creates: a wake without a task.
    let run = setup.store.run(&run_id).await.unwrap().unwrap();
    let mut core = run.core.clone();
    core.next_wake = Some(Box::new(Wake {
        sequence: core.last_history_sequence,
        resume: Resume::default(),
    }));
    let change = RunChange {
        spec: Arc::clone(&run.spec),
        base_version: Some(run.version),
        core,
        parts: Vec::new(),
        events: Vec::new(),
        tasks: Vec::new(),
        deleted_tasks: Vec::new(),
        commands: Vec::new(),
        deleted_commands: Vec::new(),
        instance: None,
        key_claim: None,
        sets_search_attributes: false,
        logs: Vec::new(),
        outputs: Vec::new(),
    };
    let changes = Changes {
        run: Some(Box::new(change)),
        created: Vec::new(),
        ..Changes::default()
    };
    setup.store.commit(Arc::new(changes)).await.unwrap();
    let host = open(&setup.store, &setup.clock).await;
    let setup = Setup { host, ..setup };
    assert!(!setup.has_task().await);
    let before = events(&setup, &run_id).await;
    let mut place = AuditPlace::default();
    assert_eq!(setup.host.audit(&mut place).await.unwrap(), 1);
    assert_eq!(events(&setup, &run_id).await, before);
    assert_eq!(setup.host.audit(&mut place).await.unwrap(), 0);
    assert!(setup.has_task().await);
}
