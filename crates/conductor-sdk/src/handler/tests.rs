//! Supervision with workers of the test and a clock that jumps.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use super::supervise::{Launch, Running, Supervisor, WorkerStatus, restart_wait};
use super::{EndedWorker, HandlerError, Isolation, TaskHandler};
use crate::configuration::Configuration;
use crate::settings::CodeSettings;
use crate::worker::{AnyWorker, function};

/// How long a worker lives. `None` is until it is stopped.
type Life = Option<Duration>;

/// Workers `a` and `b`. Their lives are given; after the last one they live until they are stopped.
#[derive(Default)]
struct Fakes {
    lives: [Mutex<VecDeque<Life>>; 2],
    starts: Mutex<Vec<(usize, Duration)>>,
    begun: Option<Instant>,
    /// How long a worker takes to end after it was stopped.
    slow: Duration,
}

impl Launch for Fakes {
    fn workers(&self) -> Vec<WorkerStatus> {
        let status = |name: &str| WorkerStatus {
            task_type: name.to_owned(),
            pid: None,
            alive: false,
            restarts: 0,
        };
        vec![status("a"), status("b")]
    }

    fn start(&self, index: usize) -> io::Result<Box<dyn Running>> {
        let now = Instant::now();
        let at = self.begun.map_or(Duration::ZERO, |begun| now - begun);
        self.starts.lock().push((index, at));
        let life = self.lives[index].lock().pop_front().flatten();
        if life == Some(Duration::MAX) {
            return Err(io::Error::other("no memory"));
        }
        Ok(Box::new(Fake {
            dies_at: life.map(|life| now + life),
            slow: self.slow,
            stopped: watch::channel(()).0,
        }))
    }
}

struct Fake {
    dies_at: Option<Instant>,
    slow: Duration,
    stopped: watch::Sender<()>,
}

impl Running for Fake {
    fn pid(&self) -> Option<u32> {
        Some(1)
    }

    fn ended(&mut self) -> BoxFuture<'_, String> {
        let dies_at = self.dies_at;
        Box::pin(async move {
            match dies_at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
            "it died".to_owned()
        })
    }

    fn stop(&mut self) {
        self.dies_at = Some(Instant::now() + self.slow);
        self.stopped.send_replace(());
    }

    fn kill(&mut self) {
        self.dies_at = Some(Instant::now());
    }
}

/// Runs both workers for some time, then stops them. Returns how each ended, and the status just before.
async fn run(fakes: Fakes, time: Duration) -> (Vec<EndedWorker>, Vec<WorkerStatus>, Arc<Fakes>) {
    let fakes = Arc::new(Fakes {
        begun: Some(Instant::now()),
        ..fakes
    });
    let status = Arc::new(Mutex::new(fakes.workers()));
    let (stop, _) = watch::channel(false);
    let mut running = tokio::task::JoinSet::new();
    for index in 0..2 {
        let supervisor = Supervisor {
            launch: Arc::clone(&fakes) as Arc<dyn Launch>,
            index,
            grace: Duration::from_secs(30),
            status: Arc::clone(&status),
        };
        running.spawn(supervisor.run(stop.subscribe()));
    }
    tokio::time::sleep(time).await;
    let before = status.lock().clone();
    stop.send_replace(true);
    let mut ended = running.join_all().await;
    ended.sort_by(|one, other| one.task_type.cmp(&other.task_type));
    (ended, before, fakes)
}

fn lives(lives: impl IntoIterator<Item = Life>) -> Mutex<VecDeque<Life>> {
    Mutex::new(lives.into_iter().collect())
}

#[test]
fn restarts_wait_longer_up_to_a_minute() {
    let waits: Vec<_> = (0..9).map(|count| restart_wait(count).as_secs()).collect();
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    assert_eq!(restart_wait(u32::MAX).as_secs(), 60);
}

