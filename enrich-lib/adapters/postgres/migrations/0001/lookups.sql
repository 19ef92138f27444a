-- The statements of lookups, and those that return credits to workspaces. They are functions because a
-- connection of the server plans the statements of a function once, also behind a pooler in transaction mode,
-- which has no prepared statements. Planning took two thirds of the time of a small batch.
--
-- A plan is kept while tables and batches grow, and is made again after an ANALYZE, which counts one row in a
-- balance with thousands of dead versions. A plan therefore depends on no statistics. Without sequential and
-- bitmap scans, an index with its condition is all that remains to find the rows of one item. A subquery with
-- a LIMIT, or ANY with an array of one, prevents a join that reads a whole index in its order. Rows that are
-- locked, or never updated, are changed by their `ctid`. Two batches are not joined: a generic plan would
-- compare 262,144 rows of 512 and 512. Without sequential scans, a plan can appear so expensive that the
-- server would compile it, which takes 25 ms: `jit` is off.

-- Returns the places of the receipts that are spent. `NULL` stands for a hold without one.
CREATE FUNCTION spent_receipts(workspaces text[], numbers bigint[], receipts bytea[])
RETURNS TABLE (place bigint) LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
BEGIN
    RETURN QUERY SELECT i.place
    FROM unnest(numbers, receipts) WITH ORDINALITY AS i (number, receipt, place)
    CROSS JOIN LATERAL (SELECT w.rowid FROM workspace w WHERE w.id = workspaces[i.number] LIMIT 1) AS w
    CROSS JOIN LATERAL (
        SELECT FROM credit_receipt r WHERE r.workspace = w.rowid AND r.receipt = i.receipt LIMIT 1
    ) AS r
    WHERE i.receipt IS NOT NULL;
END $$;

-- Grants holds in their order, as far as the credits of the workspace suffice. `workspaces` contains each
-- workspace once, `numbers` the place of a hold's workspace in it, and `totals` the sum of the credits of the
-- workspace's holds up to this one. A hold whose receipt is spent takes no credits, which changes `amounts`
-- and `totals`. `receipts` is empty if no hold has one. Returns what was available to each workspace.
--
-- `available` is `NULL` for a workspace that does not exist, and for one whose balance another session has
-- locked. `locked` contains the places of the latter, whose holds are not granted. While all are locked,
-- tries again for up to `wait_ms`. It never waits with a lock, so that no session waits for a workspace
-- because another one is locked, and makes no subtransaction, as a lock with a timeout would.
--
-- Fails if a lookup has a hold or is spent. Commits asynchronously.
CREATE FUNCTION hold_credits(
    workspaces text[], lookup_ids bytea[], numbers bigint[], INOUT amounts bigint[], INOUT totals bigint[],
    ttls_ms bigint[], receipts bytea[], wait_ms bigint, OUT available bigint[], OUT locked bigint[]
) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET lock_timeout = '250ms'
AS $$
DECLARE
    free record;
    found record;
    rowids bigint[];
    places tid[];
    now_ms bigint := extract(epoch FROM now()) * 1000;
    deadline timestamptz := clock_timestamp() + wait_ms * interval '1 ms';
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    available := array_fill(NULL::bigint, ARRAY[cardinality(workspaces)]);
    IF cardinality(receipts) > 0 THEN
        FOR free IN SELECT * FROM spent_receipts(workspaces, numbers, receipts) LOOP
            amounts[free.place] := 0;
        END LOOP;
        totals := ARRAY(
            SELECT least(
                sum(i.amount) OVER (PARTITION BY i.number ORDER BY i.place), 9223372036854775807
            )::bigint
            FROM unnest(numbers, amounts) WITH ORDINALITY AS i (number, amount, place) ORDER BY i.place
        );
    END IF;
    LOOP
        locked := '{}';
        -- The newest version is found first: a search for a row that is not locked would read all older ones.
        FOR found IN
            SELECT n.number, w.rowid, b.ctid, b.available
            FROM unnest(workspaces) WITH ORDINALITY AS n (id, number)
            CROSS JOIN LATERAL (SELECT w.rowid FROM workspace w WHERE w.id = n.id LIMIT 1) AS w
            CROSS JOIN LATERAL (
                SELECT b.ctid FROM balance b WHERE b.workspace = w.rowid ORDER BY b.version DESC LIMIT 1
            ) AS newest
            LEFT JOIN LATERAL (
                SELECT b.ctid, b.available FROM balance b WHERE b.ctid = newest.ctid FOR UPDATE SKIP LOCKED
            ) AS b ON true
        LOOP
            rowids[found.number] := found.rowid;
            places[found.number] := found.ctid;
            available[found.number] := found.available;
            IF found.ctid IS NULL THEN
                locked := locked || found.number;
            END IF;
        END LOOP;
        EXIT WHEN cardinality(locked) < cardinality(workspaces) OR clock_timestamp() >= deadline;
        PERFORM pg_sleep(0.001);
    END LOOP;
    INSERT INTO credit_hold (lookup_id, workspace, credits, expires_at)
        SELECT i.lookup_id, rowids[i.number], i.credits, now_ms + i.ttl_ms
        FROM unnest(lookup_ids, numbers, amounts, totals, ttls_ms)
            AS i (lookup_id, number, credits, total, ttl_ms)
        WHERE places[i.number] IS NOT NULL AND (i.total <= available[i.number] OR i.credits = 0);
    -- A statement may arrive after its lookup was spent. Its insert has waited for the end of the hold.
    IF EXISTS (SELECT FROM credit_spend s WHERE s.lookup_id = ANY (lookup_ids)) THEN
        RAISE unique_violation;
    END IF;
    UPDATE balance b SET available = b.available - s.credits, version = b.version + 1
        FROM (
            SELECT i.number, max(i.total) AS credits FROM unnest(numbers, totals) AS i (number, total)
            WHERE i.total <= available[i.number] GROUP BY i.number
        ) AS s
        WHERE b.ctid = places[s.number];
