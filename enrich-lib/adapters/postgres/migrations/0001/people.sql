-- People and opt-outs, for all nodes. Emails are stored only as keyed hashes.

-- The fingerprint of the key that all hashes are made under: one row, of the first node or command.
CREATE TABLE people_key (
    is_only     boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    fingerprint bytea   NOT NULL CHECK (length(fingerprint) = 16)
);

CREATE TABLE person (
    confidence double precision NOT NULL CHECK (confidence BETWEEN 0 AND 1),
    email_hash bytea            PRIMARY KEY CHECK (length(email_hash) = 16),
    profile    text             NOT NULL -- the name in the profile's URL
);

-- The last change of each opt-out. Lookups do not find people who opted out, and imports skip them.
CREATE TABLE opt_out (
    email_hash   bytea   PRIMARY KEY CHECK (length(email_hash) = 16),
    is_withdrawn boolean NOT NULL,
    at           bigint  NOT NULL -- in milliseconds since the Unix epoch
);
