-- When a server last said that it has this writer, so that the rows of servers that ended long ago can be removed. Null until a server
-- of this release has seen the row: servers of the release before do not write it.
ALTER TABLE writers ADD COLUMN seen_at bigint;

INSERT INTO schema_compatibility (version, oldest_program) VALUES (13, 12);
