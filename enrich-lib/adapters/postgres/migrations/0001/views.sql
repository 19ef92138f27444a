-- Views for people who read the database with psql, with the names of workspaces, keys and lookups, and times
-- as timestamps. The program does not use them, and they contain no secrets.

CREATE VIEW workspaces AS
    SELECT w.id AS workspace, w.display_name, a.granted - a.spent - a.held AS available, a.held, a.spent,
        a.granted, w.low_balance, w.quota_limit, w.window_seconds,
        to_timestamp(w.created_at / 1000.0) AS created_at,
        to_timestamp(w.suspended_at / 1000.0) AS suspended_at,
        to_timestamp(w.deleted_at / 1000.0) AS deleted_at
    FROM workspace w JOIN account a ON a.rowid = w.rowid;

CREATE VIEW api_keys AS
    SELECT w.id AS workspace, 'key_' || lpad(to_hex(k.id), 8, '0') AS key, k.label, k.masked, k.created_by,
        to_timestamp(k.created_at / 1000.0) AS created_at,
        to_timestamp(k.last_used_at / 1000.0) AS last_used_at,
        to_timestamp(k.expires_at / 1000.0) AS expires_at,
        to_timestamp(k.disabled_at / 1000.0) AS disabled_at,
        to_timestamp(k.revoked_at / 1000.0) AS revoked_at
    FROM api_key k JOIN workspace w ON w.rowid = k.workspace;

CREATE VIEW credit_grants AS
    SELECT w.id AS workspace, to_timestamp(g.at / 1000.0) AS at, g.kind, g.credits, g.reason,
        'lookup_' || encode(g.lookup_id, 'hex') AS lookup_id
    FROM credit_grant g JOIN workspace w ON w.rowid = g.workspace;

CREATE VIEW credit_spends AS
    SELECT w.id AS workspace, to_timestamp(s.at / 1000.0) AS at,
        'lookup_' || encode(s.lookup_id, 'hex') AS lookup_id,
        'key_' || lpad(to_hex(s.key), 8, '0') AS key, s.credits
    FROM credit_spend s JOIN workspace w ON w.rowid = s.workspace;

CREATE VIEW usage_days AS
    SELECT w.id AS workspace, date '1970-01-01' + u.day::integer AS day,
        'key_' || lpad(to_hex(u.key), 8, '0') AS key, u.outcome, u.lookups, u.credits
    FROM usage_day u JOIN workspace w ON w.rowid = u.workspace;

CREATE VIEW members AS
    SELECT w.id AS workspace, m.email, m.role, m.totp_secret IS NOT NULL AS has_second_factor,
        to_timestamp(m.created_at / 1000.0) AS created_at,
        to_timestamp(m.last_seen_at / 1000.0) AS last_seen_at
    FROM member m JOIN workspace w ON w.rowid = m.workspace;

CREATE VIEW audit_events AS
    SELECT w.id AS workspace, to_timestamp(e.at / 1000.0) AS at, e.actor, e.action, e.subject, e.address
    FROM audit_event e JOIN workspace w ON w.rowid = e.workspace;
