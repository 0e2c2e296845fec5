//! The writer: one connection, one thread, batches in one transaction each. Every check of a commit comes before its first write,
//! so a refused commit writes nothing and needs no savepoint.

use std::sync::Arc;
use std::time::Instant;

use longhaul_engine::change::{InstanceChange, RunChange, TaskRow};
use longhaul_protocol::Timestamp;
use rusqlite::{
    CachedStatement, Connection, OptionalExtension as _, Transaction, TransactionBehavior, params,
};

use super::encode::{Commit, Write};
use super::lock::Lock;
use super::table::{command, document, key, log, removal, session};
use super::visibility::index;
use crate::encode::{
    Bodies, EventColumns, closed_at, correlation_id, list_status, parent_id, signed, task_status,
};
use crate::group::{Counters, Sink};
use crate::{Error, shape};

/// The writing side of one database file.
pub(super) struct Writer {
    connection: Connection,
    counters: Arc<Counters>,
    /// Held as long as anything may be written. Last, because fields are dropped in order.
    _lock: Arc<Lock>,
}

impl Writer {
    pub(super) fn new(connection: Connection, lock: Arc<Lock>, counters: Arc<Counters>) -> Self {
        Self {
            connection,
            counters,
            _lock: lock,
        }
    }
}

impl Sink for Writer {
    type Write = Write;

    fn write(&mut self, batch: &[Write]) -> Result<Vec<Result<bool, Error>>, Error> {
        // Dropped without commit, by an error or a panic, the transaction rolls back.
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        let results = write_all(&transaction, batch)?;
        let started = Instant::now();
        transaction.commit()?;
        self.counters.record_sync(started.elapsed());
        Ok(results)
    }

    fn size(write: &Write) -> usize {
        write.size()
    }
}

fn write_all(
    transaction: &Transaction<'_>,
    batch: &[Write],
) -> Result<Vec<Result<bool, Error>>, Error> {
    let mut hot = Hot::prepare(transaction)?;
    let mut results = Vec::with_capacity(batch.len());
    for write in batch {
        let result = match write {
            Write::Commit(commit) => write_commit(transaction, &mut hot, commit),
            Write::PruneSessions {
                namespace,
                ended_before,
            } => session::prune(transaction, namespace, *ended_before),
            Write::RemoveRun { run_id, version } => removal::bury(transaction, run_id, *version),
            Write::PurgeRemoved => removal::purge(transaction),
            Write::Trial => try_to_write(transaction),
        };
        results.push(match result {
            // Refused before anything of it was written: the rest of the batch is kept.
            Err(Error::Conflict) => Err(Error::Conflict),
            Err(error) => return Err(error),
            Ok(changed) => Ok(changed),
        });
    }
    Ok(results)
}

/// Writes the first page with a number in it that SQLite reserves for its users and that this store does not use. No table is
/// touched, and one page goes to the log.
fn try_to_write(transaction: &Transaction<'_>) -> Result<bool, Error> {
    transaction.pragma_update(None, "user_version", 1)?;
    Ok(true)
}

/// Statements that almost every commit runs, looked up in the cache once per batch instead of once per row.
pub(super) struct Hot<'t> {
    find_run: CachedStatement<'t>,
    update_run: CachedStatement<'t>,
    update_run_and_alarm: CachedStatement<'t>,
    insert_event: CachedStatement<'t>,
    put_part: CachedStatement<'t>,
    delete_part: CachedStatement<'t>,
    put_task: CachedStatement<'t>,
    delete_task: CachedStatement<'t>,
    /// A task of a definition run, with the columns of searches.
    put_found_task: CachedStatement<'t>,
}

