-- Workspaces, their keys and their credits. Times are milliseconds since the Unix epoch.

CREATE TABLE workspace (
    rowid          INTEGER PRIMARY KEY,
    id             TEXT    NOT NULL UNIQUE,
    quota_limit    INTEGER NOT NULL CHECK (quota_limit >= 1),
    window_seconds INTEGER NOT NULL CHECK (window_seconds BETWEEN 1 AND 86400),
    created_at     INTEGER NOT NULL,
    -- Running totals of the tables below. `granted` is updated with each grant. `spent` lags behind: it includes the
    -- spends up to `spent_until`. The view `account` returns complete totals.
    granted        INTEGER NOT NULL DEFAULT 0 CHECK (granted >= 0),
    spent          INTEGER NOT NULL DEFAULT 0 CHECK (spent BETWEEN 0 AND granted),
    -- Credits held by the serving process at its last tick. Informational: no decision depends on it.
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

-- One row per billed lookup, without its email. The lookup id, which begins with the time, makes a repeated spend a no-op.
-- The workspace is checked when its first spend is written, not with each row.
CREATE TABLE credit_spend (
    lookup_id BLOB    PRIMARY KEY CHECK (length(lookup_id) = 16),
    workspace INTEGER NOT NULL,
    credits   INTEGER NOT NULL CHECK (credits > 0),
    at        INTEGER NOT NULL -- when the lookup arrived
) STRICT, WITHOUT ROWID;

-- Voided spends. Their lookups were answered with 500, or not at all.
CREATE TABLE credit_void (
    lookup_id BLOB    PRIMARY KEY REFERENCES credit_spend,
    at        INTEGER NOT NULL -- when the lookup arrived
) STRICT, WITHOUT ROWID;

-- The spends that `workspace.spent` includes: those up to `next_id` for workspaces up to `next_workspace`, and those up to
-- `lookup_id` for the others.
CREATE TABLE spent_until (
    one            INTEGER PRIMARY KEY CHECK (one = 1), -- the table has one row
    lookup_id      BLOB    NOT NULL CHECK (length(lookup_id) = 16),
    next_id        BLOB    NOT NULL CHECK (length(next_id) = 16 AND next_id >= lookup_id),
    next_workspace INTEGER NOT NULL
) STRICT;

INSERT INTO spent_until VALUES (1, zeroblob(16), zeroblob(16), 0);

-- The spends that it does not include yet, per workspace.
CREATE VIEW spent_in_tail AS
    SELECT workspace, sum(credits) AS credits FROM credit_spend
    WHERE lookup_id > (SELECT lookup_id FROM spent_until)
      AND (lookup_id > (SELECT next_id FROM spent_until) OR workspace > (SELECT next_workspace FROM spent_until))
      AND lookup_id NOT IN (SELECT lookup_id FROM credit_void)
    GROUP BY workspace;

-- The current credits of each workspace.
CREATE VIEW account AS
    SELECT w.rowid, w.id, w.granted, w.spent + coalesce(t.credits, 0) AS spent, w.held
    FROM workspace w LEFT JOIN spent_in_tail t ON t.workspace = w.rowid;

-- Grants, spends and voids are append-only.
CREATE TRIGGER credit_grant_no_update BEFORE UPDATE ON credit_grant BEGIN SELECT RAISE(ABORT, 'grants are append-only'); END;
CREATE TRIGGER credit_grant_no_delete BEFORE DELETE ON credit_grant BEGIN SELECT RAISE(ABORT, 'grants are append-only'); END;
CREATE TRIGGER credit_spend_no_update BEFORE UPDATE ON credit_spend BEGIN SELECT RAISE(ABORT, 'spends are append-only'); END;
CREATE TRIGGER credit_spend_no_delete BEFORE DELETE ON credit_spend BEGIN SELECT RAISE(ABORT, 'spends are append-only'); END;
CREATE TRIGGER credit_void_no_update BEFORE UPDATE ON credit_void BEGIN SELECT RAISE(ABORT, 'voids are append-only'); END;
CREATE TRIGGER credit_void_no_delete BEFORE DELETE ON credit_void BEGIN SELECT RAISE(ABORT, 'voids are append-only'); END;