END $$;

-- Ends holds, and returns their number. A release spends nothing. Of the spends with one receipt, one is
-- inserted, with the receipt. The others end their holds and spend nothing: `unpaid` are their lookups, and
-- `payers` those that have paid, or `NULL` if the receipt is gone. `receipts` is empty if no hold has one.
-- Commits synchronously if `is_synchronous`, in the mode of the server unless that is `off`, and otherwise
-- asynchronously.
CREATE FUNCTION settle_holds(
    workspaces text[], lookup_ids bytea[], numbers bigint[], costs bigint[], keys bigint[], times bigint[],
    receipts bytea[], is_release boolean, is_synchronous boolean,
    OUT ended_count bigint, OUT unpaid bytea[], OUT payers bytea[]
) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET lock_timeout = '250ms'
AS $$
DECLARE
    free record;
    rowids bigint[];
    unpaid_receipts bytea[];
BEGIN
    IF NOT is_synchronous THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    ELSE
        -- The server warns if the commit does not wait for the standbys any more.
        PERFORM set_config('client_min_messages', 'warning', true);
        IF current_setting('synchronous_commit') = 'off' THEN
            PERFORM set_config('synchronous_commit', 'on', true);
        END IF;
    END IF;
    IF cardinality(receipts) > 0 THEN
        FOR free IN SELECT * FROM spent_receipts(workspaces, numbers, receipts) LOOP
            costs[free.place] := 0;
        END LOOP;
    END IF;
    WITH ended AS (
        DELETE FROM credit_hold h
        USING unnest(lookup_ids, numbers, costs, keys, times, receipts)
            AS i (lookup_id, number, credits, key, at, receipt)
        WHERE h.lookup_id = ANY (ARRAY[i.lookup_id]) AND h.credits >= i.credits
            AND (SELECT w.id FROM workspace w WHERE w.rowid = h.workspace) = workspaces[i.number]
        RETURNING h.lookup_id, h.workspace, h.credits AS held, i.key, i.at, i.receipt,
            CASE WHEN is_release THEN 0 ELSE i.credits END AS cost
    ), paid AS (
        -- In the same order in each transaction, so that no two wait for each other.
        INSERT INTO credit_receipt AS r (workspace, receipt, lookup_id, at)
        SELECT e.workspace, e.receipt, e.lookup_id, greatest((extract(epoch FROM now()) * 1000)::bigint, e.at)
        FROM ended e WHERE e.receipt IS NOT NULL AND e.cost > 0 ORDER BY e.workspace, e.receipt
        ON CONFLICT (workspace, receipt) DO NOTHING RETURNING r.lookup_id
    ), settled AS (
        SELECT e.*, CASE
            WHEN e.receipt IS NULL OR e.lookup_id IN (SELECT p.lookup_id FROM paid p) THEN e.cost ELSE 0
        END AS credits
        FROM ended e
    ), spent AS (
        INSERT INTO credit_spend (lookup_id, workspace, key, credits, at)
        SELECT e.lookup_id, e.workspace, e.key, e.credits, e.at FROM settled e WHERE e.credits > 0
    ), counted AS (
        INSERT INTO settlement (settled_at, workspace, day, key, lookups, credits, rest)
        SELECT (extract(epoch FROM now()) * 1000)::bigint, i.*
        FROM (
            SELECT e.workspace, e.at / 86400000, e.key, count(*), sum(e.credits), 0
            FROM settled e WHERE e.credits > 0 GROUP BY e.workspace, e.at / 86400000, e.key
            UNION ALL
            SELECT e.workspace, 0, 0, 0, 0, sum(e.held - e.credits)
            FROM settled e WHERE e.held > e.credits GROUP BY e.workspace
        ) AS i
    )
    SELECT count(*), array_agg(e.lookup_id) FILTER (WHERE e.is_unpaid),
        array_agg(e.workspace) FILTER (WHERE e.is_unpaid), array_agg(e.receipt) FILTER (WHERE e.is_unpaid)
    FROM (SELECT s.*, s.receipt IS NOT NULL AND s.credits = 0 AS is_unpaid FROM settled s) AS e
    INTO ended_count, unpaid, rowids, unpaid_receipts;
    -- In a statement of its own: the first one does not see a receipt that was committed while it waited.
    IF unpaid IS NOT NULL AND NOT is_release THEN
        payers := ARRAY(
            SELECT (
                SELECT r.lookup_id FROM credit_receipt r
                WHERE r.workspace = i.workspace AND r.receipt = i.receipt
            )
            FROM unnest(rowids, unpaid_receipts) WITH ORDINALITY AS i (workspace, receipt, n) ORDER BY i.n
        );
    END IF;
