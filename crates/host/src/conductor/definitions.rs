//! Registered definitions of tasks and workflows. They are few and read often, so they are kept in memory by namespace; if other
//! servers write to the same store too, they are read each time.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use longhaul_engine::conductor::definition::{
    CompileError, Lookups, Snapshot, needed_sub_workflows, needed_task_defs,
};
use longhaul_engine::conductor::validate::{Rules, Violation, check_task_def, check_workflow_def};
use longhaul_protocol::conductor::{TaskDef, WorkflowDef};
use longhaul_protocol::id::Namespace;
use longhaul_store::{Expected, Store, TaskDefRow, WorkflowDefRow};
use parking_lot::RwLock;

use super::finder::Finder;
use super::refusal::ConductorRefusal;
use crate::error::Result;
use crate::views::Definitions;

/// The definitions of a namespace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Registered {
    pub(crate) tasks: BTreeMap<String, Arc<TaskDef>>,
    /// Versions by name.
    pub(crate) workflows: BTreeMap<String, BTreeMap<i32, Arc<WorkflowDef>>>,
}

/// Definitions by namespace.
#[derive(Default)]
pub(crate) struct DefinitionTable {
    known: RwLock<HashMap<Namespace, Arc<Registered>>>,
}

impl DefinitionTable {
    /// Returns the definitions of a namespace.
    pub(crate) async fn all(
        &self,
        store: &dyn Store,
        namespace: &Namespace,
    ) -> Result<Arc<Registered>> {
        if !store.is_shared()
            && let Some(known) = self.known.read().get(namespace)
        {
            return Ok(Arc::clone(known));
        }
        let mut read = Registered::default();
        for row in store.list::<TaskDefRow>(Some(namespace)).await? {
            read.tasks
                .insert(row.definition.name.clone(), row.definition);
        }
        for row in store.list::<WorkflowDefRow>(Some(namespace)).await? {
            let versions = read
                .workflows
                .entry(row.definition.name.clone())
                .or_default();
            versions.insert(row.definition.version, row.definition);
        }
        let read = Arc::new(read);
        self.known
            .write()
            .insert(namespace.clone(), Arc::clone(&read));
        Ok(read)
    }

    fn change(&self, namespace: &Namespace, change: impl FnOnce(&mut Registered)) {
        let mut known = self.known.write();
        if let Some(registered) = known.get_mut(namespace) {
            change(Arc::make_mut(registered));
        }
    }

    /// Returns a task definition.
    pub(crate) async fn task_def(
        &self,
        store: &dyn Store,
        namespace: &Namespace,
        name: &str,
    ) -> Result<Option<Arc<TaskDef>>> {
        Ok(self
            .all(store, namespace)
            .await?
            .tasks
            .get(name)
            .map(Arc::clone))
    }

    /// Returns a version of a workflow definition, or the newest.
    pub(crate) async fn workflow_def(
        &self,
        store: &dyn Store,
        namespace: &Namespace,
        name: &str,
        version: Option<i32>,
    ) -> Result<Option<Arc<WorkflowDef>>> {
        let all = self.all(store, namespace).await?;
        let versions = all.workflows.get(name);
        Ok(versions.and_then(|versions| match version {
            Some(version) => versions.get(&version).map(Arc::clone),
            None => versions
                .last_key_value()
                .map(|(_, newest)| Arc::clone(newest)),
        }))
    }
}

impl Finder {
    /// Returns the snapshot that a run of this definition begins with now, stored; or why no run can begin.
    pub(crate) async fn snapshot_of(
        &self,
        namespace: &Namespace,
        definition: &WorkflowDef,
    ) -> Result<std::result::Result<Arc<Snapshot>, String>> {
        let all = self.definitions.all(&*self.store, namespace).await?;
        let task_defs = needed_task_defs(definition)
            .into_iter()
            .filter_map(|name| Some((name.clone(), Arc::clone(all.tasks.get(&name)?))))
            .collect();
        let sub_workflows = needed_sub_workflows(definition)
            .into_iter()
            .filter_map(|name| {
                let newest = all.workflows.get(&name)?.last_key_value()?;
                Some((name, *newest.0))
            })
            .collect();
        let lookups = Lookups {
            task_defs,
            sub_workflows,
        };
        match Snapshot::compile(definition.clone(), &lookups) {
            Ok(snapshot) => Ok(Ok(self
                .snapshots
                .store(&*self.store, Arc::new(snapshot))
                .await?)),
            Err(error @ CompileError::NoSubWorkflow { .. }) => Ok(Err(error.to_string())),
            Err(error) => Ok(Err(error.to_string())),
        }
    }
}

