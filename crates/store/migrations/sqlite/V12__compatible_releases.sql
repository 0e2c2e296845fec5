-- Which programs may use a file that a later release migrated. Every migration from this one on inserts a row about itself with the
-- oldest schema that a program may have been built for. A program opens a newer schema if all migrations that it does not know have
-- such a row. So a migration without a row excludes all earlier releases.
CREATE TABLE schema_compatibility (
    version        INTEGER PRIMARY KEY,
    oldest_program INTEGER NOT NULL
) STRICT;

INSERT INTO schema_compatibility (version, oldest_program) VALUES (12, 12);
