-- The first schema for several servers. Never edited once released: the next change is V11.
--
-- An update writes a new version of its row and, unless no indexed column changes and the page has room, an entry in every index of
-- the table. So what every transition rewrites (version and state) stands in a table without further indexes, and what lists select
-- by and alarms stand apart. Pages of tables that are updated keep room for it.
--
-- Keys are ids, which are ordered by time. Text is ordered by bytes, as in the program. Bodies are JSON text and not jsonb, which
-- refuses U+0000 and changes numbers. Times are microseconds since the epoch and come from the servers, never from SQL.

-- What lists select by and show. Changes when the run closes, pauses or goes on.
CREATE TABLE runs (
    run_id         text COLLATE "C" PRIMARY KEY,
    namespace      text COLLATE "C" NOT NULL,
    workflow_id    text COLLATE "C" NOT NULL,
    run_number     bigint NOT NULL,
    workflow_type  text COLLATE "C" NOT NULL,
    task_queue     text COLLATE "C" NOT NULL,
    business_key   text COLLATE "C",
    compatibility  text COLLATE "C",
    started_at     bigint NOT NULL,
    list_status    text COLLATE "C" NOT NULL,
    closed_at      bigint,
    correlation_id text COLLATE "C",
    parent_id      text COLLATE "C"
);

CREATE INDEX runs_by_start ON runs (namespace, started_at, run_id);
CREATE INDEX runs_by_status ON runs (namespace, list_status, started_at, run_id);
CREATE INDEX runs_by_type ON runs (namespace, workflow_type, list_status, started_at, run_id);
CREATE INDEX runs_by_queue ON runs (namespace, task_queue, started_at, run_id);
CREATE INDEX runs_by_build ON runs (namespace, compatibility, started_at, run_id) WHERE compatibility IS NOT NULL;
CREATE INDEX runs_by_close ON runs (namespace, closed_at) WHERE closed_at IS NOT NULL;
CREATE INDEX runs_by_correlation ON runs (namespace, correlation_id, started_at, run_id) WHERE correlation_id IS NOT NULL;
CREATE INDEX runs_by_parent ON runs (namespace, parent_id, started_at, run_id) WHERE parent_id IS NOT NULL;

-- What every transition rewrites. The version decides which commit comes first. The other columns beside the state repeat what other
-- tables have, so that a commit knows what it changes there, or are what a search checks row by row.
CREATE TABLE run_states (
    run_id            text COLLATE "C" PRIMARY KEY,
    version           bigint NOT NULL,
    list_status       text COLLATE "C" NOT NULL,
    closed_at         bigint,
    alarm             bigint,
    status            text COLLATE "C" NOT NULL,
    -- The rest is null in runs of code.
    updated_at        bigint,
    definition        bigint,
    priority          bigint,
    created_by        text COLLATE "C",
    idempotency_key   text COLLATE "C",
    classifier        text COLLATE "C",
    reason            text COLLATE "C",
    failed_references text COLLATE "C",
    state             text NOT NULL
) WITH (fillfactor = 60);

-- When a run next needs attention by itself. A run without an alarm has no row.
CREATE TABLE run_alarms (
    run_id text COLLATE "C" PRIMARY KEY,
    alarm  bigint NOT NULL
) WITH (fillfactor = 80);

CREATE INDEX run_alarms_due ON run_alarms (alarm, run_id);

-- What was decided at the start, arguments included.
CREATE TABLE run_specs (
    run_id text COLLATE "C" PRIMARY KEY,
    body   text NOT NULL
);

-- Every run of a workflow; the highest number is the current one.
CREATE TABLE workflow_runs (
    namespace   text COLLATE "C" NOT NULL,
    workflow_id text COLLATE "C" NOT NULL,
    run_number  bigint NOT NULL,
    run_id      text COLLATE "C" NOT NULL,
    PRIMARY KEY (namespace, workflow_id, run_number)
);

-- Things open in a run: `activity:3`, `timer:7`, `outcome`.
CREATE TABLE run_parts (
    run_id   text COLLATE "C" NOT NULL,
    part     text COLLATE "C" NOT NULL,
    -- The input and the output of a definition run in lower case, if they are small enough to be searched.
    searched text COLLATE "C",
    body     text NOT NULL,
    PRIMARY KEY (run_id, part)
) WITH (fillfactor = 80);

CREATE TABLE events (
    run_id              text COLLATE "C" NOT NULL,
    sequence            bigint NOT NULL,
    id                  text COLLATE "C" NOT NULL,
    event_type          text COLLATE "C" NOT NULL,
    recorded_at         bigint NOT NULL,
    workflow_task_id    text COLLATE "C",
    workflow_command_id text COLLATE "C",
    principal           text,
    payload             text NOT NULL,
    PRIMARY KEY (run_id, sequence)
);

CREATE TABLE tasks (
    task_id      text COLLATE "C" PRIMARY KEY,
    status       text COLLATE "C" NOT NULL,
    namespace    text COLLATE "C" NOT NULL,
    kind         text COLLATE "C" NOT NULL,
    queue        text COLLATE "C" NOT NULL,
    priority     smallint NOT NULL,
    available_at bigint NOT NULL,
    lease_owner  text COLLATE "C",
    session_id   text COLLATE "C",
    body         text NOT NULL
) WITH (fillfactor = 80);

