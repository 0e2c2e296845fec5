//! Reads over many rows: due runs and sessions, queues with work, leases, sessions, counts. Each is one statement, hence one snapshot.

use std::collections::BTreeMap;

use longhaul_engine::change::{TaskKind, TaskRow};
use longhaul_engine::session::{Session, Status};
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::{Namespace, RunId, SessionId, TaskQueue, WorkerId};
use tokio_postgres::Row;

use super::connect::Connected;
use super::read::{bodies, parse, query, query_opt, text};
use super::text::{escaped, unescaped};
use super::visibility::Sql;
use crate::encode::signed;
use crate::{
    Due, DueLimits, Error, LeaseFilter, LeasedIn, QueueCount, QueueKey, SessionFilter, TaskPlace,
};

pub(super) async fn due(
    client: &Connected,
    now: Timestamp,
    limits: DueLimits,
) -> Result<Due, Error> {
    let row = query_opt(
        client,
        "SELECT ARRAY(SELECT run_id FROM run_alarms WHERE alarm <= $1 ORDER BY alarm, run_id LIMIT $2),
                ARRAY(SELECT body FROM worker_sessions WHERE deadline <= $1 ORDER BY deadline, namespace, session_id LIMIT $3),
                CASE WHEN $2 > 0 THEN (SELECT min(alarm) FROM run_alarms WHERE alarm > $1) END,
                CASE WHEN $3 > 0 THEN (SELECT min(deadline) FROM worker_sessions WHERE deadline > $1) END",
        &[
            &now.as_micros(),
            &signed(limits.runs as u64),
            &signed(limits.sessions as u64),
        ],
    )
    .await?;
    let Some(row) = row else {
        return Ok(Due::default());
    };
    let runs: Vec<String> = row.try_get(0)?;
    let sessions: Vec<&str> = row.try_get(1)?;
    let (alarm, deadline): (Option<i64>, Option<i64>) = (row.try_get(2)?, row.try_get(3)?);
    Ok(Due {
        runs: runs.into_iter().map(unescaped).map(RunId::from).collect(),
        sessions: sessions
            .into_iter()
            .map(|body| parse(body, "session", "that is due"))
            .collect::<Result<_, _>>()?,
        next: alarm
            .into_iter()
            .chain(deadline)
            .min()
            .map(Timestamp::from_micros),
    })
}

pub(super) async fn ready_tasks(
    client: &Connected,
    queue: &QueueKey,
    place: TaskPlace,
    limit: usize,
) -> Result<Vec<TaskRow>, Error> {
    let sql = match place {
        TaskPlace::Anywhere => {
            "SELECT body FROM tasks
             WHERE status = 'ready' AND session_id IS NULL AND namespace = $1 AND kind = $2 AND queue = $3
             ORDER BY priority, available_at, task_id LIMIT $4"
        }
        TaskPlace::Session => {
            "SELECT body FROM tasks
             WHERE status = 'ready' AND session_id IS NOT NULL AND namespace = $1 AND kind = $2 AND queue = $3
             ORDER BY priority, available_at, task_id LIMIT $4"
        }
    };
    let rows = query(
        client,
        sql,
        &[
            &escaped(queue.namespace.as_str()),
            &queue.kind.as_str(),
            &escaped(queue.queue.as_str()),
            &signed(limit as u64),
        ],
    )
    .await?;
    bodies(&rows, "ready task of queue", queue.queue.as_str())
}

pub(super) async fn ready_queues(client: &Connected) -> Result<Vec<QueueKey>, Error> {
    let rows = query(client, READY_QUEUES, &[]).await?;
    let mut queues = rows
        .iter()
        .map(|row| {
            Ok(QueueKey {
                namespace: text(row, 0)?.into(),
                kind: kind(row.try_get(1)?)?,
                queue: text(row, 2)?.into(),
            })
        })
        .collect::<Result<Vec<_>, Error>>()?;
    queues.sort_unstable();
    Ok(queues)
}

