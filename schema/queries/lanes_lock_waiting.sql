-- lanes_lock_waiting: as lanes_lock, for one lane, but waits for its turn, up to lock_timeout.
-- $1 group_id bigint, $2 partition_id bigint, $3 epoch bigint, $4 session_id uuid
-- No row: the lease is lost, and nothing may happen. Locks one lane row, which is the fence.
SELECT partition_id
FROM laneway.lane
WHERE group_id = $1 AND partition_id = $2 AND epoch = $3 AND session_id = $4
FOR NO KEY UPDATE
