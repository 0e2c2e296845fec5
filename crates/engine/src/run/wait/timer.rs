//! Timers: the workflow's own, and the timeouts of its waits. A timer never fires early; it may fire late. Timeouts of waits do not
//! fire while a workflow task is leased, so a worker never decides against one it could not see.

use longhaul_protocol::Timestamp;
use longhaul_protocol::history::{EventPayload, GroupKeys, TimerPayload};
use longhaul_protocol::id::TimerId;
use longhaul_protocol::parallel_group::Group;
use longhaul_protocol::sequence::CommandSeq;

use crate::run::draft::{Draft, Timers};
use crate::run::state::{Part, PartKey, Resume, Timer, TimerKind, Wait, WaitFor};
use crate::run::wait::group::CallEnd;

impl Timer {
    /// Returns when it fires next.
    pub(crate) fn next_due(&self, workflow_task_leased: bool) -> Option<Timestamp> {
        match self.kind {
            TimerKind::Plain => Some(self.fire_at),
            TimerKind::ConditionTimeout | TimerKind::SignalTimeout => {
                (!workflow_task_leased).then_some(self.fire_at)
            }
        }
    }
}

impl Timers<'_, '_> {
    /// Applies `start_timer`: zero delay fires at once, still as an event of its own.
    pub(crate) fn start(
        &mut self,
        sequence: CommandSeq,
        delay_seconds: u64,
        group: Option<&Group>,
    ) {
        let id: TimerId = self.draft.ids.mint();
        self.draft
            .groups()
            .join(sequence, "timer", None, group, id.as_str());
        self.schedule(id, sequence, delay_seconds, TimerKind::Plain, group);
    }

    /// Starts the timeout of a wait that was just opened; it shares the number of the wait, and its place in a group.
    pub(crate) fn start_wait_timeout(
        &mut self,
        sequence: CommandSeq,
        delay_seconds: u64,
        kind: TimerKind,
        group: Option<&Group>,
    ) {
        let id = self.draft.ids.mint();
        self.schedule(id, sequence, delay_seconds, kind, group);
    }

    fn schedule(
        &mut self,
        id: TimerId,
        sequence: CommandSeq,
        delay_seconds: u64,
        kind: TimerKind,
        group: Option<&Group>,
    ) {
        let timer = Timer {
            id,
            sequence,
            delay_seconds,
            fire_at: self.draft.now.plus_seconds(delay_seconds),
            kind,
            group: group.cloned(),
        };
        let payload = self.draft.timer_payload(&timer);
        self.draft.append(EventPayload::TimerScheduled(payload));
        self.draft.core.open.timers += 1;
        self.draft
            .put(PartKey::Timer(sequence), Part::Timer(Box::new(timer)));
        if delay_seconds == 0 {
            self.fire(sequence);
        }
    }

    /// Fires every timer that is due, in order of time.
    pub(crate) fn fire_due(&mut self) {
        let leased = self
            .draft
            .core
            .workflow_task
            .as_ref()
            .is_some_and(|task| task.lease.is_some());
        let mut due: Vec<(Timestamp, CommandSeq)> = self
            .draft
            .open_timers()
            .filter(|timer| {
                timer
                    .next_due(leased)
                    .is_some_and(|at| at <= self.draft.now)
            })
            .map(|timer| (timer.fire_at, timer.sequence))
            .collect();
        due.sort_unstable();
        for (_, sequence) in due {
            self.fire(sequence);
        }
    }

    /// Fires the timeouts of waits that became due while the task was leased and whose wait is still open.
    pub(crate) fn fire_overdue_wait_timeouts(&mut self) {
        let mut due: Vec<(Timestamp, CommandSeq)> = self
            .draft
            .open_timers()
            .filter(|timer| timer.kind != TimerKind::Plain && timer.fire_at <= self.draft.now)
            .map(|timer| (timer.fire_at, timer.sequence))
            .collect();
        due.sort_unstable();
        for (_, sequence) in due {
            self.fire(sequence);
        }
    }

