-- pops_extend: a puller needs longer: its time counts from now.
-- $1 group_id bigint, $2 partition_id bigint, $3 epoch bigint, $4 deadline_ms bigint
-- No row: the pop is over, or its time was. Locks one lane row.
UPDATE laneway.lane
SET popped_until_at = clock_timestamp() + $4 * interval '1 millisecond'
WHERE group_id = $1 AND partition_id = $2 AND epoch = $3 AND popped_until_at > clock_timestamp()
RETURNING popped_until_at