impl Definitions<'_> {
    fn finder(&self) -> &Finder {
        &self.host.inner.executor.finder
    }

    async fn all(self, namespace: &Namespace) -> Result<Arc<Registered>> {
        let finder = &self.host.inner.executor.finder;
        finder.definitions.all(&*finder.store, namespace).await
    }

    /// Registers task definitions: all of them, or none if one is invalid.
    pub async fn put_tasks(self, namespace: &Namespace, definitions: Vec<TaskDef>) -> Result<()> {
        let rules = Rules::default();
        let mut violations = Vec::new();
        for (index, definition) in definitions.iter().enumerate() {
            for violation in check_task_def(definition, &rules) {
                violations.push(Violation {
                    path: format!("[{index}].{}", violation.path),
                    ..violation
                });
            }
        }
        if definitions.is_empty() {
            violations.push(Violation {
                path: String::new(),
                message: "the list of task definitions is empty".to_owned(),
                invalid_value: None,
            });
        }
        if !violations.is_empty() {
            return Err(ConductorRefusal::InvalidDefinition(violations).into());
        }
        let all = self.all(namespace).await?;
        let now = millis(self.host.now());
        for mut definition in definitions {
            match all.tasks.get(&definition.name) {
                Some(earlier) => {
                    definition.create_time = earlier.create_time;
                    definition.update_time = now;
                }
                None => definition.create_time = now,
            }
            let row = TaskDefRow {
                namespace: namespace.clone(),
                definition: Arc::new(definition),
            };
            self.host.inner.store.put(&row, Expected::Any).await?;
            self.finder().definitions.change(namespace, |registered| {
                let name = row.definition.name.clone();
                registered.tasks.insert(name, row.definition);
            });
        }
        Ok(())
    }

    /// Returns a task definition.
    pub async fn task(self, namespace: &Namespace, name: &str) -> Result<Option<Arc<TaskDef>>> {
        Ok(self.all(namespace).await?.tasks.get(name).map(Arc::clone))
    }

    /// Returns every task definition.
    pub async fn tasks(self, namespace: &Namespace) -> Result<Vec<Arc<TaskDef>>> {
        Ok(self
            .all(namespace)
            .await?
            .tasks
            .values()
            .map(Arc::clone)
            .collect())
    }

    /// Removes a task definition. Returns whether there was one.
    pub async fn delete_task(self, namespace: &Namespace, name: &str) -> Result<bool> {
        let removed = self
            .host
            .inner
            .store
            .delete::<TaskDefRow>(namespace, name)
            .await?;
        self.finder().definitions.change(namespace, |registered| {
            registered.tasks.remove(name);
        });
        Ok(removed)
    }

    /// Checks workflow definitions, and the syntax of their scripts.
    pub async fn check(self, namespace: &Namespace, definitions: &[WorkflowDef]) -> Result<()> {
        let all = self.all(namespace).await?;
        let rules = Rules {
            task_defs: Some(&all.tasks),
            ..Rules::default()
        };
        let mut violations = Vec::new();
        for definition in definitions {
            let checked = check_workflow_def(definition, &rules);
            violations.extend(checked.violations);
            for script in checked.scripts {
                let checked = self.finder().evaluator.0.check_syntax(&script.source).await;
                if let Err(message) = checked {
                    violations.push(Violation {
                        path: script.path,
                        message,
                        invalid_value: Some(script.source),
                    });
                }
            }
        }
        if violations.is_empty() {
            Ok(())
        } else {
            Err(ConductorRefusal::InvalidDefinition(violations).into())
        }
    }

    /// Registers versions of workflows. Without `overwrite`, a version that exists is refused and nothing is stored.
    pub async fn put_workflows(
        self,
        namespace: &Namespace,
        definitions: Vec<WorkflowDef>,
        existing: Existing,
    ) -> Result<()> {
        self.check(namespace, &definitions).await?;
        let all = self.all(namespace).await?;
        let earlier = |definition: &WorkflowDef| {
            all.workflows
                .get(&definition.name)
                .and_then(|versions| versions.get(&definition.version))
        };
        if existing == Existing::Refuse
            && let Some(taken) = definitions
                .iter()
                .find(|definition| earlier(definition).is_some())
        {
            return Err(ConductorRefusal::DefinitionExists {
                name: taken.name.clone(),
                version: taken.version,
            }
            .into());
        }
        let now = millis(self.host.now());
        for mut definition in definitions {
            match earlier(&definition) {
                Some(earlier) => {
                    definition.create_time = earlier.create_time;
                    definition.update_time = now;
                }
                None => definition.create_time = now,
            }
            let row = WorkflowDefRow {
                namespace: namespace.clone(),
                definition: Arc::new(definition),
            };
            self.host.inner.store.put(&row, Expected::Any).await?;
            self.finder().definitions.change(namespace, |registered| {
                let name = row.definition.name.clone();
                let versions = registered.workflows.entry(name).or_default();
                versions.insert(row.definition.version, row.definition);
            });
        }
        Ok(())
    }

    /// Returns a version of a workflow, or the newest.
    pub async fn workflow(
        self,
        namespace: &Namespace,
        name: &str,
        version: Option<i32>,
    ) -> Result<Option<Arc<WorkflowDef>>> {
        let finder = &self.host.inner.executor.finder;
        finder
            .definitions
            .workflow_def(&*finder.store, namespace, name, version)
            .await
    }

    /// Returns every version of every workflow.
    pub async fn workflows(self, namespace: &Namespace) -> Result<Vec<Arc<WorkflowDef>>> {
        let all = self.all(namespace).await?;
        Ok(all
            .workflows
            .values()
            .flat_map(BTreeMap::values)
            .map(Arc::clone)
            .collect())
    }

    /// Removes a version of a workflow. Returns whether there was one. Runs keep their definition.
    pub async fn delete_workflow(
        self,
        namespace: &Namespace,
        name: &str,
        version: i32,
    ) -> Result<bool> {
        let qualifier = WorkflowDefRow::qualifier(version);
        let store = &self.host.inner.store;
        let removed = store
            .delete_qualified::<WorkflowDefRow>(namespace, name, &qualifier)
            .await?;
        self.finder().definitions.change(namespace, |registered| {
            if let Some(versions) = registered.workflows.get_mut(name) {
                versions.remove(&version);
                if versions.is_empty() {
                    registered.workflows.remove(name);
                }
            }
        });
        Ok(removed)
    }
}

/// What a registration does to a version that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    Replace,
    Refuse,
}

fn millis(time: longhaul_protocol::Timestamp) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
