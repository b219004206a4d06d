-- data_keys_forget: drops data keys that nothing refers to any more: their messages are below the start of the partition, none waits
-- for its time, and no copy is left.
-- $1 limit bigint
-- Count of rows = those gone. Locks those rows; what is locked is left to the next time.
DELETE FROM laneway.data_key
WHERE data_key_id = ANY (ARRAY (
    SELECT k.data_key_id
    FROM laneway.data_key k
    JOIN laneway.partition p USING (partition_id)
    WHERE k.end_offset IS NOT NULL
      AND greatest(k.end_offset, k.moved_offset) <= p.start_offset
      AND NOT EXISTS (SELECT FROM laneway.schedule s WHERE s.data_key_id = k.data_key_id)
      AND NOT EXISTS (SELECT FROM laneway.dead_letter d WHERE d.data_key_id = k.data_key_id)
      AND NOT EXISTS (SELECT FROM laneway.parked_message m WHERE m.data_key_id = k.data_key_id)
    LIMIT $1
    FOR UPDATE OF k SKIP LOCKED
))
