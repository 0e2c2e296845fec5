-- The writers of several servers are in PostgreSQL only.
INSERT INTO schema_compatibility (version, oldest_program) VALUES (13, 12);
