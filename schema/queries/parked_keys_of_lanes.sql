-- parked_keys_of_lanes: the parked keys of some lanes of a group.
-- $1 group_id bigint, $2 partition_ids bigint[]
-- No row: none is parked. Locks nothing.
SELECT partition_id, parked_offset, key, state
FROM laneway.parked_key
WHERE group_id = $1 AND partition_id = ANY ($2)
