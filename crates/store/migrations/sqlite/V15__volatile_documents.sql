-- Documents that pass between servers are in PostgreSQL only.
INSERT INTO schema_compatibility (version, oldest_program) VALUES (15, 12);
