-- sessions_close: ends a session; its memberships go with it, and lanes that it still holds are free.
-- $1 session_id uuid, $2 broker_id uuid
-- Rows: the groups that lost a lane. Locks the session, then those lanes by id, as everybody does. A session that has moved to
-- another broker stays. Why lanes: one that was taken over from another broker holds them before any group here knows of it.
WITH ending AS MATERIALIZED (
    SELECT session_id FROM laneway.session WHERE session_id = $1 AND broker_id = $2 FOR UPDATE
),
held AS (
    SELECT group_id, partition_id
    FROM laneway.lane
    WHERE session_id = $1 AND broker_id = $2 AND (SELECT count(*) FROM ending) >= 0 -- the lock comes first
    ORDER BY group_id, partition_id
    FOR NO KEY UPDATE
),
freed AS (
    UPDATE laneway.lane l
    SET session_id = NULL, broker_id = NULL, drain_until_at = NULL
    FROM held
    WHERE l.group_id = held.group_id AND l.partition_id = held.partition_id
    RETURNING l.group_id
),
ended AS (
    DELETE FROM laneway.session WHERE session_id = $1 AND broker_id = $2
)
SELECT DISTINCT group_id FROM freed
