//! The checks of a batch. Everything that its commits are based on is read and locked first, in one round trip; then each commit is
//! checked in order, on what is stored and what the commits before it write.
//!
//! Nothing here waits for another server. A row that another transaction holds is skipped, so its commit is refused as if the other
//! one had come first, which it will. Names that no row exists for yet (workflow ids, keys, request ids, new sessions and documents)
//! are locked by their hash; a lock that is taken is a conflict too. So two servers cannot wait for each other.

use std::collections::{HashMap, HashSet};

use futures::try_join;
use longhaul_engine::change::{CapScope, DocumentChange, DocumentKey, InstanceChange, RunChange};
use longhaul_engine::session::Session;
use tokio_postgres::Error as PostgresError;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::Commit;
use crate::Error;
use crate::encode::{closed_at, list_status};
use crate::postgres::connect::Connected;
use crate::postgres::read::text;
use crate::postgres::text::{escaped, unescaped};

/// A run, as the checks need it.
#[derive(Clone, Debug)]
pub(super) struct StoredRun {
    pub(super) version: u64,
    pub(super) list_status: String,
    pub(super) closed_at: Option<i64>,
    pub(super) alarm: Option<i64>,
}

/// A workflow id in a namespace.
type Workflow = (String, String);

/// A request id of a workflow: namespace, workflow id, request id. Also an idempotency key: namespace, workflow type, key.
type Name = (String, String, String);

/// What is stored of everything that a batch is based on, and what its commits have written so far.
#[derive(Default)]
pub(super) struct Known {
    /// Locked runs.
    runs: HashMap<String, StoredRun>,
    /// Runs that exist, of those that the batch creates.
    existing: HashSet<String>,
    /// The newest number of each workflow.
    newest: HashMap<Workflow, i64>,
    /// The run and the number of the command of each request id.
    requests: HashMap<Name, (String, i64)>,
    /// The run of each key.
    keys: HashMap<Name, String>,
    /// Versions of locked sessions.
    sessions: HashMap<(String, String), u64>,
    /// Versions of locked documents.
    documents: HashMap<DocumentKey, u64>,
    /// What counts in each scope with a cap.
    counted: HashMap<CapScope, Counted>,
    /// Locks that another transaction holds.
    taken: HashSet<i64>,
}

/// What counts in a scope.
#[derive(Default)]
struct Counted {
    /// Tasks and sessions that this batch does not write.
    others: u64,
    /// Those that it writes, by id.
    own: HashSet<String>,
}

/// Returns the number of the lock of a name. All servers must agree on it, also those of another release, so the hash is written
/// here: FNV-1a, with a byte between the parts that no text has. Names that share a number only exclude each other.
fn lock_of(parts: &[&str]) -> i64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0xff]));
    let hash = bytes.fold(OFFSET, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(PRIME)
    });
    hash.cast_signed()
}

fn workflow_of(change: &RunChange) -> Workflow {
    let spec = &change.spec;
    (spec.namespace.to_string(), spec.workflow_id.to_string())
}

fn workflow_lock(change: &RunChange) -> i64 {
    let spec = &change.spec;
    lock_of(&[
        "workflow",
        spec.namespace.as_str(),
        spec.workflow_id.as_str(),
    ])
}

fn key_of(change: &RunChange) -> Option<Name> {
    let claim = change.key_claim.as_ref()?;
    let spec = &change.spec;
    Some((
        spec.namespace.to_string(),
        spec.workflow_type.clone(),
        claim.key.clone(),
    ))
}

fn key_lock(change: &RunChange) -> Option<i64> {
    let (namespace, workflow_type, key) = key_of(change)?;
    Some(lock_of(&["key", &namespace, &workflow_type, &key]))
}

fn session_lock(session: &Session) -> i64 {
    let (namespace, id) = (session.namespace.as_str(), session.session_id.as_str());
    lock_of(&["session", namespace, id])
}

fn document_lock(key: &DocumentKey) -> i64 {
    let kind = key.kind.as_str();
    lock_of(&["document", kind, &key.namespace, &key.name, &key.qualifier])
}

