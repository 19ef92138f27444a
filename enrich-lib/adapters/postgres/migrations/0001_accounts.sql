-- Workspaces, their keys and their credits, for several nodes.
--
-- Each operation of a node is one call of a function below: one statement, one transaction and one round trip. A workspace's
-- totals and its set of leases change only under the lock of its row, and a lease only under the lock of its own row. Locks
-- are taken in one order (nodes, workspaces by rowid, leases by workspace and epoch), which prevents deadlocks. Spends lock
-- only the node's own leases, so nodes do not block each other, however busy a workspace is. All timeouts use this server's
-- clock.
--
-- The functions require READ COMMITTED: after waiting for a lock, the next statement sees concurrent changes. They disable
-- sequential scans, because a plan made with the statistics of an almost empty table is cached with the connection.

CREATE TABLE workspace (
    rowid          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id             text        NOT NULL UNIQUE,
    quota_limit    bigint      NOT NULL CHECK (quota_limit BETWEEN 1 AND 4294967295),
    window_seconds integer     NOT NULL CHECK (window_seconds BETWEEN 1 AND 86400),
    created_at     timestamptz NOT NULL,
    -- Running totals of the tables below, updated in the same transaction. See the view `account`.
    granted        bigint      NOT NULL DEFAULT 0 CHECK (granted >= 0),
    spent          bigint      NOT NULL DEFAULT 0 CHECK (spent >= 0), -- without the spends of active leases
    leased         bigint      NOT NULL DEFAULT 0 CHECK (leased >= 0), -- leased to nodes and not returned
    CONSTRAINT spent_and_leased_within_granted CHECK (spent + leased <= granted)
);

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
    revoked_at   timestamptz
);
CREATE INDEX api_key_of_workspace ON api_key (workspace);

CREATE TABLE credit_grant (
    rowid     bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    workspace bigint      NOT NULL REFERENCES workspace,
    credits   bigint      NOT NULL CHECK (credits > 0),
    at        timestamptz NOT NULL
);
CREATE INDEX credit_grant_of_workspace ON credit_grant (workspace);

-- One row per billed lookup, without its email. The lookup id makes a repeated spend a no-op. There is no foreign key to the
-- workspace: checking it for every row would cost ten times as much as the insert.
CREATE TABLE credit_spend (
    lookup_id uuid        PRIMARY KEY,
    workspace bigint      NOT NULL,
    key       bigint      NOT NULL, -- the id of the API key
    credits   bigint      NOT NULL CHECK (credits > 0),
    epoch     bigint,              -- of the lease that was charged; NULL if the workspace was charged directly
    at        timestamptz NOT NULL -- when the lookup arrived
);

-- Spends that were rejected for good. A statement may be executed long after the node gave up its connection; one that arrives
-- after the rejection must not commit the spend.
CREATE TABLE rejected_spend (
    lookup_id uuid        PRIMARY KEY,
    at        timestamptz NOT NULL -- when the lookup arrived
);

-- Sessions of serving processes. When a session ends or expires, its leases return to the workspaces. A process that
-- reconnects later gets a new epoch.
CREATE TABLE node (
    epoch      bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       text        NOT NULL,
    started_at timestamptz NOT NULL,
    ends_at    timestamptz NOT NULL
);

-- The credits of a workspace that a node may spend without a query. The counters never decrease, so that a call without a
-- reply can be repeated.
CREATE TABLE lease (
    workspace bigint NOT NULL REFERENCES workspace,
    epoch     bigint NOT NULL REFERENCES node,
    taken     bigint NOT NULL DEFAULT 0,
    returned  bigint NOT NULL DEFAULT 0 CHECK (returned >= 0),
    spent     bigint NOT NULL DEFAULT 0 CHECK (spent >= 0),
    -- Credits held by the node's lookups at its last report. Informational: no decision depends on it.
    held      bigint NOT NULL DEFAULT 0 CHECK (held >= 0),
    -- The number of recalls by other nodes, and the last one that the node has answered.
    recalled  bigint NOT NULL DEFAULT 0,
    answered  bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (workspace, epoch),
    CONSTRAINT spent_and_returned_within_taken CHECK (returned + spent <= taken)
);
CREATE INDEX lease_of_node ON lease (epoch);
CREATE INDEX lease_recalled ON lease (epoch) WHERE recalled > answered;

