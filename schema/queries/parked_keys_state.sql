-- parked_keys_state: whether a parked key is released.
-- $1 group_id bigint, $2 partition_id bigint, $3 parked_offset bigint
-- No row: there is no such key. Locks nothing.
SELECT state
FROM laneway.parked_key
WHERE group_id = $1 AND partition_id = $2 AND parked_offset = $3
