//! The workflows of the crash tests in Rust. `python/crash_worker.py` has the same ones in Python.

use std::time::Duration;

use durable_workflow::{
    AvroValue, ChildWorkflowOptions, ChildWorkflowRetryPolicy, Error, ParallelOperation,
    ParallelResult, ParentClosePolicy, Result, Value, Worker, WorkflowContext, json,
    wait_condition,
};
use tokio::time::sleep;

use crate::rust_sdk::fixture::QUEUE;

/// Steps of `crash.steps`, each a signal and an activity.
pub(super) const STEPS: usize = 3;

const SEQUENTIAL_ACTIVITIES: u64 = 6;
const PARALLEL_ACTIVITIES: u64 = 10;
const LOCAL_ACTIVITIES: u64 = 4;
const SIGNALS: usize = 4;
const UPDATES: usize = 3;
const MESSAGES: usize = 4;

/// Messages that `crash.stream` reads before it continues as new.
const MESSAGES_PER_RUN: usize = 2;

/// The kinds of workflows in the load.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    Sequential,
    Parallel,
    Timer,
    Signals,
    Updates,
    /// Some end well, one fails every time, one outlives its parent.
    Children,
    Selection,
    /// Reads a message stream and continues as new between the messages.
    Stream,
    /// Local activities that are recorded with the completion.
    Local,
    /// A local activity whose attempts are recorded as they happen.
    Prepared,
    /// Closed from outside while it sleeps.
    Cancelled,
    /// Gets a cancellation request while it sleeps, and cleans up.
    Asked,
}

impl Shape {
    const ALL: [Self; 12] = [
        Self::Sequential,
        Self::Parallel,
        Self::Timer,
        Self::Signals,
        Self::Updates,
        Self::Children,
        Self::Selection,
        Self::Stream,
        Self::Local,
        Self::Prepared,
        Self::Cancelled,
        Self::Asked,
    ];

    /// Even numbers run on Rust workers and odd ones on Python workers. Both run every shape, except that only Python workers get
    /// cancellation requests and record attempts as they happen.
    pub(super) fn of(number: u64) -> Self {
        Self::ALL[(number / 2) as usize % Self::ALL.len()]
    }

    pub(super) fn workflow_type(self) -> &'static str {
        match self {
            Self::Sequential => "crash.sequential",
            Self::Parallel => "crash.parallel",
            Self::Timer => "crash.timer",
            Self::Signals => "crash.signals",
            Self::Updates => "crash.updates",
            Self::Children => "crash.children",
            Self::Selection => "crash.selection",
            Self::Stream => "crash.stream",
            Self::Local => "crash.local",
            Self::Prepared => "crash.prepared",
            Self::Cancelled => "crash.sleeping",
            Self::Asked => "crash.asked",
        }
    }

    /// The messages that are sent to it, one after another.
    pub(super) fn messages(self) -> usize {
        match self {
            Self::Signals => SIGNALS,
            Self::Updates => UPDATES,
            Self::Stream => MESSAGES,
            Self::Cancelled | Self::Asked => 1,
            Self::Sequential
            | Self::Parallel
            | Self::Timer
            | Self::Children
            | Self::Selection
            | Self::Local
            | Self::Prepared => 0,
        }
    }

    pub(super) fn signals(self) -> usize {
        if matches!(self, Self::Signals) {
            SIGNALS
        } else {
            0
        }
    }

    pub(super) fn runs(self) -> usize {
        if matches!(self, Self::Stream) {
            MESSAGES / MESSAGES_PER_RUN
        } else {
            1
        }
    }

    /// The expected status at the end.
    pub(super) fn status(self) -> &'static str {
        match self {
            Self::Cancelled | Self::Asked => "cancelled",
            _ => "completed",
        }
    }

    pub(super) fn activities(self) -> usize {
        match self {
            Self::Sequential => SEQUENTIAL_ACTIVITIES as usize,
            Self::Parallel => PARALLEL_ACTIVITIES as usize,
            Self::Timer => 2,
            Self::Local => LOCAL_ACTIVITIES as usize,
            Self::Signals | Self::Selection | Self::Prepared => 1,
            Self::Updates | Self::Children | Self::Stream | Self::Cancelled | Self::Asked => 0,
        }
    }

    /// The result for an input, if it ends with one.
    pub(super) fn expected(self, input: u64) -> Option<Value> {
        Some(match self {
            Self::Sequential => json!(input + (0..SEQUENTIAL_ACTIVITIES).sum::<u64>()),
            Self::Parallel => json!(
                (0..PARALLEL_ACTIVITIES)
                    .map(|number| input + number)
                    .collect::<Vec<_>>()
            ),
            Self::Timer => json!(input + 3),
            Self::Signals => json!([input + SIGNALS as u64, (0..SIGNALS).collect::<Vec<_>>()]),
            Self::Updates => json!((0..UPDATES).collect::<Vec<_>>()),
            Self::Children => json!([input * 2, (input + 1) * 2, "failed"]),
            Self::Local => json!(input + (0..LOCAL_ACTIVITIES).sum::<u64>()),
            Self::Selection | Self::Prepared => json!(input + 1),
            Self::Stream => json!((0..MESSAGES).collect::<Vec<_>>()),
            Self::Cancelled | Self::Asked => return None,
        })
    }
}