-- The current credits of each workspace: spent in total, leased and not spent, and held by lookups of active nodes.
CREATE VIEW account AS
    SELECT w.rowid, w.id, w.granted, w.spent + l.spent AS spent, w.leased - l.spent AS leased, l.held
    FROM workspace w CROSS JOIN LATERAL (
        SELECT coalesce(sum(l.spent), 0)::bigint AS spent,
            coalesce(sum(least(l.held, l.taken - l.returned - l.spent)) FILTER (WHERE n.ends_at > clock_timestamp()), 0)::bigint
                AS held
        FROM lease l JOIN node n ON n.epoch = l.epoch WHERE l.workspace = w.rowid
    ) AS l;

-- Incremented with every change of data that nodes cache: keys and quotas.
CREATE TABLE revision (n bigint NOT NULL);
INSERT INTO revision VALUES (0);

CREATE FUNCTION revise() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE revision SET n = n + 1;
    PERFORM pg_notify('enrich', '');
    RETURN NULL;
END $$;

CREATE TRIGGER workspace_revised AFTER UPDATE OF quota_limit, window_seconds ON workspace EXECUTE FUNCTION revise();
CREATE TRIGGER api_key_revised AFTER UPDATE OF expires_at, disabled_at, revoked_at ON api_key EXECUTE FUNCTION revise();

-- Grants and spends are append-only.
CREATE FUNCTION reject_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only', tg_table_name USING ERRCODE = 'restrict_violation';
END $$;

CREATE TRIGGER credit_grant_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON credit_grant EXECUTE FUNCTION reject_change();
CREATE TRIGGER credit_spend_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON credit_spend EXECUTE FUNCTION reject_change();

-- Begins a session and returns its epoch, which identifies it in all other calls.
CREATE FUNCTION node_begin(node_name text, ttl_ms bigint) RETURNS bigint LANGUAGE sql AS $$
    INSERT INTO node (name, started_at, ends_at)
    VALUES (node_name, clock_timestamp(), clock_timestamp() + ttl_ms * interval '1 ms')
    RETURNING epoch
$$;

-- Renews a session. Returns whether it is active, the revision, and the workspaces whose idle credits other nodes have
-- recalled, each with the node's total of leased credits and the number of the recall.
CREATE FUNCTION node_beat(
    of_epoch bigint, ttl_ms bigint,
    OUT is_active boolean, OUT revision bigint, OUT names text[], OUT workspaces bigint[], OUT takes bigint[], OUT recalls bigint[]
) LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    UPDATE node SET ends_at = clock_timestamp() + ttl_ms * interval '1 ms'
    WHERE epoch = of_epoch AND ends_at > clock_timestamp();
    is_active := FOUND;
    SELECT r.n INTO revision FROM revision r;
    SELECT coalesce(array_agg(w.id ORDER BY w.rowid), '{}'), coalesce(array_agg(w.rowid ORDER BY w.rowid), '{}'),
        coalesce(array_agg(l.taken ORDER BY w.rowid), '{}'), coalesce(array_agg(l.recalled ORDER BY w.rowid), '{}')
    INTO names, workspaces, takes, recalls
    FROM lease l JOIN workspace w ON w.rowid = l.workspace
    WHERE l.epoch = of_epoch AND l.recalled > l.answered;
END $$;

-- Ends a session. Its leases return with the next call of `nodes_end`.
CREATE FUNCTION node_leave(of_epoch bigint) RETURNS void LANGUAGE sql AS $$
    UPDATE node SET ends_at = least(ends_at, clock_timestamp()) WHERE epoch = of_epoch
$$;

