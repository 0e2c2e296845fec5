//! Local activities in requests: `record_local_activity`, which reports one that has ended, and the descriptor of one that
//! is about to run. Both describe the same call; a report adds how each attempt ended.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::fields::Fields;
use super::{CancellationPolicy, CommandRetryPolicy, FieldErrors, NAME_BYTES_MAX};
use crate::id::{CommandId, EventId};
use crate::parallel_group::Group;
use crate::payload::Payload;

/// The most attempts of one reported call. Both published workers keep them in memory and have the same limit.
pub const REPORTED_ATTEMPTS_MAX: u64 = 100;

/// The most heartbeats of one reported call, over all attempts.
pub const REPORTED_HEARTBEATS_MAX: usize = 1000;

/// Options of ordinary activities that need a queue. A local activity has none.
const FORBIDDEN: [&str; 4] = [
    "queue",
    "connection",
    "worker_session",
    "schedule_to_start_timeout",
];

/// A call of a local activity.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalActivityCall {
    /// The registered name of the activity code.
    pub activity_type: String,
    /// The argument list, as one payload.
    pub arguments: Payload,
    /// The retry policy of the call, if it has one.
    pub retry_policy: Option<CommandRetryPolicy>,
    /// Seconds that one attempt may take.
    pub start_to_close_timeout: Option<u64>,
    /// Seconds that the call may take over all attempts.
    pub schedule_to_close_timeout: Option<u64>,
    /// Seconds that may pass between two heartbeats.
    pub heartbeat_timeout: Option<u64>,
    /// What a delivered cancellation does to the call; absent means the default of its kind.
    pub cancellation_policy: Option<CancellationPolicy>,
    /// The parallel group of the call. Only a checkpoint can contain grouped local calls.
    pub group: Option<Group>,
    /// Set if the call is cleanup after a delivered cancellation.
    pub cancellation_cleanup: Option<CleanupProof>,
}

/// The cancellation that a cleanup call belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CleanupProof {
    /// The cancellation request.
    pub request_id: CommandId,
    /// The event that recorded its delivery.
    pub delivery_history_event_id: EventId,
}

/// A finished local activity.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordLocalActivity {
    /// The call.
    pub call: LocalActivityCall,
    /// How the last attempt ended.
    pub end: LocalEnd,
    /// One report per attempt, oldest first; never empty.
    pub attempts: Vec<ReportedAttempt>,
}

/// How a local activity, or one attempt of it, ended.
#[derive(Clone, Debug, PartialEq)]
pub enum LocalEnd {
    /// It returned a value.
    Completed {
        /// The value.
        result: Payload,
    },
    /// It failed.
    Failed(LocalFailure),
    /// A time limit ran out.
    TimedOut(LocalTimeout, LocalFailure),
    /// It was cancelled.
    Cancelled(LocalFailure),
}

/// The failure of an attempt that did not succeed, as its worker reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalFailure {
    /// The error text.
    pub message: String,
    /// The portable name of the error; retry policies match it.
    pub exception_type: Option<String>,
    /// Whether the failure forbids further attempts, whatever the retry policy allows.
    pub non_retryable: bool,
}

/// The time limit that ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalTimeout {
    /// The limit of the call over all attempts.
    ScheduleToClose,
    /// The limit between two heartbeats.
    Heartbeat,
    /// The limit of one attempt.
    StartToClose,
}

impl LocalTimeout {
    /// Returns the wire name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ScheduleToClose => "schedule_to_close",
            Self::Heartbeat => "heartbeat",
            Self::StartToClose => "start_to_close",
        }
    }
}

/// One attempt as its worker reports it.
#[derive(Clone, Debug, PartialEq)]
pub struct ReportedAttempt {
    /// The name that the worker gave the attempt.
    pub attempt_id: Option<String>,
    /// How long the attempt ran.
    pub duration_ms: u64,
    /// The heartbeats of the attempt, oldest first.
    pub heartbeats: Vec<ReportedHeartbeat>,
    /// Why another attempt followed; `None` for the last attempt.
    pub retry: Option<ReportedRetry>,
}