-- All of these hold open work only: a finished task leaves no entry behind.
CREATE INDEX tasks_ready ON tasks (namespace, kind, queue, priority, available_at, task_id)
    WHERE status = 'ready' AND session_id IS NULL;
CREATE INDEX tasks_ready_in_session ON tasks (namespace, kind, queue, priority, available_at, task_id)
    WHERE status = 'ready' AND session_id IS NOT NULL;
CREATE INDEX tasks_leased ON tasks (task_id, namespace, kind, queue, lease_owner) WHERE status = 'leased';
CREATE INDEX tasks_leased_in_session ON tasks (namespace, session_id, task_id)
    WHERE status = 'leased' AND session_id IS NOT NULL;
CREATE INDEX tasks_delayed ON tasks (namespace, queue) WHERE status = 'scheduled' AND kind = 'execution';

-- External commands, numbered per workflow.
CREATE TABLE commands (
    run_id   text COLLATE "C" NOT NULL,
    sequence bigint NOT NULL,
    body     text NOT NULL,
    PRIMARY KEY (run_id, sequence)
);

-- The command that a request id stands for.
CREATE TABLE requests (
    namespace   text COLLATE "C" NOT NULL,
    workflow_id text COLLATE "C" NOT NULL,
    request_id  text COLLATE "C" NOT NULL,
    run_id      text COLLATE "C" NOT NULL,
    sequence    bigint NOT NULL,
    PRIMARY KEY (namespace, workflow_id, request_id)
);

-- The idempotency keys of definition runs: the newest run that was started with a key of a workflow type.
CREATE TABLE workflow_keys (
    namespace     text COLLATE "C" NOT NULL,
    workflow_type text COLLATE "C" NOT NULL,
    key           text COLLATE "C" NOT NULL,
    run_id        text COLLATE "C" NOT NULL,
    PRIMARY KEY (namespace, workflow_type, key)
);

-- One row per value of a search attribute of a run. The kind tells values apart that must never be compared. A value is text whose
-- order by bytes is the order of the values of its kind, also for numbers and times.
CREATE TABLE run_attributes (
    run_id      text COLLATE "C" NOT NULL,
    name        text COLLATE "C" NOT NULL,
    kind        text COLLATE "C" NOT NULL,
    value       text COLLATE "C" NOT NULL,
    namespace   text COLLATE "C" NOT NULL,
    list_status text COLLATE "C" NOT NULL,
    started_at  bigint NOT NULL
);

CREATE INDEX run_attributes_by_run ON run_attributes (run_id, name, kind);
CREATE INDEX run_attributes_by_value ON run_attributes (namespace, name, kind, value, list_status, started_at, run_id);

-- Sessions of workers: who holds a place where several activities must run. One row per id, rewritten by every use of it.
CREATE TABLE worker_sessions (
    namespace   text COLLATE "C" NOT NULL,
    session_id  text COLLATE "C" NOT NULL,
    version     bigint NOT NULL,
    status      text COLLATE "C" NOT NULL,
    queue       text COLLATE "C" NOT NULL,
    lease_owner text COLLATE "C" NOT NULL,
    -- When time alone changes it next; null when it is final.
    deadline    bigint,
    -- When it became final; null before.
    ended_at    bigint,
    updated_at  bigint NOT NULL,
    body        text NOT NULL,
    PRIMARY KEY (namespace, session_id)
) WITH (fillfactor = 80);

CREATE INDEX worker_sessions_due ON worker_sessions (deadline, namespace, session_id) WHERE deadline IS NOT NULL;
CREATE INDEX worker_sessions_held ON worker_sessions (namespace, lease_owner, session_id) WHERE status = 'active';
CREATE INDEX worker_sessions_listed ON worker_sessions (namespace, updated_at DESC, session_id);
CREATE INDEX worker_sessions_counted ON worker_sessions (namespace, status);
CREATE INDEX worker_sessions_ended ON worker_sessions (namespace, ended_at) WHERE ended_at IS NOT NULL;

-- Logs of the tasks of definition runs. The text is a JSON string, because a line may contain U+0000.
CREATE TABLE task_logs (
    run_id     text COLLATE "C" NOT NULL,
    task       bigint NOT NULL,
    line       bigint NOT NULL,
    created_at bigint NOT NULL,
    text       text NOT NULL,
    PRIMARY KEY (run_id, task, line)
);

-- Registry documents. A write names the version that it is based on.
CREATE TABLE documents (
    kind      text COLLATE "C" NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    name      text COLLATE "C" NOT NULL,
    qualifier text COLLATE "C" NOT NULL,
    version   bigint NOT NULL,
    body      text NOT NULL,
    PRIMARY KEY (kind, namespace, name, qualifier)
) WITH (fillfactor = 80);

-- The newest batch of each writing connection. It shows whether a batch was stored whose connection broke during COMMIT.
CREATE TABLE writers (
    writer text COLLATE "C" PRIMARY KEY,
    batch  bigint NOT NULL
) WITH (fillfactor = 20);
