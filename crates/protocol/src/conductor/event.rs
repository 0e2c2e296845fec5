//! Event handlers, and the records of what they did.

use super::Object;

words! {
    /// What an action of an event handler does.
    pub enum EventActionType {
        StartWorkflow = "start_workflow",
        CompleteTask = "complete_task",
        FailTask = "fail_task",
        TerminateWorkflow = "terminate_workflow",
        UpdateWorkflowVariables = "update_workflow_variables",
    }
}

words! {
    /// What became of an action.
    pub enum EventExecutionStatus {
        InProgress = "IN_PROGRESS",
        Completed = "COMPLETED",
        Failed = "FAILED",
        Skipped = "SKIPPED",
    }
}

model! {
    /// Reacts to messages of one event.
    pub struct EventHandler [other] {
        "name" name: String;
        /// `provider:rest`, such as `conductor:workflow:ready`.
        "event" event: String;
        "description" description: Option<String>;
        /// An expression over the payload. Absent is true.
        "condition" condition: Option<String>;
        "evaluatorType" evaluator_type: Option<String>;
        "actions" actions: Vec<EventAction>;
        /// An inactive handler ignores messages.
        "active" active: bool;
        "createdBy" created_by: Option<String>;
    }
}

model! {
    /// One action of an event handler, with the member that its type names.
    pub struct EventAction [other] {
        "action" action: Option<EventActionType>;
        "start_workflow" start_workflow: Option<Object>;
        "complete_task" complete_task: Option<Object>;
        "fail_task" fail_task: Option<Object>;
        "terminate_workflow" terminate_workflow: Option<Object>;
        "update_workflow_variables" update_workflow_variables: Option<Object>;
        /// Texts of the payload that are JSON are parsed first.
        "expandInlineJSON" expand_inline_json: bool;
    }
}

impl EventAction {
    /// Returns the parameters of the action: the member that its type names.
    pub fn parameters(&self) -> Option<&Object> {
        match self.action? {
            EventActionType::StartWorkflow => self.start_workflow.as_ref(),
            EventActionType::CompleteTask => self.complete_task.as_ref(),
            EventActionType::FailTask => self.fail_task.as_ref(),
            EventActionType::TerminateWorkflow => self.terminate_workflow.as_ref(),
            EventActionType::UpdateWorkflowVariables => self.update_workflow_variables.as_ref(),
        }
    }
}

model! {
    /// What one action of a handler did with one message.
    pub struct EventExecution {
        /// The id of the message and the index of the action.
        "id" id: String;
        "messageId" message_id: String;
        /// The name of the handler.
        "name" name: String;
        "event" event: String;
        "created" created: i64;
        "status" status: EventExecutionStatus = EventExecutionStatus::InProgress;
        "action" action: Option<EventActionType>;
        "output" output: Object;
        /// The payload. A large one is left out.
        "payload" payload: Option<Object>;
    }
}
