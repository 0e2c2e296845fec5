//! The calls of this crate's users.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::frame::Request;
use super::queue::{Job, Queue};
use super::{Failure, Limit, Limits};

/// Evaluates scripts in a pool of child processes. A clone shares the pool. The processes end when the last clone is dropped.
///
/// Every evaluation has a fresh engine, so it sees nothing of an earlier one. A script has no input or output besides `$` and its result.
#[derive(Clone)]
pub struct Scripts {
    pool: Arc<Pool>,
}

/// What the clones share. The keepers hold the queue only, so that dropping the last clone ends them.
struct Pool {
    queue: Arc<Queue>,
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl Scripts {
    /// Creates a pool. Processes start with the first evaluations.
    pub fn new(limits: Limits) -> Self {
        let queue = Queue::new(limits);
        Self {
            pool: Arc::new(Pool { queue }),
        }
    }

    /// Returns the limits of every evaluation.
    pub fn limits(&self) -> &Limits {
        &self.pool.queue.limits
    }

    /// Evaluates a script and returns the value of its last statement. `$` is a copy of the input.
    ///
    /// `undefined`, `NaN` and infinities become null. An integral number becomes an integer. A `Map` becomes a map, a `Set` a list, a `Date`
    /// its ISO text, a `BigInt` an integer or, beyond 64 bits, text. Members that are functions or symbols are left out. A promise is
    /// awaited as long as it needs nothing from outside. Half of a surrogate pair becomes U+FFFD.
    pub async fn evaluate(&self, script: &str, input: &RawValue) -> Result<Value, Failure> {
        let request = Request::Evaluate {
            script: Cow::Borrowed(script),
            input,
        };
        self.send(&request, script.len() + input.get().len()).await
    }

    /// Evaluates a jq program and returns all of its results, in their order.
    ///
    /// An error of the program is a [`Failure::Script`], whose message has the words of the jq interpreter. It cannot be interrupted
    /// inside, so every limit but the size of the results ends its process. `halt` ends the results. Not-a-number becomes null, and an
    /// infinity the largest number, as jq does.
    pub async fn evaluate_jq(
        &self,
        program: &str,
        input: &RawValue,
    ) -> Result<Vec<Value>, Failure> {
        let request = Request::Jq {
            program: Cow::Borrowed(program),
            input,
        };
        match self
            .send(&request, program.len() + input.get().len())
            .await?
        {
            Value::Array(results) => Ok(results),
            _ => Err(Failure::Unavailable(
                "the script process sent no list of results".to_owned(),
            )),
        }
    }

    /// Compares a value with a JSON Schema and returns the first few differences. None means that it matches.
    ///
    /// A schema without `$schema` is one of draft 2020-12. `nullable: true` also accepts null. Patterns have no look-around and no
    /// back-references, and references to other documents are errors. What is no schema is a [`Failure::Script`].
    pub async fn compare(
        &self,
        schema: &RawValue,
        value: &RawValue,
    ) -> Result<Vec<String>, Failure> {
        let request = Request::Compare { schema, value };
        let size = schema.get().len() + value.get().len();
        let found = self.send(&request, size).await?;
        serde_json::from_value(found).map_err(|_| {
            Failure::Unavailable("the script process sent no list of differences".to_owned())
        })
    }

    /// Parses a script and never runs it.
    pub async fn check_syntax(&self, script: &str) -> Result<(), Failure> {
        let request = Request::CheckSyntax {
            script: Cow::Borrowed(script),
        };
        self.send(&request, script.len()).await.map(|_| ())
    }

    /// Returns the ids of the processes that run now.
    pub fn process_ids(&self) -> Vec<u32> {
        self.pool.queue.process_ids()
    }

    async fn send(&self, request: &Request<'_>, size: usize) -> Result<Value, Failure> {
        let limits = self.limits();
        if size > limits.input_bytes {
            return Err(Failure::Limit(Limit::Input {
                allowed: limits.input_bytes,
                actual: size,
            }));
        }
        let frame =
            serde_json::to_vec(request).map_err(|error| Failure::Unavailable(error.to_string()))?;
        let (reply, result) = oneshot::channel();
        self.pool.queue.push(Job {
            frame,
            until: Instant::now() + limits.patience,
            reply,
        })?;
        result.await.unwrap_or_else(|_| {
            Err(Failure::Unavailable(
                "the pool of script processes is closed".to_owned(),
            ))
        })
    }
}
