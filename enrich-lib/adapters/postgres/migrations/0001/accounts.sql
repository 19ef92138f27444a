-- Workspaces, their keys and their credits, for several nodes.
--
-- A node sends plain statements, each of which is one transaction: hold, settle, expire and fold (see the module `ledger`). A
-- lookup first inserts a row in `credit_hold`. Its settlement deletes that row, and inserts one in `credit_spend` if it is
-- billed. Only a hold and a fold change the workspace's row, with asynchronous commit, so that no lock is held while a commit
-- is written to the disk. Rows of workspaces are locked in the order of their row ids. Holds expire by this server's clock.
--
-- granted = available + held + spent, where `used` = held + spent + the rest that `settlement` returns with the next fold.

CREATE TABLE workspace (
    rowid          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id             text        NOT NULL UNIQUE,
    quota_limit    bigint      NOT NULL CHECK (quota_limit BETWEEN 1 AND 4294967295),
    window_seconds integer     NOT NULL CHECK (window_seconds BETWEEN 1 AND 86400),
    created_at     timestamptz NOT NULL,
    display_name   text,
    low_balance    bigint      NOT NULL DEFAULT 0 CHECK (low_balance >= 0), -- nodes warn below this number of credits
    -- The keys of a suspended or deleted workspace are refused. A deleted one keeps its rows and its name.
    suspended_at   timestamptz,
    deleted_at     timestamptz,
    revision       bigint      NOT NULL DEFAULT 0, -- of the last change that nodes cache
    granted        bigint      NOT NULL DEFAULT 0 CHECK (granted >= 0), -- the sum of `credit_grant`
    used           bigint      NOT NULL DEFAULT 0 CHECK (used >= 0),    -- not available: held or spent. See the view `account`.
    CONSTRAINT used_within_granted CHECK (used <= granted)
) WITH (fillfactor = 50); -- leaves space on each page for updates that touch no index
CREATE INDEX workspace_revision ON workspace (revision) WHERE revision > 0;
CREATE INDEX workspace_low_balance ON workspace (low_balance) WHERE low_balance > 0;

CREATE TABLE api_key (
    rowid        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id           bigint      NOT NULL UNIQUE, -- the first 4 bytes of the digest
    workspace    bigint      NOT NULL REFERENCES workspace,
    label        text        NOT NULL,
    digest       bytea       NOT NULL UNIQUE CHECK (length(digest) = 32),
    masked       text        NOT NULL,
    created_by   text        NOT NULL,
    created_at   timestamptz NOT NULL,
    last_used_at timestamptz,
    expires_at   timestamptz,
    disabled_at  timestamptz,
    revoked_at   timestamptz,
    revision     bigint      NOT NULL DEFAULT 0 -- of the last change that nodes cache
);
CREATE INDEX api_key_of_workspace ON api_key (workspace);
CREATE INDEX api_key_revision ON api_key (revision) WHERE revision > 0;

CREATE TABLE credit_grant (
    rowid     bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    workspace bigint      NOT NULL REFERENCES workspace,
    kind      text        NOT NULL DEFAULT 'grant' CHECK (kind IN ('grant', 'adjustment', 'refund')),
    credits   bigint      NOT NULL CHECK (credits <> 0) CHECK (credits > 0 OR kind = 'adjustment'),
    reason    text        NOT NULL DEFAULT '',
    lookup_id bytea       UNIQUE CHECK ((kind = 'refund') = (lookup_id IS NOT NULL)), -- the refunded spend
    at        timestamptz NOT NULL
);
CREATE INDEX credit_grant_of_workspace ON credit_grant (workspace);

