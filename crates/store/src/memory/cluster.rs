//! Several servers on one memory store, with a network between them that loses, holds and repeats hints as a test wants it.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::stream::{BoxStream, StreamExt as _};
use longhaul_engine::change::{Cap, Changes, TaskRow, TaskStatus};
use longhaul_engine::session::Status;
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::{RunId, TaskId};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::{Memory, Tables, queue_of};
use crate::shared::{IN_SESSION_MAX, Look, Looked, Wanted};
use crate::{Due, DueLimits, Error, Hints, Shared, StoreFuture};

/// Several servers on one memory store.
#[derive(Clone, Default)]
pub struct Cluster {
    tables: Arc<Mutex<Tables>>,
    network: Arc<Mutex<Network>>,
}

/// What becomes of hints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    #[default]
    AtOnce,
    Never,
    /// At once and again.
    Twice,
    /// When [`Cluster::release`] is called, the newest first.
    Held,
}

#[derive(Default)]
struct Network {
    delivery: Delivery,
    /// The servers that listen.
    inboxes: BTreeMap<usize, mpsc::UnboundedSender<Hints>>,
    held: Vec<(usize, Hints)>,
    servers: usize,
    /// Looks for tasks of queues, by all servers.
    looks: u64,
}

/// One server of a cluster.
pub(super) struct Server {
    number: usize,
    network: Arc<Mutex<Network>>,
}

impl Cluster {
    /// Returns the store as one more server sees it.
    pub fn server(&self) -> Memory {
        let mut network = self.network.lock();
        network.servers += 1;
        let server = Server {
            number: network.servers,
            network: Arc::clone(&self.network),
        };
        Memory {
            tables: Arc::clone(&self.tables),
            fault: None,
            server: Some(server),
        }
    }

    /// Sets what becomes of hints from now on.
    pub fn deliver(&self, delivery: Delivery) {
        self.network.lock().delivery = delivery;
    }

    /// Returns how often servers looked for tasks.
    pub fn looks(&self) -> u64 {
        self.network.lock().looks
    }

    /// Delivers the hints that were held.
    pub fn release(&self) {
        let mut network = self.network.lock();
        let held = std::mem::take(&mut network.held);
        for (sender, hints) in held.into_iter().rev() {
            network.pass(sender, &hints);
        }
    }
}

impl Network {
    fn send(&mut self, sender: usize, hints: Hints) {
        match self.delivery {
            Delivery::AtOnce => self.pass(sender, &hints),
            Delivery::Never => {}
            Delivery::Twice => {
                self.pass(sender, &hints);
                self.pass(sender, &hints);
            }
            Delivery::Held => self.held.push((sender, hints)),
        }
    }

    fn pass(&mut self, sender: usize, hints: &Hints) {
        self.inboxes.retain(|number, inbox| {
            // A server that left takes no more hints.
            *number == sender || inbox.send(hints.clone()).is_ok()
        });
    }
}

impl Server {
    /// Tells the other servers of a commit.
    pub(super) fn committed(&self, changes: &Changes) {
        let hints = Hints::of(changes);
        if !hints.is_empty() {
            self.network.lock().send(self.number, hints);
        }
    }
}

impl Shared for Memory {
    fn announce(&self, hints: Hints) {
        if let Some(server) = &self.server {
            server.network.lock().send(server.number, hints);
        }
    }

    fn hints(&self) -> BoxStream<'static, Hints> {
        let (sender, receiver) = mpsc::unbounded_channel();
        if let Some(server) = &self.server {
            let mut network = server.network.lock();
            network.inboxes.insert(server.number, sender);
        }
        let next = |mut receiver: mpsc::UnboundedReceiver<Hints>| async {
            receiver.recv().await.map(|hints| (hints, receiver))
        };
        futures::stream::unfold(receiver, next).boxed()
    }

    fn look<'a>(&'a self, look: &'a Look) -> StoreFuture<'a, Looked> {
        let number = self.number();
        if let Some(server) = self.server.as_ref().filter(|_| !look.queues.is_empty()) {
            server.network.lock().looks += 1;
        }
        self.write(|tables| Ok(tables.look(number, look)))
    }

    fn take_due(
        &self,
        now: Timestamp,
        limits: DueLimits,
        until: Timestamp,
    ) -> StoreFuture<'_, Due> {
        let server = self.number();
        self.write(|tables| Ok(tables.take_due(server, now, limits, until)))
    }
}

impl Memory {
    fn number(&self) -> usize {
        self.server.as_ref().map_or(0, |server| server.number)
    }
}

/// Work that a server took for a moment.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    server: usize,
    until: Timestamp,
    /// The alarm or deadline that it was taken for.
    due_at: Option<Timestamp>,
}

/// What is taken.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TakenKey {
    Task(TaskId),
    Run(RunId),
    Session(
        longhaul_protocol::id::Namespace,
        longhaul_protocol::id::SessionId,
    ),
}

impl Tables {
    /// Returns whether the caps of a commit hold after it.
    pub(super) fn check_caps(&self, changes: &Changes) -> Result<(), Error> {
        for Cap { scope, max } in changes.caps() {
            let written: BTreeMap<&TaskId, &TaskRow> = changes
                .runs()
                .flat_map(|change| &change.tasks)
                .map(|task| (&task.task_id, task))
                .collect();
            let others = self.tasks.values();
            let others = others.filter(|task| !written.contains_key(&task.task_id));
            let tasks = others.chain(written.values().copied());
            let leased = tasks.filter(|task| scope.has_task(task)).count();
            let own = |session: &&longhaul_engine::session::Session| {
                changes.sessions.iter().any(|written| {
                    (&written.namespace, &written.session_id)
                        == (&session.namespace, &session.session_id)
                })
            };
            let others = self.sessions.values().filter(|session| !own(session));
            let sessions = others.chain(&changes.sessions);
            let held = sessions
                .filter(|session| scope.has_session(session))
                .count();
            if (leased + held) as u64 > *max {
                return Err(Error::CapReached(Box::new(scope.clone())));
            }
        }
        Ok(())
    }

