-- Finding runs: attribute definitions, the index of attribute values, and columns and indexes for the system fields of queries.

-- When the run closed; written once, with the status.
ALTER TABLE runs ADD COLUMN closed_at INTEGER;

CREATE INDEX runs_by_queue ON runs (namespace, task_queue, started_at, run_id);
-- Both hold only the runs that have the thing, so the others pay nothing.
CREATE INDEX runs_by_build ON runs (namespace, compatibility, started_at, run_id) WHERE compatibility IS NOT NULL;
CREATE INDEX runs_by_close ON runs (namespace, closed_at) WHERE closed_at IS NOT NULL;

-- What a namespace has defined.
CREATE TABLE search_attributes (
    namespace TEXT NOT NULL,
    name      TEXT NOT NULL,
    type      TEXT NOT NULL,
    PRIMARY KEY (namespace, name)
) STRICT, WITHOUT ROWID;

-- One row per value of an attribute of a run; a list has one per string. The kind tells values apart that must never be
-- compared; a value has its own type: text, integer (also times and flags), or real.
CREATE TABLE run_attributes (
    run_key     INTEGER NOT NULL,
    name        TEXT    NOT NULL,
    kind        TEXT    NOT NULL,
    value       ANY     NOT NULL,
    namespace   TEXT    NOT NULL,
    list_status TEXT    NOT NULL,
    started_at  INTEGER NOT NULL,
    run_id      TEXT    NOT NULL,
    PRIMARY KEY (run_key, name, kind, value)
) STRICT, WITHOUT ROWID;

-- The runs of one value, status by status in the order of lists: what is asked most often is which of them are open.
CREATE INDEX run_attributes_by_value ON run_attributes (namespace, name, kind, value, list_status, started_at, run_id);

-- Rows that earlier releases did not write, and that only the program can compute. Done and struck out when the file is opened.
CREATE TABLE rebuilds (
    name TEXT NOT NULL PRIMARY KEY
) STRICT, WITHOUT ROWID;

INSERT INTO rebuilds (name) VALUES ('visibility');
