-- Workspaces, their keys, credits and usage, and the users of the web application. Times are milliseconds
-- since the Unix epoch.

CREATE TABLE workspace (
    rowid          INTEGER PRIMARY KEY,
    id             TEXT    NOT NULL UNIQUE,
    quota_limit    INTEGER NOT NULL CHECK (quota_limit >= 1),
    window_seconds INTEGER NOT NULL CHECK (window_seconds BETWEEN 1 AND 86400),
    created_at     INTEGER NOT NULL,
    display_name   TEXT,
    -- The server warns below this number of credits.
    low_balance    INTEGER NOT NULL DEFAULT 0 CHECK (low_balance >= 0),
    -- The keys of a suspended or deleted workspace are refused. A deleted one keeps its rows and its name.
    suspended_at   INTEGER,
    deleted_at     INTEGER,
    -- Incremented by each change of the workspace and of what belongs to it.
    revised        INTEGER NOT NULL DEFAULT 0,
    -- Running totals of the grants and spends, updated with each of them.
    granted        INTEGER NOT NULL DEFAULT 0 CHECK (granted >= 0),
    spent          INTEGER NOT NULL DEFAULT 0 CHECK (spent BETWEEN 0 AND granted)
) STRICT;

CREATE UNIQUE INDEX workspace_name ON workspace (lower(id)); -- pages find a name in any case
CREATE INDEX workspace_low_balance ON workspace (low_balance) WHERE low_balance > 0;

CREATE TABLE api_key (
    rowid        INTEGER PRIMARY KEY,
    -- The first 4 bytes of the digest.
    id           INTEGER NOT NULL UNIQUE CHECK (id BETWEEN 0 AND 4294967295),
    workspace    INTEGER NOT NULL REFERENCES workspace,
    label        TEXT    NOT NULL,
    digest       BLOB    NOT NULL UNIQUE CHECK (length(digest) = 32),
    masked       TEXT    NOT NULL,
    form         BLOB    CHECK (length(form) = 32), -- the digest of the number of the form that created it
    created_by   TEXT    NOT NULL,
    created_at   INTEGER NOT NULL,
    last_used_at INTEGER,
    expires_at   INTEGER,
    initial_expires_at INTEGER, -- the expiry before any rotation, which the new key of one has
    disabled_at  INTEGER,
    disabled_by  TEXT,
    revoked_at   INTEGER
) STRICT;

CREATE INDEX api_key_of_workspace ON api_key (workspace);
CREATE UNIQUE INDEX api_key_of_form ON api_key (workspace, form) WHERE form IS NOT NULL;

CREATE TABLE credit_grant (
    rowid     INTEGER PRIMARY KEY,
    workspace INTEGER NOT NULL REFERENCES workspace,
    kind      TEXT    NOT NULL DEFAULT 'grant' CHECK (kind IN ('grant', 'adjustment', 'refund')),
    credits   INTEGER NOT NULL CHECK (credits <> 0) CHECK (credits > 0 OR kind = 'adjustment'),
    reason    TEXT    NOT NULL DEFAULT '',
    -- The refunded spend.
    lookup_id BLOB    UNIQUE CHECK (length(lookup_id) = 16)
        CHECK ((kind = 'refund') = (lookup_id IS NOT NULL)),
    at        INTEGER NOT NULL
) STRICT;

CREATE INDEX credit_grant_of_workspace ON credit_grant (workspace);

-- One row per billed lookup, without its email. The lookup id, which begins with the time, makes a repeated
-- spend a no-op. The workspace is checked when its total is updated, not with each row.
CREATE TABLE credit_spend (
    lookup_id BLOB    PRIMARY KEY CHECK (length(lookup_id) = 16),
    workspace INTEGER NOT NULL,
    key       INTEGER NOT NULL, -- the id of the key
    credits   INTEGER NOT NULL CHECK (credits > 0),
    at        INTEGER NOT NULL -- when the lookup arrived
) STRICT, WITHOUT ROWID;

-- The receipts of spends whose requests had an idempotency key, without the key and the email. A receipt is
-- inserted with its spend, and deleted with its refund or after a day.
CREATE TABLE credit_receipt (
    workspace INTEGER NOT NULL,
    receipt   BLOB    NOT NULL CHECK (length(receipt) = 16),
    lookup_id BLOB    NOT NULL UNIQUE CHECK (length(lookup_id) = 16), -- the spend
    at        INTEGER NOT NULL, -- when the spend was written
    PRIMARY KEY (workspace, receipt)
) STRICT, WITHOUT ROWID;

CREATE INDEX credit_receipt_at ON credit_receipt (at);