    /// A leased or ended task is taken no longer.
    pub(super) fn give_back(&mut self, changes: &Changes) {
        for task in changes.runs().flat_map(|change| &change.tasks) {
            self.taken.remove(&TakenKey::Task(task.task_id.clone()));
        }
    }

    fn is_taken(&self, key: &TakenKey, now: Timestamp) -> bool {
        self.taken.get(key).is_some_and(|taken| taken.until > now)
    }

    fn look(&mut self, server: usize, look: &Look) -> Looked {
        let mut looked = Looked::default();
        for task_id in &look.released {
            let key = TakenKey::Task(task_id.clone());
            if self
                .taken
                .get(&key)
                .is_some_and(|taken| taken.server == server)
            {
                self.taken.remove(&key);
            }
        }
        for wanted in &look.queues {
            for task in self.wanted(wanted, look) {
                let taken = Taken {
                    server,
                    until: look.reserved_until,
                    due_at: None,
                };
                let key = TakenKey::Task(task.task_id.clone());
                self.taken.insert(key, taken);
                looked.tasks.push(task);
            }
            looked.in_sessions.extend(self.wanted_in_sessions(wanted));
        }
        let leased = self.tasks(TaskStatus::Leased).filter(|task| {
            look.polls.iter().any(|poll| {
                queue_of(task) == poll.queue
                    && task.lease_owner.as_ref() == Some(&poll.worker_id)
                    && task.poll_request_id.as_ref() == Some(&poll.request_id)
            })
        });
        looked.leased = leased.cloned().collect();
        let runs = look.runs.iter().filter_map(|(run_id, known)| {
            let version = self.runs.get(run_id)?.version;
            (version != *known).then(|| (run_id.clone(), version))
        });
        looked.runs = runs.collect();
        looked
    }

    fn wanted(&self, wanted: &Wanted, look: &Look) -> Vec<TaskRow> {
        let mut ready: Vec<&TaskRow> = self
            .tasks(TaskStatus::Ready)
            .filter(|task| queue_of(task) == wanted.queue && task.worker_session.is_none())
            .filter(|task| !self.is_taken(&TakenKey::Task(task.task_id.clone()), look.now))
            .filter(|task| !look.known.contains(&task.task_id))
            .filter(|task| {
                look.young_since
                    .is_none_or(|young| task.available_at <= young)
                    || look.offered.contains(&task.task_id)
            })
            .collect();
        ready.sort_by_key(|task| (task.priority, task.available_at, task.task_id.clone()));
        wanted.select(ready.into_iter().cloned().collect())
    }

    fn wanted_in_sessions(&self, wanted: &Wanted) -> Vec<TaskRow> {
        let may_run = |task: &&TaskRow| {
            let Some(options) = &task.worker_session else {
                return false;
            };
            let key = (task.namespace.clone(), options.session_id.clone());
            let session = self.sessions.get(&key);
            session.is_none_or(|session| {
                session.status != Status::Active
                    || wanted
                        .polls
                        .iter()
                        .any(|(filter, _)| filter.worker_id == session.lease_owner)
            })
        };
        let ready = self.tasks(TaskStatus::Ready);
        let mut ready: Vec<&TaskRow> = ready
            .filter(|task| queue_of(task) == wanted.queue)
            .filter(may_run)
            .collect();
        ready.sort_by_key(|task| (task.priority, task.available_at, task.task_id.clone()));
        ready.into_iter().take(IN_SESSION_MAX).cloned().collect()
    }

    fn take_due(
        &mut self,
        server: usize,
        now: Timestamp,
        limits: DueLimits,
        until: Timestamp,
    ) -> Due {
        let all = DueLimits {
            runs: if limits.runs > 0 { usize::MAX } else { 0 },
            sessions: if limits.sessions > 0 { usize::MAX } else { 0 },
        };
        let mut due = self.due(now, all);
        due.runs.retain(|run_id| {
            let alarm = self.alarms.get(run_id).copied();
            self.may_take(&TakenKey::Run(run_id.clone()), alarm, server, now)
        });
        due.runs.truncate(limits.runs);
        due.sessions.retain(|session| {
            let key = TakenKey::Session(session.namespace.clone(), session.session_id.clone());
            self.may_take(&key, session.deadline(), server, now)
        });
        due.sessions.truncate(limits.sessions);
        for run_id in &due.runs {
            let due_at = self.alarms.get(run_id).copied();
            self.take(TakenKey::Run(run_id.clone()), due_at, server, until);
        }
        for session in &due.sessions {
            let key = TakenKey::Session(session.namespace.clone(), session.session_id.clone());
            self.take(key, session.deadline(), server, until);
        }
        due
    }

    fn may_take(
        &self,
        key: &TakenKey,
        due_at: Option<Timestamp>,
        server: usize,
        now: Timestamp,
    ) -> bool {
        self.taken.get(key).is_none_or(|taken| {
            taken.until <= now || taken.due_at != due_at || taken.server == server
        })
    }

    fn take(&mut self, key: TakenKey, due_at: Option<Timestamp>, server: usize, until: Timestamp) {
        let taken = Taken {
            server,
            until,
            due_at,
        };
        self.taken.insert(key, taken);
    }
}
