//! Caps count over all servers.

use longhaul_engine::queue::{Admission, Caps};
use longhaul_host::api::{ExecutionOutput, ExecutionReport};
use longhaul_host::{BatchPoll, Config, Existing, Host, StartExecution};
use longhaul_protocol::conductor::{Object, ResultStatus, Task, TaskDef, WorkflowDef, read};
use longhaul_store::memory::Delivery;
use serde_json::json;

use super::{DELIVERIES, is_leased, servers, servers_with, settle};
use crate::setup::{commands, holder, leased, namespace, poll_of, start_of};

#[tokio::test(start_paused = true)]
async fn leases_are_capped_over_all_servers() {
    for delivery in DELIVERIES {
        let config = Config {
            admission: Admission {
                workflow_tasks: Caps {
                    max_active_leases: Some(2),
                    ..Caps::default()
                },
                ..Admission::default()
            },
            ..Config::default()
        };
        let servers = servers_with(delivery, config).await;
        for number in 0..4 {
            let start = start_of(&format!("order-{number}"));
            servers.first.workflows().start(start).await.unwrap();
        }
        let poll = poll_of("w1", None, 0);
        let one = leased(servers.first.workflow_tasks().poll(&poll, 500).await);
        leased(servers.second.workflow_tasks().poll(&poll, 500).await);
        for host in [&servers.first, &servers.second] {
            let third = host.workflow_tasks().poll(&poll, 500).await;
            assert!(!is_leased(&third), "{delivery:?}");
        }
        let host = servers.second.clone();
        let waiting = tokio::spawn(async move {
            let poll = poll_of("w1", None, 60);
            host.workflow_tasks().poll(&poll, 500).await
        });
        settle(&servers).await;
        let end = commands(json!([{"type": "complete_workflow"}]));
        let held = holder(&one);
        let completed = servers.first.workflow_tasks().complete(&held, end);
        completed.await.unwrap();
        settle(&servers).await;
        servers.clock.advance_seconds(3);
        assert!(
            is_leased(&waiting.await.unwrap()),
            "{delivery:?}: the end of a lease makes room at the other server"
        );
    }
}

fn batch() -> BatchPoll {
    BatchPoll {
        namespace: namespace(),
        task_type: "t".to_owned(),
        domain: None,
        worker_id: Some("w".to_owned()),
        count: 10,
        timeout: std::time::Duration::ZERO,
    }
}

async fn define(host: &Host) {
    let task: TaskDef = read(json!({"name": "t", "concurrentExecLimit": 3})).unwrap();
    host.definitions()
        .put_tasks(&namespace(), vec![task])
        .await
        .unwrap();
    let workflow: WorkflowDef =
        read(json!({"name": "w", "tasks": [{"name": "t", "taskReferenceName": "t"}]})).unwrap();
    host.definitions()
        .put_workflows(&namespace(), vec![workflow], Existing::Replace)
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_limit_of_a_task_definition_counts_over_all_servers() {
    let servers = servers(Delivery::AtOnce).await;
    define(&servers.first).await;
    for _ in 0..8 {
        let start = StartExecution {
            name: "w".to_owned(),
            ..StartExecution::default()
        };
        let executions = servers.first.executions();
        executions.start(&namespace(), start).await.unwrap();
    }
    let one = async |host: &Host| {
        let poll = BatchPoll {
            count: 2,
            ..batch()
        };
        host.execution_tasks().poll(&poll).await.unwrap()
    };
    let mut held: Vec<Task> = one(&servers.first).await;
    held.extend(one(&servers.second).await);
    assert_eq!(held.len(), 3, "two here, one there");
    servers.clock.advance_seconds(3);
    for host in [&servers.first, &servers.second] {
        let more = host.execution_tasks().poll(&batch()).await.unwrap();
        assert!(more.is_empty());
    }
    let done = ExecutionReport::Status {
        status: ResultStatus::Completed,
        output: ExecutionOutput::Replace(Object::new()),
        reason: None,
        worker_id: Some("w".to_owned()),
        callback_after_seconds: 0,
        logs: Vec::new(),
    };
    let first = &held[0];
    servers
        .second
        .execution_tasks()
        .update(
            &namespace(),
            &first.workflow_instance_id,
            &first.task_id,
            done,
        )
        .await
        .unwrap();
    settle(&servers).await;
    servers.clock.advance_seconds(3);
    let next = servers
        .first
        .execution_tasks()
        .poll(&batch())
        .await
        .unwrap();
    assert_eq!(next.len(), 1, "one ended, one may start");
}