-- Removes expired sessions and returns the rest of their leases to the workspaces. Returns the number of sessions.
CREATE FUNCTION nodes_end() RETURNS bigint LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    gone bigint[] := ARRAY (
        SELECT epoch FROM node WHERE ends_at <= clock_timestamp() ORDER BY epoch FOR UPDATE SKIP LOCKED
    );
BEGIN
    IF gone = '{}' THEN
        RETURN 0;
    END IF;
    PERFORM FROM workspace w
    WHERE w.rowid IN (SELECT l.workspace FROM lease l WHERE l.epoch = ANY (gone))
    ORDER BY w.rowid FOR UPDATE;
    PERFORM FROM lease WHERE epoch = ANY (gone) ORDER BY workspace, epoch FOR UPDATE;
    UPDATE workspace w SET leased = w.leased - l.leased, spent = w.spent + l.spent
    FROM (
        SELECT workspace, sum(taken - returned)::bigint AS leased, sum(spent)::bigint AS spent FROM lease
        WHERE epoch = ANY (gone) GROUP BY workspace
    ) AS l
    WHERE l.workspace = w.rowid;
    DELETE FROM lease WHERE epoch = ANY (gone);
    DELETE FROM node WHERE epoch = ANY (gone);
    RETURN cardinality(gone);
END $$;

-- Leases credits to a node: at least `needs`, and up to `wants` if enough remain for all nodes. `known` is the total that the
-- node has leased so far. If the stored total is greater, an earlier reply was lost, and only the total is returned. The
-- outcome is one of
--
--   taken     the node has leased `taken` credits in total
--   recalled  too few credits are free; idle credits of other nodes were recalled, so call it with `again`
--   short     too few credits are free, and no node has idle ones
--   ended     the session has ended
--   unknown   the workspace does not exist
CREATE FUNCTION lease_take(
    of_epoch bigint, workspace_id text, known bigint, needs bigint, wants bigint, again boolean,
    OUT outcome text, OUT of_workspace bigint, OUT taken bigint
) LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    free  bigint;
    nodes bigint;
    slice bigint;
BEGIN
    PERFORM FROM node WHERE epoch = of_epoch AND ends_at > clock_timestamp() FOR KEY SHARE;
    IF NOT FOUND THEN
        outcome := 'ended';
        RETURN;
    END IF;
    SELECT w.rowid, w.granted - w.spent - w.leased INTO of_workspace, free
    FROM workspace w WHERE w.id = workspace_id FOR UPDATE;
    IF NOT FOUND THEN
        outcome := 'unknown';
        RETURN;
    END IF;
    INSERT INTO lease (workspace, epoch) VALUES (of_workspace, of_epoch) ON CONFLICT DO NOTHING;
    SELECT l.taken INTO taken FROM lease l WHERE l.workspace = of_workspace AND l.epoch = of_epoch;
    outcome := 'taken';
    IF taken > known THEN
        RETURN;
    END IF;
    IF free >= needs THEN
        SELECT count(*) INTO nodes FROM node WHERE ends_at > clock_timestamp();
        slice := greatest(needs, least(wants, free / (2 * nodes)));
        UPDATE lease l SET taken = l.taken + slice
        WHERE l.workspace = of_workspace AND l.epoch = of_epoch RETURNING l.taken INTO taken;
        UPDATE workspace w SET leased = w.leased + slice WHERE w.rowid = of_workspace;
        RETURN;
    END IF;
    IF NOT again THEN
        PERFORM FROM lease l WHERE l.workspace = of_workspace AND l.epoch <> of_epoch ORDER BY l.epoch FOR UPDATE;
        UPDATE lease l SET recalled = l.recalled + 1
        WHERE l.workspace = of_workspace AND l.epoch <> of_epoch AND l.taken > l.returned + l.spent
          AND l.recalled = l.answered;
        IF FOUND THEN
            PERFORM pg_notify('enrich', '');
        END IF;
    END IF;
    -- The leases of an ended session return with the next call of `nodes_end`.
    PERFORM FROM lease l JOIN node n ON n.epoch = l.epoch
    WHERE l.workspace = of_workspace AND l.epoch <> of_epoch AND l.taken > l.returned + l.spent
      AND (l.recalled > l.answered OR n.ends_at <= clock_timestamp());
    outcome := CASE WHEN FOUND THEN 'recalled' ELSE 'short' END;
