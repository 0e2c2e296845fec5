-- Searching the tasks of definition runs. The columns are null in rows of tasks of code, and all indexes are over the others.
ALTER TABLE tasks
    ADD COLUMN run_id         text COLLATE "C",
    -- The number of the task in its run.
    ADD COLUMN sequence       bigint,
    ADD COLUMN task_type      text COLLATE "C",
    ADD COLUMN def_name       text COLLATE "C",
    ADD COLUMN reference      text COLLATE "C",
    -- The status that clients see, such as COMPLETED.
    ADD COLUMN shown_status   text COLLATE "C",
    ADD COLUMN workflow_type  text COLLATE "C",
    ADD COLUMN correlation_id text COLLATE "C",
    ADD COLUMN domain         text COLLATE "C",
    ADD COLUMN scheduled_at   bigint,
    ADD COLUMN started_at     bigint,
    ADD COLUMN ended_at       bigint,
    ADD COLUMN updated_at     bigint;

-- Rows of earlier releases get their values from the records of the tasks, in the columns and in the body, from which a copy of the
-- store is made.
UPDATE tasks t SET
    run_id = f.run_id, sequence = f.sequence, task_type = f.record ->> 'task_type', def_name = f.record ->> 'def_name',
    reference = f.record ->> 'reference', shown_status = f.record ->> 'status', workflow_type = f.workflow_type,
    correlation_id = f.correlation_id, domain = f.record ->> 'domain',
    scheduled_at = (extract(epoch FROM (f.record ->> 'scheduled_at')::timestamptz) * 1000000)::bigint,
    started_at = (extract(epoch FROM (f.record ->> 'started_at')::timestamptz) * 1000000)::bigint,
    ended_at = (extract(epoch FROM (f.record ->> 'ended_at')::timestamptz) * 1000000)::bigint,
    updated_at = (extract(epoch FROM (f.record ->> 'updated_at')::timestamptz) * 1000000)::bigint,
    body = left(t.body, -1) || ',"found_by":' || json_build_object(
        'task_type', f.record -> 'task_type', 'def_name', f.record -> 'def_name', 'reference', f.record -> 'reference',
        'status', f.record -> 'status', 'workflow_type', f.workflow_type, 'correlation_id', f.correlation_id,
        'domain', f.record -> 'domain', 'scheduled_at', f.record -> 'scheduled_at', 'started_at', f.record -> 'started_at',
        'ended_at', f.record -> 'ended_at', 'updated_at', f.record -> 'updated_at')::text || '}'
FROM (
    SELECT x.task_id, r.run_id, r.workflow_type, r.correlation_id, (x.body::json ->> 'sequence')::bigint AS sequence,
           coalesce(p.body::json -> 'task', p.body::json -> 'past') AS record
    FROM tasks x
    JOIN runs r ON r.run_id = x.body::json ->> 'run_id'
    JOIN run_parts p ON p.run_id = r.run_id
        AND p.part IN ('task:' || (x.body::json ->> 'sequence'), 'past:' || (x.body::json ->> 'sequence'))
    WHERE x.kind = 'execution'
) f
WHERE f.task_id = t.task_id;

CREATE INDEX tasks_found_by_status ON tasks (namespace, shown_status, started_at, task_id) WHERE shown_status IS NOT NULL;
CREATE INDEX tasks_found_by_type ON tasks (namespace, task_type, shown_status, started_at, task_id) WHERE shown_status IS NOT NULL;
-- Tasks for workers have the name of their definition as type, and are found by that.
CREATE INDEX tasks_found_by_definition ON tasks (namespace, def_name, shown_status, started_at, task_id)
    WHERE shown_status IS NOT NULL AND def_name <> task_type;
CREATE INDEX tasks_found_by_run ON tasks (run_id, sequence) WHERE shown_status IS NOT NULL;

-- Earlier programs do not write these columns, and cannot read the inbox of a run.
INSERT INTO schema_compatibility (version, oldest_program) VALUES (16, 16);
