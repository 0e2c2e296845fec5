//! Registered definitions of tasks and workflows. They are few and read often, so they are kept in memory by namespace. If other servers
//! write to the same store too, one small read tells whether the copy is current: a stamp that each change writes again.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use longhaul_engine::conductor::definition::{
    Lookups, SchemaKey, Schemas, Snapshot, needed_schemas, needed_sub_workflows, needed_task_defs,
    needed_task_schemas, with_schemas,
};
use longhaul_engine::conductor::validate::{Rules, Violation, check_task_def, check_workflow_def};
use longhaul_protocol::Timestamp;
use longhaul_protocol::conductor::{TaskDef, WorkflowDef};
use longhaul_protocol::id::Namespace;
use longhaul_store::{
    DefinitionStampRow, DocumentKey, SchemaRow, Store, TaskDefRow, WorkflowDefRow, document,
};
use parking_lot::RwLock;
use tokio::sync::{Mutex, MutexGuard};

use super::finder::Finder;
use super::refusal::ConductorRefusal;
use crate::Host;
use crate::error::{Error, Result};
use crate::views::Definitions;

/// The definitions of a namespace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Registered {
    pub(crate) tasks: BTreeMap<String, Arc<TaskDef>>,
    /// Versions by name.
    pub(crate) workflows: BTreeMap<String, BTreeMap<i32, Arc<WorkflowDef>>>,
    compiled: Compiled,
    /// The version of the stamp before they were read, if other servers write too.
    stamp: Option<u64>,
}

/// Snapshots of registered versions. They depend on all definitions of the namespace, so each change of one drops them.
#[derive(Debug, Default)]
struct Compiled(RwLock<HashMap<(String, i32), Arc<Snapshot>>>);

/// Snapshots that are kept for starts. Above this all are dropped.
const COMPILED_MAX: usize = 1000;

impl Clone for Compiled {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Compiled {
    fn get(&self, name: &str, version: i32) -> Option<Arc<Snapshot>> {
        let known = self.0.read();
        known.get(&(name.to_owned(), version)).map(Arc::clone)
    }

    fn keep(&self, name: &str, version: i32, snapshot: &Arc<Snapshot>) {
        let mut known = self.0.write();
        if known.len() >= COMPILED_MAX {
            known.clear();
        }
        known.insert((name.to_owned(), version), Arc::clone(snapshot));
    }
}

/// Definitions by namespace.
#[derive(Default)]
pub(crate) struct DefinitionTable {
    known: RwLock<HashMap<Namespace, Arc<Registered>>>,
    /// Held while definitions are read from the store or written, so that the copy is never older than the stored rows.
    changing: Mutex<()>,
}

impl DefinitionTable {
    /// Returns the definitions of a namespace.
    pub(crate) async fn all(
        &self,
        store: &dyn Store,
        namespace: &Namespace,
    ) -> Result<Arc<Registered>> {
        if let Ok(known) = self.copy(store, namespace).await? {
            return Ok(known);
        }
        let _changing = self.changing.lock().await;
        self.load(store, namespace).await
    }

    /// Returns the copy if it is current, or else the stamp to read with.
    async fn copy(
        &self,
        store: &dyn Store,
        namespace: &Namespace,
    ) -> Result<std::result::Result<Arc<Registered>, Option<u64>>> {
        let known = self.known.read().get(namespace).map(Arc::clone);
        let stamp = if store.shared().is_some() {
            let stored = store.document(&stamp_key(namespace)).await?;
            stored.map(|document| document.version)
        } else {
            None
        };
        Ok(known.filter(|known| known.stamp == stamp).ok_or(stamp))
    }