END $$;

-- Returns idle credits of a node. `returns` is the total returned so far; `seen` is the last recall that it answers.
CREATE FUNCTION lease_return(of_epoch bigint, of_workspace bigint, returns bigint, seen bigint)
RETURNS void LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    before bigint;
BEGIN
    PERFORM FROM workspace w WHERE w.rowid = of_workspace FOR UPDATE;
    SELECT l.returned INTO before FROM lease l WHERE l.workspace = of_workspace AND l.epoch = of_epoch;
    IF NOT FOUND THEN
        RETURN; -- the session has ended and its leases have returned
    END IF;
    UPDATE lease l SET returned = greatest(l.returned, returns), answered = greatest(l.answered, seen)
    WHERE l.workspace = of_workspace AND l.epoch = of_epoch;
    UPDATE workspace w SET leased = w.leased - greatest(0, returns - before) WHERE w.rowid = of_workspace;
END $$;

-- Stores the credits that a node's lookups hold, for operators.
CREATE FUNCTION lease_show(of_epoch bigint, workspaces bigint[], holds bigint[]) RETURNS void LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    PERFORM FROM lease WHERE epoch = of_epoch AND workspace = ANY (workspaces) ORDER BY workspace FOR UPDATE;
    UPDATE lease l SET held = i.held FROM unnest(workspaces, holds) AS i (workspace, held)
    WHERE l.epoch = of_epoch AND l.workspace = i.workspace;
END $$;

-- Locks those of the leases that still exist.
CREATE FUNCTION lock_leases(epochs bigint[], workspaces bigint[]) RETURNS void LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    PERFORM FROM lease l
    WHERE (l.workspace, l.epoch) IN (SELECT i.workspace, i.epoch FROM unnest(epochs, workspaces) AS i (epoch, workspace))
    ORDER BY l.workspace, l.epoch FOR UPDATE;
END $$;

-- Commits a batch of spends. `epochs`, `workspaces` and `sums` are the leases to charge, in lock order, and the amount for
-- each. The other arrays are the lookups, each with the index of its lease from 1. Returns for each lookup whether its spend
-- is committed, now or before. Otherwise, its lease has ended or has too few credits (see `charge`).
CREATE FUNCTION settle(
    epochs bigint[], workspaces bigint[], sums bigint[],
    lookups uuid[], leases integer[], keys bigint[], costs bigint[], arrivals timestamptz[]
) RETURNS boolean[] LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    settled uuid[];
BEGIN
    -- The common case: all spends are new and covered by their leases.
    BEGIN
        FOR n IN 1 .. cardinality(epochs) LOOP
            UPDATE lease l SET spent = l.spent + sums[n]
            WHERE l.workspace = workspaces[n] AND l.epoch = epochs[n] AND l.taken - l.returned - l.spent >= sums[n];
            IF NOT FOUND THEN
                RAISE check_violation;
            END IF;
        END LOOP;
        PERFORM FROM rejected_spend WHERE lookup_id BETWEEN lookups[1] AND lookups[cardinality(lookups)];
        IF FOUND THEN
            RAISE unique_violation;
        END IF;
        INSERT INTO credit_spend (lookup_id, workspace, key, credits, epoch, at)
        SELECT i.lookup, workspaces[i.lease], i.key, i.cost, epochs[i.lease], i.arrival
        FROM unnest(lookups, leases, keys, costs, arrivals) AS i (lookup, lease, key, cost, arrival);
        RETURN array_fill(true, ARRAY[cardinality(lookups)]);
    EXCEPTION WHEN check_violation OR unique_violation THEN
        NULL; -- the block was rolled back
    END;
    PERFORM lock_leases(epochs, workspaces);
    settled := ARRAY (SELECT lookup_id FROM credit_spend WHERE lookup_id = ANY (lookups));
    -- All spends of a lease are charged, or none.
    WITH fresh AS (
        SELECT DISTINCT ON (i.lookup) i.*, workspaces[i.lease] AS workspace, epochs[i.lease] AS epoch
        FROM unnest(lookups, leases, keys, costs, arrivals) AS i (lookup, lease, key, cost, arrival)
        WHERE i.lookup <> ALL (settled) AND i.lookup NOT IN (SELECT lookup_id FROM rejected_spend WHERE lookup_id = ANY (lookups))
    ), charges AS (
        SELECT workspace, epoch, sum(cost)::bigint AS cost FROM fresh GROUP BY workspace, epoch
    ), paid AS (
        UPDATE lease l SET spent = l.spent + a.cost FROM charges a
        WHERE l.workspace = a.workspace AND l.epoch = a.epoch AND l.taken - l.returned - l.spent >= a.cost
        RETURNING a.workspace, a.epoch
    ), written AS (
        INSERT INTO credit_spend (lookup_id, workspace, key, credits, epoch, at)
        SELECT f.lookup, f.workspace, f.key, f.cost, f.epoch, f.arrival
        FROM fresh f JOIN paid p ON p.workspace = f.workspace AND p.epoch = f.epoch
        ORDER BY f.lookup
        RETURNING lookup_id
    )
    SELECT settled || coalesce(array_agg(lookup_id), '{}') INTO settled FROM written;
    RETURN ARRAY (
        SELECT i.lookup = ANY (settled)
        FROM unnest(lookups) WITH ORDINALITY AS i (lookup, n) ORDER BY i.n
    );
