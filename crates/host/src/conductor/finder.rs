//! Finds what a decision on a definition run needs besides the run.

pub(crate) mod outputs;

use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_engine::conductor::execution::lookup::{
    KeyOfWorkflow, KeyOwner, Lookup, LookupResults,
};
use longhaul_engine::conductor::expression::{EventMember, ValueRef};
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::{Namespace, RunId};
use longhaul_protocol::json::from_stored;
use longhaul_protocol::sequence::HistorySeq;
use longhaul_store::{Page, Store};
use serde_json::Value;

use super::definitions::DefinitionTable;
use super::evaluate::Evaluator;
use super::poll_data::PollTable;
use super::snapshots::Snapshots;
use crate::error::{Error, Result};
use crate::registry::environment::Environment;

/// The parts of the host that know definitions, snapshots and scripts.
pub(crate) struct Finder {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) evaluator: Evaluator,
    pub(crate) environment: Environment,
    pub(crate) definitions: DefinitionTable,
    pub(crate) snapshots: Snapshots,
    pub(crate) polls: PollTable,
}

impl Finder {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        evaluator: Evaluator,
        environment: Environment,
    ) -> Self {
        Self {
            store,
            evaluator,
            environment,
            definitions: DefinitionTable::default(),
            snapshots: Snapshots::default(),
            polls: PollTable::default(),
        }
    }

    /// Returns what a decision may use without asking: the values of the environment, the snapshot of the run if it is in memory, and the
    /// queues with domains that were polled a moment ago.
    pub(crate) fn begin(
        &self,
        namespace: &Namespace,
        snapshot: Option<&Arc<str>>,
        task_to_domain: Option<&BTreeMap<String, String>>,
        now: Timestamp,
    ) -> LookupResults {
        let mut found = LookupResults {
            environment: self.environment.values().clone(),
            ..LookupResults::default()
        };
        if let Some(hash) = snapshot
            && let Some(snapshot) = self.snapshots.look_up(hash)
        {
            found.snapshots.insert(Arc::clone(hash), snapshot);
        }
        if task_to_domain.is_some_and(|domains| !domains.is_empty()) {
            found.polled = self.polls.live(namespace, now);
        }
        found
    }

    /// Finds everything that a step of a decision on a run asked for. What was written to the run must be durable if a value of it
    /// is asked for.
    pub(crate) async fn find(
        &self,
        namespace: &Namespace,
        run_id: &RunId,
        now: Timestamp,
        lookups: Vec<Lookup>,
        found: &mut LookupResults,
    ) -> Result<()> {
        for lookup in lookups {
            match lookup {
                Lookup::Snapshot(hash) => {
                    let snapshot = self.snapshots.get(&*self.store, &hash).await?;
                    found.snapshots.insert(hash, snapshot);
                }
                Lookup::Value(reference) => {
                    let value = self.value(run_id, reference).await?;
                    found.values.insert(reference, value);
                }
                Lookup::Script(script) => {
                    let result = self.evaluator.0.evaluate(&script).await;
                    found.scripts.insert(script, result);
                }
                Lookup::Instance(workflow_id) => {
                    let instance = self.store.instance(namespace, &workflow_id).await?;
                    found.instances.insert(workflow_id, instance.is_some());
                }
                Lookup::Jq(program) => {
                    let results = self.evaluator.0.jq(&program).await;
                    found.jq.insert(program, results);
                }
                Lookup::Comparison(comparison) => {
                    let result = self.evaluator.0.compare(&comparison).await;
                    found.comparisons.insert(comparison, result);
                }
                Lookup::TaskDef(name) => {
                    let definition = self.task_def(namespace, &name).await?;
                    found.task_defs.insert(name, definition);
                }
                Lookup::Definition { name, version } => {
                    let snapshot = self.registered_snapshot(namespace, &name, version).await?;
                    let snapshot = snapshot.and_then(std::result::Result::ok);
                    found.definitions.insert((name, version), snapshot);
                }
                Lookup::KeyOwner(key) => {
                    let owner = self.key_owner(namespace, &key).await?;
                    found.key_owners.insert(key, owner);
                }
                Lookup::Output(key) => {
                    let output = self.reusable_output(namespace, &key, now).await?;
                    found.outputs.insert(key, output);
                }
                Lookup::Inline(text) => {
                    let snapshot = match serde_json::from_str(&text) {
                        Ok(definition) => self.snapshot_of(namespace, &definition).await?,
                        Err(error) => Err(format!(
                            "the definition of the sub-workflow is invalid: {error}"
                        )),
                    };
                    found.inline.insert(text, snapshot);
                }
            }
        }
        Ok(())
    }

    /// Returns the run that has an idempotency key of a workflow, and whether it is open.
    async fn key_owner(
        &self,
        namespace: &Namespace,
        key: &KeyOfWorkflow,
    ) -> Result<Option<KeyOwner>> {
        let owner = self.store.run_by_key(namespace, &key.name, &key.key);
        let Some(run_id) = owner.await? else {
            return Ok(None);
        };
        let run = self.store.run(&run_id).await?;
        let is_open = run.is_some_and(|run| run.core.closed.is_none());
        Ok(Some(KeyOwner { run_id, is_open }))
    }

    /// Returns a value that an event of a run contains.
    pub(crate) async fn value(&self, run_id: &RunId, reference: ValueRef) -> Result<Arc<Value>> {
        let ValueRef { event, member } = reference;
        let page = Page {
            events: 1,
            bytes: usize::MAX,
        };
        let before = HistorySeq::new(event.get().saturating_sub(1));
        let events = self.store.history(run_id, before, event, page).await?;
        let payload = events.first().map(|event| event.payload.as_str());
        let value = payload.and_then(|payload| member_of(payload, member));
        value.map(Arc::new).ok_or_else(|| {
            tracing::error!(%run_id, sequence = event.get(), ?member, "a stored value of a run is missing");
            Error::Internal
        })
    }
}

/// Returns a value that the payload of an event contains.
pub(super) fn member_of(payload: &str, member: EventMember) -> Option<Value> {
    let member = match member {
        EventMember::Input => "input",
        EventMember::Output => "output",
        EventMember::Variables => "variables",
    };
    let mut payload: Value = from_stored(payload).ok()?;
    payload.get_mut(member).map(Value::take)
}
