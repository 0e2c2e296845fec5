//! Reads the fields of one workflow command and collects the errors in them.

use serde_json::{Map, Value};

use super::{
    CancellationPolicy, CommandRetryPolicy, FailUpdate, FailWorkflow, FieldErrors, NAME_BYTES_MAX,
    OpenConditionWait, ParentClosePolicy, ScheduleActivity, SelectionMember, StartChildWorkflow,
    WorkflowCommand, add,
};
use crate::id::UpdateId;
use crate::parallel_group::Group;
use crate::payload::{
    Payload, command_payload, envelope_only, memo, optional_command_payload, payload_codec,
};
use crate::sequence::CommandSeq;
use crate::worker_session::WorkerSessionOptions;

/// The most characters of an unknown name that a refusal repeats.
const NAME_SHOWN_CHARACTERS_MAX: usize = 64;

/// Shortens a name, so that a refusal does not repeat a megabyte.
fn shortened(name: &str) -> String {
    name.chars().take(NAME_SHOWN_CHARACTERS_MAX).collect()
}

const LOCAL: &str = "record_local_activity";

/// Fields that belong to certain commands only. A value in them on another command is an error.
const SCOPED: &[(&str, &[&str])] = &[
    (
        "retry_policy",
        &["schedule_activity", "start_child_workflow", LOCAL],
    ),
    ("start_to_close_timeout", &["schedule_activity", LOCAL]),
    ("schedule_to_start_timeout", &["schedule_activity"]),
    ("schedule_to_close_timeout", &["schedule_activity", LOCAL]),
    ("heartbeat_timeout", &["schedule_activity", LOCAL]),
    ("worker_session", &["schedule_activity"]),
    ("parent_close_policy", &["start_child_workflow"]),
    ("execution_timeout_seconds", &["start_child_workflow"]),
    ("run_timeout_seconds", &["start_child_workflow"]),
    ("non_retryable", &["fail_workflow", "fail_update", LOCAL]),
    ("delay_seconds", &["start_timer"]),
    (
        "timeout_seconds",
        &["open_condition_wait", "open_signal_wait"],
    ),
    (
        "arguments",
        &[
            "schedule_activity",
            "start_child_workflow",
            "continue_as_new",
            LOCAL,
        ],
    ),
    (
        "result",
        &[
            "complete_workflow",
            "complete_update",
            "record_side_effect",
            LOCAL,
        ],
    ),
    ("entries", &["upsert_memo"]),
];

/// Reads one command's fields and collects what is wrong with them.
pub(super) struct Fields<'a> {
    pub(super) at: String,
    pub(super) map: Option<&'a Map<String, Value>>,
    pub(super) errors: &'a mut FieldErrors,
}

impl<'a> Fields<'a> {
    pub(super) fn command(&mut self) -> Option<WorkflowCommand> {
        let Some(map) = self.map else {
            add(self.errors, self.at.clone(), "must be an object");
            return None;
        };
        let Some(command_type) = map.get("type").and_then(Value::as_str) else {
            self.refuse("type", "must be a command type");
            return None;
        };
        let known = crate::describe::WORKFLOW_TASK_COMMANDS;
        if !known.contains(&command_type) {
            self.refuse(
                "type",
                &format!(
                    "unknown command type `{}`; this server knows {}",
                    shortened(command_type),
                    known.join(", ")
                ),
            );
            return None;
        }
        let before = self.errors.len();
        for (field, types) in SCOPED {
            if !types.contains(&command_type) && self.value(field).is_some() {
                self.refuse(field, &format!("does not belong on {command_type}"));
            }
        }
        if let Err(error) = payload_codec(map.get("payload_codec"), &self.path("payload_codec")) {
            add(self.errors, error.path, error.message);
        }
        let command = self.body(command_type);
        (self.errors.len() == before).then_some(command).flatten()
    }

