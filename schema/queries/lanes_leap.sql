-- lanes_leap: raises the epochs of a broker's lanes past those that may have been given on a timeline that is lost. Likewise those
-- of pullers, whose pops belong to no broker: they end.
-- $1 broker_id uuid, $2 step bigint, $3 pullers uuid
-- Locks those lanes by id.
WITH held AS (
    SELECT group_id, partition_id
    FROM laneway.lane
    WHERE broker_id = $1 OR wanted_session = $3 OR popped_until_at IS NOT NULL
    ORDER BY group_id, partition_id
    FOR NO KEY UPDATE
)
UPDATE laneway.lane l
SET epoch = l.epoch + $2, popped_at = NULL, popped_until_at = NULL, popped_end_offset = NULL
FROM held
WHERE l.group_id = held.group_id AND l.partition_id = held.partition_id