/// Updates the tasks and sessions of a scope by what a commit writes.
fn count_own(scope: &CapScope, commit: &Commit, own: &mut HashSet<String>) {
    let tasks = commit.changes.runs().flat_map(|change| &change.tasks);
    for task in tasks {
        if scope.has_task(task) {
            own.insert(task.task_id.to_string());
        } else {
            own.remove(task.task_id.as_str());
        }
    }
    let CapScope::WorkerSessions(namespace, _) = scope else {
        return;
    };
    let sessions = commit.changes.sessions.iter();
    for session in sessions.filter(|session| session.namespace == *namespace) {
        if scope.has_session(session) {
            own.insert(session.session_id.to_string());
        } else {
            own.remove(session.session_id.as_str());
        }
    }
}

/// Returns the kind of a scope in statements, its namespace, and its further names.
fn scope_parts(scope: &CapScope) -> (&'static str, &str, &str, &str) {
    match scope {
        CapScope::Queue(namespace, kind, queue) => {
            ("queue", namespace.as_str(), kind.as_str(), queue.as_str())
        }
        CapScope::Namespace(namespace, kind) => {
            ("namespace", namespace.as_str(), kind.as_str(), "")
        }
        CapScope::TaskDef(namespace, name) => ("task_def", namespace.as_str(), name, ""),
        CapScope::WorkerSessions(namespace, worker_id) => {
            ("sessions", namespace.as_str(), worker_id.as_str(), "")
        }
    }
}

fn cap_lock(scope: &CapScope) -> i64 {
    let (kind, namespace, one, two) = scope_parts(scope);
    lock_of(&["cap", kind, namespace, one, two])
}

/// Whether a change writes names of its workflow: a new run, or commands with request ids.
fn writes_names(change: &RunChange) -> bool {
    change.instance.is_some()
        || change
            .commands
            .iter()
            .any(|command| command.request_id.is_some())
        || !change.deleted_commands.is_empty()
}

/// Returns the locks that a commit needs.
fn locks(commit: &Commit) -> impl Iterator<Item = i64> {
    let changes = &commit.changes;
    let names = changes.runs().filter(|change| writes_names(change));
    let names = names.map(workflow_lock);
    let keys = changes.runs().filter_map(key_lock);
    let sessions = changes.sessions.iter();
    let sessions = sessions
        .filter(|session| session.version == 1)
        .map(session_lock);
    let documents = changes.documents.iter();
    let documents = documents.filter(|change| change.base_version.is_none());
    let documents = documents.map(|change| document_lock(&change.key));
    let caps = changes.caps().iter().map(|cap| cap_lock(&cap.scope));
    names
        .chain(keys)
        .chain(sessions)
        .chain(documents)
        .chain(caps)
}

