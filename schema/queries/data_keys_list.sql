-- data_keys_list: which keys of rings are in use, by name: how many data keys are derived from each, and since when.
-- No row: nothing is sealed. Locks nothing.
SELECT
    k.ring_key, k.ring_fingerprint, count(*) AS data_keys, count(*) FILTER (WHERE k.closed_at IS NULL) AS open_keys,
    count(DISTINCT k.topic_id) AS topics, min(k.created_at) AS first_made_at, max(k.created_at) AS last_made_at
FROM laneway.data_key k
GROUP BY k.ring_key, k.ring_fingerprint
ORDER BY k.ring_key, k.ring_fingerprint
