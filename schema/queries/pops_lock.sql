-- pops_lock: the fence of a pop. Waits for its turn, up to lock_timeout.
-- $1 group_id bigint, $2 partition_id bigint, $3 epoch bigint
-- No row: the lane has another epoch, or a session holds it, and nothing may happen. Locks one lane row.
SELECT partition_id
FROM laneway.lane
WHERE group_id = $1 AND partition_id = $2 AND epoch = $3 AND session_id IS NULL
FOR NO KEY UPDATE