impl Known {
    /// Reads and locks everything that these commits are based on. The client is in a transaction. The inner error is a stored row
    /// that cannot be read.
    pub(super) async fn read(
        client: &Connected,
        batch: &[&Commit],
    ) -> Result<Result<Self, Error>, PostgresError> {
        let changes = || batch.iter().flat_map(|commit| commit.changes.runs());
        let mut locks: Vec<i64> = batch.iter().flat_map(|commit| locks(commit)).collect();
        locks.sort_unstable();
        locks.dedup();
        let based = changes().filter(|change| change.base_version.is_some());
        let based: Vec<_> = based
            .map(|change| escaped(change.spec.run_id.as_str()))
            .collect();
        let created = changes().filter(|change| change.base_version.is_none());
        let created: Vec<_> = created
            .map(|change| escaped(change.spec.run_id.as_str()))
            .collect();
        let instances = changes().filter(|change| change.instance.is_some());
        let (instance_spaces, instance_ids): (Vec<_>, Vec<_>) = instances
            .map(|change| {
                let spec = &change.spec;
                (
                    escaped(spec.namespace.as_str()),
                    escaped(spec.workflow_id.as_str()),
                )
            })
            .unzip();
        let mut requests = (Vec::new(), Vec::new(), Vec::new());
        for change in changes() {
            for request_id in change
                .commands
                .iter()
                .filter_map(|command| command.request_id.as_deref())
            {
                requests.0.push(escaped(change.spec.namespace.as_str()));
                requests.1.push(escaped(change.spec.workflow_id.as_str()));
                requests.2.push(escaped(request_id));
            }
        }
        let mut keys = (Vec::new(), Vec::new(), Vec::new());
        for change in changes() {
            if let Some(claim) = &change.key_claim {
                keys.0.push(escaped(change.spec.namespace.as_str()));
                keys.1.push(escaped(&change.spec.workflow_type));
                keys.2.push(escaped(&claim.key));
            }
        }
        let sessions = || batch.iter().flat_map(|commit| &commit.changes.sessions);
        let (session_spaces, session_ids): (Vec<_>, Vec<_>) = sessions()
            .map(|session| {
                (
                    escaped(session.namespace.as_str()),
                    escaped(session.session_id.as_str()),
                )
            })
            .unzip();
        let documents = || batch.iter().flat_map(|commit| &commit.changes.documents);
        let mut document_keys = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for DocumentChange { key, .. } in documents() {
            document_keys.0.push(key.kind.as_str());
            document_keys.1.push(escaped(&key.namespace));
            document_keys.2.push(escaped(&key.name));
            document_keys.3.push(escaped(&key.qualifier));
        }

        let mut scopes: Vec<&CapScope> = batch
            .iter()
            .flat_map(|commit| commit.changes.caps().iter().map(|cap| &cap.scope))
            .collect();
        scopes.sort_unstable();
        scopes.dedup();
        let parts = scopes.iter().map(|scope| scope_parts(scope));
        let mut scope_columns = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (kind, namespace, one, two) in parts {
            scope_columns.0.push(kind);
            scope_columns.1.push(escaped(namespace));
            scope_columns.2.push(escaped(one));
            scope_columns.3.push(escaped(two));
        }
        let written_tasks: Vec<_> = changes()
            .flat_map(|change| &change.tasks)
            .map(|task| escaped(task.task_id.as_str()))
            .filter(|_| !scopes.is_empty())
            .collect();

        // One round trip: all statements are sent before the first answer is read. The locks come first.
        let locking = ask(client, !locks.is_empty(), LOCK, vec![&locks]);
        let running = ask(client, !based.is_empty(), LOCK_RUNS, vec![&based]);
        let existing = ask(client, !created.is_empty(), FIND_RUNS, vec![&created]);
        let newest = ask(
            client,
            !instance_ids.is_empty(),
            FIND_NEWEST,
            vec![&instance_spaces, &instance_ids],
        );
        let requested = ask(
            client,
            !requests.0.is_empty(),
            FIND_REQUESTS,
            vec![&requests.0, &requests.1, &requests.2],
        );
        let keyed = ask(
            client,
            !keys.0.is_empty(),
            FIND_KEYS,
            vec![&keys.0, &keys.1, &keys.2],
        );
        let held = ask(
            client,
            !session_ids.is_empty(),
            LOCK_SESSIONS,
            vec![&session_spaces, &session_ids],
        );
        let written = ask(
            client,
            !document_keys.0.is_empty(),
            LOCK_DOCUMENTS,
            vec![
                &document_keys.0,
                &document_keys.1,
                &document_keys.2,
                &document_keys.3,
            ],
        );
        let counting = ask(
            client,
            !scopes.is_empty(),
            COUNT,
            vec![
                &scope_columns.0,
                &scope_columns.1,
                &scope_columns.2,
                &scope_columns.3,
                &written_tasks,
                &session_ids,
            ],
        );
        let (locking, running, existing, newest, requested, keyed, held, written, counting) = try_join!(
            locking, running, existing, newest, requested, keyed, held, written, counting
        )?;
        let answers = (
            locking, running, existing, newest, requested, keyed, held, written,
        );
        let stored = documents().map(|change| &change.key);
        Ok(Self::of(&answers, stored).and_then(|mut known| {
            known.keep_counts(&scopes, &counting)?;
            Ok(known)
        }))
    }

