-- brokers_renew: the heartbeat. Prolongs a broker's life, and says how many others live and when the first of them expires,
-- and what time it is.
-- $1 broker_id uuid, $2 ttl_ms bigint
-- No row: it was buried; it holds nothing any more and needs a new id. Locks its row.
UPDATE laneway.broker
SET expires_at = clock_timestamp() + $2 * interval '1 millisecond'
WHERE broker_id = $1 AND dead_at IS NULL
RETURNING
    (SELECT count(*) FROM laneway.broker other WHERE other.dead_at IS NULL AND other.broker_id <> $1) AS others,
    (
        SELECT greatest(ceil(extract(epoch FROM min(other.expires_at) - clock_timestamp()) * 1000), 0)::bigint
        FROM laneway.broker other
        WHERE other.dead_at IS NULL AND other.broker_id <> $1
    ) AS first_expiry_ms,
    clock_timestamp() AS clock_at
