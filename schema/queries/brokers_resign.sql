-- brokers_resign: a broker that stops in order buries itself.
-- $1 broker_id uuid
UPDATE laneway.broker SET dead_at = clock_timestamp() WHERE broker_id = $1 AND dead_at IS NULL
