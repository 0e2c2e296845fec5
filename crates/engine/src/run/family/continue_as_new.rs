//! Continue-as-new: the run ends and another run of the same workflow continues it, in one commit. Messages that arrived during the
//! closing task move to the new run, so that the race loses none, and so do updates that were sent to the workflow and are still
//! open. Open children stay with the run of their call for their result, and with the new one for their policy.

use std::sync::Arc;

use longhaul_protocol::Payload;
use longhaul_protocol::history::{EventPayload, WorkflowContinuedAsNew};
use longhaul_protocol::id::{CommandId, RunId, TaskQueue};
use longhaul_protocol::sequence::CommandSeq;

use crate::change::InstanceChange;
use crate::run::draft::Draft;
use crate::run::family::child::ChildRun;
use crate::run::family::outbox::OutboxBody;
use crate::run::state::{ClosedReason, Message, Part, PartKey, Spec, Update};

impl Draft<'_> {
    pub(crate) fn continue_as_new(
        &mut self,
        sequence: CommandSeq,
        arguments: Option<&Payload>,
        workflow_type: Option<&str>,
        queue: Option<&str>,
    ) {
        let run_id: RunId = self.ids.mint();
        let link_id: CommandId = self.ids.mint();
        let run_number = self.spec.run_number + 1;
        let moved = self.messages_to_move();
        let children = self.open_children();
        self.append(EventPayload::WorkflowContinuedAsNew(
            WorkflowContinuedAsNew {
                sequence,
                continued_to_run_id: run_id.clone(),
                continued_to_run_number: run_number,
                workflow_link_id: link_id,
                closed_reason: ClosedReason::Continued.as_str(),
            },
        ));
        let spec = Spec {
            run_id: run_id.clone(),
            run_number,
            workflow_type: workflow_type
                .map_or_else(|| self.spec.workflow_type.clone(), str::to_owned),
            task_queue: queue.map_or_else(|| self.spec.task_queue.clone(), TaskQueue::from),
            arguments: arguments.unwrap_or(&self.spec.arguments).clone(),
            started_at: self.now,
            run_deadline_at: self
                .spec
                .run_timeout_seconds
                .map(|seconds| self.now.plus_seconds(seconds)),
            continued_from: Some(self.spec.run_id.clone()),
            parent: self.spec.parent.clone().map(|mut parent| {
                parent.retry = None;
                parent
            }),
            ..(*self.spec).clone()
        };
        let mut core = crate::run::start::fresh_core(self.now);
        core.instance_command_sequence = self.core.instance_command_sequence;
        core.streams = Arc::clone(&self.core.streams);
        self.core.copy_inherited_to(&mut core);
        let mut next = Draft::new_run(
            Arc::new(spec),
            core,
            self.ids.clone(),
            self.now,
            self.limits,
        );
        next.instance = Some(InstanceChange::MoveCurrent { run_number });
        next.append_started(None);
        // The first task has an empty context, and sees the moved signals in history.
        next.workflow_task()
            .create(crate::run::state::Resume::default());
        if let Some(cancellation) = self.core.cancellation.as_deref()
            && cancellation.delivered.is_none()
        {
            next.cancellation().take_over(cancellation);
        }
        for message in moved {
            next.signals().accept_message(message);
        }
        for (number, child) in (1..).zip(children) {
            next.put(PartKey::Adopted(number), Part::Adopted(Box::new(child)));
        }
        if next.spec.parent.is_some() {
            self.outbox()
                .enqueue(OutboxBody::ChildRunStarted(ChildRun::of(&next.spec)));
        }
        self.ids = next.ids.clone();
        self.created.push(*next.into_change().0);
        self.close(ClosedReason::Continued, None, Some(run_id), None);
    }

    /// Returns the open updates of the workflow, and everything behind the lease, in command order. An update that named this run
    /// stays and ends with it.
    fn messages_to_move(&mut self) -> Vec<Message> {
        let of_workflow = |command: &crate::change::CommandRow| command.requested_run_id.is_none();
        let open: Vec<Update> = self
            .open_updates()
            .filter(|update| of_workflow(&update.command))
            .cloned()
            .collect();
        let mut moved = self.streams().messages_to_move();
        for update in open {
            self.remove(PartKey::Update(update.command.sequence));
            self.core.open.updates = self.core.open.updates.saturating_sub(1);
            moved.push(Message::Update(update.command));
        }
        for message in self.buffered() {
            self.remove(PartKey::Buffered(message.command_sequence()));
            if let Message::Update(command) = &message
                && !of_workflow(command)
            {
                self.updates().record(command.clone());
            } else {
                moved.push(message);
            }
        }
        moved.sort_by_key(Message::command_sequence);
        moved
    }
}
