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

-- A user of several workspaces stays in the one that the user joined first, because an admin of that one may know the password.
INSERT INTO member (rowid, workspace, email, role, password_hash, totp_secret, totp_last_step, created_at, last_seen_at)
    SELECT u.rowid, m.workspace, u.email, m.role, u.password_hash, u.totp_secret, coalesce(u.totp_last_step, 0), m.joined_at,
           u.last_seen_at
    FROM membership m JOIN console_user u ON u.rowid = m.user
    WHERE NOT EXISTS (
        SELECT 1 FROM membership o
        WHERE o.user = m.user AND (o.joined_at < m.joined_at OR (o.joined_at = m.joined_at AND o.workspace < m.workspace))
    )
    ORDER BY u.rowid;

INSERT INTO member_recovery_code (member, digest)
    SELECT c.user, c.digest FROM recovery_code c JOIN member m ON m.rowid = c.user;

DROP TABLE recovery_code;
DROP TABLE session;
DROP TABLE one_time_link;
DROP TABLE membership;
DROP TABLE console_user;
