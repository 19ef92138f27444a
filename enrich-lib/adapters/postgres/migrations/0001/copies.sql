-- Single-node stores that were copied here, or are being copied, by `enrich copy`.

CREATE TABLE copied_store (
    id          bytea  PRIMARY KEY,
    started_at  bigint NOT NULL,
    finished_at bigint,
    rows        bigint NOT NULL DEFAULT 0, -- copied so far
    -- The last row copied of each table, in the order of the source store.
    grants      bigint NOT NULL DEFAULT 0,
    spends      bytea
);

-- Until the copy is finished, the workspace has no keys and its totals are 0, so that nothing can be spent.
CREATE TABLE copied_workspace (
    store        bytea  NOT NULL REFERENCES copied_store,
    source_rowid bigint NOT NULL, -- in the source store
    workspace    bigint NOT NULL UNIQUE REFERENCES workspace,
    PRIMARY KEY (store, source_rowid)
);
