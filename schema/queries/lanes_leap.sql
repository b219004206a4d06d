-- lanes_leap: raises the epochs of a broker's lanes past those that may have been given on a timeline that is lost.
-- $1 broker_id uuid, $2 step bigint
-- Locks those lanes by id.
WITH held AS (
    SELECT group_id, partition_id
    FROM laneway.lane
    WHERE broker_id = $1
    ORDER BY group_id, partition_id
    FOR NO KEY UPDATE
)
UPDATE laneway.lane l
SET epoch = l.epoch + $2
FROM held
WHERE l.group_id = held.group_id AND l.partition_id = held.partition_id
