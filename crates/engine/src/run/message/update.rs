//! Updates: a message with a result. Admission records the command and `UpdateAccepted`; then each update has a workflow task of
//! its own that runs one handler and nothing else, in acceptance order among the other wakes.

use longhaul_protocol::history::{
    EventPayload, PAYLOAD_CODEC, UpdateAccepted, UpdateApplied, UpdateCall, UpdateCompleted,
    UpdateFailure, UpdateRejected,
};
use longhaul_protocol::id::{RunId, UpdateId};
use longhaul_protocol::sequence::{CommandSeq, HistorySeq};
use longhaul_protocol::workflow_command::{FailUpdate, FieldErrors};
use longhaul_protocol::{Payload, Reason};
use serde_json::{Map, Value};

use crate::change::{CommandRow, CommandType, UpdateFailed, UpdateRecord, UpdateStatus};
use crate::contract::Declared;
use crate::rejection::UpdateRefused;
use crate::run::draft::{Cause, Draft, Updates};
use crate::run::message::external::{Receipt, Request, is_current, refuse_closed};
use crate::run::state::room::UPDATE_EVENTS;
use crate::run::state::{Message, Part, PartKey, Resume, Run, Update, Wait, WaitFor};
use crate::run::workflow_task::wake::LookAgain;
use crate::{Command, Decision, Moment, Rejection, limits};

/// Sends an update.
#[derive(Clone, Debug)]
pub struct UpdateRun {
    pub request: Request,
    pub name: String,
    pub arguments: Payload,
    /// What the workflow declares about its updates.
    pub declared: Declared,
    /// The refusal of a worker's validator: the update is recorded as a rejected command.
    pub validator_refusal: Option<ValidatorRefusal>,
}

/// Why a validator refused.
#[derive(Clone, Debug, PartialEq)]
pub struct ValidatorRefusal {
    pub message: String,
    pub errors: FieldErrors,
}

impl Command for UpdateRun {
    type Reply = Receipt;

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<Receipt> {
        let name = Some(self.name.as_str());
        if let Some(repeat) =
            self.request
                .repeat(run, CommandType::Update, name, Some(&self.arguments))
        {
            return repeat;
        }
        if !is_current(run, &self.request) {
            return Decision::reject(Rejection::NotCurrent);
        }
        let mut draft = Draft::of(run, moment);
        if run.core.closed.is_some() || draft.time_out_if_due() {
            return refuse_closed(
                draft,
                &self.request,
                CommandType::Update,
                name,
                Some(&self.arguments),
            );
        }
        if let Err(limit) = self.check_limits(run, moment) {
            return Decision::reject(Rejection::LimitExceeded(limit));
        }
        if let Some(refused) = self.refusal() {
            return self.refuse(draft, refused);
        }
        let command = draft.record_request(
            &self.request,
            CommandType::Update,
            name,
            Some(&self.arguments),
            "update_accepted",
            None,
        );
        let command = draft.updates().begin(command, &self.arguments);
        draft.updates().accept(command.clone());
        let receipt = draft.receipt(command);
        draft.finish(Ok(receipt))
    }
}

impl UpdateRun {
    fn check_limits(
        &self,
        run: &Run,
        moment: Moment<'_>,
    ) -> Result<(), longhaul_protocol::history::LimitBreach> {
        let limits = moment.limits;
        limits::check(
            "payload_size",
            self.arguments.blob().len() as u64,
            limits.payload_bytes,
        )?;
        limits::check(
            "pending_update_count",
            run.core.open.updates + 1,
            limits.pending_updates,
        )?;
        run.admit_events(UPDATE_EVENTS, limits)
    }

    fn refusal(&self) -> Option<(Reason, &'static str, FieldErrors, String)> {
        if !self.declared.knows(&self.name) {
            return Some((
                Reason::UnknownUpdate,
                "rejected_unknown_update",
                FieldErrors::new(),
                format!("The workflow does not declare the update `{}`.", self.name),
            ));
        }
        let errors = self.declared.check(&self.name, &self.arguments);
        if !errors.is_empty() {
            return Some((
                Reason::InvalidUpdateArguments,
                "rejected_invalid_arguments",
                errors,
                format!("The arguments do not match the update `{}`.", self.name),
            ));
        }
        self.validator_refusal.as_ref().map(|refusal| {
            (
                Reason::UpdateValidatorRejected,
                "rejected_invalid_arguments",
                refusal.errors.clone(),
                refusal.message.clone(),
            )
        })
    }

