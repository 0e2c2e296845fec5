-- PostgreSQL has the version of each part of a run from here on. A server alone on its store has the newest copy.
INSERT INTO schema_compatibility (version, oldest_program) VALUES (14, 12);
