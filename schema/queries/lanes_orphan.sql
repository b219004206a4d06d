-- lanes_orphan: takes the lanes of buried brokers from them, and forgets that their sessions were to have them.
-- $1 broker_ids uuid[]
-- Rows: the groups that lost a lane. Locks those lanes by id.
WITH held AS (
    SELECT group_id, partition_id
    FROM laneway.lane
    WHERE broker_id = ANY ($1)
    ORDER BY group_id, partition_id
    FOR NO KEY UPDATE
),
freed AS (
    UPDATE laneway.lane l
    SET session_id = NULL, broker_id = NULL, drain_until_at = NULL,
        wanted_session = CASE
            WHEN NOT EXISTS (
                SELECT FROM laneway.session s WHERE s.session_id = l.wanted_session AND s.broker_id = ANY ($1)
            )
            THEN l.wanted_session
        END
    FROM held
    WHERE l.group_id = held.group_id AND l.partition_id = held.partition_id
    RETURNING l.group_id
)
SELECT DISTINCT group_id FROM freed