    /// Refuses an update on an open run and records it for audit. History contains the first refusals by the workflow's own rules:
    /// its validators and the arguments it declares. Their number is limited, to leave the run its events.
    fn refuse(
        &self,
        mut draft: Draft<'_>,
        (reason, outcome, errors, message): (Reason, &'static str, FieldErrors, String),
    ) -> Decision<Receipt> {
        let errors = kept(errors);
        let mut command = draft.record_request(
            &self.request,
            CommandType::Update,
            Some(&self.name),
            Some(&self.arguments),
            outcome,
            Some(reason.as_str()),
        );
        let record = UpdateRecord {
            validation_errors: errors,
            rejected_at: Some(draft.now),
            ..draft.updates().new_update(UpdateStatus::Rejected)
        };
        let errors = record.validation_errors.clone();
        command.update = Some(Box::new(record));
        draft.updates().rewrite_command(&command);
        if reason != Reason::UnknownUpdate
            && draft.core.rejected_updates < REJECTED_UPDATES_IN_HISTORY_MAX
        {
            draft.core.rejected_updates += 1;
            draft.cause = cause(&command);
            let call = draft.update_call(&command);
            draft.inform(EventPayload::UpdateRejected(UpdateRejected {
                call,
                // A refused request leaves no payload behind.
                arguments: None,
                payload_codec: PAYLOAD_CODEC,
                validation_errors: errors,
                rejection_reason: reason.as_str().to_owned(),
            }));
        }
        let receipt = draft.receipt(command);
        let refused = UpdateRefused {
            reason,
            message,
            receipt,
            declared: self.declared.names.clone(),
        };
        draft.finish(Err(Rejection::UpdateRefused(Box::new(refused))))
    }
}

/// Refused updates that the history of a run contains. One more refusal after a hundred has no value for the caller.
const REJECTED_UPDATES_IN_HISTORY_MAX: u64 = 100;

/// Fields of a validator's errors that are kept: more than a person reads.
const ERROR_FIELDS_MAX: usize = 50;

/// Messages that are kept of each field.
const ERRORS_PER_FIELD_MAX: usize = 10;

/// Characters that are kept of a field's name and of each message.
const ERROR_LENGTH_MAX: usize = 300;

/// Returns the part of a validator's errors that is kept: a worker can send any size.
fn kept(errors: FieldErrors) -> FieldErrors {
    let short = |text: String| text.chars().take(ERROR_LENGTH_MAX).collect::<String>();
    errors
        .into_iter()
        .take(ERROR_FIELDS_MAX)
        .map(|(field, messages)| {
            let messages = messages.into_iter().take(ERRORS_PER_FIELD_MAX);
            (short(field), messages.map(short).collect())
        })
        .collect()
}

/// Returns the same refusal for a repeat of a refused update.
pub(crate) fn refused_before(run_id: &RunId, run: &Run, command: &CommandRow) -> Option<Rejection> {
    let reason = match command.rejection_reason.as_deref()? {
        "unknown_update" => Reason::UnknownUpdate,
        "invalid_update_arguments" => Reason::InvalidUpdateArguments,
        "update_validator_rejected" => Reason::UpdateValidatorRejected,
        _ => return None,
    };
    Some(Rejection::UpdateRefused(Box::new(UpdateRefused {
        reason,
        message: "The update was refused before.".to_owned(),
        receipt: Receipt {
            run_id: run_id.clone(),
            workflow_type: run.spec.workflow_type.clone(),
            command: command.clone(),
            retained: true,
        },
        declared: Vec::new(),
    })))
}

fn cause(command: &CommandRow) -> Cause {
    Cause {
        task_id: None,
        command_id: Some(command.command_id.clone()),
        principal: command.principal.clone(),
    }
}

impl Update {
    pub(crate) fn id(&self) -> &UpdateId {
        &record(&self.command).update_id
    }
}

fn record(command: &CommandRow) -> &UpdateRecord {
    command
        .update
        .as_deref()
        .expect("the command of an update has its record")
}

fn arguments(command: &CommandRow) -> Payload {
    command
        .arguments
        .clone()
        .unwrap_or_else(Payload::empty_list)
}

impl Updates<'_, '_> {
    fn new_update(&mut self, status: UpdateStatus) -> UpdateRecord {
        UpdateRecord {
            update_id: self.draft.ids.mint(),
            status,
            workflow_sequence: None,
            result: None,
            completed_event: None,
            failure: None,
            validation_errors: FieldErrors::new(),
            accepted_at: None,
            applied_at: None,
            rejected_at: None,
            closed_at: None,
        }
    }

    fn begin(&mut self, mut command: CommandRow, arguments: &Payload) -> CommandRow {
        let record = UpdateRecord {
            accepted_at: Some(self.draft.now),
            ..self.new_update(UpdateStatus::Accepted)
        };
        command.update = Some(Box::new(record));
        self.rewrite_command(&command);
        command.arguments = Some(arguments.clone());
        command
    }

