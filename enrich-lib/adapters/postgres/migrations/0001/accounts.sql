-- Workspaces, their keys and their credits, for several nodes.
--
-- Each operation of a node is one call of a function below: one statement, one transaction and one round trip. A workspace's
-- totals and its set of leases change only under the lock of its row, and a lease only under the lock of its own row. Locks
-- are taken in one order (nodes, workspaces by rowid, leases by workspace and epoch), which prevents deadlocks. Functions that
-- change many workspaces skip locked rows and therefore never wait. Spends lock only the node's own leases, so nodes do not
-- block each other, however busy a workspace is. All timeouts use this server's clock.
--
-- No statement grows with the number of workspaces: arrays have at most 1,000 elements, and the rest follows in the next call.
--
-- The functions require READ COMMITTED: after waiting for a lock, the next statement sees concurrent changes. They disable
-- sequential scans, because a plan made with the statistics of an almost empty table is cached with the connection. For the
-- same reason, they read leases by the full key, in loops instead of joins.

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
    revised        bigint      NOT NULL DEFAULT 0, -- the revision of the last change that nodes cache
    -- Running totals of the tables below, updated in the same transaction. See the view `account`.
    granted        bigint      NOT NULL DEFAULT 0 CHECK (granted >= 0),
    spent          bigint      NOT NULL DEFAULT 0 CHECK (spent >= 0), -- without the spends of active leases
    leased         bigint      NOT NULL DEFAULT 0 CHECK (leased >= 0), -- leased to nodes and not returned
    CONSTRAINT spent_and_leased_within_granted CHECK (spent + leased <= granted)
) WITH (fillfactor = 50); -- leaves space on each page for updates that touch no index
CREATE INDEX workspace_revised ON workspace (revised) WHERE revised > 0;
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
    revised      bigint      NOT NULL DEFAULT 0 -- the revision of the last change that nodes cache
);
CREATE INDEX api_key_of_workspace ON api_key (workspace);
CREATE INDEX api_key_revised ON api_key (revised) WHERE revised > 0;