/// Registers every shape and the activity they share.
pub(super) fn register(worker: &mut Worker) {
    register_talkative(worker);
    worker.register_activity("crash.add", |_, arguments| async move {
        let (left, right) = (
            arguments[0].as_u64().unwrap(),
            arguments[1].as_u64().unwrap(),
        );
        // Uneven work, so that kills meet activities at different points.
        sleep(Duration::from_millis((left * 7 + right * 13) % 80)).await;
        Ok(json!(left + right))
    });
    worker.register_workflow("crash.sequential", |context, arguments| async move {
        let mut total = arguments[0].clone();
        for number in 0..SEQUENTIAL_ACTIVITIES {
            total = add(&context, &total, number).await?;
        }
        Ok(total)
    });
    worker.register_workflow("crash.local", |context, arguments| async move {
        let mut total = arguments[0].clone();
        for number in 0..LOCAL_ACTIVITIES {
            total = context
                .local_activity("crash.add", json!([total, number]))
                .await?;
        }
        Ok(total)
    });
    worker.register_workflow("crash.parallel", |context, arguments| async move {
        let call = |number| ParallelOperation::activity("crash.add", json!([arguments[0], number]));
        let results = context
            .parallel((0..PARALLEL_ACTIVITIES).map(call).collect())
            .await?;
        let sums = results.into_iter().map(|result| match result {
            ParallelResult::Activity(value) => value,
            other => json!(format!("not an activity: {other:?}")),
        });
        Ok(sums.collect())
    });
    worker.register_workflow("crash.timer", |context, arguments| async move {
        let total = add(&context, &arguments[0], 1).await?;
        context.sleep(Duration::from_secs(1)).await?;
        add(&context, &total, 2).await
    });
    worker.register_workflow("crash.signals", |context, arguments| async move {
        let mut received = Vec::new();
        for _ in 0..SIGNALS {
            received.push(context.wait_signal("go").await?[0].clone());
        }
        let total = add(&context, &arguments[0], received.len() as u64).await?;
        Ok(json!([total, received]))
    });
    worker.register_workflow("crash.steps", |context, _| async move {
        let mut total = json!(0);
        for step in 0..STEPS {
            context.wait_signal("go").await?;
            total = add(&context, &total, step as u64).await?;
        }
        context.sleep(Duration::from_secs(1)).await?;
        Ok(total)
    });
}

