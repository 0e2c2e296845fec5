//! Copies of runs and of the registry: what one server writes, the other uses.

use std::time::Duration;

use longhaul_engine::run::message::external::Stop;
use longhaul_engine::visibility::Type;
use longhaul_host::{CommandTarget, Existing, HistoryRequest, NamespaceSpec, StartExecution};
use longhaul_protocol::Payload;
use longhaul_protocol::conductor::{WorkflowDef, read};
use longhaul_protocol::sequence::HistorySeq;
use longhaul_store::memory::Delivery;
use serde_json::json;

use super::{DELIVERIES, complete, poll_now, servers, settle};
use crate::setup::{commands, holder, leased, namespace, poll_of};

fn target(workflow_id: &str, request_id: Option<&str>) -> CommandTarget {
    CommandTarget {
        namespace: namespace(),
        workflow_id: workflow_id.into(),
        run_id: None,
        request_id: request_id.map(str::to_owned),
        principal: None,
        context: None,
    }
}

#[tokio::test(start_paused = true)]
async fn commands_on_one_run_may_go_to_any_server() {
    for delivery in DELIVERIES {
        let servers = servers(delivery).await;
        let run_id = servers.start("order-1").await;
        for number in 0..20 {
            let host = if number % 2 == 0 {
                &servers.second
            } else {
                &servers.first
            };
            let request = format!("r{number}");
            let target = target("order-1", Some(&request));
            host.workflows()
                .signal(&target, "more", Payload::empty_list())
                .await
                .unwrap();
        }
        let one = servers
            .first
            .workflows()
            .all_commands(&run_id)
            .await
            .unwrap();
        let other = servers
            .second
            .workflows()
            .all_commands(&run_id)
            .await
            .unwrap();
        assert_eq!(one.len(), 21, "{delivery:?}");
        assert_eq!(one, other);
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_is_leased_here_and_completed_there() {
    for delivery in DELIVERIES {
        let servers = servers(delivery).await;
        servers.start("order-1").await;
        let poll = poll_of("w1", None, 30);
        let task = leased(servers.second.workflow_tasks().poll(&poll, 500).await);
        let end = json!([{"type": "complete_workflow"}]);
        complete(&servers.first, &task, end).await;
        let refused = servers
            .second
            .workflows()
            .stop(&target("order-1", None), Stop::Cancel, None)
            .await;
        assert!(refused.is_err(), "{delivery:?}: the run is closed for both");
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_servers_only_one_wins() {
    let servers = servers(Delivery::Never).await;
    servers.start("order-1").await;
    let task = leased(poll_now(&servers.first).await);
    let held = holder(&task);
    let end = || commands(json!([{"type": "complete_workflow"}]));
    let done = servers.second.workflow_tasks().complete(&held, end());
    assert!(!done.await.unwrap().duplicate);
    let repeat = servers.first.workflow_tasks().complete(&held, end());
    assert!(
        repeat.await.unwrap().duplicate,
        "the loser decides again and returns the winner's reply"
    );
}

#[tokio::test(start_paused = true)]
async fn a_cached_copy_refuses_nothing_that_the_store_allows() {
    let servers = servers(Delivery::Never).await;
    servers.start("order-1").await;
    // The first server has the run in memory as not leased; the second leases it.
    let task = leased(poll_now(&servers.second).await);
    let first = &servers.first;
    first
        .workflow_tasks()
        .heartbeat(&holder(&task))
        .await
        .unwrap();
    let described = first
        .workflows()
        .describe(&namespace(), &"order-1".into(), None)
        .await
        .unwrap();
    assert_eq!(described.run.core.status.as_str(), "running");
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_the_end_of_a_run_ends_at_every_server() {
    for delivery in DELIVERIES {
        let servers = servers(delivery).await;
        let run_id = servers.start("order-1").await;
        let request = HistoryRequest {
            namespace: namespace(),
            workflow_id: "order-1".into(),
            run_id,
            after: HistorySeq::ZERO,
            page_size: 100,
            wait: Duration::from_secs(60),
            until_closed: true,
        };
        let host = servers.second.clone();
        let waiting = tokio::spawn(async move { host.workflows().history(&request).await });
        settle(&servers).await;
        servers
            .first
            .workflows()
            .stop(&target("order-1", None), Stop::Terminate, None)
            .await
            .unwrap();
        let began = tokio::time::Instant::now();
        settle(&servers).await;
        let page = waiting.await.unwrap().unwrap();
        assert!(!page.events.is_empty(), "{delivery:?}");
        assert!(
            began.elapsed() < Duration::from_secs(5),
            "{delivery:?}: it ended by a hint or a look, not by its time-out"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_registered_at_one_server_is_used_at_the_other_at_once() {
    let servers = servers(Delivery::Never).await;
    let (first, second) = (&servers.first, &servers.second);
    for (version, here, there) in [(1, first, second), (2, second, first)] {
        let definition: WorkflowDef = read(json!({
            "name": "w", "version": version,
            "tasks": [{"name": format!("t{version}"), "taskReferenceName": "t"}]
        }))
        .unwrap();
        here.definitions()
            .put_workflows(&namespace(), vec![definition], Existing::Replace)
            .await
            .unwrap();
        let start = StartExecution {
            name: "w".to_owned(),
            ..StartExecution::default()
        };
        let run_id = there.executions().start(&namespace(), start).await.unwrap();
        let view = here
            .executions()
            .get(&namespace(), run_id.as_str(), true)
            .await
            .unwrap();
        let workflow = serde_json::to_value(view.workflow(true)).unwrap();
        assert_eq!(workflow["workflowVersion"], version);
    }
    first
        .search_attributes()
        .define(&namespace(), "Customer", Type::Keyword)
        .await
        .unwrap();
    let defined = second.search_attributes().list(&namespace()).await.unwrap();
    assert_eq!(defined.get("Customer"), Some(Type::Keyword));
    let name = "orders".into();
    first
        .namespaces()
        .create(&name, &NamespaceSpec::default())
        .await
        .unwrap();
    second.namespaces().require(&name).await.unwrap();
}
