-- brokers_list: brokers, the youngest first: those that live, and those that were buried lately.
-- $1 limit bigint
-- No row: there is none. Locks nothing.
SELECT
    b.broker_id, b.started_at, b.expires_at, b.dead_at,
    (SELECT count(*) FROM laneway.session s WHERE s.broker_id = b.broker_id) AS sessions,
    coalesce(held.lanes, 0) AS lanes
FROM laneway.broker b
LEFT JOIN (
    SELECT l.broker_id, count(*) AS lanes
    FROM laneway.lane l
    WHERE l.session_id IS NOT NULL
    GROUP BY l.broker_id
) held USING (broker_id)
ORDER BY b.started_at DESC, b.broker_id
LIMIT $1
