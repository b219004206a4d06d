-- migrations_list: the migrations that this database has seen, oldest first.
-- No row: an empty database. Locks nothing.
SELECT version, name, sha256 FROM laneway.migration ORDER BY version
