-- Workspaces, their keys and their credits, for several nodes.
--
-- Each thing that a node does is one call of a function below: one statement, and so one transaction and one round trip.
-- Who has a workspace locked, and nobody else, changes its totals and the number of its leases; who has a lease locked, the
-- lease. All lock in one order (nodes, workspaces by rowid, leases by workspace and epoch), so that none waits for another
-- in a circle. The spends of a node lock its own leases alone: nodes do not wait for one another, however hot a workspace
-- is. The only clock that decides is this server's.
--
-- They are written for READ COMMITTED: a statement that has waited for a lock is followed by one that sees what was
-- changed meanwhile. They find their rows by an index, whatever the statistics say: those of a young table are old, and a plan
-- that reads all of it is kept for as long as its connection lives.

CREATE TABLE workspace (
    rowid          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id             text        NOT NULL UNIQUE,
    quota_limit    bigint      NOT NULL CHECK (quota_limit BETWEEN 1 AND 4294967295),
    window_seconds integer     NOT NULL CHECK (window_seconds BETWEEN 1 AND 86400),
    created_at     timestamptz NOT NULL,
    -- Running totals of the ledgers below, changed in the transaction that adds to them: see the view `account`.
    granted        bigint      NOT NULL DEFAULT 0 CHECK (granted >= 0),
    spent          bigint      NOT NULL DEFAULT 0 CHECK (spent >= 0), -- but for what leases have spent that still run
    leased         bigint      NOT NULL DEFAULT 0 CHECK (leased >= 0), -- what nodes have taken and not returned
    CONSTRAINT nothing_is_spent_twice CHECK (spent + leased <= granted)
);

