//! How many tasks a runner has in hand, and for how many it asks.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use longhaul_protocol::conductor::{Task, TaskResult};
use longhaul_transport::{RequestError, TransportError};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::Value;
use tokio::time::Instant;

use super::fake::{FakeTasks, Update};
use super::gate::{Gate, iterate, pass, until};
use super::{BOTH, echo, runner, slots, task, tasks};
use crate::client::Poll;
use crate::events::EventDispatcher;
use crate::runner::{TaskApi, TaskRunner};
use crate::settings::resolve;
use crate::worker::{RunnerKind, async_function, function};

/// Returns a runner with `held` tasks in hand that end when the gate is opened.
async fn busy(kind: RunnerKind, slots_count: usize, held: usize) -> (TaskRunner, FakeTasks, Gate) {
    let fake = FakeTasks::returning(vec![tasks(held)]);
    let gate = Gate::new();
    let mut runner = runner(gate.worker(kind).settings(slots(slots_count)), &fake);
    runner.run_once().await;
    gate.entered(held).await;
    (runner, fake, gate)
}

#[tokio::test(start_paused = true)]
async fn a_batch_has_the_size_of_the_free_slots() {
    for kind in BOTH {
        for (held, asked) in [(0, Some(10)), (3, Some(7)), (8, Some(2)), (10, None)] {
            let (mut runner, fake, _gate) = busy(kind, 10, held).await;
            assert_eq!(runner.running(), held);
            // The wait after an empty poll passes first.
            for _ in 0..3 {
                iterate(&mut runner).await;
            }
            let polled = fake.polled();
            let counts: Vec<_> = polled
                .iter()
                .skip(1)
                .map(|(_, poll)| poll.asks_for())
                .collect();
            match asked {
                Some(asked) => assert!(
                    counts.iter().all(|count| *count == asked) && !counts.is_empty(),
                    "{kind:?} {held}: {counts:?}"
                ),
                None => assert!(counts.is_empty(), "{kind:?} {held}: {counts:?}"),
            }
        }
        let fake = FakeTasks::new();
        let mut runner = runner(echo(kind).settings(slots(250)), &fake);
        runner.run_once().await;
        assert_eq!(fake.polled()[0].1.asks_for(), 100);
    }
}

