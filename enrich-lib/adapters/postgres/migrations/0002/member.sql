-- Each user of the web application belongs to one workspace. The same email in two workspaces is two users.
--
-- The tables `console_user`, `membership`, `one_time_link`, `session` and `recovery_code` serve the nodes of the previous version
-- until they are replaced. Nodes of this version do not read them, and the next migration drops them.

-- The last admin of a workspace is determined under the lock of the workspace's row.
CREATE TABLE member (
    rowid          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    workspace      bigint      NOT NULL REFERENCES workspace,
    email          text        NOT NULL, -- in lower case
    role           text        NOT NULL CHECK (role IN ('admin', 'member')),
    password_hash  text        NOT NULL,
    totp_secret    bytea,                -- NULL without a second factor
    totp_last_step bigint      NOT NULL DEFAULT 0,
    created_at     timestamptz NOT NULL,
    last_seen_at   timestamptz,
    UNIQUE (workspace, email)
);

-- Unused links. A link with a role is an invitation. A link without one resets the password.
CREATE TABLE member_link (
    digest     bytea       PRIMARY KEY CHECK (length(digest) = 32),
    workspace  bigint      NOT NULL REFERENCES workspace,
    email      text        NOT NULL,
    role       text        CHECK (role IN ('admin', 'member')),
    created_by text        NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    UNIQUE (workspace, email)
);

CREATE TABLE member_session (
    digest           bytea       PRIMARY KEY CHECK (length(digest) = 32),
    member           bigint      NOT NULL REFERENCES member ON DELETE CASCADE,
    created_at       timestamptz NOT NULL,
    authenticated_at timestamptz NOT NULL,
    last_seen_at     timestamptz NOT NULL,
    address          inet,
    user_agent       text        NOT NULL
);
CREATE INDEX member_session_of_member ON member_session (member);

CREATE TABLE member_recovery_code (
    member bigint NOT NULL REFERENCES member ON DELETE CASCADE,
    digest bytea  NOT NULL CHECK (length(digest) = 32),
    PRIMARY KEY (member, digest)
);

-- A user of several workspaces stays in the one that the user joined first, because an admin of that one may know the password.
INSERT INTO member (workspace, email, role, password_hash, totp_secret, totp_last_step, created_at, last_seen_at)
    SELECT m.workspace, u.email, m.role, u.password_hash, u.totp_secret, u.totp_last_step, m.joined_at, u.last_seen_at
    FROM membership m JOIN console_user u ON u.rowid = m.user_id
    WHERE NOT EXISTS (
        SELECT 1 FROM membership o
        WHERE o.user_id = m.user_id AND (o.joined_at < m.joined_at OR (o.joined_at = m.joined_at AND o.workspace < m.workspace))
    )
    ORDER BY u.rowid;

-- An email was unique among all users.
INSERT INTO member_recovery_code (member, digest)
    SELECT m.rowid, c.digest FROM recovery_code c
    JOIN console_user u ON u.rowid = c.user_id JOIN member m ON m.email = u.email;
