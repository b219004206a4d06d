-- brokers_resign: a broker that stops in order buries itself.
-- $1 broker_id uuid
-- Locks its row, against those who act in its name too (brokers_hold).
UPDATE laneway.broker
SET dead_at = clock_timestamp()
WHERE broker_id IN (SELECT broker_id FROM laneway.broker WHERE broker_id = $1 AND dead_at IS NULL FOR UPDATE)
