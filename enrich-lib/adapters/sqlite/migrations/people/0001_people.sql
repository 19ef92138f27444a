-- The people directory. Emails are stored only as keyed hashes of their canonical form.

-- The fingerprint of the key that all hashes are made under: one row, of the first process.
CREATE TABLE people_key (
    is_only     INTEGER PRIMARY KEY CHECK (is_only = 1),
    fingerprint BLOB    NOT NULL CHECK (length(fingerprint) = 16)
) STRICT;

CREATE TABLE person (
    email_hash BLOB PRIMARY KEY CHECK (length(email_hash) = 16),
    profile    TEXT NOT NULL, -- the name in the profile's URL
    confidence REAL NOT NULL CHECK (confidence BETWEEN 0 AND 1)
) STRICT, WITHOUT ROWID;

-- The last change of each opt-out. People who opted out are not in `person`, and imports skip them.
CREATE TABLE opt_out (
    email_hash   BLOB    PRIMARY KEY CHECK (length(email_hash) = 16),
    is_withdrawn INTEGER NOT NULL CHECK (is_withdrawn IN (0, 1)),
    at           INTEGER NOT NULL -- milliseconds since the Unix epoch
) STRICT, WITHOUT ROWID;
