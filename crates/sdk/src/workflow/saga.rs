//! Sagas: when a step fails, the steps before it are undone, newest first.

use std::fmt;

use futures::future::BoxFuture;

use super::context::WorkflowContext;
use crate::error::WorkflowError;

type Undo =
    Box<dyn FnOnce(WorkflowContext) -> BoxFuture<'static, Result<(), WorkflowError>> + Send>;

/// A list of compensations, run if a later step fails.
///
/// ```
/// # use longhaul_sdk::{ActivityCall, WorkflowContext, Saga, WorkflowResult};
/// # fn reserve(_: u32) -> ActivityCall<String> { ActivityCall::named("reserve") }
/// # fn release(_: String) -> ActivityCall<()> { ActivityCall::named("release") }
/// # fn charge(_: u32) -> ActivityCall<()> { ActivityCall::named("charge") }
/// async fn order(ctx: WorkflowContext, item: u32) -> WorkflowResult<()> {
///     let mut saga = Saga::new(&ctx);
///     let steps = async {
///         let reservation = ctx.activity(reserve(item)).await?;
///         saga.undo(move |ctx| async move { Ok(ctx.activity(release(reservation)).await?) });
///         ctx.activity(charge(item)).await?;
///         Ok(())
///     }
///     .await;
///     saga.finish(steps).await
/// }
/// ```
pub struct Saga {
    context: WorkflowContext,
    undo: Vec<Undo>,
}

impl Saga {
    /// Creates a saga without compensations.
    pub fn new(context: &WorkflowContext) -> Self {
        Self {
            context: context.clone(),
            undo: Vec::new(),
        }
    }

    /// Adds a compensation for a completed step.
    pub fn undo<F>(&mut self, compensation: impl FnOnce(WorkflowContext) -> F + Send + 'static)
    where
        F: Future<Output = Result<(), WorkflowError>> + Send + 'static,
    {
        self.undo
            .push(Box::new(move |context| Box::pin(compensation(context))));
    }

    /// Returns a success unchanged. After a failure, runs all compensations, newest first, and returns the failure. If a
    /// compensation fails, that is logged, and the others still run.
    ///
    /// # Errors
    /// The error of `outcome`.
    pub async fn finish<T>(
        mut self,
        outcome: Result<T, WorkflowError>,
    ) -> Result<T, WorkflowError> {
        let error = match outcome {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        let context = self.context.clone();
        context
            .shielded(async {
                while let Some(undo) = self.undo.pop() {
                    if let Err(problem) = undo(self.context.clone()).await {
                        tracing::warn!(
                            workflow_id = self.context.info().workflow_id,
                            ?problem,
                            "a compensation failed"
                        );
                    }
                }
            })
            .await;
        Err(error)
    }
}

impl fmt::Debug for Saga {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Saga")
            .field("steps_to_undo", &self.undo.len())
            .finish_non_exhaustive()
    }
}
