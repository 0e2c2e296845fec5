-- What several servers on one database share out.

-- By these, a server finds the tasks that its waiting polls accept. Null in rows that an older release wrote: then the body decides.
ALTER TABLE tasks ADD COLUMN type_name text COLLATE "C";
ALTER TABLE tasks ADD COLUMN fairness_key text COLLATE "C";

-- The ready tasks of each fairness class, so that a class with many tasks does not hide the others.
CREATE INDEX tasks_ready_by_class ON tasks (namespace, kind, queue, priority, fairness_key, available_at, task_id)
    WHERE status = 'ready' AND session_id IS NULL AND fairness_key IS NOT NULL;

-- Leases are counted by queue and by task definition, and found by poll.
DROP INDEX tasks_leased;
CREATE INDEX tasks_leased ON tasks (namespace, kind, queue, type_name, lease_owner, task_id) WHERE status = 'leased';

-- Work that a server took for a moment: ready tasks for its polls, due runs and sessions. A row says who tries first, nothing more,
-- so that losing the table costs a few attempts in vain.
CREATE UNLOGGED TABLE taken (
    key    text COLLATE "C" PRIMARY KEY,
    server text COLLATE "C" NOT NULL,
    until  bigint NOT NULL,
    -- The alarm or deadline that it was taken for.
    due_at bigint
) WITH (fillfactor = 50);

-- Questions pass between servers as documents that are of no use after a crash. They stand in a table of their own, without a log.
ALTER TABLE documents RENAME TO documents_kept;
ALTER INDEX documents_pkey RENAME TO documents_kept_pkey;

CREATE TABLE documents (
    kind      text COLLATE "C" NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    name      text COLLATE "C" NOT NULL,
    qualifier text COLLATE "C" NOT NULL,
    version   bigint NOT NULL,
    body      text NOT NULL,
    PRIMARY KEY (kind, namespace, name, qualifier)
) PARTITION BY LIST (kind);

ALTER TABLE documents ATTACH PARTITION documents_kept DEFAULT;

CREATE UNLOGGED TABLE documents_volatile PARTITION OF documents FOR VALUES IN ('question') WITH (fillfactor = 50);