CREATE TABLE credit_grant (
    rowid     bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    workspace bigint      NOT NULL REFERENCES workspace,
    kind      text        NOT NULL DEFAULT 'grant' CHECK (kind IN ('grant', 'adjustment', 'refund')),
    credits   bigint      NOT NULL CHECK (credits <> 0) CHECK (credits > 0 OR kind = 'adjustment'),
    reason    text        NOT NULL DEFAULT '',
    lookup_id uuid        UNIQUE CHECK ((kind = 'refund') = (lookup_id IS NOT NULL)), -- the refunded spend
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

-- The sums of removed spends. The epoch is that of `credit_spend` while its session exists, and otherwise 0.
CREATE TABLE removed_spend (
    workspace bigint NOT NULL REFERENCES workspace,
    key       bigint NOT NULL,
    epoch     bigint NOT NULL,
    lookups   bigint NOT NULL,
    credits   bigint NOT NULL,
    PRIMARY KEY (workspace, key, epoch)
);

-- Spends up to this lookup may be removed. One row, whose lock serializes removals.
CREATE TABLE removed_until (lookup_id uuid NOT NULL);
INSERT INTO removed_until VALUES ('00000000-0000-0000-0000-000000000000');

-- Sessions of serving processes. When a session ends or expires, its leases return to the workspaces. A process that
-- reconnects later gets a new epoch. Epochs are random: a sequence could assign one again after a failover to a standby that
-- lacks the last transactions.
CREATE TABLE node (
    epoch      bigint      PRIMARY KEY,
    name       text        NOT NULL,
    started_at timestamptz NOT NULL,
    ends_at    timestamptz NOT NULL
);

-- The credits of a workspace that a node may spend without a query. The counters never decrease, so that a call without a
-- reply can be repeated. A node ends a lease that it does not use. The next lease of the workspace has a larger number, so that
-- a late call for the old one has no effect on it.
CREATE TABLE lease (
    workspace bigint NOT NULL REFERENCES workspace,
    epoch     bigint NOT NULL REFERENCES node,
    number    bigint NOT NULL,
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
) WITH (fillfactor = 50);
CREATE INDEX lease_of_node ON lease (epoch, workspace);
CREATE INDEX lease_recalled ON lease (epoch, workspace) WHERE recalled > answered;

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
    UPDATE revision SET n = n + 1 RETURNING n INTO NEW.revised;
    PERFORM pg_notify('enrich', '');
    RETURN NEW;
END $$;

CREATE TRIGGER workspace_revised BEFORE UPDATE OF quota_limit, window_seconds, suspended_at, deleted_at ON workspace
    FOR EACH ROW EXECUTE FUNCTION revise();
CREATE TRIGGER api_key_revised BEFORE UPDATE OF expires_at, disabled_at, revoked_at ON api_key
    FOR EACH ROW EXECUTE FUNCTION revise();

-- Returns the digests of keys that have changed since a revision, but no more than `count_max`.
CREATE FUNCTION keys_changed(since bigint, count_max bigint) RETURNS SETOF bytea
LANGUAGE sql STABLE SET enable_seqscan = off AS $$
    SELECT digest FROM api_key WHERE revised > since AND revised > 0
    UNION ALL
    SELECT k.digest FROM workspace w JOIN api_key k ON k.workspace = w.rowid WHERE w.revised > since AND w.revised > 0
    LIMIT count_max
$$;

-- Finds an active key. All columns are NULL if there is none. Fails on a standby, which may not have received a revocation yet.
CREATE FUNCTION key_find(
    of_digest bytea, active_at timestamptz,
    OUT key bigint, OUT workspace_id text, OUT quota_limit bigint, OUT window_seconds integer, OUT expires_at timestamptz
) LANGUAGE plpgsql STABLE SET enable_seqscan = off AS $$
BEGIN
    IF current_setting('transaction_read_only')::boolean THEN
        RAISE read_only_sql_transaction USING MESSAGE = 'the server is read-only';
    END IF;
    SELECT k.rowid, w.id, w.quota_limit, w.window_seconds, k.expires_at
    INTO key, workspace_id, quota_limit, window_seconds, expires_at
    FROM api_key k JOIN workspace w ON w.rowid = k.workspace
    WHERE k.digest = of_digest AND k.revoked_at IS NULL AND k.disabled_at IS NULL
      AND w.suspended_at IS NULL AND w.deleted_at IS NULL
      AND (k.expires_at IS NULL OR k.expires_at > active_at);
END $$;

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
CREATE FUNCTION spends_remove(before uuid, rows_max bigint) RETURNS bigint LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    last    uuid;
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
        DELETE FROM credit_spend s WHERE s.lookup_id <= last RETURNING s.workspace, s.key, coalesce(s.epoch, 0) AS epoch, s.credits
    ), added AS (
        INSERT INTO removed_spend AS r (workspace, key, epoch, lookups, credits)
        SELECT d.workspace, d.key, d.epoch, count(*), sum(d.credits) FROM deleted d GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
        ON CONFLICT (workspace, key, epoch)
        DO UPDATE SET lookups = r.lookups + excluded.lookups, credits = r.credits + excluded.credits
    )
    SELECT count(*) INTO removed FROM deleted;
    WITH ended AS (
        DELETE FROM removed_spend r WHERE r.epoch <> 0 AND NOT EXISTS (SELECT FROM node n WHERE n.epoch = r.epoch) RETURNING r.*
    )
    INSERT INTO removed_spend AS r (workspace, key, epoch, lookups, credits)
    SELECT e.workspace, e.key, 0, sum(e.lookups), sum(e.credits) FROM ended e GROUP BY 1, 2 ORDER BY 1, 2
    ON CONFLICT (workspace, key, epoch)
    DO UPDATE SET lookups = r.lookups + excluded.lookups, credits = r.credits + excluded.credits;
    RETURN removed;
END $$;

