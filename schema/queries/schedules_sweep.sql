-- schedules_sweep: drops the schedules of a deleted partition, some at a time.
-- $1 partition_id bigint, $2 limit bigint
-- Count of rows = those gone; fewer than the limit: done, unless another broker does the same. Locks those rows.
DELETE FROM laneway.schedule
WHERE ctid = ANY (ARRAY (
    SELECT s.ctid
    FROM laneway.schedule s
    JOIN laneway.partition p ON p.topic_id = s.topic_id AND p.partition_id = s.partition_id
    WHERE p.partition_id = $1
    LIMIT $2
))