    /// Returns the definitions of a namespace while the table is locked.
    async fn load(&self, store: &dyn Store, namespace: &Namespace) -> Result<Arc<Registered>> {
        let stamp = match self.copy(store, namespace).await? {
            Ok(known) => return Ok(known),
            Err(stamp) => stamp,
        };
        let mut read = Registered {
            stamp,
            ..Registered::default()
        };
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

    /// Begins a change of the definitions of a namespace, or of what their snapshots contain.
    pub(super) async fn change(
        &self,
        store: &dyn Store,
        namespace: &Namespace,
    ) -> Result<Change<'_>> {
        let changing = self.changing.lock().await;
        let before = self.load(store, namespace).await?;
        Ok(Change {
            table: self,
            namespace: namespace.clone(),
            after: Registered::clone(&before),
            progress: Progress::NothingWritten,
            _changing: changing,
        })
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
        Ok(all.version(name, version).map(Arc::clone))
    }
}

fn stamp_key(namespace: &Namespace) -> DocumentKey {
    document::key::<DefinitionStampRow>(namespace.as_str(), "", "")
}

/// A change of the definitions of a namespace. Readers have them as they were before until it is finished. If it is dropped while it is
/// written, what was stored is not known, and the next reader reads the store.
pub(super) struct Change<'a> {
    table: &'a DefinitionTable,
    namespace: Namespace,
    after: Registered,
    progress: Progress,
    _changing: MutexGuard<'a, ()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    NothingWritten,
    Writing,
    Stored,
}

impl Change<'_> {
    /// Must be called before the first row is written.
    pub(super) fn begin_writing(&mut self) {
        self.progress = Progress::Writing;
    }

    /// Shows the change to readers: everything is stored. If other servers write too, the stamp tells them, and this server reads
    /// again what all of them wrote.
    pub(super) async fn finish(mut self, store: &dyn Store, now: Timestamp) -> Result<()> {
        if store.shared().is_none() {
            self.progress = Progress::Stored;
            return Ok(());
        }
        let namespace = self.namespace.clone();
        let stamp = |_| {
            Ok::<_, Error>(Some(DefinitionStampRow {
                namespace: namespace.clone(),
            }))
        };
        store.change(stamp_key(&namespace), now, stamp).await?;
        Ok(())
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        let mut known = self.table.known.write();
        match self.progress {
            Progress::NothingWritten => {}
            Progress::Writing => drop(known.remove(&self.namespace)),
            Progress::Stored => {
                let after = Arc::new(std::mem::take(&mut self.after));
                known.insert(self.namespace.clone(), after);
            }
        }
    }
}

impl Registered {
    /// Returns a version of a workflow definition, or the newest.
    fn version(&self, name: &str, version: Option<i32>) -> Option<&Arc<WorkflowDef>> {
        let versions = self.workflows.get(name)?;
        match version {
            Some(version) => versions.get(&version),
            None => versions.last_key_value().map(|(_, newest)| newest),
        }
    }
}

impl Finder {
    /// Returns the snapshot that a run of this registered definition begins with now, stored; or why no run can begin. `None` if
    /// it is not registered.
    pub(crate) async fn registered_snapshot(
        &self,
        namespace: &Namespace,
        name: &str,
        version: Option<i32>,
    ) -> Result<Option<std::result::Result<Arc<Snapshot>, String>>> {
        let all = self.definitions.all(&*self.store, namespace).await?;
        let Some(definition) = all.version(name, version) else {
            return Ok(None);
        };
        if let Some(compiled) = all.compiled.get(name, definition.version) {
            return Ok(Some(Ok(compiled)));
        }
        let snapshot = self.snapshot_of(namespace, definition).await?;
        if let Ok(snapshot) = &snapshot {
            all.compiled.keep(name, definition.version, snapshot);
        }
        Ok(Some(snapshot))
    }

    /// Returns the snapshot that a run of this definition begins with now, stored; or why no run can begin.
    pub(crate) async fn snapshot_of(
        &self,
        namespace: &Namespace,
        definition: &WorkflowDef,
    ) -> Result<std::result::Result<Arc<Snapshot>, String>> {
        Ok(match self.compiled(namespace, definition).await? {
            Ok(snapshot) => Ok(self
                .snapshots
                .store(&*self.store, Arc::new(snapshot))
                .await?),
            Err(why) => Err(why),
        })
    }

