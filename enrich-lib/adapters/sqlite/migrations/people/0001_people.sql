-- The people directory. An email is here only as the keyed hash of its canonical form.

CREATE TABLE person (
    email_hash BLOB PRIMARY KEY CHECK (length(email_hash) = 16),
    profile    TEXT NOT NULL, -- the name in the profile's URL
    confidence REAL NOT NULL CHECK (confidence BETWEEN 0 AND 1)
) STRICT, WITHOUT ROWID;

-- People who opted out: they are not in `person`, and no import brings them back. Later ones have greater ids.
CREATE TABLE suppressed (
    id         INTEGER PRIMARY KEY,
    email_hash BLOB    NOT NULL UNIQUE CHECK (length(email_hash) = 16),
    at         INTEGER NOT NULL -- milliseconds since the Unix epoch
) STRICT;

-- How often a part of `person` was changed: the people whose hashes begin with the same 16 bits. Who has a part in
-- memory reads it again when this has grown.
CREATE TABLE part (
    id      INTEGER PRIMARY KEY CHECK (id BETWEEN 0 AND 65535),
    changes INTEGER NOT NULL
) STRICT;
