-- lanes_take: moves the lanes of a session to the broker that it resumes on; the old broker is fenced by the epoch.
-- $1 session_id uuid, $2 broker_id uuid
-- Locks those lanes by id.
WITH held AS (
    SELECT group_id, partition_id
    FROM laneway.lane
    WHERE session_id = $1
    ORDER BY group_id, partition_id
    FOR NO KEY UPDATE
)
UPDATE laneway.lane l
SET broker_id = $2, epoch = l.epoch + 1
FROM held
WHERE l.group_id = held.group_id AND l.partition_id = held.partition_id