/// A heartbeat of a reported attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct ReportedHeartbeat {
    /// Milliseconds since the attempt began.
    pub elapsed_ms: u64,
    /// The progress that the activity reported.
    pub details: Option<Map<String, Value>>,
}

/// Why another attempt followed, and after how long.
#[derive(Clone, Debug, PartialEq)]
pub struct ReportedRetry {
    /// `failure`, `timeout` or `cold_replay`.
    pub retry_reason: &'static str,
    /// The pause before the next attempt.
    pub backoff_seconds: u64,
    /// Set if the attempt timed out.
    pub timeout_kind: Option<LocalTimeout>,
    /// How the attempt ended.
    pub failure: LocalFailure,
}

/// Reads the descriptor of a local activity that is about to run.
///
/// # Errors
/// Every offending field below `at`, with its messages.
pub fn parse_descriptor(descriptor: &Value, at: &str) -> Result<LocalActivityCall, FieldErrors> {
    let mut errors = FieldErrors::new();
    let mut fields = Fields {
        at: at.to_owned(),
        map: descriptor.as_object(),
        errors: &mut errors,
    };
    if fields.map.is_none() {
        fields.refuse_whole("must be an object");
    }
    if !matches!(
        descriptor.get("type").and_then(Value::as_str),
        None | Some("record_local_activity" | "prepare_local_activity")
    ) {
        fields.refuse("type", "must be record_local_activity");
    }
    for field in ["outcome", "attempts", "result"] {
        if fields.value(field).is_some() {
            fields.refuse(field, "is reported when the attempt is over");
        }
    }
    let call = fields.local_call(Profile::Durable);
    match call {
        Some(call) if errors.is_empty() => Ok(call),
        _ => Err(errors),
    }
}

/// Where attempts and pauses between them are kept: in the memory of the worker, or in the history.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Profile {
    Inline,
    Durable,
}

/// The four outcomes in a report.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    Completed,
    Failed,
    TimedOut,
    Cancelled,
}

