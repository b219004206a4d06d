-- parked_keys_park: a key of a lane is parked, or parked again. The lane's row is locked and fenced by the transaction.
-- $1 group_id bigint, $2 partition_id bigint, $3 parked_offset bigint, $4 key bytea
INSERT INTO laneway.parked_key (group_id, partition_id, parked_offset, key, state, messages)
VALUES ($1, $2, $3, $4, 'parked', 0)
ON CONFLICT (group_id, partition_id, parked_offset) DO UPDATE
SET state = 'parked', parked_at = clock_timestamp()
