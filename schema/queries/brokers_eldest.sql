-- brokers_eldest: the broker that has lived longest: the one that does what one of them must do.
-- No row: none lives. Locks nothing.
SELECT broker_id
FROM laneway.broker
WHERE dead_at IS NULL AND expires_at > clock_timestamp()
ORDER BY started_at, broker_id
LIMIT 1