-- Begins a session and returns its epoch, which identifies it in all other calls.
CREATE FUNCTION node_begin(node_name text, ttl_ms bigint) RETURNS bigint LANGUAGE sql AS $$
    INSERT INTO node (epoch, name, started_at, ends_at)
    VALUES (
        ('x' || encode(substr(sha256(uuid_send(gen_random_uuid())), 1, 8), 'hex'))::bit(64)::bigint & 9223372036854775807,
        node_name, clock_timestamp(), clock_timestamp() + ttl_ms * interval '1 ms'
    )
    RETURNING epoch
$$;

-- Renews a session. Returns whether it is active, and the revision. Does not depend on leases and workspaces.
CREATE FUNCTION node_beat(of_epoch bigint, ttl_ms bigint, OUT is_active boolean, OUT revision bigint)
LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    UPDATE node SET ends_at = clock_timestamp() + ttl_ms * interval '1 ms'
    WHERE epoch = of_epoch AND ends_at > clock_timestamp();
    is_active := FOUND;
    SELECT r.n INTO revision FROM revision r;
END $$;

-- Ends a session. Its leases return with the next calls of `nodes_end`.
CREATE FUNCTION node_leave(of_epoch bigint) RETURNS void LANGUAGE sql AS $$
    UPDATE node SET ends_at = least(ends_at, clock_timestamp()) WHERE epoch = of_epoch
$$;

