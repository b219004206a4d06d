-- pops_free: a pop is over, and the lane is free. Its row is locked and fenced by the transaction.
-- $1 group_id bigint, $2 partition_id bigint, $3 suspect_until bigint
UPDATE laneway.lane
SET popped_at = NULL, popped_until_at = NULL, popped_end_offset = NULL, suspect_until = greatest(suspect_until, $3)
WHERE group_id = $1 AND partition_id = $2
