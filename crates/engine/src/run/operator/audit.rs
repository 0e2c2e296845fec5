//! The audit of one open run. No transition leaves a run stuck; the host still checks open runs from time to time. A stuck run is
//! repaired in the same way as by time and tasks. The audit writes no event of its own and never touches a healthy run.

use crate::conductor::execution::command::control;
use crate::conductor::execution::lookup::{LookupResults, Step};
use crate::run::draft::Draft;
use crate::run::health::{self, Trouble};
use crate::run::state::{Program, Run};
use crate::run::workflow_task::wake::LookAgain;
use crate::{Command, Decision, Moment};

/// Checks the run, and repairs it if it is stuck.
#[derive(Clone, Copy, Debug)]
pub struct AuditRun;

impl Command for AuditRun {
    type Reply = Option<Trouble>;

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<Option<Trouble>> {
        let Some(found) = health::stuck(run, moment) else {
            return Decision::unchanged(None);
        };
        let mut draft = Draft::of(run, moment);
        draft.outbox().redeliver_due();
        if !draft.time_out_if_due() && !draft.cancellation().close_if_cleanup_is_over() {
            draft.apply_due();
            draft.workflow_task().choose_next(LookAgain::No);
        }
        draft.finish(Ok(Some(found)))
    }

    fn step(&self, run: &Run, moment: Moment<'_>, found: &LookupResults) -> Step<Option<Trouble>> {
        let trouble = match run.spec.program {
            Program::Code => return Step::Decided(self.decide(run, moment)),
            Program::Definition => health::stuck(run, moment),
        };
        if trouble.is_none() {
            return Step::Decided(Decision::unchanged(None));
        }
        match control::advance(run, moment, found) {
            Step::Decided(decision) => Step::Decided(Decision {
                changes: decision.changes,
                reply: decision.reply.map(|()| trouble),
            }),
            Step::Needs(lookups) => Step::Needs(lookups),
        }
    }
}

#[cfg(test)]
mod tests {
    use longhaul_protocol::id::{Namespace, TaskQueue, WorkflowId};
    use longhaul_protocol::sequence::HistorySeq;
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

    fn audited(run: &Run, seconds: u64) -> (Option<Trouble>, Option<Run>, usize) {
        let decision = at(seconds, |moment| AuditRun.decide(run, moment));
        let change = decision.changes.run;
        let events = change.as_ref().map_or(0, |change| change.events.len());
        let after = change.map(|change| change.apply(Some(run.clone())));
        (decision.reply.unwrap(), after, events)
    }

    #[test]
    fn a_run_with_a_task_or_with_nothing_to_do_is_not_changed() {
        let mut run = started(None);
        assert_eq!(audited(&run, 100_000), (None, None, 0));
        run.core.workflow_task = None;
        assert_eq!(audited(&run, 100_000), (None, None, 0));
    }

    #[test]
    fn a_wake_without_a_task_gets_one_and_history_does_not_change() {
        let mut run = started(None);
        run.core.workflow_task = None;
        run.core.next_wake = Some(Box::new(Wake {
            sequence: HistorySeq::new(2),
            resume: Resume::default(),
        }));
        let (found, after, events) = audited(&run, 1);
        assert_eq!((found, events), (Some(Trouble::MissedWake), 0));
        let after = after.unwrap();
        assert!(after.core.workflow_task.is_some() && after.core.next_wake.is_none());
        assert_eq!(audited(&after, 2), (None, None, 0));
    }

    #[test]
    fn due_work_is_overdue_after_a_minute() {
        let mut run = started(Some(100));
        run.core.alarm = None;
        assert_eq!(audited(&run, 159).0, None);
        let (found, after, _) = audited(&run, 160);
        assert_eq!(found, Some(Trouble::Overdue));
        assert!(after.unwrap().core.closed.is_some(), "it timed out");
    }
}