    fn body(&mut self, command_type: &str) -> Option<WorkflowCommand> {
        Some(match command_type {
            "schedule_activity" => self.schedule_activity()?,
            "start_timer" => WorkflowCommand::StartTimer {
                delay_seconds: self.required_number("delay_seconds", 0)?,
                group: self.group()?,
            },
            "start_child_workflow" => self.start_child_workflow()?,
            "complete_update" => WorkflowCommand::CompleteUpdate {
                update_id: UpdateId::from(self.name("update_id")?),
                result: self.payload("result")?,
            },
            "fail_update" => WorkflowCommand::FailUpdate(Box::new(FailUpdate {
                update_id: UpdateId::from(self.name("update_id")?),
                message: self.message()?,
                exception_type: self.text("exception_type")?,
                exception_class: self.text("exception_class")?,
                non_retryable: self.flag("non_retryable")?,
            })),
            "cancel_selection_operation" => self.selection_member()?,
            "open_condition_wait" => {
                WorkflowCommand::OpenConditionWait(Box::new(OpenConditionWait {
                    condition_key: self.text("condition_key")?,
                    condition_definition_fingerprint: self
                        .text("condition_definition_fingerprint")?,
                    condition_wait_occurrence_id: self.text("condition_wait_occurrence_id")?,
                    timeout_seconds: self.number("timeout_seconds", 0)?,
                    group: self.group()?,
                }))
            }
            "open_signal_wait" => WorkflowCommand::OpenSignalWait {
                signal_name: self.name("signal_name")?,
                timeout_seconds: self.number("timeout_seconds", 0)?,
                group: self.group()?,
            },
            LOCAL => WorkflowCommand::RecordLocalActivity(Box::new(self.record_local_activity()?)),
            "record_side_effect" => self.side_effect()?,
            "record_version_marker" => self.version_marker()?,
            "upsert_search_attributes" => self.search_attributes()?,
            "upsert_memo" => self.memo()?,
            "complete_workflow" => WorkflowCommand::CompleteWorkflow {
                result: self.payload("result")?,
            },
            "fail_workflow" => self.fail_workflow()?,
            "continue_as_new" => WorkflowCommand::ContinueAsNew {
                arguments: self.payload("arguments")?,
                workflow_type: self.text("workflow_type")?,
                queue: self.text("queue")?,
            },
            _ => return None,
        })
    }

    fn schedule_activity(&mut self) -> Option<WorkflowCommand> {
        let activity = ScheduleActivity {
            activity_type: self.name("activity_type")?,
            arguments: self.payload("arguments")?,
            queue: self.text("queue")?,
            retry_policy: self.retry_policy()?,
            start_to_close_timeout: self.number("start_to_close_timeout", 1)?,
            schedule_to_start_timeout: self.number("schedule_to_start_timeout", 1)?,
            schedule_to_close_timeout: self.number("schedule_to_close_timeout", 1)?,
            heartbeat_timeout: self.number("heartbeat_timeout", 1)?,
            cancellation_policy: self.cancellation_policy()?,
            worker_session: self.worker_session()?,
            group: self.group()?,
        };
        let exceeds = |inner: Option<u64>, outer: Option<u64>| matches!((inner, outer), (Some(inner), Some(outer)) if inner > outer);
        for (field, inner, outer_field, outer) in [
            (
                "heartbeat_timeout",
                activity.heartbeat_timeout,
                "start_to_close_timeout",
                activity.start_to_close_timeout,
            ),
            (
                "start_to_close_timeout",
                activity.start_to_close_timeout,
                "schedule_to_close_timeout",
                activity.schedule_to_close_timeout,
            ),
            (
                "schedule_to_start_timeout",
                activity.schedule_to_start_timeout,
                "schedule_to_close_timeout",
                activity.schedule_to_close_timeout,
            ),
        ] {
            if exceeds(inner, outer) {
                self.refuse(field, &format!("must not be longer than {outer_field}"));
            }
        }
        if activity.cancellation_policy == Some(CancellationPolicy::Abandon)
            && activity.schedule_to_close_timeout.is_none()
        {
            self.refuse(
                "cancellation_policy",
                "abandon needs schedule_to_close_timeout",
            );
        }
        Some(WorkflowCommand::ScheduleActivity(Box::new(activity)))
    }

