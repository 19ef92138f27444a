-- The usage of workspaces, and the users of the web application.
--
-- Passwords are hashed. Sessions, links and recovery codes are stored as digests of their tokens.

-- Lookups by day, key, outcome and node. Each node changes only its own rows, so that nodes never wait for each other; readers
-- sum over the epochs. Epoch 0 has the spends that were charged to a workspace directly, and copied lookups.
--
-- A row of billed lookups changes only under the lock of its lease or workspace. There is no foreign key to the workspace: its
-- check would lock the workspace after the lease, against the lock order.
CREATE TABLE usage_day (
    workspace bigint NOT NULL,
    day       date   NOT NULL, -- in UTC
    key       bigint NOT NULL, -- the id of the API key
    outcome   text   NOT NULL,
    epoch     bigint NOT NULL,
    lookups   bigint NOT NULL,
    credits   bigint NOT NULL,
    PRIMARY KEY (workspace, day, key, outcome, epoch)
) WITH (fillfactor = 50); -- leaves space on each page for updates that touch no index
CREATE INDEX usage_day_of_nodes ON usage_day (day) WHERE epoch <> 0;

-- Adds up to `rows_max` rows of nodes from before a day to those of epoch 0, and returns their number. No node changes rows of such
-- a day, except for spends that are days late. Skips locked rows.
CREATE FUNCTION usage_fold(before date, rows_max bigint) RETURNS bigint LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    folded bigint;
BEGIN
    WITH chosen AS (
        SELECT * FROM usage_day u WHERE u.day < before AND u.epoch <> 0 ORDER BY u.day LIMIT rows_max FOR UPDATE SKIP LOCKED
    ), deleted AS (
        DELETE FROM usage_day u USING chosen c
        WHERE u.workspace = c.workspace AND u.day = c.day AND u.key = c.key AND u.outcome = c.outcome AND u.epoch = c.epoch
        RETURNING u.*
    ), added AS (
        INSERT INTO usage_day AS u (workspace, day, key, outcome, epoch, lookups, credits)
        SELECT d.workspace, d.day, d.key, d.outcome, 0, sum(d.lookups), sum(d.credits) FROM deleted d
        GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4
        ON CONFLICT (workspace, day, key, outcome, epoch)
        DO UPDATE SET lookups = u.lookups + excluded.lookups, credits = u.credits + excluded.credits
    )
    SELECT count(*) INTO folded FROM deleted;
    RETURN folded;
END $$;

-- Adds new spends to the usage, in their transaction.
CREATE FUNCTION add_usage() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO usage_day AS u (workspace, day, key, outcome, epoch, lookups, credits)
    SELECT s.workspace, (s.at AT TIME ZONE 'UTC')::date, s.key, 'billed', coalesce(s.epoch, 0), count(*), sum(s.credits)
    FROM spends s GROUP BY 1, 2, 3, 5 ORDER BY 1, 2, 3, 5
    ON CONFLICT (workspace, day, key, outcome, epoch)
    DO UPDATE SET lookups = u.lookups + excluded.lookups, credits = u.credits + excluded.credits;
    RETURN NULL;
END $$;

CREATE TRIGGER credit_spend_counted AFTER INSERT ON credit_spend
    REFERENCING NEW TABLE AS spends FOR EACH STATEMENT EXECUTE FUNCTION add_usage();

-- Adds free lookups of a node to the usage of the current day. Workspaces that do not exist are ignored.
CREATE FUNCTION count_free(
    of_epoch bigint, names text[], keys bigint[], outcomes text[], counts bigint[], at_time timestamptz
) RETURNS void LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    INSERT INTO usage_day AS u (workspace, day, key, outcome, epoch, lookups, credits)
    SELECT w.rowid, (at_time AT TIME ZONE 'UTC')::date, i.key, i.outcome, of_epoch, sum(i.lookups), 0
    FROM unnest(names, keys, outcomes, counts) AS i (name, key, outcome, lookups) JOIN workspace w ON w.id = i.name
    GROUP BY 1, 3, 4 ORDER BY 1, 3, 4
    ON CONFLICT (workspace, day, key, outcome, epoch) DO UPDATE SET lookups = u.lookups + excluded.lookups;
END $$;

CREATE TABLE console_user (
    rowid          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    email          text        NOT NULL UNIQUE, -- in lower case
    password_hash  text        NOT NULL,
    totp_secret    bytea,                       -- NULL without a second factor
    totp_last_step bigint      NOT NULL DEFAULT 0,
    created_at     timestamptz NOT NULL,
    last_seen_at   timestamptz
);

-- The last admin of a workspace is determined under the lock of the workspace's row.
CREATE TABLE membership (
    workspace bigint      NOT NULL REFERENCES workspace,
    user_id   bigint      NOT NULL REFERENCES console_user ON DELETE CASCADE,
    role      text        NOT NULL CHECK (role IN ('admin', 'member')),
    joined_at timestamptz NOT NULL,
    PRIMARY KEY (workspace, user_id)
);
CREATE INDEX membership_of_user ON membership (user_id);

CREATE TABLE recovery_code (
    user_id bigint NOT NULL REFERENCES console_user ON DELETE CASCADE,
    digest  bytea  NOT NULL CHECK (length(digest) = 32),
    PRIMARY KEY (user_id, digest)
);

-- A link with a workspace is an invitation. A link without one resets the password.
CREATE TABLE one_time_link (
    digest     bytea       PRIMARY KEY CHECK (length(digest) = 32),
    email      text        NOT NULL,
    workspace  bigint      REFERENCES workspace,
    role       text        CHECK (role IN ('admin', 'member')),
    created_by text        NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    CHECK ((workspace IS NULL) = (role IS NULL))
);
CREATE UNIQUE INDEX one_time_link_of_user ON one_time_link (email, coalesce(workspace, 0));

CREATE TABLE session (
    digest           bytea       PRIMARY KEY CHECK (length(digest) = 32),
    user_id          bigint      NOT NULL REFERENCES console_user ON DELETE CASCADE,
    created_at       timestamptz NOT NULL,
    authenticated_at timestamptz NOT NULL,
    last_seen_at     timestamptz NOT NULL,
    address          inet,
    user_agent       text        NOT NULL
);
CREATE INDEX session_of_user ON session (user_id);

-- An event about a user has one row for each workspace of the user.
CREATE TABLE audit_event (
    number    bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    workspace bigint      NOT NULL REFERENCES workspace,
    at        timestamptz NOT NULL,
    actor     text        NOT NULL, -- an email, or `operator`
    action    text        NOT NULL,
    subject   text        NOT NULL,
    address   inet
);
CREATE INDEX audit_event_of_workspace ON audit_event (workspace, number);

CREATE TRIGGER audit_event_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_event EXECUTE FUNCTION reject_change();
