-- brokers_register: a broker begins to live under a new id.
-- $1 broker_id uuid, $2 ttl_ms bigint
INSERT INTO laneway.broker (broker_id, expires_at)
VALUES ($1, clock_timestamp() + $2 * interval '1 millisecond')
