//! The workflows of the crash tests in Rust. `python/crash_worker.py` has the same ones in Python.

use std::time::Duration;

use durable_workflow::{
    ParallelOperation, ParallelResult, Result, Value, Worker, WorkflowContext, json,
};
use tokio::time::sleep;

/// Steps of `crash.steps`, each a signal and an activity.
pub(super) const STEPS: usize = 3;

const SEQUENTIAL_ACTIVITIES: u64 = 6;
const PARALLEL_ACTIVITIES: u64 = 10;
const SIGNALS: usize = 4;

/// What a workflow of the load does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    Sequential,
    Parallel,
    Timer,
    Signals,
}

impl Shape {
    /// Even numbers run on Rust workers and odd ones on Python workers; both get every shape.
    pub(super) fn of(number: u64) -> Self {
        [Self::Sequential, Self::Parallel, Self::Timer, Self::Signals][(number / 2 % 4) as usize]
    }

    pub(super) fn workflow_type(self) -> &'static str {
        match self {
            Self::Sequential => "crash.sequential",
            Self::Parallel => "crash.parallel",
            Self::Timer => "crash.timer",
            Self::Signals => "crash.signals",
        }
    }

    pub(super) fn signals(self) -> usize {
        match self {
            Self::Signals => SIGNALS,
            Self::Sequential | Self::Parallel | Self::Timer => 0,
        }
    }

    pub(super) fn activities(self) -> usize {
        match self {
            Self::Sequential => SEQUENTIAL_ACTIVITIES as usize,
            Self::Parallel => PARALLEL_ACTIVITIES as usize,
            Self::Timer => 2,
            Self::Signals => 1,
        }
    }

    /// The result for an input.
    pub(super) fn expected(self, input: u64) -> Value {
        match self {
            Self::Sequential => json!(input + (0..SEQUENTIAL_ACTIVITIES).sum::<u64>()),
            Self::Parallel => json!(
                (0..PARALLEL_ACTIVITIES)
                    .map(|number| input + number)
                    .collect::<Vec<_>>()
            ),
            Self::Timer => json!(input + 3),
            Self::Signals => json!([input + SIGNALS as u64, (0..SIGNALS).collect::<Vec<_>>()]),
        }
    }
}

/// Registers every shape and the activity they share.
pub(super) fn register(worker: &mut Worker) {
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

async fn add(context: &WorkflowContext, total: &Value, number: u64) -> Result<Value> {
    context.activity("crash.add", json!([total, number])).await
}
