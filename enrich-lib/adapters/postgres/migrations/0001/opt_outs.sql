-- People who opted out, for all nodes. Emails are stored only as keyed hashes, under the key in each node's file `people.key`.

-- The list as a whole: one row, whose lock serializes all changes until they are committed. A reader that sees a change
-- therefore also sees all changes with smaller numbers.
CREATE TABLE opt_out_list (
    people_key  bytea CHECK (length(people_key) = 16), -- fingerprint of the key; NULL before the first node
    last_change bigint NOT NULL DEFAULT 0
);
INSERT INTO opt_out_list DEFAULT VALUES;

-- The last change of each opt-out. A withdrawal stays as a row, which nodes read like any other change.
CREATE TABLE opt_out (
    email_hash   bytea       PRIMARY KEY CHECK (length(email_hash) = 16),
    is_withdrawn boolean     NOT NULL,
    at           bigint      NOT NULL, -- in milliseconds since the Unix epoch
    change       bigint      NOT NULL UNIQUE
);

-- Records opt-outs or withdrawals. Without `times`, the changes apply now. With `times`, a change applies unless there is a later
-- one of the same person: this merges two stores. Returns the number of people whose state changed, or NULL if the hashes were
-- made with another key than those in the list.
--
-- The numbers of changes are microseconds of this server's clock: a standby that is promoted without the last changes does not
-- use their numbers again.
CREATE FUNCTION change_opt_outs(of_key bytea, hashes bytea[], withdrawn boolean[], times bigint[]) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    base    bigint;
    changed bigint;
BEGIN
    SELECT greatest(l.last_change, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) INTO base
    FROM opt_out_list l WHERE l.people_key = of_key FOR UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    WITH given AS (
        SELECT DISTINCT ON (i.hash) i.hash, i.withdrawn, coalesce(i.at, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS at
        FROM unnest(hashes, withdrawn, times) AS i (hash, withdrawn, at) ORDER BY i.hash, i.at DESC
    ), written AS (
        INSERT INTO opt_out AS o (email_hash, is_withdrawn, at, change)
        SELECT g.hash, g.withdrawn, g.at, base + row_number() OVER (ORDER BY g.hash) FROM given g
        -- There is nothing to withdraw for a person who never opted out.
        WHERE NOT g.withdrawn OR EXISTS (SELECT FROM opt_out p WHERE p.email_hash = g.hash)
        ON CONFLICT (email_hash) DO UPDATE
        SET is_withdrawn = excluded.is_withdrawn, at = excluded.at, change = excluded.change
        WHERE o.is_withdrawn <> excluded.is_withdrawn AND (times IS NULL OR o.at < excluded.at)
        RETURNING change
    )
    SELECT count(*) INTO changed FROM written;
    IF changed > 0 THEN
        UPDATE opt_out_list SET last_change = base + cardinality(hashes);
    END IF;
    RETURN changed;
END $$;
