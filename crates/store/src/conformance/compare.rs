//! Checks that two stores have the same content: calls every read method, over everything that a test may have written.

use longhaul_engine::change::TaskKind;
use longhaul_protocol::id::{Namespace, RunId, TaskId, TaskQueue, WorkerId, WorkflowId};
use longhaul_protocol::sequence::{HistorySeq, RequestSeq};

use super::fixture::{KINDS, at};
use crate::{
    CommandKey, DocumentKey, DocumentKind, DueLimits, LeaseFilter, Page, QueueKey, RunFilter,
    StatusFilter, Store, TaskPlace,
};

/// The names to read.
#[derive(Clone, Debug, Default)]
pub struct Universe {
    pub namespaces: Vec<Namespace>,
    pub workflow_ids: Vec<WorkflowId>,
    pub workflow_types: Vec<String>,
    pub run_ids: Vec<RunId>,
    pub task_ids: Vec<TaskId>,
    pub queues: Vec<TaskQueue>,
    pub workers: Vec<WorkerId>,
    pub request_ids: Vec<String>,
    /// Seconds after [`at`] zero around which alarms are set.
    pub alarm_seconds: Vec<i64>,
}

/// Calls both stores in the same way and panics at the first difference.
macro_rules! same {
    ($a:expr, $b:expr, $method:ident($($argument:expr),*)) => {
        assert_eq!(
            $a.$method($($argument),*).await.unwrap(),
            $b.$method($($argument),*).await.unwrap(),
            concat!(stringify!($method), "{:?}"),
            ($(&$argument,)*)
        )
    };
}

/// Panics if `a` and `b` return different rows.
pub async fn assert_same(a: &dyn Store, b: &dyn Store, universe: &Universe) {
    for run_id in &universe.run_ids {
        same!(a, b, run(run_id));
        same!(a, b, commands(run_id, None::<RequestSeq>, 1000));
        same!(a, b, commands(run_id, Some(RequestSeq::new(3)), 1));
        same!(a, b, task_log(run_id, 1));
        same!(
            a,
            b,
            command(CommandKey::Sequence(run_id, RequestSeq::new(2)))
        );
        for (after, up_to, events, bytes) in [
            (0, u64::MAX, 1000, usize::MAX),
            (1, 4, 1000, usize::MAX),
            (0, 7, 3, usize::MAX),
            (5, u64::MAX, 2, usize::MAX),
            (0, u64::MAX, 1000, 100),
            (2, u64::MAX, 1000, 0),
        ] {
            let page = Page { events, bytes };
            let (after, up_to) = (HistorySeq::new(after), HistorySeq::new(up_to));
            same!(a, b, history(run_id, after, up_to, page));
        }
    }
    for task_id in &universe.task_ids {
        same!(a, b, task(task_id));
    }
    for namespace in &universe.namespaces {
        in_namespace(a, b, universe, namespace).await;
    }
    leases(a, b, universe).await;
    for seconds in &universe.alarm_seconds {
        for runs in [0, 1, 3, 1000] {
            let limits = DueLimits { runs, sessions: 2 };
            same!(a, b, due(at(*seconds), limits));
        }
    }
    same!(a, b, ready_queues());
    for kind in [
        DocumentKind::Namespace,
        DocumentKind::SearchAttribute,
        DocumentKind::Worker,
        DocumentKind::Rollout,
    ] {
        same!(a, b, documents(kind, None::<&str>));
    }
}

async fn in_namespace(a: &dyn Store, b: &dyn Store, universe: &Universe, namespace: &Namespace) {
    for workflow_id in &universe.workflow_ids {
        same!(a, b, instance(namespace, workflow_id));
        for request_id in &universe.request_ids {
            let key = CommandKey::Request(namespace, workflow_id, request_id);
            same!(a, b, command(key));
        }
    }
    for queue in &universe.queues {
        for kind in KINDS {
            let queue = QueueKey {
                namespace: namespace.clone(),
                kind,
                queue: queue.clone(),
            };
            for limit in [2, 1000] {
                for place in [TaskPlace::Anywhere, TaskPlace::Session] {
                    same!(a, b, ready_tasks(&queue, place, limit));
                }
            }
        }
    }
    same!(a, b, queue_counts(namespace));
    for worker in &universe.workers {
        let key = DocumentKey {
            kind: DocumentKind::Worker,
            namespace: namespace.to_string(),
            name: worker.to_string(),
            qualifier: String::new(),
        };
        same!(a, b, document(&key));
        same!(a, b, documents(key.kind, Some(namespace.as_str())));
    }
    lists(a, b, universe, namespace).await;
}

async fn lists(a: &dyn Store, b: &dyn Store, universe: &Universe, namespace: &Namespace) {
    let statuses = [
        None,
        Some(StatusFilter::Running),
        Some(StatusFilter::Completed),
        Some(StatusFilter::Failed),
        Some(StatusFilter::Cancelled),
        Some(StatusFilter::Terminated),
    ];
    let types = universe
        .workflow_types
        .iter()
        .cloned()
        .map(Some)
        .chain([None]);
    for workflow_type in types {
        for status in statuses {
            let mut filter = RunFilter {
                namespace: namespace.clone(),
                program: None,
                workflow_type: workflow_type.clone(),
                status,
                condition: None,
                after: None,
                limit: 1000,
            };
            same!(a, b, list_runs(&filter));
            filter.limit = 2;
            while let Some(last) = a.list_runs(&filter).await.unwrap().pop() {
                same!(a, b, list_runs(&filter));
                filter.after = Some((last.started_at, last.run_id));
            }
            same!(a, b, list_runs(&filter));
        }
    }
}

async fn leases(a: &dyn Store, b: &dyn Store, universe: &Universe) {
    fn and_any<T: Clone>(some: &[T]) -> Vec<Option<T>> {
        some.iter().cloned().map(Some).chain([None]).collect()
    }
    for namespace in and_any(&universe.namespaces) {
        for owner in and_any(&universe.workers) {
            for queue in and_any(&universe.queues) {
                for kind in and_any::<TaskKind>(&KINDS) {
                    let filter = LeaseFilter {
                        namespace: namespace.clone(),
                        owner: owner.clone(),
                        queue: queue.clone(),
                        kind,
                        session: None,
                    };
                    for limit in [2, 1000] {
                        same!(a, b, leased_tasks(&filter, limit));
                    }
                }
            }
        }
    }
}
