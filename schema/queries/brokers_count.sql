-- brokers_count: how many brokers live.
-- Always one row. Locks nothing.
SELECT count(*) AS brokers FROM laneway.broker b WHERE b.dead_at IS NULL