END $$;

-- Ends the holds of spends in doubt, and then returns the spends that exist, the holds that are too small,
-- and the lookups that have paid for their receipts. The message makes the transaction write to the log even
-- if it ends no hold: its commit then waits for the disk and the standbys, and so do the commits that it has
-- seen. One at a time: a node repeats a fence that has no reply, and each that waits for a standby keeps a
-- connection of the server.
CREATE FUNCTION fence_spends(
    workspaces text[], lookup_ids bytea[], numbers bigint[], costs bigint[], keys bigint[], times bigint[],
    receipts bytea[]
) RETURNS TABLE (lookup bytea, workspace_id text, amount bigint, is_spent boolean, payer bytea)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET lock_timeout = '250ms'
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('fence_spends'));
    PERFORM settle_holds(workspaces, lookup_ids, numbers, costs, keys, times, receipts, true, true);
    PERFORM pg_logical_emit_message(true, 'enrich', '');
    RETURN QUERY
        SELECT h.lookup_id, (SELECT w.id FROM workspace w WHERE w.rowid = h.workspace), h.credits, false,
            NULL::bytea
        FROM credit_hold h WHERE h.lookup_id = ANY (lookup_ids)
        UNION ALL
        SELECT s.lookup_id, (SELECT w.id FROM workspace w WHERE w.rowid = s.workspace), s.credits, true,
            NULL::bytea
        FROM credit_spend s WHERE s.lookup_id = ANY (lookup_ids)
        UNION ALL
        SELECT i.lookup_id, workspaces[i.number], 0::bigint, false, r.lookup_id
        FROM unnest(lookup_ids, numbers, receipts) AS i (lookup_id, number, receipt)
        CROSS JOIN LATERAL (SELECT w.rowid FROM workspace w WHERE w.id = workspaces[i.number] LIMIT 1) AS w
        CROSS JOIN LATERAL (
            SELECT r.lookup_id FROM credit_receipt r
            WHERE r.workspace = w.rowid AND r.receipt = i.receipt LIMIT 1
        ) AS r;