    fn of<'k>(
        answers: &Answers,
        documents: impl Iterator<Item = &'k DocumentKey>,
    ) -> Result<Self, Error> {
        let mut known = Self::default();
        known.keep(answers)?;
        known.keep_documents(documents, &answers.7)?;
        Ok(known)
    }

    fn keep(&mut self, answers: &Answers) -> Result<(), Error> {
        let (locking, running, existing, newest, requested, keyed, held, _) = answers;
        for row in locking {
            if !row.try_get::<_, bool>(1)? {
                self.taken.insert(row.try_get(0)?);
            }
        }
        for row in running {
            let run = StoredRun {
                version: row.try_get::<_, i64>(1)?.cast_unsigned(),
                list_status: row.try_get(2)?,
                closed_at: row.try_get(3)?,
                alarm: row.try_get(4)?,
            };
            self.runs.insert(text(row, 0)?, run);
        }
        for row in existing {
            self.existing.insert(text(row, 0)?);
        }
        for row in newest {
            let workflow = (text(row, 0)?, text(row, 1)?);
            self.newest.insert(workflow, row.try_get(2)?);
        }
        for row in requested {
            let name = (text(row, 0)?, text(row, 1)?, text(row, 2)?);
            self.requests.insert(name, (text(row, 3)?, row.try_get(4)?));
        }
        for row in keyed {
            let name = (text(row, 0)?, text(row, 1)?, text(row, 2)?);
            self.keys.insert(name, text(row, 3)?);
        }
        for row in held {
            let version = row.try_get::<_, i64>(2)?.cast_unsigned();
            self.sessions
                .insert((text(row, 0)?, text(row, 1)?), version);
        }
        Ok(())
    }

    fn keep_counts(&mut self, scopes: &[&CapScope], rows: &[Row]) -> Result<(), Error> {
        for (scope, row) in scopes.iter().zip(rows) {
            let others = row.try_get::<_, i64>(1)?.cast_unsigned();
            let own: Vec<String> = row.try_get(2)?;
            let counted = Counted {
                others,
                own: own.into_iter().map(unescaped).collect(),
            };
            self.counted.insert((*scope).clone(), counted);
        }
        Ok(())
    }

    /// Returns a cap of the commit that does not hold after it.
    fn exceeded(&self, commit: &Commit) -> Option<&CapScope> {
        let changes = &commit.changes;
        let exceeded = changes.caps().iter().find(|cap| {
            let Some(counted) = self.counted.get(&cap.scope) else {
                return true;
            };
            let mut own = counted.own.clone();
            count_own(&cap.scope, commit, &mut own);
            counted.others + own.len() as u64 > cap.max
        });
        let scope = &exceeded?.scope;
        self.counted.get_key_value(scope).map(|(scope, _)| scope)
    }

    fn keep_documents<'k>(
        &mut self,
        keys: impl Iterator<Item = &'k DocumentKey>,
        rows: &[Row],
    ) -> Result<(), Error> {
        let mut versions = HashMap::new();
        for row in rows {
            let key = (text(row, 0)?, text(row, 1)?, text(row, 2)?, text(row, 3)?);
            versions.insert(key, row.try_get::<_, i64>(4)?.cast_unsigned());
        }
        for key in keys {
            let found = versions.get(&(
                key.kind.as_str().to_owned(),
                key.namespace.clone(),
                key.name.clone(),
                key.qualifier.clone(),
            ));
            self.documents
                .extend(found.map(|version| (key.clone(), *version)));
        }
        Ok(())
    }

    /// Returns the run as it is stored or as a commit of this batch wrote it. `None` if it is new.
    pub(super) fn run(&self, change: &RunChange) -> Option<&StoredRun> {
        self.runs.get(change.spec.run_id.as_str())
    }

    /// Checks one commit. If it is refused, nothing of it counts.
    pub(super) fn check(&self, commit: &Commit) -> Result<(), Error> {
        let is_free = |lock: i64| !self.taken.contains(&lock);
        let is_accepted = locks(commit).all(is_free)
            && commit.changes.runs().all(|change| self.accepts(change))
            && commit.changes.sessions.iter().all(|session| {
                let key = (
                    session.namespace.to_string(),
                    session.session_id.to_string(),
                );
                self.sessions.get(&key).copied().unwrap_or(0) + 1 == session.version
            })
            && commit
                .changes
                .documents
                .iter()
                .all(|change| self.documents.get(&change.key).copied() == change.base_version);
        if !is_accepted {
            return Err(Error::Conflict);
        }
        match self.exceeded(commit) {
            Some(scope) => Err(Error::CapReached(Box::new(scope.clone()))),
            None => Ok(()),
        }
    }

    fn accepts(&self, change: &RunChange) -> bool {
        let run_id = change.spec.run_id.as_str();
        let stored = self.runs.get(run_id).map(|run| run.version);
        if stored != change.base_version || (stored.is_none() && self.existing.contains(run_id)) {
            return false;
        }
        let newest = self.newest.get(&workflow_of(change)).copied();
        let follows = match change.instance {
            None => true,
            Some(InstanceChange::Create) => newest.is_none(),
            Some(InstanceChange::MoveCurrent { run_number }) => {
                newest.is_some_and(|newest| newest.cast_unsigned() + 1 == run_number)
            }
        };
        let owner = key_of(change).and_then(|key| self.keys.get(&key));
        let claims = change.key_claim.as_ref().is_none_or(|claim| {
            let earlier = claim.earlier.as_ref();
            owner.map(String::as_str) == earlier.map(|run_id| run_id.as_str())
        });
        follows && claims && self.accepts_requests(change)
    }

    /// A request id belongs to one command, identified by its number in the workflow; the row of that command may be written again,
    /// also by the run that took it over.
    fn accepts_requests(&self, change: &RunChange) -> bool {
        let mut own = HashMap::new();
        change.commands.iter().all(|command| {
            let Some(request_id) = &command.request_id else {
                return true;
            };
            let sequence = command.sequence.get().cast_signed();
            let (namespace, workflow_id) = workflow_of(change);
            let taken = self
                .requests
                .get(&(namespace, workflow_id, request_id.clone()));
            taken.is_none_or(|(_, taken)| *taken == sequence)
                && *own.entry(request_id).or_insert(sequence) == sequence
        })
    }

    /// Records what an accepted commit writes, for the commits behind it.
    pub(super) fn apply(&mut self, commit: &Commit) {
        for (change, _) in commit.runs() {
            let run_id = change.spec.run_id.to_string();
            let run = StoredRun {
                version: change.version(),
                list_status: list_status(&change.core).to_owned(),
                closed_at: closed_at(change),
                alarm: change.core.alarm.map(|at| at.as_micros()),
            };
            self.runs.insert(run_id.clone(), run);
            let (namespace, workflow_id) = workflow_of(change);
            if change.instance.is_some() {
                let number = change.spec.run_number.cast_signed();
                self.newest
                    .insert((namespace.clone(), workflow_id.clone()), number);
            }
            if let Some(key) = key_of(change) {
                self.keys.insert(key, run_id.clone());
            }
            for sequence in &change.deleted_commands {
                let deleted = (run_id.clone(), sequence.get().cast_signed());
                self.requests.retain(|_, command| *command != deleted);
            }
            for command in &change.commands {
                if let Some(request_id) = &command.request_id {
                    let name = (namespace.clone(), workflow_id.clone(), request_id.clone());
                    let sequence = command.sequence.get().cast_signed();
                    self.requests.insert(name, (run_id.clone(), sequence));
                }
            }
        }
        for (scope, counted) in &mut self.counted {
            count_own(scope, commit, &mut counted.own);
        }
        for session in &commit.changes.sessions {
            let key = (
                session.namespace.to_string(),
                session.session_id.to_string(),
            );
            self.sessions.insert(key, session.version);
        }
        for change in &commit.changes.documents {
            if change.body.is_some() {
                self.documents.insert(change.key.clone(), change.version);
            } else {
                self.documents.remove(&change.key);
            }
        }
    }
}