    pub(super) fn retry_policy(&mut self) -> Option<Option<CommandRetryPolicy>> {
        let Some(value) = self.value("retry_policy") else {
            return Some(None);
        };
        let Some(policy) = value.as_object() else {
            self.refuse("retry_policy", "must be an object");
            return None;
        };
        let max_attempts = match policy.get("max_attempts") {
            None => None,
            Some(Value::Null) => Some(None),
            Some(value) => match value.as_u64() {
                Some(attempts) if attempts >= 1 => Some(Some(attempts)),
                _ => {
                    self.refuse(
                        "retry_policy.max_attempts",
                        "must be an integer of at least 1, or null for no limit",
                    );
                    return None;
                }
            },
        };
        let backoff_seconds = match policy.get("backoff_seconds") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(list)) => {
                match list.iter().map(Value::as_u64).collect::<Option<Vec<_>>>() {
                    Some(list) => list,
                    None => {
                        self.refuse(
                            "retry_policy.backoff_seconds",
                            "must contain integers of at least 0",
                        );
                        return None;
                    }
                }
            }
            Some(value) => match value.as_u64() {
                Some(seconds) => vec![seconds],
                None => {
                    self.refuse("retry_policy.backoff_seconds", "must be a list of seconds");
                    return None;
                }
            },
        };
        let non_retryable_error_types = match policy.get("non_retryable_error_types") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(list)) if list.iter().all(Value::is_string) => list
                .iter()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect(),
            Some(_) => {
                self.refuse(
                    "retry_policy.non_retryable_error_types",
                    "must be a list of strings",
                );
                return None;
            }
        };
        Some(Some(CommandRetryPolicy {
            max_attempts,
            backoff_seconds,
            non_retryable_error_types,
        }))
    }

    fn worker_session(&mut self) -> Option<Option<Box<WorkerSessionOptions>>> {
        let Some(value) = self.value("worker_session") else {
            return Some(None);
        };
        let Some(map) = value.as_object() else {
            self.refuse("worker_session", "must be an object");
            return None;
        };
        let at = format!("{}.", self.path("worker_session"));
        let options = WorkerSessionOptions::read(map, &at, self.errors)?;
        Some(Some(Box::new(options)))
    }

    pub(super) fn cancellation_policy(&mut self) -> Option<Option<CancellationPolicy>> {
        Some(match self.value("cancellation_policy") {
            None => None,
            Some(value) => match value.as_str() {
                Some("try_cancel") => Some(CancellationPolicy::TryCancel),
                Some("wait_cancellation_completed") => {
                    Some(CancellationPolicy::WaitCancellationCompleted)
                }
                Some("abandon") => Some(CancellationPolicy::Abandon),
                _ => {
                    self.refuse(
                        "cancellation_policy",
                        "must be try_cancel, wait_cancellation_completed or abandon",
                    );
                    return None;
                }
            },
        })
    }

    fn start_child_workflow(&mut self) -> Option<WorkflowCommand> {
        let child = StartChildWorkflow {
            workflow_type: self.name("workflow_type")?,
            arguments: self.payload("arguments")?,
            queue: self.text("queue")?,
            parent_close_policy: self.parent_close_policy()?,
            cancellation_policy: self.cancellation_policy()?,
            retry_policy: self.retry_policy()?,
            execution_timeout_seconds: self.number("execution_timeout_seconds", 1)?,
            run_timeout_seconds: self.number("run_timeout_seconds", 1)?,
            group: self.group()?,
        };
        if let (Some(run), Some(execution)) =
            (child.run_timeout_seconds, child.execution_timeout_seconds)
            && run > execution
        {
            self.refuse(
                "run_timeout_seconds",
                "must not be longer than execution_timeout_seconds",
            );
        }
        Some(WorkflowCommand::StartChildWorkflow(Box::new(child)))
    }

    fn parent_close_policy(&mut self) -> Option<ParentClosePolicy> {
        match self.value("parent_close_policy").map(Value::as_str) {
            None | Some(Some("abandon")) => Some(ParentClosePolicy::Abandon),
            Some(Some("request_cancel")) => Some(ParentClosePolicy::RequestCancel),
            Some(Some("terminate")) => Some(ParentClosePolicy::Terminate),
            Some(Some("request_cancellation")) => Some(ParentClosePolicy::RequestCancellation),
            Some(_) => {
                self.refuse(
                    "parent_close_policy",
                    "must be abandon, request_cancel, terminate or request_cancellation",
                );
                None
            }
        }
    }

    fn selection_member(&mut self) -> Option<WorkflowCommand> {
        let member_key = match self.value("member_key") {
            Some(key @ Value::String(_)) => key.clone(),
            Some(key) if key.is_u64() => key.clone(),
            _ => {
                self.refuse("member_key", "must be a string or an integer from 0");
                return None;
            }
        };
        let member = SelectionMember {
            selection_group_id: self.name("selection_group_id")?,
            member_key,
            member_index: self.required_number("member_index", 0)?,
            member_base_sequence: self.required_number("member_base_sequence", 1)?.into(),
            member_size: self.required_number("member_size", 1)?,
            operation_kind: self.name("operation_kind")?,
            operation_identity: self.name("operation_identity")?,
        };
        Some(WorkflowCommand::CancelSelectionOperation(Box::new(member)))
    }

    fn side_effect(&mut self) -> Option<WorkflowCommand> {
        if self.value("workflow_stream").is_some() {
            self.refuse(
                "workflow_stream",
                "this server does not support output streams yet",
            );
        }
        let Some(value) = self.value("result") else {
            self.refuse("result", "is required");
            return None;
        };
        match command_payload(value, &self.path("result")) {
            Ok(result) => Some(WorkflowCommand::RecordSideEffect { result }),
            Err(error) => {
                add(self.errors, error.path, error.message);
                None
            }
        }
    }

    fn version_marker(&mut self) -> Option<WorkflowCommand> {
        let change_id = self.name("change_id")?;
        let version = self.required_i32("version")?;
        let min_supported = self.required_i32("min_supported")?;
        let max_supported = self.required_i32("max_supported")?;
        if min_supported > max_supported {
            self.refuse("min_supported", "must not be greater than max_supported");
        } else if version < min_supported || version > max_supported {
            self.refuse(
                "version",
                "must lie between min_supported and max_supported",
            );
        }
        Some(WorkflowCommand::RecordVersionMarker {
            change_id,
            version,
            min_supported,
            max_supported,
        })
    }

    fn search_attributes(&mut self) -> Option<WorkflowCommand> {
        let Some(Value::Object(attributes)) = self.value("attributes") else {
            self.refuse("attributes", "must be an object");
            return None;
        };
        if attributes.is_empty() {
            self.refuse("attributes", "must not be empty");
        }
        for (key, value) in attributes {
            let scalar = matches!(
                value,
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)
            );
            if !scalar && !matches!(value, Value::Array(list) if list.iter().all(Value::is_string))
            {
                self.refuse(
                    &format!("attributes.{key}"),
                    "must be a string, a number, a boolean, a list of strings or null",
                );
            }
        }
        let attribute_types = match self.value("attribute_types") {
            None => None,
            Some(Value::Object(types)) => {
                for (key, value) in types {
                    let known = [
                        "string",
                        "keyword",
                        "keyword_list",
                        "int",
                        "float",
                        "bool",
                        "datetime",
                    ];
                    if !value.as_str().is_some_and(|name| known.contains(&name)) {
                        self.refuse(
                            &format!("attribute_types.{key}"),
                            &format!("must be one of {}", known.join(", ")),
                        );
                    } else if !attributes.contains_key(key) {
                        self.refuse(
                            &format!("attribute_types.{key}"),
                            "names no attribute of this command",
                        );
                    }
                }
                Some(types.clone())
            }
            Some(_) => {
                self.refuse("attribute_types", "must be an object");
                return None;
            }
        };
        Some(WorkflowCommand::UpsertSearchAttributes {
            attributes: attributes.clone(),
            attribute_types,
        })
    }

    fn memo(&mut self) -> Option<WorkflowCommand> {
        let path = self.path("entries");
        let Some(value) = self.value("entries") else {
            self.refuse("entries", "is required");
            return None;
        };
        let entries = match envelope_only(value, &path) {
            Ok(entries) => entries,
            Err(error) => {
                add(self.errors, error.path, error.message);
                return None;
            }
        };
        // Limits are not shape: they fail the run later. Only keys and the map itself are checked here.
        match entries
            .decode()
            .map_err(|error| error.to_string())
            .and_then(|map| memo::check_keys(&map).map_err(|error| error.to_string()))
        {
            Ok(()) => Some(WorkflowCommand::UpsertMemo { entries }),
            Err(message) => {
                add(self.errors, path, message);
                None
            }
        }
    }

    fn fail_workflow(&mut self) -> Option<WorkflowCommand> {
        let message = self.message()?;
        let exception = match self.value("exception") {
            None => None,
            Some(Value::Object(exception)) => Some(exception.clone()),
            Some(_) => {
                self.refuse("exception", "must be an object");
                return None;
            }
        };
        Some(WorkflowCommand::FailWorkflow(Box::new(FailWorkflow {
            message,
            exception_type: self.text("exception_type")?,
            exception_class: self.text("exception_class")?,
            exception,
            non_retryable: self.flag("non_retryable")?,
            failed_step_sequence: self.number("failed_step_sequence", 1)?.map(CommandSeq::new),
            failed_activity_execution_id: self.text("failed_activity_execution_id")?,
        })))
    }

    fn path(&self, field: &str) -> String {
        format!("{}.{field}", self.at)
    }

    pub(super) fn refuse(&mut self, field: &str, message: &str) {
        let path = self.path(field);
        add(self.errors, path, message);
    }

    /// Adds an error about the object itself.
    pub(super) fn refuse_whole(&mut self, message: &str) {
        add(self.errors, self.at.clone(), message);
    }

    /// Returns the value of the field; null counts as absent.
    pub(super) fn value(&self, field: &str) -> Option<&'a Value> {
        self.map
            .and_then(|map| map.get(field))
            .filter(|value| !value.is_null())
    }

    pub(super) fn payload(&mut self, field: &str) -> Option<Option<Payload>> {
        match optional_command_payload(self.value(field), &self.path(field)) {
            Ok(payload) => Some(payload),
            Err(error) => {
                add(self.errors, error.path, error.message);
                None
            }
        }
    }

    pub(super) fn group(&mut self) -> Option<Option<Group>> {
        match Group::read(self.map?) {
            Ok(group) => Some(group),
            Err((key, message)) => {
                self.refuse(&key, &message);
                None
            }
        }
    }

    fn name(&mut self, field: &str) -> Option<String> {
        match self.value(field) {
            Some(Value::String(text)) if !text.is_empty() && text.len() <= NAME_BYTES_MAX => {
                Some(text.clone())
            }
            _ => {
                self.refuse(
                    field,
                    &format!("must be a string of 1 to {NAME_BYTES_MAX} bytes"),
                );
                None
            }
        }
    }

    pub(super) fn text(&mut self, field: &str) -> Option<Option<String>> {
        match self.value(field) {
            None => Some(None),
            Some(Value::String(text)) => Some(Some(text.clone())),
            Some(_) => {
                self.refuse(field, "must be a string");
                None
            }
        }
    }

    pub(super) fn number(&mut self, field: &str, least: u64) -> Option<Option<u64>> {
        let Some(value) = self.value(field) else {
            return Some(None);
        };
        match value.as_u64() {
            Some(number) if number >= least => Some(Some(number)),
            _ => {
                self.refuse(field, &format!("must be an integer of at least {least}"));
                None
            }
        }
    }

    pub(super) fn required_number(&mut self, field: &str, least: u64) -> Option<u64> {
        let number = self.number(field, least)?;
        if number.is_none() {
            self.refuse(field, "is required");
        }
        number
    }

    fn message(&mut self) -> Option<String> {
        let message = self.value("message").and_then(Value::as_str);
        if message.is_none() {
            self.refuse("message", "must be a string");
        }
        message.map(str::to_owned)
    }

    pub(super) fn flag(&mut self, field: &str) -> Option<bool> {
        match self.value(field) {
            None => Some(false),
            Some(Value::Bool(flag)) => Some(*flag),
            Some(_) => {
                self.refuse(field, "must be true or false");
                None
            }
        }
    }

    fn required_i32(&mut self, field: &str) -> Option<i32> {
        let number = self
            .value(field)
            .and_then(Value::as_i64)
            .and_then(|number| i32::try_from(number).ok());
        if number.is_none() {
            self.refuse(field, "must be a 32-bit integer");
        }
        number
    }
}
