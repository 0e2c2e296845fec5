//! Continue-as-new: the run ends and another run of the same workflow takes over, in one commit (engine.md §2.5). Messages
//! that arrived during the closing task go to the new run, so no signal is lost to the race.

use std::sync::Arc;

use longhaul_protocol::Payload;
use longhaul_protocol::history::{EventPayload, WorkflowContinuedAsNew};
use longhaul_protocol::id::{CommandId, RunId, TaskQueue};

use super::draft::Draft;
use super::state::{ClosedReason, PartKey, Spec};
use crate::change::InstanceChange;

impl Draft<'_> {
    pub(super) fn continue_as_new(
        &mut self,
        sequence: u64,
        arguments: Option<&Payload>,
        workflow_type: Option<&str>,
        queue: Option<&str>,
    ) {
        let run_id: RunId = self.ids.mint();
        let link_id: CommandId = self.ids.mint();
        let run_number = self.spec.run_number + 1;
        let moved = self.buffered();
        for signal in &moved {
            self.remove(PartKey::Buffered(signal.command_sequence));
        }
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
            ..(*self.spec).clone()
        };
        let mut core = super::start::fresh_core(self.now);
        core.instance_command_sequence = self.core.instance_command_sequence;
        core.memo.clone_from(&self.core.memo);
        core.search_attributes = Arc::clone(&self.core.search_attributes);
        core.search_attribute_types = Arc::clone(&self.core.search_attribute_types);
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
        next.create_workflow_task(super::state::Resume::default());
        for signal in moved {
            next.core.open.unseen_signals += 1;
            next.record_signal(signal);
        }
        self.ids = next.ids.clone();
        self.created = Some(next.into_change().0);
        self.close(ClosedReason::Continued, None, Some(run_id), None);
    }
}