type Answers = (
    Vec<Row>,
    Vec<Row>,
    Vec<Row>,
    Vec<Row>,
    Vec<Row>,
    Vec<Row>,
    Vec<Row>,
    Vec<Row>,
);

/// Runs a statement if it is needed.
async fn ask(
    client: &Connected,
    needed: bool,
    sql: &'static str,
    parameters: Vec<&(dyn ToSql + Sync)>,
) -> Result<Vec<Row>, PostgresError> {
    if !needed {
        return Ok(Vec::new());
    }
    let statement = client.prepare_cached(sql).await?;
    client.query(&statement, &parameters).await
}

const LOCK: &str = "SELECT n, pg_try_advisory_xact_lock(n) FROM unnest($1::int8[]) n";

const LOCK_RUNS: &str =
    "SELECT run_id, version, list_status, closed_at, alarm FROM run_states WHERE run_id = ANY($1::text[])
     ORDER BY run_id FOR UPDATE SKIP LOCKED";

const FIND_RUNS: &str = "SELECT run_id FROM run_states WHERE run_id = ANY($1::text[])";

const FIND_NEWEST: &str = "SELECT n.namespace, n.workflow_id, newest.run_number
     FROM unnest($1::text[], $2::text[]) n (namespace, workflow_id)
     CROSS JOIN LATERAL (SELECT run_number FROM workflow_runs w WHERE w.namespace = n.namespace AND w.workflow_id = n.workflow_id
                         ORDER BY run_number DESC LIMIT 1) newest";

