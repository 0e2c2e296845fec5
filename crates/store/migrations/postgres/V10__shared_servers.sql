-- Registry documents: namespaces, workers, rollouts and the like, one row each.
CREATE TABLE documents (
    kind text COLLATE "C" NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    qualifier text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    body text NOT NULL,
    PRIMARY KEY (kind, namespace, name, qualifier)
);
