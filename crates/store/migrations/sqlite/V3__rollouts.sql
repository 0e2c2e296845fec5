-- What operators said about the builds of a queue: drained, promoted, rolled back. Few rows, read whole at start.
CREATE TABLE rollouts (
    namespace  TEXT NOT NULL,
    task_queue TEXT NOT NULL,
    -- Empty for workers without a build id; no build id is empty.
    build_id   TEXT NOT NULL,
    body       TEXT NOT NULL,
    PRIMARY KEY (namespace, task_queue, build_id)
) STRICT, WITHOUT ROWID;