impl<'t> Hot<'t> {
    pub(super) fn prepare(transaction: &'t Connection) -> Result<Self, Error> {
        Ok(Self {
            find_run: transaction
                .prepare_cached("SELECT run_key, version, alarm, list_status, closed_at FROM runs WHERE run_id = ?1")?,
            update_run: transaction.prepare_cached("UPDATE runs SET version = ?2, state = ?3 WHERE run_key = ?1")?,
            update_run_and_alarm: transaction
                .prepare_cached("UPDATE runs SET version = ?2, state = ?3, alarm = ?4 WHERE run_key = ?1")?,
            insert_event: transaction.prepare_cached(
                "INSERT INTO events (run_key, sequence, id, event_type, recorded_at, workflow_task_id, workflow_command_id,
                 principal, payload) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )?,
            put_part: transaction.prepare_cached(
                "INSERT INTO run_parts (run_key, part, body) VALUES (?1, ?2, ?3)
                 ON CONFLICT DO UPDATE SET body = excluded.body",
            )?,
            delete_part: transaction.prepare_cached("DELETE FROM run_parts WHERE run_key = ?1 AND part = ?2")?,
            delete_task: transaction.prepare_cached("DELETE FROM tasks WHERE task_id = ?1")?,
            put_task: transaction.prepare_cached(
                "INSERT INTO tasks (task_id, status, namespace, kind, queue, priority, available_at, lease_owner, body, session_id)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
                 ON CONFLICT (task_id) DO UPDATE SET status = excluded.status, namespace = excluded.namespace,
                 kind = excluded.kind, queue = excluded.queue, priority = excluded.priority,
                 available_at = excluded.available_at, lease_owner = excluded.lease_owner, body = excluded.body",
            )?,
            put_found_task: transaction.prepare_cached(
                "INSERT INTO tasks (task_id, status, namespace, kind, queue, priority, available_at, lease_owner, body, session_id,
                 run_id, sequence, task_type, def_name, reference, shown_status, workflow_type, correlation_id, domain, scheduled_at,
                 started_at, ended_at, updated_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23)
                 ON CONFLICT (task_id) DO UPDATE SET status = excluded.status, queue = excluded.queue, priority = excluded.priority,
                 available_at = excluded.available_at, lease_owner = excluded.lease_owner, body = excluded.body,
                 run_id = excluded.run_id, sequence = excluded.sequence, task_type = excluded.task_type,
                 def_name = excluded.def_name, reference = excluded.reference, shown_status = excluded.shown_status,
                 workflow_type = excluded.workflow_type, correlation_id = excluded.correlation_id, domain = excluded.domain,
                 scheduled_at = excluded.scheduled_at, started_at = excluded.started_at, ended_at = excluded.ended_at,
                 updated_at = excluded.updated_at",
            )?,
        })
    }

    pub(super) fn insert_event(
        &mut self,
        run_key: i64,
        event: &EventColumns<'_>,
    ) -> Result<(), Error> {
        self.insert_event.execute(params![
            run_key,
            event.sequence,
            event.id,
            event.event_type,
            event.recorded_at,
            event.workflow_task_id,
            event.workflow_command_id,
            event.principal,
            event.payload,
        ])?;
        Ok(())
    }

    pub(super) fn put_part(&mut self, run_key: i64, part: &str, body: &str) -> Result<(), Error> {
        self.put_part.execute(params![run_key, part, body])?;
        Ok(())
    }

    pub(super) fn put_task(&mut self, task: &TaskRow, body: &str) -> Result<(), Error> {
        if let Some(facts) = &task.found_by {
            let micros = |time: Option<Timestamp>| time.map(|time| time.as_micros());
            self.put_found_task.execute(params![
                task.task_id.as_str(),
                task_status(task.status),
                task.namespace.as_str(),
                task.kind.as_str(),
                task.queue.as_str(),
                task.priority,
                task.available_at.as_micros(),
                task.lease_owner.as_ref().map(|owner| owner.as_str()),
                body,
                None::<&str>,
                task.run_id.as_str(),
                signed(task.sequence.get()),
                facts.task_type,
                facts.def_name,
                facts.reference,
                facts.status.as_str(),
                facts.workflow_type,
                facts.correlation_id,
                facts.domain,
                facts.scheduled_at.as_micros(),
                micros(facts.started_at),
                micros(facts.ended_at),
                facts.updated_at.as_micros(),
            ])?;
            return Ok(());
        }
        let session = task.worker_session.as_ref();
        self.put_task.execute(params![
            task.task_id.as_str(),
            task_status(task.status),
            task.namespace.as_str(),
            task.kind.as_str(),
            task.queue.as_str(),
            task.priority,
            task.available_at.as_micros(),
            task.lease_owner.as_ref().map(|owner| owner.as_str()),
            body,
            session.map(|session| session.session_id.as_str()),
        ])?;
        Ok(())
    }
}

