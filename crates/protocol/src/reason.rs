//! Every machine-readable refusal. A reason is stable: clients branch on it, never on the text beside it. A new reason is
//! added only if a client would act differently. `docs/reasons.md` explains each reason and what to do about it.

use std::fmt;

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident $text:literal $retry:ident,)+) => {
        /// Why a request was refused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason {
            $($(#[$doc])* $name,)+
        }

        impl Reason {
            /// All reasons, for documentation checks.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Returns the wire name.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)+
                }
            }

            /// Whether sending the same request again, unchanged, may succeed.
            pub fn is_retryable(self) -> bool {
                match self {
                    $(Self::$name => reasons!(@$retry),)+
                }
            }
        }
    };
    (@retry) => { true };
    (@fatal) => { false };
}

reasons! {
    /// The task is not leased: there is no claim under which a local activity could run.
    WorkflowClaimNotFound "workflow_claim_not_found" fatal,
    /// The task is leased by another worker, or in another attempt.
    WorkflowClaimMismatch "workflow_claim_mismatch" fatal,
    /// The lease has expired.
    WorkflowClaimExpired "workflow_claim_expired" fatal,
    /// The run is past its deadline.
    RunDeadlineExpired "run_deadline_expired" fatal,
    /// The run has a cancellation request that must be delivered first.
    CancellationRequested "cancellation_requested" fatal,
    /// Commands before the local call are not recorded yet.
    LocalActivityCommandPrefixNotRecorded "local_activity_command_prefix_not_recorded" fatal,
    /// The recorded call is a different one.
    LocalActivityPreparationMismatch "local_activity_preparation_mismatch" fatal,
    /// An earlier attempt has not ended.
    LocalActivityPreviousAttemptUnresolved "local_activity_previous_attempt_unresolved" fatal,
    /// An attempt is still running.
    LocalActivityPreviousAttemptLive "local_activity_previous_attempt_live" retry,
    /// The pause before the retry has not passed.
    LocalActivityRetryNotDue "local_activity_retry_not_due" fatal,
    /// An earlier attempt used this worker attempt id.
    LocalActivityRetryWorkerAttemptReused "local_activity_retry_worker_attempt_reused" fatal,
    /// A deadline of the call has passed.
    LocalActivityDeadlineExpired "local_activity_deadline_expired" fatal,
    /// The attempt is no longer the current one.
    StaleActivityAttempt "stale_activity_attempt" fatal,
    /// The run has no such attempt of a local activity.
    ActivityAttemptNotFound "activity_attempt_not_found" fatal,
    /// The worker's registration is gone.
    StaleWorkerRegistration "stale_worker_registration" fatal,
    /// The credential is missing or wrong.
    Unauthorized "unauthorized" fatal,
    /// The credential's role may not do this.
    Forbidden "forbidden" fatal,
    /// The worker protocol header is missing.
    MissingProtocolVersion "missing_protocol_version" fatal,
    /// The worker protocol version is malformed or not supported.
    UnsupportedProtocolVersion "unsupported_protocol_version" fatal,
    /// The control-plane header is missing.
    MissingControlPlaneVersion "missing_control_plane_version" fatal,
    /// The control-plane version is not supported.
    UnsupportedControlPlaneVersion "unsupported_control_plane_version" fatal,
    /// There is no such namespace.
    NamespaceNotFound "namespace_not_found" fatal,
    /// The namespace already exists.
    NamespaceAlreadyExists "namespace_already_exists" fatal,
    /// The route does not exist.
    NotFound "not_found" fatal,
    /// The route does not support the method.
    MethodNotAllowed "method_not_allowed" fatal,
    /// The body is larger than a request may be.
    PayloadTooLarge "payload_too_large" fatal,
    /// The media type of the body is not JSON.
    UnsupportedMediaType "unsupported_media_type" fatal,
    /// The body is not JSON.
    MalformedJson "malformed_json" fatal,
    /// The body's shape is wrong.
    ValidationFailed "validation_failed" fatal,
    /// The server has a bug; nothing was changed.
    InternalError "internal_error" retry,
    /// The store's files are damaged.
    StoreDamaged "store_damaged" fatal,
    /// The rest of the request did not arrive in time.
    RequestTimeout "request_timeout" retry,
    /// The request names a host that this server is not configured for.
    HostNotAllowed "host_not_allowed" fatal,
    /// A web page of another site sent a request that changes something.
    OriginNotAllowed "origin_not_allowed" fatal,
    /// Too many connections are open, or too many large requests are being served; this one was not read.
    ServerBusy "server_busy" retry,
    /// The store cannot be written or read now.
    BackendUnavailable "backend_unavailable" retry,
    /// Too many concurrent changes to one run; nothing was changed.
    BackendLockPressure "backend_lock_pressure" retry,
    /// Too many polls are waiting.
    LongPollCapacityExhausted "long_poll_capacity_exhausted" retry,
    /// The name of the search attribute is reserved.
    NameReserved "name_reserved" fatal,
    /// The search attribute is already defined.
    AttributeAlreadyExists "attribute_already_exists" fatal,
    /// The namespace already defines the maximum number of search attributes.
    SearchAttributeLimitReached "search_attribute_limit_reached" fatal,
    /// Every run has the attribute; it cannot be deleted.
    SystemAttribute "system_attribute" fatal,
    /// There is no such search attribute.
    AttributeNotFound "attribute_not_found" fatal,
    /// The worker is not registered in this namespace.
    WorkerNotRegistered "worker_not_registered" fatal,
    /// There is no worker with that id.
    WorkerNotFound "worker_not_found" fatal,
    /// The same worker id registered a different definition of a workflow type.
    WorkflowDefinitionChanged "workflow_definition_changed" fatal,
    /// The poll and the registration name different queues.
    TaskQueueMismatch "task_queue_mismatch" fatal,
    /// The poll and the registration name different builds.
    BuildIdMismatch "build_id_mismatch" fatal,
    /// The build of the worker is draining and gets no new work.
    WorkerDraining "worker_draining" retry,
    /// The server is stopping.
    Unavailable "unavailable" retry,
    /// Every cohort of the queue is draining.
    TaskQueueDraining "task_queue_draining" retry,
    /// No worker of that build has ever registered for the queue.
    UnknownDeployment "unknown_deployment" fatal,
    /// The build is draining.
    FleetIsDraining "fleet_is_draining" fatal,
    /// No worker of the build is registered.
    NoCompatibleWorkers "no_compatible_workers" retry,
    /// No worker of the build sent a heartbeat recently.
    MissingWorkerHeartbeat "missing_worker_heartbeat" retry,
    /// Workers of one build run different code.
    FingerprintMismatch "fingerprint_mismatch" fatal,
    /// There is no such deployment.
    DeploymentNotFound "deployment_not_found" fatal,
    /// The deployment was never promoted.
    DeploymentNotPromoted "deployment_not_promoted" fatal,
    /// The name of the deployment belongs to another namespace.
    NamespaceMismatch "namespace_mismatch" fatal,
    /// The name of the deployment is malformed.
    MalformedDeploymentName "malformed_deployment_name" fatal,
    /// The namespace has used up its requests of this minute.
    NamespaceRequestRateExhausted "namespace_request_rate_exhausted" retry,
    /// Too many requests of the namespace are in flight.
    NamespaceRequestConcurrencyExhausted "namespace_request_concurrency_exhausted" retry,
    /// The namespace has no such task.
    TaskNotFound "task_not_found" fatal,
    /// The task cannot be leased now.
    TaskNotReady "task_not_ready" retry,
    /// The task is not due yet.
    NotDue "not_due" retry,
    /// Another worker holds the task.
    LeasedByOther "leased_by_other" retry,
    /// The task is reserved for another build.
    CompatibilityBlocked "compatibility_blocked" fatal,
    /// The task is not leased.
    TaskNotLeased "task_not_leased" fatal,
    /// The lease has expired.
    LeaseExpired "lease_expired" fatal,
    /// Another worker holds the lease.
    LeaseOwnerMismatch "lease_owner_mismatch" fatal,
    /// The lease belongs to a different attempt.
    WorkflowTaskAttemptMismatch "workflow_task_attempt_mismatch" fatal,
    /// The run is closed.
    RunClosed "run_closed" fatal,
    /// The run was cancelled.
    RunCancelled "run_cancelled" fatal,
    /// The run was terminated.
    RunTerminated "run_terminated" fatal,
    /// The run timed out.
    RunTimedOut "run_timed_out" fatal,
    /// The commands contradict the run's history.
    InvalidCommands "invalid_commands" fatal,
    /// Another version of the change is recorded.
    VersionMarkerConflict "version_marker_conflict" fatal,
    /// A structural limit was exceeded.
    StructuralLimitExceeded "structural_limit_exceeded" fatal,
    /// The page token is not valid.
    InvalidPageToken "invalid_page_token" fatal,
    /// The activity has no such attempt.
    AttemptNotFound "attempt_not_found" fatal,
    /// The attempt belongs to another task.
    TaskMismatch "task_mismatch" fatal,
    /// Another attempt is current.
    StaleAttempt "stale_attempt" fatal,
    /// The attempt is finished.
    AttemptClosed "attempt_closed" fatal,
    /// The activity was cancelled.
    ActivityCancelled "activity_cancelled" fatal,
    /// There is no such workflow.
    InstanceNotFound "instance_not_found" fatal,
    /// There is no such run.
    RunNotFound "run_not_found" fatal,
    /// The workflow id is in use.
    InstanceAlreadyStarted "instance_already_started" fatal,
    /// The run is not the current run of the workflow.
    HistoricalRunCommandRejected "historical_run_command_rejected" fatal,
    /// The run is closed and accepts no more commands.
    RunNotActive "run_not_active" fatal,
    /// The run is open. Only closed runs can be archived.
    RunNotClosed "run_not_closed" retry,
    /// A definition breaks a rule.
    DefinitionInvalid "definition_invalid" fatal,
    /// This version of the definition is registered already.
    DefinitionAlreadyExists "definition_already_exists" fatal,
    /// The definition has a task of a type that this server does not run.
    TaskTypeOff "task_type_off" fatal,
    /// There is no such definition.
    DefinitionNotFound "definition_not_found" fatal,
    /// The run is of the other family: a definition decides it, or a worker does.
    OtherProgram "other_program" fatal,
    /// Only a paused definition run can be resumed.
    RunNotPaused "run_not_paused" fatal,
    /// The definition run is paused, and takes no messages.
    RunPaused "run_paused" retry,
    /// As many messages wait for the run as it keeps.
    InboxFull "inbox_full" retry,
    /// A value is larger than its limit.
    ValueTooLarge "value_too_large" fatal,
    /// The workflow is open. Only a workflow that has ended can be restarted, retried or rerun.
    RunNotEnded "run_not_ended" retry,
    /// The workflow has completed, and its definition says that it cannot be restarted then.
    RunNotRestartable "run_not_restartable" fatal,
    /// No task of the workflow failed or was cancelled.
    NothingToRetry "nothing_to_retry" fatal,
    /// The task cannot be skipped: it is scheduled already, or it is a fork or a join.
    TaskNotSkippable "task_not_skippable" fatal,
    /// The workflow cannot go on from this task.
    TaskNotRerunnable "task_not_rerunnable" fatal,
    /// The idempotency key of a start belongs to another run, and the strategy of the start refuses a second one.
    IdempotencyKeyTaken "idempotency_key_taken" fatal,
    /// The input of a start does not match the schema that its definition enforces.
    SchemaMismatch "schema_mismatch" fatal,
    /// No worker of the queue supports cooperative cancellation.
    CooperativeCancellationNotSupported "cooperative_cancellation_not_supported" fatal,
    /// The worker that holds the workflow task does not support cooperative cancellation.
    ActiveClaimCancellationNotSupported "active_claim_cancellation_not_supported" retry,
    /// The run has a different cancellation request, or the request was delivered at another call.
    CancellationRequestMismatch "cancellation_request_mismatch" fatal,
    /// Work that must stop before a cancellation is delivered is still running.
    CancellationWaitingForActivity "cancellation_waiting_for_activity" retry,
    /// A child that must stop before a cancellation is delivered is still running.
    CancellationWaitingForChild "cancellation_waiting_for_child" retry,
    /// The request id was already used for a different command.
    RequestIdConflict "request_id_conflict" fatal,
    /// The workflow does not declare this signal.
    UnknownSignal "unknown_signal" fatal,
    /// The arguments do not fit the declared signal.
    InvalidSignalArguments "invalid_signal_arguments" fatal,
    /// The workflow does not declare this update.
    UnknownUpdate "unknown_update" fatal,
    /// The arguments do not fit the declared update.
    InvalidUpdateArguments "invalid_update_arguments" fatal,
    /// The worker's validator refused the update.
    UpdateValidatorRejected "update_validator_rejected" fatal,
    /// The message id was already used for a different message of the stream.
    MessageIdentityConflict "message_identity_conflict" fatal,
    /// The workflow has no such message stream.
    StreamNotFound "stream_not_found" fatal,
    /// The name of the signal is reserved for the SDKs.
    RuntimeReservedSignal "runtime_reserved_signal" fatal,
    /// The workflow has no such query.
    RejectedUnknownQuery "rejected_unknown_query" fatal,
    /// The arguments do not fit the declared query.
    InvalidQueryArguments "invalid_query_arguments" fatal,
    /// The worker could not answer the query.
    QueryRejected "query_rejected" fatal,
    /// No live worker serves the queue and the workflow type of the run.
    QueryWorkerUnavailable "query_worker_unavailable" retry,
    /// No live worker can answer queries for this run.
    QueryWorkerIncompatible "query_worker_incompatible" fatal,
    /// No worker answered the query in time.
    QueryWorkerTimeout "query_worker_timeout" retry,
    /// Too many queries are waiting on the queue.
    QueryTaskQueueFull "query_task_queue_full" retry,
    /// The server accepts no queries now.
    QueryTaskQueueUnavailable "query_task_queue_unavailable" retry,
    /// The query task does not exist or has ended.
    QueryTaskNotFound "query_task_not_found" fatal,
    /// The query task is not leased.
    QueryTaskNotLeased "query_task_not_leased" fatal,
    /// The lease on the query task belongs to a different attempt.
    QueryTaskAttemptMismatch "query_task_attempt_mismatch" fatal,
    /// The caller of the query no longer waits.
    QueryTaskTimedOut "query_task_timed_out" fatal,
    /// An update with a validator needs a request id.
    UpdateValidationRequestIdRequired "update_validation_request_id_required" fatal,
    /// Another update with this request id is being validated.
    UpdateValidationIdempotencyConflict "update_validation_idempotency_conflict" fatal,
    /// No live worker declares the validator any more.
    UpdateValidatorContractMissing "update_validator_contract_missing" fatal,
    /// The live workers do not validate updates.
    UpdateValidationCapabilityUnsupported "update_validation_capability_unsupported" fatal,
    /// No live worker with the validator has the run's build.
    UpdateValidatorWorkerIncompatible "update_validator_worker_incompatible" fatal,
    /// There is no live worker that could validate the update.
    UpdateValidatorWorkerUnavailable "update_validator_worker_unavailable" retry,
    /// The worker that was validating is gone or took too long.
    UpdateValidatorWorkerLost "update_validator_worker_lost" retry,
    /// The worker could not run the validator.
    UpdateValidationWorkerFailed "update_validation_worker_failed" retry,
    /// No worker took the validation in time.
    UpdateValidationTaskNotClaimed "update_validation_task_not_claimed" retry,
    /// The validator did not answer in time.
    UpdateValidationExecutionTimeout "update_validation_execution_timeout" retry,
    /// The update validation task does not exist or has ended.
    UpdateValidationTaskNotFound "update_validation_task_not_found" fatal,
    /// The update validation task is not leased.
    UpdateValidationTaskNotLeased "update_validation_task_not_leased" fatal,
    /// The update was already validated with a different result.
    DuplicateUpdateValidationCompletion "duplicate_update_validation_completion" fatal,
    /// The lease on the update validation task has expired.
    UpdateValidationLeaseExpired "update_validation_lease_expired" fatal,
    /// The report belongs to another lease, or no caller waits for it.
    StaleUpdateValidationCompletion "stale_update_validation_completion" fatal,
    /// The session id is blank.
    InvalidWorkerSession "invalid_worker_session" fatal,
    /// The session is for another queue than the worker's.
    SessionQueueMismatch "session_queue_mismatch" fatal,
    /// The worker lacks a capability that the session requires.
    SessionRequirementsNotMet "session_requirements_not_met" fatal,
    /// The session does not exist, and its options forbid creating it on first use.
    SessionMissing "session_missing" retry,
    /// The worker already holds its maximum number of sessions.
    WorkerSessionLimitExceeded "worker_session_limit_exceeded" retry,
    /// Another worker holds the session.
    SessionOwnedByAnotherWorker "session_owned_by_another_worker" retry,
    /// The session is already running its maximum number of activities.
    SessionActivityLimitExceeded "session_activity_limit_exceeded" retry,
    /// The session was closed. Its id cannot be used again.
    SessionClosed "session_closed" fatal,
    /// The session has ended or its options forbid a takeover.
    SessionReacquireDisallowed "session_reacquire_disallowed" fatal,
    /// There is no session to renew or close.
    SessionNotFound "session_not_found" fatal,
    /// The session is not active, so it cannot be renewed.
    SessionNotActive "session_not_active" fatal,
    /// The session belongs to another worker.
    SessionOwnerMismatch "session_owner_mismatch" fatal,
    /// There is no session with that id; sent to operators.
    WorkerSessionNotFound "worker_session_not_found" fatal,
    /// The session of a running activity is lost.
    WorkerSessionUnavailable "worker_session_unavailable" fatal,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
