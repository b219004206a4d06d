-- lanes_revoke_overdue: takes lanes from holders that had time to finish and did not let go.
-- $1 group_id bigint
-- Count: how many. Locks those lanes by id, unless they are busy: then their holder is at work on them.
UPDATE laneway.lane l
SET session_id = NULL, broker_id = NULL, drain_until_at = NULL
FROM (
    SELECT partition_id
    FROM laneway.lane
    WHERE group_id = $1 AND session_id IS NOT NULL AND drain_until_at < clock_timestamp()
    ORDER BY partition_id
    FOR NO KEY UPDATE SKIP LOCKED
) late
WHERE l.group_id = $1 AND l.partition_id = late.partition_id