-- The sums of removed spends, which the totals and `usage_day` include. Spends up to `lookup_id` may be
-- removed.
CREATE TABLE removed_spends (
    workspace INTEGER NOT NULL REFERENCES workspace,
    key       INTEGER NOT NULL,
    lookups   INTEGER NOT NULL,
    credits   INTEGER NOT NULL,
    PRIMARY KEY (workspace, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE removed_until (
    one       INTEGER PRIMARY KEY CHECK (one = 1), -- the table has one row
    lookup_id BLOB    NOT NULL CHECK (length(lookup_id) = 16)
) STRICT;

INSERT INTO removed_until VALUES (1, zeroblob(16));

-- Changed to overwrite what a failed commit may have left in the write-ahead log.
CREATE TABLE failed_commits (
    one         INTEGER PRIMARY KEY CHECK (one = 1), -- the table has one row
    overwritten INTEGER NOT NULL
) STRICT;

INSERT INTO failed_commits VALUES (1, 0);

-- The current credits of each workspace. Held credits are in the memory of the process that serves.
CREATE VIEW account AS SELECT rowid, id, granted, spent, 0 AS held FROM workspace;

-- The lookups of each day (UTC, days since the Unix epoch) by key and outcome. Rows `billed` follow from the
-- spends. The other rows are free lookups, which leave no spend.
-- The day is the first column so that the rows of the current day share few pages.
CREATE TABLE usage_day (
    day       INTEGER NOT NULL,
    workspace INTEGER NOT NULL,
    key       INTEGER NOT NULL,
    outcome   TEXT    NOT NULL,
    lookups   INTEGER NOT NULL,
    credits   INTEGER NOT NULL,
    PRIMARY KEY (day, workspace, key, outcome)
) STRICT, WITHOUT ROWID;

-- The billed lookups that `usage_day` does not include yet: none, other than on PostgreSQL.
CREATE VIEW uncounted_usage AS SELECT day, workspace, key, lookups, credits FROM usage_day WHERE false;

-- Each user of the web application belongs to one workspace. The same email in two workspaces is two users.
-- The number of a deleted user is not used again.
CREATE TABLE member (
    rowid          INTEGER PRIMARY KEY AUTOINCREMENT,
    workspace      INTEGER NOT NULL REFERENCES workspace,
    email          TEXT    NOT NULL, -- in lower case
    role           TEXT    NOT NULL CHECK (role IN ('admin', 'member')),
    password_hash  TEXT    NOT NULL,
    totp_secret    BLOB,             -- NULL without a second factor
    totp_last_step INTEGER NOT NULL DEFAULT 0,
    created_at     INTEGER NOT NULL,
    last_seen_at   INTEGER,
    UNIQUE (workspace, email)
) STRICT;

-- Unused links. A link with a role is an invitation. A link without one resets the password.
CREATE TABLE member_link (
    digest     BLOB    PRIMARY KEY CHECK (length(digest) = 32),
    workspace  INTEGER NOT NULL REFERENCES workspace,
    email      TEXT    NOT NULL,
    role       TEXT    CHECK (role IN ('admin', 'member')),
    created_by TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    UNIQUE (workspace, email)
) STRICT, WITHOUT ROWID;

CREATE TABLE member_session (
    digest           BLOB    PRIMARY KEY CHECK (length(digest) = 32),
    member           INTEGER NOT NULL REFERENCES member ON DELETE CASCADE,
    created_at       INTEGER NOT NULL,
    authenticated_at INTEGER NOT NULL,
    last_seen_at     INTEGER NOT NULL,
    address          TEXT,
    user_agent       TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX member_session_of_member ON member_session (member);

CREATE TABLE member_recovery_code (
    member INTEGER NOT NULL REFERENCES member ON DELETE CASCADE,
    digest BLOB    NOT NULL CHECK (length(digest) = 32),
    PRIMARY KEY (member, digest)
) STRICT, WITHOUT ROWID;

-- The audit log.
CREATE TABLE audit_event (
    rowid     INTEGER PRIMARY KEY,
    workspace INTEGER NOT NULL REFERENCES workspace,
    at        INTEGER NOT NULL,
    actor     TEXT    NOT NULL, -- an email, or 'operator'
    action    TEXT    NOT NULL,
    subject   TEXT    NOT NULL,
    address   TEXT
) STRICT;

CREATE INDEX audit_event_of_workspace ON audit_event (workspace);

-- Grants, spends and the audit log are append-only, except for the removal of old spends.
CREATE TRIGGER credit_grant_no_update BEFORE UPDATE ON credit_grant
BEGIN SELECT RAISE(ABORT, 'grants are append-only'); END;
CREATE TRIGGER credit_grant_no_delete BEFORE DELETE ON credit_grant
BEGIN SELECT RAISE(ABORT, 'grants are append-only'); END;
CREATE TRIGGER credit_spend_no_update BEFORE UPDATE ON credit_spend
BEGIN SELECT RAISE(ABORT, 'spends are append-only'); END;
CREATE TRIGGER credit_spend_no_delete BEFORE DELETE ON credit_spend
WHEN (OLD.lookup_id <= (SELECT lookup_id FROM removed_until)) IS NOT TRUE
BEGIN SELECT RAISE(ABORT, 'spends are append-only'); END;
CREATE TRIGGER audit_event_no_update BEFORE UPDATE ON audit_event
BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_event_no_delete BEFORE DELETE ON audit_event
BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