END $$;

-- The next functions return whether no row was left, and the time. They wait for no lock of a row, except in
-- the usage, and commit asynchronously.

-- Ends up to `rows_max` holds that expired after `since`.
CREATE FUNCTION expire_holds(since bigint, rows_max bigint)
RETURNS TABLE (is_done boolean, time_ms bigint) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET lock_timeout = '250ms'
AS $$
DECLARE
    now_ms bigint := extract(epoch FROM now()) * 1000;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    RETURN QUERY
        WITH ended AS (
            DELETE FROM credit_hold h
            USING (
                SELECT h.ctid FROM credit_hold h WHERE h.expires_at > since AND h.expires_at <= now_ms
                ORDER BY h.expires_at LIMIT rows_max FOR UPDATE SKIP LOCKED
            ) AS due
            WHERE h.ctid = due.ctid
            RETURNING h.workspace, h.credits
        ), counted AS (
            INSERT INTO settlement (settled_at, workspace, day, key, lookups, credits, rest)
            SELECT now_ms, e.workspace, 0, 0, 0, 0, sum(e.credits) FROM ended e GROUP BY e.workspace
            HAVING sum(e.credits) > 0
        )
        SELECT count(*) < rows_max, now_ms FROM ended;
END $$;

-- Returns the rest of up to `rows_max` settlements after `since` to the workspaces whose balance no other
-- session has locked. The others are `locked`, and `time_ms` is that of their first row. The rows of
-- workspaces in `left_out` are not read, so that those of a locked workspace, of which there may be many, do
-- not take the places of others. The rows are not locked: another session that did not see them would take
-- their workspaces for ones without rest. The balance is locked before its rows are deleted.
CREATE FUNCTION return_credits(since bigint, rows_max bigint, left_out text[])
RETURNS TABLE (is_done boolean, time_ms bigint, locked text[]) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET lock_timeout = '250ms'
AS $$
DECLARE
    left_out_rowids bigint[] := ARRAY(
        SELECT w.rowid FROM unnest(left_out) AS i (id)
        CROSS JOIN LATERAL (SELECT w.rowid FROM workspace w WHERE w.id = i.id LIMIT 1) AS w
    );
    due tid[];
    owed bigint[];
    times bigint[];
    free bigint[];
    places tid[];
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    SELECT array_agg(t.ctid), array_agg(t.workspace), array_agg(t.settled_at) INTO due, owed, times
        FROM (
            SELECT t.ctid, t.workspace, t.settled_at FROM settlement t
            WHERE t.settled_at > since AND t.rest > 0 AND t.workspace <> ALL (left_out_rowids)
            ORDER BY t.settled_at LIMIT rows_max
        ) AS t;
    SELECT coalesce(array_agg(b.workspace), '{}'), array_agg(b.ctid) INTO free, places
        FROM (
            SELECT b.workspace, b.ctid
            FROM (SELECT DISTINCT o.workspace FROM unnest(owed) AS o (workspace) ORDER BY o.workspace) AS o
            CROSS JOIN LATERAL (
                SELECT b.ctid FROM balance b WHERE b.workspace = o.workspace ORDER BY b.version DESC LIMIT 1
            ) AS newest
            CROSS JOIN LATERAL (
                SELECT b.workspace, b.ctid FROM balance b WHERE b.ctid = newest.ctid FOR UPDATE SKIP LOCKED
            ) AS b
        ) AS b;
    RETURN QUERY
        WITH taken AS (
            DELETE FROM settlement t WHERE t.ctid = ANY (due) AND t.workspace = ANY (free) AND t.rest > 0
            RETURNING t.workspace, t.rest
        ), returned AS (
            UPDATE balance b SET available = b.available + r.rest, version = b.version + 1
            FROM (SELECT t.workspace, sum(t.rest)::bigint AS rest FROM taken t GROUP BY t.workspace) AS r
            WHERE b.ctid = places[array_position(free, r.workspace)]
        )
        SELECT coalesce(cardinality(due), 0) < rows_max, least((extract(epoch FROM now()) * 1000)::bigint, (
            SELECT min(o.at) FROM unnest(owed, times) AS o (workspace, at) WHERE o.workspace <> ALL (free)
        )), ARRAY(
            SELECT w.id FROM (SELECT unnest(owed) EXCEPT SELECT unnest(free)) AS o (workspace)
            CROSS JOIN LATERAL (SELECT w.id FROM workspace w WHERE w.rowid = o.workspace LIMIT 1) AS w
        );