/// Columns of an existing run, read by the version check.
struct Found {
    run_key: i64,
    /// Only changed columns are set, so that unchanged ones do not touch their index.
    alarm: Option<i64>,
    /// The columns that lists filter by change. They change together: when the run closes, pauses, goes on or is opened again.
    moves_in_lists: bool,
}

fn write_commit(
    transaction: &Transaction<'_>,
    hot: &mut Hot<'_>,
    commit: &Commit,
) -> Result<bool, Error> {
    // Invariant: every check comes before the first write.
    let mut checked = Vec::with_capacity(2);
    for (change, _) in commit.runs() {
        checked.push(check_version(hot, change)?);
        check_instance(transaction, change)?;
        check_requests(transaction, change)?;
        key::check(transaction, change)?;
    }
    for (session, _) in commit.sessions() {
        session::check_version(transaction, session)?;
    }
    for change in commit.documents() {
        document::check_version(transaction, change)?;
    }
    for ((change, bodies), found) in commit.runs().zip(checked) {
        let run_key = match found {
            Some(found) => update_run(transaction, hot, &found, change, bodies)?,
            None => insert_run(transaction, change, bodies)?,
        };
        write_rows(transaction, hot, run_key, change, bodies)?;
        key::write(transaction, run_key, change)?;
        if let Some(entries) = &bodies.attributes {
            index::write(transaction, run_key, change.base_version.is_none(), entries)?;
        }
    }
    for (row, body) in commit.sessions() {
        session::write(transaction, row, body)?;
    }
    for change in commit.documents() {
        document::write(transaction, change)?;
    }
    Ok(true)
}

fn check_version(hot: &mut Hot<'_>, change: &RunChange) -> Result<Option<Found>, Error> {
    let mut rows = hot.find_run.query([change.spec.run_id.as_str()])?;
    let stored = rows.next()?;
    let (row, base_version) = match (stored, change.base_version) {
        (None, None) => return Ok(None),
        (Some(row), Some(base_version)) => (row, base_version),
        (None, Some(_)) | (Some(_), None) => return Err(Error::Conflict),
    };
    if row.get::<_, i64>(1)? != signed(base_version) {
        return Err(Error::Conflict);
    }
    let moves_in_lists = row.get_ref(3)?.as_str() != Ok(list_status(&change.core))
        || row.get::<_, Option<i64>>(4)? != closed_at(change);
    Ok(Some(Found {
        run_key: row.get(0)?,
        alarm: row.get(2)?,
        moves_in_lists,
    }))
}

fn check_instance(transaction: &Transaction<'_>, change: &RunChange) -> Result<(), Error> {
    let Some(instance) = &change.instance else {
        return Ok(());
    };
    let newest: Option<i64> = transaction
        .prepare_cached(
            "SELECT run_number FROM workflow_runs WHERE namespace = ?1 AND workflow_id = ?2 ORDER BY run_number DESC LIMIT 1",
        )?
        .query_row(params![change.spec.namespace.as_str(), change.spec.workflow_id.as_str()], |row| row.get(0))
        .optional()?;
    let expected = match instance {
        InstanceChange::Create => None,
        InstanceChange::MoveCurrent { run_number } => Some(signed(*run_number) - 1),
    };
    if newest == expected {
        Ok(())
    } else {
        Err(Error::Conflict)
    }
}

/// Checks request ids. A request id belongs to one command, identified by its number in the workflow; the row of that command may
/// be written again, also by the run that took it over.
fn check_requests(transaction: &Transaction<'_>, change: &RunChange) -> Result<(), Error> {
    for (place, command) in change.commands.iter().enumerate() {
        let Some(request_id) = &command.request_id else {
            continue;
        };
        let taken: Option<i64> = transaction
            .prepare_cached(
                "SELECT sequence FROM requests WHERE namespace = ?1 AND workflow_id = ?2 AND request_id = ?3",
            )?
            .query_row(
                params![change.spec.namespace.as_str(), change.spec.workflow_id.as_str(), request_id],
                |row| row.get(0),
            )
            .optional()?;
        let twice = change.commands[..place].iter().any(|earlier| {
            earlier.request_id.as_ref() == Some(request_id) && earlier.sequence != command.sequence
        });
        if twice || taken.is_some_and(|taken| taken != signed(command.sequence)) {
            return Err(Error::Conflict);
        }
    }
    Ok(())
}

