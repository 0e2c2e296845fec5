//! What a server waits for: tasks for its polls, replies to them that another server gave, watched runs, due work. Whatever waits, it is
//! one statement, and one more to take the tasks that were found.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_engine::change::{TaskKind, TaskRow};
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::RunId;
use tokio_postgres::types::ToSql;

use super::connect::Connected;
use super::list;
use super::read::{parse, query, text};
use super::text::{escaped, unescaped};
use crate::encode::signed;
use crate::shared::{CLASSES_MAX, IN_SESSION_MAX, Look, Looked, PollId, Wanted};
use crate::{Due, DueLimits, Error};

/// Tasks that are read for a queue, at least: some are not for the polls that wait.
const CANDIDATES_MIN: usize = 64;

/// Tasks that are read for a queue, at most, if many are for other workers.
const CANDIDATES_MAX: usize = 8192;

/// Between the names of task types in one text.
const SEPARATOR: &str = "\u{1f}";

pub(super) async fn look(client: &Connected, server: &str, look: &Look) -> Result<Looked, Error> {
    if !look.released.is_empty() {
        let keys = look.released.iter();
        let keys: Vec<String> = keys.map(|task_id| task_key(task_id.as_str())).collect();
        query(client, RELEASE, &[&keys, &server]).await?;
    }
    if look.is_for_nothing() {
        return Ok(Looked::default());
    }
    let mut seen = see(client, look, CANDIDATES_MIN).await?;
    let mut selected = select(&look.queues, &seen.candidates);
    if selected.is_empty() && seen.candidates.is_truncated {
        // Many tasks are for other workers.
        let queues = Look {
            polls: Vec::new(),
            runs: Vec::new(),
            ..look.clone()
        };
        let more = see(client, &queues, CANDIDATES_MAX).await?;
        selected = select(&look.queues, &more.candidates);
        seen.in_sessions = more.in_sessions;
    }
    // A server that is alone leaves nothing to others.
    let tasks = if look.reserved_until > look.now {
        take_tasks(client, server, look, selected).await?
    } else {
        selected
    };
    Ok(Looked {
        tasks,
        in_sessions: seen.in_sessions,
        leased: seen.leased,
        runs: seen.runs,
    })
}

/// What a look sees, before tasks are selected and taken.
#[derive(Default)]
struct Seen {
    candidates: Candidates,
    in_sessions: Vec<TaskRow>,
    leased: Vec<TaskRow>,
    runs: Vec<(RunId, u64)>,
}

#[derive(Default)]
struct Candidates {
    /// By the place of their queue among the wanted ones.
    tasks: BTreeMap<usize, Vec<TaskRow>>,
    is_truncated: bool,
}

fn select(wanted: &[Wanted], candidates: &Candidates) -> Vec<TaskRow> {
    let selected = candidates.tasks.iter().filter_map(|(place, tasks)| {
        let wanted = wanted.get(*place)?;
        Some(wanted.select(tasks.clone()))
    });
    selected.flatten().collect()
}

/// Reads everything in one statement: the ready tasks of each queue in the order of matching, and the first of each fairness class;
/// the ready tasks of sessions that the workers hold or that no worker holds; the tasks that the polls lease; the runs that have another
/// version.
async fn see(client: &Connected, look: &Look, least: usize) -> Result<Seen, Error> {
    let columns = Columns::of(&look.queues);
    let limits: Vec<i64> = look
        .queues
        .iter()
        .map(|wanted| signed(wanted.count().max(least) as u64))
        .collect();
    let types: Vec<Option<String>> = look.queues.iter().map(types).collect();
    let sessions = session_columns(&look.queues);
    let poll = |of: fn(&PollId) -> &str| -> Vec<std::borrow::Cow<'_, str>> {
        look.polls.iter().map(|poll| escaped(of(poll))).collect()
    };
    let (ids, versions): (Vec<_>, Vec<i64>) = look
        .runs
        .iter()
        .map(|(run_id, version)| (escaped(run_id.as_str()), signed(*version)))
        .unzip();
    let known = look.known.iter();
    let known: Vec<_> = known.map(|task_id| escaped(task_id.as_str())).collect();
    let offered = look.offered.iter();
    let offered: Vec<_> = offered.map(|task_id| escaped(task_id.as_str())).collect();
    let rows = query(
        client,
        LOOK,
        &[
            &columns.namespaces,
            &columns.kinds,
            &columns.queues,
            &types,
            &limits,
            &look.now.as_micros(),
            &signed(CLASSES_MAX as u64),
            &sessions.0,
            &sessions.1,
            &sessions.2,
            &signed(IN_SESSION_MAX as u64),
            &poll(|poll| poll.queue.namespace.as_str()),
            &poll(|poll| poll.queue.kind.as_str()),
            &poll(|poll| poll.queue.queue.as_str()),
            &poll(|poll| poll.worker_id.as_str()),
            &ids,
            &versions,
            &known,
            &look.young_since.map(Timestamp::as_micros),
            &offered,
        ],
    )
    .await?;
    let mut seen = Seen::default();
    let mut known = BTreeSet::new();
    for row in &rows {
        let number: i64 = row.try_get(1)?;
        match row.try_get(0)? {
            "candidate" => {
                let task: TaskRow = parse(row.try_get(2)?, "ready task", "")?;
                if known.insert(task.task_id.clone()) {
                    let place = usize::try_from(number - 1).unwrap_or(usize::MAX);
                    seen.candidates.tasks.entry(place).or_default().push(task);
                }
            }
            "in session" => seen
                .in_sessions
                .push(parse(row.try_get(2)?, "ready task", "")?),
            "leased" => seen.leased.push(parse(row.try_get(2)?, "leased task", "")?),
            _ => {
                let run_id = text(row, 2)?.into();
                seen.runs.push((run_id, number.cast_unsigned()));
            }
        }
    }
    seen.candidates.sort(&limits);
    retain_asked(&mut seen.leased, &look.polls);
    Ok(seen)
}

