//! Validators of updates: a worker that declares one for an update is asked before the update is admitted. Nothing is durable until
//! it has answered; a refusal is then admitted as a rejected command.
//!
//! A validation is handed out with workflow tasks, to polls that accept it, and only to workers that declare the validator.

use std::collections::HashMap;
use std::sync::Arc;

use longhaul_engine::change::TaskKind;
use longhaul_engine::queue::PollFilter;
use longhaul_engine::run::message::update::ValidatorRefusal;
use longhaul_engine::run::state::Run;
use longhaul_engine::run::workflow_task::claim::WorkflowClaim;
use longhaul_protocol::id::{Namespace, WorkflowId};
use longhaul_protocol::workflow_command::FieldErrors;
use longhaul_protocol::{Payload, Reason};
use longhaul_store::CommandKey;
use parking_lot::Mutex;
use serde_json::Value;

use crate::Host;
use crate::error::{Error, Result};
use crate::matching::poll::{Claim, Poll, Polled};
use crate::matching::poll_dedup::ClaimTarget;
use crate::operations::workflow_tasks::{LeasedWorkflowTask, WorkflowPolls};
use crate::operations::workflows::{CommandTarget, Handlers};
use crate::questions::progress::{
    QuestionAnswer, QuestionFailure, QuestionHolder, QuestionKind, TimeoutStage,
};
use crate::questions::table::{Outcome, Question};
use crate::questions::waiter::{LeasedQuestion, required_capability, too_long_to_ask};
use crate::registry::workers::RegisteredWorker;
use crate::views::{Validations, WorkflowTasks};

/// The capability of a worker that validates updates.
const CAPABILITY: &str = "update_validation_tasks";

/// The failure type of a worker that could not run its validator; every other failure is a refusal by the validator.
const WORKER_FAILED: &str = "update_validation_worker_failed";

/// Why an update could not be validated. None of these is a verdict on the update.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValidationRefusal {
    #[error("an update with a validator needs a request_id, so that a repeat is recognised")]
    RequestIdRequired,
    #[error("a different update with this request_id is being validated now")]
    IdempotencyConflict,
    #[error("live workers validate updates, but none still declares a validator for this one")]
    ContractMissing,
    #[error("the live workers of this workflow type do not validate updates")]
    CapabilityUnsupported,
    #[error("no live worker with this validator matches the run's build and history")]
    WorkerIncompatible,
    #[error("there is no live worker to validate the update")]
    WorkerUnavailable,
    #[error("the worker that validated the update was lost")]
    WorkerLost,
    #[error("{0}")]
    WorkerFailed(String),
    #[error("no worker took the validation in time")]
    NotClaimed,
    #[error("the validator did not answer in time")]
    ExecutionTimeout,
}

impl ValidationRefusal {
    /// Returns the machine-readable reason.
    pub fn reason(&self) -> Reason {
        match self {
            Self::RequestIdRequired => Reason::UpdateValidationRequestIdRequired,
            Self::IdempotencyConflict => Reason::UpdateValidationIdempotencyConflict,
            Self::ContractMissing => Reason::UpdateValidatorContractMissing,
            Self::CapabilityUnsupported => Reason::UpdateValidationCapabilityUnsupported,
            Self::WorkerIncompatible => Reason::UpdateValidatorWorkerIncompatible,
            Self::WorkerUnavailable => Reason::UpdateValidatorWorkerUnavailable,
            Self::WorkerLost => Reason::UpdateValidatorWorkerLost,
            Self::WorkerFailed(_) => Reason::UpdateValidationWorkerFailed,
            Self::NotClaimed => Reason::UpdateValidationTaskNotClaimed,
            Self::ExecutionTimeout => Reason::UpdateValidationExecutionTimeout,
        }
    }
}

/// The task for a poll that also accepts validations.
#[derive(Clone, Debug)]
pub enum WorkflowWork {
    Task(Box<LeasedWorkflowTask>),
    Validation(Box<LeasedQuestion>),
}

#[derive(Clone)]
struct WorkPolls;

enum Claimed {
    Task(Box<WorkflowClaim>),
    Validation(Box<LeasedQuestion>),
}

impl Claim for WorkPolls {
    type Reply = Claimed;

    fn kind(&self) -> TaskKind {
        TaskKind::Workflow
    }

    fn poll_filter(&self, worker: &RegisteredWorker) -> PollFilter {
        worker.validating_poll_filter()
    }