impl Fields<'_> {
    pub(super) fn record_local_activity(&mut self) -> Option<RecordLocalActivity> {
        for key in self.map?.keys() {
            if key.starts_with("parallel_group_") && self.value(key).is_some() {
                self.refuse(key, "a recorded local activity cannot be in a group");
            }
        }
        let call = self.local_call(Profile::Inline);
        let word = self.outcome();
        let end = word.and_then(|word| self.local_end(word));
        let attempts = self.attempts(call.as_ref(), word);
        let (call, mut end, attempts) = (call?, end?, attempts?);
        // A worker may name the type on the last attempt only.
        if let LocalEnd::Failed(failure)
        | LocalEnd::TimedOut(_, failure)
        | LocalEnd::Cancelled(failure) = &mut end
            && failure.exception_type.is_none()
        {
            let last = self.value("attempts")?.as_array()?.last()?;
            failure.exception_type = last
                .get("exception_type")
                .and_then(Value::as_str)
                .map(trimmed);
        }
        Some(RecordLocalActivity {
            call,
            end,
            attempts,
        })
    }

    pub(super) fn local_call(&mut self, profile: Profile) -> Option<LocalActivityCall> {
        for field in FORBIDDEN {
            if self.value(field).is_some() {
                self.refuse(field, "does not belong on a local activity");
            }
        }
        let activity_type = self.trimmed_name("activity_type");
        if self.value("execution_mode").and_then(Value::as_str) != Some("local") {
            self.refuse("execution_mode", "must be local");
        }
        let arguments = self.payload("arguments");
        let retry_policy = self.local_retry_policy(profile);
        let start_to_close_timeout = self.number("start_to_close_timeout", 1);
        let schedule_to_close_timeout = self.number("schedule_to_close_timeout", 1);
        let heartbeat_timeout = self.number("heartbeat_timeout", 1);
        let cancellation_policy = self.cancellation_policy();
        if cancellation_policy == Some(Some(CancellationPolicy::Abandon)) {
            self.refuse(
                "cancellation_policy",
                "a local activity cannot be abandoned: it runs under the workflow task's lease",
            );
        }
        let group = match profile {
            Profile::Inline => Some(None),
            Profile::Durable => self.group(),
        };
        let cancellation_cleanup = self.cleanup_proof();
        let call = LocalActivityCall {
            activity_type: activity_type?,
            arguments: arguments?.unwrap_or_else(Payload::empty_list),
            retry_policy: retry_policy?,
            start_to_close_timeout: start_to_close_timeout?,
            schedule_to_close_timeout: schedule_to_close_timeout?,
            heartbeat_timeout: heartbeat_timeout?,
            cancellation_policy: cancellation_policy?,
            group: group?,
            cancellation_cleanup: cancellation_cleanup?,
        };
        for (field, inner, outer_field, outer) in [
            (
                "heartbeat_timeout",
                call.heartbeat_timeout,
                "start_to_close_timeout",
                call.start_to_close_timeout,
            ),
            (
                "start_to_close_timeout",
                call.start_to_close_timeout,
                "schedule_to_close_timeout",
                call.schedule_to_close_timeout,
            ),
            (
                "heartbeat_timeout",
                call.heartbeat_timeout,
                "schedule_to_close_timeout",
                call.schedule_to_close_timeout,
            ),
        ] {
            if matches!((inner, outer), (Some(inner), Some(outer)) if inner > outer) {
                self.refuse(field, &format!("must not be longer than {outer_field}"));
            }
        }
        Some(call)
    }

    fn cleanup_proof(&mut self) -> Option<Option<CleanupProof>> {
        let Some(value) = self.value("cancellation_cleanup") else {
            return Some(None);
        };
        let text = |key: &str| value.get(key).and_then(Value::as_str);
        let (Some(request_id), Some(event_id)) =
            (text("request_id"), text("delivery_history_event_id"))
        else {
            self.refuse(
                "cancellation_cleanup",
                "must name request_id and delivery_history_event_id",
            );
            return None;
        };
        Some(Some(CleanupProof {
            request_id: CommandId::from(request_id),
            delivery_history_event_id: EventId::from(event_id),
        }))
    }

    fn local_retry_policy(&mut self, profile: Profile) -> Option<Option<CommandRetryPolicy>> {
        let Some(value) = self.value("retry_policy") else {
            return Some(None);
        };
        let Some(map) = value.as_object() else {
            self.refuse("retry_policy", "must be an object");
            return None;
        };
        let known = [
            "max_attempts",
            "backoff_seconds",
            "non_retryable_error_types",
        ];
        for key in map.keys().filter(|key| !known.contains(&key.as_str())) {
            self.refuse(
                &format!("retry_policy.{key}"),
                &format!("is not one of {}", known.join(", ")),
            );
        }
        let policy = self.retry_policy()?.unwrap_or_default();
        let types = &policy.non_retryable_error_types;
        let distinct: BTreeSet<&String> = types.iter().collect();
        if distinct.len() != types.len() || types.iter().any(|name| trimmed(name).is_empty()) {
            self.refuse(
                "retry_policy.non_retryable_error_types",
                "must contain distinct names",
            );
        }
        if profile == Profile::Durable {
            return Some(Some(policy));
        }
        let max_attempts = match policy.max_attempts {
            None => 1,
            Some(Some(attempts)) if attempts <= REPORTED_ATTEMPTS_MAX => attempts,
            Some(_) => {
                self.refuse(
                    "retry_policy.max_attempts",
                    &format!("must be an integer from 1 to {REPORTED_ATTEMPTS_MAX}"),
                );
                return None;
            }
        };
        let is_list = |value: &Value| value.is_array() || value.is_null();
        if !map.get("backoff_seconds").is_none_or(is_list) {
            self.refuse("retry_policy.backoff_seconds", "must be a list of seconds");
        } else if policy.backoff_seconds.len() as u64 > max_attempts - 1 {
            self.refuse(
                "retry_policy.backoff_seconds",
                "must not have more entries than there can be retries",
            );
        }
        Some(Some(policy))
    }

    fn outcome(&mut self) -> Option<Word> {
        let word = match self.value("outcome").and_then(Value::as_str) {
            Some("completed") => Some(Word::Completed),
            Some("failed") => Some(Word::Failed),
            Some("timed_out") => Some(Word::TimedOut),
            Some("cancelled") => Some(Word::Cancelled),
            _ => None,
        };
        if word.is_none() {
            self.refuse(
                "outcome",
                "must be completed, failed, timed_out or cancelled",
            );
        }
        word
    }

    fn local_end(&mut self, word: Word) -> Option<LocalEnd> {
        if word == Word::Completed {
            if self.value("non_retryable").is_some() {
                self.refuse("non_retryable", "does not belong on a success");
            }
            self.timeout_kind(word);
            let result = self.payload("result")?;
            if result.is_none() {
                self.refuse("result", "is required for a success");
            }
            return Some(LocalEnd::Completed { result: result? });
        }
        let failure = self.failure();
        let timeout = self.timeout_kind(word);
        Some(match word {
            Word::TimedOut => LocalEnd::TimedOut(timeout??, failure?),
            Word::Cancelled => LocalEnd::Cancelled(failure?),
            Word::Failed | Word::Completed => LocalEnd::Failed(failure?),
        })
    }

    fn failure(&mut self) -> Option<LocalFailure> {
        let message = self.value("message").and_then(Value::as_str).map(trimmed);
        let message = message.filter(|message| !message.is_empty());
        if message.is_none() {
            self.refuse("message", "must be a string that is not blank");
        }
        let exception_type = self.text("exception_type");
        let non_retryable = self.flag("non_retryable");
        Some(LocalFailure {
            message: message?,
            exception_type: exception_type?.as_deref().map(trimmed),
            non_retryable: non_retryable?,
        })
    }

    fn timeout_kind(&mut self, word: Word) -> Option<Option<LocalTimeout>> {
        let value = self.value("timeout_kind");
        if word != Word::TimedOut {
            if value.is_some() {
                self.refuse("timeout_kind", "belongs on a timeout only");
                return None;
            }
            return Some(None);
        }
        let kind = match value.and_then(Value::as_str) {
            Some("start_to_close") => Some(LocalTimeout::StartToClose),
            Some("schedule_to_close") => Some(LocalTimeout::ScheduleToClose),
            Some("heartbeat") => Some(LocalTimeout::Heartbeat),
            _ => None,
        };
        if kind.is_none() {
            self.refuse(
                "timeout_kind",
                "must be start_to_close, schedule_to_close or heartbeat",
            );
        }
        kind.map(Some)
    }

    fn attempts(
        &mut self,
        call: Option<&LocalActivityCall>,
        end: Option<Word>,
    ) -> Option<Vec<ReportedAttempt>> {
        let list = self.value("attempts").and_then(Value::as_array);
        let Some(list) = list.filter(|list| !list.is_empty()) else {
            self.refuse("attempts", "must be a list of at least one attempt");
            return None;
        };
        let policy = call.and_then(|call| call.retry_policy.as_ref());
        let unread = if call.is_some() {
            1
        } else {
            REPORTED_ATTEMPTS_MAX
        };
        let allowed = policy
            .and_then(|policy| policy.max_attempts.flatten())
            .unwrap_or(unread);
        if list.len() as u64 > allowed.min(REPORTED_ATTEMPTS_MAX) {
            self.refuse("attempts", "must not be more than the retry policy allows");
            return None;
        }
        let command_is_final = self.flag("non_retryable").unwrap_or(false);
        let mut read = Attempts {
            end,
            command_is_final,
            last: list.len() - 1,
            backoff: policy.map_or(&[][..], |policy| &policy.backoff_seconds),
            ids: BTreeSet::new(),
            heartbeats: 0,
        };
        let mut attempts = Vec::with_capacity(list.len());
        for (place, value) in list.iter().enumerate() {
            let mut fields = Fields {
                at: format!("{}.attempts.{place}", self.at),
                map: value.as_object(),
                errors: &mut *self.errors,
            };
            if fields.map.is_none() {
                fields.refuse_whole("must be an object");
                continue;
            }
            attempts.extend(read.attempt(&mut fields, place));
        }
        (attempts.len() == list.len()).then_some(attempts)
    }

    fn trimmed_name(&mut self, field: &str) -> Option<String> {
        let name = self.value(field).and_then(Value::as_str).map(trimmed);
        let name = name.filter(|name| !name.is_empty() && name.len() <= NAME_BYTES_MAX);
        if name.is_none() {
            self.refuse(
                field,
                &format!("must be a string of 1 to {NAME_BYTES_MAX} bytes"),
            );
        }
        name
    }
}

