-- pops_take: gives a free lane to a puller, under the next epoch, for a while and up to an offset.
-- $1 group_id bigint, $2 partition_id bigint, $3 epoch bigint (as it was seen), $4 pullers uuid, $5 end_offset bigint,
-- $6 deadline_ms bigint, $7 open_until_offset bigint (the window of the lane is open below it)
-- No row: somebody was faster, or is busy with it. Locks one lane row.
WITH held AS (
    SELECT partition_id
    FROM laneway.lane
    WHERE group_id = $1 AND partition_id = $2 AND epoch = $3 AND wanted_session = $4
      AND session_id IS NULL AND popped_until_at IS NULL
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE laneway.lane l
SET epoch = l.epoch + 1, popped_at = clock_timestamp(),
    popped_until_at = clock_timestamp() + $6 * interval '1 millisecond', popped_end_offset = $5,
    open_until_offset = greatest(l.open_until_offset, $7)
FROM held
WHERE l.group_id = $1 AND l.partition_id = held.partition_id
RETURNING l.epoch, l.popped_until_at