    async fn claim(
        &self,
        host: &Host,
        granted: &ClaimTarget,
        worker: &RegisteredWorker,
        poll: &Poll,
    ) -> Result<Option<Claimed>> {
        let is_offered = host.inner.passing.is_offered(&granted.task_id);
        if is_offered || host.inner.questions.knows(&granted.task_id) {
            let leased = host.questions().lease(granted, poll).await?;
            return Ok(leased.map(Box::new).map(Claimed::Validation));
        }
        let claimed = WorkflowPolls.claim(host, granted, worker, poll).await?;
        Ok(claimed.map(Box::new).map(Claimed::Task))
    }
}

/// Updates that are being validated, by identity.
#[derive(Default)]
pub(crate) struct Validating {
    requests: Mutex<HashMap<RequestKey, Intent>>,
}

type RequestKey = (Namespace, WorkflowId, String);

/// The intent of a request id, and the number of callers that wait for it.
struct Intent {
    update_name: String,
    arguments: Payload,
    callers: usize,
}

/// Reserves a request id for one intent while it is validated.
struct Reserved<'a> {
    validating: &'a Validating,
    key: RequestKey,
}

impl Validating {
    /// Reserves the request id. The same update may be validated twice at once: its admission recognises the second.
    fn reserve(
        &self,
        key: RequestKey,
        update_name: &str,
        arguments: &Payload,
    ) -> std::result::Result<Reserved<'_>, ValidationRefusal> {
        let mut requests = self.requests.lock();
        let intent = requests.entry(key.clone()).or_insert_with(|| Intent {
            update_name: update_name.to_owned(),
            arguments: arguments.clone(),
            callers: 0,
        });
        if intent.update_name != update_name || intent.arguments != *arguments {
            return Err(ValidationRefusal::IdempotencyConflict);
        }
        intent.callers += 1;
        Ok(Reserved {
            validating: self,
            key,
        })
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        let mut requests = self.validating.requests.lock();
        if let Some(intent) = requests.get_mut(&self.key) {
            intent.callers -= 1;
            if intent.callers == 0 {
                requests.remove(&self.key);
            }
        }
    }
}