END $$;

-- Commits spends that `settle` could not, one by one: each is charged to its lease if that has enough credits, or else to its
-- workspace. Returns for each whether it is committed: false if neither has enough credits, and then it is rejected for good.
CREATE FUNCTION charge(
    epochs bigint[], workspaces bigint[], lookups uuid[], keys bigint[], costs bigint[], arrivals timestamptz[]
) RETURNS boolean[] LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    settled uuid[];
    spend   record;
BEGIN
    PERFORM FROM workspace WHERE rowid = ANY (workspaces) ORDER BY rowid FOR UPDATE;
    PERFORM lock_leases(epochs, workspaces);
    settled := ARRAY (SELECT lookup_id FROM credit_spend WHERE lookup_id = ANY (lookups));
    FOR spend IN
        SELECT DISTINCT ON (i.lookup) i.* FROM unnest(epochs, workspaces, lookups, keys, costs, arrivals)
            AS i (epoch, workspace, lookup, key, cost, arrival)
        WHERE i.lookup <> ALL (settled) AND i.lookup NOT IN (SELECT lookup_id FROM rejected_spend WHERE lookup_id = ANY (lookups))
        ORDER BY i.lookup
    LOOP
        UPDATE lease l SET spent = l.spent + spend.cost
        WHERE l.workspace = spend.workspace AND l.epoch = spend.epoch
          AND l.taken - l.returned - l.spent >= spend.cost;
        IF NOT FOUND THEN
            spend.epoch := NULL;
            UPDATE workspace w SET spent = w.spent + spend.cost
            WHERE w.rowid = spend.workspace AND w.granted - w.spent - w.leased >= spend.cost;
            IF NOT FOUND THEN
                INSERT INTO rejected_spend VALUES (spend.lookup, spend.arrival);
                CONTINUE;
            END IF;
        END IF;
        INSERT INTO credit_spend (lookup_id, workspace, key, credits, epoch, at)
        VALUES (spend.lookup, spend.workspace, spend.key, spend.cost, spend.epoch, spend.arrival);
        settled := settled || spend.lookup;
    END LOOP;
    RETURN ARRAY (
        SELECT i.lookup = ANY (settled)
        FROM unnest(lookups) WITH ORDINALITY AS i (lookup, n) ORDER BY i.n
    );
END $$;