/// Registers the shapes with messages and children: updates, children, selections, streams.
#[expect(
    clippy::result_large_err,
    reason = "the closures return the published error type"
)]
fn register_talkative(worker: &mut Worker) {
    worker.register_update("crash.updates", "add", |_, arguments| async move {
        Ok(json!(arguments[0].as_u64().unwrap() * 2))
    });
    worker.register_workflow("crash.updates", |context, _| async move {
        let view = context.clone();
        let enough = move || Ok(view.updates("add")?.len() >= UPDATES);
        wait_condition!(context, "enough", enough).await?;
        let taken = context.updates("add")?;
        Ok(taken
            .into_iter()
            .map(|arguments| arguments[0].clone())
            .collect())
    });
    worker.register_workflow("crash.double", |_, arguments| async move {
        Ok(json!(arguments[0].as_u64().unwrap() * 2))
    });
    worker.register_workflow("crash.failing", |_, _| async move {
        Err(Error::WorkerLoop("there is none".to_owned()))
    });
    worker.register_workflow("crash.sleeping", |context, _| async move {
        context.sleep(Duration::from_secs(3600)).await?;
        Ok(json!("slept"))
    });
    worker.register_workflow("crash.children", |context, arguments| async move {
        let number = arguments[0].as_u64().unwrap();
        let double = |number: u64| {
            let options = ChildWorkflowOptions::new(QUEUE);
            ParallelOperation::child_workflow("crash.double", options, json!([number]))
        };
        let doubled = context
            .parallel(vec![double(number), double(number + 1)])
            .await?;
        let mut results: Vec<Value> = doubled
            .into_iter()
            .map(|result| match result {
                ParallelResult::ChildWorkflow(child) => child.result,
                other => json!(format!("not a child: {other:?}")),
            })
            .collect();
        let twice = ChildWorkflowOptions::new(QUEUE).retry_policy(ChildWorkflowRetryPolicy {
            max_attempts: Some(2),
            backoff_seconds: vec![0],
            non_retryable_error_types: Vec::new(),
        });
        let failing = context.start_child_workflow("crash.failing", twice, json!([]));
        match failing.await {
            Err(Error::ChildWorkflowFailed(_)) => results.push(json!("failed")),
            other => results.push(json!(other?.result)),
        }
        let patient =
            ChildWorkflowOptions::new(QUEUE).parent_close_policy(ParentClosePolicy::Terminate);
        context
            .select(vec![
                ParallelOperation::child_workflow("crash.sleeping", patient, json!([])),
                ParallelOperation::timer(Duration::from_secs(0)),
            ])
            .await?;
        Ok(Value::Array(results))
    });
    worker.register_workflow("crash.selection", |context, arguments| async move {
        let chosen = context
            .select(vec![
                ParallelOperation::activity("crash.add", json!([arguments[0], 1])),
                ParallelOperation::timer(Duration::from_secs(3600)),
            ])
            .await?;
        for loser in chosen.remaining() {
            loser.cancel().await?;
        }
        match chosen.value {
            Some(ParallelResult::Activity(value)) => Ok(value),
            other => Ok(json!(format!("not the activity: {other:?}"))),
        }
    });
    worker.register_workflow("crash.stream", |context, arguments| async move {
        let mut read: Vec<Value> = arguments[1].as_array().cloned().unwrap_or_default();
        let stream = context.message_stream("orders")?;
        for _ in 0..MESSAGES_PER_RUN {
            let message = stream.receive_one().await?;
            let AvroValue::Long(number) = message.arguments[0] else {
                return Ok(json!(format!("not a number: {message:?}")));
            };
            read.push(json!(number));
        }
        if read.len() < MESSAGES {
            return context.continue_as_new(json!([arguments[0], read]));
        }
        Ok(Value::Array(read))
    });
}

async fn add(context: &WorkflowContext, total: &Value, number: u64) -> Result<Value> {
    context.activity("crash.add", json!([total, number])).await
}
