//! Accepted signals: they enter history in command order, are bound to waits, and each is delivered by at most one task.

use longhaul_protocol::history::{
    EventPayload, GroupKeys, PAYLOAD_CODEC, SignalApplied, SignalReceived,
};
use longhaul_protocol::id::WaitId;
use longhaul_protocol::sequence::{CommandSeq, RequestSeq};

use crate::run::draft::{Cause, Draft, Signals};
use crate::run::message::stream::StreamPosition;
use crate::run::state::{Message, Part, PartKey, Resume, Signal, WaitFor};

impl Signals<'_, '_> {
    /// Accepts a signal: into history at once, or behind the leased task.
    pub(crate) fn accept(&mut self, signal: Signal) {
        self.draft.core.open.unseen_signals += 1;
        self.draft.core.open.unseen_signal_bytes += signal.arguments.blob().len() as u64;
        if self.draft.is_leased() || (signal.stream.is_some() && self.draft.is_undecided()) {
            self.buffer(Message::Signal(signal));
        } else {
            self.record(signal);
        }
    }

    /// Accepts a message that the previous run left unfinished.
    pub(crate) fn accept_message(&mut self, message: Message) {
        match message {
            Message::Signal(signal) => self.accept(signal),
            Message::Update(command) => {
                self.draft.commands.push(command.clone());
                self.draft.updates().accept(command);
            }
        }
    }

    /// Keeps a message until the workflow task ends.
    pub(crate) fn buffer(&mut self, message: Message) {
        let key = PartKey::Buffered(message.command_sequence());
        self.draft.put(key, Part::Buffered(Box::new(message)));
    }

    pub(crate) fn record(&mut self, mut signal: Signal) {
        let wait = self.draft.oldest_free_wait(&signal.name);
        let wait_id = match &wait {
            Some((_, id)) => id.clone(),
            None => WaitId::from(format!("signal-command:{}", signal.command_id)),
        };
        let cause = Cause {
            task_id: None,
            command_id: Some(signal.command_id.clone()),
            principal: signal.principal.clone(),
        };
        let outer = std::mem::replace(&mut self.draft.cause, cause);
        let workflow_sequence = self.draft.newest_wait();
        let received_at = self
            .draft
            .append(EventPayload::SignalReceived(SignalReceived {
                workflow_command_id: signal.command_id.clone(),
                signal_id: signal.id.clone(),
                workflow_instance_id: self.draft.spec.workflow_id.clone(),
                workflow_run_id: self.draft.spec.run_id.clone(),
                signal_name: signal.name.clone(),
                signal_wait_id: wait_id.clone(),
                arguments: signal.arguments.clone(),
                payload_codec: PAYLOAD_CODEC,
                workflow_sequence,
            }));
        self.draft.cause = outer;
        signal.wait_id = Some(wait_id);
        signal.received_at = Some(received_at);
        let resume = resume(&signal);
        if let Some((sequence, _)) = wait {
            self.bind(sequence, signal.command_sequence);
            // The signal came first: the timeout must not end the wait before the task that delivers the signal.
            self.draft.timers().cancel(sequence);
        }
        self.draft.put(
            PartKey::Signal(signal.command_sequence),
            Part::Signal(Box::new(signal)),
        );
        if !self.draft.signals_are_of_no_use() {
            self.draft.workflow_task().wake(resume);
        }
    }

    /// Writes messages that arrived during a lease into history, in command order. Called when the lease ended without a decision.
    pub(crate) fn flush_undecided(&mut self) {
        let hold = self.draft.is_undecided();
        for message in self.draft.buffered() {
            let of_stream = matches!(&message, Message::Signal(signal) if signal.stream.is_some());
            if !(hold && of_stream) {
                self.draft
                    .remove(PartKey::Buffered(message.command_sequence()));
                self.record_message(message);
            }
        }
    }

    /// Writes every message into history, in command order. Called when the workflow decided, or the run is closing.
    pub(crate) fn flush_buffered(&mut self) {
        for message in self.draft.buffered() {
            self.draft
                .remove(PartKey::Buffered(message.command_sequence()));
            self.record_message(message);
        }
    }

    pub(crate) fn record_message(&mut self, message: Message) {
        match message {
            Message::Signal(signal) => self.record(signal),
            Message::Update(command) => self.draft.updates().record(command),
        }
    }