impl Validations<'_> {
    /// Approves the update; returns true if that was reported before.
    pub async fn approve(self, holder: &QuestionHolder) -> Result<bool> {
        let answered = self.host.queries().answer(
            QuestionKind::UpdateValidation,
            holder,
            QuestionAnswer::Done(None),
        );
        answered.await
    }

    /// Records that the validator refuses the update, or could not run; returns true if that was reported before.
    pub async fn reject(self, holder: &QuestionHolder, failure: QuestionFailure) -> Result<bool> {
        let answer = QuestionAnswer::Failed(failure);
        self.host
            .queries()
            .answer(QuestionKind::UpdateValidation, holder, answer)
            .await
    }

    /// Asks the validator of the update, if it has one. Returns `None` if the update may be admitted, which has checks of its own.
    pub(crate) async fn validate(
        self,
        target: &CommandTarget,
        name: &str,
        arguments: &Payload,
    ) -> Result<Option<ValidatorRefusal>> {
        let description = self
            .host
            .workflows()
            .describe(
                &target.namespace,
                &target.workflow_id,
                target.run_id.as_ref(),
            )
            .await?;
        let is_refused_anyway = !description.accepts_commands()
            || !self.fits_declaration(&description.run, name, arguments);
        let run = description.run;
        if is_refused_anyway || !self.has_validator(&run, name) {
            return Ok(None);
        }
        let Some(request_id) = &target.request_id else {
            return Err(Error::Validation(ValidationRefusal::RequestIdRequired));
        };
        let store = &self.host.inner.store;
        let known = store
            .command(CommandKey::Request(
                &target.namespace,
                &target.workflow_id,
                request_id,
            ))
            .await?;
        if known.is_some() {
            // A repeat: it was validated before.
            return Ok(None);
        }
        self.require_validator_worker(&run, name)?;
        if let Some(message) = too_long_to_ask(&run) {
            return Err(Error::Validation(ValidationRefusal::WorkerFailed(message)));
        }
        let key = (
            target.namespace.clone(),
            target.workflow_id.clone(),
            request_id.clone(),
        );
        let reserved = self.host.inner.validating.reserve(key, name, arguments);
        let _reserved = reserved.map_err(Error::Validation)?;
        self.ask_validator(&run, name, arguments).await
    }

    fn fits_declaration(self, run: &Run, name: &str, arguments: &Payload) -> bool {
        let declared = self
            .host
            .workflows()
            .declared_handlers(run, Handlers::Updates);
        declared.knows(name)
            && declared.check(name, arguments).is_empty()
            && self.host.queries().require_room(arguments).is_ok()
    }

    /// Returns whether the run's workers declared a validator when it started, or a live worker does now.
    fn has_validator(self, run: &Run, name: &str) -> bool {
        let spec = &run.spec;
        let at_start = spec.declared.get("declared_update_validators");
        let at_start = at_start.and_then(Value::as_array);
        at_start.is_some_and(|names| names.iter().any(|declared| declared == name))
            || self
                .host
                .workers()
                .live(&spec.namespace, &spec.task_queue, &spec.workflow_type)
                .iter()
                .any(|worker| worker.validates(&spec.workflow_type, name))
    }

    /// Checks that some worker can validate; otherwise the caller gets the refusal at once.
    fn require_validator_worker(self, run: &Run, name: &str) -> Result<()> {
        let spec = &run.spec;
        let mut able =
            self.host
                .workers()
                .live(&spec.namespace, &spec.task_queue, &spec.workflow_type);
        let mut require = |refusal: ValidationRefusal, keep: &dyn Fn(&RegisteredWorker) -> bool| {
            able.retain(|worker| keep(worker));
            if able.is_empty() {
                Err(Error::Validation(refusal))
            } else {
                Ok(())
            }
        };
        let pinned = spec.routing.compatibility.as_deref();
        require(ValidationRefusal::WorkerUnavailable, &|_| true)?;
        require(ValidationRefusal::CapabilityUnsupported, &|worker| {
            worker.can(CAPABILITY)
        })?;
        require(ValidationRefusal::ContractMissing, &|worker| {
            worker.validates(&spec.workflow_type, name)
        })?;
        require(ValidationRefusal::WorkerIncompatible, &|worker| {
            worker.fits_build(pinned)
                && required_capability(run).is_none_or(|name| worker.can(name))
        })
    }

    async fn ask_validator(
        self,
        run: &Run,
        name: &str,
        arguments: &Payload,
    ) -> Result<Option<ValidatorRefusal>> {
        let question = Question {
            kind: QuestionKind::UpdateValidation,
            run: Arc::clone(&run.spec),
            name: name.to_owned(),
            arguments: arguments.clone(),
            required_capability: required_capability(run),
        };
        let Ok(asked) = self.host.questions().ask(question) else {
            return Err(Error::Validation(ValidationRefusal::WorkerUnavailable));
        };
        let refusal = match asked.outcome().await {
            Outcome::Answered(QuestionAnswer::Done(_)) => return Ok(None),
            Outcome::Answered(QuestionAnswer::Failed(failure))
                if failure.reason.as_deref() == Some(WORKER_FAILED) =>
            {
                ValidationRefusal::WorkerFailed(failure.message)
            }
            Outcome::Answered(QuestionAnswer::Failed(failure)) => {
                return Ok(Some(ValidatorRefusal {
                    message: failure.message,
                    errors: field_errors(failure.validation_errors),
                }));
            }
            Outcome::TimedOut(TimeoutStage::NotClaimed) => ValidationRefusal::NotClaimed,
            Outcome::TimedOut(TimeoutStage::Executing) => ValidationRefusal::ExecutionTimeout,
            Outcome::WorkerLost => ValidationRefusal::WorkerLost,
            Outcome::Stopping => ValidationRefusal::WorkerUnavailable,
        };
        Err(Error::Validation(refusal))
    }
}

impl WorkflowTasks<'_> {
    /// Waits for a workflow task or a validation and leases it.
    pub async fn poll_work(self, poll: &Poll, page_size: usize) -> Result<Polled<WorkflowWork>> {
        match self.host.matching().poll(poll, &WorkPolls).await? {
            Polled::Leased(Claimed::Task(claim)) => {
                let task = self.with_history(*claim, page_size).await?;
                Ok(Polled::Leased(WorkflowWork::Task(Box::new(task))))
            }
            Polled::Leased(Claimed::Validation(question)) => {
                Ok(Polled::Leased(WorkflowWork::Validation(question)))
            }
            Polled::Empty => Ok(Polled::Empty),
            Polled::Throttled(throttle) => Ok(Polled::Throttled(throttle)),
        }
    }
}

/// Converts the errors of a validator, which may have any shape, to a list of texts per field.
fn field_errors(errors: serde_json::Map<String, Value>) -> FieldErrors {
    let text = |value: Value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    errors
        .into_iter()
        .map(|(field, value)| {
            let messages = match value {
                Value::Array(values) => values.into_iter().map(text).collect(),
                other => vec![text(other)],
            };
            (field, messages)
        })
        .collect()
}
