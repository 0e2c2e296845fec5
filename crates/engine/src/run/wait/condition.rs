//! Waits for conditions and signals. The server cannot evaluate a predicate: the worker sends the wait again while it is
//! false, and a wait that is no longer sent was satisfied.

use std::collections::BTreeSet;

use longhaul_protocol::history::{ConditionWait, EventPayload, GroupKeys, SignalWaitOpened};
use longhaul_protocol::id::{TimerId, WaitId};
use longhaul_protocol::parallel_group::Group;
use longhaul_protocol::sequence::{CommandSeq, HistorySeq};
use longhaul_protocol::workflow_command::OpenConditionWait;

use crate::run::draft::{Draft, Waits};
use crate::run::state::{Part, PartKey, Resume, TimerKind, Wait, WaitFor};
use crate::run::wait::group::CallEnd;

/// What a decision does to the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterDecision {
    RunGoesOn,
    RunCloses,
}

impl Waits<'_, '_> {
    pub(crate) fn open_condition(&mut self, sequence: CommandSeq, command: &OpenConditionWait) {
        let group = command.group.as_ref();
        let id: WaitId = self.draft.ids.mint();
        self.draft.groups().join(
            sequence,
            "condition",
            command.condition_key.as_deref(),
            group,
            id.as_str(),
        );
        let wait = Wait {
            id,
            sequence,
            timeout_seconds: command.timeout_seconds,
            what: WaitFor::Condition {
                occurrence_id: command.condition_wait_occurrence_id.clone(),
                key: command.condition_key.clone(),
                fingerprint: command.condition_definition_fingerprint.clone(),
            },
            group: group.cloned(),
        };
        self.draft
            .append(EventPayload::ConditionWaitOpened(condition_payload(
                &wait, None, None,
            )));
        self.draft
            .put(PartKey::Wait(sequence), Part::Wait(Box::new(wait)));
        if let Some(timeout) = command.timeout_seconds {
            self.draft.timers().start_wait_timeout(
                sequence,
                timeout,
                TimerKind::ConditionTimeout,
                group,
            );
        }
        // A worker that names its waits opens a selected one even if its condition is true, and checks it in the next task.
        let selected = group.is_some_and(|group| group.member().is_some());
        if selected && command.condition_wait_occurrence_id.is_some() {
            self.draft.workflow_task().wake(Resume::default());
        }
    }

    pub(crate) fn open_signal(
        &mut self,
        sequence: CommandSeq,
        name: &str,
        timeout_seconds: Option<u64>,
        group: Option<&Group>,
    ) {
        let bound = self.draft.oldest_unbound_signal(name);
        let id = match bound
            .and_then(|signal| self.draft.signal(signal))
            .and_then(|signal| signal.wait_id.clone())
        {
            Some(id) => id,
            None => self.draft.ids.mint(),
        };
        self.draft
            .groups()
            .join(sequence, "signal", Some(name), group, id.as_str());
        let wait = Wait {
            id,
            sequence,
            timeout_seconds,
            what: WaitFor::Signal {
                name: name.to_owned(),
                bound,
            },
            group: group.cloned(),
        };
        self.draft
            .append(EventPayload::SignalWaitOpened(SignalWaitOpened {
                signal_name: name.to_owned(),
                signal_wait_id: wait.id.clone(),
                sequence,
                timeout_seconds,
                group: GroupKeys(group.cloned()),
            }));
        self.draft
            .put(PartKey::Wait(sequence), Part::Wait(Box::new(wait)));
        // A wait whose signal has already arrived needs no timeout: the next task delivers it.
        if let (Some(timeout), None) = (timeout_seconds, bound) {
            self.draft.timers().start_wait_timeout(
                sequence,
                timeout,
                TimerKind::SignalTimeout,
                group,
            );
        }
    }

