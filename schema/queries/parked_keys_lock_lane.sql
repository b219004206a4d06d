-- parked_keys_lock_lane: takes the lane of a parked key, so that its holder is not in the middle of something.
-- $1 parked_id bigint
-- No row: there is no such key. Locks one lane row.
SELECT l.partition_id
FROM laneway.lane l
JOIN laneway.parked_key k USING (group_id, partition_id)
WHERE k.parked_id = $1
FOR NO KEY UPDATE OF l