    fn bind(&mut self, wait_sequence: CommandSeq, signal: RequestSeq) {
        if let Some(mut wait) = self.draft.wait(wait_sequence).cloned() {
            if let WaitFor::Signal { bound, .. } = &mut wait.what {
                *bound = Some(signal);
            }
            self.draft
                .put(PartKey::Wait(wait_sequence), Part::Wait(Box::new(wait)));
        }
    }

    /// Resolves the wait for a signal, before the decision's own events. Called when the task that delivered the signal is
    /// finished.
    pub(crate) fn apply_delivered(
        &mut self,
        command_sequence: RequestSeq,
        wait_sequence: CommandSeq,
    ) {
        let Some(signal) = self.draft.signal(command_sequence).cloned() else {
            return;
        };
        let Some(wait) = self.draft.wait(wait_sequence).cloned() else {
            return;
        };
        self.draft.timers().cancel(wait_sequence);
        let applied = self
            .draft
            .append(EventPayload::SignalApplied(SignalApplied {
                workflow_command_id: signal.command_id.clone(),
                signal_id: signal.id.clone(),
                signal_name: signal.name.clone(),
                signal_wait_id: wait.id.clone(),
                sequence: wait_sequence,
                value: signal.arguments.clone(),
                payload_codec: PAYLOAD_CODEC,
                group: GroupKeys(wait.group.clone()),
            }));
        self.draft.remove(PartKey::Wait(wait_sequence));
        let key = PartKey::Signal(command_sequence);
        match signal.stream {
            Some(place) => {
                let stream = Some(StreamPosition {
                    applied: true,
                    ..place
                });
                self.draft
                    .put(key, Part::Signal(Box::new(Signal { stream, ..signal })));
            }
            None => self.draft.remove(key),
        }
        self.draft
            .waits()
            .resolve_consumed(wait.group.as_ref(), applied);
    }
}

impl Draft<'_> {
    /// Returns whether the workflow has not decided anything yet. Messages of streams wait for its first decision: one published
    /// replayer binds every message before the first recorded wait to that wait, although the workflow may have read it and
    /// continued without one.
    fn is_undecided(&self) -> bool {
        self.core.handled_sequence.is_zero()
    }

    /// Returns the oldest signal of that name that no open wait is bound to.
    pub(crate) fn oldest_unbound_signal(&self, name: &str) -> Option<RequestSeq> {
        let bound: Vec<RequestSeq> = self
            .open_waits()
            .filter_map(|wait| match &wait.what {
                WaitFor::Signal { bound, .. } => *bound,
                WaitFor::Condition { .. } => None,
            })
            .collect();
        self.open_signals()
            .filter(|signal| !signal.stream.as_ref().is_some_and(|place| place.applied))
            .find(|signal| signal.name == name && !bound.contains(&signal.command_sequence))
            .map(|signal| signal.command_sequence)
    }

    /// Returns the oldest signal that resolves a recorded wait, with the sequence of the wait: the next claim may deliver it. One
    /// signal per task, and only to the oldest wait of its name.
    pub(crate) fn deliverable_signal(&self) -> Option<(RequestSeq, CommandSeq)> {
        let mut seen: Vec<&str> = Vec::new();
        let mut oldest = None;
        for wait in self.open_waits() {
            let WaitFor::Signal { name, bound } = &wait.what else {
                continue;
            };
            if seen.contains(&name.as_str()) {
                continue;
            }
            seen.push(name);
            if let Some(signal) = bound
                && oldest.is_none_or(|(other, _)| *signal < other)
            {
                oldest = Some((*signal, wait.sequence));
            }
        }
        oldest
    }
}

/// Returns why a task exists that a signal woke.
pub(crate) fn resume(signal: &Signal) -> Resume {
    Resume {
        workflow_wait_kind: Some("signal".to_owned()),
        open_wait_id: Some(format!("signal-application:{}", signal.id)),
        resume_source_kind: Some("workflow_signal".to_owned()),
        resume_source_id: Some(signal.id.to_string()),
        workflow_signal_id: Some(signal.id.clone()),
        signal_name: Some(signal.name.clone()),
        signal_wait_id: signal.wait_id.clone(),
        workflow_command_id: Some(signal.command_id.clone()),
        ..Resume::default()
    }
}
