-- What changed in a run since a version, so that a server with an older copy need not read all of it.

-- The version of the run that wrote the part. Null if an earlier release wrote it.
ALTER TABLE run_parts ADD COLUMN version bigint;

-- The newest commit that wrote the versions of its parts, and the first one since which all commits have. A commit of an earlier release
-- leaves both as they are, so the first is then behind the version of the run.
ALTER TABLE run_states ADD COLUMN parts_version bigint;
ALTER TABLE run_states ADD COLUMN parts_since bigint;

INSERT INTO schema_compatibility (version, oldest_program) VALUES (14, 12);
