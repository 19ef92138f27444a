-- Stores of one node that were moved here, or are on their way: `enrich copy`.

CREATE TABLE copied_store (
    id          uuid        PRIMARY KEY,
    started_at  timestamptz NOT NULL,
    finished_at timestamptz,
    rows        bigint      NOT NULL DEFAULT 0, -- that are here
    -- The last of each ledger that is here, in the order of the other store.
    grants      bigint      NOT NULL DEFAULT 0,
    voids       uuid,
    spends      uuid
);

-- Until its store is finished, a workspace has no keys and its totals are 0: nobody spends from half a ledger.
CREATE TABLE copied_workspace (
    store        uuid   NOT NULL REFERENCES copied_store,
    source_rowid bigint NOT NULL, -- in the other store
    workspace    bigint NOT NULL UNIQUE REFERENCES workspace,
    PRIMARY KEY (store, source_rowid)
);
