-- The idempotency keys of definition runs: the newest run that was started with a key of a workflow type.
CREATE TABLE workflow_keys (
    namespace     TEXT NOT NULL,
    workflow_type TEXT NOT NULL,
    key           TEXT NOT NULL,
    run_key       INTEGER NOT NULL REFERENCES runs (run_key),
    PRIMARY KEY (namespace, workflow_type, key)
) STRICT, WITHOUT ROWID;