    fn fire(&mut self, sequence: CommandSeq) {
        let Some(timer) = self.draft.timer(sequence).cloned() else {
            return;
        };
        let mut payload = self.draft.timer_payload(&timer);
        payload.fired_at = Some(self.draft.now);
        self.draft.append(EventPayload::TimerFired(payload));
        self.remove(sequence);
        let mut resume = Resume {
            resume_source_kind: Some("timer".to_owned()),
            resume_source_id: Some(timer.id.to_string()),
            timer_id: Some(timer.id.clone()),
            workflow_sequence: Some(sequence),
            workflow_event_type: Some("TimerFired".to_owned()),
            ..Resume::default()
        };
        match timer.kind {
            TimerKind::Plain => {
                resume.workflow_wait_kind = Some("timer".to_owned());
                resume.open_wait_id = Some(format!("timer:{}", timer.id));
                self.draft
                    .groups()
                    .resolve(timer.group.as_ref(), CallEnd::Completed, resume);
            }
            TimerKind::ConditionTimeout | TimerKind::SignalTimeout => {
                let Some(wait) = self.draft.wait(sequence).cloned() else {
                    return;
                };
                self.draft.remove(PartKey::Wait(sequence));
                fill_wait(&mut resume, &wait);
                self.draft
                    .groups()
                    .resolve(wait.group.as_ref(), CallEnd::Completed, resume);
            }
        }
    }

    /// Cancels the timer: the wait was satisfied, or the run closes with events.
    pub(crate) fn cancel(&mut self, sequence: CommandSeq) {
        let Some(timer) = self.draft.timer(sequence).cloned() else {
            return;
        };
        let mut payload = self.draft.timer_payload(&timer);
        payload.cancelled_at = Some(self.draft.now);
        self.draft.append(EventPayload::TimerCancelled(payload));
        self.remove(sequence);
    }

    fn remove(&mut self, sequence: CommandSeq) {
        self.draft.remove(PartKey::Timer(sequence));
        self.draft.core.open.timers = self.draft.core.open.timers.saturating_sub(1);
    }
}

impl Draft<'_> {
    fn timer_payload(&self, timer: &Timer) -> TimerPayload {
        let mut payload = TimerPayload {
            timer_id: timer.id.clone(),
            sequence: timer.sequence,
            delay_seconds: timer.delay_seconds,
            fire_at: timer.fire_at,
            fired_at: None,
            cancelled_at: None,
            timer_kind: match timer.kind {
                TimerKind::Plain => None,
                TimerKind::ConditionTimeout => Some("condition_timeout"),
                TimerKind::SignalTimeout => Some("signal_timeout"),
            },
            condition_wait_id: None,
            condition_key: None,
            condition_definition_fingerprint: None,
            signal_wait_id: None,
            signal_name: None,
            group: GroupKeys(timer.group.clone()),
        };
        if let Some(wait) = self.wait(timer.sequence) {
            match &wait.what {
                WaitFor::Condition {
                    key, fingerprint, ..
                } => {
                    payload.condition_wait_id = Some(wait.id.clone());
                    payload.condition_key.clone_from(key);
                    payload
                        .condition_definition_fingerprint
                        .clone_from(fingerprint);
                }
                WaitFor::Signal { name, .. } => {
                    payload.signal_wait_id = Some(wait.id.clone());
                    payload.signal_name = Some(name.clone());
                }
            }
        }
        payload
    }
}

fn fill_wait(resume: &mut Resume, wait: &Wait) {
    resume.open_wait_id = Some(wait.id.to_string());
    match &wait.what {
        WaitFor::Condition {
            key, fingerprint, ..
        } => {
            resume.workflow_wait_kind = Some("condition".to_owned());
            resume.condition_wait_id = Some(wait.id.clone());
            resume.condition_key.clone_from(key);
            resume
                .condition_definition_fingerprint
                .clone_from(fingerprint);
        }
        WaitFor::Signal { name, .. } => {
            resume.workflow_wait_kind = Some("signal".to_owned());
            resume.signal_wait_id = Some(wait.id.clone());
            resume.signal_name = Some(name.clone());
        }
    }
}
