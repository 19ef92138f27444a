-- Data directories whose accounts `enrich copy` has copied here.
CREATE TABLE copied_store (
    id bytea  PRIMARY KEY CHECK (length(id) = 16),
    at bigint NOT NULL
);
