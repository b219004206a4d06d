-- What the migration runner itself needs. Run before every look-up, under the migrators' lock; never changes.
CREATE SCHEMA IF NOT EXISTS laneway;
CREATE TABLE IF NOT EXISTS laneway.migration (
    version     integer PRIMARY KEY,
    name        text NOT NULL,
    sha256      bytea NOT NULL,
    applied_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);
