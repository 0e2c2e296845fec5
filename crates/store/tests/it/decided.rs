//! Rows that the engine decided, for checks of whole stores: open and closed runs of both programs, leases, timers, signals, chains.

use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_engine::change::KeyClaim;
use longhaul_engine::command::{
    ClaimActivityTask, ClaimExecutionTasks, ClaimWorkflowTask, CompleteWorkflowTask, Start,
};
use longhaul_engine::conductor::definition::{Lookups, Snapshot};
use longhaul_engine::conductor::execution::command::start::{NewExecution, start};
use longhaul_engine::conductor::execution::lookup::{LookupResults, Step};
use longhaul_engine::contract::Declared;
use longhaul_engine::run::message::external::{Request, SignalRun, Stop, StopRun};
use longhaul_engine::run::message::update::UpdateRun;
use longhaul_engine::run::start::DuplicatePolicy;
use longhaul_engine::run::state::{Routing, Run};
use longhaul_engine::run::workflow_task::claim::SignalDelivery;
use longhaul_engine::run::workflow_task::lease::{Holder, TaskHolder};
use longhaul_engine::{Changes, Command, Decision, Limits, Moment};
use longhaul_protocol::Payload;
use longhaul_protocol::conductor::read;
use longhaul_protocol::id::{RunId, WorkflowId};
use longhaul_protocol::workflow_command::parse_commands;
use longhaul_store::conformance::fixture::{at, load};
use longhaul_store::conformance::registry::worker;
use longhaul_store::conformance::sessions::session;
use longhaul_store::{NamespaceRow, SnapshotRow, Store};
use serde_json::{Map, Value, json};

const WORKER: &str = "worker-1";

/// The ids of the runs that [`fill`] writes.
pub(crate) struct Decided {
    /// Open, with a leased activity, a timer and a signal.
    pub(crate) open: RunId,
    /// Its workflow task is leased.
    pub(crate) leased: RunId,
    pub(crate) completed: RunId,
    /// The first run of a chain of two. A signal and an update moved to the second.
    pub(crate) continued: RunId,
    /// Closed, with a child that it has not stopped yet.
    pub(crate) parent: RunId,
    /// Stopped, with an update that failed by it.
    pub(crate) stopped: RunId,
    /// A definition run with a leased task.
    pub(crate) definition: RunId,
}

/// Writes runs of both programs, a session and documents.
pub(crate) async fn fill(store: &dyn Store) -> Decided {
    let mut world = World { store, steps: 0 };
    let open = world.start("open").await;
    world.claim(&open).await;
    let calls = json!([
        {"type": "schedule_activity", "activity_type": "charge"},
        {"type": "start_timer", "delay_seconds": 60},
    ]);
    world.complete(&open, calls).await;
    let run = load(store, &open).await.unwrap();
    world
        .apply(
            &open,
            &ClaimActivityTask {
                task_id: run.activity(1.into()).unwrap().task_id.clone(),
                sequence: 1.into(),
                worker_id: WORKER.into(),
                poll_request_id: None,
                admission: None,
            },
        )
        .await;
    world.signal(&open, Some("request-1")).await;
    let leased = world.start("leased").await;
    world.claim(&leased).await;
    let completed = world.start("completed").await;
    world.claim(&completed).await;
    let end = json!([{"type": "complete_workflow"}]);
    world.complete(&completed, end).await;
    let continued = world.start("chain").await;
    world.claim(&continued).await;
    world.signal(&continued, None).await;
    world.update(&continued).await;
    let onward = json!([{"type": "continue_as_new"}]);
    world.complete(&continued, onward).await;
    let parent = world.start("parent").await;
    world.claim(&parent).await;
    let child = json!([{"type": "start_child_workflow", "workflow_type": "part", "parent_close_policy": "terminate"}]);
    world.complete(&parent, child).await;
    world.signal(&parent, None).await;
    world.claim(&parent).await;
    let end = json!([{"type": "complete_workflow"}]);
    world.complete(&parent, end).await;
    let stopped = world.start("stopped").await;
    world.update(&stopped).await;
    let stop = StopRun {
        request: Request::default(),
        how: Stop::Terminate,
        reason: None,
        life: None,
    };
    world.apply(&stopped, &stop).await;
    let definition = world.definition().await;
    write_records(store).await;
    Decided {
        open,
        leased,
        completed,
        continued,
        parent,
        stopped,
        definition,
    }
}

async fn write_records(store: &dyn Store) {
    let sessions = Changes::of_sessions(vec![session("default", "gpu")]);
    store.commit(Arc::new(sessions)).await.unwrap();
    let namespace = NamespaceRow {
        name: "default".into(),
        description: None,
        retention_days: None,
        created_at: at(0),
        updated_at: at(0),
    };
    assert!(store.create(&namespace, at(0)).await.unwrap());
    store.put(&worker("default", WORKER), at(0)).await.unwrap();
}

struct World<'s> {
    store: &'s dyn Store,
    steps: u128,
}