CREATE TABLE api_key (
    rowid        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id           text        NOT NULL UNIQUE,
    workspace    bigint      NOT NULL REFERENCES workspace,
    label        text        NOT NULL,
    digest       bytea       NOT NULL UNIQUE CHECK (length(digest) = 32),
    masked       text        NOT NULL,
    created_at   timestamptz NOT NULL,
    last_used_at timestamptz,
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

-- One row a billed lookup: its id makes a repeated spend a no-op. There is no email in it. Its workspace is one that
-- `settle` has locked: a foreign key would look it up once more for every row, and cost ten times as much as all else.
CREATE TABLE credit_spend (
    lookup_id uuid        PRIMARY KEY,
    workspace bigint      NOT NULL,
    credits   bigint      NOT NULL CHECK (credits > 0),
    epoch     bigint,              -- of the lease that paid; none if the workspace paid directly
    at        timestamptz NOT NULL -- when the lookup arrived
);

-- Lookups that nobody was told of: their spend is taken back, and if it is still on its way, it will not be made.
CREATE TABLE credit_void (
    lookup_id uuid        PRIMARY KEY,
    workspace bigint      NOT NULL,
    at        timestamptz NOT NULL -- when the lookup arrived
);

-- A serving process, from when it came to this server until it leaves or is not heard of any more. What it leased
-- returns then. One that comes back has a new epoch.
CREATE TABLE node (
    epoch      bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       text        NOT NULL,
    started_at timestamptz NOT NULL,
    ends_at    timestamptz NOT NULL
);

-- The credits of a workspace that a node may spend without asking. The counters only grow, so that a call whose answer was
-- lost can be repeated.
CREATE TABLE lease (
    workspace bigint NOT NULL REFERENCES workspace,
    epoch     bigint NOT NULL REFERENCES node,
    taken     bigint NOT NULL DEFAULT 0,
    returned  bigint NOT NULL DEFAULT 0 CHECK (returned >= 0),
    spent     bigint NOT NULL DEFAULT 0 CHECK (spent >= 0),
    -- What the node's lookups hold of it, as of its last beat: for showing, never for deciding.
    held      bigint NOT NULL DEFAULT 0 CHECK (held >= 0),
    -- How often other nodes asked for what is idle of it, and up to which of these the node has answered.
    recalled  bigint NOT NULL DEFAULT 0,
    answered  bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (workspace, epoch),
    CONSTRAINT nothing_is_spent_but_what_was_taken CHECK (returned + spent <= taken)
);

CREATE INDEX lease_of_node ON lease (epoch);
CREATE INDEX lease_recalled ON lease (epoch) WHERE recalled > answered;

-- A workspace's credits: all that was ever spent, what is left of its leases, and what lookups on nodes that live hold of
-- that.
CREATE VIEW account AS
    SELECT w.rowid, w.id, w.granted, w.spent + l.spent AS spent, w.leased - l.spent AS leased, l.held
    FROM workspace w CROSS JOIN LATERAL (
        SELECT coalesce(sum(l.spent), 0)::bigint AS spent,
            coalesce(sum(least(l.held, l.taken - l.returned - l.spent)) FILTER (WHERE n.ends_at > clock_timestamp()), 0)::bigint
                AS held
        FROM lease l JOIN node n ON n.epoch = l.epoch WHERE l.workspace = w.rowid
    ) AS l;

-- Changes with everything that a node may have in its memory: keys and quotas.
CREATE TABLE revision (n bigint NOT NULL);
INSERT INTO revision VALUES (0);

CREATE FUNCTION revise() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE revision SET n = n + 1;
    PERFORM pg_notify('enrich', '');
    RETURN NULL;
END $$;

CREATE TRIGGER workspace_revised AFTER UPDATE OF quota_limit, window_seconds ON workspace EXECUTE FUNCTION revise();
CREATE TRIGGER api_key_revised AFTER UPDATE OF revoked_at ON api_key EXECUTE FUNCTION revise();

-- The ledgers are append-only.
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only', tg_table_name USING ERRCODE = 'restrict_violation';
END $$;

CREATE TRIGGER credit_grant_stays BEFORE UPDATE OR DELETE OR TRUNCATE ON credit_grant EXECUTE FUNCTION refuse_change();
CREATE TRIGGER credit_spend_stays BEFORE UPDATE OR DELETE OR TRUNCATE ON credit_spend EXECUTE FUNCTION refuse_change();
CREATE TRIGGER credit_void_stays BEFORE UPDATE OR DELETE OR TRUNCATE ON credit_void EXECUTE FUNCTION refuse_change();

-- A node comes. Its epoch is its name in all that follows.
CREATE FUNCTION node_begin(node_name text, ttl_ms bigint) RETURNS bigint LANGUAGE sql AS $$
    INSERT INTO node (name, started_at, ends_at)
    VALUES (node_name, clock_timestamp(), clock_timestamp() + ttl_ms * interval '1 ms')
    RETURNING epoch
$$;

-- A node lives. Tells whether its epoch goes on, and what is new to it: the revision, and the workspaces whose idle credits
-- others want, each with what the node has taken in all and the number of the recall.
CREATE FUNCTION node_beat(
    of_epoch bigint, ttl_ms bigint,
    OUT lives boolean, OUT revision bigint, OUT names text[], OUT workspaces bigint[], OUT takes bigint[], OUT recalls bigint[]
) LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    UPDATE node SET ends_at = clock_timestamp() + ttl_ms * interval '1 ms'
    WHERE epoch = of_epoch AND ends_at > clock_timestamp();
    lives := FOUND;
    SELECT r.n INTO revision FROM revision r;
    SELECT coalesce(array_agg(w.id ORDER BY w.rowid), '{}'), coalesce(array_agg(w.rowid ORDER BY w.rowid), '{}'),
        coalesce(array_agg(l.taken ORDER BY w.rowid), '{}'), coalesce(array_agg(l.recalled ORDER BY w.rowid), '{}')
    INTO names, workspaces, takes, recalls
    FROM lease l JOIN workspace w ON w.rowid = l.workspace
    WHERE l.epoch = of_epoch AND l.recalled > l.answered;
END $$;

-- A node goes. Its leases return with the next call of nodes_end.
CREATE FUNCTION node_leave(of_epoch bigint) RETURNS void LANGUAGE sql AS $$
    UPDATE node SET ends_at = least(ends_at, clock_timestamp()) WHERE epoch = of_epoch
$$;

-- Ends the nodes that were not heard of in time: what is left of their leases returns to the workspaces. Tells how many.
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

-- A node takes credits: those that it `needs` at once, and up to `wants` if there are enough for all nodes. `known` is all
-- that it knows to have taken; if it took more, an answer was lost, and it is told of that alone. The outcome is one of
--
--   taken     the node has taken `taken` in all
--   recalled  there are too few, but other nodes may have idle ones: they were told, so ask `again`
--   short     there are too few, and no node has idle ones
--   ended     the epoch has ended
--   unknown   there is no such workspace
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
    -- A node that has ended gives back what it has when somebody calls nodes_end.
    PERFORM FROM lease l JOIN node n ON n.epoch = l.epoch
    WHERE l.workspace = of_workspace AND l.epoch <> of_epoch AND l.taken > l.returned + l.spent
      AND (l.recalled > l.answered OR n.ends_at <= clock_timestamp());
    outcome := CASE WHEN FOUND THEN 'recalled' ELSE 'short' END;
END $$;

-- A node gives back what it does not need: `returns` of all that it ever took, having seen the recalls up to `seen`.
CREATE FUNCTION lease_return(of_epoch bigint, of_workspace bigint, returns bigint, seen bigint)
RETURNS void LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    before bigint;
BEGIN
    PERFORM FROM workspace w WHERE w.rowid = of_workspace FOR UPDATE;
    SELECT l.returned INTO before FROM lease l WHERE l.workspace = of_workspace AND l.epoch = of_epoch;
    IF NOT FOUND THEN
        RETURN; -- the epoch has ended, and all of it has returned
    END IF;
    UPDATE lease l SET returned = greatest(l.returned, returns), answered = greatest(l.answered, seen)
    WHERE l.workspace = of_workspace AND l.epoch = of_epoch;
    UPDATE workspace w SET leased = w.leased - greatest(0, returns - before) WHERE w.rowid = of_workspace;
END $$;

-- A node tells what its lookups hold, for operators to see.
CREATE FUNCTION lease_show(of_epoch bigint, workspaces bigint[], holds bigint[]) RETURNS void LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    PERFORM FROM lease WHERE epoch = of_epoch AND workspace = ANY (workspaces) ORDER BY workspace FOR UPDATE;
    UPDATE lease l SET held = i.held FROM unnest(workspaces, holds) AS i (workspace, held)
    WHERE l.epoch = of_epoch AND l.workspace = i.workspace;
END $$;

-- Locks these leases, as far as they still run.
CREATE FUNCTION lock_leases(epochs bigint[], workspaces bigint[]) RETURNS void LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    PERFORM FROM lease l
    WHERE (l.workspace, l.epoch) IN (SELECT i.workspace, i.epoch FROM unnest(epochs, workspaces) AS i (epoch, workspace))
    ORDER BY l.workspace, l.epoch FOR UPDATE;
END $$;

-- Spends credits, of many lookups at once. `epochs`, `workspaces` and `sums` are the leases that pay, in the order of their
-- locks, and what each is to pay; the others are the lookups in their order, each with the number of its lease from 1. Tells
-- of each whether it stands: one that was spent before does, one that was voided does not. NULL is one that its lease can't
-- pay, as it has ended or is too small: see `charge`.
CREATE FUNCTION settle(
    epochs bigint[], workspaces bigint[], sums bigint[],
    lookups uuid[], leases integer[], costs bigint[], arrivals timestamptz[]
) RETURNS boolean[] LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    settled uuid[];
    voided  uuid[];
BEGIN
    -- Nearly always all are new and can be paid: then nothing is looked up first.
    BEGIN
        FOR n IN 1 .. cardinality(epochs) LOOP
            UPDATE lease l SET spent = l.spent + sums[n]
            WHERE l.workspace = workspaces[n] AND l.epoch = epochs[n] AND l.taken - l.returned - l.spent >= sums[n];
            IF NOT FOUND THEN
                RAISE check_violation;
            END IF;
        END LOOP;
        PERFORM FROM credit_void WHERE lookup_id BETWEEN lookups[1] AND lookups[cardinality(lookups)];
        IF FOUND THEN
            RAISE unique_violation;
        END IF;
        INSERT INTO credit_spend (lookup_id, workspace, credits, epoch, at)
        SELECT i.lookup, workspaces[i.lease], i.cost, epochs[i.lease], i.arrival
        FROM unnest(lookups, leases, costs, arrivals) AS i (lookup, lease, cost, arrival);
        RETURN array_fill(true, ARRAY[cardinality(lookups)]);
    EXCEPTION WHEN check_violation OR unique_violation THEN
        NULL; -- nothing of this was done
    END;
    PERFORM lock_leases(epochs, workspaces);
    settled := ARRAY (SELECT lookup_id FROM credit_spend WHERE lookup_id = ANY (lookups));
    voided := ARRAY (SELECT lookup_id FROM credit_void WHERE lookup_id = ANY (lookups));
    -- Those of one lease together, if it can pay them all.
    WITH fresh AS (
        SELECT DISTINCT ON (i.lookup) i.*, workspaces[i.lease] AS workspace, epochs[i.lease] AS epoch
        FROM unnest(lookups, leases, costs, arrivals) AS i (lookup, lease, cost, arrival)
        WHERE i.lookup <> ALL (settled) AND i.lookup <> ALL (voided)
    ), asked AS (
        SELECT workspace, epoch, sum(cost)::bigint AS cost FROM fresh GROUP BY workspace, epoch
    ), paid AS (
        UPDATE lease l SET spent = l.spent + a.cost FROM asked a
        WHERE l.workspace = a.workspace AND l.epoch = a.epoch AND l.taken - l.returned - l.spent >= a.cost
        RETURNING a.workspace, a.epoch
    ), written AS (
        INSERT INTO credit_spend (lookup_id, workspace, credits, epoch, at)
        SELECT f.lookup, f.workspace, f.cost, f.epoch, f.arrival
        FROM fresh f JOIN paid p ON p.workspace = f.workspace AND p.epoch = f.epoch
        ORDER BY f.lookup
        RETURNING lookup_id
    )
    SELECT settled || coalesce(array_agg(lookup_id), '{}') INTO settled FROM written;
    RETURN ARRAY (
        SELECT CASE WHEN i.lookup = ANY (voided) THEN false WHEN i.lookup = ANY (settled) THEN true END
        FROM unnest(lookups) WITH ORDINALITY AS i (lookup, n) ORDER BY i.n
    );
END $$;

-- Spends credits that `settle` could not, one by one: each is paid by the lease of its epoch if it has enough for this one,
-- or else by what its workspace has left. Tells of each whether it stands: one that nobody can pay does not.
CREATE FUNCTION charge(
    epochs bigint[], workspaces bigint[], lookups uuid[], costs bigint[], arrivals timestamptz[]
) RETURNS boolean[] LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    settled uuid[];
    voided  uuid[];
    spend   record;
BEGIN
    PERFORM FROM workspace WHERE rowid = ANY (workspaces) ORDER BY rowid FOR UPDATE;
    PERFORM lock_leases(epochs, workspaces);
    settled := ARRAY (SELECT lookup_id FROM credit_spend WHERE lookup_id = ANY (lookups));
    voided := ARRAY (SELECT lookup_id FROM credit_void WHERE lookup_id = ANY (lookups));
    FOR spend IN
        SELECT DISTINCT ON (i.lookup) i.* FROM unnest(epochs, workspaces, lookups, costs, arrivals)
            AS i (epoch, workspace, lookup, cost, arrival)
        WHERE i.lookup <> ALL (settled) AND i.lookup <> ALL (voided)
        ORDER BY i.lookup
    LOOP
        UPDATE lease l SET spent = l.spent + spend.cost
        WHERE l.workspace = spend.workspace AND l.epoch = spend.epoch
          AND l.taken - l.returned - l.spent >= spend.cost;
        IF NOT FOUND THEN
            spend.epoch := NULL;
            UPDATE workspace w SET spent = w.spent + spend.cost
            WHERE w.rowid = spend.workspace AND w.granted - w.spent - w.leased >= spend.cost;
            CONTINUE WHEN NOT FOUND;
        END IF;
        INSERT INTO credit_spend (lookup_id, workspace, credits, epoch, at)
        VALUES (spend.lookup, spend.workspace, spend.cost, spend.epoch, spend.arrival);
        settled := settled || spend.lookup;
    END LOOP;
    RETURN ARRAY (
        SELECT i.lookup = ANY (settled) AND i.lookup <> ALL (voided)
        FROM unnest(lookups) WITH ORDINALITY AS i (lookup, n) ORDER BY i.n
    );
END $$;

-- Takes back spends that nobody was told of, whether they were made, are on their way or never arrive. Their credits
-- return to the lease that paid, or if that has ended, to the workspace. They are locked as `settle` and `charge` lock
-- them: one that comes later finds the void.
CREATE FUNCTION void(epochs bigint[], workspaces bigint[], lookups uuid[], arrivals timestamptz[])
RETURNS void LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    spend record;
BEGIN
    PERFORM FROM workspace WHERE rowid = ANY (workspaces) ORDER BY rowid FOR UPDATE;
    PERFORM lock_leases(epochs, workspaces);
    FOR spend IN
        WITH fresh AS (
            INSERT INTO credit_void (lookup_id, workspace, at)
            SELECT DISTINCT ON (i.lookup) i.lookup, i.workspace, i.arrival FROM unnest(workspaces, lookups, arrivals)
                AS i (workspace, lookup, arrival)
            ON CONFLICT DO NOTHING
            RETURNING lookup_id
        )
        SELECT s.* FROM fresh f JOIN credit_spend s ON s.lookup_id = f.lookup_id
    LOOP
        UPDATE lease l SET spent = l.spent - spend.credits
        WHERE l.workspace = spend.workspace AND l.epoch = spend.epoch;
        IF NOT FOUND THEN
            UPDATE workspace w SET spent = w.spent - spend.credits WHERE w.rowid = spend.workspace;
        END IF;
    END LOOP;
END $$;
