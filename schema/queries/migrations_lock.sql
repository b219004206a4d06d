-- migrations_lock: lets one migrator in at a time, until the transaction ends.
-- $1 key bigint
-- Always one row. Locks a transaction-level advisory lock; brokers that start together wait here.
SELECT pg_advisory_xact_lock($1)
