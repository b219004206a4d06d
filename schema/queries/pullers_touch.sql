-- pullers_touch: somebody pulls from a group, so that its pullers are a member for a while.
-- $1 group_id bigint, $2 pause_ms bigint (how old the last touch must be)
-- Count 0: it was touched a moment ago, or is gone. Locks its row.
UPDATE laneway.consumer_group
SET pulled_at = clock_timestamp()
WHERE group_id = $1 AND (pulled_at IS NULL OR pulled_at < clock_timestamp() - $2 * interval '1 millisecond')
