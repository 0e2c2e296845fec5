//! A load of both families on several servers: drivers that start run after run, and workers that do their tasks. At the end every run
//! that was accepted is judged.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::code_runs::CodeRuns;
use crate::crash::executions::{Plane, Shape, judge};
use crate::harness::{Caller, Server, eventually};

/// Runs of each family that are open at any time.
const DRIVERS: usize = 4;

/// Workers of each kind of task.
const WORKERS: usize = 2;

/// Everything must be done this long after the last fault.
const DEADLINE: Duration = Duration::from_secs(90);

/// A running load.
pub(super) struct Load {
    runs: Runs,
    /// No further runs are started.
    closing: Arc<AtomicBool>,
    /// The workers end.
    stopping: Arc<AtomicBool>,
    driving: JoinSet<()>,
    working: JoinSet<()>,
}

/// Clients of both families, and the runs that ended.
#[derive(Clone)]
struct Runs {
    plane: Plane,
    code: CodeRuns,
    next: Arc<AtomicUsize>,
    ended: Arc<Mutex<Ended>>,
}

#[derive(Default)]
struct Ended {
    definitions: Vec<(usize, Shape, Value)>,
    code: Vec<String>,
}

impl Load {
    /// Starts a load at these servers.
    pub(super) async fn start(caller: &Caller) -> Self {
        let plane = Plane::at(caller.clone());
        plane.register().await;
        let code = CodeRuns::new(caller.clone(), "cluster");
        let mut load = Self {
            runs: Runs {
                plane: plane.clone(),
                code: code.clone(),
                next: Arc::default(),
                ended: Arc::default(),
            },
            closing: Arc::default(),
            stopping: Arc::default(),
            driving: JoinSet::new(),
            working: JoinSet::new(),
        };
        for number in 0..WORKERS {
            for kind in ["workflow", "activity"] {
                let worker = format!("{kind}-{number}");
                let stopping = Arc::clone(&load.stopping);
                load.working
                    .spawn(code.clone().work(kind, worker, stopping));
            }
            for task_type in ["crash_work", "crash_work", "crash_fails_once"] {
                let (stopping, takes_next) = (Arc::clone(&load.stopping), number == 0);
                load.working
                    .spawn(plane.clone().work(task_type, stopping, takes_next));
            }
        }
        for _ in 0..DRIVERS {
            let (runs, closing) = (load.runs.clone(), Arc::clone(&load.closing));
            load.driving.spawn(async move {
                while !closing.load(Ordering::Relaxed) {
                    runs.run_definition(&runs.plane).await;
                }
            });
            let (runs, closing) = (load.runs.clone(), Arc::clone(&load.closing));
            load.driving.spawn(async move {
                while !closing.load(Ordering::Relaxed) {
                    runs.run_code(&runs.code).await;
                }
            });
        }
        load
    }

    /// Starts a run of each family at these servers, and waits for their ends. The workers use all servers.
    pub(super) async fn probe(&self, servers: &[&str]) {
        let caller = Caller::new(servers.iter().copied());
        let plane = Plane::at(caller.clone());
        let code = self.runs.code.at(caller);
        let both = async {
            tokio::join!(self.runs.run_definition(&plane), self.runs.run_code(&code));
        };
        timeout(DEADLINE, both)
            .await
            .unwrap_or_else(|_| panic!("work does not go on at {servers:?}"));
    }

    /// Waits until this many further runs have ended.
    pub(super) async fn go_on(&self, runs: usize) {
        let before = self.runs.count();
        eventually("the load goes on", || async {
            (self.runs.count() >= before + runs).then_some(())
        })
        .await;
    }

    /// Lets all runs end, and judges them at one of the servers: nothing was lost, nothing was recorded twice, and a report that is
    /// sent again changes nothing.
    pub(super) async fn judge(mut self, server: &Server) {
        self.closing.store(true, Ordering::Relaxed);
        let all = async {
            while let Some(ended) = self.driving.join_next().await {
                ended.expect("a run of the load");
            }
        };
        timeout(DEADLINE, all).await.expect("all runs end");
        self.stopping.store(true, Ordering::Relaxed);
        while let Some(ended) = self.working.join_next().await {
            ended.expect("a worker");
        }
        let before = self.runs.judge(server).await;
        self.runs.plane.repeat_reports().await;
        self.runs.code.repeat_reports().await;
        assert_eq!(self.runs.judge(server).await, before);
    }
}

impl Runs {
    fn count(&self) -> usize {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.definitions.len() + ended.code.len()
    }

    async fn run_definition(&self, plane: &Plane) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let shape = Shape::ALL[number % Shape::ALL.len()];
        let id = plane.start(shape, number).await;
        let run = plane.ended(&id).await;
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.definitions.push((number, shape, run));
    }

    async fn run_code(&self, code: &CodeRuns) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let id = format!("run-{number}");
        code.start(&id).await;
        code.ended(&id).await;
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.code.push(id);
    }

    /// Checks all runs. Returns the lengths of the histories of those with code, and the ends of the others.
    async fn judge(&self, server: &Server) -> (Vec<usize>, Vec<Value>) {
        let Ended { definitions, code } = {
            let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *ended)
        };
        let mut lengths = Vec::new();
        for id in &code {
            lengths.push(CodeRuns::judge(&server.control(), id).await);
        }
        let mut ends = Vec::new();
        let mut started: BTreeMap<String, u64> = BTreeMap::new();
        for (number, shape, run) in &definitions {
            assert_eq!(self.plane.start(*shape, *number).await, run["workflowId"]);
            judge(server, &self.plane, *shape, run).await;
            *started.entry(shape.name()).or_default() += 1;
            let id = run["workflowId"].as_str().expect("an id");
            ends.push(self.plane.ended(id).await);
        }
        let children = started.get(&Shape::Child.name()).copied();
        *started.entry(Shape::Sequence.name()).or_default() += children.unwrap_or(0);
        for shape in Shape::ALL {
            let expected = started.get(&shape.name()).copied().unwrap_or(0);
            assert_eq!(self.plane.count(shape).await, expected, "{shape:?}");
        }
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        *ended = Ended { definitions, code };
        (lengths, ends)
    }
}
