-- The people directory. An email is here only as the keyed hash of its canonical form.

CREATE TABLE person (
    email_hash BLOB PRIMARY KEY CHECK (length(email_hash) = 16),
    profile    TEXT NOT NULL, -- the name in the profile's URL
    confidence REAL NOT NULL CHECK (confidence BETWEEN 0 AND 1)
) STRICT, WITHOUT ROWID;

-- People who opted out: they are not in `person`, and no import brings them back.
CREATE TABLE suppressed (
    email_hash BLOB    PRIMARY KEY CHECK (length(email_hash) = 16),
    at         INTEGER NOT NULL -- milliseconds since the Unix epoch
) STRICT, WITHOUT ROWID;