END $$;

-- Adds up to `rows_max` settlements after `since` to the usage.
CREATE FUNCTION count_spends(since bigint, rows_max bigint)
RETURNS TABLE (is_done boolean, time_ms bigint) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET lock_timeout = '250ms'
AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    RETURN QUERY
        WITH taken AS (
            DELETE FROM settlement t
            USING (
                SELECT t.ctid FROM settlement t WHERE t.settled_at > since AND t.lookups > 0
                ORDER BY t.settled_at LIMIT rows_max FOR UPDATE SKIP LOCKED
            ) AS due
            WHERE t.ctid = due.ctid
            RETURNING t.*
        ), counted AS (
            INSERT INTO usage_day AS u (day, workspace, key, outcome, lookups, credits)
            SELECT t.day, t.workspace, t.key, 'billed', sum(t.lookups), sum(t.credits) FROM taken t
            GROUP BY t.day, t.workspace, t.key ORDER BY t.day, t.workspace, t.key
            ON CONFLICT (day, workspace, key, outcome)
            DO UPDATE SET lookups = u.lookups + excluded.lookups, credits = u.credits + excluded.credits
        )
        SELECT count(*) < rows_max, (extract(epoch FROM now()) * 1000)::bigint FROM taken;
END $$;

-- Deletes up to `rows_max` receipts after `since` that are older than `age_ms` by the clocks of the server
-- and of the node, whose time is `node_ms`: no receipt ends too early while one of them is ahead. Returns
-- the time of the youngest that may have ended.
CREATE FUNCTION end_receipts(since bigint, rows_max bigint, age_ms bigint, node_ms bigint)
RETURNS TABLE (is_done boolean, time_ms bigint) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET lock_timeout = '250ms'
AS $$
DECLARE
    until_ms bigint := least(extract(epoch FROM now()) * 1000, node_ms) - age_ms;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    RETURN QUERY
        WITH ended AS (
            DELETE FROM credit_receipt r
            USING (
                SELECT r.ctid FROM credit_receipt r WHERE r.at > since AND r.at <= until_ms
                ORDER BY r.at LIMIT rows_max FOR UPDATE SKIP LOCKED
            ) AS due
            WHERE r.ctid = due.ctid
            RETURNING r.at
        )
        SELECT count(*) < rows_max, until_ms FROM ended;
END $$;

-- Returns a row for each person: the trusted profile, and whether the person opted out. A search for the next
-- hash among the opt-outs is an index search by any plan. It passes dead rows, which an import leaves, so it
-- is not used for people.
CREATE FUNCTION find_people(email_hashes bytea[], opt_out_hashes bytea[], confidence_min double precision)
RETURNS TABLE (is_read_only boolean, trusted_profile text, has_opted_out boolean) LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
BEGIN
    RETURN QUERY SELECT current_setting('transaction_read_only') = 'on', p.profile,
        coalesce(o.email_hash = i.opt_out_hash AND NOT o.is_withdrawn, false)
    FROM unnest(email_hashes, opt_out_hashes) WITH ORDINALITY AS i (email_hash, opt_out_hash, n)
    LEFT JOIN LATERAL (
        SELECT p.profile FROM person p WHERE p.email_hash = i.email_hash AND p.confidence >= confidence_min
        LIMIT 1
    ) AS p ON true
    LEFT JOIN LATERAL (
        SELECT o.email_hash, o.is_withdrawn FROM opt_out o WHERE o.email_hash >= i.opt_out_hash
        ORDER BY o.email_hash LIMIT 1
    ) AS o ON true
    ORDER BY i.n;
END $$;
