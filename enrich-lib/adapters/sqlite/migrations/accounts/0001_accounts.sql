-- Workspaces, their keys and their credits. Times are milliseconds since the Unix epoch.

CREATE TABLE workspace (
    rowid          INTEGER PRIMARY KEY,
    id             TEXT    NOT NULL UNIQUE,
    quota_limit    INTEGER NOT NULL CHECK (quota_limit >= 1),
    window_seconds INTEGER NOT NULL CHECK (window_seconds BETWEEN 1 AND 86400),
    created_at     INTEGER NOT NULL,
    -- Running totals of the ledgers below, changed in the transaction that adds to them.
    granted        INTEGER NOT NULL DEFAULT 0 CHECK (granted >= 0),
    spent          INTEGER NOT NULL DEFAULT 0 CHECK (spent BETWEEN 0 AND granted),
    -- What the serving process holds in memory, as of its last tick: for showing, never for deciding.
    held           INTEGER NOT NULL DEFAULT 0 CHECK (held >= 0)
) STRICT;

CREATE TABLE api_key (
    rowid        INTEGER PRIMARY KEY,
    id           TEXT    NOT NULL UNIQUE,
    workspace    INTEGER NOT NULL REFERENCES workspace,
    label        TEXT    NOT NULL,
    digest       BLOB    NOT NULL UNIQUE CHECK (length(digest) = 32),
    masked       TEXT    NOT NULL,
    created_at   INTEGER NOT NULL,
    last_used_at INTEGER,
    revoked_at   INTEGER
) STRICT;

CREATE INDEX api_key_of_workspace ON api_key (workspace);

CREATE TABLE credit_grant (
    rowid     INTEGER PRIMARY KEY,
    workspace INTEGER NOT NULL REFERENCES workspace,
    credits   INTEGER NOT NULL CHECK (credits > 0),
    at        INTEGER NOT NULL
) STRICT;

-- One row a billed lookup: its id makes a repeated spend a no-op. There is no email in it.
CREATE TABLE credit_spend (
    lookup_id BLOB    PRIMARY KEY CHECK (length(lookup_id) = 16),
    workspace INTEGER NOT NULL REFERENCES workspace,
    credits   INTEGER NOT NULL CHECK (credits > 0),
    at        INTEGER NOT NULL -- when the lookup arrived
) STRICT, WITHOUT ROWID;

-- Spends that were taken back, as nobody was told of them: their lookups were answered with 500, or not at all.
CREATE TABLE credit_void (
    lookup_id BLOB    PRIMARY KEY REFERENCES credit_spend,
    at        INTEGER NOT NULL -- when the lookup arrived
) STRICT, WITHOUT ROWID;

-- The ledgers are append-only.
CREATE TRIGGER credit_grant_stays BEFORE UPDATE ON credit_grant BEGIN SELECT RAISE(ABORT, 'grants are append-only'); END;
CREATE TRIGGER credit_grant_remains BEFORE DELETE ON credit_grant BEGIN SELECT RAISE(ABORT, 'grants are append-only'); END;
CREATE TRIGGER credit_spend_stays BEFORE UPDATE ON credit_spend BEGIN SELECT RAISE(ABORT, 'spends are append-only'); END;
CREATE TRIGGER credit_spend_remains BEFORE DELETE ON credit_spend BEGIN SELECT RAISE(ABORT, 'spends are append-only'); END;
CREATE TRIGGER credit_void_stays BEFORE UPDATE ON credit_void BEGIN SELECT RAISE(ABORT, 'voids are append-only'); END;
CREATE TRIGGER credit_void_remains BEFORE DELETE ON credit_void BEGIN SELECT RAISE(ABORT, 'voids are append-only'); END;
