-- parked_keys_release: the copies of a parked key are to be delivered again, as if they had never failed. Its lane is locked.
-- $1 parked_id bigint
-- No row: there is no such key, or it is released already; nothing happened.
WITH released AS (
    UPDATE laneway.parked_key
    SET state = 'released'
    WHERE parked_id = $1 AND state = 'parked'
    RETURNING group_id, partition_id, parked_offset
),
reset AS (
    UPDATE laneway.parked_message m
    SET attempts = 0, retry_at = NULL
    FROM released r
    WHERE m.group_id = r.group_id AND m.partition_id = r.partition_id AND m.parked_offset = r.parked_offset AND m.attempts > 0
)
SELECT group_id FROM released