/// Jumps from queue to queue in each index, so that a queue with many tasks costs as much as one with a single task.
const READY_QUEUES: &str = "WITH RECURSIVE anywhere (namespace, kind, queue) AS (
         (SELECT namespace, kind, queue FROM tasks WHERE status = 'ready' AND session_id IS NULL
          ORDER BY namespace, kind, queue LIMIT 1)
         UNION ALL
         SELECT n.namespace, n.kind, n.queue FROM anywhere q CROSS JOIN LATERAL (
             SELECT t.namespace, t.kind, t.queue FROM tasks t
             WHERE t.status = 'ready' AND t.session_id IS NULL AND (t.namespace, t.kind, t.queue) > (q.namespace, q.kind, q.queue)
             ORDER BY t.namespace, t.kind, t.queue LIMIT 1) n
     ), in_session (namespace, kind, queue) AS (
         (SELECT namespace, kind, queue FROM tasks WHERE status = 'ready' AND session_id IS NOT NULL
          ORDER BY namespace, kind, queue LIMIT 1)
         UNION ALL
         SELECT n.namespace, n.kind, n.queue FROM in_session q CROSS JOIN LATERAL (
             SELECT t.namespace, t.kind, t.queue FROM tasks t
             WHERE t.status = 'ready' AND t.session_id IS NOT NULL AND (t.namespace, t.kind, t.queue) > (q.namespace, q.kind, q.queue)
             ORDER BY t.namespace, t.kind, t.queue LIMIT 1) n
     )
     SELECT namespace, kind, queue FROM anywhere UNION SELECT namespace, kind, queue FROM in_session";

pub(super) async fn leased_tasks(
    client: &Connected,
    filter: &LeaseFilter,
    limit: usize,
) -> Result<Vec<TaskRow>, Error> {
    let mut sql = Sql::default();
    // Ordered outside: the index of leases is small, and the one of ids has every task.
    sql.push("SELECT body FROM (SELECT task_id, body FROM tasks WHERE status = 'leased'");
    let mut matches = |column: &'static str, value: Option<&str>| {
        if let Some(value) = value {
            sql.push(column).bind(escaped(value).into_owned());
        }
    };
    let LeaseFilter {
        namespace,
        owner,
        queue,
        kind,
        session,
    } = filter;
    matches(
        " AND namespace = ",
        namespace.as_ref().map(Namespace::as_str),
    );
    matches(" AND lease_owner = ", owner.as_ref().map(WorkerId::as_str));
    matches(" AND queue = ", queue.as_ref().map(TaskQueue::as_str));
    matches(" AND kind = ", kind.map(TaskKind::as_str));
    match session {
        Some(LeasedIn::Session(session_id)) => {
            matches(" AND session_id = ", Some(session_id.as_str()));
        }
        Some(LeasedIn::AnySession) => {
            sql.push(" AND session_id IS NOT NULL");
        }
        None => {}
    }
    sql.push(" OFFSET 0) leased ORDER BY task_id LIMIT ");
    sql.bind(signed(limit as u64));
    client.count();
    let rows = client.query(sql.text(), &sql.values()).await?;
    bodies(&rows, "leased task", "")
}

pub(super) async fn queue_counts(
    client: &Connected,
    namespace: &Namespace,
) -> Result<Vec<QueueCount>, Error> {
    // Each part reads the index of its status alone. The status is not a column of the index, so it is written as a constant.
    let rows = query(
        client,
        "SELECT queue, kind, 'ready', count(*), min(available_at) FROM tasks
         WHERE status = 'ready' AND session_id IS NULL AND namespace = $1 GROUP BY queue, kind
         UNION ALL SELECT queue, kind, 'ready', count(*), min(available_at) FROM tasks
         WHERE status = 'ready' AND session_id IS NOT NULL AND namespace = $1 GROUP BY queue, kind
         UNION ALL SELECT queue, kind, 'leased', count(*), NULL FROM tasks
         WHERE status = 'leased' AND namespace = $1 GROUP BY queue, kind
         UNION ALL SELECT queue, 'execution', 'scheduled', count(*), NULL FROM tasks
         WHERE status = 'scheduled' AND kind = 'execution' AND namespace = $1 GROUP BY queue",
        &[&escaped(namespace.as_str())],
    )
    .await?;
    let mut counts: BTreeMap<(TaskQueue, TaskKind), QueueCount> = BTreeMap::new();
    for row in &rows {
        let queue = TaskQueue::from(text(row, 0)?);
        let kind = kind(row.try_get(1)?)?;
        let number = row.try_get::<_, i64>(3)?.cast_unsigned();
        let oldest: Option<i64> = row.try_get(4)?;
        let count = counts.entry((queue.clone(), kind)).or_insert(QueueCount {
            queue,
            kind,
            ready: 0,
            leased: 0,
            delayed: 0,
            oldest_ready_at: None,
        });
        match row.try_get(2)? {
            "ready" => {
                count.ready += number;
                let oldest = oldest.map(Timestamp::from_micros).into_iter();
                count.oldest_ready_at = oldest.chain(count.oldest_ready_at).min();
            }
            "leased" => count.leased += number,
            _ => count.delayed += number,
        }
    }
    Ok(counts.into_values().collect())
}

