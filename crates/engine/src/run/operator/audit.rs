//! The second look nobody asked for (engine.md §12.4). By construction no transition leaves a run stuck; the host looks at open
//! runs now and then all the same, and puts right what it finds with the same means that time and tasks use. It writes no event
//! of its own, and it never touches a healthy run: what is due gets a minute in which the alarm does it, and a run whose worker
//! asked for nothing is left to signals and operators.

use crate::run::draft::Draft;
use crate::run::state::{Part, Run};
use crate::{Command, Decision, Moment};

/// How long something may be due before the alarm is taken to have missed it.
const GRACE_SECONDS: u64 = 60;

/// What no transition should have left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stuck {
    /// Something has been due for long and was not done.
    Overdue,
    /// The workflow or an update handler was to run and has no task.
    MissedWake,
}

impl Stuck {
    /// For logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Overdue => "work_overdue",
            Self::MissedWake => "missed_wake",
        }
    }
}

/// Whether an open run is stuck, and how.
pub fn stuck(run: &Run, moment: Moment<'_>) -> Option<Stuck> {
    if run.core.closed.is_some() {
        return None;
    }
    let due = Draft::of(run, moment).next_due();
    if due.is_some_and(|due| due.plus_seconds(GRACE_SECONDS) <= moment.now) {
        return Some(Stuck::Overdue);
    }
    let has_update = || {
        run.parts
            .values()
            .any(|part| matches!(part, Part::Update(_)))
    };
    let is_idle = run.core.workflow_task.is_none();
    (is_idle && (run.core.next_wake.is_some() || has_update())).then_some(Stuck::MissedWake)
}

/// Looks at the run, and puts it right if it is stuck.
#[derive(Clone, Copy, Debug)]
pub struct AuditRun;

impl Command for AuditRun {
    type Reply = Option<Stuck>;

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<Option<Stuck>> {
        let Some(found) = stuck(run, moment) else {
            return Decision::unchanged(None);
        };
        let mut draft = Draft::of(run, moment);
        draft.outbox().redeliver_due();
        if !draft.time_out_if_due() && !draft.cancellation().close_if_cleanup_is_over() {
            draft.apply_due();
            draft.workflow_task().choose_next(false);
        }
        draft.finish(Ok(Some(found)))
    }
}

#[cfg(test)]
mod tests {
    use longhaul_protocol::id::{Namespace, TaskQueue, WorkflowId};
    use longhaul_protocol::{Payload, Timestamp};
    use serde_json::Map;

    use super::*;
    use crate::limits::Limits;
    use crate::run::start::{DuplicatePolicy, Start};
    use crate::run::state::{Resume, Routing, Wake};

    const BEGIN: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);

    fn at<R>(seconds: u64, decide: impl FnOnce(Moment<'_>) -> R) -> R {
        let limits = Limits::default();
        decide(Moment {
            now: BEGIN.plus_seconds(seconds),
            entropy: u128::from(seconds) + 1,
            limits: &limits,
        })
    }

    fn started(run_timeout_seconds: Option<u64>) -> Run {
        let start = Start {
            namespace: Namespace::from("default"),
            workflow_id: WorkflowId::from("wf"),
            workflow_type: "greet".to_owned(),
            task_queue: TaskQueue::from("q"),
            arguments: Payload::empty_list(),
            business_key: None,
            memo: None,
            search_attributes: Map::new(),
            run_timeout_seconds,
            execution_timeout_seconds: None,
            routing: Routing::default(),
            duplicate_policy: DuplicatePolicy::Fail,
            declared: Map::new(),
            principal: None,
            context: None,
        };
        let decision = at(0, |moment| start.decide_new(moment));
        decision.changes.created[0].apply(None)
    }

    fn audited(run: &Run, seconds: u64) -> (Option<Stuck>, Option<Run>, usize) {
        let decision = at(seconds, |moment| AuditRun.decide(run, moment));
        let change = decision.changes.run;
        let events = change.as_ref().map_or(0, |change| change.events.len());
        let after = change.map(|change| change.apply(Some(run.clone())));
        (decision.reply.unwrap(), after, events)
    }

    #[test]
    fn a_run_with_a_task_or_with_nothing_asked_for_is_left_alone() {
        let mut run = started(None);
        assert_eq!(audited(&run, 100_000), (None, None, 0));
        run.core.workflow_task = None;
        assert_eq!(audited(&run, 100_000), (None, None, 0));
    }

    #[test]
    fn a_wake_without_a_task_gets_one_and_nothing_is_written_into_history() {
        let mut run = started(None);
        run.core.workflow_task = None;
        run.core.next_wake = Some(Wake {
            sequence: 2,
            resume: Resume::default(),
        });
        let (found, after, events) = audited(&run, 1);
        assert_eq!((found, events), (Some(Stuck::MissedWake), 0));
        let after = after.unwrap();
        assert!(after.core.workflow_task.is_some() && after.core.next_wake.is_none());
        assert_eq!(audited(&after, 2), (None, None, 0));
    }

    #[test]
    fn what_is_due_has_a_minute_before_it_is_overdue() {
        let mut run = started(Some(100));
        run.core.alarm = None;
        assert_eq!(audited(&run, 159).0, None);
        let (found, after, _) = audited(&run, 160);
        assert_eq!(found, Some(Stuck::Overdue));
        assert!(after.unwrap().core.closed.is_some(), "it timed out");
    }
}
