-- migrations_record: remembers a migration that the same transaction has applied.
-- $1 version integer, $2 name text, $3 sha256 bytea
INSERT INTO laneway.migration (version, name, sha256) VALUES ($1, $2, $3)