/// The state of reading the attempts of one report.
struct Attempts<'a> {
    end: Option<Word>,
    command_is_final: bool,
    last: usize,
    backoff: &'a [u64],
    ids: BTreeSet<String>,
    heartbeats: usize,
}

impl Attempts<'_> {
    fn attempt(&mut self, fields: &mut Fields<'_>, place: usize) -> Option<ReportedAttempt> {
        let is_last = place == self.last;
        let number = fields.value("attempt_number").and_then(Value::as_u64);
        if number != Some(place as u64 + 1) {
            fields.refuse("attempt_number", "must count the attempts from 1");
        }
        let attempt_id = self.attempt_id(fields);
        let duration_ms = fields.number("duration_ms", 0);
        let heartbeats = self.heartbeats(fields);
        let word = fields.outcome();
        if is_last && word.is_some() && self.end.is_some() && word != self.end {
            fields.refuse(
                "outcome",
                "the last attempt must have the outcome of the activity",
            );
        }
        if !is_last && matches!(word, Some(Word::Completed | Word::Cancelled)) {
            fields.refuse("outcome", "only a failure or a timeout is retried");
        }
        let mut failure = None;
        let mut timeout_kind = None;
        match word {
            Some(Word::Completed) => {
                if fields
                    .value("non_retryable")
                    .is_some_and(|flag| *flag != Value::Bool(false))
                {
                    fields.refuse("non_retryable", "does not belong on a success");
                }
                fields.timeout_kind(Word::Completed);
            }
            Some(word) => {
                failure = fields.failure();
                timeout_kind = fields.timeout_kind(word).flatten();
            }
            None => {}
        }
        let retry = if is_last {
            self.check_last(fields, failure.as_ref());
            None
        } else {
            Some(self.retry(fields, place, word, timeout_kind, failure)?)
        };
        Some(ReportedAttempt {
            attempt_id: attempt_id?,
            duration_ms: duration_ms?.unwrap_or(0),
            heartbeats: heartbeats?,
            retry,
        })
    }

    fn attempt_id(&mut self, fields: &mut Fields<'_>) -> Option<Option<String>> {
        let id = fields.text("attempt_id")?.as_deref().map(trimmed);
        if let Some(id) = &id {
            if id.is_empty() || id.len() > NAME_BYTES_MAX {
                fields.refuse(
                    "attempt_id",
                    &format!("must be a string of 1 to {NAME_BYTES_MAX} bytes"),
                );
            } else if !self.ids.insert(id.clone()) {
                fields.refuse(
                    "attempt_id",
                    "is already used by another attempt of this call",
                );
            }
        }
        Some(id)
    }

    fn heartbeats(&mut self, fields: &mut Fields<'_>) -> Option<Vec<ReportedHeartbeat>> {
        let list = match fields.value("heartbeats") {
            None => return Some(Vec::new()),
            Some(Value::Array(list)) => list,
            Some(_) => {
                fields.refuse("heartbeats", "must be a list");
                return None;
            }
        };
        self.heartbeats += list.len();
        if self.heartbeats > REPORTED_HEARTBEATS_MAX {
            fields.refuse(
                "heartbeats",
                &format!("a call may report at most {REPORTED_HEARTBEATS_MAX} heartbeats"),
            );
            return None;
        }
        let mut before = 0;
        let mut heartbeats = Vec::with_capacity(list.len());
        for (place, value) in list.iter().enumerate() {
            let elapsed = value.get("elapsed_ms").and_then(Value::as_u64);
            match elapsed {
                Some(elapsed) if elapsed >= before => before = elapsed,
                Some(_) => fields.refuse(
                    &format!("heartbeats.{place}.elapsed_ms"),
                    "must not be earlier than the heartbeat before",
                ),
                None => fields.refuse(
                    &format!("heartbeats.{place}.elapsed_ms"),
                    "must be an integer of at least 0",
                ),
            }
            let details = match value.get("details") {
                None | Some(Value::Null) => None,
                Some(Value::Object(details)) => Some(details.clone()),
                Some(_) => {
                    fields.refuse(&format!("heartbeats.{place}.details"), "must be an object");
                    None
                }
            };
            heartbeats.push(ReportedHeartbeat {
                elapsed_ms: elapsed.unwrap_or(before),
                details,
            });
        }
        Some(heartbeats)
    }

    fn check_last(&self, fields: &mut Fields<'_>, failure: Option<&LocalFailure>) {
        for field in ["retry_reason", "backoff_seconds"] {
            if fields.value(field).is_some() {
                fields.refuse_whole(&format!("{field} does not belong on the last attempt"));
            }
        }
        let given = fields.value("non_retryable").is_some();
        if given && failure.is_some_and(|failure| failure.non_retryable != self.command_is_final) {
            fields.refuse_whole("non_retryable must equal the value of the command");
        }
    }

    fn retry(
        &self,
        fields: &mut Fields<'_>,
        place: usize,
        word: Option<Word>,
        timeout_kind: Option<LocalTimeout>,
        failure: Option<LocalFailure>,
    ) -> Option<ReportedRetry> {
        let reason = fields.value("retry_reason").and_then(Value::as_str);
        let retry_reason = match (word, reason) {
            (Some(Word::Failed), Some("failure")) => Some("failure"),
            (Some(Word::TimedOut), Some("timeout")) => Some("timeout"),
            (Some(Word::Failed | Word::TimedOut), Some("cold_replay")) => Some("cold_replay"),
            _ => None,
        };
        if retry_reason.is_none() {
            fields.refuse(
                "retry_reason",
                "must be failure, timeout or cold_replay and match the outcome",
            );
        }
        let backoff = fields.required_number("backoff_seconds", 0);
        if let (Some(backoff), Some(asked)) = (backoff, self.backoff.get(place))
            && backoff != *asked
        {
            fields.refuse(
                "backoff_seconds",
                "must equal the value in the retry policy",
            );
        }
        if failure
            .as_ref()
            .is_some_and(|failure| failure.non_retryable)
        {
            fields.refuse(
                "non_retryable",
                "a non-retryable attempt must be the last one",
            );
        }
        Some(ReportedRetry {
            retry_reason: retry_reason?,
            backoff_seconds: backoff?,
            timeout_kind,
            failure: failure?,
        })
    }
}

/// Removes blanks and NULs at both ends.
fn trimmed(text: &str) -> String {
    text.trim_matches(|character: char| character.is_whitespace() || character == '\0')
        .to_owned()
}
