-- brokers_register: a broker begins to live under a new id.
-- $1 broker_id uuid, $2 ttl_ms bigint
-- One row: how many others live, and what time it is.
INSERT INTO laneway.broker (broker_id, expires_at)
VALUES ($1, clock_timestamp() + $2 * interval '1 millisecond')
RETURNING
    (SELECT count(*) FROM laneway.broker other WHERE other.dead_at IS NULL AND other.broker_id <> $1) AS others,
    clock_timestamp() AS clock_at