impl Candidates {
    /// Brings the tasks of each queue into the order of matching.
    fn sort(&mut self, limits: &[i64]) {
        for (place, tasks) in &mut self.tasks {
            tasks.sort_by(|one, other| {
                (one.priority, one.available_at, &one.task_id).cmp(&(
                    other.priority,
                    other.available_at,
                    &other.task_id,
                ))
            });
            let limit = limits.get(*place).copied().unwrap_or(0);
            self.is_truncated |= signed(tasks.len() as u64) >= limit;
        }
    }
}

/// Keeps the tasks that these very polls lease.
fn retain_asked(leased: &mut Vec<TaskRow>, polls: &[PollId]) {
    let wanted: BTreeSet<(&str, &str)> = polls
        .iter()
        .map(|poll| (poll.worker_id.as_str(), poll.request_id.as_str()))
        .collect();
    leased.retain(|task| {
        let (owner, request) = (task.lease_owner.as_ref(), task.poll_request_id.as_deref());
        owner
            .zip(request)
            .is_some_and(|(owner, request)| wanted.contains(&(owner.as_str(), request)))
    });
}

/// Returns the task types of the polls in one text; `None` if all are accepted.
fn types(wanted: &Wanted) -> Option<String> {
    let types = wanted.types()?;
    let is_plain = |name: &&str| !name.contains(SEPARATOR);
    let escaped: Vec<_> = types.iter().map(|name| escaped(name)).collect();
    types.iter().all(is_plain).then(|| escaped.join(SEPARATOR))
}

/// The names of queues, a column each.
struct Columns<'a> {
    namespaces: Vec<std::borrow::Cow<'a, str>>,
    kinds: Vec<&'static str>,
    queues: Vec<std::borrow::Cow<'a, str>>,
}

impl<'a> Columns<'a> {
    fn of(wanted: &'a [Wanted]) -> Self {
        let queues = || wanted.iter().map(|wanted| &wanted.queue);
        Self {
            namespaces: queues()
                .map(|queue| escaped(queue.namespace.as_str()))
                .collect(),
            kinds: queues().map(|queue| queue.kind.as_str()).collect(),
            queues: queues()
                .map(|queue| escaped(queue.queue.as_str()))
                .collect(),
        }
    }
}

/// Takes tasks for this server, as far as no other was quicker.
async fn take_tasks(
    client: &Connected,
    server: &str,
    look: &Look,
    mut selected: Vec<TaskRow>,
) -> Result<Vec<TaskRow>, Error> {
    if selected.is_empty() {
        return Ok(selected);
    }
    let key = |task: &TaskRow| task_key(task.task_id.as_str());
    let keys: Vec<String> = selected.iter().map(key).collect();
    let none: Vec<Option<i64>> = vec![None; keys.len()];
    let parameters: [&(dyn ToSql + Sync); 5] = [
        &keys,
        &none,
        &server,
        &look.reserved_until.as_micros(),
        &look.now.as_micros(),
    ];
    let rows = query(client, TAKE, &parameters).await?;
    let mut taken = BTreeSet::new();
    for row in &rows {
        taken.insert(row.try_get::<_, String>(0)?);
    }
    selected.retain(|task| taken.contains(&key(task)));
    Ok(selected)
}

type Column<'a> = Vec<std::borrow::Cow<'a, str>>;

