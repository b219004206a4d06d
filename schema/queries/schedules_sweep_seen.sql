-- schedules_sweep_seen: drops what was scheduled to a deleted partition under which number, some at a time.
-- $1 partition_id bigint, $2 limit bigint
-- Count of rows = those gone; fewer than the limit: done, unless another broker does the same. Locks those rows.
DELETE FROM laneway.schedule_seen
WHERE ctid = ANY (ARRAY (SELECT ctid FROM laneway.schedule_seen WHERE partition_id = $1 LIMIT $2))