-- Ends a lease: the rest of its credits returns to the workspace. The caller has locked the workspace.
CREATE FUNCTION lease_end(of_workspace bigint, of_epoch bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    ended lease;
BEGIN
    DELETE FROM lease l WHERE l.workspace = of_workspace AND l.epoch = of_epoch RETURNING l.* INTO ended;
    IF FOUND THEN
        UPDATE workspace w SET leased = w.leased - (ended.taken - ended.returned), spent = w.spent + ended.spent
        WHERE w.rowid = of_workspace;
    END IF;
END $$;

-- Ends up to `leases_max` leases of expired sessions, one session after the other, and removes the sessions that have none
-- left. Returns the number of leases: if it is not 0, call the function again. Concurrent calls do different sessions. Skips
-- what others have locked.
CREATE FUNCTION nodes_end(leases_max bigint) RETURNS bigint LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    gone  bigint;
    chunk bigint[]; -- workspaces
    ended bigint := 0;
BEGIN
    FOR gone IN SELECT epoch FROM node WHERE ends_at <= clock_timestamp() ORDER BY ends_at, epoch FOR UPDATE SKIP LOCKED LOOP
        chunk := ARRAY (
            SELECT l.workspace FROM lease l WHERE l.epoch = gone ORDER BY l.workspace LIMIT leases_max - ended
            FOR UPDATE SKIP LOCKED
        );
        chunk := ARRAY (
            SELECT w.rowid FROM workspace w WHERE w.rowid = ANY (chunk) ORDER BY w.rowid FOR NO KEY UPDATE SKIP LOCKED
        );
        -- Without the range, a plan can read all leases of the session: the statistics lack a new epoch.
        WITH returned AS (
            DELETE FROM lease l
            WHERE l.epoch = gone AND l.workspace BETWEEN chunk[1] AND chunk[cardinality(chunk)] AND l.workspace = ANY (chunk)
            RETURNING l.workspace, l.taken - l.returned AS leased, l.spent
        )
        UPDATE workspace w SET leased = w.leased - r.leased, spent = w.spent + r.spent
        FROM returned r WHERE w.rowid = r.workspace;
        ended := ended + cardinality(chunk);
        DELETE FROM node n WHERE n.epoch = gone AND NOT EXISTS (SELECT FROM lease l WHERE l.epoch = gone);
        EXIT WHEN ended = leases_max;
    END LOOP;
    RETURN ended;
END $$;

-- Leases credits to a node: at least `needs`, and up to `wants` if enough remain for all nodes. `of_number` is the number of
-- the lease, and `known` is the total that the node has leased so far. If the stored total is greater, an earlier reply was
-- lost, and only the total is returned. The outcome is one of
--
--   taken     the node has leased `taken` credits in total
--   recalled  too few credits are free; idle credits of other nodes were recalled, so call it with `again`
--   short     too few credits are free, and no node has idle ones
--   ended     the session or the lease has ended
--   unknown   the workspace does not exist
--
-- Fails if the workspace stays locked, before the statement timeout, at which the node would close its connection.
CREATE FUNCTION lease_take(
    of_epoch bigint, workspace_id text, of_number bigint, known bigint, needs bigint, wants bigint, again boolean,
    OUT outcome text, OUT of_workspace bigint, OUT taken bigint
) LANGUAGE plpgsql SET enable_seqscan = off SET lock_timeout = '500ms' AS $$
DECLARE
    current bigint; -- the number of the stored lease
    gone    bigint;
    free    bigint;
    nodes   bigint;
    slice   bigint;
BEGIN
    PERFORM FROM node WHERE epoch = of_epoch AND ends_at > clock_timestamp() FOR KEY SHARE;
    IF NOT FOUND THEN
        outcome := 'ended';
        RETURN;
    END IF;
    SELECT w.rowid INTO of_workspace FROM workspace w WHERE w.id = workspace_id FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        outcome := 'unknown';
        RETURN;
    END IF;
    SELECT l.number, l.taken INTO current, taken FROM lease l WHERE l.workspace = of_workspace AND l.epoch = of_epoch;
    IF current < of_number THEN
        PERFORM lease_end(of_workspace, of_epoch); -- the node has ended it, and that call has not arrived
        taken := NULL;
    END IF;
    IF current > of_number OR coalesce(taken, 0) < known THEN
        SELECT 'ended' INTO outcome, of_workspace, taken;
        RETURN;
    END IF;
    outcome := 'taken';
    IF taken > known THEN
        RETURN;
    END IF;
    SELECT w.granted - w.spent - w.leased INTO free FROM workspace w WHERE w.rowid = of_workspace;
    IF free < needs THEN
        FOR gone IN
            SELECT l.epoch FROM lease l JOIN node n ON n.epoch = l.epoch
            WHERE l.workspace = of_workspace AND l.epoch <> of_epoch AND n.ends_at <= clock_timestamp()
            ORDER BY l.epoch LIMIT 100 FOR UPDATE OF l SKIP LOCKED
        LOOP
            PERFORM lease_end(of_workspace, gone);
        END LOOP;
        SELECT w.granted - w.spent - w.leased INTO free FROM workspace w WHERE w.rowid = of_workspace;
    END IF;
    IF free >= needs THEN
        SELECT count(*) INTO nodes FROM node WHERE ends_at > clock_timestamp();
        slice := greatest(needs, least(wants, free / (2 * nodes)));
        INSERT INTO lease AS l (workspace, epoch, number, taken) VALUES (of_workspace, of_epoch, of_number, slice)
        ON CONFLICT ON CONSTRAINT lease_pkey DO UPDATE SET taken = l.taken + slice
        RETURNING l.taken INTO taken;
        UPDATE workspace w SET leased = w.leased + slice WHERE w.rowid = of_workspace;
        RETURN;
    END IF;
    taken := known;
    IF NOT again THEN
        PERFORM FROM lease l WHERE l.workspace = of_workspace AND l.epoch <> of_epoch ORDER BY l.epoch FOR UPDATE;
        UPDATE lease l SET recalled = l.recalled + 1
        WHERE l.workspace = of_workspace AND l.epoch <> of_epoch AND l.taken > l.returned + l.spent
          AND l.recalled = l.answered;
        IF FOUND THEN
            PERFORM pg_notify('enrich', '');
        END IF;
    END IF;
    PERFORM FROM lease l JOIN node n ON n.epoch = l.epoch
    WHERE l.workspace = of_workspace AND l.epoch <> of_epoch AND l.taken > l.returned + l.spent
      AND (l.recalled > l.answered OR n.ends_at <= clock_timestamp());
    outcome := CASE WHEN FOUND THEN 'recalled' ELSE 'short' END;
END $$;

-- Returns up to `leases_max` leases of a node whose idle credits other nodes have recalled, each with the node's total of
-- leased credits and the number of the recall.
CREATE FUNCTION leases_recalled(
    of_epoch bigint, leases_max bigint,
    OUT names text[], OUT workspaces bigint[], OUT numbers bigint[], OUT takes bigint[], OUT recalls bigint[]
) LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    SELECT coalesce(array_agg(r.name), '{}'), coalesce(array_agg(r.workspace), '{}'), coalesce(array_agg(r.number), '{}'),
        coalesce(array_agg(r.taken), '{}'), coalesce(array_agg(r.recalled), '{}')
    INTO names, workspaces, numbers, takes, recalls
    FROM (
        SELECT (SELECT w.id FROM workspace w WHERE w.rowid = l.workspace) AS name, l.* FROM lease l
        WHERE l.epoch = of_epoch AND l.recalled > l.answered ORDER BY l.workspace LIMIT leases_max
    ) AS r;
END $$;

-- Recalls the idle credits of a workspace for an adjustment, and ends its leases of expired sessions. The caller has locked the
-- workspace.
CREATE FUNCTION leases_recall(of_workspace bigint) RETURNS void LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    PERFORM lease_end(of_workspace, e.epoch) FROM (
        SELECT l.epoch FROM lease l JOIN node n ON n.epoch = l.epoch
        WHERE l.workspace = of_workspace AND n.ends_at <= clock_timestamp() ORDER BY l.epoch FOR UPDATE OF l SKIP LOCKED
    ) AS e;
    PERFORM FROM lease l WHERE l.workspace = of_workspace ORDER BY l.epoch FOR UPDATE;
    UPDATE lease l SET recalled = l.recalled + 1
    WHERE l.workspace = of_workspace AND l.taken > l.returned + l.spent AND l.recalled = l.answered;
    IF FOUND THEN
        PERFORM pg_notify('enrich', '');
    END IF;
END $$;

-- Returns idle credits of a node. `returns` are the totals returned so far; NULL ends the lease, on which no lookup of the node
-- may depend. `seen` are the last recalls that it answers. Returns the workspaces that others have locked: repeat the call for
-- these. A lease that has ended, or has another number, is ignored.
CREATE FUNCTION lease_return(of_epoch bigint, workspaces bigint[], numbers bigint[], returns bigint[], seen bigint[])
RETURNS bigint[] LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    before bigint;
    total  bigint;
    locked bigint[] := '{}';
BEGIN
    FOR n IN 1 .. cardinality(workspaces) LOOP
        PERFORM FROM lease l WHERE l.workspace = workspaces[n] AND l.epoch = of_epoch AND l.number = numbers[n];
        CONTINUE WHEN NOT FOUND;
        PERFORM FROM workspace w WHERE w.rowid = workspaces[n] FOR NO KEY UPDATE SKIP LOCKED;
        IF FOUND THEN
            SELECT l.returned, least(greatest(l.returned, returns[n]), l.taken - l.spent) INTO before, total FROM lease l
            WHERE l.workspace = workspaces[n] AND l.epoch = of_epoch FOR UPDATE SKIP LOCKED;
        END IF;
        IF NOT FOUND THEN
            locked := locked || workspaces[n];
        ELSIF returns[n] IS NULL THEN
            PERFORM lease_end(workspaces[n], of_epoch);
        ELSE
            UPDATE lease l SET returned = total, answered = greatest(l.answered, seen[n])
            WHERE l.workspace = workspaces[n] AND l.epoch = of_epoch;
            UPDATE workspace w SET leased = w.leased - (total - before) WHERE w.rowid = workspaces[n];
        END IF;
    END LOOP;
    RETURN locked;
END $$;

-- Stores the credits that a node's lookups hold, for operators. Skips locked leases.
CREATE FUNCTION lease_show(of_epoch bigint, workspaces bigint[], holds bigint[]) RETURNS void LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    FOR n IN 1 .. cardinality(workspaces) LOOP
        PERFORM FROM lease l WHERE l.workspace = workspaces[n] AND l.epoch = of_epoch FOR UPDATE SKIP LOCKED;
        IF FOUND THEN
            UPDATE lease l SET held = holds[n] WHERE l.workspace = workspaces[n] AND l.epoch = of_epoch;
        END IF;
    END LOOP;
END $$;

-- Locks those of the leases that still exist, in lock order.
CREATE FUNCTION lock_leases(epochs bigint[], workspaces bigint[]) RETURNS void LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    of record;
BEGIN
    FOR of IN SELECT DISTINCT i.workspace, i.epoch FROM unnest(epochs, workspaces) AS i (epoch, workspace) ORDER BY 1, 2 LOOP
        PERFORM FROM lease l WHERE l.workspace = of.workspace AND l.epoch = of.epoch FOR UPDATE;
    END LOOP;
END $$;

-- Commits a batch of spends. `epochs`, `workspaces` and `sums` are the leases to charge, in lock order, and the amount for
-- each. The other arrays are the lookups, each with the index of its lease from 1. Returns for each lookup whether its spend
-- is committed, now or before. Otherwise, its lease has ended or has too few credits (see `charge`). Fails instead of waiting
-- long for a lock, so that the node can send the other spends without those of the locked lease.
CREATE FUNCTION settle(
    epochs bigint[], workspaces bigint[], sums bigint[],
    lookups uuid[], leases integer[], keys bigint[], costs bigint[], arrivals timestamptz[]
) RETURNS boolean[] LANGUAGE plpgsql SET enable_seqscan = off SET lock_timeout = '250ms' AS $$
DECLARE
    settled uuid[];
    fresh   integer[]; -- the indexes of the spends that are neither committed nor rejected
    paid    integer[] := '{}';
    charge  record;
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
    fresh := ARRAY (
        SELECT DISTINCT ON (i.lookup) i.n FROM unnest(lookups) WITH ORDINALITY AS i (lookup, n)
        WHERE i.lookup <> ALL (settled) AND i.lookup NOT IN (SELECT lookup_id FROM rejected_spend WHERE lookup_id = ANY (lookups))
        ORDER BY i.lookup, i.n
    );
    -- All spends of a lease are charged, or none.
    FOR charge IN
        SELECT leases[n] AS lease, sum(costs[n])::bigint AS cost, array_agg(n) AS spends FROM unnest(fresh) AS n GROUP BY 1 ORDER BY 1
    LOOP
        UPDATE lease l SET spent = l.spent + charge.cost
        WHERE l.workspace = workspaces[charge.lease] AND l.epoch = epochs[charge.lease]
          AND l.taken - l.returned - l.spent >= charge.cost;
        IF FOUND THEN
            paid := paid || charge.spends;
        END IF;
    END LOOP;
    INSERT INTO credit_spend (lookup_id, workspace, key, credits, epoch, at)
    SELECT lookups[n], workspaces[leases[n]], keys[n], costs[n], epochs[leases[n]], arrivals[n] FROM unnest(paid) AS n ORDER BY 1;
    settled := settled || ARRAY (SELECT lookups[n] FROM unnest(paid) AS n);
    RETURN ARRAY (
        SELECT i.lookup = ANY (settled)
        FROM unnest(lookups) WITH ORDINALITY AS i (lookup, n) ORDER BY i.n
    );
END $$;

-- Commits spends that `settle` could not, one by one: each is charged to its lease if that has enough credits, or else to its
-- workspace. Returns for each whether it is committed: false if neither has enough credits, and then it is rejected for good.
CREATE FUNCTION charge(
    epochs bigint[], workspaces bigint[], lookups uuid[], keys bigint[], costs bigint[], arrivals timestamptz[]
) RETURNS boolean[] LANGUAGE plpgsql SET enable_seqscan = off SET lock_timeout = '250ms' AS $$
DECLARE
    settled uuid[];
    spend   record;
BEGIN
    PERFORM FROM workspace WHERE rowid = ANY (workspaces) ORDER BY rowid FOR NO KEY UPDATE;
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