impl World<'_> {
    fn next_entropy(&mut self) -> u128 {
        self.steps += 1;
        self.steps << 32
    }

    async fn commit<R: std::fmt::Debug>(&self, decision: Decision<R>) -> R {
        let reply = decision.reply.unwrap();
        let changes = Arc::new(decision.changes);
        self.store.commit(changes).await.unwrap();
        reply
    }

    async fn apply<C: Command<Reply: std::fmt::Debug>>(
        &mut self,
        run_id: &RunId,
        command: &C,
    ) -> C::Reply {
        let run = load(self.store, run_id).await.unwrap();
        let found = LookupResults::default();
        let limits = Limits::default();
        let step = command.step(&run, self.moment(&limits), &found);
        let Step::Decided(decision) = step else {
            panic!("these commands need nothing else");
        };
        self.commit(decision).await
    }

    fn moment<'l>(&mut self, limits: &'l Limits) -> Moment<'l> {
        Moment {
            now: at(10),
            entropy: self.next_entropy(),
            limits,
        }
    }

    async fn start(&mut self, workflow_id: &str) -> RunId {
        let attributes = json!({"Region": "eu", "Tags": ["a", "b"], "Count": 2, "Price": 2.5});
        let start = Start {
            namespace: "default".into(),
            workflow_id: WorkflowId::from(workflow_id),
            workflow_type: "order".to_owned(),
            task_queue: "orders".into(),
            arguments: Payload::empty_list(),
            business_key: Some(format!("key of {workflow_id}")),
            memo: None,
            search_attributes: members(attributes),
            run_timeout_seconds: Some(3600),
            execution_timeout_seconds: None,
            routing: Routing::default(),
            duplicate_policy: DuplicatePolicy::Fail,
            declared: Map::new(),
            principal: None,
            context: None,
        };
        let limits = Limits::default();
        let decision = start.decide_new(self.moment(&limits));
        self.commit(decision).await.run_id
    }

    async fn signal(&mut self, run_id: &RunId, request_id: Option<&str>) {
        let request = Request {
            request_id: request_id.map(str::to_owned),
            ..Request::default()
        };
        let signal = SignalRun {
            request,
            name: "go".to_owned(),
            arguments: Payload::empty_list(),
            declared: Declared::default(),
        };
        self.apply(run_id, &signal).await;
    }

    async fn update(&mut self, run_id: &RunId) {
        let update = UpdateRun {
            request: Request::default(),
            name: "set".to_owned(),
            arguments: Payload::empty_list(),
            declared: Declared::default(),
            validator_refusal: None,
        };
        self.apply(run_id, &update).await;
    }

    async fn claim(&mut self, run_id: &RunId) {
        let run = load(self.store, run_id).await.unwrap();
        let claim = ClaimWorkflowTask {
            task_id: task_of(&run),
            worker_id: WORKER.into(),
            signal_delivery: SignalDelivery::Any,
            poll_request_id: None,
        };
        self.apply(run_id, &claim).await;
    }

    async fn complete(&mut self, run_id: &RunId, commands: Value) {
        let run = load(self.store, run_id).await.unwrap();
        let row = self.store.task(&task_of(&run)).await.unwrap().unwrap();
        let named = TaskHolder {
            namespace: row.namespace.clone(),
            task_id: row.task_id.clone(),
            owner: WORKER.into(),
            attempt: row.attempt,
            principal: None,
        };
        let row = Box::new(row);
        let complete = CompleteWorkflowTask {
            holder: Holder { named, row },
            completion: Arc::new(parse_commands(&commands).unwrap().into()),
            definitions: Arc::default(),
        };
        self.apply(run_id, &complete).await;
    }

    /// Starts a definition run with an idempotency key, and leases its task.
    async fn definition(&mut self) -> RunId {
        let definition = json!({"name": "flow", "version": 1, "tasks": [
            {"name": "pack", "taskReferenceName": "pack", "type": "SIMPLE"}]});
        let snapshot = Snapshot::compile(read(definition).unwrap(), &Lookups::default()).unwrap();
        let snapshot = Arc::new(snapshot);
        let row = SnapshotRow(Arc::clone(&snapshot));
        assert!(self.store.create(&row, at(0)).await.unwrap());
        let mut found = LookupResults::default();
        found
            .snapshots
            .insert(snapshot.hash().into(), Arc::clone(&snapshot));
        let new = NewExecution {
            namespace: "default".into(),
            snapshot,
            input: members(json!({"a": 1})),
            correlation_id: Some("c-1".to_owned()),
            priority: 1,
            task_to_domain: Arc::new(BTreeMap::new()),
            idempotency_key: Some("k".to_owned()),
            key_claim: Some(KeyClaim {
                key: "k".to_owned(),
                earlier: None,
            }),
            created_by: None,
            depth: 0,
            parent: None,
        };
        let limits = Limits::default();
        let moment = self.moment(&limits);
        let Step::Decided(decision) = start(&new, moment, &found) else {
            panic!("a task without a definition needs nothing else");
        };
        let run_id = self.commit(decision).await.run_id;
        let run = load(self.store, &run_id).await.unwrap();
        let claim = ClaimExecutionTasks {
            tasks: vec![(run.task(1).unwrap().id.clone(), 1)],
            worker_id: Some(WORKER.to_owned()),
            served_seconds: None,
        };
        self.apply(&run_id, &claim).await;
        run_id
    }
}

fn members(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

fn task_of(run: &Run) -> longhaul_protocol::id::TaskId {
    run.core.workflow_task.as_ref().unwrap().id.clone()
}
