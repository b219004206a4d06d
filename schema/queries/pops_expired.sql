-- pops_expired: pops of a group whose time is over.
-- $1 group_id bigint
-- No row: none. Locks nothing: whoever ends one locks it and looks again.
SELECT partition_id, epoch
FROM laneway.lane
WHERE group_id = $1 AND popped_until_at <= clock_timestamp()
ORDER BY partition_id