/// Returns the namespace, the queue and the worker of each poll for activities.
fn session_columns(wanted: &[Wanted]) -> (Column<'_>, Column<'_>, Column<'_>) {
    let mut columns = (Vec::new(), Vec::new(), Vec::new());
    let is_activity = |wanted: &&Wanted| wanted.queue.kind == TaskKind::Activity;
    for wanted in wanted.iter().filter(is_activity) {
        for (filter, _) in &wanted.polls {
            columns.0.push(escaped(wanted.queue.namespace.as_str()));
            columns.1.push(escaped(wanted.queue.queue.as_str()));
            columns.2.push(escaped(filter.worker_id.as_str()));
        }
    }
    columns
}

/// Takes due runs and sessions for this server, as far as no other was quicker.
pub(super) async fn take_due(
    client: &Connected,
    server: &str,
    now: Timestamp,
    limits: DueLimits,
    until: Timestamp,
) -> Result<Due, Error> {
    let none = DueLimits::default();
    let kinds = DueLimits {
        runs: limits.runs.min(1),
        sessions: limits.sessions.min(1),
    };
    // Read with the smallest limits, to know whether anything is due, and when the next is.
    let first = list::due(client, now, kinds).await?;
    if kinds == none || (first.runs.is_empty() && first.sessions.is_empty()) {
        return Ok(first);
    }
    let mut due = Due {
        next: first.next,
        ..Due::default()
    };
    if !first.runs.is_empty() {
        let rows = take(client, DUE_RUNS, server, now, limits.runs, until).await?;
        due.runs = rows.into_iter().map(|(id, _)| RunId::from(id)).collect();
    }
    if !first.sessions.is_empty() {
        let rows = take(client, DUE_SESSIONS, server, now, limits.sessions, until).await?;
        for (key, body) in rows {
            due.sessions.push(parse(&body, "session", &key)?);
        }
    }
    Ok(due)
}

/// Returns what was taken, in the order in which it was due: each with its name and its text.
async fn take(
    client: &Connected,
    due: &'static str,
    server: &str,
    now: Timestamp,
    limit: usize,
    until: Timestamp,
) -> Result<Vec<(String, String)>, Error> {
    let limit = signed(limit as u64);
    let rows = query(client, due, &[&now.as_micros(), &limit, &server]).await?;
    let mut keys = Vec::new();
    let mut times: Vec<Option<i64>> = Vec::new();
    let mut found = Vec::new();
    for row in &rows {
        let (key, at): (String, i64) = (row.try_get(0)?, row.try_get(1)?);
        let (name, body): (String, String) = (row.try_get(2)?, row.try_get(3)?);
        keys.push(key.clone());
        times.push(Some(at));
        found.push((key, unescaped(name), body));
    }
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let parameters: [&(dyn ToSql + Sync); 5] =
        [&keys, &times, &server, &until.as_micros(), &now.as_micros()];
    let rows = query(client, TAKE, &parameters).await?;
    let mut taken = BTreeSet::new();
    for row in &rows {
        taken.insert(row.try_get::<_, String>(0)?);
    }
    found.retain(|(key, _, _)| taken.contains(key));
    Ok(found
        .into_iter()
        .map(|(_, name, body)| (name, body))
        .collect())
}

/// Returns the key of a task in `taken`.
pub(super) fn task_key(task_id: &str) -> String {
    format!("t:{}", escaped(task_id))
}

/// Returns the key of a run in `taken`.
pub(super) fn run_key(run_id: &str) -> String {
    format!("r:{}", escaped(run_id))
}

/// Returns the key of a session in `taken`.
pub(super) fn session_key(namespace: &str, session_id: &str) -> String {
    format!("s:{}{SEPARATOR}{}", escaped(namespace), escaped(session_id))
}

