-- parked_keys_free: keys of a lane that have no copies left are not parked any more. The lane's row is locked and fenced.
-- $1 group_id bigint, $2 partition_id bigint, $3 parked_offsets bigint[]
DELETE FROM laneway.parked_key k
WHERE k.group_id = $1 AND k.partition_id = $2 AND k.parked_offset = ANY ($3) AND k.state = 'released'
  AND NOT EXISTS (
      SELECT FROM laneway.parked_message m
      WHERE m.group_id = k.group_id AND m.partition_id = k.partition_id AND m.parked_offset = k.parked_offset
  )