    /// As [`Self::snapshot_of`], without storing it.
    pub(crate) async fn compiled(
        &self,
        namespace: &Namespace,
        definition: &WorkflowDef,
    ) -> Result<std::result::Result<Snapshot, String>> {
        let all = self.definitions.all(&*self.store, namespace).await?;
        let task_defs: BTreeMap<String, Arc<TaskDef>> = needed_task_defs(definition)
            .into_iter()
            .filter_map(|name| Some((name.clone(), Arc::clone(all.tasks.get(&name)?))))
            .collect();
        let needed = needed_schemas(definition, &task_defs);
        let schemas = self.schemas(namespace, needed).await?;
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
            schemas,
        };
        let compiled = Snapshot::compile(definition.clone(), &lookups);
        Ok(compiled.map_err(|error| error.to_string()))
    }

    /// Returns a task definition with the schemas that it enforces.
    pub(crate) async fn task_def(
        &self,
        namespace: &Namespace,
        name: &str,
    ) -> Result<Option<Arc<TaskDef>>> {
        let found = self.definitions.task_def(&*self.store, namespace, name);
        let Some(definition) = found.await? else {
            return Ok(None);
        };
        let needed = needed_task_schemas(&definition);
        let schemas = self.schemas(namespace, needed).await?;
        Ok(Some(with_schemas(&definition, &schemas)))
    }

    /// Returns the content of registered schemas. One that is not registered is not enforced.
    async fn schemas(
        &self,
        namespace: &Namespace,
        keys: impl IntoIterator<Item = SchemaKey>,
    ) -> Result<Schemas> {
        let mut schemas = Schemas::new();
        for (name, version) in keys {
            let qualifier = SchemaRow::qualifier(version);
            let row = self
                .store
                .get_qualified::<SchemaRow>(namespace, &name, &qualifier)
                .await?;
            match row.and_then(|row| row.schema.data) {
                Some(data) => drop(schemas.insert((name, version), data)),
                None => tracing::warn!(
                    %namespace, schema = name, version,
                    "a definition enforces a schema that is not registered, so it is not enforced"
                ),
            }
        }
        Ok(schemas)
    }
}

