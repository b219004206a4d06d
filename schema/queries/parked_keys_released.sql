-- parked_keys_released: the keys of a group whose copies are to be delivered again.
-- $1 group_id bigint
-- No row: none is. Locks nothing.
SELECT partition_id, parked_offset
FROM laneway.parked_key
WHERE group_id = $1 AND state = 'released'
