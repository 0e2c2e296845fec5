-- Searching definition runs. Their list status is the status that their own API shows: RUNNING, PAUSED, COMPLETED, FAILED, TIMED_OUT,
-- TERMINATED. So the indexes of lists serve both programs, a list of one program never meets the runs of the other, and a count by
-- type and status reads an index alone.

-- Both are null in runs of code. They are written with the status.
ALTER TABLE runs ADD COLUMN correlation_id TEXT;
ALTER TABLE runs ADD COLUMN parent_id TEXT;

UPDATE runs SET
    list_status = CASE json_extract(state, '$.closed.reason')
        WHEN 'completed' THEN 'COMPLETED'
        WHEN 'continued' THEN 'COMPLETED'
        WHEN 'failed' THEN 'FAILED'
        WHEN 'timed_out' THEN 'TIMED_OUT'
        WHEN 'cancelled' THEN 'TERMINATED'
        WHEN 'terminated' THEN 'TERMINATED'
        ELSE iif(json_extract(state, '$.execution.paused'), 'PAUSED', 'RUNNING')
    END,
    correlation_id = json_extract(state, '$.execution.correlation_id'),
    parent_id = (SELECT json_extract(body, '$.parent.workflow_id') FROM run_specs WHERE run_specs.run_key = runs.run_key)
WHERE task_queue = '' AND json_extract(state, '$.execution') IS NOT NULL;

-- Both hold only the runs that have the thing, so the others pay nothing.
CREATE INDEX runs_by_correlation ON runs (namespace, correlation_id, started_at, run_id) WHERE correlation_id IS NOT NULL;
CREATE INDEX runs_by_parent ON runs (namespace, parent_id, started_at, run_id) WHERE parent_id IS NOT NULL;
