-- The usage of workspaces, and the users of the web application.
--
-- Passwords are hashed. Sessions, links and recovery codes are stored as digests of their tokens.

-- The lookups of each day by key and outcome. Rows `billed` lag behind the spends: see the view `billed_usage`. The other rows are
-- free lookups, which leave no spend.
CREATE TABLE usage_day (
    day       bigint NOT NULL, -- in UTC, since the Unix epoch
    workspace bigint NOT NULL,
    key       bigint NOT NULL, -- the id of the API key
    outcome   text   NOT NULL,
    lookups   bigint NOT NULL,
    credits   bigint NOT NULL,
    PRIMARY KEY (day, workspace, key, outcome)
) WITH (fillfactor = 50); -- leaves space on each page for updates that touch no index
CREATE INDEX usage_day_of_workspace ON usage_day (workspace, day);

-- The billed lookups so far, by workspace and key.
CREATE VIEW billed_usage AS
    SELECT workspace, key, sum(lookups)::bigint AS lookups, sum(credits)::bigint AS credits
    FROM (
        SELECT workspace, key, lookups, credits FROM usage_day WHERE outcome = 'billed'
        UNION ALL SELECT workspace, key, lookups, credits FROM settlement WHERE lookups > 0
    ) AS u GROUP BY workspace, key;

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
