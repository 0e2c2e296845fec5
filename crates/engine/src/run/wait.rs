//! Waits for conditions and signals. The server cannot evaluate a predicate: the worker sends the wait again while it is
//! false, and a wait that is no longer sent was satisfied (engine.md §7.4).

use std::collections::BTreeSet;

use longhaul_protocol::group::Group;
use longhaul_protocol::history::{ConditionWait, EventPayload, GroupKeys, SignalWaitOpened};
use longhaul_protocol::id::{TimerId, WaitId};
use longhaul_protocol::workflow_command::OpenConditionWait;

use super::draft::Draft;
use super::state::{Part, PartKey, Resume, TimerKind, Wait, WaitFor};

impl Draft<'_> {
    pub(super) fn open_condition_wait(&mut self, sequence: u64, command: &OpenConditionWait) {
        let group = command.group.as_ref();
        self.join_group(
            sequence,
            "condition",
            command.condition_key.as_deref(),
            group,
        );
        let wait = Wait {
            id: self.ids.mint(),
            sequence,
            timeout_seconds: command.timeout_seconds,
            what: WaitFor::Condition {
                occurrence_id: command.condition_wait_occurrence_id.clone(),
                key: command.condition_key.clone(),
                fingerprint: command.condition_definition_fingerprint.clone(),
            },
            group: group.cloned(),
        };
        self.append(EventPayload::ConditionWaitOpened(condition_payload(
            &wait, None, None,
        )));
        self.put(PartKey::Wait(sequence), Part::Wait(Box::new(wait)));
        if let Some(timeout) = command.timeout_seconds {
            self.start_wait_timeout(sequence, timeout, TimerKind::ConditionTimeout);
        }
    }

    pub(super) fn open_signal_wait(
        &mut self,
        sequence: u64,
        name: &str,
        timeout_seconds: Option<u64>,
        group: Option<&Group>,
    ) {
        self.join_group(sequence, "signal", Some(name), group);
        let bound = self.oldest_unbound_signal(name);
        let id = match bound
            .and_then(|signal| self.signal(signal))
            .and_then(|signal| signal.wait_id.clone())
        {
            Some(id) => id,
            None => self.ids.mint(),
        };
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
        self.append(EventPayload::SignalWaitOpened(SignalWaitOpened {
            signal_name: name.to_owned(),
            signal_wait_id: wait.id.clone(),
            sequence,
            timeout_seconds,
            group: GroupKeys(group.cloned()),
        }));
        self.put(PartKey::Wait(sequence), Part::Wait(Box::new(wait)));
        // A wait whose signal is already here needs no timeout: the next task delivers it.
        if let (Some(timeout), None) = (timeout_seconds, bound) {
            self.start_wait_timeout(sequence, timeout, TimerKind::SignalTimeout);
        }
    }

    /// Open condition waits that the decision did not send again were satisfied. Written before the decision's own events.
    pub(super) fn satisfy_conditions(
        &mut self,
        sent_again: &BTreeSet<u64>,
        closes_run: bool,
        resume: &Resume,
    ) {
        let satisfied: Vec<Wait> = self
            .waits()
            .filter(|wait| matches!(wait.what, WaitFor::Condition { .. }))
            .filter(|wait| !sent_again.contains(&wait.sequence))
            .cloned()
            .collect();
        // A terminal decision does not say which of several waits it passed.
        if closes_run && satisfied.len() != 1 {
            return;
        }
        for wait in satisfied {
            let timer_id = self.timer(wait.sequence).map(|timer| timer.id.clone());
            self.append(EventPayload::ConditionWaitSatisfied(condition_payload(
                &wait,
                timer_id,
                Some(resume),
            )));
            self.cancel_timer(wait.sequence);
            self.remove(PartKey::Wait(wait.sequence));
            self.resolve_member(wait.group.as_ref(), false);
        }
    }

    /// The newest open wait, by which a message says where in the workflow it arrived.
    pub(super) fn newest_wait(&self) -> Option<u64> {
        self.waits().map(|wait| wait.sequence).max()
    }

    /// The oldest open signal wait of that name that no signal is meant for.
    pub(super) fn oldest_free_wait(&self, name: &str) -> Option<(u64, WaitId)> {
        let free = |wait: &&Wait| match &wait.what {
            WaitFor::Signal {
                name: waits_for,
                bound,
            } => waits_for == name && bound.is_none(),
            WaitFor::Condition { .. } => false,
        };
        self.waits()
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
