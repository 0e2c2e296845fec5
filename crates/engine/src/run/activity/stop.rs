//! Activities that a cancellation interrupts: the server asks their worker to stop; the worker stops and acknowledges it. A
//! delivery that waits for this continues after the acknowledgement, or when the lease of the attempt runs out.

use longhaul_protocol::Timestamp;
use longhaul_protocol::history::{ActivityCancelled, EventPayload};
use longhaul_protocol::id::{CommandId, EventId};

use crate::change::{ActivityEnd, TaskStatus};
use crate::run::activity::fence::{FenceRefusal, Reporter};
use crate::run::cancellation::Cancellation;
use crate::run::draft::{Activities, Draft};
use crate::run::state::{Activity, Run};
use crate::run::wait::group::CallEnd;
use crate::{Command, Decision, Moment, Rejection};

/// Identifies the stop that a worker acknowledges when its callback has stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopOrder {
    pub request_id: CommandId,
    pub root_request_id: String,
    pub cleanup_deadline_at: Timestamp,
    pub event_id: EventId,
    /// Whether the stop has been acknowledged.
    pub stopped: bool,
}

impl StopOrder {
    pub(crate) fn of(cancellation: &Cancellation, stopped: bool) -> Self {
        Self {
            request_id: cancellation.request_id.clone(),
            root_request_id: cancellation.root_request_id().to_owned(),
            cleanup_deadline_at: cancellation.cleanup_deadline_at,
            event_id: cancellation.event_id.clone(),
            stopped,
        }
    }
}

/// The callback of the worker has stopped.
#[derive(Clone, Debug)]
pub struct AcknowledgeStop {
    pub reporter: Reporter,
    pub request_id: CommandId,
}

/// The acknowledgement of the stop is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopAcknowledged {
    pub duplicate: bool,
    pub event_id: EventId,
}

impl StopAcknowledged {
    /// Returns the reply to a stop that was acknowledged before.
    pub(crate) fn repeated(self) -> Self {
        Self {
            duplicate: true,
            ..self
        }
    }
}

impl Command for AcknowledgeStop {
    type Reply = StopAcknowledged;

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<StopAcknowledged> {
        let request = run
            .core
            .cancellation
            .as_deref()
            .filter(|cancellation| cancellation.request_id == self.request_id);
        let Some(cancellation) = request else {
            return Decision::reject(Rejection::CancellationMismatch);
        };
        let acknowledged = StopAcknowledged {
            duplicate: false,
            event_id: cancellation.event_id.clone(),
        };
        match self.reporter.current(run) {
            Ok((activity, _)) if activity.stop_requested => {
                let mut draft = Draft::of(run, moment);
                draft.activities().end_stopped(activity);
                draft.finish(Ok(acknowledged))
            }
            Ok(_) => Decision::reject(Rejection::CancellationMismatch),
            Err(FenceRefusal::ActivityCancelled | FenceRefusal::RunClosed(_)) => {
                let mut row = (*self.reporter.row).clone();
                match &mut row.closed {
                    Some(closed) if !closed.stopped => closed.stopped = true,
                    _ => return Decision::unchanged(acknowledged.repeated()),
                }
                let mut draft = Draft::of(run, moment);
                draft.tasks.insert(row.task_id.clone(), row);
                draft.finish(Ok(acknowledged))
            }
            Err(
                refusal @ (FenceRefusal::AttemptNotFound
                | FenceRefusal::TaskMismatch
                | FenceRefusal::OwnerMismatch { .. }
                | FenceRefusal::StaleAttempt
                | FenceRefusal::AttemptClosed),
            ) => Decision::reject(refusal.into()),
        }
    }
}

impl Activities<'_, '_> {
    /// Treats the callback as stopped: ends the activity and continues the delivery that waits for it.
    pub(crate) fn end_stopped(&mut self, activity: &Activity) {
        self.draft
            .append(EventPayload::ActivityCancelled(ActivityCancelled {
                call: activity.call(),
                workflow_command_id: None,
                activity_attempt_id: activity.attempt.as_ref().map(|attempt| attempt.id.clone()),
                attempt_number: activity.attempt.as_ref().map(|attempt| attempt.number),
                cancelled_at: self.draft.now,
            }));
        self.close_task(
            activity,
            TaskStatus::Cancelled,
            ActivityEnd::Cancelled,
            None,
        );
        if let Some(closed) = self
            .draft
            .tasks
            .get_mut(&activity.task_id)
            .and_then(|row| row.closed.as_mut())
        {
            closed.stopped = true;
        }
        self.remove(activity.sequence);
        self.draft.groups().resolve(
            activity.group.as_ref(),
            CallEnd::Failed,
            activity.resume("ActivityCancelled"),
        );
    }
}
