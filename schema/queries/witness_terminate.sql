-- witness_terminate: ends connections of brokers to this database, for the verifier's own clusters.
-- $1 application_name_pattern text (LIKE)
-- No row: there were none. Locks nothing.
SELECT pg_terminate_backend(pid)
FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE $1 AND pid <> pg_backend_pid()
