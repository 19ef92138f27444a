CREATE TABLE account (
    workspace TEXT PRIMARY KEY,
    requests BIGINT NOT NULL,
    window_seconds BIGINT NOT NULL,
    granted BIGINT NOT NULL,
    available BIGINT NOT NULL CHECK (available >= 0)
);
CREATE TABLE api_key (digest BYTEA PRIMARY KEY, workspace TEXT NOT NULL REFERENCES account);
CREATE TABLE hold (
    lookup TEXT PRIMARY KEY, workspace TEXT NOT NULL, credits BIGINT NOT NULL, expires_at BIGINT NOT NULL
);
CREATE TABLE spend (lookup TEXT PRIMARY KEY, workspace TEXT NOT NULL, credits BIGINT NOT NULL);
CREATE INDEX hold_expires_at ON hold (expires_at);
