-- Sessions of workers: who holds a place where several activities must run. One row per id, rewritten by every use of it.
CREATE TABLE worker_sessions (
    session_key INTEGER PRIMARY KEY,
    namespace   TEXT    NOT NULL,
    session_id  TEXT    NOT NULL,
    version     INTEGER NOT NULL,
    status      TEXT    NOT NULL,
    queue       TEXT    NOT NULL,
    lease_owner TEXT    NOT NULL,
    -- When time alone changes it next; null when it is final.
    deadline    INTEGER,
    -- When it became final; null before.
    ended_at    INTEGER,
    updated_at  INTEGER NOT NULL,
    body        TEXT    NOT NULL
) STRICT;

CREATE UNIQUE INDEX worker_sessions_by_id ON worker_sessions (namespace, session_id);
CREATE INDEX worker_sessions_due ON worker_sessions (deadline, namespace, session_id) WHERE deadline IS NOT NULL;
CREATE INDEX worker_sessions_held ON worker_sessions (namespace, lease_owner, session_id) WHERE status = 'active';
CREATE INDEX worker_sessions_listed ON worker_sessions (namespace, updated_at DESC, session_id);
CREATE INDEX worker_sessions_counted ON worker_sessions (namespace, status);
CREATE INDEX worker_sessions_ended ON worker_sessions (namespace, ended_at) WHERE ended_at IS NOT NULL;

-- The session that an activity task must run in. Both indexes hold open work of sessions only, so other tasks pay nothing.
ALTER TABLE tasks ADD COLUMN session_id TEXT;
CREATE INDEX tasks_leased_in_session ON tasks (namespace, session_id, task_id) WHERE status = 'leased' AND session_id IS NOT NULL;
CREATE INDEX tasks_ready_in_session ON tasks (namespace, kind, queue, priority, available_at, task_id)
WHERE status = 'ready' AND session_id IS NOT NULL;