    /// Rewrites the row of a command as it is now.
    fn rewrite_command(&mut self, command: &CommandRow) {
        match self
            .draft
            .commands
            .iter_mut()
            .find(|row| row.sequence == command.sequence)
        {
            Some(row) => *row = command.clone(),
            None => self.draft.commands.push(command.clone()),
        }
    }

    /// Accepts an update: into history at once, or behind the leased task.
    pub(crate) fn accept(&mut self, command: CommandRow) {
        self.draft.core.open.updates += 1;
        if self.draft.is_leased() {
            self.draft.signals().buffer(Message::Update(command));
        } else {
            self.record(command);
        }
    }

    pub(crate) fn record(&mut self, command: CommandRow) {
        let outer = std::mem::replace(&mut self.draft.cause, cause(&command));
        let call = self.draft.update_call(&command);
        let accepted_at = self
            .draft
            .append(EventPayload::UpdateAccepted(UpdateAccepted {
                call,
                arguments: arguments(&command),
                payload_codec: PAYLOAD_CODEC,
                ordering_state: "ready",
            }));
        self.draft.cause = outer;
        let key = PartKey::Update(command.sequence);
        let update = Update {
            command,
            accepted_at,
        };
        self.draft.put(key, Part::Update(Box::new(update)));
        if self.draft.core.workflow_task.is_none() {
            self.draft.workflow_task().choose_next(LookAgain::No);
        }
    }

    /// Completes an update: the changes of its handler count, and a condition may have become true.
    pub(crate) fn complete(&mut self, update_id: &UpdateId, result: Option<&Payload>) {
        let Some(update) = self.draft.update_by_id(update_id).cloned() else {
            return;
        };
        let too_large = result.map(|result| {
            limits::check(
                "payload_size",
                result.blob().len() as u64,
                self.draft.limits.payload_bytes,
            )
        });
        if let Some(Err(limit)) = too_large {
            let message = format!(
                "The result of the update is too large: {} bytes, {} are allowed.",
                limit.value, limit.configured
            );
            let failure = UpdateFailure {
                non_retryable: true,
                ..self.failure("structural_limit", message)
            };
            return self.end(&update, None, Some(failure), None);
        }
        let workflow_sequence = self.draft.newest_wait();
        let call = self.draft.update_call(&update.command);
        let applied = self
            .draft
            .append(EventPayload::UpdateApplied(UpdateApplied {
                call,
                arguments: arguments(&update.command),
                payload_codec: PAYLOAD_CODEC,
                sequence: workflow_sequence,
            }));
        let result = result.cloned().unwrap_or_else(Payload::null);
        self.end(&update, Some(result), None, workflow_sequence);
        if let Some(wait) = self.draft.newest_condition() {
            let resume = condition_resume(&wait, &update);
            self.draft.workflow_task().wake_at(applied, resume);
        }
    }

    pub(crate) fn fail(&mut self, command: &FailUpdate) {
        let Some(update) = self.draft.update_by_id(&command.update_id).cloned() else {
            return;
        };
        let mut failure = self.failure("application", command.message.clone());
        failure.non_retryable = command.non_retryable;
        failure.exception_type.clone_from(&command.exception_type);
        failure.exception_class.clone_from(&command.exception_class);
        for (key, value) in [
            ("type", &command.exception_type),
            ("class", &command.exception_class),
        ] {
            if let Some(value) = value {
                failure
                    .exception
                    .insert(key.to_owned(), Value::String(value.clone()));
            }
        }
        let workflow_sequence = self.draft.newest_wait();
        self.end(&update, None, Some(failure), workflow_sequence);
    }

    /// Fails the open updates of a closed run, after its terminal event.
    pub(crate) fn fail_open(&mut self, closed_reason: &'static str) {
        let open: Vec<Update> = self.draft.open_updates().cloned().collect();
        for update in open {
            let message = format!("The run closed ({closed_reason}) before the update was over.");
            let mut failure = self.failure(closed_reason, message);
            failure.terminal_reason = Some(closed_reason);
            self.end(&update, None, Some(failure), None);
        }
    }

    /// Returns a retryable failure with a new id and without an exception type.
    fn failure(&mut self, failure_category: &'static str, message: String) -> UpdateFailure {
        UpdateFailure {
            failure_id: self.draft.ids.mint(),
            failure_category,
            non_retryable: false,
            exception_type: None,
            exception_class: None,
            exception: Map::from_iter([("message".to_owned(), Value::String(message.clone()))]),
            message,
            terminal_reason: None,
        }
    }

