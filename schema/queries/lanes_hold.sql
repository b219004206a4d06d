-- lanes_hold: takes some lanes of a group from everybody until the transaction ends, whoever holds them.
-- $1 group_id bigint, $2 partition_ids bigint[]
-- Rows: those that exist. Waits for commits under way. Locks lane rows by partition. Order: groups_lock before this one.
SELECT partition_id
FROM laneway.lane
WHERE group_id = $1 AND partition_id = ANY ($2)
ORDER BY partition_id
FOR NO KEY UPDATE
