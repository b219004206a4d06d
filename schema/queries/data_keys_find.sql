-- data_keys_find: what data keys are derived from.
-- $1 data_key_id uuid[]
-- Rows: those that are there. Locks nothing.
SELECT k.data_key_id, k.topic_id, k.partition_id, k.place, k.ring_key, k.ring_fingerprint, k.salt
FROM laneway.data_key k
WHERE k.data_key_id = ANY ($1)
