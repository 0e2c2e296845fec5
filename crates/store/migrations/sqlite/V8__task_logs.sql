-- Logs of the tasks of definition runs, apart from the history: no decision reads them, and each task keeps its newest lines only. They
-- are keyed by their run, so that one range holds everything that is deleted with it.
CREATE TABLE task_logs (
    run_key    INTEGER NOT NULL,
    -- The number of the task in its run.
    task       INTEGER NOT NULL,
    -- The number of the line in the log of the task.
    line       INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    text       TEXT    NOT NULL
) STRICT;

CREATE UNIQUE INDEX task_logs_by_task ON task_logs (run_key, task, line);

-- Tasks of definition runs that become ready later, for the sizes of queues.
CREATE INDEX tasks_delayed ON tasks (namespace, queue) WHERE status = 'scheduled' AND kind = 'execution';