    /// Satisfies open condition waits that the decision did not send again. Their events come before the decision's own.
    pub(crate) fn satisfy_conditions(
        &mut self,
        sent_again: &BTreeSet<CommandSeq>,
        next: AfterDecision,
        resume: &Resume,
    ) {
        let satisfied: Vec<Wait> = self
            .draft
            .open_waits()
            .filter(|wait| !sent_again.contains(&wait.sequence))
            .filter(|wait| self.draft.was_satisfied(wait, resume))
            .cloned()
            .collect();
        // A terminal decision does not show which of several waits it passed.
        if next == AfterDecision::RunCloses && satisfied.len() != 1 {
            return;
        }
        for wait in satisfied {
            let timer_id = self
                .draft
                .timer(wait.sequence)
                .map(|timer| timer.id.clone());
            let satisfied =
                self.draft
                    .append(EventPayload::ConditionWaitSatisfied(condition_payload(
                        &wait,
                        timer_id,
                        Some(resume),
                    )));
            self.draft.timers().cancel(wait.sequence);
            self.draft.remove(PartKey::Wait(wait.sequence));
            self.resolve_consumed(wait.group.as_ref(), satisfied);
        }
    }

    /// Resolves a wait that this decision consumed. A worker waits until the choice of a selection is recorded, so that needs
    /// another task.
    pub(crate) fn resolve_consumed(&mut self, group: Option<&Group>, resolved_by: HistorySeq) {
        let selected = group.is_some_and(|group| group.member().is_some());
        if self
            .draft
            .groups()
            .resolve_member(group, CallEnd::Completed, resolved_by)
            && selected
        {
            self.draft.workflow_task().wake(Resume::default());
        }
    }
}

impl Draft<'_> {
    /// Returns whether an open wait that was not sent again has ended. Inside a selection this holds only until the choice is made:
    /// afterwards the others no longer matter. A worker that does not name its waits never sends a selected one again; then the
    /// newest one counts as satisfied if a message woke the task.
    fn was_satisfied(&self, wait: &Wait, resume: &Resume) -> bool {
        let WaitFor::Condition { occurrence_id, .. } = &wait.what else {
            return false;
        };
        let Some(group) = wait.group.as_ref().filter(|group| group.member().is_some()) else {
            return true;
        };
        if self.is_decided(group) {
            return false;
        }
        let by_message = matches!(
            resume.resume_source_kind.as_deref(),
            Some("workflow_signal" | "workflow_update")
        );
        occurrence_id.is_some() || (by_message && self.newest_wait() == Some(wait.sequence))
    }

    /// Returns the newest open wait: a message records it as the place in the workflow where it arrived.
    pub(crate) fn newest_wait(&self) -> Option<CommandSeq> {
        self.open_waits().map(|wait| wait.sequence).max()
    }

    /// Returns the oldest open signal wait of that name that no signal is bound to.
    pub(crate) fn oldest_free_wait(&self, name: &str) -> Option<(CommandSeq, WaitId)> {
        let free = |wait: &&Wait| match &wait.what {
            WaitFor::Signal {
                name: waits_for,
                bound,
            } => waits_for == name && bound.is_none(),
            WaitFor::Condition { .. } => false,
        };
        self.open_waits()
            .find(free)
            .map(|wait| (wait.sequence, wait.id.clone()))
    }
}

fn condition_payload(
    wait: &Wait,
    timer_id: Option<TimerId>,
    resume: Option<&Resume>,
) -> ConditionWait {
    let (occurrence_id, key, fingerprint) = match &wait.what {
        WaitFor::Condition {
            occurrence_id,
            key,
            fingerprint,
        } => (occurrence_id.clone(), key.clone(), fingerprint.clone()),
        WaitFor::Signal { .. } => (None, None, None),
    };
    let signal_id = resume.and_then(|resume| resume.workflow_signal_id.clone());
    ConditionWait {
        condition_wait_id: wait.id.clone(),
        condition_wait_occurrence_id: occurrence_id,
        condition_key: key,
        condition_definition_fingerprint: fingerprint,
        sequence: wait.sequence,
        timeout_seconds: wait.timeout_seconds,
        timer_id,
        signal_name: resume
            .filter(|_| signal_id.is_some())
            .and_then(|resume| resume.signal_name.clone()),
        workflow_signal_id: signal_id,
        workflow_update_id: resume
            .filter(|resume| resume.resume_source_kind.as_deref() == Some("workflow_update"))
            .and_then(|resume| resume.resume_source_id.as_deref())
            .map(longhaul_protocol::id::UpdateId::from),
        group: GroupKeys(wait.group.clone()),
    }
}