fn update_run(
    transaction: &Transaction<'_>,
    hot: &mut Hot<'_>,
    found: &Found,
    change: &RunChange,
    bodies: &Bodies,
) -> Result<i64, Error> {
    let version = signed(change.version());
    let alarm = shape::alarm(change).map(|at| at.as_micros());
    if found.moves_in_lists {
        transaction
            .prepare_cached(
                "UPDATE runs SET version = ?2, state = ?3, alarm = ?4, list_status = ?5, closed_at = ?6, correlation_id = ?7
                 WHERE run_key = ?1",
            )?
            .execute(params![
                found.run_key,
                version,
                bodies.state,
                alarm,
                list_status(&change.core),
                closed_at(change),
                correlation_id(change),
            ])?;
        if !change.core.search_attributes.is_empty() {
            index::move_to(transaction, found.run_key, list_status(&change.core))?;
        }
    } else if found.alarm != alarm {
        hot.update_run_and_alarm
            .execute(params![found.run_key, version, bodies.state, alarm])?;
    } else {
        hot.update_run
            .execute(params![found.run_key, version, bodies.state])?;
    }
    Ok(found.run_key)
}

/// Writes a new run without its other rows. Returns its key.
pub(super) fn insert_run(
    transaction: &Connection,
    change: &RunChange,
    bodies: &Bodies,
) -> Result<i64, Error> {
    let spec = &*change.spec;
    transaction
        .prepare_cached(
            "INSERT INTO runs (run_id, version, alarm, list_status, namespace, workflow_id, run_number, workflow_type,
             task_queue, business_key, compatibility, started_at, state, closed_at, correlation_id, parent_id)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
        )?
        .execute(params![
            spec.run_id.as_str(),
            signed(change.version()),
            shape::alarm(change).map(|at| at.as_micros()),
            list_status(&change.core),
            spec.namespace.as_str(),
            spec.workflow_id.as_str(),
            signed(spec.run_number),
            spec.workflow_type,
            spec.task_queue.as_str(),
            spec.business_key,
            spec.routing.compatibility,
            spec.started_at.as_micros(),
            bodies.state,
            closed_at(change),
            correlation_id(change),
            parent_id(change),
        ])?;
    let run_key = transaction.last_insert_rowid();
    transaction
        .prepare_cached("INSERT INTO run_specs (run_key, body) VALUES (?1, ?2)")?
        .execute(params![run_key, bodies.spec])?;
    transaction
        .prepare_cached(
            "INSERT INTO workflow_runs (namespace, workflow_id, run_number, run_key) VALUES (?1, ?2, ?3, ?4)",
        )?
        .execute(params![
            spec.namespace.as_str(),
            spec.workflow_id.as_str(),
            signed(spec.run_number),
            run_key
        ])?;
    Ok(run_key)
}

fn write_rows(
    transaction: &Transaction<'_>,
    hot: &mut Hot<'_>,
    run_key: i64,
    change: &RunChange,
    bodies: &Bodies,
) -> Result<(), Error> {
    for event in &change.events {
        hot.insert_event(run_key, &EventColumns::of(event))?;
    }
    for part in &bodies.parts {
        match &part.body {
            Some(body) => hot.put_part(run_key, &part.key, body)?,
            None => drop(hot.delete_part.execute(params![run_key, part.key])?),
        }
    }
    for task_id in &change.deleted_tasks {
        hot.delete_task.execute([task_id.as_str()])?;
    }
    for (task, body) in change.tasks.iter().zip(&bodies.tasks) {
        hot.put_task(task, body)?;
    }
    log::write(transaction, run_key, &change.logs)?;
    for sequence in &change.deleted_commands {
        command::delete(transaction, run_key, change, *sequence)?;
    }
    for (command, body) in change.commands.iter().zip(&bodies.commands) {
        let sequence = signed(command.sequence);
        command::put(transaction, run_key, sequence, body)?;
        if let Some(request_id) = &command.request_id {
            let spec = &change.spec;
            let workflow = [spec.namespace.as_str(), spec.workflow_id.as_str()];
            command::put_request(transaction, workflow, request_id, (run_key, sequence))?;
        }
    }
    Ok(())
}
