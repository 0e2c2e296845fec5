-- Registry documents: namespaces, search attribute definitions, workers and rollouts, one table instead of four. They are few, small,
-- written seldom and read by key or whole. Kinds that come later need no migration.
CREATE TABLE documents (
    kind      TEXT NOT NULL,
    -- Empty for a document that belongs to no namespace.
    namespace TEXT NOT NULL,
    name      TEXT NOT NULL,
    -- Tells documents of one name apart, such as the builds of a queue; empty where a name is enough.
    qualifier TEXT NOT NULL,
    body      TEXT NOT NULL,
    PRIMARY KEY (kind, namespace, name, qualifier)
) STRICT, WITHOUT ROWID;

INSERT INTO documents SELECT 'namespace', '', name, '', body FROM namespaces;
INSERT INTO documents
SELECT 'search_attribute', namespace, name, '',
       json_object('namespace', namespace, 'name', name, 'attribute_type', type)
FROM search_attributes;
INSERT INTO documents SELECT 'worker', namespace, worker_id, '', body FROM workers;
INSERT INTO documents SELECT 'rollout', namespace, task_queue, build_id, body FROM rollouts;

DROP TABLE namespaces;
DROP TABLE search_attributes;
DROP TABLE workers;
DROP TABLE rollouts;