/// What a server waits for. A row without a type name was written by an older release.
const LOOK: &str = "SELECT 'candidate', w.place, t.body
     FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::int8[]) WITH ORDINALITY
          w (namespace, kind, queue, types, most, place)
     CROSS JOIN LATERAL (
         (SELECT t.body FROM tasks t
          WHERE t.status = 'ready' AND t.session_id IS NULL
            AND t.namespace = w.namespace AND t.kind = w.kind AND t.queue = w.queue
            AND (w.types IS NULL OR t.type_name IS NULL OR t.type_name = ANY(string_to_array(w.types, E'\\x1f')))
            AND NOT EXISTS (SELECT 1 FROM taken k WHERE k.key = 't:' || t.task_id AND k.until > $6)
            AND t.task_id <> ALL($18::text[]) AND ($19::int8 IS NULL OR t.available_at <= $19 OR t.task_id = ANY($20::text[]))
          ORDER BY t.priority, t.available_at, t.task_id LIMIT w.most)
         UNION ALL
         (WITH RECURSIVE classes (priority, fairness_key, number) AS (
              (SELECT t.priority, t.fairness_key, 1::int8 FROM tasks t
               WHERE t.status = 'ready' AND t.session_id IS NULL AND t.fairness_key IS NOT NULL
                 AND t.namespace = w.namespace AND t.kind = w.kind AND t.queue = w.queue
               ORDER BY t.priority, t.fairness_key LIMIT 1)
              UNION ALL
              SELECT n.priority, n.fairness_key, c.number + 1 FROM classes c
              CROSS JOIN LATERAL (
                  SELECT t.priority, t.fairness_key FROM tasks t
                  WHERE t.status = 'ready' AND t.session_id IS NULL AND t.fairness_key IS NOT NULL
                    AND t.namespace = w.namespace AND t.kind = w.kind AND t.queue = w.queue
                    AND (t.priority, t.fairness_key) > (c.priority, c.fairness_key)
                  ORDER BY t.priority, t.fairness_key LIMIT 1) n
              WHERE c.number < $7)
          SELECT f.body FROM classes c CROSS JOIN LATERAL (
              SELECT t.body FROM tasks t
              WHERE t.status = 'ready' AND t.session_id IS NULL AND t.fairness_key IS NOT NULL
                AND t.namespace = w.namespace AND t.kind = w.kind AND t.queue = w.queue
                AND t.priority = c.priority AND t.fairness_key = c.fairness_key
                AND (w.types IS NULL OR t.type_name IS NULL OR t.type_name = ANY(string_to_array(w.types, E'\\x1f')))
                AND NOT EXISTS (SELECT 1 FROM taken k WHERE k.key = 't:' || t.task_id AND k.until > $6)
                AND t.task_id <> ALL($18::text[]) AND ($19::int8 IS NULL OR t.available_at <= $19 OR t.task_id = ANY($20::text[]))
              ORDER BY t.available_at, t.task_id LIMIT 1) f)
     ) t
     UNION ALL
     SELECT 'in session', 0, t.body FROM (
         SELECT DISTINCT t.body FROM unnest($8::text[], $9::text[], $10::text[]) w (namespace, queue, worker)
         CROSS JOIN LATERAL (
             SELECT t.body FROM tasks t
             LEFT JOIN worker_sessions s ON s.namespace = t.namespace AND s.session_id = t.session_id
             WHERE t.status = 'ready' AND t.session_id IS NOT NULL
               AND t.namespace = w.namespace AND t.kind = 'activity' AND t.queue = w.queue
               AND (s.session_id IS NULL OR s.status <> 'active' OR s.lease_owner = w.worker)
             ORDER BY t.priority, t.available_at, t.task_id LIMIT $11) t) t
     UNION ALL
     SELECT 'leased', 0, t.body FROM (
         SELECT DISTINCT t.body
         FROM unnest($12::text[], $13::text[], $14::text[], $15::text[]) w (namespace, kind, queue, worker)
         JOIN tasks t ON t.status = 'leased' AND t.namespace = w.namespace AND t.kind = w.kind AND t.queue = w.queue
          AND t.lease_owner = w.worker) t
     UNION ALL
     SELECT 'run', s.version, s.run_id FROM unnest($16::text[], $17::int8[]) w (run_id, version)
     JOIN run_states s ON s.run_id = w.run_id AND s.version <> w.version";

/// Takes what no server has, or what one has no longer. Keys are taken in their order, so that two servers cannot wait for each other.
const TAKE: &str = "INSERT INTO taken (key, server, until, due_at)
     SELECT n.key, $3, $4, n.due_at FROM unnest($1::text[], $2::int8[]) n (key, due_at) ORDER BY n.key
     ON CONFLICT (key) DO UPDATE SET server = excluded.server, until = excluded.until, due_at = excluded.due_at
     WHERE taken.until <= $5 OR (excluded.due_at IS NOT NULL
           AND (taken.due_at IS DISTINCT FROM excluded.due_at OR taken.server = excluded.server))
     RETURNING key";

/// Leaves tasks to other servers before their time.
const RELEASE: &str = "DELETE FROM taken WHERE key = ANY($1::text[]) AND server = $2";

const DUE_RUNS: &str = "SELECT 'r:' || a.run_id, a.alarm, a.run_id, '' FROM run_alarms a
     WHERE a.alarm <= $1 AND NOT EXISTS (
         SELECT 1 FROM taken k WHERE k.key = 'r:' || a.run_id AND k.until > $1 AND k.due_at = a.alarm AND k.server <> $3)
     ORDER BY a.alarm, a.run_id LIMIT $2";

const DUE_SESSIONS: &str = "SELECT 's:' || s.namespace || E'\\x1f' || s.session_id, s.deadline, s.session_id, s.body FROM worker_sessions s
     WHERE s.deadline <= $1 AND NOT EXISTS (
         SELECT 1 FROM taken k WHERE k.key = 's:' || s.namespace || E'\\x1f' || s.session_id AND k.until > $1
         AND k.due_at = s.deadline AND k.server <> $3)
     ORDER BY s.deadline, s.namespace, s.session_id LIMIT $2";
