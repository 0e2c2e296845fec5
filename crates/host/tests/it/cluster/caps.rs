//! Caps count over all servers.

use longhaul_engine::queue::{Admission, Caps};
use longhaul_host::{BatchPoll, Config, Host};
use longhaul_protocol::conductor::Task;
use longhaul_store::memory::Delivery;
use serde_json::json;

use super::{DELIVERIES, complete, is_leased, poll_now, polling, servers, servers_with, settle};
use crate::setup::{batch_of, completed, define, leased, namespace, start_execution};

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
            servers.start(&format!("order-{number}")).await;
        }
        let one = leased(poll_now(&servers.first).await);
        leased(poll_now(&servers.second).await);
        for host in [&servers.first, &servers.second] {
            let third = poll_now(host).await;
            assert!(!is_leased(&third), "{delivery:?}");
        }
        let waiting = polling(&servers.second, "w1", None, 60);
        settle(&servers).await;
        let end = json!([{"type": "complete_workflow"}]);
        complete(&servers.first, &one, end).await;
        settle(&servers).await;
        servers.clock.advance_seconds(3);
        assert!(
            is_leased(&waiting.await.unwrap()),
            "{delivery:?}: the end of a lease makes room at the other server"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_limit_of_a_task_definition_counts_over_all_servers() {
    let servers = servers(Delivery::AtOnce).await;
    define(&servers.first, json!({"concurrentExecLimit": 3}), &["t"]).await;
    for _ in 0..8 {
        start_execution(&servers.first).await;
    }
    let one = async |host: &Host| {
        let poll = BatchPoll {
            count: 2,
            ..batch_of("t")
        };
        host.execution_tasks().poll(&poll).await.unwrap()
    };
    let mut held: Vec<Task> = one(&servers.first).await;
    held.extend(one(&servers.second).await);
    assert_eq!(held.len(), 3, "two here, one there");
    servers.clock.advance_seconds(3);
    for host in [&servers.first, &servers.second] {
        let more = host.execution_tasks().poll(&batch_of("t")).await.unwrap();
        assert!(more.is_empty());
    }
    let first = &held[0];
    servers
        .second
        .execution_tasks()
        .update(
            &namespace(),
            &first.workflow_instance_id,
            &first.task_id,
            completed(),
        )
        .await
        .unwrap();
    settle(&servers).await;
    servers.clock.advance_seconds(3);
    let next = servers
        .first
        .execution_tasks()
        .poll(&batch_of("t"))
        .await
        .unwrap();
    assert_eq!(next.len(), 1, "one ended, one may start");
}
