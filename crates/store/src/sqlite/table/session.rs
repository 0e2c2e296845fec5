//! The table of sessions: version check and write in a commit, and every read of it.

use longhaul_engine::session::{Session, Status};
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::{Namespace, SessionId};
use rusqlite::{Connection, OptionalExtension as _, Transaction, params};

use crate::encode::signed;
use crate::sqlite::read::{bodies, body};
use crate::{Error, PRUNED_SESSIONS_MAX, SessionFilter};

pub(in crate::sqlite) fn check_version(
    transaction: &Transaction<'_>,
    session: &Session,
) -> Result<(), Error> {
    let stored: Option<i64> = transaction
        .prepare_cached(
            "SELECT version FROM worker_sessions WHERE namespace = ?1 AND session_id = ?2",
        )?
        .query_row(
            [session.namespace.as_str(), session.session_id.as_str()],
            |row| row.get(0),
        )
        .optional()?;
    if stored.unwrap_or(0) + 1 == signed(session.version) {
        Ok(())
    } else {
        Err(Error::Conflict)
    }
}

pub(in crate::sqlite) fn write(
    transaction: &Connection,
    session: &Session,
    body: &str,
) -> Result<(), Error> {
    transaction
        .prepare_cached(
            "INSERT INTO worker_sessions (namespace, session_id, version, status, queue, lease_owner, deadline, ended_at,
             updated_at, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
             ON CONFLICT (namespace, session_id) DO UPDATE SET version = excluded.version, status = excluded.status,
             queue = excluded.queue, lease_owner = excluded.lease_owner, deadline = excluded.deadline,
             ended_at = excluded.ended_at, updated_at = excluded.updated_at, body = excluded.body",
        )?
        .execute(params![
            session.namespace.as_str(),
            session.session_id.as_str(),
            signed(session.version),
            session.status.as_str(),
            session.queue.as_str(),
            session.lease_owner.as_str(),
            session.deadline().map(Timestamp::as_micros),
            session.ended_at().map(Timestamp::as_micros),
            session.updated_at.as_micros(),
            body,
        ])?;
    Ok(())
}

pub(in crate::sqlite) fn prune(
    transaction: &Transaction<'_>,
    namespace: &Namespace,
    ended_before: Timestamp,
) -> Result<bool, Error> {
    let deleted = transaction
        .prepare_cached(
            "DELETE FROM worker_sessions WHERE session_key IN (
             SELECT session_key FROM worker_sessions INDEXED BY worker_sessions_ended
             WHERE ended_at IS NOT NULL AND namespace = ?1 AND ended_at < ?2 ORDER BY ended_at LIMIT ?3)",
        )?
        .execute(params![
            namespace.as_str(),
            ended_before.as_micros(),
            signed(PRUNED_SESSIONS_MAX as u64)
        ])?;
    Ok(deleted > 0)
}

pub(in crate::sqlite) fn session(
    connection: &Connection,
    namespace: &Namespace,
    session_id: &SessionId,
) -> Result<Option<Session>, Error> {
    let mut statement = connection.prepare_cached(
        "SELECT body FROM worker_sessions WHERE namespace = ?1 AND session_id = ?2",
    )?;
    let mut rows = statement.query([namespace.as_str(), session_id.as_str()])?;
    rows.next()?
        .map(|row| body(row, 0, "session", session_id.as_str()))
        .transpose()
}

pub(in crate::sqlite) fn due(
    connection: &Connection,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<Session>, Error> {
    let mut statement = connection.prepare_cached(
        "SELECT body FROM worker_sessions INDEXED BY worker_sessions_due
         WHERE deadline IS NOT NULL AND deadline <= ?1 ORDER BY deadline, namespace, session_id LIMIT ?2",
    )?;
    let rows = statement.query(params![now.as_micros(), signed(limit as u64)])?;
    bodies(rows, "session", "that is due")
}

pub(in crate::sqlite) fn list(
    connection: &Connection,
    filter: &SessionFilter,
) -> Result<Vec<Session>, Error> {
    let mut statement = connection.prepare_cached(match (filter.status, &filter.owner) {
        // What a worker holds. These are few, and there is an index for them.
        (Some(Status::Active), Some(_)) => {
            "SELECT body FROM worker_sessions INDEXED BY worker_sessions_held
             WHERE status = 'active' AND namespace = ?1 AND status = ?2 AND (?3 IS NULL OR queue = ?3)
             AND lease_owner = ?4 AND updated_at <= ?5 AND (updated_at < ?5 OR session_id > ?6)
             ORDER BY updated_at DESC, session_id LIMIT ?7"
        }
        _ => {
            "SELECT body FROM worker_sessions INDEXED BY worker_sessions_listed
             WHERE namespace = ?1 AND (?2 IS NULL OR status = ?2) AND (?3 IS NULL OR queue = ?3)
             AND (?4 IS NULL OR lease_owner = ?4) AND updated_at <= ?5 AND (updated_at < ?5 OR session_id > ?6)
             ORDER BY updated_at DESC, session_id LIMIT ?7"
        }
    })?;
    // Without a place to continue from, everything comes after the end of time.
    let (at, id) = match &filter.after {
        Some((at, id)) => (at.as_micros(), id.as_str()),
        None => (i64::MAX, ""),
    };
    let rows = statement.query(params![
        filter.namespace.as_str(),
        filter.status.map(Status::as_str),
        filter.queue.as_ref().map(|queue| queue.as_str()),
        filter.owner.as_ref().map(|owner| owner.as_str()),
        at,
        id,
        signed(filter.limit as u64),
    ])?;
    bodies(rows, "session of namespace", filter.namespace.as_str())
}

pub(in crate::sqlite) fn counts(
    connection: &Connection,
    namespace: &Namespace,
) -> Result<Vec<(Status, u64)>, Error> {
    let mut statement = connection.prepare_cached(
        "SELECT count(*) FROM worker_sessions INDEXED BY worker_sessions_counted WHERE namespace = ?1 AND status = ?2",
    )?;
    let mut counts = Vec::new();
    for status in Status::ALL {
        let count: i64 =
            statement.query_row([namespace.as_str(), status.as_str()], |row| row.get(0))?;
        if count > 0 {
            counts.push((status, count.cast_unsigned()));
        }
    }
    Ok(counts)
}
