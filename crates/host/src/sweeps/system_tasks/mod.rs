//! Tasks that the server runs itself, such as HTTP calls. They wait in queues like tasks for workers, one queue for each type and
//! namespace, and a loop for each of these queues takes them.
//!
//! A server holds a task by a lease of its own, which it renews while the task runs. If the server dies, the lease ends, and any server
//! runs the task again: at least once. What a run of a task does to the outside is not the host's business: the program that starts the
//! host supplies a [`RunTask`] for each type.

mod run;

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use longhaul_engine::change::TaskKind;
use longhaul_protocol::conductor::{Object, ResultStatus};
use longhaul_protocol::id::{Namespace, TaskQueue};
use longhaul_store::QueueKey;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::Host;

/// Tasks that one server runs at the same time. Each keeps a connection and an answer in memory: as many as 64 answers of 10 MB.
pub const SYSTEM_TASKS_MAX: usize = 64;

/// How often a server that shares its store looks for namespaces that other servers created.
const NAMESPACES_INTERVAL: Duration = Duration::from_secs(30);

/// Runs tasks of one type.
pub trait RunTask: Send + Sync + 'static {
    /// Runs a task. It may be called again for the same task if a server died or was cut off from its store. The future may be dropped
    /// at any time: the task ended in another way, or the server stops.
    fn run<'a>(&'a self, input: &'a Object) -> BoxFuture<'a, TaskEnd>;
}

/// How a task ended.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskEnd {
    pub status: ResultStatus,
    pub reason: Option<String>,
    pub output: Object,
}

/// Which tasks a server runs itself, and which it refuses.
#[derive(Clone, Default)]
pub struct SystemTasks {
    runners: BTreeMap<&'static str, Arc<dyn RunTask>>,
    refused: BTreeMap<&'static str, String>,
}

impl SystemTasks {
    /// Adds a type of tasks that the server runs.
    #[must_use]
    pub fn with(mut self, task_type: &'static str, runner: Arc<dyn RunTask>) -> Self {
        self.runners.insert(task_type, runner);
        self
    }

    /// Refuses definitions with tasks of this type. The refusal has this reason.
    #[must_use]
    pub fn without(mut self, task_type: &'static str, reason: impl Into<String>) -> Self {
        self.runners.remove(task_type);
        self.refused.insert(task_type, reason.into());
        self
    }

    /// Returns whether the server takes tasks of this type, so that workers do not get them.
    pub(crate) fn runs(&self, task_type: &str) -> bool {
        self.runners.contains_key(task_type)
    }

    /// Returns why tasks of this type are refused, if they are.
    pub(crate) fn refusal(&self, task_type: &str) -> Option<&str> {
        self.refused.get(task_type).map(String::as_str)
    }
}

impl fmt::Debug for SystemTasks {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("SystemTasks")
            .field("runs", &self.runners.keys())
            .field("refuses", &self.refused.keys())
            .finish()
    }
}

/// The queues that the server itself waits at. An idle server waits at all of them.
#[derive(Default)]
pub(crate) struct OwnPolls {
    queues: Mutex<HashSet<QueueKey>>,
}

impl OwnPolls {
    /// Returns how many polls of the server wait, or `None` if one of them has a task or is about to wait. `is_waited_for` says of a
    /// queue whether a poll is in line.
    pub(crate) fn waiting(&self, is_waited_for: impl Fn(&QueueKey) -> bool) -> Option<usize> {
        let queues = self.queues.lock();
        queues.iter().all(is_waited_for).then_some(queues.len())
    }

    /// Returns how many polls of the server wait or are about to.
    pub(crate) fn count(&self) -> usize {
        self.queues.lock().len()
    }

    /// Counts a poll of the server as waiting until the returned value is dropped.
    fn wait_at<'a>(&'a self, queue: &'a QueueKey) -> OwnPoll<'a> {
        self.queues.lock().insert(queue.clone());
        OwnPoll { polls: self, queue }
    }
}

struct OwnPoll<'a> {
    polls: &'a OwnPolls,
    queue: &'a QueueKey,
}

impl Drop for OwnPoll<'_> {
    fn drop(&mut self) {
        self.polls.queues.lock().remove(self.queue);
    }
}

impl Host {
    /// Starts a loop for each type and namespace, also for namespaces that are created later.
    pub(crate) fn start_system_tasks(&self) {
        if self.inner.config.system_tasks.runners.is_empty() {
            return;
        }
        let slots = Arc::new(Semaphore::new(SYSTEM_TASKS_MAX));
        let served = Arc::new(Mutex::new(HashSet::new()));
        self.keep_running("namespaces of system tasks", move |host| {
            follow_namespaces(host, Arc::clone(&slots), Arc::clone(&served))
        });
    }
}

async fn follow_namespaces(
    host: Host,
    slots: Arc<Semaphore>,
    served: Arc<Mutex<HashSet<Namespace>>>,
) {
    let inner = &host.inner;
    loop {
        for namespace in inner.namespaces.names() {
            if served.lock().insert(namespace.clone()) {
                host.serve_namespace(&namespace, &slots);
            }
        }
        let shared_look = async {
            match inner.store.shared() {
                Some(_) => tokio::time::sleep(NAMESPACES_INTERVAL).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = inner.namespaces.changed() => {}
            () = shared_look => {
                if let Err(error) = host.namespaces().list().await {
                    tracing::debug!(%error, "the namespaces could not be listed");
                }
            }
            () = inner.stopping.cancelled() => return,
        }
    }
}

impl Host {
    fn serve_namespace(&self, namespace: &Namespace, slots: &Arc<Semaphore>) {
        for (task_type, runner) in &self.inner.config.system_tasks.runners {
            let served = run::Served {
                queue: QueueKey {
                    namespace: namespace.clone(),
                    kind: TaskKind::Execution,
                    queue: TaskQueue::from(*task_type),
                },
                task_type,
                runner: Arc::clone(runner),
                slots: Arc::clone(slots),
            };
            self.keep_running("system tasks", move |host| run::serve(host, served.clone()));
        }
    }
}
