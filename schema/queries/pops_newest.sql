-- pops_newest: the newest commit of a lane, by its epoch and number. Read after pops_take, which is a statement of its own: what was
-- committed before the lock is in it.
-- $1 group_id bigint, $2 partition_id bigint
-- No row: nothing is committed. Locks nothing.
SELECT epoch, number
FROM laneway.lane_commit
WHERE group_id = $1 AND partition_id = $2
ORDER BY epoch DESC, number DESC
LIMIT 1