#[tokio::test(start_paused = true)]
async fn tasks_beyond_the_slots_wait_for_one() {
    for kind in BOTH {
        let fake = FakeTasks::returning(vec![tasks(5)]);
        let gate = Gate::new();
        let mut runner = runner(gate.worker(kind).settings(slots(2)), &fake);
        runner.run_once().await;
        for (ended, entered) in [(0, 2), (1, 3), (2, 4), (3, 5)] {
            until(|| fake.reported().len() == ended).await;
            gate.entered(entered).await;
            pass(Duration::from_secs(1)).await;
            assert_eq!(gate.count(), entered, "{kind:?}");
            gate.open(1);
        }
        gate.open(1);
        runner.drain().await;
        assert_eq!(fake.reported().len(), 5);
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_runner_looks_again_after_a_millisecond() {
    for kind in BOTH {
        let (mut runner, fake, gate) = busy(kind, 2, 2).await;
        for _ in 0..5 {
            let begun = Instant::now();
            iterate(&mut runner).await;
            assert_eq!(begun.elapsed(), Duration::from_millis(1), "{kind:?}");
        }
        assert_eq!(fake.polled().len(), 1);
        gate.open(1);
        until(|| fake.reported().len() == 1).await;
        // The finished task is removed first, so its slot is polled for in the same iteration.
        iterate(&mut runner).await;
        assert_eq!(fake.polled()[1].1.asks_for(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_taken_until_the_result_is_reported() {
    for kind in BOTH {
        for (slots_count, asked) in [(1, None), (3, Some(2))] {
            let fake = FakeTasks::returning(vec![vec![task("a")]])
                .updates(std::iter::repeat_n(Update::Broken, 3));
            let mut runner = runner(echo(kind).settings(slots(slots_count)), &fake);
            runner.run_once().await;
            // The fourth attempt comes after 60 seconds.
            let end = Instant::now() + Duration::from_secs(59);
            while Instant::now() < end {
                runner.run_once().await;
            }
            let polled = fake.polled();
            let counts: BTreeSet<_> = polled[1..]
                .iter()
                .map(|(_, poll)| poll.asks_for())
                .collect();
            assert_eq!(counts, asked.into_iter().collect(), "{kind:?}");
            assert_eq!(fake.reported().len(), 3);
            runner.drain().await;
            runner.run_once().await;
            let last = fake.polled().pop().unwrap();
            assert_eq!(last.1.asks_for(), slots_count);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_lets_the_tasks_in_hand_end_and_polls_no_more() {
    for kind in BOTH {
        let (runner, fake, gate) = busy(kind, 2, 2).await;
        let control = runner.control();
        let running = tokio::spawn(runner.run());
        control.stop();
        pass(Duration::from_secs(10)).await;
        assert!(!running.is_finished());
        gate.open(2);
        running.await.unwrap();
        assert_eq!(fake.polled().len(), 1);
        // A stopping runner asks for no further task.
        let by: Vec<_> = fake.reported().iter().map(|(_, by, _)| *by).collect();
        assert_eq!(by, ["tasks", "tasks"]);
    }
}

/// How many tasks the server of a random load has.
const LOAD: usize = 200;

/// A server with a random load. It counts the tasks that are delivered and not reported.
#[derive(Clone, Debug)]
struct Load(Arc<Mutex<LoadState>>);

#[derive(Debug)]
struct LoadState {
    random: StdRng,
    delivered: usize,
    reported: usize,
    most: usize,
    /// Tasks whose report was refused once.
    refused: BTreeSet<String>,
}

impl Load {
    fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(LoadState {
            random: StdRng::seed_from_u64(seed),
            delivered: 0,
            reported: 0,
            most: 0,
            refused: BTreeSet::new(),
        })))
    }
}

impl LoadState {
    /// Delivers up to so many tasks.
    fn deliver(&mut self, most: usize) -> Vec<Task> {
        let count = self
            .random
            .random_range(0..=most)
            .min(LOAD - self.delivered);
        let ids = self.delivered..self.delivered + count;
        self.delivered += count;
        self.most = self.most.max(self.delivered - self.reported);
        ids.map(|id| task(&id.to_string())).collect()
    }

    fn report(&mut self, result: &TaskResult) -> Result<(), RequestError> {
        if self.random.random_ratio(1, 50) && self.refused.insert(result.task_id.clone()) {
            return Err(TransportError::Interrupted("reset".to_owned()).into());
        }
        self.reported += 1;
        Ok(())
    }
}

impl TaskApi for Load {
    fn batch_poll<'a>(&'a self, poll: &'a Poll) -> BoxFuture<'a, Result<Vec<Task>, RequestError>> {
        Box::pin(async move { Ok(self.0.lock().deliver(poll.asks_for())) })
    }

    fn update<'a>(&'a self, result: &'a TaskResult) -> BoxFuture<'a, Result<(), RequestError>> {
        Box::pin(async move { self.0.lock().report(result) })
    }

    fn update_and_poll<'a>(
        &'a self,
        result: &'a TaskResult,
    ) -> BoxFuture<'a, Result<Option<Task>, RequestError>> {
        Box::pin(async move {
            let mut state = self.0.lock();
            state.report(result)?;
            Ok(state.deliver(1).pop())
        })
    }
}

#[tokio::test(start_paused = true)]
async fn there_are_never_more_tasks_in_hand_than_slots() {
    for seed in 0..5 {
        for kind in BOTH {
            let load = Load::new(seed);
            let slots_count = 1 + usize::try_from(seed).unwrap();
            let worker = match kind {
                RunnerKind::Sync => function("t", |_: Value| {
                    std::thread::yield_now();
                    Ok(())
                }),
                RunnerKind::Async => async_function("t", async |input: Value| {
                    let id: u64 = input["id"].as_str().unwrap_or_default().parse()?;
                    tokio::time::sleep(Duration::from_millis(id * 7 % 11)).await;
                    Ok(())
                }),
            };
            let worker = worker.settings(slots(slots_count));
            let resolved = resolve(worker.task_type(), &worker.settings, &|_| None).unwrap();
            let events = EventDispatcher::silent();
            let mut runner = TaskRunner::with_settings(worker, load.clone(), events, resolved);
            while load.0.lock().reported < LOAD {
                runner.run_once().await;
            }
            assert_eq!(load.0.lock().most, slots_count, "{kind:?}, seed {seed}");
        }
    }
}

#[tokio::test]
async fn blocking_work_runs_on_as_many_threads_as_there_are_slots() {
    let fake = FakeTasks::returning(vec![tasks(10)]);
    // No task passes the barrier unless all ten run at once.
    let barrier = Arc::new(std::sync::Barrier::new(10));
    let worker = function("t", move |_: Value| {
        barrier.wait();
        Ok(format!("{:?}", std::thread::current().id()))
    });
    let mut runner = runner(worker.settings(slots(10)), &fake);
    runner.run_once().await;
    runner.drain().await;
    let threads: BTreeSet<_> = fake
        .reported()
        .into_iter()
        .map(|(_, _, result)| result.output_data["result"].to_string())
        .collect();
    assert_eq!(threads.len(), 10);
}

#[tokio::test(start_paused = true)]
async fn futures_wait_at_the_same_time() {
    let fake = FakeTasks::returning(vec![tasks(100)]);
    let worker = async_function("t", async |_: Value| {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(())
    });
    let mut runner = runner(worker.settings(slots(100)), &fake);
    let begun = Instant::now();
    runner.run_once().await;
    runner.drain().await;
    assert_eq!(begun.elapsed(), Duration::from_secs(1));
    assert_eq!(fake.reported().len(), 100);
}
