-- Shares of rates and turns of jobs are of no use after a crash either, so they are stored without a log, as questions are.
ALTER TABLE documents DETACH PARTITION documents_volatile;
ALTER TABLE documents ATTACH PARTITION documents_volatile FOR VALUES IN ('question', 'rate', 'turn');

INSERT INTO schema_compatibility (version, oldest_program) VALUES (15, 12);