#[tokio::test(start_paused = true)]
async fn a_dead_worker_is_started_again_and_the_other_does_not_notice() {
    let at_once = Some(Duration::ZERO);
    // A worker that cannot be started is tried again in the same way.
    let fakes = Fakes {
        lives: [
            lives([at_once, Some(Duration::MAX), at_once]),
            Mutex::default(),
        ],
        ..Fakes::default()
    };
    let (ended, before, fakes) = run(fakes, Duration::from_secs(100)).await;
    let starts = fakes.starts.lock();
    let of = |index| {
        let starts = starts.iter().filter(move |(of, _)| *of == index);
        starts.map(|(_, at)| at.as_secs()).collect::<Vec<_>>()
    };
    assert_eq!(of(0), [0, 1, 3, 7]);
    assert_eq!(of(1), [0]);
    assert_eq!((before[0].restarts, before[0].alive), (3, true));
    assert_eq!((before[1].restarts, before[1].pid), (0, Some(1)));
    assert!(ended.iter().all(|worker| !worker.was_killed));
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_dies_at_once_is_started_less_and_less_often() {
    let at_once = Some(Duration::ZERO);
    let fakes = Fakes {
        lives: [lives([at_once; 20]), Mutex::default()],
        ..Fakes::default()
    };
    let (_, _, fakes) = run(fakes, Duration::from_secs(300)).await;
    let starts = fakes.starts.lock();
    let of_first = starts.iter().filter(|(index, _)| *index == 0);
    let at: Vec<_> = of_first.map(|(_, at)| at.as_millis()).collect();
    let gaps: Vec<_> = at.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let seconds = [1, 2, 4, 8, 16, 32, 60, 60, 60];
    assert_eq!(gaps, seconds.map(|seconds| seconds * 1000));
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_was_healthy_is_started_again_soon() {
    let fakes = Fakes {
        lives: [
            lives([
                Some(Duration::ZERO),
                Some(Duration::ZERO),
                Some(Duration::from_secs(700)),
            ]),
            Mutex::default(),
        ],
        ..Fakes::default()
    };
    let (_, _, fakes) = run(fakes, Duration::from_secs(800)).await;
    let starts = fakes.starts.lock();
    let of_first = starts.iter().filter(|(index, _)| *index == 0);
    let at: Vec<_> = of_first.map(|(_, at)| at.as_secs()).collect();
    assert_eq!(at, [0, 1, 3, 704]);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_does_not_end_in_time_is_killed() {
    for (slow, was_killed) in [(29, false), (31, true)] {
        let begun = Instant::now();
        let fakes = Fakes {
            slow: Duration::from_secs(slow),
            ..Fakes::default()
        };
        let (ended, _, _) = run(fakes, Duration::from_secs(1)).await;
        assert_eq!(ended[0].was_killed, was_killed, "{slow}");
        assert_eq!(begun.elapsed().as_secs(), 1 + slow.min(30));
    }
}

fn worker(task_type: &str) -> AnyWorker {
    function(task_type, |input: Value| Ok(input))
}

fn builder() -> super::TaskHandlerBuilder {
    // No server listens there.
    TaskHandler::builder(Configuration::new("http://127.0.0.1:9/api"))
        .isolation(Isolation::InProcess)
}

#[test]
fn mistakes_are_found_before_anything_is_started() {
    assert!(matches!(builder().build(), Err(HandlerError::NoWorkers)));
    let error = builder().worker(worker("t")).worker(worker("t")).build();
    assert_eq!(
        error.unwrap_err().to_string(),
        "two workers have the task type \"t\" in no domain"
    );
    let in_europe = worker("t").settings(CodeSettings::new().domain("eu"));
    assert!(
        builder()
            .worker(worker("t"))
            .worker(in_europe)
            .build()
            .is_ok()
    );
    let error = builder()
        .worker(worker("t").settings(CodeSettings::new().thread_count(0)))
        .build()
        .unwrap_err();
    assert!(matches!(error, HandlerError::Settings(_)), "{error}");
    let error = TaskHandler::builder(Configuration::new("nowhere"))
        .worker(worker("t"))
        .isolation(Isolation::InProcess)
        .build()
        .unwrap_err();
    assert!(matches!(error, HandlerError::Address(_)), "{error}");
}

#[tokio::test]
async fn workers_inside_the_process_start_and_end() {
    let mut handler = builder()
        .workers([worker("a"), worker("b")])
        .build()
        .unwrap();
    assert!(!handler.is_healthy());
    handler.start_processes().await;
    handler.start_processes().await;
    while !handler.is_healthy() {
        tokio::task::yield_now().await;
    }
    let pids: Vec<_> = handler
        .worker_status()
        .iter()
        .map(|worker| worker.pid)
        .collect();
    assert_eq!(pids, [Some(std::process::id()); 2]);
    handler.stop_processes();
    handler.stop_processes();
    let ended = handler.join_processes().await;
    assert_eq!(ended.len(), 2);
    assert!(ended.iter().all(|worker| !worker.was_killed));
    assert!(!handler.is_healthy());
    builder()
        .worker(worker("a"))
        .build()
        .unwrap()
        .run_until(async {})
        .await
        .unwrap();
}
