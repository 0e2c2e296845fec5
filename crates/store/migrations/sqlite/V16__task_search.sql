-- Searching the tasks of definition runs. The columns are null in rows of tasks of code, and all indexes are over the others.
ALTER TABLE tasks ADD COLUMN run_id TEXT;
-- The number of the task in its run.
ALTER TABLE tasks ADD COLUMN sequence INTEGER;
ALTER TABLE tasks ADD COLUMN task_type TEXT;
ALTER TABLE tasks ADD COLUMN def_name TEXT;
ALTER TABLE tasks ADD COLUMN reference TEXT;
-- The status that clients see, such as COMPLETED.
ALTER TABLE tasks ADD COLUMN shown_status TEXT;
ALTER TABLE tasks ADD COLUMN workflow_type TEXT;
ALTER TABLE tasks ADD COLUMN correlation_id TEXT;
ALTER TABLE tasks ADD COLUMN domain TEXT;
ALTER TABLE tasks ADD COLUMN scheduled_at INTEGER;
ALTER TABLE tasks ADD COLUMN started_at INTEGER;
ALTER TABLE tasks ADD COLUMN ended_at INTEGER;
ALTER TABLE tasks ADD COLUMN updated_at INTEGER;

-- Rows of earlier releases get their values from the records of the tasks, in the columns and in the body, from which a copy of the
-- store is made. A time is text with microseconds.
CREATE TEMP TABLE found_tasks AS
SELECT t.task_key, r.run_id, r.workflow_type, r.correlation_id, CAST(t.body ->> '$.sequence' AS INTEGER) AS sequence,
       coalesce(p.body -> '$.task', p.body -> '$.past') AS record
FROM tasks t
JOIN runs r ON r.run_id = t.body ->> '$.run_id'
JOIN run_parts p ON p.run_key = r.run_key
    AND p.part IN ('task:' || (t.body ->> '$.sequence'), 'past:' || (t.body ->> '$.sequence'))
WHERE t.kind = 'execution';

UPDATE tasks SET
    run_id = f.run_id, sequence = f.sequence, task_type = f.record ->> '$.task_type', def_name = f.record ->> '$.def_name',
    reference = f.record ->> '$.reference', shown_status = f.record ->> '$.status', workflow_type = f.workflow_type,
    correlation_id = f.correlation_id, domain = f.record ->> '$.domain',
    scheduled_at = CAST(strftime('%s', f.record ->> '$.scheduled_at') AS INTEGER) * 1000000
        + CAST(substr(f.record ->> '$.scheduled_at', 21, 6) AS INTEGER),
    started_at = CAST(strftime('%s', f.record ->> '$.started_at') AS INTEGER) * 1000000
        + CAST(substr(f.record ->> '$.started_at', 21, 6) AS INTEGER),
    ended_at = CAST(strftime('%s', f.record ->> '$.ended_at') AS INTEGER) * 1000000
        + CAST(substr(f.record ->> '$.ended_at', 21, 6) AS INTEGER),
    updated_at = CAST(strftime('%s', f.record ->> '$.updated_at') AS INTEGER) * 1000000
        + CAST(substr(f.record ->> '$.updated_at', 21, 6) AS INTEGER),
    body = json_set(tasks.body, '$.found_by', json_object(
        'task_type', f.record ->> '$.task_type', 'def_name', f.record ->> '$.def_name', 'reference', f.record ->> '$.reference',
        'status', f.record ->> '$.status', 'workflow_type', f.workflow_type, 'correlation_id', f.correlation_id,
        'domain', f.record ->> '$.domain', 'scheduled_at', f.record ->> '$.scheduled_at',
        'started_at', f.record ->> '$.started_at', 'ended_at', f.record ->> '$.ended_at',
        'updated_at', f.record ->> '$.updated_at'))
FROM found_tasks f WHERE f.task_key = tasks.task_key;

DROP TABLE found_tasks;

CREATE INDEX tasks_found_by_status ON tasks (namespace, shown_status, started_at, task_id) WHERE shown_status IS NOT NULL;
CREATE INDEX tasks_found_by_type ON tasks (namespace, task_type, shown_status, started_at, task_id) WHERE shown_status IS NOT NULL;
-- Tasks for workers have the name of their definition as type, and are found by that.
CREATE INDEX tasks_found_by_definition ON tasks (namespace, def_name, shown_status, started_at, task_id)
WHERE shown_status IS NOT NULL AND def_name <> task_type;
CREATE INDEX tasks_found_by_run ON tasks (run_id, sequence) WHERE shown_status IS NOT NULL;

-- Earlier programs do not write these columns, and cannot read the inbox of a run.
INSERT INTO schema_compatibility (version, oldest_program) VALUES (16, 16);