const FIND_REQUESTS: &str = "SELECT r.namespace, r.workflow_id, r.request_id, r.run_id, r.sequence
     FROM unnest($1::text[], $2::text[], $3::text[]) n (namespace, workflow_id, request_id)
     JOIN requests r USING (namespace, workflow_id, request_id)";

const FIND_KEYS: &str = "SELECT k.namespace, k.workflow_type, k.key, k.run_id
     FROM unnest($1::text[], $2::text[], $3::text[]) n (namespace, workflow_type, key)
     JOIN workflow_keys k USING (namespace, workflow_type, key)";

const LOCK_SESSIONS: &str = "SELECT s.namespace, s.session_id, s.version
     FROM unnest($1::text[], $2::text[]) n (namespace, session_id) JOIN worker_sessions s USING (namespace, session_id)
     ORDER BY s.namespace, s.session_id FOR UPDATE OF s SKIP LOCKED";

const LOCK_DOCUMENTS: &str = "SELECT d.kind, d.namespace, d.name, d.qualifier, d.version
     FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) n (kind, namespace, name, qualifier)
     JOIN documents d USING (kind, namespace, name, qualifier)
     ORDER BY d.kind, d.namespace, d.name, d.qualifier FOR UPDATE OF d SKIP LOCKED";

/// Counts what each scope holds, and names what the batch itself writes.
const COUNT: &str = "SELECT w.place, c.others, c.own
     FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) WITH ORDINALITY w (scope, namespace, one, two, place)
     CROSS JOIN LATERAL (
         SELECT count(*) FILTER (WHERE NOT l.task_id = ANY($5::text[])) AS others,
                coalesce(array_agg(l.task_id) FILTER (WHERE l.task_id = ANY($5::text[])), '{}') AS own
         FROM tasks l WHERE w.scope = 'queue' AND l.status = 'leased' AND l.namespace = w.namespace AND l.kind = w.one AND l.queue = w.two
         HAVING w.scope = 'queue'
         UNION ALL
         SELECT count(*) FILTER (WHERE NOT l.task_id = ANY($5::text[])),
                coalesce(array_agg(l.task_id) FILTER (WHERE l.task_id = ANY($5::text[])), '{}')
         FROM tasks l WHERE w.scope = 'namespace' AND l.status = 'leased' AND l.namespace = w.namespace AND l.kind = w.one
         HAVING w.scope = 'namespace'
         UNION ALL
         SELECT count(*) FILTER (WHERE NOT l.task_id = ANY($5::text[])),
                coalesce(array_agg(l.task_id) FILTER (WHERE l.task_id = ANY($5::text[])), '{}')
         FROM tasks l WHERE w.scope = 'task_def' AND l.status = 'leased' AND l.namespace = w.namespace AND l.kind = 'execution'
                        AND l.type_name = w.one
         HAVING w.scope = 'task_def'
         UNION ALL
         SELECT count(*) FILTER (WHERE NOT s.session_id = ANY($6::text[])),
                coalesce(array_agg(s.session_id) FILTER (WHERE s.session_id = ANY($6::text[])), '{}')
         FROM worker_sessions s WHERE w.scope = 'sessions' AND s.status = 'active' AND s.namespace = w.namespace AND s.lease_owner = w.one
         HAVING w.scope = 'sessions') c
     ORDER BY w.place";

/// Every statement, to be prepared when a connection is opened.
pub(super) const ALL: [&str; 9] = [
    COUNT,
    LOCK,
    LOCK_RUNS,
    FIND_RUNS,
    FIND_NEWEST,
    FIND_REQUESTS,
    FIND_KEYS,
    LOCK_SESSIONS,
    LOCK_DOCUMENTS,
];
