-- Which programs may use a database that a later release migrated. Every migration from this one on inserts a row about itself with
-- the oldest schema that a program may have been built for. A program opens a newer schema if all migrations that it does not know
-- have such a row. So a migration without a row excludes all earlier releases.
CREATE TABLE schema_compatibility (
    version        int4 PRIMARY KEY,
    oldest_program int4 NOT NULL
);

INSERT INTO schema_compatibility (version, oldest_program) VALUES (12, 12);
