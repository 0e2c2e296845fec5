//! The builder of task definitions.

use std::time::Duration;

use longhaul_protocol::conductor::{
    RESPONSE_TIMEOUT_DEFAULT, RetryLogic, SchemaDef, TaskDef, TimeoutPolicy,
};
use serde::Serialize;

use super::error::{self, DefinitionError, FirstError, Place};

/// A task definition that is being built: retries, time-outs and limits of the tasks of one name.
///
/// Durations are whole seconds, with the exception of [`retry_jitter`](Self::retry_jitter).
///
/// ```
/// use std::time::Duration;
///
/// use longhaul_conductor_sdk::definition::{RetryLogic, TaskDefBuilder};
///
/// let charge = TaskDefBuilder::new("charge_card")
///     .retries(5)
///     .retry_logic(RetryLogic::ExponentialBackoff)
///     .rate_limit(100, Duration::from_secs(60))
///     .build()?;
/// assert_eq!(charge.retry_count, 5);
/// # Ok::<(), longhaul_conductor_sdk::definition::DefinitionError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct TaskDefBuilder {
    definition: TaskDef,
    has_response_timeout: bool,
    errors: FirstError,
}

impl TaskDefBuilder {
    /// Begins a definition. It has 3 retries after 60 seconds each, a response time-out of an hour, and no other limit.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            definition: TaskDef {
                name: name.into(),
                ..TaskDef::default()
            },
            has_response_timeout: false,
            errors: FirstError::default(),
        }
    }

    /// Sets the description.
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.definition.description = Some(description.into());
        self
    }

    /// Sets the email address of the owner. A server can demand it.
    pub fn owner_email(mut self, email: impl Into<String>) -> Self {
        self.definition.owner_email = Some(email.into());
        self
    }

    /// Sets how many attempts may follow the first one. The default is 3.
    pub fn retries(self, count: u32) -> Self {
        let count = error::number(self.place(), "retryCount", count);
        self.set(count, |definition, count| definition.retry_count = count)
    }

    /// Sets how the delay before a retry grows. By default it is always the same.
    pub fn retry_logic(mut self, logic: RetryLogic) -> Self {
        self.definition.retry_logic = logic;
        self
    }

    /// Sets the delay before the first retry. The default is 60 seconds.
    pub fn retry_delay(self, delay: Duration) -> Self {
        self.seconds("retryDelaySeconds", delay, |definition, delay| {
            definition.retry_delay_seconds = delay;
        })
    }

    /// Sets the largest delay before a retry. By default there is none.
    pub fn retry_delay_max(self, delay: Duration) -> Self {
        self.seconds("maxRetryDelaySeconds", delay, |definition, delay| {
            definition.max_retry_delay_seconds = delay;
        })
    }

    /// Sets the largest random time that is added to the delay before a retry: whole milliseconds.
    pub fn retry_jitter(self, jitter: Duration) -> Self {
        let jitter = error::milliseconds(self.place(), "backoffJitterMs", jitter);
        self.set(jitter, |definition, jitter| {
            definition.backoff_jitter_ms = jitter;
        })
    }

    /// Sets the factor of the linear back-off: 1 or more.
    pub fn backoff_factor(mut self, factor: std::num::NonZeroU16) -> Self {
        self.definition.backoff_scale_factor = factor.get().into();
        self
    }

    /// Sets how long one attempt may take from its first poll, and what happens then. Zero is no limit.
    pub fn timeout(mut self, timeout: Duration, policy: TimeoutPolicy) -> Self {
        self.definition.timeout_policy = policy;
        self.seconds("timeoutSeconds", timeout, |definition, timeout| {
            definition.timeout_seconds = timeout;
        })
    }

    /// Sets how long a worker may be silent. The default is an hour, or the time-out of the attempt if that is shorter. Zero is no
    /// limit; a server accepts it in the definition of a node, but not in a registered one.
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.has_response_timeout = true;
        self.seconds("responseTimeoutSeconds", timeout, |definition, timeout| {
            definition.response_timeout_seconds = timeout;
        })
    }

    /// Sets how long the task may wait for a worker. Zero is no limit.
    pub fn poll_timeout(self, timeout: Duration) -> Self {
        self.seconds("pollTimeoutSeconds", timeout, |definition, timeout| {
            definition.poll_timeout_seconds = Some(timeout);
        })
    }

    /// Sets how long all attempts together may take. Zero is no limit.
    pub fn total_timeout(self, timeout: Duration) -> Self {
        self.seconds("totalTimeoutSeconds", timeout, |definition, timeout| {
            definition.total_timeout_seconds = timeout;
        })
    }

    /// Sets how many tasks of this name may be in progress at once. Zero is no limit.
    pub fn concurrent_limit(self, limit: u32) -> Self {
        let limit = error::number(self.place(), "concurrentExecLimit", limit);
        self.set(limit, |definition, limit| {
            definition.concurrent_exec_limit = Some(limit);
        })
    }

    /// Sets how many tasks of this name are delivered in each window. Zero is no limit.
    pub fn rate_limit(self, count: u32, window: Duration) -> Self {
        let count = error::number(self.place(), "rateLimitPerFrequency", count);
        self.set(count, |definition, count| {
            definition.rate_limit_per_frequency = count;
        })
        .seconds(
            "rateLimitFrequencyInSeconds",
            window,
            |definition, window| definition.rate_limit_frequency_in_seconds = window,
        )
    }

    /// Sets the names of the inputs. They are documentation.
    pub fn input_keys(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.definition.input_keys = names.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the names of the outputs. They are documentation.
    pub fn output_keys(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.definition.output_keys = names.into_iter().map(Into::into).collect();
        self
    }

    /// Adds a value for an input that a node does not set.
    pub fn input_template(self, name: impl Into<String>, value: impl Serialize) -> Self {
        let name = name.into();
        let value = error::json(self.place(), &name, value);
        self.set(value, |definition, value| {
            definition.input_template.insert(name, value);
        })
    }

    /// Sets the schema of the input: a registered one by name and version, or one with content.
    pub fn input_schema(mut self, schema: SchemaDef) -> Self {
        self.definition.input_schema = Some(schema);
        self
    }

    /// Sets the schema of the output.
    pub fn output_schema(mut self, schema: SchemaDef) -> Self {
        self.definition.output_schema = Some(schema);
        self
    }

    /// Sets whether the server compares inputs and outputs with the schemas. By default it does not. A task whose input or output does
    /// not match fails and is not tried again.
    pub fn enforce_schema(mut self, enforce: bool) -> Self {
        self.definition.enforce_schema = enforce;
        self
    }

    /// Checks the definition and returns it.
    ///
    /// # Errors
    ///
    /// Returns the first mistake.
    pub fn build(mut self) -> Result<TaskDef, DefinitionError> {
        self.errors.check()?;
        let definition = &mut self.definition;
        if definition.name.trim().is_empty() {
            return Err(DefinitionError::EmptyName);
        }
        let timeout = definition.timeout_seconds;
        if !self.has_response_timeout && timeout > 0 {
            definition.response_timeout_seconds = timeout.min(RESPONSE_TIMEOUT_DEFAULT);
        }
        let response = definition.response_timeout_seconds;
        let total = definition.total_timeout_seconds;
        let order = |shorter, longer| DefinitionError::TimeoutOrder {
            name: definition.name.clone(),
            shorter,
            longer,
        };
        if timeout > 0 && response > timeout {
            return Err(order("responseTimeoutSeconds", "timeoutSeconds"));
        }
        if total > 0 && timeout > total {
            return Err(order("timeoutSeconds", "totalTimeoutSeconds"));
        }
        Ok(self.definition)
    }

    fn place(&self) -> Place {
        Place::TaskDefinition(self.definition.name.clone())
    }

    fn seconds<N: TryFrom<u64>>(
        self,
        member: &'static str,
        duration: Duration,
        set: impl FnOnce(&mut TaskDef, N),
    ) -> Self {
        let seconds = error::seconds(self.place(), member, duration);
        self.set(seconds, set)
    }

    /// Sets a member, or keeps the error.
    fn set<T>(
        mut self,
        value: Result<T, DefinitionError>,
        set: impl FnOnce(&mut TaskDef, T),
    ) -> Self {
        if let Some(value) = self.errors.keep(value) {
            set(&mut self.definition, value);
        }
        self
    }
}
