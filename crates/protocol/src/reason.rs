//! Every machine-readable refusal. A reason is stable: clients branch on it, never on the text beside it. A new one is
//! added only where a client would act differently. `docs/reasons.md` says what each means and what to do.

use std::fmt;

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident $text:literal $retry:ident,)+) => {
        /// Why something was refused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason {
            $($(#[$doc])* $name,)+
        }

        impl Reason {
            /// All of them, for documentation checks.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The word on the wire.
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
    /// No or a wrong credential.
    Unauthorized "unauthorized" fatal,
    /// The credential's role may not do this.
    Forbidden "forbidden" fatal,
    /// The worker protocol header is missing.
    MissingProtocolVersion "missing_protocol_version" fatal,
    /// The worker protocol version is malformed or not spoken here.
    UnsupportedProtocolVersion "unsupported_protocol_version" fatal,
    /// The control-plane header is missing.
    MissingControlPlaneVersion "missing_control_plane_version" fatal,
    /// The control-plane version is not spoken here.
    UnsupportedControlPlaneVersion "unsupported_control_plane_version" fatal,
    /// There is no such namespace.
    NamespaceNotFound "namespace_not_found" fatal,
    /// The namespace exists already.
    NamespaceAlreadyExists "namespace_already_exists" fatal,
    /// The route does not exist.
    NotFound "not_found" fatal,
    /// The route exists, the method does not.
    MethodNotAllowed "method_not_allowed" fatal,
    /// The body is larger than a request may be.
    PayloadTooLarge "payload_too_large" fatal,
    /// The body is not JSON by its media type.
    UnsupportedMediaType "unsupported_media_type" fatal,
    /// The body is not JSON.
    MalformedJson "malformed_json" fatal,
    /// The body's shape is wrong.
    ValidationFailed "validation_failed" fatal,
    /// The server has a bug; nothing was changed.
    InternalError "internal_error" retry,
    /// The store cannot be written or read now.
    BackendUnavailable "backend_unavailable" retry,
    /// Too many concurrent changes to one run; nothing was changed.
    BackendLockPressure "backend_lock_pressure" retry,
    /// Too many polls are waiting.
    LongPollCapacityExhausted "long_poll_capacity_exhausted" retry,
    /// The worker is not registered in this namespace.
    WorkerNotRegistered "worker_not_registered" fatal,
    /// No worker of that id.
    WorkerNotFound "worker_not_found" fatal,
    /// The same worker id advertised another definition of a type.
    WorkflowDefinitionChanged "workflow_definition_changed" fatal,
    /// The poll names another queue than the registration.
    TaskQueueMismatch "task_queue_mismatch" fatal,
    /// The poll names another build than the registration.
    BuildIdMismatch "build_id_mismatch" fatal,
    /// The worker's build drains: it gets nothing new.
    WorkerDraining "worker_draining" retry,
    /// The server is stopping; another one, or the next, will answer.
    Unavailable "unavailable" retry,
    /// Every cohort of the queue drains.
    TaskQueueDraining "task_queue_draining" retry,
    /// No worker of that build was ever seen on the queue.
    UnknownDeployment "unknown_deployment" fatal,
    /// The build is draining.
    FleetIsDraining "fleet_is_draining" fatal,
    /// No worker of the build is registered.
    NoCompatibleWorkers "no_compatible_workers" retry,
    /// No worker of the build was heard lately.
    MissingWorkerHeartbeat "missing_worker_heartbeat" retry,
    /// Workers of one build run different code.
    FingerprintMismatch "fingerprint_mismatch" fatal,
    /// There is no such deployment.
    DeploymentNotFound "deployment_not_found" fatal,
    /// The deployment was never promoted.
    DeploymentNotPromoted "deployment_not_promoted" fatal,
    /// The deployment's name is of another namespace.
    NamespaceMismatch "namespace_mismatch" fatal,
    /// The deployment's name cannot be read.
    MalformedDeploymentName "malformed_deployment_name" fatal,
    /// The namespace has used up its requests of this minute.
    NamespaceRequestRateExhausted "namespace_request_rate_exhausted" retry,
    /// Too many requests of the namespace are in flight.
    NamespaceRequestConcurrencyExhausted "namespace_request_concurrency_exhausted" retry,
    /// No such task in this namespace.
    TaskNotFound "task_not_found" fatal,
    /// The task may not be leased now.
    TaskNotReady "task_not_ready" retry,
    /// The task is not due yet.
    NotDue "not_due" retry,
    /// Another worker holds the task.
    LeasedByOther "leased_by_other" retry,
    /// The worker's build may not have the task.
    CompatibilityBlocked "compatibility_blocked" fatal,
    /// The task is not leased.
    TaskNotLeased "task_not_leased" fatal,
    /// The lease has run out.
    LeaseExpired "lease_expired" fatal,
    /// Another worker holds the lease.
    LeaseOwnerMismatch "lease_owner_mismatch" fatal,
    /// The lease is of another attempt.
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
    /// A structural limit was broken.
    StructuralLimitExceeded "structural_limit_exceeded" fatal,
    /// The page token is not one of ours.
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
    /// No such workflow.
    InstanceNotFound "instance_not_found" fatal,
    /// No such run.
    RunNotFound "run_not_found" fatal,
    /// The workflow id is in use.
    InstanceAlreadyStarted "instance_already_started" fatal,
    /// The run is not the workflow's current one.
    HistoricalRunCommandRejected "historical_run_command_rejected" fatal,
    /// The run is closed and takes no more commands.
    RunNotActive "run_not_active" fatal,
    /// The run is open; only a closed one can be archived.
    RunNotClosed "run_not_closed" retry,
    /// No worker of the queue can be asked to clean up.
    CooperativeCancellationNotSupported "cooperative_cancellation_not_supported" fatal,
    /// The worker that holds the workflow task cannot be asked to clean up.
    ActiveClaimCancellationNotSupported "active_claim_cancellation_not_supported" retry,
    /// The run has another cancellation request, or it was delivered elsewhere.
    CancellationRequestMismatch "cancellation_request_mismatch" fatal,
    /// Work that must stop before a cancellation is delivered is still running.
    CancellationWaitingForActivity "cancellation_waiting_for_activity" retry,
    /// A child that must stop before a cancellation is delivered is still running.
    CancellationWaitingForChild "cancellation_waiting_for_child" retry,
    /// The request id stands for another command.
    RequestIdConflict "request_id_conflict" fatal,
    /// The workflow declares its signals and this is none of them.
    UnknownSignal "unknown_signal" fatal,
    /// The arguments do not fit the declared signal.
    InvalidSignalArguments "invalid_signal_arguments" fatal,
    /// The workflow declares its updates and this is none of them.
    UnknownUpdate "unknown_update" fatal,
    /// The arguments do not fit the declared update.
    InvalidUpdateArguments "invalid_update_arguments" fatal,
    /// The worker's validator refused the update.
    UpdateValidatorRejected "update_validator_rejected" fatal,
    /// The message id stands for another message of the stream.
    MessageIdentityConflict "message_identity_conflict" fatal,
    /// The workflow has no such message stream.
    StreamNotFound "stream_not_found" fatal,
    /// The signal's name belongs to the runtime.
    RuntimeReservedSignal "runtime_reserved_signal" fatal,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
