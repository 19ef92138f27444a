-- The statements of lookups. They are functions because a connection of the server plans the statements of a
-- function once, also behind a pooler in transaction mode, which has no prepared statements. Planning took
-- two thirds of the time of a small batch.
--
-- A plan is kept while tables and batches grow. It is therefore generic, and uses indexes even if the table
-- was small when it was made. Without sequential scans, a plan can appear so expensive that the server would
-- compile it, which takes 25 ms: `jit` is off. A workspace is found by its number in an array: a generic plan
-- would compare all rows of a join of two batches, 262,144 of 512 and 512.

-- Grants holds in their order, as far as the credits of the workspace suffice. `workspaces` contains each
-- workspace once, `numbers` the place of a hold's workspace in it, and `totals` the sum of the credits of the
-- workspace's holds up to this one. Returns what was available to each workspace, by its number. Fails if a
-- lookup has a hold. Commits asynchronously.
CREATE FUNCTION hold_credits(
    workspaces text[], lookup_ids bytea[], numbers bigint[], amounts bigint[], totals bigint[],
    ttls_ms bigint[]
) RETURNS TABLE (workspace_number bigint, credits_before bigint) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off SET lock_timeout = '250ms'
AS $$
DECLARE
    locked record;
    rowids bigint[];
    versions bigint[];
    available bigint[];
    now_ms bigint := extract(epoch FROM now()) * 1000;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    -- In the same order in each transaction, so that no two wait for each other.
    FOR locked IN
        SELECT n.number, b.workspace, b.version, b.available
        FROM (
            SELECT n.number, w.rowid FROM unnest(workspaces) WITH ORDINALITY AS n (id, number)
            JOIN workspace w ON w.id = n.id
            ORDER BY w.rowid
        ) AS n CROSS JOIN LATERAL (
            SELECT * FROM balance b WHERE b.workspace = n.rowid ORDER BY b.version DESC LIMIT 1 FOR UPDATE
        ) AS b
    LOOP
        rowids[locked.number] := locked.workspace;
        versions[locked.number] := locked.version;
        available[locked.number] := locked.available;
        workspace_number := locked.number;
        credits_before := locked.available;
        RETURN NEXT;
    END LOOP;
    INSERT INTO credit_hold (lookup_id, workspace, credits, expires_at)
        SELECT i.lookup_id, rowids[i.number], i.credits, now_ms + i.ttl_ms
        FROM unnest(lookup_ids, numbers, amounts, totals, ttls_ms)
            AS i (lookup_id, number, credits, total, ttl_ms)
        WHERE i.total <= available[i.number];
    UPDATE balance b SET available = b.available - s.credits, version = b.version + 1
        FROM (
            SELECT i.number, max(i.total) AS credits FROM unnest(numbers, totals) AS i (number, total)
            WHERE i.total <= available[i.number] GROUP BY i.number
        ) AS s
        WHERE b.workspace = rowids[s.number] AND b.version = versions[s.number];
END $$;

-- Ends holds, and returns their number. Fails if one of the lookups has spent before. A release spends
-- nothing. Commits synchronously if `is_synchronous`, in the mode of the server unless that is `off`, and
-- otherwise asynchronously.
CREATE FUNCTION settle_holds(
    workspaces text[], lookup_ids bytea[], numbers bigint[], costs bigint[], keys bigint[], times bigint[],
    is_release boolean, is_synchronous boolean
) RETURNS bigint LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off SET lock_timeout = '250ms'
AS $$
DECLARE
    ended_count bigint;
BEGIN
    IF NOT is_synchronous THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    ELSIF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    WITH ended AS (
        DELETE FROM credit_hold h
        USING unnest(lookup_ids, numbers, costs, keys, times) AS i (lookup_id, number, credits, key, at),
            workspace w
        WHERE h.lookup_id = i.lookup_id AND h.credits >= i.credits
            AND w.rowid = h.workspace AND w.id = workspaces[i.number]
        RETURNING h.lookup_id, h.workspace, h.credits AS held, i.key, i.at,
            CASE WHEN is_release THEN 0 ELSE i.credits END AS credits
    ), spent AS (
        INSERT INTO credit_spend (lookup_id, workspace, key, credits, at)
        SELECT e.lookup_id, e.workspace, e.key, e.credits, e.at FROM ended e WHERE e.credits > 0
    ), counted AS (
        INSERT INTO settlement (settled_at, workspace, day, key, lookups, credits, rest)
        SELECT (extract(epoch FROM now()) * 1000)::bigint, e.workspace, e.at / 86400000, e.key,
            count(*) FILTER (WHERE e.credits > 0), sum(e.credits), sum(e.held - e.credits)
        FROM ended e GROUP BY e.workspace, e.at / 86400000, e.key
    )
    SELECT count(*) FROM ended INTO ended_count;
    RETURN ended_count;
END $$;

-- Ends the holds of spends in doubt, and then returns the spends that exist, and the holds that are too
-- small. The message makes the transaction write to the log even if it ends no hold: its commit then waits
-- for the disk and the standbys, and so do the commits that it has seen. One at a time: a node repeats a
-- fence that has no reply, and each that waits for a standby keeps a connection of the server.
CREATE FUNCTION fence_spends(
    workspaces text[], lookup_ids bytea[], numbers bigint[], costs bigint[], keys bigint[], times bigint[]
) RETURNS TABLE (lookup bytea, workspace_id text, amount bigint, is_spent boolean) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off SET lock_timeout = '250ms'
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('fence_spends'));
    PERFORM settle_holds(workspaces, lookup_ids, numbers, costs, keys, times, true, true);
    PERFORM pg_logical_emit_message(true, 'enrich', '');
    RETURN QUERY
        SELECT h.lookup_id, w.id, h.credits, false
        FROM credit_hold h JOIN workspace w ON w.rowid = h.workspace WHERE h.lookup_id = ANY (lookup_ids)
        UNION ALL
        SELECT s.lookup_id, w.id, s.credits, true
        FROM credit_spend s JOIN workspace w ON w.rowid = s.workspace WHERE s.lookup_id = ANY (lookup_ids);
END $$;

-- Returns a row for each person: the trusted profile, and whether the person opted out. A search for the next
-- hash among the opt-outs is an index search by any plan. It passes dead rows, which an import leaves, so it
-- is not used for people.
CREATE FUNCTION find_people(email_hashes bytea[], opt_out_hashes bytea[], confidence_min double precision)
RETURNS TABLE (is_read_only boolean, trusted_profile text, has_opted_out boolean) LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
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