    fn end(
        &mut self,
        update: &Update,
        result: Option<Payload>,
        failure: Option<UpdateFailure>,
        workflow_sequence: Option<CommandSeq>,
    ) {
        let mut command = update.command.clone();
        let failed = failure.as_ref().map(|failure| UpdateFailed {
            failure_id: failure.failure_id.clone(),
            message: failure.message.clone(),
        });
        command.outcome = if failed.is_some() {
            "update_failed"
        } else {
            "update_completed"
        }
        .to_owned();
        let closed_at = self.draft.now;
        if let Some(record) = command.update.as_deref_mut() {
            record.status = if failed.is_some() {
                UpdateStatus::Failed
            } else {
                UpdateStatus::Completed
            };
            record.workflow_sequence = workflow_sequence;
            record.result.clone_from(&result);
            record.applied_at = failed.is_none().then_some(closed_at);
            record.closed_at = Some(closed_at);
            record.failure = failed;
        }
        let outer_command = self
            .draft
            .cause
            .command_id
            .replace(command.command_id.clone());
        let call = self.draft.update_call(&command);
        let completed =
            self.draft
                .append(EventPayload::UpdateCompleted(Box::new(UpdateCompleted {
                    call,
                    sequence: workflow_sequence,
                    result,
                    payload_codec: PAYLOAD_CODEC,
                    failure,
                })));
        self.draft.cause.command_id = outer_command;
        if let Some(record) = command.update.as_deref_mut() {
            record.completed_event = Some(completed);
        }
        self.rewrite_command(&command);
        self.draft.remove(PartKey::Update(command.sequence));
        self.draft.core.open.updates = self.draft.core.open.updates.saturating_sub(1);
    }
}

impl Draft<'_> {
    fn update_call(&self, command: &CommandRow) -> UpdateCall {
        UpdateCall {
            workflow_command_id: command.command_id.clone(),
            update_id: record(command).update_id.clone(),
            workflow_instance_id: self.spec.workflow_id.clone(),
            workflow_run_id: self.spec.run_id.clone(),
            update_name: command.target_name.clone().unwrap_or_default(),
        }
    }

    pub(crate) fn update_by_id(&self, update_id: &UpdateId) -> Option<&Update> {
        self.open_updates().find(|update| update.id() == update_id)
    }

    /// Returns the oldest update that waits for its turn, with its position in history.
    pub(crate) fn oldest_update(&self) -> Option<(HistorySeq, Resume)> {
        self.open_updates()
            .min_by_key(|update| update.accepted_at)
            .map(|update| (update.accepted_at, update_resume(update)))
    }

    fn newest_condition(&self) -> Option<Wait> {
        self.open_waits()
            .filter(|wait| matches!(wait.what, WaitFor::Condition { .. }))
            .max_by_key(|wait| wait.sequence)
            .cloned()
    }
}

/// Returns why a task exists that runs an update handler.
fn update_resume(update: &Update) -> Resume {
    let id = update.id();
    Resume {
        workflow_wait_kind: Some("update".to_owned()),
        open_wait_id: Some(format!("update:{id}")),
        resume_source_kind: Some("workflow_update".to_owned()),
        resume_source_id: Some(id.to_string()),
        workflow_update_id: Some(id.clone()),
        update_name: update.command.target_name.clone(),
        workflow_command_id: Some(update.command.command_id.clone()),
        ..Resume::default()
    }
}

/// Returns why the workflow checks its condition again after an update. The update itself is done: naming it as the update of the
/// task would run its handler a second time.
fn condition_resume(wait: &Wait, update: &Update) -> Resume {
    let mut resume = Resume {
        workflow_wait_kind: Some("condition".to_owned()),
        open_wait_id: Some(wait.id.to_string()),
        resume_source_kind: Some("workflow_update".to_owned()),
        resume_source_id: Some(update.id().to_string()),
        condition_wait_id: Some(wait.id.clone()),
        ..Resume::default()
    };
    if let WaitFor::Condition {
        key, fingerprint, ..
    } = &wait.what
    {
        resume.condition_key.clone_from(key);
        resume
            .condition_definition_fingerprint
            .clone_from(fingerprint);
    }
    resume
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_errors_of_a_validator_are_truncated() {
        let message = "ü".repeat(ERROR_LENGTH_MAX + 1);
        let errors: FieldErrors = (0..=ERROR_FIELDS_MAX)
            .map(|number| {
                let messages = vec![message.clone(); ERRORS_PER_FIELD_MAX + 1];
                (format!("{number:04}{message}"), messages)
            })
            .collect();
        let kept = kept(errors);
        assert_eq!(kept.len(), ERROR_FIELDS_MAX);
        for (field, messages) in &kept {
            assert_eq!(field.chars().count(), ERROR_LENGTH_MAX);
            assert_eq!(messages.len(), ERRORS_PER_FIELD_MAX);
            assert_eq!(messages[0].chars().count(), ERROR_LENGTH_MAX);
        }
    }
}
