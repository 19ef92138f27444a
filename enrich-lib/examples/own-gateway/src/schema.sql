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
CREATE TABLE receipt (
    workspace TEXT NOT NULL, receipt BYTEA NOT NULL, lookup TEXT NOT NULL UNIQUE, placed_at BIGINT NOT NULL,
    PRIMARY KEY (workspace, receipt)
);
CREATE INDEX receipt_placed_at ON receipt (placed_at);
