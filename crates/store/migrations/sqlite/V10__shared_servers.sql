-- Registry documents have a version. A write names the version that it is based on, so that it never undoes a change which it has not
-- seen.
ALTER TABLE documents ADD COLUMN version INTEGER NOT NULL DEFAULT 1;