fn kind(text: &str) -> Result<TaskKind, Error> {
    [TaskKind::Workflow, TaskKind::Activity, TaskKind::Execution]
        .into_iter()
        .find(|kind| kind.as_str() == text)
        .ok_or_else(|| Error::Corrupt(format!("no task is of kind {text}")))
}

pub(super) async fn session(
    client: &Connected,
    namespace: &Namespace,
    session_id: &SessionId,
) -> Result<Option<Session>, Error> {
    let row = query_opt(
        client,
        "SELECT body FROM worker_sessions WHERE namespace = $1 AND session_id = $2",
        &[&escaped(namespace.as_str()), &escaped(session_id.as_str())],
    )
    .await?;
    row.map(|row| parse(row.try_get(0)?, "session", session_id.as_str()))
        .transpose()
}

pub(super) async fn sessions(
    client: &Connected,
    filter: &SessionFilter,
) -> Result<Vec<Session>, Error> {
    let sql = match (filter.status, &filter.owner) {
        // What a worker holds. There is an index for it, which needs the status in the statement.
        (Some(Status::Active), Some(_)) => {
            "SELECT body FROM worker_sessions
             WHERE status = 'active' AND namespace = $1 AND status = $2 AND ($3::text IS NULL OR queue = $3) AND lease_owner = $4
             AND updated_at <= $5 AND (updated_at < $5 OR session_id > $6) ORDER BY updated_at DESC, session_id LIMIT $7"
        }
        _ => {
            "SELECT body FROM worker_sessions
             WHERE namespace = $1 AND ($2::text IS NULL OR status = $2) AND ($3::text IS NULL OR queue = $3)
             AND ($4::text IS NULL OR lease_owner = $4) AND updated_at <= $5 AND (updated_at < $5 OR session_id > $6)
             ORDER BY updated_at DESC, session_id LIMIT $7"
        }
    };
    // Without a place to continue from, everything comes after the end of time.
    let (at, id) = match &filter.after {
        Some((at, id)) => (at.as_micros(), id.as_str()),
        None => (i64::MAX, ""),
    };
    let rows = query(
        client,
        sql,
        &[
            &escaped(filter.namespace.as_str()),
            &filter.status.map(Status::as_str),
            &filter.queue.as_ref().map(|queue| escaped(queue.as_str())),
            &filter.owner.as_ref().map(|owner| escaped(owner.as_str())),
            &at,
            &escaped(id),
            &signed(filter.limit as u64),
        ],
    )
    .await?;
    bodies(&rows, "session of namespace", filter.namespace.as_str())
}

pub(super) async fn session_counts(
    client: &Connected,
    namespace: &Namespace,
) -> Result<Vec<(Status, u64)>, Error> {
    let rows = query(
        client,
        "SELECT status, count(*) FROM worker_sessions WHERE namespace = $1 GROUP BY status",
        &[&escaped(namespace.as_str())],
    )
    .await?;
    let count = |status: Status| -> Result<Option<(Status, u64)>, Error> {
        let is_wanted = |row: &&Row| {
            row.try_get::<_, &str>(0)
                .is_ok_and(|text| text == status.as_str())
        };
        let row = rows.iter().find(is_wanted);
        row.map(|row| Ok((status, row.try_get::<_, i64>(1)?.cast_unsigned())))
            .transpose()
    };
    let counts: Result<Vec<_>, Error> = Status::ALL.into_iter().map(count).collect();
    let mut counts: Vec<(Status, u64)> = counts?.into_iter().flatten().collect();
    counts.sort_by_key(|(status, _)| *status);
    Ok(counts)
}
