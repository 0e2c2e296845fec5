-- The first schema. Never edited once released: the next change is V2.
--
-- Wide rows sit in rowid tables: a WITHOUT ROWID row above a quarter of a page spills to an overflow page of its own, and
-- rows inside interior pages make the tree deep. Narrow rows keyed by more than one column are WITHOUT ROWID.
-- Bodies are JSON of the engine's types; a column beside a body exists only because something selects by it or shows it
-- in lists. Times are microseconds since the epoch.

-- One row per run, rewritten by every transition. What is read by the version check stands first, the body last.
CREATE TABLE runs (
    run_key       INTEGER PRIMARY KEY,
    run_id        TEXT    NOT NULL UNIQUE,
    version       INTEGER NOT NULL,
    -- When the run next needs attention by itself; null when never, and always null in a closed run.
    alarm         INTEGER,
    -- running, completed, failed, cancelled, terminated: changes once, at close, so transitions leave the list indexes alone.
    list_status   TEXT    NOT NULL,
    namespace     TEXT    NOT NULL,
    workflow_id   TEXT    NOT NULL,
    run_number    INTEGER NOT NULL,
    workflow_type TEXT    NOT NULL,
    task_queue    TEXT    NOT NULL,
    business_key  TEXT,
    compatibility TEXT,
    started_at    INTEGER NOT NULL,
    state         TEXT    NOT NULL
) STRICT;

-- A list without a status filter merges the five statuses: two indexes serve every filter, and none is scanned in vain.
CREATE INDEX runs_by_status ON runs (namespace, list_status, started_at, run_id);
CREATE INDEX runs_by_type ON runs (namespace, workflow_type, list_status, started_at, run_id);
CREATE INDEX runs_by_alarm ON runs (alarm, run_id) WHERE alarm IS NOT NULL;

-- What was decided at the start, arguments included: possibly megabytes, written once, so not in the row above.
CREATE TABLE run_specs (
    run_key INTEGER PRIMARY KEY,
    body    TEXT NOT NULL
) STRICT;

-- Every run of a workflow; the highest number is the current one.
CREATE TABLE workflow_runs (
    namespace   TEXT    NOT NULL,
    workflow_id TEXT    NOT NULL,
    run_number  INTEGER NOT NULL,
    run_key     INTEGER NOT NULL,
    PRIMARY KEY (namespace, workflow_id, run_number)
) STRICT, WITHOUT ROWID;

-- Things open in a run: `activity:3`, `timer:7`, `outcome`.
CREATE TABLE run_parts (
    run_key INTEGER NOT NULL,
    part    TEXT    NOT NULL,
    body    TEXT    NOT NULL,
    PRIMARY KEY (run_key, part)
) STRICT, WITHOUT ROWID;

-- History, in the order in which it was written: appending is dense, whatever run an event belongs to. Keyed by run instead,
-- every transition rewrote (and often split) a page of its own, which cost more than all other rows together.
CREATE TABLE events (
    event_key           INTEGER PRIMARY KEY,
    run_key             INTEGER NOT NULL,
    sequence            INTEGER NOT NULL,
    id                  TEXT    NOT NULL,
    event_type          TEXT    NOT NULL,
    recorded_at         INTEGER NOT NULL,
    workflow_task_id    TEXT,
    workflow_command_id TEXT,
    principal           TEXT,
    payload             TEXT    NOT NULL
) STRICT;

CREATE UNIQUE INDEX events_by_run ON events (run_key, sequence);

CREATE TABLE tasks (
    task_key     INTEGER PRIMARY KEY,
    task_id      TEXT    NOT NULL UNIQUE,
    status       TEXT    NOT NULL,
    namespace    TEXT    NOT NULL,
    kind         TEXT    NOT NULL,
    queue        TEXT    NOT NULL,
    priority     INTEGER NOT NULL,
    available_at INTEGER NOT NULL,
    lease_owner  TEXT,
    body         TEXT    NOT NULL
) STRICT;

-- Both hold open work only: a finished task leaves no entry behind.
CREATE INDEX tasks_ready ON tasks (namespace, kind, queue, priority, available_at, task_id) WHERE status = 'ready';
CREATE INDEX tasks_leased ON tasks (task_id, namespace, kind, queue, lease_owner) WHERE status = 'leased';

-- External commands, numbered per workflow.
CREATE TABLE commands (
    run_key  INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    body     TEXT    NOT NULL,
    PRIMARY KEY (run_key, sequence)
) STRICT, WITHOUT ROWID;

-- The command that a request id stands for.
CREATE TABLE requests (
    namespace   TEXT    NOT NULL,
    workflow_id TEXT    NOT NULL,
    request_id  TEXT    NOT NULL,
    run_key     INTEGER NOT NULL,
    sequence    INTEGER NOT NULL,
    PRIMARY KEY (namespace, workflow_id, request_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE namespaces (
    name TEXT NOT NULL PRIMARY KEY,
    body TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE workers (
    namespace TEXT NOT NULL,
    worker_id TEXT NOT NULL,
    body      TEXT NOT NULL,
    PRIMARY KEY (namespace, worker_id)
) STRICT, WITHOUT ROWID;

-- For people with the sqlite3 shell.
CREATE VIEW history AS
SELECT runs.run_id, events.sequence, events.id, events.event_type,
       datetime(events.recorded_at / 1000000, 'unixepoch') AS recorded_at, events.payload
FROM runs JOIN events USING (run_key);