-- The credits that lookups hold. A row is inserted once and deleted once, never updated. There is no foreign key to the
-- workspace, here and in the next tables: checking it for every row would cost more than the insert.
CREATE TABLE credit_hold (
    lookup_id  bytea  PRIMARY KEY CHECK (length(lookup_id) = 16),
    workspace  bigint NOT NULL,
    credits    bigint NOT NULL CHECK (credits >= 0),
    expires_at bigint NOT NULL -- in milliseconds since the Unix epoch, by this server's clock
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX credit_hold_expiry ON credit_hold (expires_at);

-- One row per billed lookup, without its email. The lookup id makes a repeated spend a no-op.
CREATE TABLE credit_spend (
    lookup_id bytea  PRIMARY KEY CHECK (length(lookup_id) = 16),
    workspace bigint NOT NULL,
    key       bigint NOT NULL, -- the id of the API key
    credits   bigint NOT NULL CHECK (credits > 0),
    at        bigint NOT NULL  -- when the lookup arrived, in milliseconds since the Unix epoch
);

-- Settlements that `usage_day` and `workspace.used` do not include yet: one row per batch, workspace, day and key. A fold
-- deletes them, counts their lookups, and returns their rest to the workspace.
CREATE TABLE settlement (
    settled_at bigint NOT NULL, -- in milliseconds since the Unix epoch, by this server's clock
    id         bigint GENERATED ALWAYS AS IDENTITY,
    workspace  bigint NOT NULL,
    day        bigint NOT NULL, -- in UTC, since the Unix epoch
    key        bigint NOT NULL,
    lookups    bigint NOT NULL, -- billed
    credits    bigint NOT NULL, -- spent on them
    rest       bigint NOT NULL, -- held and not spent
    PRIMARY KEY (settled_at, id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);

-- The sums of removed spends.
CREATE TABLE removed_spends (
    workspace bigint NOT NULL REFERENCES workspace,
    key       bigint NOT NULL,
    lookups   bigint NOT NULL,
    credits   bigint NOT NULL,
    PRIMARY KEY (workspace, key)
);

-- Spends up to this lookup may be removed. One row, whose lock serializes removals.
CREATE TABLE removed_until (lookup_id bytea NOT NULL);
INSERT INTO removed_until VALUES ('\x00000000000000000000000000000000');

-- The current credits of each workspace.
CREATE VIEW account AS
    SELECT w.rowid, w.id, w.granted, w.used - coalesce(h.credits, 0) - coalesce(s.rest, 0) AS spent,
        coalesce(h.credits, 0) AS held
    FROM workspace w
    LEFT JOIN (SELECT workspace, sum(credits)::bigint AS credits FROM credit_hold GROUP BY workspace) AS h ON h.workspace = w.rowid
    LEFT JOIN (SELECT workspace, sum(rest)::bigint AS rest FROM settlement GROUP BY workspace) AS s ON s.workspace = w.rowid;

-- Incremented with every change of data that nodes cache: keys and quotas.
CREATE TABLE revision (n bigint NOT NULL);
INSERT INTO revision VALUES (0);

CREATE FUNCTION revise() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE revision SET n = n + 1 RETURNING n INTO NEW.revision;
    RETURN NEW;
END $$;

CREATE TRIGGER workspace_revised BEFORE UPDATE OF quota_limit, window_seconds, suspended_at, deleted_at ON workspace
    FOR EACH ROW EXECUTE FUNCTION revise();
CREATE TRIGGER api_key_revised BEFORE UPDATE OF expires_at, disabled_at, revoked_at ON api_key
    FOR EACH ROW EXECUTE FUNCTION revise();

-- Grants and spends are append-only, except for the removal of old spends.
CREATE FUNCTION reject_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only', tg_table_name USING ERRCODE = 'restrict_violation';
END $$;

CREATE TRIGGER credit_grant_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON credit_grant EXECUTE FUNCTION reject_change();
CREATE TRIGGER credit_spend_append_only BEFORE UPDATE OR TRUNCATE ON credit_spend EXECUTE FUNCTION reject_change();

CREATE FUNCTION keep_spend() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.lookup_id > (SELECT lookup_id FROM removed_until) THEN
        RAISE EXCEPTION 'credit_spend is append-only' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN OLD;
END $$;

CREATE TRIGGER credit_spend_kept BEFORE DELETE ON credit_spend FOR EACH ROW EXECUTE FUNCTION keep_spend();

-- Removes up to `rows_max` of the oldest spends before the lookup `before`, and returns their number.
CREATE FUNCTION spends_remove(before bytea, rows_max bigint) RETURNS bigint LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    last    bytea;
    removed bigint;
BEGIN
    PERFORM FROM removed_until FOR UPDATE;
    SELECT s.lookup_id INTO last FROM (
        SELECT lookup_id FROM credit_spend WHERE lookup_id < before ORDER BY lookup_id LIMIT rows_max
    ) AS s ORDER BY s.lookup_id DESC LIMIT 1;
    IF last IS NULL THEN
        RETURN 0;
    END IF;
    UPDATE removed_until SET lookup_id = greatest(lookup_id, last);
    WITH deleted AS (
        DELETE FROM credit_spend s WHERE s.lookup_id <= last RETURNING s.workspace, s.key, s.credits
    ), added AS (
        INSERT INTO removed_spends AS r (workspace, key, lookups, credits)
        SELECT d.workspace, d.key, count(*), sum(d.credits) FROM deleted d GROUP BY 1, 2 ORDER BY 1, 2
        ON CONFLICT (workspace, key) DO UPDATE SET lookups = r.lookups + excluded.lookups, credits = r.credits + excluded.credits
    )
    SELECT count(*) INTO removed FROM deleted;
    RETURN removed;
END $$;