impl<'h> Definitions<'h> {
    /// Begins a change of the definitions of a namespace.
    pub(super) async fn change(self, namespace: &Namespace) -> Result<Change<'h>> {
        let finder = &self.host.inner.executor.finder;
        finder.definitions.change(&*finder.store, namespace).await
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
                let path = match violation.path.as_str() {
                    "" => format!("[{index}]"),
                    path => format!("[{index}].{path}"),
                };
                violations.push(Violation { path, ..violation });
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
        let namespace = namespace.clone();
        let write = |host: Host| async move {
            let write = host.definitions().write_tasks(&namespace, definitions);
            write.await
        };
        self.host.to_the_end(write).await
    }

    async fn write_tasks(self, namespace: &Namespace, definitions: Vec<TaskDef>) -> Result<()> {
        let mut change = self.change(namespace).await?;
        change.begin_writing();
        let now = self.host.now();
        let key = |definition: &TaskDef| {
            document::key::<TaskDefRow>(namespace.as_str(), &definition.name, "")
        };
        let register = |place: usize, earlier: Option<TaskDefRow>| {
            let mut definition = definitions[place].clone();
            match earlier.map(|row| row.definition) {
                Some(earlier) => {
                    definition.create_time = earlier.create_time;
                    definition.update_time = millis(now);
                    let creator = earlier.created_by.clone();
                    definition.created_by = creator.or(definition.created_by);
                }
                None => definition.create_time = millis(now),
            }
            definition.created_by.get_or_insert_default();
            Ok::<_, Error>(Some(TaskDefRow {
                namespace: namespace.clone(),
                definition: Arc::new(definition),
            }))
        };
        let keys = definitions.iter().map(key).collect();
        let stored = self.host.inner.store.change_all(keys, now, register);
        for row in stored.await?.into_values().flatten() {
            let name = row.definition.name.clone();
            change.after.tasks.insert(name, row.definition);
        }
        change
            .finish(&*self.host.inner.store, self.host.now())
            .await?;
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
        let (namespace, name) = (namespace.clone(), name.to_owned());
        let delete = |host: Host| async move {
            let delete = host.definitions().erase_task(&namespace, &name);
            delete.await
        };
        self.host.to_the_end(delete).await
    }

    async fn erase_task(self, namespace: &Namespace, name: &str) -> Result<bool> {
        let mut change = self.change(namespace).await?;
        change.begin_writing();
        let store = &self.host.inner.store;
        let key = document::key::<TaskDefRow>(namespace.as_str(), name, "");
        let removed = store.delete::<TaskDefRow>(key, self.host.now()).await?;
        change.after.tasks.remove(name);
        change
            .finish(&*self.host.inner.store, self.host.now())
            .await?;
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
        for (index, definition) in definitions.iter().enumerate() {
            let before = violations.len();
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
            if definitions.len() > 1 {
                for violation in &mut violations[before..] {
                    violation.path = format!("[{index}].{}", violation.path);
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
        let namespace = namespace.clone();
        let write = |host: Host| async move {
            let write = host
                .definitions()
                .write_workflows(&namespace, definitions, existing);
            write.await
        };
        self.host.to_the_end(write).await
    }

    async fn write_workflows(
        self,
        namespace: &Namespace,
        definitions: Vec<WorkflowDef>,
        existing: Existing,
    ) -> Result<()> {
        let mut change = self.change(namespace).await?;
        change.begin_writing();
        let now = self.host.now();
        let key = |definition: &WorkflowDef| {
            let qualifier = WorkflowDefRow::qualifier(definition.version);
            document::key::<WorkflowDefRow>(namespace.as_str(), &definition.name, &qualifier)
        };
        let keys: Vec<DocumentKey> = definitions.iter().map(key).collect();
        let register = |place: usize, earlier: Option<WorkflowDefRow>| {
            let mut definition = definitions[place].clone();
            let is_first = !keys[..place].contains(&keys[place]);
            match earlier.map(|row| row.definition) {
                Some(_) if existing == Existing::Refuse && is_first => {
                    return Err(Error::from(ConductorRefusal::DefinitionExists {
                        name: definition.name,
                        version: definition.version,
                    }));
                }
                Some(earlier) => {
                    definition.create_time = earlier.create_time;
                    definition.update_time = millis(now);
                }
                None => definition.create_time = millis(now),
            }
            Ok(Some(WorkflowDefRow {
                namespace: namespace.clone(),
                definition: Arc::new(definition),
            }))
        };
        let stored = self
            .host
            .inner
            .store
            .change_all(keys.clone(), now, register);
        for row in stored.await?.into_values().flatten() {
            let name = row.definition.name.clone();
            let versions = change.after.workflows.entry(name).or_default();
            versions.insert(row.definition.version, row.definition);
        }
        change
            .finish(&*self.host.inner.store, self.host.now())
            .await?;
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
        let (namespace, name) = (namespace.clone(), name.to_owned());
        let delete = |host: Host| async move {
            let delete = host
                .definitions()
                .erase_workflow(&namespace, &name, version);
            delete.await
        };
        self.host.to_the_end(delete).await
    }

    async fn erase_workflow(self, namespace: &Namespace, name: &str, version: i32) -> Result<bool> {
        let mut change = self.change(namespace).await?;
        change.begin_writing();
        let qualifier = WorkflowDefRow::qualifier(version);
        let store = &self.host.inner.store;
        let key = document::key::<WorkflowDefRow>(namespace.as_str(), name, &qualifier);
        let removed = store.delete::<WorkflowDefRow>(key, self.host.now()).await?;
        let workflows = &mut change.after.workflows;
        if let Some(versions) = workflows.get_mut(name) {
            versions.remove(&version);
            if versions.is_empty() {
                workflows.remove(name);
            }
        }
        change
            .finish(&*self.host.inner.store, self.host.now())
            .await?;
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
