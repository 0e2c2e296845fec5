//! Everything that an operator needs about one run that does not seem to move. Collected here, judged by `engine::run::health`.

use std::collections::HashMap;

use longhaul_engine::change::{Diagnosis, TaskKind};
use longhaul_engine::conductor::execution::record::queue_name;
use longhaul_engine::rollout::build_fits;
use longhaul_engine::run::health::{
    Blocked, Finding, NextEvent, diagnostic_status, findings, next_event,
};
use longhaul_engine::run::state::{Part, Run};
use longhaul_engine::session;
use longhaul_protocol::id::{Namespace, RunId, TaskId, TaskQueue, WorkflowId};
use longhaul_protocol::sequence::HistorySeq;
use longhaul_store::{Page, StoredEvent};

use crate::error::Result;
use crate::operations::sessions::attempt;
use crate::operations::workflows::Description;
use crate::views::Workflows;

/// A queue of definition runs counts as served for this long after a poll.
const POLLED_SECONDS: u64 = 60;

/// Number of newest events to read: far more than are shown, and fewer if so many do not fit on a page.
const RECENT_EVENTS: [usize; 4] = [1000, 50, 5, 1];

/// Failures whose traces are looked up: as many as are shown.
const TRACED_FAILURES_MAX: usize = 10;

/// Activities of sessions that are judged: more than are shown.
const JUDGED_ACTIVITIES_MAX: usize = 100;

/// A run and its diagnosis.
#[derive(Clone, Debug)]
pub struct DebugView {
    pub description: Description,
    /// `terminal`, `needs_attention`, `running`, `queue_backlog`, `pending_work` or `waiting`.
    pub diagnostic_status: &'static str,
    pub findings: Vec<Finding>,
    pub next_event: Option<NextEvent>,
    /// The newest events, oldest first.
    pub recent: Vec<StoredEvent>,
    /// Why the session of a ready activity admits no worker, by the sequence of the call.
    pub session_blocked: Blocked,
    /// Details of failures that workers reported for people only, by the task that failed.
    pub diagnoses: HashMap<TaskId, Diagnosis>,
}

impl Workflows<'_> {
    /// Diagnoses the named run, or the current one.
    pub async fn debug(
        self,
        namespace: &Namespace,
        workflow_id: &WorkflowId,
        run_id: Option<&RunId>,
    ) -> Result<DebugView> {
        let description = self.describe(namespace, workflow_id, run_id).await?;
        let run = &description.run;
        self.host.rollouts().refresh().await?;
        let workers = self.host.workers().all(namespace).await?;
        let pin = run.spec.routing.compatibility.as_deref();
        let now = self.host.now();
        // Workers of definition runs do not register; their polls show that they live.
        let polls = self.host.execution_tasks().last_polls(namespace, None);
        let is_polled = |queue: &TaskQueue| {
            polls.iter().any(|poll| {
                queue_name(&poll.task_type, poll.domain.as_deref()) == *queue
                    && poll.at.plus_seconds(POLLED_SECONDS) > now
            })
        };
        let has_poller = |queue: &TaskQueue, kind: TaskKind, type_name: &str| {
            workers.iter().any(|worker| {
                let row = &worker.row;
                let types = match kind {
                    TaskKind::Execution => return false,
                    TaskKind::Workflow => &row.supported_workflow_types,
                    TaskKind::Activity => &row.supported_activity_types,
                };
                row.task_queue == *queue
                    && worker.status() == "active"
                    && (types.is_empty() || types.iter().any(|name| name == type_name))
                    && build_fits(pin, row.build_id.as_deref())
            }) || (kind == TaskKind::Execution && is_polled(queue))
        };
        let session_blocked = self.session_blocked(run).await?;
        let findings = findings(run, &has_poller, &session_blocked, now);
        let end = run.core.last_history_sequence;
        let recent = self.newest_events(run.run_id(), end).await?;
        let mut diagnoses = HashMap::new();
        for event in recent.iter().rev() {
            if diagnoses.len() == TRACED_FAILURES_MAX {
                break;
            }
            let failed = matches!(
                event.event_type.as_str(),
                "ActivityFailed" | "ActivityRetryScheduled"
            );
            let Some(task_id) = event.workflow_task_id.as_ref().filter(|_| failed) else {
                continue;
            };
            let row = self.host.inner.store.task(task_id).await?;
            let said = row
                .and_then(|row| row.closed)
                .and_then(|closed| closed.reply)
                .and_then(|report| report.diagnosis);
            if let Some(said) = said {
                diagnoses.insert(task_id.clone(), *said);
            }
        }
        Ok(DebugView {
            diagnostic_status: diagnostic_status(run, &findings, now),
            next_event: next_event(run),
            findings,
            session_blocked,
            recent,
            diagnoses,
            description,
        })
    }

    /// Returns the newest events, oldest first: as many as a page holds, fewer if they are large.
    async fn newest_events(self, run_id: &RunId, end: HistorySeq) -> Result<Vec<StoredEvent>> {
        let mut events = Vec::new();
        for window in RECENT_EVENTS {
            let (after, page) = (
                HistorySeq::new(end.get().saturating_sub(window as u64)),
                Page::of(window),
            );
            events = self
                .host
                .inner
                .store
                .history(run_id, after, end, page)
                .await?;
            if events.last().is_none_or(|event| event.sequence == end) {
                break;
            }
        }
        Ok(events)
    }

    /// Checks the session rules for every ready activity of a session, as if each live worker of its queue had polled.
    async fn session_blocked(self, run: &Run) -> Result<Blocked> {
        let mut blocked = Blocked::new();
        let namespace = &run.spec.namespace;
        let activities = run.parts.values().filter_map(|part| match part {
            Part::Activity(activity) if activity.attempt.is_none() => Some(activity),
            _ => None,
        });
        let now = self.host.now();
        for activity in activities {
            let Some(options) = &activity.worker_session else {
                continue;
            };
            if blocked.len() == JUDGED_ACTIVITIES_MAX {
                break;
            }
            let (session, owner) = self
                .host
                .sessions()
                .stored(namespace, &options.session_id)
                .await?;
            let sessions = self.host.sessions();
            let attempts = sessions.attempts(namespace, &options.session_id).await?;
            let attempts: Vec<_> = attempts.iter().filter_map(attempt).collect();
            let mut workers = Vec::new();
            for worker in self.host.workers().serving_activity(
                namespace,
                &activity.queue,
                &activity.activity_type,
            ) {
                workers.push(self.host.sessions().applicant(&worker).await?);
            }
            let why = session::blocked(session.as_ref(), owner, options, &attempts, &workers, now);
            if let Some(refusal) = why {
                blocked.insert(activity.sequence, refusal);
            }
        }
        Ok(blocked)
    }
}
