//! Applies the hints of other servers: old copies are dropped, waiters are woken.

use futures::StreamExt as _;
use longhaul_protocol::id::{Namespace, WorkerId};
use longhaul_store::{DocumentKey, DocumentKind, Hints};

use crate::Host;
use crate::cluster::looks::NewTasks;
use crate::error::Result;

impl Host {
    /// Applies hints until the host stops.
    pub(crate) async fn follow_hints(self) {
        let Some(shared) = self.inner.store.shared() else {
            return;
        };
        let mut hints = shared.hints();
        loop {
            let next = tokio::select! {
                next = hints.next() => next,
                () = self.inner.stopping.cancelled() => return,
            };
            let Some(hints) = next else { return };
            if let Some(sent_at) = hints.sent_at {
                // Only another server sends them.
                self.set_others(true);
                self.inner
                    .wakes
                    .metrics
                    .hinted(sent_at.micros_until(self.now()));
            }
            if let Err(error) = self.apply(hints).await {
                // The net finds later what this did not.
                tracing::debug!(%error, "a hint of another server could not be followed");
            }
        }
    }

    async fn apply(&self, hints: Hints) -> Result<()> {
        for (run_id, version) in &hints.runs {
            self.inner.executor.mark_older(run_id, *version);
            self.inner.wakes.wake_watchers(run_id, *version);
        }
        let dispatch = &self.inner.wakes.dispatch;
        for (queue, offered) in &hints.queues {
            dispatch.try_withheld(Some(&queue.namespace));
            dispatch.note_offered(queue, offered);
            if dispatch.is_waited_for(queue) {
                // Without a task it is room that a cap has again.
                let new_tasks = if offered.is_empty() {
                    NewTasks::All
                } else {
                    NewTasks::Offered
                };
                self.inner.wakes.looks.ask(queue, new_tasks);
            }
        }
        for (namespace, session_id) in &hints.sessions {
            if dispatch.knows_session(namespace, session_id) {
                self.sessions().read_again(namespace, session_id).await?;
            }
        }
        let mut rollouts_changed = hints.is_incomplete;
        let mut namespaces_changed = hints.is_incomplete;
        for key in &hints.documents {
            match key.kind {
                DocumentKind::Worker => self.follow_worker(key).await?,
                DocumentKind::Rollout => rollouts_changed = true,
                DocumentKind::Namespace => namespaces_changed = true,
                DocumentKind::Question => self.questions().follow(key).await?,
                // Copies of these are compared with the store when they are used.
                DocumentKind::SearchAttribute
                | DocumentKind::TaskDef
                | DocumentKind::WorkflowDef
                | DocumentKind::Snapshot
                | DocumentKind::Schema
                | DocumentKind::EventHandler
                | DocumentKind::EventExecution
                | DocumentKind::ReusableOutput
                | DocumentKind::Tags
                | DocumentKind::DefinitionStamp
                | DocumentKind::Server
                | DocumentKind::Rate
                | DocumentKind::Turn => {}
            }
        }
        if rollouts_changed {
            self.rollouts().load().await?;
        }
        if namespaces_changed {
            self.namespaces().list().await?;
        }
        if hints.is_incomplete {
            dispatch.disturb_all();
            self.inner.wakes.looks.ask_for_all();
        }
        Ok(())
    }

    async fn follow_worker(&self, key: &DocumentKey) -> Result<()> {
        let namespace = Namespace::from(key.namespace.as_str());
        let worker_id = WorkerId::from(key.name.as_str());
        self.workers().reload(&namespace, &worker_id).await
    }
}
